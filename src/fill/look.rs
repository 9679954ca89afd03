//! How full a file is: what a look at a sample of its blocks shows, or a scan of all (pure).

use super::lengths::Growth;
use super::moves::{Expected, Moved, RelatedFiles, wal};
use super::packing::Sample;
use super::room::{Front, Room, taken};
use super::survey::{Kind, Survey};
use crate::disk::BlockNumber;
use crate::disk::layout::PageSize;
use crate::disk::tuple::HeapTuple;
use crate::heap::scan::{Judge, Visitor, judged};
use crate::model::estimate::BlocksRead;
use crate::model::estimate::Tally;
use crate::model::interval::Interval;
use crate::model::pages::CHUNK_OVERHEAD;
use crate::model::visibility::Visibility;

/// What is known of a file once a sample of its blocks was read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FileFill {
    /// Bytes of the file.
    pub(crate) bytes: u64,
    pub(crate) drawn: BlocksRead,
    /// Tuples that no statement of this moment gives.
    pub(crate) dead: Interval,
    /// Bytes of them.
    pub(crate) dead_bytes: Interval,
    /// All tuples.
    pub(crate) tuples: Interval,
    /// Bytes that the file would be shorter by if what it holds, dead tuples too, stood together.
    pub(crate) spare: Interval,
    /// The same without dead tuples, as VACUUM would leave it.
    pub(crate) spare_vacuumed: Interval,
    /// What compaction would come to, where that may be worth it and what stands beside the file is known.
    pub(crate) compaction: Option<Expected>,
}

impl FileFill {
    /// Of a file of which all blocks were read; `None` if they were not. `worth`: the free part of a file below which its
    /// free space is not computed.
    pub(crate) fn of_all(
        mut survey: Survey,
        page: PageSize,
        worth: f64,
        related: &RelatedFiles,
    ) -> Option<FileFill> {
        let (blocks, read) = survey.blocks();
        if read < blocks {
            return None;
        }
        survey.end();
        let bytes = u64::from(blocks) * page.bytes() as u64;
        let counted = survey.counted();
        let exact = |number: u64| Interval::exact(number as f64);
        let (spare, spare_vacuumed, compaction) = if survey.free_part() < worth {
            // no more than this, whatever stands where
            let most = bytes as f64 * survey.free_part();
            let most = Interval { estimate: most, low: 0.0, high: most };
            (most, most, None)
        } else {
            let expected = survey.expected(related);
            let spare = match counted.dead {
                0 => expected.gives_back,
                _ => survey.spare(),
            };
            (exact(spare), exact(expected.gives_back), Some(expected))
        };
        Some(FileFill {
            bytes,
            drawn: BlocksRead { read: u64::from(read), total: u64::from(blocks) },
            dead: exact(counted.dead),
            dead_bytes: exact(counted.dead_bytes),
            tuples: exact(counted.tuples),
            spare,
            spare_vacuumed,
            compaction,
        })
    }
}

/// The part of a file that must be free before it is reported.
pub(crate) const SPARE: f64 = 0.3;

/// Full chunks that are put before a value's last one at the most: enough to see how they fill pages.
const MOST_BEFORE: u32 = 64;

/// A chunk of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    Full,
    /// The rest of a value, behind this number of full chunks.
    Rest(u32),
}

impl Chunk {
    /// What a tuple of a TOAST relation is. `length` is in bytes, with its header.
    fn of(tuple: &HeapTuple<'_>, length: u16, page: PageSize) -> Chunk {
        // chunk_seq follows chunk_id
        match tuple.order.u32(tuple.data, 4) {
            Some(number) if usize::from(length) < full_chunk(page) => Chunk::Rest(number),
            _ => Chunk::Full,
        }
    }
}

/// Bytes of a full chunk's tuple.
fn full_chunk(page: PageSize) -> usize {
    CHUNK_OVERHEAD + page.toast_max_chunk_size() as usize
}

/// What blocks hold.
#[derive(Default)]
struct Held {
    /// Bytes taken of each block that was read, and of the one that is being read.
    blocks: Vec<u32>,
    now: u32,
    /// Bytes that rows of each take more once they are moved.
    longer: Vec<u32>,
    longer_now: u32,
    /// Rows; of a TOAST relation whole values, each for its rest that was met. The other chunks of a value need not be
    /// in the sample of blocks, but how many they are is known, and values are written again chunk by chunk.
    packing: Sample,
    /// Full chunks met, and those that stand before rests in `packing`.
    full: u64,
    before_rests: u64,
    bytes: Tally,
    /// Tuples of each block that was read, and of the one that is being read.
    tuples: Vec<u32>,
    tuples_now: u32,
    /// The blocks of the rests that were met.
    ends: Vec<u32>,
}

impl Held {
    fn add(&mut self, taken: u32) {
        self.tuples_now += 1;
        self.now = self.now.saturating_add(taken);
        self.bytes.add(u64::from(taken));
    }

    /// The number of the block that is being read.
    fn block(&self) -> u32 {
        u32::try_from(self.blocks.len()).unwrap_or(u32::MAX)
    }

    fn row(&mut self, taken: u32, moved: u32) {
        self.packing.add(self.block(), [moved]);
        self.longer_now = self.longer_now.saturating_add(moved.saturating_sub(taken));
        self.add(taken);
    }

    fn chunk(&mut self, chunk: Chunk, bytes: u32, page: PageSize) {
        match chunk {
            Chunk::Full => self.full += 1,
            Chunk::Rest(before) => {
                self.ends.push(self.block());
                let before = before.min(MOST_BEFORE);
                self.before_rests += u64::from(before);
                let full = (0..before).map(|_| taken(full_chunk(page)));
                self.packing.add(self.block(), full.chain([bytes]));
            }
        }
        self.add(bytes);
    }

    /// What is moved: besides values with a rest the full chunks that none of these has, evenly spread.
    fn moved(&self, page: PageSize) -> Sample {
        let mut packing = self.packing.clone();
        let others = self.full.saturating_sub(self.before_rests);
        for number in 0..others {
            let block = u128::from(number) * self.blocks.len() as u128 / u128::from(others);
            packing.add(u32::try_from(block).unwrap_or(u32::MAX), [taken(full_chunk(page))]);
        }
        packing
    }

    fn end_block(&mut self) {
        self.blocks.push(std::mem::take(&mut self.now));
        self.longer.push(std::mem::take(&mut self.longer_now));
        self.tuples.push(std::mem::take(&mut self.tuples_now));
        self.bytes.end_block();
    }

    /// The blocks of the sample, as if they were a relation.
    fn room(&self, page: PageSize, fillfactor: u32) -> Room {
        let mut room = Room::new(page, self.block(), fillfactor);
        for (number, &taken) in (0..).zip(&self.blocks) {
            room.set(number, taken);
        }
        for (number, &longer) in (0..).zip(&self.longer) {
            room.grow(number, longer);
        }
        room.holds(self.moved(page));
        room
    }

    /// Blocks to spare where the sample ends at this block: its own for all.
    fn spare(&self, end: u32, drawn: BlocksRead) -> Interval {
        let total = drawn.total as f64;
        if self.block() == 0 {
            // nothing is known
            return Interval { estimate: 0.0, low: 0.0, high: total };
        }
        let needed = f64::from(end) / f64::from(self.block()) * total;
        let bytes = self.bytes.total(drawn);
        // what is needed is as uncertain as the bytes that there are
        let part = |end: f64| if bytes.estimate > 0.0 { end / bytes.estimate } else { 1.0 };
        Interval {
            estimate: total - needed,
            low: total - needed * part(bytes.high),
            high: total - needed * part(bytes.low),
        }
        .at_least_zero()
    }

    /// What stands behind an end of the sample's blocks, for all.
    fn behind(&self, end: u32, room: &Room, page: PageSize, drawn: BlocksRead) -> Moved {
        let from = end as usize;
        let tuples: u64 =
            self.tuples.get(from..).unwrap_or_default().iter().map(|&n| u64::from(n)).sum();
        let blocks = self.tuples.get(from..).unwrap_or_default().iter().filter(|&&n| n > 0).count();
        let of_room = room.behind(end);
        let each = u32::try_from(of_room / tuples.max(1)).unwrap_or(u32::MAX);
        let front = room.front(end, each);
        let by = drawn.total as f64 / f64::from(self.block().max(1));
        let all = |number: u64| (number as f64 * by).round() as u64;
        let rows = Moved {
            end,
            moved: all(tuples),
            tuples: all(tuples),
            bytes: all(blocks as u64) * page.bytes() as u64,
            taken: all(of_room),
            blocks: all(blocks as u64),
            front: Front { blocks: all(front.blocks), taken: all(front.taken) },
        };
        let ends = self.ends.iter().filter(|&&block| block >= end).count() as u64;
        // rows; or values that all fill their last chunks, of which nothing tells how many chunks each has
        if ends == 0 {
            return rows;
        }
        // values: as many as have their rest there, and what stands of all of them
        let overhead = tuples * u64::from(taken(CHUNK_OVERHEAD));
        Moved { moved: all(ends), bytes: all(of_room.saturating_sub(overhead)), ..rows }
    }
}

/// A look at a file.
pub(crate) struct FileLook {
    kind: Kind,
    page: PageSize,
    fillfactor: u32,
    growth: Growth,
    all: Held,
    /// What is not dead.
    kept: Held,
    dead: Tally,
    dead_bytes: Tally,
    tuples: Tally,
}

impl FileLook {
    /// A look at a file of rows or of chunks. `fillfactor` is in percent; TOAST relations have none.
    pub(crate) fn new(kind: Kind, page: PageSize, fillfactor: u32) -> FileLook {
        FileLook {
            kind,
            page,
            fillfactor: if kind == Kind::Chunks { 100 } else { fillfactor },
            growth: Growth::default(),
            all: Held::default(),
            kept: Held::default(),
            dead: Tally::default(),
            dead_bytes: Tally::default(),
            tuples: Tally::default(),
        }
    }

    /// The same of a table whose rows get longer once they are moved.
    pub(crate) fn growing(self, growth: Growth) -> FileLook {
        FileLook { growth, ..self }
    }

    /// Takes a block; every tuple that is surely live goes to `live`.
    pub(crate) fn block<'p>(
        &mut self,
        number: BlockNumber,
        bytes: &'p [u8],
        judge: &impl Judge,
        mut live: impl FnMut(&HeapTuple<'p>, u16),
    ) {
        judged(number, bytes, judge, |_, tuple, length, seen| {
            let is_chunk = self.kind == Kind::Chunks;
            let chunk = is_chunk.then(|| Chunk::of(tuple, length, self.page));
            let moved = self.growth.taken(tuple, usize::from(length));
            self.take(length, moved, seen, chunk);
            if matches!(seen, Visibility::Live) {
                live(tuple, length);
            }
        });
        self.end_block();
    }

    /// Counts a row of the block that is being read.
    pub(crate) fn tuple(&mut self, tuple: &HeapTuple<'_>, length: u16, seen: Visibility) {
        self.take(length, self.growth.taken(tuple, usize::from(length)), seen, None);
    }

    fn take(&mut self, length: u16, moved: u32, seen: Visibility, chunk: Option<Chunk>) {
        let (page, taken) = (self.page, taken(usize::from(length)));
        let hold = |held: &mut Held| match chunk {
            Some(chunk) => held.chunk(chunk, taken, page),
            None => held.row(taken, moved),
        };
        self.tuples.add(1);
        hold(&mut self.all);
        if matches!(seen, Visibility::Dead) {
            self.dead.add(1);
            self.dead_bytes.add(u64::from(taken));
        } else {
            hold(&mut self.kept);
        }
    }

    /// The block is read.
    pub(crate) fn end_block(&mut self) {
        self.all.end_block();
        self.kept.end_block();
        for tally in [&mut self.dead, &mut self.dead_bytes, &mut self.tuples] {
            tally.end_block();
        }
    }

    /// Blocks that were read.
    pub(crate) fn read(&self) -> u64 {
        self.all.blocks.len() as u64
    }

    /// What is known of the file, of `total` blocks. `related`: the sizes of its indexes and table, where they are known.
    pub(crate) fn facts(&self, total: u64, related: Option<&RelatedFiles>) -> FileFill {
        let drawn = BlocksRead { read: self.read(), total };
        let page = self.page.bytes() as u64;
        let room = self.kept.room(self.page, self.fillfactor);
        let end = room.layout().end;
        let spare_vacuumed = self.kept.spare(end, drawn).scaled(page as f64);
        let end_of_all = self.all.room(self.page, self.fillfactor).layout().end;
        let (tuples, dead) = (self.tuples.total(drawn), self.dead.total(drawn));
        let compaction = related.map(|related| {
            let moved = self.kept.behind(end, &room, self.page, drawn);
            let live = (tuples.estimate - dead.estimate).max(0.0) as u64;
            Expected {
                gives_back: spare_vacuumed.estimate.round() as u64 / page * page,
                rows: (self.kind == Kind::Rows).then_some(moved.moved),
                values: (self.kind == Kind::Chunks).then_some(moved.moved),
                moved_bytes: moved.bytes,
                wal_bytes: wal(self.page, &moved, live, related),
                estimated: !drawn.is_all(),
            }
        });
        FileFill {
            bytes: total.saturating_mul(page),
            drawn,
            dead,
            dead_bytes: self.dead_bytes.total(drawn),
            tuples,
            spare: self.all.spare(end_of_all, drawn).scaled(page as f64),
            spare_vacuumed,
            compaction,
        }
    }
}

impl Visitor for FileLook {
    const WANTS_VALUES: bool = false;

    fn page(&mut self, block: BlockNumber, bytes: &[u8], judge: &impl Judge) {
        self.block(block, bytes, judge, |_, _| {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_of_values_are_moved_with_the_full_chunks_that_stand_before_them() {
        let page = PageSize::DEFAULT;
        let (full, rest) = (u16::try_from(full_chunk(page)).unwrap(), 56);
        let mut look = FileLook::new(Kind::Chunks, page, 100);
        // half of the blocks are empty; in the others the rests of 33 values stand together, their 132 full chunks
        // by fours
        for number in 0..680 {
            let is_mixed = number % 34 == 0;
            if number >= 340 {
                let whole = if is_mixed { 3 } else { 4 };
                (0..whole).for_each(|_| look.take(full, 0, Visibility::Live, Some(Chunk::Full)));
                let rests = if is_mixed { 33 } else { 0 };
                (0..rests).for_each(|_| look.take(rest, 0, Visibility::Live, Some(Chunk::Rest(4))));
            }
            look.end_block();
        }
        // in order, a rest takes the room of a full chunk on every page but those that four fill
        let related = RelatedFiles { index_bytes: 1 << 20, table: Some((1 << 20, 1 << 20)) };
        // every tenth block of a file was looked at
        let facts = look.facts(6800, Some(&related));
        let spare = facts.spare.estimate / (6800.0 * page.bytes() as f64);
        assert!((0.38..0.43).contains(&spare), "{spare}");
        let expected = facts.compaction.unwrap();
        assert!(expected.estimated && expected.rows.is_none(), "{expected:?}");
        // behind the end stand about 2,720 blocks, and in 80 of them the rests of 33 values
        assert!((2_300..2_970).contains(&expected.values.unwrap()), "{expected:?}");
        let bytes = expected.moved_bytes as f64 / (2_720.0 * 4.0 * 1_996.0);
        assert!((0.95..1.08).contains(&bytes), "{expected:?}");
    }

    #[test]
    fn values_without_a_rest_are_moved_too() {
        let page = PageSize::DEFAULT;
        let full = u16::try_from(full_chunk(page)).unwrap();
        let mut look = FileLook::new(Kind::Chunks, page, 100);
        for number in 0..400 {
            let chunks = if number % 2 == 0 { 4 } else { 0 };
            (0..chunks).for_each(|_| look.take(full, 0, Visibility::Live, Some(Chunk::Full)));
            look.end_block();
        }
        let spare = look.facts(400, None).spare.estimate / (400.0 * page.bytes() as f64);
        assert!((0.48..=0.5).contains(&spare), "{spare}");
    }

    #[test]
    fn where_no_block_could_be_read_nothing_is_known() {
        let related = RelatedFiles { index_bytes: 1 << 20, table: Some((1 << 20, 1 << 20)) };
        for look in
            [Kind::Chunks, Kind::Rows].map(|kind| FileLook::new(kind, PageSize::DEFAULT, 100))
        {
            let facts = look.facts(10_000, Some(&related));
            for spare in [facts.spare, facts.spare_vacuumed] {
                assert_eq!((spare.estimate, spare.low, spare.high), (0.0, 0.0, 8192.0 * 10_000.0));
            }
            assert_eq!(facts.compaction.map_or(0, |expected| expected.gives_back), 0);
        }
    }
}
