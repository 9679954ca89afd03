//! The file of a live table and its visibility map: blocks that were lost, and the bits that pages are compared with.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::types::Type;

use super::code::Code;
use super::finding::Finding;
use super::live_check::{About, LiveCheck, TORN};
use super::subject::Which;
use super::visibility_map::{LostBlocks, VisibilityMap};
use crate::server::LiveError;
use crate::server::pages::{PageReader, Pages};
use toast_format::disk::page::LinePointerState;
use toast_format::disk::{BlockNumber, Page, PageState};
use toast_format::heap::problem::Place;
use toast_format::model::sql::{quote_literal, quote_qualified, shown_qualified};

impl LiveCheck {
    /// A finding if the relation's file is missing, or ends inside a block; it may be extended meanwhile.
    pub(super) async fn lost_file(&mut self, which: Which) -> Result<Option<Finding>, LiveError> {
        let mut found = None;
        for _ in 0..2 {
            found =
                self.in_snapshot(async |check| check.file_finding(which).await).await?.flatten();
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

    /// Blocks of the table that had rows, by its visibility map. `zeros`, in order, are those that were zeros. The map is
    /// read before the pages, and the lock keeps others from cutting off what has bits: a page that had one is not zeros
    /// afterwards.
    pub(super) async fn lost_blocks(&self, zeros: &[BlockNumber]) -> Result<LostBlocks, LiveError> {
        let end = self.standing.blocks;
        let map = self.map_pages(Which::Heap, |map, pages| map.wanted(zeros, end, pages)).await?;
        let lost = map.lost(zeros, end);
        let mut still = Vec::new();
        self.each_page(Which::Heap, Some(BTreeSet::from_iter(lost.zeros)), |page| {
            if matches!(Page::parse(page.bytes), Ok(PageState::New)) {
                still.push(page.block);
            }
        })
        .await?;
        let end = self.reader(Which::Heap).await?.block_count().await?;
        Ok(map.lost(&still, end))
    }

    /// Whether the smallest btree index of the table leads to rows behind the end of its file, which was then cut off.
    pub(super) async fn end_by_index(&mut self) -> Result<EndByIndex, LiveError> {
        let mut end = EndByIndex::Whole;
        // what VACUUM has cut off since its entries were read has none any more when they are read again
        for _ in 0..2 {
            let looked = self.in_snapshot(async |check| check.led_behind().await).await?;
            end = looked.unwrap_or(EndByIndex::Whole);
            if !matches!(end, EndByIndex::Cut(_)) {
                break;
            }
        }
        Ok(end)
    }

    /// An index entry never leads behind the end: rows are inserted before their entries, and VACUUM removes entries before
    /// it truncates the table.
    async fn led_behind(&self) -> Result<EndByIndex, LiveError> {
        let Some(index) = self.smallest_index().await? else { return Ok(EndByIndex::Unknown) };
        let sql = format!("SELECT pg_catalog.max(e.block) FROM ({}) AS e", index.entries);
        let client = self.connection.client();
        // older versions of the extension have other columns
        let asked =
            self.attempt(async || Ok(client.value::<Option<i64>>(&sql, &[]).await?.flatten()));
        let Ok(last) = asked.await? else { return Ok(EndByIndex::Unknown) };
        let end = self.reader(Which::Heap).await?.block_count().await?;
        let Some(last) = last.filter(|last| *last >= i64::from(end)) else {
            return Ok(if index.has_all_rows { EndByIndex::Whole } else { EndByIndex::Unknown });
        };
        let place = Place { block: Some(BlockNumber(end)), ..Place::new(self.name(Which::Heap)) };
        let expected = format!("blocks up to {last}, to which the index {} leads", index.name);
        let found = Finding::new(Code::LostRows, place, expected, "the file's end");
        Ok(EndByIndex::Cut(Box::new(found)))
    }

    /// The btree index of the table that is read fastest, one with entries for all rows if there is such a one; `None` if
    /// there is none, or it cannot be read.
    async fn smallest_index(&self) -> Result<Option<EntrySource>, LiveError> {
        let client = self.connection.client();
        let Some(pageinspect) = &self.about.server.pageinspect else { return Ok(None) };
        let sql = "SELECT n.nspname::pg_catalog.text, x.relname::pg_catalog.text, \
                          pg_catalog.pg_relation_size(x.oid), i.indpred IS NULL \
                   FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS x ON x.oid = i.indexrelid \
                   JOIN pg_catalog.pg_namespace AS n ON n.oid = x.relnamespace \
                   JOIN pg_catalog.pg_am AS m ON m.oid = x.relam \
                   WHERE i.indrelid = $1 AND i.indisvalid AND m.amname = 'btree' \
                   ORDER BY 4 DESC, 3 LIMIT 1";
        let oid = self.relation.oid.0;
        let Some(row) = client.row(sql, &[(&oid, Type::OID)]).await? else { return Ok(None) };
        let schema: String = row.try_get(0)?;
        let name: String = row.try_get(1)?;
        let page = self.about.server.page_size.bytes() as u64;
        let pages = u64::try_from(row.try_get::<_, i64>(2)?).unwrap_or(0) / page;
        let index = quote_literal(&quote_qualified(&schema, &name));
        let block_type = pageinspect.block_type();
        // a page's high key, of which nothing says that it is dead or not, may have the address of a row that is gone
        let entries = format!(
            "SELECT (p.at)[0]::pg_catalog.int8 AS block, (p.at)[1]::pg_catalog.int4 AS item \
             FROM pg_catalog.generate_series(1::pg_catalog.int8, {}) AS b (n), \
                  LATERAL {}({index}::pg_catalog.text, b.n::pg_catalog.{block_type}) AS s, \
                  LATERAL {}({index}::pg_catalog.text, b.n::pg_catalog.{block_type}) AS i, \
                  LATERAL pg_catalog.unnest(coalesce(i.tids, ARRAY[i.htid])) AS t (tid), \
                  LATERAL (SELECT t.tid::pg_catalog.text::pg_catalog.point) AS p (at) \
             WHERE s.type = 'l' AND i.dead IS NOT NULL",
            pages.saturating_sub(1),
            pageinspect.function("bt_page_stats"),
            pageinspect.function("bt_page_items"),
        );
        let name = shown_qualified(&schema, &name);
        Ok(Some(EntrySource { name, entries, has_all_rows: row.try_get(3)? }))
    }

    /// Findings for those of some blocks whose line pointers were lost: bytes of theirs have none, and the smallest btree
    /// index leads to rows there by line pointers that are not in use. `None` if no index tells. Two looks must agree.
    pub(super) async fn lost_pointers(
        &mut self,
        blocks: &[BlockNumber],
    ) -> Result<Option<Vec<Finding>>, LiveError> {
        let looked = self.in_snapshot(async |check| check.pointers_in(blocks).await).await?;
        let Some(first) = looked.flatten() else { return Ok(None) };
        let mut findings = Vec::new();
        if first.is_empty() {
            return Ok(Some(findings));
        }
        tokio::time::sleep(TORN).await;
        let again: Vec<BlockNumber> = first.keys().copied().collect();
        let looked = self.in_snapshot(async |check| check.pointers_in(&again).await).await?;
        let Some(second) = looked.flatten() else { return Ok(None) };
        let name = self.name(Which::Heap);
        for (block, mut lost) in first {
            let now = second.get(&block).map_or(&[][..], |now| now.items.as_slice());
            lost.items.retain(|item| now.contains(item));
            if !lost.items.is_empty() {
                findings.push(lost.finding(&name, block));
            }
        }
        Ok(Some(findings))
    }

    /// An entry never leads to a line pointer that is not in use: rows are inserted before their entries, and VACUUM removes
    /// entries before it frees line pointers. One that is not in use before and after the entries are read, on a page that
    /// was not changed in between, was not in use when they were.
    async fn pointers_in(
        &self,
        blocks: &[BlockNumber],
    ) -> Result<Option<BTreeMap<BlockNumber, LostPointers>>, LiveError> {
        let Some(index) = self.smallest_index().await? else { return Ok(None) };
        let mut before: BTreeMap<BlockNumber, u64> = BTreeMap::new();
        let blocks = blocks.iter().copied().collect();
        self.each_page(Which::Heap, Some(blocks), |page| {
            if let Some(parsed) = page.parsed().filter(|parsed| parsed.lost_bytes() > 0) {
                before.insert(page.block, parsed.header().lsn);
            }
        })
        .await?;
        let sql = format!(
            "SELECT e.block, pg_catalog.array_agg(DISTINCT e.item) FROM ({}) AS e \
             WHERE e.block = ANY ($1) GROUP BY e.block",
            index.entries
        );
        let asked: Vec<i64> = before.keys().map(|block| i64::from(block.0)).collect();
        let client = self.connection.client();
        let read = self
            .attempt(async || Ok(client.query_typed(&sql, &[(&asked, Type::INT8_ARRAY)]).await?));
        let Ok(rows) = read.await? else { return Ok(None) };
        let mut led_to: BTreeMap<BlockNumber, Vec<i32>> = BTreeMap::new();
        for row in &rows {
            let block = u32::try_from(row.try_get::<_, i64>(0)?).unwrap_or(u32::MAX);
            led_to.insert(BlockNumber(block), row.try_get(1)?);
        }
        let mut lost = BTreeMap::new();
        let again = Some(before.keys().copied().collect());
        self.each_page(Which::Heap, again, |page| {
            let Some(parsed) = page.parsed() else { return };
            if before.get(&page.block) != Some(&parsed.header().lsn) {
                return;
            }
            let asked = led_to.get(&page.block).into_iter().flatten();
            let items = asked.filter_map(|item| u16::try_from(*item).ok());
            let items: Vec<u16> = items.filter(|item| !is_in_use(&parsed, *item)).collect();
            if !items.is_empty() {
                let count = parsed.line_pointer_count();
                let bytes = parsed.lost_bytes();
                let index = index.name.clone();
                lost.insert(page.block, LostPointers { index, items, count, bytes });
            }
        })
        .await?;
        Ok((index.has_all_rows || !lost.is_empty()).then_some(lost))
    }

    /// The bits of those pages that say that they are not all-visible. A page and its bit change under one lock but are read
    /// one after the other, so a bit counts only if its page is the same before and after it was read. It is read before
    /// a second time, because the server sets hint bits where it is asked about rows of the first reading.
    pub(super) async fn visibility_map(
        &self,
        which: Which,
        reader: &mut PageReader,
        pages: &Pages,
    ) -> Result<VisibilityMap, LiveError> {
        let blocks: Vec<BlockNumber> = changed(pages).map(|(block, _)| block).collect();
        let map = self.map_pages(which, |map, pages| map.wanted(&blocks, u32::MAX, pages)).await?;
        let suspects: Vec<BlockNumber> =
            blocks.into_iter().filter(|block| map.has(block.0)).collect();
        if suspects.is_empty() {
            return Ok(map);
        }
        let before = reader.read(&suspects).await?;
        let mut map =
            self.map_pages(which, |map, pages| map.wanted(&suspects, u32::MAX, pages)).await?;
        let after = reader.read(&suspects).await?;
        let before: BTreeMap<BlockNumber, &[u8]> = changed(&before).collect();
        let after: BTreeMap<BlockNumber, &[u8]> = changed(&after).collect();
        for block in suspects {
            let bytes = before.get(&block);
            if bytes.is_none() || bytes != after.get(&block) {
                map.forget(block.0);
            }
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

/// What the entries of an index say of the end of a table.
pub(super) enum EndByIndex {
    Whole,
    Cut(Box<Finding>),
    /// No such index exists, or it is partial or cannot be read.
    Unknown,
}

/// An index by whose entries the table is judged.
struct EntrySource {
    /// Its name for people.
    name: String,
    /// A query for the block and the item to which each entry leads.
    entries: String,
    /// Whether it has entries for all rows: it is not partial.
    has_all_rows: bool,
}

/// What a page has lost that has lost line pointers.
struct LostPointers {
    /// The index that leads to these items, in order, which are not in use.
    index: String,
    items: Vec<u16>,
    /// How many line pointers there are.
    count: u16,
    /// Bytes to which none leads.
    bytes: usize,
}

impl LostPointers {
    fn finding(&self, source: &str, block: BlockNumber) -> Finding {
        let LostPointers { index, items, count, bytes } = self;
        let place = Place { block: Some(block), ..Place::new(source) };
        let first = items.first().copied().unwrap_or_default();
        let more = match items.len() {
            0 | 1 => String::new(),
            all => format!(", as to {} more", all - 1),
        };
        let expected =
            format!("a line pointer {first} in use, to which the index {index} leads{more}");
        let lost = format!("{bytes} bytes of the page to which none leads");
        let found = if first > *count {
            format!("{count} line pointers, and {lost}")
        } else {
            format!("one that is not in use, and {lost}")
        };
        Finding::new(Code::PageHeader, place, expected, found)
    }
}

fn is_in_use(page: &Page<'_>, item: u16) -> bool {
    let pointer = page.line_pointer(item);
    pointer.is_some_and(|pointer| pointer.state != LinePointerState::Unused)
}

/// Pages that say that they are not all-visible.
fn changed(pages: &Pages) -> impl Iterator<Item = (BlockNumber, &[u8])> {
    pages.iter().filter(|(_, bytes)| match Page::parse(bytes) {
        Ok(PageState::Used(page)) => !page.all_visible(),
        Ok(PageState::New) | Err(_) => false,
    })
}
