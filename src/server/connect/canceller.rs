//! What stops a statement.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::{CancelToken, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::{ConnectError, os_message};
use super::life::io_cause;
use super::resolved::{Host, HostPlace};

/// How long the server may take to stop a statement when nobody waits for its result any more.
pub(crate) const CANCEL_PATIENCE: Duration = Duration::from_secs(2);

/// Stops the statement that runs on a connection, over a connection of its own and as well protected.
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
    /// For the connection of this token to `server`.
    pub(super) fn new(
        token: CancelToken,
        tls: Option<MakeRustlsConnect>,
        server: Option<Host>,
    ) -> Canceller {
        Canceller { token, tls, server }
    }

    /// Asks the server to stop the statement, which may have ended already, and waits until it has seen to that
    /// (as `PQcancel` does): what is asked on the connection afterwards is not stopped. Takes no longer than
    /// [`CANCEL_PATIENCE`].
    ///
    /// # Errors
    /// When the server cannot be reached, or does not answer in time: then it may stop what comes next.
    pub async fn cancel(&self) -> Result<(), ConnectError> {
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
                // the name that the certificate was held against
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

/// A stream whose end is that of the other side: the server closes it when it has done what it was asked. Until
/// then nothing is closed here, not even one direction, as with libpq: a pooler that has not yet passed the request
/// on takes a client that closes for one that is gone, and PgBouncer 1.18 ends with all its clients by that.
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
                // closed, or reset
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

/// Encrypts, and does not say either that this side has ended.
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
