//! What is known of a table before rules are asked (pure).

use super::finding::LookedAt;
use super::look::{Counted, RowFacts};
use crate::codec::Method;
use crate::disk::desc::Storage;
use crate::disk::layout::PageSize;
use crate::fill::meter::FileFill;
use crate::judge::command::TableName;
use crate::model::interval::Interval;
use crate::usage::hot::UsedKeys;
use crate::usage::workload::{Counters, StatementCounts};

/// What the server can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerFacts {
    /// Whether VACUUM truncates files.
    pub(crate) truncates: bool,
    /// Whether it has lz4.
    pub(crate) lz4: bool,
    /// Whether it has pluggable TOAST, where nothing makes files smaller.
    pub(crate) has_toasters: bool,
}

/// All that rules go by.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Facts {
    pub(crate) table: TableName,
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
    /// What a look at rows has shown, where pages can be read.
    pub(crate) look: Option<RowFacts>,
    pub(crate) heap: Option<FileFill>,
    pub(crate) toast: Option<FileFill>,
    /// Indexes of both that are much larger than fresh ones.
    pub(crate) bloated: Vec<BloatedIndex>,
    pub(crate) server: ServerFacts,
    /// What was read and written, if that was asked.
    pub(crate) counters: Option<Counters>,
    pub(crate) looked_at: LookedAt,
}

impl Facts {
    /// What was counted of a column, where rows were looked at.
    pub(crate) fn counted(&self, column: &ColumnFacts) -> Option<&Counted> {
        self.look.as_ref()?.columns.get(column.index)
    }

    /// The command that stores a column's values as the options `how` say. Where files can become smaller it also
    /// compacts them, since it would otherwise leave what the next finding reports as free space.
    pub(crate) fn retoast(&self, column: &ColumnFacts, how: &str) -> String {
        let command = self.table.retoast(&column.name, how);
        match self.server.truncates && !self.server.has_toasters {
            true => format!("{command} --compact"),
            false => command,
        }
    }

    /// The same as the column is set.
    pub(crate) fn retoast_as_set(&self, column: &ColumnFacts) -> String {
        self.retoast(column, &format!("--toaster {}", column.storage.name()))
    }

    /// The same with another `toast_tuple_target`.
    pub(crate) fn retoast_with_target(&self, column: &ColumnFacts, target: usize) -> String {
        self.retoast(column, &format!("--toaster {} --target {target}", column.storage.name()))
    }
}

/// A column whose storage can be chosen.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ColumnFacts {
    /// Its index from 0, dropped columns counted.
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) storage: Storage,
    /// Its compression method, if it is set.
    pub(crate) compression: Option<Method>,
    /// The method that counts: its own, or the server's default.
    pub(crate) method: Method,
    /// Values compressed by the other method, as far as statements tell, and their stored bytes.
    pub(crate) other_method: Option<(Interval, Interval)>,
    /// What is in values that are out of line as they came.
    pub(crate) contents: Contents,
    /// What statements have read and written of it, if they tell.
    pub(crate) statements: Option<StatementCounts>,
    /// Which keys of its documents are used, if that is known.
    pub(crate) keys: Option<UsedKeys>,
}

/// Parts of the bytes of such values of a column, unless said otherwise; `None` where none was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Contents {
    /// Of formats that are compressed by themselves.
    pub(crate) compressed: Option<Interval>,
    /// Of those up to [`LONGEST`](super::content::LONGEST) that the column's method would compress.
    pub(crate) compressible: Option<Interval>,
    /// Parts of the values with a last chunk that is nearly empty, compressed ones too.
    pub(crate) short_ends: ShortEnds,
}

/// The part that would surely take fewer chunks, the last of them not nearly empty, by method.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ShortEnds {
    pub(crate) pglz: Option<Interval>,
    pub(crate) lz4: Option<Interval>,
}

/// An index that is much larger than a fresh one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BloatedIndex {
    /// With its schema, quoted.
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// What a fresh one would take.
    pub(crate) fresh: u64,
    /// WAL that its rebuild writes.
    pub(crate) wal: u64,
}
