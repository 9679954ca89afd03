//! A live server as a source.
//!
//! * [`server`]: what the server is and what this user may do there.
//! * [`catalog`]: relations and their columns.
//! * [`snapshot`]: one moment for everything that is read.
//! * [`pages`]: pages through pageinspect, with visibility resolved.
//! * [`chunks`]: chunks of values out of line.
//! * [`toasters`]: toasters of servers with pluggable TOAST, and their columns.
//! * [`functions`]: sizes through SQL functions, where pages are out of reach.

use super::connect::server_message;

pub mod catalog;
pub mod chunks;
pub mod functions;
pub mod pages;
pub mod server;
pub mod snapshot;
pub mod toasters;

/// Why the server did not give what was asked.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The server's or the driver's answer.
    #[error("{}", describe(.0))]
    Server(#[from] tokio_postgres::Error),
    /// An answer of a shape that this program does not expect.
    #[error("unexpected answer of the server: {0}")]
    Unexpected(String),
    /// The server is too old.
    #[error("server version {0} is not supported: PostgreSQL 14 or later is needed")]
    Version(String),
    /// No relation of that name.
    #[error("relation {0} does not exist")]
    NoSuchRelation(String),
    /// A pattern that nothing matches.
    #[error("no table matches {0}")]
    NoMatch(String),
    /// A name that is none.
    #[error(transparent)]
    Pattern(#[from] crate::source::pattern::PatternError),
    /// A name with another database in front.
    #[error("{given}: cross-database references are not possible; connect to \"{other}\"")]
    OtherDatabase {
        /// What was given.
        given: String,
        /// The database named.
        other: String,
    },
    /// A relation without tuples of its own.
    #[error("{name} is {kind}; {hint}")]
    WrongKind {
        /// The relation, quoted where needed.
        name: String,
        /// `a view`, `an index` and the like.
        kind: &'static str,
        /// What to do instead.
        hint: &'static str,
    },
}

/// The server's message with its detail and hint, or the driver's with its cause.
fn describe(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(db), _) => {
            let text = server_message(db);
            text.strip_prefix("ERROR:  ").map(str::to_owned).unwrap_or(text)
        }
        _ if error.is_closed() => "server closed the connection unexpectedly".to_owned(),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}
