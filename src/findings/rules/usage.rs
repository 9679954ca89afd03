//! Values whose method costs what their use makes much of.

use crate::codec::Method;
use crate::disk::desc::Storage;
use crate::findings::code::{Code, WORTH};
use crate::findings::facts::{ColumnFacts, Facts};
use crate::findings::finding::{Finding, Unit};
use crate::findings::look::{Count, RowFacts};
use crate::usage::workload::Mostly;

/// Tells where lz4 would take less time for about the same size. What storage external would gain has a price in
/// bytes, which `advise-threshold` weighs.
pub(super) fn add(facts: &Facts, out: &mut Vec<Finding>) {
    let Some(look) = facts.look.as_ref().filter(|_| facts.lz4) else { return };
    for column in &facts.columns {
        // values of the other method are stored by an older setting
        if column.method == Method::Pglz && is_worth(look, column) {
            out.extend(usage(facts, look, column).map(|usage| finding(facts, column, usage)));
        }
    }
}

/// Whether pglz has compressed enough of the column's values.
pub(crate) fn is_worth(look: &RowFacts, column: &ColumnFacts) -> bool {
    let counted = look.columns.get(column.index);
    let compresses = matches!(column.storage, Storage::Main | Storage::Extended);
    compresses && counted.is_some_and(|counted| counted.of(Count::PglzRaw).low >= WORTH as f64)
}

/// What statements tell of the column, or the counters of the TOAST relation, if most of what is there is its.
fn usage(facts: &Facts, look: &RowFacts, column: &ColumnFacts) -> Option<Mostly> {
    if let Some(counts) = column.statements {
        return counts.usage(facts.rows);
    }
    let of = |index: usize| look.columns.get(index).map(|one| one.of(Count::OutOfLineValues));
    let values = |index| of(index).map_or(0.0, |values| values.estimate);
    let all: f64 = facts.columns.iter().map(|column| values(column.index)).sum();
    if values(column.index) * 2.0 <= all {
        return None;
    }
    facts.counters?.usage(facts.rows, facts.out_of_line)
}

fn finding(facts: &Facts, column: &ColumnFacts, usage: Mostly) -> Finding {
    let (code, ratio, unit, what) = match usage {
        Mostly::Read(ratio) => (
            Code::ReadMostly,
            ratio,
            Unit::ReadsPerWrite,
            "compressed with pglz, which takes longer to decompress than lz4",
        ),
        Mostly::Written(ratio) => (
            Code::WriteMostly,
            ratio,
            Unit::WritesPerRead,
            "compressed with pglz, which takes longer to compress than lz4",
        ),
    };
    let toaster = if column.storage == Storage::Main { "main=lz4" } else { "lz4" };
    Finding {
        column: Some(column.name.clone()),
        what: what.to_owned(),
        command: facts.table.retoast_to(&column.name, toaster),
        ..Finding::new(code, &facts.table.shown(), ratio, unit)
    }
}
