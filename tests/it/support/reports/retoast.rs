//! `retoast --format json`, read back into the types of the results; a table's fields stand next to each other, as printed.

use serde::Deserialize;
use toastctl::retoast::pace::rules::Cause;
use toastctl::retoast::plan::Sizes;
pub(crate) use toastctl::retoast::result::{
    CompactedFile, DepartureReport, FileEnd, FileReport, FormReport, Gives, IndexEnd, IndexReport,
    Outcome, PauseReport, SkippedRow,
};

use super::{Document, Printed, Range, Source};
use crate::support::command::Run;

#[derive(Clone, Deserialize)]
pub(crate) struct Report {
    pub(crate) dry_run: bool,
    pub(crate) tables: Vec<Printed<Table>>,
    /// Only with `--from-toaster`.
    #[serde(default)]
    pub(crate) departure: Option<Printed<DepartureReport>>,
}

impl Document for Report {
    const SCHEMA: &'static str = "retoast";
}

impl Run {
    /// The report's tables.
    #[track_caller]
    pub(crate) fn tables(&self) -> Vec<Printed<Table>> {
        self.report::<Report>().tables.clone()
    }

    /// The report's first table.
    #[track_caller]
    pub(crate) fn table(&self) -> Printed<Table> {
        let first = self.tables().into_iter().next();
        first.unwrap_or_else(|| panic!("no table: {self:?}"))
    }
}

#[derive(Clone, Deserialize)]
pub(crate) struct Table {
    pub(crate) relation: String,
    pub(crate) toaster: String,
    pub(crate) policy: Option<String>,
    pub(crate) source: Source,
    pub(crate) places_seen: bool,
    pub(crate) outcome: Outcome,
    pub(crate) rows_found: u64,
    pub(crate) rows_stored: u64,
    pub(crate) rows_left: Option<u64>,
    pub(crate) rows_refused: u64,
    pub(crate) rows_disagreeing: u64,
    pub(crate) rows_spared: u64,
    pub(crate) rows_undecided: u64,
    pub(crate) rows_verified: u64,
    pub(crate) batches: u64,
    pub(crate) scans: u64,
    pub(crate) vacuums: u64,
    pub(crate) longest_lock_wait_ms: u64,
    pub(crate) pauses: Vec<PauseReport>,
    pub(crate) slots_lost: Vec<String>,
    pub(crate) wal_bytes: Option<u64>,
    pub(crate) elapsed_ms: u64,
    pub(crate) before: Sizes,
    pub(crate) peak: Sizes,
    pub(crate) after: Sizes,
    pub(crate) skipped: Vec<SkippedRow>,
    pub(crate) notes: Vec<String>,
    pub(crate) gave_up: bool,
    pub(crate) alter: Option<String>,
    pub(crate) altered: bool,
    pub(crate) undo: Option<String>,
    pub(crate) undone: bool,
    pub(crate) undo_command: Vec<String>,
    pub(crate) alter_after: Option<String>,
    pub(crate) rows_written_since: u64,
    pub(crate) forms_before: Vec<FormReport>,
    pub(crate) forms_after: Vec<FormReport>,
    pub(crate) forms_planned: Vec<FormReport>,
    pub(crate) plan: Option<Printed<Plan>>,
    pub(crate) predicted: Option<Predicted>,
    pub(crate) compaction: Vec<Printed<FileReport>>,
    pub(crate) indexes: Vec<Printed<IndexReport>>,
    pub(crate) rewrite_gives_bytes: Option<u64>,
    pub(crate) rewrite_gives: Option<Gives>,
    pub(crate) vacuum_gives_bytes: Option<u64>,
}

impl Table {
    /// All notes, one to a line.
    pub(crate) fn notes(&self) -> String {
        self.notes.join("\n")
    }

    /// What is said of waits for this reason.
    pub(crate) fn pause(&self, reason: &str) -> Option<&PauseReport> {
        let reason: Cause = serde_json::from_value(reason.into()).unwrap();
        self.pauses.iter().find(|pause| pause.reason == reason)
    }

    /// The index whose name contains this.
    #[track_caller]
    pub(crate) fn index(&self, name: &str) -> &Printed<IndexReport> {
        let found = self.indexes.iter().find(|index| index.index.contains(name));
        found.unwrap_or_else(|| panic!("no index {name} in {:?}", self.indexes))
    }
}

/// The size of `heap`, `toast` or `indexes`.
#[track_caller]
pub(crate) fn part_size(sizes: Sizes, part: &str) -> u64 {
    match part {
        "heap" => sizes.heap,
        "toast" => sizes.toast,
        "indexes" => sizes.indexes,
        _ => panic!("no size of {part}"),
    }
}

#[derive(Clone, Deserialize)]
pub(crate) struct Plan {
    pub(crate) statements: Vec<String>,
    pub(crate) seconds: Range,
    pub(crate) wal_bytes: Foreseen,
    pub(crate) growth_bytes: Foreseen,
    pub(crate) locks: Vec<String>,
    pub(crate) triggers_fire: Vec<String>,
    pub(crate) triggers_silent: Vec<String>,
    pub(crate) replication: Vec<String>,
    pub(crate) serialization: Vec<String>,
}

/// A forecast in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) struct Foreseen {
    pub(crate) estimate: u64,
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) indexes: u64,
    pub(crate) compaction: u64,
    pub(crate) rebuild: u64,
}

/// What was expected before a run, next to what it came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) struct Predicted {
    pub(crate) wal_bytes: Foreseen,
    pub(crate) wal_bytes_actual: Option<u64>,
    pub(crate) growth_bytes: Foreseen,
    pub(crate) growth_bytes_actual: u64,
}

impl Printed<IndexReport> {
    /// What it will take, which must be known.
    #[track_caller]
    pub(crate) fn expected(&self) -> u64 {
        self.expected.unwrap_or_else(|| panic!("{self}"))
    }

    #[track_caller]
    pub(crate) fn after(&self) -> u64 {
        self.after.unwrap_or_else(|| panic!("{self}"))
    }

    #[track_caller]
    pub(crate) fn reason(&self) -> &str {
        self.reason.as_deref().unwrap_or_else(|| panic!("{self}"))
    }

    #[track_caller]
    pub(crate) fn command(&self) -> &str {
        self.command.as_deref().unwrap_or_else(|| panic!("{self}"))
    }
}

impl Printed<Table> {
    /// The plan of a dry run.
    #[track_caller]
    pub(crate) fn plan(&self) -> &Printed<Plan> {
        self.plan.as_ref().unwrap_or_else(|| panic!("{self}"))
    }

    /// What sets the table's settings back.
    #[track_caller]
    pub(crate) fn undo(&self) -> &str {
        self.undo.as_deref().unwrap_or_else(|| panic!("{self}"))
    }
}

impl Printed<Report> {
    #[track_caller]
    pub(crate) fn departure(&self) -> &Printed<DepartureReport> {
        self.departure.as_ref().unwrap_or_else(|| panic!("{self}"))
    }
}
