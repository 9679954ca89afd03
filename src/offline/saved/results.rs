//! Finds the results in a text, and reads each in its format.

use std::io::{self, BufReader, Read};

use super::error::SavedProblem;
use super::reader::Reader;
use super::rows::{HeaderLine, is_end};
use super::{SavedSink, text};

/// Reads all results of a text in UTF-8. A byte that is not UTF-8 becomes U+FFFD, which no value contains.
///
/// Memory use does not grow with the text: a row, or a line outside JSON, that is longer than any of pageinspect is an
/// error and is skipped.
///
/// # Errors
/// The text cannot be read at all, or has no output of pageinspect: the error is then a `SavedError`, the first of those
/// that were passed to `sink`. If only a later part cannot be read, the error is passed to `sink`.
pub fn read(text: impl Read, sink: &mut dyn SavedSink) -> io::Result<()> {
    let mut text = BufReader::new(text);
    let mut reader = Reader::new(&mut text, sink);
    reader.results();
    let line = reader.line;
    match reader.failed.take() {
        Some(error) if line == 0 => return Err(error),
        Some(error) => {
            reader.error(SavedProblem::Other(format!("could not read further: {error}")).at(line));
        }
        None if reader.results == 0 && reader.errors == 0 => {
            reader.error(SavedProblem::Nothing.at(line.max(1)));
        }
        None => {}
    }
    match reader.first {
        Some(first) if reader.results == 0 => {
            Err(io::Error::new(io::ErrorKind::InvalidData, first))
        }
        _ => Ok(()),
    }
}

impl Reader<'_> {
    /// Reads all results. The order matters: formats that are more distinctive come first.
    fn results(&mut self) {
        while let Some(line) = self.next() {
            let text = &*line.text;
            if is_end(text) {
                continue;
            }
            if let Some(message) = text::server_error(text) {
                let what = format!("the output holds an error message of the server: {message}");
                self.error(SavedProblem::Other(what).at(line.number));
            } else if text::begins_json(text) {
                self.put_back(line);
                self.json();
            } else if text::is_other_format(text) {
                self.refuse(line.number);
            } else if let Some(header) = HeaderLine::parse(text) {
                self.rows_below(&header, &line);
            } else if text::is_record_line(text) {
                self.records(line.number);
            } else if text::is_rule(text) {
                self.skip();
            } else {
                self.rows_without_header(line);
            }
        }
    }
}
