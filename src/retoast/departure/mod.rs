//! `--from-toaster`: converts everything that one toaster of `pg_toaster` stores, and proves it.
//!
//! * [`census`]: counts its values on pages, including those of dropped columns.
//! * [`run`]: the work on each table, and the wait for transactions whose tables are not visible yet.
//! * [`steps`]: reads everything again, in the tables and in the catalog, and returns the statements that remove the
//!   toaster.

pub(crate) mod census;
pub(crate) mod run;
pub(crate) mod steps;
