//! Heap tuple headers (`htup_details.h`).
//!
//! ```text
//!  0 xmin 4, 4 xmax 4, 8 field3 (cmin/cmax) 4
//! 12 ctid 6: block high u16, block low u16, line pointer u16
//! 18 infomask2 2, 20 infomask 2, 22 t_hoff 1
//! 23 null bitmap, if there are nulls: bit set = value present, least significant bit first
//! t_hoff: attributes
//! ```

use super::layout::TUPLE_HEADER_SIZE;
use super::{BlockNumber, ByteOrder, ItemPointer, TransactionId};

/// Bits of `t_infomask` (`htup_details.h`).
pub mod infomask {
    /// There is a null bitmap.
    pub const HASNULL: u16 = 0x0001;
    /// There are values out of line.
    pub const HASEXTERNAL: u16 = 0x0004;
    /// There is an object ID, as before PostgreSQL 12 (`HEAP_HASOID_OLD`).
    pub const HASOID_OLD: u16 = 0x0008;
    /// xmax is a key-share locker.
    pub const XMAX_KEYSHR_LOCK: u16 = 0x0010;
    /// xmax is an exclusive locker.
    pub const XMAX_EXCL_LOCK: u16 = 0x0040;
    /// xmax, if valid, is only a locker.
    pub const XMAX_LOCK_ONLY: u16 = 0x0080;
    /// xmin committed, by a hint bit.
    pub const XMIN_COMMITTED: u16 = 0x0100;
    /// xmin invalid or aborted; with `XMIN_COMMITTED`: frozen.
    pub const XMIN_INVALID: u16 = 0x0200;
    /// xmax committed, by a hint bit.
    pub const XMAX_COMMITTED: u16 = 0x0400;
    /// xmax invalid or aborted.
    pub const XMAX_INVALID: u16 = 0x0800;
    /// xmax is a MultiXactId.
    pub const XMAX_IS_MULTI: u16 = 0x1000;
    /// The tuple is the new version of an updated row.
    pub const UPDATED: u16 = 0x2000;
    /// Moved by VACUUM FULL before PostgreSQL 9.0 (`HEAP_MOVED`).
    pub const MOVED: u16 = 0xC000;
    /// All lock bits (`HEAP_LOCK_MASK`).
    pub const LOCK_MASK: u16 = XMAX_EXCL_LOCK | XMAX_KEYSHR_LOCK;
}

/// Bits of `t_infomask2` (`htup_details.h`).
pub mod infomask2 {
    /// The number of attributes.
    pub const NATTS_MASK: u16 = 0x07FF;
    /// Updated, the new version on the same page without index entries of its own.
    pub const HOT_UPDATED: u16 = 0x4000;
    /// A version that no index points to.
    pub const ONLY_TUPLE: u16 = 0x8000;
}

/// Offset of `t_hoff` in a tuple.
pub const HOFF_AT: usize = 22;

/// A tuple's header with the bytes behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapTuple<'a> {
    /// `t_xmin`: the inserting transaction.
    pub xmin: TransactionId,
    /// `t_xmax`: the deleting, updating or locking transaction, or a MultiXactId.
    pub xmax: TransactionId,
    /// `t_ctid`: the next version, or the tuple itself.
    pub ctid: ItemPointer,
    /// `t_infomask`: see [`infomask`](mod@infomask).
    pub infomask: u16,
    /// `t_infomask2`: see [`infomask2`](mod@infomask2).
    pub infomask2: u16,
    /// The null bitmap, if there is one.
    pub null_bitmap: Option<&'a [u8]>,
    /// The attributes, from `t_hoff` on.
    pub data: &'a [u8],
    /// Where `data` starts in the tuple; 0 where only the data was given.
    pub data_offset: usize,
    /// The byte order of the page.
    pub order: ByteOrder,
}

/// Why bytes are not a heap tuple.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TupleError {
    /// Shorter than a header.
    #[error("tuple of {0} bytes is shorter than its header of {TUPLE_HEADER_SIZE}")]
    HeaderCut(usize),
    /// `t_hoff` is inside the header or its null bitmap, behind the end, or unaligned.
    #[error("invalid t_hoff {got} at byte 22: expected a multiple of 8 from {min} to {max}")]
    HeaderOffset {
        /// `t_hoff` as read.
        got: u8,
        /// The least that header and null bitmap need.
        min: usize,
        /// The tuple's length in bytes.
        max: usize,
    },
}

impl<'a> HeapTuple<'a> {
    /// A tuple of three columns with these data, none of them null.
    #[cfg(test)]
    pub(crate) fn of_data(data: &'a [u8]) -> HeapTuple<'a> {
        HeapTuple {
            xmin: TransactionId(3),
            xmax: TransactionId(0),
            ctid: ItemPointer::default(),
            infomask: 0,
            infomask2: 3,
            null_bitmap: None,
            data,
            data_offset: 24,
            order: ByteOrder::Little,
        }
    }

    /// Reads the header of the tuple that `bytes` holds whole.
    pub fn parse(bytes: &'a [u8], order: ByteOrder) -> Result<HeapTuple<'a>, TupleError> {
        let tuple = HeapTuple::parse_header(bytes, order)?;
        let &hoff = bytes.get(HOFF_AT).ok_or(TupleError::HeaderCut(bytes.len()))?;
        let min = tuple.fitting_offset();
        let bad = TupleError::HeaderOffset { got: hoff, min, max: bytes.len() };
        let data_offset = usize::from(hoff);
        let has_room = data_offset >= TUPLE_HEADER_SIZE + tuple.bitmap_bytes();
        if !has_room || data_offset % 8 != 0 {
            return Err(bad);
        }
        tuple.with_data(bytes, data_offset).ok_or(bad)
    }

    /// Like [`HeapTuple::parse`], without checking `t_hoff` and without the attributes.
    pub fn parse_header(bytes: &'a [u8], order: ByteOrder) -> Result<HeapTuple<'a>, TupleError> {
        let cut = TupleError::HeaderCut(bytes.len());
        let u16 = |at| order.u16(bytes, at).ok_or(cut);
        let u32 = |at| order.u32(bytes, at).ok_or(cut);
        if bytes.len() < TUPLE_HEADER_SIZE {
            return Err(cut);
        }
        let block = u32::from(u16(12)?) << 16 | u32::from(u16(14)?);
        Ok(HeapTuple {
            xmin: TransactionId(u32(0)?),
            xmax: TransactionId(u32(4)?),
            ctid: ItemPointer { block: BlockNumber(block), item: u16(16)? },
            infomask: u16(20)?,
            infomask2: u16(18)?,
            null_bitmap: None,
            data: &[],
            data_offset: 0,
            order,
        })
    }

    /// The tuple whose attributes begin at `data_offset` of its `bytes`; `None` if these end before.
    pub fn with_data(self, bytes: &'a [u8], data_offset: usize) -> Option<HeapTuple<'a>> {
        let end = TUPLE_HEADER_SIZE + self.bitmap_bytes();
        let null_bitmap =
            if end > TUPLE_HEADER_SIZE { bytes.get(TUPLE_HEADER_SIZE..end) } else { None };
        let data = bytes.get(data_offset..)?;
        Some(HeapTuple { null_bitmap, data, data_offset, ..self })
    }

    /// The `t_hoff` that fits the null bitmap.
    pub fn fitting_offset(&self) -> usize {
        super::max_align(TUPLE_HEADER_SIZE + self.bitmap_bytes())
    }

    fn bitmap_bytes(&self) -> usize {
        match self.infomask & infomask::HASNULL {
            0 => 0,
            _ => self.attribute_count().div_ceil(8),
        }
    }

    /// Whether one of these bits of `t_infomask` is set.
    pub fn has(&self, bits: u16) -> bool {
        self.infomask & bits != 0
    }

    /// How many attributes the tuple was written with (`HeapTupleHeaderGetNatts`).
    pub fn attribute_count(&self) -> usize {
        usize::from(self.infomask2 & infomask2::NATTS_MASK)
    }

    /// Whether attribute `index` (from 0) is NULL by the bitmap (`att_isnull`).
    pub fn is_null(&self, index: usize) -> bool {
        match self.null_bitmap {
            Some(bits) => bits.get(index / 8).is_none_or(|byte| byte & (1 << (index % 8)) == 0),
            None => false,
        }
    }

    /// xmin is frozen: visible to everyone (`HeapTupleHeaderXminFrozen`).
    pub fn xmin_frozen(&self) -> bool {
        let both = infomask::XMIN_COMMITTED | infomask::XMIN_INVALID;
        self.infomask & both == both
    }

    /// xmax, if it is a transaction at all, locked the row without changing it
    /// (`HEAP_XMAX_IS_LOCKED_ONLY`).
    pub fn xmax_locked_only(&self) -> bool {
        self.infomask & infomask::XMAX_LOCK_ONLY != 0
            || self.infomask & (infomask::XMAX_IS_MULTI | infomask::LOCK_MASK)
                == infomask::XMAX_EXCL_LOCK
    }

    /// Updated in place of a heap-only chain (`HeapTupleHeaderIsHotUpdated`).
    pub fn hot_updated(&self) -> bool {
        self.infomask2 & infomask2::HOT_UPDATED != 0
    }

    /// No index points to this version (`HeapTupleHeaderIsHeapOnly`).
    pub fn heap_only(&self) -> bool {
        self.infomask2 & infomask2::ONLY_TUPLE != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(natts: u16, infomask: u16, hoff: u8, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        bytes[12..18].copy_from_slice(&[1, 0, 2, 0, 3, 0]);
        bytes[18..20].copy_from_slice(&natts.to_le_bytes());
        bytes[20..22].copy_from_slice(&infomask.to_le_bytes());
        bytes[22] = hoff;
        bytes
    }

    #[test]
    fn header_fields_and_null_bits() {
        let mut bytes = tuple(10, infomask::HASNULL, 32, 40);
        bytes[23] = 0b0000_0101;
        bytes[24] = 0b0000_0010;
        let tuple = HeapTuple::parse(&bytes, ByteOrder::Little).unwrap();
        assert_eq!(tuple.ctid.to_string(), "(65538,3)");
        assert_eq!((tuple.attribute_count(), tuple.data.len()), (10, 8));
        let present: Vec<usize> = (0..12).filter(|&i| !tuple.is_null(i)).collect();
        assert_eq!(present, [0, 2, 9]);
    }

    #[test]
    fn each_damage_has_its_error() {
        let parse = |bytes: &[u8]| HeapTuple::parse(bytes, ByteOrder::Little).unwrap_err();
        assert_eq!(parse(&[0; 22]), TupleError::HeaderCut(22));
        let hoff = |got, min, max| TupleError::HeaderOffset { got, min, max };
        assert_eq!(parse(&tuple(1, 0, 16, 40)), hoff(16, 24, 40));
        assert_eq!(parse(&tuple(1, 0, 25, 40)), hoff(25, 24, 40));
        assert_eq!(parse(&tuple(1, 0, 48, 40)), hoff(48, 24, 40));
        assert_eq!(parse(&tuple(9, infomask::HASNULL, 24, 40)), hoff(24, 32, 40));
    }
}
