//! A check of one table of a live server: batch by batch on all connections, each batch in a
//! transaction of its own. What looks wrong is checked again in another one before it is reported.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::code::Code;
use super::collector::CheckedBlocks;
use super::finding::{CheckError, Checked, Finding, MAX_KNOWN, zeros};
use super::live_batches::{BatchWorker, CheckedRange};
use super::live_check::{About, BATCH, IGNORES_HOFF, LiveCheck};
use super::live_chunks::{self, InRelation};
use super::live_evidence::MAX_REFUSED;
use super::live_orphans::{self, Decided, LsnMarks};
use super::relation_run::{RelationRun, Tell};
use super::salvage_dir::SalvageDir;
use super::subject::{External, Which};
use super::value::{ChunkSeen, check_chunks};
use crate::server::LiveError;
use crate::server::catalog::{Relation, UNKNOWN_LAYOUT};
use crate::server::checking::{self, Standing};
use crate::server::connect::Connection;
use toast_format::disk::BlockNumber;
use toast_format::heap::problem::Place;
use toast_format::heap::progress::Progress;
use toast_format::model::sql::quote_qualified;
use toast_format::model::visibility::Snapshot;

/// Bytes of a table and its TOAST relation that a batch is to read.
const BATCH_BYTES: u64 = 64 << 20;
/// Findings of missing chunks that are kept to be held against the TOAST relation itself.
const MAX_MISSING: usize = 100_000;
/// Values without a row that are kept to be looked at again.
const MAX_CANDIDATES: usize = 1_000_000;

/// How a table is checked.
#[derive(Debug, Clone, Copy)]
pub struct LiveOptions {
    /// Whether the pages of the TOAST relation are looked at too.
    pub toast_pages: bool,
}

/// The parts of a check that one table has.
pub struct TableCheck {
    connections: Vec<Arc<Connection>>,
    about: Arc<About>,
    relation: Arc<Relation>,
    options: LiveOptions,
}

impl TableCheck {
    /// A table of the server that `connections` lead to.
    pub fn new(
        connections: Vec<Arc<Connection>>,
        about: Arc<About>,
        relation: Arc<Relation>,
        options: LiveOptions,
    ) -> TableCheck {
        TableCheck { connections, about, relation, options }
    }

    /// Checks the table; `None` if it was dropped meanwhile.
    pub async fn check(
        &self,
        progress: &dyn Progress,
        stop: &Arc<AtomicBool>,
        salvage: Option<&mut SalvageDir>,
        tell: &mut Tell<'_>,
    ) -> Result<Option<Checked>, CheckError> {
        let leader = self.connections.first().ok_or_else(no_connection)?;
        let mut first = self.live_check(leader);
        let begun: Result<_, LiveError> = first
            .in_snapshot(async |check, start| Ok((start.clone(), check.toast_index().await?)))
            .await;
        let Some((start, index)) = begun? else { return Ok(None) };
        let name = self.relation.display_name();
        if start.is_out_of_reach {
            let mut checked = Checked::new(&name);
            checked.note("the table is unlogged, and has no rows on a standby");
            return Ok(Some(checked));
        }
        let mut run = TableRun {
            relation: RelationRun::new(&name, salvage, tell),
            missing: Vec::new(),
            candidates: None,
            marks: LsnMarks::new(start.file),
        };
        run.relation.damage.index.reindex = index
            .as_ref()
            .map(|name| format!("REINDEX INDEX {};", quote_qualified("pg_toast", name)));
        let ended = self.check_all(&mut first, &start, index, progress, stop, &mut run).await;
        // of a check that ends early too
        run.relation.tell_of_index(false)?;
        Ok(ended?.then_some(run.relation.checked))
    }

    /// Checks all of the table; `false` if it was dropped meanwhile.
    async fn check_all(
        &self,
        first: &mut LiveCheck,
        start: &Standing,
        index: Option<String>,
        progress: &dyn Progress,
        stop: &Arc<AtomicBool>,
        run: &mut TableRun<'_>,
    ) -> Result<bool, CheckError> {
        let name = first.name(Which::Heap);
        if let Some(finding) = first.wrong_toast().await? {
            first.has_wrong_toast = true;
            run.relation.damage.has_wrong_toast = true;
            run.relation.tell(finding)?;
        } else if let Some(index) = index
            && self.is_stock(first)
        {
            run.relation.tell_all(first.index_pages(&index, stop).await?)?;
            first.by_index = !run.relation.damage.index.is_damaged;
        }
        if !self.relation_of(Which::Heap, start.blocks, &name, progress, stop, run).await? {
            return Ok(false);
        }
        self.values(first, run).await?;
        if !first.has_wrong_toast && !self.chunks(first, start, progress, stop, run).await? {
            return Ok(false);
        }
        self.save(first, start, &mut run.relation).await?;
        Ok(true)
    }

    /// Whether the server's own toaster alone is at work, and its layout known.
    fn is_stock(&self, check: &LiveCheck) -> bool {
        let server = &self.about.server;
        let toast = check.relation().toast.as_ref();
        !server.has_toasters && toast.is_some_and(|toast| toast.layout_is_known(server))
    }

    /// Reports what is known only once all rows were read.
    async fn values(
        &self,
        first: &mut LiveCheck,
        run: &mut TableRun<'_>,
    ) -> Result<(), CheckError> {
        let relation = &mut run.relation;
        if let Some(left_out) = relation.rows.zeros.left_out() {
            relation.checked.leave_out(left_out);
        }
        let lost = first.lost_blocks(&relation.rows.zeros.blocks()).await?;
        relation.tell_all(lost.findings(&first.name(Which::Heap)))?;
        // a damaged block was in use
        if !relation.rows.zeros.has_used() && relation.checked.errors == 0 {
            self.emptied(first, relation).await?;
        }
        self.missing(first, run).await?;
        let twice = run.relation.end_rows();
        run.relation.tell_all(first.shared_values(&twice).await?)?;
        Ok(())
    }

    /// Checks the pages of the TOAST relation; `false` if the table was dropped meanwhile.
    async fn chunks(
        &self,
        first: &mut LiveCheck,
        start: &Standing,
        progress: &dyn Progress,
        stop: &Arc<AtomicBool>,
        run: &mut TableRun<'_>,
    ) -> Result<bool, CheckError> {
        let Some(toast) = first.relation().toast.clone() else { return Ok(true) };
        let relation = &mut run.relation;
        let name = first.name(Which::Toast);
        if !toast.layout_is_known(&self.about.server) {
            relation
                .checked
                .leave_out(format!("the chunks in {name} were not checked: {UNKNOWN_LAYOUT}"));
            return Ok(true);
        }
        if !self.options.toast_pages {
            relation.checked.note(format!(
                "the pages of {name} were not checked by themselves (--scan-toast always)"
            ));
            return Ok(true);
        }
        let blocks = toast.bytes / self.about.server.page_size.bytes() as u64;
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        let is_known = !relation.rows.is_incomplete && relation.checked.errors == 0;
        if is_known && relation.rows.remarks.by_address.count > 0 {
            relation.checked.orphans_by_address(&name);
        } else if is_known {
            run.candidates = Some((start.snapshot.clone(), HashSet::new()));
        } else {
            relation.checked.orphans_unseen(&name, relation.rows.known.len() >= MAX_KNOWN);
        }
        if !self.relation_of(Which::Toast, blocks, &name, progress, stop, run).await? {
            return Ok(false);
        }
        let unreadable_chunks = run.relation.damage.unreadable_chunks.clone();
        if self.about.server.version_num >= IGNORES_HOFF && !unreadable_chunks.is_empty() {
            run.relation.tell_all(first.misread_values(&unreadable_chunks).await?)?;
        }
        self.orphans(first, start, run).await?;
        Ok(true)
    }

    /// Saves what is left of damaged values, and values without a row where anything was found.
    async fn save(
        &self,
        first: &mut LiveCheck,
        start: &Standing,
        run: &mut RelationRun<'_>,
    ) -> Result<(), CheckError> {
        let is_saving = run.salvage.dir.is_some();
        if !is_saving && !run.damage.index.is_damaged {
            return Ok(());
        }
        let damaged = run.salvage.take_damaged(&mut run.checked);
        let repairs = first.repairs(&damaged, &run.rows.known, &run.damage).await?;
        run.tell_of_index(repairs.risk.is_none())?;
        let Some(dir) = &mut run.salvage.dir else { return Ok(()) };
        if run.damage.refused.iter().any(|refused| refused.len() > MAX_REFUSED) {
            run.checked.leave_out(format!(
                "only {MAX_REFUSED} of the pages that the server refuses were saved"
            ));
        }
        first.save(&damaged, &run.rows.known, dir).await?;
        let toast = first.relation().toast.as_ref();
        let is_stock = toast.is_some_and(|toast| toast.layout_is_known(&self.about.server));
        if is_stock && run.rows.tells_all() && run.checked.has_findings() {
            let left_out = first.save_without_row(&start.snapshot, &run.rows.known, dir).await?;
            left_out.into_iter().for_each(|left_out| run.checked.leave_out(left_out));
        }
        Ok(dir.repair(repairs.script)?)
    }

    fn live_check(&self, connection: &Arc<Connection>) -> LiveCheck {
        let about = Arc::clone(&self.about);
        let relation = Arc::clone(&self.relation);
        LiveCheck::new(Arc::clone(connection), about, relation)
    }

    /// Blocks of one batch: fewer where much stands out of line behind each.
    fn batch(&self, which: Which, blocks: u32) -> u32 {
        let toast = self.relation.toast.as_ref().map_or(0, |toast| toast.bytes);
        let behind = match which {
            Which::Heap => toast / u64::from(blocks.max(1)),
            Which::Toast => 0,
        };
        let page = self.about.server.page_size.bytes() as u64;
        let batch = BATCH_BYTES / (page + behind);
        u32::try_from(batch).unwrap_or(BATCH).clamp(1, BATCH)
    }

    /// Looks at all blocks of the table, or of its TOAST relation, on all connections; `false` if the table was dropped
    /// meanwhile.
    async fn relation_of(
        &self,
        which: Which,
        blocks: u32,
        name: &str,
        progress: &dyn Progress,
        stop: &Arc<AtomicBool>,
        run: &mut TableRun<'_>,
    ) -> Result<bool, CheckError> {
        progress.begin(name, u64::from(blocks));
        let next = Arc::new(AtomicU32::new(0));
        let done = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = unbounded_channel();
        let tasks: Vec<_> = self
            .connections
            .iter()
            .map(|connection| {
                let mut check = self.live_check(connection);
                // while rows are read only damage to its pages is known
                check.by_index = !run.relation.damage.index.is_damaged;
                check.has_wrong_toast = run.relation.damage.has_wrong_toast;
                let worker = BatchWorker {
                    check,
                    which,
                    blocks,
                    batch: self.batch(which, blocks),
                    next: Arc::clone(&next),
                    done: Arc::clone(&done),
                    stop: Arc::clone(stop),
                };
                tokio::spawn(worker.run(sender.clone()))
            })
            .collect();
        drop(sender);
        let told = run.collect(receiver, which, progress, &done).await;
        let mut ended: Result<bool, LiveError> = Ok(true);
        for task in tasks {
            let joined = task.await.map_err(std::io::Error::other)?;
            ended = match joined {
                // a crash ends the connections of the other tasks too
                Err(error @ LiveError::Crashed(_)) => Err(error),
                joined => ended.and_then(|is_there| Ok(joined? && is_there)),
            };
        }
        progress.end();
        told?;
        Ok(ended?)
    }

    /// Tells of chunks that are missing or cannot be read, after a look at the TOAST relation without its index.
    async fn missing(
        &self,
        check: &mut LiveCheck,
        run: &mut TableRun<'_>,
    ) -> Result<(), CheckError> {
        if run.missing.is_empty() {
            return Ok(());
        }
        let missing = std::mem::take(&mut run.missing);
        let mut ids: Vec<u64> = missing.iter().map(|(_, v)| v.pointer.value_id.0).collect();
        ids.sort_unstable();
        ids.dedup();
        let there = live_chunks::chunks(check, &ids).await?;
        let page = self.about.server.page_size;
        for (finding, value) in missing {
            let id = value.pointer.value_id;
            let chunks = there.get(&id.0).map_or(&[][..], Vec::as_slice);
            let unindexed = chunks.iter().find(|chunk| chunk.is_indexed == Some(false));
            let seen: Vec<ChunkSeen> = chunks.iter().map(|chunk| chunk.seen).collect();
            let found = match unindexed {
                Some(InRelation { seen: ChunkSeen { seq, tid, .. }, .. }) => Finding {
                    expected: format!("an entry for chunk {seq} of value {id}"),
                    found: format!("none, but the chunk is at {tid}"),
                    code: Code::IndexEntryMissing,
                    chunk: Some(*tid),
                    ..finding
                },
                None if finding.code == Code::ChunkUnreadable
                    && check_chunks(&value.pointer, &seen, page).is_ok() =>
                {
                    Finding {
                        expected: format!("an index that leads to the chunks of value {id}"),
                        code: Code::IndexUnreadable,
                        ..finding
                    }
                }
                None => finding,
            };
            run.relation.tell(found)?;
        }
        Ok(())
    }

    /// Reports a table in which no block is in use, although the catalog counts rows. VACUUM empties a table before it corrects the
    /// catalog, and holds a lock until it has: the second look is after that.
    async fn emptied(
        &self,
        check: &mut LiveCheck,
        run: &mut RelationRun<'_>,
    ) -> Result<(), CheckError> {
        let mut found = None;
        for _ in 0..2 {
            let Some(standing) = check.standing().await? else { return Ok(()) };
            let counted = standing.counted.filter(|(rows, blocks)| *rows > 0.0 && *blocks > 0);
            let Some((rows, blocks)) = counted else { return Ok(()) };
            let all: Vec<BlockNumber> = (0..standing.blocks).map(BlockNumber).collect();
            for some in all.chunks(BATCH as usize) {
                let result = check.check_blocks(Which::Heap, some, true).await?;
                if result.is_none_or(|result| result.zeros.has_used()) {
                    return Ok(());
                }
            }
            let client = check.connection.client();
            let oid = check.relation.oid;
            // a standby does not know that lock
            let in_recovery = standing.snapshot.taken_during_recovery;
            let expected = format!("reltuples {rows} and relpages {blocks} in pg_class");
            if in_recovery || checking::is_being_vacuumed(client, oid).await? {
                run.checked.note(format!(
                    "no block is in use, but there are {expected}; on a standby, and while the table is being vacuumed or \
                     analyzed, this cannot be judged"
                ));
                run.checked.is_incomplete = true;
                return Ok(());
            }
            let zeros = format!("blocks in use: 0 of {}", standing.blocks);
            let place = Place::new(check.name(Which::Heap));
            found = Some(Finding::new(Code::Emptied, place, expected, zeros));
        }
        Ok(run.tell_all(found)?)
    }

    /// Reports blocks of zeros in front of used ones if there are values without a row. A server that extends a table by
    /// many blocks leaves such blocks too. It is certain that rows stood there only if the TOAST relation was never
    /// rewritten, because VACUUM FULL and the like leave values without a row.
    async fn lost_rows(
        &self,
        check: &mut LiveCheck,
        has_orphans: bool,
        run: &mut RelationRun<'_>,
    ) -> Result<(), CheckError> {
        if !has_orphans {
            return Ok(());
        }
        let standing = check.standing().await?;
        // the file of a new relation has the number of its OID
        let toast = check.relation.toast.as_ref().map(|toast| toast.oid.0);
        let is_first = standing.is_some_and(|now| toast.is_some() && now.toast_file == toast);
        let mut still = Vec::new();
        for blocks in run.rows.zeros.in_front().chunks(BATCH as usize) {
            let Some(result) = check.check_blocks(Which::Heap, blocks, true).await? else {
                return Ok(());
            };
            still.extend(result.zeros.blocks());
        }
        Ok(run.tell_all(zeros(&check.name(Which::Heap), &still, is_first))?)
    }

    /// Tells values of the TOAST relation that no row refers to.
    async fn orphans(
        &self,
        check: &mut LiveCheck,
        start: &Standing,
        run: &mut TableRun<'_>,
    ) -> Result<(), CheckError> {
        let Some((_, left)) = run.candidates.take() else { return Ok(()) };
        let toast = check.name(Which::Toast);
        let relation = &mut run.relation;
        if left.len() >= MAX_CANDIDATES {
            relation.checked.orphans_unseen(&toast, true);
        }
        let marks = std::mem::take(&mut run.marks);
        match live_orphans::decide(check, marks, left, start.lsn.is_some()).await? {
            Decided::Found(findings) => {
                self.lost_rows(check, !findings.is_empty(), relation).await?;
                relation.tell_all(findings)?;
            }
            Decided::Open(count, why) => {
                let s = if count == 1 { "" } else { "s" };
                relation.checked.orphans_unknown(&format!("{count} value{s} of {toast}"), why);
            }
        }
        Ok(())
    }
}

fn no_connection() -> LiveError {
    LiveError::Unexpected("no connection".into())
}

/// A table that is checked.
struct TableRun<'t> {
    relation: RelationRun<'t>,
    missing: Vec<(Finding, External)>,
    /// Values of the TOAST relation that were there when the check began and to which no row is known
    /// to refer.
    candidates: Option<(Snapshot, HashSet<u64>)>,
    /// How far its blocks were looked at.
    marks: LsnMarks,
}

impl TableRun<'_> {
    async fn collect(
        &mut self,
        mut receiver: UnboundedReceiver<CheckedRange>,
        which: Which,
        progress: &dyn Progress,
        done: &AtomicBool,
    ) -> std::io::Result<()> {
        let mut told = Ok(());
        while let Some(CheckedRange { blocks, result }) = receiver.recv().await {
            progress.advance(u64::from(blocks.end - blocks.start));
            if told.is_ok() {
                told = self.add(which, &blocks, result);
            }
            if told.is_err() {
                done.store(true, Ordering::Relaxed);
            }
        }
        told
    }

    fn add(
        &mut self,
        which: Which,
        blocks: &Range<u32>,
        mut result: CheckedBlocks,
    ) -> std::io::Result<()> {
        for (finding, value) in std::mem::take(&mut result.missing) {
            if self.missing.len() < MAX_MISSING {
                self.missing.push((finding, value));
            } else {
                self.relation.tell(finding)?;
            }
        }
        self.relation.add(&mut result)?;
        let known = &self.relation.rows.known;
        if let Some((start, candidates)) = &mut self.candidates {
            for (id, xmin) in &result.chunks {
                let is_old = xmin.0 <= 2 || start.was_over(*xmin);
                let is_new = is_old && known.binary_search(id).is_err();
                if is_new && candidates.len() < MAX_CANDIDATES {
                    candidates.insert(*id);
                }
            }
        }
        if which == Which::Heap {
            self.marks.note(blocks, result.lsn.unwrap_or(0));
            self.relation.rows.add_rows(result);
        }
        Ok(())
    }
}
