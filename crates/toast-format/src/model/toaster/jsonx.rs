//! `jsonb_toaster`: its pointers, which all begin with a word of kind and count.
//!
//! ```text
//!  0 custom pointer head 14, zero padding 2
//! 16 word: kind in the top 4 bits, count in the others
//! 20 kind 0: a varlena with the root container, whose nested containers are moved out
//!    kinds 1 to 6: an ordinary pointer (18 bytes), then at 38
//!      kind 2: plain TIDs, kind 3: compressed TIDs, kinds 5 and 6: offset 4, patch
//!    kind 7: elements 4, chunks c 4, TOAST relation 4, c first elements 4 each, c TIDs 6 each,
//!            aligned to 4: inline chunks
//! ```

use super::error::ToastError;
use super::tids::{self, TID_SIZE, tid_at};
use crate::disk::custom::CustomLayout;
use crate::disk::pointer::TOAST_POINTER_SIZE;
use crate::disk::{ByteOrder, CustomPointer, ItemPointer, Oid, ToastPointer, Varlena};

/// The offset of the word with kind and count.
const WORD_AT: usize = 16;
const DATA_AT: usize = 20;
/// The offset of the data after the ordinary pointer.
const BEHIND_POINTER: usize = DATA_AT + TOAST_POINTER_SIZE;
/// The stored offset of a patch includes a varlena header that is not stored.
const PATCH_BASE: u32 = 4;

/// How the bytes of an ordinary pointer are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonxAccess {
    /// By `chunk_id`, as in stock PostgreSQL.
    ChunkId,
    /// By the addresses of the chunks, as a plain list.
    Tids(Vec<ItemPointer>),
    /// By the addresses of the chunks, as a list of differences.
    CompressedTids(Vec<ItemPointer>),
    /// By `chunk_id`; each chunk is compressed on its own.
    CompressedChunks,
}

/// Bytes that replace part of a container after it was fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patch<'a> {
    /// Their offset in the container.
    pub offset: usize,
    /// The bytes that replace others.
    pub bytes: &'a [u8],
}

/// A chunk of a chunked array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrayChunk<'a> {
    /// A tuple of the TOAST relation.
    At(ItemPointer),
    /// A varlena in the pointer, with the bytes after it.
    Inline {
        /// Its offset in the datum.
        byte: usize,
        /// The bytes from its header to the end of the datum.
        bytes: &'a [u8],
    },
}

/// The directory of a chunked array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayDirectory<'a> {
    /// The number of elements in the array.
    pub elements: u32,
    /// OID of the TOAST relation.
    pub relation: Oid,
    /// Each chunk with the index of its first element, in ascending order.
    pub chunks: Vec<(u32, ArrayChunk<'a>)>,
}

/// The contents of a pointer of `jsonb_toaster`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonxBody<'a> {
    /// Kind 0: a container in place, which contains pointers.
    Plain {
        /// The container's bytes (`JsonbContainer`).
        container: &'a [u8],
    },
    /// Kinds 1 to 6: a container in the TOAST relation.
    External {
        /// The ordinary pointer to the container.
        pointer: ToastPointer,
        /// How its bytes are found.
        access: JsonxAccess,
        /// The bytes that replace part of them (kinds 5 and 6).
        patch: Option<Patch<'a>>,
    },
    /// Kind 7: a chunked array.
    Array(ArrayDirectory<'a>),
}

/// A pointer of `jsonb_toaster`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jsonx<'a> {
    /// Its kind, 0 to 7.
    pub kind: u8,
    /// What the payload contains, by its kind.
    pub body: JsonxBody<'a>,
    /// The byte order of its numbers.
    pub order: ByteOrder,
}

/// The name of a kind.
pub(crate) fn kind_name(kind: u8) -> &'static str {
    match kind {
        0 => "plain",
        1 => "pointer",
        2 => "direct TIDs",
        3 => "compressed TIDs",
        4 => "compressed chunks",
        5 => "diff",
        6 => "diff over compressed chunks",
        7 => "chunked array",
        _ => "unknown",
    }
}

pub(super) fn error(byte: usize, problem: impl Into<String>) -> ToastError {
    ToastError::Custom { toaster: "jsonb_toaster", byte, problem: problem.into() }
}

fn cut(datum: &[u8], byte: usize) -> ToastError {
    error(byte, format!("datum of {} bytes ends here", datum.len()))
}

impl<'a> Jsonx<'a> {
    /// Parses the pointer; every part is checked against the end of the datum.
    pub fn parse(pointer: &CustomPointer<'a>) -> Result<Jsonx<'a>, ToastError> {
        let CustomPointer { datum, order, layout, .. } = *pointer;
        if layout != CustomLayout::Bits32 {
            return Err(error(2, format!("{} layout, 32-bit expected", layout.name())));
        }
        let padding = order.u16(datum, 14).ok_or_else(|| cut(datum, 14))?;
        if padding != 0 {
            return Err(error(14, format!("padding is 0x{padding:04x}")));
        }
        let word = order.u32(datum, WORD_AT).ok_or_else(|| cut(datum, WORD_AT))?;
        let kind = (word >> 28) as u8;
        let count = word & 0x0FFF_FFFF;
        if !matches!(kind, 2 | 3) && count != 0 {
            return Err(error(WORD_AT, format!("kind {kind} with count {count}")));
        }
        let body = match kind {
            0 => plain(datum, order)?,
            1..=6 => {
                let (value, _) = Varlena::parse(datum.get(DATA_AT..).unwrap_or(&[]), order)
                    .map_err(|problem| error(DATA_AT, problem.to_string()))?;
                let Varlena::External(pointer) = value else {
                    return Err(error(DATA_AT, "not an ordinary TOAST pointer"));
                };
                let rest = datum.get(BEHIND_POINTER..).ok_or_else(|| cut(datum, BEHIND_POINTER))?;
                let (access, patch) = external(kind, count, &pointer, rest, order)?;
                JsonxBody::External { pointer, access, patch }
            }
            7 => JsonxBody::Array(array(datum, order)?),
            _ => return Err(error(WORD_AT, format!("unknown kind {kind}"))),
        };
        Ok(Jsonx { kind, body, order })
    }
}

fn plain(datum: &[u8], order: ByteOrder) -> Result<JsonxBody<'_>, ToastError> {
    let (value, used) = Varlena::parse(datum.get(DATA_AT..).unwrap_or(&[]), order)
        .map_err(|problem| error(DATA_AT, problem.to_string()))?;
    match value {
        Varlena::Plain { content } if DATA_AT + used == datum.len() => {
            Ok(JsonxBody::Plain { container: content })
        }
        Varlena::Plain { .. } => {
            let left = datum.len() - DATA_AT - used;
            Err(error(DATA_AT + used, format!("{left} bytes after the container")))
        }
        _ => Err(error(DATA_AT, "no uncompressed container")),
    }
}

fn external<'a>(
    kind: u8,
    count: u32,
    pointer: &ToastPointer,
    rest: &'a [u8],
    order: ByteOrder,
) -> Result<(JsonxAccess, Option<Patch<'a>>), ToastError> {
    super::stock::checked(pointer).map_err(|problem| error(DATA_AT, problem.to_string()))?;
    match kind {
        2 => Ok((JsonxAccess::Tids(possible(tids::plain(rest, count, order))?), None)),
        3 => {
            Ok((JsonxAccess::CompressedTids(possible(tids::compressed(rest, count, order))?), None))
        }
        5 | 6 => {
            let stored =
                order.u32(rest, 0).ok_or_else(|| patch_error("no offset of the patch".into()))?;
            let bytes = rest.get(4..).unwrap_or(&[]);
            if bytes.is_empty() || stored < PATCH_BASE {
                return Err(patch_error(format!("patch of {} bytes at {stored}", bytes.len())));
            }
            let offset = (stored - PATCH_BASE) as usize;
            let raw = pointer.raw_size() as usize;
            if offset > raw || bytes.len() > raw - offset {
                let length = bytes.len();
                return Err(patch_error(format!(
                    "patch of {length} bytes at {offset}, outside the {raw} bytes of its base"
                )));
            }
            let access =
                if kind == 5 { JsonxAccess::ChunkId } else { JsonxAccess::CompressedChunks };
            Ok((access, Some(Patch { offset, bytes })))
        }
        _ if !rest.is_empty() => {
            Err(error(BEHIND_POINTER, format!("{} bytes after the pointer", rest.len())))
        }
        4 => Ok((JsonxAccess::CompressedChunks, None)),
        _ => Ok((JsonxAccess::ChunkId, None)),
    }
}

/// The addresses in a list, if a chunk can be at each of them.
fn possible(tids: Result<Vec<ItemPointer>, String>) -> Result<Vec<ItemPointer>, ToastError> {
    let tids = tids.and_then(|tids| match tids.iter().find(|tid| tid.item == 0) {
        Some(tid) => Err(format!("TID {tid} cannot be")),
        None => Ok(tids),
    });
    tids.map_err(|problem| ToastError::TidList { byte: BEHIND_POINTER, problem })
}

fn patch_error(problem: String) -> ToastError {
    ToastError::Patch { byte: BEHIND_POINTER, problem }
}

fn array(datum: &[u8], order: ByteOrder) -> Result<ArrayDirectory<'_>, ToastError> {
    let word = |at| {
        order.u32(datum, at).ok_or_else(|| {
            error(at, format!("array directory ends with the datum of {} bytes", datum.len()))
        })
    };
    let elements = word(20)?;
    let count = word(24)?;
    let relation = Oid(word(28)?);
    if elements > 0x0FFF_FFFF {
        return Err(error(20, format!("{elements} elements")));
    }
    let firsts_at = DATA_AT + 12;
    let need = firsts_at as u64 + u64::from(count) * (4 + TID_SIZE as u64);
    if need > datum.len() as u64 {
        let length = datum.len();
        return Err(error(24, format!("{count} chunks need {need} bytes, datum has {length}")));
    }
    let tids_at = firsts_at + count as usize * 4;
    let inline_at = (need as usize).next_multiple_of(4);
    let mut chunks = Vec::with_capacity(count as usize);
    let mut previous = None;
    for index in 0..count as usize {
        let first_at = firsts_at + index * 4;
        let tid_byte = tids_at + index * TID_SIZE;
        let first = word(first_at)?;
        let ascends = previous.map_or(first == 0, |previous| previous < first);
        if !ascends || first >= elements {
            let problem = format!("first element {first} of chunk {index}, array of {elements}");
            return Err(error(first_at, problem));
        }
        previous = Some(first);
        let tid = tid_at(datum, tid_byte, order).unwrap_or_default();
        let chunk = if tid.item == 0 {
            let byte = inline_at.saturating_add(tid.block.0 as usize);
            let bytes = datum.get(byte..).filter(|bytes| !bytes.is_empty()).ok_or_else(|| {
                error(tid_byte, format!("inline chunk at byte {byte} of {}", datum.len()))
            })?;
            ArrayChunk::Inline { byte, bytes }
        } else {
            ArrayChunk::At(tid)
        };
        chunks.push((first, chunk));
    }
    if count == 0 && elements > 0 {
        return Err(error(20, format!("{elements} elements in no chunks")));
    }
    Ok(ArrayDirectory { elements, relation, chunks })
}
