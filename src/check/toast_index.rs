//! The pages of a TOAST relation's index. A server that reads by a damaged tree may never come to an end, so the pages
//! are judged before anything is read by it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::code::Code;
use super::finding::Finding;
use super::index_entries::IndexEntries;
use super::live_check::{LOOKS, LiveCheck, TRIES, is_passing};
use super::subject::Which;
use crate::server::pages::{AT_ONCE, PageReader};
use crate::server::{LiveError, catalog};
use toast_format::disk::btree::{ChunkKey, TreeNode, TreePage, tree_page};
use toast_format::disk::{BlockNumber, Page, PageState, ValueId, ValueIdType};
use toast_format::heap::problem::Place;
use toast_format::model::sql::{quote_literal, quote_qualified};

/// The maximum number of damaged pages that are reported.
const MAX_FINDINGS: usize = 20;

/// What is wrong with a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WrongPage {
    pub(super) block: BlockNumber,
    pub(super) expected: String,
    pub(super) found: String,
    /// The other block that it is about.
    to: Option<BlockNumber>,
}

/// The pages of an index that were read.
#[derive(Debug, Default)]
pub(super) struct IndexTree {
    /// The type of the first column.
    id_type: ValueIdType,
    pages: BTreeMap<BlockNumber, TreePage>,
    /// What is wrong with pages by themselves; these are not in `pages`.
    wrong: BTreeMap<BlockNumber, WrongPage>,
    /// Blocks of the TOAST relation, if these were counted.
    rows_end: Option<u32>,
}

impl IndexTree {
    /// Enters a page, also in place of what it was when it was read before.
    pub(super) fn enter(&mut self, block: BlockNumber, bytes: &[u8]) {
        self.pages.remove(&block);
        self.wrong.remove(&block);
        match judge(block, bytes, self.id_type) {
            Ok(Some(page)) => drop(self.pages.insert(block, page)),
            // an extended file has pages of zeros, to which nothing leads
            Ok(None) => {}
            Err((expected, found)) => self.refuse(block, expected, found),
        }
    }

    /// Enters a page that cannot be read.
    pub(super) fn refuse(&mut self, block: BlockNumber, expected: &str, found: String) {
        let expected = expected.to_owned();
        self.pages.remove(&block);
        self.wrong.insert(block, WrongPage { block, expected, found, to: None });
    }

    /// Reads pages and enters them.
    async fn read(&mut self, reader: &PageReader, blocks: &[BlockNumber]) -> Result<(), LiveError> {
        for (block, message) in reader
            .read_raw(blocks, |pages| {
                pages.iter().for_each(|(block, bytes)| self.enter(block, bytes));
            })
            .await?
        {
            self.refuse(block, "a page that the server can read", message);
        }
        Ok(())
    }

    /// What is wrong with the pages by themselves and with how they lead to each other. The blocks that each of these
    /// is about must be read again at one time before it is believed, since others change the tree.
    pub(super) fn wrong(&self) -> Vec<WrongPage> {
        let mut all: Vec<WrongPage> = self.wrong.values().cloned().collect();
        if !self.pages.contains_key(&BlockNumber(0)) && !self.wrong.contains_key(&BlockNumber(0)) {
            let expected = "a metapage".to_owned();
            let found = "none".to_owned();
            all.push(WrongPage { block: BlockNumber(0), expected, found, to: None });
        }
        let is_cut = self.last_of_cut().is_some();
        for (&block, page) in &self.pages {
            match page {
                TreePage::Meta { roots } => {
                    let is_same = roots[0] == roots[1];
                    let roots = if is_same { &roots[..1] } else { &roots[..] };
                    for &(root, level) in roots.iter().filter(|(root, _)| root.0 != 0) {
                        all.extend(self.leads_to(block, root, level));
                    }
                }
                TreePage::Node(node) => {
                    for &child in &node.children {
                        all.extend(self.leads_to(block, child, node.level.saturating_sub(1)));
                    }
                    if node.has_high_key() {
                        all.extend(self.is_beside(block, node));
                    }
                    if !is_cut {
                        all.extend(self.leads_behind(block, node));
                    }
                }
                TreePage::Deleted => {}
            }
        }
        all
    }

    /// Whether a page leads to one of this level.
    fn leads_to(&self, block: BlockNumber, to: BlockNumber, level: u32) -> Option<WrongPage> {
        let found = match self.pages.get(&to) {
            Some(TreePage::Node(node)) if node.level == level => return None,
            Some(TreePage::Node(node)) => format!("block {to}, of level {}", node.level),
            other => self.no_node(to, other)?,
        };
        let expected = format!("a page of level {level}");
        Some(WrongPage { block, expected, found, to: Some(to) })
    }

    /// What is found in place of a node; `None` if that has a finding of its own.
    fn no_node(&self, block: BlockNumber, page: Option<&TreePage>) -> Option<String> {
        match page {
            Some(TreePage::Meta { .. }) => Some("the metapage".to_owned()),
            Some(_) => Some(format!("block {block}, which is deleted")),
            None if self.wrong.contains_key(&block) => None,
            None => Some(format!("block {block}, which is not in use")),
        }
    }

    /// The pages with entries that lead behind the end of the TOAST relation, and the last block that each leads to.
    fn behind(&self) -> impl Iterator<Item = (BlockNumber, &TreeNode, BlockNumber)> {
        let end = self.rows_end.unwrap_or(u32::MAX);
        self.pages.iter().filter_map(move |(block, page)| match page {
            TreePage::Node(node) => Some((*block, node, node.last_row.filter(|row| row.0 >= end)?)),
            TreePage::Meta { .. } | TreePage::Deleted => None,
        })
    }

    /// The last block of the TOAST relation to which entries lead, if its file was cut off: more than one entry, which may
    /// be damaged itself, leads behind its end.
    fn last_of_cut(&self) -> Option<BlockNumber> {
        let last = self.behind().map(|(_, _, row)| row).max();
        let entries = self.behind().map(|(_, node, _)| u64::from(node.last_rows)).sum::<u64>();
        if entries > 1 || self.rows_end == Some(0) { last } else { None }
    }

    /// Whether an entry leads behind the end of the TOAST relation.
    fn leads_behind(&self, block: BlockNumber, node: &TreeNode) -> Option<WrongPage> {
        let last = node.last_row?;
        let end = self.rows_end?;
        let expected = format!("entries that point to the {end} blocks of the TOAST relation");
        let found = format!("one that points to block {last}");
        (last.0 >= end).then_some(WrongPage { block, expected, found, to: None })
    }

    /// Whether the page to the right has this one to its left.
    fn is_beside(&self, block: BlockNumber, node: &TreeNode) -> Option<WrongPage> {
        let to = node.next;
        let found = match self.pages.get(&to) {
            Some(TreePage::Node(next)) if next.prev == block && next.level == node.level => {
                return None;
            }
            Some(TreePage::Node(next)) => {
                format!("block {to}, of level {} and with {} to its left", next.level, next.prev)
            }
            other => self.no_node(to, other)?,
        };
        let expected = format!("a page of level {} to the right", node.level);
        Some(WrongPage { block, expected, found, to: Some(to) })
    }
}

/// A page by itself; `None` of one of zeros.
fn judge(
    block: BlockNumber,
    bytes: &[u8],
    id_type: ValueIdType,
) -> Result<Option<TreePage>, (&'static str, String)> {
    let page = match Page::parse(bytes) {
        Ok(PageState::New) => return Ok(None),
        Ok(PageState::Used(page)) => page,
        Err(error) => return Err(("a page header", error.to_string())),
    };
    let mut page = tree_page(&page, block.0 == 0, id_type)?;
    if let TreePage::Node(node) = &mut page {
        let keys = std::mem::take(&mut node.keys);
        in_order(&keys, node.has_high_key())?;
    }
    Ok(Some(page))
}

/// Whether keys ascend, up to the high key, if they begin with one.
fn in_order(keys: &[Option<ChunkKey>], has_high_key: bool) -> Result<(), (&'static str, String)> {
    let (high, keys) = match keys.split_first() {
        Some((high, keys)) if has_high_key => (*high, keys),
        _ => (None, keys),
    };
    let mut before = None;
    for key in keys.iter().map(|&key| without_null(key)).chain(without_null(high).map(Some)) {
        if key < before {
            let found = format!("{} after {}", shown_key(key), shown_key(before));
            return Err(("entries in order", found));
        }
        before = key;
    }
    Ok(())
}

/// A key by which entries are ordered: one without a chunk number comes before all others.
fn without_null(key: Option<ChunkKey>) -> Option<(ValueId, i32)> {
    key.map(|(id, seq)| (id, seq.unwrap_or(i32::MIN)))
}

fn shown_key(key: Option<(ValueId, i32)>) -> String {
    key.map_or("none".into(), |(id, seq)| format!("chunk {seq} of value {id}"))
}

impl LiveCheck {
    /// What is wrong with the pages of the TOAST relation's index, which has this name.
    pub(super) async fn index_pages(
        &mut self,
        index: &str,
        stop: &AtomicBool,
    ) -> Result<Vec<Finding>, LiveError> {
        for _ in 0..TRIES {
            let read = self.in_snapshot(async |check| check.read_index(index, stop).await).await;
            match read {
                Ok(None) => return Ok(Vec::new()),
                Ok(Some(Some((wrong, cut)))) => {
                    let mut findings = findings(&format!("pg_toast.{index}"), wrong);
                    if let Some((end, last)) = cut {
                        let place = Place::new(self.name(Which::Toast));
                        let place = Place { block: Some(BlockNumber(end)), ..place };
                        let expected = format!("blocks up to {last}, to which the index leads");
                        findings.push(Finding::new(
                            Code::LostRows,
                            place,
                            expected,
                            "the file's end",
                        ));
                    }
                    return Ok(findings);
                }
                // rebuilt while it was read
                Ok(Some(None)) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Err(LiveError::Unexpected("the TOAST index is rebuilt again and again".into()))
    }

    /// What is wrong with pages, in the current transaction, and where the TOAST relation ends and should end, if it was
    /// cut off; `None` if the index was rebuilt meanwhile.
    async fn read_index(
        &self,
        index: &str,
        stop: &AtomicBool,
    ) -> Result<Option<(Vec<WrongPage>, Option<(u32, BlockNumber)>)>, LiveError> {
        let server = &self.about.server;
        let Some(pageinspect) = &server.pageinspect else { return Ok(Some((Vec::new(), None))) };
        let quoted = quote_qualified("pg_toast", index);
        let snapshot = self.standing.snapshot.clone();
        let connection = Arc::clone(&self.connection);
        let page = server.page_size;
        let file = self.index_file(&quoted).await?;
        let reader = PageReader::unlocked(connection, pageinspect, page, quoted.clone(), snapshot);
        let mut tree = IndexTree { id_type: self.id_type(), ..IndexTree::default() };
        let mut all = (0..reader.block_count().await?).map(BlockNumber).peekable();
        while all.peek().is_some() {
            if stop.load(Ordering::Relaxed) {
                return Ok(Some((Vec::new(), None)));
            }
            let blocks: Vec<BlockNumber> = all.by_ref().take(AT_ONCE).collect();
            tree.read(&reader, &blocks).await?;
        }
        // counted after the entries were read: the relation grows before it has entries for what is new
        let client = self.connection.client();
        let toast = self.quoted(Which::Toast);
        tree.rows_end = Some(catalog::blocks(client, &toast, page).await?);
        // others change the tree while it is read: what is wrong must be so when its pages are read together, and what is
        // cut off when its entries are read again, for VACUUM may have removed them, and cut it off, since they were
        let mut wrong = tree.wrong();
        let mut last = tree.last_of_cut();
        let mut is_cut = false;
        for _ in 0..LOOKS {
            let about =
                wrong.iter().take(MAX_FINDINGS).flat_map(|w| [Some(w.block), w.to]).flatten();
            let end = reader.block_count().await?;
            let blocks: BTreeSet<BlockNumber> = about
                .chain(tree.behind().map(|(block, ..)| block))
                .filter(|block| block.0 < end)
                .collect();
            for some in Vec::from_iter(blocks).chunks(AT_ONCE) {
                tree.read(&reader, some).await?;
            }
            tree.rows_end = Some(catalog::blocks(client, &toast, page).await?);
            let before = std::mem::replace(&mut wrong, tree.wrong());
            let last_before = std::mem::replace(&mut last, tree.last_of_cut());
            is_cut = last.is_some() && last == last_before;
            if wrong == before && last == last_before {
                break;
            }
        }
        let is_same = self.index_file(&quoted).await? == file;
        let cut = if is_cut { tree.rows_end.zip(last) } else { None };
        Ok(is_same.then_some((wrong, cut)))
    }

    /// Reads the entries of the TOAST relation's index, whatever is wrong with its pages. Whoever reads by a damaged tree may
    /// never come to an end, but what SQL reads by it, it reads by these entries.
    pub(super) async fn read_entries(&mut self) -> Result<(), LiveError> {
        let Some(index) = self.toast_index().await? else { return Ok(()) };
        let server = &self.about.server;
        let Some(pageinspect) = &server.pageinspect else { return Ok(()) };
        let id_type = self.id_type();
        let snapshot = self.standing.snapshot.clone();
        let connection = Arc::clone(&self.connection);
        let quoted = quote_qualified("pg_toast", &index);
        let reader =
            PageReader::unlocked(connection, pageinspect, server.page_size, quoted, snapshot);
        let mut entries = IndexEntries::new();
        // after the metapage; the server refuses to read by a page that it does not pass on
        let all: Vec<BlockNumber> = (1..reader.block_count().await?).map(BlockNumber).collect();
        for blocks in all.chunks(AT_ONCE) {
            reader
                .read_raw(blocks, |pages| {
                    pages.iter().for_each(|(_, bytes)| entries.add_page(bytes, id_type));
                })
                .await?;
        }
        entries.sort();
        self.entries = Some(entries);
        Ok(())
    }

    /// The file of an index, which changes when it is rebuilt.
    async fn index_file(&self, index: &str) -> Result<Option<u32>, LiveError> {
        let name = quote_literal(index);
        let sql = format!("SELECT pg_catalog.pg_relation_filenode({name}::pg_catalog.regclass)");
        Ok(self.connection.client().value(&sql, &[]).await?.flatten())
    }
}

fn findings(index: &str, mut wrong: Vec<WrongPage>) -> Vec<Finding> {
    let more = wrong.len().saturating_sub(MAX_FINDINGS);
    wrong.truncate(MAX_FINDINGS);
    if let Some(last) = wrong.last_mut()
        && more > 0
    {
        last.found += &format!("; {more} more findings of this index are not listed");
    }
    wrong
        .into_iter()
        .map(|wrong| {
            let place = Place { block: Some(wrong.block), ..Place::new(index) };
            Finding::new(Code::IndexUnreadable, place, wrong.expected, wrong.found)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of an index, with entries of 16 bytes: the block or item that each leads to, and its key.
    fn page(prev: u32, next: u32, level: u32, entries: &[(u32, u32, i32)]) -> Vec<u8> {
        let mut page = vec![0; 8192];
        let special = 8192 - 16;
        for (at, word) in [(0, prev), (4, next), (8, level), (12, u32::from(level == 0))] {
            page[special + at..special + at + 4].copy_from_slice(&word.to_le_bytes());
        }
        let mut lower = 24;
        let mut upper = special;
        for &(to, id, seq) in entries {
            upper -= 16;
            page[upper + 2..upper + 4].copy_from_slice(&(to as u16).to_le_bytes());
            page[upper + 4..upper + 8].copy_from_slice(&[1, 0, 16, 0]);
            page[upper + 8..upper + 12].copy_from_slice(&id.to_le_bytes());
            page[upper + 12..upper + 16].copy_from_slice(&seq.to_le_bytes());
            let word = upper as u32 | 1 << 15 | 16 << 17;
            page[lower..lower + 4].copy_from_slice(&word.to_le_bytes());
            lower += 4;
        }
        let header = [(12, lower as u16), (14, upper as u16), (16, special as u16), (18, 8192 | 4)];
        for (at, word) in header {
            page[at..at + 2].copy_from_slice(&word.to_le_bytes());
        }
        page
    }

    fn meta(root: u32, level: u32) -> Vec<u8> {
        let mut page = page(0, 0, 0, &[]);
        page[8192 - 4..8192 - 2].copy_from_slice(&8u16.to_le_bytes());
        for (at, word) in [(24, 0x53162), (28, 4), (32, root), (36, level), (40, root), (44, level)]
        {
            page[at..at + 4].copy_from_slice(&u32::to_le_bytes(word));
        }
        page
    }

    /// Two leaves below a root.
    fn pages() -> Vec<Vec<u8>> {
        vec![
            meta(3, 1),
            page(0, 2, 0, &[(9, 20, 0), (5, 10, 0), (6, 10, 1)]),
            page(1, 0, 0, &[(7, 20, 0), (8, 20, 1)]),
            page(0, 0, 1, &[(1, 0, 0), (2, 20, 0)]),
        ]
    }

    fn wrong(pages: &[Vec<u8>]) -> Vec<String> {
        let mut tree = IndexTree::default();
        for (number, bytes) in pages.iter().enumerate() {
            tree.enter(BlockNumber(number as u32), bytes);
        }
        let wrong = tree.wrong().into_iter();
        wrong.map(|one| format!("{}: {}, not {}", one.block, one.expected, one.found)).collect()
    }

    #[test]
    fn a_sound_tree_has_nothing_wrong() {
        assert_eq!(wrong(&pages()), Vec::<String>::new());
        // an index without entries; blocks of zeros behind the others
        assert_eq!(wrong(&[meta(0, 0), vec![0; 8192]]), Vec::<String>::new());
    }

    #[test]
    fn pages_that_would_be_read_without_end_are_found() {
        let mut all = Vec::new();
        let mut with = |change: &dyn Fn(&mut Vec<Vec<u8>>)| {
            let mut pages = pages();
            change(&mut pages);
            all.push(wrong(&pages).join("; "));
        };
        // a leaf without its flag, and without its last bytes
        with(&|pages| pages[1][8192 - 4] = 0);
        with(&|pages| pages[2][8192 - 16..].fill(0));
        // a root that leads to itself, to nowhere, to the metapage
        with(&|pages| pages[3] = page(0, 0, 1, &[(3, 0, 0), (2, 20, 0)]));
        with(&|pages| pages[0] = meta(9, 1));
        with(&|pages| pages[3] = page(0, 0, 1, &[(0, 0, 0), (2, 20, 0)]));
        // leaves in a circle
        with(&|pages| pages[2] = page(1, 1, 0, &[(9, 30, 0), (7, 20, 0)]));
        // keys out of order, and behind the high key
        with(&|pages| pages[2] = page(1, 0, 0, &[(7, 20, 3), (8, 20, 1)]));
        with(&|pages| pages[1] = page(0, 2, 0, &[(9, 20, 0), (5, 10, 0), (6, 21, 1)]));
        // no metapage at all, and another page in its place
        with(&|pages| pages[0].fill(0));
        with(&|pages| pages[0] = pages[1].clone());
        insta::assert_snapshot!(all.join("\n"), @r"
        1: level 0 of leaves alone, not level 0, flags 0x0000
        2: level 0 of leaves alone, not level 0, flags 0x0000
        3: a page of level 0, not block 3, of level 1
        0: a page of level 1, not block 9, which is not in use
        3: a page of level 0, not the metapage
        2: a page of level 0 to the right, not block 1, of level 0 and with 0 to its left
        2: entries in order, not chunk 1 of value 20 after chunk 3 of value 20
        1: entries in order, not chunk 0 of value 20 after chunk 1 of value 21
        0: a metapage, not none
        0: one metapage, at the beginning, not flags 0x0001
        ");
    }

    #[test]
    fn a_page_that_is_read_again_replaces_what_it_was() {
        let mut tree = IndexTree::default();
        for (number, bytes) in pages().iter().enumerate() {
            tree.enter(BlockNumber(number as u32), bytes);
        }
        tree.enter(BlockNumber(1), &page(0, 7, 0, &[(9, 20, 0)]));
        assert_eq!(tree.wrong()[0].to, Some(BlockNumber(7)));
        tree.refuse(BlockNumber(1), "a page", "none".into());
        assert_eq!(tree.wrong().len(), 1);
        tree.enter(BlockNumber(1), &pages()[1]);
        assert_eq!(tree.wrong(), []);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            changes in proptest::collection::vec((0usize..3 * 8192, proptest::prelude::any::<u8>()), 0..40),
        ) {
            let mut pages = pages();
            for (at, byte) in changes {
                pages[1 + at / 8192][at % 8192] = byte;
            }
            let _ = wrong(&pages);
        }
    }
}
