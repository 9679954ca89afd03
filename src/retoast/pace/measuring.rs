//! The connection that measures. It is made again when it is lost, for the work itself does not depend on
//! it; nothing is ever set in its session but for a transaction.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::retoast::error::RetoastError;
use crate::retoast::listener::Control;
use crate::server::LiveError;
use crate::server::connect::Connection;

/// How long another connection is tried for in place of a lost one, and how often.
const AGAIN_FOR: Duration = Duration::from_secs(10);
const AGAIN_AFTER: Duration = Duration::from_millis(250);

/// The server processes that serve this program, which are not others.
#[derive(Debug, Default)]
pub struct OwnProcesses(Mutex<Vec<i32>>);

impl OwnProcesses {
    /// Adds the process that serves this connection.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn add(&self, connection: &Connection) -> Result<(), LiveError> {
        let process = connection.process().await?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(process);
        Ok(())
    }

    fn all(&self) -> Vec<i32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
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

    /// The connection that is there now.
    pub fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The processes that serve this program.
    pub(super) fn own_processes(&self) -> Vec<i32> {
        self.ours.all()
    }

    /// Reads something, on another connection if the one there was is lost.
    ///
    /// # Errors
    /// The server's, or that no other connection could be made.
    pub(super) async fn read<T>(
        &self,
        work: impl AsyncFn(&Connection) -> Result<T, LiveError>,
    ) -> Result<T, RetoastError> {
        self.with_connection(async |connection| {
            connection.reading(async || work(connection).await).await
        })
        .await
    }

    /// As [`read`](Self::read), by a query of the user's.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(super) async fn read_for_user<T>(
        &self,
        work: impl AsyncFn(&Connection) -> Result<T, LiveError>,
    ) -> Result<T, RetoastError> {
        self.with_connection(async |connection| {
            connection.reading_for_user(async || work(connection).await).await
        })
        .await
    }

    async fn with_connection<T>(
        &self,
        work: impl AsyncFn(&Connection) -> Result<T, LiveError>,
    ) -> Result<T, RetoastError> {
        let began = Instant::now();
        loop {
            let connection = self.connection();
            let error = match work(&connection).await {
                Err(error) => error,
                done => return Ok(done?),
            };
            let Some(reason) = error.lost(&connection).await else { return Err(error.into()) };
            if self.control.stopped() || began.elapsed() > AGAIN_FOR {
                return Err(RetoastError::Lost(reason));
            }
            self.connect_again(&connection, &reason, began).await?;
        }
    }

    /// Makes another connection in place of a lost one.
    async fn connect_again(
        &self,
        lost: &Connection,
        reason: &str,
        began: Instant,
    ) -> Result<(), RetoastError> {
        loop {
            if let Ok(opened) = lost.open_another().await
                && self.ours.add(&opened).await.is_ok()
            {
                let opened = Arc::new(opened);
                *self.current.lock().unwrap_or_else(PoisonError::into_inner) = opened;
                return Ok(());
            }
            if self.control.stopped() || began.elapsed() > AGAIN_FOR {
                return Err(RetoastError::Lost(reason.to_owned()));
            }
            let pause = tokio::time::sleep(AGAIN_AFTER);
            self.control.stopping().run_until_cancelled(pause).await;
        }
    }
}
