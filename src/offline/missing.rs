//! Size and text of a missing value from its text form in `pg_attribute.attmissingval`.
//!
//! A live server is asked instead; this serves relation files, where only text is at hand.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::disk::desc::{Align, Length, MissingValue};
use crate::disk::types::{self, TypeLayout};

/// The sizes of the one element of `text`, an array literal such as `{"a \"default\""}`, as a
/// value of `type_name`. Sizes stay `None` where the type's binary form does not follow from text.
pub fn missing_value(text: &str, type_name: &str, length: Length) -> MissingValue {
    let element = only_element(text);
    // what other characters are in the database's encoding is not known here
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

/// The element of a one-element array literal, unquoted.
fn only_element(text: &str) -> Option<String> {
    let mut elements = array_elements(text)?;
    if elements.len() == 1 { elements.pop()? } else { None }
}

/// The elements of a one-dimensional array literal (`array_in`); `None` if it is none.
/// NULL elements are `None`.
pub(crate) fn array_elements(text: &str) -> Option<Vec<Option<String>>> {
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut elements = Vec::new();
    let (mut element, mut quoted, mut in_quotes) = (String::new(), false, false);
    let mut chars = inner.chars();
    if inner.trim().is_empty() {
        return Some(elements);
    }
    let mut push = |element: &mut String, quoted: &mut bool| {
        let text = std::mem::take(element);
        let null = !*quoted && text.eq_ignore_ascii_case("null");
        *quoted = false;
        elements.push((!null).then_some(text));
    };
    while let Some(c) = chars.next() {
        match c {
            '\\' => element.push(chars.next()?),
            '"' => {
                in_quotes = !in_quotes;
                quoted = true;
            }
            ',' if !in_quotes => push(&mut element, &mut quoted),
            '{' | '}' if !in_quotes => return None,
            c => element.push(c),
        }
    }
    if in_quotes {
        return None;
    }
    push(&mut element, &mut quoted);
    Some(elements)
}

fn content_size(element: &str, type_name: &str) -> Option<usize> {
    if let Some(of) = element_type(type_name) {
        return array_content_size(element, of);
    }
    match types::by_name(type_name).map_or(type_name, |t| t.name) {
        "text" | "varchar" | "bpchar" | "json" | "xml" | "citext" => Some(element.len()),
        "numeric" => numeric_content_size(element),
        "bytea" => Some(element.strip_prefix("\\x")?.len() / 2),
        "jsonb" => jsonb_content_size(element),
        _ => None,
    }
}

/// `int4` of `int4[]` and of `_int4`.
pub(crate) fn element_type(type_name: &str) -> Option<&str> {
    type_name.strip_suffix("[]").or_else(|| type_name.strip_prefix('_'))
}

/// Content of a one-dimensional array (`array.h`): ndim, dataoffset, elemtype, dimension, lower
/// bound, null bitmap if any, elements.
fn array_content_size(text: &str, element_type: &str) -> Option<usize> {
    const HEADER: usize = 24;
    let TypeLayout { length, align, .. } = types::by_name(element_type)?;
    let elements = array_elements(text)?;
    if elements.is_empty() {
        // ndim 0: neither dimension nor lower bound
        return Some(12);
    }
    let nulls = elements.iter().any(Option::is_none);
    let mut size = HEADER + if nulls { elements.len().div_ceil(8) } else { 0 };
    size = crate::disk::max_align(size);
    for element in elements.iter().flatten() {
        size = match length {
            Length::Fixed(n) => align.align(size) + usize::from(n),
            Length::Varlena => align.align(size) + 4 + content_size(element, element_type)?,
            Length::CString => return None,
        };
        size = align.align(size);
    }
    Some(size - 4)
}

/// Content of a numeric (`numeric.c`): base-10000 digits without leading and trailing zeros behind
/// a header of 2 bytes, or of 4 where weight or scale need them.
fn numeric_content_size(text: &str) -> Option<usize> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    if matches!(unsigned, "NaN" | "Infinity") {
        return Some(2);
    }
    let (integer, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    if !integer.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    let lead = (4 - integer.len() % 4) % 4;
    let trail = (4 - fraction.len() % 4) % 4;
    let digits = format!("{}{integer}{fraction}{}", "0".repeat(lead), "0".repeat(trail));
    let groups: Vec<&str> =
        (0..digits.len() / 4).filter_map(|i| digits.get(4 * i..4 * i + 4)).collect();
    let first = groups.iter().position(|&g| g != "0000");
    let last = groups.iter().rposition(|&g| g != "0000");
    let integer_groups = i64::try_from((integer.len() + lead) / 4).ok()?;
    let (count, weight) = match (first, last) {
        (Some(first), Some(last)) => {
            (last - first + 1, integer_groups - 1 - i64::try_from(first).ok()?)
        }
        _ => (0, 0),
    };
    let short = fraction.len() <= 63 && (-64..=63).contains(&weight);
    Some(if short { 2 } else { 4 } + 2 * count)
}

/// Deeper documents are not measured: every level is parsed anew.
const MAX_JSON_DEPTH: usize = 64;

/// Content of a jsonb printed by the server (`jsonb.h`): keys are in order and unique.
fn jsonb_content_size(text: &str) -> Option<usize> {
    let value: &RawValue = serde_json::from_str(text).ok()?;
    if matches!(value.get().as_bytes().first(), Some(b'{' | b'[')) {
        jsonb_value(value, 0, 0)
    } else {
        // a scalar stands in an array of one element
        jsonb_value(value, 8, 0)
    }
}

/// Where `value` ends that may begin at `at`, counted from the root container.
fn jsonb_value(value: &RawValue, at: usize, depth: usize) -> Option<usize> {
    const HEADER: usize = 4;
    const ENTRY: usize = 4;
    if depth > MAX_JSON_DEPTH {
        return None;
    }
    let aligned = Align::Int.align(at);
    let text = value.get();
    match text.as_bytes().first()? {
        b'"' => Some(at + serde_json::from_str::<String>(text).ok()?.len()),
        b't' | b'f' | b'n' => Some(at),
        b'[' => {
            let elements: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            let mut end = aligned + HEADER + elements.len() * ENTRY;
            for element in elements {
                end = jsonb_value(element, end, depth + 1)?;
            }
            Some(end)
        }
        b'{' => {
            let pairs: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
            let mut pairs: Vec<(String, &RawValue)> = pairs.into_iter().collect();
            pairs.sort_by_key(|(key, _)| key.len());
            let mut end = aligned + HEADER + 2 * pairs.len() * ENTRY;
            end += pairs.iter().map(|(key, _)| key.len()).sum::<usize>();
            for (_, value) in pairs {
                end = jsonb_value(value, end, depth + 1)?;
            }
            Some(end)
        }
        _ => Some(aligned + 4 + numeric_content_size(text)?),
    }
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
