//! The sample on which a forecast is based: pages with rows to re-toast, how the server would store these rows, and the
//! indexes that get new entries.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use tokio_postgres::types::Type;

use crate::retoast::compact::CompactRequest;
use crate::retoast::error::{Result, RetoastError};
use crate::retoast::forecast::{
    BatchSizes, ForecastBasis, Gin, IndexFacts, Method, RowChange, SampledKeys, SampledPage, Tuple,
};
use crate::retoast::pace::ahead::ForecastFacts;
use crate::retoast::plan::{FirstScan, RunForecast, Sizes, seconds};
use crate::retoast::result::Predicted;
use crate::retoast::sql::{self, gin};
use crate::retoast::sweep::conversion::Conversion;
use crate::retoast::sweep::machine::{CHUNK, Row};
use crate::retoast::sweep::scan::sizes_outside;
use crate::retoast::sweep::scanner::{Candidate, RUN, RUNS, Sampled, Scanner};
use crate::retoast::task::guard::{Guard, Reads};
use crate::retoast::task::session::{Session, Tuning};
use crate::server::chunks::address;
use crate::server::indexes::Index;
use crate::server::{LiveError, LiveResult, snapshot};
use toast_format::disk::{ItemPointer, PageSize};
use toast_format::heap::sample::Sample as BlockSample;
use toast_format::judge::stock::{CompressedSize, stored_anew};
use toast_format::judge::{FormJudge, Judge};
use toast_format::model::cost::CHUNKS_PER_PAGE;
use toast_format::model::estimate::PowerSums;
use toast_format::model::pages::{Fill, ToastFiller, chunk_bytes};
use toast_format::model::{BlocksRead, Form, Interval, StoredValue};

/// Bytes of a table that a scan reads per second, as long as none has been timed.
const READ_SPEED: f64 = 300e6;
/// The maximum number of rows of which the server compresses copies, and of their bytes.
const ROWS: usize = 256;
const BYTES: u64 = 16 << 20;
/// The number of these rows whose keys in GIN indexes are counted, and of their bytes.
const KEYED: usize = 40;
const KEYED_BYTES: u64 = 4 << 20;
/// Counting them takes no longer.
const KEYED_LIMIT: &str = "SET LOCAL statement_timeout = '5s'";
/// The size of an entry of a GIN index for a row, and of a key, if it is not known how it takes keys from values.
const UNKNOWN_ENTRY: f64 = 8.0;
const UNKNOWN_KEY: f64 = 8.0;
/// The size of a row that is read without pages, in addition to its values; such a row is assumed to have its values
/// out of line if they are longer than this.
const NARROW: u32 = 60;
const INLINE: u64 = 2000;

/// To what sizes the server compresses values, by row and column.
pub(super) type CopySizes = HashMap<(ItemPointer, usize), CompressedSize>;

/// How the compressed sizes of values typically relate to what they take now, by column and whether they are compressed
/// now; `None` if most of them cannot be compressed. The values whose sizes are known are not drawn from all: a scan asks
/// for the sizes of those that are not compressed.
#[derive(Default)]
struct Ratios(HashMap<(usize, bool), Option<f64>>);

/// The sample of a table.
struct Sample {
    pages: Vec<SampledPage>,
    /// The number of rows to re-toast in each run of pages.
    found: PowerSums,
    /// The bytes of chunks of all rows in each run of pages, with line pointers; and how much of the TOAST relation takes a
    /// byte of them, if its pages are filled one after another.
    outside: PowerSums,
    outside_takes: f64,
    /// What a row takes at most of the TOAST relation beyond what is expected, if it is not known how small its values become.
    may_take: f64,
    rows: Vec<Row>,
}

impl Conversion<'_> {
    /// What the run will write, from these runs of pages; `None` if a lock, another session or an error of the
    /// server prevents that, because neither a run nor its plan needs it.
    pub(super) async fn forecast(
        &self,
        scanner: &mut Scanner<'_>,
        sizes: Sizes,
        runs: &[u32],
        rows: Option<u64>,
    ) -> Result<Option<RunForecast>> {
        let error = match self.foretell(scanner, sizes, runs, rows).await {
            Ok(found) => return Ok(Some(found)),
            Err(error) => error,
        };
        let passes = match &error {
            RetoastError::Live(LiveError::Server(error)) => error.as_db_error().is_some(),
            // no lock, or the table was changed: the scan meets that too, if it lasts
            RetoastError::Refused(_)
            | RetoastError::Unfit(_)
            | RetoastError::Changing
            | RetoastError::Rewritten => true,
            _ => false,
        };
        if !passes {
            return Err(error);
        }
        tracing::debug!("{}: no forecast: {error}", self.guard.name());
        Ok(None)
    }

    /// The forecast from these runs of pages. If the number of rows to re-toast is not given, it is estimated from
    /// them.
    async fn foretell(
        &self,
        scanner: &mut Scanner<'_>,
        sizes: Sizes,
        runs: &[u32],
        rows: Option<u64>,
    ) -> Result<RunForecast> {
        let Guard { session, ready, .. } = self.guard;
        let facts = match self.guard.ahead {
            Some(known) => known.forecast.clone(),
            None => {
                let mut found = ForecastFacts::ask(session.reader(), &[ready]).await?;
                found.remove(&ready.relation.oid).ok_or_else(RetoastError::dropped)?
            }
        };
        let (images, redo) = facts.images;
        let page = session.server.page_size;
        let pages = sizes.heap_pages(page);
        let sample = self.sample(scanner, runs, pages, redo).await?;
        // a scan has noted runs with rows to re-toast only, unless it has read few
        let compacts_heap = self.afterwards.compact.is_some_and(CompactRequest::heap);
        let of_all = if rows.is_some() && compacts_heap && pages.div_ceil(RUN) as usize > RUNS {
            let drawn: Vec<u32> = runs_of(pages).map(|run| run.0).collect();
            Some(self.sample(scanner, &drawn, pages, redo).await?)
        } else {
            None
        };
        let (rows, outside) = match rows {
            Some(rows) => (Interval::exact(rows as f64), Some(scanner.seen.outside as f64)),
            None => {
                let total = u64::from(pages.div_ceil(RUN));
                let read = BlocksRead { read: runs.len() as u64, total };
                let rows = sample.found.total(read).unwrap_or_default().at_least_zero();
                (rows, sample.outside.total(read).map(|outside| outside.high))
            }
        };
        let is_rough = session.pages.is_none()
            || !matches!(self.choice.judge, Judge::Forms(FormJudge::Stock(_)));
        let outside =
            if !is_rough { outside.map(|bytes| bytes * sample.outside_takes) } else { None };
        // what is certainly free in the TOAST relation, if it is known what its values take
        let dead = facts.logged.dead_chunks * page.bytes() as f64 / f64::from(CHUNKS_PER_PAGE);
        let toast_free = outside.map(|taken| (sizes.toast as f64 - taken - dead).max(0.0));
        let (indexes, toast_index) = self.indexes(&facts.indexes, &sample, rows.estimate).await?;
        let tuning = Tuning { jobs: session.jobs(), ..session.options.tuning };
        let rows_per_page = rows.estimate / f64::from(pages.max(1));
        let found = ForecastBasis {
            version_num: session.server.version_num,
            page,
            fillfactor: ready.relation.fillfactor(),
            batches: BatchSizes {
                window: tuning.window(rows_per_page, pages.min(CHUNK), pages),
                passes: tuning.passes,
                bytes: tuning.batch_bytes,
            },
            pages: &sample.pages,
            of_all: of_all.as_ref().map(|all| &all.pages[..]),
            rows,
            is_rough,
            may_add: (self.moves_in(&sample) + sample.may_take) * rows.high,
            sizes,
            toast_index,
            toast_free,
            indexes: &indexes,
            is_covered: facts.is_covered,
            max_bloat: tuning.max_bloat,
            images,
            identity_full: facts.logged.identity_full,
            afterwards: self.afterwards,
        };
        let (wal, growth) = found.forecast();
        let name = self.guard.name();
        tracing::debug!(
            "{name}: forecast: {} bytes of WAL, growth {} bytes",
            wal.all.estimate,
            growth.all.estimate
        );
        Ok(RunForecast { rows: rows.whole().estimate, wal, growth, rows_bytes: found.rows_bytes() })
    }

    /// Predicts a run from a sample of pages, and fails if there is too little space for it. There is no prediction
    /// without a row to re-toast among pages that are not all.
    pub(super) async fn predict(
        &self,
        scanner: &mut Scanner<'_>,
        sizes: Sizes,
    ) -> Result<Option<Predicted>> {
        let session = self.guard.session;
        let drawn = runs_of(sizes.heap_pages(session.server.page_size));
        let is_all = drawn.is_all();
        let runs: Vec<u32> = drawn.map(|run| run.0).collect();
        let found = self.forecast(scanner, sizes, &runs, None).await?;
        let found = found.filter(|expected| expected.rows > 0 || is_all);
        self.check_space(found).await?;
        let Some(expected) = found else { return Ok(None) };
        let scan = Duration::from_secs_f64(sizes.heap as f64 / READ_SPEED);
        let found = FirstScan { expected, scan, ..self.first_scan() };
        Ok(Some(Predicted {
            seconds: seconds(&found),
            wal_bytes: expected.wal,
            growth_bytes: expected.growth,
            ..Predicted::default()
        }))
    }

    /// Fails if there is too little space for this growth and this WAL, or for what is usual if they are not known,
    /// unless nothing is changed.
    pub(super) async fn check_space(&self, expected: Option<RunForecast>) -> Result<()> {
        let Guard { session, ready, .. } = self.guard;
        if let Some(note) = session.throttle.check_space(ready, expected).await? {
            self.guard.note(&note);
        }
        Ok(())
    }

    /// The parameters of the sweep, before anything has been read.
    pub(super) fn first_scan(&self) -> FirstScan {
        let Session { options, throttle, .. } = self.guard.session;
        FirstScan {
            nice: throttle.options.limits.nice,
            lock_timeout: options.lock_timeout,
            origin: options.origin.clone(),
            compacts: self.afterwards.compact.is_some(),
            rebuilds: self.afterwards.rebuilds,
            ..FirstScan::default()
        }
    }

    /// Reads these runs of a table's pages, and determines how the server would store the rows to re-toast.
    async fn sample(
        &self,
        scanner: &mut Scanner<'_>,
        runs: &[u32],
        pages: u32,
        redo: u64,
    ) -> Result<Sample> {
        let mut sampled = match scanner.sampled.take() {
            Some(read) => read.within(runs),
            None => self.read(scanner, runs, pages).await?,
        };
        let rows = std::mem::take(&mut sampled.rows);
        let known = std::mem::take(&mut sampled.sizes);
        let sizes = self.compressed(scanner, &rows, &sampled, known).await?;
        let ratios = Ratios::new(&sizes, &sampled);
        let uncompressed = self.uncompressed(scanner, &rows).await?;
        let compresses = matches!(&self.choice.judge, Judge::Forms(FormJudge::Stock(toaster)) if toaster.compresses());
        let mut may_take = 0;
        let mut pages: BTreeMap<u32, SampledPage> = sampled
            .pages
            .iter()
            .map(|(&block, &(free, lsn))| {
                let is_unchanged = lsn < redo;
                (block, SampledPage { free, is_unchanged, ..SampledPage::default() })
            })
            .collect();
        let page_size = self.choice.model.page;
        let retoasted: HashSet<ItemPointer> = rows.iter().map(|row| row.ctid).collect();
        for (ctid, values) in sampled.values.iter().filter(|(ctid, _)| !retoasted.contains(ctid)) {
            let length = sampled.lengths.get(ctid).copied().unwrap_or(0);
            let is_outside = values.iter().any(|value| value.form.is_external());
            pages.entry(ctid.block.0).or_default().others.push(Tuple { length, is_outside });
        }
        for row in &rows {
            let change = match &uncompressed {
                Some(sizes) if !compresses => change_to(row, page_size, sizes.of_row(row)),
                _ => self.change(scanner, row, &sampled, &sizes, &ratios),
            };
            if let (Some(sizes), true) = (&uncompressed, compresses) {
                let most = change_to(row, page_size, sizes.of_row(row)).toast_bytes(page_size);
                may_take += most.saturating_sub(change.toast_bytes(page_size));
            }
            pages.entry(row.ctid.block.0).or_default().rows.push(change);
        }
        let (outside, outside_takes) = self.outside(&sampled);
        let found = of_runs(rows.iter().map(|row| (row.ctid.block.0, 1)));
        let may_take = may_take as f64 / (rows.len() as f64).max(1.0);
        let pages = pages.into_values().collect();
        Ok(Sample { pages, found, outside, outside_takes, may_take, rows })
    }

    /// Reads these runs of pages for a sample.
    async fn read(&self, scanner: &mut Scanner<'_>, runs: &[u32], pages: u32) -> Result<Sampled> {
        let seen = scanner.seen.clone();
        scanner.sampled = Some(Sampled::default());
        let mut rows = Vec::new();
        let mut read = Ok(());
        for run in runs.chunk_by(|a, b| a + 1 == *b) {
            let ends = (run.first().copied().unwrap_or(0), run.last().copied().unwrap_or(0));
            let blocks = ends.0 * RUN..ends.1.saturating_add(1).saturating_mul(RUN).min(pages);
            match scanner.read(&self.guard, blocks).await {
                Ok(found) => rows.extend(found),
                Err(error) => {
                    read = Err(error);
                    break;
                }
            }
        }
        let sampled = scanner.sampled.take().unwrap_or_default();
        scanner.seen = seen;
        read?;
        Ok(Sampled { rows, ..sampled })
    }

    /// What a row takes at most of the heap for values that were out of line, if it is not known how small they become.
    fn moves_in(&self, sample: &Sample) -> f64 {
        let stays_out = matches!(&self.choice.judge, Judge::Forms(FormJudge::Stock(toaster)) if !toaster.compresses());
        if self.guard.session.pages.is_some() || stays_out {
            return 0.0;
        }
        let rows: Vec<&RowChange> = sample.pages.iter().flat_map(|page| &page.rows).collect();
        let outside = rows.iter().filter(|row| row.external.0 > 0).count() as f64;
        let room = self.choice.model.target.bytes().saturating_sub(NARROW as usize);
        outside / (rows.len() as f64).max(1.0) * room as f64
    }

    /// What a sample's values take of the TOAST relation: see [`Sample`].
    fn outside(&self, sampled: &Sampled) -> (PowerSums, f64) {
        let page = self.choice.model.page;
        let rows: BTreeMap<&ItemPointer, &Vec<StoredValue>> = sampled.values.iter().collect();
        let mut filler = ToastFiller::new(page, Fill::Append);
        let mut sizes = Vec::new();
        for (ctid, values) in rows {
            for size in sizes_outside(values) {
                filler.put(size);
                sizes.push((ctid.block.0, chunk_bytes(page, size)));
            }
        }
        let bytes: u64 = sizes.iter().map(|(_, bytes)| bytes).sum();
        let taken = filler.heap().filled_pages() * page.bytes() as f64;
        (of_runs(sizes), taken / (bytes as f64).max(1.0))
    }

    /// To what sizes the server compresses some of the rows' values; those that are `known` are not asked for again.
    async fn compressed(
        &self,
        scanner: &mut Scanner<'_>,
        rows: &[Row],
        sampled: &Sampled,
        known: CopySizes,
    ) -> Result<CopySizes> {
        let Judge::Forms(judge @ FormJudge::Stock(toaster)) = &self.choice.judge else {
            return Ok(HashMap::new());
        };
        if !toaster.compresses() {
            return Ok(HashMap::new());
        }
        let mut sizes = known;
        let mut bytes = 0;
        let mut some: Vec<Candidate> = drawn(rows, ROWS)
            .filter_map(|&row| {
                let values = sampled.values.get(&row.ctid)?.clone();
                bytes += row.bytes;
                let open = self.guard.ready.targets.iter().map(|target| target.index).collect();
                (bytes <= BYTES).then_some(Candidate { row, values, open })
            })
            .collect();
        some.retain(|candidate| {
            let ctid = candidate.row.ctid;
            !candidate.open.iter().all(|&index| sizes.contains_key(&(ctid, index)))
        });
        if some.is_empty() {
            return Ok(sizes);
        }
        let tried = self.guard.tried("reading", async || {
            let held = scanner.begin(Reads::WithTemporary).await?;
            let mut answers = HashMap::new();
            let answered = scanner.answer(judge, &some, &mut answers).await;
            // Temporary tables that were kept would be dropped at the end of the session, which then waits for a
            // synchronous standby.
            scanner.trials = held.trials;
            snapshot::abandon(scanner.connection.client()).await?;
            answered.map(|()| answers)
        });
        match tried.await {
            Ok(answers) => sizes.extend(answers.unwrap_or_default()),
            // no temporary tables, or a damaged value: sizes remain as they are
            Err(RetoastError::Live(LiveError::Server(error))) if error.as_db_error().is_some() => {
                tracing::debug!("{}: no copies for the forecast: {error}", self.guard.name());
            }
            Err(error) => return Err(error),
        }
        Ok(sizes)
    }

    /// How large values are uncompressed, where that is not known because pages were not read: of some of the rows, as the
    /// server says.
    async fn uncompressed(
        &self,
        scanner: &Scanner<'_>,
        rows: &[Row],
    ) -> Result<Option<UncompressedSizes>> {
        let is_stock = matches!(self.choice.judge, Judge::Forms(FormJudge::Stock(_)));
        if self.guard.session.pages.is_some() || !is_stock {
            return Ok(None);
        }
        let mut bytes = 0;
        let some = drawn(rows, ROWS).take_while(|row| {
            let is_first = bytes == 0;
            bytes += row.bytes;
            is_first || bytes <= BYTES
        });
        let some: HashMap<ItemPointer, u64> = some.map(|row| (row.ctid, row.stored)).collect();
        let ctids: Vec<String> = some.keys().map(ToString::to_string).collect();
        let ready = self.guard.ready;
        let sql = sql::uncompressed(&ready.relation.quoted(), &ready.targets);
        let client = scanner.connection.client();
        let asked = self.guard.in_reading(async |_| {
            Ok(client.query_typed(&sql, &[(&ctids, Type::TEXT_ARRAY)]).await?)
        });
        let mut sizes = UncompressedSizes::default();
        for row in asked.await? {
            let ctid = address(row.try_get(0)?)?;
            let size = row.try_get::<_, i64>(1)?.unsigned_abs();
            sizes.stored += some.get(&ctid).copied().unwrap_or(0);
            sizes.uncompressed += size;
            sizes.by_row.insert(ctid, size);
        }
        Ok(Some(sizes))
    }

    /// How a row changes.
    fn change(
        &self,
        scanner: &Scanner<'_>,
        row: &Row,
        sampled: &Sampled,
        sizes: &CopySizes,
        ratios: &Ratios,
    ) -> RowChange {
        let page = self.choice.model.page;
        let (Some(values), Some(&length)) =
            (sampled.values.get(&row.ctid), sampled.lengths.get(&row.ctid))
        else {
            return change_to(row, page, row.stored);
        };
        let (targets, follow) = scanner.indexes();
        let changing: Vec<usize> = targets.iter().chain(&follow).copied().collect();
        let known = |index: usize| {
            let own = sizes.get(&(row.ctid, index)).copied();
            own.or_else(|| Some(ratios.size(index, values.get(index)?)))
        };
        let Ok(anew) = stored_anew(&self.choice.model, &targets, &follow, values, &known) else {
            return change_to(row, page, row.stored);
        };
        let mut change = RowChange { tuple: (length, anew.tuple_length), ..RowChange::default() };
        for &index in &changing {
            let Some(value) = values.get(index) else { continue };
            let bytes = value.stored_size.unwrap_or(0).max(match value.form {
                Form::Custom => value.raw_size.unwrap_or(0),
                _ => 0,
            });
            let chunks = page.chunks(u32::try_from(bytes).unwrap_or(u32::MAX));
            if value.form.is_external() {
                change.external.0 += bytes;
                change.chunks.0 += chunks;
            } else if value.form == Form::Custom {
                // replaced chunks of pluggable toasters remain
                change.external.1 += bytes;
                change.chunks.1 += chunks;
            }
        }
        for (index, placed) in anew.values.iter().enumerate() {
            if placed.form.is_external() && !placed.kept {
                change.external.1 += u64::from(placed.stored_size);
                change.chunks.1 += placed.chunks;
                change.changed += NARROW;
            } else if changing.contains(&index) {
                change.changed += if placed.form == Form::Null { 0 } else { placed.stored_size };
            } else if placed.form.is_external() {
                change.kept += u64::from(placed.stored_size);
            }
        }
        change
    }

    /// What the forecast needs to know of the table's indexes, and the size of the TOAST relation's.
    async fn indexes(
        &self,
        all: &[Index],
        sample: &Sample,
        rows: f64,
    ) -> Result<(Vec<IndexFacts>, u64)> {
        let of_toast = all.iter().filter(|index| index.of_toast).map(|index| index.bytes).sum();
        let gins = self.gins(sample, all, rows).await?;
        let facts = all.iter().filter(|index| !index.of_toast).map(|index| IndexFacts {
            method: match gins.get(&index.oid.0) {
                Some(gin) => Method::Gin(gin.clone()),
                None if index.method == "btree" => Method::Btree(entry_bytes(index)),
                None => Method::Other,
            },
            bytes: index.bytes,
        });
        Ok((facts.collect(), of_toast))
    }

    /// The GIN indexes, by OID.
    async fn gins(&self, sample: &Sample, all: &[Index], rows: f64) -> Result<HashMap<u32, Gin>> {
        let Guard { session, ready, .. } = self.guard;
        let client = session.reader().client();
        let mut gins = HashMap::new();
        if !all.iter().any(|index| index.method == "gin") {
            return Ok(gins);
        }
        let page = session.server.page_size.bytes() as f64;
        let mut bytes = 0;
        let some = drawn(&sample.rows, KEYED).take_while(|row| {
            bytes += row.bytes;
            bytes <= KEYED_BYTES
        });
        let some: Vec<String> = some.map(|row| row.ctid.to_string()).collect();
        let table = ready.relation.quoted();
        let oid = ready.relation.oid.0;
        for row in client.query_typed(gin::GINS, &[(&oid, Type::OID)]).await? {
            let index: u32 = row.try_get(0)?;
            let name: String = row.try_get(1)?;
            let classes: Vec<String> = row.try_get(3)?;
            let columns: Vec<String> = row.try_get(4)?;
            let known = all.iter().find(|one| one.oid.0 == index);
            let bytes = known.map_or(0, |one| one.bytes);
            let counted = known.and_then(|one| one.entries.count).unwrap_or(0.0).max(rows);
            let mut gin = Gin {
                has_list: row.try_get(2)?,
                keys: Vec::new(),
                sampled: some.len().max(1) as f64,
                entries: bytes as f64 / 64.0,
                entry_pages: bytes as f64 / page,
                data_pages: 0.0,
                rows: counted,
            };
            for (class, column) in classes.iter().zip(&columns) {
                let sql = if !some.is_empty() { gin::keys(&table, class, column) } else { None };
                let known = match sql {
                    Some(sql) => self.keys(&sql, &some).await?,
                    None => None,
                };
                gin.keys.extend(known.unwrap_or_else(|| {
                    // a guess by the size of the index
                    let keys = bytes as f64 / counted.max(1.0) / UNKNOWN_ENTRY * gin.sampled;
                    vec![SampledKeys { rows: 1.0, keys, bytes: UNKNOWN_KEY }]
                }));
            }
            if let Some(pageinspect) = session.pages {
                let counted = client.query_typed(&gin::pages(pageinspect, &name), &[]).await?;
                if let Some(row) = counted.first() {
                    (gin.entry_pages, gin.data_pages, gin.entries) =
                        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
                }
            }
            gins.insert(index, gin);
        }
        Ok(gins)
    }

    /// The keys of these rows; `None` if counting them takes too long, or the server has another error.
    async fn keys(&self, sql: &str, rows: &Vec<String>) -> LiveResult<Option<Vec<SampledKeys>>> {
        let client = self.guard.session.reader().client();
        let asked = self
            .guard
            .in_reading(async |_| {
                client.batch_execute(KEYED_LIMIT).await?;
                Ok(client.query_typed(sql, &[(rows, Type::TEXT_ARRAY)]).await?)
            })
            .await;
        let found = match asked {
            Err(LiveError::Server(error)) if error.as_db_error().is_some() => {
                tracing::debug!("{}: keys are guessed: {error}", self.guard.name());
                return Ok(None);
            }
            found => found?,
        };
        let mut keys = Vec::new();
        for row in found {
            let (rows, bytes) = (row.try_get(0)?, row.try_get(2)?);
            keys.push(SampledKeys { rows, keys: row.try_get(1)?, bytes });
        }
        Ok(Some(keys))
    }
}

/// The sizes of chosen columns' values, uncompressed.
#[derive(Default)]
struct UncompressedSizes {
    by_row: HashMap<ItemPointer, u64>,
    /// Of these rows, as stored, and uncompressed.
    stored: u64,
    uncompressed: u64,
}

impl UncompressedSizes {
    /// Of this row; of one that was not looked at, as much larger as the others are.
    fn of_row(&self, row: &Row) -> u64 {
        let known = self.by_row.get(&row.ctid).copied();
        let stored = row.stored as f64;
        match self.stored {
            0 => known.unwrap_or(row.stored),
            others => known.unwrap_or((stored * self.uncompressed as f64 / others as f64) as u64),
        }
    }
}

/// How a row changes whose chosen values take so many bytes then, if nothing else is known of it.
fn change_to(row: &Row, page: PageSize, bytes: u64) -> RowChange {
    let [(external, chunks, inline), (new_external, new_chunks, new_inline)] = [row.stored, bytes]
        .map(|stored| {
            let size = u32::try_from(stored).unwrap_or(u32::MAX);
            if stored > INLINE {
                (stored, page.chunks(size), NARROW)
            } else {
                (0, 0, size.saturating_add(NARROW))
            }
        });
    let rest = u32::try_from(row.dead.saturating_sub(external)).unwrap_or(u32::MAX);
    let tuple = rest.max(inline);
    RowChange {
        tuple: (tuple, tuple.saturating_sub(inline).saturating_add(new_inline)),
        changed: new_inline,
        chunks: (chunks, new_chunks),
        external: (external, new_external),
        kept: 0,
    }
}

/// The runs to draw from this many pages.
fn runs_of(pages: u32) -> BlockSample {
    BlockSample::new(pages.div_ceil(RUN), RUNS as u32, 1)
}

/// Some of the rows, spread over all of them. They are drawn, because content may recur in each n-th row.
fn drawn(rows: &[Row], wanted: usize) -> impl Iterator<Item = &Row> {
    let all = u32::try_from(rows.len()).unwrap_or(u32::MAX);
    let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
    let places = BlockSample::new(all, wanted, 1);
    places.filter_map(|place| rows.get(place.0 as usize))
}

/// The sums over runs of pages of what is in these blocks.
fn of_runs(amounts: impl IntoIterator<Item = (u32, u64)>) -> PowerSums {
    let mut by_run: BTreeMap<u32, u64> = BTreeMap::new();
    for (block, amount) in amounts {
        *by_run.entry(block / RUN).or_default() += amount;
    }
    let mut sums = PowerSums::default();
    by_run.into_values().for_each(|amount| sums.add(amount));
    sums
}

impl Ratios {
    fn new(sizes: &CopySizes, sampled: &Sampled) -> Ratios {
        let mut sums: HashMap<(usize, bool), CopySums> = HashMap::new();
        for (&(ctid, index), size) in sizes {
            let values = sampled.values.get(&ctid);
            let Some(value) = values.and_then(|values| values.get(index)) else { continue };
            let sum = sums.entry((index, value.method.is_some())).or_default();
            sum.values += 1;
            if let Some(size) = size {
                sum.compressed += 1;
                sum.before += taken_now(value);
                sum.after += f64::from(*size);
            }
        }
        Ratios(sums.into_iter().map(|(kind, sum)| (kind, sum.ratio())).collect())
    }

    /// To what size the server probably compresses a column's value.
    fn size(&self, index: usize, value: &StoredValue) -> CompressedSize {
        let is_compressed = value.method.is_some();
        let ratio = match self.0.get(&(index, is_compressed)) {
            Some(ratio) => *ratio,
            // there are few of these
            None => is_compressed.then_some(1.0),
        };
        ratio.map(|ratio| (taken_now(value) * ratio) as u32)
    }
}

/// Sums over a column's values whose compressed sizes are known.
#[derive(Default)]
struct CopySums {
    values: u32,
    /// The number of those that can be compressed, and their sizes.
    compressed: u32,
    before: f64,
    after: f64,
}

impl CopySums {
    fn ratio(&self) -> Option<f64> {
        let is_known = self.compressed * 2 >= self.values && self.before > 0.0;
        is_known.then(|| self.after / self.before)
    }
}

/// The stored size of a value, or its raw size if that is not known.
fn taken_now(value: &StoredValue) -> f64 {
    value.stored_size.or(value.raw_size).unwrap_or(0) as f64
}

/// The average size of a btree's entries, with their line pointers.
fn entry_bytes(index: &Index) -> f64 {
    const FULL: f64 = 0.85;
    const LEAST: f64 = 20.0;
    let counted = index.entries.count.filter(|&count| count >= 1.0);
    match (index.entries.bytes, counted) {
        (Some(bytes), _) => bytes as f64,
        (None, Some(count)) => (index.bytes as f64 * FULL / count).max(LEAST),
        (None, None) => LEAST * 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toast_format::codec::Method;
    use toast_format::disk::BlockNumber;

    /// Of mail, what a scan asks for are small texts that are not compressed; attachments that pglz has compressed to
    /// nearly their content become larger with lz4 by a few percent.
    #[test]
    fn values_that_are_compressed_now_have_a_ratio_of_their_own() {
        let mut sizes = CopySizes::new();
        let mut sampled = Sampled::default();
        let form = Form::ExternalCompressed;
        let small = StoredValue {
            form: Form::External,
            stored_size: Some(1500),
            raw_size: Some(1500),
            ..StoredValue::NULL
        };
        let large = StoredValue {
            form,
            method: Some(Method::Pglz),
            raw_size: Some(52_000),
            stored_size: Some(40_000),
            ..StoredValue::NULL
        };
        for (block, value, size) in
            [(0, &small, Some(900)), (1, &small, Some(900)), (2, &large, Some(42_000))]
        {
            let ctid = ItemPointer { block: BlockNumber(block), item: 1 };
            sampled.values.insert(ctid, vec![*value]);
            sizes.insert((ctid, 0), size);
        }
        let ratios = Ratios::new(&sizes, &sampled);
        assert_eq!(ratios.size(0, &small), Some(900));
        assert_eq!(ratios.size(0, &large), Some(42_000));
        // of another column, nothing is known
        assert_eq!(ratios.size(1, &small), None);
        assert_eq!(ratios.size(1, &large), Some(40_000));
    }
}
