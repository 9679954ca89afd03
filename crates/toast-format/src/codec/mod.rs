//! Compression methods of TOASTed values (`access/toast_compression.h`).
//!
//! * [`pglz`]: PostgreSQL's own method, with the same bytes and the same refusals.
//! * [`lz4`]: the LZ4 block format; what is compressed here may differ in size from liblz4's.
//! * [`lz4_size`]: the exact length of liblz4's streams.
//! * [`datum`]: whole values, compressed or refused as by the server.
//! * [`items`]: what a compressed stream consists of.
//!
//! All work on slices without varlena headers, and trust no size: before anything is allocated, a size is
//! checked against the maximum that the compressed bytes can give.

pub mod datum;
pub mod items;
pub mod lz4;
pub mod lz4_size;
pub mod pglz;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::VariantArray;

/// A compressor's output buffer larger than this is not kept for values much smaller than it.
const KEEP: usize = 1 << 20;

/// A compression method that stock PostgreSQL can write (`ToastCompressionId`).
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// PostgreSQL's own LZ variant (`pg_lzcompress.c`), id 0.
    Pglz,
    /// LZ4 block format, id 1, since PostgreSQL 14.
    Lz4,
}

impl Method {
    /// The method with this id in the top two bits of `va_tcinfo` or `va_extinfo`;
    /// `None` for ids that no released version writes.
    pub fn from_id(id: u8) -> Option<Method> {
        match id {
            0 => Some(Method::Pglz),
            1 => Some(Method::Lz4),
            _ => None,
        }
    }

    /// The id as stored on disk.
    pub fn id(self) -> u8 {
        match self {
            Method::Pglz => 0,
            Method::Lz4 => 1,
        }
    }

    /// The method for a letter of `attcompression` (`p`, `l`); `None` for others.
    pub fn from_char(c: char) -> Option<Method> {
        match c {
            'p' => Some(Method::Pglz),
            'l' => Some(Method::Lz4),
            _ => None,
        }
    }

    /// The method with this [`name`](Method::name).
    pub fn from_name(name: &str) -> Option<Method> {
        Method::VARIANTS.iter().copied().find(|method| method.name() == name)
    }

    /// The name as `pg_column_compression` prints it.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The one of the two methods that this is not.
    pub fn other(self) -> Method {
        match self {
            Method::Pglz => Method::Lz4,
            Method::Lz4 => Method::Pglz,
        }
    }
}

/// Why compressed data cannot be decompressed. Positions count from the first compressed byte,
/// behind `va_tcinfo`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecompressError {
    /// The stream ends where more of an item must follow.
    #[error("compressed data ends inside an item at byte {0}")]
    Truncated(usize),
    /// A match begins before the value does, or where it is to be written.
    #[error("match at byte {at} reaches back {offset} bytes where {written} are decompressed")]
    Offset {
        /// Where the match is coded.
        at: usize,
        /// How far back it reaches.
        offset: usize,
        /// Bytes decompressed so far.
        written: usize,
    },
    /// The stream ends before the value is whole.
    #[error("compressed data gives {got} bytes, but the raw size is {expected}")]
    Short {
        /// The raw size in bytes, from a header.
        expected: usize,
        /// Bytes that the stream gives.
        got: usize,
    },
    /// The value is whole before the stream ends.
    #[error("compressed data has {len} more bytes at byte {at}, where the value is complete")]
    Trailing {
        /// Where the value was complete.
        at: usize,
        /// Bytes of the stream behind it.
        len: usize,
    },
    /// The raw size is more than any stream of this length can give.
    #[error("raw size {raw_size} is more than {len} compressed bytes can hold (at most {limit})")]
    RawSize {
        /// The raw size, as read from a header.
        raw_size: usize,
        /// The length of the stream.
        len: usize,
        /// The most that a stream of this length gives.
        limit: usize,
    },
}
