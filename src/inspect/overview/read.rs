//! One relation for the overview: read whole if that is quick, else in rounds until it is known precisely enough
//! or its time is up; by pages, or by SQL functions where pages are out of reach.

use std::future::Future;
use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::asker::{Asker, Counted};
use super::rounds::{Rounds, WHOLE, imprecision};
use crate::disk::BlockNumber;
use crate::findings::code::WORTH;
use crate::findings::finding::Findings;
use crate::heap::sample::Sampling;
use crate::inspect::blocks::BlockSums;
use crate::inspect::estimates;
use crate::inspect::finding_look::Looked;
use crate::inspect::inspector::{InspectError, Inspector, no_client};
use crate::inspect::intervals::SampleReport;
use crate::inspect::reports::note_failed_findings;
use crate::inspect::result::{RelationReport, Source};
use crate::inspect::scan::{BATCH, ScanTarget, Worker};
use crate::server::about::Access;
use crate::server::catalog::Relation;
use crate::server::connect::Connection;
use crate::server::{LiveError, snapshot};

/// Relations of other access methods than heap have no blocks to choose from: SQL functions read them whole, up to
/// this size.
const WHOLE_BYTES: u64 = 64 << 20;
/// The seed of samples that nobody has asked for, to which each relation adds its OID.
const SEED: u64 = 1;

/// How much is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    /// What the user has chosen; else until the precision is reached.
    pub(super) sampling: Option<Sampling>,
    /// Half the width of the intervals of large columns, as a part of the estimate.
    pub(super) precision: f64,
    /// When the relation's time is up.
    pub(super) until: Option<Instant>,
}

/// Who reads blocks.
enum Reader<'a> {
    Pages(Box<Worker>),
    Functions(Box<Asker<'a>>),
}

impl Inspector {
    /// Reads as much of a relation as the overview needs. Uses the first connection alone.
    pub(super) async fn glance(
        &self,
        relation: &Relation,
        effort: Effort,
    ) -> Result<RelationReport, InspectError> {
        let name = relation.display_name();
        let live = |error| InspectError::Live { relation: name.clone(), error };
        let refusal = self.why_no_pages(relation);
        let why = match (self.options.access, refusal) {
            (Access::Pageinspect, Some(why)) => {
                return Err(InspectError::NoPages { relation: name, why });
            }
            (Access::Functions, _) => Some("asked for".to_owned()),
            (_, refusal) => refusal,
        };
        if !relation.is_heap {
            if relation.bytes > WHOLE_BYTES {
                return Err(live(LiveError::Unexpected(format!(
                    "the access method {} has no blocks to sample: --details reads the whole table",
                    relation.access_method
                ))));
            }
            let why = why.unwrap_or_default();
            return self.by_functions(relation, why).await.map_err(live);
        }
        let connection = self.connections.first().ok_or_else(no_client).map_err(live)?;
        let (mut looked, mut failed) = (None, None);
        let read =
            self.by_blocks(connection, relation, why, effort, &mut looked, &mut failed).await;
        // An error ends the transaction as well as success; if that fails the next statement will say so.
        match read {
            Ok(mut report) => {
                snapshot::end(connection.client()).await.map_err(live)?;
                if is_worth_findings(relation) {
                    report.findings = self
                        .findings_in_time(relation, looked, &report, effort, &mut failed)
                        .await
                        .map_err(live)?;
                    note_failed_findings(&mut report, failed.as_ref());
                }
                Ok(report)
            }
            Err(error) => {
                let _ = snapshot::abandon(connection.client()).await;
                Err(error)
            }
        }
    }

    /// The findings; those about indexes if there is time to look at them.
    async fn findings_in_time(
        &self,
        relation: &Relation,
        looked: Option<Looked>,
        report: &RelationReport,
        effort: Effort,
        failed: &mut Option<LiveError>,
    ) -> Result<Option<Findings>, LiveError> {
        let connection = self.connections.first().ok_or_else(no_client)?;
        let find = async {
            let indexes = match effort.sampling {
                None => self.indexes(relation, report.source, failed).await?,
                Some(_) => Vec::new(),
            };
            self.findings(relation, looked.clone(), report, indexes, failed).await
        };
        if let Some(found) = ended_in_time(effort.until, find).await {
            return found;
        }
        let _ = connection.canceller().cancel().await;
        snapshot::abandon(connection.client()).await?;
        self.findings(relation, looked, report, Vec::new(), failed).await
    }

    async fn by_blocks(
        &self,
        connection: &Arc<Connection>,
        relation: &Relation,
        why: Option<String>,
        effort: Effort,
        looked: &mut Option<Looked>,
        failed: &mut Option<LiveError>,
    ) -> Result<RelationReport, InspectError> {
        let name = relation.display_name();
        let live = |error| InspectError::Live { relation: name.clone(), error };
        let mut moment = snapshot::begin(connection).await.map_err(live)?;
        let (mut reader, total) = if why.is_none() {
            // first, since the rounds take what time there is
            if is_worth_findings(relation) {
                *looked = self
                    .look(relation, &moment, effort.sampling, None, failed)
                    .await
                    .map_err(live)?;
                if failed.is_some() {
                    snapshot::abandon(connection.client()).await.map_err(live)?;
                    moment = snapshot::begin(connection).await.map_err(live)?;
                }
            }
            let target = ScanTarget {
                name: name.clone(),
                quoted: relation.quoted(),
                desc: Arc::new(relation.desc.clone()),
                keeps: false,
                surveyed: None,
                target: None,
            };
            let worker = Worker::new(self, &target, &moment, connection).await.map_err(live)?;
            let total = worker.block_count().await.map_err(live)?;
            (Reader::Pages(Box::new(worker)), total)
        } else {
            // the lock and the privileges that reading takes, also where there is nothing to read
            let reads = format!("SELECT FROM ONLY {} LIMIT 0", relation.quoted());
            connection.client().batch_execute(&reads).await.map_err(|e| live(e.into()))?;
            let total = relation.bytes / self.server.page_size.bytes() as u64;
            let asker = Asker::new(self, connection, relation);
            (Reader::Functions(Box::new(asker)), u32::try_from(total).unwrap_or(u32::MAX))
        };
        let sampled = effort.sampling.is_some() || total > WHOLE;
        if sampled {
            *reader.blocks() = Some(BlockSums::new(relation.desc.attributes.len()));
        }
        let seed = match effort.sampling {
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
                    self.in_rounds(connection, &mut reader, rounds, total, effort).await?;
                } else {
                    let blocks: Vec<BlockNumber> = (0..total).map(BlockNumber).collect();
                    reader.read(&blocks).await?;
                }
                SEED
            }
        };
        let Counted { stats, blocks, problems, unplaced } = reader.counted();
        let mut report = match why {
            Some(why) => self.functions_report(relation, &stats, &unplaced, why),
            None => self.report(relation, &stats, &problems, Source::Pageinspect),
        };
        if let Some(blocks) = &blocks {
            let sample =
                SampleReport { blocks: u64::from(total), blocks_read: blocks.blocks, seed };
            estimates::fill(&mut report, &relation.desc, &stats, blocks, sample);
            if report.source == Source::Functions {
                // they are only known from pages
                report.tuples.dead_estimate = None;
                report.tuples.unknown_estimate = None;
                report.heap.free_bytes_estimate = None;
            }
        }
        Ok(report)
    }

    /// Reads round after round; one that time cuts short counts for nothing, unless it is the first.
    async fn in_rounds(
        &self,
        connection: &Connection,
        reader: &mut Reader<'_>,
        mut rounds: Rounds,
        total: u32,
        effort: Effort,
    ) -> Result<(), InspectError> {
        let mut wanted = rounds.wanted(0.0, effort.precision);
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
                let before = reader.counted();
                match ended_in_time(effort.until, reader.read(&blocks)).await {
                    Some(read) => read?,
                    None => {
                        let _ = connection.canceller().cancel().await;
                        reader.put_back(before);
                        return Ok(());
                    }
                }
            }
            let imprecision =
                reader.blocks().as_ref().map_or(0.0, |blocks| imprecision(blocks, total));
            if imprecision <= effort.precision {
                return Ok(());
            }
            wanted = rounds.wanted(imprecision, effort.precision);
            if let Some(until) = effort.until {
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

/// Whether findings are looked for: nearly all tell of tables of some size.
fn is_worth_findings(relation: &Relation) -> bool {
    let toast = relation.toast.as_ref().map_or(0, |toast| toast.bytes);
    relation.bytes.saturating_add(toast).saturating_add(relation.index_bytes) >= WORTH
}

/// What comes of the work, if that is before the time is up.
async fn ended_in_time<T>(until: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
    match until {
        Some(until) => timeout_at(until, work).await.ok(),
        None => Some(work.await),
    }
}

impl Reader<'_> {
    async fn read(&mut self, blocks: &[BlockNumber]) -> Result<(), InspectError> {
        match self {
            Reader::Pages(worker) => {
                for batch in blocks.chunks(BATCH) {
                    worker.read(batch, &mut ()).await?;
                }
                Ok(())
            }
            Reader::Functions(asker) => asker
                .read(blocks)
                .await
                .map_err(|error| InspectError::Live { relation: asker.name.clone(), error }),
        }
    }

    fn blocks(&mut self) -> &mut Option<BlockSums> {
        match self {
            Reader::Pages(worker) => &mut worker.found().blocks,
            Reader::Functions(asker) => &mut asker.counted.blocks,
        }
    }

    fn counted(&mut self) -> Counted {
        match self {
            Reader::Pages(worker) => {
                let found = worker.found();
                Counted {
                    stats: found.stats.clone(),
                    blocks: found.blocks.clone(),
                    problems: found.problems.clone(),
                    unplaced: Vec::new(),
                }
            }
            Reader::Functions(asker) => asker.counted.clone(),
        }
    }

    fn put_back(&mut self, counted: Counted) {
        match self {
            Reader::Pages(worker) => {
                let found = worker.found();
                found.stats = counted.stats;
                found.blocks = counted.blocks;
                found.problems = counted.problems;
            }
            Reader::Functions(asker) => asker.counted = counted,
        }
    }
}
