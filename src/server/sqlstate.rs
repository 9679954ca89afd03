//! The meaning of the server's errors, by SQLSTATE.

use tokio_postgres::error::SqlState;

use super::LiveError;

/// What an error of the server means for the attempted work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// A lock was not obtained, or a deadlock was detected; the attempt can be repeated.
    Busy,
    /// A problem with one row; other rows may succeed.
    Row,
    /// Work cannot continue.
    Fatal,
}

impl ErrorKind {
    /// Determines the kind from the SQLSTATE.
    pub fn from_error(error: &tokio_postgres::Error) -> ErrorKind {
        error.as_db_error().map_or(ErrorKind::Fatal, |db| ErrorKind::of_code(db.code().code()))
    }

    fn of_code(code: &str) -> ErrorKind {
        match code {
            "55P03" | "40P01" | "40001" => ErrorKind::Busy,
            code => match code.get(..2) {
                // Data of the row, constraints (including those of domains), limits, damage.
                Some("22" | "23" | "44" | "54" | "XX") => ErrorKind::Row,
                // Errors raised by the owner's functions for a row.
                Some("09" | "20" | "21" | "27" | "2F" | "38" | "39" | "P0") => ErrorKind::Row,
                // The standard leaves classes that begin with 5 to 9 or I to Z to users; these are PostgreSQL's own
                // classes among them.
                Some("53" | "55" | "57" | "58" | "72" | "F0" | "HV") => ErrorKind::Fatal,
                Some(class) if class.starts_with(|c| matches!(c, '5'..='9' | 'I'..='Z')) => {
                    ErrorKind::Row
                }
                _ => ErrorKind::Fatal,
            },
        }
    }
}

impl LiveError {
    /// Whether a lock was not granted in time.
    pub(crate) fn is_locked(&self) -> bool {
        matches!(self, LiveError::Server(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE))
    }

    /// Whether it is [`ErrorKind::Busy`].
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, LiveError::Server(error) if ErrorKind::from_error(error) == ErrorKind::Busy)
    }
}

/// Whether the error shows that a page or index cannot be read because it is damaged.
pub fn is_damage(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|db| db.code().code().starts_with("XX"))
}

/// Whether a connection ended without a message of the server, as when the server crashes.
pub(crate) fn is_sudden(error: &LiveError) -> bool {
    matches!(error, LiveError::Server(error) if error.as_db_error().is_none())
}

/// Whether the error concerns the whole server, so that all other tables are affected: it is full, shutting down, or
/// read-only.
pub fn is_of_server(error: &tokio_postgres::Error) -> bool {
    let Some(db) = error.as_db_error() else { return true };
    let code = db.code().code();
    code == "25006" || matches!(code.get(..2), Some("08" | "53" | "57" | "58"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_costs_no_more_than_what_it_is_about() {
        let all = |codes: &[&str], kind: ErrorKind| {
            for code in codes {
                assert_eq!(ErrorKind::of_code(code), kind, "{code}");
            }
        };
        // Lock not available, deadlock, serialization failure.
        all(&["55P03", "40P01", "40001"], ErrorKind::Busy);
        // Check violation, numeric overflow, row too long, damage, RAISE without and with a code of its own.
        all(
            &["23514", "22003", "54000", "XX001", "XX000", "P0001", "UE001", "99999"],
            ErrorKind::Row,
        );
        all(&["38001", "2F003", "21000", "44000"], ErrorKind::Row);
        // Disk, memory, connections, cancel, shutdown, system error, privileges, read-only, missing function.
        all(
            &["53100", "53200", "53300", "57014", "57P01", "58030", "42501", "25006", "42883"],
            ErrorKind::Fatal,
        );
        all(&["55006", "F0001", "0A000", "08006"], ErrorKind::Fatal);
    }
}
