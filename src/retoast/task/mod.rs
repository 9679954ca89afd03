//! What conversion, compaction and the rebuilding of indexes share.
//!
//! * [`session`]: connections, throttle, stop and listener, and the user's options.
//! * [`guard`]: the table as it was approved, and the transactions that write or read it; [`settings`]: the settings of
//!   its columns during the work; [`proof`]: whether a batch has changed contents.
//! * [`vacuum`]: VACUUM during a task; [`watched`]: statements that may take long.

pub(crate) mod guard;
pub(crate) mod proof;
pub(crate) mod session;
pub(crate) mod settings;
pub(crate) mod vacuum;
pub(crate) mod watched;
