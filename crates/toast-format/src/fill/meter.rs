//! How full a file is (pure): what each of its blocks contains, or each of a sample, where the file could end, and
//! what compaction would move. Results from parts of a file that are read concurrently are merged, in any order.

use super::dead_values::DeadValues;
use super::deaths::Deaths;
use super::lengths::Growth;
use super::moves::{Expected, Moved, RelatedFiles, gin_growth, wal};
use super::packing::{Sample, chunks_of};
use super::room::{Front, MOST_KEPT, Room, taken};
use crate::disk::{BlockNumber, HeapTuple, ItemPointer, PageSize};
use crate::heap::scan::{Merge, Visible, Visitor, each_tuple};
use crate::model::estimate::Tally;
use crate::model::pages::{CHUNK_OVERHEAD, MIN_GAIN};
use crate::model::{BlocksRead, Interval, Visibility};

/// The maximum number of runs kept. A run is a row, or the chunks of a value on one page.
const MOST: usize = 1 << 15;

/// The maximum number of chunks that count as stored together, so that the weight of very large values corresponds to
/// the space that they occupy.
const MOST_CHUNKS: u32 = 60;

/// The figures for a file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FileFill {
    /// The size of the file, in bytes.
    pub bytes: u64,
    /// The number of blocks read, and of all blocks.
    pub drawn: BlocksRead,
    /// Dead tuples, which no current statement would return.
    pub dead: Interval,
    /// The size of the dead tuples, in bytes.
    pub dead_bytes: Interval,
    /// The transactions that deleted them.
    pub deaths: Deaths,
    /// The number of tuples, dead ones included.
    pub tuples: Interval,
    /// By how many bytes the file would be shorter if its content, including dead tuples, were stored contiguously.
    pub spare: Interval,
    /// The same without dead tuples, which VACUUM would remove.
    pub spare_vacuumed: Interval,
    /// The result of compaction, if it may be worthwhile and the sizes of the related files are known.
    pub compaction: Option<Expected>,
}

/// The kind of tuples in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Rows of a table.
    Rows,
    /// Chunks of a TOAST relation.
    Chunks,
}

/// Live tuples of a block: a row, or chunks of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    /// The block of a row, or the number of a value. Whether a run is kept depends only on this.
    key: u32,
    block: u32,
    /// Bytes occupied on a page after the run is moved.
    taken: u32,
    /// Bytes of data in the chunks.
    data: u32,
    /// The number of full chunks of the value before its last one, if the last one is in this run and is shorter.
    before_rest: Option<u32>,
}

/// The runs of a regular subset of the keys.
#[derive(Debug, Clone, Default)]
struct Runs {
    runs: Vec<Run>,
    /// One in 2 to this power keys is kept.
    halved: u32,
}

impl Runs {
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

    /// The runs of each value; `runs` must be sorted.
    fn of_values(&self) -> impl Iterator<Item = &[Run]> {
        self.runs.chunk_by(|a, b| a.key == b.key)
    }

    fn merge(&mut self, other: Runs) {
        self.halved = self.halved.max(other.halved);
        self.thin();
        let wanted: Vec<Run> = other.runs.into_iter().filter(|run| self.wants(run.key)).collect();
        wanted.into_iter().for_each(|run| {
            // pushing may thin the runs further
            if self.wants(run.key) {
                self.push(run);
            }
        });
    }
}

/// Live tuples of a group of blocks.
#[derive(Debug, Clone, Copy, Default)]
struct Tuples {
    tuples: u32,
    /// The number of blocks that have live tuples.
    blocks: u32,
}

/// The bytes that blocks contain.
#[derive(Debug, Clone)]
struct Occupied {
    room: Room,
    bytes: Tally,
}

impl Occupied {
    /// Bytes of blocks that could be returned if the file ended at `end`. Each block of a sample represents several.
    fn spare(&self, end: u32, drawn: BlocksRead, page: PageSize) -> Interval {
        let total = drawn.total as f64;
        if drawn.read == 0 {
            return Interval { estimate: 0.0, low: 0.0, high: total }.scaled(page.bytes() as f64);
        }
        // this order of operations is exact if all blocks were read
        let needed = f64::from(end) * total / drawn.read as f64;
        let bytes = self.bytes.total(drawn);
        // the need is as uncertain as the number of bytes in the file
        let is_empty = bytes.estimate <= 0.0;
        let most = if is_empty { 1.0 } else { bytes.high / bytes.estimate };
        let least = if is_empty { 1.0 } else { bytes.low / bytes.estimate };
        Interval {
            estimate: total - needed,
            low: total - needed * most,
            high: total - needed * least,
        }
        .at_least_zero()
        .scaled(page.bytes() as f64)
    }
}

/// Takes the tuples of a file's blocks, or of a sample of them, and determines how full the file is.
#[derive(Debug, Clone)]
pub struct FileMeter {
    kind: Kind,
    page: PageSize,
    /// Whether the blocks are from different places, and represent the file in the order in which they are added.
    is_sample: bool,
    read: u32,
    /// All tuples, including dead ones.
    all: Occupied,
    /// Without dead tuples, as VACUUM would leave the file.
    live: Occupied,
    /// Live tuples per group of blocks; `live` keeps one block of each group.
    standing: Vec<Tuples>,
    runs: Runs,
    tuples: Tally,
    dead: Tally,
    dead_bytes: Tally,
    deaths: Deaths,
    growth: Growth,
    /// The values in dead chunks, if they are needed.
    dead_values: Option<DeadValues>,
    /// The block that is being read.
    now: Now,
}

#[derive(Debug, Clone, Copy, Default)]
struct Now {
    /// Its place among the blocks that are read.
    place: u32,
    live: u32,
    /// By how many bytes live rows become longer when they are moved.
    longer: u32,
    tuples: u32,
    dead: u32,
    dead_bytes: u32,
    run: Option<Run>,
}

impl FileMeter {
    /// A meter for a file of which all `blocks` blocks will be read. `fillfactor` is in percent, and is ignored for
    /// TOAST relations.
    pub fn whole(kind: Kind, page: PageSize, blocks: u32, fillfactor: u32) -> FileMeter {
        let fillfactor = if kind == Kind::Chunks { 100 } else { fillfactor };
        let held = Occupied { room: Room::new(page, blocks, fillfactor), bytes: Tally::default() };
        let mut meter = FileMeter {
            kind,
            page,
            is_sample: false,
            read: 0,
            standing: vec![Tuples::default(); held.room.groups()],
            all: held.clone(),
            live: held,
            runs: Runs::default(),
            tuples: Tally::default(),
            dead: Tally::default(),
            dead_bytes: Tally::default(),
            deaths: Deaths::default(),
            growth: Growth::default(),
            dead_values: None,
            now: Now::default(),
        };
        meter.begin(0);
        meter
    }

    /// A meter for a file of which a sample is read, block after block, at most `MOST_KEPT` blocks.
    pub fn sample(kind: Kind, page: PageSize, fillfactor: u32) -> FileMeter {
        FileMeter { is_sample: true, ..FileMeter::whole(kind, page, MOST_KEPT, fillfactor) }
    }

    /// Makes the meter take into account that rows become longer when they are moved.
    pub fn growing(self, growth: Growth) -> FileMeter {
        FileMeter { growth, ..self }
    }

    /// Makes the meter of a TOAST relation remember the values in dead chunks.
    pub fn with_dead_values(self) -> FileMeter {
        let dead_values = (self.kind == Kind::Chunks).then(DeadValues::default);
        FileMeter { dead_values, ..self }
    }

    /// The values in dead chunks, if the meter was made with [`FileMeter::with_dead_values`].
    pub fn take_dead_values(&mut self) -> DeadValues {
        self.dead_values.take().unwrap_or_default()
    }

    /// Adds a block. Every tuple that is certainly live is passed to `live`.
    pub fn block<'p>(
        &mut self,
        number: BlockNumber,
        bytes: &'p [u8],
        visible: &impl Visible,
        mut live: impl FnMut(&HeapTuple<'p>, u16),
    ) {
        self.begin(if self.is_sample { self.read } else { number.0 });
        each_tuple(number, bytes, visible, |_, tuple, length, seen| {
            self.take(tuple, length, seen);
            if matches!(seen, Visibility::Live) {
                live(tuple, length);
            }
        });
        self.end_block();
    }

    /// Adds a tuple of the block that is being read.
    #[inline]
    pub fn take(&mut self, tuple: &HeapTuple<'_>, length: u16, seen: Visibility) {
        let bytes = taken(usize::from(length));
        if matches!(seen, Visibility::Dead) {
            self.now.dead += 1;
            self.deaths.add(tuple);
            self.now.dead_bytes = self.now.dead_bytes.saturating_add(bytes);
            if let Some(values) = &mut self.dead_values {
                values.take(tuple);
            }
            return;
        }
        self.now.live = self.now.live.saturating_add(bytes);
        self.now.tuples += 1;
        let block = self.now.place;
        match self.kind {
            Kind::Rows => {
                let moved = self.growth.taken(tuple, usize::from(length));
                self.now.longer = self.now.longer.saturating_add(moved.saturating_sub(bytes));
                self.keep(Some(Run {
                    key: block,
                    block,
                    taken: moved,
                    data: 0,
                    before_rest: None,
                }));
            }
            Kind::Chunks => {
                // chunk_id and chunk_seq are the first two columns
                let key = tuple.order.u32(tuple.data, 0).unwrap_or(0);
                let data = u32::from(length).saturating_sub(CHUNK_OVERHEAD as u32);
                let is_rest = data < self.page.toast_max_chunk_size();
                let before_rest = if is_rest { tuple.order.u32(tuple.data, 4) } else { None };
                match &mut self.now.run {
                    Some(run) if run.key == key => {
                        run.taken = run.taken.saturating_add(bytes);
                        run.data = run.data.saturating_add(data);
                        run.before_rest = run.before_rest.or(before_rest);
                    }
                    run => {
                        let begun = Run { key, block, taken: bytes, data, before_rest };
                        let before = run.replace(begun);
                        self.keep(before);
                    }
                }
            }
        }
    }

    /// Ends the current block.
    pub fn end_block(&mut self) {
        let Now { place, live, longer, tuples, dead, dead_bytes, run, .. } = self.now;
        self.keep(run);
        self.read += 1;
        for (held, bytes) in
            [(&mut self.live, live), (&mut self.all, live.saturating_add(dead_bytes))]
        {
            held.bytes.add_block(u64::from(bytes));
            held.room.set(place, bytes);
            held.room.grow(place, longer);
        }
        self.tuples.add_block(u64::from(tuples) + u64::from(dead));
        self.dead.add_block(u64::from(dead));
        self.dead_bytes.add_block(u64::from(dead_bytes));
        let group = self.live.room.group(place);
        if tuples > 0
            && let Some(standing) = self.standing.get_mut(group)
        {
            standing.tuples = standing.tuples.saturating_add(tuples);
            standing.blocks += 1;
        }
        self.begin(self.read);
    }

    fn begin(&mut self, place: u32) {
        self.now = Now { place, ..Now::default() };
    }

    fn keep(&mut self, run: Option<Run>) {
        if let Some(run) = run.filter(|run| self.runs.wants(run.key)) {
            self.runs.push(run);
        }
    }

    /// The number of blocks read.
    pub fn read(&self) -> u64 {
        u64::from(self.read)
    }

    /// The figures for the file of `total` blocks, which are exact if all were read. `related` has the sizes of its
    /// indexes and its table, if known.
    pub fn finish(mut self, total: u64, related: Option<&RelatedFiles>) -> FileFill {
        let drawn = BlocksRead { read: self.read(), total };
        let page = self.page.bytes() as u64;
        let tuples = self.tuples.total(drawn);
        let dead = self.dead.total(drawn);
        let fill = FileFill {
            bytes: total.saturating_mul(page),
            drawn,
            dead,
            dead_bytes: self.dead_bytes.total(drawn),
            deaths: self.deaths,
            tuples,
            spare: Interval::default(),
            spare_vacuumed: Interval::default(),
            compaction: None,
        };
        let free_part = 1.0 - self.live.room.live() as f64 / fill.bytes.max(1) as f64;
        if drawn.is_all() && free_part < MIN_GAIN {
            // no more than this, wherever it is
            let most = fill.bytes as f64 * free_part.max(0.0);
            let most = Interval { estimate: most, low: 0.0, high: most };
            return FileFill { spare: most, spare_vacuumed: most, ..fill };
        }
        if self.is_sample {
            let read = self.read;
            self.all.room.cut(read);
            self.live.room.cut(read);
        }
        // sorts by value, or by block for rows
        self.runs.runs.sort_by_key(|run| (run.key, run.block));
        let moves = match self.kind {
            Kind::Rows => self.rows(),
            Kind::Chunks if drawn.is_all() => self.values(),
            Kind::Chunks => self.rests(),
        };
        let has_dead = dead.high > 0.0;
        if has_dead {
            self.all.room.holds(moves.clone());
        }
        self.live.room.holds(moves);
        let end = self.live.room.layout().end;
        let spare_vacuumed = self.live.spare(end, drawn, self.page);
        let spare = if has_dead {
            self.all.spare(self.all.room.layout().end, drawn, self.page)
        } else {
            spare_vacuumed
        };
        let compaction = related.map(|related| {
            let moved = self.moved(drawn, end);
            let live = (tuples.estimate - dead.estimate).max(0.0) as u64;
            let is_rows = self.kind == Kind::Rows;
            Expected {
                gives_back: spare_vacuumed.estimate.round() as u64 / page * page,
                rows: is_rows.then_some(moved.moved),
                values: (!is_rows).then_some(moved.moved),
                moved_bytes: moved.bytes,
                wal_bytes: wal(self.page, &moved, live, related),
                gin_growth: gin_growth(&moved, live, related),
                estimated: !drawn.is_all(),
            }
        });
        FileFill { spare, spare_vacuumed, compaction, ..fill }
    }

    /// What would be moved in a table.
    fn rows(&self) -> Sample {
        let mut sample = Sample::default();
        self.runs.runs.iter().for_each(|run| sample.add(run.block, [run.taken]));
        sample
    }

    /// What would be moved in a TOAST relation of which all blocks were read: whole values.
    fn values(&self) -> Sample {
        let mut sample = Sample::default();
        let most = MOST_CHUNKS * self.page.toast_max_chunk_size();
        for value in self.runs.of_values() {
            let mut bytes = 0u32;
            let mut last = 0;
            for run in value {
                (bytes, last) = (bytes.saturating_add(run.data), run.block);
                if bytes >= most {
                    sample.add(last, chunks_of(self.page, u64::from(bytes)));
                    bytes = 0;
                }
            }
            sample.add(last, chunks_of(self.page, u64::from(bytes)));
        }
        sample
    }

    /// The same for a sample, which may lack some chunks of a value: the last chunk of a value shows its size, and
    /// the remaining full chunks are assumed to be moved too, evenly spread.
    fn rests(&self) -> Sample {
        let chunk = self.page.toast_max_chunk_size();
        let mut sample = Sample::default();
        let mut full = 0u64;
        let mut before_rests = 0u64;
        for run in &self.runs.runs {
            full += u64::from(run.data / chunk);
            if let Some(before) = run.before_rest {
                let before = before.min(MOST_CHUNKS);
                before_rests += u64::from(before);
                let bytes = u64::from(before) * u64::from(chunk) + u64::from(run.data % chunk);
                sample.add(run.block, chunks_of(self.page, bytes));
            }
        }
        let others = full.saturating_sub(before_rests);
        for number in 0..others {
            let block = u128::from(number) * u128::from(self.read) / u128::from(others);
            let block = u32::try_from(block).unwrap_or(u32::MAX);
            sample.add(block, chunks_of(self.page, u64::from(chunk)));
        }
        sample
    }

    /// What would be moved in the whole file if it ended at `end`.
    fn moved(&self, drawn: BlocksRead, end: u32) -> Moved {
        let room = &self.live.room;
        let behind = self.standing.get(room.groups_up_to(end)..).unwrap_or_default();
        let tuples = behind.iter().map(|of| u64::from(of.tuples)).sum();
        let blocks = behind.iter().map(|of| u64::from(of.blocks)).sum();
        let taken = room.behind(end);
        let all = Moved {
            end,
            moved: tuples,
            tuples,
            bytes: blocks * self.page.bytes() as u64,
            taken,
            blocks,
            front: room.front(end, u32::try_from(taken / tuples.max(1)).unwrap_or(u32::MAX)),
        };
        let here = match self.kind {
            Kind::Rows => all,
            Kind::Chunks if drawn.is_all() => self.values_behind(all),
            Kind::Chunks => self.rests_behind(all),
        };
        let by = drawn.total as f64 / drawn.read.max(1) as f64;
        let of_file = |number: u64| (number as f64 * by).round() as u64;
        Moved {
            end,
            moved: of_file(here.moved),
            tuples: of_file(here.tuples),
            bytes: of_file(here.bytes),
            taken: of_file(here.taken),
            blocks: of_file(here.blocks),
            front: Front { blocks: of_file(here.front.blocks), taken: of_file(here.front.taken) },
        }
    }

    /// The values with chunks behind the end, extrapolated from those that were kept, which are all of them if they
    /// are few.
    fn values_behind(&self, all: Moved) -> Moved {
        let mut values = 0u64;
        let mut data = 0u64;
        let mut taken = 0u64;
        let mut behind = 0u64;
        let mut runs = 0u64;
        for value in self.runs.of_values() {
            if !value.iter().any(|run| run.block >= all.end) {
                continue;
            }
            values += 1;
            for run in value {
                data += u64::from(run.data);
                taken += u64::from(run.taken);
                if run.block < all.end {
                    runs += 1;
                } else {
                    behind += u64::from(run.taken);
                }
            }
        }
        if all.taken == 0 || behind == 0 {
            return Moved { moved: 0, bytes: 0, ..all };
        }
        // the number of bytes behind the end is known for all values
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

    /// The same for a sample of blocks: the number of values whose last chunks are behind the end, with all chunks
    /// there. If values fill their last chunks, they cannot be distinguished, and each chunk counts.
    fn rests_behind(&self, all: Moved) -> Moved {
        let ends = self.runs.runs.iter();
        let ends = ends.filter(|run| run.before_rest.is_some() && run.block >= all.end).count();
        if ends == 0 {
            return all;
        }
        let overhead = all.tuples * u64::from(taken(CHUNK_OVERHEAD));
        Moved {
            moved: (ends as u64) << self.runs.halved,
            bytes: all.taken.saturating_sub(overhead),
            ..all
        }
    }
}

/// During a scan of all blocks, the meter takes the tuples that the scan has found; for a sample, it decodes the
/// pages itself.
impl Visitor for FileMeter {
    const WANTS_VALUES: bool = false;

    fn page(&mut self, block: BlockNumber, bytes: &[u8], visible: &impl Visible) {
        if self.is_sample {
            self.block(block, bytes, visible, |_, _| {});
        }
    }

    fn begin_page(&mut self, block: BlockNumber) {
        if !self.is_sample {
            self.begin(block.0);
        }
    }

    #[inline]
    fn tuple(&mut self, _at: ItemPointer, tuple: &HeapTuple<'_>, length: u16, seen: Visibility) {
        if !self.is_sample {
            self.take(tuple, length, seen);
        }
    }

    fn end_page(&mut self, _block: BlockNumber) {
        if !self.is_sample {
            self.end_block();
        }
    }
}

/// Adds blocks of the same file that another worker has read.
impl Merge for FileMeter {
    fn merge(&mut self, other: FileMeter) {
        self.read += other.read;
        for (ours, theirs) in [(&mut self.all, &other.all), (&mut self.live, &other.live)] {
            ours.room.merge(&theirs.room);
            ours.bytes.merge(&theirs.bytes);
        }
        for (ours, theirs) in self.standing.iter_mut().zip(&other.standing) {
            ours.tuples = ours.tuples.saturating_add(theirs.tuples);
            ours.blocks += theirs.blocks;
        }
        self.runs.merge(other.runs);
        self.tuples.merge(&other.tuples);
        self.dead.merge(&other.dead);
        self.dead_bytes.merge(&other.dead_bytes);
        self.deaths.merge(other.deaths);
        if let (Some(ours), Some(theirs)) = (&mut self.dead_values, other.dead_values) {
            ours.merge(theirs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: PageSize = PageSize::DEFAULT;
    const CHUNK: u16 = 2032;

    /// Adds a block of these tuples: the first field of each, its length, and whether it is dead.
    fn block(meter: &mut FileMeter, number: u32, tuples: &[(u32, u16, bool)]) {
        meter.begin_page(BlockNumber(number));
        for &(id, length, is_dead) in tuples {
            let data = id.to_le_bytes();
            let tuple = HeapTuple::of_data(&data);
            let seen = if is_dead { Visibility::Dead } else { Visibility::Live };
            let at = ItemPointer { block: BlockNumber(number), item: 1 };
            meter.tuple(at, &tuple, length, seen);
        }
        meter.end_page(BlockNumber(number));
    }

    /// Values of four chunks, of which the first two are at the end of a block and the others in the next one.
    fn values(blocks: u32, parts: u32) -> FileMeter {
        let mut all: Vec<FileMeter> =
            (0..parts).map(|_| FileMeter::whole(Kind::Chunks, PAGE, blocks, 100)).collect();
        for number in 0..blocks {
            let mut tuples = vec![(number, CHUNK, false); 2];
            if number + 1 < blocks {
                tuples.extend([(number + 1, CHUNK, number % 2 == 0); 2]);
            }
            block(&mut all[(number % parts) as usize], number, &tuples);
        }
        let mut all = all.into_iter();
        let mut meter = all.next().unwrap();
        all.for_each(|other| meter.merge(other));
        meter
    }

    #[test]
    fn parts_that_are_merged_in_any_order_say_the_same_as_the_whole() {
        for blocks in [10, 1_000, 40_000] {
            let one = values(blocks, 1);
            let three = values(blocks, 3);
            let related = RelatedFiles {
                index_bytes: 1 << 20,
                gin_bytes: 0,
                table: Some((1 << 20, 1 << 20)),
            };
            let finish = |meter: FileMeter| meter.finish(u64::from(blocks), Some(&related));
            let one = finish(one);
            assert!(one.drawn.is_all() && one.compaction.is_some(), "{one:?}");
            assert_eq!(one, finish(three));
        }
    }

    #[test]
    fn values_behind_the_end_move_whole() {
        let related =
            RelatedFiles { index_bytes: 1 << 20, gin_bytes: 0, table: Some((1 << 20, 1 << 20)) };
        let expected = values(1_000, 1).finish(1_000, Some(&related)).compaction.unwrap();
        // the second halves of every second value are dead; three fourths are left
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
        let meter = values(40_000, 1);
        assert!(meter.runs.halved > 0 && meter.runs.runs.len() <= MOST);
        let related = RelatedFiles { index_bytes: 0, gin_bytes: 0, table: Some((0, 0)) };
        let expected = meter.finish(40_000, Some(&related)).compaction.unwrap();
        let behind = expected.gives_back as f64 / PAGE.bytes() as f64;
        assert!((expected.values.unwrap() as f64 / behind - 1.0).abs() < 0.02, "{expected:?}");
    }

    #[test]
    fn rows_behind_the_end_are_counted_and_dead_ones_take_room_until_vacuum() {
        let mut meter = FileMeter::whole(Kind::Rows, PAGE, 1_000, 100);
        for number in 0..1_000 {
            let row = |at: u32| (at, 100, at % 2 == 1 && number < 500);
            let rows: Vec<_> = (0..if number < 500 { 74 } else { 37 }).map(row).collect();
            block(&mut meter, number, &rows);
        }
        let fill = meter.finish(1_000, Some(&RelatedFiles::default()));
        let expected = fill.compaction.unwrap();
        let end = 1_000 - expected.gives_back / PAGE.bytes() as u64;
        assert!((494..510).contains(&end), "{expected:?}");
        assert_eq!(expected.rows, Some((1_000 - end) * 37));
        assert_eq!(expected.moved_bytes, (1_000 - end) * PAGE.bytes() as u64);
        assert!(fill.spare.estimate < expected.gives_back as f64 * 0.6, "{fill:?}");
        let exact = |number: u32| Interval::exact(f64::from(number));
        assert_eq!(
            (fill.tuples, fill.dead, fill.dead_bytes),
            (exact(55_500), exact(18_500), exact(18_500 * 108))
        );
    }

    #[test]
    fn an_empty_file_has_nothing_to_move() {
        for meter in [FileMeter::whole(Kind::Rows, PAGE, 0, 100), sample(Kind::Rows)] {
            let fill = meter.finish(0, Some(&RelatedFiles::default()));
            assert_eq!((fill.bytes, fill.spare.high, fill.spare_vacuumed.high), (0, 0.0, 0.0));
            let moved = fill.compaction.map(|expected| (expected.gives_back, expected.rows));
            assert!(moved.is_none_or(|moved| moved == (0, Some(0))), "{moved:?}");
        }
    }

    fn sample(kind: Kind) -> FileMeter {
        FileMeter::sample(kind, PAGE, 100)
    }

    /// Adds a block of these chunks: value, number in the value, length.
    fn chunks(meter: &mut FileMeter, chunks: &[(u32, u32, u16)]) {
        for &(id, number, length) in chunks {
            let data = [id.to_le_bytes(), number.to_le_bytes()].concat();
            meter.take(&HeapTuple::of_data(&data), length, Visibility::Live);
        }
        meter.end_block();
    }

    #[test]
    fn rests_of_values_are_moved_with_the_full_chunks_that_stand_before_them() {
        let mut meter = sample(Kind::Chunks);
        // half of the blocks are empty; of the others, one in 34 has three full chunks and the last chunks of 33
        // values, and the rest have four full chunks, 132 in all
        for number in 0..680u32 {
            let value = number * 100;
            let is_mixed = number % 34 == 0;
            let whole = if is_mixed { 3 } else { 4 };
            let rests = if is_mixed { 33 } else { 0 };
            let full = (0..whole).map(|at| (value, at, CHUNK));
            let rests = (1..=rests).map(|at| (value + at, 4, 56));
            let all: Vec<_> = full.chain(rests).collect();
            chunks(&mut meter, if number >= 340 { &all } else { &[] });
        }
        // taken in order, a last chunk takes the room of a full chunk on every page except those filled by four
        let related =
            RelatedFiles { index_bytes: 1 << 20, gin_bytes: 0, table: Some((1 << 20, 1 << 20)) };
        // every tenth block of the file was read
        let fill = meter.finish(6800, Some(&related));
        let spare = fill.spare.estimate / (6800.0 * PAGE.bytes() as f64);
        assert!((0.38..0.43).contains(&spare), "{spare}");
        let expected = fill.compaction.unwrap();
        assert!(expected.estimated && expected.rows.is_none(), "{expected:?}");
        // there are about 2,720 blocks behind the end, 80 of them with the last chunks of 33 values each
        assert!((2_300..2_970).contains(&expected.values.unwrap()), "{expected:?}");
        let bytes = expected.moved_bytes as f64 / (2_720.0 * 4.0 * 1_996.0);
        assert!((0.95..1.08).contains(&bytes), "{expected:?}");
    }

    #[test]
    fn values_without_a_rest_are_moved_too() {
        let mut meter = sample(Kind::Chunks);
        for number in 0..400 {
            let full: Vec<_> = (0..4).map(|at| (number, at, CHUNK)).collect();
            chunks(&mut meter, if number % 2 == 0 { &full } else { &[] });
        }
        let spare = meter.finish(4000, None).spare.estimate / (4000.0 * PAGE.bytes() as f64);
        assert!((0.48..=0.5).contains(&spare), "{spare}");
    }

    #[test]
    fn where_no_block_could_be_read_nothing_is_known() {
        let related =
            RelatedFiles { index_bytes: 1 << 20, gin_bytes: 0, table: Some((1 << 20, 1 << 20)) };
        for kind in [Kind::Chunks, Kind::Rows] {
            let fill = sample(kind).finish(10_000, Some(&related));
            for spare in [fill.spare, fill.spare_vacuumed] {
                assert_eq!((spare.estimate, spare.low, spare.high), (0.0, 0.0, 8192.0 * 10_000.0));
            }
            assert_eq!(fill.compaction.map_or(0, |expected| expected.gives_back), 0);
        }
    }
}
