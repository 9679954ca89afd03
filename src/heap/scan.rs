//! The walk over a page, and from tuples to values: one place for all sources (pure).

use super::problem::{Place, Problem, Problems};
use super::stats::RelationStats;
use crate::disk::custom::{CustomFlavor, CustomPointer};
use crate::disk::desc::{Attribute, Length, TupleDesc};
use crate::disk::layout::{PAGE_HEADER_SIZE, PageSize};
use crate::disk::page::{LinePointerState, Page, PageState};
use crate::disk::tuple::HeapTuple;
use crate::disk::varlena::Varlena;
use crate::disk::walk::{Datum, Walk};
use crate::disk::{BlockNumber, ByteOrder, ItemPointer};
use crate::model::stored::StoredValue;
use crate::model::toaster::catalog::Toasters;
use crate::model::toaster::describe::describe;
use crate::model::visibility::Visibility;

/// A value as it is met.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The tuple's address. The block is 0 where the source does not tell.
    pub ctid: ItemPointer,
    /// The column's index from 0, dropped ones counted.
    pub index: usize,
    pub column: &'a Attribute,
    pub datum: Datum<'a>,
    /// Its form and sizes.
    pub stored: StoredValue,
    /// The byte order of its page.
    pub order: ByteOrder,
}

/// Takes values one by one. Values of dropped columns and of tuples that are not visible are not
/// given.
pub trait ValueSink {
    /// Whether [`ValueSink::value`] does anything at all.
    const WANTS_VALUES: bool = true;

    fn value(&mut self, seen: &Seen<'_>);

    /// Takes a tuple of so many bytes (`lp_len`) before its values, dead or not, where whole pages are scanned.
    fn tuple(&mut self, _at: ItemPointer, _tuple: &HeapTuple<'_>, _length: u16, _seen: Visibility) {
    }
}

impl ValueSink for () {
    const WANTS_VALUES: bool = false;

    fn value(&mut self, _seen: &Seen<'_>) {}
}

/// One after the other.
impl<A: ValueSink, B: ValueSink> ValueSink for (&mut A, &mut B) {
    const WANTS_VALUES: bool = A::WANTS_VALUES || B::WANTS_VALUES;

    fn value(&mut self, seen: &Seen<'_>) {
        self.0.value(seen);
        self.1.value(seen);
    }

    fn tuple(&mut self, at: ItemPointer, tuple: &HeapTuple<'_>, length: u16, seen: Visibility) {
        self.0.tuple(at, tuple, length, seen);
        self.1.tuple(at, tuple, length, seen);
    }
}

/// Decides which tuple versions count.
pub trait Judge {
    /// Whether the tuple at `ctid` is visible.
    fn judge(&self, ctid: ItemPointer, tuple: &HeapTuple<'_>) -> Visibility;

    /// Whether every tuple of the page is known to be visible without a look at it.
    fn sees_all_of(&self, _page: &Page<'_>) -> bool {
        false
    }
}

/// The tuples of a block that can be read, each with its address, its length, and whether it is visible.
pub(crate) fn judged<'p>(
    block: BlockNumber,
    bytes: &'p [u8],
    judge: &impl Judge,
    mut take: impl FnMut(ItemPointer, &HeapTuple<'p>, u16, Visibility),
) {
    let Ok(PageState::Used(page)) = Page::parse(bytes) else { return };
    let all_visible = judge.sees_all_of(&page);
    for (ctid, item) in items(block, &page) {
        let Item::Tuple(tuple, length) = item else { continue };
        let seen = if all_visible { Visibility::Live } else { judge.judge(ctid, &tuple) };
        take(ctid, &tuple, length, seen);
    }
}

/// What a scan knows of the relation.
#[derive(Debug, Clone, Copy)]
pub struct Relation<'a> {
    /// Name for places of problems.
    pub source: &'a str,
    pub desc: &'a TupleDesc,
    /// The relation's page size.
    pub page_size: PageSize,
    /// The layout of custom pointers.
    pub flavor: CustomFlavor,
}

impl<'a> Relation<'a> {
    fn place(&self, block: BlockNumber) -> Place {
        Place { block: Some(block), ..Place::of(self.source) }
    }

    /// Reads a page's tuples into `stats` and gives every visible value to `sink`.
    pub fn scan_page<S: ValueSink>(
        &self,
        block: BlockNumber,
        bytes: &[u8],
        judge: &impl Judge,
        stats: &mut RelationStats,
        sink: &mut S,
        problems: &mut Problems,
    ) {
        stats.tuples.blocks += 1;
        let page = match Page::parse(bytes) {
            Ok(PageState::Used(page)) => page,
            Ok(PageState::New) => {
                stats.tuples.new_blocks += 1;
                stats.tuples.free_bytes += (bytes.len() - PAGE_HEADER_SIZE) as u64;
                return;
            }
            Err(error) => {
                problems.add(Problem { place: self.place(block), message: error.to_string() });
                return;
            }
        };
        stats.tuples.free_bytes += page.free_space() as u64;
        let all_visible = judge.sees_all_of(&page);
        for (ctid, item) in items(block, &page) {
            match item {
                Item::Unused => stats.tuples.line_pointers_unused += 1,
                Item::Redirect => stats.tuples.line_pointers_redirect += 1,
                Item::Dead => stats.tuples.line_pointers_dead += 1,
                Item::Tuple(tuple, length) => {
                    let seen =
                        if all_visible { Visibility::Live } else { judge.judge(ctid, &tuple) };
                    sink.tuple(ctid, &tuple, length, seen);
                    self.scan_tuple(ctid, &tuple, seen, stats, sink, problems);
                }
                Item::Damaged(message) => problems.add(Problem {
                    place: Place { item: Some(ctid.item), ..self.place(block) },
                    message,
                }),
            }
        }
    }

    /// Counts a tuple and, unless it is dead, its values.
    pub fn scan_tuple<S: ValueSink>(
        &self,
        ctid: ItemPointer,
        tuple: &HeapTuple<'_>,
        visibility: Visibility,
        stats: &mut RelationStats,
        sink: &mut S,
        problems: &mut Problems,
    ) {
        stats.tuples.hot_updated += u64::from(tuple.hot_updated());
        stats.tuples.heap_only += u64::from(tuple.heap_only());
        if !count_tuple(visibility, stats) {
            return;
        }
        let mut walk = Walk::with_flavor(tuple, self.desc, self.flavor);
        loop {
            if !S::WANTS_VALUES {
                let before = walk.index();
                let attributes = self.desc.attributes.get(before..).unwrap_or_default();
                let columns = stats.columns.get_mut(before..).unwrap_or_default();
                for (column, column_stats) in attributes.iter().zip(columns) {
                    match walk.step_simple() {
                        Some(_) if column.dropped => {}
                        Some(simple) => column_stats.add_simple(simple),
                        None => break,
                    }
                }
            }
            let index = walk.index();
            let Some(walked) = walk.next() else { return };
            let (column, datum) = match walked {
                Ok(walked) => walked,
                Err(error) => {
                    let column = self.desc.attributes.get(error.index);
                    problems.add(Problem {
                        place: Place {
                            item: Some(ctid.item),
                            column: column.map(|c| c.name.clone()),
                            byte: Some(error.byte),
                            ..self.place(ctid.block)
                        },
                        message: error.to_string(),
                    });
                    return;
                }
            };
            if column.dropped {
                continue;
            }
            if let Datum::Varlena(Varlena::Custom(pointer)) = &datum {
                let place = self.value_place(ctid, column);
                problems.add_some(custom_damage(pointer, self.page_size, place));
            }
            self.count_value(ctid, index, column, datum, tuple.order, stats, sink);
        }
    }

    /// Counts the values of a tuple that was split into attributes, as `tuple_data_split` does.
    /// `natts` is the tuple's number of attributes, if known: those behind are missing, not NULL.
    pub fn scan_attributes<S: ValueSink>(
        &self,
        split: &SplitTuple<'_>,
        visibility: Visibility,
        stats: &mut RelationStats,
        sink: &mut S,
        problems: &mut Problems,
    ) {
        if !count_tuple(visibility, stats) {
            return;
        }
        let place = |column: Option<&Attribute>| Place {
            item: Some(split.ctid.item).filter(|&item| item > 0),
            column: column.map(|column| column.name.clone()),
            ..self.place(split.ctid.block)
        };
        if split.attributes.len() != self.desc.attributes.len() {
            problems.add(Problem {
                place: place(None),
                message: format!(
                    "{} attributes are given, but {} columns",
                    split.attributes.len(),
                    self.desc.attributes.len()
                ),
            });
            return;
        }
        for (index, (column, bytes)) in
            self.desc.attributes.iter().zip(split.attributes).enumerate()
        {
            let behind = split.natts.is_some_and(|natts| index >= natts);
            let datum = match bytes {
                None if behind && column.missing.is_some() => Ok(Datum::Missing),
                None => Ok(Datum::Null),
                Some(bytes) => whole_datum(bytes, column, split.order),
            };
            match datum {
                Ok(_) if column.dropped => {}
                Ok(datum) => {
                    if let Datum::Varlena(Varlena::Custom(pointer)) = &datum {
                        let place = place(Some(column));
                        problems.add_some(custom_damage(pointer, self.page_size, place));
                    }
                    self.count_value(split.ctid, index, column, datum, split.order, stats, sink);
                }
                Err(message) => problems.add(Problem { place: place(Some(column)), message }),
            }
        }
    }

    fn value_place(&self, ctid: ItemPointer, column: &Attribute) -> Place {
        Place { item: Some(ctid.item), column: Some(column.name.clone()), ..self.place(ctid.block) }
    }

    #[inline]
    #[allow(clippy::too_many_arguments)]
    fn count_value<S: ValueSink>(
        &self,
        ctid: ItemPointer,
        index: usize,
        column: &Attribute,
        datum: Datum<'_>,
        order: ByteOrder,
        stats: &mut RelationStats,
        sink: &mut S,
    ) {
        let stored = || StoredValue::of(&datum, column, self.page_size);
        if let Some(column_stats) = stats.columns.get_mut(index) {
            column_stats.add_datum(&datum, stored);
        }
        if S::WANTS_VALUES {
            sink.value(&Seen { ctid, index, column, datum, stored: stored(), order });
        }
    }
}

/// What is wrong with a custom pointer whose toaster is known but which is not as that one writes.
fn custom_damage(pointer: &CustomPointer<'_>, page: PageSize, place: Place) -> Option<Problem> {
    let error = describe(pointer, &Toasters::by_bytes(), page).err()?;
    Some(Problem { place, message: error.to_string() })
}

/// A tuple whose attributes stand apart.
#[derive(Debug, Clone, Copy)]
pub struct SplitTuple<'a> {
    /// Its address; item 0 where that is not known.
    pub ctid: ItemPointer,
    /// Its number of attributes, if known.
    pub natts: Option<usize>,
    /// One for each column: the bytes as stored, header included.
    pub attributes: &'a [Option<Vec<u8>>],
    /// The byte order of the machine that wrote them.
    pub order: ByteOrder,
}

/// Counts a tuple; whether its values count.
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

/// The value that `bytes` hold from first to last.
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

/// What a line pointer leads to.
#[derive(Debug)]
pub(crate) enum Item<'p> {
    Unused,
    Redirect,
    Dead,
    /// A tuple of so many bytes (`lp_len`).
    Tuple(HeapTuple<'p>, u16),
    /// A tuple that cannot be read, with the reason.
    Damaged(String),
}

/// The line pointers of a page in order, with their addresses.
pub(crate) fn items<'p>(
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
    use crate::heap::stats::RelationStats;
    use crate::model::visibility::HintBits;
    use crate::offline::columns::parse_list;
    use proptest::prelude::*;

    /// Takes values and looks at their bytes.
    struct Touch(usize);

    impl ValueSink for Touch {
        fn value(&mut self, seen: &Seen<'_>) {
            if let Datum::Varlena(value) = seen.datum {
                self.0 += value.inline_content().map_or(0, <[u8]>::len);
            }
        }
    }

    /// Values of dropped columns count neither on the quick way nor on the long one.
    #[test]
    fn dropped_columns_do_not_count() {
        let desc = parse_list("a int4, e dropped(-1,c), b text").unwrap();
        let relation = Relation {
            source: "page",
            desc: &desc,
            page_size: PageSize::DEFAULT,
            flavor: CustomFlavor::Auto,
        };
        // 7, 'x', 'yz'
        let data = [7, 0, 0, 0, 0x05, b'x', 0x07, b'y', b'z'];
        let tuple = HeapTuple::of_data(&data);
        let (mut counted, mut listed) = (RelationStats::new(3), RelationStats::new(3));
        let mut problems = Problems::default();
        let (at, live) = (ItemPointer::default(), Visibility::Live);
        relation.scan_tuple(at, &tuple, live, &mut counted, &mut (), &mut problems);
        relation.scan_tuple(at, &tuple, live, &mut listed, &mut Touch(0), &mut problems);
        assert_eq!(problems.count(), 0);
        for stats in [&counted, &listed] {
            let values = |index: usize| -> u64 {
                stats.columns[index].forms().values().map(|sums| sums.values).sum()
            };
            assert_eq!([values(0), values(1), values(2)], [1, 0, 1]);
        }
    }

    proptest! {
        /// A page with a sane header and anything behind it, read with columns that are not its own.
        #[test]
        fn any_page_is_scanned_to_its_end(
            items in proptest::collection::vec((0u16..1100, any::<u16>()), 0..12),
            filling in proptest::collection::vec(
                prop_oneof![4 => Just(0u8), 2 => 1u8..40, 1 => any::<u8>()], 8000),
            flavor in prop_oneof![
                Just(CustomFlavor::Auto), Just(CustomFlavor::Bits16), Just(CustomFlavor::Bits32)],
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
            let relation =
                Relation { source: "page", desc: &desc, page_size: PageSize::DEFAULT, flavor };
            let (mut counted, mut listed) = (RelationStats::new(6), RelationStats::new(6));
            let (mut few, mut many) = (Problems::default(), Problems::default());
            let block = BlockNumber(0);
            relation.scan_page(block, &page, &HintBits, &mut counted, &mut (), &mut few);
            relation.scan_page(block, &page, &HintBits, &mut listed, &mut Touch(0), &mut many);
            // the quick way counts what the long way counts
            prop_assert_eq!(counted.tuples, listed.tuples);
            prop_assert_eq!(few, many);
            for (quick, long) in counted.columns.iter().zip(&listed.columns) {
                prop_assert_eq!(quick.forms(), long.forms());
            }
        }
    }
}
