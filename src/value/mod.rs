//! One value: how it is stored, and what is in it (pure, but for the files that values are written to).
//!
//! * [`rows`]: one line a value; [`contents`]: values put together, those too that stand in no row.
//! * [`anatomy`]: one value in every detail.

pub mod anatomy;
pub mod contents;
pub mod rows;
