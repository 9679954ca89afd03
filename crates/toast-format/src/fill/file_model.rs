//! The size of a file over time (pure): what batches of updates, compaction, and the rebuilding of an index leave of it.
//!
//! Updates store new values behind old ones until these are vacuumed, and in their place later; so a TOAST relation grows
//! by about as much as is dead at any one time. Of a heap and of compaction, factors are known that were measured with
//! `retoast` on tables of many kinds (`scripts/bench`). Tests of forecasts and of advice hold all that against real files.

use crate::disk::PageSize;
use crate::model::Interval;
use crate::model::btree::{is_bloated, least_bloated};
use crate::model::pages::least_gain;

/// The fraction of a table, with its TOAST relation, that may be dead before it is vacuumed, unless another is set.
pub const MAX_BLOAT: f64 = 0.05;
/// The most bytes that a batch stores, unless another limit is set.
pub const MAX_BATCH: u64 = 16 << 20;
/// A fraction of what may be dead: the TOAST relation alone is vacuumed only if more than this is dead in it.
pub const EARLY: f64 = 0.2;
/// The smallest amount of dead bytes for which anything is vacuumed.
pub const LEAST_DEAD: f64 = (1 << 20) as f64;
/// What vacuums leave free in gaps that new values do not fill, as a fraction of what is dead at its most. Measured with
/// values of one to thirteen chunks: 0.08 to 0.25.
const GAPS: f64 = 0.15;
/// By how much more than estimated may be stored before old values are vacuumed, as a fraction.
const ERROR: f64 = 0.25;
/// The number of vacuums after which pages of the TOAST relation's index are reused.
const RECYCLED_AFTER: f64 = 6.0;

/// When dead tuples are vacuumed, while batches of updates go over a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tuning {
    /// The dead bytes for which the whole table is vacuumed.
    pub table: f64,
    /// Those for which its TOAST relation alone is.
    pub toast: f64,
    /// What one batch leaves dead.
    pub batch: f64,
}

impl Tuning {
    /// The tuning for a table that has this many bytes with its TOAST relation, of which the fraction `max_bloat` may be
    /// dead.
    pub fn new(bytes: f64, max_bloat: f64, batch: f64) -> Tuning {
        Tuning {
            table: (bytes * max_bloat).max(LEAST_DEAD),
            toast: (bytes * max_bloat * EARLY).max(LEAST_DEAD),
            batch: batch.max(1.0),
        }
    }

    /// What is dead in one file, if this part of all that dies is in it, when the whole table is vacuumed.
    #[must_use]
    pub fn in_part(self, part: f64) -> Tuning {
        Tuning { table: self.table * part, batch: (self.batch * part).max(1.0), ..self }
    }

    /// What is dead in the TOAST relation when a vacuum begins: usually, and if only the whole table is vacuumed. These
    /// are whole batches.
    fn lag(&self) -> (f64, f64) {
        // batches that leave a megabyte are too fast for a vacuum of the TOAST relation alone to be worth its time
        let usual = if self.toast > LEAST_DEAD { self.toast.min(self.table) } else { self.table };
        (self.whole_batches(usual), self.whole_batches(self.table))
    }

    fn whole_batches(&self, bytes: f64) -> f64 {
        (bytes / self.batch).ceil() * self.batch
    }
}

/// What a file of a table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// The rows, in the heap.
    Rows,
    /// The values out of line, in the TOAST relation.
    Chunks,
    /// The entries of an index.
    Entries,
}

/// What is done to a file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// Batches of updates, vacuumed in between.
    Update {
        /// The bytes of tuples that are replaced.
        old: f64,
        /// The bytes of the new ones.
        new: f64,
        /// The size that VACUUM FULL or REINDEX would give the file then.
        fresh: Interval,
        /// When dead tuples are vacuumed.
        tuning: Tuning,
    },
    /// What is at the end of a heap or of a TOAST relation moves to free space in front.
    Compact,
    /// VACUUM truncates a file of which every tuple is dead.
    Truncate,
    /// An index is built anew.
    Reindex,
}

/// What a step costs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cost {
    /// The bytes by which the file grows.
    pub growth: f64,
    /// How many more these may be: if vacuums come late, or the free space is less than it seems.
    pub uncertain: f64,
    /// New values that are stored before old ones are vacuumed.
    pub before_vacuum: f64,
    /// Those of them that make the file longer.
    pub ahead: f64,
    /// New values whose index entries find no page that was emptied.
    pub newest: f64,
}

/// The free space in a heap after updates, at most: the pages that rows have left, and dead rows until the next vacuum.
struct FreeSpaceLeft {
    /// As a part of the file.
    part: f64,
    /// In bytes, for files of which that part is less.
    least: f64,
    /// As a part of the bytes that the updates write.
    of_written: f64,
}

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

const COMPACTED_CHUNKS: Compacted = Compacted { above: 0.022, low: -0.02, high: 0.06 };
const COMPACTED_ROWS: Compacted = Compacted { above: 0.05, low: 0.0, high: 0.08 };

/// A file of a table at some time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FileModel {
    content: Content,
    page: PageSize,
    /// Its size in bytes.
    pub bytes: Interval,
    /// The size that VACUUM FULL or REINDEX would give it.
    pub fresh: Interval,
    /// Whether updates have made the content larger than the file was.
    has_grown: bool,
}

impl FileModel {
    /// A file of this size as it is, which VACUUM FULL or REINDEX would make `fresh` bytes long.
    pub fn new(content: Content, page: PageSize, bytes: f64, fresh: f64) -> FileModel {
        let bytes = Interval::exact(bytes);
        FileModel { content, page, bytes, fresh: Interval::exact(fresh), has_grown: false }
    }

    /// The file after this step, and what that costs.
    #[must_use]
    pub fn apply(self, step: Step) -> (FileModel, Cost) {
        match step {
            Step::Update { old, new, fresh, tuning } => self.updated(old, new, fresh, &tuning),
            Step::Compact => (FileModel { bytes: self.compacted(), ..self }, Cost::default()),
            Step::Truncate => (FileModel { bytes: self.fresh, ..self }, Cost::default()),
            Step::Reindex => (FileModel { bytes: self.rebuilt(), ..self }, Cost::default()),
        }
    }

    /// Whether compaction may return enough pages to be asked for; it does nothing otherwise.
    pub fn may_compact(&self) -> bool {
        let may_be_loose = self.content == Content::Chunks || self.has_grown;
        let bytes = if may_be_loose { self.bytes.high } else { self.bytes.estimate };
        self.is_worth_compacting(bytes, self.fresh.estimate)
    }

    /// Whether a file of this size is compacted if it ends with the size `end`.
    fn is_worth_compacting(&self, bytes: f64, end: f64) -> bool {
        let page = self.page.bytes() as f64;
        let pages = (bytes / page).ceil() as u32;
        pages.saturating_sub((end / page).ceil() as u32) >= least_gain(pages)
    }

    /// Whether an index is so large that building it anew pays.
    pub fn is_bloated(&self) -> bool {
        is_bloated(self.bytes.estimate as u64, self.fresh.estimate as u64)
    }

    /// Updates use free space again, but shorten no file, and an index keeps the pages of removed entries.
    fn updated(self, old: f64, new: f64, fresh: Interval, tuning: &Tuning) -> (FileModel, Cost) {
        let now = self.bytes.estimate;
        let has_grown = fresh.estimate > now;
        let needed = now.max(fresh.estimate);
        let mut after = FileModel { fresh, has_grown, bytes: Interval::exact(needed), ..self };
        if new <= 0.0 {
            return (after, Cost { growth: needed - now, ..Cost::default() });
        }
        let mut cost = Cost::default();
        let left = match self.content {
            Content::Entries => needed.max(now + new),
            Content::Chunks => {
                cost = self.chunks_updated(old, new, tuning);
                needed.max(now + cost.growth)
            }
            // rows leave no more room than they had
            Content::Rows if has_grown => LONGER_ROWS_UPDATED.size(needed, new).min(needed + old),
            Content::Rows => ROWS_UPDATED.size(needed, new),
        };
        let mut error = ERROR * cost.before_vacuum;
        if self.content != Content::Chunks {
            let mut most = 0.0;
            if self.content == Content::Rows {
                // rows that are large or far apart leave no page that is pruned in time
                most = new.min((needed * ROWS_UPDATED.part).max(LEAST_DEAD * (1.0 + ERROR)));
            }
            let uncertain = (0.5 * (left - needed)).max(most - (left - needed));
            cost = Cost { growth: left - now, uncertain, ..cost };
            error = 0.0;
        }
        after.bytes = Interval {
            estimate: left,
            low: now.max(fresh.low),
            high: left + cost.uncertain + error + fresh.high - fresh.estimate,
        };
        (after, cost)
    }

    fn chunks_updated(&self, old: f64, new: f64, tuning: &Tuning) -> Cost {
        let free = (self.bytes.estimate - self.fresh.estimate).max(0.0);
        let (usual, most) = tuning.lag();
        let lag = usual.min(old);
        // new chunks are stored behind the old ones until a first vacuum
        let before_vacuum = if old > 0.0 { lag * (new / old).min(1.0) } else { 0.0 };
        let growth = ((new - old).max(0.0) + before_vacuum * (1.0 + GAPS) - free).max(0.0);
        let ahead = before_vacuum.min(growth);
        // where there is free space, values were changed before, and the index has no page with old values alone
        let newest = if before_vacuum > 0.0 && free > before_vacuum {
            new
        } else {
            (growth + ahead * (RECYCLED_AFTER - 1.0)).min(new)
        };
        let uncertain = (LEAST_DEAD.max(most.min(old) - lag) + free.min(lag)).min(old);
        Cost { growth, uncertain, before_vacuum, ahead, newest }
    }

    fn compacted(&self) -> Interval {
        let fresh = self.fresh;
        let Compacted { above, low, high } = match self.content {
            Content::Rows => COMPACTED_ROWS,
            Content::Chunks | Content::Entries => COMPACTED_CHUNKS,
        };
        let before = self.bytes;
        let mut end = Interval {
            estimate: fresh.estimate * (1.0 + above),
            low: fresh.low.min(fresh.estimate * (1.0 + low)),
            high: fresh.high.max(fresh.estimate * (1.0 + high) + self.page.bytes() as f64),
        };
        // the largest file of which it may return nothing
        let end_pages = (fresh.high * (1.0 + above) / self.page.bytes() as f64).ceil() as u32;
        let pages = end_pages.saturating_add(least_gain(end_pages / 15 * 16));
        let most = f64::from(pages) * self.page.bytes() as f64;
        let rows_have_grown = self.content == Content::Rows && self.has_grown;
        // of rows that have become longer, the growth is one at most
        let reached = if rows_have_grown { fresh.estimate } else { end.estimate };
        if !self.is_worth_compacting(before.estimate, reached) {
            // it returns nothing unless the file is larger than estimated, and enough then
            let high = before.high.min(most.max(end.high)).max(before.estimate);
            return Interval { low: end.low, high, ..before };
        }
        // near the limit it may also stay as it is, and a round for the rest of a heap may not pay
        if before.estimate < most || self.content == Content::Rows {
            end.high = end.high.max(before.high.min(most));
        }
        if rows_have_grown && before.estimate > end.estimate {
            // rows that have become longer leave gaps that may be too small for any of them
            end.estimate = end.estimate.max((fresh.estimate + before.estimate) / 2.0);
            end.high = end.high.max(before.estimate);
        }
        end
    }

    /// After compaction of a file that was as long as `before`: at most this many bytes of free space are in pieces that are
    /// too small for what is moved.
    #[must_use]
    pub fn with_fragments(self, bytes: f64, before: &FileModel) -> FileModel {
        let Interval { estimate, low, high } = self.bytes;
        let high = (high + bytes).min(before.bytes.high.max(high));
        FileModel { bytes: Interval { estimate, low, high }, ..self }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_space_in_pieces_is_not_all_returned() {
        let before = FileModel::new(Content::Chunks, PageSize::DEFAULT, 2e7, 1.8e7);
        let whole =
            FileModel { bytes: Interval { estimate: 1.83e7, low: 1.8e7, high: 1.9e7 }, ..before };
        let after = whole.with_fragments(5e5, &before).bytes;
        assert_eq!((after.low, after.estimate, after.high), (1.8e7, 1.83e7, 1.95e7));
        // no more than there was
        let after = whole.with_fragments(9e6, &before).bytes;
        assert_eq!((after.low, after.estimate, after.high), (1.8e7, 1.83e7, 2e7));
        assert_eq!(whole.with_fragments(0.0, &before), whole);
    }

    /// Measured: 4,445 rows of which 2.9 MB are out of line and 8.7 MB in the heap. Dead rows bring about a vacuum for each
    /// megabyte too, so that the TOAST relation grows by a quarter of that.
    #[test]
    fn dead_rows_bring_about_a_vacuum_before_many_values_are_dead() {
        let tuning = Tuning::new(13_361_152.0, MAX_BLOAT, 17_000.0);
        let file = FileModel::new(Content::Chunks, PageSize::DEFAULT, 3_121_152.0, 3_121_152.0);
        let fresh = Interval::exact(3_121_152.0);
        let [all, part] = [tuning, tuning.in_part(0.25)].map(|tuning| {
            file.apply(Step::Update { old: 2.9e6, new: 2.9e6, fresh, tuning }).1.growth
        });
        assert!((220_000.0..320_000.0).contains(&part), "measured 245,760: {part}");
        assert!(all > 1_000_000.0, "{all}");
    }

    #[test]
    fn a_file_that_grows_more_than_estimated_is_compacted_then() {
        let bytes = Interval { estimate: 2.05e7, low: 2e7, high: 3e7 };
        let file = FileModel::new(Content::Chunks, PageSize::DEFAULT, 2e7, 2e7);
        let after = FileModel { bytes, ..file }.apply(Step::Compact).0.bytes;
        assert_eq!(after.estimate, 2.05e7);
        // what VACUUM truncates for: a sixteenth
        assert!((2.1e7..2.2e7).contains(&after.high), "{after:?}");
    }

    /// Measured: by how much more than fresh files these were, whether compaction has made them smaller, and what it has left.
    #[test]
    fn files_are_compacted_or_not_as_measured() {
        use Content::{Chunks, Rows};
        for (content, fresh, before, compacted, after) in [
            (Rows, 4_079_616.0, 4_448_256.0, false, 4_448_256.0),
            (Rows, 25_960_448.0, 28_499_968.0, false, 28_499_968.0),
            (Rows, 8_920_000.0, 10_027_008.0, true, 9_320_000.0),
            (Chunks, 6_150_000.0, 6_569_984.0, false, 6_569_984.0),
            (Chunks, 6_709_248.0, 7_888_896.0, true, 7_012_352.0),
            (Chunks, 6_450_000.0, 7_090_000.0, true, 6_650_000.0),
        ] {
            let file = FileModel::new(content, PageSize::DEFAULT, before, fresh);
            let end = file.apply(Step::Compact).0.bytes;
            assert_eq!(end.estimate < before, compacted, "{content:?} {before}: {end:?}");
            assert!((end.low..=end.high).contains(&after), "{content:?} {before}: {end:?}");
            assert!((end.estimate - after).abs() < 0.025 * after, "{before}: {end:?}");
        }
    }

    /// Measured: 810 of 5,000 rows of about 2 kB were written anew, on 740 of 1,250 pages.
    #[test]
    fn large_rows_far_apart_leave_no_page_that_is_pruned_in_time() {
        let heap = FileModel::new(Content::Rows, PageSize::DEFAULT, 10_240_000.0, 10_240_000.0);
        let tuning = Tuning::new(13_344_768.0, MAX_BLOAT, 16_384.0);
        let fresh = Interval::exact(10_231_808.0);
        let written = 1_500_000.0;
        let (after, _) = heap.apply(Step::Update { old: written, new: written, fresh, tuning });
        assert!(after.bytes.high >= 10_240_000.0 + 1_040_000.0, "{after:?}");
    }

    /// Measured: by how many bytes TOAST relations of these sizes have grown when all values were replaced by values of
    /// this size in all, by runs of `retoast` with default settings on heaps of so many pages.
    #[test]
    fn toast_relations_grow_as_measured() {
        for (bytes, new, pages, measured) in [
            (16_384_000.0, 16_384_000.0, 13.0, 2_621_440.0),
            (163_840_000.0, 163_840_000.0, 255.0, 8_675_328.0),
            (20_185_088.0, 19_000_000.0, 759.0, 1_032_192.0),
            (20_480_000.0, 12_288_000.0, 10.0, 1_540_096.0),
            (6_963_200.0, 16_400_000.0, 1293.0, 9_494_528.0),
        ] {
            let tuning = Tuning::new(bytes + pages * 8192.0, MAX_BLOAT, bytes / pages);
            let file = FileModel::new(Content::Chunks, PageSize::DEFAULT, bytes, bytes);
            let fresh = Interval::exact(new);
            let (after, cost) = file.apply(Step::Update { old: bytes, new, fresh, tuning });
            assert!(
                (after.bytes.low..=after.bytes.high).contains(&(bytes + measured)),
                "{measured}: {after:?} {cost:?}"
            );
        }
    }
}
