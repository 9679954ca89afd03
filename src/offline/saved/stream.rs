//! The part of a text that is at hand: read on as rows are taken from its front.

use std::io::{self, ErrorKind, Read};

use super::chatter;
use super::decode::Decoder;
use super::error::Problem;
use super::lines::Lines;
use super::out::Out;
use super::reader::Reader;
use super::{LineNumber, SavedSink};

/// How much of a text is at hand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// Bytes whose rows are read before more is fetched.
    pub(crate) step: usize,
    /// Bytes behind them that a row can reach into: the longest row or line outside JSON, and the longest row
    /// within.
    pub(crate) row: usize,
}

/// A page of 32 kB takes 64 kB, an array of bytea with as many bytes little more, and a row has few of them.
impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { step: 1 << 20, row: 1 << 20 }
    }
}

/// Bytes that are read from the source at once.
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
            // No row is as long, but what psql draws over and under one value made JSON may be.
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
    /// What is at hand.
    text: String,
    /// The number of the line with which it begins, or within which.
    line: LineNumber,
    /// Nothing follows it, or nothing that can be read.
    ended: bool,
    failed: Option<io::Error>,
}

impl<R: Read> Text<R> {
    /// Reads on until there is enough, or the end.
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

    /// Where the whole lines end.
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

    /// The lines at hand.
    fn lines(&self) -> Lines<'_> {
        let whole = self.whole();
        let (end, ahead) = if self.ended {
            (self.text.len(), 0)
        } else if whole > self.sizes.step {
            (whole, whole - self.sizes.step)
        } else {
            // A line begins that is longer than rows are: it is only looked at, unless it is the first.
            let ahead = if whole == 0 { 0 } else { self.text.len() - whole };
            (self.text.len(), ahead)
        };
        Lines::part(&self.text[..end], self.line, ahead, !self.ended)
    }

    /// Takes what was read off the front: `rest` is left of the lines, whose next is `number`.
    fn take(&mut self, rest: usize, number: LineNumber) {
        let end = self.lines().rest();
        let taken = end - rest;
        let within_line = taken > 0 && !self.text[..taken].ends_with('\n');
        self.line = LineNumber(number.0 - usize::from(within_line));
        self.text.drain(..taken);
    }

    /// Takes a line off the front, however long it is.
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
