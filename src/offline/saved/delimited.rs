//! psql's unaligned and CSV formats with any field separator.

use std::borrow::Cow;

use super::error::{Problem, SavedError};
use super::lines::{Lines, Out, Step};
use super::table::{
    Ending, Header, ITEM_COLUMN_COUNT, MAX_COLUMNS, Table, Value, is_null, may_be_name, own_column,
};
use super::{Form, chatter};

/// The separator and the names of a header line; the separator is empty if there is a single name.
fn header(line: &str) -> Option<(&str, Vec<&str>)> {
    if line.trim() != line {
        return None;
    }
    if own_column(line).is_some() {
        return Some(("", vec![line]));
    }
    // Whatever the separator, the first cell of a row shows that the line is not a header.
    if !may_be_name(line.get(..40).unwrap_or(line).trim_start_matches('"')) {
        return None;
    }
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '?' | '"');
    let first = line.find(|c| !is_name(c))?;
    let behind = &line[first..];
    let guess = &behind[..behind.find(is_name)?];
    [guess, "|", ",", "\t", ";"].into_iter().find_map(|separator| {
        if separator.len() > 1 && separator.contains(' ') {
            return None;
        }
        let names: Vec<&str> = line
            .split(separator)
            .map(|name| name.trim_matches('"'))
            .take(MAX_COLUMNS + 1)
            .collect();
        let sound = names.len() <= MAX_COLUMNS
            && names.iter().all(|name| may_be_name(name) && name.trim() == *name);
        let own = names.iter().filter(|name| own_column(name).is_some()).count();
        // Words that happen to be column names are not a header.
        let enough = if separator == " " { own == names.len() } else { own > 0 };
        (names.len() > 1 && sound && enough).then_some((separator, names))
    })
}

fn form_of(separator: &str) -> Form {
    if separator == "," { Form::Csv } else { Form::Unaligned }
}

/// The rows of a result with a field separator.
pub(crate) struct Rows {
    /// Empty if there is a single column.
    separator: String,
    table: Table,
    /// The number of empty lines in a result with one column: rows of NULL, if further rows follow.
    null_rows: u64,
}

/// Begins a result whose header is on the next line, if there is one.
pub(crate) fn begin_with_header(lines: &mut Lines<'_>, out: &mut Out<'_>) -> Option<Rows> {
    let mut ahead = *lines;
    let first = ahead.next()?;
    let (separator, names) = header(first.text)?;
    if let Some(next) = ahead.peek() {
        // Lists of columns also occur in echoed queries.
        let text = next.text.trim();
        let query = text.get(..5).is_some_and(|word| word.eq_ignore_ascii_case("from "));
        if query
            || (separator.is_empty() && !is_single_cell(text) && chatter::footer(text).is_none())
        {
            return None;
        }
    }
    let header = Header::of_names(&names)?;
    let table = Table::begin(header, form_of(separator), first.number, out);
    *lines = ahead;
    if !first.ended {
        let problem = Problem::Cut("the text ends within a header".into());
        out.error(problem.at(first.number, None));
    }
    Some(Rows { separator: separator.to_owned(), table, null_rows: 0 })
}

/// Begins a result without a header on the next line, if there is one; an error if its columns cannot be determined.
pub(crate) fn begin_without_header(
    lines: &mut Lines<'_>,
    out: &mut Out<'_>,
) -> Option<Result<Rows, SavedError>> {
    let line = lines.peek()?;
    let text = line.text;
    let separator = if text.starts_with(|c: char| c.is_ascii_digit()) {
        separator_of_row(text)?
    } else if is_single_cell(text.trim()) && !is_null(text.trim()) {
        ""
    } else {
        return None;
    };
    let mut ahead = *lines;
    let (cells, _) = match next_row(&mut ahead, separator) {
        Ok(row) => row,
        Err(problem) => {
            *lines = ahead;
            return Some(Err(problem.at(line.number, None)));
        }
    };
    let Some(header) = Header::of_shape(&cells) else {
        let data = chatter::looks_like_data(text) || cells.len() + 2 >= ITEM_COLUMN_COUNT;
        return data.then(|| Err(Problem::NoHeader { columns: cells.len() }.at(line.number, None)));
    };
    let table = Table::begin(header, form_of(separator), line.number, out);
    Some(Ok(Rows { separator: separator.to_owned(), table, null_rows: 0 }))
}

/// The maximum number of cells that a line has as a row of any format.
pub(crate) fn count_cells(line: &str) -> usize {
    ["|", "│", "║", ",", "\t", ";"]
        .into_iter()
        .filter_map(|separator| next_row(&mut Lines::new(line), separator).ok())
        .map(|(cells, _)| cells.len())
        .max()
        .unwrap_or(1)
}

/// The text between the first two cells of a row that begins with a number.
fn separator_of_row(row: &str) -> Option<&str> {
    let behind = row.trim_start_matches(|c: char| c.is_ascii_digit());
    let end = behind.find(|c: char| c.is_alphanumeric() || matches!(c, '\\' | '(' | '{' | '"'))?;
    let separator = &behind[..end];
    (!separator.trim_matches(' ').is_empty()).then_some(separator)
}

/// Whether a text may be the only cell of a row: a bytea, an array of bytea, or NULL.
fn is_single_cell(text: &str) -> bool {
    let text = text.trim_start_matches('"');
    is_null(text)
        || text.starts_with(|c: char| matches!(c, '\\' | '(') || c.is_ascii_digit())
        || text.strip_prefix('{').is_some_and(|inner| {
            let inner = inner.trim_start_matches('"');
            inner.starts_with(['\\', '}']) || inner.starts_with("NULL")
        })
}

impl Rows {
    /// Reads rows until the end of the result.
    pub(crate) fn go_on(&mut self, lines: &mut Lines<'_>, out: &mut Out<'_>) -> Step {
        let Rows { separator, table, null_rows } = self;
        let single = separator.is_empty();
        loop {
            if lines.pauses() {
                return Step::Paused;
            }
            let Some(line) = lines.peek() else { return Step::Ended };
            let text = line.text;
            if let Some(rows) = chatter::footer(text) {
                lines.next();
                table.skip_null_rows(std::mem::take(null_rows));
                table.check_footer(line.number, rows, out);
                return Step::Ended;
            }
            if text.trim().is_empty() {
                lines.next();
                if !single {
                    return Step::Ended;
                }
                *null_rows += 1;
                continue;
            }
            let ends = if single {
                !is_single_cell(text.trim())
            } else {
                !text.contains(separator.as_str()) && !chatter::looks_like_data(text) && line.ended
            };
            if ends && line.ended
                || header(text).is_some()
                || chatter::is_record_line(text)
                || chatter::is_timing(text)
                || chatter::server_error(text).is_some()
            {
                return Step::Ended;
            }
            let row = next_row(lines, separator);
            table.skip_null_rows(std::mem::take(null_rows));
            match row {
                Ok((cells, ending)) => {
                    if !line.ended
                        && (cells.len() < table.header().len() || chatter::cut_footer(text))
                    {
                        let problem = Problem::Cut("the text ends within a row".into());
                        table.malformed(line.number, problem, out);
                        continue;
                    }
                    let values: Vec<Value<'_>> =
                        cells.iter().map(|c| Value::Text(c.trim())).collect();
                    table.push(line.number, &values, ending, out);
                }
                Err(problem) => table.malformed(line.number, problem, out),
            }
        }
    }
}

/// The cells of the row that begins on the next line; takes all its lines.
fn next_row<'a>(
    lines: &mut Lines<'a>,
    separator: &str,
) -> Result<(Vec<Cow<'a, str>>, Ending), Problem> {
    let mut cells = Vec::new();
    let Some(mut line) = lines.next() else { return Ok((cells, Ending::EndOfText)) };
    let mut rest = line.text;
    loop {
        let quoted = quoted_cell(rest, separator, &mut line, lines)?;
        let closed = quoted.is_some();
        let (cell, behind) = quoted.unwrap_or_else(|| {
            let end = plain_cell(rest, separator);
            (Cow::Borrowed(&rest[..end]), &rest[end..])
        });
        cells.push(cell);
        if cells.len() > MAX_COLUMNS {
            let expected = format!("at most {MAX_COLUMNS} columns");
            return Err(Problem::expected(expected, line.text));
        }
        if behind.is_empty() {
            let seen = line.ended || closed;
            return Ok((cells, if seen { Ending::Seen } else { Ending::EndOfText }));
        }
        rest = &behind[separator.len()..];
    }
}

/// The length of an unquoted cell.
fn plain_cell(text: &str, separator: &str) -> usize {
    if separator.is_empty() {
        return text.len();
    }
    // Unaligned output does not quote a separator inside a value, such as a comma here.
    let closing = match text.as_bytes() {
        [b'(', ..] => text.find(')'),
        [b'{', ..] => text.find('}'),
        _ => None,
    };
    if let Some(end) = closing.map(|at| at + 1)
        && (text.len() == end || text[end..].starts_with(separator))
    {
        return end;
    }
    find_separator(text, separator).unwrap_or(text.len())
}

/// Finds a separator; the search for a single byte is much faster.
fn find_separator(text: &str, separator: &str) -> Option<usize> {
    match separator.as_bytes() {
        &[byte] => text.find(char::from(byte)),
        _ => text.find(separator),
    }
}

/// A quoted cell, and the rest of its last line; `None` if the text is not quoted as in CSV. Only cells of real CSV may
/// span several lines.
fn quoted_cell<'a>(
    text: &'a str,
    separator: &str,
    line: &mut super::lines::Line<'a>,
    lines: &mut Lines<'a>,
) -> Result<Option<(Cow<'a, str>, &'a str)>, Problem> {
    let Some(mut rest) = text.strip_prefix('"') else { return Ok(None) };
    let mut cell = Cow::Borrowed("");
    let mut several_lines = false;
    loop {
        let end = rest.find('"').unwrap_or(rest.len());
        if cell.is_empty() {
            cell = Cow::Borrowed(&rest[..end]);
        } else {
            cell.to_mut().push_str(&rest[..end]);
        }
        rest = &rest[end..];
        if let Some(behind) = rest.strip_prefix("\"\"") {
            cell.to_mut().push('"');
            rest = behind;
        } else if let Some(behind) = rest.strip_prefix('"') {
            let ends =
                behind.is_empty() || (!separator.is_empty() && behind.starts_with(separator));
            if !ends && several_lines {
                return Err(Problem::expected("a separator after a quoted value", behind));
            }
            return Ok(ends.then_some((cell, behind)));
        } else if separator == "," {
            let Some(next) = lines.next() else {
                return Err(Problem::Cut("the text ends within a quoted value".into()));
            };
            *line = next;
            several_lines = true;
            cell.to_mut().push('\n');
            rest = next.text;
        } else {
            return Ok(None);
        }
    }
}

/// The value that begins at byte `at` of the next line and ends with a line; takes all its lines.
pub(crate) fn value_behind<'a>(lines: &mut Lines<'a>, at: usize, separator: &str) -> Cow<'a, str> {
    let Some(mut line) = lines.next() else { return Cow::Borrowed("") };
    let text = line.text.get(at..).unwrap_or_default();
    let mut ahead = *lines;
    match quoted_cell(text, separator, &mut line, &mut ahead) {
        Ok(Some((cell, ""))) => {
            *lines = ahead;
            cell
        }
        Ok(_) => Cow::Borrowed(text),
        Err(_) => {
            // The quote is not closed up to this point.
            *lines = ahead;
            Cow::Borrowed(text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str, separator: &str) -> Result<Vec<String>, Problem> {
        let (cells, _) = next_row(&mut Lines::new(text), separator)?;
        Ok(cells.into_iter().map(Cow::into_owned).collect())
    }

    #[test]
    fn headers_and_their_separators() {
        assert_eq!(header("lp|lp_off"), Some(("|", vec!["lp", "lp_off"])));
        assert_eq!(header("?column?,lp"), Some((",", vec!["?column?", "lp"])));
        assert_eq!(header("my name\tlp"), Some(("\t", vec!["my name", "lp"])));
        assert_eq!(header("lp<>t_data"), Some(("<>", vec!["lp", "t_data"])));
        assert_eq!(header("t_data"), Some(("", vec!["t_data"])));
        for no_header in ["lp, t_data", "a|b", "lp,", " lp|t_data", "SELECT lp", "the lp of t_data"]
        {
            assert_eq!(header(no_header), None, "{no_header}");
        }
    }

    #[test]
    fn rows_quoted_and_not() {
        let cells = |cells: &[&str]| Ok(cells.iter().map(|&c| c.to_owned()).collect());
        assert_eq!(
            row(r#"1,"(0,1)",,"{""\\x01"",NULL}""#, ","),
            cells(&["1", "(0,1)", "", r#"{"\\x01",NULL}"#])
        );
        assert_eq!(
            row(r#"1,(0,1),,{"\\x01",NULL}"#, ","),
            cells(&["1", "(0,1)", "", r#"{"\\x01",NULL}"#])
        );
        assert_eq!(row("\"My t\"|1", "|"), cells(&["My t", "1"]));
        assert_eq!(row("\"My t|1", "|"), cells(&["\"My t", "1"]));
        assert_eq!(row("\"a\nb\",1\n2", ","), cells(&["a\nb", "1"]));
        assert_eq!(row("||", "|"), cells(&["", "", ""]));
        assert!(row("\"a\nb", ",").is_err());
        assert_eq!(separator_of_row("1|8160"), Some("|"));
        assert_eq!(separator_of_row(r"0;\x00"), Some(";"));
        assert_eq!(separator_of_row("1  8160"), None);
        assert_eq!(separator_of_row("12"), None);
    }
}
