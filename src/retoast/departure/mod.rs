//! `--from-toaster`: takes everything from one toaster of `pg_toaster` and proves it.
//!
//! * [`census`]: counts its values on pages, those of dropped columns too.
//! * [`actions`]: what becomes of each table (pure).
//! * [`run`]: does it; [`proof`]: reads everything once more, in the tables and in the catalog, after [`older`]:
//!   the wait for transactions whose tables nobody sees yet.
//! * [`steps`]: what removes the toaster then.
//! * [`result`]: what is reported.

pub(crate) mod actions;
pub(crate) mod census;
pub(crate) mod older;
pub(crate) mod proof;
pub mod result;
pub(crate) mod run;
pub(crate) mod steps;
