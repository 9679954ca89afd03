//! The report of `advise-threshold`: candidates, keys in columns of their own, pluggable toasters; and its CSV.

use std::collections::HashSet;
use std::io::{self, Write};

use super::advise_plot;
use super::document::{Document, Envelope, Format, Output};
use super::table::{Grid, Head, number, printable, statement, text};
use super::units::{counted, nanoseconds, size};
use crate::advise::estimate::Figure;
use crate::advise::extract::keys::KnownUse;
use crate::advise::extract::result::{ExtractionReport, KeyReport};
use crate::advise::result::{CandidateReport, PluggableReport, Report, SCHEMA};
use crate::model::interval::Interval;

/// What the table is accompanied by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// Size drawn against read cost.
    pub plot: bool,
    /// What terms mean, the caveats of every candidate, and all notes; else those of the recommended one.
    pub details: bool,
}

/// Writes reports as they come.
pub struct Writer<W: Write> {
    output: Output<W>,
    shown: Shown,
    /// Notes and legends that are printed already.
    told: HashSet<String>,
}

impl<W: Write> Writer<W> {
    /// Nothing is written before the first report.
    pub fn new(out: W, format: Format, width: Option<usize>, shown: Shown) -> Writer<W> {
        let envelope = Envelope::Alone(Vec::new());
        let output = Output::new(out, (format, width), SCHEMA, &csv_fields(), envelope);
        Writer { output, shown, told: HashSet::new() }
    }

    /// Writes one report, so that whoever reads has it at once.
    pub fn report(&mut self, report: &Report) -> io::Result<()> {
        let (shown, told, is_first) = (self.shown, &mut self.told, self.output.written == 0);
        let text = |document: &mut Document| {
            if !is_first {
                document.gap();
            }
            one(report, shown, told, document);
        };
        self.output.entry(report, text, || csv_rows(report))
    }

    /// Ends the document; must be called once.
    pub fn finish(self) -> io::Result<()> {
        self.output.finish(None::<&()>, |_| {}, Vec::new)
    }
}

/// What the marks of the table mean.
const MARKS: &str = "Marks: > recommended, * on the Pareto front: no other is as good in size, reads, \
    writes and scans, and better in one. Changes are against today, with the half width of the 95 % confidence \
    interval.";

/// What the titles of the table mean, where they do not say it.
const TERMS: [(&str, &str); 5] = [
    (
        "After retoast",
        "After retoast: files right after the conversion; a compaction or VACUUM FULL makes them Total.",
    ),
    ("Buffers/read", "Buffers/read: pages visited to read one value."),
    ("CPU/read", "CPU/read: time that storage adds to the read of one value."),
    ("Buffers/scan", "Buffers/scan: pages visited by a scan that does not need the column."),
    ("WAL/update", "WAL/update: WAL written when one value is replaced."),
];

/// What stands below the table where nothing more is explained.
const BRIEFLY: &str = "> recommended, * on the Pareto front; --details explains, with all caveats.";

/// What those titles of the table mean that were not explained before.
fn terms(left_out: &[&'static str], told: &mut HashSet<String>) -> Vec<&'static str> {
    let shown = TERMS.iter().filter(|(title, _)| !left_out.contains(title));
    let mut terms: Vec<&str> = shown
        .filter(|(title, _)| told.insert((*title).to_owned()))
        .map(|(_, text)| *text)
        .collect();
    terms.dedup();
    terms
}

/// What the table means, and what it leaves out.
fn explained(
    report: &Report,
    left_out: &[&'static str],
    told: &mut HashSet<String>,
    document: &mut Document,
) {
    for line in folded(report) {
        document.paragraph(&line);
    }
    if !left_out.is_empty() {
        document.paragraph(&format!("(no room for: {})", left_out.join(", ")));
    }
    if told.insert(MARKS.to_owned()) {
        document.paragraph(MARKS);
    }
    let terms = terms(left_out, told);
    if !terms.is_empty() {
        document.paragraph(&terms.join(" "));
    }
}

fn one(report: &Report, shown: Shown, told: &mut HashSet<String>, document: &mut Document) {
    let details = shown.details || document.is_markdown();
    let [relation, column, of_type] =
        [&report.table.relation, &report.column, &report.column_type].map(|name| printable(name));
    document.heading(&format!("{relation}, column {column} ({of_type})"), 2);
    let item = document.bullet();
    let files = &report.files;
    let [heap, toast, index] =
        [files.heap_bytes, files.toast_bytes, files.toast_index_bytes].map(size);
    document.lines(&format!("{item}files: heap {heap}, TOAST {toast}, its index {index}\n"));
    let sample = &report.sample;
    let part = if sample.rows_examined < sample.rows {
        format!(", values of {} of them", sample.rows_examined)
    } else {
        String::new()
    };
    document.item(&format!(
        "sample: {} of {}, {}{part}, {} read{}{}{}",
        sample.blocks,
        counted(sample.total_blocks, "block"),
        counted(sample.rows, "row"),
        size(sample.read_bytes),
        if sample.source == "functions" { " by SQL functions" } else { "" },
        if sample.exact { ", compressed by the server" } else { "" },
        if sample.limit.is_some() { "; --sample reads more" } else { "" },
    ));
    document.gap();
    let left_out = document.grid(&grid(report));
    if document.is_markdown() {
        document.gap();
    }
    if details {
        explained(report, &left_out, told, document);
    } else {
        let terms = terms(&left_out, told);
        document.paragraph(&[&[BRIEFLY], &terms[..]].concat().join(" "));
    }
    if shown.plot {
        document.gap();
        document.figure(&advise_plot::chart(report, document.style.width().unwrap_or(80)));
    }
    if details {
        recommended(report, told, document);
    } else {
        briefly(report, document);
    }
    if let Some(extraction) = &report.extraction {
        document.gap();
        extracted(report, extraction, document);
    }
    if details || report.extraction.is_some() {
        for p in &report.pluggable {
            document.gap();
            document.paragraph(&pluggable(p));
        }
    }
    document.problems(&report.problems, item);
}

/// What is recommended and why, and what else is to be known.
fn recommended(report: &Report, told: &mut HashSet<String>, document: &mut Document) {
    let recommendation = &report.recommendation;
    document.gap();
    document.paragraph(&recommendation.reasons);
    if recommendation.command.is_some() {
        document.gap();
    }
    for sql in recommendation.sql.iter().chain(&recommendation.command) {
        document.lines(&format!("    {}\n", statement(sql)));
    }
    let notes = report.notes.iter().filter(|note| told.insert((*note).clone()));
    let notes: Vec<String> = notes.cloned().chain(caveats(report)).collect();
    if !notes.is_empty() {
        document.gap();
    }
    let item = if document.is_markdown() { "* " } else { "- " };
    notes.iter().for_each(|note| document.paragraph(&format!("{item}{note}")));
}

fn grid(report: &Report) -> Grid {
    let shown: Vec<&CandidateReport> = report.candidates.iter().filter(|c| !is_folded(c)).collect();
    Grid::of(
        &shown,
        &[
            text("", 0, |c| mark(c).to_owned()),
            text("Settings", 0, |c| c.name.clone()),
            number("Total", 0, |c| bytes(&c.files.total_bytes)),
            number("Change", 0, |c| change(&c.files.total_bytes, c.marks.today)),
            number("After retoast", 2, |c| {
                if c.marks.today { String::new() } else { size(c.retoasted_bytes) }
            }),
            number("Heap", 3, |c| bytes(&c.files.heap_bytes)),
            number("TOAST", 3, |c| bytes(&c.files.toast_bytes)),
            number("Index", 7, |c| bytes(&c.files.toast_index_bytes)),
            number("In row", 6, |c| {
                (c.forms.short + c.forms.plain + c.forms.compressed).to_string()
            }),
            number("Out of line", 6, |c| {
                (c.forms.external + c.forms.external_compressed + c.forms.custom).to_string()
            }),
            number("Chunks", 8, |c| format!("{:.0}", c.chunks.value.estimate)),
            number("Decompress", 5, |c| c.decompressed_values.to_string()),
            number("Buffers/read", 1, |c| {
                format!("{:.1}", c.read_buffers_per_value.value.estimate)
            }),
            number("CPU/read", 1, |c| nanoseconds(c.read_cpu_ns_per_value.value.estimate)),
            number("CPU change", 1, |c| change(&c.read_cpu_ns_per_value, c.marks.today)),
            number("Buffers/scan", 2, |c| format!("{:.0}", c.scan_buffers.value.estimate)),
            number("Bytes/update", 4, |c| bytes(&c.update_bytes_per_value)),
            number("WAL/update", 2, |c| bytes(&c.update_wal_bytes_per_value)),
            number("WAL change", 2, |c| change(&c.update_wal_bytes_per_value, c.marks.today)),
            text("Refused", 1, |c| {
                c.refusal.as_ref().map(|_| counted(c.refused_rows, "row")).unwrap_or_default()
            }),
        ],
    )
}

/// Whether a candidate is named in a line below the table instead of a row of its own.
fn is_folded(candidate: &CandidateReport) -> bool {
    candidate.marks.same_as.is_some() && !candidate.marks.recommended
}

/// The candidates that store every value as another does.
fn folded(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, first) in report.candidates.iter().enumerate() {
        let same: Vec<String> = report
            .candidates
            .iter()
            .filter(|c| is_folded(c) && c.marks.same_as == Some(index))
            .map(|c| printable(&c.name))
            .collect();
        if !same.is_empty() {
            lines.push(format!("Same as {}: {}.", printable(&first.name), same.join(", ")));
        }
    }
    lines
}

/// Candidates that a line names; the rest is counted.
const NAMED: usize = 4;

/// What is recommended, the command that does it, and what it brings with it.
fn briefly(report: &Report, document: &mut Document) {
    let recommendation = &report.recommendation;
    document.gap();
    let first = recommendation.reasons.split_once(". ").map(|(first, _)| format!("{first}."));
    document.paragraph(first.as_ref().unwrap_or(&recommendation.reasons));
    let Some(command) = &recommendation.command else { return };
    document.lines(&format!("\n    {}\n", printable(command)));
    let recommended = report.candidates.iter().find(|c| c.marks.recommended);
    match recommended.map_or(&[][..], |c| &c.caveats) {
        [] => {}
        caveats => document.paragraph(&format!("But {}.", caveats.join("; "))),
    }
}

/// Each caveat once, with the candidates that it is one of.
fn caveats(report: &Report) -> Vec<String> {
    let shown = || report.candidates.iter().filter(|c| !is_folded(c));
    let mut told: Vec<&str> = Vec::new();
    let mut lines = Vec::new();
    for caveat in shown().flat_map(|c| &c.caveats) {
        if told.contains(&caveat.as_str()) {
            continue;
        }
        told.push(caveat);
        let names: Vec<&str> =
            shown().filter(|c| c.caveats.contains(caveat)).map(|c| c.name.as_str()).collect();
        let more = match names.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named = names.get(..NAMED).unwrap_or(&names).join(", ");
        lines.push(format!("{named}{more}: {caveat}."));
    }
    lines
}

fn mark(c: &CandidateReport) -> &'static str {
    match (c.marks.recommended, c.marks.pareto) {
        (true, true) => ">*",
        (true, false) => ">",
        (false, true) => " *",
        (false, false) => "",
    }
}

/// What keys in columns of their own would give, below the candidates.
fn extracted(report: &Report, extraction: &ExtractionReport, document: &mut Document) {
    let title = if document.is_markdown() { "### " } else { "" };
    let columns = match extraction.keys.len() {
        1 => "a column of its own",
        _ => "columns of their own",
    };
    let keys = counted(extraction.keys.len() as u64, "key");
    document.paragraph(&format!("{title}With {keys} of {} in {columns}:", report.column));
    document.gap();
    for grid in [sizes(extraction), accesses(extraction), columns_of(&extraction.keys)] {
        document.grid(&grid);
        document.gap();
    }
    if extraction.auto {
        document.paragraph(&why(&extraction.known_uses));
    }
    if extraction.refused_rows > 0 {
        let rows = counted(extraction.refused_rows, "row");
        document.paragraph(&format!(
            "The server would refuse {rows}, which would be too big for a page."
        ));
    }
    document.paragraph(EXTRACTED);
}

const EXTRACTED: &str = "Sizes are those that VACUUM FULL leaves; a compaction comes near to them. A column has a \
                         type that all values of the sample fit. --emit sql prints the migration, with the way back.";

/// Why these keys were chosen.
fn why(known: &[KnownUse]) -> String {
    const SHOWN: usize = 10;
    if known.is_empty() {
        return "These keys pay most if every key of a document is used as often as every other: nothing is known of \
                their use."
            .into();
    }
    let of = |one: &KnownUse| {
        let calls = (one.calls > 0).then(|| counted(one.calls, "call"));
        let known: Vec<String> = calls.into_iter().chain(one.named_in.iter().cloned()).collect();
        format!("{} ({})", one.key, known.join(", "))
    };
    let mut shown: Vec<String> = known.iter().take(SHOWN).map(of).collect();
    if known.len() > SHOWN {
        shown.push(format!("and {} more", known.len() - SHOWN));
    }
    format!(
        "These keys pay most if half of all uses of keys is spread evenly over those that most documents have, and half \
         is as far as known: {}.",
        shown.join(", ")
    )
}

fn columns_of(keys: &[KeyReport]) -> Grid {
    Grid::of(
        keys,
        &[
            text("Key", 0, |key| key.key.clone()),
            text("Column", 0, |key| key.column.clone()),
            text("Type", 0, |key| key.kind.name().to_owned()),
            number("Documents", 0, |key| key.values.to_string()),
        ],
    )
}

fn bytes(whole: &Figure) -> String {
    size(whole.value.estimate.round() as u64)
}

fn sizes(extraction: &ExtractionReport) -> Grid {
    let mut grid = Grid::new(&[
        Head::text("", 0),
        Head::number("Total", 0),
        Head::number("Change", 0),
        Head::number("Heap", 1),
        Head::number("TOAST", 1),
        Head::number("Index", 2),
        Head::number("Documents out of line", 0),
        Head::number("Rows over the threshold", 0),
    ]);
    grid.row(vec![
        "today".into(),
        bytes(&extraction.total_bytes_today),
        String::new(),
        bytes(&extraction.heap_bytes_today),
        bytes(&extraction.toast_bytes_today),
        bytes(&extraction.toast_index_bytes_today),
        extraction.counts.external_today.to_string(),
        extraction.counts.wide_rows_today.to_string(),
    ]);
    grid.row(vec![
        "extracted".into(),
        bytes(&extraction.files.total_bytes),
        change(&extraction.files.total_bytes, false),
        bytes(&extraction.files.heap_bytes),
        bytes(&extraction.files.toast_bytes),
        bytes(&extraction.files.toast_index_bytes),
        extraction.counts.external.to_string(),
        extraction.counts.wide_rows.to_string(),
    ]);
    grid
}

fn accesses(extraction: &ExtractionReport) -> Grid {
    let ExtractionReport { keys, today, rest, whole, .. } = extraction;
    let mut rows = vec![("today: any key".to_owned(), today, true)];
    rows.extend(keys.iter().map(|key| (format!("extracted: {}", key.key), &key.access, false)));
    rows.push(("extracted: the rest".into(), rest, false));
    rows.push(("extracted: all of it".into(), whole, false));
    Grid::of(
        &rows,
        &[
            text("Read, updated", 0, |(name, _, _)| name.clone()),
            number("Buffers/scan", 0, |(_, access, _)| {
                format!("{:.0}", access.scan_buffers.value.estimate)
            }),
            number("Buffers/read", 1, |(_, access, _)| {
                format!("{:.2}", access.read_buffers.value.estimate)
            }),
            number("CPU/read", 0, |(_, access, _)| nanoseconds(access.read_cpu_ns.value.estimate)),
            number("CPU change", 1, |(_, access, today)| change(&access.read_cpu_ns, *today)),
            number("WAL/update", 0, |(_, access, _)| bytes(&access.update_wal_bytes)),
            number("WAL change", 1, |(_, access, today)| change(&access.update_wal_bytes, *today)),
        ],
    )
}

/// More buffers by this part are said to be more.
const DEARER: f64 = 1.05;

/// The paragraph. The reader has a stock server before him as a rule, and learns what each figure is
/// there now.
fn pluggable(p: &PluggableReport) -> String {
    let rest = p.values.saturating_sub(p.divided_values);
    let does = match (p.toaster, rest) {
        ("jsonb_toaster", 0) => "would take all of them apart".to_owned(),
        ("jsonb_toaster", _) => {
            format!("would take {} apart and store the rest as now", p.divided_values)
        }
        (_, 0) => "would make all of them appendable".to_owned(),
        _ => format!("would make {} appendable and keep the rest in the row", p.divided_values),
    };
    let (mut reads, change) = match p.toaster {
        "jsonb_toaster" => (
            format!(
                "Reading one key or element would visit {:.1} TOAST buffers (now {:.1}), reading the \
                 whole document {:.1} (now {:.1})",
                p.read_buffers,
                p.read_buffers_today,
                p.whole_read_buffers,
                p.whole_read_buffers_today
            ),
            "changing one key",
        ),
        _ => (
            format!(
                "Reading a value would visit {:.1} TOAST buffers (now {:.1})",
                p.whole_read_buffers, p.whole_read_buffers_today
            ),
            "appending a little",
        ),
    };
    if p.whole_read_buffers > p.whole_read_buffers_today * DEARER {
        reads.push_str(match p.toaster {
            "jsonb_toaster" => ": whole documents become more expensive to read",
            _ => ": values become more expensive to read",
        });
    }
    format!(
        "Estimate for a server with pluggable TOAST, from {} values that are out of line now: {} \
         {does}. An average value would take {} in the row and {} in the TOAST relation (now {} and {}). \
         {reads}; {change} would write {} (now {}).",
        p.values,
        p.toaster,
        size(p.inline_bytes_per_value),
        size(p.toast_bytes_per_value),
        size(p.inline_bytes_per_value_today),
        size(p.toast_bytes_per_value_today),
        size(p.small_update_bytes),
        size(p.small_update_bytes_today)
    )
}

/// `-12.3 % ±0.4`.
fn change(figure: &Figure, today: bool) -> String {
    let Some(Interval { estimate, low, high }) = figure.change.filter(|_| !today) else {
        return String::new();
    };
    let half = (high - low) / 2.0 * 100.0;
    if estimate == 0.0 && half == 0.0 {
        return "same".into();
    }
    format!("{:+.1} % ±{half:.1}", estimate * 100.0)
}

fn csv_fields() -> Vec<String> {
    let mut fields: Vec<String> = [
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
    .into();
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
        fields.extend([figure.to_owned(), format!("{figure}_low"), format!("{figure}_high")]);
    }
    let forms =
        ["null", "short", "plain", "compressed", "external", "external_compressed", "custom"];
    fields.extend(forms.map(String::from));
    fields.extend(["refused_rows", "retoasted_bytes"].map(String::from));
    fields
}

/// One row for each candidate.
fn csv_rows(report: &Report) -> Vec<Vec<String>> {
    let whole = |w: &Figure| {
        let Interval { estimate, low, high } = w.value;
        [estimate.round(), low.floor(), high.ceil()].map(|n| format!("{n:.0}"))
    };
    let fraction = |f: &Figure| {
        let Interval { estimate, low, high } = f.value;
        [estimate, low, high].map(|n| format!("{n:.3}"))
    };
    let row = |c: &CandidateReport| {
        let mut row = vec![
            report.table.relation.clone(),
            report.column.clone(),
            c.settings.storage.clone(),
            c.settings.method.clone(),
            c.settings.target.to_string(),
            c.settings.policy.clone(),
            c.marks.today.to_string(),
            c.marks.recommended.to_string(),
            c.marks.pareto.to_string(),
        ];
        row.extend(whole(&c.files.heap_bytes));
        row.extend(whole(&c.files.toast_bytes));
        row.extend(whole(&c.files.toast_index_bytes));
        row.extend(whole(&c.files.total_bytes));
        row.extend(whole(&c.chunks));
        row.extend(fraction(&c.read_buffers_per_value));
        row.extend(whole(&c.read_cpu_ns_per_value));
        row.extend(whole(&c.update_bytes_per_value));
        row.extend(whole(&c.update_wal_bytes_per_value));
        let f = &c.forms;
        let forms =
            [f.null, f.short, f.plain, f.compressed, f.external, f.external_compressed, f.custom];
        row.extend(
            forms.into_iter().chain([c.refused_rows, c.retoasted_bytes]).map(|n| n.to_string()),
        );
        row
    };
    report.candidates.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_gets_more_expensive_is_said() {
        let mut report = PluggableReport {
            toaster: "jsonb_toaster",
            estimated: true,
            values: 300,
            divided_values: 280,
            inline_bytes_per_value: 984,
            inline_bytes_per_value_today: 18,
            toast_bytes_per_value: 1343,
            toast_bytes_per_value_today: 5218,
            read_buffers: 0.82,
            read_buffers_today: 3.25,
            whole_read_buffers: 12.57,
            whole_read_buffers_today: 3.25,
            small_update_bytes: 1513,
            small_update_bytes_today: 2833,
        };
        insta::assert_snapshot!(pluggable(&report), @"Estimate for a server with pluggable TOAST, from 300 values that are out of line now: jsonb_toaster would take 280 apart and store the rest as now. An average value would take 984 bytes in the row and 1343 bytes in the TOAST relation (now 18 bytes and 5218 bytes). Reading one key or element would visit 0.8 TOAST buffers (now 3.2), reading the whole document 12.6 (now 3.2): whole documents become more expensive to read; changing one key would write 1513 bytes (now 2833 bytes).");
        report.toaster = "bytea_toaster";
        report.divided_values = 300;
        report.whole_read_buffers = 3.3;
        insta::assert_snapshot!(pluggable(&report), @"Estimate for a server with pluggable TOAST, from 300 values that are out of line now: bytea_toaster would make all of them appendable. An average value would take 984 bytes in the row and 1343 bytes in the TOAST relation (now 18 bytes and 5218 bytes). Reading a value would visit 3.3 TOAST buffers (now 3.2); appending a little would write 1513 bytes (now 2833 bytes).");
    }
}
