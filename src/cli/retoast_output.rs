//! Where `retoast` prints: one report of all tables at the end; notices on standard error meanwhile.

use std::io;

use super::exit::{Exit, Failure};
use super::retoast::RetoastArgs;
use super::terminal::{self, tell};
use crate::report::document::Format;
use crate::retoast::result::{DepartureReport, Outcome, Report, SCHEMA, Swept};
use crate::server::sink::{Failed, Kind, RunError, Sink};

/// The output of one run.
pub(super) struct RetoastOutput {
    format: Format,
    dry_run: bool,
    tables: Vec<Swept>,
    failed: Vec<Failed>,
}

impl RetoastOutput {
    pub(super) fn new(args: &RetoastArgs) -> RetoastOutput {
        let RetoastArgs { format, dry_run, .. } = *args;
        RetoastOutput { format, dry_run, tables: Vec::new(), failed: Vec::new() }
    }

    /// Prints the report, and says how the run ended. Where nothing was done nothing is printed.
    pub(super) fn end(
        mut self,
        ended: Result<Option<DepartureReport>, RunError>,
        stopped: bool,
    ) -> Result<Exit, Failure> {
        let departure = match ended {
            Ok(departure) => departure,
            Err(RunError::Failed(failed)) => {
                self.failed.push(failed);
                None
            }
            Err(RunError::Output(error)) => return terminal::unwritable(&error),
        };
        self.tables.sort_by_key(|swept| swept.position);
        let tables = self.tables.into_iter().map(|swept| swept.report).collect();
        let report = Report { schema: SCHEMA, dry_run: self.dry_run, tables, departure };
        let exit = if stopped { Exit::Stopped } else { worst(&report) };
        if !report.tables.is_empty() || report.departure.is_some() {
            print(&report, self.format)?;
        }
        // what has begun can go on
        let begun = !report.tables.is_empty();
        for lost in self.failed.iter_mut().filter(|failed| begun && failed.kind == Kind::Lost) {
            let hint = format!("\nHINT:  What was committed stays; to go on: {}", command_line());
            lost.message.push_str(&hint);
        }
        let worst = self.failed.iter().map(|failed| Exit::from(failed.kind)).max();
        // the same command goes on with the others
        let goes_on = exit == Exit::Stopped && worst == Some(Exit::Incomplete);
        let last = if goes_on { None } else { self.failed.pop() };
        for failed in self.failed {
            tell(&format!("error: {}", failed.message));
        }
        if let (Some(worst), Some(last)) = (worst, last) {
            return Err(Failure::new(worst.max(exit), last.message));
        }
        if exit == Exit::Stopped {
            tell(&format!("stopped; to go on: {}", command_line()));
        }
        Ok(exit)
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

    fn notice(&mut self, text: &str) {
        tell(text);
    }
}

/// The exit code that says how the worst of it ended.
fn worst(report: &Report) -> Exit {
    let tables = report.tables.iter().map(|table| match table.outcome {
        Outcome::Complete | Outcome::Planned | Outcome::Held
            if !table.common.effort.slots_lost.is_empty() =>
        {
            Exit::Incomplete
        }
        Outcome::Complete | Outcome::Planned => Exit::Ok,
        Outcome::Held => Exit::Held,
        Outcome::Incomplete | Outcome::Unverified | Outcome::Failed => Exit::Incomplete,
        Outcome::Stopped => Exit::Stopped,
    });
    let departure = report.departure.iter().map(|departure| {
        let done = departure.unfit.is_empty() && (departure.gone || report.dry_run);
        if done { Exit::Ok } else { Exit::Incomplete }
    });
    tables.chain(departure).max().unwrap_or(Exit::Ok)
}

fn print(report: &Report, format: Format) -> Result<(), Failure> {
    let mut out = terminal::stdout_for_people(format);
    let width = terminal::output_width();
    match crate::report::retoast::write(report, format, width, &mut out) {
        Err(error) => terminal::unwritable(&error).map(drop),
        Ok(()) => Ok(()),
    }
}

/// The command that goes on, as a shell takes it. A connection string may hold a password and is left
/// out.
fn command_line() -> String {
    let words: Vec<String> = std::env::args().map(|word| shell_word(&word)).collect();
    words.join(" ")
}

/// A word as a shell takes it; what may hold a password is left out.
fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=%@".contains(c);
    if word.contains("://") || word.contains("password") {
        "'…'".to_owned()
    } else if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
