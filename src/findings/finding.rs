//! One finding, as it is reported.

use serde::Serialize;

use super::code::Code;
use toast_format::fill::moves::Expected;
use toast_format::model::interval::Interval;

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Bytes,
    Rows,
    Values,
    Settings,
    ReadsPerWrite,
    WritesPerRead,
}

/// An avoidable cost.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Finding {
    /// The kind, as `toastctl help findings` lists them; kinds are only ever added.
    #[schemars(with = "String")]
    pub code: Code,
    /// `high`, `medium` or `low`.
    #[schemars(extend("enum" = ["high", "medium", "low"]))]
    pub severity: &'static str,
    /// `schema.name` of the table.
    pub relation: String,
    /// The column, if the finding is about one.
    pub column: Option<String>,
    /// The index, or the file (heap or toast), if the finding is about one.
    pub object: Option<String>,
    /// The amount.
    pub value: u64,
    /// The lower end of the 95 % confidence interval; `value` if everything was read.
    pub low: u64,
    /// The upper end.
    pub high: u64,
    pub unit: Unit,
    /// What was found, in words.
    pub what: String,
    /// Why it matters.
    pub why: &'static str,
    /// What to do about it: a shell command, or an SQL statement ending in a semicolon.
    pub command: String,
    /// Expected effect of compaction, if known.
    pub compaction: Option<Expected>,
}

/// What was examined, so that "no findings" can be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, schemars::JsonSchema)]
pub struct LookedAt {
    /// Blocks of the table; null without pageinspect and files.
    pub heap_blocks: Option<u64>,
    /// How many of them were read for findings.
    pub heap_blocks_read: Option<u64>,
    /// Blocks of the TOAST relation; null without one, and without pageinspect and files.
    pub toast_blocks: Option<u64>,
    /// How many of them were read for findings.
    pub toast_blocks_read: Option<u64>,
    /// Indexes of both whose size after a rebuild is known.
    pub indexes: u64,
    /// Whether the table's settings are known; those of files are not.
    pub settings: bool,
}

/// What was found about one table.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Findings {
    /// The worst first.
    pub findings: Vec<Finding>,
    pub looked_at: LookedAt,
}

impl Finding {
    /// About a table. `value` is rounded down.
    pub(crate) fn new(code: Code, relation: &str, value: Interval, unit: Unit) -> Finding {
        Finding {
            code,
            severity: code.severity().name(),
            relation: relation.to_owned(),
            column: None,
            object: None,
            value: value.estimate.round() as u64,
            low: value.low.floor().max(0.0) as u64,
            high: value.high.ceil() as u64,
            unit,
            what: String::new(),
            why: code.why(),
            command: String::new(),
            compaction: None,
        }
    }
}

/// Puts the worst first: by severity, then by amount, bytes before other units.
pub fn rank(findings: &mut [Finding]) {
    findings.sort_by_key(|finding| {
        let unit = finding.unit != Unit::Bytes;
        (finding.code.severity(), unit, std::cmp::Reverse(finding.value))
    });
}
