//! Rows made JSON by the server: `json_agg`, `row_to_json`, `jsonb_pretty` and the like, bare or
//! within one of psql's own forms.
//!
//! A value may be as long as it likes, in a single line too: it is read row by row.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::chatter;
use super::columns::{Header, is_known};
use super::error::Problem;
use super::json_text::{Document, Element};
use super::lines::Lines;
use super::out::{Out, Step};
use super::table::{Ending, Table, Value};
use super::{Form, LineNumber};

/// Where JSON begins in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Start {
    at: usize,
    /// It is a quoted cell of CSV: each of its quotes is doubled.
    csv: bool,
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

/// Values one after the other, and the table that their rows are of.
#[derive(Default)]
pub(crate) struct Values {
    table: Option<Table>,
    /// Those that have begun.
    count: u64,
    /// The one being read, and the last line of it that was.
    document: Option<(Document, LineNumber)>,
}

/// Begins the JSON that begins at the next line, if there is any.
pub(crate) fn begin(lines: &mut Lines<'_>) -> Option<Values> {
    start(lines.peek()?.text)?;
    Some(Values::default())
}

impl Values {
    /// Whether the text that comes next is within a value.
    pub(crate) fn are_within(&self) -> bool {
        self.document.is_some()
    }

    /// Reads values up to the last one's end.
    pub(crate) fn go_on(&mut self, lines: &mut Lines<'_>, out: &mut Out<'_>) -> Step {
        while !lines.pauses() {
            let Some((document, last)) = &mut self.document else {
                let start = lines.peek().and_then(|line| Some((line.number, start(line.text)?)));
                let Some((line, Start { at, csv })) = start else {
                    self.read_footer(lines, out);
                    return Step::Ended;
                };
                self.count += 1;
                self.document = Some((Document::new(line, at, csv), line));
                continue;
            };
            let Some(line) = lines.next() else {
                // the text ends within the value
                self.close(out);
                continue;
            };
            if !document.continues_line() {
                *last = line.number;
            }
            let (table, is_part) = (&mut self.table, lines.is_part(line));
            let ended = document.take(line.text, *last, is_part, &mut |element, line| {
                read_element(element, line, table, out);
            });
            if ended {
                self.close(out);
            }
        }
        Step::Paused
    }

    fn close(&mut self, out: &mut Out<'_>) {
        let Some((document, last)) = self.document.take() else { return };
        if !document.is_closed() {
            let begin = document.begin();
            let what = format!("the JSON value that begins at line {begin} is not closed");
            out.error(Problem::Cut(what.into()).at(last, None));
        } else if document.has_trailing() {
            let what = "unexpected text behind the value".to_owned();
            out.error(Problem::Json(what).at(last, None));
        }
    }

    fn read_footer(&self, lines: &mut Lines<'_>, out: &mut Out<'_>) {
        let mut ahead = *lines;
        if ahead.peek().is_some_and(|line| chatter::is_rule(line.text)) {
            ahead.next();
        }
        if let Some(line) = ahead.next()
            && let Some(expected) = chatter::footer(line.text)
        {
            *lines = ahead;
            if expected != self.count {
                let problem = Problem::RowCount { expected, got: self.count };
                out.error(problem.at(line.number, None));
            }
        }
    }
}

fn read_element(
    element: Element<'_>,
    line: LineNumber,
    table: &mut Option<Table>,
    out: &mut Out<'_>,
) {
    let value = match element {
        Element::TooLong(limit) => return out.error(Problem::TooLong(limit).at(line, None)),
        Element::Value(value) if !value.starts_with('{') => {
            let problem = Problem::expected("a row such as {\"lp\":1, …}", value);
            return out.error(problem.at(line, None));
        }
        Element::Value(value) => value,
    };
    match serde_json::from_str::<Row>(value) {
        Ok(row) => read_object(&row, line, table, out),
        Err(e) => {
            let message = e.to_string();
            // The place is within the row, which says nothing beside the line.
            let what = message.split(" at line ").next().unwrap_or_default().to_owned();
            out.error(Problem::Json(what).at(line, None));
        }
    }
}

/// The cells of a JSON row whose names can matter; what else is there takes no memory.
struct Row<'a>(Vec<(Cow<'a, str>, Cell<'a>)>);

/// One cell of a JSON row.
enum Cell<'a> {
    Null,
    Text(Cow<'a, str>),
    Array(Vec<Option<String>>),
}

impl<'de> Deserialize<'de> for Row<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Cells;

        impl<'de> Visitor<'de> for Cells {
            type Value = Row<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a row")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Row<'de>, A::Error> {
                let mut cells: Vec<(Cow<'de, str>, Cell<'de>)> = Vec::new();
                while let Some(Name(name)) = map.next_key()? {
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

/// A name, borrowed where nothing in it is escaped.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Cell::deserialize(deserializer)? {
            Cell::Text(name) => Ok(Name(name)),
            Cell::Null | Cell::Array(_) => Err(D::Error::custom("expected a name")),
        }
    }
}

impl<'de> Deserialize<'de> for Cell<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Cell<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, a string, null or an array of strings")
            }

            fn visit_unit<E: Error>(self) -> Result<Cell<'de>, E> {
                Ok(Cell::Null)
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Cell<'de>, E> {
                Ok(Cell::Text(number.to_string().into()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Cell<'de>, E> {
                Ok(Cell::Text(number.to_string().into()))
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Cell<'de>, E> {
                Ok(Cell::Text(text.into()))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Cell<'de>, E> {
                Ok(Cell::Text(text.to_owned().into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Cell<'de>, A::Error> {
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
    Row(cells): &Row<'_>,
    line: LineNumber,
    table: &mut Option<Table>,
    out: &mut Out<'_>,
) {
    let names = || cells.iter().map(|(name, _)| name.as_ref());
    let table = match table {
        Some(table) if table.header().has_names(names()) => table,
        _ => {
            let names: Vec<&str> = names().collect();
            let Some(header) = Header::of_names(&names) else {
                out.error(Problem::UnknownColumns.at(line, None));
                return;
            };
            table.insert(Table::begin(header, Form::Json, line, out))
        }
    };
    let values: Vec<Value<'_>> = cells
        .iter()
        .map(|(_, cell)| match cell {
            Cell::Null => Value::Null,
            Cell::Text(text) => Value::Text(text),
            Cell::Array(elements) => Value::Array(elements),
        })
        .collect();
    table.push(line, &values, Ending::Seen, out);
}
