//! Chunks of values out of line, and where they come from.

use crate::disk::varlena::{Varlena, tc_raw_size};
use crate::disk::{ItemPointer, Oid};

/// Where an external value's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// `va_valueid`, the chunks' `chunk_id`.
    pub value_id: Oid,
    /// OID of the TOAST relation.
    pub toast_relation: Oid,
    /// Chunks that hold the stored bytes.
    pub chunks: u32,
}

/// What became of the transaction that inserted a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It committed.
    Committed,
    /// It aborted, crashed, or was not over when the chunk was read.
    NotCommitted,
    /// There is no hint bit, and nothing else tells.
    Unknown,
}

/// `chunk_data` as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunkData {
    /// Uncompressed, without varlena header.
    Plain(Vec<u8>),
    /// Compressed on its own, as `jsonb_toaster` does.
    Compressed {
        /// Raw size and method, as in [`Varlena::Compressed`].
        tc_info: u32,
        /// The compressed stream.
        stream: Vec<u8>,
    },
}

impl ChunkData {
    /// Takes over what stands in a chunk's tuple; `None` for a pointer, which no chunk can hold.
    pub fn of(value: &Varlena<'_>) -> Option<ChunkData> {
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

    /// Bytes in the tuple, headers of the varlena not counted.
    pub fn stored_size(&self) -> usize {
        match self {
            ChunkData::Plain(data) => data.len(),
            ChunkData::Compressed { stream, .. } => stream.len(),
        }
    }

    /// Bytes when decompressed.
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
    /// Where it stands.
    pub tid: ItemPointer,
    /// `chunk_id`.
    pub value_id: Oid,
    /// `chunk_seq`.
    pub seq: i32,
    /// Whether it was ever committed. Whether it was deleted since does not matter: the server
    /// reads chunks of old values as long as vacuum left them.
    pub inserted: Fate,
    /// `chunk_data`.
    pub data: ChunkData,
}

/// Why chunks could not be read: a message that names the place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub String);

/// Where chunks come from.
pub trait ChunkStore {
    /// All chunks of a value, dead ones included where the source has them, in any order. Empty
    /// if there are none.
    fn chunks(&mut self, relation: Oid, value_id: Oid) -> Result<Vec<Chunk>, StoreError>;

    /// The chunk at `tid`, redirects followed; `None` if there is no tuple.
    fn chunk_at(&mut self, relation: Oid, tid: ItemPointer) -> Result<Option<Chunk>, StoreError>;
}

/// A source that may not be at hand.
impl<S: ChunkStore> ChunkStore for Option<S> {
    fn chunks(&mut self, relation: Oid, value_id: Oid) -> Result<Vec<Chunk>, StoreError> {
        match self {
            Some(store) => store.chunks(relation, value_id),
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
