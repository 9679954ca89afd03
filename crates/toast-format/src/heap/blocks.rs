//! The contents of each block of a sample, added up so that the whole relation can be estimated from them (pure).

use std::collections::BTreeMap;

use derive_more::AddAssign;

use crate::codec::Method;
use crate::heap::stats::{FormSums, RelationStats, TupleCounts};
use crate::model::Form;
use crate::model::estimate::PowerSums;

/// A form with its method.
pub type FormKey = (Form, Option<Method>);

/// Values of one form, or of all that are not NULL.
#[derive(Debug, Clone, Copy, Default, AddAssign)]
pub struct ValueBlocks {
    /// The number of values.
    pub values: PowerSums,
    /// The size of the content, without headers.
    pub raw_bytes: PowerSums,
    /// The size as returned by `pg_column_size`.
    pub stored_bytes: PowerSums,
    /// TOAST pointers in the rows.
    pub pointer_bytes: PowerSums,
    /// The number of chunks in the TOAST relation.
    pub chunks: PowerSums,
}

impl ValueBlocks {
    fn add(&mut self, sums: &FormSums) {
        self.values.add(sums.values);
        self.raw_bytes.add(sums.raw_bytes);
        self.stored_bytes.add(sums.stored_bytes);
        self.pointer_bytes.add(sums.pointer_bytes);
        self.chunks.add(sums.chunks);
    }
}

/// The contents of one column in the blocks of a sample.
#[derive(Debug, Clone, Default)]
pub struct ColumnBlocks {
    /// The values of each form and method.
    pub forms: BTreeMap<FormKey, ValueBlocks>,
    /// All values that are not NULL.
    pub all: ValueBlocks,
    /// The sum over blocks of raw bytes times stored bytes.
    pub raw_by_stored: u128,
    /// The size in the relation: stored bytes and pointers, without values in the catalog.
    pub own_bytes: PowerSums,
    /// The contents of all earlier blocks.
    before: BTreeMap<FormKey, FormSums>,
}

impl ColumnBlocks {
    /// Adds what `now` has in addition to the earlier blocks. Returns the number of out-of-line values and of chunks.
    fn block(&mut self, now: BTreeMap<FormKey, FormSums>) -> (u64, u64) {
        let mut total = FormSums::default();
        let mut in_catalog = 0;
        let mut out_of_line = 0;
        for (key, sums) in &now {
            let more = match self.before.get(key) {
                Some(before) => sums.less(before),
                None => *sums,
            };
            if more.values == 0 {
                continue;
            }
            self.forms.entry(*key).or_default().add(&more);
            match key.0 {
                Form::Null => continue,
                Form::Missing => in_catalog += more.stored_bytes,
                Form::External | Form::ExternalCompressed => out_of_line += more.values,
                Form::Custom => out_of_line += more.custom_out_of_line,
                _ => {}
            }
            total += more;
        }
        self.before = now;
        self.all.add(&total);
        let raw = u128::from(total.raw_bytes);
        let stored = u128::from(total.stored_bytes);
        self.raw_by_stored = self.raw_by_stored.saturating_add(raw.saturating_mul(stored));
        let own = total.stored_bytes.saturating_sub(in_catalog);
        self.own_bytes.add(own.saturating_add(total.pointer_bytes));
        (out_of_line, total.chunks)
    }

    fn merge(&mut self, other: &ColumnBlocks) {
        for (key, blocks) in &other.forms {
            *self.forms.entry(*key).or_default() += *blocks;
        }
        self.all += other.all;
        self.raw_by_stored = self.raw_by_stored.saturating_add(other.raw_by_stored);
        self.own_bytes += other.own_bytes;
    }
}

/// The sums over all blocks of a sample, or over those that one connection has read.
#[derive(Debug, Clone, Default)]
pub struct BlockSums {
    /// The number of blocks in the sample.
    pub blocks: u64,
    /// Tuples that a `SELECT` returns.
    pub live: PowerSums,
    /// Tuples that a `SELECT` does not return.
    pub dead: PowerSums,
    /// Tuples for which this is not known.
    pub unknown: PowerSums,
    /// Free bytes between line pointers and tuples (`pd_lower` to `pd_upper`).
    pub free_bytes: PowerSums,
    /// Out-of-line values of all columns.
    pub out_of_line: PowerSums,
    /// Chunks of the values of all columns.
    pub chunks: PowerSums,
    /// One for each attribute, including dropped ones.
    pub columns: Vec<ColumnBlocks>,
    before: TupleCounts,
}

impl BlockSums {
    /// The sums for a relation with this number of attributes.
    pub fn new(attributes: usize) -> BlockSums {
        BlockSums { columns: vec![ColumnBlocks::default(); attributes], ..BlockSums::default() }
    }

    /// Adds the block that was counted last in `stats`, which must have counted exactly this block and all earlier
    /// ones.
    pub fn block(&mut self, stats: &RelationStats) {
        let now = stats.tuples;
        let before = self.before;
        self.blocks += 1;
        self.live.add(now.live.saturating_sub(before.live));
        self.dead.add(now.dead.saturating_sub(before.dead));
        self.unknown.add(now.unknown.saturating_sub(before.unknown));
        self.free_bytes.add(now.free_bytes.saturating_sub(before.free_bytes));
        self.before = now;
        let mut out_of_line = 0u64;
        let mut chunks = 0u64;
        for (column, stats) in self.columns.iter_mut().zip(&stats.columns) {
            let (values, more) = column.block(stats.forms());
            out_of_line = out_of_line.saturating_add(values);
            chunks = chunks.saturating_add(more);
        }
        self.out_of_line.add(out_of_line);
        self.chunks.add(chunks);
    }

    /// Adds the sums of other blocks of the same relation.
    pub fn merge(&mut self, other: &BlockSums) {
        self.blocks += other.blocks;
        self.live += other.live;
        self.dead += other.dead;
        self.unknown += other.unknown;
        self.free_bytes += other.free_bytes;
        self.out_of_line += other.out_of_line;
        self.chunks += other.chunks;
        for (ours, theirs) in self.columns.iter_mut().zip(&other.columns) {
            ours.merge(theirs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Oid;
    use crate::model::stored::CustomStored;
    use crate::model::toaster::catalog::Handler;
    use crate::model::toaster::describe::PointerKind;
    use crate::model::{BlocksRead, Interval, StoredValue};

    #[test]
    fn values_of_pluggable_toasters_that_lead_to_chunks_are_out_of_line() {
        let custom = |chunks| CustomStored {
            toaster: Oid(1),
            handler: Handler::Unknown,
            kind: PointerKind::Unknown,
            chunks,
            failure: None,
        };
        let mut stats = RelationStats::new(1);
        for (chunks, count) in [(Some(3), 2), (None, 1), (Some(0), 5)] {
            let custom = Some(custom(chunks));
            let value = StoredValue { form: Form::Custom, custom, ..StoredValue::NULL };
            stats.columns[0].add(&value, count);
        }
        let mut blocks = BlockSums::new(1);
        blocks.block(&stats);
        let all = BlocksRead { read: 1, total: 1 };
        assert_eq!(blocks.out_of_line.total(all), Some(Interval::exact(3.0)));
    }
}
