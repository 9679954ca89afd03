//! The connection that measures. If it is lost, another one is opened, because the work does not depend on it. Its
//! session has no settings that outlive a transaction.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::retoast::error::{Result, RetoastError};
use crate::retoast::listener::Control;
use crate::server::{Connection, LiveResult};

/// How long to try to replace a lost connection, and the pause between attempts.
const AGAIN_FOR: Duration = Duration::from_secs(10);
const AGAIN_AFTER: Duration = Duration::from_millis(250);

/// The server processes that serve this program, which do not count as other sessions.
#[derive(Debug, Default)]
pub struct OwnProcesses(Mutex<Vec<i32>>);

impl OwnProcesses {
    /// Adds the process that serves this connection.
    pub(crate) async fn add(&self, connection: &Connection) -> LiveResult<()> {
        let process = connection.process().await?;
        self.0.lock().push(process);
        Ok(())
    }
}

/// The connection that measures.
pub struct Measuring {
    current: Mutex<Arc<Connection>>,
    control: Arc<Control>,
    ours: Arc<OwnProcesses>,
}

impl Measuring {
    pub(super) fn new(
        connection: Arc<Connection>,
        control: Arc<Control>,
        ours: Arc<OwnProcesses>,
    ) -> Measuring {
        Measuring { current: Mutex::new(connection), control, ours }
    }

    /// The connection in use; it is replaced when it is lost.
    pub fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.current.lock())
    }

    /// The processes that serve this program.
    pub(super) fn own_processes(&self) -> Vec<i32> {
        self.ours.0.lock().clone()
    }

    /// Reads something in a transaction, like [`with_connection`](Self::with_connection).
    ///
    /// # Errors
    /// Those of [`with_connection`](Self::with_connection).
    pub(super) async fn read<T>(
        &self,
        work: impl AsyncFn(&Connection) -> LiveResult<T>,
    ) -> Result<T> {
        self.with_connection(async |connection| {
            connection.reading(async || work(connection).await).await
        })
        .await
    }

    /// Does something on the connection, and repeats it on a new one if the current one is lost.
    ///
    /// # Errors
    /// Errors of the server, or no new connection could be opened.
    pub(super) async fn with_connection<T>(
        &self,
        work: impl AsyncFn(&Connection) -> LiveResult<T>,
    ) -> Result<T> {
        let began = Instant::now();
        loop {
            let connection = self.connection();
            let error = match work(&connection).await {
                Err(error) => error,
                done => return Ok(done?),
            };
            let Some(reason) = error.lost(&connection).await else { return Err(error.into()) };
            if self.control.stopped() || began.elapsed() > AGAIN_FOR {
                return Err(RetoastError::lost(reason));
            }
            self.connect_again(&connection, &reason, began).await?;
        }
    }

    /// Replaces a lost connection.
    async fn connect_again(&self, lost: &Connection, reason: &str, began: Instant) -> Result<()> {
        loop {
            if let Ok(opened) = lost.open_another().await
                && self.ours.add(&opened).await.is_ok()
            {
                let opened = Arc::new(opened);
                *self.current.lock() = opened;
                return Ok(());
            }
            if self.control.stopped() || began.elapsed() > AGAIN_FOR {
                return Err(RetoastError::lost(reason));
            }
            self.control.sleep(AGAIN_AFTER).await;
        }
    }
}
