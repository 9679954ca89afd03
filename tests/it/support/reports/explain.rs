//! `inspect --explain --format json`.

use serde::Deserialize;

use super::{Document, Interval, Printed};

#[derive(Clone, Deserialize)]
pub(crate) struct Explanation {
    pub(crate) sample: Sample,
    pub(crate) heap_blocks: u64,
    pub(crate) rows: Interval,
    pub(crate) index_levels: Option<u64>,
    pub(crate) widths: Vec<Width>,
    pub(crate) update_other: Written,
    pub(crate) columns: Vec<Printed<Column>>,
    pub(crate) problem_count: u64,
}

impl Document for Explanation {
    const SCHEMA: &'static str = "inspect";
    const LIST: Option<&'static str> = Some("tables");
}

impl Explanation {
    #[track_caller]
    pub(crate) fn column(&self, name: &str) -> &Printed<Column> {
        let found = self.columns.iter().find(|column| column.column == name);
        found.unwrap_or_else(|| panic!("no column {name} in {:?}", self.columns))
    }
}

#[derive(Clone, Deserialize)]
pub(crate) struct Sample {
    pub(crate) values_looked_up: u64,
    pub(crate) complete: bool,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Width {
    pub(crate) from: u64,
    pub(crate) share: Interval,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Written {
    pub(crate) heap_bytes: Interval,
    pub(crate) toast_bytes: Interval,
    pub(crate) wal_bytes: Interval,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Column {
    pub(crate) column: String,
    pub(crate) values: Interval,
    pub(crate) external_values: Interval,
    pub(crate) custom_values: Interval,
    pub(crate) read: Option<Read>,
    pub(crate) scan_buffers: Interval,
    pub(crate) update: Written,
    pub(crate) append: Option<Written>,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Read {
    pub(crate) toast_buffers: Interval,
    pub(crate) chunks: Interval,
}
