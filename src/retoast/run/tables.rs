//! Looks at every table before the first is touched, then has them swept.

use std::cell::Cell;
use std::slice;
use std::sync::Arc;

use futures_util::future::join_all;

use super::departure;
use super::partitioned;
use super::request::{Request, Work};
use super::sessions::Sessions;
use super::source::{need_pages, source};
use super::worker::Tables;
use crate::judge::goal::{Goal, Pluggable, PolicyGoal};
use crate::judge::pluggable;
use crate::retoast::check;
use crate::retoast::check::kind::unfit;
use crate::retoast::check::preflight;
use crate::retoast::check::ready::{Ready, TableRequest};
use crate::retoast::check::refusal::Refusal;
use crate::retoast::check::toast;
use crate::retoast::departure::result::DepartureReport;
use crate::retoast::memory::checkpoint::{self, Checkpoint};
use crate::retoast::memory::remembered::Remembered;
use crate::retoast::pace::control::Control;
use crate::retoast::pace::keeper::Keeper;
use crate::retoast::reindex::wish::Reindex;
use crate::retoast::sink::{Results, Swept};
use crate::retoast::sweep::scan_source::ScanSource;
use crate::retoast::watch::Watch;
use crate::server::LiveError;
use crate::server::catalog;
use crate::server::connect::Connection;
use crate::server::select::{Found, How, Selection, select};
use crate::server::sink::{Failed, Kind, RunError, Sink};
use crate::server::toasters;

/// Does what is asked for, over this connection and others like it, until all is done or `control` says stop.
/// Each table's result goes to `sink`; gives what became of a toaster that everything was to be taken from.
///
/// # Errors
/// What keeps everything else from being done too. What `sink` was given stays.
pub(crate) async fn run(
    first: Connection,
    request: &Request,
    control: Arc<Control>,
    watch: &dyn Watch,
    sink: &mut dyn Sink<Swept>,
) -> Result<Option<DepartureReport>, RunError> {
    let results = Results::new(sink);
    let origin = request.options.origin.clone();
    let (sessions, measuring) = Sessions::open(first, control, origin).await?;
    let first = sessions.first.client();
    if let Err(refusal) = preflight::server(first, &sessions.server).await {
        return Err(sessions.failed(&refusal).await.into());
    }
    let note = &mut |text: &str| watch.note(text);
    let keeper = sessions.keeper(measuring, request.wants.clone(), note).await?;
    let run = Run { sessions: &sessions, request, watch, results: &results };
    let departure = match &request.work {
        Work::Columns(of_each) => run.columns(of_each, keeper).await.map(|()| None)?,
        Work::Departure(from) => {
            Some(departure::run(&sessions, request, from, keeper, watch, &results).await?)
        }
    };
    results.end().map(|()| departure)
}

/// Tells what was decided of a table.
fn decided(ready: &Ready) {
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
    watch: &'a dyn Watch,
    results: &'a Results<'r>,
}

impl Run<'_, '_> {
    async fn columns(&self, of_each: &TableRequest, keeper: Keeper) -> Result<(), Failed> {
        if let (Some(_), Err(refusal)) =
            (self.request.compact, preflight::compaction(&self.sessions.server))
        {
            return Err(self.sessions.failed(&refusal).await);
        }
        let (selection, looked, mut refused) = match self.look(of_each, &keeper).await {
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
        let checkpoint = self.checkpoint(of_each)?;
        let memory = match &self.request.since {
            Some(path) => Some(Remembered::open(path, options.dry_run)?),
            None => None,
        };
        let (sessions, request) = (self.sessions, self.request);
        if let Err(refusal) =
            partitioned::set(sessions, request, of_each, self.watch, self.results).await
        {
            return Err(sessions.failed(&refusal).await);
        }
        let side_by_side =
            request.parallel_tables.min(u16::try_from(tables.len()).unwrap_or(u16::MAX));
        let jobs = options.tuning.jobs;
        let workers = sessions.workers(side_by_side, jobs, keeper, &request.wants).await?;
        for ready in &tables {
            self.announce(of_each, ready);
        }
        let all = Tables {
            sessions,
            tables: &tables,
            options,
            source: &source,
            watch: self.watch,
            checkpoint: checkpoint.as_ref(),
            memory: memory.as_ref().filter(|_| !options.dry_run),
            compact: request.compact,
            reindex: request.reindex,
            of_each,
            results: self.results,
            next: Cell::new(0),
        };
        join_all(workers.into_iter().map(|worker| all.work(worker))).await;
        if !options.dry_run && !sessions.stopped() {
            self.tell_of_others(of_each, &selection, selection.found.len()).await;
        }
        Ok(())
    }

    /// Tells of relations that have become part of what was named since it was looked up: they are not done.
    async fn tell_of_others(&self, of_each: &TableRequest, then: &Selection, place: usize) {
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
                    self.tell_of_other(&connection, of_each, &found, place).await;
                }
            }
        }
    }

    async fn tell_of_other(
        &self,
        connection: &Connection,
        of_each: &TableRequest,
        found: &Found,
        place: usize,
    ) {
        let name = match catalog::describe(connection.client(), found.oid).await {
            Ok(Some(relation)) => match found.how {
                How::Matched if unfit(&relation, &of_each.columns).is_some() => return,
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
        of_each: &TableRequest,
        keeper: &Keeper,
    ) -> Result<(Selection, Vec<Ready>, Vec<String>), Refusal> {
        let Sessions { first, server, .. } = self.sessions;
        let selection = select(first, &server.database, &self.request.tables).await?;
        if let Goal::Pluggable(Pluggable::Becomes(name)) = &of_each.goal {
            // before any table is looked at
            let toasters = toasters::ask(first.client(), server).await?;
            pluggable::named(toasters.as_ref(), name)?;
        }
        let (tables, refused) = self.look_at(&selection, of_each, keeper).await?;
        for ready in &tables {
            if let Some(told) = keeper.check_space(ready).await? {
                self.watch.note(&format!("{}: {told}", ready.relation.display_name()));
            }
        }
        // a plan says it by what it has found
        if !self.request.options.dry_run {
            let mut expected = 0u64;
            for ready in &tables {
                expected =
                    expected.saturating_add(keeper.expected_wal(ready, of_each.updates).await?);
            }
            for text in keeper.slot_warnings(expected).await? {
                self.watch.note(&text);
            }
        }
        Ok((selection, tables, refused))
    }

    /// Looks at every table. Of those that a pattern matches, what has nothing to rewrite is left out. One that is
    /// refused costs only itself.
    async fn look_at(
        &self,
        selection: &Selection,
        of_each: &TableRequest,
        keeper: &Keeper,
    ) -> Result<(Vec<Ready>, Vec<String>), Refusal> {
        let client = self.sessions.first.client();
        for text in selection.notices() {
            self.results.notice(&format!("notice: {text}"));
        }
        let (mut tables, mut refused) = (Vec::new(), Vec::new());
        for found in &selection.found {
            if !self.request.options.dry_run
                && let Some(text) = keeper.wait_for_rewrite(found.oid, self.watch).await?
            {
                return Err(Refusal::Stopped(format!("{text}\nHINT:  Nothing was changed.")));
            }
            if found.how == How::Matched
                && let Some(relation) = catalog::describe(client, found.oid).await?
                && let Some(why) = unfit(&relation, &of_each.columns)
            {
                self.results.notice(&format!("notice: left out: {why}"));
                continue;
            }
            let server = &self.sessions.server;
            match preflight::table(client, server, found.oid, of_each).await {
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
    async fn check(&self, ready: &Ready, source: &ScanSource) -> Result<(), Refusal> {
        let (client, server) = (self.sessions.first.client(), &self.sessions.server);
        if let Some(compact) = self.request.compact {
            let pages = matches!(source, ScanSource::Pages(_));
            toast::check(client, server, ready, compact, pages).await?;
        }
        match self.request.reindex {
            Reindex::Never => Ok(()),
            _ => check::reindex::check(client, server, ready).await,
        }
    }

    fn checkpoint(&self, of_each: &TableRequest) -> Result<Option<Checkpoint>, Failed> {
        let Some(path) = &self.request.checkpoint else { return Ok(None) };
        let sweep = checkpoint::Sweep {
            database: self.sessions.server.database.clone(),
            choice: match of_each.columns.as_slice() {
                [] => of_each.goal.choice(),
                columns => format!("{} to {}", columns.join(", "), of_each.goal.choice()),
            },
        };
        Ok(Some(Checkpoint::open(path, sweep)?))
    }

    /// Says what values get that are written from now on.
    fn announce(&self, of_each: &TableRequest, ready: &Ready) {
        let Goal::Policy(PolicyGoal { new_extended, .. }) = of_each.goal else { return };
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
