//! How large a btree is that is built anew (`_bt_buildadd`, nbtsort.c): leaves one after the other up to the
//! fillfactor, and the levels above them.

use crate::disk::layout::{LINE_POINTER_SIZE, PAGE_HEADER_SIZE, PageSize};
use crate::disk::max_align;

/// `BTPageOpaqueData`.
const SPECIAL: usize = 16;
/// `BTREE_NONLEAF_FILLFACTOR`.
const INNER_FILLFACTOR: u8 = 70;
/// `BTREE_DEFAULT_FILLFACTOR`.
pub(crate) const DEFAULT_FILLFACTOR: u8 = 90;
/// `IndexTupleData`.
const TUPLE_HEADER: usize = 8;
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

#[cfg(test)]
mod tests {
    use super::*;

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
