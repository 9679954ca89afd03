//! psql's expanded format (`\x`) of aligned, wrapped, unaligned and CSV output.
//!
//! A record has one line for each column, beginning with its name. Records are separated by a line with their number, a
//! rule or an empty line. In CSV nothing separates them; a new record begins when the first name occurs again.

use super::error::Problem;
use super::lines::{Line, Lines, Out, Step};
use super::table::{Ending, Header, MAX_COLUMNS, Table, Value, is_null, own_column};
use super::{Form, LineNumber, chatter, delimited, json};

/// The text between a name and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style<'a> {
    /// A separator with blanks: aligned format with border 1 or 2.
    Bordered,
    /// Only blanks: aligned format with border 0.
    Blanks,
    /// The field separator of unaligned or CSV output.
    Delimited(&'a str),
}

/// A column of a record.
#[derive(Debug)]
struct Pair<'a> {
    line: LineNumber,
    name: &'a str,
    /// The value as printed; in aligned formats with trailing blanks or a mark, because it may be continued.
    value: String,
}

#[derive(Debug)]
struct Record<'a> {
    line: LineNumber,
    pairs: Vec<Pair<'a>>,
    ending: Ending,
    /// The text after the record shows that it has no further columns.
    closed: bool,
}

/// The records of expanded results in one style.
pub(crate) struct Records {
    style: Style<'static>,
    /// The field separator, which is then not in the style.
    separator: Option<String>,
    table: Option<Table>,
}

/// Begins an expanded result on the next line, if there is one.
pub(crate) fn begin(lines: &mut Lines<'_>, out: &mut Out<'_>) -> Option<Records> {
    let mut ahead = *lines;
    let first = ahead.next()?;
    let announced = chatter::is_record_line(first.text);
    let first = if announced || chatter::is_rule(first.text) {
        match ahead.peek() {
            // A JSON row is read by the module `json`.
            Some(line) if json::begins(line.text) => return None,
            Some(line) => line,
            None if announced => {
                *lines = ahead;
                let problem = Problem::Cut("the text ends within a record".into());
                out.error(problem.at(first.number, None));
                return Some(Records { style: Style::Bordered, separator: None, table: None });
            }
            None => return None,
        }
    } else {
        ahead = *lines;
        first
    };
    let (style, name) = style_of(first.text)?;
    if !announced {
        let value = match style {
            Style::Bordered => split_bordered(first.text)?.2,
            Style::Blanks => &first.text[name.len()..],
            Style::Delimited(separator) => &first.text[name.len() + separator.len()..],
        };
        if own_column(name).is_none() {
            // The name was added by a user, so the next line must contain one of pageinspect.
            let mut further = ahead;
            further.next();
            let next = further.peek()?.text;
            let (_, next_name) = style_of(next).filter(|_| has_style(next, style))?;
            own_column(next_name)?;
        } else if !begins_like_value(value.trim_start_matches('"').trim()) {
            return None;
        }
    }
    *lines = ahead;
    let (style, separator) = match style {
        Style::Bordered => (Style::Bordered, None),
        Style::Blanks => (Style::Blanks, None),
        Style::Delimited(separator) => (Style::Delimited(""), Some(separator.to_owned())),
    };
    Some(Records { style, separator, table: None })
}

/// Whether a text may be a value of pageinspect's columns, and not a word of a sentence.
fn begins_like_value(text: &str) -> bool {
    is_null(text) || text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '\\' | '{' | '('))
}

/// How the name and the value on a line are separated, and the name; `None` for other lines.
fn style_of(line: &str) -> Option<(Style<'_>, &str)> {
    if let Some((name, ..)) = split_bordered(line).filter(|(name, ..)| !name.is_empty()) {
        return Some((Style::Bordered, name));
    }
    let name = name_at_start(line)?;
    let rest = &line[name.len()..];
    if rest.starts_with(' ') {
        return Some((Style::Blanks, name));
    }
    let end = rest.find(|c: char| {
        c.is_alphanumeric() || !c.is_ascii() || matches!(c, '\\' | '(' | '{' | '"' | '[' | '<')
    });
    let separator = &rest[..end.unwrap_or(rest.len())];
    (!separator.is_empty()).then_some((Style::Delimited(separator), name))
}

fn name_at_start(line: &str) -> Option<&str> {
    let end = line.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '?')))?;
    (end > 0).then(|| &line[..end])
}

/// The name, the separator, and the value with its margins, for an aligned line with separators. The name is blank in
/// lines that continue a value.
fn split_bordered(line: &str) -> Option<(&str, char, &str)> {
    let mut inner = line;
    if let Some(behind) = line.strip_prefix(chatter::is_separator) {
        inner = behind.trim_end();
        inner = inner.strip_suffix(chatter::is_separator).unwrap_or(inner);
    }
    let at = inner.find(|c: char| chatter::is_separator(c) || matches!(c, ';' | ':'))?;
    let (name, rest) = inner.split_at(at);
    let separator = rest.chars().next()?;
    let value = &rest[separator.len_utf8()..];
    // Unaligned output has no blanks around its separator.
    let spaced = name.ends_with(' ') && (value.is_empty() || value.starts_with([' ', '.', '…']));
    let name = name.trim();
    (spaced && (chatter::is_separator(separator) || name.is_empty()))
        .then_some((name, separator, value))
}

impl Records {
    /// Reads records until the end of the result.
    pub(crate) fn go_on(&mut self, lines: &mut Lines<'_>, out: &mut Out<'_>) -> Step {
        let Records { style, separator, table } = self;
        let style = match separator {
            Some(separator) => Style::Delimited(separator),
            None => *style,
        };
        while !lines.pauses() {
            let Some(record) = next_record(lines, style) else { return Step::Ended };
            read_record(&record, table, out);
        }
        Step::Paused
    }
}

fn read_record(record: &Record<'_>, table: &mut Option<Table>, out: &mut Out<'_>) {
    let names = || record.pairs.iter().map(|pair| pair.name);
    let table = match table {
        Some(table) if table.header().has_names(names()) => table,
        other => {
            let Some(begun) = begin_table(record, other.as_ref(), out) else { return };
            other.insert(begun)
        }
    };
    let values: Vec<Value<'_>> =
        record.pairs.iter().map(|pair| Value::Text(pair.value.trim())).collect();
    if let Err(mut error) = table.try_push(record.line, &values, record.ending, out) {
        let pair = record.pairs.iter().find(|pair| error.column.as_deref() == Some(pair.name));
        error.line = pair.map_or(error.line, |pair| pair.line);
        out.error(error);
    }
}

/// Begins the table of a record whose columns differ from earlier ones; `None` if it is not a record, or is cut.
fn begin_table(record: &Record<'_>, before: Option<&Table>, out: &mut Out<'_>) -> Option<Table> {
    let names: Vec<&str> = record.pairs.iter().map(|pair| pair.name).collect();
    let Some(header) = Header::of_names(&names) else {
        if !record.closed {
            let problem = Problem::Cut("the text ends within a record".into());
            out.error(problem.at(record.line, names.first().copied()));
        }
        return None;
    };
    let shorter = before.is_some_and(|table| header.len() < table.header().len());
    if !record.closed && (shorter || !header.is_all()) {
        let problem = Problem::Cut("the record does not have all columns".into());
        out.error(problem.at(record.line, None));
        return None;
    }
    Some(Table::begin(header, Form::Expanded, record.line, out))
}

/// The next record; `None` at the end of the result. The line that ends the result is not taken.
fn next_record<'a>(lines: &mut Lines<'a>, style: Style<'_>) -> Option<Record<'a>> {
    let mut record: Option<Record<'a>> = None;
    let mut closed = false;
    while let Some(line) = lines.peek() {
        let text = line.text;
        let mut ahead = *lines;
        ahead.next();
        let announced = chatter::is_record_line(text);
        let blank = text.trim().is_empty();
        if announced || blank || (style == Style::Bordered && chatter::is_rule(text)) {
            if record.is_some() {
                closed = true;
                // The line before the next record is left for that record.
                if !announced {
                    *lines = ahead;
                }
                break;
            }
            // An empty line ends aligned results. Records of unaligned output are separated by one, and those of border
            // 0 by a line of blanks.
            let goes_on = ahead.peek().is_some_and(|next| {
                (blank && chatter::is_record_line(next.text))
                    || (!(blank && style == Style::Bordered) && has_style(next.text, style))
            });
            if !goes_on {
                return None;
            }
            *lines = ahead;
            continue;
        }
        let last = record.as_mut().and_then(|record| record.pairs.last_mut());
        if last.is_some_and(|last| continue_value(&mut last.value, text, style)) {
            *lines = ahead;
            if let Some(record) = &mut record {
                record.ending = ending(line, style);
            }
            continue;
        }
        let mut ahead = *lines;
        let pair = next_pair(&mut ahead, style);
        let first = record.as_ref().and_then(|record| record.pairs.first());
        let repeated = first.zip(pair.as_ref()).is_some_and(|(a, b)| a.name == b.name);
        let full = record.as_ref().is_some_and(|record| record.pairs.len() >= MAX_COLUMNS);
        let Some(pair) = pair.filter(|_| !repeated && !full) else {
            closed = line.ended;
            break;
        };
        *lines = ahead;
        let record = record.get_or_insert(Record {
            line: line.number,
            pairs: Vec::new(),
            ending: Ending::Seen,
            closed: false,
        });
        record.ending = ending(line, style);
        record.pairs.push(pair);
    }
    record.map(|record| Record { closed, ..record })
}

fn has_style(line: &str, style: Style<'_>) -> bool {
    style_of(line).is_some_and(|(found, _)| match (found, style) {
        // A NULL displayed as symbols looks like a longer separator.
        (Style::Delimited(found), Style::Delimited(wanted)) => found.starts_with(wanted),
        _ => found == style,
    })
}

fn next_pair<'a>(lines: &mut Lines<'a>, style: Style<'_>) -> Option<Pair<'a>> {
    let Line { text, number: line, .. } = lines.peek()?;
    match style {
        Style::Bordered => {
            let (name, _, value) = split_bordered(text)?;
            lines.next();
            (!name.is_empty()).then(|| Pair { line, name, value: without_margin(value).to_owned() })
        }
        Style::Blanks => {
            let name = name_at_start(text)?;
            let value = text[name.len()..].strip_prefix(' ')?.trim_start();
            lines.next();
            Some(Pair { line, name, value: value.to_owned() })
        }
        Style::Delimited(separator) => {
            let (name, _) = text.split_once(separator)?;
            if name.is_empty() || name.contains(['\\', '"', '\'']) {
                return None;
            }
            let value = delimited::value_behind(lines, name.len() + separator.len(), separator);
            Some(Pair { line, name, value: value.into_owned() })
        }
    }
}

fn without_margin(value: &str) -> &str {
    let mut chars = value.chars();
    chars.next();
    chars.as_str()
}

/// Appends a line to the value on the previous line if it continues that value.
fn continue_value(value: &mut String, line: &str, style: Style<'_>) -> bool {
    let (separator, more) = match style {
        Style::Bordered => match split_bordered(line) {
            Some(("", separator, more)) => (separator, without_margin(more)),
            _ => return false,
        },
        Style::Blanks if line.starts_with(' ') => {
            let more = line.trim_start();
            let wrapped = value.ends_with(['.', '…']);
            (' ', if wrapped { more.trim_start_matches(['.', '…']) } else { more })
        }
        _ => return false,
    };
    match value.chars().next_back() {
        Some('.' | '…') => {
            value.pop();
        }
        Some('+' | '↵') => {
            value.pop();
            value.push('\n');
        }
        _ => {
            value.truncate(value.trim_end().len());
            if separator == ':' {
                value.push('\n');
            }
        }
    }
    value.push_str(more);
    true
}

fn ending(line: Line<'_>, style: Style<'_>) -> Ending {
    let bounded = style == Style::Bordered
        && line.text.starts_with(chatter::is_separator)
        && line.text.trim_end().ends_with(chatter::is_separator)
        && line.text.matches(chatter::is_separator).count() >= 3;
    if line.ended || bounded { Ending::Seen } else { Ending::EndOfText }
}
