//! Whole values, compressed and refused as the server does (`access/common/toast_internals.c`,
//! `access/common/toast_compression.c`). A value is its bytes without any header; its compressed
//! form is the stream that stands behind `va_tcinfo`, without it.

use super::items::{Item, Items};
use super::{DecompressError, Method, lz4, pglz};

/// `VARHDRSZ_COMPRESSED`: the length word and `va_tcinfo`, in bytes.
pub const COMPRESSED_HEADER: usize = 8;

/// Whether the server stores a compressed stream of `compressed` bytes in place of a value of `raw`
/// bytes (`toast_compress_datum`): with its header it must save more than two bytes. What the
/// method itself refuses does not come so far.
pub fn is_worthwhile(raw: usize, compressed: usize) -> bool {
    compressed.saturating_add(COMPRESSED_HEADER + 2) < raw
}

/// Compresses values one after another with the same tables and buffers.
#[derive(Debug, Default)]
pub struct Compressor {
    pglz: pglz::Compressor,
    lz4: lz4::Compressor,
}

impl Compressor {
    /// A compressor for values of any method.
    pub fn new() -> Compressor {
        Compressor::default()
    }

    /// The compressed stream of a value, or `None` where the server leaves it as it is
    /// (`toast_compress_datum`). Exactly the server's for pglz; for lz4 its length, and with it the
    /// refusal of values that lz4 hardly shrinks, is an estimate (see [`lz4`]).
    pub fn compress(&mut self, method: Method, raw: &[u8]) -> Option<&[u8]> {
        let stream = match method {
            Method::Pglz => self.pglz.compress(raw, &pglz::Strategy::DEFAULT)?,
            Method::Lz4 => self.lz4.compress(raw),
        };
        is_worthwhile(raw.len(), stream.len()).then_some(stream)
    }
}

/// The most bytes that a stream of `len` bytes can give.
pub fn largest_raw_size(method: Method, len: usize) -> usize {
    let expansion = match method {
        Method::Pglz => pglz::MAX_EXPANSION,
        Method::Lz4 => lz4::MAX_EXPANSION,
    };
    len.saturating_mul(expansion)
}

/// The literals and matches of a stream, up to the first damage, counted without decompressing it.
pub fn items(method: Method, stream: &[u8]) -> Items {
    let mut items = Items::default();
    each_item(method, stream, |item| {
        items.add(method, item);
        true
    });
    items
}

fn each_item<'s>(method: Method, stream: &'s [u8], each: impl FnMut(Item<'s>) -> bool) -> bool {
    match method {
        Method::Pglz => pglz::plain::each_item(stream, each),
        Method::Lz4 => lz4::each_item(stream, each),
    }
}

/// How far back a match of any method leads at most.
const REACH: usize = 0xffff;
/// Bytes that are decompressed before they are passed on.
const PIECE: usize = 1 << 20;

/// What was decompressed of a value: its last bytes, to which matches lead back.
struct Window<'t> {
    bytes: Vec<u8>,
    /// Bytes that are still to come.
    left: usize,
    take: &'t mut dyn FnMut(&[u8]),
}

impl Window<'_> {
    /// `false` if that cannot be.
    fn add(&mut self, item: Item<'_>) -> bool {
        let length = match item {
            Item::Literals(literals) => literals.len(),
            Item::Match { len, .. } => len,
        };
        let Some(left) = self.left.checked_sub(length) else { return false };
        self.left = left;
        match item {
            Item::Literals(literals) => {
                for piece in literals.chunks(PIECE) {
                    self.bytes.extend_from_slice(piece);
                    self.pass_on();
                }
            }
            Item::Match { offset, len } => {
                if offset == 0 || offset > self.bytes.len() {
                    return false;
                }
                // in parts that repeat what is matched some whole times
                let most = PIECE / offset * offset;
                let mut rest = len;
                while rest > 0 {
                    let part = rest.min(most);
                    let at = self.bytes.len();
                    self.bytes.resize(at + part, 0);
                    pglz::plain::copy_match(&mut self.bytes, at, offset, part);
                    rest -= part;
                    self.pass_on();
                }
            }
        }
        true
    }

    fn pass_on(&mut self) {
        if self.bytes.len() > PIECE + REACH {
            let end = self.bytes.len() - REACH;
            (self.take)(&self.bytes[..end]);
            self.bytes.drain(..end);
        }
    }
}

/// Passes the value of `raw_size` bytes that `stream` holds to `take`, piece by piece. `false` if the stream is damaged or
/// does not give exactly `raw_size` bytes: [`decompress`] says why, and what was passed on is part of no value.
pub fn decompress_pieces(
    method: Method,
    raw_size: usize,
    stream: &[u8],
    take: &mut dyn FnMut(&[u8]),
) -> bool {
    let mut window = Window { bytes: Vec::new(), left: raw_size, take };
    let is_whole = each_item(method, stream, |item| window.add(item)) && window.left == 0;
    (window.take)(&window.bytes);
    is_whole
}

/// The value of `raw_size` bytes that `stream` holds. Allocates nothing if `raw_size` is more than
/// the stream can give.
///
/// # Errors
/// If the stream is damaged or does not give exactly `raw_size` bytes.
pub fn decompress(
    method: Method,
    raw_size: usize,
    stream: &[u8],
) -> Result<Vec<u8>, DecompressError> {
    let limit = largest_raw_size(method, stream.len());
    if raw_size > limit {
        return Err(DecompressError::RawSize { raw_size, len: stream.len(), limit });
    }
    let mut raw = vec![0; raw_size];
    match method {
        Method::Pglz => pglz::decompress(stream, &mut raw)?,
        Method::Lz4 => lz4::decompress(stream, &mut raw)?,
    }
    Ok(raw)
}

/// The first `len` bytes of a value, or all of it if it is shorter or the stream is cut
/// (`toast_decompress_datum_slice`).
///
/// # Errors
/// If the part of the stream that is needed is damaged, or cut inside an item.
pub fn decompress_prefix(
    method: Method,
    len: usize,
    stream: &[u8],
) -> Result<Vec<u8>, DecompressError> {
    let mut raw = vec![0; len.min(largest_raw_size(method, stream.len()))];
    let got = match method {
        Method::Pglz => pglz::decompress_prefix(stream, &mut raw)?,
        Method::Lz4 => lz4::decompress_prefix(stream, &mut raw)?,
    };
    raw.truncate(got);
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worthwhile_is_a_saving_of_more_than_two_bytes_with_the_header() {
        assert!(is_worthwhile(100, 89));
        assert!(!is_worthwhile(100, 90));
        assert!(!is_worthwhile(0, 0));
    }

    #[test]
    fn both_methods_give_values_back() {
        let mut compressor = Compressor::new();
        let raw = b"one value, one value, one value and another; ".repeat(50);
        for method in [Method::Pglz, Method::Lz4] {
            let stream = compressor.compress(method, &raw).unwrap().to_vec();
            assert!(stream.len() < raw.len() / 4, "{method:?}: {}", stream.len());
            assert_eq!(decompress(method, raw.len(), &stream).as_deref(), Ok(&raw[..]));
            for len in [0, 1, 44, 45, 46, 1000, raw.len(), raw.len() + 1] {
                let prefix = decompress_prefix(method, len, &stream);
                assert_eq!(prefix.as_deref(), Ok(&raw[..len.min(raw.len())]), "{method:?} {len}");
            }
            let mut again = Vec::new();
            let mut pieces = |len, stream: &[u8]| {
                again.clear();
                decompress_pieces(method, len, stream, &mut |piece| again.extend_from_slice(piece))
                    .then(|| again.clone())
            };
            assert_eq!(pieces(raw.len(), &stream).as_deref(), Some(&raw[..]));
            assert_eq!(pieces(raw.len() + 1, &stream), None);
            assert_eq!(pieces(raw.len() - 1, &stream), None);
            assert_eq!(pieces(raw.len(), &stream[..stream.len() - 1]), None);
        }
    }

    #[test]
    fn long_values_come_in_pieces() {
        let mut compressor = Compressor::new();
        let mut raw = b"x".repeat(3 * PIECE + 7);
        raw.extend((0..5 * PIECE).map(|at| (at % 251) as u8 ^ (at / 60_000) as u8));
        raw.extend(b"seven b".repeat(PIECE / 2));
        for method in [Method::Pglz, Method::Lz4] {
            let stream = compressor.compress(method, &raw).unwrap().to_vec();
            let mut again = Vec::new();
            let mut longest = 0;
            assert!(decompress_pieces(method, raw.len(), &stream, &mut |piece| {
                longest = longest.max(piece.len());
                again.extend_from_slice(piece);
            }));
            assert!(again == raw && longest <= 2 * PIECE + REACH, "{method:?} {longest}");
        }
    }

    #[test]
    fn pglz_refuses_what_saves_less_than_a_quarter_and_lz4_does_not() {
        let mut compressor = Compressor::new();
        // 800 bytes that occur once, 150 that occur again.
        let mut raw: Vec<u8> = (0..400u16).flat_map(|n| (n * 163 + 7).to_be_bytes()).collect();
        raw.extend_from_within(..150);
        assert_eq!(compressor.compress(Method::Pglz, &raw), None);
        assert!(compressor.compress(Method::Lz4, &raw).is_some());
    }

    #[test]
    fn values_under_32_bytes_stay_as_they_are_with_pglz() {
        let mut compressor = Compressor::new();
        assert_eq!(compressor.compress(Method::Pglz, &[b'x'; 31]), None);
        assert_eq!(
            compressor.compress(Method::Pglz, &[b'x'; 32]),
            Some(&[2, b'x', 0x0f, 1, 13][..])
        );
        assert!(compressor.compress(Method::Lz4, &[b'x'; 31]).is_some());
        assert_eq!(compressor.compress(Method::Lz4, b""), None);
    }

    #[test]
    fn a_raw_size_that_the_stream_cannot_give_is_refused_before_it_is_allocated() {
        for (method, limit) in [(Method::Pglz, 364), (Method::Lz4, 1020)] {
            let error = decompress(method, (1 << 30) - 1, &[0xff; 4]).unwrap_err();
            let expected = DecompressError::RawSize { raw_size: (1 << 30) - 1, len: 4, limit };
            assert_eq!(error, expected);
            assert_eq!(decompress_prefix(method, usize::MAX, &[0]), Ok(Vec::new()));
        }
    }
}
