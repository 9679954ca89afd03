//! Where `advise-threshold` prints: reports as they are finished; problems on standard error.

use std::io::{self, BufWriter, Stdout, Write};

use super::advise::{AdviseArgs, Emit};
use super::exit::{Exit, Failure};
use super::terminal::{self, Plain, tell};
use crate::advise::extract::keys::Extract;
use crate::advise::result::Report;
use crate::report::advise::{Shown, Writer};
use crate::report::table::printable;
use crate::server::sink::{Failed, RunError, Sink};

/// Problems that are printed on standard error; all of them are in the reports.
const PROBLEMS_SHOWN: usize = 10;

/// The output of one run.
pub(super) struct AdviseOutput {
    lines: Lines,
    found: bool,
    problems_shown: usize,
    /// The exit code if nothing is found, once something could not be done.
    failed: Option<Exit>,
    /// Which keys were to be extracted.
    extract: Option<Extract>,
    /// The script that was printed.
    script: Option<String>,
}

enum Lines {
    Reports(Writer<Plain<BufWriter<Stdout>>>),
    Emitted(Emit, BufWriter<Stdout>),
}

impl AdviseOutput {
    pub(super) fn new(args: &AdviseArgs) -> AdviseOutput {
        let lines = match args.emit {
            Some(emit) => Lines::Emitted(emit, terminal::stdout()),
            None => {
                let out = terminal::stdout_for_people(args.format);
                let width = terminal::output_width();
                Lines::Reports(Writer::new(
                    out,
                    args.format,
                    width,
                    Shown { plot: args.plot, details: args.details },
                ))
            }
        };
        AdviseOutput {
            lines,
            found: false,
            problems_shown: 0,
            failed: None,
            extract: args.extract.clone(),
            script: None,
        }
    }

    /// Ends the document, and says how the run ended. Where nothing was found nothing is printed.
    pub(super) fn end(self, ended: Result<(), RunError>) -> Result<Exit, Failure> {
        if let Err(RunError::Output(error)) = ended {
            return terminal::unwritable(&error);
        }
        let nothing = !self.found && (ended.is_err() || self.failed.is_some());
        let written = match self.lines {
            Lines::Reports(writer) if !nothing => writer.finish(),
            Lines::Reports(_) | Lines::Emitted(..) => Ok(()),
        };
        if let Err(RunError::Failed(failed)) = ended {
            return Err(failed.into());
        }
        match (written, self.failed) {
            (Err(error), _) if !terminal::is_closed_pipe(&error) => terminal::unwritable(&error),
            (_, Some(exit)) => Ok(if self.found { Exit::Incomplete } else { exit }),
            (_, None) => Ok(Exit::Ok),
        }
    }
}

impl Sink<Report> for AdviseOutput {
    fn found(&mut self, report: Report) -> io::Result<()> {
        self.found = true;
        if report.problem_count > 0 {
            self.failed.get_or_insert(Exit::Incomplete);
        }
        if self.extract == Some(Extract::Auto) && report.extraction.is_none() {
            let place = format!("{}, column {}", report.relation, report.column);
            tell(&format!("notice: {}: no keys pay in columns of their own", printable(&place)));
            if matches!(self.lines, Lines::Emitted(..)) {
                return Ok(());
            }
        }
        let room = PROBLEMS_SHOWN.saturating_sub(self.problems_shown);
        for problem in report.problems.iter().take(room) {
            self.problems_shown += 1;
            tell(&format!("error: {}", printable(problem)));
        }
        match &mut self.lines {
            Lines::Reports(writer) => writer.report(&report),
            Lines::Emitted(emit, out) => match &report.extraction {
                // partitions have one script
                Some(extraction) if self.script.as_ref() == Some(&extraction.script) => Ok(()),
                // those without rows have none
                None if self.extract.is_some() => Ok(()),
                extraction => {
                    self.script = extraction.as_ref().map(|extraction| extraction.script.clone());
                    emitted(*emit, &report, out)
                }
            },
        }
    }

    fn failed(&mut self, failed: Failed) {
        self.failed.get_or_insert(failed.kind.into());
        tell(&format!("error: {}", failed.message));
    }

    fn notice(&mut self, text: &str) {
        tell(text);
    }
}

fn emitted(emit: Emit, report: &Report, out: &mut impl Write) -> io::Result<()> {
    if let Some(extraction) = &report.extraction {
        out.write_all(extraction.script.as_bytes())?;
        return out.flush();
    }
    let recommendation = &report.recommendation;
    match (emit, &recommendation.command) {
        (_, None) => {
            let mark = if emit == Emit::Sql { "--" } else { "#" };
            let place = format!("{}, column {}", report.relation, report.column);
            writeln!(out, "{mark} {}: leave it as it is", printable(&place))?;
        }
        (Emit::Sql, Some(_)) => {
            for statement in &recommendation.sql {
                writeln!(out, "{statement}")?;
            }
        }
        (Emit::Command, Some(command)) => writeln!(out, "{command}")?,
    }
    out.flush()
}
