//! Results as text and data.
//!
//! * [`document`]: one output document, for people; the formats, and the output that takes results as they arrive.
//! * [`schema`]: the JSON schemas of all results.
//! * [`table`]: tables fitted to the terminal; [`units`]: sizes for people.
//! * [`inspect`]: the report of `inspect`; `intervals`: figures that may be estimates; `findings`: avoidable
//!   costs; [`values`]: lines of values; `overview`: tables and columns of a
//!   database in one ranking; `compare`: what has changed since an earlier run; [`anatomy`]: every detail of
//!   one value; [`check`], [`explain`], [`keys`]: the reports of these verbs and options.
//! * [`fleet`]: the reports of any verb on several databases.
//! * [`openmetrics`], [`nagios`]: the same columns and tables for monitoring.
//! * [`advise`]: the report of `advise-threshold`.
//! * `html`: a page for a browser; `charts`: its charts.
//! * [`retoast`]: the report of `retoast`; `retoast_course`: the course of a run;
//!   `retoast_compact`, `retoast_indexes`, `departure`: its parts about files, indexes and a toaster;
//!   [`retoast_progress`]: its progress.
//!
//! # How results are printed
//!
//! A report is a serde type, and JSON is its serialization (`report::schema`). `inspect`, `keys` and
//! `advise-threshold` each print one JSON document, whether for one table or many: an object with a list of
//! entries, which have optional parts. The list is `tables` for `inspect`, with or without `--explain` and in the
//! overview (`inspect::document`), and `columns` for `keys` (`keys::result`) and `advise-threshold`
//! (`advise::result`). For people, each report fills a `report::document::Document` with lines, items, figures and
//! grids (`report::table`), which is printed for a terminal or as Markdown; for CSV, it supplies records.
//! `report::document::Output` takes entries as they are completed, and is the only place that distinguishes output
//! formats of lists. Lines of values (`report::values`), whose columns have fixed widths, and `retoast`'s report
//! are written directly, without a `Document`. For monitoring, `inspect::overview::figures` derives named figures
//! from the ranking and judges conditions about them (`--fail-on`; what could not be read never counts as fine),
//! and `report::openmetrics` and `report::nagios` print them. The lines of `--set progress=json` and `log=FILE` are
//! `report::retoast_progress::Line`. Text for terminals always has styles (`report::table::Tone`); `cli::terminal`
//! removes them if the output is not a terminal or `NO_COLOR` is set.
//!
//! With `--all` and `--targets` (`cli::fleet`), a verb runs once for each database, with the arguments that it
//! would have for that database alone. `drive::sites::each_site` decides which of them run at a time, as it does for
//! nodes of Citus: each database has a thread and a runtime of its own, and no server has more visits than allowed, for
//! verbs that write one. What tells servers apart is then asked of them (`server::about::instance`), because a server
//! can have several names. `cli::terminal::Ui` is where a verb prints; that of a run on one database adds the database's
//! name to messages, and keeps the report until it is complete. `report::fleet` prints the
//! reports in turn; overviews for people are not printed but joined (`inspect::overview::rank::Overview`), keeping
//! only the columns that are shown.
//!
//! `drive::each_relation` describes the relations of a run one after the other and passes each to a visitor.
//! `inspect`, `check`, `inspect --explain`, `keys` and `advise-threshold` differ in their schedules (order, and
//! whether dropped relations are reported) and in what they do with each relation. `Failed::report_to`
//! (`server::sink`) determines by the kind of a failure whether it affects one relation or ends the run. The
//! overview has a queue of its own (`inspect::overview::queue`), because it reads several relations concurrently
//! within a time limit.
//!
//! A report for people is printed into a `report::document::Document`, whose style is that of a terminal, of
//! Markdown, or of a page for a browser (`Style::Html`): the same calls give lines, items, grids and commands in
//! each. `report::html` puts the parts of a page together, and `report::charts` draws what only a page has; next to
//! each chart is a table with its figures. All text of a page passes through the escaping of `maud`, and a policy
//! in the page forbids to load anything or to run other scripts than its own, which only adds buttons that copy
//! commands. `scripts/view-html` views pages in Chromium.

pub mod advise;
pub mod anatomy;
mod charts;
pub mod check;
mod compare;
mod departure;
pub mod document;
pub mod explain;
mod findings;
pub(crate) mod fleet;
mod html;
pub mod inspect;
mod intervals;
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
