//! The size of a freshly built btree (`_bt_buildadd`, nbtsort.c), whose leaf pages are filled one after another up to
//! the fillfactor, with the levels above them; and of one filled by chunks with ascending keys, like that of a TOAST
//! relation (nbtsplitloc.c).

use crate::disk::layout::{LINE_POINTER_SIZE, PAGE_HEADER_SIZE};
use crate::disk::{PageSize, max_align};
use crate::model::cost::{CHUNKS_PER_PAGE, ReadWork};

/// Size of `BTPageOpaqueData` (`nbtree.h`).
const SPECIAL: usize = 16;
/// `BTREE_NONLEAF_FILLFACTOR` in percent (`nbtree.h`).
const INNER_FILLFACTOR: u8 = 70;
/// `BTREE_DEFAULT_FILLFACTOR` in percent (`nbtree.h`).
pub const DEFAULT_FILLFACTOR: u8 = 90;
/// Size of `IndexTupleData` (`itup.h`).
const TUPLE_HEADER: usize = 8;
/// The size of the keys in the index of a TOAST relation: `chunk_id` and `chunk_seq`, neither of which is ever NULL.
pub const TOAST_KEYS: usize = 8;
/// `sizeof(ItemPointerData)`, aligned: the space that a leaf page keeps free for the heap TID of its high key.
const HEAP_TID: f64 = 8.0;

/// Space on a page for entries and their line pointers, without the line pointer of the high key.
pub fn room(page: PageSize) -> usize {
    page.bytes() - PAGE_HEADER_SIZE - SPECIAL - LINE_POINTER_SIZE
}

/// The size of an entry with keys of this size, including its line pointer.
pub fn entry_bytes(keys: usize) -> usize {
    max_align(TUPLE_HEADER + keys) + LINE_POINTER_SIZE
}

/// WAL written when a btree of this size is built: images of its pages without their free space (`_bt_blwritepage`,
/// nbtsort.c). With `wal_compression` it is less, and with `wal_level` minimal none.
pub fn build_wal(page: PageSize, bytes: u64, fillfactor: u8) -> u64 {
    const RECORD: u64 = 50;
    let pages = bytes / page.bytes() as u64;
    bytes * u64::from(fillfactor) / 100 + pages * RECORD
}

/// An index larger than a fresh one by more than this factor is bloated.
const TOO_LARGE: f64 = 1.3;
/// The minimum number of bytes worth a rebuild.
const WORTH: u64 = 64 << 10;

/// Whether an index of this size is much larger than a fresh one.
pub fn is_bloated(bytes: u64, fresh: u64) -> bool {
    bytes as f64 > fresh as f64 * TOO_LARGE && bytes.saturating_sub(fresh) >= WORTH
}

/// The maximum size of an index that is not bloated.
pub fn least_bloated(fresh: u64) -> u64 {
    ((fresh as f64 * TOO_LARGE) as u64).max(fresh.saturating_add(WORTH))
}

/// The entries of an index.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entries {
    /// The number of entries.
    pub number: f64,
    /// The average size of an entry, including its line pointer.
    pub bytes: f64,
    /// Whether all have the same size.
    pub same: bool,
}

impl Entries {
    /// The number of pages of a fresh btree with these entries, including the metapage.
    pub fn fresh_pages(self, page: PageSize, fillfactor: u8) -> u64 {
        if self.number < 0.5 {
            return 1;
        }
        let leaf = self.on_page(page, fillfactor, HEAP_TID + LINE_POINTER_SIZE as f64);
        let inner = self.on_page(page, INNER_FILLFACTOR, 0.0);
        let mut level = pages(self.number, leaf);
        let mut all = 1 + level;
        while level > 1 {
            level = pages(level as f64, inner);
            all += level;
        }
        all
    }

    /// The number of entries that remain on a full page: the last one added moves to the next page. `beside`: bytes
    /// that must be free in addition to the size of a further entry.
    fn on_page(self, page: PageSize, fillfactor: u8, beside: f64) -> f64 {
        let fillfactor = usize::from(fillfactor.clamp(10, 100));
        let kept_free = (page.bytes() * (100 - fillfactor) / 100) as f64;
        // `PageGetFreeSpace` subtracts the size of a line pointer.
        let room = (room(page) - LINE_POINTER_SIZE) as f64;
        let fit = (room - kept_free.max(self.bytes + beside)) / self.bytes.max(12.0);
        // On average, entries of different sizes exceed the limit by half an entry.
        if self.same { fit.floor().max(2.0) } else { (fit - 0.5).max(2.0) }
    }
}

/// The number of pages for these entries; the last page takes one entry more.
fn pages(entries: f64, on_page: f64) -> u64 {
    (((entries - 1.0) / on_page).ceil() as u64).max(1)
}

/// The btree on `(chunk_id, chunk_seq)`, filled in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToastIndex {
    /// The number of pages, including the metapage.
    pub pages: u64,
    /// The number of pages from the root to a leaf, including both; 0 if there are no entries.
    pub levels: u32,
}

impl ToastIndex {
    /// The index of a TOAST relation with this many chunks.
    pub fn new(page: PageSize, chunks: u64) -> ToastIndex {
        if chunks == 0 {
            return ToastIndex { pages: 1, levels: 0 };
        }
        let mut on_level = split_pages(page, chunks, entries_per_leaf(page));
        let mut pages = 1 + on_level;
        let mut levels = 1;
        while on_level > 1 {
            on_level = split_pages(page, on_level, entries_per_inner_page(page));
            pages += on_level;
            levels += 1;
        }
        ToastIndex { pages, levels }
    }

    /// How many pages one more chunk adds to a large index.
    pub fn pages_per_chunk(page: PageSize) -> f64 {
        let inner = entries_per_inner_page(page) as f64;
        1.0 / entries_per_leaf(page) as f64 * (1.0 + 1.0 / (inner - 1.0))
    }

    /// The work of reading one value of `stored` bytes from the TOAST relation. `levels`: the number of index pages
    /// from the root to a leaf, including both; `visits`: how often the next chunk is on another page than the previous
    /// one, if the chunks are not stored consecutively.
    pub fn read(page: PageSize, levels: u32, stored: u32, visits: Option<u32>) -> ReadWork {
        let chunks = page.chunks(stored);
        // If the index has only one leaf page, the chunks cannot continue on another.
        let more = if levels > 1 { ToastIndex::pages_per_chunk(page) } else { 0.0 };
        ReadWork {
            lookups: 1.0,
            index_pages: f64::from(levels) + f64::from(chunks) * more,
            toast_pages: f64::from(visits.unwrap_or(chunks.div_ceil(CHUNKS_PER_PAGE))),
            chunks: f64::from(chunks),
            copied_bytes: f64::from(stored),
            ..ReadWork::default()
        }
    }
}

/// The number of entries, without the high key, that remain on the left page when a page is split at the right end: the
/// fillfactor's share of the page, without the special space.
fn entries(page: PageSize, fillfactor: u8) -> u64 {
    let usable = room(page) + LINE_POINTER_SIZE;
    let free = page.bytes() * usize::from(100 - fillfactor) / 100;
    ((usable - free) / entry_bytes(TOAST_KEYS)).max(2) as u64
}

/// The number of pages of a level with these entries in ascending order. Each page was split when it was full, and kept
/// this many; the last one, which may be the only one, has not been split yet.
fn split_pages(page: PageSize, entries: u64, kept: u64) -> u64 {
    let full = ((room(page) + LINE_POINTER_SIZE) / entry_bytes(TOAST_KEYS)) as u64;
    1 + entries.saturating_sub(full).div_ceil(kept)
}

fn entries_per_leaf(page: PageSize) -> u64 {
    entries(page, DEFAULT_FILLFACTOR)
}

fn entries_per_inner_page(page: PageSize) -> u64 {
    entries(page, INNER_FILLFACTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: PageSize = PageSize::DEFAULT;

    #[test]
    fn the_index_as_servers_build_it() {
        // Measured: 112 pages for 40,000 chunks, 84 pages for 30,000 chunks.
        assert_eq!(ToastIndex::new(PAGE, 40_000), ToastIndex { pages: 112, levels: 2 });
        assert_eq!(ToastIndex::new(PAGE, 30_000), ToastIndex { pages: 84, levels: 2 });
        // A root keeps 407 leaves; the pages below it that have been split keep 285.
        assert_eq!(ToastIndex::new(PAGE, 120_000).levels, 2);
        assert_eq!(ToastIndex::new(PAGE, 155_000).levels, 3);
        assert_eq!(ToastIndex::new(PAGE, 0), ToastIndex { pages: 1, levels: 0 });
        assert_eq!(ToastIndex::new(PAGE, 1), ToastIndex { pages: 2, levels: 1 });
    }

    fn fresh(number: u32, keys: usize, fillfactor: u8) -> u64 {
        let entries =
            Entries { number: f64::from(number), bytes: entry_bytes(keys) as f64, same: true };
        entries.fresh_pages(PageSize::DEFAULT, fillfactor)
    }

    #[test]
    fn pages_are_those_of_fresh_indexes() {
        // Results of pg_relation_size after CREATE INDEX on an int column with this number of rows, on PostgreSQL 15.
        assert_eq!([fresh(0, 4, 90), fresh(1, 4, 90), fresh(367, 4, 90)], [1, 2, 2]);
        assert_eq!([fresh(368, 4, 90), fresh(100_000, 4, 90)], [4, 276]);
    }

    #[test]
    fn a_lower_fillfactor_takes_more_and_no_entry_is_too_large() {
        assert!(fresh(100_000, 4, 50) > 480);
        assert!(fresh(100_000, 4, 100) < 256);
        let huge = Entries { number: 1000.0, bytes: 2700.0, same: false };
        assert!((500..=1100).contains(&huge.fresh_pages(PageSize::DEFAULT, 90)));
        let absurd = Entries { number: 1e18, bytes: 0.0, same: true };
        assert!(absurd.fresh_pages(PageSize::DEFAULT, 0) > 1 << 40);
    }
}
