//! The walk over a page: every line pointer with what it leads to (pure).

use crate::disk::page::{LinePointerState, Page};
use crate::disk::tuple::HeapTuple;
use crate::disk::{BlockNumber, ItemPointer};

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
