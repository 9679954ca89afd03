//! The connections, and what else all work in them has in common.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::error::RunError;
use super::options::Options;
use crate::retoast::pace::gauges;
use crate::retoast::pace::keeper::Keeper;
use crate::retoast::pace::lock_tries::LockTries;
use crate::retoast::pace::manners::Work;
use crate::retoast::sweep::scan_source::ScanSource;
use crate::retoast::watch::Watch;
use crate::server::about::Server;
use crate::server::connect::{Client, Connection};

/// The connections that work on one table at a time.
#[derive(Clone)]
pub(crate) struct Connections {
    /// For the transactions of the first job.
    pub(crate) writer: Arc<Connection>,
    /// For those of the others.
    pub(crate) others: Vec<Arc<Connection>>,
    /// For scans: no snapshot may be held while batches run.
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
    pub(crate) source: &'a ScanSource,
    /// How long a transaction may wait for this program before the server gives its locks back.
    pub(crate) idle_limit: Duration,
    pub(crate) throttle: &'a Keeper,
    pub(crate) listener: &'a dyn Watch,
    pub(crate) stop: &'a CancellationToken,
}

impl Session<'_> {
    /// The connection of a job.
    pub(crate) fn connection(&self, job: usize) -> &Connection {
        let Connections { writer, others, .. } = &self.connections;
        job.checked_sub(1).and_then(|other| others.get(other)).unwrap_or(writer)
    }

    /// The first job's.
    pub(crate) fn writer(&self) -> &Client {
        self.connections.writer.client()
    }

    pub(crate) fn reader(&self) -> &Connection {
        &self.connections.reader
    }

    /// Transactions under way at a time.
    pub(crate) fn jobs(&self) -> usize {
        self.connections.others.len() + 1
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Waits for some time, or until a stop is asked for.
    pub(crate) async fn sleep(&self, time: Duration) {
        self.stop.run_until_cancelled(tokio::time::sleep(time)).await;
    }

    /// Returns once the throttle lets this work begin, or a stop is asked for.
    pub(crate) async fn pass(&self, work: Work, job: usize) -> Result<(), RunError> {
        Ok(self.throttle.pass(work, self.connection(job), self.listener).await?)
    }

    pub(crate) async fn rollback(&self, job: usize) -> Result<(), RunError> {
        Ok(self.connection(job).client().batch_execute("ROLLBACK").await?)
    }

    /// Tries for a lock of the table `name`.
    pub(crate) fn tries<'b>(&'b self, name: &'b str) -> LockTries<'b> {
        LockTries {
            name,
            watch: self.listener,
            stop: self.stop,
            lock_timeout: self.options.lock_timeout,
            may_wait: self.throttle.may_wait(),
        }
    }

    /// Bytes of WAL written since the cluster was made.
    pub(crate) async fn wal(&self) -> Result<u64, RunError> {
        Ok(gauges::wal(&self.connections.writer).await?)
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
