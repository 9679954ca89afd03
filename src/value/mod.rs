//! One value: how it is stored, and its content (pure, except that values can be written to files).
//!
//! * [`rows`]: one line per value; [`contents`]: reassembled values, including those that are not stored in rows.
//! * [`anatomy`]: every detail of one value.

pub mod anatomy;
pub mod contents;
pub mod rows;
