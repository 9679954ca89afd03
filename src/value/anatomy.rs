//! Every detail of one value: its pointer, its chunks and their locations, the first bytes of its content, and what
//! it costs to read it.

use std::collections::BTreeSet;
use std::io;

use serde::Serialize;

use super::contents::{Contents, FirstBytes};
use super::rows::ValueRow;
use crate::server::catalog::VIRTUAL;
use crate::server::similar::similar;
use toast_format::codec::Method;
use toast_format::disk::page::LinePointerState;
use toast_format::disk::value_text::hex;
use toast_format::disk::varlena::{tc_method, tc_raw_size};
use toast_format::disk::{
    CustomFlavor, Datum, HeapTuple, ItemPointer, Oid, Page, PageState, TupleDesc, ValueId, Varlena,
    Walk,
};
use toast_format::heap::scan::TupleValue;
use toast_format::model::StoredValue;
use toast_format::model::toaster::chunks::{Chunk, ChunkData, ChunkStore, Fate};
use toast_format::model::toaster::describe::{PointerKind, describe};
use toast_format::model::toaster::error::ToastError;

/// Bytes of content that are shown.
const FIRST_BYTES: usize = 64;
const NOT_COMMITTED: &str = "not committed";

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChunkAnatomy {
    #[serde(skip)]
    tid: ItemPointer,
    pub seq: i32,
    /// Its location in the TOAST relation.
    pub ctid: String,
    /// Bytes of `chunk_data`, without its header.
    pub bytes: u64,
    /// The method, where the chunk is compressed on its own.
    pub method: Option<&'static str>,
    /// The state of the transaction that inserted it: `committed`, `not committed`, `unknown`.
    pub inserted: &'static str,
}

/// A part of a value that is out of line, or compressed in the pointer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartAnatomy {
    /// How the row refers to it.
    pub kind: &'static str,
    /// `chunk_id`; null if chunks are found only by their addresses.
    pub value_id: Option<u64>,
    /// OID of the TOAST relation.
    pub toast_relation: Option<u32>,
    /// Bytes when reassembled and decompressed.
    pub raw_size: Option<u64>,
    /// Its chunks; for an appendable value, all versions that still exist.
    pub chunks: Vec<ChunkAnatomy>,
    /// What it costs to read a key or element of it.
    pub cost_to_read: &'static str,
    /// What it costs to append to it.
    pub cost_to_append: &'static str,
}

/// What a read of the whole value visits in addition to its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ReadCost {
    pub chunks: u64,
    /// Different pages of the TOAST relation that hold them.
    pub pages: u64,
    /// Bytes of chunk data.
    pub bytes: u64,
}

/// Everything about one value. Sizes are bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Anatomy {
    /// What a list of values says of it too.
    #[serde(flatten)]
    pub row: ValueRow,
    #[serde(rename = "type")]
    pub type_name: String,
    /// The bytes of the pointer in the row.
    pub pointer_size: u64,
    /// The pointer's bytes, if it is a pluggable toaster's.
    pub pointer: Option<String>,
    /// The parts that are out of line or compressed.
    pub parts: Vec<PartAnatomy>,
    /// What a read of all of it visits.
    pub cost: ReadCost,
    /// What it costs to read a key or element.
    pub cost_to_read: &'static str,
    /// What it costs to append.
    pub cost_to_append: &'static str,
    /// The first bytes of the content or, if there is none, of the text.
    pub first_bytes: Option<String>,
    /// The text's first characters.
    pub first_text: Option<String>,
    /// The beginning of its text in the encoding of the database.
    #[serde(skip)]
    pub text_bytes: Vec<u8>,
    pub problems: Vec<String>,
}

/// Describes a value in detail.
fn describe_value<S: ChunkStore>(
    relation: &str,
    seen: &TupleValue<'_>,
    contents: &mut Contents<S>,
) -> io::Result<Anatomy> {
    let stored = &seen.stored;
    let (cost_to_read, cost_to_append) = costs(stored);
    let mut anatomy = Anatomy {
        row: ValueRow::in_place(relation, seen),
        type_name: seen.column.type_name.clone(),
        pointer_size: stored.pointer_size,
        pointer: None,
        parts: Vec::new(),
        cost: ReadCost::default(),
        cost_to_read,
        cost_to_append,
        first_bytes: None,
        first_text: None,
        text_bytes: Vec::new(),
        problems: Vec::new(),
    };
    if let Err(error) = anatomy.parts(seen, contents) {
        anatomy.problems.push(error.to_string());
    }
    match anatomy.content(seen, contents) {
        Ok(written) => written?,
        Err(error) => {
            let problem = error.to_string();
            if !anatomy.problems.contains(&problem) {
                anatomy.problems.push(problem);
            }
        }
    }
    Ok(anatomy)
}

/// Where to look for a value.
#[derive(Debug, Clone, Copy)]
pub struct DatumPlace<'a> {
    pub relation: &'a str,
    pub desc: &'a TupleDesc,
    /// The layout of custom pointers.
    pub flavor: CustomFlavor,
    pub column: &'a str,
    pub ctid: ItemPointer,
}

/// Describes the value of a tuple on `page`, dead or alive, in detail, and writes it to a file if `contents` does so.
///
/// # Errors
/// Why there is no such value; inside, why its file could not be written.
pub fn on_page<S: ChunkStore>(
    bytes: &[u8],
    wanted: &DatumPlace<'_>,
    contents: &mut Contents<S>,
) -> Result<io::Result<Anatomy>, String> {
    let DatumPlace { relation, desc, flavor, column, ctid } = *wanted;
    let page = match Page::parse(bytes) {
        Ok(PageState::Used(page)) => page,
        Ok(PageState::New) => return Err(format!("block {} was never written", ctid.block)),
        Err(error) => return Err(format!("block {}: {error}", ctid.block)),
    };
    let at = |what: String| format!("block {}, item {}: {what}", ctid.block, ctid.item);
    let find = |wanted: u16| page.line_pointers().find(|(number, _)| *number == wanted);
    let (_, mut item) =
        find(ctid.item).ok_or_else(|| at("the line pointer does not exist".into()))?;
    if item.state == LinePointerState::Redirect {
        (_, item) = find(item.offset).ok_or_else(|| {
            at(format!("redirected to item {}, which does not exist", item.offset))
        })?;
    }
    let tuple = match item.state {
        LinePointerState::Normal => page.tuple_bytes(item).map_err(|e| at(e.to_string()))?,
        LinePointerState::Redirect => return Err(at("redirected twice".into())),
        LinePointerState::Unused => return Err(at("unused line pointer".into())),
        LinePointerState::Dead => return Err(at("dead line pointer".into())),
    };
    let order = page.byte_order();
    let tuple = HeapTuple::parse(tuple, order).map_err(|e| at(e.to_string()))?;
    for (index, walked) in Walk::with_flavor(&tuple, desc, flavor).enumerate() {
        let (attribute, datum) = walked.map_err(|e| at(format!("byte {}: {e}", e.byte)))?;
        if attribute.is_virtual && attribute.name == column {
            return Err(format!("column \"{column}\" {VIRTUAL}"));
        }
        if !attribute.dropped && attribute.name == column {
            let stored = StoredValue::new(&datum, attribute, contents.page);
            let block_known = true;
            let column = attribute;
            let seen = TupleValue { ctid, block_known, index, column, datum, stored, order };
            return Ok(describe_value(relation, &seen, contents));
        }
    }
    let names = desc.attributes.iter().filter(|attribute| !attribute.dropped);
    let names: Vec<String> = names.map(|attribute| attribute.name.clone()).collect();
    Err(match similar(column, &names).first() {
        Some(near) => format!("there is no column \"{column}\"; perhaps you meant {near}"),
        None => format!("there is no column \"{column}\""),
    })
}

fn costs(stored: &StoredValue) -> (&'static str, &'static str) {
    match &stored.custom {
        Some(custom) => (custom.kind.cost_to_read(), custom.kind.cost_to_append()),
        None if stored.form.is_external() => {
            (PointerKind::Ordinary.cost_to_read(), PointerKind::Ordinary.cost_to_append())
        }
        None => ("only the row", "the row is written again"),
    }
}

impl Anatomy {
    fn parts<S: ChunkStore>(
        &mut self,
        seen: &TupleValue<'_>,
        contents: &mut Contents<S>,
    ) -> Result<(), ToastError> {
        let Contents { store, toasters, page, .. } = contents;
        let mut blocks = BTreeSet::new();
        match seen.datum {
            Datum::Varlena(Varlena::External(pointer)) => {
                let id = pointer.value_id;
                let relation = pointer.toast_relation;
                let mut chunks = Vec::new();
                store.each_chunk(relation, id, &mut |chunk| chunks.push(chunk_anatomy(&chunk)))?;
                let raw_size = Some(u64::from(pointer.raw_size()));
                let kind = PointerKind::Ordinary;
                self.part(kind, Some((id, relation)), raw_size, chunks, &mut blocks);
            }
            Datum::Varlena(Varlena::Custom(pointer)) => {
                self.pointer = Some(hex(pointer.datum));
                let description = describe(&pointer, toasters, *page)?;
                self.row.toaster = Some(description.toaster.name);
                for part in description.parts {
                    let mut chunks = Vec::new();
                    match (part.value, part.relation) {
                        (_, Some(relation)) if !part.tids.is_empty() => {
                            for &tid in &part.tids {
                                let chunk = store.chunk_at(relation, tid)?;
                                chunks.extend(chunk.as_ref().map(chunk_anatomy));
                            }
                        }
                        (Some(value), _) => {
                            let own = store.chunks(value.relation, value.value_id)?;
                            chunks.extend(own.iter().map(chunk_anatomy));
                        }
                        _ => {}
                    }
                    let value = part.value.map(|value| (value.value_id, value.relation));
                    let value =
                        value.or(part.relation.map(|relation| (ValueId::default(), relation)));
                    self.part(part.kind, value, part.raw_size, chunks, &mut blocks);
                }
            }
            _ => {}
        }
        self.cost.pages = blocks.len() as u64;
        Ok(())
    }

    fn part(
        &mut self,
        kind: PointerKind,
        value: Option<(ValueId, Oid)>,
        raw_size: Option<u64>,
        mut chunks: Vec<ChunkAnatomy>,
        blocks: &mut BTreeSet<u32>,
    ) {
        // addresses are in the order of the value; chunks by id come in any order
        if value.is_some_and(|(id, _)| id.0 != 0) {
            chunks.sort_by_key(|chunk| (chunk.seq, chunk.tid));
        }
        for chunk in chunks.iter().filter(|chunk| chunk.inserted != NOT_COMMITTED) {
            blocks.insert(chunk.tid.block.0);
            self.cost.chunks += 1;
            self.cost.bytes += chunk.bytes;
        }
        self.parts.push(PartAnatomy {
            kind: kind.name(),
            value_id: value.map(|(id, _)| id.0).filter(|&id| id != 0),
            toast_relation: value.map(|(_, relation)| relation.0),
            raw_size,
            chunks,
            cost_to_read: kind.cost_to_read(),
            cost_to_append: kind.cost_to_append(),
        });
    }

    /// Shows the first characters of its text.
    pub(crate) fn set_first_text(&mut self, text: &str) {
        self.first_text = Some(text.chars().take(FIRST_BYTES).collect());
    }

    fn content<S: ChunkStore>(
        &mut self,
        seen: &TupleValue<'_>,
        contents: &mut Contents<S>,
    ) -> Result<io::Result<()>, ToastError> {
        if let Datum::Varlena(Varlena::Compressed { tc_info, .. }) = seen.datum {
            self.row.raw_size = Some(u64::from(tc_raw_size(tc_info)));
            self.row.method = tc_method(tc_info).map(Method::name);
        }
        let relation = self.row.relation.clone();
        let mut first = FirstBytes::default();
        let written = contents.put_together(&relation, &mut self.row, seen, &mut first);
        self.row.raw_size = first.raw_size.or(self.row.raw_size);
        let bytes = first.content.as_ref().or(first.text.as_ref());
        self.first_bytes = bytes.map(|bytes| first_hex(bytes));
        if let Some(text) = &first.text {
            self.text(text);
        }
        written
    }

    fn text(&mut self, beginning: &[u8]) {
        self.text_bytes = beginning.to_vec();
        self.set_first_text(&String::from_utf8_lossy(beginning));
    }
}

/// The whole characters at the beginning of a text that may be cut, as many as are shown, in this encoding of a server
/// that is not UTF8.
pub(crate) fn first_characters<'a>(first: &'a [u8], encoding: &str) -> &'a [u8] {
    let mut end = 0;
    for _ in 0..FIRST_BYTES {
        let Some(&byte) = first.get(end) else { break };
        let next = end + character_bytes(encoding, byte);
        if next > first.len() {
            break;
        }
        end = next;
    }
    first.get(..end).unwrap_or(first)
}

/// The size of a character by its first byte (`pg_wchar_table`, wchar.c).
fn character_bytes(encoding: &str, first: u8) -> usize {
    match (encoding, first) {
        (_, 0..=0x7f) => 1,
        ("EUC_CN", _) => 2,
        ("EUC_TW", 0x8e) => 4,
        ("EUC_JP" | "EUC_JIS_2004" | "EUC_KR" | "EUC_TW" | "JOHAB", 0x8f) => 3,
        ("EUC_JP" | "EUC_JIS_2004" | "EUC_KR" | "EUC_TW" | "JOHAB", _) => 2,
        ("MULE_INTERNAL", 0x81..=0x8d) => 2,
        ("MULE_INTERNAL", 0x90..=0x9b) => 3,
        ("MULE_INTERNAL", 0x9c..=0x9d) => 4,
        _ => 1,
    }
}

fn first_hex(bytes: &[u8]) -> String {
    hex(bytes.get(..FIRST_BYTES).unwrap_or(bytes))
}

fn chunk_anatomy(chunk: &Chunk) -> ChunkAnatomy {
    ChunkAnatomy {
        tid: chunk.tid,
        seq: chunk.seq,
        ctid: chunk.tid.to_string(),
        bytes: chunk.stored_size,
        method: match &chunk.data {
            ChunkData::Plain(_) => None,
            ChunkData::Compressed { tc_info, .. } => {
                Some(tc_method(*tc_info).map_or("unknown", Method::name))
            }
        },
        inserted: match chunk.inserted {
            Fate::Committed => "committed",
            Fate::NotCommitted => NOT_COMMITTED,
            Fate::Unknown => "unknown",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_not_cut() {
        // 64 characters of two bytes, some of three, and one that is cut
        let kanji = [0xc6, 0xfc].repeat(200);
        assert_eq!(first_characters(&kanji, "EUC_JP").len(), 128);
        assert_eq!(first_characters(&kanji, "LATIN1").len(), 64);
        let three = [&[b'a', 0x8e, 0xb1, 0x8f, 0xb0, 0xa1][..], &kanji].concat();
        assert_eq!(first_characters(&three, "EUC_JP").len(), 1 + 2 + 3 + 61 * 2);
        assert_eq!(first_characters(&three, "EUC_TW").len(), 1 + 4 + 62 * 2);
        assert_eq!(first_characters(&kanji[..7], "EUC_CN"), &kanji[..6]);
        assert_eq!(first_characters(b"", "EUC_JP"), b"");
    }
}
