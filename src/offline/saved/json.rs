//! Rows that the server has converted to JSON with `json_agg`, `row_to_json`, `jsonb_pretty` and similar functions,
//! bare or in psql's aligned format.
//!
//! A value may have any length, even on a single line: it is read row by row as its bytes arrive.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::error::Problem;
use super::table::{Header, Table, Value};
use super::{Form, Line, LineNumber, MOST, Next, Out, text};

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
pub(crate) struct Values {
    table: Option<Table>,
    /// The number of values begun.
    count: u64,
    /// The value that is being read.
    value: Option<OpenValue>,
}

/// A value that is not closed yet.
struct OpenValue {
    begin: LineNumber,
    /// The number of brackets that are not closed.
    depth: usize,
    /// The depth of rows: 1 for a single row, 2 in an array.
    row_depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// The row that is being read, and the line where it begins.
    row: Vec<u8>,
    row_line: LineNumber,
    has_other_text: bool,
}

impl Values {
    /// Whether the next piece of text is inside a value.
    pub(crate) fn is_within(&self) -> bool {
        self.value.is_some()
    }

    pub(crate) fn take(&mut self, line: &Line<'_>, out: &mut Out<'_>) -> Next {
        if self.value.is_none() {
            if line.begins
                && let Some(expected) = text::footer(line.text)
            {
                if expected != self.count {
                    let problem = Problem::RowCount { expected, got: self.count };
                    out.error(problem.at(line.number));
                }
                return Next::Ended;
            }
            if !line.begins {
                if line.text.trim().is_empty() {
                    return Next::More;
                }
                let problem = Problem::Json("unexpected text after the value".into());
                out.error(problem.at(line.number));
                return Next::Ended;
            }
            if !begins(line.text) {
                return Next::Again;
            }
            self.count += 1;
            let row_depth = if line.text.trim_start().starts_with('[') { 2 } else { 1 };
            self.value = Some(OpenValue::new(line.number, row_depth));
        }
        self.take_bytes(line.text.as_bytes(), line.number, out);
        Next::More
    }

    fn take_bytes(&mut self, bytes: &[u8], number: LineNumber, out: &mut Out<'_>) {
        let Values { table, value: open, .. } = self;
        for (at, &byte) in bytes.iter().enumerate() {
            let Some(value) = open else { return };
            match value.take(byte, number) {
                Step::Within => {}
                Step::OtherText => {
                    let problem = Problem::Json("expected a row such as {\"lp\":1, …}".into());
                    out.error(problem.at(number));
                }
                Step::RowEnds => {
                    if value.row.len() > MOST {
                        out.error(Problem::TooLong(MOST).at(value.row_line));
                    } else {
                        read_row(&value.row, value.row_line, table, out);
                    }
                    value.row = Vec::new();
                }
            }
            if value.depth == 0 && matches!(byte, b'}' | b']') {
                let rest = &bytes[at + 1..];
                if rest.iter().any(|b| !b.is_ascii_whitespace()) {
                    let problem = Problem::Json("unexpected text after the value".into());
                    out.error(problem.at(number));
                }
                *open = None;
            }
        }
    }

    pub(crate) fn end(&mut self, out: &mut Out<'_>) {
        if let Some(value) = &self.value {
            let what = format!("the JSON value that begins at line {} is not closed", value.begin);
            out.error(Problem::Cut(what.into()).at(out.line));
        }
    }
}

enum Step {
    Within,
    RowEnds,
    /// The first text between rows that is not a row.
    OtherText,
}

impl OpenValue {
    fn new(begin: LineNumber, row_depth: usize) -> OpenValue {
        OpenValue {
            begin,
            depth: 0,
            row_depth,
            in_string: false,
            is_escaped: false,
            row: Vec::new(),
            row_line: begin,
            has_other_text: false,
        }
    }

    fn take(&mut self, byte: u8, number: LineNumber) -> Step {
        if self.in_string {
            self.in_string = byte != b'"' || self.is_escaped;
            self.is_escaped = byte == b'\\' && !self.is_escaped;
        } else {
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => {
                    self.depth += 1;
                    if self.depth == self.row_depth {
                        self.row_line = number;
                    }
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth + 1 == self.row_depth {
                        self.row.push(byte);
                        return Step::RowEnds;
                    }
                }
                // psql marks the end of a line within a value with a plus sign.
                b'+' => return Step::Within,
                _ => {}
            }
        }
        if self.depth >= self.row_depth {
            // One byte too many shows that the row is too long.
            if self.row.len() <= MOST {
                self.row.push(byte);
            }
            return Step::Within;
        }
        let is_between = byte.is_ascii_whitespace() || matches!(byte, b',' | b'[' | b']');
        if is_between || std::mem::replace(&mut self.has_other_text, true) {
            return Step::Within;
        }
        Step::OtherText
    }
}

fn read_row(row: &[u8], line: LineNumber, table: &mut Option<Table>, out: &mut Out<'_>) {
    let cells: BTreeMap<String, Json> = match serde_json::from_slice(row) {
        Ok(cells) => cells,
        Err(error) => {
            let message = error.to_string();
            // The position is relative to the row, so it is not useful together with the line.
            let what = message.split(" at line ").next().unwrap_or_default();
            return out.error(Problem::Json(what.to_owned()).at(line));
        }
    };
    let names = || cells.keys().map(String::as_str);
    if !table.as_ref().is_some_and(|table| table.header.has_names(names())) {
        let Some(header) = Header::by_names(names()) else {
            return out.error(Problem::NoHeader.at(line));
        };
        *table = Some(Table::begin(header, Form::Json, line, out));
    }
    let Some(table) = table else { return };
    let values: Vec<Value<'_>> = cells.values().map(cell).collect();
    if let Err(error) = table.push(line, &values, true, out) {
        out.error(error);
    }
}

fn cell(json: &Json) -> Value<'_> {
    match json {
        Json::Null => Value::Null,
        Json::String(text) => Value::Text(Cow::Borrowed(text)),
        Json::Array(elements) if elements.iter().all(|e| e.is_string() || e.is_null()) => {
            Value::Array(elements.iter().map(Json::as_str).collect())
        }
        other => Value::Text(Cow::Owned(other.to_string())),
    }
}
