//! The logical value of any datum.

use std::borrow::Cow;

use super::bytea::{self, ByteaPointer};
use super::catalog::{Handler, Toasters};
use super::chunks::ChunkStore;
use super::error::ToastError;
use super::jsonx::{Jsonx, JsonxBody, kind_name};
use super::{fetch, stock};
use crate::disk::custom::CustomLayout;
use crate::disk::jsonb::{Container, MAX_TEXT, PointerEntry};
use crate::disk::jsonb_text::{FetchContainer, JsonbText, TextSink};
use crate::disk::{ByteOrder, CustomPointer, PageSize, Varlena};

/// A reassembled value: content or parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Logical<'a> {
    /// Its content, decompressed, without varlena header.
    Content(Cow<'a, [u8]>),
    /// A `jsonb` value that consists of several parts; it has a text, but no single content.
    Jsonb(Jsonx<'a>),
}

impl Logical<'_> {
    /// The content; an error if the value consists of parts.
    pub fn content(&self) -> Result<&[u8], ToastError> {
        match self {
            Logical::Content(content) => Ok(content),
            Logical::Jsonb(jsonx) => Err(ToastError::NoContent(kind_name(jsonx.kind))),
        }
    }
}

/// Reassembles values of one database.
#[derive(Debug)]
pub struct Reassembler<'s, S> {
    /// The source of chunks.
    pub store: &'s mut S,
    /// The toasters of the database.
    pub toasters: &'s Toasters,
    /// The page size of the TOAST relation.
    pub page: PageSize,
    /// The byte order of the pages.
    pub order: ByteOrder,
}

impl<S: ChunkStore> Reassembler<'_, S> {
    /// The logical value of a datum.
    pub fn value<'a>(&mut self, value: &Varlena<'a>) -> Result<Logical<'a>, ToastError> {
        match value {
            Varlena::Short { content } | Varlena::Plain { content } => {
                Ok(Logical::Content(Cow::Borrowed(content)))
            }
            Varlena::Compressed { tc_info, stream } => stock::inflate(*tc_info, stream)
                .map(|content| Logical::Content(Cow::Owned(content)))
                .map_err(|problem| ToastError::Decompress {
                    what: "compressed value".into(),
                    problem,
                }),
            Varlena::External(pointer) => {
                stock::content(pointer, self.store, self.page, self.order).map(owned)
            }
            Varlena::Custom(pointer) => self.custom(pointer),
            Varlena::Unknown { tag, .. } => Err(ToastError::UnknownTag(*tag)),
        }
    }

    fn custom<'a>(&mut self, pointer: &CustomPointer<'a>) -> Result<Logical<'a>, ToastError> {
        if pointer.layout == CustomLayout::HeadOnly {
            return Err(ToastError::PayloadMissing(pointer.datum.len()));
        }
        match self.toasters.writer(pointer).handler {
            Handler::Bytea => {
                let bytea = ByteaPointer::parse(pointer)?;
                bytea::content(&bytea, self.store, self.page, pointer.order).map(owned)
            }
            Handler::Dummy => {
                dummy_content(pointer).map(|content| Logical::Content(Cow::Borrowed(content)))
            }
            Handler::Jsonb => {
                let jsonx = Jsonx::parse(pointer)?;
                match &jsonx.body {
                    JsonxBody::External { .. } => self.container(&jsonx).map(owned),
                    JsonxBody::Plain { .. } | JsonxBody::Array(_) => Ok(Logical::Jsonb(jsonx)),
                }
            }
            Handler::Default | Handler::Unknown => Err(ToastError::UnknownToaster(pointer.toaster)),
        }
    }

    fn container(&mut self, jsonx: &Jsonx<'_>) -> Result<Vec<u8>, ToastError> {
        match &jsonx.body {
            JsonxBody::External { pointer, access, patch } => {
                fetch::container(pointer, access, *patch, self.store, self.page, jsonx.order)
            }
            JsonxBody::Plain { .. } | JsonxBody::Array(_) => {
                Err(ToastError::NoContent(kind_name(jsonx.kind)))
            }
        }
    }

    /// Writes the text of a `jsonb` value, like the server's cast to text.
    pub fn jsonb_text(
        &mut self,
        value: &Logical<'_>,
        sink: &mut impl TextSink,
    ) -> Result<(), ToastError> {
        let order = self.order;
        let mut fetcher = Fetcher { reassembler: self, left: MAX_TEXT };
        let mut text = JsonbText::new(sink, &mut fetcher, order);
        let jsonx = match value {
            Logical::Content(content) => return text.value(content),
            Logical::Jsonb(jsonx) => jsonx,
        };
        match &jsonx.body {
            JsonxBody::Plain { container } => text.value(container),
            JsonxBody::Array(directory) => {
                let mut elements = 0;
                text.chunked_array(directory.chunks.len(), |fetcher, index| {
                    let store = &mut *fetcher.reassembler.store;
                    let chunk = fetch::array_chunk(directory, index, store, order)?;
                    let count = Container::parse(&chunk, order)
                        .map_err(|error| ToastError::from(error).inside(chunk_place(index)))?
                        .count();
                    elements += u64::from(count);
                    let next = directory.chunks.get(index + 1).map(|(first, _)| *first);
                    let expected = next.unwrap_or(directory.elements);
                    if elements != u64::from(expected) {
                        return Err(ToastError::Custom {
                            toaster: "jsonb_toaster",
                            byte: 20,
                            problem: format!(
                                "chunk {index} of the array ends with element {elements}, \
                                 {expected} expected"
                            ),
                        });
                    }
                    fetcher.count(chunk.len())?;
                    Ok(chunk)
                })
            }
            JsonxBody::External { .. } => Err(ToastError::NoContent(kind_name(jsonx.kind))),
        }
    }
}

fn owned(content: Vec<u8>) -> Logical<'static> {
    Logical::Content(Cow::Owned(content))
}

fn chunk_place(index: usize) -> String {
    format!("chunk {index} of the array")
}

/// The value in a pointer of `dummy_toaster`. Its length field includes the head, so the value is followed by that
/// number of meaningless bytes.
fn dummy_content<'a>(pointer: &CustomPointer<'a>) -> Result<&'a [u8], ToastError> {
    let size = pointer.stated_raw_size() as usize;
    let length = pointer.payload.len();
    if pointer.raw_size_with_header < 4
        || size.checked_add(pointer.layout.head_size()) != Some(length)
    {
        return Err(ToastError::Custom {
            toaster: "dummy_toaster",
            byte: 2,
            problem: format!(
                "length field {length}, raw size field {}",
                pointer.raw_size_with_header
            ),
        });
    }
    Ok(pointer.payload.get(..size).unwrap_or(&[]))
}

/// Fetches the nested containers of one value.
struct Fetcher<'r, 's, S> {
    reassembler: &'r mut Reassembler<'s, S>,
    /// The number of bytes that may still be fetched for this value: no server allows more.
    left: usize,
}

impl<S> Fetcher<'_, '_, S> {
    fn count(&mut self, bytes: usize) -> Result<(), ToastError> {
        self.left = self.left.checked_sub(bytes).ok_or(ToastError::TooLong)?;
        Ok(())
    }
}

impl<S: ChunkStore> Fetcher<'_, '_, S> {
    fn fetch_value(&mut self, value: &Varlena<'_>) -> Result<Vec<u8>, ToastError> {
        let container = match value {
            Varlena::Compressed { tc_info, stream } => fetch::inline_compressed(*tc_info, stream)?,
            Varlena::Custom(pointer) => {
                let jsonx = Jsonx::parse(pointer)?;
                self.reassembler.container(&jsonx)?
            }
            Varlena::External(_) => self.reassembler.value(value)?.content()?.to_vec(),
            Varlena::Short { .. } | Varlena::Plain { .. } => {
                return Err(ToastError::NoContent("an entry that is not a pointer"));
            }
            Varlena::Unknown { tag, .. } => return Err(ToastError::UnknownTag(*tag)),
        };
        self.count(container.len())?;
        Ok(container)
    }
}

impl<S: ChunkStore> FetchContainer for Fetcher<'_, '_, S> {
    type Error = ToastError;

    fn fetch(&mut self, entry: &PointerEntry<'_>) -> Result<Vec<u8>, ToastError> {
        self.fetch_value(&entry.value).map_err(|error| self.inside(entry, error))
    }

    fn inside(&self, entry: &PointerEntry<'_>, error: ToastError) -> ToastError {
        error.inside(format!("container moved out at jsonb byte {}", entry.byte))
    }
}
