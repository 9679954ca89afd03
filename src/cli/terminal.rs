//! The terminal: its width, progress on it, and a standard output that may be closed.

use std::cell::RefCell;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio_util::sync::CancellationToken;

use super::connect::ConnectionArgs;
use super::exit::{Exit, Failure};
use crate::inspect::overview::rank::Overview;
use crate::report::document::Format;
use crate::report::table::{DARK_YELLOW, printable_lines};
use crate::server::about::untested;
use crate::server::connect::{Connection, SessionOptions};
use crate::server::sink::{Failed, RunError, UserMessage};
use toast_format::heap::progress::Progress;

/// Width of tables in a file or a pipe, unless `COLUMNS` says otherwise.
const PIPE_WIDTH: usize = 100;

/// Width of tables on standard output: `COLUMNS` if set, else the terminal's; `None` for no limit, which is
/// `COLUMNS=0`.
pub fn output_width() -> Option<usize> {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.trim().parse().ok());
    if let Some(width) = columns {
        return Some(width).filter(|&width| width > 0);
    }
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return Some(PIPE_WIDTH);
    }
    terminal_size::terminal_size_of(stdout).map(|(width, _)| usize::from(width.0))
}

/// Whether the locale's encoding is UTF-8, by the variables that say so.
pub fn is_utf8() -> bool {
    is_utf8_locale(
        ["LC_ALL", "LC_CTYPE", "LANG"]
            .into_iter()
            .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
            .as_deref(),
    )
}

/// `None`, as in cron or a container, means the C locale. Most of its terminals accept UTF-8 nevertheless, but that is
/// not certain.
fn is_utf8_locale(name: Option<&str>) -> bool {
    let name = name.unwrap_or("C").to_ascii_lowercase();
    name.ends_with("utf-8")
        || name.ends_with("utf8")
        || name.contains(".utf-8@")
        || name.contains(".utf8@")
}

/// Bytes that the report of one of several targets may have: it is kept until it is complete.
const LARGEST_REPORT: usize = 64 << 20;

/// The output of a run on one of several targets, on all its threads. Messages name the target; the report stays in
/// memory until the target's turn has come.
pub(super) struct Console {
    /// The name of the target in messages.
    pub(super) name: String,
    /// Cancelled to end the run.
    pub(super) stop: CancellationToken,
    kept: Mutex<Kept>,
}

/// What a run on one of several targets has printed.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) report: Vec<u8>,
    /// The errors, without their severity.
    pub(super) errors: Vec<String>,
    /// The overview, which is printed with those of other targets.
    pub(super) overview: Option<Overview>,
}

thread_local! {
    static CONSOLE: RefCell<Option<Arc<Console>>> = const { RefCell::new(None) };
}

impl Console {
    pub(super) fn new(name: String, stop: CancellationToken) -> Arc<Console> {
        Arc::new(Console { name, stop, kept: Mutex::default() })
    }

    /// The console of this thread, if it works on one of several targets.
    pub(super) fn here() -> Option<Arc<Console>> {
        CONSOLE.with_borrow(Clone::clone)
    }

    fn set(console: Option<Arc<Console>>) {
        CONSOLE.set(console);
    }

    /// Does the work of a target; [`Console::take`] returns what it printed.
    pub(super) fn within<T>(self: &Arc<Console>, work: impl FnOnce() -> T) -> T {
        Console::set(Some(Arc::clone(self)));
        let done = work();
        Console::set(None);
        done
    }

    pub(super) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take(&self) -> Kept {
        std::mem::take(&mut self.kept())
    }
}

/// Standard output, or what keeps it for later.
pub(super) enum Out {
    Process(io::BufWriter<io::Stdout>),
    Kept(Arc<Console>),
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Out::Process(stdout) => stdout.write(bytes),
            Out::Kept(console) => {
                let report = &mut console.kept().report;
                if report.len().saturating_add(bytes.len()) > LARGEST_REPORT {
                    let limit = LARGEST_REPORT >> 20;
                    return Err(io::Error::other(format!(
                        "the report is longer than {limit} MB: run toastctl on this database alone"
                    )));
                }
                report.extend_from_slice(bytes);
                Ok(bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Out::Process(stdout) => stdout.flush(),
            Out::Kept(_) => Ok(()),
        }
    }
}

/// Standard output, buffered. A reader that went away (`| head`) is not an error: see
/// [`is_closed_pipe`].
pub(super) fn stdout() -> Out {
    match Console::here() {
        Some(console) => Out::Kept(console),
        None => Out::Process(io::BufWriter::with_capacity(1 << 16, io::stdout())),
    }
}

/// Standard output for people: where the locale is not one of UTF-8, the signs that reports are drawn with
/// have ASCII in their places. What comes from the server stays as it is. Styles are for terminals, unless NO_COLOR,
/// CLICOLOR or TERM forbids them, or CLICOLOR_FORCE has them everywhere.
pub(super) fn stdout_for_people(format: Format) -> Plain<Out> {
    let people = matches!(format, Format::Table | Format::Markdown);
    let styled = people && AutoStream::choice(&io::stdout()) != ColorChoice::Never;
    Plain { inner: stdout(), ascii: people && !is_utf8(), styled }
}

/// A writer that replaces some signs by ASCII of the same width, and removes styles.
pub struct Plain<W> {
    inner: W,
    ascii: bool,
    styled: bool,
}

impl<W: Write> Write for Plain<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Ok(text) = std::str::from_utf8(bytes) else { return self.inner.write(bytes) };
        let strip = !self.styled && text.contains('\u{1b}');
        if !strip && (!self.ascii || text.is_ascii()) {
            return self.inner.write(bytes);
        }
        let text = if strip { strip_str(text).to_string() } else { text.to_owned() };
        let text = if self.ascii { ascii(&text) } else { text };
        self.inner.write_all(text.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// The signs of reports and messages in ASCII.
fn ascii(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '±' | '≈' | '…' => '~',
            '–' => '-',
            'µ' => 'u',
            other => other,
        })
        .collect()
}

/// Whether writing failed because the reader is gone.
pub fn is_closed_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// What an error of standard output means: nothing if the reader is gone.
pub(super) fn unwritable(error: &io::Error) -> Result<Exit, Failure> {
    if is_closed_pipe(error) {
        return Ok(Exit::Ok);
    }
    Err(Failure::new(Exit::Incomplete, format!("could not write: {error}")))
}

pub(super) fn print(text: &[u8]) -> Result<Exit, Failure> {
    let mut out = stdout();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if !is_closed_pipe(&error) => {
            Err(Failure::new(Exit::Incomplete, format!("standard output: {error}")))
        }
        _ => Ok(Exit::Ok),
    }
}

/// Ends a document, and says how the run ended: with `exit` unless more is wrong. `finish` is told whether the run
/// failed.
pub(super) fn end(
    ended: Result<(), RunError>,
    exit: Exit,
    finish: impl FnOnce(bool) -> io::Result<()>,
) -> Result<Exit, Failure> {
    let failed = match ended {
        Ok(()) => None,
        Err(RunError::Failed(failed)) => Some(failed),
        Err(RunError::Output(error)) => return unwritable(&error),
    };
    let written = finish(failed.is_some());
    match (failed, written) {
        (Some(failed), _) => Err(failed.into()),
        (None, Err(error)) if !is_closed_pipe(&error) => unwritable(&error),
        (None, _) => Ok(exit),
    }
}

/// Whether notices and progress are left out: `-q`.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Leaves notices and progress out from now on, or not.
pub(super) fn be_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Whether notices and progress are left out.
pub(super) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Errors of one target that are kept for its report.
const ERRORS_KEPT: usize = 100;

/// Prints a message on standard error, with the name of the target if there are several; with `-q` only warnings and
/// errors.
pub(super) fn tell(message: UserMessage) {
    let console = Console::here();
    if let (Some(console), UserMessage::Error(error)) = (&console, &message) {
        let errors = &mut console.kept().errors;
        if errors.len() < ERRORS_KEPT {
            errors.push(error.clone());
        }
    }
    if is_quiet() && !matches!(message, UserMessage::Error(_) | UserMessage::Warning(_)) {
        return;
    }
    let message = match console {
        None => message,
        Some(console) => message.about(&console.name),
    };
    let text = match &message {
        UserMessage::Error(text) => severity("error:", AnsiColor::Red.on_default(), text),
        UserMessage::Warning(text) => severity("warning:", DARK_YELLOW.on_default(), text),
        UserMessage::Notice(text) => format!("notice: {}", printable_lines(text)),
        UserMessage::Note(text) => format!("note: {}", printable_lines(text)),
        UserMessage::Hint(text) => format!("HINT:  {}", printable_lines(text)),
        UserMessage::Plain(text) => printable_lines(text),
    };
    // A closed stderr is not an error.
    let _ = writeln!(anstream::stderr(), "toastctl: {text}");
}

/// A message after its severity, in the style of a terminal, which `anstream` takes away elsewhere.
fn severity(severity: &str, style: Style, text: &str) -> String {
    let style = style.bold();
    format!("{style}{severity}{style:#} {}", printable_lines(text))
}

/// Standard error, for whole lines of text: printed in printable characters.
pub(super) struct PrintableStderr;

impl Write for PrintableStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let name = Console::here().map(|console| format!("{}: ", console.name));
        let text = format!("{}{}", name.unwrap_or_default(), printable_lines(&text));
        io::stderr().write_all(text.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Connects; warnings go to standard error, and for a reader also a notice of a server that is not tested. Writers refuse
/// such a server.
pub(super) async fn connected(
    args: &ConnectionArgs,
    session: &SessionOptions,
) -> Result<Connection, Failure> {
    let mut warn = |warning: &str| tell(UserMessage::Warning(warning.to_owned()));
    let connecting = args.connect(session, &mut warn);
    let connection = match Console::here() {
        None => connecting.await,
        Some(console) => {
            let made = console.stop.run_until_cancelled(connecting).await;
            made.ok_or_else(|| Failure::from(Failed::stopped()))?
        }
    }
    .map_err(|error| Failure::from(&error))?;
    if session.read_only
        && let Some(newer) = untested(connection.server_version())
    {
        tell(UserMessage::Notice(format!(
            "{newer}: what it stores in new ways is reported as unknown"
        )));
    }
    Ok(connection)
}

/// The runtime for verbs that talk to servers. Without threads of its own it answers faster, but no task may block.
pub(super) fn runtime(threads: usize) -> Result<tokio::runtime::Runtime, Failure> {
    let console = Console::here();
    let mut builder = match threads {
        0 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    builder
        .worker_threads(threads.max(1))
        .on_thread_start(move || Console::set(console.clone()))
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Incomplete, format!("could not start: {error}")))
}

/// Ends with a Ctrl-C, or with the run over several targets.
pub(super) async fn interrupted() {
    if let Some(console) = Console::here() {
        return console.stop.cancelled().await;
    }
    if tokio::signal::ctrl_c().await.is_err() {
        // without a signal handler, wait forever
        std::future::pending::<()>().await;
    }
}

/// How often a plain line is printed where standard error is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Work that is done sooner shows no progress at all.
const SHORT: Duration = Duration::from_secs(1);

/// Shows how far reading has come: a bar on a terminal, else a line every ten seconds.
pub struct ReadingProgress {
    bar: ProgressBar,
    terminal: bool,
    state: Mutex<State>,
}

struct State {
    relation: String,
    blocks: u64,
    done: u64,
    began: Instant,
    last_line: Instant,
}

impl Default for ReadingProgress {
    fn default() -> ReadingProgress {
        let now = Instant::now();
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let template = "{msg} {wide_bar} {percent:>3} % {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        ReadingProgress {
            bar,
            terminal: io::stderr().is_terminal() && Console::here().is_none(),
            state: Mutex::new(State {
                relation: String::new(),
                blocks: 0,
                done: 0,
                began: now,
                last_line: now,
            }),
        }
    }
}

impl Progress for ReadingProgress {
    fn begin(&self, relation: &str, blocks: u64) {
        let Ok(mut state) = self.state.lock() else { return };
        let now = Instant::now();
        *state = State {
            relation: super::super::report::table::printable(relation),
            blocks,
            done: 0,
            began: now,
            last_line: now,
        };
        self.bar.reset();
        self.bar.set_length(blocks);
        self.bar.set_message(state.relation.clone());
    }

    fn advance(&self, blocks: u64) {
        let Ok(mut state) = self.state.lock() else { return };
        if is_quiet() {
            return;
        }
        state.done += blocks;
        let now = Instant::now();
        if self.terminal {
            if now - state.began > SHORT && self.bar.is_hidden() {
                self.bar.set_draw_target(ProgressDrawTarget::stderr());
            }
            self.bar.set_position(state.done);
        } else if now - state.last_line >= LINE_EVERY {
            state.last_line = now;
            let percent = 100 * state.done / state.blocks.max(1);
            let State { relation, done, blocks, .. } = &*state;
            let line = format!("{relation}: {done} of {blocks} blocks read ({percent} %)\n");
            // A closed stderr is not an error.
            let _ = PrintableStderr.write_all(line.as_bytes());
        }
    }

    fn end(&self) {
        // a hidden bar would stay on the screen
        self.bar.finish_and_clear();
        self.bar.set_draw_target(ProgressDrawTarget::hidden());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_ascii_where_the_locale_is_not_utf8() {
        let shown = |ascii| {
            let mut plain = Plain { inner: Vec::new(), ascii, styled: false };
            plain.write_all("-55.3 % ±1.3  \u{1b}[1m4.9 µs\u{1b}[0m …".as_bytes()).unwrap();
            String::from_utf8(plain.inner).unwrap()
        };
        assert_eq!(shown(true), "-55.3 % ~1.3  4.9 us ~");
        assert_eq!(shown(false), "-55.3 % ±1.3  4.9 µs …");
    }

    #[test]
    fn locales() {
        for (name, utf8) in [
            (None, false),
            (Some("C"), false),
            (Some("POSIX"), false),
            (Some("de_DE"), false),
            (Some("de_DE.ISO-8859-1"), false),
            (Some("C.UTF-8"), true),
            (Some("en_US.utf8"), true),
            (Some("ca_ES.UTF-8@valencia"), true),
        ] {
            assert_eq!(is_utf8_locale(name), utf8, "{name:?}");
        }
    }
}
