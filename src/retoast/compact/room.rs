//! How full the blocks of a relation are, and where its end would be if what stands behind it took the room in
//! front (pure).

use super::packing::Sample;
use crate::disk::layout::{LINE_POINTER_SIZE, PAGE_HEADER_SIZE, PageSize};
use crate::disk::max_align;
use crate::model::pages::least_gain;

/// Records kept of a relation at the most; each is of as many blocks as that takes.
const MOST_CELLS: u32 = 1 << 18;
/// Tuples are counted by how many of them fit a page, up to this; shorter ones by their bytes alone.
const CLASSES: usize = 4;
/// The part of the room in front that is counted on. The rest is for others, and for what does not fit.
const USED: f64 = 0.97;
/// Levels by which blocks are counted as full, and the part of blocks that are no fuller than the fullest are.
const LEVELS: usize = 64;
const FULLEST: f64 = 0.98;

/// Bytes that a tuple of so many bytes takes of a page.
pub(crate) fn taken(tuple: usize) -> u32 {
    u32::try_from(max_align(tuple) + LINE_POINTER_SIZE).unwrap_or(u32::MAX)
}

/// What stands in one block and is live.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Block {
    bytes: u32,
    /// Tuples by how many of their size fit a page; those of which more do are counted by their bytes alone.
    tuples: [u32; CLASSES],
}

/// The same of some blocks, and what would still fit them.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    bytes: u32,
    tuples: [u32; CLASSES],
    free: u32,
    fit: [u32; CLASSES],
}

/// How full all blocks of a relation are.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    /// Bytes of a page that inserts may fill.
    usable: u32,
    blocks: u32,
    per_cell: u32,
    cells: Vec<Cell>,
    /// The blocks up to the last one with something live.
    last: u32,
    /// Blocks that are not empty, by how full they are.
    fullness: [u32; LEVELS + 1],
    /// The part of a page that is filled where tuples are stored one after the other.
    filled: f64,
}

/// Where the end would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Blocks now.
    pub(crate) blocks: u32,
    /// Blocks up to the last one with something live.
    pub(crate) last: u32,
    /// Blocks that would do.
    pub(crate) end: u32,
}

impl Layout {
    /// Blocks that could be given back.
    pub(crate) fn spare(self) -> u32 {
        self.blocks.saturating_sub(self.end)
    }

    /// Whether that is worth a round.
    pub(crate) fn pays(self, min_gain: f64) -> bool {
        self.spare() >= least_gain(self.blocks, min_gain)
    }
}

impl Block {
    /// Adds a tuple that takes so many bytes.
    pub(crate) fn add(&mut self, page: PageSize, taken: u32) {
        self.add_some(page, taken, 1);
    }

    /// Adds some of the same size.
    pub(crate) fn add_some(&mut self, page: PageSize, taken: u32, count: u32) {
        self.bytes = self.bytes.saturating_add(taken.saturating_mul(count));
        let whole = (page.bytes() - PAGE_HEADER_SIZE) as u32;
        let class = usize::try_from(whole.checked_div(taken).unwrap_or(u32::MAX)).unwrap_or(0);
        if let Some(tuples) = self.tuples.get_mut(class.saturating_sub(1)) {
            *tuples = tuples.saturating_add(count);
        }
    }
}

impl Room {
    /// Of a relation of so many blocks, all empty. `fillfactor` is in percent.
    pub(crate) fn new(page: PageSize, blocks: u32, fillfactor: u32) -> Room {
        let reserve = page.bytes() * (100 - fillfactor.clamp(10, 100) as usize) / 100;
        let per_cell = blocks.div_ceil(MOST_CELLS).max(1);
        let usable = page.bytes().saturating_sub(PAGE_HEADER_SIZE + reserve) as u32;
        let mut room = Room {
            usable,
            blocks,
            per_cell,
            cells: Vec::new(),
            last: 0,
            fullness: [0; LEVELS + 1],
            filled: 1.0,
        };
        let count = blocks.div_ceil(per_cell) as usize;
        room.cells.resize(count, Cell::default());
        for (at, cell) in room.cells.iter_mut().enumerate() {
            let first = at as u32 * per_cell;
            let of = per_cell.min(blocks - first);
            cell.free = usable.saturating_mul(of);
            cell.fit = std::array::from_fn(|class| of.saturating_mul(class as u32 + 1));
        }
        room
    }

    /// Takes down what a block holds. A block beyond those known at the beginning is left out.
    pub(crate) fn set(&mut self, number: u32, block: Block) {
        let Some(cell) = self.cells.get_mut((number / self.per_cell) as usize) else { return };
        if block.bytes == 0 {
            return;
        }
        self.last = self.last.max(number.saturating_add(1).min(self.blocks));
        let usable = self.usable.max(1);
        let free = usable.saturating_sub(block.bytes);
        cell.bytes = cell.bytes.saturating_add(block.bytes);
        cell.free = cell.free.saturating_sub(usable - free);
        for (class, (fit, tuples)) in cell.fit.iter_mut().zip(&mut cell.tuples).enumerate() {
            let most = class as u32 + 1;
            *fit = fit.saturating_sub(most - (free * most / usable));
            *tuples = tuples.saturating_add(block.tuples.get(class).copied().unwrap_or(0));
        }
        let level = (u64::from(usable - free) * LEVELS as u64).div_ceil(u64::from(usable));
        if let Some(count) = self.fullness.get_mut(level as usize) {
            *count = count.saturating_add(1);
        }
    }

    /// Has pages be filled as these tuples would fill them.
    pub(crate) fn fill_as(&mut self, sample: &Sample) {
        self.filled = sample.filled(self.usable);
    }

    /// The part of a page that the fullest ones are filled to, at least what tuples stored one after the other
    /// fill.
    fn fullest(&self) -> f64 {
        let blocks: f64 = self.fullness.iter().map(|&count| f64::from(count)).sum();
        let mut counted = 0.0;
        let fullest = self.fullness.iter().position(|&count| {
            counted += f64::from(count);
            counted >= blocks * FULLEST
        });
        let fullest = fullest.unwrap_or(0) as f64 / LEVELS as f64;
        self.filled.max(fullest).min(1.0)
    }

    /// Bytes that are live.
    pub(crate) fn live(&self) -> u64 {
        self.cells.iter().map(|cell| u64::from(cell.bytes)).sum()
    }

    /// Where the end would be.
    pub(crate) fn layout(&self) -> Layout {
        Layout { blocks: self.blocks, last: self.last, end: self.end(self.fullest()) }
    }

    /// Blocks that it is likely to come to: pages get less full than the fullest, and fuller than empty ones that
    /// are filled one after the other.
    pub(crate) fn expected(&self) -> u32 {
        self.end((self.fullest() + self.filled) / 2.0)
    }

    /// Where the end would be with pages filled to this part.
    fn end(&self, filled: f64) -> u32 {
        let all = self.cells.iter().fold(Sums::default(), Sums::with);
        let unfilled = (1.0 - filled.min(1.0)) * f64::from(self.usable);
        let mut front = Sums::default();
        for (at, cell) in self.cells.iter().enumerate() {
            let blocks = at as u32 * self.per_cell;
            if all.fits_behind(&front, f64::from(blocks) * unfilled) {
                return blocks.min(self.last);
            }
            front = front.with(cell);
        }
        self.blocks.min(self.last)
    }
}

/// Cells added up.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    bytes: u64,
    tuples: [u64; CLASSES],
    free: u64,
    fit: [u64; CLASSES],
}

impl Sums {
    fn with(mut self, cell: &Cell) -> Sums {
        self.bytes += u64::from(cell.bytes);
        self.free += u64::from(cell.free);
        for class in 0..CLASSES {
            self.tuples[class] += u64::from(cell.tuples[class]);
            self.fit[class] += u64::from(cell.fit[class]);
        }
        self
    }

    /// Whether what all have beyond `front` fits the room there, of which so many bytes will not be filled: by
    /// its bytes, and long tuples by the pages that have room for whole ones.
    fn fits_behind(&self, front: &Sums, unfilled: f64) -> bool {
        let bytes = (self.bytes - front.bytes) as f64;
        if bytes > (front.free as f64 - unfilled) * USED {
            return false;
        }
        let mut share = 0.0;
        for class in 0..CLASSES {
            let tuples = (self.tuples[class] - front.tuples[class]) as f64;
            if tuples > 0.0 {
                share += tuples / (front.fit[class] as f64).max(0.5);
            }
        }
        share <= USED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: PageSize = PageSize::DEFAULT;
    /// A full chunk's tuple.
    const CHUNK: u32 = 2036;

    fn room(blocks: u32, chunks: impl Fn(u32) -> u32) -> Room {
        let mut room = Room::new(PAGE, blocks, 100);
        for number in 0..blocks {
            let mut block = Block::default();
            block.add_some(PAGE, CHUNK, chunks(number));
            room.set(number, block);
        }
        room
    }

    #[test]
    fn a_full_chunk_takes_a_fourth_of_a_page() {
        assert_eq!(taken(24 + 8 + 4 + 1996), CHUNK);
        let mut block = Block::default();
        block.add_some(PAGE, CHUNK, 4);
        assert_eq!(block.tuples, [0, 0, 0, 4]);
        assert_eq!(block.bytes, 4 * CHUNK);
    }

    #[test]
    fn half_of_the_chunks_take_half_of_the_blocks_and_a_little_more() {
        let layout = room(10_000, |_| 2).layout();
        assert_eq!((layout.blocks, layout.last), (10_000, 10_000));
        assert!((5_000..5_100).contains(&layout.end), "{layout:?}");
        assert!(layout.pays(0.02));
    }

    #[test]
    fn a_full_relation_stays_as_it_is() {
        let layout = room(10_000, |_| 4).layout();
        assert_eq!(layout, Layout { blocks: 10_000, last: 10_000, end: 10_000 });
        assert!(!layout.pays(0.0));
    }

    #[test]
    fn an_empty_end_is_no_part_of_what_is_needed_and_nothing_live_needs_no_block() {
        let layout = room(10_000, |number| if number < 6_000 { 4 } else { 0 }).layout();
        assert_eq!(layout, Layout { blocks: 10_000, last: 6_000, end: 6_000 });
        assert_eq!(room(100, |_| 0).layout(), Layout { blocks: 100, last: 0, end: 0 });
        assert_eq!(room(0, |_| 0).layout(), Layout { blocks: 0, last: 0, end: 0 });
    }

    #[test]
    fn room_that_is_too_small_for_a_chunk_does_not_count() {
        // 3 chunks and 1,900 bytes: a fourth one does not fit
        let mut room = Room::new(PAGE, 1_000, 100);
        for number in 0..1_000 {
            let mut block = Block::default();
            block.add_some(PAGE, CHUNK, 3);
            block.add_some(PAGE, 164, 1);
            room.set(number, block);
        }
        assert_eq!(room.layout().spare(), 0);
    }

    #[test]
    fn what_a_page_is_not_filled_to_is_no_room() {
        let of = |part| {
            let mut room = room(10_000, |number| if number % 2 == 0 { 3 } else { 0 });
            room.filled = part;
            room.layout().end
        };
        assert!((3_750..3_900).contains(&of(1.0)), "{}", of(1.0));
        assert!((5_000..5_300).contains(&of(0.75)), "{}", of(0.75));
    }

    #[test]
    fn tuples_of_just_over_half_a_page_take_one_each() {
        let mut room = Room::new(PAGE, 1_000, 100);
        for number in 0..1_000 {
            let mut block = Block::default();
            block.add_some(PAGE, 4_200, u32::from(number % 2 == 0));
            room.set(number, block);
        }
        let end = room.layout().end;
        assert!((500..530).contains(&end), "{end}");
    }

    #[test]
    fn the_fillfactor_leaves_less_room() {
        let of = |fillfactor| {
            let mut room = Room::new(PAGE, 1_000, fillfactor);
            for number in 0..1_000 {
                let mut block = Block::default();
                block.add_some(PAGE, 104, 39);
                room.set(number, block);
            }
            room.layout().end
        };
        assert!((500..530).contains(&of(100)), "{}", of(100));
        assert!((690..750).contains(&of(70)), "{}", of(70));
    }

    #[test]
    fn large_relations_are_kept_by_cells() {
        let mut room = Room::new(PAGE, 3 * MOST_CELLS, 100);
        assert_eq!((room.per_cell, room.cells.len()), (3, MOST_CELLS as usize));
        let mut block = Block::default();
        block.add(PAGE, CHUNK);
        room.set(3 * MOST_CELLS - 1, block);
        assert_eq!(room.layout().last, 3 * MOST_CELLS);
        assert_eq!(room.layout().end, 3);
        assert_eq!(room.live(), u64::from(CHUNK));
    }
}
