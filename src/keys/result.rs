//! What `inspect --jsonb-keys` reports: the one type that every output format is made from.
//!
//! The JSON form is the serialization of [`KeysReport`]; `keys.schema.json` beside this file is its documented
//! shape. Sizes are bytes; those of keys count the raw document: of `jsonb` with the key's text, its entries and
//! alignment, of `json` its text up to the next key.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::model::interval::{RatioEstimate, WholeEstimate};
use crate::server::about::ServerReport;
use crate::usage::keys::{KeyUsage, KnownUses, Named};

/// Name and version of the JSON shape.
pub const SCHEMA: &str = "toastctl.keys/1";

#[cfg(feature = "internals")]
/// The JSON Schema (draft 2020-12) of [`KeysReport`].
pub const JSON_SCHEMA: &str = include_str!("keys.schema.json");

/// What the keys of one column's documents cost.
#[derive(Debug, Clone, Serialize)]
pub struct KeysReport {
    pub schema: &'static str,
    /// `null` of a file.
    pub server: Option<ServerReport>,
    pub relation: String,
    pub schema_name: Option<String>,
    /// Name without schema.
    pub name: Option<String>,
    pub oid: Option<u32>,
    pub column: String,
    #[serde(rename = "type")]
    pub type_name: String,
    /// `pageinspect`, `functions` or `relation_file`.
    pub source: &'static str,
    /// Steps of the longest paths that are told apart.
    pub depth: u8,
    /// What was looked at.
    pub sample: Looked,
    /// Documents of the table.
    pub documents: WholeEstimate,
    /// Their content, uncompressed.
    pub raw_bytes: WholeEstimate,
    /// As `pg_column_size` counts.
    pub stored_bytes: WholeEstimate,
    /// Pages of the TOAST relation's index from the root to a leaf, as costs are counted.
    pub index_levels: u32,
    /// Whether the keys are those of a map rather than of a record.
    pub map: bool,
    /// Different paths in the sample.
    pub different_paths: Different,
    /// At most so many bytes of one key of the sample are among the others, where there are too many paths for all
    /// to be kept.
    pub uncounted_bytes: u64,
    /// The paths, the largest first, what is below a path behind it.
    pub keys: Vec<Key>,
    /// Paths that are not among them.
    pub others: Option<Others>,
    /// What belongs to the documents themselves: the header of the container, no key's.
    pub container: Container,
    /// What is known of the keys' use; `null` of a file.
    pub usage: Option<KeyUsage>,
    /// What could not be read.
    pub problems: Vec<String>,
    /// How many problems there are in all.
    pub problem_count: u64,
}

impl KeysReport {
    /// Says which keys are used.
    pub(super) fn add_uses(&mut self, known: &KnownUses) {
        let (usage, by_path) = known.of_column(&self.column);
        let is_known = usage.why_not.is_none();
        for key in &mut self.keys {
            let used = by_path.get(&key.steps).cloned().unwrap_or_default();
            key.calls = is_known.then_some(used.calls);
            key.sessions = Some(used.sessions);
            key.named_in = used.named.into_iter().collect();
        }
        self.usage = Some(usage);
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct Looked {
    pub blocks: u32,
    /// Blocks of the heap.
    pub total_blocks: u32,
    /// Documents that were taken apart.
    pub documents: u64,
    /// The part of the documents of these blocks that was to be taken apart.
    pub documents_part: f64,
    /// The seed of the choice.
    pub seed: u64,
    /// Whether every document was taken apart.
    pub complete: bool,
}

/// How many different ones there are in the sample.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Different {
    pub estimate: u64,
    /// Whether that is the number itself.
    pub exact: bool,
}

/// One path.
#[derive(Debug, Clone, Serialize)]
pub struct Key {
    /// Keys parted by points, `[]` for the elements of an array, `$` for a document that is a scalar.
    pub path: String,
    /// Steps of the path.
    pub depth: usize,
    /// The commonest type, as `jsonb_typeof` names it.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Values of each type in the sample.
    pub types: BTreeMap<&'static str, u64>,
    /// Values in the table.
    pub values: WholeEstimate,
    /// The part of the documents that has it.
    pub presence: RatioEstimate,
    pub bytes: KeyBytes,
    /// Bytes that are in no longer path that is told apart.
    pub own_bytes: WholeEstimate,
    /// Its part of the stored bytes, in proportion.
    pub stored_bytes: WholeEstimate,
    /// Its part of the raw documents.
    pub share: RatioEstimate,
    /// Where its values begin in the raw documents.
    pub offset: Offset,
    /// The chunk in which they begin, of documents out of line; of compressed ones in proportion.
    pub first_chunk: Option<Chunks>,
    /// Different values in the sample.
    pub distinct: Different,
    /// Values in the sample.
    pub sampled_values: u64,
    /// `pg_column_size` of an average value taken out.
    pub extracted_bytes: RatioEstimate,
    /// Pages of TOAST relation and index that a read visits, besides its row's.
    pub buffers_now: RatioEstimate,
    /// The same of a column of its own; `null` of what is in an array.
    pub buffers_extracted: Option<RatioEstimate>,
    /// CPU time that storage adds to a read, in nanoseconds.
    pub cpu_now_ns: RatioEstimate,
    pub cpu_extracted_ns: Option<RatioEstimate>,
    /// WAL of an UPDATE of one value, without full-page images and the table's own indexes.
    pub wal_now: RatioEstimate,
    pub wal_extracted: Option<RatioEstimate>,
    /// Calls of the statements whose text names it: a guess. `null` where they are not known.
    pub calls: Option<u64>,
    /// Sessions whose present or last statement names it: a guess. `null` of a file.
    pub sessions: Option<u64>,
    /// What names it in the catalog.
    pub named_in: Vec<Named>,
    #[serde(skip)]
    /// The keys that lead to it; an element of an array is `None`.
    pub steps: Vec<Option<String>>,
}

/// Raw bytes of a path.
#[derive(Debug, Clone, Serialize)]
pub struct KeyBytes {
    /// In the table.
    pub total: WholeEstimate,
    /// Of one value.
    pub mean: RatioEstimate,
    /// In the sample.
    pub p95: u64,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Offset {
    /// In the sample.
    pub min: u64,
    pub mean: RatioEstimate,
    pub max: u64,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Chunks {
    /// In the sample.
    pub min: u64,
    pub mean: RatioEstimate,
    pub max: u64,
}

/// What is not among the keys.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Others {
    /// Different paths.
    pub paths: u64,
    /// Raw bytes in the table.
    pub bytes: u64,
    pub stored_bytes: u64,
    pub share: f64,
}

/// What is no key's.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Container {
    /// Raw bytes in the table.
    pub bytes: WholeEstimate,
    pub stored_bytes: WholeEstimate,
    pub share: RatioEstimate,
}
