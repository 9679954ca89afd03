//! What is asked of `advise-threshold`.

use super::candidate::Narrowing;
use super::extract::keys::Extract;
use super::workload::Optimize;
use crate::heap::sample::SampleSize;

/// What is asked.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Columns; none: those that hold most.
    pub columns: Vec<String>,
    /// What to compare.
    pub narrowing: Narrowing,
    /// Keys of a document to price in columns of their own.
    pub extract: Option<Extract>,
    /// How much to read; `None`: enough for a good estimate in a short time.
    pub sample: Option<SampleSize>,
    /// The seed of the sample.
    pub seed: u64,
    /// Whether the server shall compress the sample in a temporary table.
    pub exact: bool,
    pub optimize: Optimize,
    pub reads_per_write: Option<f64>,
}
