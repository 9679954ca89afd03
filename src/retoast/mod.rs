//! `retoast`: rewrites stored values with the chosen settings, online.
//!
//! * [`sql`]: the text of all statements.
//! * [`check`]: the checks before the first row is changed, and the reasons for refusing a table.
//! * [`pace`]: when work waits for other sessions, and what is measured to decide that.
//! * [`memory`]: what outlives a run, in files and comments.
//! * [`sweep`]: the conversion of values: scans, batches and vacuums, controlled by a state machine without IO.
//! * [`compact`]: returns free space inside files to the operating system.
//! * [`reindex`]: rebuilds indexes that are much larger than fresh ones.
//! * [`plan`]: what a run will do (pure); [`forecast`]: what it will write, and by how much files will grow (pure).
//! * [`compliance`]: how much of a table complies with a policy.
//! * [`departure`]: converts everything that a pluggable toaster stores, and proves it.
//! * [`run`]: a run over the tables of a server: request, sessions, workers.
//! * [`task`]: session, guard, and what else all tasks share.
//! * [`verdict`]: how work ended (pure); [`error`]: why it cannot continue.
//! * [`result`]: the report; [`listener`]: receives progress, and passes on requests to stop or pause.

pub mod compact;
pub mod compliance;
pub mod departure;
pub(crate) mod error;
pub mod forecast;
pub mod listener;
pub mod memory;
pub mod pace;
pub mod plan;
pub mod preflight;
pub mod reindex;
pub mod result;
pub mod run;
pub mod sql;
pub mod sweep;
pub mod task;
pub mod verdict;
