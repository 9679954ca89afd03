//! Repeated attempts to obtain locks, each with a short timeout, because other sessions queue behind one that waits.

use std::time::{Duration, Instant};

use rand::RngExt;
use tokio_util::sync::CancellationToken;

use crate::retoast::listener::Listener;
use crate::retoast::pace::throttle::{TELL_EVERY, Throttle};
use crate::server::holders::LocksCounted;
use crate::server::{Client, LiveError, LiveResult};
use toast_format::disk::Oid;

/// How many times work that needs a lock is attempted.
pub const LOCK_TRIES: u32 = 30;

/// Why something was not done if the run was stopped first.
pub(crate) const RUN_STOPPED: &str = "the run was stopped";

/// The outcome of work that needs a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tried<T> {
    /// The work was done.
    Done(T),
    /// A stop was requested first.
    Stopped,
    /// It has waited this long for the lock, and may not wait any longer.
    TooLong(Duration),
    /// No lock was obtained in [`LOCK_TRIES`] attempts.
    NoLock,
}

/// Repeats attempts until a lock is obtained.
#[derive(Clone, Copy)]
pub struct LockTries<'a> {
    /// What needs the lock, as named in notes.
    pub name: &'a str,
    /// Receives a note for each failed attempt.
    pub listener: &'a dyn Listener,
    /// Cancelled to request a stop.
    pub stop: &'a CancellationToken,
    /// `lock_timeout` of an attempt.
    pub lock_timeout: Duration,
    /// The longest total wait for other sessions; `None` without a limit.
    pub may_wait: Option<Duration>,
    /// Finds out who has the lock, if that is possible.
    pub throttle: Option<&'a Throttle<'a>>,
    /// The table that is locked.
    pub table: Oid,
}

impl LockTries<'_> {
    /// Repeats the reading `attempt` until it succeeds or fails for a reason other than a lock.
    pub async fn tried<T>(
        &self,
        what: &str,
        attempt: impl AsyncFnMut() -> LiveResult<T>,
    ) -> LiveResult<Tried<T>> {
        self.repeated(what, LocksCounted::BlockReaders, attempt).await
    }

    /// Repeats `attempt`, but not while a session is known to have a lock that it would not get past: each attempt that
    /// times out is an error in the server's log.
    async fn repeated<T>(
        &self,
        what: &str,
        in_the_way: LocksCounted,
        mut attempt: impl AsyncFnMut() -> LiveResult<T>,
    ) -> LiveResult<Tried<T>> {
        let began = Instant::now();
        let mut last_note: Option<Instant> = None;
        for number in 1..=LOCK_TRIES {
            let holder = match self.throttle {
                Some(throttle) if number > 1 => {
                    throttle.lock_of_others(self.table, in_the_way).await
                }
                _ => None,
            };
            if !holder.is_some_and(|holder| holder.is_granted()) {
                match attempt().await {
                    Err(error) if error.is_busy() => {}
                    other => return other.map(Tried::Done),
                }
            }
            if self.stop.is_cancelled() {
                return Ok(Tried::Stopped);
            }
            let left = self.may_wait.map(|most| most.saturating_sub(began.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(Tried::TooLong(began.elapsed()));
            }
            if last_note.is_none_or(|last_note| last_note.elapsed() >= TELL_EVERY) {
                let holder = match self.throttle {
                    Some(throttle) => throttle.lock_holder(self.table).await,
                    None => None,
                };
                let why = with_holder(&format!("waiting: no lock for {what}"), holder);
                self.listener.note(Some(self.name), &why);
                last_note = Some(Instant::now());
            }
            let pause = backoff(number).min(left.unwrap_or(Duration::MAX));
            self.stop.run_until_cancelled(tokio::time::sleep(pause)).await;
        }
        Ok(Tried::NoLock)
    }

    /// Changes storage, compression and target with the statement `alter`. Also returns the duration of the longest
    /// attempt.
    pub async fn alter(&self, client: &Client, alter: &str) -> LiveResult<(Tried<()>, Duration)> {
        self.in_transaction(client, "changing the settings", alter).await
    }

    /// Runs statements in a transaction. Also returns the duration of the longest attempt.
    pub async fn in_transaction(
        &self,
        client: &Client,
        what: &str,
        statements: &str,
    ) -> LiveResult<(Tried<()>, Duration)> {
        let timeout = self.lock_timeout.as_millis();
        // a standby that does not respond must not make the table's lock last longer
        let sql = format!(
            "BEGIN; SET LOCAL lock_timeout = {timeout}; SET LOCAL synchronous_commit = local; {statements}; COMMIT"
        );
        let mut longest = Duration::ZERO;
        let tried = self
            .repeated(what, LocksCounted::BlockWriters, async || {
                let began = Instant::now();
                let done = client.batch_execute(&sql).await;
                longest = longest.max(began.elapsed());
                let Err(error) = done else { return Ok(()) };
                // if both fail, the first error is the one that explains what happened
                let ended = client.batch_execute("ROLLBACK").await;
                let error = LiveError::from(error);
                if error.is_busy() {
                    ended?;
                }
                Err(error)
            })
            .await?;
        Ok((tried, longest))
    }
}

/// A reason to wait, with whoever holds the lock if that is known.
pub(crate) fn with_holder(why: &str, holder: Option<String>) -> String {
    holder.map_or_else(|| why.to_owned(), |who| format!("{why}: {who}"))
}

fn backoff(attempt: u32) -> Duration {
    let ms = 100.0 * f64::from(1u32 << attempt.min(5)) * (0.5 + rand::rng().random::<f64>());
    Duration::from_millis(ms as u64)
}
