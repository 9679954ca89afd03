//! The indexes of one table, one after the other.

use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use super::result::{IndexEnd, IndexReport, LEFT_OF_IT};
use super::verdict::{outcome, verdict};
use super::wish::Reindex;
use crate::disk::Oid;
use crate::disk::layout::PageSize;
use crate::fill::btree::build_wal;
use crate::retoast::result::{Outcome, REWRITTEN, TableReport};
use crate::retoast::sql::compact::Vacuum;
use crate::retoast::sweep::error::RunError;
use crate::retoast::sweep::scan_source::ScanSource;
use crate::retoast::sweep::table::{Sweep, millis};
use crate::server::LiveError;
use crate::server::connect::Connection;
use crate::server::index_scan::{self, Fresh, IndexFill, IndexScan};
use crate::server::indexes::{self, Index};

/// If so large a part of the rows is dead, their entries would count as needed: they are vacuumed away first.
const DEAD: f64 = 0.05;
/// The largest index of a TOAST relation that is rebuilt, as a fresh one: others wait for that.
const LOCKED_BYTES: u64 = 16 << 20;
/// How often they are looked at again with other files.
const MOST_REWRITTEN: u32 = 5;

impl Sweep<'_> {
    /// Rebuilds the table's indexes. What was done until an error is reported too.
    pub(crate) async fn reindex(
        &self,
        wish: Reindex,
    ) -> (Option<TableReport>, Result<(), RunError>) {
        let began = Instant::now();
        let (mut report, wal) = match self.begin().await {
            Ok(begun) => begun,
            Err(error) => return (None, Err(error)),
        };
        report.only_indexes = true;
        let done = self.reindex_what_there_is(wish, &mut report).await;
        report.elapsed_ms = millis(began.elapsed());
        report.outcome = match done {
            Ok(()) => outcome(&report.indexes, self.options.dry_run, self.stopped()),
            Err(_) => Outcome::Failed,
        };
        let ended = self.end(&mut report, wal).await;
        (Some(report), done.and(ended))
    }

    /// The indexes of the table as it is, again where somebody else has written it anew meanwhile.
    async fn reindex_what_there_is(
        &self,
        wish: Reindex,
        report: &mut TableReport,
    ) -> Result<(), RunError> {
        for _ in 0..MOST_REWRITTEN {
            let files = self.files().await?;
            self.reindex_all(wish, report).await?;
            match self.still_has(&files).await {
                Err(RunError::Rewritten) if self.stopped() => return Ok(()),
                Err(RunError::Rewritten) => {}
                other => return other,
            }
            let note = format!("{REWRITTEN}: what is said of its indexes is of the new ones");
            self.watch.note(&format!("{}: {note}", self.name()));
            if !report.notes.contains(&note) {
                report.notes.push(note);
            }
            report.indexes.clear();
        }
        Err(RunError::Rewritten)
    }

    async fn reindex_all(&self, wish: Reindex, report: &mut TableReport) -> Result<(), RunError> {
        let table = self.ready.relation.oid;
        if !self.options.dry_run && self.has_dead_rows().await? {
            self.vacuum_now(Vacuum::Tidy, report).await?;
        }
        let look = async || indexes::all(&self.reader, table).await;
        let Some(all) = self.tried("looking at its indexes", look).await? else { return Ok(()) };
        let (valid, invalid): (Vec<Index>, Vec<Index>) =
            all.into_iter().partition(|index| index.valid);
        for index in &invalid {
            let told = self.invalid(index, &valid).await?;
            report.indexes.push(told);
        }
        let done = self.reindex_each(wish, &valid, &invalid, report).await;
        // once more at the end: what was in the way may have gone
        let cleaned = match done {
            Ok(()) => self.clean_at_end(&valid, report).await,
            Err(_) => Ok(()),
        };
        if self.options.dry_run {
            let planned = report.indexes.iter().filter(|one| one.ended == IndexEnd::Planned);
            let wal = planned.filter_map(|one| one.wal_expected).sum();
            report.notes.extend(self.keeper.slot_warnings(wal).await?);
        }
        done.and(cleaned)
    }

    async fn reindex_each(
        &self,
        wish: Reindex,
        valid: &[Index],
        invalid: &[Index],
        report: &mut TableReport,
    ) -> Result<(), RunError> {
        for index in valid {
            if self.stopped() {
                return Ok(());
            }
            let mut told =
                look_at(&self.reader, self.source, self.server.page_size, wish, index).await?;
            let left = report.indexes.iter().find(|one| {
                one.ended == IndexEnd::Invalid
                    && invalid.iter().any(|i| i.quoted() == one.index && i.is_left_of(index))
            });
            if let (IndexEnd::Planned, Some(left)) = (told.ended, left) {
                told.ended = IndexEnd::Left;
                told.reason = Some(format!("there is an invalid index of it, {}", left.index));
            }
            let mut done = Ok(());
            if told.ended == IndexEnd::Planned && !self.options.dry_run {
                let bytes = told.expected.unwrap_or(index.bytes);
                done = self.rebuild(index, bytes, &mut told).await;
            }
            report.indexes.push(told);
            done?;
            if let Some(sizes) = self.sizes_now().await? {
                report.peak = report.peak.max(sizes);
            }
        }
        Ok(())
    }

    /// Drops what rebuilds of these indexes have left behind and could not be dropped before.
    async fn clean_at_end(
        &self,
        valid: &[Index],
        report: &mut TableReport,
    ) -> Result<(), RunError> {
        for told in report.indexes.iter_mut().filter(|told| told.ended == IndexEnd::Left) {
            let Some(base) = valid.iter().find(|base| base.quoted() == told.index) else {
                continue;
            };
            if !self.rebuilds.has(&told.index)
                || !self.clean(&self.writer, base, Duration::ZERO).await?.is_empty()
            {
                continue;
            }
            self.rebuild_ended(base)?;
            told.command = Some(base.rebuild());
            if let Some((reason, _)) =
                told.reason.as_deref().and_then(|all| all.rsplit_once(LEFT_OF_IT))
            {
                told.reason = Some(reason.to_owned());
            }
        }
        Ok(())
    }

    /// Drops an invalid index if a rebuild of this program's has left it behind, and tells what is to be known of
    /// others.
    async fn invalid(&self, index: &Index, valid: &[Index]) -> Result<IndexReport, RunError> {
        let mut told = IndexReport {
            index: index.quoted(),
            ended: IndexEnd::Refused,
            before: index.bytes,
            expected: None,
            wal_expected: None,
            after: None,
            reason: Some(
                "it is invalid, and not what a rebuild of an index leaves behind".to_owned(),
            ),
            command: None,
        };
        let Some(base) = valid.iter().find(|base| index.is_left_of(base)) else { return Ok(told) };
        told.ended = IndexEnd::Invalid;
        if let Some(pid) = self.builder(index.table).await? {
            told.reason = Some(format!(
                "process {pid} may be building it: it holds the lock that this takes"
            ));
            return Ok(told);
        }
        told.command = Some(index.drop());
        let (table, name) = (self.ready.relation.oid.0, base.quoted());
        let is_ours = self.rebuilds.has(&name)
            || self.checkpoint.is_some_and(|one| one.was_rebuilding(table, &name));
        if !is_ours {
            told.reason = Some(
                "a rebuild that was interrupted has left it behind, and no checkpoint file says that it was \
                 this program's"
                    .to_owned(),
            );
            return Ok(told);
        }
        if self.options.dry_run {
            told.reason =
                Some("the interrupted rebuild of an earlier run has left it behind".to_owned());
            return Ok(told);
        }
        let rest = self.clean(&self.writer, base, self.may_clean()).await?;
        if rest.iter().any(|one| one.oid == index.oid) {
            told.reason = Some("it could not be dropped in time".to_owned());
            return Ok(told);
        }
        if rest.is_empty() {
            self.rebuild_ended(base)?;
        }
        (told.ended, told.reason, told.command) = (IndexEnd::Dropped, None, None);
        Ok(told)
    }

    /// Whether the table or its TOAST relation has dead rows, by the server's statistics.
    async fn has_dead_rows(&self) -> Result<bool, RunError> {
        let rows = self
            .writer
            .client()
            .query_typed(
                "SELECT pg_catalog.pg_stat_get_dead_tuples(o)::pg_catalog.float8, \
                        pg_catalog.pg_stat_get_live_tuples(o)::pg_catalog.float8 \
                 FROM pg_catalog.pg_class AS c, \
                 LATERAL pg_catalog.unnest(ARRAY[c.oid, c.reltoastrelid]) AS o WHERE c.oid = $1",
                &[(&self.ready.relation.oid.0, Type::OID)],
            )
            .await?;
        let mut any = false;
        for row in rows {
            let (dead, live): (Option<f64>, Option<f64>) = (row.try_get(0)?, row.try_get(1)?);
            let (dead, live) = (dead.unwrap_or(0.0), live.unwrap_or(0.0));
            any |= dead > (dead + live) * DEAD;
        }
        Ok(any)
    }
}

/// What is to be done about an index that may be rebuilt.
fn told(wish: Reindex, page: PageSize, index: &Index, fresh: &Fresh) -> IndexReport {
    let ended = verdict(wish, index.bytes, fresh.bytes());
    let reason = match fresh {
        Fresh::NotKnown(reason) => Some(reason.clone()),
        Fresh::Locked => Some("it is locked by others".to_owned()),
        Fresh::Bytes(_) => None,
    };
    let ended = match (ended, fresh) {
        (IndexEnd::NotKnown, Fresh::Locked) => IndexEnd::Left,
        _ => ended,
    };
    let rebuild = matches!(ended, IndexEnd::Bloated | IndexEnd::Planned);
    IndexReport {
        index: index.quoted(),
        ended,
        before: index.bytes,
        expected: fresh.bytes(),
        wal_expected: fresh
            .bytes()
            .filter(|_| rebuild)
            .map(|bytes| build_wal(page, bytes, index.fillfactor)),
        after: None,
        reason,
        command: rebuild.then(|| index.rebuild()),
    }
}

/// What is to be done about a valid index.
async fn look_at(
    connection: &Connection,
    source: &ScanSource,
    page: PageSize,
    wish: Reindex,
    index: &Index,
) -> Result<IndexReport, LiveError> {
    let fresh = index_scan::fresh(connection, source.pageinspect(), page, index).await?;
    Ok(report(wish, page, index, &fresh))
}

/// The indexes of a table and of its TOAST relation that are much larger than fresh ones and can be rebuilt.
///
/// # Errors
/// The server's.
pub(crate) async fn bloated(
    connection: &Connection,
    source: &ScanSource,
    page: PageSize,
    table: Oid,
) -> Result<Vec<IndexReport>, LiveError> {
    let scan = IndexScan::new(source.pageinspect().cloned(), page, table);
    let found = scan.over(&[connection]).await?;
    let reports =
        found.iter().map(|IndexFill { index, fresh }| report(Reindex::Never, page, index, fresh));
    Ok(reports.filter(|index| index.ended == IndexEnd::Bloated).collect())
}

/// What is to be said of a valid index.
fn report(wish: Reindex, page: PageSize, index: &Index, fresh: &Fresh) -> IndexReport {
    let mut told = told(wish, page, index, fresh);
    if let (IndexEnd::Planned | IndexEnd::Bloated, Some(reason)) = (told.ended, index.refused()) {
        told.ended = IndexEnd::Refused;
        told.reason = Some(reason.to_owned());
        told.command = None;
        told.wal_expected = None;
    }
    let large = told.expected.unwrap_or(index.bytes) > LOCKED_BYTES;
    if told.ended == IndexEnd::Planned && index.of_toast && large {
        told.ended = IndexEnd::Refused;
        told.wal_expected = None;
        told.reason = Some(
            "it is large, and readers and writers of values out of line wait while the index of a TOAST relation is \
             rebuilt"
                .to_owned(),
        );
    }
    told
}
