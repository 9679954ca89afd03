//! A run of `retoast`: from what is asked for to each table's result.
//!
//! * [`request`]: what is asked for, and which task follows which (pure).
//! * [`sessions`]: the sessions of the server that it works with.
//! * [`tables`]: looks at all tables, then has them worked on; [`worker`]: one at a time, in new sessions where those of
//!   a task have ended.
//! * [`results`]: where each table's result goes.
//! * [`free_space`]: what is free in a table's files in the end.

pub(crate) mod free_space;
pub(crate) mod request;
pub(crate) mod results;
pub(crate) mod sessions;
pub(crate) mod tables;
pub(crate) mod worker;
