//! A partitioned table: its partitions are priced each for itself, and one migration is for all of them.

use tokio_postgres::types::Type;

use crate::disk::Oid;
use crate::model::sql::quote_qualified;
use crate::server::LiveError;
use crate::server::connect::Client;

/// The table that a migration is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    pub schema: String,
    pub name: String,
    pub oid: Oid,
    /// Its partitions; 0 if it has none.
    pub partitions: u32,
}

impl Migrated {
    /// As messages name it.
    pub(crate) fn display_name(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }

    /// As SQL names it.
    pub(crate) fn quoted(&self) -> String {
        quote_qualified(&self.schema, &self.name)
    }
}

/// A partitioned table that has so many partitions with rows.
pub(in crate::advise) async fn parent(
    client: &Client,
    oid: Oid,
    partitions: usize,
) -> Result<Option<Migrated>, LiveError> {
    let sql = "SELECT n.nspname::pg_catalog.text, c.relname::pg_catalog.text \
               FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
               WHERE c.oid = $1";
    let rows = client.query_typed(sql, &[(&oid.0, Type::OID)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let partitions = u32::try_from(partitions).unwrap_or(u32::MAX);
    Ok(Some(Migrated { schema: row.try_get(0)?, name: row.try_get(1)?, oid, partitions }))
}

/// What a parent says of the column of a name.
#[derive(Debug)]
pub(super) struct ParentColumn {
    pub(super) number: i16,
    /// Whether the parent is itself a partition.
    pub(super) is_partition: bool,
    /// Whether rows are dealt out by it.
    pub(super) in_key: bool,
}

/// Asks for the column of this name.
pub(super) async fn column(
    client: &Client,
    parent: &Migrated,
    name: &str,
) -> Result<ParentColumn, LiveError> {
    // what a partition key names depends on the table (StorePartitionKey)
    let sql = "SELECT a.attnum, c.relispartition, EXISTS (\
                   SELECT FROM pg_catalog.pg_partition_tree($1) AS t \
                   JOIN pg_catalog.pg_attribute AS k ON k.attrelid = t.relid AND k.attname = a.attname \
                   JOIN pg_catalog.pg_depend AS d ON d.objid = t.relid AND d.objsubid = k.attnum \
                       AND d.refobjid = t.relid AND d.refobjsubid = 0 AND d.deptype = 'i' \
                       AND d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass \
                       AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass \
                   WHERE NOT t.isleaf) \
               FROM pg_catalog.pg_attribute AS a \
               JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid \
               WHERE a.attrelid = $1 AND a.attname = $2 AND a.attnum > 0 AND NOT a.attisdropped";
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
        [(&parent.oid.0, Type::OID), (&name, Type::TEXT)];
    let rows = client.query_typed(sql, &parameters).await?;
    let row =
        rows.first().ok_or_else(|| LiveError::Unexpected("no row about the column".into()))?;
    Ok(ParentColumn {
        number: row.try_get(0)?,
        is_partition: row.try_get(1)?,
        in_key: row.try_get(2)?,
    })
}
