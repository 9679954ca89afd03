//! `inspect --format json` of one table, or with `--details`.

use serde::Deserialize;

use super::{Document, Printed, Range, Source};
use crate::support::command::Run;

#[derive(Clone, Deserialize)]
pub(crate) struct Report {
    pub(crate) schema: String,
    #[serde(rename = "tables")]
    pub(crate) relations: Vec<Printed<Relation>>,
}

impl Document for Report {
    const SCHEMA: &'static str = "inspect";
}

impl Run {
    /// The report's only relation.
    #[track_caller]
    pub(crate) fn relation(&self) -> Printed<Relation> {
        let [relation] = &self.report::<Report>().relations[..] else {
            panic!("not one relation: {self:?}")
        };
        relation.clone()
    }
}

#[derive(Clone, Deserialize)]
pub(crate) struct Relation {
    pub(crate) relation: String,
    pub(crate) name: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) source: Source,
    /// Only of a sample.
    #[serde(default)]
    pub(crate) sample: Option<Sample>,
    pub(crate) heap: Heap,
    pub(crate) tuples: Printed<Tuples>,
    pub(crate) toast: Option<Printed<Toast>>,
    pub(crate) columns: Vec<Printed<Column>>,
    pub(crate) not_available: Vec<Printed<NotAvailable>>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) problem_count: u64,
    /// Absent where nothing was looked for.
    #[serde(default)]
    pub(crate) findings: Option<Vec<Printed<Finding>>>,
    /// As `findings`.
    #[serde(default)]
    pub(crate) looked_at: Option<LookedAt>,
}

impl Relation {
    #[track_caller]
    pub(crate) fn column(&self, name: &str) -> &Printed<Column> {
        let found = self.columns.iter().find(|column| column.column == name);
        found.unwrap_or_else(|| panic!("no column {name} in {:?}", self.columns))
    }

    #[track_caller]
    pub(crate) fn toast(&self) -> &Printed<Toast> {
        self.toast.as_ref().unwrap_or_else(|| panic!("{} has no TOAST relation", self.relation))
    }

    /// The findings that were looked for.
    #[track_caller]
    pub(crate) fn findings(&self) -> &[Printed<Finding>] {
        self.findings.as_deref().unwrap_or_else(|| panic!("{} was not looked at", self.relation))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub(crate) struct Sample {
    pub(crate) blocks: u64,
    pub(crate) blocks_read: u64,
    pub(crate) seed: u64,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Heap {
    pub(crate) bytes: Option<u64>,
    pub(crate) blocks: Option<u64>,
    pub(crate) blocks_read: u64,
    pub(crate) free_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Tuples {
    pub(crate) live: u64,
    pub(crate) dead: Option<u64>,
    pub(crate) unknown: Option<u64>,
    pub(crate) hot_updated: Option<u64>,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Toast {
    pub(crate) relation: String,
    pub(crate) bytes: Option<u64>,
    pub(crate) index_bytes: Option<u64>,
    pub(crate) rows: Option<u64>,
    pub(crate) rows_counted: bool,
    pub(crate) free_bytes: Option<u64>,
    pub(crate) values: u64,
    pub(crate) chunks: u64,
    /// Only where SQL functions were asked.
    #[serde(default)]
    pub(crate) unplaced_values: Option<u64>,
    pub(crate) orphans: Option<Printed<Orphans>>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Orphans {
    pub(crate) values: u64,
    pub(crate) bytes: u64,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Column {
    pub(crate) column: String,
    #[serde(rename = "type")]
    pub(crate) type_name: String,
    pub(crate) values: u64,
    pub(crate) nulls: u64,
    pub(crate) missing: u64,
    pub(crate) raw_bytes: Option<u64>,
    pub(crate) stored_bytes: Option<u64>,
    pub(crate) stored_size: Percentiles,
    pub(crate) chunks: u64,
    pub(crate) forms: Vec<Form>,
    pub(crate) toasters: Vec<Toaster>,
    /// Only with `--policy`, of a column that can be toasted.
    #[serde(default)]
    pub(crate) policy: Option<Policy>,
}

/// Sizes of the values.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Percentiles {
    min: Option<u64>,
    median: Option<u64>,
    p95: Option<u64>,
    p99: Option<u64>,
    max: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Form {
    pub(crate) form: String,
    pub(crate) method: Option<String>,
    pub(crate) values: u64,
    pub(crate) pointer_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Toaster {
    pub(crate) toaster: Option<String>,
    pub(crate) pointer_kind: String,
    pub(crate) values: u64,
    pub(crate) inline_bytes: u64,
    pub(crate) cost_to_read: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Policy {
    pub(crate) policy: String,
    pub(crate) method: String,
    pub(crate) values: u64,
    pub(crate) bytes: u64,
    pub(crate) complying_values: u64,
    pub(crate) complying_bytes: u64,
}

#[derive(Clone, Deserialize)]
pub(crate) struct NotAvailable {}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Problem {
    pub(crate) text: String,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Finding {
    pub(crate) code: String,
    pub(crate) severity: String,
    pub(crate) relation: String,
    pub(crate) column: Option<String>,
    pub(crate) object: Option<String>,
    pub(crate) value: u64,
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) unit: String,
    pub(crate) what: String,
    pub(crate) command: String,
    pub(crate) compaction: Option<Printed<Compaction>>,
}

/// What a compaction would come to.
#[derive(Clone, Deserialize)]
pub(crate) struct Compaction {
    pub(crate) gives_back: u64,
    pub(crate) rows: Option<u64>,
    pub(crate) values: Option<u64>,
    pub(crate) moved_bytes: u64,
    pub(crate) wal_bytes: Range,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct LookedAt {
    pub(crate) heap_blocks: Option<u64>,
    pub(crate) heap_blocks_read: Option<u64>,
}

/// A line of `--values --format jsonl`.
#[derive(Clone, Deserialize)]
pub(crate) struct StoredValue {
    pub(crate) ctid: String,
    pub(crate) column: String,
    pub(crate) form: String,
    pub(crate) method: Option<String>,
    pub(crate) raw_size: Option<u64>,
    pub(crate) value_id: Option<u64>,
    /// Only with `--reassemble`.
    #[serde(default)]
    pub(crate) md5: Option<String>,
    /// As `md5`.
    #[serde(default)]
    pub(crate) text_md5: Option<String>,
}

/// What `value` prints with `--format json`, here of one value.
#[derive(Clone, Deserialize)]
pub(crate) struct Values {
    pub(crate) schema: String,
    pub(crate) values: Vec<Anatomy>,
}

/// One value taken apart.
#[derive(Clone, Deserialize)]
pub(crate) struct Anatomy {
    pub(crate) form: String,
    pub(crate) raw_size: Option<u64>,
    pub(crate) stored_size: u64,
    pub(crate) md5: Option<String>,
    pub(crate) first_text: Option<String>,
    pub(crate) parts: Vec<Printed<Part>>,
    pub(crate) cost: Cost,
}

/// What one pointer leads to.
#[derive(Clone, Deserialize)]
pub(crate) struct Part {
    pub(crate) toast_relation: u64,
    pub(crate) value_id: u64,
    pub(crate) chunks: Vec<Chunk>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Chunk {
    pub(crate) seq: u64,
    pub(crate) ctid: String,
    pub(crate) bytes: u64,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Cost {
    pub(crate) chunks: u64,
    pub(crate) pages: u64,
    pub(crate) bytes: u64,
}
