//! Findings of `check` in every format, written as they come.

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde_json::json;

use super::document::{Document, Format, Output};
use super::table::{Style, Tone, printable, statement, statement_lines};
use super::units::{counted, size};
use crate::check::code::{Code, Severity};
use crate::check::finding::{Checked, Finding, FindingReport, Rest, SCHEMA};
use crate::server::about::ServerReport;

/// Fields of `csv`, and columns of the Markdown table.
const CSV_HEAD: [&str; 11] = [
    "code", "severity", "title", "relation", "block", "item", "column", "byte", "expected",
    "found", "row",
];

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
        let output = Output::new(out, (format, width), SCHEMA, &CSV_HEAD, &document);
        CheckWriter {
            output,
            server,
            has_toasters,
            codes: BTreeSet::new(),
            repairs: BTreeSet::new(),
            relations: Vec::new(),
            any_line: false,
            sound: None,
        }
    }

    /// Writes a finding, so that whoever reads has it at once.
    pub fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        let report = FindingReport::of(finding, self.has_toasters);
        let FindingReport { code, title, expected, found, row, .. } = &report;
        let row = row.as_deref().map(|row| format!(" ({})", statement(row))).unwrap_or_default();
        let is_first = self.output.written == 0;
        let text = |document: &mut Document| {
            if !document.is_markdown() {
                let code = tone(finding.code.severity())
                    .map_or_else(|| (*code).to_owned(), |tone| document.toned(tone, code));
                let place = printable(&finding.place.to_string());
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
            let (place, expected, found) =
                (cell(&finding.place.to_string()), cell(expected), cell(found));
            let row = row.replace('|', "\\|");
            document
                .lines(&format!("| {code} | {place}{row} | {title} | {expected} | {found} |\n"));
        };
        let records = || {
            let number = |n: Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
            vec![vec![
                report.code.to_owned(),
                report.severity.to_owned(),
                report.title.to_owned(),
                report.relation.clone(),
                number(report.block.map(u64::from)),
                number(report.item.map(u64::from)),
                report.column.clone().unwrap_or_default(),
                number(report.byte),
                report.expected.clone(),
                report.found.clone(),
                report.row.clone().unwrap_or_default(),
            ]]
        };
        self.output.entry(|| &report, text, records)?;
        self.codes.insert(finding.code);
        self.repairs.extend(finding.sql.clone());
        Ok(())
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
        self.any_line = true;
    }

    /// Writes SQL for people, so that it can be pasted.
    pub fn statements(&mut self, statements: &[String]) -> io::Result<()> {
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
        let CheckWriter {
            output,
            server,
            has_toasters,
            codes,
            repairs,
            relations,
            any_line,
            sound,
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
    format!("{}: {verdict} ({})", printable(&checked.relation), looked(checked))
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
