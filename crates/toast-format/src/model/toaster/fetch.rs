//! Containers that `jsonb_toaster` stored out of line, reassembled from their chunks.

use super::chunks::{Chunk, ChunkData, ChunkStore};
use super::error::{ToastError, ValueRef};
use super::jsonx::{ArrayChunk, ArrayDirectory, JsonxAccess, Patch, error};
use super::stock;
use super::stock::{checked, chunk_size, decompressed, join, one_of_each};
use crate::disk::varlena::tc_raw_size;
use crate::disk::{ByteOrder, ItemPointer, PageSize, ToastPointer, Varlena};

/// The container of an ordinary pointer written by `jsonb_toaster`, with the patch applied.
pub fn container(
    pointer: &ToastPointer,
    access: &JsonxAccess,
    patch: Option<Patch<'_>>,
    store: &mut impl ChunkStore,
    page: PageSize,
    order: ByteOrder,
) -> Result<Vec<u8>, ToastError> {
    let stored = match access {
        JsonxAccess::ChunkId => stock::stored(pointer, store, page)?,
        JsonxAccess::Tids(tids) | JsonxAccess::CompressedTids(tids) => {
            by_tids(pointer, tids, store, page)?
        }
        JsonxAccess::CompressedChunks => by_compressed_chunks(pointer, store)?,
    };
    let mut container = decompressed(pointer, stored, order)?;
    if let Some(Patch { offset, bytes }) = patch {
        let length = container.len();
        let target = container.get_mut(offset..).and_then(|rest| rest.get_mut(..bytes.len()));
        let target = target.ok_or_else(|| ToastError::Patch {
            byte: 38,
            problem: format!(
                "patch of {} bytes at {offset}, outside the {length} bytes of its base",
                bytes.len()
            ),
        })?;
        target.copy_from_slice(bytes);
    }
    Ok(container)
}

fn by_tids(
    pointer: &ToastPointer,
    tids: &[ItemPointer],
    store: &mut impl ChunkStore,
    page: PageSize,
) -> Result<Vec<u8>, ToastError> {
    let value = checked(pointer)?;
    let ValueRef { relation, value_id } = value;
    let expected = page.chunks(pointer.stored_size());
    if tids.len() != expected as usize {
        return Err(ToastError::TidList {
            byte: 16,
            problem: format!("{} TIDs, {expected} chunks expected", tids.len()),
        });
    }
    let mut joined = Vec::new();
    for (seq, &tid) in (0..).zip(tids) {
        let chunk = store.chunk_at(relation, tid)?;
        let chunk = chunk.ok_or(ToastError::NoChunkAt { relation, tid, seq })?;
        if chunk.value_id != value_id || i64::from(chunk.seq) != i64::from(seq) {
            let got_seq = chunk.seq;
            let got_id = chunk.value_id;
            return Err(ToastError::OtherChunkAt { relation, tid, seq, value_id, got_seq, got_id });
        }
        let size = u64::from(pointer.stored_size());
        join(&mut joined, chunk, value, chunk_size(size, page.toast_max_chunk_size(), seq))?;
    }
    Ok(joined)
}

/// `chunk_seq` is the offset of the chunk's last uncompressed byte.
fn by_compressed_chunks(
    pointer: &ToastPointer,
    store: &mut impl ChunkStore,
) -> Result<Vec<u8>, ToastError> {
    let value = checked(pointer)?;
    let size = u64::from(pointer.stored_size());
    let chunks = one_of_each(store.chunks(value.relation, value.value_id)?, value)?;
    if chunks.is_empty() {
        return Err(ToastError::NoChunks { value, expected: 1 });
    }
    let mut joined = Vec::new();
    for chunk in chunks {
        let Chunk { tid, seq, data, .. } = chunk;
        let expected = joined.len() as u64;
        let start = i64::from(seq) + 1 - data.raw_size() as i64;
        if u64::try_from(start) != Ok(expected) {
            return Err(ToastError::ChunkStart { value, seq, tid, start, expected });
        }
        if i64::from(seq) >= size as i64 {
            let got = i64::from(seq) as u64 + 1;
            return Err(ToastError::StoredSize { value, expected: size, got });
        }
        match data {
            ChunkData::Plain(data) => joined.extend_from_slice(&data),
            ChunkData::Compressed { tc_info, stream } => {
                let data = stock::inflate(tc_info, &stream).map_err(|problem| {
                    let what = format!("chunk {seq} at {tid} for {value}");
                    ToastError::Decompress { what, problem }
                })?;
                joined.extend_from_slice(&data);
            }
        }
    }
    if joined.len() as u64 != size {
        return Err(ToastError::StoredSize { value, expected: size, got: joined.len() as u64 });
    }
    Ok(joined)
}

/// The container of one chunk of a chunked array.
pub(crate) fn array_chunk(
    directory: &ArrayDirectory<'_>,
    index: usize,
    store: &mut impl ChunkStore,
    order: ByteOrder,
) -> Result<Vec<u8>, ToastError> {
    let Some((_, chunk)) = directory.chunks.get(index) else {
        return Err(error(24, format!("no chunk {index}")));
    };
    match *chunk {
        ArrayChunk::Inline { byte, bytes } => {
            let (value, _) = Varlena::parse(bytes, order)
                .map_err(|problem| error(byte, format!("inline chunk {index}: {problem}")))?;
            match value {
                Varlena::Plain { content } => Ok(content.to_vec()),
                _ => {
                    Err(error(byte, format!("inline chunk {index} is not an uncompressed varlena")))
                }
            }
        }
        ArrayChunk::At(tid) => {
            let relation = directory.relation;
            let seq = 0;
            let chunk = store.chunk_at(relation, tid)?;
            let chunk = chunk.ok_or(ToastError::NoChunkAt { relation, tid, seq })?;
            let value = ValueRef { relation, value_id: chunk.value_id };
            if chunk.seq != 0 {
                let got_seq = chunk.seq;
                let got_id = chunk.value_id;
                let value_id = got_id;
                return Err(ToastError::OtherChunkAt {
                    relation,
                    tid,
                    seq,
                    value_id,
                    got_seq,
                    got_id,
                });
            }
            match chunk.data {
                ChunkData::Plain(data) => Ok(data),
                ChunkData::Compressed { .. } => {
                    Err(ToastError::CompressedChunk { value, seq: 0, tid })
                }
            }
        }
    }
}

/// A container that is compressed in its pointer.
pub(crate) fn inline_compressed(tc_info: u32, stream: &[u8]) -> Result<Vec<u8>, ToastError> {
    stock::inflate(tc_info, stream).map_err(|problem| ToastError::Decompress {
        what: format!("jsonb container of {} bytes", tc_raw_size(tc_info)),
        problem,
    })
}
