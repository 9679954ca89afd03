//! What is found in a table and its TOAST relation: how full blocks are, which values have chunks behind a block, and
//! which rows these values belong to.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::retoast::compact::rounds::Piece;
use crate::retoast::error::RetoastError;
use crate::retoast::sql::{Target, compact};
use crate::retoast::sweep::machine::CHUNK;
use crate::retoast::task::guard::Guard;
use crate::retoast::task::session::Session;
use crate::server::chunks::{address, transaction};
use crate::server::pages::Pages;
use crate::server::probe::Probe;
use crate::server::{LiveError, functions};
use toast_format::codec::Method;
use toast_format::disk::tuple::infomask;
use toast_format::disk::varlena::VARLENA_HEADER_SIZE;
use toast_format::disk::{
    Attribute, BlockNumber, Datum, HeapTuple, ItemPointer, Oid, Storage, Varlena, Walk,
};
use toast_format::fill::lengths::{Growth, Limits, RowLength, length};
use toast_format::fill::packing::{Sample, chunks_of};
use toast_format::fill::room::{Room, taken};
use toast_format::heap::scan::each_tuple;
use toast_format::model::pages::CHUNK_OVERHEAD;
use toast_format::model::{TupleTarget, Visibility};

/// A row with values to move.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RowToMove {
    pub(super) ctid: ItemPointer,
    /// The last block of their chunks.
    pub(super) block: u32,
    /// The places of their target columns; none for values of dropped columns, which any update removes.
    pub(super) columns: Vec<u16>,
    /// Whether a value would change its form if its column stored it again, so that it must pass through a temporary
    /// table.
    pub(super) by_copy: bool,
    /// Bytes of its values, decompressed or as stored, whichever is more.
    bytes: u64,
    /// Bytes of its values as stored, and the number of their chunks.
    stored: u64,
    chunks: u64,
    width: u16,
}

impl Piece for RowToMove {
    fn key(&self) -> (u32, u16) {
        (self.ctid.block.0, self.ctid.item)
    }
    fn rows(&self) -> u64 {
        1
    }
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn stored(&self) -> u64 {
        self.stored
    }
    fn tuples(&self) -> u64 {
        self.chunks
    }
    fn versions(&self) -> u64 {
        u64::from(self.width)
    }
}

/// The rows to which values belong.
#[derive(Debug, Clone, Default)]
pub(super) struct Owners {
    pub(super) rows: Vec<RowToMove>,
    /// The number of values found, including those that cannot be moved.
    pub(super) values: u64,
    /// Values of columns that no update stores out of line again.
    pub(super) fixed: u64,
    /// Values that will take the form that their column's settings determine.
    pub(super) by_setting: u64,
}

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
    let compresses = matches!(storage, Storage::Extended | Storage::Main);
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

impl Owners {
    /// Records a row with these external values.
    fn add(
        &mut self,
        ctid: ItemPointer,
        width: u16,
        values: &[ExternalValue],
        behind: &HashMap<u32, u32>,
        targets: &[Target],
        columns: &[Attribute],
    ) {
        let mut row = RowToMove { ctid, width, ..RowToMove::default() };
        let mut moves = false;
        for value in values {
            let Some(&block) = behind.get(&value.number) else { continue };
            self.values += 1;
            let place = targets.iter().position(|target| target.index == value.column);
            if let (Some(place), Some(column)) = (place, columns.get(value.column)) {
                let target = targets.get(place);
                let method = target.map_or(Method::Pglz, |target| target.method);
                match form_after_move(column.storage, method, value.method) {
                    FormAfterMove::BySetting => {}
                    // generated values are computed, so they cannot be passed as stored
                    FormAfterMove::ByCopy if target.is_some_and(|target| target.base.is_some()) => {
                        self.by_setting += 1;
                    }
                    FormAfterMove::ByCopy => row.by_copy = true,
                    FormAfterMove::TriedAgain => self.by_setting += 1,
                }
                row.columns.extend(u16::try_from(place));
            } else if !value.dropped {
                self.fixed += 1;
                continue;
            }
            moves = true;
            row.block = row.block.max(block);
            row.bytes += value.bytes;
            row.stored += value.stored;
            row.chunks += value.chunks;
        }
        if moves {
            self.rows.push(row);
        }
    }
}

/// Finds rows of a table.
#[derive(Clone, Copy)]
pub(super) struct TableRows<'a>(pub(super) Guard<'a>);

impl TableRows<'_> {
    /// The rows to which these values belong; `None` if a stop is requested.
    pub(super) async fn owners(
        &self,
        toast: Oid,
        behind: &Behind,
    ) -> Result<Option<Owners>, RetoastError> {
        let mut owners = Owners::default();
        if behind.values.is_empty() {
            return Ok(Some(owners));
        }
        let Some(blocks) = self.0.blocks(self.0.ready.relation.oid).await? else { return Ok(None) };
        for some in ranges(0..blocks, CHUNK) {
            match self.0.session.pages {
                Some(_) => {
                    let Some(pages) = self.heap_pages(&some).await? else { return Ok(None) };
                    each_row(&pages, |ctid, tuple, length| {
                        if tuple.infomask & infomask::HASEXTERNAL != 0 {
                            let values = self.values_of(tuple, toast);
                            let (targets, columns) = self.columns();
                            owners.add(ctid, length, &values, &behind.values, targets, columns);
                        }
                    });
                }
                None => {
                    let sql = compact::owners(
                        &self.0.ready.relation.quoted(),
                        &self.0.ready.targets,
                        &some,
                    );
                    let Some(rows) = self.0.read(&sql).await? else { return Ok(None) };
                    for row in &rows {
                        let (ctid, values) = self.values_by_functions(row)?;
                        let (targets, columns) = self.columns();
                        owners.add(ctid, 0, &values, &behind.values, targets, columns);
                    }
                }
            }
        }
        Ok(Some(owners))
    }

    fn columns(&self) -> (&[Target], &[Attribute]) {
        (&self.0.ready.targets, &self.0.ready.relation.desc.attributes)
    }

    /// How full the table is; `None` if a stop is requested.
    pub(super) async fn room(&self) -> Result<Option<Room>, RetoastError> {
        let Some(blocks) = self.0.blocks(self.0.ready.relation.oid).await? else { return Ok(None) };
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
                    let Some(pages) = self.heap_pages(&some).await? else { return Ok(None) };
                    each_row(&pages, |ctid, tuple, length| {
                        let length = usize::from(length);
                        rows.add(ctid, taken(length), growth.taken(tuple, length));
                    });
                }
                None => {
                    let Some(answers) = self.rows_by_functions(&some).await? else {
                        return Ok(None);
                    };
                    for (ctid, length) in answers {
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
        Ok(Some(room))
    }

    async fn heap_pages(&self, blocks: &Range<u32>) -> Result<Option<Pages>, RetoastError> {
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
    ) -> Result<(ItemPointer, Vec<ExternalValue>), LiveError> {
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
    ) -> Result<Option<Vec<(ItemPointer, RowLength)>>, RetoastError> {
        let relation = &self.0.ready.relation;
        let page = self.0.session.server.page_size;
        let has_chunks = match &relation.toast {
            Some(toast) => match self.0.blocks(toast.oid).await? {
                Some(blocks) => blocks > 0,
                None => return Ok(None),
            },
            None => false,
        };
        let probe = Probe::new(self.0.session.server, relation);
        let probe = if has_chunks { probe } else { probe.in_rows() };
        let asked = probe.columns();
        let answers = self
            .0
            .read_by(async |_| {
                functions::rows(self.0.session.reader().client(), &probe, &asked, blocks).await
            })
            .await?;
        let Some(rows) = answers else { return Ok(None) };
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
        Ok(Some(lengths))
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
pub(super) fn row_to_move(block: u32, row: (u32, u16)) -> RowToMove {
    let ctid = ItemPointer { block: BlockNumber(row.0), item: row.1 };
    RowToMove {
        ctid,
        block,
        columns: vec![0],
        by_copy: false,
        bytes: 2_000,
        stored: 2_000,
        chunks: 2,
        width: 60,
    }
}

/// The number of blocks that one statement covers.
const SOME: u32 = 4096;
/// The maximum number of values moved in one round, because they are kept in memory.
const MOST_VALUES: usize = 2_000_000;
/// The number of places in the file at which the sizes of values are sampled.
const SAMPLES: u32 = 16;

/// Values with chunks behind the end.
#[derive(Debug, Clone, Default)]
pub(super) struct Behind {
    /// The last block of each, by the value's number in the TOAST relation.
    pub(super) values: HashMap<u32, u32>,
    /// The number of blocks up to the last one with a live chunk, or up to the end if there is none behind it.
    pub(super) last: u32,
    /// Whether these are all.
    pub(super) all: bool,
    /// How many of the values found were stored by other sessions since the work began.
    pub(super) of_others: u64,
}

/// The transactions of the compaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own<'a> {
    /// Those whose values are left out.
    pub(super) own: &'a HashSet<u32>,
    pub(super) ever: &'a HashSet<u32>,
    /// The next transaction ID at the first look: values stored from then on were not behind the end at first.
    pub(super) since: &'a str,
}

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

fn unsigned(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// How full the TOAST relation is; `None` if a stop is requested.
pub(super) async fn toast_room(
    guard: &Guard<'_>,
    toast: Oid,
    name: &str,
) -> Result<Option<Room>, RetoastError> {
    let Some(blocks) = guard.blocks(toast).await? else { return Ok(None) };
    let page = guard.session.server.page_size;
    let mut room = Room::new(page, blocks, 100);
    for some in ranges(0..blocks, SOME) {
        let sql = compact::chunks(name, &some);
        let Some(rows) = guard.read(&sql).await? else { return Ok(None) };
        let mut found: HashMap<u32, u32> = HashMap::new();
        for row in &rows {
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
        let Some(rows) = guard.read(&compact::values(name, &some, None)).await? else {
            return Ok(None);
        };
        for row in &rows {
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
    Ok(Some(room))
}

/// The values with chunks in block `end` or behind it; if there are too many, only the last ones. Values stored by
/// the transactions `all.own` are left out.
pub(super) async fn values_behind(
    guard: &Guard<'_>,
    toast: Oid,
    name: &str,
    end: u32,
    all: Own<'_>,
) -> Result<Option<Behind>, RetoastError> {
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
            let value: u32 = row.try_get(0)?;
            let block: i64 = row.try_get(1)?;
            let xmin: &str = row.try_get(2)?;
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

/// The next transaction ID when this was first called; `None` if a stop is requested.
pub(super) async fn first_look(
    guard: &Guard<'_>,
    since: &RefCell<Option<String>>,
) -> Result<Option<String>, RetoastError> {
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
