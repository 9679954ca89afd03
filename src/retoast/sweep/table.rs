//! One table's sweep: what it works with.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::error::RunError;
use super::old_entries::OldEntries;
use super::options::Options;
use super::policy_state::SeenRows;
use super::scan_source::ScanSource;
use super::unvacuumed::Unvacuumed;
use super::watched::Watched;
use crate::retoast::check::ready::Ready;
use crate::retoast::memory::checkpoint::Checkpoint;
use crate::retoast::memory::since::{Doubt, Since};
use crate::retoast::pace::gauges;
use crate::retoast::pace::keeper::Keeper;
use crate::retoast::reindex::rebuilds::Rebuilds;
use crate::retoast::sizes::Sizes;
use crate::retoast::sql::BatchSettings;
use crate::retoast::watch::Watch;
use crate::server::LiveError;
use crate::server::about::Server;
use crate::server::connect::Connection;
use crate::server::sqlstate::ErrorKind;

/// One table's sweep.
pub struct Sweep<'a> {
    /// For batches.
    pub writer: Arc<Connection>,
    /// For those of the second job and further ones.
    pub others: Vec<Arc<Connection>>,
    /// For scans.
    pub reader: Arc<Connection>,
    /// The server.
    pub server: &'a Server,
    /// The table.
    pub ready: &'a Ready,
    /// How.
    pub options: &'a Options,
    /// What the scans go by.
    pub source: &'a ScanSource,
    /// How long a batch may wait for this program before the server gives its locks back.
    pub idle_limit: Duration,
    /// Whom to tell.
    pub watch: &'a dyn Watch,
    /// Cancelled from outside to stop.
    pub stop: &'a CancellationToken,
    /// Keeps its manners.
    pub keeper: &'a Keeper,
    /// Where scanning is.
    pub checkpoint: Option<&'a Checkpoint>,
    /// What scans have seen that batches by a policy need to know.
    pub seen_rows: &'a SeenRows,
    /// With a policy, the rows that an earlier run has proven to comply.
    pub since: Option<Since>,
    /// Why nothing is taken from what `--since` remembers.
    pub doubt: Option<Doubt>,
    /// What the table is known to be set to.
    pub watched: Watched,
    /// Which index entries are to be marked dead.
    pub old_entries: OldEntries,
    /// The rebuilds of indexes that were begun, in earlier sessions too.
    pub rebuilds: &'a Rebuilds,
    /// What VACUUM cannot get through.
    pub unvacuumed: Unvacuumed,
}

impl Sweep<'_> {
    pub(in crate::retoast) fn name(&self) -> String {
        self.ready.relation.display_name()
    }

    pub(in crate::retoast) fn stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// The connection of a job.
    pub(in crate::retoast) fn connection(&self, job: usize) -> &Connection {
        match job.checked_sub(1) {
            None => &self.writer,
            Some(other) => self.others.get(other).unwrap_or(&self.writer),
        }
    }

    /// How each batch's transaction begins.
    pub(crate) fn settings(&self) -> BatchSettings {
        BatchSettings {
            lock_timeout_ms: millis(self.options.lock_timeout),
            replica_role: self.ready.replica_role,
            row_security_off: self.options.row_security_off,
            idle_ms: millis(self.idle_limit),
            role: self.ready.code.role().map(str::to_owned),
        }
    }

    /// `None` if the table is locked just now.
    pub(in crate::retoast) async fn sizes_now(&self) -> Result<Option<Sizes>, RunError> {
        match self.sizes().await {
            Err(LiveError::Server(error)) if ErrorKind::of(&error) == ErrorKind::Busy => Ok(None),
            other => Ok(Some(other?)),
        }
    }

    pub(super) async fn sizes(&self) -> Result<Sizes, LiveError> {
        gauges::sizes(&self.writer, self.ready.relation.oid).await
    }

    /// Bytes of WAL written since the cluster was made.
    pub(super) async fn wal(&self) -> Result<u64, RunError> {
        Ok(gauges::wal(&self.writer).await?)
    }
}

pub(in crate::retoast) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
