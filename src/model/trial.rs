//! The rows in which a server compresses copies of values: how long they must be for the toaster to be
//! called, and what the size of a copy in such a row means (`heaptoast.h`, `heaptoast.c`, `toast_helper.c`).
//!
//! A copy stands in an EXTENDED column beside padding in a PLAIN one. The padding alone makes the row
//! longer than `TOAST_TUPLE_THRESHOLD`, which grows with the page, so that the toaster is called however short the
//! copy is; and longer than `toast_tuple_target`, so that it compresses and moves out all that it may.

use super::settings::TupleTarget;
use crate::disk::layout::PageSize;
use crate::disk::max_align;
use crate::disk::pointer::TOAST_POINTER_SIZE;

/// `toast_tuple_target` of such rows, in bytes: the least.
pub const TARGET: u16 = TupleTarget::MIN;

/// Bytes of the padding, without its header.
pub fn padding(page: PageSize) -> usize {
    page.toast_tuple_threshold()
}

/// A datum of up to this many bytes is neither compressed nor moved out
/// (`toast_tuple_find_biggest_attribute`).
pub const NEVER_MOVED: u32 = max_align(TOAST_POINTER_SIZE) as u32;

/// Bytes by which `pg_column_size` is less than the datum once that is out of line: its length word.
pub const NOT_COUNTED: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Method;
    use crate::disk::desc::{Align, Length, Storage};
    use crate::model::cost::Prices;
    use crate::model::policy::{MethodChoice, Policy};
    use crate::model::stored::Form;
    use crate::model::toast::{Column, Incoming, Operation, Table};

    fn row_of(page: PageSize) -> Table {
        let column = |storage| Column {
            length: Length::Varlena,
            align: Align::Int,
            storage,
            type_storage: Storage::Extended,
            method: MethodChoice::One(Method::Lz4),
            policy: Policy::Always,
        };
        Table {
            columns: vec![column(Storage::Extended), column(Storage::Plain)],
            target: TupleTarget::new(u32::from(TARGET), page).unwrap(),
            has_toast_relation: true,
            page,
            prices: Prices::default(),
        }
    }

    /// Whether the server is asked to compress a value of `raw` bytes, and where a datum of `size` bytes goes.
    fn tried(page: PageSize, padding: usize, raw: u32, size: u32) -> (bool, Form) {
        let mut asked = false;
        let values = [Incoming::Plain { raw }, Incoming::Plain { raw: padding as u32 }];
        let row = row_of(page).toast(&values, Operation::Insert, &mut |_, _| {
            asked = true;
            Some(size)
        });
        (asked, row.unwrap().values[0].form)
    }

    /// `TOAST_TUPLE_THRESHOLD` as `heaptoast.h` has it:
    /// `MAXALIGN_DOWN((BLCKSZ - MAXALIGN(SizeOfPageHeaderData + 4 * sizeof(ItemIdData))) / 4)`.
    fn threshold(block_size: usize) -> usize {
        (block_size - (24 + 4 * 4usize).next_multiple_of(8)) / 4 / 8 * 8
    }

    #[test]
    fn padding_calls_the_toaster_on_pages_of_every_size() {
        for kilobytes in [4, 8, 16, 32] {
            let page = PageSize::new(kilobytes << 10).unwrap();
            assert_eq!(page.toast_tuple_threshold(), threshold(kilobytes << 10));
            // header and length word come to the padding, which alone is over the threshold, and fits
            let alone = 24 + 4 + padding(page);
            assert!(alone > threshold(kilobytes << 10), "{kilobytes}");
            assert!(alone + 1000 < page.toast_tuple_target_main(), "{kilobytes}");
            for raw in [127, 200, 1000, 1996, 2500, 4000, 8000, 100_000] {
                assert_eq!(tried(page, padding(page), raw, 100), (true, Form::ExternalCompressed));
            }
            // what the toaster finds too short
            assert!(!tried(page, padding(page), 23, 20).0);
            assert!(tried(page, padding(page), 24, 20).0);
        }
    }

    #[test]
    fn padding_for_one_page_size_does_not_do_for_larger_ones() {
        let page = PageSize::new(16 << 10).unwrap();
        assert!(!tried(page, padding(PageSize::DEFAULT), 1900, 100).0);
    }

    #[test]
    fn only_the_shortest_stay_in_the_row() {
        let page = PageSize::DEFAULT;
        let form = |size| tried(page, padding(page), 500, size).1;
        assert_eq!(form(NEVER_MOVED), Form::Compressed);
        assert_eq!(form(NEVER_MOVED + 1), Form::ExternalCompressed);
    }
}
