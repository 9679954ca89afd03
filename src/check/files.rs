//! A check of relation files: the TOAST relation first, then the heap's blocks on several threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

use super::chunk_index::{ChunkIndex, append_chunk};
use super::code::Code;
use super::collector::{Collector, Customs};
use super::finding::{Finding, Looked};
use super::judged::Checked;
use super::salvage::{self, Piece, value_at};
use super::salvage_dir::SalvageDir;
use super::subject::{Depth, External, Subject};
use super::value::{ChunkSeen, Damage, Toast, check_chunks, external_content};
use crate::disk::desc::TupleDesc;
use crate::disk::varlena::Varlena;
use crate::disk::{BlockNumber, ItemPointer, Oid};
use crate::heap::problem::Place;
use crate::heap::progress::Progress;
use crate::inspect::offline::{FileTarget, OfflineError, check_page_size};
use crate::model::toaster::catalog::Toasters;
use crate::model::toaster::chunks::Fate;
use crate::model::visibility::Transactions;
use crate::offline::control;
use crate::offline::file::RelationFile;
use crate::offline::toastfile::ToastFile;
use crate::offline::xact::PgXact;

/// Blocks that a thread takes at a time.
const RANGE: u32 = 64;
/// The table's name in statements, which a file does not tell.
const TABLE: &str = "mytable";
/// Pages of the TOAST relation that each thread keeps.
const PAGES: usize = 8;

/// What is said of values of toasters that are not known.
pub(super) const UNKNOWN: &str = "values of toasters that are not known were not looked at";

/// How files are checked.
#[derive(Debug, Clone, Copy)]
pub struct FileOptions {
    /// How far the check goes.
    pub depth: Depth,
    /// Whether checksums are verified; `None`: if the cluster's control file says that there are any.
    pub checksums: Option<bool>,
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
    let detected = || control::has_checksums(target.heap, target.page_size).unwrap_or(false);
    let subject = Subject {
        source: &name,
        desc: target.desc,
        page_size: target.page_size,
        flavor: target.flavor,
        toast: Toast::Unknown,
        xids: None,
        commit_status: target.xact.map(|xact| xact as &(dyn Transactions + Sync)),
        checksums: options.checksums.unwrap_or_else(detected),
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
        store: Mutex::new(None),
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
        orphans(&toast_name, heap, &chunks, &mut out)?;
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
            if target.xact.is_none() { " (give --xact)" } else { "" }
        ));
    }
    if target.toast.is_none() && checked.looked.values > 0 {
        checked.note("values out of line were not looked at: give --toast-file");
        checked.is_incomplete = true;
    }
    Ok(checked)
}

/// Writes what is left of the values that findings name.
fn save(scan: &Scan<'_, '_>, salvage: &mut SalvageDir) -> Result<(), OfflineError> {
    let mut worker = Worker::open(scan)?;
    let page_size = scan.target.page_size;
    for wanted in salvage.take_wanted() {
        if !matches!(worker.heap.read(wanted.ctid.block, &mut worker.page), Ok(true)) {
            continue;
        }
        let page = std::mem::take(&mut worker.page);
        let saved = value_at(&page, scan.subject, wanted.ctid, &wanted.column).map(|found| {
            let saved = match &found.value {
                Varlena::External(pointer) => {
                    let pieces = worker.pieces(pointer.value_id);
                    salvage::external(pointer, pieces, page_size, found.tuple.order)
                }
                value => salvage::inline(value),
            };
            (saved, found.statement(TABLE))
        });
        worker.page = page;
        if let Some((saved, statement)) = saved {
            let relation = scan.subject.source;
            salvage
                .save(relation, &wanted, &saved, Some(&statement))
                .map_err(|error| OfflineError::Inspect(error.into()))?;
        }
    }
    Ok(())
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
            Err(error) => out.tell(unreadable(&name, block, &error.to_string()))?,
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

fn unreadable(name: &str, block: BlockNumber, error: &str) -> Finding {
    let place = Place { block: Some(block), ..Place::of(name) };
    Finding::new(Code::Unreadable, place, "a page", error)
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
    name: &str,
    mut heap: Heap,
    chunks: &ChunkIndex,
    out: &mut Out<'_, '_>,
) -> Result<(), OfflineError> {
    if !heap.is_complete || out.checked.errors > 0 || chunks.is_full() {
        return Ok(());
    }
    heap.known.sort_unstable();
    for orphan in chunks.orphans(&heap.known) {
        let place = Place {
            block: Some(orphan.first.block),
            item: Some(orphan.first.item),
            ..Place::of(name)
        };
        let found = format!(
            "{} chunks of value {}, {} bytes",
            orphan.chunks, orphan.value_id, orphan.bytes
        );
        out.tell(Finding::new(Code::Orphan, place, "a row that refers to them", found))?;
    }
    Ok(())
}

/// The heap's blocks, which threads take range by range.
struct Scan<'s, 't> {
    target: &'s FileTarget<'t>,
    subject: &'s Subject<'s>,
    index: Option<&'s ChunkIndex>,
    /// Chunks for custom pointers, opened when the first is met.
    store: Mutex<Option<ToastFile<Option<&'t PgXact>>>>,
    next: AtomicU32,
    stop: AtomicBool,
}

/// What a range of blocks gave.
struct Range {
    number: u32,
    blocks: u64,
    findings: Vec<Finding>,
    looked: Looked,
    known: Vec<u32>,
    is_complete: bool,
    unknown: u64,
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
                heap.known.extend(range.known);
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

/// A thread's own files and buffers.
struct Worker<'w, 's, 't> {
    scan: &'w Scan<'s, 't>,
    heap: RelationFile,
    page: Vec<u8>,
    toast: Option<ToastPages>,
    chunks: Vec<ChunkSeen>,
}

impl<'w, 's, 't> Worker<'w, 's, 't> {
    fn open(scan: &'w Scan<'s, 't>) -> Result<Worker<'w, 's, 't>, OfflineError> {
        let size = scan.target.page_size;
        let toast = scan.target.toast.map(|path| RelationFile::open(path, size)).transpose()?;
        Ok(Worker {
            scan,
            heap: RelationFile::open(scan.target.heap, size)?,
            page: vec![0; size.bytes()],
            toast: toast.map(|file| ToastPages { file, pages: Vec::new(), size: size.bytes() }),
            chunks: Vec::new(),
        })
    }

    fn range(&mut self, number: u32, blocks: std::ops::Range<u32>) -> Range {
        let subject = self.scan.subject;
        let customs = CustomFile { scan: self.scan };
        let mut collector = Collector::new(subject, Some(&customs));
        let count = blocks.len() as u64;
        for block in blocks.map(BlockNumber) {
            match self.heap.read(block, &mut self.page) {
                Ok(true) => {
                    let page = std::mem::take(&mut self.page);
                    subject.check_page(block, &page, &self.scan.target.xact, &mut collector);
                    self.page = page;
                }
                Ok(false) => {}
                Err(error) => {
                    let finding = unreadable(subject.source, block, &error.to_string());
                    collector.add(finding);
                    collector.is_complete = false;
                }
            }
            for value in std::mem::take(&mut collector.externals) {
                self.external(&value, &mut collector);
            }
        }
        collector.findings.sort_by_key(|finding| (finding.place.block, finding.place.item));
        let Collector { findings, looked, known, is_complete, unknown, .. } = collector;
        Range { number, blocks: count, findings, looked, known, is_complete, unknown }
    }

    /// The chunks of a value that can be read, deleted ones too.
    fn pieces(&mut self, value_id: Oid) -> Vec<Piece> {
        let (Some(index), Some(toast)) = (self.scan.index, &mut self.toast) else {
            return Vec::new();
        };
        index.chunks(value_id, &mut self.chunks);
        self.chunks.sort_by_key(|chunk| (chunk.seq, chunk.fate == Fate::NotCommitted));
        let mut pieces = Vec::new();
        for chunk in &self.chunks {
            let mut data = Vec::new();
            if toast.append(chunk.tid, &mut data) {
                pieces.push(Piece { seq: chunk.seq, data });
            }
        }
        pieces
    }

    fn external(&mut self, value: &External, collector: &mut Collector<'_>) {
        let Some(index) = self.scan.index.filter(|index| !index.is_full()) else {
            collector.looked.values += 1;
            return;
        };
        index.chunks(value.pointer.value_id, &mut self.chunks);
        let page_size = self.scan.target.page_size;
        let chunks = match check_chunks(&value.pointer, &self.chunks, page_size) {
            Ok(chunks) => chunks,
            Err(damage) => return collector.damaged(value, damage),
        };
        collector.looked.values += 1;
        collector.looked.chunks += chunks.len() as u64;
        if !collector.wants_content(value) {
            return;
        }
        let Some(toast) = &mut self.toast else { return };
        let mut stored = Vec::with_capacity(chunks.iter().map(|chunk| chunk.size as usize).sum());
        for chunk in &chunks {
            if !toast.append(chunk.tid, &mut stored) {
                let found = format!("none at {}", chunk.tid);
                let damage = Damage::new(Code::ChunkUnreadable, "the chunk's page", found);
                return collector.damaged(value, damage);
            }
        }
        match external_content(&value.pointer, stored, value.order) {
            Ok(content) => collector.content(value, &content),
            Err(damage) => collector.damaged(value, damage),
        }
    }
}

/// Pages of the TOAST relation, the last few of them kept.
struct ToastPages {
    file: RelationFile,
    pages: Vec<(BlockNumber, Vec<u8>)>,
    size: usize,
}

impl ToastPages {
    fn append(&mut self, tid: ItemPointer, joined: &mut Vec<u8>) -> bool {
        let at = match self.pages.iter().rposition(|(block, _)| *block == tid.block) {
            Some(at) => at,
            None => {
                let mut page = if self.pages.len() < PAGES {
                    vec![0; self.size]
                } else {
                    self.pages.remove(0).1
                };
                if !matches!(self.file.read(tid.block, &mut page), Ok(true)) {
                    return false;
                }
                self.pages.push((tid.block, page));
                self.pages.len() - 1
            }
        };
        self.pages.get(at).is_some_and(|(_, page)| append_chunk(page, tid, joined))
    }
}

/// Values of pluggable toasters, put together from the TOAST relation's file.
struct CustomFile<'w, 's, 't> {
    scan: &'w Scan<'s, 't>,
}

impl Customs for CustomFile<'_, '_, '_> {
    fn look(
        &self,
        value: &crate::disk::varlena::Varlena<'_>,
        order: crate::disk::ByteOrder,
        with_text: bool,
    ) -> Option<Result<(), crate::model::toaster::error::ToastError>> {
        let target = self.scan.target;
        let mut store = self.scan.store.lock().unwrap_or_else(PoisonError::into_inner);
        if store.is_none() {
            let file = RelationFile::open(target.toast?, target.page_size).ok()?;
            *store = ToastFile::open(file, target.page_size, None, target.xact).ok();
        }
        let store = store.as_mut()?;
        let toasters = Toasters::by_bytes();
        Some(super::collector::look(store, &toasters, target.page_size, value, order, with_text))
    }
}
