//! Finds the results in a text, and passes its lines to the one that is being read.

use std::io::{self, BufRead, BufReader, Read};

use super::error::SavedProblem;
use super::{
    LineNumber, MOST, Next, SavedOutput, SavedSink, TextLine, expanded, json, rows, table, text,
};

/// Reads all results of a text in UTF-8. A byte that is not UTF-8 becomes U+FFFD, which no value contains.
///
/// Memory use does not grow with the text: a row, or a line outside JSON, that is longer than any of pageinspect is an
/// error and is skipped.
///
/// # Errors
/// The text cannot be read at all, or has no output of pageinspect: the error is then [`SavedError`], the first of those
/// that were passed to `sink`. If only a later part cannot be read, the error is passed to `sink`.
pub fn read(text: impl Read, sink: &mut dyn SavedSink) -> io::Result<()> {
    let mut text = BufReader::new(text);
    let mut reader = Reader {
        open: OpenResult::Nothing,
        out: SavedOutput {
            sink,
            line: LineNumber(1),
            results: 0,
            errors: 0,
            first: None,
            has_other_format: false,
        },
        ended: true,
    };
    let mut piece = Vec::new();
    let mut begins = true;
    let mut failed = None;
    while !reader.out.sink.has_enough() {
        piece.clear();
        let length = text.by_ref().take(MOST as u64).read_until(b'\n', &mut piece);
        if piece.is_empty() {
            match length {
                Ok(_) => break,
                Err(error) if reader.out.line == LineNumber(1) && begins => return Err(error),
                Err(error) => failed = Some(error),
            }
            break;
        }
        if reader.out.line == LineNumber(1) && begins {
            if piece.starts_with(b"\xff\xfe") || piece.starts_with(b"\xfe\xff") {
                reader.out.error(SavedProblem::OtherFormat("UTF-16").at(LineNumber(1)));
                return reader.out.end();
            }
            if piece.starts_with(b"\xef\xbb\xbf") {
                piece.drain(..3);
            }
        }
        let ended = piece.ends_with(b"\n");
        let is_part = !ended && piece.len() == MOST;
        let content = String::from_utf8_lossy(&piece);
        let content = content.strip_suffix('\n').unwrap_or(&content);
        let content = content.strip_suffix('\r').unwrap_or(content);
        reader.take(&TextLine { number: reader.out.line, text: content, begins, ended, is_part });
        begins = ended;
        reader.out.line.0 += usize::from(ended);
    }
    if begins && reader.out.line.0 > 1 {
        reader.out.line.0 -= 1;
    }
    reader.end();
    if let Some(error) = failed {
        let line = reader.out.line;
        reader.out.error(SavedProblem::Unreadable(error.to_string()).at(line));
    }
    reader.out.end()
}

/// What is being read.
enum OpenResult {
    Nothing,
    Header(rows::HeaderLine),
    Rows(rows::DelimitedRows),
    Records(expanded::Records),
    Json(json::JsonRows),
    /// A result that is not pageinspect's or cannot be read, up to an empty line or footer.
    Unknown {
        is_reported: bool,
    },
}

struct Reader<'s> {
    open: OpenResult,
    out: SavedOutput<'s>,
    /// Whether the last line had a line break.
    ended: bool,
}

impl Reader<'_> {
    fn take(&mut self, line: &TextLine<'_>) {
        self.ended = line.ended;
        let is_json = match &self.open {
            OpenResult::Json(values) => {
                values.is_within() || !line.begins || json::begins(line.text)
            }
            OpenResult::Nothing | OpenResult::Unknown { .. } => {
                line.begins && json::begins(line.text)
            }
            _ => false,
        };
        if !is_json && (line.is_part || !line.begins) {
            // No row is this long, but the lines that psql draws above one JSON value may be.
            if line.begins
                && (line.text.contains(r"\x") || !matches!(self.open, OpenResult::Nothing))
            {
                self.out.error(SavedProblem::TooLong(MOST).at(line.number));
            }
            if let OpenResult::Header(_) | OpenResult::Records(_) = self.open {
                self.open = OpenResult::Nothing;
            }
            return;
        }
        loop {
            let next = match &mut self.open {
                OpenResult::Nothing => return self.begin(line),
                OpenResult::Header(header) => match header.begin(line, &mut self.out) {
                    Ok(Some(rows)) => {
                        self.open = OpenResult::Rows(rows);
                        continue;
                    }
                    Ok(None) => Next::Again,
                    Err(problem) => return self.refuse(problem, line.number),
                },
                OpenResult::Rows(rows) => rows.take(line, &mut self.out),
                OpenResult::Records(records) => records.take(line, &mut self.out),
                OpenResult::Json(values) => values.take(line, &mut self.out),
                OpenResult::Unknown { is_reported } => {
                    let text = line.text;
                    if text.trim().is_empty() || text::footer(text).is_some() {
                        Next::Ended
                    } else if json::begins(text)
                        || text::is_record_line(text)
                        || text::server_error(text).is_some()
                        || rows::HeaderLine::parse(line).is_some()
                    {
                        Next::Again
                    } else {
                        // Rows of numbers may be those of another table.
                        if !*is_reported
                            && (text.contains(r"\x") || text::is_row_value(text))
                            && let Some(problem) = row_problem(text)
                        {
                            self.refuse(problem, line.number);
                        }
                        return;
                    }
                }
            };
            match next {
                Next::More => return,
                Next::Ended => self.open = OpenResult::Nothing,
                Next::Again => {
                    self.open = OpenResult::Nothing;
                    continue;
                }
                Next::Skip => self.open = OpenResult::Unknown { is_reported: true },
            }
            return;
        }
    }

    /// Begins what is on a line. The order matters: formats that are more distinctive come first.
    fn begin(&mut self, line: &TextLine<'_>) {
        let text = line.text;
        if text.trim().is_empty() || text::footer(text).is_some() {
            return;
        }
        if let Some(message) = text::server_error(text) {
            self.out.error(SavedProblem::Server(message.to_owned()).at(line.number));
        } else if json::begins(text) {
            let mut values = json::JsonRows::default();
            values.take(line, &mut self.out);
            self.open = OpenResult::Json(values);
        } else if let Some(format) = text::other_format(text) {
            self.refuse(SavedProblem::OtherFormat(format), line.number);
        } else if let Some(header) = rows::HeaderLine::parse(line) {
            self.open = OpenResult::Header(header);
        } else if text::is_record_line(text) {
            self.open = OpenResult::Records(expanded::Records::begin(line));
        } else if text::is_rule(text) {
            self.open = OpenResult::Unknown { is_reported: false };
        } else {
            match rows::DelimitedRows::begin_without_header(line, &mut self.out) {
                Ok(Some(mut rows)) => {
                    rows.take(line, &mut self.out);
                    self.open = OpenResult::Rows(rows);
                }
                Ok(None) => {
                    if let Some(problem) = row_problem(text) {
                        self.refuse(problem, line.number);
                    }
                }
                Err(problem) => self.refuse(problem, line.number),
            }
        }
    }

    /// Reports why a result cannot be read, and skips it.
    fn refuse(&mut self, problem: SavedProblem, line: LineNumber) {
        self.out.error(problem.at(line));
        self.open = OpenResult::Unknown { is_reported: true };
    }

    fn end(&mut self) {
        match &mut self.open {
            OpenResult::Header(header) => header.end(self.ended, &mut self.out),
            OpenResult::Rows(rows) => rows.end(self.ended, &mut self.out),
            OpenResult::Records(records) => records.end(self.ended, &mut self.out),
            OpenResult::Json(values) => values.end(&mut self.out),
            OpenResult::Nothing | OpenResult::Unknown { .. } => {}
        }
        if self.out.results == 0 && self.out.errors == 0 {
            self.out.error(SavedProblem::Nothing.at(self.out.line));
        }
    }
}

/// Why a line cannot be read, if it can only be a row.
fn row_problem(line: &str) -> Option<SavedProblem> {
    if text::is_row_value(line) {
        return Some(SavedProblem::RowValue);
    }
    let is_pair = table::own_column(line.split([' ', '|', ',']).next()?).is_some()
        && line.contains(['|', ',', ' ']);
    if is_pair && text::looks_like_data(line) {
        return Some(SavedProblem::OtherFormat(
            "an expanded result without the lines of its records",
        ));
    }
    text::looks_like_data(line).then_some(SavedProblem::NoHeader)
}
