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
pub(super) const ARRAY_HEADER: usize = 16;
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

    fn header_word(&self, at: usize) -> Result<u32, ContentError> {
        self.u32(at).ok_or(self.error("array header is cut off"))
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
    let mut reader = ElementReader { content, order, at: HEADER };
    let all = content.len() as u64;
    let dimensions = reader.header_word(4)? as usize;
    let data = reader.header_word(8)? as usize;
    let element = reader.header_word(12)?;
    if dimensions > MOST_DIMENSIONS {
        return Err(reader.error("array of more than 6 dimensions"));
    }
    if shape.type_oid.0 != 0 && element != shape.type_oid.0 {
        return Err(reader.error("array of another element type"));
    }
    if dimensions == 0 {
        return Ok(all);
    }
    let mut items = 1u64;
    for dimension in 0..dimensions {
        let length = u64::from(reader.header_word(ARRAY_HEADER + 4 * dimension)?);
        items = items.saturating_mul(length);
    }
    // each takes at least a bit
    let items = usize::try_from(items).ok().filter(|&items| items <= content.len() * 8);
    let items = items.ok_or(reader.error("array has more elements than bytes"))?;
    let bitmap = ARRAY_HEADER + 8 * dimensions;
    let behind = max_align(bitmap + if data == 0 { 0 } else { items.div_ceil(8) });
    if data != 0 && data != behind {
        return Err(reader.error("array's data begin elsewhere"));
    }
    reader.at = behind;
    let mut sum = 0;
    for number in 0..items {
        let there = data == 0 || {
            reader.bit(bitmap, number).ok_or(reader.error("null bitmap is cut off"))?
        };
        if there {
            let part = reader.part(PartStep::Element, shape)?;
            sum += part.bytes;
            visit.part(document, &part);
        }
    }
    Ok(all.saturating_sub(sum))
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
