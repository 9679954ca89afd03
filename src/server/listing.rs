//! The files of many relations, and the tables to which they belong, to plan in which order they are read.

use std::collections::HashSet;

use tokio_postgres::Row;
use tokio_postgres::types::{Oid as PgOid, Type};

use super::connect::{Client, Connection};
use super::select::{How, Selected};
use super::toasters::TOAST_RELATIONS;
use super::{LiveError, LiveResult, count_in, locks, numbers};
use toast_format::disk::Oid;
use toast_format::model::sql::shown_qualified;

/// The maximum wait for a lock that was taken after the locks were read.
const PATIENCE: &str = "SET LOCAL lock_timeout = '300ms'";
/// How often the locks are read again before the sizes in the catalog are used instead.
const TRIES: usize = 3;

/// `pg_largeobject`, whose OID is the same in every database.
pub(crate) const LARGE_OBJECTS: Oid = Oid(2613);

/// A relation as listed from the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) oid: Oid,
    /// `schema.name`, as in messages.
    pub(crate) name: String,
    /// The size of heap, TOAST relation and TOAST index; if the files could not be examined without waiting, their
    /// sizes at the last VACUUM.
    pub(crate) bytes: u64,
    /// The size of the heap alone.
    pub(crate) heap_bytes: u64,
    /// Rows read through indexes, according to the statistics; toastctl never reads rows this way.
    pub(crate) rows_read: u64,
    /// Dead rows of the heap and of the TOAST relation, according to the statistics.
    pub(crate) dead_rows: u64,
    /// Seconds since its last VACUUM, according to the statistics.
    pub(crate) vacuum_age_seconds: Option<u64>,
    /// Whether another session has locked it, its TOAST relation or one of their indexes against readers.
    pub(crate) locked: bool,
    /// The topmost table of which it is a partition or inheritance child.
    pub(crate) root: Option<Root>,
}

/// A table that has parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) oid: Oid,
    pub(crate) schema: String,
    pub(crate) name: String,
    /// Whether its parts are partitions; otherwise they are inheritance children, and it may have rows of its own.
    pub(crate) is_partitioned: bool,
}

/// Lists these relations, without waiting long for a lock. Relations that were dropped in the meantime are missing.
pub(crate) async fn list(connection: &Connection, oids: &[Oid]) -> LiveResult<Vec<Listed>> {
    for _ in 0..TRIES {
        match connection
            .reading(async || {
                let client = connection.client();
                client.batch_execute(PATIENCE).await?;
                let locked = locks::exclusive(client).await?;
                ask(client, oids, Some(&locked)).await
            })
            .await
        {
            Err(error) if error.is_locked() => {}
            other => return other,
        }
    }
    connection.reading(async || ask(connection.client(), oids, None).await).await
}

/// The size of the database's files; `None` if this user may not query it.
pub(crate) async fn database_bytes(connection: &Connection) -> LiveResult<Option<u64>> {
    let sql = "SELECT CASE WHEN pg_catalog.has_database_privilege(d.oid, 'CONNECT') \
                    THEN pg_catalog.pg_database_size(d.oid) END \
               FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database()";
    connection
        .reading(async || {
            let bytes: Option<Option<i64>> = connection.client().value(sql, &[]).await?;
            Ok::<_, LiveError>(bytes.flatten().and_then(|bytes| u64::try_from(bytes).ok()))
        })
        .await
}

/// The tables of the schema pg_catalog that this database has for itself.
pub(crate) async fn catalogs(connection: &Connection) -> LiveResult<Vec<Oid>> {
    let sql = "SELECT oid FROM pg_catalog.pg_class WHERE relkind = 'r' AND NOT relisshared \
               AND relnamespace = 'pg_catalog'::pg_catalog.regnamespace";
    let rows = connection
        .reading(async || connection.client().query_typed(sql, &[]).await.map_err(LiveError::from))
        .await?;
    rows.iter().map(|row| Ok(Oid(row.try_get::<_, PgOid>(0)?))).collect()
}

/// `locked`: the relations whose size cannot be queried; `None`: all.
async fn ask(
    client: &Client,
    oids: &[Oid],
    locked: Option<&HashSet<Oid>>,
) -> LiveResult<Vec<Listed>> {
    // pg_relation_size would wait for a session that has locked the relation.
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
         SELECT f.oid, f.nspname::pg_catalog.text, f.relname::pg_catalog.text, f.locked, \
                CASE WHEN NOT f.locked AND $3 THEN \
                  coalesce(pg_catalog.pg_relation_size(f.oid), 0) \
                ELSE f.relpages::pg_catalog.int8 * b.size END, \
                CASE WHEN NOT f.locked AND $3 THEN \
                  coalesce(pg_catalog.pg_relation_size(f.toast), 0) \
                  + coalesce(pg_catalog.pg_relation_size(f.toast_index), 0) \
                ELSE f.toast_pages::pg_catalog.int8 * b.size END, \
                r.root, rn.nspname::pg_catalog.text, rc.relname::pg_catalog.text, \
                (pg_catalog.pg_stat_get_tuples_fetched(f.oid) \
                 + coalesce((SELECT pg_catalog.sum(pg_catalog.pg_stat_get_tuples_fetched(i.indexrelid)) \
                             FROM pg_catalog.pg_index AS i WHERE i.indrelid = f.oid), 0))::pg_catalog.int8, \
                coalesce(pg_catalog.pg_stat_get_dead_tuples(f.oid), 0) \
                  + coalesce(pg_catalog.pg_stat_get_dead_tuples(f.toast), 0), \
                pg_catalog.floor(EXTRACT(epoch FROM pg_catalog.statement_timestamp() \
                  - greatest(pg_catalog.pg_stat_get_last_vacuum_time(f.oid), \
                             pg_catalog.pg_stat_get_last_autovacuum_time(f.oid))))::pg_catalog.int8, \
                coalesce(rc.relkind = 'p', false) \
         FROM files AS f CROSS JOIN (SELECT pg_catalog.current_setting('block_size') \
                                            ::pg_catalog.int8) AS b (size) \
         LEFT JOIN roots AS r ON r.oid = f.oid \
         LEFT JOIN pg_catalog.pg_class AS rc ON rc.oid = r.root \
         LEFT JOIN pg_catalog.pg_namespace AS rn ON rn.oid = rc.relnamespace"
    );
    let wanted = numbers(oids);
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
        let table = listed_in(row)?;
        if seen.insert(table.oid) {
            listed.push(table);
        }
    }
    Ok(listed)
}

fn listed_in(row: &Row) -> LiveResult<Listed> {
    let heap_bytes = count_in(row, 4)?;
    let root = match row.try_get::<_, Option<PgOid>>(6)? {
        Some(root) => Some(Root {
            oid: Oid(root),
            schema: row.try_get(7)?,
            name: row.try_get(8)?,
            is_partitioned: row.try_get(12)?,
        }),
        None => None,
    };
    Ok(Listed {
        oid: Oid(row.try_get::<_, PgOid>(0)?),
        name: shown_qualified(row.try_get(1)?, row.try_get(2)?),
        locked: row.try_get(3)?,
        bytes: heap_bytes.saturating_add(count_in(row, 5)?),
        heap_bytes,
        rows_read: count_in(row, 9)?,
        dead_rows: count_in(row, 10)?,
        vacuum_age_seconds: row.try_get::<_, Option<i64>>(11)?.map(|age| age.max(0).unsigned_abs()),
        root,
    })
}

/// Keeps the root of those relations that are reported as parts of it: `every` one of all tables', else those whose
/// parent was meant, and none that was named itself.
pub(crate) fn roll_up(listed: &mut [Listed], found: &[Selected], every: bool, none: bool) {
    let inherited: HashSet<_> = found
        .iter()
        .filter(|found| matches!(found.how, How::Inherited { .. }))
        .map(|found| found.oid)
        .collect();
    let named: HashSet<_> =
        found.iter().filter(|found| found.how == How::Named).map(|found| found.oid).collect();
    let roots: HashSet<_> = listed
        .iter()
        .filter(|listed| inherited.contains(&listed.oid))
        .filter_map(|listed| listed.root.as_ref().map(|root| root.oid))
        .collect();
    for listed in listed {
        let is_meant = listed.root.as_ref().is_some_and(|root| every || roots.contains(&root.oid));
        if none || named.contains(&listed.oid) || !is_meant {
            listed.root = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(oid: u32, root: Option<u32>) -> Listed {
        Listed {
            oid: Oid(oid),
            name: format!("public.t{oid}"),
            bytes: 10,
            heap_bytes: 10,
            rows_read: 0,
            dead_rows: 0,
            vacuum_age_seconds: None,
            locked: false,
            root: root.map(|root| Root {
                oid: Oid(root),
                schema: "public".to_owned(),
                name: format!("t{root}"),
                is_partitioned: true,
            }),
        }
    }

    fn roots(found: &[(u32, How)], every: bool, none: bool) -> Vec<Option<u32>> {
        let mut listed = vec![one(1, None), one(2, Some(1)), one(3, Some(9)), one(4, Some(9))];
        let found: Vec<Selected> =
            found.iter().map(|&(oid, how)| Selected { oid: Oid(oid), how }).collect();
        roll_up(&mut listed, &found, every, none);
        listed.iter().map(|one| one.root.as_ref().map(|root| root.oid.0)).collect()
    }

    #[test]
    fn parts_are_told_as_parts_of_what_was_meant() {
        let all = [(1, How::Matched), (2, How::Matched), (3, How::Matched), (4, How::Matched)];
        assert_eq!(roots(&all, true, false), [None, Some(1), Some(9), Some(9)]);
        // a pattern that matches parts alone means these
        assert_eq!(roots(&all, false, false), [None; 4]);
        assert_eq!(roots(&all, false, true), [None; 4]);
        let inherited = How::Inherited { from_named: true };
        let parent = [(1, How::Named), (2, inherited), (3, inherited), (4, How::Named)];
        assert_eq!(roots(&parent, false, false), [None, Some(1), Some(9), None]);
    }
}
