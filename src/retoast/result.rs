//! The report of a run of `retoast`.

use std::fmt;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::retoast::memory::since::ProvenState;
use crate::retoast::pace::rules::Cause;
use crate::retoast::plan::{Forecast, Plan, Sizes};
use crate::retoast::preflight::definition::Files;
use crate::server::citus::ShardLine;
use toast_format::disk::ItemPointer;
use toast_format::model::Range;

/// The name and version of the JSON format.
pub const SCHEMA: &str = "toastctl.retoast/1";

/// What `toastctl retoast --format json` prints. Sizes are in bytes; times are in milliseconds unless the name says
/// seconds. With --format jsonl, each line is one table plus the field schema.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// Name and version of this shape.
    #[schemars(extend("const" = SCHEMA))]
    #[serde(skip_deserializing)]
    pub schema: &'static str,
    /// Whether nothing was changed because only a plan was asked for.
    pub dry_run: bool,
    /// The exit code of toastctl. If a command of --set on-end fails, 0 and 6 become 1 afterwards.
    pub exit_code: u8,
    /// The errors that ended the run, or the work on a table.
    pub errors: Vec<String>,
    /// One entry for each table.
    pub tables: Vec<TableReport>,
    /// What is left of the toaster to be removed, if one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub departure: Option<DepartureReport>,
    /// Tables of Citus, whose shards are in `tables`; left out without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub citus: Vec<CitusReport>,
}

/// What became of a table of Citus, by its shards in the metadata as it was at the end. Copies of a shard count as shards.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct CitusReport {
    /// `schema.name`; partitions are not listed.
    pub table: String,
    pub shards: u64,
    /// Nodes that have shards of it.
    pub nodes: u64,
    /// Statements that set its columns, and those of its partitions, on all nodes, so that shards which Citus moves or
    /// splits keep the settings.
    pub set: Vec<String>,
    /// Shards without a result, each with the reason. The table is then not done.
    pub missing: Vec<MissingShard>,
}

/// Why there is no result if the run was stopped.
pub(crate) const NOT_BEGUN: &str = "stopped before its turn";

/// A shard without a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissingShard {
    /// `schema.name` of the shard.
    pub relation: String,
    /// `host:port` in the metadata of Citus.
    pub node: String,
    pub reason: String,
}

/// The message shown if another session has rewritten the table.
pub(in crate::retoast) const REWRITTEN: &str =
    "the table was rewritten by another session (by VACUUM FULL, CLUSTER, REPACK or the like)";

/// How work on a table ended, from best to worst.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A whole scan found that all values comply.
    Complete,
    /// It was only planned.
    Planned,
    /// All values are stored as requested, but other sessions keep 1 % of the files or more from being returned.
    Held,
    /// A whole scan found nothing left to do, but could not see which values are out of line, although the requested
    /// settings depend on it.
    Unverified,
    /// Values are left that do not comply.
    Incomplete,
    /// A stop was requested first.
    Stopped,
    /// An error ended it.
    Failed,
}

/// How the work on one file ended, from best to worst.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FileEnd {
    /// The free space left is less than a round must return.
    Compact,
    /// There is more free space, but what is at the end of the file does not fit there; no other session was in the
    /// way.
    NoRoom,
    /// It was only planned.
    Planned,
    /// There is more free space, and only other sessions are in the way: their locks, snapshots, or rows.
    Held,
    /// There is more free space, but the last round returned too little.
    GainedTooLittle,
    /// A stop was requested first.
    Stopped,
    /// An error ended it.
    #[default]
    Failed,
}

/// The result for an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IndexEnd {
    /// It is not bloated.
    Kept,
    /// It is bloated, and a rebuild was not requested.
    Bloated,
    /// It would be rebuilt.
    Planned,
    /// It was rebuilt concurrently.
    Rebuilt,
    /// Its size after a rebuild is not known.
    NotKnown,
    /// The server cannot rebuild it concurrently.
    Refused,
    /// It should have been rebuilt, but was not.
    Left,
    /// It was left behind, invalid, by an earlier rebuild, and was dropped.
    Dropped,
    /// It was left behind, invalid, by a rebuild, and is still there.
    Invalid,
}

/// The first task, which the headline of the report names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Headed {
    #[default]
    Convert,
    Compact,
    Reindex,
}

impl FileEnd {
    /// Whether nothing more could be returned.
    pub(crate) fn is_done(self) -> bool {
        matches!(self, FileEnd::Compact | FileEnd::NoRoom)
    }
}

impl IndexEnd {
    /// Whether it should have been rebuilt or dropped, but was not.
    pub(crate) fn is_left(self) -> bool {
        matches!(self, IndexEnd::Left | IndexEnd::Invalid)
    }
}

/// What was done to rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rows {
    /// Rows that the first scan found not stored as requested.
    #[serde(rename = "rows_found")]
    pub found: u64,
    /// Bytes of their values: for retoast before compression, unless the source is functions; otherwise as stored.
    #[serde(rename = "bytes_found")]
    pub bytes: u64,
    /// Rows re-toasted, in all scans.
    #[serde(rename = "rows_stored")]
    pub stored: u64,
    /// Rows that the last scan found not stored as requested; not known if that scan was stopped.
    #[serde(rename = "rows_left")]
    pub left: Option<u64>,
    /// Rows that the server refused; skipped has the first hundred.
    #[serde(rename = "rows_refused")]
    pub refused: u64,
    /// Rows of `rows_left` that were re-toasted but stored differently than predicted each time.
    #[serde(rename = "rows_disagreeing")]
    pub disagreeing: u64,
    /// Re-toasted rows whose values the pluggable toaster stored with ordinary pointers: they are as requested, and not
    /// counted in `rows_left`.
    #[serde(rename = "rows_spared")]
    pub spared: u64,
    /// Rows of which the last scan could not see, without pages, whether the server would compress values that are not
    /// compressed.
    #[serde(rename = "rows_undecided", default)]
    pub undecided: u64,
    /// Rows whose content was compared before and after.
    #[serde(rename = "rows_verified")]
    pub verified: u64,
}

impl AddAssign for Rows {
    fn add_assign(&mut self, other: Rows) {
        self.found = self.found.saturating_add(other.found);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.stored = self.stored.saturating_add(other.stored);
        self.left = self.left.zip(other.left).map(|(left, more)| left.saturating_add(more));
        self.refused = self.refused.saturating_add(other.refused);
        self.disagreeing = self.disagreeing.saturating_add(other.disagreeing);
        self.spared = self.spared.saturating_add(other.spared);
        self.undecided = self.undecided.saturating_add(other.undecided);
        self.verified = self.verified.saturating_add(other.verified);
    }
}

/// What the work required.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Effort {
    /// Transactions that stored rows.
    pub batches: u64,
    /// Scans of the whole table.
    pub scans: u32,
    /// Vacuums done, of the table or of its TOAST relation alone.
    pub vacuums: u64,
    /// Lock timeouts and deadlocks; each was tried again.
    pub retries: u64,
    /// The longest batch in milliseconds.
    pub longest_batch_ms: u64,
    /// The longest wait for a lock on the table, in milliseconds. toastctl does not wait for row locks.
    pub longest_lock_wait_ms: u64,
    /// Waits, added up by reason.
    pub pauses: Vec<PauseReport>,
    /// The course of the run: figures at its beginning, about every second, and less often in a long run.
    pub course: Vec<CoursePoint>,
    /// Replication slots lost during the run because the server removed WAL that they needed.
    pub slots_lost: Vec<String>,
    /// WAL written by all sessions during the run, but not while it waited for others, in bytes; null if the connection was
    /// lost before it could be measured.
    pub wal_bytes: Option<u64>,
    /// How long it took, in milliseconds.
    pub elapsed_ms: u64,
}

/// Adds the effort of later work.
impl AddAssign for Effort {
    fn add_assign(&mut self, later: Effort) {
        self.batches += later.batches;
        self.scans += later.scans;
        self.vacuums += later.vacuums;
        self.retries += later.retries;
        self.longest_batch_ms = self.longest_batch_ms.max(later.longest_batch_ms);
        self.longest_lock_wait_ms = self.longest_lock_wait_ms.max(later.longest_lock_wait_ms);
        for pause in later.pauses {
            match self.pauses.iter_mut().find(|known| known.reason == pause.reason) {
                Some(known) => {
                    known.times += pause.times;
                    known.ms += pause.ms;
                }
                None => self.pauses.push(pause),
            }
        }
        let ms = self.elapsed_ms;
        let bytes = self.course.last().map_or(0, |point| point.bytes);
        let wal = self.wal_bytes.unwrap_or_default();
        self.course.extend(later.course.into_iter().map(|point| CoursePoint {
            ms: point.ms + ms,
            bytes: point.bytes + bytes,
            wal_bytes: point.wal_bytes + wal,
            ..point
        }));
        self.slots_lost.extend(later.slots_lost);
        self.wal_bytes = self.wal_bytes.zip(later.wal_bytes).map(|(one, other)| one + other);
        self.elapsed_ms += later.elapsed_ms;
    }
}

/// The work on a table at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CoursePoint {
    /// Milliseconds since the work on the table began.
    pub ms: u64,
    /// Bytes of values re-toasted or moved since then.
    pub bytes: u64,
    /// Size of heap, TOAST relation and indexes, as last measured.
    pub size: u64,
    /// WAL written by all sessions since then.
    pub wal_bytes: u64,
    /// The reason of the last wait since the point before.
    pub waited_for: Option<Cause>,
}

/// What ends a run before its work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    Signal,
    MaxTime,
    MaxWait,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StopReason::Signal => "a signal",
            StopReason::MaxTime => "--max-time",
            StopReason::MaxWait => "max-wait",
        })
    }
}

/// What all work on a table has in common.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Common {
    #[serde(flatten)]
    pub rows: Rows,
    #[serde(flatten)]
    pub effort: Effort,
    #[serde(skip)]
    pub(crate) began: Option<Instant>,
    /// Sizes before the work began.
    pub before: Sizes,
    /// The largest sizes met.
    pub peak: Sizes,
    /// Sizes when the work ended.
    pub after: Sizes,
    /// Rows that could not be re-toasted.
    pub skipped: Vec<SkippedRow>,
    /// Further notes, in sentences.
    pub notes: Vec<String>,
    /// Whether a wait for other sessions that was too long (max-wait) ended the work.
    pub gave_up: bool,
    /// What stopped the run, if this work was stopped.
    #[serde(skip)]
    pub(crate) stopped_by: Option<StopReason>,
    /// Whether it ended with the connection, so that the sizes are not the last ones.
    #[serde(skip)]
    pub(crate) is_lost: bool,
}

impl Common {
    /// For work that begins with files of these sizes.
    pub(crate) fn new(before: Sizes, notes: Vec<String>) -> Common {
        let began = Some(Instant::now());
        Common { began, before, peak: before, after: before, notes, ..Common::default() }
    }

    pub(crate) fn is_larger(&mut self, now: Sizes) {
        self.peak = self.peak.max(now);
    }

    pub(crate) fn note_once(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Adds what an earlier part of the same task did before its session ended.
    fn resume(&mut self, earlier: Common) {
        let later = std::mem::replace(self, earlier);
        let rows = &self.rows;
        self.rows = Rows {
            found: rows.found,
            bytes: rows.bytes,
            stored: rows.stored + later.rows.stored,
            verified: rows.verified + later.rows.verified,
            ..later.rows
        };
        self.skipped = later.skipped;
        later.notes.into_iter().for_each(|note| self.note_once(note));
        self.gave_up = later.gave_up;
        self.stopped_by = later.stopped_by;
        self.add_effort(later.effort, later.peak, later.after);
    }

    /// Adds the effort of later work on the same files, with their largest and their last sizes.
    fn add_effort(&mut self, effort: Effort, peak: Sizes, after: Sizes) {
        self.effort += effort;
        self.is_larger(peak);
        self.after = after;
    }

    /// The time from the beginning of the first of two tasks, which may run at the same time, to the end of the last.
    fn span(&self, other: &Common) -> Option<u64> {
        let first = self.began?.min(other.began?);
        let mut ended = Duration::ZERO;
        for task in [self, other] {
            let elapsed = Duration::from_millis(task.effort.elapsed_ms);
            ended = ended.max(task.began?.duration_since(first) + elapsed);
        }
        u64::try_from(ended.as_millis()).ok()
    }

    /// Adds the work on another shard. The largest sizes of both may have been met at different times.
    fn merge_shard(&mut self, other: Common) {
        let span = self.span(&other);
        self.rows += other.rows;
        self.effort += other.effort;
        self.effort.elapsed_ms = span.unwrap_or(self.effort.elapsed_ms);
        self.began = self.began.min(other.began);
        self.effort.course.clear();
        self.before += other.before;
        self.peak += other.peak;
        self.after += other.after;
        self.skipped.extend(other.skipped);
        other.notes.into_iter().for_each(|note| self.note_once(note));
    }

    /// Adds what the next task did.
    fn append_task(&mut self, later: Common) {
        self.rows.verified += later.rows.verified;
        self.rows.refused += later.rows.refused;
        self.skipped.extend(later.skipped);
        later.notes.into_iter().for_each(|note| self.note_once(note));
        self.add_effort(later.effort, later.peak, later.after);
    }
}

/// What a conversion also reports.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Converted {
    /// The statement that changes the settings, if one is needed.
    pub alter: Option<String>,
    /// Whether that statement was run.
    pub altered: bool,
    /// The statement that restores the settings that the run has changed, except those that another session has changed
    /// since; of a dry run, the compression methods that the run would change.
    pub undo: Option<String>,
    /// Whether the statement in undo was run.
    pub undone: bool,
    /// The command that converts the values after that statement, as a list of words. Empty if nothing was or would be
    /// converted, if columns had different storages, or if the statement was run.
    pub undo_command: Vec<String>,
    /// The statement that changes the settings for new values at the end, if they differ.
    pub alter_after: Option<String>,
    /// The outcome covers rows inserted by transactions before this one; only with a policy.
    pub horizon: Option<u64>,
    /// With a policy, rows that were written after the second scan had begun and were not examined.
    pub rows_written_since: u64,
    /// The state of the table when the proof of the outcome began; only with a policy.
    #[serde(skip)]
    pub proof: Option<ProvenState>,
    /// Values by form in the first scan.
    pub forms_before: Vec<FormReport>,
    /// Values by form in the last scan; empty if the run was stopped, because rows rewritten since that scan are not counted.
    pub forms_after: Vec<FormReport>,
    /// With a policy and a dry run, values by the form that the policy requires; those of pluggable toasters are not
    /// included.
    pub forms_planned: Vec<FormReport>,
    /// What is expected, if only a plan was requested.
    pub plan: Option<Plan>,
    /// What was expected before the first row was changed, and the actual figures; null with --dry-run.
    pub predicted: Option<Predicted>,
}

/// What a run was expected to do, from a sample of pages, and what it did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Predicted {
    /// The expected duration in seconds, without waits for other sessions. How fast the server writes was not known.
    pub seconds: Range,
    /// The duration of all tasks.
    pub seconds_actual: u64,
    /// The expected WAL, in bytes.
    pub wal_bytes: Forecast,
    /// WAL written by all sessions during the run; null if it is not known.
    pub wal_bytes_actual: Option<u64>,
    /// The largest expected growth of table, TOAST relation and indexes, in bytes.
    pub growth_bytes: Forecast,
    /// By how much they were larger at their largest.
    pub growth_bytes_actual: u64,
}

/// What a task also reports.
#[derive(Debug)]
pub enum Work {
    Convert(Box<Converted>),
    Compact(Vec<FileReport>),
    Reindex(Vec<IndexReport>),
}

impl Work {
    pub(crate) fn headed(&self) -> Headed {
        match self {
            Work::Convert(_) => Headed::Convert,
            Work::Compact(_) => Headed::Compact,
            Work::Reindex(_) => Headed::Reindex,
        }
    }
}

/// What one task did to a table.
#[derive(Debug)]
pub struct TaskReport {
    pub(crate) outcome: Outcome,
    pub(crate) common: Common,
    pub(crate) work: Work,
}

impl TaskReport {
    /// Adds what an earlier part of the same task did before its session ended.
    pub(crate) fn resume(&mut self, earlier: TaskReport) {
        self.common.resume(earlier.common);
        match (&mut self.work, earlier.work) {
            (Work::Convert(now), Work::Convert(earlier)) => {
                now.forms_before = earlier.forms_before;
                now.predicted = earlier.predicted;
            }
            (Work::Compact(now), Work::Compact(earlier)) => {
                resume(now, earlier, &mut self.common);
            }
            (Work::Reindex(now), Work::Reindex(earlier)) => {
                for index in earlier.into_iter().filter(|index| index.after.is_some()) {
                    match now.iter_mut().find(|now| now.index == index.index) {
                        Some(now) if now.ended == IndexEnd::Kept => *now = index,
                        Some(_) => {}
                        None => now.push(index),
                    }
                }
            }
            _ => {}
        }
    }
}

/// Adds what was done to files that other sessions may have replaced since.
pub(crate) fn resume(files: &mut Vec<FileReport>, earlier: Vec<FileReport>, common: &mut Common) {
    for file in earlier {
        match files.iter_mut().find(|now| now.file == file.file) {
            Some(now) => {
                if now.files != file.files {
                    common.note_once(format!(
                        "{REWRITTEN}: the figures of its files are those of the new ones"
                    ));
                }
                now.resume(&file);
            }
            None => files.push(file),
        }
    }
}

/// Bytes by which files would be smaller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gives {
    /// The least number of bytes.
    pub low: i64,
    /// The greatest number of bytes.
    pub high: i64,
    /// Whether it depends on how well values that are now uncompressed can be compressed.
    pub compresses: bool,
}

impl Gives {
    /// The sum, as for two shards of a table.
    pub fn plus(self, other: Gives) -> Gives {
        Gives {
            low: self.low.saturating_add(other.low),
            high: self.high.saturating_add(other.high),
            compresses: self.compresses || other.compresses,
        }
    }

    /// The amount, if the bounds are close enough for a single figure.
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FormReport {
    /// The name of the column.
    pub column: String,
    /// The form; `uncompressed` or `compressed` if only SQL functions could be used.
    pub form: String,
    /// The compression method, of compressed values.
    #[schemars(extend("enum" = ["pglz", "lz4", null]))]
    pub method: Option<String>,
    /// The number of values.
    pub values: u64,
    /// The values' bytes as stored.
    pub bytes: u64,
}

impl FormReport {
    /// The values of two shards.
    fn sums(mut forms: Vec<FormReport>, shard: Vec<FormReport>) -> Vec<FormReport> {
        for form in shard {
            match forms.iter_mut().find(|sum| {
                sum.column == form.column && sum.form == form.form && sum.method == form.method
            }) {
                Some(sum) => {
                    sum.values = sum.values.saturating_add(form.values);
                    sum.bytes = sum.bytes.saturating_add(form.bytes);
                }
                None => forms.push(form),
            }
        }
        forms
    }
}

/// A row that was not re-toasted, or something else that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SkippedRow {
    /// The row's address; empty if something else could not be read.
    pub ctid: String,
    /// The message of the server, or why the row was left.
    pub reason: String,
    /// The SQLSTATE with which the server refused the row. Absent if nothing was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sqlstate: Option<String>,
}

impl SkippedRow {
    /// A row that cannot be read, or is not to be.
    pub(crate) fn unread(ctid: ItemPointer, reason: impl fmt::Display) -> SkippedRow {
        SkippedRow { ctid: ctid.to_string(), ..SkippedRow::elsewhere(reason.to_string()) }
    }

    /// A block that cannot be read.
    pub(crate) fn block(block: impl fmt::Display, reason: impl fmt::Display) -> SkippedRow {
        SkippedRow::elsewhere(format!("block {block}: {reason}"))
    }

    /// Something that is not a row.
    pub(crate) fn elsewhere(reason: String) -> SkippedRow {
        SkippedRow { ctid: String::new(), reason, sqlstate: None }
    }
}

/// Waits for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PauseReport {
    /// What was waited for.
    pub reason: Cause,
    /// The number of waits.
    pub times: u64,
    /// How long in all, in milliseconds.
    pub ms: u64,
}

/// What describes rows to a scan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScanSource {
    Pageinspect,
    #[default]
    Functions,
}

/// The table, and what was requested for it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Subject {
    /// `schema.name` of the table.
    pub relation: String,
    /// What it is a shard of, if a table of Citus was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<ShardLine>,
    /// Names of the requested columns.
    pub columns: Vec<String>,
    /// How values are to be stored: a storage or method, a policy with its method, or "as stored" for compact and
    /// reindex.
    pub toaster: String,
    /// The policy, if values are stored according to one.
    pub policy: Option<String>,
    /// How the scan read rows.
    pub source: ScanSource,
    /// Whether the scans saw which values are out of line.
    pub places_seen: bool,
    /// Whether the choice covers the place of values, in the row or out of line.
    #[serde(skip)]
    pub places_are_chosen: bool,
    /// Whether the server has pluggable TOAST: chunks of replaced values then stay, and nothing makes files smaller.
    #[serde(skip)]
    pub has_toasters: bool,
}

/// What could still be returned, as far as that was examined.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Gains {
    /// Bytes by which the heap and the TOAST relation would be smaller if they were rewritten (VACUUM FULL), if known to
    /// within 10 %; null if it is not, if pages were not read, and with --dry-run.
    pub rewrite_gives_bytes: Option<u64>,
    /// The least and the most that rewrite_gives_bytes may be; negative if the files would be larger. Exact if low and
    /// high are equal; otherwise a 95 % confidence interval from a sample of blocks, or uncertain because other sessions
    /// may still see dead rows or because values may be compressed. Null if nothing is known.
    pub rewrite_gives: Option<Gives>,
    /// The commands that rewrite the table; `None` on a server that may not survive them.
    #[serde(skip)]
    pub rewriters: Option<&'static str>,
    /// Bytes that VACUUM would return by truncating empty pages at the end of the heap and TOAST relation.
    pub vacuum_gives_bytes: Option<u64>,
}

impl Gains {
    /// Adds those of another shard.
    fn merge_shard(&mut self, other: &Gains) {
        self.rewrite_gives =
            self.rewrite_gives.zip(other.rewrite_gives).map(|(all, one)| all.plus(one));
        self.rewrite_gives_bytes = self.rewrite_gives.and_then(Gives::about);
        self.vacuum_gives_bytes = self
            .vacuum_gives_bytes
            .zip(other.vacuum_gives_bytes)
            .map(|(all, one)| all.saturating_add(one));
    }
}

/// What was done to one table.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct TableReport {
    #[serde(flatten)]
    pub subject: Subject,
    #[serde(skip)]
    pub headed: Headed,
    /// How it ended. Unverified: the last scan found nothing left to do, but could not see which values are out of line,
    /// although the requested settings depend on it. Held: all values are stored as requested, but other sessions keep 1 %
    /// of the files or more from being returned.
    pub outcome: Outcome,
    #[serde(flatten)]
    pub common: Common,
    #[serde(flatten)]
    pub converted: Converted,
    /// What compaction did to each file. Empty without compaction, after a conversion that did not complete, and in the
    /// dry run of a conversion.
    pub compaction: Vec<FileReport>,
    /// If indexes are rebuilt, the indexes of the table and of its TOAST relation, in the order in which they were
    /// examined; otherwise those that are more than 1.3 times as large as they would be after a rebuild.
    pub indexes: Vec<IndexReport>,
    #[serde(flatten)]
    pub gains: Gains,
}

impl TableReport {
    /// The report after the first task.
    pub(crate) fn new(subject: Subject, done: TaskReport) -> TableReport {
        let TaskReport { outcome, common, work } = done;
        let mut report = TableReport {
            subject,
            headed: work.headed(),
            outcome,
            common,
            converted: Converted::default(),
            compaction: Vec::new(),
            indexes: Vec::new(),
            gains: Gains::default(),
        };
        report.take(work);
        report
    }

    /// Adds what a later task did; `outcome` is that of the table after it.
    pub(crate) fn append_task(&mut self, later: TaskReport, outcome: Outcome) {
        self.outcome = outcome;
        self.common.append_task(later.common);
        self.take(later.work);
    }

    /// Adds that of another shard of the same table. What is about one shard alone is left out.
    pub(crate) fn merge_shard(&mut self, other: TableReport) {
        self.outcome = self.outcome.max(other.outcome);
        self.common.merge_shard(other.common);
        let now = std::mem::take(&mut self.converted);
        let shard = other.converted;
        self.converted = Converted {
            forms_before: FormReport::sums(now.forms_before, shard.forms_before),
            forms_after: FormReport::sums(now.forms_after, shard.forms_after),
            forms_planned: FormReport::sums(now.forms_planned, shard.forms_planned),
            rows_written_since: now.rows_written_since + shard.rows_written_since,
            ..Converted::default()
        };
        for file in other.compaction {
            match self.compaction.iter_mut().find(|sum| sum.file == file.file) {
                Some(sum) => sum.merge_shard(&file),
                None => self.compaction.push(file),
            }
        }
        self.indexes.extend(other.indexes);
        self.gains.merge_shard(&other.gains);
    }

    fn take(&mut self, work: Work) {
        match work {
            Work::Convert(converted) => self.converted = *converted,
            Work::Compact(files) => self.compaction = files,
            Work::Reindex(indexes) => self.indexes = indexes,
        }
        if let Some(predicted) = &mut self.converted.predicted {
            let Common { effort, before, peak, .. } = &self.common;
            predicted.seconds_actual = effort.elapsed_ms.div_ceil(1000);
            predicted.wal_bytes_actual = effort.wal_bytes;
            predicted.growth_bytes_actual = peak.sum().saturating_sub(before.sum());
        }
    }
}

/// A file of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CompactedFile {
    Toast,
    #[default]
    Heap,
}

impl CompactedFile {
    /// The word in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            CompactedFile::Toast => "TOAST",
            CompactedFile::Heap => "heap",
        }
    }
}

/// What was done to one file. Sizes are those of the main fork, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileReport {
    /// The files of the table to which the figures refer.
    #[serde(skip)]
    pub(crate) files: Option<Files>,
    /// The file: of the TOAST relation, or of the table.
    pub file: CompactedFile,
    /// compact: the free space left is less than a round must return. no_room: there is more, but nothing at the end of
    /// the file fits into it, although no other session was in the way. held: there is more, and only other sessions
    /// prevent its return (locks, snapshots, or new rows). gained_too_little: there is more, but the last round returned
    /// too little.
    pub ended: FileEnd,
    /// Its size at the beginning.
    pub before: u64,
    /// Bytes in use at the beginning.
    pub live: u64,
    /// The size that would suffice, according to the first scan; in a dry run, the expected size. 0 if the run was
    /// stopped before the file was examined.
    pub expected: u64,
    /// Its size at the last check.
    pub after: u64,
    /// Free space in it at the last check.
    pub spare: u64,
    /// Largest possible free space, if rows are as short as they can be. It differs from `spare` only without
    /// pageinspect, because row lengths are then not always known.
    pub spare_at_most: u64,
    /// Part of `spare` that is empty at the end of the file but was not truncated.
    pub untruncated: u64,
    /// The number of rounds begun.
    pub rounds: u32,
    /// Rows beyond the future end of the file, according to the first scan.
    pub rows_found: u64,
    /// Bytes that moving them writes: whole pages for rows, stored bytes for values.
    pub bytes_found: u64,
    /// WAL that moving them is expected to write, without full-page images and with all of them; null without --dry-run.
    pub wal_expected: Option<Range>,
    /// Bytes by which GIN indexes are expected to grow at most, since each row moved has new entries in them; null without
    /// --dry-run.
    pub gin_growth_expected: Option<u64>,
    /// How long moving them is expected to take, in seconds, without waits for other sessions; null without --dry-run.
    pub seconds_expected: Option<Range>,
    /// Rows moved, some more than once.
    pub rows_moved: u64,
    /// Rows still beyond the future end of the file after the last round; those that the server refused are not counted.
    pub rows_left: u64,
    /// Rows beyond the future end of the file that the server refused to move; skipped has its reasons.
    pub rows_refused: u64,
    /// Rows counted in `rows_left` that other sessions had locked, or changed in the meantime.
    pub rows_locked: u64,
    /// Rows beyond the future end of the file that other sessions have written since the first round began.
    pub rows_of_others: u64,
    /// Whether the last vacuum had to leave old row versions that other sessions still see.
    pub held_back: bool,
    /// Values beyond the future end of the file that no row refers to, so that nothing moves them: see check.
    pub values_without_row: u64,
    /// Values beyond the future end of the file that their columns would not store out of line again.
    pub values_fixed: u64,
    /// Values found there that are not compressed although their columns are set to compress: they are compressed when
    /// they are moved, if possible.
    pub values_by_setting: u64,
}

impl FileReport {
    /// The report of a file of this size that was not examined yet.
    pub(crate) fn new(file: CompactedFile, bytes: u64) -> FileReport {
        FileReport { file, before: bytes, after: bytes, ..FileReport::default() }
    }

    /// Whether it was examined how full the file is.
    pub(crate) fn is_examined(&self) -> bool {
        self.live > 0 || self.expected > 0
    }

    /// Whether only other sessions prevent the rest from being returned.
    pub(crate) fn is_held(&self) -> bool {
        let by_others = self.rows_locked > 0
            || self.rows_of_others > 0
            || self.untruncated > 0
            || self.held_back;
        let by_itself = self.rows_refused + self.values_without_row + self.values_fixed;
        by_others && by_itself == 0
    }

    /// The report of an empty file.
    pub(crate) fn of_nothing(dry_run: bool) -> FileReport {
        let (ended, wal_expected) = if dry_run {
            (FileEnd::Planned, Some(Range::default()))
        } else {
            (FileEnd::Compact, None)
        };
        FileReport { ended, wal_expected, ..FileReport::default() }
    }

    /// Adds that of another shard.
    fn merge_shard(&mut self, other: &FileReport) {
        self.files = None;
        self.ended = self.ended.max(other.ended);
        for (sum, more) in [
            (&mut self.before, other.before),
            (&mut self.live, other.live),
            (&mut self.expected, other.expected),
            (&mut self.after, other.after),
            (&mut self.spare, other.spare),
            (&mut self.spare_at_most, other.spare_at_most),
            (&mut self.untruncated, other.untruncated),
            (&mut self.rows_found, other.rows_found),
            (&mut self.bytes_found, other.bytes_found),
            (&mut self.rows_moved, other.rows_moved),
            (&mut self.rows_left, other.rows_left),
            (&mut self.rows_refused, other.rows_refused),
            (&mut self.rows_locked, other.rows_locked),
            (&mut self.rows_of_others, other.rows_of_others),
            (&mut self.values_without_row, other.values_without_row),
            (&mut self.values_fixed, other.values_fixed),
            (&mut self.values_by_setting, other.values_by_setting),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.rounds += other.rounds;
        (self.wal_expected, self.seconds_expected) = (None, None);
        self.held_back |= other.held_back;
    }

    /// Adds what an earlier part of the same work did. If the file was replaced since, the work done counts, but not
    /// the earlier sizes.
    pub(crate) fn resume(&mut self, earlier: &FileReport) {
        if self.files == earlier.files {
            self.before = earlier.before;
            self.live = earlier.live;
            self.expected = earlier.expected;
            self.rows_found = earlier.rows_found;
            self.bytes_found = earlier.bytes_found;
        }
        self.rounds += earlier.rounds;
        self.rows_moved += earlier.rows_moved;
        self.values_by_setting = self.values_by_setting.max(earlier.values_by_setting);
    }
}

/// The text between the reason why an index was not rebuilt and the invalid index that the attempt left behind.
pub(crate) const LEFT_OF_IT: &str = "; the invalid index ";

/// What was found and done about one index. Sizes are those of the main fork, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IndexReport {
    /// Its name with the schema, quoted.
    pub index: String,
    /// kept: at most 1.3 times as large as it would be after a rebuild; bloated: larger, but a rebuild was not requested;
    /// planned: with --dry-run, it would be rebuilt; rebuilt; not_known: its size after a rebuild is not known; refused:
    /// it cannot be rebuilt concurrently; left: it should have been rebuilt but was not; dropped: left behind by an
    /// interrupted rebuild of an earlier run, and dropped; invalid: left behind by an interrupted rebuild, and still
    /// there.
    pub ended: IndexEnd,
    /// Its size at the beginning.
    pub before: u64,
    /// Its size after a rebuild; null if that is not known.
    pub expected: Option<u64>,
    /// WAL that a rebuild would write; null if it needs none, or it was rebuilt.
    pub wal_expected: Option<u64>,
    /// Its actual size after the rebuild; null if it was not rebuilt.
    pub after: Option<u64>,
    /// Why it was not rebuilt or dropped, or why its size after a rebuild is not known.
    pub reason: Option<String>,
    /// The statement that is left to do, if there is one.
    pub command: Option<String>,
}

impl IndexReport {
    /// The rebuild left an invalid index behind, which the statement `drop` removes.
    pub(crate) fn is_left_with(&mut self, index: &str, drop: String) {
        let reason = self.reason.take().unwrap_or_default();
        self.reason = Some(format!(
            "{reason}{LEFT_OF_IT}{index} remains, because it could not be dropped in time"
        ));
        self.command = Some(drop);
    }
}

/// What is left of a toaster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DepartureReport {
    /// The name of the toaster.
    pub toaster: String,
    /// Its OID, as pointers have it.
    pub toaster_oid: u32,
    /// Whether all tables of the database were examined, not only some.
    pub whole_database: bool,
    /// Tables whose pages were all read, each time.
    pub tables_read: u64,
    /// Values that it stored, before anything was done; those of dropped columns too.
    pub values_before: u64,
    /// Values that it stores now.
    pub values_left: u64,
    /// Columns that are still set to it.
    pub columns_left: Vec<String>,
    /// Dropped columns that are still set to it: without the toaster, long values could no longer be written to the tables
    /// that have these columns.
    pub dropped_columns_left: Vec<String>,
    /// Statements in addition to those of the tables below.
    pub alter: Vec<String>,
    /// Tables in which something is left, or may be, and why.
    pub unfit: Vec<UnfitTable>,
    /// Transactions that were older than the final check and had not ended: tables that they created were not seen.
    pub older_transactions: Vec<String>,
    /// Whether a scan of all tables and of the catalog has shown that no value and no column that is not dropped uses it.
    pub unused: bool,
    /// Whether, in addition, no dropped column is set to it, so that nothing refers to it any more.
    pub gone: bool,
    /// Once no value and no column of the whole database uses it: the statements that a superuser runs, in this order and
    /// in one transaction, to remove it. toastctl never runs them. They check again, and fail if a table was created,
    /// altered or dropped in the meantime.
    pub steps: Vec<String>,
}

/// A table that could not be processed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnfitTable {
    /// `schema.name` of the table.
    pub relation: String,
    /// Why it could not be processed.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_that_are_converted_at_the_same_time_take_no_longer_than_the_last_of_them() {
        let began = Instant::now();
        let shard = |after: u64, elapsed_ms: u64| Common {
            began: Some(began + Duration::from_millis(after)),
            effort: Effort { elapsed_ms, ..Effort::default() },
            ..Common::default()
        };
        let mut all = shard(100, 1000);
        all.merge_shard(shard(0, 900));
        assert_eq!((all.effort.elapsed_ms, all.began), (1100, Some(began)));
        // one after the other
        all.merge_shard(shard(1100, 500));
        assert_eq!(all.effort.elapsed_ms, 1600);
    }
}
