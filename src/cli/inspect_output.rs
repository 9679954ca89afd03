//! Where `inspect` and `value` print: values as they come, relations as they are finished, or an overview of them;
//! problems on standard error.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use super::arguments::InspectFormat;
use super::citus::NodeSink;
use super::exit::{Exit, Failure};
use super::fail_on;
use super::terminal::{self, Console, Out, Plain, stdout_for_people, tell};
use crate::findings::finding::rank;
use crate::inspect::overview::figures::{Condition, Figures};
use crate::inspect::overview::rank::Ranking;
use crate::inspect::overview::run::Output as OverviewSink;
use crate::inspect::overview::{Extent, LeftOut, RelationLine};
use crate::inspect::result::RelationReport;
use crate::inspect::run::Output;
use crate::report::document::Format;
use crate::report::inspect::Writer;
use crate::report::nagios::{self, State};
use crate::report::openmetrics;
use crate::report::overview::{self, View};
use crate::report::table::{Style, printable};
use crate::report::values::ValueWriter;
use crate::server::about::ServerReport;
use crate::server::citus::Placement;
use crate::server::sink::{Failed, RunError, Sink, UserMessage};
use crate::value::rows::{RowWriter, ValueRow};

/// Errors that are printed one by one; all relations that were left out are in the JSON.
const ERRORS_SHOWN: u64 = 10;

/// Problems of a relation that are printed on standard error; all of them are in the report.
const PROBLEMS_SHOWN: u64 = 10;

/// How a run of `inspect` ended.
pub(super) struct Ended {
    pub(super) exit: Exit,
    /// What a plugin says in place of the exit code.
    state: Option<State>,
}

impl From<Exit> for Ended {
    fn from(exit: Exit) -> Ended {
        Ended { exit, state: None }
    }
}

impl From<Ended> for ExitCode {
    fn from(ended: Ended) -> ExitCode {
        ended.state.map_or(ended.exit.into(), ExitCode::from)
    }
}

/// The output of one run.
pub(super) struct InspectOutput {
    lines: Lines,
    /// Whether something could not be read.
    incomplete: bool,
    /// Whether a relation is printed, or its values.
    found: bool,
}

enum Lines {
    Values(ValueWriter<Plain<Out>>),
    Relations(Writer<Plain<Out>>),
}

impl InspectOutput {
    /// For a run without relations: values alone.
    pub(super) fn of_values(format: Format, with_contents: bool) -> InspectOutput {
        let mut writer =
            ValueWriter::new(stdout_for_people(format), format, terminal::output_width());
        if with_contents {
            writer = writer.with_contents();
        }
        InspectOutput { lines: Lines::Values(writer), incomplete: false, found: false }
    }

    pub(super) fn new(format: Format, server: Option<ServerReport>) -> InspectOutput {
        let width = terminal::output_width();
        let writer = Writer::new(stdout_for_people(format), format, width, server);
        InspectOutput { lines: Lines::Relations(writer), incomplete: false, found: false }
    }

    pub(super) fn row(&mut self, row: &ValueRow) -> std::io::Result<()> {
        match &mut self.lines {
            Lines::Values(writer) => writer.write(row),
            Lines::Relations(_) => Ok(()),
        }
    }

    /// Ends the document, and says how the run ended. Where nothing could be read nothing is printed.
    pub(super) fn end(self, ended: Result<(), RunError>) -> Result<Exit, Failure> {
        let exit = if self.incomplete { Exit::Incomplete } else { Exit::Ok };
        terminal::end(ended, exit, |failed| match self.lines {
            Lines::Values(writer) => writer.finish().map(drop),
            Lines::Relations(_) if !self.found && (failed || self.incomplete) => Ok(()),
            Lines::Relations(mut writer) => {
                if failed || self.incomplete {
                    writer.incomplete();
                }
                writer.finish()
            }
        })
    }
}

impl Sink<RelationReport> for InspectOutput {
    fn found(&mut self, relation: RelationReport) -> std::io::Result<()> {
        self.found = true;
        self.incomplete |= relation.problem_count > 0;
        for problem in relation.problems.iter().take(PROBLEMS_SHOWN as usize) {
            tell(UserMessage::Error(printable(&problem.text)));
        }
        let more = relation.problem_count.saturating_sub(PROBLEMS_SHOWN);
        if more > 0 {
            tell(UserMessage::Error(format!("{}: and {more} more", relation.relation)));
        }
        for column in &relation.unknown_defaults {
            let place = printable(&format!("{}, column \"{column}\"", relation.relation));
            tell(UserMessage::Note(format!(
                "{place}: the content of its default is not known, so rows that are older than the \
                 column have no md5"
            )));
        }
        match &mut self.lines {
            Lines::Values(_) => Ok(()),
            Lines::Relations(writer) => writer.relation(&relation),
        }
    }

    fn failed(&mut self, failed: Failed) {
        self.incomplete = true;
        tell(UserMessage::Error(failed.message));
    }

    fn message(&mut self, message: UserMessage) {
        tell(message);
    }
}

impl Output for InspectOutput {
    fn rows(&mut self) -> Option<&mut (dyn RowWriter + Send)> {
        match &mut self.lines {
            Lines::Values(writer) => Some(writer),
            Lines::Relations(_) => None,
        }
    }
}

impl NodeSink for InspectOutput {
    type Found = RelationReport;
}

impl NodeSink for OverviewOutput {
    type Found = RelationLine;

    fn missing(&mut self, shard: &Placement, node: &str) {
        let relation = format!("{} on {node}", shard.relation);
        self.left_out(LeftOut { relation, bytes: None, reason: "its node failed".into() });
    }
}

/// Prints the overview, or what monitoring systems read of it.
pub(super) struct OverviewOutput {
    lines: OverviewLines,
    ranking: Ranking,
    /// What raises an alarm.
    alarms: Vec<Condition>,
    /// Whether something could not be read.
    incomplete: bool,
    /// Whether a relation was read.
    found: bool,
    errors: u64,
}

enum OverviewLines {
    Report(overview::Writer<Plain<Out>>),
    /// Metrics of this database.
    Openmetrics(String, View),
    Nagios,
    /// Printed with those of other databases.
    Joined(Arc<Console>, View),
}

impl OverviewOutput {
    pub(super) fn new(
        format: InspectFormat,
        server: ServerReport,
        view: View,
        alarms: Vec<Condition>,
    ) -> OverviewOutput {
        let lines = match format {
            InspectFormat::Report(format) => match Console::here() {
                Some(console) if matches!(format, Format::Table | Format::Markdown) => {
                    OverviewLines::Joined(console, view)
                }
                _ => {
                    let out = stdout_for_people(format);
                    let width = terminal::output_width();
                    let server = Some(server);
                    OverviewLines::Report(overview::Writer::new(out, format, width, server, view))
                }
            },
            InspectFormat::Openmetrics => OverviewLines::Openmetrics(server.database, view),
            InspectFormat::Nagios => OverviewLines::Nagios,
        };
        let alarms = match lines {
            OverviewLines::Nagios if alarms.is_empty() => nagios::usual(),
            _ => alarms,
        };
        let ranking = Ranking::new(Extent::default());
        OverviewOutput { lines, ranking, alarms, incomplete: false, found: false, errors: 0 }
    }

    fn error(&mut self, message: &str) {
        self.incomplete = true;
        self.errors += 1;
        if self.errors <= ERRORS_SHOWN {
            tell(UserMessage::Error(message.to_string()));
        }
    }

    /// Ends the document, and says how the run ended. Where nothing could be read nothing is printed, except to
    /// monitoring systems.
    pub(super) fn end(self, ended: Result<(), RunError>) -> Result<Ended, Failure> {
        let OverviewOutput { lines, mut ranking, alarms, incomplete, found, errors } = self;
        let figures = Figures::of(&ranking);
        let exit = if incomplete { Exit::Incomplete } else { Exit::Ok };
        let more = errors.saturating_sub(ERRORS_SHOWN);
        if more > 0 && !matches!(ended, Err(RunError::Output(_))) {
            tell(UserMessage::Error(format!(
                "and {more} more; --format json names every table left out"
            )));
        }
        let exit = match lines {
            OverviewLines::Report(mut writer) => terminal::end(ended, exit, |failed| {
                if failed || incomplete {
                    writer.incomplete();
                }
                let nothing = !found && (failed || incomplete);
                if nothing { Ok(()) } else { writer.finish(ranking) }
            }),
            OverviewLines::Openmetrics(database, view) => terminal::end(ended, exit, |failed| {
                let is_complete = !(failed || incomplete) && figures.are_complete();
                if failed && !found {
                    return Ok(());
                }
                openmetrics::write(terminal::stdout(), &database, ranking, view, is_complete)
            }),
            OverviewLines::Nagios => {
                rank(&mut ranking.findings);
                let findings = &ranking.findings;
                let (state, line) = nagios::report(&figures, findings, &alarms, incomplete);
                let exit = terminal::end(ended, exit, |failed| {
                    if failed { Ok(()) } else { terminal::stdout().write_all(line.as_bytes()) }
                })?;
                return Ok(Ended { exit, state: Some(state) });
            }
            OverviewLines::Joined(console, view) => terminal::end(ended, exit, |failed| {
                if found || !failed {
                    let limit = view.shown(Some(Style::Terminal(None)));
                    let overview = ranking.overview(view.sort, limit);
                    console.kept().overview = Some(overview);
                }
                Ok(())
            }),
        }?;
        Ok(exit.max(fail_on::judged(&alarms, &figures)).into())
    }
}

impl Sink<RelationLine> for OverviewOutput {
    fn found(&mut self, relation: RelationLine) -> std::io::Result<()> {
        self.found = true;
        for problem in &relation.problems {
            self.error(&printable(&problem.text));
        }
        self.incomplete |= relation.problem_count > 0;
        self.ranking.add(&relation);
        match &mut self.lines {
            OverviewLines::Report(writer) => writer.relation(&relation),
            OverviewLines::Openmetrics(..) | OverviewLines::Nagios | OverviewLines::Joined(..) => {
                Ok(())
            }
        }
    }

    fn failed(&mut self, failed: Failed) {
        self.error(&failed.message);
    }

    fn message(&mut self, message: UserMessage) {
        tell(message);
    }
}

impl OverviewSink for OverviewOutput {
    fn begin(&mut self, extent: Extent) {
        self.ranking.begin(extent);
    }

    fn left_out(&mut self, relation: LeftOut) {
        self.ranking.left_out.push(relation);
    }
}
