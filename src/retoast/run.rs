//! Does what the machine says to one table: scans, batches, vacuums, waits.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::RngExt;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::choice::Toaster;
use super::machine::{Action, End, Event, MAX_REFUSED, Machine, Row, Tuning};
use super::preflight::Ready;
use super::result::{Outcome, Sizes, SkippedRow, TableReport, Tally};
use super::scan::{Eyes, Scanner};
use super::sql::{self, BatchSettings};
use crate::source::connect::Connection;
use crate::source::live::LiveError;
use crate::source::live::server::Server;
use crate::source::live::toasters::TOAST_RELATIONS;
use crate::source::sql::quote_identifier;

/// First key of the advisory lock that says that a table is being retoasted; the second is its OID.
pub const LOCK_CLASS: i32 = 0x746f_6173;
/// With `--verify sample` one batch in this many is compared.
const SAMPLE: u64 = 32;
/// How often a lock for the settings or for a scan is tried.
const LOCK_TRIES: u32 = 30;
/// How often a stop is looked for while waiting.
const LOOK: Duration = Duration::from_millis(50);

/// Which rows are compared before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// None.
    Off,
    /// Those of one batch in 32, the first among them.
    Sample,
    /// All.
    Full,
}

/// How to go about it.
#[derive(Debug, Clone)]
pub struct Options {
    /// The choice.
    pub toaster: Toaster,
    /// What the scans go by.
    pub eyes: Eyes,
    /// How the sweep goes.
    pub tuning: Tuning,
    /// Which rows are compared.
    pub verify: Verify,
    /// The longest wait for a lock.
    pub lock_timeout: Duration,
    /// Whether row security is to be an error where it would hide rows.
    pub row_security_off: bool,
    /// Only look.
    pub dry_run: bool,
}

/// Why the sweep could not go on. What was committed stays; the same command goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The server.
    #[error("{0}")]
    Live(#[from] LiveError),
    /// Another retoast of the table runs.
    #[error("another retoast of this table is running\nHINT:  Wait for it, or stop it.")]
    Running,
    /// Values differ after they were stored anew. The batch was rolled back.
    #[error(
        "contents of {rows} rows near {near} would have changed: the batch was rolled back and \
         nothing more is done"
    )]
    Changed {
        /// Rows of the batch.
        rows: usize,
        /// The first one's address.
        near: String,
    },
    /// Fewer rows were updated than were locked.
    #[error("{updated} of {locked} locked rows were updated: a trigger or rule holds rows back")]
    HeldBack {
        /// Rows locked.
        locked: usize,
        /// Rows updated.
        updated: u64,
    },
    /// So many rows were refused that the cause cannot be their content.
    #[error("{MAX_REFUSED} rows were refused, the last one with: {0}")]
    TooManyRefused(String),
    /// The table cannot be locked.
    #[error("{0}: no lock in {LOCK_TRIES} tries\nHINT:  See pg_locks for who holds it.")]
    NoLock(&'static str),
}

impl From<tokio_postgres::Error> for RunError {
    fn from(error: tokio_postgres::Error) -> RunError {
        RunError::Live(error.into())
    }
}

/// Whom to tell of progress and waits.
pub trait Watch: Send + Sync {
    /// So much of a scan is read, and so many rows are stored anew.
    fn progress(&self, relation: &str, scan: u32, read: u32, blocks: u32, rows: u64);
    /// Something worth a line.
    fn note(&self, text: &str);
}

/// One table's sweep.
pub struct Sweep<'a> {
    /// For batches.
    pub writer: Arc<Connection>,
    /// For scans.
    pub reader: Arc<Connection>,
    /// The server.
    pub server: &'a Server,
    /// The table.
    pub ready: &'a Ready,
    /// How.
    pub options: &'a Options,
    /// Whom to tell.
    pub watch: &'a dyn Watch,
    /// Set from outside to stop.
    pub stop: &'a AtomicBool,
}

/// What became of a batch.
enum Done {
    Stored { rows: u64, xid: u32 },
    Busy,
    Refused(String),
}

/// What an error of the server means for a batch.
enum Kind {
    Busy,
    Row,
    Fatal,
}

fn kind(error: &tokio_postgres::Error) -> Kind {
    let Some(db) = error.as_db_error() else { return Kind::Fatal };
    match db.code().code() {
        "55P03" | "40P01" | "40001" => Kind::Busy,
        code => match code.get(..2) {
            // data of the row, constraints of domains, limits, damage
            Some("22" | "23" | "54" | "P0" | "XX") => Kind::Row,
            _ => Kind::Fatal,
        },
    }
}

impl Sweep<'_> {
    fn name(&self) -> String {
        self.ready.relation.display_name()
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Does it all. The report comes with whatever ended the sweep.
    pub async fn run(&self) -> Result<TableReport, RunError> {
        let began = Instant::now();
        self.lock().await?;
        let client = self.writer.client();
        let before = self.sizes().await?;
        let wal = self.wal().await?;
        let alter = sql::alter(&self.ready.relation.quoted(), &self.ready.changes);
        let mut report = TableReport {
            relation: self.name(),
            columns: self.ready.targets.iter().map(|target| target.name.clone()).collect(),
            toaster: self.ready.toaster_name(self.options.toaster),
            outcome: Outcome::Planned,
            source: match self.options.eyes {
                Eyes::Pages(_) => "pageinspect",
                Eyes::Functions => "functions",
            },
            alter: alter.clone(),
            rows_found: 0,
            bytes_found: 0,
            rows_stored: 0,
            rows_verified: 0,
            batches: 0,
            scans: 0,
            vacuums: 0,
            retries: 0,
            longest_batch_ms: 0,
            wal_bytes: 0,
            elapsed_ms: 0,
            before,
            peak: before,
            after: before,
            forms_before: Vec::new(),
            forms_after: Vec::new(),
            skipped: Vec::new(),
            notes: self.notes(),
        };
        if !self.options.dry_run
            && let Some(alter) = &alter
        {
            self.alter(alter).await?;
        }
        let done = self.sweep(&mut report).await;
        report.elapsed_ms = millis(began.elapsed());
        if done.is_ok() {
            report.after = self.sizes().await?;
            report.peak = report.peak.max(report.after);
            report.wal_bytes = self.wal().await?.saturating_sub(wal);
            client
                .query_typed(
                    "SELECT pg_catalog.pg_advisory_unlock($1, $2)",
                    &[(&LOCK_CLASS, Type::INT4), (&self.lock_key(), Type::INT4)],
                )
                .await?;
        }
        done.map(|()| report)
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if matches!(self.options.eyes, Eyes::Functions) && !self.server.has_toast_chunk_id() {
            notes.push(
                "without pages nothing tells before PostgreSQL 17 whether a compressed value is in \
                 its row: values are not moved for their place alone"
                    .to_owned(),
            );
        }
        if self.ready.triggers_fire {
            notes.push("triggers fire for every row stored anew".to_owned());
        }
        notes.extend(self.ready.plan.iter().flat_map(|plan| plan.notes.iter().cloned()));
        notes
    }

    fn lock_key(&self) -> i32 {
        self.ready.relation.oid.0 as i32
    }

    async fn lock(&self) -> Result<(), RunError> {
        let rows = self
            .writer
            .client()
            .query_typed(
                "SELECT pg_catalog.pg_try_advisory_lock($1, $2)",
                &[(&LOCK_CLASS, Type::INT4), (&self.lock_key(), Type::INT4)],
            )
            .await?;
        match rows.first() {
            Some(row) if row.try_get(0)? => Ok(()),
            _ => Err(RunError::Running),
        }
    }

    /// Sets the choice, waiting for its lock in short tries only: who waits for it makes others wait.
    async fn alter(&self, alter: &str) -> Result<(), RunError> {
        let sql = format!(
            "BEGIN; SET LOCAL lock_timeout = {}; {alter}; COMMIT",
            millis(self.options.lock_timeout)
        );
        for attempt in 1..=LOCK_TRIES {
            match self.writer.client().batch_execute(&sql).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    self.rollback().await?;
                    if !matches!(kind(&error), Kind::Busy) {
                        return Err(error.into());
                    }
                }
            }
            if self.stopped() {
                return Ok(());
            }
            self.watch.note(&format!("{}: waiting: no lock to set the choice", self.name()));
            self.sleep(backoff(attempt)).await;
        }
        Err(RunError::NoLock("setting the choice"))
    }

    async fn rollback(&self) -> Result<(), RunError> {
        Ok(self.writer.client().batch_execute("ROLLBACK").await?)
    }

    async fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.stopped() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(LOOK)).await;
        }
    }

    async fn sweep(&self, report: &mut TableReport) -> Result<(), RunError> {
        let mut machine = Machine::new(self.options.tuning);
        let mut scanner = Scanner {
            connection: Arc::clone(&self.reader),
            server: self.server,
            ready: self.ready,
            toaster: self.options.toaster,
            eyes: self.options.eyes.clone(),
            ours: HashSet::new(),
            judges: HashSet::new(),
            row_judge: false,
            tally: Tally::default(),
            problems: Vec::new(),
        };
        let end = loop {
            if self.stopped() {
                machine.note(Event::Stop, 0.0);
            }
            let action = machine.next_action();
            let event = match action {
                Action::Finish(end) => break end,
                Action::Sleep(time, reason) => {
                    if time > Duration::from_secs(1) {
                        let name = self.name();
                        self.watch.note(&format!("{name}: waiting: {}", reason.text()));
                    }
                    self.sleep(time).await;
                    continue;
                }
                Action::BeginScan => {
                    if machine.scans == 2 {
                        report.forms_before = scanner.tally.report(&report.columns);
                    }
                    (scanner.tally, scanner.problems) = (Tally::default(), Vec::new());
                    let sizes = self.sizes().await?;
                    report.peak = report.peak.max(sizes);
                    let page = self.server.page_size.bytes() as u64;
                    Event::Begun {
                        blocks: u32::try_from(sizes.heap / page).unwrap_or(u32::MAX),
                        bytes: sizes.heap + sizes.toast,
                    }
                }
                Action::Scan(blocks) => {
                    let rows = self.scan(&mut scanner, blocks).await?;
                    if machine.is_first_scan() {
                        report.rows_found += rows.len() as u64;
                        report.bytes_found += rows.iter().map(|row| row.bytes).sum::<u64>();
                    }
                    // a plan is read from one scan
                    Event::Scanned(if self.options.dry_run { Vec::new() } else { rows })
                }
                Action::Batch(rows) => {
                    let started = Instant::now();
                    match self.batch(&rows, report).await? {
                        Done::Stored { rows, xid } => {
                            scanner.ours.insert(xid);
                            report.rows_stored += rows;
                            report.batches += u64::from(rows > 0);
                            Event::BatchDone { rows, took: started.elapsed() }
                        }
                        Done::Busy => Event::BatchBusy,
                        Done::Refused(reason) => {
                            if let [row] = rows.as_slice() {
                                if report.skipped.len() + 1 >= MAX_REFUSED {
                                    return Err(RunError::TooManyRefused(reason));
                                }
                                report
                                    .skipped
                                    .push(SkippedRow { ctid: row.ctid.to_string(), reason });
                            }
                            Event::BatchRefused
                        }
                    }
                }
                Action::Vacuum => {
                    report.peak = report.peak.max(self.sizes().await?);
                    report.vacuums += u64::from(self.vacuum().await?);
                    Event::Vacuumed
                }
            };
            machine.note(event, rand::rng().random());
            let (read, blocks) = machine.position();
            self.watch.progress(&report.relation, machine.scans, read, blocks, report.rows_stored);
        };
        let forms = scanner.tally.report(&report.columns);
        if machine.is_first_scan() {
            report.forms_before.clone_from(&forms);
        }
        report.forms_after = forms;
        report.scans = machine.scans;
        report.retries = machine.retries;
        report.longest_batch_ms = millis(machine.longest_batch);
        for problem in &scanner.problems {
            report.skipped.push(SkippedRow { ctid: String::new(), reason: problem.clone() });
        }
        if report.rows_stored > 0 {
            // What the report calls done must survive a crash of the server.
            self.writer.client().batch_execute(sql::FLUSH).await?;
        }
        report.outcome = match end {
            End::Stopped => Outcome::Stopped,
            _ if self.options.dry_run => Outcome::Planned,
            End::Complete if report.skipped.is_empty() => Outcome::Complete,
            End::Complete | End::Left => Outcome::Incomplete,
        };
        Ok(())
    }

    async fn scan(
        &self,
        scanner: &mut Scanner<'_>,
        blocks: std::ops::Range<u32>,
    ) -> Result<Vec<Row>, RunError> {
        for attempt in 1..=LOCK_TRIES {
            let tally = scanner.tally.clone();
            match scanner.chunk(blocks.clone()).await {
                Err(LiveError::Server(error)) if matches!(kind(&error), Kind::Busy) => {
                    scanner.tally = tally;
                    self.watch.note(&format!("{}: waiting: no lock to read", self.name()));
                    self.sleep(backoff(attempt)).await;
                    if self.stopped() {
                        return Ok(Vec::new());
                    }
                }
                other => return Ok(other?),
            }
        }
        Err(RunError::NoLock("reading"))
    }

    /// One transaction that stores rows anew.
    async fn batch(&self, rows: &[Row], report: &mut TableReport) -> Result<Done, RunError> {
        let verify = match self.options.verify {
            Verify::Off => false,
            Verify::Sample => report.batches.is_multiple_of(SAMPLE),
            Verify::Full => true,
        };
        match self.try_batch(rows, verify).await {
            Ok((stored, verified)) => {
                report.rows_verified += verified;
                Ok(stored)
            }
            Err(RunError::Live(LiveError::Server(error))) => {
                let kind = kind(&error);
                if matches!(kind, Kind::Fatal) {
                    return Err(error.into());
                }
                self.rollback().await?;
                Ok(match kind {
                    Kind::Busy => Done::Busy,
                    _ => Done::Refused(LiveError::Server(error).to_string()),
                })
            }
            Err(error) => {
                self.rollback().await?;
                Err(error)
            }
        }
    }

    async fn try_batch(&self, rows: &[Row], verify: bool) -> Result<(Done, u64), RunError> {
        let client: &Client = self.writer.client();
        let table = self.ready.relation.quoted();
        let targets = &self.ready.targets;
        // a trigger may change other columns for reasons of its own
        let whole_rows = !self.ready.triggers_fire;
        let settings = BatchSettings {
            lock_timeout_ms: millis(self.options.lock_timeout),
            replica_role: self.ready.replica_role,
            row_security_off: self.options.row_security_off,
        };
        let blocks = rows.iter().map(|row| row.ctid.block.0);
        let (first, last) = (blocks.clone().min().unwrap_or(0), blocks.max().unwrap_or(0));
        let begin = format!("{}; {}", sql::begin(&settings), sql::prune(&table, first..=last));
        client.batch_execute(&begin).await?;
        let mut ctids: Vec<String> = rows.iter().map(|row| row.ctid.to_string()).collect();
        let mut before: Vec<i64> = Vec::new();
        if verify {
            let sql = sql::lock_and_hash(&table, targets, whole_rows);
            let locked = client.query_typed(&sql, &[(&ctids, Type::TEXT_ARRAY)]).await?;
            ctids.clear();
            for row in &locked {
                ctids.push(row.try_get(0)?);
                before.push(row.try_get(1)?);
            }
        }
        let sql = sql::update(&table, targets);
        let done = client.query_typed(&sql, &[(&ctids, Type::TEXT_ARRAY)]).await?;
        let done = done
            .first()
            .ok_or_else(|| LiveError::Unexpected("no row about the batch".to_owned()))?;
        let count: i64 = done.try_get(0)?;
        let count = u64::try_from(count).unwrap_or(0);
        let xid: String = done.try_get(1)?;
        let xid: u64 =
            xid.parse().map_err(|_| LiveError::Unexpected(format!("transaction \"{xid}\"")))?;
        if verify {
            if count != before.len() as u64 {
                return Err(RunError::HeldBack { locked: before.len(), updated: count });
            }
            let now: Vec<String> = done.try_get(2)?;
            let sql = sql::hashes(&table, targets, whole_rows);
            let mut after: Vec<i64> = Vec::with_capacity(now.len());
            for row in client.query_typed(&sql, &[(&now, Type::TEXT_ARRAY)]).await? {
                after.push(row.try_get(0)?);
            }
            before.sort_unstable();
            after.sort_unstable();
            if before != after {
                let near = ctids.first().cloned().unwrap_or_default();
                return Err(RunError::Changed { rows: before.len(), near });
            }
        }
        client.batch_execute("COMMIT").await?;
        // the low half is what tuple headers hold
        let done = Done::Stored { rows: count, xid: xid as u32 };
        Ok((done, if verify { count } else { 0 }))
    }

    /// Whether the table was vacuumed. It never waits long: what is not done now is done later.
    async fn vacuum(&self) -> Result<bool, RunError> {
        let client = self.writer.client();
        let sql = sql::vacuum(&self.ready.relation.quoted());
        let set = format!("SET lock_timeout = {}", millis(self.options.lock_timeout));
        client.batch_execute(&set).await?;
        let canceller = self.writer.canceller();
        let mut work = std::pin::pin!(client.batch_execute(&sql));
        let mut cancelled = false;
        let done = loop {
            tokio::select! {
                done = &mut work => break done,
                () = tokio::time::sleep(LOOK) => {
                    if self.stopped() && !cancelled {
                        cancelled = true;
                        // it may have ended by itself
                        let _ = canceller.cancel().await;
                    }
                }
            }
        };
        match done {
            Ok(()) => Ok(true),
            Err(error) if cancelled && error.as_db_error().is_some() => Ok(false),
            Err(error) if matches!(kind(&error), Kind::Busy) => {
                self.watch.note(&format!("{}: no vacuum now: it is locked", self.name()));
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn sizes(&self) -> Result<Sizes, RunError> {
        let rows = self
            .writer
            .client()
            .query_typed(
                &format!(
                    "SELECT coalesce(pg_catalog.pg_relation_size(c.oid), 0), \
                            coalesce(t.heap, 0)::pg_catalog.int8, \
                            (coalesce(pg_catalog.pg_indexes_size(c.oid), 0) \
                             + coalesce(t.indexes, 0))::pg_catalog.int8 \
                     FROM pg_catalog.pg_class AS c, \
                     LATERAL (SELECT sum(pg_catalog.pg_relation_size(o)) AS heap, \
                                     sum(pg_catalog.pg_indexes_size(o)) AS indexes \
                              FROM pg_catalog.unnest({TOAST_RELATIONS}) AS o) AS t \
                     WHERE c.oid = $1"
                ),
                &[(&self.ready.relation.oid.0, Type::OID)],
            )
            .await?;
        let row = rows.first().ok_or_else(|| {
            LiveError::NoSuchRelation(quote_identifier(&self.ready.relation.name))
        })?;
        let bytes = |at| -> Result<u64, RunError> {
            Ok(u64::try_from(row.try_get::<_, i64>(at)?).unwrap_or(0))
        };
        Ok(Sizes { heap: bytes(0)?, toast: bytes(1)?, indexes: bytes(2)? })
    }

    /// Bytes of WAL written since the cluster was made.
    async fn wal(&self) -> Result<u64, RunError> {
        let rows = self
            .writer
            .client()
            .query_typed(
                "SELECT pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), '0/0')\
                 ::pg_catalog.int8",
                &[],
            )
            .await?;
        Ok(match rows.first() {
            Some(row) => u64::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0),
            None => 0,
        })
    }
}

fn backoff(attempt: u32) -> Duration {
    let ms = 100.0 * f64::from(1u32 << attempt.min(5)) * (0.5 + rand::rng().random::<f64>());
    Duration::from_millis(ms as u64)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
