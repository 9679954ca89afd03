//! Figures as JSON has them, rounded.

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

use super::estimate::Figure;
use crate::model::estimate::Estimate;

/// A figure in bytes (or another whole number), with its change against today.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Whole(pub Figure);

/// A figure with two digits, with its change against today.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fraction(pub Figure);

/// A change, as a part.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Change(Estimate);

fn rounded(value: f64, digits: i32) -> f64 {
    let unit = 10f64.powi(digits);
    let rounded = (value * unit).round() / unit;
    if rounded == 0.0 { 0.0 } else { rounded }
}

impl Serialize for Change {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut s = serializer.serialize_struct("Change", 3)?;
        s.serialize_field("estimate", &rounded(self.0.estimate, 4))?;
        s.serialize_field("low", &rounded(self.0.low, 4))?;
        s.serialize_field("high", &rounded(self.0.high, 4))?;
        s.end()
    }
}

impl Serialize for Whole {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Estimate { estimate, low, high } = self.0.value;
        let mut s = serializer.serialize_struct("Figure", 4)?;
        s.serialize_field("estimate", &(estimate.round() as u64))?;
        s.serialize_field("low", &(low.floor() as u64))?;
        s.serialize_field("high", &(high.ceil() as u64))?;
        s.serialize_field("change", &self.0.change.map(Change))?;
        s.end()
    }
}

impl Serialize for Fraction {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Estimate { estimate, low, high } = self.0.value;
        let mut s = serializer.serialize_struct("Figure", 4)?;
        s.serialize_field("estimate", &rounded(estimate, 3))?;
        s.serialize_field("low", &rounded(low, 3))?;
        s.serialize_field("high", &rounded(high, 3))?;
        s.serialize_field("change", &self.0.change.map(Change))?;
        s.end()
    }
}
