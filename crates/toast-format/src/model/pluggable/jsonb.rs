//! How `jsonb_toaster`, with its default settings, splits a document (pure).
//!
//! * In an object, the longest nested containers are compressed (with pglz, whatever the column's method) one after
//!   another until the rest fits in the row. If that is not sufficient, they are moved out, longest first, and
//!   compressed if that saves space. The last nested object that is too long is itself split if there is enough room.
//!   Keys, strings and numbers stay.
//! * An array is cut into chunks of whole elements, each an array of its own, stored uncompressed and found without the
//!   index.
//!
//! Sizes are those of the document on a stock server; on such servers, containers may be a few bytes longer (objects
//! store their values in order of size). Values that are not split are stored by the stock rules.

use super::{PageVisits, Taken};
use crate::codec::{Method, datum};
use crate::disk::jsonb::{Container, ContainerKind, Item, map_width};
use crate::disk::jsonb_parts::JsonKind;
use crate::disk::{ByteOrder, PageSize};
use crate::model::pages::chunk_bytes;
use crate::model::policy::{COMPRESSED_HEADER_SIZE, VARLENA_HEADER_SIZE};

/// The custom header with the word for the kind (`JSONX_CUSTOM_PTR_HEADER_SIZE`).
const JSONX_HEADER: u32 = 20;
/// The varlena header and container header before an object's entries (`JsonbDatum`).
const DATUM_HEADER: u32 = 8;
/// Bytes of a `JEntry` (`jsonb.h`).
const ENTRY: u32 = 4;
/// The container header before a pointer to a container, or before compressed data.
const KEPT_HEADER: u32 = 4;
/// What is left of a container that was moved out: a header and an ordinary pointer.
const MOVED: u32 = KEPT_HEADER + 18;
/// The directory of a chunked array without its entries: number of elements, number of chunks, relation.
const DIRECTORY: u32 = 12;
/// The index of the first element and the address of a chunk.
const DIRECTORY_ENTRY: u32 = 10;
/// The maximum nesting depth; deeper documents are not estimated.
const MAX_DEPTH: u32 = 64;

/// A document with `jsonb_toaster`, in a row with `room` bytes for it; reads and changes concern one of its keys or
/// elements. `None` if it is not split. Numbers are those of a little-endian server.
pub fn jsonb_toaster(
    page: PageSize,
    room: u32,
    document: &[u8],
    compressor: &mut datum::Compressor,
) -> Option<Taken> {
    let root = JsonbParts::parse(document)?;
    if root.is_object { object(page, room, &root, compressor) } else { array(page, room, &root) }
}

fn object(
    page: PageSize,
    room: u32,
    root: &JsonbParts<'_>,
    compressor: &mut datum::Compressor,
) -> Option<Taken> {
    let mut moved = Vec::new();
    let size = split(root, room, compressor, &mut moved, 0)?;
    let inline = f64::from(JSONX_HEADER + VARLENA_HEADER_SIZE + size);
    let keys = root.list.len().max(1) as f64;
    let mut taken = Taken { values: 1.0, divided: 1.0, inline_bytes: inline, ..Taken::default() };
    for stored in moved {
        taken.toast_bytes += chunk_bytes(page, stored) as f64;
        taken.chunks += super::chunks(page, stored);
        taken.read_whole += PageVisits::new(page, stored);
    }
    // A key in the row costs nothing in addition, a moved one costs its own chunks.
    let PageVisits { lookups, pages } = taken.read_whole;
    taken.read = PageVisits { lookups: lookups / keys, pages: pages / keys };
    taken.small_update_bytes = inline + taken.toast_bytes / keys;
    Some(taken)
}

/// The state of a container in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContainerState {
    Whole,
    Compressed,
    /// Moved out of line.
    Moved,
}

struct ObjectField<'a> {
    part: DocumentPart<'a>,
    size: u32,
    state: ContainerState,
}

impl ObjectField<'_> {
    /// Whether compressing the field, or moving it out once containers are moved, can make the document shorter.
    fn can_shrink(&self, compressing: bool, room: u32) -> bool {
        matches!(self.part.kind, JsonKind::Array | JsonKind::Object)
            && match self.state {
                ContainerState::Whole => true,
                ContainerState::Compressed => !compressing || self.size >= room,
                ContainerState::Moved => false,
            }
    }

    /// The space that the toaster reserves for it.
    fn room(&self) -> u32 {
        align4(self.size.saturating_add(3))
    }
}

/// Splits an object until it fits in `room` (`jsonb_toaster_save_object`). Returns the remaining size of its container;
/// what is stored elsewhere is added to `moved`.
fn split(
    object: &JsonbParts<'_>,
    room: u32,
    compressor: &mut datum::Compressor,
    moved: &mut Vec<u32>,
    depth: u32,
) -> Option<u32> {
    let count = u32::try_from(object.list.len()).ok()?;
    let fixed = DATUM_HEADER.checked_add(count.checked_mul(2 * ENTRY)?)? + align4(object.keys);
    let mut fields: Vec<ObjectField<'_>> = object
        .list
        .iter()
        .map(|&part| ObjectField { part, size: part.size(), state: ContainerState::Whole })
        .collect();
    let least = fields.iter().map(|field| match field.part.kind {
        JsonKind::Array | JsonKind::Object => align4(MOVED + 3),
        JsonKind::Boolean | JsonKind::Null => 0,
        _ => field.room(),
    });
    let least = least.fold(0u32, u32::saturating_add);
    if fixed.saturating_add(least) > room {
        return None;
    }
    let mut total = fields.iter().map(ObjectField::room).fold(fixed, u32::saturating_add);
    // Containers are first compressed, then moved out.
    let mut compressing = true;
    while total > room {
        // Of the longest containers, the first one is chosen.
        let longest = fields
            .iter_mut()
            .filter(|field| field.can_shrink(compressing, room))
            .reduce(|a, b| if b.size > a.size { b } else { a });
        let Some(field) = longest.filter(|field| field.size > MOVED) else {
            if compressing {
                compressing = false;
                continue;
            }
            return None;
        };
        total -= field.room();
        let part = field.part;
        let mut stored = field.size - KEPT_HEADER;
        if field.state == ContainerState::Whole {
            if total < room
                && depth < MAX_DEPTH
                && let Some(inner) = JsonbParts::parse(part.content).filter(|inner| inner.is_object)
            {
                let before = moved.len();
                match split(&inner, room - total, compressor, moved, depth + 1) {
                    Some(size) => {
                        field.size = size;
                        break;
                    }
                    None => moved.truncate(before),
                }
            }
            let stream = compressor.compress(Method::Pglz, part.content);
            let stream = stream.and_then(|stream| u32::try_from(stream.len()).ok());
            let compressed = stream.map(|stream| stream + COMPRESSED_HEADER_SIZE);
            stored = compressed.unwrap_or(part.size() + VARLENA_HEADER_SIZE);
            if compressing && compressed.is_some_and(|size| size.saturating_add(least) < room) {
                field.size = KEPT_HEADER + stored;
                field.state = ContainerState::Compressed;
                total = total.saturating_add(field.room());
                continue;
            }
        }
        // The datum's length word is not stored.
        moved.push(stored - VARLENA_HEADER_SIZE);
        field.size = MOVED;
        field.state = ContainerState::Moved;
        total = total.saturating_add(field.room());
    }
    Some(container_size(object, &fields))
}

/// The size of the container as written.
fn container_size(object: &JsonbParts<'_>, fields: &[ObjectField<'_>]) -> u32 {
    let count = fields.len() as u32;
    // The value map is needed only if the values are not in order of size.
    let map = if object.list.is_sorted_by_key(DocumentPart::size) {
        0
    } else {
        align4(count * map_width(count) as u32)
    };
    let mut data = object.keys;
    for field in fields {
        data = match field.part.kind {
            JsonKind::Boolean | JsonKind::Null => data,
            JsonKind::String => data.saturating_add(field.size),
            _ => align4(data).saturating_add(field.size),
        };
    }
    (4 + count * 2 * ENTRY + map).saturating_add(data)
}

/// An array in chunks (`jsonxaSliceArray`); `None` if an element or the directory is too long.
fn array(page: PageSize, room: u32, root: &JsonbParts<'_>) -> Option<Taken> {
    let limit = page.toast_max_chunk_size();
    let most = room.checked_sub(JSONX_HEADER + DIRECTORY)? / DIRECTORY_ENTRY;
    let mut chunks = Vec::new();
    let mut reckoned = DATUM_HEADER;
    let mut size = DATUM_HEADER;
    for part in &root.list {
        let (bytes, aligned) = match part.kind {
            // One byte is counted that is not written.
            JsonKind::Boolean => (1, false),
            JsonKind::Null => (0, false),
            JsonKind::String => (part.size(), false),
            _ => (part.size(), true),
        };
        let element = bytes.checked_add(ENTRY)?;
        if DATUM_HEADER.checked_add(element)? > limit {
            return None;
        }
        if aligned {
            reckoned = align4(reckoned);
        }
        if reckoned + element > limit {
            chunks.push(size);
            if chunks.len() >= most as usize {
                return None;
            }
            reckoned = if aligned { align4(DATUM_HEADER) } else { DATUM_HEADER };
            size = DATUM_HEADER;
        }
        reckoned += element;
        size = if aligned { align4(size) } else { size } + ENTRY + part.size();
    }
    chunks.push(size);
    let count = chunks.len() as f64;
    // The pointer contains space for a second header, which is not used.
    let inline = f64::from(2 * JSONX_HEADER + DIRECTORY) + f64::from(DIRECTORY_ENTRY) * count;
    let stored = chunks.iter().map(|size| chunk_bytes(page, size - VARLENA_HEADER_SIZE) as f64);
    let toast_bytes: f64 = stored.sum();
    Some(Taken {
        values: 1.0,
        divided: 1.0,
        inline_bytes: inline,
        toast_bytes,
        chunks: count,
        read: PageVisits { lookups: 0.0, pages: 1.0 },
        read_whole: PageVisits { lookups: 0.0, pages: count },
        // The chunk with the changed element is then stored in the row.
        small_update_bytes: inline + toast_bytes / count,
    })
}

fn align4(bytes: u32) -> u32 {
    bytes.saturating_add(3) & !3
}

/// A value in an object, or an element of an array.
#[derive(Debug, Clone, Copy)]
struct DocumentPart<'a> {
    kind: JsonKind,
    /// Its bytes, without padding.
    content: &'a [u8],
}

impl DocumentPart<'_> {
    fn size(&self) -> u32 {
        u32::try_from(self.content.len()).unwrap_or(u32::MAX)
    }
}

/// The parts of a container, in the order in which they are stored.
struct JsonbParts<'a> {
    is_object: bool,
    /// The total size of the keys.
    keys: u32,
    list: Vec<DocumentPart<'a>>,
}

impl<'a> JsonbParts<'a> {
    /// The parts of an object or an array. A container is aligned to 4 bytes in its parent, so its padding is the same
    /// as in the document.
    fn parse(container: &'a [u8]) -> Option<JsonbParts<'a>> {
        use ContainerKind::{Array, MappedObject, Object};

        let container = Container::parse(container, ByteOrder::Little).ok()?;
        if !matches!(container.kind(), Array | Object | MappedObject) {
            return None;
        }
        let mut placed = Vec::new();
        let mut items = container.items().ok()?;
        while let Some(item) = items.next_placed() {
            placed.push(item.ok().filter(|placed| !matches!(placed.item, Item::Pointer(_)))?);
        }
        placed.sort_by_key(|placed| placed.byte);
        let keys = placed.iter().filter_map(|placed| placed.key);
        Some(JsonbParts {
            is_object: container.kind().is_object(),
            keys: u32::try_from(keys.map(<[u8]>::len).sum::<usize>()).ok()?,
            list: placed
                .iter()
                .map(|placed| DocumentPart { kind: (&placed.item).into(), content: placed.bytes })
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: PageSize = PageSize::DEFAULT;

    fn toasted(room: u32, document: &[u8]) -> Option<Taken> {
        jsonb_toaster(PAGE, room, document, &mut datum::Compressor::new())
    }

    /// Incompressible bytes.
    fn noise(size: usize) -> Vec<u8> {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..size).map(|_| next()).collect()
    }

    /// An array of one string.
    fn array_of(text: &[u8]) -> Vec<u8> {
        let mut bytes = 0x4000_0001u32.to_le_bytes().to_vec();
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(text);
        bytes
    }

    /// `{"a": <container>, "b": <string>}`.
    fn object(container: &[u8], string: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        // The padding to 4 bytes after the keys counts as part of the container.
        let entry = 0x5000_0000 | (container.len() as u32 + 2);
        for word in [0x2000_0002, 1, 1, entry, string as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(b"ab\0\0");
        bytes.extend(container);
        bytes.extend(vec![b'x'; string]);
        bytes
    }

    #[test]
    fn long_containers_move_out_and_strings_stay() {
        let container = array_of(&noise(9_992));
        let taken = toasted(2000, &object(&container, 500)).unwrap();
        assert_eq!(taken.toast_bytes, chunk_bytes(PAGE, 10_000) as f64);
        // Header, 4 entries, value map, keys, padding, header and pointer, string.
        assert_eq!(taken.inline_bytes, f64::from(24 + 4 + 16 + 4 + 2 + 2 + 22 + 500));
        // Half of the keys cost nothing.
        let whole = PageVisits { lookups: 1.0, pages: 2.0 };
        assert_eq!(
            (taken.read_whole, taken.read),
            (whole, PageVisits { lookups: whole.lookups / 2.0, pages: whole.pages / 2.0 })
        );
        // The strings alone are too long.
        assert_eq!(toasted(2000, &object(&array_of(b"short"), 10_000)), None);
    }

    #[test]
    fn containers_are_compressed_in_their_place_while_that_is_enough() {
        let container = array_of(&b"compressible ".repeat(500));
        let taken = toasted(2000, &object(&container, 500)).unwrap();
        assert_eq!((taken.toast_bytes, taken.read_whole), (0.0, PageVisits::default()));
        assert!((600.0..900.0).contains(&taken.inline_bytes), "{taken:?}");
        // A container that is moved out is compressed too.
        let taken = toasted(560, &object(&container, 480)).unwrap();
        assert!((50.0..400.0).contains(&taken.toast_bytes), "{taken:?}");
    }

    #[test]
    fn an_array_is_cut_into_chunks_that_need_no_index() {
        let mut bytes = (0x4000_0000u32 | 10).to_le_bytes().to_vec();
        for _ in 0..10 {
            bytes.extend(600u32.to_le_bytes());
        }
        bytes.extend(noise(6000));
        let taken = toasted(2000, &bytes).unwrap();
        // Each chunk has three elements, the last one has one.
        assert_eq!(taken.chunks, 4.0);
        assert_eq!(taken.inline_bytes, 52.0 + 4.0 * 10.0);
        assert_eq!((taken.read.buffers(3), taken.read_whole.buffers(3)), (1.0, 4.0));
        // One element is longer than a chunk, and one directory longer than the room.
        assert_eq!(toasted(2000, &array_of(&noise(1990))), None);
        assert_eq!(toasted(60, &bytes), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_document_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = toasted(50, &bytes);
        }

        #[test]
        fn any_entries_are_a_document_or_not(
            count in 0u32..8, kind in 2u32..5, entries in proptest::collection::vec(any::<u32>(), 0..20),
            lengths in 0u32..0xFFFF
        ) {
            let mut bytes = (kind << 28 | count).to_le_bytes().to_vec();
            bytes.extend(entries.iter().flat_map(|entry| (entry & (0x7000_0000 | lengths)).to_le_bytes()));
            bytes.resize(bytes.len() + 500, b'x');
            let _ = toasted(100, &bytes);
        }
    }
}
