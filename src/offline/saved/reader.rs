//! Finds the results in a text, and goes on with one whose rows come in several parts of it: the lines that all forms
//! are read from, and where they give what they find.

use super::error::{Problem, SavedError};
use super::{Form, Kind, LineNumber, SavedSink, aligned, chatter, delimited, expanded, json};

/// A result that is being read, or something that is being passed over.
pub(crate) enum Open {
    Aligned(aligned::Rows),
    Blanks(aligned::BlankRows),
    Foreign(aligned::Foreign),
    Delimited(delimited::Rows),
    Expanded(expanded::Records),
    Json(json::Values),
    /// Lines like the one that could not be read, which would give the same error.
    Alike,
}

impl Open {
    fn go_on(&mut self, lines: &mut Lines<'_>, out: &mut Out<'_>) -> Step {
        match self {
            Open::Aligned(rows) => rows.go_on(lines, out),
            Open::Blanks(rows) => rows.go_on(lines, out),
            Open::Foreign(foreign) => foreign.go_on(lines, out),
            Open::Delimited(rows) => rows.go_on(lines, out),
            Open::Expanded(records) => records.go_on(lines, out),
            Open::Json(values) => values.go_on(lines, out),
            Open::Alike => pass_over_alike(lines),
        }
    }
}

/// Reads the parts of one text.
#[derive(Default)]
pub(crate) struct Reader {
    /// What an earlier part began, and the line where it began.
    open: Option<(LineNumber, Open)>,
}

impl Reader {
    /// Whether a line that is not whole can be read: JSON may take any length.
    pub(crate) fn takes_part_of(&self, line: &str) -> bool {
        match &self.open {
            Some((_, Open::Json(values))) => values.are_within() || json::begins(line),
            None | Some((_, Open::Foreign(_))) => json::begins(line),
            Some((_, Open::Alike)) => json::begins(line) && !chatter::looks_like_data(line),
            Some(_) => false,
        }
    }

    /// Reads up to where the lines pause or end.
    pub(crate) fn read(&mut self, lines: &mut Lines<'_>, out: &mut Out<'_>) {
        loop {
            if let Some((began, open)) = &mut self.open {
                if open.go_on(lines, out) == Step::Paused {
                    return;
                }
                if lines.next_number() == *began {
                    lines.next();
                }
                self.open = None;
            }
            if lines.pauses() {
                return;
            }
            let Some(line) = lines.peek() else { return };
            if line.text.trim().is_empty() || chatter::footer(line.text).is_some() {
                lines.next();
            } else if let Some(message) = chatter::server_error(line.text) {
                lines.next();
                out.error(Problem::Server(message.to_owned()).at(line.number, None));
            } else {
                match begin(lines, out) {
                    Some(Ok(open)) => self.open = Some((line.number, open)),
                    Some(Err(error)) => {
                        out.error(error);
                        lines.next();
                        self.open = Some((line.number, Open::Alike));
                    }
                    None => {
                        lines.next();
                    }
                }
            }
        }
    }

    /// Reads the last part of the text.
    pub(crate) fn end(&mut self, lines: &mut Lines<'_>, out: &mut Out<'_>) {
        self.read(lines, out);
        if out.is_empty() {
            out.error(Problem::Nothing.at(lines.number(), None));
        }
    }
}

/// Begins what stands in the next line; `None` if that is no result nor part of one.
///
/// The order matters: the forms with more signs of their own come first.
fn begin(lines: &mut Lines<'_>, out: &mut Out<'_>) -> Option<Result<Open, SavedError>> {
    if let Some(values) = json::begin(lines) {
        return Some(Ok(Open::Json(values)));
    }
    if let Some(rows) = aligned::begin_with_header(lines, out) {
        return Some(Ok(Open::Aligned(rows)));
    }
    if let Some(rows) = delimited::begin_with_header(lines, out) {
        return Some(Ok(Open::Delimited(rows)));
    }
    if let Some(records) = expanded::begin(lines, out) {
        return Some(Ok(Open::Expanded(records)));
    }
    if let Some(rows) = aligned::begin_without_header(lines, out) {
        return Some(rows.map(Open::Aligned));
    }
    if let Some(rows) = delimited::begin_without_header(lines, out) {
        return Some(rows.map(Open::Delimited));
    }
    if let Some(rows) = aligned::begin_blank_separated(lines, out) {
        return Some(Ok(Open::Blanks(rows)));
    }
    if let Some(foreign) = aligned::begin_foreign(lines) {
        return Some(Ok(Open::Foreign(foreign)));
    }
    let line = lines.peek()?;
    if chatter::is_row_value(line.text) {
        return Some(Err(Problem::RowValue.at(line.number, None)));
    }
    if chatter::looks_like_data(line.text) {
        let columns = delimited::count_cells(line.text);
        return Some(Err(Problem::NoHeader { columns }.at(line.number, None)));
    }
    None
}

fn pass_over_alike(lines: &mut Lines<'_>) -> Step {
    while !lines.pauses() {
        let alike = lines.peek().is_some_and(|line| {
            chatter::looks_like_data(line.text)
                || chatter::is_row_value(line.text)
                || chatter::is_rule(line.text)
        });
        if !alike {
            return Step::Ended;
        }
        lines.next();
    }
    Step::Paused
}

/// One line, without its line break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    pub(crate) number: LineNumber,
    pub(crate) text: &'a str,
    /// Whether a line break ended it; only a text's last line can lack one.
    pub(crate) ended: bool,
}

/// A place between two lines of a text, or of the part of a text that is at hand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines<'a> {
    rest: &'a str,
    next_number: usize,
    /// Bytes at the end that are there to look ahead: a row that begins in them waits for more.
    ahead: usize,
    /// More text follows that is not at hand.
    goes_on: bool,
}

impl<'a> Lines<'a> {
    /// All lines of a whole text.
    pub(crate) fn new(text: &'a str) -> Lines<'a> {
        Lines { rest: text, next_number: 1, ahead: 0, goes_on: false }
    }

    /// Those of a part of a text whose first line is `number`. If more `goes_on` behind it, its last
    /// `ahead` bytes are only looked at.
    pub(crate) fn part(
        text: &'a str,
        number: LineNumber,
        ahead: usize,
        goes_on: bool,
    ) -> Lines<'a> {
        Lines { rest: text, next_number: number.0, ahead, goes_on }
    }

    /// Whether the rows of the part at hand are read: what comes next waits for more text.
    pub(crate) fn pauses(&self) -> bool {
        self.goes_on && self.rest.len() <= self.ahead
    }

    /// Whether a line goes on behind what is at hand.
    pub(crate) fn is_part(&self, line: Line<'_>) -> bool {
        self.goes_on && !line.ended
    }

    /// Bytes not yet taken.
    pub(crate) fn rest(&self) -> usize {
        self.rest.len()
    }

    /// The next line, which stays the next.
    pub(crate) fn peek(&self) -> Option<Line<'a>> {
        let mut ahead = *self;
        ahead.next()
    }

    /// The number of the next line, or the last line's at the end.
    pub(crate) fn number(&self) -> LineNumber {
        let past_end = usize::from(self.rest.is_empty() && self.next_number > 1);
        LineNumber(self.next_number - past_end)
    }

    /// The number that the next line has or would have.
    pub(crate) fn next_number(&self) -> LineNumber {
        LineNumber(self.next_number)
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let (text, rest, ended) = match self.rest.split_once('\n') {
            Some((text, rest)) => (text, rest, true),
            None => (self.rest, "", false),
        };
        let number = LineNumber(self.next_number);
        self.rest = rest;
        self.next_number += 1;
        Some(Line { number, text: text.strip_suffix('\r').unwrap_or(text), ended })
    }
}

/// Where rows and errors go.
pub(crate) struct Out<'s> {
    pub(crate) sink: &'s mut dyn SavedSink,
    results: u64,
    errors: u64,
}

impl<'s> Out<'s> {
    pub(crate) fn new(sink: &'s mut dyn SavedSink) -> Out<'s> {
        Out { sink, results: 0, errors: 0 }
    }

    /// A result begins.
    pub(crate) fn begin(&mut self, line: LineNumber, form: Form, kind: Kind) {
        self.results += 1;
        self.sink.begin(line, form, kind);
    }

    pub(crate) fn error(&mut self, error: SavedError) {
        self.errors += 1;
        self.sink.error(error);
    }

    /// Whether there was neither a result nor an error.
    pub(crate) fn is_empty(&self) -> bool {
        self.results == 0 && self.errors == 0
    }

    /// How many errors there were so far.
    pub(crate) fn errors(&self) -> u64 {
        self.errors
    }
}

/// How far a result was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It goes on in the next part of the text.
    Paused,
    Ended,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks() {
        let lines: Vec<_> = Lines::new("a\r\n\nb").map(|l| (l.number.0, l.text, l.ended)).collect();
        assert_eq!(lines, [(1, "a", true), (2, "", true), (3, "b", false)]);
    }

    #[test]
    fn a_part_waits_where_only_looking_ahead_is_left() {
        let mut lines = Lines::part("a\nb\nc\n", LineNumber(7), 4, true);
        assert!(!lines.pauses());
        assert_eq!(lines.next().map(|line| line.number), Some(LineNumber(7)));
        assert!(lines.pauses());
        assert_eq!(lines.peek().map(|line| line.text), Some("b"));
        assert!(!Lines::part("a\n", LineNumber(1), 4, false).pauses());
    }
}
