//! What the server knows of a table beside its columns: options, workload, what it was built with.

use tokio_postgres::types::Type;

use super::statements::{Statement, Statements};
use super::workload::Counted;
use crate::codec::Method;
use crate::model::sql::{quote_literal, quote_qualified};
use crate::server::LiveError;
use crate::server::about::Compression;
use crate::server::catalog::Relation;
use crate::server::connect::Client;

/// Buffers from which on the statistics tell something.
const LEAST_BUFFERS: f64 = 1000.0;
/// What the view shows in place of the text of another user's statement.
const HIDDEN: &str = "<insufficient privilege>";

/// What the server knows.
#[derive(Debug, Clone, PartialEq)]
pub struct TableFacts {
    /// Whether the server was built with lz4.
    pub lz4: bool,
    pub default_method: Method,
    /// What was read and written, as the statistics have it.
    pub counted: Counted,
    /// Part of the TOAST relation's buffers that were found in shared buffers, if any were needed: by anybody, for
    /// the server does not tell toastctl's own reads from others.
    pub toast_hit_part: Option<f64>,
    /// Live rows, as the statistics have them.
    pub live_rows: f64,
    /// The statements on the table.
    pub statements: Statements,
}

/// Asks the server.
pub async fn ask(client: &Client, relation: &Relation) -> Result<TableFacts, LiveError> {
    let row = client
        .query_typed(
            "SELECT (coalesce(t.idx_tup_fetch, 0))::pg_catalog.float8, \
                    (coalesce(t.n_tup_upd, 0) \
                        + greatest(coalesce(t.n_tup_ins - t.n_live_tup, 0), 0)) \
                        ::pg_catalog.float8, \
                    (coalesce(io.toast_blks_hit, 0))::pg_catalog.float8, \
                    (coalesce(io.toast_blks_read, 0))::pg_catalog.float8, \
                    (coalesce(t.n_live_tup, 0))::pg_catalog.float8, \
                    (coalesce(t.seq_tup_read, 0))::pg_catalog.float8 \
             FROM (SELECT 1) AS one \
             LEFT JOIN pg_catalog.pg_stat_all_tables AS t ON t.relid = $1 \
             LEFT JOIN pg_catalog.pg_statio_all_tables AS io ON io.relid = $1",
            &[(&relation.oid.0, Type::OID)],
        )
        .await?
        .pop()
        .ok_or_else(|| LiveError::Unexpected("no row about the table".into()))?;
    let compression = Compression::ask(client).await?;
    let (hit, read): (f64, f64) = (row.try_get(2)?, row.try_get(3)?);
    let counted =
        Counted { by_index: row.try_get(0)?, scanned: row.try_get(5)?, written: row.try_get(1)? };
    Ok(TableFacts {
        lz4: compression.lz4,
        default_method: compression.default,
        counted,
        toast_hit_part: (hit + read >= LEAST_BUFFERS).then(|| hit / (hit + read)),
        live_rows: row.try_get(4)?,
        statements: statements(client, relation).await?,
    })
}

/// What `pg_stat_statements` shows in this database of statements that have the table's name in
/// them. The last statement of a transaction: where its library is not loaded the view is an error.
pub(crate) async fn statements(
    client: &Client,
    relation: &Relation,
) -> Result<Statements, LiveError> {
    let extension = client
        .query_typed(
            "SELECT n.nspname::pg_catalog.text, \
                    (SELECT count(*) FROM pg_catalog.pg_class AS c WHERE c.relname = $1 \
                     AND c.relkind IN ('r', 'p', 'm', 'v', 'f')) = 1 \
             FROM pg_catalog.pg_extension AS e \
             JOIN pg_catalog.pg_namespace AS n ON n.oid = e.extnamespace \
             WHERE e.extname = 'pg_stat_statements'",
            &[(&relation.name, Type::NAME)],
        )
        .await?
        .pop();
    let Some(extension) = extension else { return Ok(Statements::NotInstalled) };
    let (schema, unique_name): (String, bool) = (extension.try_get(0)?, extension.try_get(1)?);
    let sql = format!(
        "SELECT query, rows::pg_catalog.float8 FROM {} \
         WHERE dbid = (SELECT d.oid FROM pg_catalog.pg_database AS d \
                       WHERE d.datname = pg_catalog.current_database()) \
         AND (query IS NULL OR query = {HIDDEN} \
              OR pg_catalog.strpos(pg_catalog.lower(query), pg_catalog.lower($1)) > 0)",
        quote_qualified(&schema, "pg_stat_statements"),
        HIDDEN = quote_literal(HIDDEN),
    );
    let rows = match client.query_typed(&sql, &[(&relation.name, Type::TEXT)]).await {
        Ok(rows) => rows,
        Err(error) => {
            return match error.as_db_error() {
                Some(db) => Ok(Statements::Unreadable(db.message().to_owned())),
                None => Err(error.into()),
            };
        }
    };
    let (mut list, mut hidden) = (Vec::with_capacity(rows.len()), 0);
    for row in rows {
        match row.try_get::<_, Option<String>>(0)?.filter(|query| query != HIDDEN) {
            Some(query) => list.push(Statement { query, rows: row.try_get(1)? }),
            None => hidden += 1,
        }
    }
    Ok(Statements::Read { list, hidden, unique_name })
}
