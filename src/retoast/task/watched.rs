//! Statements that cannot be part of a transaction and may take long, VACUUM and REINDEX: watched from another session, and
//! cancelled where they wait too long or keep others waiting.

use std::time::{Duration, Instant};

use super::error::TaskError;
use super::guard::Guard;
use super::session::{Session, millis};
use crate::retoast::listener::Wait;
use crate::retoast::pace::stuck::{Advice, Stuck, Wait as Waits};
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

    fn limit(self, wait: &Waits, session: &Session<'_>) -> Duration {
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
            GaveUp::Kept(process) => format!("process {process} was kept waiting by it"),
        }
    }
}

/// What the looks have seen.
#[derive(Debug, Default)]
struct Seen {
    stuck: Stuck,
    /// Looks in a row that found somebody waiting for it.
    keeps: u32,
    /// What replication slots bore.
    slots: Option<u64>,
}

impl Guard<'_> {
    /// Runs a statement that cannot be part of a transaction; why it was given up, if it was.
    pub(crate) async fn run_watched(
        &self,
        connection: &Connection,
        sql: &str,
        patience: Patience,
    ) -> Result<Result<(), GaveUp>, TaskError> {
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
    ) -> Result<Result<(), GaveUp>, TaskError> {
        let session = self.session;
        let (client, canceller) = (connection.client(), connection.canceller());
        let pid = connection.process().await?;
        let looks_often = !patience.is_vacuum() || session.throttle.watches_slots();
        let look_every = if looks_often { LOOK_EVERY } else { LOOK_AT_VACUUM };
        let (mut seen, mut gave_up, began) = (Seen::default(), None, Instant::now());
        let mut failed: Option<TaskError> = None;
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
    ) -> Result<Option<GaveUp>, TaskError> {
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
    work: impl AsyncFnOnce() -> Result<T, TaskError>,
) -> Result<T, TaskError> {
    let client = connection.client();
    let ask = "SELECT pg_catalog.current_setting('lock_timeout')";
    let rows = client.query_typed(ask, &[]).await?;
    let own: String = rows.first().map_or(Ok("0".to_owned()), |row| row.try_get(0))?;
    client.batch_execute(&format!("SET lock_timeout = {}", millis(time))).await?;
    let done = work().await;
    let set = client.batch_execute(&format!("SET lock_timeout = '{own}'")).await;
    // of two errors the first says what happened
    let done = done?;
    set.map_err(LiveError::from)?;
    Ok(done)
}
