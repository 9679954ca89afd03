//! A read-only transaction with a fixed snapshot, for everything that is read.

use std::pin::pin;
use std::time::Duration;

use futures_util::future;
use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connect::{Client, Connection};
use super::{LiveError, LiveResult};
use toast_format::disk::TransactionId;
use toast_format::model::Snapshot;
use toast_format::model::sql::quote_literal;

/// A transaction with a snapshot. It ends with the connection.
#[derive(Debug, Clone)]
pub struct Moment {
    pub snapshot: Snapshot,
}

/// The mode of a transaction that reads.
pub(super) const MODE: &str = "TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Begins the transaction in which all later queries on this connection run.
pub async fn begin(connection: &Connection) -> LiveResult<Moment> {
    connection.begin(MODE).await?;
    take(connection.client()).await
}

/// The mode of a transaction that writes only to temporary tables: its commit need wait neither for the disk nor for a
/// standby.
pub(super) const TEMPORARY: &str =
    "TRANSACTION ISOLATION LEVEL REPEATABLE READ READ WRITE; SET LOCAL synchronous_commit = off";

/// Like [`begin`], for a run that writes to temporary tables.
pub async fn begin_writable(connection: &Connection) -> LiveResult<Moment> {
    connection.begin(TEMPORARY).await?;
    take(connection.client()).await
}

/// Like [`begin_writable`], but first takes a lock with the statement `lock`.
pub async fn begin_with_lock(client: &Client, lock: &str) -> LiveResult<Moment> {
    let begin = format!("BEGIN {TEMPORARY}; {lock}");
    client.batch_execute(&begin).await?;
    take(client).await
}

/// Holds off commands that rename or drop a schema until the transaction ends; only superusers may. A statement finds a
/// table by its name each time it is planned, and renaming a schema takes no lock on its tables.
pub(crate) fn hold_schema(schema: &str) -> String {
    let name = quote_literal(schema);
    format!("SELECT FROM pg_catalog.pg_namespace WHERE nspname = {name} FOR KEY SHARE")
}

/// Holds off commands that rename these types or their schemas until the transaction ends; only superusers may.
pub(crate) fn hold_types(types: &[u32]) -> String {
    let list: Vec<String> = types.iter().map(u32::to_string).collect();
    let list = list.join(", ");
    format!(
        "SELECT FROM pg_catalog.pg_type WHERE oid IN ({list}) FOR KEY SHARE; \
         SELECT FROM pg_catalog.pg_namespace WHERE oid IN (\
         SELECT typnamespace FROM pg_catalog.pg_type WHERE oid IN ({list})) FOR KEY SHARE"
    )
}

/// Takes the snapshot of the transaction that the connection is in.
pub(super) async fn take(client: &Client) -> LiveResult<Moment> {
    let ask = client.query_typed(
        "SELECT pg_catalog.pg_current_snapshot()::pg_catalog.text, pg_catalog.pg_is_in_recovery()",
        &[],
    );
    // Both are sent together.
    let (planned, rows) = future::join(client.batch_execute(BY_KEY), ask).await;
    planned?;
    let row = rows?.pop().ok_or_else(|| LiveError::Unexpected("no snapshot".into()))?;
    Ok(Moment { snapshot: snapshot_in(&row)? })
}

/// The snapshot in the first two columns of a row: its text, and whether the server is in recovery.
pub(super) fn snapshot_in(row: &Row) -> LiveResult<Snapshot> {
    let text: String = row.try_get(0)?;
    let mut snapshot = Snapshot::parse(&text)
        .ok_or_else(|| LiveError::Unexpected(format!("snapshot \"{text}\"")))?;
    snapshot.taken_during_recovery = row.try_get(1)?;
    Ok(snapshot)
}

/// Exports the snapshot of the transaction that the connection is in; returns its name, for [`join`].
pub async fn export(client: &Client) -> LiveResult<String> {
    let name: Option<String> = client.value("SELECT pg_catalog.pg_export_snapshot()", &[]).await?;
    name.ok_or_else(|| LiveError::Unexpected("no snapshot".into()))
}

/// Begins a transaction with the exported snapshot on another connection.
pub async fn join(connection: &Connection, exported: &str) -> LiveResult<()> {
    let import = format!("SET TRANSACTION SNAPSHOT {}", quote_literal(exported));
    let begin = connection.begin_sql(MODE);
    Ok(connection.client().batch_execute(&format!("{begin}{import}; {BY_KEY}")).await?)
}

pub async fn end(client: &Client) -> LiveResult<()> {
    Ok(client.batch_execute("COMMIT").await?)
}

/// Ends the transaction after an error.
pub async fn abandon(client: &Client) -> LiveResult<()> {
    Ok(client.batch_execute("ROLLBACK").await?)
}

/// How long a statement may still take before it is cancelled, which the server logs as an error.
const MOMENT: Duration = Duration::from_millis(200);

/// Ends the transaction, and a statement under way whose answer nobody waits for any more.
pub async fn cut_short(connection: &Connection) -> LiveResult<()> {
    let mut abandoned = pin!(abandon(connection.client()));
    if let Ok(done) = timeout(MOMENT, &mut abandoned).await {
        return done;
    }
    // if cancelling fails, the statement ends by itself
    let _ = connection.canceller().cancel().await;
    abandoned.await
}

/// Does `work` in the transaction that the connection is in, and abandons that.
pub async fn abandoned<T, E: From<LiveError>>(
    client: &Client,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let done = work.await;
    let ended = abandon(client).await;
    let done = done?;
    ended?;
    Ok(done)
}

/// Does `work` in the transaction that the connection is in, and ends that: it is abandoned after an error, which counts.
pub async fn ended<T, E: From<LiveError>>(
    client: &Client,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let done = work.await;
    if done.is_ok() {
        end(client).await?;
    } else {
        // If this fails too, the connection is lost, and the next query reports that.
        let _ = abandon(client).await;
    }
    done
}

/// Returns the result of `work`, or the error with which the server refuses it; the transaction continues.
pub(crate) async fn in_savepoint<T>(
    client: &Client,
    work: impl AsyncFnOnce() -> LiveResult<T>,
) -> LiveResult<Result<T, tokio_postgres::Error>> {
    client.batch_execute("SAVEPOINT toastctl_attempt").await?;
    match work().await {
        Ok(found) => {
            client.batch_execute("RELEASE SAVEPOINT toastctl_attempt").await?;
            Ok(Ok(found))
        }
        Err(LiveError::Server(error)) if error.as_db_error().is_some() => {
            let undone = client.batch_execute("ROLLBACK TO SAVEPOINT toastctl_attempt").await;
            // If the session has ended, the first error says why.
            if undone.is_err() { Err(error.into()) } else { Ok(Err(error)) }
        }
        Err(error) => Err(error),
    }
}

/// Of which transactions [`learn`] records the status.
pub const ANY: &str = "true";
pub const ABORTED: &str = "s.status = 'aborted'";

/// Queries the status of transactions that had ended when the snapshot was taken. The status stays unknown if the
/// server no longer has it.
pub async fn learn(
    client: &Client,
    snapshot: &mut Snapshot,
    xids: &[TransactionId],
    which: &str,
) -> LiveResult<()> {
    let full: Vec<String> = xids.iter().map(|&xid| snapshot.full_xid(xid).to_string()).collect();
    if full.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "SELECT x.n, s.status FROM pg_catalog.unnest($1) WITH ORDINALITY AS x (xid, n), \
         LATERAL (SELECT pg_catalog.pg_xact_status(x.xid::pg_catalog.xid8)) AS s (status) WHERE {which}"
    );
    let rows = client.query_typed(&sql, &[(&full, Type::TEXT_ARRAY)]).await?;
    for row in rows {
        let number: i64 = row.try_get(0)?;
        let status: Option<String> = row.try_get(1)?;
        let xid = usize::try_from(number - 1).ok().and_then(|index| xids.get(index));
        if let Some(&xid) = xid {
            match status.as_deref() {
                Some("committed") => snapshot.learn(xid, true),
                Some("aborted") => snapshot.learn(xid, false),
                _ => {}
            }
        }
    }
    Ok(())
}

// Our statements on users' tables and TOAST relations choose their own plans. There are no statistics about TOAST
// relations, so the planner guesses: to find a thousand chunks by their index, it would read a large relation
// completely, in parallel and with JIT compilation. These settings leave it only one plan, and are local to our
// transactions.

/// Fetches rows by their addresses, and chunks by their index in its order, so that only what was requested is read,
/// regardless of the relation's size.
pub(crate) const BY_KEY: &str = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
     SET LOCAL enable_indexscan = on; SET LOCAL enable_tidscan = on; \
     SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL jit = off";

/// Reads a whole relation, block by block. The server decides whether to use parallel workers.
pub(crate) const WHOLE: &str = "SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = off; \
     SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off; SET LOCAL jit = off";
