//! A run of `retoast`: from the request to each table's result.
//!
//! * [`request`]: the request, and which task follows which (pure).
//! * [`sessions`]: the sessions of the server that the run works with.
//! * [`tables`]: prepares all tables and has them worked on; [`worker`]: works on one table at a time, in new sessions
//!   if those of a task have ended.
//! * [`results`]: where each table's result goes.
//! * [`free_space`]: free space in a table's files at the end.

pub(crate) mod free_space;
pub(crate) mod request;
pub(crate) mod results;
pub(crate) mod sessions;
pub(crate) mod tables;
pub(crate) mod worker;
