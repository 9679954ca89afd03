//! Findings of `check` in every format, written as they come.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use serde_json::json;

use super::document::{Document, Format, Output};
use super::table::{
    Grid, Style, Tone, number, printable, statement, statement_lines, text as column,
};
use super::units::{counted, optional_number, size};
use crate::check::code::{Code, Severity};
use crate::check::finding::{Checked, Finding, FindingReport, Rest, SCHEMA};
use crate::command::is_typed_as_shown;
use crate::server::about::ServerReport;

/// Fields of `csv`, and columns of the Markdown table.
const CSV_HEAD: [&str; 12] = [
    "code", "severity", "title", "relation", "block", "item", "column", "byte", "expected",
    "found", "row", "node",
];

/// What comes before any change.
const COPY_FIRST: &str = "Before you change anything, copy the files of the table and of its TOAST relation, with the server stopped \
    (toastctl help damage).";

/// What no option of `check` looks at.
const NOT_CHECKED: &str = "Indexes of tables were not checked: pg_amcheck does that.";

/// Findings, tables and statements that a page has; the rest is counted.
const ON_PAGE: usize = 1000;
/// Tables that a command names, and columns that a line does; with more tables a command has a placeholder.
const MOST_NAMED: usize = 3;
/// Errors of a relation from which on they are also counted by column.
const SEVERAL: u64 = 5;

/// Writes findings, then what was looked at.
pub struct CheckWriter<W: Write> {
    output: Output<W>,
    server: Option<ServerReport>,
    /// Whether the server has pluggable TOAST.
    has_toasters: bool,
    /// The kinds that were found, with the hints that are printed at the end.
    codes: BTreeSet<(Code, &'static str)>,
    /// Statements that repair findings and lose nothing, likewise.
    repairs: BTreeSet<String>,
    relations: Vec<Checked>,
    /// On a terminal: errors by relation and column, of relations that are not checked yet.
    by_column: BTreeMap<String, BTreeMap<String, u64>>,
    /// On a terminal: whether a relation has a line of its own, or an error.
    any_line: bool,
    /// On a terminal: the first sound relation with the sums of all, their number, and how many of them are system catalogs.
    sound: Option<(Checked, u64)>,
    sound_catalogs: u64,
    /// Tables that were checked, and of how many where the run ended before all of them were.
    checked: u64,
    ended_early_of: Option<u64>,
    /// For a page: the first findings, and what is to be run.
    on_page: Vec<FindingReport>,
    statements: Vec<String>,
    /// Tables with values that `--salvage` would save; `None` where it was given, and for files.
    to_save: Option<BTreeSet<String>>,
    /// The connection options of the command that does.
    place: String,
}

impl<W: Write> CheckWriter<W> {
    /// Nothing is written yet.
    pub fn new(
        out: W,
        format: Format,
        width: Option<usize>,
        server: Option<ServerReport>,
    ) -> CheckWriter<W> {
        let has_toasters = server.as_ref().is_some_and(|server| server.has_toasters);
        let document = json!({ "schema": SCHEMA, "findings": [] });
        let mut output = Output::new(out, format, width, SCHEMA, &CSV_HEAD, &document);
        output.page.about(server.as_ref().map(|server| json!(server)).as_ref());
        CheckWriter {
            output,
            server,
            has_toasters,
            codes: BTreeSet::new(),
            repairs: BTreeSet::new(),
            relations: Vec::new(),
            by_column: BTreeMap::new(),
            any_line: false,
            sound: None,
            sound_catalogs: 0,
            checked: 0,
            ended_early_of: None,
            on_page: Vec::new(),
            statements: Vec::new(),
            to_save: None,
            place: String::new(),
        }
    }

    fn is_for_terminal(&self) -> bool {
        matches!(self.output.style(), Some(Style::Terminal(_)))
    }

    /// Ends the report with the command that saves damaged values, with these connection options.
    pub fn names_salvage(&mut self, place: String) {
        self.to_save = Some(BTreeSet::new());
        self.place = place;
    }

    /// The command that saves damaged values, if there are any.
    fn salvage(&self) -> Option<String> {
        let tables: Vec<&str> = self.to_save.iter().flatten().map(String::as_str).collect();
        let are_plain = tables.iter().all(|name| is_typed_as_shown(name));
        let tables = match tables.len() {
            0 => return None,
            1..=MOST_NAMED if are_plain => tables.join(" "),
            _ => "TABLE".to_owned(),
        };
        Some(format!("toastctl check {tables} --salvage DIR {}", self.place).trim_end().to_owned())
    }

    /// Writes a finding, so that whoever reads has it at once.
    pub fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        let report = FindingReport::of(finding, self.has_toasters);
        self.codes.insert((finding.code, report.hint));
        self.repairs.extend(finding.sql.clone());
        if finding.code.is_saved()
            && let Some(tables) = &mut self.to_save
        {
            tables.insert(finding.place.source.clone());
        }
        if self.output.format == Format::Html {
            self.output.written += 1;
            if self.on_page.len() < ON_PAGE {
                self.on_page.push(report);
            }
            return Ok(());
        }
        if self.is_for_terminal()
            && finding.code.severity() == Severity::Error
            && let Some(column) = &finding.place.column
        {
            let columns = self.by_column.entry(finding.place.source.clone()).or_default();
            *columns.entry(column.clone()).or_default() += 1;
        }
        let is_first = self.output.written == 0;
        let text = FindingText { finding, report: &report };
        self.output.entry(
            || &report,
            |document| {
                if document.is_markdown() {
                    text.row(is_first, document);
                } else {
                    text.lines(document);
                }
            },
            || vec![csv_record(&report)],
        )
    }

    /// Writes what was looked at in a relation.
    pub fn relation(&mut self, checked: &Checked) -> io::Result<()> {
        self.checked += 1;
        let is_page = self.output.format == Format::Html;
        if !self.is_for_terminal() && !is_page {
            self.relations.push(checked.clone());
            return Ok(());
        }
        if checked.errors + checked.warnings + checked.notices == 0
            && !checked.is_incomplete
            && checked.notes.is_empty()
        {
            if checked.relation.starts_with("pg_catalog.") {
                self.sound_catalogs += 1;
            }
            match &mut self.sound {
                Some((sound, number)) => {
                    sound.looked.add(&checked.looked);
                    *number += 1;
                }
                None => self.sound = Some((checked.clone(), 1)),
            }
            return Ok(());
        }
        if is_page {
            self.relations.push(checked.clone());
            return Ok(());
        }
        self.any_line = true;
        let columns = self.by_column.remove(&checked.relation).unwrap_or_default();
        self.output.text(|document| {
            document.line(&summary(checked, true), 2);
            if checked.errors >= SEVERAL && !columns.is_empty() {
                document.line(&format!("  {}", errors_by_column(columns)), 4);
            }
            for note in &checked.notes {
                document.line(&format!("  note: {}", printable(note)), 4);
            }
        })
    }

    /// Takes note of a relation that could not be checked: the sound ones are then not all.
    pub fn unchecked(&mut self) {
        self.output.page.incomplete = true;
        self.any_line = true;
    }

    /// Takes note that the run ended before all these tables were checked.
    pub fn ended_early(&mut self, tables: usize) {
        self.unchecked();
        self.ended_early_of = Some(tables as u64);
    }

    /// How many tables were not checked; nothing if the run did not end early.
    fn not_checked(&self) -> Option<String> {
        let all = self.ended_early_of?;
        let left = all.saturating_sub(self.checked);
        (left > 0).then(|| format!("not checked: {left} of {}", counted(all, "table")))
    }

    /// Writes SQL for people, so that it can be pasted.
    pub fn statements(&mut self, statements: &[String]) -> io::Result<()> {
        if self.output.format == Format::Html {
            self.statements.extend_from_slice(statements);
            return Ok(());
        }
        let lines = statements.iter().flat_map(|text| statement_lines(text.trim_end_matches('\n')));
        let lines: String = lines.map(|line| format!("{line}\n")).collect();
        self.output.text(|document| {
            if lines.is_empty() {
                return;
            }
            if document.is_markdown() {
                document.lines(&format!("\n```sql\n{lines}```\n"));
            } else {
                document.lines(&lines);
            }
        })
    }

    /// The sound tables in one line. `are_others`: whether another one has a line.
    fn sound_line(&self, are_others: bool) -> Option<String> {
        let (sound, number) = self.sound.as_ref()?;
        let catalogs = match self.sound_catalogs {
            0 => String::new(),
            catalogs => format!(" ({} of the system)", counted(catalogs, "catalog")),
        };
        let (tables, verdict) = match (number, are_others) {
            (1, _) => return Some(summary(sound, true)),
            (_, false) => ("table", "all sound"),
            (_, true) => ("other table", "sound"),
        };
        let tables = counted(*number, tables);
        let verdict = Tone::Good.styled(verdict);
        Some(format!("{tables}{catalogs}: {verdict} ({})", looked(sound)))
    }

    /// Ends the document; must be called once.
    pub fn finish(self) -> io::Result<()> {
        if self.output.format == Format::Html {
            return self.finish_page();
        }
        let salvage = self.salvage();
        let not_checked = self.not_checked();
        let sound = self.sound_line(self.any_line);
        let CheckWriter { output, server, codes, repairs, relations, .. } = self;
        let has_findings = output.written > 0;
        let rest = Rest { server, relations };
        // a line of `jsonl` is a finding
        let fields = (output.format != Format::Jsonl).then_some(&rest);
        output.finish(
            fields,
            |document| {
                if !document.is_markdown() {
                    if let Some(left) = &not_checked {
                        document.line(&document.toned(Tone::Warning, left), 2);
                    }
                    if let Some(sound) = &sound {
                        document.line(sound, 2);
                    }
                    if rest.server.is_some() && (sound.is_some() || has_findings) {
                        document.line(NOT_CHECKED, 2);
                    }
                    for (names, hint) in hints(&codes) {
                        document.line(&format!("HINT ({names}):  {hint}"), 2);
                    }
                    if salvage.is_some() || !repairs.is_empty() {
                        document.line(COPY_FIRST, 2);
                    }
                    if let Some(command) = &salvage {
                        document.line(&format!("  {command}"), 4);
                    }
                    for sql in &repairs {
                        document.lines(&format!("  {}\n", statement(sql)));
                    }
                    return;
                }
                if has_findings {
                    document.gap();
                }
                if !repairs.is_empty() {
                    let repairs = repairs.iter().map(|sql| format!("{}\n", statement(sql)));
                    document.lines(&format!("```sql\n{}```\n\n", repairs.collect::<String>()));
                }
                if let Some(left) = &not_checked {
                    document.item(left);
                }
                for checked in &rest.relations {
                    document.lines(&format!("* {}\n", summary(checked, false)));
                    for note in &checked.notes {
                        document.lines(&format!("  * {}\n", printable(note)));
                    }
                }
            },
            Vec::new,
        )
    }

    /// Writes the page: the verdict, the findings, what to do, and what was looked at.
    fn finish_page(self) -> io::Result<()> {
        let salvage = self.salvage();
        let not_checked = self.not_checked();
        let sound = self.sound_line(!self.relations.is_empty());
        let CheckWriter { output, codes, repairs, mut relations, any_line, checked, .. } = self;
        let found = output.written;
        let shown = self.on_page;
        let statements = self.statements;
        relations.sort_by_key(|checked| {
            checked.errors + checked.warnings + checked.notices == 0 && !checked.is_incomplete
        });
        output.finish(
            None::<&()>,
            |document| {
                let is_complete =
                    !any_line && relations.iter().all(|checked| !checked.is_incomplete);
                let tables = counted(checked, "table");
                let (tone, verdict) = match (found, is_complete) {
                    (0, true) => (Tone::Good, format!("No damage found in {tables}.")),
                    (0, false) => (
                        Tone::Warning,
                        format!("No damage found in {tables}, but not everything was checked."),
                    ),
                    _ if codes.iter().any(|(code, _)| code.severity() == Severity::Error) => {
                        (Tone::Bad, format!("{} in {tables}.", counted(found, "finding")))
                    }
                    _ => (Tone::Warning, format!("{} in {tables}.", counted(found, "finding"))),
                };
                document.heading("Verdict", 2);
                document.verdict(tone, &verdict);
                if let Some(left) = &not_checked {
                    document.item(left);
                }
                relations.iter().take(ON_PAGE).for_each(|checked| {
                    document.item(&summary(checked, false));
                    checked.notes.iter().for_each(|note| document.item(&format!("note: {note}")));
                });
                not_shown(relations.len() as u64, "more table", "json", document);
                sound.iter().for_each(|sound| document.item(sound));
                if !shown.is_empty() {
                    document.heading("Findings", 2);
                    document.grid("Findings", &grid(&shown));
                }
                not_shown(found, "more finding", "jsonl", document);
                if !codes.is_empty() {
                    document.heading("What to do", 2);
                }
                for (names, hint) in hints(&codes) {
                    document.item(&format!("{names}: {hint}"));
                }
                if let Some(command) = &salvage {
                    document.item(command);
                }
                repairs.iter().chain(&statements).take(ON_PAGE).for_each(|sql| document.sql(sql));
                let commands = repairs.len() + statements.len();
                not_shown(commands as u64, "more statement", "table", document);
            },
            Vec::new,
        )
    }
}

/// The hints in the order of their codes, each once, with the names of its codes.
fn hints(codes: &BTreeSet<(Code, &'static str)>) -> Vec<(String, &'static str)> {
    let mut hints: Vec<(String, &'static str)> = Vec::new();
    for (code, hint) in codes {
        match hints.iter_mut().find(|(_, known)| known == hint) {
            Some((names, _)) => names.push_str(&format!(", {}", code.name())),
            None => hints.push((code.name().to_owned(), hint)),
        }
    }
    hints
}

/// Counts what a page has no room for, and names the format that has it.
fn not_shown(all: u64, noun: &str, format: &str, document: &mut Document) {
    let more = all.saturating_sub(ON_PAGE as u64);
    if more > 0 {
        document.line(&format!("{}: see --format {format}.", counted(more, noun)), 0);
    }
}

/// A finding as text for people.
struct FindingText<'a> {
    finding: &'a Finding,
    report: &'a FindingReport,
}

impl FindingText<'_> {
    fn place(&self) -> String {
        let place = &self.finding.place;
        let place = match &self.finding.node {
            Some(node) => format!("{node} {place}"),
            None => place.to_string(),
        };
        printable(&place)
    }

    /// The row that the finding is about, after a space.
    fn table_row(&self) -> String {
        let row = self.report.row.as_deref();
        row.map(|row| format!(" ({})", statement(row))).unwrap_or_default()
    }

    fn lines(&self, document: &mut Document) {
        let FindingReport { code, title, expected, found, .. } = self.report;
        let code = match tone(self.finding.code.severity()) {
            Some(tone) => document.toned(tone, code),
            None => (*code).to_owned(),
        };
        document.line(&format!("{code}  {}{}: {title}", self.place(), self.table_row()), 7);
        let told = format!("       expected {expected}; found {found}");
        document.line(&printable(&told), 7);
    }

    /// A row of the Markdown table, whose heads are before the first one.
    fn row(&self, is_first: bool, document: &mut Document) {
        if is_first {
            document.lines("| Code | Place | Damage | Expected | Found |\n|---|---|---|---|---|\n");
        }
        let FindingReport { code, title, expected, found, .. } = self.report;
        let place = markdown_cell(&format!("{}{}", self.place(), self.table_row()));
        let expected = markdown_cell(&printable(expected));
        let found = markdown_cell(&printable(found));
        document.lines(&format!("| {code} | {place} | {title} | {expected} | {found} |\n"));
    }
}

fn markdown_cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn csv_record(report: &FindingReport) -> Vec<String> {
    vec![
        report.code.to_owned(),
        report.severity.to_owned(),
        report.title.to_owned(),
        report.relation.clone(),
        optional_number(report.block.map(u64::from)),
        optional_number(report.item.map(u64::from)),
        report.column.clone().unwrap_or_default(),
        optional_number(report.byte),
        report.expected.clone(),
        report.found.clone(),
        report.row.clone().unwrap_or_default(),
        report.node.clone().unwrap_or_default(),
    ]
}

/// The findings of a page.
fn grid(findings: &[FindingReport]) -> Grid {
    Grid::from_rows(
        findings,
        &[
            column("Code", 0, |finding| finding.code.to_owned()),
            column("Severity", 0, |finding| finding.severity.to_owned()),
            column("Damage", 0, |finding| finding.title.to_owned()),
            column("Relation", 0, |finding| match &finding.node {
                Some(node) => format!("{} on {node}", finding.relation),
                None => finding.relation.clone(),
            }),
            number("Block", 0, |finding| optional_number(finding.block.map(u64::from))),
            number("Item", 0, |finding| optional_number(finding.item.map(u64::from))),
            column("Column", 0, |finding| finding.column.clone().unwrap_or_default()),
            number("Byte", 0, |finding| optional_number(finding.byte)),
            column("Expected", 0, |finding| finding.expected.clone()),
            column("Found", 0, |finding| finding.found.clone()),
            column("Row", 0, |finding| finding.row.as_deref().map(statement).unwrap_or_default()),
        ],
    )
}

/// How a terminal shows a severity.
fn tone(severity: Severity) -> Option<Tone> {
    match severity {
        Severity::Error => Some(Tone::Bad),
        Severity::Warning => Some(Tone::Warning),
        Severity::Notice => None,
    }
}

/// The verdict on a relation, with what was looked at.
fn summary(checked: &Checked, on_terminal: bool) -> String {
    let mut verdict = match (checked.errors, checked.warnings, !checked.is_incomplete) {
        (0, 0, true) => "sound".to_owned(),
        (0, 0, false) => "nothing found, but not everything was checked".to_owned(),
        (errors, 0, _) => counted(errors, "error"),
        (0, warnings, _) => counted(warnings, "warning"),
        (errors, warnings, _) => {
            format!("{}, {}", counted(errors, "error"), counted(warnings, "warning"))
        }
    };
    if checked.notices > 0 {
        verdict.push_str(&format!(", {}", counted(checked.notices, "notice")));
    }
    let tone = match (checked.errors, checked.warnings, checked.is_incomplete) {
        (0, 0, false) => Tone::Good,
        (0, ..) => Tone::Warning,
        _ => Tone::Bad,
    };
    if on_terminal {
        verdict = tone.styled(&verdict);
    }
    let mut relation = printable(&checked.relation);
    if let Some(shard) = &checked.shard {
        relation.push_str(&format!(" on {}", printable(&shard.node)));
    }
    format!("{relation}: {verdict} ({})", looked(checked))
}

/// How many errors the values of each column have, the most first.
fn errors_by_column(columns: BTreeMap<String, u64>) -> String {
    let mut columns: Vec<(String, u64)> = columns.into_iter().collect();
    columns.sort_by_key(|(_, errors)| Reverse(*errors));
    let more = columns.len().saturating_sub(MOST_NAMED);
    let mut parts: Vec<String> = columns
        .iter()
        .take(MOST_NAMED)
        .map(|(column, errors)| format!("{errors} in {}", printable(column)))
        .collect();
    if more > 0 {
        parts.push(format!("others in {}", counted(more as u64, "column")));
    }
    format!("errors by column: {}", parts.join(", "))
}

fn looked(checked: &Checked) -> String {
    let Checked { looked, contents_checked, .. } = checked;
    let mut text = format!(
        "{}, {} out of line in {}",
        counted(looked.rows + looked.undecided, "row"),
        counted(looked.values, "value"),
        counted(looked.chunks, "chunk"),
    );
    if looked.decompressed > 0 {
        let values = counted(looked.decompressed, "value");
        text.push_str(&format!("; {values} decompressed to {}", size(looked.raw_bytes)));
    }
    text.push_str(if *contents_checked {
        "; contents checked"
    } else {
        "; contents not checked: --deep"
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_of_several_codes_is_printed_once() {
        let found = [Code::Jsonb, Code::NoChunks, Code::ChunkMissing];
        let codes = found.map(|code| (code, code.hint(false))).into_iter().collect();
        let names: Vec<String> = hints(&codes).into_iter().map(|(names, _)| names).collect();
        assert_eq!(names, ["TC050, TC051", "TC070"]);
    }
}
