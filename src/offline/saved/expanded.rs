//! psql's expanded format (`\x`): a line for each column, beginning with its name, below a line with the record's number.

use std::borrow::Cow;

use super::error::SavedProblem;
use super::table::{CellValue, Header, MAX_COLUMNS, SavedTable};
use super::{LineNumber, MOST, Next, SavedOutput, TextLine, text};

struct NameValue {
    line: LineNumber,
    name: String,
    value: String,
}

/// The records of a result.
pub(crate) struct Records {
    table: Option<SavedTable>,
    /// The line where the record begins.
    begin: LineNumber,
    pairs: Vec<NameValue>,
    /// The number of bytes of the pairs.
    bytes: usize,
}

impl Records {
    pub(crate) fn begin(line: &TextLine<'_>) -> Records {
        Records { table: None, begin: line.number, pairs: Vec::new(), bytes: 0 }
    }

    pub(crate) fn take(&mut self, line: &TextLine<'_>, out: &mut SavedOutput<'_>) -> Next {
        let text = line.text;
        if text::is_record_line(text) {
            self.finish_record(true, true, out);
            self.begin = line.number;
            return Next::More;
        }
        if text.trim().is_empty() {
            self.finish_record(true, true, out);
            return Next::Ended;
        }
        let Some((name, value)) = text.split_once('|') else {
            if text.starts_with(' ') && line.ended {
                out.error(SavedProblem::OtherFormat("format wrapped").at(line.number));
                return Next::Skip;
            }
            self.finish_record(line.ended, true, out);
            return Next::Again;
        };
        if name.trim().is_empty() {
            out.error(SavedProblem::OtherFormat("format wrapped").at(line.number));
            return Next::Skip;
        }
        self.bytes += text.len();
        if self.bytes > MOST || self.pairs.len() >= MAX_COLUMNS {
            out.error(SavedProblem::TooLong(MOST).at(self.begin));
            return Next::Skip;
        }
        let name = name.trim().to_owned();
        let value = value.trim().to_owned();
        self.pairs.push(NameValue { line: line.number, name, value });
        Next::More
    }

    pub(crate) fn end(&mut self, ended: bool, out: &mut SavedOutput<'_>) {
        if self.pairs.is_empty() {
            out.error(SavedProblem::cut("the text ends within a record").at(self.begin));
        }
        self.finish_record(false, ended, out);
    }

    /// Reads the record. `closed`: the line below it shows that it has no further columns; `ended`: its last line has a
    /// line break.
    fn finish_record(&mut self, closed: bool, ended: bool, out: &mut SavedOutput<'_>) {
        let pairs = std::mem::take(&mut self.pairs);
        self.bytes = 0;
        let Some(first) = pairs.first() else { return };
        let begin = first.line;
        let names = || pairs.iter().map(|pair| pair.name.as_str());
        if !self.table.as_ref().is_some_and(|table| table.header.has_names(names())) {
            let Some(header) = Header::by_names(names()) else {
                let is_data = pairs.iter().any(|pair| text::looks_like_data(&pair.value));
                let problem = if closed {
                    SavedProblem::NoHeader
                } else {
                    SavedProblem::cut("the text ends within a record")
                };
                if is_data || !closed {
                    out.error(problem.at(begin));
                }
                return;
            };
            let columns = self.table.as_ref().map_or(0, |table| table.header.columns.len());
            if !closed && (header.columns.len() < columns || !header.is_complete()) {
                let problem = SavedProblem::cut("the record does not have all columns");
                out.error(problem.at(begin));
                return;
            }
            self.table = Some(SavedTable::begin(header, out));
        }
        let Some(table) = &mut self.table else { return };
        let values: Vec<CellValue<'_>> =
            pairs.iter().map(|pair| CellValue::Text(Cow::Borrowed(&pair.value))).collect();
        if let Err(mut error) = table.push(begin, &values, ended, out) {
            let pair = pairs.iter().find(|pair| error.column.as_deref() == Some(&pair.name));
            error.line = pair.map_or(error.line, |pair| pair.line);
            out.error(error);
        }
    }
}
