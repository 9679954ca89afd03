//! A live server: connections, what its catalogs say, and pages and values read from it.
//!
//! * [`connect`]: connections as psql makes them; [`pattern`]: names as psql takes them.
//! * [`about`]: what the server is and what this user may do there.
//! * [`select`]: which relations a command line means, and what a misspelt name may have meant.
//! * `names`: names of tables and columns for a shell to complete.
//! * [`catalog`]: relations and their columns; `listing`: the files of many, and what they are parts of.
//! * `indexes`: the indexes of a table; `index_scan`: what fresh ones would take.
//! * `owner_code`: code of others that an UPDATE of a table runs.
//! * [`snapshot`]: one moment for everything that is read, and the plans that our statements have.
//! * [`pages`]: pages through pageinspect, with visibility resolved; `scan`: those of a relation, by all connections.
//! * [`chunks`]: chunks of values out of line, and such values fetched whole.
//! * [`checking`]: what a check asks; [`chunk_rows`]: chunks of many values at a time.
//! * [`toasters`]: toasters of servers with pluggable TOAST, and their columns.
//! * [`trial`]: the temporary table in which the server compresses copies of values.
//! * [`locks`]: who keeps a relation from being read.
//! * `sqlstate`: what errors of the server mean.
//! * [`sink`]: where a run over relations puts what it finds, and what its errors mean.
//! * `probe`: what SQL functions tell of stored values; [`functions`], `sampled`: asking them, where pages are out of
//!   reach.

use connect::{Connection, StatementError, server_message};

pub mod about;
pub mod catalog;
pub mod checking;
pub mod chunk_rows;
pub mod chunks;
pub mod connect;
pub mod functions;
pub(crate) mod index_scan;
pub(crate) mod indexes;
pub(crate) mod listing;
pub mod locks;
pub(crate) mod names;
pub(crate) mod owner_code;
pub mod pages;
pub mod pattern;
pub(crate) mod probe;
pub(crate) mod sampled;
pub(crate) mod scan;
pub mod select;
pub mod sink;
pub mod snapshot;
pub(crate) mod sqlstate;
pub mod toasters;
pub mod trial;

/// Why the server did not give what was asked.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The server's or the driver's answer.
    #[error("{}", describe(.0))]
    Server(#[from] tokio_postgres::Error),
    /// An answer of a shape that this program does not expect.
    #[error("unexpected answer of the server: {0}")]
    Unexpected(String),
    /// A relation's definition is not the one that was looked at.
    #[error("the relation was changed by another session")]
    Changed,
    /// The server is too old.
    #[error("server version {0} is not supported: PostgreSQL 14 or later is needed")]
    Version(String),
    /// No relation of that name, quoted; a hint may follow on a line of its own.
    #[error("relation {name} does not exist{hint}")]
    NoSuchRelation {
        /// The name, quoted.
        name: String,
        /// Nothing, or a line with a hint.
        hint: String,
    },
    /// A pattern that nothing matches.
    #[error("no table matches {0}")]
    NoMatch(String),
    /// A name that is none.
    #[error("{0}")]
    Pattern(String),
    /// A name with another database in front.
    #[error("{given}: cross-database references are not possible; connect to \"{other}\"")]
    OtherDatabase {
        /// What was given.
        given: String,
        /// The database named.
        other: String,
    },
    /// Nothing that is meant has rows here.
    #[error("no table remains: {}", .0.strip_prefix("left out: ").unwrap_or(.0))]
    AllElsewhere(String),
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

impl LiveError {
    /// Why the connection ended, if that is what the error means.
    pub(crate) async fn lost(&self, connection: &Connection) -> Option<String> {
        match self {
            LiveError::Server(error) => match connection.explain(error).await {
                StatementError::Lost(reason) => Some(reason),
                _ => None,
            },
            _ => None,
        }
    }
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
