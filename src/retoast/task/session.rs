//! The connections, the user's options, and what else all tasks share.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::retoast::error::RetoastError;
use crate::retoast::listener::Listener;
use crate::retoast::pace::lock_tries::LockTries;
use crate::retoast::pace::metrics;
use crate::retoast::pace::rules::WorkKind;
use crate::retoast::pace::throttle::Throttle;
use crate::server::about::Pageinspect;
use crate::server::about::Server;
use crate::server::connect::{Client, Connection};

/// The connections of one worker, which works on one table at a time.
#[derive(Clone)]
pub(crate) struct Connections {
    /// For the transactions of the first job.
    pub(crate) writer: Arc<Connection>,
    /// For the transactions of the other jobs.
    pub(crate) others: Vec<Arc<Connection>>,
    /// For scans. Their snapshot must not be held while batches run.
    pub(crate) reader: Arc<Connection>,
}

impl Connections {
    pub(crate) fn all(&self) -> Vec<Arc<Connection>> {
        self.iter().cloned().collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Connection>> {
        [&self.writer].into_iter().chain(&self.others).chain([&self.reader])
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Arc<Connection>> {
        [&mut self.writer].into_iter().chain(&mut self.others).chain([&mut self.reader])
    }
}

/// What the tasks of a run work with.
#[derive(Clone)]
pub(crate) struct Session<'a> {
    pub(crate) connections: Connections,
    pub(crate) server: &'a Server,
    pub(crate) options: &'a Options,
    /// How scans read pages; if `None`, they use SQL functions.
    pub(crate) pages: Option<&'a Pageinspect>,
    /// How long a transaction may wait for this program before the server ends its session and releases its locks.
    pub(crate) idle_limit: Duration,
    pub(crate) throttle: &'a Throttle,
    pub(crate) listener: &'a dyn Listener,
    pub(crate) stop: &'a CancellationToken,
}

impl Session<'_> {
    /// The connection of a job.
    pub(crate) fn connection(&self, job: usize) -> &Connection {
        let Connections { writer, others, .. } = &self.connections;
        job.checked_sub(1).and_then(|other| others.get(other)).unwrap_or(writer)
    }

    /// The connection of the first job.
    pub(crate) fn writer(&self) -> &Client {
        self.connections.writer.client()
    }

    pub(crate) fn reader(&self) -> &Connection {
        &self.connections.reader
    }

    /// The number of concurrent transactions.
    pub(crate) fn jobs(&self) -> usize {
        self.connections.others.len() + 1
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Sleeps until the time is over or a stop is requested.
    pub(crate) async fn sleep(&self, time: Duration) {
        self.stop.run_until_cancelled(tokio::time::sleep(time)).await;
    }

    /// Returns once the throttle allows this work to begin, or a stop is requested.
    pub(crate) async fn pass(&self, work: WorkKind, job: usize) -> Result<(), RetoastError> {
        self.throttle.pass(work, self.connection(job), self.listener).await
    }

    pub(crate) async fn rollback(&self, job: usize) -> Result<(), RetoastError> {
        Ok(self.connection(job).client().batch_execute("ROLLBACK").await?)
    }

    /// Attempts to get a lock on the table `name`.
    pub(crate) fn tries<'b>(&'b self, name: &'b str) -> LockTries<'b> {
        LockTries {
            name,
            listener: self.listener,
            stop: self.stop,
            lock_timeout: self.options.lock_timeout,
            may_wait: self.throttle.may_wait(),
        }
    }

    /// Bytes of WAL written since the cluster was created.
    pub(crate) async fn wal(&self) -> Result<u64, RetoastError> {
        Ok(metrics::wal(&self.connections.writer).await?)
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Pages in a window of one job.
const WINDOW: u32 = 8;
/// Passes over a window.
const PASSES: u32 = 8;
/// The maximum size of the values that a batch stores.
const BATCH_BYTES: u64 = 16 << 20;

/// Which rows are compared before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Verify {
    /// None
    Off,
    /// Those of one transaction in 32
    #[default]
    Sample,
    /// All
    Full,
}

/// The options shared by all tasks of a run.
#[derive(Debug, Clone)]
pub struct Options {
    pub tuning: Tuning,
    /// Which rows are compared before and after they are stored.
    pub verify: Verify,
    /// The maximum wait for a lock.
    pub lock_timeout: Duration,
    /// Whether to make only a plan.
    pub dry_run: bool,
    /// Whether to write on a server newer than the newest tested version.
    pub untested_server: bool,
    /// The replication origin of what the run writes.
    pub origin: Option<String>,
    /// Whether to restore settings that another session changes during the run.
    pub enforce: bool,
    /// Whether a run that does not complete restores the settings that it has changed.
    pub restores_settings: bool,
}

/// The sizes and the pace of a sweep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tuning {
    /// Pages read at a time: a window, or with several jobs, one window for each job.
    pub window: u32,
    /// Passes over a window.
    pub passes: u32,
    /// The target duration of a batch.
    pub batch: Duration,
    /// The maximum size of the values that a batch stores, unless a single row has more.
    pub batch_bytes: u64,
    /// The fraction of a relation's size that may be dead before it is vacuumed.
    pub max_bloat: f64,
    /// The number of concurrent transactions, including a VACUUM.
    pub jobs: usize,
}

impl Tuning {
    pub(crate) fn new(batch: Duration, max_bloat: f64, jobs: usize) -> Tuning {
        let (window, passes, batch_bytes) = (WINDOW, PASSES, BATCH_BYTES);
        Tuning { window, passes, batch, batch_bytes, max_bloat, jobs }
    }

    /// The same tuning for another number of jobs.
    pub(crate) fn with_jobs(self, jobs: usize) -> Tuning {
        let windows = u32::try_from(self.jobs.max(1)).unwrap_or(u32::MAX);
        let window =
            (self.window / windows).saturating_mul(u32::try_from(jobs).unwrap_or(1)).max(1);
        Tuning { window, jobs, ..self }
    }
}
