//! Names of tables and columns that begin with typed text, for shell completion.

use tokio_postgres::types::Type;

use super::connect::Connection;
use super::select::{select, visible};
use super::{LiveError, LiveResult, Parameter, numbers};

/// Tables whose names begin with `typed`, in the form that the command line accepts: quoted if SQL requires it, and
/// with the schema if the table is not in the search path. As in psql, case is ignored, quotes may be missing, at most
/// 1000 names are returned, and tables of system schemas only if `typed` names such a schema.
pub(crate) async fn tables(connection: &Connection, typed: &str) -> LiveResult<Vec<String>> {
    // A dot inside quotes belongs to a name.
    let is_qualified = typed.split('"').step_by(2).any(|outside| outside.contains('.'));
    let plain = typed.replace('"', "");
    let of_system = ["pg_", "information_schema"].iter().any(|schema| plain.starts_with(schema));
    // Only the catalog is read, because reading sizes would wait for locks.
    let sql = format!(
        "SELECT CASE WHEN short THEN '' ELSE pg_catalog.quote_ident(nspname) || '.' END \
                || pg_catalog.quote_ident(relname) \
         FROM (SELECT n.nspname, c.relname, NOT $2 AND {} AS short \
               FROM pg_catalog.pg_class AS c \
               JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
               WHERE c.relkind IN ('r', 'p', 'm', 't') \
               AND ($3 OR n.nspname !~ '^pg_' AND n.nspname <> 'information_schema')) AS found \
         WHERE pg_catalog.left(pg_catalog.lower(pg_catalog.replace( \
               CASE WHEN short THEN '' ELSE nspname || '.' END || relname, '\"', '')), \
               pg_catalog.length($1)) = pg_catalog.lower($1) \
         ORDER BY 1 LIMIT 1000",
        visible(connection.schemas())
    );
    let parameters: [Parameter<'_>; 3] =
        [(&plain, Type::TEXT), (&is_qualified, Type::BOOL), (&of_system, Type::BOOL)];
    let rows = connection
        .reading(async || {
            Ok::<_, LiveError>(connection.client().query_typed(&sql, &parameters).await?)
        })
        .await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Databases that allow connections and whose names begin with `typed`.
pub(crate) async fn databases(connection: &Connection, typed: &str) -> LiveResult<Vec<String>> {
    let sql = "SELECT datname::pg_catalog.text FROM pg_catalog.pg_database \
               WHERE datallowconn AND NOT datistemplate \
               AND pg_catalog.left(datname::pg_catalog.text, pg_catalog.length($1)) = $1 ORDER BY 1 LIMIT 1000";
    let rows = connection
        .reading(async || {
            Ok::<_, LiveError>(connection.client().query_typed(sql, &[(&typed, Type::TEXT)]).await?)
        })
        .await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Columns of these tables that can be toasted and whose names begin with `typed`, with their types. Names are
/// unquoted, as the options expect them.
pub(crate) async fn columns(
    connection: &Connection,
    tables: &[String],
    typed: &str,
) -> LiveResult<Vec<(String, String)>> {
    let database = "SELECT pg_catalog.current_database()::pg_catalog.text";
    let sql = "SELECT attname::pg_catalog.text, \
                      pg_catalog.min(pg_catalog.format_type(atttypid, atttypmod)) \
               FROM pg_catalog.pg_attribute \
               WHERE attrelid = ANY ($1) AND attnum > 0 AND NOT attisdropped AND attlen = -1 \
               AND pg_catalog.left(pg_catalog.lower(attname::pg_catalog.text), \
                   pg_catalog.length($2)) = pg_catalog.lower($2) \
               GROUP BY attname ORDER BY pg_catalog.min(attnum), 1";
    let rows = connection
        .reading(async || {
            let client = connection.client();
            let database: String = client.value(database, &[]).await?.unwrap_or_default();
            let selection = select(connection, &database, tables).await?;
            let oids = numbers(&selection.oids());
            client
                .query_typed(sql, &[(&oids, Type::OID_ARRAY), (&typed, Type::TEXT)])
                .await
                .map_err(LiveError::from)
        })
        .await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}
