//! Partitioned tables, and those of Citus: they store nothing, but new partitions and shards that Citus moves copy their
//! settings.

use tokio_postgres::types::Type;

use super::definition::{Definition, Settings};
use super::ready::ConvertRequest;
use super::{changes, tuple_target};
use crate::retoast::error::Result;
use crate::retoast::memory::settings::current;
use crate::server::{Client, Parameter, Server, toasters};
use toast_format::disk::Oid;
use toast_format::judge::goal::Goal;
use toast_format::judge::pluggable::{self, ToasterPlan};
use toast_format::judge::toaster::TargetChange;
use toast_format::model::sql::{quote_qualified, shown_qualified};

/// What must be set on a partitioned table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    pub oid: Oid,
    pub name: String,
    pub alter: String,
    /// The statement that restores the present settings.
    pub restore: Option<String>,
    change: Option<Change>,
}

/// The settings before and after the statement.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    table: String,
    before: Settings,
    ours: Settings,
    has_toasters: bool,
}

impl Parent {
    /// The statement that restores what was set, except what another session has set since; `None` if nothing is left to
    /// restore.
    pub(crate) async fn restoring(&self, client: &Client) -> Result<Option<String>> {
        let Some(Change { table, before, ours, has_toasters }) = &self.change else {
            return Ok(None);
        };
        let now = Definition::read(client, self.oid, *has_toasters).await?;
        Ok(now.and_then(|now| {
            before.where_unchanged(ours, now.settings()).restore(table, now.settings())
        }))
    }
}

/// What must be set on a partitioned table or one of Citus so that new partitions and shards get the chosen settings;
/// `None` if nothing must. A partitioned table has no `toast_tuple_target`.
pub async fn parent(
    client: &Client,
    server: &Server,
    oid: Oid,
    request: &ConvertRequest,
) -> Result<Option<Parent>> {
    let sql = "SELECT n.nspname::pg_catalog.text, c.relname::pg_catalog.text, \
                      a.attname::pg_catalog.text, a.attstorage::pg_catalog.text, \
                      a.attcompression::pg_catalog.text, c.relkind = 'p', \
                      (SELECT option_value FROM pg_catalog.pg_options_to_table(c.reloptions) \
                       WHERE option_name = 'toast_tuple_target') \
               FROM pg_catalog.pg_class AS c \
               JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
               JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid \
               JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid \
               WHERE c.oid = $1 AND a.attnum > 0 AND a.attlen = -1 AND CASE WHEN $3 \
                   THEN t.typstorage <> 'p' AND NOT a.attisdropped AND a.attgenerated <> 'v' \
                       AND NOT ($4 AND a.attgenerated = 's') \
                   ELSE a.attname = ANY ($2) END \
               ORDER BY a.attnum";
    let takes_all = request.takes_all_columns();
    let by_policy = matches!(request.goal, Goal::Policy(_));
    let about: [Parameter<'_>; 4] = [
        (&oid.0, Type::OID),
        (&request.columns, Type::TEXT_ARRAY),
        (&takes_all, Type::BOOL),
        (&by_policy, Type::BOOL),
    ];
    let rows = client.query_typed(sql, &about).await?;
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
    let target = TargetChange::new(wanted_target, has_target, server.page_size);
    let changes = changes(&request.goal, &columns, target, plan.as_ref());
    let table = quote_qualified(&schema, &name);
    let Some(alter) = changes.statement(&table) else { return Ok(None) };
    let has_toasters = plan.is_some();
    let now = Definition::read(client, oid, has_toasters).await?;
    let change = now.map(|now| Change {
        table: table.clone(),
        before: now.settings().clone(),
        ours: now.with(&changes),
        has_toasters,
    });
    let restore = change.as_ref().and_then(|change| change.before.restore(&table, &change.ours));
    Ok(Some(Parent { oid, name: shown_qualified(&schema, &name), alter, restore, change }))
}

/// What a server with pluggable TOAST requires in addition, as for the table's partitions.
async fn plan(
    client: &Client,
    server: &Server,
    oid: Oid,
    request: &ConvertRequest,
) -> Result<Option<ToasterPlan>> {
    let Some(toasters) = toasters::ask(client, server).await? else { return Ok(None) };
    let columns = toasters::columns(client, Some(oid)).await?;
    let chosen: Vec<_> = columns
        .iter()
        .filter(|column| {
            let is_chosen = request.takes_all_columns() || request.columns.contains(&column.name);
            !column.dropped && is_chosen
        })
        .collect();
    Ok(pluggable::plan(Some(&toasters), &chosen, &request.goal)?)
}
