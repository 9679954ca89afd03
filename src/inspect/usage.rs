//! How a table is used, for findings: its counters, and what `pg_stat_statements` says of its columns.

use tokio_postgres::types::Type;

use super::inspector::{Inspector, no_client};
use crate::advise::facts::statements;
use crate::advise::statements::{Named, Statements, Verdict, verdict};
use crate::findings::facts::ColumnFacts;
use crate::findings::usage::{Chunks, Counters, Told};
use crate::server::LiveError;
use crate::server::catalog::Relation;
use crate::server::connect::Client;

impl Inspector {
    /// How a relation is used, on a server with lz4; what statements say of these columns goes to them.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn used(
        &self,
        relation: &Relation,
        columns: &mut [&mut ColumnFacts],
    ) -> Result<Counters, LiveError> {
        let leader = self.connections.first().ok_or_else(no_client)?;
        let ask = async || {
            let client = leader.client();
            let counters = counters(client, relation).await?;
            // nobody's texts are read for a table that nobody uses
            let statements = match counters.is_busy() {
                true => statements(client, relation).await?,
                false => Statements::NotInstalled,
            };
            Ok::<_, LiveError>((counters, statements))
        };
        let (counters, statements) = leader.reading(ask).await?;
        let unique_name = matches!(statements, Statements::Read { unique_name: true, .. });
        for column in columns {
            let named = Named {
                schema: &relation.schema,
                table: &relation.name,
                column: &column.name,
                unique_name,
            };
            if let Verdict::Told { reads, writes, .. } = verdict(&statements, named, counters.live)
            {
                column.told = Some(Told { reads, writes });
            }
        }
        Ok(counters)
    }
}

/// The counters of a table and of its TOAST relation.
async fn counters(client: &Client, relation: &Relation) -> Result<Counters, LiveError> {
    let row = client
        .query_typed(
            "SELECT (coalesce(t.idx_tup_fetch, 0))::pg_catalog.float8, \
                    (coalesce(t.seq_tup_read, 0))::pg_catalog.float8, \
                    (coalesce(t.n_tup_ins, 0))::pg_catalog.float8, \
                    (coalesce(t.n_tup_upd, 0))::pg_catalog.float8, \
                    (coalesce(t.n_tup_del, 0))::pg_catalog.float8, \
                    (coalesce(t.n_live_tup, 0))::pg_catalog.float8, \
                    c.relid IS NOT NULL, \
                    (coalesce(c.idx_tup_fetch, 0))::pg_catalog.float8, \
                    (coalesce(c.n_tup_ins, 0))::pg_catalog.float8, \
                    (coalesce(c.n_tup_del, 0))::pg_catalog.float8, \
                    (coalesce(c.n_live_tup, 0))::pg_catalog.float8, \
                    (SELECT extract(epoch FROM pg_catalog.now() - d.stats_reset) \
                                ::pg_catalog.float8 \
                     FROM pg_catalog.pg_stat_database AS d \
                     WHERE d.datname = pg_catalog.current_database()) \
             FROM (SELECT 1) AS one \
             LEFT JOIN pg_catalog.pg_stat_all_tables AS t ON t.relid = $1 \
             LEFT JOIN pg_catalog.pg_stat_all_tables AS c ON c.relid = $2",
            &[
                (&relation.oid.0, Type::OID),
                (&relation.toast.as_ref().map(|toast| toast.oid.0), Type::OID),
            ],
        )
        .await?
        .pop()
        .ok_or_else(|| LiveError::Unexpected("no row about the table".into()))?;
    let number = |at: usize| row.try_get::<_, f64>(at);
    let chunks = match row.try_get(6)? {
        true => Some(Chunks {
            fetched: number(7)?,
            inserted: number(8)?,
            deleted: number(9)?,
            live: number(10)?,
        }),
        false => None,
    };
    Ok(Counters {
        by_index: number(0)?,
        scanned: number(1)?,
        inserted: number(2)?,
        updated: number(3)?,
        deleted: number(4)?,
        live: number(5)?,
        chunks,
        age: row.try_get(11)?,
    })
}
