//! What the server said when it refused a row.

use super::machine::Row;
use crate::retoast::result::SkippedRow;

/// Refused rows that a report has by themselves; the rest is counted.
pub(crate) const MOST_SHOWN: usize = 100;

/// `program_limit_exceeded`: a row does not fit a page.
pub(crate) const LIMIT: &str = "54000";

/// Why the server refused a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reason {
    /// The SQLSTATE.
    pub(crate) sqlstate: String,
    /// The message alone: details and hints may show contents.
    pub(crate) text: String,
}

impl Reason {
    pub(crate) fn of(error: &tokio_postgres::Error) -> Reason {
        let Some(db) = error.as_db_error() else {
            return Reason { sqlstate: String::new(), text: error.to_string() };
        };
        Reason { sqlstate: db.code().code().to_owned(), text: db.message().to_owned() }
    }

    pub(crate) fn row(self, row: Row) -> SkippedRow {
        SkippedRow {
            ctid: row.ctid.to_string(),
            reason: self.text,
            sqlstate: Some(self.sqlstate).filter(|state| !state.is_empty()),
        }
    }
}
