//! Errors in saved output, and their locations.

use std::borrow::Cow;

use thiserror::Error;

use super::LineNumber;
use toast_format::disk::hex::HexError;

/// Something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}{}: {problem}", column.as_deref().map(|c| format!(", column {c}")).unwrap_or_default())]
pub struct SavedError {
    /// The line number.
    pub line: LineNumber,
    /// The name of the column, as printed, if the error is in one column.
    pub column: Option<String>,
    /// What is wrong.
    pub problem: Problem,
}

impl SavedError {
    /// A hint for the user.
    pub fn hint(&self) -> Option<&'static str> {
        self.problem.hint()
    }
}

/// What is wrong at a location.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Problem {
    /// A value is not valid for its column.
    #[error("expected {expected}, got {got:?}")]
    Expected {
        /// What was expected.
        expected: Cow<'static, str>,
        /// The actual text, shortened.
        got: String,
    },
    /// The hexadecimal digits are wrong; positions are relative to the first digit.
    #[error("{0}")]
    Hex(HexError),
    /// An attribute of an array is wrong.
    #[error("attribute {number}: {problem}")]
    Attribute {
        /// Its number, from 1.
        number: usize,
        /// What is wrong.
        problem: Box<Problem>,
    },
    /// A bytea was printed with `bytea_output = 'escape'`.
    #[error("bytea is in escape format, expected hexadecimal digits after \\x")]
    EscapeFormat,
    /// The length of `t_data` does not match the tuple's header.
    #[error("expected {expected} bytes (lp_len - t_hoff), got {got}")]
    DataLength {
        /// `lp_len - t_hoff`.
        expected: usize,
        /// The number of bytes printed.
        got: usize,
    },
    /// A page has an invalid size, or is incomplete.
    #[error("expected a page of {expected} bytes, got {got}")]
    PageSize {
        /// The size in the page's header, or the valid sizes.
        expected: Cow<'static, str>,
        /// The number of bytes printed.
        got: usize,
    },
    /// A row has a different number of columns than its result.
    #[error("expected {expected} columns, got {got}")]
    ColumnCount {
        /// The number of columns of the header or of earlier rows.
        expected: usize,
        /// The number of columns of this row.
        got: usize,
    },
    /// A row of an aligned result does not match the column positions of its header.
    #[error("the row is not aligned with its header")]
    Misaligned,
    /// The number of rows does not match the footer.
    #[error("expected {expected} rows according to the footer, got {got}")]
    RowCount {
        /// The number in the footer.
        expected: u64,
        /// The number of rows printed.
        got: u64,
    },
    /// There are rows, but no names of columns.
    #[error("no header, and rows of {columns} column{} are not those of pageinspect", if *columns == 1 { "" } else { "s" })]
    NoHeader {
        /// The number of columns found.
        columns: usize,
    },
    /// The header has no column of pageinspect, but the values may be pageinspect's.
    #[error("no column has a name that pageinspect uses")]
    UnknownColumns,
    /// A row was printed as one composite value.
    #[error("the row is one composite value")]
    RowValue,
    /// A result is cut.
    #[error("the output is cut: {0}")]
    Cut(Cow<'static, str>),
    /// The last line has no line break, and nothing else shows that it is complete.
    #[error("the output may be cut: its last line has no line break")]
    Unterminated,
    /// The JSON is not an array of rows.
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
    #[error("no output of pageinspect found")]
    Nothing,
}

impl Problem {
    fn hint(&self) -> Option<&'static str> {
        match self {
            Problem::Attribute { problem, .. } => problem.hint(),
            Problem::EscapeFormat => {
                Some("set bytea_output = 'hex' in the session, then run the query again")
            }
            Problem::NoHeader { .. } => {
                Some("save the output with its header (without \\t, -t or tuples_only)")
            }
            Problem::UnknownColumns => Some("keep the names t_data, t_attrs, get_raw_page, …"),
            Problem::RowValue => Some("write SELECT * FROM heap_page_items(…) to get columns"),
            Problem::Unterminated => Some("if the last line is whole, end it with a line break"),
            Problem::Nothing => Some(
                "expected what psql prints for SELECT * FROM heap_page_items(get_raw_page('table', 0)), \
                 heap_page_item_attrs, get_raw_page or tuple_data_split",
            ),
            Problem::Hex(e) => e.hint(),
            _ => None,
        }
    }

    pub(crate) fn is_escape_format(&self) -> bool {
        match self {
            Problem::Attribute { problem, .. } => problem.is_escape_format(),
            problem => *problem == Problem::EscapeFormat,
        }
    }

    /// The problem that `expected` was not found; the actual text is shortened.
    pub(crate) fn expected(expected: impl Into<Cow<'static, str>>, got: &str) -> Problem {
        Problem::Expected { expected: expected.into(), got: shorten(got) }
    }

    /// The same problem with a location.
    pub(crate) fn at(self, line: LineNumber, column: Option<&str>) -> SavedError {
        SavedError { line, column: column.map(shorten), problem: self }
    }
}

/// At most 40 characters of a text.
pub(crate) fn shorten(text: &str) -> String {
    match text.char_indices().nth(40) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
