//! `retoast`: brings what a table stores to what was chosen, online.
//!
//! * [`choice`]: toasters and what makes them a column's choice.
//! * [`forcing`]: expressions that make a new datum of a stored value, by type.
//! * [`compliance`]: whether a stored row is what the choice would store.
//! * [`pluggable`]: toasters of servers with pluggable TOAST as the choice.
//! * [`sql`]: the text of every statement.
//! * [`machine`]: what to do next, without IO and without a clock.
//! * [`shapes`], [`preflight`]: what the catalog says of types and tables, and why a table is refused.
//! * [`scan`]: the rows that are stored otherwise than chosen; [`run`]: doing it.
//! * [`result`], [`departure`]: what is reported.

pub mod choice;
pub mod compliance;
pub mod departure;
pub mod forcing;
pub mod machine;
pub mod pluggable;
pub mod preflight;
pub mod result;
pub mod run;
pub mod scan;
pub mod shapes;
pub mod sql;
