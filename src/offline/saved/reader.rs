//! Finds the results in a text, and continues a result whose rows are in several parts of it.

use super::error::{Problem, SavedError};
use super::lines::{Lines, Out, Step};
use super::{LineNumber, aligned, chatter, delimited, expanded, json};

/// A result that is being read, or something that is being skipped.
pub(crate) enum Open {
    Aligned(aligned::Rows),
    Blanks(aligned::BlankRows),
    Foreign(aligned::Foreign),
    Delimited(delimited::Rows),
    Expanded(expanded::Records),
    Json(json::Values),
    /// Lines like one that could not be read, which would cause the same error.
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
    /// What an earlier part has begun, and the line where it began.
    open: Option<(LineNumber, Open)>,
}

impl Reader {
    /// Whether an incomplete line can be read: JSON may have any length.
    pub(crate) fn takes_part_of(&self, line: &str) -> bool {
        match &self.open {
            Some((_, Open::Json(values))) => values.are_within() || json::begins(line),
            None | Some((_, Open::Foreign(_))) => json::begins(line),
            Some((_, Open::Alike)) => json::begins(line) && !chatter::looks_like_data(line),
            Some(_) => false,
        }
    }

    /// Reads until the lines pause or end.
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

/// Begins what is on the next line; `None` if that is neither a result nor part of one.
///
/// The order matters: formats that are more distinctive come first.
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
