//! A check of relation files: the TOAST relation first, then the heap's blocks on several threads.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;

use super::chunk_index::{Chunk, ChunkIndex};
use super::code::Code;
use super::damaged_row::{RowAt, Written, pointing, row_at, value_at};
use super::files_worker::{Range, Scan, Worker, unreadable};
use super::finding::Finding;
use super::judged::{Checked, MAX_KNOWN};
use super::live_orphans::chunks_without_row;
use super::repair::{self, Facts};
use super::salvage;
use super::salvage_dir::{SalvageDir, Wanted, by_row};
use super::subject::{Depth, Subject};
use super::value::Toast;
use crate::disk::desc::TupleDesc;
use crate::disk::varlena::Varlena;
use crate::disk::{BlockNumber, Oid};
use crate::heap::problem::Place;
use crate::heap::progress::Progress;
use crate::inspect::offline::OfflineError;
use crate::model::visibility::Transactions;
use crate::offline::file::RelationFile;
use crate::offline::target::{FileTarget, check_page_size};

/// Blocks that a thread takes at a time.
const RANGE: u32 = 64;
/// The table's name in statements, which a file does not tell.
const TABLE: &str = "mytable";

/// What is said of values of toasters that are not known.
pub(super) const UNKNOWN: &str = "values of toasters that are not known were not looked at";

/// How files are checked.
#[derive(Debug, Clone, Copy)]
pub struct FileOptions {
    /// How far the check goes.
    pub depth: Depth,
    /// Threads that read the heap.
    pub threads: usize,
    /// Whether the first finding ends the check.
    pub fail_fast: bool,
}

/// What a check gives its findings to; an error ends it.
pub type Tell<'a> = dyn FnMut(Finding) -> std::io::Result<()> + 'a;

/// Checks a relation's file with that of its TOAST relation.
///
/// Visibility is what hint bits and `target.xact` say. The files must not change meanwhile.
///
/// # Errors
/// Where a file cannot be opened, or `tell` fails.
pub fn relation_file(
    target: &FileTarget<'_>,
    options: &FileOptions,
    progress: &dyn Progress,
    salvage: Option<&mut SalvageDir>,
    tell: &mut Tell<'_>,
) -> Result<Checked, OfflineError> {
    let name = target.heap.display().to_string();
    let subject = Subject {
        source: &name,
        desc: target.desc,
        page_size: target.page_size,
        flavor: target.flavor,
        toast: Toast::Unknown,
        xids: None,
        commit_status: target.xact.map(|xact| xact as &(dyn Transactions + Sync)),
        checksums: target.verifies_checksums(),
        depth: options.depth,
    };
    let mut checked = Checked::of(&name);
    let mut out = Out { tell, checked: &mut checked, fail_fast: options.fail_fast, salvage };
    let chunks = match learn(target, &subject, progress, &mut out)? {
        Some(index) => index,
        None => return Ok(checked),
    };
    let scan = Scan {
        target,
        subject: &subject,
        index: target.toast.is_some().then_some(&chunks),
        next: AtomicU32::new(0),
        stop: AtomicBool::new(false),
    };
    let heap = scan.run(options.threads, progress, &mut out)?;
    if let Some(salvage) = out.salvage.as_deref_mut() {
        save(&scan, salvage)?;
    }
    let stopped = out.is_done();
    if let (Some(path), false) = (target.toast, stopped) {
        let toast_name = path.display().to_string();
        orphans(target, &toast_name, heap, &chunks, &mut out)?;
        let claimed = std::mem::take(&mut out.checked.claimed);
        let (findings, more) = chunks.findings(&claimed);
        for finding in findings {
            out.tell(finding)?;
        }
        if more > 0 {
            out.checked.note(format!("{more} more findings in {toast_name} are not told"));
            out.checked.is_incomplete = true;
        }
    }
    if checked.looked.undecided > 0 {
        let rows = checked.looked.undecided;
        checked.note(format!(
            "of {rows} rows neither a hint bit nor pg_xact says whether they are live: chunks that \
             they miss are not reported{}",
            give_xact(target)
        ));
    }
    if target.toast.is_none() && checked.looked.values > 0 {
        checked.note("values out of line were not looked at: give --toast-file");
        checked.is_incomplete = true;
    }
    Ok(checked)
}

/// What to do where the fate of transactions is not known.
fn give_xact(target: &FileTarget<'_>) -> &'static str {
    if target.xact.is_none() { " (give --xact)" } else { "" }
}

/// Writes what is left of the values that findings name, and SQL for their rows.
fn save(scan: &Scan<'_, '_>, salvage: &mut SalvageDir) -> Result<(), OfflineError> {
    let mut worker = Worker::open(scan)?;
    let page_size = scan.target.page_size;
    let written = |error: std::io::Error| OfflineError::Inspect(error.into());
    let all = salvage.take_wanted();
    for wanted in &all {
        if !matches!(worker.heap.read(wanted.ctid.block, &mut worker.page), Ok(true)) {
            continue;
        }
        let page = std::mem::take(&mut worker.page);
        let saved = value_at(&page, scan.subject, wanted.ctid, &wanted.column).map(|found| {
            match &found.value {
                Varlena::External(pointer) => {
                    let pieces = worker.pieces(pointer.value_id);
                    salvage::external(pointer, pieces, page_size, found.tuple.order)
                }
                value => salvage::inline(value),
            }
        });
        worker.page = page;
        if let Some(saved) = saved {
            salvage.save(scan.subject.source, wanted, &saved).map_err(written)?;
        }
    }
    salvage.repair(repairs(scan, &mut worker, &all)).map_err(written)
}

/// The SQL for damaged values, after looks at what else it would touch.
fn repairs(scan: &Scan<'_, '_>, worker: &mut Worker<'_, '_, '_>, wanted: &[Wanted]) -> Vec<String> {
    let (target, subject) = (scan.target, scan.subject);
    let index = scan.index.filter(|index| !index.is_full());
    let mut facts = Facts {
        table: TABLE.to_owned(),
        is_file: true,
        page_size: target.page_size,
        chunks_unread: index.is_none(),
        unreadable: index.map(|index| index.lost().to_vec()).unwrap_or_default(),
        ..Facts::default()
    };
    let mut rows = Vec::new();
    for (ctid, damaged) in by_row(wanted) {
        if matches!(worker.heap.read(ctid.block, &mut worker.page), Ok(true)) {
            let no_generated = HashSet::new();
            let row = row_at(&worker.page, subject, &target.xact, ctid, &damaged, &no_generated);
            rows.extend(row);
        }
    }
    let values = rows.iter().flat_map(|row: &RowAt| &row.values);
    let mut ids: Vec<u32> = values.filter_map(|value| Some(value.pointer?.value_id.0)).collect();
    ids.sort_unstable();
    ids.dedup();
    for &id in &ids {
        let mut seen = Vec::new();
        if let Some(index) = index {
            index.chunks(Oid(id), &mut seen);
        }
        let chunks = seen.into_iter().map(|seen| Chunk { seen, xids: [0, 0], is_refused: false });
        facts.chunks.insert(id, chunks.collect());
    }
    if !ids.is_empty() {
        let blocks = u32::try_from(worker.heap.blocks()).unwrap_or(u32::MAX);
        for block in (0..blocks).map(BlockNumber) {
            let is_whole = match worker.heap.read(block, &mut worker.page) {
                Ok(true) => {
                    let written = Written { table: &facts.table, generated: &facts.generated };
                    let all = &mut facts.pointing;
                    pointing(written, subject, &target.xact, block, &worker.page, &ids, all)
                }
                Ok(false) => true,
                Err(_) => false,
            };
            facts.rows_unread |= !is_whole;
        }
    }
    repair::script(&facts, &rows)
}

/// Where findings go.
struct Out<'a, 't> {
    tell: &'a mut Tell<'t>,
    checked: &'a mut Checked,
    fail_fast: bool,
    salvage: Option<&'a mut SalvageDir>,
}

impl Out<'_, '_> {
    /// Whether nothing more is wanted.
    fn is_done(&self) -> bool {
        self.fail_fast && self.checked.findings() > 0
    }

    fn tell(&mut self, finding: Finding) -> Result<(), OfflineError> {
        if self.is_done() {
            return Ok(());
        }
        self.checked.count(&finding);
        if let Some(salvage) = &mut self.salvage {
            salvage.note(&self.checked.relation, &finding);
        }
        (self.tell)(finding).map_err(|e| OfflineError::Inspect(e.into()))
    }
}

/// Reads the TOAST relation; `None` if a finding there ends the check.
fn learn(
    target: &FileTarget<'_>,
    heap: &Subject<'_>,
    progress: &dyn Progress,
    out: &mut Out<'_, '_>,
) -> Result<Option<ChunkIndex>, OfflineError> {
    let mut index = ChunkIndex::default();
    let Some(path) = target.toast else { return Ok(Some(index)) };
    let name = path.display().to_string();
    let desc = TupleDesc::toast_relation();
    let toast = Subject { source: &name, desc: &desc, toast: Toast::None, ..*heap };
    let mut file = RelationFile::open(path, target.page_size)?;
    let mut page = vec![0; target.page_size.bytes()];
    let blocks = u32::try_from(file.blocks()).unwrap_or(u32::MAX);
    progress.begin(&name, u64::from(blocks));
    for block in (0..blocks).map(BlockNumber) {
        match file.read(block, &mut page) {
            Ok(true) => index.learn(&toast, block, &page, &target.xact),
            Ok(false) => break,
            Err(error) => {
                index.lose(block);
                out.tell(unreadable(&name, block, &error.to_string()))?;
            }
        }
        progress.advance(1);
    }
    progress.end();
    out.checked.looked.toast_blocks += u64::from(blocks);
    truncated(&name, &file, out)?;
    index.sort();
    if index.is_full() {
        out.checked.note(format!("{name} has more chunks than can be looked at without its index"));
        out.checked.is_incomplete = true;
    }
    Ok((!out.is_done()).then_some(index))
}

fn truncated(name: &str, file: &RelationFile, out: &mut Out<'_, '_>) -> Result<(), OfflineError> {
    for (block, error) in file.truncated_blocks() {
        out.tell(unreadable(name, block, &error.to_string()))?;
    }
    Ok(())
}

/// What the heap's blocks told of the TOAST relation.
struct Heap {
    /// Values that rows refer to.
    known: Vec<u32>,
    /// Whether these are all.
    is_complete: bool,
}

/// Chunks that nobody refers to, if it is known that nobody does.
fn orphans(
    target: &FileTarget<'_>,
    name: &str,
    mut heap: Heap,
    chunks: &ChunkIndex,
    out: &mut Out<'_, '_>,
) -> Result<(), OfflineError> {
    if !heap.is_complete || out.checked.errors > 0 || chunks.is_full() {
        let is_full = chunks.is_full() || heap.known.len() >= MAX_KNOWN;
        out.checked.orphans_unseen(name, is_full);
        return Ok(());
    }
    heap.known.sort_unstable();
    for orphan in chunks.orphans(&heap.known) {
        let place = Place {
            block: Some(orphan.first.block),
            item: Some(orphan.first.item),
            ..Place::of(name)
        };
        let found = chunks_without_row(orphan.chunks, orphan.value_id, orphan.bytes);
        out.tell(Finding::new(Code::Orphan, place, "a row that refers to them", found))?;
    }
    let undecided = chunks.undecided(&heap.known);
    if undecided > 0 {
        let (s, their) = if undecided == 1 { ("", "its") } else { ("s", "their") };
        out.checked.note(format!(
            "no row refers to {undecided} value{s} of {name} of which neither a hint bit nor pg_xact \
             says whether {their} chunks are live: they are not reported{}",
            give_xact(target)
        ));
    }
    Ok(())
}

impl Scan<'_, '_> {
    fn run(
        &self,
        threads: usize,
        progress: &dyn Progress,
        out: &mut Out<'_, '_>,
    ) -> Result<Heap, OfflineError> {
        let name = self.subject.source;
        let mut file = RelationFile::open(self.target.heap, self.target.page_size)?;
        let blocks = u32::try_from(file.blocks()).unwrap_or(u32::MAX);
        let mut page = vec![0; self.target.page_size.bytes()];
        if file.read(BlockNumber(0), &mut page)? {
            check_page_size(&page, name)?;
        }
        truncated(name, &file, out)?;
        progress.begin(name, u64::from(blocks));
        let mut heap = Heap { known: Vec::new(), is_complete: true };
        let done = std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::sync_channel(4 * threads.max(1));
            for _ in 0..threads.max(1) {
                let sender = sender.clone();
                scope.spawn(move || self.work(blocks, &sender));
            }
            drop(sender);
            self.collect(&receiver, progress, &mut heap, out)
        });
        progress.end();
        out.checked.looked.blocks += u64::from(blocks);
        done.map(|()| heap)
    }

    /// Takes what the threads found, and tells it in the blocks' order.
    fn collect(
        &self,
        receiver: &mpsc::Receiver<Result<Range, OfflineError>>,
        progress: &dyn Progress,
        heap: &mut Heap,
        out: &mut Out<'_, '_>,
    ) -> Result<(), OfflineError> {
        let mut early = BTreeMap::new();
        let mut next = 0;
        let mut ended = Ok(());
        for range in receiver {
            let range = match range {
                Ok(range) => range,
                Err(error) => {
                    ended = ended.and(Err(error));
                    self.stop.store(true, Ordering::Relaxed);
                    continue;
                }
            };
            progress.advance(range.blocks);
            early.insert(range.number, range);
            while let Some(range) = early.remove(&next) {
                next += 1;
                if heap.known.len() < MAX_KNOWN {
                    heap.known.extend(range.known);
                } else {
                    heap.is_complete = false;
                }
                heap.is_complete &= range.is_complete;
                out.checked.looked.add(&range.looked);
                if range.unknown > 0 {
                    out.checked.note(UNKNOWN);
                    out.checked.is_incomplete = true;
                }
                for finding in range.findings {
                    if ended.is_ok() {
                        ended = out.tell(finding);
                    }
                }
                if out.is_done() || ended.is_err() {
                    self.stop.store(true, Ordering::Relaxed);
                }
            }
        }
        ended
    }

    fn work(&self, blocks: u32, sender: &mpsc::SyncSender<Result<Range, OfflineError>>) {
        let mut worker = match Worker::open(self) {
            Ok(worker) => worker,
            Err(error) => {
                let _ = sender.send(Err(error));
                return;
            }
        };
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let first = u64::from(number) * u64::from(RANGE);
            if first >= u64::from(blocks) || self.stop.load(Ordering::Relaxed) {
                return;
            }
            let first = first as u32;
            let range = worker.range(number, first..first.saturating_add(RANGE).min(blocks));
            if sender.send(Ok(range)).is_err() {
                return;
            }
        }
    }
}
