//! `inspect --explain`: what today's storage of each column costs to read and to change, and how far rows are
//! from the threshold, in the terms of `advise-threshold`, but with chunks where they stand now.

pub mod result;
mod sums;
mod table;
mod widths;
