//! What each block of a file holds, recorded by a scan of all of them: where the file would end, and what would have to be
//! moved (pure). Parts of a file that are read side by side are merged, in any order.

use super::lengths::Growth;
use super::moves::{Expected, Moved, RelatedFiles, wal};
use super::packing::{Sample, chunks_of};
use super::room::{Room, taken};
use crate::disk::layout::PageSize;
use crate::disk::tuple::HeapTuple;
use crate::disk::{BlockNumber, ItemPointer};
use crate::heap::scan::{Judge, Merge, Visitor, judged};
use crate::model::pages::CHUNK_OVERHEAD;
use crate::model::visibility::Visibility;

/// Tuples kept of the sample at the most, and of a TOAST relation runs of a value's chunks on a page.
const MOST: usize = 1 << 15;

/// Chunks that count as stored together, so that values of very many weigh what they take.
const MOST_CHUNKS: u32 = 60;

/// What the tuples of a file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Rows,
    Chunks,
}

/// Live tuples of a block: a row, or chunks of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    /// Of a row its block, of a value its number: runs are kept or not by these alone.
    key: u32,
    block: u32,
    /// Bytes taken of the page, once it is moved.
    taken: u32,
    /// Bytes of data of the chunks.
    data: u32,
}

/// Runs of an even part of the keys.
#[derive(Debug, Clone, Default)]
struct Kept {
    runs: Vec<Run>,
    /// Of 2 to this power keys one is kept.
    halved: u32,
}

impl Kept {
    fn wants(&self, key: u32) -> bool {
        let mixed = (u64::from(key) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as u32 & ((1 << self.halved) - 1) == 0
    }

    fn push(&mut self, run: Run) {
        self.runs.push(run);
        while self.runs.len() > MOST && self.halved < 31 {
            self.halved += 1;
            self.thin();
        }
    }

    fn thin(&mut self) {
        let mut runs = std::mem::take(&mut self.runs);
        runs.retain(|run| self.wants(run.key));
        self.runs = runs;
    }

    fn merge(&mut self, other: Kept) {
        self.halved = self.halved.max(other.halved);
        self.thin();
        let wanted: Vec<Run> = other.runs.into_iter().filter(|run| self.wants(run.key)).collect();
        wanted.into_iter().for_each(|run| {
            // pushing may thin them further
            if self.wants(run.key) {
                self.push(run);
            }
        });
    }
}

/// Live tuples of some blocks.
#[derive(Debug, Clone, Copy, Default)]
struct Tuples {
    tuples: u32,
    /// Blocks that have any.
    blocks: u32,
}

/// What each block of a file holds.
#[derive(Debug, Clone)]
pub(crate) struct Survey {
    kind: Kind,
    page: PageSize,
    /// Blocks of the file, and those that were read.
    blocks: u32,
    read: u32,
    /// With dead tuples.
    all: Room,
    /// Without them, as VACUUM would leave the file.
    live: Room,
    /// For each of the blocks that `live` keeps.
    standing: Vec<Tuples>,
    sample: Kept,
    counted: Counted,
    growth: Growth,
    /// The block that is being read.
    now: Now,
}

/// Sums over all blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) tuples: u64,
    pub(crate) dead: u64,
    /// Bytes that dead tuples take of pages.
    pub(crate) dead_bytes: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Now {
    live: u32,
    /// Bytes that live rows take more once they are moved.
    longer: u32,
    tuples: u32,
    dead: u32,
    dead_bytes: u32,
    /// Whether rows of this block are in the sample.
    is_kept: bool,
    run: Option<Run>,
}

impl Survey {
    /// Nothing read yet, of a file of `blocks` blocks. `fillfactor` is in percent.
    pub(crate) fn new(kind: Kind, page: PageSize, blocks: u32, fillfactor: u32) -> Survey {
        let live = Room::new(page, blocks, fillfactor);
        Survey {
            kind,
            page,
            blocks,
            read: 0,
            standing: vec![Tuples::default(); live.groups()],
            all: live.clone(),
            live,
            sample: Kept::default(),
            counted: Counted::default(),
            growth: Growth::default(),
            now: Now::default(),
        }
    }

    /// The same of a table whose rows get longer once they are moved.
    pub(crate) fn growing(self, growth: Growth) -> Survey {
        Survey { growth, ..self }
    }

    /// Records a block.
    pub(crate) fn block(&mut self, number: BlockNumber, bytes: &[u8], judge: &impl Judge) {
        self.begin_page(number);
        judged(number, bytes, judge, |at, tuple, length, seen| {
            self.tuple(at, tuple, length, seen);
        });
        self.end_page(number);
    }

    fn keep(&mut self, run: Option<Run>) {
        if let Some(run) = run.filter(|run| self.sample.wants(run.key)) {
            self.sample.push(run);
        }
    }

    /// All blocks are read.
    pub(crate) fn end(&mut self) {
        // by value, or as rows stand
        self.sample.runs.sort_by_key(|run| (run.key, run.block));
        let mut sample = Sample::default();
        for value in self.sample.runs.chunk_by(|a, b| a.key == b.key) {
            match self.kind {
                Kind::Rows => value.iter().for_each(|run| sample.add(run.block, [run.taken])),
                Kind::Chunks => {
                    let most = MOST_CHUNKS * self.page.toast_max_chunk_size();
                    let (mut bytes, mut last) = (0u32, 0);
                    for run in value {
                        (bytes, last) = (bytes.saturating_add(run.data), run.block);
                        if bytes >= most {
                            sample.add(last, chunks_of(self.page, u64::from(bytes)));
                            bytes = 0;
                        }
                    }
                    sample.add(last, chunks_of(self.page, u64::from(bytes)));
                }
            }
        }
        self.all.holds(sample.clone());
        self.live.holds(sample);
    }

    /// Blocks of the file, and those that were read.
    pub(crate) fn blocks(&self) -> (u32, u32) {
        (self.blocks, self.read)
    }

    pub(crate) fn counted(&self) -> Counted {
        self.counted
    }

    /// The part of the file that is not taken by what is live: no more can be to spare.
    pub(crate) fn free_part(&self) -> f64 {
        let bytes = f64::from(self.blocks.max(1)) * self.page.bytes() as f64;
        1.0 - (self.live.live() as f64 / bytes).min(1.0)
    }

    /// Bytes that could be given back if what stands in the file, dead tuples too, stood together.
    pub(crate) fn spare(&self) -> u64 {
        u64::from(self.all.layout().spare()) * self.page.bytes() as u64
    }

    /// What a compaction of the file as VACUUM would leave it comes to.
    pub(crate) fn expected(&self, related: &RelatedFiles) -> Expected {
        let moved = self.moved();
        let tuples = self.counted.tuples - self.counted.dead;
        let rows = self.kind == Kind::Rows;
        Expected {
            gives_back: u64::from(self.blocks - moved.end) * self.page.bytes() as u64,
            rows: rows.then_some(moved.moved),
            values: (!rows).then_some(moved.moved),
            moved_bytes: moved.bytes,
            wal_bytes: wal(self.page, &moved, tuples, related),
            estimated: false,
        }
    }

    /// What would be moved.
    fn moved(&self) -> Moved {
        let end = self.live.layout().end;
        let behind = self.standing.get(self.live.groups_up_to(end)..).unwrap_or_default();
        let tuples = behind.iter().map(|of| u64::from(of.tuples)).sum();
        let blocks = behind.iter().map(|of| u64::from(of.blocks)).sum();
        let taken = self.live.behind(end);
        let all = Moved {
            end,
            moved: tuples,
            tuples,
            bytes: blocks * self.page.bytes() as u64,
            taken,
            blocks,
            front: self.live.front(end, u32::try_from(taken / tuples.max(1)).unwrap_or(u32::MAX)),
        };
        match self.kind {
            Kind::Rows => all,
            Kind::Chunks => self.values_behind(all),
        }
    }

    /// What the values with chunks behind the end come to: as those of the sample, which are all if they are few.
    fn values_behind(&self, all: Moved) -> Moved {
        let (mut values, mut data, mut taken, mut behind, mut runs) =
            (0u64, 0u64, 0u64, 0u64, 0u64);
        for value in self.sample.runs.chunk_by(|a, b| a.key == b.key) {
            let stands_behind = |run: &&Run| run.block >= all.end;
            if !value.iter().any(|run| stands_behind(&run)) {
                continue;
            }
            values += 1;
            data += value.iter().map(|run| u64::from(run.data)).sum::<u64>();
            taken += value.iter().map(|run| u64::from(run.taken)).sum::<u64>();
            behind +=
                value.iter().filter(stands_behind).map(|run| u64::from(run.taken)).sum::<u64>();
            runs += value.iter().filter(|run| run.block < all.end).count() as u64;
        }
        if all.taken == 0 || behind == 0 {
            return Moved { moved: 0, bytes: 0, ..all };
        }
        // the bytes behind the end are known of all
        let of_all =
            |sampled: u64| (sampled as f64 * all.taken as f64 / behind as f64).round() as u64;
        let taken = of_all(taken);
        Moved {
            moved: of_all(values),
            tuples: (all.tuples as f64 * taken as f64 / all.taken as f64).round() as u64,
            bytes: of_all(data),
            taken,
            blocks: all.blocks + of_all(runs).min(u64::from(all.end)),
            ..all
        }
    }
}

impl Visitor for Survey {
    const WANTS_VALUES: bool = false;

    fn begin_page(&mut self, block: BlockNumber) {
        let is_kept = self.kind == Kind::Rows && self.sample.wants(block.0);
        self.now = Now { is_kept, ..Now::default() };
    }

    #[inline]
    fn tuple(&mut self, at: ItemPointer, tuple: &HeapTuple<'_>, length: u16, seen: Visibility) {
        let bytes = taken(usize::from(length));
        if matches!(seen, Visibility::Dead) {
            self.now.dead += 1;
            self.now.dead_bytes = self.now.dead_bytes.saturating_add(bytes);
            return;
        }
        self.now.live = self.now.live.saturating_add(bytes);
        self.now.tuples += 1;
        let block = at.block.0;
        match self.kind {
            Kind::Rows => {
                let moved = self.growth.taken(tuple, usize::from(length));
                self.now.longer = self.now.longer.saturating_add(moved.saturating_sub(bytes));
                if self.now.is_kept {
                    self.sample.push(Run { key: block, block, taken: moved, data: 0 });
                }
            }
            Kind::Chunks => {
                // chunk_id comes first
                let key = tuple.order.u32(tuple.data, 0).unwrap_or(0);
                let data = u32::from(length).saturating_sub(CHUNK_OVERHEAD as u32);
                match &mut self.now.run {
                    Some(run) if run.key == key => {
                        run.taken = run.taken.saturating_add(bytes);
                        run.data = run.data.saturating_add(data);
                    }
                    run => {
                        let begun = Run { key, block, taken: bytes, data };
                        let before = run.replace(begun);
                        self.keep(before);
                    }
                }
            }
        }
    }

    fn end_page(&mut self, block: BlockNumber) {
        let Now { live, longer, tuples, dead, dead_bytes, run, .. } = std::mem::take(&mut self.now);
        self.keep(run);
        self.read += 1;
        self.counted.tuples += u64::from(tuples) + u64::from(dead);
        self.counted.dead += u64::from(dead);
        self.counted.dead_bytes += u64::from(dead_bytes);
        self.all.set(block.0, live.saturating_add(dead_bytes));
        self.live.set(block.0, live);
        self.all.grow(block.0, longer);
        self.live.grow(block.0, longer);
        let group = self.live.group(block.0);
        if let Some(standing) = self.standing.get_mut(group).filter(|_| tuples > 0) {
            standing.tuples = standing.tuples.saturating_add(tuples);
            standing.blocks += 1;
        }
    }
}

/// Blocks of the same file that another worker has read are added.
impl Merge for Survey {
    fn merge(&mut self, other: Survey) {
        self.read += other.read;
        self.all.merge(&other.all);
        self.live.merge(&other.live);
        for (ours, theirs) in self.standing.iter_mut().zip(&other.standing) {
            ours.tuples = ours.tuples.saturating_add(theirs.tuples);
            ours.blocks += theirs.blocks;
        }
        self.sample.merge(other.sample);
        self.counted.tuples += other.counted.tuples;
        self.counted.dead += other.counted.dead;
        self.counted.dead_bytes += other.counted.dead_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: PageSize = PageSize::DEFAULT;
    const CHUNK: u16 = 2032;

    /// Takes down these tuples of a block: what each begins with, its length, and whether it is dead.
    fn block(survey: &mut Survey, number: u32, tuples: &[(u32, u16, bool)]) {
        survey.begin_page(BlockNumber(number));
        for &(id, length, is_dead) in tuples {
            let data = id.to_le_bytes();
            let tuple = HeapTuple::of_data(&data);
            let seen = if is_dead { Visibility::Dead } else { Visibility::Live };
            let at = ItemPointer { block: BlockNumber(number), item: 1 };
            survey.tuple(at, &tuple, length, seen);
        }
        survey.end_page(BlockNumber(number));
    }

    /// Values of four chunks of which the first two stand at the end of a block, the others in the next one.
    fn values(blocks: u32, parts: u32) -> Survey {
        let mut all: Vec<Survey> =
            (0..parts).map(|_| Survey::new(Kind::Chunks, PAGE, blocks, 100)).collect();
        for number in 0..blocks {
            let mut tuples = vec![(number, CHUNK, false); 2];
            if number + 1 < blocks {
                tuples.extend([(number + 1, CHUNK, number % 2 == 0); 2]);
            }
            block(&mut all[(number % parts) as usize], number, &tuples);
        }
        let mut all = all.into_iter();
        let mut survey = all.next().unwrap();
        all.for_each(|other| survey.merge(other));
        survey.end();
        survey
    }

    #[test]
    fn parts_that_are_merged_in_any_order_say_the_same_as_the_whole() {
        for blocks in [10, 1_000, 40_000] {
            let (one, three) = (values(blocks, 1), values(blocks, 3));
            assert_eq!(one.moved(), three.moved());
            assert_eq!(one.counted(), three.counted());
            assert_eq!((one.blocks(), three.blocks()), ((blocks, blocks), (blocks, blocks)));
            assert_eq!(one.spare(), three.spare());
        }
    }

    #[test]
    fn values_behind_the_end_move_whole() {
        let survey = values(1_000, 1);
        let expected = survey
            .expected(&RelatedFiles { index_bytes: 1 << 20, table: Some((1 << 20, 1 << 20)) });
        // dead are the second halves of every second value; three fourths are left
        let end = 1_000 - expected.gives_back / PAGE.bytes() as u64;
        assert!((745..765).contains(&end), "{expected:?}");
        let values = expected.values.unwrap();
        assert!((1_000 - end..=1_000 - end + 1).contains(&values), "{expected:?}");
        assert_eq!(expected.rows, None);
        let wal = expected.wal_bytes;
        assert!(expected.moved_bytes < wal.low && wal.low < wal.high, "{expected:?}");
    }

    #[test]
    fn few_of_many_values_stand_for_all() {
        let survey = values(40_000, 1);
        assert!(survey.sample.halved > 0 && survey.sample.runs.len() <= MOST);
        let expected = survey.expected(&RelatedFiles { index_bytes: 0, table: Some((0, 0)) });
        let behind = expected.gives_back as f64 / PAGE.bytes() as f64;
        assert!((expected.values.unwrap() as f64 / behind - 1.0).abs() < 0.02, "{expected:?}");
    }

    #[test]
    fn rows_behind_the_end_are_counted_and_dead_ones_take_room_until_vacuum() {
        let mut survey = Survey::new(Kind::Rows, PAGE, 1_000, 100);
        for number in 0..1_000 {
            let row = |at: u32| (at, 100, at % 2 == 1 && number < 500);
            let rows: Vec<_> = (0..if number < 500 { 74 } else { 37 }).map(row).collect();
            block(&mut survey, number, &rows);
        }
        survey.end();
        let expected = survey.expected(&RelatedFiles { index_bytes: 0, table: None });
        let end = 1_000 - expected.gives_back / PAGE.bytes() as u64;
        assert!((494..510).contains(&end), "{expected:?}");
        assert_eq!(expected.rows, Some((1_000 - end) * 37));
        assert_eq!(expected.moved_bytes, (1_000 - end) * PAGE.bytes() as u64);
        assert!(survey.spare() < expected.gives_back * 6 / 10, "{}", survey.spare());
        assert_eq!(
            survey.counted(),
            Counted { tuples: 55_500, dead: 18_500, dead_bytes: 18_500 * 108 }
        );
    }

    #[test]
    fn an_empty_file_has_nothing_to_move() {
        let mut survey = Survey::new(Kind::Rows, PAGE, 0, 100);
        survey.end();
        let expected = survey.expected(&RelatedFiles { index_bytes: 0, table: None });
        assert_eq!((expected.gives_back, expected.rows, expected.wal_bytes.high), (0, Some(0), 0));
    }
}
