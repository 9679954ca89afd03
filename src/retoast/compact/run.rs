//! The compaction of one table: its TOAST relation first, since values that are written again leave new row versions in the
//! table.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use super::pages::HeapFile;
use super::result::{FileEnd, FileReport};
use super::values::ToastFile;
use super::verdict::outcome;
use super::wish::Compaction;
use crate::retoast::check::touch;
use crate::retoast::result::{Outcome, TableReport};
use crate::retoast::sql;
use crate::retoast::sweep::error::RunError;
use crate::retoast::sweep::table::{Sweep, millis};
use crate::server::LiveError;
use crate::server::sql::quote_qualified;

/// The part of all files that may be old row versions of the table while values of the TOAST relation are moved.
const VERSIONS: f64 = 0.01;
/// Fewer bytes of them are not vacuumed away.
const LEAST_VERSIONS: u64 = 128 << 10;

impl Sweep<'_> {
    /// Compacts the table. What was done until an error is reported too.
    pub(crate) async fn compact(
        &self,
        wish: Compaction,
    ) -> (Option<TableReport>, Result<(), RunError>) {
        let began = Instant::now();
        let (mut report, wal) = match self.begin().await {
            Ok(begun) => begun,
            Err(error) => return (None, Err(error)),
        };
        let mut done = self.compact_files(wish, &mut report).await;
        if let Err(RunError::Changing) = done {
            // what it is that others have changed
            done = self.set_right(u32::MAX).await;
        }
        report.elapsed_ms = millis(began.elapsed());
        report.outcome = match done {
            Ok(()) => outcome(&report.compaction, report.hides_rows),
            Err(_) => Outcome::Failed,
        };
        if done.is_err() {
            // the connection may be gone, or not in a transaction
            let _ = self.rollback(0).await;
        }
        let ended = self.end(&mut report, wal).await;
        let began = done.is_ok() || report.scans > 0;
        (began.then_some(report), done.and(ended))
    }

    async fn compact_files(
        &self,
        wish: Compaction,
        report: &mut TableReport,
    ) -> Result<(), RunError> {
        if self.ready.code.holds_off_statistics() || !self.options.dry_run {
            self.begin_watching().await?;
        }
        let relation = &self.ready.relation;
        let generated = &self.ready.generated;
        let touch = touch::touched(self.writer.client(), relation, generated).await?.name;
        if let Some(toast) = relation.toast.as_ref().filter(|_| wish.files.toast()) {
            let file = ToastFile {
                sweep: self,
                toast: toast.oid,
                name: quote_qualified("pg_toast", &toast.name),
                touch: touch.clone(),
                has_copies: Cell::new(false),
                own: RefCell::default(),
            };
            let versions = ((report.before.sum() as f64 * VERSIONS) as u64).max(LEAST_VERSIONS);
            let mut told = FileReport::new("toast");
            let done =
                self.compact_file(&file, wish.min_gain, Some(versions), report, &mut told).await;
            report.compaction.push(told);
            done?;
            file.end().await?;
        }
        let stopped = report.compaction.iter().any(|file| file.ended == FileEnd::Stopped);
        if wish.files.heap() && !stopped {
            let file = HeapFile { sweep: self, touch };
            let mut told = FileReport::new("heap");
            let done = self.compact_file(&file, wish.min_gain, None, report, &mut told).await;
            report.compaction.push(told);
            done?;
        }
        if !self.options.dry_run && !self.is_unchanged().await? {
            return Err(RunError::Changing);
        }
        if report.rows_stored > 0 {
            // what the report calls done must survive a crash of the server
            self.writer.client().batch_execute(sql::FLUSH).await.map_err(LiveError::from)?;
        }
        Ok(())
    }
}
