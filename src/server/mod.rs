//! A live server: connections, catalogs, and pages and values read from it.
//!
//! * [`connect`]: connections in the manner of psql; [`pattern`]: patterns for names, as in psql.
//! * [`about`]: the server, and the privileges of this user there.
//! * [`select`]: the relations that a command line selects, and suggestions for misspelt names.
//! * `names`: names of tables and columns for shell completion.
//! * `citus`: tables whose rows are in shards, and shards that the session does not see.
//! * [`catalog`]: relations and their columns; `listing`: the files of many relations, and the tables to which they
//!   belong.
//! * `indexes`: the indexes of a table; `index_scan`: the sizes of fresh ones.
//! * `owner_code`: which code of a table's owner may run with the rights of another role (pure); `owner_facts`: what the
//!   catalog says about it, and the transactions in which tables are read by SQL.
//! * [`snapshot`]: the fixed snapshot for everything that is read, and the plans of our statements.
//! * [`pages`]: pages read with pageinspect, with visibility determined; `scan`: the pages of a relation, over all
//!   connections.
//! * [`chunks`]: chunks of out-of-line values, and whole values.
//! * [`checking`]: what a check reads; [`chunk_rows`]: the chunks of many values at a time.
//! * [`toasters`]: the toasters of servers with pluggable TOAST, and their columns.
//! * [`trial`]: the temporary table in which the server compresses copies of values.
//! * `calibrate`: how long this server takes to read and compress values.
//! * [`locks`]: which sessions block readers of a relation.
//! * `sqlstate`: the meaning of the server's errors.
//! * [`sink`]: receives the results of a run over relations; the meaning of errors for the run.
//! * `probe`: what SQL functions show about stored values; [`functions`], `sampled`: their use where pages cannot be
//!   read.

use std::borrow::Cow;

use connect::{Connection, StatementError, server_message};
use tokio_postgres::types::Oid as PgOid;

use crate::disk::Oid;

pub mod about;
pub(crate) mod calibrate;
pub mod catalog;
pub mod checking;
pub mod chunk_rows;
pub mod chunks;
pub(crate) mod citus;
pub mod connect;
pub mod functions;
pub(crate) mod index_scan;
pub(crate) mod indexes;
pub(crate) mod listing;
pub mod locks;
pub(crate) mod names;
pub(crate) mod owner_code;
pub(crate) mod owner_facts;
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

/// Why the server did not return what was requested.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// An error of the server or the driver.
    #[error("{}", describe(.0))]
    Server(#[from] tokio_postgres::Error),
    /// A result with an unexpected shape.
    #[error("unexpected answer of the server: {0}")]
    Unexpected(String),
    /// The connection ended while the server read a value that it may have crashed on.
    #[error("{0}")]
    Crashed(String),
    /// Why values could not be timed.
    #[error("{0}")]
    NotTimed(String),
    /// A relation's definition is not the one that was read before.
    #[error("the relation was changed by another session")]
    Changed,
    /// Reading a relation would run code of its owner with the user's rights; a hint follows on a separate line.
    #[error("{0}")]
    OwnerCode(String),
    /// The server is too old.
    #[error("server version {0} is not supported: PostgreSQL 14 or later is needed")]
    Version(String),
    /// No relation has this name, which is quoted; a hint may follow on a separate line.
    #[error("relation {name} does not exist{hint}")]
    NoSuchRelation {
        /// The name, quoted.
        name: String,
        /// Empty, or a line with a hint.
        hint: String,
    },
    /// No relation matches a pattern.
    #[error("no table matches {0}")]
    NoMatch(String),
    /// An invalid name.
    #[error("{0}")]
    Pattern(String),
    /// A name qualified with another database.
    #[error("{given}: cross-database references are not possible; connect to \"{other}\"")]
    OtherDatabase {
        /// The name as given.
        given: String,
        /// The database named.
        other: String,
    },
    /// None of the selected relations has rows on this server.
    #[error("no table remains: {0}")]
    AllElsewhere(String),
    /// A relation without tuples of its own.
    #[error("{name} is {kind}; {hint}")]
    WrongKind {
        /// The relation's name, quoted where necessary.
        name: String,
        /// The kind, such as `a view` or `an index`.
        kind: &'static str,
        /// What to do instead, or where the rows are; a hint may follow on a separate line.
        hint: Cow<'static, str>,
    },
}

impl LiveError {
    /// Why the connection ended, if this error means that.
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

/// OIDs as a parameter of type `oid[]`.
pub(crate) fn numbers(oids: &[Oid]) -> Vec<PgOid> {
    oids.iter().map(|oid| oid.0).collect()
}

/// The server's message with DETAIL and HINT, or the driver's with its cause.
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
