//! The pages of a heap while it is swept and compacted (pure): where new row versions go, and what moving rows off the
//! last pages writes. A sample of pages stands for all.

use std::iter;

use toast_format::disk::layout::{LINE_POINTER_SIZE, PAGE_HEADER_SIZE};
use toast_format::disk::{PageSize, max_align};
use toast_format::model::pages::chunk_bytes;
use toast_format::model::wal::{ROW_LOCK, UPDATE_ON_PAGE, UPDATE_TO_OTHER_PAGE};

/// Rows longer than this are offered to the TOAST code by each UPDATE (`TOAST_TUPLE_THRESHOLD`, heaptoast.h).
const TOASTED: u32 = 2032;

/// A row to re-toast: before and after.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct RowChange {
    /// The length of its tuple.
    pub(crate) tuple: (u32, u32),
    /// The bytes of the new tuple that differ from the old one.
    pub(crate) changed: u32,
    /// The number of chunks of its values that change.
    pub(crate) chunks: (u32, u32),
    /// The bytes of these values out of line.
    pub(crate) external: (u64, u64),
    /// The bytes of the row's other values out of line.
    pub(crate) kept: u64,
}

impl RowChange {
    /// What its new values take of the TOAST relation and of its index.
    pub(crate) fn toast_bytes(&self, page: PageSize) -> u64 {
        const ENTRY: u64 = 32;
        let stored = u32::try_from(self.external.1).unwrap_or(u32::MAX);
        chunk_bytes(page, stored) + u64::from(self.chunks.1) * ENTRY
    }

    pub(super) fn new_tuple(&self) -> Tuple {
        Tuple { length: self.tuple.1, is_outside: self.chunks.1 > 0 || self.kept > 0 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tuple {
    pub(crate) length: u32,
    /// Whether the row has values out of line.
    pub(crate) is_outside: bool,
}

/// A page of the sample.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SampledPage {
    pub(crate) free: u32,
    /// Whether it was last changed before the last checkpoint began.
    pub(crate) is_unchanged: bool,
    /// Its rows to re-toast.
    pub(crate) rows: Vec<RowChange>,
    pub(crate) others: Vec<Tuple>,
}

/// What a tuple of this length takes of a page.
pub(super) fn taken(tuple: u32) -> f64 {
    max_align(tuple as usize) as f64 + LINE_POINTER_SIZE as f64
}

impl Tuple {
    /// WAL of locking the row before it is updated, which is needed while its page is unlocked: because a value may be
    /// stored out of line, or because the new version goes to another page (`heap_update`, heapam.c).
    fn lock(self, leaves: bool) -> f64 {
        if leaves || self.is_outside || self.length > TOASTED { ROW_LOCK } else { 0.0 }
    }
}

/// Where rows that leave their pages go: to pages with free space that a VACUUM has found, or to new ones
/// (`RelationGetBufferForTuple`, hio.c).
pub(super) struct Heap {
    /// New pages are at the end.
    pages: Vec<HeapPage>,
    /// The number of pages that are not new.
    old: usize,
    /// The page that the last row went to.
    last: Option<usize>,
    /// What rows that come from another page leave free, and what a new page has.
    reserved: f64,
    room: f64,
    /// Dead bytes since the last VACUUM, and how many bring about the next one.
    dead: f64,
    pub(super) limit: f64,
}

#[derive(Clone)]
struct HeapPage {
    /// Its free space, and what the free space map has of it.
    free: f64,
    known: f64,
    /// Its rows that are not to be re-toasted, or were.
    rows: Vec<Tuple>,
    /// Whether it was last changed before the last checkpoint began.
    is_unchanged: bool,
    /// Whether the sweep changes it.
    is_swept: bool,
}

impl HeapPage {
    /// Stores a tuple here, if there is room.
    fn store(&mut self, tuple: Tuple) -> bool {
        let has_room = taken(tuple.length) <= self.free;
        if has_room {
            self.free -= taken(tuple.length);
            self.rows.push(tuple);
        }
        has_room
    }

    /// WAL of updating the page's rows, one after the other, until all have left it.
    fn emptied(&self) -> f64 {
        let mut free = self.free;
        let mut rows = self.rows.clone();
        let mut records = 0.0;
        while !rows.is_empty() {
            rows.retain(|row| {
                let stays = taken(row.length) <= free;
                if stays {
                    free -= taken(row.length);
                    records += UPDATE_ON_PAGE;
                } else {
                    // at first, the row was locked by the statement
                    records += UPDATE_TO_OTHER_PAGE + f64::from(row.length) + ROW_LOCK;
                }
                records += row.lock(!stays);
                stays
            });
        }
        records
    }
}

/// What compaction does to the heap.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Emptied {
    /// The number of pages that the file has less.
    pub(super) pages: f64,
    /// Of all rows, those that are moved.
    pub(super) part: f64,
    /// WAL of their versions.
    pub(super) records: f64,
    /// Images of pages that only compaction changes: of those not changed since the last checkpoint, and of all.
    pub(super) images: (f64, f64),
}

impl Emptied {
    pub(super) fn scaled(self, by: f64) -> Emptied {
        Emptied {
            pages: self.pages * by,
            part: self.part,
            records: self.records * by,
            images: (self.images.0 * by, self.images.1 * by),
        }
    }
}

impl Heap {
    /// The heap before the sweep, if each page of the sample stands for `copies` pages. Nothing is vacuumed unless
    /// `limit` is set.
    pub(super) fn new(
        sample: &[SampledPage],
        copies: usize,
        size: PageSize,
        fillfactor: u8,
    ) -> Heap {
        let mut pages = Vec::with_capacity(sample.len() * copies);
        for page in sample {
            let page = HeapPage {
                free: f64::from(page.free),
                known: f64::from(page.free),
                rows: page.others.clone(),
                is_unchanged: page.is_unchanged,
                is_swept: !page.rows.is_empty(),
            };
            pages.extend(iter::repeat_n(page, copies));
        }
        Heap {
            old: pages.len(),
            pages,
            last: None,
            reserved: size.bytes() as f64 * f64::from(100 - fillfactor.min(100)) / 100.0,
            room: (size.bytes() - PAGE_HEADER_SIZE) as f64,
            dead: 0.0,
            limit: f64::INFINITY,
        }
    }

    /// The number of new pages.
    pub(super) fn added(&self) -> f64 {
        (self.pages.len() - self.old) as f64
    }

    /// The fraction of pages that have less room than this.
    pub(super) fn full(&self, room: f64) -> f64 {
        let full = self.pages.iter().filter(|page| page.free < room).count();
        full as f64 / self.pages.len().max(1) as f64
    }

    /// Stores a new version of a row on the row's own page, if that has room.
    pub(super) fn stays(&mut self, at: usize, tuple: Tuple) -> bool {
        self.pages.get_mut(at).is_some_and(|page| page.store(tuple))
    }

    /// Stores a new version of a row elsewhere than on this page.
    pub(super) fn leaves(&mut self, from: usize, tuple: Tuple) {
        let wanted = taken(tuple.length) + self.reserved;
        let fits = |pages: &[HeapPage], at: usize| {
            at != from && pages.get(at).is_some_and(|page| page.free >= wanted)
        };
        let mut to = self.last.filter(|&last| fits(&self.pages, last));
        while to.is_none() {
            let mut pages = self.pages.iter_mut().enumerate();
            let found = pages.find(|(at, page)| *at != from && page.known >= wanted);
            let Some((at, page)) = found else { break };
            // what the map has may be out of date
            page.known = page.free;
            to = Some(at).filter(|&at| fits(&self.pages, at));
        }
        let to = to.unwrap_or_else(|| {
            let free = self.room;
            let known = 0.0;
            let rows = Vec::new();
            let new = HeapPage { free, known, rows, is_unchanged: false, is_swept: true };
            self.pages.push(new);
            self.pages.len() - 1
        });
        if let Some(page) = self.pages.get_mut(to) {
            page.store(tuple);
        }
        self.last = Some(to);
    }

    /// Frees what old versions on a page took.
    pub(super) fn pruned(&mut self, at: usize, bytes: f64) {
        if let Some(page) = self.pages.get_mut(at) {
            page.free += bytes;
        }
    }

    /// The rows of a page have new versions. A VACUUM may be due then, which enters the free space of all pages in the map.
    pub(super) fn done(&mut self, page: &SampledPage) {
        for row in &page.rows {
            self.dead += row.external.0 as f64 + f64::from(row.tuple.0);
        }
        if self.dead > self.limit {
            self.dead = 0.0;
            self.pages.iter_mut().for_each(|page| page.known = page.free);
        }
    }

    /// What compaction does with the heap as the sweep has left it: the last pages are emptied whose rows find room on
    /// those in front.
    pub(super) fn compacted(&self) -> Emptied {
        let mut all: f64 = 0.0;
        let mut bytes: f64 = 0.0;
        for row in self.pages.iter().flat_map(|page| &page.rows) {
            all += 1.0;
            bytes += taken(row.length);
        }
        let average = bytes / all.max(1.0);
        let capacity = |page: &HeapPage| {
            ((page.free - self.reserved).max(0.0) / average.max(1.0)).floor() * average
        };
        let mut before: f64 = self.pages.iter().map(capacity).sum();
        let mut behind = 0.0;
        let mut end = self.pages.len();
        for page in self.pages.iter().rev() {
            before -= capacity(page);
            behind += self.room - page.free;
            if behind > before {
                break;
            }
            end -= 1;
        }
        let (front, emptied) = self.pages.split_at(end);
        let moved: usize = emptied.iter().map(|page| page.rows.len()).sum();
        if moved == 0 {
            return Emptied { pages: emptied.len() as f64, ..Emptied::default() };
        }
        let filled = front.iter().filter(|page| capacity(page) > 0.0);
        let mut images = (0.0, 0.0);
        for page in emptied.iter().chain(filled).filter(|page| !page.is_swept) {
            let content = self.room - page.free;
            images.1 += content;
            if page.is_unchanged {
                images.0 += content;
            }
        }
        Emptied {
            pages: emptied.len() as f64,
            part: moved as f64 / all,
            records: emptied.iter().map(HeapPage::emptied).sum(),
            images,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: f64 = 8168.0;

    fn page(lengths: &[u32], is_outside: bool) -> HeapPage {
        let rows: Vec<Tuple> = lengths.iter().map(|&length| Tuple { length, is_outside }).collect();
        let free = ROOM - rows.iter().map(|row| taken(row.length)).sum::<f64>();
        HeapPage { free, known: free, rows, is_unchanged: true, is_swept: false }
    }

    fn heap(pages: Vec<HeapPage>) -> Heap {
        let old = pages.len();
        let reserved = 0.0;
        let room = ROOM;
        Heap { old, pages, last: None, reserved, room, dead: 0.0, limit: 0.0 }
    }

    /// A long row leaves the page when it finds no room, and the short one fills the rest.
    #[test]
    fn versions_fill_a_page_before_its_rows_leave_it() {
        let alone = page(&[60], false).emptied();
        let versions = ((ROOM - taken(60)) / taken(60)).floor();
        let leaves = |length: f64| UPDATE_TO_OTHER_PAGE + length + 2.0 * ROW_LOCK;
        assert_eq!(alone, versions * UPDATE_ON_PAGE + leaves(60.0));
        // every update of a row with a value out of line locks it first
        assert_eq!(page(&[60], true).emptied(), alone + versions * ROW_LOCK);
        let long = page(&[60, 3000], false).emptied();
        let rest = ROOM - taken(60) - 2.0 * taken(3000);
        assert!(rest < taken(3000), "the long row has one more version");
        let versions = (rest / taken(60)).floor() + 1.0;
        // the long row may have a value to store out of line
        let both = leaves(60.0) + leaves(3000.0) + ROW_LOCK;
        assert_eq!(long, versions * UPDATE_ON_PAGE + both);
    }

    #[test]
    fn the_last_pages_are_emptied_as_far_as_others_have_room() {
        let all = heap(vec![page(&[404; 10], false); 100]).compacted();
        // what is left of a page's room for less than a row is not used
        assert!((46.0..=50.0).contains(&all.pages), "{all:?}");
        assert!((all.part - all.pages / 100.0).abs() < 0.001, "{all:?}");
        // the pages in front and those emptied change
        let content = 10.0 * taken(404);
        assert!(all.images.0 >= 97.0 * content, "{all:?}");
        assert_eq!(all.images.0, all.images.1);
        assert_eq!(all.scaled(3.0).pages, 3.0 * all.pages);
        let full = heap(vec![page(&[404; 19], false); 100]).compacted();
        assert_eq!(full, Emptied::default());
        assert_eq!(heap(Vec::new()).compacted(), Emptied::default());
    }
}
