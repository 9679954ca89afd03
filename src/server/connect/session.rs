//! A connection that is made: its settings, its life, its end.

use super::client::{Client, Statement};
use super::error::{ConnectError, StatementError, os_message, server_message};
use super::resolved::Resolved;
use super::tls::Noted;
use crate::server::sql::{quote_identifier, quote_literal};
use std::collections::HashMap;
use std::future;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_postgres::error::Severity;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{CancelToken, NoTls, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

/// How many statements are kept prepared.
const KEPT_STATEMENTS: usize = 32;

/// How long the end of a connection may take to be known after a statement has failed of it.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// How often, and how long apart, a server that takes nothing any more is listened to.
const LAST_WORDS: u32 = 5;
const LAST_WORDS_AFTER: Duration = Duration::from_millis(5);

/// libpq's words for a connection that ended without a word.
const CLOSED: &str = "server closed the connection unexpectedly\n\
     \tThis probably means the server terminated abnormally\n\
     \tbefore or while processing the request.";

/// The one setting whose value is a list of identifiers.
const SEARCH_PATH: &str = "search_path";

/// How a session is set up: transaction by transaction, for the session may be one that a connection
/// pooler lends for that long. Only one that is known to be this client's alone is given the settings
/// for good ([`Connection::make_own`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOptions {
    /// Whether the server is to refuse every write.
    pub read_only: bool,
    /// What `pg_stat_activity` shows, unless the user has said otherwise.
    pub application_name: String,
    /// The longest wait for one lock.
    pub lock_timeout: Duration,
    /// The longest a statement may take; zero: as long as it takes.
    pub statement_timeout: Duration,
    /// Further settings, by name.
    pub settings: Vec<(String, String)>,
}

impl SessionOptions {
    /// The session of a verb that only reads, such as `inspect`.
    pub fn read_only(verb: &str) -> SessionOptions {
        SessionOptions { read_only: true, ..SessionOptions::read_write(verb) }
    }

    /// The session of a verb that writes.
    pub fn read_write(verb: &str) -> SessionOptions {
        SessionOptions {
            read_only: false,
            application_name: format!("toastctl {verb}"),
            lock_timeout: Duration::from_secs(10),
            statement_timeout: Duration::ZERO,
            settings: Vec::new(),
        }
    }

    /// The settings by name, on a server of this version (as `server_version_num`).
    ///
    /// They are no startup parameters, since connection poolers refuse unknown ones. A timeout that the
    /// user has set through `PGOPTIONS` stays as it is.
    fn settings(&self, version: u32, user_options: Option<&str>) -> Vec<(String, String)> {
        let milliseconds = |time: Duration| time.as_millis().to_string();
        // whoever may make objects in another schema must not choose the operators meant here
        let mut settings: Vec<(&str, String)> =
            vec![(SEARCH_PATH, "pg_catalog, pg_temp".to_owned())];
        let timeouts = [
            ("statement_timeout", 0, milliseconds(self.statement_timeout)),
            ("lock_timeout", 0, milliseconds(self.lock_timeout)),
            ("idle_in_transaction_session_timeout", 90_600, "0".to_owned()),
            ("idle_session_timeout", 140_000, "0".to_owned()),
            ("transaction_timeout", 170_000, "0".to_owned()),
            // a client that vanished without a word keeps its locks and snapshot no longer than this
            ("tcp_keepalives_idle", 0, "10".to_owned()),
            ("tcp_keepalives_interval", 0, "5".to_owned()),
            ("tcp_keepalives_count", 0, "3".to_owned()),
            ("tcp_user_timeout", 120_000, "25000".to_owned()),
        ];
        for (name, since, value) in timeouts {
            if version >= since && !sets(user_options.unwrap_or_default(), name) {
                settings.push((name, value));
            }
        }
        for (name, value) in [
            ("DateStyle", "ISO"),
            ("IntervalStyle", "postgres"),
            ("extra_float_digits", "3"),
            ("bytea_output", "hex"),
            ("standard_conforming_strings", "on"),
        ] {
            settings.push((name, value.to_owned()));
        }
        // compiling takes longer than any of the statements on the catalogs
        if !sets(user_options.unwrap_or_default(), "jit") {
            settings.push(("jit", "off".to_owned()));
        }
        for (name, value) in &self.settings {
            settings.push((name, value.clone()));
        }
        if self.read_only {
            settings.push(("default_transaction_read_only", "on".to_owned()));
        }
        settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// The statements that give these settings to the session, or to the transaction under way.
fn set(settings: &[(String, String)], reach: Reach) -> String {
    let set = match reach {
        Reach::Session => "SET",
        Reach::Transaction => "SET LOCAL",
    };
    let one = |(name, value): &(String, String)| {
        let value = if name == SEARCH_PATH { value.clone() } else { quote_literal(value) };
        format!("{set} {} = {value};\n", setting_name(name))
    };
    settings.iter().map(one).collect()
}

/// How long settings hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    Session,
    Transaction,
}

/// Whether command-line options for the backend set this parameter: `-c name=…`, `-cname=…`, `--name=…`.
fn sets(options: &str, name: &str) -> bool {
    options.split_whitespace().any(|word| {
        let word = word.strip_prefix("--").or_else(|| word.strip_prefix("-c")).unwrap_or(word);
        let set = word.split('=').next().unwrap_or_default().replace('-', "_");
        word.contains('=') && set.eq_ignore_ascii_case(name)
    })
}

/// The name of a setting, each part between dots quoted.
fn setting_name(name: &str) -> String {
    let parts: Vec<String> = name.split('.').map(quote_identifier).collect();
    parts.join(".")
}

/// A connection to a server, which can tell when the server is gone.
pub struct Connection {
    client: Client,
    life: Arc<Life>,
    ended: watch::Receiver<bool>,
    /// How to connect to the same server again: its address, and the password that it took.
    resolved: Resolved,
    session: SessionOptions,
    tls: Option<MakeRustlsConnect>,
    #[cfg(feature = "internals")]
    version: u32,
    /// What each transaction has to be given.
    settings: Vec<(String, String)>,
    /// The schemas in which the user's own session finds names, the first ones first.
    schemas: Vec<String>,
    /// Whether the session has the settings itself.
    is_own: AtomicBool,
    prepared: Mutex<HashMap<String, Statement>>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("resolved", &self.resolved).finish_non_exhaustive()
    }
}

/// What the task that drives a connection has seen.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// Why it ended, in psql's words.
    reason: Mutex<Option<String>>,
    /// The SQLSTATE of the server's last word.
    code: Mutex<Option<String>>,
}

/// A client with its driver, before its session is set up.
pub(crate) struct Raw {
    pub(crate) client: tokio_postgres::Client,
    pub(crate) life: Arc<Life>,
    pub(crate) ended: watch::Receiver<bool>,
    pub(crate) version: u32,
    pub(crate) tls: Option<MakeRustlsConnect>,
}

/// Lets a connection live: its task ends with the client or the server.
pub(crate) fn drive<S, T>(
    client: tokio_postgres::Client,
    mut connection: tokio_postgres::Connection<S, T>,
    tls: Option<MakeRustlsConnect>,
) -> Raw
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let version = connection.parameter("server_version").and_then(version_number).unwrap_or(0);
    let life = Arc::new(Life::default());
    let (end, ended) = watch::channel(false);
    let seen = Arc::clone(&life);
    tokio::spawn(async move {
        let (mut unsent, mut tries) = (None, 0);
        let error = loop {
            match future::poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(_)) => {}
                // what the server said before it closed may not have been read yet (`pqSendSome`), nor the
                // socket be known to have it
                Some(Err(error)) if tries < LAST_WORDS && could_not_send(&error) => {
                    unsent.get_or_insert(error);
                    tries += 1;
                    tokio::time::sleep(LAST_WORDS_AFTER).await;
                }
                Some(Err(error)) => {
                    break Some(unsent.filter(|_| error.as_db_error().is_none()).unwrap_or(error));
                }
                None => break unsent,
            }
        };
        let code = error.as_ref().and_then(|error| error.code()).map(|code| code.code().to_owned());
        *seen.code.lock().unwrap_or_else(PoisonError::into_inner) = code;
        *seen.reason.lock().unwrap_or_else(PoisonError::into_inner) =
            error.as_ref().map(end_reason);
        end.send_replace(true);
    });
    Raw { client, life, ended, version, tls }
}

impl Life {
    fn reason(&self) -> Option<String> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Why a connection ended, with libpq's words after the server's own.
fn end_reason(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), io_cause(error)) {
        (Some(said), _) => format!("{}\n{CLOSED}", server_message(said)),
        (None, Some(cause)) if cause.kind() != io::ErrorKind::UnexpectedEof => {
            format!("could not receive data from server: {}", os_message(cause))
        }
        _ => CLOSED.to_owned(),
    }
}

/// Whether the other side has closed while this one was writing.
fn could_not_send(error: &tokio_postgres::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    io_cause(error).is_some_and(|cause| matches!(cause.kind(), BrokenPipe | ConnectionReset))
}

fn io_cause(error: &tokio_postgres::Error) -> Option<&io::Error> {
    std::error::Error::source(error).and_then(|cause| cause.downcast_ref())
}

/// `server_version_num` of `server_version` as `15.20 (Debian …)`, `18beta1` or `9.6.24`
/// (`pqSaveParameterStatus`).
fn version_number(text: &str) -> Option<u32> {
    let mut numbers = text.split('.').map(|part| {
        let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        part[..digits].parse::<u32>().ok()
    });
    let major = numbers.next()??;
    let minor = numbers.next().flatten().unwrap_or(0);
    if major >= 10 {
        return major.checked_mul(10_000)?.checked_add(minor);
    }
    let patch = numbers.next().flatten().unwrap_or(0);
    (minor < 100 && patch < 100).then_some(major * 10_000 + minor * 100 + patch)
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
            #[cfg(feature = "internals")]
            version,
            settings,
            schemas: Vec::new(),
            is_own: AtomicBool::new(false),
            prepared: Mutex::default(),
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

    #[cfg(feature = "internals")]
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
        Canceller { token: self.client.cancel_token(), tls: self.tls.clone() }
    }

    /// Whether the server is known to be gone.
    pub fn is_lost(&self) -> bool {
        self.client.is_closed()
    }

    /// The SQLSTATE with which the server has ended the session while nothing was asked, if it said one.
    pub fn end_code(&self) -> Option<String> {
        self.life.code.lock().unwrap_or_else(PoisonError::into_inner).clone()
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

/// Stops the statement that runs on a connection, over a connection of its own and as well protected.
#[derive(Clone)]
pub struct Canceller {
    token: CancelToken,
    tls: Option<MakeRustlsConnect>,
}

impl std::fmt::Debug for Canceller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Canceller").field("encrypted", &self.tls.is_some()).finish_non_exhaustive()
    }
}

impl Canceller {
    /// Asks the server to stop the statement; it may have ended already.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn cancel(&self) -> Result<(), ConnectError> {
        let sent = match &self.tls {
            Some(tls) => self.token.cancel_query(Noted::new(tls.clone())).await,
            None => self.token.cancel_query(NoTls).await,
        };
        sent.map_err(|error| {
            let cause = io_cause(&error).map_or_else(|| error.to_string(), os_message);
            ConnectError::Failed {
                attempts: vec![format!("could not send cancel request: {cause}")],
                needs_password: false,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::ReadBuf;

    use super::*;

    #[test]
    fn versions_are_numbered_as_the_server_numbers_them() {
        assert_eq!(version_number("15.20 (Debian 15.20-0+deb12u1)"), Some(150_020));
        assert_eq!(version_number("18beta1"), Some(180_000));
        assert_eq!(version_number("19devel"), Some(190_000));
        assert_eq!(version_number("9.6.24"), Some(90_624));
        assert_eq!(version_number("none"), None);
        assert_eq!(version_number("99999999999"), None);
        assert_eq!(version_number("4294967295"), None);
    }

    /// A server whose last words come while it no longer takes any.
    struct Closing {
        unread: Vec<u8>,
        last: Vec<u8>,
        begun: bool,
    }

    impl AsyncRead for Closing {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let length = self.unread.len().min(into.remaining());
            into.put_slice(&self.unread.drain(..length).collect::<Vec<u8>>());
            if length == 0 && !self.last.is_empty() { Poll::Pending } else { Poll::Ready(Ok(())) }
        }
    }

    impl AsyncWrite for Closing {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            if !std::mem::replace(&mut self.begun, true) {
                return Poll::Ready(Ok(bytes.len()));
            }
            self.unread = std::mem::take(&mut self.last);
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&[tag][..], &length, body].concat()
    }

    #[tokio::test]
    async fn the_servers_last_words_are_heard_though_it_takes_none() {
        let fatal = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection\0\0";
        let stream = Closing {
            unread: [message(b'R', &[0; 4]), message(b'Z', b"I")].concat(),
            last: message(b'E', fatal),
            begun: false,
        };
        let config = tokio_postgres::Config::new().user("u").clone();
        let (client, connection) = config.connect_raw(stream, NoTls).await.unwrap();
        let raw = drive(client, connection, None);
        let asked = raw.client.batch_execute("SELECT 1").await.unwrap_err();
        raw.ended.clone().wait_for(|ended| *ended).await.unwrap();
        // to who asked, or to who asks why the connection ended
        let said = asked.code().map(|code| code.code().to_owned());
        let code = said.or_else(|| raw.life.code.lock().unwrap().clone());
        assert_eq!(code.as_deref(), Some("57P01"), "{asked:?}");
    }

    fn set_up(options: &SessionOptions, version: u32, user: Option<&str>) -> String {
        set(&options.settings(version, user), Reach::Session)
    }

    #[test]
    fn a_reading_session_is_read_only_and_knows_what_its_server_has() {
        let options = SessionOptions::read_only("inspect");
        let sql = set_up(&options, 150_020, None);
        insta::assert_snapshot!(sql, @r#"
        SET "search_path" = pg_catalog, pg_temp;
        SET "statement_timeout" = '0';
        SET "lock_timeout" = '10000';
        SET "idle_in_transaction_session_timeout" = '0';
        SET "idle_session_timeout" = '0';
        SET "tcp_keepalives_idle" = '10';
        SET "tcp_keepalives_interval" = '5';
        SET "tcp_keepalives_count" = '3';
        SET "tcp_user_timeout" = '25000';
        SET "DateStyle" = 'ISO';
        SET "IntervalStyle" = 'postgres';
        SET "extra_float_digits" = '3';
        SET "bytea_output" = 'hex';
        SET "standard_conforming_strings" = 'on';
        SET "jit" = 'off';
        SET "default_transaction_read_only" = 'on';
        "#);
        let local = set(&options.settings(150_020, None), Reach::Transaction);
        assert_eq!(local, sql.replace("SET ", "SET LOCAL "));
        let sql = set_up(&SessionOptions::read_write("retoast"), 170_000, None);
        assert!(sql.contains("transaction_timeout") && !sql.contains("read_only"), "{sql}");
    }

    #[test]
    fn the_users_own_timeout_stays_but_not_his_writes() {
        let options =
            "-c statement_timeout=5min --lock-timeout=1s -cdefault_transaction_read_only=off";
        let sql = set_up(&SessionOptions::read_only("inspect"), 150_000, Some(options));
        assert!(!sql.contains("statement_timeout"), "{sql}");
        assert!(!sql.contains("\"lock_timeout"), "{sql}");
        assert!(sql.contains("SET \"default_transaction_read_only\" = 'on'"), "{sql}");
    }

    #[test]
    fn further_settings_are_quoted() {
        let mut options = SessionOptions::read_only("inspect");
        options.settings.push(("my.s\"et".into(), "it's".into()));
        let sql = set_up(&options, 150_000, None);
        assert!(sql.contains("SET \"my\".\"s\"\"et\" = 'it''s';"), "{sql}");
    }
}
