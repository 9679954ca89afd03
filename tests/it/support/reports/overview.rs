//! `inspect --format json` of many tables.

use serde::Deserialize;

use super::inspect::{Finding, Sample};
use super::{Document, Interval, Printed, Source};

#[derive(Clone, Deserialize)]
pub(crate) struct Overview {
    pub(crate) schema: String,
    pub(crate) server: Option<Server>,
    #[serde(rename = "tables")]
    pub(crate) relations: Vec<Printed<Relation>>,
    pub(crate) columns: Vec<Printed<Column>>,
    pub(crate) findings: Vec<Printed<Finding>>,
    pub(crate) left_out: Vec<Printed<LeftOut>>,
    pub(crate) totals: Printed<Totals>,
}

impl Document for Overview {
    const SCHEMA: &'static str = "inspect";
}

/// The last line of `--format jsonl`.
#[derive(Clone, Deserialize)]
pub(crate) struct LastLine {
    pub(crate) columns: Vec<Printed<Column>>,
    pub(crate) left_out: Vec<Printed<LeftOut>>,
    pub(crate) totals: Printed<Totals>,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Server {
    pub(crate) version_num: u64,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Relation {
    pub(crate) relation: String,
    pub(crate) name: Option<String>,
    pub(crate) part_of: Option<String>,
    pub(crate) source: Source,
    pub(crate) sample: Option<Sample>,
    pub(crate) unused_bytes: Option<Interval>,
    pub(crate) rows_read: Option<u64>,
    pub(crate) dead_rows: Option<u64>,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Column {
    pub(crate) relation: String,
    pub(crate) column: String,
    pub(crate) parts: u64,
    pub(crate) values: Option<Interval>,
    pub(crate) stored_bytes: Interval,
    pub(crate) raw_bytes: Option<Interval>,
    pub(crate) out_of_line_bytes: Option<Interval>,
}

#[derive(Clone, Deserialize)]
pub(crate) struct LeftOut {
    pub(crate) relation: String,
    pub(crate) reason: String,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Totals {
    pub(crate) relations: u64,
    pub(crate) read: u64,
    pub(crate) sampled: u64,
    pub(crate) by_functions: u64,
    pub(crate) looked_at: u64,
    pub(crate) sampled_blocks_read: u64,
    pub(crate) unused_bytes: Option<Interval>,
}
