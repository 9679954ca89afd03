//! What `retoast` says and hears while it runs: progress, the log, the report at the end and the command that receives
//! it, the rows that the server refused; signals and limits of time.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use tokio::signal::unix::SignalKind;

use crate::cli::exit::{Exit, Failure};
use crate::cli::terminal::{self, BarTerminal, Ui};
use crate::command::shell_quoted;
use crate::message::Message;
use crate::report::document::Format;
use crate::report::retoast_progress::{Line, ProgressMoment, end, note, rebuilds};
use crate::report::table::{printable, printable_json};
use crate::report::units::utc;
use crate::retoast::listener::{Advance, Control, Figures, Listener};
use crate::retoast::pace::rules::Pause;
use crate::retoast::result::{
    CitusReport, DepartureReport, Report, SCHEMA, SkippedRow, StopReason, TableReport,
};
use crate::retoast::run::results::Swept;
use crate::retoast::verdict::of_run;
use crate::server::sink::{Failed, Kind, RunError, Sink};

/// The output of one run.
pub(super) struct RetoastOutput {
    ui: Ui,
    dry_run: bool,
    tables: Vec<Swept>,
    pub(super) citus: Vec<CitusReport>,
    failed: Vec<Failed>,
}

impl RetoastOutput {
    pub(super) fn new(ui: &Ui, dry_run: bool) -> RetoastOutput {
        let ui = ui.clone();
        RetoastOutput { ui, dry_run, tables: Vec::new(), citus: Vec::new(), failed: Vec::new() }
    }

    /// Prints the report, passes it to the command `on_end`, and says how the run ended. Where nothing was done only
    /// JSON is printed, with the errors.
    pub(super) fn end(
        mut self,
        ended: Result<Option<DepartureReport>, RunError>,
        stopped_by: Option<StopReason>,
        watch: &Progress,
        on_end: Option<&str>,
    ) -> Result<Exit, Failure> {
        let departure = match ended {
            Ok(departure) => departure,
            Err(RunError::Failed(failed)) => {
                self.failed.push(failed);
                None
            }
            Err(RunError::Output(error)) => return terminal::unwritable(&error),
        };
        let departs = departure.as_ref().is_some_and(|departure| !departure.unused);
        // what was requested is no error
        let failed = self.failed.len();
        self.failed.retain(|failed| *failed != Failed::stopped());
        let is_left = departs
            || self.failed.len() < failed
            || self.citus.iter().any(|citus| !citus.missing.is_empty());
        self.tables.sort_by_key(|swept| swept.position);
        let mut tables: Vec<TableReport> =
            self.tables.into_iter().map(|swept| swept.report).collect();
        for table in &mut tables {
            self.ui.lead_here(&mut table.converted.undo_command);
        }
        let worst = self.failed.iter().map(|failed| Exit::from(failed.kind)).max();
        let mut report = Report {
            schema: SCHEMA,
            dry_run: self.dry_run,
            exit_code: 0,
            errors: self.failed.iter().map(|failed| failed.message.to_string()).collect(),
            tables,
            departure,
            citus: self.citus,
        };
        let exit = Exit::from(of_run(&report, stopped_by.is_some() && is_left));
        let ended = worst.map_or(exit, |worst| worst.max(exit));
        report.exit_code = ended.code();
        let is_empty = report.tables.is_empty() && report.departure.is_none();
        let printed = if is_empty && !matches!(self.ui.format, Format::Json | Format::Jsonl) {
            Ok(())
        } else {
            print(&self.ui, &report)
        };
        let received = match on_end {
            Some(command) if !self.dry_run => receives(&self.ui, command, &report),
            _ => Exit::Ok,
        };
        let unprinted = printed.as_ref().err().map_or(Exit::Ok, |failure| failure.exit);
        report.exit_code = ended.max(received).max(unprinted).code();
        watch.log(&end(&utc(), &report));
        printed?;
        // what has begun can go on
        let begun = !report.tables.is_empty();
        for lost in self.failed.iter_mut().filter(|failed| begun && failed.kind == Kind::Lost) {
            let hint = format!("What was committed stays; to continue: {}", command_line());
            lost.message.hints.push(hint);
        }
        // the same command goes on with the others
        let goes_on = exit == Exit::Stopped && worst == Some(Exit::Incomplete);
        let last = if goes_on { None } else { self.failed.pop() };
        for failed in self.failed {
            self.ui.tell(failed.message);
        }
        if let (Some(worst), Some(last)) = (worst, last) {
            return Err(Failure { exit: worst.max(exit), message: last.message });
        }
        if exit == Exit::Stopped && self.ui.target.is_none() {
            self.ui.progress(to_continue(stopped_by));
        }
        Ok(exit.max(received))
    }
}

/// How to go on after a stop.
pub(super) fn to_continue(stopped_by: Option<StopReason>) -> String {
    let reason = stopped_by.map(|reason| format!(" by {reason}")).unwrap_or_default();
    let when = match stopped_by {
        Some(StopReason::MaxWait) => ", once what kept it waiting has ended",
        _ => "",
    };
    format!("stopped{reason}; to continue{when}: {}", command_line())
}

/// Runs the command of a shell with the report as its input.
fn run_with_report(command: &str, report: &Report) -> io::Result<()> {
    let json = serde_json::to_vec(report)?;
    let mut child = Command::new("sh").args(["-c", command]).stdin(Stdio::piped()).spawn()?;
    // a command need not read everything
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(&json));
    let status = child.wait()?;
    match written {
        Err(error) if !terminal::is_closed_pipe(&error) => Err(error),
        _ if !status.success() => Err(io::Error::other(match status.code() {
            Some(127) => "it ended with exit code 127 (command not found)".to_owned(),
            Some(code) => format!("it ended with exit code {code}"),
            None => status.to_string(),
        })),
        _ => Ok(()),
    }
}

/// Runs the command of `--set on-end`. Its failure is reported, and changes nothing else.
fn receives(ui: &Ui, command: &str, report: &Report) -> Exit {
    match run_with_report(command, report) {
        Ok(()) => Exit::Ok,
        Err(error) => {
            ui.error(format!("the command of --set on-end failed: {error}"));
            Exit::Incomplete
        }
    }
}

impl Sink<Swept> for RetoastOutput {
    fn found(&mut self, swept: Swept) -> io::Result<()> {
        self.tables.push(swept);
        Ok(())
    }

    fn failed(&mut self, failed: Failed) {
        self.failed.push(failed);
    }

    fn message(&mut self, message: Message) {
        self.ui.tell(message);
    }
}

fn print(ui: &Ui, report: &Report) -> Result<(), Failure> {
    match crate::report::retoast::write(report, ui.format, ui.width, &mut ui.report_out()) {
        Err(error) => terminal::unwritable(&error).map(drop),
        Ok(()) => Ok(()),
    }
}

/// The command that goes on, as a shell takes it. A connection string may hold a password and is left
/// out.
pub(super) fn command_line() -> String {
    let words: Vec<String> = std::env::args().map(|word| shell_word(&word)).collect();
    words.join(" ")
}

/// A word as a shell takes it; what may hold a password is left out.
fn shell_word(word: &str) -> String {
    if word.contains("://") || word.contains("password") {
        "'…'".to_owned()
    } else {
        shell_quoted(word)
    }
}

/// The length of the bar in steps.
const BAR: u64 = 1000;
/// How often a plain line is printed.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// How often a JSON line is printed.
const JSON_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ProgressArg {
    /// A bar on a terminal, else lines
    #[default]
    Auto,
    /// A line every ten seconds, and for each wait
    Plain,
    /// A JSON object on a line, every second and for each wait
    Json,
    /// Nothing
    None,
}

/// How a run reports.
#[derive(Default)]
pub(super) struct Reporting {
    pub(super) progress: ProgressArg,
    pub(super) list_refused: Option<PathBuf>,
    /// The file to which events are added.
    pub(super) log: Option<PathBuf>,
    /// The command that receives the result.
    pub(super) on_end: Option<String>,
}

impl Reporting {
    /// The settings that are about one database, and whether they are given.
    pub(super) fn of_one(&self) -> [(&'static str, bool); 4] {
        [
            ("--set log", self.log.is_some()),
            ("--set list-refused", self.list_refused.is_some()),
            ("--set on-end", self.on_end.is_some()),
            ("--set progress=json", self.progress == ProgressArg::Json),
        ]
    }
}

pub(super) struct Progress {
    ui: Ui,
    /// `Auto` is a bar.
    mode: ProgressArg,
    bar: ProgressBar,
    state: Mutex<ProgressState>,
    refused: Option<RefusedFile>,
    log: Option<LogFile>,
}

struct ProgressState {
    moment: ProgressMoment,
    began: Instant,
    scan_began: Instant,
    /// When a line was printed last; for JSON never at first.
    last: Option<Instant>,
    /// When a moment was last added to the log.
    logged: Option<Instant>,
    /// The table about whose remaining time something was said.
    announced: String,
}

impl Progress {
    /// # Errors
    /// Where a file cannot be opened.
    pub(super) fn new(ui: &Ui, reporting: &Reporting) -> Result<Progress, Failure> {
        let refused = reporting.list_refused.as_deref().map(RefusedFile::create).transpose()?;
        let log = reporting.log.as_deref().map(LogFile::open).transpose()?;
        let mode = match reporting.progress {
            ProgressArg::Auto if !ui.has_bar() => ProgressArg::Plain,
            mode => mode,
        };
        let target = match mode {
            ProgressArg::Auto => BarTerminal::target(),
            _ => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        // one line: indicatif ends a line by filling the terminal's width, of which the target leaves room for "^C"
        if let Ok(style) = ProgressStyle::with_template("{prefix}, {percent} %, {wide_msg}") {
            bar.set_style(style);
        }
        let now = Instant::now();
        let last = (mode != ProgressArg::Json).then_some(now);
        let moment = ProgressMoment::default();
        let announced = String::new();
        let state =
            ProgressState { moment, began: now, scan_began: now, last, logged: None, announced };
        Ok(Progress { ui: ui.clone(), mode, bar, state: Mutex::new(state), refused, log })
    }

    /// Takes the bar away, before anything else is printed.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }

    /// Adds an event to the log, if there is one. That it cannot be written is reported once.
    fn log(&self, event: &Line<'_>) {
        if let Some(error) = self.log.as_ref().and_then(|log| log.add(event)) {
            self.ui.warning(format!("--set log: {error}"));
        }
    }

    /// Prints an event, or its text, and adds it to the log.
    fn show(&self, event: &Line<'_>, text: &str) {
        self.log(event);
        match self.mode {
            ProgressArg::Auto => self.bar.suspend(|| self.ui.progress(text)),
            ProgressArg::Plain => self.ui.progress(text),
            ProgressArg::Json => print_event(event),
            ProgressArg::None => {}
        }
    }

    /// Changes what is known, and shows it if it is time.
    fn update(&self, change: impl FnOnce(&mut ProgressState)) {
        let mut state = self.state.lock();
        change(&mut state);
        if state.moment.relation.is_empty() {
            return;
        }
        let now = Instant::now();
        state.moment.elapsed = now - state.began;
        state.moment.scanning = now - state.scan_began;
        if self.log.is_some() && state.logged.is_none_or(|last| now - last >= LINE_EVERY) {
            state.logged = Some(now);
            self.log(&state.moment.json(&utc()));
        }
        if state.announced != state.moment.relation
            && let Some(outlook) = state.moment.outlook()
        {
            state.announced = state.moment.relation.clone();
            let text = format!("{}: {outlook}", printable(&state.moment.relation));
            self.show(&note(&utc(), &text), &text);
        }
        let due = |every| state.last.is_none_or(|last| now - last >= every);
        match self.mode {
            ProgressArg::Auto => self.draw(&state.moment),
            ProgressArg::Plain if due(LINE_EVERY) => {
                state.last = Some(now);
                self.ui.progress(state.moment.line());
            }
            ProgressArg::Json if due(JSON_EVERY) => {
                state.last = Some(now);
                print_event(&state.moment.json(&utc()));
            }
            _ => {}
        }
    }

    fn draw(&self, moment: &ProgressMoment) {
        self.bar.set_length(BAR);
        self.bar.set_position((moment.share() * BAR as f64) as u64);
        self.bar.set_prefix(moment.place());
        self.bar.set_message(moment.message());
    }
}

impl Listener for Progress {
    fn progress(&self, relation: &str, advance: &Advance) {
        self.update(|state| {
            let now = Instant::now();
            if state.moment.relation != relation {
                let relation = relation.to_owned();
                state.moment = ProgressMoment { relation, ..ProgressMoment::default() };
                state.began = now;
            }
            let at = &state.moment.at;
            if at.compacts.is_some() != advance.compacts.is_some() {
                state.began = now;
            }
            if at.scan != advance.scan || at.compacts != advance.compacts {
                state.scan_began = now;
                if advance.done.is_none() {
                    self.bar.reset();
                }
            }
            state.moment.at = *advance;
        });
    }

    fn refused(&self, relation: &str, row: &SkippedRow) {
        if self.refused.as_ref().is_some_and(|file| !file.add(relation, row)) {
            let text = format!("could not write row {} to the list of refused rows", row.ctid);
            self.note(Some(relation), &text);
        }
    }

    fn rebuilds(&self, relation: &str, index: &str, number: usize, indexes: usize) {
        let text = format!("{relation}: rebuilding index {index} ({number} of {indexes})");
        self.show(&rebuilds(&utc(), (relation, index), (number, indexes)), &text);
    }

    fn note(&self, relation: Option<&str>, text: &str) {
        let named = relation.map(|relation| format!("{relation}: {text}"));
        let text = named.as_deref().unwrap_or(text);
        self.show(&note(&utc(), text), text);
    }

    fn figures(&self, figures: &Figures) {
        self.update(|state| state.moment.figures = *figures);
    }

    fn paused(&self, pause: Option<&Pause>) {
        self.update(|state| state.moment.pause = pause.cloned());
    }
}

fn print_event(event: &Line<'_>) {
    if let Ok(text) = serde_json::to_string(event) {
        // the work goes on if nobody reads standard error
        let _ = writeln!(io::stderr(), "{}", printable_json(text));
    }
}

/// The log: a file to which events are added, each a line of JSON.
struct LogFile {
    /// `None` once a line could not be written.
    file: Mutex<Option<File>>,
    path: String,
}

impl LogFile {
    /// Opens it before the work, so that one that cannot be written is refused.
    fn open(path: &Path) -> Result<LogFile, Failure> {
        let name = path.display().to_string();
        match open_for_lines(path) {
            Ok(file) => Ok(LogFile { file: Mutex::new(Some(file)), path: name }),
            Err(error) => Err(Failure::usage(format!("--set log: \"{name}\": {error}"))),
        }
    }

    /// Adds an event; the error if it is the first that could not be written.
    fn add(&self, event: &Line<'_>) -> Option<String> {
        let mut file = self.file.lock();
        let line = printable_json(serde_json::to_string(event).ok()?) + "\n";
        let error = file.as_mut()?.write_all(line.as_bytes()).err()?;
        *file = None;
        Some(format!("\"{}\": {error}; no more events are added", self.path))
    }
}

/// Opens a file to which lines are added. A line that a run could not write to its end is ended.
fn open_for_lines(path: &Path) -> io::Result<File> {
    let mut file = File::options().create(true).read(true).append(true).open(path)?;
    if file.metadata()?.is_file() && file.seek(SeekFrom::End(0))? > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    Ok(file)
}

/// The file, open from the beginning: one that cannot be written is refused before the work.
pub(super) struct RefusedFile {
    writer: Mutex<csv::Writer<File>>,
}

impl RefusedFile {
    fn open(path: &Path) -> csv::Result<csv::Writer<File>> {
        let mut writer = csv::Writer::from_writer(File::create(path)?);
        writer.write_record(["relation", "ctid", "sqlstate", "reason"])?;
        writer.flush()?;
        Ok(writer)
    }

    /// Makes it, with the line of names.
    pub(super) fn create(path: &Path) -> Result<RefusedFile, Failure> {
        match RefusedFile::open(path) {
            Ok(writer) => Ok(RefusedFile { writer: Mutex::new(writer) }),
            Err(error) => {
                Err(Failure::usage(format!("--set list-refused: \"{}\": {error}", path.display())))
            }
        }
    }

    /// Adds a row. What cannot be written is in the report's count all the same.
    pub(super) fn add(&self, relation: &str, row: &SkippedRow) -> bool {
        let mut writer = self.writer.lock();
        let sqlstate = row.sqlstate.as_deref().unwrap_or_default();
        writer.write_record([relation, &row.ctid, sqlstate, &row.reason]).is_ok()
            && writer.flush().is_ok()
    }
}

/// Listens for ever: to Ctrl-C, SIGTERM, SIGHUP and a time limit for the end, to SIGUSR1 and SIGUSR2 for a pause.
pub(super) async fn listen(ui: &Ui, control: &Control, limit: Option<Duration>) -> Infallible {
    let stop = async {
        control.stop(ui.stopped(limit).await);
        std::future::pending().await
    };
    tokio::select! {
        never = stop => never,
        never = pauses(control, SignalKind::user_defined1(), true) => never,
        never = pauses(control, SignalKind::user_defined2(), false) => never,
    }
}

/// Asks to pause, or to go on, at each of these signals.
async fn pauses(control: &Control, kind: SignalKind, pause: bool) -> Infallible {
    let mut signal = terminal::signals(kind);
    loop {
        terminal::comes(&mut signal).await;
        control.pause(pause);
    }
}
