//! The sample's values: read from pages, fetched, and what compression makes of them (pure).

use super::tally::SampleRow;
use crate::codec::{Method, datum, lz4_size};
use crate::disk::desc::TupleDesc;
use crate::disk::layout::PageSize;
use crate::disk::page::{Page, PageState};
use crate::disk::pointer::ToastPointer;
use crate::disk::tuple::HeapTuple;
use crate::disk::varlena::{Varlena, tc_method, tc_raw_size};
use crate::disk::walk::{Datum, Walk};
use crate::disk::{BlockNumber, ItemPointer};
use crate::heap::problem::{Place, Problem, Problems};
use crate::heap::scan::{Item, items};
use crate::model::policy::{COMPRESSED_HEADER_SIZE, CompressedSizes, VARLENA_HEADER_SIZE};
use crate::model::stored::StoredValue;
use crate::model::toast::{Incoming, Outside};
use crate::model::visibility::Visibility;

/// Where a value's content is to be had: on the page, if at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content<'p> {
    /// Not at all, or it is never compressed.
    None,
    Raw(&'p [u8]),
    Stream {
        method: Method,
        raw_size: usize,
        stream: &'p [u8],
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
pub struct SampledRow<'p> {
    pub ctid: ItemPointer,
    /// What the tally needs of it.
    pub facts: SampleRow,
    values: Vec<Value<'p>>,
}

/// A value of a row.
#[derive(Debug, Clone, Copy)]
struct Value<'p> {
    content: Content<'p>,
    known: Known,
    /// Where it is, if it is out of line.
    pointer: Option<ToastPointer>,
}

/// The live rows of a page of the relation with this name, as `judge` sees them.
pub fn rows_of_page<'p>(
    relation: &str,
    (block, bytes): (BlockNumber, &'p [u8]),
    desc: &TupleDesc,
    page_size: PageSize,
    mut judge: impl FnMut(ItemPointer, &HeapTuple<'_>) -> Visibility,
    problems: &mut Problems,
) -> Vec<SampledRow<'p>> {
    let mut problem = |item: Option<u16>, message: String| {
        let place = Place { block: Some(block), item, ..Place::of(relation) };
        problems.add(Problem { place, message });
    };
    let page = match Page::parse(bytes) {
        Ok(PageState::Used(page)) => page,
        Ok(PageState::New) => return Vec::new(),
        Err(error) => {
            problem(None, error.to_string());
            return Vec::new();
        }
    };
    let mut rows = Vec::new();
    for (ctid, item) in items(block, &page) {
        match item {
            Item::Unused | Item::Redirect | Item::Dead => {}
            Item::Damaged(message) => problem(Some(ctid.item), message),
            Item::Tuple(tuple, length) => {
                if judge(ctid, &tuple) == Visibility::Dead {
                    continue;
                }
                match row(ctid, &tuple, u32::from(length), desc, page_size) {
                    Ok(row) => rows.push(row),
                    Err(message) => problem(Some(ctid.item), message),
                }
            }
        }
    }
    rows
}

fn row<'p>(
    ctid: ItemPointer,
    tuple: &HeapTuple<'p>,
    tuple_length: u32,
    desc: &TupleDesc,
    page_size: PageSize,
) -> Result<SampledRow<'p>, String> {
    let columns = desc.attributes.len();
    let mut row = SampledRow {
        ctid,
        facts: SampleRow { values: Vec::with_capacity(columns), tuple_length },
        values: Vec::with_capacity(columns),
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
                content = Content::Raw(bytes);
                Incoming::Fixed { size: size(bytes.len()) }
            }
            Datum::CString(bytes) => Incoming::Fixed { size: size(bytes.len() + 1) },
            Datum::Varlena(varlena) => match varlena {
                Varlena::Short { content: bytes } => {
                    content = Content::Raw(bytes);
                    Incoming::Short { raw: size(bytes.len()) }
                }
                Varlena::Plain { content: bytes } => {
                    content = Content::Raw(bytes);
                    Incoming::Plain { raw: size(bytes.len()) }
                }
                Varlena::Compressed { tc_info, stream } => {
                    let method = tc_method(tc_info);
                    let datum_size = size(stream.len()).saturating_add(COMPRESSED_HEADER_SIZE);
                    if let Some(method) = method {
                        known.learn(method, Some(datum_size));
                        let raw_size = tc_raw_size(tc_info) as usize;
                        content = Content::Stream { method, raw_size, stream };
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
                    let outside = outside(&stored, page_size);
                    Incoming::Opaque { size: size(stored.pointer_size as usize), outside }
                }
            },
        };
        row.facts.values.push(value);
        row.values.push(Value { content, known, pointer });
    }
    Ok(row)
}

/// What the pointer of a pluggable toaster leads to. Where it tells the chunks alone they count as full ones.
fn outside(value: &StoredValue, page: PageSize) -> Option<Outside> {
    let chunks = u32::try_from(value.custom?.chunks?).unwrap_or(u32::MAX);
    let full = || u64::from(chunks) * u64::from(page.toast_max_chunk_size());
    let stored = value.stored_size.unwrap_or_else(full);
    Some(Outside { stored: u32::try_from(stored).unwrap_or(u32::MAX), chunks })
}

impl SampledRow<'static> {
    /// A row of these values, whose content is not at hand: what compression makes of them is to be learned.
    pub(super) fn told(
        ctid: ItemPointer,
        values: Vec<Incoming>,
        tuple_length: u32,
    ) -> SampledRow<'static> {
        let told = |value: &Incoming| {
            let mut known = Known::default();
            match *value {
                Incoming::Compressed { size, method: Some(method), .. } => {
                    known.learn(method, Some(size));
                }
                Incoming::Kept { stored, method: Some(method), .. } => {
                    known.learn(method, Some(stored.saturating_add(VARLENA_HEADER_SIZE)));
                }
                _ => {}
            }
            Value { content: Content::None, known, pointer: None }
        };
        let told = values.iter().map(told).collect();
        SampledRow { ctid, facts: SampleRow { values, tuple_length }, values: told }
    }
}

impl<'p> SampledRow<'p> {
    /// Whether the size of a column's value, compressed by this method, is known.
    pub(super) fn knows(&self, column: usize, method: Method) -> bool {
        self.values.get(column).is_some_and(|value| value.known.has(method))
    }

    /// The pointer of a value out of line of which a size with one of `methods` is not yet known, or
    /// the content is wanted.
    pub fn must_fetch(
        &self,
        column: usize,
        methods: &[Method],
        content: bool,
    ) -> Option<ToastPointer> {
        let Value { known, pointer, .. } = self.values.get(column)?;
        pointer.filter(|_| content || methods.iter().any(|&method| !known.has(method)))
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
        let Some(Value { pointer: Some(pointer), known, .. }) = self.values.get_mut(column) else {
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
        if let Some(value) = self.values.get_mut(column) {
            value.known.learn(method, size);
        }
    }

    /// What the tally reads of the row, beside what compresses its values: the datum's size, its 8 bytes of
    /// headers included; `None` where the server refuses, or where the content is not at hand.
    pub(super) fn parts<'r>(
        &'r mut self,
        compressor: &'r mut datum::Compressor,
    ) -> (&'r SampleRow, impl FnMut(usize, Method) -> Option<u32> + use<'r, 'p>) {
        let SampledRow { facts, values, .. } = self;
        (facts, move |column, method| values.get_mut(column)?.compressed_size(method, compressor))
    }

    /// Shows the content of a value that stands in the row, decompressed.
    ///
    /// # Errors
    /// Where it cannot be decompressed.
    pub(super) fn show_inline(
        &self,
        column: usize,
        look: impl FnOnce(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        match self.values.get(column).map(|value| value.content) {
            Some(Content::Raw(raw)) => look(raw),
            Some(Content::Stream { method, raw_size, stream }) => {
                look(&datum::decompress(method, raw_size, stream).map_err(|e| e.to_string())?)
            }
            Some(Content::None) | None => Ok(()),
        }
    }

    /// Where a value is, if it is out of line.
    pub(super) fn pointer(&self, column: usize) -> Option<ToastPointer> {
        self.values.get(column)?.pointer
    }

    #[cfg(feature = "internals")]
    /// The datum's size when the value is compressed, its 8 bytes of headers included; `None`
    /// where the server refuses, or where the content is not at hand.
    pub fn compressed_size(
        &mut self,
        column: usize,
        method: Method,
        compressor: &mut datum::Compressor,
    ) -> Option<u32> {
        self.values.get_mut(column)?.compressed_size(method, compressor)
    }

    #[cfg(feature = "internals")]
    /// The content of a value that stands in the row as it is.
    pub fn plain_content(&self, column: usize) -> Option<&[u8]> {
        match self.values.get(column)?.content {
            Content::Raw(raw) => Some(raw),
            Content::None | Content::Stream { .. } => None,
        }
    }
}

impl Value<'_> {
    fn compressed_size(
        &mut self,
        method: Method,
        compressor: &mut datum::Compressor,
    ) -> Option<u32> {
        let Value { content, known, .. } = self;
        if !known.has(method) {
            let size = match content {
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
}

/// Bytes of the datum into which the server compresses a value, its 8 bytes of headers included; `None` where it
/// keeps it as it is.
pub(super) fn compressed_size(
    compressor: &mut datum::Compressor,
    method: Method,
    raw: &[u8],
) -> Option<u32> {
    let length = match method {
        Method::Pglz => compressor.compress(method, raw)?.len(),
        Method::Lz4 => Some(lz4_size::compressed_size(raw))
            .filter(|&length| datum::is_worthwhile(raw.len(), length))?,
    };
    u32::try_from(length).ok()?.checked_add(COMPRESSED_HEADER_SIZE)
}
