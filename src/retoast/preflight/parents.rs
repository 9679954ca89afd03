//! Partitioned tables, and those of Citus: they store nothing, but new partitions and shards that Citus moves copy their
//! settings.

use tokio_postgres::types::Type;

use super::ready::ConvertRequest;
use super::{changes, tuple_target};
use crate::retoast::error::RetoastError;
use crate::retoast::memory::settings::current;
use crate::server::about::Server;
use crate::server::connect::Client;
use crate::server::toasters;
use toast_format::disk::Oid;
use toast_format::judge::pluggable::{self, ToasterPlan};
use toast_format::model::sql::{quote_qualified, shown_qualified};

/// What must be set on a partitioned table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    pub name: String,
    pub alter: String,
}

/// What must be set on a partitioned table or one of Citus so that new partitions and shards get the chosen settings;
/// `None` if nothing must. A partitioned table has no `toast_tuple_target`.
pub async fn parent(
    client: &Client,
    server: &Server,
    oid: Oid,
    request: &ConvertRequest,
) -> Result<Option<Parent>, RetoastError> {
    let rows = client
        .query_typed(
            "SELECT n.nspname::pg_catalog.text, c.relname::pg_catalog.text, \
                    a.attname::pg_catalog.text, a.attstorage::pg_catalog.text, \
                    a.attcompression::pg_catalog.text, c.relkind = 'p', \
                    (SELECT option_value FROM pg_catalog.pg_options_to_table(c.reloptions) \
                     WHERE option_name = 'toast_tuple_target') \
             FROM pg_catalog.pg_class AS c \
             JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
             JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid \
             WHERE c.oid = $1 AND a.attnum > 0 AND a.attlen = -1 AND a.attname = ANY ($2) \
             ORDER BY a.attnum",
            &[(&oid.0, Type::OID), (&request.columns, Type::TEXT_ARRAY)],
        )
        .await?;
    let Some(first) = rows.first() else { return Ok(None) };
    let schema: String = first.try_get(0)?;
    let name: String = first.try_get(1)?;
    let has_target: Option<String> = first.try_get(6)?;
    let has_target = has_target.and_then(|text| text.parse().ok());
    let wanted_target = if first.try_get(5)? { None } else { request.target };
    let wanted_target = tuple_target(wanted_target, server)?;
    let has_target = tuple_target(has_target, server)?;
    let mut columns = Vec::new();
    for row in &rows {
        let now = current(row.try_get(3)?, row.try_get(4)?)?;
        columns.push((row.try_get(2)?, now));
    }
    let plan = plan(client, server, oid, request).await?;
    let changes = changes(&request.goal, &columns, wanted_target, has_target, plan.as_ref());
    let alter = changes.statement(&quote_qualified(&schema, &name));
    Ok(alter.map(|alter| Parent { name: shown_qualified(&schema, &name), alter }))
}

/// What a server with pluggable TOAST requires in addition, as for the table's partitions.
async fn plan(
    client: &Client,
    server: &Server,
    oid: Oid,
    request: &ConvertRequest,
) -> Result<Option<ToasterPlan>, RetoastError> {
    let Some(toasters) = toasters::ask(client, server).await? else { return Ok(None) };
    let columns = toasters::columns(client, Some(oid)).await?;
    let chosen: Vec<_> = columns
        .iter()
        .filter(|column| !column.dropped && request.columns.contains(&column.name))
        .collect();
    Ok(pluggable::plan(Some(&toasters), &chosen, &request.goal)?)
}
