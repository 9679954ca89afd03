//! A check of one table of a live server: batch by batch on all connections, each batch in a
//! transaction of its own. What looks wrong is checked again in another one before it is reported.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::code::Code;
use super::collector::Zeros;
use super::damaged_row::twice;
use super::finding::{CheckError, Checked, Finding, MAX_KNOWN, Remarks, zeros};
use super::live_check::{About, BATCH, CheckedBlocks, IGNORES_HOFF, LiveCheck, Which};
use super::live_orphans::{self, Decided, LsnMarks};
use super::live_repair::{self, InRelation, MAX_REFUSED, TableDamage};
use super::repair::ToastIndexState;
use super::salvage::refuses_page;
use super::salvage_dir::{SalvageDir, TableSalvage};
use super::subject::External;
use super::value::{ChunkSeen, check_chunks};
use crate::server::catalog::{Relation, UNKNOWN_LAYOUT};
use crate::server::checking::{self, Standing};
use crate::server::connect::Connection;
use crate::server::{LiveError, snapshot};
use toast_format::disk::BlockNumber;
use toast_format::disk::page::{WrongChecksum, wrong_checksum};
use toast_format::heap::problem::Place;
use toast_format::heap::progress::Progress;
use toast_format::model::sql::quote_qualified;
use toast_format::model::visibility::Snapshot;

/// Bytes of a table and its TOAST relation that a batch is to read.
const BATCH_BYTES: u64 = 64 << 20;
/// Findings of missing chunks that are kept to be held against the TOAST relation itself.
const MAX_MISSING: usize = 100_000;
/// Findings that are kept until all is known of the table.
const MAX_TOLD: usize = 100_000;
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
        tell: &mut (dyn FnMut(Finding) -> std::io::Result<()> + Send),
    ) -> Result<Option<Checked>, CheckError> {
        let leader = self.connections.first().ok_or_else(no_connection)?;
        let mut first = self.live_check(leader);
        let Some(start) = first.begin().await? else {
            snapshot::abandon(leader.client()).await?;
            return Ok(None);
        };
        let index = first.toast_index().await?;
        snapshot::end(leader.client()).await?;
        let name = self.relation.display_name();
        if start.is_out_of_reach {
            let mut checked = Checked::new(&name);
            checked.note("the table is unlogged, and has no rows on a standby");
            return Ok(Some(checked));
        }
        let mut run = TableRun::new(&name, &start, index.as_deref(), salvage, tell);
        let ended = self.check_all(&mut first, &start, index, progress, stop, &mut run).await;
        // of a check that ends early too
        run.tell_of_index(false)?;
        Ok(ended?.then_some(run.checked))
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
            run.damage.has_wrong_toast = true;
            run.tell(finding)?;
        } else if let Some(index) = index
            && self.is_stock(first)
        {
            for finding in first.index_pages(&index, stop).await? {
                run.tell(finding)?;
            }
            first.by_index = !run.damage.index.is_damaged;
        }
        if !self.relation_of(Which::Heap, start.blocks, &name, progress, stop, run).await? {
            return Ok(false);
        }
        self.values(first, run).await?;
        if !first.has_wrong_toast && !self.chunks(first, start, progress, stop, run).await? {
            return Ok(false);
        }
        self.save(first, start, run).await?;
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
        if let Some(left_out) = run.zeros.left_out() {
            run.checked.leave_out(left_out);
        }
        let lost = first.lost_blocks(&run.zeros.blocks()).await?;
        for finding in lost.findings(&first.name(Which::Heap)) {
            run.tell(finding)?;
        }
        // a damaged block was in use
        if !run.zeros.has_used() && run.checked.errors == 0 {
            self.emptied(first, run).await?;
        }
        self.missing(first, run).await?;
        run.checked.remark(&run.remarks);
        run.known.sort_unstable();
        let twice = twice(std::mem::take(&mut run.live));
        for finding in first.shared_values(&twice).await? {
            run.tell(finding)?;
        }
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
        let name = first.name(Which::Toast);
        if !toast.layout_is_known(&self.about.server) {
            run.checked
                .leave_out(format!("the chunks in {name} were not checked: {UNKNOWN_LAYOUT}"));
            return Ok(true);
        }
        if !self.options.toast_pages {
            run.checked.note(format!(
                "the pages of {name} were not checked by themselves (--scan-toast always)"
            ));
            return Ok(true);
        }
        let blocks = toast.bytes / self.about.server.page_size.bytes() as u64;
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        let is_known = run.is_complete && run.checked.errors == 0;
        if is_known && run.remarks.by_address.count > 0 {
            run.checked.orphans_by_address(&name);
        } else if is_known {
            run.candidates = Some((start.snapshot.clone(), HashSet::new()));
        } else {
            run.checked.orphans_unseen(&name, run.known.len() >= MAX_KNOWN);
        }
        if !self.relation_of(Which::Toast, blocks, &name, progress, stop, run).await? {
            return Ok(false);
        }
        let unreadable_chunks = run.damage.unreadable_chunks.clone();
        if self.about.server.version_num >= IGNORES_HOFF && !unreadable_chunks.is_empty() {
            for finding in first.misread_values(&unreadable_chunks).await? {
                run.tell(finding)?;
            }
        }
        self.orphans(first, start, run).await?;
        Ok(true)
    }

    /// Saves what is left of damaged values, and values without a row where anything was found.
    async fn save(
        &self,
        first: &mut LiveCheck,
        start: &Standing,
        run: &mut TableRun<'_>,
    ) -> Result<(), CheckError> {
        let is_saving = run.salvage.dir.is_some();
        if !is_saving && !run.damage.index.is_damaged {
            return Ok(());
        }
        let all = run.salvage.take_wanted(&mut run.checked);
        let repairs = first.repairs(&all, &run.known, run.damage.clone()).await?;
        run.tell_of_index(repairs.risk.is_none())?;
        let Some(dir) = &mut run.salvage.dir else { return Ok(()) };
        if run.damage.refused.iter().any(|refused| refused.len() > MAX_REFUSED) {
            run.checked.leave_out(format!(
                "only {MAX_REFUSED} of the pages that the server refuses were saved"
            ));
        }
        first.save(&all, &run.known, dir).await?;
        let toast = first.relation().toast.as_ref();
        let is_stock = toast.is_some_and(|toast| toast.layout_is_known(&self.about.server));
        if is_stock && run.remarks.tells_all(run.known.len()) && run.checked.has_findings() {
            let left_out = first.save_without_row(&start.snapshot, &run.known, dir).await?;
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
                check.by_index = !run.damage.index.is_damaged;
                check.has_wrong_toast = run.damage.has_wrong_toast;
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
        let there = live_repair::chunks(check, &ids).await?;
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
            run.tell(found)?;
        }
        Ok(())
    }

    /// Reports a table in which no block is in use, although the catalog counts rows. VACUUM empties a table before it corrects the
    /// catalog, and holds a lock until it has: the second look is after that.
    async fn emptied(
        &self,
        check: &mut LiveCheck,
        run: &mut TableRun<'_>,
    ) -> Result<(), CheckError> {
        let mut found = None;
        for _ in 0..2 {
            let standing = check.begin().await?;
            snapshot::abandon(check.connection.client()).await?;
            let Some(standing) = standing else { return Ok(()) };
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
        if let Some(finding) = found {
            run.tell(finding)?;
        }
        Ok(())
    }

    /// Reports blocks of zeros in front of used ones if there are values without a row. A server that extends a table by
    /// many blocks leaves such blocks too. It is certain that rows stood there only if the TOAST relation was never
    /// rewritten, because VACUUM FULL and the like leave values without a row.
    async fn lost_rows(
        &self,
        check: &mut LiveCheck,
        has_orphans: bool,
        run: &mut TableRun<'_>,
    ) -> Result<(), CheckError> {
        if !has_orphans {
            return Ok(());
        }
        let standing = check.begin().await?;
        snapshot::abandon(check.connection.client()).await?;
        // the file of a new relation has the number of its OID
        let toast = check.relation.toast.as_ref().map(|toast| toast.oid.0);
        let is_first = standing.is_some_and(|now| toast.is_some() && now.toast_file == toast);
        let mut still = Vec::new();
        for blocks in run.zeros.in_front().chunks(BATCH as usize) {
            let Some(result) = check.check_blocks(Which::Heap, blocks, true).await? else {
                return Ok(());
            };
            still.extend(result.zeros.blocks());
        }
        if let Some(finding) = zeros(&check.name(Which::Heap), &still, is_first) {
            run.tell(finding)?;
        }
        Ok(())
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
        if left.len() >= MAX_CANDIDATES {
            run.checked.orphans_unseen(&toast, true);
        }
        let marks = std::mem::take(&mut run.marks);
        match live_orphans::decide(check, marks, left, start.lsn.is_some()).await? {
            Decided::Found(findings) => {
                self.lost_rows(check, !findings.is_empty(), run).await?;
                for finding in findings {
                    run.tell(finding)?;
                }
            }
            Decided::Open(count, why) => {
                let s = if count == 1 { "" } else { "s" };
                run.checked.orphans_unknown(&format!("{count} value{s} of {toast}"), why);
            }
        }
        Ok(())
    }
}

fn no_connection() -> LiveError {
    LiveError::Unexpected("no connection".into())
}

/// The results of a check so far, and the receiver of its findings.
struct TableRun<'t> {
    checked: Checked,
    tell: &'t mut (dyn FnMut(Finding) -> std::io::Result<()> + Send),
    known: Vec<u64>,
    /// Values that live rows refer to.
    live: Vec<u64>,
    zeros: Zeros,
    remarks: Remarks,
    is_complete: bool,
    missing: Vec<(Finding, External)>,
    /// Values of the TOAST relation that were there when the check began and to which no row is known
    /// to refer.
    candidates: Option<(Snapshot, HashSet<u64>)>,
    /// How far its blocks were looked at.
    marks: LsnMarks,
    salvage: TableSalvage<'t>,
    /// Findings about the TOAST index, which are told once it is known whether it can be rebuilt.
    of_index: Vec<Finding>,
    /// Damage of the table as a whole.
    damage: TableDamage,
}

impl<'t> TableRun<'t> {
    /// Of a table that was seen like this when the check began.
    fn new(
        name: &str,
        start: &Standing,
        index: Option<&str>,
        salvage: Option<&'t mut SalvageDir>,
        tell: &'t mut (dyn FnMut(Finding) -> std::io::Result<()> + Send),
    ) -> TableRun<'t> {
        TableRun {
            checked: Checked::new(name),
            tell,
            known: Vec::new(),
            live: Vec::new(),
            zeros: Zeros::default(),
            remarks: Remarks::default(),
            is_complete: true,
            missing: Vec::new(),
            candidates: None,
            marks: LsnMarks::new(start.file),
            salvage: TableSalvage::new(salvage),
            of_index: Vec::new(),
            damage: TableDamage {
                index: ToastIndexState {
                    reindex: index.map(|name| {
                        format!("REINDEX INDEX {};", quote_qualified("pg_toast", name))
                    }),
                    ..ToastIndexState::default()
                },
                ..TableDamage::default()
            },
        }
    }
}

impl TableRun<'_> {
    fn tell(&mut self, finding: Finding) -> std::io::Result<()> {
        let is_of_index = finding.code.is_of_index();
        self.damage.index.is_damaged |= is_of_index;
        self.damage.wrong_checksums |= finding.code == Code::Checksum;
        if let (Some(block), None, true) =
            (finding.place.block, finding.place.item, refuses_page(finding.code))
        {
            let [heap, toast] = &mut self.damage.refused;
            let is_heap = finding.place.source == self.checked.relation;
            if is_heap { heap } else { toast }.push(block);
        }
        let claimed = finding.tid();
        let is_misread = matches!(finding.code, Code::LinePointer | Code::HeaderLength);
        if finding.place.source != self.checked.relation && is_misread {
            self.damage.unreadable_chunks.extend(claimed);
        }
        let is_told = finding.place.source != self.checked.relation
            && claimed.is_some_and(|tid| self.checked.claimed.contains(&tid));
        if is_told {
            return Ok(());
        }
        self.checked.count(&finding);
        self.salvage.note(&self.checked.relation, &finding);
        if self.damage.told.len() < MAX_TOLD {
            self.damage.told.push((finding.code, finding.place.clone()));
        }
        if is_of_index && self.of_index.len() < MAX_TOLD {
            self.of_index.push(finding);
            return Ok(());
        }
        (self.tell)(finding)
    }

    /// Tells the findings about the TOAST index, with the statement that rebuilds it if that `loses_nothing`.
    fn tell_of_index(&mut self, loses_nothing: bool) -> std::io::Result<()> {
        for mut finding in std::mem::take(&mut self.of_index) {
            if loses_nothing {
                finding.sql.clone_from(&self.damage.index.reindex);
            }
            (self.tell)(finding)?;
        }
        Ok(())
    }

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
            self.checked.looked.add(&result.looked);
            if result.elsewhere > 0 {
                self.checked.note("values of other TOAST relations were not checked");
                self.checked.is_incomplete = true;
            }
            self.remarks.add(result.remarks);
            if which == Which::Heap {
                self.marks.note(&blocks, result.lsn.unwrap_or(0));
                self.is_complete &= result.is_complete && result.elsewhere == 0;
                self.zeros.add(result.zeros);
                if self.known.len() < MAX_KNOWN {
                    self.known.extend(result.known);
                    self.live.extend(result.live);
                } else {
                    self.is_complete = false;
                }
            }
            if let Some((start, candidates)) = &mut self.candidates {
                for (id, xmin) in result.chunks {
                    let is_old = xmin.0 <= 2 || start.was_over(xmin);
                    let is_new = is_old && self.known.binary_search(&id).is_err();
                    if is_new && candidates.len() < MAX_CANDIDATES {
                        candidates.insert(id);
                    }
                }
            }
            for (finding, value) in result.missing {
                if self.missing.len() < MAX_MISSING {
                    self.missing.push((finding, value));
                } else if told.is_ok() {
                    told = self.tell(finding);
                }
            }
            for finding in result.findings {
                if told.is_ok() {
                    told = self.tell(finding);
                }
            }
            if told.is_err() {
                done.store(true, Ordering::Relaxed);
            }
        }
        told
    }
}

/// How often what looks wrong is looked at again, at the most, until two looks agree.
pub(super) const LOOKS: usize = 4;
/// How long a page may be half written.
const TORN: Duration = Duration::from_millis(100);

/// The result of one batch.
struct CheckedRange {
    blocks: Range<u32>,
    /// What two checks agree on.
    result: CheckedBlocks,
}

/// Checks batches on one connection until none is left.
struct BatchWorker {
    check: LiveCheck,
    which: Which,
    blocks: u32,
    /// Blocks of one batch.
    batch: u32,
    next: Arc<AtomicU32>,
    done: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
}

impl BatchWorker {
    /// `false` if the table was dropped meanwhile.
    async fn run(mut self, sender: UnboundedSender<CheckedRange>) -> Result<bool, LiveError> {
        loop {
            let first = self.next.fetch_add(self.batch, Ordering::Relaxed);
            let ended = self.done.load(Ordering::Relaxed) || self.stop.load(Ordering::Relaxed);
            if first >= self.blocks || ended {
                return Ok(true);
            }
            let range = first..first.saturating_add(self.batch).min(self.blocks);
            let blocks: Vec<BlockNumber> = range.clone().map(BlockNumber).collect();
            let Some(mut result) = self.check.check_blocks(self.which, &blocks, false).await?
            else {
                return Ok(false);
            };
            self.confirm(&mut result).await?;
            if self.check.about.storage.checksums {
                self.checksums(range.clone(), &mut result).await?;
            }
            if sender.send(CheckedRange { blocks: range, result }).is_err() {
                return Ok(true);
            }
        }
    }

    /// Leaves of the findings only those that another look has too.
    async fn confirm(&mut self, result: &mut CheckedBlocks) -> Result<(), LiveError> {
        let mut findings = std::mem::take(&mut result.findings);
        let mut missing = std::mem::take(&mut result.missing);
        for _ in 0..LOOKS {
            let own = self.check.name(self.which);
            let places = findings.iter().chain(missing.iter().map(|(finding, _)| finding));
            let places = places.filter(|finding| finding.place.source == own);
            let mut blocks: Vec<BlockNumber> =
                places.filter_map(|finding| finding.place.block).collect();
            blocks.sort_unstable();
            blocks.dedup();
            if blocks.is_empty() {
                return Ok(());
            }
            let Some(mut again) = self.check.check_blocks(self.which, &blocks, true).await? else {
                return Ok(());
            };
            let all = again.findings.len() + again.missing.len();
            let seen = again.findings.clone();
            let lost = again.missing.clone();
            again.findings.retain(|one| findings.iter().any(|other| one.is_same(other)));
            again.missing.retain(|(one, _)| missing.iter().any(|(other, _)| one.is_same(other)));
            if again.findings.len() + again.missing.len() == all {
                result.findings = again.findings;
                result.missing = again.missing;
                return Ok(());
            }
            // what is new is looked at once more
            result.findings = again.findings;
            result.missing = again.missing;
            (findings, missing) = (seen, lost);
        }
        Ok(())
    }

    /// Verifies the checksums of blocks as they are on disk, for the server does so only with those
    /// that it has to read.
    async fn checksums(
        &mut self,
        range: Range<u32>,
        result: &mut CheckedBlocks,
    ) -> Result<(), LiveError> {
        let size = self.check.about.server.page_size.bytes();
        let name = self.check.name(self.which);
        let mut wrong: HashMap<u32, Vec<u8>> = HashMap::new();
        for (block, page) in range.clone().zip(self.on_disk(range).await?.chunks_exact(size)) {
            if wrong_checksum(BlockNumber(block), page).is_some() {
                wrong.insert(block, page.to_vec());
            }
        }
        let told: HashSet<u32> = result
            .findings
            .iter()
            .filter(|finding| finding.place.item.is_none() && finding.place.source == name)
            .filter_map(|finding| finding.place.block.map(|block| block.0))
            .collect();
        wrong.retain(|block, _| !told.contains(block));
        let mut blocks: Vec<u32> = wrong.keys().copied().collect();
        blocks.sort_unstable();
        for block in blocks {
            // it may have been written just then, half of it
            let mut before = wrong.remove(&block).unwrap_or_default();
            let mut damage = None;
            for _ in 0..LOOKS {
                tokio::time::sleep(TORN).await;
                let again = self.on_disk(block..block.saturating_add(1)).await?;
                damage = if again.len() == size {
                    wrong_checksum(BlockNumber(block), &again)
                } else {
                    None
                };
                if damage.is_none() || again == before {
                    break;
                }
                before = again;
                damage = None;
            }
            if let Some(WrongChecksum { right, got }) = damage {
                let place = Place {
                    block: Some(BlockNumber(block)),
                    byte: Some(8),
                    ..Place::new(name.as_str())
                };
                let right = format!("checksum 0x{right:04x}");
                let got = format!("0x{got:04x}");
                result.findings.push(Finding::new(Code::Checksum, place, right, got));
            }
        }
        Ok(())
    }

    async fn on_disk(&mut self, range: Range<u32>) -> Result<Vec<u8>, LiveError> {
        let connection = &self.check.connection;
        let relation = self.check.quoted(self.which);
        let About { server, storage, .. } = &*self.check.about;
        let read =
            async || storage.on_disk(connection.client(), server, &relation, range.clone()).await;
        match connection.reading(read).await {
            // renamed, dropped or rewritten since
            Err(LiveError::Server(error)) if error.as_db_error().is_some() => Ok(Vec::new()),
            other => other,
        }
    }
}
