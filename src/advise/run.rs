//! `advise-threshold` on a live server.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::candidate::{Abilities, CandidateError, Narrowing};
use super::content::{PageProblem, Row, rows_of_page};
use super::facts;
use super::fetch::{self, ServerCompressor};
use super::pluggable::Pluggable;
use super::recommend::Optimize;
use super::report::{Gathered, report};
use super::result::{Files, Report};
use super::tally::Tally;
use super::variant::{self, ColumnError, Variants};
use crate::codec::{Method, datum};
use crate::disk::BlockNumber;
use crate::inspect::problem::{Place, Problem, Problems};
use crate::inspect::progress::Progress;
use crate::inspect::result::ServerReport;
use crate::model::toast::Incoming;
use crate::source::connect::Connection;
use crate::source::live::LiveError;
use crate::source::live::catalog::Relation;
use crate::source::live::pages::PageReader;
use crate::source::live::server::{Pageinspect, Server};
use crate::source::live::snapshot;
use crate::source::sample::{Sample, SampleSize, Sampling};

/// Blocks read at a time.
const BATCH: usize = 64;
/// Bytes fetched from the TOAST relation at a time; a single value may be longer.
const FETCH_BYTES: u64 = 8 << 20;
/// Values fetched at a time.
const FETCH_VALUES: usize = 2000;
/// Without `--sample`: 1 % of the blocks, but at least and at most so many,
const LEAST_BLOCKS: u32 = 200;
const MOST_BLOCKS: u32 = 3000;
/// and of their rows so many that about this much must be compressed.
const DEFAULT_BYTES: f64 = 256e6;
/// Blocks read beforehand to learn what the columns hold.
const PROBE_BLOCKS: u32 = 16;

/// What is asked.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Columns; none: those that hold most.
    pub columns: Vec<String>,
    /// What to compare.
    pub narrowing: Narrowing,
    /// How much to read; `None`: enough for a good estimate in a short time.
    pub sample: Option<SampleSize>,
    /// The seed of the sample.
    pub seed: u64,
    /// Whether the server shall compress the sample in a temporary table.
    pub exact: bool,
    /// What counts.
    pub optimize: Optimize,
    /// `--reads-per-write`.
    pub reads_per_write: Option<f64>,
}

/// Why there is no advice.
#[derive(Debug, thiserror::Error)]
pub enum AdviseError {
    /// The server.
    #[error("{relation}: {error}")]
    Live {
        /// What was being read.
        relation: String,
        /// What went wrong.
        error: LiveError,
    },
    /// The columns.
    #[error(transparent)]
    Column(#[from] ColumnError),
    /// The candidates.
    #[error(transparent)]
    Candidate(#[from] CandidateError),
    /// Pages cannot be read.
    #[error("{relation}: pages cannot be read: {why}\nHINT:  {hint}")]
    NoPages {
        /// The relation.
        relation: String,
        /// Why.
        why: String,
        /// What would help.
        hint: &'static str,
    },
    /// `--exact` where nothing can be written.
    #[error(
        "--exact needs temporary tables, which a standby does not have\n\
         HINT:  Leave --exact away, or connect to the primary."
    )]
    ExactOnStandby,
    /// Stopped on request.
    #[error("stopped")]
    Stopped,
}

/// Advises on tables of one server.
pub struct Advisor {
    /// The connection.
    pub connection: Arc<Connection>,
    /// The server.
    pub server: Server,
    /// What is asked.
    pub options: Options,
    /// Whom to tell.
    pub progress: Arc<dyn Progress>,
    /// Set from outside to stop the reading.
    pub stop: Arc<AtomicBool>,
}

impl Advisor {
    /// The columns of one relation, biggest first, each with its advice.
    pub async fn relation(&self, relation: &Relation) -> Result<Vec<Report>, AdviseError> {
        let pageinspect = self.pageinspect(relation)?;
        if self.options.exact && self.server.in_recovery {
            return Err(AdviseError::ExactOnStandby);
        }
        let result = self.by_pages(relation, pageinspect).await;
        // Temporary tables go with the transaction. If this fails the connection is gone, as the
        // next query will say.
        let _ = snapshot::abandon(self.client()).await;
        result
    }

    fn client(&self) -> &tokio_postgres::Client {
        self.connection.client()
    }

    fn pageinspect(&self, relation: &Relation) -> Result<&Pageinspect, AdviseError> {
        let refused = |why: String, hint| AdviseError::NoPages {
            relation: relation.display_name(),
            why,
            hint,
        };
        if !relation.is_heap {
            let why = format!("the table's access method is {}, not heap", relation.access_method);
            return Err(refused(why, "Only heap tables have TOAST settings."));
        }
        if !self.server.superuser {
            let hint = "Connect as a superuser, or advise on a restored backup.";
            return Err(refused("pageinspect needs a superuser".into(), hint));
        }
        self.server.pageinspect.as_ref().ok_or_else(|| {
            refused(
                "the extension pageinspect is not installed in this database".into(),
                "CREATE EXTENSION pageinspect;",
            )
        })
    }

    async fn by_pages(
        &self,
        relation: &Relation,
        pageinspect: &Pageinspect,
    ) -> Result<Vec<Report>, AdviseError> {
        let name = relation.display_name();
        let live = |error| AdviseError::Live { relation: name.clone(), error };
        let named = variant::named_columns(relation, &self.options.columns)?;
        let facts = facts::ask(self.client(), relation).await.map_err(live)?;
        let moment = if self.options.exact {
            snapshot::begin_writable(self.client()).await
        } else {
            snapshot::begin(self.client()).await
        }
        .map_err(live)?;
        let reader = PageReader::new(
            Arc::clone(&self.connection),
            pageinspect,
            self.server.page_size,
            relation.quoted(),
            moment.snapshot,
        )
        .await
        .map_err(live)?;
        let mut run = Run {
            advisor: self,
            relation,
            reader,
            compressor: datum::Compressor::new(),
            exact: ServerCompressor::new(relation.quoted()),
            problems: Problems::default(),
            fetched_bytes: 0,
            rows_examined: 0,
            pluggable: Vec::new(),
        };
        let total = run.reader.block_count().await.map_err(live)?;
        let probe = run.probe(total).await?;
        let columns = if named.is_empty() { probe.biggest(relation)? } else { named };
        let abilities = Abilities { lz4: facts.lz4, page: self.server.page_size };
        let mut variants = Vec::with_capacity(columns.len());
        for &column in &columns {
            variants.push(Variants::new(
                relation,
                &facts,
                column,
                &self.options.narrowing,
                abilities,
            )?);
        }
        if self.options.exact {
            for v in &variants {
                for &method in &v.methods {
                    run.exact
                        .prepare(self.client(), v.column, &v.name, method)
                        .await
                        .map_err(live)?;
                }
            }
        }
        run.pluggable =
            variants.iter().filter_map(|v| Pluggable::of(v.column, &v.type_name)).collect();
        let (sample, fraction) = self.plan(total, &probe, &columns);
        let tallies = run.all(&sample, fraction, &variants, facts.fillfactor).await?;
        let gathered = |tally, variants| Gathered {
            server: ServerReport {
                version: self.server.version.clone(),
                version_num: self.server.version_num,
                database: self.server.database.clone(),
                in_recovery: self.server.in_recovery,
            },
            relation,
            facts: &facts,
            variants,
            tally,
            sample: &sample,
            fraction,
            rows_examined: run.rows_examined,
            fetched_bytes: run.fetched_bytes,
            files: files(relation, total, self.server.page_size.bytes() as u64),
            problems: &run.problems,
            pluggable: &run.pluggable,
            options: &self.options,
            page: self.server.page_size,
        };
        Ok(variants.iter().zip(&tallies).map(|(v, tally)| report(&gathered(tally, v))).collect())
    }

    /// The blocks to read and the part of their rows to look at.
    fn plan(&self, total: u32, probe: &Probe, columns: &[usize]) -> (Sample, f64) {
        let seed = self.options.seed;
        match self.options.sample {
            Some(size) => (Sampling { size, seed }.draw(total), 1.0),
            None => {
                let blocks = SampleSize::Percent(1.0).of(total).clamp(LEAST_BLOCKS, MOST_BLOCKS);
                let sample = Sample::new(total, blocks, seed);
                let bytes = probe.bytes_per_block(columns) * f64::from(sample.chosen());
                (sample, if bytes > DEFAULT_BYTES { DEFAULT_BYTES / bytes } else { 1.0 })
            }
        }
    }
}

fn files(relation: &Relation, blocks: u32, page: u64) -> Files {
    let heap_bytes = u64::from(blocks) * page;
    let (toast_bytes, toast_index_bytes) =
        relation.toast.as_ref().map_or((0, 0), |toast| (toast.bytes, toast.index_bytes));
    Files {
        heap_bytes,
        toast_bytes,
        toast_index_bytes,
        total_bytes: heap_bytes + toast_bytes + toast_index_bytes,
    }
}

/// What a few blocks tell of the columns.
#[derive(Debug, Clone, Default)]
struct Probe {
    blocks: f64,
    /// Stored bytes of each column.
    stored: Vec<f64>,
    /// Raw bytes of each column.
    raw: Vec<f64>,
}

/// Without `--column`: those that hold at least this part of the bytes.
const LEAST_SHARE: f64 = 0.1;

impl Probe {
    fn bytes_per_block(&self, columns: &[usize]) -> f64 {
        let sum: f64 = columns.iter().filter_map(|&column| self.raw.get(column)).sum();
        if self.blocks > 0.0 { sum / self.blocks } else { 0.0 }
    }

    fn biggest(&self, relation: &Relation) -> Result<Vec<usize>, ColumnError> {
        let toastable = variant::toastable_columns(relation)?;
        let bytes = |column: usize| self.stored.get(column).copied().unwrap_or(0.0);
        let total: f64 = self.stored.iter().sum();
        let mut columns: Vec<usize> =
            toastable.iter().copied().filter(|&c| bytes(c) >= total * LEAST_SHARE).collect();
        columns.sort_by(|&a, &b| bytes(b).total_cmp(&bytes(a)));
        if columns.is_empty() {
            columns.extend(toastable.first());
        }
        Ok(columns)
    }
}

/// One run over one relation.
struct Run<'a> {
    advisor: &'a Advisor,
    relation: &'a Relation,
    reader: PageReader,
    compressor: datum::Compressor,
    exact: ServerCompressor,
    problems: Problems,
    fetched_bytes: u64,
    rows_examined: u64,
    pluggable: Vec<Pluggable>,
}

impl Run<'_> {
    fn live(&self, error: LiveError) -> AdviseError {
        AdviseError::Live { relation: self.relation.display_name(), error }
    }

    /// The live rows of each of these blocks.
    async fn read(&mut self, blocks: &[BlockNumber]) -> Result<Vec<Vec<Row>>, AdviseError> {
        if self.advisor.stop.load(Ordering::Relaxed) {
            return Err(AdviseError::Stopped);
        }
        let name = self.relation.display_name();
        let pages = match self.reader.read(blocks).await {
            Ok(pages) => pages,
            Err(error) => return Err(self.live(error)),
        };
        let mut out = Vec::with_capacity(blocks.len());
        for (block, bytes) in pages.iter() {
            let mut found = Vec::new();
            let rows = rows_of_page(
                block,
                bytes,
                &self.relation.desc,
                self.advisor.server.page_size,
                |ctid, tuple| pages.visibility(ctid, tuple),
                &mut found,
            );
            for PageProblem { item, message } in found {
                let place = Place { block: Some(block), item, ..Place::of(name.as_str()) };
                self.problems.add(Problem { place, message });
            }
            out.push(rows);
        }
        for (block, message) in &pages.unreadable {
            let place = Place { block: Some(*block), ..Place::of(name.as_str()) };
            self.problems.add(Problem { place, message: message.clone() });
        }
        Ok(out)
    }

    async fn probe(&mut self, total: u32) -> Result<Probe, AdviseError> {
        let columns = self.relation.desc.attributes.len();
        let mut probe = Probe { blocks: 0.0, stored: vec![0.0; columns], raw: vec![0.0; columns] };
        let sample = Sample::new(total, PROBE_BLOCKS, self.advisor.options.seed);
        let blocks: Vec<BlockNumber> = sample.collect();
        if blocks.is_empty() {
            return Ok(probe);
        }
        for rows in self.read(&blocks).await? {
            probe.blocks += 1.0;
            for row in &rows {
                for (index, value) in row.facts.values.iter().enumerate() {
                    let (stored, raw) = sizes(*value);
                    if let Some(sum) = probe.stored.get_mut(index) {
                        *sum += stored;
                    }
                    if let Some(sum) = probe.raw.get_mut(index) {
                        *sum += raw;
                    }
                }
            }
        }
        // They are read again with the sample.
        self.problems = Problems::default();
        Ok(probe)
    }

    /// Reads the sample and adds it up, for each column.
    async fn all(
        &mut self,
        sample: &Sample,
        fraction: f64,
        variants: &[Variants],
        fillfactor: u8,
    ) -> Result<Vec<Tally>, AdviseError> {
        let page = self.advisor.server.page_size;
        let mut tallies: Vec<Tally> =
            variants.iter().map(|v| Tally::new(page, fillfactor, v.all.clone())).collect();
        let progress = Arc::clone(&self.advisor.progress);
        progress.begin(&self.relation.display_name(), u64::from(sample.chosen()));
        let mut rng = ChaCha8Rng::seed_from_u64(self.advisor.options.seed ^ 0x726F_7773);
        let mut blocks = sample.clone();
        loop {
            let batch: Vec<BlockNumber> = blocks.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                break;
            }
            let mut pages = self.read(&batch).await?;
            let live: Vec<usize> = pages.iter().map(Vec::len).collect();
            if fraction < 1.0 {
                for rows in &mut pages {
                    let keep = ((rows.len() as f64 * fraction).ceil() as usize).min(rows.len());
                    let kept: HashSet<usize> =
                        rand::seq::index::sample(&mut rng, rows.len(), keep).into_iter().collect();
                    let mut index = 0;
                    rows.retain(|_| {
                        index += 1;
                        kept.contains(&(index - 1))
                    });
                }
            }
            for v in variants {
                if self.advisor.options.exact {
                    self.compress_on_server(&mut pages, v).await?;
                } else {
                    self.fetch(&mut pages, v).await?;
                }
            }
            for (rows, live) in pages.iter_mut().zip(live) {
                self.rows_examined += rows.len() as u64;
                let facts: Vec<_> = rows.iter().map(|row| row.facts.clone()).collect();
                let compressor = &mut self.compressor;
                for tally in &mut tallies {
                    tally.block(&facts, live, &mut |row, column, method| {
                        rows.get_mut(row)?.compressed_size(column, method, compressor)
                    });
                }
            }
            progress.advance(batch.len() as u64);
        }
        progress.end();
        Ok(tallies)
    }

    /// Fetches the column's values out of line, as far as their sizes are not known, and
    /// compresses them.
    async fn fetch(&mut self, pages: &mut [Vec<Row>], v: &Variants) -> Result<(), AdviseError> {
        let Some(toast) = self.relation.toast.as_ref() else { return Ok(()) };
        let page_size = self.advisor.server.page_size;
        let mut wanted = Vec::new();
        for (page, rows) in pages.iter().enumerate() {
            for (row, values) in rows.iter().enumerate() {
                if let Some(pointer) = values.must_fetch(v.column, &v.methods) {
                    wanted.push((page, row, pointer));
                }
            }
        }
        let mut wanted = wanted.as_slice();
        while !wanted.is_empty() {
            let mut bytes = 0;
            let fits = |(_, _, pointer): &&(usize, usize, crate::disk::pointer::ToastPointer)| {
                bytes += u64::from(pointer.stored_size());
                bytes <= FETCH_BYTES
            };
            let count = wanted.iter().take(FETCH_VALUES).take_while(fits).count().max(1);
            let (now, later) = wanted.split_at(count);
            wanted = later;
            let pointers: Vec<_> = now
                .iter()
                .map(|(_, _, pointer)| *pointer)
                .filter(|pointer| pointer.toast_relation == toast.oid)
                .collect();
            let values = fetch::values(self.advisor.client(), &toast.name, &pointers)
                .await
                .map_err(|error| self.live(error))?;
            for &(page, row, pointer) in now {
                let Some(row) = pages.get_mut(page).and_then(|rows| rows.get_mut(row)) else {
                    continue;
                };
                let result = match values.get(&pointer.value_id.0) {
                    Some(bytes) => {
                        self.fetched_bytes += bytes.len() as u64;
                        let mut toasters = self.pluggable.iter_mut().find(|p| p.is_for(v.column));
                        row.fetched(v.column, bytes, &v.methods, &mut self.compressor, &mut |raw| {
                            if let Some(toasters) = &mut toasters {
                                toasters.external(page_size, raw, pointer.stored_size());
                            }
                        })
                    }
                    None => Err(format!(
                        "chunks of value {} do not give its {} bytes",
                        pointer.value_id,
                        pointer.stored_size()
                    )),
                };
                if let Err(message) = result {
                    let place = Place {
                        block: Some(row.ctid.block),
                        item: Some(row.ctid.item),
                        column: Some(v.name.clone()),
                        ..Place::of(self.relation.display_name())
                    };
                    self.problems.add(Problem { place, message });
                }
            }
        }
        Ok(())
    }

    /// Lets the server compress the column's values.
    async fn compress_on_server(
        &mut self,
        pages: &mut [Vec<Row>],
        v: &Variants,
    ) -> Result<(), AdviseError> {
        for rows in pages {
            let items: Vec<_> = rows.iter().map(|row| row.ctid).collect();
            for &method in &v.methods {
                let sizes: HashMap<_, _> = self
                    .exact
                    .compress(self.advisor.client(), v.column, &v.name, v.is_array, method, &items)
                    .await
                    .map_err(|error| self.live(error))?;
                for row in rows.iter_mut() {
                    if let Some(&size) = sizes.get(&row.ctid) {
                        row.learn(v.column, method, size);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Stored and raw bytes.
fn sizes(value: Incoming) -> (f64, f64) {
    let (stored, raw) = match value {
        Incoming::Null => (0, 0),
        Incoming::Fixed { size } | Incoming::Opaque { size } => (size, size),
        Incoming::Short { raw } | Incoming::Plain { raw } => (raw, raw),
        Incoming::Compressed { size, raw, .. } => (size, raw),
        Incoming::Foreign { stored, raw, .. } | Incoming::Kept { stored, raw, .. } => (stored, raw),
    };
    (f64::from(stored), f64::from(raw))
}

/// Every method of a list once.
pub(super) fn unique(methods: impl IntoIterator<Item = Method>) -> Vec<Method> {
    let mut out = Vec::new();
    for method in methods {
        if !out.contains(&method) {
            out.push(method);
        }
    }
    out
}
