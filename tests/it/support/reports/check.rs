//! `check`: its document, its lines, and the manifest of what was salvaged.

use serde::Deserialize;

use super::{Document, Printed};

#[derive(Clone, Deserialize)]
pub(crate) struct Report {
    pub(crate) relations: Vec<Checked>,
    pub(crate) findings: Vec<Printed<Finding>>,
}

impl Document for Report {
    const SCHEMA: &'static str = "check";
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Checked {
    pub(crate) values: u64,
    pub(crate) chunks: u64,
    pub(crate) notices: usize,
    pub(crate) notes: Vec<String>,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Finding {
    pub(crate) code: String,
    pub(crate) hint: String,
    pub(crate) severity: String,
    pub(crate) relation: String,
    pub(crate) block: Option<u64>,
    pub(crate) item: Option<u64>,
    pub(crate) column: Option<String>,
    pub(crate) byte: Option<u64>,
    pub(crate) expected: String,
    pub(crate) found: String,
    pub(crate) row: Option<String>,
    pub(crate) sql: Option<String>,
}

/// A line of the manifest of `--salvage`.
#[derive(Clone, Deserialize)]
pub(crate) struct Salvaged {
    pub(crate) item: u16,
    pub(crate) column: String,
    pub(crate) code: String,
    pub(crate) note: Option<String>,
    pub(crate) value_id: Option<u32>,
    pub(crate) stored_size: Option<u64>,
    pub(crate) chunks_found: Vec<i64>,
    pub(crate) whole: bool,
    pub(crate) guesses: Vec<String>,
    pub(crate) files: Vec<SalvagedFile>,
}

#[derive(Clone, Deserialize)]
pub(crate) struct SalvagedFile {
    pub(crate) kind: String,
    pub(crate) file: String,
    pub(crate) ranges: Vec<[u64; 2]>,
}

impl Salvaged {
    /// The file of this kind.
    pub(crate) fn file(&self, kind: &str) -> Option<&SalvagedFile> {
        self.files.iter().find(|file| file.kind == kind)
    }
}
