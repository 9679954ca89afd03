//! The verb `advise-threshold`: what other settings of a column would store and cost.
//!
//! * [`advisor`]: the connection, what is asked, what the server says of a table; [`run`]: the tables of a server in
//!   turn; `table`: one of them, from sample to reports.
//! * [`candidate`]: which columns, and which settings are compared for them; why there is no advice.
//! * [`plan`]: how much is read; `reading`: the sample; [`content`]: its rows, and what compression makes of their
//!   values; [`pluggable`]: what the toasters of other servers would.
//! * [`tally`]: what the rows add up to under each candidate; [`estimate`]: the whole table's figures from that, with
//!   confidence intervals; [`recommend`]: the Pareto front, the choice and its reasons.
//! * [`calibration`]: CPU prices fitted to what this server takes; `calibrating`: values timed for that.
//! * `together`: one command for columns that get the same settings.
//! * `table`: the advice on one table; `shards`: on a table of Citus, whose shards are read one after another.
//! * `compaction`: what a command leaves of the files, and what compaction alone would give back.
//! * [`report`]: the candidates, and the report made of them; [`result`]: its type.
//! * [`extract`]: the table with keys of a document in columns of their own, and the way there.
//! * [`explain`]: what today's storage costs.

pub(crate) mod advisor;
mod calibrating;
pub(crate) mod calibration;
pub(crate) mod candidate;
mod compaction;
pub mod content;
pub(crate) mod estimate;
pub mod explain;
pub(crate) mod extract;
pub(crate) mod plan;
pub(crate) mod pluggable;
mod reading;
pub(crate) mod recommend;
pub(crate) mod report;
pub mod result;
pub(crate) mod run;
mod shards;
mod table;
pub mod tally;
mod together;
