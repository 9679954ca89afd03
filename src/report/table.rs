//! Tables as psql prints them, fitted to a width.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use anstyle::{Ansi256Color, AnsiColor};
use comfy_table::{
    CellAlignment, ContentArrangement, ContentLineStyle, LineStyle, Table, TableStyle,
};
use maud::{Markup, html};
use toast_format::model::sql::is_unprintable;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// psql's `border 1`: columns parted by bars, a rule below the header, no frame.
const PSQL: TableStyle = TableStyle::new()
    .header_lines(ContentLineStyle::none().junction('|'))
    .header_separator(LineStyle::none().fill('-').junction('+'))
    .content_lines(ContentLineStyle::none().junction('|'));
const MARKDOWN: TableStyle = comfy_table::presets::ASCII_MARKDOWN;

/// A column of a [`Grid`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub title: &'static str,
    /// Whether cells are aligned to the right, as numbers are.
    pub right: bool,
    /// Columns of rank 0 are always shown; if the width is too small, those of the highest rank are left out first.
    pub rank: u8,
    /// Whether cells are names, which are shortened in the middle, down to [`NAME`] columns, before others are left out.
    is_name: bool,
}

/// The rank from which on a phone does not show a column of a page.
const WIDE: u8 = 3;

/// Columns of a terminal that names keep.
pub(super) const NAME: usize = 16;

impl Head {
    /// A column of text.
    pub const fn text(title: &'static str, rank: u8) -> Head {
        Head { title, right: false, rank, is_name: false }
    }

    /// A column of names, which is always shown.
    pub(super) const fn name(title: &'static str) -> Head {
        Head { title, right: false, rank: 0, is_name: true }
    }

    /// A column of numbers.
    pub const fn number(title: &'static str, rank: u8) -> Head {
        Head { title, right: true, rank, is_name: false }
    }

    /// The class of cells on a page.
    fn class(&self) -> Option<&'static str> {
        match (self.right, self.rank >= WIDE) {
            (true, true) => Some("number wide"),
            (true, false) => Some("number"),
            (false, true) => Some("wide"),
            (false, false) => None,
        }
    }
}

/// A column of a [`Grid`] and its cell for each row.
pub struct Column<T> {
    head: Head,
    cell: fn(&T) -> String,
}

/// A column of text.
pub const fn text<T>(title: &'static str, rank: u8, cell: fn(&T) -> String) -> Column<T> {
    Column { head: Head::text(title, rank), cell }
}

/// A column of names, which is always shown.
pub(super) const fn name<T>(title: &'static str, cell: fn(&T) -> String) -> Column<T> {
    Column { head: Head::name(title), cell }
}

/// A column of numbers.
pub const fn number<T>(title: &'static str, rank: u8, cell: fn(&T) -> String) -> Column<T> {
    Column { head: Head::number(title, rank), cell }
}

/// How a [`Grid`] is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// For a terminal of this width; `None` for no limit.
    Terminal(Option<usize>),
    /// Markdown, whose cells are never shortened.
    Markdown,
    /// Part of a page for a browser.
    Html,
}

impl Style {
    /// The width of the terminal, if there is one and it is known.
    pub fn width(self) -> Option<usize> {
        match self {
            Style::Terminal(width) => width,
            Style::Markdown | Style::Html => None,
        }
    }
}

/// Whether signs that are not ASCII are replaced before lines are laid out.
static IS_ASCII: AtomicBool = AtomicBool::new(false);

/// Has tables and paragraphs for people laid out in ASCII, because the locale is not one of UTF-8.
pub(crate) fn use_ascii() {
    IS_ASCII.store(true, Ordering::Relaxed);
}

/// The signs of reports and messages in ASCII. Names and values keep theirs. `about` is written before an estimate.
pub(crate) fn ascii(text: &str, about: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '±' => out.push_str("+/-"),
            '≈' => out.push_str(about),
            '…' => out.push_str("..."),
            '–' => out.push('-'),
            'µ' => out.push('u'),
            other => out.push(other),
        }
    }
    out
}

/// The text as this locale shows it.
fn in_locale<'a>(text: &'a str, about: &str) -> Cow<'a, str> {
    if IS_ASCII.load(Ordering::Relaxed) && !text.is_ascii() {
        Cow::Owned(ascii(text, about))
    } else {
        Cow::Borrowed(text)
    }
}

/// What stands for "≈" in a cell, where there is no room for a word, and in a sentence.
const ABOUT_IN_CELL: &str = "~";
pub(crate) const ABOUT: &str = "about ";

/// A table of more columns has small print on paper.
const MANY: usize = 12;

/// A table: its heads, and rows with one cell for each.
#[derive(Debug, Clone, Default)]
pub struct Grid {
    heads: Vec<Head>,
    rows: Vec<Vec<String>>,
}

/// What a drawn grid had to leave out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drawn {
    /// The text, each line ended.
    pub text: String,
    /// Titles of the columns left out.
    pub left_out: Vec<&'static str>,
}

impl Grid {
    pub fn new(heads: &[Head]) -> Grid {
        Grid { heads: heads.to_vec(), rows: Vec::new() }
    }

    /// A row for each of `rows`.
    pub fn from_rows<T>(rows: &[T], columns: &[Column<T>]) -> Grid {
        let heads: Vec<Head> = columns.iter().map(|column| column.head).collect();
        let mut grid = Grid::new(&heads);
        for row in rows {
            grid.row(columns.iter().map(|column| (column.cell)(row)).collect());
        }
        grid
    }

    /// Adds a row, one cell for each head.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.into_iter().map(|cell| printable(&cell)).collect());
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The columns that have a cell that is not empty.
    fn filled(&self) -> Vec<usize> {
        let is_filled =
            |row: &Vec<String>, at: usize| row.get(at).is_some_and(|cell| !cell.is_empty());
        let columns = 0..self.heads.len();
        columns.filter(|&at| self.rows.iter().any(|row| is_filled(row, at))).collect()
    }

    /// A table of a page. The first column with a title names the rows.
    pub(super) fn html(&self, caption: &str) -> Markup {
        let shown: Vec<(usize, &Head)> =
            self.filled().into_iter().filter_map(|at| Some((at, self.heads.get(at)?))).collect();
        let names = shown.iter().find(|(_, head)| !head.title.is_empty()).map(|(at, _)| *at);
        let many = (shown.len() > MANY).then_some("many");
        let table = html! {
            table class=[many] {
                caption { (caption) }
                thead {
                    tr {
                        @for (_, head) in &shown {
                            @if head.title.is_empty() { td {} }
                            @else { th scope="col" class=[head.class()] { (head.title) } }
                        }
                    }
                }
                tbody {
                    @for row in &self.rows {
                        tr {
                            @for &(at, head) in &shown {
                                @if Some(at) == names { th scope="row" { (row.get(at).map_or("", String::as_str)) } }
                                @else { td class=[head.class()] { (row.get(at).map_or("", String::as_str)) } }
                            }
                        }
                    }
                }
            }
        };
        scrolled(caption, &table)
    }

    /// Draws the grid. Columns whose cells are all empty are not drawn.
    pub fn draw(&self, style: Style) -> Drawn {
        let mut shown = self.filled();
        let mut left_out = Vec::new();
        let mut widest = None;
        if let Style::Terminal(Some(width)) = style {
            while self.width(&shown) > width + self.spare_of_names(&shown) {
                let last = shown.iter().copied().max_by_key(|&at| self.rank(at));
                let Some(last) = last.filter(|&at| self.rank(at) > 0) else { break };
                shown.retain(|&at| at != last);
                left_out.extend(self.heads.get(last).map(|head| head.title));
            }
            widest = self.widest_text(&shown, width);
        }
        left_out.reverse();
        Drawn { text: self.text(&shown, widest, style), left_out }
    }

    /// By how much names can be shortened.
    fn spare_of_names(&self, shown: &[usize]) -> usize {
        let names = shown.iter().filter(|at| self.heads.get(**at).is_some_and(|head| head.is_name));
        names.map(|&at| self.column_width(at).saturating_sub(NAME)).sum()
    }

    /// The width that columns of text may have so that the grid has this width; `None` if it is no wider.
    fn widest_text(&self, shown: &[usize], width: usize) -> Option<usize> {
        const LEAST: usize = 8;
        let over = self.width(shown).checked_sub(width).filter(|&over| over > 0)?;
        let texts = shown.iter().filter(|at| self.heads.get(**at).is_some_and(|head| !head.right));
        let widths: Vec<usize> = texts.map(|&at| self.column_width(at)).collect();
        let mut limit = width;
        while limit > LEAST
            && widths.iter().map(|width| width.saturating_sub(limit)).sum::<usize>() < over
        {
            limit -= 1;
        }
        Some(limit)
    }

    fn rank(&self, at: usize) -> u8 {
        self.heads.get(at).map_or(0, |head| head.rank)
    }

    fn column_width(&self, at: usize) -> usize {
        let head = self.heads.get(at).map_or("", |head| head.title);
        let head = in_locale(head, ABOUT_IN_CELL).width();
        self.rows
            .iter()
            .filter_map(|row| row.get(at))
            .map(|cell| in_locale(cell, ABOUT_IN_CELL).width())
            .fold(head, usize::max)
    }

    /// Width of a line: each column with a blank on both sides, bars between them.
    fn width(&self, shown: &[usize]) -> usize {
        let cells: usize = shown.iter().map(|&at| self.column_width(at) + 2).sum();
        cells + shown.len().saturating_sub(1)
    }

    /// Draws the shown columns. `widest`: the width to which texts are shortened.
    fn text(&self, shown: &[usize], widest: Option<usize>, style: Style) -> String {
        let mut table = Table::new();
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.load_style(if style == Style::Markdown { MARKDOWN } else { PSQL });
        let heads = shown.iter().filter_map(|&at| self.heads.get(at));
        table.set_header(heads.map(|head| in_locale(head.title, ABOUT_IN_CELL)));
        for row in &self.rows {
            table.add_row(shown.iter().map(|&at| {
                let text = in_locale(row.get(at).map_or("", String::as_str), ABOUT_IN_CELL);
                let text = match (widest, self.heads.get(at)) {
                    (Some(width), Some(head)) if head.is_name => shortened_name(&text, width),
                    (Some(width), Some(head)) if !head.right => shortened(&text, width),
                    _ => text.into_owned(),
                };
                if style == Style::Markdown { text.replace('|', "\\|") } else { text }
            }));
        }
        for (column, &at) in table.column_iter_mut().zip(shown) {
            if self.heads.get(at).is_some_and(|head| head.right) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let mut text = String::new();
        for (at, line) in table.lines().enumerate() {
            match line.trim_end() {
                titles if at == 0 && style != Style::Markdown => {
                    text.push_str(&Tone::Heading.styled(titles));
                }
                line => text.push_str(line),
            }
            text.push('\n');
        }
        text
    }
}

/// Something wide, which is scrolled rather than the page, also with the keyboard.
pub(super) fn scrolled(name: &str, content: &Markup) -> Markup {
    html! { div.scroll role="group" tabindex="0" aria-label=(name) { (content) } }
}

/// The text with control characters escaped, as well as invisible characters and those that change the direction of
/// writing: names come from servers and files, and must not control the terminal.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unprintable(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Like [`printable`], for several lines: line ends and tabs are kept.
pub fn printable_lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for part in text.split_inclusive(['\n', '\t']) {
        let words = part.trim_end_matches(['\n', '\t']);
        out.push_str(&printable(words));
        out.push_str(part.get(words.len()..).unwrap_or_default());
    }
    out
}

/// The same JSON in printable characters: strings with other characters are written with escapes.
pub fn printable_json(json: String) -> String {
    // a line end can only be between strings
    let is_odd = |c: char| c != '\n' && is_unprintable(c);
    if !json.contains(is_odd) {
        return json;
    }
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if is_odd(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// The meaning of a text. A terminal shows it by style, but never by style alone. For other outputs, the style is
/// removed (`anstream`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Heading,
    /// Everything is sound or complete.
    Good,
    /// Nothing is lost, but action is needed.
    Warning,
    /// Damage, or a failure.
    Bad,
}

/// A yellow and a green that are readable on a light background too.
pub(crate) const DARK_YELLOW: Ansi256Color = Ansi256Color(136);
const DARK_GREEN: Ansi256Color = Ansi256Color(28);

impl Tone {
    /// The class of an element of a page.
    pub(super) fn name(self) -> &'static str {
        match self {
            Tone::Heading => "heading",
            Tone::Good => "good",
            Tone::Warning => "warning",
            Tone::Bad => "bad",
        }
    }

    /// The text in this style, word by word, because lines are broken between words.
    pub(super) fn styled(self, words: &str) -> String {
        let style = match self {
            Tone::Heading => anstyle::Style::new().bold(),
            Tone::Good => DARK_GREEN.on_default(),
            Tone::Warning => DARK_YELLOW.on_default().bold(),
            Tone::Bad => AnsiColor::Red.on_default().bold(),
        };
        let shown = words.split(' ').map(|word| match word {
            "" => String::new(),
            word => format!("{style}{word}{style:#}"),
        });
        shown.collect::<Vec<_>>().join(" ")
    }
}

/// Columns of a terminal that a text takes; its styles take none.
fn columns(text: &str) -> usize {
    if text.contains('\u{1b}') {
        return anstream::adapter::strip_str(text).to_string().width();
    }
    text.width()
}

/// Represents a space at which no line is broken. Unicode assigns it to no character.
const KEPT_SPACE: char = '\u{FDD0}';

/// The same statement in printable characters: names and literals with other characters are written with escapes
/// (`U&"…"` and `E'…'`).
pub fn statement(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some((before, quoted, behind)) = first_part(rest) {
        if !quoted.starts_with(['"', '\'']) {
            out.push_str(&printable(before));
            out.push_str(&printable(quoted));
        } else if !quoted.contains(needs_escape) {
            out.push_str(&printable(before));
            out.push_str(quoted);
        } else if quoted.starts_with('"') {
            out.push_str(&printable(before));
            out.push_str("U&");
            for c in quoted.chars() {
                match c {
                    '\\' => out.push_str("\\\\"),
                    c if needs_escape(c) && u32::from(c) > 0xFFFF => {
                        out.push_str(&format!("\\+{:06X}", u32::from(c)));
                    }
                    c if needs_escape(c) => out.push_str(&format!("\\{:04X}", u32::from(c))),
                    c => out.push(c),
                }
            }
        } else {
            let (outside, is_escaped) = match before.strip_suffix('E') {
                Some(outside) => (outside, true),
                None => (before, false),
            };
            out.push_str(&printable(outside));
            out.push('E');
            for c in quoted.chars() {
                match c {
                    '\\' if !is_escaped => out.push_str("\\\\"),
                    c if needs_escape(c) && u32::from(c) > 0xFFFF => {
                        out.push_str(&format!("\\U{:08X}", u32::from(c)));
                    }
                    c if needs_escape(c) => out.push_str(&format!("\\u{:04X}", u32::from(c))),
                    c => out.push(c),
                }
            }
        }
        rest = behind;
    }
    out.push_str(&printable(rest));
    out
}

/// Whether a character of a statement is printed as an escape.
fn needs_escape(c: char) -> bool {
    is_unprintable(c) || c == KEPT_SPACE
}

/// The first name, literal, comment or line end of a text, with what is before it and behind it.
fn first_part(sql: &str) -> Option<(&str, &str, &str)> {
    let (start, first) = sql.char_indices().find(|&(at, c)| {
        let is_comment = c == '-' && sql.get(at..).is_some_and(|rest| rest.starts_with("--"));
        is_comment || matches!(c, '"' | '\'' | '\n')
    })?;
    let (before, rest) = sql.split_at(start);
    let end = match first {
        '\n' => 1,
        '-' => rest.find('\n').unwrap_or(rest.len()),
        _ => end_of_quoted(rest, before.ends_with('E')),
    };
    let (part, behind) = rest.split_at(end);
    Some((before, part, behind))
}

/// The end of the name or literal at the start of a text: after the first quote that is not doubled. In an escaped
/// literal, a backslash escapes the next character.
fn end_of_quoted(text: &str, is_escaped: bool) -> usize {
    let mut chars = text.char_indices();
    let Some((_, quote)) = chars.next() else { return 0 };
    while let Some((at, c)) = chars.next() {
        if c == '\\' && is_escaped && quote == '\'' {
            chars.next();
        } else if c == quote {
            let next = at + c.len_utf8();
            if !text.get(next..).is_some_and(|rest| rest.starts_with(quote)) {
                return next;
            }
            chars.next();
        }
    }
    text.len()
}

/// A shell command, which is printable already, or a statement.
pub(super) fn command_line(command: &str) -> String {
    if command.starts_with("toastctl ") { command.to_owned() } else { statement(command) }
}

/// The lines of a statement that has several, each as [`statement`] gives it.
pub fn statement_lines(sql: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut rest = sql;
    while let Some((before, part, behind)) = first_part(rest) {
        if let Some(line) = lines.last_mut() {
            line.push_str(before);
            line.push_str(if part == "\n" { "" } else { part });
        }
        if part == "\n" {
            lines.push(String::new());
        }
        rest = behind;
    }
    if let Some(line) = lines.last_mut() {
        line.push_str(rest);
    }
    lines.iter().map(|line| statement(line)).collect()
}

/// Like [`wrapped`], for words followed by a statement, whose names and literals are not broken.
pub fn wrapped_statement(words: &str, sql: &str, width: Option<usize>, indent: usize) -> String {
    let mut text = words.to_owned();
    let sql = statement(sql);
    let mut rest = sql.as_str();
    while let Some(start) = rest.find(['"', '\'']) {
        let (before, quoted) = rest.split_at(start);
        let (quoted, behind) = quoted.split_at(end_of_quoted(quoted, before.ends_with('E')));
        text.push_str(before);
        text.extend(quoted.chars().map(|c| if c == ' ' { KEPT_SPACE } else { c }));
        rest = behind;
    }
    text.push_str(rest);
    wrapped(&text, width, indent)
}

/// Breaks a line of words so that it fits `width`; lines after the first are indented by `indent`.
pub fn wrapped(text: &str, width: Option<usize>, indent: usize) -> String {
    let Some(width) = width else { return text.replace(KEPT_SPACE, " ") };
    let text = with_units(&in_locale(text, ABOUT));
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if columns(line) + 1 + columns(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            // of two spaces, the second would be a line
            Some(_) if word.is_empty() => {}
            Some(_) => lines.push(format!("{}{word}", " ".repeat(indent))),
            None => lines.push(word.to_owned()),
        }
    }
    lines.join("\n").replace(KEPT_SPACE, " ")
}

/// Units that stay on the line of their number.
const UNITS: [&str; 9] = ["%", "bytes", "kB", "MB", "GB", "TB", "s", "ms", "µs"];

/// The text with spaces before units at which lines are not broken.
fn with_units(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    for (number, word) in text.split(' ').enumerate() {
        let unit = word.trim_end_matches([',', '.', ';', ':', ')']);
        if UNITS.contains(&unit) && kept.ends_with(|last: char| last.is_ascii_digit()) {
            kept.push(KEPT_SPACE);
        } else if number > 0 {
            kept.push(' ');
        }
        kept.push_str(word);
    }
    kept
}

/// The lines of a message, broken between words on a terminal of this width. A command at the end of a line, which no full
/// stop ends, is not broken, so that it can be copied.
pub(crate) fn message_lines(text: &str, width: Option<usize>) -> String {
    let lines = text.lines().map(|line| {
        let is_prose = line.ends_with('.');
        let command = if is_prose { None } else { line.find("toastctl ") };
        let (words, command) = line.split_at(command.unwrap_or(line.len()));
        let kept = command.replace(' ', &KEPT_SPACE.to_string());
        let label = line.find(":  ").and_then(|at| line.get(..at));
        let label = label.filter(|label| label.bytes().all(|byte| byte.is_ascii_uppercase()));
        let indent = label.map_or(4, |label| label.len() + 3);
        wrapped(&format!("{words}{kept}"), width, indent)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A shell command, wrapped before options; quoted text is not broken.
pub(super) fn continued(command: &str, width: Option<usize>) -> String {
    let plain = command.starts_with("toastctl ") && !command.contains(['\'', '"']);
    let Some(width) = width.filter(|&width| plain && command.chars().count() + 2 > width) else {
        return command.to_owned();
    };
    let mut lines: Vec<String> = Vec::new();
    for part in command.split(" --") {
        match lines.last_mut() {
            Some(line) if line.chars().count() + part.chars().count() + 13 <= width => {
                line.push_str(&format!(" --{part}"));
            }
            Some(_) => lines.push(format!("--{part}")),
            None => lines.push(part.to_owned()),
        }
    }
    lines.join(" \\\n        ")
}

/// At most `width` columns of `text`, the last an ellipsis if the text is cut.
fn shortened(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let ellipsis = in_locale("…", ABOUT);
    beginning(text.chars(), width.saturating_sub(ellipsis.width())) + &ellipsis
}

/// At most `width` columns of a name, of which both ends are kept.
pub(super) fn shortened_name(name: &str, width: usize) -> String {
    if name.width() <= width {
        return name.to_owned();
    }
    let ellipsis = in_locale("…", ABOUT);
    let room = width.saturating_sub(ellipsis.width());
    let begin = beginning(name.chars(), room / 2);
    let end = beginning(name.chars().rev(), room - room / 2);
    begin + &ellipsis + &end.chars().rev().collect::<String>()
}

/// The first of these characters that fit into `width` columns.
fn beginning(all: impl Iterator<Item = char>, width: usize) -> String {
    let mut out = String::new();
    for c in all {
        if out.width() + c.width().unwrap_or(0) > width {
            break;
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_both_ends_and_no_figure_gives_way_to_them() {
        let name = format!("{}_of_orders", "q".repeat(53));
        assert_eq!(shortened_name(&name, 16), "qqqqqqq…f_orders");
        assert_eq!(shortened_name("orders", 6), "orders");
        let mut grid =
            Grid::new(&[Head::name("Table"), Head::name("Column"), Head::number("Stored", 1)]);
        grid.row(vec![name.clone(), "short".into(), "10 MB".into()]);
        let drawn = grid.draw(Style::Terminal(Some(40)));
        assert!(drawn.left_out.is_empty(), "{}", drawn.text);
        let row = drawn.text.lines().last().unwrap();
        assert!(row.ends_with("_of_orders | short  |  10 MB") && row.width() == 39, "{row}");
        // in a narrower place they do
        assert_eq!(grid.draw(Style::Terminal(Some(30))).left_out, ["Stored"]);
    }

    #[test]
    fn styles_take_no_room() {
        let toned =
            format!("{}: {}", Tone::Heading.styled("public.t"), Tone::Bad.styled("2 errors"));
        let broken = wrapped(&toned, Some(12), 2);
        let shown = anstream::adapter::strip_str(&broken).to_string();
        assert_eq!(shown, "public.t: 2\n  errors");
        assert_eq!(shown, wrapped("public.t: 2 errors", Some(12), 2));
    }

    /// A grid without styles.
    fn plain(drawn: &Drawn) -> String {
        anstream::adapter::strip_str(&drawn.text).to_string()
    }

    fn grid() -> Grid {
        let mut grid = Grid::new(&[
            Head::text("Column", 0),
            Head::text("Type", 2),
            Head::number("Values", 1),
            Head::number("Empty", 1),
        ]);
        grid.row(vec!["a".into(), "text".into(), "12".into(), String::new()]);
        grid.row(vec!["a_long_name\n".into(), "jsonb".into(), "3".into(), String::new()]);
        grid
    }

    #[test]
    fn names_command_no_terminal() {
        let unseen = "\u{200B}\u{FEFF}\u{2028}\u{AD}\u{E0041}";
        assert_eq!(printable(unseen), unseen.escape_default().to_string());
        assert_eq!(printable_lines("a\u{1b}\nb"), "a\\u{1b}\nb");
        let value = serde_json::json!({ "a": format!("\u{1b}\u{9b}\u{7f}\n{unseen}é") });
        let json = printable_json(format!("{value:#}"));
        assert!(json.starts_with("{\n") && !printable_lines(&json).contains("\\u{"), "{json}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap(), value);
        assert_eq!(printable("a\u{202E}b\n\u{1b}c\u{2066}é"), "a\\u{202e}b\\n\\u{1b}c\\u{2066}é");
    }

    #[test]
    fn wide_enough() {
        insta::assert_snapshot!(plain(&grid().draw(Style::Terminal(Some(80)))), @"
         Column        | Type  | Values
        ---------------+-------+--------
         a             | text  |     12
         a_long_name\\n | jsonb |      3
        ");
    }

    #[test]
    fn columns_go_by_rank_and_then_names_are_cut() {
        let drawn = grid().draw(Style::Terminal(Some(26)));
        assert_eq!(drawn.left_out, ["Type"]);
        insta::assert_snapshot!(plain(&drawn), @"
         Column        | Values
        ---------------+--------
         a             |     12
         a_long_name\\n |      3
        ");
        let drawn = grid().draw(Style::Terminal(Some(10)));
        assert_eq!(drawn.left_out, ["Values", "Type"]);
        insta::assert_snapshot!(plain(&drawn), @"
         Column
        ----------
         a
         a_long_…
        ");
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("  one two three", Some(9), 4), "  one two\n    three");
        assert_eq!(wrapped("one two", None, 4), "one two");
        assert_eq!(wrapped("averylongword b", Some(5), 1), "averylongword\n b");
    }

    #[test]
    fn messages_break_between_words_on_a_terminal_and_commands_do_not() {
        let message =
            "toastctl: error: no such table\nNEXT:  to list them: toastctl inspect -d shop";
        assert_eq!(message_lines(message, None), message);
        assert_eq!(
            message_lines(message, Some(24)),
            "toastctl: error: no such\n    table\nNEXT:  to list them:\n       toastctl inspect -d shop"
        );
        let prose = message_lines("NEXT:  toastctl inspect lists them.", Some(24));
        assert_eq!(prose, "NEXT:  toastctl inspect\n       lists them.");
        // a server's severity within the line is no label
        let of_server = "connection failed: FATAL:  database \"x\" does not exist";
        let broken = "connection failed:\n    FATAL:  database \"x\"\n    does not exist";
        assert_eq!(message_lines(of_server, Some(24)), broken);
    }

    #[test]
    fn markdown() {
        insta::assert_snapshot!(grid().draw(Style::Markdown).text, @r"
        | Column        | Type  | Values |
        |---------------|-------|--------|
        | a             | text  |     12 |
        | a_long_name\n | jsonb |      3 |
        ");
    }

    #[test]
    fn a_statement_is_printed_so_that_it_can_be_pasted() {
        let plain =
            r#"ALTER TABLE "s"."a ""b""" ALTER "c\d" SET STORAGE main; COMMENT ON t IS 'it''s'"#;
        assert_eq!(statement(plain), plain);
        assert_eq!(
            statement("ALTER TABLE \"s\".\"a\n\\\"\"b\" SET \"c\u{202E}\""),
            r#"ALTER TABLE "s".U&"a\000A\\""b" SET U&"c\202E""#
        );
        assert_eq!(
            statement("IS 'a\\\t''b'; IS E'a\\\\\n\\'b'"),
            r"IS E'a\\\u0009''b'; IS E'a\\\u000A\'b'"
        );
        assert_eq!(statement("open \"a\nb"), r#"open U&"a\000Ab"#);
        // an apostrophe in a comment begins no literal
        assert_eq!(
            statement_lines("-- the row's \"a\u{1b}b\nSELECT \"a\nb\"; -- it's\n-- that's"),
            [r#"-- the row's "a\u{1b}b"#, r#"SELECT U&"a\000Ab"; -- it's"#, "-- that's"]
        );
    }

    #[test]
    fn only_plain_words_of_a_shell_are_broken() {
        let plain = "toastctl retoast public.orders --column doc --compact=heap";
        assert_eq!(continued(plain, Some(80)), plain);
        let broken = "toastctl retoast public.orders \\\n        --column doc --compact=heap";
        assert_eq!(continued(plain, Some(40)), broken);
        for other in
            ["toastctl compact 'public.\"a --b\"' --files heap", "VACUUM FULL \"a\".\"b\";"]
        {
            assert_eq!(continued(other, Some(20)), other);
        }
    }

    #[test]
    fn no_name_is_broken_where_lines_are() {
        let sql = r#"ALTER TABLE "a b  c d" ALTER "e f" SET STORAGE main"#;
        assert_eq!(
            wrapped_statement("set: ", sql, Some(24), 5),
            "set: ALTER TABLE\n     \"a b  c d\" ALTER\n     \"e f\" SET STORAGE\n     main"
        );
    }
}
