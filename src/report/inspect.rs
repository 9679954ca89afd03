//! The report of `inspect` in every format.

use std::io::{self, Write};

use super::format::{Format, json, json_lines};
use super::inspect_sample;
use super::table::{Drawn, Grid, Head, Style, printable, wrapped};
use super::units::{optional_size, percent, ratio, size};
use crate::inspect::result::{
    ColumnReport, FormReport, HeapReport, RelationReport, Report, ToastReport,
};

/// Problems shown in full in a table; the rest is counted.
const PROBLEMS_SHOWN: usize = 10;

/// Writes the report. `width` is the terminal's, for the table only.
pub fn write(
    report: &Report,
    format: Format,
    width: Option<usize>,
    out: &mut impl Write,
) -> io::Result<()> {
    match format {
        Format::Table => tables(report, Style::Terminal(width), out)?,
        Format::Markdown => tables(report, Style::Markdown, out)?,
        Format::Json => json(report, out)?,
        Format::Jsonl => json_lines(report.schema, &report.relations, out)?,
        Format::Csv => csv(report, out)?,
    }
    out.flush()
}

fn tables(report: &Report, style: Style, out: &mut impl Write) -> io::Result<()> {
    for (number, relation) in report.relations.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        one_relation(relation, style, out)?;
    }
    Ok(())
}

fn one_relation(relation: &RelationReport, style: Style, out: &mut impl Write) -> io::Result<()> {
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
    pointer_costs(relation, item, out)?;
    if !relation.not_available.is_empty() {
        writeln!(out)?;
        for missing in &relation.not_available {
            let text = format!("{item}not available: {} ({})", missing.figure, missing.reason);
            writeln!(out, "{}", wrapped(&text, width, 4))?;
        }
    }
    if relation.problem_count > 0 {
        writeln!(out)?;
        for problem in relation.problems.iter().take(PROBLEMS_SHOWN) {
            let text = format!("{item}problem: {}", printable(&problem.text));
            writeln!(out, "{}", wrapped(&text, width, 4))?;
        }
        let more = relation.problem_count.saturating_sub(PROBLEMS_SHOWN as u64);
        if more > 0 {
            writeln!(out, "{item}and {more} more problems")?;
        }
    }
    Ok(())
}

fn grid_lines(drawn: &Drawn, width: Option<usize>, out: &mut impl Write) -> io::Result<()> {
    write!(out, "{}", drawn.text)?;
    if !drawn.left_out.is_empty() {
        let note = format!("(no room for: {})", drawn.left_out.join(", "));
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
        (Some(bytes), Some(blocks)) => format!("heap: {} in {blocks} blocks", size(bytes)),
        _ => format!("heap: {} blocks read", heap.blocks_read),
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
        (Some(rows), true) => line.push_str(&format!(", {rows} rows")),
        (Some(rows), false) => line.push_str(&format!(", about {rows} rows")),
        (None, _) => {}
    }
    if let Some(dead) = toast.dead_rows {
        line.push_str(&format!(", {dead} dead"));
    }
    let (values, chunks) = match (&toast.values_estimate, &toast.chunks_estimate) {
        (Some(values), Some(chunks)) => {
            (inspect_sample::count(values), inspect_sample::count(chunks))
        }
        _ => (toast.values.to_string(), toast.chunks.to_string()),
    };
    line.push_str(&format!("; {values} values in {chunks} chunks"));
    if let Some(orphans) = toast.orphans.filter(|orphans| orphans.values > 0) {
        line.push_str(&format!(
            "; {} values that no row refers to, {} in {} chunks",
            orphans.values,
            size(orphans.bytes),
            orphans.chunks
        ));
    }
    line
}

fn column_grid(columns: &[&ColumnReport]) -> Grid {
    let mut grid = Grid::new(&[
        Head::text("Column", 0),
        Head::text("Type", 2),
        Head::text("Storage", 3),
        Head::text("Compression", 12),
        Head::number("Values", 0),
        Head::number("Nulls", 4),
        Head::number("Missing", 5),
        Head::number("Raw", 1),
        Head::number("Stored", 0),
        Head::number("Ratio", 0),
        Head::number("Chunks", 4),
        Head::number("Share", 0),
        Head::number("Raw min", 11),
        Head::number("Raw median", 7),
        Head::number("Raw p95", 10),
        Head::number("Raw p99", 11),
        Head::number("Raw max", 9),
        Head::number("Stored min", 10),
        Head::number("Stored median", 6),
        Head::number("Stored p95", 7),
        Head::number("Stored p99", 9),
        Head::number("Stored max", 8),
    ]);
    let number = |n: Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
    let nonzero = |n: u64| if n > 0 { n.to_string() } else { String::new() };
    for column in columns {
        grid.row(vec![
            column.column.clone(),
            column.type_name.clone(),
            column.storage.into(),
            column.compression.unwrap_or_default().into(),
            column.values.to_string(),
            nonzero(column.nulls),
            nonzero(column.missing),
            optional_size(column.raw_bytes),
            optional_size(column.stored_bytes),
            column.ratio.map(ratio).unwrap_or_default(),
            nonzero(column.chunks),
            column.share.map(percent).unwrap_or_default(),
            number(column.raw_size.min),
            number(column.raw_size.median),
            number(column.raw_size.p95),
            number(column.raw_size.p99),
            number(column.raw_size.max),
            number(column.stored_size.min),
            number(column.stored_size.median),
            number(column.stored_size.p95),
            number(column.stored_size.p99),
            number(column.stored_size.max),
        ]);
    }
    grid
}

/// The forms of a column, biggest first; none if there is no more to say than "plain".
pub(super) fn told_forms(column: &ColumnReport) -> Vec<&FormReport> {
    let dull = |form: &&FormReport| matches!(form.form, "plain" | "null");
    let mut forms: Vec<&FormReport> = column.forms.iter().collect();
    if forms.iter().all(dull) {
        return Vec::new();
    }
    forms.sort_by_key(|form| std::cmp::Reverse(form.stored_bytes.unwrap_or(0)));
    forms
}

/// Forms of the columns where there is more to say than "plain".
fn form_grid(columns: &[&ColumnReport]) -> Grid {
    let mut grid = Grid::new(&[
        Head::text("Column", 0),
        Head::text("Form", 0),
        Head::text("Method", 0),
        Head::number("Values", 0),
        Head::number("Raw", 1),
        Head::number("Stored", 0),
        Head::number("Pointers", 3),
        Head::number("Ratio", 0),
        Head::number("Chunks", 2),
    ]);
    for column in columns {
        for form in told_forms(column) {
            let nonzero = |n: u64| if n > 0 { n.to_string() } else { String::new() };
            grid.row(vec![
                column.column.clone(),
                form.form.into(),
                form.method.unwrap_or_default().into(),
                form.values.to_string(),
                optional_size(form.raw_bytes),
                optional_size(form.stored_bytes),
                if form.pointer_bytes > 0 { size(form.pointer_bytes) } else { String::new() },
                form.ratio.map(ratio).unwrap_or_default(),
                nonzero(form.chunks),
            ]);
        }
    }
    grid
}

/// How far the columns are from a policy.
fn policy_grid(columns: &[&ColumnReport]) -> Grid {
    let mut grid = Grid::new(&[
        Head::text("Column", 0),
        Head::text("Policy", 0),
        Head::text("Method", 0),
        Head::number("Values", 2),
        Head::number("Comply", 0),
        Head::number("Share", 0),
        Head::number("Stored", 2),
        Head::number("Comply stored", 1),
        Head::number("Share of stored", 0),
    ]);
    let share = |part: u64, whole: u64| {
        if whole > 0 { percent(part as f64 / whole as f64) } else { String::new() }
    };
    for column in columns {
        let Some(policy) = &column.policy else { continue };
        grid.row(vec![
            column.column.clone(),
            policy.policy.clone(),
            policy.method.clone(),
            policy.values.to_string(),
            policy.complying_values.to_string(),
            share(policy.complying_values, policy.values),
            size(policy.bytes),
            size(policy.complying_bytes),
            share(policy.complying_bytes, policy.bytes),
        ]);
    }
    grid
}

/// What each kind of custom pointer costs.
fn pointer_costs(relation: &RelationReport, item: &str, out: &mut impl Write) -> io::Result<()> {
    let mut told = Vec::new();
    for report in relation.columns.iter().flat_map(|column| &column.toasters) {
        if told.contains(&report.pointer_kind) {
            continue;
        }
        if told.is_empty() {
            writeln!(out)?;
        }
        told.push(report.pointer_kind);
        writeln!(out, "{item}pointer \"{}\":", report.pointer_kind)?;
        writeln!(out, "{item}  to read a key: {}", report.cost_to_read)?;
        writeln!(out, "{item}  to append: {}", report.cost_to_append)?;
    }
    Ok(())
}

/// Values of pluggable toasters.
fn toaster_grid(columns: &[&ColumnReport]) -> Grid {
    let mut grid = Grid::new(&[
        Head::text("Column", 0),
        Head::text("Toaster", 0),
        Head::text("Pointer", 0),
        Head::number("Values", 0),
        Head::number("Raw", 3),
        Head::number("In row", 1),
        Head::number("In chunks", 2),
        Head::number("Chunks", 4),
    ]);
    for column in columns {
        for report in &column.toasters {
            let toaster = report.toaster.clone();
            grid.row(vec![
                column.column.clone(),
                toaster.unwrap_or_else(|| format!("OID {}", report.toaster_oid)),
                report.pointer_kind.into(),
                report.values.to_string(),
                optional_size(report.raw_bytes),
                size(report.inline_bytes),
                optional_size(report.chunk_bytes),
                report.chunks.to_string(),
            ]);
        }
    }
    grid
}

/// One row for each relation, column and form; sizes are bytes.
fn csv(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record([
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
    ])?;
    let number = |n: Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
    for relation in &report.relations {
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
    }
    writer.flush()
}
