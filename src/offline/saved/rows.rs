//! psql's aligned, unaligned and CSV formats: one row a line, with any field separator.

use std::borrow::Cow;

use super::error::SavedProblem;
use super::reader::{Reader, TextLine};
use super::table::{Header, ITEM_COLUMNS, PrintedTable, is_null, may_be_name, own_column};
use super::text;

/// A line with names of columns; the next line shows whether a result begins.
#[derive(Debug, PartialEq)]
pub(super) struct HeaderLine<'a> {
    names: Vec<&'a str>,
    /// Empty if there is a single name.
    separator: &'a str,
    /// Whether it begins with a margin.
    is_aligned: bool,
}

impl HeaderLine<'_> {
    pub(super) fn parse(line: &str) -> Option<HeaderLine<'_>> {
        if line.starts_with(' ') { aligned_header(line) } else { delimited_header(line) }
    }
}

fn aligned_header(line: &str) -> Option<HeaderLine<'_>> {
    let separator = if line.contains('|') { "|" } else { "" };
    let names: Vec<&str> = line.split('|').map(str::trim).collect();
    let is_header = names.iter().all(|name| may_be_name(name))
        && names.iter().any(|name| own_column(name).is_some());
    is_header.then_some(HeaderLine { names, separator, is_aligned: true })
}

fn delimited_header(line: &str) -> Option<HeaderLine<'_>> {
    if line.trim() != line {
        return None;
    }
    if own_column(line).is_some() {
        return Some(HeaderLine { names: vec![line], separator: "", is_aligned: false });
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
        let names: Vec<&str> = names.collect();
        let own = names.iter().filter(|name| own_column(name).is_some()).count();
        // Words that happen to be column names are not a header.
        let has_own = if separator == " " { own == names.len() } else { own > 0 };
        if has_own
            && names.len() > 1
            && names.iter().all(|name| may_be_name(name) && name.trim() == *name)
        {
            return Some(HeaderLine { names, separator, is_aligned: false });
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
struct DelimitedRows {
    table: PrintedTable,
    /// Empty if there is a single column.
    separator: String,
    is_aligned: bool,
}

impl DelimitedRows {
    /// Whether a line can be one of them.
    fn may_hold(&self, text: &str) -> bool {
        if self.separator.is_empty() {
            return is_single_cell(text.trim());
        }
        text.contains(&self.separator) || !self.is_aligned && text::looks_like_data(text)
    }

    /// Whether a line that is not empty shows that they ended before it.
    fn end_before(&self, line: &TextLine) -> bool {
        let text = &*line.text;
        if !self.may_hold(text) && line.ended {
            return true;
        }
        !self.is_aligned
            && (delimited_header(text).is_some()
                || text::is_record_line(text)
                || text::is_timing(text)
                || text::server_error(text).is_some())
    }

    /// Whether a line continues the row above it, as in psql's wrapped format.
    fn go_on_in(&self, line: &TextLine) -> bool {
        let text = &*line.text;
        let is_blank = text.trim().is_empty() || text::footer(text).is_some();
        self.is_aligned
            && text.starts_with([' ', '.'])
            && line.ended
            && !is_blank
            && !self.may_hold(text)
    }
}

/// Whether no result goes beyond a line.
pub(super) fn is_end(text: &str) -> bool {
    text.trim().is_empty() || text::footer(text).is_some()
}

impl Reader<'_> {
    /// Reports that a result cannot be read, and skips it.
    pub(super) fn refuse(&mut self, line: usize) {
        self.error(SavedProblem::OtherFormat.at(line));
        self.skip();
    }

    /// Skips a result that is not pageinspect's or cannot be read, up to an empty line or footer.
    pub(super) fn skip(&mut self) {
        while let Some(line) = self.next() {
            let text = &*line.text;
            if is_end(text) {
                return;
            }
            if text::begins_json(text)
                || text::is_record_line(text)
                || text::server_error(text).is_some()
                || HeaderLine::parse(text).is_some()
            {
                return self.put_back(line);
            }
            // Rows of numbers may be those of another table.
            if text.contains(r"\x") && text::looks_like_data(text) {
                self.error(SavedProblem::OtherFormat.at(line.number));
            }
        }
    }

    /// Reads the result that begins with this header. If there is none, the header may be part of a query.
    pub(super) fn rows_below(&mut self, header: &HeaderLine<'_>, line: &TextLine) {
        let is_single = header.separator.is_empty();
        let errors = self.errors;
        let next = self.next();
        if self.errors > errors {
            // the line below was too long
            if let Some(next) = next {
                self.put_back(next);
            }
            return;
        }
        if let Some(next) = next {
            let text = &*next.text;
            if header.is_aligned {
                let is_rule = text::is_rule(text);
                if !is_rule && !is_single {
                    return self.refuse(next.number);
                }
                if !is_rule {
                    return self.put_back(next);
                }
            } else {
                // Such a rule is below a header with border 0.
                if text.starts_with("--") {
                    return self.refuse(next.number);
                }
                let text = text.trim();
                let is_query = text.get(..5).is_some_and(|word| word.eq_ignore_ascii_case("from "));
                let is_row = !is_single || is_single_cell(text) || text::footer(text).is_some();
                self.put_back(next);
                if is_query || !is_row {
                    return;
                }
            }
        } else if header.is_aligned || !line.ended {
            let problem = SavedProblem::cut("the text ends within a header");
            return self.error(problem.at(line.number));
        }
        if let Some(columns) = Header::by_names(header.names.iter().copied()) {
            let table = self.begin(columns);
            let HeaderLine { separator, is_aligned, .. } = *header;
            self.rows(DelimitedRows { table, separator: separator.to_owned(), is_aligned });
        }
    }

    /// Reads a result without a header, if a line is a row.
    pub(super) fn rows_without_header(&mut self, line: TextLine) {
        let row = line.text.trim();
        let separator = if row.starts_with(|c: char| c.is_ascii_digit()) {
            separator_of_row(row)
        } else {
            (is_single_cell(row) && !is_null(row)).then_some("")
        };
        let mut is_data = text::looks_like_data(row);
        if let Some(separator) = separator {
            let cells = match cells(row, separator) {
                Ok(cells) => cells,
                Err(problem) => {
                    self.error(problem.at(line.number));
                    return self.skip();
                }
            };
            if let Some(header) = Header::by_shape(&cells) {
                let table = self.begin(header);
                let separator = separator.to_owned();
                self.put_back(line);
                return self.rows(DelimitedRows { table, separator, is_aligned: false });
            }
            is_data |= cells.len() + 2 >= ITEM_COLUMNS.len();
        }
        if is_data {
            self.refuse(line.number);
        }
    }

    fn rows(&mut self, mut rows: DelimitedRows) {
        // In an aligned result, the next line shows whether a row is whole.
        let mut last: Option<TextLine> = None;
        // Empty lines in a result with one column are rows of NULL, if further rows follow.
        let mut nulls = 0;
        loop {
            let line = self.next();
            if let Some(line) = &line
                && rows.go_on_in(line)
            {
                return self.refuse(line.number);
            }
            let errors = self.errors;
            if let Some(row) = last.take()
                && !self.row(&mut rows, &row)
            {
                return self.refuse(row.number);
            }
            let Some(line) = line else {
                return self.rows_end(&rows, errors);
            };
            let text = &*line.text;
            if let Some(expected) = text::footer(text) {
                return self.check_footer(line.number, expected, rows.table.rows + nulls);
            }
            if text.trim().is_empty() {
                let is_null = rows.separator.is_empty() && !(rows.is_aligned && text.is_empty());
                if !is_null && (line.ended || !rows.is_aligned) {
                    return;
                }
                nulls += u64::from(is_null);
                continue;
            }
            if rows.end_before(&line) {
                self.rows_end(&rows, errors);
                return self.put_back(line);
            }
            rows.table.rows += std::mem::take(&mut nulls);
            last = Some(line);
        }
    }

    /// The result ends without a line that shows its end. Its last row had an error if there were fewer `errors`.
    fn rows_end(&mut self, rows: &DelimitedRows, errors: u64) {
        if rows.is_aligned && self.errors == errors {
            let problem = "the result ends without its number of rows or an empty line";
            self.error(SavedProblem::cut(problem).at(self.line));
        }
    }

    /// Reads a row; false if it has further lines.
    fn row(&mut self, rows: &mut DelimitedRows, line: &TextLine) -> bool {
        let row = &*line.text;
        if rows.is_aligned && row.split('|').any(|cell| cell.ends_with(['.', '+'])) {
            return false;
        }
        let cells = match cells(row, &rows.separator) {
            Ok(cells) => cells,
            Err(problem) => {
                self.malformed(&mut rows.table, line.number, problem);
                return true;
            }
        };
        let is_short = cells.len() < rows.table.header.columns.len();
        if !line.ended && (is_short || text::is_cut_footer(row)) {
            let problem = SavedProblem::cut("the text ends within a row");
            self.malformed(&mut rows.table, line.number, problem);
        } else if let Err(error) = self.push(&mut rows.table, line.number, &cells, line.ended) {
            self.error(error);
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
        for (line, separator, names) in [
            ("lp|lp_off", "|", vec!["lp", "lp_off"]),
            ("?column?,lp", ",", vec!["?column?", "lp"]),
            ("my name\tlp", "\t", vec!["my name", "lp"]),
            ("lp<>t_data", "<>", vec!["lp", "t_data"]),
            ("t_data", "", vec!["t_data"]),
        ] {
            let header = HeaderLine { names, separator, is_aligned: false };
            assert_eq!(delimited_header(line), Some(header));
        }
        for other in ["lp, t_data", "a|b", "lp,", " lp|t_data", "SELECT lp", "the lp of t_data"] {
            assert_eq!(delimited_header(other), None, "{other}");
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
