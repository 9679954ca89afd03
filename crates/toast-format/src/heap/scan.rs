//! The walk over a page, and from tuples to values, for all sources (pure).

use std::sync::Arc;

use super::blocks::BlockSums;
use super::problem::{Place, Problem, Problems};
use super::stats::RelationStats;
use crate::disk::layout::PAGE_HEADER_SIZE;
use crate::disk::page::LinePointerState;
use crate::disk::{
    Attribute, BlockNumber, ByteOrder, CustomFlavor, Datum, HeapTuple, ItemPointer, Length, Page,
    PageSize, PageState, TupleDesc, Varlena, Walk,
};
use crate::model::toaster::describe::describe;
use crate::model::visibility::{Transactions, visibility};
use crate::model::{HintBits, StoredValue, Toasters, Visibility};

/// A value found in a tuple.
#[derive(Debug, Clone, Copy)]
pub struct TupleValue<'a> {
    /// The address of its tuple.
    pub ctid: ItemPointer,
    /// Whether the source knows the block, which is 0 otherwise.
    pub block_known: bool,
    /// The column's index from 0, including dropped columns.
    pub index: usize,
    /// The column of the value.
    pub column: &'a Attribute,
    /// The value, borrowed from the tuple.
    pub datum: Datum<'a>,
    /// Its form and sizes.
    pub stored: StoredValue,
    /// The byte order of its page.
    pub order: ByteOrder,
}

/// Receives what is read from a relation, from any source: pages and problems from sources, tuples and values from a
/// [`Scan`].
pub trait Visitor {
    /// Whether [`Visitor::value`] does anything.
    const WANTS_VALUES: bool;

    /// Receives a page before its tuples.
    fn page(&mut self, _block: BlockNumber, _bytes: &[u8], _visible: &impl Visible) {}

    /// Receives something that could not be read.
    fn problem(&mut self, _problem: Problem) {}

    /// Called before the tuples of a page.
    fn begin_page(&mut self, _block: BlockNumber) {}

    /// Receives a tuple, dead or not, before its values. `length` is its `lp_len` in bytes.
    fn tuple(&mut self, _at: ItemPointer, _tuple: &HeapTuple<'_>, _length: u16, _seen: Visibility) {
    }

    /// Receives a value, unless its column is dropped or virtual, or its tuple is dead.
    fn value(&mut self, _value: &TupleValue<'_>) {}

    /// Called after the tuples of a page.
    fn end_page(&mut self, _block: BlockNumber) {}

    /// Whether the results can no longer be used, so that reading can end.
    fn has_failed(&self) -> bool {
        false
    }
}

impl Visitor for () {
    const WANTS_VALUES: bool = false;
}

/// Visits only if there is a visitor.
impl<V: Visitor> Visitor for Option<V> {
    const WANTS_VALUES: bool = V::WANTS_VALUES;

    fn page(&mut self, block: BlockNumber, bytes: &[u8], visible: &impl Visible) {
        self.iter_mut().for_each(|visitor| visitor.page(block, bytes, visible));
    }

    fn begin_page(&mut self, block: BlockNumber) {
        self.iter_mut().for_each(|visitor| visitor.begin_page(block));
    }

    fn tuple(&mut self, at: ItemPointer, tuple: &HeapTuple<'_>, length: u16, seen: Visibility) {
        self.iter_mut().for_each(|visitor| visitor.tuple(at, tuple, length, seen));
    }

    fn value(&mut self, value: &TupleValue<'_>) {
        self.iter_mut().for_each(|visitor| visitor.value(value));
    }

    fn end_page(&mut self, block: BlockNumber) {
        self.iter_mut().for_each(|visitor| visitor.end_page(block));
    }

    fn has_failed(&self) -> bool {
        self.as_ref().is_some_and(V::has_failed)
    }
}

/// Both visitors, one after another.
impl<A: Visitor, B: Visitor> Visitor for (A, B) {
    const WANTS_VALUES: bool = A::WANTS_VALUES || B::WANTS_VALUES;

    fn page(&mut self, block: BlockNumber, bytes: &[u8], visible: &impl Visible) {
        self.0.page(block, bytes, visible);
        self.1.page(block, bytes, visible);
    }

    fn begin_page(&mut self, block: BlockNumber) {
        self.0.begin_page(block);
        self.1.begin_page(block);
    }

    fn tuple(&mut self, at: ItemPointer, tuple: &HeapTuple<'_>, length: u16, seen: Visibility) {
        self.0.tuple(at, tuple, length, seen);
        self.1.tuple(at, tuple, length, seen);
    }

    fn value(&mut self, value: &TupleValue<'_>) {
        self.0.value(value);
        self.1.value(value);
    }

    fn end_page(&mut self, block: BlockNumber) {
        self.0.end_page(block);
        self.1.end_page(block);
    }

    fn has_failed(&self) -> bool {
        self.0.has_failed() || self.1.has_failed()
    }
}

/// Combines the results of visitors of several parts of a relation.
pub trait Merge {
    /// Adds the results of another part.
    fn merge(&mut self, other: Self);
}

impl Merge for () {
    fn merge(&mut self, _other: ()) {}
}

impl<V: Merge> Merge for Option<V> {
    fn merge(&mut self, other: Option<V>) {
        if let (Some(ours), Some(theirs)) = (self, other) {
            ours.merge(theirs);
        }
    }
}

impl<A: Merge, B: Merge> Merge for (A, B) {
    fn merge(&mut self, other: (A, B)) {
        self.0.merge(other.0);
        self.1.merge(other.1);
    }
}

/// Determines which tuple versions are visible.
pub trait Visible {
    /// Whether the tuple at `ctid` is visible.
    fn visibility(&self, ctid: ItemPointer, tuple: &HeapTuple<'_>) -> Visibility;

    /// Whether every tuple of the page is known to be visible without examining it.
    fn sees_all_of(&self, _page: &Page<'_>) -> bool {
        false
    }
}

impl<T: Transactions> Visible for Option<&T> {
    fn visibility(&self, _ctid: ItemPointer, tuple: &HeapTuple<'_>) -> Visibility {
        visibility(tuple, self)
    }
}

impl Visible for HintBits {
    fn visibility(&self, _ctid: ItemPointer, tuple: &HeapTuple<'_>) -> Visibility {
        visibility(tuple, self)
    }
}

/// Calls `take` for each readable tuple of a block, with its address, its length, and its visibility.
pub fn each_tuple<'p>(
    block: BlockNumber,
    bytes: &'p [u8],
    visible: &impl Visible,
    mut take: impl FnMut(ItemPointer, &HeapTuple<'p>, u16, Visibility),
) {
    let Ok(PageState::Used(page)) = Page::parse(bytes) else { return };
    let all_visible = visible.sees_all_of(&page);
    for (ctid, item) in items(block, &page) {
        let Item::Tuple(tuple, length) = item else { continue };
        let seen = if all_visible { Visibility::Live } else { visible.visibility(ctid, &tuple) };
        take(ctid, &tuple, length, seen);
    }
}

/// Calls `take` for each tuple of a page that is not dead, with its length. Errors are added to `problems` for the
/// relation of this name, including those of `take`, which returns their column and byte.
pub fn live_tuples<'p>(
    relation: &str,
    block: BlockNumber,
    bytes: &'p [u8],
    visible: &impl Visible,
    problems: &mut Problems,
    mut take: impl FnMut(ItemPointer, &HeapTuple<'p>, u16) -> Result<(), Problem>,
) {
    let mut add = |item, Problem { place, message }| {
        let source = relation.to_owned();
        problems
            .add(Problem { place: Place { source, block: Some(block), item, ..place }, message });
    };
    let page = match Page::parse(bytes) {
        Ok(PageState::Used(page)) => page,
        Ok(PageState::New) => return,
        Err(error) => return add(None, Problem::without_place(error.to_string())),
    };
    let all_visible = visible.sees_all_of(&page);
    for (ctid, item) in items(block, &page) {
        let taken = match item {
            Item::Unused | Item::Redirect | Item::Dead => Ok(()),
            Item::Damaged(message) => Err(Problem::without_place(message)),
            Item::Tuple(tuple, length) => {
                if all_visible || visible.visibility(ctid, &tuple) != Visibility::Dead {
                    take(ctid, &tuple, length)
                } else {
                    Ok(())
                }
            }
        };
        if let Err(problem) = taken {
            add(Some(ctid.item), problem);
        }
    }
}

/// What a scan needs to know about the relation.
#[derive(Debug, Clone)]
pub struct ScannedRelation {
    /// The name shown in the locations of problems.
    pub source: Arc<str>,
    /// The columns of the relation.
    pub desc: Arc<TupleDesc>,
    /// The relation's page size.
    pub page_size: PageSize,
    /// The layout of custom pointers.
    pub flavor: CustomFlavor,
}

impl ScannedRelation {
    fn place(&self, block: BlockNumber) -> Place {
        Place { block: Some(block), ..Place::new(&*self.source) }
    }

    fn value_place(&self, ctid: ItemPointer, column: Option<&Attribute>) -> Place {
        Place::of_value(&*self.source, ctid, column)
    }
}

/// Counts the pages, tuples and values of a relation or a part of it, and passes them to a visitor.
#[derive(Debug, Clone)]
pub struct Scan<V> {
    /// The relation that is scanned.
    pub relation: ScannedRelation,
    /// Whether the source knows the blocks of the tuples.
    pub block_known: bool,
    /// What was counted so far.
    pub stats: RelationStats,
    /// For each column, the number of values for which SQL functions do not show whether they are out of line.
    pub unplaced: Vec<u64>,
    /// The contents of single blocks, if the blocks are a sample.
    pub blocks: Option<BlockSums>,
    /// What could not be read so far.
    pub problems: Problems,
    /// Receives the tuples and values.
    pub visitor: V,
}

impl<V> Scan<V> {
    /// A scan that has counted nothing.
    pub fn new(relation: ScannedRelation, visitor: V) -> Scan<V> {
        Scan {
            block_known: true,
            stats: RelationStats::new(relation.desc.attributes.len()),
            unplaced: vec![0; relation.desc.attributes.len()],
            blocks: None,
            problems: Problems::default(),
            relation,
            visitor,
        }
    }

    /// The same scan, over blocks that are a sample if `are` is true.
    pub fn of_sample(mut self, are: bool) -> Scan<V> {
        self.blocks = are.then(|| BlockSums::new(self.relation.desc.attributes.len()));
        self
    }

    /// The same scan with another visitor, and the previous visitor.
    pub fn with<W>(self, visitor: W) -> (Scan<W>, V) {
        let Scan { relation, block_known, stats, unplaced, blocks, problems, visitor: had } = self;
        (Scan { relation, block_known, stats, unplaced, blocks, problems, visitor }, had)
    }

    /// Counts values of a column as reported by SQL functions. `unplaced`: it is not known whether they are out of
    /// line.
    pub fn take_answer(&mut self, index: usize, value: &StoredValue, count: u64, unplaced: bool) {
        if let Some(column) = self.stats.columns.get_mut(index) {
            column.add(value, count);
        }
        if let (Some(values), true) = (self.unplaced.get_mut(index), unplaced) {
            *values += count;
        }
    }

    /// Records that all rows of a block were counted.
    pub fn end_block(&mut self) {
        if let Some(blocks) = &mut self.blocks {
            blocks.block(&self.stats);
        }
    }
}

impl<V: Visitor> Scan<V> {
    fn tuples(&mut self, block: BlockNumber, bytes: &[u8], visible: &impl Visible) {
        self.stats.tuples.blocks += 1;
        let page = match Page::parse(bytes) {
            Ok(PageState::Used(page)) => page,
            Ok(PageState::New) => {
                self.stats.tuples.new_blocks += 1;
                self.stats.tuples.free_bytes += (bytes.len() - PAGE_HEADER_SIZE) as u64;
                return;
            }
            Err(error) => {
                let place = self.relation.place(block);
                return self.problems.add(Problem { place, message: error.to_string() });
            }
        };
        self.stats.tuples.free_bytes += page.free_space() as u64;
        let all_visible = visible.sees_all_of(&page);
        let desc = Arc::clone(&self.relation.desc);
        for (ctid, item) in items(block, &page) {
            match item {
                Item::Unused => self.stats.tuples.line_pointers_unused += 1,
                Item::Redirect => self.stats.tuples.line_pointers_redirect += 1,
                Item::Dead => self.stats.tuples.line_pointers_dead += 1,
                Item::Tuple(tuple, length) => {
                    let seen = if all_visible {
                        Visibility::Live
                    } else {
                        visible.visibility(ctid, &tuple)
                    };
                    self.visitor.tuple(ctid, &tuple, length, seen);
                    self.values(&desc, ctid, &tuple, seen);
                }
                Item::Damaged(message) => {
                    let place = Place { item: Some(ctid.item), ..self.relation.place(block) };
                    self.problems.add(Problem { place, message });
                }
            }
        }
    }

    /// Counts a tuple and, unless it is dead, its values.
    pub fn take_tuple(&mut self, ctid: ItemPointer, tuple: &HeapTuple<'_>, seen: Visibility) {
        let desc = Arc::clone(&self.relation.desc);
        self.values(&desc, ctid, tuple, seen);
    }

    fn values(
        &mut self,
        desc: &TupleDesc,
        ctid: ItemPointer,
        tuple: &HeapTuple<'_>,
        seen: Visibility,
    ) {
        self.stats.tuples.hot_updated += u64::from(tuple.hot_updated());
        self.stats.tuples.heap_only += u64::from(tuple.heap_only());
        if !count_tuple(seen, &mut self.stats) {
            return;
        }
        let mut walk = Walk::with_flavor(tuple, desc, self.relation.flavor);
        loop {
            if !V::WANTS_VALUES {
                let before = walk.index();
                for column_stats in self.stats.columns.get_mut(before..).unwrap_or_default() {
                    let Some(simple) = walk.step_simple() else { break };
                    column_stats.add_simple(simple);
                }
            }
            let index = walk.index();
            let Some(walked) = walk.next() else { return };
            match walked {
                Ok((column, datum)) => self.take_value(ctid, index, column, datum, tuple.order),
                Err(error) => {
                    let column = desc.attributes.get(error.index);
                    let place = Place {
                        item: Some(ctid.item),
                        byte: Some(error.byte),
                        ..self.relation.value_place(ctid, column)
                    };
                    return self.problems.add(Problem { place, message: error.to_string() });
                }
            }
        }
    }

    /// Counts the values of a tuple that was split into attributes, as by `tuple_data_split`. `natts` is the tuple's
    /// number of attributes, if known: later attributes are missing, not NULL.
    pub fn take_attributes(&mut self, split: &SplitTuple<'_>, seen: Visibility) {
        if !count_tuple(seen, &mut self.stats) {
            return;
        }
        let desc = Arc::clone(&self.relation.desc);
        if split.attributes.len() != desc.attributes.len() {
            let place = self.relation.value_place(split.ctid, None);
            let message = format!(
                "{} attributes are given, but {} columns",
                split.attributes.len(),
                desc.attributes.len()
            );
            return self.problems.add(Problem { place, message });
        }
        for (index, (column, bytes)) in desc.attributes.iter().zip(split.attributes).enumerate() {
            let behind = split.natts.is_some_and(|natts| index >= natts);
            let datum = match bytes {
                None if behind && column.missing.is_some() => Ok(Datum::Missing),
                None => Ok(Datum::Null),
                Some(bytes) => whole_datum(bytes, column, split.order),
            };
            match datum {
                Ok(datum) => self.take_value(split.ctid, index, column, datum, split.order),
                Err(message) => {
                    let place = self.relation.value_place(split.ctid, Some(column));
                    self.problems.add(Problem { place, message });
                }
            }
        }
    }

    #[inline]
    fn take_value(
        &mut self,
        ctid: ItemPointer,
        index: usize,
        column: &Attribute,
        datum: Datum<'_>,
        order: ByteOrder,
    ) {
        let page_size = self.relation.page_size;
        if let Datum::Varlena(Varlena::Custom(pointer)) = &datum
            && let Err(error) = describe(pointer, &Toasters::by_bytes(), page_size)
        {
            // The toaster is known, but the pointer does not have its format.
            let place = self.relation.value_place(ctid, Some(column));
            self.problems.add(Problem { place, message: error.to_string() });
        }
        let stored = || StoredValue::new(&datum, column, page_size);
        if let Some(column_stats) = self.stats.columns.get_mut(index) {
            column_stats.add_datum(&datum, stored);
        }
        if V::WANTS_VALUES && column.is_stored() {
            let block_known = self.block_known;
            let stored = stored();
            let value = TupleValue { ctid, block_known, index, column, datum, stored, order };
            self.visitor.value(&value);
        }
    }
}

impl<V: Visitor> Visitor for Scan<V> {
    const WANTS_VALUES: bool = V::WANTS_VALUES;

    fn page(&mut self, block: BlockNumber, bytes: &[u8], visible: &impl Visible) {
        self.visitor.page(block, bytes, visible);
        self.visitor.begin_page(block);
        self.tuples(block, bytes, visible);
        self.visitor.end_page(block);
        self.end_block();
    }

    fn problem(&mut self, problem: Problem) {
        self.problems.add(problem);
    }

    fn has_failed(&self) -> bool {
        self.visitor.has_failed()
    }
}

/// Combines parts of a relation that were read concurrently.
impl<V: Merge> Merge for Scan<V> {
    fn merge(&mut self, other: Scan<V>) {
        self.stats.merge(&other.stats);
        self.problems.merge_beside(other.problems);
        if let (Some(ours), Some(theirs)) = (&mut self.blocks, &other.blocks) {
            ours.merge(theirs);
        }
        self.visitor.merge(other.visitor);
    }
}

/// A tuple whose attributes are separate.
#[derive(Debug, Clone, Copy)]
pub struct SplitTuple<'a> {
    /// Its address; the item is 0 if it is not known.
    pub ctid: ItemPointer,
    /// Its number of attributes, if known.
    pub natts: Option<usize>,
    /// The stored bytes of each column, including the header.
    pub attributes: &'a [Option<Vec<u8>>],
    /// The byte order of the machine that wrote them.
    pub order: ByteOrder,
}

/// Counts a tuple; returns whether its values are counted too.
fn count_tuple(visibility: Visibility, stats: &mut RelationStats) -> bool {
    match visibility {
        Visibility::Live => stats.tuples.live += 1,
        Visibility::Unknown { .. } => stats.tuples.unknown += 1,
        Visibility::Dead => {
            stats.tuples.dead += 1;
            return false;
        }
    }
    true
}

/// The value that occupies all of `bytes`.
fn whole_datum<'a>(
    bytes: &'a [u8],
    column: &Attribute,
    order: ByteOrder,
) -> Result<Datum<'a>, String> {
    match column.length {
        Length::Fixed(n) if bytes.len() == usize::from(n) => Ok(Datum::Fixed(bytes)),
        Length::Fixed(n) => Err(format!("{} bytes, but values of the type have {n}", bytes.len())),
        Length::CString => Ok(Datum::CString(bytes.strip_suffix(&[0]).unwrap_or(bytes))),
        Length::Varlena => match Varlena::parse(bytes, order) {
            Ok((value, used)) if used == bytes.len() => Ok(Datum::Varlena(value)),
            Ok((_, used)) => Err(format!("varlena of {used} bytes in {} bytes", bytes.len())),
            Err(error) => Err(error.to_string()),
        },
    }
}

/// What a line pointer refers to.
#[derive(Debug)]
pub enum Item<'p> {
    /// A line pointer without a tuple (`LP_UNUSED`).
    Unused,
    /// A line pointer to another one of the page (`LP_REDIRECT`).
    Redirect,
    /// A line pointer whose tuple was removed (`LP_DEAD`).
    Dead,
    /// A tuple, with its `lp_len` in bytes.
    Tuple(HeapTuple<'p>, u16),
    /// A tuple that cannot be read, with the reason.
    Damaged(String),
}

/// The line pointers of a page in order, with their addresses.
pub fn items<'p>(
    block: BlockNumber,
    page: &Page<'p>,
) -> impl Iterator<Item = (ItemPointer, Item<'p>)> {
    page.line_pointers().map(move |(item, pointer)| {
        let found = match pointer.state {
            LinePointerState::Unused => Item::Unused,
            LinePointerState::Redirect => Item::Redirect,
            LinePointerState::Dead => Item::Dead,
            LinePointerState::Normal => {
                let tuple = page.tuple_bytes(pointer).map_err(|e| e.to_string());
                let parsed = tuple.and_then(|bytes| {
                    HeapTuple::parse(bytes, page.byte_order()).map_err(|e| e.to_string())
                });
                match parsed {
                    Ok(tuple) => Item::Tuple(tuple, pointer.length),
                    Err(message) => Item::Damaged(message),
                }
            }
        };
        (ItemPointer { block, item }, found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::columns::parse_list;
    use proptest::prelude::*;

    /// Receives values and reads their bytes.
    struct Touch(usize);

    impl Visitor for Touch {
        const WANTS_VALUES: bool = true;

        fn value(&mut self, value: &TupleValue<'_>) {
            if let Datum::Varlena(value) = value.datum {
                self.0 += value.inline_content().map_or(0, <[u8]>::len);
            }
        }
    }

    fn relation(desc: TupleDesc, flavor: CustomFlavor) -> ScannedRelation {
        let page_size = PageSize::DEFAULT;
        ScannedRelation { source: "page".into(), desc: Arc::new(desc), page_size, flavor }
    }

    /// Values of dropped columns take space and are counted, without a visitor for values and with one.
    #[test]
    fn values_of_dropped_columns_count() {
        let desc = parse_list("a int4, e dropped(-1,c), b text").unwrap();
        let relation = relation(desc, CustomFlavor::Auto);
        // The values are 7, 'x' and 'yz'.
        let data = [7, 0, 0, 0, 0x05, b'x', 0x07, b'y', b'z'];
        let tuple = HeapTuple::of_data(&data);
        let mut counted = Scan::new(relation.clone(), ());
        let mut listed = Scan::new(relation, Touch(0));
        let at = ItemPointer::default();
        let live = Visibility::Live;
        counted.take_tuple(at, &tuple, live);
        listed.take_tuple(at, &tuple, live);
        assert_eq!(counted.problems.count() + listed.problems.count(), 0);
        for stats in [&counted.stats, &listed.stats] {
            let values = |index: usize| -> u64 {
                stats.columns[index].forms().values().map(|sums| sums.values).sum()
            };
            assert_eq!([values(0), values(1), values(2)], [1, 1, 1]);
        }
    }

    proptest! {
        /// A page with a valid header and arbitrary contents, read with columns that do not belong to it.
        #[test]
        fn any_page_is_scanned_to_its_end(
            items in proptest::collection::vec((0u16..1100, any::<u16>()), 0..12),
            filling in proptest::collection::vec(
                prop_oneof![4 => Just(0u8), 2 => 1u8..40, 1 => any::<u8>()], 8000),
            flavor in prop::sample::select(CustomFlavor::ALL.to_vec()),
        ) {
            let mut page = vec![0u8; 8192];
            page[192..].copy_from_slice(&filling);
            let lower = 24 + 4 * items.len() as u16;
            page[12..14].copy_from_slice(&lower.to_le_bytes());
            page[14..20].copy_from_slice(&[192, 0, 0, 32, 4, 32]);
            for (number, (place, length)) in items.iter().enumerate() {
                let word = u32::from(place * 8) | 1 << 15 | u32::from(*length) << 17;
                page[24 + 4 * number..28 + 4 * number].copy_from_slice(&word.to_le_bytes());
            }
            let desc = parse_list("a int4, b text, c name, d int8[], e dropped(-1,c), f text").unwrap();
            let relation = relation(desc, flavor);
            let mut counted = Scan::new(relation.clone(), ());
            let mut listed = Scan::new(relation, Touch(0));
            counted.page(BlockNumber(0), &page, &HintBits);
            listed.page(BlockNumber(0), &page, &HintBits);
            // Counting without a visitor for values gives the same results as with one.
            prop_assert_eq!(counted.stats.tuples, listed.stats.tuples);
            prop_assert_eq!(counted.problems, listed.problems);
            for (quick, long) in counted.stats.columns.iter().zip(&listed.stats.columns) {
                prop_assert_eq!(quick.forms(), long.forms());
            }
        }
    }
}
