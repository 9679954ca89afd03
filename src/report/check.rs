//! Findings of `inspect --check` in every format, written as they come.

use std::collections::BTreeSet;
use std::io::{self, Write};

use super::format::{Format, json_line};
use super::table::{printable, wrapped};
use super::units::{counted, size};
use crate::check::code::Code;
use crate::check::finding::{Checked, Document, Finding, FindingReport, SCHEMA};
use crate::server::about::ServerReport;

/// Fields of `csv`, and columns of the Markdown table.
const CSV_HEAD: [&str; 10] = [
    "code", "severity", "title", "relation", "block", "item", "column", "byte", "expected", "found",
];

/// Writes findings, then what was looked at.
pub struct CheckWriter<W: Write> {
    out: W,
    format: Format,
    /// The terminal's, for text only.
    width: Option<usize>,
    server: Option<ServerReport>,
    /// Whether the server has pluggable TOAST.
    has_toasters: bool,
    findings: u64,
    /// Of which hints are printed at the end.
    codes: BTreeSet<Code>,
    /// Statements that repair findings and lose nothing, likewise.
    repairs: BTreeSet<String>,
    relations: Vec<Checked>,
    begun: bool,
}

impl<W: Write> CheckWriter<W> {
    /// Nothing is written yet.
    pub fn new(
        out: W,
        format: Format,
        width: Option<usize>,
        server: Option<ServerReport>,
        has_toasters: bool,
    ) -> CheckWriter<W> {
        CheckWriter {
            out,
            format,
            width,
            server,
            has_toasters,
            findings: 0,
            codes: BTreeSet::new(),
            repairs: BTreeSet::new(),
            relations: Vec::new(),
            begun: false,
        }
    }

    fn begin(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        match self.format {
            Format::Csv => self.record(&CSV_HEAD.map(str::to_owned)),
            Format::Json => {
                write!(self.out, "{{\n  \"schema\": \"{SCHEMA}\",\n  \"findings\": [")
            }
            Format::Table | Format::Markdown | Format::Jsonl => Ok(()),
        }
    }

    fn record(&mut self, fields: &[String]) -> io::Result<()> {
        let mut csv =
            csv::WriterBuilder::new().terminator(csv::Terminator::Any(b'\n')).from_writer(vec![]);
        csv.write_record(fields)?;
        let line = csv.into_inner().map_err(|error| io::Error::other(error.to_string()))?;
        self.out.write_all(&line)
    }

    /// Writes a finding, so that whoever reads has it at once.
    pub fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        self.begin()?;
        let report = FindingReport::of(finding, self.has_toasters);
        match self.format {
            Format::Table => {
                let width = self.width;
                let line = |text: &str| wrapped(&printable(text), width, 7);
                let FindingReport { code, title, expected, found, .. } = &report;
                writeln!(self.out, "{}", line(&format!("{code}  {}: {title}", finding.place)))?;
                let told = format!("       expected {expected}; found {found}");
                writeln!(self.out, "{}", line(&told))?;
            }
            Format::Markdown => {
                if self.findings == 0 {
                    writeln!(self.out, "| Code | Place | Damage | Expected | Found |")?;
                    writeln!(self.out, "|---|---|---|---|---|")?;
                }
                let cell = |text: &str| printable(text).replace('|', "\\|");
                writeln!(
                    self.out,
                    "| {} | {} | {} | {} | {} |",
                    report.code,
                    cell(&finding.place.to_string()),
                    report.title,
                    cell(&report.expected),
                    cell(&report.found),
                )?;
            }
            Format::Json => {
                let comma = if self.findings > 0 { "," } else { "" };
                let indented = serde_json::to_string_pretty(&report)?.replace('\n', "\n    ");
                write!(self.out, "{comma}\n    {indented}")?;
            }
            Format::Jsonl => json_line(SCHEMA, &report, &mut self.out)?,
            Format::Csv => {
                let number = |n: Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
                let FindingReport { code, severity, title, .. } = &report;
                self.record(&[
                    (*code).to_owned(),
                    (*severity).to_owned(),
                    (*title).to_owned(),
                    report.relation,
                    number(report.block.map(u64::from)),
                    number(report.item.map(u64::from)),
                    report.column.unwrap_or_default(),
                    number(report.byte),
                    report.expected,
                    report.found,
                ])?;
            }
        }
        self.findings += 1;
        self.codes.insert(finding.code);
        self.repairs.extend(finding.sql.clone());
        self.out.flush()
    }

    /// Writes what was looked at in a relation.
    pub fn relation(&mut self, checked: &Checked) -> io::Result<()> {
        self.begin()?;
        if self.format == Format::Table {
            let text = printable(&summary(checked));
            writeln!(self.out, "{}", wrapped(&text, self.width, 2))?;
            for note in &checked.notes {
                let text = format!("  note: {}", printable(note));
                writeln!(self.out, "{}", wrapped(&text, self.width, 4))?;
            }
            self.out.flush()?;
        }
        if matches!(self.format, Format::Json | Format::Markdown) {
            self.relations.push(checked.clone());
        }
        Ok(())
    }

    /// Writes SQL for people, as it is.
    pub fn statements(&mut self, statements: &[String]) -> io::Result<()> {
        let fence = match self.format {
            Format::Table => ("", ""),
            Format::Markdown => ("\n```sql\n", "```\n"),
            Format::Json | Format::Jsonl | Format::Csv => return Ok(()),
        };
        if statements.is_empty() {
            return Ok(());
        }
        write!(self.out, "{}", fence.0)?;
        for statement in statements {
            // line ends are our own
            for line in statement.lines() {
                writeln!(self.out, "{}", printable(line))?;
            }
        }
        write!(self.out, "{}", fence.1)
    }

    /// Ends the document; must be called once.
    pub fn finish(mut self) -> io::Result<()> {
        self.begin()?;
        match self.format {
            Format::Table => {
                for code in &self.codes {
                    let hint = code.hint(self.has_toasters);
                    let text = format!("HINT ({}):  {hint}", code.name());
                    writeln!(self.out, "{}", wrapped(&text, self.width, 2))?;
                }
                for sql in &self.repairs {
                    writeln!(self.out, "  {}", printable(sql))?;
                }
            }
            Format::Markdown => {
                if self.findings > 0 {
                    writeln!(self.out)?;
                }
                if !self.repairs.is_empty() {
                    writeln!(self.out, "```sql")?;
                    for sql in &self.repairs {
                        writeln!(self.out, "{}", printable(sql))?;
                    }
                    writeln!(self.out, "```\n")?;
                }
                for report in &self.relations {
                    writeln!(self.out, "* {}", printable(&summary(report)))?;
                    for note in &report.notes {
                        writeln!(self.out, "  * {}", printable(note))?;
                    }
                }
            }
            Format::Json => {
                let document = Document {
                    schema: SCHEMA,
                    server: self.server.take(),
                    relations: std::mem::take(&mut self.relations),
                };
                // the document without its first line and its schema, which were written
                let whole = serde_json::to_string_pretty(&document)?;
                let rest = whole.splitn(3, '\n').nth(2).unwrap_or("}");
                let end = if self.findings > 0 { "\n  ]" } else { "]" };
                writeln!(self.out, "{end},\n{rest}")?;
            }
            Format::Jsonl | Format::Csv => {}
        }
        self.out.flush()
    }
}

fn summary(checked: &Checked) -> String {
    let looked = &checked.looked;
    let mut verdict = match (checked.errors, checked.warnings, !checked.is_incomplete) {
        (0, 0, true) => "sound".to_owned(),
        (0, 0, false) => "nothing found, but not everything was looked at".to_owned(),
        (errors, 0, _) => counted(errors, "error"),
        (0, warnings, _) => counted(warnings, "warning"),
        (errors, warnings, _) => {
            format!("{}, {}", counted(errors, "error"), counted(warnings, "warning"))
        }
    };
    if checked.notices > 0 {
        verdict.push_str(&format!(", {}", counted(checked.notices, "notice")));
    }
    let mut text = format!(
        "{}: {verdict} ({}, {} out of line in {}",
        checked.relation,
        counted(looked.rows + looked.undecided, "row"),
        counted(looked.values, "value"),
        counted(looked.chunks, "chunk"),
    );
    if looked.decompressed > 0 {
        let values = counted(looked.decompressed, "value");
        text.push_str(&format!("; {values} decompressed to {}", size(looked.raw_bytes)));
    }
    text + ")"
}
