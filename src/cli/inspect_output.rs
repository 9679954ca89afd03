//! Where `inspect` and `value` print: values as they come, relations as they are finished, or an overview of them;
//! problems on standard error.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use super::arguments::InspectFormat;
use super::exit::{Exit, Failure};
use super::fail_on;
use super::files::{SavedText, unreadable};
use super::terminal::{self, Out, Plain, ReadingProgress, TargetRun, Ui};
use crate::findings::finding::rank;
use crate::inspect::inspector::InspectError;
use crate::inspect::offline::{self, ContentFiles};
use crate::inspect::overview::Extent;
use crate::inspect::overview::figures::{Condition, Figures};
use crate::inspect::overview::rank::Ranking;
use crate::inspect::overview::run::OverviewResult;
use crate::inspect::result::RelationReport;
use crate::inspect::saved::saved_text;
use crate::message::{Message, Severity};
use crate::offline::target::FileTarget;
use crate::report::document::Format;
use crate::report::inspect::Writer;
use crate::report::nagios::{self, State};
use crate::report::openmetrics;
use crate::report::overview::{self, View};
use crate::report::table::{Style, printable};
use crate::report::values::ValueWriter;
use crate::server::about::ServerReport;
use crate::server::sink::{Failed, RunError, Sink};
use crate::value::rows::RowWriter;
use toast_format::disk::ByteOrder;

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

/// The reports of relations in one run.
pub(super) struct InspectOutput {
    ui: Ui,
    /// `None` if only values are printed.
    writer: Option<Writer<Plain<Out>>>,
    /// Whether something could not be read.
    incomplete: bool,
    /// Whether a relation is printed, or its values.
    found: bool,
}

impl InspectOutput {
    /// For a run that prints values alone.
    pub(super) fn of_values(ui: &Ui) -> InspectOutput {
        InspectOutput { ui: ui.clone(), writer: None, incomplete: false, found: false }
    }

    pub(super) fn new(ui: &Ui, server: Option<ServerReport>) -> InspectOutput {
        let writer = Writer::new(ui.report_out(), ui.format, ui.width, server);
        InspectOutput { writer: Some(writer), ..InspectOutput::of_values(ui) }
    }

    /// Prints what a relation file holds.
    pub(super) fn read_file(
        mut self,
        target: &FileTarget<'_>,
        contents: Option<ContentFiles<'_>>,
        mut values: Option<ValueWriter<Plain<Out>>>,
    ) -> Result<Exit, Failure> {
        let rows = values.as_mut().map(|rows| rows as &mut (dyn RowWriter + Send));
        let progress = ReadingProgress::new(&self.ui);
        let ended = match offline::relation_file(target, contents, rows, &*progress) {
            Ok(report) => self.found(report),
            Err(InspectError::Output(error)) => Err(error),
            Err(error) => return Err(Failure::usage(error.to_string())),
        };
        self.end(ended.map_err(RunError::Output), values)
    }

    /// Prints what saved output of pageinspect holds.
    pub(super) fn read_saved(
        mut self,
        SavedText { name, desc, source }: SavedText,
        order: ByteOrder,
        mut values: Option<ValueWriter<Plain<Out>>>,
    ) -> Result<Exit, Failure> {
        let rows = values.as_mut().map(|rows| rows as &mut (dyn RowWriter + Send));
        let read = saved_text(&name, source, &desc, order, rows);
        let (report, unwritten) = read.map_err(|error| unreadable(&name, &error))?;
        let ended = match unwritten {
            Some(error) => Err(error),
            None => self.found(report),
        };
        self.end(ended.map_err(RunError::Output), values)
    }

    /// Ends the document, and says how the run ended. Where nothing could be read nothing is printed, except for the
    /// values.
    pub(super) fn end(
        self,
        ended: Result<(), RunError>,
        values: Option<ValueWriter<Plain<Out>>>,
    ) -> Result<Exit, Failure> {
        let exit = if self.incomplete { Exit::Incomplete } else { Exit::Ok };
        terminal::end(ended, exit, |failed| {
            if let Some(values) = values {
                values.finish()?;
            }
            let failed = failed || self.incomplete;
            match self.writer {
                Some(mut writer) if self.found || !failed => {
                    if failed {
                        writer.incomplete();
                    }
                    writer.finish()
                }
                _ => Ok(()),
            }
        })
    }
}

impl Sink<RelationReport> for InspectOutput {
    fn found(&mut self, relation: RelationReport) -> std::io::Result<()> {
        self.found = true;
        self.incomplete |= relation.read.problem_count > 0;
        for problem in relation.read.problems.iter().take(PROBLEMS_SHOWN as usize) {
            self.ui.error(printable(&problem.text));
        }
        let more = relation.read.problem_count.saturating_sub(PROBLEMS_SHOWN);
        if more > 0 {
            self.ui.tell(
                Message::error(format!("and {more} more")).about(&relation.read.name.relation),
            );
        }
        for column in &relation.unknown_defaults {
            let place = printable(&format!("{}, column \"{column}\"", relation.read.name.relation));
            let text = "the content of its default is not known, so rows that are older than the column have no md5";
            self.ui.tell(Message::new(Severity::Note, text).about(place));
        }
        self.writer.as_mut().map_or(Ok(()), |writer| writer.relation(&relation))
    }

    fn failed(&mut self, failed: Failed) {
        self.incomplete = true;
        self.ui.tell(failed.message);
    }

    fn message(&mut self, message: Message) {
        self.ui.tell(message);
    }
}

/// Prints the overview, or what monitoring systems read of it.
pub(super) struct OverviewOutput {
    ui: Ui,
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
    Joined(Arc<TargetRun>, View),
}

impl OverviewOutput {
    pub(super) fn new(
        ui: &Ui,
        format: InspectFormat,
        server: ServerReport,
        view: View,
        alarms: Vec<Condition>,
    ) -> OverviewOutput {
        let lines = match format {
            InspectFormat::Report(_) => match &ui.target {
                Some(target) if matches!(ui.format, Format::Table | Format::Markdown) => {
                    OverviewLines::Joined(Arc::clone(target), view)
                }
                _ => {
                    let server = Some(server);
                    let writer =
                        overview::Writer::new(ui.report_out(), ui.format, ui.width, server, view);
                    OverviewLines::Report(writer)
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
        let ui = ui.clone();
        OverviewOutput { ui, lines, ranking, alarms, incomplete: false, found: false, errors: 0 }
    }

    fn error(&mut self, message: Message) {
        self.incomplete = true;
        self.errors += 1;
        if self.errors <= ERRORS_SHOWN {
            self.ui.tell(message);
        }
    }

    /// Ends the document, and says how the run ended. Where nothing could be read nothing is printed, except to
    /// monitoring systems.
    pub(super) fn end(self, ended: Result<(), RunError>) -> Result<Ended, Failure> {
        let OverviewOutput { ui, lines, mut ranking, alarms, incomplete, found, errors } = self;
        let figures = Figures::of(&ranking);
        let exit = if incomplete { Exit::Incomplete } else { Exit::Ok };
        let more = errors.saturating_sub(ERRORS_SHOWN);
        if more > 0 && !matches!(ended, Err(RunError::Output(_))) {
            ui.error(format!("and {more} more; --format json names every table left out"));
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
                openmetrics::write(ui.stdout(), &database, ranking, view, is_complete)
            }),
            OverviewLines::Nagios => {
                rank(&mut ranking.findings);
                let findings = &ranking.findings;
                let (state, line) = nagios::report(&figures, findings, &alarms, incomplete);
                let exit = terminal::end(ended, exit, |failed| {
                    if failed { Ok(()) } else { ui.stdout().write_all(line.as_bytes()) }
                })?;
                return Ok(Ended { exit, state: Some(state) });
            }
            OverviewLines::Joined(target, view) => terminal::end(ended, exit, |failed| {
                if found || !failed {
                    let limit = view.shown(Some(Style::Terminal(None)));
                    let overview = ranking.overview(view.sort, limit);
                    target.kept().overview = Some(overview);
                }
                Ok(())
            }),
        }?;
        Ok(exit.max(fail_on::judged(&ui, &alarms, &figures)).into())
    }
}

impl Sink<OverviewResult> for OverviewOutput {
    fn found(&mut self, result: OverviewResult) -> std::io::Result<()> {
        let relation = match result {
            OverviewResult::Begun(extent) => {
                self.ranking.begin(extent);
                return Ok(());
            }
            OverviewResult::LeftOut(relation) => {
                self.ranking.left_out.push(relation);
                return Ok(());
            }
            OverviewResult::Relation(relation) => relation,
        };
        self.found = true;
        for problem in &relation.read.problems {
            self.error(Message::error(printable(&problem.text)));
        }
        self.incomplete |= relation.read.problem_count > 0;
        self.ranking.add(&relation);
        match &mut self.lines {
            OverviewLines::Report(writer) => writer.relation(&relation),
            OverviewLines::Openmetrics(..) | OverviewLines::Nagios | OverviewLines::Joined(..) => {
                Ok(())
            }
        }
    }

    fn failed(&mut self, failed: Failed) {
        self.error(failed.message);
    }

    fn message(&mut self, message: Message) {
        self.ui.tell(message);
    }
}
