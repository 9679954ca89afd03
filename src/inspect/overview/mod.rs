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
pub(crate) mod rank;
mod read;
pub(crate) mod run;

use serde::Serialize;

use super::result::{
    ColumnReport, FormReport, NotAvailable, ProblemReport, RelationReport, SampleReport, Source,
};
use crate::findings::code::WORTH;
use crate::findings::finding::Finding;
use crate::server::citus::ShardLine;
use toast_format::model::interval::Interval;

/// The overhead of a chunk: the tuple's header (24), `chunk_id` and `chunk_seq` (8), the data's header (4), the line
/// pointer (4), and what aligns it, half of 8.
pub(super) const CHUNK_OVERHEAD: u64 = 44;
/// Bytes of a page's header (`SizeOfPageHeaderData`).
const PAGE_HEADER: u64 = 24;

/// What the overview says about one relation.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub(crate) struct RelationLine {
    /// `schema.name`, or the file.
    pub(crate) relation: String,
    pub(crate) schema_name: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) oid: Option<u32>,
    #[schemars(extend("enum" = ["table", "materialized view", "TOAST relation", null]))]
    pub(crate) kind: Option<&'static str>,
    /// The access method, if it is not heap: sizes of files are then known, those of values are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) access_method: Option<String>,
    /// The topmost of the tables that it is a partition or an inheritance child of, if it is reported as a part of
    /// that.
    pub(crate) part_of: Option<String>,
    /// What it is a shard of, if it belongs to a table of Citus that was selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shard: Option<ShardLine>,
    pub(crate) source: Source,
    /// The blocks read; null if all were.
    pub(crate) sample: Option<SampleReport>,
    /// Size of the main fork.
    pub(crate) heap_bytes: Option<u64>,
    /// Size of the TOAST relation.
    pub(crate) toast_bytes: Option<u64>,
    /// Size of the TOAST relation's index.
    pub(crate) toast_index_bytes: Option<u64>,
    /// Values in the TOAST relation, each with an ID of its own; null without one, or if it is not known where every
    /// value is.
    pub(crate) toast_values: Option<Interval<u64>>,
    /// All indexes of the relation.
    pub(crate) index_bytes: Option<u64>,
    /// Rows that a SELECT returns.
    pub(crate) rows: Option<Interval<u64>>,
    /// In heap and TOAST relation: free space and dead rows. Null where pages were not read.
    pub(crate) unused_bytes: Option<Interval<u64>>,
    /// Rows read through indexes, according to the statistics; toastctl itself reads none this way. Null for files.
    pub(crate) rows_read: Option<u64>,
    /// Dead rows of heap and TOAST relation, according to the statistics. Null for files.
    pub(crate) dead_rows: Option<u64>,
    /// In the order of the table; empty if the access method is not heap.
    pub(crate) columns: Vec<ColumnLine>,
    /// Figures that this source cannot give.
    pub(crate) not_available: Vec<NotAvailable>,
    /// The first 1000 problems: what could not be read.
    pub(crate) problems: Vec<ProblemReport>,
    /// How many problems there are in all.
    pub(crate) problem_count: u64,
    /// Avoidable costs, if they were searched for; ranked with those of other relations.
    #[serde(skip)]
    pub(crate) findings: Option<Vec<Finding>>,
}

/// One column, of a relation or of all parts of one.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub(crate) struct ColumnLine {
    /// `schema.name`; for parts that are added up, the name of the table that they belong to.
    pub(crate) relation: String,
    pub(crate) column: String,
    /// As `\d` prints it; null if parts differ.
    #[serde(rename = "type")]
    pub(crate) type_name: Option<String>,
    /// Null if the parts differ.
    #[schemars(extend("enum" = ["plain", "main", "external", "extended", null]))]
    pub(crate) storage: Option<&'static str>,
    /// The column's compression method; null for the server's default, or if parts differ.
    #[schemars(extend("enum" = ["pglz", "lz4", null]))]
    pub(crate) compression: Option<&'static str>,
    /// How many relations are added up here.
    pub(crate) parts: u64,
    /// On how many nodes of Citus the same rows are; the figures are those of all copies. Left out without copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) copies: Option<u64>,
    /// The node of the shard, if shards are reported one by one (--parts).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    /// Values that are not NULL.
    pub(crate) values: Option<Interval<u64>>,
    /// In the relation's files: values as they are stored, and TOAST pointers.
    pub(crate) stored_bytes: Interval<u64>,
    /// Content without headers; null if not known of every value.
    pub(crate) raw_bytes: Option<Interval<u64>>,
    /// Raw size divided by stored size (as `pg_column_size` counts).
    pub(crate) ratio: Option<Interval>,
    /// Stored in the TOAST relation; null if it is not known where every value is.
    pub(crate) out_of_line_bytes: Option<Interval<u64>>,
    /// `stored_bytes` as a fraction of the database's files; null if their size is not known.
    pub(crate) share: Option<Interval>,
    /// `stored_bytes` by form and compression method, as far as they are known; forms without bytes are left out.
    pub(crate) forms: Vec<FormLine>,
    /// Stored bytes as `pg_column_size` counts them, for the ratio of a sum.
    #[serde(skip)]
    measured: Option<Interval<u64>>,
}

/// The values of a column in one form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub(crate) struct FormLine {
    #[schemars(extend("enum" = ["short", "plain", "compressed", "external", "external_compressed", "custom", "unknown"]))]
    pub(crate) form: &'static str,
    #[schemars(extend("enum" = ["pglz", "lz4", null]))]
    pub(crate) method: Option<&'static str>,
    /// Values as they are stored, and TOAST pointers.
    pub(crate) stored_bytes: Interval<u64>,
}

impl FormLine {
    /// A form that takes space in the relation, if it is one.
    fn new(report: &FormReport) -> Option<FormLine> {
        let (stored, pointers) = match &report.estimates {
            Some(estimates) => (estimates.stored_bytes?, estimates.pointer_bytes?),
            None => (Interval::exact(report.stored_bytes?), Interval::exact(report.pointer_bytes)),
        };
        // that a sample has no pointers would widen the interval
        let stored_bytes = if pointers.estimate > 0 { stored.plus(pointers) } else { stored };
        let takes_space = report.form != "missing" && stored_bytes.estimate > 0;
        takes_space.then_some(FormLine { form: report.form, method: report.method, stored_bytes })
    }
}

/// A relation that was not read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub(crate) struct LeftOut {
    /// The relation as `schema.name`.
    pub(crate) relation: String,
    /// Heap, TOAST relation and its index; of locked ones those of the last VACUUM. Null if the node could not be
    /// reached.
    pub(crate) bytes: Option<u64>,
    pub(crate) reason: String,
}

/// What is known before any relation is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Relations that were selected.
    pub(crate) relations: u64,
    /// Their heaps, TOAST relations and indexes of these.
    pub(crate) bytes: u64,
    /// Files of the database; `None` where that is not known.
    pub(crate) database_bytes: Option<u64>,
}

impl Extent {
    /// Adds that of another server.
    pub(crate) fn plus(self, other: Extent) -> Extent {
        let databases = self.database_bytes.zip(other.database_bytes);
        Extent {
            relations: self.relations.saturating_add(other.relations),
            bytes: self.bytes.saturating_add(other.bytes),
            database_bytes: databases.map(|(bytes, more)| bytes.saturating_add(more)),
        }
    }
}

impl RelationLine {
    /// Makes it a line of a shard: its columns are part of the table's, unless shards are reported one by one. Commands
    /// name the table, which is what Citus and this program work on. `names`: those of the shard and the table.
    pub(crate) fn place(&mut self, shard: ShardLine, names: (&str, &str), one_by_one: bool) {
        let copies = (shard.copies > 1).then_some(shard.copies);
        for column in &mut self.columns {
            column.copies = copies;
            column.node = one_by_one.then(|| shard.node.clone());
        }
        self.part_of = (!one_by_one).then(|| shard.table.clone());
        for finding in self.findings.iter_mut().flatten() {
            finding.command = shard.command(&finding.command, names);
        }
        self.shard = Some(shard);
    }

    /// The line of a relation's report. The parts of a rolled-up relation name it as `part_of`.
    pub(crate) fn new(
        report: &RelationReport,
        part_of: Option<String>,
        database_bytes: Option<u64>,
    ) -> RelationLine {
        let mut columns = Vec::new();
        if report.access_method.is_none() {
            let reports = report.columns.iter();
            let relation = &report.relation;
            columns.extend(reports.map(|column| ColumnLine::new(relation, column, database_bytes)));
        }
        let toast_bytes = report.toast.as_ref().and_then(|toast| toast.bytes);
        let file_bytes = report.heap.bytes.unwrap_or(0).saturating_add(toast_bytes.unwrap_or(0));
        let of_server = matches!(report.source, Source::Pageinspect | Source::Functions);
        let rows = match report.sample {
            Some(_) => report.tuples.live_estimate,
            None => Some(Interval::exact(report.tuples.live)),
        };
        RelationLine {
            part_of,
            shard: report.shard.clone(),
            rows,
            unused_bytes: unused(report, &columns),
            heap_bytes: report.heap.bytes,
            index_bytes: report.heap.index_bytes,
            toast_bytes,
            toast_values: report.toast.as_ref().and_then(|toast| match report.sample {
                _ if toast.unplaced_values.is_some_and(|values| values > 0) => None,
                Some(_) => toast.values_estimate,
                None => Some(Interval::exact(toast.values)),
            }),
            toast_index_bytes: report.toast.as_ref().and_then(|toast| toast.index_bytes),
            rows_read: None,
            dead_rows: None,
            columns,
            relation: report.relation.clone(),
            schema_name: report.schema_name.clone(),
            name: report.name.clone(),
            oid: report.oid,
            kind: report.kind,
            access_method: report.access_method.clone(),
            source: report.source,
            sample: report.sample,
            not_available: report.not_available.clone(),
            problems: report.problems.clone(),
            problem_count: report.problem_count,
            findings: if of_server || file_bytes >= WORTH {
                report.findings.as_ref().map(|found| found.findings.clone())
            } else {
                None
            },
        }
    }

    /// Heap, TOAST relation and its index.
    pub(crate) fn bytes(&self) -> u64 {
        [self.heap_bytes, self.toast_bytes, self.toast_index_bytes]
            .into_iter()
            .fold(0u64, |sum, bytes| sum.saturating_add(bytes.unwrap_or(0)))
    }
}

impl ColumnLine {
    fn new(relation: &str, report: &ColumnReport, database_bytes: Option<u64>) -> ColumnLine {
        let out_of_line_bytes = out_of_line(report);
        let (values, stored_bytes, raw_bytes, ratio, measured) = match &report.estimates {
            Some(e) => {
                (e.values, e.own_bytes.unwrap_or_default(), e.raw_bytes, e.ratio, e.stored_bytes)
            }
            None => (
                Some(Interval::exact(report.values)),
                Interval::exact(report.own_bytes),
                report.raw_bytes.map(Interval::exact),
                report.ratio.map(Interval::exact),
                report.stored_bytes.map(Interval::exact),
            ),
        };
        ColumnLine {
            relation: relation.to_owned(),
            column: report.column.clone(),
            type_name: Some(report.type_name.clone()),
            storage: Some(report.storage),
            compression: report.compression,
            parts: 1,
            copies: None,
            node: None,
            values,
            stored_bytes,
            raw_bytes,
            ratio,
            out_of_line_bytes,
            forms: report.forms.iter().filter_map(FormLine::new).collect(),
            share: database_bytes.and_then(|whole| stored_bytes.ratio_to(Interval::exact(whole))),
            measured,
        }
    }
}

/// Bytes of a column in the TOAST relation.
fn out_of_line(report: &ColumnReport) -> Option<Interval<u64>> {
    let mut sum = Interval::exact(0);
    for form in &report.forms {
        match form.form {
            "external" | "external_compressed" | "custom" => {}
            // in the row, if it is known where they all are
            "unknown" if form.values > 0 && report.unplaced_values != Some(0) => return None,
            _ => continue,
        }
        let bytes = match &form.estimates {
            Some(estimates) => estimates.stored_bytes,
            None => form.stored_bytes.map(Interval::exact),
        };
        // values of one block have several forms, so what one has more the other may have too
        sum = sum.plus(bytes?);
    }
    Some(sum)
}

/// What live rows and their chunks do not take of heap and TOAST relation.
fn unused(report: &RelationReport, columns: &[ColumnLine]) -> Option<Interval<u64>> {
    let tuples = &report.tuples;
    let (free, live, dead) = match report.sample {
        Some(_) => (
            report.heap.free_bytes_estimate?,
            tuples.live_estimate?.estimate,
            tuples.dead_estimate?.estimate,
        ),
        None => (Interval::exact(report.heap.free_bytes?), tuples.live, tuples.dead?),
    };
    let headers = report.heap.blocks?.saturating_mul(PAGE_HEADER);
    let used = report.heap.bytes?.saturating_sub(headers).saturating_sub(free.estimate);
    let dead_bytes = match live.saturating_add(dead) {
        0 => 0,
        all => (used as f64 * (dead as f64 / all as f64)) as u64,
    };
    let heap = free.plus(Interval::exact(dead_bytes));
    let Some(toast) = &report.toast else { return Some(heap) };
    let chunks = match report.sample {
        Some(_) => toast.chunks_estimate?,
        None => Interval::exact(toast.chunks),
    };
    let mut live = Interval {
        estimate: chunks.estimate.saturating_mul(CHUNK_OVERHEAD),
        low: chunks.low.saturating_mul(CHUNK_OVERHEAD),
        high: chunks.high.saturating_mul(CHUNK_OVERHEAD),
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
