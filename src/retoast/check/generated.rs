//! Generated columns: what an UPDATE of the columns that they are made of does to them.

use tokio_postgres::types::Type;

use crate::disk::Oid;
use crate::server::LiveError;
use crate::server::connect::Client;

/// A generated column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// Its index from 0, dropped ones counted.
    pub index: usize,
    /// Whether its values are stored; virtual ones are not.
    pub stored: bool,
    /// The indexes of the columns that it is made of. An UPDATE that sets one of them computes it anew.
    pub bases: Vec<usize>,
}

/// Whether an UPDATE of any column computes all stored generated columns: the server does so where it knows of a
/// `BEFORE UPDATE` trigger for rows, in whatever state that is (`ExecComputeStoredGenerated` in nodeModifyTable.c).
pub(crate) async fn computes_all(client: &Client, oid: Oid) -> Result<bool, LiveError> {
    // tgtype: 1 is ROW, 2 is BEFORE, 16 is UPDATE
    let sql =
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_trigger WHERE tgrelid = $1 AND tgtype & 83 = 19)";
    let rows = client.query_typed(sql, &[(&oid.0, Type::OID)]).await?;
    Ok(rows.first().map_or(Ok(false), |row| row.try_get(0))?)
}

/// The generated columns of a table.
pub async fn generated(client: &Client, oid: Oid) -> Result<Vec<Generated>, LiveError> {
    // before PostgreSQL 15 it is the column that depends on the others, since then its expression
    let rows = client
        .query_typed(
            "SELECT a.attnum, a.attgenerated = 's', \
                    coalesce(pg_catalog.array_agg(DISTINCT d.refobjsubid::pg_catalog.int2) \
                             FILTER (WHERE d.refobjsubid > 0 AND d.refobjsubid <> a.attnum), '{}') \
             FROM pg_catalog.pg_attribute AS a \
             LEFT JOIN pg_catalog.pg_attrdef AS e ON e.adrelid = a.attrelid AND e.adnum = a.attnum \
             LEFT JOIN pg_catalog.pg_depend AS d \
               ON d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass \
               AND d.refobjid = a.attrelid \
               AND (d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass AND d.objid = e.oid \
                 OR d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass \
                    AND d.objid = a.attrelid AND d.objsubid = a.attnum) \
             WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped \
             AND a.attgenerated <> '' GROUP BY 1, 2 ORDER BY 1",
            &[(&oid.0, Type::OID)],
        )
        .await?;
    let index = |attnum: i16| usize::try_from(attnum - 1).unwrap_or(usize::MAX);
    let mut found = Vec::with_capacity(rows.len());
    for row in &rows {
        let bases: Vec<i16> = row.try_get(2)?;
        found.push(Generated {
            index: index(row.try_get(0)?),
            stored: row.try_get(1)?,
            bases: bases.into_iter().map(index).collect(),
        });
    }
    Ok(found)
}
