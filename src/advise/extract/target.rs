//! The column whose keys are extracted, the columns that they get, and what speaks against it.

use tokio_postgres::types::Type;

use super::around::{self, Around};
use super::keys::Keys;
use super::parent::{self, Migrated};
use crate::disk::desc::Attribute;
use crate::server::LiveError;
use crate::server::catalog::Relation;
use crate::server::connect::Client;

/// Bytes of the longest name (`NAMEDATALEN` less its end).
const LONGEST_NAME: usize = 63;
/// Columns that a table can have (`MaxHeapAttributeNumber`), dropped ones included.
const MOST_COLUMNS: usize = 1600;
/// Names that no column can have (`heap.c`).
const SYSTEM: [&str; 6] = ["tableoid", "cmax", "xmax", "cmin", "xmin", "ctid"];

/// Why keys cannot be extracted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExtractError {
    #[error("--extract takes keys of one column\nHINT:  Name one column with --column.")]
    ManyColumns,
    #[error(
        "relation \"{relation}\" has several jsonb columns: {columns}\nHINT:  Name one of them with --column."
    )]
    Ambiguous { relation: String, columns: String },
    #[error("relation \"{relation}\" has no jsonb column, whose keys could be extracted")]
    NoJsonb { relation: String },
    #[error(
        "column \"{column}\" of relation \"{relation}\" has type {type_name}; keys are extracted from jsonb"
    )]
    NotJsonb { relation: String, column: String, type_name: String },
    #[error(
        "column \"{column}\" of relation \"{relation}\" is generated: its documents cannot be changed"
    )]
    Generated { relation: String, column: String },
    #[error(
        "relation \"{relation}\" is partitioned by column \"{column}\": its documents decide where rows stand"
    )]
    PartitionKey { relation: String, column: String },
    #[error("\"{relation}\" is {what}, to which no column can be added by itself")]
    NoTable { relation: String, what: &'static str },
    #[error(
        "key \"{key}\" has no name for a column: relation \"{relation}\" has \"{name}\" and \"{other}\" already\n\
         HINT:  Rename one of these columns, or extract other keys."
    )]
    Collision { relation: String, key: String, name: String, other: String },
    #[error(
        "relation \"{relation}\" would have more than {MOST_COLUMNS} columns, dropped ones included"
    )]
    TooManyColumns { relation: String },
    #[error("no document of column \"{column}\"{sampled} has the key \"{key}\" at its root{hint}")]
    NoSuchKey { column: String, key: String, sampled: &'static str, hint: String },
}

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
    pub around: Around,
    /// The table that is migrated: it, or its parent.
    pub table: Migrated,
}

/// The column to extract from: the one that is named, or the only one of type `jsonb`.
///
/// # Errors
/// Where there is not exactly one.
pub(crate) fn column(relation: &Relation, named: &[usize]) -> Result<usize, ExtractError> {
    let name = relation.display_name();
    let attribute = |index: usize| relation.desc.attributes.get(index);
    match named {
        [] => {
            let all = relation.desc.attributes.iter().enumerate();
            let found: Vec<(usize, &Attribute)> = all.filter(|(_, a)| is_jsonb(a)).collect();
            match found[..] {
                [] => Err(ExtractError::NoJsonb { relation: name }),
                [(column, _)] => Ok(column),
                _ => {
                    let columns: Vec<&str> = found.iter().map(|(_, a)| a.name.as_str()).collect();
                    Err(ExtractError::Ambiguous { relation: name, columns: columns.join(", ") })
                }
            }
        }
        &[column] => match attribute(column) {
            Some(own) if !is_jsonb(own) => Err(ExtractError::NotJsonb {
                relation: name,
                column: own.name.clone(),
                type_name: own.type_name.clone(),
            }),
            _ => Ok(column),
        },
        _ => Err(ExtractError::ManyColumns),
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
    around: Around,
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
        let (mut usable, all) = (Keys(Vec::new()), std::mem::take(&mut self.keys));
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
    let known = |what: &str| KINDS.into_iter().find(|kind| *kind == what);
    let mut refused = refused.map(|what| known(what).unwrap_or("no ordinary table"));
    let mut table = Migrated {
        schema: relation.schema.clone(),
        name: relation.name.clone(),
        oid: relation.oid,
        partitions: 0,
    };
    let (mut number, mut in_key) = (number, false);
    if let Some(parent) = parent {
        let attribute = relation.desc.attributes.get(column);
        let name = attribute.map_or("", |attribute| attribute.name.as_str());
        let said = parent::column(client, parent, name).await?;
        (number, in_key, table) = (said.number, said.in_key, parent.clone());
        refused = refused.or(said.is_partition.then_some("a partition"));
    }
    Ok(Asked {
        refused,
        generated: row.try_get(1)?,
        keys: row.try_get(2)?,
        around: around::ask(client, &table, number).await?,
        table,
        in_key,
    })
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
) -> Result<Target, ExtractError> {
    let attributes = &relation.desc.attributes;
    let name = match asked.table.partitions {
        0 => relation.display_name(),
        _ => asked.table.display_name(),
    };
    let column_name = attributes.get(column).map_or_else(String::new, |a| a.name.clone());
    if let Some(what) = asked.refused {
        return Err(ExtractError::NoTable { relation: name, what });
    }
    if asked.generated {
        return Err(ExtractError::Generated { relation: name, column: column_name });
    }
    if asked.in_key {
        return Err(ExtractError::PartitionKey { relation: name, column: column_name });
    }
    if attributes.len() + keys.0.len() > MOST_COLUMNS {
        return Err(ExtractError::TooManyColumns { relation: name });
    }
    let mut taken: Vec<String> =
        attributes.iter().filter(|a| !a.dropped).map(|a| a.name.clone()).collect();
    taken.extend(SYSTEM.map(str::to_owned));
    let mut named = Vec::with_capacity(keys.0.len());
    for (key, bytes) in keys.0.iter().zip(&asked.keys) {
        let own = cut(key);
        let other = cut(&format!("{column_name}_{key}"));
        let free =
            [&own, &other].into_iter().find(|name| !name.is_empty() && !taken.contains(*name));
        let Some(free) = free.cloned() else {
            let key = key.clone();
            return Err(ExtractError::Collision { relation: name, key, name: own, other });
        };
        taken.push(free.clone());
        named.push(TargetKey { key: key.clone(), bytes: bytes.clone(), name: free });
    }
    let (around, table) = (asked.around.clone(), asked.table.clone());
    Ok(Target { column, column_name, keys: named, around, table })
}

/// A name that is not too long.
fn cut(name: &str) -> String {
    let mut end = name.len().min(LONGEST_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.get(..end).unwrap_or_default().to_owned()
}
