//! The overview of many relations: what each of their columns takes, measured or estimated, in one ranking.
//!
//! * this file: what is reported about a relation and a column, derived from a relation's report (pure);
//! * [`rank`]: lines added up over partitions and children, ranked (pure);
//! * [`figures`]: named figures of all of them, and conditions about these (pure);
//! * [`read`]: one relation, and which of its blocks are read; `queue`: how the time is divided; [`run`]: all of
//!   them, concurrently.
//!
//! The JSON shape is that of [`super::document`]. Sizes are bytes. Each figure that may come from a sample has its
//! 95 % confidence interval; both ends are the figure itself if it was counted.

pub(crate) mod figures;
mod queue;
pub mod rank;
mod read;
pub(crate) mod run;

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use super::result::{ColumnFigures, FormFigures, RelationRead, RelationReport, Source};
use crate::command::TableName;
use crate::findings::code::WORTH;
use crate::findings::content::MethodTrial;
use crate::findings::facts::Facts;
use crate::findings::finding::Finding;
use crate::findings::whole::TablePart;
use crate::server::about::Compression;
use crate::server::citus::ShardLine;
use crate::server::listing::Root;
use toast_format::codec::Method;
use toast_format::disk::Storage;
use toast_format::model::interval::Amount;
use toast_format::model::{Form, Interval};

/// The overhead of a chunk: the tuple's header (24), `chunk_id` and `chunk_seq` (8), the data's header (4), the line
/// pointer (4), and what aligns it, half of 8.
pub(super) const CHUNK_OVERHEAD: u64 = 44;
/// Bytes of a page's header (`SizeOfPageHeaderData`).
const PAGE_HEADER: u64 = 24;

/// What the overview says about one relation.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RelationLine {
    #[serde(flatten)]
    pub read: RelationRead,
    /// The topmost of the tables that it is a partition or an inheritance child of, if it is reported as a part of
    /// that.
    pub part_of: Option<String>,
    #[serde(flatten)]
    pub figures: TableFigures,
    /// In the order of the table; empty if the access method is not heap.
    pub columns: Vec<ColumnLine>,
    /// Avoidable costs, if they were searched for; ranked with those of other relations.
    #[serde(skip)]
    pub findings: Option<Vec<Finding>>,
    /// What those of the whole table follow from.
    #[serde(skip)]
    pub(super) facts: Option<Box<Facts>>,
    /// The table that it is reported as a part of.
    #[serde(skip)]
    pub(super) whole: Option<TableName>,
    /// Whether it is an inheritance child of that.
    #[serde(skip)]
    pub(super) is_child: bool,
}

/// Figures of a relation, or of all parts of a table, not of single columns.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct TableFigures {
    /// Size of the main fork.
    pub heap_bytes: Option<u64>,
    /// Size of the TOAST relation.
    pub toast_bytes: Option<u64>,
    /// Size of the TOAST relation's index.
    pub toast_index_bytes: Option<u64>,
    /// Values in the TOAST relation, each with an ID of its own; null without one, or if it is not known where every
    /// value is.
    pub toast_values: Option<Amount>,
    /// All indexes of the relation.
    pub index_bytes: Option<u64>,
    /// Rows that a SELECT returns.
    pub rows: Option<Amount>,
    /// Whether row security may hide rows from this session, so that the figures of rows and of columns are those of
    /// visible rows alone.
    pub visible_rows_only: bool,
    /// In heap and TOAST relation: free space and dead rows. Null where pages were not read.
    pub unused_bytes: Option<Amount>,
    /// In heap and TOAST relation: values of dropped columns in live rows. Null where pages were not read.
    pub dropped_bytes: Option<Amount>,
    /// Rows read through indexes, according to the statistics; toastctl itself reads none this way. Null for files.
    pub rows_read: Option<u64>,
    /// Dead rows of heap and TOAST relation, according to the statistics. Null for files.
    pub dead_rows: Option<u64>,
    /// Seconds since the last VACUUM, by hand or automatic, according to the statistics; of parts the most. Null if they
    /// have none, and for files.
    pub vacuum_age_seconds: Option<u64>,
    /// Findings of any severity. Null if they were not searched for.
    #[serde(rename = "finding_count")]
    pub findings: Option<u64>,
}

impl TableFigures {
    /// The sum of no parts.
    pub(crate) const ZERO: TableFigures = {
        let nothing = Some(Amount { estimate: 0, low: 0, high: 0 });
        TableFigures {
            heap_bytes: Some(0),
            toast_bytes: Some(0),
            toast_index_bytes: Some(0),
            toast_values: nothing,
            index_bytes: Some(0),
            rows: nothing,
            visible_rows_only: false,
            unused_bytes: nothing,
            dropped_bytes: nothing,
            rows_read: Some(0),
            dead_rows: Some(0),
            vacuum_age_seconds: Some(0),
            findings: None,
        }
    };

    /// Heap, TOAST relation and its index.
    pub(crate) fn bytes(&self) -> u64 {
        [self.heap_bytes, self.toast_bytes, self.toast_index_bytes]
            .into_iter()
            .fold(0u64, |sum, bytes| sum.saturating_add(bytes.unwrap_or(0)))
    }

    /// These and all other indexes.
    pub(crate) fn bytes_with_indexes(&self) -> u64 {
        self.bytes().saturating_add(self.index_bytes.unwrap_or(0))
    }
}

impl AddAssign<&TableFigures> for TableFigures {
    /// Adds another part. Files that are not there have no bytes; other figures are known if those of all parts are.
    fn add_assign(&mut self, part: &TableFigures) {
        for (sum, bytes) in [
            (&mut self.heap_bytes, part.heap_bytes),
            (&mut self.toast_bytes, part.toast_bytes),
            (&mut self.toast_index_bytes, part.toast_index_bytes),
            (&mut self.index_bytes, part.index_bytes),
        ] {
            *sum = Some(sum.unwrap_or(0).saturating_add(bytes.unwrap_or(0)));
        }
        let without = if part.toast_bytes.is_none() { Some(Interval::exact(0)) } else { None };
        self.toast_values = sum_if_known(self.toast_values, part.toast_values.or(without));
        self.rows = sum_if_known(self.rows, part.rows);
        self.visible_rows_only = self.visible_rows_only || part.visible_rows_only;
        self.unused_bytes = sum_if_known(self.unused_bytes, part.unused_bytes);
        self.dropped_bytes = sum_if_known(self.dropped_bytes, part.dropped_bytes);
        for (sum, more) in
            [(&mut self.rows_read, part.rows_read), (&mut self.dead_rows, part.dead_rows)]
        {
            *sum = sum.zip(more).map(|(sum, more)| sum.saturating_add(more));
        }
        let ages = self.vacuum_age_seconds.zip(part.vacuum_age_seconds);
        self.vacuum_age_seconds = ages.map(|(age, other)| age.max(other));
        if let Some(findings) = part.findings {
            self.findings = Some(self.findings.unwrap_or(0) + findings);
        }
    }
}

/// The sum of two figures that were measured independently, if both are known.
fn sum_if_known(sum: Option<Amount>, more: Option<Amount>) -> Option<Amount> {
    sum.zip(more).map(|(sum, more)| sum.plus_independent(more))
}

/// One column, of a relation or of all parts of one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ColumnLine {
    /// `schema.name`; for parts that are added up, the name of the table that they belong to.
    pub relation: String,
    pub column: String,
    /// As `\d` prints it; null if parts differ.
    #[serde(rename = "type")]
    pub type_name: Option<String>,
    /// Null if the parts differ.
    pub storage: Option<Storage>,
    /// The column's compression method; null for the server's default, or if parts differ.
    pub compression: Option<Method>,
    /// How many relations are added up here.
    pub parts: u64,
    /// On how many nodes of Citus the same rows are; the figures are those of all copies. Left out without copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<u64>,
    /// The node of the shard, if shards are reported one by one (--parts).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Whether row security may hide rows from this session, so that the figures are those of visible rows alone.
    pub visible_rows_only: bool,
    /// Values that are not NULL.
    pub values: Amount,
    /// In the relation's files: values as they are stored, and TOAST pointers.
    pub stored_bytes: Amount,
    /// Content without headers; null if not known of every value.
    pub raw_bytes: Option<Amount>,
    /// Raw size divided by stored size (as `pg_column_size` counts).
    pub ratio: Option<Interval>,
    /// Stored in the TOAST relation; null if it is not known where every value is.
    pub out_of_line_bytes: Option<Amount>,
    /// `stored_bytes` as a fraction of the database's files; null if their size is not known.
    pub share: Option<Interval>,
    /// `stored_bytes` by form and compression method, as far as they are known; forms without bytes are left out.
    pub forms: Vec<FormLine>,
    /// Stored bytes as `pg_column_size` counts them, for the ratio of a sum.
    #[serde(skip)]
    measured: Option<Amount>,
}

/// The values of a column in one form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FormLine {
    pub form: Form,
    pub method: Option<Method>,
    /// Values as they are stored, and TOAST pointers.
    pub stored_bytes: Amount,
}

impl FormLine {
    /// The form with its method, as in `external_compressed lz4`.
    pub(crate) fn shown(&self) -> String {
        match self.method {
            Some(method) => format!("{} {}", self.form.name(), method.name()),
            None => self.form.name().to_owned(),
        }
    }

    /// A form that takes space in the relation, if it is one.
    fn new(figures: &FormFigures) -> Option<FormLine> {
        let FormFigures { form, method, all, .. } = *figures;
        let stored = all.stored_bytes?;
        // that a sample has no pointers would widen the interval
        let has_pointers = all.pointer_bytes.estimate > 0;
        let stored_bytes = if has_pointers { stored.plus(all.pointer_bytes) } else { stored };
        let takes_space = form != Form::Missing && stored_bytes.estimate > 0;
        takes_space.then_some(FormLine { form, method, stored_bytes })
    }
}

impl AddAssign<&ColumnLine> for ColumnLine {
    /// Adds the column of another part of the table.
    fn add_assign(&mut self, part: &ColumnLine) {
        self.parts += part.parts;
        self.visible_rows_only = self.visible_rows_only || part.visible_rows_only;
        if self.type_name != part.type_name {
            self.type_name = None;
        }
        if self.storage != part.storage {
            self.storage = None;
        }
        if self.compression != part.compression {
            self.compression = None;
        }
        self.values = self.values.plus_independent(part.values);
        self.stored_bytes = self.stored_bytes.plus_independent(part.stored_bytes);
        self.raw_bytes = sum_if_known(self.raw_bytes, part.raw_bytes);
        self.measured = sum_if_known(self.measured, part.measured);
        self.out_of_line_bytes = sum_if_known(self.out_of_line_bytes, part.out_of_line_bytes);
        self.ratio = self.raw_bytes.zip(self.measured).and_then(|(raw, size)| raw.ratio_to(size));
        for more in &part.forms {
            let key = (more.form, more.method);
            match self.forms.binary_search_by_key(&key, |form| (form.form, form.method)) {
                Ok(at) => {
                    if let Some(form) = self.forms.get_mut(at) {
                        form.stored_bytes = form.stored_bytes.plus_independent(more.stored_bytes);
                    }
                }
                Err(at) => self.forms.insert(at, more.clone()),
            }
        }
    }
}

/// A relation that was not read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LeftOut {
    /// The relation as `schema.name`.
    pub relation: String,
    /// Heap, TOAST relation and its index; of locked ones those of the last VACUUM. Null if the node could not be
    /// reached.
    pub bytes: Option<u64>,
    pub reason: String,
    /// Whether it was not looked at because its access method is not heap: nothing is missing for that in figures of
    /// tables that could not be read.
    #[serde(default)]
    pub not_heap: bool,
    /// The table of Citus that it is a shard of.
    #[serde(skip)]
    pub(crate) whole: Option<String>,
}

impl LeftOut {
    pub(crate) fn new(relation: String, bytes: Option<u64>, reason: String) -> LeftOut {
        LeftOut { relation, bytes, reason, not_heap: false, whole: None }
    }

    /// The table, of which it may be a shard.
    pub(crate) fn table(&self) -> &str {
        self.whole.as_ref().unwrap_or(&self.relation)
    }
}

/// What system catalogs take, without their indexes.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct CatalogBytes {
    /// Heaps, TOAST relations and their indexes of the schema pg_catalog.
    pub catalog_bytes: u64,
    /// Those of them of pg_largeobject.
    pub large_object_bytes: u64,
}

impl CatalogBytes {
    fn plus(self, other: CatalogBytes) -> CatalogBytes {
        CatalogBytes {
            catalog_bytes: self.catalog_bytes.saturating_add(other.catalog_bytes),
            large_object_bytes: self.large_object_bytes.saturating_add(other.large_object_bytes),
        }
    }
}

/// What is known before any relation is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Relations that were selected.
    pub(crate) relations: u64,
    /// What system catalogs take.
    pub(crate) catalogs: CatalogBytes,
    /// Files of the database; `None` where that is not known.
    pub(crate) database_bytes: Option<u64>,
    /// The server's methods; `None` for files, and if servers differ.
    pub(crate) compression: Option<Compression>,
}

impl Extent {
    /// Adds that of another server.
    pub(crate) fn plus(self, other: Extent) -> Extent {
        let databases = self.database_bytes.zip(other.database_bytes);
        Extent {
            relations: self.relations.saturating_add(other.relations),
            catalogs: self.catalogs.plus(other.catalogs),
            database_bytes: databases.map(|(bytes, more)| bytes.saturating_add(more)),
            compression: match (self.compression, other.compression) {
                (Some(one), Some(other)) if one.default == other.default => {
                    Some(Compression { lz4: one.lz4 || other.lz4, ..one })
                }
                _ => None,
            },
        }
    }
}

impl RelationLine {
    /// Makes it a line of a shard: its columns are part of the table's, unless shards are reported one by one. Commands
    /// name the table, which is what Citus and this program work on. `names`: those of the shard and the table. `whole`: the
    /// table that it is added up in.
    pub(crate) fn place(
        &mut self,
        shard: ShardLine,
        names: (&str, &str),
        whole: Option<TableName>,
    ) {
        if let Some(TableName::Known { name, .. }) =
            self.facts.as_mut().map(|facts| &mut facts.table)
        {
            names.1.clone_into(name);
        }
        let copies = (shard.copies > 1).then_some(shard.copies);
        for column in &mut self.columns {
            column.copies = copies;
            column.node = whole.is_none().then(|| shard.node.clone());
        }
        self.part_of = whole.is_some().then(|| shard.table.clone());
        self.whole = whole;
        for finding in self.findings.iter_mut().flatten() {
            finding.command = shard.command(&finding.command, names);
        }
        self.read.shard = Some(shard);
    }

    /// The same as a part of this table.
    pub(crate) fn part_of(self, root: Root) -> RelationLine {
        let Root { schema, name, is_partitioned, .. } = root;
        let whole = TableName::Known { schema, name };
        RelationLine {
            part_of: Some(whole.shown()),
            whole: Some(whole),
            is_child: !is_partitioned,
            ..self
        }
    }

    /// The table that it is, or is a part of, for findings about it; `None` for files, and for shards that are reported one
    /// by one.
    fn as_part(&self) -> Option<(TableName, TablePart)> {
        let facts = self.facts.as_deref()?.clone();
        let findings = self.findings.clone()?;
        let is_shard = self.read.shard.is_some();
        let table = match &self.whole {
            Some(whole) => whole.clone(),
            None if is_shard => return None,
            None => facts.table.clone(),
        };
        Some((table, TablePart { facts, findings, is_shard, is_child: self.is_child }))
    }

    /// What both compression methods make of some values of a column, if it was examined.
    fn trial(&self, column: &str) -> Option<MethodTrial> {
        let mut columns = self.facts.as_ref()?.columns.iter();
        Some(columns.find(|known| known.name == column)?.contents.trial)
    }

    /// The line of a relation's report.
    pub(crate) fn new(report: &RelationReport, database_bytes: Option<u64>) -> RelationLine {
        let RelationReport { read, heap, .. } = report;
        let visible_rows_only = report.tuples.visible_rows_only;
        let mut columns = Vec::new();
        if read.access_method.is_none() {
            columns = column_lines(report, &report.columns, database_bytes);
        }
        let dropped = report.dropped_columns.as_ref();
        let dropped = dropped.map(|columns| column_lines(report, columns, database_bytes));
        let are_all_placed = !visible_rows_only && dropped.is_some();
        let toast = report.toast.as_ref();
        let toast_bytes = toast.and_then(|toast| toast.bytes);
        let file_bytes = heap.bytes.unwrap_or(0).saturating_add(toast_bytes.unwrap_or(0));
        let of_server = matches!(read.source, Source::Pageinspect | Source::Functions);
        let mut findings = None;
        if of_server || file_bytes >= WORTH {
            findings = report.findings.as_ref().map(|found| found.findings.clone());
        }
        RelationLine {
            part_of: None,
            figures: TableFigures {
                heap_bytes: heap.bytes,
                toast_bytes,
                toast_index_bytes: toast.and_then(|toast| toast.index_bytes),
                toast_values: toast
                    .filter(|toast| are_all_placed && toast.unplaced_values.is_none())
                    .map(|toast| toast.values),
                index_bytes: heap.index_bytes,
                rows: Some(report.tuples.live),
                visible_rows_only,
                unused_bytes: unused(report, columns.iter().chain(dropped.iter().flatten())),
                dropped_bytes: dropped.map(|columns| total_stored(&columns)),
                rows_read: None,
                dead_rows: None,
                vacuum_age_seconds: None,
                findings: findings.as_ref().map(|found| found.len() as u64),
            },
            columns,
            read: read.clone(),
            findings,
            facts: report.facts.clone(),
            whole: None,
            is_child: false,
        }
    }
}

impl ColumnLine {
    /// The same with its part of the database.
    fn with_share(self, database_bytes: Option<u64>) -> ColumnLine {
        ColumnLine { share: share(self.stored_bytes, database_bytes), ..self }
    }
}

/// A column's part of the database.
fn share(stored_bytes: Amount, database_bytes: Option<u64>) -> Option<Interval> {
    stored_bytes.ratio_to(Interval::exact(database_bytes?))
}

/// Bytes of a column in the TOAST relation.
fn out_of_line(column: &ColumnFigures) -> Option<Amount> {
    let mut sum = Interval::exact(0);
    for FormFigures { form, all, .. } in &column.forms {
        match form {
            Form::External | Form::ExternalCompressed | Form::Custom => {}
            // in the row, if it is known where they all are
            Form::Unknown if column.unplaced_values != Some(0) => return None,
            _ => continue,
        }
        let stored = all.stored_bytes?;
        // those of dummy_toaster are in their pointers
        if *form != Form::Custom || all.chunks.estimate > 0 {
            // values of one block have several forms, so what one has more the other may have too
            sum = sum.plus(stored);
        }
    }
    Some(sum)
}

/// Lines of columns of one relation.
fn column_lines(
    report: &RelationReport,
    columns: &[ColumnFigures],
    database_bytes: Option<u64>,
) -> Vec<ColumnLine> {
    let columns = columns.iter().map(|figures| ColumnLine {
        relation: report.read.name.relation.clone(),
        column: figures.column.clone(),
        type_name: Some(figures.type_name.clone()),
        storage: Some(figures.storage),
        compression: figures.compression,
        parts: 1,
        copies: None,
        node: None,
        visible_rows_only: report.tuples.visible_rows_only,
        values: figures.all.values,
        stored_bytes: figures.own_bytes,
        raw_bytes: figures.all.raw_bytes,
        ratio: figures.ratio,
        out_of_line_bytes: out_of_line(figures),
        forms: figures.forms.iter().filter_map(FormLine::new).collect(),
        share: share(figures.own_bytes, database_bytes),
        measured: figures.all.stored_bytes,
    });
    columns.collect()
}

/// What columns of one relation take in its files.
fn total_stored(columns: &[ColumnLine]) -> Amount {
    let stored = columns.iter().map(|column| column.stored_bytes);
    stored.fold(Interval::exact(0), Amount::plus)
}

/// What live rows and their chunks do not take of heap and TOAST relation. `columns`: all that hold values.
fn unused<'a>(
    report: &RelationReport,
    columns: impl Iterator<Item = &'a ColumnLine>,
) -> Option<Amount> {
    let free = report.heap.free_bytes?;
    let live = report.tuples.live.estimate;
    let dead = report.tuples.dead?.estimate;
    let headers = report.heap.blocks?.saturating_mul(PAGE_HEADER);
    let used = report.heap.bytes?.saturating_sub(headers).saturating_sub(free.estimate);
    let dead_bytes = match live.saturating_add(dead) {
        0 => 0,
        all => (used as f64 * (dead as f64 / all as f64)) as u64,
    };
    let heap = free.plus(Interval::exact(dead_bytes));
    let Some(toast) = &report.toast else { return Some(heap) };
    let Amount { estimate, low, high } = toast.chunks;
    let mut live = Interval {
        estimate: estimate.saturating_mul(CHUNK_OVERHEAD),
        low: low.saturating_mul(CHUNK_OVERHEAD),
        high: high.saturating_mul(CHUNK_OVERHEAD),
    };
    for column in columns {
        live = live.plus(column.out_of_line_bytes?);
    }
    let pages = toast.bytes?;
    let room = pages.saturating_sub(pages / report.page_size.max(1) * PAGE_HEADER);
    let toast = Interval {
        estimate: room.saturating_sub(live.estimate),
        low: room.saturating_sub(live.high),
        high: room.saturating_sub(live.low),
    };
    Some(heap.plus(toast))
}
