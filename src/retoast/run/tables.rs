//! Prepares all tables before the first one is changed, then has them swept.

use std::cell::Cell;
use std::collections::HashSet;
use std::slice;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::Mutex;
use tokio_postgres::types::Type;

use crate::message::Message;
use crate::retoast::departure;
use crate::retoast::error::{Result, RetoastError, refused_table};
use crate::retoast::listener::{Control, Listener};
use crate::retoast::memory::checkpoint::{Checkpoint, RunKey};
use crate::retoast::memory::since::Remembered;
use crate::retoast::pace::lock_tries::{LockTries, Tried};
use crate::retoast::pace::throttle::Throttle;
use crate::retoast::preflight::facts::Facts;
use crate::retoast::preflight::parents::Parent;
use crate::retoast::preflight::ready::{ConvertRequest, PreparedTable};
use crate::retoast::preflight::{self, Preflight, may_compact, may_reindex, parents, unfit};
use crate::retoast::reindex::Reindex;
use crate::retoast::result::DepartureReport;
use crate::retoast::run::free_space::REPACK;
use crate::retoast::run::request::{AT_ONCE, Assignment, Request, need_pages, pages};
use crate::retoast::run::results::{Results, Swept};
use crate::retoast::run::sessions::Sessions;
use crate::retoast::run::worker::{Tables, TablesRun};
use crate::retoast::task::guard::AS_STORED;
use crate::server::select::{Selected, Selection, select};
use crate::server::sink::{Failed, Kind, RunError, Sink, until};
use crate::server::{
    Client, Connection, LiveError, Pageinspect, Relation, Server, catalog, citus, select, toasters,
};
use toast_format::disk::Oid;
use toast_format::judge::goal::{Goal, Pluggable, PolicyGoal};
use toast_format::judge::pluggable;
use toast_format::judge::toaster::Changes;

/// Carries out the request, over this connection and others like it, until all is done or `control` stops it. Each
/// table's result goes to `sink`. Returns what became of a toaster that was to be left.
///
/// # Errors
/// An error that prevents all further work. What `sink` has received remains valid.
pub(crate) async fn run(
    first: Connection,
    request: &Request,
    control: Arc<Control>,
    listener: &dyn Listener,
    sink: &mut dyn Sink<Swept>,
) -> Result<Option<DepartureReport>, RunError> {
    let first = Arc::new(first);
    let results = Results::new(sink);
    let done = async {
        let origin = request.options.origin.clone();
        let (sessions, measuring) = Sessions::open(&first, control, listener, origin).await?;
        let untested = request.options.untested_server;
        preflight::server(first.client(), &sessions.server, untested).await?;
        let throttle = sessions.throttle(measuring, &request.throttle).await?;
        match &request.work {
            Assignment::Tables(tasks) => {
                let run = TablesRun { sessions: &sessions, request, tasks, results: &results };
                run.tables(throttle).await.map(|()| None)
            }
            Assignment::Departure(toaster) => {
                departure::run::run(&sessions, request, toaster, throttle, &results).await.map(Some)
            }
        }
    };
    let done: Result<_> = done.await;
    match done {
        Ok(departure) => results.end().map(|()| departure),
        Err(error) => {
            results.tell_notes();
            Err(error.failed(&[first]).await.into())
        }
    }
}

/// Examines tables as [`run`] does before it changes anything, and `shells`, which are tables of Citus on this node, as
/// SQL names them. Returns what must be set on these, and whether an index has entries of values whose form that determines.
///
/// # Errors
/// One of the tables would be refused, or a setting of a shell could not be changed.
pub(crate) async fn examine(
    first: Connection,
    request: &Request,
    shells: &[String],
    control: Arc<Control>,
    listener: &dyn Listener,
) -> Result<(Vec<Parent>, bool), Failed> {
    let Assignment::Tables(tasks) = &request.work else { return Ok((Vec::new(), false)) };
    let first = Arc::new(first);
    let examined = async {
        let (sessions, measuring) = Sessions::open(&first, control, listener, None).await?;
        let untested = request.options.untested_server;
        preflight::server(first.client(), &sessions.server, untested).await?;
        let throttle = sessions.throttle(measuring, &request.throttle).await?;
        let mut nothing = NoSink;
        let results = &Results::new(&mut nothing);
        let run = TablesRun { sessions: &sessions, request, tasks, results };
        let mut may_be_unfit = false;
        if !request.tables.is_empty() {
            let Examined { tables, refused, .. } = run.examined(&throttle).await?;
            may_be_unfit = tables.iter().any(PreparedTable::has_dependent_index);
            if !refused.is_empty() {
                let texts: Vec<String> =
                    refused.iter().map(|failed| failed.message.to_string()).collect();
                return Err(RetoastError::Refused(Message::error(texts.join("\n"))));
            }
        }
        match tasks.convert.as_ref().filter(|wanted| !wanted.no_alter) {
            Some(wanted) => {
                let shells = citus_shells(first.client(), &sessions.server, shells, wanted).await?;
                Ok((shells, may_be_unfit))
            }
            None => Ok((Vec::new(), may_be_unfit)),
        }
    };
    match examined.await {
        Ok(examined) => Ok(examined),
        Err(error) => Err(error.failed(&[first]).await),
    }
}

/// What must be set on tables of Citus on a node.
async fn citus_shells(
    client: &Client,
    server: &Server,
    shells: &[String],
    wanted: &ConvertRequest,
) -> Result<Vec<Parent>> {
    let names: Vec<&str> = shells.iter().map(String::as_str).collect();
    let mut parents = Vec::new();
    for (name, oid) in names.iter().zip(citus::resolve(client, &names).await?) {
        let Some(oid) = oid else {
            return refused_table(name, "the table is not in the metadata of this node");
        };
        let Some(parent) = parents::parent(client, server, oid, wanted).await? else { continue };
        let sql = "SELECT pg_catalog.pg_has_role(relowner, 'USAGE') FROM pg_catalog.pg_class WHERE oid = $1";
        if client.value(sql, &[(&oid.0, Type::OID)]).await? != Some(true) {
            return refused_table(
                name,
                "only the owner can change the settings\nHINT:  Run as the owner, or as a superuser.",
            );
        }
        parents.push(parent);
    }
    Ok(parents)
}

/// Changes the settings of tables of Citus on one node only.
///
/// # Errors
/// One of them could not be changed. Those before it are.
pub(crate) async fn set_shells(
    connection: &Connection,
    shells: &[Parent],
    request: &Request,
    control: &Control,
    listener: &dyn Listener,
) -> Result<(), Failed> {
    for Parent { name, alter, restore, .. } in shells {
        if let Some(restore) = restore {
            listener.note(Some(name), &format!("to restore: {restore}"));
        }
        let tries = tries(name, request, control, listener);
        let statements = format!("SET LOCAL citus.enable_ddl_propagation = off; {alter}");
        let why = match tries.alter(connection.client(), &statements).await {
            Ok((Tried::Done(()), _)) => continue,
            Ok((Tried::Stopped, _)) => return Err(Failed::stopped()),
            Ok((Tried::NoLock | Tried::TooLong(_), _)) => {
                "no lock to change the settings".to_owned()
            }
            Err(error) => error.to_string(),
        };
        return Err(Failed::new(Kind::Incomplete, why).placed(name));
    }
    Ok(())
}

/// Attempts to get a lock on a table that is not worked on.
fn tries<'a>(
    name: &'a str,
    request: &Request,
    control: &'a Control,
    listener: &'a dyn Listener,
) -> LockTries<'a> {
    LockTries {
        name,
        listener,
        stop: control.stopping(),
        lock_timeout: request.options.lock_timeout,
        may_wait: request.throttle.limits.wait,
        throttle: None,
        table: Oid(0),
    }
}

struct NoSink;

impl Sink<Swept> for NoSink {
    fn found(&mut self, _: Swept) -> std::io::Result<()> {
        Ok(())
    }

    fn failed(&mut self, _: Failed) {}

    fn message(&mut self, _: Message) {}
}

/// Logs the decision for a table.
fn decided(ready: &PreparedTable) {
    let name = ready.relation.display_name();
    let (choice, changes) = match &ready.choice {
        Some(choice) => (choice.judge.choice(), choice.changes.clone()),
        None => (AS_STORED.to_owned(), Changes::default()),
    };
    let columns: Vec<&str> = ready.targets.iter().map(|target| target.name.as_str()).collect();
    tracing::debug!(
        "{name}: {choice} of {}; settings {}; batches as {}; {}",
        columns.join(", "),
        if changes == Changes::default() { "stay" } else { "are changed" },
        ready.code.role().unwrap_or("this user"),
        if ready.code.triggers_fire() { "triggers fire" } else { "no trigger fires" },
    );
}

/// Tables before any is changed.
struct Examined<'a> {
    selection: Selection,
    /// Those that can be processed, and why the others cannot.
    tables: Vec<PreparedTable>,
    refused: Vec<Failed>,
    /// What reads their pages.
    pages: Option<&'a Pageinspect>,
}

impl TablesRun<'_, '_> {
    async fn tables(&self, throttle: Throttle<'_>) -> Result<()> {
        let TablesRun { sessions, request, results, .. } = *self;
        let Examined { selection, tables, refused, pages } = self.examined(&throttle).await?;
        if let (true, Some(first)) = (tables.is_empty(), refused.first()) {
            return Err(RetoastError::Refused(first.message.clone()));
        }
        for failed in refused {
            results.failed(0, failed);
        }
        let Request { options, .. } = request;
        if !options.dry_run {
            sessions.set_origin().await?;
        }
        let checkpoint = self.checkpoint()?;
        let memory = match &request.since {
            Some(path) => Some(Remembered::open(path, options.dry_run)?),
            None => None,
        };
        let all = Tables {
            run: *self,
            tables: &tables,
            pages,
            checkpoint: checkpoint.as_ref(),
            memory: if !options.dry_run { memory.as_ref() } else { None },
            unfit: Cell::new(false),
            next: Cell::new(0),
            ahead: Mutex::default(),
        };
        let mut parents = Vec::new();
        let worked = self.work(&all, throttle, &mut parents).await;
        if options.restores_settings && (worked.is_err() || all.are_left()) {
            self.restore_partitioned(&parents).await;
        }
        worked?;
        if sessions.stopped() && all.next.get() < tables.len() {
            results.stopped();
        }
        if !options.dry_run && !sessions.stopped() {
            self.tell_of_others(&selection, selection.found.len()).await;
        }
        Ok(())
    }

    /// Has all tables worked on, and sets what new partitions take over. `parents`: the partitioned tables that were set.
    async fn work(
        &self,
        all: &Tables<'_, '_>,
        throttle: Throttle<'_>,
        parents: &mut Vec<Parent>,
    ) -> Result<()> {
        let TablesRun { sessions, request, .. } = *self;
        let Request { options, .. } = request;
        // new partitions have the same indexes
        let may_be_unfit = all.tables.iter().any(PreparedTable::has_dependent_index);
        if !may_be_unfit {
            self.set_partitioned(&throttle, parents).await?;
        }
        let number = u16::try_from(all.tables.len()).unwrap_or(u16::MAX);
        let side_by_side = request.parallel_tables.min(number);
        let mut workers = sessions.workers(side_by_side, options.tuning.jobs, throttle).await?;
        for ready in all.tables {
            self.announce(ready);
        }
        join_all(workers.iter_mut().map(|worker| all.work(worker))).await;
        let is_undone = options.restores_settings && all.are_left();
        if all.unfit.get() {
            self.leave_partitioned().await?;
        } else if may_be_unfit
            && !is_undone
            && let Some(worker) = workers.first()
        {
            self.set_partitioned(&worker.throttle, parents).await?;
        }
        Ok(())
    }

    /// Examines all tables before any is changed.
    async fn examined(&self, throttle: &Throttle<'_>) -> Result<Examined<'_>> {
        let TablesRun { sessions, request, tasks, results } = *self;
        let Sessions { first, server, listener, .. } = sessions;
        if tasks.compact.is_some() {
            preflight::compaction(server)?;
        }
        let selection = select(first, &server.database, &request.tables).await?;
        let goal = tasks.convert.as_ref().map(|wanted| &wanted.goal);
        if let Some(Goal::Pluggable(Pluggable::Becomes(name))) = goal {
            // This is checked before any table is prepared.
            let toasters = toasters::ask(first.client(), server).await?;
            pluggable::named(toasters.as_ref(), name)?;
        }
        let (mut tables, mut refused) = self.prepare(&selection, throttle).await?;
        // a conversion compares the free space with its forecast
        if tasks.convert.is_none() {
            for ready in &tables {
                if let Some(note) = throttle.check_space(ready, None).await? {
                    listener.note(Some(&ready.relation.display_name()), &note);
                }
            }
        }
        // A plan shows this for each table.
        if !request.options.dry_run {
            let mut expected = 0u64;
            let updates = tasks.first().updates();
            for ready in &tables {
                expected = expected.saturating_add(throttle.expected_wal(ready, updates).await?);
            }
            for text in throttle.slot_warnings(expected).await? {
                listener.note(None, &text);
            }
        }
        let pages = pages(server, request.source, results)?;
        for ready in std::mem::take(&mut tables) {
            match self.check(&ready, pages.is_some()).await {
                Ok(()) => tables.push(ready),
                Err(RetoastError::Refused(message)) => {
                    refused.push(Failed { kind: Kind::Incomplete, message });
                }
                Err(other) => return Err(other),
            }
        }
        if tables.iter().any(|ready| ready.pluggable) {
            need_pages(pages)?;
        }
        Ok(Examined { selection, tables, refused, pages })
    }

    /// Reports relations that now belong to what was named and did not when it was looked up; they are not processed.
    async fn tell_of_others(&self, then: &Selection, place: usize) {
        if self.results.has_lost() {
            return;
        }
        const UNKNOWN: &str =
            "it is not known whether tables were created or attached during the run";
        let not_known = |failed: Failed| self.results.failed(place, failed.meaning(UNKNOWN));
        let connection = match self.sessions.first_usable().await {
            Ok(connection) => connection,
            Err(error) => {
                return not_known(error.failed(&[Arc::clone(&self.sessions.first)]).await);
            }
        };
        let then: HashSet<Oid> = then.oids().into_iter().collect();
        for named in &self.request.tables {
            let database = &self.sessions.server.database;
            let now = match select(&connection, database, slice::from_ref(named)).await {
                Ok(now) => now,
                // Tables that no longer exist, or are stored elsewhere, have already been reported.
                Err(
                    LiveError::NoSuchRelation { .. }
                    | LiveError::NoMatch(_)
                    | LiveError::NothingMatches { .. }
                    | LiveError::AllElsewhere(_),
                ) => continue,
                Err(error) => return not_known(Failed::of(&error, &[connection]).await),
            };
            for found in now.found {
                if !then.contains(&found.oid) {
                    self.tell_of_other(&connection, &found, place).await;
                }
            }
        }
    }

    async fn tell_of_other(&self, connection: &Connection, found: &Selected, place: usize) {
        let name = match catalog::describe(connection.client(), found.oid).await {
            Ok(Some(relation)) => {
                if found.how.leaves_out() && unfit(&relation, self.tasks.convert.as_ref()).is_some()
                {
                    return;
                }
                relation.display_name()
            }
            Ok(None) => return,
            Err(_) => format!("relation {}", found.oid),
        };
        let text = format!("{name} was created or attached during the run, and was not processed");
        let failed = Failed::new(Kind::Incomplete, text).hint("Run the command again.");
        self.results.failed(place, failed);
    }

    /// Prepares every table. Tables that match a pattern but have nothing to rewrite are left out. A table that is
    /// refused does not affect the others.
    async fn prepare(
        &self,
        selection: &Selection,
        throttle: &Throttle<'_>,
    ) -> Result<(Vec<PreparedTable>, Vec<Failed>)> {
        let first = &self.sessions.first;
        let client = first.client();
        for text in selection.notices() {
            self.results.message(Message::notice(text));
        }
        let mut tables = Vec::new();
        let mut refused = selection.failures();
        let server = &self.sessions.server;
        let task = self.tasks.first();
        let preflight = Preflight { client, server, task, approval: self.request.approval };
        let mut facts = Facts::of_session(client, server).await?;
        for together in selection.found.chunks(AT_ONCE) {
            let oids: Vec<Oid> = together.iter().map(|found| found.oid).collect();
            if !self.request.options.dry_run
                && let Some(message) = throttle.wait_for_rewrites(&oids).await?
            {
                return Err(RetoastError::Stopped(message.hint("Nothing was changed.")));
            }
            facts.begin_with(client, &oids).await?;
            for found in together {
                let looked = preflight
                    .one_of(&mut facts, found.oid, |relation| self.is_wanted(found, relation));
                let mut too_long = None;
                // nothing is changed yet, so a lock that others hold need not be waited for after a request to stop
                let stop = async {
                    tokio::select! {
                        () = self.sessions.control.stopping().cancelled() => {}
                        message = throttle.locked_out(found.oid) => too_long = Some(message),
                    }
                };
                let looked = until(stop, slice::from_ref(first), looked).await;
                if let Some(message) = too_long {
                    return Err(RetoastError::Stopped(message.hint("Nothing was changed.")));
                }
                match looked {
                    Ok(ready) => tables.extend(ready.inspect(decided)),
                    Err(RetoastError::Refused(message)) => {
                        refused.push(Failed { kind: Kind::Incomplete, message });
                    }
                    Err(other) => return Err(other),
                }
            }
        }
        let nothing = tables.is_empty() && refused.is_empty();
        if nothing && selection.found.iter().any(|found| found.how.leaves_out()) {
            let text = match self.tasks.columns() {
                [] => "none of the matching tables can be processed",
                _ => "none of the named tables has these columns",
            };
            return Err(RetoastError::end_run(text));
        }
        Ok((tables, refused))
    }

    /// Whether a table is to be processed; one that only matches a pattern may be left out, which is reported.
    fn is_wanted(&self, found: &Selected, relation: &Relation) -> bool {
        if !found.how.leaves_out() {
            return true;
        }
        let why = unfit(relation, self.tasks.convert.as_ref());
        if let Some(why) = &why {
            self.results.message(Message::notice(format!("left out: {why}")));
        }
        why.is_none()
    }

    /// Refuses a table if the user may not do the requested compaction or rebuilding on it.
    async fn check(&self, ready: &PreparedTable, pages: bool) -> Result<()> {
        let client = self.sessions.first.client();
        let server = &self.sessions.server;
        if let Some(compact) = self.tasks.compact {
            may_compact(client, server, ready, compact, pages).await?;
        }
        match self.tasks.reindex {
            Reindex::Never => Ok(()),
            _ => may_reindex(client, server, ready).await,
        }
    }

    fn checkpoint(&self) -> Result<Option<Checkpoint>> {
        let Some(path) = &self.request.checkpoint else { return Ok(None) };
        let database = self.sessions.server.database.clone();
        let goal = self.tasks.convert.as_ref().map(|wanted| wanted.goal.choice());
        let goal = goal.unwrap_or(AS_STORED.to_owned());
        let choice = match self.tasks.columns() {
            [] => goal,
            columns => format!("{} to {goal}", columns.join(", ")),
        };
        Ok(Some(Checkpoint::open(path, &RunKey { database, choice })?))
    }

    /// Reports how new values will be stored.
    fn announce(&self, ready: &PreparedTable) {
        let goal = self.tasks.convert.as_ref().map(|wanted| &wanted.goal);
        let Some(&Goal::Policy(PolicyGoal { new_extended, .. })) = goal else { return };
        let mut what = "not be compressed, and be stored out of line if the row is too long";
        let mut rewrites = "";
        if new_extended {
            what = "be compressed whenever possible (but not while the run re-toasts rows)";
            rewrites = if self.sessions.server.version_num >= REPACK {
                "; VACUUM FULL, CLUSTER and REPACK also compress uncompressed values out of line"
            } else {
                "; VACUUM FULL and CLUSTER also compress uncompressed values out of line"
            };
        }
        let text = format!(
            "new values will {what}; run the command again to apply the policy to them{rewrites}"
        );
        self.results.message(Message::progress(text).about(ready.relation.display_name()));
    }

    /// What the request sets on partitioned tables.
    async fn partitioned(&self, first: &Connection) -> Result<Vec<Parent>> {
        let TablesRun { sessions, request, tasks, .. } = *self;
        let Some(wanted) = &tasks.convert else { return Ok(Vec::new()) };
        // Settings for new values under a policy are set at the end, and only on tables.
        let is_set_last =
            matches!(wanted.goal, Goal::Policy(PolicyGoal { new_extended: true, .. }));
        if wanted.no_alter || is_set_last {
            return Ok(Vec::new());
        }
        let server = &sessions.server;
        let mut parents = Vec::new();
        for oid in select::partitioned(first, &server.database, &request.tables).await? {
            parents.extend(parents::parent(first.client(), server, oid, wanted).await?);
        }
        Ok(parents)
    }

    /// Reports that partitioned tables keep their settings.
    async fn leave_partitioned(&self) -> Result<()> {
        let first = self.sessions.first_usable().await?;
        for parent in self.partitioned(&first).await? {
            let text = "its settings for new partitions stay as they are, because rows of partitions would not fit an \
                        index";
            self.results.message(Message::notice(text).about(&parent.name));
        }
        Ok(())
    }

    /// Sets what the request sets on partitioned tables, or reports what would be set. `done`: those that were,
    /// or may have been.
    async fn set_partitioned(&self, throttle: &Throttle<'_>, done: &mut Vec<Parent>) -> Result<()> {
        let TablesRun { sessions, request, results, .. } = *self;
        let first = sessions.first_usable().await?;
        for parent in self.partitioned(&first).await? {
            let Parent { name, alter, .. } = &parent;
            if request.options.dry_run {
                results.note(format!("would set for new partitions: {alter}"));
                continue;
            }
            if let Some(restore) = &parent.restore {
                sessions.listener.note(Some(name), &format!("to restore: {restore}"));
            }
            let tries = tries(name, request, &sessions.control, sessions.listener);
            let tries = LockTries { throttle: Some(throttle), table: parent.oid, ..tries };
            // it may have been set although the answer was lost
            done.push(parent.clone());
            match tries.alter(first.client(), alter).await?.0 {
                Tried::Done(()) => {
                    let restore = parent.restore.as_ref();
                    let restore = restore.map(|sql| format!("; to restore: {sql}"));
                    let restore = restore.unwrap_or_default();
                    results.note(format!("set for new partitions: {alter}{restore}"));
                }
                Tried::Stopped => {
                    results.stopped();
                    break;
                }
                Tried::NoLock | Tried::TooLong(_) => {
                    let text = "no lock to change the settings: new partitions will not have them";
                    results.message(Message::warning(text).about(name));
                }
            }
        }
        Ok(())
    }

    /// Restores what was set on partitioned tables, except what another session has set since, and reports it.
    async fn restore_partitioned(&self, parents: &[Parent]) {
        let TablesRun { sessions, request, results, .. } = *self;
        // a stop that was requested must not prevent this
        let control = Control::default();
        for parent in parents {
            let restored = async {
                let first = sessions.first_usable().await?;
                let Some(sql) = parent.restoring(first.client()).await? else { return Ok(None) };
                let tries = tries(&parent.name, request, &control, sessions.listener);
                let message = match tries.alter(first.client(), &sql).await?.0 {
                    Tried::Done(()) => Message::progress(format!("restored: {sql}")),
                    _ => Message::warning(format!("no lock to restore the settings: {sql}")),
                };
                Ok::<_, RetoastError>(Some(message))
            };
            let message = match restored.await {
                Ok(Some(message)) => message,
                Ok(None) => continue,
                Err(error) => {
                    let sql = parent.restore.as_deref().unwrap_or_default();
                    Message::warning(format!("could not restore the settings ({error}): {sql}"))
                }
            };
            results.message(message.about(&parent.name));
        }
    }
}
