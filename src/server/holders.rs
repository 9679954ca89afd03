//! Who holds back what other sessions want to do: a session, a prepared transaction, a replication slot or a replica,
//! described for messages in one way.

use std::collections::BTreeMap;

use tokio_postgres::types::Type;

use super::chunks::transaction;
use super::connect::{Client, Connection};
use super::toasters::TOAST_RELATIONS;
use super::{LiveResult, Parameter};
use toast_format::disk::Oid;

/// What prevents vacuum from removing old row versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The oldest transaction whose effects the holder does not see.
    pub horizon: u32,
    /// Describes the holder in messages.
    pub who: String,
    /// Whether it lasts: a session whose transaction is not young, a slot, or a prepared transaction.
    pub is_lasting: bool,
}

/// The seconds from which on an open transaction is expected to last.
const LASTING: u32 = 10;

/// A lock that another session has, or waits for, on a table, its TOAST relation, or one of their indexes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockHolder {
    who: String,
    granted: bool,
    /// The mode as in statements.
    mode: String,
}

impl LockHolder {
    /// Whether the lock is held, and not only waited for.
    pub(crate) fn is_granted(&self) -> bool {
        self.granted
    }

    /// As in `session 42 (user app, psql, in a transaction for 5 s) holds a SHARE lock on it`.
    pub(crate) fn text(&self) -> String {
        let does = if self.granted { "holds" } else { "waits for" };
        let article = if self.mode.starts_with(['A', 'E']) { "an" } else { "a" };
        format!("{} {does} {article} {} lock on it", self.who, self.mode)
    }
}

/// SQL that describes the session `a`, a row of `pg_stat_activity`. To users who may not see the activity of other
/// sessions, the server shows neither the kind nor the age of these sessions.
const SESSION: &str = "pg_catalog.format('session %s (user %s, %s%s)', a.pid, coalesce(a.usename::pg_catalog.text, '-'), \
     coalesce(nullif(a.application_name, ''), a.backend_type, 'no application name'), \
     ', in a transaction for ' || extract(epoch FROM pg_catalog.clock_timestamp() - a.xact_start)\
       ::pg_catalog.int8 || ' s')";

/// SQL that describes the prepared transaction `p`, a row of `pg_prepared_xacts`.
const PREPARED: &str = "pg_catalog.format('prepared transaction %L (user %s, prepared %s s ago)', p.gid, p.owner, \
     extract(epoch FROM pg_catalog.clock_timestamp() - p.prepared)::pg_catalog.int8)";

/// What is joined to the locks `l` so that [`of_lock`] describes who has them. A prepared transaction has no process; its
/// locks have the virtual transaction ID that it had in its session, and one of them is on its transaction ID.
const WITH_HOLDERS: &str = "LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid \
     LEFT JOIN pg_catalog.pg_locks AS x ON l.pid IS NULL AND x.pid IS NULL \
       AND x.locktype = 'transactionid' AND x.granted AND x.virtualtransaction = l.virtualtransaction \
     LEFT JOIN pg_catalog.pg_prepared_xacts AS p ON p.transaction = x.transactionid";

/// SQL that describes who has the lock `l`.
fn of_lock() -> String {
    format!(
        "CASE WHEN p.gid IS NOT NULL THEN {PREPARED} WHEN a.pid IS NOT NULL THEN {SESSION} \
         WHEN l.pid IS NOT NULL THEN 'session ' || l.pid ELSE 'a prepared transaction' END"
    )
}

/// The modes of table locks, as `pg_locks` shows them without `Lock`; the strongest last.
const MODES: [&str; 8] = [
    "AccessShare",
    "RowShare",
    "RowExclusive",
    "ShareUpdateExclusive",
    "Share",
    "ShareRowExclusive",
    "Exclusive",
    "AccessExclusive",
];

/// Which locks on a table count.
#[derive(Clone, Copy)]
pub(crate) enum LocksCounted {
    All,
    /// Those that no reader gets past, held or waited for.
    BlockReaders,
    /// Those that are held and that no statement which changes rows or settings gets past.
    BlockWriters,
}

/// The strongest lock that a session other than `ours` holds, or waits for, on the table, its TOAST relation or one of
/// their indexes; `None` if there is none any more.
pub(crate) async fn of_table(
    client: &Client,
    table: Oid,
    ours: &[i32],
    counted: LocksCounted,
) -> LiveResult<Option<LockHolder>> {
    let who = of_lock();
    let (modes, granted) = match counted {
        LocksCounted::All => (&MODES[..], ""),
        LocksCounted::BlockReaders => (&MODES[7..], ""),
        LocksCounted::BlockWriters => (&MODES[4..], "AND l.granted "),
    };
    let modes: Vec<String> = modes.iter().map(|mode| format!("{mode}Lock")).collect();
    let sql = format!(
        "SELECT {who}, l.granted, l.mode FROM pg_catalog.pg_class AS c \
         JOIN pg_catalog.pg_locks AS l ON l.relation = ANY (c.oid || {TOAST_RELATIONS}) \
           OR l.relation IN (SELECT i.indexrelid FROM pg_catalog.pg_index AS i \
                             WHERE i.indrelid = ANY (c.oid || {TOAST_RELATIONS})) \
         {WITH_HOLDERS} \
         WHERE c.oid = $1 AND l.locktype = 'relation' AND l.mode = ANY ($2) {granted}\
           AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid() \
           AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d \
                             WHERE d.datname = pg_catalog.current_database()) \
           AND coalesce(l.pid <> ALL ($3), true) \
         ORDER BY pg_catalog.array_position($2, l.mode) DESC, l.granted DESC, l.pid LIMIT 1"
    );
    let parameters: [Parameter<'_>; 3] =
        [(&table.0, Type::OID), (&modes, Type::TEXT_ARRAY), (&ours, Type::INT4_ARRAY)];
    let Some(row) = client.row(&sql, &parameters).await? else { return Ok(None) };
    let mode: String = row.try_get(2)?;
    let mut words = String::new();
    for c in mode.trim_end_matches("Lock").chars() {
        if c.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(c.to_ascii_uppercase());
    }
    Ok(Some(LockHolder { who: row.try_get(0)?, granted: row.try_get(1)?, mode: words }))
}

/// Who holds this advisory lock of two keys.
pub(crate) async fn of_advisory_lock(
    client: &Client,
    class: i32,
    key: i32,
) -> LiveResult<Option<String>> {
    let sql = format!(
        "SELECT {} FROM pg_catalog.pg_locks AS l {WITH_HOLDERS} \
         WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 \
           AND l.classid = $1::pg_catalog.int8::pg_catalog.oid AND l.objid = $2::pg_catalog.int8::pg_catalog.oid \
           AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid() \
           AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d \
                             WHERE d.datname = pg_catalog.current_database()) LIMIT 1",
        of_lock()
    );
    // the server stores the keys as unsigned numbers
    let keys = [class, key].map(|key| i64::from(key as u32));
    Ok(client.value(&sql, &[(&keys[0], Type::INT8), (&keys[1], Type::INT8)]).await?)
}

/// Describes these processes; 0 stands for a prepared transaction.
pub(crate) async fn of_processes(client: &Client, pids: &[i32]) -> LiveResult<Vec<String>> {
    let sql = format!(
        "SELECT coalesce((SELECT {SESSION} FROM pg_catalog.pg_stat_activity AS a WHERE a.pid = b.pid), \
           CASE WHEN b.pid = 0 THEN 'a prepared transaction' ELSE 'session ' || b.pid END) \
         FROM pg_catalog.unnest($1) AS b (pid) ORDER BY b.pid"
    );
    let rows = client.query_typed(&sql, &[(&pids, Type::INT4_ARRAY)]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// The virtual transactions that the query `locks` finds (as `virtualtransaction` and `pid`), with descriptions.
pub(crate) async fn transactions(
    connection: &Connection,
    locks: &str,
    parameters: &[Parameter<'_>],
) -> LiveResult<BTreeMap<String, String>> {
    let sql = format!(
        "SELECT l.virtualtransaction, {} FROM ({locks}) AS l (virtualtransaction, pid) {WITH_HOLDERS}",
        of_lock()
    );
    connection
        .reading(async || {
            let rows = connection.client().query_typed(&sql, parameters).await?;
            rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
        })
        .await
}

/// What holds back most of what vacuum may remove from tables of this database (`ComputeXidHorizons`, procarray.c), other
/// than the processes `ours`. Of several that hold back as much, the one that must end first: a slot or prepared transaction,
/// then the transaction itself, then the oldest snapshot. Vacuums do not hold back one another. The server shows the
/// horizons of all sessions to every user.
pub async fn of_horizon(connection: &Connection, ours: &[i32]) -> LiveResult<Option<Holder>> {
    let sql = format!(
        "SELECT horizon::pg_catalog.text, who, \
                coalesce(since < pg_catalog.clock_timestamp() - interval '{LASTING} s', true) FROM (\
        SELECT CASE WHEN a.backend_xmin IS NULL OR pg_catalog.age(a.backend_xid) > pg_catalog.age(a.backend_xmin) \
                    THEN a.backend_xid ELSE a.backend_xmin END AS horizon, \
               CASE WHEN a.backend_xmin IS NULL OR pg_catalog.age(a.backend_xid) >= pg_catalog.age(a.backend_xmin) \
                    THEN 1 ELSE 2 END AS place, \
               CASE WHEN a.backend_type = 'walsender' AND a.xact_start IS NULL \
               THEN pg_catalog.format('replica %I (PID %s, by hot_standby_feedback)', a.application_name, a.pid) \
               ELSE {SESSION} END AS who, a.xact_start AS since \
        FROM pg_catalog.pg_stat_activity AS a \
        WHERE a.pid <> pg_catalog.pg_backend_pid() AND a.pid <> ALL ($1) \
          AND coalesce(a.backend_type <> 'autovacuum worker', a.usesysid IS NOT NULL) \
          AND (a.datname = pg_catalog.current_database() OR a.backend_type = 'walsender' \
               OR (a.datid IS NULL AND a.usesysid IS NOT NULL)) \
          AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_progress_vacuum AS v WHERE v.pid = a.pid) \
        UNION ALL \
        SELECT s.xmin, 0, \
               pg_catalog.format('replication slot %I (%s, from %s transactions ago)', s.slot_name, \
                 coalesce('PID ' || s.active_pid, 'inactive'), pg_catalog.age(s.xmin)), NULL \
        FROM pg_catalog.pg_replication_slots AS s \
        UNION ALL \
        SELECT p.transaction, 0, {PREPARED}, NULL FROM pg_catalog.pg_prepared_xacts AS p \
        WHERE p.database = pg_catalog.current_database()) AS held \
        WHERE horizon IS NOT NULL ORDER BY pg_catalog.age(horizon) DESC, place, since LIMIT 1"
    );
    let rows = connection.query_again(&sql, &[(&ours, Type::INT4_ARRAY)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some(Holder {
        horizon: transaction(row.try_get(0)?)?,
        who: row.try_get(1)?,
        is_lasting: row.try_get(2)?,
    }))
}
