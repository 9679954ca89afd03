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
        let change = self.change.map(|change| {
            let part = change.plus(Interval::exact(1.0)).widened(error, 0.0).at_least_zero();
            part.plus(Interval::exact(-1.0))
        });
        Figure { value, change }
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

/// The method of [`Formulas`] that gives a figure.
type Formula = fn(&Formulas, &Sums) -> f64;

/// Bytes on pages for each byte that was put on them; 1 if nothing was.
fn packing(page_bytes: f64, bytes: f64) -> f64 {
    if bytes > 0.0 { page_bytes / bytes } else { 1.0 }
}

impl Formulas {
    fn new(tally: &VariantTally, scope: &Scope, scale: f64, pricing: &Pricing) -> Formulas {
        let page = scope.page.bytes() as f64;
        // of a block some rows may stand for all: the sums count them as often, the pages hold them once
        let put = tally.put();
        let [heap, toast] = tally.filled();
        let heap_pack = packing(heap.filled * page, put.get(Sum::HeapBytes));
        Formulas {
            heap_pages: heap_pack / page,
            toast_pack: packing(toast.filled * page, put.get(Sum::ToastBytes)),
            index: IndexShape::new(mean_levels(&tally.parts(), scope.page, scale), scope.page),
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

    fn values(&self, sums: &Sums) -> f64 {
        sums.get(Sum::Values)
    }

    fn rows(&self, sums: &Sums) -> f64 {
        sums.get(Sum::Rows)
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
fn mean_levels(parts: &[Sums], page: PageSize, scale: f64) -> f64 {
    if let [part] = parts {
        return index_levels(part, page, scale);
    }
    let all: f64 = parts.iter().map(|part| part.get(Sum::Chunks)).sum();
    let weighted = parts.iter().map(|part| index_levels(part, page, scale) * part.get(Sum::Chunks));
    weighted.sum::<f64>() / all.max(1.0)
}

fn index_levels(part: &Sums, page: PageSize, scale: f64) -> f64 {
    f64::from(ToastIndex::new(page, (part.get(Sum::Chunks) * scale) as u64).levels)
}

/// The figures of every variant, in order; the first one is today's.
pub fn figures(tally: &Tally, scope: &Scope, pricing: &Pricing) -> Vec<Figures> {
    let blocks = tally.blocks();
    let read: f64 = blocks.iter().sum();
    let all = f64::from(scope.total_blocks);
    let scale = if read > 0.0 { all / read } else { 0.0 };
    let part = if all > 0.0 { read / all } else { 1.0 };
    let mut variants = Vec::with_capacity(tally.tallies().len());
    for tally in tally.tallies() {
        let formulas = Formulas::new(tally, scope, scale, pricing);
        variants.push(SampledVariant { tally, formulas, scope, blocks, scale, part });
    }
    let Some(today) = variants.first() else { return Vec::new() };
    variants.iter().map(|variant| Comparison { variant, today }.figures()).collect()
}

/// What a sample shows of one variant.
struct SampledVariant<'a> {
    tally: &'a VariantTally,
    formulas: Formulas,
    scope: &'a Scope,
    /// The weight of each cluster of blocks.
    blocks: &'a [f64],
    /// The relation's blocks divided by those that were read, and the reverse.
    scale: f64,
    part: f64,
}

impl SampledVariant<'_> {
    fn series(&self, formula: Formula) -> Vec<f64> {
        self.tally.clusters.iter().map(|sums| formula(&self.formulas, sums)).collect()
    }

    /// The total of the whole table, from the mean of a block.
    fn total(&self, formula: Formula) -> Interval {
        let mean = ratio(&self.series(formula), self.blocks, self.part, self.scope.complete);
        mean.unwrap_or_default().scaled(f64::from(self.scope.total_blocks))
    }

    /// Whole pages: those that were filled if every row was read, else as many as the parts need.
    fn page_bytes(&self, filled: Filled, formula: Formula) -> f64 {
        let page = self.scope.page.bytes() as f64;
        if self.scope.complete {
            return filled.pages * page;
        }
        let parts = self.tally.parts();
        let bytes = parts.iter().map(|part| formula(&self.formulas, part) * self.scale);
        bytes.map(|bytes| (bytes / page).ceil() * page).sum()
    }

    fn index_bytes(&self) -> f64 {
        let page = self.scope.page;
        let parts = self.tally.parts();
        let chunks = parts.iter().map(|part| (part.get(Sum::Chunks) * self.scale).round() as u64);
        let pages = chunks.map(|chunks| ToastIndex::new(page, chunks).pages as f64);
        pages.map(|pages| pages * page.bytes() as f64).sum()
    }
}

/// A variant compared with the present settings.
struct Comparison<'a> {
    variant: &'a SampledVariant<'a>,
    today: &'a SampledVariant<'a>,
}

impl Comparison<'_> {
    fn change(&self, formula: Formula) -> Option<Interval> {
        let before = self.today.series(formula);
        let after = self.variant.series(formula);
        if before == after {
            return before.iter().any(|&b| b > 0.0).then_some(Interval::default());
        }
        let complete = self.variant.scope.complete;
        let ratio = ratio(&after, &before, self.variant.part, complete)?.widened(ALLOWANCE, 0.0);
        Some(ratio.at_least_zero().plus(Interval::exact(-1.0)))
    }

    /// The size of a file. The point estimate counts whole pages; the interval moves with it.
    fn file_bytes(&self, formula: Formula, point: f64) -> Figure {
        let value = self.variant.total(formula);
        let moved = point - value.estimate;
        let mut value =
            Interval { estimate: point, low: value.low + moved, high: value.high + moved };
        if point > 0.0 {
            value = value.widened(ALLOWANCE, self.variant.scope.page.bytes() as f64);
        }
        Figure { value: value.at_least_zero(), change: self.change(formula) }
    }

    fn mean(&self, count: Formula, formula: Formula) -> Figure {
        let variant = self.variant;
        let above = variant.series(formula);
        let value = ratio(&above, &variant.series(count), variant.part, variant.scope.complete);
        let value = value.unwrap_or_default().widened(ALLOWANCE, 0.0).at_least_zero();
        Figure { value, change: self.change(formula) }
    }

    fn per_value(&self, formula: Formula) -> Figure {
        self.mean(Formulas::values, formula)
    }

    fn per_row(&self, formula: Formula) -> Figure {
        self.mean(Formulas::rows, formula)
    }

    fn figures(&self) -> Figures {
        let variant = self.variant;
        let formulas = &variant.formulas;
        let read_error = formulas.pricing.read_error.unwrap_or_default();
        let write_error = formulas.pricing.write_error.unwrap_or_default();
        let [heap, toast] = variant.tally.filled();
        let heap = variant.page_bytes(heap, Formulas::heap);
        let toast = variant.page_bytes(toast, Formulas::toast);
        let index = variant.index_bytes();
        Figures {
            files: FileSizes {
                heap_bytes: self.file_bytes(Formulas::heap, heap),
                toast_bytes: self.file_bytes(Formulas::toast, toast),
                toast_index_bytes: self.file_bytes(Formulas::index, index),
                total_bytes: self.file_bytes(Formulas::total, heap + toast + index),
            },
            chunks: Figure {
                value: variant.total(Formulas::chunks).at_least_zero(),
                change: self.change(Formulas::chunks),
            },
            read_buffers: self.per_value(Formulas::buffers),
            read_cpu_ns: self.per_value(Formulas::read_ns).less_certain(read_error),
            update_bytes: self.per_value(Formulas::update),
            update_wal_bytes: self.per_value(Formulas::wal),
            further: Further {
                write_cpu_ns: self.per_value(Formulas::write_ns).less_certain(write_error),
                other_wal_bytes: self.per_row(Formulas::other_wal),
                hot_wal_bytes: self.per_row(Formulas::hot_wal),
                full_page_bytes: self.per_value(Formulas::full_pages),
                prefix_buffers: self.per_value(Formulas::prefix_buffers),
                prefix_cpu_ns: self.per_value(Formulas::prefix_ns).less_certain(read_error),
                cold_pages: self.per_value(Formulas::cold_pages),
            },
            written: formulas.written(&total(&variant.tally.parts()), variant.scale),
        }
    }
}
