//! Cancels statements.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::{CancelToken, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::{ConnectError, ConnectResult, os_message};
use super::life::io_cause;
use super::resolved::{Host, HostPlace};

/// How long the server may take to cancel a statement whose result is no longer needed.
pub(crate) const CANCEL_PATIENCE: Duration = Duration::from_secs(2);

/// Cancels the statement that runs on a connection, over a separate connection with the same protection.
#[derive(Clone)]
pub struct Canceller {
    token: CancelToken,
    tls: Option<MakeRustlsConnect>,
    server: Option<Host>,
}

impl std::fmt::Debug for Canceller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Canceller").field("encrypted", &self.tls.is_some()).finish_non_exhaustive()
    }
}

impl Canceller {
    /// For the connection to `server` with this token.
    pub(super) fn new(
        token: CancelToken,
        tls: Option<MakeRustlsConnect>,
        server: Option<Host>,
    ) -> Canceller {
        Canceller { token, tls, server }
    }

    /// Asks the server to cancel the statement, which may already have ended, and waits until the server has handled
    /// the request, like `PQcancel`. Statements sent afterwards are therefore not affected. Takes at most
    /// [`CANCEL_PATIENCE`].
    ///
    /// # Errors
    /// The server cannot be reached, or does not answer in time. It may then cancel a later statement.
    pub async fn cancel(&self) -> ConnectResult<()> {
        let asked = tokio::time::timeout(CANCEL_PATIENCE, self.ask());
        let cause = match asked.await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(cause)) => cause,
            Err(_) => "timeout expired".to_owned(),
        };
        Err(ConnectError::Failed {
            attempts: vec![format!("could not send cancel request: {cause}")],
            needs_password: false,
        })
    }

    async fn ask(&self) -> Result<(), String> {
        let unreachable = |error: io::Error| os_message(&error);
        let Some(Host { place, port, .. }) = &self.server else {
            return Err("the server's address is not known".to_owned());
        };
        match place {
            HostPlace::Socket(dir) => {
                let path = dir.join(format!(".s.PGSQL.{port}"));
                self.send(UnixStream::connect(path).await.map_err(unreachable)?, "").await
            }
            HostPlace::Address { address, host } => {
                let stream = TcpStream::connect((*address, *port)).await.map_err(unreachable)?;
                // The name with which the certificate was verified.
                let name = host.clone().unwrap_or_else(|| address.to_string());
                self.send(stream, &name).await
            }
            HostPlace::Host(host) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await;
                self.send(stream.map_err(unreachable)?, host).await
            }
        }
    }

    async fn send<S>(&self, stream: S, host: &str) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = UntilClosed(stream);
        let sent = match &self.tls {
            Some(tls) => {
                let tls =
                    MakeTlsConnect::<UntilClosed<S>>::make_tls_connect(&mut tls.clone(), host);
                let tls = Encrypted(tls.map_err(|error| error.to_string())?);
                self.token.cancel_query_raw(stream, tls).await
            }
            None => self.token.cancel_query_raw(stream, NoTls).await,
        };
        sent.map_err(|error| io_cause(&error).map_or_else(|| error.to_string(), os_message))
    }
}

/// A stream that waits for the other side to close it: the server does so once it has handled the request. Until then
/// nothing is closed on this side, not even one direction, as in libpq. A pooler that has not yet forwarded the
/// request would regard a client that closes as gone, and PgBouncer 1.18 then terminates with all its clients.
struct UntilClosed<S>(S);

impl<S: AsyncRead + Unpin> AsyncRead for UntilClosed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for UntilClosed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut bytes = [0; 64];
            let mut into = ReadBuf::new(&mut bytes);
            match ready!(Pin::new(&mut self.0).poll_read(context, &mut into)) {
                Ok(()) if !into.filled().is_empty() => {}
                // The other side has closed the connection, or reset it.
                Ok(()) | Err(_) => return Poll::Ready(Ok(())),
            }
        }
    }
}

impl<S: TlsStream + Unpin> TlsStream for UntilClosed<S> {
    fn channel_binding(&self) -> ChannelBinding {
        self.0.channel_binding()
    }
}

/// Encrypts the stream, and does not send a closing alert either.
struct Encrypted<T>(T);

impl<S, T> TlsConnect<S> for Encrypted<T>
where
    T: TlsConnect<S>,
    T::Future: Send + 'static,
{
    type Stream = UntilClosed<T::Stream>;
    type Error = T::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Stream, T::Error>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let connected = self.0.connect(stream);
        Box::pin(async move { connected.await.map(UntilClosed) })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn the_other_side_closes_first() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let request = tokio::spawn(async move {
            let mut stream = UntilClosed(ours);
            stream.write_all(b"stop").await?;
            stream.shutdown().await
        });
        let mut bytes = [0; 4];
        theirs.read_exact(&mut bytes).await.unwrap();
        let end = tokio::time::timeout(Duration::from_millis(100), theirs.read(&mut bytes)).await;
        assert!(end.is_err() && !request.is_finished(), "{end:?}");
        drop(theirs);
        request.await.unwrap().unwrap();
    }
}
