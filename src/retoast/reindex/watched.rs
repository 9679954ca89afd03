//! Statements that wait for transactions of others again and again, and hold a lock meanwhile: cancelled where they
//! wait too long, or keep others waiting.

use std::time::{Duration, Instant};

use crate::retoast::sweep::error::RunError;
use crate::retoast::sweep::table::{Sweep, millis};
use crate::server::connect::Connection;

/// How often it is looked, and how often a cancel is repeated that has not ended it.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const CANCEL_EVERY: Duration = Duration::from_secs(1);
/// A wait so long is said.
const TELL: Duration = Duration::from_secs(5);
/// Looks in a row that find somebody waiting for us.
const KEPT: u32 = 2;
/// The server ends a single wait after so long if this program cannot any more.
const BACKSTOP: Duration = Duration::from_secs(30);

/// How a statement ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ran {
    /// It was done.
    Done,
    /// It was given up, for this reason; it may go better later.
    GaveUp(String),
    /// The server refused it.
    Refused(String),
}

/// How a statement is watched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watching {
    /// How long it may wait for one transaction.
    pub(super) patience: Duration,
    /// The longest wait for a single lock that the server allows, where this program may be gone.
    pub(super) backstop: Duration,
    /// Whether it ends when a stop is asked for, or when a replication slot would soon be lost.
    pub(super) may_end: bool,
}

impl Watching {
    /// A rebuild, which may wait for one transaction for so long.
    pub(super) fn rebuild(patience: Duration) -> Watching {
        Watching { patience, backstop: BACKSTOP, may_end: true }
    }

    /// What removes the rest of a rebuild, of which no wait may last for longer.
    pub(super) fn drop(patience: Duration) -> Watching {
        Watching { patience, backstop: patience, may_end: false }
    }
}

/// What the looks have seen.
#[derive(Debug, Default)]
struct Seen {
    /// Since when it waits, and whether that was said.
    waits: Option<(Instant, bool)>,
    /// Looks in a row that found somebody waiting for it.
    keeps: u32,
    /// What replication slots bore.
    slots: Option<u64>,
}

impl Sweep<'_> {
    /// Runs a statement that cannot be part of a transaction.
    pub(super) async fn watched(
        &self,
        connection: &Connection,
        sql: &str,
        watching: Watching,
    ) -> Result<Ran, RunError> {
        let client = connection.client();
        let pid = connection.process().await?;
        let set = |time| format!("SET lock_timeout = {}", millis(time));
        client.batch_execute(&set(watching.backstop)).await?;
        let canceller = connection.canceller();
        let (mut seen, mut why): (Seen, Option<String>) = (Seen::default(), None);
        let mut work = std::pin::pin!(client.batch_execute(sql));
        let done = loop {
            let every = if why.is_some() { CANCEL_EVERY } else { LOOK_EVERY };
            tokio::select! {
                done = &mut work => break done,
                () = self.stop.cancelled(), if watching.may_end && why.is_none() => {
                    why = Some("stopped on request".to_owned());
                }
                () = tokio::time::sleep(every) => {
                    if why.is_none() {
                        // unwatched it would go on for as long as it likes
                        why = match self.to_be_given_up(pid, watching, &mut seen).await {
                            Ok(why) => why,
                            Err(error) => Some(format!("it could not be watched: {error}")),
                        };
                    }
                }
            }
            if why.is_some() {
                // it may have ended by itself
                let _ = canceller.cancel().await;
            }
        };
        let Err(error) = done else {
            client.batch_execute(&set(self.options.lock_timeout)).await?;
            return Ok(Ran::Done);
        };
        let code = error.code().map_or("", |code| code.code());
        let message = error.as_db_error().map(|db| db.message().to_owned());
        let Some(message) = message.filter(|_| !code.starts_with("57P")) else {
            return Err(error.into());
        };
        client.batch_execute(&set(self.options.lock_timeout)).await?;
        Ok(match (why, code) {
            (Some(why), _) => Ran::GaveUp(why),
            (None, "55P03") => Ran::GaveUp("a lock could not be had in time".to_owned()),
            (None, "57014" | "40P01") => Ran::GaveUp(message),
            (None, _) => Ran::Refused(message),
        })
    }

    /// Why the statement of process `pid` is to be given up, if it is.
    async fn to_be_given_up(
        &self,
        pid: i32,
        watching: Watching,
        seen: &mut Seen,
    ) -> Result<Option<String>, RunError> {
        let wait = self.keeper.wait_of(pid).await?;
        // what is nearly done and waits for nobody keeps others waiting for less if it goes on
        let kept = match watching.may_end || wait.is_some() {
            true => self.keeper.kept_waiting(pid).await?,
            false => None,
        };
        seen.keeps = match kept {
            Some(other) if seen.keeps + 1 >= KEPT => {
                return Ok(Some(format!("process {other} was kept waiting by it")));
            }
            Some(_) => seen.keeps + 1,
            None => 0,
        };
        if watching.may_end
            && let Some(why) = self.keeper.slots_against(&mut seen.slots).await?
        {
            return Ok(Some(why));
        }
        let Some(wait) = wait else {
            seen.waits = None;
            return Ok(None);
        };
        let (since, told) = seen.waits.get_or_insert((Instant::now(), false));
        let limit =
            if wait.is_for_relation() { self.options.lock_timeout } else { watching.patience };
        if since.elapsed() >= limit {
            self.keeper.has_waited(since.elapsed());
            return Ok(Some(wait.text()));
        }
        if since.elapsed() >= TELL && !*told {
            *told = true;
            self.watch.note(&format!("{}: waiting: {}", self.name(), wait.text()));
        }
        Ok(None)
    }
}
