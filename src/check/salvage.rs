//! What is left of a damaged value (pure).

use super::code::Code;
use crate::codec::{Method, datum};
use crate::disk::ByteOrder;
use crate::disk::layout::PageSize;
use crate::disk::pointer::ToastPointer;
use crate::disk::varlena::{Varlena, tc_method, tc_raw_size};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Oid;

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
}
