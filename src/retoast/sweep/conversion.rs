//! Carries out the machine's actions on one table: scans, batches, vacuums and waits.

use std::ops::Range;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rand::RngExt;

use crate::retoast::error::{Result, RetoastError, unfit};
use crate::retoast::forecast::Afterwards;
use crate::retoast::listener::Advance;
use crate::retoast::memory::checkpoint::{Checkpoint, TableFile};
use crate::retoast::memory::since::{CutOff, Since, proven_now};
use crate::retoast::pace::course::Course;
use crate::retoast::pace::metrics;
use crate::retoast::pace::rules::WorkKind;
use crate::retoast::plan::{FirstScan, Forecast, Plan, RunForecast, Sizes};
use crate::retoast::preflight::definition::Files;
use crate::retoast::preflight::ready::{Choice, PreparedTable};
use crate::retoast::result::{Common, Converted, Outcome, REWRITTEN, SkippedRow, TaskReport, Work};
use crate::retoast::sql;
use crate::retoast::sweep::dead_entries::DeadIndexEntries;
use crate::retoast::sweep::keys::{Condition, Keys};
use crate::retoast::sweep::machine::{Action, Event, Extent, Machine, Row, SweepEnd};
use crate::retoast::sweep::scanner::{RUN, RUNS, RuleScan, Sampled, Scanned, Scanner, SeenRows};
use crate::retoast::task::guard::{BatchEnd, Guard, LIMIT, Reason, TaskEnd};
use crate::retoast::task::session::{Session, Tuning, millis};
use crate::retoast::task::vacuum::Unvacuumed;
use crate::retoast::verdict;
use toast_format::disk::Storage;
use toast_format::fill::file_model::EARLY;
use toast_format::heap::sample::SpreadBlocks;
use toast_format::judge::toaster::Changes;
use toast_format::model::Interval;

/// How often the table is scanned again because another session has rewritten it.
const MOST_REWRITTEN: u32 = 5;
/// A pause of this length ends a scan's snapshot, because it holds back vacuum.
const LONG_PAUSE: Duration = Duration::from_secs(5);
/// How often a paused scan checks whether to release its snapshot and its lock, for which a rewrite of the table may
/// be waiting.
const GLANCE: Duration = Duration::from_millis(200);

/// The conversion of one table.
pub(crate) struct Conversion<'a> {
    pub(crate) guard: Guard<'a>,
    pub(crate) choice: &'a Choice,
    /// Where the progress of scans is saved.
    pub(crate) checkpoint: Option<&'a Checkpoint>,
    /// What scans have seen of the rows that batches with a policy re-toast.
    pub(crate) seen_rows: &'a SeenRows,
    /// With a policy, the rows that an earlier run has proven to comply.
    pub(crate) since: Option<Since>,
    pub(crate) dead_entries: DeadIndexEntries,
    pub(crate) unvacuumed: Unvacuumed,
    pub(crate) afterwards: Afterwards,
}

/// What a plan says without a forecast.
const NO_FORECAST: &str = "WAL and growth could not be predicted; the plan has upper estimates";
/// Where this run need not change settings: nothing says whether an earlier one has.
const SET_EARLIER: &str = "the settings were as requested before this run; if an earlier run has set them, its \
                           line \"to restore\" has the former ones";

/// A forecast of which only the upper end is known.
fn at_most(bytes: u64) -> Forecast {
    let all = Interval { low: 0, estimate: bytes, high: bytes };
    Forecast { all, ..Forecast::default() }
}

/// The results of the conversion so far.
struct Progress {
    outcome: Outcome,
    common: Common,
    converted: Converted,
    /// Whether the server refused a row because it would not fit on a page, or in an index, in the chosen form.
    is_unfit: bool,
    /// The row that does not fit in an index, and the server's message.
    index_refusal: Option<String>,
    /// In a dry run, runs of pages with rows to re-toast.
    found_runs: SpreadBlocks,
}

impl Progress {
    fn new(ready: &PreparedTable, choice: &Choice, common: Common) -> Progress {
        let table = ready.relation.quoted();
        let last = choice.final_settings.as_ref();
        let converted = Converted {
            alter: choice.changes.statement(&table),
            alter_after: last.and_then(|last| last.changes.statement(&table)),
            ..Converted::default()
        };
        Progress {
            outcome: Outcome::Planned,
            common,
            converted,
            is_unfit: false,
            index_refusal: None,
            found_runs: SpreadBlocks::default(),
        }
    }
}

/// A task for a job.
enum Job {
    /// Rows to re-toast. Those that the condition `insist_on` finds are waited for.
    Batch { rows: Vec<Row>, verify: bool, insist_on: Option<Condition> },
    /// What to vacuum, and the fraction of the table that may be dead in it.
    Vacuum(Extent, f64),
}

/// The result of a job's task.
enum JobResult {
    Batch {
        rows: Vec<Row>,
        done: BatchEnd,
        took: Duration,
        insists: bool,
    },
    /// The sizes before the vacuum, what was vacuumed and how long that took, if anything was, and the number of
    /// vacuums.
    Vacuum(Sizes, Option<(Extent, Duration)>, u64),
    /// A stop was requested before the task began.
    Nothing,
}

impl<'a> Conversion<'a> {
    /// A conversion alone, of all rows.
    pub(crate) fn new(
        guard: Guard<'a>,
        choice: &'a Choice,
        seen_rows: &'a SeenRows,
    ) -> Conversion<'a> {
        Conversion {
            guard,
            choice,
            checkpoint: None,
            seen_rows,
            since: None,
            dead_entries: DeadIndexEntries::default(),
            unvacuumed: Unvacuumed::default(),
            afterwards: Afterwards::default(),
        }
    }
}

impl Conversion<'_> {
    /// Converts the table. If an error occurs, what was done before it is reported too.
    pub(crate) async fn run(&self) -> TaskEnd {
        let began = Instant::now();
        let (common, wal) = match self.guard.begin().await {
            Ok(begun) => begun,
            Err(error) => return (None, Err(error)),
        };
        let mut report = Progress::new(self.guard.ready, self.choice, common);
        let done = match self.work(&mut report).await {
            Err(error) => Err(self.unless_crashed(error, &mut report.common)),
            done => done,
        };
        report.common.effort.elapsed_ms = millis(began.elapsed());
        if done.is_err() {
            report.outcome = Outcome::Failed;
            for job in 0..self.guard.session.jobs() {
                // the connection may be lost, or no transaction may be open
                let _ = self.guard.session.rollback(job).await;
            }
        }
        let Progress { outcome, ref mut common, ref mut converted, is_unfit, .. } = report;
        self.guard.put_back(outcome, is_unfit, common, converted).await;
        self.undo_afterwards_too(converted);
        if converted.undo.is_none() && common.rows.stored > 0 && self.cannot_know_former() {
            common.note_once(SET_EARLIER.to_owned());
        }
        let forgotten = match self.checkpoint {
            Some(checkpoint) if outcome == Outcome::Complete || converted.undone => {
                checkpoint.settings_ended(self.guard.ready.relation.oid.0)
            }
            _ => Ok(()),
        };
        let ended = self.guard.end(&mut report.common, wal).await.and(forgotten);
        // if the run could not start, there is nothing to report
        let began = done.is_ok() || report.common.effort.scans > 0 || report.converted.altered;
        let Progress { outcome, common, converted, .. } = report;
        let report = TaskReport { outcome, common, work: Work::Convert(Box::new(converted)) };
        (began.then_some(report), done.and(ended))
    }

    /// Whoever goes back has the space given back again, as after the conversion.
    fn undo_afterwards_too(&self, report: &mut Converted) {
        if !report.undo_command.is_empty() {
            report.undo_command.extend(self.afterwards.options());
        }
    }

    async fn work(&self, report: &mut Progress) -> Result<()> {
        if !self.guard.is_watched() {
            self.guard.say_marks(&mut report.common.notes).await?;
            self.say_former(&mut report.common.notes);
        }
        self.prepare_readings().await?;
        let Guard { session, ready, .. } = self.guard;
        let Session { connections, server, pages, options, .. } = session;
        // the writer may be used for trials, because nothing is re-toasted while a scan reads
        let mut scanner = Scanner::new(
            &connections.reader,
            &connections.writer,
            server,
            ready,
            self.choice,
            *pages,
            RuleScan::new(self.seen_rows, self.since, options.dry_run),
        );
        scanner.reading = self.guard.reading();
        if ready.code.blocks_create_statistics() || !options.dry_run {
            self.guard.begin_watching().await?;
        }
        scanner.refuse_unfit(&self.guard).await?;
        report.common.notes.extend(scanner.refuse_long_entries(&self.guard).await?);
        if options.dry_run {
            return self.sweep(&mut scanner, report).await;
        }
        report.converted.predicted = self.predict(&mut scanner, report.common.before).await?;
        self.count_held().await?;
        if self.choice.final_settings.is_none() {
            self.set_choice().await?;
        }
        let mut times = 0;
        let mut rewritten = 0;
        let done = loop {
            match self.sweep(&mut scanner, report).await {
                Err(RetoastError::Rewritten) if rewritten < MOST_REWRITTEN => {
                    rewritten += 1;
                    self.guard.note(&format!("{REWRITTEN}: all rows are read again"));
                }
                Err(RetoastError::Changing) => {
                    // the last batch may have stored rows under settings that another session had changed
                    scanner.ours.clear();
                    if let Err(error) = self.guard.set_right(times).await {
                        break Err(error);
                    }
                    times += 1;
                }
                other => break other,
            }
        };
        let left = match &report.index_refusal {
            Some(_) => Ok(()),
            None => self.set_finally(report.common.rows.found > 0).await,
        };
        if left.is_err() || report.index_refusal.is_some() {
            report.converted.alter_after = None;
        }
        if left.is_ok()
            && (self.choice.final_settings.is_some() || report.outcome == Outcome::Complete)
        {
            self.guard.unmark().await?;
        }
        done.and(left)
    }

    async fn sweep(&self, scanner: &mut Scanner<'_>, report: &mut Progress) -> Result<()> {
        let began = Instant::now();
        let Session { options, .. } = *self.guard.session;
        let jobs = self.guard.session.jobs();
        let mut machine = Machine::new(Tuning { jobs, ..options.tuning });
        if !self.choice.judge.new_values_comply() {
            machine.cut_off = true;
            scanner.by_rule.cut_off = None;
        }
        let saved = self.saved().await?;
        if let Some((checkpoint, place)) = saved {
            machine.start = checkpoint.start(place);
        }
        // with a policy, a scan may hold no snapshot, so a rewrite could move rows from blocks not yet read to blocks
        // already read
        let files = if self.choice.judge.new_values_comply() || options.dry_run {
            None
        } else {
            Some(self.guard.files().await?)
        };
        let scans = report.common.effort.scans;
        let mut sweep = Sweep {
            conversion: self,
            machine,
            scanner,
            report,
            saved,
            began,
            scan_began: (0, began),
            course: Course::default(),
            keys: Keys::default(),
            prepared: false,
            failed: None,
        };
        let end = sweep.steps().await;
        sweep.conclude(end, scans, files).await
    }

    /// Whether the lock that prevents the creation of statistics keeps other sessions waiting while a scan holds it.
    async fn keeps_others_from_reading(&self) -> Result<bool> {
        if !self.guard.ready.code.blocks_create_statistics() {
            return Ok(false);
        }
        let pid = self.guard.session.reader().process().await?;
        Ok(self.guard.session.throttle.kept_waiting(pid).await?.is_some())
    }

    /// Logs an action of the machine.
    fn tell_of(&self, action: &Action) {
        let name = self.guard.name();
        match action {
            Action::BeginScan => tracing::debug!("{name}: a scan begins"),
            Action::Batch(job, rows) => {
                tracing::debug!("{name}: job {job}: a batch of {} rows", rows.len());
            }
            Action::Insist(job, rows) => {
                let row = rows.first().map_or_else(String::new, |row| row.ctid.to_string());
                tracing::debug!("{name}: job {job}: row {row} and its like, waiting for locks");
            }
            Action::Vacuum(job, extent, part) => {
                let percent = part * 100.0;
                tracing::debug!(
                    "{name}: job {job}: VACUUM of the {}, {percent:.1} % may be dead",
                    extent.name()
                );
            }
            Action::Sleep(time, reason) => {
                tracing::debug!("{name}: {} ms of waiting: {}", time.as_millis(), reason.text());
            }
            Action::Finish(end) => tracing::debug!("{name}: the end: {}", end.name()),
            Action::Scan(_) | Action::Wait => {}
        }
    }

    /// Changes the settings that must be changed before rows are re-toasted.
    pub(crate) async fn set_choice(&self) -> Result<()> {
        self.keep_former(&self.choice.changes)?;
        self.guard.set_choice(&self.choice.changes).await
    }

    /// Reports how the present settings can be restored after these changes, before they are made, and saves it: a kill
    /// must not erase it.
    pub(crate) fn keep_former(&self, changes: &Changes) -> Result<()> {
        let Some(undo) = self.guard.undo_of(changes) else { return Ok(()) };
        self.guard.note(&format!("to restore: {undo}"));
        let Some(checkpoint) = self.checkpoint else { return Ok(()) };
        checkpoint.settings_change(self.guard.ready.relation.oid.0, &undo)
    }

    /// Reports what an earlier run has saved about settings that it changed.
    fn say_former(&self, notes: &mut Vec<String>) {
        let Some(checkpoint) = self.checkpoint else { return };
        for undo in checkpoint.former_settings(self.guard.ready.relation.oid.0) {
            let text = format!(
                "an earlier run has changed the settings; to restore those before it: {undo}"
            );
            self.guard.note(&text);
            notes.push(text);
        }
    }

    /// Whether the settings were as requested before this run, and nothing says whether an earlier one has set them.
    fn cannot_know_former(&self) -> bool {
        let table = self.guard.ready.relation.oid.0;
        let is_kept = self.checkpoint.is_some_and(|kept| !kept.former_settings(table).is_empty());
        self.guard.ready.was_set_before() && !is_kept
    }

    /// Where the progress of scans is saved, if it is, and what identifies the table there.
    async fn saved(&self) -> Result<Option<(&Checkpoint, TableFile)>> {
        let Some(checkpoint) = self.checkpoint else { return Ok(None) };
        if self.guard.session.options.dry_run {
            return Ok(None);
        }
        let oid = self.guard.ready.relation.oid;
        let filenode = metrics::filenode(self.guard.session.writer(), oid).await?;
        Ok(Some((checkpoint, TableFile { oid: oid.0, filenode })))
    }

    /// The plan of the conversion, based on a scan that took this long.
    async fn plan(
        &self,
        report: &Progress,
        scanner: &mut Scanner<'_>,
        scan: Duration,
    ) -> Result<Plan> {
        let Guard { session, ready, .. } = self.guard;
        let options = session.options;
        let around = match self.guard.ahead {
            Some(known) => known.surroundings.clone(),
            None => {
                let client = session.writer();
                let oid = ready.relation.oid;
                let logged = metrics::logged(client, &[oid]).await?;
                let mut found = metrics::surroundings(client, &[ready], &logged).await?;
                found.remove(&oid).unwrap_or_default()
            }
        };
        let bloat = options.tuning.max_bloat;
        let mut statements = vec![
            self.guard.begin_sql(self.guard.ready.replica_role),
            sql::update(&ready.relation.quoted(), &ready.targets),
            "COMMIT".to_owned(),
        ];
        for extent in [Extent::Toast, Extent::Table] {
            let vacuum = self.vacuum_of(0, extent, EARLY * bloat).await?;
            statements.extend(vacuum.map(|(_, sql)| sql).filter(|sql| !statements.contains(sql)));
        }
        let rows = report.common.rows.found;
        let runs = report.found_runs.blocks();
        let found = self.forecast(scanner, report.common.before, runs, Some(rows)).await?;
        self.check_space(found).await?;
        let expected = match found {
            Some(expected) => expected,
            None => {
                self.guard.note(NO_FORECAST);
                let wal = at_most(session.throttle.expected_wal(ready, rows > 0).await?);
                let growth = (report.common.before.sum() as f64 * bloat * 2.0) as u64;
                RunForecast { rows, wal, growth: at_most(growth), rows_bytes: None }
            }
        };
        let found = FirstScan {
            expected,
            scan,
            alter: report.converted.alter.clone(),
            statements,
            ..self.first_scan()
        };
        Ok(Plan::new(&found, &around))
    }

    /// Runs a job's task as soon as there is no reason to wait.
    async fn run_job(&self, job: usize, task: Job) -> (usize, Result<JobResult>) {
        (job, self.work_on(job, task).await)
    }

    async fn work_on(&self, job: usize, task: Job) -> Result<JobResult> {
        let work = match task {
            Job::Batch { .. } => WorkKind::Batch,
            Job::Vacuum(..) => WorkKind::Vacuum,
        };
        self.guard.session.pass(work, job).await?;
        if self.guard.session.stopped() {
            return Ok(JobResult::Nothing);
        }
        match task {
            Job::Batch { rows, verify, insist_on } => {
                let started = Instant::now();
                let done = self.batch(job, &rows, verify, insist_on.as_ref()).await?;
                let took = started.elapsed();
                if let BatchEnd::Stored { xid, rows: stored, .. } = done {
                    let values = rows.iter().map(|row| row.stored).sum();
                    let dead = rows.iter().map(|row| row.dead).sum();
                    self.guard.session.throttle.batch_done(took, values, dead, xid);
                    if stored > 0 {
                        self.guard.session.throttle.patience.reset_wait();
                    }
                }
                Ok(JobResult::Batch { rows, done, took, insists: insist_on.is_some() })
            }
            Job::Vacuum(extent, part) => {
                let sizes = self.guard.session.throttle.sizes();
                if !self.vacuum_pays_soon(job).await? {
                    tracing::debug!("{}: no VACUUM: it would remove too little", self.guard.name());
                    return Ok(JobResult::Vacuum(sizes, None, 0));
                }
                let (done, times) = self.vacuum(job, extent, part).await?;
                Ok(JobResult::Vacuum(sizes, done, times))
            }
        }
    }

    /// Ends the conversion at a row that does not fit in an index: new rows with such values do not either.
    fn stop_at_index(&self, row: &str) -> Result<Event> {
        unfit(format!(
            "{row}: stopped, because with {} new rows with such values are refused too\n\
             HINT:  Rows that were re-toasted before stay as they are. Choose another toaster, or replace the index by \
             one USING hash, or on an expression such as md5(column) or left(column, 500).",
            self.choice.judge.choice()
        ))
    }

    /// With a policy, determines which rows the scan that begins now covers. Later scans cover the same rows as the
    /// second one, and ignore rows written after it began.
    async fn begin_proof(
        &self,
        machine: &Machine,
        by_rule: &mut RuleScan<'_>,
        report: &mut Progress,
    ) -> Result<()> {
        if self.choice.judge.new_values_comply() || by_rule.cut_off.is_some() {
            return Ok(());
        }
        let now = proven_now(self.guard.session.writer(), self.guard.ready).await?;
        if machine.is_cut_off() {
            by_rule.cut_off = Some(CutOff(now.snapshot.clone()));
        }
        report.converted.horizon = Some(now.snapshot.oldest_xid());
        report.converted.proof = Some(now);
        Ok(())
    }
}

/// A sweep: the machine, what it works with, and what it has done.
struct Sweep<'s, 'a, 'b> {
    conversion: &'s Conversion<'a>,
    machine: Machine,
    scanner: &'s mut Scanner<'b>,
    report: &'s mut Progress,
    saved: Option<(&'s Checkpoint, TableFile)>,
    began: Instant,
    /// The current scan, and when it began.
    scan_began: (u32, Instant),
    course: Course,
    keys: Keys,
    /// Whether batches are prepared.
    prepared: bool,
    /// The error that ends the sweep once all jobs have ended.
    failed: Option<RetoastError>,
}

impl<'s> Sweep<'s, '_, '_> {
    /// Carries out the machine's actions until it ends.
    async fn steps(&mut self) -> Result<SweepEnd> {
        let mut under_way = FuturesUnordered::new();
        let conversion: &'s Conversion<'_> = self.conversion;
        let guard = &conversion.guard;
        let session = guard.session;
        loop {
            if session.stopped() {
                self.machine.note(Event::Stop, 0.0);
            }
            let action = self.machine.next_action();
            conversion.tell_of(&action);
            let event = match action {
                Action::Finish(end) => return self.failed.take().map_or(Ok(end), Err),
                Action::Sleep(time, reason) => {
                    guard.wait(time, reason).await;
                    continue;
                }
                Action::BeginScan => {
                    let Some(begun) = self.begin_scan().await? else { continue };
                    begun
                }
                Action::Scan(blocks) => self.scan(blocks).await?,
                Action::Batch(job, rows) => {
                    under_way.push(conversion.run_job(job, self.batch(rows, false).await?));
                    continue;
                }
                Action::Insist(job, rows) => {
                    let insists = !conversion.needs_versions();
                    under_way.push(conversion.run_job(job, self.batch(rows, insists).await?));
                    continue;
                }
                Action::Vacuum(job, extent, part) => {
                    under_way.push(conversion.run_job(job, Job::Vacuum(extent, part)));
                    continue;
                }
                Action::Wait => {
                    let Some((job, finished)) = under_way.next().await else { continue };
                    self.note_finished(job, finished)
                }
            };
            self.machine.note(event, rand::rng().random());
            if !self.machine.may_prove() {
                self.scanner.release().await?;
            }
            self.machine.others = session.throttle.others_are_active();
            self.report_progress();
        }
    }

    /// Checks that the table is still what the last scan has read, and reports the results. `scans`: those of sweeps
    /// before; `files`: the table's files when this one began, if it must not have others now.
    async fn conclude(self, end: Result<SweepEnd>, scans: u32, files: Option<Files>) -> Result<()> {
        let Sweep { conversion, machine, scanner, report, saved, began, .. } = self;
        let guard = &conversion.guard;
        let Session { options, throttle, listener, .. } = guard.session;
        let effort = &mut report.common.effort;
        effort.scans = scans + machine.counts.scans;
        effort.retries += machine.counts.retries;
        effort.longest_batch_ms = effort.longest_batch_ms.max(millis(machine.counts.longest_batch));
        let released = scanner.release().await;
        let end = end?;
        if !options.dry_run && end != SweepEnd::Stopped {
            // settings that were changed during the last scan are not those that were chosen
            if !guard.is_unchanged().await? {
                return Err(RetoastError::Changing);
            }
            if let Some(files) = &files {
                guard.still_has(files).await?;
            }
        }
        released?;
        report.common.notes.append(&mut scanner.seen.hints);
        let unvacuumed = conversion.unvacuumed.messages().into_iter().map(SkippedRow::elsewhere);
        for row in scanner.seen.problems.iter().cloned().chain(unvacuumed) {
            listener.refused(&guard.name(), &row);
            report.common.skipped.push(row);
        }
        let targets = &scanner.ready.targets;
        let forms = scanner.seen.tally.form_reports(targets);
        if report.common.effort.scans <= 1 {
            report.converted.forms_before.clone_from(&forms);
        }
        // a scan that was stopped has met rows that were stored anew after it had read them
        report.converted.forms_after = if end == SweepEnd::Stopped { Vec::new() } else { forms };
        report.converted.forms_planned = scanner.seen.planned.form_reports(targets);
        report.converted.rows_written_since = scanner.seen.written_since;
        if options.dry_run {
            let plan = conversion.plan(report, scanner, began.elapsed()).await?;
            let warnings = throttle.slot_warnings(plan.wal_bytes.all.high).await?;
            report.common.notes.extend(warnings);
            if plan.wal_bytes.all.high > 0 {
                let effect = "the run pauses once they take as much as max-bloat allows";
                report.common.notes.extend(throttle.would_wait(effect).await);
            }
            report.converted.plan = Some(plan);
            guard.plan_undo(&conversion.choice.changes, &report.common, &mut report.converted);
        } else {
            if let Some((checkpoint, place)) = saved {
                checkpoint.end(place, end == SweepEnd::Complete)?;
            }
            let left = machine.left();
            let rows = &mut report.common.rows;
            rows.left = (end != SweepEnd::Stopped).then(|| left.sum() + scanner.seen.misread);
            (rows.disagreeing, rows.spared) = (left.disagreeing, left.spared);
            rows.undecided = scanner.seen.undecided;
        }
        if report.common.rows.stored > 0 {
            // what is reported as done must survive a crash of the server
            guard.session.writer().batch_execute(sql::FLUSH).await?;
        }
        let is_whole = report.common.skipped.is_empty();
        report.outcome = verdict::of_conversion(end, is_whole, options.dry_run);
        Ok(())
    }

    /// Reads these blocks, once the throttle allows it, and returns the rows that do not comply.
    async fn scan(&mut self, blocks: Range<u32>) -> Result<Event> {
        let guard = &self.conversion.guard;
        self.pass_scan().await?;
        if let Some((checkpoint, place)) = self.saved {
            checkpoint.at(place, blocks.start)?;
        }
        let held = self.scanner.held.is_some();
        let began = Instant::now();
        let rows = self.scanner.read(guard, blocks.clone()).await?;
        self.course.has_read(blocks.len() as u32, began.elapsed());
        let name = guard.name();
        tracing::debug!("{name}: {} rows differ in {} blocks", rows.len(), blocks.len());
        if held && self.scanner.held.is_none() {
            self.machine.note(Event::SnapshotLost, 0.0);
        }
        self.note_found(&rows);
        if self.machine.insists() {
            self.keys.note(guard, self.scanner, &rows).await?;
        }
        // a plan is based on a single scan
        Ok(Event::Scanned(if guard.session.options.dry_run { Vec::new() } else { rows }))
    }

    /// A batch of these rows, which waits for their locks if it `insists`.
    async fn batch(&mut self, rows: Vec<Row>, insists: bool) -> Result<Job> {
        let conversion = self.conversion;
        let guard = &conversion.guard;
        // with a policy, there is only one job
        if !std::mem::replace(&mut self.prepared, true) {
            conversion.prepare_batches().await?;
            conversion.dead_entries.learn(guard).await?;
        }
        let computed = guard.ready.computed();
        let verify = guard.verifies(self.report.common.effort.batches, &computed);
        let insist_on = insists.then(|| self.keys.condition(&rows));
        Ok(Job::Batch { rows, verify, insist_on })
    }

    /// Records what a job has done, or the error with which it ended.
    fn note_finished(&mut self, job: usize, finished: Result<JobResult>) -> Event {
        if let Ok(JobResult::Vacuum(_, done, _)) = &finished {
            self.machine.still_dead(self.conversion.guard.session.throttle.still_dead());
            if let Some((Extent::Table, took)) = done {
                self.course.has_vacuumed(*took);
            }
        }
        let mut event = finished.map(|finished| self.account(job, finished));
        if let (Some(row), None) = (&self.report.index_refusal, &self.failed) {
            event = self.conversion.stop_at_index(row);
        }
        if let Ok(Event::BatchDone { xid, .. }) = &event {
            self.scanner.ours.insert(*xid);
            self.scanner.own.insert(*xid);
        }
        event.unwrap_or_else(|error| {
            self.failed.get_or_insert(error);
            Event::Failed(job)
        })
    }

    fn report_progress(&mut self) {
        let session = self.conversion.guard.session;
        let scan = self.machine.counts.scans;
        if self.scan_began.0 != scan {
            self.scan_began = (scan, Instant::now());
        }
        let (read, blocks) = self.machine.position();
        let rows = self.report.common.rows.stored;
        let now = Advance { scan, read, blocks, rows, ..Advance::default() };
        let advance = self.course.at(now, self.began.elapsed(), self.scan_began.1.elapsed());
        session.throttle.set_progress(advance.part());
        session.listener.progress(&self.conversion.guard.name(), &advance);
    }

    /// Begins a scan, in a snapshot of its own if it may prove something. Returns `None` once a stop is requested.
    async fn begin_scan(&mut self) -> Result<Option<Event>> {
        self.keys.clear();
        let conversion = self.conversion;
        let guard = &conversion.guard;
        let dry_run = guard.session.options.dry_run;
        let Sweep { machine, scanner, report, .. } = self;
        if report.common.effort.scans == 0 && machine.counts.scans == 2 {
            report.converted.forms_before = scanner.seen.tally.form_reports(&scanner.ready.targets);
        }
        scanner.seen = Scanned::default();
        scanner.own.clear();
        conversion.seen_rows.clear();
        conversion.begin_proof(machine, &mut scanner.by_rule, report).await?;
        // a dry run proves nothing
        if !dry_run && !machine.is_cut_off() {
            let held = guard
                .unless_changed(0, async || {
                    guard.tried("reading", async || scanner.hold().await).await
                })
                .await?;
            if held.is_none() {
                return Ok(None);
            }
        }
        if !dry_run && !guard.is_unchanged().await? {
            return Err(RetoastError::Changing);
        }
        // by now, the file has every block that the snapshot can see
        let Some(sizes) = guard.sizes_before().await? else { return Ok(None) };
        report.common.is_larger(sizes);
        let blocks = sizes.heap_pages(guard.session.server.page_size);
        // the forecast of a plan then needs no second look at the pages
        if dry_run && blocks.div_ceil(RUN) as usize <= RUNS {
            scanner.sampled = Some(Sampled::default());
        }
        Ok(Some(Event::Begun { blocks, bytes: sizes.heap + sizes.toast }))
    }

    /// Waits until the throttle allows the scan to continue. Gives up its snapshot if that takes long, or if other
    /// sessions wait for what it holds.
    async fn pass_scan(&mut self) -> Result<()> {
        let conversion = self.conversion;
        let session = conversion.guard.session;
        let Sweep { machine, scanner, .. } = self;
        let mut pass = std::pin::pin!(session.pass(WorkKind::Scan, 0));
        let asked = Instant::now();
        loop {
            if let Ok(passed) = tokio::time::timeout(GLANCE, &mut pass).await {
                passed?;
                break;
            }
            let gives_up = session.throttle.sees_rewrite() || asked.elapsed() >= LONG_PAUSE;
            if gives_up && scanner.held.is_some() {
                scanner.release().await?;
                machine.note(Event::SnapshotLost, 0.0);
            }
        }
        if scanner.held.is_some() && conversion.keeps_others_from_reading().await? {
            scanner.release().await?;
            machine.note(Event::SnapshotLost, 0.0);
        }
        Ok(())
    }

    /// Records the rows that a scan has found for the report and, in a dry run, for the forecast.
    fn note_found(&mut self, rows: &[Row]) {
        let Sweep { conversion, machine, scanner, report, .. } = self;
        if report.common.effort.scans == 0 && machine.is_first_scan() {
            report.common.rows.found += rows.len() as u64;
            report.common.rows.bytes += rows.iter().map(|row| row.bytes).sum::<u64>();
        }
        if conversion.guard.session.options.dry_run {
            rows.iter().for_each(|row| report.found_runs.add(row.ctid.block.0 / RUN));
            if let Some(sampled) = &mut scanner.sampled {
                sampled.rows.extend(rows);
            }
        }
    }

    /// Records what a job has done.
    fn account(&mut self, job: usize, finished: JobResult) -> Event {
        let report = &mut self.report;
        match finished {
            JobResult::Batch { done: BatchEnd::Stored { rows, verified, xid }, took, .. } => {
                report.common.rows.stored += rows;
                report.common.rows.verified += verified;
                report.common.effort.batches += u64::from(rows > 0);
                Event::BatchDone { job, rows, xid, took }
            }
            JobResult::Batch { done: BatchEnd::Busy, .. } => Event::BatchBusy(job),
            JobResult::Batch { done: BatchEnd::Refused(reason), rows, insists, .. } => {
                if let ([row], false) = (rows.as_slice(), insists) {
                    self.set_aside(*row, reason);
                }
                Event::BatchRefused(job)
            }
            JobResult::Vacuum(sizes, done, times) => {
                report.common.is_larger(sizes);
                report.common.effort.vacuums += times;
                Event::Vacuumed { job, done }
            }
            JobResult::Nothing => Event::Failed(job),
        }
    }

    fn set_aside(&mut self, row: Row, reason: Reason) {
        let Sweep { conversion, report, .. } = self;
        report.is_unfit |=
            reason.sqlstate == LIMIT && conversion.choice.toaster.storage() == Storage::Plain;
        if reason.is_of_index {
            report.is_unfit = true;
            report.index_refusal = Some(format!("row {}: {}", row.ctid, reason.text));
        }
        conversion.guard.set_aside(1, reason.row(row.ctid.to_string()), &mut report.common);
    }
}
