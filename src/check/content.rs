//! What is in a value of a column (pure).

use super::formats::Formats;
use super::value::Damage;
use toast_format::disk::type_kind::Types;
use toast_format::disk::{Attribute, ByteOrder};

/// What is wrong with the content of a value of `column`. `utf8`: whether the database's encoding
/// is UTF8, the only one that is checked.
pub fn check_content(
    column: &Attribute,
    content: &[u8],
    order: ByteOrder,
    utf8: bool,
    types: &Types,
) -> Option<Damage> {
    let of = types.of_column(column)?;
    Formats { types, order, utf8 }.value(&of, column.type_oid, content).err()
}

/// What is wrong with a value of fixed length. Only the types that a database adds can be wrong: enums, and domains over
/// them.
pub(super) fn check_fixed(
    column: &Attribute,
    bytes: &[u8],
    order: ByteOrder,
    types: &Types,
) -> Option<Damage> {
    let of = types.added(column.type_oid)?;
    Formats { types, order, utf8: false }.fixed(of, bytes).err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::code::Code;
    use proptest::prelude::*;
    use toast_format::disk::columns::parse_list;

    fn code(type_name: &str, content: &[u8]) -> Option<Code> {
        let desc = parse_list(&format!("c {type_name}")).unwrap();
        let column = &desc.attributes[0];
        check_content(column, content, ByteOrder::Little, true, &Types::default())
            .map(|damage| damage.code)
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
