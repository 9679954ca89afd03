//! `retoast`: brings what a table stores to what was chosen, online.
//!
//! * [`choice`]: toasters and what makes them a column's choice.
//! * [`forcing`]: expressions that make a new datum of a stored value, by type.
//! * [`compliance`]: whether a stored row is what the choice would store.
//! * [`sql`]: the text of every statement.
//! * [`machine`]: what to do next, without IO and without a clock.
//! * [`shapes`], [`preflight`]: what the catalog says of types and tables, and why a table is refused.
//! * [`scan`]: the rows that are stored otherwise than chosen; [`run`]: doing it.
//! * [`policy`]: choice and compliance value by value; [`policy_sql`], [`policy_scan`],
//!   [`policy_batch`]: its temporary table, scans and batches; [`policy_share`]: how much complies; [`since`]: what earlier runs have proven.
//! * [`result`]: what is reported.

pub mod choice;
pub mod compliance;
pub mod forcing;
pub mod machine;
pub mod policy;
pub mod policy_batch;
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
