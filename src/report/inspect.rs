//! The report of `inspect` in every format.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::json;

use super::charts;
use super::document::{Document, Format, Output};
use super::findings;
use super::html;
use super::intervals::{
    about_ratio, about_share, about_size, bytes, cell, count, guess, nonzero, quantile, range,
    ratio_range, size_range,
};
use super::overview;
use super::table::{Grid, Style, name, number, printable, text};
use super::units::{counted, optional_number, optional_size, percent, size, utc};
use crate::inspect::document as inspect;
use crate::inspect::overview::rank::Ranking;
use crate::inspect::overview::{Extent, RelationLine};
use crate::inspect::result::{
    ColumnFigures, FormFigures, HeapFigures, RelationRead, RelationReport, SCHEMA, SampleReport,
    ToastFigures, TupleFigures,
};
use crate::server::about::ServerReport;
use crate::server::citus::ShardLine;
use toast_format::codec::Method;
use toast_format::disk::desc::Storage;
use toast_format::disk::layout::PageSize;
use toast_format::model::interval::Amount;
use toast_format::model::stored::Form;

/// Problems shown in full in a table; the rest is counted.
const PROBLEMS_SHOWN: usize = 10;

/// Columns that a terminal shows of a table; the rest is counted.
const COLUMNS_SHOWN: usize = 20;

/// Columns whose sizes a page draws; the rest is counted.
const DISTRIBUTIONS: usize = 4;

/// Writes the report, relation by relation.
pub struct Writer<W: Write> {
    output: Output<W>,
    /// Adds up what the tables take, for the end of a report on several.
    ranking: Ranking,
    /// Kinds of pointers whose costs were printed.
    costs_told: Vec<String>,
}

impl<W: Write> Writer<W> {
    /// Nothing is written before the first relation.
    pub fn new(
        out: W,
        format: Format,
        width: Option<usize>,
        server: Option<ServerReport>,
    ) -> Writer<W> {
        let document = json!(inspect::Document::new(server, utc()));
        let output = Output::new(out, format, width, SCHEMA, &CSV_HEAD, &document);
        Writer { output, ranking: Ranking::new(Extent::default()), costs_told: Vec::new() }
    }

    /// Writes one relation immediately.
    pub fn relation(&mut self, relation: &RelationReport) -> io::Result<()> {
        if relation.read.access_method.is_none() {
            self.ranking.add(&RelationLine::new(relation, None));
        }
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
        let Writer { output, ranking, .. } = self;
        output.finish(
            None::<&()>,
            |document| overview::largest_columns(ranking, document),
            Vec::new,
        )
    }
}

fn relation_section(
    relation: &RelationReport,
    costs_told: &mut Vec<String>,
    document: &mut Document,
) {
    let RelationRead { kind, access_method, shard, sample, not_available, .. } = &relation.read;
    let kind = match (kind, access_method) {
        (Some(kind), Some(method)) => {
            format!(" ({}, access method {})", kind.name(), printable(method))
        }
        (Some(kind), None) => format!(" ({})", kind.name()),
        (None, _) => String::new(),
    };
    document.heading(&format!("{}{kind}", printable(&relation.read.name.relation)), 2);
    if let Some(ShardLine { node, table, copies, .. }) = shard {
        let of = if *copies > 1 { format!("one of {copies} copies") } else { "shard".to_owned() };
        document.item(&printable(&format!("{of} of {table} on {node}")));
    }
    if let Some(found) = &relation.findings {
        findings::of_table(found, relation.read.problem_count == 0, document);
    }
    if let Some(sample) = sample {
        document.item(&sample_line(sample));
    }
    if relation.heap.bytes.is_some() || relation.heap.blocks_read > 0 {
        let line = heap_line(&relation.heap);
        document.item(&match access_method {
            Some(_) => line.replacen("heap: ", "file: ", 1),
            None => line,
        });
    }
    document.item(&tuples_line(&relation.tuples, sample.is_some()));
    if let Some(toast) = &relation.toast {
        document.item(&toast_line(toast, relation.dropped_columns.is_some()));
    }
    if let Some(dropped @ [_, ..]) = relation.dropped_columns.as_deref() {
        document.item(&dropped_line(dropped));
    }
    if !relation.options.is_empty() {
        document.item(&format!("options: {}", printable(&relation.options.join(", "))));
    }
    column_grids(relation, document);
    pointer_costs(relation, costs_told, document);
    if let Some((first, others)) = not_available.split_first() {
        let mut text = format!("not available: {} ({})", first.figure, first.reason);
        for missing in others {
            text.push_str("; ");
            text.push_str(&missing.figure);
        }
        document.item(&text);
    }
    if relation.read.problem_count > 0 {
        document.gap();
        for problem in relation.read.problems.iter().take(PROBLEMS_SHOWN) {
            document.item(&format!("problem: {}", printable(&problem.text)));
        }
        let more = relation.read.problem_count.saturating_sub(PROBLEMS_SHOWN as u64);
        if more > 0 {
            document.item(&format!("and {more} more: toastctl check"));
        }
    }
}

/// How much of the relation was read.
fn sample_line(sample: &SampleReport) -> String {
    let SampleReport { blocks, blocks_read, seed } = sample;
    let ranges = if blocks_read < blocks { "; ranges are 95 % confidence intervals" } else { "" };
    format!("sample: {blocks_read} of {blocks} blocks, seed {seed}{ranges}")
}

/// What the columns hold, the largest first; on a page with charts.
fn column_grids(relation: &RelationReport, document: &mut Document) {
    let mut columns: Vec<&ColumnFigures> = relation.columns.iter().collect();
    columns.sort_by_key(|column| std::cmp::Reverse(known_bytes(column)));
    let name = &relation.read.name.relation;
    if document.is_html() {
        let line = RelationLine::new(relation, None);
        let tile = overview::tile(name, line.figures.bytes(), &line.columns);
        let title = format!("Columns and forms by size: {}", printable(name));
        overview::map(&title, &[tile], document);
    }
    let more = match document.style {
        Style::Terminal(Some(_)) => columns.len().saturating_sub(COLUMNS_SHOWN),
        _ => 0,
    };
    columns.truncate(columns.len() - more);
    for (what, grid) in [
        ("Columns", column_grid(&columns)),
        ("Forms of stored values", form_grid(&columns)),
        ("Values of pluggable toasters", toaster_grid(&columns)),
        ("Compliance with the policy", policy_grid(&columns)),
    ] {
        if !grid.is_empty() {
            document.gap();
            let left_out = document.grid(&format!("{what}: {name}"), &grid);
            document.hidden(None, &left_out);
        }
    }
    if more > 0 {
        let more = counted(more as u64, "smaller column");
        document.line(&format!("({more} not shown: -c NAME, --format csv)"), 0);
    }
    if document.is_html() {
        distributions(relation, &columns, document);
    }
}

/// The sizes of the largest columns that can be toasted, on a page.
fn distributions(relation: &RelationReport, columns: &[&ColumnFigures], document: &mut Document) {
    let mut shown = columns.to_vec();
    shown.retain(|column| {
        column.storage != Storage::Plain && column.stored_size.min != column.stored_size.max
    });
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
        distribution(column, &relation.read.name.relation, &marks, document);
    }
    if let Some(more) = shown.len().checked_sub(DISTRIBUTIONS).filter(|&more| more > 0) {
        document.line(&format!("Not drawn: {} (-c NAME).", counted(more as u64, "more column")), 0);
    }
}

/// A chart of a column's sizes, and their table.
fn distribution(
    column: &ColumnFigures,
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

/// Bytes that a column takes, as far as known.
fn known_bytes(column: &ColumnFigures) -> u64 {
    let stored = column.forms.iter().filter_map(|form| form.all.stored_bytes);
    let stored: u64 = stored.map(|bytes| bytes.estimate).sum();
    stored.saturating_add(column.all.pointer_bytes.estimate)
}

fn heap_line(heap: &HeapFigures) -> String {
    let mut line = match (heap.bytes, heap.blocks) {
        (Some(bytes), Some(blocks)) => {
            format!("heap: {} in {}", size(bytes), counted(blocks, "block"))
        }
        _ => format!("heap: {} read", counted(heap.blocks_read, "block")),
    };
    if let Some(free) = &heap.free_bytes {
        line.push_str(&format!(", {} free", bytes(free)));
    }
    if let Some(blocks) = heap.new_blocks.filter(|&blocks| blocks > 0) {
        line.push_str(&format!(", {blocks} never written"));
    }
    if let Some(bytes) = heap.index_bytes {
        line.push_str(&format!("; indexes: {}", size(bytes)));
    }
    line
}

fn tuples_line(tuples: &TupleFigures, is_sample: bool) -> String {
    let TupleFigures { live, visible_rows_only, dead, unknown, hot_updated, .. } = tuples;
    let what = if *visible_rows_only {
        "visible (row security may hide others from this user)"
    } else {
        "live"
    };
    let mut line = format!("rows: {} {what}", count(live));
    if let Some(dead) = dead {
        line.push_str(&format!(", {} dead", count(dead)));
    }
    if let Some(unknown) = unknown.and_then(nonzero) {
        let how = if is_sample { "" } else { " (no hint bits; counted as live)" };
        line.push_str(&format!(", {} of unknown visibility{how}", count(&unknown)));
    }
    // it was counted in the blocks read
    if let (Some(updated @ 1..), false) = (*hot_updated, is_sample) {
        line.push_str(&format!(", {updated} with the flag HEAP_HOT_UPDATED"));
    }
    line
}

/// What rows have of dropped columns.
fn dropped_line(columns: &[ColumnFigures]) -> String {
    let mut values = Amount::exact(0);
    let mut bytes = Amount::exact(0);
    for column in columns {
        values = values.plus(column.all.values);
        bytes = bytes.plus(column.own_bytes);
    }
    format!("dropped columns: {} values, {}", count(&values), about_size(&bytes))
}

/// The index of a TOAST relation that never held a value.
const SMALL_INDEX: u64 = 8192;

/// `shows_dropped`: whether values of dropped columns are among those counted.
fn toast_line(toast: &ToastFigures, shows_dropped: bool) -> String {
    let mut line = format!("toast: {}", printable(&toast.relation));
    let is_known = toast.unplaced_values.is_none() && shows_dropped;
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
    if let Some(free) = toast.free_bytes {
        line.push_str(&format!(", {} free", size(free)));
    }
    match (toast.rows, toast.rows_counted) {
        // each row is a chunk, and those are counted below
        (Some(rows), true) if toast.chunks.is_exact() && toast.chunks.estimate == rows => {}
        (Some(rows), true) => line.push_str(&format!(", {}", counted(rows, "row"))),
        (Some(rows), false) => line.push_str(&format!(", about {}", counted(rows, "row"))),
        (None, _) => {}
    }
    if let Some(dead) = toast.dead_rows {
        line.push_str(&format!(", {dead} dead"));
    }
    if shows_dropped || toast.values.estimate > 0 || toast.unplaced_values.is_some() {
        line.push_str(&values_there(toast));
    }
    if !shows_dropped {
        line.push_str("; those of dropped columns, which functions do not show");
    }
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
fn values_there(toast: &ToastFigures) -> String {
    let ToastFigures { values, chunks, .. } = toast;
    if !values.is_exact() || !chunks.is_exact() {
        return format!("; {} values in {} chunks", count(values), count(chunks));
    }
    let values = values.estimate;
    let chunks = chunks.estimate;
    let in_all = counted(values, "value");
    let in_chunks = counted(chunks, "chunk");
    let known = match toast.uncounted_values {
        None => format!("{in_all} in {in_chunks}"),
        Some(uncounted) if uncounted >= values => {
            format!("{in_all}, in chunks that their pointers do not count")
        }
        Some(uncounted) => {
            format!(
                "{in_all} in {in_chunks} and those of {uncounted} whose pointers do not count them"
            )
        }
    };
    match (values, toast.unplaced_values) {
        (0, None) => "; no values".to_owned(),
        (_, None) => format!("; {known}"),
        (0, Some(open)) => format!("; up to {}, each here or in its row", counted(open, "value")),
        (_, Some(open)) => format!("; {known}, and up to {open} more, each here or in its row"),
    }
}

/// Prints what each kind of custom pointer costs, once per kind.
fn pointer_costs(relation: &RelationReport, told: &mut Vec<String>, document: &mut Document) {
    let mut is_first = true;
    for report in relation.columns.iter().flat_map(|column| &column.toasters) {
        if told.iter().any(|kind| *kind == report.pointer_kind) {
            continue;
        }
        if std::mem::take(&mut is_first) {
            document.gap();
        }
        told.push(report.pointer_kind.to_string());
        document.item(&format!("pointer \"{}\":", report.pointer_kind));
        document.item(&format!("  to read a key: {}", report.cost_to_read));
        document.item(&format!("  to append: {}", report.cost_to_append));
    }
}

const CSV_HEAD: [&str; 14] = [
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
    "visible_rows_only",
];

/// One row for each column and form; sizes are bytes.
fn csv_rows(relation: &RelationReport) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for column in &relation.columns {
        for FormFigures { form, method, all, ratio } in &column.forms {
            rows.push(vec![
                relation.read.name.relation.clone(),
                column.column.clone(),
                column.type_name.clone(),
                column.storage.name().to_owned(),
                column.compression.map_or("", Method::name).to_owned(),
                form.name().to_owned(),
                method.map_or("", Method::name).to_owned(),
                all.values.estimate.to_string(),
                optional_number(all.raw_bytes.map(|bytes| bytes.estimate)),
                optional_number(all.stored_bytes.map(|bytes| bytes.estimate)),
                all.pointer_bytes.estimate.to_string(),
                all.chunks.estimate.to_string(),
                cell(ratio.as_ref(), |ratio| ratio.estimate.to_string()),
                relation.tuples.visible_rows_only.to_string(),
            ]);
        }
    }
    rows
}

/// What the columns hold. Cells of ranges, which only estimates have, are empty if everything was read.
fn column_grid(columns: &[&ColumnFigures]) -> Grid {
    Grid::from_rows(
        columns,
        &[
            name("Column", |c| c.column.clone()),
            text("Type", 5, |c| c.type_name.clone()),
            text("Storage", 6, |c| c.storage.name().into()),
            text("Compression", 15, |c| c.compression.map_or("", Method::name).into()),
            text("Toaster", 5, |c| c.toaster.clone().unwrap_or_default()),
            number("Values", 0, |c| guess(&c.all.values)),
            number("Values from–to", 2, |c| range(&c.all.values)),
            number("Nulls", 7, |c| cell(nonzero(c.nulls).as_ref(), count)),
            number("Missing", 8, |c| cell(nonzero(c.missing).as_ref(), count)),
            number("Raw", 4, |c| cell(c.all.raw_bytes.as_ref(), about_size)),
            number("Raw from–to", 4, |c| cell(c.all.raw_bytes.as_ref(), size_range)),
            number("Stored", 0, |c| cell(c.all.stored_bytes.as_ref(), about_size)),
            number("Stored from–to", 0, |c| cell(c.all.stored_bytes.as_ref(), size_range)),
            number("Ratio", 1, |c| cell(c.ratio.as_ref(), about_ratio)),
            number("Ratio from–to", 3, |c| cell(c.ratio.as_ref(), ratio_range)),
            number("Chunks", 7, |c| cell(nonzero(c.all.chunks).as_ref(), count)),
            number("Share", 1, |c| cell(c.share.as_ref(), about_share)),
            number("Raw min", 14, |c| extreme(c, c.raw_size.min)),
            number("Raw median", 10, |c| cell(c.raw_size.median.as_ref(), quantile)),
            number("Raw p95", 13, |c| cell(c.raw_size.p95.as_ref(), quantile)),
            number("Raw p99", 14, |c| cell(c.raw_size.p99.as_ref(), quantile)),
            number("Raw max", 12, |c| extreme(c, c.raw_size.max)),
            number("Stored min", 13, |c| extreme(c, c.stored_size.min)),
            number("Stored median", 9, |c| cell(c.stored_size.median.as_ref(), quantile)),
            number("Stored p95", 10, |c| cell(c.stored_size.p95.as_ref(), quantile)),
            number("Stored p99", 12, |c| cell(c.stored_size.p99.as_ref(), quantile)),
            number("Stored max", 11, |c| extreme(c, c.stored_size.max)),
        ],
    )
}

/// The smallest or the largest size, which cannot be estimated.
fn extreme(column: &ColumnFigures, size: Option<u64>) -> String {
    if column.all.values.is_exact() { optional_number(size) } else { String::new() }
}

/// The forms of a column, biggest first; none if there is no more to say than "plain".
fn shown_forms(column: &ColumnFigures) -> Vec<&FormFigures> {
    if column.forms.iter().all(|form| matches!(form.form, Form::Plain | Form::Null)) {
        return Vec::new();
    }
    let mut forms: Vec<&FormFigures> = column.forms.iter().collect();
    forms.sort_by_key(|form| std::cmp::Reverse(form.all.stored_bytes.unwrap_or_default().estimate));
    forms
}

/// Forms of the columns where there is more to say than "plain".
fn form_grid(columns: &[&ColumnFigures]) -> Grid {
    let forms = columns.iter().flat_map(|c| shown_forms(c).into_iter().map(move |f| (*c, f)));
    Grid::from_rows(
        &forms.collect::<Vec<_>>(),
        &[
            name("Column", |(c, _)| c.column.clone()),
            text("Form", 0, |(_, f)| f.form.name().into()),
            text("Method", 0, |(_, f)| f.method.map_or("", Method::name).into()),
            number("Values", 0, |(_, f)| guess(&f.all.values)),
            number("Values from–to", 1, |(_, f)| range(&f.all.values)),
            number("Raw", 3, |(_, f)| cell(f.all.raw_bytes.as_ref(), bytes)),
            number("Stored", 0, |(_, f)| cell(f.all.stored_bytes.as_ref(), about_size)),
            number("Stored from–to", 1, |(_, f)| cell(f.all.stored_bytes.as_ref(), size_range)),
            number("Pointers", 5, |(_, f)| cell(nonzero(f.all.pointer_bytes).as_ref(), about_size)),
            number("Ratio", 2, |(_, f)| cell(f.ratio.as_ref(), about_ratio)),
            number("Chunks", 4, |(_, f)| cell(nonzero(f.all.chunks).as_ref(), count)),
        ],
    )
}

/// How far the columns are from a policy.
fn policy_grid(columns: &[&ColumnFigures]) -> Grid {
    fn share(part: u64, whole: u64) -> String {
        if whole > 0 { percent(part as f64 / whole as f64) } else { String::new() }
    }
    let policies = columns.iter().filter_map(|c| Some((*c, c.policy.as_ref()?)));
    Grid::from_rows(
        &policies.collect::<Vec<_>>(),
        &[
            name("Column", |(c, _)| c.column.clone()),
            name("Policy", |(_, p)| p.policy.clone()),
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

/// Values of pluggable toasters.
fn toaster_grid(columns: &[&ColumnFigures]) -> Grid {
    let toasters = columns.iter().flat_map(|c| c.toasters.iter().map(move |t| (*c, t)));
    Grid::from_rows(
        &toasters.collect::<Vec<_>>(),
        &[
            name("Column", |(c, _)| c.column.clone()),
            name("Toaster", |(_, t)| {
                t.toaster.clone().unwrap_or_else(|| format!("OID {}", t.toaster_oid))
            }),
            text("Pointer", 0, |(_, t)| t.pointer_kind.to_string()),
            number("Values", 0, |(_, t)| t.values.to_string()),
            number("Raw", 3, |(_, t)| optional_size(t.raw_bytes)),
            number("In row", 1, |(_, t)| size(t.inline_bytes)),
            number("In chunks", 2, |(_, t)| optional_size(t.chunk_bytes)),
            number("Chunks", 4, |(_, t)| match (t.chunks, t.uncounted) {
                (chunks, 0) => chunks.to_string(),
                (0, _) => String::new(),
                (chunks, _) => format!("≥{chunks}"),
            }),
        ],
    )
}
