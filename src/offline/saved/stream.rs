//! The available part of a text, extended as rows are taken from its front; and the decoder from bytes to text, in
//! pieces, for UTF-8 or for UTF-16 with a byte order mark, as redirected by PowerShell.

use std::io::{self, ErrorKind, Read};

use super::error::Problem;
use super::lines::{Lines, Out};
use super::reader::Reader;
use super::{LineNumber, SavedSink, chatter};

/// How much of a text is available.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// The number of bytes whose rows are read before more is fetched.
    pub(crate) step: usize,
    /// The number of further bytes into which a row may extend: the length of the longest row or line outside JSON, and
    /// of the longest row in JSON.
    pub(crate) row: usize,
}

/// A page of 32 kB takes 64 kB, an array of bytea of the same size little more, and a row has few of these.
impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { step: 1 << 20, row: 1 << 20 }
    }
}

/// The number of bytes read from the source at a time.
const BLOCK: usize = 1 << 18;

/// Reads all results of a text; see [`super::read`].
pub(crate) fn read(source: impl Read, sizes: Sizes, sink: &mut dyn SavedSink) -> io::Result<()> {
    let mut text = Text {
        source,
        decoder: Decoder::default(),
        block: vec![0; BLOCK.min(sizes.step)],
        sizes,
        text: String::new(),
        line: LineNumber(1),
        ended: false,
        failed: None,
    };
    let mut reader = Reader::default();
    let mut out = Out::new(sink);
    loop {
        text.fill();
        if text.ended {
            let failed = text.failed.take();
            if let Some(error) = failed {
                if text.line == LineNumber(1) && text.text.is_empty() {
                    return Err(error);
                }
                let last = text.last_line();
                reader.end(&mut text.lines(), &mut out);
                out.error(Problem::Unreadable(error.to_string()).at(last, None));
            } else {
                reader.end(&mut text.lines(), &mut out);
            }
            return Ok(());
        }
        if !text.begins_with_part_of_line() || reader.takes_part_of(&text.text) {
            let mut lines = text.lines();
            reader.read(&mut lines, &mut out);
            let (rest, number) = (lines.rest(), lines.next_number());
            text.take(rest, number);
        } else {
            // No row is this long, but the lines that psql draws above and below one JSON value may be.
            if !chatter::is_drawn(&text.text) {
                out.error(Problem::TooLong(sizes.row).at(text.line, None));
            }
            text.pass_over_line();
        }
        if out.sink.has_enough() {
            return Ok(());
        }
    }
}

struct Text<R> {
    source: R,
    decoder: Decoder,
    block: Vec<u8>,
    sizes: Sizes,
    /// The available text.
    text: String,
    /// The number of the line at which, or within which, the text begins.
    line: LineNumber,
    /// Whether nothing follows, or nothing that can be read.
    ended: bool,
    failed: Option<io::Error>,
}

impl<R: Read> Text<R> {
    /// Reads until enough text is available, or until the end.
    fn fill(&mut self) {
        while !self.ended && self.text.len() < self.sizes.step + self.sizes.row {
            match self.source.read(&mut self.block) {
                Ok(0) => {
                    self.ended = true;
                    self.decoder.decode(&[], true, &mut self.text);
                }
                Ok(length) => self.decoder.decode(&self.block[..length], false, &mut self.text),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.ended = true;
                    self.failed = Some(error);
                }
            }
        }
    }

    /// The end of the last whole line.
    fn whole(&self) -> usize {
        self.text.rfind('\n').map_or(0, |at| at + 1)
    }

    fn begins_with_part_of_line(&self) -> bool {
        !self.ended && self.whole() == 0
    }

    fn last_line(&self) -> LineNumber {
        let next = self.line.0 + self.text.matches('\n').count();
        let begun = !self.text.is_empty() && !self.text.ends_with('\n');
        LineNumber(if begun { next } else { next - 1 }.max(1))
    }

    /// The available lines.
    fn lines(&self) -> Lines<'_> {
        let whole = self.whole();
        let (end, ahead) = if self.ended {
            (self.text.len(), 0)
        } else if whole > self.sizes.step {
            (whole, whole - self.sizes.step)
        } else {
            // A line begins that is longer than any row; it is only for lookahead, unless it is the first.
            let ahead = if whole == 0 { 0 } else { self.text.len() - whole };
            (self.text.len(), ahead)
        };
        Lines::part(&self.text[..end], self.line, ahead, !self.ended)
    }

    /// Removes what was read from the front: `rest` bytes of the lines are left, and the next line is `number`.
    fn take(&mut self, rest: usize, number: LineNumber) {
        let end = self.lines().rest();
        let taken = end - rest;
        let within_line = taken > 0 && !self.text[..taken].ends_with('\n');
        self.line = LineNumber(number.0 - usize::from(within_line));
        self.text.drain(..taken);
    }

    /// Removes a line from the front, regardless of its length.
    fn pass_over_line(&mut self) {
        loop {
            if let Some(at) = self.text.find('\n') {
                self.text.drain(..=at);
                self.line.0 += 1;
                return;
            }
            self.text.clear();
            if self.ended {
                return;
            }
            self.fill();
        }
    }
}

/// A decoder that accepts bytes as they arrive.
///
/// Invalid bytes become U+FFFD, which no value contains.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// Known once the first three bytes are known.
    encoding: Option<Encoding>,
    /// The bytes of a character that is not complete yet.
    held: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum Encoding {
    Utf8,
    Utf16(fn([u8; 2]) -> u16),
}

impl Decoder {
    /// Appends the characters that are complete; at the `end` of the text, also the remaining bytes.
    pub(crate) fn decode(&mut self, bytes: &[u8], end: bool, text: &mut String) {
        let joined;
        let bytes = if self.held.is_empty() {
            bytes
        } else {
            joined = [self.held.as_slice(), bytes].concat();
            joined.as_slice()
        };
        if self.encoding.is_none() && bytes.len() < 3 && !end {
            self.held = bytes.to_vec();
            return;
        }
        let (encoding, bytes) = match (self.encoding, bytes) {
            (Some(encoding), _) => (encoding, bytes),
            (None, [0xff, 0xfe, rest @ ..]) => (Encoding::Utf16(u16::from_le_bytes), rest),
            (None, [0xfe, 0xff, rest @ ..]) => (Encoding::Utf16(u16::from_be_bytes), rest),
            (None, [0xef, 0xbb, 0xbf, rest @ ..]) => (Encoding::Utf8, rest),
            (None, _) => (Encoding::Utf8, bytes),
        };
        self.encoding = Some(encoding);
        let held = match encoding {
            Encoding::Utf8 => utf8(bytes, end, text),
            Encoding::Utf16(unit) => utf16(bytes, unit, end, text),
        };
        self.held = held.to_vec();
    }
}

/// Appends the characters, and returns the bytes of one that is not complete yet.
fn utf8<'a>(mut bytes: &'a [u8], end: bool, text: &mut String) -> &'a [u8] {
    loop {
        let error = match std::str::from_utf8(bytes) {
            Ok(whole) => {
                text.push_str(whole);
                return &[];
            }
            Err(error) => error,
        };
        let (whole, rest) = bytes.split_at(error.valid_up_to());
        text.push_str(std::str::from_utf8(whole).unwrap_or_default());
        match error.error_len() {
            None if !end => return rest,
            length => {
                text.push(char::REPLACEMENT_CHARACTER);
                bytes = rest.get(length.unwrap_or(rest.len())..).unwrap_or_default();
            }
        }
    }
}

/// Like [`utf8`], for UTF-16.
fn utf16<'a>(bytes: &'a [u8], unit: fn([u8; 2]) -> u16, end: bool, text: &mut String) -> &'a [u8] {
    const HIGH_SURROGATES: std::ops::Range<u16> = 0xd800..0xdc00;
    let at = |i: usize| unit([bytes[i], bytes[i + 1]]);
    let mut whole = bytes.len() / 2 * 2;
    if !end && whole >= 2 && HIGH_SURROGATES.contains(&at(whole - 2)) {
        whole -= 2;
    }
    let units = bytes[..whole].chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
    text.extend(char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)));
    if !end {
        return &bytes[whole..];
    }
    if whole < bytes.len() {
        text.push(char::REPLACEMENT_CHARACTER);
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of bytes that arrive `step` at a time.
    fn decode(bytes: &[u8], step: usize) -> String {
        let mut text = String::new();
        let mut decoder = Decoder::default();
        for piece in bytes.chunks(step) {
            decoder.decode(piece, false, &mut text);
        }
        decoder.decode(&[], true, &mut text);
        text
    }

    #[test]
    fn encodings_in_pieces_of_any_length() {
        for step in 1..8 {
            assert_eq!(decode(b"\xef\xbb\xbfab", step), "ab");
            assert_eq!(decode(b"a", step), "a");
            assert_eq!(decode(b"\xff\xfea\0\x02\x25", step), "a│");
            assert_eq!(decode(b"\xff\xfe\x3d\xd8\x00\xde", step), "\u{1f600}");
            assert_eq!(decode(b"\xff\xfe\x3d\xd8a\0", step), "\u{fffd}a");
            assert_eq!(decode(b"\xfe\xff\0a\0", step), "a\u{fffd}");
            assert_eq!(decode(b"a\xe2\x94", step), "a\u{fffd}");
            assert_eq!(decode(b"\xff\xe2\x94\x82\xe2b", step), "\u{fffd}│\u{fffd}b");
        }
    }
}
