//! An open connection, and the test whether its session belongs to this client or is shared by a connection pooler.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OnceCell, watch};
use tokio_postgres::Row;
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::canceller::Canceller;
use super::client::{Client, Parameter, Statement};
use super::error::{ConnectError, ConnectResult, StatementError, server_message};
use super::life::{CLOSED, Life, Raw, end_reason, io_cause};
use super::resolved::Resolved;
use super::settings::{CHANGES_SHARDS, SEARCH_PATH, SessionOptions, set};
use toast_format::model::sql::quote_identifier;

/// How long to wait for the reason why a connection ended, after a statement has failed because of it.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// The maximum number of statements that are kept prepared.
const KEPT_STATEMENTS: usize = 32;

/// A connection to a server, which can report that the connection was lost.
pub struct Connection {
    client: Client,
    life: Arc<Life>,
    ended: watch::Receiver<bool>,
    /// How to connect to the same server again: its address, and the password that it accepted.
    resolved: Resolved,
    session: SessionOptions,
    tls: Option<MakeRustlsConnect>,
    version: u32,
    /// The settings that each transaction needs.
    settings: Vec<(String, String)>,
    /// The schemas in the search path of the user's own session, in order.
    schemas: Vec<String>,
    /// Whether the settings are set for the whole session.
    is_own: AtomicBool,
    prepared: Mutex<HashMap<String, Statement>>,
    process: OnceCell<i32>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("resolved", &self.resolved).finish_non_exhaustive()
    }
}

impl Connection {
    pub(crate) async fn set_up(
        raw: Raw,
        resolved: Resolved,
        session: SessionOptions,
    ) -> ConnectResult<Connection> {
        let Raw { client, life, ended, version, tls } = raw;
        let mut connection = Connection {
            client: Client::new(client, Arc::clone(&life)),
            life,
            ended,
            resolved,
            session,
            tls,
            version,
            settings: Vec::new(),
            schemas: Vec::new(),
            is_own: AtomicBool::new(false),
            prepared: Mutex::default(),
            process: OnceCell::new(),
        };
        // This is read before anything is set. The query contains no operators or names that the search path could
        // affect.
        let sql = format!(
            "SELECT pg_catalog.current_schemas(true), \
             pg_catalog.current_setting('{CHANGES_SHARDS}', true) IS NOT NULL"
        );
        match connection.client.query_typed(&sql, &[]).await {
            Ok(rows) => {
                let known = rows.first();
                let schemas = known.and_then(|row| row.try_get(0).ok());
                let has_citus = known.and_then(|row| row.try_get(1).ok());
                connection.schemas = schemas.unwrap_or_default();
                let options = connection.resolved.driver.get_options();
                connection.settings =
                    connection.session.settings(version, options, has_citus.unwrap_or(false));
                Ok(connection)
            }
            Err(error) => match connection.explain(&error).await {
                StatementError::Lost(reason) => {
                    Err(ConnectError::Failed { attempts: vec![reason], needs_password: false })
                }
                other => Err(ConnectError::Session(other.to_string())),
            },
        }
    }

    /// The server's version and whether the connection is encrypted, in words.
    pub(crate) fn server_text(&self) -> String {
        let encrypted = if self.tls.is_some() { "encrypted" } else { "not encrypted" };
        format!("PostgreSQL {}.{}, {encrypted}", self.version / 10_000, self.version % 10_000)
    }

    /// host:port of the server, or the directory of the socket and the port.
    pub(crate) fn address(&self) -> String {
        self.resolved.servers()
    }

    /// The schemas in the search path of the user's own session, in order.
    pub fn schemas(&self) -> &[String] {
        &self.schemas
    }

    /// Begins a transaction with the settings (`mode`: its isolation level and other options).
    ///
    /// # Errors
    /// Any error of the server.
    pub async fn begin(&self, mode: &str) -> Result<(), tokio_postgres::Error> {
        self.begun(&self.begin_sql(mode)).await
    }

    async fn begun(&self, begin: &str) -> Result<(), tokio_postgres::Error> {
        let begun = self.client.batch_execute(begin).await;
        if begun.is_err() {
            // Either a setting was refused or the connection was lost; the returned error shows which.
            let _ = self.client.batch_execute("ROLLBACK").await;
        }
        begun
    }

    /// The statements sent by [`begin`](Self::begin).
    pub fn begin_sql(&self, mode: &str) -> String {
        let settings = if self.is_own.load(Ordering::Relaxed) { &[] } else { &self.settings[..] };
        format!("BEGIN {mode};\n{}", set(settings, "SET LOCAL"))
    }

    /// Runs `work` in a read-only transaction with the settings.
    ///
    /// # Errors
    /// An error of `work`, or of the server.
    pub async fn reading<T, E: From<tokio_postgres::Error>>(
        &self,
        work: impl AsyncFnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.begin("READ ONLY").await?;
        self.ended(work().await).await
    }

    /// Like [`reading`](Self::reading), for statements of the user: their names are resolved with the search path of
    /// the user's own session.
    ///
    /// # Errors
    /// An error of `work`, or of the server.
    pub async fn reading_for_user<T, E: From<tokio_postgres::Error>>(
        &self,
        work: impl AsyncFnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut settings = self.settings.clone();
        settings.retain(|(name, _)| name != SEARCH_PATH);
        if self.is_own.load(Ordering::Relaxed) {
            let path: Vec<String> = self.schemas.iter().map(|one| quote_identifier(one)).collect();
            settings = vec![(SEARCH_PATH.to_owned(), path.join(", "))];
        }
        let begin = format!("BEGIN READ ONLY;\n{}", set(&settings, "SET LOCAL"));
        self.begun(&begin).await?;
        self.ended(work().await).await
    }

    /// Commits the transaction if the work in it succeeded, and rolls it back otherwise.
    async fn ended<T, E: From<tokio_postgres::Error>>(&self, done: Result<T, E>) -> Result<T, E> {
        let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = self.client.batch_execute(end).await;
        let done = done?;
        ended?;
        Ok(done)
    }

    /// Sets the settings for the whole session, which must be known to belong to this client
    /// ([`are_lent`](super::are_lent)).
    ///
    /// # Errors
    /// Any error of the server.
    pub async fn make_own(&self) -> Result<(), tokio_postgres::Error> {
        self.client.batch_execute(&set(&self.settings, "SET")).await?;
        self.is_own.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The process ID of the session, queried only once. The session must be known to belong to this client
    /// ([`are_lent`](super::are_lent)).
    ///
    /// # Errors
    /// Any error of the server.
    pub async fn process(&self) -> Result<i32, tokio_postgres::Error> {
        self.process
            .get_or_try_init(async || {
                let process = self.client.value("SELECT pg_catalog.pg_backend_pid()", &[]).await?;
                Ok(process.unwrap_or(0))
            })
            .await
            .copied()
    }

    /// The client that sends statements.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns a prepared statement; it is parsed only at the first call with this text. `types` are the types of its
    /// parameters.
    ///
    /// # Errors
    /// Any error of the server.
    pub async fn prepared(
        &self,
        sql: &str,
        types: &[Type],
    ) -> Result<Statement, tokio_postgres::Error> {
        if let Some(known) = self.known(sql) {
            return Ok(known);
        }
        let statement = self.client.prepare_typed(sql, types).await?;
        let mut prepared = self.prepared.lock();
        if prepared.len() >= KEPT_STATEMENTS {
            prepared.clear();
        }
        prepared.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Whether [`prepared`](Self::prepared) would return without a query to the server.
    pub fn knows(&self, sql: &str) -> bool {
        self.known(sql).is_some()
    }

    fn known(&self, sql: &str) -> Option<Statement> {
        self.prepared.lock().get(sql).cloned()
    }

    /// Returns the rows of a statement that is used repeatedly.
    ///
    /// # Errors
    /// Any error of the server.
    pub async fn query_again(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let types: Vec<Type> = parameters.iter().map(|(_, kind)| kind.clone()).collect();
        let values: Vec<&(dyn ToSql + Sync)> = parameters.iter().map(|(value, _)| *value).collect();
        self.client.query(&self.prepared(sql, &types).await?, &values).await
    }

    /// The server's version, as `server_version_num`; 0 if unknown.
    pub fn server_version(&self) -> u32 {
        self.version
    }

    /// Whether the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// The parameters of this connection.
    pub(super) fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    /// The session options of this connection.
    pub(crate) fn session(&self) -> &SessionOptions {
        &self.session
    }

    /// Returns what cancels the statement that runs on this connection.
    pub fn canceller(&self) -> Canceller {
        // The first target is the server that accepted the connection.
        let server = self.resolved.targets.first().cloned();
        Canceller::new(self.client.cancel_token(), self.tls.clone(), server)
    }

    /// Whether the connection is known to be lost.
    pub fn is_lost(&self) -> bool {
        self.client.is_closed()
    }

    /// The SQLSTATE with which the server ended the session while it was idle, if it sent one.
    pub fn end_code(&self) -> Option<String> {
        self.life.code()
    }

    /// Waits until the connection is lost, and returns the reason.
    pub async fn lost(&self) -> String {
        let mut ended = self.ended.clone();
        // An error means that the task has ended, and with it the connection.
        let _ = ended.wait_for(|ended| *ended).await;
        self.life.reason().unwrap_or_else(|| CLOSED.to_owned())
    }

    /// Interprets an error of a statement on this connection, in psql's words.
    pub async fn explain(&self, error: &tokio_postgres::Error) -> StatementError {
        match error.as_db_error() {
            Some(said)
                if !matches!(said.parsed_severity(), Some(Severity::Fatal | Severity::Panic)) =>
            {
                StatementError::Refused {
                    message: server_message(said),
                    code: said.code().code().to_owned(),
                }
            }
            Some(_) => StatementError::Lost(end_reason(error)),
            None => {
                // An error of the socket may be reported before the connection is known to have ended.
                if error.is_closed() || io_cause(error).is_some() {
                    let known = tokio::time::timeout(END_PATIENCE, self.lost()).await;
                    if known.is_ok() || error.is_closed() || self.is_lost() {
                        return StatementError::Lost(known.unwrap_or_else(|_| end_reason(error)));
                    }
                }
                let cause = std::error::Error::source(error);
                let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
                StatementError::Client(format!("{error}{cause}"))
            }
        }
    }
}

/// How often the whole test is repeated.
const ROUNDS: usize = 2;

/// A server process, by its ID and the server's start time.
type Process = (i32, f64);

/// Queries the process without using operators, because none is safe before the search path is set.
async fn process(client: &Client) -> Result<Process, tokio_postgres::Error> {
    let sql = "SELECT pg_catalog.pg_backend_pid(), \
               pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time())";
    let rows = client.query_typed(sql, &[]).await?;
    rows.first().map_or(Ok((0, 0.0)), |row| Ok((row.try_get(0)?, row.try_get(1)?)))
}

/// Whether a pooler assigns sessions to these two connections per transaction or statement.
///
/// What a client sets in a shared session remains for the next client that gets it, so this test sets nothing. It
/// queries repeatedly which process of which server answers each connection. A pooler that is idle answers both with
/// the process that became free last. One that rotates assigns a different process each time. And while one connection
/// holds a transaction open, the other gets the next free process, and after both are free again, the process of the
/// first.
///
/// # Errors
/// Any error of the server.
pub async fn are_lent(one: &Connection, other: &Connection) -> Result<bool, tokio_postgres::Error> {
    let clients = [one.client(), other.client()];
    let mut known: [Option<Process>; 2] = [None; 2];
    for _ in 0..ROUNDS {
        for at in [0, 1, 0, 0, 1, 1] {
            if is_news(&mut known, at, process(clients[at]).await?) {
                return Ok(true);
            }
        }
        for (holder, asker) in [(0, 1), (1, 0)] {
            match clients[holder].batch_execute("BEGIN READ ONLY").await {
                // This is how PgBouncer reports that it assigns sessions per statement.
                Err(error) if error.code() == Some(&SqlState::PROTOCOL_VIOLATION) => {
                    return Ok(true);
                }
                begun => begun?,
            }
            let held = process(clients[holder]).await?;
            let asked = process(clients[asker]).await?;
            clients[holder].batch_execute("COMMIT").await?;
            let again = process(clients[asker]).await?;
            for (at, process) in [(holder, held), (asker, asked), (asker, again)] {
                if is_news(&mut known, at, process) {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

/// Whether this process differs from the one before, or is that of the other connection.
fn is_news(known: &mut [Option<Process>; 2], at: usize, process: Process) -> bool {
    let other = known.get(1 - at).copied().flatten();
    let Some(own) = known.get_mut(at) else { return false };
    let changed = own.replace(process).is_some_and(|before| before != process);
    changed || other == Some(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processes_that_stay_are_no_news() {
        let mut known = [None; 2];
        assert!(!is_news(&mut known, 0, (7, 1.0)));
        assert!(!is_news(&mut known, 1, (8, 1.0)));
        assert!(!is_news(&mut known, 0, (7, 1.0)));
        assert!(is_news(&mut known, 1, (9, 1.0)), "another process");
        assert!(is_news(&mut [Some((7, 1.0)), None], 1, (7, 1.0)), "one process for both");
        assert!(!is_news(&mut [Some((7, 1.0)), None], 1, (7, 2.0)), "of another server");
    }
}
