//! The figures of the whole table that follow from a sample's sums (pure).

use std::cmp::Reverse;
use std::collections::HashMap;

use super::result::{
    Beginnings, Container, Contents, Different, Key, KeyBytes, KeyCosts, KeySizes, Looked, Others,
    Totals,
};
use super::sketch::DifferentValues;
use super::tree::{LeastAndMost, Of, OwnStep, PathFigures, PathSums, THOUSAND, Tree};
use toast_format::disk::jsonb_parts::JsonKind;
use toast_format::model::estimate::Tally;
use toast_format::model::{BlocksRead, Interval, StoredValue};

/// Objects with more different keys are maps, if a document has no more than
const MAP_KEYS: u64 = 200;
/// this part of them.
const MAP_PRESENCE: f64 = 0.05;

/// All documents of the blocks that were read, block by block, whether they were analyzed or not.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct InBlocks {
    documents: Tally,
    stored: Tally,
    raw: Tally,
    /// Whether the row does not tell how large some are.
    is_unsized: bool,
}

impl InBlocks {
    /// Adds a document to the block that is being read.
    pub(super) fn add(&mut self, value: &StoredValue) {
        self.documents.add(1);
        match (value.custom, value.stored_size, value.raw_size) {
            (None, Some(stored), Some(raw)) => {
                self.stored.add(stored);
                self.raw.add(raw);
            }
            _ => self.is_unsized = true,
        }
    }

    pub(super) fn end_block(&mut self) {
        self.documents.end_block();
        self.stored.end_block();
        self.raw.end_block();
    }
}

impl Looked {
    /// As blocks that hold only the documents that were analyzed.
    fn drawn(&self) -> BlocksRead {
        let read = u64::from(self.blocks);
        if self.complete {
            return BlocksRead { read, total: read };
        }
        let part = self.documents_part.clamp(1e-6, 1.0);
        let total = (f64::from(self.total_blocks) / part).ceil() as u64;
        BlocksRead { read, total: total.max(read + 1) }
    }

    /// In the whole table, what was counted in the blocks that were read.
    fn total(&self, counted: &Tally) -> Interval {
        let total = u64::from(self.total_blocks);
        counted.total(BlocksRead { read: u64::from(self.blocks), total })
    }
}

/// The figures of a column.
pub(super) struct Table<'t> {
    tree: &'t Tree,
    drawn: BlocksRead,
    all: PathSums,
    documents: Interval,
    /// The bytes of all documents: stored and raw, from those that were analyzed if the rows do not tell them.
    stored: Interval,
    raw: Interval,
    /// Part of the bytes that is in documents so large and so few that those analyzed do not stand for them.
    unseen: f64,
    /// Documents of the table for each of the sample.
    factor: f64,
    complete: bool,
}

impl<'t> Table<'t> {
    pub(super) fn new(tree: &'t Tree, looked: &Looked, in_blocks: &InBlocks) -> Table<'t> {
        let documents = looked.total(&in_blocks.documents);
        let sampled = tree.documents();
        let complete = looked.complete;
        let factor = if complete {
            1.0
        } else {
            documents.estimate / sampled.total.get(Of::Documents).max(1) as f64
        };
        let mut table = Table {
            tree,
            drawn: looked.drawn(),
            all: sampled.sums,
            documents,
            stored: Interval::default(),
            raw: Interval::default(),
            unseen: 0.0,
            factor,
            complete,
        };
        table.raw = table.raw_bytes(sampled);
        table.stored = table.stored_part(sampled);
        if !complete && !in_blocks.is_unsized {
            let stored = looked.total(&in_blocks.stored);
            table.unseen = (1.0 - table.stored.high / stored.low.max(1.0)).max(0.0);
            table.stored = stored;
            table.raw = looked.total(&in_blocks.raw);
        }
        table
    }

    /// The part that those analyzed show, if others may be otherwise.
    fn with_unseen(&self, part: Interval) -> Interval {
        let seen = part.scaled(1.0 - self.unseen);
        Interval { high: seen.high + self.unseen, ..seen }
    }

    pub(super) fn totals(&self) -> Totals {
        Totals {
            documents: self.documents.whole(),
            raw_bytes: self.raw.whole(),
            stored_bytes: self.stored.whole(),
            unseen: self.unseen,
        }
    }

    /// Of `limit` paths, if that is given.
    pub(super) fn contents(&self, limit: Option<usize>) -> Contents {
        let (keys, others) = self.keys(limit);
        Contents {
            map: self.is_map(),
            different_paths: Different::from(&self.tree.different),
            uncounted_bytes: self.tree.missed,
            keys,
            others,
            container: self.container(),
        }
    }

    fn raw_bytes(&self, whole: &PathFigures) -> Interval {
        if self.complete {
            return Interval::exact(whole.total.get(Of::Bytes) as f64);
        }
        let each = whole.sums.get(Of::Bytes).ratio(
            &whole.sums.get(Of::Values),
            whole.sums.by_own(Of::Bytes),
            self.drawn,
        );
        each.unwrap_or_default().times(self.documents)
    }

    /// Something counted for each document, of all documents.
    fn per_document(&self, figures: &PathFigures, of: Of) -> Interval {
        let sums = &figures.sums;
        let each = sums.get(of).ratio(&self.all.get(Of::Documents), sums.by_all(of), self.drawn);
        each.unwrap_or_default()
    }

    /// The average of an amount over the path's values, or over the documents that have it.
    fn per_own(&self, figures: &PathFigures, of: Of) -> Interval {
        let sums = &figures.sums;
        sums.get(of)
            .ratio(&sums.get(Of::below(of as usize)), sums.by_own(of), self.drawn)
            .unwrap_or_default()
    }

    fn share(&self, figures: &PathFigures) -> Interval {
        let sums = &figures.sums;
        let raw = self.all.get(Of::Bytes);
        let share = sums.get(Of::Bytes).ratio(&raw, sums.by_all(Of::Bytes), self.drawn);
        self.with_unseen(share.unwrap_or_default()).at_most_all()
    }

    fn total_bytes(&self, figures: &PathFigures) -> Interval {
        if self.complete {
            return Interval::exact(figures.total.get(Of::Bytes) as f64);
        }
        self.share(figures).times(self.raw)
    }

    fn stored(&self, figures: &PathFigures) -> Interval {
        let sampled = self.stored_part(self.tree.documents()).estimate;
        let part = self.stored_part(figures);
        if self.unseen > 0.0 {
            Interval { high: part.high + self.unseen * self.stored.high, ..part }
        } else {
            part.scaled(self.stored.estimate / sampled.max(1.0))
        }
    }

    /// As those analyzed have them.
    fn stored_part(&self, figures: &PathFigures) -> Interval {
        self.per_document(figures, Of::Stored).times(self.documents).scaled(1.0 / THOUSAND)
    }

    fn container(&self) -> Container {
        let figures = &self.tree.container;
        Container {
            bytes: self.total_bytes(figures).whole(),
            stored_bytes: self.stored(figures).whole(),
            share: self.share(figures).ratio(),
        }
    }

    /// Whether documents have few of very many different keys, or more than can be kept.
    fn is_map(&self) -> bool {
        if self.tree.missed > 0 {
            return true;
        }
        let mut keys = 0u64;
        let mut had = 0u64;
        for (steps, figures) in self.tree.paths() {
            if let [OwnStep::Key(_)] = steps[..] {
                keys += 1;
                had = had.saturating_add(figures.total.get(Of::Documents));
            }
        }
        let documents = self.tree.documents().total.get(Of::Documents);
        keys > MAP_KEYS && (had as f64) < MAP_PRESENCE * keys as f64 * documents as f64
    }

    /// The paths with most bytes, each followed by what is below it, and what is left.
    fn keys(&self, limit: Option<usize>) -> (Vec<Key>, Option<Others>) {
        let mut paths: Vec<_> =
            self.tree.paths().filter(|(_, f)| f.total.get(Of::Values) > 0).collect();
        let kept = paths.len();
        paths.sort_by_cached_key(|(steps, figures)| {
            (Reverse(figures.total.get(Of::Bytes)), steps.len(), path(steps))
        });
        let left = paths.split_off(paths.len().min(limit.unwrap_or(usize::MAX)));
        let mut rank: HashMap<Vec<&OwnStep>, usize> = HashMap::new();
        for (at, (steps, _)) in paths.iter().enumerate() {
            rank.insert(steps.clone(), at);
        }
        // a path follows the one that it continues
        paths.sort_by_cached_key(|(steps, _)| {
            let ends = 1..=steps.len();
            ends.filter_map(|end| rank.get(steps.get(..end)?).copied()).collect::<Vec<usize>>()
        });
        let keys = paths.iter().map(|(steps, figures)| self.key(figures, steps)).collect();
        (keys, self.others(kept, &left))
    }

    /// What is left of the `kept` paths, and what was not kept of any.
    fn others(&self, kept: usize, left: &[(Vec<&OwnStep>, &PathFigures)]) -> Option<Others> {
        let mut lost = self.tree.lost;
        for (_, figures) in left {
            lost.add_own(&figures.total, figures.below);
        }
        if lost.get(Of::Values) == 0 {
            return None;
        }
        let raw = self.tree.documents().total.get(Of::Bytes);
        let listed = (kept - left.len()) as u64;
        let bytes = lost.get(Of::Bytes) as f64;
        let stored_bytes = lost.get(Of::Stored) as f64 / THOUSAND;
        Some(Others {
            paths: self
                .tree
                .different
                .estimate()
                .saturating_sub(listed)
                .max(left.len().max(1) as u64),
            bytes: (bytes * self.factor).round() as u64,
            stored_bytes: (stored_bytes * self.factor).round() as u64,
            share: round(bytes / raw.max(1) as f64),
        })
    }

    fn buffers(&self, figures: &PathFigures, of: Of) -> Interval {
        self.per_own(figures, of).scaled(1.0 / THOUSAND).at_least_zero().ratio()
    }

    fn key(&self, figures: &PathFigures, steps: &[&OwnStep]) -> Key {
        let total = &figures.total;
        let own = |of: Of| -> Interval { self.per_own(figures, of).at_least_zero().ratio() };
        let in_array = steps.iter().any(|step| matches!(step, OwnStep::Element));

        let counted = JsonKind::ALL.iter().zip(&figures.kinds);
        let counted = counted.map(|(kind, count)| (kind.name(), *count));
        let commonest = counted.clone().rev().max_by_key(|(_, count)| *count);
        let presence = self.per_document(figures, Of::Documents);
        let values = total.get(Of::Values);
        let bytes = self.total_bytes(figures);
        let own_part = 1.0 - figures.below as f64 / total.get(Of::Bytes).max(1) as f64;
        let own_bytes = if self.complete {
            Interval::exact(total.get(Of::Bytes).saturating_sub(figures.below) as f64)
        } else {
            bytes.scaled(own_part)
        };
        let LeastAndMost { least, most } = figures.offsets.unwrap_or_default();
        Key {
            path: path(steps),
            depth: steps.len(),
            kind: commonest.map_or("null", |(name, _)| name),
            types: counted.into_iter().filter(|(_, count)| *count > 0).collect(),
            values: if self.complete {
                Interval::exact(values)
            } else {
                self.per_document(figures, Of::Values).times(self.documents).whole()
            },
            presence: presence.at_most_all().ratio(),
            sizes: KeySizes {
                bytes: KeyBytes {
                    total: bytes.whole(),
                    mean: own(Of::Bytes),
                    p95: figures.sizes.quantile(0.95).unwrap_or(0),
                },
                own_bytes: own_bytes.whole(),
                stored_bytes: self.stored(figures).whole(),
                share: self.share(figures).ratio(),
            },
            offset: Beginnings { min: least, mean: own(Of::Offset), max: most },
            first_chunk: figures.chunks.map(|LeastAndMost { least, most }| Beginnings {
                min: least,
                mean: own(Of::Chunk),
                max: most,
            }),
            distinct: Different {
                estimate: figures.different.estimate().min(values),
                ..Different::from(&figures.different)
            },
            sampled_values: values,
            extracted_bytes: own(Of::Extracted),
            costs: KeyCosts {
                buffers_now: self.buffers(figures, Of::BuffersNow),
                buffers_extracted: (!in_array).then(|| self.buffers(figures, Of::BuffersExtracted)),
                cpu_now_ns: own(Of::CpuNow),
                cpu_extracted_ns: (!in_array).then(|| own(Of::CpuExtracted)),
                wal_now: own(Of::WalNow),
                wal_extracted: (!in_array).then(|| own(Of::WalExtracted)),
            },
            named_in: Vec::new(),
            steps: steps.iter().map(|step| step.key()).collect(),
        }
    }
}

impl<const MOST: usize> From<&DifferentValues<MOST>> for Different {
    fn from(values: &DifferentValues<MOST>) -> Different {
        Different { estimate: values.estimate(), exact: values.is_exact() }
    }
}

fn round(part: f64) -> f64 {
    (part * 1e4).round() / 1e4
}

/// A path as it is printed: keys separated by dots, quoted if ambiguous.
pub(super) fn path(steps: &[&OwnStep]) -> String {
    let mut text = String::new();
    for step in steps {
        match step {
            OwnStep::Element => text.push_str("[]"),
            OwnStep::Scalar => text.push('$'),
            OwnStep::Key(key) => {
                if !text.is_empty() {
                    text.push('.');
                }
                let key = String::from_utf8_lossy(key);
                let is_plain = key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'));
                if key.is_empty() || !is_plain {
                    text.push_str(&serde_json::to_string(&key).unwrap_or_default());
                } else {
                    text.push_str(&key);
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests;
