//! When the sweep waits for others.
//!
//! * [`manners`]: the rules (pure).
//! * [`garbage`]: what the sweep has left behind for vacuum (pure); [`speed`]: how much a transaction does (pure).
//! * [`slots`]: replication slots that the server gives up beyond a limit (pure).
//! * [`space`]: where a table and the WAL grow, and what is free there.
//! * [`gauges`]: what is measured; [`measuring`]: by which connection; [`keeper`]: measuring and waiting.
//! * [`control`]: what is asked from outside; [`lock_tries`]: locks in short tries;
//!   `stuck`: statements of ours that wait on the server.

pub mod control;
pub mod error;
pub mod garbage;
pub mod gauges;
pub mod keeper;
pub mod lock_tries;
pub mod manners;
pub mod measuring;
pub mod slots;
pub mod space;
pub(crate) mod speed;
pub(crate) mod stuck;
