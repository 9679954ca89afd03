//! psql's aligned and wrapped formats with border 0, 1 and 2 and any line style.
//!
//! The rule below the header shows the position of each column. Cells that psql continues on further lines (in wrapped
//! format, or because of line breaks in values) have a mark in their right margin; the line style `old-ascii` instead
//! replaces the separator on the following lines.

use std::borrow::Cow;

use unicode_width::UnicodeWidthChar;

use super::error::{Problem, SavedError};
use super::lines::{Lines, Out, Step};
use super::table::{Ending, Header, MAX_COLUMNS, Table, Value, may_be_name};
use super::{Form, LineNumber, chatter};

/// The rows of a result with separators or known column positions.
pub(crate) struct Rows {
    layout: Layout,
    table: Table,
    /// A result with a header ends with a footer or an empty line.
    with_header: bool,
    /// The rule below a bordered result was found.
    closed: bool,
}

/// Begins a result whose header is on the next line, if there is one.
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

/// Begins a bordered result without a header on the next line, if there is one; an error if its columns cannot be
/// determined.
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
    /// Reads rows until the end of the result.
    pub(crate) fn go_on(&mut self, lines: &mut Lines<'_>, out: &mut Out<'_>) -> Step {
        let Some(closed) = self.read_rows(lines, out) else { return Step::Paused };
        if !closed && self.with_header {
            let what = "the result ends without its number of rows or an empty line";
            out.error(Problem::Cut(what.into()).at(lines.number(), None));
        }
        Step::Ended
    }

    /// Whether the end of the result was found; `None` if it continues.
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
                // Blanks alone may be the beginning of a row, and before the first row of a single column, an empty
                // line may be a row with NULL.
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
                // The error that the text is cut was already reported.
                return Some(true);
            }
        }
    }
}

/// A result whose header contains no column name of pageinspect.
pub(crate) struct Foreign {
    top: LineNumber,
    /// It nevertheless contains bytea, so its columns may only have been renamed.
    renamed: bool,
    row_value: Option<LineNumber>,
}

/// Begins to skip such a result on the next line.
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
    /// Skips its lines; an error if they nevertheless contain bytea or rows.
    pub(crate) fn go_on(&mut self, lines: &mut Lines<'_>, out: &mut Out<'_>) -> Step {
        loop {
            if lines.pauses() {
                return Step::Paused;
            }
            let Some(line) = lines.peek() else { break };
            if super::json::begins(line.text) {
                // A JSON row contains the names of its columns.
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

/// Takes the blank lines that are rows with NULL in a result of one column, but not its end.
fn take_null_rows(lines: &mut Lines<'_>, layout: &Layout) -> u64 {
    if layout.border != Border::None {
        // A row has at least its left margin.
        let null = lines.peek().is_some_and(|line| line.ended && !line.text.is_empty());
        if null {
            lines.next();
        }
        return u64::from(null);
    }
    // All lines before the last blank one are taken even if it ends the result; nothing is lost by that.
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

/// The cells of the row that begins on the next line; takes all its lines.
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
/// NULLs are only blanks there; the tuple's flags show which columns are NULL.
pub(crate) struct BlankRows(Table);

/// Begins such a result on the next line, if there is one.
pub(crate) fn begin_blank_separated(lines: &mut Lines<'_>, out: &mut Out<'_>) -> Option<BlankRows> {
    let first = lines.peek()?;
    blank_separated(first.text)?;
    Some(BlankRows(Table::begin(Header::of_items(), Form::Aligned, first.number, out)))
}

impl BlankRows {
    /// Reads rows until the end of the result.
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
    // One word more than there are columns shows that a line is not a row.
    let words: Vec<&str> = line.split_ascii_whitespace().take(15).collect();
    if words.len() < 4 || !words[..4].iter().all(|w| w.bytes().all(|b| b.is_ascii_digit())) {
        return None;
    }
    let mut cells = [None; 14];
    if words.len() == 14 {
        // NULLs are displayed as a text.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Border {
    /// Cells are at fixed positions, separated by one blank.
    None,
    /// There is a separator between cells.
    Inner,
    /// There are also separators before the first cell and after the last.
    Outer,
}

/// Why a cell continues on the next line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Join {
    /// It was too wide.
    Wrap,
    /// Its value has a line break.
    LineBreak,
}

impl Join {
    fn by_mark(c: char) -> Option<Join> {
        match c {
            '.' | '…' => Some(Join::Wrap),
            '+' | '↵' => Some(Join::LineBreak),
            _ => None,
        }
    }

    /// The mark with which `old-ascii` replaces a separator.
    fn by_old_separator(c: char) -> Option<Join> {
        match c {
            ';' => Some(Join::Wrap),
            ':' => Some(Join::LineBreak),
            _ => None,
        }
    }

    pub(crate) fn append(self, cell: &mut String, more: &str) {
        if self == Join::LineBreak {
            cell.truncate(cell.trim_end().len());
            cell.push('\n');
        }
        cell.push_str(more);
    }
}

/// The positions of the cells of a result.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) border: Border,
    /// The first screen column and the width of each cell's text; empty without a header.
    pub(crate) cells: Vec<(usize, usize)>,
    pub(crate) count: usize,
}

/// The part of a cell that is on one line.
pub(crate) struct Piece<'a> {
    /// With a border, it includes both margins; without a border, none.
    pub(crate) raw: &'a str,
    pub(crate) join: Option<Join>,
}

impl Layout {
    /// Derives the layout from the rule below a header; if the rule does not show the border, `row` does.
    pub(crate) fn of_rule(rule: &str, row: &str) -> Option<Layout> {
        let rule = rule.trim_end();
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for (at, c) in rule.chars().enumerate() {
            if runs.len() > MAX_COLUMNS {
                return None;
            }
            if chatter::is_horizontal(c) {
                match runs.last_mut() {
                    Some((start, width)) if *start + *width == at => *width += 1,
                    _ => runs.push((at, 1)),
                }
            }
        }
        let first = rule.chars().next()?;
        let border = if !chatter::is_horizontal(first) && first != ' ' {
            Border::Outer
        } else if rule.contains(' ') {
            Border::None
        } else if runs.len() > 1 || row.starts_with([' ', '.', '…']) {
            Border::Inner
        } else {
            Border::None
        };
        let cells: Option<Vec<_>> = if border == Border::None {
            Some(runs)
        } else {
            runs.into_iter()
                .map(|(start, width)| Some((start + 1, width.checked_sub(2)?)))
                .collect()
        };
        let cells = cells?;
        Some(Layout { border, count: cells.len(), cells })
    }

    pub(crate) fn pieces<'a>(&self, line: &'a str) -> Result<Vec<Piece<'a>>, Problem> {
        if self.border == Border::None {
            return self.pieces_by_place(line);
        }
        let most = MAX_COLUMNS + 3;
        let mut parts: Vec<&str> = if line.is_ascii() {
            line.split('|').take(most).collect()
        } else {
            line.split(chatter::is_separator).take(most).collect()
        };
        if self.border == Border::Outer {
            let blank = |part: Option<&&str>| part.is_some_and(|p| p.trim().is_empty());
            if parts.len() < 2 || !blank(parts.first()) || !blank(parts.last()) {
                return Err(Problem::Misaligned);
            }
            parts.pop();
            parts.remove(0);
        }
        if parts.len() == self.count {
            let piece = |(i, raw)| Piece { raw, join: self.join_of(i, raw) };
            return Ok(parts.into_iter().enumerate().map(piece).collect());
        }
        let got = parts.len();
        if got > self.count && !self.cells.is_empty() {
            // A cell contains the separator's character.
            return self.pieces_by_place(line);
        }
        Err(Problem::ColumnCount { expected: self.count, got })
    }

    /// The mark in the right margin of a cell that has margins.
    fn join_of(&self, cell: usize, raw: &str) -> Option<Join> {
        let join = Join::by_mark(raw.chars().next_back()?)?;
        let at_margin = self.cells.get(cell).is_none_or(|&(_, width)| width_of(raw) == width + 2);
        at_margin.then_some(join)
    }

    fn pieces_by_place<'a>(&self, line: &'a str) -> Result<Vec<Piece<'a>>, Problem> {
        let margin = usize::from(self.border != Border::None);
        let mut cuts = Vec::with_capacity(self.cells.len() * 2);
        for &(start, width) in &self.cells {
            cuts.extend([start - margin, start + width + margin]);
        }
        let offsets = offsets(line, &cuts);
        let mut pieces = Vec::with_capacity(self.cells.len());
        for (i, pair) in offsets.chunks_exact(2).enumerate() {
            let last = i + 1 == self.cells.len();
            let next = offsets.get(2 * i + 2).copied().unwrap_or(line.len());
            let between = line[pair[1]..next].trim();
            let (end, join) = match self.border {
                Border::None => {
                    let join = between.chars().next().and_then(Join::by_mark);
                    if !last
                        && !between.is_empty()
                        && (join.is_none() || between.chars().count() > 1)
                    {
                        return Err(Problem::Misaligned);
                    }
                    // The last cell has no limit on the right.
                    let end = if last && join.is_none() { line.len() } else { pair[1] };
                    (end, join)
                }
                Border::Inner | Border::Outer => {
                    let bounded = between.starts_with(chatter::is_separator);
                    let open_end = last && self.border == Border::Inner;
                    if !bounded && !open_end {
                        return Err(Problem::Misaligned);
                    }
                    let end = if bounded { pair[1] } else { line.len() };
                    (end, self.join_of(i, &line[pair[0]..end]))
                }
            };
            pieces.push(Piece { raw: &line[pair[0]..end], join });
        }
        Ok(pieces)
    }

    /// The text of a piece that is joined with another, without changes on the side of the joint.
    pub(crate) fn text<'a>(&self, piece: &Piece<'a>) -> &'a str {
        let mut text = piece.raw;
        if self.border != Border::None {
            let mut chars = text.chars();
            chars.next();
            if piece.join.is_some() {
                chars.next_back();
            }
            text = chars.as_str();
        }
        if piece.join.is_some() { text } else { text.trim_end() }
    }

    /// The pieces, by cell, on a line that continues a row in line style `old-ascii`.
    pub(crate) fn old_continuation<'a>(&self, line: &'a str) -> Vec<(usize, Join, &'a str)> {
        let mut found = Vec::new();
        if self.border == Border::None || self.cells.len() < 2 {
            return found;
        }
        let cuts: Vec<usize> = self.cells[1..]
            .iter()
            .flat_map(|&(start, width)| [start - 2, start, start + width])
            .collect();
        for (i, cut) in offsets(line, &cuts).chunks_exact(3).enumerate() {
            match line[cut[0]..cut[1]].chars().next() {
                None | Some(' ') => {}
                Some(c) => match Join::by_old_separator(c) {
                    Some(join) => found.push((i + 1, join, line[cut[1]..cut[2]].trim_end())),
                    None => return Vec::new(),
                },
            }
        }
        found
    }
}

/// The width of a text in screen columns.
fn width_of(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// The byte offsets in a line at which the given screen columns begin; the columns are in ascending order.
fn offsets(line: &str, columns: &[usize]) -> Vec<usize> {
    if line.is_ascii() {
        return columns.iter().map(|&column| column.min(line.len())).collect();
    }
    let mut chars = line.char_indices().peekable();
    let mut width = 0;
    columns
        .iter()
        .map(|&column| {
            while width < column
                && let Some((_, c)) = chars.next()
            {
                width += c.width().unwrap_or(0);
            }
            chars.peek().map_or(line.len(), |&(at, _)| at)
        })
        .collect()
}
