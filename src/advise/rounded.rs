//! Figures as JSON has them, rounded.

use serde::{Serialize, Serializer};

use super::estimate::Figure;
use crate::model::estimate::Estimate;
use crate::model::interval::RatioEstimate;

/// A figure in bytes (or another whole number), with its change against today.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct Whole(#[cfg_attr(feature = "internals", schemars(with = "Changed<u64>"))] pub Figure);

/// A figure with two digits, with its change against today.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct Fraction(#[cfg_attr(feature = "internals", schemars(with = "Changed<f64>"))] pub Figure);

/// A figure with its 95 % confidence interval.
#[derive(Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
struct Changed<T> {
    /// The best guess.
    estimate: T,
    /// The interval's lower end.
    low: T,
    /// The interval's upper end.
    high: T,
    /// Change from today's figure, as a fraction: -0.25 is a quarter less. Null for today's own figures, and where
    /// today's figure is 0.
    change: Option<RatioEstimate>,
}

fn rounded(value: f64, digits: i32) -> f64 {
    let unit = 10f64.powi(digits);
    let rounded = (value * unit).round() / unit;
    if rounded == 0.0 { 0.0 } else { rounded }
}

fn changed<T>(figure: &Figure, round: impl Fn(Estimate) -> [T; 3]) -> Changed<T> {
    let [estimate, low, high] = round(figure.value);
    let change = figure.change.map(|change| RatioEstimate {
        estimate: rounded(change.estimate, 4),
        low: rounded(change.low, 4),
        high: rounded(change.high, 4),
    });
    Changed { estimate, low, high, change }
}

impl Serialize for Whole {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let whole =
            |e: Estimate| [e.estimate.round(), e.low.floor(), e.high.ceil()].map(|n| n as u64);
        changed(&self.0, whole).serialize(serializer)
    }
}

impl Serialize for Fraction {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fraction = |e: Estimate| [e.estimate, e.low, e.high].map(|n| rounded(n, 3));
        changed(&self.0, fraction).serialize(serializer)
    }
}
