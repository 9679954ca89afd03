//! The connections of `toastctl retoast`, and what it says when one is lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::exit::{Exit, Failure};
use super::inspect::SourceArg;
use super::retoast::{RetoastArgs, ToasterArg};
use super::retoast_progress::tell;
use super::{retoast_signals, terminal};
use crate::retoast::check::preflight;
use crate::retoast::check::refusal::Refusal;
use crate::retoast::goal::toaster::Toaster;
use crate::retoast::memory::checkpoint::{self, Checkpoint, CheckpointError};
use crate::retoast::pace::control::Control;
use crate::retoast::pace::gauges;
use crate::retoast::pace::keeper::Keeper;
use crate::retoast::result::{Outcome, Report, TableReport};
use crate::retoast::sweep::eyes::Eyes;
use crate::retoast::sweep::machine::Tuning;
use crate::retoast::sweep::options::Options;
use crate::server::LiveError;
use crate::server::about::{Pageinspect, Server};
use crate::server::connect::{Connection, SessionOptions};

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
    /// How long a batch may wait for this program before the server gives its locks back.
    pub(super) idle_limit: Duration,
}

impl Session {
    /// With the connection for measuring.
    pub(super) async fn open(args: &RetoastArgs) -> Result<(Session, Connection), Failure> {
        let options = SessionOptions::read_write("retoast");
        let mut warn = |warning: &str| tell(&format!("warning: {warning}"));
        let writer = args
            .connection
            .connect(&options, &mut warn)
            .await
            .map_err(|error| Failure::from(&error))?;
        let writer = Arc::new(writer);
        let measuring = measuring(&writer).await?;
        // before anything else: until then nothing is set that outlives a transaction
        if let Err(refusal) = preflight::own_sessions(&writer, &measuring).await {
            return Err(refused(&refusal, &[Arc::clone(&writer)]).await);
        }
        let asked = Instant::now();
        let server = Server::ask(writer.client())
            .await
            .map_err(|error| Failure::new(Exit::Incomplete, error.to_string()))?;
        let idle_limit = match gauges::idle_limit(writer.client(), asked.elapsed()).await {
            Ok(limit) => limit,
            Err(error) => return Err(failed("", &error, &[Arc::clone(&writer)]).await),
        };
        let control = Arc::new(Control::new(args.manners.pause_file.clone()));
        retoast_signals::listen(&control, args.max_runtime, args.stop_file.clone());
        Ok((Session { writer, server, control, idle_limit }, measuring))
    }

    /// What measures on this connection.
    pub(super) async fn keeper(
        &self,
        args: &RetoastArgs,
        connection: Connection,
        note: &mut (dyn FnMut(&str) + Send),
    ) -> Result<Keeper, Failure> {
        let wants = args.manners.wants(args.max_bloat, args.dry_run);
        match Keeper::open(Arc::new(connection), Arc::clone(&self.control), wants, note).await {
            Ok(keeper) => Ok(keeper),
            Err(refusal) => Err(self.refusal(&refusal).await),
        }
    }

    /// Another session like this one.
    pub(super) async fn open_another(&self, like: &Connection) -> Result<Arc<Connection>, Failure> {
        let opened = like.open_another().await.map_err(|error| Failure::from(&error))?;
        match opened.make_own().await {
            Ok(()) => Ok(Arc::new(opened)),
            Err(error) => Err(self.refusal(&error.into()).await),
        }
    }

    /// Connections for so many sweeps side by side, the first of them with this keeper.
    pub(super) async fn connections(
        &self,
        args: &RetoastArgs,
        sweeps: u16,
        keeper: Keeper,
    ) -> Result<Vec<Connections>, Failure> {
        let open = async || self.open_another(&self.writer).await;
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
                None => self.keeper(args, measuring(&self.writer).await?, &mut |_| {}).await?,
            };
            all.push(Connections { writers, reader: open().await?, keeper });
        }
        let mut ours = Vec::new();
        for some in &all {
            let others = [Arc::clone(&some.reader), some.keeper.measuring().connection()];
            for connection in some.writers.iter().chain(&others) {
                match gauges::backend(connection.client()).await {
                    Ok(backend) => ours.push(backend),
                    Err(error) => return Err(self.refusal(&error.into()).await),
                }
            }
        }
        for some in &all {
            some.keeper.measuring().know_own(&ours);
        }
        Ok(all)
    }

    pub(super) fn checkpoint(&self, args: &RetoastArgs) -> Result<Option<Checkpoint>, Failure> {
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
        failed(place, error, &[used, &[Arc::clone(&self.writer)]].concat()).await
    }

    pub(super) async fn refusal(&self, refusal: &Refusal) -> Failure {
        refused(refusal, &[Arc::clone(&self.writer)]).await
    }
}

/// A connection for measuring, whose session is never given settings.
pub(super) async fn measuring(writer: &Connection) -> Result<Connection, Failure> {
    let options = SessionOptions {
        lock_timeout: Duration::from_secs(1),
        statement_timeout: Duration::from_secs(60),
        ..SessionOptions::read_only("retoast")
    };
    writer.open_another_with(&options).await.map_err(|error| Failure::from(&error))
}

/// As psql puts it, with the code of a lost connection if one of these is.
pub(super) async fn failed(
    place: &str,
    error: &LiveError,
    connections: &[Arc<Connection>],
) -> Failure {
    if let LiveError::Server(statement) = error {
        for connection in connections {
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

pub(super) async fn refused(refusal: &Refusal, connections: &[Arc<Connection>]) -> Failure {
    match refusal {
        Refusal::Live(error) => failed("", error, connections).await,
        Refusal::Usage(text) => Failure::usage(text.clone()),
        Refusal::Refused(text) => Failure::new(Exit::Incomplete, text.clone()),
        Refusal::Lost(text) => Failure::new(Exit::Connection, text.clone()),
    }
}

/// What the columns are brought to, in a word.
pub(super) fn choice(args: &RetoastArgs) -> String {
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

/// How to go about it, as the arguments say.
pub(super) fn options(
    args: &RetoastArgs,
    session: &Session,
    toaster: Toaster,
    eyes: Eyes,
) -> Options {
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
        idle_limit: session.idle_limit,
        row_security_off: !args.allow_row_security,
        dry_run: args.dry_run,
        origin: args.replication_origin.clone(),
        enforce: args.enforce,
        undo: args.undo,
        show_details: args.show_details,
    }
}

/// SQL functions do not tell which toaster wrote a value.
pub(super) fn need_pages(eyes: &Eyes) -> Result<&Pageinspect, Failure> {
    match eyes {
        Eyes::Pages(pageinspect) => Ok(pageinspect),
        Eyes::Functions => Err(Failure::new(
            Exit::Incomplete,
            "pages must be read here: nothing else tells which toaster of pg_toaster stored a value\n\
             HINT:  Run as a superuser, with the extension pageinspect in this database.",
        )),
    }
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
    match crate::report::retoast::write(
        report,
        args.format,
        width,
        &mut terminal::stdout_for_people(args.format),
    ) {
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
