//! Pages for findings, kept while a scan reads them, so that they are not read twice.

use std::sync::Arc;

use toast_format::disk::{BlockNumber, HeapTuple, ItemPointer, Page, PageState};
use toast_format::heap::sample::{Sample, Sampling};
use toast_format::heap::scan::{self, Item, Merge, Visible, Visitor};
use toast_format::model::Visibility;

/// Blocks of a file that are examined: 2 MB of 8 kB pages.
const BLOCKS: u32 = 256;
/// The seed that chooses the same blocks each time.
const SEED: u64 = 1;

/// The blocks of a relation of this many that are examined for findings; with `sampling`, which the user has
/// requested, only blocks of that sample.
pub(super) fn examined_blocks(total: u32, sampling: Option<Sampling>) -> Vec<BlockNumber> {
    let sample = match sampling {
        Some(sampling) => sampling.draw(total),
        None => Sample::new(total, BLOCKS, SEED),
    };
    let step = sample.chosen().div_ceil(BLOCKS).max(1);
    sample.step_by(step as usize).collect()
}

/// A page with what is known about its tuples.
#[derive(Debug, Clone)]
pub(super) struct KeptPage {
    pub(super) block: BlockNumber,
    pub(super) bytes: Box<[u8]>,
    all_visible: bool,
    /// Visibility of its tuples in the order of their line pointers; empty if all are visible.
    seen: Vec<(ItemPointer, Visibility)>,
}

impl Visible for KeptPage {
    fn visibility(&self, ctid: ItemPointer, _tuple: &HeapTuple<'_>) -> Visibility {
        // every tuple that can be read was judged when the page was kept
        let found = self.seen.binary_search_by_key(&ctid, |&(place, _)| place).ok();
        let found = found.and_then(|at| self.seen.get(at));
        found.map_or(Visibility::Unknown { xid: None }, |&(_, seen)| seen)
    }

    fn sees_all_of(&self, _page: &Page<'_>) -> bool {
        self.all_visible
    }
}

/// The pages of the examined blocks that have been read so far.
#[derive(Debug, Clone)]
pub(super) struct KeptPages {
    sorted_blocks: Arc<[BlockNumber]>,
    /// Blocks of the relation.
    pub(super) total: u32,
    pages: Vec<KeptPage>,
}

impl KeptPages {
    /// No pages yet, for a relation of this many blocks.
    pub(super) fn new(total: u32, sampling: Option<Sampling>) -> KeptPages {
        KeptPages {
            sorted_blocks: examined_blocks(total, sampling).into(),
            total,
            pages: Vec::new(),
        }
    }

    /// The pages in order.
    pub(super) fn into_pages(mut self) -> Vec<KeptPage> {
        self.pages.sort_unstable_by_key(|page| page.block);
        self.pages
    }
}

impl Visitor for KeptPages {
    const WANTS_VALUES: bool = false;

    /// Keeps the page, if it is to be examined.
    fn page(&mut self, block: BlockNumber, bytes: &[u8], visible: &impl Visible) {
        if self.sorted_blocks.binary_search(&block).is_err() {
            return;
        }
        let mut all_visible = false;
        let mut seen = Vec::new();
        if let Ok(PageState::Used(page)) = Page::parse(bytes) {
            all_visible = visible.sees_all_of(&page);
            if !all_visible {
                let judged = scan::items(block, &page).filter_map(|(ctid, item)| match item {
                    Item::Tuple(tuple, _) => Some((ctid, visible.visibility(ctid, &tuple))),
                    _ => None,
                });
                seen.extend(judged);
            }
        }
        self.pages.push(KeptPage { block, bytes: bytes.into(), all_visible, seen });
    }
}

impl Merge for KeptPages {
    fn merge(&mut self, other: KeptPages) {
        self.pages.extend(other.pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toast_format::heap::sample::SampleSize;

    #[test]
    fn a_look_takes_a_bounded_number_of_blocks_of_what_is_read() {
        assert_eq!(examined_blocks(3, None), [0, 1, 2].map(BlockNumber));
        assert_eq!(examined_blocks(100_000, None).len(), BLOCKS as usize);
        let sampling = Sampling { size: SampleSize::Blocks(1000), seed: 7 };
        let sampled = sampling.draw(100_000).collect::<Vec<_>>();
        let looked = examined_blocks(100_000, Some(sampling));
        assert!(looked.len() <= BLOCKS as usize && looked.len() > 200);
        assert!(looked.iter().all(|block| sampled.contains(block)));
    }

    #[test]
    fn only_pages_that_are_looked_at_are_kept_and_come_in_order() {
        struct All;
        impl Visible for All {
            fn visibility(&self, _ctid: ItemPointer, _tuple: &HeapTuple<'_>) -> Visibility {
                Visibility::Live
            }
        }
        let mut first = KeptPages::new(100_000, None);
        let mut second = first.clone();
        let wanted = examined_blocks(100_000, None);
        for number in (0..100_000).rev().map(BlockNumber) {
            let half = if number.0 % 2 == 0 { &mut first } else { &mut second };
            half.page(number, &[0; 8], &All);
        }
        first.merge(second);
        let blocks: Vec<BlockNumber> = first.into_pages().iter().map(|page| page.block).collect();
        assert_eq!(blocks, wanted);
    }
}
