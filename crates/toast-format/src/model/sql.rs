//! SQL text: identifiers and literals, always quoted, and expressions that make a fresh datum of a stored value.
//!
//! `SET c = c` keeps the TOAST pointer and the compressed datum. The expressions built here ([`Shape::force`]) detoast
//! the value completely without changing its content.

use crate::codec::Method;

/// Whether a character controls the terminal, has no width, ends a line, or changes the direction of writing.
pub fn is_unprintable(c: char) -> bool {
    let is_unseen = matches!(c, '\u{AD}' | '\u{61C}' | '\u{180E}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}' | '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}' | '\u{E0000}'..='\u{E007F}');
    c.is_control() || is_unseen
}

/// An identifier in double quotes.
pub fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `schema.name` with both parts quoted.
pub fn quote_qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", quote_identifier(schema), quote_identifier(name))
}

/// `schema.name` for people: quoted only where a dot in one of them would make two relations look alike.
pub fn shown_qualified(schema: &str, name: &str) -> String {
    let shown =
        |part: &str| if part.contains('.') { quote_identifier(part) } else { part.to_owned() };
    format!("{}.{}", shown(schema), shown(name))
}

/// A name that [`shown_qualified`] has made, without the schema public: narrow terminals have no room for what does not
/// tell names apart.
pub fn without_public(shown: &str) -> &str {
    shown.strip_prefix("public.").unwrap_or(shown)
}

/// The maximum length of a name in bytes (`NAMEDATALEN - 1`). The server truncates longer ones.
pub const LONGEST_NAME: usize = 63;

/// The beginning of a name, truncated to at most `room` bytes as the server does, between characters.
pub fn truncated(name: &str, room: usize) -> &str {
    let mut end = name.len().min(room);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.get(..end).unwrap_or_default()
}

/// A string literal, safe with either setting of `standard_conforming_strings`.
pub fn quote_literal(text: &str) -> String {
    let escaped = text.replace('\'', "''");
    if escaped.contains('\\') {
        format!("E'{}'", escaped.replace('\\', "\\\\"))
    } else {
        format!("'{escaped}'")
    }
}

/// The condition that rows of a table with the alias `t` are in these blocks.
pub fn in_blocks(blocks: &std::ops::Range<u32>) -> String {
    format!("t.ctid >= '({},0)' AND t.ctid < '({},0)'", blocks.start, blocks.end)
}

/// An expression for a fresh datum of the value of an SQL expression. `SET c = c` would keep the TOAST pointer or the
/// compressed datum.
pub fn fresh(value: &str) -> String {
    format!("(ARRAY[{value}])[1]")
}

/// Like [`fresh`], for an array.
pub fn fresh_array(value: &str) -> String {
    // array_cat would turn NULL into an empty array.
    format!("CASE WHEN {value} IS NOT NULL THEN pg_catalog.array_cat({value}, '{{}}') END")
}

/// Whether an array has one dimension with subscripts from 1, as `ARRAY` makes it.
fn is_simple_array(value: &str) -> String {
    format!("pg_catalog.array_ndims({value}) = 1 AND pg_catalog.array_lower({value}, 1) = 1")
}

/// A column's type, as far as making a fresh datum depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// A type of fixed length or a C string, which is never toasted.
    Fixed,
    /// A varlena type that has an array type.
    Scalar,
    /// An array of anything but composite values.
    Array,
    /// An array of composite values, which may contain compressed fields, or a domain over such an array.
    Rows {
        /// The array type's quoted, schema-qualified name.
        type_name: String,
        /// The OID of that type, by which another one with its name is told apart.
        type_oid: u32,
        /// The shape of its elements.
        element: Box<Shape>,
        /// Whether reading such an array from text runs only the server's own functions. If not, fields in arrays of
        /// several dimensions, or with subscripts that do not begin at 1, are left as they are.
        is_built_in: bool,
    },
    /// `bytea` that a pluggable toaster may have stored.
    Bytea,
    /// `jsonb` that a pluggable toaster may have stored.
    Jsonb,
    /// A composite type, or a domain over one.
    Composite {
        /// The composite type's quoted, schema-qualified name.
        type_name: String,
        /// The OID of that type, by which another one with its name is told apart.
        type_oid: u32,
        /// Its fields in order, without dropped ones.
        fields: Vec<Field>,
    },
}

/// A field of a composite type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The field's name, not quoted.
    pub name: String,
    /// The shape of the field's type.
    pub shape: Shape,
}

impl Shape {
    /// The expression that makes a fresh datum of `value`, an SQL expression of this type.
    pub fn force(&self, value: &str) -> String {
        match self {
            Shape::Fixed => value.to_owned(),
            Shape::Scalar => fresh(value),
            // Pluggable toasters would keep their pointer with a simpler expression.
            Shape::Bytea => format!("pg_catalog.substr({value}, 1)"),
            Shape::Jsonb => format!("({value}::pg_catalog.text)::pg_catalog.jsonb"),
            Shape::Array => fresh_array(value),
            Shape::Rows { type_name, element, is_built_in, .. } => {
                let other = if *is_built_in {
                    // A cast by way of text could be a function of the type's owner; this way, there are no casts.
                    format!(
                        "CASE WHEN {value} IS NOT NULL THEN (SELECT r.v FROM pg_catalog.json_to_record(\
                         pg_catalog.json_build_object('v', pg_catalog.format('%s', {value}))) \
                         AS r(v {type_name})) END"
                    )
                } else {
                    fresh_array(value)
                };
                format!(
                    "CASE WHEN {} THEN ARRAY(SELECT {} FROM (SELECT \
                     pg_catalog.unnest({value}) AS e) AS r)::{type_name} ELSE {other} END",
                    is_simple_array(value),
                    element.force("r.e"),
                )
            }
            Shape::Composite { type_name, fields, .. } => {
                let fields: Vec<String> =
                    fields.iter().map(|f| f.shape.force(&f.of_row(value))).collect();
                // IS NULL would also be true for a row of NULLs, which is not NULL.
                format!(
                    "CASE WHEN {value} IS NOT DISTINCT FROM NULL THEN NULL ELSE \
                     ROW({})::{type_name} END",
                    fields.join(", ")
                )
            }
        }
    }

    /// The types that [`Shape::force`] names, by their quoted names and OIDs: whoever owns a type can give its name to
    /// another one, with other code.
    pub fn named_types(&self) -> Vec<(&str, u32)> {
        let (type_name, type_oid) = match self {
            Shape::Rows { type_name, type_oid, .. }
            | Shape::Composite { type_name, type_oid, .. } => (type_name, type_oid),
            _ => return Vec::new(),
        };
        let mut named = vec![(type_name.as_str(), *type_oid)];
        if let Shape::Rows { element, .. } = self {
            named.extend(element.named_types());
        }
        if let Shape::Composite { fields, .. } = self {
            named.extend(fields.iter().flat_map(|field| field.shape.named_types()));
        }
        named
    }

    /// Whether there can be arrays inside whose elements keep their compressed fields.
    pub fn leaves_fields(&self) -> bool {
        match self {
            Shape::Rows { element, is_built_in, .. } => !is_built_in || element.leaves_fields(),
            Shape::Composite { fields, .. } => {
                fields.iter().any(|field| field.shape.leaves_fields())
            }
            _ => false,
        }
    }

    /// A condition that holds if a field inside the composite `value`, or inside an element of the array, is compressed
    /// with a method other than `method` (`None`: with any method). `None` if such a field cannot exist.
    pub fn hidden(&self, value: &str, method: Option<Method>) -> Option<String> {
        let fields = match self {
            Shape::Composite { fields, .. } => fields,
            Shape::Rows { element, is_built_in, .. } => {
                let inner = element.hidden("r.e", method)?;
                let value = if *is_built_in {
                    value.to_owned()
                } else {
                    format!("CASE WHEN {} THEN {value} END", is_simple_array(value))
                };
                return Some(format!(
                    "EXISTS (SELECT FROM (SELECT pg_catalog.unnest({value}) AS e) AS r WHERE {inner})"
                ));
            }
            _ => return None,
        };
        let mut parts = Vec::new();
        for field in fields {
            let inner = field.of_row(value);
            if field.shape != Shape::Fixed {
                let stored = format!("pg_catalog.pg_column_compression({inner})");
                parts.push(match method {
                    Some(method) => format!("{stored} <> {}", quote_literal(method.name())),
                    None => format!("{stored} IS NOT NULL"),
                });
            }
            parts.extend(field.shape.hidden(&inner, method));
        }
        (!parts.is_empty()).then(|| format!("({})", parts.join(" OR ")))
    }
}

impl Field {
    /// The expression for this field of a composite value.
    fn of_row(&self, value: &str) -> String {
        format!("({value}).{}", quote_identifier(&self.name))
    }
}

/// The action of ALTER TABLE that sets the compression method of a column; without one, the server's default.
pub fn set_compression(column: &str, method: Option<Method>) -> String {
    let method = method.map_or("default", Method::name);
    format!("ALTER COLUMN {} SET COMPRESSION {method}", quote_identifier(column))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_with_quotes_only_where_a_dot_needs_them() {
        assert_eq!(shown_qualified("public", "My \"t\""), "public.My \"t\"");
        assert_eq!(shown_qualified("a.b", "c"), "\"a.b\".c");
        assert_eq!(shown_qualified("a", "b.\"c"), "a.\"b.\"\"c\"");
    }

    #[test]
    fn quotes_and_backslashes_cannot_end_what_they_stand_in() {
        assert_eq!(quote_qualified("a", "b\"; drop"), r#""a"."b""; drop""#);
        assert_eq!(quote_literal("it's"), "'it''s'");
        assert_eq!(quote_literal(r"a\'b"), r"E'a\\''b'");
    }

    #[test]
    fn each_shape_has_its_expression() {
        let field = |name: &str, shape| Field { name: name.into(), shape };
        let inner = Shape::Composite {
            type_name: r#""s"."in""#.into(),
            type_oid: 7,
            fields: vec![field("t", Shape::Scalar)],
        };
        let outer = Shape::Composite {
            type_name: r#""s"."out""#.into(),
            type_oid: 8,
            fields: vec![
                field("n", Shape::Fixed),
                field("a", Shape::Array),
                field("in ner", inner),
            ],
        };
        insta::assert_snapshot!(Shape::Scalar.force(r#"t."c""#), @r#"(ARRAY[t."c"])[1]"#);
        insta::assert_snapshot!(Shape::Array.force("c"), @r##"CASE WHEN c IS NOT NULL THEN pg_catalog.array_cat(c, '{}') END"##);
        insta::assert_snapshot!(outer.force("c"), @r##"CASE WHEN c IS NOT DISTINCT FROM NULL THEN NULL ELSE ROW((c)."n", CASE WHEN (c)."a" IS NOT NULL THEN pg_catalog.array_cat((c)."a", '{}') END, CASE WHEN (c)."in ner" IS NOT DISTINCT FROM NULL THEN NULL ELSE ROW((ARRAY[((c)."in ner")."t"])[1])::"s"."in" END)::"s"."out" END"##);
        let rows = Shape::Rows {
            type_name: r#""s"."_in""#.into(),
            type_oid: 9,
            element: Box::new(Shape::Composite {
                type_name: r#""s"."in""#.into(),
                type_oid: 7,
                fields: vec![field("t", Shape::Scalar)],
            }),
            is_built_in: false,
        };
        insta::assert_snapshot!(rows.force("c"), @r##"CASE WHEN pg_catalog.array_ndims(c) = 1 AND pg_catalog.array_lower(c, 1) = 1 THEN ARRAY(SELECT CASE WHEN r.e IS NOT DISTINCT FROM NULL THEN NULL ELSE ROW((ARRAY[(r.e)."t"])[1])::"s"."in" END FROM (SELECT pg_catalog.unnest(c) AS e) AS r)::"s"."_in" ELSE CASE WHEN c IS NOT NULL THEN pg_catalog.array_cat(c, '{}') END END"##);
        assert_eq!(rows.named_types(), [(r#""s"."_in""#, 9), (r#""s"."in""#, 7)]);
        assert_eq!(outer.named_types().len(), 2);
        assert!(rows.leaves_fields() && !outer.leaves_fields());
        insta::assert_snapshot!(rows.hidden("c", None).unwrap(), @r##"EXISTS (SELECT FROM (SELECT pg_catalog.unnest(CASE WHEN pg_catalog.array_ndims(c) = 1 AND pg_catalog.array_lower(c, 1) = 1 THEN c END) AS e) AS r WHERE (pg_catalog.pg_column_compression((r.e)."t") IS NOT NULL))"##);
        insta::assert_snapshot!(Shape::Bytea.force(r#"t."c""#), @r#"pg_catalog.substr(t."c", 1)"#);
        insta::assert_snapshot!(Shape::Jsonb.force(r#"t."c""#), @r#"(t."c"::pg_catalog.text)::pg_catalog.jsonb"#);
        assert_eq!(Shape::Scalar.hidden("c", None), None);
        insta::assert_snapshot!(outer.hidden("c", Some(Method::Lz4)).unwrap(), @r#"(pg_catalog.pg_column_compression((c)."a") <> 'lz4' OR pg_catalog.pg_column_compression((c)."in ner") <> 'lz4' OR (pg_catalog.pg_column_compression(((c)."in ner")."t") <> 'lz4'))"#);
    }
}
