//! One thread's share of a check of files: ranges of the heap's blocks, and the values in them.

use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Mutex, PoisonError};

use super::chunk_index::{ChunkIndex, append_chunk};
use super::code::Code;
use super::collector::{Collector, Customs};
use super::finding::{Finding, Looked};
use super::salvage::Piece;
use super::subject::{External, Subject};
use super::value::{ChunkSeen, Damage, check_chunks, external_content};
use crate::disk::{BlockNumber, ItemPointer, Oid};
use crate::heap::problem::Place;
use crate::inspect::offline::OfflineError;
use crate::model::toaster::catalog::Toasters;
use crate::model::toaster::chunks::{Chunk, ChunkStore, Fate, StoreError};
use crate::offline::file::RelationFile;
use crate::offline::target::FileTarget;
use crate::offline::toastfile::chunk_on_page;
use crate::offline::xact::PgXact;

/// Pages of the TOAST relation that each thread keeps.
const PAGES: usize = 8;

/// The heap's blocks, which threads take range by range.
pub(super) struct Scan<'s, 't> {
    pub(super) target: &'s FileTarget<'t>,
    pub(super) subject: &'s Subject<'s>,
    pub(super) index: Option<&'s ChunkIndex>,
    pub(super) next: AtomicU32,
    pub(super) stop: AtomicBool,
}

/// What a range of blocks gave.
pub(super) struct Range {
    pub(super) number: u32,
    pub(super) blocks: u64,
    pub(super) findings: Vec<Finding>,
    pub(super) looked: Looked,
    pub(super) known: Vec<u32>,
    pub(super) is_complete: bool,
    pub(super) unknown: u64,
}

pub(super) fn unreadable(name: &str, block: BlockNumber, error: &str) -> Finding {
    let place = Place { block: Some(block), ..Place::of(name) };
    Finding::new(Code::Unreadable, place, "a page", error)
}

/// A thread's own files and buffers.
pub(super) struct Worker<'w, 's, 't> {
    scan: &'w Scan<'s, 't>,
    pub(super) heap: RelationFile,
    pub(super) page: Vec<u8>,
    toast: Option<ToastPages>,
    chunks: Vec<ChunkSeen>,
}

impl<'w, 's, 't> Worker<'w, 's, 't> {
    pub(super) fn open(scan: &'w Scan<'s, 't>) -> Result<Worker<'w, 's, 't>, OfflineError> {
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

    pub(super) fn range(&mut self, number: u32, blocks: std::ops::Range<u32>) -> Range {
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
    pub(super) fn pieces(&mut self, value_id: Oid) -> Vec<Piece> {
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
    /// Opened when the first is met.
    store: Mutex<Option<IndexedChunks<'w>>>,
}

impl Customs for CustomFile<'_, '_, '_> {
    fn look(
        &self,
        value: &crate::disk::varlena::Varlena<'_>,
        order: crate::disk::ByteOrder,
        with_text: bool,
    ) -> Option<Result<(), crate::model::toaster::error::ToastError>> {
        let target = self.scan.target;
        let index = self.scan.index.filter(|index| !index.is_full())?;
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        if store.is_none() {
            let file = RelationFile::open(target.toast?, target.page_size).ok()?;
            let page = vec![0; target.page_size.bytes()];
            *store = Some(IndexedChunks { index, file, page, block: None, xact: target.xact });
        }
        let store = store.as_mut()?;
        let toasters = Toasters::by_bytes();
        Some(super::collector::look(store, &toasters, target.page_size, value, order, with_text))
    }
}

/// Chunks for values of pluggable toasters: by the check's own index.
struct IndexedChunks<'i> {
    index: &'i ChunkIndex,
    file: RelationFile,
    /// The page read last.
    page: Vec<u8>,
    block: Option<BlockNumber>,
    xact: Option<&'i PgXact>,
}

impl ChunkStore for IndexedChunks<'_> {
    fn chunks(&mut self, relation: Oid, value_id: Oid) -> Result<Vec<Chunk>, StoreError> {
        let mut seen = Vec::new();
        self.index.chunks(value_id, &mut seen);
        let mut chunks = Vec::with_capacity(seen.len());
        for chunk in seen {
            chunks.extend(self.chunk_at(relation, chunk.tid)?);
        }
        Ok(chunks)
    }

    fn chunk_at(&mut self, _: Oid, tid: ItemPointer) -> Result<Option<Chunk>, StoreError> {
        if self.block != Some(tid.block) {
            self.block = None;
            let read = self.file.read(tid.block, &mut self.page);
            if !read.map_err(|error| StoreError(error.to_string()))? {
                return Ok(None);
            }
            self.block = Some(tid.block);
        }
        chunk_on_page(&self.page, tid, &self.xact)
    }
}
