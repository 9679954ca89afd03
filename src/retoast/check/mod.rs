//! What is looked at before the first row is touched, and why a table is refused.
//!
//! * [`preflight`]: one server and one table, and the user's privileges; [`policy_preflight`]: what a policy needs besides;
//!   [`parents`]: partitioned parents.
//! * `kind`: what is worked on at all; `columns`: those that it is about; [`shapes`]: what the catalog says of their types,
//!   and of generated columns.
//! * [`definition`]: settings, definition and files, read again while a task runs.
//! * [`owner`]: whose code an UPDATE runs, and as whom, and what triggers and rules it sets off.
//! * `reindex`: whether files and indexes can be made smaller.
//! * [`ready`]: what is asked of a table, and the table prepared for it.

pub(crate) mod columns;
pub mod definition;
pub(crate) mod kind;
pub mod owner;
pub mod parents;
pub mod policy_preflight;
pub mod preflight;
pub mod ready;
pub mod refusal;
pub(crate) mod reindex;
pub mod shapes;
