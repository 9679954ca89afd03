//! By how much rows get longer once they are updated (pure): the default of a column that is younger than a row stands in
//! none until then.

use super::room::taken;
use crate::disk::desc::{Attribute, Length, Storage, TupleDesc};
use crate::disk::layout::PageSize;
use crate::disk::tuple::HeapTuple;
use crate::model::settings::TupleTarget;

/// For rows of each number of columns what is missing in them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Growth {
    missing: Vec<Missing>,
    threshold: usize,
    target: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Missing {
    /// Bytes that stay in the row.
    plain: usize,
    /// Those that leave it if it gets too long.
    toastable: usize,
}

impl Growth {
    /// Of a table with such columns. `target`: its `toast_tuple_target`, if that is set.
    pub(crate) fn of(desc: &TupleDesc, page: PageSize, target: Option<TupleTarget>) -> Growth {
        let columns = &desc.attributes;
        if columns.iter().all(|column| column.missing.is_none()) {
            return Growth::default();
        }
        let mut missing = vec![Missing::default(); columns.len() + 1];
        let mut sum = Missing::default();
        for (place, column) in missing.iter_mut().zip(columns).rev() {
            let bytes = default(column).unwrap_or(0);
            match column.storage {
                Storage::Plain => sum.plain += bytes,
                _ => sum.toastable += bytes,
            }
            *place = sum;
        }
        let target = target.unwrap_or(TupleTarget::default_for(page)).bytes();
        Growth { missing, threshold: page.toast_tuple_threshold(), target }
    }

    /// Bytes of a page that a row of so many bytes takes once it is updated.
    pub(crate) fn taken(&self, tuple: &HeapTuple<'_>, length: usize) -> u32 {
        let Some(missing) = self.missing.get(tuple.attribute_count()) else { return taken(length) };
        let plain = length + missing.plain;
        let all = plain + missing.toastable;
        taken(if all > self.threshold { plain.max(all.min(self.target)) } else { all })
    }
}

/// Bytes that a column's default takes in a row.
fn default(column: &Attribute) -> Option<usize> {
    let missing = column.missing.as_ref().filter(|_| !column.dropped)?;
    let text = || missing.text.as_ref().map(Vec::len);
    let bytes = match column.length {
        Length::Fixed(bytes) => usize::from(bytes),
        Length::Varlena | Length::CString => {
            missing.stored_size.and_then(|size| usize::try_from(size).ok()).or_else(text)?
        }
    };
    Some(column.align.align(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Oid;
    use crate::disk::desc::{Align, MissingValue};

    fn column(storage: Storage, default: Option<u32>) -> Attribute {
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
            missing: default.map(missing),
        }
    }

    #[test]
    fn rows_that_are_older_than_a_column_get_its_default() {
        let page = PageSize::DEFAULT;
        let columns = vec![
            column(Storage::Extended, None),
            column(Storage::Plain, Some(6_000)),
            column(Storage::Extended, Some(3_000)),
        ];
        let growth = Growth::of(&TupleDesc { attributes: columns }, page, None);
        let of = |natts: u16, length| {
            let tuple = HeapTuple { infomask2: natts, ..HeapTuple::of_data(&[]) };
            growth.taken(&tuple, length)
        };
        assert_eq!((of(3, 100), of(2, 100)), (taken(100), taken(2_032)));
        assert_eq!((of(1, 100), of(9, 100)), (taken(6_100), taken(100)));
        let none = TupleDesc { attributes: vec![column(Storage::Plain, None)] };
        let growth = Growth::of(&none, page, None);
        assert_eq!(growth.taken(&HeapTuple::of_data(&[]), 100), taken(100));
    }
}
