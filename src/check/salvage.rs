//! What is left of a damaged value, and the SQL that makes its row readable again (pure).

use super::code::Code;
use super::subject::Subject;
use crate::codec::{Method, datum};
use crate::disk::desc::{Attribute, Length, TupleDesc};
use crate::disk::layout::PageSize;
use crate::disk::page::{Page, PageState};
use crate::disk::pointer::ToastPointer;
use crate::disk::tuple::HeapTuple;
use crate::disk::types::is_text_like;
use crate::disk::varlena::{Varlena, tc_method, tc_raw_size};
use crate::disk::walk::{Datum, Walk};
use crate::disk::{ByteOrder, ItemPointer, Oid};
use crate::server::sql::{quote_identifier, quote_literal};

/// Text longer than this is no guard: the statement is for people.
const LONGEST_GUARD: usize = 60;

/// A chunk that could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// `chunk_seq`.
    pub seq: i32,
    /// `chunk_data`.
    pub data: Vec<u8>,
}

/// What is left of a value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Saved {
    /// `chunk_id`, of a value out of line.
    pub value_id: Option<u32>,
    /// Bytes of the content, as its header or pointer says.
    pub raw_size: Option<u64>,
    /// Bytes stored, likewise.
    pub stored_size: Option<u64>,
    /// How they are compressed.
    pub method: Option<&'static str>,
    /// Chunks that the pointer asks for.
    pub chunks_expected: Option<u32>,
    /// The numbers of those that could be read.
    pub chunks_found: Vec<i32>,
    /// Stored bytes that could be read, by their offsets among those of the value.
    pub stored: Vec<(u64, Vec<u8>)>,
    /// The content's bytes, by their offsets in it.
    pub content: Vec<(u64, Vec<u8>)>,
    /// Why nothing was saved, where it is not that nothing was left.
    pub note: Option<&'static str>,
}

impl Saved {
    /// Bytes of the content that could be read.
    pub fn content_bytes(&self) -> u64 {
        self.content.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }
}

/// Whether a value with such a finding may have something left, and can be set to NULL.
pub fn can_be_saved(code: Code) -> bool {
    !matches!(code, Code::PastEnd | Code::Varlena | Code::LeftOver | Code::Tag | Code::HasExternal)
}

/// What is left of a value in the row.
pub fn inline(value: &Varlena<'_>) -> Saved {
    match value {
        Varlena::Compressed { tc_info, stream } => Saved {
            raw_size: Some(u64::from(tc_raw_size(*tc_info))),
            stored_size: Some(stream.len() as u64),
            method: tc_method(*tc_info).map(Method::name),
            content: vec![(0, up_to_damage(tc_method(*tc_info), tc_raw_size(*tc_info), stream))],
            stored: vec![(0, stream.to_vec())],
            ..Saved::default()
        },
        Varlena::Custom(_) => {
            Saved { note: Some("values of pluggable toasters are not saved"), ..Saved::default() }
        }
        _ => {
            let content = value.inline_content().unwrap_or(&[]);
            Saved {
                raw_size: Some(content.len() as u64),
                content: vec![(0, content.to_vec())],
                ..Saved::default()
            }
        }
    }
}

/// What is left of a value out of line, by the chunks that could be read.
pub fn external(
    pointer: &ToastPointer,
    mut pieces: Vec<Piece>,
    page: PageSize,
    order: ByteOrder,
) -> Saved {
    let limit = u64::from(page.toast_max_chunk_size());
    pieces.sort_by_key(|piece| piece.seq);
    pieces.dedup_by_key(|piece| piece.seq);
    let mut saved = Saved {
        value_id: Some(pointer.value_id.0),
        raw_size: Some(u64::from(pointer.raw_size())),
        stored_size: Some(u64::from(pointer.stored_size())),
        method: pointer.method().map(Method::name),
        chunks_expected: Some(page.chunks(pointer.stored_size())),
        chunks_found: pieces.iter().map(|piece| piece.seq).collect(),
        ..Saved::default()
    };
    let placed = pieces.into_iter().filter_map(|piece| {
        let seq = u64::try_from(piece.seq).ok()?;
        Some((seq * limit, piece.data))
    });
    saved.stored = placed.collect();
    if pointer.is_compressed() {
        // what stands behind the first gap cannot be told
        let mut joined = Vec::new();
        for (offset, bytes) in &saved.stored {
            if *offset != joined.len() as u64 {
                break;
            }
            joined.extend_from_slice(bytes);
        }
        let method = pointer.method().or_else(|| order.u32(&joined, 0).and_then(tc_method));
        let stream = joined.get(4..).unwrap_or(&[]);
        saved.content = vec![(0, up_to_damage(method, pointer.raw_size(), stream))];
    } else {
        saved.content.clone_from(&saved.stored);
    }
    saved
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
    let (mut good, mut bad) = (0, most);
    while good + 1 < bad {
        let middle = good + (bad - good) / 2;
        if prefix(middle).is_some() { good = middle } else { bad = middle }
    }
    prefix(good).unwrap_or_default()
}

/// A value of a tuple that a finding names.
pub struct AtPlace<'p> {
    /// Its tuple.
    pub tuple: HeapTuple<'p>,
    /// The value.
    pub value: Varlena<'p>,
    ctid: ItemPointer,
    column: &'p str,
    guard: Vec<String>,
}

impl AtPlace<'_> {
    /// The statement that gives the value up. `table` is quoted.
    pub fn statement(&self, table: &str) -> String {
        set_null(table, self.column, self.ctid, &self.tuple, &self.guard)
    }
}

/// The value of `column` in the tuple at `ctid`, whose page is `bytes`.
pub fn value_at<'p>(
    bytes: &'p [u8],
    subject: &Subject<'p>,
    ctid: ItemPointer,
    column: &'p str,
) -> Option<AtPlace<'p>> {
    let Ok(PageState::Used(page)) = Page::parse(bytes) else { return None };
    let pointer = page.line_pointer(ctid.item)?;
    let order = page.byte_order();
    let tuple = HeapTuple::parse(page.tuple_bytes(pointer).ok()?, order).ok()?;
    let mut walk = Walk::with_flavor(&tuple, subject.desc, subject.flavor);
    while let Some(Ok((attribute, datum))) = walk.next() {
        if attribute.name == column && !attribute.dropped {
            let Datum::Varlena(value) = datum else { return None };
            let guard = guard(&tuple, subject.desc, walk.index() - 1);
            return Some(AtPlace { tuple, value, ctid, column, guard });
        }
    }
    None
}

/// Conditions that the other columns of a row meet, as SQL, as far as their values can be told.
fn guard(tuple: &HeapTuple<'_>, desc: &TupleDesc, damaged: usize) -> Vec<String> {
    let mut conditions = Vec::new();
    let mut walk = Walk::new(tuple, desc);
    while let Some(Ok((column, datum))) = walk.next() {
        let index = walk.index() - 1;
        if index == damaged || column.dropped {
            continue;
        }
        let name = quote_identifier(&column.name);
        match datum {
            Datum::Null => conditions.push(format!("{name} IS NULL")),
            Datum::Fixed(bytes) => {
                if let Some(text) = fixed(column, bytes, tuple.order) {
                    conditions.push(format!("{name}::text = {}", quote_literal(&text)));
                }
            }
            Datum::Varlena(value) => {
                let content = value.inline_content().filter(|_| is_text_like(column.type_oid));
                let text = content.and_then(|content| std::str::from_utf8(content).ok());
                if let Some(text) = text.filter(|text| text.len() <= LONGEST_GUARD)
                    && !text.contains('\0')
                    && column.type_oid != BPCHAR
                {
                    conditions.push(format!("{name}::text = {}", quote_literal(text)));
                }
            }
            Datum::Missing | Datum::CString(_) => {}
        }
    }
    conditions
}

/// `bpchar`, whose cast to text drops blanks.
const BPCHAR: Oid = Oid(1042);

/// The text of a value of fixed length, for the types that people know rows by.
fn fixed(column: &Attribute, bytes: &[u8], order: ByteOrder) -> Option<String> {
    if column.length != Length::Fixed(u16::try_from(bytes.len()).ok()?) {
        return None;
    }
    Some(match column.type_oid.0 {
        // bool
        16 => (*bytes.first()? != 0).to_string(),
        // int8
        20 => {
            let (first, second) = (order.u32(bytes, 0)?, order.u32(bytes, 4)?);
            let (high, low) = match order {
                ByteOrder::Little => (second, first),
                ByteOrder::Big => (first, second),
            };
            ((u64::from(high) << 32 | u64::from(low)) as i64).to_string()
        }
        // int2, int4, oid
        21 => (order.u16(bytes, 0)? as i16).to_string(),
        23 => (order.u32(bytes, 0)? as i32).to_string(),
        26 => order.u32(bytes, 0)?.to_string(),
        // uuid
        2950 => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let parts = [hex.get(..8)?, hex.get(8..12)?, hex.get(12..16)?, hex.get(16..20)?];
            format!("{}-{}", parts.join("-"), hex.get(20..)?)
        }
        _ => return None,
    })
}

/// The statement that gives a value up so that its row can be read. `table` is quoted.
fn set_null(
    table: &str,
    column: &str,
    ctid: ItemPointer,
    tuple: &HeapTuple<'_>,
    guard: &[String],
) -> String {
    let mut sql = format!(
        "UPDATE ONLY {table} SET {} = NULL\n WHERE ctid = '{ctid}' AND xmin = '{}'",
        quote_identifier(column),
        tuple.xmin.0
    );
    for condition in guard {
        sql.push_str("\n   AND ");
        sql.push_str(condition);
    }
    sql.push_str(";\n");
    sql
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{BlockNumber, TransactionId};
    use crate::offline::columns::parse_list;

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
    fn chunks_keep_their_places() {
        let pointer = ToastPointer {
            raw_size_with_header: 5004,
            ext_info: 5000,
            value_id: Oid(7),
            toast_relation: Oid(8),
        };
        let piece = |seq, byte, length| Piece { seq, data: vec![byte; length] };
        let pieces = vec![piece(2, b'c', 1008), piece(0, b'a', 1996)];
        let saved = external(&pointer, pieces, PageSize::DEFAULT, ByteOrder::Little);
        assert_eq!((saved.chunks_expected, saved.chunks_found.as_slice()), (Some(3), &[0, 2][..]));
        assert_eq!(saved.content_bytes(), 3004);
        assert_eq!(saved.content.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 3992]);
    }

    #[test]
    fn the_statement_names_the_row_by_its_other_columns() {
        let desc = parse_list("id int4, ok bool, \"na\"\"me\" text, doc text, gone text").unwrap();
        // -7, true, 'it''s', a pointer
        let mut data = vec![0xF9, 0xFF, 0xFF, 0xFF, 1, 0x0B];
        data.extend_from_slice(b"it's");
        data.extend_from_slice(&[1, 18]);
        data.extend_from_slice(&[0; 16]);
        let bits = [0b0_1111];
        let tuple = HeapTuple {
            xmin: TransactionId(742),
            xmax: TransactionId(0),
            ctid: ItemPointer::default(),
            infomask: 1,
            infomask2: 5,
            null_bitmap: Some(&bits),
            data: &data,
            data_offset: 24,
            order: ByteOrder::Little,
        };
        let conditions = guard(&tuple, &desc, 3);
        let ctid = ItemPointer { block: BlockNumber(3), item: 5 };
        let sql = set_null("\"public\".\"t\"", "doc", ctid, &tuple, &conditions);
        insta::assert_snapshot!(sql, @r#"
        UPDATE ONLY "public"."t" SET "doc" = NULL
         WHERE ctid = '(3,5)' AND xmin = '742'
           AND "id"::text = '-7'
           AND "ok"::text = 'true'
           AND "na""me"::text = 'it''s'
           AND "gone" IS NULL;
        "#);
    }
}
