//! Figures for people, with their 95 % confidence intervals if they are estimates.

use super::units::{percent, ratio, size};
use crate::inspect::result::Quantile;
use toast_format::model::interval::{Amount, Interval};

/// A number with its interval: `≈1000 (900–1100)`.
pub(super) fn count(estimate: &Amount) -> String {
    with_range(guess(estimate), &range(estimate))
}

/// `≈12 MB (11–13 MB)`; without the interval if both ends look the same.
pub(super) fn bytes(estimate: &Amount) -> String {
    let is_narrow = size(estimate.low) == size(estimate.high);
    let range = if is_narrow { String::new() } else { size_range(estimate) };
    with_range(about_size(estimate), &range)
}

fn with_range(guess: String, range: &str) -> String {
    if range.is_empty() { guess } else { format!("{guess} ({range})") }
}

/// A sign before figures that are estimates.
fn about(certain: bool) -> &'static str {
    if certain { "" } else { "≈" }
}

/// A number, without its interval: `≈1000`.
pub(super) fn guess(e: &Amount) -> String {
    format!("{}{}", about(e.low == e.high), e.estimate)
}

/// A size, without its interval: `≈12 MB`.
pub(super) fn about_size(e: &Amount) -> String {
    format!("{}{}", about(e.low == e.high), size(e.estimate))
}

/// `900–1100`; nothing if it was counted.
pub(super) fn range(e: &Amount) -> String {
    if e.low == e.high { String::new() } else { format!("{}–{}", e.low, e.high) }
}

/// Both ends; the unit once if it is the same.
pub(super) fn size_range(e: &Amount) -> String {
    if e.low == e.high {
        return String::new();
    }
    let low = size(e.low);
    let high = size(e.high);
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => format!("{number}–{high}"),
        _ => format!("{low}–{high}"),
    }
}

pub(super) fn about_ratio(e: &Interval) -> String {
    format!("{}{}", about(e.low == e.high), ratio(e.estimate))
}

pub(super) fn ratio_range(e: &Interval) -> String {
    if e.low == e.high { String::new() } else { format!("{}–{}", ratio(e.low), ratio(e.high)) }
}

pub(super) fn about_share(e: &Interval) -> String {
    format!("{}{}", about(e.low == e.high), percent(e.estimate))
}

pub(super) fn quantile(e: &Quantile) -> String {
    let range = match (e.low, e.high) {
        (Some(low), Some(high)) if low == high && low == e.estimate => String::new(),
        (Some(low), Some(high)) => format!("{low}–{high}"),
        (Some(low), None) => format!("from {low}"),
        (None, Some(high)) => format!("to {high}"),
        (None, None) => "?".into(),
    };
    with_range(e.estimate.to_string(), &range)
}

/// The cell of an estimate; empty if it is not known.
pub(super) fn cell<T>(estimate: Option<&T>, text: impl Fn(&T) -> String) -> String {
    estimate.map(text).unwrap_or_default()
}

/// The figure, unless it is zero.
pub(super) fn nonzero(figure: Amount) -> Option<Amount> {
    (figure.estimate > 0).then_some(figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certain_figures_have_no_range() {
        let e = |estimate, low, high| Interval { estimate, low, high };
        assert_eq!(count(&e(7, 7, 7)), "7");
        assert_eq!(count(&e(1000, 900, 1100)), "≈1000 (900–1100)");
        assert_eq!(bytes(&e(12 << 20, 11 << 20, 13 << 20)), "≈12 MB (11–13 MB)");
        assert_eq!(bytes(&e(12 << 10, 500, 13 << 10)), "≈12 kB (500 bytes–13 kB)");
        let q = |low, high| quantile(&Interval { estimate: 5, low, high });
        assert_eq!(
            [q(Some(5), Some(5)), q(Some(4), None), q(None, Some(9)), q(None, None)],
            ["5", "5 (from 4)", "5 (to 9)", "5 (?)"]
        );
    }
}
