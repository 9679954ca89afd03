//! Reads a text line by line, and passes on what is found in it.

use std::io::{self, BufRead, Read};

use super::error::{SavedError, SavedProblem};
use super::{SavedSink, text};

/// The longest line outside JSON, expanded record, and JSON row: a page of 32 kB takes 64 kB, an array of bytea of the
/// same size little more, and a row has few of these.
pub(super) const MOST: usize = 1 << 20;

/// A line without its line break, or a piece of a long one.
pub(super) struct TextLine {
    pub(super) number: usize,
    pub(super) text: String,
    /// Whether the text begins with the line.
    pub(super) begins: bool,
    /// Whether a line break follows.
    pub(super) ended: bool,
    /// Whether the line is longer than [`MOST`].
    is_part: bool,
}

pub(super) struct Reader<'s> {
    text: &'s mut dyn BufRead,
    /// A line that was looked at.
    next: Option<TextLine>,
    /// The number of the last line.
    pub(super) line: usize,
    /// Whether a line begins next.
    begins: bool,
    pub(super) failed: Option<io::Error>,
    pub(super) sink: &'s mut dyn SavedSink,
    pub(super) results: u64,
    pub(super) errors: u64,
    pub(super) first: Option<SavedError>,
    /// Whether a problem caused by psql's settings has been reported.
    has_told_session: bool,
}

impl<'s> Reader<'s> {
    pub(super) fn new(text: &'s mut dyn BufRead, sink: &'s mut dyn SavedSink) -> Reader<'s> {
        Reader {
            text,
            next: None,
            line: 0,
            begins: true,
            failed: None,
            sink,
            results: 0,
            errors: 0,
            first: None,
            has_told_session: false,
        }
    }

    /// The next line, or the first piece of a long one if JSON begins on it.
    pub(super) fn next(&mut self) -> Option<TextLine> {
        loop {
            let line = self.piece()?;
            if line.begins && (!line.is_part || text::begins_json(&line.text)) {
                return Some(line);
            }
            // No row is this long, but what psql draws above one JSON value may be.
            let is_drawn = line.text.trim_matches([' ', '-']).len() < 100;
            if line.begins && !is_drawn {
                self.too_long(line.number);
            }
        }
    }

    pub(super) fn too_long(&mut self, line: usize) {
        let what = format!("longer than {MOST} bytes, unlike any row of pageinspect");
        self.error(SavedProblem::Other(what).at(line));
    }

    /// The next line, or piece of one.
    pub(super) fn piece(&mut self) -> Option<TextLine> {
        if self.next.is_some() {
            return self.next.take();
        }
        if self.failed.is_some() || self.sink.has_enough() {
            return None;
        }
        let mut bytes = Vec::new();
        let mut text = Read::take(&mut self.text, MOST as u64);
        self.failed = text.read_until(b'\n', &mut bytes).err();
        if bytes.is_empty() {
            return None;
        }
        self.line += usize::from(self.begins);
        let whole = String::from_utf8_lossy(&bytes);
        let text = if self.line == 1 { whole.trim_start_matches('\u{feff}') } else { &whole };
        let line = text.strip_suffix('\n').unwrap_or(text);
        let ended = line.len() < text.len();
        let text = line.strip_suffix('\r').unwrap_or(line).to_owned();
        let begins = std::mem::replace(&mut self.begins, ended);
        let is_part = !ended && bytes.len() == MOST;
        Some(TextLine { number: self.line, text, begins, ended, is_part })
    }

    /// Gives a line back that is not part of a result.
    pub(super) fn put_back(&mut self, line: TextLine) {
        self.next = Some(line);
    }

    pub(super) fn error(&mut self, error: SavedError) {
        if error.problem.is_of_session() && std::mem::replace(&mut self.has_told_session, true) {
            return;
        }
        self.errors += 1;
        self.first.get_or_insert_with(|| error.clone());
        self.sink.error(error);
    }
}
