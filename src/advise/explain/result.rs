//! What `inspect --explain` reports: the one type that every output format is made from.
//!
//! The JSON form is the serialization of [`Explanation`]; its shape is documented in
//! `man/json/explain.schema.json`. Sizes are bytes, buffers are pages visited as `EXPLAIN (ANALYZE, BUFFERS)` counts them.

use serde::{Serialize, Serializer};

use crate::model::estimate::Estimate;
use crate::model::interval::RatioEstimate;
use crate::server::about::ServerReport;

/// Name and version of the JSON shape.
pub const SCHEMA: &str = "toastctl.explain/1";

/// A figure with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct Figure(
    #[cfg_attr(feature = "internals", schemars(with = "RatioEstimate"))] pub Estimate,
);

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Estimate { estimate, low, high } = self.0;
        let rounded = |value: f64| (value * 1e4).round() / 1e4;
        RatioEstimate { estimate: rounded(estimate), low: rounded(low), high: rounded(high) }
            .serialize(serializer)
    }
}

/// What toastctl inspect --explain --format json prints for one table; for several tables an array of these, with
/// --format jsonl one a line. Sizes are bytes; buffers are pages visited, as EXPLAIN (ANALYZE, BUFFERS) counts them.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct Explanation {
    #[cfg_attr(feature = "internals", schemars(extend("const" = SCHEMA)))]
    pub schema: &'static str,
    pub server: ServerReport,
    pub relation: String,
    pub schema_name: String,
    /// Name without schema.
    pub name: String,
    /// OID of the relation.
    pub oid: u32,
    /// What was looked at.
    pub sample: Looked,
    /// Blocks of the heap: the buffers of a scan that needs no value out of line.
    pub heap_blocks: u32,
    /// Live rows.
    pub rows: Figure,
    /// Pages of the TOAST relation's index from the root to a leaf, both included; `null` without a TOAST relation.
    pub index_levels: Option<u32>,
    /// Longer rows are toasted.
    pub threshold: u32,
    /// The length to which the toaster shortens rows, if it can.
    pub target: u64,
    /// Rows by their width before anything of them is compressed or moved out.
    pub widths: Vec<WidthRange>,
    /// What an UPDATE of one row writes that changes no value out of line.
    pub update_other: Written,
    /// The columns that can be toasted and hold something.
    pub columns: Vec<ColumnExplanation>,
    /// What could not be read.
    pub problems: Vec<String>,
    /// How many problems there are in all.
    pub problem_count: u64,
}

#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct Looked {
    /// Blocks looked at.
    pub blocks: u32,
    /// Blocks of the heap.
    pub total_blocks: u32,
    /// Live rows of the blocks looked at.
    pub rows: u64,
    /// Values out of line whose chunks were looked up.
    pub values_looked_up: u64,
    /// The seed of the choice.
    pub seed: u64,
    /// Whether everything was looked at, so that nothing is estimated but costs.
    pub complete: bool,
}

#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct WidthRange {
    /// The range's first width.
    pub from: u32,
    /// Its last; `null` for no end.
    pub to: Option<u32>,
    /// Whether rows of this width are toasted.
    pub toasted: bool,
    /// Fraction of the rows that have this width.
    pub share: Figure,
}

/// What one row's UPDATE writes.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct Written {
    /// Bytes of the heap, line pointer included.
    pub heap_bytes: Figure,
    /// Bytes of the TOAST relation, line pointers included.
    pub toast_bytes: Figure,
    /// Bytes of WAL, without full-page images and the table's own indexes.
    pub wal_bytes: Figure,
}

/// One column.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct ColumnExplanation {
    pub column: String,
    #[serde(rename = "type")]
    pub type_name: String,
    /// `plain`, `main`, `external`, `extended`.
    #[cfg_attr(feature = "internals", schemars(extend("enum" = ["plain", "main", "external", "extended"])))]
    pub storage: &'static str,
    /// Values that are not null.
    pub values: Figure,
    /// Of these, values out of line, of pluggable toasters too.
    pub external_values: Figure,
    /// Of all values, those of pluggable toasters. Reading one is counted as reading all of its chunks, one after the
    /// other.
    pub custom_values: Figure,
    /// Of all values, compressed ones.
    pub compressed_values: Figure,
    /// Reading one value out of line, its row at hand: figures of an average one; null without such values.
    pub read: Option<ValueRead>,
    /// Raw bytes that an average compressed value is decompressed to; null without such values.
    pub decompressed_bytes: Option<Figure>,
    /// CPU time that storage adds to the read of an average value, in nanoseconds, with a warm cache.
    pub read_cpu_ns: Figure,
    /// Buffers of a scan of the whole table that reads the column.
    pub scan_buffers: Figure,
    /// What an UPDATE of the column's value in one row writes.
    pub update: Written,
}

/// Reading one value out of line. Figures are those of an average one.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct ValueRead {
    /// All buffers.
    pub buffers: Figure,
    /// Pages of the TOAST relation's index.
    pub index_buffers: Figure,
    /// Pages of the TOAST relation, where the chunks stand now.
    pub toast_buffers: Figure,
    pub chunks: Figure,
    /// Stored bytes.
    pub bytes: Figure,
}
