//! Tables and values shared by the tests of judges.

use crate::codec::Method;
use crate::disk::{Align, Length, PageSize, Storage};
use crate::model::cost::Prices;
use crate::model::toast::{Column, Table};
use crate::model::{Form, MethodChoice, Policy, StoredValue, TupleTarget};

/// A table of an integer and `count` columns with this storage and method.
pub(super) fn table(storage: Storage, method: Method, count: usize) -> Table {
    let column = |length, storage| Column {
        length,
        align: Align::Int,
        storage,
        type_storage: storage,
        method: MethodChoice::One(method),
        policy: Policy::Always,
    };
    let mut columns = vec![column(Length::Fixed(4), Storage::Plain)];
    columns.extend(vec![column(Length::Varlena, storage); count]);
    Table {
        columns,
        target: TupleTarget::default_for(PageSize::DEFAULT),
        has_toast_relation: true,
        page: PageSize::DEFAULT,
        prices: Prices::default(),
        indexes: Vec::new(),
    }
}

/// A value of `raw` bytes, stored in `stored` bytes.
pub(super) fn value(form: Form, method: Option<Method>, raw: u64, stored: u64) -> StoredValue {
    let pointer_size = if form.is_external() { 18 } else { 0 };
    StoredValue {
        form,
        method,
        raw_size: Some(raw),
        stored_size: Some(stored),
        pointer_size,
        ..StoredValue::NULL
    }
}
