//! Where a value's chunks are.

use crate::disk::Oid;

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
