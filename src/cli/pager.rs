//! The pager: what is longer than the terminal is shown in it, as psql does.

use std::io::{self, IsTerminal, Write};
use std::process::{Child, Command, Stdio};

use anstream::adapter::strip_str;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// The exit code of a shell that has not found the pager.
const NOT_FOUND: i32 = 127;
/// Bytes that are kept for the pager; longer reports are printed as they come.
const LARGEST_KEPT: usize = 1 << 20;

/// Shows a text that is longer than the terminal in the pager; `None` where nothing was shown.
pub(super) fn show(text: &str) -> Option<()> {
    if !io::stdout().is_terminal() || fits(text) {
        return None;
    }
    let mut pager = start().ok()?;
    // a pager that ends early closes the pipe, which is no error
    let _ = pager.stdin.take()?.write_all(text.as_bytes());
    pager.wait().ok().filter(|status| status.code() != Some(NOT_FOUND)).map(drop)
}

/// Whether a terminal has lines for this text and for the prompt that follows; so where its height is not known.
fn fits(text: &str) -> bool {
    let size = terminal_size::terminal_size_of(io::stdout());
    size.is_none_or(|(width, height)| {
        let width = usize::from(width.0).max(1);
        let text = strip_str(text).to_string();
        let rows: usize =
            text.lines().map(|line| line.chars().count().div_ceil(width).max(1)).sum();
        rows < usize::from(height.0)
    })
}

/// Starts the program that `PSQL_PAGER` or `PAGER` names, else less, which then ends by itself where all fits.
fn start() -> io::Result<Child> {
    let pager = ["PSQL_PAGER", "PAGER"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|pager| !pager.trim().is_empty())
        .unwrap_or_else(|| "less".to_owned());
    let mut shown = Command::new("sh");
    shown.args(["-c", &pager]).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        shown.env("LESS", "FRX");
    }
    // Ctrl-C is for the pager now: once listened to, it no longer ends this process
    if let Ok(runtime) = Builder::new_current_thread().enable_all().build() {
        let _inside = runtime.enter();
        drop(signal(SignalKind::interrupt()));
    }
    shown.spawn()
}

/// Reports on a terminal: kept until the run has ended, so that no session waits for who reads them.
#[derive(Default)]
pub(super) struct PagedReports(Vec<u8>);

impl PagedReports {
    /// `None` unless standard output and input are a terminal: nobody would answer the pager.
    pub(super) fn on_terminal() -> Option<PagedReports> {
        let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
        is_terminal.then(PagedReports::default)
    }

    /// Prints what is kept, or shows it in the pager if it does not fit.
    pub(super) fn show(&mut self) -> io::Result<()> {
        let kept = std::mem::take(&mut self.0);
        match show(&String::from_utf8_lossy(&kept)) {
            Some(()) => Ok(()),
            None => io::stdout().write_all(&kept),
        }
    }
}

impl Write for PagedReports {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > LARGEST_KEPT {
            io::stdout().write_all(&std::mem::take(&mut self.0))?;
            io::stdout().write_all(bytes)?;
        } else {
            self.0.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    /// What is kept is shown in the end.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
