//! How large a btree is that is built anew (`_bt_buildadd`, nbtsort.c): leaves one after the other up to the
//! fillfactor, and the levels above them; and one that chunks with ascending keys have filled, as a TOAST
//! relation's (nbtsplitloc.c).

use crate::disk::layout::{LINE_POINTER_SIZE, PAGE_HEADER_SIZE, PageSize};
use crate::disk::max_align;
use crate::model::cost::{CHUNKS_PER_PAGE, ReadWork};

/// `BTPageOpaqueData`.
const SPECIAL: usize = 16;
/// `BTREE_NONLEAF_FILLFACTOR`.
const INNER_FILLFACTOR: u8 = 70;
/// `BTREE_DEFAULT_FILLFACTOR`.
pub(crate) const DEFAULT_FILLFACTOR: u8 = 90;
/// `IndexTupleData`.
const TUPLE_HEADER: usize = 8;
/// Bytes of the keys of a TOAST relation's index: `chunk_id` and `chunk_seq`, neither of which is ever null.
pub(crate) const TOAST_KEYS: usize = 8;
/// `sizeof(ItemPointerData)`, aligned: what a leaf keeps free for the high key's heap TID.
const HEAP_TID: f64 = 8.0;

/// Bytes of a page that entries and their line pointers can take, the high key's line pointer apart.
pub(crate) fn room(page: PageSize) -> usize {
    page.bytes() - PAGE_HEADER_SIZE - SPECIAL - LINE_POINTER_SIZE
}

/// Bytes of an entry whose keys take so many, line pointer included.
pub(crate) fn entry_bytes(keys: usize) -> usize {
    max_align(TUPLE_HEADER + keys) + LINE_POINTER_SIZE
}

/// Bytes of WAL that building a btree of so many bytes writes: its pages as images, without what they have free
/// (`_bt_blwritepage`, nbtsort.c). With `wal_compression` it is less, with `wal_level` minimal nothing.
pub(crate) fn build_wal(page: PageSize, bytes: u64, fillfactor: u8) -> u64 {
    const RECORD: u64 = 50;
    let pages = bytes / page.bytes() as u64;
    bytes * u64::from(fillfactor) / 100 + pages * RECORD
}

/// So many times what a fresh one would take is too large.
const TOO_LARGE: f64 = 1.3;
/// Fewer bytes are not worth a rebuild.
const WORTH: u64 = 64 << 10;

/// Whether an index of so many bytes is much larger than a fresh one.
pub(crate) fn is_bloated(bytes: u64, fresh: u64) -> bool {
    bytes as f64 > fresh as f64 * TOO_LARGE && bytes.saturating_sub(fresh) >= WORTH
}

/// Bytes up to which an index is not much larger than a fresh one.
pub(crate) fn least_bloated(fresh: u64) -> u64 {
    ((fresh as f64 * TOO_LARGE) as u64).max(fresh.saturating_add(WORTH))
}

/// What an index has to hold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Entries {
    /// How many.
    pub(crate) number: f64,
    /// Bytes of one on average, line pointer included.
    pub(crate) bytes: f64,
    /// Whether all are of the same size.
    pub(crate) same: bool,
}

impl Entries {
    /// Pages of a fresh btree of them, the metapage included.
    pub(crate) fn fresh_pages(self, page: PageSize, fillfactor: u8) -> u64 {
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

    /// Entries that a page ends up with: the last one added becomes the first of the next page. `beside`: bytes
    /// that must be free besides a further entry's.
    fn on_page(self, page: PageSize, fillfactor: u8, beside: f64) -> f64 {
        let fillfactor = usize::from(fillfactor.clamp(10, 100));
        let kept_free = (page.bytes() * (100 - fillfactor) / 100) as f64;
        // `PageGetFreeSpace` takes a line pointer off
        let room = (room(page) - LINE_POINTER_SIZE) as f64;
        let fit = (room - kept_free.max(self.bytes + beside)) / self.bytes.max(12.0);
        // entries of many sizes end half an entry beyond the limit, on average
        if self.same { fit.floor().max(2.0) } else { (fit - 0.5).max(2.0) }
    }
}

/// Pages for so many entries, of which the last page takes one more.
fn pages(entries: f64, on_page: f64) -> u64 {
    (((entries - 1.0) / on_page).ceil() as u64).max(1)
}

/// The btree on `(chunk_id, chunk_seq)`, filled in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToastIndex {
    /// Pages, the metapage included.
    pub pages: u64,
    /// Pages from the root to a leaf, both included; 0 if there are no entries.
    pub levels: u32,
}

impl ToastIndex {
    /// The index of a TOAST relation with this many chunks.
    pub fn of(page: PageSize, chunks: u64) -> ToastIndex {
        if chunks == 0 {
            return ToastIndex { pages: 1, levels: 0 };
        }
        let mut on_level = chunks.div_ceil(entries_per_leaf(page));
        let (mut pages, mut levels) = (1 + on_level, 1);
        while on_level > 1 {
            on_level = on_level.div_ceil(entries_per_inner_page(page));
            pages += on_level;
            levels += 1;
        }
        ToastIndex { pages, levels }
    }

    /// What `chunks` entries add to the pages of a big index.
    pub fn pages_per_chunk(page: PageSize) -> f64 {
        let inner = entries_per_inner_page(page) as f64;
        1.0 / entries_per_leaf(page) as f64 * (1.0 + 1.0 / (inner - 1.0))
    }

    /// What reading one value of `stored` bytes out of the TOAST relation takes. `levels`: pages of the index from the
    /// root to a leaf, both included; `visits`: how often the next chunk is on another page than the one before, of
    /// chunks that do not stand one after the other.
    pub(crate) fn read(page: PageSize, levels: u32, stored: u32, visits: Option<u32>) -> ReadWork {
        let chunks = page.chunks(stored);
        // an index of one leaf has no other that chunks could go on in
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

/// Entries besides the high key that a page split at the right end leaves on the left page: the
/// fillfactor's part, without the special space.
fn entries(page: PageSize, fillfactor: u8) -> u64 {
    let usable = room(page) + LINE_POINTER_SIZE;
    let free = page.bytes() * usize::from(100 - fillfactor) / 100;
    ((usable - free) / entry_bytes(TOAST_KEYS)).max(2) as u64
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
        // measured: 40,000 chunks, 112 pages; 30,000 chunks, 84 pages
        assert_eq!(ToastIndex::of(PAGE, 40_000), ToastIndex { pages: 112, levels: 2 });
        assert_eq!(ToastIndex::of(PAGE, 30_000), ToastIndex { pages: 84, levels: 2 });
        assert_eq!(ToastIndex::of(PAGE, 0), ToastIndex { pages: 1, levels: 0 });
        assert_eq!(ToastIndex::of(PAGE, 1), ToastIndex { pages: 2, levels: 1 });
    }

    fn fresh(number: u32, keys: usize, fillfactor: u8) -> u64 {
        let entries =
            Entries { number: f64::from(number), bytes: entry_bytes(keys) as f64, same: true };
        entries.fresh_pages(PageSize::DEFAULT, fillfactor)
    }

    #[test]
    fn pages_are_those_of_fresh_indexes() {
        // pg_relation_size of CREATE INDEX on an int column of so many rows, by PostgreSQL 15
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
