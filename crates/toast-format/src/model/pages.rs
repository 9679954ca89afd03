//! How tuples fill pages: heap and TOAST relation as filled by `RelationGetBufferForTuple` (`hio.c`), and the free
//! space map (`freespace.c`, `fsmpage.c`), by which pages with free space are found again.

use super::policy::VARLENA_HEADER_SIZE;
use crate::disk::layout::{LINE_POINTER_SIZE, PAGE_HEADER_SIZE, TUPLE_HEADER_SIZE};
use crate::disk::{PageSize, max_align};

/// The size of a chunk's tuple without its data: header, `chunk_id`, `chunk_seq`, varlena header.
pub const CHUNK_OVERHEAD: usize =
    max_align(TUPLE_HEADER_SIZE) + 4 + 4 + VARLENA_HEADER_SIZE as usize;

/// `REL_TRUNCATE_MINIMUM` and `REL_TRUNCATE_FRACTION` (vacuumlazy.c).
const TRUNCATE_MINIMUM: u32 = 1000;
const TRUNCATE_FRACTION: u32 = 16;

/// The minimum number of empty pages at the end of a file of `pages` pages for which VACUUM truncates it
/// (`should_attempt_truncation`, vacuumlazy.c).
pub fn truncated_for(pages: u32) -> u32 {
    TRUNCATE_MINIMUM.min(pages / TRUNCATE_FRACTION).max(1)
}

/// The fraction of a file that compaction must return to be worthwhile.
pub const MIN_GAIN: f64 = 0.02;

/// The minimum number of pages, in a file of `pages` pages, that is worth a round of compaction: the fraction
/// [`MIN_GAIN`], and at least as many as VACUUM truncates for.
pub fn least_gain(pages: u32) -> u32 {
    // Fewer pages are not worth a round.
    const LEAST: u32 = 8;
    let part = (f64::from(pages) * MIN_GAIN).ceil() as u32;
    part.max(truncated_for(pages)).max(LEAST)
}

/// Whether pages left with free space are found again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fill {
    /// INSERT and COPY into an existing table: through the free space map.
    #[default]
    Insert,
    /// `CREATE TABLE AS`, VACUUM FULL, CLUSTER: always use the last page.
    Append,
}

/// A relation being filled.
#[derive(Debug, Clone)]
pub struct Filler {
    page: PageSize,
    /// Free space to leave on each page according to the fillfactor.
    save: usize,
    fill: Fill,
    /// The number of pages begun.
    pages: u64,
    /// The page on which the last tuple was put.
    target: u64,
    /// Free bytes on each page of the window covered by the last leaf of the free space map.
    free: Vec<u16>,
    window: u64,
    map: FreeSpaceMap,
}

impl Filler {
    /// An empty relation; `fillfactor` is a percentage, 100 for TOAST relations.
    pub fn new(page: PageSize, fillfactor: u8, fill: Fill) -> Filler {
        let save = page.bytes() * usize::from(100 - fillfactor.clamp(10, 100)) / 100;
        Filler {
            page,
            save,
            fill,
            pages: 0,
            target: 0,
            free: Vec::new(),
            window: 0,
            map: FreeSpaceMap::new(page),
        }
    }

    /// A relation whose pages have this much free space, recorded in its free space map, to be filled by means of it.
    pub(crate) fn with_free_space(page: PageSize, fillfactor: u8, free: Vec<u16>) -> Filler {
        let mut filler = Filler::new(page, fillfactor, Fill::Insert);
        filler.pages = free.len() as u64;
        filler.free = free;
        let known = (0..filler.pages).map(|at| filler.free_of(at)).collect::<Vec<_>>();
        filler.map = FreeSpaceMap::with_free_space(page, &known);
        filler
    }

    /// Puts a tuple of `length` bytes on a page with free space; returns whether there is one.
    pub(crate) fn put_in_hole(&mut self, length: usize) -> bool {
        let length = max_align(length);
        let Some(target) = self.find(self.need(length)) else { return false };
        self.take(target, length);
        true
    }

    /// Bytes for tuples and their line pointers on each page.
    pub fn room(&self) -> usize {
        self.page.bytes() - PAGE_HEADER_SIZE - self.save
    }

    /// The number of pages so far (`relpages`).
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// The number of pages so far, of which the last one counts only as far as it is filled: the share of a part of a
    /// relation in the whole.
    pub fn filled_pages(&self) -> f64 {
        let last = self
            .free
            .last()
            .map_or(0.0, |&free| f64::from(free) / (self.page.bytes() - PAGE_HEADER_SIZE) as f64);
        self.pages as f64 - last
    }

    /// The free space on the page, as computed by `PageGetHeapFreeSpace`, without the space for a line pointer.
    fn free_of(&self, page: u64) -> usize {
        let at = page.checked_sub(self.window).and_then(|at| usize::try_from(at).ok());
        let free = at.and_then(|at| self.free.get(at)).map_or(0, |&free| usize::from(free));
        free.saturating_sub(LINE_POINTER_SIZE)
    }

    /// Puts a tuple of `length` bytes on some page; returns that page.
    pub fn put(&mut self, length: usize) -> u64 {
        let length = max_align(length);
        let target = self.find(self.need(length)).unwrap_or_else(|| self.extend());
        self.take(target, length);
        target
    }

    /// The free space that a page must have for a tuple of `length` bytes.
    fn need(&self, length: usize) -> usize {
        let max_tuple = self.page.toast_tuple_target_main();
        // A page with at most MaxHeapTuplesPerPage / 8 line pointers counts as empty.
        let max_tuples = (self.page.bytes() - PAGE_HEADER_SIZE)
            / (max_align(TUPLE_HEADER_SIZE) + LINE_POINTER_SIZE);
        let nearly_empty = max_tuple - max_tuples / 8 * LINE_POINTER_SIZE;
        if length + self.save > nearly_empty {
            length.max(nearly_empty)
        } else {
            length + self.save
        }
    }

    fn take(&mut self, target: u64, length: usize) {
        self.target = target;
        if let Some(free) = target
            .checked_sub(self.window)
            .and_then(|at| usize::try_from(at).ok())
            .and_then(|at| self.free.get_mut(at))
        {
            *free = free.saturating_sub((length + LINE_POINTER_SIZE) as u16);
        }
    }

    fn find(&mut self, need: usize) -> Option<u64> {
        if self.pages == 0 {
            return None;
        }
        let mut target = self.target;
        loop {
            let free = self.free_of(target);
            if free >= need {
                return Some(target);
            }
            if self.fill == Fill::Append {
                return None;
            }
            let slot = usize::try_from(target - self.window).ok()?;
            let found = self.map.record_and_search(slot, free, need)?;
            target = self.window + found as u64;
            if target >= self.pages {
                return None;
            }
        }
    }

    fn extend(&mut self) -> u64 {
        let page = self.pages;
        self.pages += 1;
        if self.free.len() == self.map.slots() {
            // This begins the next leaf of the free space map; the upper levels are updated with the pages of the
            // previous leaf only by VACUUM.
            self.window = page;
            self.free.clear();
            self.map = FreeSpaceMap::new(self.page);
        }
        self.free.push((self.page.bytes() - PAGE_HEADER_SIZE) as u16);
        page
    }
}

/// One leaf page of the free space map, or an equivalent of any size: a tree of maxima over its slots (`fsmpage.c`).
#[derive(Debug, Clone)]
struct FreeSpaceMap {
    /// The root is at 0, the children of n are at 2n + 1 and 2n + 2.
    nodes: Vec<u8>,
    inner: usize,
    next_slot: usize,
    /// The size of one category in bytes (`FSM_CAT_STEP`).
    step: usize,
}

impl FreeSpaceMap {
    fn new(page: PageSize) -> FreeSpaceMap {
        // The page header and fp_next_slot are subtracted.
        let nodes = page.bytes() - PAGE_HEADER_SIZE - 4;
        FreeSpaceMap {
            nodes: vec![0; nodes],
            inner: page.bytes() / 2 - 1,
            next_slot: 0,
            step: page.bytes() / 256,
        }
    }

    /// The map of pages with this much free space, as if one leaf covered all of them.
    fn with_free_space(page: PageSize, free: &[usize]) -> FreeSpaceMap {
        let inner = free.len().next_power_of_two().max(2) - 1;
        let step = page.bytes() / 256;
        let mut map =
            FreeSpaceMap { nodes: vec![0; inner + free.len()], inner, next_slot: 0, step };
        for (slot, &free) in free.iter().enumerate() {
            map.set(slot, map.available(free));
        }
        map
    }

    fn slots(&self) -> usize {
        self.nodes.len() - self.inner
    }

    fn get(&self, node: usize) -> u8 {
        self.nodes.get(node).copied().unwrap_or(0)
    }

    /// The category of a page with this free space (`fsm_space_avail_to_cat`, `freespace.c`).
    fn available(&self, bytes: usize) -> u8 {
        // MaxFSMRequestSize is MaxHeapTupleSize.
        if bytes >= self.step * 256 - max_align(PAGE_HEADER_SIZE + LINE_POINTER_SIZE) {
            return 255;
        }
        u8::try_from(bytes / self.step).unwrap_or(254).min(254)
    }

    /// The category of pages with room for a tuple (`fsm_space_needed_to_cat`, `freespace.c`).
    fn needed(&self, bytes: usize) -> u8 {
        u8::try_from(bytes.div_ceil(self.step).max(1)).unwrap_or(255)
    }

    /// `fsm_set_and_search`: records that `slot` has `free` bytes, and finds a slot with `need` bytes.
    fn record_and_search(&mut self, slot: usize, free: usize, need: usize) -> Option<usize> {
        self.set(slot, self.available(free));
        self.search(self.needed(need))
    }

    fn set(&mut self, slot: usize, value: u8) {
        let mut node = self.inner + slot;
        if let Some(leaf) = self.nodes.get_mut(node) {
            *leaf = value;
        }
        while node > 0 {
            node = (node - 1) / 2;
            let max = self.get(2 * node + 1).max(self.get(2 * node + 2));
            match self.nodes.get_mut(node) {
                Some(value) if *value != max => *value = max,
                _ => break,
            }
        }
    }

    /// `fsm_search_avail`: the first suitable slot starting at `next_slot`, in the tree's order.
    fn search(&mut self, min: u8) -> Option<usize> {
        if self.get(0) < min {
            return None;
        }
        let start = if self.next_slot < self.slots() { self.next_slot } else { 0 };
        let mut node = self.inner + start;
        while node > 0 && self.get(node) < min {
            // Moves to the right neighbor, or at the end of a level to its first node, and then up.
            node += 1;
            if (node + 1).is_power_of_two() {
                node = (node - 1) / 2;
            }
            node = (node - 1) / 2;
        }
        while node < self.inner {
            let left = 2 * node + 1;
            node = if self.get(left) >= min { left } else { left + 1 };
        }
        let slot = node - self.inner;
        self.next_slot = slot + 1;
        (slot < self.slots()).then_some(slot)
    }
}

/// A TOAST relation being filled.
#[derive(Debug, Clone)]
pub struct ToastFiller {
    heap: Filler,
    chunks: u64,
}

impl ToastFiller {
    /// An empty TOAST relation.
    pub fn new(page: PageSize, fill: Fill) -> ToastFiller {
        ToastFiller { heap: Filler::new(page, 100, fill), chunks: 0 }
    }

    /// Stores a value of `stored` bytes; returns the number of pages visited by a read of the value.
    pub fn put(&mut self, stored: u32) -> u32 {
        let size = self.heap.page.toast_max_chunk_size();
        let mut left = stored;
        let mut last = None;
        let mut visits = 0;
        while left > 0 {
            let data = left.min(size);
            let page = self.heap.put(CHUNK_OVERHEAD + data as usize);
            // An index scan keeps its pin if the next tuple is on the same page.
            visits += u32::from(last != Some(page));
            last = Some(page);
            left -= data;
            self.chunks += 1;
        }
        visits
    }

    /// The pages of the relation.
    pub fn heap(&self) -> &Filler {
        &self.heap
    }
}

/// The space on pages for the chunks of a value of `stored` bytes, including line pointers.
pub fn chunk_bytes(page: PageSize, stored: u32) -> u64 {
    let size = page.toast_max_chunk_size();
    let rest = stored % size;
    let last = if rest > 0 { chunk_tuple_bytes(rest) } else { 0 };
    u64::from(stored / size) * chunk_tuple_bytes(size) + last
}

/// The space on a page for a chunk with this many bytes of a value, including its line pointer.
pub(crate) fn chunk_tuple_bytes(data: u32) -> u64 {
    tuple_bytes(data.saturating_add(CHUNK_OVERHEAD as u32))
}

/// The space on a page for a heap tuple, including its line pointer.
pub fn tuple_bytes(length: u32) -> u64 {
    (max_align(length as usize) + LINE_POINTER_SIZE) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: PageSize = PageSize::DEFAULT;

    #[test]
    fn four_full_chunks_fill_a_page() {
        assert_eq!(chunk_bytes(PAGE, 1996), 2036);
        assert_eq!(chunk_bytes(PAGE, 2000), 2036 + 44);
        let mut toast = ToastFiller::new(PAGE, Fill::Insert);
        assert_eq!(toast.put(4 * 1996), 1);
        assert_eq!(toast.put(5 * 1996), 2);
        assert_eq!((toast.heap().pages(), toast.chunks), (3, 9));
    }

    #[test]
    fn room_that_was_left_is_found_again_by_insert_and_not_by_append() {
        let fill = |fill| {
            let mut filler = Filler::new(PAGE, 100, fill);
            // Three tuples fit on a page, and 2 kB are left on each.
            for _ in 0..300 {
                filler.put(2032);
                filler.put(2032);
                filler.put(2032);
                filler.put(2032 + 100);
            }
            filler.pages()
        };
        let insert = fill(Fill::Insert);
        let append = fill(Fill::Append);
        assert!(insert < append, "{insert} {append}");
    }

    #[test]
    fn holes_are_filled_and_no_pages_are_added() {
        let fill = |fillfactor, free: &[u16], length| {
            let mut filler = Filler::with_free_space(PAGE, fillfactor, free.to_vec());
            let put = (0..).take_while(|_| filler.put_in_hole(length)).count();
            assert_eq!(filler.pages(), free.len() as u64);
            put
        };
        assert_eq!(fill(100, &[], 100), 0);
        // The free space on the second page is smaller than a chunk.
        assert_eq!(fill(100, &[8168, 2000, 2060, 0, 4096], 2032), 4 + 1 + 2);
        assert_eq!(fill(50, &[8168, 4100], 1000), 4);
        assert_eq!(fill(100, &[2060; 9000], 2032), 9000);
    }

    #[test]
    fn the_fillfactor_leaves_room() {
        let pages = |fillfactor| {
            let mut filler = Filler::new(PAGE, fillfactor, Fill::Insert);
            (0..1000).for_each(|_| {
                filler.put(100);
            });
            filler.pages()
        };
        // A tuple takes 104 bytes and a line pointer: 75 fit in 8168 bytes, 37 in 4072.
        assert_eq!((pages(100), pages(50)), (14, 28));
    }

    #[test]
    fn a_tuple_as_long_as_the_page_takes_one_even_with_a_fillfactor() {
        let mut filler = Filler::new(PAGE, 10, Fill::Insert);
        assert_eq!((filler.put(8160), filler.put(8160), filler.put(24)), (0, 1, 2));
    }

    #[test]
    fn what_vacuum_does_not_truncate_for_is_no_gain() {
        assert_eq!(
            (truncated_for(10), truncated_for(1_600), truncated_for(1 << 20)),
            (1, 100, 1_000)
        );
        assert_eq!(least_gain(1_600), 100);
        assert_eq!(least_gain(1 << 20), 20_972);
    }
}
