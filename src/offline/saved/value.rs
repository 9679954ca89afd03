//! One cell to one value.

use crate::disk::{BlockNumber, ItemPointer};
use crate::offline::hex::decode_digits;

use super::error::Problem;

/// Whether a cell shows NULL: psql's default, or what people set with `\pset null`.
///
/// None of these texts is a value of any column that is read.
pub(crate) fn is_null(cell: &str) -> bool {
    let inner = cell
        .trim_matches(|c| matches!(c, '(' | ')' | '[' | ']' | '<' | '>' | '«' | '»' | '*'))
        .trim();
    // the longest of them has four bytes
    inner.is_empty()
        || inner.len() <= 4
            && !inner.starts_with(|c: char| c.is_ascii_digit())
            && [
                "null", "nil", "none", "n/a", "na", r"\n", "∅", "ø", "¤", "␀", "·", "-", "--", "—",
                "~", "_", "?",
            ]
            .iter()
            .any(|shown| inner.eq_ignore_ascii_case(shown))
}

/// A whole number of `0..=max`.
pub(crate) fn number(cell: &str, max: u32) -> Result<u32, Problem> {
    let digits = !cell.is_empty() && cell.bytes().all(|b| b.is_ascii_digit());
    match cell.parse::<u32>() {
        Ok(value) if digits && value <= max => Ok(value),
        _ => Err(Problem::expected(format!("a whole number of 0 to {max}"), cell)),
    }
}

/// An `int4` that shows the bits of an unsigned number.
pub(crate) fn int4_bits(cell: &str) -> Result<u32, Problem> {
    match cell.parse::<i64>() {
        Ok(value) if (i64::from(i32::MIN)..=i64::from(u32::MAX)).contains(&value) => {
            // The range above makes this the two's complement of an int4, or a plain u32.
            Ok(value as u32)
        }
        _ => Err(Problem::expected("a 32-bit integer", cell)),
    }
}

/// A `tid`: `(block,item)`.
pub(crate) fn tid(cell: &str) -> Result<ItemPointer, Problem> {
    let read = || {
        let (block, item) = cell.strip_prefix('(')?.strip_suffix(')')?.split_once(',')?;
        Some(ItemPointer {
            block: BlockNumber(number(block.trim(), u32::MAX).ok()?),
            // The limit makes it fit.
            item: number(item.trim(), u32::from(u16::MAX)).ok()? as u16,
        })
    };
    read().ok_or_else(|| Problem::expected("a tuple address such as (0,1)", cell))
}

/// The null bitmap as `heap_page_items` prints it: whole bytes of `0` and `1`.
pub(crate) fn bits(cell: &str) -> Result<String, Problem> {
    let whole = cell.len().is_multiple_of(8) && cell.bytes().all(|b| matches!(b, b'0' | b'1'));
    if whole {
        Ok(cell.to_owned())
    } else {
        Err(Problem::expected("a null bitmap of 0 and 1, a multiple of 8 long", cell))
    }
}

/// A `bytea` in hexadecimal form.
pub(crate) fn bytea(cell: &str) -> Result<Vec<u8>, Problem> {
    match cell.strip_prefix(r"\x") {
        Some(digits) => decode_digits(digits).map_err(Problem::Hex),
        None if looks_escaped(cell) => Err(Problem::EscapeFormat),
        None => Err(Problem::expected(r"a bytea such as \x0102", cell)),
    }
}

/// Whether a text has `\000` or `\\`, as `bytea_output = 'escape'` prints.
fn looks_escaped(cell: &str) -> bool {
    cell.match_indices('\\').any(|(at, _)| {
        let behind = &cell.as_bytes()[at + 1..];
        behind.first() == Some(&b'\\')
            || behind.get(..3).is_some_and(|d| d.iter().all(|b| matches!(b, b'0'..=b'7')))
    })
}

/// A `bytea[]` in the text form of arrays: `{"\\x0102",NULL}`.
pub(crate) fn bytea_array(cell: &str) -> Result<Vec<Option<Vec<u8>>>, Problem> {
    let Some(mut rest) = cell.strip_prefix('{') else {
        return Err(Problem::expected("an array of bytea such as {\"\\\\x0102\",NULL}", cell));
    };
    let mut attributes = Vec::new();
    if rest == "}" {
        return Ok(attributes);
    }
    loop {
        let number = attributes.len() + 1;
        let here = |problem| Problem::Attribute { number, problem: Box::new(problem) };
        if let Some(quoted) = rest.strip_prefix('"') {
            // The digits of bytea hold neither quotes nor backslashes.
            let Some(end) = closing_quote(quoted) else {
                return Err(here(Problem::Cut("the array ends within a quoted value".into())));
            };
            let value = &quoted[..end];
            let value = match value.strip_prefix(r"\\x") {
                Some(digits) => decode_digits(digits).map_err(Problem::Hex),
                None if looks_escaped(value) => Err(Problem::EscapeFormat),
                None => Err(Problem::expected(r#"a bytea such as "\\x0102""#, value)),
            };
            attributes.push(Some(value.map_err(here)?));
            rest = &quoted[end + 1..];
        } else {
            let end = rest.find([',', '}']).unwrap_or(rest.len());
            let value = &rest[..end];
            if value != "NULL" {
                return Err(here(if end == rest.len() {
                    Problem::Cut("the array has no closing brace".into())
                } else if value.is_empty() || value.starts_with("\\") {
                    Problem::expected(r#"a bytea such as "\\x0102" or NULL"#, value)
                } else {
                    // Without quotes the element has no backslash: never the hexadecimal form.
                    Problem::EscapeFormat
                }));
            }
            attributes.push(None);
            rest = &rest[end..];
        }
        match rest.as_bytes() {
            [b',', ..] => rest = &rest[1..],
            [b'}'] => return Ok(attributes),
            [] => return Err(Problem::Cut("the array has no closing brace".into())),
            _ => return Err(here(Problem::expected("a comma or a closing brace", rest))),
        }
    }
}

/// Where the quote that is not escaped by a backslash stands.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|b| {
        let closes = b == b'"' && !escaped;
        escaped = b == b'\\' && !escaped;
        closes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_as_people_show_it() {
        for shown in ["", "[null]", "(null)", "<NULL>", "NULL", "Null", "∅", "¤", r"\N", "-", "␀"]
        {
            assert!(is_null(shown), "{shown}");
        }
        for value in ["0", r"\x", "{}", "(0,1)", "00000000", "{NULL}", "nul"] {
            assert!(!is_null(value), "{value}");
        }
    }

    #[test]
    fn numbers_keep_their_range() {
        assert_eq!(number("65535", 65535), Ok(65535));
        assert!(number("65536", 65535).is_err());
        assert!(number("+1", 65535).is_err());
        assert!(number("", 65535).is_err());
        assert_eq!(int4_bits("-1"), Ok(u32::MAX));
        assert_eq!(int4_bits("4294967295"), Ok(u32::MAX));
        assert!(int4_bits("-2147483649").is_err());
        assert_eq!(
            tid("(4294967295,65535)"),
            Ok(ItemPointer { block: BlockNumber(u32::MAX), item: u16::MAX })
        );
        assert!(tid("(0,1").is_err());
        assert!(tid("(0,65536)").is_err());
        assert_eq!(bits("10110000").as_deref(), Ok("10110000"));
        assert!(bits("1011").is_err());
        assert!(bits("10110002").is_err());
    }

    #[test]
    fn arrays_of_bytea() {
        assert_eq!(bytea_array("{}"), Ok(vec![]));
        assert_eq!(
            bytea_array(r#"{"\\x01ff",NULL,"\\x"}"#),
            Ok(vec![Some(vec![1, 0xff]), None, Some(vec![])])
        );
        for (text, error) in [
            (r#"{"\\x01ff",NULL"#, "the output is cut: the array has no closing brace"),
            (r#"{"\\x01ff",NU"#, "attribute 2: the output is cut: the array has no closing brace"),
            (r#"{"\\x01f"}"#, "attribute 1: odd number of hexadecimal digits: 3"),
            (
                r#"{NULL,"\\x01f"#,
                "attribute 2: the output is cut: the array ends within a quoted value",
            ),
            (
                r#"{"\\000abc"}"#,
                "attribute 1: bytea is in escape format, expected hexadecimal digits behind \\x",
            ),
            (
                r"{abc}",
                "attribute 1: bytea is in escape format, expected hexadecimal digits behind \\x",
            ),
            (r#"{"\\x01"x}"#, r#"attribute 1: expected a comma or a closing brace, got "x}""#),
        ] {
            assert_eq!(bytea_array(text).map_err(|e| e.to_string()), Err(error.into()), "{text}");
        }
    }

    #[test]
    fn the_escape_format_is_told_apart() {
        assert_eq!(bytea(r"\000\001abc"), Err(Problem::EscapeFormat));
        assert_eq!(bytea(r"a\\b"), Err(Problem::EscapeFormat));
        assert!(matches!(bytea("abc"), Err(Problem::Expected { .. })));
        assert_eq!(bytea(r"\x"), Ok(vec![]));
    }
}
