//! The TOAST algorithm (`heap_toast_insert_or_update` in `heaptoast.c`, `toast_helper.c`, `toast_internals.c`): from
//! the values of a row to the form in which each is stored.
//!
//! Values are abstract: they have sizes and an incoming form. Compressed sizes come from a [`Compressor`], which is
//! called only for values that PostgreSQL would compress.
//!
//! * [`types`]: columns, incoming values and stored values; `row`: the algorithm.

mod row;
pub mod types;

pub use types::{
    Column, Compressor, Incoming, Operation, Outside, Placed, RowError, Table, Toasted,
};

#[cfg(test)]
mod tests;
