//! Toasters: what stores a column's oversized values, on stock servers and on those with pluggable
//! TOAST.
//!
//! * [`catalog`]: which toasters there are, and which one wrote a pointer.
//! * [`describe`]: what a pointer stands for, and what it costs to read or append.
//! * [`chunks`]: where a value's chunks are, and where they come from; [`error`]: why a value cannot be put together.
//! * [`reassemble`]: the value behind any pointer; [`stock`], [`bytea`], [`jsonx`] and [`fetch`]
//!   do so for each kind, [`tids`] reads lists of chunk addresses.

pub mod bytea;
pub mod catalog;
pub mod chunks;
#[cfg(test)]
mod damage;
pub mod describe;
pub mod error;
pub mod fetch;
pub mod jsonx;
pub mod reassemble;
pub mod stock;
pub mod tids;
