//! What all work on a table goes by, whichever task it is: converting values, compacting files, rebuilding indexes.
//!
//! * [`session`]: connections, throttle, stop and listener, and how the user wants the work done.
//! * [`guard`]: the table as it was approved, and the transactions that write it or read it; [`settings`]: what its
//!   columns are set to meanwhile; [`proof`]: whether a batch has changed contents.
//! * [`vacuum`]: VACUUM on the way; [`watched`]: statements that may take long.
//! * [`ends`]: what a report begins with, and what is measured at the end; [`error`]: why a task could not go on.

pub(crate) mod ends;
pub(crate) mod error;
pub(crate) mod guard;
pub(crate) mod proof;
pub(crate) mod session;
pub(crate) mod settings;
pub(crate) mod vacuum;
pub(crate) mod watched;
