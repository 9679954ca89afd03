//! `advise-threshold --extract`: the table with keys of a `jsonb` column in columns of their own.
//!
//! * [`keys`]: which keys are asked for; [`kind`]: the types of their columns, from the sample.
//! * `target`: the table's part in it: its column, names for the new ones, what speaks against it.
//! * `auto`: the keys that pay most.
//! * `rows`: rows of the sample as they would be, added up as every other candidate is; `figures`: what they cost.
//! * [`script`]: the migration as an SQL script; `batches`: its long statements.
//! * [`result`]: what is reported.
//!
//! All but one query of `target` is pure.

pub(super) mod auto;
mod batches;
pub(super) mod figures;
pub mod keys;
pub mod kind;
pub mod result;
pub(super) mod rows;
pub mod script;
pub(super) mod target;
