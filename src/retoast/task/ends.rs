//! What a table's report begins with, and what is measured when its sweep has ended.

use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use super::error::TaskError;
use super::guard::Guard;
use super::session::millis;
use crate::retoast::check::ready::{PLACES_NOT_SEEN, PreparedTable, places_are_seen};
use crate::retoast::listener::Wait;
use crate::retoast::result::{Common, Subject, TaskReport};
use crate::retoast::sweep::scan_source::ScanSource;
use crate::server::about::Server;

/// First key of the advisory lock that says that a table is being retoasted; the second is its OID.
pub const LOCK_CLASS: i32 = 0x746f_6173;

/// How long another retoast of the table is waited for: a killed one's session ends by itself.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// How often its lock is tried.
const LOCK_AGAIN: Duration = Duration::from_millis(250);

/// How a task ended: what was done until an error is reported too.
pub(crate) type Ended = (Option<TaskReport>, Result<(), TaskError>);

/// Whether scans see which values are out of line.
fn sees_places(ready: &PreparedTable, source: &ScanSource, server: &Server) -> bool {
    places_are_seen(ready, matches!(source, ScanSource::Pages(_)), server)
}

/// What a table's report is about.
pub(crate) fn subject(ready: &PreparedTable, source: &ScanSource, server: &Server) -> Subject {
    Subject {
        relation: ready.relation.display_name(),
        columns: ready.targets.iter().map(|target| target.name.clone()).collect(),
        toaster: ready.judge.choice(),
        policy: ready.judge.policy(),
        source: match source {
            ScanSource::Pages(_) => "pageinspect",
            ScanSource::Functions => "functions",
        },
        places_seen: sees_places(ready, source, server),
        has_toasters: server.has_toasters,
    }
}

impl Guard<'_> {
    fn lock_key(&self) -> i32 {
        self.ready.relation.oid.0 as i32
    }

    /// Takes the lock that says that this table is being retoasted. The session of a client that was
    /// killed may hold it for a moment longer.
    async fn lock(&self) -> Result<(), TaskError> {
        let asked = Instant::now();
        let patience =
            self.session.throttle.may_wait().map_or(LOCK_PATIENCE, |most| most.min(LOCK_PATIENCE));
        loop {
            let rows = self
                .session
                .writer()
                .query_typed(
                    "SELECT pg_catalog.pg_try_advisory_lock($1, $2)",
                    &[(&LOCK_CLASS, Type::INT4), (&self.lock_key(), Type::INT4)],
                )
                .await?;
            match rows.first() {
                Some(row) if row.try_get(0)? => return Ok(()),
                _ if self.session.stopped() || asked.elapsed() > patience => {
                    return Err(TaskError::Running);
                }
                _ if asked.elapsed() < LOCK_AGAIN => self.note(&Wait::OtherRetoast.note()),
                _ => {}
            }
            self.session.sleep(LOCK_AGAIN).await;
        }
    }

    /// Takes the table's lock; a report of nothing done, and the position in the WAL.
    pub(crate) async fn begin(&self) -> Result<(Common, u64), TaskError> {
        self.lock().await?;
        let begun = self.begin_locked().await;
        if begun.is_err() {
            // if that fails too the connection is gone, and the lock with it
            let _ = self.unlock().await;
        }
        begun
    }

    async fn begin_locked(&self) -> Result<(Common, u64), TaskError> {
        let Guard { session, ready, .. } = self;
        let set = format!("SET lock_timeout = {}", millis(session.options.lock_timeout));
        for job in 0..session.jobs() {
            session.connection(job).client().batch_execute(&set).await?;
        }
        if !session.options.dry_run
            && let Some(text) =
                session.throttle.wait_for_rewrite(ready.relation.oid, session.listener).await?
        {
            return Err(TaskError::Stopped(text));
        }
        let sizes = self.tried("its size", async || self.sizes().await).await?;
        let before = sizes.unwrap_or_default();
        session.throttle.begin(ready, before).await?;
        let mut common = Common::new(before, self.notes());
        common.rows.are_hidden = ready.relation.row_security;
        Ok((common, session.wal().await?))
    }

    /// Measures what was done and lets others have the table.
    pub(crate) async fn end(&self, report: &mut Common, wal: u64) -> Result<(), TaskError> {
        let throttle = self.session.throttle;
        let (pauses, wait) = throttle.end().await;
        (report.effort.pauses, report.effort.longest_lock_wait_ms) = (pauses, millis(wait));
        let measured = self.measure(report, wal).await;
        report.notes.extend(throttle.notes());
        let unlocked = self.unlock().await;
        measured.and(unlocked)
    }

    async fn measure(&self, report: &mut Common, wal: u64) -> Result<(), TaskError> {
        report.effort.wal_bytes = self.session.wal().await?.saturating_sub(wal);
        report.effort.slots_lost = self.session.throttle.slots_lost().await?;
        if let Some(sizes) = self.sizes_now().await? {
            report.after = sizes;
            report.is_larger(sizes);
        }
        Ok(())
    }

    /// Lets others have the table.
    async fn unlock(&self) -> Result<(), TaskError> {
        self.session
            .writer()
            .query_typed(
                "SELECT pg_catalog.pg_advisory_unlock($1, $2)",
                &[(&LOCK_CLASS, Type::INT4), (&self.lock_key(), Type::INT4)],
            )
            .await?;
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.ready.notes.clone();
        if !sees_places(self.ready, self.session.source, self.session.server) {
            notes.push(PLACES_NOT_SEEN.to_owned());
        }
        if self.ready.code.triggers_fire() {
            notes.push("triggers fire for every row re-toasted".to_owned());
        }
        notes.extend(self.ready.toaster_notes.iter().cloned());
        notes
    }
}
