//! From the sums of a sample to the figures of the whole table, with 95 % confidence intervals.
//!
//! All that is added up is added up by block (by cluster of blocks in big samples). A total is the
//! ratio of its sum to the number of blocks read, times the blocks of the relation; a figure per
//! value and a change against today are ratios of two sums ([`toast_format::model::estimate`]). To that
//! comes an allowance for what the model itself may be wrong by.

use serde::{Serialize, Serializer};

use super::tally::{Filled, IndexShape, Sum, Sums, Tally, VariantTally};
use toast_format::disk::layout::PageSize;
use toast_format::model::btree::ToastIndex;
use toast_format::model::cost::{Pricing, ReadWork};
use toast_format::model::estimate::ratio;
use toast_format::model::interval::{Interval, Reported};

/// How far page filling may be off.
const ALLOWANCE: f64 = 0.005;

/// A figure with its 95 % confidence interval and its change from today.
//
// In JSON a whole number, unless it is asked for otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, schemars::JsonSchema)]
#[serde(into = "Changed<u64>")]
pub struct Figure {
    pub value: Interval,
    /// Its part above what it is today: 0.1 is 10 % more. `None` where today's is 0.
    pub change: Option<Interval>,
}

/// An estimate with its 95 % confidence interval and its change from today.
#[derive(Serialize, schemars::JsonSchema)]
pub(super) struct Changed<T: Reported> {
    #[serde(flatten)]
    value: Interval<T>,
    /// Change from today's figure, as a fraction: -0.25 is a quarter less. Null for today's own figures, and where
    /// today's figure is 0.
    change: Option<Interval>,
}

impl From<Figure> for Changed<u64> {
    fn from(figure: Figure) -> Changed<u64> {
        Changed { value: figure.value.whole(), change: figure.change }
    }
}

impl Figure {
    /// The figure if this relative error is added to it, and to today's.
    fn less_certain(self, error: f64) -> Figure {
        let value = self.value.widened(error, 0.0).at_least_zero();
        let widened = |change: Interval| {
            let part = change.plus(Interval::exact(1.0)).widened(error, 0.0).at_least_zero();
            part.plus(Interval::exact(-1.0))
        };
        Figure { value, change: self.change.map(widened) }
    }

    /// In JSON with three digits.
    pub(super) fn three_digits<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let round = |number: f64| (number * 1e3).round() / 1e3 + 0.0;
        let Interval { estimate, low, high } = self.value;
        let value = Interval { estimate: round(estimate), low: round(low), high: round(high) };
        Changed { value, change: self.change }.serialize(serializer)
    }
}

/// A CPU time; without calibration its error is not known, so that it has no interval.
//
// In JSON a whole number.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, schemars::JsonSchema)]
#[serde(into = "WithoutEnds")]
pub struct CpuTime {
    pub figure: Figure,
    pub calibrated: bool,
}

/// An estimate with its change from today, and 95 % confidence intervals of both if prices were calibrated.
#[derive(Serialize, schemars::JsonSchema)]
pub(super) struct WithoutEnds {
    #[serde(flatten)]
    value: Interval<u64, Option<u64>>,
    /// Change from today's figure, as a fraction: -0.25 is a quarter less. Null for today's own figures, and where
    /// today's figure is 0.
    change: Option<Interval<f64, Option<f64>>>,
}

impl From<CpuTime> for WithoutEnds {
    fn from(CpuTime { figure, calibrated }: CpuTime) -> WithoutEnds {
        let Figure { value, change } = figure;
        let value = value.whole();
        WithoutEnds {
            value: value.with_ends(calibrated),
            change: change.map(|change| change.with_ends(calibrated)),
        }
    }
}

/// Sizes of files as VACUUM FULL leaves them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, schemars::JsonSchema)]
pub struct FileSizes {
    /// Bytes of the heap.
    pub heap_bytes: Figure,
    /// Bytes of the TOAST relation.
    pub toast_bytes: Figure,
    /// Bytes of its index.
    pub toast_index_bytes: Figure,
    /// The three together.
    pub total_bytes: Figure,
}

/// All figures of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Figures {
    pub files: FileSizes,
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
    pub further: Further,
    pub written: Written,
}

/// Costs of single reads and writes besides those of a scan and of replacing the value.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Further {
    /// Nanoseconds of CPU for compressing one value and storing its chunks.
    pub write_cpu_ns: Figure,
    /// Bytes of WAL when another column of a row is changed, and the new row version goes to another page.
    pub other_wal_bytes: Figure,
    /// The same if it stays on its page.
    pub hot_wal_bytes: Figure,
    /// Bytes of full-page images when one value is replaced, and none of its pages was changed since the last checkpoint.
    pub full_page_bytes: Figure,
    /// Buffers visited to read a prefix of one value.
    pub prefix_buffers: Figure,
    /// Nanoseconds of CPU that storage adds to that.
    pub prefix_cpu_ns: Figure,
    /// Pages that one value is read from.
    pub cold_pages: Figure,
}

/// What a conversion writes anew of the whole table.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Written {
    /// Bytes of heap tuples.
    pub heap_bytes: f64,
    /// Bytes of chunks on pages.
    pub toast_bytes: f64,
    /// Bytes that the entries of these chunks take of the index.
    pub index_bytes: f64,
}

impl Figures {
    /// What a conversion changes of one relation of those that the figures are of. `share`: its part of a sum.
    pub(super) fn of_part(&self, share: impl Fn(Sum) -> f64) -> Figures {
        let part =
            |figure: Figure, sum| Figure { value: figure.value.scaled(share(sum)), ..figure };
        let files = FileSizes {
            heap_bytes: part(self.files.heap_bytes, Sum::HeapBytes),
            toast_bytes: part(self.files.toast_bytes, Sum::ToastBytes),
            toast_index_bytes: part(self.files.toast_index_bytes, Sum::Chunks),
            ..self.files
        };
        let written = Written {
            heap_bytes: self.written.heap_bytes * share(Sum::NewHeapBytes),
            toast_bytes: self.written.toast_bytes * share(Sum::NewToastBytes),
            index_bytes: self.written.index_bytes * share(Sum::NewChunks),
        };
        Figures { files, written, ..*self }
    }
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
    /// Whether WAL has what logical decoding needs.
    pub logical: bool,
}

/// What turns the sums of one variant into figures.
struct Formulas {
    /// Pages for each byte of heap tuples, and bytes on pages for each byte of chunks, as the sample filled them.
    heap_pages: f64,
    toast_pack: f64,
    index: IndexShape,
    page: f64,
    pricing: Pricing,
    logical: bool,
}

/// One of them.
type Formula = fn(&Formulas, &Sums) -> f64;

impl Formulas {
    fn of(tally: &VariantTally, scope: &Scope, scale: f64, pricing: &Pricing) -> Formulas {
        let page = scope.page.bytes() as f64;
        // of a block some rows may stand for all: the sums count them as often, the pages hold them once
        let pack = |filled: f64, sum: Sum| match tally.put().get(sum) {
            bytes if bytes > 0.0 => filled * page / bytes,
            _ => 1.0,
        };
        let [heap, toast] = tally.filled();
        let heap_pack = pack(heap.filled, Sum::HeapBytes);
        Formulas {
            heap_pages: heap_pack / page,
            toast_pack: pack(toast.filled, Sum::ToastBytes),
            index: IndexShape::of(levels(&tally.parts(), scope.page, scale), scope.page),
            page,
            pricing: *pricing,
            logical: scope.logical,
        }
    }

    fn heap(&self, sums: &Sums) -> f64 {
        sums.get(Sum::HeapBytes) * self.heap_pages * self.page
    }

    fn toast(&self, sums: &Sums) -> f64 {
        sums.get(Sum::ToastBytes) * self.toast_pack
    }

    fn index(&self, sums: &Sums) -> f64 {
        sums.get(Sum::Chunks) * self.index.pages_per_chunk * self.page
    }

    fn total(&self, sums: &Sums) -> f64 {
        self.heap(sums) + self.toast(sums) + self.index(sums)
    }

    fn written(&self, sums: &Sums, scale: f64) -> Written {
        let index = self.index.pages_per_chunk * self.page;
        Written {
            heap_bytes: sums.get(Sum::NewHeapBytes) * self.heap_pages * self.page * scale,
            toast_bytes: sums.get(Sum::NewToastBytes) * self.toast_pack * scale,
            index_bytes: sums.get(Sum::NewChunks) * index * scale,
        }
    }

    fn chunks(&self, sums: &Sums) -> f64 {
        sums.get(Sum::Chunks)
    }

    /// A scan of the column.
    fn read(&self, sums: &Sums) -> ReadWork {
        let heap_pages = sums.get(Sum::HeapBytes) * self.heap_pages;
        ReadWork { heap_pages, ..sums.read(self.index) }
    }

    fn buffers(&self, sums: &Sums) -> f64 {
        self.read(sums).buffers()
    }

    fn read_ns(&self, sums: &Sums) -> f64 {
        self.pricing.read.read_ns(&self.read(sums))
    }

    fn prefix(&self, sums: &Sums) -> ReadWork {
        let heap_pages = sums.get(Sum::HeapBytes) * self.heap_pages;
        ReadWork { heap_pages, ..sums.prefix_read(self.index) }
    }

    fn prefix_buffers(&self, sums: &Sums) -> f64 {
        self.prefix(sums).buffers()
    }

    fn prefix_ns(&self, sums: &Sums) -> f64 {
        self.pricing.read.read_ns(&self.prefix(sums))
    }

    /// The row's page, a leaf of the TOAST index and what follows it, and the pages with the chunks.
    fn cold_pages(&self, sums: &Sums) -> f64 {
        let leaves =
            sums.get(Sum::Lookups) + sums.get(Sum::ColumnChunks) * self.index.pages_per_chunk;
        sums.get(Sum::Values) + leaves + sums.get(Sum::Visits)
    }

    fn write_ns(&self, sums: &Sums) -> f64 {
        self.pricing.write.write_ns(&sums.write())
    }

    /// The page of the old row version, and those of the old chunks.
    fn full_pages(&self, sums: &Sums) -> f64 {
        (sums.get(Sum::Values) + sums.get(Sum::Visits)) * self.page
    }

    fn other_wal(&self, sums: &Sums) -> f64 {
        sums.update_other().wal_bytes()
    }

    fn hot_wal(&self, sums: &Sums) -> f64 {
        sums.update_other().hot_wal_bytes(sums.get(Sum::ToasterRows), self.logical)
    }

    fn update(&self, sums: &Sums) -> f64 {
        sums.update().bytes()
    }

    fn wal(&self, sums: &Sums) -> f64 {
        sums.update().wal_bytes()
    }
}

fn total(parts: &[Sums]) -> Sums {
    let mut sums = Sums::default();
    parts.iter().for_each(|part| sums.add_weighted(part, 1.0));
    sums
}

/// The levels of the TOAST index, as a chunk finds them on average if there are several of them.
fn levels(parts: &[Sums], page: PageSize, scale: f64) -> f64 {
    let chunks = |part: &Sums| part.get(Sum::Chunks);
    let levels =
        |part: &Sums| f64::from(ToastIndex::of(page, (chunks(part) * scale) as u64).levels);
    match parts {
        [one] => levels(one),
        several => {
            let all: f64 = several.iter().map(chunks).sum();
            several.iter().map(|part| levels(part) * chunks(part)).sum::<f64>() / all.max(1.0)
        }
    }
}

/// The figures of every variant, in order; the first one is today's.
pub fn figures(tally: &Tally, scope: &Scope, pricing: &Pricing) -> Vec<Figures> {
    let blocks = tally.blocks();
    let read: f64 = blocks.iter().sum();
    let all = f64::from(scope.total_blocks);
    let scale = if read > 0.0 { all / read } else { 0.0 };
    let part = if all > 0.0 { read / all } else { 1.0 };
    let page = scope.page.bytes() as f64;
    let series = |formula: Formula, formulas: &Formulas, of: &VariantTally| -> Vec<f64> {
        of.clusters.iter().map(|sums| formula(formulas, sums)).collect()
    };
    let today = tally.tallies().first().map(|t| (t, Formulas::of(t, scope, scale, pricing)));
    let of_variant = |variant: &VariantTally| {
        let formulas = Formulas::of(variant, scope, scale, pricing);
        let series_of = |formula: Formula| series(formula, &formulas, variant);
        let per_block = |formula: Formula| {
            let value = ratio(&series_of(formula), blocks, part, scope.complete);
            value.unwrap_or_default().scaled(all)
        };
        let change = |formula: Formula| {
            let (today, today_formulas) = today.as_ref()?;
            let before = series(formula, today_formulas, today);
            let after = series_of(formula);
            if before == after {
                return before.iter().any(|&b| b > 0.0).then_some(Interval::default());
            }
            let ratio = ratio(&after, &before, part, scope.complete)?.widened(ALLOWANCE, 0.0);
            Some(ratio.at_least_zero().plus(Interval::exact(-1.0)))
        };
        let bytes = |formula: Formula, point: f64| {
            let value = per_block(formula);
            // The point estimate counts whole pages; the interval moves with it.
            let moved = point - value.estimate;
            let value =
                Interval { estimate: point, low: value.low + moved, high: value.high + moved };
            let value = if point > 0.0 { value.widened(ALLOWANCE, page) } else { value };
            Figure { value: value.at_least_zero(), change: change(formula) }
        };
        let values = series_of(|_, sums| sums.get(Sum::Values));
        let rows = series_of(|_, sums| sums.get(Sum::Rows));
        let each_of = |count: &[f64], formula: Formula| {
            let value = ratio(&series_of(formula), count, part, scope.complete);
            let value = value.unwrap_or_default().widened(ALLOWANCE, 0.0).at_least_zero();
            Figure { value, change: change(formula) }
        };
        let each = |formula: Formula| each_of(&values, formula);
        let timed = |formula: Formula, error: Option<f64>| {
            each(formula).less_certain(error.unwrap_or_default())
        };
        let read_error = pricing.read_error;
        let write_error = pricing.write_error;
        let parts = variant.parts();
        let each_part = |bytes: &dyn Fn(&Sums) -> f64| parts.iter().map(bytes).sum::<f64>();
        let pages = |filled: Filled, formula: Formula| {
            if scope.complete {
                filled.pages * page
            } else {
                each_part(&|sums| (formula(&formulas, sums) * scale / page).ceil() * page)
            }
        };
        let [heap, toast] = variant.filled();
        let heap = pages(heap, Formulas::heap);
        let toast = pages(toast, Formulas::toast);
        let chunks = |sums: &Sums| (sums.get(Sum::Chunks) * scale).round() as u64;
        let index = each_part(&|sums| ToastIndex::of(scope.page, chunks(sums)).pages as f64 * page);
        Figures {
            files: FileSizes {
                heap_bytes: bytes(Formulas::heap, heap),
                toast_bytes: bytes(Formulas::toast, toast),
                toast_index_bytes: bytes(Formulas::index, index),
                total_bytes: bytes(Formulas::total, heap + toast + index),
            },
            chunks: Figure {
                value: per_block(Formulas::chunks).at_least_zero(),
                change: change(Formulas::chunks),
            },
            read_buffers: each(Formulas::buffers),
            read_cpu_ns: timed(Formulas::read_ns, read_error),
            update_bytes: each(Formulas::update),
            update_wal_bytes: each(Formulas::wal),
            further: Further {
                write_cpu_ns: timed(Formulas::write_ns, write_error),
                other_wal_bytes: each_of(&rows, Formulas::other_wal),
                hot_wal_bytes: each_of(&rows, Formulas::hot_wal),
                full_page_bytes: each(Formulas::full_pages),
                prefix_buffers: each(Formulas::prefix_buffers),
                prefix_cpu_ns: timed(Formulas::prefix_ns, read_error),
                cold_pages: each(Formulas::cold_pages),
            },
            written: formulas.written(&total(&parts), scale),
        }
    };
    tally.tallies().iter().map(of_variant).collect()
}
