//! What `keys` reports: the one type that every output format is made from.
//!
//! The JSON form is that of [`KeysDocument`]; its shape is documented in
//! `man/json/keys.schema.json`. Sizes are bytes; those of keys count the raw document: of `jsonb` with the key's text, its entries and
//! alignment, of `json` its text up to the next key.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::advise::extract::result::ExtractionReport;
use crate::advise::result::{Access, Files, Report, SampleReport};
use crate::server::about::ServerReport;
use crate::server::catalog::RelationName;
use crate::usage::keys::{KnownUses, Named};
use toast_format::heap::problem::Problems;
use toast_format::model::Interval;

/// Name and version of the JSON shape.
pub const SCHEMA: &str = "toastctl.keys/2";

/// What toastctl keys --format json prints. With --format jsonl each line is one column, to which the field schema is
/// added. Sizes are bytes; buffers are pages visited, as EXPLAIN (ANALYZE, BUFFERS) counts them. Figures of the table are
/// estimates with their 95 % confidence interval, which has no width if all documents were analyzed.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct KeysDocument {
    #[schemars(extend("const" = SCHEMA))]
    schema: &'static str,
    /// The server; null for a file.
    server: Option<ServerReport>,
    columns: Vec<KeysColumn>,
}

impl KeysDocument {
    /// Without columns yet.
    pub(crate) fn new(server: Option<ServerReport>) -> KeysDocument {
        KeysDocument { schema: SCHEMA, server, columns: Vec::new() }
    }
}

/// One column of documents.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct KeysColumn {
    #[serde(flatten)]
    subject: Subject,
    /// What each key takes and costs; absent with --extract.
    #[serde(flatten)]
    keys: Option<KeysReport>,
    /// The table with keys in columns of their own (--extract); absent without it, and where no keys pay.
    #[serde(skip_serializing_if = "Option::is_none")]
    extraction: Option<Extracted>,
    #[serde(flatten)]
    problems: Problems,
}

/// A column of documents, and how they were read.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Subject {
    /// `schema.name`, or the file.
    pub relation: String,
    /// Schema; null for a file.
    pub schema_name: Option<String>,
    /// Name without schema; null for a file.
    pub name: Option<String>,
    /// OID of the relation; null for a file.
    pub oid: Option<u32>,
    pub column: String,
    #[serde(rename = "type")]
    pub type_name: String,
    /// Where documents come from. By `functions`, chunks are assumed to be stored one after the other.
    #[schemars(extend("enum" = ["pageinspect", "functions", "relation_file"]))]
    pub source: &'static str,
    /// Whether row security may hide rows from this session, so that the figures are those of visible rows alone.
    pub visible_rows_only: bool,
}

/// An extraction and what it rests on.
#[derive(Debug, Serialize, schemars::JsonSchema)]
struct Extracted {
    /// What was examined.
    sample: SampleReport,
    /// The files as they are.
    on_disk: Files,
    #[serde(flatten)]
    extraction: ExtractionReport,
}

impl From<&KeysReport> for KeysColumn {
    fn from(report: &KeysReport) -> KeysColumn {
        KeysColumn {
            subject: report.subject.clone(),
            keys: Some(report.clone()),
            extraction: None,
            problems: report.problems.clone(),
        }
    }
}

impl From<&Report> for KeysColumn {
    fn from(report: &Report) -> KeysColumn {
        let RelationName { relation, schema_name, name, oid } = report.table.clone();
        let extraction = report.extraction.as_ref().map(|extraction| Extracted {
            sample: report.sample.clone(),
            on_disk: report.files,
            extraction: extraction.clone(),
        });
        KeysColumn {
            subject: Subject {
                relation,
                schema_name,
                name,
                oid,
                column: report.column.clone(),
                type_name: report.column_type.clone(),
                source: match report.sample.source {
                    Access::Pages => "pageinspect",
                    Access::Functions => "functions",
                },
                visible_rows_only: false,
            },
            keys: None,
            extraction,
            problems: report.problems.clone(),
        }
    }
}

/// What each key of a column's documents takes and costs.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct KeysReport {
    #[serde(skip)]
    pub subject: Subject,
    /// Steps of the longest paths that are distinguished.
    pub depth: u8,
    /// What was examined.
    pub sample: Looked,
    #[serde(flatten)]
    pub totals: Totals,
    /// Pages of the TOAST relation's index from the root to a leaf, as costs are counted; for a file and by functions as
    /// a rebuilt index would have.
    pub index_levels: u32,
    #[serde(flatten)]
    pub contents: Contents,
    #[serde(skip)]
    pub problems: Problems,
}

impl KeysReport {
    /// Sets what names each key in the catalog.
    pub(super) fn add_uses(&mut self, known: &KnownUses) {
        let mut by_path = known.by_path(&self.subject.column);
        for key in &mut self.contents.keys {
            let named = by_path.remove(&key.steps).unwrap_or_default();
            key.named_in = named.into_iter().collect();
        }
    }
}

#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Looked {
    pub blocks: u32,
    /// Blocks of the heap.
    pub total_blocks: u32,
    /// Documents that were analyzed.
    pub documents: u64,
    /// Fraction of these blocks' documents that were to be analyzed.
    pub documents_part: f64,
    /// The seed of the choice.
    pub seed: u64,
    /// Whether every document was analyzed.
    pub complete: bool,
}

/// How many different ones there are in the sample.
#[derive(Debug, Clone, Copy, Serialize, schemars::JsonSchema)]
pub struct Different {
    pub estimate: u64,
    /// Whether the number is exact; otherwise it is known to about 9 %.
    pub exact: bool,
}

/// All documents of the table.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Totals {
    /// Documents in the table.
    pub documents: Interval<u64>,
    /// Their content, uncompressed, without varlena headers.
    pub raw_bytes: Interval<u64>,
    /// As `pg_column_size` counts.
    pub stored_bytes: Interval<u64>,
    /// Part of the bytes that is in documents so large and so few that the sample does not stand for them.
    #[serde(skip)]
    pub unseen: f64,
}

/// What documents consist of.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Contents {
    /// Whether the documents look like maps: each has only a few of very many different keys, or there are too many keys
    /// to keep.
    pub map: bool,
    /// Different paths in the sample.
    pub different_paths: Different,
    /// Upper limit for the bytes of one key of the sample that are counted among the other keys, if there are too
    /// many paths to keep all of them.
    pub uncounted_bytes: u64,
    /// The paths, the largest first; each is followed by the paths below it.
    pub keys: Vec<Key>,
    /// Paths that are not among them; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others: Option<Others>,
    /// Bytes that belong to no key: the header of the container.
    pub container: Container,
}

/// One path.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Key {
    /// Keys separated by dots, quoted if ambiguous; `[]` for the elements of an array, `$` for a scalar document.
    pub path: String,
    /// Steps of the path.
    pub depth: usize,
    /// The most common type, as `jsonb_typeof` names it; other if JSON does not have it.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["null", "boolean", "number", "string", "array", "object", "other"]))]
    pub kind: &'static str,
    /// Values of each type in the sample.
    pub types: BTreeMap<&'static str, u64>,
    /// Values in the table.
    pub values: Interval<u64>,
    /// Fraction of the documents that have it.
    pub presence: Interval,
    #[serde(flatten)]
    pub sizes: KeySizes,
    /// Where its values begin in the raw documents.
    pub offset: Beginnings,
    /// The chunk, counted from 0, in which values begin, of documents out of line; of compressed ones in proportion.
    /// null if none is out of line.
    pub first_chunk: Option<Beginnings>,
    /// Different values in the sample.
    pub distinct: Different,
    /// Values in the sample.
    pub sampled_values: u64,
    /// `pg_column_size` of an average value taken out, in memory.
    pub extracted_bytes: Interval,
    #[serde(flatten)]
    pub costs: KeyCosts,
    /// Expressions of indexes and generated columns, and views. Empty for a file.
    pub named_in: Vec<Named>,
    #[serde(skip)]
    /// The keys that lead to it; an element of an array is `None`.
    pub steps: Vec<Option<String>>,
}

/// How much room a path takes.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct KeySizes {
    /// Raw bytes: of jsonb with key text, entries and alignment, of json the text up to the next key.
    pub bytes: KeyBytes,
    /// Raw bytes that are in no longer path that is distinguished. Those of all keys, of the others and of the container
    /// sum to raw_bytes.
    pub own_bytes: Interval<u64>,
    /// Its part of the stored bytes, in proportion to the raw ones of each document.
    pub stored_bytes: Interval<u64>,
    /// Its part of the raw documents.
    pub share: Interval,
}

/// What a read and a change of a key cost now, and in a column of its own.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct KeyCosts {
    /// Pages of the TOAST relation and its index that a read of the key visits, besides its row's, in documents that
    /// have it.
    pub buffers_now: Interval,
    /// The same for a column of its own; `null` for what is in an array.
    pub buffers_extracted: Option<Interval>,
    /// CPU time that storage adds to the read, in nanoseconds, with a warm cache.
    pub cpu_now_ns: Interval,
    /// The same for a column of its own; null for what is in an array.
    pub cpu_extracted_ns: Option<Interval>,
    /// WAL of an UPDATE of one value, without full-page images and the table's own indexes.
    pub wal_now: Interval,
    /// The same for a column of its own; null for what is in an array.
    pub wal_extracted: Option<Interval>,
}

/// Raw bytes of a path.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct KeyBytes {
    /// In the table.
    pub total: Interval<u64>,
    /// Of one value.
    pub mean: Interval,
    /// 95 % of the values in the sample have no more; to some percent where there are many sizes.
    pub p95: u64,
}

/// Where values begin, from the first of the sample to the last.
#[derive(Debug, Clone, Copy, Serialize, schemars::JsonSchema)]
pub struct Beginnings {
    /// The least of the sample.
    pub min: u64,
    pub mean: Interval,
    /// The greatest of the sample.
    pub max: u64,
}

/// What is not among the keys.
#[derive(Debug, Clone, Copy, Serialize, schemars::JsonSchema)]
pub struct Others {
    /// Different paths.
    pub paths: u64,
    /// Raw bytes in the table.
    pub bytes: u64,
    /// Stored bytes, in proportion.
    pub stored_bytes: u64,
    /// Part of the raw bytes.
    pub share: f64,
}

/// What belongs to no key.
#[derive(Debug, Clone, Copy, Serialize, schemars::JsonSchema)]
pub struct Container {
    /// Raw bytes in the table.
    pub bytes: Interval<u64>,
    /// Stored bytes, in proportion.
    pub stored_bytes: Interval<u64>,
    /// Part of the raw bytes.
    pub share: Interval,
}
