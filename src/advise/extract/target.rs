//! The column whose keys are extracted, the columns that they get, and what keeps the table from getting them.

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::advise::candidate::AdviseError;
use crate::server::LiveError;
use crate::server::catalog::Relation;
use crate::server::connect::Client;
use toast_format::disk::{Attribute, Oid};
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
pub(crate) struct ExtractionTarget {
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

/// The columns that these keys get: without those that cannot have one, if `skips_unfit`. `parent`: the table that is
/// migrated, if the relation is one of its partitions.
///
/// # Errors
/// What keeps the table from getting them.
pub(crate) async fn target(
    client: &Client,
    relation: &Relation,
    parent: Option<&Migrated>,
    column: usize,
    keys: &[String],
    skips_unfit: bool,
) -> Result<ExtractionTarget, AdviseError> {
    // what a partition key names depends on the table (StorePartitionKey)
    let sql = "SELECT CASE WHEN c.relkind NOT IN ('r', 'p') THEN 'a materialized view' \
                           WHEN t.relispartition THEN 'a partition' \
                           WHEN c.reloftype <> 0 THEN 'a typed table' \
                           WHEN c.oid = t.oid AND EXISTS (SELECT FROM pg_catalog.pg_inherits AS i \
                                                          WHERE i.inhrelid = c.oid OR i.inhparent = c.oid) \
                           THEN 'part of an inheritance tree' END, \
                      a.attgenerated <> '', \
                      EXISTS (SELECT FROM pg_catalog.pg_partition_tree(t.oid) AS p \
                          JOIN pg_catalog.pg_attribute AS k ON k.attrelid = p.relid AND k.attname = a.attname \
                          JOIN pg_catalog.pg_depend AS d ON d.objid = p.relid AND d.objsubid = k.attnum \
                              AND d.refobjid = p.relid AND d.refobjsubid = 0 AND d.deptype = 'i' \
                              AND d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass \
                              AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass \
                          WHERE NOT p.isleaf), \
                      ARRAY(SELECT pg_catalog.convert_to(k.key, pg_catalog.getdatabaseencoding()) \
                            FROM pg_catalog.unnest($4) WITH ORDINALITY AS k (key, number) \
                            ORDER BY k.number) \
               FROM pg_catalog.pg_class AS c \
               JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = $2 \
               JOIN pg_catalog.pg_class AS t ON t.oid = $3 \
               WHERE c.oid = $1";
    let number = i16::try_from(column + 1).unwrap_or(i16::MAX);
    let table = parent.cloned().unwrap_or_else(|| Migrated {
        schema: relation.schema.clone(),
        name: relation.name.clone(),
        oid: relation.oid,
        partitions: 0,
    });
    let parameters: [(&(dyn ToSql + Sync), Type); 4] = [
        (&relation.oid.0, Type::OID),
        (&number, Type::INT2),
        (&table.oid.0, Type::OID),
        (&keys, Type::TEXT_ARRAY),
    ];
    let live = |error| AdviseError::Live { relation: relation.display_name(), error };
    let rows = client.query_typed(sql, &parameters).await.map_err(|error| live(error.into()))?;
    let row = rows.first().ok_or_else(|| live(LiveError::Unexpected("no table".into())))?;
    let said = CatalogAnswer::new(row).map_err(|error| live(error.into()))?;
    let attributes = &relation.desc.attributes;
    let column_name = attributes.get(column).map_or_else(String::new, |a| a.name.clone());
    let name = table.display_name();
    let most = MOST_COLUMNS.saturating_sub(attributes.len());
    let why = if let Some(what) = said.refused {
        Some(format!("\"{name}\" is {what}, to which no column can be added by itself"))
    } else if said.is_generated {
        Some(format!(
            "column \"{column_name}\" of relation \"{name}\" is generated: its documents cannot be changed"
        ))
    } else if said.is_in_key {
        Some(format!(
            "relation \"{name}\" is partitioned by column \"{column_name}\": its documents decide where rows stand"
        ))
    } else if keys.len() > most && !skips_unfit {
        Some(format!(
            "relation \"{name}\" would have more than {MOST_COLUMNS} columns, dropped ones included"
        ))
    } else {
        None
    };
    if let Some(why) = why {
        return Err(AdviseError::Unfit(why));
    }
    let unnamed = ExtractionTarget { column, column_name, keys: Vec::new(), table };
    let keys = keys.iter().zip(said.keys);
    unnamed.with_columns(attributes, keys, most, skips_unfit)
}

impl ExtractionTarget {
    /// With these keys, as the user and as the database spells them, and names for their columns; at most `most`.
    fn with_columns<'k>(
        mut self,
        attributes: &[Attribute],
        keys: impl Iterator<Item = (&'k String, Vec<u8>)>,
        most: usize,
        skips_unfit: bool,
    ) -> Result<ExtractionTarget, AdviseError> {
        let own = attributes.iter().filter(|a| !a.dropped).map(|a| a.name.as_str());
        let mut taken: Vec<String> = own.chain(SYSTEM).map(str::to_owned).collect();
        for (key, bytes) in keys {
            let own = truncated(key, LONGEST_NAME).to_owned();
            let other = truncated(&format!("{}_{key}", self.column_name), LONGEST_NAME).to_owned();
            let mut names = [&own, &other].into_iter();
            let free = names.find(|name| !name.is_empty() && !taken.contains(*name)).cloned();
            let is_unfit = bytes != key.as_bytes() || free.is_none() || self.keys.len() == most;
            if skips_unfit && is_unfit {
                continue;
            }
            let Some(free) = free else {
                let name = self.table.display_name();
                return Err(AdviseError::Unfit(format!(
                    "key \"{key}\" has no name for a column: relation \"{name}\" has \"{own}\" and \"{other}\" already\n\
                     HINT:  Rename one of these columns, or extract other keys."
                )));
            };
            taken.push(free.clone());
            self.keys.push(TargetKey { key: key.clone(), bytes, name: free });
        }
        Ok(self)
    }
}

/// The catalog's answer about a column.
struct CatalogAnswer {
    /// Why no column can be added to its table.
    refused: Option<String>,
    is_generated: bool,
    /// Whether rows are dealt out to partitions by it.
    is_in_key: bool,
    /// The keys in the database's encoding.
    keys: Vec<Vec<u8>>,
}

impl CatalogAnswer {
    fn new(row: &Row) -> Result<CatalogAnswer, tokio_postgres::Error> {
        Ok(CatalogAnswer {
            refused: row.try_get(0)?,
            is_generated: row.try_get(1)?,
            is_in_key: row.try_get(2)?,
            keys: row.try_get(3)?,
        })
    }
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
