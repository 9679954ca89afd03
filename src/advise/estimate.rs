//! From the sums of a sample to the figures of the whole table, with 95 % confidence intervals.
//!
//! All that is added up is added up by block (by cluster of blocks in big samples). A total is the
//! ratio of its sum to the number of blocks read, times the blocks of the relation; a figure per
//! value and a change against today are ratios of two sums ([`toast_format::model::estimate`]). To that
//! comes an allowance for what the model itself may be wrong by.

use serde::{Serialize, Serializer};

use super::tally::{Filled, IndexShape, Sums, Tally, VariantTally};
use toast_format::disk::PageSize;
use toast_format::model::Interval;
use toast_format::model::btree::ToastIndex;
use toast_format::model::cost::{Pricing, ReadWork};
use toast_format::model::estimate::ratio;
use toast_format::model::interval::Reported;

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

/// What is left of a figure after this change: not 0, so that its logarithm is finite.
pub(super) fn part_left(change: f64) -> f64 {
    (1.0 + change).max(0.001)
}

impl Figure {
    /// Adds an amount, and its part of today's figure to the change.
    pub(super) fn add(&mut self, more: f64) {
        let today = self.today();
        self.value = self.value.plus(Interval::exact(more));
        if let Some(change) = &mut self.change {
            *change = change.plus(Interval::exact(more / today));
        }
    }

    /// What it is today.
    pub(super) fn today(&self) -> f64 {
        self.value.estimate / self.change.map_or(1.0, |change| part_left(change.estimate))
    }
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
    /// The estimate, in whole bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.value.estimate.round() as u64
    }

    /// This part of the figure, with the same change.
    pub(super) fn scaled(self, part: f64) -> Figure {
        Figure { value: self.value.scaled(part), ..self }
    }

    /// The figure if `more` is added to it. Today's is `before`, and is `today` with what is added to it.
    pub(super) fn with_more(self, more: f64, before: f64, today: f64) -> Figure {
        let more = Interval::exact(more);
        let value = self.value.plus(more).at_least_zero();
        let change = match self.change {
            Some(change) if today > 0.0 => {
                let then = change.plus(Interval::exact(1.0)).scaled(before).plus(more);
                let part = then.at_least_zero().scaled(1.0 / today);
                Some(part.plus(Interval::exact(-1.0)))
            }
            _ => None,
        };
        Figure { value, change }
    }

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

/// What a column takes and costs with some settings.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, schemars::JsonSchema)]
pub struct Figures {
    /// The files without dead rows and free space, filled as INSERT fills them. VACUUM FULL never goes back to a page that
    /// has room, and leaves some percent more. Changes are against today's values in files written in the same way.
    #[serde(rename = "after_vacuum_full")]
    pub files: FileSizes,
    /// Buffers that a scan of the table visits that does not need the column.
    pub scan_buffers: Figure,
    /// Chunks in the TOAST relation.
    pub chunks: Figure,
    /// Buffers that a scan of the column visits for one value, after the command; of today in the files as they are.
    #[serde(rename = "read_buffers_per_value", serialize_with = "Figure::three_digits")]
    #[schemars(with = "Changed<f64>")]
    pub read_buffers: Figure,
    /// CPU time that storage adds to the read of one value, warm cache.
    #[serde(rename = "read_cpu_ns_per_value")]
    pub read_cpu_ns: CpuTime,
    /// Bytes written when one value is replaced; today by the present settings.
    #[serde(rename = "update_bytes_per_value")]
    pub update_bytes: Figure,
    /// WAL when one value is replaced, without full-page images.
    #[serde(rename = "update_wal_bytes_per_value")]
    pub update_wal_bytes: Figure,
    pub costs: FurtherCosts,
    #[serde(skip)]
    pub written: Written,
}

/// Further costs of one read or write.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, schemars::JsonSchema)]
pub struct FurtherCosts {
    /// CPU time for compressing one value, values that do not get smaller included, and for storing its chunks. The
    /// latter is never timed: there is no interval if values have chunks, or have them today.
    #[serde(rename = "write_cpu_ns_per_value")]
    pub write_cpu_ns: CpuTime,
    /// WAL when a number in another column of a row is changed and the new row version goes to another page, without
    /// full-page images and the table's own indexes.
    #[serde(rename = "other_update_wal_bytes_per_row")]
    pub other_wal_bytes: Figure,
    /// WAL of a HOT update: the same if the new row version stays on its page and no index changes; without pruning.
    #[serde(rename = "hot_update_wal_bytes_per_row")]
    pub hot_wal_bytes: Figure,
    /// Full-page images when one value is replaced and none of its pages was changed since the last checkpoint: the pages
    /// of the old row version and of the old chunks, as far as they are full.
    #[serde(rename = "full_page_bytes_per_value")]
    pub full_page_bytes: Figure,
    /// The first 100 characters of one value, as substr(v, 1, 100) reads them from text or bytea; null for other types,
    /// of which whole values are read.
    pub prefix_read: Option<PrefixRead>,
    /// Pages that are read from disk for one value if nothing but the inner pages of the index is cached.
    #[serde(rename = "cold_read_pages_per_value", serialize_with = "Figure::three_digits")]
    #[schemars(with = "Changed<f64>")]
    pub cold_pages: Figure,
}

/// What reading the beginning of a value takes.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, schemars::JsonSchema)]
pub struct PrefixRead {
    /// Buffers that a scan of the column visits for one value, in files as VACUUM FULL leaves them.
    #[serde(rename = "buffers_per_value", serialize_with = "Figure::three_digits")]
    #[schemars(with = "Changed<f64>")]
    pub buffers: Figure,
    /// CPU time that storage adds.
    #[serde(rename = "cpu_ns_per_value")]
    pub cpu_ns: CpuTime,
}

/// What a conversion rewrites in the whole table, and how much of the dropped columns' values it leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Written {
    /// Bytes of heap tuples, and of those that they replace.
    pub heap_bytes: f64,
    pub replaced_bytes: f64,
    /// Bytes of the heap's pages, as counted by [`Sums::pages_apart`].
    pub heap_apart_bytes: f64,
    /// The same as counted by [`Sums::pages_long_apart`].
    pub heap_long_apart_bytes: f64,
    /// How many times what INSERT puts on a page of the heap fits on it: more than 1 with a fillfactor below 100.
    pub page_room: f64,
    /// Rows that become longer, and their bytes.
    pub grown_rows: f64,
    pub grown_bytes: f64,
    /// Pages of the heap of which more than half is free.
    pub roomy_pages: f64,
    /// The number of values out of line.
    pub values: f64,
    /// Bytes of their chunks on pages.
    pub toast_bytes: f64,
    /// Bytes that the entries of these chunks take of the index.
    pub index_bytes: f64,
    /// Bytes of dropped columns' values on pages of the TOAST relation, and of its index.
    pub dropped_toast_bytes: f64,
    pub dropped_index_bytes: f64,
}

/// The part of the room next to long rows that stays free, by what was found: short rows fill the rest.
const LIKELY_ROOM: f64 = 0.5;

impl Figures {
    /// The files with this part of the values of dropped columns that a conversion leaves in them.
    pub(super) fn with_dropped_columns(&self, part: Interval) -> FileSizes {
        let mut files = self.files;
        let Written { dropped_toast_bytes, dropped_index_bytes, .. } = self.written;
        for (figure, more) in [
            (&mut files.toast_bytes, dropped_toast_bytes),
            (&mut files.toast_index_bytes, dropped_index_bytes),
            (&mut files.total_bytes, dropped_toast_bytes + dropped_index_bytes),
        ] {
            figure.value = figure.value.plus(part.scaled(more));
        }
        files
    }

    /// The same figures as if no value of a dropped column were left, and each long row had been moved to a page of its own.
    pub(super) fn whatever_came_before(&self) -> Figures {
        let written = Written {
            dropped_toast_bytes: 0.0,
            dropped_index_bytes: 0.0,
            heap_apart_bytes: self.written.heap_long_apart_bytes,
            page_room: 1.0,
            ..self.written
        };
        Figures { written, ..*self }
    }

    /// The heap without free space but what the fillfactor keeps, except where a conversion in place leaves some next to long
    /// rows that have grown.
    pub(super) fn heap_in_place(&self) -> Interval {
        let Interval { estimate, low, high } = self.files.heap_bytes.value;
        let apart = self.written.heap_apart_bytes;
        if apart <= estimate {
            return self.files.heap_bytes.value;
        }
        let likely = estimate + (apart - estimate) * LIKELY_ROOM;
        Interval { estimate: likely, low: low.max(estimate), high: high.max(apart) }
    }

    /// Whether rows that a conversion makes long would stay at the end of the heap, where they keep compaction from returning
    /// what is free in front of them: a few rows, for which few pages have room as long as the others stay where they are.
    pub(super) fn blocks_compaction(&self, today: &Figures, page: f64) -> bool {
        let Written { heap_bytes, grown_rows, grown_bytes, .. } = self.written;
        let are_few = heap_bytes < self.files.heap_bytes.value.estimate / 2.0;
        are_few && grown_rows > today.written.roomy_pages && grown_bytes > grown_rows * page / 4.0
    }

    /// Bytes that conversions in place leave free next to long rows: `part` of the most.
    pub(super) fn room(&self, part: f64) -> f64 {
        let free = self.written.heap_long_apart_bytes - self.files.heap_bytes.value.estimate;
        free.max(0.0) * part
    }

    /// The same figures with what conversions in place leave free next to long rows, and the changes from `today`'s with
    /// that. So they follow from where the values are, and not from the steps in which they came there: they are the same
    /// before a command and after it.
    pub(super) fn in_place(&self, today: &Figures) -> Figures {
        let [free, free_today] = [self, today].map(|figures| figures.room(LIKELY_ROOM));
        let mut all = *self;
        for figure in [&mut all.files.heap_bytes, &mut all.files.total_bytes] {
            let before = figure.today();
            *figure = figure.with_more(free, before, before + free_today);
        }
        all
    }

    /// What a conversion changes of one relation of those that the figures are of: that with `part` of `all` sums.
    pub(super) fn of_part(&self, part: &Sums, all: &Sums) -> Figures {
        let chunks = share(part.chunks, all.chunks);
        let files = FileSizes {
            heap_bytes: self.files.heap_bytes.scaled(share(part.heap_bytes, all.heap_bytes)),
            toast_bytes: self.files.toast_bytes.scaled(share(part.toast_bytes, all.toast_bytes)),
            toast_index_bytes: self.files.toast_index_bytes.scaled(chunks),
            ..self.files
        };
        let Written {
            heap_bytes,
            replaced_bytes,
            heap_apart_bytes,
            heap_long_apart_bytes,
            page_room,
            grown_rows,
            grown_bytes,
            roomy_pages,
            values,
            toast_bytes,
            index_bytes,
            dropped_toast_bytes,
            dropped_index_bytes,
        } = self.written;
        let dropped = share(part.dropped_chunks, all.dropped_chunks);
        let written = Written {
            dropped_toast_bytes: dropped_toast_bytes * dropped,
            dropped_index_bytes: dropped_index_bytes * dropped,
            heap_bytes: heap_bytes * share(part.new_heap_bytes, all.new_heap_bytes),
            replaced_bytes: replaced_bytes
                * share(part.replaced_heap_bytes, all.replaced_heap_bytes),
            heap_apart_bytes: heap_apart_bytes * share(part.pages_apart, all.pages_apart),
            heap_long_apart_bytes: heap_long_apart_bytes
                * share(part.pages_long_apart, all.pages_long_apart),
            page_room,
            grown_rows: grown_rows * share(part.grown_rows, all.grown_rows),
            grown_bytes: grown_bytes * share(part.grown_bytes, all.grown_bytes),
            roomy_pages: roomy_pages * share(part.roomy_blocks, all.roomy_blocks),
            values: values * share(part.new_values, all.new_values),
            toast_bytes: toast_bytes * share(part.new_toast_bytes, all.new_toast_bytes),
            index_bytes: index_bytes * share(part.new_chunks, all.new_chunks),
        };
        Figures { files, written, ..*self }
    }
}

fn share(part: f64, all: f64) -> f64 {
    part / all.max(f64::MIN_POSITIVE)
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
    /// Bytes that today's chunks can take at most: those of the TOAST relation.
    pub toast_file: u64,
}

/// What turns the sums of one variant into figures.
struct Formulas {
    /// Pages for each byte of heap tuples, and bytes on pages for each byte of chunks, as the sample filled them.
    heap_pages: f64,
    toast_pack: f64,
    /// What fits on a page of the heap, as [`Written::page_room`] says.
    page_room: f64,
    /// What is left of the sample's chunks so that they fit the TOAST relation: less than 1 where the sample has met more
    /// of few very large values than there are in all.
    fits: f64,
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
        let heap_pack = packing(heap.filled * page, put.heap_bytes);
        Formulas {
            heap_pages: heap_pack / page,
            toast_pack: packing(toast.filled * page, put.toast_bytes),
            page_room: tally.page_room(),
            fits: 1.0,
            index: IndexShape::new(mean_levels(&tally.parts(), scope.page, scale), scope.page),
            page,
            pricing: *pricing,
            logical: scope.logical,
        }
    }

    fn heap(&self, sums: &Sums) -> f64 {
        sums.heap_bytes * self.heap_pages * self.page
    }

    fn toast(&self, sums: &Sums) -> f64 {
        sums.toast_bytes * self.toast_pack * self.fits
    }

    fn chunks(&self, sums: &Sums) -> f64 {
        sums.chunks * self.fits
    }

    fn index(&self, sums: &Sums) -> f64 {
        self.chunks(sums) * self.index.pages_per_chunk * self.page
    }

    fn total(&self, sums: &Sums) -> f64 {
        self.heap(sums) + self.toast(sums) + self.index(sums)
    }

    fn written(&self, sums: &Sums, scale: f64) -> Written {
        let toast_pack = self.toast_pack * self.fits;
        let index = self.index.pages_per_chunk * self.page * self.fits;
        Written {
            heap_bytes: sums.new_heap_bytes * self.heap_pages * self.page * scale,
            replaced_bytes: sums.replaced_heap_bytes * self.heap_pages * self.page * scale,
            heap_apart_bytes: sums.pages_apart * self.page * scale,
            heap_long_apart_bytes: sums.pages_long_apart * self.page * scale,
            page_room: self.page_room,
            grown_rows: sums.grown_rows * scale,
            grown_bytes: sums.grown_bytes * scale,
            roomy_pages: sums.roomy_blocks * scale,
            values: sums.new_values * scale,
            toast_bytes: sums.new_toast_bytes * toast_pack * scale,
            index_bytes: sums.new_chunks * index * scale,
            dropped_toast_bytes: sums.dropped_toast_bytes * self.fits * scale,
            dropped_index_bytes: sums.dropped_chunks * index * scale,
        }
    }

    /// A scan that reads this of the column's values.
    fn scan(&self, sums: &Sums, values: ReadWork) -> ReadWork {
        let heap_pages = sums.heap_bytes * self.heap_pages;
        ReadWork { heap_pages, rows: sums.rows, ..self.index.searched(values) }
    }

    fn read_ns(&self, sums: &Sums) -> f64 {
        self.pricing.read.read_ns(&self.scan(sums, sums.read))
    }

    fn prefix_ns(&self, sums: &Sums) -> f64 {
        self.pricing.read.read_ns(&self.scan(sums, sums.prefix))
    }

    fn write_ns(&self, sums: &Sums) -> f64 {
        self.pricing.write.write_ns(&sums.write())
    }

    /// The row's page, a leaf of the TOAST index and what follows it, and the pages with the chunks.
    fn cold_pages(&self, sums: &Sums) -> f64 {
        let leaves = sums.read.lookups + sums.read.chunks * self.index.pages_per_chunk;
        sums.values + leaves + sums.read.toast_pages
    }

    /// The page of the old row version, and those of the old chunks.
    fn full_pages(&self, sums: &Sums) -> f64 {
        (sums.values + sums.read.toast_pages) * self.page
    }

    fn hot_wal(&self, sums: &Sums) -> f64 {
        sums.update_other().hot_wal_bytes(sums.toaster_rows, self.logical)
    }
}

/// The levels of the TOAST index, as a chunk finds them on average if there are several of them.
fn mean_levels(parts: &[Sums], page: PageSize, scale: f64) -> f64 {
    if let [part] = parts {
        return index_levels(part, page, scale);
    }
    let all: f64 = parts.iter().map(|part| part.chunks).sum();
    let weighted = parts.iter().map(|part| index_levels(part, page, scale) * part.chunks);
    weighted.sum::<f64>() / all.max(1.0)
}

fn index_levels(part: &Sums, page: PageSize, scale: f64) -> f64 {
    f64::from(ToastIndex::new(page, (part.chunks * scale) as u64).levels)
}

/// The figures of every variant, in order; the first one is today's. `as_set`: the variant by whose settings an UPDATE of
/// today's values writes.
pub fn figures(tally: &Tally, scope: &Scope, pricing: &Pricing, as_set: usize) -> Vec<Figures> {
    let blocks = tally.blocks();
    let read: f64 = blocks.iter().sum();
    let all = f64::from(scope.total_blocks);
    let scale = if read > 0.0 { all / read } else { 0.0 };
    // in blocks that were read, not every row may have been looked at
    let looked_at = tally.tallies().first().map_or(0.0, |today| today.put().rows);
    let rows = (looked_at / tally.rows().max(1.0)).min(1.0);
    let part = if all > 0.0 { read / all * rows } else { 1.0 };
    let mut variants = Vec::with_capacity(tally.tallies().len());
    for tally in tally.tallies() {
        let formulas = Formulas::new(tally, scope, scale, pricing);
        variants.push(SampledVariant { tally, formulas, scope, blocks, scale, part });
    }
    let fits = variants.first().map_or(1.0, SampledVariant::fits);
    variants.iter_mut().for_each(|variant| variant.formulas.fits = fits);
    let Some(today) = variants.first() else { return Vec::new() };
    let as_set = variants.get(as_set).unwrap_or(today);
    let compared = variants.iter().enumerate().map(|(at, variant)| {
        let written = if at == 0 { as_set } else { variant };
        let written = ComparedVariant { variant: written, today: as_set };
        ComparedVariant { variant, today }.figures(&written)
    });
    compared.collect()
}

/// Values of other columns that the command for a variant moves out of line, for each row. `part`: of the blocks, those that
/// were read.
pub(super) fn moved_values(variant: &VariantTally, part: f64, is_complete: bool) -> Interval {
    let clusters = variant.clusters.iter();
    let (moved, rows): (Vec<f64>, Vec<f64>) =
        clusters.map(|sums| (sums.moved_values, sums.rows)).unzip();
    ratio(&moved, &rows, part, is_complete).unwrap_or_default()
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

    /// What is left of today's chunks in a TOAST relation of the size that it has.
    fn fits(&self) -> f64 {
        let bytes = self.total(Formulas::toast).estimate;
        let file = self.scope.toast_file as f64;
        if self.scope.complete || bytes <= file { 1.0 } else { file / bytes }
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
        let chunks =
            parts.iter().map(|part| (self.formulas.chunks(part) * self.scale).round() as u64);
        let pages = chunks.map(|chunks| ToastIndex::new(page, chunks).pages as f64);
        pages.map(|pages| pages * page.bytes() as f64).sum()
    }

    /// The sizes of the three files, each in whole pages.
    fn whole_files(&self) -> WholeFiles {
        let [heap, toast] = self.tally.filled();
        WholeFiles {
            heap: self.page_bytes(heap, Formulas::heap),
            toast: self.page_bytes(toast, Formulas::toast),
            index: self.index_bytes(),
        }
    }
}

/// Bytes of the heap, the TOAST relation and its index, in whole pages.
#[derive(Clone, Copy)]
struct WholeFiles {
    heap: f64,
    toast: f64,
    index: f64,
}

impl WholeFiles {
    fn total(self) -> f64 {
        self.heap + self.toast + self.index
    }
}

/// The interval with its estimate at this place.
fn moved_to(estimate: f64, interval: Interval) -> Interval {
    let by = estimate - interval.estimate;
    Interval { estimate, low: interval.low + by, high: interval.high + by }
}

/// A variant compared with the present settings.
struct ComparedVariant<'a> {
    variant: &'a SampledVariant<'a>,
    today: &'a SampledVariant<'a>,
}

impl ComparedVariant<'_> {
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

    /// The size of a file. The point estimates count whole pages, `now` and `before`; the intervals move with them. So
    /// what is saved of small files is never more than there is.
    fn file_bytes(&self, formula: Formula, now: f64, before: f64) -> Figure {
        let mut value = moved_to(now, self.variant.total(formula));
        if now > 0.0 {
            value = value.widened(ALLOWANCE, self.variant.scope.page.bytes() as f64);
        }
        let mut change = self.change(formula);
        if before > 0.0 {
            change = change.map(|change| moved_to(now / before - 1.0, change).at_least(-1.0));
        }
        Figure { value: value.at_least_zero(), change }
    }

    fn mean(&self, count: Formula, formula: Formula) -> Figure {
        let variant = self.variant;
        let above = variant.series(formula);
        let value = ratio(&above, &variant.series(count), variant.part, variant.scope.complete);
        let value = value.unwrap_or_default().widened(ALLOWANCE, 0.0).at_least_zero();
        Figure { value, change: self.change(formula) }
    }

    fn per_value(&self, formula: Formula) -> Figure {
        self.mean(|_, sums| sums.values, formula)
    }

    fn per_row(&self, formula: Formula) -> Figure {
        self.mean(|_, sums| sums.rows, formula)
    }

    /// A CPU time for each value, to which the relative error of calibrated prices is added.
    fn cpu_time(&self, formula: Formula, error: Option<f64>) -> CpuTime {
        let figure = self.per_value(formula).less_certain(error.unwrap_or_default());
        CpuTime { figure, calibrated: self.variant.formulas.pricing.read_error.is_some() }
    }

    /// `written`: the same comparison of what an UPDATE writes.
    fn figures(&self, written: &ComparedVariant<'_>) -> Figures {
        let variant = self.variant;
        let formulas = &variant.formulas;
        let Pricing { read_error, write_error, .. } = formulas.pricing;
        let now = variant.whole_files();
        let before = self.today.whole_files();
        let heap_bytes = self.file_bytes(Formulas::heap, now.heap, before.heap);
        let chunks: Formula = Formulas::chunks;
        let all_chunks = variant.total(chunks).at_least_zero();
        let mut write_cpu_ns = written.cpu_time(Formulas::write_ns, write_error);
        // calibration does not time the storing of chunks
        write_cpu_ns.calibrated &= [written.variant, written.today]
            .iter()
            .all(|variant| variant.total(chunks).at_least_zero().high <= 0.0);
        Figures {
            files: FileSizes {
                heap_bytes,
                toast_bytes: self.file_bytes(Formulas::toast, now.toast, before.toast),
                toast_index_bytes: self.file_bytes(Formulas::index, now.index, before.index),
                total_bytes: self.file_bytes(Formulas::total, now.total(), before.total()),
            },
            scan_buffers: heap_bytes.scaled(1.0 / variant.scope.page.bytes() as f64),
            chunks: Figure { value: all_chunks, change: self.change(chunks) },
            read_buffers: self.per_value(|f, sums| f.scan(sums, sums.read).buffers()),
            read_cpu_ns: self.cpu_time(Formulas::read_ns, read_error),
            update_bytes: written.per_value(|_, sums| sums.update().bytes()),
            update_wal_bytes: written.per_value(|_, sums| sums.update().wal_bytes()),
            costs: FurtherCosts {
                write_cpu_ns,
                other_wal_bytes: self.per_row(|_, sums| sums.update_other().wal_bytes()),
                hot_wal_bytes: self.per_row(Formulas::hot_wal),
                full_page_bytes: self.per_value(Formulas::full_pages),
                prefix_read: Some(PrefixRead {
                    buffers: self.per_value(|f, sums| f.scan(sums, sums.prefix).buffers()),
                    cpu_ns: self.cpu_time(Formulas::prefix_ns, read_error),
                }),
                cold_pages: self.per_value(Formulas::cold_pages),
            },
            written: formulas.written(&Sums::total(&variant.tally.parts()), variant.scale),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_added_to_the_change_too() {
        let mut figure = Figure {
            value: Interval { estimate: 110.0, low: 105.0, high: 115.0 },
            change: Some(Interval { estimate: 0.1, low: 0.05, high: 0.15 }),
        };
        figure.add(20.0);
        let change = figure.change.unwrap();
        assert!((figure.today() - 100.0).abs() < 1e-9, "{figure:?}");
        assert!((change.estimate - 0.3).abs() < 1e-9 && (change.high - 0.35).abs() < 1e-9);
        // of what is not there today there is no change
        let mut new = Figure { value: Interval::exact(1.0), change: None };
        new.add(2.0);
        assert_eq!((new.value.estimate, new.change), (3.0, None));
    }
}
