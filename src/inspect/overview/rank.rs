//! Columns of many relations, added up over the parts of partitioned tables and of inheritance, and ranked (pure).

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    CatalogBytes, ColumnLine, Extent, LeftOut, RelationLine, TableFigures, share, sum_if_known,
};
use crate::command::TableName;
use crate::findings::code::WORTH;
use crate::findings::content::MethodTrial;
use crate::findings::finding::{Finding, rank};
use crate::findings::whole::{self, TablePart};
use crate::inspect::result::Source;
use crate::server::citus::ShardLine;
use toast_format::codec::Method;
use toast_format::disk::Storage;
use toast_format::model::Interval;
use toast_format::model::interval::Amount;
use toast_format::model::sql::without_public;

/// What tables and columns are ranked by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum SortBy {
    /// By size on disk
    #[default]
    Stored,
    /// By uncompressed size
    Raw,
    /// By free space and dead rows of the table and its TOAST relation (both are shown)
    #[value(alias = "free")]
    Unused,
    /// By rows of the table that were read through indexes, according to the statistics; sequential scans and
    /// toastctl's own reads are not included
    Read,
    /// By dead rows of the table and its TOAST relation, according to the statistics
    Dead,
    /// By table and column name
    Name,
}

/// The totals of all relations.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Totals {
    /// Relations that were selected.
    pub relations: u64,
    /// The same, with the shards and copies of a table of Citus as one.
    #[serde(default)]
    pub tables: u64,
    /// Relations that were read, completely or in part.
    pub read: u64,
    /// Relations of which a sample was read.
    pub sampled: u64,
    /// Tables of which no pages were read.
    pub by_functions: u64,
    /// Tables searched for findings: those of 1 MB or more, as far as there was time.
    pub looked_at: u64,
    /// Relations read from pages of which the size of some values is not known.
    pub unplaced: u64,
    /// Tables that could not be read, or only in part, so that findings about them may be missing.
    pub unsearched: u64,
    /// Blocks of relations of which a sample was wanted.
    pub sampled_blocks: u64,
    /// Those of them that were read.
    pub sampled_blocks_read: u64,
    /// Size of the heaps, TOAST relations and their indexes, of all selected relations.
    pub bytes: u64,
    /// Those of relations that were left out.
    pub left_out_bytes: u64,
    /// Size of the TOAST relations of those that were read.
    pub toast_bytes: u64,
    /// Indexes of the relations that were read.
    pub index_bytes: u64,
    /// What the columns take of the relations that were read.
    pub columns_bytes: Amount,
    /// Relations of which row security may hide rows from this session.
    pub visible_rows_only: u64,
    /// What is unused in heaps and TOAST relations; null where pages of some were not read.
    pub unused_bytes: Option<Amount>,
    /// What values of dropped columns take there; null where pages of some were not read.
    pub dropped_bytes: Option<Amount>,
    #[serde(flatten)]
    pub catalogs: CatalogBytes,
    /// The database's files, on all nodes that were read; null where that is not known.
    pub database_bytes: Option<u64>,
    /// default_toast_compression of this session; null if databases differ.
    pub default_compression: Option<Method>,
    /// Whether the server was built with lz4.
    #[serde(skip)]
    pub has_lz4: bool,
    /// Columns whose new values are compressed (storage extended or main), of the relations that were read.
    pub compressed_columns: u64,
    /// Those of them with a method of their own.
    pub columns_with_method: u64,
    /// Columns whose new values are not compressed (storage external), of the same relations.
    pub uncompressed_columns: u64,
    /// What the method that default_toast_compression does not name would do to values of columns that follow it; null if
    /// none was tried.
    pub other_method: Option<OtherMethod>,
}

/// What both compression methods make of a few values. Values are those of the examined sample that are compressed, or out
/// of line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct OtherMethod {
    /// Values that were tried.
    pub values: u64,
    /// Columns that they are from; those of parts of a table are counted one by one.
    pub columns: u64,
    /// Bytes that these columns store now, an estimate.
    pub column_bytes: u64,
    /// Bytes that values take with the other method, divided by those with the default: the ratios of the columns, each
    /// weighted by what the column stores.
    pub ratio: f64,
    /// The ratio of the column where it is least.
    pub least_ratio: f64,
    /// The ratio of the column where it is greatest.
    pub greatest_ratio: f64,
}

impl OtherMethod {
    /// What was tried of one column, if anything was, and the bytes that it stores.
    fn of_column(trial: MethodTrial, column_bytes: u64) -> Option<OtherMethod> {
        let MethodTrial { values, default_bytes, other_bytes } = trial;
        let ratio = other_bytes as f64 / default_bytes as f64;
        (default_bytes > 0).then_some(OtherMethod {
            values,
            columns: 1,
            column_bytes,
            ratio,
            least_ratio: ratio,
            greatest_ratio: ratio,
        })
    }

    fn joined(self, other: OtherMethod) -> OtherMethod {
        let column_bytes = self.column_bytes.saturating_add(other.column_bytes);
        let weight = other.column_bytes as f64 / column_bytes.max(1) as f64;
        OtherMethod {
            values: self.values.saturating_add(other.values),
            columns: self.columns.saturating_add(other.columns),
            column_bytes,
            ratio: self.ratio + (other.ratio - self.ratio) * weight,
            least_ratio: self.least_ratio.min(other.least_ratio),
            greatest_ratio: self.greatest_ratio.max(other.greatest_ratio),
        }
    }
}

/// What was tried in two places, in one of them, or in none.
fn both(one: Option<OtherMethod>, other: Option<OtherMethod>) -> Option<OtherMethod> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.joined(other)),
        (one, other) => one.or(other),
    }
}

#[derive(Debug)]
pub(crate) struct RankedColumn {
    /// The database, if there are several.
    pub(crate) target: Option<Arc<str>>,
    pub(crate) line: ColumnLine,
    /// What its relation has of what the columns are ranked by, if that is one of [`SortBy::Unused`],
    /// [`SortBy::Read`], [`SortBy::Dead`].
    pub(crate) by_relation: Option<Amount>,
}

/// What an overview says at its end, of one database or of several.
#[derive(Debug)]
pub(crate) struct Overview {
    pub(crate) by: SortBy,
    pub(crate) limit: usize,
    /// Ranked, up to the limit; parts are added up.
    pub(crate) tables: Vec<TableLine>,
    /// The sum of the tables beyond the limit, and how many they are.
    pub(crate) more_tables: Option<(u64, TableFigures)>,
    /// Ranked, up to the limit.
    pub(crate) columns: Vec<RankedColumn>,
    /// Columns beyond the limit.
    pub(crate) more: u64,
    /// Stored bytes of these columns.
    pub(crate) more_bytes: Amount,
    /// Ranked, the worst first.
    pub(crate) findings: Vec<Finding>,
    pub(crate) left_out: Vec<LeftOut>,
    /// Names and patterns of tables, as in [`Ranking::selected`].
    pub(crate) selected: Vec<String>,
    pub(crate) totals: Totals,
    /// Tables of Citus, the largest first.
    pub(crate) spread: Vec<Spread>,
    /// Databases, if there are several.
    pub(crate) databases: u64,
    /// Whether only some columns of each relation are reported.
    pub(crate) of_columns: bool,
}

impl Overview {
    /// Puts tables and columns in order and adds up those beyond the limit. Equal ones keep the order that they have.
    fn order(&mut self) {
        rank_tables(&mut self.tables, self.by);
        let rest = self.tables.split_off(self.limit.min(self.tables.len()));
        for table in &rest {
            let (tables, sum) = self.more_tables.get_or_insert((0, TableFigures::ZERO));
            *tables += 1;
            *sum += &table.figures;
        }
        let stored =
            |one: &RankedColumn| (Reverse(one.line.stored_bytes.estimate), one.target.clone());
        match self.by {
            SortBy::Stored => self.columns.sort_by_key(stored),
            SortBy::Raw => self.columns.sort_by_key(|one| {
                (Reverse(one.line.raw_bytes.map(|raw| raw.estimate)), stored(one))
            }),
            SortBy::Unused | SortBy::Read | SortBy::Dead => self.columns.sort_by_key(|one| {
                let whole = one.by_relation.map(|figure| figure.estimate);
                (Reverse(whole), one.target.clone(), one.line.relation.clone(), stored(one))
            }),
            SortBy::Name => self.columns.sort_by_key(|one| one.target.clone()),
        }
        let rest = self.columns.get(self.limit..).unwrap_or_default();
        for column in rest {
            self.more_bytes = self.more_bytes.plus_independent(column.line.stored_bytes);
        }
        self.more = self.more.saturating_add(rest.len() as u64);
        self.columns.truncate(self.limit);
    }

    /// The shards of a table of Citus; those of partitions that have the same range are one.
    pub(crate) fn shards(&self, table: &str) -> Option<u64> {
        let spread = self.spread.iter().find(|spread| spread.table == table);
        spread.map(|spread| spread.shards)
    }

    /// Puts the database's name before every relation, so that the overview can be joined with others.
    pub(crate) fn name(&mut self, target: &str) {
        self.databases = 1;
        let name: Arc<str> = target.into();
        self.tables.iter_mut().for_each(|table| table.target = Some(Arc::clone(&name)));
        self.columns.iter_mut().for_each(|column| column.target = Some(Arc::clone(&name)));
        self.relations().for_each(|relation| *relation = name_in(target, relation));
    }

    /// Every name of a relation that does not stand next to that of its database.
    fn relations(&mut self) -> impl Iterator<Item = &mut String> {
        let left_out = self.left_out.iter_mut().map(|left_out| &mut left_out.relation);
        let spread = self.spread.iter_mut().map(|spread| &mut spread.table);
        let findings = self.findings.iter_mut().map(|finding| &mut finding.relation);
        left_out.chain(spread).chain(findings)
    }

    /// Leaves out the server before the names of databases, which are all there.
    pub(crate) fn leave_out_server(&mut self, server: &str) {
        let targets = self.tables.iter_mut().map(|table| &mut table.target);
        for name in targets.chain(self.columns.iter_mut().map(|one| &mut one.target)).flatten() {
            *name = name.strip_prefix(server).unwrap_or(name).into();
        }
        for name in self.relations() {
            *name = name.strip_prefix(server).unwrap_or(name).to_owned();
        }
    }

    /// Adds the overview of another database. Shares become those of all databases.
    pub(crate) fn join(&mut self, other: Overview) {
        self.databases += other.databases;
        self.totals.join(&other.totals);
        self.left_out.extend(other.left_out);
        self.spread.extend(other.spread);
        self.spread.sort_by_key(|spread| Reverse(spread.bytes));
        self.findings.extend(other.findings);
        rank(&mut self.findings);
        self.tables.extend(other.tables);
        if let Some((tables, figures)) = other.more_tables {
            let (all, sum) = self.more_tables.get_or_insert((0, TableFigures::ZERO));
            *all += tables;
            *sum += &figures;
        }
        self.columns.extend(other.columns);
        self.more = self.more.saturating_add(other.more);
        self.more_bytes = self.more_bytes.plus_independent(other.more_bytes);
        self.order();
        for RankedColumn { line, .. } in &mut self.columns {
            line.share = share(line.stored_bytes, self.totals.database_bytes);
        }
    }
}

/// A relation's name after that of its database.
pub(crate) fn name_in(target: &str, relation: &str) -> String {
    format!("{target} {}", without_public(relation))
}

impl Totals {
    /// The sum of a figure of pages over two databases: not known if it is not for relations that were read.
    fn joined(&self, other: &Totals, figure: fn(&Totals) -> Option<Amount>) -> Option<Amount> {
        let sum = figure(self);
        let more = figure(other);
        if sum.is_none() && self.read > 0 || more.is_none() && other.read > 0 {
            return None;
        }
        sum_if_known(sum, more).or(sum).or(more)
    }

    /// Adds those of another database.
    fn join(&mut self, other: &Totals) {
        self.unused_bytes = self.joined(other, |totals| totals.unused_bytes);
        self.dropped_bytes = self.joined(other, |totals| totals.dropped_bytes);
        self.catalogs = self.catalogs.plus(other.catalogs);
        let sums = [
            (&mut self.relations, other.relations),
            (&mut self.tables, other.tables),
            (&mut self.read, other.read),
            (&mut self.sampled, other.sampled),
            (&mut self.by_functions, other.by_functions),
            (&mut self.visible_rows_only, other.visible_rows_only),
            (&mut self.looked_at, other.looked_at),
            (&mut self.unplaced, other.unplaced),
            (&mut self.unsearched, other.unsearched),
            (&mut self.sampled_blocks, other.sampled_blocks),
            (&mut self.sampled_blocks_read, other.sampled_blocks_read),
            (&mut self.bytes, other.bytes),
            (&mut self.left_out_bytes, other.left_out_bytes),
            (&mut self.index_bytes, other.index_bytes),
            (&mut self.toast_bytes, other.toast_bytes),
            (&mut self.compressed_columns, other.compressed_columns),
            (&mut self.columns_with_method, other.columns_with_method),
            (&mut self.uncompressed_columns, other.uncompressed_columns),
        ];
        self.has_lz4 |= other.has_lz4;
        self.other_method = both(self.other_method, other.other_method);
        if self.default_compression != other.default_compression {
            self.default_compression = None;
            self.other_method = None;
        }
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
        self.columns_bytes = self.columns_bytes.plus_independent(other.columns_bytes);
        self.database_bytes = self
            .database_bytes
            .zip(other.database_bytes)
            .map(|(sum, more)| sum.saturating_add(more));
    }
}

/// How the shards of a table of Citus are spread over nodes. Sizes are those of heaps, TOAST relations and their
/// indexes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Spread {
    /// `schema.name` of the table.
    pub table: String,
    /// Shards that were read; those of partitions that have the same range are one.
    pub shards: u64,
    /// How many nodes have the same rows; 1 unless Citus replicates them.
    pub copies: u64,
    /// On all nodes, including copies.
    pub bytes: u64,
    pub largest_bytes: u64,
    pub median_bytes: u64,
    /// Sorted by their names.
    pub nodes: Vec<NodeShare>,
}

/// A node's shards of a table of Citus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NodeShare {
    /// `host:port` in the metadata.
    pub node: String,
    pub shards: u64,
    pub bytes: u64,
}

/// Bytes of the shards that were read.
#[derive(Debug, Default)]
struct ShardSizes {
    copies: u64,
    /// By range and node.
    shards: BTreeMap<(Option<String>, String), u64>,
}

impl ShardSizes {
    fn spread(self, table: String) -> Spread {
        let mut sizes: Vec<u64> = self.shards.values().copied().collect();
        sizes.sort_unstable();
        let mut nodes: BTreeMap<String, NodeShare> = BTreeMap::new();
        let mut ranges = BTreeSet::new();
        for ((range, node), bytes) in self.shards {
            ranges.insert(range);
            let none = NodeShare { node: node.clone(), shards: 0, bytes: 0 };
            let share = nodes.entry(node).or_insert(none);
            share.shards += 1;
            share.bytes = share.bytes.saturating_add(bytes);
        }
        Spread {
            table,
            shards: ranges.len() as u64,
            copies: self.copies,
            bytes: sizes.iter().fold(0u64, |sum, bytes| sum.saturating_add(*bytes)),
            largest_bytes: sizes.last().copied().unwrap_or(0),
            median_bytes: sizes.get(sizes.len() / 2).copied().unwrap_or(0),
            nodes: nodes.into_values().collect(),
        }
    }
}

/// A key that differs between copies of a shard.
fn on_node(relation: &str, node: Option<&String>) -> String {
    match node {
        Some(node) => format!("{relation} on {node}"),
        None => relation.to_owned(),
    }
}

impl TableFigures {
    /// What columns are ranked by, if it is a figure of their table.
    fn rank_figure(&self, by: SortBy) -> Option<Amount> {
        match by {
            SortBy::Unused => self.unused_bytes,
            SortBy::Read => self.rows_read.map(Interval::exact),
            SortBy::Dead => self.dead_rows.map(Interval::exact),
            SortBy::Stored | SortBy::Raw | SortBy::Name => None,
        }
    }
}

/// Collects the lines of relations until the ranking is made.
#[derive(Debug, Default)]
pub(crate) struct Ranking {
    extent: Extent,
    /// By relation, or what it is a part of, and column.
    columns: BTreeMap<(String, String), ColumnLine>,
    /// By relation, or what it is a part of.
    tables: BTreeMap<String, TableLine>,
    pub(crate) left_out: Vec<LeftOut>,
    /// The columns that are reported of each relation; none: all of them.
    pub(crate) only_columns: Vec<String>,
    /// Names and patterns of the tables that are read, and with `!` of those that are not; none: all are read.
    pub(crate) selected: Vec<String>,
    /// About tables, once these are [judged](Ranking::judge), and about other relations.
    pub(crate) findings: Vec<Finding>,
    /// The parts of tables that are not judged yet, by `schema.name`.
    wholes: BTreeMap<String, (TableName, Vec<TablePart>)>,
    /// Names of the relations that were read, with whether all findings about them are known: they were searched, or are
    /// too small for findings.
    pub(crate) searched: BTreeMap<String, bool>,
    /// Servers that are read.
    servers: u64,
    /// By table of Citus.
    spread: BTreeMap<String, ShardSizes>,
    /// Its shards that were read, including copies.
    shards: u64,
    /// What of its shards was counted once for all.
    counted_once: BTreeSet<(OfTable, String)>,
    /// What was counted of the relations that were read.
    pub(super) counted: Totals,
    /// The figures of all these relations.
    pub(super) all: TableFigures,
    /// The size of the largest one that is no shard.
    largest_bytes: u64,
    /// The largest number of values in a TOAST relation.
    pub(super) most_ids: Amount,
    pub(super) problems: u64,
}

/// What is counted once for all shards of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum OfTable {
    ByFunctions,
    VisibleRowsOnly,
    LookedAt,
    Unsearched,
}

/// A table, or all parts of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TableLine {
    /// The database, if there are several.
    #[serde(skip)]
    pub(crate) target: Option<Arc<str>>,
    /// `schema.name`; for parts that are added up, the name of the table that they belong to.
    pub relation: String,
    /// How many relations are added up here.
    pub parts: u64,
    /// On how many nodes of Citus the same rows are; the figures are those of all copies. Left out without copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<u64>,
    /// The node of the shard, if shards are reported one by one (--parts).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(flatten)]
    pub figures: TableFigures,
}

impl TableLine {
    /// The sum of no parts.
    fn new(relation: &str, node: Option<&ShardLine>) -> TableLine {
        TableLine {
            target: None,
            relation: relation.to_owned(),
            parts: 0,
            copies: None,
            node: node.map(|shard| shard.node.clone()),
            figures: TableFigures::ZERO,
        }
    }
}

/// Puts tables in order: the largest first, unless the order is one of tables. Equal ones keep the order that they have.
fn rank_tables(tables: &mut [TableLine], by: SortBy) {
    match by {
        SortBy::Stored | SortBy::Raw => {
            tables.sort_by_key(|table| Reverse(table.figures.bytes_with_indexes()));
        }
        SortBy::Unused | SortBy::Read | SortBy::Dead => tables.sort_by_key(|table| {
            Reverse(table.figures.rank_figure(by).map(|figure| figure.estimate))
        }),
        SortBy::Name => tables.sort_by_key(|table| table.target.clone()),
    }
}

impl Ranking {
    pub(crate) fn new(extent: Extent) -> Ranking {
        Ranking { extent, all: TableFigures::ZERO, ..Ranking::default() }
    }

    pub(crate) fn add(&mut self, relation: &RelationLine) {
        let RelationLine { read, figures, .. } = relation;
        self.count(relation);
        self.all += figures;
        let name = relation.part_of.as_ref().unwrap_or(&read.name.relation);
        let node = if relation.part_of.is_none() { read.shard.as_ref() } else { None };
        let table = on_node(name, node.map(|shard| &shard.node));
        let line = self.tables.entry(table.clone()).or_insert_with(|| TableLine::new(name, node));
        line.parts += 1;
        line.figures += figures;
        line.copies =
            line.copies.max(read.shard.as_ref().map(|shard| shard.copies).filter(|n| *n > 1));
        let is_searched = relation.findings.is_some() || figures.bytes_with_indexes() < WORTH;
        self.searched.insert(read.name.relation.clone(), is_searched);
        match relation.as_part() {
            Some((table, part)) => {
                let whole = self.wholes.entry(table.shown()).or_insert((table, Vec::new()));
                whole.1.push(part);
            }
            None => self.findings.extend(relation.findings.iter().flatten().cloned()),
        }
        if let Some(shard) = &read.shard {
            let spread = self.spread.entry(shard.table.clone()).or_default();
            spread.copies = spread.copies.max(shard.copies);
            let place = (shard.range.clone(), shard.node.clone());
            let sum = spread.shards.entry(place).or_default();
            *sum = sum.saturating_add(figures.bytes());
            self.shards += 1;
        }
        for column in &relation.columns {
            match column.storage {
                Some(Storage::Extended | Storage::Main) => {
                    self.counted.compressed_columns += 1;
                    self.counted.columns_with_method += u64::from(column.compression.is_some());
                }
                Some(Storage::External) => self.counted.uncompressed_columns += 1,
                _ => {}
            }
            let stored = column.stored_bytes.estimate;
            let trial = relation.trial(&column.column);
            let trial = trial.and_then(|trial| OtherMethod::of_column(trial, stored));
            self.counted.other_method = both(self.counted.other_method, trial);
            let sum = &mut self.counted.columns_bytes;
            *sum = sum.plus_independent(column.stored_bytes);
            match self.columns.entry((table.clone(), column.column.clone())) {
                Entry::Occupied(mut sum) => *sum.get_mut() += column,
                Entry::Vacant(first) => {
                    first.insert(ColumnLine { relation: name.clone(), ..column.clone() });
                }
            }
        }
    }

    fn count(&mut self, relation: &RelationLine) {
        let RelationLine { read, figures, .. } = relation;
        let by_functions = read.source == Source::Functions;
        self.counted.by_functions += self.once(OfTable::ByFunctions, by_functions, relation);
        let hides = figures.visible_rows_only;
        self.counted.visible_rows_only += self.once(OfTable::VisibleRowsOnly, hides, relation);
        let is_searched = relation.findings.is_some();
        self.counted.looked_at += self.once(OfTable::LookedAt, is_searched, relation);
        let has_problems = read.problem_count > 0;
        self.counted.unsearched += self.once(OfTable::Unsearched, has_problems, relation);
        let counted = &mut self.counted;
        counted.read += 1;
        let by_pages = read.source != Source::Functions && read.access_method.is_none();
        counted.unplaced += u64::from(by_pages && figures.unused_bytes.is_none());
        if let Some(sample) = &read.sample {
            counted.sampled += u64::from(sample.blocks_read < sample.blocks);
            counted.sampled_blocks += sample.blocks;
            counted.sampled_blocks_read += sample.blocks_read;
        }
        if read.shard.is_none() {
            self.largest_bytes = self.largest_bytes.max(figures.bytes());
        }
        self.problems = self.problems.saturating_add(read.problem_count);
        if let Some(values) = figures.toast_values
            && values.estimate > self.most_ids.estimate
        {
            self.most_ids = values;
        }
    }

    /// 1 if this is so of a table, and of none of its shards before.
    fn once(&mut self, what: OfTable, is_so: bool, relation: &RelationLine) -> u64 {
        let is_new = match &relation.read.shard {
            Some(shard) if is_so => self.counted_once.insert((what, shard.table.clone())),
            _ => is_so,
        };
        u64::from(is_new)
    }

    /// Tables that could not be read, with the shards of one as one.
    pub(super) fn missing(&self) -> u64 {
        let missing = self.left_out.iter().filter(|left_out| !left_out.not_heap);
        missing.map(LeftOut::table).collect::<BTreeSet<&str>>().len() as u64
    }

    /// The size of the largest relation; the shards of a table of Citus count together.
    pub(super) fn largest_table(&self) -> u64 {
        let of_citus = self.spread.values().map(|sizes| sizes.shards.values().sum());
        of_citus.max().unwrap_or(0).max(self.largest_bytes)
    }

    /// A server, or another one, will be read.
    pub(crate) fn begin(&mut self, extent: Extent) {
        self.extent = match self.servers {
            0 => extent,
            _ => self.extent.plus(extent),
        };
        self.servers += 1;
    }

    /// Judges the tables of which all parts have been added. `lead`: completes a finding's command with what connects to the
    /// database.
    pub(crate) fn judge(&mut self, lead: impl Fn(&mut String)) {
        for (table, mut parts) in std::mem::take(&mut self.wholes).into_values() {
            let mut found = whole::findings(&table, &mut parts);
            if !self.only_columns.is_empty() {
                let columns = &self.only_columns;
                found.retain(|one| one.column.as_ref().is_some_and(|name| columns.contains(name)));
            }
            // the whole may have findings that no part has, and several parts may have the same
            if let Some(line) = self.tables.get_mut(&table.shown())
                && line.parts > 1
            {
                line.figures.findings = Some(found.len() as u64);
            }
            found.iter_mut().for_each(|finding| lead(&mut finding.command));
            self.findings.extend(found);
        }
        rank(&mut self.findings);
    }

    /// The totals of all relations.
    pub(crate) fn totals(&self) -> Totals {
        let left_out = &self.left_out;
        let left_out_bytes =
            left_out.iter().fold(0u64, |sum, one| sum.saturating_add(one.bytes.unwrap_or(0)));
        let read = self.counted.read;
        let mut of_citus: BTreeSet<&str> = self.spread.keys().map(String::as_str).collect();
        let mut shards = self.shards;
        let relations = match &self.only_columns[..] {
            [] => {
                let left_out: Vec<&str> =
                    left_out.iter().filter_map(|one| one.whole.as_deref()).collect();
                shards += left_out.len() as u64;
                of_citus.extend(left_out);
                self.extent.relations.max(read)
            }
            // those that have one of them
            _ => read,
        };
        Totals {
            relations,
            tables: relations.saturating_sub(shards) + of_citus.len() as u64,
            bytes: self.all.bytes().saturating_add(left_out_bytes),
            left_out_bytes,
            unsearched: self.counted.unsearched + self.missing(),
            index_bytes: self.all.index_bytes.unwrap_or(0),
            toast_bytes: self.all.toast_bytes.unwrap_or(0),
            unused_bytes: if read > 0 { self.all.unused_bytes } else { None },
            dropped_bytes: if read > 0 { self.all.dropped_bytes } else { None },
            catalogs: self.extent.catalogs,
            database_bytes: self.extent.database_bytes,
            default_compression: self.extent.compression.map(|methods| methods.default),
            has_lz4: self.extent.compression.is_some_and(|methods| methods.lz4),
            ..self.counted
        }
    }

    /// The first `limit` tables: the largest ones, unless the order is one of tables.
    pub(crate) fn tables(&self, by: SortBy, limit: usize) -> Vec<TableLine> {
        // ordered by name until here
        let mut tables: Vec<TableLine> = self.tables.values().cloned().collect();
        rank_tables(&mut tables, by);
        tables.truncate(limit);
        tables
    }

    /// A table, or all parts of one.
    pub(crate) fn table(&self, relation: &str) -> Option<&TableLine> {
        self.tables.get(relation)
    }

    /// All columns, those of parts added up.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &ColumnLine> {
        self.columns.values()
    }

    /// How many tables there are; the parts of one are one.
    pub(crate) fn number_of_tables(&self) -> usize {
        self.tables.len()
    }

    /// The largest `limit` tables, each with its columns.
    pub(crate) fn largest(&self, limit: usize) -> Vec<(TableLine, Vec<ColumnLine>)> {
        let database_bytes = self.extent.database_bytes;
        let tables = self.tables(SortBy::Stored, limit);
        let with_columns = tables.into_iter().map(|table| {
            let key = on_node(&table.relation, table.node.as_ref());
            let columns = self.columns.range((key.clone(), String::new())..);
            let columns = columns.take_while(|((relation, _), _)| *relation == key);
            let columns =
                columns.map(|(_, column)| column.clone().with_share(database_bytes)).collect();
            (table, columns)
        });
        with_columns.collect()
    }

    /// The end of the overview: the first `limit` columns, and the sum of the rest.
    pub(crate) fn overview(mut self, by: SortBy, limit: usize) -> Overview {
        let totals = self.totals();
        let left_out = std::mem::take(&mut self.left_out);
        let selected = std::mem::take(&mut self.selected);
        self.judge(|_| {});
        let findings = std::mem::take(&mut self.findings);
        let spread = std::mem::take(&mut self.spread).into_iter();
        let mut spread: Vec<Spread> = spread.map(|(table, sizes)| sizes.spread(table)).collect();
        spread.sort_by_key(|spread| Reverse(spread.bytes));
        let columns = self.columns.into_values().map(|line| {
            let line = line.with_share(totals.database_bytes);
            let table = self.tables.get(&on_node(&line.relation, line.node.as_ref()));
            let by_relation = table.and_then(|table| table.figures.rank_figure(by));
            RankedColumn { target: None, line, by_relation }
        });
        let mut overview = Overview {
            by,
            limit,
            columns: columns.collect(),
            tables: self.tables.into_values().collect(),
            more_tables: None,
            more: 0,
            more_bytes: Interval::exact(0),
            findings,
            left_out,
            selected,
            totals,
            spread,
            databases: 0,
            of_columns: !self.only_columns.is_empty(),
        };
        overview.order();
        overview
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::facts::{BloatedIndex, Facts};
    use crate::inspect::overview::FormLine;
    use crate::inspect::result::RelationRead;
    use crate::server::catalog::RelationName;
    use toast_format::model::Form;

    fn column(relation: &str, column: &str, stored: Amount, raw: Option<u64>) -> ColumnLine {
        ColumnLine {
            relation: relation.into(),
            column: column.into(),
            type_name: Some("text".into()),
            storage: Some(Storage::Extended),
            compression: None,
            parts: 1,
            copies: None,
            node: None,
            visible_rows_only: false,
            values: Interval::exact(1),
            stored_bytes: stored,
            raw_bytes: raw.map(Interval::exact),
            ratio: None,
            out_of_line_bytes: Some(Interval::exact(0)),
            forms: vec![FormLine { form: Form::Plain, method: None, stored_bytes: stored }],
            share: None,
            measured: Some(stored),
        }
    }

    fn relation(
        name: &str,
        part_of: Option<&str>,
        unused: Option<u64>,
        columns: Vec<ColumnLine>,
    ) -> RelationLine {
        RelationLine {
            read: RelationRead { name: RelationName::file(name), ..RelationRead::default() },
            part_of: part_of.map(str::to_owned),
            figures: TableFigures {
                heap_bytes: Some(10_000),
                index_bytes: Some(5),
                unused_bytes: unused.map(Interval::exact),
                rows_read: Some(name.len() as u64),
                dead_rows: unused.map(|unused| 10 - unused),
                ..TableFigures::default()
            },
            columns,
            ..RelationLine::default()
        }
    }

    fn ranking() -> Ranking {
        let mut ranking = Ranking::new(Extent {
            relations: 4,
            database_bytes: Some(1_000_000),
            ..Extent::default()
        });
        let between = |estimate, by| Interval { estimate, low: estimate - by, high: estimate + by };
        for line in [
            relation(
                "a",
                None,
                Some(7),
                vec![
                    column("a", "x", Interval::exact(500), Some(100)),
                    column("a", "y", Interval::exact(40), None),
                ],
            ),
            relation(
                "p_1",
                Some("p"),
                Some(4),
                vec![column("p_1", "v", between(300, 30), Some(900))],
            ),
            relation(
                "p_2",
                Some("p"),
                Some(5),
                vec![column("p_2", "v", between(400, 40), Some(800))],
            ),
            relation("z", None, None, vec![column("z", "v", Interval::exact(600), Some(600))]),
        ] {
            ranking.add(&line);
        }
        ranking
    }

    fn names(by: SortBy) -> Vec<String> {
        let ranked = ranking().overview(by, 9);
        let name = |one: &RankedColumn| format!("{}.{}", one.line.relation, one.line.column);
        ranked.columns.iter().map(name).collect()
    }

    #[test]
    fn every_order_is_what_it_says() {
        assert_eq!(names(SortBy::Stored), ["p.v", "z.v", "a.x", "a.y"]);
        assert_eq!(names(SortBy::Raw), ["p.v", "z.v", "a.x", "a.y"]);
        assert_eq!(names(SortBy::Unused), ["p.v", "a.x", "a.y", "z.v"]);
        assert_eq!(names(SortBy::Read), ["p.v", "a.x", "a.y", "z.v"]);
        assert_eq!(names(SortBy::Dead), ["p.v", "a.x", "a.y", "z.v"]);
        assert_eq!(names(SortBy::Name), ["a.x", "a.y", "p.v", "z.v"]);
    }

    #[test]
    fn the_largest_tables_have_their_columns_and_forms() {
        let mut ranking = ranking();
        let mut large = relation("o", None, None, vec![column("o", "v", Interval::exact(9), None)]);
        large.figures.heap_bytes = Some(50_000);
        ranking.add(&large);
        assert_eq!(ranking.number_of_tables(), 4);
        let largest = ranking.largest(2);
        let names: Vec<(&str, u64, usize)> = largest
            .iter()
            .map(|(table, columns)| (table.relation.as_str(), table.figures.bytes(), columns.len()))
            .collect();
        assert_eq!(names, [("o", 50_000, 1), ("p", 20_000, 1)]);
        let forms = &largest[1].1[0].forms;
        let stored_bytes = Interval { estimate: 700, low: 650, high: 750 };
        assert_eq!(*forms, [FormLine { form: Form::Plain, method: None, stored_bytes }]);
    }

    fn named(name: &str) -> TableName {
        TableName::Known { schema: "public".to_owned(), name: name.to_owned() }
    }

    fn shard(id: i64, node: &str, copies: u64) -> ShardLine {
        let range = (copies == 1).then(|| (id % 2).to_string());
        ShardLine { node: node.into(), table: "public.d".into(), id, copies, range }
    }

    /// A shard with an index that would be too little to report in a table of its own.
    fn with_bloated_index(id: i64, node: &str) -> RelationLine {
        let name = format!("public.d_{id}");
        let column = column(&name, "v", Interval::exact(id as u64), None);
        let mut line = relation(&name, None, Some(1), vec![column]);
        let bloated = BloatedIndex {
            name: format!("{name}_pkey"),
            bytes: 900 << 10,
            fresh: 100 << 10,
            wal: 0,
            left: None,
        };
        let facts = Facts {
            table: named(&format!("d_{id}")),
            bloated: vec![bloated],
            ..Facts::nothing_found()
        };
        line.facts = Some(Box::new(facts));
        line.findings = Some(Vec::new());
        line.place(shard(id, node, 1), (&format!("d_{id}"), "d"), Some(named("d")));
        line
    }

    #[test]
    fn shards_are_spread_over_nodes_and_those_of_partitions_with_one_range_are_one() {
        let mut ranking = Ranking::new(Extent::default());
        ranking.begin(Extent { relations: 2, database_bytes: Some(70), ..Extent::default() });
        ranking.begin(Extent { relations: 2, database_bytes: Some(30), ..Extent::default() });
        for (id, node) in [(10, "a:1"), (11, "b:1"), (12, "a:1"), (13, "b:1"), (15, "b:1")] {
            let line = with_bloated_index(id, node);
            ranking.add(&line);
        }
        let overview = ranking.overview(SortBy::Stored, 9);
        let line = &overview.columns[0].line;
        assert_eq!(
            (line.relation.as_str(), line.parts, line.stored_bytes.estimate),
            ("public.d", 5, 61)
        );
        assert_eq!(line.share.map(|share| share.estimate), Some(0.61));
        let nodes = |node: &str, shards, bytes| NodeShare { node: node.into(), shards, bytes };
        assert_eq!(
            overview.spread,
            [Spread {
                table: "public.d".into(),
                shards: 2,
                copies: 1,
                bytes: 50_000,
                largest_bytes: 30_000,
                median_bytes: 30_000,
                nodes: vec![nodes("a:1", 1, 20_000), nodes("b:1", 1, 30_000)],
            }]
        );
        // none of a shard alone, one of the table
        assert_eq!(overview.tables[0].figures.findings, Some(1));
        let [finding] = overview.findings.as_slice() else { panic!("{:?}", overview.findings) };
        assert_eq!((finding.relation.as_str(), finding.value), ("public.d", 4000 << 10));
        assert_eq!(finding.command, "toastctl reindex public.d");
        assert!(finding.what.ends_with("if rebuilt in 5 shards"), "{}", finding.what);
    }

    #[test]
    fn of_chosen_columns_no_other_findings_are_reported() {
        let mut ranking = Ranking::new(Extent::default());
        ranking.only_columns = vec!["v".to_owned()];
        for id in 10..15 {
            ranking.add(&with_bloated_index(id, "a:1"));
        }
        let overview = ranking.overview(SortBy::Stored, 9);
        assert_eq!((overview.findings.len(), overview.tables[0].figures.findings), (0, Some(0)));
    }

    #[test]
    fn copies_are_counted_and_one_by_one_they_are_told_apart() {
        let of = |one_by_one: bool| {
            let mut ranking = Ranking::new(Extent::default());
            for node in ["a:1", "b:1"] {
                let v = column("public.d_7", "v", Interval::exact(6), None);
                let mut line = relation("public.d_7", None, Some(1), vec![v]);
                let whole = (!one_by_one).then(|| named("d"));
                line.place(shard(7, node, 2), ("d_7", "d"), whole);
                ranking.add(&line);
            }
            ranking.overview(SortBy::Stored, 9)
        };
        let together = of(false);
        let [one] = together.columns.as_slice() else { panic!("{together:?}") };
        assert_eq!((one.line.parts, one.line.copies), (2, Some(2)));
        let spread = &together.spread[0];
        assert_eq!((spread.shards, spread.copies, spread.bytes), (1, 2, 20_000));
        let apart = of(true);
        let nodes: Vec<_> = apart.columns.iter().map(|one| one.line.node.as_deref()).collect();
        assert_eq!(nodes, [Some("a:1"), Some("b:1")]);
    }

    #[test]
    fn parts_are_one_line_and_what_is_beyond_the_limit_is_added_up() {
        let ranked = ranking().overview(SortBy::Stored, 2);
        let p = &ranked.columns[0].line;
        assert_eq!((p.relation.as_str(), p.parts), ("p", 2));
        assert_eq!(p.stored_bytes, Interval { estimate: 700, low: 650, high: 750 });
        assert_eq!(p.raw_bytes, Some(Interval::exact(1700)));
        let share = p.share.unwrap();
        assert_eq!((share.low, share.estimate, share.high), (0.0007, 0.0007, 0.0008));
        assert_eq!(ranked.columns[0].by_relation, None);
        let first = |by| ranking().overview(by, 1).columns[0].by_relation;
        assert_eq!(first(SortBy::Unused), Some(Interval::exact(9)));
        assert_eq!(
            (first(SortBy::Read), first(SortBy::Dead)),
            (Some(Interval::exact(6)), Some(Interval::exact(11)))
        );
        assert_eq!((ranked.more, ranked.more_bytes), (2, Interval::exact(540)));
        let totals = ranking().totals();
        assert_eq!((totals.read, totals.bytes, totals.index_bytes), (4, 40_000, 20));
        assert_eq!(totals.columns_bytes.estimate, 1840);
        assert!(totals.unused_bytes.is_none());
        let tables = |by, limit| -> Vec<(String, Option<u64>, Option<u64>)> {
            let tables = ranking().tables(by, limit).into_iter();
            let figures = |table: TableLine| {
                let TableFigures { heap_bytes, unused_bytes, .. } = table.figures;
                (table.relation, heap_bytes, unused_bytes.map(|unused| unused.estimate))
            };
            tables.map(figures).collect()
        };
        let p = ("p".to_owned(), Some(20_000), Some(9));
        assert_eq!(tables(SortBy::Stored, 1), std::slice::from_ref(&p));
        let by_unused =
            [p, ("a".to_owned(), Some(10_000), Some(7)), ("z".to_owned(), Some(10_000), None)];
        assert_eq!(tables(SortBy::Unused, 9), by_unused);
    }

    #[test]
    fn of_several_databases_the_columns_are_in_one_order_and_nothing_is_lost() {
        let of = |target: &str, limit| {
            let mut overview = ranking().overview(SortBy::Stored, limit);
            overview.name(target);
            overview
        };
        let mut all = of("two", 3);
        all.join(of("one", 3));
        let name = |one: &RankedColumn| {
            format!("{} {}.{}", one.target.as_deref().unwrap(), one.line.relation, one.line.column)
        };
        let names: Vec<String> = all.columns.iter().map(name).collect();
        assert_eq!(names, ["one p.v", "two p.v", "one z.v"]);
        assert_eq!((all.databases, all.more), (2, 5));
        let shown: u64 = all.columns.iter().map(|one| one.line.stored_bytes.estimate).sum();
        assert_eq!(shown + all.more_bytes.estimate, 2 * 1840);
        let Totals { read, columns_bytes, database_bytes, unused_bytes, .. } = all.totals;
        assert_eq!((read, columns_bytes.estimate, database_bytes), (8, 3680, Some(2_000_000)));
        assert_eq!((unused_bytes, all.columns[0].line.share.unwrap().high), (None, 0.0004));
        let mut empty = Ranking::new(Extent::default()).overview(SortBy::Stored, 3);
        empty.join(Ranking::new(Extent::default()).overview(SortBy::Stored, 3));
        assert!(empty.totals.unused_bytes.is_none() && empty.columns.is_empty());
    }
}
