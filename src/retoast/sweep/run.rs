//! Does what the machine says to one table: scans, batches, vacuums, waits.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rand::RngExt;

use super::error::RunError;
use super::foresee;
use super::keys::Keys;
use super::machine::{Action, End, Event, Machine, Row};
use super::policy_state::RuleScan;
use super::scanner::Scanner;
use super::table::{Sweep, millis};
use super::task::{Finished, Task};
use crate::retoast::memory::checkpoint::{Checkpoint, Place};
use crate::retoast::pace::gauges;
use crate::retoast::pace::manners::Work;
use crate::retoast::result::{Outcome, REWRITTEN, SkippedRow, TableReport};
use crate::retoast::sql;
use crate::retoast::tally::Tally;

/// How often a sweep by a policy begins again because others have written the table anew.
const MOST_REWRITTEN: u32 = 5;
/// After a pause so long a scan's snapshot is given up, which keeps vacuum from its work.
const LONG_PAUSE: Duration = Duration::from_secs(5);
/// How soon it is seen that somebody waits for the lock that goes with it.
const GLANCE: Duration = Duration::from_millis(200);

impl Sweep<'_> {
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
            for job in 0..=self.others.len() {
                // the connection may be gone, or not in a transaction
                let _ = self.rollback(job).await;
            }
        }
        self.put_back(&mut report).await;
        let ended = self.end(&mut report, wal).await;
        // of a run that could not start there is nothing to report
        let began = done.is_ok() || report.scans > 0 || report.altered;
        (began.then_some(report), done.and(ended))
    }

    async fn work(&self, report: &mut TableReport) -> Result<(), RunError> {
        self.say_marks(report).await?;
        // the writer may be asked: nothing is re-toasted while a scan reads
        let mut scanner = Scanner::new(
            &self.reader,
            &self.writer,
            self.server,
            self.ready,
            self.source.clone(),
            RuleScan::new(self.seen_rows, self.since, self.options.dry_run),
        );
        scanner.watched = Some(&self.watched);
        if self.ready.code.holds_off_statistics() || !self.options.dry_run {
            self.begin_watching().await?;
        }
        self.look_for_unfit(&mut scanner).await?;
        if self.options.dry_run {
            return self.sweep(&mut scanner, report).await;
        }
        if self.ready.final_settings.is_none() {
            self.set_choice().await?;
        }
        let (mut times, mut rewritten) = (0, 0);
        let done = loop {
            match self.sweep(&mut scanner, report).await {
                Err(RunError::Rewritten) if rewritten < MOST_REWRITTEN => {
                    rewritten += 1;
                    let name = self.name();
                    self.watch.note(&format!("{name}: {REWRITTEN}: all rows are looked at again"));
                }
                Err(RunError::Changing) => {
                    if let Err(error) = self.set_right(times).await {
                        break Err(error);
                    }
                    times += 1;
                }
                other => break other,
            }
        };
        let left = self.set_finally(report.rows_found > 0).await;
        if left.is_ok()
            && (self.ready.final_settings.is_some() || report.outcome == Outcome::Complete)
        {
            self.unmark().await?;
        }
        done.and(left)
    }

    async fn sweep(
        &self,
        scanner: &mut Scanner<'_>,
        report: &mut TableReport,
    ) -> Result<(), RunError> {
        let began = Instant::now();
        let mut machine = Machine::new(self.options.tuning.with_jobs(self.others.len() + 1));
        if !self.ready.judge.new_values_comply() {
            machine.cut_off();
            scanner.by_rule.cut_off = None;
        }
        let saved = self.saved().await?;
        if let Some((checkpoint, place)) = saved {
            machine.start_at(checkpoint.start(place));
        }
        // by a policy no snapshot holds off who moves rows from a block not yet read to one already read
        let files = match self.ready.judge.new_values_comply() || self.options.dry_run {
            true => None,
            false => Some(self.files().await?),
        };
        let scans = report.scans;
        let mut end = self.steps(&mut machine, scanner, report, saved).await;
        report.scans = scans + machine.scans;
        report.retries += machine.retries;
        report.longest_batch_ms = report.longest_batch_ms.max(millis(machine.longest_batch));
        let released = scanner.release().await;
        if !self.options.dry_run && matches!(end, Ok(End::Complete | End::Left)) {
            // a setting that was changed during the last scan is not the choice
            match self.is_unchanged().await {
                Ok(true) => {}
                Ok(false) => end = Err(RunError::Changing),
                Err(error) => end = Err(error),
            }
            if let (Ok(_), Some(files)) = (&end, &files)
                && let Err(error) = self.still_has(files).await
            {
                end = Err(error);
            }
        }
        let end = end?;
        released?;
        report.notes.append(&mut scanner.hints);
        for reason in scanner.problems.iter().cloned().chain(self.unvacuumed.told()) {
            report.skipped.push(SkippedRow { ctid: String::new(), reason, sqlstate: None });
        }
        if self.options.dry_run {
            let plan = foresee::plan(self, report, &scanner.tally, began.elapsed()).await?;
            report.notes.extend(self.keeper.slot_warnings(plan.wal_bytes.high).await?);
            report.plan = Some(plan);
        } else if let Some((checkpoint, place)) = saved {
            checkpoint.end(place, end == End::Complete)?;
        }
        let forms = scanner.tally.report(&report.columns);
        if report.scans <= 1 {
            report.forms_before.clone_from(&forms);
        }
        report.forms_after = forms;
        report.forms_planned = scanner.by_rule.planned.report(&report.columns);
        report.rows_written_since = scanner.by_rule.written_since;
        if !self.options.dry_run {
            let left = machine.left();
            (report.rows_left, report.rows_disagreeing) = (left.sum(), left.disagreeing);
            report.rows_spared = left.spared;
        }
        if report.rows_stored > 0 {
            // What the report calls done must survive a crash of the server.
            self.writer.client().batch_execute(sql::FLUSH).await?;
        }
        report.outcome = match end {
            End::Stopped => Outcome::Stopped,
            _ if self.options.dry_run => Outcome::Planned,
            End::Complete if report.skipped.is_empty() && !report.hides_rows => Outcome::Complete,
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
        let mut keys = Keys::default();
        let computed = self.ready.computed();
        loop {
            if self.stopped() {
                machine.note(Event::Stop, 0.0);
            }
            let action = machine.next_action();
            self.tell_of(&action);
            let event = match action {
                Action::Finish(end) => return failed.map_or(Ok(end), Err),
                Action::Sleep(time, reason) => {
                    if time > Duration::from_secs(1) {
                        let name = self.name();
                        self.watch.note(&format!("{name}: waiting: {}", reason.text()));
                    }
                    self.wait(time, reason.text()).await;
                    continue;
                }
                Action::BeginScan => {
                    if report.scans == 0 && machine.scans == 2 {
                        report.forms_before = scanner.tally.report(&report.columns);
                    }
                    (scanner.tally, scanner.problems) = (Tally::default(), Vec::new());
                    scanner.hints.clear();
                    scanner.own.clear();
                    keys.clear();
                    self.seen_rows.clear();
                    self.begin_proof(machine, &mut scanner.by_rule, report).await?;
                    // a dry run proves nothing
                    if !self.options.dry_run && !machine.is_cut_off() {
                        let hold =
                            async || self.tried("reading", async || scanner.hold().await).await;
                        let held = self.unless_changed(0, hold).await?;
                        if held.is_none() {
                            continue;
                        }
                    }
                    if !self.options.dry_run && !self.is_unchanged().await? {
                        return Err(RunError::Changing);
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
                    let pass = self.keeper.pass(Work::Scan, &self.writer, self.watch);
                    let mut pass = std::pin::pin!(pass);
                    let asked = Instant::now();
                    loop {
                        if let Ok(passed) = tokio::time::timeout(GLANCE, &mut pass).await {
                            passed?;
                            break;
                        }
                        let gives_up = self.keeper.sees_rewrite() || asked.elapsed() >= LONG_PAUSE;
                        if gives_up && scanner.held.is_some() {
                            scanner.release().await?;
                            machine.note(Event::SnapshotLost, 0.0);
                        }
                    }
                    if scanner.held.is_some() && self.keeps_others_from_reading().await? {
                        scanner.release().await?;
                        machine.note(Event::SnapshotLost, 0.0);
                    }
                    if let Some((checkpoint, place)) = saved {
                        checkpoint.at(place, blocks.start)?;
                    }
                    let held = scanner.held.is_some();
                    let read = blocks.clone();
                    let rows = self.scan(scanner, blocks).await?;
                    tracing::debug!("{}: blocks {read:?}: {} rows differ", self.name(), rows.len());
                    if held && scanner.held.is_none() {
                        machine.note(Event::SnapshotLost, 0.0);
                    }
                    if report.scans == 0 && machine.is_first_scan() {
                        report.rows_found += rows.len() as u64;
                        report.bytes_found += rows.iter().map(|row| row.bytes).sum::<u64>();
                    }
                    if machine.insists() {
                        keys.note(self, scanner, &rows).await?;
                    }
                    // a plan is read from one scan
                    Event::Scanned(if self.options.dry_run { Vec::new() } else { rows })
                }
                action @ (Action::Batch(..) | Action::Insist(..)) => {
                    let insists =
                        matches!(action, Action::Insist(..)) && !self.ready.judge.needs_copies();
                    let (Action::Batch(job, rows) | Action::Insist(job, rows)) = action else {
                        continue;
                    };
                    // by a policy there is one job
                    if !std::mem::replace(&mut prepared, true) {
                        self.prepare_batches().await?;
                        self.learn_indexes().await?;
                    }
                    let verify = self.verifies(report.batches, &computed);
                    let insist_on = insists.then(|| keys.condition(&rows));
                    let task = Task::Batch { rows, verify, insist_on };
                    under_way.push(self.labour(job, task));
                    continue;
                }
                Action::Vacuum(job, extent, part) => {
                    under_way.push(self.labour(job, Task::Vacuum(extent, part)));
                    continue;
                }
                Action::Wait => {
                    let Some((job, finished)) = under_way.next().await else { continue };
                    if let Ok(Finished::Vacuum(..)) = &finished {
                        machine.still_dead(self.keeper.still_dead());
                    }
                    let event = finished.map(|finished| self.account(job, finished, report));
                    if let Ok(Event::BatchDone { xid, .. }) = &event {
                        scanner.by_rule.ours.insert(*xid);
                        scanner.own.insert(*xid);
                    }
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

    /// Whether the lock that holds off statistics keeps others waiting while a scan has it.
    async fn keeps_others_from_reading(&self) -> Result<bool, RunError> {
        if !self.ready.code.holds_off_statistics() {
            return Ok(false);
        }
        let pid = self.reader.process().await?;
        Ok(self.keeper.kept_waiting(pid).await?.is_some())
    }

    /// Tells what the machine has decided.
    fn tell_of(&self, action: &Action) {
        let name = self.name();
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
                    "{name}: job {job}: VACUUM: {extent:?}, {percent:.1} % may be dead"
                );
            }
            Action::Sleep(time, reason) => {
                tracing::debug!("{name}: {} ms of waiting: {}", time.as_millis(), reason.text());
            }
            Action::Finish(end) => tracing::debug!("{name}: the end: {end:?}"),
            Action::Scan(_) | Action::Wait => {}
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

    pub(crate) async fn scan(
        &self,
        scanner: &mut Scanner<'_>,
        blocks: std::ops::Range<u32>,
    ) -> Result<Vec<Row>, RunError> {
        let tally = scanner.tally.clone();
        let mut look = async || {
            scanner.tally.clone_from(&tally);
            scanner.chunk(blocks.clone()).await
        };
        let read = self.unless_changed(0, async || self.tried("reading", &mut look).await).await;
        Ok(read?.unwrap_or_default())
    }
}
