//! SQL text: identifiers and literals, always quoted.

/// An identifier in double quotes.
pub fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `schema.name`, both quoted.
pub fn quote_qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", quote_identifier(schema), quote_identifier(name))
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

/// The condition that the rows of a table named `t` are in these blocks.
pub(crate) fn in_blocks(blocks: &std::ops::Range<u32>) -> String {
    format!("t.ctid >= '({},0)' AND t.ctid < '({},0)'", blocks.start, blocks.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_cannot_end_what_they_stand_in() {
        assert_eq!(quote_qualified("a", "b\"; drop"), r#""a"."b""; drop""#);
        assert_eq!(quote_literal("it's"), "'it''s'");
        assert_eq!(quote_literal(r"a\'b"), r"E'a\\''b'");
    }
}
