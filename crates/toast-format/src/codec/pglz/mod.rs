//! pglz, PostgreSQL's own LZ77 variant (`common/pg_lzcompress.c`), byte for byte.
//!
//! # Stream
//!
//! A control byte governs the next eight items, least significant bit first; the stream may end
//! after any item, and what is left of the last control byte means nothing.
//!
//! ```text
//! bit 0   literal   1 byte, copied to the output
//! bit 1   match     OOOO LLLL  OOOO OOOO  [EEEE EEEE]
//!                   offset = O, 12 bits, the high ones first: 1 to 4095 bytes back in the output
//!                   length = L + 3 (3 to 17); L = 15 means 18 + E (18 to 273)
//! ```
//!
//! A match may reach into its own output: offset 1 and length 200 repeat one byte 200 times. The
//! stream knows neither its own length nor that of the value: both stand in the varlena header.
//!
//! # Files
//!
//! * [`plain`]: decompression in safe code and in the order the C file does things. It ends every
//!   decompression, and is what the fast code is tested against.
//! * `compress`, `decompress`: the fast code.

mod compress;
mod decompress;
pub mod plain;

pub use compress::Compressor;
pub use decompress::{decompress, decompress_prefix};

/// The farthest back that a match can be coded (12 bits).
const MAX_OFFSET: usize = 0x0fff;
/// `PGLZ_MAX_MATCH`, the longest match that can be coded.
pub const MAX_MATCH: usize = 273;
/// `PGLZ_MAX_HISTORY_LISTS` of `pg_lzcompress.c`.
const MAX_HISTORY_LISTS: u16 = 8192;
/// No stream gives more than this many bytes for each of its own: a match of [`MAX_MATCH`] bytes
/// takes three, control bits not counted.
pub(super) const MAX_EXPANSION: usize = MAX_MATCH / 3;

/// When to try, and how hard (`PGLZ_Strategy`). A match of 128 bytes ends the search for a better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strategy {
    /// The smallest input to compress, in bytes.
    min_input_size: usize,
    /// The saving that a result must show, in percent of the input.
    min_comp_rate: u64,
    /// Give up when this many bytes are written and no match was found yet.
    first_success_by: usize,
    /// By how many percent the length of a good match falls with each candidate looked at.
    match_size_drop: usize,
}

impl Strategy {
    /// `PGLZ_strategy_default`, which TOAST uses.
    pub const DEFAULT: Strategy = Strategy {
        min_input_size: 32,
        min_comp_rate: 25,
        first_success_by: 1024,
        match_size_drop: 10,
    };

    /// `PGLZ_strategy_always`: any size, any saving.
    pub const ALWAYS: Strategy = Strategy {
        min_input_size: 0,
        min_comp_rate: 0,
        first_success_by: i32::MAX as usize,
        match_size_drop: 6,
    };

    /// What this strategy means for an input of `len` bytes; `None` where it forbids compression.
    fn limits(&self, len: usize) -> Option<CompressionLimits> {
        let size = u64::from(i32::try_from(len).ok()?.unsigned_abs());
        if len < self.min_input_size {
            return None;
        }
        let keep = 100 - self.min_comp_rate;
        // Like C, which approximates where its int would overflow.
        let overflows = size > u64::from(i32::MAX.unsigned_abs() / 100);
        let result_max = if overflows { size / 100 * keep } else { size * keep / 100 };
        let lists = match len {
            0..128 => 512,
            128..256 => 1024,
            256..512 => 2048,
            512..1024 => 4096,
            _ => MAX_HISTORY_LISTS,
        };
        Some(CompressionLimits { result_max: usize::try_from(result_max).ok()?, lists })
    }
}

impl Default for Strategy {
    fn default() -> Strategy {
        Strategy::DEFAULT
    }
}

/// A [`Strategy`] applied to one input.
#[derive(Debug, Clone, Copy)]
struct CompressionLimits {
    /// A result of this many bytes or more is refused.
    result_max: usize,
    /// The number of history lists, a power of two.
    lists: u16,
}

/// The history list of four bytes (`pglz_hist_idx`), among the most lists there can be. C computes
/// with plain `char`, signed on the platforms that decided what is on disk.
fn list_of(a: u8, b: u8, c: u8, d: u8) -> u16 {
    let [a, b, c, d] = [a, b, c, d].map(|byte| i16::from(byte.cast_signed()).cast_unsigned());
    ((a << 6) ^ (b << 4) ^ (c << 2) ^ d) & (MAX_HISTORY_LISTS - 1)
}

/// The most bytes of a stream that are needed for the first `raw` bytes of a value
/// (`pglz_maximum_compressed_size`); never more than `compressed`, the length of the whole stream.
pub fn maximum_compressed_size(raw: usize, compressed: usize) -> usize {
    // A control bit for each byte, and two bytes in case the last item is a match of three.
    let bits = (raw as u64).saturating_mul(9).saturating_add(7);
    let size = usize::try_from(bits / 8).unwrap_or(usize::MAX).saturating_add(2);
    size.min(compressed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::DecompressError;

    /// "ab", then a match of 6 bytes 2 back, then "x".
    const STREAM: [u8; 6] = [0b0100, b'a', b'b', 0x03, 0x02, b'x'];

    fn whole(stream: &[u8], len: usize) -> Result<Vec<u8>, DecompressError> {
        let mut fast = vec![0; len];
        let mut safe = vec![0; len];
        let result = decompress(stream, &mut fast);
        assert_eq!(result, plain::decompress(stream, &mut safe));
        result.map(|()| fast)
    }

    #[test]
    fn a_stream_made_by_hand_is_read() {
        assert_eq!(whole(&STREAM, 9).as_deref(), Ok(&b"ababababx"[..]));
        assert_eq!(whole(&[], 0), Ok(Vec::new()));
        // The long form, 18 + 255 bytes, and a control byte with nothing to control.
        let stream = [0b10, b'z', 0x0f, 0x01, 0xff, b'a', b'b', b'c', b'd', b'e', b'f', 0];
        let expected = [&[b'z'; 274][..], b"abcdef"].concat();
        assert_eq!(whole(&stream, 280), Err(DecompressError::Trailing { at: 11, len: 1 }));
        assert_eq!(whole(&stream[..11], 280), Ok(expected));
    }

    #[test]
    fn each_damage_has_its_error() {
        let short = DecompressError::Short { expected: 10, got: 9 };
        assert_eq!(whole(&STREAM, 10), Err(short));
        assert_eq!(whole(&STREAM, 8), Err(DecompressError::Trailing { at: 5, len: 1 }));
        assert_eq!(whole(&STREAM[..4], 9), Err(DecompressError::Truncated(3)));
        assert_eq!(whole(&[1, 0x0f, 1], 9), Err(DecompressError::Truncated(1)));
        for offset in [0, 3] {
            let mut stream = STREAM;
            stream[4] = offset;
            let offset = usize::from(offset);
            let expected = DecompressError::Offset { at: 3, offset, written: 2 };
            assert_eq!(whole(&stream, 9), Err(expected));
        }
    }

    #[test]
    fn a_match_is_cut_where_the_prefix_ends() {
        for (len, expected) in [(0, 0), (1, 1), (5, 5), (9, 9), (20, 9)] {
            let mut prefix = vec![0; len];
            assert_eq!(decompress_prefix(&STREAM, &mut prefix), Ok(expected));
            assert_eq!(prefix[..expected], b"ababababx"[..expected]);
        }
    }

    #[test]
    fn every_offset_and_length_is_copied_alike() {
        let seed: Vec<u8> = (0..4095u16).map(|n| (n % 251) as u8 ^ (n / 251) as u8).collect();
        for offset in (1..=40).chain([63, 64, 65, 272, 273, 300, 4095]) {
            for len in 3..=MAX_MATCH {
                let mut stream: Vec<u8> =
                    seed[..4088].chunks(8).flat_map(|part| [&[0], part].concat()).collect();
                let high = ((offset >> 4) & 0xf0) as u8;
                stream.extend([0x80, 1, 2, 3, 4, 5, 6, 7]);
                match len {
                    ..18 => stream.extend([high | (len - 3) as u8, offset as u8]),
                    _ => stream.extend([high | 0x0f, offset as u8, (len - 18) as u8]),
                }
                // Once with room for wide copies behind the match and once without.
                for behind in [0, 80] {
                    let mut stream = stream.clone();
                    stream.extend(vec![0; behind + behind / 8]);
                    let raw = whole(&stream, 4095 + len + behind).unwrap();
                    let (before, after) = raw.split_at(4095);
                    for (index, byte) in after[..len].iter().enumerate() {
                        let from = 4095 - offset + index % offset;
                        assert_eq!(*byte, before[from], "offset {offset}, {index} of {len}");
                    }
                }
            }
        }
    }

    #[test]
    fn maximum_compressed_size_allows_for_control_bits_and_a_match() {
        assert_eq!(maximum_compressed_size(0, 100), 2);
        assert_eq!(maximum_compressed_size(8, 100), 11);
        assert_eq!(maximum_compressed_size(9, 100), 13);
        assert_eq!(maximum_compressed_size(usize::MAX, 100), 100);
    }

    #[test]
    fn a_compressor_for_large_values_lets_go_of_its_buffer() {
        let mut compressor = Compressor::new();
        let large = vec![b'x'; 8 << 20];
        let size = compressor.compress(&large, &Strategy::DEFAULT).map(<[u8]>::len);
        assert!(size.is_some_and(|size| size < 100_000));
        // And the next value is compressed as by a new one.
        let small = b"a small value, a small one".repeat(3);
        let mut new = Compressor::new();
        let expected = new.compress(&small, &Strategy::DEFAULT);
        assert_eq!(compressor.compress(&small, &Strategy::DEFAULT), expected);
    }
}
