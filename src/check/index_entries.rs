//! The entries of a damaged TOAST index, which are compared with the chunks that they lead to (pure).

use std::collections::HashMap;
use std::ops::Range;

use super::value::ChunkSeen;
use toast_format::disk::btree::{ChunkEntry, chunk_entries};
use toast_format::disk::{ItemPointer, Page, PageState, ValueId, ValueIdType};

/// `pd_pagesize_version` of a page's header, and the version in it (`PG_PAGE_LAYOUT_VERSION`).
const SIZE_AND_VERSION: Range<usize> = 18..20;
const LAYOUT_VERSION: u16 = 4;

/// The entries of a damaged index that are not dead.
#[derive(Debug, Default)]
pub(super) struct IndexEntries {
    /// Sorted by the chunks to which they lead.
    all: Vec<ChunkEntry>,
    /// The chunks to which entries lead that are not in order, and the keys before and behind these.
    misplaced: HashMap<ItemPointer, [Option<(ValueId, i32)>; 2]>,
    /// Whether the entries of all pages that the server reads are known.
    pub(super) is_complete: bool,
}

impl IndexEntries {
    pub(super) fn new() -> IndexEntries {
        IndexEntries { is_complete: true, ..IndexEntries::default() }
    }

    /// Adds the entries of one page of the index.
    pub(super) fn add_page(&mut self, bytes: &[u8], id_type: ValueIdType) {
        // the server does not look at the size and version in the header of a page
        let sized;
        let bytes = if Page::parse(bytes).is_err() {
            sized = with_size(bytes);
            &sized
        } else {
            bytes
        };
        let entries = match Page::parse(bytes) {
            Ok(PageState::New) => return,
            Ok(PageState::Used(page)) => chunk_entries(&page, id_type),
            Err(_) => None,
        };
        self.is_complete &= entries.is_some();
        let entries = entries.unwrap_or_default();
        let keys: Vec<(ValueId, i32)> = entries.iter().map(|&(_, id, seq)| (id, seq)).collect();
        for (at, ((tid, ..), key)) in entries.iter().zip(&keys).enumerate() {
            let before = at.checked_sub(1).and_then(|at| keys.get(at)).copied();
            let behind = keys.get(at + 1).copied();
            if before.is_some_and(|before| before > *key) || behind.is_some_and(|next| next < *key)
            {
                self.misplaced.insert(*tid, [before, behind]);
            }
        }
        self.all.extend(entries);
    }

    /// Sorts them, once those of all pages were added.
    pub(super) fn sort(&mut self) {
        self.all.sort_unstable();
    }

    /// Whether entries lead to a chunk, and none of them has its ID and number, although they are in order. One that is
    /// not, and would be with these, is proven to be wrong.
    pub(super) fn differ_from(&self, id: u64, chunk: &ChunkSeen) -> bool {
        let start = self.all.partition_point(|(tid, ..)| *tid < chunk.tid);
        let mut own = self.all.iter().skip(start).take_while(|(tid, ..)| *tid == chunk.tid);
        let is_led_to = own.clone().next().is_some();
        let key = (ValueId(id), chunk.seq);
        let is_proven = self.misplaced.get(&chunk.tid).is_some_and(|[before, behind]| {
            before.is_none_or(|before| before < key) && behind.is_none_or(|behind| key < behind)
        });
        is_led_to && !is_proven && !own.any(|&(_, id, seq)| (id, seq) == key)
    }
}

/// The page with its real size, and the version that all pages have, in its header.
fn with_size(bytes: &[u8]) -> Vec<u8> {
    let mut sized = bytes.to_vec();
    let size = u16::try_from(bytes.len()).unwrap_or_default() | LAYOUT_VERSION;
    if let Some(field) = sized.get_mut(SIZE_AND_VERSION) {
        field.copy_from_slice(&size.to_le_bytes());
    }
    sized
}
