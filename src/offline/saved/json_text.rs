//! A JSON value as its text comes, line by line or in parts of lines, without what psql draws around it.
//!
//! JSON has line breaks between its tokens only, so what psql draws at both ends of a line can be
//! told from it. The value is a row or an array of rows; each is handed on as soon as it is whole.

use super::LineNumber;
use super::chatter;

/// The longest row: a page of 32 kB takes 64 kB.
const LONGEST_ROW: usize = 1 << 20;

/// What stands in an array, or a single row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Element<'a> {
    Value(&'a str),
    /// A row of more than so many bytes.
    TooLong(usize),
}

/// A JSON value being read.
#[derive(Debug)]
pub(crate) struct Document {
    begin: LineNumber,
    /// Where it begins in its first line; `None` once that was taken.
    at: Option<usize>,
    csv: bool,
    nesting: Nesting,
    /// What is not handed on yet.
    text: String,
    /// Where in `text` the row that is being read begins, and its line.
    row: Option<(usize, LineNumber)>,
    /// The row being read is too long, and its text is dropped.
    too_long: bool,
    /// The last piece ended within its line.
    within_line: bool,
    /// That piece ended with a quote that may be one half of a doubled one.
    half_quote: bool,
    end: Option<End>,
}

/// How a value ended.
#[derive(Debug, Clone, Copy)]
struct End {
    closed: bool,
    /// Something stands behind the value in its last line.
    trailing: bool,
}

/// Follows the nesting of brackets outside strings.
#[derive(Debug, Default)]
struct Nesting {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The outermost bracket is that of an array.
    of_array: bool,
    /// The last character that is no white space.
    last: Option<char>,
}

/// What a character with a meaning does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    None,
    /// A row or what stands in its place begins.
    Begins,
    /// It ends.
    Ends,
    /// The value ends, and a single row with it.
    Closes,
}

impl Nesting {
    /// Takes characters none of which has a meaning.
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
    /// The value that begins at byte `at` of line `begin`, in a quoted cell of CSV or not.
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

    /// Whether the next piece of text belongs to the line of the last.
    pub(crate) fn continues_line(&self) -> bool {
        self.within_line
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.end.is_some_and(|end| end.closed)
    }

    pub(crate) fn has_trailing(&self) -> bool {
        self.end.is_some_and(|end| end.trailing)
    }

    /// Takes the next line or, with `is_part`, a piece of it that is not its last. Whether the value and the
    /// line have ended.
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

    /// Takes plain text up to a character with a meaning, or that.
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

    /// Takes a character with a meaning.
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

    /// Hands the row on that has ended with the text, and what stood before it.
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

/// Hands on what stands between rows and is none.
fn others(text: &str, number: LineNumber, rows: &mut dyn FnMut(Element<'_>, LineNumber)) {
    let is_between = |c: char| c.is_whitespace() || matches!(c, ',' | '[' | ']');
    for value in text.split(is_between).filter(|value| !value.is_empty()) {
        rows(Element::Value(value), number);
    }
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
