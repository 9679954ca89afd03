//! The meaning of a custom pointer: its kind, the values in the TOAST relation that it refers to, and the cost of
//! reading a key of the value or appending to it.

use super::bytea::{self, ByteaPointer};
use super::catalog::{Handler, PluggableToaster, Toasters};
use super::chunks::Location;
use super::error::{ToastError, ValueRef};
use super::jsonx::{ArrayChunk, Jsonx, JsonxAccess, JsonxBody, kind_name};
use crate::disk::custom::CustomLayout;
use crate::disk::jsonb::{Container, ContainerItems, Item, JsonbErrorKind, MAX_DEPTH};
use crate::disk::{CustomPointer, ItemPointer, Oid, PageSize, ToastPointer, Varlena};

/// The kind of a custom pointer, or of a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PointerKind {
    /// A pointer of the default toaster, without its payload.
    HeadOnly,
    /// A pointer of `bytea_toaster`.
    Appendable,
    /// `dummy_toaster`: the value is in the pointer.
    InPointer,
    /// `jsonb_toaster`, kind 0 to 7.
    Jsonx(u8),
    /// An ordinary pointer inside a `jsonb_toaster` pointer.
    Ordinary,
    /// A container compressed inside a `jsonb_toaster` pointer.
    InlineCompressed,
    /// A pointer that could not be parsed.
    Unknown,
}

impl PointerKind {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            PointerKind::HeadOnly => "payload missing",
            PointerKind::Appendable => "appendable",
            PointerKind::InPointer => "value in the pointer",
            PointerKind::Jsonx(kind) => kind_name(kind),
            PointerKind::Ordinary => "ordinary pointer",
            PointerKind::InlineCompressed => "inline compressed",
            PointerKind::Unknown => "unknown",
        }
    }

    /// The cost of reading one key or element.
    pub fn cost_to_read(self) -> &'static str {
        match self {
            PointerKind::HeadOnly | PointerKind::Unknown => "impossible",
            PointerKind::Appendable => "all chunks and the index on them",
            PointerKind::InPointer => "only the row",
            PointerKind::Jsonx(0) => {
                "only the row for a key in the row; also the key's own chunks for a key moved out"
            }
            PointerKind::Jsonx(2 | 3) => "all chunks, without the index",
            PointerKind::Jsonx(4 | 6) => {
                "the chunks that hold the key, each decompressed on its own"
            }
            PointerKind::Jsonx(7) => "the one chunk that holds the element, without the index",
            PointerKind::Jsonx(_) | PointerKind::Ordinary => "all chunks and the index on them",
            PointerKind::InlineCompressed => "decompression, no chunk",
        }
    }

    /// The cost of appending.
    pub fn cost_to_append(self) -> &'static str {
        match self {
            PointerKind::HeadOnly | PointerKind::Unknown => "impossible",
            PointerKind::Appendable => "the last chunk if it is not full, and the new ones",
            PointerKind::InPointer => "the row is written again",
            PointerKind::Jsonx(0) => "the row, and the chunks of the container that is changed",
            PointerKind::Jsonx(7) => "the row with the last chunk in it",
            PointerKind::Jsonx(_) | PointerKind::Ordinary => "all chunks are written again",
            PointerKind::InlineCompressed => "the row is written again",
        }
    }
}

/// A value in the TOAST relation to which a custom pointer refers, or a container compressed in the pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointerPart {
    /// The kind of reference.
    pub kind: PointerKind,
    /// The value in the TOAST relation; `None` if it is in the pointer or known only by TIDs.
    pub value: Option<ValueRef>,
    /// The TOAST relation, if only TIDs are known.
    pub relation: Option<Oid>,
    /// The addresses of the chunks, if the pointer contains them.
    pub tids: Vec<ItemPointer>,
    /// The size in chunks, without the toaster's own prefix; `None` if the pointer does not contain it.
    pub chunk_bytes: Option<u64>,
    /// The number of chunks; `None` if the pointer does not contain it.
    pub chunks: Option<u32>,
    /// Bytes of the decompressed content, if the pointer says them.
    pub raw_size: Option<u64>,
    /// Whether the bytes in chunks, joined, are compressed.
    pub compressed: bool,
}

impl PointerPart {
    /// A part of which nothing else is known.
    fn new(kind: PointerKind) -> PointerPart {
        PointerPart {
            kind,
            value: None,
            relation: None,
            tids: Vec::new(),
            chunk_bytes: None,
            chunks: None,
            raw_size: None,
            compressed: false,
        }
    }

    /// A part that is in the pointer itself.
    fn inline(kind: PointerKind, raw_size: u64) -> PointerPart {
        PointerPart {
            chunk_bytes: Some(0),
            chunks: Some(0),
            raw_size: Some(raw_size),
            ..PointerPart::new(kind)
        }
    }

    fn known_failure(&self) -> Option<KnownFailure> {
        match self.kind {
            PointerKind::Jsonx(4 | 6) if self.compressed => Some(KnownFailure::CompressedTwice),
            PointerKind::Jsonx(4 | 6) => Some(KnownFailure::CompressedChunks),
            PointerKind::Jsonx(5) if self.compressed => None,
            PointerKind::Jsonx(5) => Some(KnownFailure::ChangedInPlace),
            _ => None,
        }
    }
}

/// How the server is known to fail on a value, which its pointer alone shows (each was tried).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KnownFailure {
    /// It was changed in place. The server applies the change only if the value below it was compressed as a whole.
    ChangedInPlace,
    /// It is compressed chunk by chunk. The server misreads some of these values, fails at others, and crashes at some:
    /// those with a chunk that could not be compressed.
    CompressedChunks,
    /// It was compressed as a whole, and then chunk by chunk. The server fails or crashes when it reads it.
    CompressedTwice,
}

/// The meaning of a custom pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The toaster that wrote the pointer.
    pub toaster: PluggableToaster,
    /// The kind, as that toaster distinguishes them.
    pub kind: PointerKind,
    /// The raw size of the value, without header. For a container whose nested containers are moved out, the size with
    /// all of them in place, apart from alignment. `None` if only reassembly shows it.
    pub raw_size: Option<u64>,
    /// The size in the row.
    pub inline_size: u64,
    /// The parts stored elsewhere.
    pub parts: Vec<PointerPart>,
}

impl Description {
    /// The size in chunks; `None` if the pointer does not contain it.
    pub fn chunk_bytes(&self) -> Option<u64> {
        match self.kind {
            PointerKind::HeadOnly | PointerKind::Unknown => None,
            _ => self.parts.iter().map(|part| part.chunk_bytes).sum(),
        }
    }

    /// The location of the bytes, if the whole value is a single value in the TOAST relation.
    pub fn location(&self) -> Option<Location> {
        let [part] = &self.parts[..] else { return None };
        if part.kind != self.kind {
            return None;
        }
        let ValueRef { value_id, relation } = part.value?;
        Some(Location { value_id, toast_relation: relation, chunks: part.chunks.unwrap_or(0) })
    }

    /// How the server is known to fail on the value.
    pub fn known_failure(&self) -> Option<KnownFailure> {
        self.parts.iter().filter_map(PointerPart::known_failure).max()
    }

    /// The number of chunks; `None` if the pointer does not contain it.
    pub fn chunks(&self) -> Option<u64> {
        match self.kind {
            PointerKind::HeadOnly | PointerKind::Unknown => None,
            _ => self.parts.iter().map(|part| part.chunks.map(u64::from)).sum(),
        }
    }
}

/// Parses a custom pointer, as far as its toaster is known. Nothing is fetched.
pub fn describe(
    pointer: &CustomPointer<'_>,
    toasters: &Toasters,
    page: PageSize,
) -> Result<Description, ToastError> {
    let toaster = toasters.writer(pointer);
    let mut description = Description {
        kind: PointerKind::Unknown,
        raw_size: None,
        inline_size: pointer.datum.len() as u64,
        parts: Vec::new(),
        toaster,
    };
    if pointer.layout == CustomLayout::HeadOnly {
        description.kind = PointerKind::HeadOnly;
        description.raw_size = Some(u64::from(pointer.stated_raw_size()));
        return Ok(description);
    }
    match description.toaster.handler {
        Handler::Bytea => {
            let bytea = ByteaPointer::parse(pointer)?;
            let external = &bytea.external;
            description.kind = PointerKind::Appendable;
            description.raw_size = Some(bytea.raw_size());
            description.parts.push(PointerPart {
                kind: PointerKind::Appendable,
                value: Some(value_ref(external)),
                relation: Some(external.toast_relation),
                tids: Vec::new(),
                chunk_bytes: Some(u64::from(external.stored_size())),
                chunks: Some(external.stored_size().div_ceil(bytea::slice_size(page))),
                raw_size: Some(u64::from(external.stored_size())),
                compressed: false,
            });
        }
        Handler::Dummy => {
            description.kind = PointerKind::InPointer;
            description.raw_size = Some(u64::from(pointer.stated_raw_size()));
        }
        Handler::Jsonb => {
            let jsonx = Jsonx::parse(pointer)?;
            description.kind = PointerKind::Jsonx(jsonx.kind);
            match &jsonx.body {
                JsonxBody::Plain { container } => {
                    let moved_out = nested(container, jsonx.order, page, &mut description.parts)?;
                    let left = (container.len() as u64).saturating_sub(moved_out);
                    let parts: Option<u64> =
                        description.parts.iter().map(|part| part.raw_size).sum();
                    description.raw_size = parts.and_then(|parts| left.checked_add(parts));
                }
                JsonxBody::External { .. } | JsonxBody::Array(_) => {
                    let part = jsonx_part(&jsonx, page);
                    description.raw_size = part.raw_size;
                    description.parts.push(part);
                }
            }
        }
        Handler::Default | Handler::Unknown => {}
    }
    Ok(description)
}

fn value_ref(pointer: &ToastPointer) -> ValueRef {
    ValueRef { value_id: pointer.value_id, relation: pointer.toast_relation }
}

fn ordinary_part(kind: PointerKind, pointer: &ToastPointer, page: PageSize) -> PointerPart {
    PointerPart {
        kind,
        value: Some(value_ref(pointer)),
        relation: Some(pointer.toast_relation),
        tids: Vec::new(),
        chunk_bytes: Some(u64::from(pointer.stored_size())),
        chunks: Some(pointer.chunks(page)),
        raw_size: Some(u64::from(pointer.raw_size())),
        compressed: pointer.is_compressed(),
    }
}

fn jsonx_part(jsonx: &Jsonx<'_>, page: PageSize) -> PointerPart {
    let kind = PointerKind::Jsonx(jsonx.kind);
    match &jsonx.body {
        JsonxBody::External { pointer, access, .. } => {
            let part = ordinary_part(kind, pointer, page);
            match access {
                JsonxAccess::ChunkId => part,
                JsonxAccess::Tids(tids) | JsonxAccess::CompressedTids(tids) => {
                    PointerPart { tids: tids.clone(), ..part }
                }
                // The number of chunks depends on how well they compress.
                JsonxAccess::CompressedChunks => {
                    PointerPart { chunks: None, chunk_bytes: None, ..part }
                }
            }
        }
        JsonxBody::Array(directory) => {
            let mut tids = Vec::new();
            for (_, chunk) in &directory.chunks {
                if let ArrayChunk::At(tid) = chunk {
                    tids.push(*tid);
                }
            }
            PointerPart {
                relation: Some(directory.relation),
                chunk_bytes: if tids.is_empty() { Some(0) } else { None },
                chunks: Some(tids.len() as u32),
                tids,
                ..PointerPart::new(kind)
            }
        }
        JsonxBody::Plain { container } => PointerPart::inline(kind, container.len() as u64),
    }
}

/// Collects all pointers in a container and in its nested containers in place. Returns the size of these pointers.
fn nested(
    container: &[u8],
    order: crate::disk::ByteOrder,
    page: PageSize,
    parts: &mut Vec<PointerPart>,
) -> Result<u64, ToastError> {
    let mut bytes = 0;
    let mut outer: Vec<ContainerItems<'_>> = Vec::new();
    let mut items = Container::parse(container, order)?.items()?;
    loop {
        let Some(item) = items.next() else {
            match outer.pop() {
                Some(parent) => items = parent,
                None => return Ok(bytes),
            }
            continue;
        };
        match item?.1 {
            Item::Container(inner) => {
                if outer.len() >= MAX_DEPTH {
                    let kind = JsonbErrorKind::TooDeep;
                    return Err(crate::disk::jsonb::JsonbError { byte: inner.byte(), kind }.into());
                }
                outer.push(std::mem::replace(&mut items, inner.items()?));
            }
            Item::Pointer(entry) => {
                bytes += entry.length as u64;
                parts.push(nested_part(&entry.value, page).map_err(|error| {
                    error.inside(format!("container moved out at jsonb byte {}", entry.byte))
                })?);
            }
            _ => {}
        }
    }
}

fn nested_part(value: &Varlena<'_>, page: PageSize) -> Result<PointerPart, ToastError> {
    match value {
        Varlena::External(pointer) => {
            super::stock::checked(pointer)?;
            Ok(ordinary_part(PointerKind::Ordinary, pointer, page))
        }
        Varlena::Custom(pointer) => Ok(jsonx_part(&Jsonx::parse(pointer)?, page)),
        Varlena::Compressed { tc_info, .. } => {
            let raw_size = u64::from(crate::disk::varlena::tc_raw_size(*tc_info));
            Ok(PointerPart::inline(PointerKind::InlineCompressed, raw_size))
        }
        Varlena::Short { .. } | Varlena::Plain { .. } => {
            Err(ToastError::NoContent("an entry that is not a pointer"))
        }
        Varlena::Unknown { tag, .. } => Err(ToastError::UnknownTag(*tag)),
    }
}
