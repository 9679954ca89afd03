//! What errors of the server mean, by their SQLSTATE.

/// What an error of the server means for what was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// A lock was not to be had, or a deadlock was broken: try again.
    Busy,
    /// Something in a row: others may do.
    Row,
    /// Nothing to go on with.
    Fatal,
}

impl ErrorKind {
    /// Reads the SQLSTATE.
    pub fn of(error: &tokio_postgres::Error) -> ErrorKind {
        error.as_db_error().map_or(ErrorKind::Fatal, |db| ErrorKind::of_code(db.code().code()))
    }

    fn of_code(code: &str) -> ErrorKind {
        match code {
            "55P03" | "40P01" | "40001" => ErrorKind::Busy,
            code => match code.get(..2) {
                // data of the row, constraints and those of domains, limits, damage
                Some("22" | "23" | "44" | "54" | "XX") => ErrorKind::Row,
                // what the owner's functions raise for a row
                Some("09" | "20" | "21" | "27" | "2F" | "38" | "39" | "P0") => ErrorKind::Row,
                // Codes of users' own, as the standard leaves them to them: not those of PostgreSQL's that begin so.
                Some("53" | "55" | "57" | "58" | "72" | "F0" | "HV") => ErrorKind::Fatal,
                Some(class) if class.starts_with(|c| matches!(c, '5'..='9' | 'I'..='Z')) => {
                    ErrorKind::Row
                }
                _ => ErrorKind::Fatal,
            },
        }
    }
}

/// Whether an error says that something cannot be read, a page or an index, because it is damaged.
pub fn is_damage(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|db| db.code().code().starts_with("XX"))
}

/// Whether an error is one of the whole server, which no other table is spared: it is full, it stops, or it is not
/// to be written to.
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
        // no lock, a deadlock, a serialization failure
        all(&["55P03", "40P01", "40001"], ErrorKind::Busy);
        // a check, a numeric overflow, a row too long, damage, RAISE with and without a code of its own
        all(
            &["23514", "22003", "54000", "XX001", "XX000", "P0001", "UE001", "99999"],
            ErrorKind::Row,
        );
        all(&["38001", "2F003", "21000", "44000"], ErrorKind::Row);
        // the disk, memory, connections, a cancel, a shutdown, the system, privileges, read-only, a missing function
        all(
            &["53100", "53200", "53300", "57014", "57P01", "58030", "42501", "25006", "42883"],
            ErrorKind::Fatal,
        );
        all(&["55006", "F0001", "0A000", "08006"], ErrorKind::Fatal);
    }
}
