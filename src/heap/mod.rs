//! From pages to tuples to values, wherever the pages come from.
//!
//! * [`scan`]: the walk over a page, what is made of each tuple and value, and the visitors that every source gives
//!   pages to.
//! * [`stats`]: what is counted of values, and how their sizes spread.
//! * [`sample`]: which blocks are read when not all are; [`blocks`]: what each of them holds.
//! * [`problem`]: what could not be read, and where; [`progress`]: what is reported meanwhile.

pub mod blocks;
pub mod problem;
pub mod progress;
pub mod sample;
pub mod scan;
pub mod stats;
