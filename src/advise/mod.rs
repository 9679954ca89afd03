//! The verb `advise-threshold`: what other settings of a column would store and cost.
//!
//! * [`variant`]: the column and its present settings; [`candidate`]: which settings are compared.
//! * [`content`]: the sample's values and what compression makes of them.
//! * [`tally`]: what a sample's rows add up to under each of them; [`estimate`]: the whole
//!   table's figures from that, with confidence intervals.
//! * [`extract`]: the table with keys of a document in columns of their own, and the way there.
//! * [`pluggable`]: what the toasters of other servers would do.
//! * [`statements`]: what `pg_stat_statements` says of the column's use; `tokens`: the words of SQL.
//! * [`recommend`]: the Pareto front, the choice and its reasons; `caveats`: what else it brings.
//! * [`request`]: what is asked; [`report`]: the report made of all that; [`result`]: its type, `rounded` its figures.
//! * [`run`]: the tables of a server in turn; `partitioned`: one whose partitions are priced together; [`advisor`]: over which connection; `table`: one of them;
//!   `plan`: how much of it is read; `probe`: what a few blocks tell beforehand; `reading`: the sample; `documents`:
//!   those that are taken apart; `extracting`: which keys are taken out of them; `compaction`: what it would give back; `on_server`: what the server makes of it; [`facts`]: what the server is asked for.
//! * `asked`: rows of which SQL functions tell forms and sizes, where pages are out of reach.
//!
//! All but the last item's modules are pure.

pub mod advisor;
mod asked;
pub mod candidate;
mod caveats;
mod compaction;
pub mod content;
mod documents;
pub mod estimate;
pub mod explain;
pub mod extract;
mod extracting;
pub mod facts;
pub mod keys;
mod on_server;
mod partitioned;
mod plan;
pub mod pluggable;
mod probe;
mod reading;
mod reasons;
pub mod recommend;
pub mod report;
pub mod request;
pub mod result;
mod rounded;
pub mod run;
pub mod statements;
mod table;
pub mod tally;
mod tokens;
pub mod variant;
pub mod workload;
