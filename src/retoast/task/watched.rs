//! Statements that cannot be part of a transaction and may take long, VACUUM and REINDEX: watched from another session, and
//! cancelled where they wait too long or keep others waiting.

use std::time::{Duration, Instant};

use super::guard::Guard;
use super::session::{Session, millis};
use crate::retoast::error::RetoastError;
use crate::retoast::listener::Wait;
use crate::retoast::pace::metrics::ServerWait;
use crate::server::LiveError;
use crate::server::connect::Connection;

/// How often a VACUUM is looked at, and anything else, or where replication slots may be lost.
const LOOK_AT_VACUUM: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often a cancel is repeated that has not ended it.
const CANCEL_EVERY: Duration = Duration::from_secs(1);
/// A wait so long is said: of a VACUUM, and of anything else.
const TELL_OF_VACUUM: Duration = Duration::from_secs(10);
const TELL: Duration = Duration::from_secs(5);
/// A VACUUM waits no longer, for it can be left out.
const VACUUM_WAITS: Duration = Duration::from_secs(20);
/// Looks in a row that find somebody waiting for it.
const KEPT: u32 = 2;
/// The server ends a single wait of a rebuild after so long if this program cannot any more.
const BACKSTOP: Duration = Duration::from_secs(30);

/// How long a statement may wait, and what else ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// VACUUM: its lock lets others read and write, and waits no longer than the session's `lock_timeout`.
    Vacuum,
    /// A concurrent rebuild, which may wait for one transaction for so long.
    Rebuild(Duration),
    /// What removes the rest of a rebuild. No wait may last longer; neither a stop nor a replication slot ends it.
    Drop(Duration),
}

impl Patience {
    fn is_vacuum(self) -> bool {
        self == Patience::Vacuum
    }

    /// Whether it ends when a stop is asked for, or when a replication slot would soon be lost.
    fn may_end(self) -> bool {
        !matches!(self, Patience::Drop(_))
    }

    /// The longest wait for a single lock that the server allows, in place of the session's.
    fn lock_timeout(self) -> Option<Duration> {
        match self {
            Patience::Vacuum => None,
            Patience::Rebuild(_) => Some(BACKSTOP),
            Patience::Drop(limit) => Some(limit),
        }
    }

    fn limit(self, wait: &ServerWait, session: &Session<'_>) -> Duration {
        match self {
            Patience::Vacuum => {
                let most = session.throttle.limits().wait;
                most.map_or(VACUUM_WAITS, |most| most.min(VACUUM_WAITS))
            }
            // others queue behind it
            _ if wait.is_for_relation() => session.options.lock_timeout,
            Patience::Rebuild(limit) | Patience::Drop(limit) => limit,
        }
    }
}

/// Why a statement was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GaveUp {
    /// A stop was asked for.
    Stopped,
    /// A replication slot would have been lost.
    Slot(String),
    /// It waited for this too long.
    Waited(String),
    /// This process waited for it.
    Kept(i32),
}

impl GaveUp {
    pub(crate) fn text(self) -> String {
        match self {
            GaveUp::Stopped => "stopped on request".to_owned(),
            GaveUp::Slot(why) | GaveUp::Waited(why) => why,
            GaveUp::Kept(process) => format!("process {process} had to wait for it"),
        }
    }
}

/// The state that one look at the other sessions leaves for the next.
#[derive(Debug, Default)]
struct Seen {
    stuck: Stuck,
    /// Looks in a row that found somebody waiting for it.
    keeps: u32,
    /// WAL that the most pressed replication slot may still keep, by the last look.
    slots: Option<u64>,
}

impl Guard<'_> {
    /// Runs a statement that cannot be part of a transaction; why it was given up, if it was.
    pub(crate) async fn run_watched(
        &self,
        connection: &Connection,
        sql: &str,
        patience: Patience,
    ) -> Result<Result<(), GaveUp>, RetoastError> {
        let run = async || self.run_and_watch(connection, sql, patience).await;
        match patience.lock_timeout() {
            Some(time) => with_lock_timeout(connection, time, run).await,
            None => run().await,
        }
    }

    async fn run_and_watch(
        &self,
        connection: &Connection,
        sql: &str,
        patience: Patience,
    ) -> Result<Result<(), GaveUp>, RetoastError> {
        let session = self.session;
        let (client, canceller) = (connection.client(), connection.canceller());
        let pid = connection.process().await?;
        let looks_often = !patience.is_vacuum() || session.throttle.watches_slots();
        let look_every = if looks_often { LOOK_EVERY } else { LOOK_AT_VACUUM };
        let (mut seen, mut gave_up, began) = (Seen::default(), None, Instant::now());
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
                        match self.look_at(pid, patience, began.elapsed(), &mut seen).await {
                            Ok(why) => gave_up = why,
                            // unwatched it would go on for as long as it likes
                            Err(error) => failed = Some(error),
                        }
                    }
                }
            }
            if gave_up.is_some() || failed.is_some() {
                // it may have ended by itself
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

    /// Why the statement of process `pid` is to be given up, if it is.
    async fn look_at(
        &self,
        pid: i32,
        patience: Patience,
        now: Duration,
        seen: &mut Seen,
    ) -> Result<Option<GaveUp>, RetoastError> {
        let throttle = self.session.throttle;
        if patience.may_end()
            && let Some(why) = throttle.slots_against(&mut seen.slots).await?
        {
            return Ok(Some(GaveUp::Slot(why)));
        }
        let wait = throttle.wait_of(pid).await?;
        // what is nearly done and waits for nobody keeps others waiting for less if it goes on
        let may_keep = patience.is_vacuum() || !patience.may_end() && wait.is_none();
        let kept = if may_keep { None } else { throttle.kept_waiting(pid).await? };
        seen.keeps = if kept.is_some() { seen.keeps + 1 } else { 0 };
        if let Some(other) = kept.filter(|_| seen.keeps >= KEPT) {
            return Ok(Some(GaveUp::Kept(other)));
        }
        let limit = wait.as_ref().map_or(Duration::MAX, |wait| patience.limit(wait, self.session));
        let tell = if patience.is_vacuum() { TELL_OF_VACUUM } else { TELL };
        let advice = seen.stuck.seen(wait.is_some(), now, tell, limit);
        let Some(wait) = wait.map(|wait| wait.text()) else { return Ok(None) };
        match advice {
            Advice::Wait => {}
            Advice::Tell if patience.is_vacuum() => self.note(&Wait::Vacuum(wait).note()),
            Advice::Tell => self.note(&Wait::Statement(wait).note()),
            Advice::GiveUp(waited) => {
                if !patience.is_vacuum() {
                    throttle.has_waited(waited);
                }
                return Ok(Some(GaveUp::Waited(wait)));
            }
        }
        Ok(None)
    }
}

/// Whether the server has ended a statement, and not the session.
pub(crate) fn is_of_statement(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|error| !error.code().code().starts_with("57P"))
}

/// Does something with another `lock_timeout` in a session, which then has its own again.
pub(crate) async fn with_lock_timeout<T>(
    connection: &Connection,
    time: Duration,
    work: impl AsyncFnOnce() -> Result<T, RetoastError>,
) -> Result<T, RetoastError> {
    let client = connection.client();
    let ask = "SELECT pg_catalog.current_setting('lock_timeout')";
    let own: String = client.value(ask, &[]).await?.unwrap_or("0".to_owned());
    client.batch_execute(&format!("SET lock_timeout = {}", millis(time))).await?;
    let done = work().await;
    let set = client.batch_execute(&format!("SET lock_timeout = '{own}'")).await;
    // of two errors the first says what happened
    let done = done?;
    set.map_err(LiveError::from)?;
    Ok(done)
}

/// Whether the statement that waits, or keeps others waiting, goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Advice {
    /// Nothing yet, or it was said.
    Wait,
    /// Say it.
    Tell,
    /// Leave out what waits: it has for so long.
    GiveUp(Duration),
}

/// How long a statement has waited without a pause, as far as was seen (pure).
#[derive(Debug, Default)]
struct Stuck {
    /// When the wait was first seen, by the time since the statement began.
    since: Option<Duration>,
    is_reported: bool,
}

impl Stuck {
    /// After a look `now` since the statement began. A wait as long as `tell` is said, and none is longer than `limit`.
    fn seen(&mut self, waits: bool, now: Duration, tell: Duration, limit: Duration) -> Advice {
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
        let mut look = |waits, at| stuck.seen(waits, seconds(at), seconds(10), seconds(20));
        assert_eq!(look(true, 5), Advice::Wait);
        // it went on meanwhile
        assert_eq!(look(false, 9), Advice::Wait);
        assert_eq!(look(true, 10), Advice::Wait);
        assert_eq!(look(true, 19), Advice::Wait);
        assert_eq!(look(true, 20), Advice::Tell);
        assert_eq!(look(true, 25), Advice::Wait);
        assert_eq!(look(true, 30), Advice::GiveUp(seconds(20)));
        let mut stuck = Stuck::default();
        let mut look = |at| stuck.seen(true, seconds(at), seconds(10), seconds(5));
        assert_eq!(look(1), Advice::Wait);
        assert_eq!(look(6), Advice::GiveUp(seconds(5)));
    }
}
