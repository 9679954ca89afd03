//! `toastctl inspect` of many relations: when there is an overview, and where it is printed.

use std::io::{BufWriter, Stdout};
use std::time::Duration;

use super::exit::{Exit, Failure};
use super::inspect::{InspectArgs, ScanToastArg};
use super::terminal::{self, Plain, stdout_for_people, tell};
use crate::inspect::overview::run::{Output, Terms};
use crate::inspect::overview::{Extent, LeftOut, RelationLine};
use crate::report::overview::Writer;
use crate::report::table::printable;
use crate::server::about::ServerReport;
use crate::server::select::Found;
use crate::server::sink::{Failed, RunError, Sink};

/// The time for an overview whose sample nobody has chosen.
const MAX_TIME: Duration = Duration::from_secs(10);
/// How precise it is wanted.
const PRECISION: f64 = 0.05;
/// Errors that are printed one by one; all relations that were left out are in the JSON.
const ERRORS_SHOWN: u64 = 10;

impl InspectArgs {
    /// Whether these relations of a server are shown in an overview: several are, and all of a database.
    pub(super) fn wants_overview(&self, found: &[Found]) -> bool {
        let in_full = self.overview.details
            || self.values
            || self.policy.is_some()
            || self.scan_toast != ScanToastArg::Auto;
        !in_full && (self.overview.is_meant() || self.tables.is_empty() || found.len() != 1)
    }

    /// How much is read for the overview.
    pub(super) fn terms(&self, explains_functions: bool) -> Terms {
        let overview = &self.overview;
        Terms {
            sampling: self.sampling(),
            precision: overview.precision.unwrap_or(PRECISION),
            max_time: overview.max_time.or(self.sample.is_none().then_some(MAX_TIME)),
            parts: overview.parts,
            explains_functions,
        }
    }
}

/// Prints the overview.
pub(super) struct OverviewOutput {
    writer: Writer<Plain<BufWriter<Stdout>>>,
    /// Whether something could not be read.
    incomplete: bool,
    /// Whether a relation was read.
    found: bool,
    errors: u64,
}

impl OverviewOutput {
    pub(super) fn new(args: &InspectArgs, server: Option<ServerReport>) -> OverviewOutput {
        let (out, width) = (stdout_for_people(args.format), terminal::output_width());
        let writer = Writer::new(out, args.format, width, server, args.overview.view());
        OverviewOutput { writer, incomplete: false, found: false, errors: 0 }
    }

    fn error(&mut self, message: &str) {
        self.incomplete = true;
        self.errors += 1;
        if self.errors <= ERRORS_SHOWN {
            tell(&format!("error: {message}"));
        }
    }

    /// Ends the document, and says how the run ended. Where nothing could be read nothing is printed.
    pub(super) fn end(self, ended: Result<(), RunError>) -> Result<Exit, Failure> {
        let exit = if self.incomplete { Exit::Incomplete } else { Exit::Ok };
        terminal::end(ended, exit, |failed| {
            let more = self.errors.saturating_sub(ERRORS_SHOWN);
            if more > 0 {
                tell(&format!("error: and {more} more; --format json names every table left out"));
            }
            let nothing = !self.found && (failed || self.incomplete);
            if nothing { Ok(()) } else { self.writer.finish() }
        })
    }
}

impl Sink<RelationLine> for OverviewOutput {
    fn found(&mut self, relation: RelationLine) -> std::io::Result<()> {
        self.found = true;
        for problem in &relation.problems {
            self.error(&printable(&problem.text));
        }
        self.incomplete |= relation.problem_count > 0;
        self.writer.relation(&relation)
    }

    fn failed(&mut self, failed: Failed) {
        self.error(&failed.message);
    }

    fn notice(&mut self, text: &str) {
        tell(text);
    }
}

impl Output for OverviewOutput {
    fn begin(&mut self, extent: Extent) {
        self.writer.begin(extent);
    }

    fn left_out(&mut self, relation: LeftOut) {
        self.writer.left_out(relation);
    }
}
