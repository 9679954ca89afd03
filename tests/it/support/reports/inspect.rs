//! `inspect --format json` of one table, or with `--details`.

use std::ops::Deref;

use serde::Deserialize;
use toast_format::fill::moves::Expected;
pub(crate) use toastctl::findings::finding::{Finding, LookedAt};
pub(crate) use toastctl::inspect::result::{
    ColumnFigures, HeapFigures, RelationRead, ToastFigures, ToasterReport, TupleFigures,
};

use super::{Document, Printed};
use crate::support::command::Run;

/// What a compaction would come to.
pub(crate) type Compaction = Expected;

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

/// An entry of `tables` with the fields of its details.
#[derive(Clone, Deserialize)]
pub(crate) struct Relation {
    #[serde(flatten)]
    pub(crate) read: RelationRead,
    pub(crate) heap: HeapFigures,
    pub(crate) tuples: TupleFigures,
    pub(crate) toast: Option<Printed<ToastFigures>>,
    pub(crate) columns: Vec<Printed<ColumnFigures>>,
    /// Absent where nothing was looked for.
    #[serde(default)]
    pub(crate) findings: Option<Vec<Printed<Finding>>>,
    /// As `findings`.
    #[serde(default)]
    pub(crate) looked_at: Option<LookedAt>,
}

impl Deref for Relation {
    type Target = RelationRead;

    fn deref(&self) -> &RelationRead {
        &self.read
    }
}

impl Relation {
    #[track_caller]
    pub(crate) fn column(&self, name: &str) -> &Printed<ColumnFigures> {
        let found = self.columns.iter().find(|column| column.column == name);
        found.unwrap_or_else(|| panic!("no column {name} in {:?}", self.columns))
    }

    #[track_caller]
    pub(crate) fn toast(&self) -> &Printed<ToastFigures> {
        let name = &self.name.relation;
        self.toast.as_ref().unwrap_or_else(|| panic!("{name} has no TOAST relation"))
    }

    /// The findings that were looked for.
    #[track_caller]
    pub(crate) fn findings(&self) -> &[Printed<Finding>] {
        let name = &self.name.relation;
        self.findings.as_deref().unwrap_or_else(|| panic!("{name} was not looked at"))
    }
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
