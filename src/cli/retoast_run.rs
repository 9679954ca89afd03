//! Runs `toastctl retoast`: from arguments to report and exit code.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;

use super::exit::{Exit, Failure};
use super::maintain::{self, Around};
use super::refused_file::RefusedFile;
use super::retoast::{NewValues, RetoastArgs, ToasterArg};
use super::retoast_again::{ENDS, Sessions};
use super::retoast_from;
use super::retoast_progress::{Progress, tell};
use super::retoast_session::{
    Connections, Session, failed, need_pages, options, print, told, worst,
};
use crate::retoast::check::origin;
use crate::retoast::check::parents;
use crate::retoast::check::preflight;
use crate::retoast::check::ready::{Ready, RuleWish, Wish};
use crate::retoast::check::refusal::Refusal;
use crate::retoast::goal::toaster::Toaster;
use crate::retoast::judge::pluggable::{self, Asked};
use crate::retoast::memory::checkpoint::Checkpoint;
use crate::retoast::memory::remembered::{Remembered, SinceError};
use crate::retoast::memory::since::{Doubt, Since};
use crate::retoast::pace::patience::{Patience, Tried};
use crate::retoast::result::{Report, SCHEMA, TableReport};
use crate::retoast::sweep::error::RunError;
use crate::retoast::sweep::options::Options;
use crate::retoast::sweep::policy_state::Notebook;
use crate::retoast::sweep::table::Sweep;
use crate::retoast::sweep::watched::Watched;
use crate::retoast::watch::Watch;
use crate::server::LiveError;
use crate::server::catalog;
use crate::server::connect::{Connection, Surroundings, ThisProcess};
use crate::server::select::{self, How, Selection, select};
use crate::server::toasters;

/// Does what the arguments say.
pub(super) fn run(args: &RetoastArgs) -> Result<Exit, Failure> {
    if args.maintain {
        return print_entry(args);
    }
    if args.no_alter && args.new_values == NewValues::Extended {
        return Err(Failure::usage(
            "--new-values extended sets the columns, and --no-alter does not allow setting them",
        ));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Incomplete, format!("could not start: {error}")))?;
    runtime.block_on(retoast(args))
}

/// Prints the crontab entry.
fn print_entry(args: &RetoastArgs) -> Result<Exit, Failure> {
    let unknown = |what: &'static str| {
        move |error: io::Error| Failure::new(Exit::Incomplete, format!("{what}: {error}"))
    };
    let around = Around {
        program: std::env::current_exe().map_err(unknown("could not find this program's file"))?,
        directory: std::env::current_dir().map_err(unknown("could not find this directory"))?,
        environment: ThisProcess::new().environment().clone(),
    };
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let entry = maintain::entry(args, &words.collect::<Vec<String>>(), &around)?;
    // Nobody to tell is no reason to fail.
    let _ = write!(io::stdout(), "{entry}");
    Ok(Exit::Ok)
}

/// Says what values get that are written from now on.
fn announce(args: &RetoastArgs, ready: &Ready) {
    if ready.rule.is_none() {
        return;
    }
    let what = match args.new_values {
        NewValues::External => {
            "not be compressed, and be stored out of line where a row is too long"
        }
        NewValues::Extended => "be compressed whenever they can be (not while rows are re-toasted)",
    };
    tell(&format!(
        "{}: values that are written from now on will {what}; run the command again to bring them to \
         the policy (--maintain prints a crontab entry)",
        ready.relation.display_name()
    ));
}

async fn retoast(args: &RetoastArgs) -> Result<Exit, Failure> {
    if args.replication_origin.is_some() && (args.jobs > 1 || args.parallel_tables > 1) {
        return Err(Failure::usage(
            "--replication-origin is one session's: it goes with one job and one table at a time",
        ));
    }
    if args.policy.is_some() && args.jobs > 1 {
        return Err(Failure::usage(
            "--policy goes with one job: values pass through the temporary table of one session\n\
             HINT:  --parallel-tables sweeps several tables side by side.",
        ));
    }
    let refused = match &args.list_refused {
        Some(path) => Some(RefusedFile::create(path)?),
        None => None,
    };
    let (session, measuring) = Session::open(args).await?;
    let client = session.writer.client();
    if let Err(refusal) = preflight::server(&session.server) {
        return Err(session.refusal(&refusal).await);
    }
    let watch = Progress::new(args.progress, refused);
    let keeper = session.keeper(args, measuring, &mut |text| watch.note(text)).await?;
    if let Some(name) = &args.from_toaster {
        return retoast_from::run(args, &session, keeper, &watch, name).await;
    }
    let selection = match select(&session.writer, &session.server.database, &args.tables).await {
        Ok(selection) => selection,
        Err(error) => return Err(session.failure("", &error, &[]).await),
    };
    let (toaster, asked) = match &args.toaster {
        Some(ToasterArg::Stock(stock)) => (*stock, Asked::Stock(stock.name())),
        Some(ToasterArg::Named(name)) => {
            check_name(&session, name).await?;
            (Toaster::Extended, Asked::Becomes(name.clone()))
        }
        // a policy's columns compress nothing by themselves
        None => (Toaster::External, Asked::Stock(Toaster::External.name())),
    };
    let wish = Wish {
        columns: args.columns.clone(),
        toaster,
        asked,
        target: args.target,
        rule: args.policy.map(|policy| RuleWish {
            policy,
            method: args.method,
            new_extended: args.new_values == NewValues::Extended,
        }),
        no_alter: args.no_alter,
        allow_triggers: args.allow_triggers,
        allow_row_security: args.allow_row_security,
        trust_owner_code: args.trust_owner_code,
    };
    // every table is looked at before the first is touched
    let tables = match look_at_all(&session, &selection, &wish).await {
        Ok(tables) => tables,
        Err(refusal) => return Err(session.refusal(&refusal).await),
    };
    for ready in &tables {
        match keeper.check_space(ready).await {
            Ok(told) => told.iter().for_each(|told| {
                watch.note(&format!("{}: {told}", ready.relation.display_name()));
            }),
            Err(refusal) => return Err(session.refusal(&refusal).await),
        }
    }
    let eyes = session.eyes(args)?;
    if tables.iter().any(|ready| ready.plan.is_some()) {
        need_pages(&eyes)?;
    }
    let options = options(args, &session, toaster, eyes);
    if let (Some(name), false) = (&options.origin, args.dry_run)
        && let Err(refusal) = origin::set_up(client, name).await
    {
        return Err(session.refusal(&refusal).await);
    }
    let checkpoint = session.checkpoint(args)?;
    let memory = match &args.since {
        Some(path) => Some(Remembered::open(path, args.dry_run).map_err(|e| unusable(&e))?),
        None => None,
    };
    set_parents(&session, args, &wish, &watch).await?;
    let side_by_side = args.parallel_tables.min(u16::try_from(tables.len()).unwrap_or(u16::MAX));
    let connections = session.connections(args, side_by_side, keeper).await?;
    for ready in &tables {
        announce(args, ready);
    }
    let all = All {
        session: &session,
        tables: &tables,
        options: &options,
        watch: &watch,
        checkpoint: checkpoint.as_ref(),
        memory: memory.as_ref().filter(|_| !args.dry_run),
    };
    let swept = all.sweep(&connections).await;
    let (mut reports, mut failure) = (Vec::new(), None);
    for (_, report, failed) in swept {
        reports.extend(report);
        failure = failure.or(failed);
    }
    watch.end();
    finish(args, reports, failure, session.control.stopped())
}

/// What `--since` names is no such file.
fn unusable(error: &SinceError) -> Failure {
    Failure::usage(error.to_string())
}

/// Looks at every table. Of those that a pattern matches, what has nothing to rewrite is left out.
async fn look_at_all(
    session: &Session,
    selection: &Selection,
    wish: &Wish,
) -> Result<Vec<Ready>, Refusal> {
    let client = session.writer.client();
    selection.notices().iter().for_each(|text| tell(&format!("notice: {text}")));
    let mut tables = Vec::new();
    for found in &selection.found {
        if found.how == How::Matched
            && let Some(relation) = catalog::describe(client, found.oid).await?
            && let Some(why) = preflight::unfit(&relation, &wish.columns)
        {
            tell(&format!("notice: left out: {why}"));
            continue;
        }
        tables.extend(preflight::table(client, &session.server, found.oid, wish).await?);
    }
    if tables.is_empty() && selection.found.iter().any(|found| found.how == How::Matched) {
        return Err(Refusal::Usage("no table that is named has these columns".to_owned()));
    }
    Ok(tables)
}

/// Has new partitions of the partitioned tables that were named take the choice from them.
async fn set_parents(
    session: &Session,
    args: &RetoastArgs,
    wish: &Wish,
    watch: &Progress,
) -> Result<(), Failure> {
    // what new values get under a policy is set when all is done, and only on tables
    if wish.no_alter || wish.rule.is_some_and(|rule| rule.new_extended) {
        return Ok(());
    }
    let client = session.writer.client();
    let work = async {
        let oids =
            select::partitioned(&session.writer, &session.server.database, &args.tables).await?;
        let mut parents = Vec::new();
        for oid in oids {
            parents.extend(parents::parent(client, &session.server, oid, wish).await?);
        }
        for parent in &parents {
            if args.dry_run {
                tell(&format!("{}: would set: {}", parent.name, parent.alter));
                continue;
            }
            let lock_timeout = Duration::from_millis(args.lock_timeout);
            let patience = Patience {
                name: &parent.name,
                watch,
                stop: session.control.stop_flag(),
                lock_timeout,
            };
            match patience.alter(client, &parent.alter).await?.0 {
                Tried::Done(()) => tell(&format!("{}: set: {}", parent.name, parent.alter)),
                Tried::Stopped => break,
                Tried::NoLock => tell(&format!(
                    "warning: {}: no lock to set the choice: new partitions will not have it",
                    parent.name
                )),
            }
        }
        Ok::<(), Refusal>(())
    };
    match work.await {
        Ok(()) => Ok(()),
        Err(refusal) => Err(session.refusal(&refusal).await),
    }
}

/// The tables to sweep.
struct All<'a> {
    session: &'a Session,
    tables: &'a [Ready],
    options: &'a Options,
    watch: &'a Progress,
    checkpoint: Option<&'a Checkpoint>,
    memory: Option<&'a Remembered>,
}

/// What became of a table.
type Swept = (usize, Option<TableReport>, Option<Failure>);

impl All<'_> {
    /// Sweeps them, one at a time with each of `connections`. After a failure no other table is begun.
    async fn sweep(&self, connections: &[Connections]) -> Vec<Swept> {
        let next = AtomicUsize::new(0);
        let workers = connections.iter().map(|one| self.some(one, &next));
        let mut swept: Vec<Swept> = join_all(workers).await.into_iter().flatten().collect();
        swept.sort_by_key(|(at, ..)| *at);
        swept
    }

    /// Sweeps those that nobody else has begun.
    async fn some(&self, connections: &Connections, next: &AtomicUsize) -> Vec<Swept> {
        let mut swept = Vec::new();
        let notebook = Notebook::default();
        let mut sessions = Sessions {
            writers: connections.writers.clone(),
            reader: Arc::clone(&connections.reader),
        };
        while !self.session.control.stopped() {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let (Some(ready), Some(writer)) = (self.tables.get(at), sessions.writers.first())
            else {
                break;
            };
            let place = format!("{}: ", ready.relation.display_name());
            let (since, doubt) = match self.since(writer, ready).await {
                Ok(Ok(since)) => (since, None),
                Ok(Err(doubt)) => {
                    let told = format!("{place}--since: all rows are judged: {doubt}");
                    self.watch.note(&told);
                    (None, Some(doubt))
                }
                Err(error) => {
                    next.store(self.tables.len(), Ordering::Relaxed);
                    let failure = failed(&place, &error, &sessions.all()).await;
                    swept.push((at, None, Some(failure)));
                    break;
                }
            };
            let (mut earlier, mut ends): (Option<TableReport>, u32) = (None, 0);
            let mut watched = Watched::default();
            let (report, ended) = loop {
                let Some((writer, others)) = sessions.writers.split_first() else {
                    break (None, Ok(()));
                };
                let sweep = Sweep {
                    writer: Arc::clone(writer),
                    others: others.to_vec(),
                    reader: Arc::clone(&sessions.reader),
                    server: &self.session.server,
                    ready,
                    options: self.options,
                    watch: self.watch,
                    stop: self.session.control.stop_flag(),
                    keeper: &connections.keeper,
                    checkpoint: self.checkpoint,
                    notebook: &notebook,
                    since,
                    doubt: doubt.clone(),
                    watched,
                };
                let (mut report, ended) = sweep.run().await;
                watched = sweep.watched;
                ends = match &report {
                    Some(report) if report.rows_stored > 0 => 0,
                    _ => ends + 1,
                };
                if let (Some(report), Some(earlier)) = (&mut report, earlier.take()) {
                    report.go_on_from(earlier);
                }
                let reason = match &ended {
                    Err(RunError::Live(error)) if ends < ENDS && !self.session.stopped() => {
                        sessions.end(error).await
                    }
                    _ => None,
                };
                let Some(reason) = reason else { break (report, ended) };
                self.watch.note(&format!("{place}a session has ended: {reason}"));
                let origin = self.options.origin.as_deref();
                if sessions.renew(self.session, origin, &connections.keeper).await.is_err() {
                    break (report, ended);
                }
                self.watch.note(&format!("{place}going on in a new session"));
                earlier = report;
            };
            let mut failure = None;
            if let Err(error) = ended {
                // the other workers find no table left
                next.store(self.tables.len(), Ordering::Relaxed);
                failure = Some(match &error {
                    RunError::Live(error) => {
                        let failure = failed(&place, error, &sessions.all()).await;
                        if self.options.show_details { failure } else { failure.without_detail() }
                    }
                    RunError::Lost(_) => Failure::new(Exit::Connection, format!("{place}{error}")),
                    other => Failure::new(Exit::Incomplete, format!("{place}{other}")),
                });
            }
            // at once: what follows may be stopped or killed
            if let (Some(memory), Some(report)) = (self.memory, &report) {
                let remembered = memory.remember(ready, report);
                failure = failure.or(remembered
                    .err()
                    .map(|error| Failure::new(Exit::Incomplete, error.to_string())));
            }
            swept.push((at, report, failure));
        }
        swept
    }

    /// What `--since` knows of a table.
    async fn since(
        &self,
        writer: &Connection,
        ready: &Ready,
    ) -> Result<Result<Option<Since>, Doubt>, LiveError> {
        match self.memory {
            Some(memory) => memory.since(writer.client(), ready).await,
            None => Ok(Ok(None)),
        }
    }
}

/// Refuses the name of a toaster that the server does not have, before anything is looked at.
async fn check_name(session: &Session, name: &str) -> Result<(), Failure> {
    match toasters::ask(session.writer.client(), &session.server).await {
        Ok(toasters) => match pluggable::named(toasters.as_ref(), name) {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure::usage(error.to_string())),
        },
        Err(error) => Err(session.failure("", &error, &[]).await),
    }
}

fn finish(
    args: &RetoastArgs,
    tables: Vec<TableReport>,
    failure: Option<Failure>,
    stopped: bool,
) -> Result<Exit, Failure> {
    let mut exit = worst(&tables);
    if stopped {
        exit = Exit::Stopped;
    }
    let report = Report { schema: SCHEMA, dry_run: args.dry_run, tables, departure: None };
    if !report.tables.is_empty() {
        print(args, &report)?;
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    Ok(told(exit))
}
