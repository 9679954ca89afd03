//! A run of `retoast`: from what is asked for to each table's result.
//!
//! * [`request`]: what is asked for.
//! * [`sessions`]: the sessions of the server that it works with; [`source`]: what its scans go by.
//! * [`tables`]: looks at all tables, then has them swept; [`worker`]: sweeps one at a time, and goes on in new
//!   sessions where those of a sweep have ended; [`partitioned`]: what new partitions will take.
//! * [`free_space`]: what is free in a table's files once it is swept.
//! * [`departure`]: takes everything from a pluggable toaster.
//! * [`failure`]: what an error means for the run.

pub(crate) mod departure;
pub(crate) mod failure;
pub(crate) mod free_space;
pub(crate) mod partitioned;
pub(crate) mod request;
pub(crate) mod sessions;
pub(crate) mod source;
pub(crate) mod tables;
pub(crate) mod worker;
