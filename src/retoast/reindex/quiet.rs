//! Waits for transactions that REINDEX CONCURRENTLY would wait for, with no lock held: those that use the table,
//! and those with a snapshot.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use crate::disk::Oid;
use crate::retoast::task::error::RunError;
use crate::retoast::task::guard::Guard;
use crate::retoast::wait::Wait;
use crate::server::LiveError;
use crate::server::connect::Connection;

/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A wait so long is said.
const TELL: Duration = Duration::from_secs(2);

/// Transactions that use a relation, and such as have a snapshot in this database, but those of vacuums, which
/// nothing waits for.
const UNDER_WAY: &str = "SELECT l.virtualtransaction, coalesce(l.pid, 0) FROM pg_catalog.pg_locks AS l \
    WHERE l.locktype = 'relation' AND l.granted AND l.relation = $1 \
      AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid() AND l.database = \
        (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) \
    UNION SELECT v.virtualtransaction, v.pid FROM pg_catalog.pg_stat_get_activity(NULL) AS a \
    JOIN pg_catalog.pg_locks AS v ON v.pid = a.pid AND v.locktype = 'virtualxid' AND v.granted \
    WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_catalog.pg_backend_pid() \
      AND a.backend_type <> 'autovacuum worker' AND a.datid = \
        (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) \
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_progress_vacuum AS p WHERE p.pid = a.pid)";

/// Transactions by their virtual numbers, with the processes.
async fn under_way(connection: &Connection, table: Oid) -> Result<HashMap<String, i32>, LiveError> {
    connection
        .reading(async || {
            let rows = connection.client().query_typed(UNDER_WAY, &[(&table.0, Type::OID)]).await?;
            rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
        })
        .await
}

/// Waits until all transactions have ended that are under way now, or a stop is asked for; gives who has kept
/// on for too long.
pub(super) async fn quiet(
    guard: &Guard<'_>,
    table: Oid,
    patience: Duration,
) -> Result<Option<String>, RunError> {
    let (session, began) = (guard.session, Instant::now());
    let mut waited_for = under_way(session.reader(), table).await?;
    let mut told = false;
    while !waited_for.is_empty() && !session.stopped() {
        let pid = waited_for.values().min().copied().unwrap_or(0);
        let who = match pid {
            0 => "a prepared transaction".to_owned(),
            pid => format!("the transaction of process {pid}"),
        };
        if began.elapsed() >= patience {
            // the next index does not wait as long again
            session.throttle.has_waited(began.elapsed());
            return Ok(Some(format!(
                "{who} has not ended in {:.0} s, and a rebuild would wait for it",
                began.elapsed().as_secs_f64()
            )));
        }
        if began.elapsed() >= TELL && !told {
            told = true;
            guard.note(&Wait::BeforeRebuild(who).note());
        }
        session.sleep(LOOK_EVERY).await;
        let now = under_way(session.reader(), table).await?;
        waited_for.retain(|transaction, _| now.contains_key(transaction));
    }
    Ok(None)
}
