//! Rows made JSON by the server: `json_agg`, `row_to_json`, `jsonb_pretty` and the like, bare or
//! within one of psql's own forms.
//!
//! JSON has line breaks between its tokens only, so what psql draws at both ends of a line can be
//! told from it.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::chatter;
use super::columns::{Ending, Header, Table, Value, is_known};
use super::error::{Problem, SavedError};
use super::lines::{Line, Lines};
use super::{Form, LineNumber, SavedResult};

/// Where JSON begins in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Start {
    at: usize,
    /// It is a quoted cell of CSV: each of its quotes is doubled.
    csv: bool,
}

/// A JSON value without what psql drew around it.
#[derive(Debug, Default)]
struct Document {
    text: String,
    /// Where in `text` each line begins.
    lines: Vec<(usize, LineNumber)>,
    closed: bool,
    /// Something stands behind the value in its last line.
    trailing: bool,
}

fn start(line: &str) -> Option<Start> {
    let at = line.find(['[', '{'])?;
    let before = &line[..at];
    let csv = before.ends_with('"');
    let before = before.strip_suffix('"').unwrap_or(before);
    // At most a name of a column, and what stands between it and its value.
    let label = before.trim_matches(|c: char| {
        chatter::is_separator(c) || c.is_whitespace() || matches!(c, ',' | ';')
    });
    let labelled = !label.is_empty();
    if label.contains(|c: char| !(c.is_alphanumeric() || c == '_' || c == '?'))
        || (labelled && before.ends_with(|c: char| c.is_alphanumeric() || c == '_'))
    {
        return None;
    }
    let inner = line[at + 1..].trim_start();
    let drawn = inner.trim_matches(|c: char| chatter::is_separator(c) || " +↵.…".contains(c));
    let quote = if csv { "\"\"" } else { "\"" };
    let begins = match line.as_bytes()[at] {
        b'[' => inner.starts_with('{'),
        _ => inner
            .strip_prefix(quote)
            .is_some_and(|name| name.starts_with(|c: char| c.is_alphabetic() || "_?".contains(c))),
    };
    (begins || drawn.is_empty() && !labelled).then_some(Start { at, csv })
}

/// Whether JSON begins in a line.
pub(crate) fn begins(line: &str) -> bool {
    start(line).is_some()
}

/// Reads the JSON that begins at the next line, if there is any.
pub(crate) fn read(
    lines: &mut Lines<'_>,
    errors: &mut Vec<SavedError>,
) -> Option<Vec<SavedResult>> {
    start(lines.peek()?.text)?;
    let mut results = Vec::new();
    let mut table = None;
    let mut values = 0;
    while let Some(line) = lines.peek() {
        let Some(start) = start(line.text) else { break };
        let document = collect(lines, start);
        values += 1;
        read_document(&document, line.number, &mut table, &mut results, errors);
        let end = document.lines.last().map_or(line.number, |&(_, number)| number);
        if !document.closed {
            let what = format!("the JSON value that begins at line {} is not closed", line.number);
            errors.push(Problem::Cut(what.into()).at(end, None));
        } else if document.trailing {
            let what = "unexpected text behind the value".to_owned();
            errors.push(Problem::Json(what).at(end, None));
        }
    }
    results.extend(table.map(Table::finish));
    let mut ahead = *lines;
    if ahead.peek().is_some_and(|line| chatter::is_rule(line.text)) {
        ahead.next();
    }
    if let Some(line) = ahead.next()
        && let Some(expected) = chatter::footer(line.text)
    {
        *lines = ahead;
        if expected != values {
            errors.push(Problem::RowCount { expected, got: values }.at(line.number, None));
        }
    }
    Some(results)
}

/// Follows the nesting of brackets outside strings.
#[derive(Debug, Default)]
struct Nesting {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The last character that is no white space.
    last: Option<char>,
}

impl Nesting {
    /// Takes one more character; whether it closed the outermost bracket.
    fn closes(&mut self, c: char) -> bool {
        if !c.is_whitespace() {
            self.last = Some(c);
        }
        if self.in_string {
            let ends = c == '"' && !self.escaped;
            self.escaped = c == '\\' && !self.escaped;
            self.in_string = !ends;
            return false;
        }
        match c {
            '"' => self.in_string = true,
            '[' | '{' => self.depth += 1,
            ']' | '}' => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }
}

/// Takes the lines of the value that begins in the next line.
fn collect(lines: &mut Lines<'_>, start: Start) -> Document {
    let mut document = Document::default();
    let mut nesting = Nesting::default();
    let mut first = true;
    for Line { text, number, .. } in lines.by_ref() {
        let text = if first { &text[start.at..] } else { left_drawing_off(text, &nesting) };
        first = false;
        document.lines.push((document.text.len(), number));
        let mut chars = text.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            if start.csv && c == '"' && chars.next_if(|&(_, next)| next == '"').is_none() {
                // The quoted cell ends within the value.
                return document;
            }
            document.text.push(c);
            if nesting.closes(c) {
                document.closed = true;
                let behind = &text[at + c.len_utf8()..];
                document.trailing = behind.contains(|c: char| {
                    !(chatter::is_separator(c) || c.is_whitespace() || c == '"' && start.csv)
                });
                return document;
            }
        }
        if !start.csv {
            right_drawing_off(&mut document.text, &nesting);
        }
    }
    document
}

/// The line without border, mark and blanks on its left.
fn left_drawing_off<'a>(line: &'a str, nesting: &Nesting) -> &'a str {
    // A colon of JSON's own stands behind a name.
    let between_values = nesting.last != Some('"');
    line.trim_start_matches(|c: char| {
        c == ' '
            || chatter::is_separator(c)
            || matches!(c, '.' | '…' | ';')
            || (c == ':' && !nesting.in_string && between_values)
    })
}

/// Takes border, mark and blanks off the end. A cell that was too wide goes on without a gap.
fn right_drawing_off(text: &mut String, nesting: &Nesting) {
    let plain = text.trim_end_matches(|c: char| c == ' ' || chatter::is_separator(c));
    let unmarked = plain.strip_suffix(['.', '…', '+', '↵']).unwrap_or(plain);
    let wrapped = nesting.in_string || plain.ends_with(['.', '…']);
    text.truncate(unmarked.len());
    if !wrapped {
        text.push('\n');
    }
}

/// Reads a row, or an array of rows as far as it goes.
fn read_document(
    document: &Document,
    first: LineNumber,
    table: &mut Option<Table<'static>>,
    results: &mut Vec<SavedResult>,
    errors: &mut Vec<SavedError>,
) {
    let text = document.text.as_str();
    let mut at = usize::from(text.starts_with('['));
    while let Some(offset) = text[at..].find(|c: char| !c.is_whitespace() && c != ',') {
        at += offset;
        if text[at..].starts_with(']') {
            return;
        }
        let line = document
            .lines
            .partition_point(|&(begin, _)| begin <= at)
            .checked_sub(1)
            .and_then(|i| document.lines.get(i))
            .map_or(first, |&(_, line)| line);
        let Some(length) = value_length(&text[at..]) else { return };
        let value = &text[at..at + length];
        at += length;
        if !value.starts_with('{') {
            let problem = Problem::expected("a row such as {\"lp\":1, …}", value);
            errors.push(problem.at(line, None));
            continue;
        }
        match serde_json::from_str::<Row>(value) {
            Ok(row) => read_object(&row, line, table, results, errors),
            Err(e) => {
                let message = e.to_string();
                // The place is within the row, which says nothing beside the line.
                let what = message.split(" at line ").next().unwrap_or_default().to_owned();
                errors.push(Problem::Json(what).at(line, None));
            }
        }
    }
}

/// Length of the value at the begin of a text, `None` if it is not whole.
fn value_length(text: &str) -> Option<usize> {
    if !text.starts_with(['{', '[']) {
        // At least one character, so that a stray brace is passed too.
        let first = text.chars().next()?.len_utf8();
        return text[first..].find([',', ']', '}']).map(|at| first + at);
    }
    let mut nesting = Nesting::default();
    text.char_indices().find(|&(_, c)| nesting.closes(c)).map(|(at, c)| at + c.len_utf8())
}

/// The cells of a JSON row whose names can matter; what else is there takes no memory.
struct Row(Vec<(String, Cell)>);

/// One cell of a JSON row.
enum Cell {
    Null,
    Text(String),
    Array(Vec<Option<String>>),
}

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Row, D::Error> {
        struct Cells;

        impl<'de> Visitor<'de> for Cells {
            type Value = Row;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a row")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Row, A::Error> {
                let mut cells: Vec<(String, Cell)> = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if is_known(&name) && cells.iter().all(|(other, _)| *other != name) {
                        cells.push((name, map.next_value()?));
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Row(cells))
            }
        }

        deserializer.deserialize_map(Cells)
    }
}

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cell, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Cell;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, a string, null or an array of strings")
            }

            fn visit_unit<E: Error>(self) -> Result<Cell, E> {
                Ok(Cell::Null)
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Cell, E> {
                Ok(Cell::Text(number.to_string()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Cell, E> {
                Ok(Cell::Text(number.to_string()))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Cell, E> {
                Ok(Cell::Text(text.to_owned()))
            }

            fn visit_string<E: Error>(self, text: String) -> Result<Cell, E> {
                Ok(Cell::Text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Cell, A::Error> {
                let mut array = Vec::new();
                while let Some(element) = elements.next_element()? {
                    array.push(element);
                }
                Ok(Cell::Array(array))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

fn read_object(
    Row(cells): &Row,
    line: LineNumber,
    table: &mut Option<Table<'static>>,
    results: &mut Vec<SavedResult>,
    errors: &mut Vec<SavedError>,
) {
    let names: Vec<&str> = cells.iter().map(|(name, _)| name.as_str()).collect();
    let Some(header) = Header::of_names(&names) else {
        errors.push(Problem::UnknownColumns.at(line, None));
        return;
    };
    let same = table.as_ref().is_some_and(|table| table.header().same_as(&header));
    if !same {
        results.extend(table.take().map(Table::finish));
    }
    let table = table.get_or_insert_with(|| Table::new(header.into_owned(), Form::Json, line));
    let values: Vec<Value<'_>> = cells
        .iter()
        .map(|(_, cell)| match cell {
            Cell::Null => Value::Null,
            Cell::Text(text) => Value::Text(text),
            Cell::Array(elements) => Value::Array(elements),
        })
        .collect();
    table.push(line, &values, Ending::Seen, errors);
}
