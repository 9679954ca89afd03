//! The verb `inspect`: what is stored, and what it costs.
//!
//! * [`scan`]: from pages to values; [`stats`]: what is counted of them.
//! * [`live`], [`offline`], [`saved`]: the runs, on a server, on files, on saved text.
//! * [`blocks`], [`estimates`]: what a sample of blocks tells of the relation.
//! * [`result`]: what is reported; [`values`]: one line a value.
//! * [`contents`]: what is in the values; [`anatomy`]: one value in every detail.
//! * [`orphans`]: chunks that no row refers to.
//! * [`problem`]: what could not be read, and where; [`progress`]: what is told meanwhile.

pub mod anatomy;
pub mod blocks;
pub mod contents;
pub mod estimates;
pub mod live;
pub mod offline;
pub mod orphans;
pub mod problem;
pub mod progress;
pub mod result;
pub mod saved;
pub mod scan;
pub mod stats;
pub mod values;
