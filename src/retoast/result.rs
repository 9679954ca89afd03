//! What a run of `retoast` has to report.

use serde::Serialize;

use super::compact::result::FileReport;
use super::departure::result::DepartureReport;
use super::memory::since::Standing;
use super::plan::Plan;
use super::reindex::result::{IndexEnd, IndexReport};
use super::sizes::Sizes;

/// The name and version of the JSON form.
pub const SCHEMA: &str = "toastctl.retoast/1";

/// What `toastctl retoast --format json` prints. Sizes are bytes, times milliseconds unless they are called seconds.
/// With --format jsonl each line is one table, with the field schema beside its own.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct Report {
    /// [`SCHEMA`].
    #[cfg_attr(feature = "internals", schemars(extend("const" = SCHEMA)))]
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
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A whole scan found that all values comply.
    Complete,
    /// A whole scan found none that does not, but could not see where values stand, which is part of the choice.
    Unverified,
    /// All values are as chosen, and others hold space that a compaction was to give back.
    Held,
    /// Values are left that do not comply.
    Incomplete,
    /// Stopped on request.
    Stopped,
    /// Only planned.
    Planned,
    /// An error ended it.
    Failed,
}

/// What is said where somebody else has written the table anew.
pub(in crate::retoast) const REWRITTEN: &str =
    "the table was rewritten by another session (by VACUUM FULL, CLUSTER, REPACK or the like)";

impl TableReport {
    /// Counts in what an earlier part of the same work has done, before its session ended.
    pub fn go_on_from(&mut self, earlier: TableReport) {
        self.rows_found = earlier.rows_found;
        self.bytes_found = earlier.bytes_found;
        self.rows_stored += earlier.rows_stored;
        self.rows_verified += earlier.rows_verified;
        self.batches += earlier.batches;
        self.scans += earlier.scans;
        self.vacuums += earlier.vacuums;
        self.retries += earlier.retries;
        self.longest_batch_ms = self.longest_batch_ms.max(earlier.longest_batch_ms);
        self.longest_lock_wait_ms = self.longest_lock_wait_ms.max(earlier.longest_lock_wait_ms);
        self.wal_bytes += earlier.wal_bytes;
        self.elapsed_ms += earlier.elapsed_ms;
        self.before = earlier.before;
        self.peak = self.peak.max(earlier.peak);
        self.forms_before = earlier.forms_before;
        self.compaction_goes_on_from(earlier.compaction);
        for index in earlier.indexes.into_iter().filter(|index| index.after.is_some()) {
            match self.indexes.iter_mut().find(|now| now.index == index.index) {
                Some(now) if now.ended == IndexEnd::Kept => *now = index,
                Some(_) => {}
                None => self.indexes.push(index),
            }
        }
        self.add_pauses(earlier.pauses);
        self.slots_lost.splice(0..0, earlier.slots_lost);
    }

    /// Counts in what was done to files before, which others may have put new ones in place of since.
    pub(in crate::retoast) fn compaction_goes_on_from(&mut self, earlier: Vec<FileReport>) {
        for file in earlier {
            match self.compaction.iter_mut().find(|one| one.file == file.file) {
                Some(one) => {
                    let note = format!("{REWRITTEN}: what is said of its files is of the new ones");
                    if one.files != file.files && !self.notes.contains(&note) {
                        self.notes.push(note);
                    }
                    one.go_on_from(&file);
                }
                None => self.compaction.push(file),
            }
        }
    }

    fn add_pauses(&mut self, pauses: Vec<PauseReport>) {
        for pause in pauses {
            match self.pauses.iter_mut().find(|one| one.reason == pause.reason) {
                Some(one) => {
                    one.times += pause.times;
                    one.ms += pause.ms;
                }
                None => self.pauses.push(pause),
            }
        }
    }

    /// Adds what a compaction has done after the sweep that this is the report of.
    pub(crate) fn then_compacted(&mut self, mut later: TableReport) {
        if self.outcome == Outcome::Complete {
            self.outcome = later.outcome;
        }
        self.compaction = std::mem::take(&mut later.compaction);
        self.then(later);
    }

    /// Adds what was done to indexes after what this is the report of.
    pub(crate) fn then_reindexed(&mut self, mut later: TableReport) {
        match (self.outcome, later.outcome) {
            (_, Outcome::Complete | Outcome::Planned | Outcome::Unverified | Outcome::Held) => {}
            (Outcome::Incomplete, Outcome::Incomplete) => {}
            (_, worse) => self.outcome = worse,
        }
        self.indexes = std::mem::take(&mut later.indexes);
        self.then(later);
    }

    fn then(&mut self, later: TableReport) {
        self.rows_verified += later.rows_verified;
        self.batches += later.batches;
        self.scans += later.scans;
        self.vacuums += later.vacuums;
        self.retries += later.retries;
        self.longest_batch_ms = self.longest_batch_ms.max(later.longest_batch_ms);
        self.longest_lock_wait_ms = self.longest_lock_wait_ms.max(later.longest_lock_wait_ms);
        self.wal_bytes += later.wal_bytes;
        self.elapsed_ms += later.elapsed_ms;
        self.peak = self.peak.max(later.peak);
        self.after = later.after;
        self.rows_refused += later.rows_refused;
        self.skipped.extend(later.skipped);
        self.add_pauses(later.pauses);
        self.slots_lost.extend(later.slots_lost);
        let new = later.notes.into_iter().filter(|note| !self.notes.contains(note));
        let new: Vec<String> = new.collect();
        self.notes.extend(new);
    }
}

/// Bytes that files would be smaller by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct Gives {
    /// At least.
    pub low: i64,
    /// At the most.
    pub high: i64,
    /// Whether it depends on how far values can be compressed that are stored uncompressed now.
    pub compresses: bool,
}

impl Gives {
    /// What it comes to, if that is known closely enough for one figure.
    pub fn about(self) -> Option<u64> {
        const CLOSE: i64 = 10;
        if self.high <= 0 {
            return Some(0);
        }
        let is_close = self.low == self.high
            || self.low > 0 && self.high.saturating_sub(self.low) <= self.high / CLOSE;
        is_close.then_some(self.low.midpoint(self.high)).and_then(|bytes| u64::try_from(bytes).ok())
    }
}

/// Values of a column in one form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct FormReport {
    /// The column.
    pub column: String,
    /// The form; `uncompressed` or `compressed` where only SQL functions could be asked.
    pub form: &'static str,
    /// The compression method.
    #[cfg_attr(feature = "internals", schemars(extend("enum" = ["pglz", "lz4", null])))]
    pub method: Option<&'static str>,
    /// How many values.
    pub values: u64,
    /// Their stored bytes.
    pub bytes: u64,
}

/// A row that could not be re-toasted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct SkippedRow {
    /// The row's address; empty for what could not be read.
    pub ctid: String,
    /// What the server said.
    pub reason: String,
    /// The SQLSTATE with which the server refused the row. Left out where nothing was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sqlstate: Option<String>,
}

/// Waits for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct PauseReport {
    /// The reason.
    #[cfg_attr(feature = "internals", schemars(extend("enum" = ["signal", "replica_lag", "replication_slot", "throttle_query", "free_space", "xmin", "rewrite", "nice"])))]
    pub reason: &'static str,
    /// How often.
    pub times: u64,
    /// How long in all, in milliseconds.
    pub ms: u64,
}

/// What was done to one table.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct TableReport {
    /// `schema.name`.
    pub relation: String,
    /// The chosen columns.
    pub columns: Vec<String>,
    /// What was chosen to store their values; with a policy the policy and its method; "as stored" with --compact
    /// alone.
    pub toaster: String,
    /// The policy, if values are stored by one.
    pub policy: Option<String>,
    /// Whether values were to stay as they are, and files to get shorter.
    #[serde(skip)]
    pub keeps: bool,
    /// Whether indexes alone were to be rebuilt.
    #[serde(skip)]
    pub only_indexes: bool,
    /// How it ended. Unverified: the last scan has found nothing left to do, but could not see which values are out of
    /// line, which is part of the choice. Held: all values are as chosen, and others hold space that a compaction was
    /// to give back.
    pub outcome: Outcome,
    /// What the scan went by: `pageinspect` or `functions`.
    #[cfg_attr(feature = "internals", schemars(extend("enum" = ["pageinspect", "functions"])))]
    pub source: &'static str,
    /// The statement that sets the choice, if one is needed.
    pub alter: Option<String>,
    /// Whether that statement was run.
    pub altered: bool,
    /// The statement that sets everything back as the run found it, if it has set anything.
    pub undo: Option<String>,
    /// Whether the statement in undo was run.
    pub undone: bool,
    /// The statement that sets at the end what new values get, if that differs.
    pub alter_after: Option<String>,
    /// Rows in the first scan that were stored otherwise than chosen.
    pub rows_found: u64,
    /// Stored bytes of their values.
    pub bytes_found: u64,
    /// Rows re-toasted.
    pub rows_stored: u64,
    /// Rows that the last scan found stored otherwise than chosen.
    pub rows_left: u64,
    /// Rows that the server refused; skipped has the first hundred.
    pub rows_refused: u64,
    /// Rows of `rows_left` that were re-toasted, and stored otherwise than foreseen each time.
    pub rows_disagreeing: u64,
    /// Rows re-toasted of which the toaster has stored values with ordinary pointers all the same: they are stored as
    /// chosen, and none of `rows_left`.
    pub rows_spared: u64,
    /// Whether row security hides rows from this user, which were not looked at; the outcome is incomplete then.
    pub hides_rows: bool,
    /// Whether the server refused a row because it does not fit a page as chosen.
    #[serde(skip)]
    pub is_unfit: bool,
    /// Rows whose content was compared before and after.
    pub rows_verified: u64,
    /// Transactions that stored rows.
    pub batches: u64,
    /// Whole scans.
    pub scans: u32,
    /// Vacuums done, of the table or of its TOAST relation alone.
    pub vacuums: u64,
    /// Lock timeouts and deadlocks, each tried again.
    pub retries: u64,
    /// The longest batch in milliseconds.
    pub longest_batch_ms: u64,
    /// The longest wait for a lock on the table, in milliseconds; no row's lock is waited for.
    pub longest_lock_wait_ms: u64,
    /// Waits for others, by reason.
    pub pauses: Vec<PauseReport>,
    /// Replication slots that were lost meanwhile, since the server has removed WAL that they need.
    pub slots_lost: Vec<String>,
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
    /// Rows inserted by transactions before this one are among those that the outcome answers for; with a
    /// policy only.
    pub horizon: Option<u64>,
    /// With a policy, rows that were written after the second scan had begun and were not looked at.
    pub rows_written_since: u64,
    /// What the table was when the proof of the outcome began; with a policy only.
    #[serde(skip)]
    pub proof: Option<Standing>,
    /// Values by form in the first scan.
    pub forms_before: Vec<FormReport>,
    /// Values by form in the last scan.
    pub forms_after: Vec<FormReport>,
    /// With a policy and a dry run, values by the form that the policy wants; those of toasters of
    /// `pg_toaster` are left out.
    pub forms_planned: Vec<FormReport>,
    /// Rows that could not be re-toasted.
    pub skipped: Vec<SkippedRow>,
    /// With --compact, what was done to each file; a sweep that is not complete, or a dry run of one, is not followed
    /// by it.
    pub compaction: Vec<FileReport>,
    /// With --reindex, the indexes of the table and of its TOAST relation, in the order in which they were looked at;
    /// without it, those that are more than 1.3 times what fresh ones would take.
    pub indexes: Vec<IndexReport>,
    /// What is expected, if only a plan was asked for.
    pub plan: Option<Plan>,
    /// Whether the scans saw which values are out of line.
    pub places_seen: bool,
    /// Whether the server has pluggable TOAST: chunks of replaced values stay, and nothing makes files smaller.
    #[serde(skip)]
    pub has_toasters: bool,
    /// Bytes that heap and TOAST relation would be smaller by if they were written anew (VACUUM FULL), where that is
    /// known within a tenth; null where it is not, where pages were not read, and with --dry-run.
    pub rewrite_gives_bytes: Option<u64>,
    /// The least and the most that rewrite_gives_bytes may be; negative where the files would be larger. Exact where
    /// low and high are equal, else an interval of 95 % confidence from a sample of blocks, or open to what dead rows
    /// others still see and to how far values can be compressed. Null where nothing is known.
    pub rewrite_gives: Option<Gives>,
    /// The commands that write the table anew; `None` on a server that may not survive them.
    #[serde(skip)]
    pub rewriters: Option<&'static str>,
    /// Bytes that VACUUM gives back, which cuts off empty pages at the ends of heap and TOAST relation.
    pub vacuum_gives_bytes: Option<u64>,
    /// What should be known besides.
    pub notes: Vec<String>,
}
