//! Many relations at once: their files and what they are parts of, for a plan of what is read when.

use std::collections::HashSet;

use tokio_postgres::error::SqlState;
use tokio_postgres::types::{Oid as PgOid, Type};

use super::LiveError;
use super::connect::{Client, Connection};
use super::locks;
use super::toasters::TOAST_RELATIONS;
use crate::disk::Oid;

/// How long the sizes wait for a lock that came since the locks were looked at.
const PATIENCE: &str = "SET LOCAL lock_timeout = '300ms'";
/// How often the locks are looked at anew before the catalog's own sizes have to do.
const TRIES: usize = 3;

/// A relation as the catalog lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) oid: Oid,
    /// `schema.name` as messages show it.
    pub(crate) name: String,
    /// Bytes of heap, TOAST relation and its index; where the files could not be looked at without waiting, those
    /// of the last VACUUM.
    pub(crate) bytes: u64,
    /// Those of the heap alone.
    pub(crate) heap_bytes: u64,
    /// Rows read through indexes, which toastctl never does, as the statistics have it.
    pub(crate) rows_read: u64,
    /// Dead rows of the heap and of the TOAST relation, as the statistics have it.
    pub(crate) dead_rows: u64,
    /// Whether somebody has it, its TOAST relation or an index of theirs locked against readers.
    pub(crate) locked: bool,
    /// The topmost of the tables that it is a partition or an inheritance child of: OID and `schema.name`.
    pub(crate) root: Option<(Oid, String)>,
}

/// Lists these relations; those that were dropped meanwhile are missing. Waits for no lock for long.
pub(crate) async fn list(connection: &Connection, oids: &[Oid]) -> Result<Vec<Listed>, LiveError> {
    for _ in 0..TRIES {
        let ask = async || {
            let client = connection.client();
            client.batch_execute(PATIENCE).await?;
            let locked = locks::exclusive(client).await?;
            ask(client, oids, Some(&locked)).await
        };
        match connection.reading(ask).await {
            Err(LiveError::Server(error))
                if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {}
            other => return other,
        }
    }
    let ask = async || ask(connection.client(), oids, None).await;
    connection.reading(ask).await
}

/// Bytes of the database's files; `None` where this user may not ask.
pub(crate) async fn database_bytes(connection: &Connection) -> Result<Option<u64>, LiveError> {
    let sql = "SELECT CASE WHEN pg_catalog.has_database_privilege(d.oid, 'CONNECT') \
                    THEN pg_catalog.pg_database_size(d.oid) END \
               FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database()";
    let ask = async || {
        let rows = connection.client().query_typed(sql, &[]).await?;
        let bytes: Option<i64> = rows.first().map(|row| row.try_get(0)).transpose()?.flatten();
        Ok::<_, LiveError>(bytes.and_then(|bytes| u64::try_from(bytes).ok()))
    };
    connection.reading(ask).await
}

/// `locked`: the relations of which no size can be asked; `None`: all.
async fn ask(
    client: &Client,
    oids: &[Oid],
    locked: Option<&HashSet<Oid>>,
) -> Result<Vec<Listed>, LiveError> {
    // pg_relation_size waits for whoever has the relation locked
    let sql = format!(
        "WITH RECURSIVE wanted (oid) AS (SELECT pg_catalog.unnest($1)), \
           up (oid, parent, depth) AS ( \
             SELECT w.oid, i.inhparent, 1 FROM wanted AS w \
             JOIN pg_catalog.pg_inherits AS i ON i.inhrelid = w.oid AND i.inhseqno = 1 \
           UNION ALL \
             SELECT u.oid, i.inhparent, u.depth + 1 FROM up AS u \
             JOIN pg_catalog.pg_inherits AS i ON i.inhrelid = u.parent AND i.inhseqno = 1), \
           roots (oid, root) AS ( \
             SELECT DISTINCT ON (oid) oid, parent FROM up ORDER BY oid, depth DESC), \
           files AS MATERIALIZED ( \
             SELECT c.oid, n.nspname, c.relname, c.relpages, t.oid AS toast, x.indexrelid AS toast_index, \
                    coalesce(t.relpages, 0) + coalesce(xc.relpages, 0) AS toast_pages, \
                    c.oid = ANY ($2) OR coalesce(t.oid = ANY ($2), false) \
                      OR coalesce(x.indexrelid = ANY ($2), false) \
                      OR EXISTS (SELECT FROM pg_catalog.pg_index AS ci \
                                 WHERE ci.indrelid = c.oid AND ci.indexrelid = ANY ($2)) AS locked \
             FROM wanted AS w JOIN pg_catalog.pg_class AS c ON c.oid = w.oid \
             JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
             LEFT JOIN pg_catalog.pg_class AS t ON t.oid = ({TOAST_RELATIONS})[1] \
             LEFT JOIN pg_catalog.pg_index AS x ON x.indrelid = t.oid AND x.indisvalid \
             LEFT JOIN pg_catalog.pg_class AS xc ON xc.oid = x.indexrelid) \
         SELECT f.oid, pg_catalog.concat(f.nspname, '.', f.relname)::pg_catalog.text, f.locked, \
                CASE WHEN NOT f.locked AND $3 THEN \
                  coalesce(pg_catalog.pg_relation_size(f.oid), 0) \
                ELSE f.relpages::pg_catalog.int8 * b.size END, \
                CASE WHEN NOT f.locked AND $3 THEN \
                  coalesce(pg_catalog.pg_relation_size(f.toast), 0) \
                  + coalesce(pg_catalog.pg_relation_size(f.toast_index), 0) \
                ELSE f.toast_pages::pg_catalog.int8 * b.size END, \
                r.root, pg_catalog.concat(rn.nspname, '.', rc.relname)::pg_catalog.text, \
                (pg_catalog.pg_stat_get_tuples_fetched(f.oid) \
                 + coalesce((SELECT pg_catalog.sum(pg_catalog.pg_stat_get_tuples_fetched(i.indexrelid)) \
                             FROM pg_catalog.pg_index AS i WHERE i.indrelid = f.oid), 0))::pg_catalog.int8, \
                coalesce(pg_catalog.pg_stat_get_dead_tuples(f.oid), 0) \
                  + coalesce(pg_catalog.pg_stat_get_dead_tuples(f.toast), 0) \
         FROM files AS f CROSS JOIN (SELECT pg_catalog.current_setting('block_size') \
                                            ::pg_catalog.int8) AS b (size) \
         LEFT JOIN roots AS r ON r.oid = f.oid \
         LEFT JOIN pg_catalog.pg_class AS rc ON rc.oid = r.root \
         LEFT JOIN pg_catalog.pg_namespace AS rn ON rn.oid = rc.relnamespace"
    );
    let wanted: Vec<PgOid> = oids.iter().map(|oid| oid.0).collect();
    let out_of_reach: Vec<PgOid> = locked.into_iter().flatten().map(|oid| oid.0).collect();
    let sizes = locked.is_some();
    let rows = client
        .query_typed(
            &sql,
            &[(&wanted, Type::OID_ARRAY), (&out_of_reach, Type::OID_ARRAY), (&sizes, Type::BOOL)],
        )
        .await?;
    let mut listed = Vec::with_capacity(rows.len());
    let mut seen = HashSet::new();
    for row in &rows {
        let oid = Oid(row.try_get::<_, PgOid>(0)?);
        if !seen.insert(oid) {
            continue;
        }
        let number = |index| -> Result<u64, LiveError> {
            Ok(u64::try_from(row.try_get::<_, i64>(index)?).unwrap_or(0))
        };
        let heap_bytes = number(3)?;
        let root = row.try_get::<_, Option<PgOid>>(5)?;
        listed.push(Listed {
            oid,
            name: row.try_get(1)?,
            locked: row.try_get(2)?,
            bytes: heap_bytes.saturating_add(number(4)?),
            heap_bytes,
            rows_read: number(7)?,
            dead_rows: number(8)?,
            root: root.map(|root| Ok::<_, LiveError>((Oid(root), row.try_get(6)?))).transpose()?,
        });
    }
    Ok(listed)
}
