//! Rows that the server has converted to JSON with `json_agg`, `row_to_json`, `jsonb_pretty` and similar functions,
//! bare or inside one of psql's own formats.
//!
//! A value may have any length, even on a single line: it is read row by row as its text arrives. JSON has line breaks
//! only between its tokens, so it can be distinguished from what psql prints at both ends of a line.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::error::Problem;
use super::lines::{Lines, Out, Step};
use super::table::{Ending, Header, Table, Value, is_known};
use super::{Form, LineNumber, chatter};

/// The position where JSON begins on a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Start {
    at: usize,
    /// Whether it is in a quoted cell of CSV, where each of its quotes is doubled.
    csv: bool,
}

fn start(line: &str) -> Option<Start> {
    let at = line.find(['[', '{'])?;
    let before = &line[..at];
    let csv = before.ends_with('"');
    let before = before.strip_suffix('"').unwrap_or(before);
    // At most the name of a column, and the text between it and its value.
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

/// Whether JSON begins on a line.
pub(crate) fn begins(line: &str) -> bool {
    start(line).is_some()
}

/// Consecutive values, and the table to which their rows belong.
#[derive(Default)]
pub(crate) struct Values {
    table: Option<Table>,
    /// The number of values begun.
    count: u64,
    /// The value being read, and its last line that was read.
    document: Option<(Document, LineNumber)>,
}

/// Begins the JSON on the next line, if there is any.
pub(crate) fn begin(lines: &mut Lines<'_>) -> Option<Values> {
    start(lines.peek()?.text)?;
    Some(Values::default())
}

impl Values {
    /// Whether the next text is inside a value.
    pub(crate) fn are_within(&self) -> bool {
        self.document.is_some()
    }

    /// Reads values until the end of the last one.
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
                // The text ends within the value.
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
            let what = "unexpected text after the value".to_owned();
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
            // The position is relative to the row, so it is not useful together with the line.
            let what = message.split(" at line ").next().unwrap_or_default().to_owned();
            out.error(Problem::Json(what).at(line, None));
        }
    }
}

/// The cells of a JSON row whose names are relevant; others take no memory.
struct Row<'a>(Vec<(Cow<'a, str>, Cell<'a>)>);

/// A cell of a JSON row.
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

/// A name, borrowed if it contains no escapes.
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

/// The maximum length of a row: a page of 32 kB takes 64 kB.
const LONGEST_ROW: usize = 1 << 20;

/// An element of an array, or a single row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Element<'a> {
    Value(&'a str),
    /// A row longer than this number of bytes.
    TooLong(usize),
}

/// A JSON value that is being read.
#[derive(Debug)]
pub(crate) struct Document {
    begin: LineNumber,
    /// The offset of its beginning in its first line; `None` once that was taken.
    at: Option<usize>,
    csv: bool,
    nesting: Nesting,
    /// Text that was not passed on yet.
    text: String,
    /// The offset in `text` of the row that is being read, and its line.
    row: Option<(usize, LineNumber)>,
    /// Whether the row being read is too long, so that its text is dropped.
    too_long: bool,
    /// Whether the last piece ended within its line.
    within_line: bool,
    /// Whether that piece ended with a quote that may be half of a doubled one.
    half_quote: bool,
    end: Option<End>,
}

/// How a value ended.
#[derive(Debug, Clone, Copy)]
struct End {
    closed: bool,
    /// Whether text follows the value on its last line.
    trailing: bool,
}

/// Tracks the nesting of brackets outside strings.
#[derive(Debug, Default)]
struct Nesting {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Whether the outermost bracket is that of an array.
    of_array: bool,
    /// The last character other than white space.
    last: Option<char>,
}

/// The effect of a significant character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    None,
    /// A row, or another element in its place, begins.
    Begins,
    /// That row or element ends.
    Ends,
    /// The value ends, and with it a single row.
    Closes,
}

impl Nesting {
    /// Takes characters that are not significant.
    fn pass(&mut self, plain: &str) {
        self.escaped = false;
        self.last = plain.chars().rev().find(|c| !c.is_whitespace()).or(self.last);
    }

    /// Takes a quote, a backslash or a bracket.
    fn turn(&mut self, c: char) -> Turn {
        self.last = Some(c);
        if self.in_string {
            let ends = c == '"' && !self.escaped;
            self.escaped = c == '\\' && !self.escaped;
            self.in_string = !ends;
            return Turn::None;
        }
        let of_rows = usize::from(self.of_array);
        match c {
            '"' => self.in_string = true,
            '[' if self.depth == 0 => {
                self.of_array = true;
                self.depth = 1;
            }
            '[' | '{' => {
                self.depth += 1;
                if self.depth == of_rows + 1 {
                    return Turn::Begins;
                }
            }
            ']' | '}' => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    return Turn::Closes;
                }
                if self.depth == of_rows {
                    return Turn::Ends;
                }
            }
            _ => {}
        }
        Turn::None
    }
}

impl Document {
    /// The value that begins at byte `at` of line `begin`; `csv`: in a quoted cell of CSV.
    pub(crate) fn new(begin: LineNumber, at: usize, csv: bool) -> Document {
        Document {
            begin,
            at: Some(at),
            csv,
            nesting: Nesting::default(),
            text: String::new(),
            row: None,
            too_long: false,
            within_line: false,
            half_quote: false,
            end: None,
        }
    }

    pub(crate) fn begin(&self) -> LineNumber {
        self.begin
    }

    /// Whether the next piece of text continues the line of the last one.
    pub(crate) fn continues_line(&self) -> bool {
        self.within_line
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.end.is_some_and(|end| end.closed)
    }

    pub(crate) fn has_trailing(&self) -> bool {
        self.end.is_some_and(|end| end.trailing)
    }

    /// Takes the next line or, with `is_part`, a piece of it other than the last. Returns whether both the value and
    /// the line have ended.
    pub(crate) fn take(
        &mut self,
        line: &str,
        number: LineNumber,
        is_part: bool,
        rows: &mut dyn FnMut(Element<'_>, LineNumber),
    ) -> bool {
        let text = match self.at.take() {
            Some(at) => line.get(at..).unwrap_or_default(),
            None if self.within_line => line,
            None => left_drawing_off(line, &self.nesting),
        };
        self.within_line = is_part;
        let mut rest = text;
        while self.end.is_none() && !rest.is_empty() {
            rest = self.take_some(rest, number, is_part, rows);
        }
        if let Some(end) = &mut self.end {
            if end.closed {
                end.trailing |= rest.contains(|c: char| {
                    !(chatter::is_separator(c) || c.is_whitespace() || c == '"' && self.csv)
                });
            }
            return !is_part;
        }
        if !is_part {
            if !self.csv {
                right_drawing_off(&mut self.text, &self.nesting);
            }
            if self.row.is_none() && self.text.ends_with('\n') {
                self.hand_on_others(number, rows);
            }
        }
        if self.text.len() > LONGEST_ROW {
            match self.row {
                Some(_) => self.too_long = true,
                None => self.hand_on_others(number, rows),
            }
            self.row = self.row.map(|(_, line)| (0, line));
            self.text.clear();
        }
        false
    }

    /// Takes plain text up to a significant character, or such a character.
    fn take_some<'t>(
        &mut self,
        text: &'t str,
        number: LineNumber,
        is_part: bool,
        rows: &mut dyn FnMut(Element<'_>, LineNumber),
    ) -> &'t str {
        if std::mem::take(&mut self.half_quote) {
            let Some(rest) = text.strip_prefix('"') else { return self.end_of_cell(text) };
            self.take_turn('"', number, rows);
            return rest;
        }
        let has_meaning = |b: u8| matches!(b, b'"' | b'\\' | b'[' | b']' | b'{' | b'}');
        let plain = text.bytes().position(has_meaning).unwrap_or(text.len());
        if plain > 0 {
            let (plain, rest) = text.split_at(plain);
            self.nesting.pass(plain);
            self.text.push_str(plain);
            return rest;
        }
        let mut chars = text.chars();
        let Some(c) = chars.next() else { return text };
        let mut rest = chars.as_str();
        if self.csv && c == '"' {
            if rest.is_empty() && is_part {
                self.half_quote = true;
                return rest;
            }
            let Some(behind) = rest.strip_prefix('"') else { return self.end_of_cell(rest) };
            rest = behind;
        }
        self.take_turn(c, number, rows);
        rest
    }

    /// The quoted cell ends within the value.
    fn end_of_cell<'t>(&mut self, rest: &'t str) -> &'t str {
        self.end = Some(End { closed: false, trailing: false });
        rest
    }

    /// Takes a significant character.
    fn take_turn(
        &mut self,
        c: char,
        number: LineNumber,
        rows: &mut dyn FnMut(Element<'_>, LineNumber),
    ) {
        let before = self.text.len();
        self.text.push(c);
        match self.nesting.turn(c) {
            Turn::None => {}
            Turn::Begins => self.row = Some((before, number)),
            Turn::Ends => self.hand_on(number, rows),
            Turn::Closes => {
                self.hand_on(number, rows);
                self.end = Some(End { closed: true, trailing: false });
            }
        }
    }

    /// Passes on the row that ends here, and the text before it.
    fn hand_on(&mut self, number: LineNumber, rows: &mut dyn FnMut(Element<'_>, LineNumber)) {
        match self.row.take() {
            Some((_, line)) if std::mem::take(&mut self.too_long) => {
                rows(Element::TooLong(LONGEST_ROW), line);
            }
            Some((at, line)) => {
                let (before, row) = self.text.split_at(at);
                others(before, number, rows);
                rows(Element::Value(row), line);
            }
            None => others(&self.text, number, rows),
        }
        self.text.clear();
    }

    fn hand_on_others(
        &mut self,
        number: LineNumber,
        rows: &mut dyn FnMut(Element<'_>, LineNumber),
    ) {
        others(&self.text, number, rows);
        self.text.clear();
    }
}

/// Passes on text between rows that is not a row.
fn others(text: &str, number: LineNumber, rows: &mut dyn FnMut(Element<'_>, LineNumber)) {
    let is_between = |c: char| c.is_whitespace() || matches!(c, ',' | '[' | ']');
    for value in text.split(is_between).filter(|value| !value.is_empty()) {
        rows(Element::Value(value), number);
    }
}

/// The line without border, mark and blanks on its left.
fn left_drawing_off<'a>(line: &'a str, nesting: &Nesting) -> &'a str {
    // After a name, a colon belongs to the JSON text.
    let between_values = nesting.last != Some('"');
    line.trim_start_matches(|c: char| {
        c == ' '
            || chatter::is_separator(c)
            || matches!(c, '.' | '…' | ';')
            || (c == ':' && !nesting.in_string && between_values)
    })
}

/// Removes border, mark and blanks at the end. A cell that was too wide continues without a gap.
fn right_drawing_off(text: &mut String, nesting: &Nesting) {
    let plain = text.trim_end_matches(|c: char| c == ' ' || chatter::is_separator(c));
    let unmarked = plain.strip_suffix(['.', '…', '+', '↵']).unwrap_or(plain);
    let wrapped = nesting.in_string || plain.ends_with(['.', '…']);
    text.truncate(unmarked.len());
    if !wrapped {
        text.push('\n');
    }
}
