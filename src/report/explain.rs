//! The report of `inspect --explain`: words and figures for each column, rows by width as a small histogram.

use super::document::{Document, Printed};
use super::table::printable;
use super::units::{counted, nanoseconds, plain, size};
use crate::advise::explain::result::{
    ColumnExplanation, Explanation, SCHEMA, ValueRead, WidthRange,
};
use crate::heap::problem::Problems;
use crate::model::interval::Interval;

/// The longest bar of the histogram.
const BAR: usize = 30;

impl Printed for Explanation {
    const SCHEMA: &'static str = SCHEMA;

    fn print(&self, document: &mut Document) {
        one(self, document);
    }

    fn problems(&self) -> &Problems {
        &self.problems
    }
}

fn one(explanation: &Explanation, document: &mut Document) {
    let sample = &explanation.sample;
    let looked = if sample.complete {
        counted(sample.total_blocks, "block")
    } else {
        format!("sample of {} of {}", sample.blocks, counted(sample.total_blocks, "block"))
    };
    let levels = match explanation.index_levels {
        Some(levels) => format!("; TOAST index of {}", counted(levels, "level")),
        None => "; no TOAST relation".to_owned(),
    };
    let title = if document.is_markdown() { "## " } else { "" };
    let head = format!(
        "{title}{}: {}, {looked}{levels}",
        printable(&explanation.table.relation),
        several(&explanation.rows, "row")
    );
    document.line(&head, 2);
    for column in &explanation.columns {
        document.gap();
        paragraphs(explanation, column, document);
    }
    if sample.rows > 0 {
        if explanation.columns.is_empty() {
            document.lines("\nNo column that can be toasted has a value.\n");
        }
        document.gap();
        let other = &explanation.update_other;
        let line = format!(
            "An UPDATE that changes no value out of line writes a row of {}, {} of WAL.",
            bytes(&other.heap_bytes),
            bytes(&other.wal_bytes)
        );
        document.line(&line, 0);
        let line = format!(
            "Rows by width before toasting; above {} bytes they are toasted, down to {} if possible:",
            explanation.threshold, explanation.target
        );
        document.line(&line, 0);
        document.gap();
        document.figure(&histogram(&explanation.widths));
        document.gap();
        document.line(COSTS, 0);
        if explanation.columns.iter().any(|column| column.custom_values.estimate > 0.0) {
            document.line(CUSTOM, 0);
        }
    }
    document.problems(&explanation.problems, "  ");
}

const COSTS: &str = "Buffers are pages visited; CPU time is that which storage adds, with a warm cache. WAL is counted \
                     without full-page images and the table's own indexes, for a new row version on another page.";
const CUSTOM: &str = "Values of pluggable toasters are counted as if they were read and written whole, chunk after \
                      chunk; their width before toasting is about what they take now.";

/// What is said of one column.
fn paragraphs(explanation: &Explanation, column: &ColumnExplanation, document: &mut Document) {
    let head = format!("column {} ({}, {})", column.column, column.type_name, column.storage);
    document.heading(&printable(&head), 3);
    let mut say = |name: &str, text: String| {
        let name = match document.is_markdown() {
            true => format!("* {name}: "),
            false => format!("  {name:<8}"),
        };
        document.line(&format!("{name}{text}"), 10);
    };
    say("values", values(column));
    say("read", read(column));
    let scan = several(&column.scan_buffers, "buffer");
    say("scan", format!("{scan} with the column, {} without", explanation.heap_blocks));
    let update = &column.update;
    let toast = match update.toast_bytes.estimate {
        0.0 => String::new(),
        _ => format!(" and {} of the TOAST relation", bytes(&update.toast_bytes)),
    };
    let (heap, wal) = (bytes(&update.heap_bytes), bytes(&update.wal_bytes));
    say("update", format!("{heap} of the heap{toast}, {wal} of WAL"));
}

fn values(column: &ColumnExplanation) -> String {
    let total = column.values.estimate;
    let part = |figure: &Interval| match figure.estimate {
        part if part <= 0.0 => "none".to_owned(),
        part if part >= total => "all".to_owned(),
        part => format!("{part:.0}"),
    };
    format!(
        "{}; {} out of line, {} compressed",
        several(&column.values, "value"),
        part(&column.external_values),
        part(&column.compressed_values)
    )
}

fn read(column: &ColumnExplanation) -> String {
    let mut text = match &column.read {
        None => "nothing but the row".to_owned(),
        Some(ValueRead { buffers, index_buffers, toast_buffers, chunks, bytes: stored }) => {
            format!(
                "{} for a value out of line, besides its row's: {} of the index, {} of the TOAST relation; {} \
             with {}",
                several(buffers, "buffer"),
                number(index_buffers),
                number(toast_buffers),
                several(chunks, "chunk"),
                bytes(stored)
            )
        }
    };
    if let Some(raw) = &column.decompressed_bytes {
        text.push_str(&format!("; decompression to {}", bytes(raw)));
    }
    text.push_str(&format!("; {} of CPU time a value", nanoseconds(column.read_cpu_ns.estimate)));
    text
}

/// Half the width of the interval, if there is one: ` ±12`.
fn within(figure: &Interval, show: impl Fn(f64) -> String) -> String {
    let half = (figure.high - figure.low) / 2.0;
    if half > figure.estimate.abs() * 5e-4 { format!(" ±{}", show(half)) } else { String::new() }
}

fn number(figure: &Interval) -> String {
    format!("{}{}", plain(figure.estimate), within(figure, plain))
}

/// A number with its interval and its noun.
fn several(figure: &Interval, noun: &str) -> String {
    let ending = if plain(figure.estimate) == "1" { "" } else { "s" };
    format!("{} {noun}{ending}", number(figure))
}

fn bytes(figure: &Interval) -> String {
    let show = |value: f64| size(value.max(0.0).round() as u64);
    format!("{}{}", show(figure.estimate), within(figure, show))
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
