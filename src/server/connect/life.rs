//! The life and the end of a connection: the task that drives it, and the last messages it received.

use std::future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::{os_message, server_message};

/// How often, and at what interval, to read from a server that no longer accepts data.
const LAST_WORDS: u32 = 5;
const LAST_WORDS_AFTER: Duration = Duration::from_millis(5);

/// libpq's message for a connection that ended without a message.
pub(super) const CLOSED: &str = "server closed the connection unexpectedly\n\
     \tThis probably means the server terminated abnormally\n\
     \tbefore or while processing the request.";

/// The most notices that the server may send for one statement.
const MOST_NOTICES: u32 = 100_000;

/// What the task that drives a connection has seen.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// Notices since the last statement ended.
    notices: AtomicU32,
    /// Why the connection ended, in psql's words.
    reason: Mutex<Option<String>>,
    /// The SQLSTATE of the server's last message.
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

/// Starts the task that drives a connection; it ends with the client or the server.
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
        let mut unsent = None;
        let mut tries = 0;
        let error = loop {
            match future::poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(_)) if seen.notices.fetch_add(1, Ordering::Relaxed) < MOST_NOTICES => {}
                Some(Ok(_)) => {
                    let why = format!("the server sent {MOST_NOTICES} notices and no result");
                    *seen.reason.lock() = Some(why);
                    end.send_replace(true);
                    return;
                }
                // What the server sent before it closed the connection may not have been read yet (`pqSendSome`), or
                // may not even have arrived at the socket.
                Some(Err(error)) if tries < LAST_WORDS && could_not_send(&error) => {
                    unsent.get_or_insert(error);
                    tries += 1;
                    tokio::time::sleep(LAST_WORDS_AFTER).await;
                }
                Some(Err(error)) => {
                    break match unsent {
                        Some(unsent) if error.as_db_error().is_none() => Some(unsent),
                        _ => Some(error),
                    };
                }
                None => break unsent,
            }
        };
        let code = error.as_ref().and_then(|error| error.code()).map(|code| code.code().to_owned());
        *seen.code.lock() = code;
        *seen.reason.lock() = error.as_ref().map(end_reason);
        end.send_replace(true);
    });
    Raw { client, life, ended, version, tls }
}

impl Life {
    /// Notes that a statement has ended.
    pub(super) fn end_statement(&self) {
        self.notices.store(0, Ordering::Relaxed);
    }

    pub(super) fn reason(&self) -> Option<String> {
        self.reason.lock().clone()
    }

    pub(super) fn code(&self) -> Option<String> {
        self.code.lock().clone()
    }
}

/// Why a connection ended: the server's own message, followed by libpq's.
pub(super) fn end_reason(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), io_cause(error)) {
        (Some(said), _) => format!("{}\n{CLOSED}", server_message(said)),
        (None, Some(cause)) if cause.kind() != io::ErrorKind::UnexpectedEof => {
            format!("could not receive data from server: {}", os_message(cause))
        }
        _ => CLOSED.to_owned(),
    }
}

/// Whether the other side closed the connection while this side was writing.
fn could_not_send(error: &tokio_postgres::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    io_cause(error).is_some_and(|cause| matches!(cause.kind(), BrokenPipe | ConnectionReset))
}

pub(super) fn io_cause(error: &tokio_postgres::Error) -> Option<&io::Error> {
    std::error::Error::source(error).and_then(|cause| cause.downcast_ref())
}

/// Converts `server_version`, such as `15.20 (Debian …)`, `18beta1` or `9.6.24`, to `server_version_num`
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

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::ReadBuf;
    use tokio_postgres::NoTls;

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

    /// A server that sends its last messages when it no longer accepts data.
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
        // The error is returned either to the caller or as the reason why the connection ended.
        let said = asked.code().map(|code| code.code().to_owned());
        let code = said.or_else(|| raw.life.code());
        assert_eq!(code.as_deref(), Some("57P01"), "{asked:?}");
    }
}
