//! What is reported of a compaction.

use serde::Serialize;

use crate::model::interval::Range;
use crate::retoast::check::files::Files;

/// How the work on one file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FileEnd {
    /// Less is to spare than a round has to give back.
    Compact,
    /// More is free, but what stands at its end found no room there, though nobody was in the way.
    NoRoom,
    /// More is to spare, and nothing but others stands in the way: their locks, snapshots, or rows.
    Held,
    /// More is to spare, but the last round gave back too little.
    GainedTooLittle,
    /// Stopped on request.
    Stopped,
    /// Only planned.
    Planned,
    /// An error ended it.
    Failed,
}

/// What was done to one file. Sizes are those of the main fork, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
    /// What the last look found to spare in it.
    pub spare: u64,
    /// What is to spare at the most, if rows are as short as they can be: more than `spare` only without pages, where
    /// their lengths are not always known.
    pub spare_at_most: u64,
    /// Of that, what is empty at the end and was not truncated.
    pub untruncated: u64,
    /// Rounds begun.
    pub rounds: u32,
    /// Rows that stood behind the end, by the first look.
    pub rows_found: u64,
    /// Bytes that moving them writes: of rows whole pages, of values as they are stored.
    pub bytes_found: u64,
    /// WAL that moving them is expected to write, without full-page images and with all; null but with a dry run.
    pub wal_expected: Option<Range>,
    /// Rows moved, some more than once.
    pub rows_moved: u64,
    /// Rows behind the end that were still there when the last round's passes were over; those that the server refused
    /// are not counted.
    pub rows_left: u64,
    /// Rows behind the end that the server refused to move; skipped has its reasons.
    pub rows_refused: u64,
    /// Those of `rows_left` that others had locked, or have changed meanwhile.
    pub rows_locked: u64,
    /// Rows behind the end that others have written since the first round began.
    pub rows_of_others: u64,
    /// Whether the last vacuum had to leave old row versions that others still see.
    pub held_back: bool,
    /// Values behind the end that no row refers to, so that nothing moves them: see inspect --check.
    pub values_without_row: u64,
    /// Values behind the end that their columns would not store out of line again.
    pub values_fixed: u64,
    /// Values found there that are not compressed, in columns that are set to compress: moved they are compressed if
    /// they can be.
    pub values_by_setting: u64,
}

impl FileReport {
    /// Of a file that was not looked at yet.
    pub(crate) fn new(file: &'static str) -> FileReport {
        FileReport {
            files: None,
            file,
            ended: FileEnd::Failed,
            before: 0,
            live: 0,
            expected: 0,
            after: 0,
            spare: 0,
            spare_at_most: 0,
            untruncated: 0,
            rounds: 0,
            rows_found: 0,
            bytes_found: 0,
            wal_expected: None,
            rows_moved: 0,
            rows_left: 0,
            rows_refused: 0,
            rows_locked: 0,
            rows_of_others: 0,
            held_back: false,
            values_without_row: 0,
            values_fixed: 0,
            values_by_setting: 0,
        }
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
