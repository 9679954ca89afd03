//! Sweeps tables one at a time, and goes on in new sessions where those of a sweep have ended under it: the
//! server gives up a session that keeps a transaction waiting, and networks fail.

use std::cell::Cell;
use std::sync::Arc;

use futures_util::future::join;

use super::free_space;
use super::sessions::{Sessions, WorkerSessions};
use crate::judge::goal::Goal;
use crate::judge::{FormJudge, Judge};
use crate::retoast::check::preflight;
use crate::retoast::check::ready::{Ready, TableRequest};
use crate::retoast::check::refusal::Refusal;
use crate::retoast::check::seen_places;
use crate::retoast::compact::wish::Compaction;
use crate::retoast::memory::checkpoint::Checkpoint;
use crate::retoast::memory::remembered::Remembered;
use crate::retoast::memory::since::{Doubt, Since};
use crate::retoast::reindex;
use crate::retoast::reindex::rebuilds::Rebuilds;
use crate::retoast::reindex::wish::Reindex;
use crate::retoast::result::{Gives, Outcome, TableReport};
use crate::retoast::sink::Results;
use crate::retoast::sweep::error::RunError;
use crate::retoast::sweep::old_entries::OldEntries;
use crate::retoast::sweep::options::Options;
use crate::retoast::sweep::policy_state::SeenRows;
use crate::retoast::sweep::scan_source::ScanSource;
use crate::retoast::sweep::table::Sweep;
use crate::retoast::sweep::unvacuumed::Unvacuumed;
use crate::retoast::sweep::watched::Watched;
use crate::retoast::watch::Watch;
use crate::server::LiveError;
use crate::server::sink::{Failed, Kind};

/// The first version with REPACK.
const REPACK: i32 = 190_000;
/// How many sessions in a row may end before any row is re-toasted.
const ENDS: u32 = 5;

/// The tables that workers take from, and what all sweeps of them have in common.
pub(crate) struct Tables<'a, 'r> {
    pub(crate) sessions: &'a Sessions,
    pub(crate) tables: &'a [Ready],
    pub(crate) options: &'a Options,
    pub(crate) source: &'a ScanSource,
    pub(crate) watch: &'a dyn Watch,
    pub(crate) checkpoint: Option<&'a Checkpoint>,
    pub(crate) memory: Option<&'a Remembered>,
    /// Whether files are to get shorter.
    pub(crate) compact: Option<Compaction>,
    /// Which indexes are rebuilt, after that.
    pub(crate) reindex: Reindex,
    /// What is asked of each table.
    pub(crate) of_each: &'a TableRequest,
    pub(crate) results: &'a Results<'r>,
    /// The first table that nobody has begun.
    pub(crate) next: Cell<usize>,
}

/// What is done to a table at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Task {
    /// Values are re-toasted.
    Sweep,
    /// Files get shorter.
    Compact(Compaction),
    /// Indexes are rebuilt.
    Reindex(Reindex),
}

impl Tables<'_, '_> {
    /// What is done to a table first.
    fn first_task(&self) -> Task {
        match (&self.of_each.goal, self.compact) {
            (Goal::Keep, Some(wish)) => Task::Compact(wish),
            (Goal::Keep, None) => Task::Reindex(self.reindex),
            _ => Task::Sweep,
        }
    }

    fn take(&self) -> Option<(usize, &Ready)> {
        if self.sessions.stopped() {
            return None;
        }
        let position = self.next.get();
        self.next.set(position.saturating_add(1));
        Some((position, self.tables.get(position)?))
    }

    /// After this no table is begun.
    fn begin_no_more(&self) {
        self.next.set(self.tables.len());
    }

    /// Sweeps tables that nobody else has begun, until none is left or one fails for a reason that all would.
    pub(crate) async fn work(&self, mut worker: WorkerSessions) {
        while let Some((position, ready)) = self.take() {
            let name = ready.relation.display_name();
            let (since, doubt) = match self.since(&worker, ready).await {
                Ok(Ok(since)) => (since, None),
                Ok(Err(doubt)) => {
                    self.watch.note(&format!("{name}: --since: all rows are judged: {doubt}"));
                    (None, Some(doubt))
                }
                Err(error) => {
                    let error = RunError::from(error);
                    let failed = error.failed(&worker.all()).await.placed(&name);
                    self.results.failed(position, failed);
                    if error.is_of_all() {
                        return self.begin_no_more();
                    }
                    continue;
                }
            };
            let task = self.first_task();
            let (mut report, mut ended) = self.sweep(&mut worker, ready, since, doubt, task).await;
            let mut failed = None;
            // at once: what follows may be stopped or killed
            if let (Some(memory), Some(report)) = (self.memory, &report)
                && let Err(error) = memory.remember(ready, report)
            {
                failed = Some(Failed::new(Kind::Incomplete, error.to_string()));
            }
            if let (Task::Sweep, Some(wish), Some(swept), Ok(())) =
                (task, self.compact, &mut report, &ended)
            {
                ended = self.then_compact(&mut worker, ready, wish, swept).await;
            }
            if let (Task::Sweep | Task::Compact(_), Some(done), Ok(())) =
                (task, &mut report, &ended)
            {
                ended = self.then_reindex(&mut worker, ready, done).await;
            }
            if let Err(error) = ended {
                if error.is_of_all() {
                    self.begin_no_more();
                }
                let all = error.failed(&worker.all()).await;
                let hides = matches!(error, RunError::Live(_));
                failed = Some(if hides { all.without_detail() } else { all }.placed(&name));
            }
            if let Some(report) = &mut report {
                self.look_after(&worker, ready, report).await;
            }
            if let Some(failed) = failed {
                self.results.failed(position, failed);
            }
            if report.is_some_and(|report| !self.results.found(position, report)) {
                self.begin_no_more();
            }
        }
    }

    /// What is to be said of a table once it is swept: what nobody has seen is not called complete, and what is
    /// free in its files.
    async fn look_after(&self, worker: &WorkerSessions, ready: &Ready, report: &mut TableReport) {
        let server = &self.sessions.server;
        if matches!(report.outcome, Outcome::Complete | Outcome::Held)
            && !report.keeps
            && !report.places_seen
            && seen_places::are_chosen(ready, server)
        {
            report.outcome = Outcome::Unverified;
        }
        if matches!(report.outcome, Outcome::Planned | Outcome::Failed) {
            return;
        }
        let (page, table) = (server.page_size, ready.relation.oid);
        // what they hold uncompressed was tried
        let settled = match (report.outcome, &ready.judge) {
            (Outcome::Complete, Judge::Forms(FormJudge::Stock(_))) => {
                ready.targets.iter().map(|target| target.index).collect()
            }
            _ => Vec::new(),
        };
        let indexes = async || match self.reindex {
            Reindex::Never => {
                Some(reindex::run::bloated(&worker.reader, self.source, page, table).await)
            }
            _ => None,
        };
        let free = async |connection| match self.source {
            // what no row refers to any more fills pages there as well as anything
            ScanSource::Pages(_) if server.has_toasters => None,
            ScanSource::Pages(pageinspect) => {
                let look = free_space::Look {
                    connection,
                    pageinspect,
                    server,
                    relation: &ready.relation,
                    code: &ready.code,
                    settled: &settled,
                };
                Some(look.free_space().await)
            }
            ScanSource::Functions => None,
        };
        // side by side where there are two sessions
        let (bloated, free) = match worker.writers.first() {
            Some(writer) => join(indexes(), free(writer)).await,
            None => (indexes().await, free(&worker.reader).await),
        };
        match bloated {
            Some(Ok(bloated)) => report.indexes = bloated,
            Some(Err(error)) => tracing::debug!("{}: indexes: {error}", report.relation),
            None => {}
        }
        match free {
            Some(Ok(free)) => {
                report.rewrite_gives = free.rewrite.map(|gain| Gives {
                    low: gain.low,
                    high: gain.high,
                    compresses: gain.open,
                });
                report.rewrite_gives_bytes = report.rewrite_gives.and_then(Gives::about);
                report.vacuum_gives_bytes = Some(free.at_end);
                report.rewriters = match (server.version_num >= REPACK, free.repacks) {
                    _ if server.has_toasters => None,
                    (true, true) => Some("REPACK (CONCURRENTLY) or VACUUM FULL"),
                    (true, false) => Some("REPACK or VACUUM FULL"),
                    (false, _) => Some("VACUUM FULL or pg_repack"),
                };
            }
            // the work is done, and only its sum is short of a figure
            Some(Err(error)) => tracing::debug!("{}: free space: {error}", report.relation),
            None => {}
        }
    }

    /// Compacts a table that was swept, if all of it was done.
    async fn then_compact(
        &self,
        worker: &mut WorkerSessions,
        ready: &Ready,
        wish: Compaction,
        swept: &mut TableReport,
    ) -> Result<(), RunError> {
        match swept.outcome {
            Outcome::Complete => {}
            Outcome::Planned => {
                swept.notes.push(
                    "what --compact would give back is known once values are stored as chosen: \
                     --dry-run --compact says what it would be now"
                        .to_owned(),
                );
                return Ok(());
            }
            Outcome::Unverified
            | Outcome::Held
            | Outcome::Incomplete
            | Outcome::Stopped
            | Outcome::Failed => {
                return Ok(());
            }
        }
        // the sweep may have set columns otherwise than they were
        let Some(now) = self.as_now(worker, ready, &self.of_each.keeping()).await? else {
            return Ok(());
        };
        let (report, ended) = self.sweep(worker, &now, None, None, Task::Compact(wish)).await;
        match report {
            Some(report) => swept.then_compacted(report),
            None if ended.is_err() => swept.outcome = Outcome::Failed,
            None => {}
        }
        ended
    }

    /// Rebuilds the indexes of a table that was worked on, unless that was stopped.
    async fn then_reindex(
        &self,
        worker: &mut WorkerSessions,
        ready: &Ready,
        done: &mut TableReport,
    ) -> Result<(), RunError> {
        // a sweep that is not complete has more to add to them
        let swept = !done.keeps && done.compaction.is_empty();
        match done.outcome {
            Outcome::Complete | Outcome::Held | Outcome::Unverified | Outcome::Planned => {}
            Outcome::Incomplete if !swept => {}
            Outcome::Incomplete | Outcome::Stopped | Outcome::Failed => return Ok(()),
        }
        if self.reindex == Reindex::Never {
            return Ok(());
        }
        let Some(now) = self.as_now(worker, ready, &self.of_each.leaving_rows()).await? else {
            return Ok(());
        };
        let (report, ended) =
            self.sweep(worker, &now, None, None, Task::Reindex(self.reindex)).await;
        match report {
            Some(report) => done.then_reindexed(report),
            None if ended.is_err() => done.outcome = Outcome::Failed,
            None => {}
        }
        ended
    }

    /// Looks at a table again that was worked on.
    async fn as_now(
        &self,
        worker: &mut WorkerSessions,
        ready: &Ready,
        request: &TableRequest,
    ) -> Result<Option<Ready>, RunError> {
        let (server, oid) = (&self.sessions.server, ready.relation.oid);
        let mut ends = 0;
        let looked = loop {
            let Some(writer) = worker.writers.first() else { return Ok(None) };
            let looked = preflight::table(writer.client(), server, oid, request).await;
            let Err(Refusal::Live(error)) = &looked else { break looked };
            ends += 1;
            if ends >= ENDS || !self.goes_on(worker, &ready.relation.display_name(), error).await {
                break looked;
            }
        };
        match looked {
            Ok(Some(mut now)) => {
                now.code.trust_as(&ready.code, &now.relation.display_name())?;
                Ok(Some(now))
            }
            Ok(None) => Err(RunError::Altered("the table was dropped by somebody else".to_owned())),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// Sweeps one table, or does another task to it, in as many sessions as it takes.
    async fn sweep(
        &self,
        worker: &mut WorkerSessions,
        ready: &Ready,
        since: Option<Since>,
        doubt: Option<Doubt>,
        task: Task,
    ) -> (Option<TableReport>, Result<(), RunError>) {
        let name = ready.relation.display_name();
        let (seen_rows, rebuilds) = (SeenRows::default(), Rebuilds::default());
        let (mut earlier, mut ends): (Option<TableReport>, u32) = (None, 0);
        let mut watched = Watched::default();
        loop {
            let Some((writer, others)) = worker.writers.split_first() else {
                return (None, Ok(()));
            };
            // others would wait for its locks
            let others = if ready.code.holds_off_statistics() { &[] } else { others };
            let sweep = Sweep {
                writer: Arc::clone(writer),
                others: others.to_vec(),
                reader: Arc::clone(&worker.reader),
                server: &self.sessions.server,
                ready,
                options: self.options,
                source: self.source,
                idle_limit: self.sessions.idle_limit,
                watch: self.watch,
                stop: self.sessions.control.stopping(),
                keeper: &worker.keeper,
                checkpoint: self.checkpoint,
                seen_rows: &seen_rows,
                since,
                doubt: doubt.clone(),
                watched,
                old_entries: OldEntries::default(),
                rebuilds: &rebuilds,
                unvacuumed: Unvacuumed::default(),
            };
            let (mut report, ended) = match task {
                Task::Sweep => sweep.run().await,
                Task::Compact(wish) => sweep.compact(wish).await,
                Task::Reindex(wish) => sweep.reindex(wish).await,
            };
            watched = sweep.watched;
            ends = match &report {
                Some(report) if report.rows_stored > 0 => 0,
                _ => ends + 1,
            };
            if let (Some(report), Some(earlier)) = (&mut report, earlier.take()) {
                report.go_on_from(earlier);
            }
            match &ended {
                Err(RunError::Live(error)) if ends < ENDS => {
                    if !self.goes_on(worker, &name, error).await {
                        return (report, ended);
                    }
                }
                _ => return (report, ended),
            }
            earlier = report;
        }
    }

    /// Whether there are new sessions in place of those that have ended, if this error says so: the server has given
    /// one up, the network has failed, or the server was restarted.
    async fn goes_on(&self, worker: &mut WorkerSessions, name: &str, error: &LiveError) -> bool {
        if self.sessions.stopped() {
            return false;
        }
        let Some(end) = worker.end(error).await else { return false };
        // an administrator may have ended the session alone, and wants it to stay so
        if end.by_administrator && !self.sessions.restarted(worker).await {
            return false;
        }
        self.watch.note(&format!("{name}: a session has ended: {}", end.reason));
        let renewed = self.sessions.renew(worker).await.is_ok();
        if renewed {
            self.watch.note(&format!("{name}: going on in a new session"));
        }
        renewed
    }

    /// What `--since` knows of a table.
    async fn since(
        &self,
        worker: &WorkerSessions,
        ready: &Ready,
    ) -> Result<Result<Option<Since>, Doubt>, LiveError> {
        match (self.memory, worker.writers.first()) {
            (Some(memory), Some(writer)) => memory.since(writer.client(), ready).await,
            _ => Ok(Ok(None)),
        }
    }
}
