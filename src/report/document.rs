//! One output document: lines, grids and figures, drawn for a terminal or as Markdown; and the output that takes what a
//! run finds, as it finds it, in any of the formats.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;

use super::table::{Grid, Style, printable, wrapped};
use super::units::counted;
use crate::heap::problem::Problems;

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// A table for people, fitted to the terminal.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One JSON document a line.
    Jsonl,
    /// Comma-separated values with a header.
    Csv,
    /// Markdown tables.
    Markdown,
}

impl Format {
    /// How people are shown it; `None` for programs.
    pub fn style(self, width: Option<usize>) -> Option<Style> {
        match self {
            Format::Table => Some(Style::Terminal(width)),
            Format::Markdown => Some(Style::Markdown),
            Format::Json | Format::Jsonl | Format::Csv => None,
        }
    }
}

/// Problems of a report that people are shown; the rest is counted.
const PROBLEMS_SHOWN: usize = 10;

/// What people are shown, in one style.
#[derive(Debug)]
pub struct Document {
    pub(super) style: Style,
    text: String,
}

impl Document {
    /// Nothing yet.
    pub fn new(style: Style) -> Document {
        Document { style, text: String::new() }
    }

    pub fn is_markdown(&self) -> bool {
        self.style == Style::Markdown
    }

    /// Words, broken where they have no room; lines after the first are indented.
    pub fn line(&mut self, words: &str, indent: usize) {
        self.text.push_str(&wrapped(words, self.style.width(), indent));
        self.text.push('\n');
    }

    /// An empty line.
    pub fn gap(&mut self) {
        self.text.push('\n');
    }

    /// Lines as they are, each with its end.
    pub fn lines(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// A heading of Markdown; on a terminal a line as it is.
    pub fn heading(&mut self, words: &str, level: usize) {
        self.text.push_str(&match self.style {
            Style::Markdown => format!("{} {words}\n\n", "#".repeat(level)),
            Style::Terminal(_) => format!("{words}\n"),
        });
    }

    /// What an item of a list begins with.
    pub fn bullet(&self) -> &'static str {
        if self.is_markdown() { "* " } else { "  " }
    }

    /// An item of a list.
    pub fn item(&mut self, words: &str) {
        self.line(&format!("{}{words}", self.bullet()), 4);
    }

    /// Draws a grid. Returns the titles of the columns that had no room.
    pub fn grid(&mut self, grid: &Grid) -> Vec<&'static str> {
        let drawn = grid.draw(self.style);
        self.text.push_str(&drawn.text);
        drawn.left_out
    }

    /// Something drawn with characters.
    pub fn figure(&mut self, drawn: &str) {
        let fence = if self.is_markdown() { "```\n" } else { "" };
        self.text.push_str(&format!("{fence}{drawn}{fence}"));
    }

    /// The first of what could not be read, below the number of all.
    pub fn problems(&mut self, problems: &Problems, bullet: &str) {
        if problems.count() > 0 {
            self.text.push_str(&format!("\n{}:\n", counted(problems.count(), "problem")));
            for problem in problems.kept().iter().take(PROBLEMS_SHOWN) {
                self.text.push_str(&format!("{bullet}{}\n", printable(&problem.to_string())));
            }
        }
    }

    /// Words in lines that are easy to read.
    pub fn paragraph(&mut self, words: &str) {
        let width = match self.style {
            Style::Terminal(width) => Some(width.unwrap_or(80).clamp(40, 100)),
            Style::Markdown => None,
        };
        let indent = if words.starts_with("- ") { 2 } else { 0 };
        self.text.push_str(&wrapped(&printable(words), width, indent));
        self.text.push('\n');
    }
}

/// One JSON document, indented, with a line end.
pub(crate) fn json(document: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, document)?;
    writeln!(out)
}

/// One JSON document in a line: an object that is given the field `schema`.
pub(super) fn json_line(
    schema: &str,
    document: &impl Serialize,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut line = serde_json::to_value(document)?;
    if let Some(object) = line.as_object_mut() {
        object.insert("schema".into(), schema.into());
    }
    serde_json::to_writer(&mut *out, &line)?;
    writeln!(out)
}

/// What surrounds the entries of a JSON document.
#[derive(Debug)]
pub(super) enum Envelope {
    /// The fields before the list of entries, which has a name.
    List(String),
    /// Nothing: one entry is a document of its own, several are an array. They are held back until the end.
    Alone(Vec<String>),
}

impl Envelope {
    /// An object with these fields, of which the last is the list, still empty.
    pub(super) fn list(document: &Value) -> Envelope {
        let whole = format!("{document:#}");
        Envelope::List(whole.strip_suffix("]\n}").unwrap_or(&whole).to_owned())
    }
}

/// Writes what a run finds as it finds it, so that whoever reads has it at once.
pub(super) struct Output<W: Write> {
    out: W,
    pub(super) format: Format,
    /// The terminal's.
    width: Option<usize>,
    schema: &'static str,
    /// Names of the fields of `csv`.
    fields: Vec<String>,
    envelope: Envelope,
    has_begun: bool,
    pub(super) written: u64,
}

impl<W: Write> Output<W> {
    /// Nothing is written before the first entry, or the end.
    pub(super) fn new(
        out: W,
        (format, width): (Format, Option<usize>),
        schema: &'static str,
        fields: &[impl ToString],
        envelope: Envelope,
    ) -> Output<W> {
        let fields = fields.iter().map(ToString::to_string).collect();
        Output { out, format, width, schema, fields, envelope, has_begun: false, written: 0 }
    }

    /// How people are shown it; `None` for programs.
    pub(super) fn style(&self) -> Option<Style> {
        self.format.style(self.width)
    }

    /// Writes an entry: `text` for people, `records` for `csv`.
    pub(super) fn entry(
        &mut self,
        entry: &impl Serialize,
        text: impl FnOnce(&mut Document),
        records: impl FnOnce() -> Vec<Vec<String>>,
    ) -> io::Result<()> {
        self.begin()?;
        match self.format {
            Format::Table | Format::Markdown => self.text(text)?,
            Format::Json => {
                let entry = serde_json::to_string_pretty(entry)?;
                match &mut self.envelope {
                    Envelope::List(_) => {
                        let comma = if self.written > 0 { "," } else { "" };
                        write!(self.out, "{comma}\n    {}", entry.replace('\n', "\n    "))?;
                    }
                    Envelope::Alone(held) => held.push(entry),
                }
            }
            Format::Jsonl => json_line(self.schema, entry, &mut self.out)?,
            Format::Csv => self.records(&records())?,
        }
        self.written += 1;
        self.out.flush()
    }

    /// Writes something for people.
    pub(super) fn text(&mut self, text: impl FnOnce(&mut Document)) -> io::Result<()> {
        let Some(style) = self.style() else { return Ok(()) };
        let mut document = Document::new(style);
        text(&mut document);
        self.out.write_all(document.text.as_bytes())?;
        self.out.flush()
    }

    /// Ends the document; must be called once. `rest`: the fields behind the list, which `jsonl` has in a last line.
    pub(super) fn finish(
        mut self,
        rest: Option<&impl Serialize>,
        text: impl FnOnce(&mut Document),
        records: impl FnOnce() -> Vec<Vec<String>>,
    ) -> io::Result<()> {
        self.begin()?;
        match (self.format, &self.envelope) {
            (Format::Table | Format::Markdown, _) => self.text(text)?,
            (Format::Json, Envelope::List(_)) => {
                let end = if self.written > 0 { "\n  ]" } else { "]" };
                let rest = rest.map(serde_json::to_string_pretty).transpose()?;
                match rest.as_ref().and_then(|rest| rest.strip_prefix('{')) {
                    Some(rest) => writeln!(self.out, "{end},{rest}")?,
                    None => writeln!(self.out, "{end}\n}}")?,
                }
            }
            (Format::Json, Envelope::Alone(held)) => match &held[..] {
                [] => writeln!(self.out, "[]")?,
                [one] => writeln!(self.out, "{one}")?,
                several => {
                    let several = several.join(",\n").replace('\n', "\n  ");
                    writeln!(self.out, "[\n  {several}\n]")?;
                }
            },
            (Format::Jsonl, _) => {
                if let Some(rest) = rest {
                    json_line(self.schema, rest, &mut self.out)?;
                }
            }
            (Format::Csv, _) => self.records(&records())?,
        }
        self.out.flush()
    }

    /// What stands before the first entry.
    fn begin(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.has_begun, true) {
            return Ok(());
        }
        match (self.format, &self.envelope) {
            (Format::Json, Envelope::List(fields)) => self.out.write_all(fields.as_bytes()),
            (Format::Csv, _) => {
                let fields = std::mem::take(&mut self.fields);
                self.records(&[fields])
            }
            _ => Ok(()),
        }
    }

    fn records(&mut self, records: &[Vec<String>]) -> io::Result<()> {
        let mut writer = csv::Writer::from_writer(&mut self.out);
        records.iter().try_for_each(|record| writer.write_record(record))?;
        writer.flush()
    }
}

/// A report that stands for itself.
pub(crate) trait Printed: Serialize + Send {
    /// Name and version of its JSON shape.
    const SCHEMA: &'static str;

    /// For people.
    fn print(&self, document: &mut Document);

    fn problems(&self) -> &Problems;
}

/// Writes reports that stand each for itself, as they come; they have no place in CSV.
pub(crate) struct Writer<W: Write>(Output<W>);

impl<W: Write> Writer<W> {
    pub(crate) fn new<R: Printed>(out: W, format: Format, width: Option<usize>) -> Writer<W> {
        Writer(Output::new(out, (format, width), R::SCHEMA, &[""; 0], Envelope::Alone(Vec::new())))
    }

    /// Writes one, so that whoever reads has it at once.
    pub(crate) fn report<R: Printed>(&mut self, report: &R) -> io::Result<()> {
        let is_first = self.0.written == 0;
        let text = |document: &mut Document| {
            if !is_first {
                document.gap();
            }
            report.print(document);
        };
        self.0.entry(report, text, Vec::new)
    }

    /// Ends the document; must be called once.
    pub(crate) fn finish(self) -> io::Result<()> {
        self.0.finish(None::<&()>, |_| {}, Vec::new)
    }
}
