//! The catalog of Citus: which tables have their rows in shards, which nodes hold these, and which shards of this node
//! are hidden from the session.
//!
//! `citus.override_table_visibility`, which is on by default, has Citus add a condition to every query of `pg_class`
//! that removes shards (`worker_shard_visibility.c`). What is counted here comes from the metadata instead.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use tokio_postgres::types::{Oid as PgOid, Type};

use super::connect::{CHANGES_SHARDS, Client, Connection, SessionOptions};
use super::sink::{Failed, Kind};
use super::{LiveResult, Parameter, count_in, locks, numbers};
use crate::command::{TableName, shell_quoted};
use crate::message::{Message, listed};
use toast_format::disk::Oid;
use toast_format::model::sql::shown_qualified;

/// The maximum number of nodes that a message names.
const NODES: usize = 4;

/// Has Citus hide shards from queries of `pg_class`; on by default. Ordinary roles may set it.
const HIDES_SHARDS: &str = "citus.override_table_visibility";

/// Why a shard of the metadata is not read.
pub(crate) const SHARD_MOVED: &str = "the shard was not found: it may have been moved";

/// How to see shards.
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
pub(super) async fn tables(client: &Client) -> LiveResult<HashMap<Oid, CitusKind>> {
    if !is_here(client).await? {
        return Ok(HashMap::new());
    }
    let sql = "SELECT logicalrelid::pg_catalog.oid, partmethod::pg_catalog.text, \
               repmodel::pg_catalog.text, colocationid::pg_catalog.oid \
               FROM pg_catalog.pg_dist_partition";
    let rows = client.query_typed(sql, &[]).await?;
    rows.iter()
        .map(|row| {
            let kind = CitusKind::of(row.try_get(1)?, row.try_get(2)?, row.try_get::<_, PgOid>(3)?);
            Ok((Oid(row.try_get::<_, PgOid>(0)?), kind))
        })
        .collect()
}

/// Whether the catalog of Citus exists. The statement has no operator and every name is qualified, so that it may be
/// sent before `search_path` is set.
pub(crate) async fn is_here(client: &Client) -> LiveResult<bool> {
    let tables = ["partition", "shard", "placement", "node", "local_group"]
        .map(|name| format!("pg_catalog.to_regclass('pg_catalog.pg_dist_{name}') IS NOT NULL"));
    let sql = format!("SELECT {}", tables.join(" AND "));
    Ok(client.value(&sql, &[]).await?.unwrap_or(false))
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
        match self.nodes.as_slice() {
            [] => shards,
            nodes => format!("{shards} on {}", listed(nodes, NODES)),
        }
    }
}

/// The shards of these tables, according to the metadata.
pub(super) async fn shards(client: &Client, tables: &[Oid]) -> LiveResult<Shards> {
    let sql = "SELECT pg_catalog.count(DISTINCT s.shardid), coalesce(pg_catalog.array_agg(DISTINCT \
                   pg_catalog.concat(n.nodename, ':', n.nodeport)) FILTER (WHERE n.nodename IS NOT NULL), '{}') \
               FROM pg_catalog.pg_dist_shard AS s \
               JOIN pg_catalog.pg_dist_placement AS p ON p.shardid = s.shardid \
               LEFT JOIN pg_catalog.pg_dist_node AS n ON n.groupid = p.groupid \
                 AND n.noderole::pg_catalog.text = 'primary' \
               WHERE s.logicalrelid::pg_catalog.oid = ANY ($1)";
    let Some(row) = client.row(sql, &[(&numbers(tables), Type::OID_ARRAY)]).await? else {
        return Ok(Shards::default());
    };
    Ok(Shards {
        count: u64::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0),
        nodes: row.try_get(1)?,
    })
}

/// A node, with the shards of the selected tables that are placed there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// `host:port` in the metadata.
    pub(crate) name: String,
    host: String,
    port: i32,
    /// Whether it is the one that the session is connected to.
    pub(crate) is_here: bool,
    pub(crate) shards: Vec<Placement>,
}

/// A shard on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) shard: i64,
    /// `schema.name` of the shard, as reports have it.
    pub(crate) relation: String,
    /// The same with quotes where necessary, as SQL and command lines take it.
    pub(crate) name: String,
    /// `schema.name` of the table, or of the partitioned table that it is a partition of.
    pub(crate) table: String,
    /// The same for commands.
    pub(crate) table_name: TableName,
    /// The schema, the shard's name in it and that of the table it belongs to, which may be a partition.
    pub(crate) names: (String, String, String),
    /// The lower end of the shard's range; partitions with the same one are stored together.
    pub(crate) range: Option<String>,
    /// Nodes that have the same rows.
    pub(crate) copies: u64,
}

/// A shard of a table of Citus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ShardLine {
    /// `host:port` in the metadata of Citus.
    pub(crate) node: String,
    /// `schema.name` of the table; for a shard of a partition that of the partitioned table.
    pub(crate) table: String,
    /// `shardid` in the metadata.
    pub(crate) id: i64,
    /// On how many nodes the same rows are, each with a relation of its own; 1 unless Citus replicates them.
    pub(crate) copies: u64,
    /// The lower end of its range.
    #[serde(skip)]
    pub(crate) range: Option<String>,
}

impl ShardLine {
    /// What to do about a finding in the shard: the table's name instead of the shard's, because Citus and this program
    /// then do it in all shards. Keys are those of one shard, on its node. `names`: of the shard and of the table, without
    /// schema.
    pub(crate) fn command(&self, command: &str, names: (&str, &str)) -> String {
        match self.node.rsplit_once(':') {
            Some((host, port)) if command.starts_with("toastctl keys ") => {
                format!("{SHOWN_BY} {command} -h {} -p {port}", shell_quoted(host))
            }
            _ => command.replace(names.0, names.1),
        }
    }
}

/// The shards of these tables, by node. Partitioned tables have none; their partitions do.
pub(crate) async fn nodes(client: &Client, tables: &[Oid]) -> LiveResult<Vec<Node>> {
    let sql = "SELECT coalesce(n.nodename, ''), coalesce(n.nodeport, 0), p.groupid = l.groupid, s.shardid, \
                   sn.nspname::pg_catalog.text, q.parts[pg_catalog.array_upper(q.parts, 1)], \
                   t.relname::pg_catalog.text, rn.nspname::pg_catalog.text, r.relname::pg_catalog.text, q.name, \
                   s.shardminvalue, pg_catalog.count(*) OVER (PARTITION BY s.shardid) \
               FROM pg_catalog.pg_dist_shard AS s \
               JOIN pg_catalog.pg_dist_placement AS p ON p.shardid = s.shardid AND p.shardstate = 1 \
               CROSS JOIN pg_catalog.pg_dist_local_group AS l \
               LEFT JOIN pg_catalog.pg_dist_node AS n ON n.groupid = p.groupid \
                 AND n.noderole::pg_catalog.text = 'primary' \
               JOIN pg_catalog.pg_class AS t ON t.oid = s.logicalrelid::pg_catalog.oid \
               JOIN pg_catalog.pg_namespace AS sn ON sn.oid = t.relnamespace \
               JOIN pg_catalog.pg_class AS r ON r.oid = coalesce((SELECT a.relid::pg_catalog.oid \
                   FROM pg_catalog.pg_partition_ancestors(t.oid::pg_catalog.regclass) WITH ORDINALITY AS a (relid, n) \
                   WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_partition_tree(a.relid) AS x \
                     JOIN pg_catalog.pg_dist_partition AS d ON d.logicalrelid::pg_catalog.oid = x.relid::pg_catalog.oid \
                     WHERE x.isleaf AND x.relid::pg_catalog.oid <> ALL ($1)) ORDER BY a.n DESC LIMIT 1), t.oid) \
               JOIN pg_catalog.pg_namespace AS rn ON rn.oid = r.relnamespace \
               CROSS JOIN LATERAL (SELECT name, pg_catalog.parse_ident(name) AS parts FROM (SELECT \
                   pg_catalog.concat(CASE WHEN sn.nspname = 'public' THEN 'public.' END, \
                   pg_catalog.shard_name(s.logicalrelid, s.shardid)) AS name) AS named) AS q \
               WHERE t.oid = ANY ($1) AND t.relkind <> 'p' ORDER BY p.groupid, r.oid, s.shardid";
    let mut nodes: Vec<Node> = Vec::new();
    for row in client.query_typed(sql, &[(&numbers(tables), Type::OID_ARRAY)]).await? {
        let host: String = row.try_get(0)?;
        let port: i32 = row.try_get(1)?;
        let is_here = row.try_get(2)?;
        let name = if host.is_empty() {
            "a node that is not in the metadata of Citus".to_owned()
        } else {
            format!("{host}:{port}")
        };
        let schema: String = row.try_get(4)?;
        let shard: String = row.try_get(5)?;
        let table_name = TableName::Known { schema: row.try_get(7)?, name: row.try_get(8)? };
        let placement = Placement {
            shard: row.try_get(3)?,
            relation: shown_qualified(&schema, &shard),
            name: row.try_get(9)?,
            table: table_name.shown(),
            table_name,
            names: (schema, shard, row.try_get(6)?),
            range: row.try_get(10)?,
            copies: u64::try_from(row.try_get::<_, i64>(11)?).unwrap_or(1),
        };
        match nodes.last_mut().filter(|node| node.name == name && node.is_here == is_here) {
            Some(node) => node.shards.push(placement),
            None => nodes.push(Node { name, host, port, is_here, shards: vec![placement] }),
        }
    }
    Ok(nodes)
}

/// Identifies the cluster that this database is a node of: the nodes and shards in its metadata. `None` if it has no other
/// node.
pub(crate) async fn cluster(client: &Client) -> LiveResult<Option<String>> {
    let sql = "SELECT pg_catalog.concat(pg_catalog.current_database(), ' ', pg_catalog.md5(pg_catalog.concat( \
                   (SELECT pg_catalog.string_agg(pg_catalog.concat(n.groupid, ' ', n.nodename, ':', n.nodeport), ',' \
                        ORDER BY n.groupid, n.nodename, n.nodeport) FROM pg_catalog.pg_dist_node AS n), ';', \
                   (SELECT pg_catalog.string_agg(s.shardid::pg_catalog.text, ',' ORDER BY s.shardid) \
                    FROM pg_catalog.pg_dist_shard AS s)))) \
               WHERE (SELECT pg_catalog.count(DISTINCT n.groupid) FROM pg_catalog.pg_dist_node AS n) > 1";
    Ok(client.value(sql, &[]).await?)
}

/// All nodes that have these tables, with shards or without: they have metadata. One that is disabled gets it again from
/// the coordinator. Also returns the names of the tables, as SQL takes them.
pub(crate) async fn all_nodes(
    client: &Client,
    tables: &[Oid],
) -> LiveResult<(Vec<Node>, Vec<String>)> {
    let mut all = nodes(client, tables).await?;
    let sql = "SELECT n.nodename, n.nodeport, n.groupid = l.groupid FROM pg_catalog.pg_dist_node AS n \
               CROSS JOIN pg_catalog.pg_dist_local_group AS l \
               WHERE n.noderole::pg_catalog.text = 'primary' AND n.hasmetadata AND n.isactive ORDER BY n.groupid";
    for row in client.query_typed(sql, &[]).await? {
        let host: String = row.try_get(0)?;
        let port: i32 = row.try_get(1)?;
        let is_here: bool = row.try_get(2)?;
        let name = format!("{host}:{port}");
        if !all.iter().any(|node| node.name == name) {
            all.push(Node { name, host, port, is_here, shards: Vec::new() });
        }
    }
    let sql = "SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) FROM pg_catalog.pg_class AS c \
               JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = ANY ($1) ORDER BY 1";
    let rows = client.query_typed(sql, &[(&numbers(tables), Type::OID_ARRAY)]).await?;
    let names: Result<Vec<String>, tokio_postgres::Error> =
        rows.iter().map(|row| row.try_get(0)).collect();
    Ok((all, names?))
}

impl Node {
    /// The shard of this name, as reports have it, and its place among those of the node.
    pub(crate) fn shard(&self, relation: &str) -> Option<(usize, &Placement)> {
        self.shards.iter().enumerate().find(|(_, shard)| shard.relation == relation)
    }

    /// Connects to the node as the session is connected, and lets the new session see shards. `address`: a connection
    /// string with `{host}` and `{port}`, in place of the address in the metadata.
    ///
    /// # Errors
    /// The node cannot be reached, or another server answers.
    pub(crate) async fn connect(
        &self,
        first: &Connection,
        address: &str,
        session: &SessionOptions,
    ) -> Result<Connection, Failed> {
        let mut session = session.clone();
        session.settings.push((HIDES_SHARDS.to_owned(), "off".to_owned()));
        if !session.read_only {
            session.settings.push((CHANGES_SHARDS.to_owned(), "on".to_owned()));
        }
        let opened = if self.is_here {
            first.open_another_with(&session).await
        } else {
            first.open_at(&self.address(address), &session).await
        };
        let connection = opened.map_err(|error| Failed::from(&error))?;
        if !self.is_here {
            self.verify(&connection).await?;
        }
        Ok(connection)
    }

    fn address(&self, template: &str) -> String {
        // a backslash has its meaning with and without quotes
        let mut host = String::new();
        for c in self.host.chars() {
            if matches!(c, '\'' | '\\') || c.is_whitespace() {
                host.push('\\');
            }
            host.push(c);
        }
        template.replace("{port}", &self.port.to_string()).replace("{host}", &host)
    }

    /// The address may lead to another server: the coordinator is often known as `localhost`, on every node.
    async fn verify(&self, connection: &Connection) -> Result<(), Failed> {
        let sql = "SELECT pg_catalog.concat(n.nodename, ':', n.nodeport) FROM pg_catalog.pg_dist_local_group AS l \
                   JOIN pg_catalog.pg_dist_node AS n ON n.groupid = l.groupid \
                     AND n.noderole::pg_catalog.text = 'primary'";
        let ask = async || -> LiveResult<Option<String>> {
            if is_here(connection.client()).await? {
                Ok(connection.client().value(sql, &[]).await?)
            } else {
                Ok(None)
            }
        };
        let wrong = match connection.reading(ask).await {
            Ok(Some(name)) if name == self.name => return Ok(()),
            Ok(Some(other)) => {
                format!("the server at this address is the node {other}, by its metadata")
            }
            Ok(None) => {
                "the server at this address has no metadata of Citus in this database".to_owned()
            }
            Err(error) => return Err(Failed::incomplete(&error)),
        };
        Err(Failed::new(Kind::Incomplete, wrong)
            .hint("--node-address gives the addresses of nodes."))
    }
}

/// Failures with the same text on one node as one failure with all its shards.
pub(crate) fn by_reason(failures: impl IntoIterator<Item = Failed>) -> Vec<Failed> {
    let mut joined: Vec<Failed> = Vec::new();
    for Failed { kind, message } in failures {
        let same = joined.iter_mut().map(|failed| &mut failed.message).find(|other| {
            (&other.at.node, &other.text, &other.hints)
                == (&message.at.node, &message.text, &message.hints)
        });
        match same {
            Some(other) => other.at.relations.extend(message.at.relations),
            None => joined.push(Failed { kind, message }),
        }
    }
    joined
}

/// A failure that concerns one shard.
#[derive(Debug)]
pub(crate) struct FailedShard {
    /// `schema.name` of the table.
    pub(crate) table: String,
    pub(crate) failed: Failed,
}

/// Failures of several shards of a table with the same text as one failure of the table.
pub(crate) fn by_table(failures: Vec<FailedShard>) -> Vec<Failed> {
    let mut joined: Vec<(FailedShard, u64)> = Vec::new();
    for shard in failures {
        let message = &shard.failed.message;
        let same = joined.iter_mut().find(|(other, _)| {
            let first = &other.failed.message;
            other.table == shard.table
                && (&first.text, &first.detail, &first.hints)
                    == (&message.text, &message.detail, &message.hints)
        });
        match same {
            Some((_, count)) => *count += 1,
            None => joined.push((shard, 1)),
        }
    }
    let joined = joined.into_iter().map(|(FailedShard { table, mut failed }, count)| {
        if count > 1 {
            failed.message.at.node = None;
            failed.message.at.relations = vec![format!("{table} ({count} shards)")];
        }
        failed
    });
    joined.collect()
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
    /// One for hidden shards, and one for missing ones.
    pub(super) fn failures(&self) -> Vec<Message> {
        let NotShown { hidden, size, missing } = self;
        let shards = |count: &u64| match count {
            1 => ("1 shard".to_owned(), "is", "was"),
            count => (format!("{count} shards"), "are", "were"),
        };
        let mut failures = Vec::new();
        if *hidden > 0 {
            let (count, are, were) = shards(hidden);
            let text = format!(
                "{count} of Citus on this node ({size}) {are} hidden from this session and {were} not read"
            );
            failures.push(Message::error(text).hint(format!("{SHOWN_BY} shows shards as tables.")));
        }
        if *missing > 0 {
            let (count, _, were) = shards(missing);
            let text =
                format!("{count} that the metadata of Citus places on this node {were} not found");
            let hint =
                "The view citus_shards lists shards; this role may lack USAGE on their schema.";
            failures.push(Message::error(text).hint(hint));
        }
        failures
    }
}

/// The shards of these tables on this node that the session does not see.
pub(super) async fn not_shown(client: &Client, tables: &[Oid]) -> LiveResult<NotShown> {
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
    let parameters: [Parameter<'_>; 2] =
        [(&numbers(tables), Type::OID_ARRAY), (&locked, Type::OID_ARRAY)];
    let Some(row) = client.row(sql, &parameters).await? else { return Ok(NotShown::default()) };
    Ok(NotShown { hidden: count_in(&row, 0)?, size: row.try_get(1)?, missing: count_in(&row, 2)? })
}

/// The relations of these names, as SQL takes them, in the same order; `None` where there is none.
pub(crate) async fn resolve(client: &Client, names: &[&str]) -> LiveResult<Vec<Option<Oid>>> {
    let sql = "SELECT pg_catalog.to_regclass(name)::pg_catalog.oid \
               FROM ROWS FROM (pg_catalog.unnest($1)) WITH ORDINALITY AS n (name, place) ORDER BY place";
    let rows = client.query_typed(sql, &[(&names, Type::TEXT_ARRAY)]).await?;
    rows.iter().map(|row| Ok(row.try_get::<_, Option<PgOid>>(0)?.map(Oid))).collect()
}

/// Whether queries of `pg_class` show shards to this session.
pub(super) async fn shows_shards(client: &Client) -> LiveResult<bool> {
    let sql = "SELECT coalesce(pg_catalog.current_setting($1, true), 'off') = 'off'";
    Ok(client.value(sql, &[(&HIDES_SHARDS, Type::TEXT)]).await?.unwrap_or(true))
}

pub(crate) struct Shard {
    /// The table that it belongs to, as `schema.name`, quoted where necessary.
    pub(crate) table: String,
    /// Whether this session may change shards: with `citus.enable_manual_changes_to_shards`, without which Citus lets
    /// ALTER TABLE pass and refuses LOCK TABLE.
    pub(crate) may_change: bool,
}

/// Those of these relations that are shards.
pub(crate) async fn shards_among(
    client: &Client,
    relations: &[Oid],
) -> LiveResult<HashMap<Oid, Shard>> {
    if !is_here(client).await? {
        return Ok(HashMap::new());
    }
    let sql = "SELECT c.oid, pg_catalog.format('%I.%I', n.nspname, t.relname), coalesce(pg_catalog.current_setting( \
                   'citus.enable_manual_changes_to_shards', true) = 'on', false) \
               FROM pg_catalog.pg_class AS c \
               JOIN pg_catalog.pg_dist_shard AS s \
                 ON s.shardid::pg_catalog.text = pg_catalog.substring(c.relname::pg_catalog.text, '_([0-9]+)$') \
               JOIN pg_catalog.pg_class AS t ON t.oid = s.logicalrelid::pg_catalog.oid \
                 AND t.relnamespace = c.relnamespace \
               JOIN pg_catalog.pg_namespace AS n ON n.oid = t.relnamespace \
               WHERE c.oid = ANY ($1) AND pg_catalog.shard_name(s.logicalrelid, s.shardid) IN \
                 (pg_catalog.quote_ident(c.relname), pg_catalog.format('%I.%I', n.nspname, c.relname))";
    let rows = client.query_typed(sql, &[(&numbers(relations), Type::OID_ARRAY)]).await?;
    rows.iter()
        .map(|row| {
            let shard = Shard { table: row.try_get(1)?, may_change: row.try_get(2)? };
            Ok((Oid(row.try_get(0)?), shard))
        })
        .collect()
}

/// Whether this name ends in the number of a shard, so that it may be that of a hidden one.
pub(super) async fn may_be_shard(client: &Client, name: &str) -> LiveResult<bool> {
    let number = name.trim_end_matches('"').rsplit_once('_').map(|(_, number)| number.parse());
    let Some(Ok(number)) = number else { return Ok(false) };
    let number: i64 = number;
    if !is_here(client).await? {
        return Ok(false);
    }
    let sql = "SELECT EXISTS (SELECT FROM pg_catalog.pg_dist_shard WHERE shardid = $1)";
    Ok(client.value(sql, &[(&number, Type::INT8)]).await?.unwrap_or(false))
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
    fn addresses_are_rewritten_and_commands_name_the_table_or_the_node() {
        let node = |host: &str| Node {
            name: String::new(),
            host: host.to_owned(),
            port: 5433,
            is_here: false,
            shards: Vec::new(),
        };
        assert_eq!(node("w1").address("host={host} port={port}"), "host=w1 port=5433");
        assert_eq!(node("a b'").address("port=1 host='{host}.x'"), r"port=1 host='a\ b\'.x'");
        // what a name contains is not replaced
        assert_eq!(node("{port}").address("host={host}"), "host={port}");
        let shard = ShardLine {
            node: "w1:5433".to_owned(),
            table: "public.d".to_owned(),
            id: 102_008,
            copies: 1,
            range: None,
        };
        let command = |command| shard.command(command, ("d_102008", "d"));
        assert_eq!(command("toastctl compact public.d_102008"), "toastctl compact public.d");
        assert_eq!(command("VACUUM \"public\".\"d_102008\";"), "VACUUM \"public\".\"d\";");
        let advice = command("toastctl advise-threshold public.d_102008");
        assert_eq!(advice, "toastctl advise-threshold public.d");
        assert_eq!(
            command("toastctl keys public.d_102008"),
            "PGOPTIONS='-c citus.override_table_visibility=off' toastctl keys public.d_102008 -h w1 -p 5433"
        );
    }

    #[test]
    fn what_fails_in_all_shards_for_one_reason_is_one_line() {
        let failed = |node: &str, shard: &str, text: &str| FailedShard {
            table: "public.d".to_owned(),
            failed: Failed::new(Kind::Incomplete, text).of_shard(node, shard),
        };
        let lines = by_table(vec![
            failed("a:1", "public.d_1", "not heap"),
            failed("b:1", "public.d_2", "not heap"),
            failed("b:1", "public.d_3", "time was up"),
        ]);
        let lines: Vec<String> = lines.iter().map(|failed| failed.message.to_string()).collect();
        assert_eq!(lines, ["public.d (2 shards): not heap", "b:1: public.d_3: time was up"]);
    }

    #[test]
    fn hidden_and_missing_shards_are_failures() {
        assert_eq!(NotShown::default().failures(), Vec::<Message>::new());
        let both = NotShown { hidden: 33, size: "12 MB".into(), missing: 1 }.failures();
        let both: Vec<String> = both.iter().map(Message::to_string).collect();
        assert!(both[0].starts_with(
            "33 shards of Citus on this node (12 MB) are hidden from this session and were not read\nHINT:  "
        ));
        assert!(both[1].starts_with(
            "1 shard that the metadata of Citus places on this node was not found\nHINT:  "
        ));
    }
}
