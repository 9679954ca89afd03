//! Chunks of documents out of line: read for many at a time, and where they stand.

use std::collections::HashMap;

use tokio_postgres::types::{Oid as PgOid, Type};

use crate::disk::pointer::ToastPointer;
use crate::disk::{ItemPointer, Oid};
use crate::model::sql::quote_qualified;
use crate::model::toaster::chunks::{Chunk, ChunkData, ChunkStore, Fate, StoreError};
use crate::server::LiveError;
use crate::server::catalog::ToastRelation;
use crate::server::chunks::parse_tid;
use crate::server::connect::Client;

/// The chunks of some values, and a source for others.
pub(super) struct Ahead<S> {
    relation: Option<Oid>,
    values: HashMap<u32, Vec<Chunk>>,
    rest: S,
    /// On how many pages, one after the other, the value read last stood.
    visits: Option<u32>,
}

impl<S> Ahead<S> {
    pub(super) fn new(rest: S) -> Ahead<S> {
        Ahead { relation: None, values: HashMap::new(), rest, visits: None }
    }

    /// How often the next chunk of the value read last was on another page than the one before.
    pub(super) fn visits(&mut self) -> Option<u32> {
        self.visits.take()
    }

    #[cfg(test)]
    fn holds(&self) -> usize {
        self.values.len()
    }

    /// Reads the chunks of these values of a TOAST relation, and forgets others.
    pub(super) async fn read(
        &mut self,
        client: &Client,
        toast: &ToastRelation,
        pointers: impl Iterator<Item = ToastPointer>,
    ) -> Result<(), LiveError> {
        self.values.clear();
        self.relation = Some(toast.oid);
        let mut ids: Vec<PgOid> = pointers
            .filter(|pointer| pointer.toast_relation == toast.oid)
            .map(|pointer| pointer.value_id.0)
            .collect();
        if ids.is_empty() {
            return Ok(());
        }
        ids.sort_unstable();
        ids.dedup();
        let sql = format!(
            "SELECT c.chunk_id, c.chunk_seq, c.ctid::pg_catalog.text, c.chunk_data \
             FROM {} AS c WHERE c.chunk_id = ANY ($1)",
            quote_qualified("pg_toast", &toast.name)
        );
        for row in client.query_typed(&sql, &[(&ids, Type::OID_ARRAY)]).await? {
            let id: PgOid = row.try_get(0)?;
            let text: &str = row.try_get(2)?;
            let tid = parse_tid(text)
                .ok_or_else(|| LiveError::Unexpected(format!("chunk address \"{text}\"")))?;
            let chunk = Chunk {
                tid,
                value_id: Oid(id),
                seq: row.try_get(1)?,
                inserted: Fate::Committed,
                data: ChunkData::Plain(row.try_get(3)?),
            };
            self.values.entry(id).or_default().push(chunk);
        }
        Ok(())
    }
}

/// Changes of the page from chunk to chunk, the first page being one.
fn visits(chunks: &[Chunk]) -> Option<u32> {
    let mut places: Vec<(i32, u32)> =
        chunks.iter().map(|chunk| (chunk.seq, chunk.tid.block.0)).collect();
    places.sort_unstable();
    places.dedup_by_key(|&mut (_, block)| block);
    u32::try_from(places.len()).ok().filter(|&visits| visits > 0)
}

impl<S: ChunkStore> ChunkStore for Ahead<S> {
    fn chunks(&mut self, relation: Oid, value_id: Oid) -> Result<Vec<Chunk>, StoreError> {
        let known = self.values.remove(&value_id.0).filter(|_| self.relation == Some(relation));
        let chunks = match known {
            Some(chunks) => chunks,
            None => self.rest.chunks(relation, value_id)?,
        };
        self.visits = visits(&chunks);
        Ok(chunks)
    }

    fn chunk_at(&mut self, relation: Oid, tid: ItemPointer) -> Result<Option<Chunk>, StoreError> {
        self.rest.chunk_at(relation, tid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::BlockNumber;

    #[test]
    fn pages_are_counted_in_the_order_of_the_chunks() {
        let chunk = |seq, block| Chunk {
            tid: ItemPointer { block: BlockNumber(block), item: 1 },
            value_id: Oid(7),
            seq,
            inserted: Fate::Committed,
            data: ChunkData::Plain(Vec::new()),
        };
        assert_eq!(visits(&[]), None);
        assert_eq!(visits(&[chunk(2, 5), chunk(0, 4), chunk(1, 4), chunk(3, 4)]), Some(3));
        let mut ahead = Ahead::new(None::<Ahead<Option<NoStore>>>);
        ahead.values.insert(7, vec![chunk(0, 1)]);
        ahead.relation = Some(Oid(1));
        assert_eq!(ahead.chunks(Oid(1), Oid(7)).map(|chunks| chunks.len()), Ok(1));
        assert_eq!((ahead.visits(), ahead.visits(), ahead.holds()), (Some(1), None, 0));
        assert!(ahead.chunks(Oid(1), Oid(7)).is_err());
    }

    struct NoStore;

    impl ChunkStore for NoStore {
        fn chunks(&mut self, _: Oid, _: Oid) -> Result<Vec<Chunk>, StoreError> {
            Err(StoreError("nothing".into()))
        }

        fn chunk_at(&mut self, _: Oid, _: ItemPointer) -> Result<Option<Chunk>, StoreError> {
            Ok(None)
        }
    }
}
