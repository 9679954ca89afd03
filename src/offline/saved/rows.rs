//! psql's aligned, unaligned and CSV formats: one row a line, with any field separator.

use std::borrow::Cow;

use super::error::SavedProblem;
use super::table::{
    CellValue, Header, ITEM_COLUMN_COUNT, MAX_COLUMNS, SavedTable, is_null, may_be_name, own_column,
};
use super::{LineNumber, Next, SavedOutput, TextLine, text};

/// A line with names of columns; the next line shows whether a result begins.
pub(crate) struct HeaderLine {
    line: LineNumber,
    names: Vec<String>,
    /// Empty if there is a single name.
    separator: String,
    /// Whether it begins with a margin.
    is_aligned: bool,
}

impl HeaderLine {
    pub(crate) fn parse(line: &TextLine<'_>) -> Option<HeaderLine> {
        let is_aligned = line.text.starts_with(' ');
        let (separator, names) =
            if is_aligned { aligned_names(line.text)? } else { delimited_names(line.text)? };
        Some(HeaderLine {
            line: line.number,
            names: names.into_iter().map(str::to_owned).collect(),
            separator: separator.to_owned(),
            is_aligned,
        })
    }

    /// The result that begins with this header and the next line. If there is none, the header may be part of a query.
    pub(crate) fn begin(
        &self,
        next: &TextLine<'_>,
        out: &mut SavedOutput<'_>,
    ) -> Result<Option<DelimitedRows>, SavedProblem> {
        let text = next.text;
        if self.is_aligned && !text::is_rule(text) {
            let is_query = self.separator.is_empty();
            return if is_query {
                Ok(None)
            } else {
                Err(SavedProblem::OtherFormat("format wrapped"))
            };
        }
        if !self.is_aligned {
            if text::is_rule(text) || text::other_format(text) == Some("border 0") {
                return Err(SavedProblem::OtherFormat("border 0"));
            }
            let is_query =
                text.trim().get(..5).is_some_and(|word| word.eq_ignore_ascii_case("from "));
            let is_row = !self.separator.is_empty()
                || is_single_cell(text.trim())
                || text::footer(text).is_some();
            if is_query || !is_row {
                return Ok(None);
            }
        }
        Ok(self.rows(out))
    }

    /// The text ends after the header.
    pub(crate) fn end(&self, ended: bool, out: &mut SavedOutput<'_>) {
        if self.is_aligned || !ended {
            out.error(SavedProblem::cut("the text ends within a header").at(self.line));
        } else {
            self.rows(out);
        }
    }

    fn rows(&self, out: &mut SavedOutput<'_>) -> Option<DelimitedRows> {
        let header = Header::by_names(self.names.iter().map(String::as_str))?;
        Some(DelimitedRows {
            table: SavedTable::begin(header, out),
            separator: self.separator.clone(),
            is_aligned: self.is_aligned,
            last: None,
            null_rows: 0,
        })
    }
}

fn aligned_names(line: &str) -> Option<(&str, Vec<&str>)> {
    let separator = if line.contains('|') { "|" } else { "" };
    let names: Vec<&str> = line.split('|').map(str::trim).take(MAX_COLUMNS + 1).collect();
    let is_header = names.len() <= MAX_COLUMNS
        && names.iter().all(|name| may_be_name(name))
        && names.iter().any(|name| own_column(name).is_some());
    is_header.then_some((separator, names))
}

/// The separator and the names of an unaligned header.
fn delimited_names(line: &str) -> Option<(&str, Vec<&str>)> {
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
    let behind = &line[line.find(|c| !is_in_name(c))?..];
    let guess = &behind[..behind.find(|c| is_in_name(c) || matches!(c, '\\' | '(' | '{'))?];
    for separator in [guess, "|", ",", "\t", ";"] {
        if separator.len() > 1 && separator.contains(' ') {
            continue;
        }
        let names = line.split(separator).map(|name| name.trim_matches('"'));
        let names: Vec<&str> = names.take(MAX_COLUMNS + 1).collect();
        let own = names.iter().filter(|name| own_column(name).is_some()).count();
        // Words that happen to be column names are not a header.
        let has_own = if separator == " " { own == names.len() } else { own > 0 };
        if has_own
            && (2..=MAX_COLUMNS).contains(&names.len())
            && names.iter().all(|name| may_be_name(name) && name.trim() == *name)
        {
            return Some((separator, names));
        }
    }
    None
}

fn is_in_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '?' | '"')
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

/// The text between the first two cells of a row that begins with a number.
fn separator_of_row(row: &str) -> Option<&str> {
    let behind = row.trim_start_matches(|c: char| c.is_ascii_digit());
    let end = behind.find(|c: char| c.is_alphanumeric() || matches!(c, '\\' | '(' | '{' | '"'))?;
    let separator = behind[..end].trim_matches(' ');
    (!separator.is_empty()).then_some(separator)
}

/// The rows of a result.
pub(crate) struct DelimitedRows {
    table: SavedTable,
    /// Empty if there is a single column.
    separator: String,
    is_aligned: bool,
    /// The last row and its line: in an aligned result, the next line shows whether the row is whole.
    last: Option<(LineNumber, String)>,
    /// The number of empty lines in a result with one column: rows of NULL, if further rows follow.
    null_rows: u64,
}

impl DelimitedRows {
    /// Begins a result without a header; an error if the line is a row of unknown columns.
    pub(crate) fn begin_without_header(
        line: &TextLine<'_>,
        out: &mut SavedOutput<'_>,
    ) -> Result<Option<DelimitedRows>, SavedProblem> {
        let row = line.text.trim();
        let separator = if row.starts_with(|c: char| c.is_ascii_digit()) {
            separator_of_row(row)
        } else {
            (is_single_cell(row) && !is_null(row)).then_some("")
        };
        let Some(separator) = separator else { return Ok(None) };
        let cells = cells(row, separator)?;
        let Some(header) = Header::by_shape(&cells) else {
            let is_data = text::looks_like_data(row) || cells.len() + 2 >= ITEM_COLUMN_COUNT;
            return if is_data { Err(SavedProblem::NoHeader) } else { Ok(None) };
        };
        Ok(Some(DelimitedRows {
            table: SavedTable::begin(header, out),
            separator: separator.to_owned(),
            is_aligned: false,
            last: None,
            null_rows: 0,
        }))
    }

    pub(crate) fn take(&mut self, line: &TextLine<'_>, out: &mut SavedOutput<'_>) -> Next {
        let text = line.text;
        let is_single = self.separator.is_empty();
        if let Some(rows) = text::footer(text) {
            self.read_last(true, out);
            self.table.rows += std::mem::take(&mut self.null_rows);
            self.table.check_footer(line.number, rows, out);
            return Next::Ended;
        }
        if self.is_aligned {
            if self.table.rows == 0 && self.last.is_none() && text::is_rule(text) {
                return Next::More;
            }
            if text.is_empty() || !is_single && text.trim().is_empty() {
                self.read_last(true, out);
                return if line.ended { Next::Ended } else { Next::More };
            }
            let is_row = if is_single { is_single_cell(text.trim()) } else { text.contains('|') };
            if !is_row && text.starts_with([' ', '.']) && line.ended {
                out.error(SavedProblem::OtherFormat("format wrapped").at(line.number));
                return Next::Skip;
            }
            if !is_row && line.ended {
                self.end(true, out);
                return Next::Again;
            }
        } else if text.trim().is_empty() {
            if !is_single {
                self.read_last(true, out);
                return Next::Ended;
            }
            self.null_rows += 1;
            return Next::More;
        } else if self.is_ended_by(line) {
            self.read_last(true, out);
            return Next::Again;
        }
        if !self.read_last(true, out) {
            return Next::Skip;
        }
        self.table.rows += std::mem::take(&mut self.null_rows);
        self.last = Some((line.number, text.to_owned()));
        Next::More
    }

    /// Whether a line shows that an unaligned result has ended before it.
    fn is_ended_by(&self, line: &TextLine<'_>) -> bool {
        let text = line.text;
        let is_row = if self.separator.is_empty() {
            is_single_cell(text.trim())
        } else {
            text.contains(self.separator.as_str()) || text::looks_like_data(text)
        };
        !is_row && line.ended
            || delimited_names(text).is_some()
            || text::is_record_line(text)
            || text::is_timing(text)
            || text::server_error(text).is_some()
    }

    pub(crate) fn end(&mut self, ended: bool, out: &mut SavedOutput<'_>) {
        let errors = out.errors;
        self.read_last(ended, out);
        if self.is_aligned && out.errors == errors {
            let problem = "the result ends without its number of rows or an empty line";
            out.error(SavedProblem::cut(problem).at(out.line));
        }
    }

    /// Reads the last row; false if the result has a format that is not read. `ended`: its line has a line break.
    fn read_last(&mut self, ended: bool, out: &mut SavedOutput<'_>) -> bool {
        let Some((line, row)) = self.last.take() else { return true };
        if self.is_aligned && row.split('|').any(|cell| cell.ends_with(['.', '+'])) {
            out.error(SavedProblem::OtherFormat("format wrapped").at(line));
            return false;
        }
        match cells(&row, &self.separator) {
            Ok(cells) => {
                let columns = self.table.header.columns.len();
                if !ended && (cells.len() < columns || text::is_cut_footer(&row)) {
                    self.table.malformed(
                        line,
                        SavedProblem::cut("the text ends within a row"),
                        out,
                    );
                    return true;
                }
                let values: Vec<CellValue<'_>> = cells.into_iter().map(CellValue::Text).collect();
                if let Err(error) = self.table.push(line, &values, ended, out) {
                    out.error(error);
                }
            }
            Err(problem) => self.table.malformed(line, problem, out),
        }
        true
    }
}

/// The cells of a row, without blanks around them.
fn cells<'a>(row: &'a str, separator: &str) -> Result<Vec<Cow<'a, str>>, SavedProblem> {
    let mut cells = Vec::new();
    let mut rest = row;
    loop {
        let (cell, behind) = match quoted_cell(rest, separator)? {
            Some(quoted) => quoted,
            None => {
                let (cell, behind) = rest.split_at(plain_cell(rest, separator));
                (Cow::Borrowed(cell.trim()), behind)
            }
        };
        cells.push(cell);
        if cells.len() > MAX_COLUMNS {
            return Err(SavedProblem::expected(format!("at most {MAX_COLUMNS} columns"), row));
        }
        if behind.is_empty() {
            return Ok(cells);
        }
        rest = &behind[separator.len()..];
    }
}

/// The length of a cell without quotes.
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
    let found = match separator.as_bytes() {
        // The search for a single byte is much faster.
        &[byte] => text.find(char::from(byte)),
        _ => text.find(separator),
    };
    found.unwrap_or(text.len())
}

/// A quoted cell, and what follows it; `None` if the text is not quoted as in CSV.
fn quoted_cell<'a>(
    text: &'a str,
    separator: &str,
) -> Result<Option<(Cow<'a, str>, &'a str)>, SavedProblem> {
    let Some(mut rest) = text.strip_prefix('"') else { return Ok(None) };
    let mut cell = Cow::Borrowed("");
    while let Some(end) = rest.find('"') {
        if cell.is_empty() {
            cell = Cow::Borrowed(&rest[..end]);
        } else {
            cell.to_mut().push_str(&rest[..end]);
        }
        rest = &rest[end + 1..];
        if let Some(behind) = rest.strip_prefix('"') {
            cell.to_mut().push('"');
            rest = behind;
        } else {
            let is_end = rest.is_empty() || !separator.is_empty() && rest.starts_with(separator);
            return Ok(is_end.then_some((cell, rest)));
        }
    }
    if separator == "," {
        return Err(SavedProblem::cut("the row ends within a quoted value"));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str, separator: &str) -> Result<Vec<String>, SavedProblem> {
        Ok(cells(text, separator)?.into_iter().map(Cow::into_owned).collect())
    }

    #[test]
    fn headers_and_their_separators() {
        assert_eq!(delimited_names("lp|lp_off"), Some(("|", vec!["lp", "lp_off"])));
        assert_eq!(delimited_names("?column?,lp"), Some((",", vec!["?column?", "lp"])));
        assert_eq!(delimited_names("my name\tlp"), Some(("\t", vec!["my name", "lp"])));
        assert_eq!(delimited_names("lp<>t_data"), Some(("<>", vec!["lp", "t_data"])));
        assert_eq!(delimited_names("t_data"), Some(("", vec!["t_data"])));
        for other in ["lp, t_data", "a|b", "lp,", " lp|t_data", "SELECT lp", "the lp of t_data"] {
            assert_eq!(delimited_names(other), None, "{other}");
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
        assert_eq!(row("||", "|"), cells(&["", "", ""]));
        assert!(row("\"a,b", ",").is_err());
        assert_eq!(separator_of_row("1|8160"), Some("|"));
        assert_eq!(separator_of_row("1 |   8160"), Some("|"));
        assert_eq!(separator_of_row(r"0;\x00"), Some(";"));
        assert_eq!(separator_of_row("1  8160"), None);
        assert_eq!(separator_of_row("12"), None);
    }
}
