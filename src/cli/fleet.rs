//! `--all` and `--targets`: a verb on several databases. Each of them is a run of the verb as it is without these
//! options, whose connection, format and output are those of the database.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Display;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::{ArgGroup, Args};
use parking_lot::Mutex;

use super::connect::{
    Connection, ConnectionArgs, OfFleet, SessionOptions, ThisProcess, is_connection_string,
};
use super::exit::{Exit, Failure};
use super::retoast_output::to_continue;
use super::terminal::{self, ClusterReaders, Kept, Notices, TargetRun, Ui};
use crate::drive::sites::{Limits, Pending, Step, each_site, in_thread};
use crate::message::Message;
use crate::report::document::{Format, OutputFormat};
use crate::report::fleet::{SCHEMA, TargetOutput, TargetReport, Writer};
use crate::report::nagios::State;
use crate::report::overview::View;
use crate::report::units::counted;
use crate::retoast::listener::Control;
use crate::retoast::memory;
use crate::retoast::memory::finished::Finished;
use crate::server::sink::Failed;
use crate::server::{LiveError, about};

/// The largest file of targets that is read from standard input, and the longest line.
const LARGEST_FILE: u64 = 16 << 20;
const LONGEST_LINE: usize = 8 << 10;
/// The most targets of a file.
const MOST_TARGETS: usize = 100_000;
/// The most lines of a file of targets with the same mistake that are reported one by one.
const MOST_TOLD: usize = 3;
/// The hint about what a file of targets holds.
const LINES: &str = "Each line names a database: a URI, a connection string or a service name.";
/// Threads that work at a time, however many connections are allowed.
const MOST_AT_A_TIME: usize = 128;
/// Seconds until a server that does not answer counts as down, unless the connection says otherwise.
const CONNECT_TIMEOUT: (&str, &str) = ("connect_timeout", "10");

/// Several databases.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Connection options",
          group(ArgGroup::new("several").args(["all", "targets"]).multiple(true)))]
pub struct FleetArgs {
    /// All databases of the server
    ///
    /// Those that allow connections and are not templates. Their names are read in postgres, or in the database that a
    /// connection string (-d dbname=NAME) or PGDATABASE names; -d with only a name is refused. With --targets, all
    /// databases of each server.
    #[arg(long)]
    pub(super) all: bool,

    /// The databases in a file; - is stdin
    ///
    /// One URI, key=value connection string or service name per line; blank lines and lines that begin with # are
    /// ignored. Passwords come from where psql takes them. With target_session_attrs=prefer-standby and several hosts,
    /// verbs that read use a standby. toastctl never prompts for a password, and waits 10 seconds for a server, unless
    /// connect_timeout says otherwise. A database that fails does not affect the others; the exit code is the worst
    /// one: toastctl help exit-codes.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["host", "port", "dbname", "password"])]
    targets: Option<PathBuf>,

    /// Connections in all and per server [default: 32,8]
    ///
    /// With --all or --targets. Verbs that write work on one database of a server at a time. A database takes as many
    /// connections as --jobs says; with retoast, compact and reindex 2 more.
    #[arg(long, value_name = "N[,N]", requires = "several")]
    max_connections: Option<MaxConnections>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxConnections {
    in_all: usize,
    per_server: usize,
}

impl FromStr for MaxConnections {
    type Err = String;

    fn from_str(text: &str) -> Result<MaxConnections, String> {
        let (in_all, per_server) = match text.split_once(',') {
            Some((in_all, per_server)) => (connections(in_all), connections(per_server)),
            None => (connections(text), connections(text)),
        };
        match in_all.zip(per_server) {
            Some((in_all, per_server)) => Ok(MaxConnections { in_all, per_server }),
            None => {
                Err("expected one or two whole numbers from 1 to 1000, such as 32,8".to_owned())
            }
        }
    }
}

fn connections(text: &str) -> Option<usize> {
    text.trim().parse().ok().filter(|number| (1..=1000).contains(number))
}

/// A verb that is to run on a database, or on several.
pub(super) struct Fleet<'a> {
    pub(super) args: &'a FleetArgs,
    pub(super) verb: &'static str,
    pub(super) connection: &'a ConnectionArgs,
    /// How overviews are printed, which are joined for people.
    pub(super) view: View,
    /// Connections that the verb opens to a database.
    pub(super) connections: u16,
    pub(super) writes: Option<Writes<'a>>,
}

/// Arguments that only verbs that write have.
pub(super) struct Writes<'a> {
    /// The limit of time for all databases together.
    pub(super) max_time: Option<Duration>,
    pub(super) checkpoint: Option<&'a Path>,
    /// What is done, as the checkpoint has it.
    pub(super) work: String,
    pub(super) dry_run: bool,
}

/// A database that a verb runs on, and where it prints.
pub(super) struct Database {
    pub(super) ui: Ui,
    pub(super) connection: ConnectionArgs,
    pub(super) checkpoint: Option<PathBuf>,
}

impl Database {
    /// Connects to this database as [`Ui::connected`] does.
    pub(super) async fn connected(&self, session: &SessionOptions) -> Result<Connection, Failure> {
        self.ui.connected(&self.connection, session).await
    }
}

/// A server or a database.
struct FleetTarget {
    name: String,
    connection: ConnectionArgs,
    /// What is the same for a database under every name of its server; `None` for a server, of which the databases are not
    /// known yet, or whose identity.
    identity: Option<String>,
}

/// The outcome of the run on a database.
struct DatabaseOutcome {
    name: String,
    exit: Exit,
    /// Whether there was nothing to do.
    is_passed_over: bool,
    error: Option<String>,
    kept: Kept,
    took: Duration,
}

impl FleetArgs {
    /// Whether there may be several databases.
    ///
    /// # Errors
    /// Together with files, which are read without a server.
    pub(super) fn is_given(&self, with_files: bool) -> Result<bool, Failure> {
        let given = self.all || self.targets.is_some();
        if given && with_files {
            Err(Failure::usage("--all and --targets need servers: they cannot be used with files"))
        } else {
            Ok(given)
        }
    }
}

/// Refuses an option that has no meaning for several databases.
fn refuse(options: &[(&str, bool)]) -> Result<(), Failure> {
    match options.iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(Failure::usage(format!(
            "{option} cannot be used with --all or --targets: it is about one database"
        ))),
        None => Ok(()),
    }
}

impl Fleet<'_> {
    /// The database of the connection, for a run without `--all` and `--targets`.
    pub(super) fn single(&self, ui: &Ui) -> Database {
        let checkpoint = self.writes.as_ref().and_then(|writes| writes.checkpoint);
        Database {
            ui: ui.at(self.connection),
            connection: self.connection.clone(),
            checkpoint: checkpoint.map(Path::to_owned),
        }
    }

    /// Runs a verb on the database of the connection, or on each of several. The worst exit code counts. `alone`: options
    /// that are about one database, and whether they are given.
    ///
    /// # Errors
    /// The arguments, the file of targets or the checkpoint make no sense; nothing was done.
    pub(super) fn run(
        &self,
        ui: &Ui,
        alone: &[(&str, bool)],
        verb: impl Fn(&Database) -> Result<Exit, Failure> + Sync,
    ) -> Result<Exit, Failure> {
        if !self.args.is_given(false)? {
            return verb(&self.single(ui));
        }
        Ok(self.run_in(OutputFormat::Report(ui.format), ui, alone, verb)?.0)
    }

    /// Runs a verb on each of several databases. Returns the worst exit code, and what a plugin says in its place.
    ///
    /// # Errors
    /// As of [`Fleet::run`].
    pub(super) fn run_in(
        &self,
        format: OutputFormat,
        ui: &Ui,
        alone: &[(&str, bool)],
        verb: impl Fn(&Database) -> Result<Exit, Failure> + Sync,
    ) -> Result<(Exit, Option<State>), Failure> {
        let checkpoint = self.writes.as_ref().and_then(|writes| writes.checkpoint);
        refuse(alone)?;
        refuse(&[("-W", self.connection.password)])?;
        self.no_database()?;
        let limits = self.limits()?;
        let finished = match (&self.writes, checkpoint) {
            (Some(writes), Some(path)) if !writes.dry_run => {
                Some(Finished::open(path, &writes.work).map_err(Failure::usage)?)
            }
            _ => None,
        };
        let (mut waiting, outcomes) = self.named_targets(ui)?;
        if waiting.is_empty() && outcomes.is_empty() {
            return Err(Failure::usage("--targets: the file names no database"));
        }
        let is_paged = self.writes.is_none() && self.verb != "check";
        let out = if is_paged { ui.paged_out() } else { ui.report_out() };
        let writer = Writer::new(out, self.verb, format, ui.width, self.view);
        let mut printer = Printer { writer, worst: Exit::Ok, error: None };
        if !outcomes.into_iter().all(|outcome| printer.print(outcome)) {
            waiting.clear();
        }
        let stop = Arc::new(Control::default());
        let shared = Shared { finished, ..Shared::default() };
        let visits = Visits { fleet: self, ui, verb, stop: &stop, shared: Mutex::new(shared) };
        let interrupt = async {
            stop.stop(ui.stopped(self.writes.as_ref().and_then(|writes| writes.max_time)).await);
        };
        let runtime = terminal::runtime(0)?;
        let visits = &visits;
        let rest = thread::scope(|scope| {
            runtime.block_on(each_site(
                waiting,
                limits,
                async |target: FleetTarget| {
                    let name = target.name.clone();
                    let step = in_thread(scope, move || visits.visit(&target)).await;
                    step.unwrap_or_else(|error| {
                        let why = format!("could not start: {error}");
                        let failure = Failure::new(Exit::Incomplete, why);
                        Step::Done(DatabaseOutcome::failed(ui, name, failure))
                    })
                },
                interrupt,
                |outcome| printer.print(outcome),
            ))
        });
        if stop.stopped() {
            for target in rest {
                printer.print(DatabaseOutcome::before_its_turn(ui, target.name));
            }
            printer.worst = printer.worst.max(Exit::Stopped);
            ui.progress(to_continue(stop.stopped_by()));
        }
        let mut shared = visits.shared.lock();
        for notice in shared.notices.lock().take() {
            ui.tell(notice);
        }
        if let Some(message) = shared.matches_nowhere() {
            ui.tell(message);
            printer.worst = printer.worst.max(Exit::Incomplete);
        }
        if printer.worst == Exit::Ok
            && printer.error.is_none()
            && let Some(finished) = shared.finished.take()
            && let Err(error) = finished.end()
        {
            ui.warning(format!("--checkpoint: {error}"));
        }
        printer.writer.about(&shared.servers);
        printer.end(shared.skipped)
    }

    /// Refuses the name of a database together with `--all`; a connection string says where to connect.
    fn no_database(&self) -> Result<(), Failure> {
        match &self.connection.dbname {
            Some(name) if self.args.all && !is_connection_string(name) => {
                let text = format!(
                    "--all is for all databases, and -d {name} for one: they cannot be used together"
                );
                let hint = "Leave out one of them. --all connects to postgres first, or to the database of a connection string: -d dbname=NAME.";
                Err(Failure::usage(text).hint(hint))
            }
            _ => Ok(()),
        }
    }

    /// The targets that are named, each once, and those that make no sense.
    fn named_targets(
        &self,
        ui: &Ui,
    ) -> Result<(Vec<Pending<FleetTarget>>, Vec<DatabaseOutcome>), Failure> {
        let mut waiting = Vec::new();
        let mut outcomes = Vec::new();
        let mut known = HashSet::new();
        let mut mistakes: BTreeMap<String, usize> = BTreeMap::new();
        for (line, text) in self.lines()? {
            match self.target(text.as_deref()) {
                Ok((_, target)) if !known.insert(target.name.clone()) => {
                    ui.tell(Message::warning("named twice").of_target(&target.name));
                }
                Ok((server_key, target)) => waiting.push(Pending { server_key, target }),
                Err(failure) => {
                    let text = failure.message.to_string();
                    let lines = mistakes.entry(text).or_default();
                    *lines += 1;
                    if *lines <= MOST_TOLD {
                        ui.tell(failure.message.clone().of_target(&line));
                    }
                    outcomes.push(DatabaseOutcome::untold(line, failure));
                }
            }
        }
        for (text, lines) in mistakes {
            if let more @ 1.. = lines.saturating_sub(MOST_TOLD) {
                let more = counted(more as u64, "more line");
                ui.tell(Message::error(format!("{more}: {text}")).hint(LINES));
            }
        }
        Ok((waiting, outcomes))
    }
}

/// What the visits to all targets share.
#[derive(Default)]
struct Shared {
    /// The databases of servers, of which each is visited once: their names, by identity.
    found: HashMap<String, String>,
    clusters: Arc<Mutex<ClusterReaders>>,
    notices: Arc<Mutex<Notices>>,
    finished: Option<Finished>,
    /// Databases that an earlier run has finished.
    skipped: u64,
    /// Why there was nothing to do in the first database of which this is so.
    passed_over: Option<String>,
    /// Whether there is a database of which this is not so.
    has_matched: bool,
    /// The servers, with their versions.
    servers: BTreeSet<String>,
}

/// A database that has another name too.
struct KnownDatabase {
    name: String,
    /// The name that it is visited by.
    first: String,
}

impl Shared {
    /// The error that there was nothing to do in any database.
    fn matches_nowhere(&self) -> Option<Message> {
        let text = format!("{} in any of the databases", self.passed_over.as_ref()?);
        (!self.has_matched && self.skipped == 0).then(|| Message::error(text))
    }

    /// Keeps the databases that are not visited under another name, and returns the others. Those with the same name are
    /// no news.
    fn retain_new(&mut self, databases: &mut Vec<Pending<FleetTarget>>) -> Vec<KnownDatabase> {
        let mut again = Vec::new();
        databases.retain(|Pending { target, .. }| {
            let name = target.name.clone();
            match self.found.entry(target.identity.clone().unwrap_or_default()) {
                Entry::Vacant(new) => {
                    new.insert(name);
                    true
                }
                Entry::Occupied(known) => {
                    let first = known.get().clone();
                    if first != name {
                        again.push(KnownDatabase { name, first });
                    }
                    false
                }
            }
        });
        again
    }
}

struct Visits<'a, V> {
    fleet: &'a Fleet<'a>,
    ui: &'a Ui,
    verb: V,
    stop: &'a Arc<Control>,
    shared: Mutex<Shared>,
}

impl<V: Fn(&Database) -> Result<Exit, Failure>> Visits<'_, V> {
    fn visit(&self, target: &FleetTarget) -> Step<FleetTarget, DatabaseOutcome> {
        let _span = tracing::debug_span!("database", name = target.name).entered();
        let shared = self.shared.lock();
        let clusters = Arc::clone(&shared.clusters);
        let notices = Arc::clone(&shared.notices);
        drop(shared);
        let run = TargetRun::new(target.name.clone(), Arc::clone(self.stop), clusters, notices);
        // each line of JSON has the document of one database, and one page has the texts of all
        let format = match self.ui.format {
            Format::Jsonl => Format::Json,
            Format::Html => Format::Table,
            format => format,
        };
        let ui = self.ui.on_target(run, format);
        if target.identity.is_none() {
            return self.expand(target, &ui);
        }
        if self.skips(target) {
            return Step::Expand(Vec::new());
        }
        let outcome = self.outcome(target, &ui);
        if outcome.exit == Exit::Ok
            && !outcome.is_passed_over
            && let Some(finished) = &mut self.shared.lock().finished
            && let Err(error) = finished.add(&target.name)
        {
            ui.warning(format!("--checkpoint: {error}"));
        }
        Step::Done(outcome)
    }

    /// Finds the databases of a server.
    fn expand(&self, target: &FleetTarget, ui: &Ui) -> Step<FleetTarget, DatabaseOutcome> {
        match self.fleet.databases(target, ui) {
            Ok((server, mut databases)) => {
                let mut shared = self.shared.lock();
                shared.servers.insert(server);
                let again = shared.retain_new(&mut databases);
                drop(shared);
                self.tell_again(&target.name, &again);
                Step::Expand(databases)
            }
            Err(failure) => {
                let name = target.name.clone();
                let outcome = match failure.exit {
                    Exit::Stopped => DatabaseOutcome::before_its_turn(self.ui, name),
                    _ => DatabaseOutcome::failed(self.ui, name, failure),
                };
                Step::Done(DatabaseOutcome { kept: kept(ui), ..outcome })
            }
        }
    }

    /// Says which databases have another name that is visited.
    fn tell_again(&self, server: &str, again: &[KnownDatabase]) {
        const BY: &str = "by its system identifier: counted once";
        let message = match again {
            [] => return,
            [known] => {
                let text = format!("is the same database as {}, {BY}", known.first);
                Message::notice(text).of_target(&known.name)
            }
            [known, ..] => {
                let text = format!(
                    "{} databases are on the same server as {}, {BY}",
                    again.len(),
                    known.first
                );
                Message::notice(text).of_target(server)
            }
        };
        self.ui.tell(message);
    }

    /// Whether an earlier run has finished this database.
    fn skips(&self, target: &FleetTarget) -> bool {
        let mut shared = self.shared.lock();
        let is_finished =
            shared.finished.as_ref().is_some_and(|finished| finished.has(&target.name));
        shared.skipped += u64::from(is_finished);
        is_finished
    }

    /// Runs the verb on a database.
    fn outcome(&self, target: &FleetTarget, ui: &Ui) -> DatabaseOutcome {
        let began = Instant::now();
        let checkpoint = self.fleet.writes.as_ref().and_then(|writes| writes.checkpoint);
        let database = Database {
            ui: ui.at(&target.connection),
            connection: target.connection.clone(),
            checkpoint: checkpoint.map(|path| Finished::of_database(path, &target.name)),
        };
        let mut is_passed_over = false;
        let (exit, failed) = match (self.verb)(&database) {
            Ok(exit) => {
                self.shared.lock().has_matched = true;
                (exit, None)
            }
            Err(Failure { message: Message { passed_over: Some(why), .. }, .. }) => {
                ui.tell(Message::notice(why.clone()));
                self.shared.lock().passed_over.get_or_insert_with(|| why.clone());
                is_passed_over = true;
                // a verdict on all names what it is not about
                (Exit::Ok, (self.fleet.verb == "check").then_some(why))
            }
            Err(failure) => {
                self.shared.lock().has_matched = true;
                ui.tell(failure.message.clone());
                (failure.exit, Some(failure.message.to_string()))
            }
        };
        let kept = kept(ui);
        let error = failed.or_else(|| match (exit, kept.errors.as_slice()) {
            (Exit::Ok, _) | (_, []) => None,
            (_, [first]) => Some(first.clone()),
            (_, [first, rest @ ..]) => {
                Some(format!("{first}\n(and {} more, in the messages)", rest.len()))
            }
        });
        let name = target.name.clone();
        let took = began.elapsed();
        DatabaseOutcome { name, exit, is_passed_over, error, kept, took }
    }
}

/// What was printed on a target.
fn kept(ui: &Ui) -> Kept {
    ui.target.as_ref().map(|target| target.take()).unwrap_or_default()
}

impl<'a> Fleet<'a> {
    pub(super) fn new(
        verb: &'static str,
        args: &'a FleetArgs,
        connection: &'a ConnectionArgs,
        connections: u16,
    ) -> Fleet<'a> {
        Fleet { args, verb, connection, view: View::default(), connections, writes: None }
    }

    /// How many databases are worked on at a time.
    fn limits(&self) -> Result<Limits, Failure> {
        let given =
            self.args.max_connections.unwrap_or(MaxConnections { in_all: 32, per_server: 8 });
        let each = usize::from(self.connections);
        if each > given.in_all || each > given.per_server {
            let text = format!(
                "a database takes {each} connections, which --max-connections {},{} does not allow",
                given.in_all, given.per_server
            );
            let hint = "Use fewer --jobs, or allow more connections.";
            return Err(Failure::usage(text).hint(hint));
        }
        let per_server = if self.writes() { 1 } else { given.per_server / each };
        Ok(Limits { in_all: (given.in_all / each).min(MOST_AT_A_TIME), per_server })
    }

    fn writes(&self) -> bool {
        self.writes.as_ref().is_some_and(|writes| !writes.dry_run)
    }

    /// The lines of the file, each with a name for messages. Without a file it is the server of the options.
    fn lines(&self) -> Result<Vec<(String, Option<String>)>, Failure> {
        let Some(path) = &self.args.targets else { return Ok(vec![(String::new(), None)]) };
        let unreadable = |why: &dyn Display| {
            Failure::usage(format!("--targets: file \"{}\": {why}", path.display())).hint(LINES)
        };
        let (bytes, name) = if path == Path::new("-") {
            let mut bytes = Vec::new();
            let read = io::stdin().take(LARGEST_FILE + 1).read_to_end(&mut bytes);
            read.map_err(|error| unreadable(&error))?;
            (bytes, "stdin".to_owned())
        } else {
            let bytes = memory::read(path).map_err(|error| unreadable(&error))?;
            (bytes, path.display().to_string())
        };
        let lines = lines(&bytes).map_err(|why| unreadable(&why))?;
        Ok(lines
            .into_iter()
            .map(|(number, line)| (format!("line {number} of {name}"), Some(line)))
            .collect())
    }

    /// The target that a line names, and the key of its server.
    fn target(&self, line: Option<&str>) -> Result<(String, FleetTarget), Failure> {
        let mut connection = self.connection.clone();
        connection.no_password = true;
        connection.of_fleet.defaults = vec![CONNECT_TIMEOUT];
        if let Some(line) = line {
            connection.dbname = Some(dbname(line)?);
        }
        if self.args.all {
            connection.of_fleet.defaults.push(("dbname", "postgres"));
        }
        resolved(connection, None).map_err(|failure| match line {
            // parts of the line would be parts of a password if it is not what it seems to be
            Some(line) if line.contains('@') || line.contains("pass") => {
                Failure::usage("this is not a URI, connection string or service name")
            }
            _ => failure,
        })
    }

    /// A server with its version, and its databases with a key that is the same under every name of the server.
    fn databases(
        &self,
        target: &FleetTarget,
        ui: &Ui,
    ) -> Result<(String, Vec<Pending<FleetTarget>>), Failure> {
        let (version, server, names) = terminal::runtime(1)?.block_on(async {
            let session = SessionOptions::read_only(self.verb);
            let connection = ui.connected(&target.connection, &session).await?;
            let asked = connection
                .reading(async || {
                    let server = about::instance(connection.client()).await?;
                    let names = if self.args.all {
                        about::databases(connection.client()).await?
                    } else {
                        vec![about::database(connection.client()).await?]
                    };
                    Ok::<_, LiveError>((server, names))
                })
                .await;
            let version = connection.server_version() / 10_000;
            let asked = asked.map(|(server, names)| (version, server, names));
            asked.map_err(|error| Failure::from(Failed::incomplete(&error)))
        })?;
        let host = target.name.rsplit_once('/').map_or("", |(host, _)| host);
        let shown = format!("{host}, PostgreSQL {version}");
        let mut found = Vec::with_capacity(names.len());
        for name in names {
            let identity = format!("{server} {name}");
            let database = self.args.all.then_some(name);
            let connection = ConnectionArgs {
                of_fleet: OfFleet { database, ..target.connection.of_fleet.clone() },
                ..target.connection.clone()
            };
            let (_, target) = resolved(connection, Some(identity))?;
            found.push(Pending { server_key: server.clone(), target });
        }
        Ok((shown, found))
    }
}

/// The servers that a connection leads to, and the target with the options that lead there again.
fn resolved(
    mut connection: ConnectionArgs,
    identity: Option<String>,
) -> Result<(String, FleetTarget), Failure> {
    let process = ThisProcess::default();
    let resolved = connection.resolve(&process).map_err(|error| Failure::from(&error))?;
    // the line, or its service, may name a user that commands would not find
    let usual = ConnectionArgs::default().resolve(&process).map(|usual| usual.user);
    let is_usual = usual.is_ok_and(|usual| usual == resolved.user);
    let user = (!is_usual).then(|| ("-U", resolved.user.clone()));
    let options = resolved.options().into_iter().chain(user);
    connection.of_fleet.place =
        options.flat_map(|(option, value)| [option.to_owned(), value]).collect();
    let target = FleetTarget { name: resolved.name(), connection, identity };
    Ok((resolved.servers(), target))
}

impl DatabaseOutcome {
    /// It could not be begun.
    fn failed(ui: &Ui, name: String, failure: Failure) -> DatabaseOutcome {
        if failure.exit != Exit::Stopped {
            ui.tell(failure.message.clone().of_target(&name));
        }
        DatabaseOutcome::untold(name, failure)
    }

    /// The same, without a message.
    fn untold(name: String, Failure { exit, message }: Failure) -> DatabaseOutcome {
        let error = Some(message.to_string());
        let kept = Kept::default();
        let took = Duration::ZERO;
        DatabaseOutcome { name, exit, is_passed_over: false, error, kept, took }
    }

    /// The run was stopped before any work on it.
    fn before_its_turn(ui: &Ui, name: String) -> DatabaseOutcome {
        DatabaseOutcome::failed(ui, name, Failure::new(Exit::Stopped, "stopped before its turn"))
    }
}

/// Prints the outcomes of the databases.
struct Printer<W: io::Write> {
    writer: Writer<W>,
    worst: Exit,
    /// Why nothing more is printed.
    error: Option<io::Error>,
}

impl<W: io::Write> Printer<W> {
    /// Whether it is still read.
    fn print(&mut self, outcome: DatabaseOutcome) -> bool {
        let DatabaseOutcome { name, exit, error, kept, took, .. } = outcome;
        self.worst = self.worst.max(exit);
        let meaning =
            if kept.alarms.is_empty() { exit.meaning().to_owned() } else { kept.alarms.join("; ") };
        let mut printed = TargetOutput { text: kept.report, meaning, ..TargetOutput::default() };
        if let Some(mut overview) = kept.overview {
            overview.name(&name);
            printed.overview = Some(overview);
        }
        if let Some(mut comparison) = kept.comparison {
            comparison.name(&name);
            printed.comparison = Some(comparison);
        }
        printed.families = kept.families;
        printed.service = kept.service;
        let report = TargetReport {
            schema: SCHEMA,
            target: name,
            exit_code: exit.code(),
            seconds: (took.as_secs_f64() * 1e3).round() / 1e3,
            error,
            result: None,
        };
        if self.error.is_none() {
            self.error = self.writer.target(report, printed).err();
        }
        self.error.is_none()
    }

    fn end(self, skipped: u64) -> Result<(Exit, Option<State>), Failure> {
        let written = match self.error {
            Some(error) => Err(error),
            None => self.writer.finish(skipped),
        };
        match written {
            Ok(state) => Ok((self.worst, state)),
            Err(error) => Ok((terminal::unwritable(&error)?, None)),
        }
    }
}

/// The lines that name something, each with its number.
fn lines(bytes: &[u8]) -> Result<Vec<(usize, String)>, String> {
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(format!("it is longer than {} MB", LARGEST_FILE >> 20));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut lines = Vec::new();
    for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let number = at + 1;
        if line.len() > LONGEST_LINE {
            return Err(format!("line {number} is longer than {LONGEST_LINE} bytes"));
        }
        let line = str::from_utf8(line).map_err(|_| format!("line {number} is not UTF-8"))?.trim();
        if line.contains('\0') {
            return Err(format!("line {number} contains a zero byte"));
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if lines.len() == MOST_TARGETS {
            return Err(format!("it names more than {MOST_TARGETS} databases"));
        }
        lines.push((number, line.to_owned()));
    }
    Ok(lines)
}

/// A line as the value of `--dbname`.
fn dbname(line: &str) -> Result<String, Failure> {
    match line {
        _ if is_connection_string(line) => Ok(line.to_owned()),
        _ if line.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.')) => {
            Ok(format!("service={line}"))
        }
        // it is not repeated, because it may be a URI with a password and a slip of the keyboard
        _ => Err(Failure::usage("this is not a URI, connection string or service name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_name_databases_and_comments_do_not() {
        let text = b"\xef\xbb\xbfone\r\n\n # two\n  host=a dbname='b c'\npostgres://u:p@h/d";
        let named: Vec<(usize, String)> = lines(text).unwrap();
        let shown: Vec<(usize, &str)> = named.iter().map(|(n, line)| (*n, line.as_str())).collect();
        assert_eq!(shown, [(1, "one"), (4, "host=a dbname='b c'"), (5, "postgres://u:p@h/d")]);
        assert_eq!(dbname("one").unwrap(), "service=one");
        assert_eq!(dbname("host=a").unwrap(), "host=a");
        let failure = dbname("postgres:/u:secret@h").unwrap_err();
        assert!(failure.exit == Exit::Usage && !failure.message.to_string().contains("secret"));
    }

    #[test]
    fn files_that_name_no_databases_are_refused() {
        let error = |text: &[u8]| lines(text).unwrap_err();
        assert_eq!(error(b"a\n\xff\n"), "line 2 is not UTF-8");
        assert_eq!(error(b"a\0b"), "line 1 contains a zero byte");
        assert_eq!(error(&[b'a'; LONGEST_LINE + 1]), "line 1 is longer than 8192 bytes");
        assert_eq!(error(&vec![b'\n'; (16 << 20) + 1]), "it is longer than 16 MB");
        assert_eq!(error(&b"a\n".repeat(100_001)), "it names more than 100000 databases");
        assert!(lines(b"").unwrap().is_empty());
    }

    #[test]
    fn commands_name_the_user_of_a_line() {
        for (line, user) in [
            ("host=db port=5432 user=not_of_this_system dbname=app", " -U not_of_this_system"),
            ("host=db port=5432 dbname=app", ""),
        ] {
            let dbname = Some(line.to_owned());
            let connection = ConnectionArgs { dbname, ..ConnectionArgs::default() };
            let place = resolved(connection, None).unwrap().1.connection.of_fleet.place;
            assert_eq!(place.join(" "), format!("-h db -p 5432 -d app{user}"));
        }
    }

    #[test]
    fn connections_are_two_numbers() {
        let connections = |in_all, per_server| Ok(MaxConnections { in_all, per_server });
        assert_eq!("40, 4".parse(), connections(40, 4));
        assert_eq!("6".parse(), connections(6, 6));
        for bad in ["", "0", "8,0", "8,", "1001", "1,2,3", "-1"] {
            assert!(bad.parse::<MaxConnections>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_file_is_read_or_refused(bytes: Vec<u8>) {
            for (_, line) in lines(&bytes).unwrap_or_default() {
                let _ = dbname(&line);
            }
        }
    }
}
