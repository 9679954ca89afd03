//! One relation for the overview: read whole if that is quick, else in rounds until it is known precisely enough
//! or its time is up; from pages, or through SQL functions if pages cannot be read.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::queue::TimeShare;
use crate::findings::code::{Severity, WORTH};
use crate::inspect::finding_look::{Evidence, PageFacts, Partial};
use crate::inspect::inspector::{InspectError, Inspector};
use crate::inspect::result::{RelationReport, SampleReport, Source};
use crate::server::LiveError;
use crate::server::catalog::Relation;
use crate::server::index_scan::IndexFill;
use crate::server::owner_facts::begin_reading;
use crate::server::sampled::RowSource;
use crate::server::scan::BATCH;
use crate::server::snapshot::{self, Moment};
use toast_format::disk::BlockNumber;
use toast_format::heap::blocks::BlockSums;
use toast_format::heap::sample::Sample;
use toast_format::heap::scan::Scan;
use toast_format::model::BlocksRead;

/// The seed of samples that were not requested, to which each relation adds its OID.
const SEED: u64 = 1;

/// Without a sample that was requested, relations are read until half the width of the intervals of large columns is this
/// part of the estimate.
const PRECISION: f64 = 0.05;

/// How much of a relation is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    pub(super) share: TimeShare,
    /// Bytes of the table that it is a part of, if it is one.
    pub(super) whole: Option<u64>,
}

impl Effort {
    /// Fewer bytes than this are not looked at further.
    fn worth(self) -> u64 {
        self.whole.map_or(WORTH, |whole| (whole / MOST_PARTS).clamp(LEAST_PART, WORTH))
    }

    /// Whether findings are searched for: nearly all are about tables of some size, whose parts may be smaller.
    fn searches_findings(self, relation: &Relation) -> bool {
        let bytes = relation.bytes_with_toast().saturating_add(relation.index_bytes);
        let whole = self.whole.unwrap_or(bytes).max(bytes);
        bytes > 0 && whole >= WORTH && bytes >= self.worth()
    }
}

/// Parts of less than 1 MB are searched for findings if they are as large as one of so many, and of at least this size, so
/// that tables of thousands of small partitions take no longer.
const MOST_PARTS: u64 = 256;
const LEAST_PART: u64 = 128 << 10;

/// What a relation's blocks are read by, and what was counted.
struct BlockReader<'a> {
    source: RowSource<'a>,
    scan: Scan<()>,
}

impl BlockReader<'_> {
    async fn read(&mut self, blocks: &[BlockNumber]) -> Result<(), InspectError> {
        let read = self.source.scan(blocks, &mut self.scan).await;
        read.map_err(|error| error.in_relation(&self.scan.relation.source))
    }
}

impl Inspector {
    /// Reads as much of a relation as the overview needs. Uses the first connection alone.
    pub(super) async fn glance(
        &self,
        relation: &Relation,
        effort: Effort,
    ) -> Result<RelationReport, InspectError> {
        let why = self.why_functions(relation)?;
        let client = self.leader.client();
        let moment = match why {
            Some(_) => begin_reading(&self.leader, relation, false).await?,
            None => snapshot::begin(&self.leader).await?,
        };
        let (mut report, looked) = match self.by_blocks(relation, moment, why, effort).await {
            Ok(read) => read,
            Err(error) => {
                // If that fails too the next statement will say so.
                let _ = snapshot::abandon(client).await;
                return Err(error);
            }
        };
        snapshot::end(client).await?;
        if effort.searches_findings(relation) {
            let indexes = self.indexes_in_time(relation, report.read.source, effort).await?;
            let evidence = Evidence::new(looked, indexes);
            self.add_findings(relation, evidence, &mut report, effort.worth()).await?;
            let advice = self.add_advice(relation, &mut report, Severity::Medium);
            if ended_in_time(effort.share.advice_until, advice).await.is_none() {
                // what it was reading ends soon, without an error in the server's log
                snapshot::abandon(client).await?;
            }
            // a symptom that no setting mends concerns who looks at this table alone
            if let Some(found) = &mut report.findings {
                found.findings.retain(|finding| !finding.has_no_remedy());
            }
        }
        Ok(report)
    }

    /// What the indexes show; nothing if a sample was requested, or if there is no time to examine them.
    async fn indexes_in_time(
        &self,
        relation: &Relation,
        source: Source,
        effort: Effort,
    ) -> Result<Partial<Vec<IndexFill>>, LiveError> {
        if self.options.sampling.is_some() {
            return Ok(Partial::complete(Vec::new()));
        }
        if let Some(indexes) =
            ended_in_time(effort.share.until, self.indexes(relation, source)).await
        {
            return indexes;
        }
        snapshot::cut_short(&self.leader).await?;
        Ok(Partial::complete(Vec::new()))
    }

    /// Counts what blocks hold. Before that, pages are examined for findings.
    async fn by_blocks(
        &self,
        relation: &Relation,
        mut moment: Moment,
        why: Option<String>,
        effort: Effort,
    ) -> Result<(RelationReport, Partial<Option<PageFacts>>), InspectError> {
        let mut looked = Partial::complete(None);
        if why.is_none() && effort.searches_findings(relation) {
            // first, since the rounds take what time there is
            looked = self.examine_pages(relation, &moment, None).await?;
            if looked.failed.is_some() {
                snapshot::abandon(self.leader.client()).await?;
                moment = snapshot::begin(&self.leader).await?;
            }
        }
        let pages = why.is_none().then_some(&moment.snapshot);
        let source = RowSource::open(&self.server, &self.leader, relation, pages).await?;
        let total = source.block_count().await?;
        let sampling = self.options.sampling;
        let sampled = sampling.is_some() || total > WHOLE;
        let name = relation.display_name();
        let scan = Scan::new(self.scanned(&name, Arc::new(relation.desc.clone())), ());
        let mut reader = BlockReader { source, scan: scan.of_sample(sampled) };
        let seed = match sampling {
            Some(sampling) => {
                let blocks: Vec<BlockNumber> = sampling.draw(total).collect();
                for batch in blocks.chunks(BATCH) {
                    reader.read(batch).await?;
                    self.progress.advance(batch.len() as u64);
                }
                sampling.seed
            }
            None => {
                if sampled {
                    let rounds = Rounds::new(total, SEED.wrapping_add(u64::from(relation.oid.0)));
                    self.in_rounds(&mut reader, rounds, effort).await?;
                } else {
                    let blocks: Vec<BlockNumber> = (0..total).map(BlockNumber).collect();
                    reader.read(&blocks).await?;
                }
                SEED
            }
        };
        let scan = reader.scan;
        let sample = scan.blocks.as_ref().map(|blocks| SampleReport {
            blocks: u64::from(total),
            blocks_read: blocks.blocks,
            seed,
        });
        let report = match why {
            Some(why) => self.functions_report(relation, &scan, sample, why),
            None => self.report(relation, &scan, Source::Pageinspect, sample),
        };
        Ok((report, looked))
    }

    /// Reads round after round; a round that is cut short by time is discarded, unless it is the first.
    async fn in_rounds(
        &self,
        reader: &mut BlockReader<'_>,
        mut rounds: Rounds,
        effort: Effort,
    ) -> Result<(), InspectError> {
        let mut wanted = rounds.wanted(0.0);
        loop {
            let first = rounds.is_first();
            let blocks = rounds.next(wanted);
            if blocks.is_empty() {
                return Ok(());
            }
            let began = Instant::now();
            if first {
                reader.read(&blocks).await?;
            } else {
                let before = reader.scan.clone();
                match ended_in_time(effort.share.until, reader.read(&blocks)).await {
                    Some(read) => read?,
                    None => {
                        // what it was reading ends soon, without an error in the server's log
                        reader.scan = before;
                        return Ok(());
                    }
                }
            }
            let blocks_read = reader.scan.blocks.as_ref();
            let imprecision = blocks_read.map_or(0.0, |blocks| imprecision(blocks, rounds.total));
            if imprecision <= PRECISION {
                return Ok(());
            }
            wanted = rounds.wanted(imprecision);
            if let Some(until) = effort.share.until {
                let left = until.saturating_duration_since(Instant::now());
                let each = began.elapsed().as_secs_f64() / blocks.len() as f64;
                wanted = wanted.min((left.as_secs_f64() / each.max(1e-9)) as u32);
            }
            if wanted == 0 {
                return Ok(());
            }
        }
    }
}

/// The result of the work, if it arrives before the time is up.
async fn ended_in_time<T>(until: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
    match until {
        Some(until) => timeout_at(until, work).await.ok(),
        None => Some(work.await),
    }
}

/// Relations of at most this number of blocks are read whole, which takes hardly longer than a sample.
pub(super) const WHOLE: u32 = 256;
/// Blocks of the first round.
const FIRST: u32 = 128;
/// The most blocks of a round.
const MOST: u32 = 1024;
/// The most blocks of all rounds: what was read is remembered.
const MOST_IN_ALL: usize = 1 << 22;
/// Once half of a relation of at most this number of blocks is read, the rest is read too.
const FINISHED: u32 = 8192;
/// A column counts for the precision if it is at least this fraction of all.
const NOTABLE: f64 = 0.1;

/// The blocks of one relation, round by round. Each round spreads its blocks over the whole relation, so that the
/// relation can be estimated after any of them: a sample that was ended by time is as good as a requested sample of
/// the same size.
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

    /// How many blocks the next round should have: about as many as the precision requires, if the rest is like what
    /// was read, and at least as many as were read.
    pub(super) fn wanted(&self, imprecision: f64) -> u32 {
        if self.taken.is_empty() {
            return FIRST;
        }
        let read = self.taken.len() as f64;
        let needed = read * (imprecision / PRECISION).powi(2) * 1.1 - read;
        needed.max(read).min(f64::from(MOST)) as u32
    }
}

/// How wide the 95 % confidence interval of what a column takes is, as a part of the estimate to either side: that
/// of the worst column of those that are a notable part of the relation.
pub(super) fn imprecision(blocks: &BlockSums, total: u32) -> f64 {
    let blocks_read = BlocksRead { read: blocks.blocks, total: u64::from(total) };
    let columns = blocks.columns.iter().filter_map(|column| column.own_bytes.total(blocks_read));
    let columns: Vec<_> = columns.collect();
    let all: f64 = columns.iter().map(|column| column.estimate).sum();
    let notable = columns.iter().filter(|column| column.estimate > all * NOTABLE);
    notable.map(|e| (e.high - e.estimate).max(e.estimate - e.low) / e.estimate).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all_rounds(rounds: &mut Rounds) -> Vec<Vec<u32>> {
        let mut found = Vec::new();
        loop {
            let blocks = rounds.next(rounds.wanted(1.0));
            if blocks.is_empty() {
                return found;
            }
            found.push(blocks.into_iter().map(|block| block.0).collect());
        }
    }

    #[test]
    fn a_middling_relation_is_read_to_its_end_and_a_big_one_to_the_half() {
        let blocks = all_rounds(&mut Rounds::new(5000, 1)).concat();
        assert_eq!(blocks.len(), 5000);
        let blocks = all_rounds(&mut Rounds::new(100_000, 1)).concat();
        assert!((50_000..52_000).contains(&blocks.len()), "{}", blocks.len());
    }

    #[test]
    fn rounds_grow_with_what_is_missing() {
        let mut rounds = Rounds::new(1_000_000, 1);
        assert_eq!(rounds.wanted(f64::MAX), FIRST);
        rounds.next(FIRST);
        assert_eq!(rounds.wanted(0.06), FIRST);
        assert!((FIRST * 3..FIRST * 4).contains(&rounds.wanted(0.1)));
        assert_eq!(rounds.wanted(1.0), MOST);
    }

    proptest! {
        #[test]
        fn no_block_is_read_twice_and_all_are_as_likely(total in 1u32..20_000, seed: u64) {
            let rounds = all_rounds(&mut Rounds::new(total, seed));
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
