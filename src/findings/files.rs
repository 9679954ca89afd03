//! How full a file is: what a look at a sample of its blocks shows (pure).

use super::tally::Tally;
use crate::disk::BlockNumber;
use crate::disk::layout::PageSize;
use crate::disk::page::{Page, PageState};
use crate::disk::tuple::HeapTuple;
use crate::heap::scan::Judge;
use crate::heap::walk::{self, Item};
use crate::model::estimate::{Drawn, Estimate};
use crate::model::visibility::Visibility;
use crate::retoast::compact::packing::Sample;
use crate::retoast::compact::room::{Room, taken};

/// What is known of a file once a sample of its blocks was read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FileFacts {
    /// Bytes of the file.
    pub(crate) bytes: u64,
    pub(crate) drawn: Drawn,
    /// Tuples that no statement of this moment gives.
    pub(crate) dead: Estimate,
    /// Bytes of them.
    pub(crate) dead_bytes: Estimate,
    /// All tuples.
    pub(crate) tuples: Estimate,
    /// Bytes that the file would be shorter by if what it holds, dead tuples too, stood together.
    pub(crate) spare: Estimate,
    /// The same without dead tuples, as VACUUM would leave it.
    pub(crate) spare_vacuumed: Estimate,
}

/// What blocks hold.
#[derive(Default)]
struct Held {
    /// Bytes taken of each block that was read, and of the one that is being read.
    blocks: Vec<u32>,
    now: u32,
    packing: Sample,
    bytes: Tally,
}

impl Held {
    fn add(&mut self, taken: u32) {
        self.now = self.now.saturating_add(taken);
        self.packing.add(u32::try_from(self.blocks.len()).unwrap_or(u32::MAX), [taken]);
        self.bytes.add(u64::from(taken));
    }

    fn end_block(&mut self) {
        self.blocks.push(std::mem::take(&mut self.now));
        self.bytes.end_block();
    }

    /// Blocks to spare: those of the sample, as if it were a relation, for all.
    fn spare(&self, page: PageSize, fillfactor: u32, drawn: Drawn) -> Estimate {
        let count = u32::try_from(self.blocks.len()).unwrap_or(u32::MAX);
        let mut room = Room::new(page, count, fillfactor);
        for (number, &taken) in (0..count).zip(&self.blocks) {
            room.set(number, taken);
        }
        room.holds(self.packing.clone());
        let total = drawn.total as f64;
        let needed = f64::from(room.layout().end) / f64::from(count.max(1)) * total;
        let bytes = self.bytes.total(drawn);
        // what is needed is as uncertain as the bytes that there are
        let part = |end: f64| if bytes.estimate > 0.0 { end / bytes.estimate } else { 1.0 };
        Estimate {
            estimate: total - needed,
            low: total - needed * part(bytes.high),
            high: total - needed * part(bytes.low),
        }
        .at_least_zero()
    }
}

/// A look at a file.
pub(crate) struct FileLook {
    page: PageSize,
    fillfactor: u32,
    all: Held,
    /// What is not dead.
    kept: Held,
    dead: Tally,
    dead_bytes: Tally,
    tuples: Tally,
}

impl FileLook {
    /// At a file whose pages are filled to so many percent.
    pub(crate) fn new(page: PageSize, fillfactor: u32) -> FileLook {
        FileLook {
            page,
            fillfactor,
            all: Held::default(),
            kept: Held::default(),
            dead: Tally::default(),
            dead_bytes: Tally::default(),
            tuples: Tally::default(),
        }
    }

    /// Takes a block; every tuple that is surely live goes to `live`.
    pub(crate) fn block<'p>(
        &mut self,
        number: BlockNumber,
        bytes: &'p [u8],
        judge: &impl Judge,
        mut live: impl FnMut(&HeapTuple<'p>, u16),
    ) {
        if let Ok(PageState::Used(page)) = Page::parse(bytes) {
            let all_visible = judge.sees_all_of(&page);
            for (ctid, item) in walk::items(number, &page) {
                let Item::Tuple(tuple, length) = item else { continue };
                let seen = if all_visible { Visibility::Live } else { judge.judge(ctid, &tuple) };
                self.tuple(length, seen);
                if matches!(seen, Visibility::Live) {
                    live(&tuple, length);
                }
            }
        }
        self.end_block();
    }

    /// Counts a tuple of the block that is being read.
    pub(crate) fn tuple(&mut self, length: u16, seen: Visibility) {
        let taken = taken(usize::from(length));
        self.tuples.add(1);
        self.all.add(taken);
        if matches!(seen, Visibility::Dead) {
            self.dead.add(1);
            self.dead_bytes.add(u64::from(taken));
        } else {
            self.kept.add(taken);
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

    /// Of a file of so many blocks.
    pub(crate) fn facts(&self, total: u64) -> FileFacts {
        let drawn = Drawn { read: self.read(), total };
        let page = self.page.bytes() as u64;
        FileFacts {
            bytes: total.saturating_mul(page),
            drawn,
            dead: self.dead.total(drawn),
            dead_bytes: self.dead_bytes.total(drawn),
            tuples: self.tuples.total(drawn),
            spare: self.all.spare(self.page, self.fillfactor, drawn).scaled(page as f64),
            spare_vacuumed: self.kept.spare(self.page, self.fillfactor, drawn).scaled(page as f64),
        }
    }
}
