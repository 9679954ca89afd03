//! What a table's report begins with, and what is measured when its sweep has ended.

use tokio_postgres::types::Type;

use super::error::RunError;
use super::lock::LOCK_CLASS;
use super::scan_source::ScanSource;
use super::table::{Sweep, millis};
use crate::judge::Judge;
use crate::retoast::check::seen_places;
use crate::retoast::result::{Outcome, TableReport};
use crate::retoast::sql;

impl Sweep<'_> {
    /// The table's lock, and a report of nothing done with the position in the WAL.
    pub(in crate::retoast) async fn begin(&self) -> Result<(TableReport, u64), RunError> {
        self.lock().await?;
        let begun = self.begin_locked().await;
        if begun.is_err() {
            // if that fails too the connection is gone, and the lock with it
            let _ = self.unlock().await;
        }
        begun
    }

    async fn begin_locked(&self) -> Result<(TableReport, u64), RunError> {
        let set = format!("SET lock_timeout = {}", millis(self.options.lock_timeout));
        for job in 0..=self.others.len() {
            self.connection(job).client().batch_execute(&set).await?;
        }
        if !self.options.dry_run
            && let Some(text) =
                self.keeper.wait_for_rewrite(self.ready.relation.oid, self.watch).await?
        {
            return Err(RunError::Stopped(text));
        }
        let sizes = self.tried("its size", async || self.sizes().await).await?;
        let before = sizes.unwrap_or_default();
        self.keeper.begin(self.ready, before).await?;
        let report = TableReport {
            relation: self.name(),
            columns: self.ready.targets.iter().map(|target| target.name.clone()).collect(),
            toaster: self.ready.judge.choice(),
            policy: self.ready.judge.policy(),
            keeps: matches!(self.ready.judge, Judge::Keep),
            only_indexes: false,
            outcome: Outcome::Planned,
            source: match self.source {
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
            has_toasters: self.server.has_toasters,
            rewrite_gives_bytes: None,
            rewrite_gives: None,
            rewriters: None,
            vacuum_gives_bytes: None,
            notes: self.notes(),
        };
        Ok((report, self.wal().await?))
    }

    /// Ends the manners, measures what was done and lets others have the table.
    pub(in crate::retoast) async fn end(
        &self,
        report: &mut TableReport,
        wal: u64,
    ) -> Result<(), RunError> {
        let (pauses, wait) = self.keeper.end().await;
        (report.pauses, report.longest_lock_wait_ms) = (pauses, millis(wait));
        let measured = self.measure(report, wal).await;
        report.notes.extend(self.keeper.notes());
        let unlocked = self.unlock().await;
        measured.and(unlocked)
    }

    async fn measure(&self, report: &mut TableReport, wal: u64) -> Result<(), RunError> {
        report.wal_bytes = self.wal().await?.saturating_sub(wal);
        report.slots_lost = self.keeper.slots_lost().await?;
        if let Some(sizes) = self.sizes_now().await? {
            report.after = sizes;
            report.peak = report.peak.max(sizes);
        }
        Ok(())
    }

    /// Lets others have the table.
    async fn unlock(&self) -> Result<(), RunError> {
        self.writer
            .client()
            .query_typed(
                "SELECT pg_catalog.pg_advisory_unlock($1, $2)",
                &[(&LOCK_CLASS, Type::INT4), (&self.lock_key(), Type::INT4)],
            )
            .await?;
        Ok(())
    }

    fn sees_places(&self) -> bool {
        let pages = matches!(self.source, ScanSource::Pages(_));
        seen_places::are_seen(self.ready, pages, self.server)
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.ready.notes.clone();
        if !self.sees_places() {
            notes.push(seen_places::NOTE.to_owned());
        }
        if self.ready.code.triggers_fire() {
            notes.push("triggers fire for every row re-toasted".to_owned());
        }
        notes.extend(
            self.doubt.iter().map(|doubt| format!("--since: all rows are judged: {doubt}")),
        );
        notes.extend(self.ready.toaster_notes.iter().cloned());
        notes
    }
}
