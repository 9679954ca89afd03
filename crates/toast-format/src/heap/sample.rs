//! Which blocks of a relation are read if not all are. The relation is divided into as many parts as blocks are wanted,
//! and one block of each part is chosen at random, always the same for the same seed (pure).
//!
//! Rows that were written together are stored together and are often similar. With a block from each part, only
//! differences within a part are left to chance. Intervals computed as if the blocks were chosen from the whole
//! relation are therefore rather too wide.

use std::fmt;
use std::str::FromStr;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::disk::BlockNumber;

/// The minimum number of blocks of a sample given in percent: fewer are hardly informative.
const LEAST_PERCENT_BLOCKS: u32 = 20;

/// How much of a relation is read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SampleSize {
    /// This percentage of the blocks, above 0 and at most 100.
    Percent(f64),
    /// This many blocks, at least 1.
    Blocks(u32),
}

/// A text that is not a valid [`SampleSize`] or [`Sampling`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid sample \"{0}\": expected a part over 0 and up to 100 % (as in 1%), \
     or a number of blocks from 1 (as in \"5000 blocks\"); a seed can follow (as in 1%,seed=7)"
)]
pub struct SampleSizeError(pub String);

impl FromStr for SampleSize {
    type Err = SampleSizeError;

    fn from_str(text: &str) -> Result<SampleSize, SampleSizeError> {
        let trimmed = text.trim();
        if let Some(part) = trimmed.strip_suffix('%') {
            let part: f64 = part.trim().parse().map_err(|_| SampleSizeError(text.into()))?;
            return if part > 0.0 && part <= 100.0 {
                Ok(SampleSize::Percent(part))
            } else {
                Err(SampleSizeError(text.into()))
            };
        }
        let number = trimmed
            .strip_suffix("blocks")
            .or_else(|| trimmed.strip_suffix("block"))
            .unwrap_or(trimmed)
            .trim();
        match number.parse() {
            Ok(blocks) if blocks > 0 => Ok(SampleSize::Blocks(blocks)),
            _ => Err(SampleSizeError(text.into())),
        }
    }
}

impl fmt::Display for SampleSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SampleSize::Percent(part) => write!(f, "{part}%"),
            SampleSize::Blocks(1) => f.write_str("1 block"),
            SampleSize::Blocks(blocks) => write!(f, "{blocks} blocks"),
        }
    }
}

impl SampleSize {
    /// The number of blocks, for a relation of `total`: at least one (at least 20 for a percentage), and at most all.
    pub fn blocks(self, total: u32) -> u32 {
        let wanted = match self {
            SampleSize::Percent(part) => {
                ((f64::from(total) * part / 100.0).ceil() as u32).max(LEAST_PERCENT_BLOCKS)
            }
            SampleSize::Blocks(blocks) => blocks,
        };
        wanted.max(1).min(total)
    }
}

/// Which sample to take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// How many blocks are read.
    pub size: SampleSize,
    /// The same seed gives the same blocks.
    pub seed: u64,
}

impl Sampling {
    /// Whether no block is left out.
    pub fn is_of_all(&self) -> bool {
        self.size == SampleSize::Percent(100.0)
    }
}

/// The seed of samples for which none was chosen.
pub const SEED: u64 = 1;

impl FromStr for Sampling {
    type Err = SampleSizeError;

    fn from_str(text: &str) -> Result<Sampling, SampleSizeError> {
        let Some((size, seed)) = text.split_once(',') else {
            return Ok(Sampling { size: text.parse()?, seed: SEED });
        };
        let seed = seed.trim().strip_prefix("seed=").and_then(|seed| seed.parse().ok());
        let size = size.parse().map_err(|_| SampleSizeError(text.into()))?;
        Ok(Sampling { size, seed: seed.ok_or_else(|| SampleSizeError(text.into()))? })
    }
}

impl Sampling {
    /// Takes the sample from a relation of `total` blocks.
    pub fn draw(self, total: u32) -> Sample {
        Sample::new(total, self.size.blocks(total), self.seed)
    }
}

/// The chosen blocks, in ascending order.
#[derive(Debug, Clone)]
pub struct Sample {
    total: u32,
    chosen: u32,
    /// The number of blocks returned so far.
    taken: u32,
    rng: Box<ChaCha8Rng>,
    /// The offset of the boundaries between parts, as a fraction of a block. Without it, some blocks would be more
    /// likely than others if the length of a part is not an integer.
    shift: f64,
}

impl Sample {
    /// Chooses `count` of the blocks 0 to `total` - 1, or all of them if there are fewer.
    pub fn new(total: u32, count: u32, seed: u64) -> Sample {
        let mut rng = Box::new(ChaCha8Rng::seed_from_u64(seed));
        let shift = rng.random();
        Sample { total, chosen: count.min(total), taken: 0, rng, shift }
    }

    /// The first block of a part.
    fn part(&self, number: u32) -> u32 {
        if number == 0 || number >= self.chosen {
            return if number == 0 { 0 } else { self.total };
        }
        let length = f64::from(self.total) / f64::from(self.chosen);
        (f64::from(number) * length + self.shift) as u32
    }

    /// All blocks of a relation of `total` blocks.
    pub fn whole(total: u32) -> Sample {
        Sample::new(total, total, 0)
    }

    /// The number of chosen blocks.
    pub fn chosen(&self) -> u32 {
        self.chosen
    }

    /// The number of blocks in the relation.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Whether every block is chosen.
    pub fn is_all(&self) -> bool {
        self.chosen == self.total
    }
}

impl Iterator for Sample {
    type Item = BlockNumber;

    fn next(&mut self) -> Option<BlockNumber> {
        if self.taken >= self.chosen {
            return None;
        }
        if self.is_all() {
            self.taken += 1;
            return Some(BlockNumber(self.taken - 1));
        }
        let first = self.part(self.taken);
        let end = self.part(self.taken + 1);
        self.taken += 1;
        Some(BlockNumber(self.rng.random_range(first..end.max(first + 1))))
    }
}

/// The least number of items that are kept of an [`EvenSample`], once there are as many.
pub const KEPT: usize = 64;

/// A sample, spread evenly over all items that were offered: fewer than twice [`KEPT`].
#[derive(Debug, Clone)]
pub struct EvenSample<T> {
    offered: u64,
    stride: u64,
    kept: Vec<T>,
}

impl<T> Default for EvenSample<T> {
    fn default() -> EvenSample<T> {
        EvenSample { offered: 0, stride: 1, kept: Vec::new() }
    }
}

impl<T> EvenSample<T> {
    /// Offers an item.
    pub fn offer(&mut self, item: T) {
        self.offer_with(|| item);
    }

    /// Offers an item that is made only if it is kept.
    pub fn offer_with(&mut self, item: impl FnOnce() -> T) {
        if self.offered.is_multiple_of(self.stride) {
            self.kept.push(item());
            if self.kept.len() >= KEPT * 2 {
                let mut odd = true;
                self.kept.retain(|_| {
                    odd = !odd;
                    !odd
                });
                self.stride *= 2;
            }
        }
        self.offered += 1;
    }

    /// The items that are kept, in order.
    pub fn kept(&self) -> &[T] {
        &self.kept
    }
}

/// An even sample of blocks.
#[derive(Debug, Clone, Default)]
pub struct SpreadBlocks {
    sample: EvenSample<u32>,
    last: Option<u32>,
}

impl SpreadBlocks {
    /// Adds a block, if it is not the last one.
    pub fn add(&mut self, block: u32) {
        if self.last.replace(block) != Some(block) {
            self.sample.offer(block);
        }
    }

    /// The blocks, in order.
    pub fn blocks(&self) -> &[u32] {
        self.sample.kept()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read() {
        for (text, size) in [
            ("1%", SampleSize::Percent(1.0)),
            (" 0.5 % ", SampleSize::Percent(0.5)),
            ("100%", SampleSize::Percent(100.0)),
            ("5000 blocks", SampleSize::Blocks(5000)),
            ("1 block", SampleSize::Blocks(1)),
            ("17", SampleSize::Blocks(17)),
        ] {
            assert_eq!(text.parse(), Ok(size));
        }
        for text in ["", "0%", "101%", "-1%", "NaN%", "0", "0 blocks", "5 pages", "%", "blocks"] {
            assert_eq!(text.parse::<SampleSize>(), Err(SampleSizeError(text.into())));
        }
        assert_eq!(SampleSize::Percent(1.0).blocks(5001), 51);
        assert_eq!(SampleSize::Percent(1.0).blocks(1001), 20);
        assert_eq!(SampleSize::Percent(1.0).blocks(3), 3);
        assert_eq!(SampleSize::Percent(1.0).blocks(0), 0);
        assert_eq!(SampleSize::Blocks(50).blocks(7), 7);
    }

    #[test]
    fn a_seed_follows_the_part() {
        let read = |text: &str| text.parse::<Sampling>();
        let percent = |seed| Ok(Sampling { size: SampleSize::Percent(1.0), seed });
        assert_eq!(
            [read("1%"), read("1%,seed=7"), read(" 1 % , seed=7 ")],
            [percent(SEED), percent(7), percent(7)]
        );
        let blocks = Ok(Sampling { size: SampleSize::Blocks(5000), seed: 0 });
        assert_eq!(read("5000 blocks,seed=0"), blocks);
        for bad in ["1%,7", "1%,seed=", "1%,seed=-1", ",seed=7", "1%,seed=7,seed=8", "0%,seed=7"] {
            assert_eq!(read(bad), Err(SampleSizeError(bad.into())));
        }
    }

    #[test]
    fn every_block_is_as_likely_as_any_other() {
        for (total, count) in [(50, 10), (21, 20), (30, 7), (1000, 999)] {
            let seeds = 20_000;
            let mut drawn = vec![0f64; total as usize];
            for seed in 0..seeds {
                for block in Sample::new(total, count, seed) {
                    drawn[block.0 as usize] += 1.0;
                }
            }
            let mean = f64::from(count) * seeds as f64 / f64::from(total);
            assert!(drawn.iter().all(|n| (n / mean - 1.0).abs() < 0.08), "{total}: {drawn:?}");
        }
    }

    #[test]
    fn every_part_has_its_block() {
        let blocks: Vec<u32> = Sample::new(1000, 10, 7).map(|block| block.0).collect();
        let parts: Vec<u32> = blocks.iter().map(|block| block.saturating_sub(1) / 100).collect();
        assert_eq!(parts, (0..10).collect::<Vec<_>>(), "{blocks:?}");
    }

    proptest! {
        #[test]
        fn blocks_ascend_and_are_as_many_as_wanted(total in 0u32..5000, count in 0u32..6000, seed: u64) {
            let sample = Sample::new(total, count, seed);
            let chosen = sample.chosen();
            let blocks: Vec<_> = sample.clone().collect();
            prop_assert_eq!(blocks.len(), count.min(total) as usize);
            prop_assert_eq!(blocks.len(), chosen as usize);
            prop_assert!(blocks.windows(2).all(|w| w[0] < w[1]));
            prop_assert!(blocks.iter().all(|b| b.0 < total));
            prop_assert!(sample.eq(Sample::new(total, count, seed)));
        }
    }

    #[test]
    fn an_even_sample_is_bounded() {
        for offered in [1u64, 64, 127, 128, 129, 1000, 100_000] {
            let mut sample = EvenSample::default();
            (0..offered).for_each(|item| sample.offer(item));
            let kept = sample.kept();
            assert!(kept.len() < 2 * KEPT && kept.len() as u64 >= offered.min(KEPT as u64));
            let steps: Vec<u64> = kept.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert!(steps.iter().all(|step| *step == sample.stride), "{offered}: {steps:?}");
        }
    }

    #[test]
    fn blocks_are_spread_and_each_is_there_once() {
        let mut few = SpreadBlocks::default();
        [3, 3, 3, 8, 8].into_iter().for_each(|block| few.add(block));
        assert_eq!(few.blocks(), [3, 8]);
        let mut many = SpreadBlocks::default();
        (0..100_000).for_each(|block| many.add(block));
        let blocks = many.blocks();
        assert!((64..128).contains(&blocks.len()), "{}", blocks.len());
        let step = blocks[1] - blocks[0];
        assert!(blocks.windows(2).all(|pair| pair[1] - pair[0] == step), "{blocks:?}");
    }
}
