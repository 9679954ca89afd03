//! From the sums of a sample to the figures of the whole table, with 95 % confidence intervals.
//!
//! All that is added up is added up by block (by cluster of blocks in big samples). A total is the
//! ratio of its sum to the number of blocks read, times the blocks of the relation; a figure per
//! value and a change against today are ratios of two sums ([`crate::model::estimate`]). To that
//! comes an allowance for what the model itself may be wrong by.

use super::tally::{Sum, Sums, Tally, VariantTally};
use crate::disk::layout::PageSize;
use crate::fill::btree::ToastIndex;
use crate::model::cost::{Prices, ReadWork, UpdateWork};
use crate::model::estimate::{Estimate, ratio};

/// How far page filling may be off.
const ALLOWANCE: f64 = 0.005;

/// A figure of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Figure {
    pub value: Estimate,
    /// Its part above what it is today: 0.1 is 10 % more. `None` where today's is 0.
    pub change: Option<Estimate>,
}

/// All figures of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Figures {
    /// Bytes of the heap's main fork.
    pub heap_bytes: Figure,
    /// Bytes of the TOAST relation's main fork.
    pub toast_bytes: Figure,
    /// Bytes of its index.
    pub toast_index_bytes: Figure,
    /// The three together.
    pub total_bytes: Figure,
    /// Chunks in the TOAST relation.
    pub chunks: Figure,
    /// Buffers that a scan of the column visits for one value.
    pub read_buffers: Figure,
    /// Nanoseconds of CPU that storage adds to the read of one value.
    pub read_cpu_ns: Figure,
    /// Bytes written when one value is replaced.
    pub update_bytes: Figure,
    /// Bytes of WAL when one value is replaced, without full-page images.
    pub update_wal_bytes: Figure,
}

/// What was sampled of what.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scope {
    /// Blocks of the heap.
    pub total_blocks: u32,
    /// Whether every row of every block was looked at.
    pub complete: bool,
    /// The page size.
    pub page: PageSize,
}

/// A figure as a weighted sum of [`Sum`]s.
#[derive(Debug, Clone, Default)]
struct Linear(Vec<(Sum, f64)>);

impl Linear {
    fn of(&self, sums: &Sums) -> f64 {
        self.0.iter().map(|&(sum, weight)| sums.get(sum) * weight).sum()
    }
}

/// What turns the sums of one variant into figures.
struct Formulas {
    heap: Linear,
    toast: Linear,
    index: Linear,
    chunks: Linear,
    total: Linear,
    buffers: Linear,
    read_ns: Linear,
    update: Linear,
    wal: Linear,
}

impl Formulas {
    fn of(tally: &VariantTally, scope: &Scope, scale: f64, prices: &Prices) -> Formulas {
        let page = scope.page.bytes() as f64;
        let sums = total(tally);
        // Bytes on pages for each byte of tuples, as the sample filled them.
        let pack = |filled: f64, bytes: f64| if bytes > 0.0 { filled * page / bytes } else { 1.0 };
        let heap_pack = pack(tally.heap().filled_pages(), sums.get(Sum::HeapBytes));
        let toast_pack = pack(tally.toast().heap().filled_pages(), sums.get(Sum::ToastBytes));
        let chunks = sums.get(Sum::Chunks) * scale;
        let levels = f64::from(ToastIndex::of(scope.page, chunks as u64).levels);
        let index_pages_per_chunk = ToastIndex::pages_per_chunk(scope.page);
        let index_bytes = index_pages_per_chunk * page;
        let heap = (Sum::HeapBytes, heap_pack);
        let toast = (Sum::ToastBytes, toast_pack);
        let index = (Sum::Chunks, index_bytes);
        // One unit of a sum, as work.
        let unit = |sum: Sum| {
            let mut work = ReadWork::default();
            match sum {
                Sum::HeapBytes => work.heap_pages = heap_pack / page,
                Sum::Lookups => {
                    work.lookups = 1.0;
                    work.index_pages = levels;
                }
                Sum::Visits => work.toast_pages = 1.0,
                Sum::ColumnChunks => {
                    work.chunks = 1.0;
                    work.index_pages = index_pages_per_chunk;
                }
                Sum::ColumnExternalBytes => work.copied_bytes = 1.0,
                Sum::Decompressions => work.decompressions = 1.0,
                Sum::PglzBytes => work.pglz_bytes = 1.0,
                Sum::Lz4Bytes => work.lz4_bytes = 1.0,
                Sum::Values
                | Sum::ToastBytes
                | Sum::Chunks
                | Sum::ColumnToastBytes
                | Sum::ValueHeapBytes => {}
            }
            work
        };
        let read = [
            Sum::HeapBytes,
            Sum::Lookups,
            Sum::Visits,
            Sum::ColumnChunks,
            Sum::ColumnExternalBytes,
            Sum::Decompressions,
            Sum::PglzBytes,
            Sum::Lz4Bytes,
        ];
        let update_unit = |sum: Sum| {
            let mut work = UpdateWork::default();
            match sum {
                Sum::Values => work.rows = 1.0,
                Sum::ValueHeapBytes => work.heap_bytes = 1.0,
                Sum::ColumnToastBytes => work.toast_bytes = 1.0,
                Sum::ColumnChunks => {
                    work.chunks = 1.0;
                    work.deleted_chunks = 1.0;
                }
                _ => {}
            }
            work
        };
        let update = [Sum::Values, Sum::ValueHeapBytes, Sum::ColumnToastBytes, Sum::ColumnChunks];
        Formulas {
            heap: Linear(vec![heap]),
            toast: Linear(vec![toast]),
            index: Linear(vec![index]),
            chunks: Linear(vec![(Sum::Chunks, 1.0)]),
            total: Linear(vec![heap, toast, index]),
            buffers: Linear(read.iter().map(|&s| (s, unit(s).buffers())).collect()),
            read_ns: Linear(read.iter().map(|&s| (s, prices.read_ns(&unit(s)))).collect()),
            update: Linear(update.iter().map(|&s| (s, update_unit(s).bytes())).collect()),
            wal: Linear(update.iter().map(|&s| (s, update_unit(s).wal_bytes())).collect()),
        }
    }
}

fn total(tally: &VariantTally) -> Sums {
    let mut sums = Sums::default();
    for cluster in &tally.clusters {
        sums.add_weighted(cluster, 1.0);
    }
    sums
}

/// The figures of every variant, in order; the first one is today's.
pub fn figures(tally: &Tally, scope: &Scope, prices: &Prices) -> Vec<Figures> {
    let blocks = tally.blocks();
    let read: f64 = blocks.iter().sum();
    let all = f64::from(scope.total_blocks);
    let scale = if read > 0.0 { all / read } else { 0.0 };
    let part = if all > 0.0 { read / all } else { 1.0 };
    let page = scope.page.bytes() as f64;
    let series = |linear: &Linear, of: &VariantTally| -> Vec<f64> {
        of.clusters.iter().map(|sums| linear.of(sums)).collect()
    };
    let today = tally.tallies().first().map(|t| (t, Formulas::of(t, scope, scale, prices)));
    let mut out = Vec::with_capacity(tally.tallies().len());
    for variant in tally.tallies() {
        let formulas = Formulas::of(variant, scope, scale, prices);
        let relative = ALLOWANCE;
        let change = |linear: &Linear, of_today: &dyn Fn(&Formulas) -> &Linear| {
            let (today, today_formulas) = today.as_ref()?;
            let before = series(of_today(today_formulas), today);
            let after = series(linear, variant);
            if before == after {
                return before.iter().any(|&b| b > 0.0).then_some(Estimate::default());
            }
            let ratio = ratio(&after, &before, part, scope.complete)?.widened(relative, 0.0);
            let less_one = |e: Estimate| Estimate {
                estimate: e.estimate - 1.0,
                low: e.low - 1.0,
                high: e.high - 1.0,
            };
            Some(less_one(ratio.at_least_zero()))
        };
        let bytes = |linear: &Linear, of_today: &dyn Fn(&Formulas) -> &Linear, point: f64| {
            let value = ratio(&series(linear, variant), blocks, part, scope.complete)
                .unwrap_or_default()
                .scaled(all);
            // The point estimate counts whole pages; the interval moves with it.
            let moved = point - value.estimate;
            let value =
                Estimate { estimate: point, low: value.low + moved, high: value.high + moved };
            let value = if point > 0.0 { value.widened(relative, page) } else { value };
            Figure { value: value.at_least_zero(), change: change(linear, of_today) }
        };
        let values = series(&Linear(vec![(Sum::Values, 1.0)]), variant);
        let each = |linear: &Linear, of_today: &dyn Fn(&Formulas) -> &Linear| {
            let value = ratio(&series(linear, variant), &values, part, scope.complete);
            Figure {
                value: value.unwrap_or_default().widened(relative, 0.0).at_least_zero(),
                change: change(linear, of_today),
            }
        };
        let sums = total(variant);
        let pages = |pages: u64, filled: f64| {
            let whole = if scope.complete { pages as f64 } else { (filled * scale).ceil() };
            whole * page
        };
        let heap = pages(variant.heap().pages(), variant.heap().filled_pages());
        let toast = pages(variant.toast().heap().pages(), variant.toast().heap().filled_pages());
        let chunk_count = (sums.get(Sum::Chunks) * scale).round();
        let index = ToastIndex::of(scope.page, chunk_count as u64).pages as f64 * page;
        let chunks = ratio(&series(&formulas.chunks, variant), blocks, part, scope.complete)
            .unwrap_or_default()
            .scaled(all);
        out.push(Figures {
            heap_bytes: bytes(&formulas.heap, &|f| &f.heap, heap),
            toast_bytes: bytes(&formulas.toast, &|f| &f.toast, toast),
            toast_index_bytes: bytes(&formulas.index, &|f| &f.index, index),
            total_bytes: bytes(&formulas.total, &|f| &f.total, heap + toast + index),
            chunks: Figure {
                value: chunks.at_least_zero(),
                change: change(&formulas.chunks, &|f| &f.chunks),
            },
            read_buffers: each(&formulas.buffers, &|f| &f.buffers),
            read_cpu_ns: each(&formulas.read_ns, &|f| &f.read_ns),
            update_bytes: each(&formulas.update, &|f| &f.update),
            update_wal_bytes: each(&formulas.wal, &|f| &f.wal),
        });
    }
    out
}
