//! Pages of btree indexes (`nbtree.h`, `itup.h`).
//!
//! ```text
//! special space              entry
//!  0 btpo_prev    4           0 t_tid   6   of a posting list: where it starts (4, high half first),
//!  4 btpo_next    4                         and 0x2000 with how many rows it has (2)
//!  8 btpo_level   4           6 t_info  2   size 0x1fff, t_tid is no row 0x2000, has nulls 0x8000
//! 12 btpo_flags   2           8 null bitmap and key, then the posting list
//! 14 btpo_cycleid 2
//! ```

use std::collections::HashSet;

use super::page::{LinePointerState, Page};
use super::{BlockNumber, ByteOrder, ItemPointer, ValueId, ValueIdType};

/// `btpo_flags`: a leaf; deleted; the metapage; about to be deleted.
const LEAF: u16 = 0x0001;
const DELETED: u16 = 0x0004;
const META: u16 = 0x0008;
const HALF_DEAD: u16 = 0x0010;
/// `BTREE_MAGIC` of `nbtree.h`.
const MAGIC: u32 = 0x0005_3162;
/// Bytes of `BTPageOpaqueData` (`nbtree.h`).
const SPECIAL: usize = 16;
/// Bytes before an entry's null bitmap and key.
const ENTRY_HEADER: usize = 8;
/// `t_info`: `t_tid` is not the place of a row; the key has nulls.
const ALTERNATIVE_TID: u16 = 0x2000;
const HAS_NULLS: u16 = 0x8000;
/// `t_tid`'s offset number in an entry with a posting list: that it is one; how many rows. In an entry that separates
/// pages, the same bits count its columns.
const POSTING: u16 = 0x2000;
const ROWS: u16 = 0x0FFF;

/// The header of an entry (`IndexTupleData`).
#[derive(Clone, Copy)]
struct IndexEntryHeader {
    /// The block of `t_tid`: where a posting list starts, or the page below.
    block: u32,
    /// The offset number of `t_tid`.
    offset: u16,
    info: u16,
}

impl IndexEntryHeader {
    fn read(order: ByteOrder, bytes: &[u8]) -> Option<IndexEntryHeader> {
        let high = order.u16(bytes, 0)?;
        let low = order.u16(bytes, 2)?;
        let block = u32::from(high) << 16 | u32::from(low);
        Some(IndexEntryHeader { block, offset: order.u16(bytes, 4)?, info: order.u16(bytes, 6)? })
    }

    fn is_posting_list(self) -> bool {
        self.info & ALTERNATIVE_TID != 0 && self.offset & POSTING != 0
    }

    fn has_nulls(self) -> bool {
        self.info & HAS_NULLS != 0
    }

    /// The number of columns of an entry that separates pages; `None` for other entries, which have all columns.
    fn columns(self) -> Option<u16> {
        let separates = self.info & ALTERNATIVE_TID != 0 && !self.is_posting_list();
        separates.then_some(self.offset & ROWS)
    }
}

/// The entries of a leaf page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Leaf {
    /// The number of rows that its entries point to, without entries marked dead (`LP_DEAD`).
    pub rows: u64,
    /// The number of different keys of these entries, compared byte by byte.
    pub keys: u64,
}

/// Counts the entries of a page of a btree index: none if it is not a leaf, `None` if it is damaged.
pub fn leaf(page: &Page<'_>) -> Option<Leaf> {
    let order = page.byte_order();
    let special = page.special_space();
    let flags = order.u16(special, 12)?;
    if flags & LEAF == 0 || flags & (DELETED | HALF_DEAD) != 0 {
        return Some(Leaf::default());
    }
    // the first of a page that has one to its right is its high key, which is no entry
    let high_keys = u16::from(order.u32(special, 4)? != 0);
    let mut leaf = Leaf::default();
    let mut keys = HashSet::new();
    for (number, item) in page.line_pointers() {
        if number <= high_keys || item.state != LinePointerState::Normal {
            continue;
        }
        let bytes = page.tuple_bytes(item).ok()?;
        let entry = IndexEntryHeader::read(order, bytes)?;
        let (end, rows) = if entry.is_posting_list() {
            (entry.block as usize, u64::from(entry.offset & ROWS))
        } else {
            (bytes.len(), 1)
        };
        leaf.rows += rows;
        keys.insert((entry.has_nulls(), bytes.get(ENTRY_HEADER..end)?));
    }
    leaf.keys = keys.len() as u64;
    Some(leaf)
}

/// What a page is used for in a btree (`nbtree.h`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreePage {
    /// The metapage (`BTMetaPageData`), which names the root.
    Meta {
        /// `btm_root` and `btm_level`, `btm_fastroot` and `btm_fastlevel`: a page, 0 if there is none, and its level.
        roots: [(BlockNumber, u32); 2],
    },
    /// A deleted page (`BTP_DELETED`), to which no other page points.
    Deleted,
    /// Any page but the metapage.
    Node(TreeNode),
}

/// A page of the tree: the root, a leaf, or a page between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeNode {
    /// `btpo_level`: 0 of leaves.
    pub level: u32,
    /// `btpo_prev`: the page on its left on the same level, 0 if it is the first.
    pub prev: BlockNumber,
    /// `btpo_next`: the page on its right on the same level, 0 if it is the last.
    pub next: BlockNumber,
    /// The pages below it.
    pub children: Vec<BlockNumber>,
    /// The keys of a TOAST relation's index, in the order of the page: the high key first where there is one. `None` for
    /// a key that precedes all others.
    pub keys: Vec<Option<ChunkKey>>,
    /// The last block of the table to which an entry of a leaf leads that is not known to be dead.
    pub last_row: Option<BlockNumber>,
    /// The number of entries that lead to this block.
    pub last_rows: u32,
}

impl TreeNode {
    /// Whether the page has a high key, which all of its keys precede or equal.
    pub fn has_high_key(&self) -> bool {
        self.next.0 != 0
    }
}

/// `chunk_id` and `chunk_seq`, which may be missing in entries that separate pages.
pub type ChunkKey = (ValueId, Option<i32>);

/// An entry of a leaf of a TOAST relation's index: the place of a chunk, and its `chunk_id` and `chunk_seq`.
pub type ChunkEntry = (ItemPointer, ValueId, i32);

/// The entries that are not dead of a page of a TOAST relation's index, whatever else is wrong with it; `None` if one of
/// them cannot be read.
pub fn chunk_entries(page: &Page<'_>, id_type: ValueIdType) -> Option<Vec<ChunkEntry>> {
    let order = page.byte_order();
    let mut entries = Vec::new();
    if order.u32(page.special_space(), 8).is_some_and(|level| level > 0) {
        return Some(entries);
    }
    for (_, item) in page.line_pointers() {
        if item.state != LinePointerState::Normal {
            continue;
        }
        let bytes = page.tuple_bytes(item).ok()?;
        let entry = IndexEntryHeader::read(order, bytes)?;
        // a high key leads to no row
        if entry.info & ALTERNATIVE_TID == 0 {
            let tid = ItemPointer { block: BlockNumber(entry.block), item: entry.offset };
            let id = order.value_id(bytes, ENTRY_HEADER, id_type)?;
            let seq = order.u32(bytes, ENTRY_HEADER + id_type.size())?;
            entries.push((tid, id, seq as i32));
        }
    }
    Some(entries)
}

/// Reads a page of a TOAST relation's index.
///
/// # Errors
/// Returns what a page of such an index must have, and what this page has instead.
pub fn tree_page(
    page: &Page<'_>,
    is_first: bool,
    id_type: ValueIdType,
) -> Result<TreePage, (&'static str, String)> {
    let order = page.byte_order();
    let special = page.special_space();
    if special.len() != SPECIAL {
        return Err(("16 bytes at the page's end", special.len().to_string()));
    }
    let word = |at| order.u32(special, at).unwrap_or_default();
    let prev = BlockNumber(word(0));
    let next = BlockNumber(word(4));
    let level = word(8);
    let flags = order.u16(special, 12).unwrap_or_default();
    if is_first != (flags & META != 0) {
        return Err(("one metapage, at the beginning", format!("flags 0x{flags:04x}")));
    }
    if is_first {
        let magic = order.u32(page.contents(), 0).unwrap_or_default();
        if magic != MAGIC {
            return Err(("magic number 0x00053162", format!("0x{magic:08x}")));
        }
        return Ok(TreePage::Meta { roots: [root(page, 8), root(page, 16)] });
    }
    if flags & DELETED != 0 {
        return Ok(TreePage::Deleted);
    }
    if (flags & LEAF != 0) != (level == 0) {
        return Err(("level 0 of leaves alone", format!("level {level}, flags 0x{flags:04x}")));
    }
    let children = Vec::new();
    let keys = Vec::new();
    let mut node = TreeNode { level, prev, next, children, keys, last_row: None, last_rows: 0 };
    for (number, item) in page.line_pointers() {
        let is_high_key = number == 1 && node.has_high_key();
        let is_gone = item.state == LinePointerState::Dead && level == 0 && !is_high_key;
        if item.state != LinePointerState::Normal && !is_gone {
            return Err(("line pointers in use", format!("{number} is {:?}", item.state)));
        }
        let bytes = page.tuple_bytes(item).map_err(|e| ("entries on the page", e.to_string()))?;
        let Some(entry) = IndexEntryHeader::read(order, bytes) else {
            return Err(("entries of 16 bytes or more", format!("{} at {number}", bytes.len())));
        };
        if entry.has_nulls() {
            return Err(("keys without NULL", format!("a NULL in entry {number}")));
        }
        let is_child = level > 0 && !is_high_key;
        // the first of the entries that lead to pages precedes all others, whatever it contains
        let is_least = is_child && node.children.is_empty();
        if is_child {
            node.children.push(BlockNumber(entry.block));
        }
        if level == 0 && !is_high_key && !is_gone && !entry.is_posting_list() {
            let block = Some(BlockNumber(entry.block));
            if block > node.last_row {
                (node.last_row, node.last_rows) = (block, 0);
            }
            node.last_rows += u32::from(block == node.last_row);
        }
        let id = order.value_id(bytes, ENTRY_HEADER, id_type);
        let seq = order.u32(bytes, ENTRY_HEADER + id_type.size());
        node.keys.push(match entry.columns() {
            _ if is_least => None,
            Some(0) => None,
            Some(1) => id.map(|id| (id, None)),
            _ => id.zip(seq).map(|(id, seq)| (id, Some(seq as i32))),
        });
    }
    Ok(TreePage::Node(node))
}

/// A root and its level, as the metapage names them (`BTMetaPageData`, `nbtree.h`).
fn root(page: &Page<'_>, at: usize) -> (BlockNumber, u32) {
    let order = page.byte_order();
    let block = order.u32(page.contents(), at).unwrap_or_default();
    (BlockNumber(block), order.u32(page.contents(), at + 4).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::page::PageState;
    use proptest::prelude::*;

    /// A leaf page with these entries, after a high key if another page is to its right.
    fn page(right: u32, flags: u16, entries: &[Vec<u8>]) -> Vec<u8> {
        let mut page = vec![0; 8192];
        let special = 8192 - SPECIAL;
        page[special + 4..special + 8].copy_from_slice(&right.to_le_bytes());
        page[special + 12..special + 14].copy_from_slice(&flags.to_le_bytes());
        let mut lower = 24;
        let mut upper = special;
        for entry in entries {
            upper -= entry.len();
            page[upper..upper + entry.len()].copy_from_slice(entry);
            let word = upper as u32 | 1 << 15 | (entry.len() as u32) << 17;
            page[lower..lower + 4].copy_from_slice(&word.to_le_bytes());
            lower += 4;
        }
        for (at, word) in
            [(12, lower as u16), (14, upper as u16), (16, special as u16), (18, 8192 | 4)]
        {
            page[at..at + 2].copy_from_slice(&word.to_le_bytes());
        }
        page
    }

    fn entry(key: u64) -> Vec<u8> {
        let mut entry = vec![0, 0, 7, 0, 3, 0, 16, 0];
        entry.extend(key.to_le_bytes());
        entry
    }

    /// With a posting list of so many rows.
    fn posting(key: u64, rows: u16) -> Vec<u8> {
        let size = (16 + 6 * rows).next_multiple_of(8);
        let mut entry = vec![0, 0, 16, 0];
        entry.extend((rows | POSTING).to_le_bytes());
        entry.extend((size | ALTERNATIVE_TID).to_le_bytes());
        entry.extend(key.to_le_bytes());
        entry.resize(usize::from(size), 9);
        entry
    }

    fn of(bytes: &[u8]) -> Option<Leaf> {
        match Page::parse(bytes) {
            Ok(PageState::Used(page)) => leaf(&page),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rows_and_keys_of_a_leaf_are_counted() {
        let entries = [entry(1), entry(1), entry(2), posting(2, 5), posting(3, 2)];
        assert_eq!(of(&page(0, LEAF, &entries)), Some(Leaf { rows: 10, keys: 3 }));
        // the first one is the high key
        assert_eq!(of(&page(7, LEAF, &entries)), Some(Leaf { rows: 9, keys: 3 }));
        assert_eq!(of(&page(0, LEAF, &[])), Some(Leaf::default()));
        for flags in [0, LEAF | 0x0004, LEAF | 0x0010] {
            assert_eq!(of(&page(0, flags, &entries)), Some(Leaf::default()), "{flags}");
        }
    }

    #[test]
    fn dead_entries_count_nothing() {
        let mut bytes = page(0, LEAF, &[entry(1), entry(2)]);
        let word = u32::from_le_bytes(*bytes[28..].first_chunk().unwrap()) | 3 << 15;
        bytes[28..32].copy_from_slice(&word.to_le_bytes());
        assert_eq!(of(&bytes), Some(Leaf { rows: 1, keys: 1 }));
    }

    #[test]
    fn what_lies_outside_is_damage() {
        let mut wrong = posting(2, 5);
        wrong[2] = 0xF8;
        assert_eq!(of(&page(0, LEAF, &[wrong])), None);
        let mut no_special = page(0, LEAF, &[entry(1)]);
        no_special[16..18].copy_from_slice(&8184u16.to_le_bytes());
        assert_eq!(of(&no_special), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            changes in prop::collection::vec((12usize..8192, any::<u8>()), 0..40),
        ) {
            let mut bytes = page(3, LEAF, &[entry(1), posting(2, 5), entry(3)]);
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            if let Ok(PageState::Used(page)) = Page::parse(&bytes)
                && let Some(leaf) = leaf(&page)
            {
                prop_assert!(leaf.keys <= u64::from(page.line_pointer_count()));
            }
        }
    }
}
