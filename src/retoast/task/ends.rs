//! What a table's report begins with, and what is measured when its sweep has ended.

use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use super::error::RunError;
use super::guard::Guard;
use super::session::millis;
use crate::retoast::check::seen_places;
use crate::retoast::judge::Judge;
use crate::retoast::result::{Outcome, TableReport};
use crate::retoast::sql;
use crate::retoast::sweep::scan_source::ScanSource;
use crate::retoast::wait::Wait;

/// First key of the advisory lock that says that a table is being retoasted; the second is its OID.
pub const LOCK_CLASS: i32 = 0x746f_6173;

/// How long another retoast of the table is waited for: a killed one's session ends by itself.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// How often its lock is tried.
const LOCK_AGAIN: Duration = Duration::from_millis(250);

impl Guard<'_> {
    fn lock_key(&self) -> i32 {
        self.ready.relation.oid.0 as i32
    }

    /// Takes the lock that says that this table is being retoasted. The session of a client that was
    /// killed may hold it for a moment longer.
    async fn lock(&self) -> Result<(), RunError> {
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
                    return Err(RunError::Running);
                }
                _ if asked.elapsed() < LOCK_AGAIN => self.note(&Wait::OtherRetoast.note()),
                _ => {}
            }
            self.session.sleep(LOCK_AGAIN).await;
        }
    }

    /// The table's lock, and a report of nothing done with the position in the WAL.
    pub(crate) async fn begin(&self) -> Result<(TableReport, u64), RunError> {
        self.lock().await?;
        let begun = self.begin_locked().await;
        if begun.is_err() {
            // if that fails too the connection is gone, and the lock with it
            let _ = self.unlock().await;
        }
        begun
    }

    async fn begin_locked(&self) -> Result<(TableReport, u64), RunError> {
        let set = format!("SET lock_timeout = {}", millis(self.session.options.lock_timeout));
        for job in 0..self.session.jobs() {
            self.session.connection(job).client().batch_execute(&set).await?;
        }
        if !self.session.options.dry_run
            && let Some(text) = self
                .session
                .throttle
                .wait_for_rewrite(self.ready.relation.oid, self.session.listener)
                .await?
        {
            return Err(RunError::Stopped(text));
        }
        let sizes = self.tried("its size", async || self.sizes().await).await?;
        let before = sizes.unwrap_or_default();
        self.session.throttle.begin(self.ready, before).await?;
        let report = TableReport {
            relation: self.name(),
            columns: self.ready.targets.iter().map(|target| target.name.clone()).collect(),
            toaster: self.ready.judge.choice(),
            policy: self.ready.judge.policy(),
            keeps: matches!(self.ready.judge, Judge::Keep),
            only_indexes: false,
            outcome: Outcome::Planned,
            source: match self.session.source {
                ScanSource::Pages(_) => "pageinspect",
                ScanSource::Functions => "functions",
            },
            alter: sql::alter(&self.ready.relation.quoted(), &self.ready.changes),
            altered: false,
            undo: None,
            undone: false,
            is_unfit: false,
            rows_left: 0,
            rows_refused: 0,
            rows_disagreeing: 0,
            rows_spared: 0,
            hides_rows: self.ready.relation.row_security,
            alter_after: self.ready.final_settings.as_ref().map(|last| last.sql.clone()),
            rows_found: 0,
            bytes_found: 0,
            rows_stored: 0,
            rows_verified: 0,
            batches: 0,
            scans: 0,
            vacuums: 0,
            retries: 0,
            longest_batch_ms: 0,
            longest_lock_wait_ms: 0,
            wal_bytes: 0,
            elapsed_ms: 0,
            before,
            peak: before,
            after: before,
            horizon: None,
            rows_written_since: 0,
            proof: None,
            forms_before: Vec::new(),
            forms_after: Vec::new(),
            forms_planned: Vec::new(),
            skipped: Vec::new(),
            pauses: Vec::new(),
            slots_lost: Vec::new(),
            compaction: Vec::new(),
            indexes: Vec::new(),
            plan: None,
            places_seen: self.sees_places(),
            has_toasters: self.session.server.has_toasters,
            rewrite_gives_bytes: None,
            rewrite_gives: None,
            rewriters: None,
            vacuum_gives_bytes: None,
            notes: self.notes(),
        };
        Ok((report, self.session.wal().await?))
    }

    /// Ends the manners, measures what was done and lets others have the table.
    pub(crate) async fn end(&self, report: &mut TableReport, wal: u64) -> Result<(), RunError> {
        let (pauses, wait) = self.session.throttle.end().await;
        (report.pauses, report.longest_lock_wait_ms) = (pauses, millis(wait));
        let measured = self.measure(report, wal).await;
        report.notes.extend(self.session.throttle.notes());
        let unlocked = self.unlock().await;
        measured.and(unlocked)
    }

    async fn measure(&self, report: &mut TableReport, wal: u64) -> Result<(), RunError> {
        report.wal_bytes = self.session.wal().await?.saturating_sub(wal);
        report.slots_lost = self.session.throttle.slots_lost().await?;
        if let Some(sizes) = self.sizes_now().await? {
            report.after = sizes;
            report.peak = report.peak.max(sizes);
        }
        Ok(())
    }

    /// Lets others have the table.
    async fn unlock(&self) -> Result<(), RunError> {
        self.session
            .writer()
            .query_typed(
                "SELECT pg_catalog.pg_advisory_unlock($1, $2)",
                &[(&LOCK_CLASS, Type::INT4), (&self.lock_key(), Type::INT4)],
            )
            .await?;
        Ok(())
    }

    fn sees_places(&self) -> bool {
        let pages = matches!(self.session.source, ScanSource::Pages(_));
        seen_places::are_seen(self.ready, pages, self.session.server)
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.ready.notes.clone();
        if !self.sees_places() {
            notes.push(seen_places::NOTE.to_owned());
        }
        if self.ready.code.triggers_fire() {
            notes.push("triggers fire for every row re-toasted".to_owned());
        }
        notes.extend(self.ready.toaster_notes.iter().cloned());
        notes
    }
}
