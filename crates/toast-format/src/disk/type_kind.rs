//! What types are made of (`pg_type`, `pg_enum`, `pg_range`), as far as their values' bytes depend on it.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::Oid;
use super::desc::{Align, Attribute, Length, TupleDesc};
use super::types;

/// What a type is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Made {
    /// Of nothing else.
    Base,
    /// Of its base type.
    Domain(Oid),
    /// Of elements.
    Array(Oid),
    /// Of columns.
    Composite(TupleDesc),
    /// Of labels; their OIDs.
    Enum(HashSet<u32>),
    /// Of two bounds.
    Range(Oid),
    /// Of ranges.
    Multirange(Oid),
}

/// A type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Type {
    /// `typname`.
    pub name: Cow<'static, str>,
    /// `typlen`.
    pub length: Length,
    /// `typalign`.
    pub align: Align,
    /// What it is made of.
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
    /// Adds a type.
    pub fn add(&mut self, oid: Oid, described: Type) {
        self.0.insert(oid.0, described);
    }

    /// A type that was added.
    pub fn added(&self, oid: Oid) -> Option<&Type> {
        self.0.get(&oid.0)
    }

    /// A type; `None` if it is not known.
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
