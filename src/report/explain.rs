//! The report of `inspect --explain`: words and figures for each column, rows by width as a small histogram.

use serde::Serialize;
use serde_json::{Value, json};

use super::document::{Document, Printed};
use super::table::{Style, printable};
use super::units::{counted, nanoseconds, percent, plain, size_within, utc};
use crate::advise::explain::result::{
    ColumnExplanation, Explanation, ValueRead, WidthRange, Written,
};
use crate::inspect::document as inspect;
use crate::inspect::result::SCHEMA;
use crate::server::about::ServerReport;
use toast_format::heap::problem::Problems;
use toast_format::model::interval::Interval;

/// The longest bar of the histogram.
const BAR: usize = 30;
/// Columns that a terminal explains without --details, those that are read slowest.
const COLUMNS_SHOWN: usize = 4;

impl Printed for Explanation {
    const SCHEMA: &'static str = SCHEMA;

    fn document(server: Option<ServerReport>) -> Value {
        json!(inspect::Document::new(server, utc()))
    }

    fn entry(&self) -> impl Serialize {
        inspect::Table::from(self)
    }

    fn print(&self, document: &mut Document) {
        table_section(self, document);
    }

    fn problems(&self) -> &Problems {
        &self.problems
    }

    fn command(&mut self) -> Option<&mut String> {
        Some(&mut self.command)
    }
}

fn table_section(explanation: &Explanation, document: &mut Document) {
    let sample = &explanation.sample;
    let blocks = counted(explanation.heap_blocks, "block");
    let looked = if sample.complete {
        String::new()
    } else {
        format!(" (sample of {} blocks)", sample.blocks)
    };
    let levels = match explanation.index_levels {
        Some(levels) => format!("; TOAST index of {}", counted(levels, "level")),
        None => "; no TOAST relation".to_owned(),
    };
    let head = format!(
        "{}: {} in {blocks}{looked}{levels}",
        printable(&explanation.table.relation),
        several(&explanation.rows, "row")
    );
    document.heading(&head, 2);
    if sample.rows > 0
        && let Some(slowest) = slowest(&explanation.columns)
    {
        document.line(&slowest, 0);
        if let Some(all) = whole_rows(explanation) {
            document.line(&all, 0);
        }
        document.line("What would be faster or cheaper, with its price:", 0);
        document.command(&explanation.command);
    }
    let mut columns: Vec<&ColumnExplanation> = explanation.columns.iter().collect();
    let more = match document.style {
        Style::Terminal(Some(_)) if !document.details => {
            columns.len().saturating_sub(COLUMNS_SHOWN)
        }
        _ => 0,
    };
    if more > 0 {
        columns.sort_by(|a, b| b.read_cpu_ns.estimate.total_cmp(&a.read_cpu_ns.estimate));
        columns.truncate(COLUMNS_SHOWN);
    }
    for column in columns {
        document.gap();
        paragraphs(explanation, column, document);
    }
    if more > 0 {
        document.gap();
        let more = counted(more as u64, "column");
        document.line(&format!("({more} read faster, not shown: -c NAME, --details)"), 0);
    }
    if sample.rows > 0 {
        if explanation.columns.is_empty() {
            document.gap();
            document.line("No column that can be toasted has a value.", 0);
        }
        document.gap();
        let other = &explanation.update_other;
        let line = format!(
            "An UPDATE of other columns writes {} in the heap, {} of WAL without that of indexes.",
            bytes(&other.heap_bytes),
            bytes(&other.wal_bytes)
        );
        document.line(&line, 0);
        widths(explanation, document);
    }
    document.problems(&explanation.problems, "  ");
}

/// Which column makes reads slow; `None` if there is no column that can be toasted.
fn slowest(columns: &[ColumnExplanation]) -> Option<String> {
    let slowest =
        columns.iter().max_by(|a, b| a.read_cpu_ns.estimate.total_cmp(&b.read_cpu_ns.estimate))?;
    if columns.iter().all(|column| {
        column.external_values.estimate <= 0.0 && column.compressed_values.estimate <= 0.0
    }) {
        return Some("All values are in their rows, uncompressed.".to_owned());
    }
    let outside = slowest.external_values.estimate / slowest.values.estimate.max(1.0);
    let buffers =
        slowest.read.as_ref().map_or(0.0, |read| outside.min(1.0) * read.buffers.estimate);
    let visited =
        if buffers >= 0.05 { format!(" and {} buffers", plain(buffers)) } else { String::new() };
    let all = slowest.values.estimate;
    let mut because = Vec::new();
    if let Some(read) = &slowest.read
        && outside > 0.0
    {
        let outside = some_of(slowest.external_values.estimate, all);
        because
            .push(format!("{outside} of its values are in chunks, {} each", number(&read.chunks)));
    }
    if slowest.compressed_values.estimate > 0.0 {
        let compressed = some_of(slowest.compressed_values.estimate, all);
        because.push(format!("{compressed} must be decompressed"));
    }
    let since = if because.is_empty() { "" } else { ", since " };
    Some(format!(
        "Slowest to read: column {}, with {} of CPU time{visited} for an average value{since}{}.",
        printable(&slowest.column),
        nanoseconds(slowest.read_cpu_ns.estimate),
        because.join(" and ")
    ))
}

/// What reading all columns of a row costs; `None` where only one column has its price.
fn whole_rows(explanation: &Explanation) -> Option<String> {
    let rows = explanation.rows.estimate.max(1.0);
    let mut toasted = 0;
    let mut nanos = 0.0;
    let mut buffers = 0.0;
    for column in &explanation.columns {
        if column.external_values.estimate + column.compressed_values.estimate > 0.0 {
            toasted += 1;
        }
        nanos += column.values.estimate / rows * column.read_cpu_ns.estimate;
        if let Some(read) = &column.read {
            buffers += column.external_values.estimate / rows * read.buffers.estimate;
        }
    }
    if toasted < 2 {
        return None;
    }
    Some(format!(
        "SELECT * of an average row: {} of CPU time and {} buffers for the values of all columns.",
        nanoseconds(nanos),
        plain(buffers)
    ))
}

/// How many rows are toasted, in detail with the range of each width.
fn widths(explanation: &Explanation, document: &mut Document) {
    let Explanation { threshold, target, widths, .. } = explanation;
    let toasted = widths.iter().filter(|range| range.toasted);
    let share: f64 = toasted.map(|range| range.share.estimate).sum();
    let rows = if share >= 1.0 {
        "All rows".to_owned()
    } else {
        format!("{} of the rows", percent(share))
    };
    let line = format!(
        "{rows} exceed {threshold} bytes before compression: PostgreSQL toasts them to at most {target} bytes if \
         possible."
    );
    document.line(&line, 0);
    if explanation.columns.iter().any(|column| column.custom_values.estimate > 0.0) {
        document.line(CUSTOM, 0);
    }
    if !document.details {
        return;
    }
    document.gap();
    document.line("Rows by width before compression, in bytes:", 0);
    document.gap();
    document.figure("Rows by width", &histogram(widths));
    document.gap();
    document.line(COSTS, 0);
}

const COSTS: &str = "Buffers are pages visited. CPU time is what TOAST and compression add, with a warm cache. WAL is \
                     counted for a new row version on another page, without full-page images and the table's own \
                     indexes.";
const CUSTOM: &str = "Values of pluggable toasters are counted as if they were read and written whole, chunk by chunk; \
                      their width before compression is about their size now.";

/// The paragraphs about one column.
fn paragraphs(explanation: &Explanation, column: &ColumnExplanation, document: &mut Document) {
    let ColumnExplanation { column: name, type_name, storage, .. } = column;
    let head = format!("column {name} ({type_name}, {storage}): {}", values(column));
    document.heading(&printable(&head), 3);
    let scan = several(&column.scan_buffers, "buffer");
    let scan = format!("{scan} with the column, {} without", explanation.heap_blocks);
    let mut costs =
        vec![("read", read(column)), ("scan", scan), ("update", written(&column.update))];
    let is_stock = column.custom_values.estimate <= 0.0;
    let toasted = column.external_values.estimate + column.compressed_values.estimate;
    if type_name == "jsonb" && is_stock && toasted > 0.0 {
        let key = "as much for one key as for the whole document, except where it is in the row uncompressed";
        costs.insert(1, ("key", key.to_owned()));
    }
    if let (Some(append), Some((_, update))) = (&column.append, costs.last_mut()) {
        update.push_str(", if the whole value is replaced");
        let append = format!("{}, and the appended bytes themselves", written(append));
        costs.push(("append", append));
    }
    for (name, text) in costs {
        match document.style {
            Style::Html => document.item(&format!("{name}: {text}")),
            Style::Markdown => document.line(&format!("* {name}: {text}"), 10),
            Style::Terminal(_) => document.line(&format!("  {name:<8}{text}"), 10),
        }
    }
}

/// What an UPDATE writes.
fn written(written: &Written) -> String {
    let toast = match written.toast_bytes.estimate {
        0.0 => String::new(),
        _ => format!(", {} in TOAST", bytes(&written.toast_bytes)),
    };
    let heap = bytes(&written.heap_bytes);
    let wal = bytes(&written.wal_bytes);
    format!("{heap} in the heap{toast}, {wal} of WAL without that of indexes")
}

fn values(column: &ColumnExplanation) -> String {
    let all = column.values.estimate;
    format!(
        "{}, {} out of line, {} compressed",
        several(&column.values, "value"),
        some_of(column.external_values.estimate, all),
        some_of(column.compressed_values.estimate, all)
    )
}

/// How many of `all` values: `none`, `12` or `all`.
fn some_of(values: f64, all: f64) -> String {
    if values <= 0.0 {
        "none".to_owned()
    } else if values >= all {
        "all".to_owned()
    } else {
        format!("{values:.0}")
    }
}

/// What it costs to read one value, once its row has been read.
fn read(column: &ColumnExplanation) -> String {
    let mut text = match &column.read {
        None => "only the row".to_owned(),
        Some(ValueRead { buffers, index_buffers, toast_buffers, chunks, bytes: stored }) => {
            // the parts that are shown have the sum that is shown
            let [all, index] =
                [buffers, index_buffers].map(|figure| (figure.estimate * 10.0).round() / 10.0);
            let toast_buffers = Interval { estimate: all - index, ..*toast_buffers };
            format!(
                "{} ({} index, {} TOAST) for an out-of-line value, in addition to its row: {}, {}",
                several(buffers, "buffer"),
                number(index_buffers),
                number(&toast_buffers),
                several(chunks, "chunk"),
                bytes(stored)
            )
        }
    };
    if let Some(raw) = &column.decompressed_bytes {
        text.push_str(&format!("; compressed ones become {} on average", bytes(raw)));
    }
    text.push_str(&format!("; {} of CPU time", nanoseconds(column.read_cpu_ns.estimate)));
    text
}

/// A number with half the width of its interval, if that can be seen: `12 ±3`.
fn number(figure: &Interval) -> String {
    let half = (figure.high - figure.low) / 2.0;
    let shown = if half >= 10.0 { format!("{half:.0}") } else { plain(half) };
    match shown.as_str() {
        "0" | "0.0" => plain(figure.estimate),
        _ if half >= 10.0 => format!("{:.0} ±{shown}", figure.estimate),
        _ => format!("{} ±{shown}", plain(figure.estimate)),
    }
}

/// A number with its interval and its noun.
fn several(figure: &Interval, noun: &str) -> String {
    let ending = if plain(figure.estimate) == "1" { "" } else { "s" };
    format!("{} {noun}{ending}", number(figure))
}

fn bytes(figure: &Interval) -> String {
    let half = (figure.high - figure.low) / 2.0;
    size_within(figure.estimate.max(0.0).round() as u64, half.max(0.0).round() as u64)
}

fn histogram(widths: &[WidthRange]) -> String {
    let most = widths.iter().map(|range| range.share.estimate).fold(0.0, f64::max);
    let bounds = widths.iter().map(|range| match range.to {
        Some(to) => format!("{} - {to}", range.from),
        None => format!("{} -", range.from),
    });
    let bounds: Vec<String> = bounds.collect();
    let room = bounds.iter().map(String::len).max().unwrap_or_default();
    let mut text = String::new();
    let mut toasted = false;
    for (range, bounds) in widths.iter().zip(&bounds) {
        if range.toasted && !toasted {
            text.push_str(&format!("  {}\n", "-".repeat(room + 9)));
            toasted = true;
        }
        let share = range.share.estimate;
        let length = if most > 0.0 { (share / most * BAR as f64).ceil() as usize } else { 0 };
        let bar = "#".repeat(length.min(BAR));
        let line = format!("  {bounds:<room$}  {:>5.1} %  {bar}", share * 100.0);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
