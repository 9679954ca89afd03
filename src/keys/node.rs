//! What is added up for one path of a column's documents (pure). Sums are whole numbers, so that they do not hang on
//! the order of blocks.

use super::cost::Cost;
use super::sketch::{Different, Spread};
use crate::disk::jsonb_parts::Kind;
use crate::model::estimate::PowerSums;

/// What is counted. Buffers and stored bytes are counted in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Values,
    /// Documents that have it.
    Documents,
    /// Raw bytes, with key text, entries and padding.
    Bytes,
    /// Bytes of the values taken out.
    Extracted,
    /// Where values begin in the raw documents.
    Offset,
    /// Values in documents out of line, and the chunks in which they begin.
    OutOfLine,
    Chunk,
    /// Its part of the stored bytes.
    Stored,
    /// Of each document that has it: what a read and an UPDATE cost now, and would in a column of its own.
    BuffersNow,
    CpuNow,
    WalNow,
    BuffersExtracted,
    CpuExtracted,
    WalExtracted,
}

impl Of {
    /// What the average of an amount is the average of.
    pub(super) fn below(index: usize) -> Of {
        const OF_VALUES: [Of; 3] = [Of::Bytes, Of::Extracted, Of::Offset];
        if OF_VALUES.iter().any(|of| *of as usize == index) {
            return Of::Values;
        }
        if index == Of::Chunk as usize { Of::OutOfLine } else { Of::Documents }
    }
}

/// How many are counted.
const COUNTED: usize = 14;
pub(super) const THOUSAND: f64 = 1000.0;

/// Amounts of everything that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Amounts([u64; COUNTED]);

impl Amounts {
    pub(super) fn get(&self, of: Of) -> u64 {
        self.0.get(of as usize).copied().unwrap_or(0)
    }

    pub(super) fn add(&mut self, of: Of, amount: u64) {
        if let Some(sum) = self.0.get_mut(of as usize) {
            *sum = sum.saturating_add(amount);
        }
    }

    pub(super) fn merge(&mut self, other: &Amounts) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(more);
        }
    }

    /// Adds what a document costs.
    pub(super) fn add_now(&mut self, cost: &Cost) {
        self.add(Of::BuffersNow, whole(cost.buffers * THOUSAND));
        self.add(Of::CpuNow, whole(cost.cpu_ns));
        self.add(Of::WalNow, whole(cost.wal));
    }

    /// Adds what its value would cost in a column of its own.
    pub(super) fn add_extracted(&mut self, cost: &Cost) {
        self.add(Of::BuffersExtracted, whole(cost.buffers * THOUSAND));
        self.add(Of::CpuExtracted, whole(cost.cpu_ns));
        self.add(Of::WalExtracted, whole(cost.wal));
    }
}

fn whole(amount: f64) -> u64 {
    amount.round().max(0.0) as u64
}

/// Sums over blocks, with what ratios of them need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sums {
    of: [PowerSums; COUNTED],
    /// Of each amount times the documents of the block, of bytes times its raw bytes.
    by_all: [u128; COUNTED],
    /// Of each amount times what it is divided by ([`Of::below`]).
    by_own: [u128; COUNTED],
}

impl Sums {
    /// Adds a block in which this path has `own` of the `all` of whole documents.
    pub(super) fn block(&mut self, own: &Amounts, all: &Amounts) {
        let times = |amount: u64, by: u64| u128::from(amount) * u128::from(by);
        for (index, sums) in self.of.iter_mut().enumerate() {
            let amount = own.0.get(index).copied().unwrap_or(0);
            sums.add(amount);
            let by_all =
                all.get(if index == Of::Bytes as usize { Of::Bytes } else { Of::Documents });
            let by_own = own.get(Of::below(index));
            for (products, by) in [(&mut self.by_all, by_all), (&mut self.by_own, by_own)] {
                if let Some(sum) = products.get_mut(index) {
                    *sum = sum.saturating_add(times(amount, by));
                }
            }
        }
    }

    pub(super) fn get(&self, of: Of) -> PowerSums {
        self.of.get(of as usize).copied().unwrap_or_default()
    }

    pub(super) fn by_all(&self, of: Of) -> u128 {
        self.by_all.get(of as usize).copied().unwrap_or(0)
    }

    pub(super) fn by_own(&self, of: Of) -> u128 {
        self.by_own.get(of as usize).copied().unwrap_or(0)
    }
}

/// The least and the greatest of what was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) least: u64,
    pub(super) most: u64,
}

impl Range {
    pub(super) fn with(seen: Option<Range>, value: u64) -> Option<Range> {
        let Range { least, most } = seen.unwrap_or(Range { least: value, most: value });
        Some(Range { least: least.min(value), most: most.max(value) })
    }
}

/// One path.
#[derive(Debug, Clone, Default)]
pub(super) struct Figures {
    /// Of the whole sample.
    pub(super) total: Amounts,
    /// Of the present block.
    pub(super) block: Amounts,
    pub(super) sums: Sums,
    /// How many values are of each type, in the order of [`Kind::ALL`].
    pub(super) kinds: [u64; Kind::ALL.len()],
    /// Bytes of the parts below that are paths of their own.
    pub(super) below: u64,
    pub(super) sizes: Spread,
    pub(super) different: Different,
    pub(super) offsets: Option<Range>,
    pub(super) chunks: Option<Range>,
}

impl Figures {
    /// Ends a block, of which whole documents have `all`.
    pub(super) fn end_block(&mut self, all: &Amounts) {
        let block = std::mem::take(&mut self.block);
        self.total.merge(&block);
        self.sums.block(&block, all);
    }
}

impl Figures {
    /// Documents of the sample that have it.
    pub(super) fn documents(&self) -> u64 {
        self.total.get(Of::Documents)
    }
}
