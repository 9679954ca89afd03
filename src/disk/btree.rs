//! Leaf pages of btree indexes (`nbtree.h`, `itup.h`).
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

/// `btpo_flags`: a leaf; deleted or about to be.
const LEAF: u16 = 0x0001;
const DELETED: u16 = 0x0004 | 0x0010;
/// Bytes before an entry's null bitmap and key.
const ENTRY_HEADER: usize = 8;
/// `t_info`: `t_tid` is not the place of a row; the key has nulls.
const ALTERNATIVE_TID: u16 = 0x2000;
const HAS_NULLS: u16 = 0x8000;
/// `t_tid`'s offset number in an entry with a posting list: that it is one; how many rows.
const POSTING: u16 = 0x2000;
const ROWS: u16 = 0x0FFF;

/// What a leaf page has entries for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Leaf {
    /// Rows that its entries lead to, unless they are known to be dead.
    pub rows: u64,
    /// Different keys of them, byte by byte.
    pub keys: u64,
}

/// Of a page of a btree index; nothing of one that is no leaf, `None` of one that is damaged.
pub fn leaf(page: &Page<'_>) -> Option<Leaf> {
    let (order, special) = (page.byte_order(), page.special_space());
    let flags = order.u16(special, 12)?;
    if flags & LEAF == 0 || flags & DELETED != 0 {
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
        let entry = page.tuple_bytes(item).ok()?;
        let info = order.u16(entry, 6)?;
        let offset = order.u16(entry, 4)?;
        let (end, rows) = if info & ALTERNATIVE_TID != 0 && offset & POSTING != 0 {
            let at = usize::from(order.u16(entry, 0)?) << 16 | usize::from(order.u16(entry, 2)?);
            (at, u64::from(offset & ROWS))
        } else {
            (entry.len(), 1)
        };
        leaf.rows += rows;
        keys.insert((info & HAS_NULLS, entry.get(ENTRY_HEADER..end)?));
    }
    leaf.keys = keys.len() as u64;
    Some(leaf)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::page::PageState;
    use proptest::prelude::*;

    /// Bytes of the special space.
    const SPECIAL: usize = 16;

    /// A leaf page with these entries, after a high key if another page is to its right.
    fn page(right: u32, flags: u16, entries: &[Vec<u8>]) -> Vec<u8> {
        let mut page = vec![0; 8192];
        let special = 8192 - SPECIAL;
        page[special + 4..special + 8].copy_from_slice(&right.to_le_bytes());
        page[special + 12..special + 14].copy_from_slice(&flags.to_le_bytes());
        let (mut lower, mut upper) = (24, special);
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
