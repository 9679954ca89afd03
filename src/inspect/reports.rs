//! Reports made of what was counted (pure).

use std::collections::BTreeMap;

use super::result::{
    ColumnReport, FormReport, HeapReport, ProblemReport, RelationReport, SizeRange, SizeReport,
    Source, ToasterReport, TuplesReport,
};
use crate::server::LiveError;
use toast_format::codec::Method;
use toast_format::disk::desc::{Attribute, TupleDesc};
use toast_format::heap::problem::{Place, Problem, Problems};
use toast_format::heap::scan::Scan;
use toast_format::heap::stats::{ColumnStats, FormSums, RelationStats, Sizes};
use toast_format::model::stored::Form;
use toast_format::model::toaster::catalog::{Handler, Toasters};

impl From<&Sizes> for SizeReport {
    fn from(sizes: &Sizes) -> SizeReport {
        SizeReport {
            min: sizes.min(),
            median: sizes.quantile(0.5),
            p95: sizes.quantile(0.95),
            p99: sizes.quantile(0.99),
            max: sizes.max(),
            ranges: sizes
                .ranges()
                .into_iter()
                .map(|(from, to, values)| SizeRange { from, to, values })
                .collect(),
            estimates: None,
        }
    }
}

impl RelationReport {
    /// Reports what a scan has counted, for a relation of this many bytes (heap, TOAST relation and its index) if that is
    /// known. The sources fill in what only they know.
    pub fn from_scan<V>(
        scan: &Scan<V>,
        source: Source,
        relation_bytes: Option<u64>,
    ) -> RelationReport {
        let counts = &scan.stats.tuples;
        let problems = &scan.problems;
        RelationReport {
            relation: scan.relation.source.to_string(),
            source,
            page_size: scan.relation.page_size.bytes() as u64,
            heap: HeapReport {
                blocks_read: counts.blocks,
                new_blocks: Some(counts.new_blocks),
                free_bytes: Some(counts.free_bytes),
                line_pointers_unused: Some(counts.line_pointers_unused),
                line_pointers_redirect: Some(counts.line_pointers_redirect),
                line_pointers_dead: Some(counts.line_pointers_dead),
                ..HeapReport::default()
            },
            tuples: TuplesReport {
                live: counts.live,
                dead: Some(counts.dead),
                unknown: Some(counts.unknown),
                hot_updated: Some(counts.hot_updated),
                heap_only: Some(counts.heap_only),
                ..TuplesReport::default()
            },
            columns: column_reports(&scan.relation.desc, &scan.stats, relation_bytes),
            problems: problem_reports(problems),
            problem_count: problems.count(),
            ..RelationReport::default()
        }
    }
}

/// Rounded to four digits after the decimal point, so that reports can be compared.
fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| (part as f64 / whole as f64 * 10_000.0).round() / 10_000.0)
}

fn known(sum: u64, unknown: u64) -> Option<u64> {
    (unknown == 0).then_some(sum)
}

fn form_report(form: Form, method: Option<Method>, sums: &FormSums) -> FormReport {
    let (raw_bytes, stored_bytes) = if form == Form::Null {
        (None, None)
    } else {
        (known(sums.raw_bytes, sums.raw_unknown), known(sums.stored_bytes, sums.stored_unknown))
    };
    FormReport {
        form: form.name(),
        method: method.map(Method::name),
        values: sums.values,
        raw_bytes,
        stored_bytes,
        pointer_bytes: sums.pointer_bytes,
        chunks: sums.chunks,
        ratio: raw_bytes.zip(stored_bytes).and_then(|(raw, stored)| ratio(raw, stored)),
        estimates: None,
    }
}

/// Values of pluggable toasters; names are those of toasters that are recognized by their bytes.
fn toaster_reports(stats: &ColumnStats) -> Vec<ToasterReport> {
    let reports = stats.custom().iter().map(|(&(toaster, handler, kind), sums)| ToasterReport {
        toaster: (handler != Handler::Unknown).then(|| handler.usual_name().to_owned()),
        toaster_oid: toaster.0,
        pointer_kind: kind.name(),
        values: sums.values,
        out_of_line: sums.custom_out_of_line,
        raw_bytes: known(sums.raw_bytes, sums.raw_unknown),
        inline_bytes: sums.pointer_bytes,
        chunk_bytes: known(sums.stored_bytes, sums.stored_unknown),
        chunks: sums.chunks,
        cost_to_read: kind.cost_to_read(),
        cost_to_append: kind.cost_to_append(),
    });
    reports.collect()
}

/// Gives toasters the names that `pg_toaster` has for them.
pub fn name_toasters(columns: &mut [ColumnReport], toasters: &Toasters) {
    for report in columns.iter_mut().flat_map(|column| &mut column.toasters) {
        let row = toasters.rows().iter().find(|row| row.oid.0 == report.toaster_oid);
        if let Some(row) = row {
            report.toaster = Some(row.name.clone());
        }
    }
}

/// The report of a column; `relation_bytes` are those of heap, TOAST relation and its index.
pub fn column_report(
    attribute: &Attribute,
    stats: &ColumnStats,
    relation_bytes: Option<u64>,
) -> ColumnReport {
    let forms: BTreeMap<_, _> = stats.forms();
    let mut total = FormSums::default();
    let mut nulls = 0;
    let mut missing = 0;
    // A missing value is in the catalog, not in the relation.
    let mut in_catalog = 0;
    for ((form, _), sums) in &forms {
        match form {
            Form::Null => {
                nulls += sums.values;
                continue;
            }
            Form::Missing => {
                missing += sums.values;
                in_catalog += sums.stored_bytes;
            }
            _ => {}
        }
        total.merge(sums);
    }
    let raw_bytes = known(total.raw_bytes, total.raw_unknown);
    let stored_bytes = known(total.stored_bytes, total.stored_unknown);
    let own = total.stored_bytes - in_catalog + total.pointer_bytes;
    ColumnReport {
        column: attribute.name.clone(),
        type_name: attribute.type_name.clone(),
        storage: attribute.storage.name(),
        compression: attribute.compression.map(Method::name),
        values: total.values,
        nulls,
        missing,
        raw_bytes,
        stored_bytes,
        pointer_bytes: total.pointer_bytes,
        own_bytes: own,
        unplaced_values: None,
        ratio: raw_bytes.zip(stored_bytes).and_then(|(raw, stored)| ratio(raw, stored)),
        chunks: total.chunks,
        share: relation_bytes.and_then(|whole| ratio(own, whole)),
        forms: forms
            .iter()
            .map(|((form, method), sums)| form_report(*form, *method, sums))
            .collect(),
        toasters: toaster_reports(stats),
        raw_size: (&stats.raw()).into(),
        stored_size: (&stats.stored()).into(),
        estimates: None,
        policy: None,
    }
}

/// The reports of all columns that are not dropped.
pub fn column_reports(
    desc: &TupleDesc,
    stats: &RelationStats,
    relation_bytes: Option<u64>,
) -> Vec<ColumnReport> {
    desc.attributes
        .iter()
        .zip(&stats.columns)
        .filter(|(attribute, _)| !attribute.dropped)
        .map(|(attribute, stats)| column_report(attribute, stats, relation_bytes))
        .collect()
}

/// Values of all columns that are out of line, and their chunks.
pub fn out_of_line(columns: &[ColumnReport]) -> (u64, u64) {
    let values = columns
        .iter()
        .flat_map(|column| &column.forms)
        .filter(|form| form.form.starts_with("external"))
        .map(|form| form.values)
        .sum::<u64>();
    let toasters = columns.iter().flat_map(|column| &column.toasters);
    let values = values + toasters.map(|report| report.out_of_line).sum::<u64>();
    (values, columns.iter().map(|column| column.chunks).sum())
}

/// The problems kept, as reported.
pub fn problem_reports(problems: &Problems) -> Vec<ProblemReport> {
    problems
        .kept()
        .iter()
        .map(|problem| ProblemReport {
            source: problem.place.source.clone(),
            line: problem.place.line,
            block: problem.place.block.map(|b| b.0),
            item: problem.place.item,
            column: problem.place.column.clone(),
            byte: problem.place.byte,
            message: problem.message.clone(),
            text: problem.to_string(),
        })
        .collect()
}

/// Records an error of the server while findings were searched for, if there was one.
pub(super) fn note_failed_findings(report: &mut RelationReport, failed: Option<&LiveError>) {
    let Some(error) = failed else { return };
    let mut problems = Problems::default();
    let place = Place::new(report.relation.as_str());
    problems.add(Problem { place, message: format!("findings: {error}") });
    report.problems.extend(problem_reports(&problems));
    report.problem_count += 1;
}
