//! Finds the results in a text and hands each to the reader of its form.

use super::chatter;
use super::error::{Problem, SavedError};
use super::lines::Lines;
use super::{ParseOutcome, SavedResult, aligned, delimited, expanded, json};

pub(crate) fn read(text: &str) -> ParseOutcome {
    let mut lines = Lines::new(text);
    let mut outcome = ParseOutcome::default();
    while let Some(line) = lines.peek() {
        let before = line.number;
        if line.text.trim().is_empty() || chatter::footer(line.text).is_some() {
            lines.next();
        } else if let Some(message) = chatter::server_error(line.text) {
            lines.next();
            outcome.errors.push(Problem::Server(message.to_owned()).at(line.number, None));
        } else {
            match read_result(&mut lines, &mut outcome.errors) {
                Some(Ok(results)) => outcome.results.extend(results),
                Some(Err(error)) => {
                    outcome.errors.push(error);
                    skip_block(&mut lines);
                }
                None => {
                    lines.next();
                }
            }
        }
        if lines.peek().is_some_and(|line| line.number == before) {
            lines.next();
        }
    }
    if outcome.results.is_empty() && outcome.errors.is_empty() {
        outcome.errors.push(Problem::Nothing.at(lines.number(), None));
    }
    outcome
}

type Found = Option<Result<Vec<SavedResult>, SavedError>>;

/// Reads what begins at the next line; `None` if that is no result nor part of one.
///
/// The order matters: the forms with more signs of their own come first.
fn read_result(lines: &mut Lines<'_>, errors: &mut Vec<SavedError>) -> Found {
    let one = |result: SavedResult| Ok(vec![result]);
    if let Some(results) = json::read(lines, errors) {
        return Some(Ok(results));
    }
    if let Some(result) = aligned::read_with_header(lines, errors) {
        return Some(one(result));
    }
    if let Some(result) = delimited::read_with_header(lines, errors) {
        return Some(one(result));
    }
    if let Some(results) = expanded::read(lines, errors) {
        return Some(Ok(results));
    }
    if let Some(result) = aligned::read_without_header(lines, errors) {
        return Some(result.and_then(one));
    }
    if let Some(result) = delimited::read_without_header(lines, errors) {
        return Some(result.and_then(one));
    }
    if let Some(result) = aligned::read_blank_separated(lines, errors) {
        return Some(one(result));
    }
    if let Some(skipped) = aligned::skip_foreign(lines) {
        return Some(skipped.map(|()| Vec::new()));
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

/// Passes over lines like the one that could not be read, which would give the same error.
fn skip_block(lines: &mut Lines<'_>) {
    lines.next();
    while let Some(line) = lines.peek() {
        let alike = chatter::looks_like_data(line.text)
            || chatter::is_row_value(line.text)
            || chatter::is_rule(line.text);
        if !alike {
            return;
        }
        lines.next();
    }
}
