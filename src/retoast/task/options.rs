//! How a table is swept.

use std::time::Duration;

/// Pages of a window of one job.
const WINDOW: u32 = 8;
/// Passes over a window.
const PASSES: u32 = 8;
/// Bytes of values that a batch stores at the most.
const BATCH_BYTES: u64 = 16 << 20;

/// Which rows are compared before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// None.
    Off,
    /// Those of one batch in 32, the first among them.
    Sample,
    /// All.
    Full,
}

/// How to go about it.
#[derive(Debug, Clone)]
pub struct Options {
    /// How the sweep goes.
    pub tuning: Tuning,
    /// Which rows are compared.
    pub verify: Verify,
    /// The longest wait for a lock.
    pub lock_timeout: Duration,
    /// Whether row security is to be an error where it would hide rows.
    pub row_security_off: bool,
    /// Only look.
    pub dry_run: bool,
    /// The replication origin of what is written.
    pub origin: Option<String>,
    /// Set right what somebody else changes of the settings meanwhile.
    pub enforce: bool,
    /// Put the settings back as they were unless all gets done.
    pub undo: bool,
}

/// How the sweep goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tuning {
    /// Pages of a window, or with several jobs of as many windows as jobs.
    pub window: u32,
    /// Passes over a window.
    pub passes: u32,
    /// How long a batch is to take.
    pub batch: Duration,
    /// Bytes of values that a batch stores at the most, unless one row has more.
    pub batch_bytes: u64,
    /// Part of a relation's size that may be dead before it is vacuumed.
    pub max_bloat: f64,
    /// Transactions under way at a time, a vacuum counted.
    pub jobs: usize,
}

impl Tuning {
    pub(crate) fn new(batch: Duration, max_bloat: f64, jobs: usize) -> Tuning {
        let (window, passes, batch_bytes) = (WINDOW, PASSES, BATCH_BYTES);
        Tuning { window, passes, batch, batch_bytes, max_bloat, jobs }
    }

    /// The same with so many jobs.
    pub(crate) fn with_jobs(self, jobs: usize) -> Tuning {
        let windows = u32::try_from(self.jobs.max(1)).unwrap_or(u32::MAX);
        let window =
            (self.window / windows).saturating_mul(u32::try_from(jobs).unwrap_or(1)).max(1);
        Tuning { window, jobs, ..self }
    }
}
