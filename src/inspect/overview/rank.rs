//! Columns of many relations, added up over the parts of partitioned tables and of inheritance, and ranked (pure).

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ColumnLine, Extent, LeftOut, RelationLine, TableFigures, share, sum_if_known};
use crate::findings::finding::{Finding, rank};
use crate::inspect::result::Source;
use crate::server::citus::{SHOWN_BY, ShardLine};
use toast_format::model::interval::{Amount, Interval};
use toast_format::model::sql::without_public;

/// What columns are ranked by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum SortBy {
    /// By size on disk
    #[default]
    Stored,
    /// By uncompressed size
    Raw,
    /// By free space and dead rows of the table and its TOAST relation (both are shown)
    #[value(alias = "wasted")]
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
    /// Relations that were read, completely or in part.
    pub read: u64,
    /// Relations of which a sample was read.
    pub sampled: u64,
    /// Relations of which no pages were read.
    pub by_functions: u64,
    /// Tables searched for findings: those of 1 MB or more, as far as there was time.
    pub looked_at: u64,
    /// Blocks of relations of which a sample was wanted.
    pub sampled_blocks: u64,
    /// Those of them that were read.
    pub sampled_blocks_read: u64,
    /// Size of the heaps, TOAST relations and their indexes, of all selected relations.
    pub bytes: u64,
    /// Those of relations that were left out.
    pub left_out_bytes: u64,
    /// Indexes of the relations that were read.
    pub index_bytes: u64,
    /// What the columns take of the relations that were read.
    pub columns_bytes: Amount,
    /// What is unused in heaps and TOAST relations; null where pages of some were not read.
    pub unused_bytes: Option<Amount>,
    /// The database's files, on all nodes that were read; null where that is not known.
    pub database_bytes: Option<u64>,
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
    limit: usize,
    /// Ranked, up to the limit.
    pub(crate) columns: Vec<RankedColumn>,
    /// Columns beyond the limit.
    pub(crate) more: u64,
    /// Stored bytes of these columns.
    pub(crate) more_bytes: Amount,
    /// Ranked, the worst first.
    pub(crate) findings: Vec<Finding>,
    pub(crate) left_out: Vec<LeftOut>,
    pub(crate) totals: Totals,
    /// Tables of Citus, the largest first.
    pub(crate) spread: Vec<Spread>,
    /// Databases, if there are several.
    pub(crate) databases: u64,
}

impl Overview {
    /// Puts columns in order and adds up those beyond the limit. Equal ones keep the order that they have.
    fn order(&mut self) {
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

    /// Puts the database's name before every relation, so that the overview can be joined with others. `place`: its
    /// connection options, for commands.
    pub(crate) fn name(&mut self, target: &str, place: &str) {
        self.databases = 1;
        let name: Arc<str> = target.into();
        self.columns.iter_mut().for_each(|column| column.target = Some(Arc::clone(&name)));
        for relation in &mut self.left_out {
            relation.relation = name_in(target, &relation.relation);
        }
        for spread in &mut self.spread {
            spread.table = name_in(target, &spread.table);
        }
        for finding in &mut self.findings {
            finding.relation = name_in(target, &finding.relation);
            if finding.command.starts_with("toastctl ") {
                finding.command = format!("{} {place}", finding.command);
            }
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
fn name_in(target: &str, relation: &str) -> String {
    format!("{target} {}", without_public(relation))
}

impl Totals {
    /// Whether relations were read without learning what is unused in them.
    fn lack_unused_bytes(&self) -> bool {
        self.unused_bytes.is_none() && self.read > 0
    }

    /// Adds those of another database.
    fn join(&mut self, other: &Totals) {
        self.unused_bytes = match (self.unused_bytes, other.unused_bytes) {
            _ if self.lack_unused_bytes() || other.lack_unused_bytes() => None,
            (sum @ Some(_), more @ Some(_)) => sum_if_known(sum, more),
            (one, other) => one.or(other),
        };
        let sums = [
            (&mut self.relations, other.relations),
            (&mut self.read, other.read),
            (&mut self.sampled, other.sampled),
            (&mut self.by_functions, other.by_functions),
            (&mut self.looked_at, other.looked_at),
            (&mut self.sampled_blocks, other.sampled_blocks),
            (&mut self.sampled_blocks_read, other.sampled_blocks_read),
            (&mut self.bytes, other.bytes),
            (&mut self.left_out_bytes, other.left_out_bytes),
            (&mut self.index_bytes, other.index_bytes),
        ];
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

/// Ends the text about a shard if other shards have the same problem.
const AND_OTHERS: &str = " and others";

/// Adds what was found in a shard to what was found in others of the table.
fn add_shard_findings(sums: &mut Vec<Finding>, shard: &ShardLine, findings: &[Finding]) {
    for finding in findings {
        let is_advised = finding.command.starts_with(SHOWN_BY);
        let same = sums.iter_mut().find(|sum| {
            sum.relation == shard.table
                && (sum.code, &sum.column) == (finding.code, &finding.column)
                && (sum.command == finding.command || is_advised)
        });
        let Some(sum) = same else {
            let what = format!("{} in the shard {}", finding.what, finding.relation);
            sums.push(Finding { relation: shard.table.clone(), what, ..finding.clone() });
            continue;
        };
        sum.value = sum.value.saturating_add(finding.value);
        sum.low = sum.low.saturating_add(finding.low);
        sum.high = sum.high.saturating_add(finding.high);
        sum.compaction = None;
        if !sum.what.ends_with(AND_OTHERS) {
            sum.what.push_str(AND_OTHERS);
        }
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
    tables: BTreeMap<String, TableFigures>,
    pub(crate) left_out: Vec<LeftOut>,
    /// Of all relations, as they come.
    pub(crate) findings: Vec<Finding>,
    /// Servers that are read.
    servers: u64,
    /// By table of Citus.
    spread: BTreeMap<String, ShardSizes>,
    /// What was counted of the relations that were read.
    pub(super) counted: Totals,
    /// The figures of all these relations.
    pub(super) all: TableFigures,
    /// The size of the largest one.
    pub(super) largest_bytes: u64,
    /// The largest number of values in a TOAST relation.
    pub(super) most_ids: Amount,
    pub(super) problems: u64,
}

/// A table, or all parts of one.
#[derive(Debug, Clone)]
pub(crate) struct TableLine {
    pub(crate) relation: String,
    pub(crate) figures: TableFigures,
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
        *self.tables.entry(table.clone()).or_insert(TableFigures::ZERO) += figures;
        if let Some(findings) = &relation.findings {
            match (&read.shard, &relation.part_of) {
                (Some(shard), Some(_)) => add_shard_findings(&mut self.findings, shard, findings),
                _ => self.findings.extend(findings.iter().cloned()),
            }
        }
        if let Some(shard) = &read.shard {
            let spread = self.spread.entry(shard.table.clone()).or_default();
            spread.copies = spread.copies.max(shard.copies);
            let place = (shard.range.clone(), shard.node.clone());
            let sum = spread.shards.entry(place).or_default();
            *sum = sum.saturating_add(figures.bytes());
        }
        for column in &relation.columns {
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
        let counted = &mut self.counted;
        counted.read += 1;
        counted.by_functions += u64::from(read.source == Source::Functions);
        counted.looked_at += u64::from(relation.findings.is_some());
        if let Some(sample) = &read.sample {
            counted.sampled += u64::from(sample.blocks_read < sample.blocks);
            counted.sampled_blocks += sample.blocks;
            counted.sampled_blocks_read += sample.blocks_read;
        }
        self.largest_bytes = self.largest_bytes.max(figures.bytes());
        self.problems = self.problems.saturating_add(read.problem_count);
        if let Some(values) = figures.toast_values
            && values.estimate > self.most_ids.estimate
        {
            self.most_ids = values;
        }
    }

    /// A server, or another one, will be read.
    pub(crate) fn begin(&mut self, extent: Extent) {
        self.extent = match self.servers {
            0 => extent,
            _ => self.extent.plus(extent),
        };
        self.servers += 1;
    }

    /// The totals of all relations.
    pub(crate) fn totals(&self) -> Totals {
        let left_out = &self.left_out;
        let left_out_bytes =
            left_out.iter().fold(0u64, |sum, one| sum.saturating_add(one.bytes.unwrap_or(0)));
        let read = self.counted.read;
        Totals {
            relations: self.extent.relations.max(read),
            bytes: self.all.bytes().saturating_add(left_out_bytes),
            left_out_bytes,
            index_bytes: self.all.index_bytes.unwrap_or(0),
            unused_bytes: if read > 0 { self.all.unused_bytes } else { None },
            database_bytes: self.extent.database_bytes,
            ..self.counted
        }
    }

    /// The first `limit` tables: the largest ones, unless the order is one of tables.
    pub(crate) fn tables(&self, by: SortBy, limit: usize) -> Vec<TableLine> {
        let lines = self.tables.iter();
        let mut tables: Vec<TableLine> = lines
            .map(|(relation, figures)| TableLine { relation: relation.clone(), figures: *figures })
            .collect();
        // ordered by name until here; equal ones keep that order
        match by {
            SortBy::Stored | SortBy::Raw => {
                tables.sort_by_key(|table| Reverse(table.figures.bytes()));
            }
            SortBy::Unused | SortBy::Read | SortBy::Dead => tables.sort_by_key(|table| {
                Reverse(table.figures.rank_figure(by).map(|figure| figure.estimate))
            }),
            SortBy::Name => {}
        }
        tables.truncate(limit);
        tables
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
            let first = (table.relation.clone(), String::new());
            let columns = self.columns.range(first..);
            let columns = columns.take_while(|((relation, _), _)| *relation == table.relation);
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
        let mut findings = std::mem::take(&mut self.findings);
        rank(&mut findings);
        let spread = std::mem::take(&mut self.spread).into_iter();
        let mut spread: Vec<Spread> = spread.map(|(table, sizes)| sizes.spread(table)).collect();
        spread.sort_by_key(|spread| Reverse(spread.bytes));
        let columns = self.columns.into_values().map(|line| {
            let line = line.with_share(totals.database_bytes);
            let table = self.tables.get(&on_node(&line.relation, line.node.as_ref()));
            let by_relation = table.and_then(|figures| figures.rank_figure(by));
            RankedColumn { target: None, line, by_relation }
        });
        let mut overview = Overview {
            by,
            limit,
            columns: columns.collect(),
            more: 0,
            more_bytes: Interval::exact(0),
            findings,
            left_out,
            totals,
            spread,
            databases: 0,
        };
        overview.order();
        overview
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::code::Code;
    use crate::findings::finding::Unit;
    use crate::inspect::overview::FormLine;
    use crate::inspect::result::RelationRead;
    use crate::server::catalog::RelationName;
    use toast_format::disk::desc::Storage;
    use toast_format::model::stored::Form;

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
            findings: None,
        }
    }

    fn ranking() -> Ranking {
        let mut ranking = Ranking::new(Extent { relations: 4, database_bytes: Some(1_000_000) });
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

    fn shard(id: i64, node: &str, copies: u64) -> ShardLine {
        let range = (copies == 1).then(|| (id % 2).to_string());
        ShardLine { node: node.into(), table: "public.d".into(), id, copies, range }
    }

    #[test]
    fn shards_are_spread_over_nodes_and_those_of_partitions_with_one_range_are_one() {
        let mut ranking = Ranking::new(Extent::default());
        ranking.begin(Extent { relations: 2, database_bytes: Some(70) });
        ranking.begin(Extent { relations: 2, database_bytes: Some(30) });
        for (id, node) in [(10, "a:1"), (11, "b:1"), (12, "a:1"), (13, "b:1"), (15, "b:1")] {
            let name = format!("public.d_{id}");
            let column = column(&name, "v", Interval::exact(id as u64), None);
            let mut line = relation(&name, None, Some(1), vec![column]);
            let finding = Finding {
                command: format!("toastctl compact {name}"),
                ..Finding::new(Code::FreeSpace, &name, Interval::exact(5.0), Unit::Bytes)
            };
            line.findings = Some(vec![finding]);
            line.place(shard(id, node, 1), (&format!("d_{id}"), "d"), false);
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
        let [finding] = overview.findings.as_slice() else { panic!("{:?}", overview.findings) };
        assert_eq!((finding.relation.as_str(), finding.value), ("public.d", 25));
        assert_eq!(finding.command, "toastctl compact public.d");
        assert!(finding.what.ends_with(" in the shard public.d_10 and others"), "{}", finding.what);
    }

    #[test]
    fn copies_are_counted_and_one_by_one_they_are_told_apart() {
        let of = |one_by_one| {
            let mut ranking = Ranking::new(Extent::default());
            for node in ["a:1", "b:1"] {
                let v = column("public.d_7", "v", Interval::exact(6), None);
                let mut line = relation("public.d_7", None, Some(1), vec![v]);
                line.place(shard(7, node, 2), ("d_7", "d"), one_by_one);
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
            overview.name(target, "-d x");
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
