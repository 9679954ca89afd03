//! Chunks from the file of a TOAST relation. Its pages are read once to find out where the chunks of each value are;
//! their data is read when a value is requested.

use std::path::Path;

use super::file::RelationFile;
use toast_format::disk::page::LinePointerState;
use toast_format::disk::tuple::infomask;
use toast_format::disk::{
    BlockNumber, HeapTuple, ItemPointer, Oid, Page, PageSize, PageState, ValueId, ValueIdType,
    Varlena,
};
use toast_format::heap::problem::{Place, Problem, Problems};
use toast_format::heap::scan::{self, Item};
use toast_format::model::Visibility;
use toast_format::model::toaster::chunks::{Chunk, ChunkData, ChunkStore, Fate, StoreError};
use toast_format::model::visibility::{Transactions, visibility};

/// The maximum number of chunks in a file: the index of them takes 16 bytes each.
const MAX_CHUNKS: usize = 1 << 27;

/// Set in [`ChunkLocation::item`] if a scan would return the chunk.
const LIVE: u16 = 0x8000;

/// The location of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ChunkLocation {
    value_id: u64,
    block: u32,
    /// The line pointer's number, and [`LIVE`].
    item: u16,
    /// The size of its data.
    size: u16,
}

/// All chunks with one `chunk_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ValueChunks {
    pub value_id: ValueId,
    /// Chunks that a scan of the TOAST relation returns.
    pub live: u64,
    /// The size of their data.
    pub live_bytes: u64,
}

/// A TOAST relation's file with an index of its chunks.
pub struct ToastFile<T> {
    file: RelationFile,
    id_type: ValueIdType,
    transactions: T,
    index: Vec<ChunkLocation>,
    /// The file's name, for the locations of problems.
    name: String,
    problems: Problems,
}

impl<T: Transactions> ToastFile<T> {
    /// Reads all pages of `file` once; what cannot be read is in [`ToastFile::problems`]. `id_type` is the type of its
    /// value IDs; `transactions` is used if there are no hint bits.
    pub fn open(
        file: RelationFile,
        id_type: ValueIdType,
        transactions: T,
    ) -> Result<ToastFile<T>, StoreError> {
        let mut store = ToastFile {
            name: file.path().display().to_string(),
            file,
            id_type,
            transactions,
            index: Vec::new(),
            problems: Problems::default(),
        };
        for block in 0..store.file.blocks() {
            store.learn(BlockNumber(block))?;
        }
        store.index.sort_unstable();
        Ok(store)
    }

    /// What could not be read, with the locations.
    pub fn problems(&self) -> &Problems {
        &self.problems
    }

    /// Whether there are chunks, and all are known.
    pub fn is_whole(&self) -> bool {
        !self.index.is_empty() && self.problems.count() == 0
    }

    /// Whether there is a chunk of this value.
    pub fn has(&self, value_id: ValueId) -> bool {
        self.index.binary_search_by_key(&value_id.0, |chunk| chunk.value_id).is_ok()
    }

    /// All values in the file, by `chunk_id`, whether or not anything refers to them.
    pub fn values(&self) -> impl Iterator<Item = ValueChunks> + '_ {
        self.index.chunk_by(|a, b| a.value_id == b.value_id).map(|locations| {
            let mut value = ValueChunks::default();
            for location in locations {
                value.value_id = ValueId(location.value_id);
                if location.item & LIVE != 0 {
                    value.live += 1;
                    value.live_bytes += u64::from(location.size);
                }
            }
            value
        })
    }

    /// Adds the chunks of a block to the index.
    fn learn(&mut self, block: BlockNumber) -> Result<(), StoreError> {
        let mut problems = Vec::new();
        let page = self.file.read(block).map_err(|error| error.to_string());
        match page.and_then(|page| Page::parse(page.unwrap_or_default()).map_err(|e| e.to_string()))
        {
            Ok(PageState::New) => {}
            Ok(PageState::Used(page)) => {
                for (tid, item) in scan::items(block, &page) {
                    let tuple = match item {
                        Item::Tuple(tuple, _) => Ok(tuple),
                        Item::Damaged(problem) => Err(problem),
                        Item::Unused | Item::Redirect | Item::Dead => continue,
                    };
                    let chunk =
                        tuple.and_then(|tuple| Ok((tuple, read_chunk(&tuple, self.id_type)?)));
                    match chunk {
                        Ok((tuple, (value_id, _, data))) => {
                            let live = visibility(&tuple, &self.transactions) == Visibility::Live;
                            self.index.push(ChunkLocation {
                                value_id: value_id.0,
                                block: block.0,
                                item: tid.item | if live { LIVE } else { 0 },
                                size: data_size(&data),
                            });
                        }
                        Err(problem) => problems.push((Some(tid.item), problem)),
                    }
                }
            }
            Err(problem) => problems.push((None, problem)),
        }
        for (item, message) in problems {
            let place = Place { block: Some(block), item, ..Place::new(self.name.as_str()) };
            self.problems.add(Problem { place, message });
        }
        if self.index.len() > MAX_CHUNKS {
            return Err(StoreError(format!(
                "toast relation has more than {MAX_CHUNKS} chunks, too many for a file without \
                 its index"
            )));
        }
        Ok(())
    }
}

fn data_size(data: &Varlena<'_>) -> u16 {
    let size = match data {
        Varlena::Short { content } | Varlena::Plain { content } => content.len(),
        // The server includes the word before the stream.
        Varlena::Compressed { stream, .. } => stream.len() + 4,
        _ => 0,
    };
    u16::try_from(size).unwrap_or(u16::MAX)
}

/// The type of `chunk_id` in the file of a TOAST relation, by the first page that has chunks: the one with which most of
/// them end where their data does. `oid` if the file cannot be read.
pub fn id_type(path: &Path, page_size: PageSize) -> ValueIdType {
    let Ok(mut file) = RelationFile::open(path, page_size) else { return ValueIdType::Oid };
    for block in (0..file.blocks()).map(BlockNumber) {
        let Ok(Some(page)) = file.read(block) else { continue };
        let Ok(PageState::Used(used)) = Page::parse(page) else { continue };
        let mut narrow = 0;
        let mut wide = 0;
        for (_, item) in scan::items(block, &used) {
            let Item::Tuple(tuple, _) = item else { continue };
            narrow += u32::from(ends_with_chunk(&tuple, ValueIdType::Oid));
            wide += u32::from(ends_with_chunk(&tuple, ValueIdType::Oid8));
        }
        if narrow != wide {
            return if wide > narrow { ValueIdType::Oid8 } else { ValueIdType::Oid };
        }
    }
    ValueIdType::Oid
}

/// Whether a value ID of this type makes `chunk_data` end where the tuple does.
fn ends_with_chunk(tuple: &HeapTuple<'_>, id_type: ValueIdType) -> bool {
    match read_chunk(tuple, id_type) {
        Ok((_, _, Varlena::Short { content } | Varlena::Plain { content })) => {
            content.as_ptr_range().end == tuple.data.as_ptr_range().end
        }
        _ => false,
    }
}

/// Parses a chunk's tuple: `chunk_id`, `chunk_seq`, `chunk_data`, none of them NULL.
pub(super) fn read_chunk<'a>(
    tuple: &HeapTuple<'a>,
    id_type: ValueIdType,
) -> Result<(ValueId, i32, Varlena<'a>), String> {
    let order = tuple.order;
    if tuple.infomask & infomask::HASNULL != 0 || tuple.attribute_count() != 3 {
        return Err("tuple is not a chunk: three columns without nulls expected".into());
    }
    let cut = || format!("chunk ends after {} bytes", tuple.data.len());
    let value_id = order.value_id(tuple.data, 0, id_type).ok_or_else(cut)?;
    let seq = order.u32(tuple.data, id_type.size()).ok_or_else(cut)? as i32;
    let (data, _) = Varlena::parse(tuple.data.get(id_type.data_offset()..).unwrap_or(&[]), order)
        .map_err(|error| format!("chunk_data: {error}"))?;
    Ok((value_id, seq, data))
}

fn fate(tuple: &HeapTuple<'_>, transactions: &impl Transactions) -> Fate {
    if tuple.xmin_frozen() || tuple.infomask & infomask::XMIN_COMMITTED != 0 {
        return Fate::Committed;
    }
    if tuple.infomask & infomask::XMIN_INVALID != 0 {
        return Fate::NotCommitted;
    }
    match transactions.sees_changes_of(tuple.xmin, false) {
        Some(true) => Fate::Committed,
        Some(false) => Fate::NotCommitted,
        None => Fate::Unknown,
    }
}

impl<T: Transactions> ChunkStore for ToastFile<T> {
    fn chunks(&mut self, relation: Oid, value_id: ValueId) -> Result<Vec<Chunk>, StoreError> {
        let start = self.index.partition_point(|l| l.value_id < value_id.0);
        let end = self.index.partition_point(|l| l.value_id <= value_id.0);
        let places = self.index.get(start..end).unwrap_or_default().to_vec();
        let mut chunks = Vec::with_capacity(places.len());
        for ChunkLocation { block, item, .. } in places {
            let tid = ItemPointer { block: BlockNumber(block), item: item & !LIVE };
            chunks.extend(self.chunk_at(relation, tid)?);
        }
        Ok(chunks)
    }

    fn chunk_at(&mut self, _relation: Oid, tid: ItemPointer) -> Result<Option<Chunk>, StoreError> {
        let page = self.file.read(tid.block).map_err(|error| StoreError(error.to_string()))?;
        let Some(page) = page else { return Ok(None) };
        chunk_on_page(page, tid, self.id_type, &self.transactions)
    }
}

/// The chunk at `tid`, whose page is `bytes`, following redirects; `None` if there is no tuple.
pub fn chunk_on_page(
    bytes: &[u8],
    tid: ItemPointer,
    id_type: ValueIdType,
    transactions: &impl Transactions,
) -> Result<Option<Chunk>, StoreError> {
    let place = |text: String| StoreError(format!("chunk at {tid}: {text}"));
    let page = match Page::parse(bytes).map_err(|error| place(error.to_string()))? {
        PageState::New => return Ok(None),
        PageState::Used(page) => page,
    };
    let item = match page.line_pointer(tid.item) {
        Some(item) if item.state == LinePointerState::Redirect => page.line_pointer(item.offset),
        item => item,
    };
    let Some(item) = item.filter(|item| item.state == LinePointerState::Normal) else {
        return Ok(None);
    };
    let bytes = page.tuple_bytes(item).map_err(|error| place(error.to_string()))?;
    let tuple = HeapTuple::parse(bytes, page.byte_order()).map_err(|e| place(e.to_string()))?;
    let (value_id, seq, data) = read_chunk(&tuple, id_type).map_err(place)?;
    let inserted = fate(&tuple, transactions);
    let data = ChunkData::new(&data).ok_or_else(|| place("chunk_data is a pointer".into()))?;
    let stored_size = data.stored_size() as u64;
    Ok(Some(Chunk { tid, value_id, seq, inserted, data, stored_size }))
}

/// All chunks of the value `value_id` on a page, including dead ones.
pub fn chunks_on_page(
    block: BlockNumber,
    bytes: &[u8],
    value_id: ValueId,
    id_type: ValueIdType,
    transactions: &impl Transactions,
) -> Result<Vec<Chunk>, StoreError> {
    let mut chunks = Vec::new();
    let Ok(PageState::Used(page)) = Page::parse(bytes) else { return Ok(chunks) };
    for (tid, item) in scan::items(block, &page) {
        let Item::Tuple(tuple, _) = item else { continue };
        if read_chunk(&tuple, id_type).is_ok_and(|(found, ..)| found == value_id) {
            chunks.extend(chunk_on_page(bytes, tid, id_type, transactions)?);
        }
    }
    Ok(chunks)
}
