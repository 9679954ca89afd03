//! The verb `advise-threshold`: what other settings of a column would store and cost.
//!
//! * [`variant`]: the column and its present settings; [`candidate`]: which settings are compared.
//! * [`content`]: the sample's values and what compression makes of them.
//! * [`tally`]: what a sample's rows add up to under each of them; [`estimate`]: the whole
//!   table's figures from that, with confidence intervals.
//! * [`extract`]: the table with keys of a document in columns of their own, and the way there.
//! * [`pluggable`]: what the toasters of other servers would do.
//! * [`recommend`]: the Pareto front, the choice and its reasons; `caveats`: what else it brings; [`commands`]: how
//!   it comes true.
//! * [`report`]: the report made of all that; [`result`]: its type, `rounded` its figures.
//! * [`run`]: the tables of a server in turn; `partitioned`: one whose partitions are priced together; [`advisor`]: over which connection; `table`: one of them;
//!   `plan`: how much of it is read; `probe`: what a few blocks tell beforehand; `reading`: the sample; `documents`:
//!   those that are taken apart; `extracting`: which keys are taken out of them; `compaction`: what it would give back; `on_server`: what the server makes of it.
//! * `asked`: rows of which SQL functions tell forms and sizes, where pages are out of reach.
//!
//! All but the last item's modules are pure.

pub(crate) mod advisor;
pub(crate) mod asked;
pub(crate) mod candidate;
mod caveats;
pub(crate) mod commands;
mod compaction;
pub mod content;
mod documents;
pub(crate) mod estimate;
pub mod explain;
pub(crate) mod extract;
mod extracting;
mod on_server;
mod partitioned;
pub(crate) mod plan;
pub(crate) mod pluggable;
mod probe;
mod reading;
mod reasons;
pub(crate) mod recommend;
pub(crate) mod report;
pub mod result;
mod rounded;
pub(crate) mod run;
mod table;
pub mod tally;
pub(crate) mod variant;
