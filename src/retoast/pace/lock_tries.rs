//! Locks are asked for in short tries only: who waits for one makes others wait.

use std::time::{Duration, Instant};

use rand::RngExt;
use tokio_util::sync::CancellationToken;

use crate::retoast::wait::Wait;
use crate::retoast::watch::Watch;
use crate::server::LiveError;
use crate::server::connect::Client;

/// How often a lock for the settings or for a scan is tried.
pub const LOCK_TRIES: u32 = 30;

/// What an error of the server means for what was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A lock was not to be had, or a deadlock was broken: try again.
    Busy,
    /// Something in a row: others may do.
    Row,
    /// Nothing to go on with.
    Fatal,
}

/// Reads the SQLSTATE.
pub fn kind(error: &tokio_postgres::Error) -> Kind {
    error.as_db_error().map_or(Kind::Fatal, |db| kind_of(db.code().code()))
}

/// What a SQLSTATE means.
fn kind_of(code: &str) -> Kind {
    match code {
        "55P03" | "40P01" | "40001" => Kind::Busy,
        code => match code.get(..2) {
            // data of the row, constraints and those of domains, limits, damage
            Some("22" | "23" | "44" | "54" | "XX") => Kind::Row,
            // what the owner's functions raise for a row
            Some("09" | "20" | "21" | "27" | "2F" | "38" | "39" | "P0") => Kind::Row,
            // Codes of users' own, as the standard leaves them to them: not those of PostgreSQL's that begin so.
            Some("53" | "55" | "57" | "58" | "72" | "F0" | "HV") => Kind::Fatal,
            Some(class) if class.starts_with(|c| matches!(c, '5'..='9' | 'I'..='Z')) => Kind::Row,
            _ => Kind::Fatal,
        },
    }
}

/// Whether an error says that something cannot be read, a page or an index, because it is damaged.
pub fn is_damage(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|db| db.code().code().starts_with("XX"))
}

/// Whether an error is one of the whole server, which no other table is spared: it is full, it stops, or it is not
/// to be written to.
pub fn is_of_server(error: &tokio_postgres::Error) -> bool {
    let Some(db) = error.as_db_error() else { return true };
    let code = db.code().code();
    code == "25006" || matches!(code.get(..2), Some("08" | "53" | "57" | "58"))
}

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
    pub watch: &'a dyn Watch,
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
                Err(LiveError::Server(error)) if kind(&error) == Kind::Busy => {}
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
            self.watch.note(&format!("{}: {}", self.name, why.note()));
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
        self.in_transaction(client, "setting the choice", alter).await
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
                    if kind(&error) == Kind::Busy {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_costs_no_more_than_what_it_is_about() {
        let all = |codes: &[&str], kind: Kind| {
            for code in codes {
                assert_eq!(kind_of(code), kind, "{code}");
            }
        };
        // no lock, a deadlock, a serialization failure
        all(&["55P03", "40P01", "40001"], Kind::Busy);
        // a check, a numeric overflow, a row too long, damage, RAISE with and without a code of its own
        all(&["23514", "22003", "54000", "XX001", "XX000", "P0001", "UE001", "99999"], Kind::Row);
        all(&["38001", "2F003", "21000", "44000"], Kind::Row);
        // the disk, memory, connections, a cancel, a shutdown, the system, privileges, read-only, a missing function
        all(
            &["53100", "53200", "53300", "57014", "57P01", "58030", "42501", "25006", "42883"],
            Kind::Fatal,
        );
        all(&["55006", "F0001", "0A000", "08006"], Kind::Fatal);
    }
}
