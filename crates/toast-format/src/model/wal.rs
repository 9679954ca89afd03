//! What PostgreSQL writes to the WAL (pure): the sizes of records, and what follows from them for updates and VACUUM.
//!
//! A record has 24 bytes of header (`XLogRecord`), 20 for the block that it changes and 8 for another one of the same
//! relation (`XLogRecordBlockHeader`, xlogrecord.h), 2 for the length of its own data, these, and the tuple; all of that
//! is aligned to 8 bytes. Versions differ only in what VACUUM writes about a page.

use derive_more::{Add, AddAssign};

/// The lock that an UPDATE takes while a row's page is unlocked, because values may be stored out of line or because the
/// new version goes to another page (`xl_heap_lock`, heapam_xlog.h).
pub const ROW_LOCK: f64 = 56.0;
/// A row version on the page of the one before, of which what is the same at its beginning and end is left out; without
/// the bytes that change (`xl_heap_update`; `log_heap_update`, heapam.c).
pub const UPDATE_ON_PAGE: f64 = 72.0;
/// A row version on another page, without its tuple.
pub const UPDATE_TO_OTHER_PAGE: f64 = 56.0;
/// Storing a chunk, without its data (`xl_heap_insert`, and the tuple's header, `chunk_id` and `chunk_seq`).
pub const CHUNK_INSERT: f64 = 68.0;
/// A chunk's entry in the index of the TOAST relation (`xl_btree_insert`, nbtxlog.h), with its share of page splits.
pub const CHUNK_ENTRY: f64 = 66.0;
/// Deleting a chunk (`xl_heap_delete`).
pub const CHUNK_DELETE: f64 = 56.0;
/// Removing a deleted chunk's line pointer and index entry in VACUUM.
pub const CHUNK_REMOVED: f64 = 4.0 + 4.0;
/// Pruning a page (`xl_heap_prune`), without its rows.
pub const PAGE_PRUNED: f64 = 56.0;
/// Each row that is pruned.
pub const ROW_PRUNED: f64 = 5.0;
/// Inserting a btree entry, without the entry (`xl_btree_insert`).
pub const BTREE_INSERT: f64 = 48.0;
/// Vacuuming a btree's leaf page, without the entries that are removed (`xl_btree_vacuum`).
pub const BTREE_LEAF_VACUUMED: f64 = 64.0;
/// Each entry that is removed from such a page.
pub const BTREE_ENTRY_REMOVED: f64 = 4.0;
/// A page split of a btree, as a fraction of the new leaf page.
pub const BTREE_SPLIT: f64 = 0.55;
/// A GIN entry that is inserted or gets more rows, without key and rows (`ginxlogInsert`, ginxlog.h).
pub const GIN_INSERT: f64 = 56.0;
/// The same of one whose rows have pages of their own.
pub const GIN_INSERT_INTO_TREE: f64 = 300.0;
/// A row's keys in the list of new entries, without the keys (`ginxlogUpdateMeta`).
pub const GIN_LISTED: f64 = 200.0;
/// A GIN page with keys in VACUUM, which is written as a whole, as a fraction of the page: pages are filled by inserting
/// keys in random order.
pub const GIN_PAGE_VACUUMED: f64 = 0.52;
/// A GIN page with lists of rows in VACUUM.
pub const GIN_LEAF_VACUUMED: f64 = 700.0;

/// The data written by an UPDATE of values.
#[derive(Debug, Clone, Copy, PartialEq, Default, Add, AddAssign)]
pub struct UpdateWork {
    /// The number of rows updated.
    pub rows: f64,
    /// The size of the new heap tuples, including line pointers.
    pub heap_bytes: f64,
    /// The size of the new chunks' tuples, including line pointers.
    pub toast_bytes: f64,
    /// The number of new chunks.
    pub chunks: f64,
    /// The number of old chunks that are deleted.
    pub deleted_chunks: f64,
}

/// The size of an entry in the TOAST index, including its line pointer.
const INDEX_ENTRY: f64 = 20.0;
/// WAL of one heap UPDATE in addition to its tuple's space on the page, which includes the header and the line pointer.
const WAL_UPDATE: f64 = 46.0;
/// WAL of one chunk's INSERT in addition to its space on the page.
const WAL_INSERT: f64 = CHUNK_INSERT - 40.0;
/// WAL of a heap UPDATE that leaves the new row version on its page, and of which only the change is logged
/// (`log_heap_update`): record, block reference, `xl_heap_update`, the lengths of what is the same before and behind the
/// change, `xl_heap_header`, and one to ten bytes that are changed.
const WAL_HOT_CHANGE: f64 = 76.0;
/// The reference to a second block, which such a record does not have.
const WAL_SECOND_BLOCK: f64 = 8.0;
/// WAL pages have 8 kB (unless the server was built with another size) and headers of 24 bytes.
const WAL_PAGES: f64 = 8192.0 / (8192.0 - 24.0);

impl UpdateWork {
    /// Bytes written to the relations.
    pub fn bytes(&self) -> f64 {
        self.heap_bytes + self.toast_bytes + self.chunks * INDEX_ENTRY
    }

    /// Bytes of WAL of an UPDATE of these rows that changes a number and leaves each new row version on its page. For
    /// `toaster_rows` of them, the toaster is called, and a lock is logged. `logical`: whether whole rows are logged, for
    /// logical decoding. Pruning is not included.
    pub fn hot_wal_bytes(&self, toaster_rows: f64, logical: bool) -> f64 {
        let records = if logical {
            self.rows * (WAL_UPDATE - WAL_SECOND_BLOCK) + self.heap_bytes
        } else {
            self.rows * WAL_HOT_CHANGE
        };
        (records + toaster_rows * ROW_LOCK) * WAL_PAGES
    }

    /// Bytes of WAL without full-page images, the commit record, and the changes of the table's own indexes. The new
    /// row version is assumed to go to another page, as it does if pages are full.
    pub fn wal_bytes(&self) -> f64 {
        let records = self.rows * (ROW_LOCK + WAL_UPDATE)
            + self.heap_bytes
            + self.toast_bytes
            + self.chunks * (WAL_INSERT + CHUNK_ENTRY)
            + self.deleted_chunks * CHUNK_DELETE;
        records * WAL_PAGES
    }
}

/// WAL of pruning a page in VACUUM, of removing dead line pointers from it, and of entering it in the visibility map
/// (`xl_heap_prune`, `xl_heap_visible`, heapam_xlog.h); and of the last in the record of one of the others.
const WAL_PRUNE: f64 = 64.0;
const WAL_POINTERS: f64 = 56.0;
const WAL_VISIBLE: f64 = 64.0;
const WAL_VISIBLE_TOO: f64 = 8.0;
/// The first version in which line pointers of a table without indexes are removed when the page is pruned, and the
/// first in which the same record changes the visibility map.
const PRUNES_POINTERS: i32 = 170_000;
const PRUNE_SETS_VISIBLE: i32 = 190_000;

/// WAL of a page in VACUUM, without full-page images. `pointers`: whether deleted rows, or rows that have left the page,
/// leave line pointers.
pub fn vacuum_wal(version_num: i32, pointers: bool, has_indexes: bool) -> f64 {
    let is_apart = has_indexes || version_num < PRUNES_POINTERS;
    let removes = if pointers && is_apart { WAL_POINTERS } else { 0.0 };
    let is_own = version_num < PRUNE_SETS_VISIBLE;
    WAL_PRUNE + removes + if is_own { WAL_VISIBLE } else { WAL_VISIBLE_TOO }
}
