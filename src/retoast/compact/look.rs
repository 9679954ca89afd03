//! What is found in a table and its TOAST relation: how full blocks are, which values have chunks behind a block, and
//! which rows these values belong to.

use std::collections::HashMap;
use std::ops::Range;

use crate::retoast::compact::part::PiecesBehind;
use crate::retoast::compact::rounds::Piece;
use crate::retoast::error::{Result, RetoastError};
use crate::retoast::preflight::ready::PreparedTable;
use crate::retoast::sql::compact;
use crate::retoast::sweep::machine::CHUNK;
use crate::retoast::task::guard::Guard;
use crate::retoast::task::session::Session;
use crate::server::chunks::address;
use crate::server::pages::Pages;
use crate::server::probe::Probe;
use crate::server::{LiveResult, functions};
use toast_format::codec::Method;
use toast_format::disk::tuple::infomask;
use toast_format::disk::varlena::VARLENA_HEADER_SIZE;
use toast_format::disk::{BlockNumber, Datum, HeapTuple, ItemPointer, Oid, Storage, Varlena, Walk};
use toast_format::fill::lengths::{Growth, Limits, RowLength, length};
use toast_format::fill::packing::{Sample, chunks_of};
use toast_format::fill::room::{Room, taken};
use toast_format::heap::scan::each_tuple;
use toast_format::model::pages::CHUNK_OVERHEAD;
use toast_format::model::{TupleTarget, Visibility};

/// What happens to a value's form when it is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FormAfterMove {
    /// The column's settings determine the form that it already has.
    BySetting,
    /// It must be passed to its column as stored.
    ByCopy,
    /// It is uncompressed, and its column will try to compress it again.
    TriedAgain,
}

/// Determines this from the column's settings and the value's compression method, `None` if it is not compressed.
fn form_after_move(storage: Storage, of_column: Method, method: Option<Method>) -> FormAfterMove {
    let compresses = storage.compresses();
    match method {
        None if compresses => FormAfterMove::TriedAgain,
        None => FormAfterMove::BySetting,
        Some(method) if compresses && method == of_column => FormAfterMove::BySetting,
        Some(_) => FormAfterMove::ByCopy,
    }
}

/// The facts about an external value.
struct ExternalValue {
    column: usize,
    dropped: bool,
    number: u32,
    method: Option<Method>,
    /// Bytes stored in the TOAST relation, and the number of chunks.
    stored: u64,
    chunks: u64,
    /// Bytes decompressed or as stored, whichever is more.
    bytes: u64,
}

/// Finds rows of a table.
#[derive(Clone, Copy)]
pub(super) struct TableRows<'a>(pub(super) Guard<'a>);

impl TableRows<'_> {
    /// Enters the rows to which these values belong, by the last block of each.
    pub(super) async fn owners(
        &self,
        toast: Oid,
        behind: &HashMap<u32, u32>,
        found: &mut PiecesBehind,
    ) -> Result<()> {
        if behind.is_empty() {
            return Ok(());
        }
        let PreparedTable { relation, targets, .. } = self.0.ready;
        let blocks = self.0.blocks(relation.oid).await?;
        for some in ranges(0..blocks, CHUNK) {
            if self.0.session.pages.is_some() {
                let pages = self.heap_pages(&some).await?;
                each_row(&pages, |ctid, tuple, length| {
                    if tuple.infomask & infomask::HASEXTERNAL != 0 {
                        self.enter(ctid, length, &self.values_of(tuple, toast), behind, found);
                    }
                });
            } else {
                let sql = compact::owners(&relation.quoted(), targets, &some);
                for row in self.0.read(&sql).await? {
                    let (ctid, values) = self.values_by_functions(&row)?;
                    self.enter(ctid, 0, &values, behind, found);
                }
            }
        }
        Ok(())
    }

    /// Enters a row with these external values.
    fn enter(
        &self,
        ctid: ItemPointer,
        width: u16,
        values: &[ExternalValue],
        behind: &HashMap<u32, u32>,
        found: &mut PiecesBehind,
    ) {
        let PreparedTable { relation, targets, .. } = self.0.ready;
        let versions = u64::from(width);
        let mut row = Piece { ctid, rows: 1, versions, ..Piece::default() };
        for value in values {
            let Some(&block) = behind.get(&value.number) else { continue };
            found.without_row = found.without_row.saturating_sub(1);
            let place = targets.iter().position(|target| target.index == value.column);
            let target = place.and_then(|place| targets.get(place));
            let column = relation.desc.attributes.get(value.column);
            if let (Some(target), Some(column)) = (target, column) {
                match form_after_move(column.storage, target.method, value.method) {
                    FormAfterMove::BySetting => {}
                    // generated values are computed, so they cannot be passed as stored
                    FormAfterMove::ByCopy if target.base.is_some() => found.by_setting += 1,
                    FormAfterMove::ByCopy => row.by_copy = true,
                    FormAfterMove::TriedAgain => found.by_setting += 1,
                }
                row.columns.extend(place.and_then(|place| u16::try_from(place).ok()));
            } else if !value.dropped {
                found.fixed += 1;
                continue;
            }
            row.last_block = row.last_block.max(block);
            row.bytes += value.bytes;
            row.stored += value.stored;
            row.tuples += value.chunks;
        }
        if row.tuples > 0 {
            found.pieces.push(row);
        }
    }

    /// How full the table is.
    pub(super) async fn room(&self) -> Result<Room> {
        let blocks = self.0.blocks(self.0.ready.relation.oid).await?;
        let page = self.0.session.server.page_size;
        let relation = &self.0.ready.relation;
        let fillfactor = u32::from(relation.fillfactor());
        let mut rows = RowLengths::new(Room::new(page, blocks, fillfactor));
        let mut at_least = RowLengths::new(Room::new(page, blocks, fillfactor));
        let growth = Growth::new(&relation.desc, page, relation.tuple_target(page));
        let mut is_exact = true;
        for some in ranges(0..blocks, CHUNK) {
            match self.0.session.pages {
                Some(_) => {
                    let pages = self.heap_pages(&some).await?;
                    each_row(&pages, |ctid, tuple, length| {
                        let length = usize::from(length);
                        rows.add(ctid, taken(length), growth.taken(tuple, length));
                    });
                }
                None => {
                    for (ctid, length) in self.rows_by_functions(&some).await? {
                        let RowLength { least, least_moved, likely } = length;
                        rows.add(ctid, taken(likely), taken(likely));
                        at_least.add(ctid, taken(least), taken(least_moved));
                        is_exact &= taken(least) == taken(likely);
                    }
                }
            }
        }
        let mut room = rows.room();
        if !is_exact {
            room.or_at_least(at_least.room());
        }
        Ok(room)
    }

    async fn heap_pages(&self, blocks: &Range<u32>) -> Result<Pages> {
        let Session { connections, server, .. } = self.0.session;
        self.0
            .read_by(async |moment| {
                let quoted = self.0.ready.relation.quoted();
                let mut reader =
                    server.page_reader(&connections.reader, quoted, &moment.snapshot).await?;
                // the table may have been truncated in the meantime
                let end = blocks.end.min(reader.block_count().await?);
                let list: Vec<BlockNumber> = (blocks.start..end).map(BlockNumber).collect();
                reader.read(&list).await
            })
            .await
    }

    /// A tuple's values in this TOAST relation.
    fn values_of(&self, tuple: &HeapTuple<'_>, toast: Oid) -> Vec<ExternalValue> {
        let mut values = Vec::new();
        let walk = Walk::new(tuple, &self.0.ready.relation.desc);
        for (column, walked) in walk.enumerate() {
            // unreadable values are left to `check`; their chunks count as having no row
            let Ok((attribute, Datum::Varlena(Varlena::External(pointer)))) = walked else {
                continue;
            };
            // value IDs of relations that are compacted are OIDs
            let number = u32::try_from(pointer.value_id.0).ok();
            if let Some(number) = number
                && pointer.toast_relation == toast
            {
                let stored = u64::from(pointer.stored_size());
                values.push(ExternalValue {
                    column,
                    dropped: attribute.dropped,
                    number,
                    method: pointer.method(),
                    stored,
                    chunks: stored.div_ceil(u64::from(
                        self.0.session.server.page_size.toast_max_chunk_size(),
                    )),
                    bytes: stored.max(u64::from(pointer.raw_size())),
                });
            }
        }
        values
    }

    fn values_by_functions(
        &self,
        row: &tokio_postgres::Row,
    ) -> LiveResult<(ItemPointer, Vec<ExternalValue>)> {
        let numbers: Vec<Option<u32>> = row.try_get(1)?;
        let methods: Vec<Option<&str>> = row.try_get(2)?;
        let answers = self.0.ready.targets.iter().zip(numbers.into_iter().zip(methods));
        let chunk = u64::from(self.0.session.server.page_size.toast_max_chunk_size());
        let mut values = Vec::new();
        for (target, (number, method)) in answers {
            let Some(number) = number else { continue };
            values.push(ExternalValue {
                column: target.index,
                dropped: false,
                number,
                method: method.and_then(Method::from_name),
                stored: chunk,
                chunks: 1,
                bytes: chunk,
            });
        }
        Ok((address(row.try_get(0)?)?, values))
    }

    /// The rows in these blocks, each with its length as far as it can be determined by functions.
    async fn rows_by_functions(
        &self,
        blocks: &Range<u32>,
    ) -> Result<Vec<(ItemPointer, RowLength)>> {
        let relation = &self.0.ready.relation;
        let page = self.0.session.server.page_size;
        let has_chunks = match &relation.toast {
            Some(toast) => self.0.blocks(toast.oid).await? > 0,
            None => false,
        };
        let probe = Probe::new(self.0.session.server, relation);
        let probe = if has_chunks { probe } else { probe.in_rows() };
        let asked = probe.columns();
        let rows = self
            .0
            .read_by(async |_| {
                functions::rows(self.0.session.reader().client(), &probe, &asked, blocks).await
            })
            .await?;
        let limits = Limits {
            threshold: page.toast_tuple_threshold(),
            target: relation.tuple_target(page).unwrap_or(TupleTarget::default_for(page)).bytes(),
        };
        let columns = &relation.desc.attributes;
        let lengths = rows.iter().map(|row| {
            let mut values = row.values.iter();
            let answers =
                columns.iter().map(|column| if column.dropped { None } else { values.next() });
            (row.ctid, length(columns, answers, limits))
        });
        let mut lengths: Vec<(ItemPointer, RowLength)> = lengths.collect();
        lengths.sort_unstable_by_key(|(ctid, _)| (ctid.block.0, ctid.item));
        Ok(lengths)
    }
}

/// Collects the lengths of a table's rows.
struct RowLengths {
    room: Room,
    sample: Sample,
    /// The current block, with the bytes that its rows occupy, and by how much updates will lengthen them.
    now: Option<(u32, u32, u32)>,
}

impl RowLengths {
    fn new(room: Room) -> RowLengths {
        RowLengths { room, sample: Sample::default(), now: None }
    }

    /// Adds a row; the rows of a block must follow one another. `moved` is what the row will occupy after an update.
    fn add(&mut self, ctid: ItemPointer, taken: u32, moved: u32) {
        let block = ctid.block.0;
        self.sample.add(block, [moved]);
        let longer = moved.saturating_sub(taken);
        match &mut self.now {
            Some((now, sum, more)) if *now == block => {
                *sum = sum.saturating_add(taken);
                *more = more.saturating_add(longer);
            }
            _ => {
                self.end_block();
                self.now = Some((block, taken, longer));
            }
        }
    }

    fn end_block(&mut self) {
        if let Some((block, taken, longer)) = self.now.take() {
            self.room.set(block, taken);
            self.room.grow(block, longer);
        }
    }

    fn room(mut self) -> Room {
        self.end_block();
        self.room.holds(self.sample);
        self.room
    }
}

fn each_row(pages: &Pages, mut take: impl FnMut(ItemPointer, &HeapTuple<'_>, u16)) {
    for (block, bytes) in pages.iter() {
        each_tuple(block, bytes, pages, |ctid, tuple, length, seen| {
            if seen != Visibility::Dead {
                take(ctid, tuple, length);
            }
        });
    }
}

/// A row at `row` with chunks up to this block.
#[cfg(test)]
pub(super) fn row_to_move(block: u32, row: (u32, u16)) -> Piece {
    let ctid = ItemPointer { block: BlockNumber(row.0), item: row.1 };
    Piece {
        ctid,
        rows: 1,
        last_block: block,
        columns: vec![0],
        bytes: 2_000,
        stored: 2_000,
        tuples: 2,
        versions: 60,
        ..Piece::default()
    }
}

/// The number of blocks that one statement covers.
pub(super) const SOME: u32 = 4096;
/// The number of places in the file at which the sizes of values are sampled.
const SAMPLES: u32 = 16;

/// Divides these blocks into ranges of at most `of` blocks, in order.
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

/// Disjoint ranges around these blocks, given in ascending order, of a relation of `of` blocks.
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

pub(super) fn unsigned(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// How full the TOAST relation is.
pub(super) async fn toast_room(guard: &Guard<'_>, toast: Oid, name: &str) -> Result<Room> {
    let blocks = guard.blocks(toast).await?;
    let page = guard.session.server.page_size;
    let mut room = Room::new(page, blocks, 100);
    for some in ranges(0..blocks, SOME) {
        let sql = compact::chunks(name, &some);
        let mut found: HashMap<u32, u32> = HashMap::new();
        for row in guard.read(&sql).await? {
            let block: i64 = row.try_get(0)?;
            let size: i32 = row.try_get(1)?;
            let count: i64 = row.try_get(2)?;
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
        for row in guard.read(&compact::values(name, &some, None)).await? {
            let value: u32 = row.try_get(0)?;
            let block: i64 = row.try_get(1)?;
            let bytes: i64 = row.try_get(3)?;
            sizes.push((value, unsigned(block), u64::try_from(bytes).unwrap_or(0)));
        }
    }
    sizes.sort_unstable();
    let mut sample = Sample::default();
    for (_, block, bytes) in sizes {
        sample.add(block, chunks_of(page, bytes));
    }
    room.holds(sample);
    Ok(room)
}

/// The next transaction ID when this was first called.
pub(super) async fn first_look(guard: &Guard<'_>, since: &mut Option<String>) -> Result<String> {
    if let Some(since) = since {
        return Ok(since.clone());
    }
    let rows = guard.read(compact::NEXT_TRANSACTION).await?;
    let next: String = rows.first().ok_or(RetoastError::StopRequested)?.try_get(0)?;
    Ok(since.insert(next).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_keeps_its_form_by_its_columns_settings_or_by_a_copy() {
        use Method::{Lz4, Pglz};
        let of = |storage, method| form_after_move(storage, Pglz, method);
        assert_eq!(of(Storage::Extended, Some(Pglz)), FormAfterMove::BySetting);
        assert_eq!(of(Storage::Extended, Some(Lz4)), FormAfterMove::ByCopy);
        assert_eq!(of(Storage::External, Some(Pglz)), FormAfterMove::ByCopy);
        assert_eq!(of(Storage::External, None), FormAfterMove::BySetting);
        assert_eq!(of(Storage::Main, None), FormAfterMove::TriedAgain);
    }
}

#[cfg(test)]
mod chunks_tests {
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
