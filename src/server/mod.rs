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
//! * [`locks`]: which relations are locked against readers; [`holders`]: who holds back what.
//! * `sqlstate`: the meaning of the server's errors.
//! * [`sink`]: receives the results of a run over relations; the meaning of errors for the run.
//! * `probe`: what SQL functions show about stored values; [`functions`], `sampled`: their use where pages cannot be
//!   read.
//!
//! # How a relation is read
//!
//! `server::snapshot` opens a read-only transaction with a fixed snapshot, shared by all connections.
//! `server::pages` copies pages out of the server in binary format and determines the visibility of tuples: by hint
//! bits and the snapshot, then by `pg_xact_status`, and for the rest (MultiXacts, subtransactions) by querying the
//! tuples themselves.
//!
//! `server::select` determines which relations a command line selects, and leaves out those whose rows are stored
//! elsewhere. For tables of Citus it reads the metadata (`server::citus`), because Citus removes shards from the
//! results of queries of `pg_class`: what the metadata places on this node and the session does not see is a
//! failure of the run, in every verb. `inspect` and `check` read tables of Citus on the nodes (`cli::citus`): the
//! run over the relations of a server, which knows nothing of Citus, runs on each node that the metadata gives, in
//! a session that sees shards, over the shards as relations. `NodeOutput` takes the results of a node and passes them
//! on with the node and the table that the shard belongs to, so that shards are added up as partitions are
//! (`inspect::overview::rank`). A node answers only if its own metadata says that it is the one that is meant.
//! `advise-threshold` samples all shards of a table as one (`advise::shards`): each adds a tally whose blocks are
//! weighted by its size and the part of it that was read, so that neither rounding nor a limit that one shard
//! reaches favours any of them; what is about files is computed for each shard and added up. Verbs that write
//! (`cli::citus_writes`) do the same with `retoast::run`: first all nodes are examined (`run::tables::examine`, up
//! to what a run would refuse), then the tables themselves get the settings on every node, then the shards are
//! worked on. The metadata is read again until it has no shard without a result; what it had at the end decides
//! whether the run is complete.
//!
//! Tables with another access method than heap are read by SQL functions (`server::probe`), which show nothing
//! about how their values are stored.
//!
//! Every source passes its pages to a visitor (`heap::scan::Visitor`). `server::pages` supplies selected blocks,
//! `server::scan` a whole relation over all connections, `offline::target` a file, and `inspect::saved` saved text.
//! `heap::scan::Scan` is the visitor that counts tuples and values, in accumulators that can be merged. It passes
//! the pages on to further visitors: pages kept for findings, a meter of how full the file is, rows of values,
//! references. There is no common type for the four sources: each verb uses at most two, and the visitor is what
//! they share. Saved output is read line by line (`offline::saved`).
//!
//! Where pages cannot be read, `server::functions` aggregates the results of `pg_column_size` and similar
//! functions, and `server::sampled` fetches sampled rows by ctid (such reads do not appear in the usage
//! statistics). `server::sampled::RowSource` is one of the two: sampled rows or pages. `advise::content` converts
//! either into rows for the tally, and `advise::reading` has the server compress them. Advice, explanations and
//! keys read a sample of the table in batches (`advise::plan`), until the sample is large enough.
//!
//! Documents whose keys are counted (`keys`) come from pages and their chunks, from files, or as text, which
//! `disk::jsonb_of_text` and `disk::element_text` convert to the server's stored form. `disk::jsonb_parts` and its
//! siblings (`json_parts`, `hstore_parts`, `element_parts`) attribute every byte of a document to a path, and
//! `keys::tree` adds the paths up in bounded memory. `usage::keys` determines which keys
//! indexes, generated columns and views name; for findings, `usage::hot` determines how small those of indexes are.
//!
//! `keys --extract` splits the documents of the sample (`disk::jsonb::split`, which produces the server's bytes),
//! and the same tally adds up the longer rows (`advise::extract::rows`). Which parts leave a document is defined
//! twice: in `advise::extract::rows` for the figures, and in `advise::extract::script` as SQL. Tests compare both
//! with tables that were really migrated.
//!
//! `model::cost` has the work of reads and updates and its prices; `advise::tally` adds up the work of a candidate,
//! `advise::estimate` makes intervals of the sums, and `advise::recommend` chooses.

use connect::{StatementError, server_message};
use tokio_postgres::Row;
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::types::{Oid as PgOid, Type};

use crate::message::Message;
use toast_format::disk::Oid;

pub mod about;
pub(crate) mod by_key;
pub(crate) mod calibrate;
pub mod catalog;
pub mod checking;
pub mod chunk_rows;
pub mod chunks;
pub(crate) mod citus;
pub mod connect;
pub mod functions;
pub mod holders;
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
pub(crate) mod similar;
pub mod sink;
pub mod snapshot;
pub(crate) mod sqlstate;
pub mod toasters;
pub mod trial;

pub use about::{Pageinspect, Server};
pub use catalog::Relation;
pub use connect::{Client, Connection, Parameter};
pub use snapshot::Moment;

/// What reading from a server returns.
pub type LiveResult<T> = Result<T, LiveError>;

/// Why the server did not return what was requested.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// An error of the server or the driver.
    #[error("{}", describe(.0))]
    Server(#[from] tokio_postgres::Error),
    /// A result with an unexpected shape.
    #[error("unexpected answer of the server: {0}")]
    Unexpected(String),
    /// Why the server was not asked, or its answer cannot be used; a hint may follow on a separate line.
    #[error("{0}")]
    Refused(String),
    /// The connection ended while the server read a value that it may have crashed on.
    #[error("{0}")]
    Crashed(String),
    /// A relation's definition is not the one that was read before.
    #[error("the relation was changed by another session")]
    Changed,
    /// Reading a relation would run code of its owner with the user's rights; a hint follows on a separate line.
    #[error("{0}")]
    OwnerCode(String),
    /// The user may not read the relation; the server was not asked, because it would log that as an error.
    #[error("permission denied for {0}")]
    Denied(String),
    /// No relation has this name, which is quoted.
    #[error("relation {name} does not exist{hint}")]
    NoSuchRelation {
        name: String,
        /// Empty, or a line with a hint.
        hint: String,
    },
    /// No relation matches a pattern, which is quoted; a hint may follow on a separate line.
    #[error("no table matches {0}")]
    NoMatch(String),
    /// None of the patterns that were given matches a relation.
    #[error("no table matches {text}")]
    NothingMatches {
        /// The first pattern, quoted; a hint may follow on a separate line.
        text: String,
        /// The same without a hint.
        pattern: String,
    },
    #[error("{0}")]
    Pattern(String),
    /// None of the selected relations has rows on this server.
    #[error("no table remains: {0}")]
    AllElsewhere(String),
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

impl From<&LiveError> for Message {
    fn from(error: &LiveError) -> Message {
        match error {
            LiveError::Server(statement) => match statement.as_db_error() {
                Some(said) if said.severity() == "ERROR" => {
                    Message { text: said.message().to_owned(), ..said_by_server(said) }
                }
                Some(said) => said_by_server(said),
                None => Message::error(error.to_string()),
            },
            LiveError::NothingMatches { pattern, .. } => {
                let passed_over = Some(format!("no table matches {pattern}"));
                Message { passed_over, ..Message::error(error.to_string()) }
            }
            other => Message::error(other.to_string()),
        }
    }
}

/// The server's message after its severity, with DETAIL and HINT.
fn said_by_server(said: &DbError) -> Message {
    Message {
        detail: said.detail().map(str::to_owned),
        hints: said.hint().or_else(|| timed_out(said)).map(str::to_owned).into_iter().collect(),
        ..Message::error(format!("{}:  {}", said.severity(), said.message()))
    }
}

/// What helps if the server's own limit of time ended a statement, which its message says.
fn timed_out(said: &DbError) -> Option<&'static str> {
    let is_limit = said.code() == &SqlState::QUERY_CANCELED && said.message().contains("timeout");
    is_limit
        .then_some("PGOPTIONS='-c statement_timeout=0' lets statements run as long as they need.")
}

/// OIDs as a parameter of type `oid[]`.
pub(crate) fn numbers(oids: &[Oid]) -> Vec<PgOid> {
    oids.iter().map(|oid| oid.0).collect()
}

/// The row of a statement that always returns one.
pub(crate) async fn single_row(
    client: &Client,
    sql: &str,
    parameters: &[Parameter<'_>],
) -> LiveResult<Row> {
    let row = client.row(sql, parameters).await?;
    row.ok_or_else(|| LiveError::Unexpected("no row".to_owned()))
}

/// Texts in the encoding of the database, as bytes, in their order: what they say; `None` if they are already in
/// UTF-8, in an encoding that the server does not know, or damaged.
pub(crate) async fn decoded(client: &Client, texts: &[Vec<u8>]) -> Option<Vec<String>> {
    let sql = "SELECT pg_catalog.convert_from(t.bytes, e.name) \
               FROM (SELECT pg_catalog.getdatabaseencoding()) AS e (name) \
               CROSS JOIN pg_catalog.unnest($1) WITH ORDINALITY AS t (bytes, at) \
               WHERE e.name NOT IN ('UTF8', 'SQL_ASCII') ORDER BY t.at";
    // if the connection is gone, the next query will say so
    let rows = client.query_typed(sql, &[(&texts, Type::BYTEA_ARRAY)]).await.ok()?;
    let said = rows.iter().map(|row| row.try_get(0).ok()).collect::<Option<Vec<String>>>()?;
    (said.len() == texts.len()).then_some(said)
}

/// A column that counts something: SQL has a signed number for it.
fn count_in(row: &Row, column: usize) -> Result<u64, tokio_postgres::Error> {
    Ok(u64::try_from(row.try_get::<_, i64>(column)?).unwrap_or(0))
}

/// A column of the type `"char"`, which was cast to text.
fn letter_in(row: &Row, column: usize) -> Result<Option<char>, tokio_postgres::Error> {
    Ok(row.try_get::<_, String>(column)?.chars().next())
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
