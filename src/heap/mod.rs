//! From pages to tuples to values, wherever the pages come from.
//!
//! * `walk`: the walk over a page; [`scan`]: over a relation's pages, and what it makes of each value.
//! * [`stats`]: what is counted of values; [`sizes`]: how their sizes spread.
//! * [`sample`]: which blocks are read when not all are.
//! * [`problem`]: what could not be read, and where; [`progress`]: what is reported meanwhile.

pub mod problem;
pub mod progress;
pub mod sample;
pub mod scan;
pub mod sizes;
pub mod stats;
pub(crate) mod walk;
