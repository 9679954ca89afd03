//! Sweeps tables one at a time, and continues in new sessions if the sessions of a sweep have ended: the server ends a
//! session that leaves a transaction idle for too long, and networks fail.

use std::cell::Cell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_util::future::join;
use tokio::sync::Mutex;

use crate::command::table_words;
use crate::retoast::compact::run::Compaction;
use crate::retoast::error::{Result, RetoastError};
use crate::retoast::memory::checkpoint::Checkpoint;
use crate::retoast::memory::since::{Remembered, Since};
use crate::retoast::pace::ahead::PlanFacts;
use crate::retoast::preflight::Preflight;
use crate::retoast::preflight::ready::{PreparedTable, Task};
use crate::retoast::reindex::Reindex;
use crate::retoast::reindex::run::{Rebuilds, Reindexing};
use crate::retoast::result::{Outcome, TableReport, TaskReport};
use crate::retoast::run::free_space;
use crate::retoast::run::request::{AT_ONCE, Request, Tasks};
use crate::retoast::run::results::Results;
use crate::retoast::run::sessions::{Sessions, WorkerSessions};
use crate::retoast::sweep::conversion::Conversion;
use crate::retoast::sweep::scanner::SeenRows;
use crate::retoast::task::guard::{Guard, KnownDefinition, Reading, TaskEnd, subject};
use crate::retoast::{reindex, verdict};
use crate::server::sink::{Failed, Kind};
use crate::server::{LiveError, Pageinspect};
use toast_format::disk::Oid;
use toast_format::judge::{FormJudge, Judge};

/// How many times in a row sessions may end without a row being re-toasted.
const ENDS: u32 = 5;
/// The note shown if compaction would follow a conversion that was only planned.
const COMPACTED_LATER: &str = "compaction then returns what these rows no longer take and what is free already; how much exactly is known only \
                               when all values are stored as requested";

/// What is done to tables, and where results go.
#[derive(Clone, Copy)]
pub(crate) struct TablesRun<'a, 'r> {
    pub(crate) sessions: &'a Sessions<'a>,
    pub(crate) request: &'a Request,
    pub(crate) tasks: &'a Tasks,
    pub(crate) results: &'a Results<'r>,
}

/// The tables that workers take, and what all sweeps share.
pub(crate) struct Tables<'a, 'r> {
    pub(crate) run: TablesRun<'a, 'r>,
    pub(crate) tables: &'a [PreparedTable],
    pub(crate) pages: Option<&'a Pageinspect>,
    pub(crate) checkpoint: Option<&'a Checkpoint>,
    pub(crate) memory: Option<&'a Remembered>,
    /// Whether rows of a table would not fit an index.
    pub(crate) unfit: Cell<bool>,
    /// The first table that no worker has begun.
    pub(crate) next: Cell<usize>,
    /// In a dry run, what was read of the tables that come next.
    pub(crate) ahead: Mutex<Ahead>,
}

/// What plans need to know of tables that come next.
#[derive(Default)]
pub(crate) struct Ahead {
    facts: HashMap<Oid, PlanFacts>,
    /// The first table of which nothing was read yet.
    end: usize,
    /// When they were read.
    read: Option<Instant>,
}

/// How long these facts are used: the tables before may be large.
const FRESH: Duration = Duration::from_secs(10);

impl Tables<'_, '_> {
    fn take(&self) -> Option<(usize, &PreparedTable)> {
        if self.run.sessions.stopped() {
            return None;
        }
        let position = self.next.get();
        self.next.set(position.saturating_add(1));
        Some((position, self.tables.get(position)?))
    }

    /// Whether a table was not begun, or not converted to the end.
    pub(crate) fn are_left(&self) -> bool {
        self.run.results.is_incomplete() || self.next.get() < self.tables.len()
    }

    /// After this call, no further table is begun.
    fn stop_taking_tables(&self) {
        self.next.set(self.tables.len());
    }

    /// In a dry run, what its plan needs to know of the table at this position: many tables are read together. A run that
    /// writes reads what it needs of each table when it comes to it.
    async fn ahead(&self, worker: &WorkerSessions<'_>, position: usize) -> Option<PlanFacts> {
        if !self.run.request.options.dry_run || self.run.tasks.convert.is_none() {
            return None;
        }
        let mut ahead = self.ahead.lock().await;
        if position >= ahead.end || ahead.read.is_none_or(|then| then.elapsed() > FRESH) {
            let end = position.saturating_add(AT_ONCE).min(self.tables.len());
            let tables = self.tables.get(position..end)?;
            let connection = &worker.connections.writer;
            ahead.facts = match PlanFacts::ask(connection, &worker.throttle, tables).await {
                Ok(facts) => facts,
                // what concerns one table is met when it is read by itself, and does not affect the others
                Err(error) => {
                    tracing::debug!("tables are read one by one: {error}");
                    HashMap::new()
                }
            };
            (ahead.end, ahead.read) = (end, Some(Instant::now()));
        }
        let oid = self.tables.get(position)?.relation.oid;
        ahead.facts.remove(&oid)
    }

    /// Sweeps tables that no other worker has begun, until none is left or one fails for a reason that affects them
    /// all.
    pub(crate) async fn work(&self, worker: &mut WorkerSessions<'_>) {
        while let Some((position, ready)) = self.take() {
            let name = ready.relation.display_name();
            let mut doubt = None;
            let client = worker.connections.writer.client();
            let known = match self.memory {
                Some(memory) => memory.since(client, ready).await,
                None => Ok(Ok(None)),
            };
            let since = match known {
                Ok(Ok(since)) => since,
                Ok(Err(why)) => {
                    doubt = Some(format!("--since: all rows are examined: {why}"));
                    None
                }
                Err(error) => {
                    let error = RetoastError::from(error);
                    let failed = error.failed_on(&name, &worker.connections.to_vec()).await;
                    self.run.results.failed(position, failed);
                    if error.ends_run() {
                        return self.stop_taking_tables();
                    }
                    continue;
                }
            };
            let ahead = self.ahead(worker, position).await;
            if let Some(doubt) = &doubt {
                self.run.sessions.listener.note(Some(&name), doubt);
            }
            let (mut report, failed) = self.work_on(worker, ready, since, ahead.as_ref()).await;
            if let Some(report) = &mut report {
                report.common.notes.extend(doubt);
                self.measure_free_space(worker, ready, report).await;
            }
            if let Some(failed) = failed {
                self.run.results.failed(position, failed);
            }
            if report.is_some_and(|report| !self.run.results.found(position, report)) {
                self.stop_taking_tables();
            }
        }
    }

    /// Runs one task after another on a table.
    async fn work_on(
        &self,
        worker: &mut WorkerSessions<'_>,
        ready: &PreparedTable,
        since: Option<Since>,
        mut ahead: Option<&PlanFacts>,
    ) -> (Option<TableReport>, Option<Failed>) {
        let mut task = self.run.tasks.first();
        let mut report: Option<TableReport> = None;
        let mut failed: Option<Failed> = None;
        let mut prepared_again: Option<PreparedTable> = None;
        let error = loop {
            let table = prepared_again.as_ref().unwrap_or(ready);
            let (done, ended) = self.run_task(worker, table, task, since, ahead.take()).await;
            match (&mut report, done) {
                (None, done) => {
                    let subject = subject(ready, self.pages, &self.run.sessions.server);
                    report = done.map(|done| TableReport::new(subject, done));
                    // This is recorded at once, because what follows may be stopped or killed.
                    if let (Some(memory), Some(report)) = (self.memory, &report)
                        && report.outcome == Outcome::Complete
                        && let Some(proof) = &report.converted.proof
                        && let Err(error) = memory.remember(ready, proof)
                    {
                        failed = Some(Failed::new(Kind::Incomplete, error.to_string()));
                    }
                }
                (Some(report), Some(done)) => {
                    let outcome =
                        verdict::of_both(report.outcome, done.work.headed(), done.outcome);
                    report.append_task(done, outcome);
                }
                (Some(report), None) if ended.is_err() => report.outcome = Outcome::Failed,
                (Some(_), None) => {}
            }
            if let Err(error) = ended {
                break Some(error);
            }
            let Some(report) = &mut report else { break None };
            let planned = matches!(task, Task::Convert(_)) && report.outcome == Outcome::Planned;
            if planned && self.run.tasks.compact.is_some() {
                report.common.notes.push(COMPACTED_LATER.to_owned());
            }
            let Some(next) = self.run.tasks.next(task, report.outcome) else {
                let converted = matches!(task, Task::Convert(_));
                if converted && report.outcome == Outcome::Incomplete {
                    report.common.notes.extend(self.left_out(ready));
                }
                break None;
            };
            task = next;
            // The task before may have changed settings of columns.
            match self.prepare_again(worker, ready, task).await {
                Ok(now) => prepared_again = Some(now),
                Err(error) => break Some(error),
            }
        };
        let Some(error) = error else { return (report, failed) };
        if error.ends_run() {
            self.stop_taking_tables();
        }
        if matches!(error, RetoastError::Unfit(_)) {
            self.unfit.set(true);
        }
        let name = ready.relation.display_name();
        let mut failed = error.failed_on(&name, &worker.connections.to_vec()).await;
        if matches!(error, RetoastError::Live(_)) {
            failed = failed.without_detail();
        }
        if let Some(report) = &mut report {
            report.common.is_lost = failed.kind == Kind::Lost;
        }
        (report, Some(failed))
    }

    /// What was requested and does not follow a conversion that is incomplete.
    fn left_out(&self, ready: &PreparedTable) -> Option<String> {
        let (what, verb) = match (self.run.tasks.compact, self.run.tasks.reindex) {
            (Some(_), _) => ("compaction", "compact"),
            (None, Reindex::Bloated | Reindex::All) => ("the rebuild of indexes", "reindex"),
            (None, Reindex::Never) => return None,
        };
        let table = table_words(&ready.relation.schema, &ready.relation.name);
        Some(format!(
            "{what} was left out, because not all values are stored as requested: toastctl {verb} {table} does it"
        ))
    }

    /// Measures the free space in a table's files after a sweep.
    async fn measure_free_space(
        &self,
        worker: &WorkerSessions<'_>,
        ready: &PreparedTable,
        report: &mut TableReport,
    ) {
        let server = &self.run.sessions.server;
        if matches!(report.outcome, Outcome::Planned | Outcome::Failed) {
            return;
        }
        let page = server.page_size;
        let table = ready.relation.oid;
        // After a complete conversion, uncompressed out-of-line values were tried and do not compress.
        let settled =
            match (verdict::concluded(report), ready.choice.as_ref().map(|choice| &choice.judge)) {
                (Outcome::Complete, Some(Judge::Forms(FormJudge::Stock(_)))) => {
                    ready.targets.iter().map(|target| target.index).collect()
                }
                _ => Vec::new(),
            };
        let TableReport { subject, indexes, gains, .. } = report;
        let name = &subject.relation;
        let look_for_bloat = async {
            if self.run.tasks.reindex != Reindex::Never {
                return;
            }
            let reader = &worker.connections.reader;
            match reindex::run::bloated(reader, self.pages, page, table).await {
                Ok(bloated) => *indexes = bloated,
                Err(error) => tracing::debug!("{name}: indexes: {error}"),
            }
        };
        let look_for_space = async {
            if self.pages.is_none() || server.has_toasters {
                return;
            }
            let look = free_space::FreeSpaceScan {
                connection: &worker.connections.writer,
                server,
                reading: Reading { ready, known: None },
                settled: &settled,
            };
            match look.free_space().await {
                Ok(found) => *gains = found,
                Err(error) => tracing::debug!("{name}: free space: {error}"),
            }
        };
        join(look_for_bloat, look_for_space).await;
    }

    /// Prepares a table again that was worked on.
    async fn prepare_again(
        &self,
        worker: &mut WorkerSessions<'_>,
        ready: &PreparedTable,
        task: Task<'_>,
    ) -> Result<PreparedTable> {
        let server = &self.run.sessions.server;
        let oid = ready.relation.oid;
        let mut ends = 0;
        let looked = loop {
            let writer = worker.connections.writer.client();
            let approval = self.run.request.approval;
            let looked = Preflight { client: writer, server, task, approval }.table(oid).await;
            let Err(RetoastError::Live(error)) = &looked else { break looked };
            ends += 1;
            if ends >= ENDS || !self.goes_on(worker, &ready.relation.display_name(), error).await {
                break looked;
            }
        };
        match looked {
            Ok(Some(mut now)) => {
                now.code.trust_as(&ready.code, &now.relation.display_name())?;
                Ok(now)
            }
            Ok(None) => Err(RetoastError::dropped()),
            Err(error) => Err(error),
        }
    }

    /// Runs one task on a table, in as many sessions as necessary.
    async fn run_task(
        &self,
        worker: &mut WorkerSessions<'_>,
        ready: &PreparedTable,
        task: Task<'_>,
        since: Option<Since>,
        ahead: Option<&PlanFacts>,
    ) -> TaskEnd {
        let name = ready.relation.display_name();
        let seen_rows = SeenRows::default();
        let rebuilds = Rebuilds::default();
        let mut earlier: Option<TaskReport> = None;
        let mut ends: u32 = 0;
        let known = KnownDefinition::default();
        loop {
            let TablesRun { sessions, request, .. } = self.run;
            let mut session = sessions.session(worker, &request.options, self.pages);
            // A single job is used, because the transactions of others would wait for its lock.
            if ready.code.blocks_create_statistics() {
                session.connections.others.clear();
            }
            let guard = Guard { session: &session, ready, known: &known, ahead };
            let checkpoint = self.checkpoint;
            let (mut report, ended) = match (task, &ready.choice) {
                (Task::Convert(_), Some(choice)) => {
                    let conversion = Conversion {
                        checkpoint,
                        since,
                        afterwards: self.run.tasks.afterwards(),
                        ..Conversion::new(guard, choice, &seen_rows)
                    };
                    conversion.run().await
                }
                // There is no choice to convert to.
                (Task::Convert(_), None) => (None, Ok(())),
                (Task::Compact(request), _) => {
                    let converted = self.run.tasks.convert.is_some();
                    Compaction { guard, request, converted }.run().await
                }
                (Task::Reindex(request), _) => {
                    Reindexing { guard, request, rebuilds: &rebuilds, checkpoint }.run().await
                }
            };
            ends = match &report {
                Some(report) if report.common.rows.stored > 0 => 0,
                _ => ends + 1,
            };
            if let (Some(report), Some(earlier)) = (&mut report, earlier.take()) {
                report.resume(earlier);
            }
            match &ended {
                Err(RetoastError::Live(error)) if ends < ENDS => {
                    if !self.goes_on(worker, &name, error).await {
                        return (report, ended);
                    }
                }
                _ => return (report, ended),
            }
            earlier = report;
        }
    }

    /// Whether new sessions have replaced those whose end this error reports: the server ended one, the network failed,
    /// or the server was restarted.
    async fn goes_on(
        &self,
        worker: &mut WorkerSessions<'_>,
        name: &str,
        error: &LiveError,
    ) -> bool {
        if self.run.sessions.stopped() {
            return false;
        }
        let Some(end) = worker.end(error).await else { return false };
        // An administrator may have ended only this session, on purpose.
        if end.by_administrator && !self.run.sessions.restarted(worker).await {
            return false;
        }
        self.run
            .sessions
            .listener
            .note(Some(name), &format!("a session has ended: {}", end.reason));
        let renewed = self.run.sessions.renew(worker).await.is_ok();
        if renewed {
            self.run.sessions.listener.note(Some(name), "continuing in a new session");
        }
        renewed
    }
}
