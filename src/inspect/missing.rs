//! What a missing value is in binary, from its text form, or from what its type's function sends.

use crate::disk::array::{self, ArrayType};
use crate::disk::desc::{Attribute, Length};
use crate::disk::jsonb_of_text::{jsonb, numeric_content};
use crate::disk::types::{self, SENT_AS_STORED, UUID, is_text_like};
use crate::disk::{ByteOrder, Oid};
use crate::offline::columns::{array_elements, element_type};

const BOOL: u32 = 16;
const BYTEA: u32 = 17;
const INT8: u32 = 20;
const INT2: u32 = 21;
const INT4: u32 = 23;
const OID: u32 = 26;
const NUMERIC: u32 = 1700;
const JSONB: u32 = 3802;

/// The content of the column's missing value as a row would hold it, without a header; `None` if it does not
/// follow from what is known of it.
pub(super) fn content(column: &Attribute, order: ByteOrder) -> Option<Vec<u8>> {
    let missing = column.missing.as_ref()?;
    let element = element_type(&column.type_name);
    let by_text = missing.text.as_deref().and_then(|text| match element {
        Some(element) => array_by_text(element, text, order),
        None => by_text(column.type_oid, text, order),
    });
    by_text.or_else(|| {
        let sent = missing.sent.as_deref()?;
        if element.is_some() {
            let (shape, elements) = array::sent(sent)?;
            let stored = |element: Option<&[u8]>| match element {
                Some(element) => by_sent(shape.element, element, order).map(Some),
                None => Some(None),
            };
            let elements = elements.into_iter().map(stored).collect::<Option<Vec<_>>>()?;
            shape.content(&elements, order)
        } else {
            by_sent(column.type_oid, sent, order)
        }
    })
}

/// A value by its text. Not a float, which may be rounded (`extra_float_digits`), nor a date, which is written as
/// the session has it (`DateStyle`, `TimeZone`).
fn by_text(type_oid: Oid, bytes: &[u8], order: ByteOrder) -> Option<Vec<u8>> {
    if is_text_like(type_oid) {
        return Some(bytes.to_vec());
    }
    let text = std::str::from_utf8(bytes).ok()?;
    let big_endian = match type_oid.0 {
        // they are made as most machines store them
        JSONB if order == ByteOrder::Little => return jsonb(bytes).ok(),
        NUMERIC if order == ByteOrder::Little => return numeric_content(bytes),
        BYTEA => return crate::offline::hex::decode_digits(text.strip_prefix("\\x")?).ok(),
        BOOL => vec![u8::from(text == "t")],
        INT2 => text.parse::<i16>().ok()?.to_be_bytes().to_vec(),
        INT4 => text.parse::<i32>().ok()?.to_be_bytes().to_vec(),
        INT8 => text.parse::<i64>().ok()?.to_be_bytes().to_vec(),
        OID => text.parse::<u32>().ok()?.to_be_bytes().to_vec(),
        _ => return None,
    };
    Some(in_order(big_endian, order))
}

/// An array of one dimension by its text.
fn array_by_text(element: &str, text: &[u8], order: ByteOrder) -> Option<Vec<u8>> {
    let element = types::by_name(element)?.oid;
    let texts = array_elements(std::str::from_utf8(text).ok()?)?;
    let count = i32::try_from(texts.len()).ok()?;
    let dimensions = if count == 0 { Vec::new() } else { vec![(count, 1)] };
    let stored = |text: &Option<String>| match text {
        Some(text) => by_text(element, text.as_bytes(), order).map(Some),
        None => Some(None),
    };
    let elements = texts.iter().map(stored).collect::<Option<Vec<_>>>()?;
    ArrayType { element, dimensions }.content(&elements, order)
}

/// A value by what its type's function sends.
fn by_sent(type_oid: Oid, sent: &[u8], order: ByteOrder) -> Option<Vec<u8>> {
    let layout = types::by_oid(type_oid).filter(|_| SENT_AS_STORED.contains(&type_oid.0))?;
    let whole = layout.length == Length::Fixed(u16::try_from(sent.len()).ok()?);
    whole.then(|| match type_oid.0 {
        UUID => sent.to_vec(),
        _ => in_order(sent.to_vec(), order),
    })
}

fn in_order(mut big_endian: Vec<u8>, order: ByteOrder) -> Vec<u8> {
    if order == ByteOrder::Little {
        big_endian.reverse();
    }
    big_endian
}
