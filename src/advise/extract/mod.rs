//! `advise-threshold --extract`: the table with keys of a `jsonb` column in columns of their own.
//!
//! * [`keys`]: which keys are asked for; [`kind`]: the types of their columns, from the sample.
//! * [`parent`]: a partitioned table; `target`: the table's part in it: its column, names for the new ones, what speaks against it; [`around`]: what
//!   depends on the column, fires, is replicated, and who may use it.
//! * `auto`: the keys that pay most; [`weights`]: how often each is used.
//! * `filled`: the table with more columns; `rows`: rows of the sample as they would be, added up as every other candidate is; `figures`: what they cost.
//! * [`migration`]: what moves; [`script`]: the same as an SQL script; `head`: the comments before it; `steps`: what it does; `batches`: its
//!   long statements.
//! * [`result`]: what is reported.
//!
//! Everything but the queries of `target` and `around` is pure.

pub mod around;
pub(super) mod auto;
mod batches;
pub(super) mod figures;
mod filled;
mod head;
pub mod keys;
pub mod kind;
pub mod migration;
pub mod parent;
pub mod result;
pub(super) mod rows;
pub mod script;
mod steps;
pub(super) mod target;
pub mod weights;
