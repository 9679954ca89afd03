//! A missing value (`attmissingval`): its size and content, derived from its text form or from its type's binary form.
//! A live server determines the size itself.

use super::hex::decode_digits;
use crate::disk::array::{self, ArrayType};
use crate::disk::desc::{Attribute, Length, MissingValue};
use crate::disk::jsonb_of_text::{jsonb, numeric_content};
use crate::disk::types::{self, SENT_AS_STORED, TypeLayout, UUID, is_text_like};
use crate::disk::{ByteOrder, Oid};

const BOOL: u32 = 16;
const BYTEA: u32 = 17;
const INT8: u32 = 20;
const INT2: u32 = 21;
const INT4: u32 = 23;
const OID: u32 = 26;
const NUMERIC: u32 = 1700;
const JSONB: u32 = 3802;

/// The sizes of the only element of `text`, an array literal such as `{"a \"default\""}`, as a value of `type_name`.
/// Sizes are `None` if the type's stored form cannot be derived from text.
pub(crate) fn missing_value(text: &str, type_name: &str, length: Length) -> MissingValue {
    let element = only_element(text);
    // The encoding of other characters in the database is not known here.
    let text = element.as_ref().filter(|element| element.is_ascii());
    let text = text.map(|text| text.as_bytes().to_vec());
    let size = match length {
        Length::CString => None,
        Length::Fixed(n) => Some((u32::from(n), u32::from(n))),
        Length::Varlena => element
            .and_then(|element| content_size(&element, type_name))
            .and_then(|size| u32::try_from(size).ok())
            .filter(|&size| size < 0x3FFF_FFFC)
            // An element of an array always has a 4-byte header.
            .map(|raw| (raw, raw + 4)),
    };
    let (raw_size, stored_size) = size.unzip();
    MissingValue { raw_size, stored_size, text, sent: None }
}

fn content_size(element: &str, type_name: &str) -> Option<usize> {
    let order = ByteOrder::Little;
    let content = match element_type(type_name) {
        // The size of an array of fixed-length elements depends only on their length.
        Some(of) => array_by_text(of, element.as_bytes(), order, |layout, text| {
            by_text(layout.oid, text, order).or_else(|| match layout.length {
                Length::Fixed(length) => Some(vec![0; length.into()]),
                Length::Varlena | Length::CString => None,
            })
        }),
        None => match types::by_name(type_name)? {
            TypeLayout { name: "citext", .. } => return Some(element.len()),
            layout => by_text(layout.oid, element.as_bytes(), order),
        },
    };
    content.map(|content| content.len())
}

/// The unquoted element of an array literal with one element.
fn only_element(text: &str) -> Option<String> {
    let mut elements = array_elements(text)?;
    if elements.len() == 1 { elements.pop()? } else { None }
}

/// The elements of a one-dimensional array literal (`array_in`); `None` if the text is not one. NULL elements are
/// `None`.
fn array_elements(text: &str) -> Option<Vec<Option<String>>> {
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut elements = Vec::new();
    let mut element = String::new();
    let mut quoted = false;
    let mut in_quotes = false;
    let mut chars = inner.chars();
    if inner.trim().is_empty() {
        return Some(elements);
    }
    while let Some(c) = chars.next() {
        match c {
            '\\' => element.push(chars.next()?),
            '"' => {
                in_quotes = !in_quotes;
                quoted = true;
            }
            ',' if !in_quotes => {
                elements.push(unless_null(std::mem::take(&mut element), quoted));
                quoted = false;
            }
            '{' | '}' if !in_quotes => return None,
            c => element.push(c),
        }
    }
    if in_quotes {
        return None;
    }
    elements.push(unless_null(element, quoted));
    Some(elements)
}

fn unless_null(element: String, quoted: bool) -> Option<String> {
    let is_null = !quoted && element.eq_ignore_ascii_case("null");
    (!is_null).then_some(element)
}

/// Returns `int4` for `int4[]` and for `_int4`.
fn element_type(type_name: &str) -> Option<&str> {
    type_name.strip_suffix("[]").or_else(|| type_name.strip_prefix('_'))
}

/// The content of the column's missing value as stored in a row, without a header; `None` if it cannot be derived.
pub fn content(column: &Attribute, order: ByteOrder) -> Option<Vec<u8>> {
    let missing = column.missing.as_ref()?;
    let element = element_type(&column.type_name);
    let by_text = missing.text.as_deref().and_then(|text| match element {
        Some(element) => {
            array_by_text(element, text, order, |of, text| by_text(of.oid, text, order))
        }
        None => by_text(column.type_oid, text, order),
    });
    by_text.or_else(|| {
        let sent = missing.sent.as_deref()?;
        if element.is_some() {
            let (shape, elements) = array::sent(sent)?;
            let mut values = Vec::with_capacity(elements.len());
            for element in elements {
                values.push(match element {
                    Some(element) => Some(by_sent(shape.element, element, order)?),
                    None => None,
                });
            }
            shape.content(&values, order)
        } else {
            by_sent(column.type_oid, sent, order)
        }
    })
}

/// A value from its text form. Floats are not supported, because they may be rounded (`extra_float_digits`), nor are
/// dates, whose format depends on the session (`DateStyle`, `TimeZone`).
fn by_text(type_oid: Oid, bytes: &[u8], order: ByteOrder) -> Option<Vec<u8>> {
    if is_text_like(type_oid) {
        return Some(bytes.to_vec());
    }
    let text = std::str::from_utf8(bytes).ok()?;
    let big_endian = match type_oid.0 {
        // These values are built only in little-endian order.
        JSONB if order == ByteOrder::Little => return jsonb(bytes).ok(),
        NUMERIC if order == ByteOrder::Little => return numeric_content(bytes),
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

/// A one-dimensional array from its text form; `stored` converts the text of an element.
fn array_by_text(
    element: &str,
    text: &[u8],
    order: ByteOrder,
    stored: impl Fn(&TypeLayout, &[u8]) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let layout = types::by_name(element)?;
    let texts = array_elements(std::str::from_utf8(text).ok()?)?;
    let count = i32::try_from(texts.len()).ok()?;
    let dimensions = if count == 0 { Vec::new() } else { vec![(count, 1)] };
    let mut elements = Vec::with_capacity(texts.len());
    for text in &texts {
        elements.push(match text {
            Some(text) => Some(stored(&layout, text.as_bytes())?),
            None => None,
        });
    }
    ArrayType { element: layout.oid, dimensions }.content(&elements, order)
}

/// A value from its type's binary form.
fn by_sent(type_oid: Oid, sent: &[u8], order: ByteOrder) -> Option<Vec<u8>> {
    if !SENT_AS_STORED.contains(&type_oid.0) {
        return None;
    }
    let layout = types::by_oid(type_oid)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(text: &str, type_name: &str) -> Option<u32> {
        missing_value(text, type_name, Length::Varlena).stored_size
    }

    #[test]
    fn sizes_as_pg_column_size_answers_on_postgresql_15() {
        assert_eq!(stored("{\"added with a default\"}", "text"), Some(24));
        assert_eq!(stored(r#"{"a \"b\" \\ c"}"#, "text"), Some(13));
        assert_eq!(stored("{12.345}", "numeric"), Some(10));
        assert_eq!(stored("{0}", "numeric"), Some(6));
        assert_eq!(stored("{-10000}", "numeric"), Some(8));
        assert_eq!(stored("{0.00001}", "numeric(10,5)"), Some(8));
        assert_eq!(stored("{NaN}", "numeric"), Some(6));
        assert_eq!(stored(r#"{"{1,2,3,4,5,6}"}"#, "int4[]"), Some(48));
        assert_eq!(stored(r#"{"{1,NULL,3}"}"#, "_int4"), Some(40));
        assert_eq!(stored(r#"{"{a,bb}"}"#, "text[]"), Some(40));
        assert_eq!(stored(r#"{"{}"}"#, "text[]"), Some(16));
        assert_eq!(stored(r#"{"\\x010203"}"#, "bytea"), Some(7));
        assert_eq!(stored(r#"{"{\"a\": [1, 2]}"}"#, "jsonb"), Some(48));
        assert_eq!(stored(r#"{"{\"b\": \"é\", \"aa\": -1.5e2}"}"#, "jsonb"), None);
        assert_eq!(
            stored(r#"{"{\"b\": \"é\", \"aa\": [true, null, 150.25]}"}"#, "jsonb"),
            Some(58)
        );
        assert_eq!(stored("{12.5}", "jsonb"), Some(22));
        assert_eq!(stored(r#"{"\"x\""}"#, "jsonb"), Some(13));
        assert_eq!(missing_value("{7}", "int8", Length::Fixed(8)).stored_size, Some(8));
    }

    #[test]
    fn what_does_not_follow_from_text_stays_unknown() {
        assert_eq!(stored(r#"{"{\"a\": 1"}"#, "jsonb"), None);
        assert_eq!(stored("{(1)}", "tsvector"), None);
        assert_eq!(stored("{a,b}", "text"), None);
        assert_eq!(stored("{\"a", "text"), None);
        assert_eq!(stored("{1e5}", "numeric"), None);
        assert_eq!(stored("", "text"), None);
        let text = |text: &str| missing_value(text, "text", Length::Varlena).text;
        assert_eq!(text("{\"a b\"}").as_deref(), Some(b"a b".as_slice()));
        assert_eq!(text("{é}"), None);
    }
}
