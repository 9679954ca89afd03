//! The lock that says that a table is being re-toasted, and locks that are asked for in short tries.

use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use super::error::RunError;
use super::table::Sweep;
use crate::retoast::pace::lock_tries::{LockTries, Tried};
use crate::server::LiveError;

/// First key of the advisory lock that says that a table is being retoasted; the second is its OID.
pub const LOCK_CLASS: i32 = 0x746f_6173;

/// How long another retoast of the table is waited for: a killed one's session ends by itself.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// How often its lock is tried.
const LOCK_AGAIN: Duration = Duration::from_millis(250);

impl Sweep<'_> {
    pub(super) fn lock_key(&self) -> i32 {
        self.ready.relation.oid.0 as i32
    }

    /// Takes the lock that says that this table is being retoasted. The session of a client that was
    /// killed may hold it for a moment longer.
    pub(super) async fn lock(&self) -> Result<(), RunError> {
        let asked = Instant::now();
        let patience = self.keeper.may_wait().map_or(LOCK_PATIENCE, |most| most.min(LOCK_PATIENCE));
        loop {
            let rows = self
                .writer
                .client()
                .query_typed(
                    "SELECT pg_catalog.pg_try_advisory_lock($1, $2)",
                    &[(&LOCK_CLASS, Type::INT4), (&self.lock_key(), Type::INT4)],
                )
                .await?;
            match rows.first() {
                Some(row) if row.try_get(0)? => return Ok(()),
                _ if self.stopped() || asked.elapsed() > patience => {
                    return Err(RunError::Running);
                }
                _ if asked.elapsed() < LOCK_AGAIN => self.watch.note(&format!(
                    "{}: waiting: another retoast of this table is running, or its session has not \
                     yet ended",
                    self.name()
                )),
                _ => {}
            }
            self.sleep(LOCK_AGAIN).await;
        }
    }

    pub(in crate::retoast) fn tries<'a>(&'a self, name: &'a str) -> LockTries<'a> {
        let lock_timeout = self.options.lock_timeout;
        let may_wait = self.keeper.may_wait();
        LockTries { name, watch: self.watch, stop: self.stop, lock_timeout, may_wait }
    }

    pub(in crate::retoast) async fn sleep(&self, time: Duration) {
        self.stop.run_until_cancelled(tokio::time::sleep(time)).await;
    }

    /// Waits for others for some time, unless that makes it too long: then the run ends.
    pub(in crate::retoast) async fn wait(&self, time: Duration, why: &str) {
        self.keeper.wait(time, &self.name(), why, self.watch).await;
    }

    /// Ends the run: so long it was waited for a lock.
    fn no_lock_in_time(&self, what: &str, waited: Duration) {
        let why = format!("no lock for {what}");
        self.keeper.give_up(&self.name(), waited, &why, self.watch);
    }

    /// As [`LockTries::tried`]. `None` once a stop is asked for.
    pub(in crate::retoast) async fn tried<T>(
        &self,
        what: &'static str,
        mut attempt: impl AsyncFnMut() -> Result<T, LiveError>,
    ) -> Result<Option<T>, RunError> {
        loop {
            return match self.tries(&self.name()).tried(what, &mut attempt).await? {
                Tried::Done(done) => Ok(Some(done)),
                Tried::Stopped => Ok(None),
                Tried::TooLong(waited) => {
                    self.no_lock_in_time(what, waited);
                    Ok(None)
                }
                // a vacuum of others, say, which ends
                Tried::NoLock if self.ready.code.holds_off_statistics() => continue,
                Tried::NoLock => Err(RunError::NoLock(what)),
            };
        }
    }

    /// Alters the table; whether that was done before a stop was asked for.
    pub(crate) async fn alter(&self, alter: &str) -> Result<bool, RunError> {
        let (tried, wait) = self.tries(&self.name()).alter(self.writer.client(), alter).await?;
        self.keeper.lock_waited(wait);
        match tried {
            Tried::Done(()) => Ok(true),
            Tried::Stopped => Ok(false),
            Tried::TooLong(waited) => {
                self.no_lock_in_time("setting the choice", waited);
                Ok(false)
            }
            Tried::NoLock => Err(RunError::NoLock("setting the choice")),
        }
    }
}
