//! The size of a file over time (pure): what an in-place conversion, compaction, and the rebuilding of an index leave
//! of it.
//!
//! The factors were measured with `retoast` on tables of many kinds (`scripts/bench`); tests of `advise-threshold` hold
//! them against real files.

use crate::disk::layout::PageSize;
use crate::model::btree::{is_bloated, least_bloated};
use crate::model::interval::Interval;
use crate::model::pages::least_gain;

/// What a file of a table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// The heap.
    Rows,
    /// The TOAST relation.
    Chunks,
    /// An index.
    Entries,
}

/// What is done to a file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// Batches of updates, vacuumed in between.
    Update {
        /// The bytes that they write.
        written: f64,
        /// The size that VACUUM FULL or REINDEX would give the file then.
        fresh: Interval,
    },
    /// What is at the end of a heap or of a TOAST relation moves to free space in front.
    Compact,
    /// An index is built anew.
    Reindex,
}

/// The free space in a file after updates, at most: dead tuples until the next vacuum, and, in a heap that grows, the
/// pages that rows have left.
struct FreeSpaceLeft {
    /// As a part of the file.
    part: f64,
    /// In bytes, for files of which that part is less.
    least: f64,
    /// As a part of the bytes that the updates write.
    of_written: f64,
}

const CHUNKS_UPDATED: FreeSpaceLeft = FreeSpaceLeft { part: 0.2, least: 1e6, of_written: 1.0 };
/// A small heap grows by more than this part before its first vacuum, but by less than what is written, because its
/// pages are pruned in the meantime.
const ROWS_UPDATED: FreeSpaceLeft = FreeSpaceLeft { part: 0.03, least: 4e5, of_written: 0.4 };
const LONGER_ROWS_UPDATED: FreeSpaceLeft = FreeSpaceLeft { part: 0.1, ..ROWS_UPDATED };

/// The size of a compacted file relative to a fresh one: how far above, and how far that may be off. Compaction does not
/// fill up all pages, but with chunks of different sizes it fills them better than VACUUM FULL.
struct Compacted {
    above: f64,
    low: f64,
    high: f64,
}

const COMPACTED_CHUNKS: Compacted = Compacted { above: 0.015, low: -0.02, high: 0.06 };
const COMPACTED_ROWS: Compacted = Compacted { above: 0.035, low: 0.0, high: 0.08 };

/// A file of a table at some time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FileModel {
    content: Content,
    page: PageSize,
    /// Its size in bytes.
    pub bytes: Interval,
    /// The size that VACUUM FULL or REINDEX would give it.
    fresh: Interval,
    /// Whether updates have made the content larger than the file was.
    has_grown: bool,
}

impl FileModel {
    /// A file of this size as it is.
    pub fn new(content: Content, page: PageSize, bytes: u64) -> FileModel {
        let bytes = Interval::exact(bytes as f64);
        FileModel { content, page, bytes, fresh: bytes, has_grown: false }
    }

    /// The file after this step.
    #[must_use]
    pub fn apply(self, step: Step) -> FileModel {
        match step {
            Step::Update { written, fresh } => self.updated(written, fresh),
            Step::Compact => FileModel { bytes: self.compacted(), ..self },
            Step::Reindex => FileModel { bytes: self.rebuilt(), ..self },
        }
    }

    /// Whether compaction would return enough pages.
    pub fn is_worth_compacting(&self) -> bool {
        let page = self.page.bytes() as f64;
        let pages = (self.bytes.estimate / page).ceil() as u32;
        pages.saturating_sub((self.fresh.estimate / page).ceil() as u32) >= least_gain(pages)
    }

    /// Whether an index is so large that building it anew pays.
    pub fn is_bloated(&self) -> bool {
        is_bloated(self.bytes.estimate as u64, self.fresh.estimate as u64)
    }

    /// Updates use free space again, but shorten no file, and an index keeps the pages of removed entries.
    fn updated(self, written: f64, fresh: Interval) -> FileModel {
        let now = self.bytes.estimate;
        let has_grown = fresh.estimate > now;
        let needed = now.max(fresh.estimate);
        let after = FileModel { fresh, has_grown, ..self };
        if written <= 0.0 {
            return FileModel { bytes: Interval::exact(needed), ..after };
        }
        let left = match self.content {
            Content::Entries => needed.max(now + written),
            Content::Chunks => CHUNKS_UPDATED.size(needed, written),
            Content::Rows if has_grown => LONGER_ROWS_UPDATED.size(needed, written),
            Content::Rows => ROWS_UPDATED.size(needed, written),
        };
        let bytes = Interval {
            estimate: left,
            low: now.max(fresh.low),
            high: left + 0.5 * (left - needed) + fresh.high - fresh.estimate,
        };
        FileModel { bytes, ..after }
    }

    fn compacted(&self) -> Interval {
        let fresh = self.fresh;
        let Compacted { above, low, high } = match self.content {
            Content::Rows => COMPACTED_ROWS,
            Content::Chunks | Content::Entries => COMPACTED_CHUNKS,
        };
        let mut end = Interval {
            estimate: fresh.estimate * (1.0 + above),
            low: fresh.low.min(fresh.estimate * (1.0 + low)),
            high: fresh.high.max(fresh.estimate * (1.0 + high) + self.page.bytes() as f64),
        };
        let before = self.bytes.estimate;
        if self.content == Content::Rows && self.has_grown && before > end.estimate {
            // rows that have become longer leave gaps that may be too small for any of them
            end.estimate = end.estimate.max((fresh.estimate + before) / 2.0);
            end.high = end.high.max(before);
        }
        end
    }

    fn rebuilt(&self) -> Interval {
        // one that turns out not to be bloated stays
        let kept =
            least_bloated(self.fresh.estimate as u64) as f64 + 2.0 * self.page.bytes() as f64;
        Interval { high: self.fresh.high.max(self.bytes.estimate.min(kept)), ..self.fresh }
    }
}

impl FreeSpaceLeft {
    /// The size of a file that needs `bytes` after updates that have written `written` bytes of it.
    fn size(&self, bytes: f64, written: f64) -> f64 {
        bytes + (written * self.of_written).min((bytes * self.part).max(self.least))
    }
}
