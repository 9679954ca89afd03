//! The JSON document of `inspect`, for one table or many: what is known about each, and the totals. Its shape is
//! documented in `man/json/inspect.schema.json`.

use serde::Serialize;

use super::compare::RunComparison;
use super::figures::problem_reports;
use super::overview::rank::{Overview, Spread, TableLine, Totals};
use super::overview::{ColumnLine, LeftOut, RelationLine, TableFigures};
use super::result::{RelationRead, RelationReport, SCHEMA, SampleReport, Source};
use crate::advise::explain::result::Explanation;
use crate::findings::finding::Finding;
use crate::server::about::ServerReport;

/// What toastctl inspect --format json prints. Sizes are bytes; a figure that is not known is null. Each figure of a
/// table that may come from a sample is an estimate with the ends of its 95 % confidence interval; both ends are the
/// estimate itself if it was counted. Tables are printed as they are completed. With --format jsonl each line is one
/// table, to which the field schema is added; after an overview of several, the last line has schema and the fields
/// that follow tables.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Document {
    #[schemars(extend("const" = SCHEMA))]
    schema: &'static str,
    /// When it was begun, in UTC.
    time: String,
    /// The server, for live sources.
    server: Option<ServerReport>,
    tables: Vec<Table>,
    #[serde(flatten)]
    summary: Option<Summary<'static>>,
}

impl Document {
    /// `time`: when it was begun, in UTC.
    pub(crate) fn new(server: Option<ServerReport>, time: String) -> Document {
        Document { schema: SCHEMA, time, server, tables: Vec::new(), summary: None }
    }
}

/// One table, materialized view, TOAST relation or file.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Table {
    #[serde(flatten)]
    line: RelationLine,
    /// The full report: if it is the only table, and with --details.
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<RelationReport>,
    /// What reads and updates cost (--explain).
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<Explanation>,
}

impl From<&RelationLine> for Table {
    fn from(line: &RelationLine) -> Table {
        Table { line: line.clone(), details: None, explanation: None }
    }
}

impl From<&RelationReport> for Table {
    fn from(report: &RelationReport) -> Table {
        let line = RelationLine::new(report, None);
        Table { line, details: Some(report.clone()), explanation: None }
    }
}

impl From<&Explanation> for Table {
    fn from(explanation: &Explanation) -> Table {
        let Explanation { table, sample, rows, problems, .. } = explanation;
        let sample = (!sample.complete).then_some(SampleReport {
            blocks: u64::from(sample.total_blocks),
            blocks_read: u64::from(sample.blocks),
            seed: sample.seed,
        });
        let line = RelationLine {
            read: RelationRead {
                name: table.clone(),
                source: Source::Pageinspect,
                sample,
                problems: problem_reports(problems),
                problem_count: problems.count(),
                ..RelationRead::default()
            },
            figures: TableFigures { rows: Some(rows.whole()), ..TableFigures::default() },
            ..RelationLine::default()
        };
        Table { line, details: None, explanation: Some(explanation.clone()) }
    }
}

/// The totals of an overview.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Summary<'a> {
    /// Tables, ranked by --sort, those of parts added up; only the first --limit, if it is given.
    pub(crate) ranked_tables: &'a [TableLine],
    /// The columns of all tables, ranked by --sort, those of parts added up; only the first --limit, if it is given.
    pub(crate) columns: Vec<&'a ColumnLine>,
    /// Avoidable costs in tables of 1 MB or more, the worst first.
    findings: &'a [Finding],
    /// The selected relations that were not read.
    left_out: &'a [LeftOut],
    /// Names and patterns of the tables that were selected, and with `!` of those that were not; empty: all were.
    selected: &'a [String],
    totals: &'a Totals,
    /// How the tables of Citus are spread, the largest first; left out without any.
    #[serde(skip_serializing_if = "<[Spread]>::is_empty")]
    citus: &'a [Spread],
    /// What has changed since the run of --compare.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) compared: Option<&'a RunComparison>,
}

impl<'a> From<&'a Overview> for Summary<'a> {
    fn from(overview: &'a Overview) -> Summary<'a> {
        let Overview { tables, columns, findings, left_out, selected, totals, spread, .. } =
            overview;
        let columns = columns.iter().map(|column| &column.line).collect();
        Summary {
            ranked_tables: tables,
            columns,
            findings,
            left_out,
            selected,
            totals,
            citus: spread,
            compared: None,
        }
    }
}
