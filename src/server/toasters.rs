//! The toasters of a server with pluggable TOAST, and the columns that may use them.
//!
//! The catalogs of such servers differ: one has `reltoastrelid` in `pg_class`, another an array with one TOAST relation for
//! each toaster; stock servers do not have `pg_attribute.atttoaster`. Rows are therefore read as jsonb, where a missing
//! column is NULL.

use tokio_postgres::Row;
use tokio_postgres::types::{Oid as PgOid, Type};

use super::about::Server;
use super::connect::Client;
use super::{LiveError, LiveResult, letter_in, numbers};
use toast_format::codec::Method;
use toast_format::disk::custom::DEFAULT_TOASTER;
use toast_format::disk::{Oid, Storage};
use toast_format::model::Toasters;
use toast_format::model::sql::quote_qualified;
use toast_format::model::toaster::catalog::{Handler, PluggableToaster, ToasterColumn};

/// The OIDs of the TOAST relations of `c`, a row of `pg_class`: an expression of type `oid[]`.
///
/// They come from `reltoastrelid`, which is 0 if there is none, or from `reltoastrelids`.
pub const TOAST_RELATIONS: &str = "ARRAY(SELECT x.oid::pg_catalog.oid \
     FROM (SELECT pg_catalog.to_jsonb(c) AS row) AS j, \
     LATERAL pg_catalog.jsonb_array_elements_text(CASE \
         WHEN j.row ? 'reltoastrelid' THEN pg_catalog.jsonb_build_array(j.row -> 'reltoastrelid') \
         WHEN pg_catalog.jsonb_typeof(j.row -> 'reltoastrelids') = 'array' \
         THEN j.row -> 'reltoastrelids' ELSE '[]' END) WITH ORDINALITY AS x (oid, n) \
     WHERE x.oid <> '0' ORDER BY x.n)";

/// A TOAST relation and a table that it belongs to.
pub(crate) struct ToastOwner {
    pub(crate) toast: Oid,
    pub(crate) table: Oid,
}

/// The tables of those of these relations that are TOAST relations: those that name them in `pg_class`, and those that they
/// depend on, should that be damaged.
pub(crate) async fn owners(client: &Client, oids: &[Oid]) -> LiveResult<Vec<ToastOwner>> {
    let sql = format!(
        "SELECT t.oid, c.oid FROM pg_catalog.pg_class AS t JOIN pg_catalog.pg_class AS c ON c.relkind IN ('r', 'm') \
         AND (t.oid = ANY ({TOAST_RELATIONS}) OR EXISTS (SELECT FROM pg_catalog.pg_depend AS d \
              WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = t.oid \
                AND d.refclassid = d.classid AND d.refobjid = c.oid AND d.deptype = 'i')) \
         WHERE t.oid = ANY ($1) AND t.relkind = 't' ORDER BY 1, 2"
    );
    let rows = client.query_typed(&sql, &[(&numbers(oids), Type::OID_ARRAY)]).await?;
    rows.iter()
        .map(|row| Ok(ToastOwner { toast: Oid(row.try_get(0)?), table: Oid(row.try_get(1)?) }))
        .collect()
}

/// Reads `pg_toaster`; `None` on a server without pluggable TOAST.
pub async fn ask(client: &Client, server: &Server) -> LiveResult<Option<Toasters>> {
    if !server.has_toasters {
        return Ok(None);
    }
    let sql = "SELECT t.oid, t.tsrname::pg_catalog.text, \
                      coalesce(p.proname::pg_catalog.text, '') \
               FROM pg_catalog.pg_toaster AS t \
               LEFT JOIN pg_catalog.pg_proc AS p ON p.oid = t.tsrhandler ORDER BY t.oid";
    let rows = client.query_typed(sql, &[]).await?;
    Ok(Some(Toasters::new(
        rows.iter()
            .map(|row| -> LiveResult<PluggableToaster> {
                Ok(PluggableToaster {
                    oid: Oid(row.try_get::<_, PgOid>(0)?),
                    name: row.try_get(1)?,
                    handler: Handler::from_function(row.try_get(2)?),
                })
            })
            .collect::<Result<_, _>>()?,
    )))
}

/// The toasters of the database; if the server has none, pointers are recognized by their bytes.
pub async fn toasters(client: &Client, server: &Server) -> LiveResult<Toasters> {
    Ok(ask(client, server).await?.unwrap_or_else(Toasters::by_bytes))
}

/// The columns of one table, or of all users' tables, partitioned tables and materialized views, ordered by table name;
/// dropped columns are included.
pub async fn columns(client: &Client, table: Option<Oid>) -> LiveResult<Vec<ToasterColumn>> {
    let sql = "SELECT c.oid, n.nspname::pg_catalog.text, c.relname::pg_catalog.text, \
                      c.relkind::pg_catalog.text, c.relpersistence = 't', a.attnum, \
                      a.attname::pg_catalog.text, \
                      pg_catalog.format_type(a.atttypid, a.atttypmod), \
                      (WITH RECURSIVE base (oid, typtype, typbasetype) AS ( \
                           SELECT oid, typtype, typbasetype FROM pg_catalog.pg_type \
                           WHERE oid = a.atttypid \
                         UNION ALL \
                           SELECT t.oid, t.typtype, t.typbasetype FROM base AS b \
                           JOIN pg_catalog.pg_type AS t ON t.oid = b.typbasetype \
                           WHERE b.typtype = 'd') \
                       SELECT oid FROM base WHERE typtype <> 'd'), \
                      a.attstorage::pg_catalog.text, a.attcompression::pg_catalog.text, \
                      (pg_catalog.to_jsonb(a) ->> 'atttoaster')::pg_catalog.oid, a.attisdropped \
               FROM pg_catalog.pg_class AS c \
               JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
               JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid \
               WHERE c.relkind IN ('r', 'p', 'm') AND (c.oid = $1 OR $1 = 0) \
               AND a.attnum > 0 AND a.attlen = -1 \
               AND (n.nspname !~ '^pg_' OR c.relpersistence = 't') \
               AND n.nspname <> 'information_schema' \
               ORDER BY n.nspname, c.relname, c.oid, a.attnum";
    let rows = client.query_typed(sql, &[(&table.map_or(0, |oid| oid.0), Type::OID)]).await?;
    rows.iter().map(column).collect()
}

/// A column for which another toaster than the default one is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SetToaster {
    pub(crate) column: String,
    pub(crate) name: String,
    /// Whether it stores every value out of line by pointers of its own, so that others show that they are older: not if
    /// the toaster is not made for the type.
    pub(crate) owns_pointers: bool,
}

/// The columns of a table for which another toaster than the default one is set; none on a stock server.
pub(crate) async fn set_for(
    client: &Client,
    server: &Server,
    table: Oid,
) -> LiveResult<Vec<SetToaster>> {
    const BYTEA: Oid = Oid(17);
    let Some(toasters) = ask(client, server).await? else { return Ok(Vec::new()) };
    let mut set = Vec::new();
    for column in columns(client, Some(table)).await? {
        let row = toasters.rows().iter().find(|row| row.oid == column.toaster);
        let Some(row) = row.filter(|row| row.oid != DEFAULT_TOASTER && !column.dropped) else {
            continue;
        };
        set.push(SetToaster {
            column: column.name,
            name: row.name.clone(),
            owns_pointers: row.handler == Handler::Bytea && column.base_type == BYTEA,
        });
    }
    Ok(set)
}

fn column(row: &Row) -> LiveResult<ToasterColumn> {
    let name: String = row.try_get(6)?;
    let number: i16 = row.try_get(5)?;
    Ok(ToasterColumn {
        table: Oid(row.try_get(0)?),
        schema: row.try_get(1)?,
        relation: row.try_get(2)?,
        relkind: letter_in(row, 3)?.unwrap_or('r'),
        temporary: row.try_get(4)?,
        index: usize::try_from(number - 1).unwrap_or(0),
        type_name: row.try_get(7)?,
        base_type: Oid(row.try_get::<_, Option<PgOid>>(8)?.unwrap_or(0)),
        storage: letter_in(row, 9)?
            .and_then(Storage::from_char)
            .ok_or_else(|| LiveError::Unexpected(format!("attstorage of column \"{name}\"")))?,
        compression: letter_in(row, 10)?.and_then(Method::from_char),
        toaster: row.try_get::<_, Option<PgOid>>(11)?.map_or(DEFAULT_TOASTER, Oid),
        dropped: row.try_get(12)?,
        name,
    })
}

/// A column that has a toaster, in any kind of relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Referent {
    pub relation: Oid,
    pub schema: String,
    pub name: String,
    /// `attnum`.
    pub number: i16,
    pub column: String,
    /// Whether the column is dropped.
    pub dropped: bool,
}

impl Referent {
    /// The name in reports; a dropped column has only its number.
    pub fn display_name(&self) -> String {
        let Referent { schema, name, number, column, .. } = self;
        if self.dropped {
            format!("{schema}.{name}, dropped column {number}")
        } else {
            format!("{schema}.{name}.{column}")
        }
    }

    /// The relation's quoted, schema-qualified name.
    pub fn quoted(&self) -> String {
        quote_qualified(&self.schema, &self.name)
    }
}

/// All columns that have `toaster`, including dropped columns and those of indexes.
pub async fn referents(client: &Client, toaster: Oid) -> LiveResult<Vec<Referent>> {
    let sql = "SELECT c.oid, n.nspname::pg_catalog.text, c.relname::pg_catalog.text, a.attnum, \
                      a.attname::pg_catalog.text, a.attisdropped \
               FROM pg_catalog.pg_attribute AS a \
               JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid \
               JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
               WHERE a.attlen = -1 AND a.attnum > 0 \
               AND (pg_catalog.to_jsonb(a) ->> 'atttoaster')::pg_catalog.oid = $1 \
               ORDER BY n.nspname, c.relname, c.oid, a.attnum";
    let rows = client.query_typed(sql, &[(&toaster.0, Type::OID)]).await?;
    rows.iter()
        .map(|row| -> LiveResult<Referent> {
            Ok(Referent {
                relation: Oid(row.try_get(0)?),
                schema: row.try_get(1)?,
                name: row.try_get(2)?,
                number: row.try_get(3)?,
                column: row.try_get(4)?,
                dropped: row.try_get(5)?,
            })
        })
        .collect()
}

/// The extension to which a toaster belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToasterExtension {
    pub(crate) name: String,
    /// Other toasters that belong to it or use a handler of it: while they exist, it cannot be dropped.
    pub(crate) others: Vec<String>,
}

/// The extension to which a toaster belongs.
pub(crate) async fn extension(
    client: &Client,
    toaster: Oid,
) -> LiveResult<Option<ToasterExtension>> {
    let sql = "SELECT e.extname::pg_catalog.text, ARRAY( \
                   SELECT t.tsrname::pg_catalog.text FROM pg_catalog.pg_toaster AS t \
                   WHERE t.oid <> $1 AND EXISTS (SELECT FROM pg_catalog.pg_depend AS m \
                       WHERE m.refclassid = d.refclassid AND m.refobjid = d.refobjid AND m.deptype = 'e' \
                       AND (m.classid = d.classid AND m.objid = t.oid \
                           OR m.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass \
                           AND m.objid = t.tsrhandler::pg_catalog.oid)) \
                   ORDER BY t.tsrname) \
               FROM pg_catalog.pg_depend AS d \
               JOIN pg_catalog.pg_extension AS e ON e.oid = d.refobjid \
               WHERE d.classid = 'pg_catalog.pg_toaster'::pg_catalog.regclass AND d.objid = $1 \
               AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.deptype = 'e'";
    let Some(row) = client.row(sql, &[(&toaster.0, Type::OID)]).await? else { return Ok(None) };
    Ok(Some(ToasterExtension { name: row.try_get(0)?, others: row.try_get(1)? }))
}
