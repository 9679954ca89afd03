//! Every chunk in a TOAST relation's file: whose it is, where it stands, how long it is.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::code::Code;
use super::finding::Finding;
use super::subject::{PageFindings, SeenPage, Subject};
use super::value::{ChunkForm, ChunkSeen, inline_content};
use toast_format::disk::page::{LinePointer, LinePointerState};
use toast_format::disk::tuple::{HOFF_AT, infomask};
use toast_format::disk::{
    BlockNumber, ByteOrder, HeapTuple, ItemPointer, Page, PageState, TransactionId, ValueId,
    ValueIdType, Varlena,
};
use toast_format::heap::problem::Place;
use toast_format::heap::scan::{self, Item, Visible, each_tuple};
use toast_format::model::Visibility;
use toast_format::model::toaster::chunks::Fate;

/// Chunks that a file can have before it is refused: the index takes 24 bytes for each.
const MAX_CHUNKS: usize = 1 << 27;
/// Findings in TOAST relations that are kept until it is known which belong to values.
const MAX_FINDINGS: usize = 100_000;
/// The longest value with a header of one byte (`VARATT_SHORT_MAX`).
const LONGEST_SHORT: usize = 0x7F;
const FROZEN_TRANSACTION_ID: TransactionId = TransactionId(2);
/// After these it is not known whose chunk a tuple is.
const LOST: [Code; 4] =
    [Code::LinePointer, Code::Overlap, Code::HeaderLength, Code::AttributeCount];
/// A chunk and whose it is.
#[derive(Debug, Clone, Copy)]
struct ChunkEntry {
    value_id: u64,
    seq: i32,
    block: u32,
    item: u16,
    size: u16,
    form: ChunkForm,
    fate: Fate,
}

/// The chunks of a TOAST relation, by value.
#[derive(Debug, Default)]
pub struct ChunkIndex {
    entries: Vec<ChunkEntry>,
    /// What is damaged in the TOAST relation itself.
    pub(super) findings: Vec<Finding>,
    /// Findings beyond those that are kept.
    pub(super) more: u64,
    /// Whether there are more chunks than fit.
    pub(super) is_full: bool,
    /// Blocks whose chunks are not known.
    pub(super) lost: Vec<BlockNumber>,
}

/// A value without rows that refer to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Orphan {
    pub value_id: ValueId,
    /// Where its first chunk stands.
    pub first: ItemPointer,
    /// How many of its chunks are live.
    pub chunks: u64,
    /// Bytes of their data.
    pub bytes: u64,
}

impl ChunkIndex {
    /// Looks at a page of the TOAST relation, and enters its chunks. `toast` is the relation.
    pub fn learn(
        &mut self,
        toast: &Subject<'_>,
        block: BlockNumber,
        bytes: &[u8],
        visible: &impl Visible,
    ) {
        let before = self.findings.len();
        toast.check_page(block, bytes, visible, &mut ToastPage(self));
        let found = &self.findings[before..];
        let lost = found.iter().filter(|finding| LOST.contains(&finding.code));
        let broken: HashSet<u16> = lost.filter_map(|finding| finding.place.item).collect();
        if found.iter().any(|finding| finding.place.item.is_none()) {
            self.lost.push(block);
            return;
        }
        let Ok(PageState::Used(page)) = Page::parse(bytes) else { return };
        for (tid, item) in scan::items(block, &page) {
            let Item::Tuple(tuple, _) = item else { continue };
            if broken.contains(&tid.item) {
                continue;
            }
            self.enter(toast, tid, &tuple, fate(visible, &page, tid, &tuple));
        }
    }

    fn enter(&mut self, toast: &Subject<'_>, tid: ItemPointer, tuple: &HeapTuple<'_>, fate: Fate) {
        let (value_id, seq, form, size) = read_chunk(tuple, toast.desc.id_type);
        if form == ChunkForm::Null && fate == Fate::Committed {
            let place = Place { item: Some(tid.item), ..toast.page_place(tid.block) };
            let expected = "three columns without NULL";
            self.keep(Finding::new(Code::ChunkNull, place, expected, "a NULL"));
        }
        let Some(value_id) = value_id else { return };
        if self.entries.len() >= MAX_CHUNKS {
            self.is_full = true;
            return;
        }
        self.entries.push(ChunkEntry {
            value_id: value_id.0,
            seq,
            block: tid.block.0,
            item: tid.item,
            size: u16::try_from(size).unwrap_or(u16::MAX),
            form,
            fate,
        });
    }

    /// To be called when all pages were learned.
    pub fn sort(&mut self) {
        self.entries
            .sort_unstable_by_key(|entry| (entry.value_id, entry.seq, entry.block, entry.item));
    }

    /// Whether there are chunks, and all are known.
    pub fn is_whole(&self) -> bool {
        !self.entries.is_empty()
            && !self.is_full
            && self.lost.is_empty()
            && self.findings.is_empty()
    }

    /// Whether there is a chunk of this value.
    pub fn has(&self, value_id: ValueId) -> bool {
        self.entries.binary_search_by_key(&value_id.0, |entry| entry.value_id).is_ok()
    }

    /// Puts the chunks of a value into `chunks`.
    pub fn chunks(&self, value_id: ValueId, chunks: &mut Vec<ChunkSeen>) {
        chunks.clear();
        let start = self.entries.partition_point(|entry| entry.value_id < value_id.0);
        let own = self.entries.iter().skip(start).take_while(|e| e.value_id == value_id.0);
        chunks.extend(own.map(|entry| ChunkSeen {
            tid: ItemPointer { block: BlockNumber(entry.block), item: entry.item },
            seq: entry.seq,
            form: entry.form,
            size: u32::from(entry.size),
            fate: entry.fate,
        }));
    }

    /// Values of which it is not known whether a chunk is live, and to which none of `known`, in order,
    /// refers.
    pub fn undecided(&self, known: &[u64]) -> usize {
        let values = self.entries.chunk_by(|a, b| a.value_id == b.value_id);
        let undecided = values.filter(|own| {
            own.iter().all(|entry| entry.fate != Fate::Committed)
                && own.iter().any(|entry| entry.fate == Fate::Unknown)
                && known.binary_search(&own[0].value_id).is_err()
        });
        undecided.count()
    }

    /// The values of which a chunk is live and to which none of `known`, in order, refers.
    pub fn orphans<'a>(&'a self, known: &'a [u64]) -> impl Iterator<Item = Orphan> + 'a {
        self.entries.chunk_by(|a, b| a.value_id == b.value_id).filter_map(|own| {
            let first = own.iter().find(|entry| entry.fate == Fate::Committed)?;
            if known.binary_search(&first.value_id).is_ok() {
                return None;
            }
            let live = own.iter().filter(|entry| entry.fate == Fate::Committed);
            Some(Orphan {
                value_id: ValueId(first.value_id),
                first: ItemPointer { block: BlockNumber(first.block), item: first.item },
                chunks: live.clone().count() as u64,
                bytes: live.map(|entry| u64::from(entry.size)).sum(),
            })
        })
    }

    fn keep(&mut self, finding: Finding) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding);
        } else {
            self.more += 1;
        }
    }
}

/// `chunk_id`, `chunk_seq`, what `chunk_data` is and how long.
fn read_chunk(
    tuple: &HeapTuple<'_>,
    id_type: ValueIdType,
) -> (Option<ValueId>, i32, ChunkForm, usize) {
    let order = tuple.order;
    let id = order.value_id(tuple.data, 0, id_type);
    let seq = order.u32(tuple.data, id_type.size());
    if tuple.infomask & infomask::HASNULL != 0 {
        // what stands before the first NULL can be read
        let id = if !tuple.is_null(0) { id } else { None };
        let seq = if id.is_some() && !tuple.is_null(1) { seq } else { None };
        return (id, seq.unwrap_or(0) as i32, ChunkForm::Null, 0);
    }
    let seq = seq.unwrap_or(0) as i32;
    let data = tuple.data.get(id_type.data_offset()..).unwrap_or(&[]);
    match Varlena::parse(data, order) {
        Ok((Varlena::Short { content } | Varlena::Plain { content }, _)) => {
            (id, seq, ChunkForm::Plain, content.len())
        }
        Ok(_) => (id, seq, ChunkForm::NotPlain, 0),
        Err(_) => (id, seq, ChunkForm::Damaged, 0),
    }
}

/// The tuple of a chunk, and whether its `t_hoff` is wrong. Its columns are those behind the header either way: chunks
/// have no NULL. (From PostgreSQL 19 SELECT reads such a chunk right; fetching its value fails on every version.)
fn chunk_tuple<'p>(page: &Page<'p>, pointer: LinePointer) -> Option<(HeapTuple<'p>, bool)> {
    let bytes = page.tuple_bytes(pointer).ok()?;
    let header = HeapTuple::parse_header(bytes, page.byte_order()).ok()?;
    let fitting = header.fitting_offset();
    let is_misread = bytes.get(HOFF_AT).is_none_or(|&hoff| usize::from(hoff) != fitting);
    Some((header.with_data(bytes, fitting)?, is_misread))
}

/// The data of a chunk, decompressed as SQL reads it.
fn content<'t>(tuple: &HeapTuple<'t>, id_type: ValueIdType) -> Option<Cow<'t, [u8]>> {
    match Varlena::parse(tuple.data.get(id_type.data_offset()..)?, tuple.order).ok()?.0 {
        Varlena::Short { content } | Varlena::Plain { content } => Some(Cow::Borrowed(content)),
        Varlena::Compressed { tc_info, stream } => {
            inline_content(tc_info, stream).ok().map(Cow::Owned)
        }
        _ => None,
    }
}

/// Appends the data of the chunk at `tid`, whose page is `bytes`, decompressed as SQL reads it; `false` if there is none.
pub fn append_chunk(
    bytes: &[u8],
    tid: ItemPointer,
    id_type: ValueIdType,
    joined: &mut Vec<u8>,
) -> bool {
    let Ok(PageState::Used(page)) = Page::parse(bytes) else { return false };
    let tuple = page.line_pointer(tid.item).and_then(|pointer| chunk_tuple(&page, pointer));
    let content = tuple.and_then(|(tuple, _)| content(&tuple, id_type));
    joined.extend_from_slice(content.as_deref().unwrap_or_default());
    content.is_some()
}

/// The data of the chunk at `tid`, whose page is `bytes`, and whether its length is another than that of its tuple: then it is
/// all that follows up to the tuple's end.
pub(super) fn chunk_data(
    bytes: &[u8],
    tid: ItemPointer,
    id_type: ValueIdType,
) -> Option<(Vec<u8>, bool)> {
    let Ok(PageState::Used(page)) = Page::parse(bytes) else { return None };
    let (tuple, _) = chunk_tuple(&page, page.line_pointer(tid.item)?)?;
    let own = tuple.data.get(id_type.data_offset()..)?;
    if Varlena::parse(own, tuple.order).is_ok_and(|(_, used)| used == own.len()) {
        return Some((content(&tuple, id_type)?.into_owned(), false));
    }
    let short = if tuple.order == ByteOrder::Little { 1 } else { 0x80 };
    let is_short = own.len() <= LONGEST_SHORT && own.first()? & short != 0;
    Some((own.get(if is_short { 1 } else { 4 }..)?.to_vec(), true))
}

/// Calls `each` with the value and the `xmin` of every live chunk of a page.
pub fn live_chunks(
    block: BlockNumber,
    bytes: &[u8],
    id_type: ValueIdType,
    visible: &impl Visible,
    mut each: impl FnMut(ValueId, TransactionId),
) {
    each_tuple(block, bytes, visible, |_, tuple, _, seen| {
        if seen == Visibility::Live
            && let (Some(value_id), ..) = read_chunk(tuple, id_type)
        {
            // of frozen ones it is as old as can be
            let xmin = if tuple.xmin_frozen() { FROZEN_TRANSACTION_ID } else { tuple.xmin };
            each(value_id, xmin);
        }
    });
}

/// Chunks of values, deleted ones too, by the values' IDs.
pub(super) type ChunksByValue = HashMap<u64, Vec<ChunkTuple>>;

/// A chunk of a value, deleted or not.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChunkTuple {
    pub(super) seen: ChunkSeen,
    /// Its `xmin` and `xmax`, as they stand in the tuple.
    pub(super) xids: [u32; 2],
    /// Whether the server refuses one of them.
    pub(super) is_refused: bool,
    /// Whether its `t_hoff` is wrong.
    pub(super) is_misread: bool,
    /// Whether its `t_ctid` is another place, so that the whole tuple was moved here.
    pub(super) is_moved: bool,
    /// Whether it says that an UPDATE made it on the page of the old version, as none makes chunks.
    pub(super) is_heap_only: bool,
    /// Line pointers of its page.
    pub(super) page_items: u16,
}

impl<V: Visible> SeenPage<'_, V> {
    /// Calls `each` with every chunk on a page whose value `is_asked` for, deleted ones too. What the page says of all its
    /// tuples is not believed.
    pub(super) fn each_chunk(
        &self,
        is_asked: impl Fn(u64) -> bool,
        mut each: impl FnMut(u64, ChunkTuple),
    ) {
        let SeenPage { subject: toast, block, visible, .. } = *self;
        let Some(page) = self.parsed() else { return };
        let page_items = page.line_pointer_count();
        for (item, pointer) in page.line_pointers() {
            let tid = ItemPointer { block, item };
            if pointer.state != LinePointerState::Normal {
                continue;
            }
            let Some((tuple, is_misread)) = chunk_tuple(&page, pointer) else { continue };
            let (Some(value_id), seq, form, size) = read_chunk(&tuple, toast.desc.id_type) else {
                continue;
            };
            if !is_asked(value_id.0) {
                continue;
            }
            let size = u32::try_from(size).unwrap_or(u32::MAX);
            let fate = fate(visible, &page, tid, &tuple);
            let chunk = ChunkTuple {
                seen: ChunkSeen { tid, seq, form, size, fate },
                xids: [tuple.xmin.0, tuple.xmax.0],
                is_refused: toast.has_refused_xid(&tuple),
                is_misread,
                is_moved: tuple.ctid != tid,
                is_heap_only: tuple.heap_only(),
                page_items,
            };
            each(value_id.0, chunk);
        }
    }
}

fn fate(visible: &dyn Visible, page: &Page<'_>, tid: ItemPointer, tuple: &HeapTuple<'_>) -> Fate {
    match visible.visibility(tid, tuple) {
        // nobody asked about the tuples of such a page
        Visibility::Unknown { .. } if visible.sees_all_of(page) => Fate::Committed,
        Visibility::Live => Fate::Committed,
        Visibility::Dead => Fate::NotCommitted,
        Visibility::Unknown { .. } => Fate::Unknown,
    }
}

/// A page of the TOAST relation: only findings count.
struct ToastPage<'i>(&'i mut ChunkIndex);

impl PageFindings for ToastPage<'_> {
    fn finding(&mut self, finding: Finding) {
        self.0.keep(finding);
    }
}
