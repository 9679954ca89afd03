//! `advise-threshold --format json`.

use serde::Deserialize;

use super::{Document, Interval, Printed, Range, Source};

#[derive(Clone, Deserialize)]
pub(crate) struct Report {
    pub(crate) relation: String,
    pub(crate) name: String,
    pub(crate) column: String,
    pub(crate) sample: Printed<Sample>,
    pub(crate) files: Files,
    pub(crate) compaction: Option<Printed<Compaction>>,
    pub(crate) workload: Printed<Workload>,
    pub(crate) calibration: Printed<Calibration>,
    pub(crate) candidates: Vec<Printed<Candidate>>,
    pub(crate) pluggable: Vec<Printed<Pluggable>>,
    pub(crate) recommendation: Printed<Recommendation>,
    pub(crate) notes: Vec<String>,
    pub(crate) problems: Vec<String>,
    pub(crate) problem_count: u64,
}

impl Document for Report {
    const SCHEMA: &'static str = "advise-threshold";
    const LIST: Option<&'static str> = Some("columns");
}

impl Report {
    /// The table as it is.
    pub(crate) fn today(&self) -> &Printed<Candidate> {
        &self.candidates[0]
    }

    /// The candidate that is recommended, be it today's settings.
    pub(crate) fn chosen(&self) -> &Printed<Candidate> {
        &self.candidates[self.recommendation.candidate]
    }

    /// All notes, one to a line.
    pub(crate) fn notes(&self) -> String {
        self.notes.join("\n")
    }
}

#[derive(Clone, Deserialize)]
pub(crate) struct Sample {
    pub(crate) blocks: u64,
    pub(crate) total_blocks: u64,
    pub(crate) rows: u64,
    pub(crate) rows_examined: u64,
    pub(crate) read_bytes: u64,
    pub(crate) limit: Option<String>,
    pub(crate) complete: bool,
    pub(crate) exact: bool,
    pub(crate) source: Source,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Files {
    pub(crate) heap_bytes: u64,
    pub(crate) toast_bytes: u64,
    pub(crate) toast_index_bytes: u64,
    pub(crate) total_bytes: u64,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Compaction {
    pub(crate) heap_bytes: u64,
    pub(crate) toast_bytes: u64,
    pub(crate) files: Vec<Printed<File>>,
    pub(crate) indexes: Vec<Index>,
    pub(crate) command: String,
}

#[derive(Clone, Deserialize)]
pub(crate) struct File {
    pub(crate) file: String,
    pub(crate) blocks_read: u64,
    pub(crate) blocks: u64,
    pub(crate) gives_back: u64,
    pub(crate) rows: Option<u64>,
    pub(crate) values: Option<u64>,
    pub(crate) moved_bytes: u64,
    pub(crate) wal_bytes: Range,
    pub(crate) estimated: bool,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Index {
    pub(crate) gives_back: u64,
    pub(crate) wal_bytes: u64,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Workload {
    pub(crate) reads_per_day: f64,
    pub(crate) writes_per_day: f64,
    pub(crate) source: String,
    pub(crate) scans_per_day: f64,
}

/// What CPU times rest on.
#[derive(Clone, Deserialize)]
pub(crate) struct Calibration {
    pub(crate) source: String,
    pub(crate) why: Option<String>,
    pub(crate) values: u64,
    pub(crate) prices: serde_json::Value,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Candidate {
    pub(crate) settings: Settings,
    pub(crate) name: String,
    pub(crate) today: bool,
    pub(crate) recommended: bool,
    pub(crate) pareto: bool,
    pub(crate) after_command_bytes: Interval,
    pub(crate) before_compaction_bytes: u64,
    after_vacuum_full: Sizes,
    pub(crate) scan_buffers: Change,
    pub(crate) chunks: Change,
    pub(crate) read_buffers_per_value: Change,
    pub(crate) read_cpu_ns_per_value: CpuTime,
    pub(crate) update_bytes_per_value: Change,
    pub(crate) update_wal_bytes_per_value: Change,
    pub(crate) costs: Costs,
    pub(crate) forms: Printed<Forms>,
    pub(crate) caveats: Vec<String>,
    pub(crate) refused_rows: u64,
    pub(crate) refusal: Option<String>,
}

/// A CPU time, whose interval only calibration tells.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub(crate) struct CpuTime {
    pub(crate) estimate: f64,
    pub(crate) low: Option<f64>,
    pub(crate) high: Option<f64>,
    pub(crate) change: Option<CpuChange>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub(crate) struct CpuChange {
    pub(crate) estimate: f64,
}

/// Further costs of a candidate.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Costs {
    pub(crate) write_cpu_ns_per_value: CpuTime,
    pub(crate) other_update_wal_bytes_per_row: Change,
    pub(crate) hot_update_wal_bytes_per_row: Change,
    pub(crate) full_page_bytes_per_value: Change,
    pub(crate) prefix_read: Option<Prefix>,
    pub(crate) cold_read_pages_per_value: Change,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Prefix {
    pub(crate) buffers_per_value: Change,
    pub(crate) cpu_ns_per_value: CpuTime,
}

/// What VACUUM FULL leaves.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Sizes {
    pub(crate) heap_bytes: Change,
    pub(crate) toast_bytes: Change,
    pub(crate) toast_index_bytes: Change,
    pub(crate) total_bytes: Change,
}

impl std::ops::Deref for Candidate {
    type Target = Sizes;

    fn deref(&self) -> &Sizes {
        &self.after_vacuum_full
    }
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Settings {
    pub(crate) target: u64,
    pub(crate) policy: String,
}

/// A figure, and what it is in parts of today's.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub(crate) struct Change {
    #[serde(flatten)]
    pub(crate) now: Interval,
    pub(crate) change: Option<Interval>,
}

impl std::ops::Deref for Change {
    type Target = Interval;

    fn deref(&self) -> &Interval {
        &self.now
    }
}

#[derive(Clone, Deserialize)]
pub(crate) struct Forms {
    pub(crate) custom: u64,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Extraction {
    pub(crate) auto: bool,
    pub(crate) known_uses: Vec<KnownUse>,
    pub(crate) keys: Vec<Key>,
    pub(crate) documents: u64,
    pub(crate) heap_bytes: Change,
    pub(crate) toast_bytes: Change,
    pub(crate) total_bytes: Change,
    pub(crate) wide_rows_today: u64,
    pub(crate) wide_rows: u64,
    pub(crate) today: Access,
    pub(crate) rest: Access,
    pub(crate) whole: Access,
    pub(crate) script: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct KnownUse {
    pub(crate) key: String,
    pub(crate) named_in: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Key {
    pub(crate) key: String,
    pub(crate) column: String,
    #[serde(rename = "type")]
    pub(crate) type_name: String,
    pub(crate) access: Access,
}

/// What it costs to read and to change a key, or the document without them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Access {
    pub(crate) scan_buffers: Change,
    pub(crate) update_wal_bytes: Change,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Pluggable {
    pub(crate) toaster: String,
    pub(crate) values: u64,
    pub(crate) divided_values: u64,
    pub(crate) inline_bytes_per_value: f64,
    pub(crate) toast_bytes_per_value: f64,
    pub(crate) read_buffers: f64,
    pub(crate) whole_read_buffers: f64,
    pub(crate) whole_read_buffers_today: f64,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Recommendation {
    pub(crate) candidate: usize,
    pub(crate) reasons: String,
    pub(crate) weighting: String,
    pub(crate) command: Vec<String>,
    pub(crate) after_bytes: Interval,
}
