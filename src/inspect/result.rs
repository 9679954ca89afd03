//! What `inspect` reports: the one type that every output format is made from.
//!
//! The JSON form is that of [`super::document`]; its shape is documented in
//! `man/json/inspect.schema.json`. Sizes are bytes. A figure that is not known is null. Estimates are there only
//! where a sample was read; the plain figures are then those of the blocks read.

use serde::Serialize;

use crate::findings::finding::Findings;
use crate::server::citus::ShardLine;
use toast_format::model::interval::Interval;

/// Name and version of the JSON shape.
pub const SCHEMA: &str = "toastctl.inspect/1";

/// How a relation was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Pages of a live server.
    #[default]
    Pageinspect,
    /// SQL functions of a live server.
    Functions,
    /// The relation's file, without a server.
    RelationFile,
    /// Saved output of pageinspect.
    PageinspectOutput,
}

/// Everything about one relation. Estimates are given only if a sample was read (--sample); they describe the whole
/// relation, and the plain figures the blocks read.
#[derive(Debug, Clone, Default, Serialize, schemars::JsonSchema)]
pub struct RelationReport {
    /// `schema.name`, or the file or input.
    #[serde(skip)]
    pub relation: String,
    /// Schema; null for files.
    #[serde(skip)]
    pub schema_name: Option<String>,
    /// Name without schema; null for files.
    #[serde(skip)]
    pub name: Option<String>,
    /// OID; null for files.
    #[serde(skip)]
    pub oid: Option<u32>,
    /// `table`, `materialized view`, `TOAST relation`; null for files.
    #[serde(skip)]
    pub kind: Option<&'static str>,
    /// The access method, if it is not heap.
    #[serde(skip)]
    pub access_method: Option<String>,
    /// What it is a shard of, if it belongs to a table of Citus that was selected.
    #[serde(skip)]
    pub shard: Option<ShardLine>,
    /// How it was read.
    #[serde(skip)]
    pub source: Source,
    /// Storage parameters of the relation (`reloptions`).
    pub options: Vec<String>,
    /// Bytes of a page.
    pub page_size: u64,
    /// The blocks read, if not all were to be read.
    #[serde(skip)]
    pub sample: Option<SampleReport>,
    /// Figures of the main fork.
    pub heap: HeapReport,
    /// Tuples; dead and unknown ones null where pages were not read.
    pub tuples: TuplesReport,
    /// The TOAST relation, if there is one or a file of it was given.
    pub toast: Option<ToastReport>,
    /// Columns, in the order of the table; dropped ones are left out.
    pub columns: Vec<ColumnReport>,
    /// Figures that this source cannot give.
    #[serde(skip)]
    pub not_available: Vec<NotAvailable>,
    /// The first 1000 problems: what could not be read.
    #[serde(skip)]
    pub problems: Vec<ProblemReport>,
    /// How many problems there are in all.
    #[serde(skip)]
    pub problem_count: u64,
    /// Avoidable costs, the worst first. Absent for catalogs and for relations that are not tables.
    #[serde(flatten)]
    pub findings: Option<Findings>,
    /// Columns whose default for rows written before them is not known, where values are reassembled.
    #[serde(skip)]
    pub unknown_defaults: Vec<String>,
}

/// A relation's main fork.
#[derive(Debug, Clone, Default, Serialize, schemars::JsonSchema)]
pub struct HeapReport {
    pub bytes: Option<u64>,
    pub blocks: Option<u64>,
    /// Blocks that were read.
    pub blocks_read: u64,
    /// Blocks read that were never written.
    pub new_blocks: Option<u64>,
    /// Free bytes in the blocks read.
    pub free_bytes: Option<u64>,
    /// Free bytes of all blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_bytes_estimate: Option<Interval<u64>>,
    /// All indexes of the relation.
    pub index_bytes: Option<u64>,
    /// Unused line pointers in the blocks read.
    pub line_pointers_unused: Option<u64>,
    /// Redirecting line pointers in the blocks read.
    pub line_pointers_redirect: Option<u64>,
    /// Dead line pointers in the blocks read.
    pub line_pointers_dead: Option<u64>,
}

/// Tuples of a relation.
#[derive(Debug, Clone, Default, Serialize, schemars::JsonSchema)]
pub struct TuplesReport {
    pub live: u64,
    pub dead: Option<u64>,
    /// Of unknown visibility; their values are counted.
    pub unknown: Option<u64>,
    /// Tuples with the flag `HEAP_HOT_UPDATED`.
    pub hot_updated: Option<u64>,
    /// Tuples with the flag `HEAP_ONLY_TUPLE`.
    pub heap_only: Option<u64>,
    /// Visible ones of the relation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_estimate: Option<Interval<u64>>,
    /// Those of the relation that are not visible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_estimate: Option<Interval<u64>>,
    /// Those of the relation of unknown visibility.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_estimate: Option<Interval<u64>>,
}

/// A relation's TOAST relation.
#[derive(Debug, Clone, Default, Serialize, schemars::JsonSchema)]
pub struct ToastReport {
    /// `schema.name`, or the file.
    pub relation: String,
    pub oid: Option<u32>,
    /// Size of its main fork.
    pub bytes: Option<u64>,
    /// Size of its index.
    pub index_bytes: Option<u64>,
    /// Its live rows, each a chunk.
    pub rows: Option<u64>,
    /// Whether `rows` was counted; otherwise it is the planner's estimate.
    pub rows_counted: bool,
    /// Its dead rows, where it was read.
    pub dead_rows: Option<u64>,
    /// Its free bytes, where it was read.
    pub free_bytes: Option<u64>,
    /// Values that the columns hold there.
    pub values: u64,
    /// Chunks that hold them.
    pub chunks: u64,
    /// Further values that may be there or in their rows: without pages this is not known. Left out if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unplaced_values: Option<u64>,
    /// Values that the columns of all rows hold there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values_estimate: Option<Interval<u64>>,
    /// Chunks that hold them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunks_estimate: Option<Interval<u64>>,
    /// Values there to which no row refers; null if that is not known.
    pub orphans: Option<OrphanReport>,
}

/// Values in a TOAST relation that no row refers to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct OrphanReport {
    pub values: u64,
    pub chunks: u64,
    /// Bytes of chunk data.
    pub bytes: u64,
}

#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct ColumnReport {
    pub column: String,
    /// Type, as `\d` prints it.
    #[serde(rename = "type")]
    pub type_name: String,
    /// `plain`, `main`, `external`, `extended`.
    #[schemars(extend("enum" = ["plain", "main", "external", "extended"]))]
    pub storage: &'static str,
    /// The column's compression method; null for the server's default.
    #[schemars(extend("enum" = ["pglz", "lz4", null]))]
    pub compression: Option<&'static str>,
    /// Values that are not NULL, missing ones included.
    pub values: u64,
    pub nulls: u64,
    /// Values that rows older than the column take from the catalog.
    pub missing: u64,
    /// Content without headers, as `octet_length` counts; null if not known of every value.
    pub raw_bytes: Option<u64>,
    /// As `pg_column_size` counts: with header for values in the row, without pointer for values out of line; null if
    /// not known of every value.
    pub stored_bytes: Option<u64>,
    /// TOAST pointers in the rows.
    pub pointer_bytes: u64,
    /// Stored bytes and pointers that are in the relation, so without what is in the catalog.
    #[serde(skip)]
    pub own_bytes: u64,
    /// Values for which SQL functions do not show whether they are out of line; `None` if they were not used.
    #[serde(skip)]
    pub unplaced_values: Option<u64>,
    /// `raw_bytes / stored_bytes`: over 1 where compression saves.
    pub ratio: Option<f64>,
    /// Chunks in the TOAST relation.
    pub chunks: u64,
    /// The part of the relation's bytes (heap, TOAST, TOAST index) that is this column's.
    pub share: Option<f64>,
    /// By form and method, in the order of forms.
    pub forms: Vec<FormReport>,
    /// Values stored by pluggable toasters, by toaster and kind of pointer.
    pub toasters: Vec<ToasterReport>,
    /// Distribution of raw sizes.
    pub raw_size: SizeReport,
    /// Distribution of stored sizes.
    pub stored_size: SizeReport,
    /// Figures of the relation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimates: Option<ColumnEstimates>,
    /// How many values of the column comply with the requested policy; absent without one, and for columns that
    /// cannot be toasted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyReport>,
}

/// How many values of a column comply with a policy.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct PolicyReport {
    pub policy: String,
    /// The compression method: `pglz`, `lz4` or `either`.
    #[schemars(extend("enum" = ["pglz", "lz4", "either"]))]
    pub method: String,
    /// Values that are not NULL.
    pub values: u64,
    /// Stored bytes of these values.
    pub bytes: u64,
    /// Values that comply with the policy.
    pub complying_values: u64,
    /// Stored bytes of complying values.
    pub complying_bytes: u64,
}

/// Values that one pluggable toaster stored with one kind of pointer.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct ToasterReport {
    /// Its name; null if it is not known.
    pub toaster: Option<String>,
    /// Its OID, as the pointers have it.
    pub toaster_oid: u32,
    /// The kind of pointer.
    pub pointer_kind: &'static str,
    pub values: u64,
    /// How many of them have chunks, or may have some.
    pub out_of_line: u64,
    /// Content without headers; null if not known of every value.
    pub raw_bytes: Option<u64>,
    /// What the rows hold of them.
    pub inline_bytes: u64,
    /// In chunks; null if not known of every value.
    pub chunk_bytes: Option<u64>,
    /// Chunks, as far as the pointers show.
    pub chunks: u64,
    /// What it costs to read one key or element.
    pub cost_to_read: &'static str,
    /// What it costs to append.
    pub cost_to_append: &'static str,
}

/// Values of one form and method.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct FormReport {
    /// `null`, `missing`, `short`, `plain`, `compressed`, `external`, `external_compressed`,
    /// `custom` or `unknown`.
    #[schemars(extend("enum" = ["null", "missing", "short", "plain", "compressed", "external", "external_compressed", "custom", "unknown"]))]
    pub form: &'static str,
    /// `pglz`, `lz4` or null.
    #[schemars(extend("enum" = ["pglz", "lz4", null]))]
    pub method: Option<&'static str>,
    pub values: u64,
    /// Content without headers; null if not known of every value.
    pub raw_bytes: Option<u64>,
    /// As `pg_column_size` counts; null if not known of every value.
    pub stored_bytes: Option<u64>,
    /// TOAST pointers in the rows.
    pub pointer_bytes: u64,
    /// Chunks in the TOAST relation.
    pub chunks: u64,
    /// `raw_bytes / stored_bytes`: over 1 where compression saves.
    pub ratio: Option<f64>,
    /// Figures of the relation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimates: Option<FormEstimates>,
}

/// How the sizes of a column's values are distributed.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct SizeReport {
    pub min: Option<u64>,
    /// Half of the values are at most this long.
    pub median: Option<u64>,
    /// 95 % of the values are at most this long.
    pub p95: Option<u64>,
    /// 99 % of the values are at most this long.
    pub p99: Option<u64>,
    pub max: Option<u64>,
    /// How many values are in each range, those of the blocks read; ranges without values are left out.
    pub ranges: Vec<SizeRange>,
    /// Percentiles of the relation; the smallest and the largest value cannot be estimated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimates: Option<SizeEstimates>,
}

/// Values with sizes from one power of two to below the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct SizeRange {
    /// The smallest size of the range, in bytes.
    pub from: u64,
    /// The largest size of the range.
    pub to: u64,
    pub values: u64,
}

/// A figure that is not available, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct NotAvailable {
    pub figure: String,
    /// Why it is not available.
    pub reason: String,
}

impl NotAvailable {
    /// Orphans are not known, for this reason.
    pub(super) fn orphans(reason: &str) -> NotAvailable {
        NotAvailable {
            figure: "values in the TOAST relation that no row refers to".into(),
            reason: reason.into(),
        }
    }
}

/// Something that could not be read.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct ProblemReport {
    /// Relation, file or input.
    pub source: String,
    /// Line of a text.
    pub line: Option<usize>,
    pub block: Option<u32>,
    /// Number of the line pointer.
    pub item: Option<u16>,
    pub column: Option<String>,
    /// Offset in the tuple, or in the page where no item is named.
    pub byte: Option<usize>,
    /// The problem, without its place.
    pub message: String,
    /// All of it in one line.
    pub text: String,
}

/// Which blocks were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct SampleReport {
    /// Blocks of the relation.
    pub blocks: u64,
    /// Blocks that were read of them.
    pub blocks_read: u64,
    /// The seed of the choice, to which the relation's OID is added without --sample.
    pub seed: u64,
}

/// A quantile of single values.
pub type Quantile = Interval<u64, Option<u64>>;

/// Estimates of a distribution of sizes. The smallest and the largest value cannot be estimated; an end of an interval is null
/// if the sample is too small to determine it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct SizeEstimates {
    pub median: Quantile,
    pub p95: Quantile,
    pub p99: Quantile,
}

/// Estimates for the values of one form and method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct FormEstimates {
    pub values: Option<Interval<u64>>,
    /// Content without headers; null if not known of every value.
    pub raw_bytes: Option<Interval<u64>>,
    /// As `pg_column_size` counts; null if not known of every value.
    pub stored_bytes: Option<Interval<u64>>,
    /// TOAST pointers in the rows.
    pub pointer_bytes: Option<Interval<u64>>,
    /// Chunks in the TOAST relation.
    pub chunks: Option<Interval<u64>>,
}

/// Estimates for one column.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ColumnEstimates {
    /// Values that are not NULL.
    pub values: Option<Interval<u64>>,
    pub nulls: Option<Interval<u64>>,
    /// Values that rows older than the column take from the catalog.
    pub missing: Option<Interval<u64>>,
    /// Content without headers; null if not known of every value.
    pub raw_bytes: Option<Interval<u64>>,
    /// As `pg_column_size` counts; null if not known of every value.
    pub stored_bytes: Option<Interval<u64>>,
    /// TOAST pointers in the rows.
    pub pointer_bytes: Option<Interval<u64>>,
    /// `raw_bytes / stored_bytes`: over 1 where compression saves.
    pub ratio: Option<Interval>,
    /// Chunks in the TOAST relation.
    pub chunks: Option<Interval<u64>>,
    /// Stored bytes and pointers that are in the relation.
    #[serde(skip)]
    pub own_bytes: Option<Interval<u64>>,
    /// The part of the relation's bytes that is this column's.
    pub share: Option<Interval>,
}
