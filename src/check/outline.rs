//! Values by the outlines of their chunks: which are not as they should be (pure). What is wrong with
//! those is for a closer look to say.

use super::subject::External;
use crate::disk::layout::PageSize;
use crate::server::chunk_rows::ChunkOutline;

/// Looks at values, in the order of their IDs, with all chunks that the index gave for them. Gives
/// those that are not as they should be, and how many chunks the others have. All are given where the
/// index leads to what was not asked for, or not in its own order: then one cannot say for which.
pub fn odd_ones(
    values: &[External],
    rows: &[ChunkOutline],
    page: PageSize,
) -> (Vec<External>, u64) {
    let is_ordered = rows.is_sorted_by(|a, b| (a.value_id, a.seq) < (b.value_id, b.seq));
    if !is_ordered {
        return (values.to_vec(), 0);
    }
    let mut groups = rows.chunk_by(|a, b| a.value_id == b.value_id).peekable();
    let (mut odd, mut chunks) = (Vec::new(), 0);
    // rows that refer to the same value follow each other
    for own in values.chunk_by(|a, b| a.pointer.value_id == b.pointer.value_id) {
        let Some(first) = own.first() else { continue };
        let id = first.pointer.value_id.0;
        let group = groups.next_if(|rows| rows.first().is_some_and(|row| row.value_id == id));
        let group = group.unwrap_or_default();
        for value in own {
            if is_whole(value.pointer.stored_size(), group, page) {
                chunks += group.len() as u64;
            } else {
                odd.push(*value);
            }
        }
    }
    if groups.next().is_some() {
        return (values.to_vec(), 0);
    }
    (odd, chunks)
}

/// Whether these chunks, in order, are those of a value of which so many bytes are stored.
fn is_whole(size: u32, rows: &[ChunkOutline], page: PageSize) -> bool {
    let limit = page.toast_max_chunk_size();
    let count = page.chunks(size);
    rows.len() as u64 == u64::from(count)
        && (0..count).zip(rows).all(|(number, row)| {
            let wanted = size.saturating_sub(number.saturating_mul(limit)).min(limit);
            let header = i64::from(row.stored_size) - i64::from(row.raw_size);
            i64::from(row.seq) == i64::from(number)
                && i64::from(row.raw_size) == i64::from(wanted)
                && (header == 1 || header == 4)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::pointer::ToastPointer;
    use crate::disk::{ByteOrder, ItemPointer, Oid};

    fn value(id: u32, stored: u32) -> External {
        let pointer = ToastPointer {
            raw_size_with_header: stored as i32 + 4,
            ext_info: stored,
            value_id: Oid(id),
            toast_relation: Oid(9),
        };
        let ctid = ItemPointer::default();
        External { ctid, index: 0, byte: 24, pointer, is_live: true, order: ByteOrder::Little }
    }

    fn chunk(value_id: u32, seq: i32, size: i32) -> ChunkOutline {
        ChunkOutline { value_id, seq, raw_size: size, stored_size: size + 4 }
    }

    fn odd(rows: &[ChunkOutline]) -> (Vec<u32>, u64) {
        let values = [value(5, 2000), value(6, 3992), value(6, 3992), value(9, 100)];
        let (odd, chunks) = odd_ones(&values, rows, PageSize::DEFAULT);
        (odd.iter().map(|value| value.pointer.value_id.0).collect(), chunks)
    }

    #[test]
    fn what_is_not_whole_is_told_from_what_is() {
        let sound = [
            chunk(5, 0, 1996),
            chunk(5, 1, 4),
            chunk(6, 0, 1996),
            chunk(6, 1, 1996),
            ChunkOutline { stored_size: 101, ..chunk(9, 0, 100) },
        ];
        assert_eq!(odd(&sound), (vec![], 7));
        let without = |at: usize| {
            let mut rows = sound.to_vec();
            rows.remove(at);
            odd(&rows).0
        };
        assert_eq!(without(0), [5]);
        assert_eq!(without(3), [6, 6]);
        assert_eq!(without(4), [9]);
        let with = |at: usize, row: ChunkOutline| {
            let mut rows = sound.to_vec();
            rows[at] = row;
            odd(&rows).0
        };
        assert_eq!(with(0, chunk(5, 0, 1995)), [5]);
        assert_eq!(with(0, chunk(5, -1, 1996)), [5]);
        assert_eq!(with(1, chunk(5, 2, 4)), [5]);
        assert_eq!(with(1, ChunkOutline { stored_size: 4, ..chunk(5, 1, 4) }), [5]);
        // the index leads to a chunk of another value: which of them it is for is not known
        let all = [5, 6, 6, 9];
        assert_eq!(with(1, chunk(5, 0, 4)), all);
        assert_eq!(with(1, chunk(9, 0, 100)), all);
        assert_eq!(with(1, chunk(7, 0, 100)), all);
        assert_eq!(odd(&[&sound[..], &[chunk(10, 0, 4)]].concat()).0, all);
        assert_eq!(odd(&[]), (vec![5, 6, 6, 9], 0));
    }
}
