//! Bytes to text, text to numbered lines.

use std::borrow::Cow;

use super::LineNumber;

/// The text; bytes that are no characters become U+FFFD, which no value contains.
pub(crate) fn decode(bytes: &[u8]) -> Cow<'_, str> {
    match bytes {
        [0xff, 0xfe, rest @ ..] => Cow::Owned(utf16(rest, u16::from_le_bytes)),
        [0xfe, 0xff, rest @ ..] => Cow::Owned(utf16(rest, u16::from_be_bytes)),
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8_lossy(rest),
        _ => String::from_utf8_lossy(bytes),
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    let pairs = bytes.chunks_exact(2);
    let half = (!pairs.remainder().is_empty()).then_some(char::REPLACEMENT_CHARACTER);
    let units = pairs.map(|pair| unit([pair[0], pair[1]]));
    char::decode_utf16(units)
        .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
        .chain(half)
        .collect()
}

/// One line, without its line break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    pub(crate) number: LineNumber,
    pub(crate) text: &'a str,
    /// Whether a line break ended it; only a text's last line can lack one.
    pub(crate) ended: bool,
}

/// A place between two lines of a text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines<'a> {
    rest: &'a str,
    next_number: usize,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a str) -> Lines<'a> {
        Lines { rest: text, next_number: 1 }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_and_line_breaks() {
        assert_eq!(decode(b"\xef\xbb\xbfab"), "ab");
        assert_eq!(decode(b"\xff\xfea\0\x02\x25"), "a│");
        assert_eq!(decode(b"\xfe\xff\0a\0"), "a\u{fffd}");
        assert_eq!(decode(b"a\xe2\x94"), "a\u{fffd}");

        let lines: Vec<_> = Lines::new("a\r\n\nb").map(|l| (l.number.0, l.text, l.ended)).collect();
        assert_eq!(lines, [(1, "a", true), (2, "", true), (3, "b", false)]);
    }
}
