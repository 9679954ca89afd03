//! The types of the columns that keys move to.

use serde::Serialize;

use crate::codec::Method;
use crate::disk::ByteOrder;
use crate::disk::desc::{Align, Length, Storage};
use crate::disk::jsonb::split::{Value, ValueKind};
use crate::disk::numeric::Numeric;
use crate::disk::varlena::VARLENA_HEADER_SIZE;
use crate::model::policy::{MethodChoice, Policy};
use crate::model::toast::{Column, Incoming};

/// Digits that every `integer`, and every `bigint`, has room for.
const INTEGER_DIGITS: usize = 9;
const BIGINT_DIGITS: usize = 18;

/// A type that values of a key can have outside of their documents without being changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum KeyType {
    Boolean,
    /// Whole numbers of at most 9 digits.
    Integer,
    /// Whole numbers of at most 18 digits.
    Bigint,
    Numeric,
    Text,
    /// Whatever a document can hold, `null` included.
    Jsonb,
}

impl KeyType {
    /// The narrowest that holds this value.
    pub(super) fn of(value: &Value<'_>, order: ByteOrder) -> KeyType {
        match value.kind {
            ValueKind::Bool => KeyType::Boolean,
            ValueKind::String => KeyType::Text,
            ValueKind::Number => of_number(value.bytes, order),
            ValueKind::Null | ValueKind::Container => KeyType::Jsonb,
        }
    }

    /// The narrowest that holds the values of both.
    pub(in crate::advise) fn or(self, other: KeyType) -> KeyType {
        use KeyType::{Bigint, Integer, Jsonb, Numeric};
        match (self, other) {
            _ if self == other => self,
            (Integer, Bigint) | (Bigint, Integer) => Bigint,
            (Integer | Bigint | Numeric, Integer | Bigint | Numeric) => Numeric,
            _ => Jsonb,
        }
    }

    /// As SQL names it.
    pub fn name(self) -> &'static str {
        match self {
            KeyType::Boolean => "boolean",
            KeyType::Integer => "integer",
            KeyType::Bigint => "bigint",
            KeyType::Numeric => "numeric",
            KeyType::Text => "text",
            KeyType::Jsonb => "jsonb",
        }
    }

    /// The column that is added.
    pub(super) fn column(self, default_method: Method) -> Column {
        let (length, align, storage) = match self {
            KeyType::Boolean => (Length::Fixed(1), Align::Char, Storage::Plain),
            KeyType::Integer => (Length::Fixed(4), Align::Int, Storage::Plain),
            KeyType::Bigint => (Length::Fixed(8), Align::Double, Storage::Plain),
            KeyType::Numeric => (Length::Varlena, Align::Int, Storage::Main),
            KeyType::Text | KeyType::Jsonb => (Length::Varlena, Align::Int, Storage::Extended),
        };
        let method = MethodChoice::One(default_method);
        Column { length, align, storage, type_storage: storage, method, policy: Policy::Always }
    }

    /// A value as a new one of the column.
    pub(super) fn incoming(self, value: &KeyValue) -> Incoming {
        match self {
            KeyType::Boolean => Incoming::Fixed { size: 1 },
            KeyType::Integer => Incoming::Fixed { size: 4 },
            KeyType::Bigint => Incoming::Fixed { size: 8 },
            KeyType::Numeric | KeyType::Text => Incoming::Plain { raw: value.own_size },
            KeyType::Jsonb => Incoming::Plain { raw: value.jsonb_size },
        }
    }

    /// Whether its values may be compressed as they are in a column of their own, not as documents.
    pub(super) fn is_own(self) -> bool {
        matches!(self, KeyType::Numeric | KeyType::Text)
    }
}

fn of_number(bytes: &[u8], order: ByteOrder) -> KeyType {
    // the header, a weight and digits; numbers of many digits are not looked at
    const LONGEST: usize = 16;
    let content = bytes.get(VARLENA_HEADER_SIZE as usize..).unwrap_or(&[]);
    if bytes.len() > LONGEST {
        return KeyType::Numeric;
    }
    let Ok(number) = Numeric::parse(content, order) else { return KeyType::Numeric };
    if let Numeric::Number { display_scale, .. } = number
        && display_scale > 0
    {
        return KeyType::Numeric;
    }
    let mut text = Vec::new();
    number.write_text(&mut text);
    let digits = text.strip_prefix(b"-").unwrap_or(&text);
    match digits.len() {
        _ if !digits.iter().all(u8::is_ascii_digit) => KeyType::Numeric,
        digits if digits <= INTEGER_DIGITS => KeyType::Integer,
        digits if digits <= BIGINT_DIGITS => KeyType::Bigint,
        _ => KeyType::Numeric,
    }
}

/// What is kept of a key's value: its sizes in a column of either kind, headers left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyValue {
    /// A string's bytes, or a number's as `numeric`.
    pub own_size: u32,
    /// As `doc -> key` gives it.
    pub jsonb_size: u32,
    /// What the server would compress it to, its 8 bytes of headers included, if it was tried.
    pub own_compressed: Option<u32>,
    pub jsonb_compressed: Option<u32>,
}

impl KeyValue {
    /// Not compressed.
    pub(super) fn of(value: &Value<'_>) -> KeyValue {
        let size = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        KeyValue {
            own_size: size(own(value).len()),
            jsonb_size: size(value.jsonb_size()),
            own_compressed: None,
            jsonb_compressed: None,
        }
    }
}

/// A string's or number's content in a column of its own type.
pub(super) fn own<'a>(value: &Value<'a>) -> &'a [u8] {
    match value.kind {
        ValueKind::String => value.bytes,
        ValueKind::Number => value.bytes.get(VARLENA_HEADER_SIZE as usize..).unwrap_or(&[]),
        ValueKind::Bool | ValueKind::Null | ValueKind::Container => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numeric of `weight` and base-10000 digits, with `scale` decimals, as it stands in a document.
    fn numeric(negative: bool, weight: u16, scale: u16, digits: &[u16]) -> Vec<u8> {
        let sign = u16::from(negative) << 13;
        let mut bytes = vec![0; 4];
        let header = 0x8000 | sign | scale << 7 | (weight & 0x7F);
        bytes.extend_from_slice(&header.to_le_bytes());
        digits.iter().for_each(|digit| bytes.extend_from_slice(&digit.to_le_bytes()));
        bytes
    }

    #[test]
    fn numbers_take_the_narrowest_type_that_surely_holds_them() {
        let of = |bytes: &[u8]| of_number(bytes, ByteOrder::Little);
        assert_eq!(of(&numeric(false, 0, 0, &[])), KeyType::Integer);
        assert_eq!(of(&numeric(true, 2, 0, &[9, 9999, 9999])), KeyType::Integer);
        assert_eq!(of(&numeric(false, 2, 0, &[10])), KeyType::Bigint);
        assert_eq!(of(&numeric(true, 4, 0, &[99, 9999, 9999, 9999, 9999])), KeyType::Bigint);
        assert_eq!(of(&numeric(false, 4, 0, &[100])), KeyType::Numeric);
        // 1.0 is not written as 1
        assert_eq!(of(&numeric(false, 0, 1, &[1])), KeyType::Numeric);
        assert_eq!(of(&[0; 40]), KeyType::Numeric);
        assert_eq!(of(&[]), KeyType::Numeric);
    }

    #[test]
    fn types_widen_to_what_holds_all_values() {
        use KeyType::{Bigint, Boolean, Integer, Jsonb, Numeric, Text};
        for (a, b, both) in [
            (Integer, Integer, Integer),
            (Integer, Bigint, Bigint),
            (Bigint, Numeric, Numeric),
            (Integer, Text, Jsonb),
            (Boolean, Integer, Jsonb),
            (Text, Text, Text),
            (Text, Jsonb, Jsonb),
        ] {
            assert_eq!((a.or(b), b.or(a)), (both, both));
        }
    }
}
