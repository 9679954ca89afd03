//! What the rows of a sample add up to, block by block, and the figures that follow (pure).

use super::result::{ColumnExplanation, Figure, ValueRead, Written};
use super::widths::RANGES;
use crate::advise::tally::cluster_of;
use crate::codec::Method;
use crate::disk::desc::Attribute;
use crate::disk::layout::PageSize;
use crate::fill::btree::ToastIndex;
use crate::model::cost::{Prices, ReadWork, UpdateWork};
use crate::model::estimate::{Estimate, ratio};
use crate::model::pages::{chunk_bytes, tuple_bytes};
use crate::model::stored::Form;
use crate::model::toast::Placed;

/// Sums are kept for at most so many clusters of blocks, fewer in tables of many columns,
const MAX_CLUSTERS: usize = 1024;
const LEAST_CLUSTERS: usize = 64;
/// so that memory stays bounded.
const MAX_SUMS: usize = 1 << 16;

/// `EXTERN_TUPLES_PER_PAGE`
const CHUNKS_PER_PAGE: f64 = 4.0;

/// What is added up for a column: sums over its values that are not null.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct ColumnSums {
    values: f64,
    external: f64,
    /// Values of pluggable toasters.
    custom: f64,
    compressed: f64,
    chunks: f64,
    /// Pages of the TOAST relation that reading the values visits.
    visits: f64,
    /// Stored bytes out of line.
    stored: f64,
    /// Bytes that the chunks take on pages.
    toast_bytes: f64,
    /// Bytes of the heap tuples that have a value.
    heap_bytes: f64,
    pglz_bytes: f64,
    lz4_bytes: f64,
}

/// Where a value's chunks stand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Places {
    pub(super) chunks: f64,
    /// How often the next chunk is on another page than the one before.
    pub(super) visits: f64,
}

impl ColumnSums {
    /// Adds a value of a row with a tuple of so many bytes.
    pub(super) fn add(
        &mut self,
        value: &Placed,
        tuple: u32,
        page: PageSize,
        places: Option<Places>,
    ) {
        if value.form == Form::Null {
            return;
        }
        self.values += 1.0;
        self.heap_bytes += tuple_bytes(tuple) as f64;
        if matches!(value.form, Form::Compressed | Form::ExternalCompressed) {
            self.compressed += 1.0;
            match value.method {
                Some(Method::Lz4) => self.lz4_bytes += f64::from(value.raw_size),
                _ => self.pglz_bytes += f64::from(value.raw_size),
            }
        }
        if value.form == Form::Custom {
            self.custom += 1.0;
        }
        if value.is_outside() {
            let Places { chunks, visits } = places.unwrap_or(Places {
                chunks: f64::from(value.chunks),
                // one after the other, as they were written
                visits: (f64::from(value.chunks) / CHUNKS_PER_PAGE).ceil(),
            });
            self.external += 1.0;
            self.chunks += chunks;
            self.visits += visits;
            self.stored += f64::from(value.stored_size);
            self.toast_bytes += chunk_bytes(page, value.stored_size) as f64;
        }
    }

    /// What all of these cost to read out of the TOAST relation and decompress.
    fn read(&self, index: Index) -> ReadWork {
        ReadWork {
            heap_pages: 0.0,
            lookups: self.external,
            index_pages: self.index_pages(index),
            toast_pages: self.visits,
            chunks: self.chunks,
            copied_bytes: self.stored,
            decompressions: self.compressed,
            pglz_bytes: self.pglz_bytes,
            lz4_bytes: self.lz4_bytes,
        }
    }

    fn index_pages(&self, index: Index) -> f64 {
        self.external * index.levels + self.chunks * index.pages_per_chunk
    }

    fn update(&self) -> UpdateWork {
        UpdateWork {
            rows: self.values,
            heap_bytes: self.heap_bytes,
            toast_bytes: self.toast_bytes,
            chunks: self.chunks,
            deleted_chunks: self.chunks,
        }
    }
}

/// What a descent of the TOAST relation's index visits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Index {
    levels: f64,
    /// Leaves after the first, for each chunk.
    pages_per_chunk: f64,
}

impl Index {
    pub(super) fn of(levels: u32, page: PageSize) -> Index {
        let pages_per_chunk = ToastIndex::pages_per_chunk(page);
        Index { levels: f64::from(levels), pages_per_chunk }
    }
}

/// A block of the sample, or several.
#[derive(Debug, Clone)]
pub(super) struct Cluster {
    blocks: f64,
    rows: f64,
    heap_bytes: f64,
    widths: [f64; RANGES],
    columns: Vec<ColumnSums>,
}

impl Cluster {
    /// Nothing added yet, of a table with so many columns that are looked at.
    pub(super) fn new(columns: usize) -> Cluster {
        let columns = vec![ColumnSums::default(); columns];
        Cluster { blocks: 0.0, rows: 0.0, heap_bytes: 0.0, widths: [0.0; RANGES], columns }
    }

    /// Adds a row with a tuple of so many bytes, whose width is in this range.
    pub(super) fn row(&mut self, tuple: u32, range: usize) {
        self.rows += 1.0;
        self.heap_bytes += tuple_bytes(tuple) as f64;
        if let Some(rows) = self.widths.get_mut(range) {
            *rows += 1.0;
        }
    }

    /// The sums of a column.
    pub(super) fn column(&mut self, at: usize) -> Option<&mut ColumnSums> {
        self.columns.get_mut(at)
    }

    fn merge(&mut self, other: &Cluster) {
        self.blocks += other.blocks;
        self.rows += other.rows;
        self.heap_bytes += other.heap_bytes;
        for (sum, more) in self.widths.iter_mut().zip(other.widths) {
            *sum += more;
        }
        for (sums, more) in self.columns.iter_mut().zip(&other.columns) {
            sums.values += more.values;
            sums.external += more.external;
            sums.custom += more.custom;
            sums.compressed += more.compressed;
            sums.chunks += more.chunks;
            sums.visits += more.visits;
            sums.stored += more.stored;
            sums.toast_bytes += more.toast_bytes;
            sums.heap_bytes += more.heap_bytes;
            sums.pglz_bytes += more.pglz_bytes;
            sums.lz4_bytes += more.lz4_bytes;
        }
    }
}

/// The sums of a sample.
#[derive(Debug)]
pub(super) struct Sums {
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
    pub(super) index: Index,
}

impl Sums {
    /// For a table with so many columns that are looked at.
    pub(super) fn new(columns: usize) -> Sums {
        let most = (MAX_SUMS / columns.max(1)).clamp(LEAST_CLUSTERS, MAX_CLUSTERS);
        Sums { clusters: Vec::new(), most, added: 0 }
    }

    /// Adds a block. Blocks come in random order, or all of them do.
    pub(super) fn block(&mut self, block: Cluster) {
        let block = Cluster { blocks: 1.0, ..block };
        match self.clusters.get_mut(cluster_of(self.added, self.most)) {
            Some(cluster) => cluster.merge(&block),
            None => self.clusters.push(block),
        }
        self.added += 1;
    }

    pub(super) fn rows(&self) -> f64 {
        self.clusters.iter().map(|cluster| cluster.rows).sum()
    }

    /// Whether the sample has a value in a column.
    pub(super) fn has_values(&self, column: usize) -> bool {
        self.clusters.iter().any(|c| c.columns.get(column).is_some_and(|sums| sums.values > 0.0))
    }

    /// The ratio of two sums in the whole table.
    fn ratio(
        &self,
        scope: &Scope,
        above: impl Fn(&Cluster) -> f64,
        below: impl Fn(&Cluster) -> f64,
    ) -> Option<Figure> {
        let above: Vec<f64> = self.clusters.iter().map(above).collect();
        let below: Vec<f64> = self.clusters.iter().map(below).collect();
        let read: f64 = self.clusters.iter().map(|cluster| cluster.blocks).sum();
        let part = read / f64::from(scope.total_blocks.max(1));
        Some(Figure(ratio(&above, &below, part, scope.complete)?.at_least_zero()))
    }

    /// A sum's total in the whole table. Of a sample, a block more or less is allowed for: the last one is seldom
    /// full and seldom drawn.
    fn total(&self, scope: &Scope, sum: impl Fn(&Cluster) -> f64) -> Figure {
        let each = self.ratio(scope, sum, |cluster| cluster.blocks);
        let each = each.map_or(Estimate::default(), |Figure(each)| each);
        let block = if scope.complete { 0.0 } else { each.estimate };
        let total = each.scaled(f64::from(scope.total_blocks)).widened(0.0, block);
        Figure(total.at_least_zero())
    }

    /// Live rows of the table.
    pub(super) fn live_rows(&self, scope: &Scope) -> Figure {
        self.total(scope, |cluster| cluster.rows)
    }

    /// The part of the rows that is in each range of widths.
    pub(super) fn widths(&self, scope: &Scope) -> Vec<Figure> {
        (0..RANGES)
            .map(|range| {
                let in_range = |c: &Cluster| c.widths.get(range).copied().unwrap_or(0.0);
                self.ratio(scope, in_range, |c| c.rows).unwrap_or_else(nothing)
            })
            .collect()
    }

    /// What an UPDATE of a row writes that changes no value out of line.
    pub(super) fn update_other(&self, scope: &Scope) -> Written {
        let each = |of: fn(&UpdateWork) -> f64| {
            let above = |c: &Cluster| {
                of(&UpdateWork { rows: c.rows, heap_bytes: c.heap_bytes, ..UpdateWork::default() })
            };
            self.ratio(scope, above, |c| c.rows).unwrap_or_else(nothing)
        };
        Written {
            heap_bytes: each(|work| work.heap_bytes),
            toast_bytes: nothing(),
            wal_bytes: each(UpdateWork::wal_bytes),
        }
    }

    /// The figures of one column.
    pub(super) fn column(
        &self,
        at: usize,
        attribute: &Attribute,
        scope: &Scope,
    ) -> ColumnExplanation {
        let of = |sum: fn(&ColumnSums) -> f64| {
            move |cluster: &Cluster| cluster.columns.get(at).map_or(0.0, sum)
        };
        let (index, blocks) = (scope.index, f64::from(scope.total_blocks));
        let each_external =
            |sum: fn(&ColumnSums) -> f64| self.ratio(scope, of(sum), of(|s| s.external));
        let work = |price: &dyn Fn(&ReadWork) -> f64, cluster: &Cluster| {
            cluster.columns.get(at).map_or(0.0, |sums| price(&sums.read(index)))
        };
        let read = each_external(|s| s.chunks).map(|chunks| {
            let both = |cluster: &Cluster| work(&ReadWork::buffers, cluster);
            let of_index =
                |c: &Cluster| c.columns.get(at).map_or(0.0, |sums| sums.index_pages(index));
            let each = |above: &dyn Fn(&Cluster) -> f64| {
                self.ratio(scope, above, of(|s| s.external)).unwrap_or_else(nothing)
            };
            ValueRead {
                buffers: each(&both),
                index_buffers: each(&of_index),
                toast_buffers: each(&of(|s| s.visits)),
                chunks,
                bytes: each(&of(|s| s.stored)),
            }
        });
        let prices = Prices::default();
        let values = self.total(scope, of(|s| s.values));
        // the heap's pages are read once for all values
        let heap_ns = if values.0.estimate > 0.0 {
            prices.read_ns(&ReadWork { heap_pages: blocks, ..ReadWork::default() })
                / values.0.estimate
        } else {
            0.0
        };
        let cpu = self.ratio(scope, |c| work(&|w| prices.read_ns(w), c), of(|s| s.values));
        let scan = self.total(scope, |cluster| work(&ReadWork::buffers, cluster));
        let update = |price: fn(&UpdateWork) -> f64| {
            let above = |c: &Cluster| c.columns.get(at).map_or(0.0, |sums| price(&sums.update()));
            self.ratio(scope, above, of(|s| s.values)).unwrap_or_else(nothing)
        };
        ColumnExplanation {
            column: attribute.name.clone(),
            type_name: attribute.type_name.clone(),
            storage: attribute.storage.name(),
            values,
            external_values: self.total(scope, of(|s| s.external)),
            custom_values: self.total(scope, of(|s| s.custom)),
            compressed_values: self.total(scope, of(|s| s.compressed)),
            read,
            decompressed_bytes: self.ratio(
                scope,
                of(|s| s.pglz_bytes + s.lz4_bytes),
                of(|s| s.compressed),
            ),
            read_cpu_ns: plus(cpu.unwrap_or_else(nothing), heap_ns),
            scan_buffers: plus(scan, blocks),
            update: Written {
                heap_bytes: update(|work| work.heap_bytes),
                toast_bytes: update(|work| work.toast_bytes),
                wal_bytes: update(UpdateWork::wal_bytes),
            },
        }
    }
}

fn nothing() -> Figure {
    Figure(Estimate::default())
}

fn plus(Figure(Estimate { estimate, low, high }): Figure, more: f64) -> Figure {
    Figure(Estimate { estimate: estimate + more, low: low + more, high: high + more })
}
