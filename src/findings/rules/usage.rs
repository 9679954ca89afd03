//! Costs that depend on use: methods of values that are mostly read or mostly written, and small keys of large
//! documents.

use super::values::LEAST;
use crate::advise::extract::keys::key_word;
use crate::findings::code::Code;
use crate::findings::facts::{ColumnFacts, Facts};
use crate::findings::finding::{Finding, Unit};
use crate::findings::look::{Count, Counted, RowFacts};
use crate::usage::hot::{UsedKey, UsedKeys};
use crate::usage::workload::Mostly;
use toast_format::codec::Method;

/// Reports where lz4 would take less time for about the same size. Storage external would gain more at a price in
/// bytes, which `advise-threshold` weighs.
pub(super) fn add(facts: &Facts, out: &mut Vec<Finding>) {
    if !facts.server.lz4 {
        return;
    }
    let Some(look) = &facts.look else { return };
    for column in facts.stock_columns() {
        // values of the other method are stored by an older setting
        let is_pglz = column.method == Method::Pglz && is_worth(look, column, facts.worth);
        if is_pglz && !facts.needs_its_compression(column) {
            out.extend(usage(facts, column).map(|usage| by_lz4(facts, column, usage)));
        }
    }
}

/// Whether pglz has compressed enough of the column's values.
pub(crate) fn is_worth(look: &RowFacts, column: &ColumnFacts, worth: u64) -> bool {
    let counted = look.columns.get(column.index);
    column.storage.compresses()
        && counted.is_some_and(|counted| counted.of(Count::PglzRaw).low >= worth as f64)
}

/// What statements show about the column, or the counters of the TOAST relation if most of its content belongs to the
/// column.
fn usage(facts: &Facts, column: &ColumnFacts) -> Option<Mostly> {
    if let Some(counts) = column.statements {
        return counts.usage(facts.rows);
    }
    let all: f64 = facts.columns.iter().map(|column| facts.out_of_line_values(column)).sum();
    if facts.out_of_line_values(column) * 2.0 <= all {
        return None;
    }
    facts.counters?.usage(facts.rows, facts.out_of_line)
}

fn by_lz4(facts: &Facts, column: &ColumnFacts, usage: Mostly) -> Finding {
    let (code, ratio, unit, task) = match usage {
        Mostly::Read(ratio) => (Code::ReadMostly, ratio, Unit::ReadsPerWrite, "decompress"),
        Mostly::Written(ratio) => (Code::WriteMostly, ratio, Unit::WritesPerRead, "compress"),
    };
    let what = format!("compressed with pglz, which takes longer to {task} than lz4");
    facts.finding_of(column, code, ratio, unit, what)
}

/// The largest part of its document that a key has, and the part of the documents that has it.
const SMALL: f64 = 0.05;
const HALF: f64 = 0.5;
/// Keys that are named; all others are counted.
const NAMED: usize = 4;
/// Keys of one command.
const MOST: usize = 20;

/// Whether the column has enough values out of line.
pub(crate) fn has_documents(counted: &Counted) -> bool {
    counted.of(Count::OutOfLineValues).low >= LEAST
}

/// Small keys that are known to be used, if the column's documents are large.
pub(super) fn hot_keys(facts: &Facts, column: &ColumnFacts) -> Option<Finding> {
    let UsedKeys { keys, buffers } = column.keys.as_ref()?;
    let documents = facts.counted(column).filter(|&counted| has_documents(counted))?;
    let documents = documents.of(Count::OutOfLineValues);
    let small = keys.iter().filter(|key| key.part <= SMALL && key.presence >= HALF);
    let hot: Vec<&UsedKey> = small.take(MOST).collect();
    if hot.is_empty() {
        return None;
    }
    let what = said(&hot, *buffers);
    let names: Vec<String> = hot.iter().map(|key| key_word(&key.key)).collect();
    let command = facts.table.extract(&column.name, &names.join(","));
    let finding = facts.finding_of(column, Code::HotKeys, documents, Unit::Values, what);
    Some(Finding { command, ..finding })
}

/// `each read of key "state" (index by_state), 0.2 % of its document, visits 9 more buffers than a read of a column
/// would`
fn said(hot: &[&UsedKey], buffers: f64) -> String {
    let mut named = Vec::new();
    for key in hot.iter().take(NAMED) {
        named.push(format!("\"{}\" ({})", key.key, key.named.join(", ")));
    }
    match hot.len().saturating_sub(NAMED) {
        0 => {}
        1 => named.push("1 other".into()),
        others => named.push(format!("{others} others")),
    }
    let part: f64 = hot.iter().map(|key| key.part).sum();
    let (keys, of) = match hot.len() {
        1 => ("key", "its document"),
        _ => ("keys", "their documents"),
    };
    format!(
        "each read of {keys} {}, {:.1} % of {of}, visits {buffers:.0} more buffers than a read of a column would",
        named.join(", "),
        part * 100.0
    )
}
