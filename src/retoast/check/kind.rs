//! What kinds of relations are swept.

use tokio_postgres::types::Type;

use super::refusal::{Refusal, refused};
use crate::disk::desc::Length;
use crate::server::catalog::{Relation, RelationKind};
use crate::server::connect::Client;

/// Why a table that only a pattern matches is left out, if it is.
pub fn unfit(relation: &Relation, columns: &[String]) -> Option<String> {
    if let Err(refusal) = kind(relation) {
        let text = refusal.to_string();
        return text.lines().next().map(str::to_owned);
    }
    let name = relation.display_name();
    columns.iter().find_map(|wanted| {
        let mut known = relation.desc.attributes.iter();
        match known.find(|column| !column.dropped && column.name == *wanted) {
            None => Some(format!("{name} has no column \"{wanted}\"")),
            Some(column) if column.length != Length::Varlena => Some(format!(
                "{name}: column \"{wanted}\" is of type {}, whose values are never toasted",
                column.type_name
            )),
            Some(_) => None,
        }
    })
}

/// Refuses what is no table with rows of its own in a heap.
pub(crate) fn kind(relation: &Relation) -> Result<(), Refusal> {
    let name = relation.display_name();
    if matches!(relation.schema.as_str(), "pg_catalog" | "information_schema") {
        return refused(format!(
            "{name} is a system catalog: the server alone may change its settings"
        ));
    }
    // names that begin so are the server's own
    if relation.schema.starts_with("pg_temp_") {
        return refused(format!(
            "{name} is a temporary table of another session, which alone can read and change its rows"
        ));
    }
    match relation.kind {
        RelationKind::Table if relation.is_heap => Ok(()),
        RelationKind::Table => {
            refused(format!("{name}: its access method is {}, not heap", relation.access_method))
        }
        RelationKind::MaterializedView => refused(format!(
            "{name} is a materialized view, whose rows cannot be updated\n\
             HINT:  Set the columns with ALTER MATERIALIZED VIEW and REFRESH it."
        )),
        RelationKind::Toast => refused(format!(
            "{name} is a TOAST relation\nHINT:  Name the table that it belongs to."
        )),
    }
}

/// Refuses a table whose updates are published but which has no replica identity: the server refuses each
/// of its updates (`CheckCmdReplicaIdentity`, execReplication.c). A partition is published with its
/// partitioned tables too.
pub(crate) async fn published(client: &Client, relation: &Relation) -> Result<(), Refusal> {
    // the view of what is published is dear to plan
    let sql = "SELECT EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubupdate) \
               AND CASE r.relreplident WHEN 'f' THEN false \
                   WHEN 'd' THEN NOT EXISTS (SELECT FROM pg_catalog.pg_index AS i \
                     WHERE i.indrelid = r.oid AND i.indisprimary AND i.indimmediate AND i.indisvalid) \
                   WHEN 'i' THEN NOT EXISTS (SELECT FROM pg_catalog.pg_index AS i \
                     WHERE i.indrelid = r.oid AND i.indisreplident AND i.indisvalid) \
                   ELSE true END \
               FROM pg_catalog.pg_class AS r WHERE r.oid = $1";
    let rows = client.query_typed(sql, &[(&relation.oid.0, Type::OID)]).await?;
    if !rows.first().map_or(Ok(false), |row| row.try_get(0))? {
        return Ok(());
    }
    let rows = client
        .query_typed(
            "SELECT pg_catalog.string_agg(DISTINCT pg_catalog.quote_ident(p.pubname), ', ') \
             FROM (SELECT relid::pg_catalog.oid AS oid FROM pg_catalog.pg_partition_ancestors($1) \
                   UNION SELECT $1) AS a \
             JOIN pg_catalog.pg_class AS c ON c.oid = a.oid \
             JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
             JOIN pg_catalog.pg_publication_tables AS t \
               ON t.schemaname = n.nspname AND t.tablename = c.relname \
             JOIN pg_catalog.pg_publication AS p ON p.pubname = t.pubname AND p.pubupdate",
            &[(&relation.oid.0, Type::OID)],
        )
        .await?;
    let by: Option<String> = rows.first().map_or(Ok(None), |row| row.try_get(0))?;
    match by {
        None => Ok(()),
        Some(by) => refused(format!(
            "{}: its updates are published ({by}) and it has no replica identity: the server refuses \
             every UPDATE\n\
             HINT:  Add a primary key, or ALTER TABLE {} REPLICA IDENTITY FULL for the time.",
            relation.display_name(),
            relation.quoted()
        )),
    }
}
