//! A connection that is made, and whether its session is this client's own or a connection pooler lends it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OnceCell, watch};
use tokio_postgres::Row;
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::canceller::Canceller;
use super::client::{Client, Statement};
use super::error::{ConnectError, StatementError, server_message};
use super::life::{CLOSED, Life, Raw, end_reason, io_cause};
use super::resolved::Resolved;
use super::settings::{Reach, SEARCH_PATH, SessionOptions, set};
use crate::model::sql::quote_identifier;

/// How long the end of a connection may take to be known after a statement has failed of it.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// How many statements are kept prepared.
const KEPT_STATEMENTS: usize = 32;

/// A connection to a server, which can tell when the server is gone.
pub struct Connection {
    client: Client,
    life: Arc<Life>,
    ended: watch::Receiver<bool>,
    /// How to connect to the same server again: its address, and the password that it took.
    resolved: Resolved,
    session: SessionOptions,
    tls: Option<MakeRustlsConnect>,
    version: u32,
    /// What each transaction has to be given.
    settings: Vec<(String, String)>,
    /// The schemas in which the user's own session finds names, the first ones first.
    schemas: Vec<String>,
    /// Whether the session has the settings itself.
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
    ) -> Result<Connection, ConnectError> {
        let Raw { client, life, ended, version, tls } = raw;
        let settings = session.settings(version, resolved.options.as_deref());
        let mut connection = Connection {
            client: Client::new(client),
            life,
            ended,
            resolved,
            session,
            tls,
            version,
            settings,
            schemas: Vec::new(),
            is_own: AtomicBool::new(false),
            prepared: Mutex::default(),
            process: OnceCell::new(),
        };
        // asked before anything is set; neither operators nor names in it that a path could change
        let sql = "SELECT pg_catalog.current_schemas(true)";
        let asked = connection.client.query_typed(sql, &[]).await;
        match asked.and_then(|rows| rows.first().map_or(Ok(Vec::new()), |row| row.try_get(0))) {
            Ok(schemas) => {
                connection.schemas = schemas;
                let encrypted =
                    if connection.tls.is_some() { "encrypted" } else { "not encrypted" };
                tracing::debug!("connected, {encrypted}, server version {version}");
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

    /// The schemas in which the user's own session finds names, the first ones first.
    pub fn schemas(&self) -> &[String] {
        &self.schemas
    }

    /// Begins a transaction (`mode`: its isolation level and the like) that has the settings.
    ///
    /// # Errors
    /// The server's.
    pub async fn begin(&self, mode: &str) -> Result<(), tokio_postgres::Error> {
        self.begun(&self.begin_sql(mode)).await
    }

    async fn begun(&self, begin: &str) -> Result<(), tokio_postgres::Error> {
        let begun = self.client.batch_execute(begin).await;
        if begun.is_err() {
            // a setting was refused, or the connection is gone, as the error says
            let _ = self.client.batch_execute("ROLLBACK").await;
        }
        begun
    }

    /// The statements of [`begin`](Self::begin).
    pub fn begin_sql(&self, mode: &str) -> String {
        let settings = if self.is_own.load(Ordering::Relaxed) { &[] } else { &self.settings[..] };
        format!("BEGIN {mode};\n{}", set(settings, Reach::Transaction))
    }

    /// Does something in a read-only transaction that has the settings.
    ///
    /// # Errors
    /// That of the work, or the server's.
    pub async fn reading<T, E: From<tokio_postgres::Error>>(
        &self,
        work: impl AsyncFnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.begin("READ ONLY").await?;
        self.ended(work().await).await
    }

    /// As [`reading`](Self::reading), for statements of the user's, whose names are looked for where the
    /// user's own session looks for them.
    ///
    /// # Errors
    /// That of the work, or the server's.
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
        let begin = format!("BEGIN READ ONLY;\n{}", set(&settings, Reach::Transaction));
        self.begun(&begin).await?;
        self.ended(work().await).await
    }

    /// Ends a transaction as what was done in it ended.
    async fn ended<T, E: From<tokio_postgres::Error>>(&self, done: Result<T, E>) -> Result<T, E> {
        let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = self.client.batch_execute(end).await;
        let done = done?;
        ended?;
        Ok(done)
    }

    /// Gives the settings to the session itself, which must be known to be this client's own
    /// ([`are_lent`](super::are_lent)).
    ///
    /// # Errors
    /// The server's.
    pub async fn make_own(&self) -> Result<(), tokio_postgres::Error> {
        self.client.batch_execute(&set(&self.settings, Reach::Session)).await?;
        self.is_own.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The process that serves this connection, asked for once: the session must be known to be this client's own
    /// ([`are_lent`](super::are_lent)).
    ///
    /// # Errors
    /// The server's.
    pub async fn process(&self) -> Result<i32, tokio_postgres::Error> {
        let ask = async || {
            let rows = self.client.query_typed("SELECT pg_catalog.pg_backend_pid()", &[]).await?;
            rows.first().map_or(Ok(0), |row| row.try_get(0))
        };
        self.process.get_or_try_init(ask).await.copied()
    }

    /// The client, for statements.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// A statement that the server has parsed, now or at an earlier call with the same text. `types` are
    /// those of its parameters.
    ///
    /// # Errors
    /// The server's.
    pub async fn prepared(
        &self,
        sql: &str,
        types: &[Type],
    ) -> Result<Statement, tokio_postgres::Error> {
        if let Some(known) = self.known(sql) {
            return Ok(known);
        }
        let statement = self.client.prepare_typed(sql, types).await?;
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if prepared.len() >= KEPT_STATEMENTS {
            prepared.clear();
        }
        prepared.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Whether [`prepared`](Self::prepared) would not ask the server.
    pub fn knows(&self, sql: &str) -> bool {
        self.known(sql).is_some()
    }

    fn known(&self, sql: &str) -> Option<Statement> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner).get(sql).cloned()
    }

    /// The rows of a statement that is asked again and again.
    ///
    /// # Errors
    /// The server's.
    pub async fn query_again(
        &self,
        sql: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let types: Vec<Type> = parameters.iter().map(|(_, kind)| kind.clone()).collect();
        let values: Vec<&(dyn ToSql + Sync)> = parameters.iter().map(|(value, _)| *value).collect();
        self.client.query(&self.prepared(sql, &types).await?, &values).await
    }

    /// The server's version as `server_version_num`; 0 where it does not say.
    pub fn server_version(&self) -> u32 {
        self.version
    }

    #[cfg(feature = "internals")]
    /// Whether the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// What it is connected to.
    pub(super) fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    /// How its session was set up.
    pub(super) fn session(&self) -> &SessionOptions {
        &self.session
    }

    /// What stops the statement that runs on this connection.
    pub fn canceller(&self) -> Canceller {
        // the one that has let us in
        let server = self.resolved.targets.first().cloned();
        Canceller::new(self.client.cancel_token(), self.tls.clone(), server)
    }

    /// Whether the server is known to be gone.
    pub fn is_lost(&self) -> bool {
        self.client.is_closed()
    }

    /// The SQLSTATE with which the server has ended the session while nothing was asked, if it said one.
    pub fn end_code(&self) -> Option<String> {
        self.life.code()
    }

    /// Waits until the server is gone, and says why.
    pub async fn lost(&self) -> String {
        let mut ended = self.ended.clone();
        // an error means that the task is gone, which is an end too
        let _ = ended.wait_for(|ended| *ended).await;
        self.life.reason().unwrap_or_else(|| CLOSED.to_owned())
    }

    /// What an error of a statement on this connection means, in psql's words.
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
                // An error of the socket may be told before the connection's end is known.
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

/// How often all of it is asked.
const ROUNDS: usize = 2;

/// A process of a server, by its number and the server's time of start.
type Process = (i32, f64);

/// Asks without operators, for none is safe before the search path is set.
async fn process(client: &Client) -> Result<Process, tokio_postgres::Error> {
    let sql = "SELECT pg_catalog.pg_backend_pid(), \
               pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time())";
    let rows = client.query_typed(sql, &[]).await?;
    rows.first().map_or(Ok((0, 0.0)), |row| Ok((row.try_get(0)?, row.try_get(1)?)))
}

/// Whether some pooler lends these two connections their sessions by the transaction or statement.
///
/// What a client sets in a lent session stays there for whoever gets it next. Nothing is set here to find
/// out: two connections tell which process of which server answers them, again and again. A pooler that is
/// idle answers both by the process that became free last; one that goes round gives one client another
/// process each time; and while one connection holds a transaction open, the other one takes the next free
/// process and, when both are free again, the first one's.
///
/// # Errors
/// The server's.
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
                // so pgbouncer says that it lends by the statement
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

/// Whether this process is another than before, or the other connection's.
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
