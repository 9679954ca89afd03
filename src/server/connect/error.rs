//! Why there is no connection, with the messages of psql and libpq.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use tokio_postgres::error::{DbError, SqlState};

use super::resolved::{Host, HostPlace, Resolved};
use crate::message::without_os_codes;

/// What connecting returns.
pub type ConnectResult<T> = Result<T, ConnectError>;

/// Why a connection could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The parameters are invalid or unsupported.
    #[error("{message}{}", hint.as_ref().map(|hint| format!("\nHINT:  {hint}")).unwrap_or_default())]
    Usage {
        /// What is wrong with them.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// No server could be reached, or none accepted the connection.
    #[error("{}", attempts.join("\n"))]
    Failed {
        /// One message for each attempt, as printed by psql.
        attempts: Vec<String>,
        /// Whether a server asked for a password and none was given.
        needs_password: bool,
    },
    /// The server has no such database.
    #[error("{}", attempts.join("\n"))]
    NoDatabase {
        /// One message for each attempt, as printed by psql.
        attempts: Vec<String>,
        /// What may have been meant.
        hint: Option<String>,
    },
    /// The connection was made, but the server refused its settings.
    #[error("{0}")]
    Session(String),
}

impl ConnectError {
    /// An error of the user, without a hint.
    pub fn usage(message: impl Into<String>) -> ConnectError {
        ConnectError::Usage { message: message.into(), hint: None }
    }

    /// An error of the user, with a hint.
    pub fn usage_with_hint(message: impl Into<String>, hint: impl Into<String>) -> ConnectError {
        ConnectError::Usage { message: message.into(), hint: Some(hint.into()) }
    }
}

/// Why a statement on a connection failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatementError {
    /// The connection was lost, or the server ended the session.
    #[error("{0}")]
    Lost(String),
    /// The server refused the statement: `ERROR:  …` with DETAIL and HINT.
    #[error("{message}")]
    Refused { message: String, code: String },
    /// The client could not interpret the server's answer.
    #[error("{0}")]
    Client(String),
}

/// An error or notice of the server, as printed by psql: `FATAL:  message`, then DETAIL and HINT.
pub fn server_message(error: &DbError) -> String {
    let mut text = format!("{}:  {}", error.severity(), error.message());
    for (label, extra) in [("DETAIL", error.detail()), ("HINT", error.hint())] {
        if let Some(extra) = extra {
            text.push_str(&format!("\n{label}:  {extra}"));
        }
    }
    text
}

/// An operating system error without Rust's suffix "(os error 2)".
pub(crate) fn os_message(error: &std::io::Error) -> String {
    without_os_codes(&error.to_string())
}

/// The message about a server that is not PostgreSQL.
const NOT_POSTGRESQL: &str =
    "the answer is not that of a PostgreSQL server\n\tIs another service listening on that port?";

/// Why one attempt failed.
pub(super) struct Refusal {
    pub(super) message: String,
    pub(super) kind: RefusalKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RefusalKind {
    /// The server did not answer, did not answer in time, or is not ready yet; another address may be tried.
    Unreachable,
    /// The server answered, but is not of the requested kind; another address may be tried.
    Unwanted,
    /// The server refused the connection.
    Refused,
    /// The server refused the connection, because it has no such database.
    NoDatabase,
    /// The server asked for a password, and none is available.
    NeedsPassword,
    /// Encryption could not be agreed on.
    Encryption,
}

/// The exact address of a connection.
pub(super) enum Address {
    Socket(PathBuf),
    Ip(IpAddr, Option<String>),
}

/// The beginning of each message, as in libpq (`emitHostIdentityInfo`).
pub(super) fn prefix(target: &Host, address: &Address) -> String {
    let port = target.port;
    match (address, &target.place) {
        (Address::Socket(dir), _) => {
            let path = dir.join(format!(".s.PGSQL.{port}"));
            format!("connection to server on socket \"{}\" failed: ", path.display())
        }
        (Address::Ip(ip, _), HostPlace::Host(host)) if *host != ip.to_string() => {
            format!("connection to server at \"{host}\" ({ip}), port {port} failed: ")
        }
        (Address::Ip(ip, _), _) => {
            format!("connection to server at \"{ip}\", port {port} failed: ")
        }
    }
}

/// The error of an attempt, with libpq's message.
pub(super) fn refusal(
    error: &tokio_postgres::Error,
    resolved: &Resolved,
    target: &Host,
    address: &Address,
    encrypted: bool,
) -> Refusal {
    if let Some(said) = error.as_db_error() {
        let mut message = server_message(said);
        if target.password_from_file
            && *said.code() == SqlState::INVALID_PASSWORD
            && let Some(path) = &resolved.passfile
        {
            message.push_str(&format!("\npassword retrieved from file \"{}\"", path.display()));
        }
        let kind = match *said.code() {
            SqlState::CANNOT_CONNECT_NOW => RefusalKind::Unreachable,
            SqlState::UNDEFINED_DATABASE => RefusalKind::NoDatabase,
            _ => RefusalKind::Refused,
        };
        return Refusal { message, kind };
    }
    // Only the cause is useful; the error kinds of tokio_postgres are internal to it.
    let cause = std::error::Error::source(error);
    if let Some(io) = cause.and_then(|cause| cause.downcast_ref::<io::Error>()) {
        return io_refusal(io, error, address);
    }
    let cause = cause.map_or_else(|| error.to_string(), ToString::to_string);
    let (message, kind) = match cause.as_str() {
        "password missing" => {
            ("fe_sendauth: no password supplied".to_owned(), RefusalKind::NeedsPassword)
        }
        "server does not support TLS" => (
            "server does not support SSL, but SSL was required".to_owned(),
            RefusalKind::Encryption,
        ),
        "server did not use channel binding" if encrypted => (
            "channel binding required, but server authenticated client without channel binding"
                .to_owned(),
            RefusalKind::Refused,
        ),
        "server did not use channel binding" => {
            ("channel binding required, but SSL not in use".to_owned(), RefusalKind::Refused)
        }
        // The driver reports an answer that is not in PostgreSQL's protocol in one of these ways.
        "bytes remaining on stream"
        | "unexpected message from server"
        | "invalid message length" => (NOT_POSTGRESQL.to_owned(), RefusalKind::Refused),
        _ if error.is_closed() => {
            ("server closed the connection unexpectedly".to_owned(), RefusalKind::Refused)
        }
        _ => (cause, RefusalKind::Refused),
    };
    Refusal { message, kind }
}

fn io_refusal(io: &io::Error, error: &tokio_postgres::Error, address: &Address) -> Refusal {
    if let Some(tls) = io.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return Refusal { message: tls_message(tls), kind: RefusalKind::Encryption };
    }
    // If the answer ends in what would be the middle of a message, the driver reports a framing error.
    let is_cut = io.get_ref().is_some_and(|inner| inner.to_string() == "bytes remaining on stream");
    if is_cut || matches!(io.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) {
        return Refusal { message: NOT_POSTGRESQL.to_owned(), kind: RefusalKind::Refused };
    }
    let message = os_message(io);
    let nobody = matches!(io.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound);
    let message = match address {
        _ if io.kind() == io::ErrorKind::UnexpectedEof => {
            "server closed the connection unexpectedly".to_owned()
        }
        Address::Socket(_) if nobody => format!(
            "{message}\n\tIs the server running locally and accepting connections on that socket?"
        ),
        Address::Ip(..) if nobody => format!(
            "{message}\n\tIs the server running on that host and accepting TCP/IP connections?"
        ),
        _ => message,
    };
    let in_handshake = error.to_string().contains("TLS");
    let kind = if in_handshake { RefusalKind::Encryption } else { RefusalKind::Unreachable };
    Refusal { message, kind }
}

/// A failed handshake, with libpq's message.
fn tls_message(error: &rustls::Error) -> String {
    use rustls::{AlertDescription, CertificateError, Error};
    match error {
        // This error comes from our own verifier, which already uses libpq's message.
        Error::General(message) => message.clone(),
        Error::InvalidCertificate(why) => {
            let why = match why {
                CertificateError::UnknownIssuer => {
                    "unable to get local issuer certificate".to_owned()
                }
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    "certificate has expired".to_owned()
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    "certificate is not yet valid".to_owned()
                }
                CertificateError::BadSignature => "certificate signature failure".to_owned(),
                other => other.to_string(),
            };
            format!("SSL error: certificate verify failed: {why}")
        }
        Error::AlertReceived(AlertDescription::UnknownCA) => {
            "SSL error: tlsv1 alert unknown ca".to_owned()
        }
        other => format!("SSL error: {other}"),
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

    #[test]
    fn messages_begin_as_libpqs() {
        let target = |place: HostPlace| Host {
            place,
            port: 5433,
            password: None,
            password_from_file: false,
        };
        let ip = IpAddr::from([10, 0, 0, 1]);
        let host = target(HostPlace::Host("db".into()));
        assert_eq!(
            prefix(&host, &Address::Ip(ip, Some("db".into()))),
            "connection to server at \"db\" (10.0.0.1), port 5433 failed: "
        );
        let address = target(HostPlace::Address { address: ip, host: Some("db".into()) });
        assert_eq!(
            prefix(&address, &Address::Ip(ip, Some("db".into()))),
            "connection to server at \"10.0.0.1\", port 5433 failed: "
        );
        let socket = target(HostPlace::Socket("/tmp".into()));
        assert_eq!(
            prefix(&socket, &Address::Socket("/tmp".into())),
            "connection to server on socket \"/tmp/.s.PGSQL.5433\" failed: "
        );
    }
}
