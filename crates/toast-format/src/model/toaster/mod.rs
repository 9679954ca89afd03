//! Toasters: what stores a column's long values, on stock servers and on those with pluggable TOAST.
//!
//! * [`catalog`]: the toasters of a server, and which one wrote a pointer.
//! * [`describe`]: the meaning of a pointer, and the cost of reading or appending.
//! * [`chunks`]: a value's chunks, and their sources; [`error`]: why a value cannot be reassembled.
//! * [`reassemble`]: the value of any pointer; [`stock`], [`bytea`], [`jsonx`] and `fetch` do this for each kind, and
//!   `tids` reads lists of chunk addresses.

pub mod bytea;
pub mod catalog;
pub mod chunks;
pub mod describe;
pub mod error;
mod fetch;
pub mod jsonx;
pub mod reassemble;
pub mod stock;
mod tids;

#[cfg(test)]
mod tests;
