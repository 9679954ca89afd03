//! The checks before the first row is changed, and the reasons for refusing a table.
//!
//! * [`preflight`]: the server, a table, the user's privileges, and whether files and indexes can be made smaller;
//!   [`policy_preflight`]: what a policy requires in addition; [`parents`]: partitioned tables.
//! * `columns`: the columns of a task; [`shapes`]: facts about their types, and about generated columns, from the
//!   catalog.
//! * [`definition`]: settings, definition and files, read again while a task runs.
//! * [`owner`]: whose code an UPDATE runs, as which role, and which triggers and rules it fires.
//! * [`ready`]: the request for a table, and the table prepared for it.

pub(crate) mod columns;
pub mod definition;
pub mod owner;
pub mod parents;
pub mod policy_preflight;
pub mod preflight;
pub mod ready;
pub mod shapes;
