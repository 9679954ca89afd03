//! The columns of a relation, from the catalog (`pg_attribute`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::VariantArray;

use super::{Oid, ValueIdType};
use crate::codec::Method;

/// `attlen`: how long a type's values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Length {
    /// This many bytes (positive `attlen`).
    Fixed(u16),
    /// A varlena, with its own header (-1).
    Varlena,
    /// -2: a C string, NUL-terminated.
    CString,
}

impl Length {
    /// From `attlen`; `None` for what no type can have.
    pub fn from_attlen(attlen: i64) -> Option<Length> {
        match attlen {
            -1 => Some(Length::Varlena),
            -2 => Some(Length::CString),
            1..=32767 => u16::try_from(attlen).ok().map(Length::Fixed),
            _ => None,
        }
    }

    /// The number in `attlen`.
    pub fn attlen(self) -> i16 {
        match self {
            Length::Fixed(n) => i16::try_from(n).unwrap_or(i16::MAX),
            Length::Varlena => -1,
            Length::CString => -2,
        }
    }
}

/// `attalign`: what a value's offset in the tuple is a multiple of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, VariantArray)]
pub enum Align {
    /// `c`: at any offset.
    Char,
    /// `s`: multiples of 2.
    Short,
    /// `i`: multiples of 4.
    Int,
    /// `d`: multiples of 8.
    Double,
}

impl Align {
    /// The alignment for a letter of `attalign`; `None` for others.
    pub fn from_char(c: char) -> Option<Align> {
        Align::VARIANTS.iter().copied().find(|align| align.to_char() == c)
    }

    /// The letter in `attalign`.
    pub fn to_char(self) -> char {
        match self {
            Align::Char => 'c',
            Align::Short => 's',
            Align::Int => 'i',
            Align::Double => 'd',
        }
    }

    /// The alignment in bytes, 1 to 8.
    pub fn bytes(self) -> usize {
        match self {
            Align::Char => 1,
            Align::Short => 2,
            Align::Int => 4,
            Align::Double => 8,
        }
    }

    /// `offset` rounded up (`att_align_nominal`).
    pub fn align(self, offset: usize) -> usize {
        let a = self.bytes();
        (offset + a - 1) & !(a - 1)
    }
}

/// `attstorage`: what may happen to a column's values.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Storage {
    /// `p`: neither compression nor chunks.
    Plain,
    /// `m`: compress; out of line only as a last resort.
    Main,
    /// `e`: out of line, never compressed.
    External,
    /// `x`: compress and move out of line.
    Extended,
}

impl Storage {
    /// Whether values may be compressed.
    pub fn compresses(self) -> bool {
        matches!(self, Storage::Extended | Storage::Main)
    }

    /// The storage for a letter of `attstorage`; `None` for others.
    pub fn from_char(c: char) -> Option<Storage> {
        Storage::VARIANTS.iter().copied().find(|storage| storage.to_char() == c)
    }

    /// The letter in `attstorage`.
    pub fn to_char(self) -> char {
        match self {
            Storage::Plain => 'p',
            Storage::Main => 'm',
            Storage::External => 'e',
            Storage::Extended => 'x',
        }
    }

    /// As `\d+` prints it and `SET STORAGE` takes it.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The default that rows written before `ADD COLUMN ... DEFAULT` take (`attmissingval`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingValue {
    /// Content bytes without header; `None` if the type's binary form is not known.
    pub raw_size: Option<u32>,
    /// Its size in bytes as `pg_column_size` returns it; `None` if the type's binary form is not known.
    pub stored_size: Option<u32>,
    /// Its text form, in the database's encoding; `None` if that is not known.
    pub text: Option<Vec<u8>>,
    /// Its binary form (`typsend`), for types whose bytes do not follow from text; `None` if it was not asked for.
    pub sent: Option<Vec<u8>>,
}

/// One column, dropped ones included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// The column's name (`attname`), not quoted.
    pub name: String,
    /// The type's name as the user knows it (`format_type`), empty for a dropped column.
    pub type_name: String,
    /// `atttypid`, 0 if not known or dropped.
    pub type_oid: Oid,
    /// The type's length (`attlen`).
    pub length: Length,
    /// The type's alignment (`attalign`).
    pub align: Align,
    /// The column's storage (`attstorage`).
    pub storage: Storage,
    /// `attcompression`, `None` for the server's default.
    pub compression: Option<Method>,
    /// Whether the column is dropped (`attisdropped`); its old values stay in rows.
    pub dropped: bool,
    /// Whether the column is a virtual generated column (from PostgreSQL 18), which is NULL in every row.
    pub is_virtual: bool,
    /// Whether the type is known to accept no storage but PLAIN (`typstorage`), as an extension's may.
    pub only_plain: bool,
    /// `attmissingval`, if `atthasmissing` is set.
    pub missing: Option<MissingValue>,
}

impl Attribute {
    /// Whether rows store the column's values, as far as they are its own.
    pub fn is_stored(&self) -> bool {
        !self.dropped && !self.is_virtual
    }
}

/// A relation's columns in `attnum` order, dropped ones included.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TupleDesc {
    /// The columns; index 0 is `attnum` 1.
    pub attributes: Vec<Attribute>,
    /// The type of the IDs of its values out of line, or of its chunks.
    pub id_type: ValueIdType,
}

impl TupleDesc {
    /// The columns of a TOAST relation (`toasting.c`). `oid8` has no fixed OID yet: it is written as 0.
    pub fn toast_relation(id_type: ValueIdType) -> TupleDesc {
        let (id_oid, id_align) = match id_type {
            ValueIdType::Oid => (26, Align::Int),
            ValueIdType::Oid8 => (0, Align::Double),
        };
        let id_length = Length::Fixed(id_type.size() as u16);
        let mut id = plain_column("chunk_id", id_type.name(), id_oid, id_length);
        id.align = id_align;
        let seq = plain_column("chunk_seq", "integer", 23, Length::Fixed(4));
        let data = plain_column("chunk_data", "bytea", 17, Length::Varlena);
        TupleDesc { attributes: vec![id, seq, data], id_type }
    }
}

fn plain_column(name: &str, type_name: &str, type_oid: u32, length: Length) -> Attribute {
    Attribute {
        name: name.into(),
        type_name: type_name.into(),
        type_oid: Oid(type_oid),
        length,
        align: Align::Int,
        storage: Storage::Plain,
        compression: None,
        dropped: false,
        is_virtual: false,
        only_plain: false,
        missing: None,
    }
}
