//! Runs `toastctl retoast`: from arguments to report and exit code.

use std::sync::Arc;
use std::time::Duration;

use super::exit::{Exit, Failure};
use super::inspect::SourceArg;
use super::retoast::RetoastArgs;
use super::retoast_progress::{Progress, tell};
use super::retoast_signals;
use super::terminal;
use crate::retoast::checkpoint::{self, Checkpoint, CheckpointError};
use crate::retoast::control::Control;
use crate::retoast::keeper::Keeper;
use crate::retoast::machine::Tuning;
use crate::retoast::origin;
use crate::retoast::preflight::{self, Ready, Refusal, Wish};
use crate::retoast::result::{Outcome, Report, SCHEMA, TableReport};
use crate::retoast::run::{Options, RunError, Sweep, Watch};
use crate::retoast::scan::Eyes;
use crate::source::connect::{Connection, SessionOptions};
use crate::source::live::LiveError;
use crate::source::live::catalog;
use crate::source::live::server::Server;

/// Does what the arguments say.
pub(super) fn run(args: &RetoastArgs) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Incomplete, format!("could not start: {error}")))?;
    runtime.block_on(retoast(args))
}

/// Two connections, for batches and for scans.
struct Session {
    writer: Arc<Connection>,
    reader: Arc<Connection>,
    server: Server,
    control: Arc<Control>,
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
        let control = Arc::new(Control::new(args.manners.pause_file.clone()));
        retoast_signals::listen(&control, args.max_runtime, args.stop_file.clone());
        Ok(Session { writer: Arc::new(writer), reader: Arc::new(reader), server, control })
    }

    /// A third connection, for measuring.
    async fn keeper(&self, args: &RetoastArgs, watch: &Progress) -> Result<Keeper, Failure> {
        let connection = self.writer.open_another().await.map_err(|error| Failure::from(&error))?;
        let wants = args.manners.wants(args.max_bloat, args.dry_run);
        let mut note = |text: &str| watch.note(text);
        match Keeper::open(Arc::new(connection), Arc::clone(&self.control), wants, &mut note).await
        {
            Ok(keeper) => Ok(keeper),
            Err(refusal) => Err(self.refusal(&refusal).await),
        }
    }

    fn checkpoint(&self, args: &RetoastArgs) -> Result<Option<Checkpoint>, Failure> {
        let Some(path) = &args.checkpoint else { return Ok(None) };
        let sweep = checkpoint::Sweep {
            database: self.server.database.clone(),
            choice: format!("{} to {}", args.columns.join(", "), args.toaster.name()),
        };
        Checkpoint::open(path, sweep).map(Some).map_err(|error| match error {
            CheckpointError::Io { .. } => Failure::new(Exit::Incomplete, error.to_string()),
            _ => Failure::usage(error.to_string()),
        })
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

async fn retoast(args: &RetoastArgs) -> Result<Exit, Failure> {
    let session = Session::open(args).await?;
    let client = session.writer.client();
    if let Err(refusal) = preflight::server(client, &session.server).await {
        return Err(session.refusal(&refusal).await);
    }
    let watch = Progress::new(args.progress);
    let keeper = session.keeper(args, &watch).await?;
    let oids = match catalog::find(client, &session.server.database, &args.tables).await {
        Ok(oids) => oids,
        Err(error) => return Err(session.failure("", &error).await),
    };
    let wish = Wish {
        columns: args.columns.clone(),
        toaster: args.toaster,
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
    for ready in &tables {
        match keeper.check_space(ready).await {
            Ok(told) => told.iter().for_each(|told| {
                watch.note(&format!("{}: {told}", ready.relation.display_name()));
            }),
            Err(refusal) => return Err(session.refusal(&refusal).await),
        }
    }
    let options = Options {
        toaster: args.toaster,
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
        origin: args.replication_origin.clone(),
    };
    if let (Some(name), false) = (&options.origin, args.dry_run)
        && let Err(refusal) = origin::set_up(client, name).await
    {
        return Err(session.refusal(&refusal).await);
    }
    let checkpoint = session.checkpoint(args)?;
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
            stop: session.control.stop_flag(),
            keeper: &keeper,
            checkpoint: checkpoint.as_ref(),
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
        if session.control.stopped() {
            break;
        }
    }
    watch.end();
    finish(args, reports, failure, session.control.stopped())
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
