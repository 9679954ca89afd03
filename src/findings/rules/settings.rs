//! Settings without effect, and limits that are close.

use super::lengths;
use crate::findings::code::Code;
use crate::findings::facts::Facts;
use crate::findings::finding::{Finding, Unit};

use toast_format::disk::Storage;
use toast_format::model::Interval;

/// No date is predicted that is more than a hundred years away.
const MOST_DAYS: f64 = 36_500.0;
/// The number of rows among which the absence of a long one is significant.
const LEAST_ROWS: f64 = 1000.0;
/// The fraction of the value IDs from which they are reported.
pub(crate) const TAKEN: f64 = 0.25;
/// The fraction that is called many.
const HALF: f64 = 0.5;

pub(super) fn add(facts: &Facts, out: &mut Vec<Finding>) {
    out.extend(value_ids(facts));
    for column in &facts.columns {
        // with storage external, either compression would save space, which is a finding of its own, or it does not
        // matter
        if column.storage != Storage::Plain {
            continue;
        }
        let Some(method) = column.compression else { continue };
        let what = format!("compression {} is not used by storage plain", method.name());
        let command = facts.table.alter_column(&column.name, "SET COMPRESSION default");
        let finding = unused_setting(facts, what, command);
        out.push(Finding { column: Some(column.name.clone()), ..finding });
    }
    if let Some(why) = facts.target.and_then(|target| idle_target(facts, target)) {
        out.push(unused_setting(facts, why, facts.table.alter("RESET (toast_tuple_target)")));
    }
}

fn unused_setting(facts: &Facts, what: String, command: String) -> Finding {
    let one = Interval::exact(1.0);
    Finding { command, ..facts.finding(Code::UnusedSetting, one, Unit::Settings, what) }
}

/// Whether so many of a TOAST relation's IDs are in use that it is reported.
pub(crate) fn are_many_ids(values: Interval, ids: f64) -> bool {
    values.low >= ids * TAKEN
}

/// Values that use up the IDs of their TOAST relation. Only values that stay in their rows do without one.
fn value_ids(facts: &Facts) -> Option<Finding> {
    let values = facts.out_of_line;
    let ids = facts.toast_facts.ids.filter(|&ids| are_many_ids(values, ids))?;
    let rate = facts.toast_facts.use_of_ids.map_or(String::new(), |used| {
        let days = (ids * HALF - values.estimate) / used.net;
        let end = if days > 0.0 && days < MOST_DAYS {
            format!(", and half of all are in use within {days:.0} days")
        } else {
            String::new()
        };
        format!("; at least {:.0} are assigned a day{end}", used.assigned)
    });
    let (how, command) = kept_in_rows(facts).unwrap_or_else(|| {
        let how = "no setting keeps them in their rows, so only partitions, each with a TOAST relation of its own, would \
                   have more";
        (how.to_owned(), facts.table.advise(None))
    });
    let percent = values.estimate / ids * 100.0;
    let what =
        format!("in the TOAST relation, {percent:.0} % of those that it has IDs for{rate}; {how}");
    Some(Finding { command, ..facts.finding(Code::ValueIds, values, Unit::Values, what) })
}

/// A target with which most values of the column that has most of them stay in their rows.
fn kept_in_rows(facts: &Facts) -> Option<(String, String)> {
    let column = facts
        .columns
        .iter()
        .max_by(|a, b| facts.out_of_line_values(a).total_cmp(&facts.out_of_line_values(b)))?;
    let target = lengths::target_that_keeps(facts, column)?;
    let how =
        format!("with a target of {} most of these values would stay in their rows", target.bytes);
    Some((how, facts.retoast_with_target(column, target.bytes)))
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
