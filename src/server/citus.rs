//! The catalog of Citus: which tables have their rows in shards, which nodes hold these, and which shards of this node
//! are hidden from the session.
//!
//! `citus.override_table_visibility`, which is on by default, has Citus add a condition to every query of `pg_class`
//! that removes shards (`worker_shard_visibility.c`). What is counted here comes from the metadata instead.

use std::collections::HashMap;

use tokio_postgres::types::{Oid as PgOid, Type};

use super::connect::Client;
use super::{LiveError, locks};
use crate::disk::Oid;

/// The maximum number of nodes that a message names.
const NODES: usize = 4;

/// How to see shards; ordinary roles may set it.
pub(crate) const SHOWN_BY: &str = "PGOPTIONS='-c citus.override_table_visibility=off'";

/// The kind of a table in `pg_dist_partition` (`IsCitusTableTypeCacheEntry`, metadata_cache.c).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CitusKind {
    Distributed,
    SingleShard,
    Reference,
    Local,
}

impl CitusKind {
    fn of(method: &str, model: &str, colocation: u32) -> CitusKind {
        match (method, model, colocation) {
            ("n", "t", _) => CitusKind::Reference,
            ("n", _, 0) => CitusKind::Local,
            ("n", ..) => CitusKind::SingleShard,
            _ => CitusKind::Distributed,
        }
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            CitusKind::Distributed => "a distributed table of Citus",
            CitusKind::SingleShard => "a distributed table of Citus with one shard",
            CitusKind::Reference => "a reference table of Citus",
            CitusKind::Local => "a local table managed by Citus",
        }
    }
}

/// The tables of Citus; empty if it is not installed in this database. They have no rows of their own.
pub(super) async fn tables(client: &Client) -> Result<HashMap<Oid, CitusKind>, LiveError> {
    if !is_here(client).await? {
        return Ok(HashMap::new());
    }
    let sql = "SELECT logicalrelid::pg_catalog.oid, partmethod::pg_catalog.text, \
               repmodel::pg_catalog.text, colocationid::pg_catalog.oid \
               FROM pg_catalog.pg_dist_partition";
    let rows = client.query_typed(sql, &[]).await?;
    let table = |row: &tokio_postgres::Row| {
        let kind = CitusKind::of(row.try_get(1)?, row.try_get(2)?, row.try_get::<_, PgOid>(3)?);
        Ok((Oid(row.try_get::<_, PgOid>(0)?), kind))
    };
    rows.iter().map(table).collect()
}

/// Whether the catalog of Citus exists.
async fn is_here(client: &Client) -> Result<bool, LiveError> {
    let sql = "SELECT pg_catalog.count(*) = 5 FROM pg_catalog.pg_class AS c \
               JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
               WHERE n.nspname = 'pg_catalog' AND c.relname IN ('pg_dist_partition', \
               'pg_dist_shard', 'pg_dist_placement', 'pg_dist_node', 'pg_dist_local_group')";
    Ok(client.value(sql, &[]).await?.unwrap_or(false))
}

/// Where the rows of tables are.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Shards {
    count: u64,
    /// The nodes that hold them, as `host:port`.
    nodes: Vec<String>,
}

impl Shards {
    /// As after "whose rows are stored in".
    pub(super) fn text(&self) -> String {
        let shards = match self.count {
            1 => "1 shard".to_owned(),
            count => format!("{count} shards"),
        };
        let more = self.nodes.len().saturating_sub(NODES);
        match self.nodes.as_slice() {
            [] => shards,
            all if more == 0 => format!("{shards} on {}", all.join(", ")),
            all => {
                let named = all.get(..NODES).unwrap_or(all).join(", ");
                format!("{shards} on {named} and {more} more")
            }
        }
    }
}

/// The shards of these tables, according to the metadata.
pub(super) async fn shards(client: &Client, tables: &[Oid]) -> Result<Shards, LiveError> {
    let sql = "SELECT pg_catalog.count(DISTINCT s.shardid), coalesce(pg_catalog.array_agg(DISTINCT \
                   pg_catalog.concat(n.nodename, ':', n.nodeport)) FILTER (WHERE n.nodename IS NOT NULL), '{}') \
               FROM pg_catalog.pg_dist_shard AS s \
               JOIN pg_catalog.pg_dist_placement AS p ON p.shardid = s.shardid \
               LEFT JOIN pg_catalog.pg_dist_node AS n ON n.groupid = p.groupid \
                 AND n.noderole::pg_catalog.text = 'primary' \
               WHERE s.logicalrelid::pg_catalog.oid = ANY ($1)";
    let rows = client.query_typed(sql, &[(&list(tables), Type::OID_ARRAY)]).await?;
    let Some(row) = rows.first() else { return Ok(Shards::default()) };
    Ok(Shards {
        count: u64::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0),
        nodes: row.try_get(1)?,
    })
}

/// Shards that the metadata places on this node, and that queries of `pg_class` do not show.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NotShown {
    /// Hidden from this session.
    hidden: u64,
    /// The size of the hidden ones, with TOAST and indexes, without those that another session has locked.
    size: String,
    /// Of which there is no relation, or in a schema that this role may not use.
    missing: u64,
}

impl NotShown {
    /// A line for hidden shards, one for missing ones.
    pub(super) fn failures(&self) -> Vec<String> {
        let NotShown { hidden, size, missing } = self;
        let shards = |count: &u64| match count {
            1 => ("1 shard".to_owned(), "is", "was"),
            count => (format!("{count} shards"), "are", "were"),
        };
        let mut lines = Vec::new();
        if *hidden > 0 {
            let (count, are, were) = shards(hidden);
            lines.push(format!(
                "{count} of Citus on this node ({size}) {are} hidden from this session and {were} not read\n\
                 HINT:  {SHOWN_BY} shows shards as tables."
            ));
        }
        if *missing > 0 {
            let (count, _, were) = shards(missing);
            lines.push(format!(
                "{count} that the metadata of Citus places on this node {were} not found\n\
                 HINT:  The view citus_shards lists shards; this role may lack USAGE on their schema."
            ));
        }
        lines
    }
}

/// The shards of these tables on this node that the session does not see.
pub(super) async fn not_shown(client: &Client, tables: &[Oid]) -> Result<NotShown, LiveError> {
    let locked: Vec<PgOid> = locks::exclusive(client).await?.iter().map(|oid| oid.0).collect();
    // Names of relations are resolved whether or not pg_class shows them. shard_name leaves out the schema public.
    // The condition that Citus adds belongs to the query whose FROM has pg_class, so that an outer join would lose the
    // rows that are searched for.
    let sql = "WITH here AS MATERIALIZED ( \
                   SELECT CASE WHEN pg_catalog.has_schema_privilege(n.oid, 'USAGE') THEN \
                       pg_catalog.to_regclass(pg_catalog.concat( \
                           CASE WHEN n.nspname = 'public' THEN 'public.' END, \
                           pg_catalog.shard_name(s.logicalrelid, s.shardid)))::pg_catalog.oid END AS oid \
                   FROM pg_catalog.pg_dist_local_group AS l \
                   JOIN pg_catalog.pg_dist_placement AS p ON p.groupid = l.groupid AND p.shardstate = 1 \
                   JOIN pg_catalog.pg_dist_shard AS s ON s.shardid = p.shardid \
                   JOIN pg_catalog.pg_class AS t ON t.oid = s.logicalrelid::pg_catalog.oid \
                   JOIN pg_catalog.pg_namespace AS n ON n.oid = t.relnamespace \
                   WHERE t.oid = ANY ($1) AND t.relkind <> 'p') \
               SELECT pg_catalog.count(h.oid), \
                   pg_catalog.pg_size_pretty(coalesce(pg_catalog.sum(CASE WHEN h.oid <> ALL ($2) \
                       THEN pg_catalog.pg_total_relation_size(h.oid) END), 0)), \
                   pg_catalog.count(*) FILTER (WHERE h.oid IS NULL) \
               FROM here AS h \
               WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.oid = h.oid)";
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
        [(&list(tables), Type::OID_ARRAY), (&locked, Type::OID_ARRAY)];
    let rows = client.query_typed(sql, &parameters).await?;
    let Some(row) = rows.first() else { return Ok(NotShown::default()) };
    let number = |at| -> Result<u64, LiveError> {
        Ok(u64::try_from(row.try_get::<_, i64>(at)?).unwrap_or(0))
    };
    Ok(NotShown { hidden: number(0)?, size: row.try_get(1)?, missing: number(2)? })
}

/// A shard.
pub(crate) struct Shard {
    /// The table that it belongs to, as `schema.name`, quoted where necessary.
    pub(crate) table: String,
    /// Whether this session may change shards: with `citus.enable_manual_changes_to_shards`, without which Citus lets
    /// ALTER TABLE pass and refuses LOCK TABLE.
    pub(crate) may_change: bool,
}

/// What `relation` is a shard of, if it is one.
pub(crate) async fn shard(client: &Client, relation: Oid) -> Result<Option<Shard>, LiveError> {
    if !is_here(client).await? {
        return Ok(None);
    }
    let sql = "SELECT pg_catalog.format('%I.%I', n.nspname, t.relname), coalesce(pg_catalog.current_setting( \
                   'citus.enable_manual_changes_to_shards', true) = 'on', false) \
               FROM pg_catalog.pg_class AS c \
               JOIN pg_catalog.pg_dist_shard AS s \
                 ON s.shardid::pg_catalog.text = pg_catalog.substring(c.relname::pg_catalog.text, '_([0-9]+)$') \
               JOIN pg_catalog.pg_class AS t ON t.oid = s.logicalrelid::pg_catalog.oid \
                 AND t.relnamespace = c.relnamespace \
               JOIN pg_catalog.pg_namespace AS n ON n.oid = t.relnamespace \
               WHERE c.oid = $1 AND pg_catalog.shard_name(s.logicalrelid, s.shardid) IN \
                 (pg_catalog.quote_ident(c.relname), pg_catalog.format('%I.%I', n.nspname, c.relname))";
    let rows = client.query_typed(sql, &[(&relation.0, Type::OID)]).await?;
    let shard = rows.first().map(|row| {
        Ok::<_, LiveError>(Shard { table: row.try_get(0)?, may_change: row.try_get(1)? })
    });
    shard.transpose()
}

/// Whether this name ends in the number of a shard, so that it may be that of a hidden one.
pub(super) async fn may_be_shard(client: &Client, name: &str) -> Result<bool, LiveError> {
    let number = name.trim_end_matches('"').rsplit_once('_').map(|(_, number)| number.parse());
    let Some(Ok(number)) = number else { return Ok(false) };
    let number: i64 = number;
    if !is_here(client).await? {
        return Ok(false);
    }
    let sql = "SELECT EXISTS (SELECT FROM pg_catalog.pg_dist_shard WHERE shardid = $1)";
    Ok(client.value(sql, &[(&number, Type::INT8)]).await?.unwrap_or(false))
}

fn list(oids: &[Oid]) -> Vec<PgOid> {
    oids.iter().map(|oid| oid.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_table_is_told_from_the_others() {
        let kinds = [("h", "s", 1), ("n", "t", 2), ("n", "s", 0), ("n", "s", 4), ("r", "c", 0)];
        let texts: Vec<&str> = kinds
            .iter()
            .map(|&(method, model, colocation)| CitusKind::of(method, model, colocation).text())
            .collect();
        assert_eq!(
            texts,
            [
                "a distributed table of Citus",
                "a reference table of Citus",
                "a local table managed by Citus",
                "a distributed table of Citus with one shard",
                "a distributed table of Citus",
            ]
        );
    }

    #[test]
    fn nodes_are_named_up_to_a_limit() {
        let nodes = |count: usize| (1..=count).map(|n| format!("w{n}:5432")).collect();
        let text = |count, nodes| Shards { count, nodes }.text();
        assert_eq!(text(1, nodes(1)), "1 shard on w1:5432");
        assert_eq!(text(32, nodes(2)), "32 shards on w1:5432, w2:5432");
        assert_eq!(
            text(64, nodes(6)),
            "64 shards on w1:5432, w2:5432, w3:5432, w4:5432 and 2 more"
        );
        assert_eq!(text(0, Vec::new()), "0 shards");
    }

    #[test]
    fn hidden_and_missing_shards_are_failures() {
        assert_eq!(NotShown::default().failures(), Vec::<String>::new());
        let both = NotShown { hidden: 33, size: "12 MB".into(), missing: 1 }.failures();
        assert!(both[0].starts_with(
            "33 shards of Citus on this node (12 MB) are hidden from this session and were not read\nHINT:  "
        ));
        assert!(both[1].starts_with(
            "1 shard that the metadata of Citus places on this node was not found\nHINT:  "
        ));
    }
}
