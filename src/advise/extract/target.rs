//! The column whose keys are extracted, the columns that they get, what speaks against it, and what is around the column:
//! what depends on it, who may use it, what fires and what is replicated.

use tokio_postgres::types::Type;

use super::keys::Keys;
use crate::advise::candidate::AdviseError;
use crate::server::LiveError;
use crate::server::catalog::Relation;
use crate::server::connect::Client;
use toast_format::disk::Oid;
use toast_format::disk::desc::Attribute;
use toast_format::model::sql::{
    LONGEST_NAME, quote_literal, quote_qualified, shown_qualified, truncated,
};

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
    pub around: Around,
    /// The table that is migrated: it, or its parent.
    pub table: Migrated,
}

/// The column to extract from: the one that is named, or the only one of type `jsonb`.
///
/// # Errors
/// Where there is not exactly one.
pub(crate) fn column(relation: &Relation, named: &[usize]) -> Result<usize, AdviseError> {
    let name = relation.display_name();
    let attribute = |index: usize| relation.desc.attributes.get(index);
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
        &[column] => match attribute(column) {
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
        let said = parent_column(client, parent, name).await?;
        (number, in_key, table) = (said.number, said.in_key, parent.clone());
        refused = refused.or(said.is_partition.then_some("a partition"));
    }
    Ok(Asked {
        refused,
        generated: row.try_get(1)?,
        keys: row.try_get(2)?,
        around: around(client, &table, number).await?,
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
    let (around, table) = (asked.around.clone(), asked.table.clone());
    Ok(Target { column, column_name, keys: named, around, table })
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
    number: i16,
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

/// What the names of triggers and functions of a migration begin with.
pub(super) const OWN: &str = "toastctl_extract.";

/// What the catalog says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Around {
    /// Descriptions of what depends on the column: indexes, constraints, views, policies.
    pub dependents: Vec<String>,
    /// Names of row triggers that fire when rows are updated.
    pub triggers: Vec<String>,
    /// Publications that the table is in.
    pub publications: Vec<String>,
    /// Whether a subscription writes to the table, for which ordinary triggers do not fire.
    pub subscribed: bool,
    /// Privileges on the column alone.
    pub grants: Vec<Grant>,
}

/// A privilege on the column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub privilege: String,
    /// A role, quoted, or PUBLIC; with the option to grant it, where it has that.
    pub to: String,
}

/// A query for descriptions of what depends on column `number` of `table`, both SQL expressions, the migration's own
/// trigger and the column's default left out.
pub(super) fn dependents(table: &str, number: &str) -> String {
    format!(
        "SELECT DISTINCT pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid) AS object
  FROM pg_catalog.pg_depend AS d
  LEFT JOIN pg_catalog.pg_trigger AS g ON d.classid = 'pg_catalog.pg_trigger'::pg_catalog.regclass AND g.oid = d.objid
  LEFT JOIN pg_catalog.pg_attrdef AS v ON d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass AND v.oid = d.objid
  WHERE d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass
    AND d.refobjid = {table} AND d.refobjsubid = {number}
    AND NOT pg_catalog.starts_with(coalesce(g.tgname, ''), {own})
    AND (v.oid IS NULL OR v.adrelid <> d.refobjid OR v.adnum <> d.refobjsubid)",
        own = quote_literal(OWN)
    )
}

/// Asks the server about the column of this number.
async fn around(client: &Client, table: &Migrated, number: i16) -> Result<Around, LiveError> {
    let dependents = dependents("$1", "$2::pg_catalog.int4");
    // row triggers (1) on UPDATE (16)
    let sql = format!(
        "SELECT ARRAY({dependents} ORDER BY 1), \
                ARRAY(SELECT g.tgname::pg_catalog.text FROM pg_catalog.pg_trigger AS g \
                      WHERE g.tgrelid = $1 AND NOT g.tgisinternal AND g.tgenabled <> 'D' AND g.tgtype & 17 = 17 \
                      AND NOT pg_catalog.starts_with(g.tgname, {own}) ORDER BY 1), \
                ARRAY(SELECT p.pubname::pg_catalog.text FROM pg_catalog.pg_publication_tables AS p \
                      WHERE p.schemaname = $3 AND p.tablename = $4 ORDER BY 1), \
                EXISTS (SELECT FROM pg_catalog.pg_subscription_rel AS s WHERE s.srrelid = $1), \
                ARRAY(SELECT x.privilege_type FROM pg_catalog.aclexplode(a.attacl) AS x \
                      ORDER BY x.grantee, x.privilege_type), \
                ARRAY(SELECT pg_catalog.concat(CASE WHEN x.grantee = 0 THEN 'PUBLIC' ELSE \
                          pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(x.grantee)) END, \
                          CASE WHEN x.is_grantable THEN ' WITH GRANT OPTION' END) \
                      FROM pg_catalog.aclexplode(a.attacl) AS x ORDER BY x.grantee, x.privilege_type) \
         FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = $1 AND a.attnum = $2",
        own = quote_literal(OWN)
    );
    let rows = client
        .query_typed(
            &sql,
            &[
                (&table.oid.0, Type::OID),
                (&number, Type::INT2),
                (&table.schema, Type::TEXT),
                (&table.name, Type::TEXT),
            ],
        )
        .await?;
    let row =
        rows.first().ok_or_else(|| LiveError::Unexpected("no row about the column".into()))?;
    let (privileges, roles): (Vec<String>, Vec<String>) = (row.try_get(4)?, row.try_get(5)?);
    let grants = privileges.into_iter().zip(roles);
    Ok(Around {
        dependents: row.try_get(0)?,
        triggers: row.try_get(1)?,
        publications: row.try_get(2)?,
        subscribed: row.try_get(3)?,
        grants: grants.map(|(privilege, to)| Grant { privilege, to }).collect(),
    })
}
