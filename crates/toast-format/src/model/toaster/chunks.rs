//! Chunks of out-of-line values, and their sources.

use std::collections::HashMap;

use crate::disk::varlena::tc_raw_size;
use crate::disk::{ItemPointer, Oid, ValueId, Varlena};

/// Where an external value's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// `va_valueid`, the chunks' `chunk_id`.
    pub value_id: ValueId,
    /// OID of the TOAST relation.
    pub toast_relation: Oid,
    /// The number of chunks with the stored bytes.
    pub chunks: u32,
}

/// The status of the transaction that inserted a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It committed, so that the chunk counts.
    Committed,
    /// It aborted, crashed, or was in progress when the chunk was read.
    NotCommitted,
    /// There is no hint bit, and no other information.
    Unknown,
}

/// The value of `chunk_data` as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunkData {
    /// Uncompressed, without varlena header.
    Plain(Vec<u8>),
    /// A separately compressed chunk, as written by `jsonb_toaster`.
    Compressed {
        /// Raw size and method, as in [`Varlena::Compressed`].
        tc_info: u32,
        /// The compressed stream, behind `va_tcinfo`.
        stream: Vec<u8>,
    },
}

impl ChunkData {
    /// Copies the data from a chunk's tuple; `None` for a pointer, which a chunk cannot contain.
    pub fn new(value: &Varlena<'_>) -> Option<ChunkData> {
        match value {
            Varlena::Short { content } | Varlena::Plain { content } => {
                Some(ChunkData::Plain(content.to_vec()))
            }
            Varlena::Compressed { tc_info, stream } => {
                Some(ChunkData::Compressed { tc_info: *tc_info, stream: stream.to_vec() })
            }
            Varlena::External(_) | Varlena::Custom(_) | Varlena::Unknown { .. } => None,
        }
    }

    /// The size in the tuple, without varlena headers.
    pub fn stored_size(&self) -> usize {
        match self {
            ChunkData::Plain(data) => data.len(),
            ChunkData::Compressed { stream, .. } => stream.len(),
        }
    }

    /// The decompressed size in bytes.
    pub fn raw_size(&self) -> usize {
        match self {
            ChunkData::Plain(data) => data.len(),
            ChunkData::Compressed { tc_info, .. } => tc_raw_size(*tc_info) as usize,
        }
    }
}

/// One tuple of a TOAST relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The tuple's address in the TOAST relation.
    pub tid: ItemPointer,
    /// `chunk_id`: the value it belongs to.
    pub value_id: ValueId,
    /// `chunk_seq`: its number within the value, from 0.
    pub seq: i32,
    /// Whether its insertion committed. It does not matter whether it was deleted later: the server can read chunks of
    /// old values until they are vacuumed.
    pub inserted: Fate,
    /// `chunk_data`: its part of the value.
    pub data: ChunkData,
    /// Its size in the tuple, without varlena headers: servers give `data` decompressed.
    pub stored_size: u64,
}

/// Why chunks could not be read; the message contains the location.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub String);

/// A source of chunks.
pub trait ChunkStore {
    /// Returns all chunks of a value in any order, including dead ones if the source has them. Empty if there are none.
    fn chunks(&mut self, relation: Oid, value_id: ValueId) -> Result<Vec<Chunk>, StoreError>;

    /// Passes on the chunks that [`chunks`](ChunkStore::chunks) returns; some sources hold no more than one of them.
    fn each_chunk(
        &mut self,
        relation: Oid,
        value_id: ValueId,
        take: &mut dyn FnMut(Chunk),
    ) -> Result<(), StoreError> {
        self.chunks(relation, value_id)?.into_iter().for_each(take);
        Ok(())
    }

    /// Returns the chunk at `tid`, following redirects; `None` if there is no tuple.
    fn chunk_at(&mut self, relation: Oid, tid: ItemPointer) -> Result<Option<Chunk>, StoreError>;
}

/// A source of chunks that counts what it gives.
pub struct CountedChunks<'s, S> {
    store: &'s mut S,
    /// The number of chunks given.
    pub chunks: u64,
    /// The sum of their stored sizes.
    pub bytes: u64,
    /// Over how many pages, one after the other, the last value was read.
    pub visits: Option<u32>,
}

impl<S> CountedChunks<'_, S> {
    /// Counts from now on what a source gives.
    pub fn new(store: &mut S) -> CountedChunks<'_, S> {
        CountedChunks { store, chunks: 0, bytes: 0, visits: None }
    }

    fn count(&mut self, chunks: &[Chunk]) {
        self.chunks += chunks.len() as u64;
        self.bytes += chunks.iter().map(|chunk| chunk.stored_size).sum::<u64>();
    }
}

impl<S: ChunkStore> ChunkStore for CountedChunks<'_, S> {
    fn chunks(&mut self, relation: Oid, value_id: ValueId) -> Result<Vec<Chunk>, StoreError> {
        let chunks = self.store.chunks(relation, value_id)?;
        self.count(&chunks);
        self.visits = visits(&chunks);
        Ok(chunks)
    }

    fn chunk_at(&mut self, relation: Oid, tid: ItemPointer) -> Result<Option<Chunk>, StoreError> {
        let chunk = self.store.chunk_at(relation, tid)?;
        self.count(chunk.as_slice());
        Ok(chunk)
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

/// Chunks that [`FetchedChunks`] was asked for before they were fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WantedChunks {
    /// All chunks of a value of this TOAST relation.
    Value(Oid, ValueId),
    /// The chunk at an address in this TOAST relation.
    At(Oid, ItemPointer),
}

/// Chunks in memory. After missing chunks were fetched, the value is reassembled again from the start.
#[derive(Debug, Default)]
pub struct FetchedChunks {
    values: HashMap<(Oid, ValueId), Vec<Chunk>>,
    addresses: HashMap<(Oid, ItemPointer), Option<Chunk>>,
    wanted: Vec<WantedChunks>,
}

impl FetchedChunks {
    /// Adds all chunks of a value.
    pub fn add_value(&mut self, relation: Oid, value_id: ValueId, chunks: Vec<Chunk>) {
        self.values.insert((relation, value_id), chunks);
    }

    /// Adds the chunk at an address; `None` if there is no tuple.
    pub fn add_at(&mut self, relation: Oid, tid: ItemPointer, chunk: Option<Chunk>) {
        self.addresses.insert((relation, tid), chunk);
    }

    /// Removes and returns the requests for chunks that were not fetched.
    pub fn take_wanted(&mut self) -> Vec<WantedChunks> {
        std::mem::take(&mut self.wanted)
    }

    fn lacks(&mut self, wanted: WantedChunks) -> StoreError {
        self.wanted.push(wanted);
        StoreError("not fetched yet".to_owned())
    }
}

impl ChunkStore for FetchedChunks {
    fn chunks(&mut self, relation: Oid, value_id: ValueId) -> Result<Vec<Chunk>, StoreError> {
        match self.values.get(&(relation, value_id)) {
            Some(chunks) => Ok(chunks.clone()),
            None => Err(self.lacks(WantedChunks::Value(relation, value_id))),
        }
    }

    fn chunk_at(&mut self, relation: Oid, tid: ItemPointer) -> Result<Option<Chunk>, StoreError> {
        match self.addresses.get(&(relation, tid)) {
            Some(chunk) => Ok(chunk.clone()),
            None => Err(self.lacks(WantedChunks::At(relation, tid))),
        }
    }
}

/// A source that may not be available.
impl<S: ChunkStore> ChunkStore for Option<S> {
    fn chunks(&mut self, relation: Oid, value_id: ValueId) -> Result<Vec<Chunk>, StoreError> {
        match self {
            Some(store) => store.chunks(relation, value_id),
            None => Err(not_at_hand(relation)),
        }
    }

    fn each_chunk(
        &mut self,
        relation: Oid,
        value_id: ValueId,
        take: &mut dyn FnMut(Chunk),
    ) -> Result<(), StoreError> {
        match self {
            Some(store) => store.each_chunk(relation, value_id, take),
            None => Err(not_at_hand(relation)),
        }
    }

    fn chunk_at(&mut self, relation: Oid, tid: ItemPointer) -> Result<Option<Chunk>, StoreError> {
        match self {
            Some(store) => store.chunk_at(relation, tid),
            None => Err(not_at_hand(relation)),
        }
    }
}

fn not_at_hand(relation: Oid) -> StoreError {
    StoreError(format!("toast relation {relation} is not available"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::BlockNumber;

    #[test]
    fn pages_are_counted_in_the_order_of_the_chunks() {
        let chunk = |seq, block| Chunk {
            tid: ItemPointer { block: BlockNumber(block), item: 1 },
            value_id: ValueId(7),
            seq,
            stored_size: 0,
            inserted: Fate::Committed,
            data: ChunkData::Plain(Vec::new()),
        };
        assert_eq!(visits(&[]), None);
        assert_eq!(visits(&[chunk(2, 5), chunk(0, 4), chunk(1, 4), chunk(3, 4)]), Some(3));
    }
}
