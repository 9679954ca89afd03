//! The connection that measures. It is made again when it is lost, for the work itself does not depend on
//! it; nothing is ever set in its session but for a transaction.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::control::Control;
use super::error::PaceError;
use super::gauges;
use crate::server::LiveError;
use crate::server::connect::Connection;

/// How long another connection is tried for in place of a lost one, and how often.
const AGAIN_FOR: Duration = Duration::from_secs(10);
const AGAIN_AFTER: Duration = Duration::from_millis(250);

/// The connection that measures.
pub struct Measuring {
    current: Mutex<Arc<Connection>>,
    control: Arc<Control>,
    /// The processes that serve this program.
    ours: Mutex<Vec<i32>>,
}

impl Measuring {
    pub(super) fn new(connection: Arc<Connection>, control: Arc<Control>) -> Measuring {
        Measuring { current: Mutex::new(connection), control, ours: Mutex::default() }
    }

    /// The connection that is there now.
    pub fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The processes that serve this program.
    pub(super) fn own_processes(&self) -> Vec<i32> {
        self.ours.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells it further processes that serve this program, which are not others.
    pub fn know_own(&self, ours: &[i32]) {
        self.ours.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(ours);
    }

    /// Reads something, on another connection if the one there was is lost.
    ///
    /// # Errors
    /// The server's, or that no other connection could be made.
    pub(super) async fn read<T>(
        &self,
        work: impl AsyncFn(&Connection) -> Result<T, LiveError>,
    ) -> Result<T, PaceError> {
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
    ) -> Result<T, PaceError> {
        self.with_connection(async |connection| {
            connection.reading_for_user(async || work(connection).await).await
        })
        .await
    }

    async fn with_connection<T>(
        &self,
        work: impl AsyncFn(&Connection) -> Result<T, LiveError>,
    ) -> Result<T, PaceError> {
        let began = Instant::now();
        loop {
            let connection = self.connection();
            let error = match work(&connection).await {
                Err(error) => error,
                done => return Ok(done?),
            };
            let Some(reason) = error.lost(&connection).await else { return Err(error.into()) };
            if self.control.stopped() || began.elapsed() > AGAIN_FOR {
                return Err(PaceError::Lost(reason));
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
    ) -> Result<(), PaceError> {
        loop {
            let opened = match lost.open_another().await {
                Ok(opened) => gauges::backend(opened.client()).await.ok().map(|own| (opened, own)),
                Err(_) => None,
            };
            if let Some((opened, own)) = opened {
                self.know_own(&[own]);
                let opened = Arc::new(opened);
                *self.current.lock().unwrap_or_else(PoisonError::into_inner) = opened;
                return Ok(());
            }
            if self.control.stopped() || began.elapsed() > AGAIN_FOR {
                return Err(PaceError::Lost(reason.to_owned()));
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }
}
