//! What types are made of (`pg_type`, `pg_enum`, `pg_range`), as far as their values' bytes depend on it.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::Oid;
use super::desc::{Align, Attribute, Length, TupleDesc};
use super::types;

/// How a type is composed of others (`typtype`, `pg_type`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Made {
    /// A type that contains no others.
    Base,
    /// A domain over this base type.
    Domain(Oid),
    /// An array of elements of this type.
    Array(Oid),
    /// A composite type with these columns.
    Composite(TupleDesc),
    /// An enum: its labels by OID (`pg_enum`).
    Enum(HashSet<u32>),
    /// A range with bounds of this type.
    Range(Oid),
    /// A multirange of ranges of this type.
    Multirange(Oid),
}

/// A type as in `pg_type`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Type {
    /// The type's name (`typname`).
    pub name: Cow<'static, str>,
    /// Bytes of its values (`typlen`).
    pub length: Length,
    /// Alignment of its values (`typalign`).
    pub align: Align,
    /// How it is composed of other types.
    pub made: Made,
}

/// The types that are known by their OIDs: those that come with PostgreSQL, and those that were added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Types(HashMap<u32, Type>);

/// Ranges that come with PostgreSQL: their own OID, their subtype, their multirange.
const RANGES: [(u32, u32, u32); 6] = [
    (3904, 23, 4451),
    (3906, 1700, 4532),
    (3908, 1114, 4533),
    (3910, 1184, 4534),
    (3912, 1082, 4535),
    (3926, 20, 4536),
];

impl Types {
    /// Adds the type with this OID.
    pub fn add(&mut self, oid: Oid, described: Type) {
        self.0.insert(oid.0, described);
    }

    /// The type with this OID, if it was added.
    pub fn added(&self, oid: Oid) -> Option<&Type> {
        self.0.get(&oid.0)
    }

    /// The type with this OID; `None` if it is not known.
    pub fn get(&self, oid: Oid) -> Option<Cow<'_, Type>> {
        if let Some(described) = self.added(oid) {
            return Some(Cow::Borrowed(described));
        }
        let layout = types::by_oid(oid)?;
        let made = RANGES
            .iter()
            .find_map(|&(range, subtype, multirange)| match oid.0 {
                oid if oid == range => Some(Made::Range(Oid(subtype))),
                oid if oid == multirange => Some(Made::Multirange(Oid(range))),
                _ => None,
            })
            .unwrap_or(Made::Base);
        let name = layout.name.into();
        let length = layout.length;
        let align = layout.align;
        Some(Cow::Owned(Type { name, length, align, made }))
    }

    /// A column's type, by its OID or, as in files, by its name.
    pub fn of_column(&self, column: &Attribute) -> Option<Cow<'_, Type>> {
        if let Some(described) = self.get(column.type_oid) {
            return Some(described);
        }
        let made = match column.type_name.strip_suffix("[]") {
            Some(element) => Made::Array(types::by_name(element).map_or(Oid(0), |of| of.oid)),
            None => Made::Base,
        };
        let length = column.length;
        let align = column.align;
        Some(Cow::Owned(Type { name: column.type_name.clone().into(), length, align, made }))
    }
}
