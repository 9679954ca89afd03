//! Where the pages are in saved rows of `heap_page_items`, and whether all of their line pointers are there (pure).

use crate::disk::layout::PageSize;
use crate::disk::page::LinePointerState;
use crate::disk::{BlockNumber, max_align};
use crate::findings::code::WORTH;
use crate::offline::saved::SavedItem;

/// The pages that rows have come of.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// The last row's.
    block: Option<BlockNumber>,
    lp: Option<u16>,
    pages: u64,
    /// The end of the tuple that is the last on its page.
    end: usize,
    /// Whether a row was missing, or did not tell enough.
    in_part: bool,
}

impl Blocks {
    /// Takes a row; whether a page ends before it.
    pub(super) fn take(&mut self, item: &SavedItem) -> bool {
        let other_block = item.block != self.block;
        let begins = self.lp.is_none_or(|last| other_block || item.lp.is_none_or(|lp| lp <= last));
        let expected = if begins { 1 } else { self.lp.map_or(1, |last| last.saturating_add(1)) };
        self.in_part |= item.lp != Some(expected);
        if item.lp_flags.and_then(LinePointerState::from_flags) == Some(LinePointerState::Normal) {
            match (item.lp_off, item.lp_len, &item.t_data) {
                (Some(offset), Some(length), Some(_)) => {
                    self.end = self.end.max(usize::from(offset) + max_align(usize::from(length)));
                }
                _ => self.in_part = true,
            }
        } else {
            self.in_part |= item.lp_flags.is_none();
        }
        let ends = begins && self.pages > 0;
        self.pages += u64::from(begins);
        self.block = item.block;
        self.lp = item.lp;
        ends
    }

    /// Whether a page has begun.
    pub(super) fn any(&self) -> bool {
        self.pages > 0
    }

    /// Whether they tell what takes space: all line pointers of pages of this size, and enough of them for anything
    /// to be told.
    pub(super) fn are_whole(&self, page: PageSize) -> bool {
        let enough = self.pages * page.bytes() as u64 >= WORTH;
        enough && !self.in_part && self.end == page.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offline::saved::LineNumber;

    fn item(block: Option<u32>, lp: u16, lp_len: Option<u16>) -> SavedItem {
        SavedItem {
            block: block.map(BlockNumber),
            lp: Some(lp),
            lp_off: Some(8192 - lp * 128),
            lp_flags: Some(1),
            lp_len,
            t_data: Some(Vec::new()),
            ..SavedItem::new(LineNumber(1))
        }
    }

    /// Pages of 60 rows of 128 bytes, without those that `skip` says.
    fn blocks(pages: u32, numbered: bool, skip: impl Fn(u32, u16) -> bool) -> (u32, bool) {
        let mut blocks = Blocks::default();
        let mut ended = 0;
        for page in 0..pages {
            for lp in (1..=60).filter(|&lp| !skip(page, lp)) {
                ended += u32::from(blocks.take(&item(numbered.then_some(page), lp, Some(128))));
            }
        }
        (ended, blocks.are_whole(PageSize::DEFAULT))
    }

    #[test]
    fn pages_begin_with_their_first_line_pointer() {
        for numbered in [false, true] {
            assert_eq!(blocks(130, numbered, |_, _| false), (129, true));
            // too few to tell
            assert_eq!(blocks(20, numbered, |_, _| false), (19, false));
            // the last one may be cut
            assert_eq!(blocks(130, numbered, |page, lp| page == 129 && lp > 7), (129, true));
        }
    }

    #[test]
    fn what_was_filtered_is_not_whole() {
        assert!(!blocks(130, true, |page, lp| page == 7 && lp == 30).1);
        assert!(!blocks(130, true, |_, lp| lp == 1).1);
        let mut without_length = Blocks::default();
        for page in 0..200 {
            without_length.take(&item(Some(page), 1, None));
        }
        assert!(!without_length.are_whole(PageSize::DEFAULT));
    }

    #[test]
    fn pages_of_another_size_are_known_by_where_tuples_end() {
        let mut small = Blocks::default();
        for page in 0..300 {
            small.take(&SavedItem { lp_off: Some(3968), ..item(Some(page), 1, Some(128)) });
        }
        assert!(!small.are_whole(PageSize::DEFAULT));
    }
}
