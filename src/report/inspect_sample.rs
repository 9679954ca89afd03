//! The parts of `inspect`'s report that a sample changes: estimates with their intervals.

use super::table::{Grid, Head};
use super::units::{percent, ratio, size};
use crate::inspect::intervals::{QuantileEstimate, SampleReport};
use crate::inspect::result::{ColumnReport, FormReport, TuplesReport};
use crate::model::interval::{RatioEstimate, WholeEstimate};

/// What was read of what.
pub(super) fn sample_line(sample: &SampleReport) -> String {
    let SampleReport { blocks, blocks_read, seed } = sample;
    let ranges = if blocks_read < blocks { "; ranges are 95 % confidence intervals" } else { "" };
    format!("sample: {blocks_read} of {blocks} blocks, seed {seed}{ranges}")
}

pub(super) fn count(estimate: &WholeEstimate) -> String {
    with_range(guess(estimate), &range(estimate))
}

/// `≈12 MB (11–13 MB)`.
pub(super) fn bytes(estimate: &WholeEstimate) -> String {
    with_range(guessed_size(estimate), &size_range(estimate))
}

/// As the line on all rows, estimated.
pub(super) fn tuples_line(tuples: &TuplesReport) -> String {
    let part = |estimate: &Option<WholeEstimate>, what: &str| {
        estimate.map(|estimate| format!("{} {what}", count(&estimate)))
    };
    let parts = [
        part(&tuples.live_estimate, "live"),
        part(&tuples.dead_estimate, "dead"),
        part(&tuples.unknown_estimate.filter(|e| e.estimate > 0), "of unknown visibility"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("rows: {}", parts.join(", "))
}

fn with_range(guess: String, range: &str) -> String {
    if range.is_empty() { guess } else { format!("{guess} ({range})") }
}

/// A sign before what is not known for sure.
fn about(certain: bool) -> &'static str {
    if certain { "" } else { "≈" }
}

fn guess(e: &WholeEstimate) -> String {
    format!("{}{}", about(e.low == e.high), e.estimate)
}

fn guessed_size(e: &WholeEstimate) -> String {
    format!("{}{}", about(e.low == e.high), size(e.estimate))
}

fn range(e: &WholeEstimate) -> String {
    if e.low == e.high { String::new() } else { format!("{}–{}", e.low, e.high) }
}

/// Both ends; the unit once if it is the same.
fn size_range(e: &WholeEstimate) -> String {
    if e.low == e.high {
        return String::new();
    }
    let (low, high) = (size(e.low), size(e.high));
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => format!("{number}–{high}"),
        _ => format!("{low}–{high}"),
    }
}

fn ratio_cell(e: &RatioEstimate) -> String {
    format!("{}{}", about(e.low == e.high), ratio(e.estimate))
}

fn ratio_range(e: &RatioEstimate) -> String {
    if e.low == e.high { String::new() } else { format!("{}–{}", ratio(e.low), ratio(e.high)) }
}

fn share_cell(e: &RatioEstimate) -> String {
    format!("{}{}", about(e.low == e.high), percent(e.estimate))
}

fn quantile(e: &QuantileEstimate) -> String {
    let range = match (e.low, e.high) {
        (Some(low), Some(high)) if low == high && low == e.estimate => String::new(),
        (Some(low), Some(high)) => format!("{low}–{high}"),
        (Some(low), None) => format!("from {low}"),
        (None, Some(high)) => format!("to {high}"),
        (None, None) => "?".into(),
    };
    with_range(e.estimate.to_string(), &range)
}

/// An estimate's cell; nothing where it is not known.
fn cell<T>(estimate: Option<&T>, text: impl Fn(&T) -> String) -> String {
    estimate.map(text).unwrap_or_default()
}

fn nonzero(estimate: Option<WholeEstimate>) -> Option<WholeEstimate> {
    estimate.filter(|e| e.estimate > 0)
}

pub(super) fn column_grid(columns: &[&ColumnReport]) -> Grid {
    let mut grid = Grid::new(&[
        Head::text("Column", 0),
        Head::text("Type", 5),
        Head::text("Storage", 6),
        Head::text("Compression", 12),
        Head::number("Values", 0),
        Head::number("Values from–to", 2),
        Head::number("Nulls", 7),
        Head::number("Raw", 4),
        Head::number("Raw from–to", 4),
        Head::number("Stored", 0),
        Head::number("Stored from–to", 0),
        Head::number("Ratio", 1),
        Head::number("Ratio from–to", 3),
        Head::number("Chunks", 7),
        Head::number("Share", 1),
        Head::number("Raw median", 9),
        Head::number("Raw p95", 10),
        Head::number("Raw p99", 11),
        Head::number("Stored median", 8),
        Head::number("Stored p95", 10),
        Head::number("Stored p99", 11),
    ]);
    for column in columns {
        let Some(e) = &column.estimates else { continue };
        let (raw, stored) = (&column.raw_size.estimates, &column.stored_size.estimates);
        grid.row(vec![
            column.column.clone(),
            column.type_name.clone(),
            column.storage.into(),
            column.compression.unwrap_or_default().into(),
            cell(e.values.as_ref(), guess),
            cell(e.values.as_ref(), range),
            cell(nonzero(e.nulls).as_ref(), count),
            cell(e.raw_bytes.as_ref(), guessed_size),
            cell(e.raw_bytes.as_ref(), size_range),
            cell(e.stored_bytes.as_ref(), guessed_size),
            cell(e.stored_bytes.as_ref(), size_range),
            cell(e.ratio.as_ref(), ratio_cell),
            cell(e.ratio.as_ref(), ratio_range),
            cell(nonzero(e.chunks).as_ref(), count),
            cell(e.share.as_ref(), share_cell),
            cell(raw.as_ref(), |s| quantile(&s.median)),
            cell(raw.as_ref(), |s| quantile(&s.p95)),
            cell(raw.as_ref(), |s| quantile(&s.p99)),
            cell(stored.as_ref(), |s| quantile(&s.median)),
            cell(stored.as_ref(), |s| quantile(&s.p95)),
            cell(stored.as_ref(), |s| quantile(&s.p99)),
        ]);
    }
    grid
}

/// The forms of a column, biggest first; none if there is no more to say than "plain".
pub(super) fn shown_forms(column: &ColumnReport) -> Vec<&FormReport> {
    let dull = |form: &&FormReport| matches!(form.form, "plain" | "null");
    let mut forms: Vec<&FormReport> = column.forms.iter().collect();
    if forms.iter().all(dull) {
        return Vec::new();
    }
    forms.sort_by_key(|form| std::cmp::Reverse(form.stored_bytes.unwrap_or(0)));
    forms
}

/// Forms of the columns where there is more to say than "plain".
pub(super) fn form_grid(columns: &[&ColumnReport]) -> Grid {
    let mut grid = Grid::new(&[
        Head::text("Column", 0),
        Head::text("Form", 0),
        Head::text("Method", 0),
        Head::number("Values", 0),
        Head::number("Values from–to", 1),
        Head::number("Raw", 4),
        Head::number("Stored", 0),
        Head::number("Stored from–to", 1),
        Head::number("Pointers", 5),
        Head::number("Chunks", 3),
    ]);
    for column in columns {
        for form in shown_forms(column) {
            let Some(e) = &form.estimates else { continue };
            grid.row(vec![
                column.column.clone(),
                form.form.into(),
                form.method.unwrap_or_default().into(),
                cell(e.values.as_ref(), guess),
                cell(e.values.as_ref(), range),
                cell(e.raw_bytes.as_ref(), bytes),
                cell(e.stored_bytes.as_ref(), guessed_size),
                cell(e.stored_bytes.as_ref(), size_range),
                cell(nonzero(e.pointer_bytes).as_ref(), guessed_size),
                cell(nonzero(e.chunks).as_ref(), count),
            ]);
        }
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certain_figures_have_no_range() {
        let e = |estimate, low, high| WholeEstimate { estimate, low, high };
        assert_eq!(count(&e(7, 7, 7)), "7");
        assert_eq!(count(&e(1000, 900, 1100)), "≈1000 (900–1100)");
        assert_eq!(bytes(&e(12 << 20, 11 << 20, 13 << 20)), "≈12 MB (11–13 MB)");
        assert_eq!(bytes(&e(12 << 10, 500, 13 << 10)), "≈12 kB (500 bytes–13 kB)");
        let q = |low, high| quantile(&QuantileEstimate { estimate: 5, low, high });
        assert_eq!(
            [q(Some(5), Some(5)), q(Some(4), None), q(None, Some(9)), q(None, None)],
            ["5", "5 (from 4)", "5 (to 9)", "5 (?)"]
        );
    }
}
