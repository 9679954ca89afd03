//! Damaged streams: every truncation and every changed byte gives an error or a value of the right
//! length, from the fast code as from the safe, and nothing outside the value is touched.

use crate::inputs;
use toastctl::codec::datum;
use toastctl::codec::{DecompressError, Method, pglz};

const VALUES: usize = 1000;
/// Values are kept short, since each is decompressed once or more for each of its bytes.
const LONGEST: usize = 1200;

/// Compressed values, with their raw size.
fn values(method: Method) -> Vec<(usize, Vec<u8>)> {
    let mut compressor = datum::Compressor::new();
    let values = (0..).map(inputs::input).filter(|raw| raw.len() <= LONGEST).filter_map(|raw| {
        let stream = compressor.compress(method, &raw)?.to_vec();
        (stream.len() <= 500).then_some((raw.len(), stream))
    });
    values.take(VALUES).collect()
}

/// Every truncation of `stream`, and every byte of it changed: to each neighbour in one bit, and to
/// all ones and all zeros.
fn each_damage(stream: &[u8], mut try_one: impl FnMut(&[u8])) {
    for len in 0..stream.len() {
        try_one(&stream[..len]);
    }
    let mut damaged = stream.to_vec();
    for at in 0..stream.len() {
        let changes = [stream[at] ^ 1 << (at % 8), stream[at] ^ 0x80, 0, 0xff];
        for change in changes.into_iter().filter(|&change| change != stream[at]) {
            damaged[at] = change;
            try_one(&damaged);
        }
        damaged[at] = stream[at];
    }
}

/// Decompresses into the middle of a buffer and looks at what lies around it.
fn guarded<T>(len: usize, decompress: impl FnOnce(&mut [u8]) -> T) -> T {
    const GUARD: usize = 80;
    let mut buffer = vec![0xa5; len + 2 * GUARD];
    let result = decompress(&mut buffer[GUARD..GUARD + len]);
    let (before, rest) = buffer.split_at(GUARD);
    assert!(before.iter().chain(&rest[len..]).all(|&byte| byte == 0xa5), "written past the value");
    result
}

#[test]
fn damaged_pglz_is_an_error_or_a_value_of_the_right_length() {
    let (mut taken, mut refused) = (0, 0);
    for (len, stream) in values(Method::Pglz) {
        each_damage(&stream, |damaged| {
            let mut expected = vec![0; len];
            let safe = pglz::plain::decompress(damaged, &mut expected);
            let fast = guarded(len, |dst| {
                let result = pglz::decompress(damaged, dst);
                assert!(result.is_err() || *dst == expected);
                result
            });
            assert_eq!(fast, safe);
            if fast.is_ok() {
                taken += 1;
            } else {
                refused += 1;
            }
            let prefix = guarded(len / 2, |dst| pglz::decompress_prefix(damaged, dst));
            assert!(prefix.is_err() || prefix.is_ok_and(|got| got <= len / 2));
        });
    }
    assert!(taken > 100_000 && refused > 100_000, "{taken} taken, {refused} refused");
}

#[test]
fn damaged_lz4_is_an_error_or_a_value_of_the_right_length() {
    let (mut taken, mut refused) = (0, 0);
    for (len, stream) in values(Method::Lz4) {
        each_damage(&stream, |damaged| {
            match datum::decompress(Method::Lz4, len, damaged) {
                Ok(raw) => {
                    assert_eq!(raw.len(), len);
                    taken += 1;
                }
                Err(_) => refused += 1,
            }
            let prefix = datum::decompress_prefix(Method::Lz4, len / 2, damaged);
            assert!(prefix.is_err() || prefix.is_ok_and(|raw| raw.len() <= len / 2));
        });
    }
    assert!(taken > 100_000 && refused > 100_000, "{taken} taken, {refused} refused");
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
                    Err(DecompressError::Trailing { .. } | DecompressError::Truncated { .. }) => {}
                    Err(error) => panic!("{error} for raw size {raw_size} in place of {len}"),
                }
            }
        }
    }
}
