//! The report of `inspect` in every format.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::json;

use super::charts;
use super::document::{Document, Format, Output};
use super::findings;
use super::html;
use super::inspect_sample::{self, shown_forms};
use super::overview;
use super::table::{Grid, Head, number, printable, text};
use super::units::{and_more, counted, optional_number, optional_size, percent, ratio, size};
use crate::inspect::document as inspect;
use crate::inspect::overview::RelationLine;
use crate::inspect::result::{ColumnReport, HeapReport, RelationReport, SCHEMA, ToastReport};
use crate::server::about::ServerReport;
use crate::server::citus::ShardLine;
use toast_format::disk::layout::PageSize;

/// Problems shown in full in a table; the rest is counted.
const PROBLEMS_SHOWN: usize = 10;

/// Columns whose sizes a page draws; the rest is counted.
const DISTRIBUTIONS: usize = 4;

/// Columns that did not fit and are named; the rest is counted.
const NO_ROOM: usize = 4;

/// Writes the report, relation by relation.
pub struct Writer<W: Write> {
    output: Output<W>,
    largest: Largest,
    /// Kinds of pointers whose costs were printed.
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
        let document = json!(inspect::Document::new(server));
        let output = Output::new(out, format, width, SCHEMA, &CSV_HEAD, &document);
        Writer { output, largest: Largest::default(), costs_told: Vec::new() }
    }

    /// Writes one relation immediately.
    pub fn relation(&mut self, relation: &RelationReport) -> io::Result<()> {
        self.largest.add(relation);
        let costs_told = &mut self.costs_told;
        self.output.section(
            || inspect::Table::from(relation),
            |document| relation_section(relation, costs_told, document),
            || csv_rows(relation),
        )
    }

    /// States on a page that something could not be read.
    pub(crate) fn incomplete(&mut self) {
        self.output.page.incomplete = true;
    }

    /// Ends the document; must be called once.
    pub fn finish(self) -> io::Result<()> {
        let largest = self.largest;
        self.output.finish(None::<&()>, |document| largest.print(document), Vec::new)
    }
}

fn relation_section(
    relation: &RelationReport,
    costs_told: &mut Vec<&'static str>,
    document: &mut Document,
) {
    let kind = match (relation.kind, &relation.access_method) {
        (Some(kind), Some(method)) => format!(" ({kind}, access method {})", printable(method)),
        (Some(kind), None) => format!(" ({kind})"),
        (None, _) => String::new(),
    };
    document.heading(&format!("{}{kind}", printable(&relation.relation)), 2);
    if let Some(ShardLine { node, table, copies, .. }) = &relation.shard {
        let of = if *copies > 1 { format!("one of {copies} copies") } else { "shard".to_owned() };
        document.item(&printable(&format!("{of} of {table} on {node}")));
    }
    if let Some(found) = &relation.findings {
        findings::of_table(found, document);
    }
    if let Some(sample) = &relation.sample {
        document.item(&inspect_sample::sample_line(sample));
    }
    if relation.heap.bytes.is_some() || relation.heap.blocks_read > 0 {
        let line = heap_line(&relation.heap);
        document.item(&match relation.access_method {
            Some(_) => line.replacen("heap: ", "file: ", 1),
            None => line,
        });
    }
    document.item(&match relation.sample {
        Some(_) => inspect_sample::tuples_line(&relation.tuples),
        None => tuples_line(relation),
    });
    if let Some(toast) = &relation.toast {
        document.item(&toast_line(toast));
    }
    if !relation.options.is_empty() {
        document.item(&format!("options: {}", printable(&relation.options.join(", "))));
    }
    column_grids(relation, document);
    pointer_costs(relation, costs_told, document);
    if let Some((first, others)) = relation.not_available.split_first() {
        let mut text = format!("not available: {} ({})", first.figure, first.reason);
        for missing in others {
            text.push_str("; ");
            text.push_str(&missing.figure);
        }
        document.item(&text);
    }
    if relation.problem_count > 0 {
        document.gap();
        for problem in relation.problems.iter().take(PROBLEMS_SHOWN) {
            document.item(&format!("problem: {}", printable(&problem.text)));
        }
        let more = relation.problem_count.saturating_sub(PROBLEMS_SHOWN as u64);
        if more > 0 {
            document.item(&format!("and {more} more"));
        }
    }
}

/// What the columns hold, the largest first; on a page with charts.
fn column_grids(relation: &RelationReport, document: &mut Document) {
    let mut columns: Vec<&ColumnReport> = relation.columns.iter().collect();
    columns.sort_by_key(|column| std::cmp::Reverse(cost(column)));
    let (column_grid, form_grid) = match relation.sample {
        Some(_) => (inspect_sample::column_grid(&columns), inspect_sample::form_grid(&columns)),
        None => (column_grid(&columns), form_grid(&columns)),
    };
    let name = &relation.relation;
    if document.is_html() {
        let line = RelationLine::new(relation, None, None);
        let tile = overview::tile(name, line.bytes(), &line.columns);
        let title = format!("Columns and forms by size: {}", printable(name));
        overview::map(&title, &[tile], document);
    }
    for (what, grid) in [
        ("Columns", column_grid),
        ("Forms of stored values", form_grid),
        ("Values of pluggable toasters", toaster_grid(&columns)),
        ("Compliance with the policy", policy_grid(&columns)),
    ] {
        if !grid.is_empty() {
            document.gap();
            let left_out = document.grid(&format!("{what}: {name}"), &grid);
            no_room(&left_out, document);
        }
    }
    if document.is_html() {
        distributions(relation, &columns, document);
    }
}

/// The sizes of the largest columns that can be toasted, on a page.
fn distributions(relation: &RelationReport, columns: &[&ColumnReport], document: &mut Document) {
    let differ =
        |c: &&&ColumnReport| c.storage != "plain" && c.stored_size.min != c.stored_size.max;
    let shown: Vec<&&ColumnReport> = columns.iter().filter(differ).collect();
    let target = relation.options.iter().find_map(|option| {
        option.strip_prefix("toast_tuple_target=").and_then(|bytes| bytes.parse().ok())
    });
    let page = usize::try_from(relation.page_size).ok().and_then(PageSize::new);
    let threshold = page.map(|page| (page.toast_tuple_threshold() as u64, "the threshold of rows"));
    let marks: Vec<(u64, &str)> =
        threshold.into_iter().chain(target.map(|bytes| (bytes, "toast_tuple_target"))).collect();
    if !shown.is_empty() {
        document.heading("Sizes of values", 3);
    }
    for column in shown.iter().take(DISTRIBUTIONS) {
        distribution(column, &relation.relation, &marks, document);
    }
    if let Some(more) = shown.len().checked_sub(DISTRIBUTIONS).filter(|&more| more > 0) {
        document.line(&format!("Not drawn: {}.", counted(more as u64, "more column")), 0);
    }
}

/// A chart of a column's sizes, and their table.
fn distribution(
    column: &ColumnReport,
    relation: &str,
    marks: &[(u64, &str)],
    document: &mut Document,
) {
    let mut ranges: BTreeMap<u64, (u64, u64, u64)> = BTreeMap::new();
    for range in &column.raw_size.ranges {
        ranges.entry(range.from).or_insert((range.to, 0, 0)).1 = range.values;
    }
    for range in &column.stored_size.ranges {
        ranges.entry(range.from).or_insert((range.to, 0, 0)).2 = range.values;
    }
    let bars: Vec<charts::Bar> =
        ranges.iter().map(|(from, (_, raw, stored))| (*from, *raw, *stored)).collect();
    let title = printable(&format!("Sizes of {}: {relation}", column.column));
    document.block(&charts::distribution(&title, &bars, marks));
    document.block(&html::legend(&[("raw", "raw"), ("series", "as stored")]));
    let rows: Vec<(u64, (u64, u64, u64))> = ranges.into_iter().collect();
    let grid = Grid::from_rows(
        &rows,
        &[
            text("Bytes", 0, |(from, (to, ..))| format!("{from}–{to}")),
            number("Raw", 0, |(_, (_, raw, _))| raw.to_string()),
            number("As stored", 0, |(_, (_, _, stored))| stored.to_string()),
        ],
    );
    document.grid(&format!("Number of values by size: {title}"), &grid);
}

/// Names the first columns that did not fit into a grid.
fn no_room(left_out: &[&'static str], document: &mut Document) {
    if !left_out.is_empty() {
        let named = left_out.get(..NO_ROOM).unwrap_or(left_out).join(", ");
        let more = and_more(left_out.len(), NO_ROOM);
        document.line(&format!("(no room for: {named}{more})"), 1);
    }
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
            ", {unknown} of unknown visibility (no hint bits; counted as live)"
        ));
    }
    if let Some(updated) = tuples.hot_updated {
        line.push_str(&format!(", {updated} hot-updated"));
    }
    line
}

/// The index of a TOAST relation that never held a value.
const SMALL_INDEX: u64 = 8192;

fn toast_line(toast: &ToastReport) -> String {
    let mut line = format!("toast: {}", printable(&toast.relation));
    let is_known = toast.unplaced_values.is_none();
    if toast.bytes == Some(0) && is_known {
        line.push_str(", empty");
        if let Some(bytes) = toast.index_bytes.filter(|&bytes| bytes > SMALL_INDEX) {
            line.push_str(&format!(", index {}", size(bytes)));
        }
        return line;
    }
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

/// Values in the TOAST relation, and values that may be there.
fn values_there(toast: &ToastReport) -> String {
    let known = format!("{} in {}", counted(toast.values, "value"), counted(toast.chunks, "chunk"));
    match (toast.values, toast.unplaced_values) {
        (0, None) => "; no values".to_owned(),
        (_, None) => format!("; {known}"),
        (0, Some(open)) => format!("; up to {}, each here or in its row", counted(open, "value")),
        (_, Some(open)) => format!("; {known}, and up to {open} more, each here or in its row"),
    }
}

/// Prints what each kind of custom pointer costs, once per kind.
fn pointer_costs(relation: &RelationReport, told: &mut Vec<&'static str>, document: &mut Document) {
    let mut is_first = true;
    for report in relation.columns.iter().flat_map(|column| &column.toasters) {
        if told.contains(&report.pointer_kind) {
            continue;
        }
        if std::mem::take(&mut is_first) {
            document.gap();
        }
        told.push(report.pointer_kind);
        document.item(&format!("pointer \"{}\":", report.pointer_kind));
        document.item(&format!("  to read a key: {}", report.cost_to_read));
        document.item(&format!("  to append: {}", report.cost_to_append));
    }
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

/// One row for each column and form; sizes are bytes.
fn csv_rows(relation: &RelationReport) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for column in &relation.columns {
        for form in &column.forms {
            rows.push(vec![
                relation.relation.clone(),
                column.column.clone(),
                column.type_name.clone(),
                column.storage.to_owned(),
                column.compression.unwrap_or_default().to_owned(),
                form.form.to_owned(),
                form.method.unwrap_or_default().to_owned(),
                form.values.to_string(),
                optional_number(form.raw_bytes),
                optional_number(form.stored_bytes),
                form.pointer_bytes.to_string(),
                form.chunks.to_string(),
                form.ratio.map(|r| r.to_string()).unwrap_or_default(),
            ]);
        }
    }
    rows
}

/// What the columns hold.
fn column_grid(columns: &[&ColumnReport]) -> Grid {
    Grid::from_rows(
        columns,
        &[
            text("Column", 0, |c| c.column.clone()),
            text("Type", 2, |c| c.type_name.clone()),
            text("Storage", 3, |c| c.storage.into()),
            text("Compression", 12, |c| c.compression.unwrap_or_default().into()),
            number("Values", 0, |c| c.values.to_string()),
            number("Nulls", 4, |c| nonzero(c.nulls)),
            number("Missing", 5, |c| nonzero(c.missing)),
            number("Raw", 1, |c| optional_size(c.raw_bytes)),
            number("Stored", 0, |c| optional_size(c.stored_bytes)),
            number("Ratio", 0, |c| c.ratio.map(ratio).unwrap_or_default()),
            number("Chunks", 4, |c| nonzero(c.chunks)),
            number("Share", 0, |c| c.share.map(percent).unwrap_or_default()),
            number("Raw min", 11, |c| optional_number(c.raw_size.min)),
            number("Raw median", 7, |c| optional_number(c.raw_size.median)),
            number("Raw p95", 10, |c| optional_number(c.raw_size.p95)),
            number("Raw p99", 11, |c| optional_number(c.raw_size.p99)),
            number("Raw max", 9, |c| optional_number(c.raw_size.max)),
            number("Stored min", 10, |c| optional_number(c.stored_size.min)),
            number("Stored median", 6, |c| optional_number(c.stored_size.median)),
            number("Stored p95", 7, |c| optional_number(c.stored_size.p95)),
            number("Stored p99", 9, |c| optional_number(c.stored_size.p99)),
            number("Stored max", 8, |c| optional_number(c.stored_size.max)),
        ],
    )
}

/// Forms of the columns where there is more to say than "plain".
fn form_grid(columns: &[&ColumnReport]) -> Grid {
    let forms = columns.iter().flat_map(|c| shown_forms(c).into_iter().map(move |f| (*c, f)));
    Grid::from_rows(
        &forms.collect::<Vec<_>>(),
        &[
            text("Column", 0, |(c, _)| c.column.clone()),
            text("Form", 0, |(_, f)| f.form.into()),
            text("Method", 0, |(_, f)| f.method.unwrap_or_default().into()),
            number("Values", 0, |(_, f)| f.values.to_string()),
            number("Raw", 1, |(_, f)| optional_size(f.raw_bytes)),
            number("Stored", 0, |(_, f)| optional_size(f.stored_bytes)),
            number("Pointers", 3, |(_, f)| {
                if f.pointer_bytes > 0 { size(f.pointer_bytes) } else { String::new() }
            }),
            number("Ratio", 0, |(_, f)| f.ratio.map(ratio).unwrap_or_default()),
            number("Chunks", 2, |(_, f)| nonzero(f.chunks)),
        ],
    )
}

/// How far the columns are from a policy.
fn policy_grid(columns: &[&ColumnReport]) -> Grid {
    fn share(part: u64, whole: u64) -> String {
        if whole > 0 { percent(part as f64 / whole as f64) } else { String::new() }
    }
    let policies = columns.iter().filter_map(|c| Some((*c, c.policy.as_ref()?)));
    Grid::from_rows(
        &policies.collect::<Vec<_>>(),
        &[
            text("Column", 0, |(c, _)| c.column.clone()),
            text("Policy", 0, |(_, p)| p.policy.clone()),
            text("Method", 0, |(_, p)| p.method.clone()),
            number("Values", 2, |(_, p)| p.values.to_string()),
            number("Comply", 0, |(_, p)| p.complying_values.to_string()),
            number("Share", 0, |(_, p)| share(p.complying_values, p.values)),
            number("Stored", 2, |(_, p)| size(p.bytes)),
            number("Comply stored", 1, |(_, p)| size(p.complying_bytes)),
            number("Share of stored", 0, |(_, p)| share(p.complying_bytes, p.bytes)),
        ],
    )
}

fn nonzero(n: u64) -> String {
    if n > 0 { n.to_string() } else { String::new() }
}

/// Values of pluggable toasters.
fn toaster_grid(columns: &[&ColumnReport]) -> Grid {
    let toasters = columns.iter().flat_map(|c| c.toasters.iter().map(move |t| (*c, t)));
    Grid::from_rows(
        &toasters.collect::<Vec<_>>(),
        &[
            text("Column", 0, |(c, _)| c.column.clone()),
            text("Toaster", 0, |(_, t)| {
                t.toaster.clone().unwrap_or_else(|| format!("OID {}", t.toaster_oid))
            }),
            text("Pointer", 0, |(_, t)| t.pointer_kind.into()),
            number("Values", 0, |(_, t)| t.values.to_string()),
            number("Raw", 3, |(_, t)| optional_size(t.raw_bytes)),
            number("In row", 1, |(_, t)| size(t.inline_bytes)),
            number("In chunks", 2, |(_, t)| optional_size(t.chunk_bytes)),
            number("Chunks", 4, |(_, t)| t.chunks.to_string()),
        ],
    )
}

/// Columns that are named.
const NAMED: usize = 15;

/// Collects the largest columns of all relations.
#[derive(Debug, Default)]
struct Largest {
    columns: Vec<(u64, Vec<String>)>,
    /// Bytes of all columns.
    held: u64,
    /// Bytes of heaps, TOAST relations and their indexes.
    files: u64,
    relations: u64,
}

impl Largest {
    fn add(&mut self, relation: &RelationReport) {
        if relation.access_method.is_some() {
            return;
        }
        self.relations += 1;
        let toast = relation.toast.as_ref();
        for bytes in [
            relation.heap.bytes,
            toast.and_then(|toast| toast.bytes),
            toast.and_then(|toast| toast.index_bytes),
        ] {
            self.files = self.files.saturating_add(bytes.unwrap_or(0));
        }
        for column in &relation.columns {
            let bytes = bytes_of(relation, column);
            let cells = vec![
                // narrow terminals have no room for cells without information
                relation.relation.trim_start_matches("public.").to_owned(),
                column.column.clone(),
                column.type_name.clone(),
                column.storage.into(),
                size(bytes),
            ];
            self.held = self.held.saturating_add(bytes);
            self.columns.push((bytes, cells));
        }
        self.columns.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        self.columns.truncate(NAMED);
    }

    /// Adds the text for people, if there is anything to compare.
    fn print(&self, document: &mut Document) {
        if self.relations <= 1 {
            return;
        }
        document.gap();
        document.line(&self.title(), 0);
        document.gap();
        document.grid("Largest columns", &self.grid());
        if let Some(rest) = self.rest() {
            document.line(&rest, 0);
        }
    }

    /// A line that says what the grid shows.
    fn title(&self) -> String {
        let tables = counted(self.relations, "table");
        format!("largest columns of {tables}, {} without other indexes:", size(self.files))
    }

    /// A line about the bytes that belong to no column.
    fn rest(&self) -> Option<String> {
        let rest = self.files.saturating_sub(self.held);
        (rest > 0)
            .then(|| format!("The rest, {}, is headers, free space and dead rows.", size(rest)))
    }

    /// A row for each column.
    fn grid(&self) -> Grid {
        let mut grid = Grid::new(&[
            Head::text("Table", 0),
            Head::text("Column", 0),
            Head::text("Type", 2),
            Head::text("Storage", 1),
            Head::number("Disk", 0),
            Head::number("Share", 0),
        ]);
        for (bytes, cells) in &self.columns {
            let share = if self.files > 0 { *bytes as f64 / self.files as f64 } else { 0.0 };
            grid.row([&cells[..], &[percent(share.min(1.0))]].concat());
        }
        grid
    }
}

/// What a column takes of its relation's files, as far as known: its share where that was computed, for it has
/// headers and free space in it.
fn bytes_of(relation: &RelationReport, column: &ColumnReport) -> u64 {
    let toast = relation.toast.as_ref();
    let files = relation.heap.bytes.map(|heap| {
        let toast = toast.map_or(0, |t| t.bytes.unwrap_or(0) + t.index_bytes.unwrap_or(0));
        heap.saturating_add(toast)
    });
    match (files, column.share) {
        (Some(files), Some(share)) => (files as f64 * share) as u64,
        _ => column.stored_bytes.unwrap_or(0).saturating_add(column.pointer_bytes),
    }
}
