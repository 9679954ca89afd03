//! Figures with their 95 % confidence intervals, as a report on a sample carries them.

use serde::Serialize;

use crate::model::interval::{RatioEstimate, WholeEstimate};

/// Which blocks were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct SampleReport {
    /// Blocks of the relation.
    pub blocks: u64,
    /// Blocks that were read of them.
    pub blocks_read: u64,
    /// The seed of the choice, to which the relation's OID is added without --sample.
    pub seed: u64,
}

/// A quantile of single values with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct QuantileEstimate {
    /// The best guess.
    pub estimate: u64,
    /// The interval's lower end; null if the sample is too small to tell.
    pub low: Option<u64>,
    /// The interval's upper end; null if the sample is too small to tell.
    pub high: Option<u64>,
}

/// Of a distribution of sizes. The smallest and the biggest value cannot be estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct SizeEstimates {
    pub median: QuantileEstimate,
    pub p95: QuantileEstimate,
    pub p99: QuantileEstimate,
}

/// Of the values of one form and method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct FormEstimates {
    pub values: Option<WholeEstimate>,
    /// Content without headers; null if not known of every value.
    pub raw_bytes: Option<WholeEstimate>,
    /// As `pg_column_size` counts; null if not known of every value.
    pub stored_bytes: Option<WholeEstimate>,
    /// TOAST pointers in the rows.
    pub pointer_bytes: Option<WholeEstimate>,
    /// Chunks in the TOAST relation.
    pub chunks: Option<WholeEstimate>,
}

/// Of one column.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct ColumnEstimates {
    /// Values that are not NULL.
    pub values: Option<WholeEstimate>,
    pub nulls: Option<WholeEstimate>,
    /// Values that rows older than the column take from the catalog.
    pub missing: Option<WholeEstimate>,
    /// Content without headers; null if not known of every value.
    pub raw_bytes: Option<WholeEstimate>,
    /// As `pg_column_size` counts; null if not known of every value.
    pub stored_bytes: Option<WholeEstimate>,
    /// TOAST pointers in the rows.
    pub pointer_bytes: Option<WholeEstimate>,
    /// `raw_bytes / stored_bytes`.
    pub ratio: Option<RatioEstimate>,
    /// Chunks in the TOAST relation.
    pub chunks: Option<WholeEstimate>,
    /// Stored bytes and pointers that are in the relation.
    #[serde(skip)]
    pub own_bytes: Option<WholeEstimate>,
    /// The part of the relation's bytes that is this column's.
    pub share: Option<RatioEstimate>,
}
