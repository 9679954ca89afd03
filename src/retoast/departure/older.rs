//! Transactions that are older than a proof: nobody sees the tables that they have created, and with their
//! snapshots they may still read values as they were.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::run::DepartureRun;
use crate::retoast::task::error::RunError;
use crate::retoast::wait::Wait;
use crate::server::LiveError;
use crate::server::connect::Connection;

/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A wait so long is said, and again after as long.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// The first wait is said earlier.
const TELL_FIRST: Duration = Duration::from_secs(1);

/// Transactions of this database by their virtual numbers, as CREATE INDEX CONCURRENTLY waits for them, and prepared
/// ones, which have none; with who runs them. Vacuums create no tables and read no values.
const UNDER_WAY: &str = "SELECT v.virtualtransaction, pg_catalog.format('process %s%s, begun %s', a.pid, \
        coalesce(' (' || nullif(a.application_name, '') || ')', ''), \
        a.xact_start::pg_catalog.timestamptz(0)) \
    FROM pg_catalog.pg_stat_activity AS a \
    JOIN pg_catalog.pg_locks AS v ON v.pid = a.pid AND v.locktype = 'virtualxid' AND v.granted \
        AND v.mode = 'ExclusiveLock' \
    WHERE a.datname = pg_catalog.current_database() AND a.pid <> pg_catalog.pg_backend_pid() \
    AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_progress_vacuum AS p WHERE p.pid = a.pid) \
    UNION ALL SELECT 'prepared ' || p.transaction::pg_catalog.text, \
        pg_catalog.format('prepared transaction %L, of %s', p.gid, p.prepared::pg_catalog.timestamptz(0)) \
    FROM pg_catalog.pg_prepared_xacts AS p WHERE p.database = pg_catalog.current_database()";

async fn under_way(connection: &Connection) -> Result<BTreeMap<String, String>, LiveError> {
    connection
        .reading(async || {
            let rows = connection.client().query_typed(UNDER_WAY, &[]).await?;
            rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
        })
        .await
}

impl DepartureRun<'_, '_> {
    /// Waits until all transactions have ended that are under way now, or a stop is asked for; gives those that had not
    /// ended when `--max-wait` was over.
    pub(super) async fn wait_for_older(&self) -> Result<Vec<String>, RunError> {
        let began = Instant::now();
        let limit = self.session.throttle.limits().wait;
        let mut waited_for = under_way(self.session.reader()).await?;
        let mut tell_after = TELL_FIRST;
        while let Some(who) = waited_for.values().next() {
            let waited = began.elapsed();
            if self.session.stopped() || limit.is_some_and(|limit| waited >= limit) {
                break;
            }
            if waited >= tell_after {
                tell_after = waited + TELL_EVERY;
                let wait = Wait::OlderThanProof(who.clone(), waited_for.len() - 1);
                self.session.listener.note(&wait.note());
            }
            let left = limit.map_or(LOOK_EVERY, |limit| limit.saturating_sub(waited));
            self.session.sleep(left.min(LOOK_EVERY)).await;
            let now = under_way(self.session.reader()).await?;
            waited_for.retain(|transaction, _| now.contains_key(transaction));
        }
        Ok(waited_for.into_values().collect())
    }
}
