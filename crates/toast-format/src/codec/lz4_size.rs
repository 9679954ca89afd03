//! The length that liblz4 compresses a value to (`LZ4_compress_default` of lz4 1.8 to 1.10), without
//! the bytes: what the server stores with `COMPRESSION lz4`.
//!
//! Every position is hashed to a table of the latest position with that hash; the first candidate
//! whose four bytes match is taken, extended both ways, and encoded. Misses lengthen the steps.

use super::Method;
use super::items::{Item, Items};

/// No match begins behind this distance from the end (`MFLIMIT`).
const MATCH_LIMIT: usize = 12;
/// These last bytes are literals (`LASTLITERALS`).
const LAST_LITERALS: usize = 5;
const MIN_MATCH: usize = 4;
/// Below this length positions fit 16 bits, and the table has twice the entries (`LZ4_64Klimit`).
const SHORT_LIMIT: usize = 65_536 + MATCH_LIMIT - 1;
const MAX_DISTANCE: usize = 65_535;
/// Misses after which the step grows by one (`LZ4_skipTrigger`, as a power of two).
const SKIP_TRIGGER: u32 = 6;
const TABLE_BITS: u32 = 12;

fn read_u32(src: &[u8], at: usize) -> u32 {
    src.get(at..).and_then(|s| s.first_chunk::<4>()).map_or(0, |b| u32::from_le_bytes(*b))
}

fn read_u64(src: &[u8], at: usize) -> u64 {
    src.get(at..).and_then(|s| s.first_chunk::<8>()).map_or(0, |b| u64::from_le_bytes(*b))
}

/// The latest position of each hash.
struct HashTable {
    positions: Vec<u32>,
    short: bool,
}

impl HashTable {
    fn new(short: bool) -> HashTable {
        let bits = if short { TABLE_BITS + 1 } else { TABLE_BITS };
        HashTable { positions: vec![0; 1 << bits], short }
    }

    /// Four bytes are hashed in short values, five in long ones (on 64-bit machines).
    fn hash(&self, src: &[u8], at: usize) -> usize {
        if self.short {
            (read_u32(src, at).wrapping_mul(2_654_435_761) >> (32 - TABLE_BITS - 1)) as usize
        } else {
            ((read_u64(src, at) << 24).wrapping_mul(889_523_592_379) >> (64 - TABLE_BITS)) as usize
        }
    }

    /// Enters `at` and returns the position that was there.
    fn replace(&mut self, hash: usize, at: usize) -> usize {
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        self.positions.get_mut(hash).map_or(0, |slot| std::mem::replace(slot, at) as usize)
    }

    /// Whether the candidate is near enough and has the same four bytes.
    fn matches(&self, src: &[u8], candidate: usize, at: usize) -> bool {
        (self.short || candidate + MAX_DISTANCE >= at)
            && read_u32(src, candidate) == read_u32(src, at)
    }
}

/// Bytes of a token with its literals.
fn literals(length: usize) -> usize {
    1 + length + if length >= 15 { 1 + (length - 15) / 255 } else { 0 }
}

/// How many bytes from `a` and `b` on are equal, before `end`.
fn common(src: &[u8], mut a: usize, mut b: usize, end: usize) -> usize {
    let start = b;
    while b + 8 <= end {
        let difference = read_u64(src, a) ^ read_u64(src, b);
        if difference != 0 {
            return b - start + (difference.trailing_zeros() / 8) as usize;
        }
        a += 8;
        b += 8;
    }
    while b < end && src.get(a) == src.get(b) {
        a += 1;
        b += 1;
    }
    b - start
}

/// The length of the compressed block, and what it consists of.
pub fn compressed(src: &[u8]) -> (usize, Items) {
    let length = src.len();
    let mut items = Items::default();
    if length <= MATCH_LIMIT {
        items.literals = length as f64;
        return (literals(length), items);
    }
    let last_start = length - MATCH_LIMIT + 1;
    let match_end = length - LAST_LITERALS;
    let mut table = HashTable::new(length < SHORT_LIMIT);
    let mut size = 0;
    let mut anchor = 0;
    table.replace(table.hash(src, 0), 0);
    let mut at = 1;
    let mut hash = table.hash(src, at);
    'sequences: loop {
        let mut step = 1;
        let mut misses = 1u32 << SKIP_TRIGGER;
        let mut forward = at;
        let mut candidate;
        loop {
            at = forward;
            forward += step;
            step = (misses >> SKIP_TRIGGER) as usize;
            misses = misses.saturating_add(1);
            if forward > last_start {
                break 'sequences;
            }
            let next = table.hash(src, forward);
            candidate = table.replace(hash, at);
            hash = next;
            if table.matches(src, candidate, at) {
                break;
            }
        }
        while at > anchor && candidate > 0 && src.get(at - 1) == src.get(candidate - 1) {
            at -= 1;
            candidate -= 1;
        }
        size += literals(at - anchor);
        items.literals += (at - anchor) as f64;
        loop {
            let more = common(src, candidate + MIN_MATCH, at + MIN_MATCH, match_end);
            size += 2 + if more >= 15 { 1 + (more - 15) / 255 } else { 0 };
            items.add(Method::Lz4, Item::Match { offset: at - candidate, len: MIN_MATCH + more });
            at += MIN_MATCH + more;
            anchor = at;
            if at >= last_start {
                break 'sequences;
            }
            table.replace(table.hash(src, at - 2), at - 2);
            candidate = table.replace(table.hash(src, at), at);
            if !table.matches(src, candidate, at) {
                break;
            }
            size += 1;
        }
        at += 1;
        hash = table.hash(src, at);
    }
    items.literals += (length - anchor) as f64;
    (size + literals(length - anchor), items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_and_regular_values() {
        assert_eq!(compressed(b"").0, 1);
        assert_eq!(compressed(b"abc").0, 4);
        // token and one literal, match of 94, token and 5 literals
        assert_eq!(compressed(&[7; 100]).0, 2 + 2 + 1 + 6);
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_size_within_the_bound(
            bytes in proptest::collection::vec(0u8..4, 0..5000),
            noise in proptest::collection::vec(any::<u8>(), 0..500),
        ) {
            let bytes = [bytes, noise].concat();
            let (size, _) = compressed(&bytes);
            prop_assert!(size > 0 && size <= bytes.len() + bytes.len() / 255 + 16);
        }
    }
}
