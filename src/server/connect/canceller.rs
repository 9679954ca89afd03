//! What stops a statement.

use tokio_postgres::{CancelToken, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::{ConnectError, os_message};
use super::life::io_cause;
use super::tls::Noted;

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
    pub(super) fn new(token: CancelToken, tls: Option<MakeRustlsConnect>) -> Canceller {
        Canceller { token, tls }
    }

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
