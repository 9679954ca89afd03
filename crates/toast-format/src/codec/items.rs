//! The literals and matches of a compressed stream, which determine the time that its decompression takes.

use derive_more::{Add, AddAssign, Mul};

use super::Method;
use super::pglz::MAX_MATCH;

/// A part of a compressed stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Item<'s> {
    /// Bytes of the value.
    Literals(&'s [u8]),
    /// `len` bytes of the value again that begin `offset` bytes back.
    Match { offset: usize, len: usize },
}

/// The literals and matches of one stream or of several.
#[derive(Debug, Clone, Copy, PartialEq, Default, Add, AddAssign, Mul)]
pub struct Items {
    /// Bytes that the stream contains as they are.
    pub literals: f64,
    /// Matches, each of which repeats bytes that were decompressed before. One of pglz that repeats its own output counts
    /// more, because each of its copies is twice as long as the one before.
    pub matches: f64,
    /// Bytes that matches copy from before their own output.
    pub copied: f64,
    /// Bytes that matches repeat of their own output, except those of lz4 that repeat 1, 2, 4 or 8 bytes.
    pub overlapping: f64,
}

impl Items {
    /// An estimate for a value of `raw` bytes of which only the size of its stream is known: a few literals for each
    /// match, as in text and JSON, and fewer matches if these would be shorter than they can be. What is repeated many
    /// times is a run of few bytes, or of many, which lz4 copies at the same speed.
    pub fn typical(method: Method, raw: u32, stream: u32) -> Items {
        // bytes of the stream for each literal and each match, and the shortest match
        let (literal, matched, shortest) = match method {
            // one control bit for each item; matches mostly have two bytes
            Method::Pglz => (9.0 / 8.0, 2.0 + 1.0 / 8.0, 3.0),
            // a token for the literals and the match behind them, and two bytes for the offset
            Method::Lz4 => (1.0, 3.0, 4.0),
        };
        let raw = f64::from(raw);
        let stream = f64::from(stream);
        let mut matches = stream / (literal * LITERALS_PER_MATCH + matched);
        if (LITERALS_PER_MATCH + shortest) * matches > raw {
            // little is repeated: matches are as short as they can be
            matches = (literal * raw - stream) / (literal * shortest - matched);
        }
        let matches = matches.clamp(0.0, raw / shortest);
        let literals = ((stream - matched * matches) / literal).clamp(0.0, raw);
        let repeated = (raw - literals).max(0.0);
        match method {
            Method::Lz4 => Items { literals, matches, copied: repeated, overlapping: 0.0 },
            Method::Pglz => {
                let copied = repeated.min(matches * LONG_MATCH);
                let matches = matches.max(repeated / MAX_MATCH as f64);
                // the longer matches are, the shorter is what they repeat
                let times_longer = (repeated / matches.max(1.0) / LONG_MATCH).max(1.0);
                let matches = matches * (1.0 + DOUBLING * 3.0 * times_longer.log2());
                Items { literals, matches, copied, overlapping: repeated - copied }
            }
        }
    }

    pub(super) fn add(&mut self, method: Method, item: Item<'_>) {
        match item {
            Item::Literals(literals) => self.literals += literals.len() as f64,
            Item::Match { offset, len } => {
                let copied = match method {
                    // lz4 writes such a pattern from a register (`LZ4_memcpy_using_offset` in lz4.c)
                    Method::Lz4 if matches!(offset, 1 | 2 | 4 | 8) => len,
                    _ => len.min(offset),
                };
                self.matches += 1.0;
                if method == Method::Pglz {
                    let mut available = offset.max(1);
                    while available < len {
                        available = available.saturating_mul(2);
                        self.matches += DOUBLING;
                    }
                }
                self.copied += copied as f64;
                self.overlapping += (len - copied) as f64;
            }
        }
    }

    /// Literals, matches, copied and overlapping bytes.
    pub fn counts(&self) -> [f64; 4] {
        [self.literals, self.matches, self.copied, self.overlapping]
    }

    /// Bytes of the decompressed value.
    pub fn bytes(&self) -> f64 {
        self.literals + self.copied + self.overlapping
    }
}

impl From<[f64; 4]> for Items {
    /// From the numbers that [`Items::counts`] returns.
    fn from([literals, matches, copied, overlapping]: [f64; 4]) -> Items {
        Items { literals, matches, copied, overlapping }
    }
}

/// The ratio that [`Items::typical`] assumes.
const LITERALS_PER_MATCH: f64 = 2.0;
/// Longer matches of pglz are assumed to be runs that repeat their own output.
const LONG_MATCH: f64 = 100.0;
/// The time of a further copy in a match of pglz, in matches (`pglz_decompress` in pg_lzcompress.c; measured on values of a
/// megabyte that repeat 1 to 1000 bytes).
const DOUBLING: f64 = 0.35;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{datum, lz4_size};
    use proptest::prelude::*;

    #[test]
    fn streams_made_by_hand_are_counted() {
        let items = |method, stream: &[u8]| datum::items(method, stream).counts();
        // "ab", then a match of 6 bytes 2 back, then "x"
        let pglz = [0b0100, b'a', b'b', 0x03, 0x02, b'x'];
        let twice = 1.0 + DOUBLING + DOUBLING;
        assert_eq!(items(Method::Pglz, &pglz), [3.0, twice, 2.0, 4.0]);
        // a match of 273 bytes, and one of which a byte is missing
        let pglz = [0b110, b'z', 0x0f, 0x01, 0xff, 0x0f, 0x01];
        let run = items(Method::Pglz, &pglz);
        assert!((run[1] - 1.0 - 9.0 * DOUBLING).abs() < 1e-9, "{run:?}");
        assert_eq!([run[0], run[2], run[3]], [1.0, 1.0, 272.0]);
        // "ab", then a match of 6 bytes 2 back, then "xyz"
        let lz4 = [0x22, b'a', b'b', 2, 0, 0x30, b'x', b'y', b'z'];
        assert_eq!(items(Method::Lz4, &lz4), [5.0, 1.0, 6.0, 0.0]);
        // "abc", then a match of 6 bytes 3 back, then "xyz"
        let lz4 = [0x32, b'a', b'b', b'c', 3, 0, 0x30, b'x', b'y', b'z'];
        assert_eq!(items(Method::Lz4, &lz4), [6.0, 1.0, 3.0, 3.0]);
        assert_eq!(items(Method::Lz4, &lz4[..2]), [0.0; 4]);
        assert_eq!(items(Method::Lz4, &[]), [0.0; 4]);
    }

    #[test]
    fn an_estimate_gives_the_value_its_size() {
        for method in [Method::Pglz, Method::Lz4] {
            for (raw, stream) in [(18_000, 220), (8000, 2000), (8000, 6000), (8000, 7990), (1, 9)] {
                let items = Items::typical(method, raw, stream);
                assert!((items.bytes() - f64::from(raw)).abs() < 1e-6, "{raw} {stream}");
                assert!(items.counts().iter().all(|&number| number >= 0.0), "{items:?}");
            }
            assert!(Items::typical(method, 8000, 7990).matches < 1000.0);
            assert!(Items::typical(method, 18_000, 220).literals < 220.0);
        }
        // a megabyte of one character: 188 µs with pglz and 54 µs with lz4 were measured on PostgreSQL 15
        let prices = crate::model::cost::Prices::default();
        let ns = |method, stream| {
            let mut read = crate::model::cost::ReadWork::default();
            *read.items_mut(method) = Items::typical(method, 1 << 20, stream);
            prices.read_ns(&read)
        };
        let (pglz, lz4) = (ns(Method::Pglz, 12_001), ns(Method::Lz4, 4118));
        assert!((120e3..200e3).contains(&pglz) && (50e3..70e3).contains(&lz4), "{pglz} {lz4}");
    }

    proptest! {
        #[test]
        fn what_the_compressors_write_is_counted_whole(
            bytes in proptest::collection::vec(0u8..4, 0..3000),
            noise in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let raw = [bytes, noise].concat();
            let mut compressor = datum::Compressor::new();
            for method in [Method::Pglz, Method::Lz4] {
                let Some(stream) = compressor.compress(method, &raw) else { continue };
                prop_assert_eq!(datum::items(method, stream).bytes(), raw.len() as f64);
            }
            let (_, items) = lz4_size::compressed(&raw);
            prop_assert_eq!(items.bytes(), raw.len() as f64);
        }

        #[test]
        fn any_bytes_are_counted(stream in proptest::collection::vec(any::<u8>(), 0..300)) {
            for method in [Method::Pglz, Method::Lz4] {
                let items = datum::items(method, &stream);
                let limit = datum::largest_raw_size(method, stream.len());
                prop_assert!(items.bytes() <= limit as f64, "{:?}", items);
                prop_assert!(items.matches <= stream.len() as f64 * (1.0 + 9.0 * DOUBLING));
            }
        }
    }
}
