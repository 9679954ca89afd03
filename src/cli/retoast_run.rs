//! Runs `toastctl retoast`: from arguments to report and exit code.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::exit::{Exit, Failure};
use super::inspect::SourceArg;
use super::retoast::{RetoastArgs, ToasterArg};
use super::retoast_from;
use super::terminal;
use crate::retoast::choice::Toaster;
use crate::retoast::machine::Tuning;
use crate::retoast::pluggable::{self, Asked};
use crate::retoast::preflight::{self, Ready, Refusal, Wish};
use crate::retoast::result::{Outcome, Report, SCHEMA, TableReport};
use crate::retoast::run::{Options, RunError, Sweep, Watch};
use crate::retoast::scan::Eyes;
use crate::source::connect::{Connection, SessionOptions};
use crate::source::live::LiveError;
use crate::source::live::catalog;
use crate::source::live::server::Server;
use crate::source::live::toasters;

/// How often progress is told.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Does what the arguments say.
pub(super) fn run(args: &RetoastArgs) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Incomplete, format!("could not start: {error}")))?;
    runtime.block_on(retoast(args))
}

/// One line on standard error.
pub(super) fn tell(text: &str) {
    // Nobody to tell is no reason to stop.
    let _ = writeln!(io::stderr(), "toastctl: {text}");
}

/// Progress in plain lines.
pub(super) struct Lines {
    last: Mutex<Instant>,
}

impl Default for Lines {
    fn default() -> Lines {
        Lines { last: Mutex::new(Instant::now()) }
    }
}

impl Watch for Lines {
    fn progress(&self, relation: &str, scan: u32, read: u32, blocks: u32, rows: u64) {
        let Ok(mut last) = self.last.lock() else { return };
        if last.elapsed() < LINE_EVERY {
            return;
        }
        *last = Instant::now();
        let percent = 100 * u64::from(read) / u64::from(blocks.max(1));
        tell(&format!(
            "{relation}: scan {scan}: {read} of {blocks} blocks ({percent} %), {rows} rows stored \
             anew"
        ));
    }

    fn note(&self, text: &str) {
        tell(text);
    }
}

/// Two connections, for batches and for scans.
pub(super) struct Session {
    pub(super) writer: Arc<Connection>,
    pub(super) reader: Arc<Connection>,
    pub(super) server: Server,
    pub(super) stop: Arc<AtomicBool>,
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
        let reader = writer.open_another().await.map_err(|error| Failure::from(&error))?;
        let server = Server::ask(writer.client())
            .await
            .map_err(|error| Failure::new(Exit::Incomplete, error.to_string()))?;
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let (limit, file) = (args.max_runtime, args.stop_file.clone());
        tokio::spawn(async move {
            let mut terminate =
                tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).ok();
            let terminated = async {
                match &mut terminate {
                    Some(signal) => {
                        signal.recv().await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                () = terminated => {}
                () = time_is_up(limit) => {}
                () = appears(file) => {}
            }
            asked.store(true, Ordering::Relaxed);
        });
        Ok(Session { writer: Arc::new(writer), reader: Arc::new(reader), server, stop })
    }

    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
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
    pub(super) async fn failure(&self, place: &str, error: &LiveError) -> Failure {
        if let LiveError::Server(statement) = error {
            for connection in [&self.writer, &self.reader] {
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
            Refusal::Live(error) => self.failure("", error).await,
            Refusal::Usage(text) => Failure::usage(text.clone()),
            Refusal::Refused(text) => Failure::new(Exit::Incomplete, text.clone()),
        }
    }
}

/// Ends after so many seconds, or never.
async fn time_is_up(seconds: Option<u64>) {
    match seconds {
        Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
        None => std::future::pending().await,
    }
}

/// Ends when the file is there.
async fn appears(file: Option<PathBuf>) {
    let Some(file) = file else { return std::future::pending().await };
    while !tokio::fs::try_exists(&file).await.unwrap_or(false) {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn retoast(args: &RetoastArgs) -> Result<Exit, Failure> {
    let session = Session::open(args).await?;
    let client = session.writer.client();
    if let Err(refusal) = preflight::server(client, &session.server).await {
        return Err(session.refusal(&refusal).await);
    }
    if let Some(name) = &args.from_toaster {
        return retoast_from::run(args, &session, name).await;
    }
    let oids = match catalog::find(client, &session.server.database, &args.tables).await {
        Ok(oids) => oids,
        Err(error) => return Err(session.failure("", &error).await),
    };
    let (toaster, asked) = match &args.toaster {
        Some(ToasterArg::Stock(stock)) => (*stock, Asked::Stock(stock.name())),
        Some(ToasterArg::Named(name)) => {
            check_name(&session, name).await?;
            (Toaster::Extended, Asked::Becomes(name.clone()))
        }
        None => return Err(Failure::usage("--toaster is missing")),
    };
    let wish = Wish {
        columns: args.columns.clone(),
        toaster,
        asked,
        target: args.target,
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
    let eyes = session.eyes(args)?;
    if tables.iter().any(|ready| ready.plan.is_some()) {
        need_pages(&eyes)?;
    }
    let options = options(args, toaster, eyes);
    let watch = Lines::default();
    let mut reports: Vec<TableReport> = Vec::new();
    let mut failure = None;
    for ready in &tables {
        let sweep = Sweep {
            writer: Arc::clone(&session.writer),
            reader: Arc::clone(&session.reader),
            server: &session.server,
            ready,
            options: &options,
            watch: &watch,
            stop: &session.stop,
        };
        match sweep.run().await {
            Ok(report) => reports.push(report),
            Err(error) => {
                let place = format!("{}: ", ready.relation.display_name());
                failure = Some(match &error {
                    RunError::Live(error) => session.failure(&place, error).await,
                    other => Failure::new(Exit::Incomplete, format!("{place}{other}")),
                });
                break;
            }
        }
        if session.stop.load(Ordering::Relaxed) {
            break;
        }
    }
    finish(args, reports, failure, session.stop.load(Ordering::Relaxed))
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
        },
        verify: args.verify.into(),
        lock_timeout: Duration::from_millis(args.lock_timeout),
        row_security_off: !args.allow_row_security,
        dry_run: args.dry_run,
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
    match toasters::ask(session.writer.client()).await {
        Ok(toasters) => match pluggable::named(toasters.as_ref(), name) {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure::usage(error.to_string())),
        },
        Err(error) => Err(session.failure("", &error).await),
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
        Outcome::Incomplete => Exit::Incomplete,
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
    let mut words: Vec<String> = Vec::new();
    for word in std::env::args() {
        let secret = word.contains("://") || word.contains("password");
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=%@".contains(c);
        words.push(if secret {
            "'…'".to_owned()
        } else if !word.is_empty() && word.chars().all(plain) {
            word
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        });
    }
    words.join(" ")
}
