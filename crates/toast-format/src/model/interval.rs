//! Estimates with 95 % confidence intervals, their sums, and how reports round them.

use schemars::JsonSchema;
use serde::ser::{SerializeStruct, Serializer};
use serde::{Deserialize, Serialize};

/// An estimate with its 95 % confidence interval.
//
// Calculations use real numbers, most reports whole ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
pub struct Interval<T = f64, End = T> {
    /// The best guess.
    pub estimate: T,
    /// The interval's lower end.
    pub low: End,
    /// The interval's upper end.
    pub high: End,
}

/// A number of values, rows or bytes: counted if both ends are the estimate.
pub type Amount = Interval<u64>;

impl<T: Copy> Interval<T> {
    /// The figure with the ends of its interval if they are known.
    pub fn with_ends(self, known: bool) -> Interval<T, Option<T>> {
        Interval {
            estimate: self.estimate,
            low: known.then_some(self.low),
            high: known.then_some(self.high),
        }
    }

    /// An exactly known figure.
    pub fn exact(estimate: T) -> Interval<T> {
        Interval { estimate, low: estimate, high: estimate }
    }
}

impl Interval {
    /// The interval multiplied by `by`.
    pub fn scaled(self, by: f64) -> Interval {
        self.times(Interval::exact(by))
    }

    /// The product with another figure from the same sample; both may be wrong in the same direction.
    pub fn times(self, by: Interval) -> Interval {
        Interval {
            estimate: self.estimate * by.estimate,
            low: self.low * by.low,
            high: self.high * by.high,
        }
    }

    /// The sum with another figure from the same sample.
    pub fn plus(self, more: Interval) -> Interval {
        Interval {
            estimate: self.estimate + more.estimate,
            low: self.low + more.low,
            high: self.high + more.high,
        }
    }

    /// The sum with a figure from another sample, whose error is independent: the squares of the errors add up.
    pub fn plus_independent(self, more: Interval) -> Interval {
        let estimate = self.estimate + more.estimate;
        let below = (self.estimate - self.low).hypot(more.estimate - more.low);
        let above = (self.high - self.estimate).hypot(more.high - more.estimate);
        Interval { estimate, low: estimate - below, high: estimate + above }
    }

    /// The interval widened by `relative` of the estimate plus `absolute`.
    pub fn widened(self, relative: f64, absolute: f64) -> Interval {
        let by = self.estimate.abs() * relative + absolute;
        Interval { low: self.low - by, high: self.high + by, ..self }
    }

    /// The interval of a figure that cannot be negative.
    pub fn at_least_zero(self) -> Interval {
        self.at_least(0.0)
    }

    /// The interval of a figure that cannot be less than `least`.
    pub fn at_least(self, least: f64) -> Interval {
        Interval { low: self.low.max(least), ..self }
    }

    /// The interval of a fraction, which cannot be more than 1.
    pub fn at_most_all(self) -> Interval {
        Interval { high: self.high.min(1.0), ..self }
    }

    /// The interval in whole numbers, rounded outward.
    pub fn whole(self) -> Interval<u64> {
        Interval {
            estimate: self.estimate.round() as u64,
            low: self.low.floor() as u64,
            high: self.high.ceil() as u64,
        }
    }

    /// The interval with four digits, rounded outward unless both ends are equal.
    pub fn ratio(self) -> Interval {
        const UNIT: f64 = 10_000.0;
        let estimate = four_digits(self.estimate);
        if self.low == self.high {
            return Interval::exact(estimate);
        }
        let low = (self.low * UNIT).floor() / UNIT;
        let high = (self.high * UNIT).ceil() / UNIT;
        Interval { estimate, low, high }
    }
}

impl Interval<u64> {
    /// The sum with another figure from the same sample; both may be wrong in the same direction.
    pub fn plus(self, more: Interval<u64>) -> Interval<u64> {
        Interval {
            estimate: self.estimate.saturating_add(more.estimate),
            low: self.low.saturating_add(more.low),
            high: self.high.saturating_add(more.high),
        }
    }

    /// The sum with a figure from another sample, whose error is independent: the squares of the errors add up.
    pub fn plus_independent(self, more: Interval<u64>) -> Interval<u64> {
        let sum = self.real().plus_independent(more.real()).whole();
        Interval { estimate: self.estimate.saturating_add(more.estimate), ..sum }
    }

    /// Whether it was counted, not estimated.
    pub fn is_exact(&self) -> bool {
        self.low == self.high
    }

    /// The same in real numbers, for calculations.
    pub fn real(self) -> Interval {
        Interval { estimate: self.estimate as f64, low: self.low as f64, high: self.high as f64 }
    }

    /// The quotient of two figures; `None` if the divisor is zero.
    pub fn ratio_to(self, below: Interval<u64>) -> Option<Interval> {
        (below.estimate > 0).then(|| Interval {
            estimate: rounded_ratio(self.estimate, below.estimate),
            low: rounded_ratio(self.low, below.high),
            high: rounded_ratio(self.high, below.low),
        })
    }
}

/// A number as it appears in JSON: real numbers with four digits.
pub trait Reported: Copy {
    /// The number, rounded to four digits if it is real.
    fn reported(self) -> impl Serialize;
}

impl Reported for f64 {
    fn reported(self) -> impl Serialize {
        four_digits(self)
    }
}

impl Reported for u64 {
    fn reported(self) -> impl Serialize {
        self
    }
}

impl<T: Reported> Reported for Option<T> {
    fn reported(self) -> impl Serialize {
        self.map(T::reported)
    }
}

fn rounded_ratio(above: u64, below: u64) -> f64 {
    four_digits(above as f64 / below.max(1) as f64)
}

fn four_digits(value: f64) -> f64 {
    // Adding 0.0 turns -0 into 0.
    (value * 1e4).round() / 1e4 + 0.0
}

impl<T: Reported, End: Reported> Serialize for Interval<T, End> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Interval", 3)?;
        fields.serialize_field("estimate", &self.estimate.reported())?;
        fields.serialize_field("low", &self.low.reported())?;
        fields.serialize_field("high", &self.high.reported())?;
        fields.end()
    }
}

/// From the least to the most that is expected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Range {
    /// The least.
    pub low: u64,
    /// The most.
    pub high: u64,
}

impl Range {
    /// Rounds the ends down and up.
    pub fn rounded(low: f64, high: f64) -> Range {
        Range { low: low as u64, high: high.ceil() as u64 }
    }

    /// The sum of both ends.
    pub fn plus(self, more: Range) -> Range {
        Range { low: self.low + more.low, high: self.high + more.high }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn independent_errors_add_up_by_squares_and_counted_figures_have_none() {
        let sum = Interval::exact(100);
        assert_eq!(sum.plus_independent(Interval::exact(7)), Interval::exact(107));
        let sum = sum.plus_independent(Interval { estimate: 50, low: 47, high: 54 });
        let sum = sum.plus_independent(Interval { estimate: 50, low: 46, high: 53 });
        assert_eq!(sum, Interval { estimate: 200, low: 195, high: 205 });
        let one = Interval::exact(1);
        assert_eq!(one.ratio_to(Interval::exact(3)).unwrap().estimate, 0.3333);
        assert!(one.ratio_to(Interval::exact(0)).is_none());
    }

    #[test]
    fn reports_round_outwards_and_json_has_four_digits() {
        let third = Interval { estimate: 1.0 / 3.0, low: 0.111_11, high: 2.0 / 3.0 };
        assert_eq!(third.whole(), Interval { estimate: 0, low: 0, high: 1 });
        let json = |value: Interval| serde_json::to_string(&value).unwrap();
        assert_eq!(json(third), r#"{"estimate":0.3333,"low":0.1111,"high":0.6667}"#);
        assert_eq!(json(third.ratio()), r#"{"estimate":0.3333,"low":0.1111,"high":0.6667}"#);
        assert_eq!(json(Interval { low: 0.111_19, ..third }.ratio()), json(third.ratio()));
        let least = Interval { estimate: -0.000_01, low: -0.5, high: 0.000_04 };
        assert_eq!(json(least), r#"{"estimate":0.0,"low":-0.5,"high":0.0}"#);
        let end = Interval { estimate: 5, low: None, high: Some(7) };
        assert_eq!(serde_json::to_string(&end).unwrap(), r#"{"estimate":5,"low":null,"high":7}"#);
    }
}
