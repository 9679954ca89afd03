//! The columns of a relation file: written by hand, or rows of `pg_attribute` as JSON, with size and text of missing
//! values from the text form in `attmissingval`, for which a live server is asked instead.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::codec::Method;
use crate::disk::Oid;
use crate::disk::desc::{Align, Attribute, Length, MissingValue, Storage, TupleDesc};
use crate::disk::types::{self, TypeLayout};

/// Prints the rows of `pg_attribute` in the form that [`parse_json`] takes; put the table's name in
/// place of `mytable`.
pub const QUERY: &str = "SELECT json_agg(json_build_object('attname', attname, 'typname', \
format_type(atttypid, NULL), 'atttypid', atttypid::int8, 'attlen', attlen, 'attalign', attalign, \
'attstorage', attstorage, 'attcompression', attcompression, 'attisdropped', attisdropped, \
'atthasmissing', atthasmissing, 'attmissingval', attmissingval::text) ORDER BY attnum) \
FROM pg_attribute WHERE attrelid = 'mytable'::regclass AND attnum > 0";

/// PostgreSQL's limit on the columns of a table (`MaxHeapAttributeNumber`).
const MAX_COLUMNS: usize = 1600;

/// Why columns could not be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ColumnsError {
    /// A column has no name or no type.
    #[error("column {number}: \"{text}\" is not a name followed by a type")]
    Incomplete {
        /// The column's number from 1.
        number: usize,
        /// What was given.
        text: String,
    },
    /// A type that is not built in, without its layout.
    #[error(
        "column {number} (\"{column}\"): unknown type \"{type_name}\"; give its length and \
         alignment as in pg_type, e.g. {type_name}(-1,i)"
    )]
    UnknownType {
        /// The column's number from 1.
        number: usize,
        /// Its name.
        column: String,
        /// The type.
        type_name: String,
    },
    /// A field of a row of `pg_attribute` is missing or has a value it cannot have.
    #[error("column {number}: field \"{field}\": {problem}")]
    Field {
        /// The column's number from 1.
        number: usize,
        /// The field.
        field: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// The text is not JSON.
    #[error("columns are no valid JSON: {0}")]
    Json(String),
    /// JSON of another shape.
    #[error(
        "columns must be a JSON array of objects, or an object with such an array in \"columns\""
    )]
    Shape,
    /// A quote or bracket is not closed.
    #[error("unclosed {what} in the columns")]
    Unclosed {
        /// Quote or bracket.
        what: &'static str,
    },
    /// None, or more than a table can have.
    #[error("{got} columns given: a table has 1 to {MAX_COLUMNS}")]
    Count {
        /// How many.
        got: usize,
    },
}

/// Reads columns written by hand: `id int4, js jsonb, old dropped(-1,i), c mytype(-1,d)`.
///
/// Names may be quoted. Types are those of [`types::by_name`], or any name with length and
/// alignment as in `pg_type`; `dropped(length,alignment)` is a dropped column.
pub fn parse_list(text: &str) -> Result<TupleDesc, ColumnsError> {
    let parts = split(text)?;
    check_count(parts.len())?;
    let mut attributes = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        attributes.push(parse_one(index + 1, part.trim())?);
    }
    Ok(TupleDesc { attributes })
}

fn check_count(got: usize) -> Result<(), ColumnsError> {
    if got == 0 || got > MAX_COLUMNS { Err(ColumnsError::Count { got }) } else { Ok(()) }
}

/// Splits at commas outside quotes and brackets.
fn split(text: &str) -> Result<Vec<&str>, ColumnsError> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let (mut parts, mut start, mut depth, mut quoted) = (Vec::new(), 0, 0usize, false);
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth = depth.saturating_sub(1),
            ',' if !quoted && depth == 0 => {
                parts.push(text.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
    }
    if quoted {
        return Err(ColumnsError::Unclosed { what: "quote" });
    }
    if depth > 0 {
        return Err(ColumnsError::Unclosed { what: "bracket" });
    }
    parts.push(text.get(start..).unwrap_or_default());
    Ok(parts)
}

fn parse_one(number: usize, text: &str) -> Result<Attribute, ColumnsError> {
    let incomplete = || ColumnsError::Incomplete { number, text: text.to_owned() };
    let (name, type_text) = split_name(text).ok_or_else(incomplete)?;
    let type_text = type_text.trim();
    if name.is_empty() || type_text.is_empty() {
        return Err(incomplete());
    }
    if let Some((type_name, length, align)) = explicit_layout(type_text) {
        let dropped = type_name.eq_ignore_ascii_case("dropped");
        return Ok(Attribute {
            name,
            type_name: if dropped { String::new() } else { type_name.to_owned() },
            type_oid: Oid(0),
            length,
            align,
            storage: if length == Length::Varlena { Storage::Extended } else { Storage::Plain },
            compression: None,
            dropped,
            missing: None,
        });
    }
    let layout = types::by_name(type_text).ok_or_else(|| ColumnsError::UnknownType {
        number,
        column: name.clone(),
        type_name: type_text.split('(').next().unwrap_or(type_text).trim().to_owned(),
    })?;
    Ok(Attribute {
        name,
        type_name: type_text.to_owned(),
        type_oid: layout.oid,
        length: layout.length,
        align: layout.align,
        storage: layout.storage,
        compression: None,
        dropped: false,
        missing: None,
    })
}

/// The name, with quotes resolved, and the rest.
fn split_name(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let (name, rest) = text.split_once(char::is_whitespace)?;
        return Some((name.to_owned(), rest));
    };
    let mut name = String::new();
    let mut chars = quoted.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c != '"' {
            name.push(c);
        } else if chars.peek().is_some_and(|&(_, next)| next == '"') {
            chars.next();
            name.push('"');
        } else {
            return Some((name, quoted.get(at + 1..)?));
        }
    }
    None
}

/// `mytype(-1,d)`: name, length and alignment.
fn explicit_layout(text: &str) -> Option<(&str, Length, Align)> {
    let (name, rest) = text.split_once('(')?;
    let (length, align) = rest.strip_suffix(')')?.split_once(',')?;
    let mut align = align.trim().chars();
    let (align, None) = (Align::from_char(align.next()?)?, align.next()) else { return None };
    Some((name.trim(), Length::from_attlen(length.trim().parse().ok()?)?, align))
}

/// Reads rows of `pg_attribute`: an array of objects, or an object whose `columns` is that array.
///
/// Each needs `attname`, and `attlen` and `attalign` or a built-in type in `typname` or `atttypid`.
/// The rows must be in the order of `attnum`; where they have that field it is checked.
pub fn parse_json(text: &str) -> Result<TupleDesc, ColumnsError> {
    let json: Value =
        serde_json::from_str(text).map_err(|error| ColumnsError::Json(error.to_string()))?;
    let rows = match &json {
        Value::Array(rows) => rows,
        Value::Object(object) => match object.get("columns") {
            Some(Value::Array(rows)) => rows,
            _ => return Err(ColumnsError::Shape),
        },
        _ => return Err(ColumnsError::Shape),
    };
    check_count(rows.len())?;
    let mut attributes = Vec::with_capacity(rows.len());
    for (index, row) in rows.iter().enumerate() {
        attributes.push(Row { number: index + 1, row }.attribute()?);
    }
    Ok(TupleDesc { attributes })
}

struct Row<'a> {
    number: usize,
    row: &'a Value,
}

impl Row<'_> {
    fn error(&self, field: &'static str, problem: impl Into<String>) -> ColumnsError {
        ColumnsError::Field { number: self.number, field, problem: problem.into() }
    }

    fn get(&self, field: &'static str) -> Option<&Value> {
        self.row.get(field).filter(|value| !value.is_null())
    }

    fn text(&self, field: &'static str) -> Result<Option<&str>, ColumnsError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.error(field, format!("expected a string, got {other}"))),
        }
    }

    /// A JSON number, or one in a string, as `row_to_json` of some drivers prints.
    fn number(&self, field: &'static str) -> Result<Option<i64>, ColumnsError> {
        match self.get(field) {
            None => Ok(None),
            Some(value) => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let number = text.parse().ok();
                number
                    .map(Some)
                    .ok_or_else(|| self.error(field, format!("expected a number, got {value}")))
            }
        }
    }

    fn flag(&self, field: &'static str) -> Result<bool, ColumnsError> {
        match self.get(field) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(Value::String(text)) if text == "t" || text == "true" => Ok(true),
            Some(Value::String(text)) if text == "f" || text == "false" => Ok(false),
            Some(other) => Err(self.error(field, format!("expected true or false, got {other}"))),
        }
    }

    /// A one-letter code, `None` for an absent or empty one.
    fn code<T>(
        &self,
        field: &'static str,
        parse: impl Fn(char) -> Option<T>,
    ) -> Result<Option<T>, ColumnsError> {
        let Some(text) = self.text(field)?.filter(|text| !text.is_empty() && *text != "\0") else {
            return Ok(None);
        };
        let mut chars = text.chars();
        match (chars.next().and_then(parse), chars.next()) {
            (Some(code), None) => Ok(Some(code)),
            _ => Err(self.error(field, format!("unknown code \"{text}\""))),
        }
    }

    fn attribute(&self) -> Result<Attribute, ColumnsError> {
        if !self.row.is_object() {
            return Err(ColumnsError::Shape);
        }
        let missing_field = |field| self.error(field, "is missing");
        if let Some(attnum) = self.number("attnum")? {
            let expected = i64::try_from(self.number).unwrap_or(i64::MAX);
            if attnum != expected {
                let problem = format!(
                    "expected {expected}, got {attnum}: rows must be complete, dropped columns \
                     included, and in order"
                );
                return Err(self.error("attnum", problem));
            }
        }
        let name = self.text("attname")?.ok_or_else(|| missing_field("attname"))?.to_owned();
        let dropped = self.flag("attisdropped")?;
        let type_oid = match self.number("atttypid")? {
            Some(oid) => Oid(u32::try_from(oid)
                .map_err(|_| self.error("atttypid", format!("{oid} is no OID")))?),
            None => Oid(0),
        };
        let named = self.text("typname")?.and_then(types::by_name);
        let known = types::by_oid(type_oid).or(named);
        let length = match self.number("attlen")? {
            Some(attlen) => Length::from_attlen(attlen)
                .ok_or_else(|| self.error("attlen", format!("{attlen} is no length of a type")))?,
            None => known.map(|t| t.length).ok_or_else(|| missing_field("attlen"))?,
        };
        let align = self
            .code("attalign", Align::from_char)?
            .or(known.map(|t| t.align))
            .ok_or_else(|| missing_field("attalign"))?;
        let default_storage =
            if length == Length::Varlena { Storage::Extended } else { Storage::Plain };
        let storage = self
            .code("attstorage", Storage::from_char)?
            .unwrap_or_else(|| known.map_or(default_storage, |t| t.storage));
        let compression = self.code("attcompression", Method::from_char)?;
        let type_name = match self.text("typname")? {
            _ if dropped => String::new(),
            Some(name) => name.to_owned(),
            None => known.map_or_else(|| type_oid.to_string(), |t| t.name.to_owned()),
        };
        let missing = if self.flag("atthasmissing")? {
            let text = self.text("attmissingval")?.ok_or_else(|| {
                self.error("attmissingval", "is missing, but atthasmissing is true")
            })?;
            Some(missing_value(text, &type_name, length))
        } else {
            None
        };
        let type_oid = if type_oid.0 == 0 { named.map_or(Oid(0), |t| t.oid) } else { type_oid };
        Ok(Attribute {
            name,
            type_name,
            type_oid,
            length,
            align,
            storage,
            compression,
            dropped,
            missing,
        })
    }
}

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

    #[test]
    fn columns_by_hand() {
        let desc = parse_list(
            r#"id int4, "a ""b"", c" varchar(10), js jsonb, old dropped(-1,i), c mytype(-1, d), n numeric(10,2)"#,
        )
        .unwrap();
        let shown: Vec<_> = desc
            .attributes
            .iter()
            .map(|a| {
                (
                    a.name.as_str(),
                    a.type_name.as_str(),
                    a.length.attlen(),
                    a.align.to_char(),
                    a.dropped,
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("id", "int4", 4, 'i', false),
                ("a \"b\", c", "varchar(10)", -1, 'i', false),
                ("js", "jsonb", -1, 'i', false),
                ("old", "", -1, 'i', true),
                ("c", "mytype", -1, 'd', false),
                ("n", "numeric(10,2)", -1, 'i', false),
            ]
        );
    }

    #[test]
    fn mistakes_by_hand() {
        let error = |text: &str| parse_list(text).unwrap_err().to_string();
        assert_eq!(error(""), "0 columns given: a table has 1 to 1600");
        assert_eq!(error("id int4,"), "column 2: \"\" is not a name followed by a type");
        assert_eq!(error("id"), "column 1: \"id\" is not a name followed by a type");
        assert_eq!(
            error("id int4, c mytype"),
            "column 2 (\"c\"): unknown type \"mytype\"; give its length and alignment as in \
             pg_type, e.g. mytype(-1,i)"
        );
        assert_eq!(
            error("c mytype(-3,i)"),
            "column 1 (\"c\"): unknown type \"mytype\"; give its length and alignment as in \
             pg_type, e.g. mytype(-1,i)"
        );
        assert_eq!(error("id int4, \"c text"), "unclosed quote in the columns");
        assert_eq!(error("id numeric(10"), "unclosed bracket in the columns");
        assert_eq!(
            error(&vec!["a int4"; 1601].join(",")),
            "1601 columns given: a table has 1 to 1600"
        );
    }

    #[test]
    fn rows_of_pg_attribute() {
        let desc = parse_json(
            r#"{"columns": [
              {"attname": "a", "typname": "text", "atttypid": 25, "attlen": -1, "attalign": "i",
               "attstorage": "e", "attcompression": "l", "attisdropped": false,
               "atthasmissing": true, "attmissingval": "{abc}"},
              {"attname": "b", "typname": "float8"},
              {"attname": "x", "atttypid": 0, "attlen": 8, "attalign": "d", "attisdropped": true}]}"#,
        )
        .unwrap();
        let [a, b, x] = &desc.attributes[..] else { panic!("{desc:?}") };
        assert_eq!((a.storage, a.compression), (Storage::External, Some(Method::Lz4)));
        assert_eq!(a.missing.as_ref().unwrap().stored_size, Some(7));
        assert_eq!((b.length, b.align, b.type_oid), (Length::Fixed(8), Align::Double, Oid(701)));
        assert!(x.dropped);
    }

    #[test]
    fn mistakes_in_rows() {
        let error = |text: &str| parse_json(text).unwrap_err().to_string();
        assert!(error("[{").starts_with("columns are no valid JSON: "));
        assert_eq!(error("3"), ColumnsError::Shape.to_string());
        assert_eq!(error("[3]"), ColumnsError::Shape.to_string());
        assert_eq!(error("[{}]"), "column 1: field \"attname\": is missing");
        assert_eq!(
            error(r#"[{"attname": "a", "typname": "mytype"}]"#),
            "column 1: field \"attlen\": is missing"
        );
        assert_eq!(
            error(r#"[{"attname": "a", "attlen": 0, "attalign": "i"}]"#),
            "column 1: field \"attlen\": 0 is no length of a type"
        );
        assert_eq!(
            error(r#"[{"attname": "a", "attlen": -1, "attalign": "q"}]"#),
            "column 1: field \"attalign\": unknown code \"q\""
        );
        assert_eq!(
            error(r#"[{"attname": "a", "attnum": 2, "typname": "text"}]"#),
            "column 1: field \"attnum\": expected 1, got 2: rows must be complete, dropped columns \
             included, and in order"
        );
        assert_eq!(
            error(r#"[{"attname": "a", "typname": "text", "atthasmissing": true}]"#),
            "column 1: field \"attmissingval\": is missing, but atthasmissing is true"
        );
    }

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
