//! What a missing value is in binary, from its text form.

use crate::disk::ByteOrder;
use crate::disk::desc::Attribute;
use crate::disk::jsonb_of_text::{jsonb, numeric_content};
use crate::disk::types::is_text_like;

/// The content of the column's missing value as a row would hold it, without a header; `None` if it does not
/// follow from what is known of it.
pub(super) fn content(column: &Attribute, order: ByteOrder) -> Option<Vec<u8>> {
    const BOOL: u32 = 16;
    const BYTEA: u32 = 17;
    const INT8: u32 = 20;
    const INT2: u32 = 21;
    const INT4: u32 = 23;
    const OID: u32 = 26;
    const NUMERIC: u32 = 1700;
    const JSONB: u32 = 3802;
    let bytes = column.missing.as_ref()?.text.as_deref()?;
    if is_text_like(column.type_oid) {
        return Some(bytes.to_vec());
    }
    let text = std::str::from_utf8(bytes).ok()?;
    let big_endian = match column.type_oid.0 {
        // they are made as most machines store them
        JSONB if order == ByteOrder::Little => return jsonb(bytes).ok(),
        NUMERIC if order == ByteOrder::Little => return numeric_content(bytes),
        BYTEA => return crate::offline::hex::decode_digits(text.strip_prefix("\\x")?).ok(),
        BOOL => vec![u8::from(text == "t")],
        INT2 => text.parse::<i16>().ok()?.to_be_bytes().to_vec(),
        INT4 => text.parse::<i32>().ok()?.to_be_bytes().to_vec(),
        INT8 => text.parse::<i64>().ok()?.to_be_bytes().to_vec(),
        OID => text.parse::<u32>().ok()?.to_be_bytes().to_vec(),
        // not of floats either, whose text may be rounded (extra_float_digits)
        _ => return None,
    };
    Some(match order {
        ByteOrder::Big => big_endian,
        ByteOrder::Little => big_endian.into_iter().rev().collect(),
    })
}
