//! One value: its pointer, its chunks, and what they decompress to (pure; `detoast.c`,
//! `heap_fetch_toast_slice`).

use std::borrow::Cow;

use super::code::Code;
use toast_format::codec::{Method, datum, pglz};
use toast_format::disk::varlena::{tc_method, tc_raw_size};
use toast_format::disk::{ByteOrder, ItemPointer, Oid, PageSize, ToastPointer};
use toast_format::model::toaster::chunks::Fate;

/// The largest `va_rawsize` (`VARLENA_SIZE_LIMIT` of `verify_heapam.c`).
const LARGEST: i32 = 0x3FFF_FFFF;

/// What is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    pub code: Code,
    /// What should be there.
    pub expected: String,
    pub found: String,
    /// The chunk that is damaged.
    pub chunk: Option<ItemPointer>,
}

impl Damage {
    pub(super) fn new(code: Code, expected: impl Into<String>, found: impl Into<String>) -> Damage {
        Damage { code, expected: expected.into(), found: found.into(), chunk: None }
    }

    fn at(self, chunk: ItemPointer) -> Damage {
        Damage { chunk: Some(chunk), ..self }
    }

    /// Whether it is that chunks are not there, as those of rows that vacuum may remove.
    pub fn is_absence(&self) -> bool {
        matches!(self.code, Code::NoChunks | Code::ChunkMissing | Code::ChunksEnd)
    }
}

/// Which TOAST relation the pointers of a relation may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Toast {
    /// Not known, as of a file.
    Unknown,
    None,
    Relation(Oid),
}

/// What is wrong with a pointer in itself (`check_tuple_attribute` of `verify_heapam.c`).
pub fn check_pointer(pointer: &ToastPointer, toast: Toast) -> Option<Damage> {
    let raw = pointer.raw_size_with_header;
    let stored = pointer.stored_size();
    if !(4..=LARGEST).contains(&raw) {
        let limits = format!("va_rawsize from 4 to {LARGEST}");
        return Some(Damage::new(Code::RawSize, limits, raw.to_string()));
    }
    if stored == 0 || i64::from(stored) > i64::from(raw) - 4 {
        let limits = format!("1 to {} bytes stored, by va_rawsize {raw}", i64::from(raw) - 4);
        return Some(Damage::new(Code::StoredSize, limits, format!("{stored}")));
    }
    let id = pointer.method_id();
    if pointer.is_compressed() && Method::from_id(id).is_none() {
        let found = format!("method {id}");
        return Some(Damage::new(Code::Method, "method 0 (pglz) or 1 (lz4)", found));
    }
    if !pointer.is_compressed() && id != 0 {
        let found = format!("method {id}");
        return Some(Damage::new(Code::Method, "method 0, the value is not compressed", found));
    }
    if pointer.value_id.0 == 0 {
        return Some(Damage::new(Code::ValueId, "a value ID", "0"));
    }
    let relation = pointer.toast_relation;
    match toast {
        Toast::Unknown if relation.0 == 0 => {
            Some(Damage::new(Code::ToastRelation, "a TOAST relation", "relation 0"))
        }
        Toast::Unknown => None,
        Toast::Relation(own) if own == relation => None,
        Toast::Relation(own) => Some(Damage::new(
            Code::ToastRelation,
            format!("relation {own}"),
            format!("relation {relation}"),
        )),
        Toast::None => Some(Damage::new(
            Code::ToastRelation,
            "no pointer, for there is no TOAST relation",
            format!("relation {relation}"),
        )),
    }
}

/// What a chunk's tuple holds as `chunk_data`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChunkForm {
    /// Bytes that are not compressed.
    Plain,
    /// One of its columns is NULL.
    Null,
    /// Compressed, or a pointer.
    NotPlain,
    /// The tuple's end, or a varlena length that cannot be.
    Damaged,
}

/// A chunk without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSeen {
    /// Its address in the TOAST relation.
    pub tid: ItemPointer,
    pub seq: i32,
    pub form: ChunkForm,
    /// Bytes of its data, if that is plain.
    pub size: u32,
    /// Whether it counts: [`Fate::NotCommitted`] also where it is deleted.
    pub fate: Fate,
}

/// The chunks that count, in order; what is wrong with them where they are not the value's
/// (`check_toasted_attribute` of `verify_heapam.c`).
pub fn check_chunks(
    pointer: &ToastPointer,
    chunks: &[ChunkSeen],
    page: PageSize,
) -> Result<Vec<ChunkSeen>, Damage> {
    let size = pointer.stored_size();
    let limit = pointer.max_chunk_size(page);
    let count = pointer.chunks(page);
    let all = format!("{count} {} for value {}", plural(count, "chunk"), pointer.value_id);
    let mut order: Vec<ChunkSeen> =
        chunks.iter().copied().filter(|chunk| chunk.fate != Fate::NotCommitted).collect();
    if order.is_empty() {
        let found = if chunks.is_empty() { "none" } else { "only deleted ones" };
        return Err(Damage::new(Code::NoChunks, all, found));
    }
    if let Some(null) = order.iter().find(|chunk| chunk.form == ChunkForm::Null) {
        let found = format!("a NULL in the chunk at {}", null.tid);
        return Err(Damage::new(Code::ChunkNull, all, found).at(null.tid));
    }
    order.sort_by_key(|chunk| (chunk.seq, chunk.fate != Fate::Committed, chunk.tid));
    order.dedup_by(|later, first| {
        later.seq == first.seq && first.fate == Fate::Committed && later.fate == Fate::Unknown
    });
    let mut next: u32 = 0;
    for (at, chunk) in order.iter().enumerate() {
        let ChunkSeen { seq, tid, form, .. } = *chunk;
        if at > 0 && order.get(at - 1).is_some_and(|before| before.seq == seq) {
            let first = order.get(at - 1).map(|before| before.tid).unwrap_or_default();
            let found = format!("chunk {seq} at {first} and at {tid}");
            return Err(Damage::new(Code::ChunkTwice, all, found).at(tid));
        }
        if seq < 0 || (i64::from(seq) >= i64::from(count) && next == count) {
            let found = format!("chunk {seq} at {tid}");
            return Err(Damage::new(Code::ChunkNumber, all, found).at(tid));
        }
        if i64::from(seq) != i64::from(next) {
            return Err(Damage::new(
                Code::ChunkMissing,
                format!("chunk {next} of {all}"),
                present(&order, size, count),
            ));
        }
        let wanted = size.saturating_sub(next * limit).min(limit);
        match form {
            ChunkForm::Plain if chunk.size == wanted => {}
            ChunkForm::Plain => {
                let expected = format!("{wanted} bytes in chunk {seq} of {all}");
                let found = format!("{} at {tid}", chunk.size);
                return Err(Damage::new(Code::ChunkSize, expected, found).at(tid));
            }
            ChunkForm::NotPlain | ChunkForm::Null => {
                let expected = format!("plain bytes in chunk {seq} of {all}");
                let found = format!("a compressed value or a pointer at {tid}");
                return Err(Damage::new(Code::ChunkForm, expected, found).at(tid));
            }
            ChunkForm::Damaged => {
                let expected = format!("{wanted} bytes in chunk {seq} of {all}");
                let found = format!("a damaged tuple at {tid}");
                return Err(Damage::new(Code::ChunkUnreadable, expected, found).at(tid));
            }
        }
        next += 1;
    }
    if next < count {
        return Err(Damage::new(Code::ChunksEnd, all, present(&order, size, count)));
    }
    Ok(order)
}

/// The numbers of the first chunks, and how much of a value of this size and number of chunks the others are.
fn present(chunks: &[ChunkSeen], size: u32, count: u32) -> String {
    let mut own: Vec<(i32, u32)> = chunks
        .iter()
        .filter(|chunk| u32::try_from(chunk.seq).is_ok_and(|seq| seq < count))
        .map(|chunk| (chunk.seq, chunk.size))
        .collect();
    own.dedup_by_key(|(seq, _)| *seq);
    let there = own.iter().fold(0u32, |sum, (_, bytes)| sum.saturating_add(*bytes));
    let missing = size.saturating_sub(there);
    format!("{}; {missing} of {size} stored bytes are missing", numbers(chunks))
}

/// The numbers of the first chunks.
fn numbers(chunks: &[ChunkSeen]) -> String {
    const SHOWN: usize = 8;
    let mut text: Vec<String> = chunks.iter().take(SHOWN).map(|c| c.seq.to_string()).collect();
    if chunks.len() > SHOWN {
        text.push(format!("and {} more", chunks.len() - SHOWN));
    }
    format!("{} {}", plural(chunks.len() as u32, "chunk"), text.join(", "))
}

fn plural(count: u32, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

/// Decompresses a value in the row.
pub fn inline_content(tc_info: u32, stream: &[u8]) -> Result<Vec<u8>, Damage> {
    let Some(method) = tc_method(tc_info) else {
        let found = format!("method {}", tc_info >> 30);
        return Err(Damage::new(Code::Method, "method 0 (pglz) or 1 (lz4)", found));
    };
    decompressed(Code::InlineCompressed, method, tc_raw_size(tc_info), stream)
}

/// The content of a value whose chunks, joined, are `stored`.
pub fn external_content<'d>(
    pointer: &ToastPointer,
    stored: Cow<'d, [u8]>,
    order: ByteOrder,
) -> Result<Cow<'d, [u8]>, Damage> {
    if !pointer.is_compressed() {
        return Ok(stored);
    }
    let header = |expected: String, found: String| {
        Err(Damage::new(Code::CompressionHeader, expected, found))
    };
    let Some(tc_info) = order.u32(&stored, 0) else {
        return header("4 bytes of va_tcinfo".into(), format!("{} bytes", stored.len()));
    };
    let raw = tc_raw_size(tc_info);
    let method = tc_method(tc_info);
    if raw != pointer.raw_size() {
        return header(
            format!("{} bytes uncompressed, by the pointer", pointer.raw_size()),
            format!("{raw} in the compressed data"),
        );
    }
    match (method, pointer.method()) {
        (Some(method), Some(ours)) if method == ours => {
            let stream = stored.get(4..).unwrap_or(&[]);
            decompressed(Code::ExternalCompressed, method, raw, stream).map(Cow::Owned)
        }
        (_, ours) => header(
            format!("method {}, by the pointer", ours.map_or("unknown", Method::name)),
            format!("method {} in the compressed data", tc_info >> 30),
        ),
    }
}

/// Whether all bytes of a value, whose chunks joined are `stored`, are those that the server makes its copy of, and are
/// all used: as they are where the pointer says that they are not compressed, else by the header that they begin with.
pub(super) fn uses_all(pointer: &ToastPointer, stored: &[u8], order: ByteOrder) -> bool {
    let info = order.u32(stored, 0).unwrap_or(0);
    let stream = stored.get(4..).unwrap_or(&[]);
    let decompresses = tc_method(info).is_some_and(|method| {
        decompressed(Code::ExternalCompressed, method, tc_raw_size(info), stream).is_ok()
    });
    // compressed bytes whose pointer has lost its sizes would be taken for the content
    let is_compressed = decompresses && tc_raw_size(info) as usize > stored.len();
    stored.len() == pointer.stored_size() as usize
        && if pointer.is_compressed() { decompresses } else { !is_compressed }
}

/// Decompresses a value more strictly than the server, which cuts a match of pglz off at the value's end: where that
/// happens the size is wrong.
pub(super) fn decompressed(
    code: Code,
    method: Method,
    raw: u32,
    stream: &[u8],
) -> Result<Vec<u8>, Damage> {
    let raw = raw as usize;
    let damage = |found: String| {
        let expected = format!("{raw} bytes from {} of {}", stream.len(), method.name());
        Damage::new(code, expected, found)
    };
    let may_be_cut = method == Method::Pglz && raw <= datum::largest_raw_size(method, stream.len());
    if !may_be_cut {
        return datum::decompress(method, raw, stream).map_err(|error| damage(error.to_string()));
    }
    match datum::decompress_prefix(method, raw + pglz::MAX_MATCH, stream) {
        Ok(bytes) if bytes.len() == raw => Ok(bytes),
        longer => Err(damage(match (datum::decompress(method, raw, stream), longer) {
            (Ok(_), Ok(longer)) => format!("the last match ends at byte {}", longer.len()),
            (Ok(_), Err(error)) | (Err(error), _) => error.to_string(),
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toast_format::disk::BlockNumber;
    use toast_format::disk::{ValueId, ValueIdType};

    fn pointer(raw: i32, ext_info: u32) -> ToastPointer {
        let value_id = ValueId(7);
        let toast_relation = Oid(9);
        let id_type = ValueIdType::Oid;
        ToastPointer { raw_size_with_header: raw, ext_info, value_id, toast_relation, id_type }
    }

    fn chunk(seq: i32, size: u32) -> ChunkSeen {
        let tid = ItemPointer { block: BlockNumber(0), item: seq.unsigned_abs() as u16 + 1 };
        ChunkSeen { tid, seq, form: ChunkForm::Plain, size, fate: Fate::Committed }
    }

    fn code(chunks: &[ChunkSeen]) -> Option<Code> {
        // 3 chunks: 1996, 1996, 8
        check_chunks(&pointer(4004, 4000), chunks, PageSize::DEFAULT).err().map(|d| d.code)
    }

    #[test]
    fn chunks_that_are_whole_are_in_order() {
        let a = chunk(0, 1996);
        let b = chunk(1, 1996);
        let c = chunk(2, 8);
        let dead = |of: ChunkSeen| ChunkSeen { fate: Fate::NotCommitted, ..of };
        let unknown = |of: ChunkSeen| ChunkSeen { fate: Fate::Unknown, ..of };
        assert_eq!(code(&[c, a, b]), None);
        assert_eq!(code(&[c, a, b, dead(b)]), None);
        assert_eq!(code(&[c, a, unknown(b), b]), None);
        assert_eq!(code(&[unknown(a), unknown(b), unknown(c)]), None);
        assert_eq!(code(&[]), Some(Code::NoChunks));
        assert_eq!(code(&[dead(a)]), Some(Code::NoChunks));
        assert_eq!(code(&[a, c]), Some(Code::ChunkMissing));
        assert_eq!(code(&[b, c]), Some(Code::ChunkMissing));
        assert_eq!(code(&[a, b]), Some(Code::ChunksEnd));
        assert_eq!(code(&[a, b, b, c]), Some(Code::ChunkTwice));
        assert_eq!(code(&[a, b, c, chunk(3, 8)]), Some(Code::ChunkNumber));
        assert_eq!(code(&[chunk(-1, 8), a, b, c]), Some(Code::ChunkNumber));
        assert_eq!(code(&[a, chunk(1, 1995), c]), Some(Code::ChunkSize));
        assert_eq!(code(&[a, ChunkSeen { form: ChunkForm::Null, ..b }, c]), Some(Code::ChunkNull));
        let form = ChunkForm::NotPlain;
        assert_eq!(code(&[a, ChunkSeen { form, ..b }, c]), Some(Code::ChunkForm));
    }

    #[test]
    fn pointers_are_judged_by_themselves() {
        let code = |pointer: ToastPointer, toast| check_pointer(&pointer, toast).map(|d| d.code);
        let own = Toast::Relation(Oid(9));
        assert_eq!(code(pointer(4004, 4000), own), None);
        assert_eq!(code(pointer(4004, 3000 | 1 << 30), own), None);
        assert_eq!(code(pointer(-5, 4000), own), Some(Code::RawSize));
        assert_eq!(code(pointer(0x4000_0000, 4000), own), Some(Code::RawSize));
        assert_eq!(code(pointer(4004, 4001), own), Some(Code::StoredSize));
        assert_eq!(code(pointer(4004, 0), own), Some(Code::StoredSize));
        assert_eq!(code(pointer(4004, 3000 | 2 << 30), own), Some(Code::Method));
        assert_eq!(code(pointer(4004, 4000 | 1 << 30), own), Some(Code::Method));
        assert_eq!(code(pointer(4004, 4000), Toast::None), Some(Code::ToastRelation));
        assert_eq!(code(pointer(4004, 4000), Toast::Unknown), None);
        let nowhere = ToastPointer { toast_relation: Oid(0), ..pointer(4004, 4000) };
        assert_eq!(code(nowhere, Toast::Unknown), Some(Code::ToastRelation));
        let zero = ToastPointer { value_id: ValueId(0), ..pointer(4004, 4000) };
        assert_eq!(code(zero, own), Some(Code::ValueId));
    }

    #[test]
    fn compressed_values_are_decompressed_to_their_size() {
        let raw = b"one value and another, ".repeat(40);
        let stream = datum::Compressor::new().compress(Method::Pglz, &raw).unwrap().to_vec();
        let info = raw.len() as u32;
        let stored = [&info.to_le_bytes()[..], &stream].concat();
        let ours = pointer(raw.len() as i32 + 4, stored.len() as u32);
        let content = |pointer, stored: &[u8]| {
            external_content(&pointer, stored.into(), ByteOrder::Little)
                .map(Cow::into_owned)
                .map_err(|damage| damage.code)
        };
        assert_eq!(content(ours, &stored).as_deref(), Ok(&raw[..]));
        assert_eq!(content(pointer(900, 50), &stored), Err(Code::CompressionHeader));
        let mut other = stored.clone();
        other[3] |= 0x40;
        assert_eq!(content(ours, &other), Err(Code::CompressionHeader));
        let cut = &stored[..stored.len() - 1];
        assert_eq!(content(ours, cut), Err(Code::ExternalCompressed));
        assert_eq!(inline_content(info, &stream).as_deref(), Ok(&raw[..]));
        let code = |info| inline_content(info, &stream).map_err(|damage| damage.code);
        assert_eq!(code(info + 1), Err(Code::InlineCompressed));
        // the server cuts the last match off
        assert!(datum::decompress(Method::Pglz, raw.len() - 1, &stream).is_ok());
        assert_eq!(code(info - 1), Err(Code::InlineCompressed));
        assert_eq!(code(info | 2 << 30), Err(Code::Method));
    }
}
