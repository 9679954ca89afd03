//! From pages to tuples and values, for pages from any source.
//!
//! * [`scan`]: the walk over a page, its tuples and values, and the visitors to which every source passes its pages.
//! * [`stats`]: statistics of values, and the distribution of their sizes.
//! * [`sample`]: which blocks are read if not all are; [`blocks`]: their contents.
//! * [`problem`]: what could not be read, and where; [`progress`]: progress reports.

pub mod blocks;
pub mod problem;
pub mod progress;
pub mod sample;
pub mod scan;
pub mod stats;
