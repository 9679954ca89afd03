//! The sample's values: read from pages, fetched, and what compression makes of them (pure).

use crate::codec::{Method, datum, lz4_size};
use crate::disk::desc::TupleDesc;
use crate::disk::layout::PageSize;
use crate::disk::page::{LinePointerState, Page, PageError, PageState};
use crate::disk::pointer::ToastPointer;
use crate::disk::tuple::HeapTuple;
use crate::disk::varlena::{Varlena, tc_method, tc_raw_size};
use crate::disk::walk::{Datum, Walk};
use crate::disk::{BlockNumber, ItemPointer};
use crate::model::policy::{COMPRESSED_HEADER_SIZE, CompressedSizes, VARLENA_HEADER_SIZE};
use crate::model::stored::StoredValue;
use crate::model::toast::Incoming;
use crate::model::visibility::Visibility;

use super::tally::SampleRow;

/// Where a value's content is to be had.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    /// Not at all, or it is never compressed.
    None,
    Raw(Vec<u8>),
    Stream {
        method: Method,
        raw_size: usize,
        stream: Vec<u8>,
    },
}

/// Sizes that are known of one value.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    sizes: CompressedSizes,
    pglz: bool,
    lz4: bool,
}

impl Known {
    fn has(&self, method: Method) -> bool {
        match method {
            Method::Pglz => self.pglz,
            Method::Lz4 => self.lz4,
        }
    }

    fn learn(&mut self, method: Method, size: Option<u32>) {
        match method {
            Method::Pglz => self.pglz = true,
            Method::Lz4 => self.lz4 = true,
        }
        self.sizes.set(method, size);
    }
}

/// A live row of the sample.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its address.
    pub ctid: ItemPointer,
    /// What the tally needs of it.
    pub facts: SampleRow,
    contents: Vec<Content>,
    known: Vec<Known>,
    /// Pointers of values out of line, by column.
    pointers: Vec<Option<ToastPointer>>,
}

/// What could not be read of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageProblem {
    /// The line pointer; `None` for the page as a whole.
    pub item: Option<u16>,
    /// What is wrong.
    pub message: String,
}

/// The live rows of a page, as `judge` sees them.
pub fn rows_of_page(
    block: BlockNumber,
    bytes: &[u8],
    desc: &TupleDesc,
    page_size: PageSize,
    mut judge: impl FnMut(ItemPointer, &HeapTuple<'_>) -> Visibility,
    problems: &mut Vec<PageProblem>,
) -> Vec<Row> {
    let page = match Page::parse(bytes) {
        Ok(PageState::Used(page)) => page,
        Ok(PageState::New) => return Vec::new(),
        Err(error) => {
            problems.push(page_problem(&error));
            return Vec::new();
        }
    };
    let mut rows = Vec::new();
    for (item, pointer) in page.line_pointers() {
        if pointer.state != LinePointerState::Normal {
            continue;
        }
        let ctid = ItemPointer { block, item };
        let problem = |message: String| PageProblem { item: Some(item), message };
        let tuple =
            page.tuple_bytes(pointer).map_err(|e| problem(e.to_string())).and_then(|bytes| {
                HeapTuple::parse(bytes, page.byte_order()).map_err(|e| problem(e.to_string()))
            });
        let tuple = match tuple {
            Ok(tuple) => tuple,
            Err(error) => {
                problems.push(error);
                continue;
            }
        };
        if judge(ctid, &tuple) == Visibility::Dead {
            continue;
        }
        match row(ctid, &tuple, u32::from(pointer.length), desc, page_size) {
            Ok(row) => rows.push(row),
            Err(message) => problems.push(problem(message)),
        }
    }
    rows
}

fn page_problem(error: &PageError) -> PageProblem {
    PageProblem { item: None, message: error.to_string() }
}

fn row(
    ctid: ItemPointer,
    tuple: &HeapTuple<'_>,
    tuple_length: u32,
    desc: &TupleDesc,
    page_size: PageSize,
) -> Result<Row, String> {
    let columns = desc.attributes.len();
    let mut row = Row {
        ctid,
        facts: SampleRow { values: Vec::with_capacity(columns), tuple_length },
        contents: Vec::with_capacity(columns),
        known: Vec::with_capacity(columns),
        pointers: Vec::with_capacity(columns),
    };
    for walked in Walk::new(tuple, desc) {
        let (column, datum) = walked.map_err(|e| e.to_string())?;
        let mut content = Content::None;
        let mut known = Known::default();
        let mut pointer = None;
        let size = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let value = match datum {
            _ if column.dropped => Incoming::Null,
            Datum::Null => Incoming::Null,
            Datum::Missing => {
                let raw = StoredValue::of(&datum, column, page_size).raw_size;
                match column.length {
                    crate::disk::desc::Length::Varlena => {
                        Incoming::Plain { raw: raw.map_or(0, |raw| size(raw as usize)) }
                    }
                    _ => Incoming::Fixed { size: raw.map_or(0, |raw| size(raw as usize)) },
                }
            }
            Datum::Fixed(bytes) => {
                content = Content::Raw(bytes.to_vec());
                Incoming::Fixed { size: size(bytes.len()) }
            }
            Datum::CString(bytes) => Incoming::Fixed { size: size(bytes.len() + 1) },
            Datum::Varlena(varlena) => match varlena {
                Varlena::Short { content: bytes } => {
                    content = Content::Raw(bytes.to_vec());
                    Incoming::Short { raw: size(bytes.len()) }
                }
                Varlena::Plain { content: bytes } => {
                    content = Content::Raw(bytes.to_vec());
                    Incoming::Plain { raw: size(bytes.len()) }
                }
                Varlena::Compressed { tc_info, stream } => {
                    let method = tc_method(tc_info);
                    let datum_size = size(stream.len()).saturating_add(COMPRESSED_HEADER_SIZE);
                    if let Some(method) = method {
                        known.learn(method, Some(datum_size));
                        let raw_size = tc_raw_size(tc_info) as usize;
                        content = Content::Stream { method, raw_size, stream: stream.to_vec() };
                    }
                    Incoming::Compressed { size: datum_size, raw: tc_raw_size(tc_info), method }
                }
                Varlena::External(external) => {
                    pointer = Some(external);
                    let compressed = external.is_compressed();
                    if let Some(method) = external.method() {
                        let datum_size = external.stored_size().saturating_add(VARLENA_HEADER_SIZE);
                        known.learn(method, Some(datum_size));
                    }
                    Incoming::Kept {
                        stored: external.stored_size(),
                        raw: external.raw_size(),
                        method: external.method(),
                        compressed,
                    }
                }
                other => {
                    let stored = StoredValue::of_varlena(&other, page_size);
                    Incoming::Opaque { size: size(stored.pointer_size as usize) }
                }
            },
        };
        row.facts.values.push(value);
        row.contents.push(content);
        row.known.push(known);
        row.pointers.push(pointer);
    }
    Ok(row)
}

impl Row {
    /// The pointer of a value out of line of which a size with one of `methods` is not yet known.
    pub fn must_fetch(&self, column: usize, methods: &[Method]) -> Option<ToastPointer> {
        let known = self.known.get(column)?;
        let pointer = self.pointers.get(column).copied().flatten()?;
        methods.iter().any(|&method| !known.has(method)).then_some(pointer)
    }

    /// Takes the stored bytes of a value out of line and learns its sizes with `methods`; `look` is
    /// shown the content.
    ///
    /// # Errors
    /// Where the bytes do not give the value.
    pub fn fetched(
        &mut self,
        column: usize,
        stored: &[u8],
        methods: &[Method],
        compressor: &mut datum::Compressor,
        look: &mut impl FnMut(&[u8]),
    ) -> Result<(), String> {
        let (Some(pointer), Some(known)) =
            (self.pointers.get(column).copied().flatten(), self.known.get_mut(column))
        else {
            return Ok(());
        };
        let decompressed;
        let raw = if pointer.is_compressed() {
            let tc_info = stored
                .first_chunk::<4>()
                .map(|b| u32::from_le_bytes(*b))
                .ok_or("compressed value without its header")?;
            let method = tc_method(tc_info).ok_or("unknown compression method")?;
            let stream = stored.get(4..).unwrap_or(&[]);
            decompressed = datum::decompress(method, pointer.raw_size() as usize, stream)
                .map_err(|e| e.to_string())?;
            &decompressed[..]
        } else {
            stored
        };
        look(raw);
        for &method in methods {
            if !known.has(method) {
                known.learn(method, compressed_size(compressor, method, raw));
            }
        }
        Ok(())
    }

    /// Says what the server itself makes of a value: the datum's size, `None` if it refuses.
    pub fn learn(&mut self, column: usize, method: Method, size: Option<u32>) {
        if let Some(known) = self.known.get_mut(column) {
            known.learn(method, size);
        }
    }

    /// The datum's size when the value is compressed, its 8 bytes of headers included; `None`
    /// where the server refuses, or where the content is not at hand.
    pub fn compressed_size(
        &mut self,
        column: usize,
        method: Method,
        compressor: &mut datum::Compressor,
    ) -> Option<u32> {
        let known = self.known.get_mut(column)?;
        if !known.has(method) {
            let size = match self.contents.get(column)? {
                Content::None => None,
                Content::Raw(raw) => compressed_size(compressor, method, raw),
                Content::Stream { method: stored, raw_size, stream } => {
                    let raw = datum::decompress(*stored, *raw_size, stream).ok()?;
                    compressed_size(compressor, method, &raw)
                }
            };
            known.learn(method, size);
        }
        known.sizes.get(method)
    }

    /// The content of a value that stands in the row as it is.
    pub fn plain_content(&self, column: usize) -> Option<&[u8]> {
        match self.contents.get(column)? {
            Content::Raw(raw) => Some(raw),
            Content::None | Content::Stream { .. } => None,
        }
    }
}

fn compressed_size(compressor: &mut datum::Compressor, method: Method, raw: &[u8]) -> Option<u32> {
    let length = match method {
        Method::Pglz => compressor.compress(method, raw)?.len(),
        Method::Lz4 => Some(lz4_size::compressed_size(raw))
            .filter(|&length| datum::is_worthwhile(raw.len(), length))?,
    };
    u32::try_from(length).ok()?.checked_add(COMPRESSED_HEADER_SIZE)
}
