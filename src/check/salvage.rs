//! Salvages damaged values and their rows (pure).

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use super::chunk_index::{ChunkTuple, chunk_data};
use super::code::Code;
use super::damaged_row::{end_of, fitting_tuple_at, longer_tuple_at, tuple_at, tuple_bytes_at};
use super::finding::Finding;
use super::page::{with_fitting_header, with_lost_pointers};
use super::salvage_custom::CustomValue;
use super::subject::{SeenPage, Subject};
use super::tuple::INFOMASK2_AT;
use super::value::{ChunkSeen, decompressed};
use crate::message::listed;
use toast_format::codec::{Method, datum, pglz};
use toast_format::disk::tuple::infomask2;
use toast_format::disk::varlena::{VARTAG_ONDISK, tc_method, tc_raw_size};
use toast_format::disk::walk::{WalkError, WalkErrorKind};
use toast_format::disk::{
    Attribute, ByteOrder, Datum, HeapTuple, ItemPointer, Oid, Page, PageSize, PageState,
    ToastPointer, ValueId, ValueIdType, Varlena, Walk, max_align, missing, value_text,
};
use toast_format::heap::scan::{self, Item, Visible as _};
use toast_format::model::toaster::chunks::Fate;
use toast_format::model::{HintBits, Visibility};

/// Why a chunk is not known to be the value's; better ones come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ChunkDoubt {
    /// Its `t_hoff` is wrong.
    Misread,
    /// Its data has another length than its tuple.
    Length,
    /// It is deleted, or its transaction was aborted.
    Deleted,
    /// The server, or the check, refuses its page.
    PageRefused,
}

impl ChunkDoubt {
    pub(super) fn of_chunk(chunk: &ChunkTuple) -> Option<ChunkDoubt> {
        if chunk.seen.fate == Fate::NotCommitted || chunk.is_refused {
            Some(ChunkDoubt::Deleted)
        } else if chunk.is_misread {
            Some(ChunkDoubt::Misread)
        } else {
            None
        }
    }
}

/// Bytes that a value can have at the most (`VARATT_EXTSIZE`).
const MOST: u32 = 0x3FFF_FFFF;
/// Values of a table without a row that are saved at the most.
pub(super) const MAX_WITHOUT: usize = 100_000;
/// Chunks that a value without a row may miss besides as many as it has.
const MAY_MISS: usize = 100;

/// A chunk that could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SavedChunk {
    pub(super) tid: ItemPointer,
    pub(super) seq: i32,
    pub(super) data: Vec<u8>,
    pub(super) doubt: Option<ChunkDoubt>,
}

/// How a value is stored, as its header or pointer says. Sizes are bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(super) struct StoredShape {
    /// `chunk_id`, of a value out of line.
    pub(super) value_id: Option<u64>,
    pub(super) raw_size: Option<u64>,
    pub(super) stored_size: Option<u64>,
    pub(super) method: Option<&'static str>,
    /// Chunks that the pointer asks for, and the numbers of those that could be read.
    pub(super) chunks_expected: Option<u32>,
    pub(super) chunks_found: Vec<i32>,
}

/// Bytes with their offsets, in order.
pub(super) type ByteRuns = Vec<(u64, Vec<u8>)>;

/// The bytes of a damaged value that could be read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct SalvagedValue {
    pub(super) shape: StoredShape,
    /// Stored bytes that could be read, by their offsets among those of the value.
    pub(super) stored: ByteRuns,
    /// The content's bytes, by their offsets in it, and whether these are all.
    pub(super) content: ByteRuns,
    pub(super) is_whole: bool,
    /// Chunks with the value's ID that have no place in it, one behind the other.
    pub(super) stray: Vec<SavedChunk>,
    /// The tuple's bytes from a value on that cannot be told from those behind it.
    pub(super) rest: Vec<u8>,
    /// Assumptions that nothing proves.
    pub(super) guesses: Vec<String>,
    /// Why nothing was saved, where it is not that nothing was left.
    pub(super) note: Option<&'static str>,
}

impl SalvagedValue {
    /// Notes an assumption that nothing proves.
    pub(super) fn guess(&mut self, guess: impl Into<String>) {
        self.guesses.push(guess.into());
    }

    /// Bytes of the content that could be read.
    pub(super) fn content_bytes(&self) -> u64 {
        self.content.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    /// The content, if it is whole.
    pub(super) fn content(&self) -> Option<&[u8]> {
        match self.content.as_slice() {
            [(0, content)] if self.is_whole => Some(content),
            _ => None,
        }
    }

    /// The content as the server reads it, if it is whole and its text is known here.
    pub(super) fn text(&self, column: &Attribute, order: ByteOrder, utf8: bool) -> Option<Vec<u8>> {
        let content = self.content()?;
        let text = if column.type_name.ends_with("[]") {
            value_text::array(content, order)?
        } else {
            value_text::text(column.type_oid, content, order)?
        };
        // what COPY would refuse
        let is_text = !text.contains(&0) && (!utf8 || std::str::from_utf8(&text).is_ok());
        is_text.then_some(text)
    }
}

impl Cell {
    pub(super) fn inline(saved: SalvagedValue) -> Cell {
        Cell::Inline(Box::new(saved))
    }

    /// The value in the row, or the text, as it can be without its chunks.
    pub(super) fn text(&self, column: &Attribute, order: ByteOrder, utf8: bool) -> Option<Vec<u8>> {
        match self {
            Cell::Text(text) => Some(text.clone()),
            Cell::Inline(saved) => saved.text(column, order, utf8),
            Cell::Null | Cell::External(_) | Cell::Custom(_) | Cell::Unknown => None,
        }
    }
}

/// Salvages a value in the row.
fn inline(value: &Varlena<'_>) -> SalvagedValue {
    match value {
        Varlena::Compressed { tc_info, stream } => {
            let method = tc_method(*tc_info);
            let raw = tc_raw_size(*tc_info);
            let mut saved = SalvagedValue {
                shape: StoredShape {
                    raw_size: Some(u64::from(raw)),
                    stored_size: Some(stream.len() as u64),
                    method: method.map(Method::name),
                    ..StoredShape::default()
                },
                stored: vec![(0, stream.to_vec())],
                ..SalvagedValue::default()
            };
            saved.decompress(stream, &[(method, raw)]);
            saved
        }
        // what follows a value of unknown length cannot be told from it
        Varlena::Unknown { bytes, .. } => {
            SalvagedValue { rest: bytes.to_vec(), ..SalvagedValue::default() }
        }
        _ => {
            let content = value.inline_content().unwrap_or(&[]);
            SalvagedValue {
                shape: StoredShape {
                    raw_size: Some(content.len() as u64),
                    ..StoredShape::default()
                },
                content: vec![(0, content.to_vec())],
                is_whole: true,
                ..SalvagedValue::default()
            }
        }
    }
}

/// Salvages a value out of line from the chunks that could be read.
pub(super) fn external(
    pointer: &ToastPointer,
    mut pieces: Vec<SavedChunk>,
    page: PageSize,
    order: ByteOrder,
) -> SalvagedValue {
    let limit = pointer.max_chunk_size(page);
    let mut saved = SalvagedValue::default();
    let mut stored_size = pointer.stored_size();
    let size_of = |seq: u32, all: u32| all.saturating_sub(seq.saturating_mul(limit)).min(limit);
    pieces.sort_by_key(|piece| {
        let seq = u32::try_from(piece.seq).unwrap_or(0);
        (piece.seq, piece.doubt, piece.data.len() != size_of(seq, stored_size) as usize, piece.tid)
    });
    if let Some(size) = size_by_chunks(&pieces, limit).filter(|size| *size != stored_size) {
        saved.guess(format!(
            "{size} bytes are stored, as its chunks say: its pointer says {stored_size}"
        ));
        stored_size = size;
    }
    let expected = stored_size.div_ceil(limit);
    saved.shape = StoredShape {
        value_id: Some(pointer.value_id.0),
        raw_size: Some(u64::from(pointer.raw_size())),
        stored_size: Some(u64::from(pointer.stored_size())),
        method: pointer.method().map(Method::name),
        chunks_expected: Some(pointer.chunks(page)),
        chunks_found: pieces.iter().map(|piece| piece.seq).collect(),
    };
    saved.shape.chunks_found.dedup();
    let mut doubted: Vec<(ChunkDoubt, i32)> = Vec::new();
    let mut last = None;
    let mut is_sure = true;
    for mut piece in pieces {
        let place = u32::try_from(piece.seq).ok().filter(|seq| *seq < expected);
        let Some(seq) = place.filter(|seq| last != Some(*seq)) else {
            let taken = saved.stored.last().map(|(_, data)| data);
            let fits =
                place.is_some_and(|seq| piece.data.len() == size_of(seq, stored_size) as usize);
            if piece.doubt.is_none() && fits && taken != Some(&piece.data) {
                saved.guess(format!("two chunks have the number {}", piece.seq));
                is_sure = false;
            }
            saved.stray.push(piece);
            continue;
        };
        last = Some(seq);
        let size = size_of(seq, stored_size) as usize;
        let data = if piece.data.len() > size {
            // what is too long has no place behind the size
            let start = piece.data.get(..size).unwrap_or_default().to_vec();
            saved.stray.push(piece.clone());
            start
        } else {
            std::mem::take(&mut piece.data)
        };
        doubted.extend(piece.doubt.map(|doubt| (doubt, piece.seq)));
        saved.stored.push((u64::from(seq) * u64::from(limit), data));
    }
    saved.guesses.extend(doubts(doubted));
    is_sure &= !saved.fill_gap(expected, limit, |seq| size_of(seq, stored_size) as usize);
    saved.put_together(pointer, stored_size, order);
    // an order that hangs on damaged numbers is a guess
    saved.is_whole &= is_sure;
    saved
}

/// A value to which no row that could be read refers, by its chunks: its size is theirs, and it is compressed if it is what the header
/// of compressed data says.
pub(super) fn without_row(
    value_id: ValueId,
    id_type: ValueIdType,
    pieces: Vec<SavedChunk>,
    page: PageSize,
) -> SalvagedValue {
    // The byte order is not known: little-endian is assumed. If it is not, compressed data is saved as stored.
    let order = ByteOrder::Little;
    let limit = page.toast_max_chunk_size_of(id_type);
    // a wild number does not make it long
    let most = pieces.len().saturating_mul(2).saturating_add(MAY_MISS);
    let size = pieces
        .iter()
        .filter_map(|piece| {
            let seq = u32::try_from(piece.seq).ok().filter(|seq| (*seq as usize) < most)?;
            let end = seq.checked_mul(limit)?.checked_add(u32::try_from(piece.data.len()).ok()?)?;
            (end <= MOST).then_some(end)
        })
        .max()
        .unwrap_or(0);
    // more chunks may have followed a full one
    let is_ended = !size.is_multiple_of(limit);
    let pointer = ToastPointer {
        raw_size_with_header: i32::try_from(size + 4).unwrap_or(i32::MAX),
        ext_info: size,
        value_id,
        toast_relation: Oid(0),
        id_type,
    };
    let mut saved = external(&pointer, pieces, page, order);
    saved.note = Some("no row that could be read refers to it: a row that is lost may have had it");
    let joined = saved.content().unwrap_or_default();
    let stream = joined.get(4..).unwrap_or_default();
    let info = order.u32(joined, 0).unwrap_or(0);
    let method = if tc_raw_size(info) as usize > joined.len() { tc_method(info) } else { None };
    let content = method.and_then(|method| {
        datum::decompress(method, tc_raw_size(info) as usize, stream)
            .ok()
            .map(|content| (method, content))
    });
    if let Some((method, content)) = content {
        saved.guess(format!("{} bytes are compressed by {}", content.len(), method.name()));
        saved.shape.method = Some(method.name());
        saved.shape.raw_size = Some(content.len() as u64);
        saved.content = vec![(0, content)];
    } else if !is_ended {
        saved.is_whole = false;
    }
    saved
}

/// Salvages a value of a pluggable toaster from the chunks of each of its parts that could be read.
pub(super) fn custom(
    value: &CustomValue,
    mut parts: Vec<Vec<SavedChunk>>,
    page: PageSize,
    order: ByteOrder,
) -> SalvagedValue {
    for pieces in &mut parts {
        pieces.sort_by_key(|piece| (piece.seq, piece.doubt, piece.tid));
    }
    let all = || parts.iter().flatten();
    let mut saved = SalvagedValue {
        shape: StoredShape {
            value_id: value.value_ids().next(),
            raw_size: value.raw_size,
            chunks_expected: value.chunks_expected,
            chunks_found: all().map(|piece| piece.seq).collect(),
            ..StoredShape::default()
        },
        rest: value.datum.clone(),
        note: Some(
            "of a pluggable toaster: the file of stray chunks has all that were found, the rest is the pointer",
        ),
        ..SalvagedValue::default()
    };
    if let (Some(appendable), Some(own)) = (&value.appendable, parts.first()) {
        let chunks: Vec<_> =
            own.iter().map(|piece| (piece.seq, piece.doubt.is_none(), &piece.data[..])).collect();
        saved.content = appendable.content(&chunks, page, order);
        saved.is_whole = match saved.content.as_slice() {
            [(0, content)] => Some(content.len() as u64) == value.raw_size,
            _ => false,
        };
    }
    let doubted = all().filter_map(|piece| Some((piece.doubt?, piece.seq)));
    saved.guesses.extend(doubts(doubted.collect()));
    saved.stray = parts.into_iter().flatten().collect();
    saved
}

/// The size of chunks that are complete by themselves: the last one is not full, and so shows the end.
fn size_by_chunks(pieces: &[SavedChunk], limit: u32) -> Option<u32> {
    let mut size: u32 = 0;
    for (next, own) in (0i64..).zip(pieces.chunk_by(|a, b| a.seq == b.seq)) {
        let [piece] = own else { return None };
        let length = u32::try_from(piece.data.len()).ok()?;
        let follows = i64::from(piece.seq) == next && i64::from(size) == next * i64::from(limit);
        if !follows || length > limit || piece.doubt.is_some() {
            return None;
        }
        size = size.checked_add(length)?;
    }
    (!size.is_multiple_of(limit)).then_some(size)
}

fn doubts(mut doubted: Vec<(ChunkDoubt, i32)>) -> Vec<String> {
    doubted.sort_unstable();
    doubted.chunk_by(|a, b| a.0 == b.0).map(doubt).collect()
}

fn doubt(chunks: &[(ChunkDoubt, i32)]) -> String {
    let named: Vec<String> = chunks.iter().map(|(_, seq)| format!("chunk {seq}")).collect();
    let (is, are) = match chunks.first() {
        Some((ChunkDoubt::PageRefused, _)) => {
            (" is on a page that is refused", " are on pages that are refused")
        }
        Some((ChunkDoubt::Misread, _)) => (" has a wrong t_hoff", " have a wrong t_hoff"),
        Some((ChunkDoubt::Length, _)) => (
            " has a wrong length: it ends with its tuple",
            " have wrong lengths: they end with their tuples",
        ),
        _ => (" is deleted", " are deleted"),
    };
    let what = if chunks.len() == 1 { is } else { are };
    format!("{}{what}", listed(&named, 8))
}

impl SalvagedValue {
    /// Where one chunk is missing, and one has no place of which the size is right: its number may be wrong. Whether it is
    /// put there.
    fn fill_gap(&mut self, expected: u32, limit: u32, size_of: impl Fn(u32) -> usize) -> bool {
        if self.stored.len() + 1 != expected as usize {
            return false;
        }
        let starts = (0..expected).zip(self.stored.iter().map(|(at, _)| Some(*at)).chain([None]));
        let is_missing =
            |(seq, at): &(u32, Option<u64>)| *at != Some(u64::from(*seq) * u64::from(limit));
        let Some((seq, _)) = starts.into_iter().find(is_missing) else { return false };
        let fits = |piece: &SavedChunk| piece.doubt.is_none() && piece.data.len() == size_of(seq);
        let mut fitting = (0..).zip(&self.stray).filter(|(_, piece)| fits(piece));
        let (Some((at, _)), None) = (fitting.next(), fitting.next()) else { return false };
        let piece = self.stray.remove(at);
        self.guess(format!("chunk {seq} is the one that has the number {}", piece.seq));
        self.stored.insert(seq as usize, (u64::from(seq) * u64::from(limit), piece.data));
        true
    }

    /// Says that its chunks are taken to be those of a value to which no row refers: nothing but the size tells that.
    pub(super) fn takes_instead(&mut self, value_id: u64) {
        self.guess(format!("its chunks are those of value {value_id}, to which no row refers"));
        self.is_whole = false;
    }

    /// Makes the content of the stored bytes.
    fn put_together(&mut self, pointer: &ToastPointer, stored_size: u32, order: ByteOrder) {
        // of compressed bytes, what stands behind the first gap cannot be told
        let mut joined = Vec::new();
        for (offset, bytes) in &self.stored {
            if *offset != joined.len() as u64 {
                break;
            }
            joined.extend_from_slice(bytes);
        }
        let has_all = joined.len() as u64 == u64::from(stored_size) && stored_size > 0;
        let is_plain = pointer.raw_size() == stored_size;
        if is_plain || !pointer.is_compressed() && !has_all {
            self.is_whole = has_all;
            self.content = if has_all { vec![(0, joined)] } else { self.stored.clone() };
            return;
        }
        let info = order.u32(&joined, 0).unwrap_or(0);
        let stream = joined.get(4..).unwrap_or(&[]);
        let method = pointer.method().or_else(|| tc_method(info));
        let header = (tc_method(info), tc_raw_size(info));
        self.decompress(stream, &[(method, pointer.raw_size()), header]);
        if !self.is_whole && has_all {
            self.guess("the compressed data are damaged: from there on, it is wrong");
        }
        if !self.is_whole && !pointer.is_compressed() {
            // pointer and chunks have different sizes: it may be longer or shorter than it was
            self.content = vec![(0, joined)];
            self.guess("it is not compressed, and its raw size is that of its chunks");
        }
    }

    /// Decompresses a stream by the first method and raw size that give all of it, then by the other method: all
    /// but the first are guesses. Else it is what the first gives up to the damage.
    fn decompress(&mut self, stream: &[u8], by: &[(Option<Method>, u32)]) {
        let known = by.iter().filter_map(|(method, raw)| Some(((*method)?, *raw)));
        let other = by.iter().flat_map(|(_, raw)| [(Method::Pglz, *raw), (Method::Lz4, *raw)]);
        let first = by.first().copied();
        for (method, raw) in known.chain(other) {
            let Ok(content) = decompressed(Code::ExternalCompressed, method, raw, stream) else {
                continue;
            };
            if first != Some((Some(method), raw)) {
                self.guess(format!("{raw} bytes are compressed by {}", method.name()));
            }
            self.content = vec![(0, content)];
            self.is_whole = true;
            return;
        }
        let (method, raw) = first.unwrap_or_default();
        let content = up_to_damage(method, raw, stream);
        self.content = vec![(0, past_the_end(method, raw, stream).unwrap_or(content))];
    }
}

/// The bytes that a stream gives whose last match ends behind the raw size, where the server cuts it off.
fn past_the_end(method: Option<Method>, raw_size: u32, stream: &[u8]) -> Option<Vec<u8>> {
    let raw = raw_size as usize;
    let method = method.filter(|method| *method == Method::Pglz)?;
    datum::decompress(method, raw, stream).ok()?;
    let longer =
        datum::decompress_prefix(method, raw.saturating_add(pglz::MAX_MATCH), stream).ok()?;
    (longer.len() > raw).then_some(longer)
}

/// The bytes that a stream gives before it is damaged or ends.
fn up_to_damage(method: Option<Method>, raw_size: u32, stream: &[u8]) -> Vec<u8> {
    let Some(method) = method else { return Vec::new() };
    let most = (raw_size as usize).min(datum::largest_raw_size(method, stream.len()));
    let prefix = |length| datum::decompress_prefix(method, length, stream).ok();
    if let Some(whole) = prefix(most) {
        return whole;
    }
    // the first length at which the damage is met
    let mut good = 0;
    let mut bad = most;
    while good + 1 < bad {
        let middle = good + (bad - good) / 2;
        if prefix(middle).is_some() { good = middle } else { bad = middle }
    }
    prefix(good).unwrap_or_default()
}

/// In place of an item: all rows of the page.
pub(super) const ALL: u16 = 0;

/// A damaged row: its damaged columns, and what was found there first. Item [`ALL`] for a page that the server, or the check,
/// refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowFindings {
    pub(super) ctid: ItemPointer,
    pub(super) columns: Vec<(String, Code)>,
}

/// The row of `relation` that a finding is about, if what is left of it is to be saved.
pub(super) fn damaged_row_of(relation: &str, finding: &Finding) -> Option<ItemPointer> {
    let place = &finding.place;
    let code = finding.code;
    let item = place.item.or(refuses_page(code).then_some(ALL))?;
    let is_sound = matches!(code, Code::HasExternal | Code::SharedValue);
    let is_lost = place.column.is_some() || item == ALL || hides_row(code);
    let has_value = place.source == relation && !is_sound && is_lost;
    if has_value { Some(ItemPointer { block: place.block?, item }) } else { None }
}

/// Whether SQL may not see a row with such a finding, or reads it wrong, although its columns can be read.
fn hides_row(code: Code) -> bool {
    matches!(
        code,
        Code::LinePointer
            | Code::HeaderLength
            | Code::AttributeCount
            | Code::Infomask
            | Code::XminRange
            | Code::XmaxRange
            | Code::CommitStatus
            | Code::MultiRange
            | Code::Xvac
            | Code::AllVisible
            | Code::LeftOver
    )
}

/// Whether a finding of a page says that it is refused.
pub(super) fn refuses_page(code: Code) -> bool {
    matches!(code, Code::PageHeader | Code::Checksum | Code::NewPage | Code::Unreadable)
}

/// The rows of a page that are asked for; all that are not known to be deleted, where the page is.
pub(super) fn on_page(bytes: &[u8], asked: &[RowFindings]) -> Vec<RowFindings> {
    let Some(RowFindings { ctid: ItemPointer { block, item: ALL }, .. }) = asked.first() else {
        return asked.to_vec();
    };
    let fitting = with_fitting_header(bytes, *block).or_else(|| with_lost_pointers(bytes, *block));
    let Ok(PageState::Used(page)) = Page::parse(fitting.as_deref().unwrap_or(bytes)) else {
        return Vec::new();
    };
    let is_deleted = |(ctid, item): &(ItemPointer, Item<'_>)| match item {
        Item::Tuple(tuple, _) => HintBits.visibility(*ctid, tuple) == Visibility::Dead,
        _ => false,
    };
    let rows = scan::items(*block, &page).filter(|row| !is_deleted(row));
    rows.map(|(ctid, _)| {
        let found = asked.iter().find(|row| row.ctid == ctid);
        found.cloned().unwrap_or(RowFindings { ctid, columns: Vec::new() })
    })
    .collect()
}

/// What a column of a damaged row holds.
#[derive(Debug, Clone)]
pub(super) enum Cell {
    Null,
    /// A value of which the text alone is known.
    Text(Vec<u8>),
    /// A value in the row.
    Inline(Box<SalvagedValue>),
    /// A value out of line.
    External(ToastPointer),
    /// A value of a pluggable toaster.
    Custom(Box<CustomValue>),
    /// Nothing is known of it here.
    Unknown,
}

/// A damaged row: each of its columns, with its index.
#[derive(Debug, Clone)]
pub(super) struct SalvagedRow {
    pub(super) order: ByteOrder,
    pub(super) cells: Vec<(usize, Cell)>,
    /// Why all of its columns may be wrong, and what was found.
    pub(super) guess: Option<(Code, &'static str)>,
}

impl SalvagedRow {
    /// Of the tuple at `ctid`, whose page is `bytes`. Where its columns end behind its line pointer, the bytes up to the
    /// next tuple are tried; where they do not begin at `t_hoff`, those behind the null bitmap.
    pub(super) fn read(
        bytes: &[u8],
        subject: &Subject<'_>,
        ctid: ItemPointer,
    ) -> Option<SalvagedRow> {
        let mut fitting = with_fitting_header(bytes, ctid.block);
        if fitting.is_none() && tuple_bytes_at(bytes, ctid).is_none() {
            fitting = with_lost_pointers(bytes, ctid.block);
        }
        let mut row = SalvagedRow::of_page(fitting.as_deref().unwrap_or(bytes), subject, ctid)?;
        let guess = "the header of its page is damaged: the rows are those of its line pointers, or those that say that \
                     they stand there";
        row.guess = row.guess.or(fitting.map(|_| (Code::PageHeader, guess)));
        Some(row)
    }

    fn of_page(bytes: &[u8], subject: &Subject<'_>, ctid: ItemPointer) -> Option<SalvagedRow> {
        let tuple = tuple_at(bytes, ctid);
        if let Some((own, order)) = tuple_bytes_at(bytes, ctid)
            && let Some((mended, guess)) = mended(own, order, subject)
        {
            let tuple = HeapTuple::parse(&mended, order).ok()?;
            let guess = Some(guess);
            return Some(SalvagedRow { guess, ..SalvagedRow::from_tuple(&tuple, subject).0 });
        }
        if let Some(tuple) = fitting_tuple_at(bytes, subject, ctid) {
            let guess = "t_hoff is wrong: its columns are those behind the null bitmap";
            let guess = Some((Code::HeaderLength, guess));
            return Some(SalvagedRow { guess, ..SalvagedRow::from_tuple(&tuple, subject).0 });
        }
        let (row, broken) = SalvagedRow::from_tuple(&tuple?, subject);
        let Some(broken) = broken else { return Some(row) };
        let Some((longer, length)) = longer_tuple_at(bytes, ctid) else { return Some(row) };
        let Some(end) = end_of(&longer, subject).filter(|end| max_align(*end) == length) else {
            return Some(row);
        };
        let data = longer.data.get(..end.saturating_sub(longer.data_offset)).unwrap_or_default();
        let (mut row, _) = SalvagedRow::from_tuple(&HeapTuple { data, ..longer }, subject);
        for (index, cell) in &mut row.cells {
            if let (Cell::Inline(saved), true) = (cell, *index >= broken) {
                saved.guess("it ends behind the tuple, as the line pointer has it");
            }
        }
        Some(row)
    }

    /// With the column at which the tuple is broken.
    fn from_tuple(tuple: &HeapTuple<'_>, subject: &Subject<'_>) -> (SalvagedRow, Option<usize>) {
        let mut broken = None;
        let order = tuple.order;
        let mut cells = Vec::new();
        let mut walk = Walk::with_flavor(tuple, subject.desc, subject.flavor);
        while let Some(walked) = walk.next() {
            let (column, datum) = match walked {
                Ok(walked) => walked,
                Err(error) if is_padding(&error, tuple) => break,
                Err(error) => {
                    broken = Some(error.index);
                    let start = error.byte.saturating_sub(tuple.data_offset);
                    let rest = tuple.data.get(start..).unwrap_or_default().to_vec();
                    let saved = SalvagedValue { rest, ..SalvagedValue::default() };
                    cells.push((error.index, Cell::inline(saved)));
                    break;
                }
            };
            let cell = match datum {
                Datum::Null => Cell::Null,
                Datum::Varlena(Varlena::External(pointer)) => Cell::External(pointer),
                Datum::Varlena(Varlena::Custom(pointer)) => {
                    Cell::Custom(Box::new(CustomValue::new(&pointer, subject.page_size)))
                }
                Datum::Varlena(value) => Cell::inline(inline(&value)),
                Datum::Fixed(content) | Datum::CString(content) => {
                    Cell::inline(inline(&Varlena::Plain { content }))
                }
                Datum::Missing => match (missing::content(column, order), &column.missing) {
                    (Some(content), _) => {
                        Cell::inline(inline(&Varlena::Plain { content: &content }))
                    }
                    (None, None) => Cell::Null,
                    (None, Some(missing)) => missing.text.clone().map_or(Cell::Unknown, Cell::Text),
                },
            };
            if !column.dropped {
                cells.push((walk.index() - 1, cell));
            }
        }
        (SalvagedRow { order, cells, guess: None }, broken)
    }

    /// The IDs of its values in the TOAST relation.
    pub(super) fn value_ids(&self) -> Vec<u64> {
        self.cells
            .iter()
            .flat_map(|(_, cell)| match cell {
                Cell::External(pointer) => vec![pointer.value_id.0],
                Cell::Custom(value) => value.value_ids().collect(),
                _ => Vec::new(),
            })
            .collect()
    }

    /// The pointers of its values out of line.
    pub(super) fn pointers(&self) -> impl Iterator<Item = &ToastPointer> {
        self.cells.iter().filter_map(|(_, cell)| match cell {
            Cell::External(pointer) => Some(pointer),
            _ => None,
        })
    }
}

/// Whether nothing but the padding behind a tuple is left over.
fn is_padding(error: &WalkError, tuple: &HeapTuple<'_>) -> bool {
    let start = error.byte.saturating_sub(tuple.data_offset);
    let rest = tuple.data.get(start..).unwrap_or_default();
    let is_left_over = matches!(error.kind, WalkErrorKind::LeftOver(_));
    is_left_over && rest.len() < 8 && rest.iter().all(|byte| *byte == 0)
}

/// Whether a tuple's columns end where it does, and each can be read.
fn is_whole(own: &[u8], order: ByteOrder, subject: &Subject<'_>) -> bool {
    HeapTuple::parse(own, order).is_ok_and(|tuple| {
        Walk::with_flavor(&tuple, subject.desc, subject.flavor).all(|walked| match walked {
            Ok((_, datum)) => !matches!(datum, Datum::Varlena(Varlena::Unknown { .. })),
            Err(error) => is_padding(&error, &tuple),
        })
    })
}

/// A tuple that is not whole, with one thing changed that makes it whole, and what was wrong.
fn mended(
    own: &[u8],
    order: ByteOrder,
    subject: &Subject<'_>,
) -> Option<(Vec<u8>, (Code, &'static str))> {
    if is_whole(own, order, subject) {
        return None;
    }
    let tag = "tags of pointers are wrong: they are taken for pointers to the TOAST relation";
    let count = "the number of attributes is wrong: with another one they end where the tuple does";
    match retagged(own, order, subject) {
        Some(bytes) => Some((bytes, (Code::Tag, tag))),
        None => Some((recounted(own, order, subject)?, (Code::AttributeCount, count))),
    }
}

/// The tuple with the usual tag in place of each that is not known.
fn retagged(own: &[u8], order: ByteOrder, subject: &Subject<'_>) -> Option<Vec<u8>> {
    let mut bytes = own.to_vec();
    for _ in &subject.desc.attributes {
        let tuple = HeapTuple::parse(&bytes, order).ok()?;
        let mut walk = Walk::with_flavor(&tuple, subject.desc, subject.flavor);
        let at = loop {
            // pointers are not aligned
            let at = walk.end();
            if let (_, Datum::Varlena(Varlena::Unknown { .. })) = walk.next()?.ok()? {
                break at;
            }
        };
        *bytes.get_mut(at + 1)? = VARTAG_ONDISK;
        if is_whole(&bytes, order, subject) {
            return Some(bytes);
        }
    }
    None
}

/// The tuple with another number of attributes.
fn recounted(own: &[u8], order: ByteOrder, subject: &Subject<'_>) -> Option<Vec<u8>> {
    let mut bytes = own.to_vec();
    let infomask2 = order.u16(own, INFOMASK2_AT)? & !infomask2::NATTS_MASK;
    let columns = u16::try_from(subject.desc.attributes.len()).ok()?;
    for count in (1..=columns).rev() {
        let half = infomask2 | count;
        let half = if order == ByteOrder::Big { half.to_be_bytes() } else { half.to_le_bytes() };
        bytes.get_mut(INFOMASK2_AT..INFOMASK2_AT + 2)?.copy_from_slice(&half);
        if is_whole(&bytes, order, subject) {
            return Some(bytes);
        }
    }
    None
}

/// Values of a TOAST relation that no row refers to, by what a pointer to them says: if one alone is as long as a value
/// whose chunks are nowhere, it is likely to be that.
#[derive(Debug, Default)]
pub(super) struct Orphans(HashMap<(u64, u64), Option<u64>>);

impl Orphans {
    pub(super) fn add(&mut self, value_id: u64, chunks: u64, bytes: u64) {
        let of_its_size = self.0.entry((chunks, bytes)).or_insert(Some(value_id));
        if *of_its_size != Some(value_id) {
            *of_its_size = None;
        }
    }

    /// The one that has as many bytes as `pointer` says.
    pub(super) fn instead_of(&self, pointer: &ToastPointer, page: PageSize) -> Option<u64> {
        let stored = pointer.stored_size();
        let size = (u64::from(pointer.chunks(page)), u64::from(stored));
        self.0.get(&size).copied().flatten()
    }
}

/// Adds the chunks of these values that stand on a refused page of the TOAST relation.
pub(super) fn refused_chunks(
    page: &SeenPage<'_, HintBits>,
    value_ids: &BTreeSet<u64>,
    chunks: &mut HashMap<u64, Vec<SavedChunk>>,
) {
    let fitting = with_fitting_header(page.bytes, page.block);
    let page = SeenPage { bytes: fitting.as_deref().unwrap_or(page.bytes), ..*page };
    page.each_chunk(
        |id| value_ids.contains(&id),
        |id, chunk| {
            let ChunkSeen { tid, seq, .. } = chunk.seen;
            let doubt = Some(ChunkDoubt::PageRefused);
            if let Some((mut data, _)) = chunk_data(page.bytes, tid, page.subject.desc.id_type) {
                // without its line pointer a tuple ends where the next one begins
                let size = chunk.seen.size as usize;
                if fitting.is_some() && (size..size + 8).contains(&data.len()) {
                    data.truncate(size);
                }
                chunks.entry(id).or_default().push(SavedChunk { tid, seq, data, doubt });
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use toast_format::disk::BlockNumber;

    #[test]
    fn a_compressed_value_is_left_up_to_its_damage() {
        let raw: Vec<u8> =
            (0..400u32).flat_map(|n| format!("value {} ", n * 7).into_bytes()).collect();
        for method in [Method::Pglz, Method::Lz4] {
            let stream = datum::Compressor::new().compress(method, &raw).unwrap().to_vec();
            let whole = up_to_damage(Some(method), raw.len() as u32, &stream);
            assert_eq!(whole, raw);
            let half = &stream[..stream.len() / 2];
            let left = up_to_damage(Some(method), raw.len() as u32, half);
            assert!(left.len() > raw.len() / 8 && raw.starts_with(&left), "{}", left.len());
            let mut damaged = stream.clone();
            let at = damaged.len() / 2;
            damaged[at..].fill(0xFF);
            let left = up_to_damage(Some(method), raw.len() as u32, &damaged);
            assert!(raw.starts_with(&left[..left.len().min(raw.len() / 4)]), "{method:?}");
        }
        assert_eq!(up_to_damage(None, 100, b"xyz"), b"");
    }

    #[test]
    fn a_value_that_is_cut_off_is_not_whole() {
        let raw = b"one value and another, ".repeat(40);
        let stream = datum::Compressor::new().compress(Method::Pglz, &raw).unwrap().to_vec();
        let of = |raw_size: usize| {
            let tc_info = raw_size as u32;
            inline(&Varlena::Compressed { tc_info, stream: &stream })
        };
        let whole = of(raw.len());
        assert_eq!((whole.is_whole, &whole.content[0].1), (true, &raw));
        // the last match goes on
        let short = of(raw.len() - 1);
        assert_eq!((short.is_whole, &short.content[0].1), (false, &raw));
    }

    fn pointer(raw: usize, stored: usize, method: u32) -> ToastPointer {
        ToastPointer {
            raw_size_with_header: raw as i32 + 4,
            ext_info: stored as u32 | method << 30,
            value_id: ValueId(7),
            toast_relation: Oid(8),
            id_type: ValueIdType::Oid,
        }
    }

    fn piece(seq: i32, byte: u8, length: usize) -> SavedChunk {
        let tid = ItemPointer { block: BlockNumber(0), item: seq.unsigned_abs() as u16 };
        SavedChunk { tid, seq, data: vec![byte; length], doubt: None }
    }

    #[test]
    fn what_has_no_place_in_a_value_is_kept_apart() {
        let of = |pieces: Vec<SavedChunk>| {
            external(&pointer(4000, 4000, 0), pieces, PageSize::DEFAULT, ByteOrder::Little)
        };
        let sound = [piece(0, b'a', 1996), piece(1, b'b', 1996), piece(2, b'c', 8)];
        let whole = |saved: &SalvagedValue| {
            let all: Vec<u8> = saved.content.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
            let truth = [vec![b'a'; 1996], vec![b'b'; 1996], vec![b'c'; 8]].concat();
            saved.is_whole && all == truth
        };
        for (wild, length) in [(900_000_000, 1996), (-1, 1996), (1, 1995), (3, 1996)] {
            let saved = of([&sound[..], &[piece(wild, b'x', length)]].concat());
            assert!(whole(&saved), "{wild}");
            assert_eq!(saved.stray, [piece(wild, b'x', length)]);
        }
        // one whose number is wrong: its place is a guess
        for seq in [900_000_000, -1, 0] {
            let wrong = SavedChunk { seq, ..sound[1].clone() };
            let saved = of(vec![sound[0].clone(), wrong, sound[2].clone()]);
            assert!(!saved.is_whole && saved.content_bytes() == 4000, "{seq}");
            assert!(saved.stray.is_empty(), "{seq}");
            let guess = format!("chunk 1 is the one that has the number {seq}");
            assert_eq!(saved.guesses.last(), Some(&guess));
        }
        // two that may each be the one
        let two = of([&sound[..], &[piece(1, b'x', 1996)]].concat());
        assert!(!two.is_whole && two.guesses == ["two chunks have the number 1"], "{two:?}");
        // the last one is shorter, or longer, than the pointer says
        for length in [7, 9] {
            let last = piece(2, b'c', length);
            let saved = of(vec![sound[0].clone(), sound[1].clone(), last]);
            assert!(!saved.is_whole, "{saved:?}");
        }
        // the chunks of another value that has its size
        let mut other = of(sound.to_vec());
        other.takes_instead(9);
        assert!(!other.is_whole && other.guesses.len() == 1);
        // it is not known which of the two it is, or whether it is either
        let odd = |length| piece(7, b'x', length);
        for stray in [vec![odd(1996), odd(1996)], vec![odd(1995)]] {
            let count = stray.len();
            let saved = of([vec![sound[0].clone(), sound[2].clone()], stray].concat());
            assert_eq!((saved.is_whole, saved.stray.len()), (false, count));
        }
        // a deleted chunk stands in where no other is there
        let doubted =
            |of: &SavedChunk| SavedChunk { doubt: Some(ChunkDoubt::Deleted), ..of.clone() };
        let saved = of(vec![sound[0].clone(), doubted(&sound[1]), sound[2].clone()]);
        assert!(whole(&saved));
        assert_eq!(saved.guesses, ["chunk 1 is deleted"]);
        let old = SavedChunk { data: vec![b'o'; 1996], ..doubted(&sound[1]) };
        let saved = of([&[old], &sound[..]].concat());
        assert!(whole(&saved) && saved.guesses.is_empty());
        // longer than a chunk: what is behind its end has no place
        let mut long = sound.to_vec();
        long[2].data.push(b'd');
        let saved = external(&pointer(4001, 4000, 0), long, PageSize::DEFAULT, ByteOrder::Little);
        assert!(!saved.guesses.is_empty(), "{saved:?}");
    }

    #[test]
    fn sizes_and_methods_that_are_wrong_are_guessed() {
        let raw = b"one value and another, ".repeat(400);
        for (method, other) in [(Method::Pglz, Method::Lz4), (Method::Lz4, Method::Pglz)] {
            let stream = datum::Compressor::new().compress(method, &raw).unwrap().to_vec();
            let info = raw.len() as u32 | u32::from(method.id()) << 30;
            let stored = [&info.to_le_bytes()[..], &stream].concat();
            let chunk = |data: &[u8]| vec![SavedChunk { data: data.to_vec(), ..piece(0, 0, 0) }];
            let of = |pointer: ToastPointer, data: &[u8]| {
                external(&pointer, chunk(data), PageSize::DEFAULT, ByteOrder::Little)
            };
            let right = u32::from(method.id());
            let saved = of(pointer(raw.len(), stored.len(), right), &stored);
            assert!(saved.is_whole && saved.guesses.is_empty(), "{saved:?}");
            let wrong = u32::from(other.id());
            for pointer in [
                pointer(raw.len(), stored.len(), wrong),
                pointer(raw.len() + 7, stored.len(), right),
                pointer(raw.len(), stored.len() + 7, right),
                pointer(raw.len(), stored.len() - 7, right),
                pointer(stored.len() - 7, stored.len(), 0),
            ] {
                let saved = of(pointer, &stored);
                assert!(saved.is_whole && !saved.guesses.is_empty(), "{pointer:?}");
                assert_eq!(saved.content, [(0, raw.clone())]);
            }
            // the method in the compressed data
            let mut flipped = stored.clone();
            flipped[3] ^= 0x40;
            let saved = of(pointer(raw.len(), stored.len(), wrong), &flipped);
            assert!(saved.is_whole && !saved.guesses.is_empty());
        }
    }

    #[test]
    fn a_value_without_a_row_is_what_its_chunks_say() {
        let of = |pieces| without_row(ValueId(7), ValueIdType::Oid, pieces, PageSize::DEFAULT);
        let plain = of(vec![piece(1, b'b', 10), piece(0, b'a', 1996)]);
        assert!(plain.is_whole && plain.content_bytes() == 2006 && plain.guesses.is_empty());
        // the last chunks may be gone, or the first, or a number is wild
        assert!(!of(vec![piece(0, b'a', 1996), piece(1, b'b', 1996)]).is_whole);
        let gap = of(vec![piece(1, b'b', 10), piece(i32::MAX, b'x', 10), piece(-1, b'x', 10)]);
        assert_eq!(
            (gap.is_whole, gap.content, gap.stray.len()),
            (false, vec![(1996, vec![b'b'; 10])], 2)
        );
        assert_eq!(of(Vec::new()).content_bytes(), 0);
        let raw = b"one value and another, ".repeat(400);
        for method in [Method::Pglz, Method::Lz4] {
            let stream = datum::Compressor::new().compress(method, &raw).unwrap().to_vec();
            let info = raw.len() as u32 | u32::from(method.id()) << 30;
            let data = [&info.to_le_bytes()[..], &stream].concat();
            let saved = of(vec![SavedChunk { data, ..piece(0, 0, 0) }]);
            assert_eq!((saved.content, saved.guesses.len()), (vec![(0, raw.clone())], 1));
        }
    }

    #[test]
    fn chunks_keep_their_places() {
        let pointer = pointer(5000, 5000, 0);
        let pieces = vec![piece(2, b'c', 1008), piece(0, b'a', 1996)];
        let saved = external(&pointer, pieces, PageSize::DEFAULT, ByteOrder::Little);
        let StoredShape { chunks_expected, chunks_found, .. } = &saved.shape;
        assert_eq!((*chunks_expected, chunks_found.as_slice()), (Some(3), &[0, 2][..]));
        assert!(!saved.is_whole && saved.guesses.is_empty());
        assert_eq!(saved.content_bytes(), 3004);
        assert_eq!(saved.content.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 3992]);
    }
}
