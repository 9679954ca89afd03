//! The columns of a relation file: a list written by hand, or rows of `pg_attribute` as JSON.

use serde_json::Value;

use super::missing::missing_value;
use crate::codec::Method;
use crate::disk::Oid;
use crate::disk::desc::{Align, Attribute, Length, Storage, TupleDesc};
use crate::disk::types;

/// Prints the rows of `pg_attribute` in the form accepted by [`parse_json`]; replace `mytable` by the table's name.
pub const QUERY: &str = "SELECT json_agg(json_build_object('attname', attname, 'typname', \
format_type(atttypid, NULL), 'atttypid', atttypid::int8, 'attlen', attlen, 'attalign', attalign, \
'attstorage', attstorage, 'attcompression', attcompression, 'attisdropped', attisdropped, \
'attgenerated', attgenerated, 'atthasmissing', atthasmissing, 'attmissingval', attmissingval::text) ORDER BY attnum) \
FROM pg_attribute WHERE attrelid = 'mytable'::regclass AND attnum > 0";

/// PostgreSQL's limit on the columns of a table (`MaxHeapAttributeNumber`).
const MAX_COLUMNS: usize = 1600;

/// Why columns could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ColumnsError {
    /// A column has no name or no type.
    #[error("column {number}: \"{text}\" is not a name followed by a type, as in id int4")]
    Incomplete {
        /// The column's number, from 1.
        number: usize,
        /// The text as given.
        text: String,
    },
    /// A type is followed by what looks like the next column.
    #[error("column {number} (\"{column}\"): a comma is missing after \"{type_name}\"")]
    NoComma {
        /// The column's number, from 1.
        number: usize,
        /// The name of the column.
        column: String,
        /// The type's name as given.
        type_name: String,
    },
    /// The type is not built in, and its layout is not given.
    #[error(
        "column {number} (\"{column}\"): unknown type \"{type_name}\"; give its length and \
         alignment as in pg_type, e.g. {type_name}(-1,i)"
    )]
    UnknownType {
        /// The column's number, from 1.
        number: usize,
        /// The name of the column.
        column: String,
        /// The type's name as given.
        type_name: String,
    },
    /// A field of a row of `pg_attribute` is missing or has an invalid value.
    #[error("column {number}: field \"{field}\": {problem}")]
    Field {
        /// The column's number, from 1.
        number: usize,
        /// The key in the JSON object.
        field: &'static str,
        /// The reason, in words.
        problem: String,
    },
    /// The text is not JSON.
    #[error("columns are not valid JSON: {0}")]
    Json(String),
    /// The JSON has another shape.
    #[error(
        "columns must be a JSON array of objects, or an object with such an array in \"columns\""
    )]
    Shape,
    /// A quote or bracket is not closed.
    #[error("unclosed {0} in the columns")]
    Unclosed(&'static str),
    /// There are no columns, or more than a table can have.
    #[error("{0} columns given: a table has 1 to {MAX_COLUMNS}")]
    Count(usize),
}

/// Parses columns written by hand: `id int4, js jsonb, old dropped(-1,i), c mytype(-1,d)`.
///
/// Names may be quoted. Types are those of [`types::by_name`], or any name with length and alignment as in `pg_type`;
/// `dropped(length,alignment)` is a dropped column.
pub fn parse_list(text: &str) -> Result<TupleDesc, ColumnsError> {
    let parts = split(text)?;
    check_count(parts.len())?;
    let mut attributes = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        attributes.push(parse_one(index + 1, part.trim())?);
    }
    Ok(TupleDesc { attributes, ..TupleDesc::default() })
}

fn check_count(got: usize) -> Result<(), ColumnsError> {
    if got == 0 || got > MAX_COLUMNS { Err(ColumnsError::Count(got)) } else { Ok(()) }
}

/// Splits the text at commas outside quotes and brackets.
fn split(text: &str) -> Result<Vec<&str>, ColumnsError> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut parts = Vec::new();
    let mut start = 0;
    let mut depth = 0usize;
    let mut quoted = false;
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
        return Err(ColumnsError::Unclosed("quote"));
    }
    if depth > 0 {
        return Err(ColumnsError::Unclosed("bracket"));
    }
    parts.push(text.get(start..).unwrap_or_default());
    Ok(parts)
}

fn parse_one(number: usize, text: &str) -> Result<Attribute, ColumnsError> {
    let (name, type_text) = split_name(text).unwrap_or_default();
    let type_text = type_text.trim();
    if name.is_empty() || type_text.is_empty() {
        return Err(ColumnsError::Incomplete { number, text: text.to_owned() });
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
            is_virtual: false,
            only_plain: false,
            missing: None,
        });
    }
    let Some(layout) = types::by_name(type_text) else {
        let column = name;
        return Err(match type_before_column(type_text) {
            Some(type_name) => ColumnsError::NoComma { number, column, type_name },
            None => {
                let type_name = type_text.split('(').next().unwrap_or(type_text).trim().to_owned();
                ColumnsError::UnknownType { number, column, type_name }
            }
        });
    };
    Ok(Attribute {
        name,
        type_name: type_text.to_owned(),
        type_oid: layout.oid,
        length: layout.length,
        align: layout.align,
        storage: layout.storage,
        compression: None,
        dropped: false,
        is_virtual: false,
        only_plain: false,
        missing: None,
    })
}

/// The known type with which the text begins, if the name and type of another column follow without a comma.
fn type_before_column(text: &str) -> Option<String> {
    let text = text.replace(';', " ");
    let words: Vec<&str> = text.split_whitespace().collect();
    for end in 1..words.len().saturating_sub(1) {
        let (first, rest) = words.split_at(end);
        let type_name = first.join(" ");
        // the column's name comes before its type, of which the first word is enough
        let next = rest.get(1).and_then(|word| word.split('(').next()).unwrap_or_default();
        if types::by_name(&type_name).is_some() && types::by_name(next).is_some() {
            return Some(type_name);
        }
    }
    None
}

/// The unquoted name, and the rest of the text.
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

/// Parses `mytype(-1,d)`: name, length and alignment.
fn explicit_layout(text: &str) -> Option<(&str, Length, Align)> {
    let (name, rest) = text.split_once('(')?;
    let (length, align) = rest.strip_suffix(')')?.split_once(',')?;
    let mut align = align.trim().chars();
    let (align, None) = (Align::from_char(align.next()?)?, align.next()) else { return None };
    Some((name.trim(), Length::from_attlen(length.trim().parse().ok()?)?, align))
}

/// Parses rows of `pg_attribute`: an array of objects, or an object with such an array in `columns`.
///
/// Each row needs `attname`, and either `attlen` and `attalign`, or a built-in type in `typname` or `atttypid`. The
/// rows must be in the order of `attnum`, which is checked if they have that field.
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
        attributes.push(AttributeRow { number: index + 1, row }.attribute()?);
    }
    Ok(TupleDesc { attributes, ..TupleDesc::default() })
}

struct AttributeRow<'a> {
    number: usize,
    row: &'a Value,
}

impl AttributeRow<'_> {
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

    /// A JSON number, or a number in a string, as printed by `row_to_json` of some drivers.
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

    /// A one-letter code; `None` if it is absent or empty.
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

    fn missing(&self, field: &'static str) -> ColumnsError {
        self.error(field, "is missing")
    }

    fn attribute(&self) -> Result<Attribute, ColumnsError> {
        if !self.row.is_object() {
            return Err(ColumnsError::Shape);
        }
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
        let name = self.text("attname")?.ok_or_else(|| self.missing("attname"))?.to_owned();
        let dropped = self.flag("attisdropped")?;
        let type_oid = match self.number("atttypid")? {
            Some(oid) => Oid(u32::try_from(oid)
                .map_err(|_| self.error("atttypid", format!("{oid} is not an OID")))?),
            None => Oid(0),
        };
        let named = self.text("typname")?.and_then(types::by_name);
        let known = types::by_oid(type_oid).or(named);
        let length = match self.number("attlen")? {
            Some(attlen) => Length::from_attlen(attlen).ok_or_else(|| {
                self.error("attlen", format!("{attlen} is not the length of a type"))
            })?,
            None => known.map(|t| t.length).ok_or_else(|| self.missing("attlen"))?,
        };
        let align = self
            .code("attalign", Align::from_char)?
            .or(known.map(|t| t.align))
            .ok_or_else(|| self.missing("attalign"))?;
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
            is_virtual: self.text("attgenerated")? == Some("v"),
            only_plain: false,
            missing,
        })
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
        assert_eq!(
            error("id int4,"),
            "column 2: \"\" is not a name followed by a type, as in id int4"
        );
        assert_eq!(error("id"), "column 1: \"id\" is not a name followed by a type, as in id int4");
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
        assert!(error("[{").starts_with("columns are not valid JSON: "));
        assert_eq!(error("3"), ColumnsError::Shape.to_string());
        assert_eq!(error("[3]"), ColumnsError::Shape.to_string());
        assert_eq!(error("[{}]"), "column 1: field \"attname\": is missing");
        assert_eq!(
            error(r#"[{"attname": "a", "typname": "mytype"}]"#),
            "column 1: field \"attlen\": is missing"
        );
        assert_eq!(
            error(r#"[{"attname": "a", "attlen": 0, "attalign": "i"}]"#),
            "column 1: field \"attlen\": 0 is not the length of a type"
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
}
