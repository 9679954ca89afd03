//! What is known about a table before rules are applied (pure).

use derive_more::AddAssign;

use super::code::Code;
use super::content::MethodTrial;
use super::finding::{Finding, Unit};
use super::look::{Count, Counted, RowFacts};
use crate::command::TableName;
use crate::server::holders::Holder;
use crate::usage::hot::UsedKeys;
use crate::usage::upkeep::Upkeep;
use crate::usage::workload::{Counters, UseCounts};
use toast_format::codec::Method;
use toast_format::disk::{Attribute, PageSize, Storage};
use toast_format::fill::meter::FileFill;
use toast_format::model::Interval;

/// What the server can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerFacts {
    /// Whether VACUUM truncates files.
    pub(crate) truncates: bool,
    /// Whether this user can compact TOAST relations.
    pub(crate) compacts_toast: bool,
    /// Whether a concurrent rebuild of an index is safe, and misses no rows.
    pub(crate) rebuilds_indexes: bool,
    /// Whether it has lz4.
    pub(crate) lz4: bool,
    /// Whether it has pluggable TOAST, so that nothing makes files smaller.
    pub(crate) has_toasters: bool,
}

/// The IDs that a TOAST relation has for values (OIDs).
pub(crate) const VALUE_IDS: f64 = 4_294_967_296.0;

/// What is known about a TOAST relation without its pages.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ToastFacts {
    pub(crate) bytes: u64,
    /// Bytes of the values in it to which rows refer.
    pub(crate) stored: Interval,
    pub(crate) upkeep: Upkeep,
    /// Those of its bytes that the values of the table's rows do not need, if the sizes of all values are known.
    pub(crate) spare: Option<Interval>,
    /// The IDs that it has for values; `None` if these are not OIDs.
    pub(crate) ids: Option<f64>,
    /// How fast they are used, if that was determined.
    pub(crate) use_of_ids: Option<IdUse>,
}

/// Value IDs per day, on average since the statistics began, or since a time before that.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct IdUse {
    pub(crate) assigned: f64,
    /// Without those that became free.
    pub(crate) net: f64,
}

/// All facts that rules use.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Facts {
    pub(crate) table: TableName,
    /// Fewer bytes are not reported.
    pub(crate) worth: u64,
    pub(crate) page: PageSize,
    /// `toast_tuple_target`, if it is set.
    pub(crate) target: Option<u32>,
    /// Rows of the table.
    pub(crate) rows: Interval,
    /// Values that stand compressed or out of line, where all rows were read.
    pub(crate) toasted: Option<u64>,
    /// Values in the TOAST relation.
    pub(crate) out_of_line: Interval,
    /// Bytes of the table and of its TOAST relation.
    pub(crate) bytes: u64,
    pub(crate) columns: Vec<ColumnFacts>,
    /// What the examined rows have shown, if pages can be read.
    pub(crate) look: Option<RowFacts>,
    pub(crate) heap: Option<FileFill>,
    pub(crate) toast: Option<FileFill>,
    /// The TOAST relation apart from its pages.
    pub(crate) toast_facts: ToastFacts,
    pub(crate) damage: DamageFacts,
    /// Bloated indexes of both.
    pub(crate) bloated: Vec<BloatedIndex>,
    pub(crate) server: ServerFacts,
    /// Who holds back vacuum most, if it matters.
    pub(crate) horizon: Option<Holder>,
    /// What was read and written, if that was determined.
    pub(crate) counters: Option<Counters>,
    /// Indexes of both whose size after a rebuild is known.
    pub(crate) measured_indexes: u64,
    /// Whether the table's settings are known; those of files are not.
    pub(crate) settings_are_known: bool,
}

impl Facts {
    /// What was counted for a column, if rows were examined.
    pub(crate) fn counted(&self, column: &ColumnFacts) -> Option<&Counted> {
        self.look.as_ref()?.columns.get(column.index)
    }

    /// The columns whose values the server stores as a stock server does: rules and advice know what other settings would
    /// do only to these.
    pub(crate) fn stock_columns(&self) -> impl Iterator<Item = &ColumnFacts> {
        self.columns.iter().filter(|column| column.toaster.is_none())
    }

    /// The estimated number of the column's values out of line; 0 if no row was examined.
    pub(crate) fn out_of_line_values(&self, column: &ColumnFacts) -> f64 {
        self.counted(column).map_or(0.0, |counted| counted.of(Count::OutOfLineValues).estimate)
    }

    /// Whether another method, or none, could make entries of indexes on the column too long. `retoast` may then refuse it.
    pub(crate) fn needs_its_compression(&self, column: &ColumnFacts) -> bool {
        self.counted(column).is_some_and(|counted| counted.of(Count::LongEntries).estimate > 0.0)
    }

    /// The command that finds the best settings of a column. No rule says by itself that a setting is better.
    pub(crate) fn advise(&self, column: &ColumnFacts) -> String {
        self.table.advise(Some(&column.name))
    }

    /// A finding about the table.
    pub(crate) fn finding(
        &self,
        code: Code,
        value: Interval,
        unit: Unit,
        what: impl Into<String>,
    ) -> Finding {
        Finding { what: what.into(), ..Finding::new(code, &self.table.shown(), value, unit) }
    }

    /// A finding about a column, with the command that finds its best settings.
    pub(crate) fn finding_of(
        &self,
        column: &ColumnFacts,
        code: Code,
        value: Interval,
        unit: Unit,
        what: impl Into<String>,
    ) -> Finding {
        let column_name = Some(column.name.clone());
        let command = self.advise(column);
        Finding { column: column_name, command, ..self.finding(code, value, unit, what) }
    }

    /// The command that stores a column's values with another `toast_tuple_target`. If files can become smaller, it also
    /// compacts them, because the next finding would otherwise report the free space.
    pub(crate) fn retoast_with_target(&self, column: &ColumnFacts, target: usize) -> String {
        let how = format!("--toaster {} --target {target}", column.storage.name());
        let command = self.table.retoast(&column.name, &how);
        if !self.server.truncates || self.server.has_toasters {
            command
        } else if self.server.compacts_toast {
            format!("{command} --compact")
        } else {
            format!("{command} --compact=heap")
        }
    }
}

/// A column whose storage can be chosen.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ColumnFacts {
    /// Its index from 0, dropped columns counted.
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) storage: Storage,
    /// Whether its type is one of pgvector's.
    pub(crate) is_vector: bool,
    /// Its compression method, if it is set.
    pub(crate) compression: Option<Method>,
    /// The effective method: its own, or the server's default.
    pub(crate) method: Method,
    /// Values compressed with the other method, as far as statements show, and their stored bytes.
    pub(crate) other_method: Option<(Interval, Interval)>,
    /// The contents of values that are stored out of line, uncompressed.
    pub(crate) contents: Contents,
    /// What statements have read and written of it, if they show it.
    pub(crate) statements: Option<UseCounts>,
    /// Which keys of its documents are used, if that is known.
    pub(crate) keys: Option<UsedKeys>,
    /// The toaster that is set for it, if that is not the default one.
    pub(crate) toaster: Option<ToasterFacts>,
}

/// A toaster that is set for a column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToasterFacts {
    pub(crate) name: String,
    /// Values that it would store otherwise, and their stored bytes; `None` if that is not known.
    pub(crate) others: Option<(Interval, Interval)>,
}

impl ColumnFacts {
    /// What the catalog says of a column. `method`: the effective one.
    pub(crate) fn new(index: usize, attribute: &Attribute, method: Method) -> ColumnFacts {
        ColumnFacts {
            index,
            name: attribute.name.clone(),
            storage: attribute.storage,
            is_vector: is_vector(&attribute.type_name),
            compression: attribute.compression,
            method,
            other_method: None,
            contents: Contents::default(),
            statements: None,
            keys: None,
            toaster: None,
        }
    }
}

/// Whether this is a type of pgvector, as in `public.vector(1536)`.
fn is_vector(type_name: &str) -> bool {
    let name = type_name.split('(').next().unwrap_or_default();
    let name = name.rsplit('.').next().unwrap_or_default();
    matches!(name, "vector" | "halfvec" | "sparsevec")
}

/// Fractions of the bytes of such values of a column, unless stated otherwise; `None` if none was examined.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Contents {
    /// The part of the bytes that is in formats that compress already, such as JPEG.
    pub(crate) compressed: Option<Interval>,
    /// Of those up to [`LONGEST`](super::content::LONGEST) that the column's method would compress.
    pub(crate) compressible: Option<Interval>,
    /// What that would save of all those up to that length.
    pub(crate) savings: Option<Interval>,
    /// Of the values that UPDATEs have stored anew, those that did not change.
    pub(crate) unchanged: Option<Interval>,
    /// Parts of the values with a last chunk that is nearly empty, compressed ones too.
    pub(crate) short_ends: ShortEnds,
    /// What both compression methods make of some values, if the column follows the server's default.
    pub(crate) trial: MethodTrial,
}

/// The part that would surely take fewer chunks, the last of them not nearly empty, by method.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ShortEnds {
    pub(crate) pglz: Option<Interval>,
    pub(crate) lz4: Option<Interval>,
}

/// What was seen of damage while figures were counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, AddAssign)]
pub(crate) struct DamageFacts {
    /// Chunks that pointers name and the TOAST relation does not have, at least.
    pub(crate) missing_chunks: u64,
    /// Places on pages that make no sense.
    pub(crate) places: u64,
}

/// An index that is larger than it has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BloatedIndex {
    /// With its schema, quoted.
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// Its size after a rebuild.
    pub(crate) fresh: u64,
    /// WAL that its rebuild writes.
    pub(crate) wal: u64,
    /// Why `reindex` would not rebuild it.
    pub(crate) left: Option<&'static str>,
}

#[cfg(test)]
impl Facts {
    /// Facts of a table in which nothing is found.
    pub(crate) fn nothing_found() -> Facts {
        Facts {
            table: TableName::Known { schema: "public".into(), name: "t".into() },
            worth: crate::findings::code::WORTH,
            page: PageSize::DEFAULT,
            target: None,
            rows: Interval::exact(1e6),
            toasted: None,
            out_of_line: Interval::default(),
            bytes: 1 << 30,
            columns: vec![ColumnFacts {
                index: 0,
                name: "v".into(),
                storage: Storage::Extended,
                is_vector: false,
                compression: None,
                method: Method::Pglz,
                other_method: None,
                contents: Contents::default(),
                statements: None,
                keys: None,
                toaster: None,
            }],
            look: None,
            heap: None,
            toast: None,
            toast_facts: ToastFacts { ids: Some(VALUE_IDS), ..ToastFacts::default() },
            damage: DamageFacts::default(),
            bloated: Vec::new(),
            server: ServerFacts {
                truncates: true,
                compacts_toast: true,
                rebuilds_indexes: true,
                lz4: false,
                has_toasters: false,
            },
            horizon: None,
            counters: None,
            measured_indexes: 0,
            settings_are_known: true,
        }
    }
}
