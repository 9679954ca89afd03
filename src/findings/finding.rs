//! One finding, as it is reported.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::code::{Code, Severity};
use toast_format::fill::moves::Expected;
use toast_format::model::Interval;

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Bytes,
    Rows,
    Values,
    Settings,
    /// Missing chunks, and places on pages that make no sense.
    Places,
    ReadsPerWrite,
    WritesPerRead,
}

/// An avoidable cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Finding {
    /// The kind, as `toastctl help findings` lists them; kinds are only ever added.
    #[schemars(with = "String")]
    pub code: Code,
    pub severity: Severity,
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
    pub why: Cow<'static, str>,
    /// What to do about it: a shell command, or an SQL statement ending in a semicolon; empty if there is no better
    /// setting.
    pub command: String,
    /// Expected effect of compaction, if known.
    pub compaction: Option<Expected>,
}

/// What was examined, so that "no findings" can be judged.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Findings {
    /// The worst first.
    pub findings: Vec<Finding>,
    pub looked_at: LookedAt,
}

impl Finding {
    /// Takes the command that the advice on the column recommends, and says what it changes on disk: `saves` in bytes,
    /// `change` in words. Without a command, says that there is no better setting. `keeps_settings`: whether it stores
    /// values by those of the column.
    pub(crate) fn take_advice(
        &mut self,
        command: Option<String>,
        saves: Option<Interval>,
        change: Option<String>,
        keeps_settings: bool,
    ) {
        if let Some(command) = command {
            self.command = command;
            match (self.code, saves, change) {
                (Code::NoCompression, Some(saves), _) if saves.low > 0.0 => {
                    self.set_amount(saves);
                    self.what = "less on disk by compression".to_owned();
                }
                (Code::OlderSetting, _, change) => {
                    self.what.push_str(if keeps_settings {
                        "; the command stores them so"
                    } else {
                        // which may be neither what they are stored by nor what is set
                        "; others suit the values best, which the command sets"
                    });
                    if let Some(change) = change {
                        self.what.push_str(&format!(", with {change}"));
                    }
                }
                (_, _, Some(change)) => {
                    self.what.push_str(&format!("; with the command, {change}"));
                }
                (_, _, None) => {}
            }
        } else {
            self.command.clear();
            self.what.push_str("; there is no better setting");
            self.severity = Severity::Low;
        }
    }

    /// Free space in the table's files needs no command of its own where that of another finding compacts them.
    pub(crate) fn leave_space_to(&mut self, other: Code) {
        if self.code == Code::FreeSpace && !self.command.is_empty() {
            self.command.clear();
            self.compaction = None;
            self.what.push_str(&format!("; the command for {} returns it too", other.name()));
        }
    }

    /// Whether it is a symptom of settings of which there are none better.
    pub(crate) fn has_no_remedy(&self) -> bool {
        self.code.asks_for_advice() && self.severity == Severity::Low && self.command.is_empty()
    }

    /// About a table. `value` is rounded down.
    pub(crate) fn new(code: Code, relation: &str, value: Interval, unit: Unit) -> Finding {
        let mut finding = Finding {
            code,
            severity: code.severity(),
            relation: relation.to_owned(),
            column: None,
            object: None,
            value: 0,
            low: 0,
            high: 0,
            unit,
            what: String::new(),
            why: code.why().into(),
            command: String::new(),
            compaction: None,
        };
        finding.set_amount(value);
        finding
    }

    fn set_amount(&mut self, amount: Interval) {
        self.value = amount.estimate.round() as u64;
        self.low = amount.low.floor().max(0.0) as u64;
        self.high = amount.high.ceil() as u64;
    }
}

/// Puts the worst first: by severity, damage before costs, then by amount, bytes before other units.
pub fn rank(findings: &mut [Finding]) {
    findings.sort_by_key(|finding| {
        let unit = finding.unit != Unit::Bytes;
        let is_cost = finding.code != Code::Damage;
        (finding.severity, is_cost, unit, std::cmp::Reverse(finding.value))
    });
}
