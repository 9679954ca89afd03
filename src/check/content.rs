//! What is in a value, by its type: jsonb, text, numeric, arrays (pure).

use super::code::Code;
use super::value::Damage;
use crate::disk::desc::Attribute;
use crate::disk::jsonb_text::{InPlace, JsonbText, TextSink};
use crate::disk::numeric::Numeric;
use crate::disk::types::is_text_like;
use crate::disk::{ByteOrder, Oid};

const NUMERIC: Oid = Oid(1700);
const JSONB: Oid = Oid(3802);

/// The most dimensions of an array (`MAXDIM`).
const MAX_DIMENSIONS: u32 = 6;
/// `ArrayType` without its length word: `ndim`, `dataoffset`, `elemtype`.
const ARRAY_HEADER: usize = 12;
/// The length word, which `dataoffset` counts too.
const LENGTH_WORD: usize = 4;

/// What is wrong with the content of a value of `column`. `utf8`: whether the database's encoding
/// is UTF8, the only one that is checked.
pub fn check_content(
    column: &Attribute,
    content: &[u8],
    order: ByteOrder,
    utf8: bool,
) -> Option<Damage> {
    match column.type_oid {
        JSONB => jsonb(content, order, utf8),
        NUMERIC => Numeric::parse(content, order)
            .err()
            .map(|error| Damage::new(Code::Numeric, "a numeric", error.to_string())),
        oid if is_text_like(oid) => text(content, utf8),
        _ if column.type_name.ends_with("[]") => array(content, order),
        _ => None,
    }
}

fn text(content: &[u8], utf8: bool) -> Option<Damage> {
    let nul = content.iter().position(|&byte| byte == 0);
    let invalid = if utf8 { std::str::from_utf8(content).err() } else { None };
    let at = invalid.map(|error| error.valid_up_to()).into_iter().chain(nul).min()?;
    let byte = content.get(at).copied().unwrap_or(0);
    let expected = if utf8 { "UTF-8 without NUL" } else { "text without NUL" };
    Some(Damage::new(Code::Encoding, expected, format!("byte 0x{byte:02x} at {at} of the text")))
}

/// Looks at the pieces of a text and keeps none.
struct Pieces {
    utf8: bool,
    invalid: bool,
}

impl TextSink for Pieces {
    fn put(&mut self, piece: &[u8]) {
        self.invalid |= self.utf8 && std::str::from_utf8(piece).is_err();
    }
}

fn jsonb(content: &[u8], order: ByteOrder, utf8: bool) -> Option<Damage> {
    let mut pieces = Pieces { utf8, invalid: false };
    match JsonbText::new(&mut pieces, &mut InPlace, order).value(content) {
        Err(error) => Some(Damage::new(Code::Jsonb, "a jsonb document", error.to_string())),
        Ok(()) if pieces.invalid => {
            Some(Damage::new(Code::Encoding, "strings in UTF-8", "a string that is not"))
        }
        Ok(()) => None,
    }
}

/// `ArrayType` (`utils/array.h`).
fn array(content: &[u8], order: ByteOrder) -> Option<Damage> {
    let damage = |expected: String, found: String| Some(Damage::new(Code::Array, expected, found));
    let (Some(dimensions), Some(data), Some(element)) =
        (order.u32(content, 0), order.u32(content, 4), order.u32(content, 8))
    else {
        let found = format!("{} bytes", content.len());
        return damage(format!("an array header of {ARRAY_HEADER} bytes"), found);
    };
    if dimensions > MAX_DIMENSIONS {
        return damage(format!("at most {MAX_DIMENSIONS} dimensions"), dimensions.to_string());
    }
    if element == 0 {
        return damage("an element type".into(), "0".into());
    }
    let bounds = ARRAY_HEADER + dimensions as usize * 8;
    let mut elements: u64 = 1;
    for dimension in 0..dimensions as usize {
        let size = order.u32(content, ARRAY_HEADER + dimension * 4);
        let lower = order.u32(content, ARRAY_HEADER + (dimensions as usize + dimension) * 4);
        let (Some(size), Some(lower)) = (size, lower) else {
            return damage(format!("{bounds} bytes of bounds"), format!("{}", content.len()));
        };
        if size > i32::MAX as u32 || (lower as i32).checked_add(size as i32).is_none() {
            let found = format!("{} from {}", size as i32, lower as i32);
            return damage("a dimension's size and lower bound".into(), found);
        }
        elements = elements.saturating_mul(u64::from(size));
    }
    let elements = if dimensions == 0 { 0 } else { elements };
    // each element takes a bit of the null bitmap or a byte at least
    let room = content.len().saturating_sub(bounds) as u64;
    if elements > room.saturating_mul(8) {
        return damage(
            format!("at most {} elements in {room} bytes", room * 8),
            elements.to_string(),
        );
    }
    if data != 0 {
        let bitmap = usize::try_from(elements.div_ceil(8)).unwrap_or(usize::MAX);
        let first = (LENGTH_WORD + bounds).saturating_add(bitmap);
        let end = LENGTH_WORD + content.len();
        if (data as usize) < first || data as usize > end {
            return damage(format!("data from byte {first} to {end}"), format!("byte {data}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offline::columns::parse_list;
    use proptest::prelude::*;

    fn code(type_name: &str, content: &[u8]) -> Option<Code> {
        let desc = parse_list(&format!("c {type_name}")).unwrap();
        let column = &desc.attributes[0];
        check_content(column, content, ByteOrder::Little, true).map(|damage| damage.code)
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn contents_by_type() {
        assert_eq!(code("text", "größe".as_bytes()), None);
        assert_eq!(code("text", b"gr\xf6\xdfe"), Some(Code::Encoding));
        assert_eq!(code("text", b"a\0b"), Some(Code::Encoding));
        assert_eq!(code("bytea", b"gr\xf6\xdfe\0"), None);
        // 1.5, and with a digit over 9999
        assert_eq!(code("numeric", &[0x80, 0x80, 1, 0, 0x88, 0x13]), None);
        assert_eq!(code("numeric", &[0x80, 0x80, 1, 0, 0x88, 0x73]), Some(Code::Numeric));
        // {"a": true}
        let object = words(&[0x2000_0001, 1, 0x3000_0000]);
        assert_eq!(code("jsonb", &[&object[..], b"a"].concat()), None);
        assert_eq!(code("jsonb", &[&object[..], b"\xff"].concat()), Some(Code::Encoding));
        assert_eq!(code("jsonb", &object), Some(Code::Jsonb));
    }

    #[test]
    fn array_headers() {
        // ndim, dataoffset, elemtype, dim, lbound, elements
        let whole = [1, 0, 23, 2, 1, 7, 8];
        assert_eq!(code("int4[]", &words(&whole)), None);
        assert_eq!(code("int4[]", &words(&[0, 0, 23])), None);
        for (at, with) in [(0, 7), (2, 0), (3, u32::MAX), (3, 1 << 20), (4, i32::MAX as u32)] {
            let mut damaged = whole;
            damaged[at] = with;
            assert_eq!(code("int4[]", &words(&damaged)), Some(Code::Array), "{at}");
        }
        let mut nulls = whole;
        nulls[1] = 24;
        assert_eq!(code("int4[]", &words(&nulls)), Some(Code::Array));
        assert_eq!(code("int4[]", &[0; 11]), Some(Code::Array));
    }

    proptest! {
        #[test]
        fn any_content_is_looked_at_to_its_end(
            content in proptest::collection::vec(any::<u8>(), 0..200),
            kind in 0usize..4,
        ) {
            code(["jsonb", "text", "numeric", "text[]"][kind], &content);
        }
    }
}
