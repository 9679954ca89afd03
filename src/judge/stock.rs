//! Whether a stored row is what the choice would store (pure).
//!
//! With pages at hand the toaster's own algorithm decides, fed with the row's values as an UPDATE
//! that forces the chosen columns would hand them over. Through SQL functions less is to be seen,
//! and only what surely differs counts.

use crate::codec::Method;
use crate::disk::desc::Storage;
use crate::judge::toaster::Toaster;
use crate::model::policy::{MethodChoice, VARLENA_HEADER_SIZE};
use crate::model::stored::{Form, FunctionAnswer, Placement, StoredValue};
use crate::model::toast::{Incoming, Operation, Placed, Table, ToastError, Toasted};

/// What is known of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compliance {
    /// It is stored as the choice would store it.
    Complies,
    /// It is stored otherwise.
    Differs,
    /// It depends on whether these columns' values (indexes from 0) can be compressed, and on how
    /// far.
    Depends(Vec<usize>),
}

/// The size of the datum, with its 8 bytes of headers, into which the server would compress a value;
/// `None` if it leaves the value as it is.
pub type Compressed = Option<u32>;

/// Ways in which a row may have come to be stored: what any of them gives complies.
const OPERATIONS: [Operation; 3] =
    [Operation::Insert, Operation::Update, Operation::UpdateOfExternal];

/// How many ways in which a row may have come to be stored are tried besides those.
const MOST_HISTORIES: usize = 32;

/// Decides by the model. `table` is as the choice sets it; `targets` are the chosen columns'
/// indexes, `follow` those of generated columns that are computed anew with them; `known` says what
/// the server makes of a value where that was asked.
pub fn by_model(
    table: &Table,
    targets: &[usize],
    follow: &[usize],
    values: &[StoredValue],
    known: &dyn Fn(usize) -> Option<Compressed>,
) -> Compliance {
    for &index in targets {
        let (Some(value), Some(column)) = (values.get(index), table.columns.get(index)) else {
            continue;
        };
        let compresses = matches!(column.storage, Storage::Extended | Storage::Main);
        let other = |method: Method| column.method != MethodChoice::One(method);
        // what is compressed otherwise never comes out of the toaster as it is
        if matches!(value.form, Form::Compressed | Form::ExternalCompressed)
            && (!compresses || value.method.is_none_or(other))
        {
            return Compliance::Differs;
        }
    }
    let row = Judged { table, targets, values, known };
    let incoming = incoming(table, targets, follow, values);
    let mut open = Vec::new();
    let mut may_have_been = false;
    for operation in OPERATIONS {
        let (found, mut asked) = row.try_one(&incoming, operation);
        if found == Comparison::Same && asked.is_empty() {
            return Compliance::Complies;
        }
        may_have_been |= found == Comparison::LessToasted;
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

/// What comes of a row, compared with what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    /// The same.
    Same,
    /// Values are compressed or out of line now that would not be.
    LessToasted,
    /// Something else.
    Other,
}

/// A row that is judged.
struct Judged<'a> {
    table: &'a Table,
    targets: &'a [usize],
    values: &'a [StoredValue],
    known: &'a dyn Fn(usize) -> Option<Compressed>,
}

impl Judged<'_> {
    /// Stores values that arrive so, and compares the chosen columns; gives the columns whose compressed size
    /// has to be known for that.
    fn try_one(&self, incoming: &[Incoming], operation: Operation) -> (Comparison, Vec<usize>) {
        let (stored, asked) = self.toast(incoming, operation);
        // a row too big for the choice is the server's to refuse
        let Ok(stored) = stored else { return (Comparison::Other, asked) };
        let mut found = Comparison::Same;
        for &index in self.targets {
            let (Some(now), Some(then)) = (self.values.get(index), stored.values.get(index)) else {
                continue;
            };
            if same_form(now, then) {
                continue;
            }
            // what can be compressed does not go out of line uncompressed
            let compressible = now.method.is_none() && then.method.is_some();
            if compressible || effort(now.form) <= effort(then.form) {
                return (Comparison::Other, asked);
            }
            found = Comparison::LessToasted;
        }
        (found, asked)
    }

    fn toast(
        &self,
        incoming: &[Incoming],
        operation: Operation,
    ) -> (Result<Toasted, ToastError>, Vec<usize>) {
        let mut asked = Vec::new();
        let mut compress = |index: usize, _method: Method| {
            let value = self.values.get(index)?;
            already(value).or_else(|| {
                (self.known)(index).unwrap_or_else(|| {
                    asked.push(index);
                    None
                })
            })
        };
        let stored = self.table.toast(incoming, operation, &mut compress);
        // other columns' values that were never compressed are taken for incompressible
        asked.retain(|index| self.targets.contains(index));
        (stored, asked)
    }

    /// Whether the row may have come to be what it is by one UPDATE in which values of other columns were
    /// compressed or moved out too: before that they were longer in the row, and left less room. After it they
    /// are no longer, so that another UPDATE would store the chosen columns otherwise.
    fn has_history(&self, incoming: &[Incoming], follow: &[usize]) -> bool {
        let mut changed: Vec<(usize, &StoredValue)> = self
            .values
            .iter()
            .enumerate()
            .filter(|(index, value)| {
                !self.targets.contains(index) && !follow.contains(index) && effort(value.form) > 0
            })
            .collect();
        // the longest ones are toasted first
        changed.sort_by_key(|(_, value)| std::cmp::Reverse(value.raw_size));
        let alone = (0..changed.len()).map(|at| at..at + 1);
        let together = (2..=changed.len()).map(|end| 0..end);
        alone.chain(together).take(MOST_HISTORIES).any(|some| {
            let some = changed.get(some).unwrap_or_default();
            [Incoming::fresh, before_moved].into_iter().any(|earlier| {
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

    /// Whether these values come to be what the whole row is.
    fn gives(&self, incoming: &[Incoming], operation: Operation) -> bool {
        let (stored, asked) = self.toast(incoming, operation);
        asked.is_empty()
            && stored.is_ok_and(|stored| {
                self.values.iter().zip(&stored.values).all(|(now, then)| same_form(now, then))
            })
    }
}

/// How much was done to a value: compressed, moved out of line.
fn effort(form: Form) -> u8 {
    match form {
        Form::Compressed => 1,
        Form::External | Form::ExternalCompressed => 2,
        _ => 0,
    }
}

/// A value before it was moved out.
fn before_moved(value: Incoming) -> Incoming {
    match value {
        Incoming::Kept { stored, raw, method, compressed: true } => {
            Incoming::Compressed { size: stored.saturating_add(VARLENA_HEADER_SIZE), raw, method }
        }
        other => other.fresh(),
    }
}

/// Whether the server takes a row of these values at all.
pub(crate) fn fits(
    table: &Table,
    targets: &[usize],
    follow: &[usize],
    values: &[StoredValue],
) -> bool {
    let incoming = incoming(table, targets, follow, values);
    let mut compress = |index: usize, _method: Method| already(values.get(index)?);
    table.toast(&incoming, Operation::Update, &mut compress).is_ok()
}

/// The values of a row as an UPDATE hands them over that makes the chosen ones anew.
fn incoming(
    table: &Table,
    targets: &[usize],
    follow: &[usize],
    values: &[StoredValue],
) -> Vec<Incoming> {
    let one = |(index, value): (usize, &StoredValue)| {
        let is_fresh = targets.contains(&index) || follow.contains(&index);
        let carried = table.carried(index, value);
        if is_fresh { carried.fresh() } else { carried }
    };
    values.iter().enumerate().map(one).collect()
}

/// The size of the compressed datum where the value is stored as one.
pub(crate) fn already(value: &StoredValue) -> Compressed {
    match value.form {
        Form::Compressed => small(value.stored_size),
        Form::ExternalCompressed => small(value.stored_size.map(|size| size + 4)),
        _ => None,
    }
}

pub(crate) fn same_form(now: &StoredValue, then: &Placed) -> bool {
    match now.form {
        Form::Null | Form::Missing | Form::Custom | Form::Unknown => true,
        Form::Short | Form::Plain => matches!(then.form, Form::Short | Form::Plain),
        form => form == then.form && now.method == then.method,
    }
}

pub(crate) fn small(size: Option<u64>) -> Option<u32> {
    size.and_then(|size| u32::try_from(size).ok())
}

/// Decides on one value by what the functions tell. `method` is the column's, resolved; `row` the sum
/// of `pg_column_size` over the row's columns; `threshold` is `TOAST_TUPLE_THRESHOLD`, `target` the
/// table's `toast_tuple_target`.
pub(crate) fn by_functions(
    toaster: Toaster,
    method: Method,
    value: &FunctionAnswer,
    row: u64,
    threshold: u64,
    target: u64,
) -> Compliance {
    let Some(size) = value.value.stored_size else { return Compliance::Complies };
    // the tuple header, and what alignment may add to a row that is just short of the limit
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
