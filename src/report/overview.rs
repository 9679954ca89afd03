//! The overview of many relations in every format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

use serde_json::json;

use super::charts::{self, Tile};
use super::compare;
use super::document::{Document, Format, Output};
use super::findings;
use super::html;
use super::intervals::{about_ratio, about_size, cell};
use super::table::{Grid, Head, Style, Tone, name, number, printable, text as text_column};
use super::units::{
    age, and_more, counted, optional_number, optional_size, percent, ratio, short_count, size, utc,
};
use crate::inspect::compare::{ColumnChange, RunComparison, TableChange};
use crate::inspect::document::{self as inspect, Summary};
use crate::inspect::overview::rank::{
    OtherMethod, Overview, RankedColumn, Ranking, SortBy, Spread, TableLine, Totals,
};
use crate::inspect::overview::{
    CatalogBytes, ColumnLine, FormLine, LeftOut, RelationLine, TableFigures,
};
use crate::inspect::result::SCHEMA;
use crate::server::about::ServerReport;
use toast_format::codec::Method;
use toast_format::disk::desc::Storage;
use toast_format::model::interval::{Amount, Interval};
use toast_format::model::sql::without_public;
use toast_format::model::stored::Form;

/// How many tables and columns are shown without --limit: on a terminal of 24 lines, in Markdown, and on a page.
const SHOWN_ON_TERMINAL: usize = 4;
const SHOWN: usize = 15;
const SHOWN_ON_PAGE: usize = 60;
/// Tables of the treemap without --limit, and columns of each; the rest is one tile.
const TABLES: usize = 1000;
const COLUMNS: usize = 12;
/// Relations left out that are named; the rest is counted.
const NAMED: usize = 3;

/// Which part of the ranking is shown, and in which order.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct View {
    pub(crate) sort: SortBy,
    /// Tables and columns that are named; `None`: all of them for programs, what a screen has room for to people.
    pub(crate) limit: Option<usize>,
}

/// Writes relations as they arrive, if the format has a place for them, and at the end the ranking.
pub(crate) struct Writer<W: Write> {
    output: Output<W>,
    view: View,
}

impl<W: Write> Writer<W> {
    /// Nothing is written before the first relation.
    pub(crate) fn new(
        out: W,
        format: Format,
        width: Option<usize>,
        server: Option<ServerReport>,
        view: View,
    ) -> Writer<W> {
        let document = json!(inspect::Document::new(server, utc()));
        let output = Output::new(out, format, width, SCHEMA, &csv_fields(), &document);
        Writer { output, view }
    }

    /// Writes one relation, if the format has a place for it.
    pub(crate) fn relation(&mut self, relation: &RelationLine) -> io::Result<()> {
        self.output.entry(|| inspect::Table::from(relation), |_| {}, Vec::new)
    }

    /// States on a page that something could not be read.
    pub(crate) fn incomplete(&mut self) {
        self.output.page.incomplete = true;
    }

    /// Ends the document with the ranking, and what has changed since an earlier run; must be called once.
    pub(crate) fn finish(
        self,
        ranking: Ranking,
        comparison: Option<&RunComparison>,
    ) -> io::Result<()> {
        let Writer { output, view } = self;
        let largest =
            (output.format == Format::Html).then(|| ranking.largest(view.limit.unwrap_or(TABLES)));
        let tables = ranking.number_of_tables();
        let limit = view.shown(output.style());
        let overview = ranking.overview(view.sort, limit);
        let map = largest.map(|largest| tables_tiles(&largest, tables, &overview.totals));
        let is_empty = output.written == 0 && overview.left_out.is_empty();
        let mut summary = Summary::from(&overview);
        summary.compared = comparison;
        output.finish(
            Some(&summary),
            |document| {
                if let Some(comparison) = comparison {
                    compare::text(comparison, limit, document);
                }
                if !is_empty && (comparison.is_none() || document.is_html()) {
                    text(&overview, view.limit, map.as_deref(), document);
                }
            },
            || csv_rows(summary.ranked_tables, &summary.columns, comparison),
        )
    }
}

impl View {
    /// How many tables and columns are named.
    pub(crate) fn shown(&self, style: Option<Style>) -> usize {
        self.limit.unwrap_or(match style {
            Some(Style::Html) => SHOWN_ON_PAGE,
            Some(Style::Markdown) => SHOWN,
            Some(Style::Terminal(_)) => SHOWN_ON_TERMINAL,
            None => usize::MAX,
        })
    }
}

/// The overview for people. `limit`: findings that are shown; `tiles`: what is drawn on a page.
pub(super) fn text(
    overview: &Overview,
    limit: Option<usize>,
    tiles: Option<&[Tile]>,
    document: &mut Document,
) {
    findings::ranked(overview, limit, document);
    if !findings::is_narrow(document.style) {
        document.gap();
    }
    let mut hidden = ranked_tables(overview, tiles, document);
    hidden.extend(ranked_columns(overview, document));
    let has_more = overview.more_tables.is_some() || overview.more > 0;
    document.hidden(has_more.then_some("--limit N"), &hidden);
    if document.is_markdown() {
        document.gap();
    }
    for note in notes(overview) {
        document.line(&note, 0);
    }
    for spread in overview.spread.iter().filter(|spread| !spread.nodes.is_empty()).take(NAMED) {
        document.line(&printable(&spread_line(spread)), 0);
    }
    if tiles.is_some() {
        document.grid("Columns by form", &forms(&overview.columns));
    }
}

/// What a report on several tables, each of which was printed, ends with: their largest columns.
pub(super) fn largest_columns(ranking: Ranking, document: &mut Document) {
    if ranking.number_of_tables() > 1 {
        let limit = View::default().shown(Some(document.style));
        document.gap();
        let overview = ranking.overview(SortBy::Stored, limit);
        let title = title(&overview, "columns by stored size");
        document.line(&document.toned(Tone::Heading, &title), 0);
        document.gap();
        let hidden = ranked_columns(&overview, document);
        document.hidden((overview.more > 0).then_some("above"), &hidden);
    }
}

/// Returns the titles of columns that did not fit.
fn ranked_tables(
    overview: &Overview,
    tiles: Option<&[Tile]>,
    document: &mut Document,
) -> Vec<&'static str> {
    let by = match overview.by {
        SortBy::Stored => "by size",
        SortBy::Raw => "columns by raw size",
        SortBy::Unused => "by unused space of the table",
        SortBy::Read => "by rows of the table read by index",
        SortBy::Dead => "by dead rows of the table and its TOAST",
        SortBy::Name => "by name",
    };
    let title = title(overview, by);
    if let Some(tiles) = tiles {
        document.heading("Where the space is", 2);
        document.line(&format!("{}.", title.trim_end_matches(':')), 0);
        let databases = if overview.databases > 1 { "Databases, tables" } else { "Tables" };
        map(&format!("{databases}, columns and forms by size"), tiles, document);
    } else {
        let title = if document.is_html() { title.trim_end_matches(':') } else { &title };
        document.line(&document.toned(Tone::Heading, title), 0);
        if document.is_markdown() {
            document.gap();
        }
    }
    let grid = tables_grid(overview);
    let mut hidden = Vec::new();
    if !grid.is_empty() {
        hidden = document.grid("Tables", &grid);
        document.gap();
    }
    hidden
}

/// Returns the titles of columns that did not fit.
fn ranked_columns(overview: &Overview, document: &mut Document) -> Vec<&'static str> {
    let grid = columns_grid(overview);
    if grid.is_empty() { Vec::new() } else { document.grid("Columns", &grid) }
}

/// The largest of so many tables, with their columns and the forms of their values.
fn tables_tiles(
    largest: &[(TableLine, Vec<ColumnLine>)],
    tables: usize,
    totals: &Totals,
) -> Vec<Tile> {
    let tables_and_columns = largest.iter();
    let mut tiles: Vec<Tile> = tables_and_columns
        .map(|(table, columns)| tile(&table.relation, table.figures.bytes(), columns))
        .collect();
    let drawn = total_bytes(&tiles);
    let read = totals.bytes.saturating_sub(totals.left_out_bytes);
    let more = tables.saturating_sub(largest.len());
    if more > 0 && read > drawn {
        tiles.push(rest_tile(counted(more as u64, "more table"), read - drawn));
    }
    tiles
}

/// A database of this size, with its tables among those that are shown.
pub(super) fn database_tile(name: &str, bytes: u64, overview: &Overview) -> Tile {
    let tables = overview.tables.iter().filter(|table| table.target.as_deref() == Some(name));
    let mut parts: Vec<Tile> = tables
        .map(|table| {
            let columns = overview
                .columns
                .iter()
                .filter(|one| one.target == table.target && one.line.relation == table.relation);
            let columns: Vec<ColumnLine> = columns.map(|one| one.line.clone()).collect();
            tile(&table.relation, table.figures.bytes(), &columns)
        })
        .collect();
    parts.push(rest_tile("rest".to_owned(), bytes.saturating_sub(total_bytes(&parts))));
    Tile { name: name.to_owned(), bytes: bytes.max(total_bytes(&parts)), class: "rest", parts }
}

/// Draws tiles, with what they mean.
pub(super) fn map(title: &str, tiles: &[Tile], document: &mut Document) {
    const SHOWS: &str = "Each table takes an area in proportion to its heap, TOAST relation and TOAST index; in it are \
                         its columns, and in these the forms of their values. The tables below have the figures.";
    document.block(&charts::treemap(title, SHOWS, tiles));
    document.block(&html::legend(&[
        ("plain", "in the row, uncompressed"),
        ("compressed", "in the row, compressed"),
        ("external", "out of line, uncompressed"),
        ("external_compressed", "out of line, compressed"),
        ("custom", "pluggable toaster, or unknown"),
        ("rest", "other tables, dropped columns, headers, free space and dead rows"),
    ]));
}

/// A table of this size, with its columns and the forms of their values.
pub(super) fn tile(relation: &str, bytes: u64, columns: &[ColumnLine]) -> Tile {
    let mut parts: Vec<Tile> = columns.iter().map(column_tile).collect();
    parts.sort_by_key(|tile| std::cmp::Reverse(tile.bytes));
    let of_columns = total_bytes(&parts);
    let others = parts.split_off(parts.len().min(COLUMNS));
    if !others.is_empty() {
        let name = counted(others.len() as u64, "more column");
        parts.push(rest_tile(name, total_bytes(&others)));
    }
    parts.push(rest_tile("rest".to_owned(), bytes.saturating_sub(of_columns)));
    let name = without_public(relation).to_owned();
    Tile { name, bytes: bytes.max(of_columns), class: "rest", parts }
}

fn column_tile(column: &ColumnLine) -> Tile {
    let name = column.column.clone();
    let bytes = column.stored_bytes.estimate;
    Tile { name, bytes, class: "custom", parts: column.forms.iter().map(form_tile).collect() }
}

fn form_tile(form: &FormLine) -> Tile {
    let class = match form.form {
        Form::Short | Form::Plain => "plain",
        Form::Compressed | Form::External | Form::ExternalCompressed => form.form.name(),
        Form::Null | Form::Missing | Form::Custom | Form::Unknown => "custom",
    };
    let bytes = form.stored_bytes.estimate;
    Tile { name: form.shown(), bytes, class, parts: Vec::new() }
}

fn rest_tile(name: String, bytes: u64) -> Tile {
    Tile { name, bytes, class: "rest", parts: Vec::new() }
}

fn total_bytes(tiles: &[Tile]) -> u64 {
    tiles.iter().fold(0u64, |sum, tile| sum.saturating_add(tile.bytes))
}

/// The forms of these columns.
fn forms(columns: &[RankedColumn]) -> Grid {
    let lines = columns.iter().map(|one| &one.line);
    let rows = lines.flat_map(|column| column.forms.iter().map(move |form| (column, form)));
    Grid::from_rows(
        &rows.collect::<Vec<_>>(),
        &[
            name("Table", |(column, _)| without_public(&column.relation).to_owned()),
            name("Column", |(column, _)| column.column.clone()),
            text_column("Form", 0, |(_, form)| form.shown()),
            number("Stored", 0, |(_, form)| about_size(&form.stored_bytes)),
            number("±", 0, |(_, form)| error_of(&form.stored_bytes)),
        ],
    )
}

fn tables(number: u64) -> String {
    counted(number, "table")
}

fn title(overview: &Overview, by: &str) -> String {
    let Overview { totals, databases, spread, .. } = overview;
    let Totals { bytes, index_bytes, database_bytes, unused_bytes, left_out_bytes, .. } = totals;
    let mut words = String::new();
    if *databases > 0 {
        words.push_str(&counted(*databases, "database"));
        words.extend(database_bytes.map(|bytes| format!(" ({})", size(bytes))));
        words.push_str(", ");
    }
    let all = bytes.saturating_add(*index_bytes);
    words.push_str(&format!("{}, {}", tables(totals.tables), size(all)));
    if *index_bytes > 0 {
        words.push_str(&format!(" (with TOAST {}, indexes {}", size(*bytes), size(*index_bytes)));
        match unused_bytes {
            Some(unused) if unused.estimate > 0 && *left_out_bytes == 0 => {
                words.push_str(&format!(", free {}", about_size(unused)));
            }
            _ => {}
        }
        words.push(')');
    }
    if let (Some(bytes), 0) = (database_bytes, databases) {
        let nodes = if spread.is_empty() { "" } else { " on all nodes" };
        words.push_str(&format!(", database {}{nodes}", size(*bytes)));
    }
    format!("{words}; {by}:")
}

/// Columns of the grid of tables.
const COLUMNS_OF_TABLES: usize = 11;

fn tables_grid(overview: &Overview) -> Grid {
    let counter = match overview.by {
        SortBy::Read => "Read",
        SortBy::Dead => "Dead",
        SortBy::Unused | SortBy::Stored | SortBy::Raw | SortBy::Name => "",
    };
    // the database is there if there are several
    let mut grid = Grid::new(&[
        Head::name("Database"),
        Head::name("Table"),
        Head::number("Size", 0),
        Head::number("Heap", 3),
        Head::number("TOAST", 0),
        Head::number("Indexes", 2),
        Head::number("Free", 0),
        Head::number("Rows", 6),
        Head::number(counter, 0),
        Head::number("Vacuumed", 5),
        Head::number("Findings", 1),
    ]);
    for table in &overview.tables {
        let TableLine { target, relation, parts, copies, node, figures } = table;
        let place = TablePlace {
            relation,
            parts: *parts,
            copies: *copies,
            shards: overview.shards(relation),
            node: node.as_deref(),
            visible_rows_only: figures.visible_rows_only,
        };
        let mut row = vec![target.as_deref().unwrap_or_default().to_owned(), place.name()];
        row.extend(table_cells(figures, overview.by));
        grid.row(row);
    }
    if let Some((more, figures)) = &overview.more_tables {
        let mut row = vec![String::new(), format!("({more} more)")];
        row.extend(table_cells(figures, overview.by));
        grid.row(row);
    }
    // where there is room, the sizes of those that were not read, which need no rights
    if overview.databases == 0 {
        let room = overview.limit.saturating_sub(overview.tables.len());
        for one in not_read(&overview.left_out).iter().take(room) {
            let Some(bytes) = one.bytes else { continue };
            let why = if one.not_heap { "not looked at" } else { "not read" };
            let mut row = vec![String::new(), one.shown(why), size(bytes)];
            row.resize(COLUMNS_OF_TABLES, String::new());
            grid.row(row);
        }
    }
    grid
}

/// A table that was not read, or shards of one.
struct NotRead<'a> {
    table: &'a str,
    not_heap: bool,
    /// `None` if it is no table of Citus.
    shards: Option<u64>,
    /// `None` if it is not known of all shards.
    bytes: Option<u64>,
}

impl NotRead<'_> {
    /// The table, with its shards and what else is said of it.
    fn shown(&self, about: &str) -> String {
        let shards = self.shards.map(|shards| format!("{}, ", counted(shards, "shard")));
        let table = printable(without_public(self.table));
        format!("{table} ({}{about})", shards.unwrap_or_default())
    }
}

/// The tables that were not read, the largest first.
fn not_read(left_out: &[LeftOut]) -> Vec<NotRead<'_>> {
    let mut tables: BTreeMap<(&str, bool), NotRead<'_>> = BTreeMap::new();
    for one in left_out {
        let LeftOut { not_heap, whole, bytes, .. } = one;
        let shards = whole.as_ref().map(|_| 0);
        let none = NotRead { table: one.table(), not_heap: *not_heap, shards, bytes: Some(0) };
        let table = tables.entry((one.table(), *not_heap)).or_insert(none);
        table.shards = table.shards.map(|shards| shards + 1);
        table.bytes = table.bytes.zip(*bytes).map(|(sum, bytes)| sum.saturating_add(bytes));
    }
    let mut tables: Vec<NotRead<'_>> = tables.into_values().collect();
    tables.sort_by_key(|table| std::cmp::Reverse(table.bytes));
    tables
}

/// Sizes with and without indexes, what is free, rows, what tables are ranked by, the last VACUUM, and findings.
fn table_cells(figures: &TableFigures, by: SortBy) -> [String; 9] {
    let mut toast = figures.toast_bytes.unwrap_or(0);
    // the index of an empty one has a page
    if toast > 0 {
        toast = toast.saturating_add(figures.toast_index_bytes.unwrap_or(0));
    }
    let rows = figures.rows.map(|rows| {
        let about = if rows.low == rows.high { "" } else { "≈" };
        format!("{about}{}", short_count(rows.estimate))
    });
    let counter = match by {
        SortBy::Read => figures.rows_read,
        SortBy::Dead => figures.dead_rows,
        SortBy::Unused | SortBy::Stored | SortBy::Raw | SortBy::Name => None,
    };
    [
        size(figures.bytes_with_indexes()),
        optional_size(figures.heap_bytes),
        optional_size(Some(toast).filter(|bytes| *bytes > 0)),
        optional_size(figures.index_bytes.filter(|bytes| *bytes > 0)),
        cell(figures.unused_bytes.as_ref(), about_size),
        rows.unwrap_or_default(),
        optional_number(counter),
        figures.vacuum_age_seconds.map_or_else(|| "none".to_owned(), |s| age(s) + " ago"),
        optional_number(figures.findings),
    ]
}

fn columns_grid(overview: &Overview) -> Grid {
    let Overview { columns, more, more_bytes, .. } = overview;
    let heads = [
        Head::name("Database"),
        Head::name("Table"),
        Head::name("Column"),
        Head::text("Type", 5),
        Head::number("Stored", 0),
        Head::number("±", 2),
        Head::number("Raw", 4),
        Head::number("Ratio", 1),
        Head::number("In TOAST", 3),
        Head::number("Share", 0),
    ];
    let mut grid = Grid::new(&heads);
    for RankedColumn { target, line, .. } in columns {
        if line.stored_bytes.high == 0 {
            continue;
        }
        let place = TablePlace {
            relation: &line.relation,
            parts: line.parts,
            shards: overview.shards(&line.relation),
            copies: line.copies,
            node: line.node.as_deref(),
            visible_rows_only: line.visible_rows_only,
        };
        grid.row(vec![
            target.as_deref().unwrap_or_default().to_owned(),
            place.name(),
            line.column.clone(),
            line.type_name.clone().unwrap_or_else(|| "(differs)".into()),
            about_size(&line.stored_bytes),
            error_of(&line.stored_bytes),
            cell(line.raw_bytes.as_ref(), about_size),
            cell(line.ratio.as_ref(), about_ratio),
            cell(line.out_of_line_bytes.as_ref().filter(|bytes| bytes.high > 0), about_size),
            cell(line.share.as_ref(), |share| percent(share.estimate)),
        ]);
    }
    if *more > 0 && more_bytes.high > 0 {
        let none = String::new;
        let mut row = vec![none(), format!("({more} more)"), none(), none()];
        row.extend([about_size(more_bytes), error_of(more_bytes)]);
        row.resize(heads.len(), none());
        grid.row(row);
    }
    grid
}

/// The table of a line, and which part of it.
struct TablePlace<'a> {
    relation: &'a str,
    parts: u64,
    copies: Option<u64>,
    /// Of a table of Citus.
    shards: Option<u64>,
    node: Option<&'a str>,
    visible_rows_only: bool,
}

impl TablePlace<'_> {
    /// The table with its parts, copies or node.
    fn name(&self) -> String {
        let mut table = without_public(self.relation).to_owned();
        if self.visible_rows_only {
            table.push_str(" (visible rows)");
        }
        if let Some(node) = self.node {
            return format!("{table} on {node}");
        }
        match (self.parts, self.copies) {
            (1, None) => table,
            (parts, Some(copies)) if parts == copies => format!("{table} ({copies} copies)"),
            (parts, Some(copies)) if parts < copies => {
                format!("{table} ({parts} of {copies} copies)")
            }
            (parts, _) => match self.shards {
                Some(shards) => format!("{table} ({})", counted(shards, "shard")),
                None => format!("{table} ({parts} parts)"),
            },
        }
    }
}

/// Catalogs of at least this size are mentioned.
const LARGE_CATALOGS: u64 = 64 << 20;

/// What catalogs take, if it is much or holds large objects, which no table of a user shows.
fn catalogs(catalogs: &CatalogBytes) -> Option<String> {
    let CatalogBytes { catalog_bytes, large_object_bytes } = *catalogs;
    if large_object_bytes > 0 {
        let objects = size(large_object_bytes);
        Some(format!(
            "Large objects: pg_largeobject takes {objects} of the {} of system catalogs.",
            size(catalog_bytes)
        ))
    } else {
        (catalog_bytes >= LARGE_CATALOGS)
            .then(|| format!("System catalogs take {} in addition.", size(catalog_bytes)))
    }
}

/// How new values are compressed, and what the other method did to those that were tried, or what tells it; nothing
/// without columns to compress.
fn compression_note(totals: &Totals) -> Option<String> {
    let following = totals.compressed_columns - totals.columns_with_method;
    let method = totals.default_compression?;
    let other = method.other().name();
    let effect = match &totals.other_method {
        _ if !totals.has_lz4 => "; this server was built without lz4".to_owned(),
        Some(tried) => format!(
            "; {other} would make large values of {} {} ({} tried)",
            counted(tried.columns, "column"),
            change(tried),
            counted(tried.values, "value")
        ),
        None => {
            format!("; what {other} would do: toastctl advise-threshold TABLE --method {other}")
        }
    };
    let mut columns = counted(following, "column");
    if totals.columns_with_method > 0 {
        let _ = write!(columns, ", the column's own method in {}", totals.columns_with_method);
    }
    if totals.uncompressed_columns > 0 {
        let _ = write!(columns, ", uncompressed in {}", totals.uncompressed_columns);
    }
    (totals.compressed_columns > 0).then(|| {
        format!("New values: {} (default_toast_compression) in {columns}{effect}", method.name())
    })
}

/// How much smaller or larger the other method makes values, in all, and by column if that differs.
fn change(tried: &OtherMethod) -> String {
    let OtherMethod { ratio, least_ratio, greatest_ratio, .. } = *tried;
    let all = match percent_larger(ratio) {
        0 => "no smaller".to_owned(),
        part @ 1.. => format!("{part} % larger"),
        part => format!("{} % smaller", -part),
    };
    match (percent_larger(least_ratio), percent_larger(greatest_ratio)) {
        (least, greatest) if least == greatest => all,
        (least @ 0.., greatest) => format!("{all}, {least} to {greatest} % by column"),
        (least, greatest @ ..=0) => format!("{all}, {} to {} % by column", -greatest, -least),
        (least, greatest) => {
            format!("{all}, from {} % smaller to {greatest} % larger by column", -least)
        }
    }
}

/// By how many percent a ratio is above 1.
fn percent_larger(ratio: f64) -> i64 {
    ((ratio - 1.0) * 100.0).round() as i64
}

/// What columns take, and what the rest is; nothing if nothing was read.
fn columns_note(totals: &Totals) -> Option<String> {
    let read = totals.bytes.saturating_sub(totals.left_out_bytes);
    let rest = match &totals.unused_bytes {
        Some(unused) if unused.estimate > 0 => {
            format!("{} of the rest is free space and dead rows", about_size(unused))
        }
        Some(_) => "the rest is headers".into(),
        None if totals.unplaced > 0 => {
            "the rest is headers, free space and dead rows, and what values of unknown size take"
                .into()
        }
        None if totals.dropped_bytes.is_none() => {
            "the rest is headers, values of dropped columns, free space and dead rows".into()
        }
        None => "the rest is headers, free space and dead rows".into(),
    };
    let hidden =
        if totals.visible_rows_only > 0 { ", or rows that this user may not see" } else { "" };
    let estimate = totals.columns_bytes.estimate.min(read);
    let held = Interval { estimate, ..totals.columns_bytes };
    let dropped = match totals.dropped_bytes {
        Some(bytes) if bytes.estimate > 0 => {
            format!("{} are values of dropped columns; ", about_size(&bytes))
        }
        _ => String::new(),
    };
    (read > 0).then(|| {
        format!("Columns take {} of {}; {dropped}{rest}{hidden}.", about_size(&held), size(read))
    })
}

/// The largest tables that were not read, and those that have no pages that are known here; nothing if there are none.
fn left_out_notes(left_out: &[LeftOut]) -> Vec<String> {
    let mut notes = Vec::new();
    let (not_heap, missing): (Vec<_>, Vec<_>) =
        not_read(left_out).into_iter().partition(|table| table.not_heap);
    for (what, why, largest) in [
        ("Not read", "", missing),
        (
            "Not looked at",
            ", whose access method is not heap (--details counts their rows)",
            not_heap,
        ),
    ] {
        if largest.is_empty() {
            continue;
        }
        let mut named = Vec::new();
        for table in largest.iter().take(NAMED) {
            named.push(table.shown(&table.bytes.map_or("of unknown size".to_owned(), size)));
        }
        let more = and_more(largest.len(), NAMED);
        let count = tables(largest.len() as u64);
        let sum: Option<u64> = largest.iter().map(|table| table.bytes).sum();
        let sum = sum.map_or("of unknown size".to_owned(), size);
        notes.push(format!("{what}: {count}{why}, {sum}: {}{more}.", named.join(", ")));
    }
    notes
}

fn notes(overview: &Overview) -> Vec<String> {
    let Overview { totals, left_out, of_columns, .. } = overview;
    let mut notes = Vec::new();
    if !of_columns {
        notes.extend(columns_note(totals));
    }
    notes.extend(compression_note(totals));
    notes.extend(catalogs(&totals.catalogs));
    if totals.visible_rows_only > 0 {
        notes.push(format!(
            "Row security may hide rows of {} from this user; figures are those of the visible rows.",
            tables(totals.visible_rows_only)
        ));
    }
    if totals.sampled > 0 {
        notes.push(format!(
            "Sampled {} of {} blocks (95 % confidence); --sample 100% reads all.",
            totals.sampled_blocks_read, totals.sampled_blocks
        ));
    }
    if totals.by_functions > 0 {
        notes.push(format!(
            "Read without pages: {}; their free space and dead rows are not known, and values were not examined for \
             findings (toastctl advise-threshold TABLE does).",
            tables(totals.by_functions)
        ));
    }
    notes.extend(left_out_notes(left_out));
    notes
}

/// Where a table of Citus is, and how evenly.
fn spread_line(spread: &Spread) -> String {
    let Spread { table, shards, copies, bytes, largest_bytes, median_bytes, nodes } = spread;
    let table = without_public(table);
    let count = counted(nodes.len() as u64, "node");
    let mut line = format!("{table}: {} on {count}", counted(*shards, "shard"));
    match (shards, copies) {
        (1, 1) => {
            let node = nodes.first().map_or("", |one| &one.node);
            line = format!("{table}: 1 shard on {node}");
        }
        (1, copies) => line = format!("{table}: {copies} copies of {} each", size(*median_bytes)),
        (_, 2..) => line.push_str(&format!(", each with {copies} copies")),
        _ => {}
    }
    if *shards > 1 {
        let times = *largest_bytes as f64 / (*median_bytes).max(1) as f64;
        line.push_str(&format!(
            "; the largest has {}, {} times the median",
            size(*largest_bytes),
            ratio(times)
        ));
    }
    let most = nodes.iter().max_by_key(|share| share.bytes);
    let least = nodes.iter().min_by_key(|share| share.bytes);
    if let (Some(most), Some(least), 1, 2..) = (most, least, copies, nodes.len()) {
        let all = (*bytes).max(1) as f64;
        line.push_str(&format!(
            "; {} has {}, {} has {}",
            most.node,
            percent(most.bytes as f64 / all),
            least.node,
            percent(least.bytes as f64 / all)
        ));
    }
    line + "."
}

/// How far the interval reaches to the wider side, as a part of the estimate.
fn error_of(e: &Amount) -> String {
    if e.low == e.high {
        return String::new();
    }
    let by = (e.high.saturating_sub(e.estimate)).max(e.estimate.saturating_sub(e.low));
    match by as f64 / e.estimate.max(1) as f64 * 100.0 {
        percent if percent < 9.95 => format!("{percent:.1} %"),
        percent if percent < 999.5 => format!("{percent:.0} %"),
        _ => ">999 %".into(),
    }
}

fn csv_fields() -> Vec<String> {
    let mut fields: Vec<String> =
        ["relation", "column", "type", "storage", "compression", "parts"].map(str::to_owned).into();
    for figure in ["values", "stored_bytes", "raw_bytes", "ratio", "out_of_line_bytes", "share"] {
        fields.extend([figure.to_owned(), format!("{figure}_low"), format!("{figure}_high")]);
    }
    fields.push("visible_rows_only".to_owned());
    fields.extend(
        [
            "heap_bytes",
            "toast_bytes",
            "toast_index_bytes",
            "index_bytes",
            "unused_bytes",
            "rows",
            "vacuum_age_seconds",
            "finding_count",
            "bytes_before",
            "bytes_change",
        ]
        .map(str::to_owned),
    );
    fields
}

/// One row for each table, whose column is empty, and one for each column; sizes are bytes, those of columns with the ends
/// of their intervals. What is not there any more has a row of its own.
fn csv_rows(
    tables: &[TableLine],
    columns: &[&ColumnLine],
    comparison: Option<&RunComparison>,
) -> Vec<Vec<String>> {
    let width = csv_fields().len();
    let mut changes = comparison.map(csv_changes).unwrap_or_default();
    let mut rows = Vec::new();
    for TableLine { relation, parts, figures, .. } in tables {
        let known = [
            figures.heap_bytes,
            figures.toast_bytes,
            figures.toast_index_bytes,
            figures.index_bytes,
            figures.unused_bytes.map(|unused| unused.estimate),
            figures.rows.map(|rows| rows.estimate),
            figures.vacuum_age_seconds,
            figures.findings,
        ];
        let mut row = vec![String::new(); width - known.len() - 3];
        if let [name, _, _, _, _, count, ..] = row.as_mut_slice() {
            name.clone_from(relation);
            *count = parts.to_string();
        }
        row.push(figures.visible_rows_only.to_string());
        row.extend(known.map(optional_number));
        row.extend(changes.remove(&(relation.as_str(), "")).unwrap_or_default());
        rows.push(row);
    }
    for line in columns {
        let mut row = vec![
            line.relation.clone(),
            line.column.clone(),
            line.type_name.clone().unwrap_or_default(),
            line.storage.map_or("", Storage::name).to_owned(),
            line.compression.map_or("", Method::name).to_owned(),
            line.parts.to_string(),
        ];
        row.extend(csv_interval(Some(line.values)));
        row.extend(csv_interval(Some(line.stored_bytes)));
        row.extend(csv_interval(line.raw_bytes));
        row.extend(csv_interval(line.ratio));
        row.extend(csv_interval(line.out_of_line_bytes));
        row.extend(csv_interval(line.share));
        row.push(line.visible_rows_only.to_string());
        row.resize(width - 2, String::new());
        row.extend(changes.remove(&(&line.relation, &line.column)).unwrap_or_default());
        rows.push(row);
    }
    for ((relation, column), change) in changes {
        let mut row = vec![relation.to_owned(), column.to_owned()];
        row.resize(width - 2, String::new());
        row.extend(change);
        rows.push(row);
    }
    rows
}

/// The sizes before of what has changed, and the changes, by table and column, which is empty for a table.
fn csv_changes(comparison: &RunComparison) -> BTreeMap<(&str, &str), [String; 2]> {
    let mut changes = BTreeMap::new();
    for TableChange { relation, bytes_change, before, .. } in &comparison.tables {
        let before = before.as_ref().map(TableFigures::bytes_with_indexes);
        let cells = [optional_number(before), bytes_change.to_string()];
        changes.insert((relation.as_str(), ""), cells);
    }
    for ColumnChange { relation, column, bytes_change, before, .. } in &comparison.columns {
        let before = before.as_ref().map(|line| line.stored_bytes.estimate);
        let cells = [optional_number(before), bytes_change.to_string()];
        changes.insert((relation.as_str(), column.as_str()), cells);
    }
    changes
}

/// A figure and the ends of its interval; empty if it is not known.
fn csv_interval<T: ToString>(figure: Option<Interval<T>>) -> [String; 3] {
    match figure {
        Some(e) => [e.estimate, e.low, e.high].map(|number| number.to_string()),
        None => Default::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_say_how_sure_they_are() {
        let e = |estimate, low, high| Interval { estimate, low, high };
        assert_eq!(error_of(&e(5000, 5000, 5000)), "");
        assert_eq!(error_of(&e(5000, 4900, 5050)), "2.0 %");
        assert_eq!(error_of(&e(5000, 4000, 6500)), "30 %");
        assert_eq!(error_of(&e(5, 0, 6500)), ">999 %");
        assert_eq!(about_size(&e(5000, 5000, 5000)), "5000 bytes");
        assert_eq!(about_size(&e(5000, 4900, 5050)), "≈5000 bytes");
    }

    #[test]
    fn what_the_other_method_does_is_said_with_its_range() {
        let tried = |ratio, least_ratio, greatest_ratio| OtherMethod {
            values: 12,
            columns: 2,
            column_bytes: 1000,
            ratio,
            least_ratio,
            greatest_ratio,
        };
        let note = |other_method| {
            let totals = Totals {
                default_compression: Some(Method::Pglz),
                compressed_columns: 3,
                columns_with_method: 1,
                has_lz4: true,
                other_method,
                ..Totals::default()
            };
            compression_note(&totals).unwrap()
        };
        insta::assert_snapshot!(note(Some(tried(1.262, 0.95, 1.31))), @"New values: pglz (default_toast_compression) in 2 columns, the column's own method in 1; lz4 would make large values of 2 columns 26 % larger, from 5 % smaller to 31 % larger by column (12 values tried)");
        insta::assert_snapshot!(note(Some(tried(1.001, 1.0, 1.004))), @"New values: pglz (default_toast_compression) in 2 columns, the column's own method in 1; lz4 would make large values of 2 columns no smaller (12 values tried)");
        insta::assert_snapshot!(note(None), @"New values: pglz (default_toast_compression) in 2 columns, the column's own method in 1; what lz4 would do: toastctl advise-threshold TABLE --method lz4");
        assert_eq!(compression_note(&Totals::default()), None);
    }
}
