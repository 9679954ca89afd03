//! Reports that are printed as they come, each of one table or column.

use std::io::{self, Write};

use serde::Serialize;

use super::format::{Format, json};
use super::table::Style;

/// A report that stands for itself.
pub(crate) trait Printed: Serialize + Send {
    /// For people.
    ///
    /// # Errors
    /// The output's.
    fn print(&self, style: Style, out: &mut impl Write) -> io::Result<()>;

    /// What could not be read: the first of it, and how much there is in all.
    fn problems(&self) -> (&[String], u64);
}

/// Writes reports as they come. JSON is held back until the end: one is a document of its own, several are an array.
pub(crate) struct Writer<W: Write, R> {
    pub(super) out: W,
    pub(super) format: Format,
    /// The terminal's.
    width: Option<usize>,
    pub(super) written: u64,
    held: Vec<R>,
}

impl<W: Write, R: Serialize> Writer<W, R> {
    /// Nothing is written before the first one. CSV has no place for it and is written otherwise.
    pub(crate) fn new(out: W, format: Format, width: Option<usize>) -> Writer<W, R> {
        Writer { out, format, width, written: 0, held: Vec::new() }
    }

    /// Writes one, so that whoever reads has it at once; `print` does so for people.
    pub(super) fn report_by(
        &mut self,
        report: R,
        print: impl FnOnce(&R, Style, &mut W) -> io::Result<()>,
    ) -> io::Result<()> {
        self.written += 1;
        let style = match self.format {
            Format::Json => {
                self.held.push(report);
                return Ok(());
            }
            Format::Jsonl => {
                serde_json::to_writer(&mut self.out, &report)?;
                writeln!(self.out)?;
                return self.out.flush();
            }
            Format::Markdown => Style::Markdown,
            Format::Table | Format::Csv => Style::Terminal(self.width),
        };
        if self.written > 1 {
            writeln!(self.out)?;
        }
        print(&report, style, &mut self.out)?;
        self.out.flush()
    }

    /// Ends the document; must be called once.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        if self.format == Format::Json {
            match &self.held[..] {
                [report] => json(report, &mut self.out)?,
                reports => json(&reports, &mut self.out)?,
            }
        }
        self.out.flush()
    }
}

impl<W: Write, R: Printed> Writer<W, R> {
    /// Writes one, so that whoever reads has it at once.
    pub(crate) fn report(&mut self, report: R) -> io::Result<()> {
        self.report_by(report, Printed::print)
    }
}
