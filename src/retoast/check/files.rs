//! Which files a table and its TOAST relation have: whoever writes the table anew (VACUUM FULL, CLUSTER, REPACK, TRUNCATE,
//! some forms of ALTER TABLE, pg_repack) gives them others, and the TOAST relation often another OID.

use tokio_postgres::types::Type;

use crate::disk::Oid;
use crate::server::LiveError;
use crate::server::connect::Connection;
use crate::server::toasters::TOAST_RELATIONS;

/// The files of a table. What was read between two looks that find the same was read from these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Files {
    /// The OID and `relfilenode` of the table, then those of its TOAST relations.
    relations: Vec<(u32, u32)>,
}

impl Files {
    /// Those that there are now; `None` once the table is gone. In a transaction that has the table's lock they stay.
    pub(in crate::retoast) async fn of(
        connection: &Connection,
        table: Oid,
    ) -> Result<Option<Files>, LiveError> {
        let sql = format!(
            "SELECT r.oid, coalesce(pg_catalog.pg_relation_filenode(r.oid), 0) \
             FROM pg_catalog.pg_class AS c, \
             LATERAL pg_catalog.unnest(c.oid || {TOAST_RELATIONS}) WITH ORDINALITY AS r (oid, n) \
             WHERE c.oid = $1 ORDER BY r.n"
        );
        let rows = connection.query_again(&sql, &[(&table.0, Type::OID)]).await?;
        let relations = rows
            .iter()
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
            .collect::<Result<Vec<(u32, u32)>, LiveError>>()?;
        Ok((!relations.is_empty()).then_some(Files { relations }))
    }

    /// The TOAST relation.
    pub(in crate::retoast) fn toast(&self) -> Option<Oid> {
        self.relations.get(1).map(|&(oid, _)| Oid(oid))
    }
}
