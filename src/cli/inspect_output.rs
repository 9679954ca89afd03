//! Where `inspect` and `value` print: values as they come, relations as they are finished, or an overview of them;
//! problems on standard error.

use std::process::ExitCode;
use std::sync::Arc;

use super::exit::{Exit, Failure};
use super::fail_on;
use super::files::{SavedText, unreadable};
use super::terminal::{self, Out, Plain, ReadingProgress, TargetRun, Ui};
use crate::findings::finding::Finding;
use crate::inspect::compare::{Earlier, RunComparison};
use crate::inspect::inspector::{ContentOptions, InspectError};
use crate::inspect::offline;
use crate::inspect::overview::figures::{Condition, Figures};
use crate::inspect::overview::rank::{Ranking, SortBy};
use crate::inspect::overview::run::OverviewResult;
use crate::inspect::overview::{Extent, RelationLine};
use crate::inspect::result::{RelationReport, Source};
use crate::inspect::saved::saved_text;
use crate::message::{Message, Severity};
use crate::offline::target::FileTarget;
use crate::report::document::OutputFormat;
use crate::report::inspect::Writer;
use crate::report::nagios::{self, State};
use crate::report::openmetrics;
use crate::report::overview::{self, View};
use crate::report::table::printable;
use crate::report::units::and_more;
use crate::report::values::ValueWriter;
use crate::server::about::ServerReport;
use crate::server::similar::similar;
use crate::server::sink::{Failed, Kind, RunError, Sink};
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
    pub(super) state: Option<State>,
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

/// The columns of `--column`, without which all are shown.
#[derive(Default)]
struct ChosenColumns {
    names: Vec<String>,
    /// Those that no relation has.
    missing: Vec<String>,
    /// Whether the user has named tables: those without any of the columns are then reported.
    of_named: bool,
    /// The first relations that have none of the columns, and how many they are.
    without: Vec<String>,
    without_count: usize,
    /// Columns of these relations.
    others: Vec<String>,
}

/// Names of columns that are kept for a hint.
const OTHERS_KEPT: usize = 1000;
/// Relations that are named because they have none of the columns; the rest is counted.
const WITHOUT_NAMED: usize = 3;

impl ChosenColumns {
    fn new(names: &[String], of_named: bool) -> ChosenColumns {
        let missing = names.to_vec();
        ChosenColumns { names: names.to_vec(), missing, of_named, ..ChosenColumns::default() }
    }

    /// Keeps what was chosen of a relation. Returns whether it has any of it.
    fn keep<C>(
        &mut self,
        relation: &str,
        columns: &mut Vec<C>,
        name: fn(&C) -> &String,
        findings: Option<&mut Vec<Finding>>,
    ) -> bool {
        if self.names.is_empty() {
            return true;
        }
        if !columns.iter().any(|column| self.names.contains(name(column))) {
            let room = OTHERS_KEPT.saturating_sub(self.others.len());
            self.others.extend(columns.iter().take(room).map(|column| name(column).clone()));
            self.without_count += 1;
            if self.without.len() < WITHOUT_NAMED {
                self.without.push(printable(relation));
            }
            return false;
        }
        self.missing.retain(|missing| !columns.iter().any(|column| name(column) == missing));
        columns.retain(|column| self.names.contains(name(column)));
        if let Some(findings) = findings {
            findings.retain(|finding| {
                finding.column.as_ref().is_some_and(|column| self.names.contains(column))
            });
        }
        true
    }

    /// Names the tables that have none of the columns, if tables are named and others have some.
    fn left_out(&self) -> Option<Message> {
        if !self.of_named || self.without.is_empty() || self.missing.len() == self.names.len() {
            return None;
        }
        let more = and_more(self.without_count, WITHOUT_NAMED);
        let tables = self.without.join(", ");
        Some(Message::notice(format!("left out, without such a column: {tables}{more}")))
    }

    /// The error if relations were read and none of them has one of these columns.
    fn missing(&self) -> Option<Message> {
        let was_read = self.missing.len() < self.names.len() || !self.others.is_empty();
        if self.missing.is_empty() || !was_read {
            return None;
        }
        let names: Vec<String> = self.missing.iter().map(|name| format!("\"{name}\"")).collect();
        let text = format!("no table that was read has a column {}", names.join(" or "));
        let near = self.missing.iter().flat_map(|name| similar(name, &self.others)).next();
        let message = Message::error(text);
        Some(match near {
            Some(near) => message.hint(format!("Perhaps you meant the column {near}.")),
            None if self.missing.iter().any(|name| name.contains(' ')) => {
                message.hint("-c names a column; toastctl runs no SQL.")
            }
            None => message.hint("toastctl inspect TABLE lists the columns."),
        })
    }
}

/// Relations that this user may not read: they are reported together.
#[derive(Default)]
struct Denials(Vec<Message>);

impl Denials {
    /// Keeps the message if it is about such a relation; otherwise it is returned.
    fn take(&mut self, failed: Failed) -> Option<Message> {
        if failed.kind != Kind::Denied {
            return Some(failed.message);
        }
        self.0.push(failed.message);
        None
    }

    /// All of them as one message.
    fn message(self) -> Option<Message> {
        let mut denied = self.0.into_iter();
        let mut message = denied.next()?;
        for other in denied {
            message.text = "permission denied".to_owned();
            message.at.relations.extend(other.at.relations);
        }
        message.at.relations.sort_unstable();
        Some(message)
    }
}

/// The reports of relations in one run.
pub(super) struct InspectOutput {
    ui: Ui,
    denials: Denials,
    /// `None` if only values are printed.
    writer: Option<Writer<Plain<Out>>>,
    /// Whether something could not be read.
    incomplete: bool,
    /// Whether a relation is printed, or its values.
    found: bool,
    columns: ChosenColumns,
}

impl InspectOutput {
    /// For a run that prints values alone.
    pub(super) fn of_values(ui: &Ui) -> InspectOutput {
        let columns = ChosenColumns::default();
        let denials = Denials::default();
        InspectOutput {
            ui: ui.clone(),
            denials,
            writer: None,
            incomplete: false,
            found: false,
            columns,
        }
    }

    /// Of these columns alone. `of_named`: whether tables are named.
    pub(super) fn of_columns(self, names: &[String], of_named: bool) -> InspectOutput {
        let columns = ChosenColumns::new(names, of_named);
        InspectOutput { columns, ..self }
    }

    pub(super) fn new(ui: &Ui, server: Option<ServerReport>) -> InspectOutput {
        let writer = Writer::new(ui.paged_out(), ui.format, ui.width, server);
        InspectOutput { writer: Some(writer), ..InspectOutput::of_values(ui) }
    }

    /// Prints what a relation file holds.
    pub(super) fn read_file(
        mut self,
        target: &FileTarget<'_>,
        contents: Option<&ContentOptions>,
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
        mut self,
        ended: Result<(), RunError>,
        values: Option<ValueWriter<Plain<Out>>>,
    ) -> Result<Exit, Failure> {
        if let Some(left_out) = self.columns.left_out() {
            self.ui.tell(left_out);
        }
        if let Some(missing) = self.columns.missing() {
            self.incomplete = true;
            self.ui.tell(missing);
        }
        let exit = if self.incomplete { Exit::Incomplete } else { Exit::Ok };
        if let Some(message) = self.denials.message() {
            self.ui.tell(message);
        }
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
    fn found(&mut self, mut relation: RelationReport) -> std::io::Result<()> {
        let findings = relation.findings.as_mut().map(|found| &mut found.findings);
        let name = &relation.read.name.relation;
        if !self.columns.keep(name, &mut relation.columns, |column| &column.column, findings) {
            return Ok(());
        }
        for finding in relation.findings.iter_mut().flat_map(|found| &mut found.findings) {
            self.ui.lead_line_here(&mut finding.command);
        }
        self.found = true;
        self.incomplete |= relation.read.problem_count > 0;
        for problem in relation.read.problems.iter().take(PROBLEMS_SHOWN as usize) {
            self.ui.error(printable(&problem.text));
        }
        let more = relation.read.problem_count.saturating_sub(PROBLEMS_SHOWN);
        if more > 0 {
            let name = &relation.read.name.relation;
            let mut message =
                Message::error(format!("and {more} more: toastctl check")).about(name);
            if matches!(relation.read.source, Source::RelationFile | Source::PageinspectOutput) {
                message = message.hint(
                    "If most rows are concerned, --columns does not describe this table: it names all columns in their order, also dropped ones.",
                );
            }
            self.ui.tell(message);
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
        if let Some(message) = self.denials.take(failed) {
            self.ui.tell(message);
        }
    }

    fn message(&mut self, message: Message) {
        self.ui.tell(message);
    }
}

/// Prints the overview, or what monitoring systems read of it.
pub(super) struct OverviewOutput {
    ui: Ui,
    denials: Denials,
    lines: OverviewLines,
    ranking: Ranking,
    /// What raises an alarm.
    alarms: Vec<Condition>,
    /// Whether something could not be read.
    incomplete: bool,
    /// Whether a relation was read.
    found: bool,
    errors: u64,
    columns: ChosenColumns,
    /// The run that this one is compared with.
    earlier: Option<Arc<Earlier>>,
}

enum OverviewLines {
    Report(overview::Writer<Plain<Out>>),
    /// Metrics of this database.
    Openmetrics(String, View),
    Nagios,
    /// Printed with those of other databases: in which order, and how many tables and columns are named.
    Joined(Arc<TargetRun>, SortBy, usize),
}

impl OverviewOutput {
    pub(super) fn new(
        ui: &Ui,
        format: OutputFormat,
        server: ServerReport,
        view: View,
        alarms: Vec<Condition>,
    ) -> OverviewOutput {
        let lines = match format {
            OutputFormat::Report(asked) => match &ui.target {
                Some(target) if ui.format.style(None).is_some() => OverviewLines::Joined(
                    Arc::clone(target),
                    view.sort,
                    view.shown(asked.style(None)),
                ),
                _ => {
                    let server = Some(server);
                    let writer =
                        overview::Writer::new(ui.paged_out(), ui.format, ui.width, server, view);
                    OverviewLines::Report(writer)
                }
            },
            OutputFormat::Openmetrics => OverviewLines::Openmetrics(server.database, view),
            OutputFormat::Nagios => OverviewLines::Nagios,
        };
        let alarms = match lines {
            OverviewLines::Nagios if alarms.is_empty() => nagios::usual(),
            _ => alarms,
        };
        let ranking = Ranking::new(Extent::default());
        let ui = ui.clone();
        let columns = ChosenColumns::default();
        let denials = Denials::default();
        let errors = 0;
        OverviewOutput {
            ui,
            denials,
            lines,
            ranking,
            alarms,
            incomplete: false,
            found: false,
            errors,
            columns,
            earlier: None,
        }
    }

    /// The same with what has changed since an earlier run.
    pub(super) fn compared_with(self, earlier: Option<Arc<Earlier>>) -> OverviewOutput {
        OverviewOutput { earlier, ..self }
    }

    /// Of the tables with these names and patterns, without those excluded.
    pub(super) fn of_tables(mut self, names: &[String], excluded: &[String]) -> OverviewOutput {
        let excluded = excluded.iter().map(|name| format!("!{name}"));
        self.ranking.selected = names.iter().cloned().chain(excluded).collect();
        self.ranking.selected.sort_unstable();
        self
    }

    /// Of these columns alone. `of_named`: whether tables are named.
    pub(super) fn of_columns(mut self, names: &[String], of_named: bool) -> OverviewOutput {
        self.ranking.only_columns = names.to_vec();
        self.columns = ChosenColumns::new(names, of_named);
        self
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
    pub(super) fn end(mut self, ended: Result<(), RunError>) -> Result<Ended, Failure> {
        if let Some(left_out) = self.columns.left_out() {
            self.ui.tell(left_out);
        }
        if let Some(missing) = self.columns.missing() {
            self.error(missing);
        }
        self.ranking.judge(|command| self.ui.lead_line_here(command));
        let earlier = self.earlier.as_deref();
        let comparison = earlier.map(|run| RunComparison::new(run, &self.ranking));
        let OverviewOutput {
            ui, denials, lines, ranking, alarms, incomplete, found, errors, ..
        } = self;
        if let Some(message) = denials.message() {
            ui.tell(message);
        }
        let mut figures = Figures::of(&ranking);
        if let Some(comparison) = &comparison {
            figures = figures.since(comparison);
        }
        let messages = fail_on::judged(&alarms, &figures, &ranking.findings, comparison.as_ref());
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
                let is_known = !ranking.left_out.is_empty();
                let nothing = !found && (failed || incomplete && !is_known);
                if nothing { Ok(()) } else { writer.finish(ranking, comparison.as_ref()) }
            }),
            OverviewLines::Openmetrics(database, view) => terminal::end(ended, exit, |failed| {
                let is_complete = !(failed || incomplete) && figures.are_complete();
                if failed && !found {
                    return Ok(());
                }
                let place = ui.target.as_ref().map(|target| target.name.clone());
                let families = openmetrics::families(&database, place, ranking, view, is_complete);
                ui.write_metrics(families)
            }),
            OverviewLines::Nagios => {
                let findings = &ranking.findings;
                let service = nagios::report(&figures, findings, &alarms, incomplete);
                let state = Some(service.state);
                let exit = terminal::end(ended, exit, |failed| {
                    if failed { Ok(()) } else { ui.write_service(service) }
                })?;
                return Ok(Ended { exit, state });
            }
            OverviewLines::Joined(target, sort, limit) => terminal::end(ended, exit, |failed| {
                if found || !failed {
                    let mut kept = target.kept.lock();
                    kept.overview = Some(ranking.overview(sort, limit));
                    kept.comparison = comparison;
                }
                Ok(())
            }),
        }?;
        Ok(exit.max(fail_on::tell(&ui, messages)).into())
    }
}

impl Sink<OverviewResult> for OverviewOutput {
    fn found(&mut self, result: OverviewResult) -> std::io::Result<()> {
        let mut relation = match result {
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
        let RelationLine { read, columns, findings, .. } = &mut *relation;
        let name = &read.name.relation;
        if !self.columns.keep(name, columns, |column| &column.column, findings.as_mut()) {
            return Ok(());
        }
        for finding in relation.findings.iter_mut().flatten() {
            self.ui.lead_line_here(&mut finding.command);
        }
        // without pages, there may be others
        let is_known = relation.read.source != Source::Functions;
        let found = relation.findings.as_ref().map(|found| found.len() as u64);
        relation.figures.findings = found.filter(|&found| found > 0 || is_known);
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
        self.incomplete = true;
        if let Some(message) = self.denials.take(failed) {
            self.error(message);
        }
    }

    fn message(&mut self, message: Message) {
        self.ui.tell(message);
    }
}
