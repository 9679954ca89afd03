//! What a run of `retoast` has to report.

use std::collections::BTreeMap;

use serde::Serialize;

use super::departure::DepartureReport;
use super::plan::Plan;
use crate::codec::Method;
use crate::model::stored::Form;

/// The name and version of the JSON form.
pub const SCHEMA: &str = "toastctl.retoast/1";

/// The JSON Schema (draft 2020-12) of [`Report`].
pub const JSON_SCHEMA: &str = include_str!("retoast.schema.json");

/// The whole report.
#[derive(Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Whether nothing was changed because only a plan was asked for.
    pub dry_run: bool,
    /// One for each table.
    pub tables: Vec<TableReport>,
    /// What is left of the toaster that was to be left, if one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub departure: Option<DepartureReport>,
}

/// How work on a table ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A whole scan found that all values comply.
    Complete,
    /// Values are left that do not comply.
    Incomplete,
    /// Stopped on request.
    Stopped,
    /// Only planned.
    Planned,
    /// An error ended it.
    Failed,
}

/// Sizes of a table's parts in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Sizes {
    /// The heap.
    pub heap: u64,
    /// The TOAST relation.
    pub toast: u64,
    /// The table's indexes and the TOAST relation's.
    pub indexes: u64,
}

impl Sizes {
    /// All together.
    pub fn sum(self) -> u64 {
        self.heap.saturating_add(self.toast).saturating_add(self.indexes)
    }

    /// The larger of each.
    pub fn max(self, other: Sizes) -> Sizes {
        Sizes {
            heap: self.heap.max(other.heap),
            toast: self.toast.max(other.toast),
            indexes: self.indexes.max(other.indexes),
        }
    }
}

/// Values of a column in one form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FormReport {
    /// The column.
    pub column: String,
    /// The form; `uncompressed` or `compressed` where only SQL functions could be asked.
    pub form: &'static str,
    /// The compression method.
    pub method: Option<&'static str>,
    /// How many values.
    pub values: u64,
    /// Their stored bytes.
    pub bytes: u64,
}

/// A row that could not be stored anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkippedRow {
    /// Its address.
    pub ctid: String,
    /// What the server said.
    pub reason: String,
}

/// Waits for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PauseReport {
    /// The reason.
    pub reason: &'static str,
    /// How often.
    pub times: u64,
    /// How long in all, in milliseconds.
    pub ms: u64,
}

/// What was done to one table.
#[derive(Debug, Serialize)]
pub struct TableReport {
    /// `schema.name`.
    pub relation: String,
    /// The columns.
    pub columns: Vec<String>,
    /// The toaster, or the policy with its method.
    pub toaster: String,
    /// The policy, if values are stored by one.
    pub policy: Option<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// What the scan went by: `pageinspect` or `functions`.
    pub source: &'static str,
    /// The statement that sets the choice, if one is needed.
    pub alter: Option<String>,
    /// The statement that sets at the end what new values get, if that differs.
    pub alter_after: Option<String>,
    /// Rows in the first scan that complied not.
    pub rows_found: u64,
    /// Stored bytes of their values.
    pub bytes_found: u64,
    /// Rows stored anew.
    pub rows_stored: u64,
    /// Rows whose content was compared before and after.
    pub rows_verified: u64,
    /// Transactions that stored rows.
    pub batches: u64,
    /// Whole scans.
    pub scans: u32,
    /// Vacuums done.
    pub vacuums: u64,
    /// Lock timeouts and deadlocks, each tried again.
    pub retries: u64,
    /// The longest batch in milliseconds.
    pub longest_batch_ms: u64,
    /// The longest wait for a lock on the table, in milliseconds; no row's lock is waited for.
    pub longest_lock_wait_ms: u64,
    /// Waits for others, by reason.
    pub pauses: Vec<PauseReport>,
    /// WAL written by everybody meanwhile, in bytes.
    pub wal_bytes: u64,
    /// How long it took, in milliseconds.
    pub elapsed_ms: u64,
    /// Sizes before.
    pub before: Sizes,
    /// The largest sizes met.
    pub peak: Sizes,
    /// Sizes after.
    pub after: Sizes,
    /// Rows inserted by transactions before this one were seen by the last scan; with a policy only.
    pub horizon: Option<u64>,
    /// Values by form in the first scan.
    pub forms_before: Vec<FormReport>,
    /// Values by form in the last scan.
    pub forms_after: Vec<FormReport>,
    /// With a policy and a dry run, values by the form that the policy wants.
    pub forms_planned: Vec<FormReport>,
    /// Rows that could not be stored anew.
    pub skipped: Vec<SkippedRow>,
    /// What is expected, if only a plan was asked for.
    pub plan: Option<Plan>,
    /// What should be known besides.
    pub notes: Vec<String>,
}

/// Counts values by column, form and method.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    counts: BTreeMap<(usize, &'static str, Option<&'static str>), (u64, u64)>,
}

impl Tally {
    /// Adds a value of the `column`-th chosen column, whose form is known.
    pub fn add(&mut self, column: usize, form: Form, method: Option<Method>, bytes: u64) {
        self.add_named(column, form.name(), method, bytes);
    }

    /// Adds a value whose form has this name.
    pub fn add_named(
        &mut self,
        column: usize,
        form: &'static str,
        method: Option<Method>,
        bytes: u64,
    ) {
        let count = self.counts.entry((column, form, method.map(Method::name))).or_default();
        count.0 += 1;
        count.1 = count.1.saturating_add(bytes);
    }

    /// Stored bytes of all values.
    pub fn bytes(&self) -> u64 {
        self.counts.values().map(|&(_, bytes)| bytes).sum()
    }

    /// As the report has it.
    pub fn report(&self, columns: &[String]) -> Vec<FormReport> {
        self.counts
            .iter()
            .map(|(&(column, form, method), &(values, bytes))| FormReport {
                column: columns.get(column).cloned().unwrap_or_default(),
                form,
                method,
                values,
                bytes,
            })
            .collect()
    }
}
