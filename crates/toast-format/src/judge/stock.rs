//! Whether a stored row is what the choice would store (pure).
//!
//! If pages are available, the TOAST algorithm decides: its input are the row's values as handed over by an UPDATE that
//! makes fresh values of the chosen columns. SQL functions show less, so only values that certainly differ are counted.

use crate::codec::Method;
use crate::disk::Storage;
use crate::judge::toaster::Toaster;
use crate::model::policy::VARLENA_HEADER_SIZE;
use crate::model::stored::{FunctionAnswer, Placement};
use crate::model::toast::{Incoming, Operation, Placed, RowError, Table, Toasted};
use crate::model::{Form, MethodChoice, StoredValue};

/// The verdict on a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compliance {
    /// It is stored as the choice would store it.
    Complies,
    /// It is stored differently.
    Differs,
    /// It depends on whether, and how far, the values of these columns (indexes from 0) can be compressed.
    Depends(Vec<usize>),
}

/// The size of the datum, including 8 bytes of headers, to which the server would compress a value; `None` if it does
/// not compress the value.
pub type CompressedSize = Option<u32>;

/// The operations that may have stored a row; the result of any of them complies.
const OPERATIONS: [Operation; 3] =
    [Operation::Insert, Operation::Update, Operation::UpdateOfExternal];

/// The maximum number of histories tried in addition to these operations.
const MOST_HISTORIES: usize = 32;

/// Decides by the model. `table` has the settings of the choice; `targets` are the indexes of the chosen columns,
/// `follow` those of generated columns that are recomputed with them; `known` returns to what size the server
/// compresses a value, if that was determined.
pub fn by_model(
    table: &Table,
    targets: &[usize],
    follow: &[usize],
    values: &[StoredValue],
    known: &dyn Fn(usize) -> Option<CompressedSize>,
) -> Compliance {
    for &index in targets {
        let (Some(value), Some(column)) = (values.get(index), table.columns.get(index)) else {
            continue;
        };
        let compresses = matches!(column.storage, Storage::Extended | Storage::Main);
        // A value compressed in another way never leaves the toaster unchanged.
        if matches!(value.form, Form::Compressed | Form::ExternalCompressed)
            && (!compresses || value.method.is_none_or(|m| column.method != MethodChoice::One(m)))
        {
            return Compliance::Differs;
        }
    }
    let row = JudgedRow { table, targets, values, known };
    let incoming = incoming(table, targets, follow, values);
    let mut open = Vec::new();
    let mut may_have_been = false;
    for operation in OPERATIONS {
        let (found, mut asked) = row.try_one(&incoming, operation);
        if found == StoredComparison::Same && asked.is_empty() {
            return Compliance::Complies;
        }
        may_have_been |= found == StoredComparison::LessToasted;
        open.append(&mut asked);
    }
    if !open.is_empty() {
        open.sort_unstable();
        open.dedup();
        return Compliance::Depends(open);
    }
    if may_have_been && row.has_history(&incoming, follow) {
        return Compliance::Complies;
    }
    Compliance::Differs
}

/// The result of toasting a row, compared with the stored row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoredComparison {
    Same,
    /// Some stored values are compressed or out of line, but would not be in the result.
    LessToasted,
    Other,
}

/// The row being judged.
struct JudgedRow<'a> {
    table: &'a Table,
    targets: &'a [usize],
    values: &'a [StoredValue],
    known: &'a dyn Fn(usize) -> Option<CompressedSize>,
}

impl JudgedRow<'_> {
    /// Toasts these incoming values and compares the chosen columns. Also returns the columns whose compressed size
    /// must be known for this.
    fn try_one(
        &self,
        incoming: &[Incoming],
        operation: Operation,
    ) -> (StoredComparison, Vec<usize>) {
        let (stored, asked) = self.toast(incoming, operation);
        // A row that is too long for the choice is left for the server to refuse.
        let Ok(stored) = stored else { return (StoredComparison::Other, asked) };
        let mut found = StoredComparison::Same;
        for &index in self.targets {
            let (Some(now), Some(then)) = (self.values.get(index), stored.values.get(index)) else {
                continue;
            };
            if same_form(now, then) {
                continue;
            }
            // A value that can be compressed is not moved out of line uncompressed.
            let compressible = now.method.is_none() && then.method.is_some();
            if compressible || effort(now.form) <= effort(then.form) {
                return (StoredComparison::Other, asked);
            }
            found = StoredComparison::LessToasted;
        }
        (found, asked)
    }

    fn toast(
        &self,
        incoming: &[Incoming],
        operation: Operation,
    ) -> (Result<Toasted, RowError>, Vec<usize>) {
        let mut asked = Vec::new();
        let stored = self.table.toast(incoming, operation, &mut |index: usize, _: Method| {
            if let Some(size) = already(self.values.get(index)?) {
                return Some(size);
            }
            let known = (self.known)(index);
            if known.is_none() {
                asked.push(index);
            }
            known.flatten()
        });
        // Values of other columns that were never compressed are assumed to be incompressible.
        asked.retain(|index| self.targets.contains(index));
        (stored, asked)
    }

    /// Whether one UPDATE may have stored the row as it is, while it also compressed or moved out values of other
    /// columns. Before that UPDATE these values took more space in the row. Now they take less, so another UPDATE would
    /// store the chosen columns differently.
    fn has_history(&self, incoming: &[Incoming], follow: &[usize]) -> bool {
        let mut changed: Vec<(usize, &StoredValue)> = self
            .values
            .iter()
            .enumerate()
            .filter(|(index, value)| {
                !self.targets.contains(index) && !follow.contains(index) && effort(value.form) > 0
            })
            .collect();
        // The longest values are toasted first.
        changed.sort_by_key(|(_, value)| std::cmp::Reverse(value.raw_size));
        let alone = (0..changed.len()).map(|at| at..at + 1);
        let together = (2..=changed.len()).map(|end| 0..end);
        alone.chain(together).take(MOST_HISTORIES).any(|some| {
            let some = changed.get(some).unwrap_or_default();
            let mut forms: Vec<fn(Incoming) -> Incoming> = vec![Incoming::fresh];
            if some.iter().any(|(_, value)| value.form == Form::ExternalCompressed) {
                forms.push(before_moved);
            }
            forms.into_iter().any(|earlier| {
                let mut incoming = incoming.to_vec();
                for (index, _) in some {
                    if let Some(slot) = incoming.get_mut(*index) {
                        *slot = earlier(*slot);
                    }
                }
                OPERATIONS.iter().any(|&operation| self.gives(&incoming, operation))
            })
        })
    }

    /// Whether toasting these values results in exactly the stored row.
    fn gives(&self, incoming: &[Incoming], operation: Operation) -> bool {
        let (stored, asked) = self.toast(incoming, operation);
        asked.is_empty()
            && stored.is_ok_and(|stored| {
                self.values.iter().zip(&stored.values).all(|(now, then)| same_form(now, then))
            })
    }
}

/// How far a value was toasted: compressed, or moved out of line.
fn effort(form: Form) -> u8 {
    match form {
        Form::Compressed => 1,
        Form::External | Form::ExternalCompressed => 2,
        _ => 0,
    }
}

/// A value as it was before it was moved out of line.
fn before_moved(value: Incoming) -> Incoming {
    match value {
        Incoming::Kept { stored, raw, method, compressed: true } => {
            Incoming::Compressed { size: stored.saturating_add(VARLENA_HEADER_SIZE), raw, method }
        }
        other => other.fresh(),
    }
}

/// Whether the server accepts a row of these values.
pub fn fits(table: &Table, targets: &[usize], follow: &[usize], values: &[StoredValue]) -> bool {
    let incoming = incoming(table, targets, follow, values);
    let toasted = table.toast(&incoming, Operation::Update, &mut |index: usize, _: Method| {
        already(values.get(index)?)
    });
    toasted.is_ok()
}

/// The row as an UPDATE that makes fresh values of the chosen columns would store it. A value whose compressed size is
/// not known counts as one that cannot be compressed.
///
/// # Errors
/// The row does not fit on a page.
pub fn stored_anew(
    table: &Table,
    targets: &[usize],
    follow: &[usize],
    values: &[StoredValue],
    known: &dyn Fn(usize) -> Option<CompressedSize>,
) -> Result<Toasted, RowError> {
    let operation = if values.iter().any(|value| value.form.is_external()) {
        Operation::UpdateOfExternal
    } else {
        Operation::Update
    };
    let incoming = incoming(table, targets, follow, values);
    table.toast(&incoming, operation, &mut |index: usize, method: Method| {
        let value = values.get(index)?;
        // of values that are compressed in another way, only an estimate shows the size
        let size = if value.method == Some(method) { already(value) } else { None };
        size.or_else(|| known(index).flatten())
    })
}

/// The values of a row as handed over by an UPDATE that makes fresh values of the chosen columns.
fn incoming(
    table: &Table,
    targets: &[usize],
    follow: &[usize],
    values: &[StoredValue],
) -> Vec<Incoming> {
    let mut incoming = Vec::with_capacity(values.len());
    for (index, value) in values.iter().enumerate() {
        let is_fresh = targets.contains(&index) || follow.contains(&index);
        let carried = table.carried(index, value);
        incoming.push(if is_fresh { carried.fresh() } else { carried });
    }
    incoming
}

/// The size of the compressed datum, if the value is stored as one.
pub fn already(value: &StoredValue) -> CompressedSize {
    match value.form {
        Form::Compressed => small(value.stored_size),
        Form::ExternalCompressed => small(value.stored_size.map(|size| size + 4)),
        _ => None,
    }
}

/// Whether a stored value has the form and method that toasting it results in.
pub fn same_form(now: &StoredValue, then: &Placed) -> bool {
    match now.form {
        Form::Null | Form::Missing | Form::Custom | Form::Unknown => true,
        Form::Short | Form::Plain => matches!(then.form, Form::Short | Form::Plain),
        form => form == then.form && now.method == then.method,
    }
}

/// The size, if it fits into 32 bits as every size of a value does.
pub fn small(size: Option<u64>) -> Option<u32> {
    size.and_then(|size| u32::try_from(size).ok())
}

/// Decides on one value by the results of SQL functions. `method` is the column's effective method; `row` the sum of
/// `pg_column_size` over the row's columns; `threshold` is `TOAST_TUPLE_THRESHOLD`, and `target` the table's
/// `toast_tuple_target`.
pub fn by_functions(
    toaster: Toaster,
    method: Method,
    value: &FunctionAnswer,
    row: u64,
    threshold: u64,
    target: u64,
) -> Compliance {
    let Some(size) = value.value.stored_size else { return Compliance::Complies };
    // The tuple header, and the space that alignment may add to a row just below the limit.
    let may_be_toasted = row + 24 + 64 > threshold;
    match (toaster.storage(), value.value.method) {
        (Storage::Extended | Storage::Main, Some(stored)) if stored != method => {
            Compliance::Differs
        }
        (Storage::Extended | Storage::Main, Some(_)) => Compliance::Complies,
        (Storage::Extended | Storage::Main, None) if may_be_toasted => {
            Compliance::Depends(Vec::new())
        }
        (Storage::Extended | Storage::Main, None) => Compliance::Complies,
        (Storage::External | Storage::Plain, Some(_)) => Compliance::Differs,
        (Storage::External, None)
            if value.placement == Placement::InRow && size > threshold.max(target) =>
        {
            Compliance::Differs
        }
        (Storage::Plain, None) if value.placement == Placement::OutOfLine => Compliance::Differs,
        (Storage::External | Storage::Plain, None) => Compliance::Complies,
    }
}

#[cfg(test)]
mod tests;
