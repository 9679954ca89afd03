//! TOAST pointers: what stands in the row for a value out of line. 18 bytes (`varatt_external` in `varatt.h`), or 22
//! where value IDs have 8 bytes (`varatt_external_oid8`, after the patches of May 2026 for PostgreSQL 20).

use super::layout::PageSize;
use super::{ByteOrder, Oid, ValueId, ValueIdType};
use crate::codec::Method;

/// Size of an on-disk TOAST pointer in a tuple, its two-byte header included
/// (`TOAST_POINTER_SIZE`).
pub const TOAST_POINTER_SIZE: usize = 18;

/// Size of a pointer with an ID of 8 bytes (`TOAST_OID8_POINTER_SIZE`).
const TOAST_OID8_POINTER_SIZE: usize = 22;

/// An on-disk TOAST pointer, tag `VARTAG_ONDISK` or `VARTAG_ONDISK_OID8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ToastPointer {
    /// `va_rawsize`: size of the value when neither compressed nor out of line, **with** its
    /// 4-byte header. Signed on disk; negative is corruption.
    pub raw_size_with_header: i32,
    /// `va_extinfo`: stored size in the low 30 bits, method in the high 2.
    pub ext_info: u32,
    /// `va_valueid`: the `chunk_id` of the value's chunks.
    pub value_id: ValueId,
    /// `va_toastrelid`: OID (not relfilenode) of the TOAST relation.
    pub toast_relation: Oid,
    /// The type of its value ID, which decides the pointer's length.
    pub id_type: ValueIdType,
}

impl ToastPointer {
    /// Reads the 16 or 20 bytes behind the header and tag. `None` if `bytes` is shorter.
    pub fn parse(bytes: &[u8], order: ByteOrder, id_type: ValueIdType) -> Option<ToastPointer> {
        let low = u64::from(order.u32(bytes, 8)?);
        let (value_id, relation_at) = match id_type {
            ValueIdType::Oid => (low, 12),
            // the low half comes first on every machine
            ValueIdType::Oid8 => (u64::from(order.u32(bytes, 12)?) << 32 | low, 16),
        };
        Some(ToastPointer {
            raw_size_with_header: order.u32(bytes, 0)? as i32,
            ext_info: order.u32(bytes, 4)?,
            value_id: ValueId(value_id),
            toast_relation: Oid(order.u32(bytes, relation_at)?),
            id_type,
        })
    }

    /// The size of the pointer in a tuple, in bytes, with header and tag.
    pub fn size(&self) -> usize {
        pointer_size(self.id_type)
    }

    /// Bytes of its value in one chunk.
    pub fn max_chunk_size(&self, page: PageSize) -> u32 {
        page.toast_max_chunk_size_of(self.id_type)
    }

    /// The number of chunks of its value.
    pub fn chunks(&self, page: PageSize) -> u32 {
        self.stored_size().div_ceil(self.max_chunk_size(page))
    }

    /// Bytes stored in the TOAST relation (`VARATT_EXTERNAL_GET_EXTSIZE`), for a compressed value
    /// with its 4-byte `va_tcinfo`.
    pub fn stored_size(&self) -> u32 {
        self.ext_info & 0x3FFF_FFFF
    }

    /// Bytes of the value's content, without header; 0 where the pointer is damaged
    /// (see [`ToastPointer::is_sane`]).
    pub fn raw_size(&self) -> u32 {
        self.raw_size_with_header.saturating_sub(4).max(0) as u32
    }

    /// Whether the stored bytes are compressed (`VARATT_EXTERNAL_IS_COMPRESSED`). The method bits
    /// do not show it: they are 0 both for pglz and for uncompressed values.
    pub fn is_compressed(&self) -> bool {
        i64::from(self.stored_size()) < i64::from(self.raw_size_with_header) - 4
    }

    /// The method's id bits, meaningful if the value is compressed.
    pub fn method_id(&self) -> u8 {
        (self.ext_info >> 30) as u8
    }

    /// The method, `None` if the value is not compressed or the id is unknown.
    pub fn method(&self) -> Option<Method> {
        if self.is_compressed() { Method::from_id(self.method_id()) } else { None }
    }

    /// Whether a server can have written these sizes and OIDs.
    pub fn is_sane(&self) -> bool {
        self.raw_size_with_header >= 4
            && self.raw_size_with_header < 0x4000_0000
            && self.stored_size() > 0
            && i64::from(self.stored_size()) <= i64::from(self.raw_size_with_header) - 4
            && self.value_id.0 != 0
            && self.toast_relation.0 != 0
    }
}

/// Bytes in a tuple of a pointer with an ID of this type, with header and tag.
pub(super) fn pointer_size(id_type: ValueIdType) -> usize {
    match id_type {
        ValueIdType::Oid => TOAST_POINTER_SIZE,
        ValueIdType::Oid8 => TOAST_OID8_POINTER_SIZE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(raw: i32, ext: u32) -> ToastPointer {
        ToastPointer {
            raw_size_with_header: raw,
            ext_info: ext,
            value_id: ValueId(1),
            toast_relation: Oid(2),
            id_type: ValueIdType::Oid,
        }
    }

    #[test]
    fn a_value_is_compressed_by_its_sizes_and_not_by_its_method_bits() {
        assert_eq!(pointer(1004, 1000).method(), None);
        assert_eq!(pointer(1004, 999).method(), Some(Method::Pglz));
        assert_eq!(pointer(1004, 1000 | 1 << 30).method(), None);
        assert_eq!(pointer(1004, 999 | 1 << 30).method(), Some(Method::Lz4));
        assert_eq!(pointer(1004, 999 | 3 << 30).method(), None);
    }

    #[test]
    fn damaged_sizes_are_seen_and_do_not_overflow() {
        assert!(pointer(1004, 1000).is_sane());
        assert!(!pointer(-1, 1000).is_sane());
        assert!(!pointer(1004, 1001).is_sane());
        assert_eq!(pointer(i32::MIN, 5).raw_size(), 0);
        assert!(!pointer(i32::MIN, 5).is_compressed());
    }
}
