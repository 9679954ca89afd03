//! Damaged streams: every truncation and every changed byte gives an error or a value of the right
//! length, from the fast code as from the safe, and nothing outside the value is touched.

use crate::inputs;
use toast_format::codec::datum;
use toast_format::codec::{DecompressError, Method, pglz};

const VALUES: usize = 250;
/// Values are kept short, since each is decompressed 256 times for each of its bytes.
const LONGEST: usize = 1200;
const LONGEST_STREAM: usize = 500;

/// Compressed values, with their raw size.
fn values(method: Method) -> Vec<(usize, Vec<u8>)> {
    let mut compressor = datum::Compressor::new();
    let values = (0..).map(inputs::input).filter(|raw| raw.len() <= LONGEST).filter_map(|raw| {
        let stream = compressor.compress(method, &raw)?.to_vec();
        (stream.len() <= LONGEST_STREAM).then_some((raw.len(), stream))
    });
    values.take(VALUES).collect()
}

/// Every truncation of `stream`, and every byte of it changed to each of the 255 others.
fn each_damage(stream: &[u8], mut try_one: impl FnMut(&[u8])) {
    for len in 0..stream.len() {
        try_one(&stream[..len]);
    }
    let mut damaged = stream.to_vec();
    for at in 0..stream.len() {
        for change in 1..=u8::MAX {
            damaged[at] = stream[at] ^ change;
            try_one(&damaged);
        }
        damaged[at] = stream[at];
    }
}

/// Gives every damage of every value of `method` to `try_one`, which says whether a value was made
/// of it; counts how many were and how many not.
fn all_damage(method: Method, try_one: impl Fn(&mut Scratch, usize, &[u8]) -> bool + Sync) {
    let values = values(method);
    assert_eq!(values.len(), VALUES);
    let expected: usize = values.iter().map(|(_, stream)| 256 * stream.len()).sum();
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let parts = std::thread::scope(|scope| {
        let parts: Vec<_> = values
            .chunks(VALUES.div_ceil(threads))
            .map(|part| {
                let try_one = &try_one;
                scope.spawn(move || {
                    let mut scratch = Scratch::default();
                    let mut taken = 0;
                    let mut refused = 0;
                    for (len, stream) in part {
                        each_damage(stream, |damaged| {
                            if try_one(&mut scratch, *len, damaged) {
                                taken += 1;
                            } else {
                                refused += 1;
                            }
                        });
                    }
                    (taken, refused)
                })
            })
            .collect();
        parts.into_iter().map(|part| part.join().unwrap()).collect::<Vec<(usize, usize)>>()
    });
    let taken: usize = parts.iter().map(|part| part.0).sum();
    let refused: usize = parts.iter().map(|part| part.1).sum();
    assert_eq!(taken + refused, expected);
    assert!(taken > 1_000_000 && refused > 1_000_000, "{taken} taken, {refused} refused");
}

/// Buffers for one value after the other.
#[derive(Default)]
struct Scratch {
    safe: Vec<u8>,
    guarded: Vec<u8>,
}

const GUARD: usize = 80;

/// Decompresses into the middle of a buffer and looks at what lies around it.
fn guarded<T>(buffer: &mut Vec<u8>, len: usize, decompress: impl FnOnce(&mut [u8]) -> T) -> T {
    buffer.clear();
    buffer.resize(len + 2 * GUARD, 0xa5);
    let result = decompress(&mut buffer[GUARD..GUARD + len]);
    assert!(buffer[..GUARD] == [0xa5; GUARD], "written before the value");
    assert!(buffer[GUARD + len..] == [0xa5; GUARD], "written past the value");
    result
}

#[test]
fn damaged_pglz_is_an_error_or_a_value_of_the_right_length() {
    all_damage(Method::Pglz, |scratch, len, damaged| {
        scratch.safe.resize(len, 0);
        let safe = pglz::plain::decompress(damaged, &mut scratch.safe);
        let fast = guarded(&mut scratch.guarded, len, |dst| {
            let result = pglz::decompress(damaged, dst);
            assert!(result.is_err() || *dst == scratch.safe);
            result
        });
        assert_eq!(fast, safe);
        let prefix =
            guarded(&mut scratch.guarded, len / 2, |dst| pglz::decompress_prefix(damaged, dst));
        assert!(prefix.is_err() || prefix.is_ok_and(|got| got <= len / 2));
        fast.is_ok()
    });
}

#[test]
fn damaged_lz4_is_an_error_or_a_value_of_the_right_length() {
    all_damage(Method::Lz4, |_, len, damaged| {
        let prefix = datum::decompress_prefix(Method::Lz4, len / 2, damaged);
        assert!(prefix.is_err() || prefix.is_ok_and(|raw| raw.len() <= len / 2));
        match datum::decompress(Method::Lz4, len, damaged) {
            Ok(raw) => {
                assert_eq!(raw.len(), len);
                true
            }
            Err(_) => false,
        }
    });
}

/// pglz cuts the last match where the value ends, in C too, so that a value may seem complete.
#[test]
fn a_wrong_raw_size_is_an_error_unless_the_last_match_hides_it() {
    for method in [Method::Pglz, Method::Lz4] {
        for (len, stream) in values(method).into_iter().take(200) {
            let raw = datum::decompress(method, len, &stream).unwrap();
            for raw_size in [len + 1, 2 * len, 1 << 30, usize::MAX] {
                assert!(datum::decompress(method, raw_size, &stream).is_err(), "{raw_size}");
            }
            for raw_size in [0, 1, len / 2, len - 1] {
                match datum::decompress(method, raw_size, &stream) {
                    Ok(part) => assert!(method == Method::Pglz && part == raw[..raw_size]),
                    Err(DecompressError::Trailing { .. } | DecompressError::Truncated(_)) => {}
                    Err(error) => panic!("{error} for raw size {raw_size} in place of {len}"),
                }
            }
        }
    }
}
