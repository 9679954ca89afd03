//! `--extract auto`: which keys to take out of the documents (pure).
//!
//! Nobody knows quite which keys are asked for. So each key that most documents have is taken to be read, and changed,
//! as often as every other, or more often as far as that is known (`weights`), and sets of the most used and smallest
//! ones are compared as settings are.

use std::collections::HashMap;

use super::super::estimate::{Figure, Figures, Scope, figures};
use super::super::recommend::{Entry, Optimize, recommend};
use super::keys::Keys;
use super::rows::{Extraction, KEYS, ORDER, REST, TODAY};
use super::weights::Weights;
use crate::disk::jsonb::split::root_keys;
use crate::model::cost::Prices;
use crate::model::estimate::Estimate;
use crate::usage::workload::Workload;

/// Different keys that are counted; documents with more are maps, and no key of theirs is a column.
const MOST_COUNTED: usize = 4096;
/// A column is for what at least this part of the documents has.
const LEAST_PRESENCE: f64 = 0.5;
/// Values of a column are at most this part of the document, and at most so many bytes, on average.
const MOST_SHARE: f64 = 0.1;
const MOST_BYTES: f64 = 500.0;
/// Sets of so many of the first keys are compared.
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

    /// The same as text.
    pub(crate) fn common_keys(&self) -> Vec<String> {
        self.common().filter_map(|(key, _)| String::from_utf8(key.clone()).ok()).collect()
    }

    /// The keys that may be columns, the most used and of these the smallest first; `None` if there are none.
    pub(crate) fn candidates(&self, weights: &Weights) -> Option<Keys> {
        let most = (self.bytes / self.documents.max(1.0) * MOST_SHARE).min(MOST_BYTES);
        let mut small: Vec<(f64, f64, String)> = self
            .common()
            .filter(|(_, seen)| seen.mean() <= most)
            .filter_map(|(key, seen)| {
                let key = String::from_utf8(key.clone()).ok()?;
                Some((weights.part(&key), seen.mean(), key))
            })
            .collect();
        small.sort_by(|(used_a, mean_a, a), (used_b, mean_b, b)| {
            used_b.total_cmp(used_a).then(mean_a.total_cmp(mean_b)).then_with(|| a.cmp(b))
        });
        let keys: Vec<String> =
            small.into_iter().map(|(_, _, key)| key).take(*SETS.last()?).collect();
        (!keys.is_empty()).then_some(Keys(keys))
    }
}

/// The sets of the first of these keys that are compared.
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

/// The set that pays most, by its index; `None` if none is worth rewriting the table.
pub(crate) fn choose(
    sets: &[Extraction],
    weights: &Weights,
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
        let keys = set.target.keys.iter().map(|key| weights.part(&key.key));
        let keys: Vec<(f64, &Figures)> = keys.zip(all.get(KEYS..)?).collect();
        let figures = used(rest, &keys, today);
        let refused = set.tally.tallies().get(REST)?.refused > 0.0;
        entries.push(Entry { figures, refused, rank: u8::try_from(rank + 1).unwrap_or(u8::MAX) });
    }
    recommend(&entries, optimize, workload).choice.checked_sub(1)
}

/// What a table costs of which these parts of all uses are of keys in columns, and the others of the rest.
fn used(rest: &Figures, keys: &[(f64, &Figures)], today: &Figures) -> Figures {
    let others = 1.0 - keys.iter().map(|(part, _)| part).sum::<f64>().min(1.0);
    let mean = |of: fn(&Figures) -> &Figure| {
        let value = |figures: &Figures| of(figures).value.estimate;
        let of_keys = keys.iter().map(|(part, figures)| part * value(figures)).sum::<f64>();
        let mean = of_keys + others * value(rest);
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
    fn a_table_is_used_as_its_keys_are() {
        let of = |read: f64| Figures {
            read_cpu_ns: Figure { value: Estimate::exact(read), change: None },
            ..Figures::default()
        };
        let used = used(&of(90.0), &[(0.25, &of(10.0)), (0.25, &of(20.0))], &of(100.0));
        assert_eq!(used.read_cpu_ns.value.estimate, 52.5);
        assert!((used.read_cpu_ns.change.unwrap().estimate + 0.475).abs() < 1e-9);
    }
}
