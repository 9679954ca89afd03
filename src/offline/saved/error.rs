//! Errors in saved output, and their locations.

use std::borrow::Cow;

use thiserror::Error;

use super::LineNumber;
use toast_format::disk::hex::HexError;

/// Something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}{}: {problem}", column.as_deref().map(|c| format!(", column {c}")).unwrap_or_default())]
pub struct SavedError {
    pub line: LineNumber,
    /// The name of the column, as printed, if the error is in one column.
    pub column: Option<String>,
    pub problem: SavedProblem,
}

impl SavedError {
    /// A hint for the user.
    pub fn hint(&self) -> Option<&'static str> {
        self.problem.hint()
    }
}

/// What is wrong at a location.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SavedProblem {
    /// A value is not valid for its column; its text is shortened.
    #[error("expected {expected}, got {got:?}")]
    Expected { expected: Cow<'static, str>, got: String },
    /// The hexadecimal digits are wrong; positions are relative to the first digit.
    #[error("{0}")]
    Hex(HexError),
    /// An attribute of an array is wrong; attributes are numbered from 1.
    #[error("attribute {number}: {problem}")]
    Attribute { number: usize, problem: Box<SavedProblem> },
    /// A bytea was printed with `bytea_output = 'escape'`.
    #[error("bytea is in escape format, expected hexadecimal digits after \\x")]
    EscapeFormat,
    /// The length of `t_data` does not match the tuple's header.
    #[error("expected {expected} bytes (lp_len - t_hoff), got {got}")]
    DataLength { expected: usize, got: usize },
    /// A page has an invalid size, or is incomplete.
    #[error("expected a page of {expected} bytes, got {got}")]
    PageSize { expected: Cow<'static, str>, got: usize },
    /// A row has a different number of columns than its header.
    #[error("expected {expected} columns, got {got}")]
    ColumnCount { expected: usize, got: usize },
    /// The number of rows does not match the footer.
    #[error("expected {expected} rows according to the footer, got {got}")]
    RowCount { expected: u64, got: u64 },
    /// There are rows, but no names of pageinspect's columns.
    #[error("rows without a header that names columns of pageinspect")]
    NoHeader,
    /// A row was printed as one composite value.
    #[error("the row is one composite value")]
    RowValue,
    /// The output has a format of psql that is not read.
    #[error("{0} is not read")]
    OtherFormat(&'static str),
    /// A result is cut.
    #[error("the output is cut: {0}")]
    Cut(Cow<'static, str>),
    /// The last line has no line break, and nothing else shows that it is complete.
    #[error("the output may be cut: its last line has no line break")]
    Unterminated,
    /// A JSON value is not an array of rows, or not a row.
    #[error("invalid JSON: {0}")]
    Json(String),
    /// The text contains an error message of the server.
    #[error("the output holds an error message of the server: {0}")]
    Server(String),
    /// A line or a row is longer than any of pageinspect.
    #[error("longer than {0} bytes, unlike any row of pageinspect")]
    TooLong(usize),
    /// The rest of the text cannot be read.
    #[error("could not read further: {0}")]
    Unreadable(String),
    /// The text contains no result.
    #[error("this is not output of pageinspect")]
    Nothing,
}

impl SavedProblem {
    fn hint(&self) -> Option<&'static str> {
        match self {
            SavedProblem::Attribute { problem, .. } => problem.hint(),
            SavedProblem::EscapeFormat => {
                Some("set bytea_output = 'hex' in the session, then run the query again")
            }
            SavedProblem::NoHeader => Some(
                "keep the header and the names lp, t_data, get_raw_page, …, or save the result as CSV: \
                 \\copy (SELECT …) TO 'FILE' CSV HEADER",
            ),
            SavedProblem::RowValue => Some("write SELECT * FROM heap_page_items(…) to get columns"),
            SavedProblem::OtherFormat(_) => {
                Some("save the result as CSV: \\copy (SELECT …) TO 'FILE' CSV HEADER")
            }
            SavedProblem::Unterminated => {
                Some("if the last line is whole, end it with a line break")
            }
            SavedProblem::Nothing => Some(
                "expected what psql prints for SELECT * FROM heap_page_items(get_raw_page('table', 0)), \
                 heap_page_item_attrs, get_raw_page or tuple_data_split, or these as CSV: \
                 \\copy (SELECT …) TO 'FILE' CSV HEADER",
            ),
            SavedProblem::Hex(error) => error.hint(),
            _ => None,
        }
    }

    pub(crate) fn is_escape_format(&self) -> bool {
        match self {
            SavedProblem::Attribute { problem, .. } => problem.is_escape_format(),
            problem => *problem == SavedProblem::EscapeFormat,
        }
    }

    pub(crate) fn expected(expected: impl Into<Cow<'static, str>>, got: &str) -> SavedProblem {
        SavedProblem::Expected { expected: expected.into(), got: shorten(got) }
    }

    pub(crate) fn cut(what: &'static str) -> SavedProblem {
        SavedProblem::Cut(what.into())
    }

    pub(crate) fn at(self, line: LineNumber) -> SavedError {
        SavedError { line, column: None, problem: self }
    }

    pub(crate) fn in_column(self, line: LineNumber, column: &str) -> SavedError {
        SavedError { line, column: Some(shorten(column)), problem: self }
    }
}

/// At most 40 characters of a text.
fn shorten(text: &str) -> String {
    match text.char_indices().nth(40) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
