//! The file of a live table and its visibility map: blocks that were lost, and the bits that pages are compared with.

use std::collections::BTreeMap;

use super::code::Code;
use super::finding::Finding;
use super::live_batches::TORN;
use super::live_check::{About, LiveCheck};
use super::subject::Which;
use super::visibility_map::{LostBlocks, VisibilityMap};
use crate::server::LiveError;
use crate::server::checking::Standing;
use crate::server::pages::{PageReader, Pages};
use toast_format::disk::{BlockNumber, Page, PageState};
use toast_format::heap::problem::Place;
use toast_format::model::sql::quote_literal;

impl LiveCheck {
    /// A finding if the relation's file is missing, or ends inside a block; it may be extended meanwhile.
    pub(super) async fn lost_file(&mut self, which: Which) -> Result<Option<Finding>, LiveError> {
        let mut found = None;
        for _ in 0..2 {
            found =
                self.in_snapshot(async |check, _| check.file_finding(which).await).await?.flatten();
            if found.is_none() {
                break;
            }
            tokio::time::sleep(TORN).await;
        }
        Ok(found)
    }

    /// The size of a relation without a file is 0, and of a block that the file ends in SQL knows nothing. Where a disk was
    /// full, such a block has only zeros.
    async fn file_finding(&self, which: Which) -> Result<Option<Finding>, LiveError> {
        let relation = self.quoted(which);
        let sql = format!(
            "SELECT path, pg_catalog.pg_relation_size({0}::pg_catalog.regclass), \
                    (pg_catalog.pg_stat_file(path, true)).size IS NULL \
             FROM pg_catalog.pg_relation_filepath({0}::pg_catalog.regclass) AS path",
            quote_literal(&relation)
        );
        let client = self.connection.client();
        let Some(row) = client.row(&sql, &[]).await? else { return Ok(None) };
        let Some(path) = row.try_get::<_, Option<String>>(0)? else { return Ok(None) };
        let place = Place::new(self.name(which));
        if row.try_get(2)? {
            let expected = format!("the file {path}");
            return Ok(Some(Finding::new(Code::Emptied, place, expected, "none")));
        }
        let About { server, storage, .. } = &*self.about;
        let page = server.page_size.bytes() as u64;
        let bytes = u64::try_from(row.try_get::<_, i64>(1)?).unwrap_or(0);
        if bytes.is_multiple_of(page) {
            return Ok(None);
        }
        let block = u32::try_from(bytes / page).unwrap_or(u32::MAX);
        let tail =
            storage.on_disk(client, server, &relation, block..block.saturating_add(1)).await?;
        let place = Place { block: Some(BlockNumber(block)), ..place };
        let found = format!("the file's end after {} bytes of it", tail.len());
        let finding = Finding::new(Code::LostRows, place, "a whole block", found);
        Ok(tail.iter().any(|byte| *byte != 0).then_some(finding))
    }

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
        let end = standing.blocks;
        let map = self.map_pages(Which::Heap, |map, pages| map.wanted(zeros, end, pages)).await?;
        let lost = map.lost(zeros, standing.blocks);
        let mut still = Vec::new();
        self.each_page(standing, Which::Heap, Some(lost.zeros), |page| {
            if matches!(Page::parse(page.bytes), Ok(PageState::New)) {
                still.push(page.block);
            }
        })
        .await?;
        let end = self.reader(standing, Which::Heap).await?.block_count().await?;
        Ok(map.lost(&still, end))
    }

    /// The bits of those pages that say that they are not all-visible. A page and its bit change under one lock but are read
    /// one after the other, so a bit counts only if its page is the same before and after it was read.
    pub(super) async fn visibility_map(
        &self,
        which: Which,
        reader: &mut PageReader,
        pages: &Pages,
    ) -> Result<VisibilityMap, LiveError> {
        let mut changed: BTreeMap<BlockNumber, &[u8]> = pages
            .iter()
            .filter(|(_, bytes)| match Page::parse(bytes) {
                Ok(PageState::Used(page)) => !page.all_visible(),
                Ok(PageState::New) | Err(_) => false,
            })
            .collect();
        let blocks: Vec<BlockNumber> = changed.keys().copied().collect();
        let mut map =
            self.map_pages(which, |map, pages| map.wanted(&blocks, u32::MAX, pages)).await?;
        changed.retain(|block, _| map.has(block.0));
        let blocks: Vec<BlockNumber> = changed.keys().copied().collect();
        let again = reader.read(&blocks).await?;
        for (block, bytes) in again.iter() {
            if changed.get(&block) == Some(&bytes) {
                changed.remove(&block);
            }
        }
        for block in changed.into_keys() {
            map.forget(block.0);
        }
        Ok(map)
    }

    /// The chosen pages of a relation's visibility map. `choose` receives the number of its pages.
    async fn map_pages(
        &self,
        which: Which,
        choose: impl FnOnce(&VisibilityMap, u32) -> Vec<u32>,
    ) -> Result<VisibilityMap, LiveError> {
        let client = self.connection.client();
        let size = self.about.server.page_size;
        let mut map = VisibilityMap::new(size);
        let Some(pageinspect) = &self.about.server.pageinspect else { return Ok(map) };
        let relation = quote_literal(&self.quoted(which));
        let sql =
            format!("SELECT pg_catalog.pg_relation_size({relation}::pg_catalog.regclass, 'vm')");
        let bytes: i64 = client.value(&sql, &[]).await?.unwrap_or(0);
        let pages = u64::try_from(bytes).unwrap_or(0) / size.bytes() as u64;
        for number in choose(&map, pages as u32) {
            let sql =
                format!("SELECT {}", pageinspect.raw_page(&relation, "vm", &number.to_string()));
            let read = self.attempt(async || Ok(client.value::<Vec<u8>>(&sql, &[]).await?));
            if let Ok(page) = read.await? {
                map.enter(number, &page.unwrap_or_default());
            }
        }
        Ok(map)
    }
}
