//! Salvages damaged rows with their values, and values without a row, from a server or from files ([`Evidence`]). The TOAST
//! relation is read once for as many values as have [`CHUNKS_AT_A_TIME`]; no index is needed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::chunk_index::{ChunkTuple, ChunksByValue, chunk_data};
use super::finding::CheckError;
use super::salvage::{
    self, Cell, ChunkDoubt, MAX_WITHOUT, Orphans, RowFindings, SalvagedRow, SalvagedValue,
    SavedChunk, on_page, refused_chunks,
};
use super::salvage_custom::{ChunkPlace, CustomValue};
use super::salvage_dir::{SalvageDir, SavedRelation};
use super::subject::{SeenPage, Which};
use super::value::{ChunkForm, ChunkSeen};
use crate::offline::toastfile::chunk_on_page;
use crate::server::chunks::in_parts_of;
use crate::value::contents::write_text;
use toast_format::disk::{
    Attribute, BlockNumber, ByteOrder, ItemPointer, PageSize, ToastPointer, TransactionId, ValueId,
    Varlena,
};
use toast_format::heap::scan::Visible;
use toast_format::model::toaster::chunks::{Chunk, ChunkStore, Fate, FetchedChunks, WantedChunks};
use toast_format::model::toaster::reassemble::Reassembler;
use toast_format::model::{HintBits, Toasters};

/// Chunks that values together have at the most whose places are kept at a time: 48 bytes each.
const CHUNKS_AT_A_TIME: u64 = 2_000_000;
/// Values without a row that are kept as candidates for one whose chunks are nowhere.
const MAX_ORPHANS: usize = 1_000_000;

/// A damaged row, and the values out of line that it refers to.
struct RowToSave {
    row: RowFindings,
    pointers: Vec<ToastPointer>,
    /// All of its values in the TOAST relation.
    value_ids: Vec<u64>,
}

impl RowToSave {
    /// The chunks that its pointers ask for.
    fn chunks(&self, page: PageSize) -> u64 {
        self.pointers.iter().map(|pointer| u64::from(pointer.chunks(page))).sum()
    }
}

/// The chunks of some values, however they were found.
#[derive(Default)]
struct FoundChunks {
    by_value: ChunksByValue,
    /// Those on refused pages.
    refused: HashMap<u64, Vec<SavedChunk>>,
    orphans: Orphans,
}

/// A value without a row.
struct ValueWithoutRow {
    chunks: u64,
    /// The number and the place of its first chunk.
    first: (i32, ItemPointer),
}

/// Salvages from `evidence` what is left of `relation`.
pub(super) struct Salvage<'a, E> {
    pub(super) evidence: E,
    pub(super) relation: Arc<SavedRelation<'a>>,
    pub(super) page_size: PageSize,
    /// The values that rows refer to, in order.
    pub(super) known: &'a [u64],
}

impl<E: Evidence> Salvage<'_, E> {
    /// Saves what is left of damaged rows and their values.
    pub(super) async fn save_rows(
        &mut self,
        damaged: &[RowFindings],
        dir: &mut SalvageDir,
    ) -> Result<(), CheckError> {
        let mut saving = dir.rows_of(Arc::clone(&self.relation));
        let rows = self.rows(damaged).await?;
        let size = self.page_size;
        for some in in_parts_of(&rows, usize::MAX, CHUNKS_AT_A_TIME, |row| row.chunks(size)) {
            let chunks = self.chunks_of_rows(some).await?;
            for RowToSave { row, .. } in some {
                if let Some(salvaged) = self.salvage_row(row, &chunks).await? {
                    saving.row(row, &salvaged)?;
                }
            }
        }
        Ok(saving.end()?)
    }

    /// Saves values to which no row that could be read refers: those of lost rows may be among them. `is_old` says of the
    /// transaction that inserted a chunk whether it was over before the rows were read. Gives what is left out because it
    /// is too much.
    pub(super) async fn save_without_row(
        &mut self,
        toast: &str,
        is_old: impl Fn(TransactionId) -> bool,
        dir: &mut SalvageDir,
    ) -> Result<Option<String>, CheckError> {
        let mut all: BTreeMap<u64, ValueWithoutRow> = BTreeMap::new();
        let mut left_out: BTreeSet<u64> = BTreeSet::new();
        let known = self.known;
        self.evidence
            .each_chunk(
                |id| known.binary_search(&id).is_err(),
                |id, ChunkTuple { seen, xids: [xmin, _], is_refused, .. }| {
                    let is_live = seen.fate == Fate::Committed && !is_refused;
                    if !is_live || xmin > 2 && !is_old(TransactionId(xmin)) {
                        return;
                    }
                    let first = (seen.seq, seen.tid);
                    if let Some(orphan) = all.get_mut(&id) {
                        orphan.chunks += 1;
                        orphan.first = first.min(orphan.first);
                    } else if all.len() < MAX_WITHOUT {
                        all.insert(id, ValueWithoutRow { chunks: 1, first });
                    } else if left_out.len() < MAX_ORPHANS {
                        left_out.insert(id);
                    }
                },
            )
            .await?;
        let orphans: Vec<(u64, ValueWithoutRow)> = all.into_iter().collect();
        for some in in_parts_of(&orphans, usize::MAX, CHUNKS_AT_A_TIME, |(_, orphan)| orphan.chunks)
        {
            let chunks = self.chunks_of(&some.iter().map(|(id, _)| *id).collect()).await?;
            for (id, orphan) in some {
                let pieces = self.read_chunks(chunks.get(id)).await?;
                let id_type = self.relation.desc.id_type;
                let saved = salvage::without_row(ValueId(*id), id_type, pieces, self.page_size);
                dir.without_row(toast, orphan.first.1, &saved)?;
            }
        }
        let values = left_out.len();
        Ok((values > 0).then(|| {
            format!(
                "{values} values of {toast} to which no row refers were not saved, or only in part: there are too many"
            )
        }))
    }

    async fn rows(&mut self, damaged: &[RowFindings]) -> Result<Vec<RowToSave>, CheckError> {
        let blocks = damaged.iter().map(|row| row.ctid.block).collect();
        let mut rows = Vec::new();
        let refused = self
            .evidence
            .each_page(Which::Heap, Some(blocks), |page| rows.extend(rows_on_page(damaged, page)))
            .await?;
        self.evidence
            .each_refused(Which::Heap, refused, |page| rows.extend(rows_on_page(damaged, page)))
            .await?;
        Ok(rows)
    }

    /// The chunks of values, deleted ones too.
    async fn chunks_of(&mut self, ids: &BTreeSet<u64>) -> Result<ChunksByValue, CheckError> {
        let mut chunks = ChunksByValue::new();
        self.evidence
            .each_chunk(
                |id| ids.contains(&id),
                |id, chunk| chunks.entry(id).or_default().push(chunk),
            )
            .await?;
        Ok(chunks)
    }

    async fn chunks_of_rows(&mut self, rows: &[RowToSave]) -> Result<FoundChunks, CheckError> {
        let mut chunks = FoundChunks::default();
        let ids: BTreeSet<u64> = rows.iter().flat_map(|row| &row.value_ids).copied().collect();
        if ids.is_empty() {
            return Ok(chunks);
        }
        let mut orphans: HashMap<u64, (u64, u64)> = HashMap::new();
        let by_value = &mut chunks.by_value;
        let known = self.known;
        let refused = self
            .evidence
            .each_chunk(
                |id| ids.contains(&id) || known.binary_search(&id).is_err(),
                |id, chunk| {
                    if ids.contains(&id) {
                        by_value.entry(id).or_default().push(chunk);
                    } else if chunk.seen.fate == Fate::Committed
                        && (orphans.len() < MAX_ORPHANS || orphans.contains_key(&id))
                    {
                        let own = orphans.entry(id).or_default();
                        own.0 += 1;
                        own.1 += u64::from(chunk.seen.size);
                    }
                },
            )
            .await?;
        for (id, (count, bytes)) in orphans {
            chunks.orphans.add(id, count, bytes);
        }
        let nowhere = rows
            .iter()
            .flat_map(|row| &row.pointers)
            .filter(|pointer| !chunks.by_value.contains_key(&pointer.value_id.0));
        let instead: BTreeSet<u64> =
            nowhere.filter_map(|p| chunks.orphans.instead_of(p, self.page_size)).collect();
        if !instead.is_empty() {
            chunks.by_value.extend(self.chunks_of(&instead).await?);
        }
        self.evidence
            .each_refused(Which::Toast, refused, |page| {
                refused_chunks(page, &ids, &mut chunks.refused);
            })
            .await?;
        Ok(chunks)
    }

    /// Collects what can still be read of a row: its page, the text of values by SQL, and chunks.
    async fn salvage_row(
        &mut self,
        found: &RowFindings,
        chunks: &FoundChunks,
    ) -> Result<Option<SalvagedRow>, CheckError> {
        let RowFindings { ctid, columns: damaged } = found;
        let mut row = None;
        let mut sql_reads = false;
        let block = Some(BTreeSet::from([ctid.block]));
        let refused = self
            .evidence
            .each_page(Which::Heap, block, |page| {
                row = SalvagedRow::read(page.bytes, page.subject, *ctid);
                sql_reads = page.is_readable(*ctid);
            })
            .await?;
        self.evidence
            .each_refused(Which::Heap, refused, |page| {
                row = SalvagedRow::read(page.bytes, page.subject, *ctid);
            })
            .await?;
        let Some(mut row) = row else { return Ok(None) };
        let relation = Arc::clone(&self.relation);
        let order = row.order;
        for (index, cell) in &mut row.cells {
            let Some(column) = relation.desc.attributes.get(*index) else { continue };
            // the server may misread it, or crash on it
            if let Cell::Custom(value) = &*cell
                && let Some(text) = self.custom_text(value, column, chunks, order).await?
            {
                *cell = Cell::Text(text);
                continue;
            }
            // the server's functions may crash on a damaged value
            let has_text = match &*cell {
                Cell::Null | Cell::Text(_) | Cell::External(_) => false,
                Cell::Custom(_) => damaged.iter().all(|(name, _)| *name != column.name),
                Cell::Inline(saved) => {
                    saved.text(column, order, relation.is_utf8()).is_none()
                        && relation.is_sound(column, saved, order)
                }
                Cell::Unknown => true,
            };
            if has_text
                && sql_reads
                && let Some(text) = self.evidence.text_of(&column.name, *ctid).await?
            {
                *cell = Cell::Text(text);
                continue;
            }
            let saved = match &*cell {
                Cell::External(pointer) => self.salvage_external(pointer, chunks, order).await?,
                Cell::Custom(value) => self.salvage_custom(value, chunks, order).await?,
                _ => continue,
            };
            *cell = Cell::inline(saved);
        }
        Ok(Some(row))
    }

    /// Salvages a value out of line: in the order of the TOAST index if that differs from IDs and numbers, otherwise from
    /// all chunks with its ID, otherwise from chunks without a row whose size fits.
    async fn salvage_external(
        &mut self,
        pointer: &ToastPointer,
        chunks: &FoundChunks,
        order: ByteOrder,
    ) -> Result<SalvagedValue, CheckError> {
        let size = self.page_size;
        let by_index = self.evidence.by_index(pointer, &chunks.by_value).await?;
        let is_disputed = by_index.is_some();
        if let Some(IndexedChunks { chunks: Some(pieces), is_proven }) = by_index {
            let mut saved = salvage::external(pointer, pieces, size, order);
            saved.guess("its chunks are those that the index leads to");
            saved.is_whole &= is_proven;
            return Ok(saved);
        }
        let mut pieces = self.all_chunks(chunks, pointer.value_id.0).await?;
        let mut instead = None;
        if pieces.is_empty() {
            instead = chunks.orphans.instead_of(pointer, size);
        }
        if let Some(id) = instead {
            pieces = self.read_chunks(chunks.by_value.get(&id)).await?;
        }
        let mut saved = salvage::external(pointer, pieces, size, order);
        if let Some(id) = instead {
            saved.takes_instead(id);
        }
        if is_disputed {
            saved.guess(
                "its chunks are in the order of their numbers, and the index leads to them in another way",
            );
            saved.is_whole = false;
        }
        Ok(saved)
    }

    /// The text of a value of a pluggable toaster, if all of it can be put together here.
    async fn custom_text(
        &mut self,
        value: &CustomValue,
        column: &Attribute,
        chunks: &FoundChunks,
        order: ByteOrder,
    ) -> Result<Option<Vec<u8>>, CheckError> {
        let toasters = Toasters::by_bytes();
        let page = self.page_size;
        let mut store = FetchedChunks::default();
        loop {
            let mut reassembler =
                Reassembler { store: &mut store, toasters: &toasters, page, order };
            let text = text_of_custom(&value.datum, column, &mut reassembler);
            let wanted = store.take_wanted();
            if wanted.is_empty() {
                return Ok(text);
            }
            for wanted in wanted {
                match wanted {
                    WantedChunks::Value(relation, id) => {
                        let own = chunks.by_value.get(&id.0).map_or(&[][..], Vec::as_slice);
                        let places = own.iter().map(|chunk| (chunk.seen.tid, chunk.seen.fate));
                        let read = self.stored_chunks(places.collect()).await?;
                        store.add_value(relation, id, read);
                    }
                    WantedChunks::At(relation, tid) => {
                        let places = BTreeMap::from([(tid, Fate::Committed)]);
                        let read = self.stored_chunks(places).await?;
                        store.add_at(relation, tid, read.into_iter().next());
                    }
                }
            }
        }
    }

    /// The chunks at these addresses as they are stored. `places`: whether the insertion of each committed.
    async fn stored_chunks(
        &mut self,
        places: BTreeMap<ItemPointer, Fate>,
    ) -> Result<Vec<Chunk>, CheckError> {
        let id_type = self.relation.desc.id_type;
        let blocks = places.keys().map(|tid| tid.block).collect();
        let mut chunks = Vec::new();
        self.evidence
            .each_page(Which::Toast, Some(blocks), |page| {
                let own = places.iter().filter(|(tid, _)| tid.block == page.block);
                for (tid, inserted) in own {
                    if let Ok(Some(chunk)) = chunk_on_page(page.bytes, *tid, id_type, &HintBits) {
                        chunks.push(Chunk { inserted: *inserted, ..chunk });
                    }
                }
            })
            .await?;
        Ok(chunks)
    }

    async fn salvage_custom(
        &mut self,
        value: &CustomValue,
        chunks: &FoundChunks,
        order: ByteOrder,
    ) -> Result<SalvagedValue, CheckError> {
        let mut parts = Vec::new();
        for part in &value.elsewhere {
            parts.push(match part {
                ChunkPlace::Value(id) => self.all_chunks(chunks, *id).await?,
                ChunkPlace::At(tids) => self.read_chunks(Some(&chunks_at(tids))).await?,
            });
        }
        Ok(salvage::custom(value, parts, self.page_size, order))
    }

    /// The chunks with this ID, also those on refused pages.
    async fn all_chunks(
        &mut self,
        chunks: &FoundChunks,
        id: u64,
    ) -> Result<Vec<SavedChunk>, CheckError> {
        let mut all = self.read_chunks(chunks.by_value.get(&id)).await?;
        all.extend(chunks.refused.get(&id).into_iter().flatten().cloned());
        Ok(all)
    }

    /// The data of chunks, deleted ones too, as their pages have it. They are in the order of their blocks.
    async fn read_chunks(
        &mut self,
        chunks: Option<&Vec<ChunkTuple>>,
    ) -> Result<Vec<SavedChunk>, CheckError> {
        let mut saved = Vec::new();
        let Some(chunks) = chunks else { return Ok(saved) };
        let blocks = chunks.iter().map(|chunk| chunk.seen.tid.block).collect();
        let mut rest = chunks.iter().peekable();
        let id_type = self.relation.desc.id_type;
        self.evidence
            .each_page(Which::Toast, Some(blocks), |&SeenPage { block, bytes, .. }| {
                while let Some(chunk) = rest.next_if(|chunk| chunk.seen.tid.block <= block) {
                    let ChunkSeen { tid, seq, .. } = chunk.seen;
                    if tid.block == block
                        && let Some((data, is_cut)) = chunk_data(bytes, tid, id_type)
                    {
                        let doubt = if is_cut { Some(ChunkDoubt::Length) } else { None };
                        let doubt = ChunkDoubt::of_chunk(chunk).or(doubt);
                        saved.push(SavedChunk { tid, seq, data, doubt });
                    }
                }
            })
            .await?;
        Ok(saved)
    }
}

/// The text of a value of a pluggable toaster; `None` if it cannot be put together, or its type's text is not known here.
fn text_of_custom<S: ChunkStore>(
    datum: &[u8],
    column: &Attribute,
    reassembler: &mut Reassembler<'_, S>,
) -> Option<Vec<u8>> {
    let (value, _) = Varlena::parse(datum, reassembler.order).ok()?;
    let logical = reassembler.value(&value).ok()?;
    let mut text = Vec::new();
    write_text(&logical, column.type_oid, reassembler, &mut text).ok()??;
    Some(text)
}

/// Chunks at these addresses, numbered in this order, as they are to be looked for.
fn chunks_at(tids: &[ItemPointer]) -> Vec<ChunkTuple> {
    let mut chunks: Vec<ChunkTuple> = Vec::new();
    for (seq, tid) in (0..).zip(tids) {
        let form = ChunkForm::Plain;
        let fate = Fate::Committed;
        chunks.push(ChunkTuple {
            seen: ChunkSeen { tid: *tid, seq, form, size: 0, fate },
            xids: [0, 0],
            is_refused: false,
            is_misread: false,
            is_moved: false,
            is_heap_only: false,
            page_items: 0,
        });
    }
    chunks.sort_by_key(|chunk| chunk.seen.tid);
    chunks
}

/// The rows of a page that are among the `damaged` ones, which are in order.
fn rows_on_page<V>(damaged: &[RowFindings], page: &SeenPage<'_, V>) -> Vec<RowToSave> {
    let SeenPage { subject, block, bytes, .. } = *page;
    let start = damaged.partition_point(|row| row.ctid.block < block);
    let end = damaged.partition_point(|row| row.ctid.block <= block);
    let mut rows = Vec::new();
    for row in on_page(bytes, damaged.get(start..end).unwrap_or_default()) {
        if let Some(read) = SalvagedRow::read(bytes, subject, row.ctid) {
            let pointers = read.pointers().copied().collect();
            rows.push(RowToSave { row, pointers, value_ids: read.value_ids() });
        }
    }
    rows
}

/// Blocks of a relation that are read; `None` for all.
pub(super) type ChosenBlocks = Option<BTreeSet<BlockNumber>>;

/// The chunks to which the index leads for a value, where it does so in another way than their IDs and numbers say.
pub(super) struct IndexedChunks {
    /// `None` if the order of their numbers is as good.
    pub(super) chunks: Option<Vec<SavedChunk>>,
    /// Whether that order hangs on no damaged number.
    pub(super) is_proven: bool,
}

/// A source of damaged values.
pub(super) trait Evidence {
    /// Tells which tuples are visible.
    type Visible: Visible;

    /// Calls `take` with the pages of these blocks, or of all, in order. Returns the blocks that are refused.
    async fn each_page(
        &mut self,
        which: Which,
        blocks: ChosenBlocks,
        take: impl FnMut(&SeenPage<'_, Self::Visible>),
    ) -> Result<BTreeSet<BlockNumber>, CheckError>;

    /// Calls `take` with refused pages as their file has them, as far as it can be read.
    async fn each_refused(
        &mut self,
        which: Which,
        blocks: BTreeSet<BlockNumber>,
        take: impl FnMut(&SeenPage<'_, HintBits>),
    ) -> Result<(), CheckError>;

    /// The text of a value, by SQL if there is a server that may be asked.
    async fn text_of(
        &mut self,
        _column: &str,
        _ctid: ItemPointer,
    ) -> Result<Option<Vec<u8>>, CheckError> {
        Ok(None)
    }

    /// The chunks of a value as the index leads to them, if that differs from what `chunks` say.
    async fn by_index(
        &mut self,
        _pointer: &ToastPointer,
        _chunks: &ChunksByValue,
    ) -> Result<Option<IndexedChunks>, CheckError> {
        Ok(None)
    }

    /// Calls `each` with every chunk whose value `is_asked` for, deleted ones too. Returns the blocks that are refused.
    async fn each_chunk(
        &mut self,
        is_asked: impl Fn(u64) -> bool,
        mut each: impl FnMut(u64, ChunkTuple),
    ) -> Result<BTreeSet<BlockNumber>, CheckError> {
        self.each_page(Which::Toast, None, |page| page.each_chunk(&is_asked, &mut each)).await
    }
}
