//! How much of a relation is read by default (pure): enough for an estimate, in a few seconds.

use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use toast_format::disk::BlockNumber;
use toast_format::heap::progress::Progress;
use toast_format::heap::sample::{Sample, SampleSize, Sampling};

/// Without `--sample`: 1 % of the blocks, but at least and at most so many,
const LEAST_BLOCKS: u32 = 2048;
const MOST_BLOCKS: u32 = 3000;
/// and of their rows so many that about this much must be compressed, one in each block at least.
const RAW_BYTES: f64 = 64e6;
/// No more is read, or taken apart, than about this,
const MOST_BYTES: f64 = 1e8;
/// and no longer than this, once enough blocks are read to tell how they differ. Time is for slow networks: where it
/// ends a sample, another call may have another.
const MOST_TIME: Duration = Duration::from_secs(30);
const ENOUGH_BLOCKS: f64 = 40.0;

/// What is looked at to choose keys.
const FEW_BLOCKS: u32 = 32;
const FEW_BYTES: f64 = 8e6;

/// Blocks read at a time,
const BATCH: usize = 64;
/// fewer where their values, decompressed, have more bytes than this.
const BATCH_BYTES: f64 = 4e6;

/// Why less was read than was drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    Bytes,
    Time,
}

/// What has been done of a sample.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Done {
    pub(crate) blocks: u32,
    /// Bytes that the server sent.
    pub(crate) read: u64,
    /// Bytes of the values that were to be compressed, decompressed.
    pub(crate) raw: u64,
    pub(crate) time: Duration,
}

/// The blocks of a table that are read, and the part of their rows that is looked at.
pub(crate) struct SamplePlan {
    pub(crate) sample: Sample,
    /// The part of the blocks' rows whose values are looked at.
    pub(crate) fraction: f64,
    /// Blocks read at a time.
    pub(crate) batch: usize,
    seed: u64,
    /// The part of the limits that applies: less than 1 for one relation of several.
    part: f64,
    /// The sample's blocks in an order in which each beginning is a random sample too; `None` where all of them
    /// are read, however long that takes.
    shuffled: Option<Vec<BlockNumber>>,
}

impl SamplePlan {
    /// For a relation of `total` blocks, with `bytes_per_block` of values, decompressed, that must be compressed.
    pub(crate) fn new(
        size: Option<SampleSize>,
        seed: u64,
        total: u32,
        bytes_per_block: f64,
    ) -> SamplePlan {
        if let Some(size) = size {
            let sample = Sampling { size, seed }.draw(total);
            let batch = batch(bytes_per_block);
            return SamplePlan { sample, fraction: 1.0, batch, seed, part: 1.0, shuffled: None };
        }
        let blocks = SampleSize::Percent(1.0).blocks(total).clamp(LEAST_BLOCKS, MOST_BLOCKS);
        let sample = Sample::new(total, blocks, seed);
        let bytes = bytes_per_block * f64::from(sample.chosen());
        let fraction = if bytes > RAW_BYTES { RAW_BYTES / bytes } else { 1.0 };
        let shuffled = Some(shuffled(&sample, seed));
        let batch = batch(bytes_per_block * fraction);
        SamplePlan { sample, fraction, batch, seed, part: 1.0, shuffled }
    }

    /// The part of this plan for one of the relations that it is for, of `total` blocks: at least one of them.
    pub(crate) fn part(&self, total: u32) -> SamplePlan {
        let part = f64::from(total) / f64::from(self.sample.total().max(1));
        let sample = if self.sample.is_all() {
            Sample::whole(total)
        } else {
            let blocks = (f64::from(self.sample.chosen()) * part).ceil() as u32;
            Sample::new(total, blocks.max(1), self.seed)
        };
        let shuffled = self.shuffled.as_ref().map(|_| shuffled(&sample, self.seed));
        SamplePlan { sample, part, shuffled, ..*self }
    }

    /// A few blocks, and of their rows no more than come to a few megabytes.
    pub(crate) fn few(seed: u64, total: u32, bytes_per_block: f64) -> SamplePlan {
        let sample = Sample::new(total, FEW_BLOCKS, seed);
        let bytes = bytes_per_block * f64::from(sample.chosen());
        let fraction = if bytes > FEW_BYTES { FEW_BYTES / bytes } else { 1.0 };
        let shuffled = Some(sample.clone().collect());
        let batch = batch(bytes_per_block * fraction);
        SamplePlan { sample, fraction, batch, seed, part: 1.0, shuffled }
    }

    /// The blocks in the order in which they are read.
    pub(crate) fn blocks(&self) -> Box<dyn Iterator<Item = BlockNumber> + Send + '_> {
        match &self.shuffled {
            Some(blocks) => Box::new(blocks.iter().copied()),
            None => Box::new(self.sample.clone()),
        }
    }

    /// Begins to read blocks of the relation of this name.
    pub(crate) fn begin<'p>(&'p self, relation: &str, progress: &'p dyn Progress) -> Batches<'p> {
        progress.begin(relation, u64::from(self.sample.chosen()));
        Batches { plan: self, blocks: self.blocks(), started: Instant::now(), progress }
    }

    /// Whether this is every row.
    pub(crate) fn is_complete(&self, done: &Done) -> bool {
        self.sample.is_all() && self.limit(done).is_none() && self.fraction >= 1.0
    }

    /// Whether this is enough, though not all was read.
    pub(crate) fn limit(&self, done: &Done) -> Option<Limit> {
        if self.shuffled.is_none() || done.blocks >= self.sample.chosen() {
            return None;
        }
        if done.read.max(done.raw) as f64 >= MOST_BYTES * self.part {
            return Some(Limit::Bytes);
        }
        let enough = f64::from(done.blocks) >= ENOUGH_BLOCKS * self.part;
        (enough && done.time.as_secs_f64() >= MOST_TIME.as_secs_f64() * self.part)
            .then_some(Limit::Time)
    }
}

/// The blocks of a sample that is being read.
pub(crate) struct Batches<'p> {
    plan: &'p SamplePlan,
    blocks: Box<dyn Iterator<Item = BlockNumber> + Send + 'p>,
    started: Instant,
    progress: &'p dyn Progress,
}

impl Batches<'_> {
    /// The blocks that are read next, in their order; `None` at the end, or when this is enough.
    pub(crate) fn next(&mut self, done: &Done) -> Option<Vec<BlockNumber>> {
        if self.plan.limit(done).is_some() {
            return None;
        }
        let mut batch: Vec<BlockNumber> = self.blocks.by_ref().take(self.plan.batch).collect();
        batch.sort_unstable();
        (!batch.is_empty()).then_some(batch)
    }

    /// Records that this number of blocks has been read.
    pub(crate) fn advance(&self, done: &mut Done, blocks: usize) {
        done.time = self.started.elapsed();
        self.progress.advance(blocks as u64);
    }

    pub(crate) fn end(self) {
        self.progress.end();
    }
}

/// The blocks of a sample in an order in which each beginning is a random sample too.
fn shuffled(sample: &Sample, seed: u64) -> Vec<BlockNumber> {
    let mut blocks: Vec<BlockNumber> = sample.clone().collect();
    blocks.shuffle(&mut ChaCha8Rng::seed_from_u64(seed ^ 0x6F72_6465));
    blocks
}

fn batch(bytes_per_block: f64) -> usize {
    let fit = BATCH_BYTES / bytes_per_block.max(1.0);
    (fit as usize).clamp(1, BATCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_bounded_by_blocks_rows_bytes_and_time() {
        let plan = SamplePlan::new(None, 1, 10_000_000, 100_000.0);
        assert_eq!((plan.sample.chosen(), plan.batch), (3000, 64));
        assert!((plan.fraction - 64e6 / 3e8).abs() < 1e-9);
        let small = SamplePlan::new(None, 1, 100, 1000.0);
        assert_eq!((small.sample.chosen(), small.fraction, small.batch), (100, 1.0, 64));
        let large = SamplePlan::new(None, 1, 1000, 1e9);
        assert_eq!((large.sample.chosen(), large.batch), (1000, 62));
        // 16 MB are read as a whole
        assert!(SamplePlan::new(None, 1, 2048, 1000.0).sample.is_all());
        assert!(!SamplePlan::new(None, 1, 2049, 1000.0).sample.is_all());
        let done = |blocks, read, raw, seconds| {
            let time = Duration::from_secs(seconds);
            plan.limit(&Done { blocks, read, raw, time })
        };
        assert_eq!(done(2999, 99_999_999, 99_999_999, 2), None);
        assert_eq!(done(1, 100_000_000, 0, 0), Some(Limit::Bytes));
        assert_eq!(done(1, 0, 100_000_000, 0), Some(Limit::Bytes));
        assert_eq!(done(39, 0, 0, 60), None);
        assert_eq!(done(40, 0, 0, 29), None);
        assert_eq!(done(40, 0, 0, 30), Some(Limit::Time));
        // all was read
        assert_eq!(done(3000, u64::MAX, 0, 60), None);
        let asked = SamplePlan::new(Some(SampleSize::Blocks(5000)), 1, 10_000, 1e9);
        assert_eq!((asked.sample.chosen(), asked.fraction, asked.batch), (5000, 1.0, 1));
        let done = Done { blocks: 40, read: u64::MAX, raw: 0, time: Duration::MAX };
        assert_eq!(asked.limit(&done), None);
    }

    #[test]
    fn the_parts_of_a_plan_are_in_proportion() {
        let plan = SamplePlan::new(None, 1, 100_000, 1000.0);
        let parts = [60_000, 39_900, 100].map(|total| plan.part(total));
        assert_eq!(parts.each_ref().map(|part| part.sample.chosen()), [1229, 818, 3]);
        let done = |blocks, seconds| {
            let time = Duration::from_millis(seconds);
            parts[0].limit(&Done { blocks, read: 0, raw: 0, time })
        };
        assert_eq!((done(23, 60_000), done(24, 17_999)), (None, None));
        assert_eq!(done(24, 18_000), Some(Limit::Time));
        let all = SamplePlan::new(Some(SampleSize::Percent(100.0)), 1, 100, 1.0);
        // it has grown
        assert!(all.part(101).sample.is_all());
    }

    #[test]
    fn every_beginning_of_a_sample_is_spread_over_the_relation() {
        let plan = SamplePlan::new(None, 1, 100_000, 1.0);
        let mut first: Vec<u32> = plan.blocks().take(100).map(|block| block.0).collect();
        assert!(first.iter().any(|&block| block > 90_000));
        assert!(first.iter().any(|&block| block < 10_000));
        first = plan.blocks().map(|block| block.0).collect();
        first.sort_unstable();
        let drawn: Vec<u32> = plan.sample.clone().map(|block| block.0).collect();
        assert_eq!(first, drawn);
    }
}
