//! A check of relation files: the TOAST relation first, then the heap's blocks on several threads. A check of saved pages.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

use super::chunk_index::{ChunkIndex, Orphan, append_chunk};
use super::code::Code;
use super::collector::{self, CheckedBlocks, Collector, Customs};
use super::files_evidence::{FileEvidence, save};
use super::finding::{
    CheckError, Checked, Finding, MAX_KNOWN, Remarks, chunks_without_row, place_at, zeros,
};
use super::relation_run::{RelationRun, Tell};
use super::salvage_dir::SalvageDir;
use super::subject::{Depth, External, PageOwner, Subject, XidLimits};
use super::value::{ChunkSeen, Toast, check_chunks};
use super::visibility_map::{LostBlocks, lost_in_file};
use crate::offline::file::RelationFile;
use crate::offline::saved::{
    self, RowKind, SavedAttributes, SavedError, SavedItem, SavedPage, SavedSink,
};
use crate::offline::target::{FileTarget, check_page_size};
use crate::offline::toastfile::chunk_on_page;
use crate::offline::xact::PgXact;
use toast_format::disk::custom::CustomFlavor;
use toast_format::disk::desc::TupleDesc;
use toast_format::disk::layout::PageSize;
use toast_format::disk::page::{Page, PageState};
use toast_format::disk::type_kind::Types;
use toast_format::disk::varlena::Varlena;
use toast_format::disk::walk::{Datum, Walk};
use toast_format::disk::{BlockNumber, ByteOrder, ItemPointer, Oid, ValueId, ValueIdType};
use toast_format::heap::problem::Place;
use toast_format::heap::progress::Progress;
use toast_format::heap::scan::{self, Item};
use toast_format::model::toaster::catalog::Toasters;
use toast_format::model::toaster::chunks::Chunk as StoredChunk;
use toast_format::model::toaster::chunks::{ChunkStore, StoreError};
use toast_format::model::toaster::error::ToastError;
use toast_format::model::visibility::{HintBits, Transactions};

/// Blocks that a thread takes at a time.
const RANGE: u32 = 64;
/// How files are checked.
#[derive(Debug, Clone, Copy)]
pub struct FileOptions {
    /// How far the check goes.
    pub depth: Depth,
    /// Threads that read the heap.
    pub threads: usize,
}

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
) -> Result<Checked, CheckError> {
    let name = target.heap.display().to_string();
    let types = Types::default();
    let subject = Subject {
        source: &name,
        pages: PageOwner::Table,
        desc: target.desc,
        page_size: target.page_size,
        flavor: target.flavor,
        toast: toast_relation(target)?,
        xids: target.ids().map(|ids| XidLimits {
            frozen: ids.oldest_xid,
            multi: ids.oldest_multi,
            oldest: ["oldestXID", "oldestMultiXid"],
            next: ids.next_xid,
            is_exact: true,
            next_multi: Some(ids.next_multi),
        }),
        commit_status: target.xact.map(|xact| xact as &(dyn Transactions + Sync)),
        is_newer: target.is_of_newer_server(),
        ignores_hoff: false,
        checksums: target.verifies_checksums(),
        depth: options.depth,
        types: &types,
    };
    let mut run = RelationRun::new(&name, salvage, tell);
    note_state(target, &mut run.checked);
    check_heap_and_chunks(target, &subject, options.threads, progress, &mut run)?;
    let mut checked = run.checked;
    if checked.looked.undecided > 0 {
        let rows = checked.looked.undecided;
        checked.note(format!(
            "of {rows} rows neither a hint bit nor pg_xact says whether they are live: chunks that \
             they miss are not reported{}",
            give_xact(target)
        ));
    }
    if target.toast.is_none() && checked.looked.values > 0 {
        checked.note("values out of line were not checked: give --toast-file");
        checked.is_incomplete = true;
    }
    Ok(checked)
}

/// Notes what the state of the cluster keeps from being checked.
fn note_state(target: &FileTarget<'_>, checked: &mut Checked) {
    if let Some(unverified) = target.checksums_unverified() {
        checked.note(format!("{unverified}; give --checksums or --ignore-checksums"));
        checked.is_incomplete = true;
    }
    if target.needs_recovery() {
        checked.note(
            "the server runs, or was not shut down (pg_control): changes that are only in its memory or WAL are not in \
             the files",
        );
        checked.is_incomplete = true;
    }
}

fn check_heap_and_chunks(
    target: &FileTarget<'_>,
    subject: &Subject<'_>,
    threads: usize,
    progress: &dyn Progress,
    out: &mut RelationRun<'_>,
) -> Result<(), CheckError> {
    let name = subject.source;
    let chunks = learn(target, subject, progress, out)?;
    let scan = HeapScan {
        target,
        subject,
        index: target.toast.is_some().then_some(&chunks),
        next: AtomicU32::new(0),
        stop: AtomicBool::new(false),
    };
    scan.run(threads, progress, out)?;
    let twice = out.end_rows();
    let lost = lost_blocks(target, name, out)?;
    if !twice.is_empty() {
        out.tell_all(FileEvidence::open(target, subject, &chunks)?.shared_values(&twice)?)?;
    }
    let mut has_orphans = false;
    if let Some(path) = target.toast {
        has_orphans = orphans(target, &path.display().to_string(), &chunks, out)?;
    }
    let mut front = out.rows.zeros.in_front();
    front.retain(|block| lost.zeros.binary_search(block).is_err());
    let is_lost = has_orphans && is_first_toast(target, subject.toast);
    out.tell_all(zeros(name, &front, is_lost))?;
    if let Some(path) = target.toast {
        let (findings, more) = chunks.findings();
        out.tell_all(findings.iter().cloned())?;
        if more > 0 {
            let toast = path.display();
            out.checked.leave_out(format!("{more} more findings in {toast} are not listed"));
        }
    }
    save(FileEvidence::open(target, subject, &chunks)?, out)
}

/// Reports blocks that had rows, according to the visibility map. The map of a server that was not shut down may be ahead of
/// the table.
fn lost_blocks(
    target: &FileTarget<'_>,
    name: &str,
    out: &mut RelationRun<'_>,
) -> Result<LostBlocks, CheckError> {
    if let Some(left_out) = out.rows.zeros.left_out() {
        out.checked.leave_out(left_out);
    }
    if target.needs_recovery() {
        return Ok(LostBlocks::default());
    }
    let lost = lost_in_file(target, &out.rows.zeros.blocks())?;
    out.tell_all(lost.findings(name))?;
    Ok(lost)
}

/// Whether the TOAST relation's file has the number of its OID, as that of a new one has. VACUUM FULL and CLUSTER, which
/// leave values without a row, give it another; that of a file with another name is not known.
fn is_first_toast(target: &FileTarget<'_>, toast: Toast) -> bool {
    let name = target.toast.and_then(|path| path.file_name()?.to_str());
    matches!((name, toast), (Some(name), Toast::Relation(oid)) if name == oid.to_string())
}

/// Blocks that the TOAST relation's OID is taken from.
const OID_BLOCKS: u64 = 64;

/// The TOAST relation that nearly all pointers of a table's file name.
fn toast_relation(target: &FileTarget<'_>) -> Result<Toast, CheckError> {
    let mut file = RelationFile::open(target.heap, target.page_size)?;
    let mut page = vec![0; target.page_size.bytes()];
    let mut named: HashMap<Oid, usize> = HashMap::new();
    let blocks = file.blocks();
    for number in 0..OID_BLOCKS.min(blocks) {
        let block = u32::try_from(number * blocks / OID_BLOCKS.min(blocks)).unwrap_or(u32::MAX);
        if !matches!(file.read(BlockNumber(block), &mut page), Ok(true)) {
            continue;
        }
        let Ok(PageState::Used(used)) = Page::parse(&page) else { continue };
        for (_, item) in scan::items(BlockNumber(block), &used) {
            let Item::Tuple(tuple, _) = item else { continue };
            for walked in Walk::with_flavor(&tuple, target.desc, target.flavor) {
                match walked {
                    Ok((_, Datum::Varlena(Varlena::External(pointer)))) => {
                        *named.entry(pointer.toast_relation).or_default() += 1;
                    }
                    // a server with pluggable TOAST has several
                    Ok((_, Datum::Varlena(Varlena::Custom(_)))) => return Ok(Toast::Unknown),
                    _ => {}
                }
            }
        }
    }
    let all: usize = named.values().sum();
    let most = named.into_iter().max_by_key(|(_, count)| *count);
    Ok(match most {
        Some((oid, count)) if oid.0 != 0 && count >= 3 && count * 10 >= all * 9 => {
            Toast::Relation(oid)
        }
        _ => Toast::Unknown,
    })
}

/// The advice where the status of transactions is not known.
fn give_xact(target: &FileTarget<'_>) -> &'static str {
    if target.xact.is_none() { " (give --xact)" } else { "" }
}

/// Reads the TOAST relation.
fn learn(
    target: &FileTarget<'_>,
    heap: &Subject<'_>,
    progress: &dyn Progress,
    out: &mut RelationRun<'_>,
) -> Result<ChunkIndex, CheckError> {
    let mut index = ChunkIndex::default();
    let Some(path) = target.toast else { return Ok(index) };
    let name = path.display().to_string();
    let mut file = RelationFile::open(path, target.page_size)?;
    let mut page = vec![0; target.page_size.bytes()];
    let desc = TupleDesc::toast_relation(target.desc.id_type);
    let toast = Subject {
        source: &name,
        desc: &desc,
        pages: PageOwner::Toast,
        toast: Toast::None,
        ..*heap
    };
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
        out.checked.note(format!("{name} has more chunks than can be checked without its index"));
        out.checked.is_incomplete = true;
    }
    Ok(index)
}

fn truncated(name: &str, file: &RelationFile, out: &mut RelationRun<'_>) -> Result<(), CheckError> {
    for (block, error) in file.truncated_blocks() {
        out.tell(unreadable(name, block, &error.to_string()))?;
    }
    Ok(())
}

/// Reports chunks that no row refers to, if that is certain. Returns whether there are any.
fn orphans(
    target: &FileTarget<'_>,
    name: &str,
    chunks: &ChunkIndex,
    out: &mut RelationRun<'_>,
) -> Result<bool, CheckError> {
    if out.rows.is_incomplete || out.checked.errors > 0 || chunks.is_full() {
        let is_full = chunks.is_full() || out.rows.known.len() >= MAX_KNOWN;
        out.checked.orphans_unseen(name, is_full);
        return Ok(false);
    }
    if out.rows.remarks.by_address.count > 0 {
        out.checked.orphans_by_address(name);
        return Ok(false);
    }
    let orphans: Vec<Orphan> = chunks.orphans(&out.rows.known).collect();
    for orphan in &orphans {
        let place = place_at(name, orphan.first);
        let found = chunks_without_row(orphan.chunks, orphan.value_id, orphan.bytes);
        out.tell(Finding::new(Code::Orphan, place, "a row that refers to them", found))?;
    }
    let undecided = chunks.undecided(&out.rows.known);
    if undecided > 0 {
        let (s, their) = if undecided == 1 { ("", "its") } else { ("s", "their") };
        out.checked.note(format!(
            "no row refers to {undecided} value{s} of {name} of which neither a hint bit nor pg_xact \
             says whether {their} chunks are live: they are not reported{}",
            give_xact(target)
        ));
    }
    Ok(!orphans.is_empty())
}

impl HeapScan<'_, '_> {
    fn run(
        &self,
        threads: usize,
        progress: &dyn Progress,
        out: &mut RelationRun<'_>,
    ) -> Result<(), CheckError> {
        let name = self.subject.source;
        let mut file = RelationFile::open(self.target.heap, self.target.page_size)?;
        let blocks = u32::try_from(file.blocks()).unwrap_or(u32::MAX);
        let mut page = vec![0; self.target.page_size.bytes()];
        if file.read(BlockNumber(0), &mut page)? {
            check_page_size(&page, name)?;
        }
        truncated(name, &file, out)?;
        progress.begin(name, u64::from(blocks));
        let done = std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::sync_channel(4 * threads.max(1));
            for _ in 0..threads.max(1) {
                let sender = sender.clone();
                scope.spawn(move || self.work(blocks, &sender));
            }
            drop(sender);
            self.collect(&receiver, progress, out)
        });
        progress.end();
        out.checked.looked.blocks += u64::from(blocks);
        done
    }

    /// Reports what the threads found, in the order of blocks.
    fn collect(
        &self,
        receiver: &mpsc::Receiver<Result<RangeResult, CheckError>>,
        progress: &dyn Progress,
        out: &mut RelationRun<'_>,
    ) -> Result<(), CheckError> {
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
            while let Some(RangeResult { mut result, .. }) = early.remove(&next) {
                next += 1;
                if ended.is_ok() {
                    ended = out.add(&mut result).map_err(CheckError::from);
                    out.rows.add_rows(result);
                }
                if ended.is_err() {
                    self.stop.store(true, Ordering::Relaxed);
                }
            }
        }
        ended
    }

    fn work(&self, blocks: u32, sender: &mpsc::SyncSender<Result<RangeResult, CheckError>>) {
        let mut worker = match RangeWorker::open(self) {
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

/// Pages of the TOAST relation that each thread keeps.
const PAGES: usize = 8;

/// The heap's blocks, which threads take range by range.
pub(super) struct HeapScan<'s, 't> {
    pub(super) target: &'s FileTarget<'t>,
    pub(super) subject: &'s Subject<'s>,
    pub(super) index: Option<&'s ChunkIndex>,
    pub(super) next: AtomicU32,
    pub(super) stop: AtomicBool,
}

/// The results of one range of blocks.
pub(super) struct RangeResult {
    pub(super) number: u32,
    pub(super) blocks: u64,
    pub(super) result: CheckedBlocks,
}

pub(super) fn unreadable(name: &str, block: BlockNumber, error: &str) -> Finding {
    let place = Place { block: Some(block), ..Place::new(name) };
    Finding::new(Code::Unreadable, place, "a page", error)
}

/// A thread's own files and buffers.
pub(super) struct RangeWorker<'w, 's, 't> {
    scan: &'w HeapScan<'s, 't>,
    pub(super) heap: RelationFile,
    pub(super) page: Vec<u8>,
    toast: Option<ToastPages>,
    chunks: Vec<ChunkSeen>,
}

impl<'w, 's, 't> RangeWorker<'w, 's, 't> {
    pub(super) fn open(scan: &'w HeapScan<'s, 't>) -> Result<RangeWorker<'w, 's, 't>, CheckError> {
        let size = scan.target.page_size;
        let toast = scan.target.toast.map(|path| RelationFile::open(path, size)).transpose()?;
        Ok(RangeWorker {
            scan,
            heap: RelationFile::open(scan.target.heap, size)?,
            page: vec![0; size.bytes()],
            toast: toast.map(|file| ToastPages {
                file,
                id_type: scan.target.desc.id_type,
                pages: Vec::new(),
                size: size.bytes(),
            }),
            chunks: Vec::new(),
        })
    }

    pub(super) fn range(&mut self, number: u32, blocks: std::ops::Range<u32>) -> RangeResult {
        let subject = self.scan.subject;
        let customs = CustomFile { scan: self.scan, store: Mutex::new(None) };
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
                    collector.blocks.findings.push(finding);
                    collector.blocks.is_incomplete = true;
                }
            }
            for value in std::mem::take(&mut collector.externals) {
                self.external(&value, &mut collector);
            }
        }
        let mut result = collector.blocks;
        result.findings.sort_by_key(|finding| (finding.place.block, finding.place.item));
        RangeResult { number, blocks: count, result }
    }

    fn external(&mut self, value: &External, collector: &mut Collector<'_>) {
        let Some(index) = self.scan.index.filter(|index| !index.is_full()) else {
            collector.blocks.looked.values += 1;
            return;
        };
        index.chunks(value.pointer.value_id, &mut self.chunks);
        let page_size = self.scan.target.page_size;
        match check_chunks(&value.pointer, &self.chunks, page_size) {
            Ok(chunks) => collector.content_of(value, &chunks, |tid, stored| {
                self.toast.as_mut().is_some_and(|toast| toast.append(tid, stored))
            }),
            Err(damage) => collector.damaged(value, damage),
        }
    }
}
/// Pages of the TOAST relation, the last few of them kept.
struct ToastPages {
    file: RelationFile,
    id_type: ValueIdType,
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
        self.pages.get(at).is_some_and(|(_, page)| append_chunk(page, tid, self.id_type, joined))
    }
}

/// Values of pluggable toasters, put together from the TOAST relation's file.
struct CustomFile<'w, 's, 't> {
    scan: &'w HeapScan<'s, 't>,
    /// Opened when the first is met.
    store: Mutex<Option<IndexedChunks<'w>>>,
}

impl Customs for CustomFile<'_, '_, '_> {
    fn reassemble(
        &self,
        value: &Varlena<'_>,
        order: ByteOrder,
        with_text: bool,
    ) -> Option<Result<u64, ToastError>> {
        let target = self.scan.target;
        let index = self.scan.index.filter(|index| !index.is_full())?;
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        if store.is_none() {
            let file = RelationFile::open(target.toast?, target.page_size).ok()?;
            let page = vec![0; target.page_size.bytes()];
            let id_type = target.desc.id_type;
            let xact = target.xact;
            *store = Some(IndexedChunks { index, id_type, file, page, block: None, xact });
        }
        let store = store.as_mut()?;
        let toasters = Toasters::by_bytes();
        Some(collector::reassemble(store, &toasters, target.page_size, value, order, with_text))
    }
}

/// Chunks for values of pluggable toasters: by the check's own index.
struct IndexedChunks<'i> {
    index: &'i ChunkIndex,
    id_type: ValueIdType,
    file: RelationFile,
    /// The page read last.
    page: Vec<u8>,
    block: Option<BlockNumber>,
    xact: Option<&'i PgXact>,
}

impl ChunkStore for IndexedChunks<'_> {
    fn chunks(&mut self, relation: Oid, value_id: ValueId) -> Result<Vec<StoredChunk>, StoreError> {
        let mut seen = Vec::new();
        self.index.chunks(value_id, &mut seen);
        let mut chunks = Vec::with_capacity(seen.len());
        for chunk in seen {
            chunks.extend(self.chunk_at(relation, chunk.tid)?);
        }
        Ok(chunks)
    }

    fn chunk_at(&mut self, _: Oid, tid: ItemPointer) -> Result<Option<StoredChunk>, StoreError> {
        if self.block != Some(tid.block) {
            self.block = None;
            let read = self.file.read(tid.block, &mut self.page);
            if !read.map_err(|error| StoreError(error.to_string()))? {
                return Ok(None);
            }
            self.block = Some(tid.block);
        }
        chunk_on_page(&self.page, tid, self.id_type, &self.xact)
    }
}

/// Checks the pages in `text`, which stands for `name`. Chunks are not at hand.
///
/// # Errors
/// Where the text cannot be read at all, or `tell` fails.
pub fn saved_pages(
    name: &str,
    text: impl Read,
    desc: &TupleDesc,
    depth: Depth,
    tell: &mut Tell<'_>,
) -> Result<Checked, CheckError> {
    let checked = Checked::new(name);
    let remarks = Remarks::default();
    let mut pages = SavedPagesCheck { name, desc, depth, tell, checked, remarks, untold: None };
    saved::read(text, &mut pages).map_err(CheckError::Text)?;
    let SavedPagesCheck { mut checked, remarks, untold, .. } = pages;
    checked.remark(&remarks);
    if let Some(error) = untold {
        return Err(error.into());
    }
    if checked.looked.values > 0 {
        checked.note("values out of line were not checked: their chunks are not available");
        checked.is_incomplete = true;
    }
    if checked.looked.blocks == 0 && !checked.is_incomplete {
        checked.note("there are no pages");
        checked.is_incomplete = true;
    }
    Ok(checked)
}

/// Checks saved pages as they are read.
struct SavedPagesCheck<'a, 't> {
    name: &'a str,
    desc: &'a TupleDesc,
    depth: Depth,
    tell: &'a mut Tell<'t>,
    checked: Checked,
    remarks: Remarks,
    /// Why a finding could not be told.
    untold: Option<io::Error>,
}

impl SavedSink for SavedPagesCheck<'_, '_> {
    fn begin(&mut self, kind: RowKind) {
        if kind != RowKind::Pages {
            self.checked.note("only whole pages are checked, as get_raw_page gives them");
            self.checked.is_incomplete = true;
        }
    }

    fn item(&mut self, _item: SavedItem) {}

    fn attributes(&mut self, _row: SavedAttributes) {}

    fn page(&mut self, page: SavedPage) {
        if self.has_enough() {
            return;
        }
        let checked = &mut self.checked;
        let types = Types::default();
        let subject = Subject {
            source: self.name,
            pages: if page.block.is_some() { PageOwner::Table } else { PageOwner::Unplaced },
            desc: self.desc,
            page_size: PageSize::new(page.bytes.len()).unwrap_or_default(),
            flavor: CustomFlavor::Auto,
            toast: Toast::Unknown,
            xids: None,
            commit_status: None,
            is_newer: false,
            ignores_hoff: false,
            // the server's buffers are ahead of their checksums
            checksums: false,
            depth: self.depth,
            types: &types,
        };
        let mut collector = Collector::new(&subject, None);
        let block = page.block.unwrap_or_default();
        subject.check_page(block, &page.bytes, &HintBits, &mut collector);
        checked.looked.blocks += 1;
        checked.looked.add(&collector.blocks.looked);
        checked.looked.values += collector.externals.len() as u64;
        self.remarks.add(collector.blocks.remarks);
        for finding in collector.blocks.findings {
            checked.count(&finding);
            if let Err(error) = (self.tell)(finding) {
                self.untold = Some(error);
                break;
            }
        }
    }

    fn error(&mut self, error: SavedError) {
        self.checked.note(format!("line {}: {}", error.line.0, error.problem));
        self.checked.is_incomplete = true;
    }

    fn has_enough(&self) -> bool {
        self.untold.is_some()
    }
}
