//! psql's aligned and wrapped forms, border 0, 1 and 2, any line style.
//!
//! The rule under the header gives each column's place. Cells that psql broke over several lines
//! (wrapped format, values with line breaks) carry a mark in their right margin; the line style
//! `old-ascii` has it in place of the separator on the lines that follow instead.

use std::borrow::Cow;

use super::chatter;
use super::columns::{Header, may_be_name};
use super::error::{Problem, SavedError};
use super::layout::{Border, Layout};
use super::lines::Lines;
use super::out::{Out, Step};
use super::table::{Ending, Table, Value};
use super::{Form, LineNumber};

/// The rows of a result with separators or places that are known.
pub(crate) struct Rows {
    layout: Layout,
    table: Table,
    /// Such a result has a footer or an empty line at its end.
    with_header: bool,
    /// The rule below a bordered result was seen.
    closed: bool,
}

/// Begins a result whose header is at the next line, if there is one.
pub(crate) fn begin_with_header(lines: &mut Lines<'_>, out: &mut Out<'_>) -> Option<Rows> {
    let mut ahead = *lines;
    let mut top = ahead.next()?;
    let start = top.number;
    if chatter::is_rule(top.text) {
        top = ahead.next()?;
    }
    let rule = ahead.next().filter(|line| chatter::is_rule(line.text))?;
    let row = ahead.peek().map_or("", |line| line.text);
    let layout = Layout::of_rule(rule.text, row)?;
    let pieces = layout.pieces(top.text).ok()?;
    let names: Vec<&str> = pieces.iter().map(|piece| piece.raw.trim()).collect();
    if !names.iter().all(|name| may_be_name(name)) {
        return None;
    }
    let header = Header::of_names(&names)?;
    *lines = ahead;
    let table = Table::begin(header, Form::Aligned, start, out);
    Some(Rows { layout, table, with_header: true, closed: false })
}

/// Begins a bordered result without a header at the next line, if there is one; an error if there
/// is one whose columns cannot be told.
pub(crate) fn begin_without_header(
    lines: &mut Lines<'_>,
    out: &mut Out<'_>,
) -> Option<Result<Rows, SavedError>> {
    let line = lines.peek()?;
    let outer = line.text.starts_with(chatter::is_separator);
    if !(outer || line.text.starts_with(' ')) || !line.text.contains(chatter::is_separator) {
        return None;
    }
    let border = if outer { Border::Outer } else { Border::Inner };
    let separators = line.text.matches(chatter::is_separator).count();
    let count = if outer { separators.saturating_sub(1) } else { separators + 1 };
    let layout = Layout { border, cells: Vec::new(), count };
    let pieces = layout.pieces(line.text).ok()?;
    let cells: Vec<Cow<'_, str>> = pieces.iter().map(|p| Cow::Borrowed(p.raw.trim())).collect();
    let Some(header) = Header::of_shape(&cells) else {
        return chatter::looks_like_data(line.text)
            .then(|| Err(Problem::NoHeader { columns: count }.at(line.number, None)));
    };
    let table = Table::begin(header, Form::Aligned, line.number, out);
    Some(Ok(Rows { layout, table, with_header: false, closed: false }))
}

impl Rows {
    /// Reads rows up to the end of the result.
    pub(crate) fn go_on(&mut self, lines: &mut Lines<'_>, out: &mut Out<'_>) -> Step {
        let Some(closed) = self.read_rows(lines, out) else { return Step::Paused };
        if !closed && self.with_header {
            let what = "the result ends without its number of rows or an empty line";
            out.error(Problem::Cut(what.into()).at(lines.number(), None));
        }
        Step::Ended
    }

    /// Whether the end of the result was to be seen; `None` where the rows go on.
    fn read_rows(&mut self, lines: &mut Lines<'_>, out: &mut Out<'_>) -> Option<bool> {
        let Rows { layout, table, closed, .. } = self;
        loop {
            if lines.pauses() {
                return None;
            }
            let Some(line) = lines.peek() else { return Some(*closed) };
            if let Some(rows) = chatter::footer(line.text) {
                lines.next();
                table.check_footer(line.number, rows, out);
                return Some(true);
            }
            if chatter::is_rule(line.text) {
                lines.next();
                *closed = true;
                continue;
            }
            if line.text.trim().is_empty() {
                if layout.count == 1 && !*closed {
                    let null_rows = take_null_rows(lines, layout);
                    if null_rows > 0 {
                        table.skip_null_rows(null_rows);
                        continue;
                    }
                }
                lines.next();
                // Blanks alone may be the begin of a row, and before any row of a single column an
                // empty line may be its NULL.
                let ends = line.ended && (layout.count > 1 || table.rows_seen() > 0);
                return Some(*closed || ends);
            }
            if *closed
                || chatter::is_record_line(line.text)
                || chatter::server_error(line.text).is_some()
            {
                return Some(*closed);
            }
            let errors_before = out.errors();
            match read_row(lines, layout) {
                Ok((cells, ending)) => {
                    let values: Vec<Value<'_>> =
                        cells.iter().map(|c| Value::Text(c.trim())).collect();
                    table.push(line.number, &values, ending, out);
                }
                Err(problem) => {
                    let cut_off = lines.peek() == Some(line)
                        && !line.text.contains(chatter::is_separator)
                        && !chatter::looks_like_data(line.text)
                        && line.ended;
                    if cut_off {
                        return Some(false);
                    }
                    if lines.peek() == Some(line) {
                        lines.next();
                    }
                    let problem = if line.ended { problem } else { cut_row() };
                    table.malformed(line.number, problem, out);
                }
            }
            if lines.peek().is_none() && !lines.pauses() && out.errors() > errors_before {
                // That the text is cut has been said.
                return Some(true);
            }
        }
    }
}

/// A result whose header names nothing of pageinspect's.
pub(crate) struct Foreign {
    top: LineNumber,
    /// It holds bytea all the same: columns may only have been renamed.
    renamed: bool,
    row_value: Option<LineNumber>,
}

/// Begins to pass over such a result at the next line.
pub(crate) fn begin_foreign(lines: &mut Lines<'_>) -> Option<Foreign> {
    let mut ahead = *lines;
    let mut top = ahead.next()?;
    if chatter::is_rule(top.text) {
        top = ahead.next()?;
    }
    if top.text.trim().is_empty() || !ahead.next().is_some_and(|l| chatter::is_rule(l.text)) {
        return None;
    }
    *lines = ahead;
    Some(Foreign { top: top.number, renamed: false, row_value: None })
}

impl Foreign {
    /// Passes over its lines; an error if they hold bytea or rows all the same.
    pub(crate) fn go_on(&mut self, lines: &mut Lines<'_>, out: &mut Out<'_>) -> Step {
        loop {
            if lines.pauses() {
                return Step::Paused;
            }
            let Some(line) = lines.peek() else { break };
            if super::json::begins(line.text) {
                // A row made JSON has its columns' names within.
                break;
            }
            self.renamed |= chatter::bytea_at(line.text).is_some();
            if chatter::is_row_value(line.text) {
                self.row_value = self.row_value.or(Some(line.number));
            }
            if line.text.trim().is_empty() || chatter::server_error(line.text).is_some() {
                break;
            }
            lines.next();
            if chatter::footer(line.text).is_some() {
                break;
            }
        }
        if let Some(line) = self.row_value {
            out.error(Problem::RowValue.at(line, None));
        } else if self.renamed {
            out.error(Problem::UnknownColumns.at(self.top, None));
        }
        Step::Ended
    }
}

fn cut_row() -> Problem {
    Problem::Cut("the text ends within a row".into())
}

/// Takes the blank lines ahead that are rows of NULL in a result of one column, and not its end.
fn take_null_rows(lines: &mut Lines<'_>, layout: &Layout) -> u64 {
    if layout.border != Border::None {
        // A row has at least its left margin.
        let null = lines.peek().is_some_and(|line| line.ended && !line.text.is_empty());
        if null {
            lines.next();
        }
        return u64::from(null);
    }
    // Lines before the last blank one are passed even if it ends the result: nothing is lost.
    let mut rows = 0;
    let mut ahead = *lines;
    while ahead.peek().is_some_and(|line| line.text.trim().is_empty()) {
        *lines = ahead;
        ahead.next();
        rows += 1;
    }
    let goes_on = ahead.peek().is_some_and(|line| {
        chatter::footer(line.text).is_some() || line.text.starts_with(['\\', '{'])
    });
    if goes_on {
        *lines = ahead;
        rows
    } else {
        0
    }
}

/// The cells of the row at the next line, over all its lines.
fn read_row<'a>(
    lines: &mut Lines<'a>,
    layout: &Layout,
) -> Result<(Vec<Cow<'a, str>>, Ending), Problem> {
    let Some(line) = lines.peek() else { return Err(cut_row()) };
    let mut pieces = layout.pieces(line.text)?;
    lines.next();
    let mut last = line;
    let mut cells: Vec<Cow<'a, str>> =
        pieces.iter().map(|piece| Cow::Borrowed(layout.text(piece))).collect();
    while pieces.iter().any(|piece| piece.join.is_some()) {
        last = lines.peek().ok_or_else(cut_row)?;
        let more = layout.pieces(last.text)?;
        lines.next();
        for ((cell, before), piece) in cells.iter_mut().zip(&pieces).zip(&more) {
            if let Some(join) = before.join {
                join.append(cell.to_mut(), layout.text(piece));
            }
        }
        pieces = more;
    }
    while let Some(line) = lines.peek() {
        let more = layout.old_continuation(line.text);
        if more.is_empty() {
            break;
        }
        for (cell, join, text) in more {
            join.append(cells[cell].to_mut(), text);
        }
        lines.next();
        last = line;
    }
    let ending =
        if last.ended || layout.border == Border::Outer { Ending::Seen } else { Ending::EndOfText };
    Ok((cells, ending))
}

/// The rows of a result of items without header and borders.
///
/// NULLs leave no trace there but blanks; the tuple's flags tell which columns are NULL.
pub(crate) struct BlankRows(Table);

/// Begins such a result at the next line, if there is one.
pub(crate) fn begin_blank_separated(lines: &mut Lines<'_>, out: &mut Out<'_>) -> Option<BlankRows> {
    let first = lines.peek()?;
    blank_separated(first.text)?;
    Some(BlankRows(Table::begin(Header::of_items(), Form::Aligned, first.number, out)))
}

impl BlankRows {
    /// Reads rows up to the end of the result.
    pub(crate) fn go_on(&mut self, lines: &mut Lines<'_>, out: &mut Out<'_>) -> Step {
        while !lines.pauses() {
            let row = lines.peek().and_then(|line| Some((line, blank_separated(line.text)?)));
            let Some((line, cells)) = row else { return Step::Ended };
            lines.next();
            let values: Vec<Value<'_>> =
                cells.iter().map(|cell| cell.map_or(Value::Null, Value::Text)).collect();
            let ending = if line.ended { Ending::Seen } else { Ending::EndOfText };
            self.0.push(line.number, &values, ending, out);
        }
        Step::Paused
    }
}

/// The 14 cells of such a row.
fn blank_separated(line: &str) -> Option<[Option<&str>; 14]> {
    const HEAP_HASNULL: u16 = 0x0001;
    const HEAP_HASOID_OLD: u16 = 0x0008;
    // One more than there are columns is enough to see that a line is no row.
    let words: Vec<&str> = line.split_ascii_whitespace().take(15).collect();
    if words.len() < 4 || !words[..4].iter().all(|w| w.bytes().all(|b| b.is_ascii_digit())) {
        return None;
    }
    let mut cells = [None; 14];
    if words.len() == 14 {
        // NULLs are shown by a text.
        for (cell, word) in cells.iter_mut().zip(words) {
            *cell = Some(word);
        }
        return Some(cells);
    }
    let mut rest = words.iter().copied();
    let fixed = if words.len() == 4 { 4 } else { 11 };
    for cell in &mut cells[..fixed] {
        *cell = Some(rest.next()?);
    }
    if fixed == 11 {
        let infomask: u16 = cells[9]?.parse().ok()?;
        if infomask & HEAP_HASNULL != 0 {
            cells[11] = Some(rest.next()?);
        }
        if infomask & HEAP_HASOID_OLD != 0 {
            cells[12] = Some(rest.next()?);
        }
        cells[13] = rest.next();
    }
    rest.next().is_none().then_some(cells)
}
