//! The report of `advise-threshold` as CSV.

use std::io::{self, Write};

use crate::advise::result::{Fraction, Report, Whole};
use crate::model::estimate::Estimate;

/// The names of the columns.
pub(super) fn head(writer: &mut csv::Writer<impl Write>) -> io::Result<()> {
    let mut head: Vec<String> = [
        "relation",
        "column",
        "storage",
        "method",
        "target",
        "policy",
        "today",
        "recommended",
        "pareto",
    ]
    .map(String::from)
    .to_vec();
    for figure in [
        "heap_bytes",
        "toast_bytes",
        "toast_index_bytes",
        "total_bytes",
        "chunks",
        "read_buffers_per_value",
        "read_cpu_ns_per_value",
        "update_bytes_per_value",
        "update_wal_bytes_per_value",
    ] {
        head.push(figure.into());
        head.push(format!("{figure}_low"));
        head.push(format!("{figure}_high"));
    }
    for form in
        ["null", "short", "plain", "compressed", "external", "external_compressed", "custom"]
    {
        head.push(form.into());
    }
    head.extend(["refused_rows", "retoasted_bytes"].map(String::from));
    writer.write_record(&head)?;
    writer.flush()
}

/// One row for each candidate.
pub(super) fn rows(report: &Report, writer: &mut csv::Writer<impl Write>) -> io::Result<()> {
    for c in &report.candidates {
        let mut row = vec![
            report.relation.clone(),
            report.column.clone(),
            c.settings.storage.clone(),
            c.settings.method.clone(),
            c.settings.target.to_string(),
            c.settings.policy.clone(),
            c.today.to_string(),
            c.recommended.to_string(),
            c.pareto.to_string(),
        ];
        let whole = |w: &Whole| {
            let Estimate { estimate, low, high } = w.0.value;
            [estimate.round(), low.floor(), high.ceil()].map(|n| format!("{n:.0}"))
        };
        let fraction = |f: &Fraction| {
            let Estimate { estimate, low, high } = f.0.value;
            [estimate, low, high].map(|n| format!("{n:.3}"))
        };
        row.extend(whole(&c.heap_bytes));
        row.extend(whole(&c.toast_bytes));
        row.extend(whole(&c.toast_index_bytes));
        row.extend(whole(&c.total_bytes));
        row.extend(whole(&c.chunks));
        row.extend(fraction(&c.read_buffers_per_value));
        row.extend(whole(&c.read_cpu_ns_per_value));
        row.extend(whole(&c.update_bytes_per_value));
        row.extend(whole(&c.update_wal_bytes_per_value));
        let f = &c.forms;
        row.extend(
            [
                f.null,
                f.short,
                f.plain,
                f.compressed,
                f.external,
                f.external_compressed,
                f.custom,
                c.refused_rows,
                c.retoasted_bytes,
            ]
            .map(|n| n.to_string()),
        );
        writer.write_record(&row)?;
    }
    writer.flush()
}
