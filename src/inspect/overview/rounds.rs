//! Which blocks of a relation are read next, until its figures are precise enough or time is up (pure).
//!
//! Each round spreads its blocks over the whole relation, so that the relation can be estimated after any of
//! them: a sample that a clock has ended is as good as one of that size that was asked for.

use std::collections::HashSet;

use crate::disk::BlockNumber;
use crate::heap::blocks::BlockSums;
use crate::heap::sample::Sample;
use crate::model::estimate::Drawn;

/// Relations of up to so many blocks are read whole: that takes hardly longer than a sample.
pub(super) const WHOLE: u32 = 256;
/// Blocks of the first round.
const FIRST: u32 = 128;
/// Blocks of a round at the most.
const MOST: u32 = 1024;
/// Blocks of all rounds at the most: what was read is remembered.
const MOST_IN_ALL: usize = 1 << 22;
/// What is left of a relation of up to so many blocks is read once half of it was.
const FINISHED: u32 = 8192;
/// A column counts for the precision if it is this part of all.
const NOTABLE: f64 = 0.1;

/// The blocks of one relation, round by round.
pub(super) struct Rounds {
    total: u32,
    seed: u64,
    round: u64,
    taken: HashSet<u32>,
}

impl Rounds {
    /// Of a relation of `total` blocks; the same for the same seed.
    pub(super) fn new(total: u32, seed: u64) -> Rounds {
        Rounds { total, seed, round: 0, taken: HashSet::new() }
    }

    /// Whether nothing was read yet.
    pub(super) fn is_first(&self) -> bool {
        self.round == 0
    }

    /// The next blocks, in ascending order, about `wanted` of them: none if enough of the relation was read.
    pub(super) fn next(&mut self, wanted: u32) -> Vec<BlockNumber> {
        if self.taken.len() >= MOST_IN_ALL || self.taken.len() as u64 >= u64::from(self.total) {
            return Vec::new();
        }
        if self.taken.len() as u64 * 2 >= u64::from(self.total) {
            if self.total > FINISHED {
                return Vec::new();
            }
            let rest = (0..self.total).filter(|&block| self.taken.insert(block));
            return rest.map(BlockNumber).collect();
        }
        let seed = self.seed.wrapping_add(self.round.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        self.round += 1;
        let blocks = Sample::new(self.total, wanted.min(MOST), seed);
        blocks.filter(|block| self.taken.insert(block.0)).collect()
    }

    /// How many blocks the next round should have: about what the precision takes, if what was read is like
    /// the rest, and at least as many as were read.
    pub(super) fn wanted(&self, imprecision: f64, precision: f64) -> u32 {
        if self.taken.is_empty() {
            return FIRST;
        }
        let read = self.taken.len() as f64;
        let needed = read * (imprecision / precision).powi(2) * 1.1 - read;
        needed.max(read).min(f64::from(MOST)) as u32
    }
}

/// How wide the 95 % confidence interval of what a column takes is, as a part of the estimate to either side: that
/// of the worst column of those that are a notable part of the relation.
pub(super) fn imprecision(blocks: &BlockSums, total: u32) -> f64 {
    let drawn = Drawn { read: blocks.blocks, total: u64::from(total) };
    let columns = blocks.columns.iter().filter_map(|column| column.own_bytes.total(drawn));
    let columns: Vec<_> = columns.collect();
    let all: f64 = columns.iter().map(|column| column.estimate).sum();
    let notable = columns.iter().filter(|column| column.estimate > all * NOTABLE);
    notable.map(|e| (e.high - e.estimate).max(e.estimate - e.low) / e.estimate).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(rounds: &mut Rounds) -> Vec<Vec<u32>> {
        let mut found = Vec::new();
        loop {
            let blocks = rounds.next(rounds.wanted(1.0, 0.05));
            if blocks.is_empty() {
                return found;
            }
            found.push(blocks.into_iter().map(|block| block.0).collect());
        }
    }

    #[test]
    fn a_middling_relation_is_read_to_its_end_and_a_big_one_to_the_half() {
        let blocks = all(&mut Rounds::new(5000, 1)).concat();
        assert_eq!(blocks.len(), 5000);
        let blocks = all(&mut Rounds::new(100_000, 1)).concat();
        assert!((50_000..52_000).contains(&blocks.len()), "{}", blocks.len());
    }

    #[test]
    fn rounds_grow_with_what_is_missing() {
        let mut rounds = Rounds::new(1_000_000, 1);
        assert_eq!(rounds.wanted(f64::MAX, 0.05), FIRST);
        rounds.next(FIRST);
        assert_eq!(rounds.wanted(0.06, 0.05), FIRST);
        assert!((FIRST * 3..FIRST * 4).contains(&rounds.wanted(0.1, 0.05)));
        assert_eq!(rounds.wanted(1.0, 0.05), MOST);
    }

    proptest! {
        #[test]
        fn no_block_is_read_twice_and_all_are_as_likely(total in 1u32..20_000, seed: u64) {
            let rounds = all(&mut Rounds::new(total, seed));
            let mut seen = HashSet::new();
            for blocks in &rounds {
                prop_assert!(blocks.windows(2).all(|pair| pair[0] < pair[1]));
                prop_assert!(blocks.iter().all(|&block| block < total && seen.insert(block)));
            }
            // both halves of the relation in the first round alike
            if let (Some(first), true) = (rounds.first(), total > 1000) {
                let low = first.iter().filter(|&&block| block < total / 2).count();
                prop_assert!(low.abs_diff(first.len() / 2) <= 2, "{low} of {}", first.len());
            }
        }
    }
}
