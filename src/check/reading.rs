//! A value out of line as SQL finds its chunks, by the index, held against what the chunks themselves say (pure).

use std::collections::HashSet;

use super::chunk_index::ChunkTuple;
use super::value::{ChunkForm, ChunkSeen, check_chunks};
use crate::server::chunk_rows::ChunkRow;
use toast_format::disk::{ItemPointer, PageSize, ToastPointer};
use toast_format::model::toaster::chunks::Fate;

/// How a damaged value can be read: the facts from which its statement is chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ValueReading {
    /// Whether SQL has read it; `None` where it was not tried.
    pub(super) by_sql: Option<bool>,
    /// Whether the index leads to all of its chunks, in the order of their numbers.
    pub(super) by_index: bool,
    /// Whether all chunks with its ID are there.
    pub(super) by_chunks: bool,
    /// Whether they would be if those that are deleted, or refused by the server, were live.
    pub(super) is_hidden: bool,
    /// Whether index and chunks differ, and neither is proven wrong.
    pub(super) is_open: bool,
    /// Whether an UPDATE would delete chunks that another value needs.
    pub(super) harms: bool,
    /// Whether SQL's copy is made of all stored bytes.
    pub(super) is_whole: bool,
}

impl ValueReading {
    /// Holds the chunks that the index leads to, in its order, against those with the value's ID. `misled` are those
    /// to which the index is proven to lead by a wrong entry.
    pub(super) fn new(
        pointer: &ToastPointer,
        led_to: &[ChunkRow],
        own: &[ChunkTuple],
        misled: &HashSet<ItemPointer>,
        page: PageSize,
    ) -> ValueReading {
        let by_index = is_read(pointer, led_to, page);
        let sound: Vec<ChunkSeen> = own.iter().filter(|c| is_sound(c)).map(|c| c.seen).collect();
        let by_chunks = check_chunks(pointer, &sound, page).is_ok();
        let all: Vec<ChunkSeen> = own
            .iter()
            .filter(|c| !c.is_misread)
            .map(|chunk| ChunkSeen { fate: Fate::Committed, ..chunk.seen })
            .collect();
        let is_hidden = !by_chunks && check_chunks(pointer, &all, page).is_ok();
        let mut places = HashSet::new();
        let entries: Vec<&ChunkRow> = led_to
            .iter()
            .filter(|row| places.insert(row.tid) && !misled.contains(&row.tid))
            .collect();
        let is_open = entries.iter().any(|row| row.value_id != pointer.value_id)
            || !entries.is_sorted_by(|a, b| a.seq < b.seq)
            || by_index && !by_chunks;
        ValueReading { by_index, by_chunks, is_hidden, is_open, ..ValueReading::default() }
    }
}

/// A chunk without its data, as the server tells of it.
pub(super) fn seen_chunk(row: &ChunkRow) -> ChunkSeen {
    let size = row.raw_size.unwrap_or(0);
    let header = row.stored_size.unwrap_or(0).saturating_sub(size);
    let form = match (row.seq, row.raw_size) {
        (None, _) | (_, None) => ChunkForm::Null,
        // a header of 1 or 4 bytes
        _ if header == 1 || header == 4 => ChunkForm::Plain,
        _ => ChunkForm::NotPlain,
    };
    ChunkSeen {
        tid: row.tid,
        seq: row.seq.unwrap_or(0),
        form,
        size: u32::try_from(size).unwrap_or(0),
        fate: Fate::Committed,
    }
}

pub(super) fn is_sound(chunk: &ChunkTuple) -> bool {
    !chunk.is_refused && !chunk.is_misread && chunk.seen.fate != Fate::NotCommitted
}

/// Whether SQL reads a value from these chunks, which the index leads to in this order: it looks at their numbers and
/// sizes, not at their IDs (`heap_fetch_toast_slice`).
pub(super) fn is_read(pointer: &ToastPointer, led_to: &[ChunkRow], page: PageSize) -> bool {
    let seen: Vec<ChunkSeen> = led_to.iter().map(seen_chunk).collect();
    (0..).zip(led_to).all(|(number, row)| row.seq == Some(number))
        && check_chunks(pointer, &seen, page).is_ok()
}

/// The same chunks with the numbers that their order gives them, if they are the value's by number and size.
pub(super) fn numbered_by_index(
    pointer: &ToastPointer,
    led_to: &[ChunkRow],
    page: PageSize,
) -> Option<Vec<ChunkRow>> {
    let rows: Vec<ChunkRow> =
        (0..).zip(led_to).map(|(seq, row)| ChunkRow { seq: Some(seq), ..row.clone() }).collect();
    is_read(pointer, &rows, page).then_some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toast_format::disk::{BlockNumber, Oid, ValueId, ValueIdType};

    fn tid(item: u16) -> ItemPointer {
        ItemPointer { block: BlockNumber(0), item }
    }

    /// Of value 7: chunks of 1996 and 4 bytes.
    fn reading(led_to: &[(u16, u64, i32)], own: &[(u16, i32)], misled: &[u16]) -> [bool; 3] {
        let pointer = ToastPointer {
            raw_size_with_header: 2004,
            ext_info: 2000,
            value_id: ValueId(7),
            id_type: ValueIdType::Oid,
            toast_relation: Oid(9),
        };
        // the item tells the size
        let size = |item: u16| if item.is_multiple_of(2) { 1996 } else { 4 };
        let row = |&(item, id, seq): &(u16, u64, i32)| ChunkRow {
            tid: tid(item),
            value_id: ValueId(id),
            seq: Some(seq),
            raw_size: Some(size(item)),
            stored_size: Some(size(item) + 4),
            data: None,
        };
        let chunk = |&(item, seq): &(u16, i32)| ChunkTuple {
            seen: ChunkSeen {
                tid: tid(item),
                seq,
                form: ChunkForm::Plain,
                size: size(item) as u32,
                fate: Fate::Committed,
            },
            xids: [742, 0],
            is_refused: false,
            is_misread: false,
            is_moved: false,
            is_heap_only: false,
            page_items: 10,
        };
        let rows: Vec<ChunkRow> = led_to.iter().map(row).collect();
        let chunks: Vec<ChunkTuple> = own.iter().map(chunk).collect();
        let misled = misled.iter().copied().map(tid).collect();
        let ValueReading { by_index, by_chunks, is_open, .. } =
            ValueReading::new(&pointer, &rows, &chunks, &misled, PageSize::DEFAULT);
        [by_index, by_chunks, is_open]
    }

    #[test]
    fn index_and_chunks_differ_without_a_proof_or_with_one() {
        let own = [(2, 0), (3, 1)];
        assert_eq!(reading(&[(2, 7, 0), (3, 7, 1)], &own, &[]), [true, true, false]);
        // an entry is missing, leads to the other chunk, or to one that another entry has
        assert_eq!(reading(&[(2, 7, 0)], &own, &[]), [false, true, false]);
        assert_eq!(reading(&[(2, 7, 0), (2, 7, 0)], &own, &[]), [false, true, false]);
        assert_eq!(reading(&[(2, 7, 0), (5, 8, 1)], &own, &[5]), [true, true, false]);
        // chunks have another's ID: each the other's, or one
        assert_eq!(reading(&[(2, 7, 0), (5, 8, 1)], &own, &[]), [true, true, true]);
        assert_eq!(reading(&[(2, 7, 0), (3, 8, 1)], &[(2, 0)], &[]), [true, false, true]);
        // or the numbers are exchanged, or one is behind the others
        assert_eq!(reading(&[(2, 7, 1), (3, 7, 0)], &[(2, 1), (3, 0)], &[]), [false, false, true]);
        assert_eq!(
            reading(&[(2, 7, 0), (3, 7, 1)], &[(2, 0), (3, 1), (4, 2)], &[]),
            [true, false, true]
        );
    }
}
