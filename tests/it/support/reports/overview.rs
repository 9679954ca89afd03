//! `inspect --format json` of many tables.

use serde::Deserialize;
use toastctl::findings::finding::Finding;
pub(crate) use toastctl::inspect::overview::rank::{TableLine, Totals};
pub(crate) use toastctl::inspect::overview::{ColumnLine, LeftOut, RelationLine};

use super::{Document, Printed};

#[derive(Clone, Deserialize)]
pub(crate) struct Overview {
    pub(crate) schema: String,
    pub(crate) server: Option<Server>,
    #[serde(rename = "tables")]
    pub(crate) relations: Vec<Printed<RelationLine>>,
    pub(crate) ranked_tables: Vec<TableLine>,
    pub(crate) columns: Vec<Printed<ColumnLine>>,
    pub(crate) findings: Vec<Printed<Finding>>,
    pub(crate) left_out: Vec<LeftOut>,
    pub(crate) totals: Totals,
}

impl Document for Overview {
    const SCHEMA: &'static str = "inspect";
}

/// The last line of `--format jsonl`.
#[derive(Clone, Deserialize)]
pub(crate) struct LastLine {
    pub(crate) columns: Vec<Printed<ColumnLine>>,
    pub(crate) left_out: Vec<LeftOut>,
    pub(crate) totals: Totals,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Server {
    pub(crate) version_num: u64,
}
