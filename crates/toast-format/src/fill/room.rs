//! How full the blocks of a relation are, and where it could end if what is behind that end were moved to the room in
//! front (pure).

use super::packing::Sample;
use crate::disk::layout::{LINE_POINTER_SIZE, PAGE_HEADER_SIZE};
use crate::disk::{PageSize, max_align};
use crate::model::pages::least_gain;

/// The maximum number of blocks kept of a relation; in a larger one, each kept block represents several.
pub(super) const MOST_KEPT: u32 = 1 << 14;
/// The fraction of the room in front that is assumed to be usable; the rest is left to other sessions.
const USED: f64 = 0.995;

/// The number of bytes that a tuple of this length occupies on a page.
pub fn taken(tuple: usize) -> u32 {
    u32::try_from(max_align(tuple) + LINE_POINTER_SIZE).unwrap_or(u32::MAX)
}

/// How full the blocks of a relation are.
#[derive(Debug, Clone)]
pub struct Room {
    page: PageSize,
    fillfactor: u8,
    blocks: u32,
    /// The number of blocks that each kept block represents.
    per_kept: u32,
    /// The blocks that each kept block represents.
    groups: Vec<BlockGroup>,
    /// The number of blocks up to the last one with something live.
    last: u32,
    tuples: Sample,
    /// The same with all tuples as short as they can be, if their lengths are not known.
    at_least: Option<Box<Room>>,
}

/// Blocks that follow each other, of which one is kept.
#[derive(Debug, Clone, Copy, Default)]
struct BlockGroup {
    /// Bytes occupied in the kept block.
    kept: u16,
    /// Bytes occupied in all of them.
    sum: u32,
    /// By how many bytes their tuples become longer when they are moved.
    longer: u32,
}

/// The blocks that a relation has, and those that it needs if what is behind the end is moved to the front.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Layout {
    /// The current number of blocks.
    pub blocks: u32,
    /// The number of blocks up to the last one with something live.
    pub last: u32,
    /// The number of blocks that would suffice.
    pub end: u32,
    /// The minimum number of blocks, which is less than `end` only if the lengths of tuples are not known.
    pub least_end: u32,
}

/// A set of blocks, and the bytes occupied in them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Front {
    pub(crate) blocks: u64,
    pub(crate) taken: u64,
}

impl Layout {
    /// The number of blocks that could be returned.
    pub fn spare(self) -> u32 {
        self.blocks.saturating_sub(self.end)
    }

    /// Whether returning these is worth a round.
    pub fn pays(self) -> bool {
        self.spare() >= least_gain(self.blocks)
    }

    /// The maximum number of blocks that could be returned.
    pub fn spare_at_most(self) -> u32 {
        self.blocks.saturating_sub(self.least_end.min(self.end))
    }

    /// Whether returning these may be worth a round.
    pub fn may_pay(self) -> bool {
        self.spare_at_most() >= least_gain(self.blocks)
    }
}

impl Room {
    /// A relation of this many blocks, all of them empty. `fillfactor` is in percent.
    pub fn new(page: PageSize, blocks: u32, fillfactor: u32) -> Room {
        let per_kept = blocks.div_ceil(MOST_KEPT).max(1);
        Room {
            page,
            fillfactor: u8::try_from(fillfactor).unwrap_or(100),
            blocks,
            per_kept,
            groups: vec![BlockGroup::default(); blocks.div_ceil(per_kept) as usize],
            last: 0,
            tuples: Sample::default(),
            at_least: None,
        }
    }

    /// Whether this block is the one kept of its group. It is not always at the same place in the group, so that
    /// patterns which repeat at regular distances are represented like everything else.
    fn is_kept(&self, number: u32) -> bool {
        let mixed = (u64::from(number / self.per_kept) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        number % self.per_kept == ((mixed >> 32) as u32) % self.per_kept
    }

    /// Records how many bytes of a block are occupied by live tuples. A block beyond those known at the beginning is
    /// ignored.
    pub fn set(&mut self, number: u32, taken: u32) {
        if number >= self.blocks || taken == 0 {
            return;
        }
        self.last = self.last.max(number + 1);
        let is_kept = self.is_kept(number);
        let at = self.group(number);
        let Some(group) = self.groups.get_mut(at) else { return };
        group.sum = group.sum.saturating_add(taken);
        if is_kept {
            group.kept = u16::try_from(taken).unwrap_or(u16::MAX);
        }
    }

    /// Records by how many bytes a block's tuples become longer when they are moved.
    pub fn grow(&mut self, number: u32, longer: u32) {
        let at = self.group(number);
        if number < self.blocks
            && let Some(group) = self.groups.get_mut(at)
        {
            group.longer = group.longer.saturating_add(longer);
        }
    }

    /// Adds the figures of other blocks of the same relation.
    pub(crate) fn merge(&mut self, other: &Room) {
        self.last = self.last.max(other.last);
        for (ours, theirs) in self.groups.iter_mut().zip(&other.groups) {
            ours.sum = ours.sum.saturating_add(theirs.sum);
            ours.longer = ours.longer.saturating_add(theirs.longer);
            ours.kept = ours.kept.max(theirs.kept);
        }
    }

    /// Keeps only the first blocks, if fewer were recorded than expected.
    pub(super) fn cut(&mut self, blocks: u32) {
        self.blocks = blocks;
        self.groups.truncate(blocks.div_ceil(self.per_kept) as usize);
    }

    /// The number of groups of blocks, in each of which one block is kept.
    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// The group of a block.
    pub(crate) fn group(&self, number: u32) -> usize {
        (number / self.per_kept) as usize
    }

    /// The number of groups in front of an end: all of them if nothing live is behind it.
    pub(crate) fn groups_up_to(&self, end: u32) -> usize {
        if end >= self.last { self.groups() } else { self.group(end) }
    }

    /// The number of blocks behind an end, up to the last one with something live.
    pub fn blocks_behind(&self, end: u32) -> u64 {
        u64::from(self.last.saturating_sub(end))
    }

    /// Bytes of live tuples behind an end.
    pub fn behind(&self, end: u32) -> u64 {
        let behind = self.groups.iter().skip(self.groups_up_to(end));
        behind.map(|group| u64::from(group.sum)).sum()
    }

    /// The blocks in front of an end that have room for `least` bytes.
    pub fn front(&self, end: u32, least: u32) -> Front {
        let usable = u32::try_from(self.page.bytes() - PAGE_HEADER_SIZE).unwrap_or(u32::MAX);
        let mut front = Front::default();
        for group in self.groups.iter().take(self.groups_up_to(end)) {
            if usable.saturating_sub(u32::from(group.kept)) >= least {
                front.blocks += u64::from(self.per_kept);
                front.taken += u64::from(group.sum);
            }
        }
        front
    }

    /// Sets the sample of tuples that would be moved, which determines what fits into free space.
    pub fn holds(&mut self, tuples: Sample) {
        self.tuples = tuples;
    }

    /// Sets the same relation with tuples as short as they can be.
    pub fn or_at_least(&mut self, room: Room) {
        self.at_least = Some(Box::new(room));
    }

    /// Bytes of live tuples.
    pub fn live(&self) -> u64 {
        self.groups.iter().map(|group| u64::from(group.sum)).sum()
    }

    /// This many blocks, evenly spread over what is live.
    pub fn spread(&self, count: u32) -> Vec<u32> {
        let step = (self.live() / u64::from(count.max(1))).max(1);
        let mut next = step / 2;
        let mut sum = 0;
        let mut spread = Vec::new();
        for (at, group) in (0..).zip(&self.groups) {
            sum += u64::from(group.sum);
            if sum > next {
                spread.push(self.per_kept.saturating_mul(at));
                next += (sum - next).div_ceil(step) * step;
            }
        }
        spread
    }

    /// The layout of the relation if it were compacted.
    pub fn layout(&self) -> Layout {
        let end = self.end();
        let least_end = self.at_least.as_ref().map_or(end, |room| room.end().min(end));
        Layout { blocks: self.blocks, last: self.last, end, least_end }
    }

    /// The smallest end for which everything behind it fits into the room in front.
    fn end(&self) -> u32 {
        let mut fits = self.groups.len();
        let mut fails = 0;
        let mut at = 0;
        while fails < fits {
            if self.fits(at) {
                fits = at;
            } else {
                fails = at + 1;
            }
            at = fails + (fits - fails) / 2;
        }
        u32::try_from(fits).unwrap_or(u32::MAX).saturating_mul(self.per_kept).min(self.last)
    }

    /// Whether everything behind the first `kept` kept blocks fits into them.
    fn fits(&self, kept: usize) -> bool {
        let Some((front, behind)) = self.groups.split_at_checked(kept) else { return true };
        let moved = behind.iter().map(|group| f64::from(group.sum) + f64::from(group.longer));
        let behind: f64 = moved.sum();
        let bytes = behind / f64::from(self.per_kept) / USED;
        let usable = u16::try_from(self.page.bytes() - PAGE_HEADER_SIZE).unwrap_or(u16::MAX);
        let free = front.iter().map(|group| usable.saturating_sub(group.kept)).collect();
        let block = u32::try_from(kept).unwrap_or(u32::MAX).saturating_mul(self.per_kept);
        self.tuples.fits(self.page, self.fillfactor, free, block, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: PageSize = PageSize::DEFAULT;
    /// The size of a full chunk's tuple.
    const CHUNK: u32 = 2036;

    /// A relation with this many tuples of this size in each block.
    fn room(blocks: u32, fillfactor: u32, size: u32, tuples: impl Fn(u32) -> u32) -> Room {
        let mut room = Room::new(PAGE, blocks, fillfactor);
        let mut sample = Sample::default();
        for number in 0..blocks {
            room.set(number, size * tuples(number));
            (0..tuples(number)).for_each(|_| sample.add(number, [size]));
        }
        room.holds(sample);
        room
    }

    fn layout(blocks: u32, chunks: impl Fn(u32) -> u32) -> Layout {
        room(blocks, 100, CHUNK, chunks).layout()
    }

    fn full(blocks: u32, last: u32, end: u32) -> Layout {
        Layout { blocks, last, end, least_end: end }
    }

    #[test]
    fn where_lengths_are_not_known_there_is_an_end_at_the_least() {
        let mut known = room(1_000, 100, 2_036, |_| 4);
        known.or_at_least(room(1_000, 100, 2_036, |_| 2));
        let layout = known.layout();
        assert_eq!(layout.end, 1_000);
        assert!((500..520).contains(&layout.least_end), "{layout:?}");
        assert!(!layout.pays() && layout.may_pay());
    }

    #[test]
    fn tuples_that_get_longer_take_more_room_where_they_go() {
        let mut room = Room::new(PAGE, 1_000, 100);
        let mut sample = Sample::default();
        for number in 0..1_000 {
            // a tenth of a page is occupied, by a tuple that will occupy half of one
            room.set(number, 800);
            room.grow(number, 3_200);
            sample.add(number, [4_000]);
        }
        room.holds(sample);
        let end = room.layout().end;
        assert!((500..=700).contains(&end), "{end}");
    }

    #[test]
    fn a_full_chunk_takes_a_fourth_of_a_page() {
        assert_eq!(taken(24 + 8 + 4 + 1996), CHUNK);
    }

    #[test]
    fn half_of_the_chunks_take_half_of_the_blocks_and_a_little_more() {
        let layout = layout(10_000, |_| 2);
        assert_eq!((layout.blocks, layout.last), (10_000, 10_000));
        assert!((5_000..5_100).contains(&layout.end), "{layout:?}");
        assert!(layout.pays());
    }

    #[test]
    fn a_full_relation_stays_as_it_is() {
        let layout = layout(10_000, |_| 4);
        assert_eq!(layout, full(10_000, 10_000, 10_000));
        assert!(!layout.pays());
    }

    #[test]
    fn an_empty_end_is_no_part_of_what_is_needed_and_nothing_live_needs_no_block() {
        let some = layout(10_000, |number| if number < 6_000 { 4 } else { 0 });
        assert_eq!(some, full(10_000, 6_000, 6_000));
        assert_eq!(layout(100, |_| 0), full(100, 0, 0));
        assert_eq!(layout(0, |_| 0), full(0, 0, 0));
    }

    #[test]
    fn room_that_is_too_small_for_a_chunk_does_not_count() {
        // 3 chunks and 1,900 bytes: a fourth one does not fit
        let mut room = room(1_000, 100, CHUNK, |_| 3);
        (0..1_000).for_each(|number| room.set(number, 3 * CHUNK + 164));
        assert_eq!(room.layout().spare(), 0);
    }

    #[test]
    fn tuples_of_just_over_half_a_page_take_one_each() {
        let end = room(1_000, 100, 4_200, |number| u32::from(number % 2 == 0)).layout().end;
        assert!((500..510).contains(&end), "{end}");
    }

    #[test]
    fn the_fillfactor_leaves_less_room() {
        let of = |fillfactor| room(1_000, fillfactor, 104, |_| 39).layout().end;
        assert!((500..520).contains(&of(100)), "{}", of(100));
        assert!((710..750).contains(&of(70)), "{}", of(70));
    }

    #[test]
    fn blocks_are_spread_over_what_is_live() {
        let some = room(1_000, 100, CHUNK, |number| if number < 900 { 0 } else { 4 });
        assert_eq!(some.spread(4), [912, 937, 962, 987]);
        assert_eq!(some.spread(1_000).len(), 100);
        assert!(room(10, 100, CHUNK, |_| 0).spread(4).is_empty());
    }

    #[test]
    fn of_large_relations_some_blocks_stand_for_all() {
        let blocks = 7 * MOST_KEPT;
        let mut large = room(blocks, 100, CHUNK, |_| 0);
        assert_eq!((large.per_kept, large.groups.len()), (7, MOST_KEPT as usize));
        large.set(blocks - 1, CHUNK);
        assert_eq!((large.layout().last, large.live()), (blocks, u64::from(CHUNK)));
        let end =
            room(blocks, 100, CHUNK, |number| if number % 14 < 7 { 4 } else { 1 }).layout().end;
        let fresh = f64::from(blocks) * 5.0 / 8.0;
        assert!((f64::from(end) / fresh - 1.0).abs() < 0.02, "{end} of {fresh}");
    }
}
