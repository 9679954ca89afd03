//! What a compaction moves and writes to the WAL (pure).
//!
//! The estimate of WAL is a range. The lower figure is without full-page images, which are written for pages that
//! have not been changed since the last checkpoint. The upper figure includes an image of every page that may be
//! touched, and the whole of every row version, as written if `wal_level` is `logical`.

use serde::{Deserialize, Serialize};

use super::room::Front;
use crate::disk::PageSize;
use crate::disk::layout::PAGE_HEADER_SIZE;
use crate::model::Range;
use crate::model::wal::{CHUNK_DELETE, CHUNK_ENTRY, CHUNK_INSERT, ROW_LOCK, UPDATE_ON_PAGE};

/// Bytes of WAL records in addition to the space of the tuple itself: for locking a row and updating it on its page,
/// for moving a row off its page, and for storing a chunk with its index entry and removing the old one.
const SAME_PAGE: f64 = ROW_LOCK + UPDATE_ON_PAGE;
const LEAVES: f64 = 80.0;
const CHUNK: f64 = CHUNK_INSERT - 40.0 + CHUNK_ENTRY + CHUNK_DELETE;
/// For updating a row whose values are stored again.
const OWNER: f64 = 110.0;
/// For cleaning a page in VACUUM.
const CLEANED: f64 = 200.0;
/// The size of new index entries, as a multiple of their share of the index: if the index may be bloated, and if it
/// is not.
const ENTRIES: (f64, f64) = (1.5, 3.0);
/// The same of GIN indexes, which list rows in less than 2 bytes each, but write a record for each key of a row.
const GIN_ENTRIES: (f64, f64) = (2.0, 8.0);
/// How often an image of each page of a GIN index is written at most: by new entries, and by VACUUM.
const GIN_IMAGES: f64 = 2.0;
/// The size of a full-page image in addition to the content of the page.
const IMAGE: f64 = 60.0;

/// The rows or values that compaction of a file moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// The number of blocks that would suffice.
    pub end: u32,
    /// The number of rows or values behind that end.
    pub moved: u64,
    /// The number of their tuples. The tuples of a value are its chunks, including those in front of the end.
    pub tuples: u64,
    /// Bytes that moving them writes: for rows, whole pages, because each row is updated until its page is full; for
    /// values, their stored size.
    pub bytes: u64,
    /// Bytes that their tuples occupy on pages.
    pub taken: u64,
    /// The number of blocks from which they are moved.
    pub blocks: u64,
    /// The blocks that have room for them.
    pub front: Front,
}

/// The sizes of files related to the one that is compacted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RelatedFiles {
    /// The size of the file's own indexes, in bytes.
    pub index_bytes: u64,
    /// The size of the table's GIN indexes, which are among its indexes, in bytes.
    pub gin_bytes: u64,
    /// For a TOAST relation: the sizes of the table and of its indexes, in bytes.
    pub table: Option<(u64, u64)>,
}

/// What compaction of a file would come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Expected {
    /// Bytes by which the file would be shorter.
    pub gives_back: u64,
    /// Rows that would be moved, if the file is the table's.
    pub rows: Option<u64>,
    /// Values that would be moved, if it is the TOAST relation's.
    pub values: Option<u64>,
    /// Bytes that moving them writes: of rows whole pages, of values as they are stored; of an index all of the fresh
    /// one.
    pub moved_bytes: u64,
    /// WAL written: the lower figure is without full-page images, the upper one with an image of each page touched.
    pub wal_bytes: Range,
    /// Bytes by which GIN indexes may grow, because each moved row has new entries in them.
    #[serde(default)]
    pub gin_growth: u64,
    /// Whether a sample of the file's blocks stands for all.
    pub estimated: bool,
}

impl Expected {
    /// Whether GIN indexes may grow by half of what is returned, so that they are to be rebuilt too.
    pub fn needs_rebuild(&self) -> bool {
        self.gin_growth > 0 && self.gin_growth >= self.gives_back / 2
    }

    /// What the compaction of two files would come to.
    pub fn plus(&self, more: &Expected) -> Expected {
        Expected {
            gives_back: self.gives_back + more.gives_back,
            rows: sum_of_known(self.rows, more.rows),
            values: sum_of_known(self.values, more.values),
            moved_bytes: self.moved_bytes + more.moved_bytes,
            wal_bytes: self.wal_bytes.plus(more.wal_bytes),
            gin_growth: self.gin_growth + more.gin_growth,
            estimated: self.estimated || more.estimated,
        }
    }
}

fn sum_of_known(sum: Option<u64>, more: Option<u64>) -> Option<u64> {
    if sum.is_none() && more.is_none() {
        return None;
    }
    Some(sum.unwrap_or(0) + more.unwrap_or(0))
}

/// Bytes by which GIN indexes grow at most, if the file has `live` live tuples: the entries of the rows moved, on pages that
/// were full and are split.
pub fn gin_growth(moved: &Moved, live: u64, related: &RelatedFiles) -> u64 {
    let part = (2.0 * moved.tuples as f64 / (live as f64).max(1.0)).min(1.0);
    (related.gin_bytes as f64 * part) as u64
}

/// The WAL written by moving this, if the file has `live` live tuples.
pub fn wal(page: PageSize, moved: &Moved, live: u64, related: &RelatedFiles) -> Range {
    if moved.moved == 0 {
        return Range { low: 0, high: 0 };
    }
    let tuples = moved.tuples as f64;
    let taken = moved.taken as f64;
    let blocks = moved.blocks as f64;
    let part = (tuples / (live as f64).max(1.0)).min(1.0);
    let gin = related.gin_bytes as f64;
    let page = page.bytes() as f64;
    let images = taken.min(blocks * page)
        + moved.front.taken as f64
        + (blocks + moved.front.blocks as f64) * IMAGE;
    let (low, more) = match related.table {
        None => {
            let room = (blocks * (page - PAGE_HEADER_SIZE as f64) - taken).max(0.0);
            let versions = room / (taken / tuples.max(1.0)).max(1.0);
            let records = versions * SAME_PAGE + taken + tuples * (LEAVES + ROW_LOCK);
            let index = related.index_bytes as f64 - gin;
            let entries = index * part;
            let more = entries * (ENTRIES.1 - ENTRIES.0) + index.min(tuples * page) + room;
            let of_gin = gin * part * GIN_ENTRIES.0;
            let more_of_gin = gin * part * (GIN_ENTRIES.1 - GIN_ENTRIES.0) + gin * GIN_IMAGES;
            (wal_of_rows(records, entries, blocks) + of_gin, more + more_of_gin)
        }
        Some((table, table_index)) => {
            let index = related.index_bytes as f64;
            let rows = moved.moved as f64;
            let pages = rows * page;
            let more = (table as f64).min(pages) + (table_index as f64 - gin).min(pages);
            // rows that do not fit on their pages any more have new entries
            let more_of_gin = gin * part * GIN_ENTRIES.1 + gin * GIN_IMAGES;
            let low = wal_of_values(rows, tuples, taken) + blocks * CLEANED;
            (low, index * part + more + more_of_gin)
        }
    };
    Range { low: low as u64, high: (low + images + more).ceil() as u64 }
}

/// The WAL written by storing the values of `rows` rows again, without full-page images and cleaning: their chunks occupy
/// `taken` bytes.
pub fn wal_of_values(rows: f64, chunks: f64, taken: f64) -> f64 {
    taken + chunks * CHUNK + rows * OWNER
}

/// The WAL written by moving rows from this number of blocks without full-page images, if their versions take `records`
/// and their index entries occupy `entries`.
pub fn wal_of_rows(records: f64, entries: f64, blocks: f64) -> f64 {
    records + entries * ENTRIES.0 + blocks * CLEANED
}
