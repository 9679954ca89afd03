//! Why an out-of-line value cannot be reassembled.

use super::chunks::StoreError;
use crate::disk::jsonb::JsonbError;
use crate::disk::{ItemPointer, Oid, ValueId};

/// A value in a TOAST relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueRef {
    /// `chunk_id` of the value's chunks.
    pub value_id: ValueId,
    /// OID of the TOAST relation.
    pub relation: Oid,
}

impl std::fmt::Display for ValueRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "toast value {} in relation {}", self.value_id, self.relation)
    }
}

/// Why a value cannot be reassembled. Byte positions in pointers are relative to the start of the datum.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToastError {
    /// The chunks could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The ordinary pointer has impossible sizes or OIDs.
    #[error(
        "invalid toast pointer: raw size {raw}, stored size {stored}, value {value_id}, \
         relation {relation}"
    )]
    Pointer {
        /// `va_rawsize`, including the header.
        raw: i32,
        /// `va_extinfo` without the method, in bytes.
        stored: u32,
        /// `va_valueid` of the pointer.
        value_id: ValueId,
        /// `va_toastrelid` of the pointer.
        relation: Oid,
    },
    /// The value has no chunks.
    #[error("no chunks for {value}, {expected} expected")]
    NoChunks {
        /// The value without chunks.
        value: ValueRef,
        /// The number of chunks according to its pointer.
        expected: u32,
    },
    /// A chunk is missing.
    #[error("missing chunk number {seq} of {expected} for {value}")]
    MissingChunk {
        /// The value that is incomplete.
        value: ValueRef,
        /// `chunk_seq` of the missing chunk.
        seq: u32,
        /// The number of chunks according to the pointer.
        expected: u32,
    },
    /// The value has a chunk that its pointer does not require.
    #[error("unexpected chunk number {seq} at {tid} for {value}: {expected} chunks expected")]
    UnexpectedChunk {
        /// The value with the chunk.
        value: ValueRef,
        /// `chunk_seq` of the chunk.
        seq: i32,
        /// The address of the chunk.
        tid: ItemPointer,
        /// The number of chunks according to the pointer.
        expected: u32,
    },
    /// Two chunks have the same number, and neither is known to be void.
    #[error("chunk number {seq} exists twice, at {first} and {second}, for {value}{}",
        if *.undecided { "; it is not known which of their transactions committed" } else { "" })]
    DuplicateChunk {
        /// The value of both chunks.
        value: ValueRef,
        /// `chunk_seq` of both chunks.
        seq: i32,
        /// The address of one of them.
        first: ItemPointer,
        /// The address of the other.
        second: ItemPointer,
        /// Whether the commit status would distinguish them.
        undecided: bool,
    },
    /// A chunk has the wrong length.
    #[error(
        "unexpected chunk size {got} (expected {expected}) in chunk {seq} at {tid} for {value}"
    )]
    ChunkSize {
        /// The value with the chunk.
        value: ValueRef,
        /// `chunk_seq` of the chunk.
        seq: i32,
        /// The address of the chunk.
        tid: ItemPointer,
        /// Bytes that it must have.
        expected: u64,
        /// Bytes that it has.
        got: u64,
    },
    /// A chunk is compressed, which is not allowed here.
    #[error("chunk {seq} at {tid} for {value} is compressed")]
    CompressedChunk {
        /// The value with the chunk.
        value: ValueRef,
        /// `chunk_seq` of the chunk.
        seq: i32,
        /// The address of the chunk.
        tid: ItemPointer,
    },
    /// Separately compressed chunks are not contiguous.
    #[error("chunk {seq} at {tid} for {value} covers bytes from {start}, {expected} expected")]
    ChunkStart {
        /// The value with the chunk.
        value: ValueRef,
        /// `chunk_seq` of the chunk.
        seq: i32,
        /// The address of the chunk.
        tid: ItemPointer,
        /// The offset of its first byte.
        start: i64,
        /// The offset at which the previous chunk ends.
        expected: u64,
    },
    /// The total size of the chunks differs from that in the pointer.
    #[error("{value} has {got} bytes, its pointer says {expected}")]
    StoredSize {
        /// The value of the pointer.
        value: ValueRef,
        /// The size according to the pointer.
        expected: u64,
        /// The size of the chunks.
        got: u64,
    },
    /// A TID in a pointer does not lead to a chunk.
    #[error("no chunk at {tid} in relation {relation}, where chunk {seq} must be")]
    NoChunkAt {
        /// The OID of the TOAST relation.
        relation: Oid,
        /// The TID in the pointer.
        tid: ItemPointer,
        /// The number that the chunk must have.
        seq: u32,
    },
    /// A TID in a pointer leads to another chunk or value.
    #[error(
        "chunk at {tid} in relation {relation} is number {got_seq} of value {got_id}, \
         expected number {seq} of value {value_id}"
    )]
    OtherChunkAt {
        /// The OID of the TOAST relation.
        relation: Oid,
        /// The TID in the pointer.
        tid: ItemPointer,
        /// The number that the chunk must have.
        seq: u32,
        /// The value to which it must belong.
        value_id: ValueId,
        /// The number that it has.
        got_seq: i32,
        /// The value to which it belongs.
        got_id: ValueId,
    },
    /// No version of a chunk belongs to this pointer.
    #[error("no version of chunk number {seq} up to {version} for {value}")]
    ChunkVersion {
        /// The value of the pointer.
        value: ValueRef,
        /// `chunk_seq` of the chunk.
        seq: u32,
        /// The version in the pointer.
        version: u64,
    },
    /// Compressed data is damaged.
    #[error("{what}: {problem}")]
    Decompress {
        /// What is compressed, with its value.
        what: String,
        /// The message of the codec.
        problem: String,
    },
    /// A custom pointer does not have its toaster's format.
    #[error("invalid {toaster} pointer at byte {byte}: {problem}")]
    Custom {
        /// The usual name of the toaster.
        toaster: &'static str,
        /// Offset in the datum.
        byte: usize,
        /// The damage, in words.
        problem: String,
    },
    /// The list of TIDs in a pointer of `jsonb_toaster` is invalid, or does not match the value's length.
    #[error("invalid jsonb_toaster pointer at byte {byte}: {problem}")]
    TidList {
        /// Offset in the datum.
        byte: usize,
        /// The damage, in words.
        problem: String,
    },
    /// A patch in a pointer of `jsonb_toaster` is outside the value.
    #[error("invalid jsonb_toaster pointer at byte {byte}: {problem}")]
    Patch {
        /// Offset in the datum.
        byte: usize,
        /// The damage, in words.
        problem: String,
    },
    /// A custom pointer has no payload.
    #[error(
        "payload missing: the server stored only the first {0} bytes of the custom pointer, \
         without chunk_id and toast relation"
    )]
    PayloadMissing(usize),
    /// A custom pointer belongs to an unknown toaster.
    #[error("custom pointer of toaster {0}, which is not known")]
    UnknownToaster(Oid),
    /// A pointer has an unknown tag.
    #[error("pointer with unknown tag {0}")]
    UnknownTag(u8),
    /// The value is longer than any that a server can create.
    #[error("value is longer than 1 GB")]
    TooLong,
    /// A jsonb container is damaged.
    #[error(transparent)]
    Jsonb(#[from] JsonbError),
    /// The content is not valid for its type.
    #[error("{0}")]
    Content(String),
    /// A jsonb value consists of several parts.
    #[error("value of {0} has no single content")]
    NoContent(&'static str),
    /// An error inside a value that was fetched.
    #[error("{place}: {error}")]
    Inside {
        /// The location within the value.
        place: String,
        /// What is wrong there.
        error: Box<ToastError>,
    },
}

impl ToastError {
    /// The same error with the location `place`.
    pub fn inside(self, place: impl Into<String>) -> ToastError {
        ToastError::Inside { place: place.into(), error: Box::new(self) }
    }
}
