//! Rows of which forms and sizes are told, but no bytes (pure).

use super::content::SampledRow;
use crate::codec::Method;
use crate::disk::desc::{Length, Storage, TupleDesc};
use crate::disk::max_align;
use crate::disk::pointer::TOAST_POINTER_SIZE;
use crate::model::policy::VARLENA_HEADER_SIZE;
use crate::model::stored::{Form, StoredValue};
use crate::model::toast::{Incoming, Table};
use crate::server::sampled::AskedRow;

/// A row as the tally takes it; `table` has the present settings.
pub(crate) fn row(asked: &AskedRow, desc: &TupleDesc, table: &Table) -> SampledRow<'static> {
    let values: Vec<Incoming> = desc
        .attributes
        .iter()
        .zip(&asked.values)
        .map(|(column, value)| incoming(value, column.length))
        .collect();
    let length = table.length_of(&values);
    let dropped = asked.whole.map_or(0, |whole| dropped_bytes(whole, length, &values, desc, table));
    SampledRow::told(asked.ctid, values, length.saturating_add(dropped))
}

fn incoming(value: &StoredValue, length: Length) -> Incoming {
    let size = |bytes: Option<u64>| bytes.map_or(0, |b| u32::try_from(b).unwrap_or(u32::MAX));
    let stored = size(value.stored_size);
    // of what is not known as much as there surely is
    let raw = value.raw_size.map_or(stored, |raw| size(Some(raw)));
    let method = value.method;
    match value.form {
        Form::Null | Form::Missing => Incoming::Null,
        Form::Short => Incoming::Short { raw },
        Form::Plain if length == Length::Varlena => Incoming::Plain { raw },
        Form::Plain => Incoming::Fixed { size: stored },
        Form::Compressed => Incoming::Compressed { size: stored, raw, method },
        Form::External => Incoming::Kept { stored, raw, method, compressed: false },
        Form::ExternalCompressed => Incoming::Kept { stored, raw, method, compressed: true },
        Form::Custom | Form::Unknown => Incoming::Opaque { size: stored, outside: None },
    }
}

/// What dropped columns add to a row of `length` bytes without them, which has `whole` bytes once its values out of
/// line are fetched.
fn dropped_bytes(
    whole: u64,
    length: u32,
    values: &[Incoming],
    desc: &TupleDesc,
    table: &Table,
) -> u32 {
    let fetched: Vec<Incoming> = values
        .iter()
        .map(|value| match *value {
            Incoming::Kept { stored, raw, method, compressed: true } => Incoming::Compressed {
                size: stored.saturating_add(VARLENA_HEADER_SIZE),
                raw,
                method,
            },
            Incoming::Kept { stored, .. } => Incoming::Plain { raw: stored },
            other => other,
        })
        .collect();
    let more = whole.saturating_sub(u64::from(table.length_of(&fetched)));
    let more = u32::try_from(more).unwrap_or(u32::MAX);
    // no row is longer than that as long as something of it can be moved out
    let moved = length.saturating_add(more) as usize > table.page.toast_tuple_threshold()
        && desc.attributes.iter().any(|column| {
            column.dropped
                && column.length == Length::Varlena
                && matches!(column.storage, Storage::Extended | Storage::External)
        });
    if moved { more.min(TOAST_POINTER_SIZE as u32) } else { more }
}

/// Which values of a row beside `own` the toaster may try to compress when `own` is re-toasted, and by which method:
/// those whose compressed size is not known from how they are stored. The row may get longer by `more` bytes.
pub(super) fn compressed_besides(
    own: usize,
    values: &[Incoming],
    table: &Table,
    more: u32,
) -> Vec<(usize, Method)> {
    let mut arriving = values.to_vec();
    if let Some(value) = arriving.get_mut(own) {
        *value = super::tally::fresh(*value);
    }
    let kept = arriving.iter().any(|value| matches!(value, Incoming::Kept { .. }));
    let length = table.length_of(&arriving).saturating_add(more);
    if !kept && length as usize <= table.page.toast_tuple_threshold() {
        return Vec::new();
    }
    let least = max_align(TOAST_POINTER_SIZE) as u32;
    let besides =
        arriving.iter().zip(&table.columns).enumerate().filter(|(index, _)| *index != own);
    besides
        .filter(|(_, (value, column))| {
            let long =
                matches!(value, Incoming::Short { raw } | Incoming::Plain { raw } if *raw >= least);
            long && matches!(column.storage, Storage::Extended | Storage::Main)
        })
        .filter_map(|(index, (_, column))| Some((index, *column.method.methods().first()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::desc::{Align, Attribute};
    use crate::disk::layout::PageSize;
    use crate::disk::{BlockNumber, ItemPointer};
    use crate::disk::{Oid, types};
    use crate::model::cost::Prices;
    use crate::model::settings::TupleTarget;
    use crate::model::toast::Column;

    fn desc(columns: &[(u32, bool)]) -> TupleDesc {
        let attributes = columns.iter().map(|&(oid, dropped)| Attribute {
            name: "c".into(),
            type_name: String::new(),
            type_oid: Oid(oid),
            length: if oid == 23 { Length::Fixed(4) } else { Length::Varlena },
            align: Align::Int,
            storage: types::by_oid(Oid(oid)).map_or(Storage::Extended, |known| known.storage),
            compression: None,
            dropped,
            missing: None,
        });
        TupleDesc { attributes: attributes.collect() }
    }

    fn table(desc: &TupleDesc) -> Table {
        let page = PageSize::DEFAULT;
        Table {
            columns: desc.attributes.iter().map(|a| Column::of(a, Method::Pglz)).collect(),
            target: TupleTarget::default_for(page),
            has_toast_relation: true,
            page,
            prices: Prices::default(),
        }
    }

    fn value(form: Form, raw: u64, stored: u64) -> StoredValue {
        StoredValue { form, raw_size: Some(raw), stored_size: Some(stored), ..StoredValue::NULL }
    }

    fn asked(values: Vec<StoredValue>, whole: Option<u64>) -> AskedRow {
        AskedRow { ctid: ItemPointer { block: BlockNumber(0), item: 1 }, values, whole }
    }

    #[test]
    fn a_row_has_the_length_that_its_values_give_it() {
        let desc = desc(&[(23, false), (25, false), (25, false)]);
        let number = value(Form::Plain, 4, 4);
        let length = |second, third| {
            row(&asked(vec![number, second, third], None), &desc, &table(&desc)).facts.tuple_length
        };
        // 24 of the header, 4; 1-byte headers are not aligned, others to 4
        assert_eq!(length(value(Form::Short, 5, 6), value(Form::Short, 10, 11)), 24 + 4 + 6 + 11);
        assert_eq!(
            length(value(Form::Short, 5, 6), value(Form::Plain, 500, 504)),
            24 + 4 + 6 + 2 + 504
        );
        assert_eq!(length(value(Form::External, 9000, 9000), StoredValue::NULL), 24 + 4 + 18);
        assert_eq!(
            length(value(Form::Compressed, 9000, 900), value(Form::Short, 1, 2)),
            24 + 4 + 900 + 2
        );
    }

    #[test]
    fn what_dropped_columns_hold_shows_in_the_whole_row() {
        let desc = desc(&[(23, false), (25, true), (25, false)]);
        let table = table(&desc);
        let length = |last: StoredValue, whole| {
            let values = vec![value(Form::Plain, 4, 4), StoredValue::NULL, last];
            row(&asked(values, Some(whole)), &desc, &table).facts.tuple_length
        };
        assert_eq!(length(value(Form::Short, 10, 11), 24 + 4 + 11), 39);
        assert_eq!(length(value(Form::Short, 10, 11), 24 + 4 + 100 + 11), 139);
        // the last one is out of line, and fetched for the question alone
        assert_eq!(
            length(value(Form::External, 5000, 5000), 24 + 4 + 104 + 5004),
            24 + 4 + 104 + 18
        );
        // so is the dropped one
        assert_eq!(length(value(Form::Short, 10, 11), 24 + 4 + 9000 + 11), 39 + 18);
    }

    #[test]
    fn other_columns_are_asked_for_where_the_toaster_would_try_them() {
        let desc = desc(&[(25, false), (25, false), (25, false)]);
        let table = table(&desc);
        let ask = |values: [Incoming; 3]| -> Vec<usize> {
            let found = compressed_besides(0, &values, &table, 0);
            found.into_iter().map(|(index, _)| index).collect()
        };
        let plain = |raw| Incoming::Plain { raw };
        let none: [usize; 0] = [];
        assert_eq!(ask([plain(500), plain(500), plain(500)]), none);
        assert_eq!(ask([plain(1500), plain(500), plain(20)]), [1]);
        let kept = Incoming::Kept { stored: 9000, raw: 9000, method: None, compressed: false };
        assert_eq!(ask([kept, plain(500), Incoming::Null]), [1]);
        assert_eq!(ask([plain(10), kept, plain(500)]), [2]);
        let done = Incoming::Compressed { size: 900, raw: 3000, method: Some(Method::Lz4) };
        assert_eq!(ask([plain(1500), done, Incoming::Null]), none);
    }
}
