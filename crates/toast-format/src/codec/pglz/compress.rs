//! pglz compression, fast: the bytes of C's `pglz_compress` by another road.
//!
//! C keeps a doubly linked list of positions for each of up to 8192 hash values, walks it at every
//! position where an item begins, and is content with ever shorter matches the more candidates it
//! has looked at. Its hash spreads text badly, so most candidates share nothing with the position.
//! What decides is only this: every position is entered into its list whatever is found there; a
//! match of three bytes or more has all four bytes of the hash in common (the last three positions
//! of the input excepted); and how many candidates came before.
//!
//! So here positions are chained by a hash that spreads well, and each has its **rank** within C's
//! list: the difference of two ranks is the number of candidates that C looks at from one to the
//! other. The search walks the short chain and stops at the rank where C stops. Tables are filled a
//! block at a time, hashes first, and hold 16-bit numbers that wrap:
//!
//! ```text
//! counts[C's list]   rank of the latest position in it
//! latest[chain]      the latest position in it
//! ring[position]     rank << 16 | distance to the position before in its chain, less one
//! ```
//!
//! Nothing is cleared between values or when a number wraps. A link left behind from long ago may
//! look like one into the window; but then no true link follows on that chain, the bytes there are
//! compared like any others, and positions with the same four bytes have all been seen by then. It
//! costs time, and is rare.

use super::{CompressionLimits, MAX_MATCH, MAX_OFFSET, Strategy, list_of};
use crate::codec::KEEP;

/// How many positions are entered into the tables at a time.
const BLOCK: usize = 512;
/// Positions whose entries are kept: the window, and the block ahead of it.
const RING: usize = 8192;
/// The most lists that C has.
const LISTS: usize = super::MAX_HISTORY_LISTS as usize;
/// Chains are many, so that a position without a match mostly has no candidate at all.
const CHAIN_BITS: u32 = 16;
/// The most that one group of items takes: a control byte and eight matches of three.
const GROUP: usize = 1 + 8 * 3;

const _: () = assert!(BLOCK + MAX_OFFSET < RING && RING.is_power_of_two());

/// Compresses values one after another with the same tables (about 180 kB) and output buffer.
#[derive(Debug)]
pub struct Compressor {
    tables: Box<MatchTables>,
    stops: Stops,
    out: Vec<u8>,
}

impl Compressor {
    /// A compressor with empty tables.
    pub fn new() -> Compressor {
        Compressor {
            tables: MatchTables::new(),
            stops: Stops::new(&Strategy::DEFAULT),
            out: Vec::new(),
        }
    }

    /// Compresses `src`, or refuses as the strategy demands: then `None` (`pglz_compress`, which
    /// returns -1). Inputs of 2 GB and more, which C's `int32` cannot say, are refused.
    pub fn compress(&mut self, src: &[u8], strategy: &Strategy) -> Option<&[u8]> {
        let limits = strategy.limits(src.len())?;
        if self.stops.strategy != *strategy {
            self.stops = Stops::new(strategy);
        }
        let room = limits.result_max + GROUP;
        if self.out.len() < room || self.out.len() > KEEP.max(8 * room) {
            self.out = vec![0; room];
        }
        let size = run(&mut self.tables, &self.stops, src, &limits, &mut self.out);
        self.tables.base = self.tables.base.wrapping_add(src.len() as u16);
        self.out.get(..size?)
    }
}

impl Default for Compressor {
    fn default() -> Compressor {
        Compressor::new()
    }
}

/// Compresses `src` into `out` and returns how much of it is used.
fn run(
    tables: &mut MatchTables,
    stops: &Stops,
    src: &[u8],
    limits: &CompressionLimits,
    out: &mut [u8],
) -> Option<usize> {
    // The last three positions have no four bytes to hash.
    let words_end = src.len().saturating_sub(3);
    let lists = limits.lists - 1;
    let mut entered = 0;
    let mut success_by = stops.strategy.first_success_by;
    let mut written = 0;
    let mut at = 0;
    while at < src.len() {
        // C asks before each item. What is too large now stays so; `success_by` is asked again
        // below, where it decides.
        if written >= limits.result_max || written >= success_by {
            return None;
        }
        let control_at = written;
        let mut control = 0u32;
        let mut bit = 1u32;
        written += 1;
        while bit < 0x100 {
            let mut found = FoundMatch::NONE;
            if at >= entered {
                if at >= src.len() {
                    break;
                }
                while entered <= at && entered < words_end {
                    let end = words_end.min(entered + BLOCK);
                    tables.enter(src, entered, end, lists);
                    entered = end;
                }
                if at >= words_end {
                    found = tables.find_last(src, at, lists);
                }
            }
            if at < words_end {
                found = tables.find(stops, src, at);
            }
            if let Some((len, offset)) = found.get() {
                if written >= success_by && bit > 1 {
                    return None;
                }
                success_by = usize::MAX;
                control |= bit;
                let long = len >= 18;
                let nibble = if long { 15 } else { len - 3 };
                out[written] = ((offset >> 4) & 0xf0) as u8 | nibble as u8;
                out[written + 1] = offset as u8;
                // Not part of a short match, and written over.
                out[written + 2] = len.wrapping_sub(18) as u8;
                written += 2 + usize::from(long);
                at += len;
            } else {
                out[written] = src[at];
                written += 1;
                at += 1;
            }
            bit <<= 1;
        }
        out[control_at] = control as u8;
    }
    (written < limits.result_max).then_some(written)
}

/// A match, length and offset in one register; 0 for none.
#[derive(Clone, Copy)]
struct FoundMatch(u32);

impl FoundMatch {
    const NONE: FoundMatch = FoundMatch(0);

    fn new(len: usize, offset: usize) -> FoundMatch {
        FoundMatch((len << 16 | offset) as u32)
    }

    fn get(self) -> Option<(usize, usize)> {
        (self.0 != 0).then_some(((self.0 >> 16) as usize, (self.0 & 0xffff) as usize))
    }
}

/// The positions seen. All fields but `base` hold what any earlier value left.
#[derive(Debug)]
struct MatchTables {
    counts: [u16; LISTS],
    latest: [u16; 1 << CHAIN_BITS],
    ring: [u32; RING],
    /// What the first position of the present value is called in `latest`; where the last value
    /// ended, so that its positions lie before this one.
    base: u16,
}

impl MatchTables {
    fn new() -> Box<MatchTables> {
        Box::new(MatchTables {
            counts: [0; LISTS],
            latest: [0; 1 << CHAIN_BITS],
            ring: [0; RING],
            base: 1,
        })
    }

    /// Enters the positions of at most a block. `lists` is C's number of lists, less one.
    #[inline(never)]
    fn enter(&mut self, src: &[u8], from: usize, to: usize, lists: u16) {
        let count = to - from;
        let bytes = &src[from..to + 3];
        let first = &bytes[..count];
        let second = &bytes[1..count + 1];
        let third = &bytes[2..count + 2];
        let fourth = &bytes[3..count + 3];
        // Both hashes of all positions first, in loops that vectorise.
        let mut list = [0u16; BLOCK];
        let mut chain = [0u16; BLOCK];
        let list = &mut list[..count];
        let chain = &mut chain[..count];
        for index in 0..count {
            list[index] = list_of(first[index], second[index], third[index], fourth[index]) & lists;
        }
        for index in 0..count {
            chain[index] = chain_of([first[index], second[index], third[index], fourth[index]]);
        }
        let base = self.base;
        let mut rank = 0u16;
        let mut last_list = usize::MAX;
        let mut last_chain = usize::MAX;
        for index in 0..count {
            let position = base.wrapping_add((from + index) as u16);
            let slot = (from + index) % RING;
            let list = usize::from(list[index]) % LISTS;
            let chain = usize::from(chain[index]);
            if list == last_list && chain == last_chain {
                // One byte repeated: do not wait for what was just stored.
                rank = rank.wrapping_add(1);
                self.counts[list] = rank;
                self.latest[chain] = position;
                self.ring[slot] = u32::from(rank) << 16;
            } else {
                rank = self.counts[list].wrapping_add(1);
                self.counts[list] = rank;
                let before = position.wrapping_sub(self.latest[chain]).wrapping_sub(1);
                self.latest[chain] = position;
                self.ring[slot] = u32::from(rank) << 16 | u32::from(before);
                (last_list, last_chain) = (list, chain);
            }
        }
    }

    /// The match for `at` (`pglz_find_match`), which is entered and not one of the last three.
    #[inline(always)]
    fn find(&self, stops: &Stops, src: &[u8], at: usize) -> FoundMatch {
        // C goes on while the offset is less than 0x0fff.
        let limit = at.min(MAX_OFFSET - 1);
        let here = self.ring[at % RING];
        let mut offset = step(here);
        if offset > limit {
            return FoundMatch::NONE;
        }
        let max = MAX_MATCH.min(src.len() - at);
        let mut best = 3;
        let mut best_offset = 0;
        let mut stop = u16::MAX;
        let here_word = word(src, at);
        let mut wanted = here_word;
        loop {
            let candidate = at - offset;
            let entry = self.ring[candidate % RING];
            if rank(here).wrapping_sub(rank(entry)) > stop {
                // Ranks compare only within a list, which the same word is in for certain.
                if word(src, candidate) == here_word {
                    break;
                }
            } else if word(src, candidate + best - 3) == wanted {
                let len = common(src, candidate, at, max);
                if len > best {
                    best = len;
                    best_offset = offset;
                    if best == max {
                        break;
                    }
                    stop = stops.after[best];
                    wanted = word(src, at + best - 3);
                }
            }
            offset += step(entry);
            if offset > limit {
                break;
            }
        }
        if best > 3 { FoundMatch::new(best, best_offset) } else { FoundMatch::NONE }
    }

    /// The match for one of the last three positions. C hashes those by their first byte alone, and
    /// only of the first of them three bytes are left to match. The positions before that are in
    /// the same list and begin with the same three bytes have one possible fourth byte.
    #[cold]
    fn find_last(&self, src: &[u8], at: usize, lists: u16) -> FoundMatch {
        let Some(&[first, second, third]) = src[at..].first_chunk::<3>() else {
            return FoundMatch::NONE;
        };
        let list = i16::from(first.cast_signed()).cast_unsigned() & lists;
        let fourth = (list_of(first, second, third, 0) ^ list) as u8;
        let word = [first, second, third, fourth];
        if list_of(first, second, third, fourth) & lists != list {
            return FoundMatch::NONE;
        }
        let limit = at.min(MAX_OFFSET - 1);
        let position = self.base.wrapping_add(at as u16);
        let latest = self.latest[usize::from(chain_of(word))];
        let mut offset = usize::from(position.wrapping_sub(latest).wrapping_sub(1)) + 1;
        while offset <= limit {
            if src[at - offset..].starts_with(&word) {
                return FoundMatch::new(3, offset);
            }
            offset += step(self.ring[(at - offset) % RING]);
        }
        FoundMatch::NONE
    }
}

/// The distance from the position of a ring entry to the one before it in its chain.
fn step(entry: u32) -> usize {
    (entry & 0xffff) as usize + 1
}

/// The rank of the position of a ring entry.
fn rank(entry: u32) -> u16 {
    (entry >> 16) as u16
}

fn chain_of(word: [u8; 4]) -> u16 {
    (u32::from_le_bytes(word).wrapping_mul(0x9e37_79b1) >> (32 - CHAIN_BITS)) as u16
}

/// For each length of match, after how many candidates C is content with it; `u16::MAX` for never. C never is with less
/// than four bytes, so that candidates that share less can be passed over.
#[derive(Debug, Clone)]
struct Stops {
    strategy: Strategy,
    after: [u16; MAX_MATCH + 1],
}

impl Stops {
    fn new(strategy: &Strategy) -> Stops {
        let mut after = [u16::MAX; MAX_MATCH + 1];
        let mut good_match = 128;
        let mut end = after.len();
        for candidates in 1..u16::MAX {
            if good_match < end {
                after[good_match..end].fill(candidates);
                end = good_match;
            }
            let lowered = good_match - good_match * strategy.match_size_drop / 100;
            if lowered == good_match {
                break;
            }
            good_match = lowered;
        }
        Stops { strategy: *strategy, after }
    }
}

/// The four bytes at `at` as one number.
#[inline(always)]
fn word(src: &[u8], at: usize) -> u32 {
    let bytes = &src[at..at + 4];
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// How many bytes at `a` and at `b`, which is behind it, are the same, at most `max`.
#[inline(always)]
fn common(src: &[u8], a: usize, b: usize, max: usize) -> usize {
    let earlier = &src[a..a + max];
    let later = &src[b..b + max];
    let (earlier_words, earlier_rest) = earlier.as_chunks::<8>();
    let (later_words, later_rest) = later.as_chunks::<8>();
    for (index, (one, other)) in earlier_words.iter().zip(later_words).enumerate() {
        let differ = u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other);
        if differ != 0 {
            return 8 * index + (differ.trailing_zeros() / 8) as usize;
        }
    }
    let rest = earlier_rest.iter().zip(later_rest).take_while(|(one, other)| one == other);
    8 * later_words.len() + rest.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_strategy_is_content_with_three_bytes() {
        for strategy in [Strategy::DEFAULT, Strategy::ALWAYS] {
            assert_eq!(Stops::new(&strategy).after[..4], [u16::MAX; 4]);
        }
    }
}
