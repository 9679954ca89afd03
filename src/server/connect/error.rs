//! Why there is no connection, in psql's words.

use std::fmt;
use tokio_postgres::error::DbError;

/// Why a connection could not be made.
#[derive(Debug)]
pub enum ConnectError {
    /// The parameters make no sense, or ask for what cannot be done.
    Usage {
        /// What is wrong with them.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// No server could be reached, or none let us in.
    Failed {
        /// One message for each attempt, as psql prints them.
        attempts: Vec<String>,
        /// Whether a server asked for a password when there was none.
        needs_password: bool,
    },
    /// The connection was made, and its settings were then refused.
    Session(String),
}

impl ConnectError {
    /// An error of the user's, without a hint.
    pub fn usage(message: impl Into<String>) -> ConnectError {
        ConnectError::Usage { message: message.into(), hint: None }
    }

    /// An error of the user's, with a hint.
    pub fn usage_with_hint(message: impl Into<String>, hint: impl Into<String>) -> ConnectError {
        ConnectError::Usage { message: message.into(), hint: Some(hint.into()) }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Usage { message, hint: None } | ConnectError::Session(message) => {
                f.write_str(message)
            }
            ConnectError::Usage { message, hint: Some(hint) } => {
                write!(f, "{message}\nHINT:  {hint}")
            }
            ConnectError::Failed { attempts, .. } => f.write_str(&attempts.join("\n")),
        }
    }
}

impl std::error::Error for ConnectError {}

/// Why a statement on a connection failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatementError {
    /// The server is gone, or ended the session.
    #[error("{0}")]
    Lost(String),
    /// The server refused the statement: `ERROR:  …` with DETAIL and HINT.
    #[error("{message}")]
    Refused {
        /// What the server said.
        message: String,
        /// The SQLSTATE.
        code: String,
    },
    /// The client could not make sense of the exchange.
    #[error("{0}")]
    Client(String),
}

/// An error or notice of the server as psql prints it: `FATAL:  message`, then DETAIL and HINT.
pub fn server_message(error: &DbError) -> String {
    let mut text = format!("{}:  {}", error.severity(), error.message());
    for (label, extra) in [("DETAIL", error.detail()), ("HINT", error.hint())] {
        if let Some(extra) = extra {
            text.push_str(&format!("\n{label}:  {extra}"));
        }
    }
    text
}

/// An operating system's error without Rust's "(os error 2)".
pub(crate) fn os_message(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operating_system_errors_read_as_in_c() {
        let missing = std::io::Error::from_raw_os_error(2);
        assert_eq!(os_message(&missing), "No such file or directory");
    }

    #[test]
    fn a_hint_stands_on_its_own_line() {
        let error = ConnectError::usage_with_hint("bad port", "say a number");
        assert_eq!(error.to_string(), "bad port\nHINT:  say a number");
    }
}
