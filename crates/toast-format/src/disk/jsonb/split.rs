//! A document without some of the keys of its root, as `doc - keys` makes it, and what these keys hold
//! (`jsonb_delete_array`, `jsonb_object_field`, `convertJsonbObject`, `JsonbValueToJsonb`).

use super::{Container, ContainerKind, HAS_OFFSET, JsonbError};
use crate::disk::ByteOrder;
use crate::disk::jsonb_of_text::{OBJECT, OpenContainer};

/// An entry's type, in place.
const TYPE_MASK: u32 = 0x7000_0000;
/// `JB_FARRAY | JB_FSCALAR` and one element.
const SCALAR_OF_ONE: u32 = 0x5000_0001;

/// The type of a value in a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// A string, by its bytes.
    String,
    /// A number, by its varlena.
    Number,
    /// `true` or `false`, in its entry alone.
    Bool,
    /// `null` of JSON, in its entry alone.
    Null,
    /// An object or an array.
    Container,
}

/// The value of a key, borrowed from its document.
#[derive(Debug, Clone, Copy)]
pub struct RootValue<'a> {
    /// The type of the value.
    pub kind: ValueKind,
    /// The entry's type bits.
    class: u32,
    /// A string's bytes, a numeric with its varlena header, or a container; nothing for the others.
    pub bytes: &'a [u8],
    order: ByteOrder,
}

impl RootValue<'_> {
    /// The content of the datum that `doc -> key` returns, without varlena header.
    pub fn jsonb(&self) -> Vec<u8> {
        if self.kind == ValueKind::Container {
            return self.bytes.to_vec();
        }
        let mut out = Vec::with_capacity(8 + self.bytes.len());
        put(&mut out, SCALAR_OF_ONE, self.order);
        put(&mut out, self.class | HAS_OFFSET | self.bytes.len() as u32, self.order);
        out.extend_from_slice(self.bytes);
        out
    }

    /// The size of [`RootValue::jsonb`] in bytes.
    pub fn jsonb_size(&self) -> usize {
        if self.kind == ValueKind::Container { self.bytes.len() } else { 8 + self.bytes.len() }
    }
}

/// A document from which keys were taken out.
#[derive(Debug, Clone)]
pub struct Split<'a> {
    /// The document without these keys: the content of its datum, without varlena header.
    pub rest: Vec<u8>,
    /// The values of the keys asked for, in that order; `None` if the document does not have the key.
    pub values: Vec<Option<RootValue<'a>>>,
}

/// A pair of the root.
struct RootPair<'a> {
    key: &'a [u8],
    value: RootValue<'a>,
}

/// The pairs of the root, in order; `None` where it is no object, or one that only a pluggable toaster writes.
fn pairs(
    content: &[u8],
    order: ByteOrder,
) -> Result<Option<impl Iterator<Item = Result<RootPair<'_>, JsonbError>>>, JsonbError> {
    let root = Container::parse(content, order)?;
    if root.kind() != ContainerKind::Object {
        return Ok(None);
    }
    // the items find the same values, and errors in them
    let mut items = root.items()?;
    let mut start = items.value_start;
    let mut index = root.count();
    Ok(Some(std::iter::from_fn(move || {
        let next = items.next()?;
        Some(next.and_then(|(key, _)| {
            let end = root.end(index, start)?;
            let word = root.entry(index);
            let (kind, from) = match word >> 28 & 7 {
                0 => (ValueKind::String, start),
                1 => (ValueKind::Number, start.next_multiple_of(4)),
                2 | 3 => (ValueKind::Bool, end),
                4 => (ValueKind::Null, end),
                _ => (ValueKind::Container, start.next_multiple_of(4)),
            };
            let bytes = root.data.get(from..end).unwrap_or(&[]);
            start = end;
            index += 1;
            let value = RootValue { kind, class: word & TYPE_MASK, bytes, order };
            Ok(RootPair { key: key.unwrap_or(&[]), value })
        }))
    })))
}

/// The keys at the root, each with its value; none where it is no object.
pub fn root_keys(
    content: &[u8],
    order: ByteOrder,
) -> Result<Vec<(&[u8], RootValue<'_>)>, JsonbError> {
    let Some(pairs) = pairs(content, order)? else { return Ok(Vec::new()) };
    pairs.map(|pair| pair.map(|pair| (pair.key, pair.value))).collect()
}

/// Takes keys out of a document; `None` where its root is no object.
///
/// # Errors
/// If the root is damaged. Containers below it are not checked.
pub fn without<'a>(
    content: &'a [u8],
    order: ByteOrder,
    keys: &[impl AsRef<[u8]>],
) -> Result<Option<Split<'a>>, JsonbError> {
    let Some(pairs) = pairs(content, order)? else { return Ok(None) };
    let mut values = vec![None; keys.len()];
    let mut left = Vec::new();
    for pair in pairs {
        let pair = pair?;
        let asked = keys.iter().position(|key| key.as_ref() == pair.key);
        match asked.and_then(|at| values.get_mut(at)) {
            Some(value) => *value = Some(pair.value),
            None => left.push(pair),
        }
    }
    Ok(Some(Split { rest: object(&left, order), values }))
}

/// The object with these pairs.
fn object(pairs: &[RootPair<'_>], order: ByteOrder) -> Vec<u8> {
    let mut object = OpenContainer { kind: OBJECT, ..OpenContainer::default() };
    for RootPair { key, value } in pairs {
        object.keys.extend_from_slice(key);
        object.key_ends.push(object.keys.len());
        object.data.extend_from_slice(value.bytes);
        object.value(value.class);
    }
    object.stored(order)
}

fn put(out: &mut Vec<u8>, word: u32, order: ByteOrder) {
    out.extend_from_slice(&order.bytes(word));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::jsonb_text::to_text;
    use proptest::prelude::*;

    /// `{"a": true, "b": "x"}`.
    fn document() -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [OBJECT | 2, HAS_OFFSET | 1, 1, 0x3000_0000, 1] {
            put(&mut bytes, word, ByteOrder::Little);
        }
        bytes.extend_from_slice(b"abx");
        bytes
    }

    fn text(content: &[u8]) -> String {
        String::from_utf8(to_text(content, ByteOrder::Little).unwrap()).unwrap()
    }

    #[test]
    fn keys_leave_and_give_their_values() {
        let document = document();
        assert_eq!(text(&document), r#"{"a": true, "b": "x"}"#);
        let split = without(&document, ByteOrder::Little, &["b", "c", "a"]).unwrap().unwrap();
        assert_eq!(text(&split.rest), "{}");
        let values: Vec<_> = split
            .values
            .iter()
            .map(|v| v.map(|v| (v.kind, text(&v.jsonb()), v.jsonb_size())))
            .collect();
        let string = Some((ValueKind::String, "\"x\"".to_owned(), 9));
        assert_eq!(values, [string, None, Some((ValueKind::Bool, "true".to_owned(), 8))]);
        let split = without(&document, ByteOrder::Little, &["a"]).unwrap().unwrap();
        assert_eq!(text(&split.rest), r#"{"b": "x"}"#);
        // a document without any of them is what it was
        assert_eq!(without(&document, ByteOrder::Little, &["z"]).unwrap().unwrap().rest, document);
        let keys: Vec<_> = root_keys(&document, ByteOrder::Little).unwrap();
        assert_eq!(keys.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [b"a", b"b"]);
    }

    #[test]
    fn what_is_no_object_has_no_keys() {
        let mut scalar = Vec::new();
        put(&mut scalar, SCALAR_OF_ONE, ByteOrder::Little);
        put(&mut scalar, 0x4000_0000, ByteOrder::Little);
        assert!(without(&scalar, ByteOrder::Little, &["a"]).unwrap().is_none());
        assert!(root_keys(&scalar, ByteOrder::Little).unwrap().is_empty());
        assert!(without(b"\x01\x02", ByteOrder::Little, &["a"]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_apart_or_refused(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            count in 0u32..20,
            key in prop::collection::vec(any::<u8>(), 0..3),
        ) {
            if let Some(header) = bytes.first_chunk_mut::<4>() {
                *header = (OBJECT | count).to_le_bytes();
            }
            if let Ok(Some(split)) = without(&bytes, ByteOrder::Little, &[key]) {
                prop_assert!(split.rest.len() <= bytes.len() + 3 * count as usize);
            }
        }
    }
}
