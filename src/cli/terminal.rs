//! The terminal: its width, progress on it, and a standard output that may be closed.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};
use parking_lot::Mutex;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::connect::ConnectionArgs;
use super::exit::{Exit, Failure};
use super::pager::PagedReports;
use crate::command::shell_line;
use crate::inspect::compare::RunComparison;
use crate::inspect::overview::rank::Overview;
use crate::message::{Message, Severity};
use crate::report::document::Format;
use crate::report::nagios::Service;
use crate::report::openmetrics::{self, Family};
use crate::report::table::{
    ABOUT, DARK_YELLOW, ascii, message_lines, printable, printable_lines, use_ascii,
};
use crate::report::units::and_more;
use crate::retoast::listener::Control;
use crate::retoast::result::StopReason;
use crate::server::about::untested;
use crate::server::connect::{Connection, SessionOptions};
use crate::server::sink::{Failed, RunError};
use toast_format::heap::progress::Progress;

/// Width of tables in a file or a pipe, unless `COLUMNS` says otherwise.
const PIPE_WIDTH: usize = 100;

/// Width of tables on standard output: `COLUMNS` if set, else the terminal's, on which a pipe may end too; `None` for no
/// limit, which is `COLUMNS=0`.
pub(super) fn output_width() -> Option<usize> {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.trim().parse().ok());
    if let Some(width) = columns {
        return Some(width).filter(|&width| width > 0);
    }
    let of_terminal = width_of(io::stdout()).or_else(|| width_of(io::stderr()));
    of_terminal.or_else(|| (!io::stdout().is_terminal()).then_some(PIPE_WIDTH))
}

/// The width of the terminal that this is, if it is one and its size is known.
fn width_of(stream: impl AsFd) -> Option<usize> {
    terminal_size::terminal_size_of(stream).map(|(width, _)| usize::from(width.0))
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

/// Has everything be written in ASCII unless the locale is one of UTF-8.
pub(super) fn follow_locale() {
    if !is_utf8() {
        use_ascii();
    }
}

/// Bytes that the report of one of several targets may have: it is kept until it is complete.
const LARGEST_REPORT: usize = 64 << 20;

/// Where a verb prints, and how: every verb gets one.
#[derive(Clone)]
pub(super) struct Ui {
    pub(super) format: Format,
    /// The width of tables; `None` for no limit.
    pub(super) width: Option<usize>,
    /// Whether notices and progress are left out: `-q`.
    quiet: bool,
    /// The connection options of printed commands.
    place: Vec<String>,
    /// The run on one of several targets, if it is one. Messages then name the target, and the report stays in memory
    /// until the target's turn has come.
    pub(super) target: Option<Arc<TargetRun>>,
    /// What readers print on a terminal.
    paged: Option<Arc<Mutex<PagedReports>>>,
}

/// A run on one of several targets.
pub(super) struct TargetRun {
    /// The name of the target in messages.
    pub(super) name: String,
    /// Stopped with the run over all targets.
    pub(super) stop: Arc<Control>,
    clusters: Arc<Mutex<ClusterReaders>>,
    notices: Arc<Mutex<Notices>>,
    pub(super) kept: Mutex<Kept>,
}

/// Notices, each with the targets that it is about, in the order in which they first came.
#[derive(Default)]
pub(super) struct Notices(Vec<(Message, Vec<String>)>);

/// The most targets that a notice names; the others are counted.
const NAMED_IN_NOTICE: usize = 3;

impl Notices {
    fn keep(&mut self, message: Message, target: &str) {
        match self.0.iter_mut().find(|(known, _)| *known == message) {
            Some((_, targets)) => targets.push(target.to_owned()),
            None => self.0.push((message, vec![target.to_owned()])),
        }
    }

    /// Each notice once, with the targets that it is about.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Message> {
        std::mem::take(&mut self.0).into_iter().map(|(message, mut targets)| {
            let more = and_more(targets.len(), NAMED_IN_NOTICE);
            targets.truncate(NAMED_IN_NOTICE);
            message.of_target(&(targets.join(", ") + &more))
        })
    }
}

/// The clusters of Citus of which the tables are read, each with the target whose run does it.
#[derive(Default)]
pub(super) struct ClusterReaders(HashMap<String, String>);

/// What a run on one of several targets has printed.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) report: Vec<u8>,
    /// The errors, without their severity.
    pub(super) errors: Vec<String>,
    /// The conditions of an alarm that are met, with the figures.
    pub(super) alarms: Vec<String>,
    /// The overview, which is printed with those of other targets.
    pub(super) overview: Option<Overview>,
    /// The same of what has changed since an earlier run.
    pub(super) comparison: Option<RunComparison>,
    /// What monitoring systems read of it, which is printed with those of other targets.
    pub(super) families: Vec<Family>,
    pub(super) service: Option<Service>,
}

impl TargetRun {
    pub(super) fn new(
        name: String,
        stop: Arc<Control>,
        clusters: Arc<Mutex<ClusterReaders>>,
        notices: Arc<Mutex<Notices>>,
    ) -> Arc<TargetRun> {
        Arc::new(TargetRun { name, stop, clusters, notices, kept: Mutex::default() })
    }

    /// The other target whose run includes the tables of this cluster; if there is none, this one does.
    pub(super) fn other_run_of_cluster(&self, cluster: String) -> Option<String> {
        let mut clusters = self.clusters.lock();
        let reader = clusters.0.entry(cluster).or_insert_with(|| self.name.clone());
        (*reader != self.name).then(|| reader.clone())
    }

    pub(super) fn take(&self) -> Kept {
        std::mem::take(&mut *self.kept.lock())
    }
}

/// Errors of one target that are kept for its report.
const ERRORS_KEPT: usize = 100;

impl Ui {
    /// That of the process.
    pub(super) fn new(quiet: bool) -> Ui {
        let paged = PagedReports::on_terminal().map(|paged| Arc::new(Mutex::new(paged)));
        let width = output_width();
        Ui { format: Format::Table, width, quiet, place: Vec::new(), target: None, paged }
    }

    /// The same for a report in this format.
    pub(super) fn in_format(&self, format: Format) -> Ui {
        Ui { format, ..self.clone() }
    }

    /// The same for the database that these arguments lead to. A page is read elsewhere.
    pub(super) fn at(&self, connection: &ConnectionArgs) -> Ui {
        Ui { place: connection.repeated(self.format == Format::Html), ..self.clone() }
    }

    /// The same for commands that another user must run.
    pub(super) fn without_user(&self) -> Ui {
        let mut ui = self.clone();
        if let Some(at) = ui.place.iter().position(|word| word == "-U") {
            ui.place.drain(at..(at + 2).min(ui.place.len()));
        }
        ui
    }

    /// Adds the connection options to the words of a command, if there is one.
    pub(super) fn lead_here(&self, command: &mut Vec<String>) {
        if !command.is_empty() {
            command.extend(self.place.iter().cloned());
        }
    }

    /// The same for a line, unless it is a statement or has them.
    pub(super) fn lead_line_here(&self, command: &mut String) {
        let place = self.place();
        if command.starts_with("toastctl ") && !place.is_empty() && !command.ends_with(&place) {
            *command = format!("{command} {place}");
        }
    }

    /// The connection options of commands, as text.
    pub(super) fn place(&self) -> String {
        shell_line(&self.place)
    }

    /// The same for the run on one of several targets.
    pub(super) fn on_target(&self, target: Arc<TargetRun>, format: Format) -> Ui {
        Ui { format, target: Some(target), ..self.clone() }
    }

    /// Prints a message on standard error, with the name of the target if there are several; with `-q` only warnings and
    /// errors.
    pub(super) fn tell(&self, mut message: Message) {
        if let Some(target) = &self.target {
            let errors = &mut target.kept.lock().errors;
            if message.severity == Severity::Error && errors.len() < ERRORS_KEPT {
                errors.push(message.to_string());
            }
            if message.severity == Severity::Notice {
                target.notices.lock().keep(message, &target.name);
                return;
            }
            message.at.target = Some(target.name.clone());
        }
        let style = match message.severity {
            Severity::Error => AnsiColor::Red.on_default().bold(),
            Severity::Warning => DARK_YELLOW.on_default().bold(),
            _ if self.quiet => return,
            _ => Style::new(),
        };
        let prefix = message.severity.prefix();
        let text = printable_lines(&message.to_string());
        let text = if is_utf8() { text } else { ascii(&text, ABOUT) };
        let text = format!("toastctl: {style}{prefix}{style:#}{text}");
        let text = message_lines(&text, width_of(io::stderr()));
        // A closed stderr is not an error. `anstream` takes styles away where it is no terminal.
        let _ = writeln!(anstream::stderr(), "{text}");
    }

    pub(super) fn error(&self, text: impl Into<String>) {
        self.tell(Message::error(text));
    }

    pub(super) fn warning(&self, text: impl Into<String>) {
        self.tell(Message::warning(text));
    }

    pub(super) fn progress(&self, text: impl Into<String>) {
        self.tell(Message::progress(text));
    }

    /// Whether a bar can be shown on standard error.
    pub(super) fn has_bar(&self) -> bool {
        io::stderr().is_terminal() && self.target.is_none() && !self.quiet
    }

    /// Standard output, buffered. A reader that went away (`| head`) is not an error: see
    /// [`is_closed_pipe`].
    pub(super) fn stdout(&self) -> Out {
        match &self.target {
            Some(target) => Out::Kept(Arc::clone(target)),
            None => Out::Process(io::BufWriter::with_capacity(1 << 16, io::stdout())),
        }
    }

    /// Standard output for reports: where the locale is not one of UTF-8, the signs that those for people are drawn with
    /// have ASCII in their places. What comes from the server stays as it is. Styles are for terminals, unless NO_COLOR,
    /// CLICOLOR or TERM forbids them, or CLICOLOR_FORCE has them everywhere.
    pub(super) fn report_out(&self) -> Plain<Out> {
        self.plain(self.stdout())
    }

    /// The same for the report of a reader, which a terminal shows in the pager if it is longer than the screen.
    pub(super) fn paged_out(&self) -> Plain<Out> {
        match &self.paged {
            Some(paged) if self.target.is_none() => self.plain(Out::Paged(Arc::clone(paged))),
            _ => self.report_out(),
        }
    }

    /// Shows what readers have printed on a terminal, once the run has ended.
    pub(super) fn show_paged(&self) {
        if let Some(paged) = &self.paged {
            // a closed terminal is no error
            let _ = paged.lock().show();
        }
    }

    fn plain(&self, inner: Out) -> Plain<Out> {
        let people = matches!(self.format, Format::Table | Format::Markdown);
        let styled = people && AutoStream::choice(&io::stdout()) != ColorChoice::Never;
        Plain { inner, ascii: people && !is_utf8(), styled }
    }

    pub(super) fn print(&self, text: &[u8]) -> Result<Exit, Failure> {
        let mut out = self.stdout();
        match out.write_all(text).and_then(|()| out.flush()) {
            Err(error) if !is_closed_pipe(&error) => {
                Err(Failure::new(Exit::Incomplete, format!("standard output: {error}")))
            }
            _ => Ok(Exit::Ok),
        }
    }

    /// Connects; warnings go to standard error, and for a reader also a notice of a server that is not tested. Writers
    /// refuse such a server.
    pub(super) async fn connected(
        &self,
        args: &ConnectionArgs,
        session: &SessionOptions,
    ) -> Result<Connection, Failure> {
        let connecting =
            async { args.connect(session, &mut |warning: &str| self.warning(warning)).await };
        let connection = match &self.target {
            None => connecting.await,
            Some(target) => {
                let made = target.stop.stopping().run_until_cancelled(connecting).await;
                made.ok_or_else(|| Failure::from(Failed::stopped()))?
            }
        }
        .map_err(|error| Failure::from(&error))?;
        if session.read_only
            && let Some(newer) = untested(connection.server_version())
        {
            self.tell(Message::notice(format!(
                "{newer}: what it stores in new ways is reported as unknown"
            )));
        }
        Ok(connection)
    }

    /// Ends with a Ctrl-C, or with the run over several targets.
    pub(super) async fn interrupted(&self) {
        if let Some(target) = &self.target {
            return target.stop.stopping().cancelled().await;
        }
        if tokio::signal::ctrl_c().await.is_err() {
            // without a signal handler, wait forever
            std::future::pending::<()>().await;
        }
    }

    /// Writes metrics, or keeps them for those of all targets.
    pub(super) fn write_metrics(&self, families: Vec<Family>) -> io::Result<()> {
        match &self.target {
            Some(target) => {
                target.kept.lock().families = families;
                Ok(())
            }
            None => openmetrics::write(self.stdout(), &families),
        }
    }

    /// Writes what a plugin says, or keeps it for what is said about all targets.
    pub(super) fn write_service(&self, service: Service) -> io::Result<()> {
        match &self.target {
            Some(target) => {
                target.kept.lock().service = Some(service);
                Ok(())
            }
            None => {
                let mut out = self.stdout();
                out.write_all(service.line().as_bytes())?;
                out.flush()
            }
        }
    }

    /// As [`Ui::interrupted`], or with SIGTERM, or with SIGHUP unless `nohup` has it ignored, or after this time.
    pub(super) async fn stopped(&self, max_time: Option<Duration>) -> StopReason {
        let mut terminate = signals(SignalKind::terminate());
        let mut hangup = if ignores_hangups() { None } else { signals(SignalKind::hangup()) };
        let time_is_up = async {
            match max_time {
                Some(max_time) => tokio::time::sleep(max_time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.interrupted() => {
                let of_all = self.target.as_ref().and_then(|target| target.stop.stopped_by());
                of_all.unwrap_or(StopReason::Signal)
            }
            () = comes(&mut terminate) => StopReason::Signal,
            () = comes(&mut hangup) => StopReason::Signal,
            () = time_is_up => StopReason::MaxTime,
        }
    }
}

/// Whether this process was started with SIGHUP ignored, or that is not known.
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_none_or(|mask| mask & 1 << (SignalKind::hangup().as_raw_value() - 1) != 0)
}

/// The signals of this kind; `None` if they cannot be listened to.
pub(super) fn signals(kind: SignalKind) -> Option<Signal> {
    signal(kind).ok()
}

/// Ends at the next signal; never if it cannot be listened to.
pub(super) async fn comes(signal: &mut Option<Signal>) {
    let Some(signal) = signal else { return std::future::pending().await };
    if signal.recv().await.is_none() {
        std::future::pending::<()>().await;
    }
}

/// Standard output, or what keeps it for later.
pub(super) enum Out {
    Process(io::BufWriter<io::Stdout>),
    Paged(Arc<Mutex<PagedReports>>),
    Kept(Arc<TargetRun>),
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Out::Process(stdout) => stdout.write(bytes),
            Out::Paged(reports) => reports.lock().write(bytes),
            Out::Kept(target) => {
                let report = &mut target.kept.lock().report;
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
            Out::Paged(_) | Out::Kept(_) => Ok(()),
        }
    }
}

/// A writer that replaces signs by ASCII where the layout did not, and removes styles.
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
        let text = if self.ascii { ascii(&text, ABOUT) } else { text };
        self.inner.write_all(text.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
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

/// The runtime for verbs that talk to servers. Without threads of its own it answers faster, but no task may block.
pub(super) fn runtime(threads: usize) -> Result<tokio::runtime::Runtime, Failure> {
    let mut builder = match threads {
        0 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    // lines of `-v` name the database that this runtime works on
    let span = tracing::Span::current();
    builder
        .worker_threads(threads.max(1))
        .on_thread_start(move || std::mem::forget(span.clone().entered()))
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Incomplete, format!("could not start: {error}")))
}

/// Standard error, for whole lines of text: printed in printable characters.
pub(super) struct PrintableStderr;

impl Write for PrintableStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        io::stderr().write_all(printable_lines(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The parts of a bar where the locale is not one of UTF-8.
const ASCII_BAR: &str = "#>-";

/// Standard error as a terminal for bars, which leave room at the right edge, where the terminal writes "^C".
#[derive(Debug)]
pub(super) struct BarTerminal;

impl BarTerminal {
    pub(super) fn target() -> ProgressDrawTarget {
        ProgressDrawTarget::term_like(Box::new(BarTerminal))
    }

    fn moved(&self, by: usize, direction: char) -> io::Result<()> {
        if by > 0 { self.write_str(&format!("\u{1b}[{by}{direction}")) } else { Ok(()) }
    }
}

impl TermLike for BarTerminal {
    fn width(&self) -> u16 {
        let width = width_of(io::stderr()).unwrap_or(80).saturating_sub(3).max(1);
        u16::try_from(width).unwrap_or(u16::MAX)
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.moved(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.moved(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.moved(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.moved(n, 'D')
    }

    fn write_line(&self, s: &str) -> io::Result<()> {
        self.write_str(&format!("{s}\n"))
    }

    fn write_str(&self, s: &str) -> io::Result<()> {
        io::stderr().write_all(s.as_bytes())
    }

    fn clear_line(&self) -> io::Result<()> {
        self.write_str("\r\u{1b}[2K")
    }

    fn flush(&self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// How often a plain line is printed where standard error is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Work that is done sooner shows no progress at all.
const SHORT: Duration = Duration::from_secs(1);

/// Shows how far reading has come: a bar on a terminal, else a line every ten seconds.
pub(super) struct ReadingProgress {
    ui: Ui,
    bar: ProgressBar,
    terminal: bool,
    state: Mutex<BlockProgress>,
}

struct BlockProgress {
    /// Its place among those of the run, if there are several.
    place: String,
    relation: String,
    blocks: u64,
    done: u64,
    /// When the run began: many small relations take long too, and so they share the time until the next line.
    began: Instant,
    last_line: Instant,
}

impl ReadingProgress {
    pub(super) fn new(ui: &Ui) -> Arc<ReadingProgress> {
        let now = Instant::now();
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let template = "{msg} {wide_bar} {percent:>3} % {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(if is_utf8() { style } else { style.progress_chars(ASCII_BAR) });
        }
        Arc::new(ReadingProgress {
            ui: ui.clone(),
            bar,
            terminal: ui.has_bar(),
            state: Mutex::new(BlockProgress {
                place: String::new(),
                relation: String::new(),
                blocks: 0,
                done: 0,
                began: now,
                last_line: now,
            }),
        })
    }

    /// Draws the bar, unless the run has only begun.
    fn show(&self, state: &BlockProgress) {
        let is_due = self.terminal && !self.ui.quiet && state.began.elapsed() > SHORT;
        if is_due && self.bar.is_hidden() {
            self.bar.set_draw_target(BarTerminal::target());
            self.bar.tick();
        }
    }
}

impl Progress for ReadingProgress {
    fn next(&self, relation: &str, number: u64, all: u64) {
        let mut state = self.state.lock();
        if all > 1 {
            state.place = format!("{number} of {all}: ");
            self.bar.reset();
            self.bar.set_length(all);
            self.bar.set_position(number - 1);
            self.bar.set_message(format!("{}{}", state.place, printable(relation)));
            self.show(&state);
        }
    }

    fn begin(&self, relation: &str, blocks: u64) {
        let mut state = self.state.lock();
        state.relation = format!("{}{}", state.place, printable(relation));
        state.blocks = blocks;
        state.done = 0;
        if state.place.is_empty() {
            state.last_line = Instant::now();
        }
        self.bar.reset();
        self.bar.set_length(blocks);
        self.bar.set_message(state.relation.clone());
    }

    fn advance(&self, blocks: u64) {
        let mut state = self.state.lock();
        if self.ui.quiet {
            return;
        }
        state.done += blocks;
        let now = Instant::now();
        if self.terminal {
            self.bar.set_position(state.done);
            self.show(&state);
        } else if now - state.last_line >= LINE_EVERY {
            state.last_line = now;
            let percent = 100 * state.done / state.blocks.max(1);
            let BlockProgress { relation, done, blocks, .. } = &*state;
            let name = self.ui.target.iter().map(|target| format!("{}: ", target.name));
            let name = name.collect::<String>();
            let line = format!("{name}{relation}: {done} of {blocks} blocks read ({percent} %)\n");
            // A closed stderr is not an error.
            let _ = PrintableStderr.write_all(line.as_bytes());
        }
    }

    fn end(&self) {
        let is_part = !self.state.lock().place.is_empty();
        if !is_part {
            self.clear();
        }
    }

    fn clear(&self) {
        // a hidden bar would stay on the screen
        self.bar.finish_and_clear();
        self.bar.set_draw_target(ProgressDrawTarget::hidden());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_about_several_targets_is_printed_once() {
        let mut notices = Notices::default();
        for target in ["a", "b", "c", "d", "e"] {
            notices.keep(Message::notice("using SQL functions"), target);
        }
        notices.keep(Message::notice("no tables"), "b");
        let printed: Vec<String> = notices.take().map(|message| message.to_string()).collect();
        assert_eq!(printed, ["a, b, c and 2 more: using SQL functions", "b: no tables"]);
        assert_eq!(notices.take().count(), 0);
    }

    #[test]
    fn the_time_until_a_bar_is_that_of_the_run_and_not_of_each_relation() {
        let progress = ReadingProgress::new(&Ui::new(true));
        let began = progress.state.lock().began;
        std::thread::sleep(Duration::from_millis(2));
        for (number, name) in [(1, "a"), (2, "b\u{1b}")] {
            progress.next(name, number, 2);
            progress.begin(name, 5);
            progress.end();
            progress.clear();
        }
        let state = progress.state.lock();
        assert_eq!((state.relation.as_str(), state.began), ("2 of 2: b\\u{1b}", began));
        drop(state);
        let progress = ReadingProgress::new(&Ui::new(true));
        progress.next("only", 1, 1);
        progress.begin("only", 5);
        assert_eq!(progress.state.lock().relation, "only");
    }

    #[test]
    fn signs_are_ascii_where_the_locale_is_not_utf8() {
        let shown = |ascii| {
            let mut plain = Plain { inner: Vec::new(), ascii, styled: false };
            plain.write_all("-55.3 % ±1.3  \u{1b}[1m≈4.9 µs\u{1b}[0m …".as_bytes()).unwrap();
            String::from_utf8(plain.inner).unwrap()
        };
        assert_eq!(shown(true), "-55.3 % +/-1.3  about 4.9 us ...");
        assert_eq!(shown(false), "-55.3 % ±1.3  ≈4.9 µs …");
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
