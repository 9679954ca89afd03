//! Results as text and data.
//!
//! * [`format`]: the formats, and the output that they share; `in_turn`: reports printed as they come.
//! * [`schema`]: the JSON schemas of all results.
//! * [`table`]: tables fitted to the terminal; [`units`]: sizes for people.
//! * [`inspect`]: the report of `inspect` in every format; [`values`]: its lines of values;
//!   `inspect_largest`: the largest columns of several tables; `overview`: columns of many tables in one
//!   ranking; [`anatomy`]: one value in every detail.
//! * [`advise`]: the report of `advise-threshold`; `advise_csv`: its CSV; `advise_extract`: keys in
//!   columns of their own; `advise_parts`: what these share; [`advise_plot`]: its charts.
//! * [`retoast`]: the report of `retoast`; [`retoast_plan`]: what is expected;
//!   `retoast_compact`, `retoast_indexes`: what became of files and indexes;
//!   [`retoast_progress`]: how far it is.

pub mod advise;
mod advise_csv;
mod advise_extract;
mod advise_parts;
pub mod advise_plot;
mod advise_pluggable;
pub mod anatomy;
pub mod check;
pub mod departure;
pub mod explain;
mod findings;
pub mod format;
pub(crate) mod in_turn;
pub mod inspect;
mod inspect_grids;
mod inspect_largest;
pub mod inspect_sample;
pub mod keys;
pub(crate) mod overview;
pub mod retoast;
mod retoast_compact;
mod retoast_indexes;
pub mod retoast_plan;
pub mod retoast_progress;
pub mod schema;
pub mod table;
pub mod units;
pub mod values;
