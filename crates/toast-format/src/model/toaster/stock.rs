//! Values of ordinary TOAST pointers (`detoast.c`, `heap_fetch_toast_slice`).

use super::chunks::{Chunk, ChunkData, ChunkStore, Fate};
use super::error::{ToastError, ValueRef};
use crate::codec::datum;
use crate::disk::varlena::{tc_method, tc_raw_size};
use crate::disk::{ByteOrder, PageSize, ToastPointer};

/// The content of the value, decompressed and without varlena header.
///
/// Memory is allocated only for the chunks that exist, and then for their decompressed size.
pub fn content(
    pointer: &ToastPointer,
    store: &mut impl ChunkStore,
    page: PageSize,
    order: ByteOrder,
) -> Result<Vec<u8>, ToastError> {
    let stored = stored(pointer, store, page)?;
    decompressed(pointer, stored, order)
}

/// The bytes stored in the TOAST relation, joined from the chunks.
pub fn stored(
    pointer: &ToastPointer,
    store: &mut impl ChunkStore,
    page: PageSize,
) -> Result<Vec<u8>, ToastError> {
    let value = checked(pointer)?;
    let chunks = store.chunks(value.relation, value.value_id)?;
    let chunks = one_of_each(chunks, value)?;
    let size = u64::from(pointer.stored_size());
    let limit = pointer.max_chunk_size(page);
    let expected = pointer.chunks(page);
    if chunks.is_empty() {
        return Err(ToastError::NoChunks { value, expected });
    }
    let mut joined = Vec::new();
    let mut next = 0;
    for chunk in chunks {
        let Chunk { seq, tid, .. } = chunk;
        if next == expected || seq < 0 {
            return Err(ToastError::UnexpectedChunk { value, seq, tid, expected });
        }
        if i64::from(seq) != i64::from(next) {
            return Err(ToastError::MissingChunk { value, seq: next, expected });
        }
        next += 1;
        join(&mut joined, chunk, value, chunk_size(size, limit, next - 1))?;
    }
    if next < expected {
        return Err(ToastError::MissingChunk { value, seq: next, expected });
    }
    Ok(joined)
}

/// Passes the content of a value to `take`, piece by piece. `false` if its chunks do not come one after the other, or it
/// cannot be decompressed: [`content`] says why, and what was passed on is part of no value.
pub fn pieces(
    pointer: &ToastPointer,
    store: &mut impl ChunkStore,
    page: PageSize,
    order: ByteOrder,
    take: &mut dyn FnMut(&[u8]),
) -> Result<bool, ToastError> {
    if !pointer.is_compressed() {
        return stored_pieces(pointer, store, page, take);
    }
    let mut stored = Vec::new();
    let is_whole =
        stored_pieces(pointer, store, page, &mut |piece| stored.extend_from_slice(piece))?;
    let raw_size = pointer.raw_size();
    let method = order.u32(&stored, 0).filter(|tc_info| tc_raw_size(*tc_info) == raw_size);
    let (Some(method), true) = (method.and_then(tc_method), is_whole) else { return Ok(false) };
    let stream = stored.get(4..).unwrap_or_default();
    Ok(datum::decompress_pieces(method, raw_size as usize, stream, take))
}

fn stored_pieces(
    pointer: &ToastPointer,
    store: &mut impl ChunkStore,
    page: PageSize,
    take: &mut dyn FnMut(&[u8]),
) -> Result<bool, ToastError> {
    let value = checked(pointer)?;
    let size = u64::from(pointer.stored_size());
    let limit = pointer.max_chunk_size(page);
    let expected = pointer.chunks(page);
    let mut next = 0;
    let mut is_whole = true;
    store.each_chunk(value.relation, value.value_id, &mut |chunk| {
        is_whole &= next < expected
            && i64::from(chunk.seq) == i64::from(next)
            && chunk.inserted == Fate::Committed;
        match chunk.data {
            ChunkData::Plain(data) if data.len() as u64 == chunk_size(size, limit, next) => {
                if is_whole {
                    take(&data);
                }
            }
            _ => is_whole = false,
        }
        next = next.saturating_add(1);
    })?;
    Ok(is_whole && next == expected)
}

/// The size of chunk `seq` of a value of `size` bytes that is split into pieces of `limit` bytes.
pub(super) fn chunk_size(size: u64, limit: u32, seq: u32) -> u64 {
    size.saturating_sub(u64::from(seq) * u64::from(limit)).min(u64::from(limit))
}

/// Appends a chunk that must have `expected` bytes.
pub(super) fn join(
    joined: &mut Vec<u8>,
    chunk: Chunk,
    value: ValueRef,
    expected: u64,
) -> Result<(), ToastError> {
    let Chunk { seq, tid, data, .. } = chunk;
    let ChunkData::Plain(data) = data else {
        return Err(ToastError::CompressedChunk { value, seq, tid });
    };
    if data.len() as u64 != expected {
        let got = data.len() as u64;
        return Err(ToastError::ChunkSize { value, seq, tid, expected, got });
    }
    joined.extend_from_slice(&data);
    Ok(())
}

/// The value that a pointer refers to, if its sizes and OIDs are possible.
pub(super) fn checked(pointer: &ToastPointer) -> Result<ValueRef, ToastError> {
    if !pointer.is_sane() {
        return Err(ToastError::Pointer {
            raw: pointer.raw_size_with_header,
            stored: pointer.stored_size(),
            value_id: pointer.value_id,
            relation: pointer.toast_relation,
        });
    }
    Ok(ValueRef { value_id: pointer.value_id, relation: pointer.toast_relation })
}

/// The chunks in order, without void ones; an error if two of the others have the same number.
pub(super) fn one_of_each(
    mut chunks: Vec<Chunk>,
    value: ValueRef,
) -> Result<Vec<Chunk>, ToastError> {
    chunks.retain(|chunk| chunk.inserted != Fate::NotCommitted);
    // Of the chunks with the same number, committed ones come first.
    chunks.sort_by_key(|chunk| (chunk.seq, chunk.inserted != Fate::Committed, chunk.tid));
    let mut kept: Vec<Chunk> = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        match kept.last() {
            Some(last) if last.seq == chunk.seq => {
                if last.inserted == Fate::Committed && chunk.inserted == Fate::Unknown {
                    continue;
                }
                return Err(ToastError::DuplicateChunk {
                    value,
                    seq: chunk.seq,
                    first: last.tid,
                    second: chunk.tid,
                    undecided: chunk.inserted == Fate::Unknown,
                });
            }
            _ => kept.push(chunk),
        }
    }
    Ok(kept)
}

/// The content, computed from the stored bytes.
pub(super) fn decompressed(
    pointer: &ToastPointer,
    stored: Vec<u8>,
    order: ByteOrder,
) -> Result<Vec<u8>, ToastError> {
    if !pointer.is_compressed() {
        return Ok(stored);
    }
    inflate_stored(pointer, &stored, order).map_err(|problem| {
        let what = format!("toast value {}", pointer.value_id);
        ToastError::Decompress { what, problem }
    })
}

fn inflate_stored(
    pointer: &ToastPointer,
    stored: &[u8],
    order: ByteOrder,
) -> Result<Vec<u8>, String> {
    let Some(tc_info) = order.u32(stored, 0) else {
        return Err(format!("{} bytes are not a compressed value", stored.len()));
    };
    let raw = tc_raw_size(tc_info);
    let expected = pointer.raw_size();
    if raw != expected {
        return Err(format!("compressed data says {raw} bytes, its pointer {expected}"));
    }
    inflate(tc_info, stored.get(4..).unwrap_or(&[]))
}

/// Decompresses `stream` according to `tc_info`: with its method, to exactly its size. Allocates nothing if the stream
/// cannot contain that much data.
///
/// The error describes what is wrong with the data.
pub(crate) fn inflate(tc_info: u32, stream: &[u8]) -> Result<Vec<u8>, String> {
    let method = tc_method(tc_info)
        .ok_or_else(|| format!("unknown compression method {}", tc_info >> 30))?;
    datum::decompress(method, tc_raw_size(tc_info) as usize, stream)
        .map_err(|error| error.to_string())
}
