//! What a look at the TOAST relation finds: how full its blocks are, and which values have chunks behind one.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::disk::Oid;
use crate::disk::varlena::VARLENA_HEADER_SIZE;
use crate::fill::packing::{Sample, chunks_of};
use crate::fill::room::{Room, taken};
use crate::model::pages::CHUNK_OVERHEAD;
use crate::retoast::sql::compact;
use crate::retoast::sweep::scanner::transaction;
use crate::retoast::task::error::TaskError;
use crate::retoast::task::guard::Guard;

/// Blocks that one statement looks at.
const SOME: u32 = 4096;
/// Values that are moved in one round at the most, for they are kept in memory.
const MOST_VALUES: usize = 2_000_000;
/// Places of the file at which values are looked at for their sizes.
const SAMPLES: u32 = 16;

/// Values with chunks behind the end, by their number in the TOAST relation.
#[derive(Debug, Clone, Default)]
pub(super) struct Behind {
    /// With the last block of each.
    pub(super) values: HashMap<u32, u32>,
    /// The blocks up to the last one with a live chunk, or up to the end if there is none behind.
    pub(super) last: u32,
    /// Whether these are all.
    pub(super) all: bool,
    /// Values that others have stored since the work began, with those that were met.
    pub(super) of_others: u64,
}

/// Transactions of the compaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own<'a> {
    /// Those whose values are left out.
    pub(super) own: &'a HashSet<u32>,
    /// All.
    pub(super) ever: &'a HashSet<u32>,
    /// What others have begun since this one is not what stood there at first.
    pub(super) since: &'a str,
}

/// Ranges of so many blocks, from the first to the last.
pub(super) fn ranges(blocks: Range<u32>, of: u32) -> Vec<Range<u32>> {
    let mut all = Vec::new();
    let mut start = blocks.start;
    while start < blocks.end {
        let end = start.saturating_add(of).min(blocks.end);
        all.push(start..end);
        start = end;
    }
    all
}

/// Ranges about these blocks, which are in their order, of a relation of so many.
fn around(blocks: &[u32], of: u32) -> Vec<Range<u32>> {
    const HALF: u32 = 64;
    let mut all: Vec<Range<u32>> = Vec::new();
    for &block in blocks {
        let from = all.last().map_or(0, |last| last.end).max(block.saturating_sub(HALF));
        let to = block.saturating_add(HALF).min(of);
        if from < to {
            all.push(from..to);
        }
    }
    all
}

fn unsigned(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// How full the TOAST relation is. `None` once a stop is asked for.
pub(super) async fn toast_room(
    guard: &Guard<'_>,
    toast: Oid,
    name: &str,
) -> Result<Option<Room>, TaskError> {
    let Some(blocks) = guard.blocks(toast).await? else { return Ok(None) };
    let page = guard.session.server.page_size;
    let mut room = Room::new(page, blocks, 100);
    for some in ranges(0..blocks, SOME) {
        let sql = compact::chunks(name, &some);
        let Some(rows) = guard.read(&sql).await? else { return Ok(None) };
        let mut found: HashMap<u32, u32> = HashMap::new();
        for row in &rows {
            let (block, size, count): (i64, i32, i64) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            // pg_column_size counts the header of chunk_data
            let header = VARLENA_HEADER_SIZE as usize;
            let tuple = CHUNK_OVERHEAD - header + usize::try_from(size).unwrap_or(0);
            let block = found.entry(unsigned(block)).or_default();
            *block = block.saturating_add(taken(tuple).saturating_mul(unsigned(count)));
        }
        for (number, taken) in found {
            room.set(number, taken);
        }
    }
    let mut sizes = Vec::new();
    for some in around(&room.spread(SAMPLES), blocks) {
        let Some(rows) = guard.read(&compact::values(name, &some, None)).await? else {
            return Ok(None);
        };
        for row in &rows {
            let (value, block, bytes): (u32, i64, i64) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(3)?);
            sizes.push((value, unsigned(block), u64::try_from(bytes).unwrap_or(0)));
        }
    }
    sizes.sort_unstable();
    let mut sample = Sample::default();
    for (_, block, bytes) in sizes {
        sample.add(block, chunks_of(page, bytes));
    }
    room.holds(sample);
    Ok(Some(room))
}

/// The values with chunks in this block or behind it, the last ones first if they are too many. Those that
/// these transactions have stored are left out.
pub(super) async fn values_behind(
    guard: &Guard<'_>,
    toast: Oid,
    name: &str,
    end: u32,
    all: Own<'_>,
) -> Result<Option<Behind>, TaskError> {
    let Some(blocks) = guard.blocks(toast).await? else { return Ok(None) };
    let mut behind = Behind { last: end, all: true, ..Behind::default() };
    for some in ranges(end..blocks, SOME).into_iter().rev() {
        if behind.values.len() >= MOST_VALUES {
            behind.all = false;
            break;
        }
        let sql = compact::values(name, &some, Some(all.since));
        let Some(rows) = guard.read(&sql).await? else { return Ok(None) };
        for row in &rows {
            let (value, block, xmin): (u32, i64, &str) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            let (block, xid, is_recent) =
                (unsigned(block), transaction(xmin)?, row.try_get::<_, bool>(4)?);
            behind.last = behind.last.max(block.saturating_add(1));
            behind.of_others += u64::from(is_recent && !all.ever.contains(&xid));
            if !all.own.contains(&xid) {
                behind.values.entry(value).or_insert(block);
            }
        }
    }
    Ok(Some(behind))
}

/// The next transaction when this was asked first. `None` once a stop is asked for.
pub(super) async fn first_look(
    guard: &Guard<'_>,
    since: &RefCell<Option<String>>,
) -> Result<Option<String>, TaskError> {
    if let Some(since) = since.borrow().clone() {
        return Ok(Some(since));
    }
    let Some(rows) = guard.read(compact::NEXT_TRANSACTION).await? else { return Ok(None) };
    let next: Option<String> = rows.first().map(|row| row.try_get(0)).transpose()?;
    since.borrow_mut().clone_from(&next);
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_do_not_overlap() {
        assert_eq!(around(&[10, 40, 300], 320), [0..74, 74..104, 236..320]);
        assert!(around(&[], 100).is_empty() && around(&[200], 100).is_empty());
    }

    #[test]
    fn ranges_cover_all_blocks() {
        assert_eq!(ranges(3..10, 4), [3..7, 7..10]);
        assert_eq!(ranges(5..5, 4), []);
        assert_eq!(
            ranges(u32::MAX - 5..u32::MAX, 4),
            [u32::MAX - 5..u32::MAX - 1, u32::MAX - 1..u32::MAX]
        );
    }
}
