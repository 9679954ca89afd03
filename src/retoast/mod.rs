//! `retoast`: brings what a table stores to what was chosen, online.
//!
//! * [`sql`]: the text of every statement.
//! * [`check`]: what is looked at before the first row is touched, and why a table is refused.
//! * [`pace`]: when the sweep waits for others, and what is measured for that.
//! * [`memory`]: what outlives a run, in files.
//! * [`sweep`]: the conversion of values: scans, batches and vacuums, as a machine without IO says.
//! * [`compact`]: returning free space inside the files to the operating system.
//! * [`reindex`]: rebuilding indexes that are much larger than fresh ones.
//! * [`plan`]: what is expected of a sweep (pure); [`compliance`]: how much of a table complies with a policy.
//! * [`departure`]: taking everything from a pluggable toaster, and the proof.
//! * [`run`]: a run over the tables of a server: request, sessions, workers.
//! * [`task`]: the session, the guard and what else all tasks on a table go by.
//! * [`verdict`]: how it ended (pure); [`error`]: why it cannot go on.
//! * [`result`]: what is reported, and where it goes; [`listener`]: who hears of it meanwhile, and what is asked from outside.

pub mod check;
pub mod compact;
pub mod compliance;
pub mod departure;
pub(crate) mod error;
pub mod listener;
pub mod memory;
pub mod pace;
pub mod plan;
pub mod reindex;
pub mod result;
pub mod run;
pub mod sql;
pub mod sweep;
pub mod task;
pub mod verdict;
