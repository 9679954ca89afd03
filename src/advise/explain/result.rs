//! What `inspect --explain` reports: the one type that every output format is made from.
//!
//! The JSON form is a part of that of `inspect`, documented in `man/json/inspect.schema.json`. Sizes are bytes, buffers are pages visited as `EXPLAIN (ANALYZE, BUFFERS)` counts them.

use serde::Serialize;

use crate::server::catalog::RelationName;
use toast_format::heap::problem::Problems;
use toast_format::model::Interval;

/// What reads and updates of a table cost. Buffers are pages visited, as EXPLAIN (ANALYZE, BUFFERS) counts them.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Explanation {
    #[serde(skip)]
    pub table: RelationName,
    /// What was examined.
    pub sample: Looked,
    /// Blocks of the heap: the buffers of a scan that needs no out-of-line value.
    pub heap_blocks: u32,
    /// Live rows.
    pub rows: Interval,
    /// Pages of the TOAST relation's index from the root to a leaf, both included; `null` without a TOAST relation.
    pub index_levels: Option<u32>,
    /// Longer rows are toasted.
    pub threshold: u32,
    /// The length to which the toaster shortens rows, if it can.
    pub target: u64,
    /// Rows by their width before anything of them is compressed or moved out.
    pub widths: Vec<WidthRange>,
    /// What an UPDATE of one row writes if it changes no out-of-line value.
    pub update_other: Written,
    /// The columns that can be toasted and hold something.
    pub columns: Vec<ColumnExplanation>,
    /// The command that predicts these costs with other settings.
    pub command: String,
    #[serde(skip)]
    pub problems: Problems,
}

#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Looked {
    /// Blocks examined.
    pub blocks: u32,
    /// Blocks of the heap.
    pub total_blocks: u32,
    /// Live rows of these blocks.
    pub rows: u64,
    /// Out-of-line values whose chunks were looked up.
    pub values_looked_up: u64,
    /// The seed of the choice.
    pub seed: u64,
    /// Whether everything was examined, so that only costs are estimated.
    pub complete: bool,
}

#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct WidthRange {
    /// The range's first width.
    pub from: u32,
    /// Its last; `null` for no end.
    pub to: Option<u32>,
    /// Whether rows of this width are toasted.
    pub toasted: bool,
    /// Fraction of the rows that have this width.
    pub share: Interval,
}

/// What one row's UPDATE writes.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Written {
    /// Bytes of the heap, line pointer included.
    pub heap_bytes: Interval,
    /// Bytes of the TOAST relation, line pointers included.
    pub toast_bytes: Interval,
    /// Bytes of WAL, without full-page images and the table's own indexes.
    pub wal_bytes: Interval,
}

/// One column.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct ColumnExplanation {
    pub column: String,
    #[serde(rename = "type")]
    pub type_name: String,
    /// `plain`, `main`, `external`, `extended`.
    #[schemars(extend("enum" = ["plain", "main", "external", "extended"]))]
    pub storage: &'static str,
    /// Values that are not null.
    pub values: Interval,
    /// Of these, values out of line, of pluggable toasters too.
    pub external_values: Interval,
    /// Of all values, those of pluggable toasters. Reading one is counted as reading all of its chunks, one after the
    /// other.
    pub custom_values: Interval,
    /// Of all values, compressed ones.
    pub compressed_values: Interval,
    /// Reading one value out of line, its row at hand: figures of an average one; null without such values.
    pub read: Option<ValueRead>,
    /// Raw bytes that an average compressed value is decompressed to; null without such values.
    pub decompressed_bytes: Option<Interval>,
    /// CPU time that storage adds to the read of an average value, in nanoseconds, with a warm cache.
    pub read_cpu_ns: Interval<f64, Option<f64>>,
    /// Buffers of a scan of the whole table that reads the column.
    pub scan_buffers: Interval,
    /// What an UPDATE of the column's value in one row writes: a whole new value.
    pub update: Written,
    /// What an UPDATE that appends to one value of `bytea_toaster` writes in addition to the appended bytes: the row, and
    /// the last chunk unless it is full; null without such values.
    pub append: Option<Written>,
}

/// Reading one value out of line. Figures are those of an average one.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct ValueRead {
    /// All buffers.
    pub buffers: Interval,
    /// Pages of the TOAST relation's index.
    pub index_buffers: Interval,
    /// Pages of the TOAST relation, where the chunks stand now.
    pub toast_buffers: Interval,
    pub chunks: Interval,
    /// Stored bytes.
    pub bytes: Interval,
}
