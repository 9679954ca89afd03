//! The shapes in which findings are reported.

use serde::Serialize;

use super::finding::Finding;
use super::judged::Checked;
use crate::heap::problem::Place;
use crate::server::about::ServerReport;

/// Name and version of the JSON shape.
pub const SCHEMA: &str = "toastctl.check/1";

/// A finding, one line of `jsonl` and `csv`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct FindingReport {
    /// `TC001` and so on.
    #[cfg_attr(feature = "internals", schemars(regex(pattern = "^TC[0-9]{3}$")))]
    pub code: &'static str,
    /// `error`, `warning` or `notice`.
    #[cfg_attr(feature = "internals", schemars(extend("enum" = ["error", "warning", "notice"])))]
    pub severity: &'static str,
    /// What the code means.
    pub title: &'static str,
    /// The relation or file.
    pub relation: String,
    /// Block.
    pub block: Option<u32>,
    /// Line pointer number.
    pub item: Option<u16>,
    /// Column.
    pub column: Option<String>,
    /// Bytes from the tuple's start where a tuple is meant, else from the page's.
    pub byte: Option<u64>,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
    /// What to do.
    pub hint: &'static str,
    /// The statement that repairs it, where there is one that loses nothing.
    pub sql: Option<String>,
}

impl FindingReport {
    /// Of a finding; `has_toasters`: on a server with pluggable TOAST.
    pub fn of(finding: &Finding, has_toasters: bool) -> FindingReport {
        let Finding { code, place, expected, found, sql, .. } = finding;
        let Place { source, block, item, column, byte, .. } = place;
        FindingReport {
            code: code.name(),
            severity: code.severity().name(),
            title: code.title(),
            relation: source.clone(),
            block: block.map(|block| block.0),
            item: *item,
            column: column.clone(),
            byte: byte.map(|byte| byte as u64),
            expected: expected.clone(),
            found: found.clone(),
            hint: code.hint(has_toasters),
            sql: sql.clone(),
        }
    }
}

/// What was looked at in a relation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct CheckedReport {
    /// The relation or file.
    pub relation: String,
    /// Its blocks.
    pub blocks: u64,
    /// Blocks of its TOAST relation.
    pub toast_blocks: u64,
    /// Live rows.
    pub rows: u64,
    /// Rows of which it is not known whether they are live.
    pub undecided_rows: u64,
    /// Values out of line.
    pub values: u64,
    /// Their chunks.
    pub chunks: u64,
    /// Values that were decompressed.
    pub decompressed: u64,
    /// Bytes that they gave.
    pub raw_bytes: u64,
    /// Findings that are errors.
    pub errors: u64,
    /// Findings that are warnings.
    pub warnings: u64,
    /// Findings that are no damage.
    pub notices: u64,
    /// Whether everything was looked at that was asked for.
    pub complete: bool,
    /// What was not looked at, and why.
    pub notes: Vec<String>,
}

impl From<&Checked> for CheckedReport {
    fn from(checked: &Checked) -> CheckedReport {
        let looked = checked.looked;
        CheckedReport {
            relation: checked.relation.clone(),
            blocks: looked.blocks,
            toast_blocks: looked.toast_blocks,
            rows: looked.rows,
            undecided_rows: looked.undecided,
            values: looked.values,
            chunks: looked.chunks,
            decompressed: looked.decompressed,
            raw_bytes: looked.raw_bytes,
            errors: checked.errors,
            warnings: checked.warnings,
            notices: checked.notices,
            complete: !checked.is_incomplete,
            notes: checked.notes.clone(),
        }
    }
}

/// The document of `json`, its findings left out.
#[derive(Debug, Clone, Serialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The server, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerReport>,
    /// Every relation that was looked at.
    pub relations: Vec<CheckedReport>,
}
