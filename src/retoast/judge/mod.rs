//! Whether what is stored is what the goal would store (pure).
//!
//! * [`stock`]: by the TOAST algorithm of a stock server, or by what SQL functions tell.
//! * [`pluggable`]: on servers with pluggable TOAST.
//! * [`policy`]: value by value.

pub mod pluggable;
pub mod policy;
pub mod stock;
