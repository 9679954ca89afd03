//! `retoast`: brings what a table stores to what was chosen, online.
//!
//! * [`choice`]: toasters and what makes them a column's choice.
//! * [`forcing`]: expressions that make a new datum of a stored value, by type.
//! * [`compliance`]: whether a stored row is what the choice would store.
//! * [`pluggable`]: toasters of servers with pluggable TOAST as the choice.
//! * [`sql`]: the text of every statement.
//! * [`machine`]: what to do next, without IO and without a clock.
//! * [`shapes`], [`generated`], [`preflight`]: what the catalog says of types and tables, and why a
//!   table is refused.
//! * [`parents`]: partitioned tables; [`patience`]: locks in short tries; [`watch`]: whom
//!   to tell.
//! * [`scan`]: the rows that are stored otherwise than chosen; [`run`]: doing it.
//! * [`manners`], [`window`]: when it waits for others (pure); [`gauges`]: what is measured for that;
//!   [`control`]: what is asked from outside; [`keeper`]: measuring and waiting.
//! * [`checkpoint`]: where scanning is, in a file; [`origin`]: keeping subscribers out of it.
//! * [`plan`]: what is expected of a sweep (pure); `foresee`: what it is made of.
//! * [`policy`]: choice and compliance value by value; `policy_preflight`: what the catalog says for
//!   that; [`policy_sql`], [`policy_scan`], [`policy_batch`]: its temporary table, scans and batches;
//!   [`policy_share`]: how much complies; [`since`]: what earlier runs have proven.
//! * [`pluggable`]: servers with pluggable TOAST (pure).
//! * [`result`], [`departure`]: what is reported.

pub mod checkpoint;
pub mod choice;
pub mod compliance;
pub mod control;
pub mod departure;
pub mod forcing;
mod foresee;
pub mod gauges;
pub mod generated;
pub mod keeper;
pub mod machine;
pub mod manners;
pub mod origin;
pub mod parents;
pub mod patience;
pub mod plan;
pub mod pluggable;
pub mod policy;
pub mod policy_batch;
mod policy_preflight;
pub mod policy_scan;
pub mod policy_share;
pub mod policy_sql;
pub mod preflight;
pub mod result;
pub mod run;
pub mod scan;
pub mod shapes;
pub mod since;
pub mod sql;
pub mod watch;
pub mod window;
