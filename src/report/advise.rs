//! The report of `advise-threshold` in every format.

use std::collections::HashSet;
use std::io::{self, Write};

use super::advise_parts::{change, paragraph};
use super::format::Format;
use super::table::{Grid, Head, Style, printable, wrapped};
use super::units::{counted, nanoseconds, size};
use super::{advise_csv, advise_extract, advise_plot, in_turn};
use crate::advise::result::{CandidateReport, Report, Whole};

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
    reports: in_turn::Writer<W, Report>,
    shown: Shown,
    /// Notes and legends that are printed already.
    told: HashSet<String>,
}

impl<W: Write> Writer<W> {
    /// Nothing is written before the first report.
    pub fn new(out: W, format: Format, width: Option<usize>, shown: Shown) -> Writer<W> {
        Writer { reports: in_turn::Writer::new(out, format, width), shown, told: HashSet::new() }
    }

    /// Writes one report, so that whoever reads has it at once.
    pub fn report(&mut self, report: Report) -> io::Result<()> {
        if self.reports.written == 0 {
            self.head()?;
        }
        if self.reports.format == Format::Csv {
            self.reports.written += 1;
            advise_csv::rows(&report, &mut csv::Writer::from_writer(&mut self.reports.out))?;
            return self.reports.out.flush();
        }
        let (shown, told) = (self.shown, &mut self.told);
        self.reports.report_by(report, |report, style, out| one(report, style, shown, told, out))
    }

    /// Ends the document; must be called once.
    pub fn finish(mut self) -> io::Result<()> {
        if self.reports.written == 0 {
            self.head()?;
        }
        self.reports.finish()
    }

    fn head(&mut self) -> io::Result<()> {
        match self.reports.format {
            Format::Csv => advise_csv::head(&mut csv::Writer::from_writer(&mut self.reports.out)),
            _ => Ok(()),
        }
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
        "After retoast: the files before they are written anew, which makes them Total.",
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
    style: Style,
    told: &mut HashSet<String>,
    out: &mut impl Write,
) -> io::Result<()> {
    for line in folded(report) {
        paragraph(&line, style, out)?;
    }
    if !left_out.is_empty() {
        let note = format!("(no room for: {})", left_out.join(", "));
        paragraph(&note, style, out)?;
    }
    if told.insert(MARKS.to_owned()) {
        paragraph(MARKS, style, out)?;
    }
    let terms = terms(left_out, told);
    if !terms.is_empty() {
        paragraph(&terms.join(" "), style, out)?;
    }
    Ok(())
}

fn one(
    report: &Report,
    style: Style,
    shown: Shown,
    told: &mut HashSet<String>,
    out: &mut impl Write,
) -> io::Result<()> {
    let markdown = style == Style::Markdown;
    let details = shown.details || markdown;
    let title = if markdown { "## " } else { "" };
    let item = if markdown { "* " } else { "  " };
    writeln!(
        out,
        "{title}{}, column {} ({})",
        printable(&report.relation),
        printable(&report.column),
        printable(&report.column_type)
    )?;
    if markdown {
        writeln!(out)?;
    }
    let files = &report.files;
    writeln!(
        out,
        "{item}files: heap {}, TOAST {}, its index {}",
        size(files.heap_bytes),
        size(files.toast_bytes),
        size(files.toast_index_bytes)
    )?;
    let sample = &report.sample;
    let part = if sample.rows_examined < sample.rows {
        format!(", values of {} of them", sample.rows_examined)
    } else {
        String::new()
    };
    let line = format!(
        "{item}sample: {} of {}, {}{part}, {} read{}{}{}",
        sample.blocks,
        counted(sample.total_blocks, "block"),
        counted(sample.rows, "row"),
        size(sample.read_bytes),
        if sample.source == "functions" { " by SQL functions" } else { "" },
        if sample.exact { ", compressed by the server" } else { "" },
        match sample.limit {
            Some(_) => "; --sample reads more",
            None => "",
        }
    );
    writeln!(out, "{}", wrapped(&line, style.width(), 4))?;
    writeln!(out)?;
    let drawn = grid(report).draw(style);
    out.write_all(drawn.text.as_bytes())?;
    if style == Style::Markdown {
        writeln!(out)?;
    }
    if details {
        explained(report, &drawn.left_out, style, told, out)?;
    } else {
        let terms = terms(&drawn.left_out, told);
        paragraph([&[BRIEFLY], &terms[..]].concat().join(" ").as_str(), style, out)?;
    }
    if shown.plot {
        let width = match style {
            Style::Terminal(Some(width)) => width,
            Style::Terminal(None) | Style::Markdown => 80,
        };
        let fence = if markdown { "```\n" } else { "" };
        write!(out, "\n{fence}{}{fence}", advise_plot::chart(report, width))?;
    }
    let recommendation = &report.recommendation;
    if details {
        writeln!(out)?;
        paragraph(&recommendation.reasons, style, out)?;
        if recommendation.command.is_some() {
            writeln!(out)?;
        }
        for statement in recommendation.sql.iter().chain(&recommendation.command) {
            writeln!(out, "    {}", super::table::statement(statement))?;
        }
        let notes = report.notes.iter().filter(|note| told.insert((*note).clone()));
        let notes: Vec<String> = notes.cloned().chain(caveats(report)).collect();
        if !notes.is_empty() {
            writeln!(out)?;
        }
        for note in &notes {
            paragraph(&format!("{}{note}", if markdown { "* " } else { "- " }), style, out)?;
        }
    } else {
        briefly(report, style, out)?;
    }
    if let Some(extraction) = &report.extraction {
        writeln!(out)?;
        advise_extract::write(report, extraction, style, out)?;
    }
    if details || report.extraction.is_some() {
        for p in &report.pluggable {
            writeln!(out)?;
            paragraph(&super::advise_pluggable::text(p), style, out)?;
        }
    }
    if report.problem_count > 0 {
        writeln!(out)?;
        writeln!(out, "{}:", counted(report.problem_count, "problem"))?;
        for problem in report.problems.iter().take(10) {
            writeln!(out, "{item}{}", printable(problem))?;
        }
    }
    Ok(())
}

fn grid(report: &Report) -> Grid {
    let mut grid = Grid::new(&[
        Head::text("", 0),
        Head::text("Settings", 0),
        Head::number("Total", 0),
        Head::number("Change", 0),
        Head::number("After retoast", 2),
        Head::number("Heap", 3),
        Head::number("TOAST", 3),
        Head::number("Index", 7),
        Head::number("In row", 6),
        Head::number("Out of line", 6),
        Head::number("Chunks", 8),
        Head::number("Decompress", 5),
        Head::number("Buffers/read", 1),
        Head::number("CPU/read", 1),
        Head::number("CPU change", 1),
        Head::number("Buffers/scan", 2),
        Head::number("Bytes/update", 4),
        Head::number("WAL/update", 2),
        Head::number("WAL change", 2),
        Head::text("Refused", 1),
    ]);
    for candidate in report.candidates.iter().filter(|c| !is_folded(c)) {
        grid.row(cells(candidate));
    }
    grid
}

/// Whether a candidate is named in a line below the table instead of a row of its own.
fn is_folded(candidate: &CandidateReport) -> bool {
    candidate.same_as.is_some() && !candidate.recommended
}

/// The candidates that store every value as another does.
fn folded(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, first) in report.candidates.iter().enumerate() {
        let same: Vec<String> = report
            .candidates
            .iter()
            .filter(|c| is_folded(c) && c.same_as == Some(index))
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
fn briefly(report: &Report, style: Style, out: &mut impl Write) -> io::Result<()> {
    let recommendation = &report.recommendation;
    writeln!(out)?;
    let first = recommendation.reasons.split_once(". ").map(|(first, _)| format!("{first}."));
    paragraph(first.as_ref().unwrap_or(&recommendation.reasons), style, out)?;
    let Some(command) = &recommendation.command else { return Ok(()) };
    writeln!(out, "\n    {}", printable(command))?;
    let recommended = report.candidates.iter().find(|c| c.recommended);
    match recommended.map_or(&[][..], |c| &c.caveats) {
        [] => Ok(()),
        caveats => paragraph(&format!("But {}.", caveats.join("; ")), style, out),
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

fn cells(c: &CandidateReport) -> Vec<String> {
    let bytes = |w: &Whole| size(w.0.value.estimate.round() as u64);
    let forms = &c.forms;
    let mark = match (c.recommended, c.pareto) {
        (true, true) => ">*",
        (true, false) => ">",
        (false, true) => " *",
        (false, false) => "",
    };
    vec![
        mark.into(),
        c.name.clone(),
        bytes(&c.total_bytes),
        change(&c.total_bytes.0, c.today),
        if c.today { String::new() } else { size(c.retoasted_bytes) },
        bytes(&c.heap_bytes),
        bytes(&c.toast_bytes),
        bytes(&c.toast_index_bytes),
        (forms.short + forms.plain + forms.compressed).to_string(),
        (forms.external + forms.external_compressed + forms.custom).to_string(),
        format!("{:.0}", c.chunks.0.value.estimate),
        c.decompressed_values.to_string(),
        format!("{:.1}", c.read_buffers_per_value.0.value.estimate),
        nanoseconds(c.read_cpu_ns_per_value.0.value.estimate),
        change(&c.read_cpu_ns_per_value.0, c.today),
        format!("{:.0}", c.scan_buffers.0.value.estimate),
        bytes(&c.update_bytes_per_value),
        bytes(&c.update_wal_bytes_per_value),
        change(&c.update_wal_bytes_per_value.0, c.today),
        c.refusal.as_ref().map(|_| counted(c.refused_rows, "row")).unwrap_or_default(),
    ]
}
