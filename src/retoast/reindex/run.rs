//! Rebuilds the indexes of one table, one after the other.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_postgres::types::Type;

use crate::retoast::error::{Result, RetoastError};
use crate::retoast::memory::checkpoint::Checkpoint;
use crate::retoast::reindex::Reindex;
use crate::retoast::result::{
    Common, IndexEnd, IndexReport, LEFT_OF_IT, Outcome, REWRITTEN, TaskReport, Work,
};
use crate::retoast::sql::compact::Vacuum;
use crate::retoast::task::guard::{Guard, TaskEnd};
use crate::retoast::task::session::millis;
use crate::retoast::verdict;
use crate::server::index_scan::{Fresh, IndexFill, IndexScan};
use crate::server::indexes::Index;
use crate::server::toasters::TOAST_RELATIONS;
use crate::server::{Connection, LiveResult, Pageinspect, index_scan, indexes};
use toast_format::disk::{Oid, PageSize};
use toast_format::model::btree::{build_wal, is_bloated};

/// If at least this fraction of the rows is dead, they are vacuumed first, because their index entries would count as
/// needed.
const DEAD: f64 = 0.05;
/// How often the indexes are examined again if other sessions rewrite the table.
const MOST_REWRITTEN: u32 = 5;

/// The rebuilding of one table's indexes.
pub(crate) struct Reindexing<'a> {
    pub(crate) guard: Guard<'a>,
    pub(crate) request: Reindex,
    /// The rebuilds that were begun, including those in earlier sessions.
    pub(crate) rebuilds: &'a Rebuilds,
    /// The file that shows which rebuilds earlier runs have begun.
    pub(crate) checkpoint: Option<&'a Checkpoint>,
}

impl Reindexing<'_> {
    /// Rebuilds the table's indexes. If an error occurs, what was done before it is reported too.
    pub(crate) async fn run(&self) -> TaskEnd {
        let began = Instant::now();
        let (mut report, wal) = match self.guard.begin().await {
            Ok(begun) => begun,
            Err(error) => return (None, Err(error)),
        };
        let mut indexes = Vec::new();
        let done = self.reindex_what_there_is(&mut report, &mut indexes).await;
        report.effort.elapsed_ms = millis(began.elapsed());
        let session = self.guard.session;
        let outcome = match done {
            Ok(()) => verdict::of_indexes(&indexes, session.options.dry_run, session.stopped()),
            Err(_) => Outcome::Failed,
        };
        let ended = self.guard.end(&mut report, wal).await;
        let report = TaskReport { outcome, common: report, work: Work::Reindex(indexes) };
        (Some(report), done.and(ended))
    }

    /// Rebuilds the indexes, and starts again with the new ones if another session has rewritten the table in the
    /// meantime.
    async fn reindex_what_there_is(
        &self,
        report: &mut Common,
        indexes: &mut Vec<IndexReport>,
    ) -> Result<()> {
        for _ in 0..MOST_REWRITTEN {
            let files = self.guard.files().await?;
            self.reindex_all(report, indexes).await?;
            match self.guard.still_has(&files).await {
                Err(RetoastError::Rewritten) if self.guard.session.stopped() => return Ok(()),
                Err(RetoastError::Rewritten) => {}
                other => return other,
            }
            let note = format!("{REWRITTEN}: the figures of its indexes are those of the new ones");
            self.guard.note(&note);
            report.note_once(note);
            indexes.clear();
        }
        Err(RetoastError::Rewritten)
    }

    async fn reindex_all(&self, report: &mut Common, indexes: &mut Vec<IndexReport>) -> Result<()> {
        let session = self.guard.session;
        let table = self.guard.ready.relation.oid;
        if !self.guard.session.options.dry_run && self.has_dead_rows().await? {
            self.guard.vacuum_now(Vacuum::Tidy, report).await?;
        }
        let asked = self.guard.tried("examining its indexes", async || {
            indexes::of_table(session.reader(), table).await
        });
        let Some(all) = asked.await? else { return Ok(()) };
        let (valid, invalid): (Vec<Index>, Vec<Index>) =
            all.into_iter().partition(|index| index.valid);
        for index in &invalid {
            let index_report = self.invalid(index, &valid).await?;
            indexes.push(index_report);
        }
        let done = self.reindex_each(&valid, &invalid, report, indexes).await;
        // try again at the end, because what was in the way may be gone
        let cleaned = match done {
            Ok(()) => self.clean_at_end(&valid, indexes).await,
            Err(_) => Ok(()),
        };
        if self.guard.session.options.dry_run {
            let planned = indexes.iter().filter(|one| one.ended == IndexEnd::Planned);
            let wal = planned.filter_map(|one| one.wal_expected).sum();
            report.notes.extend(self.guard.session.throttle.slot_warnings(wal).await?);
        }
        done.and(cleaned)
    }

    async fn reindex_each(
        &self,
        valid: &[Index],
        invalid: &[Index],
        report: &mut Common,
        indexes: &mut Vec<IndexReport>,
    ) -> Result<()> {
        let session = self.guard.session;
        for (at, index) in valid.iter().enumerate() {
            if self.guard.session.stopped() {
                return Ok(());
            }
            let page = session.server.page_size;
            let fresh = index_scan::fresh(session.reader(), session.pages, page, index).await?;
            let mut index_report = index_report(self.request, page, index, &fresh);
            let left = indexes.iter().find(|one| {
                one.ended == IndexEnd::Invalid
                    && invalid.iter().any(|i| i.quoted() == one.index && i.is_left_of(index))
            });
            if let (IndexEnd::Planned, Some(left)) = (index_report.ended, left) {
                index_report.ended = IndexEnd::Left;
                index_report.reason =
                    Some(format!("an earlier rebuild left the invalid index {}", left.index));
            }
            let mut done = Ok(());
            if index_report.ended == IndexEnd::Planned && !self.guard.session.options.dry_run {
                let bytes = index_report.expected.unwrap_or(index.bytes);
                let listener = session.listener;
                let number = at + 1;
                listener.rebuilds(&self.guard.name(), &index.quoted(), number, valid.len());
                done = self.rebuild(index, bytes, &mut index_report).await;
            }
            indexes.push(index_report);
            done?;
            if let Some(sizes) = self.guard.sizes_now().await? {
                report.is_larger(sizes);
            }
        }
        Ok(())
    }

    /// Drops indexes left by rebuilds of these indexes that could not be dropped before.
    async fn clean_at_end(&self, valid: &[Index], indexes: &mut [IndexReport]) -> Result<()> {
        for index_report in
            indexes.iter_mut().filter(|index_report| index_report.ended == IndexEnd::Left)
        {
            let Some(base) = valid.iter().find(|base| base.quoted() == index_report.index) else {
                continue;
            };
            if !self.rebuilds.0.lock().contains(&index_report.index)
                || !self
                    .clean(self.guard.session.connection(0), base, Duration::ZERO)
                    .await?
                    .is_empty()
            {
                continue;
            }
            self.rebuild_ended(base)?;
            index_report.command = Some(base.rebuild());
            if let Some((reason, _)) =
                index_report.reason.as_deref().and_then(|all| all.rsplit_once(LEFT_OF_IT))
            {
                index_report.reason = Some(reason.to_owned());
            }
        }
        Ok(())
    }

    /// Drops an invalid index if one of this program's rebuilds has left it; otherwise reports what is known about
    /// it.
    async fn invalid(&self, index: &Index, valid: &[Index]) -> Result<IndexReport> {
        let mut index_report = IndexReport {
            index: index.quoted(),
            ended: IndexEnd::Refused,
            before: index.bytes,
            expected: None,
            wal_expected: None,
            after: None,
            reason: Some(
                "it is invalid, but no rebuild of another index left it behind".to_owned(),
            ),
            command: None,
        };
        let Some(base) = valid.iter().find(|base| index.is_left_of(base)) else {
            return Ok(index_report);
        };
        index_report.ended = IndexEnd::Invalid;
        if let Some(pid) = self.builder(index.table).await? {
            index_report.reason = Some(format!(
                "process {pid} may be building it: it holds the lock that a build needs"
            ));
            return Ok(index_report);
        }
        index_report.command = Some(index.drop());
        let table = self.guard.ready.relation.oid.0;
        let name = base.quoted();
        let is_ours = self.rebuilds.0.lock().contains(&name)
            || self.checkpoint.is_some_and(|one| one.was_rebuilding(table, &name));
        if !is_ours {
            index_report.reason = Some(
                "an interrupted rebuild left it behind, and no checkpoint file shows that toastctl started that \
                 rebuild"
                    .to_owned(),
            );
            return Ok(index_report);
        }
        if self.guard.session.options.dry_run {
            index_report.reason =
                Some("an interrupted rebuild of an earlier run left it behind".to_owned());
            return Ok(index_report);
        }
        let rest = self.clean(self.guard.session.connection(0), base, self.may_clean()).await?;
        if rest.iter().any(|one| one.oid == index.oid) {
            index_report.reason = Some("it could not be dropped in time".to_owned());
            return Ok(index_report);
        }
        if rest.is_empty() {
            self.rebuild_ended(base)?;
        }
        (index_report.ended, index_report.reason, index_report.command) =
            (IndexEnd::Dropped, None, None);
        Ok(index_report)
    }

    /// Whether the table or its TOAST relation has many dead rows, according to the server's statistics.
    async fn has_dead_rows(&self) -> Result<bool> {
        let sql = format!(
            "SELECT pg_catalog.pg_stat_get_dead_tuples(o)::pg_catalog.float8, \
                    pg_catalog.pg_stat_get_live_tuples(o)::pg_catalog.float8 \
             FROM pg_catalog.pg_class AS c, \
             LATERAL pg_catalog.unnest(c.oid || {TOAST_RELATIONS}) AS o WHERE c.oid = $1"
        );
        let oid = self.guard.ready.relation.oid.0;
        let writer = self.guard.session.writer();
        let rows = writer.query_typed(&sql, &[(&oid, Type::OID)]).await?;
        let mut any = false;
        for row in rows {
            let dead: Option<f64> = row.try_get(0)?;
            let live: Option<f64> = row.try_get(1)?;
            let dead = dead.unwrap_or(0.0);
            let live = live.unwrap_or(0.0);
            any |= dead > (dead + live) * DEAD;
        }
        Ok(any)
    }
}

/// The indexes of a table and of its TOAST relation that are much larger than fresh ones and can be rebuilt.
pub(crate) async fn bloated(
    connection: &Connection,
    pages: Option<&Pageinspect>,
    page: PageSize,
    table: Oid,
) -> LiveResult<Vec<IndexReport>> {
    let scan = IndexScan::new(pages.cloned(), page, table);
    let found = scan.over(&[connection]).await?;
    let reports = found
        .iter()
        .map(|IndexFill { index, fresh }| index_report(Reindex::Never, page, index, fresh));
    Ok(reports.filter(|index| index.ended == IndexEnd::Bloated).collect())
}

/// The report on a valid index, given the size of a fresh one: what to do about it.
fn index_report(request: Reindex, page: PageSize, index: &Index, fresh: &Fresh) -> IndexReport {
    let mut ended = index_end(request, index.bytes, fresh.bytes());
    let mut reason = match fresh {
        Fresh::NotKnown(reason) => Some(reason.clone()),
        Fresh::Locked => Some("it is locked by other sessions".to_owned()),
        Fresh::Bytes(_) => None,
    };
    let mut command = None;
    let mut wal_expected = None;
    match (ended, index.refused()) {
        (IndexEnd::NotKnown, _) if matches!(fresh, Fresh::Locked) => ended = IndexEnd::Left,
        (IndexEnd::Planned | IndexEnd::Bloated, Some(refused)) => {
            ended = IndexEnd::Refused;
            reason = Some(refused.to_owned());
        }
        (IndexEnd::Planned | IndexEnd::Bloated, None) => {
            command = Some(index.rebuild());
            let size = fresh.bytes().unwrap_or(index.bytes);
            if ended == IndexEnd::Planned
                && let Some(why) = index.locks_long(size)
            {
                ended = IndexEnd::Refused;
                reason = Some(why.to_owned());
            } else {
                let fillfactor = index.entries.fillfactor;
                wal_expected = fresh.bytes().map(|bytes| build_wal(page, bytes, fillfactor));
            }
        }
        _ => {}
    }
    IndexReport {
        index: index.quoted(),
        ended,
        before: index.bytes,
        expected: fresh.bytes(),
        wal_expected,
        after: None,
        reason,
        command,
    }
}

/// The indexes, by quoted names, whose rebuilds were begun and may have left an invalid index.
#[derive(Debug, Default)]
pub struct Rebuilds(pub(super) Mutex<BTreeSet<String>>);

/// What to do about an index of this size, if a fresh one would have `fresh` bytes.
pub(crate) fn index_end(request: Reindex, bytes: u64, fresh: Option<u64>) -> IndexEnd {
    match (request, fresh) {
        (Reindex::All, _) => IndexEnd::Planned,
        (_, None) => IndexEnd::NotKnown,
        (_, Some(fresh)) if !is_bloated(bytes, fresh) => IndexEnd::Kept,
        (Reindex::Never, _) => IndexEnd::Bloated,
        (Reindex::Bloated, _) => IndexEnd::Planned,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_rebuilt_for_a_third_and_some_pages() {
        let mb = 1 << 20;
        assert!(is_bloated(14 * mb, 10 * mb) && !is_bloated(13 * mb, 10 * mb));
        assert!(!is_bloated(32 << 10, 16 << 10));
        assert_eq!(index_end(Reindex::Never, 3 * mb, Some(mb)), IndexEnd::Bloated);
        assert_eq!(index_end(Reindex::Bloated, 3 * mb, Some(mb)), IndexEnd::Planned);
        assert_eq!(index_end(Reindex::Bloated, mb, Some(mb)), IndexEnd::Kept);
        assert_eq!(index_end(Reindex::Bloated, mb, None), IndexEnd::NotKnown);
        assert_eq!(index_end(Reindex::All, mb, None), IndexEnd::Planned);
    }
}
