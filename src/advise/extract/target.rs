//! The column whose keys are extracted, the columns that they get, and what keeps the table from getting them.

use tokio_postgres::types::Type;

use super::keys::Keys;
use crate::advise::candidate::AdviseError;
use crate::server::LiveError;
use crate::server::catalog::Relation;
use crate::server::connect::Client;
use toast_format::disk::Oid;
use toast_format::disk::desc::Attribute;
use toast_format::model::sql::{LONGEST_NAME, quote_qualified, shown_qualified, truncated};

/// Columns that a table can have (`MaxHeapAttributeNumber`), dropped ones included.
const MOST_COLUMNS: usize = 1600;
/// Names that no column can have (`heap.c`).
const SYSTEM: [&str; 6] = ["tableoid", "cmax", "xmax", "cmin", "xmin", "ctid"];

/// A key and its column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TargetKey {
    pub key: String,
    /// In the database's encoding.
    pub bytes: Vec<u8>,
    /// The new column's name.
    pub name: String,
}

/// What is to be extracted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// The document column's index from 0.
    pub column: usize,
    pub column_name: String,
    pub keys: Vec<TargetKey>,
    /// The table that is migrated: it, or its parent.
    pub table: Migrated,
}

/// The column to extract from: the one that is named, or the only one of type `jsonb`.
///
/// # Errors
/// Where there is not exactly one.
pub(crate) fn column(relation: &Relation, named: &[usize]) -> Result<usize, AdviseError> {
    let name = relation.display_name();
    match named {
        [] => {
            let all = relation.desc.attributes.iter().enumerate();
            let found: Vec<(usize, &Attribute)> = all.filter(|(_, a)| is_jsonb(a)).collect();
            match found[..] {
                [] => Err(AdviseError::Unfit(format!(
                    "relation \"{name}\" has no jsonb column, whose keys could be extracted"
                ))),
                [(column, _)] => Ok(column),
                _ => {
                    let columns: Vec<&str> = found.iter().map(|(_, a)| a.name.as_str()).collect();
                    Err(AdviseError::Unfit(format!(
                        "relation \"{name}\" has several jsonb columns: {}\n\
                         HINT:  Name one of them with --column.",
                        columns.join(", ")
                    )))
                }
            }
        }
        &[column] => match relation.desc.attributes.get(column) {
            Some(own) if !is_jsonb(own) => Err(AdviseError::Unfit(format!(
                "column \"{}\" of relation \"{name}\" has type {}; keys are extracted from jsonb",
                own.name, own.type_name
            ))),
            _ => Ok(column),
        },
        _ => Err(AdviseError::Unfit(
            "--extract takes keys of one column\nHINT:  Name one column with --column.".into(),
        )),
    }
}

fn is_jsonb(attribute: &Attribute) -> bool {
    !attribute.dropped && attribute.type_name == "jsonb"
}

/// What the catalog says of the table.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// Why no column can be added to it.
    refused: Option<&'static str>,
    generated: bool,
    /// The keys in the database's encoding.
    keys: Vec<Vec<u8>>,
    table: Migrated,
    in_key: bool,
}

impl Asked {
    /// Those of the keys that have these bytes in the database, and find names for their columns.
    pub(crate) fn usable(
        mut self,
        relation: &Relation,
        column: usize,
        keys: Keys,
    ) -> (Keys, Asked) {
        let mut usable = Keys(Vec::new());
        let all = std::mem::take(&mut self.keys);
        for (key, bytes) in keys.0.into_iter().zip(all) {
            let is_same = bytes == key.as_bytes();
            usable.0.push(key);
            self.keys.push(bytes);
            if !is_same || target(relation, column, &usable, &self).is_err() {
                usable.0.pop();
                self.keys.pop();
            }
        }
        (usable, self)
    }
}

/// Asks the server.
pub(crate) async fn ask(
    client: &Client,
    relation: &Relation,
    parent: Option<&Migrated>,
    column: usize,
    keys: &Keys,
) -> Result<Asked, LiveError> {
    let sql = "SELECT CASE WHEN c.relkind NOT IN ('r', 'p') THEN 'a materialized view' \
                           WHEN c.relispartition AND NOT $4 THEN 'a partition' \
                           WHEN c.reloftype <> 0 THEN 'a typed table' \
                           WHEN EXISTS (SELECT FROM pg_catalog.pg_inherits AS i \
                                        WHERE (i.inhrelid = c.oid OR i.inhparent = c.oid) AND NOT $4) \
                           THEN 'part of an inheritance tree' END, \
                      a.attgenerated <> '', \
                      ARRAY(SELECT pg_catalog.convert_to(k.key, pg_catalog.getdatabaseencoding()) \
                            FROM pg_catalog.unnest($3) WITH ORDINALITY AS k (key, number) \
                            ORDER BY k.number) \
               FROM pg_catalog.pg_class AS c \
               JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = $2 \
               WHERE c.oid = $1";
    let number = i16::try_from(column + 1).unwrap_or(i16::MAX);
    let rows = client
        .query_typed(
            sql,
            &[
                (&relation.oid.0, Type::OID),
                (&number, Type::INT2),
                (&keys.0, Type::TEXT_ARRAY),
                (&parent.is_some(), Type::BOOL),
            ],
        )
        .await?;
    let row = rows.first().ok_or_else(|| LiveError::Unexpected("no row about the table".into()))?;
    let refused: Option<&str> = row.try_get(0)?;
    const KINDS: [&str; 4] =
        ["a materialized view", "a partition", "a typed table", "part of an inheritance tree"];
    let mut refused = refused
        .map(|what| KINDS.into_iter().find(|kind| *kind == what).unwrap_or("no ordinary table"));
    let mut table = Migrated {
        schema: relation.schema.clone(),
        name: relation.name.clone(),
        oid: relation.oid,
        partitions: 0,
    };
    let mut in_key = false;
    if let Some(parent) = parent {
        let attribute = relation.desc.attributes.get(column);
        let name = attribute.map_or("", |attribute| attribute.name.as_str());
        let said = parent_column(client, parent, name).await?;
        in_key = said.in_key;
        table = parent.clone();
        refused = refused.or(said.is_partition.then_some("a partition"));
    }
    Ok(Asked { refused, generated: row.try_get(1)?, keys: row.try_get(2)?, table, in_key })
}

/// The keys with names for their columns.
///
/// # Errors
/// What keeps the table from getting them.
pub(crate) fn target(
    relation: &Relation,
    column: usize,
    keys: &Keys,
    asked: &Asked,
) -> Result<Target, AdviseError> {
    let attributes = &relation.desc.attributes;
    let name = match asked.table.partitions {
        0 => relation.display_name(),
        _ => asked.table.display_name(),
    };
    let column_name = attributes.get(column).map_or_else(String::new, |a| a.name.clone());
    let why = if let Some(what) = asked.refused {
        Some(format!("\"{name}\" is {what}, to which no column can be added by itself"))
    } else if asked.generated {
        Some(format!(
            "column \"{column_name}\" of relation \"{name}\" is generated: its documents cannot be changed"
        ))
    } else if asked.in_key {
        Some(format!(
            "relation \"{name}\" is partitioned by column \"{column_name}\": its documents decide where rows stand"
        ))
    } else if attributes.len() + keys.0.len() > MOST_COLUMNS {
        Some(format!(
            "relation \"{name}\" would have more than {MOST_COLUMNS} columns, dropped ones included"
        ))
    } else {
        None
    };
    if let Some(why) = why {
        return Err(AdviseError::Unfit(why));
    }
    let mut taken: Vec<String> =
        attributes.iter().filter(|a| !a.dropped).map(|a| a.name.clone()).collect();
    taken.extend(SYSTEM.map(str::to_owned));
    let mut named = Vec::with_capacity(keys.0.len());
    for (key, bytes) in keys.0.iter().zip(&asked.keys) {
        let own = truncated(key, LONGEST_NAME).to_owned();
        let other = truncated(&format!("{column_name}_{key}"), LONGEST_NAME).to_owned();
        let free =
            [&own, &other].into_iter().find(|name| !name.is_empty() && !taken.contains(*name));
        let Some(free) = free.cloned() else {
            return Err(AdviseError::Unfit(format!(
                "key \"{key}\" has no name for a column: relation \"{name}\" has \"{own}\" and \"{other}\" already\n\
                 HINT:  Rename one of these columns, or extract other keys."
            )));
        };
        taken.push(free.clone());
        named.push(TargetKey { key: key.clone(), bytes: bytes.clone(), name: free });
    }
    Ok(Target { column, column_name, keys: named, table: asked.table.clone() })
}

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
        shown_qualified(&self.schema, &self.name)
    }

    /// As SQL names it.
    pub(crate) fn quoted(&self) -> String {
        quote_qualified(&self.schema, &self.name)
    }
}

/// A partitioned table that has so many partitions with rows.
pub(crate) async fn parent(
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
struct ParentColumn {
    /// Whether the parent is itself a partition.
    is_partition: bool,
    /// Whether rows are dealt out by it.
    in_key: bool,
}

/// Asks for the column of this name.
async fn parent_column(
    client: &Client,
    parent: &Migrated,
    name: &str,
) -> Result<ParentColumn, LiveError> {
    // what a partition key names depends on the table (StorePartitionKey)
    let sql = "SELECT c.relispartition, EXISTS (\
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
    Ok(ParentColumn { is_partition: row.try_get(0)?, in_key: row.try_get(1)? })
}
