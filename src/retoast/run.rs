//! Does what the machine says to one table: scans, batches, vacuums, waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::{join, join4};
use futures_util::stream::FuturesUnordered;
use rand::RngExt;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Statement};

use super::checkpoint::{Checkpoint, CheckpointError, Place};
use super::choice::Toaster;
use super::keeper::Keeper;
use super::machine::{Action, End, Event, MAX_REFUSED, Machine, Row, Tuning};
use super::manners::Work;
use super::patience::{Kind, LOCK_TRIES, LOOK, Patience, Tried, kind};
use super::policy_scan::{Notebook, RuleScan};
use super::policy_sql;
use super::preflight::Ready;
use super::result::{Outcome, Sizes, SkippedRow, TableReport, Tally};
use super::scan::{Eyes, Scanner};
use super::since::Since;
use super::sql::{self, BatchSettings};
use super::watch::Watch;
use super::{foresee, gauges};
use crate::source::connect::Connection;
use crate::source::live::LiveError;
use crate::source::live::server::Server;

/// First key of the advisory lock that says that a table is being retoasted; the second is its OID.
pub const LOCK_CLASS: i32 = 0x746f_6173;
/// With `--verify sample` one batch in this many is compared.
const SAMPLE: u64 = 32;
/// How long another retoast of the table is waited for: a killed one's session ends by itself.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// How often its lock is tried.
const LOCK_AGAIN: Duration = Duration::from_millis(250);
/// After a pause so long a scan's snapshot is given up, which keeps vacuum from its work.
const LONG_PAUSE: Duration = Duration::from_secs(5);

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
    /// The replication origin of what is written.
    pub origin: Option<String>,
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
    /// Something that is watched cannot be measured, or is beyond its limit.
    #[error("{0}")]
    Manners(String),
    /// Where scanning is cannot be saved.
    #[error("{0}")]
    Checkpoint(#[from] CheckpointError),
    /// The table cannot be locked.
    #[error("no lock for {0} in {LOCK_TRIES} tries\nHINT:  See pg_locks for who holds it.")]
    NoLock(&'static str),
}

impl From<tokio_postgres::Error> for RunError {
    fn from(error: tokio_postgres::Error) -> RunError {
        RunError::Live(error.into())
    }
}

/// One table's sweep.
pub struct Sweep<'a> {
    /// For batches.
    pub writer: Arc<Connection>,
    /// For those of the second job and further ones.
    pub others: Vec<Arc<Connection>>,
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
    /// Keeps its manners.
    pub keeper: &'a Keeper,
    /// Where scanning is.
    pub checkpoint: Option<&'a Checkpoint>,
    /// What scans have seen that batches by a policy need to know.
    pub notebook: &'a Notebook,
    /// With a policy, the rows that an earlier run has proven to comply.
    pub since: Option<Since>,
}

/// What became of a batch.
enum Done {
    Stored { rows: u64, verified: u64, xid: u32 },
    Busy,
    Refused(String),
}

/// The statements of a batch.
struct Statements {
    prune: Statement,
    /// By a policy: locks the rows and tells which versions they are.
    lock: Option<Statement>,
    update: Statement,
}

/// What an update tells of the rows that it stored.
struct Stored {
    rows: u64,
    /// The low half of the transaction's number, which is what tuple headers hold.
    xid: u32,
    /// Where they are now.
    ctids: Vec<String>,
}

impl Stored {
    fn read(rows: &[tokio_postgres::Row]) -> Result<Stored, LiveError> {
        let unexpected = |what: &str| LiveError::Unexpected(what.to_owned());
        let row = rows.first().ok_or_else(|| unexpected("no row about the batch"))?;
        let count: i64 = row.try_get(0)?;
        let xid: &str = row.try_get(1)?;
        let low = xid.parse().map(|xid: u64| xid as u32);
        Ok(Stored {
            rows: u64::try_from(count).unwrap_or(0),
            xid: low.map_err(|_| unexpected(&format!("transaction \"{xid}\"")))?,
            ctids: row.try_get(2)?,
        })
    }
}

/// What a job is to do.
enum Task {
    Batch { rows: Vec<Row>, verify: bool },
    Vacuum,
}

/// What a job has done.
enum Finished {
    Batch {
        rows: Vec<Row>,
        done: Done,
        took: Duration,
    },
    /// The sizes before it, and whether it was done.
    Vacuum(Sizes, bool),
    /// A stop was asked for before it began.
    Nothing,
}

impl Sweep<'_> {
    fn name(&self) -> String {
        self.ready.relation.display_name()
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Does it all. What was done until an error is reported too.
    pub async fn run(&self) -> (Option<TableReport>, Result<(), RunError>) {
        let began = Instant::now();
        let (mut report, wal) = match self.begin().await {
            Ok(begun) => begun,
            Err(error) => return (None, Err(error)),
        };
        let done = self.work(&mut report).await;
        report.elapsed_ms = millis(began.elapsed());
        if done.is_err() {
            report.outcome = Outcome::Failed;
            // the connection may be gone, or not in a transaction
            let _ = self.rollback(0).await;
        }
        let (pauses, wait) = self.keeper.end().await;
        (report.pauses, report.longest_lock_wait_ms) = (pauses, millis(wait));
        let ended = self.end(&mut report, wal).await;
        (Some(report), done.and(ended))
    }

    /// The table's lock, and a report of nothing done with the position in the WAL.
    async fn begin(&self) -> Result<(TableReport, u64), RunError> {
        self.lock().await?;
        let set = format!("SET lock_timeout = {}", millis(self.options.lock_timeout));
        for job in 0..=self.others.len() {
            self.connection(job).client().batch_execute(&set).await?;
        }
        let before = self.sizes_now().await?.unwrap_or_default();
        self.keeper.begin(self.ready, before).await?;
        let report = TableReport {
            relation: self.name(),
            columns: self.ready.targets.iter().map(|target| target.name.clone()).collect(),
            toaster: self.choice(),
            policy: self.ready.rule.as_ref().map(|rule| rule.policy.to_string()),
            outcome: Outcome::Planned,
            source: match self.options.eyes {
                Eyes::Pages(_) => "pageinspect",
                Eyes::Functions => "functions",
            },
            alter: sql::alter(&self.ready.relation.quoted(), &self.ready.changes),
            alter_after: self.ready.leave.as_ref().map(|leave| leave.sql.clone()),
            rows_found: 0,
            bytes_found: 0,
            rows_stored: 0,
            rows_verified: 0,
            batches: 0,
            scans: 0,
            vacuums: 0,
            retries: 0,
            longest_batch_ms: 0,
            longest_lock_wait_ms: 0,
            wal_bytes: 0,
            elapsed_ms: 0,
            before,
            peak: before,
            after: before,
            horizon: None,
            forms_before: Vec::new(),
            forms_after: Vec::new(),
            forms_planned: Vec::new(),
            skipped: Vec::new(),
            pauses: Vec::new(),
            plan: None,
            notes: self.notes(),
        };
        Ok((report, self.wal().await?))
    }

    async fn work(&self, report: &mut TableReport) -> Result<(), RunError> {
        if !self.options.dry_run
            && self.ready.leave.is_none()
            && let Some(alter) = &report.alter
        {
            self.alter(alter).await?;
        }
        let done = self.sweep(report).await;
        if self.options.dry_run {
            return done;
        }
        let left = self.leave(report.rows_found > 0).await;
        done.and(left)
    }

    /// Measures what was done and lets others have the table.
    async fn end(&self, report: &mut TableReport, wal: u64) -> Result<(), RunError> {
        report.wal_bytes = self.wal().await?.saturating_sub(wal);
        if let Some(sizes) = self.sizes_now().await? {
            report.after = sizes;
            report.peak = report.peak.max(sizes);
        }
        self.writer
            .client()
            .query_typed(
                "SELECT pg_catalog.pg_advisory_unlock($1, $2)",
                &[(&LOCK_CLASS, Type::INT4), (&self.lock_key(), Type::INT4)],
            )
            .await?;
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.ready.notes.clone();
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

    /// Takes the lock that says that this table is being retoasted. The session of a client that was
    /// killed may hold it for a moment longer.
    async fn lock(&self) -> Result<(), RunError> {
        let asked = Instant::now();
        loop {
            let rows = self
                .writer
                .client()
                .query_typed(
                    "SELECT pg_catalog.pg_try_advisory_lock($1, $2)",
                    &[(&LOCK_CLASS, Type::INT4), (&self.lock_key(), Type::INT4)],
                )
                .await?;
            match rows.first() {
                Some(row) if row.try_get(0)? => return Ok(()),
                _ if self.stopped() || asked.elapsed() > LOCK_PATIENCE => {
                    return Err(RunError::Running);
                }
                _ if asked.elapsed() < LOCK_AGAIN => self.watch.note(&format!(
                    "{}: waiting: another retoast of this table is running, or its session has not \
                     yet ended",
                    self.name()
                )),
                _ => {}
            }
            self.sleep(LOCK_AGAIN).await;
        }
    }

    fn patience<'a>(&'a self, name: &'a str) -> Patience<'a> {
        let lock_timeout = self.options.lock_timeout;
        Patience { name, watch: self.watch, stop: self.stop, lock_timeout }
    }

    async fn sleep(&self, time: Duration) {
        self.patience("").sleep(time).await;
    }

    /// As [`Patience::tried`]. `None` once a stop is asked for.
    async fn tried<T>(
        &self,
        what: &'static str,
        attempt: impl AsyncFnMut() -> Result<T, LiveError>,
    ) -> Result<Option<T>, RunError> {
        match self.patience(&self.name()).tried(what, attempt).await? {
            Tried::Done(done) => Ok(Some(done)),
            Tried::Stopped => Ok(None),
            Tried::NoLock => Err(RunError::NoLock(what)),
        }
    }

    /// Sets the choice.
    pub(super) async fn alter(&self, alter: &str) -> Result<(), RunError> {
        let (tried, wait) = self.patience(&self.name()).alter(self.writer.client(), alter).await?;
        self.keeper.lock_waited(wait);
        match tried {
            Tried::Done(()) | Tried::Stopped => Ok(()),
            Tried::NoLock => Err(RunError::NoLock("setting the choice")),
        }
    }

    /// The connection of a job.
    fn connection(&self, job: usize) -> &Connection {
        match job.checked_sub(1) {
            None => &self.writer,
            Some(other) => self.others.get(other).unwrap_or(&self.writer),
        }
    }

    async fn rollback(&self, job: usize) -> Result<(), RunError> {
        Ok(self.connection(job).client().batch_execute("ROLLBACK").await?)
    }

    async fn sweep(&self, report: &mut TableReport) -> Result<(), RunError> {
        let began = Instant::now();
        let mut machine = Machine::new(self.options.tuning);
        let saved = self.saved().await?;
        if let Some((checkpoint, place)) = saved {
            machine.start_at(checkpoint.start(place));
        }
        // the writer may be asked: nothing is stored anew while a scan reads
        let mut scanner = Scanner::new(
            &self.reader,
            &self.writer,
            self.server,
            self.ready,
            self.options.toaster,
            self.options.eyes.clone(),
            RuleScan::new(self.notebook, self.since, self.options.dry_run),
        );
        let end = self.steps(&mut machine, &mut scanner, report, saved).await;
        report.scans = machine.scans;
        report.retries = machine.retries;
        report.longest_batch_ms = millis(machine.longest_batch);
        for problem in &scanner.problems {
            report.skipped.push(SkippedRow { ctid: String::new(), reason: problem.clone() });
        }
        let released = scanner.release().await;
        let end = end?;
        released?;
        if self.options.dry_run {
            report.plan =
                Some(foresee::plan(self, report, scanner.tally.bytes(), began.elapsed()).await?);
        } else if let Some((checkpoint, place)) = saved {
            checkpoint.end(place, end == End::Complete)?;
        }
        let forms = scanner.tally.report(&report.columns);
        if machine.is_first_scan() {
            report.forms_before.clone_from(&forms);
        }
        report.forms_after = forms;
        report.forms_planned = scanner.by_rule.planned.report(&report.columns);
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

    /// Does what the machine says until it has no more to say.
    async fn steps(
        &self,
        machine: &mut Machine,
        scanner: &mut Scanner<'_>,
        report: &mut TableReport,
        saved: Option<(&Checkpoint, Place)>,
    ) -> Result<End, RunError> {
        let mut under_way = FuturesUnordered::new();
        let mut failed: Option<RunError> = None;
        let mut prepared = false;
        loop {
            if self.stopped() {
                machine.note(Event::Stop, 0.0);
            }
            let event = match machine.next_action() {
                Action::Finish(end) => return failed.map_or(Ok(end), Err),
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
                    self.notebook.clear();
                    report.horizon = self.horizon().await?;
                    // a dry run proves nothing
                    if !self.options.dry_run {
                        scanner.hold().await?;
                    }
                    // every block that the snapshot sees is there by now
                    let sizes = self.tried("its size", async || self.sizes().await).await?;
                    let Some(sizes) = sizes else { continue };
                    report.peak = report.peak.max(sizes);
                    let page = self.server.page_size.bytes() as u64;
                    Event::Begun {
                        blocks: u32::try_from(sizes.heap / page).unwrap_or(u32::MAX),
                        bytes: sizes.heap + sizes.toast,
                    }
                }
                Action::Scan(blocks) => {
                    let asked = Instant::now();
                    self.keeper.pass(Work::Scan, self.watch).await?;
                    if asked.elapsed() > LONG_PAUSE && scanner.held.is_some() {
                        scanner.release().await?;
                        machine.note(Event::SnapshotLost, 0.0);
                    }
                    if let Some((checkpoint, place)) = saved {
                        checkpoint.at(place, blocks.start)?;
                    }
                    let held = scanner.held.is_some();
                    let rows = self.scan(scanner, blocks).await?;
                    if held && scanner.held.is_none() {
                        machine.note(Event::SnapshotLost, 0.0);
                    }
                    if machine.is_first_scan() {
                        report.rows_found += rows.len() as u64;
                        report.bytes_found += rows.iter().map(|row| row.bytes).sum::<u64>();
                    }
                    // a plan is read from one scan
                    Event::Scanned(if self.options.dry_run { Vec::new() } else { rows })
                }
                Action::Batch(job, rows) => {
                    // by a policy there is one job
                    if !std::mem::replace(&mut prepared, true) {
                        self.prepare_batches().await?;
                    }
                    let task = Task::Batch { rows, verify: self.verifies(report.batches) };
                    under_way.push(self.labour(job, task));
                    continue;
                }
                Action::Vacuum(job) => {
                    under_way.push(self.labour(job, Task::Vacuum));
                    continue;
                }
                Action::Wait => {
                    let Some((job, finished)) = under_way.next().await else { continue };
                    let event =
                        finished.and_then(|finished| account(job, finished, scanner, report));
                    event.unwrap_or_else(|error| {
                        failed.get_or_insert(error);
                        Event::Failed(job)
                    })
                }
            };
            machine.note(event, rand::rng().random());
            if !machine.may_prove() {
                scanner.release().await?;
            }
            machine.beside_others(self.keeper.beside_others());
            let (read, blocks) = machine.position();
            self.keeper.at(read, blocks);
            self.watch.progress(&report.relation, machine.scans, read, blocks, report.rows_stored);
        }
    }

    /// Where scanning is to be saved, if at all, and what the table is known by there.
    async fn saved(&self) -> Result<Option<(&Checkpoint, Place)>, RunError> {
        let Some(checkpoint) = self.checkpoint.filter(|_| !self.options.dry_run) else {
            return Ok(None);
        };
        let oid = self.ready.relation.oid;
        let filenode = gauges::filenode(self.writer.client(), oid).await?;
        Ok(Some((checkpoint, Place { oid: oid.0, filenode })))
    }

    /// How each batch's transaction begins.
    pub(super) fn settings(&self) -> BatchSettings {
        BatchSettings {
            lock_timeout_ms: millis(self.options.lock_timeout),
            replica_role: self.ready.replica_role,
            row_security_off: self.options.row_security_off,
        }
    }

    async fn scan(
        &self,
        scanner: &mut Scanner<'_>,
        blocks: std::ops::Range<u32>,
    ) -> Result<Vec<Row>, RunError> {
        let tally = scanner.tally.clone();
        let look = async || {
            scanner.tally.clone_from(&tally);
            scanner.chunk(blocks.clone()).await
        };
        Ok(self.tried("reading", look).await?.unwrap_or_default())
    }

    /// Whether generated columns are computed anew.
    fn computes(&self) -> bool {
        !self.ready.follow.is_empty() || self.ready.targets.iter().any(|t| t.base.is_some())
    }

    /// Whether the next batch's rows are compared, after so many.
    fn verifies(&self, batches: u64) -> bool {
        match self.options.verify {
            Verify::Off => false,
            // what is generated is computed by functions that may have changed since
            Verify::Sample => batches.is_multiple_of(SAMPLE) || self.computes(),
            Verify::Full => true,
        }
    }

    /// Does what a job is to do, once nothing stands against it.
    async fn labour(&self, job: usize, task: Task) -> (usize, Result<Finished, RunError>) {
        (job, self.work_on(job, task).await)
    }

    async fn work_on(&self, job: usize, task: Task) -> Result<Finished, RunError> {
        let work = match task {
            Task::Batch { .. } => Work::Batch,
            Task::Vacuum => Work::Vacuum,
        };
        self.keeper.pass(work, self.watch).await?;
        if self.stopped() {
            return Ok(Finished::Nothing);
        }
        match task {
            Task::Batch { rows, verify } => {
                let started = Instant::now();
                let done = self.batch(job, &rows, verify).await?;
                let took = started.elapsed();
                if matches!(done, Done::Stored { .. }) {
                    let bytes = rows.iter().map(|row| row.bytes).sum();
                    self.keeper.batch_done(took, bytes);
                }
                Ok(Finished::Batch { rows, done, took })
            }
            Task::Vacuum => {
                let sizes = self.keeper.sizes();
                Ok(Finished::Vacuum(sizes, self.vacuum(job).await?))
            }
        }
    }

    /// One transaction that stores rows anew.
    async fn batch(&self, job: usize, rows: &[Row], verify: bool) -> Result<Done, RunError> {
        match self.try_batch(job, rows, verify).await {
            Err(RunError::Live(LiveError::Server(error))) => {
                let kind = kind(&error);
                if kind == Kind::Fatal {
                    return Err(error.into());
                }
                // its commit was sent already, and rolled it back
                if !self.goes_at_once(verify) {
                    self.rollback(job).await?;
                }
                Ok(match kind {
                    Kind::Busy => Done::Busy,
                    _ => Done::Refused(LiveError::Server(error).to_string()),
                })
            }
            Err(error) => {
                self.rollback(job).await?;
                Err(error)
            }
            stored => stored,
        }
    }

    async fn try_batch(&self, job: usize, rows: &[Row], verify: bool) -> Result<Done, RunError> {
        let connection = self.connection(job);
        let client = connection.client();
        let statements = self.statements(connection).await?;
        let blocks = rows.iter().map(|row| row.ctid.block.0);
        let first = format!("({},0)", blocks.clone().min().unwrap_or(0));
        let end = format!("({},0)", blocks.max().unwrap_or(0).saturating_add(1));
        let addresses: Vec<String> = rows.iter().map(|row| row.ctid.to_string()).collect();
        // What is joined is sent together, without waiting for answers: after an error in the transaction
        // the server skips the rest, the commit too, and an update without its beginning finds no row.
        let range: [&(dyn ToSql + Sync); 2] = [&first, &end];
        let prune = client.query(&statements.prune, &range);
        let all: [&(dyn ToSql + Sync); 1] = [&addresses];
        let (stored, before) = match (&self.ready.rule, &statements.lock) {
            (Some(rule), Some(lock)) => {
                let plan = client.batch_execute(policy_sql::PLAN_BY_ADDRESS);
                let (locked, pruned, planned, seen) =
                    join4(self.begin_batch(client), prune, plan, client.query(lock, &all)).await;
                locked?;
                pruned?;
                planned?;
                let seen = self.seen(&seen?)?;
                let before = match verify {
                    true => Some(self.lock_and_hash(client, &seen).await?),
                    false => None,
                };
                let ctids = before.as_ref().map_or(&seen, |(ctids, _)| ctids);
                (Stored::read(&self.store_by_rule(rule, ctids, &statements.update).await?)?, before)
            }
            _ if self.goes_at_once(verify) => {
                let update = client.query(&statements.update, &all);
                let commit = client.batch_execute("COMMIT");
                let (locked, pruned, stored, committed) =
                    join4(self.begin_batch(client), prune, update, commit).await;
                locked?;
                pruned?;
                let stored = Stored::read(&stored?)?;
                committed?;
                return Ok(self.done(rows, &stored, 0));
            }
            _ => {
                let (locked, pruned) = join(self.begin_batch(client), prune).await;
                locked?;
                pruned?;
                let (ctids, before) = self.lock_and_hash(client, &addresses).await?;
                let stored = Stored::read(&client.query(&statements.update, &[&ctids]).await?)?;
                (stored, Some((ctids, before)))
            }
        };
        if let Some((ctids, hashes)) = before {
            self.compare(client, &stored, &ctids, hashes).await?;
        }
        client.batch_execute("COMMIT").await?;
        Ok(self.done(rows, &stored, if verify { stored.rows } else { 0 }))
    }

    /// Whether a batch is sent whole, to its commit, since nothing in it is looked at on the way.
    fn goes_at_once(&self, verify: bool) -> bool {
        !verify && self.ready.rule.is_none()
    }

    fn done(&self, rows: &[Row], stored: &Stored, verified: u64) -> Done {
        self.notebook.forget(rows);
        Done::Stored { rows: stored.rows, verified, xid: stored.xid }
    }

    /// Begins a batch's transaction and takes the table's lock.
    async fn begin_batch(&self, client: &Client) -> Result<(), RunError> {
        let lock = sql::lock(&self.ready.relation.quoted());
        let began = Instant::now();
        let begin = format!("{}; {lock}", sql::begin(&self.settings()));
        let locked = client.batch_execute(&begin).await;
        self.keeper.lock_waited(began.elapsed());
        Ok(locked?)
    }

    /// The statements of all batches, prepared once on each connection: where the table's lock is held,
    /// since the server takes one to parse them and here waits no longer than it should.
    async fn statements(&self, connection: &Connection) -> Result<Statements, RunError> {
        let (table, targets) = (self.ready.relation.quoted(), &self.ready.targets);
        let prune = sql::prune(&table);
        let (lock, update, parameters) = match &self.ready.rule {
            None => (None, sql::update(&table, targets), vec![Type::TEXT_ARRAY]),
            Some(rule) => (
                Some(policy_sql::lock(&table)),
                policy_sql::update(&table, targets, &rule.methods),
                vec![Type::INT2_ARRAY; targets.len()],
            ),
        };
        let parse = async || -> Result<Statements, RunError> {
            Ok(Statements {
                prune: connection.prepared(&prune, &[Type::TEXT, Type::TEXT]).await?,
                lock: match &lock {
                    Some(lock) => Some(connection.prepared(lock, &[Type::TEXT_ARRAY]).await?),
                    None => None,
                },
                update: connection.prepared(&update, &parameters).await?,
            })
        };
        let mut texts = [Some(&prune), lock.as_ref(), Some(&update)].into_iter().flatten();
        if texts.all(|sql| connection.knows(sql)) {
            return parse().await;
        }
        let parsed = async {
            self.begin_batch(connection.client()).await?;
            parse().await
        };
        let parsed = parsed.await;
        let ended = connection.client().batch_execute("ROLLBACK").await;
        let statements = parsed?;
        ended?;
        Ok(statements)
    }

    /// A trigger may change other columns for reasons of its own.
    fn hashes_whole_rows(&self) -> bool {
        !self.ready.triggers_fire
    }

    /// Locks those of the rows that nobody else has locked. Gives their addresses and hashes.
    async fn lock_and_hash(
        &self,
        client: &Client,
        addresses: &Vec<String>,
    ) -> Result<(Vec<String>, Vec<i64>), RunError> {
        let table = self.ready.relation.quoted();
        let sql = sql::lock_and_hash(&table, &self.ready.targets, self.hashes_whole_rows());
        let locked = client.query_typed(&sql, &[(addresses, Type::TEXT_ARRAY)]).await?;
        let (mut ctids, mut hashes) = (Vec::new(), Vec::new());
        for row in &locked {
            ctids.push(row.try_get(0)?);
            hashes.push(row.try_get(1)?);
        }
        Ok((ctids, hashes))
    }

    /// Whether the rows hold now what they held when they were locked.
    async fn compare(
        &self,
        client: &Client,
        stored: &Stored,
        locked: &[String],
        mut before: Vec<i64>,
    ) -> Result<(), RunError> {
        let Stored { rows: updated, ctids: now, .. } = stored;
        if *updated != before.len() as u64 {
            return Err(RunError::HeldBack { locked: before.len(), updated: *updated });
        }
        let table = self.ready.relation.quoted();
        let sql = sql::hashes(&table, &self.ready.targets, self.hashes_whole_rows());
        let mut after: Vec<i64> = Vec::with_capacity(now.len());
        for row in client.query_typed(&sql, &[(now, Type::TEXT_ARRAY)]).await? {
            after.push(row.try_get(0)?);
        }
        before.sort_unstable();
        after.sort_unstable();
        if before != after {
            let near = locked.first().cloned().unwrap_or_default();
            return Err(RunError::Changed { rows: before.len(), near });
        }
        Ok(())
    }

    /// Whether the table was vacuumed. It never waits long: what is not done now is done later.
    async fn vacuum(&self, job: usize) -> Result<bool, RunError> {
        let connection = self.connection(job);
        let sql = sql::vacuum(&self.ready.relation.quoted());
        let canceller = connection.canceller();
        let client = connection.client();
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
            Err(error) if kind(&error) == Kind::Busy => {
                self.watch.note(&format!("{}: no vacuum now: it is locked", self.name()));
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// `None` if the table is locked just now.
    async fn sizes_now(&self) -> Result<Option<Sizes>, RunError> {
        match self.sizes().await {
            Err(LiveError::Server(error)) if kind(&error) == Kind::Busy => Ok(None),
            other => Ok(Some(other?)),
        }
    }

    async fn sizes(&self) -> Result<Sizes, LiveError> {
        gauges::sizes(&self.writer, self.ready.relation.oid).await
    }

    /// Bytes of WAL written since the cluster was made.
    async fn wal(&self) -> Result<u64, RunError> {
        Ok(gauges::wal(&self.writer).await?)
    }
}

/// Takes down what a job has done.
fn account(
    job: usize,
    finished: Finished,
    scanner: &mut Scanner<'_>,
    report: &mut TableReport,
) -> Result<Event, RunError> {
    Ok(match finished {
        Finished::Batch { done: Done::Stored { rows, verified, xid }, took, .. } => {
            scanner.ours.insert(xid);
            report.rows_stored += rows;
            report.rows_verified += verified;
            report.batches += u64::from(rows > 0);
            Event::BatchDone { job, rows, took }
        }
        Finished::Batch { done: Done::Busy, .. } => Event::BatchBusy(job),
        Finished::Batch { done: Done::Refused(reason), rows, .. } => {
            if let [row] = rows.as_slice() {
                if report.skipped.len() + 1 >= MAX_REFUSED {
                    return Err(RunError::TooManyRefused(reason));
                }
                report.skipped.push(SkippedRow { ctid: row.ctid.to_string(), reason });
            }
            Event::BatchRefused(job)
        }
        Finished::Vacuum(sizes, done) => {
            report.peak = report.peak.max(sizes);
            report.vacuums += u64::from(done);
            Event::Vacuumed(job)
        }
        Finished::Nothing => Event::Failed(job),
    })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
