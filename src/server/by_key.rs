//! Finds rows by the values of indexed columns.

use std::error::Error;

use bytes::BytesMut;
use tokio_postgres::types::{Format, IsNull, Kind, ToSql, Type, to_sql_checked};

use super::catalog::Relation;
use super::chunks::address;
use super::connect::{Client, Connection};
use super::owner_facts::begin_reading;
use super::{LiveError, LiveResult};
use super::{Parameter, snapshot};
use toast_format::disk::ItemPointer;
use toast_format::model::sql::quote_identifier;

/// The most rows that are reported; one more is asked for.
pub(crate) const MOST_ROWS: usize = 3;

/// A column of a key, and its value as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GivenKey {
    pub(crate) column: String,
    pub(crate) value: String,
}

/// Why rows could not be looked up.
#[derive(Debug)]
pub(crate) enum KeyError {
    Live(LiveError),
    /// These columns cannot be used; a hint is separate.
    Unusable {
        /// Whether the relation has none of that name.
        is_missing: bool,
        text: String,
        /// Columns that can be used, such as those of the primary key.
        columns: Vec<String>,
    },
}

impl From<LiveError> for KeyError {
    fn from(error: LiveError) -> KeyError {
        KeyError::Live(error)
    }
}

/// Columns of btree indexes with the operator and the type by which the index compares, primary keys first. Values are
/// passed as parameters of that type: a cast from text could be a function of the table's owner, who can also give a
/// type's name to another one. Of types that users can create, only enums and those like text are accepted, whose input
/// functions run no code of users.
const INDEXED: &str = "SELECT a.attname::pg_catalog.text, k.at = 0, i.indisprimary, \
      s.nspname::pg_catalog.text, o.oprname::pg_catalog.text, pg_catalog.format_type(t.oid, -1), t.oid, \
      t.typnamespace = 'pg_catalog'::pg_catalog.regnamespace OR t.typtype = 'e' \
        OR t.typtype = 'b' AND t.typcategory = 'S' \
    FROM pg_catalog.pg_index AS i \
    CROSS JOIN LATERAL pg_catalog.generate_series(0, i.indnkeyatts - 1) AS k (at) \
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k.at] \
    JOIN pg_catalog.pg_type AS u ON u.oid = a.atttypid \
    JOIN pg_catalog.pg_opclass AS c ON c.oid = i.indclass[k.at] \
    JOIN pg_catalog.pg_am AS m ON m.oid = c.opcmethod AND m.amname = 'btree' \
    JOIN pg_catalog.pg_type AS p ON p.oid = c.opcintype \
    JOIN pg_catalog.pg_type AS t ON t.oid = CASE WHEN p.typtype <> 'p' THEN p.oid \
      WHEN u.typbasetype <> 0 THEN u.typbasetype ELSE u.oid END \
    JOIN pg_catalog.pg_amop AS x ON x.amopfamily = c.opcfamily AND x.amopstrategy = 3 \
      AND x.amoplefttype = c.opcintype AND x.amoprighttype = c.opcintype \
    JOIN pg_catalog.pg_operator AS o ON o.oid = x.amopopr \
    JOIN pg_catalog.pg_namespace AS s ON s.oid = o.oprnamespace \
    WHERE i.indrelid = $1 AND i.indisvalid AND i.indpred IS NULL ORDER BY i.indisprimary DESC, i.indexrelid, k.at";

struct IndexedColumn {
    name: String,
    /// Whether an index begins with it.
    leads: bool,
    is_primary: bool,
    operator: String,
    type_name: String,
    type_oid: u32,
    /// Whether its input function runs no code of users.
    is_harmless: bool,
}

/// A value of any type, which the server converts by the type's input function.
#[derive(Debug)]
struct InputText<'a>(&'a str);

impl ToSql for InputText<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

/// The rows whose columns have these values: at most one more than [`MOST_ROWS`].
///
/// # Errors
/// No index begins with one of the columns, a value cannot be converted to its column's type, or the server's.
pub(crate) async fn rows_by_key(
    connection: &Connection,
    relation: &Relation,
    key: &[GivenKey],
) -> Result<Vec<ItemPointer>, KeyError> {
    begin_reading(connection, relation, false).await?;
    let client = connection.client();
    snapshot::abandoned(client, find(client, relation, key)).await
}

async fn find(
    client: &Client,
    relation: &Relation,
    key: &[GivenKey],
) -> Result<Vec<ItemPointer>, KeyError> {
    let columns = indexed(client, relation).await?;
    let mut conditions = Vec::with_capacity(key.len());
    let mut values = Vec::with_capacity(key.len());
    let mut uses_index = false;
    for GivenKey { column, value } in key {
        let of_name: Vec<&IndexedColumn> =
            columns.iter().filter(|indexed| indexed.name == *column).collect();
        let Some(indexed) = of_name.first() else {
            return Err(unusable(relation, column, &columns));
        };
        uses_index |= of_name.iter().any(|indexed| indexed.leads);
        if !indexed.is_harmless {
            let text = format!(
                "column \"{column}\" of {} has the type {}, by which toastctl looks up no rows",
                relation.display_name(),
                indexed.type_name
            );
            return Err(KeyError::Unusable { is_missing: false, text, columns: Vec::new() });
        }
        conditions.push(format!(
            "r.{} OPERATOR({}) ${}",
            quote_identifier(column),
            indexed.operator,
            conditions.len() + 1
        ));
        let of_type =
            Type::new(indexed.type_name.clone(), indexed.type_oid, Kind::Simple, String::new());
        values.push((InputText(value), of_type));
    }
    if !uses_index {
        let column = key.first().map_or("", |part| part.column.as_str());
        return Err(unusable(relation, column, &columns));
    }
    let sql = format!(
        "SELECT r.ctid::pg_catalog.text FROM ONLY {} AS r WHERE {} LIMIT {}",
        relation.quoted(),
        conditions.join(" AND "),
        MOST_ROWS + 1
    );
    let parameters: Vec<Parameter<'_>> =
        values.iter().map(|(value, of_type)| (value as _, of_type.clone())).collect();
    let rows = client.query_typed(&sql, &parameters).await.map_err(LiveError::from)?;
    let mut found = Vec::with_capacity(rows.len());
    for row in &rows {
        found.push(address(row.try_get(0).map_err(LiveError::from)?)?);
    }
    Ok(found)
}

async fn indexed(client: &Client, relation: &Relation) -> LiveResult<Vec<IndexedColumn>> {
    let rows = client.query_typed(INDEXED, &[(&relation.oid.0, Type::OID)]).await?;
    let mut columns = Vec::with_capacity(rows.len());
    for row in &rows {
        let schema: &str = row.try_get(3)?;
        let operator: &str = row.try_get(4)?;
        columns.push(IndexedColumn {
            name: row.try_get(0)?,
            leads: row.try_get(1)?,
            is_primary: row.try_get(2)?,
            operator: format!("{}.{operator}", quote_identifier(schema)),
            type_name: row.try_get(5)?,
            type_oid: row.try_get(6)?,
            is_harmless: row.try_get(7)?,
        });
    }
    Ok(columns)
}

/// The error for a column with which no index begins: the whole table would have to be read.
fn unusable(relation: &Relation, column: &str, columns: &[IndexedColumn]) -> KeyError {
    let name = relation.display_name();
    let exists = relation.desc.attributes.iter().any(|attribute| attribute.name == column);
    let text = if exists {
        format!(
            "no btree index of {name} begins with column \"{column}\": the whole table would have to be read"
        )
    } else {
        format!("column \"{column}\" of relation \"{name}\" does not exist")
    };
    let primary: Vec<String> =
        columns.iter().filter(|found| found.is_primary).map(|found| found.name.clone()).collect();
    let leading = columns.iter().find(|found| found.leads).map(|found| found.name.clone());
    let columns = if primary.is_empty() { leading.into_iter().collect() } else { primary };
    KeyError::Unusable { is_missing: !exists, text, columns }
}
