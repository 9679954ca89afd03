//! Errors in saved output, and their locations.

use thiserror::Error;
use toast_format::disk::hex::HexError;

/// Something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}{}: {problem}", column.as_deref().map(|c| format!(", column {c}")).unwrap_or_default())]
pub struct SavedError {
    /// The line, from 1.
    pub line: usize,
    /// The name of the column, as printed, if the error is in one column.
    pub column: Option<String>,
    pub problem: SavedProblem,
}

/// What is wrong at a location.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SavedProblem {
    /// The text contains no result.
    #[error("this is not output of pageinspect")]
    Nothing,
    /// The columns of rows are unknown, or psql's settings hide where rows end.
    #[error(
        "rows without a header that names columns of pageinspect, or in a format that is not read"
    )]
    OtherFormat,
    /// A bytea was printed with `bytea_output = 'escape'`.
    #[error("bytea is in escape format, expected hexadecimal digits after \\x")]
    EscapeFormat,
    /// The last line has no line break, and nothing else shows that it is complete.
    #[error("the output may be cut: its last line has no line break")]
    Unterminated,
    /// The hexadecimal digits are wrong; positions are relative to the first digit.
    #[error("{0}")]
    Hex(HexError),
    /// An attribute of an array is wrong; attributes are numbered from 1.
    #[error("attribute {0}: {1}")]
    Attribute(usize, Box<SavedProblem>),
    /// Any other problem, as text.
    #[error("{0}")]
    Other(String),
}

impl SavedProblem {
    /// A hint for the user.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            SavedProblem::Nothing => Some(
                "expected what psql prints for SELECT * FROM heap_page_items(get_raw_page('table', 0)), \
                 heap_page_item_attrs, get_raw_page or tuple_data_split, or these as CSV: \
                 \\copy (SELECT …) TO 'FILE' CSV HEADER",
            ),
            SavedProblem::OtherFormat => Some(
                "write SELECT * FROM heap_page_items(…), keep the header and psql's default format, or save the \
                 result as CSV: \\copy (SELECT …) TO 'FILE' CSV HEADER",
            ),
            SavedProblem::EscapeFormat => {
                Some("set bytea_output = 'hex' in the session, then run the query again")
            }
            SavedProblem::Unterminated => {
                Some("if the last line is whole, end it with a line break")
            }
            SavedProblem::Hex(error) => error.hint(),
            SavedProblem::Attribute(_, problem) => problem.hint(),
            SavedProblem::Other(_) => None,
        }
    }

    /// Whether psql's settings are the cause; such a problem is reported once per text.
    pub(super) fn is_of_session(&self) -> bool {
        match self {
            SavedProblem::Attribute(_, problem) => problem.is_of_session(),
            SavedProblem::OtherFormat | SavedProblem::EscapeFormat => true,
            _ => false,
        }
    }

    pub(super) fn expected(expected: &str, got: &str) -> SavedProblem {
        SavedProblem::Other(format!("expected {expected}, got {:?}", shorten(got)))
    }

    pub(super) fn cut(what: &str) -> SavedProblem {
        SavedProblem::Other(format!("the output is cut: {what}"))
    }

    pub(super) fn at(self, line: usize) -> SavedError {
        SavedError { line, column: None, problem: self }
    }

    pub(super) fn in_column(self, line: usize, column: &str) -> SavedError {
        SavedError { column: Some(shorten(column)), ..self.at(line) }
    }
}

/// At most 40 characters of a text.
fn shorten(text: &str) -> String {
    match text.char_indices().nth(40) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
