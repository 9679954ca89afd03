//! The overview of many relations in every format.

use std::io::{self, Write};

use serde_json::json;

use super::charts::{self, Tile};
use super::document::{Document, Format, Output};
use super::findings;
use super::html;
use super::intervals::{about_ratio, about_size, cell};
use super::table::{Grid, Head, Style, Tone, number, printable, text as text_column};
use super::units::{and_more, counted, percent, ratio, size};
use crate::inspect::document::{self as inspect, Summary};
use crate::inspect::overview::rank::{
    Overview, RankedColumn, Ranking, SortBy, Spread, TableLine, Totals,
};
use crate::inspect::overview::{ColumnLine, FormLine, LeftOut, RelationLine};
use crate::inspect::result::SCHEMA;
use crate::server::about::ServerReport;
use toast_format::codec::Method;
use toast_format::disk::desc::Storage;
use toast_format::model::interval::{Amount, Interval};
use toast_format::model::sql::without_public;
use toast_format::model::stored::Form;

/// How many columns are shown without --limit, and how many on a page.
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
    /// Columns that are named; `None`: all of them for programs, what a screen has room for to people.
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
        let document = json!(inspect::Document::new(server));
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

    /// Ends the document with the ranking; must be called once.
    pub(crate) fn finish(self, ranking: Ranking) -> io::Result<()> {
        let Writer { output, view } = self;
        let map = (output.format == Format::Html).then(|| {
            let largest = ranking.largest(view.limit.unwrap_or(TABLES));
            let more = ranking.number_of_tables() - largest.len();
            Map { largest, more }
        });
        let overview = ranking.overview(view.sort, view.shown(output.style()));
        let is_empty = output.written == 0 && overview.left_out.is_empty();
        let summary = Summary::from(&overview);
        output.finish(
            Some(&summary),
            |document| {
                if !is_empty {
                    text(&overview, view.limit, map.as_ref(), document);
                }
            },
            || csv_rows(&summary.columns),
        )
    }
}

impl View {
    /// How many columns are named.
    pub(crate) fn shown(&self, style: Option<Style>) -> usize {
        self.limit.unwrap_or(match style {
            Some(Style::Html) => SHOWN_ON_PAGE,
            Some(_) => SHOWN,
            None => usize::MAX,
        })
    }
}

/// What is drawn on a page.
pub(super) struct Map {
    /// The largest tables, with their columns.
    largest: Vec<(TableLine, Vec<ColumnLine>)>,
    /// Tables that are not among them.
    more: usize,
}

/// The overview for people. `limit`: findings that are shown; `map`: what is drawn on a page.
pub(super) fn text(
    overview: &Overview,
    limit: Option<usize>,
    map: Option<&Map>,
    document: &mut Document,
) {
    findings::ranked(&overview.findings, overview.totals.looked_at, limit, document);
    if !findings::is_narrow(document.style) {
        document.gap();
    }
    ranked_columns(overview, map, document);
}

/// What a report on several tables, each of which was printed, ends with: their largest columns.
pub(super) fn largest_columns(ranking: Ranking, document: &mut Document) {
    if ranking.number_of_tables() > 1 {
        let limit = View::default().shown(Some(document.style));
        document.gap();
        ranked_columns(&ranking.overview(SortBy::Stored, limit), None, document);
    }
}

fn ranked_columns(overview: &Overview, map: Option<&Map>, document: &mut Document) {
    let Overview { by, columns, totals, databases, .. } = overview;
    let title = title(totals, *databases, *by);
    if let Some(map) = map {
        document.heading("Where the space is", 2);
        document.line(&format!("{}.", title.trim_end_matches(':')), 0);
        map.draw(totals, document);
    } else {
        document.line(&document.toned(Tone::Heading, &title), 0);
        document.gap();
    }
    let grid = grid(overview);
    if !grid.is_empty() {
        document.grid("Columns", &grid);
        if document.is_markdown() {
            document.gap();
        }
    }
    for note in notes(overview) {
        document.line(&note, 0);
    }
    for spread in overview.spread.iter().filter(|spread| !spread.nodes.is_empty()).take(NAMED) {
        document.line(&printable(&spread_line(spread)), 0);
    }
    if map.is_some() {
        document.grid("Columns by form", &forms(columns));
    }
}

impl Map {
    /// Draws tables, their columns, and the forms of their values.
    fn draw(&self, totals: &Totals, document: &mut Document) {
        let tables = self.largest.iter();
        let mut tiles: Vec<Tile> = tables
            .map(|(table, columns)| tile(&table.relation, table.figures.bytes(), columns))
            .collect();
        let drawn = total_bytes(&tiles);
        let read = totals.bytes.saturating_sub(totals.left_out_bytes);
        if self.more > 0 && read > drawn {
            tiles.push(rest_tile(counted(self.more as u64, "more table"), read - drawn));
        }
        map("Tables, columns and forms by size", &tiles, document);
    }
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
        ("rest", "other tables, headers, free space and dead rows"),
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
    Tile { name: form_name(form), bytes, class, parts: Vec::new() }
}

fn rest_tile(name: String, bytes: u64) -> Tile {
    Tile { name, bytes, class: "rest", parts: Vec::new() }
}

fn total_bytes(tiles: &[Tile]) -> u64 {
    tiles.iter().fold(0u64, |sum, tile| sum.saturating_add(tile.bytes))
}

/// The form with its method, as in `external_compressed lz4`.
fn form_name(form: &FormLine) -> String {
    match form.method {
        Some(method) => format!("{} {}", form.form.name(), method.name()),
        None => form.form.name().to_owned(),
    }
}

/// The forms of these columns.
fn forms(columns: &[RankedColumn]) -> Grid {
    let lines = columns.iter().map(|one| &one.line);
    let rows = lines.flat_map(|column| column.forms.iter().map(move |form| (column, form)));
    Grid::from_rows(
        &rows.collect::<Vec<_>>(),
        &[
            text_column("Table", 0, |(column, _)| without_public(&column.relation).to_owned()),
            text_column("Column", 0, |(column, _)| column.column.clone()),
            text_column("Form", 0, |(_, form)| form_name(form)),
            number("Stored", 0, |(_, form)| about_size(&form.stored_bytes)),
            number("±", 0, |(_, form)| error_of(&form.stored_bytes)),
        ],
    )
}

fn tables(number: u64) -> String {
    counted(number, "table")
}

fn title(totals: &Totals, databases: u64, sort: SortBy) -> String {
    let by = match sort {
        SortBy::Stored => "stored size",
        SortBy::Raw => "raw size",
        SortBy::Unused => "unused space of their table",
        SortBy::Read => "rows of their table read by index",
        SortBy::Dead => "dead rows of their table and its TOAST",
        SortBy::Name => "name",
    };
    let Totals { relations, bytes, index_bytes, .. } = totals;
    let indexes = match index_bytes {
        0 => String::new(),
        bytes => format!(", other indexes {}", size(*bytes)),
    };
    let of = match databases {
        0 => tables(*relations),
        _ => format!("{}, {}", counted(databases, "database"), tables(*relations)),
    };
    format!("{of}, {} with TOAST{indexes}; columns by {by}:", size(*bytes))
}

fn grid(overview: &Overview) -> Grid {
    let Overview { by: sort, columns, more, more_bytes, .. } = overview;
    let whole = match sort {
        SortBy::Read => "Read",
        SortBy::Dead => "Dead",
        SortBy::Unused | SortBy::Stored | SortBy::Raw | SortBy::Name => "Unused",
    };
    // the database is there if there are several
    let heads = [
        Head::text("Database", 0),
        Head::text("Table", 0),
        Head::text("Column", 0),
        Head::text("Type", 5),
        Head::number("Stored", 0),
        Head::number("±", 2),
        Head::number("Raw", 4),
        Head::number("Ratio", 1),
        Head::number("In TOAST", 3),
        Head::number("Share", 0),
        Head::number(whole, 0),
    ];
    let mut grid = Grid::new(&heads);
    let mut last = None;
    for RankedColumn { target, line, by_relation: figure } in columns {
        if line.stored_bytes.high == 0 {
            continue;
        }
        // the same for all columns of a table, so printed once
        let again = last == Some((target, &line.relation, &line.node));
        last = Some((target, &line.relation, &line.node));
        let figure = if !again { figure.as_ref() } else { None };
        grid.row(vec![
            target.as_deref().unwrap_or_default().to_owned(),
            table_name(line),
            line.column.clone(),
            line.type_name.clone().unwrap_or_else(|| "(differs)".into()),
            about_size(&line.stored_bytes),
            error_of(&line.stored_bytes),
            cell(line.raw_bytes.as_ref(), about_size),
            cell(line.ratio.as_ref(), about_ratio),
            cell(line.out_of_line_bytes.as_ref().filter(|bytes| bytes.high > 0), about_size),
            cell(line.share.as_ref(), |share| percent(share.estimate)),
            cell(figure, |e| match sort {
                SortBy::Unused => about_size(e),
                _ => e.estimate.to_string(),
            }),
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

/// The table of a line, with its parts, copies or node.
fn table_name(line: &ColumnLine) -> String {
    let table = without_public(&line.relation);
    if let Some(node) = &line.node {
        return format!("{table} on {node}");
    }
    match (line.parts, line.copies) {
        (1, None) => table.to_owned(),
        (parts, Some(copies)) if parts == copies => format!("{table} ({copies} copies)"),
        (parts, Some(copies)) if parts < copies => format!("{table} ({parts} of {copies} copies)"),
        (parts, _) => format!("{table} ({parts} parts)"),
    }
}

fn notes(overview: &Overview) -> Vec<String> {
    let Overview { totals, left_out, spread, databases, .. } = overview;
    let databases = *databases;
    let on_nodes = !spread.is_empty();
    let mut notes = Vec::new();
    let read = totals.bytes.saturating_sub(totals.left_out_bytes);
    let held = totals.columns_bytes.estimate.min(read);
    let rest = match &totals.unused_bytes {
        Some(unused) if unused.estimate > 0 => {
            format!("{} of the rest is free space and dead rows", about_size(unused))
        }
        Some(_) => "the rest is headers".into(),
        None => "the rest is headers, free space and dead rows".into(),
    };
    if read > 0 {
        let held = Interval { estimate: held, ..totals.columns_bytes };
        notes.push(format!("Columns take {} of {}; {rest}.", about_size(&held), size(read)));
    }
    if let Some(bytes) = totals.database_bytes {
        let of = match (databases, on_nodes) {
            (0, false) => "the database of ",
            (0, true) => "the database on all nodes that were read, ",
            _ => "all these databases, ",
        };
        notes.push(format!("Share: of {of}{}.", size(bytes)));
    }
    if totals.sampled > 0 {
        notes.push(format!(
            "Sampled {} of {} blocks (95 % confidence); --sample 100% reads all.",
            totals.sampled_blocks_read, totals.sampled_blocks
        ));
    }
    if totals.by_functions > 0 {
        notes.push(format!(
            "Read without pages: {}; their free space and dead rows are not known.",
            tables(totals.by_functions)
        ));
    }
    if !left_out.is_empty() {
        let mut largest: Vec<&LeftOut> = left_out.iter().collect();
        largest.sort_by_key(|relation| std::cmp::Reverse(relation.bytes));
        let named: Vec<String> = largest
            .iter()
            .take(NAMED)
            .map(|relation| printable(without_public(&relation.relation)))
            .collect();
        let more = and_more(largest.len(), NAMED);
        let known = if left_out.iter().all(|relation| relation.bytes.is_some()) {
            size(totals.left_out_bytes)
        } else {
            "of unknown size".to_owned()
        };
        notes.push(format!(
            "Not read: {}, {known}: {}{more}.",
            tables(left_out.len() as u64),
            named.join(", ")
        ));
    }
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
    fields
}

/// One row for each column; sizes are bytes, each with the ends of its interval.
fn csv_rows(columns: &[&ColumnLine]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
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
        rows.push(row);
    }
    rows
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
}
