//! Indexes as the catalog describes them, and what decides the size of their entries.

use serde::Deserialize;

/// An index as the catalog describes it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct IndexShape {
    /// Schema and name, quoted where necessary.
    pub name: String,
    /// The name of the access method.
    pub method: String,
    /// Whether the index has a predicate.
    pub is_partial: bool,
    /// All columns, including those that are only included.
    pub columns: Vec<IndexColumn>,
}

/// A column of an index.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct IndexColumn {
    /// The number of the table's column, from 1; 0 for an expression.
    pub attnum: i16,
    /// `attlen` of what the index stores.
    pub length: i16,
    /// `attalign` of what the index stores.
    pub align: char,
    /// The operator class and where it comes from: `pg_catalog`, or an extension. `None` if it is neither, and for
    /// included columns.
    pub class: Option<(String, String)>,
}

/// What decides the size of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryContents {
    /// The values themselves, all of them in one tuple.
    Values,
    /// One entry for the value itself, or for each element of an array.
    Keys,
    /// For each column the smallest and the largest value of a range of blocks.
    MinMax,
    /// The smallest and the largest value below a page, of which the root must have room for two.
    Bounds,
    /// No entry that depends on the storage of values, or none that is ever too large.
    Bounded,
    Unknown,
}

impl IndexShape {
    /// The index as if the column at this place were a column of the table, with its index from 0.
    pub fn with_column(&self, at: usize, column: usize) -> IndexShape {
        let mut shape = self.clone();
        if let (Some(own), Ok(number)) = (shape.columns.get_mut(at), i16::try_from(column + 1)) {
            own.attnum = number;
        }
        shape
    }

    /// The first column of the index that follows the settings of the table's column with this index from 0.
    fn follower(&self, column: usize) -> Option<&IndexColumn> {
        self.columns.iter().find(|own| own.table_column() == Some(column))
    }

    /// Whether the settings of the table's column affect the size of entries, as far as is known.
    pub fn depends_on(&self, column: usize) -> bool {
        self.follower(column).is_some() && self.entries() != EntryContents::Bounded
    }

    /// The columns of the table that the index contains.
    pub fn table_columns(&self) -> impl Iterator<Item = usize> {
        self.columns.iter().filter_map(IndexColumn::table_column)
    }

    /// Whether an entry keeps a value as it is stored; operator classes of GIN decompress values.
    pub fn keeps_stored_values(&self) -> bool {
        matches!(self.entries(), EntryContents::Values | EntryContents::MinMax)
    }

    /// Whether entries are made of the elements of this column's arrays.
    pub fn has_elements_of(&self, column: usize) -> bool {
        self.entries() == EntryContents::Keys
            && self.follower(column).is_some_and(|own| own.is_class("array_ops", "pg_catalog"))
    }

    pub(super) fn entries(&self) -> EntryContents {
        match self.method.as_str() {
            "btree" => EntryContents::Values,
            // A hash index has hashes, and SP-GiST decompresses values, and splits long ones (spgdoinsert.c).
            "hash" | "spgist" => EntryContents::Bounded,
            // With several columns, their descriptors are made from types (`initGinState`).
            "gin" if self.columns.len() > 1 => EntryContents::Bounded,
            "gin"
                if self.columns.iter().all(|column| column.is_class("array_ops", "pg_catalog")) =>
            {
                EntryContents::Keys
            }
            // Lexemes have at most 2046 bytes, and longer keys of jsonb are hashed.
            "gin" if self.columns.iter().all(IndexColumn::has_bounded_keys) => {
                EntryContents::Bounded
            }
            "gin" if self.columns.iter().all(|column| column.is_of("btree_gin")) => {
                EntryContents::Keys
            }
            "gist" if self.columns.iter().all(IndexColumn::has_signatures) => {
                EntryContents::Bounded
            }
            "gist" if self.columns.iter().all(|column| column.is_of("btree_gist")) => {
                EntryContents::Bounds
            }
            "brin" if self.columns.iter().all(|column| column.ends_with("minmax_ops")) => {
                EntryContents::MinMax
            }
            "brin" if self.columns.iter().all(|column| column.ends_with("bloom_ops")) => {
                EntryContents::Bounded
            }
            _ => EntryContents::Unknown,
        }
    }
}

impl IndexColumn {
    pub(super) fn table_column(&self) -> Option<usize> {
        usize::try_from(self.attnum).ok()?.checked_sub(1)
    }

    fn is_class(&self, class: &str, origin: &str) -> bool {
        self.class.as_ref().is_some_and(|(name, from)| name == class && from == origin)
    }

    fn is_of(&self, extension: &str) -> bool {
        self.class.as_ref().is_some_and(|(_, from)| from == extension)
    }

    /// Whether the operator class is one of PostgreSQL's own with such a name.
    fn ends_with(&self, end: &str) -> bool {
        self.class.as_ref().is_some_and(|(name, from)| from == "pg_catalog" && name.ends_with(end))
    }

    /// Whether the keys of a GIN index are never too large.
    fn has_bounded_keys(&self) -> bool {
        const CLASSES: [&str; 3] = ["tsvector_ops", "jsonb_ops", "jsonb_path_ops"];
        self.length > 0 || CLASSES.iter().any(|class| self.is_class(class, "pg_catalog"))
    }

    /// Whether a GiST index stores signatures of limited length, or values of fixed length.
    fn has_signatures(&self) -> bool {
        self.length > 0
            || self.is_class("tsvector_ops", "pg_catalog")
            || self.is_of("pg_trgm")
            || self.is_of("hstore")
    }
}
