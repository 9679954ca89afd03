//! Figures of a relation, made of what was counted (pure).
//!
//! If a sample of blocks was read, a figure is an estimate for the whole relation with its 95 % confidence interval;
//! otherwise it is exact.

use super::result::{
    ColumnFigures, FormFigures, NotAvailable, ProblemReport, Quantile, RelationReport, SizeFigures,
    SizeRange, Source, ToasterReport, ValueFigures,
};
use crate::server::LiveError;
use toast_format::codec::Method;
use toast_format::disk::Attribute;
use toast_format::disk::custom::DEFAULT_TOASTER;
use toast_format::heap::blocks::{BlockSums, ColumnBlocks, ValueBlocks};
use toast_format::heap::problem::{Place, Problem, Problems};
use toast_format::heap::scan::Scan;
use toast_format::heap::stats::{ColumnStats, FormSums, SizeHistogram};
use toast_format::model::estimate::PowerSums;
use toast_format::model::interval::Amount;
use toast_format::model::toaster::catalog::{Handler, ToasterColumn};
use toast_format::model::{BlocksRead, Form, Interval, Toasters};

/// Bytes of the smallest tuple with its line pointer.
const LEAST_TUPLE: f64 = 28.0;

/// Makes figures of the relation from what was counted in the blocks read.
struct Estimator {
    /// The blocks read, if they are a sample.
    sample: Option<BlocksRead>,
    /// Tuples that a block may hold, as those read do.
    tuples_per_block: f64,
    page_size: f64,
    /// Heap, TOAST relation and its index, if they are known and may be compared with the columns.
    relation_bytes: Option<u64>,
    /// Whether SQL functions were used, which do not show where all values are.
    by_functions: bool,
}

impl Estimator {
    fn amount(&self, counted: u64, blocks: &PowerSums, most_in_block: f64) -> Amount {
        let Some(blocks_read) = self.sample else { return Interval::exact(counted) };
        match blocks.total(blocks_read) {
            Some(total) if !blocks.is_zero() => total.whole(),
            _ => blocks_read.unseen(most_in_block).whole(),
        }
    }

    /// Of tuples or values: a block has at most one for each of its tuples.
    fn count(&self, counted: u64, blocks: &PowerSums) -> Amount {
        self.amount(counted, blocks, self.tuples_per_block)
    }

    /// Of bytes: a block has at most its own.
    fn bytes(&self, counted: u64, blocks: &PowerSums) -> Amount {
        self.amount(counted, blocks, self.page_size)
    }

    fn values(&self, sums: &FormSums, blocks: &ValueBlocks) -> ValueFigures {
        let raw_bytes = self.bytes(sums.raw_bytes, &blocks.raw_bytes);
        let stored_bytes = self.bytes(sums.stored_bytes, &blocks.stored_bytes);
        ValueFigures {
            values: self.count(sums.values, &blocks.values),
            raw_bytes: (sums.raw_unknown == 0).then_some(raw_bytes),
            stored_bytes: (sums.stored_unknown == 0).then_some(stored_bytes),
            pointer_bytes: self.bytes(sums.pointer_bytes, &blocks.pointer_bytes),
            chunks: self.count(sums.chunks, &blocks.chunks),
        }
    }

    fn form(
        &self,
        form: Form,
        method: Option<Method>,
        sums: &FormSums,
        blocks: &ValueBlocks,
    ) -> FormFigures {
        let mut all = self.values(sums, blocks);
        if form == Form::Null {
            all.raw_bytes = None;
            all.stored_bytes = None;
        }
        FormFigures { form, method, all, ratio: all.ratio() }
    }

    fn column(
        &self,
        attribute: &Attribute,
        stats: &ColumnStats,
        blocks: &ColumnBlocks,
        unplaced: u64,
    ) -> ColumnFigures {
        let mut total = FormSums::default();
        let mut forms = Vec::new();
        let no_blocks = ValueBlocks::default();
        // A missing value is in the catalog, not in the relation.
        let mut in_catalog = 0;
        let mut nulls = self.count(0, &no_blocks.values);
        let mut missing = nulls;
        for (key @ (form, method), sums) in stats.forms() {
            let blocks = blocks.forms.get(&key).unwrap_or(&no_blocks);
            let figures = self.form(form, method, &sums, blocks);
            match form {
                Form::Null => nulls = figures.all.values,
                Form::Missing => {
                    missing = figures.all.values;
                    in_catalog += sums.stored_bytes;
                }
                _ => {}
            }
            if form != Form::Null {
                total += sums;
            }
            forms.push(figures);
        }
        let own = total.stored_bytes - in_catalog + total.pointer_bytes;
        let own_bytes = self.bytes(own, &blocks.own_bytes);
        let all = self.values(&total, &blocks.all);
        let whole = self.relation_bytes.map(Interval::exact);
        ColumnFigures {
            column: attribute.name.clone(),
            type_name: attribute.type_name.clone(),
            storage: attribute.storage,
            compression: attribute.compression,
            toaster: None,
            nulls,
            missing,
            own_bytes,
            unplaced_values: self.by_functions.then_some(unplaced),
            ratio: self.ratio(&all, blocks),
            share: whole.and_then(|whole| own_bytes.ratio_to(whole)),
            all,
            forms,
            toasters: toaster_reports(stats),
            raw_size: self.sizes(&stats.raw(), &blocks.all.values),
            stored_size: self.sizes(&stats.stored(), &blocks.all.values),
            policy: None,
        }
    }

    /// The ratio of a column. That of a sample takes into account that blocks with more raw bytes have more stored ones.
    fn ratio(&self, all: &ValueFigures, blocks: &ColumnBlocks) -> Option<Interval> {
        let Some(blocks_read) = self.sample else { return all.ratio() };
        all.raw_bytes.zip(all.stored_bytes)?;
        let sums = &blocks.all;
        let ratio = sums.raw_bytes.ratio(&sums.stored_bytes, blocks.raw_by_stored, blocks_read);
        ratio.map(Interval::ratio)
    }

    /// `values`: how many there are in each block.
    fn sizes(&self, sizes: &SizeHistogram, values: &PowerSums) -> SizeFigures {
        let ranges = sizes.ranges().into_iter();
        SizeFigures {
            min: sizes.min(),
            median: self.quantile(sizes, values, 0.5),
            p95: self.quantile(sizes, values, 0.95),
            p99: self.quantile(sizes, values, 0.99),
            max: sizes.max(),
            ranges: ranges.map(|(from, to, values)| SizeRange { from, to, values }).collect(),
        }
    }

    fn quantile(&self, sizes: &SizeHistogram, values: &PowerSums, part: f64) -> Option<Quantile> {
        let (low, high) = match self.sample {
            Some(blocks_read) => values.around_quantile(part, blocks_read),
            None => (part, part),
        };
        Some(Interval {
            estimate: sizes.quantile(part)?,
            low: if low > 0.0 { sizes.quantile(low) } else { None },
            high: if high < 1.0 { sizes.quantile(high) } else { None },
        })
    }
}

impl ValueFigures {
    fn ratio(&self) -> Option<Interval> {
        self.raw_bytes.zip(self.stored_bytes).and_then(|(raw, stored)| raw.ratio_to(stored))
    }
}

impl RelationReport {
    /// Heap, TOAST relation and its index, as far as they are known.
    pub(crate) fn bytes(&self) -> u64 {
        let toast = self.toast.as_ref();
        let toast_bytes = toast.and_then(|toast| toast.bytes);
        let index_bytes = toast.and_then(|toast| toast.index_bytes);
        [self.heap.bytes, toast_bytes, index_bytes]
            .into_iter()
            .fold(0u64, |sum, bytes| sum.saturating_add(bytes.unwrap_or(0)))
    }

    /// Adds the figures of what a scan has counted to a report that says what was read, by what and how large it is.
    pub(super) fn with_figures<V>(mut self, scan: &Scan<V>) -> RelationReport {
        let counts = &scan.stats.tuples;
        let sample = self.read.sample;
        let sample =
            sample.map(|sample| BlocksRead { read: sample.blocks_read, total: sample.blocks });
        let no_blocks = BlockSums::new(scan.relation.desc.attributes.len());
        let blocks = scan.blocks.as_ref().unwrap_or(&no_blocks);
        let page_size = scan.relation.page_size.bytes();
        self.page_size = page_size as u64;
        let tuples = counts.live + counts.dead + counts.unknown;
        let by_functions = self.read.source == Source::Functions;
        // a sample of a file leaves out its TOAST relation
        let is_part = sample.is_some() && self.read.source == Source::RelationFile;
        let is_heap = self.heap.bytes.is_some() && self.read.access_method.is_none();
        let (values, chunks) = out_of_line(scan);
        let lacks_toast = values > 0 && self.toast.is_none();
        if is_heap && lacks_toast {
            let reason = "the TOAST file was not given: --toast-file";
            self.read.not_available.push(NotAvailable::new("share of each column", reason));
        }
        let estimator = Estimator {
            sample,
            tuples_per_block: match sample {
                Some(BlocksRead { read: read @ 1.., .. }) => tuples as f64 / read as f64,
                _ => page_size as f64 / LEAST_TUPLE,
            },
            page_size: page_size as f64,
            relation_bytes: (is_heap && !is_part && !lacks_toast).then(|| self.bytes()),
            by_functions,
        };
        self.tuples.live = estimator.count(counts.live, &blocks.live);
        if !by_functions {
            let tuples = &mut self.tuples;
            tuples.dead = Some(estimator.count(counts.dead, &blocks.dead));
            tuples.unknown = Some(estimator.count(counts.unknown, &blocks.unknown));
            tuples.hot_updated = Some(counts.hot_updated);
            tuples.heap_only = Some(counts.heap_only);
            let heap = &mut self.heap;
            heap.blocks_read = counts.blocks;
            heap.new_blocks = Some(counts.new_blocks);
            heap.free_bytes = Some(estimator.bytes(counts.free_bytes, &blocks.free_bytes));
            heap.line_pointers_unused = Some(counts.line_pointers_unused);
            heap.line_pointers_redirect = Some(counts.line_pointers_redirect);
            heap.line_pointers_dead = Some(counts.line_pointers_dead);
        }
        let desc = &scan.relation.desc;
        let mut dropped = Vec::new();
        for (index, attribute) in desc.attributes.iter().enumerate() {
            let (Some(stats), Some(blocks)) =
                (scan.stats.columns.get(index), blocks.columns.get(index))
            else {
                continue;
            };
            let unplaced = scan.unplaced.get(index).copied().unwrap_or_default();
            let figures = estimator.column(attribute, stats, blocks, unplaced);
            if attribute.dropped {
                dropped.push(figures);
            } else if attribute.is_stored() {
                self.columns.push(figures);
            }
        }
        let toast_bytes = self.toast.as_ref().and_then(|toast| toast.bytes);
        if !by_functions && let Some(toast_bytes) = toast_bytes {
            add_unknown(&mut self.columns, &dropped, toast_bytes, estimator.relation_bytes);
        }
        if by_functions && !dropped.is_empty() {
            let reason = "no SQL function shows them";
            self.read.not_available.push(NotAvailable::new("values of dropped columns", reason));
        } else {
            dropped.retain(|column| column.own_bytes.estimate > 0);
            self.dropped_columns = Some(dropped);
        }
        let columns = desc.attributes.iter().filter(|column| column.is_virtual && !column.dropped);
        let names: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
        if !names.is_empty() {
            let figure = format!("virtual generated columns {}", names.join(", "));
            let reason = "they are computed when they are read, and not stored";
            self.read.not_available.push(NotAvailable::new(figure, reason));
        }
        if let Some(toast) = &mut self.toast {
            toast.values = estimator.count(values, &blocks.out_of_line);
            toast.chunks = estimator.count(chunks, &blocks.chunks);
            toast.uncounted_values = uncounted(scan);
            let unplaced = scan.unplaced.iter().sum();
            toast.unplaced_values = (by_functions && unplaced > 0).then_some(unplaced);
        }
        self.read.problems = problem_reports(&scan.problems);
        self.read.problem_count = scan.problems.count();
        self
    }
}

/// Adds to columns with values of unknown size, such as chunked arrays of `jsonb_toaster`, what they may take of the
/// TOAST relation: what the values of known size leave.
fn add_unknown(
    columns: &mut [ColumnFigures],
    dropped: &[ColumnFigures],
    toast_bytes: u64,
    relation_bytes: Option<u64>,
) {
    let forms = columns.iter().chain(dropped).flat_map(|column| &column.forms);
    let outside = forms.filter(|form| form.form.is_external());
    let known = outside
        .filter_map(|form| form.all.stored_bytes)
        .fold(0, |sum: u64, bytes| sum.saturating_add(bytes.low));
    let rest = toast_bytes.saturating_sub(known);
    let unknown = columns.iter().filter(|column| column.all.stored_bytes.is_none()).count() as u64;
    for column in columns.iter_mut().filter(|column| column.all.stored_bytes.is_none()) {
        let own = &mut column.own_bytes;
        own.estimate = own.estimate.saturating_add(rest / unknown.max(1));
        own.high = own.high.saturating_add(rest);
        let whole = relation_bytes.map(Interval::exact);
        column.share = whole.and_then(|whole| own.ratio_to(whole)).map(Interval::at_most_all);
    }
}

/// Values whose pointers do not show how many chunks they have; `None` if there are none.
fn uncounted<V>(scan: &Scan<V>) -> Option<u64> {
    let forms = scan.stats.columns.iter().flat_map(ColumnStats::forms);
    Some(forms.map(|(_, sums)| sums.uncounted).sum()).filter(|&uncounted| uncounted > 0)
}

/// Values of all columns that are out of line in the blocks read, and their chunks.
fn out_of_line<V>(scan: &Scan<V>) -> (u64, u64) {
    let mut values = 0u64;
    let mut chunks = 0u64;
    for stats in &scan.stats.columns {
        for ((form, _), sums) in stats.forms() {
            let outside = if form.is_external() { sums.values } else { sums.custom_out_of_line };
            values = values.saturating_add(outside);
            chunks = chunks.saturating_add(sums.chunks);
        }
    }
    (values, chunks)
}

/// Values of pluggable toasters; names are those of toasters that are recognized by their bytes.
fn toaster_reports(stats: &ColumnStats) -> Vec<ToasterReport> {
    let reports = stats.custom().iter().map(|(&(toaster, handler, kind), sums)| ToasterReport {
        toaster: (handler != Handler::Unknown).then(|| handler.usual_name().to_owned()),
        toaster_oid: toaster.0,
        pointer_kind: kind.name().into(),
        values: sums.values,
        out_of_line: sums.custom_out_of_line,
        raw_bytes: (sums.raw_unknown == 0).then_some(sums.raw_bytes),
        inline_bytes: sums.pointer_bytes,
        chunk_bytes: (sums.stored_unknown == 0).then_some(sums.stored_bytes),
        chunks: sums.chunks,
        uncounted: sums.uncounted,
        cost_to_read: kind.cost_to_read().into(),
        cost_to_append: kind.cost_to_append().into(),
    });
    reports.collect()
}

/// Gives toasters the names that `pg_toaster` has for them, and columns the toasters that are `set` for them.
pub fn name_toasters(columns: &mut [ColumnFigures], toasters: &Toasters, set: &[ToasterColumn]) {
    for column in columns.iter_mut() {
        let own = set.iter().find(|one| !one.dropped && one.name == column.column);
        let own = own.filter(|one| one.toaster != DEFAULT_TOASTER);
        let row = own.and_then(|one| toasters.rows().iter().find(|row| row.oid == one.toaster));
        column.toaster = row.map(|row| row.name.clone());
    }
    for report in columns.iter_mut().flat_map(|column| &mut column.toasters) {
        let row = toasters.rows().iter().find(|row| row.oid.0 == report.toaster_oid);
        if let Some(row) = row {
            report.toaster = Some(row.name.clone());
        }
    }
}

/// The problems kept, as reported.
pub fn problem_reports(problems: &Problems) -> Vec<ProblemReport> {
    problems.kept().iter().map(ProblemReport::from).collect()
}

/// Records an error of the server while findings were searched for, if there was one.
pub(super) fn note_failed_findings(report: &mut RelationReport, failed: Option<&LiveError>) {
    let Some(error) = failed else { return };
    let place = Place::new(report.read.name.relation.as_str());
    let problem = Problem { place, message: format!("findings: {error}") };
    report.read.problems.push(ProblemReport::from(&problem));
    report.read.problem_count += 1;
}
