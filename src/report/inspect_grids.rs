//! The tables of `inspect`'s report.

use super::table::{Grid, Head};
use super::units::{optional_size, percent, ratio, size};
use crate::inspect::result::{ColumnReport, FormReport};

/// What the columns hold.
pub(super) fn column_grid(columns: &[&ColumnReport]) -> Grid {
    let mut grid = Grid::new(&[
        Head::text("Column", 0),
        Head::text("Type", 2),
        Head::text("Storage", 3),
        Head::text("Compression", 12),
        Head::number("Values", 0),
        Head::number("Nulls", 4),
        Head::number("Missing", 5),
        Head::number("Raw", 1),
        Head::number("Stored", 0),
        Head::number("Ratio", 0),
        Head::number("Chunks", 4),
        Head::number("Share", 0),
        Head::number("Raw min", 11),
        Head::number("Raw median", 7),
        Head::number("Raw p95", 10),
        Head::number("Raw p99", 11),
        Head::number("Raw max", 9),
        Head::number("Stored min", 10),
        Head::number("Stored median", 6),
        Head::number("Stored p95", 7),
        Head::number("Stored p99", 9),
        Head::number("Stored max", 8),
    ]);
    let number = |n: Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
    let nonzero = |n: u64| if n > 0 { n.to_string() } else { String::new() };
    for column in columns {
        grid.row(vec![
            column.column.clone(),
            column.type_name.clone(),
            column.storage.into(),
            column.compression.unwrap_or_default().into(),
            column.values.to_string(),
            nonzero(column.nulls),
            nonzero(column.missing),
            optional_size(column.raw_bytes),
            optional_size(column.stored_bytes),
            column.ratio.map(ratio).unwrap_or_default(),
            nonzero(column.chunks),
            column.share.map(percent).unwrap_or_default(),
            number(column.raw_size.min),
            number(column.raw_size.median),
            number(column.raw_size.p95),
            number(column.raw_size.p99),
            number(column.raw_size.max),
            number(column.stored_size.min),
            number(column.stored_size.median),
            number(column.stored_size.p95),
            number(column.stored_size.p99),
            number(column.stored_size.max),
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
        Head::number("Raw", 1),
        Head::number("Stored", 0),
        Head::number("Pointers", 3),
        Head::number("Ratio", 0),
        Head::number("Chunks", 2),
    ]);
    for column in columns {
        for form in shown_forms(column) {
            let nonzero = |n: u64| if n > 0 { n.to_string() } else { String::new() };
            grid.row(vec![
                column.column.clone(),
                form.form.into(),
                form.method.unwrap_or_default().into(),
                form.values.to_string(),
                optional_size(form.raw_bytes),
                optional_size(form.stored_bytes),
                if form.pointer_bytes > 0 { size(form.pointer_bytes) } else { String::new() },
                form.ratio.map(ratio).unwrap_or_default(),
                nonzero(form.chunks),
            ]);
        }
    }
    grid
}

/// How far the columns are from a policy.
pub(super) fn policy_grid(columns: &[&ColumnReport]) -> Grid {
    let mut grid = Grid::new(&[
        Head::text("Column", 0),
        Head::text("Policy", 0),
        Head::text("Method", 0),
        Head::number("Values", 2),
        Head::number("Comply", 0),
        Head::number("Share", 0),
        Head::number("Stored", 2),
        Head::number("Comply stored", 1),
        Head::number("Share of stored", 0),
    ]);
    let share = |part: u64, whole: u64| {
        if whole > 0 { percent(part as f64 / whole as f64) } else { String::new() }
    };
    for column in columns {
        let Some(policy) = &column.policy else { continue };
        grid.row(vec![
            column.column.clone(),
            policy.policy.clone(),
            policy.method.clone(),
            policy.values.to_string(),
            policy.complying_values.to_string(),
            share(policy.complying_values, policy.values),
            size(policy.bytes),
            size(policy.complying_bytes),
            share(policy.complying_bytes, policy.bytes),
        ]);
    }
    grid
}

/// Values of pluggable toasters.
pub(super) fn toaster_grid(columns: &[&ColumnReport]) -> Grid {
    let mut grid = Grid::new(&[
        Head::text("Column", 0),
        Head::text("Toaster", 0),
        Head::text("Pointer", 0),
        Head::number("Values", 0),
        Head::number("Raw", 3),
        Head::number("In row", 1),
        Head::number("In chunks", 2),
        Head::number("Chunks", 4),
    ]);
    for column in columns {
        for report in &column.toasters {
            let toaster = report.toaster.clone();
            grid.row(vec![
                column.column.clone(),
                toaster.unwrap_or_else(|| format!("OID {}", report.toaster_oid)),
                report.pointer_kind.into(),
                report.values.to_string(),
                optional_size(report.raw_bytes),
                size(report.inline_bytes),
                optional_size(report.chunk_bytes),
                report.chunks.to_string(),
            ]);
        }
    }
    grid
}
