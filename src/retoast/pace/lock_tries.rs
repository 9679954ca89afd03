//! Locks are asked for in short tries only: who waits for one makes others wait.

use std::time::{Duration, Instant};

use rand::RngExt;
use tokio_util::sync::CancellationToken;

use crate::retoast::listener::Listener;
use crate::retoast::listener::Wait;
use crate::server::LiveError;
use crate::server::connect::Client;
use crate::server::sqlstate::ErrorKind;

/// How often a lock for the settings or for a scan is tried.
pub const LOCK_TRIES: u32 = 30;

/// How something that needs a lock went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tried<T> {
    /// It was done.
    Done(T),
    /// A stop was asked for first.
    Stopped,
    /// It was waited for this long, and may not be for longer.
    TooLong(Duration),
    /// There was no lock in [`LOCK_TRIES`] tries.
    NoLock,
}

/// Who tries.
#[derive(Clone, Copy)]
pub struct LockTries<'a> {
    /// What needs the lock, as notes name it.
    pub name: &'a str,
    /// Whom to tell.
    pub listener: &'a dyn Listener,
    /// Cancelled from outside to stop.
    pub stop: &'a CancellationToken,
    /// The longest wait for a lock.
    pub lock_timeout: Duration,
    /// How long others may be waited for in all, if that is limited.
    pub may_wait: Option<Duration>,
}

impl LockTries<'_> {
    /// Whether a stop is asked for.
    pub fn stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Waits, or until a stop is asked for.
    pub async fn sleep(&self, time: Duration) {
        self.stop.run_until_cancelled(tokio::time::sleep(time)).await;
    }

    /// Tries something until it is done or fails for another reason than a lock.
    pub async fn tried<T>(
        &self,
        what: &str,
        mut attempt: impl AsyncFnMut() -> Result<T, LiveError>,
    ) -> Result<Tried<T>, LiveError> {
        let began = Instant::now();
        for number in 1..=LOCK_TRIES {
            match attempt().await {
                Err(LiveError::Server(error)) if ErrorKind::of(&error) == ErrorKind::Busy => {}
                other => return other.map(Tried::Done),
            }
            if self.stopped() {
                return Ok(Tried::Stopped);
            }
            let left = self.may_wait.map(|most| most.saturating_sub(began.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(Tried::TooLong(began.elapsed()));
            }
            let why = Wait::NoLock(what.to_owned());
            self.listener.note(&format!("{}: {}", self.name, why.note()));
            self.sleep(backoff(number).min(left.unwrap_or(Duration::MAX))).await;
        }
        Ok(Tried::NoLock)
    }

    /// Sets storage, compression and target by the statement `alter`. Tells the longest try too.
    pub async fn alter(
        &self,
        client: &Client,
        alter: &str,
    ) -> Result<(Tried<()>, Duration), LiveError> {
        self.in_transaction(client, "changing the settings", alter).await
    }

    /// Runs statements in a transaction. Tells the longest try too.
    pub async fn in_transaction(
        &self,
        client: &Client,
        what: &str,
        statements: &str,
    ) -> Result<(Tried<()>, Duration), LiveError> {
        let timeout = self.lock_timeout.as_millis();
        // a standby that does not answer must not keep the table's lock
        let sql = format!(
            "BEGIN; SET LOCAL lock_timeout = {timeout}; SET LOCAL synchronous_commit = local; {statements}; COMMIT"
        );
        let mut longest = Duration::ZERO;
        let set = async || {
            let began = Instant::now();
            let done = client.batch_execute(&sql).await;
            longest = longest.max(began.elapsed());
            match done {
                Ok(()) => Ok(()),
                Err(error) => {
                    // of two errors the first says what happened
                    let ended = client.batch_execute("ROLLBACK").await;
                    if ErrorKind::of(&error) == ErrorKind::Busy {
                        ended?;
                    }
                    Err(error.into())
                }
            }
        };
        let tried = self.tried(what, set).await?;
        Ok((tried, longest))
    }
}

fn backoff(attempt: u32) -> Duration {
    let ms = 100.0 * f64::from(1u32 << attempt.min(5)) * (0.5 + rand::rng().random::<f64>());
    Duration::from_millis(ms as u64)
}
