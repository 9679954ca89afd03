//! Rows that the server has converted to JSON with `json_agg`, `row_to_json`, `jsonb_pretty` and similar functions,
//! bare or in psql's aligned format.
//!
//! A value may have any length, even on a single line: it is read row by row as its bytes arrive.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::error::SavedProblem;
use super::table::{CellValue, Header, SavedTable};
use super::{LineNumber, MOST, Next, SavedOutput, TextLine, text};

/// Whether JSON with rows begins on a line.
pub(crate) fn begins(line: &str) -> bool {
    let line = line.trim_matches([' ', '+']);
    let is_row = |text: &str| {
        let name = text.strip_prefix('{').and_then(|inner| inner.trim_start().strip_prefix('"'));
        name.is_some_and(|name| name.starts_with(|c: char| c.is_alphabetic() || "_?".contains(c)))
    };
    let is_array =
        |text: &str| text.strip_prefix('[').is_some_and(|a| a.trim_start().starts_with('{'));
    line == "[" || line == "{" || is_row(line) || is_array(line)
}

/// Consecutive values, and the table to which their rows belong.
#[derive(Default)]
pub(crate) struct JsonRows {
    table: Option<SavedTable>,
    /// The number of values begun: arrays, and rows outside of arrays.
    values: u64,
    /// The line where the array begins that is not closed.
    array: Option<LineNumber>,
    /// The number of brackets of the row that are not closed.
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// The row that is being read, and the line where it begins.
    row: Vec<u8>,
    row_line: LineNumber,
}

impl JsonRows {
    /// Whether the next piece of text is inside a value.
    pub(crate) fn is_within(&self) -> bool {
        self.depth > 0 || self.array.is_some()
    }

    pub(crate) fn take(&mut self, line: &TextLine<'_>, out: &mut SavedOutput<'_>) -> Next {
        if !self.is_within() && line.begins {
            if let Some(expected) = text::footer(line.text) {
                if expected != self.values {
                    let problem = SavedProblem::RowCount { expected, got: self.values };
                    out.error(problem.at(line.number));
                }
                return Next::Ended;
            }
            if !begins(line.text) {
                return Next::Again;
            }
        }
        for &byte in line.text.as_bytes() {
            if self.depth > 0 {
                self.take_byte_of_row(byte, out);
                continue;
            }
            match byte {
                b'[' if self.array.is_none() => {
                    self.array = Some(line.number);
                    self.values += 1;
                }
                b']' if self.array.is_some() => self.array = None,
                b'{' => {
                    self.values += u64::from(self.array.is_none());
                    self.depth = 1;
                    self.row_line = line.number;
                    self.row.push(byte);
                }
                // psql marks the end of a line within a value with a plus sign.
                b',' | b'+' => {}
                _ if byte.is_ascii_whitespace() => {}
                _ => {
                    let problem = SavedProblem::Json("expected a row such as {\"lp\":1, …}".into());
                    out.error(problem.at(line.number));
                    return Next::Skip;
                }
            }
        }
        Next::More
    }

    fn take_byte_of_row(&mut self, byte: u8, out: &mut SavedOutput<'_>) {
        if self.in_string {
            self.in_string = byte != b'"' || self.is_escaped;
            self.is_escaped = byte == b'\\' && !self.is_escaped;
        } else {
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth -= 1,
                b'+' => return,
                _ => {}
            }
        }
        // One byte too many shows that the row is too long.
        if self.row.len() <= MOST {
            self.row.push(byte);
        }
        if self.depth == 0 {
            let row = std::mem::take(&mut self.row);
            if row.len() > MOST {
                out.error(SavedProblem::TooLong(MOST).at(self.row_line));
            } else {
                read_row(&row, self.row_line, &mut self.table, out);
            }
        }
    }

    pub(crate) fn end(&mut self, out: &mut SavedOutput<'_>) {
        if self.is_within() {
            let begin = self.array.unwrap_or(self.row_line);
            let what = format!("the JSON value that begins at line {begin} is not closed");
            out.error(SavedProblem::Cut(what.into()).at(out.line));
        }
    }
}

fn read_row(
    row: &[u8],
    line: LineNumber,
    table: &mut Option<SavedTable>,
    out: &mut SavedOutput<'_>,
) {
    let cells: BTreeMap<String, Json> = match serde_json::from_slice(row) {
        Ok(cells) => cells,
        Err(error) => {
            let message = error.to_string();
            // The position is relative to the row, so it is not useful together with the line.
            let what = message.split(" at line ").next().unwrap_or_default();
            return out.error(SavedProblem::Json(what.to_owned()).at(line));
        }
    };
    let names = || cells.keys().map(String::as_str);
    if !table.as_ref().is_some_and(|table| table.header.has_names(names())) {
        let Some(header) = Header::by_names(names()) else {
            return out.error(SavedProblem::NoHeader.at(line));
        };
        *table = Some(SavedTable::begin(header, out));
    }
    let Some(table) = table else { return };
    let values: Vec<CellValue<'_>> = cells.values().map(cell).collect();
    if let Err(error) = table.push(line, &values, true, out) {
        out.error(error);
    }
}

fn cell(json: &Json) -> CellValue<'_> {
    match json {
        Json::Null => CellValue::Null,
        Json::String(text) => CellValue::Text(Cow::Borrowed(text)),
        Json::Array(elements) if elements.iter().all(|e| e.is_string() || e.is_null()) => {
            CellValue::Array(elements.iter().map(Json::as_str).collect())
        }
        other => CellValue::Text(Cow::Owned(other.to_string())),
    }
}
