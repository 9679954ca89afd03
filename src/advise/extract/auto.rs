//! `--extract auto`: which keys to take out of the documents (pure).
//!
//! Nobody knows which keys are asked for. So each key that most documents have is taken to be read, and changed, as
//! often as every other, and sets of the smallest ones are compared as settings are.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::super::estimate::{Figure, Figures, Scope, figures};
use super::super::recommend::{Entry, recommend};
use super::super::workload::{Optimize, Workload};
use super::keys::Keys;
use super::rows::{Extraction, KEYS, ORDER, REST, TODAY};
use crate::disk::jsonb::split::root_keys;
use crate::model::cost::Prices;
use crate::model::estimate::Estimate;

/// Different keys that are counted; documents with more are maps, and no key of theirs is a column.
const MOST_COUNTED: usize = 4096;
/// A column is for what at least this part of the documents has.
const LEAST_PRESENCE: f64 = 0.5;
/// Values of a column are at most this part of the document, and at most so many bytes, on average.
const MOST_SHARE: f64 = 0.1;
const MOST_BYTES: f64 = 500.0;
/// Sets of so many of the smallest keys are compared.
const SETS: [usize; 5] = [1, 2, 4, 8, 16];

/// What a few documents tell of their keys.
#[derive(Debug, Default)]
pub(crate) struct Scout {
    documents: f64,
    bytes: f64,
    keys: HashMap<Vec<u8>, Seen>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    documents: f64,
    bytes: f64,
}

impl Seen {
    fn mean(&self) -> f64 {
        self.bytes / self.documents.max(1.0)
    }
}

impl Scout {
    /// Counts the keys of a document.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn document(&mut self, content: &[u8]) -> Result<(), String> {
        self.documents += 1.0;
        self.bytes += content.len() as f64;
        for (key, value) in root_keys(content, ORDER).map_err(|error| error.to_string())? {
            if self.keys.len() >= MOST_COUNTED && !self.keys.contains_key(key) {
                continue;
            }
            let seen = self.keys.entry(key.to_vec()).or_default();
            seen.documents += 1.0;
            seen.bytes += value.jsonb_size() as f64;
        }
        Ok(())
    }

    /// The keys that most documents have.
    fn common(&self) -> impl Iterator<Item = (&Vec<u8>, &Seen)> {
        let least = (self.documents * LEAST_PRESENCE).max(1.0);
        self.keys.iter().filter(move |(_, seen)| seen.documents >= least)
    }

    /// How many keys most documents have.
    pub(crate) fn common_keys(&self) -> usize {
        self.common().count()
    }

    /// The keys that may be columns, the smallest first; `None` if there are none.
    pub(crate) fn candidates(&self) -> Option<Keys> {
        let most = (self.bytes / self.documents.max(1.0) * MOST_SHARE).min(MOST_BYTES);
        let mut small: Vec<_> = self.common().filter(|(_, seen)| seen.mean() <= most).collect();
        small.sort_by(|(a, seen_a), (b, seen_b)| match seen_a.mean().total_cmp(&seen_b.mean()) {
            Ordering::Equal => a.cmp(b),
            unequal => unequal,
        });
        let names = small.into_iter().filter_map(|(key, _)| String::from_utf8(key.clone()).ok());
        let keys: Vec<String> = names.take(*SETS.last()?).collect();
        (!keys.is_empty()).then_some(Keys(keys))
    }
}

/// The sets of the smallest of these keys that are compared.
pub(crate) fn sets(keys: &Keys) -> Vec<Keys> {
    let mut sets: Vec<Keys> = Vec::new();
    for size in SETS {
        let set: Vec<String> = keys.0.iter().take(size).cloned().collect();
        if sets.last().is_none_or(|last| last.0 != set) {
            sets.push(Keys(set));
        }
    }
    sets
}

/// The set that pays most, by its index; `None` if none is worth rewriting the table. `common`: keys that a document
/// has.
pub(crate) fn choose(
    sets: &[Extraction],
    common: usize,
    scope: &Scope,
    optimize: Optimize,
    workload: &Workload,
) -> Option<usize> {
    let mut entries = Vec::with_capacity(sets.len() + 1);
    for (rank, set) in sets.iter().enumerate() {
        let all = figures(&set.tally, scope, &Prices::default());
        let (today, rest) = (all.get(TODAY)?, all.get(REST)?);
        if entries.is_empty() {
            entries.push(Entry { figures: *today, refused: false, rank: 0 });
        }
        let figures = evenly_used(rest, all.get(KEYS..)?, today, common);
        let refused = set.tally.tallies().get(REST)?.refused > 0.0;
        entries.push(Entry { figures, refused, rank: u8::try_from(rank + 1).unwrap_or(u8::MAX) });
    }
    recommend(&entries, optimize, workload).choice.checked_sub(1)
}

/// What a table costs of which each key is used as often as every other.
fn evenly_used(rest: &Figures, keys: &[Figures], today: &Figures, common: usize) -> Figures {
    let others = common.saturating_sub(keys.len()) as f64;
    let mean = |of: fn(&Figures) -> &Figure| {
        let value = |figures: &Figures| of(figures).value.estimate;
        let sum = keys.iter().map(value).sum::<f64>() + others * value(rest);
        let mean = sum / (keys.len() as f64 + others).max(1.0);
        let before = value(today);
        let change = (before > 0.0).then(|| Estimate::exact(mean / before - 1.0));
        Figure { value: Estimate::exact(mean), change }
    };
    Figures {
        read_buffers: mean(|f| &f.read_buffers),
        read_cpu_ns: mean(|f| &f.read_cpu_ns),
        update_bytes: mean(|f| &f.update_bytes),
        update_wal_bytes: mean(|f| &f.update_wal_bytes),
        ..*rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_grow_by_the_smallest_keys() {
        let keys = |names: &[&str]| Keys(names.iter().map(|&name| name.to_owned()).collect());
        let all = sets(&keys(&["a", "b", "c"]));
        assert_eq!(all, [keys(&["a"]), keys(&["a", "b"]), keys(&["a", "b", "c"])]);
        assert_eq!(sets(&keys(&["a"])), [keys(&["a"])]);
    }

    #[test]
    fn a_table_is_used_as_evenly_as_its_keys() {
        let of = |read: f64| Figures {
            read_cpu_ns: Figure { value: Estimate::exact(read), change: None },
            ..Figures::default()
        };
        let used = evenly_used(&of(90.0), &[of(10.0), of(20.0)], &of(100.0), 4);
        assert_eq!(used.read_cpu_ns.value.estimate, 52.5);
        assert!((used.read_cpu_ns.change.unwrap().estimate + 0.475).abs() < 1e-9);
    }
}
