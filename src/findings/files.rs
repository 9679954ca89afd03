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
}

/// A look at a file.
pub(crate) struct FileLook {
    page: PageSize,
    fillfactor: u32,
    /// Bytes taken of each block that was read.
    blocks: Vec<u32>,
    packing: Sample,
    dead: Tally,
    dead_bytes: Tally,
    tuples: Tally,
    bytes: Tally,
}

impl FileLook {
    /// At a file whose pages are filled to so many percent.
    pub(crate) fn new(page: PageSize, fillfactor: u32) -> FileLook {
        FileLook {
            page,
            fillfactor,
            blocks: Vec::new(),
            packing: Sample::default(),
            dead: Tally::default(),
            dead_bytes: Tally::default(),
            tuples: Tally::default(),
            bytes: Tally::default(),
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
        let at = u32::try_from(self.blocks.len()).unwrap_or(u32::MAX);
        let mut of_block = 0u32;
        if let Ok(PageState::Used(page)) = Page::parse(bytes) {
            let all_visible = judge.sees_all_of(&page);
            for (ctid, item) in walk::items(number, &page) {
                let Item::Tuple(tuple, length) = item else { continue };
                let seen = if all_visible { Visibility::Live } else { judge.judge(ctid, &tuple) };
                let taken = taken(usize::from(length));
                self.tuples.add(1);
                self.bytes.add(u64::from(taken));
                self.packing.add(at, [taken]);
                of_block = of_block.saturating_add(taken);
                match seen {
                    Visibility::Live => live(&tuple, length),
                    Visibility::Dead => {
                        self.dead.add(1);
                        self.dead_bytes.add(u64::from(taken));
                    }
                    Visibility::Unknown { .. } => {}
                }
            }
        }
        self.blocks.push(of_block);
        for tally in [&mut self.dead, &mut self.dead_bytes, &mut self.tuples, &mut self.bytes] {
            tally.end_block();
        }
    }

    /// Blocks that were read.
    pub(crate) fn read(&self) -> u64 {
        self.blocks.len() as u64
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
            spare: self.spare(drawn).scaled(page as f64),
        }
    }

    /// Blocks to spare: those of the sample, as if it were a relation, for all.
    fn spare(&self, drawn: Drawn) -> Estimate {
        let count = u32::try_from(self.blocks.len()).unwrap_or(u32::MAX);
        let mut room = Room::new(self.page, count, self.fillfactor);
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
