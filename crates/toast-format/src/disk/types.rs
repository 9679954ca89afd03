//! Length, alignment and storage of the types that come with PostgreSQL (`pg_type.dat`) and of
//! widespread extensions.

use super::Oid;
use super::desc::{Align, Length, Storage};

/// The OID of `jsonb`.
pub const JSONB: Oid = Oid(3802);

/// How a type's values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeLayout {
    /// The type's name (`typname`).
    pub name: &'static str,
    /// The type's OID; 0 for types of extensions, whose OIDs differ between databases.
    pub oid: Oid,
    /// Bytes of its values (`typlen`).
    pub length: Length,
    /// Alignment of its values (`typalign`).
    pub align: Align,
    /// Default storage of its columns (`typstorage`).
    pub storage: Storage,
}

const FIXED_1: (Length, Align, Storage) = (Length::Fixed(1), Align::Char, Storage::Plain);
const FIXED_2: (Length, Align, Storage) = (Length::Fixed(2), Align::Short, Storage::Plain);
const FIXED_4: (Length, Align, Storage) = (Length::Fixed(4), Align::Int, Storage::Plain);
const FIXED_8: (Length, Align, Storage) = (Length::Fixed(8), Align::Double, Storage::Plain);
const TEXT: (Length, Align, Storage) = (Length::Varlena, Align::Int, Storage::Extended);
const TEXT_D: (Length, Align, Storage) = (Length::Varlena, Align::Double, Storage::Extended);
const MAIN: (Length, Align, Storage) = (Length::Varlena, Align::Int, Storage::Main);
const PLAIN: (Length, Align, Storage) = (Length::Varlena, Align::Int, Storage::Plain);

const fn fixed(n: u16, align: Align) -> (Length, Align, Storage) {
    (Length::Fixed(n), align, Storage::Plain)
}

#[rustfmt::skip]
const TYPES: &[(&str, u32, (Length, Align, Storage))] = &[
    ("bool", 16, FIXED_1), ("bytea", 17, TEXT), ("char", 18, FIXED_1), ("name", 19, fixed(64, Align::Char)),
    ("int8", 20, FIXED_8), ("int2", 21, FIXED_2), ("int2vector", 22, PLAIN), ("int4", 23, FIXED_4),
    ("regproc", 24, FIXED_4), ("text", 25, TEXT), ("oid", 26, FIXED_4), ("tid", 27, fixed(6, Align::Short)),
    ("xid", 28, FIXED_4), ("cid", 29, FIXED_4), ("oidvector", 30, PLAIN), ("json", 114, TEXT), ("xml", 142, TEXT),
    ("point", 600, fixed(16, Align::Double)), ("lseg", 601, fixed(32, Align::Double)), ("path", 602, TEXT_D),
    ("box", 603, fixed(32, Align::Double)), ("polygon", 604, TEXT_D), ("line", 628, fixed(24, Align::Double)),
    ("cidr", 650, MAIN), ("float4", 700, FIXED_4), ("float8", 701, FIXED_8), ("circle", 718, fixed(24, Align::Double)),
    ("macaddr8", 774, fixed(8, Align::Int)), ("money", 790, FIXED_8), ("macaddr", 829, fixed(6, Align::Int)),
    ("inet", 869, MAIN), ("aclitem", 1033, fixed(16, Align::Double)), ("bpchar", 1042, TEXT), ("varchar", 1043, TEXT),
    ("date", 1082, FIXED_4), ("time", 1083, FIXED_8), ("timestamp", 1114, FIXED_8), ("timestamptz", 1184, FIXED_8),
    ("interval", 1186, fixed(16, Align::Double)), ("timetz", 1266, fixed(12, Align::Double)), ("bit", 1560, TEXT),
    ("varbit", 1562, TEXT), ("numeric", 1700, MAIN), ("refcursor", 1790, TEXT), ("regprocedure", 2202, FIXED_4),
    ("regoper", 2203, FIXED_4), ("regoperator", 2204, FIXED_4), ("regclass", 2205, FIXED_4), ("regtype", 2206, FIXED_4),
    ("uuid", 2950, fixed(16, Align::Char)), ("txid_snapshot", 2970, TEXT_D), ("pg_lsn", 3220, FIXED_8),
    ("tsvector", 3614, TEXT), ("tsquery", 3615, PLAIN), ("gtsvector", 3642, PLAIN), ("regconfig", 3734, FIXED_4),
    ("regdictionary", 3769, FIXED_4), ("jsonb", 3802, TEXT), ("int4range", 3904, TEXT), ("numrange", 3906, TEXT),
    ("tsrange", 3908, TEXT_D), ("tstzrange", 3910, TEXT_D), ("daterange", 3912, TEXT), ("int8range", 3926, TEXT_D),
    ("jsonpath", 4072, TEXT), ("regnamespace", 4089, FIXED_4), ("regrole", 4096, FIXED_4), ("regcollation", 4191, FIXED_4),
    ("int4multirange", 4451, TEXT), ("nummultirange", 4532, TEXT), ("tsmultirange", 4533, TEXT_D),
    ("tstzmultirange", 4534, TEXT_D), ("datemultirange", 4535, TEXT), ("int8multirange", 4536, TEXT_D),
    ("pg_snapshot", 5038, TEXT_D), ("xid8", 5069, FIXED_8),
    // extensions
    ("citext", 0, TEXT), ("hstore", 0, TEXT), ("ltree", 0, TEXT), ("cube", 0, (Length::Varlena, Align::Double, Storage::Plain)),
    ("geometry", 0, (Length::Varlena, Align::Double, Storage::Main)),
    ("geography", 0, (Length::Varlena, Align::Double, Storage::Main)),
    ("vector", 0, (Length::Varlena, Align::Int, Storage::External)),
    ("halfvec", 0, (Length::Varlena, Align::Int, Storage::External)),
];

/// SQL's names for types whose `typname` differs.
const ALIASES: &[(&str, &str)] = &[
    ("boolean", "bool"),
    ("smallint", "int2"),
    ("integer", "int4"),
    ("int", "int4"),
    ("bigint", "int8"),
    ("serial", "int4"),
    ("bigserial", "int8"),
    ("smallserial", "int2"),
    ("real", "float4"),
    ("double precision", "float8"),
    ("float", "float8"),
    ("decimal", "numeric"),
    ("character varying", "varchar"),
    ("character", "bpchar"),
    ("\"char\"", "char"),
    ("bit varying", "varbit"),
    ("timestamp without time zone", "timestamp"),
    ("timestamp with time zone", "timestamptz"),
    ("time without time zone", "time"),
    ("time with time zone", "timetz"),
];

fn layout(
    &(name, oid, (length, align, storage)): &(&'static str, u32, (Length, Align, Storage)),
) -> TypeLayout {
    TypeLayout { name, oid: Oid(oid), length, align, storage }
}

/// The layout of a type by the name that SQL or `pg_type` gives it.
///
/// Takes type modifiers (`varchar(20)`, `timestamp(3) with time zone`), `pg_catalog.` in front,
/// arrays as `int4[]` or `_int4`. `char` means `character(1)`, as in SQL; the one-byte type is
/// `"char"`. `None` for an unknown type.
pub fn by_name(name: &str) -> Option<TypeLayout> {
    let name = name.trim();
    let name = name.strip_prefix("pg_catalog.").unwrap_or(name);
    let plain = without_modifier(&name.to_ascii_lowercase());
    if let Some(element) = plain.strip_suffix(']') {
        let element = element.trim_end_matches(|c: char| c.is_ascii_digit()).strip_suffix('[')?;
        return array_of(element);
    }
    if let Some(element) = plain.strip_prefix('_') {
        return array_of(element);
    }
    let plain = if plain == "char" { "bpchar" } else { plain.as_str() };
    let plain = ALIASES.iter().find(|(alias, _)| *alias == plain).map_or(plain, |(_, name)| name);
    TYPES.iter().find(|(name, ..)| *name == plain).map(layout)
}

/// The layout of a built-in type by its OID. Arrays are not listed: their OIDs follow no rule.
pub fn by_oid(oid: Oid) -> Option<TypeLayout> {
    TYPES.iter().find(|&&(_, o, _)| o != 0 && o == oid.0).map(layout)
}

/// An array is a varlena with the alignment of its elements, at least `i`.
fn array_of(element: &str) -> Option<TypeLayout> {
    let element = by_name(element)?;
    let align = if element.align == Align::Double { Align::Double } else { Align::Int };
    Some(TypeLayout {
        name: "array",
        oid: Oid(0),
        length: Length::Varlena,
        align,
        storage: Storage::Extended,
    })
}

/// Removes `(...)` and folds the spaces around it.
fn without_modifier(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut depth = 0usize;
    for c in name.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            c if depth == 0 => out.push(c),
            _ => {}
        }
    }
    out.split_whitespace().collect::<Vec<_>>().join(" ").replace(" [", "[")
}

/// `uuid`, whose bytes have no order.
pub(crate) const UUID: u32 = 2950;

/// Types of fixed length whose functions send what is stored, in network byte order (`float8send`, `timestamp_send`):
/// `bool`, `int8`, `int2`, `int4`, `oid`, `float4`, `float8`, `date`, `time`, `timestamp`, `timestamptz` and `uuid`.
pub const SENT_AS_STORED: [u32; 12] = [16, 20, 21, 23, 26, 700, 701, 1082, 1083, 1114, 1184, UUID];

/// Whether `octet_length` of a value of this type is its content's size, as for text and bytea.
pub fn is_bytes_like(oid: Oid) -> bool {
    // bytea, text, bpchar, varchar
    matches!(oid.0, 17 | 25 | 1042 | 1043)
}

/// Whether a value's text form is its content (text, varchar, char(n), json, xml).
pub fn is_text_like(oid: Oid) -> bool {
    matches!(oid.0, 25 | 114 | 142 | 1042 | 1043)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_sql_and_pg_type_have_them() {
        let find = |name| by_name(name).map(|t| (t.name, t.length.attlen(), t.align.to_char()));
        assert_eq!(find("integer"), Some(("int4", 4, 'i')));
        assert_eq!(find("character varying(20)"), Some(("varchar", -1, 'i')));
        assert_eq!(find("timestamp(3) with time zone"), Some(("timestamptz", 8, 'd')));
        assert_eq!(find("pg_catalog.int8range"), Some(("int8range", -1, 'd')));
        assert_eq!(find("char"), Some(("bpchar", -1, 'i')));
        assert_eq!(find("char(10)"), Some(("bpchar", -1, 'i')));
        assert_eq!(find("\"char\""), Some(("char", 1, 'c')));
        assert_eq!(find("int8[]"), Some(("array", -1, 'd')));
        assert_eq!(find("_text"), Some(("array", -1, 'i')));
        assert_eq!(find("numeric(10,2)[3]"), Some(("array", -1, 'i')));
        assert_eq!(find("mytype"), None);
        assert_eq!(find("[]"), None);
        assert_eq!(by_oid(Oid(3802)).map(|t| t.name), Some("jsonb"));
        assert_eq!(by_oid(Oid(0)), None);
    }
}
