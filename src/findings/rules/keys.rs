//! Small keys that are used and stand in large documents.

use super::values::LEAST;
use crate::advise::extract::keys::key_word;
use crate::findings::code::Code;
use crate::findings::facts::{ColumnFacts, Facts};
use crate::findings::finding::{Finding, Unit};
use crate::findings::look::{Count, Counted};
use crate::usage::hot::{UsedKey, UsedKeys};

/// Calls from which on statements alone make a key worth a word.
const OFTEN: u64 = 100;
/// The largest part of its document that a key has, and the part of the documents that has it.
const SMALL: f64 = 0.05;
const HALF: f64 = 0.5;
/// Keys that are named; the others are counted.
const NAMED: usize = 4;
/// Keys of one command.
const MOST: usize = 20;

pub(super) fn add(facts: &Facts, out: &mut Vec<Finding>) {
    out.extend(facts.columns.iter().filter_map(|column| hot(facts, column)));
}

/// Whether the column has enough values out of line.
pub(crate) fn is_worth(counted: &Counted) -> bool {
    counted.of(Count::OutOfLineValues).low >= LEAST
}

fn hot(facts: &Facts, column: &ColumnFacts) -> Option<Finding> {
    let UsedKeys { keys, buffers } = column.keys.as_ref()?;
    let documents = facts.counted(column).filter(|&counted| is_worth(counted))?;
    let documents = documents.of(Count::OutOfLineValues);
    let is_hot = |key: &&UsedKey| {
        let used = key.calls >= OFTEN || !key.named.is_empty();
        used && key.part <= SMALL && key.presence >= HALF
    };
    let mut hot: Vec<&UsedKey> = keys.iter().filter(is_hot).collect();
    hot.sort_by_key(|key| (std::cmp::Reverse(key.calls), &key.key));
    hot.truncate(MOST);
    if hot.is_empty() {
        return None;
    }
    let what = said(&hot, *buffers);
    let names: Vec<String> = hot.iter().map(|key| key_word(&key.key)).collect();
    Some(Finding {
        column: Some(column.name.clone()),
        what,
        command: facts.table.extract(&column.name, &names.join(",")),
        ..Finding::new(Code::HotKeys, &facts.table.shown(), documents, Unit::Values)
    })
}

/// `a read of key "state" (index by_state), 0.2 % of its document, takes 9 buffers more than of a column`
fn said(hot: &[&UsedKey], buffers: f64) -> String {
    let one = |key: &&UsedKey| {
        let calls = match key.calls {
            0 => None,
            1 => Some("1 call, by texts".to_owned()),
            calls => Some(format!("{calls} calls, by texts")),
        };
        let used: Vec<String> = key.named.iter().cloned().chain(calls).collect();
        format!("\"{}\" ({})", key.key, used.join(", "))
    };
    let mut named: Vec<String> = hot.iter().take(NAMED).map(one).collect();
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
        "each read of {keys} {}, {:.1} % of {of}, takes {buffers:.0} buffers more than from a column",
        named.join(", "),
        part * 100.0
    )
}
