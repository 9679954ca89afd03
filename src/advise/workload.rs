//! What the user wants and how the table is used: what candidates are weighed by.

use std::fmt;

/// Reads for each write, if nothing is known of them.
const ASSUMED_RATIO: f64 = 10.0;
/// The part of the rows read that sequential scans read, if nothing is known of them.
const ASSUMED_SCANNED: f64 = 0.5;
/// Rows read and written from which on the statistics tell something.
const LEAST_ACTIVITY: f64 = 1000.0;

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
    /// The table's counters, which bound it so.
    Statistics(Bound),
    /// The texts of so many statements in `pg_stat_statements`.
    Statements(usize),
}

/// How counters tell a figure. They do not tell whose sequential scans they counted: toastctl's own ones, and
/// those of dumps, are among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// By what others read through indexes, which toastctl never does: it is at least that much.
    Least,
    /// By all that was read and written: it is at most that much, unless most of the writes are retoast's.
    Most,
}

/// What the server's counters of a table tell.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counted {
    /// Rows read by index.
    pub by_index: f64,
    /// Rows read by sequential scans, whosever they were.
    pub scanned: f64,
    /// Rows updated, or inserted beyond those that are there now (the load).
    pub written: f64,
}

impl Counted {
    /// Rows read for each row written, where that is surely not what is assumed.
    pub fn reads_per_write(&self) -> Option<(f64, Bound)> {
        let writes = self.written.max(1.0);
        let (least, most) = (self.by_index / writes, (self.by_index + self.scanned) / writes);
        if least > ASSUMED_RATIO && self.by_index + self.written >= LEAST_ACTIVITY {
            Some((least, Bound::Least))
        } else if most < ASSUMED_RATIO && self.written >= LEAST_ACTIVITY {
            Some((most, Bound::Most))
        } else {
            None
        }
    }

    /// The part of the rows read that sequential scans read, where that is surely less than what is assumed.
    pub fn scanned_part(&self) -> Option<f64> {
        let reads = self.by_index + self.scanned;
        let part = self.scanned / reads.max(1.0);
        (reads >= LEAST_ACTIVITY && part < ASSUMED_SCANNED).then_some(part)
    }
}

impl fmt::Display for WorkloadSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WorkloadSource::Assumed => "assumed",
            WorkloadSource::Given => "given",
            WorkloadSource::Statistics(_) => "pg_stat_user_tables",
            WorkloadSource::Statements(_) => "pg_stat_statements",
        })
    }
}

impl Workload {
    /// Reads for each write, assumed if not known.
    pub fn ratio(&self) -> f64 {
        self.reads_per_write.unwrap_or(ASSUMED_RATIO)
    }

    /// How scans that do not need the column weigh, beside one half each for size and time.
    pub fn scan_weight(&self) -> f64 {
        self.scanned.map_or(SCAN_WEIGHT, |part| 2.0 * SCAN_WEIGHT * part.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_that_may_be_our_own_make_no_ratio() {
        let counted = |by_index, scanned, written| Counted { by_index, scanned, written };
        // inspect has read all rows twice
        assert_eq!(counted(0.0, 40_000.0, 1.0).reads_per_write(), None);
        assert_eq!(counted(0.0, 40_000.0, 1.0).scanned_part(), None);
        // others read by index
        let read = counted(40_000.0, 20_000.0, 100.0);
        assert_eq!(read.reads_per_write(), Some((400.0, Bound::Least)));
        assert!(read.scanned_part().is_some_and(|part| (part - 1.0 / 3.0).abs() < 1e-9));
        // there are so many writes that it does not matter whose the scans are
        let written = counted(0.0, 40_000.0, 40_000.0);
        assert_eq!(written.reads_per_write(), Some((1.0, Bound::Most)));
        assert_eq!(counted(5000.0, 40_000.0, 1000.0).reads_per_write(), None);
        // too few to tell
        assert_eq!(counted(400.0, 0.0, 10.0).reads_per_write(), None);
        assert_eq!(counted(10.0, 0.0, 400.0).reads_per_write(), None);
        assert_eq!(counted(400.0, 10.0, 0.0).scanned_part(), None);
    }
}
