//! The shapes of column types, from the catalog.

use std::collections::{HashMap, HashSet};

use tokio_postgres::types::{Oid as PgOid, Type};

use crate::retoast::sql::Domain;
use crate::server::{Client, LiveResult, numbers};
use toast_format::disk::Oid;
use toast_format::model::sql::quote_qualified;
use toast_format::model::sql::{Field, Shape};

/// Composite types and domains that are nested more deeply are refused.
const DEEPEST: u32 = 32;

/// The shape of a type, or why its values cannot be rebuilt.
pub type ShapeOrReason = Result<Shape, String>;

struct TypeRow {
    oid: PgOid,
    kind: String,
    length: i16,
    array: PgOid,
    is_array: bool,
    element: PgOid,
    base: PgOid,
    relation: PgOid,
    quoted: String,
    name: String,
}

/// What is known of types; each is queried once, because tables that are prepared together have the same ones.
#[derive(Default)]
pub(crate) struct Types {
    shapes: HashMap<u32, ShapeOrReason>,
    domains: HashMap<u32, Option<Domain>>,
}

impl Types {
    /// The shape of the type `oid`.
    ///
    /// # Errors
    /// Any error of the server, as in [`Types::domain`].
    pub(super) async fn shape(&mut self, client: &Client, oid: u32) -> LiveResult<ShapeOrReason> {
        if let Some(known) = self.shapes.get(&oid) {
            return Ok(known.clone());
        }
        let shape = nested(client, oid, 0).await?;
        self.shapes.insert(oid, shape.clone());
        Ok(shape)
    }

    /// The type `oid`, if it is a domain.
    pub(super) async fn domain(&mut self, client: &Client, oid: u32) -> LiveResult<Option<Domain>> {
        if let Some(known) = self.domains.get(&oid) {
            return Ok(known.clone());
        }
        let domain = domain(client, oid).await?;
        self.domains.insert(oid, domain.clone());
        Ok(domain)
    }
}

async fn domain(client: &Client, oid: u32) -> LiveResult<Option<Domain>> {
    let sql = "WITH RECURSIVE base (type, modifier, depth) AS (\
                 SELECT $1, -1, 0 \
                 UNION ALL \
                 SELECT t.typbasetype, t.typtypmod, b.depth + 1 FROM base AS b \
                 JOIN pg_catalog.pg_type AS t ON t.oid = b.type WHERE t.typtype = 'd' AND b.depth < 100) \
               SELECT pg_catalog.format_type($1, NULL), pg_catalog.format_type(b.type, b.modifier), b.type \
               FROM base AS b WHERE b.depth > 0 ORDER BY b.depth DESC LIMIT 1";
    let Some(row) = client.row(sql, &[(&oid, Type::OID)]).await? else { return Ok(None) };
    let of_oid = row.try_get(2)?;
    Ok(Some(Domain { name: row.try_get(0)?, oid, of: row.try_get(1)?, of_oid }))
}

async fn nested(client: &Client, oid: u32, depth: u32) -> LiveResult<ShapeOrReason> {
    let Some(found) = type_row(client, oid).await? else {
        return Ok(Err(format!("there is no type {oid}")));
    };
    if depth > DEEPEST {
        return Ok(Err(format!("type {} is nested too deeply", found.name)));
    }
    if found.kind == "d" {
        let base = Box::pin(nested(client, found.base, depth + 1)).await?;
        return Ok(match base {
            // An array of the domain keeps its values whole, without checks.
            Ok(Shape::Scalar | Shape::Array) => scalar(&found),
            other => other,
        });
    }
    if found.length != -1 {
        return Ok(Ok(Shape::Fixed));
    }
    if found.kind == "c" {
        return composite(client, &found, depth).await;
    }
    Ok(if matches!(found.name.as_str(), "int2vector" | "oidvector") {
        Err(format!("values of type {} cannot be rewritten", found.name))
    } else if found.is_array {
        array_of(client, found, depth).await?
    } else {
        scalar(&found)
    })
}

/// A domain that was created before PostgreSQL 11 has no array type.
fn scalar(found: &TypeRow) -> ShapeOrReason {
    if found.array != 0 {
        Ok(Shape::Scalar)
    } else {
        Err(format!("type {} has no array type", found.name))
    }
}

/// The elements of an array matter only if they may contain compressed fields.
async fn array_of(client: &Client, found: TypeRow, depth: u32) -> LiveResult<ShapeOrReason> {
    let element = type_row(client, found.element).await?;
    if !element.is_some_and(|element| matches!(element.kind.as_str(), "c" | "d")) {
        return Ok(Ok(Shape::Array));
    }
    let element = match Box::pin(nested(client, found.element, depth + 1)).await? {
        Ok(element) if element.hidden("e", None).is_some() => Box::new(element),
        other => return Ok(other.map(|_| Shape::Array)),
    };
    let is_built_in = is_built_in(client, found.element).await?;
    let TypeRow { quoted: type_name, oid: type_oid, .. } = found;
    Ok(Ok(Shape::Rows { type_name, type_oid, element, is_built_in }))
}

/// Whether the type, and all of which it consists, are read from text by the server's own functions. Domains are not,
/// because their owners can add checks at any time, and neither are ranges, which may have functions of their owners.
async fn is_built_in(client: &Client, oid: u32) -> LiveResult<bool> {
    // From 16384 on, object IDs are those of users' objects (FirstNormalObjectId).
    let sql = "WITH RECURSIVE used (oid) AS (\
                 SELECT $1 \
                 UNION SELECT x.oid FROM used AS u JOIN pg_catalog.pg_type AS y ON y.oid = u.oid \
                 CROSS JOIN LATERAL (SELECT y.typelem UNION ALL SELECT a.atttypid \
                   FROM pg_catalog.pg_attribute AS a \
                   WHERE a.attrelid = y.typrelid AND a.attnum > 0 AND NOT a.attisdropped) AS x (oid) \
                 WHERE x.oid <> 0) \
               SELECT pg_catalog.bool_and(t.typtype IN ('c', 'e') OR t.typtype = 'b' AND \
                 (t.oid < 16384 OR t.typsubscript = 'pg_catalog.array_subscript_handler'::pg_catalog.regproc)) \
               FROM used AS u JOIN pg_catalog.pg_type AS t ON t.oid = u.oid";
    let row = client.row(sql, &[(&oid, Type::OID)]).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?.unwrap_or(false))
}

async fn composite(client: &Client, found: &TypeRow, depth: u32) -> LiveResult<ShapeOrReason> {
    let sql = "SELECT attname::pg_catalog.text, atttypid FROM pg_catalog.pg_attribute \
               WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum";
    let rows = client.query_typed(sql, &[(&found.relation, Type::OID)]).await?;
    let mut fields = Vec::with_capacity(rows.len());
    for row in &rows {
        let oid: PgOid = row.try_get(1)?;
        match Box::pin(nested(client, oid, depth + 1)).await? {
            Ok(shape) => fields.push(Field { name: row.try_get(0)?, shape }),
            Err(why) => return Ok(Err(why)),
        }
    }
    let TypeRow { quoted, oid, .. } = found;
    Ok(Ok(Shape::Composite { type_name: quoted.clone(), type_oid: *oid, fields }))
}

async fn type_row(client: &Client, oid: u32) -> LiveResult<Option<TypeRow>> {
    let sql = "SELECT t.typtype::pg_catalog.text, t.typlen, t.typarray, \
                      t.typsubscript = 'pg_catalog.array_subscript_handler'::pg_catalog.regproc, \
                      t.typbasetype, t.typrelid, n.nspname::pg_catalog.text, \
                      t.typname::pg_catalog.text, t.typelem \
               FROM pg_catalog.pg_type AS t \
               JOIN pg_catalog.pg_namespace AS n ON n.oid = t.typnamespace WHERE t.oid = $1";
    let Some(row) = client.row(sql, &[(&oid, Type::OID)]).await? else { return Ok(None) };
    let schema: String = row.try_get(6)?;
    let name: String = row.try_get(7)?;
    Ok(Some(TypeRow {
        oid,
        kind: row.try_get(0)?,
        length: row.try_get(1)?,
        array: row.try_get(2)?,
        is_array: row.try_get(3)?,
        element: row.try_get(8)?,
        base: row.try_get(4)?,
        relation: row.try_get(5)?,
        quoted: quote_qualified(&schema, &name),
        name,
    }))
}

/// A generated column, and the columns that its expression reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// Its index from 0, including dropped columns.
    pub index: usize,
    /// Whether its values are stored; those of virtual columns are not.
    pub stored: bool,
    /// The indexes of the columns on which it depends. An UPDATE that sets one of them recomputes it.
    pub bases: Vec<usize>,
}

/// Those of these tables of which an UPDATE of any column recomputes all stored generated columns. The server does so if
/// the table has a row-level `BEFORE UPDATE` trigger, even a disabled one (`ExecComputeStoredGenerated` in
/// nodeModifyTable.c).
pub(crate) async fn computes_all(client: &Client, oids: &[Oid]) -> LiveResult<HashSet<Oid>> {
    // In tgtype, 1 is ROW, 2 is BEFORE, 16 is UPDATE.
    let sql =
        "SELECT tgrelid FROM pg_catalog.pg_trigger WHERE tgrelid = ANY ($1) AND tgtype & 83 = 19";
    let rows = client.query_typed(sql, &[(&numbers(oids), Type::OID_ARRAY)]).await?;
    rows.iter().map(|row| Ok(Oid(row.try_get::<_, PgOid>(0)?))).collect()
}

/// The generated columns of tables; those without any are missing.
pub(super) async fn generated(
    client: &Client,
    oids: &[Oid],
) -> LiveResult<HashMap<Oid, Vec<Generated>>> {
    // Before PostgreSQL 15, the dependency on other columns is recorded for the column; since then, for its expression.
    let sql = "SELECT a.attnum, a.attgenerated = 's', \
                      coalesce(pg_catalog.array_agg(DISTINCT d.refobjsubid::pg_catalog.int2) \
                               FILTER (WHERE d.refobjsubid > 0 AND d.refobjsubid <> a.attnum), '{}'), \
                      a.attrelid \
               FROM pg_catalog.pg_attribute AS a \
               LEFT JOIN pg_catalog.pg_attrdef AS e ON e.adrelid = a.attrelid AND e.adnum = a.attnum \
               LEFT JOIN pg_catalog.pg_depend AS d \
                 ON d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass \
                 AND d.refobjid = a.attrelid \
                 AND (d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass AND d.objid = e.oid \
                   OR d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass \
                      AND d.objid = a.attrelid AND d.objsubid = a.attnum) \
               WHERE a.attrelid = ANY ($1) AND a.attnum > 0 AND NOT a.attisdropped \
               AND a.attgenerated <> '' GROUP BY 4, 1, 2 ORDER BY 4, 1";
    let rows = client.query_typed(sql, &[(&numbers(oids), Type::OID_ARRAY)]).await?;
    let mut found: HashMap<Oid, Vec<Generated>> = HashMap::new();
    for row in &rows {
        let bases: Vec<i16> = row.try_get(2)?;
        found.entry(Oid(row.try_get(3)?)).or_default().push(Generated {
            index: column_index(row.try_get(0)?),
            stored: row.try_get(1)?,
            bases: bases.into_iter().map(column_index).collect(),
        });
    }
    Ok(found)
}

/// The index of a column from 0, by its `attnum`.
fn column_index(attnum: i16) -> usize {
    usize::try_from(attnum - 1).unwrap_or(usize::MAX)
}
