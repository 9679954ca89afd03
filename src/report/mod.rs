//! Results as text and data.
//!
//! * [`document`]: one output document, for people; the formats, and the output that takes results as they arrive.
//! * [`schema`]: the JSON schemas of all results.
//! * [`table`]: tables fitted to the terminal; [`units`]: sizes for people.
//! * [`inspect`]: the report of `inspect`; [`inspect_sample`]: what a sample changes in it; `findings`: avoidable
//!   costs; [`values`]: lines of values; `overview`: columns of many tables in one ranking; [`anatomy`]: every detail of
//!   one value; [`check`], [`explain`], [`keys`]: the reports of these verbs and options.
//! * [`fleet`]: the reports of any verb on several databases.
//! * [`openmetrics`], [`nagios`]: the same columns and tables for monitoring.
//! * [`advise`]: the report of `advise-threshold`.
//! * `html`: a page for a browser; `charts`: its charts.
//! * [`retoast`]: the report of `retoast`; `retoast_course`: the course of a run;
//!   `retoast_compact`, `retoast_indexes`, `departure`: its parts about files, indexes and a toaster;
//!   [`retoast_progress`]: its progress.

pub mod advise;
pub mod anatomy;
mod charts;
pub mod check;
mod departure;
pub mod document;
pub mod explain;
mod findings;
pub(crate) mod fleet;
mod html;
pub mod inspect;
pub mod inspect_sample;
pub mod keys;
pub(crate) mod nagios;
pub(crate) mod openmetrics;
pub(crate) mod overview;
pub mod retoast;
mod retoast_compact;
mod retoast_course;
mod retoast_indexes;
pub mod retoast_progress;
pub mod schema;
pub mod table;
pub mod units;
pub mod values;
