//! What the rows of a sample add up to, block by block, and the figures that follow (pure); how far rows are from the
//! threshold: their widths before anything of them is toasted.

use super::result::{ColumnExplanation, ValueRead, Written};
use crate::advise::tally::{IndexShape, Sums, cluster_of};
use toast_format::disk::{Attribute, PageSize};
use toast_format::model::Interval;
use toast_format::model::cost::{Prices, ReadWork};
use toast_format::model::estimate::ratio;
use toast_format::model::pages::tuple_bytes;
use toast_format::model::wal::UpdateWork;

/// Most clusters of blocks for which sums are kept. Tables of many columns have fewer, so that memory stays bounded.
const MAX_CLUSTERS: usize = 1024;
const LEAST_CLUSTERS: usize = 64;
/// Most sums of all columns and clusters together.
const MAX_SUMS: usize = 1 << 16;

/// Ends of the ranges below and above the threshold, in parts of it; the last range has none.
const ENDS: [f64; 7] = [0.5, 0.9, 1.0, 1.1, 2.0, 4.0, 16.0];

/// How many ranges there are.
const RANGES: usize = ENDS.len() + 1;

/// The ranges that rows are counted in, for one page size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ranges {
    /// The greatest width of each range but the last, in bytes.
    ends: [u32; ENDS.len()],
}

/// A row's length above which the toaster is called (`TOAST_TUPLE_THRESHOLD`).
pub(super) fn threshold(page: PageSize) -> u32 {
    u32::try_from(page.toast_tuple_threshold()).unwrap_or(u32::MAX)
}

impl Ranges {
    pub(super) fn new(page: PageSize) -> Ranges {
        let threshold = f64::from(threshold(page));
        Ranges { ends: ENDS.map(|part| (threshold * part) as u32) }
    }

    /// The range of a row of this width.
    pub(super) fn at(&self, width: u32) -> usize {
        self.ends.iter().take_while(|&&end| width > end).count()
    }

    /// First and last width of a range; the last range has no last.
    pub(super) fn bounds(&self, range: usize) -> (u32, Option<u32>) {
        let below = range.checked_sub(1).and_then(|below| self.ends.get(below));
        (below.map_or(0, |end| end + 1), self.ends.get(range).copied())
    }
}

/// A block of the sample, or several.
#[derive(Debug, Clone, Default)]
pub(super) struct Cluster {
    blocks: f64,
    /// The sums of whole rows, whatever the column.
    rows: Sums,
    widths: [f64; RANGES],
    /// Of each column that is explained.
    pub(super) columns: Vec<Sums>,
    /// What an append to each value of `bytea_toaster` in it stores again.
    pub(super) appends: Vec<UpdateWork>,
}

impl Cluster {
    /// A block of a table of which `columns` columns are explained.
    pub(super) fn block(columns: usize) -> Cluster {
        Cluster {
            blocks: 1.0,
            columns: vec![Sums::default(); columns],
            appends: vec![UpdateWork::default(); columns],
            ..Cluster::default()
        }
    }

    /// Adds a row with a tuple of `tuple` bytes, whose width is in this range.
    pub(super) fn add_row(&mut self, tuple: u32, range: usize) {
        self.rows.rows += 1.0;
        self.rows.heap_bytes += tuple_bytes(tuple) as f64;
        if let Some(rows) = self.widths.get_mut(range) {
            *rows += 1.0;
        }
    }

    /// The sums of this explained column.
    fn column(&self, at: usize) -> Sums {
        self.columns.get(at).copied().unwrap_or_default()
    }

    fn append(&self, at: usize) -> UpdateWork {
        self.appends.get(at).copied().unwrap_or_default()
    }

    fn merge(&mut self, other: &Cluster) {
        self.blocks += other.blocks;
        self.rows += other.rows;
        for (sum, more) in self.widths.iter_mut().zip(other.widths) {
            *sum += more;
        }
        for (sums, more) in self.columns.iter_mut().zip(&other.columns) {
            *sums += *more;
        }
        for (sum, more) in self.appends.iter_mut().zip(&other.appends) {
            *sum += *more;
        }
    }
}

/// What was added up of a sample.
#[derive(Debug)]
pub(super) struct Clusters {
    clusters: Vec<Cluster>,
    most: usize,
    added: usize,
}

/// What was sampled of what.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scope {
    /// Blocks of the heap.
    pub(super) total_blocks: u32,
    /// Whether all of them were looked at.
    pub(super) complete: bool,
    pub(super) index: IndexShape,
}

impl Clusters {
    /// For a table of which `columns` columns are explained.
    pub(super) fn new(columns: usize) -> Clusters {
        let most = (MAX_SUMS / columns.max(1)).clamp(LEAST_CLUSTERS, MAX_CLUSTERS);
        Clusters { clusters: Vec::new(), most, added: 0 }
    }

    /// Adds a block. Blocks come in random order, or all of them do.
    pub(super) fn add(&mut self, block: Cluster) {
        match self.clusters.get_mut(cluster_of(self.added, self.most)) {
            Some(cluster) => cluster.merge(&block),
            None => self.clusters.push(block),
        }
        self.added += 1;
    }

    fn series(&self, of: impl Fn(&Cluster) -> f64) -> Vec<f64> {
        self.clusters.iter().map(of).collect()
    }

    fn rows(&self) -> Vec<f64> {
        self.series(|cluster| cluster.rows.rows)
    }

    /// Rows of the sample.
    pub(super) fn sampled_rows(&self) -> f64 {
        self.rows().iter().sum()
    }

    /// Whether the sample has a value in a column.
    pub(super) fn has_values(&self, column: usize) -> bool {
        let mut sums = self.clusters.iter().filter_map(|cluster| cluster.columns.get(column));
        sums.any(|sums| sums.values > 0.0)
    }

    /// The ratio of two sums in the whole table.
    fn ratio(&self, scope: &Scope, above: &[f64], below: &[f64]) -> Option<Interval> {
        let read: f64 = self.series(|cluster| cluster.blocks).iter().sum();
        let part = read / f64::from(scope.total_blocks.max(1));
        Some(ratio(above, below, part, scope.complete)?.at_least_zero())
    }

    /// A sum's total in the whole table. Of a sample, a block more or less is allowed for: the last one is seldom
    /// full and seldom drawn.
    fn total(&self, scope: &Scope, sum: &[f64]) -> Interval {
        let each = self.ratio(scope, sum, &self.series(|cluster| cluster.blocks));
        let each = each.unwrap_or_default();
        let block = if scope.complete { 0.0 } else { each.estimate };
        let total = each.scaled(f64::from(scope.total_blocks)).widened(0.0, block);
        total.at_least_zero()
    }

    /// Live rows of the table.
    pub(super) fn live_rows(&self, scope: &Scope) -> Interval {
        self.total(scope, &self.rows())
    }

    /// The part of the rows that is in each range of widths.
    pub(super) fn widths(&self, scope: &Scope) -> Vec<Interval> {
        let mut parts = Vec::with_capacity(RANGES);
        for range in 0..RANGES {
            let in_range = self.series(|c| c.widths.get(range).copied().unwrap_or(0.0));
            parts.push(self.ratio(scope, &in_range, &self.rows()).unwrap_or_default());
        }
        parts
    }

    /// What an UPDATE of a row writes that changes no value out of line.
    pub(super) fn update_other(&self, scope: &Scope) -> Written {
        self.written(scope, &self.rows(), |cluster| cluster.rows.update_other())
    }

    /// What an append to a value of `bytea_toaster` stores again; `None` if the sample has none in the column.
    fn append(&self, scope: &Scope, at: usize) -> Option<Written> {
        let appendable = self.series(|cluster| cluster.append(at).rows);
        let has_some = appendable.iter().any(|&values| values > 0.0);
        has_some.then(|| self.written(scope, &appendable, |cluster| cluster.append(at)))
    }

    /// What each of `number` updates writes.
    fn written(
        &self,
        scope: &Scope,
        number: &[f64],
        work: impl Fn(&Cluster) -> UpdateWork,
    ) -> Written {
        Written {
            heap_bytes: self.mean(scope, number, &work, |work| work.heap_bytes),
            toast_bytes: self.mean(scope, number, &work, |work| work.toast_bytes),
            wal_bytes: self.mean(scope, number, &work, UpdateWork::wal_bytes),
        }
    }

    fn mean(
        &self,
        scope: &Scope,
        number: &[f64],
        work: &impl Fn(&Cluster) -> UpdateWork,
        figure: fn(&UpdateWork) -> f64,
    ) -> Interval {
        let sums = self.series(|cluster| figure(&work(cluster)));
        self.ratio(scope, &sums, number).unwrap_or_default()
    }

    /// A figure of reading the values of a column.
    fn reads(&self, scope: &Scope, at: usize, figure: fn(&ReadWork) -> f64) -> Vec<f64> {
        self.series(|cluster| figure(&scope.index.searched(cluster.column(at).read)))
    }

    /// Its mean for values out of line.
    fn mean_read(
        &self,
        scope: &Scope,
        at: usize,
        external: &[f64],
        figure: fn(&ReadWork) -> f64,
    ) -> Interval {
        self.ratio(scope, &self.reads(scope, at, figure), external).unwrap_or_default()
    }

    /// The figures of one column.
    pub(super) fn column(
        &self,
        at: usize,
        attribute: &Attribute,
        scope: &Scope,
    ) -> ColumnExplanation {
        let series = |figure: fn(&Sums) -> f64| self.series(|cluster| figure(&cluster.column(at)));
        let values = series(|sums| sums.values);
        let external = series(|sums| sums.read.lookups);
        let compressed = series(|sums| sums.read.decompressions);
        let blocks = f64::from(scope.total_blocks);
        let all_values = self.total(scope, &values);
        // the heap's pages are read once for all values
        let heap_ns = if all_values.estimate > 0.0 {
            Prices::default().read_ns(&ReadWork { heap_pages: blocks, ..ReadWork::default() })
                / all_values.estimate
        } else {
            0.0
        };
        let read_ns = self.reads(scope, at, |work| Prices::default().read_ns(work));
        let read_ns = self.ratio(scope, &read_ns, &values).unwrap_or_default();
        let chunks = self.ratio(scope, &self.reads(scope, at, |work| work.chunks), &external);
        let scan_buffers = self.total(scope, &self.reads(scope, at, ReadWork::buffers));
        ColumnExplanation {
            column: attribute.name.clone(),
            type_name: attribute.type_name.clone(),
            storage: attribute.storage.name(),
            values: all_values,
            external_values: self.total(scope, &external),
            custom_values: self.total(scope, &series(|sums| sums.custom)),
            compressed_values: self.total(scope, &compressed),
            read: chunks.map(|chunks| ValueRead {
                buffers: self.mean_read(scope, at, &external, ReadWork::buffers),
                index_buffers: self.mean_read(scope, at, &external, |work| work.index_pages),
                toast_buffers: self.mean_read(scope, at, &external, |work| work.toast_pages),
                chunks,
                bytes: self.mean_read(scope, at, &external, |work| work.copied_bytes),
            }),
            decompressed_bytes: self.ratio(
                scope,
                &self.reads(scope, at, ReadWork::decompressed_bytes),
                &compressed,
            ),
            read_cpu_ns: read_ns.plus(Interval::exact(heap_ns)).with_ends(false),
            scan_buffers: scan_buffers.plus(Interval::exact(blocks)),
            update: self.written(scope, &values, |cluster| cluster.column(at).update()),
            append: self.append(scope, at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_the_threshold_is_the_last_that_is_not_toasted() {
        let ranges = Ranges::new(PageSize::DEFAULT);
        assert_eq!(threshold(PageSize::DEFAULT), 2032);
        let at = |width| ranges.at(width);
        assert_eq!(
            [at(0), at(1016), at(1017), at(2032), at(2033), at(u32::MAX)],
            [0, 0, 1, 2, 3, 7]
        );
        for range in 0..RANGES {
            let (from, to) = ranges.bounds(range);
            assert_eq!((at(from), at(to.unwrap_or(u32::MAX))), (range, range));
        }
        assert_eq!(ranges.bounds(2), (1829, Some(2032)));
    }
}
