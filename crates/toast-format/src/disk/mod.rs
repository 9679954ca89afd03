//! On-disk formats of PostgreSQL, decoded without copying and without IO.
//!
//! * [`page`]: page header and line pointers; [`checksum`]: the page checksum.
//! * [`btree`]: pages of btree indexes, and the entries of leaves.
//! * [`mod@tuple`]: heap tuple header and null bitmap; [`walk`]: its attributes one after the other.
//! * [`varlena`]: variable-length values and their headers; [`mod@pointer`]: TOAST pointers;
//!   [`custom`]: pointers of pluggable toasters.
//! * [`numeric`] and [`jsonb`]: the contents of these types; [`jsonb_text`]: `jsonb` as text, [`jsonb_of_text`]:
//!   text as `jsonb`; [`jsonb_parts`], [`json_parts`], [`hstore_parts`]: the size of each key; [`element_parts`]: the
//!   size of each element or attribute; [`element_text`]: arrays and composite values from text; [`value_text`]: the
//!   text of values.
//! * [`desc`]: the columns of a relation, from the catalog; [`types`]: the built-in types,
//!   [`type_kind`]: how types are composed; [`columns`]: columns written by hand or as rows of `pg_attribute`;
//!   [`missing`]: values that no row contains; [`hex`]: one value in hexadecimal.
//!
//! The types that most code uses stand here, too.
//!
//! Everything borrows from the bytes given and takes both byte orders. A value that is not
//! understood is a value with its bytes, not an error that stops the page.

pub mod array;
pub mod btree;
pub mod checksum;
pub mod columns;
pub mod custom;
pub mod desc;
pub mod element_parts;
pub mod element_text;
mod error;
pub mod hex;
pub mod hstore_parts;
pub mod json_parts;
pub mod jsonb;
pub mod jsonb_of_text;
pub mod jsonb_parts;
pub mod jsonb_text;
pub mod layout;
pub mod missing;
pub mod numeric;
pub mod page;
pub mod pointer;
pub mod tuple;
pub mod type_kind;
pub mod types;
pub mod value_text;
pub mod varlena;
pub mod walk;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use custom::{CustomFlavor, CustomPointer};
pub use desc::{Align, Attribute, Length, Storage, TupleDesc};
pub use layout::PageSize;
pub use page::{Page, PageState};
pub use pointer::ToastPointer;
pub use tuple::HeapTuple;
pub use varlena::Varlena;
pub use walk::{Datum, Walk};

/// The byte order of the machine that wrote a page; nothing in a page names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ByteOrder {
    /// Least significant byte first (x86-64, arm64).
    #[default]
    Little,
    /// Most significant byte first (s390x, POWER in its older mode).
    Big,
}

impl ByteOrder {
    /// The `u16` at `at`, `None` past the end of `bytes`.
    pub fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let b = *bytes.get(at..)?.first_chunk::<2>()?;
        Some(match self {
            ByteOrder::Little => u16::from_le_bytes(b),
            ByteOrder::Big => u16::from_be_bytes(b),
        })
    }

    /// The value ID of this type at `at`, `None` past the end of `bytes`.
    pub fn value_id(self, bytes: &[u8], at: usize, id_type: ValueIdType) -> Option<ValueId> {
        match id_type {
            ValueIdType::Oid => self.u32(bytes, at).map(|id| ValueId(id.into())),
            ValueIdType::Oid8 => self.u64(bytes, at).map(ValueId),
        }
    }

    /// The `u64` at `at`, `None` past the end of `bytes`.
    pub(crate) fn u64(self, bytes: &[u8], at: usize) -> Option<u64> {
        let b = *bytes.get(at..)?.first_chunk::<8>()?;
        Some(match self {
            ByteOrder::Little => u64::from_le_bytes(b),
            ByteOrder::Big => u64::from_be_bytes(b),
        })
    }

    /// The bytes of a word in this order.
    pub(crate) fn bytes(self, word: u32) -> [u8; 4] {
        match self {
            ByteOrder::Little => word.to_le_bytes(),
            ByteOrder::Big => word.to_be_bytes(),
        }
    }

    /// The `u32` at `at`, `None` past the end of `bytes`.
    pub fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let b = *bytes.get(at..)?.first_chunk::<4>()?;
        Some(match self {
            ByteOrder::Little => u32::from_le_bytes(b),
            ByteOrder::Big => u32::from_be_bytes(b),
        })
    }
}

/// Number of a block in a relation's fork (`block.h`).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct BlockNumber(pub u32);

impl fmt::Display for BlockNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An object identifier (`Oid`, `postgres_ext.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Oid(pub u32);

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The ID of a value in its TOAST relation, `chunk_id` there: an OID, or 8 bytes (`Oid8`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ValueId(pub u64);

impl fmt::Display for ValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Oid> for ValueId {
    fn from(oid: Oid) -> ValueId {
        ValueId(oid.0.into())
    }
}

/// The type of `chunk_id` in a TOAST relation. It decides how long pointers to its values are, and how long chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ValueIdType {
    /// `oid`, as in all released versions.
    #[default]
    Oid,
    /// `oid8`, in PostgreSQL's development branch for 20 (reloption `toast_value_type`).
    Oid8,
}

impl ValueIdType {
    /// Its size in bytes.
    pub const fn size(self) -> usize {
        match self {
            ValueIdType::Oid => 4,
            ValueIdType::Oid8 => 8,
        }
    }

    /// Offset of `chunk_data` in a chunk, after `chunk_id` and `chunk_seq`.
    pub const fn data_offset(self) -> usize {
        self.size() + 4
    }

    /// Its name in `pg_type`.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A 32-bit transaction ID as tuple headers hold it (`transam.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TransactionId(pub u32);

impl TransactionId {
    /// How many transactions later `later` is, negative if it is earlier: IDs wrap around (`TransactionIdPrecedes`,
    /// transam.c).
    pub fn distance_to(self, later: TransactionId) -> i32 {
        later.0.wrapping_sub(self.0) as i32
    }

    /// Whether it is earlier than `other`.
    pub fn precedes(self, other: TransactionId) -> bool {
        self.distance_to(other) > 0
    }
}

/// A tuple's address: block and line pointer number, the latter counted from 1 (`itemptr.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ItemPointer {
    /// The number of its block.
    pub block: BlockNumber,
    /// The line pointer's number, from 1; 0 is never a tuple's.
    pub item: u16,
}

impl fmt::Display for ItemPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({},{})", self.block, self.item)
    }
}

/// `size` rounded up to the next multiple of 8 (`MAXALIGN` on every 64-bit platform).
pub const fn max_align(size: usize) -> usize {
    (size + 7) & !7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_both_orders_and_never_past_the_end() {
        let bytes = [1, 2, 3, 4, 5];
        assert_eq!(ByteOrder::Little.u16(&bytes, 0), Some(0x0201));
        assert_eq!(ByteOrder::Big.u32(&bytes, 1), Some(0x0203_0405));
        assert_eq!(ByteOrder::Little.u32(&bytes, 2), None);
        assert_eq!(ByteOrder::Big.u16(&bytes, usize::MAX), None);
    }
}
