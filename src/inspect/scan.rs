//! Scans of a live server's relations: their blocks, all or a sample, over all connections.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::blocks::BlockSums;
use super::inspector::{InspectError, Inspector, no_client};
use super::kept::Kept;
use super::orphans::References;
use super::values::{RowSink, RowWriter};
use crate::disk::custom::CustomFlavor;
use crate::disk::desc::TupleDesc;
use crate::disk::layout::PageSize;
use crate::disk::page::Page;
use crate::disk::tuple::HeapTuple;
use crate::disk::{BlockNumber, ItemPointer};
use crate::fill::lengths::Growth;
use crate::fill::survey::{Kind, Survey, Surveyed};
use crate::heap::problem::Problems;
use crate::heap::progress::Progress;
use crate::heap::sample::{Sample, Sampling};
use crate::heap::scan::{Judge, Relation as Scanned, ValueSink};
use crate::heap::stats::RelationStats;
use crate::model::settings::TupleTarget;
use crate::model::visibility::Visibility;
use crate::server::LiveError;
use crate::server::connect::Connection;
use crate::server::pages::{PageReader, Pages};
use crate::server::snapshot::Moment;

/// Blocks read with one statement: 8 MB of 8 kB pages.
pub(super) const BATCH: usize = 1024;
/// Where they are read side by side and decoded as they come: 16 MB of 8 kB pages.
const LARGEST_BATCH: u32 = 2048;
/// What small relations are not read in less than, so that each connection has a statement.
const SMALL_BATCH: u32 = 256;
/// Statements for each connection, so that all end at about the same time.
const ROUNDS: u32 = 8;

/// Blocks that are read with one statement, of so many on so many connections.
fn batch(blocks: u32, connections: usize) -> usize {
    let connections = u32::try_from(connections).unwrap_or(u32::MAX).max(1);
    let each = blocks.div_ceil(connections);
    each.div_ceil(ROUNDS).max(each.min(SMALL_BATCH)).clamp(1, LARGEST_BATCH) as usize
}

impl Judge for Pages {
    fn judge(&self, ctid: ItemPointer, tuple: &HeapTuple<'_>) -> Visibility {
        self.visibility(ctid, tuple)
    }

    fn sees_all_of(&self, page: &Page<'_>) -> bool {
        self.all_visible(page)
    }
}

impl Inspector {
    /// Reads the blocks of a relation, all or a sample, side by side on all connections unless rows
    /// are wanted, which come in order.
    pub(super) async fn scan(
        &self,
        target: &ScanTarget,
        moment: &Moment,
        rows: Option<&mut (dyn RowWriter + Send)>,
        sampling: Option<Sampling>,
        mut references: Option<&mut References>,
    ) -> Result<ScanResult, InspectError> {
        let live = |error| InspectError::Live { relation: target.name.clone(), error };
        let leader = self.connections.first().ok_or_else(no_client).map_err(live)?;
        let mut worker = Worker::new(self, target, moment, leader).await.map_err(live)?;
        let total_blocks = worker.reader.block_count().await.map_err(live)?;
        let sample = match sampling {
            Some(sampling) => sampling.draw(total_blocks),
            None => Sample::all(total_blocks),
        };
        let chosen = sample.chosen();
        tracing::debug!(
            "{}: {chosen} of {total_blocks} blocks are read, on {} connections",
            target.name,
            self.connections.len()
        );
        worker.scan.blocks = sampling.map(|_| BlockSums::new(target.desc.attributes.len()));
        worker.scan.kept = target.keeps.then(|| Kept::new(total_blocks, sampling));
        let surveyed = target.surveyed.filter(|_| sampling.is_none());
        worker.scan.survey = surveyed.map(|(kind, fillfactor)| {
            let growth = Growth::of(&target.desc, self.server.page_size, target.target);
            Survey::new(kind, self.server.page_size, total_blocks, fillfactor).growing(growth)
        });
        self.progress.begin(&target.name, u64::from(chosen));
        worker.queue = Arc::new(Mutex::new(sample));
        worker.total_blocks = total_blocks;
        if let Some(writer) = rows {
            if let Some(contents) = &self.options.contents {
                let mut sink =
                    self.content_sink(&target.name, moment, contents, leader, writer).await?;
                worker.run(&mut (&mut sink, &mut references)).await?;
                self.progress.end();
                worker.scan.problems.merge(sink.problems);
                let unknown_defaults = sink.unknown.into_iter().collect();
                return match sink.error {
                    Some(error) => Err(error.into()),
                    None => Ok(ScanResult { unknown_defaults, ..worker.result() }),
                };
            }
            let mut sink =
                RowSink { relation: target.name.clone(), with_block: true, writer, error: None };
            worker.run(&mut (&mut sink, &mut references)).await?;
            self.progress.end();
            return match sink.error {
                Some(error) => Err(error.into()),
                None => Ok(worker.result()),
            };
        }
        worker.batch = batch(chosen, self.connections.len());
        match references {
            None => self.side_by_side(worker, target, moment, &mut (), || ()).await,
            Some(references) => {
                let page = self.server.page_size;
                self.side_by_side(worker, target, moment, references, || References::new(page))
                    .await
            }
        }
    }

    /// Reads the blocks on all connections, each in a task of its own, which its connection's task
    /// wakes on the same thread; what the tasks' sinks have seen is added to `sink`.
    async fn side_by_side<S: ValueSink + Merge + Send + 'static>(
        &self,
        first: Worker,
        target: &ScanTarget,
        moment: &Moment,
        sink: &mut S,
        make: impl Fn() -> S,
    ) -> Result<ScanResult, InspectError> {
        let live = |error| InspectError::Live { relation: target.name.clone(), error };
        let (queue, total_blocks) = (Arc::clone(&first.queue), first.total_blocks);
        let attributes = target.desc.attributes.len();
        let blocks = first.scan.blocks.as_ref().map(|_| BlockSums::new(attributes));
        let (kept, batch) = (first.scan.kept.clone(), first.batch);
        let mut survey = first.scan.survey.clone();
        let mut workers = vec![first];
        for connection in self.connections.iter().skip(1) {
            let mut other = Worker::new(self, target, moment, connection).await.map_err(live)?;
            other.queue = Arc::clone(&queue);
            other.scan.blocks.clone_from(&blocks);
            other.scan.kept.clone_from(&kept);
            other.scan.survey.clone_from(&survey);
            other.batch = batch;
            workers.push(other);
        }
        let tasks: Vec<_> = workers
            .into_iter()
            .map(|mut worker| {
                let mut seen = make();
                tokio::spawn(async move {
                    worker.run(&mut seen).await.map(|()| (worker.result(), seen))
                })
            })
            .collect();
        let mut result = ScanResult {
            stats: RelationStats::new(attributes),
            problems: Problems::default(),
            total_blocks,
            blocks,
            kept,
            survey: survey.take(),
            unknown_defaults: Vec::new(),
        };
        for task in tasks {
            let (more, seen) = task.await.map_err(std::io::Error::other)??;
            result.merge(more);
            sink.merge(seen);
        }
        self.progress.end();
        Ok(result)
    }
}

/// What sinks of several parts have seen is put together.
trait Merge {
    fn merge(&mut self, other: Self);
}

impl Merge for () {
    fn merge(&mut self, _other: ()) {}
}

impl Merge for References {
    fn merge(&mut self, other: References) {
        self.add(other);
    }
}

/// A relation to scan.
pub(super) struct ScanTarget {
    pub(super) name: String,
    pub(super) quoted: String,
    pub(super) desc: Arc<TupleDesc>,
    /// Whether the pages that findings look at are kept.
    pub(super) keeps: bool,
    /// What its tuples are and how full pages are made, if it is surveyed.
    pub(super) surveyed: Option<(Kind, u32)>,
    /// `toast_tuple_target`, if it is set.
    pub(super) target: Option<TupleTarget>,
}

/// The blocks that no worker has taken yet.
type Queue = Mutex<Sample>;

/// The next blocks, at most so many; none if none are left.
fn take(queue: &Queue, batch: usize) -> Option<Vec<BlockNumber>> {
    let mut left = queue.lock().unwrap_or_else(PoisonError::into_inner);
    let blocks: Vec<BlockNumber> = left.by_ref().take(batch).collect();
    (!blocks.is_empty()).then_some(blocks)
}

/// What a scan found.
pub(super) struct ScanResult {
    pub(super) stats: RelationStats,
    pub(super) problems: Problems,
    /// Blocks of the relation.
    pub(super) total_blocks: u32,
    /// What single blocks hold, if they are a sample.
    pub(super) blocks: Option<BlockSums>,
    /// Pages that findings look at, if they are kept.
    pub(super) kept: Option<Kept>,
    /// What stands in each block, if it is surveyed.
    pub(super) survey: Option<Survey>,
    /// Columns whose default for rows written before them is not known, where values are put together.
    pub(super) unknown_defaults: Vec<String>,
}

impl ScanResult {
    fn merge(&mut self, other: ScanResult) {
        self.stats.merge(&other.stats);
        self.problems.merge_beside(other.problems);
        if let (Some(ours), Some(theirs)) = (&mut self.blocks, &other.blocks) {
            ours.merge(theirs);
        }
        if let (Some(ours), Some(theirs)) = (&mut self.kept, other.kept) {
            ours.merge(theirs);
        }
        if let (Some(ours), Some(theirs)) = (&mut self.survey, other.survey) {
            ours.merge(theirs);
        }
    }
}

/// One connection's share of a scan.
pub(super) struct Worker {
    reader: PageReader,
    queue: Arc<Queue>,
    /// Blocks of the relation.
    total_blocks: u32,
    /// Blocks that are read with one statement.
    batch: usize,
    scan: Scan,
    progress: Arc<dyn Progress>,
    stop: Arc<AtomicBool>,
}

/// What a worker has found.
#[derive(Clone)]
pub(super) struct Scan {
    name: String,
    desc: Arc<TupleDesc>,
    page_size: PageSize,
    flavor: CustomFlavor,
    pub(super) stats: RelationStats,
    /// If the blocks are a sample.
    pub(super) blocks: Option<BlockSums>,
    /// If findings look at some.
    kept: Option<Kept>,
    survey: Option<Survey>,
    pub(super) problems: Problems,
}

impl Worker {
    pub(super) async fn new(
        inspector: &Inspector,
        target: &ScanTarget,
        moment: &Moment,
        connection: &Arc<Connection>,
    ) -> Result<Worker, LiveError> {
        let server = &inspector.server;
        let pageinspect = server
            .pageinspect
            .as_ref()
            .ok_or_else(|| LiveError::Unexpected("pageinspect is gone".into()))?;
        let reader = PageReader::new(
            Arc::clone(connection),
            pageinspect,
            server.page_size,
            target.quoted.clone(),
            moment.snapshot.clone(),
        )
        .await?;
        Ok(Worker {
            reader,
            queue: Arc::new(Mutex::new(Sample::all(0))),
            total_blocks: 0,
            batch: BATCH,
            scan: Scan {
                name: target.name.clone(),
                desc: Arc::clone(&target.desc),
                page_size: server.page_size,
                flavor: inspector.options.flavor,
                stats: RelationStats::new(target.desc.attributes.len()),
                blocks: None,
                kept: None,
                survey: None,
                problems: Problems::default(),
            },
            progress: Arc::clone(&inspector.progress),
            stop: Arc::clone(&inspector.stop),
        })
    }

    fn result(self) -> ScanResult {
        let Scan { stats, problems, blocks, kept, survey, .. } = self.scan;
        let total_blocks = self.total_blocks;
        let unknown_defaults = Vec::new();
        ScanResult { stats, problems, total_blocks, blocks, kept, survey, unknown_defaults }
    }

    /// Reads and decodes until no blocks are left.
    async fn run<S: ValueSink + Send>(&mut self, sink: &mut S) -> Result<(), InspectError> {
        while let Some(blocks) = take(&self.queue, self.batch) {
            let read = if S::WANTS_VALUES {
                // values are wanted in order
                let pages = self.reader.read(&blocks).await;
                pages
                    .map(|pages| self.scan.decode(&pages, sink))
                    .map_err(|error| self.failed_at(&blocks, error))
            } else {
                self.read(&blocks, sink).await
            };
            read?;
            if self.stop.load(Ordering::Relaxed) {
                return Err(InspectError::Stopped);
            }
            self.progress.advance(blocks.len() as u64);
        }
        Ok(())
    }

    /// Blocks of the relation at this moment.
    pub(super) async fn block_count(&self) -> Result<u32, LiveError> {
        self.reader.block_count().await
    }

    /// What was found, to be added to.
    pub(super) fn found(&mut self) -> &mut Scan {
        &mut self.scan
    }

    /// Reads and decodes these blocks, in any order.
    pub(super) async fn read<S: ValueSink + Send>(
        &mut self,
        blocks: &[BlockNumber],
        sink: &mut S,
    ) -> Result<(), InspectError> {
        let scan = &mut self.scan;
        let read = self.reader.read_each(blocks, |pages| scan.decode(&pages, sink)).await;
        read.map_err(|error| self.failed_at(blocks, error))
    }

    fn failed_at(&self, blocks: &[BlockNumber], error: LiveError) -> InspectError {
        let relation = match blocks.first() {
            Some(first) => format!("{}, block {first}", self.scan.name),
            None => self.scan.name.clone(),
        };
        InspectError::Live { relation, error }
    }
}

impl Scan {
    fn decode(&mut self, pages: &Pages, sink: &mut impl ValueSink) {
        let relation = Scanned {
            source: &self.name,
            desc: &self.desc,
            page_size: self.page_size,
            flavor: self.flavor,
        };
        for (block, bytes) in pages.iter() {
            let (stats, problems) = (&mut self.stats, &mut self.problems);
            match &mut self.survey {
                None => relation.scan_page(block, bytes, pages, stats, sink, problems),
                Some(survey) => {
                    survey.begin_block(block);
                    let mut sink = Surveyed { survey, sink };
                    relation.scan_page(block, bytes, pages, stats, &mut sink, problems);
                    survey.end_block(block);
                }
            }
            if let Some(blocks) = &mut self.blocks {
                blocks.block(&self.stats);
            }
            if let Some(kept) = &mut self.kept {
                kept.offer(block, bytes, pages);
            }
        }
        self.problems.extend(pages.problems(&self.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_relations_are_shared_and_large_ones_end_together() {
        assert_eq!((batch(0, 2), batch(1, 2), batch(383, 2)), (1, 1, 192));
        assert_eq!((batch(30_000, 2), batch(1_000_000, 4)), (1875, 2048));
    }
}
