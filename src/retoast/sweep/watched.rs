//! What the table is known to be set to while it is swept.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::retoast::check::definition::{Definition, Settings, check, has_changed};
use crate::retoast::check::ready::Ready;
use crate::retoast::sql;
use crate::server::LiveError;
use crate::server::connect::Client;
use crate::server::snapshot::{self, Moment};

/// What the table is known to be set to.
#[derive(Debug, Default)]
pub struct Watched(Mutex<Known>);

#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// As the run found it, or as it was before an earlier run that was killed.
    pub(super) before: Option<Settings>,
    /// As the sweep needs it.
    pub(super) now: Option<Definition>,
    /// Whether the run has set anything.
    pub(super) altered: bool,
    /// Whether more than that is set: by an earlier run that was killed, or for new values at the end of this.
    pub(super) more_set: bool,
}

/// What a transaction begins with that only reads a table: statements are planned there, which evaluates constant parts of
/// the expressions of indexes and statistics.
pub(in crate::retoast) struct Reading {
    lock: String,
    check: String,
}

impl Reading {
    /// Begins a transaction with the lock, takes its snapshot, and fails with [`LiveError::Changed`] if the definition is
    /// not the one that was approved.
    pub(in crate::retoast) async fn begin(&self, client: &Client) -> Result<Moment, LiveError> {
        let begun = async {
            let moment = snapshot::begin_with_lock(client, &self.lock).await?;
            match client.query_typed(&self.check, &[]).await {
                Err(error) if has_changed(&error) => Err(LiveError::Changed),
                checked => Ok(checked.map(|_| moment)?),
            }
        };
        let begun = begun.await;
        if begun.is_err() {
            // if that fails too the connection is gone, as the next query will say
            let _ = snapshot::abandon(client).await;
        }
        begun
    }
}

impl Watched {
    /// `None` where reading it lends nobody any rights.
    pub(super) fn reading(&self, ready: &Ready) -> Option<Reading> {
        let holds_off = ready.code.holds_off_statistics();
        let known = self.known();
        holds_off.then(|| Reading {
            // whoever waits for it longer than the server looks for deadlocks cancels autovacuum
            lock: format!(
                "SET LOCAL lock_timeout = '100ms'; {}",
                sql::lock(&ready.relation.quoted(), true)
            ),
            check: check(ready.relation.oid, known.now.as_ref()),
        })
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        // whole definitions are put there
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
