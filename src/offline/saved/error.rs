//! What can be wrong with saved output, and where.

use std::borrow::Cow;

use thiserror::Error;

use super::LineNumber;
use crate::offline::hex::HexError;

/// Something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}{}: {problem}", column.as_deref().map(|c| format!(", column {c}")).unwrap_or_default())]
pub struct SavedError {
    /// The line.
    pub line: LineNumber,
    /// The column, where one is to blame; its name as printed.
    pub column: Option<String>,
    /// What is wrong.
    pub problem: Problem,
}

impl SavedError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        self.problem.hint()
    }
}

/// What is wrong with a place.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Problem {
    /// A value is not what its column holds.
    #[error("expected {expected}, got {got:?}")]
    Expected {
        /// What was expected.
        expected: Cow<'static, str>,
        /// What stands there, shortened.
        got: String,
    },
    /// Wrong hexadecimal digits; positions count from the first digit.
    #[error("{0}")]
    Hex(HexError),
    /// An attribute of an array is wrong.
    #[error("attribute {number}: {problem}")]
    Attribute {
        /// Which, from 1.
        number: usize,
        /// What is wrong.
        problem: Box<Problem>,
    },
    /// A bytea printed under `bytea_output = 'escape'`.
    #[error("bytea is in escape format, expected hexadecimal digits after \\x")]
    EscapeFormat,
    /// `t_data` is not as long as the tuple's header says.
    #[error("expected {expected} bytes (lp_len - t_hoff), got {got}")]
    DataLength {
        /// `lp_len - t_hoff`.
        expected: usize,
        /// Bytes printed.
        got: usize,
    },
    /// A page of impossible or cut size.
    #[error("expected a page of {expected} bytes, got {got}")]
    PageSize {
        /// The size in the page's header, or the sizes there are.
        expected: Cow<'static, str>,
        /// Bytes printed.
        got: usize,
    },
    /// A row has other columns than its result.
    #[error("expected {expected} columns, got {got}")]
    ColumnCount {
        /// Columns of the header or the rows before.
        expected: usize,
        /// Columns of this row.
        got: usize,
    },
    /// A row of an aligned result does not stand under its header.
    #[error("the row is not aligned with its header")]
    Misaligned,
    /// Other rows than the footer counts.
    #[error("expected {expected} rows according to the footer, got {got}")]
    RowCount {
        /// The footer's number.
        expected: u64,
        /// Rows printed.
        got: u64,
    },
    /// Columns that nothing names.
    #[error("no header, and rows of {columns} column{} are not those of pageinspect", if *columns == 1 { "" } else { "s" })]
    NoHeader {
        /// Columns found.
        columns: usize,
    },
    /// A header without any column of pageinspect's above values that may be its.
    #[error("no column has a name that pageinspect uses")]
    UnknownColumns,
    /// A row printed as one composite value.
    #[error("the row is one composite value")]
    RowValue,
    /// A result is cut.
    #[error("the output is cut: {0}")]
    Cut(Cow<'static, str>),
    /// The last line has no line break and nothing else shows that it is whole.
    #[error("the output may be cut: its last line has no line break")]
    Unterminated,
    /// JSON that is no array of rows.
    #[error("invalid JSON: {0}")]
    Json(String),
    /// The server's own error message.
    #[error("the output holds an error message of the server: {0}")]
    Server(String),
    /// A line or a row that is longer than any of pageinspect's.
    #[error("longer than {0} bytes, unlike any row of pageinspect")]
    TooLong(usize),
    /// The text cannot be read further.
    #[error("could not read further: {0}")]
    Unreadable(String),
    /// No result in the whole text.
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

    /// `expected` against a text, which is shortened.
    pub(crate) fn expected(expected: impl Into<Cow<'static, str>>, got: &str) -> Problem {
        Problem::Expected { expected: expected.into(), got: shorten(got) }
    }

    /// The same with a place.
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
