//! The course of a run of `retoast` or `compact` on a page: rate, size, and what it waited for.

use super::charts;
use super::document::Document;
use super::html::legend;
use super::table::{Grid, number, printable, text};
use super::units::size;
use crate::retoast::pace::rules::Cause;
use crate::retoast::result::CoursePoint;

/// Rows of the table about the course.
const ROWS: usize = 30;
/// Bytes written in a second, since the point before.
fn rate(before: &CoursePoint, now: &CoursePoint) -> f64 {
    let ms = now.ms.saturating_sub(before.ms).max(1);
    now.bytes.saturating_sub(before.bytes) as f64 * 1000.0 / ms as f64
}

fn seconds(point: &CoursePoint) -> f64 {
    point.ms as f64 / 1000.0
}

/// Some points, as a row of the table.
struct Row<'a> {
    /// The last point of the row above.
    before: Option<&'a CoursePoint>,
    now: &'a CoursePoint,
    waited_for: Option<Cause>,
}

fn of_chunk<'a>(last: &mut Option<&'a CoursePoint>, chunk: &'a [CoursePoint]) -> Option<Row<'a>> {
    let now = chunk.last()?;
    let waited_for = chunk.iter().rev().find_map(|point| point.waited_for);
    Some(Row { before: last.replace(now), now, waited_for })
}

/// Charts of a course that wrote something, and their table.
pub(super) fn course(points: &[CoursePoint], relation: &str, document: &mut Document) {
    if points.len() < 3 || points.last().is_none_or(|last| last.bytes == 0) {
        return;
    }
    document.heading("Course of the run", 3);
    let pairs = points.iter().zip(points.iter().skip(1));
    let pauses: Vec<(f64, f64)> = pairs
        .clone()
        .filter(|(_, now)| now.waited_for.is_some_and(|reason| reason != Cause::Nice))
        .map(|(before, now)| (seconds(before), seconds(now)))
        .collect();
    // as steps: each rate lasts from one point to the next
    let rates: Vec<(f64, f64)> = pairs
        .flat_map(|(before, now)| [before, now].map(|at| (seconds(at), rate(before, now))))
        .collect();
    let sizes: Vec<(f64, f64)> =
        points.iter().map(|point| (seconds(point), point.size as f64)).collect();
    let name = printable(relation);
    document.block(&charts::course(
        &format!("Rate: {name}"),
        "Bytes of values re-toasted or moved per second, over time.",
        &rates,
        &pauses,
    ));
    document.block(&charts::course(
        &format!("Size: {name}"),
        "Heap, TOAST relation and indexes, over time.",
        &sizes,
        &pauses,
    ));
    if !pauses.is_empty() {
        document.block(&legend(&[("pause", "waited, for what the table names")]));
    }
    let step = points.len().div_ceil(ROWS).max(1);
    let rows: Vec<Row<'_>> = points.chunks(step).scan(None, of_chunk).collect();
    let grid = Grid::from_rows(
        &rows,
        &[
            number("Second", 0, |row| format!("{:.2}", seconds(row.now))),
            number("Written", 0, |row| size(row.now.bytes)),
            number("Per second", 0, |row| {
                row.before.map_or_else(String::new, |before| size(rate(before, row.now) as u64))
            }),
            number("Size", 0, |row| size(row.now.size)),
            number("WAL", 0, |row| size(row.now.wal_bytes)),
            text("Waited for", 0, |row| row.waited_for.map_or("", Cause::text).to_owned()),
        ],
    );
    document.grid(&format!("Course of the run: {relation}"), &grid);
}
