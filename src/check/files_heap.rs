//! The blocks of a table's file, which are checked in several threads, each with the TOAST relation's file.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;

use parking_lot::Mutex;

use super::chunk_index::{ChunkIndex, append_chunk};
use super::code::Code;
use super::collector::{CheckedBlocks, Collector, StoredCustoms};
use super::finding::{CheckError, Finding, NotedValues};
use super::relation_run::RelationRun;
use super::subject::{External, Subject};
use super::value::{ChunkSeen, check_chunks};
use crate::offline::file::RelationFile;
use crate::offline::target::{FileTarget, check_page_size};
use crate::offline::toastfile::chunk_on_page;
use crate::offline::xact::PgXact;
use toast_format::disk::{BlockNumber, ItemPointer, Oid, PageSize, ValueId, ValueIdType};
use toast_format::heap::problem::Place;
use toast_format::heap::progress::Progress;
use toast_format::model::Toasters;
use toast_format::model::toaster::chunks::Chunk as StoredChunk;
use toast_format::model::toaster::chunks::{ChunkStore, StoreError};

/// Blocks that a thread takes at a time.
const RANGE: u32 = 64;

/// The heap's blocks, which threads take range by range.
pub(super) struct HeapScan<'s, 't> {
    pub(super) target: &'s FileTarget<'t>,
    pub(super) subject: &'s Subject<'s>,
    /// The chunks, if all are known.
    pub(super) index: Option<&'s ChunkIndex>,
    pub(super) next: AtomicU32,
    pub(super) stop: AtomicBool,
}

impl HeapScan<'_, '_> {
    pub(super) fn run(
        &self,
        threads: usize,
        progress: &dyn Progress,
        out: &mut RelationRun<'_>,
    ) -> Result<(), CheckError> {
        let name = self.subject.source;
        let mut file = RelationFile::open(self.target.heap, self.target.page_size)?;
        let blocks = file.blocks();
        if let Some(page) = file.read(BlockNumber(0))? {
            check_page_size(page, name)?;
        }
        out.tell_lost(truncated_blocks(name, &file))?;
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
                    // no server reads them
                    result.remarks.crashing = NotedValues::default();
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

/// The results of one range of blocks.
struct RangeResult {
    number: u32,
    blocks: u64,
    result: CheckedBlocks,
}

/// A thread's own files and buffers.
struct RangeWorker<'w, 's, 't> {
    scan: &'w HeapScan<'s, 't>,
    heap: RelationFile,
    toast: Option<Mutex<IndexedToast<'w>>>,
    chunks: Vec<ChunkSeen>,
}

impl<'w, 's, 't> RangeWorker<'w, 's, 't> {
    fn open(scan: &'w HeapScan<'s, 't>) -> Result<RangeWorker<'w, 's, 't>, CheckError> {
        let size = scan.target.page_size;
        Ok(RangeWorker {
            scan,
            heap: RelationFile::open(scan.target.heap, size)?,
            toast: IndexedToast::open(scan)?.map(Mutex::new),
            chunks: Vec::new(),
        })
    }

    fn range(&mut self, number: u32, blocks: std::ops::Range<u32>) -> RangeResult {
        let HeapScan { subject, target, .. } = self.scan;
        let toasters = Toasters::by_bytes();
        let page = target.page_size;
        let toast = self.toast.as_ref();
        let customs = toast.map(|store| StoredCustoms { store, toasters: &toasters, page });
        let mut collector = Collector::new(subject, Some(&customs));
        let count = blocks.len() as u64;
        for block in blocks.map(BlockNumber) {
            match self.heap.read(block) {
                Ok(Some(page)) => subject.check_page(block, page, &target.xact, &mut collector),
                Ok(None) => {}
                Err(error) => {
                    let finding = unreadable(subject.source, block, &error.to_string());
                    collector.blocks.findings.push(finding);
                    collector.blocks.is_incomplete = true;
                }
            }
            for value in std::mem::take(&mut collector.externals) {
                match toast {
                    Some(toast) => {
                        let mut toast = toast.lock();
                        toast.check_value(&value, page, &mut self.chunks, &mut collector);
                    }
                    None => collector.blocks.looked.values += 1,
                }
            }
        }
        let mut result = collector.blocks;
        result.findings.sort_by_key(|finding| (finding.place.block, finding.place.item));
        RangeResult { number, blocks: count, result }
    }
}

/// The finding for a block that cannot be read.
pub(super) fn unreadable(name: &str, block: BlockNumber, error: &str) -> Finding {
    let place = Place { block: Some(block), ..Place::new(name) };
    Finding::new(Code::Unreadable, place, "a page", error)
}

/// Findings for blocks that the file should have.
pub(super) fn truncated_blocks(name: &str, file: &RelationFile) -> Vec<Finding> {
    let blocks = file.truncated().into_iter();
    blocks.map(|(block, error)| unreadable(name, block, &error.to_string())).collect()
}

/// The TOAST relation's file, read by the check's own index.
struct IndexedToast<'i> {
    index: &'i ChunkIndex,
    file: RelationFile,
    id_type: ValueIdType,
    xact: Option<&'i PgXact>,
}

impl<'i> IndexedToast<'i> {
    /// `None` if there is none whose chunks are all known.
    fn open(scan: &HeapScan<'i, 'i>) -> Result<Option<IndexedToast<'i>>, CheckError> {
        let target = scan.target;
        let (Some(index), Some(path)) = (scan.index, target.toast) else { return Ok(None) };
        Ok(Some(IndexedToast {
            index,
            file: RelationFile::open(path, target.page_size)?,
            id_type: target.desc.id_type,
            xact: target.xact,
        }))
    }

    /// Checks a value by its chunks; `chunks` is room for them.
    fn check_value(
        &mut self,
        value: &External,
        page: PageSize,
        chunks: &mut Vec<ChunkSeen>,
        collector: &mut Collector<'_>,
    ) {
        self.index.chunks(value.pointer.value_id, chunks);
        match check_chunks(&value.pointer, chunks, page) {
            Ok(own) => collector.content_of(value, &own, || self.joined(&own)),
            Err(damage) => collector.damaged(value, damage),
        }
    }

    /// The data of chunks, or the address at which there are none.
    fn joined(&mut self, chunks: &[ChunkSeen]) -> Result<Cow<'static, [u8]>, ItemPointer> {
        let id_type = self.id_type;
        let mut joined = Vec::with_capacity(chunks.iter().map(|chunk| chunk.size as usize).sum());
        for ChunkSeen { tid, .. } in chunks {
            let page = self.file.read(tid.block).ok().flatten();
            if !page.is_some_and(|page| append_chunk(page, *tid, id_type, &mut joined)) {
                return Err(*tid);
            }
        }
        Ok(joined.into())
    }
}

impl ChunkStore for IndexedToast<'_> {
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
        let IndexedToast { id_type, xact, .. } = *self;
        let page = self.file.read(tid.block).map_err(|error| StoreError(error.to_string()))?;
        let Some(page) = page else { return Ok(None) };
        chunk_on_page(page, tid, id_type, &xact)
    }
}
