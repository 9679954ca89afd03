//! `inspect` on a live server.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::anatomy::{self, Anatomy, Wanted};
use super::blocks::BlockSums;
use super::contents::{ContentSink, create_dir};
use super::estimates;
use super::intervals::SampleReport;
use super::orphans::References;
use super::result::{
    HeapReport, NotAvailable, OrphanReport, RelationReport, ServerReport, Source, ToastReport,
    TuplesReport, column_reports, name_toasters, out_of_line, problem_reports,
};
use super::values::{RowSink, RowWriter};
use crate::disk::custom::CustomFlavor;
use crate::disk::desc::TupleDesc;
use crate::disk::layout::PageSize;
use crate::disk::page::Page;
use crate::disk::tuple::HeapTuple;
use crate::disk::{BlockNumber, ItemPointer};
use crate::heap::problem::{Place, Problem, Problems};
use crate::heap::progress::Progress;
use crate::heap::sample::{Sample, Sampling};
use crate::heap::scan::{Judge, Relation as Scanned, ValueSink};
use crate::heap::stats::RelationStats;
use crate::model::visibility::Visibility;
use crate::server::about::Server;
use crate::server::catalog::{Relation, RelationKind, ToastRelation};
use crate::server::chunks::{self, ChunkPages, LiveChunks};
use crate::server::connect::Connection;
use crate::server::pages::{PageReader, Pages};
use crate::server::sink::{Failed, Kind};
use crate::server::snapshot::{self, Moment};
use crate::server::sql::quote_qualified;
use crate::server::{LiveError, functions, toasters};

/// Blocks read with one statement: 8 MB of 8 kB pages.
const BATCH: usize = 1024;
/// TOAST relations up to this size are read whole unless the user says otherwise.
const TOAST_LIMIT: u64 = 1 << 30;

/// Which source to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Pages where that is possible, else SQL functions.
    #[default]
    Auto,
    Pageinspect,
    Functions,
}

/// Whether the TOAST relation's own rows are read and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ScanToast {
    /// If it is at most 1 GB.
    #[default]
    Auto,
    /// In any case.
    Always,
    /// Not at all: the planner's estimate is reported.
    Never,
}

/// What to read and how.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub access: Access,
    /// The TOAST relation.
    pub scan_toast: ScanToast,
    /// The layout of custom pointers.
    pub flavor: CustomFlavor,
    /// Whether values are put together, which rows of values then tell.
    pub contents: Option<ContentOptions>,
    /// Which blocks are read; `None` for all. A sample needs pages, and TOAST relations are not
    /// read for it.
    pub sampling: Option<Sampling>,
}

/// Putting values together.
#[derive(Debug, Clone, Default)]
pub struct ContentOptions {
    /// Where each value is written to a file of its own.
    pub output_dir: Option<PathBuf>,
}

/// Why `inspect` could not go on.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    #[error("{relation}: {error}")]
    Live {
        /// What was being read, with the block where it is known.
        relation: String,
        /// What went wrong.
        error: LiveError,
    },
    #[error("could not write: {0}")]
    Output(#[from] std::io::Error),
    /// There is no such value.
    #[error("{0}")]
    NoValue(String),
    /// Stopped on request.
    #[error("stopped")]
    Stopped,
    /// Pages were asked for and cannot be had.
    #[error("{relation}: pages cannot be read: {why}")]
    NoPages { relation: String, why: String },
}

impl Judge for Pages {
    fn judge(&self, ctid: ItemPointer, tuple: &HeapTuple<'_>) -> Visibility {
        self.visibility(ctid, tuple)
    }

    fn sees_all_of(&self, page: &Page<'_>) -> bool {
        self.all_visible(page)
    }
}

/// Reads relations of one server over one or more connections.
pub struct Inspector {
    /// Connections to the same database; the first leads.
    pub connections: Vec<Arc<Connection>>,
    pub server: Server,
    /// What to read.
    pub options: Options,
    /// Whom to tell.
    pub progress: Arc<dyn Progress>,
    /// Set from outside to stop the reading.
    pub stop: Arc<AtomicBool>,
}

impl Inspector {
    /// Over these connections.
    ///
    /// # Errors
    /// Where the server does not say what it is, or is too old.
    pub(crate) async fn open(
        connections: Vec<Arc<Connection>>,
        options: Options,
        progress: Arc<dyn Progress>,
    ) -> Result<Inspector, Failed> {
        let first = connections.first().ok_or_else(|| Failed::new(Kind::Lost, "no connection"))?;
        let ask = async || Server::ask(first.client()).await;
        let server = first.reading(ask).await;
        let server = server.map_err(|error| Failed::new(Kind::Incomplete, error.to_string()))?;
        Ok(Inspector { connections, server, options, progress, stop: Arc::default() })
    }

    /// The connection that leads.
    pub(crate) fn leader(&self) -> Result<&Arc<Connection>, Failed> {
        self.connections.first().ok_or_else(|| Failed::new(Kind::Lost, "no connection"))
    }

    /// The server as the report shows it.
    pub fn server_report(&self) -> ServerReport {
        ServerReport {
            version: self.server.version.clone(),
            version_num: self.server.version_num,
            database: self.server.database.clone(),
            in_recovery: self.server.in_recovery,
        }
    }

    /// Why pages of `relation` cannot be read, `None` if they can.
    pub fn why_no_pages(&self, relation: &Relation) -> Option<String> {
        if !relation.is_heap {
            Some(format!("the table's access method is {}, not heap", relation.access_method))
        } else if !self.server.superuser {
            Some("pageinspect needs a superuser".to_owned())
        } else if self.server.pageinspect.is_none() {
            Some("the extension pageinspect is not installed in this database".to_owned())
        } else {
            None
        }
    }

    /// Reads one relation. With `rows`, every value goes there as it is met.
    pub async fn relation(
        &self,
        relation: Arc<Relation>,
        rows: Option<&mut (dyn RowWriter + Send)>,
    ) -> Result<RelationReport, InspectError> {
        let refusal = self.why_no_pages(&relation);
        let name = relation.display_name();
        let live = |error| InspectError::Live { relation: name.clone(), error };
        match (self.options.access, refusal) {
            (Access::Pageinspect, Some(why)) => Err(InspectError::NoPages { relation: name, why }),
            (_, Some(why)) if self.options.sampling.is_some() => {
                Err(InspectError::NoPages { relation: name, why })
            }
            (Access::Functions, _) => {
                self.by_functions(&relation, "asked for".to_owned()).await.map_err(live)
            }
            (Access::Auto, Some(why)) => self.by_functions(&relation, why).await.map_err(live),
            (Access::Auto | Access::Pageinspect, None) => {
                let result = self.by_pages(relation, rows).await;
                if result.is_err() {
                    for connection in &self.connections {
                        // If that fails too the connection is gone, as the next query will say.
                        let _ = snapshot::abandon(connection.client()).await;
                    }
                }
                result
            }
        }
    }

    async fn by_functions(
        &self,
        relation: &Relation,
        why: String,
    ) -> Result<RelationReport, LiveError> {
        let connection = self.connections.first().ok_or_else(no_client)?;
        let name = relation.display_name();
        self.progress.begin(&name, 0);
        let read = async || functions::groups(connection.client(), &self.server, relation).await;
        let (live, groups) = connection.reading(read).await?;
        self.progress.end();
        let mut stats = RelationStats::new(relation.desc.attributes.len());
        stats.tuples.live = live;
        for group in &groups {
            if let Some(column) = stats.columns.get_mut(group.index) {
                column.add(&group.value, group.count);
            }
        }
        let mut not_available =
            vec![NotAvailable { figure: "everything that only pages show".into(), reason: why }];
        for (figure, reason) in functions::not_available(&self.server, relation) {
            not_available.push(NotAvailable { figure: figure.into(), reason });
        }
        if relation.row_security {
            not_available.push(NotAvailable {
                figure: "rows that row security hides".into(),
                reason: "row security is active for this user".into(),
            });
        }
        let mut report = self.report(relation, &stats, &Problems::default(), Source::Functions);
        report.tuples = TuplesReport {
            live,
            dead: None,
            unknown: None,
            hot_updated: None,
            heap_only: None,
            ..report.tuples
        };
        report.heap = HeapReport {
            blocks_read: 0,
            new_blocks: None,
            free_bytes: None,
            line_pointers_unused: None,
            line_pointers_redirect: None,
            line_pointers_dead: None,
            ..report.heap
        };
        report.not_available = not_available;
        Ok(report)
    }

    async fn by_pages(
        &self,
        relation: Arc<Relation>,
        rows: Option<&mut (dyn RowWriter + Send)>,
    ) -> Result<RelationReport, InspectError> {
        let name = relation.display_name();
        let live = |error| InspectError::Live { relation: name.clone(), error };
        let leader = self.connections.first().ok_or_else(no_client).map_err(live)?;
        let moment = snapshot::begin(leader).await.map_err(live)?;
        for connection in self.connections.iter().skip(1) {
            snapshot::join(connection, &moment).await.map_err(live)?;
        }
        let heap = Target {
            name: name.clone(),
            quoted: relation.quoted(),
            desc: Arc::new(relation.desc.clone()),
        };
        let known = toasters::ask(leader.client(), &self.server).await.map_err(live)?;
        // a stock server leaves no chunks behind
        let mut references = known.is_some().then(|| References::new(self.server.page_size));
        let sampling = self.options.sampling;
        let scanned = self.scan(&heap, &moment, rows, sampling, references.as_mut()).await?;
        let ScanResult { stats, mut problems, total_blocks, blocks } = scanned;
        let unread = problems.count() > 0;
        let mut orphans = None;
        let toast = match &relation.toast {
            Some(toast) if self.wants(toast) => {
                let target = Target {
                    name: format!("pg_toast.{}", toast.name),
                    quoted: quote_qualified("pg_toast", &toast.name),
                    desc: Arc::new(TupleDesc::toast_relation()),
                };
                let scanned = self.scan(&target, &moment, None, None, None).await?;
                problems.merge(scanned.problems);
                if let Some(references) = references {
                    let mut store = self.chunk_store(leader, &moment, false);
                    let known = references.known(&mut store, unread);
                    orphans = Some(match known {
                        Ok(known) => {
                            let mut report = OrphanReport::default();
                            chunks::values(leader.client(), &target.quoted, |id, chunks, bytes| {
                                known.count(id, chunks, bytes, &mut report);
                            })
                            .await
                            .map_err(live)?;
                            Ok(report)
                        }
                        Err(reason) => Err(reason),
                    });
                }
                Some(scanned.stats)
            }
            _ => None,
        };
        for connection in &self.connections {
            snapshot::end(connection.client()).await.map_err(live)?;
        }
        let mut report = self.report(&relation, &stats, &problems, Source::Pageinspect);
        if let Some(known) = &known {
            name_toasters(&mut report.columns, known);
        }
        match (orphans, &mut report.toast) {
            (Some(Ok(found)), Some(toast)) => toast.orphans = Some(found),
            (Some(Err(reason)), _) => report.not_available.push(NotAvailable {
                figure: "values in the TOAST relation that no row refers to".into(),
                reason: reason.into(),
            }),
            _ => {}
        }
        if let (Some(report), Some(counted)) = (&mut report.toast, &toast) {
            report.rows = Some(counted.tuples.live);
            report.rows_counted = true;
            report.dead_rows = Some(counted.tuples.dead);
            report.free_bytes = Some(counted.tuples.free_bytes);
        }
        if let (Some(blocks), Some(sampling)) = (&blocks, self.options.sampling) {
            let sample = SampleReport {
                blocks: u64::from(total_blocks),
                blocks_read: blocks.blocks,
                seed: sampling.seed,
            };
            estimates::fill(&mut report, &relation.desc, &stats, blocks, sample);
        }
        Ok(report)
    }

    /// Takes one value apart: that of `column` in the tuple at `ctid`, dead or alive.
    pub async fn value(
        &self,
        relation: &Relation,
        column: &str,
        ctid: ItemPointer,
    ) -> Result<Anatomy, InspectError> {
        let name = relation.display_name();
        let live = |error| InspectError::Live { relation: name.clone(), error };
        let missing = |what: String| InspectError::NoValue(format!("{name}: {what}"));
        if let Some(why) = self.why_no_pages(relation) {
            return Err(InspectError::NoPages { relation: name, why });
        }
        let pageinspect = self.server.pageinspect.as_ref().ok_or_else(no_client).map_err(live)?;
        let leader = self.connections.first().ok_or_else(no_client).map_err(live)?;
        let moment = snapshot::begin(leader).await.map_err(live)?;
        let (connection, page_size) = (Arc::clone(leader), self.server.page_size);
        let snapshot = moment.snapshot.clone();
        let mut reader =
            PageReader::new(connection, pageinspect, page_size, relation.quoted(), snapshot)
                .await
                .map_err(live)?;
        if ctid.block.0 >= reader.block_count().await.map_err(live)? {
            return Err(missing(format!("there is no block {}", ctid.block)));
        }
        let pages = reader.read(&[ctid.block]).await.map_err(live)?;
        if let Some((_, message)) = pages.unreadable.first() {
            return Err(missing(format!("block {}: {message}", ctid.block)));
        }
        let toasters = toasters::toasters(leader.client(), &self.server).await.map_err(live)?;
        // the values of dead rows may have dead chunks
        let mut store = self.chunk_store(leader, &moment, !pages.is_live(ctid));
        let (desc, flavor) = (&relation.desc, self.options.flavor);
        let wanted = Wanted { relation: &name, desc, flavor, column, ctid };
        let bytes = pages.iter().next().map(|(_, bytes)| bytes).unwrap_or_default();
        let anatomy = anatomy::on_page(bytes, &wanted, &mut store, &toasters, page_size);
        snapshot::end(leader.client()).await.map_err(live)?;
        anatomy.map_err(missing)
    }

    /// Chunks read on this connection; `dead`: those too that no statement gives.
    fn chunk_store(&self, connection: &Arc<Connection>, moment: &Moment, dead: bool) -> LiveChunks {
        let connection = Arc::clone(connection);
        match self.server.pageinspect.clone() {
            Some(pageinspect) => LiveChunks::with_pages(
                connection,
                ChunkPages {
                    pageinspect,
                    page_size: self.server.page_size,
                    snapshot: moment.snapshot.clone(),
                    dead,
                },
            ),
            None => LiveChunks::new(connection),
        }
    }

    async fn content_sink<'w>(
        &self,
        target: &Target,
        moment: &Moment,
        contents: &ContentOptions,
        connection: &Arc<Connection>,
        writer: &'w mut (dyn RowWriter + Send),
    ) -> Result<ContentSink<'w, LiveChunks>, InspectError> {
        let live = |error| InspectError::Live { relation: target.name.clone(), error };
        if let Some(dir) = &contents.output_dir {
            create_dir(dir)?;
        }
        Ok(ContentSink {
            relation: target.name.clone(),
            store: self.chunk_store(connection, moment, false),
            toasters: toasters::toasters(connection.client(), &self.server).await.map_err(live)?,
            page: self.server.page_size,
            writer,
            output_dir: contents.output_dir.clone(),
            problems: Problems::default(),
            error: None,
        })
    }

    fn wants(&self, toast: &ToastRelation) -> bool {
        match self.options.scan_toast {
            _ if self.options.sampling.is_some() => false,
            ScanToast::Always => true,
            ScanToast::Never => false,
            ScanToast::Auto => toast.bytes <= TOAST_LIMIT,
        }
    }

    /// Reads the blocks of a relation, all or a sample, side by side on all connections unless rows
    /// are wanted, which come in order.
    async fn scan(
        &self,
        target: &Target,
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
        worker.scan.blocks = sampling.map(|_| BlockSums::new(target.desc.attributes.len()));
        self.progress.begin(&target.name, u64::from(sample.chosen()));
        worker.queue = Arc::new(Mutex::new(sample));
        worker.total_blocks = total_blocks;
        if let Some(writer) = rows {
            if let Some(contents) = &self.options.contents {
                let mut sink = self.content_sink(target, moment, contents, leader, writer).await?;
                worker.run(&mut (&mut sink, &mut references)).await?;
                self.progress.end();
                worker.scan.problems.merge(sink.problems);
                return match sink.error {
                    Some(error) => Err(error.into()),
                    None => Ok(worker.result()),
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
        target: &Target,
        moment: &Moment,
        sink: &mut S,
        make: impl Fn() -> S,
    ) -> Result<ScanResult, InspectError> {
        let live = |error| InspectError::Live { relation: target.name.clone(), error };
        let (queue, total_blocks) = (Arc::clone(&first.queue), first.total_blocks);
        let attributes = target.desc.attributes.len();
        let blocks = first.scan.blocks.as_ref().map(|_| BlockSums::new(attributes));
        let mut workers = vec![first];
        for connection in self.connections.iter().skip(1) {
            let mut other = Worker::new(self, target, moment, connection).await.map_err(live)?;
            other.queue = Arc::clone(&queue);
            other.scan.blocks.clone_from(&blocks);
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
        };
        for task in tasks {
            let (more, seen) = task.await.map_err(std::io::Error::other)??;
            result.merge(more);
            sink.merge(seen);
        }
        self.progress.end();
        Ok(result)
    }

    fn report(
        &self,
        relation: &Relation,
        stats: &RelationStats,
        problems: &Problems,
        source: Source,
    ) -> RelationReport {
        let toast_bytes = relation.toast.as_ref().map_or(0, |t| t.bytes + t.index_bytes);
        let columns = column_reports(&relation.desc, stats, Some(relation.bytes + toast_bytes));
        let (values, chunks) = out_of_line(&columns);
        let page_size = self.server.page_size.bytes() as u64;
        RelationReport {
            relation: relation.display_name(),
            schema_name: Some(relation.schema.clone()),
            name: Some(relation.name.clone()),
            oid: Some(relation.oid.0),
            kind: Some(relation.kind.name()),
            source,
            options: relation.options.clone(),
            page_size,
            sample: None,
            heap: HeapReport {
                bytes: Some(relation.bytes),
                blocks: Some(relation.bytes / page_size),
                index_bytes: Some(relation.index_bytes)
                    .filter(|_| relation.kind != RelationKind::Toast || relation.index_bytes > 0),
                ..HeapReport::from(&stats.tuples)
            },
            tuples: stats.into(),
            toast: relation.toast.as_ref().map(|toast| ToastReport {
                relation: format!("pg_toast.{}", toast.name),
                oid: Some(toast.oid.0),
                bytes: Some(toast.bytes),
                index_bytes: Some(toast.index_bytes),
                rows: toast.row_estimate,
                rows_counted: false,
                dead_rows: None,
                free_bytes: None,
                values,
                chunks,
                values_estimate: None,
                chunks_estimate: None,
                orphans: None,
            }),
            columns,
            not_available: Vec::new(),
            problems: problem_reports(problems),
            problem_count: problems.count(),
        }
    }
}

fn no_client() -> LiveError {
    LiveError::Unexpected("no connection".into())
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
struct Target {
    name: String,
    quoted: String,
    desc: Arc<TupleDesc>,
}

/// The blocks that no worker has taken yet.
type Queue = Mutex<Sample>;

/// The next blocks; none if none are left.
fn take(queue: &Queue) -> Option<Vec<BlockNumber>> {
    let mut left = queue.lock().unwrap_or_else(PoisonError::into_inner);
    let blocks: Vec<BlockNumber> = left.by_ref().take(BATCH).collect();
    (!blocks.is_empty()).then_some(blocks)
}

/// What a scan found.
struct ScanResult {
    stats: RelationStats,
    problems: Problems,
    /// Blocks of the relation.
    total_blocks: u32,
    /// What single blocks hold, if they are a sample.
    blocks: Option<BlockSums>,
}

impl ScanResult {
    fn merge(&mut self, other: ScanResult) {
        self.stats.merge(&other.stats);
        self.problems.merge(other.problems);
        if let (Some(ours), Some(theirs)) = (&mut self.blocks, &other.blocks) {
            ours.merge(theirs);
        }
    }
}

/// One connection's share of a scan.
struct Worker {
    reader: PageReader,
    queue: Arc<Queue>,
    /// Blocks of the relation.
    total_blocks: u32,
    scan: Scan,
    progress: Arc<dyn Progress>,
    stop: Arc<AtomicBool>,
}

/// What a worker has found.
struct Scan {
    name: String,
    desc: Arc<TupleDesc>,
    page_size: PageSize,
    flavor: CustomFlavor,
    stats: RelationStats,
    /// If the blocks are a sample.
    blocks: Option<BlockSums>,
    problems: Problems,
}

impl Worker {
    async fn new(
        inspector: &Inspector,
        target: &Target,
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
            scan: Scan {
                name: target.name.clone(),
                desc: Arc::clone(&target.desc),
                page_size: server.page_size,
                flavor: inspector.options.flavor,
                stats: RelationStats::new(target.desc.attributes.len()),
                blocks: None,
                problems: Problems::default(),
            },
            progress: Arc::clone(&inspector.progress),
            stop: Arc::clone(&inspector.stop),
        })
    }

    fn result(self) -> ScanResult {
        let Scan { stats, problems, blocks, .. } = self.scan;
        ScanResult { stats, problems, total_blocks: self.total_blocks, blocks }
    }

    /// Reads and decodes until no blocks are left.
    async fn run<S: ValueSink + Send>(&mut self, sink: &mut S) -> Result<(), InspectError> {
        while let Some(blocks) = take(&self.queue) {
            let read = if S::WANTS_VALUES {
                // values are wanted in order
                let pages = self.reader.read(&blocks).await;
                pages.map(|pages| self.scan.decode(&pages, sink))
            } else {
                self.reader.read_each(&blocks, |pages| self.scan.decode(&pages, sink)).await
            };
            read.map_err(|error| InspectError::Live {
                relation: match blocks.first() {
                    Some(first) => format!("{}, block {first}", self.scan.name),
                    None => self.scan.name.clone(),
                },
                error,
            })?;
            if self.stop.load(Ordering::Relaxed) {
                return Err(InspectError::Stopped);
            }
            self.progress.advance(blocks.len() as u64);
        }
        Ok(())
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
            relation.scan_page(block, bytes, pages, &mut self.stats, sink, &mut self.problems);
            if let Some(blocks) = &mut self.blocks {
                blocks.block(&self.stats);
            }
        }
        for (block, message) in &pages.unreadable {
            self.problems.add(Problem {
                place: Place { block: Some(*block), ..Place::of(self.name.as_str()) },
                message: message.clone(),
            });
        }
    }
}
