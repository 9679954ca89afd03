//! Looks at every table before the first is touched, then has them swept.

use std::cell::Cell;
use std::slice;
use std::sync::Arc;

use futures_util::future::join_all;

use super::departure;
use super::request::{Request, Tasks, Work, need_pages, source};
use super::sessions::Sessions;
use super::worker::Tables;
use crate::judge::goal::{Goal, Pluggable, PolicyGoal};
use crate::judge::pluggable;
use crate::retoast::check::kind::unfit;
use crate::retoast::check::ready::{PreparedTable, TableRequest};
use crate::retoast::check::refusal::Refusal;
use crate::retoast::check::reindex::{may_compact, may_reindex};
use crate::retoast::check::{parents, preflight};
use crate::retoast::listener::Listener;
use crate::retoast::memory::checkpoint::{self, Checkpoint};
use crate::retoast::memory::remembered::Remembered;
use crate::retoast::pace::control::Control;
use crate::retoast::pace::keeper::Keeper;
use crate::retoast::pace::lock_tries::{LockTries, Tried};
use crate::retoast::reindex::Reindex;
use crate::retoast::result::{DepartureReport, Results, Swept};
use crate::retoast::sweep::scan_source::ScanSource;
use crate::server::connect::Connection;
use crate::server::select::{Found, How, Selection, select};
use crate::server::sink::{Failed, Kind, RunError, Sink};
use crate::server::{LiveError, catalog, select, toasters};

/// Does what is asked for, over this connection and others like it, until all is done or `control` says stop.
/// Each table's result goes to `sink`; gives what became of a toaster that everything was to be taken from.
///
/// # Errors
/// What keeps everything else from being done too. What `sink` was given stays.
pub(crate) async fn run(
    first: Connection,
    request: &Request,
    control: Arc<Control>,
    listener: &dyn Listener,
    sink: &mut dyn Sink<Swept>,
) -> Result<Option<DepartureReport>, RunError> {
    let results = Results::new(sink);
    let origin = request.options.origin.clone();
    let (sessions, measuring) = Sessions::open(first, control, origin).await?;
    let first = sessions.first.client();
    if let Err(refusal) = preflight::server(first, &sessions.server).await {
        return Err(sessions.failed(&refusal).await.into());
    }
    let note = &mut |text: &str| listener.note(text);
    let keeper = sessions.keeper(measuring, request.wants.clone(), note).await?;
    let run = Run { sessions: &sessions, request, listener, results: &results };
    let departure = match &request.work {
        Work::Columns(per_table) => run.columns(per_table, keeper).await.map(|()| None)?,
        Work::Departure(from) => {
            Some(departure::run(&sessions, request, from, keeper, listener, &results).await?)
        }
    };
    results.end().map(|()| departure)
}

/// Tells what was decided of a table.
fn decided(ready: &PreparedTable) {
    let name = ready.relation.display_name();
    tracing::debug!(
        "{name}: {} of {:?}; to be set: {:?}; batches as {}; {}",
        ready.judge.choice(),
        ready.targets.iter().map(|target| &target.name).collect::<Vec<_>>(),
        ready.changes,
        ready.code.role().unwrap_or("this user"),
        if ready.code.triggers_fire() { "triggers fire" } else { "no trigger fires" },
    );
}

struct Run<'a, 'r> {
    sessions: &'a Sessions,
    request: &'a Request,
    listener: &'a dyn Listener,
    results: &'a Results<'r>,
}

impl Run<'_, '_> {
    async fn columns(&self, per_table: &TableRequest, keeper: Keeper) -> Result<(), Failed> {
        if let (Some(_), Err(refusal)) =
            (self.request.compact, preflight::compaction(&self.sessions.server))
        {
            return Err(self.sessions.failed(&refusal).await);
        }
        let (selection, looked, mut refused) = match self.look(per_table, &keeper).await {
            Ok(looked) => looked,
            Err(refusal) => return Err(self.sessions.failed(&refusal).await),
        };
        let source = source(&self.sessions.server, self.request.source, self.results)?;
        let mut tables = Vec::new();
        for ready in looked {
            match self.check(&ready, &source).await {
                Ok(()) => tables.push(ready),
                Err(Refusal::Refused(text)) => refused.push(text),
                Err(other) => return Err(self.sessions.failed(&other).await),
            }
        }
        if let (true, Some(first)) = (tables.is_empty(), refused.first()) {
            return Err(Failed::new(Kind::Incomplete, first.clone()));
        }
        for text in refused {
            self.results.failed(0, Failed::new(Kind::Incomplete, text));
        }
        if tables.iter().any(|ready| ready.pluggable) {
            need_pages(&source)?;
        }
        let Request { options, .. } = self.request;
        if !options.dry_run {
            self.sessions.set_origin().await?;
        }
        let checkpoint = self.checkpoint(per_table)?;
        let memory = match &self.request.since {
            Some(path) => Some(Remembered::open(path, options.dry_run)?),
            None => None,
        };
        let (sessions, request) = (self.sessions, self.request);
        if let Err(refusal) =
            set_partitioned(sessions, request, per_table, self.listener, self.results).await
        {
            return Err(sessions.failed(&refusal).await);
        }
        let side_by_side =
            request.parallel_tables.min(u16::try_from(tables.len()).unwrap_or(u16::MAX));
        let jobs = options.tuning.jobs;
        let workers = sessions.workers(side_by_side, jobs, keeper, &request.wants).await?;
        for ready in &tables {
            self.announce(per_table, ready);
        }
        let all = Tables {
            sessions,
            tables: &tables,
            options,
            source: &source,
            listener: self.listener,
            checkpoint: checkpoint.as_ref(),
            memory: memory.as_ref().filter(|_| !options.dry_run),
            tasks: Tasks {
                converts: per_table.goal != Goal::Keep,
                compact: request.compact,
                reindex: request.reindex,
            },
            per_table,
            results: self.results,
            next: Cell::new(0),
        };
        join_all(workers.into_iter().map(|worker| all.work(worker))).await;
        if !options.dry_run && !sessions.stopped() {
            self.tell_of_others(per_table, &selection, selection.found.len()).await;
        }
        Ok(())
    }

    /// Tells of relations that have become part of what was named since it was looked up: they are not done.
    async fn tell_of_others(&self, per_table: &TableRequest, then: &Selection, place: usize) {
        if self.results.has_lost() {
            return;
        }
        const UNKNOWN: &str = "tables that were created or attached meanwhile are not known";
        let not_known = |failed: Failed| self.results.failed(place, failed.placed(UNKNOWN));
        let connection = match self.sessions.one().await {
            Ok(connection) => connection,
            Err(failed) => return not_known(failed),
        };
        for named in &self.request.tables {
            let database = &self.sessions.server.database;
            let now = match select(&connection, database, slice::from_ref(named)).await {
                Ok(now) => now,
                // what is gone has told so itself
                Err(LiveError::NoSuchRelation { .. } | LiveError::NoMatch(_)) => continue,
                Err(error) => return not_known(Failed::of(&error, &[connection]).await),
            };
            for found in now.found {
                if !then.found.iter().any(|then| then.oid == found.oid) {
                    self.tell_of_other(&connection, per_table, &found, place).await;
                }
            }
        }
    }

    async fn tell_of_other(
        &self,
        connection: &Connection,
        per_table: &TableRequest,
        found: &Found,
        place: usize,
    ) {
        let name = match catalog::describe(connection.client(), found.oid).await {
            Ok(Some(relation)) => match found.how {
                How::Matched if unfit(&relation, &per_table.columns).is_some() => return,
                _ => relation.display_name(),
            },
            Ok(None) => return,
            Err(_) => format!("relation {}", found.oid),
        };
        let message = format!(
            "{name} was created or attached meanwhile, and was not looked at\nHINT:  Run the command again."
        );
        self.results.failed(place, Failed::new(Kind::Incomplete, message));
    }

    /// Looks at everything before anything is touched. Gives what can be worked on, and why the rest cannot be.
    async fn look(
        &self,
        per_table: &TableRequest,
        keeper: &Keeper,
    ) -> Result<(Selection, Vec<PreparedTable>, Vec<String>), Refusal> {
        let Sessions { first, server, .. } = self.sessions;
        let selection = select(first, &server.database, &self.request.tables).await?;
        if let Goal::Pluggable(Pluggable::Becomes(name)) = &per_table.goal {
            // before any table is looked at
            let toasters = toasters::ask(first.client(), server).await?;
            pluggable::named(toasters.as_ref(), name)?;
        }
        let (tables, refused) = self.look_at(&selection, per_table, keeper).await?;
        for ready in &tables {
            if let Some(told) = keeper.check_space(ready).await? {
                self.listener.note(&format!("{}: {told}", ready.relation.display_name()));
            }
        }
        // a plan says it by what it has found
        if !self.request.options.dry_run {
            let mut expected = 0u64;
            for ready in &tables {
                expected =
                    expected.saturating_add(keeper.expected_wal(ready, per_table.updates).await?);
            }
            for text in keeper.slot_warnings(expected).await? {
                self.listener.note(&text);
            }
        }
        Ok((selection, tables, refused))
    }

    /// Looks at every table. Of those that a pattern matches, what has nothing to rewrite is left out. One that is
    /// refused costs only itself.
    async fn look_at(
        &self,
        selection: &Selection,
        per_table: &TableRequest,
        keeper: &Keeper,
    ) -> Result<(Vec<PreparedTable>, Vec<String>), Refusal> {
        let client = self.sessions.first.client();
        for text in selection.notices() {
            self.results.notice(&format!("notice: {text}"));
        }
        let (mut tables, mut refused) = (Vec::new(), Vec::new());
        for found in &selection.found {
            if !self.request.options.dry_run
                && let Some(text) = keeper.wait_for_rewrite(found.oid, self.listener).await?
            {
                return Err(Refusal::Stopped(format!("{text}\nHINT:  Nothing was changed.")));
            }
            if found.how == How::Matched
                && let Some(relation) = catalog::describe(client, found.oid).await?
                && let Some(why) = unfit(&relation, &per_table.columns)
            {
                self.results.notice(&format!("notice: left out: {why}"));
                continue;
            }
            let server = &self.sessions.server;
            match preflight::table(client, server, found.oid, per_table).await {
                Ok(ready) => tables.extend(ready.inspect(decided)),
                Err(Refusal::Refused(text)) => refused.push(text),
                Err(other) => return Err(other),
            }
        }
        let nothing = tables.is_empty() && refused.is_empty();
        if nothing && selection.found.iter().any(|found| found.how == How::Matched) {
            return Err(Refusal::Usage("no table that is named has these columns".to_owned()));
        }
        Ok((tables, refused))
    }

    /// Refuses a table whose files or indexes this user cannot have made smaller, where that is asked for.
    async fn check(&self, ready: &PreparedTable, source: &ScanSource) -> Result<(), Refusal> {
        let (client, server) = (self.sessions.first.client(), &self.sessions.server);
        if let Some(compact) = self.request.compact {
            let pages = matches!(source, ScanSource::Pages(_));
            may_compact(client, server, ready, compact, pages).await?;
        }
        match self.request.reindex {
            Reindex::Never => Ok(()),
            _ => may_reindex(client, server, ready).await,
        }
    }

    fn checkpoint(&self, per_table: &TableRequest) -> Result<Option<Checkpoint>, Failed> {
        let Some(path) = &self.request.checkpoint else { return Ok(None) };
        let sweep = checkpoint::Sweep {
            database: self.sessions.server.database.clone(),
            choice: match per_table.columns.as_slice() {
                [] => per_table.goal.choice(),
                columns => format!("{} to {}", columns.join(", "), per_table.goal.choice()),
            },
        };
        Ok(Some(Checkpoint::open(path, sweep)?))
    }

    /// Says what values get that are written from now on.
    fn announce(&self, per_table: &TableRequest, ready: &PreparedTable) {
        let Goal::Policy(PolicyGoal { new_extended, .. }) = per_table.goal else { return };
        let what = match new_extended {
            false => "not be compressed, and be stored out of line where a row is too long",
            true => "be compressed whenever they can be (not while rows are re-toasted)",
        };
        self.results.notice(&format!(
            "{}: values that are written from now on will {what}; run the command again to bring them to \
             the policy",
            ready.relation.display_name()
        ));
    }
}

/// Sets what is to be set on the partitioned tables, or says what would be.
///
/// # Errors
/// The server's.
pub(crate) async fn set_partitioned(
    sessions: &Sessions,
    request: &Request,
    per_table: &TableRequest,
    listener: &dyn Listener,
    results: &Results<'_>,
) -> Result<(), Refusal> {
    // what new values get under a policy is set when all is done, and only on tables
    let is_set_last = matches!(per_table.goal, Goal::Policy(PolicyGoal { new_extended: true, .. }));
    if per_table.no_alter || is_set_last || per_table.goal == Goal::Keep {
        return Ok(());
    }
    let (first, server) = (&sessions.first, &sessions.server);
    let mut parents = Vec::new();
    for oid in select::partitioned(first, &server.database, &request.tables).await? {
        parents.extend(parents::parent(first.client(), server, oid, per_table).await?);
    }
    for parent in &parents {
        if request.options.dry_run {
            results.notice(&format!("{}: would set: {}", parent.name, parent.alter));
            continue;
        }
        let tries = LockTries {
            name: &parent.name,
            listener,
            stop: sessions.control.stopping(),
            lock_timeout: request.options.lock_timeout,
            may_wait: request.wants.limits.wait,
        };
        match tries.alter(first.client(), &parent.alter).await?.0 {
            Tried::Done(()) => results.notice(&format!("{}: set: {}", parent.name, parent.alter)),
            Tried::Stopped => break,
            Tried::NoLock | Tried::TooLong(_) => results.notice(&format!(
                "warning: {}: no lock to set the choice: new partitions will not have it",
                parent.name
            )),
        }
    }
    Ok(())
}
