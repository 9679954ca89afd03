//! Arrays and composite values as the server stores them, made of the text that it prints (`array_out`,
//! `record_out`): for values of which nothing but the text is to be had. Of types whose bytes do not follow from their
//! text simply, the bytes are others, and as many.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::array::{ArrayType, null_bitmap};
use super::desc::Length;
use super::element_parts::{CompositeField, ElementShape, HAS_NULL, MOST_DIMENSIONS, TUPLE_HEADER};
use super::error::ContentError;
use super::hex::decode_digits;
use super::jsonb_of_text::{jsonb, numeric_content};
use super::types::is_text_like;
use super::{ByteOrder, Oid, max_align};

const BOOL: u32 = 16;
const BYTEA: u32 = 17;
const INT8: u32 = 20;
const INT2: u32 = 21;
const INT4: u32 = 23;
const OID: u32 = 26;
const NUMERIC: u32 = 1700;
const JSONB: u32 = 3802;

/// The longest content with a header of 1 byte.
const LONGEST_SHORT: usize = 126;
/// Bytes of the varlena header, which contents do not have.
const HEADER: usize = 4;

/// The content of the array with this text, little-endian, without varlena header.
///
/// # Errors
/// If no server prints this text, or the size of an element does not follow from its text.
pub fn array(text: &[u8], shape: ElementShape) -> Result<Vec<u8>, ContentError> {
    let read = PrintedElements::read(text)?;
    // what the bounds are takes no bytes
    let dimensions =
        read.lengths.iter().map(|&length| (i32::try_from(length).unwrap_or(i32::MAX), 1));
    let made = ArrayType { element: shape.type_oid, dimensions: dimensions.collect() };
    let mut values = Vec::with_capacity(read.elements.len());
    for element in &read.elements {
        values.push(match element {
            Some(text) => Some(stored(shape, text, false)?),
            None => None,
        });
    }
    Ok(made.of_values(shape.align, &values, ByteOrder::Little))
}

/// The content of the composite value with this text, little-endian, without varlena header.
///
/// # Errors
/// As for an array, above.
pub fn row(text: &[u8], fields: &[CompositeField]) -> Result<Vec<u8>, ContentError> {
    let mut printed = attributes(text)?.into_iter();
    let mut values = Vec::with_capacity(fields.len());
    for field in fields {
        let value = if field.dropped { Some(None) } else { printed.next() };
        values.push(value.ok_or(ContentError::ElementText(text.len()))?);
    }
    let has_nulls = values.iter().any(Option::is_none);
    let bitmap = if has_nulls { fields.len().div_ceil(8) } else { 0 };
    let first = max_align(TUPLE_HEADER + bitmap);
    let mut out = vec![0; 18];
    out.extend(u16::try_from(fields.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend(if has_nulls { HAS_NULL } else { 0 }.to_le_bytes());
    out.push(u8::try_from(first).unwrap_or(u8::MAX));
    if has_nulls {
        out.extend(null_bitmap(values.iter().map(Option::is_some)));
    }
    out.resize(first, 0);
    for (field, value) in fields.iter().zip(&values) {
        let Some(text) = value else { continue };
        let value = stored(field.shape, text, true)?;
        // a 1-byte header is not aligned
        let short = field.shape.length == Length::Varlena && value.len() <= LONGEST_SHORT + 1;
        if !short {
            out.resize(field.shape.align.align(out.len()), 0);
        }
        out.extend(value);
    }
    Ok(out.split_off(HEADER))
}

/// A value from its text form. Floats are not supported, because they may be rounded (`extra_float_digits`), nor are
/// dates, whose format depends on the session (`DateStyle`, `TimeZone`).
pub(super) fn by_text(type_oid: Oid, bytes: &[u8], order: ByteOrder) -> Option<Vec<u8>> {
    match type_oid.0 {
        _ if is_text_like(type_oid) => return Some(bytes.to_vec()),
        // These values are built only in little-endian order.
        JSONB if order == ByteOrder::Little => return jsonb(bytes).ok(),
        NUMERIC if order == ByteOrder::Little => return numeric_content(bytes),
        _ => {}
    }
    let text = std::str::from_utf8(bytes).ok()?;
    let big_endian = match type_oid.0 {
        BYTEA => return decode_digits(text.strip_prefix("\\x")?).ok(),
        BOOL => vec![u8::from(text == "t")],
        INT2 => text.parse::<i16>().ok()?.to_be_bytes().to_vec(),
        INT4 => text.parse::<i32>().ok()?.to_be_bytes().to_vec(),
        INT8 => text.parse::<i64>().ok()?.to_be_bytes().to_vec(),
        OID => text.parse::<u32>().ok()?.to_be_bytes().to_vec(),
        _ => return None,
    };
    Some(in_order(big_endian, order))
}

pub(super) fn in_order(mut big_endian: Vec<u8>, order: ByteOrder) -> Vec<u8> {
    if order == ByteOrder::Little {
        big_endian.reverse();
    }
    big_endian
}

/// A value inside another, with a 1-byte header if `may_be_short` and it is short enough.
fn stored(shape: ElementShape, text: &[u8], may_be_short: bool) -> Result<Vec<u8>, ContentError> {
    if let Length::Fixed(length) = shape.length {
        return Ok(fixed(text, usize::from(length)));
    }
    let content = by_text(shape.type_oid, text, ByteOrder::Little)
        .ok_or(ContentError::ElementType(shape.type_oid.0))?;
    let mut value = if may_be_short && content.len() <= LONGEST_SHORT {
        // lossless: at most 127
        vec![((content.len() as u8 + 1) << 1) | 1]
    } else {
        let length = u32::try_from(content.len() + HEADER).unwrap_or(u32::MAX);
        (length << 2).to_le_bytes().to_vec()
    };
    value.extend(content);
    Ok(value)
}

/// `length` bytes that nearly always differ if texts differ.
fn fixed(text: &[u8], length: usize) -> Vec<u8> {
    let short: Option<i16> = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    match (length, short) {
        (1, _) => vec![text.first().copied().unwrap_or(0)],
        (2, Some(number)) => number.to_le_bytes().to_vec(),
        _ => {
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            hasher.finish().to_le_bytes().into_iter().cycle().take(length).collect()
        }
    }
}

/// An array's text, taken apart.
#[derive(Debug, Default)]
pub(super) struct PrintedElements {
    /// Elements of each dimension.
    pub(super) lengths: Vec<usize>,
    /// In order; `None` is NULL.
    pub(super) elements: Vec<Option<Vec<u8>>>,
}

impl PrintedElements {
    /// Reads `{1,NULL,"a b"}`, `{{1,2},{3,4}}`, `[0:1]={1,2}`.
    pub(super) fn read(text: &[u8]) -> Result<PrintedElements, ContentError> {
        let mut at = 0;
        if text.first() == Some(&b'[') {
            let bounds = text.iter().position(|&byte| byte == b'=');
            at = bounds.ok_or(ContentError::ElementText(0))? + 1;
        }
        let start = at;
        if text.get(start) != Some(&b'{') {
            return Err(ContentError::ElementText(start));
        }
        let mut read = PrintedElements::default();
        // how many there are so far of each level that is open
        let mut open: Vec<usize> = Vec::new();
        while let Some(&byte) = text.get(at) {
            let unexpected = ContentError::ElementText(at);
            if open.is_empty() && at > start {
                return Err(unexpected);
            }
            match byte {
                b'{' if open.len() == MOST_DIMENSIONS => return Err(unexpected),
                b'{' => {
                    open.push(0);
                    at += 1;
                }
                b'}' => {
                    let length = open.pop().ok_or(unexpected)?;
                    read.lengths.resize(read.lengths.len().max(open.len() + 1), 0);
                    if let Some(known) = read.lengths.get_mut(open.len()) {
                        *known = length;
                    }
                    if let Some(outer) = open.last_mut() {
                        *outer += 1;
                    }
                    at += 1;
                }
                b',' => at += 1,
                _ => {
                    let (value, quoted, end) = value(text, at, b"{},")?;
                    let null = !quoted && value == b"NULL";
                    read.elements.push((!null).then_some(value));
                    *open.last_mut().ok_or(unexpected)? += 1;
                    at = end;
                }
            }
        }
        if read.elements.is_empty() {
            read.lengths.clear();
        }
        let all = read.lengths.iter().try_fold(1usize, |all, &length| all.checked_mul(length));
        let fits = read.lengths.is_empty() || all == Some(read.elements.len());
        if open.is_empty() && fits { Ok(read) } else { Err(ContentError::ElementText(at)) }
    }
}

/// The attributes of `(1,"a ""b""",)`; nothing between commas is NULL.
fn attributes(text: &[u8]) -> Result<Vec<Option<Vec<u8>>>, ContentError> {
    if text.first() != Some(&b'(') {
        return Err(ContentError::ElementText(0));
    }
    let mut at = 1;
    let mut found = Vec::new();
    if text == b"()" {
        return Ok(found);
    }
    loop {
        let (read, quoted, end) = value(text, at, b",)")?;
        found.push((quoted || end > at).then_some(read));
        at = end + 1;
        let separator = text.get(end);
        if separator == Some(&b')') && at == text.len() {
            return Ok(found);
        }
        if separator != Some(&b',') {
            return Err(ContentError::ElementText(end));
        }
    }
}

/// The text up to one of the bytes `ends`, without quotes and escapes; whether it had quotes; the offset of its end.
fn value(text: &[u8], mut at: usize, ends: &[u8]) -> Result<(Vec<u8>, bool, usize), ContentError> {
    let mut out = Vec::new();
    let mut inside = false;
    let mut quoted = false;
    loop {
        let &byte = text.get(at).ok_or(ContentError::ElementText(at))?;
        match byte {
            b'"' if inside && text.get(at + 1) == Some(&b'"') => {
                out.push(b'"');
                at += 1;
            }
            b'"' => (inside, quoted) = (!inside, true),
            b'\\' => {
                at += 1;
                out.push(*text.get(at).ok_or(ContentError::ElementText(at))?);
            }
            other if !inside && ends.contains(&other) => return Ok((out, quoted, at)),
            other => out.push(other),
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::desc::Align;
    use crate::disk::element_parts::{walk_array, walk_row};
    use crate::disk::jsonb_parts::{PartStep, Visit, VisitedPart};
    use proptest::prelude::*;

    const INT4: ElementShape =
        ElementShape { type_oid: Oid(23), length: Length::Fixed(4), align: Align::Int };
    const INT8: ElementShape =
        ElementShape { type_oid: Oid(20), length: Length::Fixed(8), align: Align::Double };
    const TEXT: ElementShape =
        ElementShape { type_oid: Oid(25), length: Length::Varlena, align: Align::Int };
    const NUMERIC: ElementShape = ElementShape { type_oid: Oid(1700), ..TEXT };

    #[derive(Default)]
    struct Parts {
        bytes: u64,
        shown: Vec<String>,
    }

    impl Visit for Parts {
        type At = ();

        fn part(&mut self, (): (), part: &VisitedPart<'_>) -> Option<()> {
            self.bytes += part.bytes;
            let name = match part.step {
                PartStep::Key(key) => String::from_utf8_lossy(key).into_owned(),
                PartStep::Element | PartStep::Scalar => "[]".into(),
            };
            let size = part.extracted.size();
            self.shown.push(format!("{name} {} {size} at {}", part.kind.name(), part.byte));
            Some(())
        }
    }

    fn of_array(content: &[u8], shape: ElementShape) -> Result<(u64, Parts), ContentError> {
        let mut parts = Parts::default();
        let own = walk_array(content, ByteOrder::Little, shape, (), &mut parts)?;
        Ok((own, parts))
    }

    #[test]
    fn elements_and_what_holds_them_sum_to_the_array() {
        // pg_column_size of each in PostgreSQL 15, less the varlena header
        for (text, shape, size, elements) in [
            ("{}", INT4, 12, 0),
            ("{1,2,3}", INT4, 32, 3),
            ("{1,NULL,3}", INT4, 36, 2),
            ("{{1,2},{3,4}}", INT4, 44, 4),
            ("[0:1]={1,2}", INT8, 36, 2),
            ("{a,\"b c\",NULL,\"\",\"x\\\"y\"}", TEXT, 56, 4),
            ("{1.5,-0.001,NaN}", NUMERIC, 48, 3),
        ] {
            let content = array(text.as_bytes(), shape).unwrap();
            assert_eq!(content.len(), size, "{text}");
            let (own, parts) = of_array(&content, shape).unwrap();
            assert_eq!((own + parts.bytes, parts.shown.len()), (size as u64, elements), "{text}");
        }
        for text in
            ["", "{", "}", "{1", "{{1,2},{3}}", "1", "{\"a}", "[0:1]", "{{{{{{{1}}}}}}}", "{1}{2}"]
        {
            assert!(array(text.as_bytes(), INT4).is_err(), "{text}");
        }
    }

    #[test]
    fn attributes_and_the_header_sum_to_the_row() {
        let field = |name: &str, shape| CompositeField { name: name.into(), shape, dropped: false };
        let fields = [
            field("a", INT4),
            CompositeField { dropped: true, ..field("gone", TEXT) },
            field("b", TEXT),
            field("c", INT8),
            field("d", NUMERIC),
        ];
        let shown = |text: &str| {
            let content = row(text.as_bytes(), &fields).unwrap();
            let mut parts = Parts::default();
            let own = walk_row(&content, ByteOrder::Little, &fields, (), &mut parts).unwrap();
            assert_eq!(own + parts.bytes, content.len() as u64, "{text}");
            format!("{own} of {}: {}", content.len(), parts.shown.join(", "))
        };
        let long = format!("(,\"{}\",,)", "x".repeat(127));
        assert_eq!(
            shown("(1,\"say \"\"x\"\"\",2,1.5)"),
            "20 of 51: a number 4 at 20, b string 8 at 24, c number 8 at 36, d number 7 at 44"
        );
        assert_eq!(shown("(,,,)"), "20 of 20: ");
        assert_eq!(shown(&long), "20 of 151: b string 131 at 20");
        for text in ["", "(", "(1,2,3)", "1,2,3,4", "(1,2,3,4", "(1,2,3,x)"] {
            assert!(row(text.as_bytes(), &fields).is_err(), "{text}");
        }
    }

    #[test]
    fn types_whose_size_does_not_follow_from_their_text_are_named() {
        let inet = ElementShape { type_oid: Oid(869), ..TEXT };
        let message = array(b"{10.0.0.1}", inet).unwrap_err().to_string();
        assert_eq!(
            message,
            "the size of values of type 869 inside other values is not known without pages"
        );
        let bytea = ElementShape { type_oid: Oid(17), ..TEXT };
        assert_eq!(array(br#"{"\\x0102ff"}"#, bytea).unwrap().len(), 20 + 8);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parts_or_an_error(
            bytes in proptest::collection::vec(any::<u8>(), 0..120),
            dimensions in 0u8..3,
            items in 0u8..9,
            first in 0u8..6,
        ) {
            let mut bytes = bytes;
            if bytes.len() >= 20 {
                bytes[..4].copy_from_slice(&[dimensions, 0, 0, 0]);
                bytes[4..8].copy_from_slice(&[0; 4]);
                bytes[8..12].copy_from_slice(&25u32.to_le_bytes());
                bytes[12..16].copy_from_slice(&[items, 0, 0, 0]);
                bytes[18] = first * 8;
            }
            if let Ok((own, parts)) = of_array(&bytes, TEXT) {
                prop_assert_eq!(own + parts.bytes, bytes.len() as u64);
            }
            let fields: Vec<CompositeField> = (0..5)
                .map(|n| CompositeField { name: n.to_string(), shape: TEXT, dropped: false })
                .collect();
            let mut parts = Parts::default();
            if let Ok(own) = walk_row(&bytes, ByteOrder::Little, &fields, (), &mut parts) {
                prop_assert_eq!(own + parts.bytes, bytes.len() as u64);
            }
            let _ = (array(&bytes, TEXT), row(&bytes, &fields));
        }
    }
}
