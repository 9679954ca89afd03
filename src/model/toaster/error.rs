//! Why a value out of line cannot be put together.

use super::chunks::StoreError;
use crate::disk::jsonb::JsonbError;
use crate::disk::{ItemPointer, Oid};

/// A value in a TOAST relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueRef {
    /// `chunk_id`.
    pub value_id: Oid,
    /// OID of the TOAST relation.
    pub relation: Oid,
}

impl std::fmt::Display for ValueRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "toast value {} in relation {}", self.value_id, self.relation)
    }
}

/// Why a value cannot be put together. Byte positions in pointers count from the datum's start.
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
        /// `va_rawsize`, with header.
        raw: i32,
        /// Stored size.
        stored: u32,
        /// `va_valueid`.
        value_id: Oid,
        /// `va_toastrelid`.
        relation: Oid,
    },
    /// No chunk at all.
    #[error("no chunks for {value}, {expected} expected")]
    NoChunks {
        /// The value.
        value: ValueRef,
        /// How many its pointer asks for.
        expected: u32,
    },
    /// A gap.
    #[error("missing chunk number {seq} of {expected} for {value}")]
    MissingChunk {
        /// The value.
        value: ValueRef,
        /// `chunk_seq`.
        seq: u32,
        /// How many chunks the pointer asks for.
        expected: u32,
    },
    /// A chunk that the pointer does not ask for.
    #[error("unexpected chunk number {seq} at {tid} for {value}: {expected} chunks expected")]
    UnexpectedChunk {
        /// The value.
        value: ValueRef,
        /// `chunk_seq`.
        seq: i32,
        /// Where it stands.
        tid: ItemPointer,
        /// How many chunks the pointer asks for.
        expected: u32,
    },
    /// Two chunks with the same number, neither known to be void.
    #[error("chunk number {seq} exists twice, at {first} and {second}, for {value}{}",
        if *.undecided { "; it is not known which of their transactions committed" } else { "" })]
    DuplicateChunk {
        /// The value.
        value: ValueRef,
        /// `chunk_seq`.
        seq: i32,
        /// One of them.
        first: ItemPointer,
        /// The other.
        second: ItemPointer,
        /// Whether commit status could tell.
        undecided: bool,
    },
    /// A chunk of the wrong length.
    #[error(
        "unexpected chunk size {got} (expected {expected}) in chunk {seq} at {tid} for {value}"
    )]
    ChunkSize {
        /// The value.
        value: ValueRef,
        /// `chunk_seq`.
        seq: i32,
        /// Where it stands.
        tid: ItemPointer,
        /// Bytes there must be.
        expected: u64,
        /// Bytes there are.
        got: u64,
    },
    /// A chunk whose data is compressed where it must not be.
    #[error("chunk {seq} at {tid} for {value} is compressed")]
    CompressedChunk {
        /// The value.
        value: ValueRef,
        /// `chunk_seq`.
        seq: i32,
        /// Where it stands.
        tid: ItemPointer,
    },
    /// Chunks that are compressed one by one do not join.
    #[error("chunk {seq} at {tid} for {value} covers bytes from {start}, {expected} expected")]
    ChunkStart {
        /// The value.
        value: ValueRef,
        /// `chunk_seq`.
        seq: i32,
        /// Where it stands.
        tid: ItemPointer,
        /// Its first byte.
        start: i64,
        /// Where the chunk before ends.
        expected: u64,
    },
    /// The chunks together are longer or shorter than the pointer says.
    #[error("{value} has {got} bytes, its pointer says {expected}")]
    StoredSize {
        /// The value.
        value: ValueRef,
        /// By the pointer.
        expected: u64,
        /// By the chunks.
        got: u64,
    },
    /// A TID in a pointer leads to no chunk.
    #[error("no chunk at {tid} in relation {relation}, where chunk {seq} must be")]
    NoChunkAt {
        /// The TOAST relation.
        relation: Oid,
        /// The TID.
        tid: ItemPointer,
        /// The number the chunk must have.
        seq: u32,
    },
    /// A TID in a pointer leads to a chunk of something else.
    #[error(
        "chunk at {tid} in relation {relation} is number {got_seq} of value {got_id}, \
         expected number {seq} of value {value_id}"
    )]
    OtherChunkAt {
        /// The TOAST relation.
        relation: Oid,
        /// The TID.
        tid: ItemPointer,
        /// The number it must have.
        seq: u32,
        /// The value it must be of.
        value_id: Oid,
        /// The number it has.
        got_seq: i32,
        /// The value it is of.
        got_id: Oid,
    },
    /// Neither version of a chunk is of this pointer.
    #[error("no version of chunk number {seq} up to {version} for {value}")]
    ChunkVersion {
        /// The value.
        value: ValueRef,
        /// `chunk_seq`.
        seq: u32,
        /// The pointer's version.
        version: u64,
    },
    /// Compressed data is damaged.
    #[error("{what}: {problem}")]
    Decompress {
        /// Which data.
        what: String,
        /// What the codec says.
        problem: String,
    },
    /// A custom pointer is not as its toaster writes it.
    #[error("invalid {toaster} pointer at byte {byte}: {problem}")]
    Custom {
        /// The toaster's handler.
        toaster: &'static str,
        /// Offset in the datum.
        byte: usize,
        /// What is wrong.
        problem: String,
    },
    /// The list of TIDs in a pointer of `jsonb_toaster` cannot be, or is not as long as the value.
    #[error("invalid jsonb_toaster pointer at byte {byte}: {problem}")]
    TidList {
        /// Offset in the datum.
        byte: usize,
        /// What is wrong.
        problem: String,
    },
    /// A patch in a pointer of `jsonb_toaster` does not lie in the value.
    #[error("invalid jsonb_toaster pointer at byte {byte}: {problem}")]
    Patch {
        /// Offset in the datum.
        byte: usize,
        /// What is wrong.
        problem: String,
    },
    /// A custom pointer without its payload.
    #[error(
        "payload missing: the server stored only the first {head} bytes of the custom pointer, \
         without chunk_id and toast relation"
    )]
    PayloadMissing {
        /// Bytes there are.
        head: usize,
    },
    /// A custom pointer of a toaster that is not known here.
    #[error("custom pointer of toaster {toaster}, which is not known")]
    UnknownToaster {
        /// Its OID.
        toaster: Oid,
    },
    /// A pointer with an unknown tag.
    #[error("pointer with unknown tag {tag}")]
    UnknownTag {
        /// The tag.
        tag: u8,
    },
    /// The value is longer than a server can make it.
    #[error("value is longer than 1 GB")]
    TooLong,
    /// A jsonb container is damaged.
    #[error(transparent)]
    Jsonb(#[from] JsonbError),
    /// The content is not what its type asks for.
    #[error("{0}")]
    Content(String),
    /// A jsonb value in pieces.
    #[error("value of {0} has no single content")]
    NoContent(&'static str),
    /// Inside something that was fetched.
    #[error("{place}: {error}")]
    Inside {
        /// Where.
        place: String,
        /// What is wrong there.
        error: Box<ToastError>,
    },
}

impl ToastError {
    /// The same error, said to be at `place`.
    pub fn inside(self, place: impl Into<String>) -> ToastError {
        ToastError::Inside { place: place.into(), error: Box::new(self) }
    }
}
