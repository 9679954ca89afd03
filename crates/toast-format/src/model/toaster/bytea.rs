//! `bytea_toaster`: values that can be appended to, in versioned chunks.
//!
//! Payload of its custom pointer:
//!
//! ```text
//!  0 ordinary pointer without header 16   raw size of the first store, present stored size
//! 16 version 8
//! 24 length of the tail 4
//! 28 unused 4
//! 32 tail
//! ```
//!
//! `chunk_data` consists of the version that wrote the chunk (8 bytes) and a slice of the value. An append writes the
//! last chunk again with the next version.

use super::chunks::{Chunk, ChunkData, ChunkStore, Fate};
use super::error::{ToastError, ValueRef};
use super::stock::chunk_size;
use crate::disk::{ByteOrder, CustomPointer, PageSize, ToastPointer, ValueIdType};

/// The size of the payload before the tail.
const TAIL_AT: usize = 32;
/// The size of the version before a chunk's slice.
pub const VERSION_SIZE: u32 = 8;

/// The contents of a pointer of `bytea_toaster`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteaPointer<'a> {
    /// The chunks and their total size; the raw size is always that of the first store.
    pub external: ToastPointer,
    /// The version that wrote the pointer, from 1.
    pub version: u64,
    /// The appended bytes that are in the pointer itself.
    pub tail: &'a [u8],
}

impl<'a> ByteaPointer<'a> {
    /// Parses the payload of a custom pointer.
    pub fn parse(pointer: &CustomPointer<'a>) -> Result<ByteaPointer<'a>, ToastError> {
        let head = pointer.layout.head_size();
        let payload = pointer.payload;
        let order = pointer.order;
        let short = || {
            error(head, format!("payload of {} bytes, at least {TAIL_AT} expected", payload.len()))
        };
        let external = ToastPointer::parse(payload, order, ValueIdType::Oid).ok_or_else(short)?;
        let version = order.u64(payload, 16).ok_or_else(short)?;
        let tail_length = order.u32(payload, 24).ok_or_else(short)?;
        let tail = payload.get(TAIL_AT..).ok_or_else(short)?;
        if tail_length as usize != tail.len() {
            let problem = format!("tail of {tail_length} bytes, {} present", tail.len());
            return Err(error(head + 24, problem));
        }
        if external.method_id() != 0 || external.raw_size_with_header < 4 {
            let problem = format!(
                "raw size {}, size and method word 0x{:08x}",
                external.raw_size_with_header, external.ext_info
            );
            return Err(error(head, problem));
        }
        if external.value_id.0 == 0 || external.toast_relation.0 == 0 {
            return Err(error(head + 8, "no toast value".into()));
        }
        if version == 0 {
            return Err(error(head + 16, "version 0".into()));
        }
        Ok(ByteaPointer { external, version, tail })
    }

    /// The size of the value.
    pub fn raw_size(&self) -> u64 {
        u64::from(self.external.stored_size()) + self.tail.len() as u64
    }

    /// The bytes in the last chunk, with its version, if it is not full: an append stores it again.
    pub fn open_chunk(&self, page: PageSize) -> Option<u32> {
        let rest = self.external.stored_size() % slice_size(page);
        (rest > 0).then_some(rest + VERSION_SIZE)
    }

    /// The number of chunks of the value.
    pub fn chunks(&self, page: PageSize) -> u32 {
        self.external.stored_size().div_ceil(slice_size(page))
    }
}

/// The size of a value's slice in one chunk, without the version.
pub fn slice_size(page: PageSize) -> u32 {
    page.toast_max_chunk_size() - VERSION_SIZE
}

fn error(byte: usize, problem: String) -> ToastError {
    ToastError::Custom { toaster: "bytea_toaster", byte, problem }
}

/// A chunk that may be the one that the pointer refers to.
struct VersionedChunk {
    version: u64,
    chunk: Chunk,
    slice_length: u64,
}

impl VersionedChunk {
    fn is_committed(&self) -> bool {
        self.chunk.inserted == Fate::Committed
    }
}

/// Reassembles the value. For each chunk number, it uses the highest version up to the pointer's that was not written
/// by a failed transaction.
pub fn content(
    pointer: &ByteaPointer<'_>,
    store: &mut impl ChunkStore,
    page: PageSize,
    order: ByteOrder,
) -> Result<Vec<u8>, ToastError> {
    let external = &pointer.external;
    let value = ValueRef { value_id: external.value_id, relation: external.toast_relation };
    let size = u64::from(external.stored_size());
    let expected = pointer.chunks(page);
    let mut chunks =
        if size == 0 { Vec::new() } else { store.chunks(value.relation, value.value_id)? };
    if chunks.is_empty() && expected > 0 {
        return Err(ToastError::NoChunks { value, expected });
    }
    chunks.retain(|chunk| chunk.inserted != Fate::NotCommitted);
    chunks.sort_by_key(|chunk| (chunk.seq, chunk.tid));
    let mut chunks = chunks.into_iter().peekable();
    let mut joined = Vec::new();
    while chunks.next_if(|chunk| chunk.seq < 0).is_some() {}
    for seq in 0..expected {
        let mut candidates = Vec::new();
        let mut seen = false;
        while let Some(chunk) = chunks.next_if(|chunk| i64::from(chunk.seq) == i64::from(seq)) {
            seen = true;
            candidates.extend(candidate(chunk, value, pointer.version, order)?);
        }
        if !seen {
            return Err(ToastError::MissingChunk { value, seq, expected });
        }
        let wanted = chunk_size(size, slice_size(page), seq);
        let chosen = choose(candidates, wanted, value, seq, pointer.version)?;
        let Chunk { tid, data, .. } = chosen.chunk;
        if chosen.slice_length != wanted {
            return Err(ToastError::ChunkSize {
                value,
                seq: seq as i32,
                tid,
                expected: wanted,
                got: chosen.slice_length,
            });
        }
        if let ChunkData::Plain(data) = data {
            joined.extend_from_slice(data.get(VERSION_SIZE as usize..).unwrap_or(&[]));
        }
    }
    joined.extend_from_slice(pointer.tail);
    Ok(joined)
}

/// Reads a chunk's version; `None` if it is later than that of the pointer.
fn candidate(
    chunk: Chunk,
    value: ValueRef,
    newest: u64,
    order: ByteOrder,
) -> Result<Option<VersionedChunk>, ToastError> {
    let Chunk { seq, tid, .. } = chunk;
    let ChunkData::Plain(data) = &chunk.data else {
        return Err(ToastError::CompressedChunk { value, seq, tid });
    };
    let got = data.len() as u64;
    let version = order.u64(data, 0).ok_or(ToastError::ChunkSize {
        value,
        seq,
        tid,
        expected: u64::from(VERSION_SIZE) + 1,
        got,
    })?;
    let slice_length = got - u64::from(VERSION_SIZE);
    Ok((version <= newest).then_some(VersionedChunk { version, chunk, slice_length }))
}

/// The candidate with the highest version. Two with the same version are distinguished first by commit status
/// (committed ones are preferred), then by length.
fn choose(
    mut candidates: Vec<VersionedChunk>,
    wanted: u64,
    value: ValueRef,
    seq: u32,
    version: u64,
) -> Result<VersionedChunk, ToastError> {
    let Some(highest) = candidates.iter().map(|c| c.version).max() else {
        return Err(ToastError::ChunkVersion { value, seq, version });
    };
    // Versions below a committed one are ignored. Higher versions that are not known to be committed may be void, which
    // their length often shows: the valid one has the expected length.
    let committed = candidates.iter().filter(|c| c.is_committed());
    let least = committed.map(|c| c.version).max().unwrap_or(0);
    let possible = candidates.iter().filter(|c| c.version >= least && c.slice_length == wanted);
    let best = possible.map(|c| c.version).max().unwrap_or(highest);
    candidates.retain(|c| c.version == best);
    candidates.sort_by_key(|c| (!c.is_committed(), c.slice_length != wanted, c.chunk.tid));
    let mut ranked = candidates.into_iter();
    let Some(first) = ranked.next() else {
        return Err(ToastError::ChunkVersion { value, seq, version });
    };
    if let Some(second) = ranked.next() {
        let both_fit = (first.slice_length == wanted) == (second.slice_length == wanted);
        let as_good = first.chunk.inserted == second.chunk.inserted && both_fit;
        if as_good {
            return Err(ToastError::DuplicateChunk {
                value,
                seq: seq as i32,
                first: first.chunk.tid,
                second: second.chunk.tid,
                undecided: first.chunk.inserted == Fate::Unknown,
            });
        }
    }
    Ok(first)
}
