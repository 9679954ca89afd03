//! Blocks that were lost although nothing else tells: VACUUM sets bits of the visibility map for pages in use alone, and
//! clears them before it cuts off a file, so that no sound block of zeros has one, nor one behind the end
//! (`visibilitymap.c`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::code::Code;
use super::finding::Finding;
use crate::offline::file::{FileError, RelationFile};
use crate::offline::target::FileTarget;
use toast_format::disk::layout::PAGE_HEADER_SIZE;
use toast_format::disk::{BlockNumber, Page, PageSize, PageState};
use toast_format::heap::problem::Place;

/// Blocks whose bits a byte of the map has (`HEAPBLOCKS_PER_BYTE`).
const PER_BYTE: u32 = 4;

/// Pages of a map, by their numbers.
#[derive(Debug, Default)]
pub(super) struct VisibilityMap {
    pages: BTreeMap<u32, Vec<u8>>,
    /// Blocks of which a page has the bits.
    per_page: u32,
}

/// Blocks that had rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LostBlocks {
    /// Those that are zeros, in order.
    pub(super) zeros: Vec<BlockNumber>,
    /// The first behind the end, and how many there are.
    behind: Option<(BlockNumber, u64)>,
}

impl VisibilityMap {
    pub(super) fn new(size: PageSize) -> VisibilityMap {
        let bytes = size.bytes().saturating_sub(PAGE_HEADER_SIZE);
        VisibilityMap {
            pages: BTreeMap::new(),
            per_page: (bytes as u32).saturating_mul(PER_BYTE).max(1),
        }
    }

    /// The pages that have bits of `blocks`, which are in order, and of all from `end` on.
    pub(super) fn wanted(&self, blocks: &[BlockNumber], end: u32, pages: u32) -> Vec<u32> {
        let of = blocks.iter().map(|block| block.0 / self.per_page);
        let mut all: Vec<u32> = of.chain(end / self.per_page..pages).collect();
        all.retain(|page| *page < pages);
        all.sort_unstable();
        all.dedup();
        all
    }

    pub(super) fn enter(&mut self, number: u32, bytes: &[u8]) {
        // what a damaged map says is not believed
        if matches!(Page::parse(bytes), Ok(PageState::Used(_))) {
            self.pages.insert(number, bytes.to_vec());
        }
    }

    /// Whether all rows of a block are visible to everyone, as the map says.
    pub(super) fn has(&self, block: u32) -> bool {
        let (page, at, shift) = self.place(block);
        let byte = self.pages.get(&page).and_then(|page| page.get(at));
        byte.is_some_and(|byte| byte >> shift & 3 != 0)
    }

    /// Clears the bits of a block.
    pub(super) fn forget(&mut self, block: u32) {
        let (page, at, shift) = self.place(block);
        if let Some(byte) = self.pages.get_mut(&page).and_then(|page| page.get_mut(at)) {
            *byte &= !(3 << shift);
        }
    }

    /// The page with a block's bits, their byte in it, and their place in the byte.
    fn place(&self, block: u32) -> (u32, usize, u32) {
        let within = block % self.per_page.max(1);
        let at = PAGE_HEADER_SIZE + (within / PER_BYTE) as usize;
        (block / self.per_page.max(1), at, 2 * (within % PER_BYTE))
    }

    /// Of the blocks that are zeros, in order, those that had rows; and those behind the end.
    pub(super) fn lost(&self, zeros: &[BlockNumber], end: u32) -> LostBlocks {
        let last = self.pages.keys().next_back().copied().unwrap_or(0);
        let all = end..last.saturating_add(1).saturating_mul(self.per_page);
        let mut behind = all.filter(|block| self.has(*block));
        let first = behind.next();
        LostBlocks {
            zeros: zeros.iter().copied().filter(|block| self.has(block.0)).collect(),
            behind: first.map(|first| (BlockNumber(first), 1 + behind.count() as u64)),
        }
    }
}

impl LostBlocks {
    /// A finding in `source` for the blocks that are zeros, and one for those behind the end.
    pub(super) fn findings(&self, source: &str) -> Vec<Finding> {
        let zeros = self.zeros.first().map(|first| (*first, "zeros", self.zeros.len() as u64));
        let behind = self.behind.map(|(first, count)| (first, "the file's end before it", count));
        let mut findings = Vec::new();
        for (first, what, count) in zeros.into_iter().chain(behind) {
            let place = Place { block: Some(first), ..Place::new(source) };
            let expected = "a block with rows, whose visibility map says that it was in use";
            let found = if count == 1 {
                what.to_owned()
            } else {
                format!("{what}; there are {count} such blocks")
            };
            findings.push(Finding::new(Code::LostRows, place, expected, found));
        }
        findings
    }
}

/// The visibility map of a table's file, which is in the same directory, if there is one.
pub(super) fn map_of_file(target: &FileTarget<'_>) -> Result<VisibilityMap, FileError> {
    let mut name = target.heap.as_os_str().to_owned();
    name.push("_vm");
    let path = PathBuf::from(name);
    if !path.exists() {
        return Ok(VisibilityMap::default());
    }
    let mut file = RelationFile::open_fork(&path, target.page_size)?;
    let mut map = VisibilityMap::new(target.page_size);
    for number in 0..file.blocks() {
        if let Some(page) = file.read(BlockNumber(number))? {
            map.enter(number, page);
        }
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_with_bits_are_lost_where_they_are_zeros_or_behind_the_end() {
        let mut map = VisibilityMap::new(PageSize::DEFAULT);
        assert_eq!(map.per_page, 32_672);
        let mut page = vec![0; 8192];
        for (at, half) in [(12, 24_u16), (14, 8192), (16, 8192), (18, 8192 | 4)] {
            page[at..at + 2].copy_from_slice(&half.to_le_bytes());
        }
        // blocks 1 (all-visible), 2 and 6 (frozen too)
        page[24] = 0b0011_0100;
        page[25] = 0b0011_0000;
        map.enter(0, &page);
        // one that is damaged
        map.enter(1, &[0xFF; 8192]);
        let block = BlockNumber;
        let lost = map.lost(&[block(0), block(1), block(3), block(40_000)], 6);
        assert_eq!(lost, LostBlocks { zeros: vec![block(1)], behind: Some((block(6), 1)) });
        assert_eq!(map.lost(&[block(0)], 7), LostBlocks::default());
        assert_eq!(lost.findings("t").len(), 2);
        assert_eq!(map.wanted(&[block(1), block(70_000)], 40_000, 4), [0, 1, 2, 3]);
        assert_eq!(map.wanted(&[], 40_000, 1), [0; 0]);
    }
}
