//! The queries that measure sizes, WAL, replicas, sessions, snapshots and free space.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::retoast::forecast::Images;
use crate::retoast::pace::rules::Replica;
use crate::retoast::pace::slots::{Slot, Slots};
use crate::retoast::pace::space::Directory;
use crate::retoast::plan::{Sizes, Surroundings};
use crate::retoast::preflight::owner::UpdateTriggers;
use crate::retoast::preflight::ready::PreparedTable;
use crate::retoast::sql;
use crate::retoast::sql::old_entries::COVERED;
use crate::server::toasters::TOAST_RELATIONS;
use crate::server::{
    Client, Connection, LiveError, LiveResult, Parameter, holders, numbers, single_row,
};
use toast_format::disk::Oid;
use toast_format::model::sql::quote_identifier;

/// The prefix of `application_name` in all sessions of this program.
pub const APPLICATION: &str = "toastctl retoast";

/// The maximum number of rows read from a user's query, of which only the first one matters.
const MOST_ROWS: usize = 1000;

/// Examples of queries for the throttle query setting, each with the situation in which it returns true.
pub const THROTTLE_QUERIES: [(&str, &str); 6] = [
    (
        "over 10 sessions",
        "SELECT count(*) > 10 FROM pg_stat_activity WHERE state = 'active' AND backend_type = \
         'client backend' AND application_name NOT LIKE 'toastctl%'",
    ),
    (
        "over 20 MB WAL/s",
        "SELECT pg_current_wal_lsn() - redo_lsn > 20e6 * (1 + extract(epoch FROM clock_timestamp() \
         - checkpoint_time)) FROM pg_control_checkpoint()",
    ),
    (
        "old snapshots",
        "SELECT max(age(xmin)) > 1000000 FROM (SELECT backend_xmin FROM pg_stat_activity UNION ALL \
         SELECT xmin FROM pg_replication_slots UNION ALL SELECT transaction FROM \
         pg_prepared_xacts) AS held (xmin)",
    ),
    ("5:00 to 22:00", "SELECT localtime BETWEEN '05:00' AND '22:00'"),
    ("a file exists", "SELECT (pg_stat_file('/tmp/pause', true)).size IS NOT NULL"),
    ("a table has rows", "SELECT EXISTS (SELECT FROM pause)"),
];

fn unsigned(row: &Row, at: usize) -> LiveResult<u64> {
    Ok(u64::try_from(row.try_get::<_, i64>(at)?).unwrap_or(0))
}

/// The insert position of the WAL, in bytes from 0/0.
pub async fn wal(connection: &Connection) -> LiveResult<u64> {
    let sql = "SELECT pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), '0/0')\
               ::pg_catalog.int8";
    let rows = connection.query_again(sql, &[]).await?;
    unsigned(rows.first().ok_or_else(|| LiveError::Unexpected("no row".to_owned()))?, 0)
}

/// The sizes of a table's heap, its TOAST relation and all indexes.
pub async fn sizes(connection: &Connection, oid: Oid) -> LiveResult<Sizes> {
    sizes_of(connection, &[oid]).await?.remove(&oid).ok_or(LiveError::Changed)
}

/// Like [`sizes`], but `None` if the relation is locked.
pub(crate) async fn sizes_unless_locked(
    connection: &Connection,
    oid: Oid,
) -> LiveResult<Option<Sizes>> {
    match sizes(connection, oid).await {
        Err(error) if error.is_busy() => Ok(None),
        measured => measured.map(Some),
    }
}

/// The same for many tables; those that were dropped are missing.
pub(crate) async fn sizes_of(
    connection: &Connection,
    oids: &[Oid],
) -> LiveResult<HashMap<Oid, Sizes>> {
    let sql = format!(
        "SELECT coalesce(pg_catalog.pg_relation_size(c.oid), 0), \
                coalesce(t.heap, 0)::pg_catalog.int8, \
                (coalesce(pg_catalog.pg_indexes_size(c.oid), 0) \
                 + coalesce(t.indexes, 0))::pg_catalog.int8, c.oid \
         FROM pg_catalog.pg_class AS c, \
         LATERAL (SELECT sum(pg_catalog.pg_relation_size(o)) AS heap, \
                         sum(pg_catalog.pg_indexes_size(o)) AS indexes \
                  FROM pg_catalog.unnest({TOAST_RELATIONS}) AS o) AS t \
         WHERE c.oid = ANY ($1)"
    );
    let rows = connection.query_again(&sql, &[(&numbers(oids), Type::OID_ARRAY)]).await?;
    let mut found = HashMap::new();
    for row in &rows {
        let heap = unsigned(row, 0)?;
        let toast = unsigned(row, 1)?;
        let indexes = unsigned(row, 2)?;
        found.insert(Oid(row.try_get(3)?), Sizes { heap, toast, indexes });
    }
    Ok(found)
}

/// The size of a table's heap, in bytes.
pub async fn heap(client: &Client, oid: Oid) -> LiveResult<u64> {
    let sql = "SELECT pg_catalog.pg_relation_size(oid) FROM pg_catalog.pg_class WHERE oid = $1";
    let rows = client.query_typed(sql, &[(&oid.0, Type::OID)]).await?;
    unsigned(rows.first().ok_or(LiveError::Changed)?, 0)
}

/// The number of a table's file, which changes when the table is rewritten.
pub async fn filenode(client: &Client, oid: Oid) -> LiveResult<u32> {
    let sql = "SELECT coalesce(pg_catalog.pg_relation_filenode($1), 0)::pg_catalog.oid";
    Ok(client.value(sql, &[(&oid.0, Type::OID)]).await?.unwrap_or(0))
}

/// The time at which the server was started, as text.
pub async fn started(client: &Client) -> LiveResult<String> {
    let sql = "SELECT pg_catalog.pg_postmaster_start_time()::pg_catalog.text";
    Ok(single_row(client, sql, &[]).await?.try_get(0)?)
}

/// Whether this user may see the activity of other sessions and the progress of replicas.
pub async fn sees_others(client: &Client) -> LiveResult<bool> {
    let sql = "SELECT pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')";
    Ok(single_row(client, sql, &[]).await?.try_get(0)?)
}

/// Connected streaming replicas and logical subscribers.
pub async fn replicas(connection: &Connection) -> LiveResult<Vec<Replica>> {
    let sql = "SELECT application_name, coalesce(client_addr::pg_catalog.text, 'local socket'), \
                      pg_catalog.pg_wal_lsn_diff(replay_lsn, '0/0')::pg_catalog.int8, \
                      extract(epoch FROM replay_lag)::pg_catalog.float8 \
               FROM pg_catalog.pg_stat_replication \
               WHERE state IN ('catchup', 'streaming') AND replay_lsn IS NOT NULL";
    let mut replicas = Vec::new();
    for row in connection.query_again(sql, &[]).await? {
        let name: String = row.try_get(0)?;
        let place: String = row.try_get(1)?;
        let seconds: Option<f64> = row.try_get(3)?;
        replicas.push(Replica {
            name: format!("{} ({place})", quote_identifier(&name)),
            replayed: unsigned(&row, 2)?,
            reported: seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()),
        });
    }
    Ok(replicas)
}

/// Replication slots, including temporary ones, and how much WAL is kept for them. Every user may see them.
pub async fn slots(connection: &Connection) -> LiveResult<Slots> {
    // the reason exists in 17 and later; slots invalidated for a reason other than WAL do not count as lost
    let sql = "SELECT s.slot_name::pg_catalog.text, s.slot_type::pg_catalog.text, s.active, \
                      s.safe_wal_size::pg_catalog.int8, s.wal_status = 'lost' AND coalesce(\
                        pg_catalog.to_jsonb(s) ->> 'invalidation_reason', 'wal_removed') = 'wal_removed', \
                      greatest(pg_catalog.pg_size_bytes(pg_catalog.current_setting('max_slot_wal_keep_size')), \
                        pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_keep_size'))), \
                      pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size')) \
               FROM pg_catalog.pg_replication_slots AS s WHERE s.wal_status IS NOT NULL ORDER BY 1";
    let mut slots = Slots::default();
    for row in connection.query_again(sql, &[]).await? {
        let safe: Option<i64> = row.try_get(3)?;
        slots.all.push(Slot {
            name: row.try_get(0)?,
            kind: row.try_get(1)?,
            active: row.try_get(2)?,
            // negative if the next checkpoint will invalidate the slot
            safe: safe.map(|bytes| u64::try_from(bytes).unwrap_or(0)),
            lost: row.try_get(4)?,
        });
        (slots.kept, slots.segment) = (unsigned(&row, 5)?, unsigned(&row, 6)?);
    }
    Ok(slots)
}

/// The number of active client sessions other than this program's. Those are recognized by name and also by the
/// processes `ours`, because the user may have changed the names.
pub async fn active_sessions(connection: &Connection, ours: &[i32]) -> LiveResult<u64> {
    let sql = "SELECT count(*) FROM pg_catalog.pg_stat_activity \
               WHERE state = 'active' AND backend_type = 'client backend' \
               AND pid <> pg_catalog.pg_backend_pid() AND pid <> ALL ($2) \
               AND NOT pg_catalog.starts_with(application_name, $1)";
    let rows = connection
        .query_again(sql, &[(&APPLICATION, Type::TEXT), (&ours, Type::INT4_ARRAY)])
        .await?;
    rows.first().map_or(Ok(0), |row| unsigned(row, 0))
}

/// The result of a user's query, whose first column must be boolean. No row and null mean false.
pub async fn truth(connection: &Connection, sql: &str) -> LiveResult<bool> {
    match first_field(connection, sql).await?.as_deref() {
        Some("t") => Ok(true),
        Some("f") | None => Ok(false),
        Some(other) => {
            Err(LiveError::Refused(format!("it returned \"{other}\" instead of true or false")))
        }
    }
}

/// Returns the first field. A query that returns too many rows is cancelled, because it may never end.
async fn first_field(connection: &Connection, sql: &str) -> LiveResult<Option<String>> {
    let (first, has_more) = connection.client().query_of_user(sql, MOST_ROWS).await?;
    if has_more {
        // if cancelling fails, the query ends with the connection
        let _ = connection.canceller().cancel().await;
        return Err(LiveError::Unexpected(format!(
            "more than {MOST_ROWS} rows, where one is enough"
        )));
    }
    match first {
        Some(row) => Ok(row.try_get(0)?.map(str::to_owned)),
        None => Ok(None),
    }
}

/// A command that rewrites a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rewrite {
    pub(crate) table: String,
    /// The command and who runs it, for messages.
    pub(crate) text: String,
}

/// The commands that are rewriting some of these tables or their TOAST relations: VACUUM FULL, CLUSTER, or REPACK in 19
/// and later. If this user may not see the relations in the progress view, they are recognized by the locks of the
/// processes.
pub(crate) async fn rewrites(
    connection: &Connection,
    oids: &[Oid],
) -> LiveResult<HashMap<Oid, Rewrite>> {
    // the view was renamed in 19; the old one reports REPACK under the old commands' names
    const REPACK: u32 = 190_000;
    let view = if connection.server_version() >= REPACK {
        "pg_stat_progress_repack"
    } else {
        "pg_stat_progress_cluster"
    };
    let sql = format!(
        "SELECT pg_catalog.format('%I.%I', c.nspname, c.relname), \
                pg_catalog.format('%s of this table is under way (PID %s, user %s)', \
                  CASE WHEN h.shares THEN 'REPACK (CONCURRENTLY)' \
                       ELSE coalesce(p.command, 'a rewrite') END, p.pid, coalesce(a.usename::pg_catalog.text, '-')), \
                c.oid \
         FROM (SELECT c.oid, n.nspname, c.relname, c.oid || {TOAST_RELATIONS} AS all \
               FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
               WHERE c.oid = ANY ($1)) AS c, pg_catalog.{view} AS p \
         LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = p.pid, \
         LATERAL (SELECT count(*) > 0 AS has, \
                         coalesce(pg_catalog.bool_or(l.mode = 'ShareUpdateExclusiveLock'), false) AS shares \
                  FROM pg_catalog.pg_locks AS l \
                  WHERE l.pid = p.pid AND l.locktype = 'relation' AND l.granted AND l.database = p.datid \
                    AND l.relation = ANY (c.all) \
                    AND l.mode IN ('ShareUpdateExclusiveLock', 'AccessExclusiveLock')) AS h \
         WHERE p.datname = pg_catalog.current_database() \
           AND (p.relid = ANY (c.all) OR p.relid IS NULL AND h.has) ORDER BY p.pid"
    );
    let mut rewrites = HashMap::new();
    for row in connection.query_again(&sql, &[(&numbers(oids), Type::OID_ARRAY)]).await? {
        let rewrite = Rewrite { table: row.try_get(0)?, text: row.try_get(1)? };
        rewrites.entry(Oid(row.try_get(2)?)).or_insert(rewrite);
    }
    Ok(rewrites)
}

pub async fn max_wal_size(client: &Client) -> LiveResult<u64> {
    let sql = "SELECT pg_catalog.pg_size_bytes(pg_catalog.current_setting('max_wal_size'))";
    unsigned(&single_row(client, sql, &[]).await?, 0)
}

/// Which pages are written to the WAL as a whole, and the position in the WAL at which the last checkpoint began. The server
/// does not say where one began that is still in progress: for that, it is the present position.
pub(crate) async fn images(client: &Client) -> LiveResult<(Images, u64)> {
    let sql = "SELECT pg_catalog.current_setting('full_page_writes')::pg_catalog.bool, \
                      (pg_catalog.pg_size_bytes(pg_catalog.current_setting('max_wal_size')) \
                       / (1 + pg_catalog.current_setting('checkpoint_completion_target')::pg_catalog.float8))\
                      ::pg_catalog.int8, \
                      pg_catalog.pg_wal_lsn_diff(CASE WHEN EXISTS (\
                        SELECT FROM pg_catalog.pg_stat_get_activity(NULL) AS a \
                        WHERE a.backend_type = 'checkpointer' AND NOT pg_catalog.pg_is_in_recovery() \
                          AND a.wait_event IS DISTINCT FROM 'CheckpointerMain') \
                      THEN pg_catalog.pg_current_wal_insert_lsn() ELSE c.redo_lsn END, '0/0')\
                      ::pg_catalog.int8 \
               FROM pg_catalog.pg_control_checkpoint() AS c";
    // a user who may not call the function sees no certain images
    let row = match single_row(client, sql, &[]).await {
        Err(LiveError::Server(error)) if error.as_db_error().is_some() => {
            return Ok((Images { are_written: true, distance: None }, 0));
        }
        row => row?,
    };
    let images = Images { are_written: row.try_get(0)?, distance: Some(unsigned(&row, 1)?) };
    Ok((images, unsigned(&row, 2)?))
}

/// For each table, the directories in which it, its TOAST relation, their indexes and the WAL grow, the data directory
/// first. Returns none unless this process sees the server's file system, which is assumed if the connection is through a
/// Unix socket and the local data directory has the same modification time as the server reports.
pub(crate) async fn directories(
    client: &Client,
    oids: &[Oid],
) -> LiveResult<HashMap<Oid, Vec<Directory>>> {
    let seen = "SELECT pg_catalog.inet_server_addr() IS NULL \
                AND pg_catalog.pg_has_role('pg_read_all_settings', 'USAGE') \
                AND pg_catalog.has_function_privilege('pg_catalog.pg_stat_file(text)', 'EXECUTE')";
    if !single_row(client, seen, &[]).await?.try_get::<_, bool>(0)? {
        return Ok(HashMap::new());
    }
    let data = "SELECT pg_catalog.current_setting('data_directory'), \
                extract(epoch FROM modification)::pg_catalog.int8 FROM pg_catalog.pg_stat_file('.')";
    let row = single_row(client, data, &[]).await?;
    let data = PathBuf::from(row.try_get::<_, String>(0)?);
    let changed: i64 = row.try_get(1)?;
    if std::fs::metadata(&data).map(|here| here.mtime()).ok() != Some(changed) {
        return Ok(HashMap::new());
    }
    let spaces = format!(
        "SELECT pg_catalog.pg_tablespace_location(coalesce(nullif(\
         s.reltablespace, 0), d.dattablespace)), \
         sum(coalesce(pg_catalog.pg_relation_size(s.oid), 0))::pg_catalog.int8, \
         pg_catalog.bool_or(s.oid = t.oid), c.oid \
         FROM pg_catalog.pg_class AS c, pg_catalog.pg_database AS d, \
         LATERAL pg_catalog.unnest(c.oid || {TOAST_RELATIONS}) AS t (oid), \
         LATERAL (SELECT t.oid UNION ALL SELECT i.indexrelid FROM pg_catalog.pg_index AS i \
           WHERE i.indrelid = t.oid) AS part, pg_catalog.pg_class AS s \
         WHERE c.oid = ANY ($1) AND d.datname = pg_catalog.current_database() AND s.oid = part.oid \
         GROUP BY c.oid, 1"
    );
    let servers = [
        Directory { path: data.clone(), parts: 0, values: false, wal: false },
        Directory { path: data.join("pg_wal"), parts: 0, values: false, wal: true },
    ];
    let mut all: HashMap<Oid, Vec<Directory>> =
        oids.iter().map(|&oid| (oid, servers.to_vec())).collect();
    for row in client.query_typed(&spaces, &[(&numbers(oids), Type::OID_ARRAY)]).await? {
        let path: String = row.try_get(0)?;
        let parts: u64 = unsigned(&row, 1)?;
        let values = row.try_get(2)?;
        let places = all.entry(Oid(row.try_get(3)?)).or_default();
        if path.is_empty()
            && let Some(data) = places.first_mut()
        {
            data.parts = parts;
            data.values = values;
        } else {
            places.push(Directory { path: PathBuf::from(path), parts, values, wal: false });
        }
    }
    Ok(all)
}

/// How long a batch may leave its transaction idle between statements: 5 s, or more if round trips are slow, but not
/// longer than the server allows every session.
pub async fn idle_limit(client: &Client, round_trip: Duration) -> LiveResult<Duration> {
    const LEAST: Duration = Duration::from_secs(5);
    const ROUND_TRIPS: u32 = 20;
    // in milliseconds; the value from before this program changed it in its session
    let sql = "SELECT reset_val::pg_catalog.int8 FROM pg_catalog.pg_settings \
               WHERE name = 'idle_in_transaction_session_timeout'";
    let servers = Duration::from_millis(unsigned(&single_row(client, sql, &[]).await?, 0)?);
    let wanted = LEAST.max(round_trip * ROUND_TRIPS);
    Ok(if servers.is_zero() { wanted } else { wanted.min(servers) })
}

/// What the size of WAL records and the room in TOAST relations depend on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Logged {
    /// Whether the replica identity is full.
    pub(crate) identity_full: bool,
    /// Dead chunks in the TOAST relation, by the statistics.
    pub(crate) dead_chunks: f64,
}

/// Reads this of tables; those that were dropped are missing.
pub(crate) async fn logged(client: &Client, oids: &[Oid]) -> LiveResult<HashMap<Oid, Logged>> {
    // to_jsonb, because a server with pluggable TOAST has no reltoastrelid
    let sql = "SELECT c.oid, c.relreplident = 'f', coalesce(pg_catalog.pg_stat_get_dead_tuples(\
                 (pg_catalog.to_jsonb(c) ->> 'reltoastrelid')::pg_catalog.oid), 0)::pg_catalog.float8 \
               FROM pg_catalog.pg_class AS c WHERE c.oid = ANY ($1)";
    let rows = client.query_typed(sql, &[(&numbers(oids), Type::OID_ARRAY)]).await?;
    let mut found = HashMap::new();
    for row in &rows {
        let logged = Logged { identity_full: row.try_get(1)?, dead_chunks: row.try_get(2)? };
        found.insert(Oid(row.try_get(0)?), logged);
    }
    Ok(found)
}

/// Those of these tables of which an index contains a chosen column.
pub(crate) async fn covered(
    client: &Client,
    tables: &[&PreparedTable],
) -> LiveResult<HashSet<Oid>> {
    let mut oids: Vec<u32> = Vec::new();
    let mut columns: Vec<i16> = Vec::new();
    for ready in tables {
        for target in &ready.targets {
            oids.push(ready.relation.oid.0);
            columns.push(i16::try_from(target.index + 1).unwrap_or(i16::MAX));
        }
    }
    let parameters: [Parameter<'_>; 2] = [(&oids, Type::OID_ARRAY), (&columns, Type::INT2_ARRAY)];
    let rows = client.query_typed(COVERED, &parameters).await?;
    rows.iter().map(|row| Ok(Oid(row.try_get(0)?))).collect()
}

/// The names of each table's TOAST relations, and whether this user may name them in a command; tables without any are
/// missing.
pub(crate) async fn toast_names(
    connection: &Connection,
    oids: &[Oid],
) -> LiveResult<HashMap<Oid, (Option<String>, bool)>> {
    let parameters: [Parameter<'_>; 1] = [(&numbers(oids), Type::OID_ARRAY)];
    let rows = connection.query_again(&sql::vacuum::names(), &parameters).await?;
    let mut names = HashMap::new();
    for row in &rows {
        names.insert(Oid(row.try_get(2)?), (row.try_get(0)?, row.try_get(1)?));
    }
    Ok(names)
}

/// The facts about the surroundings of tables on which a plan depends; tables that are not in `logged` are missing.
pub(crate) async fn surroundings(
    client: &Client,
    tables: &[&PreparedTable],
    logged: &HashMap<Oid, Logged>,
) -> LiveResult<HashMap<Oid, Surroundings>> {
    let mut common = Surroundings::default();
    let sql = "SELECT slot_name::pg_catalog.text FROM pg_catalog.pg_replication_slots \
               WHERE slot_type = 'logical' AND database = pg_catalog.current_database() ORDER BY 1";
    for row in client.query_typed(sql, &[]).await? {
        common.logical_slots.push(row.try_get(0)?);
    }
    if sees_others(client).await? {
        let sql = "SELECT count(*) FROM pg_catalog.pg_stat_replication AS r \
                   WHERE r.state IN ('catchup', 'streaming') AND NOT EXISTS (\
                     SELECT FROM pg_catalog.pg_replication_slots AS s \
                     WHERE s.active_pid = r.pid AND s.slot_type = 'logical')";
        common.replicas = Some(unsigned(&single_row(client, sql, &[]).await?, 0)?);
    }
    isolation(client, &mut common).await?;
    let oids: Vec<Oid> = tables.iter().map(|ready| ready.relation.oid).collect();
    let mut triggers = UpdateTriggers::ask(client, &oids).await?;
    let mut publications = publications(client, &oids).await?;
    let mut around = HashMap::new();
    for ready in tables {
        let oid = ready.relation.oid;
        let Some(logged) = logged.get(&oid) else { continue };
        let mut firing = Vec::new();
        for (name, enabled) in triggers.remove(&oid).unwrap_or_default().triggers {
            let fires = match enabled.as_str() {
                "A" => true,
                "R" => ready.replica_role,
                _ => !ready.replica_role,
            };
            firing.push((name, fires));
        }
        let own = Surroundings {
            triggers: firing,
            identity_full: logged.identity_full,
            publications: publications.remove(&oid).unwrap_or_default(),
            ..common.clone()
        };
        around.insert(oid, own);
    }
    Ok(around)
}

/// The publications that publish updates of tables.
async fn publications(client: &Client, oids: &[Oid]) -> LiveResult<HashMap<Oid, Vec<String>>> {
    let sql = "SELECT c.oid, p.pubname::pg_catalog.text FROM pg_catalog.pg_publication AS p \
               JOIN pg_catalog.pg_publication_tables AS t USING (pubname) \
               JOIN pg_catalog.pg_namespace AS n ON n.nspname = t.schemaname \
               JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = t.tablename \
               WHERE p.pubupdate AND c.oid = ANY ($1) ORDER BY 2";
    let mut found: HashMap<Oid, Vec<String>> = HashMap::new();
    for row in client.query_typed(sql, &[(&numbers(oids), Type::OID_ARRAY)]).await? {
        found.entry(Oid(row.try_get(0)?)).or_default().push(row.try_get(1)?);
    }
    Ok(found)
}

/// Clients with an isolation level other than read committed. No view shows the level of a session. Serializable
/// transactions are recognized by their predicate locks, repeatable read transactions by the snapshot that they keep
/// between statements, and the defaults show what to expect of the rest.
async fn isolation(client: &Client, around: &mut Surroundings) -> LiveResult<()> {
    let sql = "SELECT count(DISTINCT pid) FROM pg_catalog.pg_locks WHERE mode = 'SIReadLock' \
               AND database = (SELECT oid FROM pg_catalog.pg_database \
                               WHERE datname = pg_catalog.current_database())";
    around.serializable = unsigned(&single_row(client, sql, &[]).await?, 0)?;
    let sql = "SELECT count(*) FROM pg_catalog.pg_stat_activity \
               WHERE datname = pg_catalog.current_database() AND state = 'idle in transaction' \
               AND backend_xmin IS NOT NULL AND NOT pg_catalog.starts_with(application_name, $1)";
    let rows = client.query_typed(sql, &[(&APPLICATION, Type::TEXT)]).await?;
    around.holding_snapshots = rows.first().map_or(Ok(0), |row| unsigned(row, 0))?;
    let sql = "SELECT pg_catalog.concat_ws(' in ', \
                 CASE WHEN s.setrole <> 0 THEN pg_catalog.format('role %I', r.rolname) END, \
                 CASE WHEN s.setdatabase <> 0 THEN 'this database' END) \
               || ': ' || pg_catalog.split_part(c, '=', 2) \
               FROM pg_catalog.pg_db_role_setting AS s \
               LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = s.setrole, \
               pg_catalog.unnest(s.setconfig) AS c \
               WHERE s.setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database \
                                           WHERE datname = pg_catalog.current_database())) \
               AND c ~ '^default_transaction_isolation=(repeatable read|serializable)$' \
               UNION ALL SELECT 'the server: ' || s.reset_val FROM pg_catalog.pg_settings AS s \
               WHERE s.name = 'default_transaction_isolation' \
               AND s.source NOT IN ('database', 'user', 'database user') \
               AND s.reset_val IN ('repeatable read', 'serializable') ORDER BY 1";
    for row in client.query_typed(sql, &[]).await? {
        around.isolation_defaults.push(row.try_get(0)?);
    }
    Ok(())
}

/// The wait of a server process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerWait {
    /// `wait_event_type` and `wait_event`, joined.
    event: String,
    /// The process that waits.
    pid: i32,
    /// The sessions that hold the lock. The server does not report who holds a buffer pin.
    holders: Vec<String>,
}

impl ServerWait {
    /// Whether it waits for a lock on a relation, so that other sessions queue behind it.
    pub(crate) fn is_for_relation(&self) -> bool {
        self.event == "Lock relation"
    }

    pub(crate) fn text(&self) -> String {
        let waits = format!("process {} waits for {}", self.pid, self.event);
        if self.holders.is_empty() {
            waits
        } else {
            format!("{waits}, held by {}", self.holders.join(", "))
        }
    }
}

/// The wait of the server process `pid`, if only another session can end it: for a lock or for a buffer pin. The
/// latter is the event BufferCleanup in 19 and later; other events of its type end without another session's help.
pub(crate) async fn wait_of(client: &Client, pid: i32) -> LiveResult<Option<ServerWait>> {
    let sql = "SELECT a.wait_event_type || ' ' || a.wait_event, pg_catalog.pg_blocking_pids(a.pid) \
               FROM pg_catalog.pg_stat_get_activity($1) AS a \
               WHERE a.state = 'active' AND (a.wait_event_type IN ('BufferPin', 'Lock') \
                 OR a.wait_event = 'BufferCleanup')";
    let Some(row) = client.row(sql, &[(&pid, Type::INT4)]).await? else { return Ok(None) };
    let pids: Vec<i32> = row.try_get(1)?;
    let holders =
        if pids.is_empty() { Vec::new() } else { holders::of_processes(client, &pids).await? };
    Ok(Some(ServerWait { event: row.try_get(0)?, pid, holders }))
}

/// A server process that waits for a lock held by `pid`, or for its transaction.
pub(crate) async fn kept_waiting(client: &Client, pid: i32) -> LiveResult<Option<i32>> {
    let sql = "SELECT w.pid FROM (SELECT DISTINCT l.pid FROM pg_catalog.pg_locks AS l \
                 WHERE NOT l.granted AND l.pid <> $1) AS w \
               WHERE $1 = ANY (pg_catalog.pg_blocking_pids(w.pid)) ORDER BY w.pid LIMIT 1";
    Ok(client.value(sql, &[(&pid, Type::INT4)]).await?)
}

/// Whether a process waits for the transaction of `pid` to end, as REINDEX CONCURRENTLY waits for older snapshots.
pub(crate) async fn is_waited_for(client: &Client, pid: i32) -> LiveResult<bool> {
    Ok(client.value(
            "SELECT count(*) > 0 FROM pg_catalog.pg_locks AS w JOIN pg_catalog.pg_locks AS h \
               ON h.virtualxid = w.virtualxid AND h.granted \
             WHERE w.locktype = 'virtualxid' AND NOT w.granted AND h.locktype = 'virtualxid' AND h.pid = $1",
            &[(&pid, Type::INT4)],
        ).await?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_a_lock_is_named() {
        let mut wait =
            ServerWait { event: "BufferPin BufferPin".into(), pid: 7, holders: Vec::new() };
        assert_eq!(wait.text(), "process 7 waits for BufferPin BufferPin");
        wait.holders = vec!["session 8 (user a, b)".into(), "session 9".into()];
        assert_eq!(
            wait.text(),
            "process 7 waits for BufferPin BufferPin, held by session 8 (user a, b), session 9"
        );
    }
}
