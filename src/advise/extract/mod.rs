//! `keys --extract`: the table with keys of a `jsonb` column in columns of their own.
//!
//! * [`keys`]: which keys are asked for, and how often each is used.
//! * [`target`]: the column and its table, or the table whose partition that is; names for new columns, and what keeps
//!   the table from getting them.
//! * [`rows`]: types of the new columns, and rows of the sample as they would be, added up as every other candidate is.
//! * [`script`]: the skeleton of a migration in SQL; [`result`]: what is reported.
//! * [`choose`]: the keys that pay most, and partitions in turn.

pub(super) mod choose;
pub(crate) mod keys;
pub(crate) mod result;
pub(super) mod rows;
mod script;
pub(super) mod target;
