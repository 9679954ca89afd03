//! Rows that the server has converted to JSON with `json_agg`, `row_to_json`, `jsonb_pretty` and similar functions,
//! bare or in psql's aligned format.
//!
//! A value may have any length, even on a single line: it is read row by row as its bytes arrive.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::error::SavedProblem;
use super::reader::{MOST, Reader};
use super::table::{Header, PrintedTable};
use super::text;

/// Where in the JSON values the text is.
#[derive(Default)]
struct JsonPosition {
    /// The line where the array begins that is not closed.
    array: Option<usize>,
    /// The number of brackets of the row that are not closed.
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// The row that is being read, and the line where it begins.
    row: Vec<u8>,
    row_line: usize,
}

impl JsonPosition {
    fn is_within(&self) -> bool {
        self.depth > 0 || self.array.is_some()
    }

    /// Takes a byte of a row; true at the row's end.
    fn ends_row(&mut self, byte: u8) -> bool {
        if self.in_string {
            self.in_string = byte != b'"' || self.is_escaped;
            self.is_escaped = byte == b'\\' && !self.is_escaped;
        } else {
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth -= 1,
                // psql marks the end of a line within a value with a plus sign.
                b'+' => return false,
                _ => {}
            }
        }
        // One byte too many shows that the row is too long.
        if self.row.len() <= MOST {
            self.row.push(byte);
        }
        self.depth == 0
    }
}

impl Reader<'_> {
    /// Reads consecutive JSON values: arrays, and rows outside of arrays.
    pub(super) fn json(&mut self) {
        let mut table = None;
        let mut at = JsonPosition::default();
        let mut values = 0;
        while let Some(line) = self.piece() {
            if !at.is_within() && line.begins {
                if let Some(expected) = text::footer(&line.text) {
                    return self.check_footer(line.number, expected, values);
                }
                if !text::begins_json(&line.text) {
                    return self.put_back(line);
                }
            }
            for byte in line.text.bytes() {
                if at.depth > 0 {
                    if at.ends_row(byte) {
                        self.json_row(&mut table, at.row_line, &at.row);
                        at.row.clear();
                    }
                    continue;
                }
                match byte {
                    b'[' if at.array.is_none() => {
                        at.array = Some(line.number);
                        values += 1;
                    }
                    b']' if at.array.is_some() => at.array = None,
                    b'{' => {
                        values += u64::from(at.array.is_none());
                        at.row_line = line.number;
                        at.ends_row(byte);
                    }
                    b',' | b'+' => {}
                    _ if byte.is_ascii_whitespace() => {}
                    _ => {
                        let what = "invalid JSON: expected a row such as {\"lp\":1, …}";
                        self.error(SavedProblem::Other(what.into()).at(line.number));
                        return self.skip();
                    }
                }
            }
        }
        if at.is_within() {
            let begin = at.array.unwrap_or(at.row_line);
            let what = format!("the JSON value that begins at line {begin} is not closed");
            self.error(SavedProblem::cut(&what).at(self.line));
        }
    }

    fn json_row(&mut self, last: &mut Option<PrintedTable>, line: usize, row: &[u8]) {
        if row.len() > MOST {
            return self.too_long(line);
        }
        let cells: BTreeMap<String, Json> = match serde_json::from_slice(row) {
            Ok(cells) => cells,
            Err(error) => {
                let message = error.to_string();
                // The position is relative to the row, so it is not useful together with the line.
                let what = message.split(" at line ").next().unwrap_or_default();
                let what = format!("invalid JSON: {what}");
                return self.error(SavedProblem::Other(what).at(line));
            }
        };
        let names = || cells.keys().map(String::as_str);
        let table = match last {
            Some(table) if table.header.has_names(names()) => table,
            _ => match Header::by_names(names()) {
                Some(header) => last.insert(self.begin(header)),
                None => return self.error(SavedProblem::OtherFormat.at(line)),
            },
        };
        let values: Vec<Cow<'_, str>> = cells.values().map(printed).collect();
        if let Err(error) = self.push(table, line, &values, true) {
            self.error(error);
        }
    }
}

/// A value as psql prints it; an empty text is NULL.
fn printed(json: &Json) -> Cow<'_, str> {
    match json {
        Json::Null => "".into(),
        Json::String(text) => text.into(),
        Json::Array(elements) if elements.iter().all(|e| e.is_string() || e.is_null()) => {
            let elements = elements.iter().map(|element| match element.as_str() {
                Some(bytea) => format!("\"\\{bytea}\""),
                None => "NULL".to_owned(),
            });
            format!("{{{}}}", elements.collect::<Vec<_>>().join(",")).into()
        }
        other => other.to_string().into(),
    }
}
