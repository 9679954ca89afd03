//! The estimates that a report on a sample carries (pure).
//!
//! All of them are 95 % confidence intervals for the whole relation. The plain figures of such a
//! report are those of the blocks read.

use super::result::{
    ColumnEstimates, ColumnReport, FormEstimates, Quantile, RelationReport, SampleReport,
    SizeEstimates, Source,
};
use toast_format::disk::desc::TupleDesc;
use toast_format::heap::blocks::{BlockSums, ColumnBlocks, Known, ValueBlocks};
use toast_format::heap::stats::{ColumnStats, RelationStats, Sizes};
use toast_format::model::estimate::{BlocksRead, PowerSums};
use toast_format::model::interval::Interval;
use toast_format::model::stored::Form;

/// How sums become estimates of one relation.
struct Estimator {
    blocks_read: BlocksRead,
    /// Tuples that a block may hold, as those read do.
    tuples_per_block: f64,
    page_size: f64,
    /// Heap, TOAST relation and its index; not known of a file.
    relation_bytes: Option<f64>,
}

impl Estimator {
    fn or_unseen(&self, sums: &PowerSums, per_block: f64) -> Option<Interval> {
        match sums.total(self.blocks_read) {
            Some(_) if sums.is_zero() => Some(self.blocks_read.unseen(per_block)),
            total => total,
        }
    }

    /// Of tuples or values: a block has at most one for each of its tuples.
    fn count(&self, sums: &PowerSums) -> Option<Interval<u64>> {
        self.or_unseen(sums, self.tuples_per_block).map(Interval::whole)
    }

    /// Of bytes: a block has at most its own.
    fn bytes(&self, sums: &PowerSums) -> Option<Interval<u64>> {
        self.or_unseen(sums, self.page_size).map(Interval::whole)
    }

    fn known_bytes(&self, sums: &PowerSums, known: Known) -> Option<Interval<u64>> {
        if known == Known::Always { self.bytes(sums) } else { None }
    }

    fn form(&self, blocks: &ValueBlocks, form: Form) -> FormEstimates {
        let sized = form != Form::Null;
        FormEstimates {
            values: self.count(&blocks.values),
            raw_bytes: if sized {
                self.known_bytes(&blocks.raw_bytes, blocks.raw_known)
            } else {
                None
            },
            stored_bytes: if sized {
                self.known_bytes(&blocks.stored_bytes, blocks.stored_known)
            } else {
                None
            },
            pointer_bytes: self.bytes(&blocks.pointer_bytes),
            chunks: self.count(&blocks.chunks),
        }
    }

    fn values_of_form(&self, blocks: &ColumnBlocks, wanted: Form) -> Option<Interval<u64>> {
        let form = blocks.forms.iter().find(|((form, _), _)| *form == wanted);
        self.count(&form.map(|(_, blocks)| blocks.values).unwrap_or_default())
    }

    fn column(&self, blocks: &ColumnBlocks) -> ColumnEstimates {
        let all = &blocks.all;
        let known = all.raw_known == Known::Always && all.stored_known == Known::Always;
        let ratio = all.raw_bytes.ratio(&all.stored_bytes, blocks.raw_by_stored, self.blocks_read);
        let own = self.or_unseen(&blocks.own_bytes, self.page_size);
        ColumnEstimates {
            values: self.count(&all.values),
            nulls: self.values_of_form(blocks, Form::Null),
            missing: self.values_of_form(blocks, Form::Missing),
            raw_bytes: self.known_bytes(&all.raw_bytes, all.raw_known),
            stored_bytes: self.known_bytes(&all.stored_bytes, all.stored_known),
            pointer_bytes: self.bytes(&all.pointer_bytes),
            ratio: if known { ratio.map(Interval::ratio) } else { None },
            chunks: self.count(&all.chunks),
            own_bytes: own.map(Interval::whole),
            share: own
                .zip(self.relation_bytes.filter(|&bytes| bytes > 0.0))
                .map(|(own, bytes)| own.scaled(1.0 / bytes).ratio()),
        }
    }

    /// A quantile of the sizes of these values.
    fn quantile(&self, sizes: &Sizes, values: &PowerSums, part: f64) -> Option<Quantile> {
        let (low, high) = values.around_quantile(part, self.blocks_read);
        Some(Interval {
            estimate: sizes.quantile(part)?,
            low: if low > 0.0 { sizes.quantile(low) } else { None },
            high: if high < 1.0 { sizes.quantile(high) } else { None },
        })
    }

    fn sizes(&self, sizes: &Sizes, values: &PowerSums) -> Option<SizeEstimates> {
        Some(SizeEstimates {
            median: self.quantile(sizes, values, 0.5)?,
            p95: self.quantile(sizes, values, 0.95)?,
            p99: self.quantile(sizes, values, 0.99)?,
        })
    }

    fn fill_column(&self, report: &mut ColumnReport, stats: &ColumnStats, blocks: &ColumnBlocks) {
        report.share = None;
        report.estimates = Some(self.column(blocks));
        for (key, report) in stats.forms().keys().zip(&mut report.forms) {
            report.estimates = blocks.forms.get(key).map(|blocks| self.form(blocks, key.0));
        }
        let values = &blocks.all.values;
        report.raw_size.estimates = self.sizes(&stats.raw(), values);
        report.stored_size.estimates = self.sizes(&stats.stored(), values);
    }
}

/// Adds the estimates to a report on a sample. The report's `share`s, which compare a sample with
/// the whole relation, become null.
pub fn fill(
    report: &mut RelationReport,
    desc: &TupleDesc,
    stats: &RelationStats,
    blocks: &BlockSums,
    sample: SampleReport,
) {
    let tuples = stats.tuples.live + stats.tuples.dead + stats.tuples.unknown;
    let toast_bytes = report
        .toast
        .as_ref()
        .map_or(0, |toast| toast.bytes.unwrap_or(0).saturating_add(toast.index_bytes.unwrap_or(0)));
    let estimator = Estimator {
        blocks_read: BlocksRead { read: blocks.blocks, total: sample.blocks },
        tuples_per_block: tuples as f64 / blocks.blocks.max(1) as f64,
        page_size: report.page_size as f64,
        relation_bytes: if report.source != Source::RelationFile {
            report.heap.bytes.map(|heap| heap.saturating_add(toast_bytes) as f64)
        } else {
            None
        },
    };
    report.sample = Some(sample);
    report.tuples.live_estimate = estimator.count(&blocks.live);
    report.tuples.dead_estimate = estimator.count(&blocks.dead);
    report.tuples.unknown_estimate = estimator.count(&blocks.unknown);
    report.heap.free_bytes_estimate = estimator.bytes(&blocks.free_bytes);
    if let Some(toast) = &mut report.toast {
        toast.values_estimate = estimator.count(&blocks.out_of_line);
        toast.chunks_estimate = estimator.count(&blocks.chunks);
    }
    let columns = desc.attributes.iter().zip(&stats.columns).zip(&blocks.columns);
    let columns = columns.filter(|((attribute, _), _)| !attribute.dropped);
    for (report, ((_, stats), blocks)) in report.columns.iter_mut().zip(columns) {
        estimator.fill_column(report, stats, blocks);
    }
}
