//! The lengths of rows (pure): as stored, determined by functions on their values, and after an update, which adds
//! the defaults of columns that are younger than the row.
//!
//! Functions do not show which values are external (before PostgreSQL 17), what dropped columns contain, and whether
//! a row is older than a column. There is therefore a likely length and a minimum, and the free space is known only
//! if the two are equal.

use super::room::taken;
use crate::disk::layout::TUPLE_HEADER_SIZE;
use crate::disk::pointer::TOAST_POINTER_SIZE;
use crate::disk::{Attribute, HeapTuple, Length, PageSize, Storage, TupleDesc, max_align};
use crate::model::TupleTarget;
use crate::model::stored::{FunctionAnswer, Placement};

/// The maximum length of a varlena that may have a header of 1 byte, which is not aligned.
const LONGEST_SHORT: usize = crate::model::stored::LONGEST_SHORT as usize;

/// The limits that determine when values leave a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longer rows are shortened.
    pub threshold: usize,
    /// The length to which they are shortened, if possible.
    pub target: usize,
}

/// The length of a row, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowLength {
    /// The minimum: without anything that is not known to be in the row.
    pub least: usize,
    /// The minimum after an update, with the defaults of columns that may be younger than the row.
    pub least_moved: usize,
    /// The length as stored, as far as it is known.
    pub likely: usize,
}

/// A value, as far as it occupies space in the row.
#[derive(Debug, Clone, Copy)]
struct ColumnValue<'a> {
    column: &'a Attribute,
    bytes: usize,
    is_compressed: bool,
    placement: Placement,
    may_be_missing: bool,
}

impl<'a> ColumnValue<'a> {
    /// `None` for NULL, and for columns that are in no row.
    fn new(column: &'a Attribute, answer: Option<&FunctionAnswer>) -> Option<ColumnValue<'a>> {
        let answer = answer?;
        let stored = answer.value.stored_size?;
        let may_be_missing = answer.placement != Placement::OutOfLine
            && column.missing.as_ref().is_some_and(|missing| {
                missing.stored_size.is_none_or(|size| u64::from(size) == stored)
            });
        Some(ColumnValue {
            column,
            bytes: usize::try_from(stored).unwrap_or(usize::MAX),
            is_compressed: answer.value.method.is_some(),
            placement: answer.placement,
            may_be_missing,
        })
    }

    /// The length of the row's data including this value, if it is `offset` without it.
    fn end(&self, offset: usize, placement: Placement, is_least: bool) -> usize {
        if placement == Placement::OutOfLine {
            return offset.saturating_add(TOAST_POINTER_SIZE);
        }
        let is_short = self.column.length == Length::Varlena
            && !self.is_compressed
            && self.bytes <= LONGEST_SHORT
            && (is_least || self.column.storage != Storage::Plain);
        let begin = if is_short { offset } else { self.column.align.align(offset) };
        begin.saturating_add(self.bytes)
    }
}

/// The length of a row. `answers` has the answer for each of the columns, in their order; `None` for dropped columns.
pub fn length<'a>(
    columns: &'a [Attribute],
    answers: impl Iterator<Item = Option<&'a FunctionAnswer>>,
    limits: Limits,
) -> RowLength {
    let values: Vec<Option<ColumnValue<'_>>> = columns
        .iter()
        .zip(answers)
        .map(|(column, answer)| ColumnValue::new(column, answer))
        .collect();
    let nulls = values.iter().any(Option::is_none);
    let mut placed = values.clone();
    let mut likely = header(nulls, values.len()) + data(&placed, false);
    if likely > limits.threshold {
        for at in longest_first(&values) {
            if likely <= limits.target {
                break;
            }
            if let Some(Some(value)) = placed.get_mut(at) {
                value.placement = Placement::OutOfLine;
            }
            likely = header(nulls, values.len()) + data(&placed, false);
        }
    }
    let mut least = values.clone();
    for value in least.iter_mut().flatten() {
        if value.placement == Placement::Unknown && value.bytes > TOAST_POINTER_SIZE {
            value.placement = Placement::OutOfLine;
        }
    }
    let least_moved = least_header(columns, &least) + data(&least, true);
    for value in &mut least {
        *value = value.filter(|value| !value.may_be_missing);
    }
    let least = least_header(columns, &least) + data(&least, true);
    RowLength { least, least_moved, likely }
}

/// The order in which values leave a row, of those for which it is not known whether they have.
fn longest_first(values: &[Option<ColumnValue<'_>>]) -> Vec<usize> {
    let mut places: Vec<(usize, usize)> = (0..)
        .zip(values)
        .filter_map(|(at, value)| Some((at, (*value)?)))
        .filter(|(_, value)| {
            value.placement == Placement::Unknown && value.bytes > TOAST_POINTER_SIZE
        })
        .map(|(at, value)| (value.bytes, at))
        .collect();
    places.sort_unstable_by_key(|&(bytes, at)| (std::cmp::Reverse(bytes), at));
    places.into_iter().map(|(_, at)| at).collect()
}

fn data(values: &[Option<ColumnValue<'_>>], is_least: bool) -> usize {
    values.iter().flatten().fold(0, |offset, value| value.end(offset, value.placement, is_least))
}

fn header(nulls: bool, columns: usize) -> usize {
    let bitmap = if nulls { columns.div_ceil(8) } else { 0 };
    max_align(TUPLE_HEADER_SIZE + bitmap)
}

/// The minimum header. A row that is older than its last columns has no place for them, and a row that is older than
/// the dropping of a column may have a value there.
fn least_header(columns: &[Attribute], values: &[Option<ColumnValue<'_>>]) -> usize {
    let last = values.iter().rposition(Option::is_some).map_or(0, |at| at + 1);
    let mut before = columns.iter().zip(values).take(last);
    let nulls = before.any(|(column, value)| value.is_none() && !column.dropped);
    header(nulls, last)
}

/// What is missing in rows, by the number of columns that they have.
#[derive(Debug, Clone, Default)]
pub struct Growth {
    missing: Vec<Missing>,
    /// The header of a row with all columns, one of which is NULL.
    header: usize,
    threshold: usize,
    target: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Missing {
    /// Bytes of defaults that remain in the row.
    plain: usize,
    /// Bytes of defaults that leave the row if it becomes too long.
    toastable: usize,
    /// Whether one of the missing columns becomes NULL because it has no default.
    is_null: bool,
}

impl Growth {
    /// The growth of a table with these columns. `target` is its `toast_tuple_target`, if set.
    pub fn new(desc: &TupleDesc, page: PageSize, target: Option<TupleTarget>) -> Growth {
        let columns = &desc.attributes;
        let header = header(true, columns.len());
        let is_longer = header > self::header(false, columns.len());
        if !is_longer && columns.iter().all(|column| column.missing.is_none()) {
            return Growth::default();
        }
        let mut missing = vec![Missing::default(); columns.len() + 1];
        let mut sum = Missing::default();
        for (place, column) in missing.iter_mut().zip(columns).rev() {
            match (default(column), column.storage) {
                (Some(bytes), Storage::Plain) => sum.plain += bytes,
                (Some(bytes), _) => sum.toastable += bytes,
                (None, _) => sum.is_null |= column.missing.is_none() || column.dropped,
            }
            *place = sum;
        }
        let target = target.unwrap_or(TupleTarget::default_for(page)).bytes();
        Growth { missing, header, threshold: page.toast_tuple_threshold(), target }
    }

    /// The number of bytes that a row of this length occupies on a page after an update.
    pub fn taken(&self, tuple: &HeapTuple<'_>, length: usize) -> u32 {
        let Some(missing) = self.missing.get(tuple.attribute_count()) else { return taken(length) };
        let has_nulls = missing.is_null || tuple.null_bitmap.is_some();
        let header = if has_nulls { self.header.saturating_sub(tuple.data_offset) } else { 0 };
        let plain = length + header + missing.plain;
        let all = plain + missing.toastable;
        taken(if all > self.threshold { plain.max(all.min(self.target)) } else { all })
    }
}

/// The number of bytes that a column's default occupies in a row.
fn default(column: &Attribute) -> Option<usize> {
    if column.dropped {
        return None;
    }
    let missing = column.missing.as_ref()?;
    let bytes = match column.length {
        Length::Fixed(bytes) => usize::from(bytes),
        Length::Varlena | Length::CString => {
            let stored = missing.stored_size.and_then(|size| usize::try_from(size).ok());
            stored.or(missing.text.as_ref().map(Vec::len))?
        }
    };
    Some(column.align.align(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Method;
    use crate::disk::desc::MissingValue;
    use crate::disk::{Align, Oid};
    use crate::model::{Form, StoredValue};

    const LIMITS: Limits = Limits { threshold: 2032, target: 2032 };

    fn column(length: Length, align: Align) -> Attribute {
        let storage = if length == Length::Varlena { Storage::Extended } else { Storage::Plain };
        Attribute {
            name: "c".into(),
            type_name: String::new(),
            type_oid: Oid(25),
            length,
            align,
            storage,
            compression: None,
            dropped: false,
            is_virtual: false,
            only_plain: false,
            missing: None,
        }
    }

    fn text() -> Attribute {
        column(Length::Varlena, Align::Int)
    }

    fn answer(bytes: u64, placement: Placement) -> FunctionAnswer {
        let value =
            StoredValue { form: Form::Unknown, stored_size: Some(bytes), ..StoredValue::NULL };
        FunctionAnswer { value, placement }
    }

    fn of(columns: &[Attribute], answers: &[Option<FunctionAnswer>], limits: Limits) -> RowLength {
        length(columns, answers.iter().map(Option::as_ref), limits)
    }

    #[test]
    fn null_takes_a_bit_and_short_values_are_not_aligned() {
        let mut columns = vec![column(Length::Fixed(4), Align::Int)];
        columns.extend((0..400).map(|_| text()));
        let mut values = vec![None; 401];
        values[0] = Some(answer(4, Placement::InRow));
        values[1] = Some(answer(33, Placement::InRow));
        values[400] = Some(answer(2, Placement::InRow));
        let row = of(&columns, &values, LIMITS);
        // 23 bytes and a bitmap of 51 bytes, aligned to 80
        assert_eq!((row.likely, row.least), (80 + 4 + 33 + 2, 80 + 4 + 33 + 2));
        // the row may be older than the columns that are NULL
        values[400] = None;
        let row = of(&columns, &values, LIMITS);
        assert_eq!((row.likely, row.least), (80 + 4 + 33, 24 + 4 + 33));
    }

    #[test]
    fn longer_values_are_aligned() {
        let columns = [text(), text(), column(Length::Fixed(8), Align::Double)];
        let values = [
            Some(answer(30, Placement::InRow)),
            Some(answer(201, Placement::InRow)),
            Some(answer(8, Placement::InRow)),
        ];
        // 30 aligned to 32, 233 aligned to 240
        assert_eq!(of(&columns, &values, LIMITS).likely, 24 + 248);
    }

    #[test]
    fn what_is_out_of_line_leaves_a_pointer_and_what_may_be_is_told_apart_by_the_target() {
        let columns = [column(Length::Fixed(4), Align::Int), text()];
        let of = |bytes, placement, limits| {
            let values = [Some(answer(4, Placement::InRow)), Some(answer(bytes, placement))];
            let RowLength { least, likely, .. } = of(&columns, &values, limits);
            (least, likely)
        };
        assert_eq!(of(300, Placement::OutOfLine, LIMITS), (46, 46));
        assert_eq!(of(3_000, Placement::InRow, LIMITS), (3_028, 3_028));
        assert_eq!(of(3_000, Placement::Unknown, LIMITS), (46, 46));
        assert_eq!(of(1_000, Placement::Unknown, LIMITS), (46, 1_028));
        let high = Limits { target: 4_096, ..LIMITS };
        assert_eq!(of(3_000, Placement::Unknown, high), (46, 3_028));
        assert_eq!(of(5_000, Placement::Unknown, high), (46, 46));
        // not longer than the threshold, whatever the target
        let low = Limits { target: 128, ..LIMITS };
        assert_eq!(of(1_000, Placement::Unknown, low), (46, 1_028));
        assert_eq!(of(10, Placement::Unknown, LIMITS), (38, 38));
    }

    #[test]
    fn what_dropped_columns_hold_and_rows_are_older_than_is_not_known() {
        let dropped = Attribute { dropped: true, ..column(Length::Fixed(4), Align::Int) };
        let missing =
            MissingValue { raw_size: None, stored_size: Some(500), text: None, sent: None };
        let young = Attribute { missing: Some(missing), ..text() };
        let columns = [column(Length::Fixed(4), Align::Int), dropped, young];
        let of = |bytes| {
            let values =
                [Some(answer(4, Placement::InRow)), None, Some(answer(bytes, Placement::InRow))];
            of(&columns, &values, LIMITS)
        };
        assert_eq!(of(500), RowLength { least: 28, least_moved: 528, likely: 528 });
        // a value other than the default
        assert_eq!(of(501), RowLength { least: 529, least_moved: 529, likely: 529 });
    }

    #[test]
    fn compressed_values_are_aligned_however_short() {
        let columns = [text(), text()];
        let mut compressed = answer(40, Placement::InRow);
        compressed.value.method = Some(Method::Lz4);
        let values = [Some(answer(5, Placement::InRow)), Some(compressed)];
        assert_eq!(of(&columns, &values, LIMITS).likely, 24 + 8 + 40);
    }

    #[test]
    fn rows_that_get_more_columns_get_a_longer_null_bitmap() {
        let columns = vec![column(Length::Fixed(4), Align::Int); 9];
        let desc = TupleDesc { attributes: columns, ..TupleDesc::default() };
        let growth = Growth::new(&desc, PageSize::DEFAULT, None);
        let row = |natts: u16, null_bitmap| {
            let tuple = HeapTuple { infomask2: natts, null_bitmap, ..HeapTuple::of_data(&[]) };
            growth.taken(&tuple, 100)
        };
        // 23 bytes and a bitmap of 2, aligned to 32
        assert_eq!((row(8, None), row(8, Some(&[1]))), (taken(108), taken(108)));
        assert_eq!(row(9, None), taken(100));
        let all = HeapTuple {
            infomask2: 9,
            null_bitmap: Some(&[1, 0]),
            data_offset: 32,
            ..HeapTuple::of_data(&[])
        };
        assert_eq!(growth.taken(&all, 100), taken(100));
    }

    fn with_default(storage: Storage, default: Option<u32>) -> Attribute {
        let missing =
            |size| MissingValue { raw_size: None, stored_size: Some(size), text: None, sent: None };
        Attribute {
            name: "c".into(),
            type_name: "text".into(),
            type_oid: Oid(25),
            length: Length::Varlena,
            align: Align::Int,
            storage,
            compression: None,
            dropped: false,
            is_virtual: false,
            only_plain: false,
            missing: default.map(missing),
        }
    }

    #[test]
    fn rows_that_are_older_than_a_column_get_its_default() {
        let page = PageSize::DEFAULT;
        let columns = vec![
            with_default(Storage::Extended, None),
            with_default(Storage::Plain, Some(6_000)),
            with_default(Storage::Extended, Some(3_000)),
        ];
        let growth =
            Growth::new(&TupleDesc { attributes: columns, ..TupleDesc::default() }, page, None);
        let of = |natts: u16, length| {
            let tuple = HeapTuple { infomask2: natts, ..HeapTuple::of_data(&[]) };
            growth.taken(&tuple, length)
        };
        assert_eq!((of(3, 100), of(2, 100)), (taken(100), taken(2_032)));
        assert_eq!((of(1, 100), of(9, 100)), (taken(6_100), taken(100)));
        let none = TupleDesc {
            attributes: vec![with_default(Storage::Plain, None)],
            ..TupleDesc::default()
        };
        let growth = Growth::new(&none, page, None);
        assert_eq!(growth.taken(&HeapTuple::of_data(&[]), 100), taken(100));
    }
}
