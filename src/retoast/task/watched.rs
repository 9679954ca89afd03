//! Statements that cannot be part of a transaction and may take long (VACUUM and REINDEX): another session watches
//! them, and cancels them if they wait too long or block other sessions.

use std::time::{Duration, Instant};

use super::guard::Guard;
use super::session::{Session, millis};
use crate::retoast::error::{Result, RetoastError};
use crate::retoast::pace::lock_tries::RUN_STOPPED;
use crate::retoast::pace::metrics::ServerWait;
use crate::server::{Connection, LiveError};

/// How often to look at a VACUUM, and at anything else or if a replication slot could be lost.
const LOOK_AT_VACUUM: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often to repeat a cancel that has not ended the statement.
const CANCEL_EVERY: Duration = Duration::from_secs(1);
/// A wait of this length is reported, for a VACUUM and for anything else.
const TELL_OF_VACUUM: Duration = Duration::from_secs(10);
const TELL: Duration = Duration::from_secs(5);
/// The maximum wait of a VACUUM, which can be left out.
const VACUUM_WAITS: Duration = Duration::from_secs(20);
/// How many consecutive looks must find a blocked session before the statement is given up.
const KEPT: u32 = 2;
/// The server's limit for a single wait of a rebuild, in case this program can no longer cancel it.
const BACKSTOP: Duration = Duration::from_secs(30);

/// How long a statement may wait, and what else ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatementKind {
    /// VACUUM. Its lock allows reads and writes, and the wait for that lock is limited by the session's `lock_timeout`.
    Vacuum,
    /// A concurrent rebuild, which may wait this long for a single transaction.
    Rebuild(Duration),
    /// A statement that removes the remains of a rebuild. No wait may be longer than this; neither a stop nor a
    /// replication slot ends it.
    Drop(Duration),
}

impl StatementKind {
    fn is_vacuum(self) -> bool {
        self == StatementKind::Vacuum
    }

    /// Whether it ends when a stop is requested or a replication slot would soon be lost.
    fn may_end(self) -> bool {
        !matches!(self, StatementKind::Drop(_))
    }

    /// The maximum wait for a single lock, set instead of the session's `lock_timeout`.
    fn lock_timeout(self) -> Option<Duration> {
        match self {
            StatementKind::Vacuum => None,
            StatementKind::Rebuild(_) => Some(BACKSTOP),
            StatementKind::Drop(limit) => Some(limit),
        }
    }

    fn limit(self, wait: &ServerWait, session: &Session<'_>) -> Duration {
        match self {
            StatementKind::Vacuum => {
                let most = session.throttle.patience.limit();
                most.map_or(VACUUM_WAITS, |most| most.min(VACUUM_WAITS))
            }
            // Other sessions queue behind a statement that waits for a lock on a relation.
            _ if wait.is_for_relation() => session.options.lock_timeout,
            StatementKind::Rebuild(limit) | StatementKind::Drop(limit) => limit,
        }
    }
}

/// Why a statement was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GaveUp {
    /// A stop was requested.
    Stopped,
    /// A replication slot would have been lost.
    Slot(String),
    /// It waited too long for this.
    Waited(String),
    /// It blocked this process.
    Kept(i32),
}

impl GaveUp {
    pub(crate) fn text(self) -> String {
        match self {
            GaveUp::Stopped => RUN_STOPPED.to_owned(),
            GaveUp::Slot(why) | GaveUp::Waited(why) => why,
            GaveUp::Kept(process) => format!("process {process} had to wait for it"),
        }
    }
}

/// State kept from one look at the other sessions to the next.
#[derive(Debug, Default)]
struct SessionsSeen {
    stuck: Stuck,
    /// Consecutive looks that found a session waiting for the statement.
    keeps: u32,
    /// WAL that the replication slot closest to its limit could still retain at the last look.
    slots: Option<u64>,
}

impl Guard<'_> {
    /// Runs a statement that cannot be part of a transaction. The inner error is the reason for giving it up.
    pub(crate) async fn run_watched(
        &self,
        connection: &Connection,
        sql: &str,
        patience: StatementKind,
    ) -> Result<Result<(), GaveUp>> {
        let Some(time) = patience.lock_timeout() else {
            return self.run_and_watch(connection, sql, patience).await;
        };
        with_lock_timeout(connection, time, async || {
            self.run_and_watch(connection, sql, patience).await
        })
        .await
    }

    async fn run_and_watch(
        &self,
        connection: &Connection,
        sql: &str,
        patience: StatementKind,
    ) -> Result<Result<(), GaveUp>> {
        let session = self.session;
        let client = connection.client();
        let canceller = connection.canceller();
        let pid = connection.process().await?;
        let looks_often = !patience.is_vacuum() || session.throttle.watches_slots();
        let look_every = if looks_often { LOOK_EVERY } else { LOOK_AT_VACUUM };
        let mut seen = SessionsSeen::default();
        let mut gave_up = None;
        let began = Instant::now();
        let mut failed: Option<RetoastError> = None;
        let mut work = std::pin::pin!(client.batch_execute(sql));
        let done = loop {
            let is_cancelled = gave_up.is_some() || failed.is_some();
            let every = if is_cancelled { CANCEL_EVERY } else { look_every };
            tokio::select! {
                done = &mut work => break done,
                () = session.stop.cancelled(), if patience.may_end() && !is_cancelled => {
                    gave_up = Some(GaveUp::Stopped);
                }
                () = tokio::time::sleep(every) => {
                    if !is_cancelled {
                        match self.reason_to_give_up(pid, patience, began.elapsed(), &mut seen).await {
                            Ok(why) => gave_up = why,
                            // Without a watcher, the statement could run and block others without limit.
                            Err(error) => failed = Some(error),
                        }
                    }
                }
            }
            if gave_up.is_some() || failed.is_some() {
                // The statement may have ended in the meantime.
                let _ = canceller.cancel().await;
            }
        };
        match (done, failed, gave_up) {
            (_, Some(error), _) => Err(error),
            (Ok(()), None, _) => Ok(Ok(())),
            (Err(error), None, Some(why)) if is_of_statement(&error) => Ok(Err(why)),
            (Err(error), None, _) => Err(error.into()),
        }
    }

    /// The reason for giving up the statement of process `pid`, if there is one.
    async fn reason_to_give_up(
        &self,
        pid: i32,
        patience: StatementKind,
        now: Duration,
        seen: &mut SessionsSeen,
    ) -> Result<Option<GaveUp>> {
        let throttle = self.session.throttle;
        if patience.may_end()
            && let Some(why) = throttle.slots_against(&mut seen.slots).await?
        {
            return Ok(Some(GaveUp::Slot(why)));
        }
        let wait = throttle.wait_of(pid).await?;
        // A DROP that itself waits for nothing is nearly done, so letting it finish blocks other sessions for the
        // shortest time.
        let may_keep = patience.is_vacuum() || !patience.may_end() && wait.is_none();
        let kept = if may_keep { None } else { throttle.kept_waiting(pid).await? };
        seen.keeps = if kept.is_some() { seen.keeps + 1 } else { 0 };
        if let Some(other) = kept
            && seen.keeps >= KEPT
        {
            return Ok(Some(GaveUp::Kept(other)));
        }
        let limit = wait.as_ref().map_or(Duration::MAX, |wait| patience.limit(wait, self.session));
        let tell = if patience.is_vacuum() { TELL_OF_VACUUM } else { TELL };
        let advice = seen.stuck.note(wait.is_some(), now, tell, limit);
        let Some(wait) = wait.map(|wait| wait.text()) else { return Ok(None) };
        match advice {
            Advice::Wait => {}
            Advice::Tell if patience.is_vacuum() => self.note(&format!("waiting: vacuum: {wait}")),
            Advice::Tell => self.note(&format!("waiting: {wait}")),
            Advice::GiveUp(waited) => {
                if !patience.is_vacuum() {
                    throttle.patience.add_wait(waited);
                }
                return Ok(Some(GaveUp::Waited(wait)));
            }
        }
        Ok(None)
    }
}

/// Whether the error ended only the statement, not the session.
pub(crate) fn is_of_statement(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|error| !error.code().code().starts_with("57P"))
}

/// Runs `work` in a session with another `lock_timeout`, which is restored afterwards.
pub(crate) async fn with_lock_timeout<T>(
    connection: &Connection,
    time: Duration,
    work: impl AsyncFnOnce() -> Result<T>,
) -> Result<T> {
    let client = connection.client();
    let ask = "SELECT pg_catalog.current_setting('lock_timeout')";
    let own: String = client.value(ask, &[]).await?.unwrap_or("0".to_owned());
    client.batch_execute(&format!("SET lock_timeout = {}", millis(time))).await?;
    let done = work().await;
    let set = client.batch_execute(&format!("SET lock_timeout = '{own}'")).await;
    // The first of two errors is the cause.
    let done = done?;
    set.map_err(LiveError::from)?;
    Ok(done)
}

/// What to do about a statement that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Advice {
    /// Keep waiting; there is nothing new to report.
    Wait,
    Tell,
    /// Give up the statement, which has waited this long.
    GiveUp(Duration),
}

/// How long a statement has waited without interruption, as far as was observed (pure).
#[derive(Debug, Default)]
struct Stuck {
    /// When the wait was first seen, as the time since the statement began.
    since: Option<Duration>,
    is_reported: bool,
}

impl Stuck {
    /// Records a look at time `now` since the statement began. A wait of `tell` is reported; a wait of `limit` ends the
    /// statement.
    fn note(&mut self, waits: bool, now: Duration, tell: Duration, limit: Duration) -> Advice {
        if !waits {
            *self = Stuck::default();
            return Advice::Wait;
        }
        let waited = now.saturating_sub(*self.since.get_or_insert(now));
        if waited >= limit {
            Advice::GiveUp(waited)
        } else if waited >= tell && !self.is_reported {
            self.is_reported = true;
            Advice::Tell
        } else {
            Advice::Wait
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_said_once_and_then_given_up() {
        let mut stuck = Stuck::default();
        let seconds = Duration::from_secs;
        let mut look = |waits, at| stuck.note(waits, seconds(at), seconds(10), seconds(20));
        assert_eq!(look(true, 5), Advice::Wait);
        // It made progress in between.
        assert_eq!(look(false, 9), Advice::Wait);
        assert_eq!(look(true, 10), Advice::Wait);
        assert_eq!(look(true, 19), Advice::Wait);
        assert_eq!(look(true, 20), Advice::Tell);
        assert_eq!(look(true, 25), Advice::Wait);
        assert_eq!(look(true, 30), Advice::GiveUp(seconds(20)));
        let mut stuck = Stuck::default();
        let mut look = |at| stuck.note(true, seconds(at), seconds(10), seconds(5));
        assert_eq!(look(1), Advice::Wait);
        assert_eq!(look(6), Advice::GiveUp(seconds(5)));
    }
}
