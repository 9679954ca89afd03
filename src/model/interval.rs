//! Figures with their 95 % confidence intervals, rounded as reports carry them.

use serde::Serialize;

use super::estimate::Estimate;

/// A whole number with its interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct WholeEstimate {
    /// The best guess.
    pub estimate: u64,
    /// The interval's lower end.
    pub low: u64,
    /// The interval's upper end.
    pub high: u64,
}

impl From<Estimate> for WholeEstimate {
    fn from(e: Estimate) -> WholeEstimate {
        WholeEstimate {
            estimate: e.estimate.round() as u64,
            low: e.low.floor() as u64,
            high: e.high.ceil() as u64,
        }
    }
}

/// A ratio with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct RatioEstimate {
    /// The best guess.
    pub estimate: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
}

impl From<Estimate> for RatioEstimate {
    fn from(e: Estimate) -> RatioEstimate {
        const UNIT: f64 = 10_000.0;
        let estimate = (e.estimate * UNIT).round() / UNIT;
        if e.low == e.high {
            return RatioEstimate { estimate, low: estimate, high: estimate };
        }
        let (low, high) = ((e.low * UNIT).floor() / UNIT, (e.high * UNIT).ceil() / UNIT);
        RatioEstimate { estimate, low, high }
    }
}

/// From the least to the most that is expected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct Range {
    /// The least.
    pub low: u64,
    /// The most.
    pub high: u64,
}

impl Range {
    /// Rounded down and up.
    pub(crate) fn of(low: f64, high: f64) -> Range {
        Range { low: low as u64, high: high.ceil() as u64 }
    }
}
