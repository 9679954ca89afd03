//! Runs `toastctl retoast`: from arguments to report and exit code.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::exit::{Exit, Failure};
use super::inspect::SourceArg;
use super::maintain;
use super::retoast::{NewValues, RetoastArgs};
use super::since_file;
use super::terminal;
use crate::retoast::choice::Toaster;
use crate::retoast::machine::Tuning;
use crate::retoast::policy_scan::Notebook;
use crate::retoast::preflight::{self, Ready, Refusal, RuleWish, Wish};
use crate::retoast::result::{Outcome, Report, SCHEMA, TableReport};
use crate::retoast::run::{Options, RunError, Sweep, Watch};
use crate::retoast::scan::Eyes;
use crate::retoast::since::{Memory, Since};
use crate::source::connect::{Connection, SessionOptions};
use crate::source::live::LiveError;
use crate::source::live::catalog;
use crate::source::live::server::Server;

/// How often progress is told.
const LINE_EVERY: Duration = Duration::from_secs(10);

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

/// One line on standard error.
fn tell(text: &str) {
    // Nobody to tell is no reason to stop.
    let _ = writeln!(io::stderr(), "toastctl: {text}");
}

/// Progress in plain lines.
struct Lines {
    last: Mutex<Instant>,
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
struct Session {
    writer: Arc<Connection>,
    reader: Arc<Connection>,
    server: Server,
    stop: Arc<AtomicBool>,
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

    fn eyes(&self, args: &RetoastArgs) -> Result<Eyes, Failure> {
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
    async fn failure(&self, place: &str, error: &LiveError) -> Failure {
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

    async fn refusal(&self, refusal: &Refusal) -> Failure {
        match refusal {
            Refusal::Live(error) => self.failure("", error).await,
            Refusal::Usage(text) => Failure::usage(text.clone()),
            Refusal::Refused(text) => Failure::new(Exit::Incomplete, text.clone()),
        }
    }
}

/// What `--since` remembers.
struct Remembered {
    path: PathBuf,
    memory: Memory,
    /// `system_identifier` of the cluster, and the database.
    place: String,
    /// The next transaction.
    now: u64,
}

impl Remembered {
    async fn open(path: &Path, session: &Session) -> Result<Remembered, Failure> {
        let memory = since_file::read(path)?;
        let asked = session
            .writer
            .client()
            .query_typed(
                "SELECT s.system_identifier::pg_catalog.text, \
                 pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::pg_catalog.text \
                 FROM pg_catalog.pg_control_system() AS s",
                &[],
            )
            .await;
        let told = |error: tokio_postgres::Error| {
            Failure::new(Exit::Incomplete, format!("--since: {}", LiveError::from(error)))
        };
        let rows = asked.map_err(told)?;
        let (system, now): (String, String) = match rows.first() {
            Some(row) => (row.try_get(0).map_err(told)?, row.try_get(1).map_err(told)?),
            None => Default::default(),
        };
        Ok(Remembered {
            path: path.to_owned(),
            memory,
            place: format!("{system}/{}", session.server.database),
            now: now.parse().unwrap_or(0),
        })
    }

    fn table(&self, ready: &Ready) -> String {
        format!("{}/{}", self.place, ready.relation.oid.0)
    }

    fn since(&self, ready: &Ready) -> Option<Since> {
        self.memory.since(&self.table(ready), &ready.choice()?, self.now)
    }

    fn remember(&mut self, ready: &Ready, report: &TableReport) -> Result<(), Failure> {
        match (report.outcome, report.horizon, ready.choice()) {
            (Outcome::Complete, Some(horizon), Some(choice)) => {
                self.memory.remember(self.table(ready), choice, horizon);
                since_file::write(&self.path, &self.memory)
            }
            _ => Ok(()),
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

/// The toaster; a policy's columns compress nothing by themselves.
fn toaster(args: &RetoastArgs) -> Toaster {
    args.toaster.unwrap_or(Toaster::External)
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
    let session = Session::open(args).await?;
    let client = session.writer.client();
    if let Err(refusal) = preflight::server(client, &session.server).await {
        return Err(session.refusal(&refusal).await);
    }
    let oids = match catalog::find(client, &session.server.database, &args.tables).await {
        Ok(oids) => oids,
        Err(error) => return Err(session.failure("", &error).await),
    };
    let wish = Wish {
        columns: args.columns.clone(),
        toaster: toaster(args),
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
    let options = Options {
        toaster: toaster(args),
        eyes: session.eyes(args)?,
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
    };
    let watch = Lines { last: Mutex::new(Instant::now()) };
    let notebook = Notebook::default();
    let mut memory = match &args.since {
        Some(path) => Some(Remembered::open(path, &session).await?),
        None => None,
    };
    let mut reports: Vec<TableReport> = Vec::new();
    let mut failure = None;
    for ready in &tables {
        announce(args, ready);
        let sweep = Sweep {
            writer: Arc::clone(&session.writer),
            reader: Arc::clone(&session.reader),
            server: &session.server,
            ready,
            options: &options,
            watch: &watch,
            stop: &session.stop,
            notebook: &notebook,
            since: match &memory {
                Some(memory) if !args.dry_run => memory.since(ready),
                _ => None,
            },
        };
        match sweep.run().await {
            Ok(report) => {
                if let Some(memory) = &mut memory {
                    memory.remember(ready, &report)?;
                }
                reports.push(report);
            }
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

fn finish(
    args: &RetoastArgs,
    tables: Vec<TableReport>,
    failure: Option<Failure>,
    stopped: bool,
) -> Result<Exit, Failure> {
    let mut exit = Exit::Ok;
    for table in &tables {
        exit = exit.max(match table.outcome {
            Outcome::Complete | Outcome::Planned => Exit::Ok,
            Outcome::Incomplete => Exit::Incomplete,
            Outcome::Stopped => Exit::Stopped,
        });
    }
    if stopped {
        exit = Exit::Stopped;
    }
    let report = Report { schema: SCHEMA, dry_run: args.dry_run, tables };
    if !report.tables.is_empty() {
        let width = terminal::output_width();
        match crate::report::retoast::write(&report, args.format, width, &mut terminal::stdout()) {
            Err(error) if !terminal::is_closed_pipe(&error) => {
                return Err(Failure::new(Exit::Incomplete, format!("could not write: {error}")));
            }
            _ => {}
        }
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    if exit == Exit::Stopped {
        tell(&format!("stopped; to go on: {}", command_line()));
    }
    Ok(exit)
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
