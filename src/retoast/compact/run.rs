//! The compaction of one table: its TOAST relation first, since values that are written again leave new row versions in the
//! table.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use tokio_postgres::types::Type;

use super::pages::HeapFile;
use super::result::{FileEnd, FileReport};
use super::values::ToastFile;
use super::verdict::outcome;
use super::wish::Compaction;
use crate::disk::Oid;
use crate::model::sql::quote_qualified;
use crate::retoast::check::files::Files;
use crate::retoast::check::refusal::Refusal;
use crate::retoast::check::touch;
use crate::retoast::result::{Outcome, REWRITTEN, TableReport};
use crate::retoast::sql;
use crate::retoast::sweep::error::RunError;
use crate::retoast::sweep::table::{Sweep, millis};
use crate::server::LiveError;

/// The part of all files that may be old row versions of the table while values of the TOAST relation are moved.
const VERSIONS: f64 = 0.01;
/// Fewer bytes of them are not vacuumed away.
const LEAST_VERSIONS: u64 = 128 << 10;
/// How often it begins again with other files.
const MOST_REWRITTEN: u32 = 5;

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

    /// Compacts the files that the table has; those that it has then, where somebody else has written it anew.
    async fn compact_files(
        &self,
        wish: Compaction,
        report: &mut TableReport,
    ) -> Result<(), RunError> {
        let (client, relation) = (self.writer.client(), &self.ready.relation);
        // first, since a table without columns has no definition to be watched
        let touch = match touch::touched(client, relation, &self.ready.generated).await {
            Ok(target) => target.name,
            Err(refusal @ Refusal::Live(_)) => return Err(refusal.into()),
            Err(_) if report.before.heap == 0 && report.before.toast == 0 => {
                report.compaction.push(FileReport::of_nothing(self.options.dry_run));
                return Ok(());
            }
            Err(refusal) => return Err(refusal.into()),
        };
        if self.ready.code.holds_off_statistics() || !self.options.dry_run {
            self.begin_watching().await?;
        }
        let mut earlier = Vec::new();
        for _ in 0..MOST_REWRITTEN {
            let files = self.files().await?;
            let done = self.compact_these(&files, &touch, wish, report).await;
            report.compaction_goes_on_from(std::mem::take(&mut earlier));
            match self.unless_rewritten(done, &files).await {
                Err(RunError::Rewritten) => {}
                done => return done,
            }
            if !self.options.dry_run && !self.is_unchanged().await? {
                return Err(RunError::Changing);
            }
            self.watch.note(&format!("{}: {REWRITTEN}: compaction begins again", self.name()));
            earlier = std::mem::take(&mut report.compaction);
            (report.rows_found, report.bytes_found) = (0, 0);
        }
        report.compaction = earlier;
        Err(RunError::Rewritten)
    }

    /// As [`RunError::Rewritten`] an error of the server's that is due to it: what was looked for is gone.
    async fn unless_rewritten(
        &self,
        done: Result<(), RunError>,
        files: &Files,
    ) -> Result<(), RunError> {
        let Err(RunError::Live(LiveError::Server(error))) = &done else { return done };
        if error.as_db_error().is_none() {
            return done;
        }
        // the transaction may still be open
        let _ = self.rollback(0).await;
        match self.still_has(files).await {
            Err(RunError::Rewritten) => Err(RunError::Rewritten),
            _ => done,
        }
    }

    /// `touch`: a column that an update may set to itself.
    async fn compact_these(
        &self,
        files: &Files,
        touch: &str,
        wish: Compaction,
        report: &mut TableReport,
    ) -> Result<(), RunError> {
        if let Some(toast) = files.toast().filter(|_| wish.toast()) {
            let file = ToastFile {
                sweep: self,
                toast,
                name: self.name_of_toast(toast).await?,
                files: files.clone(),
                touch: touch.to_owned(),
                used: RefCell::default(),
                copied: Cell::new(0),
                own: RefCell::default(),
                ever_own: RefCell::default(),
                since: RefCell::default(),
            };
            let versions = ((report.before.sum() as f64 * VERSIONS) as u64).max(LEAST_VERSIONS);
            let mut told = FileReport::new("toast");
            let done = self.compact_file(&file, Some(versions), report, &mut told).await;
            report.compaction.push(told);
            if matches!(done, Ok(()) | Err(RunError::Rewritten)) {
                file.end().await?;
            }
            done?;
        }
        let stopped = report.compaction.iter().any(|file| file.ended == FileEnd::Stopped);
        if wish.heap() && !stopped {
            let file = HeapFile::new(self, files.clone(), touch.to_owned());
            let mut told = FileReport::new("heap");
            let done = self.compact_file(&file, None, report, &mut told).await;
            report.compaction.push(told);
            done?;
        }
        if self.options.dry_run {
            let expected = report.compaction.iter().filter_map(|file| file.wal_expected);
            let expected = expected.map(|wal| wal.high).sum();
            report.notes.extend(self.keeper.slot_warnings(expected).await?);
        } else if !self.is_unchanged().await? {
            return Err(RunError::Changing);
        }
        if report.rows_stored > 0 {
            // what the report calls done must survive a crash of the server
            self.writer.client().batch_execute(sql::FLUSH).await.map_err(LiveError::from)?;
        }
        // what was said of one file may be old by the time that the other is done
        self.still_has(files).await
    }

    async fn name_of_toast(&self, toast: Oid) -> Result<String, RunError> {
        let sql =
            "SELECT c.relname::pg_catalog.text FROM pg_catalog.pg_class AS c WHERE c.oid = $1";
        let rows = self.writer.client().query_typed(sql, &[(&toast.0, Type::OID)]).await?;
        let row = rows.first().ok_or(RunError::Rewritten)?;
        Ok(quote_qualified("pg_toast", row.try_get(0)?))
    }
}
