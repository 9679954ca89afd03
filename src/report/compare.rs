//! What has changed since an earlier run of `inspect`, for people.

use super::document::Document;
use super::findings;
use super::intervals::{about_ratio, about_size};
use super::table::{Grid, Head, Tone, printable};
use super::units::{counted, not_shown, size};
use crate::findings::finding::Finding;
use crate::inspect::compare::{ColumnChange, RunComparison, TableChange};
use crate::inspect::overview::{ColumnLine, FormLine, TableFigures};
use toast_format::model::interval::Amount;
use toast_format::model::sql::without_public;

/// Adds what has changed. `limit`: tables, columns and findings that are named; the rest is counted.
pub(super) fn text(comparison: &RunComparison, limit: usize, document: &mut Document) {
    let RunComparison { since, bytes_before, bytes_now, tables, columns, .. } = comparison;
    let since = since.as_deref().unwrap_or("the earlier run");
    let change = signed(i128::from(*bytes_now) - i128::from(*bytes_before));
    let change = if change.is_empty() { String::new() } else { format!(" ({change})") };
    let words = format!(
        "Since {since}: tables of both runs took {} with TOAST and indexes, now {}{change}",
        size(*bytes_before),
        size(*bytes_now)
    );
    if document.is_html() {
        document.heading("Changes", 2);
        document.line(&format!("{}.", printable(&words)), 0);
    } else {
        let words = printable(&format!("{words}:"));
        document.line(&document.toned(Tone::Heading, &words), 0);
        document.gap();
    }
    if comparison.read_once > 0 {
        let tables = counted(comparison.read_once, "table");
        document.line(&format!("Left out: {tables} that only one of the runs has read."), 0);
    }
    if tables.is_empty() && columns.is_empty() {
        document.line("No table and no column has changed in size.", 0);
    }
    for (caption, grid) in [
        ("Tables that changed", tables_grid(tables, limit)),
        ("Columns that changed", columns_grid(columns, limit)),
    ] {
        if !grid.is_empty() {
            document.grid(caption, &grid);
            document.gap();
        }
    }
    let has_more = tables.len().max(columns.len()) > limit;
    document.hidden(has_more.then_some("--limit N"), &[]);
    for change in columns.iter().filter_map(settings_change).take(limit) {
        document.line(&format!("Set otherwise: {}.", printable(&change)), 0);
    }
    let lists = [("new", &comparison.new_findings), ("gone", &comparison.gone_findings)];
    for (word, found) in lists {
        named_findings(word, found, limit, document);
    }
}

/// Findings in a line each, with the commands of new ones.
fn named_findings(word: &str, found: &[Finding], limit: usize, document: &mut Document) {
    if found.is_empty() {
        return document.line(&format!("No finding is {word}."), 0);
    }
    let count = found.len() as u64;
    let number = match (word, count) {
        ("gone", 1) => "1 finding is gone".to_owned(),
        ("gone", _) => format!("{count} findings are gone"),
        _ => counted(count, &format!("{word} finding")),
    };
    let words = document.toned(Tone::Heading, &number);
    document.line(&format!("{words}:"), 0);
    for finding in found.iter().take(limit) {
        findings::among_others(finding, word == "new", document);
    }
    if let more @ 1.. = found.len().saturating_sub(limit) {
        document.item(&not_shown(more as u64));
    }
}

/// A difference of sizes with its sign; nothing if there is none.
fn signed(bytes: i128) -> String {
    let amount = size(u64::try_from(bytes.unsigned_abs()).unwrap_or(u64::MAX));
    match bytes {
        0 => String::new(),
        1.. => format!("+{amount}"),
        _ => format!("-{amount}"),
    }
}

/// The difference of a figure that is not there counts as none.
fn change(
    before: Option<&TableFigures>,
    now: Option<&TableFigures>,
    figure: fn(&TableFigures) -> Option<u64>,
) -> i128 {
    let [before, now] = [before, now].map(|figures| figures.and_then(figure).unwrap_or(0));
    i128::from(now) - i128::from(before)
}

/// The difference of what may be estimated: none where it is not known, or the intervals overlap.
fn certain_change(
    before: Option<&TableFigures>,
    now: Option<&TableFigures>,
    figure: fn(&TableFigures) -> Option<Amount>,
) -> i128 {
    // a table that is new or gone has none
    let [before, now] = [before, now].map(|figures| figures.map_or(Some(Amount::exact(0)), figure));
    let (Some(before), Some(now)) = (before, now) else { return 0 };
    if before.low <= now.high && now.low <= before.high {
        return 0;
    }
    i128::from(now.estimate) - i128::from(before.estimate)
}

fn whole_size(figures: &TableFigures) -> String {
    size(figures.bytes_with_indexes())
}

fn free_bytes(figures: &TableFigures) -> Option<Amount> {
    figures.unused_bytes
}

/// The TOAST relation and its index.
fn toast_bytes(figures: &TableFigures) -> Option<u64> {
    Some(figures.toast_bytes.unwrap_or(0).saturating_add(figures.toast_index_bytes.unwrap_or(0)))
}

fn tables_grid(tables: &[TableChange], limit: usize) -> Grid {
    let mut grid = Grid::new(&[
        Head::name("Table"),
        Head::number("Before", 1),
        Head::number("Now", 0),
        Head::number("Change", 0),
        Head::number("Heap", 2),
        Head::number("TOAST", 2),
        Head::number("Indexes", 3),
        Head::number("Free", 1),
        Head::number("Rows", 4),
    ]);
    for TableChange { relation, bytes_change, before, now } in tables.iter().take(limit) {
        let before = before.as_ref();
        let now = now.as_ref();
        let rows = certain_change(before, now, |figures| figures.rows);
        let is_free_known =
            before.and_then(free_bytes).is_some() && now.and_then(free_bytes).is_some();
        grid.row(vec![
            without_public(relation).to_owned(),
            before.map_or_else(|| "new".to_owned(), whole_size),
            now.map_or_else(|| "gone".to_owned(), whole_size),
            signed(i128::from(*bytes_change)),
            signed(change(before, now, |figures| figures.heap_bytes)),
            signed(change(before, now, toast_bytes)),
            signed(change(before, now, |figures| figures.index_bytes)),
            if is_free_known {
                signed(certain_change(before, now, free_bytes))
            } else {
                String::new()
            },
            if rows == 0 { String::new() } else { format!("{rows:+}") },
        ]);
    }
    more_row(&mut grid, tables.iter().map(|table| table.bytes_change), limit, 9);
    grid
}

/// The number of those beyond the limit, and the sum of their changes in the fourth column.
fn more_row(grid: &mut Grid, changes: impl Iterator<Item = i64>, limit: usize, cells: usize) {
    let rest: Vec<i64> = changes.skip(limit).collect();
    if rest.is_empty() {
        return;
    }
    let mut row = vec![format!("({} more)", rest.len())];
    row.resize(cells, String::new());
    if let Some(cell) = row.get_mut(3) {
        *cell = signed(rest.iter().map(|change| i128::from(*change)).sum());
    }
    grid.row(row);
}

fn columns_grid(columns: &[ColumnChange], limit: usize) -> Grid {
    let mut grid = Grid::new(&[
        Head::name("Column"),
        Head::number("Before", 1),
        Head::number("Now", 0),
        Head::number("Change", 0),
        Head::text("Ratio", 2),
        Head::text("Stored mostly", 3),
    ]);
    for ColumnChange { relation, column, bytes_change, before, now } in columns.iter().take(limit) {
        let before = before.as_ref();
        let now = now.as_ref();
        grid.row(vec![
            format!("{}.{column}", without_public(relation)),
            before.map_or_else(|| "new".to_owned(), |line| about_size(&line.stored_bytes)),
            now.map_or_else(|| "gone".to_owned(), |line| about_size(&line.stored_bytes)),
            signed(i128::from(*bytes_change)),
            arrow(before.and_then(ratio_of), now.and_then(ratio_of)),
            arrow(before.and_then(main_form), now.and_then(main_form)),
        ]);
    }
    more_row(&mut grid, columns.iter().map(|column| column.bytes_change), limit, 6);
    grid
}

/// `public.t.v, storage external, compression default -> storage extended, compression lz4`, if a column is set otherwise.
fn settings_change(change: &ColumnChange) -> Option<String> {
    let [before, now] = [change.before.as_ref()?, change.now.as_ref()?].map(|line| {
        let method = line.compression.map_or("default", |method| method.name());
        line.storage.map(|storage| format!("storage {}, compression {method}", storage.name()))
    });
    let before = before?;
    let now = now?;
    let column = format!("{}.{}", without_public(&change.relation), change.column);
    (before != now).then(|| format!("{column}, {before} -> {now}"))
}

fn ratio_of(column: &ColumnLine) -> Option<String> {
    column.ratio.as_ref().map(about_ratio)
}

/// The form that takes the most of a column.
fn main_form(column: &ColumnLine) -> Option<String> {
    let most = column.forms.iter().max_by_key(|form| form.stored_bytes.estimate);
    most.map(FormLine::shown)
}

/// What was, and what is if that is something else.
fn arrow(before: Option<String>, now: Option<String>) -> String {
    match (before, now) {
        (Some(before), Some(now)) if before != now => format!("{before} -> {now}"),
        (_, Some(now)) => now,
        (Some(before), None) => before,
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_the_same_has_not_changed() {
        fn rows(estimate: u64, low: u64, high: u64) -> TableFigures {
            TableFigures { rows: Some(Amount { estimate, low, high }), ..TableFigures::ZERO }
        }
        fn change(before: Option<TableFigures>, now: Option<TableFigures>) -> i128 {
            certain_change(before.as_ref(), now.as_ref(), |figures| figures.rows)
        }
        let read = rows(5000, 5000, 5000);
        assert_eq!(change(Some(rows(4944, 4800, 5100)), Some(read)), 0);
        assert_eq!(change(Some(rows(4000, 3900, 4100)), Some(read)), 1000);
        assert_eq!(change(Some(read), Some(rows(4000, 3900, 4100))), -1000);
        let unread = TableFigures { rows: None, ..TableFigures::ZERO };
        assert_eq!(change(Some(unread), Some(read)), 0);
        assert_eq!(change(None, Some(read)), 5000);
    }
}
