//! One output document: lines, grids and figures, drawn for a terminal, as Markdown or as part of a page; and the output
//! that writes the results of a run as they arrive, in any format.

use std::io::{self, Write};

use anstream::adapter::strip_str;
use clap::ValueEnum;
use clap::builder::PossibleValue;
use maud::{Markup, html};
use serde::Serialize;
use serde_json::Value;

use super::html::{self, Page};
use super::table::{
    Grid, Style, Tone, command_line, continued, printable, printable_json, printable_lines,
    scrolled, statement_lines, wrapped, wrapped_statement,
};
use super::units::{and_more, counted};
use crate::server::about::ServerReport;
use toast_format::heap::problem::Problems;

/// Columns that did not fit and are named; the rest is counted.
const HIDDEN_NAMED: usize = 3;

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// A table for people, fitted to the terminal.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One JSON document per line.
    Jsonl,
    /// Comma-separated values with a header.
    Csv,
    /// Markdown tables.
    Markdown,
    /// One page for a browser.
    Html,
}

impl Format {
    /// The style for people; `None` for formats that programs read.
    pub fn style(self, width: Option<usize>) -> Option<Style> {
        match self {
            Format::Table => Some(Style::Terminal(width)),
            Format::Markdown => Some(Style::Markdown),
            Format::Html => Some(Style::Html),
            Format::Json | Format::Jsonl | Format::Csv => None,
        }
    }
}

/// How results are printed of verbs whose results monitoring systems read too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    /// For people, or all of it for programs.
    Report(Format),
    /// Metrics for Prometheus's textfile collector.
    Openmetrics,
    /// One line for Nagios and its relatives.
    Nagios,
}

impl ValueEnum for OutputFormat {
    fn value_variants<'a>() -> &'a [OutputFormat] {
        &[
            OutputFormat::Report(Format::Table),
            OutputFormat::Report(Format::Json),
            OutputFormat::Report(Format::Jsonl),
            OutputFormat::Report(Format::Csv),
            OutputFormat::Report(Format::Markdown),
            OutputFormat::Report(Format::Html),
            OutputFormat::Openmetrics,
            OutputFormat::Nagios,
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            OutputFormat::Report(format) => format.to_possible_value(),
            OutputFormat::Openmetrics => Some(
                PossibleValue::new("openmetrics")
                    .help("Metrics for Prometheus's textfile collector"),
            ),
            OutputFormat::Nagios => {
                Some(PossibleValue::new("nagios").help("One line, with the exit codes of a plugin"))
            }
        }
    }
}

/// Problems that a text report lists; the rest is counted.
const PROBLEMS_SHOWN: usize = 10;

/// A text for people, in one style.
#[derive(Debug)]
pub struct Document {
    pub(super) style: Style,
    /// Whether everything is printed, or only what fits on a screen.
    pub(super) details: bool,
    text: String,
    /// Whether the text of a page ends in a list that the next item continues.
    in_list: bool,
    /// The headings of a part of a page, and the number of those before.
    headings: Vec<String>,
    headings_before: usize,
}

impl Document {
    pub fn new(style: Style, details: bool) -> Document {
        let details = details || !matches!(style, Style::Terminal(_));
        let headings = Vec::new();
        Document {
            style,
            details,
            text: String::new(),
            in_list: false,
            headings,
            headings_before: 0,
        }
    }

    /// A section of a page, or its summary, which is made last.
    pub(super) fn of_page(page: &Page) -> Document {
        let headings_before = page.number_of_headings();
        Document { headings_before, ..Document::new(Style::Html, true) }
    }

    /// Adds it to a page as a section.
    pub(super) fn add_to(mut self, page: &mut Page) {
        self.end_list();
        page.add(&self.text, self.headings);
    }

    /// The page of which it is the summary.
    pub(super) fn into_page(mut self, page: &Page) -> String {
        self.end_list();
        page.text(&self.text, &self.headings)
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub fn is_markdown(&self) -> bool {
        self.style == Style::Markdown
    }

    pub(super) fn is_html(&self) -> bool {
        self.style == Style::Html
    }

    pub(super) fn into_text(mut self) -> String {
        self.end_list();
        self.text
    }

    fn end_list(&mut self) {
        if std::mem::take(&mut self.in_list) {
            self.text.push_str("</ul>\n");
        }
    }

    /// Adds a part of a page.
    pub(super) fn block(&mut self, block: &Markup) {
        self.end_list();
        self.text.push_str(&block.0);
        self.text.push('\n');
    }

    /// Adds text, wrapped to the width; lines after the first are indented.
    pub fn line(&mut self, words: &str, indent: usize) {
        if self.is_html() {
            return self.block(&html! { p { (for_page(words)) } });
        }
        self.text.push_str(&wrapped(words, self.style.width(), indent));
        self.text.push('\n');
    }

    /// Adds a short text, which is not wrapped.
    pub(super) fn unbroken(&mut self, words: &str) {
        if self.is_html() { self.line(words, 0) } else { self.lines(&format!("{words}\n")) }
    }

    /// Names the first columns that did not fit into a grid, and says how to see them. `more`: how to see more rows.
    pub(super) fn hidden(&mut self, more: Option<&str>, left_out: &[&str]) {
        let mut parts: Vec<String> = more.map(|how| format!("more: {how}")).into_iter().collect();
        if !left_out.is_empty() {
            let named = left_out.get(..HIDDEN_NAMED).unwrap_or(left_out).join(", ");
            let more = and_more(left_out.len(), HIDDEN_NAMED);
            parts.push(format!("hidden, shown with COLUMNS=0: {named}{more}"));
        }
        if !parts.is_empty() {
            if self.is_markdown() {
                self.gap();
            }
            self.line(&format!("({})", parts.join("; ")), 1);
        }
    }

    /// Adds words followed by a statement, whose names and literals are not broken.
    pub(super) fn line_of_sql(&mut self, words: &str, sql: &str, indent: usize) {
        if self.is_html() {
            self.line(words, 0);
            return self.sql(sql);
        }
        self.text.push_str(&wrapped_statement(words, sql, self.style.width(), indent));
        self.text.push('\n');
    }

    /// Adds an empty line, except on a page.
    pub fn gap(&mut self) {
        if !self.is_html() {
            self.text.push('\n');
        }
    }

    /// Adds lines unchanged, each with its line end; not for pages.
    pub(super) fn lines(&mut self, text: &str) {
        self.text.push_str(text);
    }

    pub fn heading(&mut self, words: &str, level: usize) {
        match self.style {
            Style::Markdown => self.lines(&format!("{} {words}\n\n", "#".repeat(level))),
            Style::Terminal(_) => self.line(&Tone::Heading.styled(words), 4),
            Style::Html if level > 2 => self.block(&html! { h3 { (for_page(words)) } }),
            Style::Html => {
                let part = self.headings_before + self.headings.len();
                let words = for_page(words);
                self.block(&html! { h2 id=(format!("part-{part}")) { (words) } });
                self.headings.push(words);
            }
        }
    }

    /// The start of a list item.
    pub fn bullet(&self) -> &'static str {
        match self.style {
            Style::Markdown => "* ",
            Style::Terminal(_) => "  ",
            Style::Html => "",
        }
    }

    /// An item of a list.
    pub fn item(&mut self, words: &str) {
        if !self.is_html() {
            return self.line(&format!("{}{words}", self.bullet()), 4);
        }
        if !std::mem::replace(&mut self.in_list, true) {
            self.text.push_str("<ul>\n");
        }
        let item = html! { li { (for_page(words)) } };
        self.text.push_str(&item.0);
        self.text.push('\n');
    }

    /// Draws a grid, in a page with a caption. Returns the titles of the columns that did not fit.
    pub fn grid(&mut self, caption: &str, grid: &Grid) -> Vec<&'static str> {
        if self.is_html() {
            if !grid.is_empty() {
                self.block(&grid.html(&for_page(caption)));
            }
            return Vec::new();
        }
        let drawn = grid.draw(self.style);
        self.text.push_str(&drawn.text);
        drawn.left_out
    }

    /// A figure drawn with characters.
    pub fn figure(&mut self, caption: &str, drawn: &str) {
        if self.is_html() {
            let drawn = html! { pre { (printable_lines(drawn)) } };
            return self.block(&scrolled(caption, &drawn));
        }
        let fence = if self.is_markdown() { "```\n" } else { "" };
        self.text.push_str(&format!("{fence}{drawn}{fence}"));
    }

    /// Lists the first problems, below their number.
    pub fn problems(&mut self, problems: &Problems, bullet: &str) {
        if problems.count() > 0 {
            let number = counted(problems.count(), "problem");
            let kept = problems.kept().iter().take(PROBLEMS_SHOWN);
            if self.is_html() {
                self.heading(&number, 3);
                return kept.for_each(|problem| self.item(&problem.to_string()));
            }
            let number = self.toned(Tone::Bad, &number);
            self.text.push_str(&format!("\n{number}:\n"));
            for problem in kept {
                self.text.push_str(&format!("{bullet}{}\n", printable(&problem.to_string())));
            }
        }
    }

    /// Text, in this tone on a terminal.
    pub(super) fn toned(&self, tone: Tone, words: &str) -> String {
        match self.style {
            Style::Terminal(_) => tone.styled(words),
            Style::Markdown | Style::Html => words.to_owned(),
        }
    }

    /// Text in lines of readable length, the first sentence styled as a verdict.
    pub(super) fn verdict(&mut self, tone: Tone, words: &str) {
        let words = printable(words);
        let first = words.find(". ").map_or(words.len(), |at| at + 1);
        let (first, rest) = words.split_at(first);
        if self.is_html() {
            let class = tone.name();
            return self.block(&html! { p.verdict { strong class=(class) { (first) } (rest) } });
        }
        let words = format!("{}{rest}", self.toned(tone, first));
        self.broken(&words, 0);
    }

    /// Text in lines of readable length.
    pub fn paragraph(&mut self, words: &str) {
        match words.strip_prefix("- ").or_else(|| words.strip_prefix("* ")) {
            Some(words) if self.is_html() => self.item(words),
            _ => {
                let indent = if words.starts_with("- ") { 2 } else { 0 };
                self.broken(&printable(words), indent);
            }
        }
    }

    /// A shell command, on a line of its own.
    pub(super) fn command(&mut self, command: &str) {
        if self.is_html() {
            return self.block(&html::command(&command_line(command)));
        }
        let width = self.style.width().map(|width| width.saturating_sub(4));
        let command = continued(&command_line(command), width);
        self.lines(&format!("    {command}\n"));
    }

    /// An SQL statement, on lines of its own.
    pub(super) fn sql(&mut self, sql: &str) {
        let lines = statement_lines(sql);
        if self.is_html() {
            return self.block(&html::command(&lines.join("\n")));
        }
        for line in lines {
            self.lines(&format!("    {line}\n"));
        }
    }

    /// Printable text in lines of readable length.
    pub(super) fn broken(&mut self, words: &str, indent: usize) {
        let width = match self.style {
            Style::Terminal(width) => Some(width.unwrap_or(80).clamp(40, 100)),
            Style::Markdown => None,
            Style::Html => return self.line(words, 0),
        };
        self.text.push_str(&wrapped(words, width, indent));
        self.text.push('\n');
    }
}

/// Words without the style and the indentation of a terminal, in printable characters.
fn for_page(words: &str) -> String {
    printable(strip_str(words).to_string().trim_start())
}

/// One JSON document, indented, with a line end.
pub(crate) fn json(document: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", printable_json(serde_json::to_string_pretty(document)?))
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
    writeln!(out, "{}", printable_json(line.to_string()))
}

/// Records of CSV, in printable characters.
pub(super) fn csv_records<F: AsRef<str>>(
    records: impl IntoIterator<Item = impl IntoIterator<Item = F>>,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    for record in records {
        let written = writer.write_record(record.into_iter().map(|f| printable(f.as_ref())));
        // the kind of an error tells whether the reader is gone
        written.map_err(|error| match error.into_kind() {
            csv::ErrorKind::Io(error) => error,
            other => io::Error::other(format!("{other:?}")),
        })?;
    }
    writer.flush()
}

/// The text before the entries of a JSON document, up to the list, which is its last field and still empty.
fn head_of(document: &Value) -> String {
    let whole = printable_json(format!("{document:#}"));
    whole.strip_suffix("]\n}").unwrap_or(&whole).to_owned()
}

/// Writes the results of a run as they arrive, so that readers do not have to wait for its end.
pub(super) struct Output<W: Write> {
    out: W,
    pub(super) format: Format,
    /// The width of the terminal.
    width: Option<usize>,
    schema: &'static str,
    /// Names of the fields of `csv`.
    fields: Vec<String>,
    /// The JSON text before the entries.
    head: String,
    has_begun: bool,
    /// Whether texts for people show everything.
    pub(super) details: bool,
    pub(super) written: u64,
    /// What a page has so far.
    pub(super) page: Box<Page>,
}

impl<W: Write> Output<W> {
    /// Writes nothing before the first entry or the end. `document`: the JSON document, whose last field is the list
    /// of entries, still empty.
    pub(super) fn new(
        out: W,
        format: Format,
        width: Option<usize>,
        schema: &'static str,
        fields: &[impl ToString],
        document: &Value,
    ) -> Output<W> {
        let fields = fields.iter().map(ToString::to_string).collect();
        let head = head_of(document);
        let has_begun = false;
        let details = false;
        let written = 0;
        let page = Box::new(Page::new(schema, document.get("server")));
        Output { out, format, width, schema, fields, head, has_begun, details, written, page }
    }

    /// The style for people; `None` for formats that programs read.
    pub(super) fn style(&self) -> Option<Style> {
        self.format.style(self.width)
    }

    /// Writes an entry, from the function that the format requires: `entry` for JSON, `text` for people, `records`
    /// for CSV.
    pub(super) fn entry<E: Serialize>(
        &mut self,
        entry: impl FnOnce() -> E,
        text: impl FnOnce(&mut Document),
        records: impl FnOnce() -> Vec<Vec<String>>,
    ) -> io::Result<()> {
        self.begin()?;
        match self.format {
            Format::Table | Format::Markdown | Format::Html => self.text(text)?,
            Format::Json => {
                let entry = printable_json(serde_json::to_string_pretty(&entry())?);
                let comma = if self.written > 0 { "," } else { "" };
                write!(self.out, "{comma}\n    {}", entry.replace('\n', "\n    "))?;
            }
            Format::Jsonl => json_line(self.schema, &entry(), &mut self.out)?,
            Format::Csv => self.records(&records())?,
        }
        self.written += 1;
        self.out.flush()
    }

    /// Like [`Output::entry`], with an empty line before each text except the first.
    pub(super) fn section<E: Serialize>(
        &mut self,
        entry: impl FnOnce() -> E,
        text: impl FnOnce(&mut Document),
        records: impl FnOnce() -> Vec<Vec<String>>,
    ) -> io::Result<()> {
        let is_first = self.written == 0;
        self.entry(
            entry,
            |document| {
                if !is_first {
                    document.gap();
                }
                text(document);
            },
            records,
        )
    }

    /// Writes something for people; a page is kept until the end.
    pub(super) fn text(&mut self, text: impl FnOnce(&mut Document)) -> io::Result<()> {
        let Some(style) = self.style() else { return Ok(()) };
        if self.format == Format::Html {
            let mut section = Document::of_page(&self.page);
            text(&mut section);
            section.add_to(&mut self.page);
            return Ok(());
        }
        let mut document = Document::new(style, self.details);
        text(&mut document);
        self.out.write_all(document.into_text().as_bytes())?;
        self.out.flush()
    }

    /// Ends the document; must be called once. `rest`: the fields after the list, which `jsonl` prints as its last
    /// line. A page begins with `text`.
    pub(super) fn finish(
        mut self,
        rest: Option<&impl Serialize>,
        text: impl FnOnce(&mut Document),
        records: impl FnOnce() -> Vec<Vec<String>>,
    ) -> io::Result<()> {
        self.begin()?;
        match self.format {
            Format::Table | Format::Markdown => self.text(text)?,
            Format::Html => {
                let mut summary = Document::of_page(&self.page);
                text(&mut summary);
                self.out.write_all(summary.into_page(&self.page).as_bytes())?;
            }
            Format::Json => {
                let end = if self.written > 0 { "\n  ]" } else { "]" };
                let rest = rest.map(serde_json::to_string_pretty).transpose()?.map(printable_json);
                match rest.as_ref().and_then(|rest| rest.strip_prefix('{')) {
                    Some(rest) => writeln!(self.out, "{end},{rest}")?,
                    None => writeln!(self.out, "{end}\n}}")?,
                }
            }
            Format::Jsonl => {
                if let Some(rest) = rest {
                    json_line(self.schema, rest, &mut self.out)?;
                }
            }
            Format::Csv => self.records(&records())?,
        }
        self.out.flush()
    }

    /// Writes what precedes the first entry.
    fn begin(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.has_begun, true) {
            return Ok(());
        }
        match self.format {
            Format::Json => self.out.write_all(self.head.as_bytes()),
            Format::Csv => {
                let fields = std::mem::take(&mut self.fields);
                self.records(&[fields])
            }
            _ => Ok(()),
        }
    }

    fn records(&mut self, records: &[Vec<String>]) -> io::Result<()> {
        csv_records(records, &mut self.out)
    }
}

/// A report that is one entry of a JSON document.
pub(crate) trait Printed: Send {
    /// Name and version of the document's shape.
    const SCHEMA: &'static str;

    /// The document without entries.
    fn document(server: Option<ServerReport>) -> Value;

    /// The entry of the list in the JSON document.
    fn entry(&self) -> impl Serialize;

    /// Adds the text for people.
    fn print(&self, document: &mut Document);

    fn problems(&self) -> &Problems;

    /// The command with which to go on, if there is one: it is completed by the options of the connection.
    fn command(&mut self) -> Option<&mut String> {
        None
    }
}

/// Writes reports as they arrive; they cannot be written as CSV.
pub(crate) struct Writer<W: Write>(Output<W>);

impl<W: Write> Writer<W> {
    /// `details`: whether texts for people show everything.
    pub(crate) fn new<R: Printed>(
        out: W,
        terminal: (Format, Option<usize>),
        server: Option<ServerReport>,
        details: bool,
    ) -> Writer<W> {
        let (format, width) = terminal;
        let document = R::document(server);
        let output = Output::new(out, format, width, R::SCHEMA, &[""; 0], &document);
        Writer(Output { details, ..output })
    }

    /// Writes one report immediately.
    pub(crate) fn report<R: Printed>(&mut self, report: &R) -> io::Result<()> {
        self.0.section(|| report.entry(), |document| report.print(document), Vec::new)
    }

    /// States on a page that something could not be read.
    pub(crate) fn incomplete(&mut self) {
        self.0.page.incomplete = true;
    }

    /// Ends the document; must be called once.
    pub(crate) fn finish(self) -> io::Result<()> {
        self.0.finish(None::<&()>, |_| {}, Vec::new)
    }
}
