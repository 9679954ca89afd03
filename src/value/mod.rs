//! One value: how it is stored, and its content (pure, except that values can be written to files).
//!
//! * [`rows`]: one line per value; [`contents`]: reassembled values, including those that are not stored in rows.
//! * [`anatomy`]: every detail of one value; `reading`: whether the server reads it as it is reassembled here.

pub mod anatomy;
pub mod contents;
pub(crate) mod reading;
pub mod rows;
