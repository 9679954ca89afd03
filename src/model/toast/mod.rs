//! The toaster's algorithm (`heap_toast_insert_or_update` in `heaptoast.c`, `toast_helper.c`,
//! `toast_internals.c`): from the values of a row to the form in which each is stored.
//!
//! Values are abstract: sizes and the form in which they arrive. Compressed sizes come from a
//! [`Compressor`], asked only for the values that PostgreSQL would compress.
//!
//! * [`types`]: columns, values as they arrive and as they are stored; `row`: the algorithm.

mod row;
pub mod types;

pub use types::{
    Column, Compressor, Incoming, Operation, Outside, Placed, Table, ToastError, Toasted,
};

#[cfg(test)]
mod tests;
