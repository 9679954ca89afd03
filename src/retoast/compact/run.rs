//! The compaction of one table. The TOAST relation comes first, because rewriting its values leaves new row versions
//! in the table.

use std::time::Instant;

use tokio_postgres::types::Type;

use crate::message::size;
use crate::retoast::compact::CompactRequest;
use crate::retoast::compact::pages::HeapFile;
use crate::retoast::compact::part::CompactionOfFile;
use crate::retoast::compact::values::ToastFile;
use crate::retoast::error::{Result, RetoastError};
use crate::retoast::preflight::columns::touched;
use crate::retoast::preflight::definition::Files;
use crate::retoast::result::{
    Common, CompactedFile, FileEnd, FileReport, Outcome, REWRITTEN, TaskReport, Work, resume,
};
use crate::retoast::sql::compact::Vacuum;
use crate::retoast::task::guard::{Guard, TaskEnd};
use crate::retoast::task::session::millis;
use crate::retoast::{sql, verdict};
use crate::server::LiveError;
use crate::server::toasters::TOAST_RELATIONS;
use toast_format::disk::Oid;
use toast_format::model::sql::quote_qualified;

/// The fraction of the table's total size that may be old row versions while values of the TOAST relation are moved.
const VERSIONS: f64 = 0.01;
/// The minimum of that limit, in bytes.
const LEAST_VERSIONS: u64 = 128 << 10;
/// How many times compaction is started, if other sessions rewrite the table.
const MOST_REWRITTEN: u32 = 5;

/// The compaction of one table.
pub(crate) struct Compaction<'a> {
    pub(crate) guard: Guard<'a>,
    pub(crate) request: CompactRequest,
    /// Whether it follows a conversion.
    pub(crate) converted: bool,
}

impl Compaction<'_> {
    /// Compacts the table. If an error occurs, what was done before it is reported too.
    pub(crate) async fn run(&self) -> TaskEnd {
        let began = Instant::now();
        let (mut report, wal) = match self.guard.begin().await {
            Ok(begun) => begun,
            Err(error) => return (None, Err(error)),
        };
        let mut files = Vec::new();
        let mut done = self.compact_files(&mut report, &mut files).await;
        if let Err(RetoastError::Changing) = done {
            // finds out what other sessions have changed
            done = self.guard.set_right(u32::MAX).await;
        }
        report.effort.elapsed_ms = millis(began.elapsed());
        let outcome = match done {
            Ok(()) => verdict::of_files(&files),
            Err(_) => Outcome::Failed,
        };
        if done.is_err() {
            // the connection may be lost, or no transaction may be open
            let _ = self.guard.session.rollback(0).await;
        }
        let ended = self.guard.end(&mut report, wal).await;
        let began = done.is_ok() || report.effort.scans > 0;
        let report = TaskReport { outcome, common: report, work: Work::Compact(files) };
        (began.then_some(report), done.and(ended))
    }

    /// Compacts the table's files, and starts again with the new ones if another session rewrites the table.
    async fn compact_files(
        &self,
        report: &mut Common,
        reports: &mut Vec<FileReport>,
    ) -> Result<()> {
        let Guard { session, ready, .. } = self.guard;
        let client = session.writer();
        let relation = &ready.relation;
        // comes first, because a table without columns has no definition to watch
        let touch = match touched(client, relation, &ready.generated).await {
            Ok(target) => target.name,
            Err(refusal @ RetoastError::Live(_)) => return Err(refusal),
            Err(_) if report.before.heap == 0 && report.before.toast == 0 => {
                reports.push(FileReport::of_nothing(session.options.dry_run));
                return Ok(());
            }
            Err(refusal) => return Err(refusal),
        };
        if ready.code.blocks_create_statistics() || !session.options.dry_run {
            self.guard.begin_watching().await?;
        }
        let mut earlier = Vec::new();
        for _ in 0..MOST_REWRITTEN {
            let files = self.guard.files().await?;
            let done = self.compact_these(&files, &touch, report, reports).await;
            resume(reports, std::mem::take(&mut earlier), report);
            match self.unless_rewritten(done, &files).await {
                Err(RetoastError::Rewritten) => {}
                done => return done,
            }
            if !session.options.dry_run && !self.guard.is_unchanged().await? {
                return Err(RetoastError::Changing);
            }
            self.guard.note(&format!("{REWRITTEN}: compaction starts again"));
            earlier = std::mem::take(reports);
            (report.rows.found, report.rows.bytes) = (0, 0);
        }
        *reports = earlier;
        Err(RetoastError::Rewritten)
    }

    /// Returns [`RetoastError::Rewritten`] in place of a server error that a rewrite has caused by removing the file.
    async fn unless_rewritten(&self, done: Result<()>, files: &Files) -> Result<()> {
        let Err(RetoastError::Live(LiveError::Server(error))) = &done else { return done };
        if error.as_db_error().is_none() {
            return done;
        }
        // the transaction may still be open
        let _ = self.guard.session.rollback(0).await;
        match self.guard.still_has(files).await {
            Err(RetoastError::Rewritten) => Err(RetoastError::Rewritten),
            _ => done,
        }
    }

    /// Compacts these files. `touch` is a column that an update may set to itself.
    async fn compact_these(
        &self,
        files: &Files,
        touch: &str,
        report: &mut Common,
        reports: &mut Vec<FileReport>,
    ) -> Result<()> {
        let session = self.guard.session;
        let request = self.request;
        let has_toast = files.toast().is_some();
        if let Some(toast) = files.toast()
            && request.toast()
        {
            let name = self.name_of_toast(toast).await?;
            let mut file = ToastFile::new(self.guard, toast, name, files, touch);
            let versions = ((report.before.sum() as f64 * VERSIONS) as u64).max(LEAST_VERSIONS);
            let compaction = CompactionOfFile {
                guard: self.guard,
                file: &mut file,
                relation: toast,
                files,
                file_report: FileReport::new(CompactedFile::Toast, report.before.toast),
                report,
            };
            let (file_report, done) = compaction.run(Some(versions)).await;
            reports.push(file_report);
            if matches!(done, Ok(()) | Err(RetoastError::Rewritten)) {
                file.end().await?;
            }
            done?;
        }
        let stopped = reports.iter().any(|file| file.ended == FileEnd::Stopped);
        if request.heap() && !stopped {
            let compaction = CompactionOfFile {
                guard: self.guard,
                file: &mut HeapFile::new(self.guard, files, touch),
                relation: self.guard.ready.relation.oid,
                files,
                file_report: FileReport::new(CompactedFile::Heap, report.before.heap),
                report,
            };
            let (file_report, done) = compaction.run(None).await;
            reports.push(file_report);
            done?;
            // whoever may not compact the TOAST relation has it cut off where a conversion has emptied its end
            if self.converted && has_toast && !request.toast() && !session.options.dry_run {
                self.guard.vacuum_now(Vacuum::Shrink, report).await?;
            }
        }
        if session.options.dry_run {
            let expected = reports.iter().filter_map(|file| file.wal_expected);
            let expected = expected.map(|wal| wal.high).sum();
            report.notes.extend(session.throttle.slot_warnings(expected).await?);
            let gin: u64 = reports.iter().filter_map(|file| file.gin_growth_expected).sum();
            if gin > 0 {
                report.note_once(format!(
                    "GIN indexes ({} now) grow by new entries for rows that are moved, by up to {}; --reindex=all rebuilds \
                     them",
                    size(self.guard.ready.relation.gin_bytes),
                    size(gin)
                ));
            }
            if expected > 0 || self.has_dead_rows().await? {
                let effect = "nothing is returned";
                report.notes.extend(session.throttle.would_wait(effect).await);
            }
        } else if !self.guard.is_unchanged().await? {
            return Err(RetoastError::Changing);
        }
        if report.rows.stored > 0 {
            // what is reported as done must survive a crash of the server
            session.writer().batch_execute(sql::FLUSH).await?;
        }
        // the report on one file may be outdated by the time the other is done
        self.guard.still_has(files).await
    }

    /// Whether the statistics count dead rows or chunks.
    async fn has_dead_rows(&self) -> Result<bool> {
        let sql = format!(
            "SELECT coalesce(pg_catalog.sum(pg_catalog.pg_stat_get_dead_tuples(r.oid)), 0) > 0 \
             FROM pg_catalog.pg_class AS c, pg_catalog.unnest(c.oid || {TOAST_RELATIONS}) AS r (oid) \
             WHERE c.oid = $1"
        );
        let oid = self.guard.ready.relation.oid.0;
        let writer = self.guard.session.writer();
        Ok(writer.value(&sql, &[(&oid, Type::OID)]).await?.unwrap_or_default())
    }

    async fn name_of_toast(&self, toast: Oid) -> Result<String> {
        let sql =
            "SELECT c.relname::pg_catalog.text FROM pg_catalog.pg_class AS c WHERE c.oid = $1";
        let row = self
            .guard
            .session
            .writer()
            .row(sql, &[(&toast.0, Type::OID)])
            .await?
            .ok_or(RetoastError::Rewritten)?;
        Ok(quote_qualified("pg_toast", row.try_get(0)?))
    }
}
