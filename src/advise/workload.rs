//! What the user wants and how the table is used: what candidates are weighed by.

use std::fmt;

/// How scans that do not need the column weigh, if nothing is known of them: a tenfold heap by a quarter.
pub(super) const SCAN_WEIGHT: f64 = 0.1;

/// `--optimize`: what counts most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Optimize {
    /// Size, reads and writes, weighed by the workload
    #[default]
    Balanced,
    /// Size
    Size,
    /// The time of reads, as long as the table does not grow by more than 10 %
    Read,
    /// Bytes and WAL per UPDATE, as long as the table does not grow by more than 10 %
    Write,
}

/// What is known of how the table is used.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Workload {
    /// Rows read for each row written.
    pub reads_per_write: Option<f64>,
    /// Where that comes from.
    pub source: WorkloadSource,
    /// The part of the rows read that sequential scans read, if the server's statistics tell.
    pub scanned: Option<f64>,
}

/// Where the workload is known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WorkloadSource {
    /// Nothing is known: 10 reads per write are assumed.
    #[default]
    Assumed,
    Given,
    Statistics,
    /// The texts of so many statements in `pg_stat_statements`.
    Statements(usize),
}

impl fmt::Display for WorkloadSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WorkloadSource::Assumed => "assumed",
            WorkloadSource::Given => "given",
            WorkloadSource::Statistics => "pg_stat_user_tables",
            WorkloadSource::Statements(_) => "pg_stat_statements",
        })
    }
}

impl Workload {
    /// Reads for each write, assumed if not known.
    pub fn ratio(&self) -> f64 {
        self.reads_per_write.unwrap_or(10.0)
    }

    /// How scans that do not need the column weigh, beside one half each for size and time.
    pub fn scan_weight(&self) -> f64 {
        self.scanned.map_or(SCAN_WEIGHT, |part| 2.0 * SCAN_WEIGHT * part.clamp(0.0, 1.0))
    }
}
