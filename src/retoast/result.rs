//! What a run of `retoast` has to report.

use serde::Serialize;

use crate::model::interval::Range;
use crate::retoast::check::definition::Files;
use crate::retoast::memory::since::ProvenState;
use crate::retoast::plan::{Plan, Sizes};

/// The name and version of the JSON form.
pub const SCHEMA: &str = "toastctl.retoast/1";

/// What `toastctl retoast --format json` prints. Sizes are bytes, times milliseconds unless they are called seconds.
/// With --format jsonl each line is one table, with the field schema beside its own.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct Report {
    /// Name and version of this shape.
    #[cfg_attr(feature = "internals", schemars(extend("const" = SCHEMA)))]
    pub schema: &'static str,
    /// Whether nothing was changed because only a plan was asked for.
    pub dry_run: bool,
    /// One for each table.
    pub tables: Vec<TableReport>,
    /// What is left of the toaster to be removed, if one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub departure: Option<DepartureReport>,
}

/// What is said where somebody else has written the table anew.
pub(in crate::retoast) const REWRITTEN: &str =
    "the table was rewritten by another session (by VACUUM FULL, CLUSTER, REPACK or the like)";

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
    /// It was only planned.
    Planned,
    /// An error ended it.
    Failed,
}

/// How the work on one file ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FileEnd {
    /// The free space left is less than a round must give back.
    Compact,
    /// There is more free space, but what is at the end of the file does not fit there; no other session was in the
    /// way.
    NoRoom,
    /// There is more free space, and only other sessions are in the way: their locks, snapshots, or rows.
    Held,
    /// There is more free space, but the last round gave back too little.
    GainedTooLittle,
    /// Stopped on request.
    Stopped,
    /// It was only planned.
    Planned,
    /// An error ended it.
    #[default]
    Failed,
}

/// What became of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum IndexEnd {
    /// It is not much larger than a fresh one.
    Kept,
    /// It is much larger, and a rebuild was not asked for.
    Bloated,
    /// It would be rebuilt.
    Planned,
    /// It was rebuilt.
    Rebuilt,
    /// What a fresh one would take is not known.
    NotKnown,
    /// The server cannot rebuild it beside others.
    Refused,
    /// It should have been rebuilt, but was not.
    Left,
    /// It was left behind, invalid, by an earlier rebuild, and was dropped.
    Dropped,
    /// It was left behind, invalid, by a rebuild, and is still there.
    Invalid,
}

/// What was asked for first, as the report is headed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Headed {
    Convert,
    Compact,
    Reindex,
}

impl FileEnd {
    /// Whether there is nothing more to give back that fits anywhere.
    pub(crate) fn is_done(self) -> bool {
        matches!(self, FileEnd::Compact | FileEnd::NoRoom)
    }
}

impl IndexEnd {
    /// Whether it was to be rebuilt or dropped, and was not.
    pub(crate) fn is_left(self) -> bool {
        matches!(self, IndexEnd::Left | IndexEnd::Invalid)
    }
}

/// What was done to rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct Rows {
    /// Rows in the first scan that were stored otherwise than chosen.
    #[serde(rename = "rows_found")]
    pub found: u64,
    /// Stored bytes of their values.
    #[serde(rename = "bytes_found")]
    pub bytes: u64,
    /// Rows re-toasted.
    #[serde(rename = "rows_stored")]
    pub stored: u64,
    /// Rows that the last scan found stored otherwise than chosen.
    #[serde(rename = "rows_left")]
    pub left: u64,
    /// Rows that the server refused; skipped has the first hundred.
    #[serde(rename = "rows_refused")]
    pub refused: u64,
    /// Rows of `rows_left` that were re-toasted, and stored otherwise than foreseen each time.
    #[serde(rename = "rows_disagreeing")]
    pub disagreeing: u64,
    /// Re-toasted rows whose values the toaster itself stored with ordinary pointers: they are as chosen, and not
    /// counted in `rows_left`.
    #[serde(rename = "rows_spared")]
    pub spared: u64,
    /// Rows whose content was compared before and after.
    #[serde(rename = "rows_verified")]
    pub verified: u64,
}

/// What the work has taken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct Effort {
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
}

impl Effort {
    /// Adds that of work which came later.
    fn add(&mut self, later: Effort) {
        self.batches += later.batches;
        self.scans += later.scans;
        self.vacuums += later.vacuums;
        self.retries += later.retries;
        self.longest_batch_ms = self.longest_batch_ms.max(later.longest_batch_ms);
        self.longest_lock_wait_ms = self.longest_lock_wait_ms.max(later.longest_lock_wait_ms);
        for pause in later.pauses {
            match self.pauses.iter_mut().find(|one| one.reason == pause.reason) {
                Some(one) => {
                    one.times += pause.times;
                    one.ms += pause.ms;
                }
                None => self.pauses.push(pause),
            }
        }
        self.slots_lost.extend(later.slots_lost);
        self.wal_bytes += later.wal_bytes;
        self.elapsed_ms += later.elapsed_ms;
    }
}

/// What all work on a table has in common.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct Common {
    #[serde(flatten)]
    pub rows: Rows,
    #[serde(flatten)]
    pub effort: Effort,
    /// Sizes before.
    pub before: Sizes,
    /// The largest sizes met.
    pub peak: Sizes,
    /// Sizes after.
    pub after: Sizes,
    /// Rows that could not be re-toasted.
    pub skipped: Vec<SkippedRow>,
    /// Further notes.
    pub notes: Vec<String>,
}

impl Common {
    /// Of work that begins with files of these sizes.
    pub(crate) fn new(before: Sizes, notes: Vec<String>) -> Common {
        Common { before, peak: before, after: before, notes, ..Common::default() }
    }

    pub(crate) fn is_larger(&mut self, now: Sizes) {
        self.peak = self.peak.max(now);
    }

    pub(crate) fn note_once(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn measure(&mut self, later: Common) -> (Rows, Vec<SkippedRow>, Vec<String>) {
        let Common { rows, effort, peak, after, skipped, notes, .. } = later;
        self.effort.add(effort);
        (self.peak, self.after) = (self.peak.max(peak), after);
        (rows, skipped, notes)
    }

    /// Counts in what an earlier part of the same task has done, before its session ended.
    fn go_on_from(&mut self, mut earlier: Common) {
        let rows = earlier.rows.clone();
        let now = std::mem::take(self);
        let (now_rows, skipped, notes) = earlier.measure(now);
        earlier.rows = Rows {
            found: rows.found,
            bytes: rows.bytes,
            stored: rows.stored + now_rows.stored,
            verified: rows.verified + now_rows.verified,
            ..now_rows
        };
        *self = Common { skipped, notes, ..earlier };
    }

    /// Counts in what the task that followed has done.
    fn then(&mut self, later: Common) {
        let (rows, skipped, notes) = self.measure(later);
        self.rows.verified += rows.verified;
        self.rows.refused += rows.refused;
        self.skipped.extend(skipped);
        notes.into_iter().for_each(|note| self.note_once(note));
    }
}

/// What a conversion has to report besides.
#[derive(Debug, Clone, Default, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct Converted {
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
    /// Rows inserted by transactions before this one are among those that the outcome answers for; with a
    /// policy only.
    pub horizon: Option<u64>,
    /// With a policy, rows that were written after the second scan had begun and were not looked at.
    pub rows_written_since: u64,
    /// What the table was when the proof of the outcome began; with a policy only.
    #[serde(skip)]
    pub proof: Option<ProvenState>,
    /// Values by form in the first scan.
    pub forms_before: Vec<FormReport>,
    /// Values by form in the last scan.
    pub forms_after: Vec<FormReport>,
    /// With a policy and a dry run, values by the form that the policy wants; those of toasters of
    /// `pg_toaster` are left out.
    pub forms_planned: Vec<FormReport>,
    /// What is expected, if only a plan was asked for.
    pub plan: Option<Plan>,
}

/// What a task has to report besides.
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

/// What one task has done to a table.
#[derive(Debug)]
pub struct TaskReport {
    pub(crate) outcome: Outcome,
    pub(crate) common: Common,
    pub(crate) work: Work,
}

impl TaskReport {
    /// Counts in what an earlier part of the same task has done, before its session ended.
    pub(crate) fn go_on_from(&mut self, earlier: TaskReport) {
        self.common.go_on_from(earlier.common);
        match (&mut self.work, earlier.work) {
            (Work::Convert(now), Work::Convert(earlier)) => {
                now.forms_before = earlier.forms_before;
            }
            (Work::Compact(now), Work::Compact(earlier)) => {
                go_on_from(now, earlier, &mut self.common);
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

/// Counts in what was done to files before, which others may have put new ones in place of since.
pub(crate) fn go_on_from(
    files: &mut Vec<FileReport>,
    earlier: Vec<FileReport>,
    common: &mut Common,
) {
    for file in earlier {
        match files.iter_mut().find(|one| one.file == file.file) {
            Some(one) => {
                if one.files != file.files {
                    common.note_once(format!(
                        "{REWRITTEN}: what is said of its files is of the new ones"
                    ));
                }
                one.go_on_from(&file);
            }
            None => files.push(file),
        }
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

/// The table, and what was asked of it.
#[derive(Debug, Clone, Default, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct Subject {
    /// `schema.name`.
    pub relation: String,
    /// The chosen columns.
    pub columns: Vec<String>,
    /// What was chosen to store their values; with a policy the policy and its method; "as stored" with --compact
    /// alone.
    pub toaster: String,
    /// The policy, if values are stored by one.
    pub policy: Option<String>,
    /// What the scan went by: `pageinspect` or `functions`.
    #[cfg_attr(feature = "internals", schemars(extend("enum" = ["pageinspect", "functions"])))]
    pub source: &'static str,
    /// Whether the scans saw which values are out of line.
    pub places_seen: bool,
    /// Whether that is part of the choice.
    #[serde(skip)]
    pub places_are_chosen: bool,
    /// Whether the server has pluggable TOAST: chunks of replaced values stay, and nothing makes files smaller.
    #[serde(skip)]
    pub has_toasters: bool,
}

/// What could still be given back, as far as that was looked at.
#[derive(Debug, Clone, Default, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct Gains {
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
}

/// What was done to one table.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct TableReport {
    #[serde(flatten)]
    pub subject: Subject,
    #[serde(skip)]
    pub headed: Headed,
    /// How it ended. Unverified: the last scan has found nothing left to do, but could not see which values are out of
    /// line, which is part of the choice. Held: all values are as chosen, and others hold space that a compaction was
    /// to give back.
    pub outcome: Outcome,
    #[serde(flatten)]
    pub common: Common,
    #[serde(flatten)]
    pub converted: Converted,
    /// With --compact, what was done to each file; a sweep that is not complete, or a dry run of one, is not followed
    /// by it.
    pub compaction: Vec<FileReport>,
    /// With --reindex, the indexes of the table and of its TOAST relation, in the order in which they were looked at;
    /// without it, those that are more than 1.3 times what fresh ones would take.
    pub indexes: Vec<IndexReport>,
    #[serde(flatten)]
    pub gains: Gains,
}

impl TableReport {
    /// What the first task has done.
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

    /// Adds what a task has done that followed, with which the work on the table has ended so.
    pub(crate) fn then(&mut self, later: TaskReport, outcome: Outcome) {
        self.outcome = outcome;
        self.common.then(later.common);
        self.take(later.work);
    }

    fn take(&mut self, work: Work) {
        match work {
            Work::Convert(converted) => self.converted = *converted,
            Work::Compact(files) => self.compaction = files,
            Work::Reindex(indexes) => self.indexes = indexes,
        }
    }
}

/// What was done to one file. Sizes are those of the main fork, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct FileReport {
    /// The files of the table that this is about.
    #[serde(skip)]
    pub(crate) files: Option<Files>,
    /// The TOAST relation's or the table's own.
    #[cfg_attr(feature = "internals", schemars(extend("enum" = ["toast", "heap"])))]
    pub file: &'static str,
    /// compact: less is to spare than a round has to give back; no_room: more is free, but what stands at its end found
    /// no room there, though nobody was in the way; held: more is to spare, and nothing but others stands in the way:
    /// their locks, snapshots, or rows; gained_too_little: more is, but the last round gave back less.
    pub ended: FileEnd,
    /// Its size at the beginning.
    pub before: u64,
    /// What was live in it then.
    pub live: u64,
    /// The size that would do, by the first look; with a dry run what is expected.
    pub expected: u64,
    /// Its size by the last look.
    pub after: u64,
    /// Free space that the last look found in it.
    pub spare: u64,
    /// Largest possible free space, if rows are as short as they can be. It differs from `spare` only without pages,
    /// where row lengths are not always known.
    pub spare_at_most: u64,
    /// Of that, what is empty at the end and was not truncated.
    pub untruncated: u64,
    /// Rounds begun.
    pub rounds: u32,
    /// Rows that stood behind the end, by the first look.
    pub rows_found: u64,
    /// Bytes that moving them writes: of rows whole pages, of values as they are stored.
    pub bytes_found: u64,
    /// WAL that moving them is expected to write, without full-page images and with all of them; only with --dry-run,
    /// else null.
    pub wal_expected: Option<Range>,
    /// Rows moved, some more than once.
    pub rows_moved: u64,
    /// Rows behind the end that were still there when the last round's passes were over; those that the server refused
    /// are not counted.
    pub rows_left: u64,
    /// Rows behind the end that the server refused to move; skipped has its reasons.
    pub rows_refused: u64,
    /// Rows counted in `rows_left` that other sessions had locked or changed meanwhile.
    pub rows_locked: u64,
    /// Rows behind the end that others have written since the first round began.
    pub rows_of_others: u64,
    /// Whether the last vacuum had to leave old row versions that others still see.
    pub held_back: bool,
    /// Values behind the end that no row refers to, so that nothing moves them: see check.
    pub values_without_row: u64,
    /// Values behind the end that their columns would not store out of line again.
    pub values_fixed: u64,
    /// Values found there that are not compressed although their columns are set to compress: they are compressed when
    /// they are moved, if possible.
    pub values_by_setting: u64,
}

impl FileReport {
    /// Of a file that was not looked at yet.
    pub(crate) fn new(file: &'static str) -> FileReport {
        FileReport { file, ..FileReport::default() }
    }

    /// Whether others stand in the way of what is left to spare, and nothing else does.
    pub(crate) fn is_held(&self) -> bool {
        let by_others = self.rows_locked > 0
            || self.rows_of_others > 0
            || self.untruncated > 0
            || self.held_back;
        let by_itself = self.rows_refused + self.values_without_row + self.values_fixed;
        by_others && by_itself == 0
    }

    /// Of a table's file that is empty.
    pub(crate) fn of_nothing(dry_run: bool) -> FileReport {
        let (ended, wal_expected) = match dry_run {
            true => (FileEnd::Planned, Some(Range::default())),
            false => (FileEnd::Compact, None),
        };
        FileReport { ended, wal_expected, ..FileReport::new("heap") }
    }

    /// Counts in what an earlier part of the same work has done. Of a file that was replaced since, what was done
    /// to it counts, and nothing that it was.
    pub(crate) fn go_on_from(&mut self, earlier: &FileReport) {
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

/// What stands between the reason why an index was not rebuilt and the index that is left of trying.
pub(crate) const LEFT_OF_IT: &str = "; the invalid index ";

/// What was found and done about one index. Sizes are those of the main fork, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct IndexReport {
    /// Its name with the schema, quoted.
    pub index: String,
    /// kept: not more than 1.3 times a fresh one; bloated: more, and not to be rebuilt; planned: with --dry-run, it
    /// would be rebuilt; rebuilt; not_known: what a fresh one would take is not known; refused: it cannot be rebuilt
    /// beside others; left: it was to be rebuilt and was not; dropped: an interrupted rebuild of an earlier run had
    /// left it behind; invalid: an interrupted rebuild has left it behind, and it is still there.
    pub ended: IndexEnd,
    /// Its size at the beginning.
    pub before: u64,
    /// What a fresh one would take; null if that is not known.
    pub expected: Option<u64>,
    /// WAL that the rebuild which it needs would write; null if it needs none, or is done.
    pub wal_expected: Option<u64>,
    /// Its size once rebuilt; null if it was not.
    pub after: Option<u64>,
    /// Why it was not rebuilt or dropped, or why its fresh size is not known.
    pub reason: Option<String>,
    /// The statement that is left to do, if there is one.
    pub command: Option<String>,
}

impl IndexReport {
    /// An invalid index is left of the rebuild, which this statement drops.
    pub(crate) fn is_left_with(&mut self, index: &str, drop: String) {
        let reason = self.reason.take().unwrap_or_default();
        self.reason = Some(format!(
            "{reason}{LEFT_OF_IT}{index} is left of it, since it could not be dropped in time"
        ));
        self.command = Some(drop);
    }
}

/// What is left of a toaster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct DepartureReport {
    /// Its name.
    pub toaster: String,
    /// Its OID, as pointers have it.
    pub toaster_oid: u32,
    /// Whether all tables of the database were looked at, not only some.
    pub whole_database: bool,
    /// Tables whose pages were all read, each time.
    pub tables_read: u64,
    /// Values that it stored, before anything was done; those of dropped columns too.
    pub values_before: u64,
    /// Values that it stores now; those before if nothing was to be done.
    pub values_left: u64,
    /// Columns that are still set to it.
    pub columns_left: Vec<String>,
    /// Dropped columns that are still set to it: without the toaster no long value could be written to
    /// their tables any more.
    pub dropped_columns_left: Vec<String>,
    /// Statements besides those of the tables below.
    pub alter: Vec<String>,
    /// Tables in which something is left, or may be, and why.
    pub unfit: Vec<UnfitTable>,
    /// Transactions that were older than the proof and had not ended: tables that they have created were not seen.
    pub older_transactions: Vec<String>,
    /// Whether a scan of all tables and of the catalog has shown that nothing refers to it any more.
    pub gone: bool,
    /// Once no value and no column is left to it in the whole database: what a superuser runs, in this
    /// order and in one transaction, to remove it. That is left to the user. They look once more, and fail if a table
    /// was created, altered or dropped since.
    pub steps: Vec<String>,
}

/// A table that could not be dealt with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct UnfitTable {
    /// `schema.name`.
    pub relation: String,
    /// Why.
    pub reason: String,
}
