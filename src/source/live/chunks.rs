//! Chunks of a live server's TOAST relations, by SQL: those that the present transaction sees, which
//! are all that its visible rows refer to.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio_postgres::types::{Oid as PgOid, Type};
use tokio_postgres::{Client, Row};

use super::LiveError;
use crate::disk::{BlockNumber, ItemPointer, Oid};
use crate::model::toaster::catalog::{Handler, PluggableToaster, Toasters};
use crate::model::toaster::chunks::{Chunk, ChunkData, ChunkStore, Fate, StoreError};
use crate::source::connect::Connection;
use crate::source::sql::quote_qualified;

/// The toasters of the database: `pg_toaster` where the server has it.
pub async fn toasters(client: &Client) -> Result<Toasters, LiveError> {
    let rows = client
        .query_typed("SELECT pg_catalog.to_regclass('pg_catalog.pg_toaster') IS NOT NULL", &[])
        .await?;
    let pluggable = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(false);
    if !pluggable {
        return Ok(Toasters::by_bytes());
    }
    let rows = client
        .query_typed(
            "SELECT t.oid, t.tsrname::pg_catalog.text, p.proname::pg_catalog.text \
             FROM pg_catalog.pg_toaster AS t \
             JOIN pg_catalog.pg_proc AS p ON p.oid = t.tsrhandler ORDER BY t.oid",
            &[],
        )
        .await?;
    let row = |row: &Row| -> Result<PluggableToaster, LiveError> {
        Ok(PluggableToaster {
            oid: Oid(row.try_get::<_, PgOid>(0)?),
            name: row.try_get(1)?,
            handler: Handler::from_function(row.try_get(2)?),
        })
    };
    Ok(Toasters::new(rows.iter().map(row).collect::<Result<_, _>>()?))
}

/// Reads chunks on one connection, inside its present transaction.
///
/// Waits for the server on the calling thread, which must be one of a multi-threaded runtime.
#[derive(Debug)]
pub struct LiveChunks {
    connection: Arc<Connection>,
    /// Quoted names of TOAST relations.
    names: HashMap<Oid, String>,
}

impl LiveChunks {
    /// Nothing is asked yet.
    pub fn new(connection: Arc<Connection>) -> LiveChunks {
        LiveChunks { connection, names: HashMap::new() }
    }

    async fn name(&mut self, relation: Oid) -> Result<String, StoreError> {
        if let Some(name) = self.names.get(&relation) {
            return Ok(name.clone());
        }
        let rows = self
            .connection
            .client()
            .query_typed(
                "SELECT n.nspname::pg_catalog.text, c.relname::pg_catalog.text \
                 FROM pg_catalog.pg_class AS c \
                 JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
                 WHERE c.oid = $1 AND c.relkind = 't'",
                &[(&relation.0, Type::OID)],
            )
            .await
            .map_err(failed)?;
        let row = rows
            .first()
            .ok_or_else(|| StoreError(format!("there is no toast relation {relation}")))?;
        let (schema, name): (String, String) =
            (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
        let name = quote_qualified(&schema, &name);
        self.names.insert(relation, name.clone());
        Ok(name)
    }

    async fn select(
        &mut self,
        relation: Oid,
        condition: &str,
        parameter: (&(dyn tokio_postgres::types::ToSql + Sync), Type),
    ) -> Result<Vec<Chunk>, StoreError> {
        let name = self.name(relation).await?;
        let sql = format!(
            "SELECT ctid::pg_catalog.text, chunk_id, chunk_seq, chunk_data \
             FROM {name} WHERE {condition}"
        );
        let rows =
            self.connection.client().query_typed(&sql, &[parameter]).await.map_err(failed)?;
        rows.iter().map(chunk).collect()
    }
}

fn failed(error: tokio_postgres::Error) -> StoreError {
    StoreError(LiveError::from(error).to_string())
}

fn chunk(row: &Row) -> Result<Chunk, StoreError> {
    let ctid: String = row.try_get(0).map_err(failed)?;
    let tid = parse_tid(&ctid)
        .ok_or_else(|| StoreError(format!("unexpected answer of the server: ctid \"{ctid}\"")))?;
    let value_id: PgOid = row.try_get(1).map_err(failed)?;
    Ok(Chunk {
        tid,
        value_id: Oid(value_id),
        seq: row.try_get(2).map_err(failed)?,
        inserted: Fate::Committed,
        // compressed chunks come decompressed
        data: ChunkData::Plain(row.try_get(3).map_err(failed)?),
    })
}

/// Reads `(block,item)`; `None` for any other text.
pub fn parse_tid(text: &str) -> Option<ItemPointer> {
    let (block, item) = text.strip_prefix('(')?.strip_suffix(')')?.split_once(',')?;
    Some(ItemPointer {
        block: BlockNumber(block.trim().parse().ok()?),
        item: item.trim().parse().ok()?,
    })
}

/// Waits on this thread.
fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| Handle::current().block_on(future))
}

impl ChunkStore for LiveChunks {
    fn chunks(&mut self, relation: Oid, value_id: Oid) -> Result<Vec<Chunk>, StoreError> {
        wait(self.select(relation, "chunk_id = $1 ORDER BY chunk_seq", (&value_id.0, Type::OID)))
    }

    fn chunk_at(&mut self, relation: Oid, tid: ItemPointer) -> Result<Option<Chunk>, StoreError> {
        let text = tid.to_string();
        let found = wait(self.select(relation, "ctid = $1::pg_catalog.tid", (&text, Type::TEXT)))?;
        Ok(found.into_iter().next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_server_prints_them() {
        let tid = ItemPointer { block: BlockNumber(12), item: 3 };
        assert_eq!(parse_tid("(12,3)"), Some(tid));
        assert_eq!(parse_tid(&tid.to_string()), Some(tid));
        for text in ["", "12,3", "(12,3", "(12)", "(-1,3)", "(12,70000)", "(a,b)"] {
            assert_eq!(parse_tid(text), None, "{text}");
        }
    }
}
