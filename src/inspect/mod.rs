//! The verb `inspect`: what is stored, and what it costs.
//!
//! * [`live`], [`offline`], [`saved`]: the runs, on a server, on files, on saved text.
//! * [`run`]: relations of a server in turn, with what becomes of errors; [`policy`]: how far tables are from one.
//! * [`blocks`], [`estimates`]: what a sample of blocks says of the relation, in [`intervals`].
//! * [`result`]: what is reported; [`values`]: one line a value.
//! * [`contents`]: what is in the values; [`anatomy`]: one value in every detail.
//! * [`orphans`]: chunks that no row refers to.

pub mod anatomy;
pub mod blocks;
pub mod contents;
pub mod estimates;
pub mod intervals;
pub mod live;
pub mod offline;
pub mod orphans;
pub mod policy;
pub mod result;
pub mod run;
pub mod saved;
pub mod values;
