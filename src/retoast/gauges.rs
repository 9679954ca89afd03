//! The queries that measure: sizes, WAL, replicas, sessions, snapshots, free space.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row, SimpleQueryMessage};

use super::manners::{Free, Holder, Replica};
use super::plan::Surroundings;
use super::result::Sizes;
use crate::disk::Oid;
use crate::source::connect::Connection;
use crate::source::live::LiveError;
use crate::source::live::catalog::Relation;
use crate::source::live::toasters::TOAST_RELATIONS;
use crate::source::sql::quote_identifier;

/// `application_name` of this program's sessions begins so.
pub const APPLICATION: &str = "toastctl retoast";

/// As [`one`], for what is asked again and again.
async fn one_again(connection: &Connection, sql: &str) -> Result<Row, LiveError> {
    let mut rows = connection.query_again(sql, &[]).await?;
    rows.pop().ok_or_else(|| LiveError::Unexpected("no row".to_owned()))
}

async fn one(client: &Client, sql: &str) -> Result<Row, LiveError> {
    let mut rows = client.query_typed(sql, &[]).await?;
    rows.pop().ok_or_else(|| LiveError::Unexpected("no row".to_owned()))
}

fn unsigned(row: &Row, at: usize) -> Result<u64, LiveError> {
    Ok(u64::try_from(row.try_get::<_, i64>(at)?).unwrap_or(0))
}

/// Position of the WAL: bytes written since the cluster was made.
pub async fn wal(connection: &Connection) -> Result<u64, LiveError> {
    let sql = "SELECT pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), '0/0')\
               ::pg_catalog.int8";
    unsigned(&one_again(connection, sql).await?, 0)
}

/// Sizes of a table's parts.
pub async fn sizes(connection: &Connection, oid: Oid) -> Result<Sizes, LiveError> {
    let sql = format!(
        "SELECT coalesce(pg_catalog.pg_relation_size(c.oid), 0), \
                coalesce(t.heap, 0)::pg_catalog.int8, \
                (coalesce(pg_catalog.pg_indexes_size(c.oid), 0) \
                 + coalesce(t.indexes, 0))::pg_catalog.int8 \
         FROM pg_catalog.pg_class AS c, \
         LATERAL (SELECT sum(pg_catalog.pg_relation_size(o)) AS heap, \
                         sum(pg_catalog.pg_indexes_size(o)) AS indexes \
                  FROM pg_catalog.unnest({TOAST_RELATIONS}) AS o) AS t \
         WHERE c.oid = $1"
    );
    let rows = connection.query_again(&sql, &[(&oid.0, Type::OID)]).await?;
    let row = rows.first().ok_or_else(|| no_relation(oid))?;
    Ok(Sizes { heap: unsigned(row, 0)?, toast: unsigned(row, 1)?, indexes: unsigned(row, 2)? })
}

/// Bytes of a table's heap.
pub async fn heap(client: &Client, oid: Oid) -> Result<u64, LiveError> {
    let sql = "SELECT pg_catalog.pg_relation_size(oid) FROM pg_catalog.pg_class WHERE oid = $1";
    let rows = client.query_typed(sql, &[(&oid.0, Type::OID)]).await?;
    unsigned(rows.first().ok_or_else(|| no_relation(oid))?, 0)
}

fn no_relation(oid: Oid) -> LiveError {
    LiveError::NoSuchRelation(quote_identifier(&oid.0.to_string()))
}

/// The number of a table's file, which a rewrite of the table changes.
pub async fn filenode(client: &Client, oid: Oid) -> Result<u32, LiveError> {
    let sql = "SELECT coalesce(pg_catalog.pg_relation_filenode($1), 0)::pg_catalog.oid";
    let rows = client.query_typed(sql, &[(&oid.0, Type::OID)]).await?;
    Ok(rows.first().map_or(Ok(0), |row| row.try_get(0))?)
}

/// Whether this user sees what other sessions do, and how far replicas are.
pub async fn sees_others(client: &Client) -> Result<bool, LiveError> {
    let sql = "SELECT pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')";
    Ok(one(client, sql).await?.try_get(0)?)
}

/// Streaming replicas and logical subscribers that are connected.
pub async fn replicas(connection: &Connection) -> Result<Vec<Replica>, LiveError> {
    let sql = "SELECT application_name, coalesce(client_addr::pg_catalog.text, 'local socket'), \
                      pg_catalog.pg_wal_lsn_diff(replay_lsn, '0/0')::pg_catalog.int8, \
                      extract(epoch FROM replay_lag)::pg_catalog.float8 \
               FROM pg_catalog.pg_stat_replication \
               WHERE state IN ('catchup', 'streaming') AND replay_lsn IS NOT NULL";
    let mut replicas = Vec::new();
    for row in connection.query_again(sql, &[]).await? {
        let (name, place): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let seconds: Option<f64> = row.try_get(3)?;
        replicas.push(Replica {
            name: format!("{} ({place})", quote_identifier(&name)),
            replayed: unsigned(&row, 2)?,
            reported: seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()),
        });
    }
    Ok(replicas)
}

/// The process that serves this connection.
pub async fn backend(client: &Client) -> Result<i32, LiveError> {
    Ok(one(client, "SELECT pg_catalog.pg_backend_pid()").await?.try_get(0)?)
}

/// Client sessions at work, those of this program and those of the processes `ours` not counted: the
/// user may have given them another name.
pub async fn active_sessions(connection: &Connection, ours: &[i32]) -> Result<u64, LiveError> {
    let sql = "SELECT count(*) FROM pg_catalog.pg_stat_activity \
               WHERE state = 'active' AND backend_type = 'client backend' \
               AND pid <> pg_catalog.pg_backend_pid() AND pid <> ALL ($2) \
               AND NOT pg_catalog.starts_with(application_name, $1)";
    let rows = connection
        .query_again(sql, &[(&APPLICATION, Type::TEXT), (&ours, Type::INT4_ARRAY)])
        .await?;
    rows.first().map_or(Ok(0), |row| unsigned(row, 0))
}

/// What a query of the user's says: its first column of its first row must be a boolean. No row and
/// null are false.
pub async fn truth(client: &Client, sql: &str) -> Result<bool, LiveError> {
    match first_field(client, sql).await?.as_deref() {
        Some("t") => Ok(true),
        Some("f") | None => Ok(false),
        Some(other) => Err(LiveError::Unexpected(format!(
            "the throttle query gave \"{other}\", not true or false"
        ))),
    }
}

/// What a query of the user's says of free space, in bytes.
pub async fn free_by_query(client: &Client, sql: &str) -> Result<Free, LiveError> {
    let text = first_field(client, sql).await?.unwrap_or_default();
    let bytes = text.trim().parse().map_err(|_| {
        LiveError::Unexpected(format!("the free space query gave \"{text}\", no number of bytes"))
    })?;
    Ok(Free { bytes, place: "by --free-space-query".to_owned() })
}

async fn first_field(client: &Client, sql: &str) -> Result<Option<String>, LiveError> {
    for message in client.simple_query(sql).await? {
        if let SimpleQueryMessage::Row(row) = message {
            return Ok(row.try_get(0)?.map(str::to_owned));
        }
    }
    Ok(None)
}

/// What holds back most what vacuum may remove from tables of this database
/// (`ComputeXidHorizons`, procarray.c).
pub async fn holder(connection: &Connection) -> Result<Option<Holder>, LiveError> {
    let sql = "SELECT age::pg_catalog.int8, who FROM (\
        SELECT greatest(pg_catalog.age(backend_xmin), pg_catalog.age(backend_xid)) AS age, \
               pg_catalog.format('session %s (user %s, %s, in a transaction for %s s)', pid, \
                 coalesce(usename::pg_catalog.text, '-'), \
                 coalesce(nullif(application_name, ''), backend_type), \
                 coalesce(extract(epoch FROM pg_catalog.clock_timestamp() - xact_start)\
                   ::pg_catalog.int8::pg_catalog.text, '?')) AS who \
        FROM pg_catalog.pg_stat_activity \
        WHERE pid <> pg_catalog.pg_backend_pid() AND backend_type <> 'autovacuum worker' \
          AND (datname = pg_catalog.current_database() OR backend_type = 'walsender') \
        UNION ALL \
        SELECT pg_catalog.age(xmin), \
               pg_catalog.format('replication slot %I', slot_name) \
        FROM pg_catalog.pg_replication_slots \
        UNION ALL \
        SELECT pg_catalog.age(transaction), pg_catalog.format('prepared transaction %L', gid) \
        FROM pg_catalog.pg_prepared_xacts WHERE database = pg_catalog.current_database()) AS held \
        WHERE age IS NOT NULL ORDER BY age DESC LIMIT 1";
    let rows = connection.query_again(sql, &[]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some(Holder { age: unsigned(row, 0)?, who: row.try_get(1)? }))
}

/// Minutes since midnight by the server's clock in the session's time zone.
pub async fn minute(connection: &Connection) -> Result<u16, LiveError> {
    let sql = "SELECT (extract(hour FROM localtime) * 60 + extract(minute FROM localtime))\
               ::pg_catalog.int4";
    let minute: i32 = one_again(connection, sql).await?.try_get(0)?;
    Ok(u16::try_from(minute).unwrap_or(0))
}

/// `max_wal_size` in bytes.
pub async fn max_wal_size(client: &Client) -> Result<u64, LiveError> {
    let sql = "SELECT pg_catalog.pg_size_bytes(pg_catalog.current_setting('max_wal_size'))";
    unsigned(&one(client, sql).await?, 0)
}

/// The directories in which a table, its TOAST relation, their indexes and the WAL grow, where this
/// process sees the server's file system: the connection is by a Unix socket, and the data directory
/// here was changed at the very second that the server says. `None` where it cannot be told.
pub async fn directories(client: &Client, oid: Oid) -> Result<Option<Vec<PathBuf>>, LiveError> {
    let seen = "SELECT pg_catalog.inet_server_addr() IS NULL \
                AND pg_catalog.pg_has_role('pg_read_all_settings', 'USAGE') \
                AND pg_catalog.has_function_privilege('pg_catalog.pg_stat_file(text)', 'EXECUTE')";
    if !one(client, seen).await?.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let data = "SELECT pg_catalog.current_setting('data_directory'), \
                extract(epoch FROM modification)::pg_catalog.int8 FROM pg_catalog.pg_stat_file('.')";
    let row = one(client, data).await?;
    let data = PathBuf::from(row.try_get::<_, String>(0)?);
    let changed: i64 = row.try_get(1)?;
    if std::fs::metadata(&data).map(|here| here.mtime()).ok() != Some(changed) {
        return Ok(None);
    }
    let spaces = format!(
        "SELECT DISTINCT pg_catalog.pg_tablespace_location(coalesce(nullif(\
         s.reltablespace, 0), d.dattablespace)) \
         FROM pg_catalog.pg_class AS c, pg_catalog.pg_database AS d, \
         LATERAL pg_catalog.unnest(c.oid || {TOAST_RELATIONS}) AS t (oid), \
         LATERAL (SELECT t.oid UNION ALL SELECT i.indexrelid FROM pg_catalog.pg_index AS i \
           WHERE i.indrelid = t.oid) AS part, pg_catalog.pg_class AS s \
         WHERE c.oid = $1 AND d.datname = pg_catalog.current_database() AND s.oid = part.oid"
    );
    let mut places = vec![data.clone(), data.join("pg_wal")];
    for row in client.query_typed(&spaces, &[(&oid.0, Type::OID)]).await? {
        let place: String = row.try_get(0)?;
        if !place.is_empty() {
            places.push(PathBuf::from(place));
        }
    }
    Ok(Some(places))
}

/// The least free space of these directories' file systems, for users other than root. A directory
/// that cannot be reached, as `pg_wal` for most users, is left out.
pub fn free_in(places: &[PathBuf]) -> Option<Free> {
    let (bytes, place) = places.iter().filter_map(|place| Some((free_at(place)?, place))).min()?;
    Some(Free { bytes, place: format!("in \"{}\"", place.display()) })
}

fn free_at(place: &Path) -> Option<u64> {
    let told = rustix::fs::statvfs(place).ok()?;
    Some(told.f_bavail.saturating_mul(told.f_frsize))
}

/// What a plan for this table depends on. `replica_role`: ordinary triggers will be silenced.
pub async fn surroundings(
    client: &Client,
    relation: &Relation,
    replica_role: bool,
) -> Result<Surroundings, LiveError> {
    let mut around = Surroundings::default();
    // tgtype: 16 is UPDATE
    let sql = "SELECT tgname::pg_catalog.text, tgenabled::pg_catalog.text \
               FROM pg_catalog.pg_trigger \
               WHERE tgrelid = $1 AND NOT tgisinternal AND tgtype & 16 <> 0 AND tgenabled <> 'D' \
               ORDER BY tgname";
    for row in client.query_typed(sql, &[(&relation.oid.0, Type::OID)]).await? {
        let enabled: String = row.try_get(1)?;
        let fires = match enabled.as_str() {
            "A" => true,
            "R" => replica_role,
            _ => !replica_role,
        };
        around.triggers.push((row.try_get(0)?, fires));
    }
    let sql = "SELECT relreplident = 'f' FROM pg_catalog.pg_class WHERE oid = $1";
    let rows = client.query_typed(sql, &[(&relation.oid.0, Type::OID)]).await?;
    around.identity_full = rows.first().map_or(Ok(false), |row| row.try_get(0))?;
    let sql = "SELECT p.pubname::pg_catalog.text FROM pg_catalog.pg_publication AS p \
               JOIN pg_catalog.pg_publication_tables AS t USING (pubname) \
               WHERE p.pubupdate AND t.schemaname = $1 AND t.tablename = $2 ORDER BY 1";
    let name = [&relation.schema, &relation.name];
    let published =
        client.query_typed(sql, &[(name[0], Type::TEXT), (name[1], Type::TEXT)]).await?;
    for row in published {
        around.publications.push(row.try_get(0)?);
    }
    let sql = "SELECT slot_name::pg_catalog.text FROM pg_catalog.pg_replication_slots \
               WHERE slot_type = 'logical' AND database = pg_catalog.current_database() ORDER BY 1";
    for row in client.query_typed(sql, &[]).await? {
        around.logical_slots.push(row.try_get(0)?);
    }
    if sees_others(client).await? {
        let sql = "SELECT count(*) FROM pg_catalog.pg_stat_replication AS r \
                   WHERE r.state IN ('catchup', 'streaming') AND NOT EXISTS (\
                     SELECT FROM pg_catalog.pg_replication_slots AS s \
                     WHERE s.active_pid = r.pid AND s.slot_type = 'logical')";
        around.replicas = Some(unsigned(&one(client, sql).await?, 0)?);
    }
    Ok(around)
}
