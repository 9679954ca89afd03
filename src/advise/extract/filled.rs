//! The table with columns for keys, and its rows when these are filled.

use super::kind::KeyType;
use crate::codec::Method;
use crate::model::stored::Form;
use crate::model::toast::{Incoming, Operation, Placed, Table};

/// What the values beside the document, its column's index given, become when the columns for keys are filled, while
/// the document still has them: `made`'s are those behind `stored`. What is compressed or moved out of the row then
/// stays so when the keys leave the document.
pub(super) fn fill(
    table: &Table,
    column: usize,
    stored: &[Incoming],
    made: &mut [Incoming],
    compressor: &mut impl FnMut(usize, Method) -> Option<u32>,
) {
    let filled = with_document(made, column, stored);
    let Ok(toasted) = table.toast(&filled, Operation::Update, compressor) else { return };
    for (index, (value, placed)) in made.iter_mut().zip(&toasted.values).enumerate() {
        if index == column || index >= stored.len() {
            continue;
        }
        let Placed { method, raw_size: raw, stored_size, .. } = *placed;
        let kept = |compressed| Incoming::Kept { stored: stored_size, raw, method, compressed };
        match placed.form {
            Form::Compressed => *value = Incoming::Compressed { size: stored_size, raw, method },
            Form::External => *value = kept(false),
            Form::ExternalCompressed => *value = kept(true),
            _ => {}
        }
    }
}

/// The values with the document that stood in the row.
pub(super) fn with_document(
    made: &[Incoming],
    column: usize,
    stored: &[Incoming],
) -> Vec<Incoming> {
    let mut filled = made.to_vec();
    if let (Some(document), Some(whole)) = (filled.get_mut(column), stored.get(column)) {
        *document = *whole;
    }
    filled
}

/// The table with columns of these types added.
pub(super) fn wider(table: &Table, method: Method, types: &[KeyType]) -> Table {
    let mut table = table.clone();
    table.columns.extend(types.iter().map(|kind| kind.column(method)));
    // text and jsonb may need one; it is made with the column
    table.has_toast_relation |= types.iter().any(|kind| kind.is_own() || *kind == KeyType::Jsonb);
    table
}
