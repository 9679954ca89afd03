//! Blocks that were lost although nothing else tells: VACUUM sets bits of the visibility map for pages in use alone, and
//! clears them before it cuts off a file, so that no sound block of zeros has one, nor one behind the end
//! (`visibilitymap.c`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::code::Code;
use super::finding::Finding;
use super::live_check::LiveCheck;
use super::subject::Which;
use crate::offline::file::{FileError, RelationFile};
use crate::offline::target::FileTarget;
use crate::server::LiveError;
use crate::server::checking::Standing;
use toast_format::disk::BlockNumber;
use toast_format::disk::layout::{PAGE_HEADER_SIZE, PageSize};
use toast_format::disk::page::{Page, PageState};
use toast_format::heap::problem::Place;
use toast_format::model::sql::quote_literal;

/// Blocks whose bits a byte of the map has (`HEAPBLOCKS_PER_BYTE`).
const PER_BYTE: u32 = 4;

/// Pages of a map, by their numbers.
#[derive(Debug, Default)]
struct VisibilityMap {
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
    fn new(size: PageSize) -> VisibilityMap {
        let bytes = size.bytes().saturating_sub(PAGE_HEADER_SIZE);
        VisibilityMap {
            pages: BTreeMap::new(),
            per_page: (bytes as u32).saturating_mul(PER_BYTE).max(1),
        }
    }

    /// The pages that have bits of `blocks`, which are in order, and of all from `end` on.
    fn wanted(&self, blocks: &[BlockNumber], end: u32, pages: u32) -> Vec<u32> {
        let of = blocks.iter().map(|block| block.0 / self.per_page);
        let mut all: Vec<u32> = of.chain(end / self.per_page..pages).collect();
        all.retain(|page| *page < pages);
        all.sort_unstable();
        all.dedup();
        all
    }

    fn enter(&mut self, number: u32, bytes: &[u8]) {
        // what a damaged map says is not believed
        if matches!(Page::parse(bytes), Ok(PageState::Used(_))) {
            self.pages.insert(number, bytes.to_vec());
        }
    }

    fn has(&self, block: u32) -> bool {
        let within = block % self.per_page;
        let at = PAGE_HEADER_SIZE + (within / PER_BYTE) as usize;
        let byte = self.pages.get(&(block / self.per_page)).and_then(|page| page.get(at));
        byte.is_some_and(|byte| byte >> (2 * (within % PER_BYTE)) & 3 != 0)
    }

    /// Of the blocks that are zeros, in order, those that had rows; and those behind the end.
    fn lost(&self, zeros: &[BlockNumber], end: u32) -> LostBlocks {
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

/// Blocks of a table's file that once had rows, according to the visibility map in the same directory, if there is one.
/// `zeros`: the blocks of zeros, in order.
pub(super) fn lost_in_file(
    target: &FileTarget<'_>,
    zeros: &[BlockNumber],
) -> Result<LostBlocks, FileError> {
    let mut name = target.heap.as_os_str().to_owned();
    name.push("_vm");
    let path = PathBuf::from(name);
    if !path.exists() {
        return Ok(LostBlocks::default());
    }
    let heap = RelationFile::open(target.heap, target.page_size)?;
    let end = u32::try_from(heap.blocks()).unwrap_or(u32::MAX);
    let mut file = RelationFile::open(&path, target.page_size)?;
    let mut map = VisibilityMap::new(target.page_size);
    let mut page = vec![0; target.page_size.bytes()];
    let pages = u32::try_from(file.blocks()).unwrap_or(u32::MAX);
    for number in map.wanted(zeros, end, pages) {
        if file.read(BlockNumber(number), &mut page)? {
            map.enter(number, &page);
        }
    }
    Ok(map.lost(zeros, end))
}

impl LiveCheck {
    /// Blocks of the table that had rows, by its visibility map. `zeros`, in order, are those that were zeros.
    pub(super) async fn lost_blocks(
        &mut self,
        zeros: &[BlockNumber],
    ) -> Result<LostBlocks, LiveError> {
        let lost =
            self.in_snapshot(async |check, standing| check.lost_in(standing, zeros).await).await?;
        Ok(lost.unwrap_or_default())
    }

    /// The map is read before the pages, and the lock keeps others from cutting off what has bits: a page that had one is
    /// not zeros afterwards.
    async fn lost_in(
        &self,
        standing: &Standing,
        zeros: &[BlockNumber],
    ) -> Result<LostBlocks, LiveError> {
        let client = self.connection.client();
        let size = self.about.server.page_size;
        let Some(pageinspect) = &self.about.server.pageinspect else {
            return Ok(LostBlocks::default());
        };
        let relation = quote_literal(&self.quoted(Which::Heap));
        let get_raw_page = pageinspect.get_raw_page();
        let sql =
            format!("SELECT pg_catalog.pg_relation_size({relation}::pg_catalog.regclass, 'vm')");
        let rows = client.query_typed(&sql, &[]).await?;
        let bytes: i64 = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(0);
        let pages = u64::try_from(bytes).unwrap_or(0) / size.bytes() as u64;
        let mut map = VisibilityMap::new(size);
        for number in map.wanted(zeros, standing.blocks, pages as u32) {
            let sql = format!("SELECT {get_raw_page}({relation}, 'vm', {number})");
            if let Ok(page) = self
                .attempt(async || {
                    let rows = client.query_typed(&sql, &[]).await?;
                    let page = rows.first().map(|row| row.try_get::<_, Vec<u8>>(0)).transpose()?;
                    Ok(page.unwrap_or_default())
                })
                .await?
            {
                map.enter(number, &page);
            }
        }
        let lost = map.lost(zeros, standing.blocks);
        let mut still = Vec::new();
        self.each_page(standing, Which::Heap, Some(lost.zeros), |_, block, bytes, _| {
            if matches!(Page::parse(bytes), Ok(PageState::New)) {
                still.push(block);
            }
        })
        .await?;
        let end = self.reader(standing, Which::Heap).await?.block_count().await?;
        Ok(map.lost(&still, end))
    }
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
