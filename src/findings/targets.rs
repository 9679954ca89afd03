//! Rows near the threshold, and what longer values of `toast_tuple_target` would do to all rows (pure).

use super::content::is_short;
use toast_format::disk::Storage;
use toast_format::disk::pointer::TOAST_POINTER_SIZE;
use toast_format::judge::stock::{already, small};
use toast_format::model::estimate::Tally;
use toast_format::model::policy::VARLENA_HEADER_SIZE;
use toast_format::model::toast::{Incoming, Operation, Placed, Table};
use toast_format::model::{BlocksRead, Form, Interval, StoredValue, TupleTarget};

/// Rows within this fraction of the threshold are near it.
const NEAR: usize = 20;
/// Targets, by the rows that a page then has at least. With one row per page, much of it may stay empty.
const ROWS_TO_A_PAGE: [usize; 3] = [2, 3, 1];

/// A side of the threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Hardly too long for the value to stay in the row.
    Above,
    /// Hardly short enough for it.
    Below,
}

/// Whether a few bytes decide where the longest value of a row is: the side, and the index of its column among
/// the `chosen` ones. `length` is the tuple's.
pub(super) fn near(
    table: &Table,
    chosen: &[usize],
    values: &[StoredValue],
    length: usize,
) -> Option<(Side, usize)> {
    let limit = limit(table);
    let near = table.page.toast_tuple_threshold() / NEAR;
    let mut outside = chosen
        .iter()
        .filter(|&&index| values.get(index).is_some_and(|value| value.form.is_external()));
    match (outside.next(), outside.next()) {
        // the longest that could be moved out
        (None, _) if length <= limit && length + near > limit => {
            let movable = chosen.iter().filter(|&&index| {
                values.get(index).is_some_and(|value| leaves_when_longer(table, index, value))
            });
            let longest =
                movable.max_by_key(|&&index| values.get(index).and_then(|v| v.stored_size));
            longest.map(|&index| (Side::Below, index))
        }
        (Some(&index), None) => {
            let value = values.get(index)?;
            let inside = value.stored_size.unwrap_or(0) + u64::from(VARLENA_HEADER_SIZE);
            let whole = (length + inside as usize).saturating_sub(value.pointer_size as usize);
            (whole > limit && whole <= limit + near).then_some((Side::Above, index))
        }
        _ => None,
    }
}

/// The length up to which rows keep their values (`heap_toast_insert_or_update`, heaptoast.c).
fn limit(table: &Table) -> usize {
    table.page.toast_tuple_threshold().max(table.target.bytes())
}

/// Whether the value would be moved out if the row were too long: what can still be compressed need not.
fn leaves_when_longer(table: &Table, index: usize, value: &StoredValue) -> bool {
    match table.columns.get(index).map(|column| column.storage) {
        Some(Storage::External) => value.form == Form::Plain,
        Some(Storage::Extended) => value.form == Form::Compressed,
        Some(Storage::Plain | Storage::Main) | None => false,
    }
}

/// What a longer target would do to a table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TargetFacts {
    /// The target, in bytes.
    pub(crate) bytes: usize,
    /// Whether a page holds only one of the longest rows.
    pub(crate) fills_pages: bool,
    /// Rows whose length is near this target.
    pub(crate) near: Interval,
    /// The additional bytes that values of rows would take, as far as they take more.
    pub(crate) more: Interval,
    /// Values out of line with a last chunk that is nearly empty, by column.
    pub(crate) short_ends: Vec<Interval>,
    /// All values out of line, by column.
    pub(crate) out_of_line: Vec<Interval>,
}

struct Other {
    table: Table,
    near: Tally,
    more: Tally,
    short_ends: Vec<Tally>,
    out_of_line: Vec<Tally>,
}

/// The longer targets, while rows are examined.
pub(super) struct Targets(Vec<Other>);

impl Targets {
    pub(super) fn new(model: &Table) -> Targets {
        let others = ROWS_TO_A_PAGE.iter().filter_map(|&rows| {
            let bytes = model.page.max_bytes_per_tuple(rows);
            let target = TupleTarget::new(u32::try_from(bytes).ok()?, model.page).ok()?;
            (target > model.target).then(|| Other {
                table: Table { target, ..model.clone() },
                near: Tally::default(),
                more: Tally::default(),
                short_ends: vec![Tally::default(); model.columns.len()],
                out_of_line: vec![Tally::default(); model.columns.len()],
            })
        });
        Targets(others.collect())
    }

    /// Takes a row, whose `chosen` values would be re-toasted.
    pub(super) fn row(&mut self, chosen: &[usize], values: &[StoredValue], length: usize) {
        let toasted = chosen
            .iter()
            .filter_map(|&index| values.get(index))
            .any(|value| value.form == Form::Compressed || value.form.is_external());
        let Some(Other { table, .. }) = self.0.first() else { return };
        if !toasted && length <= table.page.toast_tuple_threshold() {
            return;
        }
        let arriving: Vec<Incoming> = values
            .iter()
            .enumerate()
            .map(|(at, value)| {
                let carried = table.carried(at, value);
                if chosen.contains(&at) { carried.fresh() } else { carried }
            })
            .collect();
        for other in &mut self.0 {
            let mut compress = |index: usize, _| already(values.get(index)?);
            let then = other.table.toast(&arriving, Operation::Update, &mut compress);
            let Ok(then) = then else { continue };
            let stored: Vec<StoredValue> = then.values.iter().map(as_stored).collect();
            let mut more = 0i64;
            for &index in chosen {
                let Some(now) = values.get(index) else { continue };
                let Some(then) = stored.get(index) else { continue };
                more += i64::from(small(then.stored_size).unwrap_or(0));
                more -= i64::from(small(now.stored_size).unwrap_or(0));
                let short = then.form.is_external()
                    && is_short(other.table.page, then.stored_size.unwrap_or(0));
                if let (true, Some(tally)) = (short, other.short_ends.get_mut(index)) {
                    tally.add(1);
                }
                if then.form.is_external()
                    && let Some(tally) = other.out_of_line.get_mut(index)
                {
                    tally.add(1);
                }
            }
            other.more.add(u64::try_from(more).unwrap_or(0));
            if near(&other.table, chosen, &stored, then.tuple_length as usize).is_some() {
                other.near.add(1);
            }
        }
    }

    pub(super) fn end_block(&mut self) {
        for other in &mut self.0 {
            other.near.end_block();
            other.more.end_block();
            let by_column = other.short_ends.iter_mut().chain(&mut other.out_of_line);
            by_column.for_each(Tally::end_block);
        }
    }

    pub(super) fn facts(&self, drawn: BlocksRead) -> Vec<TargetFacts> {
        self.0.iter().map(|other| other.facts(drawn)).collect()
    }
}

impl Other {
    fn facts(&self, drawn: BlocksRead) -> TargetFacts {
        let target = self.table.target.bytes();
        TargetFacts {
            bytes: target,
            fills_pages: target == self.table.page.max_bytes_per_tuple(1),
            near: self.near.total(drawn),
            more: self.more.total(drawn),
            short_ends: self.short_ends.iter().map(|tally| tally.total(drawn)).collect(),
            out_of_line: self.out_of_line.iter().map(|tally| tally.total(drawn)).collect(),
        }
    }
}

/// A value as it would be read again.
fn as_stored(placed: &Placed) -> StoredValue {
    let pointer_size = if placed.form.is_external() { TOAST_POINTER_SIZE as u64 } else { 0 };
    StoredValue {
        form: placed.form,
        method: placed.method,
        raw_size: Some(u64::from(placed.raw_size)),
        stored_size: Some(u64::from(placed.stored_size)),
        pointer_size,
        ..StoredValue::NULL
    }
}
