//! The parts of `inspect`'s report that a sample changes: estimates with their intervals.

use super::table::{Grid, number, text};
use super::units::{percent, ratio, size};
use crate::inspect::result::{ColumnReport, FormReport, TuplesReport};
use crate::inspect::result::{Quantile, SampleReport};
use toast_format::model::interval::Interval;

/// How much of the relation was read.
pub(super) fn sample_line(sample: &SampleReport) -> String {
    let SampleReport { blocks, blocks_read, seed } = sample;
    let ranges = if blocks_read < blocks { "; ranges are 95 % confidence intervals" } else { "" };
    format!("sample: {blocks_read} of {blocks} blocks, seed {seed}{ranges}")
}

pub(super) fn count(estimate: &Interval<u64>) -> String {
    with_range(guess(estimate), &range(estimate))
}

/// `≈12 MB (11–13 MB)`.
pub(super) fn bytes(estimate: &Interval<u64>) -> String {
    with_range(about_size(estimate), &size_range(estimate))
}

/// The line about rows, with estimates.
pub(super) fn tuples_line(tuples: &TuplesReport) -> String {
    let parts = [
        (tuples.live_estimate, "live"),
        (tuples.dead_estimate, "dead"),
        (nonzero(tuples.unknown_estimate), "of unknown visibility"),
    ];
    let known =
        parts.iter().filter_map(|(rows, what)| Some(format!("{} {what}", count(&(*rows)?))));
    format!("rows: {}", known.collect::<Vec<_>>().join(", "))
}

fn with_range(guess: String, range: &str) -> String {
    if range.is_empty() { guess } else { format!("{guess} ({range})") }
}

/// A sign before figures that are estimates.
fn about(certain: bool) -> &'static str {
    if certain { "" } else { "≈" }
}

fn guess(e: &Interval<u64>) -> String {
    format!("{}{}", about(e.low == e.high), e.estimate)
}

pub(super) fn about_size(e: &Interval<u64>) -> String {
    format!("{}{}", about(e.low == e.high), size(e.estimate))
}

fn range(e: &Interval<u64>) -> String {
    if e.low == e.high { String::new() } else { format!("{}–{}", e.low, e.high) }
}

/// Both ends; the unit once if it is the same.
fn size_range(e: &Interval<u64>) -> String {
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

fn ratio_range(e: &Interval) -> String {
    if e.low == e.high { String::new() } else { format!("{}–{}", ratio(e.low), ratio(e.high)) }
}

fn about_share(e: &Interval) -> String {
    format!("{}{}", about(e.low == e.high), percent(e.estimate))
}

fn quantile(e: &Quantile) -> String {
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

fn nonzero(estimate: Option<Interval<u64>>) -> Option<Interval<u64>> {
    estimate.filter(|e| e.estimate > 0)
}

pub(super) fn column_grid(columns: &[&ColumnReport]) -> Grid {
    let estimated = columns.iter().filter_map(|c| Some((*c, c.estimates.as_ref()?)));
    Grid::from_rows(
        &estimated.collect::<Vec<_>>(),
        &[
            text("Column", 0, |(c, _)| c.column.clone()),
            text("Type", 5, |(c, _)| c.type_name.clone()),
            text("Storage", 6, |(c, _)| c.storage.into()),
            text("Compression", 12, |(c, _)| c.compression.unwrap_or_default().into()),
            number("Values", 0, |(_, e)| cell(e.values.as_ref(), guess)),
            number("Values from–to", 2, |(_, e)| cell(e.values.as_ref(), range)),
            number("Nulls", 7, |(_, e)| cell(nonzero(e.nulls).as_ref(), count)),
            number("Raw", 4, |(_, e)| cell(e.raw_bytes.as_ref(), about_size)),
            number("Raw from–to", 4, |(_, e)| cell(e.raw_bytes.as_ref(), size_range)),
            number("Stored", 0, |(_, e)| cell(e.stored_bytes.as_ref(), about_size)),
            number("Stored from–to", 0, |(_, e)| cell(e.stored_bytes.as_ref(), size_range)),
            number("Ratio", 1, |(_, e)| cell(e.ratio.as_ref(), about_ratio)),
            number("Ratio from–to", 3, |(_, e)| cell(e.ratio.as_ref(), ratio_range)),
            number("Chunks", 7, |(_, e)| cell(nonzero(e.chunks).as_ref(), count)),
            number("Share", 1, |(_, e)| cell(e.share.as_ref(), about_share)),
            number("Raw median", 9, |(c, _)| {
                cell(c.raw_size.estimates.as_ref(), |s| quantile(&s.median))
            }),
            number("Raw p95", 10, |(c, _)| {
                cell(c.raw_size.estimates.as_ref(), |s| quantile(&s.p95))
            }),
            number("Raw p99", 11, |(c, _)| {
                cell(c.raw_size.estimates.as_ref(), |s| quantile(&s.p99))
            }),
            number("Stored median", 8, |(c, _)| {
                cell(c.stored_size.estimates.as_ref(), |s| quantile(&s.median))
            }),
            number("Stored p95", 10, |(c, _)| {
                cell(c.stored_size.estimates.as_ref(), |s| quantile(&s.p95))
            }),
            number("Stored p99", 11, |(c, _)| {
                cell(c.stored_size.estimates.as_ref(), |s| quantile(&s.p99))
            }),
        ],
    )
}

/// The forms of a column, biggest first; none if there is no more to say than "plain".
pub(super) fn shown_forms(column: &ColumnReport) -> Vec<&FormReport> {
    if column.forms.iter().all(|form| matches!(form.form, "plain" | "null")) {
        return Vec::new();
    }
    let mut forms: Vec<&FormReport> = column.forms.iter().collect();
    forms.sort_by_key(|form| std::cmp::Reverse(form.stored_bytes.unwrap_or(0)));
    forms
}

/// Forms of the columns where there is more to say than "plain".
pub(super) fn form_grid(columns: &[&ColumnReport]) -> Grid {
    let forms = columns.iter().flat_map(|c| shown_forms(c).into_iter().map(move |f| (*c, f)));
    let estimated = forms.filter_map(|(c, f)| Some((c, f, f.estimates.as_ref()?)));
    Grid::from_rows(
        &estimated.collect::<Vec<_>>(),
        &[
            text("Column", 0, |(c, _, _)| c.column.clone()),
            text("Form", 0, |(_, f, _)| f.form.into()),
            text("Method", 0, |(_, f, _)| f.method.unwrap_or_default().into()),
            number("Values", 0, |(_, _, e)| cell(e.values.as_ref(), guess)),
            number("Values from–to", 1, |(_, _, e)| cell(e.values.as_ref(), range)),
            number("Raw", 4, |(_, _, e)| cell(e.raw_bytes.as_ref(), bytes)),
            number("Stored", 0, |(_, _, e)| cell(e.stored_bytes.as_ref(), about_size)),
            number("Stored from–to", 1, |(_, _, e)| cell(e.stored_bytes.as_ref(), size_range)),
            number("Pointers", 5, |(_, _, e)| cell(nonzero(e.pointer_bytes).as_ref(), about_size)),
            number("Chunks", 3, |(_, _, e)| cell(nonzero(e.chunks).as_ref(), count)),
        ],
    )
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
