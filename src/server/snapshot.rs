//! One moment for everything that is read: a read-only transaction with a fixed snapshot.

use futures_util::future;
use tokio_postgres::types::Type;

use super::LiveError;
use super::connect::{Client, Connection};
use crate::disk::TransactionId;
use crate::model::sql::quote_literal;
use crate::model::visibility::Snapshot;

/// A transaction with a snapshot. It ends with the connection.
#[derive(Debug, Clone)]
pub struct Moment {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Its name for [`join`]ing other connections.
    pub exported: String,
}

const MODE: &str = "TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Begins the transaction that every later query of this connection belongs to.
pub async fn begin(connection: &Connection) -> Result<Moment, LiveError> {
    connection.begin(MODE).await?;
    take(connection.client()).await
}

/// As [`begin`], for a run that writes to temporary tables.
pub async fn begin_writable(connection: &Connection) -> Result<Moment, LiveError> {
    connection.begin("TRANSACTION ISOLATION LEVEL REPEATABLE READ READ WRITE").await?;
    take(connection.client()).await
}

/// As [`begin_writable`], after taking a lock by this statement.
pub async fn begin_with_lock(client: &Client, lock: &str) -> Result<Moment, LiveError> {
    let begin = format!("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ WRITE; {lock}");
    client.batch_execute(&begin).await?;
    take(client).await
}

async fn take(client: &Client) -> Result<Moment, LiveError> {
    let ask = client.query_typed(
        "SELECT pg_catalog.pg_current_snapshot()::pg_catalog.text, \
                pg_catalog.pg_export_snapshot(), pg_catalog.pg_is_in_recovery()",
        &[],
    );
    // sent together
    let (planned, rows) = future::join(client.batch_execute(BY_KEY), ask).await;
    planned?;
    let row = rows?.pop().ok_or_else(|| LiveError::Unexpected("no snapshot".into()))?;
    let text: String = row.try_get(0)?;
    let mut snapshot = Snapshot::parse(&text)
        .ok_or_else(|| LiveError::Unexpected(format!("snapshot \"{text}\"")))?;
    snapshot.taken_during_recovery = row.try_get(2)?;
    Ok(Moment { snapshot, exported: row.try_get(1)? })
}

/// Begins a transaction on another connection that sees the same.
pub async fn join(connection: &Connection, moment: &Moment) -> Result<(), LiveError> {
    let import = format!("SET TRANSACTION SNAPSHOT {}", quote_literal(&moment.exported));
    let begin = connection.begin_sql(MODE);
    Ok(connection.client().batch_execute(&format!("{begin}{import}; {BY_KEY}")).await?)
}

/// Ends the transaction.
pub async fn end(client: &Client) -> Result<(), LiveError> {
    Ok(client.batch_execute("COMMIT").await?)
}

/// Ends the transaction after an error.
pub async fn abandon(client: &Client) -> Result<(), LiveError> {
    Ok(client.batch_execute("ROLLBACK").await?)
}

/// Asks for the fate of transactions that were over when the snapshot was taken. What the server
/// no longer knows stays unknown.
pub async fn learn(
    client: &Client,
    snapshot: &mut Snapshot,
    xids: &[TransactionId],
) -> Result<(), LiveError> {
    let full: Vec<String> = xids.iter().map(|&xid| snapshot.full_xid(xid).to_string()).collect();
    if full.is_empty() {
        return Ok(());
    }
    let rows = client
        .query_typed(
            "SELECT x.n, pg_catalog.pg_xact_status(x.xid::pg_catalog.xid8) \
             FROM pg_catalog.unnest($1) WITH ORDINALITY AS x (xid, n)",
            &[(&full, Type::TEXT_ARRAY)],
        )
        .await?;
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

// The plans of our statements against users' tables and TOAST relations are ours to choose. Nothing gathers statistics
// of TOAST relations, so the planner guesses: on a large one it reads the whole relation, in parallel and with compiled
// code, to find a thousand chunks by their index. These settings leave it one plan, in our own transactions alone.

/// Rows by their addresses and chunks by their index, in its order: what is read is what was asked for,
/// whatever the relation's size.
pub(crate) const BY_KEY: &str = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
     SET LOCAL enable_indexscan = on; SET LOCAL enable_tidscan = on; \
     SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL jit = off";

/// A whole relation, block after block. Whether several processes share it is the server's to say.
pub(crate) const WHOLE: &str = "SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = off; \
     SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off; SET LOCAL jit = off";
