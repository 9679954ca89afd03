//! Runs `toastctl retoast`: from arguments to report and exit code.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;

use super::exit::{Exit, Failure};
use super::inspect::SourceArg;
use super::maintain;
use super::retoast::{NewValues, RetoastArgs, ToasterArg};
use super::retoast_from;
use super::retoast_progress::{Progress, tell};
use super::retoast_signals;
use super::since_file::Remembered;
use super::terminal;
use crate::retoast::checkpoint::{self, Checkpoint, CheckpointError};
use crate::retoast::choice::Toaster;
use crate::retoast::control::Control;
use crate::retoast::gauges;
use crate::retoast::keeper::Keeper;
use crate::retoast::machine::Tuning;
use crate::retoast::origin;
use crate::retoast::parents;
use crate::retoast::patience::{Patience, Tried};
use crate::retoast::pluggable::{self, Asked};
use crate::retoast::policy_scan::Notebook;
use crate::retoast::preflight::{self, Ready, Refusal, RuleWish, Wish};
use crate::retoast::result::{Outcome, Report, SCHEMA, TableReport};
use crate::retoast::run::{Options, RunError, Sweep};
use crate::retoast::scan::Eyes;
use crate::retoast::watch::Watch;
use crate::source::connect::{Connection, SessionOptions};
use crate::source::live::LiveError;
use crate::source::live::catalog;
use crate::source::live::server::Server;
use crate::source::live::toasters;

/// Does what the arguments say.
pub(super) fn run(args: &RetoastArgs) -> Result<Exit, Failure> {
    if args.maintain {
        let words: Vec<String> = std::env::args().collect();
        // Nobody to tell is no reason to fail.
        let _ = write!(io::stdout(), "{}", maintain::entry(args, &words));
        return Ok(Exit::Ok);
    }
    if args.no_alter && args.new_values == NewValues::Extended {
        return Err(Failure::usage(
            "--new-values extended sets the columns, and --no-alter forbids to set them",
        ));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Incomplete, format!("could not start: {error}")))?;
    runtime.block_on(retoast(args))
}

/// The connections of one sweep.
pub(super) struct Connections {
    /// For batches, one for each job.
    pub(super) writers: Vec<Arc<Connection>>,
    pub(super) reader: Arc<Connection>,
    /// Measures on one of its own.
    pub(super) keeper: Keeper,
}

/// The first connection, from which the others are made, and what is known of the server.
pub(super) struct Session {
    pub(super) writer: Arc<Connection>,
    pub(super) server: Server,
    pub(super) control: Arc<Control>,
}

impl Session {
    async fn open(args: &RetoastArgs) -> Result<Session, Failure> {
        let options = SessionOptions::read_write("retoast");
        let mut warn = |warning: &str| tell(&format!("warning: {warning}"));
        let writer = args
            .connection
            .connect(&options, &mut warn)
            .await
            .map_err(|error| Failure::from(&error))?;
        let server = Server::ask(writer.client())
            .await
            .map_err(|error| Failure::new(Exit::Incomplete, error.to_string()))?;
        let control = Arc::new(Control::new(args.manners.pause_file.clone()));
        retoast_signals::listen(&control, args.max_runtime, args.stop_file.clone());
        Ok(Session { writer: Arc::new(writer), server, control })
    }

    /// A connection for measuring.
    async fn keeper(
        &self,
        args: &RetoastArgs,
        note: &mut (dyn FnMut(&str) + Send),
    ) -> Result<Keeper, Failure> {
        let connection = self.writer.open_another().await.map_err(|error| Failure::from(&error))?;
        let wants = args.manners.wants(args.max_bloat, args.dry_run);
        match Keeper::open(Arc::new(connection), Arc::clone(&self.control), wants, note).await {
            Ok(keeper) => Ok(keeper),
            Err(refusal) => Err(self.refusal(&refusal).await),
        }
    }

    /// Connections for so many sweeps side by side, the first of them with this keeper.
    pub(super) async fn connections(
        &self,
        args: &RetoastArgs,
        sweeps: u16,
        keeper: Keeper,
    ) -> Result<Vec<Connections>, Failure> {
        let open = async || {
            let opened = self.writer.open_another().await;
            opened.map(Arc::new).map_err(|error| Failure::from(&error))
        };
        let (mut all, mut first) = (Vec::new(), Some(keeper));
        for sweep in 0..sweeps {
            let mut writers = Vec::new();
            for job in 0..args.jobs {
                writers.push(if (sweep, job) == (0, 0) {
                    Arc::clone(&self.writer)
                } else {
                    open().await?
                });
            }
            let keeper = match first.take() {
                Some(keeper) => keeper,
                // what there is to say the first one has said
                None => self.keeper(args, &mut |_| {}).await?,
            };
            all.push(Connections { writers, reader: open().await?, keeper });
        }
        let mut ours = Vec::new();
        for some in &all {
            let others = [&*some.reader, some.keeper.connection()];
            for connection in some.writers.iter().map(|writer| &**writer).chain(others) {
                match gauges::backend(connection.client()).await {
                    Ok(backend) => ours.push(backend),
                    Err(error) => return Err(self.refusal(&error.into()).await),
                }
            }
        }
        for some in &mut all {
            some.keeper.know_own(ours.clone());
        }
        Ok(all)
    }

    fn checkpoint(&self, args: &RetoastArgs) -> Result<Option<Checkpoint>, Failure> {
        let Some(path) = &args.checkpoint else { return Ok(None) };
        let sweep = checkpoint::Sweep {
            database: self.server.database.clone(),
            choice: format!("{} to {}", args.columns.join(", "), choice(args)),
        };
        Checkpoint::open(path, sweep).map(Some).map_err(|error| match error {
            CheckpointError::Io { .. } => Failure::new(Exit::Incomplete, error.to_string()),
            _ => Failure::usage(error.to_string()),
        })
    }

    pub(super) fn stopped(&self) -> bool {
        self.control.stopped()
    }

    pub(super) fn eyes(&self, args: &RetoastArgs) -> Result<Eyes, Failure> {
        let why = if !self.server.superuser {
            "pageinspect needs a superuser"
        } else if self.server.pageinspect.is_none() {
            "the extension pageinspect is not installed in this database"
        } else {
            ""
        };
        match (&self.server.pageinspect, args.source) {
            (_, SourceArg::Functions) => Ok(Eyes::Functions),
            (Some(pageinspect), _) if why.is_empty() => Ok(Eyes::Pages(pageinspect.clone())),
            (_, SourceArg::Pageinspect) => {
                Err(Failure::new(Exit::Incomplete, format!("pages cannot be read: {why}")))
            }
            _ => {
                tell(&format!("notice: using SQL functions: {why}"));
                Ok(Eyes::Functions)
            }
        }
    }

    /// As psql puts it, with the code of a lost connection if it is that.
    pub(super) async fn failure(
        &self,
        place: &str,
        error: &LiveError,
        used: &[Arc<Connection>],
    ) -> Failure {
        if let LiveError::Server(statement) = error {
            for connection in used.iter().chain([&self.writer]) {
                if statement.as_db_error().is_none() || connection.is_lost() {
                    let explained = connection.explain(statement).await;
                    if connection.is_lost() {
                        return Failure::new(Exit::Connection, format!("{place}{explained}"));
                    }
                }
            }
        }
        Failure::new(Exit::Incomplete, format!("{place}{error}"))
    }

    pub(super) async fn refusal(&self, refusal: &Refusal) -> Failure {
        match refusal {
            Refusal::Live(error) => self.failure("", error, &[]).await,
            Refusal::Usage(text) => Failure::usage(text.clone()),
            Refusal::Refused(text) => Failure::new(Exit::Incomplete, text.clone()),
        }
    }
}

/// What the columns are brought to, in a word.
fn choice(args: &RetoastArgs) -> String {
    match (args.policy, args.method) {
        (None, _) => match &args.toaster {
            Some(ToasterArg::Named(name)) => name.clone(),
            Some(ToasterArg::Stock(toaster)) => toaster.name().to_owned(),
            None => String::new(),
        },
        (Some(policy), None) => policy.to_string(),
        (Some(policy), Some(method)) => format!("{policy} {method}"),
    }
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
        NewValues::Extended => {
            "be compressed whenever they can be (not while rows are stored anew)"
        }
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
    let session = Session::open(args).await?;
    let client = session.writer.client();
    if let Err(refusal) = preflight::server(client, &session.server).await {
        return Err(session.refusal(&refusal).await);
    }
    let watch = Progress::new(args.progress);
    let keeper = session.keeper(args, &mut |text| watch.note(text)).await?;
    if let Some(name) = &args.from_toaster {
        return retoast_from::run(args, &session, keeper, &watch, name).await;
    }
    let oids = match catalog::find(client, &session.server.database, &args.tables).await {
        Ok(oids) => oids,
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
    };
    // every table is looked at before the first is touched
    let mut tables: Vec<Ready> = Vec::new();
    for oid in oids {
        match preflight::table(client, &session.server, oid, &wish).await {
            Ok(ready) => tables.extend(ready),
            Err(refusal) => return Err(session.refusal(&refusal).await),
        }
    }
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
    let options = options(args, toaster, eyes);
    if let (Some(name), false) = (&options.origin, args.dry_run)
        && let Err(refusal) = origin::set_up(client, name).await
    {
        return Err(session.refusal(&refusal).await);
    }
    let checkpoint = session.checkpoint(args)?;
    let database = &session.server.database;
    let mut memory = match &args.since {
        Some(path) => Some(Remembered::open(path, client, database, args.dry_run).await?),
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
    for (at, report, failed) in swept {
        if let (Some(memory), Some(ready), Some(report)) = (&mut memory, tables.get(at), &report) {
            // the report is printed all the same
            failure = failure.or(memory.remember(ready, report).err());
        }
        reports.extend(report);
        failure = failure.or(failed);
    }
    watch.end();
    finish(args, reports, failure, session.control.stopped())
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
            catalog::find_partitioned(client, &session.server.database, &args.tables).await?;
        let mut parents = Vec::new();
        for oid in oids {
            parents.extend(parents::parent(client, oid, wish).await?);
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
        Ok(())
    };
    match work.await {
        Ok(()) => Ok(()),
        Err(error) => Err(session.failure("", &error, &[]).await),
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
        while !self.session.control.stopped() {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let (Some(ready), Some((writer, others))) =
                (self.tables.get(at), connections.writers.split_first())
            else {
                break;
            };
            let sweep = Sweep {
                writer: Arc::clone(writer),
                others: others.to_vec(),
                reader: Arc::clone(&connections.reader),
                server: &self.session.server,
                ready,
                options: self.options,
                watch: self.watch,
                stop: self.session.control.stop_flag(),
                keeper: &connections.keeper,
                checkpoint: self.checkpoint,
                notebook: &notebook,
                since: self.memory.and_then(|memory| memory.since(ready)),
            };
            let (report, ended) = sweep.run().await;
            let mut failure = None;
            if let Err(error) = ended {
                // the other workers find no table left
                next.store(self.tables.len(), Ordering::Relaxed);
                let place = format!("{}: ", ready.relation.display_name());
                let used = [&connections.writers[..], &[Arc::clone(&connections.reader)]].concat();
                failure = Some(match &error {
                    RunError::Live(error) => self.session.failure(&place, error, &used).await,
                    other => Failure::new(Exit::Incomplete, format!("{place}{other}")),
                });
            }
            swept.push((at, report, failure));
        }
        swept
    }
}

/// How to go about it, as the arguments say.
pub(super) fn options(args: &RetoastArgs, toaster: Toaster, eyes: Eyes) -> Options {
    Options {
        toaster,
        eyes,
        tuning: Tuning {
            window: args.window_pages,
            passes: args.passes,
            batch: Duration::from_millis(args.batch_ms),
            batch_bytes: args.batch_bytes,
            max_bloat: args.max_bloat,
            jobs: args.jobs.into(),
        },
        verify: args.verify.into(),
        lock_timeout: Duration::from_millis(args.lock_timeout),
        row_security_off: !args.allow_row_security,
        dry_run: args.dry_run,
        origin: args.replication_origin.clone(),
    }
}

/// SQL functions do not tell which toaster wrote a value.
pub(super) fn need_pages(eyes: &Eyes) -> Result<(), Failure> {
    match eyes {
        Eyes::Pages(_) => Ok(()),
        Eyes::Functions => Err(Failure::new(
            Exit::Incomplete,
            "pages must be read here: nothing else tells which toaster of pg_toaster stored a value\n\
             HINT:  Run as a superuser, with the extension pageinspect in this database.",
        )),
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

/// The exit code that says how the worst of the tables ended.
pub(super) fn worst(tables: &[TableReport]) -> Exit {
    let exits = tables.iter().map(|table| match table.outcome {
        Outcome::Complete | Outcome::Planned => Exit::Ok,
        Outcome::Incomplete | Outcome::Failed => Exit::Incomplete,
        Outcome::Stopped => Exit::Stopped,
    });
    exits.max().unwrap_or(Exit::Ok)
}

/// Writes the report.
pub(super) fn print(args: &RetoastArgs, report: &Report) -> Result<(), Failure> {
    let width = terminal::output_width();
    match crate::report::retoast::write(report, args.format, width, &mut terminal::stdout()) {
        Err(error) if !terminal::is_closed_pipe(&error) => {
            Err(Failure::new(Exit::Incomplete, format!("could not write: {error}")))
        }
        _ => Ok(()),
    }
}

/// The exit code, after what goes on is told where there is something to go on with.
pub(super) fn told(exit: Exit) -> Exit {
    if exit == Exit::Stopped {
        tell(&format!("stopped; to go on: {}", command_line()));
    }
    exit
}

/// The command that goes on, as a shell takes it. A connection string may hold a password and is left
/// out.
fn command_line() -> String {
    let words: Vec<String> = std::env::args().map(|word| shell_word(&word)).collect();
    words.join(" ")
}

/// A word as a shell takes it; what may hold a password is left out.
pub(super) fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=%@".contains(c);
    if word.contains("://") || word.contains("password") {
        "'…'".to_owned()
    } else if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
