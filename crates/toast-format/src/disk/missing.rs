//! A missing value (`attmissingval`): its size and content, derived from its text form or from its type's binary form.
//! A live server determines the size itself.

use crate::disk::array::{self, ArrayType};
use crate::disk::desc::{Attribute, Length, MissingValue};
use crate::disk::element_text::{PrintedElements, by_text, in_order};
use crate::disk::types::{self, SENT_AS_STORED, TypeLayout, UUID};
use crate::disk::{ByteOrder, Oid};

/// The sizes of the only element of `text`, an array literal such as `{"a \"default\""}`, as a value of `type_name`.
/// Sizes are `None` if the type's stored form cannot be derived from text.
pub(crate) fn missing_value(text: &str, type_name: &str, length: Length) -> MissingValue {
    let mut elements = array_elements(text.as_bytes()).unwrap_or_default();
    let element = if elements.len() == 1 { elements.pop().flatten() } else { None };
    let size = match length {
        Length::CString => None,
        Length::Fixed(n) => Some((u32::from(n), u32::from(n))),
        Length::Varlena => element
            .as_deref()
            .and_then(|element| content_size(element, type_name))
            .and_then(|size| u32::try_from(size).ok())
            .filter(|&size| size < 0x3FFF_FFFC)
            // An element of an array always has a 4-byte header.
            .map(|raw| (raw, raw + 4)),
    };
    let (raw_size, stored_size) = size.unzip();
    // The encoding of other characters in the database is not known here.
    let text = element.filter(|element| element.is_ascii());
    MissingValue { raw_size, stored_size, text, sent: None }
}

fn content_size(element: &[u8], type_name: &str) -> Option<usize> {
    let order = ByteOrder::Little;
    let content = match element_type(type_name) {
        // The size of an array of fixed-length elements depends only on their length.
        Some(of) => array_by_text(of, element, order, |layout, text| {
            by_text(layout.oid, text, order).or_else(|| match layout.length {
                Length::Fixed(length) => Some(vec![0; length.into()]),
                Length::Varlena | Length::CString => None,
            })
        }),
        None => match types::by_name(type_name)? {
            TypeLayout { name: "citext", .. } => return Some(element.len()),
            layout => by_text(layout.oid, element, order),
        },
    };
    content.map(|content| content.len())
}

/// The elements of a one-dimensional array's text; `None` if it is not one. NULL elements are `None`.
fn array_elements(text: &[u8]) -> Option<Vec<Option<Vec<u8>>>> {
    let read = PrintedElements::read(text).ok()?;
    (text.starts_with(b"{") && read.lengths.len() <= 1).then_some(read.elements)
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

/// A one-dimensional array from its text form; `stored` converts the text of an element.
fn array_by_text(
    element: &str,
    text: &[u8],
    order: ByteOrder,
    stored: impl Fn(&TypeLayout, &[u8]) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let layout = types::by_name(element)?;
    let texts = array_elements(text)?;
    let count = i32::try_from(texts.len()).ok()?;
    let dimensions = if count == 0 { Vec::new() } else { vec![(count, 1)] };
    let mut elements = Vec::with_capacity(texts.len());
    for text in &texts {
        elements.push(match text {
            Some(text) => Some(stored(&layout, text)?),
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
