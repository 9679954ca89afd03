//! The report of `inspect` in every format.

use std::io::{self, Write};

use super::findings;
use super::format::{Format, json_line};
use super::inspect_grids::{column_grid, form_grid, policy_grid, toaster_grid};
use super::inspect_largest::Largest;
use super::inspect_sample;
use super::table::{Drawn, Style, printable, wrapped};
use super::units::{counted, size};
use crate::inspect::result::{
    ColumnReport, HeapReport, RelationReport, Report, SCHEMA, ToastReport,
};
use crate::server::about::ServerReport;

/// Problems shown in full in a table; the rest is counted.
const PROBLEMS_SHOWN: usize = 10;

/// Columns without room that are named; the rest is counted.
const NO_ROOM: usize = 4;

/// Writes the report relation by relation, as they come.
pub struct Writer<W: Write> {
    out: W,
    format: Format,
    /// The terminal's, for tables only.
    width: Option<usize>,
    server: Option<ServerReport>,
    written: u64,
    largest: Largest,
    /// Kinds of pointers whose costs are told.
    costs_told: Vec<&'static str>,
}

impl<W: Write> Writer<W> {
    /// Nothing is written before the first relation.
    pub fn new(
        out: W,
        format: Format,
        width: Option<usize>,
        server: Option<ServerReport>,
    ) -> Writer<W> {
        let largest = Largest::default();
        Writer { out, format, width, server, written: 0, largest, costs_told: Vec::new() }
    }

    /// Writes one relation, so that whoever reads has it at once.
    pub fn relation(&mut self, relation: &RelationReport) -> io::Result<()> {
        if self.written == 0 {
            self.head()?;
        }
        let style = match self.format {
            Format::Markdown => Style::Markdown,
            _ => Style::Terminal(self.width),
        };
        match self.format {
            Format::Table | Format::Markdown => {
                self.largest.add(relation);
                if self.written > 0 {
                    writeln!(self.out)?;
                }
                one_relation(relation, style, &mut self.costs_told, &mut self.out)?;
            }
            Format::Json => {
                let comma = if self.written > 0 { "," } else { "" };
                let indented = serde_json::to_string_pretty(relation)?.replace('\n', "\n    ");
                write!(self.out, "{comma}\n    {indented}")?;
            }
            Format::Jsonl => json_line(SCHEMA, relation, &mut self.out)?,
            Format::Csv => csv_rows(relation, &mut csv_writer(&mut self.out))?,
        }
        self.written += 1;
        self.out.flush()
    }

    /// Ends the document; must be called once.
    pub fn finish(mut self) -> io::Result<()> {
        if self.written == 0 {
            self.head()?;
        }
        if self.largest.are_several() {
            let style = match self.format {
                Format::Markdown => Style::Markdown,
                _ => Style::Terminal(self.width),
            };
            writeln!(self.out)?;
            writeln!(self.out, "{}\n", wrapped(&self.largest.title(), style.width(), 0))?;
            write!(self.out, "{}", self.largest.grid().draw(style).text)?;
            if let Some(rest) = self.largest.rest() {
                writeln!(self.out, "{}", wrapped(&rest, style.width(), 0))?;
            }
        }
        match (self.format, self.written) {
            (Format::Json, 0) => writeln!(self.out, "]\n}}")?,
            (Format::Json, _) => writeln!(self.out, "\n  ]\n}}")?,
            _ => {}
        }
        self.out.flush()
    }

    fn head(&mut self) -> io::Result<()> {
        match self.format {
            Format::Json => {
                // the document without its relations, up to where they stand
                let report =
                    Report { schema: SCHEMA, server: self.server.clone(), relations: Vec::new() };
                let whole = serde_json::to_string_pretty(&report)?;
                let head = whole.strip_suffix("]\n}").unwrap_or(&whole);
                self.out.write_all(head.as_bytes())
            }
            Format::Csv => Ok(csv_writer(&mut self.out).write_record(CSV_HEAD)?),
            Format::Table | Format::Markdown | Format::Jsonl => Ok(()),
        }
    }
}

fn one_relation(
    relation: &RelationReport,
    style: Style,
    costs_told: &mut Vec<&'static str>,
    out: &mut impl Write,
) -> io::Result<()> {
    let markdown = style == Style::Markdown;
    let (title, item) = if markdown { ("## ", "* ") } else { ("", "  ") };
    let kind = relation.kind.map(|kind| format!(" ({kind})")).unwrap_or_default();
    writeln!(out, "{title}{}{kind}", printable(&relation.relation))?;
    if markdown {
        writeln!(out)?;
    }
    let width = match style {
        Style::Terminal(width) => width,
        Style::Markdown => None,
    };
    let mut line = |text: String| writeln!(out, "{}", wrapped(&format!("{item}{text}"), width, 4));
    if let Some(sample) = &relation.sample {
        line(inspect_sample::sample_line(sample))?;
    }
    if relation.heap.bytes.is_some() || relation.heap.blocks_read > 0 {
        line(heap_line(&relation.heap))?;
    }
    line(match relation.sample {
        Some(_) => inspect_sample::tuples_line(&relation.tuples),
        None => tuples_line(relation),
    })?;
    if let Some(toast) = &relation.toast {
        line(toast_line(toast))?;
    }
    if !relation.options.is_empty() {
        line(format!("options: {}", printable(&relation.options.join(", "))))?;
    }
    let mut columns: Vec<&ColumnReport> = relation.columns.iter().collect();
    columns.sort_by_key(|column| std::cmp::Reverse(cost(column)));
    let (column_grid, form_grid) = match relation.sample {
        Some(_) => (inspect_sample::column_grid(&columns), inspect_sample::form_grid(&columns)),
        None => (column_grid(&columns), form_grid(&columns)),
    };
    for grid in [column_grid, form_grid, toaster_grid(&columns), policy_grid(&columns)] {
        if !grid.is_empty() {
            writeln!(out)?;
            grid_lines(&grid.draw(style), width, out)?;
        }
    }
    pointer_costs(relation, item, costs_told, out)?;
    if let Some((first, others)) = relation.not_available.split_first() {
        let mut text = format!("{item}not available: {} ({})", first.figure, first.reason);
        for missing in others {
            text.push_str("; ");
            text.push_str(&missing.figure);
        }
        writeln!(out, "{}", wrapped(&text, width, 4))?;
    }
    if let Some(found) = &relation.findings {
        // a list follows a list as its next item
        let gap = if relation.not_available.is_empty() { "\n" } else { "" };
        writeln!(out, "{gap}{}", findings::text(found, style))?;
    }
    if relation.problem_count > 0 {
        writeln!(out)?;
        for problem in relation.problems.iter().take(PROBLEMS_SHOWN) {
            let text = format!("{item}problem: {}", printable(&problem.text));
            writeln!(out, "{}", wrapped(&text, width, 4))?;
        }
        let more = relation.problem_count.saturating_sub(PROBLEMS_SHOWN as u64);
        if more > 0 {
            writeln!(out, "{item}and {more} more")?;
        }
    }
    Ok(())
}

fn grid_lines(drawn: &Drawn, width: Option<usize>, out: &mut impl Write) -> io::Result<()> {
    write!(out, "{}", drawn.text)?;
    if !drawn.left_out.is_empty() {
        let named = drawn.left_out.get(..NO_ROOM).unwrap_or(&drawn.left_out).join(", ");
        let note = match drawn.left_out.len().saturating_sub(NO_ROOM) {
            0 => format!("(no room for: {named})"),
            more => format!("(no room for: {named} and {more} more)"),
        };
        writeln!(out, "{}", wrapped(&note, width, 1))?;
    }
    Ok(())
}

/// Bytes that a column takes, as far as known.
fn cost(column: &ColumnReport) -> u64 {
    let stored: u64 = column.forms.iter().filter_map(|form| form.stored_bytes).sum();
    stored + column.pointer_bytes
}

fn heap_line(heap: &HeapReport) -> String {
    let mut line = match (heap.bytes, heap.blocks) {
        (Some(bytes), Some(blocks)) => {
            format!("heap: {} in {}", size(bytes), counted(blocks, "block"))
        }
        _ => format!("heap: {} read", counted(heap.blocks_read, "block")),
    };
    if let Some(free) = &heap.free_bytes_estimate {
        line.push_str(&format!(", {} free", inspect_sample::bytes(free)));
    } else if let Some(free) = heap.free_bytes {
        line.push_str(&format!(", {} free", size(free)));
    }
    if let Some(blocks) = heap.new_blocks.filter(|&blocks| blocks > 0) {
        line.push_str(&format!(", {blocks} never written"));
    }
    if let Some(bytes) = heap.index_bytes {
        line.push_str(&format!("; indexes: {}", size(bytes)));
    }
    line
}

fn tuples_line(relation: &RelationReport) -> String {
    let tuples = &relation.tuples;
    let mut line = format!("rows: {} live", tuples.live);
    if let Some(dead) = tuples.dead {
        line.push_str(&format!(", {dead} dead"));
    }
    if let Some(unknown) = tuples.unknown.filter(|&n| n > 0) {
        line.push_str(&format!(
            ", {unknown} of unknown visibility (no hint bits; their values are counted)"
        ));
    }
    if let Some(updated) = tuples.hot_updated {
        line.push_str(&format!(", {updated} hot-updated"));
    }
    line
}

fn toast_line(toast: &ToastReport) -> String {
    let mut line = format!("toast: {}", printable(&toast.relation));
    if let Some(bytes) = toast.bytes {
        line.push_str(&format!(", {}", size(bytes)));
    }
    if let Some(bytes) = toast.index_bytes {
        line.push_str(&format!(", index {}", size(bytes)));
    }
    match (toast.rows, toast.rows_counted) {
        (Some(rows), true) => line.push_str(&format!(", {}", counted(rows, "row"))),
        (Some(rows), false) => line.push_str(&format!(", about {}", counted(rows, "row"))),
        (None, _) => {}
    }
    if let Some(dead) = toast.dead_rows {
        line.push_str(&format!(", {dead} dead"));
    }
    line.push_str(&match (&toast.values_estimate, &toast.chunks_estimate) {
        (Some(values), Some(chunks)) => format!(
            "; {} values in {} chunks",
            inspect_sample::count(values),
            inspect_sample::count(chunks)
        ),
        _ => values_there(toast),
    });
    if let Some(orphans) = toast.orphans.filter(|orphans| orphans.values > 0) {
        line.push_str(&format!(
            "; {} that no row refers to, {} in {}",
            counted(orphans.values, "value"),
            size(orphans.bytes),
            counted(orphans.chunks, "chunk")
        ));
    }
    line
}

/// Values in the TOAST relation, and those of which that is not known.
fn values_there(toast: &ToastReport) -> String {
    let known = format!("{} in {}", counted(toast.values, "value"), counted(toast.chunks, "chunk"));
    match (toast.values, toast.unplaced_values) {
        (0, None) => "; no values".to_owned(),
        (_, None) => format!("; {known}"),
        (0, Some(open)) => format!("; up to {}, here or in their rows", counted(open, "value")),
        (_, Some(open)) => format!("; {known}, and up to {open} more, here or in their rows"),
    }
}

/// What each kind of custom pointer costs, unless that is told already.
fn pointer_costs(
    relation: &RelationReport,
    item: &str,
    told: &mut Vec<&'static str>,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut first = true;
    for report in relation.columns.iter().flat_map(|column| &column.toasters) {
        if told.contains(&report.pointer_kind) {
            continue;
        }
        if std::mem::take(&mut first) {
            writeln!(out)?;
        }
        told.push(report.pointer_kind);
        writeln!(out, "{item}pointer \"{}\":", report.pointer_kind)?;
        writeln!(out, "{item}  to read a key: {}", report.cost_to_read)?;
        writeln!(out, "{item}  to append: {}", report.cost_to_append)?;
    }
    Ok(())
}

const CSV_HEAD: [&str; 13] = [
    "relation",
    "column",
    "type",
    "storage",
    "compression",
    "form",
    "method",
    "values",
    "raw_bytes",
    "stored_bytes",
    "pointer_bytes",
    "chunks",
    "ratio",
];

fn csv_writer<W: Write>(out: W) -> csv::Writer<W> {
    csv::Writer::from_writer(out)
}

/// One row for each column and form; sizes are bytes.
fn csv_rows(relation: &RelationReport, writer: &mut csv::Writer<impl Write>) -> io::Result<()> {
    let number = |n: Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
    for column in &relation.columns {
        for form in &column.forms {
            writer.write_record([
                relation.relation.as_str(),
                &column.column,
                &column.type_name,
                column.storage,
                column.compression.unwrap_or_default(),
                form.form,
                form.method.unwrap_or_default(),
                &form.values.to_string(),
                &number(form.raw_bytes),
                &number(form.stored_bytes),
                &form.pointer_bytes.to_string(),
                &form.chunks.to_string(),
                &form.ratio.map(|r| r.to_string()).unwrap_or_default(),
            ])?;
        }
    }
    writer.flush()
}
