//! What `inspect` reports: the one type that every output format is made from.
//!
//! The JSON form is that of [`super::document`]; its shape is documented in
//! `man/json/inspect.schema.json`. Sizes are bytes. A figure that is not known is null. A figure that a sample can
//! estimate is an [`Amount`], which is exact if every block was read.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::findings::facts::Facts;
use crate::findings::finding::Findings;
use crate::server::catalog::{RelationKind, RelationName};
use crate::server::citus::ShardLine;
use toast_format::codec::Method;
use toast_format::disk::Storage;
use toast_format::heap::problem::{Place, Problem};
use toast_format::model::interval::Amount;
use toast_format::model::{Form, Interval};

/// Name and version of the JSON shape.
pub const SCHEMA: &str = "toastctl.inspect/2";

/// How a relation was read.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
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

/// Which relation was read, and how.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RelationRead {
    #[serde(flatten)]
    pub name: RelationName,
    /// What it is; null for files.
    pub kind: Option<RelationKind>,
    /// The access method, if it is not heap: sizes of files are then known, those of values are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_method: Option<String>,
    /// What it is a shard of, if it belongs to a table of Citus that was selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<ShardLine>,
    pub source: Source,
    /// The blocks read; null if all were.
    pub sample: Option<SampleReport>,
    /// Figures that this source cannot give.
    pub not_available: Vec<NotAvailable>,
    /// The first 1000 problems: what could not be read.
    pub problems: Vec<ProblemReport>,
    /// How many problems there are in all.
    pub problem_count: u64,
}

/// Everything about one relation.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RelationReport {
    #[serde(skip)]
    pub read: RelationRead,
    /// Storage parameters of the relation (`reloptions`).
    pub options: Vec<String>,
    /// Bytes of a page.
    pub page_size: u64,
    /// Figures of the main fork.
    pub heap: HeapFigures,
    /// Tuples; dead and unknown ones null where pages were not read.
    pub tuples: TupleFigures,
    /// The TOAST relation, if there is one or a file of it was given.
    pub toast: Option<ToastFigures>,
    /// Columns, in the order of the table; dropped ones and virtual ones are left out.
    pub columns: Vec<ColumnFigures>,
    /// Dropped columns, whose values rows still have; `None` if only pages would show them.
    #[serde(skip)]
    pub dropped_columns: Option<Vec<ColumnFigures>>,
    /// Avoidable costs, the worst first. Absent for catalogs and for relations that are not tables.
    #[serde(flatten)]
    pub findings: Option<Findings>,
    /// What they follow from, if the relation is one of a server.
    #[serde(skip)]
    pub(crate) facts: Option<Box<Facts>>,
    /// Columns whose default for rows written before them is not known, where values are reassembled.
    #[serde(skip)]
    pub unknown_defaults: Vec<String>,
}

/// A relation's main fork.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct HeapFigures {
    pub bytes: Option<u64>,
    pub blocks: Option<u64>,
    /// Blocks that were read.
    pub blocks_read: u64,
    /// Blocks read that were never written.
    pub new_blocks: Option<u64>,
    /// Free bytes of all blocks.
    pub free_bytes: Option<Amount>,
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
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TupleFigures {
    /// Those that a SELECT returns.
    pub live: Amount,
    /// Whether row security may hide rows from this session, so that `live`, and what columns hold, is that of visible
    /// rows alone.
    pub visible_rows_only: bool,
    /// Those that a SELECT does not return.
    pub dead: Option<Amount>,
    /// Of unknown visibility; their values are counted.
    pub unknown: Option<Amount>,
    /// Tuples in the blocks read with the flag `HEAP_HOT_UPDATED`.
    pub hot_updated: Option<u64>,
    /// Tuples in the blocks read with the flag `HEAP_ONLY_TUPLE`.
    pub heap_only: Option<u64>,
}

/// A relation's TOAST relation.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ToastFigures {
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
    /// Values there to which rows refer, those of dropped columns included.
    pub values: Amount,
    /// Chunks that hold them, as far as the pointers show.
    pub chunks: Amount,
    /// Values in the rows read whose pointers do not show how many chunks they have. Left out if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncounted_values: Option<u64>,
    /// Further values that may be there or in their rows: without pages this is not known. Left out if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unplaced_values: Option<u64>,
    /// Values there to which no row refers; null if that is not known.
    pub orphans: Option<OrphanReport>,
}

/// Values in a TOAST relation that no row refers to.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct OrphanReport {
    pub values: u64,
    pub chunks: u64,
    /// Bytes of chunk data.
    pub bytes: u64,
}

/// What some values take.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct ValueFigures {
    pub values: Amount,
    /// Content without headers, as `octet_length` counts; null if not known of every value.
    pub raw_bytes: Option<Amount>,
    /// As `pg_column_size` counts: with header for values in the row, without pointer for values out of line; null if
    /// not known of every value.
    pub stored_bytes: Option<Amount>,
    /// TOAST pointers in the rows.
    pub pointer_bytes: Amount,
    /// Chunks in the TOAST relation.
    pub chunks: Amount,
}

#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ColumnFigures {
    pub column: String,
    /// Type, as `\d` prints it.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Storage of new values; for files, what `--columns` says of it, or that of the type.
    pub storage: Storage,
    /// The column's compression method; null for the server's default.
    pub compression: Option<Method>,
    /// The toaster of `pg_toaster` that stores new values of the column; absent if that is the default toaster, and for
    /// files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toaster: Option<String>,
    /// Values that are not NULL, missing ones included.
    #[serde(flatten)]
    pub all: ValueFigures,
    pub nulls: Amount,
    /// Values that rows older than the column take from the catalog.
    pub missing: Amount,
    /// Stored bytes and pointers that are in the relation, so without what is in the catalog.
    #[serde(skip)]
    pub own_bytes: Amount,
    /// Values for which SQL functions do not show whether they are out of line; `None` if they were not used.
    #[serde(skip)]
    pub unplaced_values: Option<u64>,
    /// `raw_bytes / stored_bytes`: over 1 where compression saves.
    pub ratio: Option<Interval>,
    /// The part of the relation's bytes (heap, TOAST, TOAST index) that is this column's.
    pub share: Option<Interval>,
    /// By form and method, in the order of forms.
    pub forms: Vec<FormFigures>,
    /// Values in the blocks read that were stored by pluggable toasters, by toaster and kind of pointer.
    pub toasters: Vec<ToasterReport>,
    /// Distribution of raw sizes.
    pub raw_size: SizeFigures,
    /// Distribution of stored sizes.
    pub stored_size: SizeFigures,
    /// How many values of the column comply with the requested policy; absent without one, and for columns that
    /// cannot be toasted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyReport>,
}

/// How many values of a column comply with a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
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

/// Values of one form and method.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FormFigures {
    pub form: Form,
    pub method: Option<Method>,
    #[serde(flatten)]
    pub all: ValueFigures,
    /// `raw_bytes / stored_bytes`: over 1 where compression saves.
    pub ratio: Option<Interval>,
}

/// Values that one pluggable toaster stored with one kind of pointer.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ToasterReport {
    /// Its name; null if it is not known.
    pub toaster: Option<String>,
    /// Its OID, as the pointers have it.
    pub toaster_oid: u32,
    /// The kind of pointer.
    pub pointer_kind: Cow<'static, str>,
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
    /// Values whose pointers do not show how many chunks they have, as of those that are compressed chunk by chunk.
    #[serde(default)]
    pub uncounted: u64,
    /// What it costs to read one key or element.
    pub cost_to_read: Cow<'static, str>,
    /// What it costs to append.
    pub cost_to_append: Cow<'static, str>,
}

/// How the sizes of a column's values are distributed. The smallest and the largest value of a sample are those of the
/// blocks read; they cannot be estimated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SizeFigures {
    pub min: Option<u64>,
    /// Half of the values are at most this long.
    pub median: Option<Quantile>,
    /// 95 % of the values are at most this long.
    pub p95: Option<Quantile>,
    /// 99 % of the values are at most this long.
    pub p99: Option<Quantile>,
    pub max: Option<u64>,
    /// How many values are in each range, those of the blocks read; ranges without values are left out.
    pub ranges: Vec<SizeRange>,
}

/// Values with sizes from one power of two to below the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SizeRange {
    /// The smallest size of the range, in bytes.
    pub from: u64,
    /// The largest size of the range.
    pub to: u64,
    pub values: u64,
}

/// A figure that is not available, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NotAvailable {
    pub figure: String,
    /// Why it is not available.
    pub reason: String,
}

impl NotAvailable {
    pub(super) fn new(figure: impl Into<String>, reason: impl Into<String>) -> NotAvailable {
        NotAvailable { figure: figure.into(), reason: reason.into() }
    }

    /// Orphans are not known, for this reason.
    pub(super) fn orphans(reason: &str) -> NotAvailable {
        NotAvailable::new("values in the TOAST relation that no row refers to", reason)
    }
}

/// Something that could not be read.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ProblemReport {
    #[serde(flatten)]
    pub place: Place,
    /// The problem, without its place.
    pub message: String,
    /// All of it in one line.
    pub text: String,
}

impl From<&Problem> for ProblemReport {
    fn from(problem: &Problem) -> ProblemReport {
        ProblemReport {
            place: problem.place.clone(),
            message: problem.message.clone(),
            text: problem.to_string(),
        }
    }
}

/// Which blocks were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SampleReport {
    /// Blocks of the relation.
    pub blocks: u64,
    /// Blocks that were read of them.
    pub blocks_read: u64,
    /// The seed of the choice, to which the relation's OID is added without --sample.
    pub seed: u64,
}

/// A quantile of single values; an end of its interval is null if the sample is too small to determine it.
pub type Quantile = Interval<u64, Option<u64>>;
