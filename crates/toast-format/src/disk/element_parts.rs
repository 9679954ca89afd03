//! What each element of an array takes (`array.h`), and each attribute of a composite value (`htup_details.h`).
//!
//! An array behind its varlena header: number of dimensions, offset of the data (0 without null bitmap), OID of the
//! element type, 4 bytes each; lengths and lower bounds of the dimensions; null bitmap; elements, each aligned. A
//! composite value is a tuple, whose header begins with that of the varlena. Offsets below count that header.

use super::ByteOrder;
use super::Oid;
use super::desc::{Align, Length};
use super::error::ContentError;
use super::jsonb_parts::{ExtractedDatum, JsonKind, PartStep, Visit, VisitedPart};
use super::max_align;
use super::types::is_text_like;
use super::varlena::{VARLENA_HEADER_SIZE, Varlena};

/// Bytes of the varlena header, which the content lacks.
const HEADER: usize = VARLENA_HEADER_SIZE as usize;
/// `sizeof(ArrayType)` in bytes (`array.h`).
const ARRAY_HEADER: usize = 16;
/// `MAXDIM`: the most dimensions of an array.
pub(super) const MOST_DIMENSIONS: usize = 6;
/// `SizeofHeapTupleHeader` of `htup_details.h`.
pub(super) const TUPLE_HEADER: usize = 23;
/// `HEAP_HASNULL` of `htup_details.h`.
pub(super) const HAS_NULL: u16 = 0x0001;
/// `HEAP_NATTS_MASK` of `htup_details.h`.
const ATTRIBUTES: u16 = 0x07FF;

/// How values of a type are stored inside others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElementShape {
    /// The type; 0 if it is not known.
    pub type_oid: Oid,
    /// The type's length (`typlen`).
    pub length: Length,
    /// The type's alignment (`typalign`).
    pub align: Align,
}

impl ElementShape {
    /// The type of JSON that corresponds to this type.
    fn kind(self) -> JsonKind {
        match self.type_oid.0 {
            16 => JsonKind::Boolean,
            // int8, int2, int4, oid, float4, float8, money, numeric
            20 | 21 | 23 | 26 | 700 | 701 | 790 | 1700 => JsonKind::Number,
            // "char", name
            18 | 19 => JsonKind::String,
            _ if is_text_like(self.type_oid) => JsonKind::String,
            _ => JsonKind::Other,
        }
    }
}

/// An attribute of a composite type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompositeField {
    /// The attribute's name (`attname`).
    pub name: String,
    /// The layout of its type.
    pub shape: ElementShape,
    /// Whether it was dropped; values that are older still contain it.
    pub dropped: bool,
}

/// A position in the content of an array or a composite value.
struct ElementReader<'a> {
    content: &'a [u8],
    order: ByteOrder,
    /// Offset of the end of the previous value.
    at: usize,
}

impl<'a> ElementReader<'a> {
    fn error(&self, what: &'static str) -> ContentError {
        ContentError::Element { what, byte: self.at.saturating_sub(HEADER) }
    }

    fn u32(&self, at: usize) -> Option<u32> {
        self.order.u32(self.content, at.checked_sub(HEADER)?)
    }

    fn bit(&self, bitmap: usize, number: usize) -> Option<bool> {
        let byte = self.content.get((bitmap + number / 8).checked_sub(HEADER)?)?;
        Some(byte & (1 << (number % 8)) != 0)
    }

    /// Reads the next value with the padding before it (`att_align_pointer`).
    fn part(
        &mut self,
        step: PartStep<'a>,
        shape: ElementShape,
    ) -> Result<VisitedPart<'a>, ContentError> {
        let from = self.at;
        let cut = self.error("value ends after the end of its container");
        let aligned = shape.align.align(from);
        let (start, length, extracted) = match shape.length {
            Length::Fixed(n) => (aligned, usize::from(n), ExtractedDatum::Fixed(u64::from(n))),
            Length::CString => return Err(self.error("values of this type cannot be read")),
            Length::Varlena => {
                // a 1-byte header is not aligned, and is not 0 as padding is
                let &first = self.content.get(from - HEADER).ok_or(cut)?;
                let start = if first == 0 { aligned } else { from };
                let bytes = self.content.get(start - HEADER..).ok_or(cut)?;
                let (value, length) = Varlena::parse(bytes, self.order)
                    .map_err(|_| self.error("invalid varlena inside the value"))?;
                let extracted = match value {
                    Varlena::Short { content } => ExtractedDatum::Short(content.len() as u64),
                    Varlena::Plain { .. } | Varlena::Compressed { .. } => {
                        ExtractedDatum::Varlena(length as u64 - u64::from(VARLENA_HEADER_SIZE))
                    }
                    _ => return Err(self.error("TOAST pointer inside the value")),
                };
                (start, length, extracted)
            }
        };
        let end = start.checked_add(length).ok_or(cut)?;
        let value = self.content.get(start - HEADER..end - HEADER).ok_or(cut)?;
        self.at = end;
        let bytes = (end - from) as u64;
        Ok(VisitedPart { step, kind: shape.kind(), bytes, value, byte: start - HEADER, extracted })
    }
}

/// An array, of which elements are read one after the other.
pub(super) struct StoredArray<'a> {
    /// The type of the elements.
    pub(super) element: Oid,
    /// The length and the lower bound of each dimension.
    pub(super) dimensions: Vec<(u32, i32)>,
    items: usize,
    /// Where the null bitmap begins.
    bitmap: Option<usize>,
    /// The number of elements that were read.
    number: usize,
    reader: ElementReader<'a>,
}

impl<'a> StoredArray<'a> {
    /// Reads the header, up to the first element.
    pub(super) fn parse(content: &'a [u8], order: ByteOrder) -> Result<Self, ContentError> {
        let mut reader = ElementReader { content, order, at: HEADER };
        let cut = reader.error("array header is cut off");
        let count = reader.u32(4).ok_or(cut)? as usize;
        let data = reader.u32(8).ok_or(cut)? as usize;
        let element = Oid(reader.u32(12).ok_or(cut)?);
        if count > MOST_DIMENSIONS {
            return Err(reader.error("array of more than 6 dimensions"));
        }
        let mut dimensions = Vec::with_capacity(count);
        let mut items = u64::from(count > 0);
        for number in 0..count {
            let length = reader.u32(ARRAY_HEADER + 4 * number).ok_or(cut)?;
            let bound = reader.u32(ARRAY_HEADER + 4 * (count + number)).ok_or(cut)?;
            dimensions.push((length, bound as i32));
            items = items.saturating_mul(u64::from(length));
        }
        // each takes at least a bit
        let items = usize::try_from(items).ok().filter(|&items| items <= content.len() * 8);
        let items = items.ok_or(reader.error("array has more elements than bytes"))?;
        let bitmap = ARRAY_HEADER + 8 * count;
        let behind = max_align(bitmap + if data == 0 { 0 } else { items.div_ceil(8) });
        if data != 0 && data != behind {
            return Err(reader.error("array's data begin elsewhere"));
        }
        reader.at = behind;
        let bitmap = (data != 0).then_some(bitmap);
        Ok(StoredArray { element, dimensions, items, bitmap, number: 0, reader })
    }

    /// The next element; `None` is NULL.
    pub(super) fn element(
        &mut self,
        shape: ElementShape,
    ) -> Result<Option<VisitedPart<'a>>, ContentError> {
        let number = self.number;
        self.number += 1;
        if let Some(bitmap) = self.bitmap {
            let bit = self.reader.bit(bitmap, number);
            if !bit.ok_or(self.reader.error("null bitmap is cut off"))? {
                return Ok(None);
            }
        }
        self.reader.part(PartStep::Element, shape).map(Some)
    }
}

/// Gives all elements of an array that are not NULL. Returns the bytes that belong to none: header, dimensions, null
/// bitmap, padding at the end.
///
/// # Errors
/// If it is damaged. Parts that were passed to `visit` before are valid.
pub fn walk_array<V: Visit>(
    content: &[u8],
    order: ByteOrder,
    shape: ElementShape,
    document: V::At,
    visit: &mut V,
) -> Result<u64, ContentError> {
    let mut array = StoredArray::parse(content, order)?;
    if shape.type_oid.0 != 0 && array.element != shape.type_oid {
        return Err(array.reader.error("array of another element type"));
    }
    let mut own = content.len() as u64;
    for _ in 0..array.items {
        if let Some(part) = array.element(shape)? {
            own = own.saturating_sub(part.bytes);
            visit.part(document, &part);
        }
    }
    Ok(own)
}

/// Gives all attributes of a composite value that are not NULL. Returns the bytes that belong to none: the tuple's
/// header and null bitmap, and what dropped attributes hold.
///
/// # Errors
/// If it is damaged. Parts that were passed to `visit` before are valid.
pub fn walk_row<V: Visit>(
    content: &[u8],
    order: ByteOrder,
    fields: &[CompositeField],
    document: V::At,
    visit: &mut V,
) -> Result<u64, ContentError> {
    let mut reader = ElementReader { content, order, at: HEADER };
    let cut = reader.error("tuple header is cut off");
    let attributes = order.u16(content, 18 - HEADER).ok_or(cut)? & ATTRIBUTES;
    let attributes = usize::from(attributes);
    let has_nulls = order.u16(content, 20 - HEADER).ok_or(cut)? & HAS_NULL != 0;
    let first = usize::from(*content.get(22 - HEADER).ok_or(cut)?);
    let bitmap = if has_nulls { attributes.div_ceil(8) } else { 0 };
    if first % 8 != 0 || first < TUPLE_HEADER + bitmap || first > content.len() + HEADER {
        return Err(reader.error("tuple header of an impossible length"));
    }
    if attributes > fields.len() {
        return Err(reader.error("tuple has more attributes than its type"));
    }
    reader.at = first;
    let mut sum = 0;
    for (number, field) in fields.iter().enumerate().take(attributes) {
        let there = !has_nulls || reader.bit(TUPLE_HEADER, number).ok_or(cut)?;
        if there {
            let part = reader.part(PartStep::Key(field.name.as_bytes()), field.shape)?;
            if !field.dropped {
                sum += part.bytes;
                visit.part(document, &part);
            }
        }
    }
    Ok((content.len() as u64).saturating_sub(sum))
}
