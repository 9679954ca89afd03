//! The text of stored values, as the server reads it again (`numeric_out`, `array_out` and so on): for types whose text
//! follows from their bytes.

use super::desc::Length;
use super::element_parts::{ElementShape, StoredArray};
use super::jsonb_text;
use super::numeric::Numeric;
use super::types::{self, TypeLayout, is_text_like};
use super::varlena::Varlena;
use super::{ByteOrder, Oid};

/// Days from 0000-03-01, where the algorithm's years begin, to 2000-01-01, where PostgreSQL's days do.
const DAYS_TO_2000: i64 = 730_425;
const SECONDS_OF_DAY: i64 = 86_400;
const MICROSECONDS: i64 = 1_000_000;

/// The text of a value of this type; `None` if it is not known here. `content` has no varlena header.
pub fn text(type_oid: Oid, content: &[u8], order: ByteOrder) -> Option<Vec<u8>> {
    let word = order.u32(content, 0);
    let double = if content.len() == 8 { order.u64(content, 0) } else { None };
    let text = match type_oid.0 {
        // bool
        16 => (*content.first()? != 0).to_string(),
        // bytea
        17 => format!("\\x{}", hex(content)),
        // int8, int2, int4, oid
        20 => (double? as i64).to_string(),
        21 => (order.u16(content, 0)? as i16).to_string(),
        23 => (word? as i32).to_string(),
        26 => word?.to_string(),
        // name, padded with NULs
        19 => return Some(content.split(|byte| *byte == 0).next()?.to_vec()),
        // float4, float8
        700 => f32::from_bits(word?).to_string(),
        701 => f64::from_bits(double?).to_string(),
        // date
        1082 => match word? as i32 {
            i32::MAX => "infinity".to_owned(),
            i32::MIN => "-infinity".to_owned(),
            days => {
                let (date, era) = date(i64::from(days));
                format!("{date}{era}")
            }
        },
        // timestamp, timestamptz
        1114 => timestamp(double? as i64, ""),
        1184 => timestamp(double? as i64, "+00"),
        // numeric
        1700 => {
            let mut text = Vec::new();
            Numeric::parse(content, order).ok()?.write_text(&mut text);
            return Some(text);
        }
        // uuid
        2950 => {
            if content.len() != 16 {
                return None;
            }
            let hex = hex(content);
            let parts = [hex.get(..8)?, hex.get(8..12)?, hex.get(12..16)?, hex.get(16..20)?];
            format!("{}-{}", parts.join("-"), hex.get(20..)?)
        }
        3802 => return jsonb_text::to_text(content, order).ok(),
        _ if is_text_like(type_oid) => return Some(content.to_vec()),
        _ => return None,
    };
    Some(text.into_bytes())
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|&byte| [byte >> 4, byte & 15]);
    digits.map(|digit| DIGITS.get(usize::from(digit)).copied().map_or('?', char::from)).collect()
}

/// The date this many days after 2000-01-01 in the Gregorian calendar, and the era that follows the time of day.
fn date(days: i64) -> (String, &'static str) {
    let days = days + DAYS_TO_2000;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // counted from March
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    match year {
        ..=0 => (format!("{:04}-{month:02}-{day:02}", 1 - year), " BC"),
        _ => (format!("{year:04}-{month:02}-{day:02}"), ""),
    }
}

fn timestamp(microseconds: i64, zone: &str) -> String {
    match microseconds {
        i64::MAX => return "infinity".to_owned(),
        i64::MIN => return "-infinity".to_owned(),
        _ => {}
    }
    let seconds = microseconds.div_euclid(MICROSECONDS);
    let fraction = microseconds.rem_euclid(MICROSECONDS);
    let (date, era) = date(seconds.div_euclid(SECONDS_OF_DAY));
    let time = seconds.rem_euclid(SECONDS_OF_DAY);
    let hour = time / 3600;
    let minute = time / 60 % 60;
    let second = time % 60;
    format!("{date} {hour:02}:{minute:02}:{second:02}.{fraction:06}{zone}{era}")
}

/// The text of an array (`array_out`); `None` if it is damaged, or the text of its elements is not known here.
pub fn array(content: &[u8], order: ByteOrder) -> Option<Vec<u8>> {
    let mut array = StoredArray::parse(content, order).ok()?;
    let TypeLayout { oid, length, align, .. } = types::by_oid(array.element)?;
    let dimensions = std::mem::take(&mut array.dimensions);
    if dimensions.is_empty() {
        return Some(b"{}".to_vec());
    }
    if dimensions.iter().any(|(length, _)| *length == 0) {
        return None;
    }
    let mut out = Vec::new();
    if dimensions.iter().any(|(_, lower)| *lower != 1) {
        for (length, lower) in &dimensions {
            let upper = i64::from(*lower) + i64::from(*length) - 1;
            out.extend(format!("[{lower}:{upper}]").bytes());
        }
        out.push(b'=');
    }
    let shape = ElementShape { type_oid: oid, length, align };
    nested(&mut array, shape, order, &dimensions, &mut out)?;
    Some(out)
}

fn nested(
    array: &mut StoredArray<'_>,
    shape: ElementShape,
    order: ByteOrder,
    dimensions: &[(u32, i32)],
    out: &mut Vec<u8>,
) -> Option<()> {
    let ((length, _), inner) = dimensions.split_first()?;
    for number in 0..*length {
        out.push(if number == 0 { b'{' } else { b',' });
        if !inner.is_empty() {
            nested(array, shape, order, inner, out)?;
            continue;
        }
        let Some(part) = array.element(shape).ok()? else {
            out.extend_from_slice(b"NULL");
            continue;
        };
        let value = match shape.length {
            Length::Varlena => Varlena::parse(part.value, order).ok()?.0.inline_content()?,
            _ => part.value,
        };
        quote(&text(shape.type_oid, value, order)?, out);
    }
    out.push(b'}');
    Some(())
}

fn needs_quotes(byte: &u8) -> bool {
    matches!(byte, b'"' | b'\\' | b'{' | b'}' | b',' | b' ' | 9..=13)
}

/// Appends an element of an array, quoted where `array_out` quotes it.
fn quote(text: &[u8], out: &mut Vec<u8>) {
    if !text.is_empty() && !text.iter().any(needs_quotes) && !text.eq_ignore_ascii_case(b"null") {
        return out.extend_from_slice(text);
    }
    out.push(b'"');
    for &byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::array::ArrayType;
    use proptest::prelude::*;

    fn of(type_oid: u32, content: &[u8]) -> String {
        String::from_utf8(text(Oid(type_oid), content, ByteOrder::Little).unwrap()).unwrap()
    }

    #[test]
    fn values_have_the_text_that_the_server_reads() {
        assert_eq!(of(23, &(-7i32).to_le_bytes()), "-7");
        assert_eq!(of(20, &(-7_000_000_000i64).to_le_bytes()), "-7000000000");
        assert_eq!(of(701, &1.5f64.to_le_bytes()), "1.5");
        assert_eq!(of(17, b"a\xff"), "\\x61ff");
        // as SELECT d::date, extract(epoch ...) say
        assert_eq!(of(1082, &9553i32.to_le_bytes()), "2026-02-26");
        assert_eq!(of(1082, &(-730_119i32).to_le_bytes()), "0001-01-01");
        assert_eq!(of(1082, &(-730_120i32).to_le_bytes()), "0001-12-31 BC");
        let noon = (9553 * SECONDS_OF_DAY + 43_200) * MICROSECONDS + 5;
        assert_eq!(of(1114, &noon.to_le_bytes()), "2026-02-26 12:00:00.000005");
        assert_eq!(of(1184, &(-1i64).to_le_bytes()), "1999-12-31 23:59:59.999999+00");
        assert_eq!(text(Oid(23), b"abc", ByteOrder::Little), None);
        assert_eq!(text(Oid(600), &[0; 16], ByteOrder::Little), None);
    }

    #[test]
    fn arrays_are_quoted_as_the_server_quotes_them() {
        let made = |element, dimensions: &[(i32, i32)], values: &[Option<&[u8]>]| {
            let shape = ArrayType { element: Oid(element), dimensions: dimensions.to_vec() };
            let values: Vec<_> = values.iter().map(|value| value.map(<[u8]>::to_vec)).collect();
            let content = shape.content(&values, ByteOrder::Little).unwrap();
            String::from_utf8(array(&content, ByteOrder::Little).unwrap()).unwrap()
        };
        let texts: [Option<&[u8]>; 4] = [Some(b"a"), None, Some(b"x \"y\\"), Some(b"null")];
        assert_eq!(made(25, &[(4, 1)], &texts), r#"{a,NULL,"x \"y\\","null"}"#);
        let word = |n: i32| n.to_le_bytes();
        let one = word(1);
        let two = word(2);
        let numbers: [Option<&[u8]>; 4] = [Some(&one), Some(&two), Some(&two), Some(&one)];
        assert_eq!(made(23, &[(2, 1), (2, 1)], &numbers), "{{1,2},{2,1}}");
        assert_eq!(made(23, &[(4, 0)], &numbers), "[0:3]={1,2,2,1}");
        assert_eq!(made(23, &[], &[]), "{}");
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_text_or_none(
            content in proptest::collection::vec(any::<u8>(), 0..80),
            kind in 0usize..12,
        ) {
            let types = [16, 17, 19, 20, 21, 23, 700, 701, 1082, 1114, 1700, 3802];
            text(Oid(types[kind]), &content, ByteOrder::Little);
            array(&content, ByteOrder::Little);
            let mut shape = [1, 0, 23, 2, 1, 7, 8].map(u32::to_le_bytes).concat();
            for (at, byte) in content.iter().enumerate().take(shape.len()) {
                shape[at] ^= byte & 3;
            }
            array(&shape, ByteOrder::Little);
        }
    }
}
