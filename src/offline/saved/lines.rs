//! The input of all formats, numbered lines, and the output for their results.

use super::error::SavedError;
use super::{Form, Kind, LineNumber, SavedSink};

/// One line, without its line break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    pub(crate) number: LineNumber,
    pub(crate) text: &'a str,
    /// Whether it ends with a line break; only the last line of a text may not.
    pub(crate) ended: bool,
}

/// A position between two lines of a text, or of the available part of a text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines<'a> {
    rest: &'a str,
    next_number: usize,
    /// The number of bytes at the end that are only for lookahead: a row that begins in them must wait for more text.
    ahead: usize,
    /// Whether more text follows that is not available yet.
    goes_on: bool,
}

impl<'a> Lines<'a> {
    /// All lines of a complete text.
    pub(crate) fn new(text: &'a str) -> Lines<'a> {
        Lines { rest: text, next_number: 1, ahead: 0, goes_on: false }
    }

    /// The lines of a part of a text whose first line is `number`. If it `goes_on`, the last `ahead` bytes are only for
    /// lookahead.
    pub(crate) fn part(
        text: &'a str,
        number: LineNumber,
        ahead: usize,
        goes_on: bool,
    ) -> Lines<'a> {
        Lines { rest: text, next_number: number.0, ahead, goes_on }
    }

    /// Whether all rows of the available part were read, so that the next row must wait for more text.
    pub(crate) fn pauses(&self) -> bool {
        self.goes_on && self.rest.len() <= self.ahead
    }

    /// Whether a line continues beyond the available text.
    pub(crate) fn is_part(&self, line: Line<'_>) -> bool {
        self.goes_on && !line.ended
    }

    /// The number of bytes not taken yet.
    pub(crate) fn rest(&self) -> usize {
        self.rest.len()
    }

    /// Returns the next line without taking it.
    pub(crate) fn peek(&self) -> Option<Line<'a>> {
        let mut ahead = *self;
        ahead.next()
    }

    /// The number of the next line, or at the end that of the last line.
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

/// Receives rows and errors.
pub(crate) struct Out<'s> {
    pub(crate) sink: &'s mut dyn SavedSink,
    results: u64,
    errors: u64,
}

impl<'s> Out<'s> {
    pub(crate) fn new(sink: &'s mut dyn SavedSink) -> Out<'s> {
        Out { sink, results: 0, errors: 0 }
    }

    /// Begins a result.
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

    /// The number of errors so far.
    pub(crate) fn errors(&self) -> u64 {
        self.errors
    }
}

/// How far a result was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It continues in the next part of the text.
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
