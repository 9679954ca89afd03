//! Shows how far `retoast` is: a bar on a terminal, else lines, or JSON.

use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::refused_file::RefusedFile;
use super::terminal::{is_utf8, tell};
use crate::report::retoast_progress::{Moment, note};
use crate::retoast::listener::{Figures, Listener};
use crate::retoast::pace::manners::Pause;
use crate::retoast::result::SkippedRow;

/// How often a plain line is printed.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// How often a JSON line is printed.
const JSON_EVERY: Duration = Duration::from_secs(1);

/// `--progress`.
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Bar,
    Plain,
    Json,
    None,
}

/// Follows the sweep.
pub(super) struct Progress {
    mode: Mode,
    bar: ProgressBar,
    state: Mutex<State>,
    refused: Option<RefusedFile>,
}

struct State {
    moment: Moment,
    began: Instant,
    scan_began: Instant,
    /// When a line was printed last; for JSON never at first.
    last: Option<Instant>,
}

impl Progress {
    pub(super) fn new(arg: ProgressArg, refused: Option<RefusedFile>) -> Progress {
        let mode = match arg {
            ProgressArg::Auto if io::stderr().is_terminal() => Mode::Bar,
            ProgressArg::Auto | ProgressArg::Plain => Mode::Plain,
            ProgressArg::Json => Mode::Json,
            ProgressArg::None => Mode::None,
        };
        let target = match mode {
            Mode::Bar => ProgressDrawTarget::stderr(),
            _ => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        let template = "{prefix} {wide_bar} {percent:>3} % {eta} left\n{wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(if is_utf8() { style } else { style.progress_chars("#>-") });
        }
        let now = Instant::now();
        let last = (mode != Mode::Json).then_some(now);
        let moment = Moment::default();
        let state = Mutex::new(State { moment, began: now, scan_began: now, last });
        Progress { mode, bar, state, refused }
    }

    /// Takes the bar away, before anything else is printed.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }

    /// Changes what is known, and shows it if it is time.
    fn update(&self, change: impl FnOnce(&mut State)) {
        let Ok(mut state) = self.state.lock() else { return };
        change(&mut state);
        if state.moment.relation.is_empty() {
            return;
        }
        let now = Instant::now();
        state.moment.elapsed = now - state.began;
        state.moment.scanning = now - state.scan_began;
        let due = |every| state.last.is_none_or(|last| now - last >= every);
        match self.mode {
            Mode::Bar => self.draw(&state.moment),
            Mode::Plain if due(LINE_EVERY) => {
                state.last = Some(now);
                tell(&state.moment.line());
            }
            Mode::Json if due(JSON_EVERY) => {
                state.last = Some(now);
                let _ = writeln!(io::stderr(), "{}", state.moment.json());
            }
            _ => {}
        }
    }

    fn draw(&self, moment: &Moment) {
        self.bar.set_length(u64::from(moment.blocks));
        self.bar.set_position(u64::from(moment.read));
        self.bar.set_prefix(format!("{} scan {}", moment.relation, moment.scan));
        self.bar.set_message(moment.details());
    }
}

impl Listener for Progress {
    fn progress(&self, relation: &str, scan: u32, read: u32, blocks: u32, rows: u64) {
        self.update(|state| {
            let now = Instant::now();
            if state.moment.relation != relation {
                let relation = relation.to_owned();
                state.moment = Moment { relation, ..Moment::default() };
                state.began = now;
            }
            if state.moment.scan != scan {
                state.scan_began = now;
                self.bar.reset();
            }
            let moment = &mut state.moment;
            (moment.scan, moment.read, moment.blocks, moment.rows) = (scan, read, blocks, rows);
        });
    }

    fn refused(&self, relation: &str, row: &SkippedRow) {
        if self.refused.as_ref().is_some_and(|file| !file.add(relation, row)) {
            self.note(&format!("{relation}: could not write row {} to --list-refused", row.ctid));
        }
    }

    fn note(&self, text: &str) {
        match self.mode {
            Mode::Bar => self.bar.suspend(|| tell(text)),
            Mode::Plain => tell(text),
            Mode::Json => {
                let _ = writeln!(io::stderr(), "{}", note(text));
            }
            Mode::None => {}
        }
    }

    fn figures(&self, figures: &Figures) {
        self.update(|state| state.moment.figures = *figures);
    }

    fn paused(&self, pause: Option<&Pause>) {
        self.update(|state| state.moment.pause = pause.cloned());
    }
}
