//! Values of pluggable toasters for `--salvage`: where their chunks are to be looked for, and what appendable ones have
//! (pure).

use toast_format::disk::{ByteOrder, CustomPointer, ItemPointer, PageSize};
use toast_format::model::Toasters;
use toast_format::model::toaster::bytea::{ByteaPointer, VERSION_SIZE, slice_size};
use toast_format::model::toaster::catalog::Handler;
use toast_format::model::toaster::describe::{Description, describe};

/// A part of a value that stands in the TOAST relation: where its chunks are to be looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChunkPlace {
    /// All chunks with this ID.
    Value(u64),
    /// The chunks at these addresses.
    At(Vec<ItemPointer>),
}

/// What `bytea_toaster`'s pointer says of the value's chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Appendable {
    /// Bytes of the value that are in chunks.
    pub(super) size: u32,
    pub(super) version: u64,
    /// Bytes in the pointer, behind those in chunks.
    pub(super) tail: Vec<u8>,
}

/// A value of a pluggable toaster, as its pointer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CustomValue {
    /// All bytes of the pointer in the row.
    pub(super) datum: Vec<u8>,
    pub(super) elsewhere: Vec<ChunkPlace>,
    pub(super) raw_size: Option<u64>,
    pub(super) chunks_expected: Option<u32>,
    pub(super) appendable: Option<Appendable>,
}

impl CustomValue {
    pub(super) fn new(pointer: &CustomPointer<'_>, page: PageSize) -> CustomValue {
        let toasters = Toasters::by_bytes();
        let description = describe(pointer, &toasters, page).ok();
        let parts = description.as_ref().map_or(&[][..], |of| of.parts.as_slice());
        let elsewhere = parts.iter().filter_map(|part| match part.value {
            Some(value) => Some(ChunkPlace::Value(value.value_id.0)),
            None if part.tids.is_empty() => None,
            None => Some(ChunkPlace::At(part.tids.clone())),
        });
        let bytea = (toasters.writer(pointer).handler == Handler::Bytea)
            .then(|| ByteaPointer::parse(pointer).ok())
            .flatten();
        let count = description.as_ref().and_then(Description::chunks);
        CustomValue {
            datum: pointer.datum.to_vec(),
            elsewhere: elsewhere.collect(),
            raw_size: description.as_ref().and_then(|of| of.raw_size),
            chunks_expected: count.and_then(|count| u32::try_from(count).ok()),
            appendable: bytea.map(|bytea| Appendable {
                size: bytea.external.stored_size(),
                version: bytea.version,
                tail: bytea.tail.to_vec(),
            }),
        }
    }

    /// The IDs of its values in the TOAST relation.
    pub(super) fn value_ids(&self) -> impl Iterator<Item = u64> {
        self.elsewhere.iter().filter_map(|part| match part {
            ChunkPlace::Value(id) => Some(*id),
            ChunkPlace::At(_) => None,
        })
    }
}

impl Appendable {
    /// The bytes of the newest version of each chunk that the pointer may mean, and of the tail, with their offsets.
    /// `chunks`: the number of each, whether it is known to be the value's, and its data; in order.
    pub(super) fn content(
        &self,
        chunks: &[(i32, bool, &[u8])],
        page: PageSize,
        order: ByteOrder,
    ) -> Vec<(u64, Vec<u8>)> {
        let slice = slice_size(page);
        let version = |data: &[u8]| {
            let [first, second] = [order.u32(data, 0)?, order.u32(data, 4)?].map(u64::from);
            Some(match order {
                ByteOrder::Little => second << 32 | first,
                ByteOrder::Big => first << 32 | second,
            })
        };
        let mut parts = Vec::new();
        for own in chunks.chunk_by(|a, b| a.0 == b.0) {
            let known = own.iter().filter_map(|(seq, is_sure, data)| {
                let version = version(data).filter(|version| *version <= self.version)?;
                Some((*is_sure, version, *seq, *data))
            });
            let Some((_, _, seq, data)) = known.max_by_key(|of| (of.0, of.1)) else { continue };
            let start = u32::try_from(seq).ok().and_then(|seq| seq.checked_mul(slice));
            let Some(start) = start.filter(|start| *start < self.size) else { continue };
            let data = data.get(VERSION_SIZE as usize..).unwrap_or_default();
            let room = (self.size - start).min(slice) as usize;
            add(&mut parts, u64::from(start), data.get(..room).unwrap_or(data));
        }
        add(&mut parts, u64::from(self.size), &self.tail);
        parts
    }
}

/// Adds bytes behind those that end there, or by themselves.
fn add(parts: &mut Vec<(u64, Vec<u8>)>, at: u64, bytes: &[u8]) {
    match parts.last_mut().filter(|(start, last)| start + last.len() as u64 == at) {
        Some((_, last)) => last.extend_from_slice(bytes),
        None if bytes.is_empty() => {}
        None => parts.push((at, bytes.to_vec())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_an_appendable_value_keep_their_places() {
        let slice = slice_size(PageSize::DEFAULT) as usize;
        let size = 3 * slice + 10;
        let appendable = Appendable { size: size as u32, version: 5, tail: b"tail".to_vec() };
        let chunk = |version: u64, byte: u8, length: usize| {
            [&version.to_le_bytes()[..], &vec![byte; length]].concat()
        };
        let [a, b, c] = [b'a', b'b', b'c'].map(|byte| chunk(1, byte, slice));
        let d = chunk(5, b'd', 10);
        let newer = chunk(6, b'x', 20);
        let older = chunk(4, b'y', 3);
        let of = |chunks: &[(i32, bool, &[u8])]| {
            let parts = appendable.content(chunks, PageSize::DEFAULT, ByteOrder::Little);
            parts
                .iter()
                .map(|(at, bytes)| (*at as usize, bytes.len(), bytes[0]))
                .collect::<Vec<_>>()
        };
        let all = [(0, true, &a[..]), (1, true, &b), (2, true, &c), (3, true, &d)];
        assert_eq!(of(&all), [(0, size + 4, b'a')]);
        // newer than the pointer, older, numbers that it cannot have, and a chunk that is gone
        let some = [
            (-1, true, &a[..]),
            (0, true, &a),
            (1, true, &b),
            (3, true, &newer),
            (3, true, &d),
            (3, true, &older),
            (4, true, &a),
            (i32::MAX, true, &a),
        ];
        assert_eq!(of(&some), [(0, 2 * slice, b'a'), (3 * slice, 14, b'd')]);
        // a deleted chunk is used if there is no other
        assert_eq!(of(&[(0, false, &b), (0, true, &a)])[0], (0, slice, b'a'));
        assert_eq!(of(&[(0, false, &b)])[0], (0, slice, b'b'));
    }
}
