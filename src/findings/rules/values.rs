//! How values are stored: against the column's settings, or without benefit.

use crate::command::shell_quoted;
use crate::findings::code::Code;
use crate::findings::facts::{ColumnFacts, DamageFacts, Facts, ToasterFacts};
use crate::findings::finding::{Finding, Unit};
use crate::findings::look::{Count, Counted};
use toast_format::disk::Storage;
use toast_format::model::Interval;

/// The fraction of a column's bytes that is worth reporting.
const TOLD: f64 = 0.05;
/// From this fraction of the compressed bytes, all compression of the column counts as useless.
pub(super) const NEARLY_ALL: f64 = 0.9;
/// The fewest rows or values that are reported.
pub(super) const LEAST: f64 = 1000.0;
/// The fraction that compression must save of values that are stored uncompressed on purpose.
const SAVES: f64 = 0.2;
/// The fraction of values that must be in a compressed format.
const HALF: f64 = 0.5;
/// The fraction of the heap that storage main must take.
const WIDE: f64 = 0.5;

/// Damage that was seen while figures were counted.
fn damage(facts: &Facts) -> Option<Finding> {
    let DamageFacts { missing_chunks, places } = facts.damage;
    let mut seen = Vec::new();
    if missing_chunks > 0 {
        seen.push(format!("chunks are missing (at least {missing_chunks})"));
    }
    if places > 0 {
        seen.push(format!("bytes on pages make no sense (places: {places})"));
    }
    if seen.is_empty() {
        return None;
    }
    let number = Interval::exact((missing_chunks + places) as f64);
    let command = facts.table.check();
    let what = seen.join("; ");
    Some(Finding { command, ..facts.finding(Code::Damage, number, Unit::Places, what) })
}

pub(super) fn add(facts: &Facts, out: &mut Vec<Finding>) {
    out.extend(damage(facts));
    out.extend(facts.columns.iter().filter_map(|column| by_default_toaster(facts, column)));
    for column in facts.stock_columns() {
        match facts.counted(column) {
            Some(counted) => by_rows(facts, column, counted, out),
            None => out.extend(
                column.other_method.and_then(|(values, bytes)| older(facts, column, values, bytes)),
            ),
        }
    }
}

/// What follows from the forms of values, with any settings.
pub(super) fn add_of_forms(facts: &Facts, out: &mut Vec<Finding>) {
    for column in &facts.columns {
        let Some(counted) = facts.counted(column) else { continue };
        out.extend(idle(facts, column, counted));
    }
}

fn by_rows(facts: &Facts, column: &ColumnFacts, counted: &Counted, out: &mut Vec<Finding>) {
    let values = counted.of(Count::OlderValues);
    let bytes = counted.of(Count::OlderBytes);
    let by_form = older(facts, column, values, bytes);
    out.extend(by_form.or_else(|| compressible(facts, column, counted)));
    out.extend(precompressed(facts, column, counted));
    out.extend(uncompressed(facts, column, counted));
    out.extend(idle(facts, column, counted));
    out.extend(fitting(facts, column, counted));
    out.extend(wide(facts, column, counted));
    out.extend(plain(facts, column, counted));
}

/// Whether the lower bound of these bytes is worth reporting.
fn is_worth(facts: &Facts, bytes: Interval) -> bool {
    bytes.low >= facts.worth as f64
}

fn older(
    facts: &Facts,
    column: &ColumnFacts,
    values: Interval,
    bytes: Interval,
) -> Option<Finding> {
    if !is_worth(facts, bytes) || values.low < 1.0 || facts.needs_its_compression(column) {
        return None;
    }
    let mut how = column.storage.name().to_owned();
    if column.storage.compresses() {
        how.push_str(&format!(", {}", column.method.name()));
    }
    let what = format!("not stored according to the column's settings ({how})");
    Some(facts.finding_of(column, Code::OlderSetting, bytes, Unit::Bytes, what))
}

/// Values that the default toaster has stored before another one was set for the column.
fn by_default_toaster(facts: &Facts, column: &ColumnFacts) -> Option<Finding> {
    let ToasterFacts { name, others } = column.toaster.as_ref()?;
    let (values, bytes) = (*others)?;
    if !is_worth(facts, bytes) || values.low < 1.0 {
        return None;
    }
    let what = format!("not stored by the column's toaster ({name})");
    let how = format!("--toaster {}", shell_quoted(name));
    let command = facts.table.retoast(&column.name, &how);
    let finding = facts.finding_of(column, Code::OlderSetting, bytes, Unit::Bytes, what);
    Some(Finding { command, ..finding })
}

/// Values that the column would compress if they were written now.
fn compressible(facts: &Facts, column: &ColumnFacts, counted: &Counted) -> Option<Finding> {
    if !column.storage.compresses() {
        return None;
    }
    let part = column.contents.compressible?;
    let bytes = counted.of(Count::ShortUncompressedBytes).times(part);
    if part.low >= TOLD { older(facts, column, Interval::exact(1.0), bytes) } else { None }
}

fn precompressed(facts: &Facts, column: &ColumnFacts, counted: &Counted) -> Option<Finding> {
    if column.storage != Storage::Extended || facts.needs_its_compression(column) {
        return None;
    }
    let part = column.contents.compressed?;
    let bytes = counted.of(Count::UncompressedBytes).times(part);
    if part.low < HALF || !is_worth(facts, bytes) {
        return None;
    }
    let what = "in already compressed formats";
    Some(facts.finding_of(column, Code::Precompressed, bytes, Unit::Bytes, what))
}

/// Values of a column that does not compress. If some are compressed, a policy has chosen which ones.
pub(super) fn uncompressed(
    facts: &Facts,
    column: &ColumnFacts,
    counted: &Counted,
) -> Option<Finding> {
    if column.storage != Storage::External {
        return None;
    }
    let saves = column.contents.savings?;
    let bytes = counted.of(Count::ShortUncompressedBytes).times(saves);
    if saves.low < SAVES
        || !is_worth(facts, bytes)
        || counted.of(Count::CompressedRaw).estimate > 0.0
    {
        return None;
    }
    let what = "would be saved by compression";
    Some(facts.finding_of(column, Code::NoCompression, bytes, Unit::Bytes, what))
}

fn idle(facts: &Facts, column: &ColumnFacts, counted: &Counted) -> Option<Finding> {
    let idle = counted.of(Count::IdleRaw);
    let raw = counted.of(Count::Raw);
    if !is_worth(facts, idle) || idle.low < raw.estimate * TOLD {
        return None;
    }
    if facts.needs_its_compression(column) {
        return None;
    }
    let what = "compressed, but hardly smaller";
    Some(facts.finding_of(column, Code::IdleCompression, idle, Unit::Bytes, what))
}

fn fitting(facts: &Facts, column: &ColumnFacts, counted: &Counted) -> Option<Finding> {
    let values = counted.of(Count::FittingValues);
    let bytes = counted.of(Count::FittingBytes);
    if !is_worth(facts, bytes) || values.low < LEAST {
        return None;
    }
    let main = counted.of(Count::MainBytes).high + bytes.high;
    if column.storage == Storage::Main && is_wide(facts, main, bytes.high) {
        // otherwise `wide-heap` would advise to move them out of the rows again
        return None;
    }
    let what = "out of line, but would now be stored in the row";
    Some(facts.finding_of(column, Code::FitsTheRow, bytes, Unit::Bytes, what))
}

fn wide(facts: &Facts, column: &ColumnFacts, counted: &Counted) -> Option<Finding> {
    let bytes = counted.of(Count::MainBytes);
    if !is_worth(facts, bytes) || !is_wide(facts, bytes.low, 0.0) {
        return None;
    }
    let what = "kept in long rows by storage main";
    Some(facts.finding_of(column, Code::WideHeap, bytes, Unit::Bytes, what))
}

/// Whether values that storage main keeps in long rows take much of the heap, once it has grown by `more` bytes.
fn is_wide(facts: &Facts, main: f64, more: f64) -> bool {
    let heap = facts.heap.map_or(0, |heap| heap.bytes);
    main >= (heap as f64 + more) * WIDE
}

fn plain(facts: &Facts, column: &ColumnFacts, counted: &Counted) -> Option<Finding> {
    let rows = counted.of(Count::NearPage);
    if rows.low < 1.0 {
        return None;
    }
    let most = facts.page.toast_tuple_target_main();
    let what = format!("over 3/4 of the {most} bytes that a row can have, with storage plain");
    let command = facts.table.alter_column(&column.name, "SET STORAGE EXTENDED");
    let finding = facts.finding_of(column, Code::PlainLimit, rows, Unit::Rows, what);
    Some(Finding { command, ..finding })
}
