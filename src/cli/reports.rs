//! Where `inspect --explain` and `keys` print their reports; problems on standard error.

use std::io;

use super::exit::{Exit, Failure};
use super::terminal::{self, Out, Plain, Ui};
use crate::message::Message;
use crate::report::document::{Printed, Writer};
use crate::report::table::printable;
use crate::server::about::ServerReport;
use crate::server::sink::{Failed, RunError, Sink};

/// Problems that are printed on standard error; all of them are in the report.
const PROBLEMS_SHOWN: usize = 10;

/// The output of one run.
pub(super) struct ReportOutput {
    ui: Ui,
    writer: Writer<Plain<Out>>,
    found: bool,
    /// The exit code if nothing is found, once something could not be done.
    failed: Option<Exit>,
}

impl ReportOutput {
    /// `details`: whether people are shown everything.
    pub(super) fn new<R: Printed>(
        ui: &Ui,
        server: Option<ServerReport>,
        details: bool,
    ) -> ReportOutput {
        let writer = Writer::new::<R>(ui.paged_out(), (ui.format, ui.width), server, details);
        ReportOutput { ui: ui.clone(), writer, found: false, failed: None }
    }

    /// Ends the document, and says how the run ended. Where nothing was found nothing is printed.
    pub(super) fn end(self, ended: Result<(), RunError>) -> Result<Exit, Failure> {
        let exit = match self.failed {
            Some(_) if self.found => Exit::Incomplete,
            Some(exit) => exit,
            None => Exit::Ok,
        };
        let ReportOutput { mut writer, found, .. } = self;
        terminal::end(ended, exit, |failed| {
            if failed || exit != Exit::Ok {
                writer.incomplete();
            }
            if found { writer.finish() } else { Ok(()) }
        })
    }
}

impl<R: Printed> Sink<R> for ReportOutput {
    fn found(&mut self, mut report: R) -> io::Result<()> {
        self.found = true;
        if let Some(command) = report.command() {
            self.ui.lead_line_here(command);
        }
        let problems = report.problems();
        if problems.count() > 0 {
            self.failed.get_or_insert(Exit::Incomplete);
        }
        for problem in problems.kept().iter().take(PROBLEMS_SHOWN) {
            self.ui.error(printable(&problem.to_string()));
        }
        self.writer.report(&report)
    }

    fn failed(&mut self, failed: Failed) {
        self.failed.get_or_insert(failed.kind.into());
        self.ui.tell(failed.message);
    }

    fn message(&mut self, message: Message) {
        self.ui.tell(message);
    }
}
