//! The terminal: its width, progress on it, and a standard output that may be closed.

use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::inspect::progress::Progress;

/// Width of tables on standard output: `COLUMNS` if set, else the terminal's; `None` if it is no
/// terminal.
pub fn output_width() -> Option<usize> {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.trim().parse().ok());
    columns.filter(|&width| width > 0).or_else(|| {
        let stdout = io::stdout();
        if !stdout.is_terminal() {
            return None;
        }
        terminal_size::terminal_size_of(stdout).map(|(width, _)| usize::from(width.0))
    })
}

/// Standard output, buffered. A reader that went away (`| head`) is not an error: see
/// [`is_closed_pipe`].
pub fn stdout() -> io::BufWriter<io::Stdout> {
    io::BufWriter::with_capacity(1 << 16, io::stdout())
}

/// Whether writing failed because nobody reads any more.
pub fn is_closed_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// How often a plain line is printed where standard error is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Work that is done sooner shows no progress at all.
const QUIET: Duration = Duration::from_secs(1);

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
            terminal: io::stderr().is_terminal(),
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
        state.done += blocks;
        let now = Instant::now();
        if self.terminal {
            if now - state.began > QUIET && self.bar.is_hidden() {
                self.bar.set_draw_target(ProgressDrawTarget::stderr());
            }
            self.bar.set_position(state.done);
        } else if now - state.last_line >= LINE_EVERY {
            state.last_line = now;
            let percent = 100 * state.done / state.blocks.max(1);
            let State { relation, done, blocks, .. } = &*state;
            // Nobody to tell is no reason to stop.
            let _ =
                writeln!(io::stderr(), "{relation}: {done} of {blocks} blocks read ({percent} %)");
        }
    }

    fn end(&self) {
        self.bar.set_draw_target(ProgressDrawTarget::hidden());
        if self.terminal {
            self.bar.finish_and_clear();
        }
    }
}
