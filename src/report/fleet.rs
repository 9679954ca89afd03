//! What a run over several databases prints: each result with its database, and at the end what became of all.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;

use super::document::{Document, Format, csv_records};
use super::overview;
use super::table::{Grid, Head, Style, Tone, printable, printable_json};
use super::units::counted;
use crate::inspect::overview::rank::Overview;

/// The name and version of the JSON lines.
pub const SCHEMA: &str = "toastctl.fleet/1";

/// Databases whose problems are listed at the end; the rest is counted.
const LISTED: usize = 200;

/// One line of --format json or jsonl with --all or --targets: one database. Fields are only ever added.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct TargetReport {
    #[schemars(extend("const" = SCHEMA))]
    pub(crate) schema: &'static str,
    /// host:port/database; for a line of --targets that makes no sense, its number and the file.
    pub(crate) target: String,
    /// The exit code that the command would have had on this database alone.
    pub(crate) exit_code: u8,
    pub(crate) seconds: f64,
    /// Why there is no result, or an incomplete one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// The document that the verb prints with --format json; its field schema names its kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<Value>,
}

/// Writes results as they come.
pub(crate) struct Writer<W: Write> {
    out: W,
    format: Format,
    width: Option<usize>,
    /// Findings that are shown.
    limit: Option<usize>,
    overview: Option<Overview>,
    /// The names of the fields, once they are printed.
    fields: Option<csv::StringRecord>,
    done: u64,
    has_text: bool,
    /// Target, exit code and error.
    problems: Vec<(String, u8, String)>,
}

impl<W: Write> Writer<W> {
    pub(crate) fn new(
        out: W,
        format: Format,
        width: Option<usize>,
        limit: Option<usize>,
    ) -> Writer<W> {
        let overview = None;
        let fields = None;
        let problems = Vec::new();
        let done = 0;
        let has_text = false;
        Writer { out, format, width, limit, overview, fields, done, has_text, problems }
    }

    /// Writes the report of a database, which is `text` as its verb has printed it.
    pub(crate) fn target(&mut self, mut report: TargetReport, text: &[u8]) -> io::Result<()> {
        match self.format {
            Format::Json | Format::Jsonl => {
                report.result = serde_json::from_slice(text).ok();
                let line = serde_json::to_string(&report)?;
                writeln!(self.out, "{}", printable_json(line))?;
            }
            Format::Csv => self.records(&report.target, text)?,
            Format::Table | Format::Markdown if !text.is_empty() => {
                let name = printable(&report.target);
                let gap = if self.has_text { "\n" } else { "" };
                match self.format.style(self.width) {
                    Some(Style::Markdown) => write!(self.out, "{gap}## {name}\n\n")?,
                    _ => writeln!(self.out, "{gap}-- {name} --")?,
                }
                self.out.write_all(text)?;
                self.has_text = true;
            }
            Format::Table | Format::Markdown | Format::Html => {}
        }
        match (report.exit_code, report.error) {
            (0, None) => self.done += 1,
            (code, error) => self.problems.push((report.target, code, error.unwrap_or_default())),
        }
        self.out.flush()
    }

    /// Keeps the overview of a database until those of all are known.
    pub(crate) fn overview(&mut self, overview: Overview) {
        match &mut self.overview {
            Some(all) => all.join(overview),
            None => self.overview = Some(overview),
        }
    }

    /// The same records with the database in front.
    fn records(&mut self, target: &str, text: &[u8]) -> io::Result<()> {
        let mut records = csv::ReaderBuilder::new().flexible(true).from_reader(text);
        let fields = records.headers()?.clone();
        let mut lines = Vec::new();
        if !fields.is_empty() && self.fields.as_ref() != Some(&fields) {
            lines.push(with_first("target", &fields));
            self.fields = Some(fields);
        }
        for record in records.records() {
            lines.push(with_first(target, &record?));
        }
        csv_records(lines, &mut self.out)
    }

    /// Writes the summary of all databases. `skipped`: databases that an earlier run has finished.
    pub(crate) fn finish(mut self, skipped: u64) -> io::Result<()> {
        let Some(style) = self.format.style(self.width) else { return self.out.flush() };
        let mut document = Document::new(style, false);
        if let Some(overview) = &self.overview {
            overview::text(overview, self.limit, None, &mut document);
        }
        if self.overview.is_some() || self.has_text {
            document.gap();
        }
        let not_done = self.problems.len();
        let all = self.done + skipped + not_done as u64;
        let mut words = format!("{}: {} done", counted(all, "database"), self.done);
        if skipped > 0 {
            words.push_str(&format!(", {skipped} done before"));
        }
        if not_done > 0 {
            words.push_str(&format!(", {not_done} with problems"));
        }
        let tone = if not_done > 0 { Tone::Bad } else { Tone::Good };
        document.line(&document.toned(tone, &words), 0);
        if not_done > 0 {
            document.gap();
            document.grid("Problems", &problems(&self.problems));
            if let more @ 1.. = not_done.saturating_sub(LISTED) {
                document.line(&format!("({more} more)"), 0);
            }
        }
        self.out.write_all(document.text().as_bytes())?;
        self.out.flush()
    }
}

fn problems(problems: &[(String, u8, String)]) -> Grid {
    let heads = [Head::text("Database", 0), Head::number("Exit", 0), Head::text("Problem", 0)];
    let mut grid = Grid::new(&heads);
    for (target, code, error) in problems.iter().take(LISTED) {
        let first = error.lines().next().unwrap_or_default();
        // the place is in the first column
        let why = first
            .strip_prefix("connection to server ")
            .and_then(|rest| rest.split_once(" failed: "))
            .map_or(first, |(_, why)| why);
        grid.row(vec![target.clone(), code.to_string(), printable(why)]);
    }
    grid
}

/// A record of CSV with one more field before the others.
fn with_first(first: &str, fields: &csv::StringRecord) -> Vec<String> {
    std::iter::once(first).chain(fields).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(target: &str, exit_code: u8, error: Option<&str>) -> TargetReport {
        TargetReport {
            schema: SCHEMA,
            target: target.into(),
            exit_code,
            seconds: 0.5,
            error: error.map(str::to_owned),
            result: None,
        }
    }

    fn printed(format: Format) -> String {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, format, Some(80), None);
        let text: [&[u8]; 2] = match format {
            Format::Csv => [b"a,b\n1,\"x,\ny\"\n", b"a,b\n2,z\n"],
            Format::Json => [b"{\n  \"schema\": \"s/1\"\n}\n", b""],
            _ => [b"one\n", b"two\n"],
        };
        writer.target(report("h:1/a", 0, None), text[0]).unwrap();
        writer.target(report("h:1/b", 1, Some("t is locked\nHINT:  x")), text[1]).unwrap();
        writer.target(report("down:1/c", 3, Some("refused")), b"").unwrap();
        writer.finish(1).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_format_names_the_database_of_each_result() {
        assert_eq!(
            printed(Format::Csv),
            "target,a,b\nh:1/a,1,\"x,\ny\"\nh:1/b,2,z\n".replace("x,\ny", "x,\\ny")
        );
        assert_eq!(
            printed(Format::Json),
            "{\"schema\":\"toastctl.fleet/1\",\"target\":\"h:1/a\",\"exit_code\":0,\"seconds\":0.5,\
             \"result\":{\"schema\":\"s/1\"}}\n\
             {\"schema\":\"toastctl.fleet/1\",\"target\":\"h:1/b\",\"exit_code\":1,\"seconds\":0.5,\
             \"error\":\"t is locked\\nHINT:  x\"}\n\
             {\"schema\":\"toastctl.fleet/1\",\"target\":\"down:1/c\",\"exit_code\":3,\"seconds\":0.5,\
             \"error\":\"refused\"}\n"
        );
        let shown = anstream::adapter::strip_str(&printed(Format::Table)).to_string();
        insta::assert_snapshot!(shown, @r"
        -- h:1/a --
        one

        -- h:1/b --
        two

        4 databases: 1 done, 1 done before, 2 with problems

         Database | Exit | Problem
        ----------+------+-------------
         h:1/b    |    1 | t is locked
         down:1/c |    3 | refused
        ");
        assert!(printed(Format::Markdown).starts_with("## h:1/a\n\none\n\n## h:1/b\n\ntwo\n"));
    }
}
