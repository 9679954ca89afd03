//! `-v` and `-vv`: what the program decides, and which statements it sends, on standard error.

use std::fmt;
use std::time::Instant;

use clap::{ArgAction, Args};
use tracing::Level;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::terminal;

/// The seconds since the beginning, as lines begin with them.
struct Uptime(Instant);

impl FormatTime for Uptime {
    fn format_time(&self, line: &mut Writer<'_>) -> fmt::Result {
        write!(line, "{:.3} s:", self.0.elapsed().as_secs_f64())
    }
}

/// How much is told; every verb has it.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct VerboseArg {
    /// Report decisions and reasons; -vv: SQL statements too
    ///
    /// On standard error. Each SQL statement is reported with the time that it took. Parameters, rows and passwords are
    /// never reported.
    #[arg(short, long, action = ArgAction::Count, global = true)]
    verbose: u8,

    /// Print only warnings and errors, no notices or progress
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(super) quiet: bool,
}

impl VerboseArg {
    pub(super) fn begin(self) {
        let level = match self.verbose {
            0 => return,
            1 => Level::DEBUG,
            _ => Level::TRACE,
        };
        // other crates' are left out: the driver's would tell parameters
        let ours = Targets::new().with_target("toastctl", level);
        let lines = layer()
            .compact()
            .with_writer(|| terminal::PrintableStderr)
            .with_ansi(false)
            .with_target(false)
            .with_level(false)
            .with_timer(Uptime(Instant::now()));
        // fails where something else was begun before, which nothing does
        let _ = tracing_subscriber::registry().with(lines.with_filter(ours)).try_init();
    }
}
