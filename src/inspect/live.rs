//! `inspect` on a live server.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::anatomy::{self, Anatomy, Wanted};
use super::contents::{ContentSink, create_dir};
use super::orphans::References;
use super::problem::{Place, Problem, Problems};
use super::progress::Progress;
use super::result::{
    HeapReport, NotAvailable, OrphanReport, RelationReport, ServerReport, Source, ToastReport,
    TuplesReport, column_reports, name_toasters, out_of_line, problem_reports,
};
use super::scan::{Judge, Relation as Scanned, ValueSink};
use super::stats::RelationStats;
use super::values::{RowSink, RowWriter};
use crate::disk::custom::CustomFlavor;
use crate::disk::desc::TupleDesc;
use crate::disk::tuple::HeapTuple;
use crate::disk::{BlockNumber, ItemPointer};
use crate::model::visibility::Visibility;
use crate::source::connect::Connection;
use crate::source::live::catalog::{Relation, RelationKind, ToastRelation};
use crate::source::live::chunks::{self, ChunkPages, LiveChunks};
use crate::source::live::pages::{PageReader, Pages};
use crate::source::live::server::Server;
use crate::source::live::snapshot::{self, Moment};
use crate::source::live::{LiveError, functions, toasters};
use crate::source::sql::quote_qualified;

/// Blocks read at a time on one connection: 4 MB of 8 kB pages.
const BATCH: u32 = 512;
/// TOAST relations up to this size are read whole unless the user says otherwise.
const TOAST_LIMIT: u64 = 1 << 30;

/// Which source to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Pages where that is possible, else SQL functions.
    #[default]
    Auto,
    /// Pages.
    Pageinspect,
    /// SQL functions.
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
    /// The source.
    pub access: Access,
    /// The TOAST relation.
    pub scan_toast: ScanToast,
    /// The layout of custom pointers.
    pub flavor: CustomFlavor,
    /// Whether values are put together, which rows of values then tell.
    pub contents: Option<ContentOptions>,
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
    /// The server.
    #[error("{relation}: {error}")]
    Live {
        /// What was being read, with the block where it is known.
        relation: String,
        /// What went wrong.
        error: LiveError,
    },
    /// The output.
    #[error("could not write: {0}")]
    Output(#[from] std::io::Error),
    /// There is no such value.
    #[error("{0}")]
    NoValue(String),
    /// Stopped on request.
    #[error("stopped")]
    Stopped,
    /// Pages were asked for and cannot be had.
    #[error("pages cannot be read: {0}")]
    NoPages(String),
}

impl Judge for Pages {
    fn judge(&self, ctid: ItemPointer, tuple: &HeapTuple<'_>) -> Visibility {
        self.visibility(ctid, tuple)
    }
}

/// Reads relations of one server over one or more connections.
pub struct Inspector {
    /// Connections to the same database; the first leads.
    pub connections: Vec<Arc<Connection>>,
    /// The server.
    pub server: Server,
    /// What to read.
    pub options: Options,
    /// Whom to tell.
    pub progress: Arc<dyn Progress>,
    /// Set from outside to stop the reading.
    pub stop: Arc<AtomicBool>,
}

impl Inspector {
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
            (Access::Pageinspect, Some(why)) => Err(InspectError::NoPages(why)),
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
        let (live, groups) = functions::groups(connection.client(), &self.server, relation).await?;
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
        report.tuples =
            TuplesReport { live, dead: None, unknown: None, hot_updated: None, heap_only: None };
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
        let moment = snapshot::begin(leader.client()).await.map_err(live)?;
        for connection in self.connections.iter().skip(1) {
            snapshot::join(connection.client(), &moment).await.map_err(live)?;
        }
        let heap = Target {
            name: name.clone(),
            quoted: relation.quoted(),
            desc: Arc::new(relation.desc.clone()),
        };
        let known = toasters::ask(leader.client()).await.map_err(live)?;
        // a stock server leaves no chunks behind
        let mut references = known.is_some().then(|| References::new(self.server.page_size));
        let (stats, mut problems) = self.scan(&heap, &moment, rows, references.as_mut()).await?;
        let unread = problems.count() > 0;
        let mut orphans = None;
        let toast = match &relation.toast {
            Some(toast) if self.wants(toast) => {
                let target = Target {
                    name: format!("pg_toast.{}", toast.name),
                    quoted: quote_qualified("pg_toast", &toast.name),
                    desc: Arc::new(TupleDesc::toast_relation()),
                };
                let (stats, found) = self.scan(&target, &moment, None, None).await?;
                problems.merge(found);
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
                Some(stats)
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
            return Err(InspectError::NoPages(why));
        }
        let pageinspect = self.server.pageinspect.as_ref().ok_or_else(no_client).map_err(live)?;
        let leader = self.connections.first().ok_or_else(no_client).map_err(live)?;
        let moment = snapshot::begin(leader.client()).await.map_err(live)?;
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
        let toasters = toasters::toasters(leader.client()).await.map_err(live)?;
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
            toasters: toasters::toasters(connection.client()).await.map_err(live)?,
            page: self.server.page_size,
            writer,
            output_dir: contents.output_dir.clone(),
            problems: Problems::default(),
            error: None,
        })
    }

    fn wants(&self, toast: &ToastRelation) -> bool {
        match self.options.scan_toast {
            ScanToast::Always => true,
            ScanToast::Never => false,
            ScanToast::Auto => toast.bytes <= TOAST_LIMIT,
        }
    }

    /// Reads all blocks of a relation, side by side on all connections unless rows are wanted,
    /// which come in order.
    async fn scan(
        &self,
        target: &Target,
        moment: &Moment,
        rows: Option<&mut (dyn RowWriter + Send)>,
        references: Option<&mut References>,
    ) -> Result<(RelationStats, Problems), InspectError> {
        let mut references = references;
        let live = |error| InspectError::Live { relation: target.name.clone(), error };
        let leader = self.connections.first().ok_or_else(no_client).map_err(live)?;
        let mut worker = Worker::new(self, target, moment, leader).await.map_err(live)?;
        let blocks = worker.block_count().await.map_err(live)?;
        worker.queue = Arc::new(Queue { next: AtomicU32::new(0), blocks });
        self.progress.begin(&target.name, u64::from(blocks));
        if let Some(writer) = rows {
            if let Some(contents) = &self.options.contents {
                let mut sink = self.content_sink(target, moment, contents, leader, writer).await?;
                worker.run(&mut (&mut sink, &mut references)).await?;
                self.progress.end();
                worker.problems.merge(sink.problems);
                return match sink.error {
                    Some(error) => Err(error.into()),
                    None => Ok((worker.stats, worker.problems)),
                };
            }
            let mut sink =
                RowSink { relation: target.name.clone(), with_block: true, writer, error: None };
            worker.run(&mut (&mut sink, &mut references)).await?;
            self.progress.end();
            return match sink.error {
                Some(error) => Err(error.into()),
                None => Ok((worker.stats, worker.problems)),
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

    /// Reads the worker's blocks on all connections; what the others' sinks have seen is added to
    /// `sink`.
    async fn side_by_side<S: ValueSink + Merge + Send + 'static>(
        &self,
        mut worker: Worker,
        target: &Target,
        moment: &Moment,
        sink: &mut S,
        make: impl Fn() -> S,
    ) -> Result<(RelationStats, Problems), InspectError> {
        let live = |error| InspectError::Live { relation: target.name.clone(), error };
        let mut others = Vec::new();
        for connection in self.connections.iter().skip(1) {
            let mut other = Worker::new(self, target, moment, connection).await.map_err(live)?;
            other.queue = Arc::clone(&worker.queue);
            let mut seen = make();
            others.push(tokio::spawn(async move {
                other.run(&mut seen).await.map(|()| (other.stats, other.problems, seen))
            }));
        }
        worker.run(sink).await?;
        let (mut stats, mut problems) = (worker.stats, worker.problems);
        for other in others {
            let (more, found, seen) = other.await.map_err(std::io::Error::other)??;
            stats.merge(&more);
            problems.merge(found);
            sink.merge(seen);
        }
        self.progress.end();
        Ok((stats, problems))
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
struct Queue {
    next: AtomicU32,
    blocks: u32,
}

impl Queue {
    fn take(&self) -> Option<Vec<BlockNumber>> {
        let first = self.next.fetch_add(BATCH, Ordering::Relaxed);
        if first >= self.blocks {
            // Undone, so that many workers at the end cannot make it wrap.
            self.next.fetch_sub(BATCH, Ordering::Relaxed);
            return None;
        }
        let last = first.saturating_add(BATCH).min(self.blocks);
        Some((first..last).map(BlockNumber).collect())
    }
}

/// One connection's share of a scan.
struct Worker {
    /// `None` while a read is under way.
    reader: Option<PageReader>,
    queue: Arc<Queue>,
    name: String,
    desc: Arc<TupleDesc>,
    page_size: crate::disk::layout::PageSize,
    flavor: CustomFlavor,
    stats: RelationStats,
    problems: Problems,
    progress: Arc<dyn Progress>,
    stop: Arc<AtomicBool>,
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
            reader: Some(reader),
            queue: Arc::new(Queue { next: AtomicU32::new(0), blocks: 0 }),
            name: target.name.clone(),
            desc: Arc::clone(&target.desc),
            page_size: server.page_size,
            flavor: inspector.options.flavor,
            stats: RelationStats::new(target.desc.attributes.len()),
            problems: Problems::default(),
            progress: Arc::clone(&inspector.progress),
            stop: Arc::clone(&inspector.stop),
        })
    }

    async fn block_count(&self) -> Result<u32, LiveError> {
        match &self.reader {
            Some(reader) => reader.block_count().await,
            None => Ok(0),
        }
    }

    /// Begins to read the next blocks, if there are any left.
    fn begin_read(&mut self) -> Option<Reading> {
        let mut reader = self.reader.take()?;
        let Some(blocks) = self.queue.take() else {
            self.reader = Some(reader);
            return None;
        };
        Some(tokio::spawn(async move {
            let pages = reader.read(&blocks).await;
            (reader, blocks, pages)
        }))
    }

    /// Reads and decodes until no blocks are left; the next ones are read while those at hand are
    /// decoded.
    async fn run(&mut self, sink: &mut (impl ValueSink + Send)) -> Result<(), InspectError> {
        let mut reading = self.begin_read();
        while let Some(read) = reading {
            let (reader, blocks, pages) = read.await.map_err(std::io::Error::other)?;
            self.reader = Some(reader);
            let pages = pages.map_err(|error| InspectError::Live {
                relation: match blocks.first() {
                    Some(first) => format!("{}, block {first}", self.name),
                    None => self.name.clone(),
                },
                error,
            })?;
            if self.stop.load(Ordering::Relaxed) {
                return Err(InspectError::Stopped);
            }
            reading = self.begin_read();
            self.decode(&pages, sink);
            self.progress.advance(blocks.len() as u64);
        }
        Ok(())
    }

    fn decode(&mut self, pages: &Pages, sink: &mut impl ValueSink) {
        let relation = Scanned {
            source: &self.name,
            desc: &self.desc,
            page_size: self.page_size,
            flavor: self.flavor,
        };
        for (block, bytes) in pages.iter() {
            relation.scan_page(block, bytes, pages, &mut self.stats, sink, &mut self.problems);
        }
        for (block, message) in &pages.unreadable {
            self.problems.add(Problem {
                place: Place { block: Some(*block), ..Place::of(self.name.as_str()) },
                message: message.clone(),
            });
        }
    }
}

/// A read under way, which gives back its reader.
type Reading = tokio::task::JoinHandle<(PageReader, Vec<BlockNumber>, Result<Pages, LiveError>)>;
