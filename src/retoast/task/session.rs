//! The connections, the user's options, and what else all tasks share.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::retoast::error::Result;
use crate::retoast::listener::Listener;
use crate::retoast::pace::lock_tries::LockTries;
use crate::retoast::pace::metrics;
use crate::retoast::pace::rules::WorkKind;
use crate::retoast::pace::throttle::Throttle;
pub(crate) use crate::retoast::pace::throttle::millis;
use crate::server::{Client, Connection, Pageinspect, Server};
use toast_format::disk::Oid;
use toast_format::fill::file_model::MAX_BATCH;

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
    pub(crate) fn to_vec(&self) -> Vec<Arc<Connection>> {
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
    pub(crate) throttle: &'a Throttle<'a>,
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
    pub(crate) async fn pass(&self, work: WorkKind, job: usize) -> Result<()> {
        self.throttle.wait_until_allowed(work, self.connection(job)).await
    }

    pub(crate) async fn rollback(&self, job: usize) -> Result<()> {
        Ok(self.connection(job).client().batch_execute("ROLLBACK").await?)
    }

    /// Attempts to get a lock on the table `name`.
    pub(crate) fn tries<'b>(&'b self, name: &'b str, table: Oid) -> LockTries<'b> {
        LockTries {
            name,
            listener: self.listener,
            stop: self.stop,
            lock_timeout: self.options.lock_timeout,
            may_wait: self.throttle.patience.left(),
            throttle: Some(self.throttle),
            table,
        }
    }

    /// Bytes of WAL written since the cluster was created.
    pub(crate) async fn wal(&self) -> Result<u64> {
        Ok(metrics::wal(&self.connections.writer).await?)
    }
}

/// The smallest number of pages in a window.
const LEAST_WINDOW: u32 = 8;
/// Passes over a window.
const PASSES: u32 = 8;
/// The number of rows in a pass from which on the fixed cost of its transaction matters little. Several jobs share that
/// cost, but a pass of theirs has no fewer rows than the latter number.
const ROWS_OF_PASS: (f64, f64) = (100.0, 25.0);
/// A window has at most this part of the pages that may be dead, because each pass leaves old values until the next
/// vacuum.
const LEAST_PARTS: u32 = 4;

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
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Tuning {
    /// The smallest number of pages in a window; for several jobs, in all their windows, if passes have enough rows.
    pub least_window: u32,
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
        Tuning {
            least_window: LEAST_WINDOW,
            passes: PASSES,
            batch,
            batch_bytes: MAX_BATCH,
            max_bloat,
            jobs,
        }
    }

    /// The number of windows that take turns, pass by pass: what a transaction leaves can be pruned only after all
    /// transactions that were running at its end have ended, and most have by the window's next turn.
    pub(crate) fn turns(&self) -> u32 {
        if self.jobs > 1 { u32::try_from(self.jobs).map_or(u32::MAX, |jobs| jobs + 1) } else { 1 }
    }

    /// The number of pages in each window of a chunk of `blocks` pages, of a table of `table` pages.
    ///
    /// A pass takes enough rows for its transaction to be worth its fixed cost, but during the passes, pages of all
    /// current windows are left half empty, and those of indexes and TOAST too. These windows therefore have no more
    /// pages together than may be dead, unless the table is small.
    pub(crate) fn window(&self, rows_per_page: f64, blocks: u32, table: u32) -> u32 {
        let turns = self.turns();
        let jobs = u32::try_from(self.jobs.max(1)).unwrap_or(u32::MAX);
        let rows = (ROWS_OF_PASS.0 / f64::from(jobs)).max(ROWS_OF_PASS.1);
        let wanted = rows * f64::from(self.passes.max(1)) / rows_per_page.max(f64::EPSILON);
        let part = f64::from(table) * self.max_bloat / f64::from(turns.max(LEAST_PARTS));
        let most = (part as u32).max(self.least_window);
        let window = (wanted.ceil() as u32).min(most).max(self.least_window / jobs).max(1);
        // windows of equal size, and as many as take turns, so that no job waits for the last one
        let windows = blocks.div_ceil(window).next_multiple_of(turns);
        let windows = windows.min(blocks / window.min(self.least_window.max(1))).max(1);
        blocks.div_ceil(windows).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning(jobs: usize) -> Tuning {
        Tuning::new(Duration::from_millis(100), 0.05, jobs)
    }

    /// The windows of the chunks of a table with this many rows to re-toast on each page.
    fn window(jobs: usize, rows_per_page: f64, table: u32) -> u32 {
        tuning(jobs).window(rows_per_page, table.min(256), table)
    }

    #[test]
    fn windows_have_as_many_pages_as_passes_need_rows() {
        assert_eq!(window(1, 11.0, 1_000_000), 64);
        assert_eq!(window(1, 40.0, 1_000_000), 20);
        // 135 rows with values out of line
        assert_eq!(window(1, 135.0, 1_000_000), 8);
        assert_eq!(window(1, 0.5, 1_000_000), 256);
    }

    #[test]
    fn windows_are_a_part_of_the_table() {
        assert_eq!(window(1, 11.0, 5448), 64);
        assert_eq!(window(1, 11.0, 2000), 24);
        assert_eq!(window(1, 11.0, 600), 8);
        assert_eq!(window(1, 11.0, 5), 5);
        let tight = Tuning { max_bloat: 0.015, ..tuning(1) };
        assert_eq!(tight.window(11.0, 256, 5448), 20);
        for jobs in 1..40 {
            let tuning = tuning(jobs);
            for (table, rows) in [(1u32, 0.0), (7, 3.0), (100, 11.0), (5448, 11.0), (90_000, 0.1)] {
                let blocks = table.min(256);
                let window = tuning.window(rows, blocks, table);
                let whole = f64::from(window * tuning.turns());
                assert!(
                    (8.min(table)..=blocks.max(1)).contains(&window),
                    "{jobs}, {table}: {window}"
                );
                // those of a small table have 8 pages or, if they are made equal, somewhat more
                let most = (f64::from(table) * 0.05).max(f64::from(15 * tuning.turns()));
                assert!(whole <= most, "{jobs}, {table}: {window}");
            }
        }
    }

    #[test]
    fn windows_of_several_jobs_are_smaller_and_all_take_turns() {
        let alone = window(1, 11.0, 5448);
        let two = window(2, 11.0, 5448);
        assert_eq!((alone, two), (64, 29));
        assert_eq!(256u32.div_ceil(two) % tuning(2).turns(), 0);
        assert_eq!(window(2, 11.0, 600), window(1, 11.0, 600));
        // rows with values out of line are enough, and more of them would make the TOAST index grow
        assert_eq!(window(2, 135.0, 5448), 4);
    }
}
