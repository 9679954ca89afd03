//! Findings of `check` in every format, written as they come.

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde_json::json;

use super::document::{Document, Format, Output};
use super::table::{
    Grid, Style, Tone, number, printable, statement, statement_lines, text as column,
};
use super::units::{counted, size};
use crate::check::code::{Code, Severity};
use crate::check::finding::{Checked, Finding, FindingReport, Rest, SCHEMA};
use crate::server::about::ServerReport;

/// Fields of `csv`, and columns of the Markdown table.
const CSV_HEAD: [&str; 12] = [
    "code", "severity", "title", "relation", "block", "item", "column", "byte", "expected",
    "found", "row", "node",
];

/// Findings, tables and statements that a page has; the rest is counted.
const ON_PAGE: usize = 1000;

/// Writes findings, then what was looked at.
pub struct CheckWriter<W: Write> {
    output: Output<W>,
    server: Option<ServerReport>,
    /// Whether the server has pluggable TOAST.
    has_toasters: bool,
    /// Of which hints are printed at the end.
    codes: BTreeSet<Code>,
    /// Statements that repair findings and lose nothing, likewise.
    repairs: BTreeSet<String>,
    relations: Vec<Checked>,
    /// On a terminal: whether a relation has a line of its own, or an error.
    any_line: bool,
    /// On a terminal: the first sound relation with the sums of all, and their number.
    sound: Option<(Checked, u64)>,
    /// For a page: the first findings, and what is to be run.
    on_page: Vec<FindingReport>,
    statements: Vec<String>,
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
        let mut output = Output::new(out, (format, width), SCHEMA, &CSV_HEAD, &document);
        output.page.about(server.as_ref().map(|server| json!(server)).as_ref());
        CheckWriter {
            output,
            server,
            has_toasters,
            codes: BTreeSet::new(),
            repairs: BTreeSet::new(),
            relations: Vec::new(),
            any_line: false,
            sound: None,
            on_page: Vec::new(),
            statements: Vec::new(),
        }
    }

    /// Writes a finding, so that whoever reads has it at once.
    pub fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        let report = FindingReport::of(finding, self.has_toasters);
        self.codes.insert(finding.code);
        self.repairs.extend(finding.sql.clone());
        if self.output.format == Format::Html {
            self.output.written += 1;
            if self.on_page.len() < ON_PAGE {
                self.on_page.push(report);
            }
            return Ok(());
        }
        let FindingReport { code, title, expected, found, row, .. } = &report;
        let row = row.as_deref().map(|row| format!(" ({})", statement(row))).unwrap_or_default();
        let place = match &finding.node {
            Some(node) => format!("{node} {}", finding.place),
            None => finding.place.to_string(),
        };
        let is_first = self.output.written == 0;
        let text = |document: &mut Document| {
            if !document.is_markdown() {
                let code = tone(finding.code.severity())
                    .map_or_else(|| (*code).to_owned(), |tone| document.toned(tone, code));
                let place = printable(&place);
                document.line(&format!("{code}  {place}{row}: {title}"), 7);
                let told = format!("       expected {expected}; found {found}");
                document.line(&printable(&told), 7);
                return;
            }
            if is_first {
                document
                    .lines("| Code | Place | Damage | Expected | Found |\n|---|---|---|---|---|\n");
            }
            let cell = |text: &str| printable(text).replace('|', "\\|");
            let place = cell(&place);
            let expected = cell(expected);
            let found = cell(found);
            let row = row.replace('|', "\\|");
            document
                .lines(&format!("| {code} | {place}{row} | {title} | {expected} | {found} |\n"));
        };
        let records = || {
            vec![vec![
                report.code.to_owned(),
                report.severity.to_owned(),
                report.title.to_owned(),
                report.relation.clone(),
                number_of(report.block.map(u64::from)),
                number_of(report.item.map(u64::from)),
                report.column.clone().unwrap_or_default(),
                number_of(report.byte),
                report.expected.clone(),
                report.found.clone(),
                report.row.clone().unwrap_or_default(),
                report.node.clone().unwrap_or_default(),
            ]]
        };
        self.output.entry(|| &report, text, records)
    }

    /// Writes what was looked at in a relation.
    pub fn relation(&mut self, checked: &Checked) -> io::Result<()> {
        if !matches!(self.output.style(), Some(Style::Terminal(_))) {
            self.relations.push(checked.clone());
            return Ok(());
        }
        if checked.errors + checked.warnings + checked.notices == 0
            && !checked.is_incomplete
            && checked.notes.is_empty()
        {
            match &mut self.sound {
                Some((sound, number)) => {
                    sound.looked.add(&checked.looked);
                    *number += 1;
                }
                None => self.sound = Some((checked.clone(), 1)),
            }
            return Ok(());
        }
        self.any_line = true;
        self.output.text(|document| {
            document.line(&summary(checked, true), 2);
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

    /// Writes SQL for people, so that it can be pasted.
    pub fn statements(&mut self, statements: &[String]) -> io::Result<()> {
        if self.output.format == Format::Html {
            self.statements.extend_from_slice(statements);
            return Ok(());
        }
        let lines = statements.iter().flat_map(|text| statement_lines(text.trim_end_matches('\n')));
        let lines: String = lines.map(|line| format!("{line}\n")).collect();
        self.output.text(|document| match document.is_markdown() {
            _ if lines.is_empty() => {}
            true => document.lines(&format!("\n```sql\n{lines}```\n")),
            false => document.lines(&lines),
        })
    }

    /// Ends the document; must be called once.
    pub fn finish(self) -> io::Result<()> {
        if self.output.format == Format::Html {
            return self.finish_page();
        }
        let CheckWriter {
            output,
            server,
            has_toasters,
            codes,
            repairs,
            relations,
            any_line,
            sound,
            ..
        } = self;
        let sound = sound.map(|(sound, number)| match (number, any_line) {
            (1, _) => summary(&sound, true),
            (_, false) => format!(
                "{}: {} ({})",
                counted(number, "table"),
                Tone::Good.of("all sound"),
                looked(&sound)
            ),
            (_, true) => format!(
                "{}: {} ({})",
                counted(number, "other table"),
                Tone::Good.of("sound"),
                looked(&sound)
            ),
        });
        let has_findings = output.written > 0;
        let rest = Rest { server, relations };
        let text = |document: &mut Document| {
            if !document.is_markdown() {
                if let Some(sound) = &sound {
                    document.line(sound, 2);
                }
                for code in &codes {
                    let hint = code.hint(has_toasters);
                    document.line(&format!("HINT ({}):  {hint}", code.name()), 2);
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
            for checked in &rest.relations {
                document.lines(&format!("* {}\n", summary(checked, false)));
                for note in &checked.notes {
                    document.lines(&format!("  * {}\n", printable(note)));
                }
            }
        };
        // a line of `jsonl` is a finding
        let rest = (output.format != Format::Jsonl).then_some(&rest);
        output.finish(rest, text, Vec::new)
    }

    /// Writes the page: the verdict, the findings, what to do, and what was looked at.
    fn finish_page(self) -> io::Result<()> {
        let CheckWriter { output, has_toasters, codes, repairs, mut relations, any_line, .. } =
            self;
        let found = output.written;
        let shown = self.on_page;
        let statements = self.statements;
        relations.sort_by_key(|checked| {
            checked.errors + checked.warnings + checked.notices == 0 && !checked.is_incomplete
        });
        let more = |all: usize| all.checked_sub(ON_PAGE).filter(|&more| more > 0);
        let text = |document: &mut Document| {
            let is_complete = !any_line && relations.iter().all(|checked| !checked.is_incomplete);
            let tables = counted(relations.len() as u64, "table");
            let (tone, verdict) = match (found, is_complete) {
                (0, true) => (Tone::Good, format!("No damage found in {tables}.")),
                (0, false) => (
                    Tone::Warning,
                    format!("No damage found in {tables}, but not everything was checked."),
                ),
                _ if codes.iter().any(|code| code.severity() == Severity::Error) => {
                    (Tone::Bad, format!("{} in {tables}.", counted(found, "finding")))
                }
                _ => (Tone::Warning, format!("{} in {tables}.", counted(found, "finding"))),
            };
            document.heading("Verdict", 2);
            document.verdict(tone, &verdict);
            relations.iter().take(ON_PAGE).for_each(|checked| {
                document.item(&summary(checked, false));
                checked.notes.iter().for_each(|note| document.item(&format!("note: {note}")));
            });
            if let Some(more) = more(relations.len()) {
                document.line(
                    &format!("{}: see --format json.", counted(more as u64, "more table")),
                    0,
                );
            }
            if !shown.is_empty() {
                document.heading("Findings", 2);
                document.grid("Findings", &grid(&shown));
            }
            if let Some(more) = found.checked_sub(ON_PAGE as u64).filter(|&more| more > 0) {
                document
                    .line(&format!("{}: see --format jsonl.", counted(more, "more finding")), 0);
            }
            if !codes.is_empty() {
                document.heading("What to do", 2);
            }
            for code in &codes {
                document.item(&format!("{}: {}", code.name(), code.hint(has_toasters)));
            }
            repairs.iter().chain(&statements).take(ON_PAGE).for_each(|sql| document.sql(sql));
            if let Some(more) = more(repairs.len() + statements.len()) {
                document.line(
                    &format!("{}: see --format table.", counted(more as u64, "more statement")),
                    0,
                );
            }
        };
        output.finish(None::<&()>, text, Vec::new)
    }
}

/// Findings as rows.
fn grid(findings: &[FindingReport]) -> Grid {
    Grid::of(
        findings,
        &[
            column("Code", 0, |finding| finding.code.to_owned()),
            column("Severity", 0, |finding| finding.severity.to_owned()),
            column("Damage", 0, |finding| finding.title.to_owned()),
            column("Relation", 0, |finding| match &finding.node {
                Some(node) => format!("{} on {node}", finding.relation),
                None => finding.relation.clone(),
            }),
            number("Block", 0, |finding| number_of(finding.block.map(u64::from))),
            number("Item", 0, |finding| number_of(finding.item.map(u64::from))),
            column("Column", 0, |finding| finding.column.clone().unwrap_or_default()),
            number("Byte", 0, |finding| number_of(finding.byte)),
            column("Expected", 0, |finding| finding.expected.clone()),
            column("Found", 0, |finding| finding.found.clone()),
            column("Row", 0, |finding| finding.row.as_deref().map(statement).unwrap_or_default()),
        ],
    )
}

fn number_of(number: Option<u64>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
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
        verdict = tone.of(&verdict);
    }
    let mut relation = printable(&checked.relation);
    if let Some(shard) = &checked.shard {
        relation.push_str(&format!(" on {}", printable(&shard.node)));
    }
    format!("{relation}: {verdict} ({})", looked(checked))
}

fn looked(checked: &Checked) -> String {
    let looked = &checked.looked;
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
    text
}
