//! Where reports of `inspect` that stand each for itself are printed as they come.

use std::io::{self, BufWriter, Stdout};

use super::exit::{Exit, Failure};
use super::inspect::InspectArgs;
use super::terminal::{self, Plain, tell};
use crate::report::document::{Printed, Writer};
use crate::report::table::printable;
use crate::server::sink::{Failed, RunError, Sink};

/// Problems that are printed on standard error; all of them are in the report.
const PROBLEMS_SHOWN: usize = 10;

/// The output of `--explain` and of `--jsonb-keys`.
pub(super) struct Output {
    writer: Writer<Plain<BufWriter<Stdout>>>,
    found: bool,
    /// The exit code if nothing is found, once something could not be done.
    failed: Option<Exit>,
}

impl Output {
    pub(super) fn new<R: Printed>(args: &InspectArgs) -> Output {
        let out = terminal::stdout_for_people(args.format);
        let writer = Writer::new::<R>(out, args.format, terminal::output_width());
        Output { writer, found: false, failed: None }
    }

    /// Ends the document, and says how the run ended. Where nothing was found nothing is printed.
    pub(super) fn end(self, ended: Result<(), RunError>) -> Result<Exit, Failure> {
        let exit = match self.failed {
            Some(_) if self.found => Exit::Incomplete,
            Some(exit) => exit,
            None => Exit::Ok,
        };
        terminal::end(ended, exit, |_| if self.found { self.writer.finish() } else { Ok(()) })
    }
}

impl<R: Printed> Sink<R> for Output {
    fn found(&mut self, report: R) -> io::Result<()> {
        self.found = true;
        let (problems, count) = report.problems();
        if count > 0 {
            self.failed.get_or_insert(Exit::Incomplete);
        }
        for problem in problems.iter().take(PROBLEMS_SHOWN) {
            tell(&format!("error: {}", printable(problem)));
        }
        self.writer.report(&report)
    }

    fn failed(&mut self, failed: Failed) {
        self.failed.get_or_insert(failed.kind.into());
        tell(&format!("error: {}", failed.message));
    }

    fn notice(&mut self, text: &str) {
        tell(text);
    }
}
