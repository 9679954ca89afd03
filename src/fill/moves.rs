//! What a compaction moves and writes to the WAL (pure).
//!
//! Of the WAL the least and the most are told: without full-page images, which are written for pages that have not been
//! changed since the last checkpoint, and with one for every page that may be touched; with `wal_level` logical every
//! version of a row is written whole besides.

use serde::Serialize;

use super::room::Front;
use crate::disk::layout::{PAGE_HEADER_SIZE, PageSize};
use crate::model::interval::Range;

/// Bytes of WAL records besides those of a tuple itself: for a row that is locked, one that is updated on its page, one that
/// leaves its page, and a chunk that is stored, with its index entry and the removal of the old one.
const LOCKED: f64 = 60.0;
const SAME_PAGE: f64 = 82.0;
const LEAVES: f64 = 80.0;
const CHUNK: f64 = 26.0 + 72.0 + 56.0;
/// Of a row whose values are stored anew.
const OWNER: f64 = 110.0;
/// Of a page that VACUUM cleans.
const CLEANED: f64 = 200.0;
/// Index entries that are written anew, as a multiple of what they take of an index that may be bloated, or is not.
const ENTRIES: (f64, f64) = (1.5, 3.0);
/// A full-page image besides what is on the page.
const IMAGE: f64 = 60.0;

/// The rows or values that a compaction of the file moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Blocks that would do.
    pub(crate) end: u32,
    /// Rows or values behind that.
    pub(crate) moved: u64,
    /// Their tuples: of values their chunks, those in front of the end too.
    pub(crate) tuples: u64,
    /// Bytes that moving them writes: of rows whole pages, since each is updated until its page is full; of values
    /// themselves as they are stored.
    pub(crate) bytes: u64,
    /// Bytes that their tuples take of pages.
    pub(crate) taken: u64,
    /// Blocks that they are taken from.
    pub(crate) blocks: u64,
    /// Blocks that have room for them.
    pub(crate) front: Front,
}

/// The files beside the one that is compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RelatedFiles {
    /// Bytes of the file's own indexes.
    pub(crate) index_bytes: u64,
    /// Of a TOAST relation: bytes of the table and of its indexes.
    pub(crate) table: Option<(u64, u64)>,
}

impl RelatedFiles {
    /// Of a table's file, whose indexes take so many bytes.
    pub(crate) fn of_table(index_bytes: u64) -> RelatedFiles {
        RelatedFiles { index_bytes, table: None }
    }
}

/// What compaction of a file would come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
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
    /// Whether a sample of the file's blocks stands for all.
    pub estimated: bool,
}

/// The WAL that moving this writes, of a file with so many live tuples.
pub(crate) fn wal(page: PageSize, moved: &Moved, live: u64, related: &RelatedFiles) -> Range {
    if moved.moved == 0 {
        return Range { low: 0, high: 0 };
    }
    let of = |number: u64| number as f64;
    let (tuples, taken, blocks) = (of(moved.tuples), of(moved.taken), of(moved.blocks));
    let part = (tuples / of(live).max(1.0)).min(1.0);
    let index = of(related.index_bytes);
    let page = page.bytes() as f64;
    let cleaned = blocks * CLEANED;
    let images = taken.min(blocks * page)
        + of(moved.front.taken)
        + (blocks + of(moved.front.blocks)) * IMAGE;
    let (low, more) = match related.table {
        None => {
            let room = (blocks * (page - PAGE_HEADER_SIZE as f64) - taken).max(0.0);
            let versions = room / (taken / tuples.max(1.0)).max(1.0);
            let records = versions * SAME_PAGE + taken + tuples * (LEAVES + LOCKED);
            let entries = index * part;
            let more = entries * (ENTRIES.1 - ENTRIES.0) + index.min(tuples * page) + room;
            (records + entries * ENTRIES.0 + cleaned, more)
        }
        Some((table, table_index)) => {
            let rows = of(moved.moved);
            let pages = rows * page;
            let more = of(table).min(pages) + of(table_index).min(pages);
            (taken + tuples * CHUNK + rows * OWNER + cleaned, index * part + more)
        }
    };
    Range { low: low as u64, high: (low + images + more).ceil() as u64 }
}
