//! A check of one table of a live server: batch by batch on all connections, each batch in a
//! transaction of its own. What looks wrong is checked again in another one before it is reported.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::code::Code;
use super::collector::{CheckedBlocks, Zeros};
use super::finding::{CheckError, Checked, Finding, MAX_KNOWN, without_rows, zeros};
use super::live_check::{About, BATCH, IGNORES_HOFF, LOOKS, LiveCheck, TORN};
use super::live_chunks::{self, InRelation};
use super::live_evidence::MAX_REFUSED;
use super::live_map::EndByIndex;
use super::live_orphans::{self, Decided, LsnMarks};
use super::page::checksum_finding;
use super::relation_run::{RelationRun, Tell};
use super::salvage_dir::SalvageDir;
use super::subject::{External, Which};
use super::value::{ChunkSeen, check_chunks};
use crate::inspect::inspector::Inspector;
use crate::server::catalog::UNKNOWN_LAYOUT;
use crate::server::checking::{self, Standing};
use crate::server::{Connection, LiveError, Relation};
use toast_format::disk::BlockNumber;
use toast_format::disk::page::{WrongChecksum, wrong_checksum};
use toast_format::heap::problem::Place;
use toast_format::model::sql::quote_qualified;

/// Bytes of a table and its TOAST relation that a batch is to read.
const BATCH_BYTES: u64 = 64 << 20;
/// Findings of missing chunks that are kept to be held against the TOAST relation itself.
const MAX_MISSING: usize = 100_000;
/// Blocks with bytes without line pointers that are held against an index.
const MAX_WITHOUT_POINTERS: usize = 10_000;
/// Values without a row that are kept to be looked at again.
const MAX_CANDIDATES: usize = 1_000_000;

/// Checks a table; `None` if it was dropped meanwhile.
pub(super) async fn check_table(
    inspector: &Inspector,
    about: &Arc<About>,
    relation: Relation,
    salvage: Option<&mut SalvageDir>,
    tell: &mut Tell<'_>,
) -> Result<Option<Checked>, CheckError> {
    let relation = Arc::new(relation);
    let name = relation.display_name();
    let leader = Arc::clone(&inspector.leader);
    let mut first = LiveCheck::new(leader, Arc::clone(about), Arc::clone(&relation));
    let begun: Result<_, LiveError> = first
        .in_snapshot(async |check| Ok((check.standing.clone(), check.toast_index().await?)))
        .await;
    let Some((start, index)) = begun? else { return Ok(None) };
    if start.is_out_of_reach {
        let mut checked = Checked::new(&name);
        checked.note("the table is unlogged, and has no rows on a standby");
        return Ok(Some(checked));
    }
    let mut run = RelationRun::new(&name, about.depth, salvage, tell);
    run.damage.index.reindex =
        index.as_ref().map(|name| format!("REINDEX INDEX {};", quote_qualified("pg_toast", name)));
    let mut table = TableCheck {
        inspector,
        relation,
        first,
        run,
        missing: Vec::new(),
        candidates: None,
        marks: LsnMarks::new(start.file),
        toast_zeros: Zeros::default(),
        start,
    };
    let is_there = table.check(index).await;
    // of a check that ends early too
    table.run.tell_of_index(None)?;
    Ok(is_there?.then_some(table.run.checked))
}

/// A table that is checked.
struct TableCheck<'t> {
    inspector: &'t Inspector,
    /// As it was described when the check began.
    relation: Arc<Relation>,
    /// The check over the first connection.
    first: LiveCheck,
    start: Standing,
    run: RelationRun<'t>,
    missing: Vec<(Finding, External)>,
    /// Values of the TOAST relation that were there when the check began and to which no row is known
    /// to refer.
    candidates: Option<HashSet<u64>>,
    /// How far its blocks were looked at.
    marks: LsnMarks,
    /// New blocks of the TOAST relation.
    toast_zeros: Zeros,
}

impl TableCheck<'_> {
    /// `false` if the table was dropped meanwhile. `index`: the name of the TOAST relation's index.
    async fn check(&mut self, index: Option<String>) -> Result<bool, CheckError> {
        let has_toasters = self.first.about.server.has_toasters;
        if let Some(finding) = self.first.contradiction().await? {
            self.first.has_wrong_catalog = true;
            self.run.damage.has_wrong_catalog = true;
            self.run.tell(finding)?;
        } else if let Some(index) = index
            && self.has_known_layout()
            && !has_toasters
        {
            let findings = self.first.index_pages(&index, &self.inspector.stop).await?;
            self.run.damage.index.leads_behind =
                findings.iter().any(|finding| finding.code == Code::LostRows);
            self.run.tell_all(findings)?;
            self.first.by_index = !self.run.damage.index.is_damaged;
        }
        let is_there = self.blocks(Which::Heap, self.start.blocks).await?;
        if !is_there {
            return Ok(false);
        }
        self.end_rows().await?;
        if !self.first.has_wrong_catalog && !self.chunks().await? {
            return Ok(false);
        }
        self.save().await?;
        Ok(true)
    }

    fn has_known_layout(&self) -> bool {
        let server = &self.first.about.server;
        let toast = self.first.relation.toast.as_ref();
        toast.is_some_and(|toast| toast.layout_is_known(server))
    }

    /// Reports what is known only once all rows were read.
    async fn end_rows(&mut self) -> Result<(), CheckError> {
        let run = &mut self.run;
        if let Some(left_out) = run.rows.zeros.left_out() {
            run.checked.leave_out(left_out);
        }
        let zeros = run.rows.zeros.blocks();
        let lost = self.first.in_snapshot(async |check| check.lost_blocks(&zeros).await).await?;
        run.tell_lost(lost.unwrap_or_default().findings(&self.first.name(Which::Heap)))?;
        let lost = self.first.lost_file(Which::Heap).await?;
        run.tell_lost(lost)?;
        self.lost_pointers().await?;
        // VACUUM shortens a table before it corrects the catalog, so that this alone proves nothing
        let counted = self.first.now().await?.and_then(|now| Some((now.counted?.1, now.blocks)));
        if let Some((pages, blocks)) = counted
            && i64::from(pages) > i64::from(blocks)
            && self.cut_off().await?
        {
            self.run.checked.leave_out(format!(
                "pg_class counts {pages} blocks of {}, and its file has {blocks}: whether that was cut off is not known where no \
                 btree index tells; a VACUUM that was interrupted, and statistics that were restored, leave this too, and ANALYZE \
                 then corrects the catalog",
                self.first.name(Which::Heap)
            ));
        }
        let run = &mut self.run;
        // a damaged block was in use
        if !run.rows.zeros.has_used() && run.checked.errors == 0 {
            self.emptied().await?;
        }
        self.missing().await?;
        let twice = self.run.end_rows();
        if !twice.is_empty() {
            let shared = self.first.in_snapshot(async |check| check.shared_values(&twice).await);
            self.run.tell_all(shared.await?.unwrap_or_default())?;
        }
        Ok(())
    }

    /// Checks the pages of the TOAST relation; `false` if the table was dropped meanwhile.
    async fn chunks(&mut self) -> Result<bool, CheckError> {
        let About { server, toast_limit, .. } = &*self.first.about;
        let Some(toast) = &self.first.relation.toast else { return Ok(true) };
        let name = self.first.name(Which::Toast);
        let checked = &mut self.run.checked;
        if !toast.layout_is_known(server) {
            checked.leave_out(format!("the chunks in {name} were not checked: {UNKNOWN_LAYOUT}"));
            return Ok(true);
        }
        if toast.bytes > *toast_limit {
            checked.note(format!(
                "the pages of {name} were not checked by themselves (--scan-toast always)"
            ));
            return Ok(true);
        }
        let blocks = toast.bytes / server.page_size.bytes() as u64;
        let reads_misread = server.version_num >= IGNORES_HOFF;
        let lost = self.first.lost_file(Which::Toast).await?;
        self.run.tell_all(lost)?;
        let checked = &mut self.run.checked;
        let rows = &self.run.rows;
        if rows.is_incomplete {
            checked.orphans_unseen(&name, rows.known.len() >= MAX_KNOWN);
        } else if rows.remarks.by_address.count > 0 {
            checked.orphans_by_address(&name);
        } else {
            self.candidates = Some(HashSet::new());
        }
        if !self.blocks(Which::Toast, u32::try_from(blocks).unwrap_or(u32::MAX)).await? {
            return Ok(false);
        }
        self.lost_chunks().await?;
        let unreadable_chunks = &self.run.damage.unreadable_chunks;
        if reads_misread && !unreadable_chunks.is_empty() {
            let misread =
                self.first.in_snapshot(async |check| check.misread_values(unreadable_chunks).await);
            let findings = misread.await?;
            self.run.tell_all(findings.unwrap_or_default())?;
        }
        self.orphans().await?;
        Ok(true)
    }

    /// Reports blocks of zeros in front of used ones of the TOAST relation, if values lack chunks.
    async fn lost_chunks(&mut self) -> Result<(), CheckError> {
        const LACKS_CHUNKS: [Code; 3] = [Code::NoChunks, Code::ChunkMissing, Code::ChunksEnd];
        if !LACKS_CHUNKS.into_iter().any(|code| self.run.damage.has(code)) {
            return Ok(());
        }
        let blocks = self.toast_zeros.in_front();
        let Some(still) = self.still_zeros(Which::Toast, &blocks).await? else { return Ok(()) };
        Ok(self.run.tell_all(zeros(&self.first.name(Which::Toast), &still, true))?)
    }

    /// Those of some blocks of zeros that still are; `None` if the table was dropped meanwhile.
    async fn still_zeros(
        &mut self,
        which: Which,
        blocks: &[BlockNumber],
    ) -> Result<Option<Vec<BlockNumber>>, CheckError> {
        let mut still = Vec::new();
        for some in blocks.chunks(BATCH as usize) {
            let looked = self.first.check_blocks(which, some, true).await?;
            let Some(result) = looked else { return Ok(None) };
            still.extend(result.zeros.blocks());
        }
        Ok(Some(still))
    }

    /// Saves what is left of damaged values, and values without a row where anything was found.
    async fn save(&mut self) -> Result<(), CheckError> {
        let is_stock = self.has_known_layout();
        let TableCheck { first, run, start, .. } = self;
        if run.salvage.dir.is_none() && !run.damage.index.is_damaged {
            return Ok(());
        }
        let damaged = run.salvage.take_damaged(&mut run.checked);
        if !first.by_index {
            first.in_snapshot(async |check| check.read_entries().await).await?;
        }
        let repairs = first.repairs(&damaged, &run.rows.known, &run.damage).await?;
        run.tell_all(repairs.wrong_file)?;
        run.tell_of_index(repairs.rebuild.as_deref())?;
        let Some(dir) = &mut run.salvage.dir else { return Ok(()) };
        if run.damage.refused.iter().any(|refused| refused.len() > MAX_REFUSED) {
            run.checked.leave_out(format!(
                "only {MAX_REFUSED} of the pages that the server refuses were saved"
            ));
        }
        first.save(&damaged, &run.rows.known, dir).await?;
        if is_stock
            && run.rows.tells_all()
            && run.checked.has_findings()
            && let Some(left_out) =
                first.save_without_row(&start.snapshot, &run.rows.known, dir).await?
        {
            run.checked.leave_out(left_out);
        }
        Ok(dir.repair(repairs.script)?)
    }

    /// Blocks of one batch: fewer where much stands out of line behind each.
    fn batch(&self, which: Which, blocks: u32) -> u32 {
        let toast = self.relation.toast.as_ref().map_or(0, |toast| toast.bytes);
        let behind = match which {
            Which::Heap => toast / u64::from(blocks.max(1)),
            Which::Toast => 0,
        };
        let page = self.first.about.server.page_size.bytes() as u64;
        let batch = BATCH_BYTES / (page + behind);
        u32::try_from(batch).unwrap_or(BATCH).clamp(1, BATCH)
    }

    fn worker(&self, connection: &Arc<Connection>) -> LiveCheck {
        let about = Arc::clone(&self.first.about);
        let mut check = LiveCheck::new(Arc::clone(connection), about, Arc::clone(&self.relation));
        // while rows are read only damage to its pages is known
        check.by_index = !self.run.damage.index.is_damaged;
        check.has_wrong_catalog = self.run.damage.has_wrong_catalog;
        check
    }

    /// Checks all blocks of the table, or of its TOAST relation, on all connections; `false` if the table was dropped
    /// meanwhile.
    async fn blocks(&mut self, which: Which, blocks: u32) -> Result<bool, CheckError> {
        let progress = Arc::clone(&self.inspector.progress);
        progress.begin(&self.first.name(which), u64::from(blocks));
        let next = Arc::new(AtomicU32::new(0));
        let done = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = unbounded_channel();
        let mut tasks = Vec::new();
        for connection in &self.inspector.connections {
            let worker = BatchWorker {
                check: self.worker(connection),
                which,
                blocks,
                batch: self.batch(which, blocks),
                next: Arc::clone(&next),
                done: Arc::clone(&done),
                stop: Arc::clone(&self.inspector.stop),
            };
            tasks.push(tokio::spawn(worker.run(sender.clone())));
        }
        drop(sender);
        let delivered = self.collect(receiver, which, &done).await;
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
        delivered?;
        Ok(ended?)
    }

    async fn collect(
        &mut self,
        mut receiver: UnboundedReceiver<CheckedRange>,
        which: Which,
        done: &AtomicBool,
    ) -> std::io::Result<()> {
        let mut delivered = Ok(());
        while let Some(CheckedRange { blocks, result }) = receiver.recv().await {
            self.inspector.progress.advance(u64::from(blocks.end - blocks.start));
            if delivered.is_ok() {
                delivered = self.add(which, &blocks, result);
            }
            if delivered.is_err() {
                done.store(true, Ordering::Relaxed);
            }
        }
        delivered
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
                self.run.tell(finding)?;
            }
        }
        self.run.add(&mut result)?;
        let known = &self.run.rows.known;
        if let Some(candidates) = &mut self.candidates {
            for (id, xmin) in &result.chunks {
                let is_old = xmin.0 <= 2 || self.start.snapshot.was_over(*xmin);
                let is_new = is_old && known.binary_search(id).is_err();
                if is_new && candidates.len() < MAX_CANDIDATES {
                    candidates.insert(*id);
                }
            }
        }
        if which == Which::Heap {
            self.marks.note(blocks, result.lsn.unwrap_or(0));
            self.run.rows.add_rows(result);
        } else {
            self.toast_zeros.add(result.zeros);
        }
        Ok(())
    }

    /// Tells of chunks that are missing or cannot be read, after a look at the TOAST relation without its index.
    async fn missing(&mut self) -> Result<(), CheckError> {
        let missing = std::mem::take(&mut self.missing);
        if missing.is_empty() {
            return Ok(());
        }
        let ids: BTreeSet<u64> = missing.iter().map(|(_, v)| v.pointer.value_id.0).collect();
        let ids = Vec::from_iter(ids);
        let there = live_chunks::chunks(&mut self.first, &ids).await?;
        let page = self.first.about.server.page_size;
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
            self.run.tell(found)?;
        }
        Ok(())
    }

    /// Reports a table in which no block is in use, although the catalog counts rows. VACUUM empties a table before it corrects the
    /// catalog, and holds a lock until it has: the second look is after that.
    async fn emptied(&mut self) -> Result<(), CheckError> {
        let check = &mut self.first;
        let mut found = None;
        for _ in 0..2 {
            let Some(standing) = check.now().await? else { return Ok(()) };
            // a block of zeros in the table may never have had rows
            let counted = standing
                .counted
                .filter(|(rows, blocks)| *blocks > 0 && (*rows > 0.0 || standing.blocks == 0));
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
                self.run.checked.leave_out(format!(
                    "no block is in use, but there are {expected}; on a standby, and while the table is being vacuumed or \
                     analyzed, this cannot be judged"
                ));
                return Ok(());
            }
            let zeros = format!("blocks in use: 0 of {}", standing.blocks);
            let place = Place::new(check.name(Which::Heap));
            found = Some(Finding::new(Code::Emptied, place, expected, zeros));
        }
        Ok(self.run.tell_lost(found)?)
    }

    /// Reports pages of the table whose line pointers were lost.
    async fn lost_pointers(&mut self) -> Result<(), CheckError> {
        let mut blocks = std::mem::take(&mut self.run.rows.without_pointers);
        let Some(first) = blocks.iter().min().copied() else { return Ok(()) };
        blocks.sort_unstable();
        let count = blocks.len();
        blocks.truncate(MAX_WITHOUT_POINTERS);
        let found = self.first.lost_pointers(&blocks).await?;
        if found.is_none() || count > blocks.len() {
            self.run.note_lost_pointers(count, first, &self.first.name(Which::Heap));
        }
        Ok(self.run.tell_lost(found.into_iter().flatten())?)
    }

    /// Reports that the end of the table is missing, if an index knows of it. Gives whether that is open, because no index
    /// tells.
    async fn cut_off(&mut self) -> Result<bool, CheckError> {
        if !self.run.rows.zeros.has_used() || self.run.damage.has(Code::LostRows) {
            return Ok(false);
        }
        match self.first.end_by_index().await? {
            EndByIndex::Whole => Ok(false),
            EndByIndex::Cut(finding) => {
                self.run.tell_lost([*finding])?;
                Ok(false)
            }
            EndByIndex::Unknown => Ok(true),
        }
    }

    /// Reports blocks of zeros in front of used ones, or that no block is in use, where there are values without a row. A server that extends a table by
    /// many blocks leaves such blocks too. It is certain that rows stood there only if the TOAST relation was never
    /// rewritten, because VACUUM FULL and the like leave values without a row.
    async fn lost_rows(&mut self) -> Result<(), CheckError> {
        let now = self.first.now().await?;
        // the file of a new relation has the number of its OID
        let toast = self.first.relation.toast.as_ref().map(|toast| toast.oid.0);
        let is_first = now.is_some_and(|now| toast.is_some() && now.toast_file == toast);
        let blocks = self.run.rows.zeros.in_front();
        let Some(still) = self.still_zeros(Which::Heap, &blocks).await? else { return Ok(()) };
        let name = self.first.name(Which::Heap);
        if is_first && !self.run.rows.zeros.has_used() && self.run.checked.errors == 0 {
            self.run.tell(without_rows(&name))?;
        }
        self.cut_off().await?;
        Ok(self.run.tell_all(zeros(&name, &still, is_first))?)
    }

    /// Tells values of the TOAST relation that no row refers to.
    async fn orphans(&mut self) -> Result<(), CheckError> {
        let Some(left) = self.candidates.take() else { return Ok(()) };
        let toast = self.first.name(Which::Toast);
        if left.len() >= MAX_CANDIDATES {
            self.run.checked.orphans_unseen(&toast, true);
        }
        let marks = std::mem::take(&mut self.marks);
        let is_logged = self.start.lsn.is_some();
        match live_orphans::decide(&mut self.first, marks, left, is_logged).await? {
            Decided::Found(mut findings) => {
                if self.run.checked.errors > 0 {
                    // the index may know a damaged chunk by the ID that it had
                    findings.retain(|finding| finding.code != Code::IndexEntryMissing);
                }
                if !findings.is_empty() {
                    self.lost_rows().await?;
                }
                self.run.tell_all(findings)?;
            }
            Decided::Open(count, why) => {
                let s = if count == 1 { "" } else { "s" };
                self.run.checked.orphans_unknown(&format!("{count} value{s} of {toast}"), why);
            }
        }
        Ok(())
    }
}

/// The result of one batch.
pub(super) struct CheckedRange {
    pub(super) blocks: Range<u32>,
    /// What two checks agree on.
    pub(super) result: CheckedBlocks,
}

/// Checks batches on one connection until none is left.
pub(super) struct BatchWorker {
    pub(super) check: LiveCheck,
    pub(super) which: Which,
    pub(super) blocks: u32,
    /// Blocks of one batch.
    pub(super) batch: u32,
    pub(super) next: Arc<AtomicU32>,
    pub(super) done: Arc<AtomicBool>,
    pub(super) stop: Arc<AtomicBool>,
}

impl BatchWorker {
    /// `false` if the table was dropped meanwhile.
    pub(super) async fn run(
        mut self,
        sender: UnboundedSender<CheckedRange>,
    ) -> Result<bool, LiveError> {
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
            result.findings = again.findings;
            result.missing = again.missing;
            if result.findings.len() + result.missing.len() == all {
                return Ok(());
            }
            // what is new is looked at once more
            findings = seen;
            missing = lost;
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
        let reported: HashSet<u32> = result
            .findings
            .iter()
            .filter(|finding| finding.place.item.is_none() && finding.place.source == name)
            .filter_map(|finding| finding.place.block.map(|block| block.0))
            .collect();
        let mut wrong: Vec<(u32, Vec<u8>)> = Vec::new();
        for (block, page) in range.clone().zip(self.on_disk(range).await?.chunks_exact(size)) {
            if wrong_checksum(BlockNumber(block), page).is_some() && !reported.contains(&block) {
                wrong.push((block, page.to_vec()));
            }
        }
        for (block, mut before) in wrong {
            // it may have been written just then, half of it
            let mut damage = None;
            for _ in 0..LOOKS {
                tokio::time::sleep(TORN).await;
                let again = self.on_disk(block..block.saturating_add(1)).await?;
                damage = None;
                if again.len() == size {
                    damage = wrong_checksum(BlockNumber(block), &again);
                }
                if damage.is_none() || again == before {
                    break;
                }
                before = again;
                damage = None;
            }
            if let Some(WrongChecksum { right, got }) = damage {
                let finding = checksum_finding(&name, BlockNumber(block), right, got);
                result.findings.push(finding);
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
