//! `--from-toaster`: takes everything from one toaster of `pg_toaster` and proves it.
//!
//! * [`census`]: counts its values on pages, those of dropped columns too.
//! * [`run`]: what becomes of each table, and the wait for transactions whose tables nobody sees yet.
//! * [`steps`]: reads everything once more, in the tables and in the catalog, and says what removes the toaster then.

pub(crate) mod census;
pub(crate) mod run;
pub(crate) mod steps;
