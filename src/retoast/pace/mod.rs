//! When a run waits for others.
//!
//! * [`rules`]: when (pure); [`garbage`]: what batches have left behind for vacuum (pure); [`slots`]: replication slots that
//!   the server gives up beyond a limit (pure).
//! * [`metrics`]: what is measured; [`measuring`]: by which connection; [`space`]: where a table and the WAL grow, and what
//!   is free there; [`throttle`]: measuring and waiting.
//! * [`lock_tries`]: locks in short tries.

pub mod garbage;
pub mod lock_tries;
pub mod measuring;
pub mod metrics;
pub mod rules;
pub mod slots;
pub mod space;
pub mod throttle;
