//! Settings without effect, and limits that are close.

use crate::disk::desc::Storage;
use crate::findings::code::Code;
use crate::findings::facts::Facts;
use crate::findings::finding::{Finding, Unit};
use crate::model::interval::Interval;

/// The number of rows among which the absence of a long one is significant.
const LEAST_ROWS: f64 = 1000.0;
/// The numbers that a TOAST relation has for values (OIDs).
const VALUE_IDS: f64 = 4_294_967_296.0;
/// The fraction of them from which they are reported.
const TAKEN: f64 = 0.25;

pub(super) fn add(facts: &Facts, out: &mut Vec<Finding>) {
    let table = facts.table.shown();
    // no setting frees the IDs of values that stay out of line: settings that keep more of them in their rows are
    // advised, and beyond that the table has to be partitioned
    if facts.out_of_line.low >= VALUE_IDS * TAKEN {
        out.push(Finding {
            what: "in the TOAST relation, which can hold at most 2^32".to_owned(),
            command: facts.table.advise(None),
            ..Finding::new(Code::ValueIds, &table, facts.out_of_line, Unit::Values)
        });
    }
    let unused = |what: String, command| Finding {
        what,
        command,
        ..Finding::new(Code::UnusedSetting, &table, Interval::exact(1.0), Unit::Settings)
    };
    for column in &facts.columns {
        // with storage external, either compression would save space, which is a finding of its own, or it does not
        // matter
        let is_plain = column.storage == Storage::Plain;
        let Some(method) = column.compression.filter(|_| is_plain) else { continue };
        out.push(Finding {
            column: Some(column.name.clone()),
            ..unused(
                format!("compression {} is not used by storage plain", method.name()),
                facts.table.alter_column(&column.name, "SET COMPRESSION default"),
            )
        });
    }
    if let Some(why) = facts.target.and_then(|target| idle_target(facts, target)) {
        out.push(unused(why, facts.table.alter("RESET (toast_tuple_target)")));
    }
}

/// Why a `toast_tuple_target` of this many bytes has no effect (`heap_toast_insert_or_update`, heaptoast.c: the
/// target counts for rows over the threshold alone, and for columns that are not plain).
fn idle_target(facts: &Facts, target: u32) -> Option<String> {
    let threshold = facts.page.toast_tuple_threshold();
    if facts.columns.iter().all(|column| column.storage == Storage::Plain) {
        return Some(format!(
            "toast_tuple_target {target} has no effect: no column can be toasted"
        ));
    }
    if target as usize == threshold {
        return Some(format!("toast_tuple_target {target} is the default"));
    }
    let no_long_row = facts.toasted == Some(0) && facts.rows.low >= LEAST_ROWS;
    ((target as usize) < threshold && no_long_row).then(|| {
        format!("toast_tuple_target {target} has no effect on rows of up to {threshold} bytes: they are not toasted")
    })
}
