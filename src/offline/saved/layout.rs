//! Where the cells of an aligned result stand, and a line's pieces of them.

use unicode_width::UnicodeWidthChar;

use super::chatter;
use super::columns::MAX_COLUMNS;
use super::error::Problem;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Border {
    /// Cells stand in their columns with one blank between.
    None,
    /// A separator between cells.
    Inner,
    /// A separator also before the first cell and behind the last.
    Outer,
}

/// How a cell goes on in the next line.
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

    /// The mark that `old-ascii` puts in place of a separator.
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

/// Where the cells of a result stand.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) border: Border,
    /// First column on the screen and width of each cell's text; empty without a header.
    pub(crate) cells: Vec<(usize, usize)>,
    pub(crate) count: usize,
}

/// The part of a cell in one line.
pub(crate) struct Piece<'a> {
    /// With both margins under a border, without under none.
    pub(crate) raw: &'a str,
    pub(crate) join: Option<Join>,
}

impl Layout {
    /// From the rule under a header; a lone rule without ends takes the border from `row`.
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
            // A separator's character within a cell.
            return self.pieces_by_place(line);
        }
        Err(Problem::ColumnCount { expected: self.count, got })
    }

    /// The mark in the right margin of a cell with margins.
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
                    // Nothing bounds the last cell on the right.
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

    /// The text of a piece that is joined to another, exact on the side of the joint.
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

    /// The pieces of a line that goes on a row in line style `old-ascii`, by cell.
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

/// Columns that a text takes on the screen.
fn width_of(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// Where the given columns of the screen, in ascending order, begin in a line.
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
