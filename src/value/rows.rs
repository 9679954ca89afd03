//! The output of `value`: one line per value.

use serde::Serialize;

use toast_format::codec::Method;
use toast_format::heap::scan::TupleValue;
use toast_format::model::StoredValue;
use toast_format::model::toaster::catalog::Handler;

/// A value as `value` prints it. Sizes are bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ValueRow {
    /// `schema.name`, or the file or input.
    pub relation: String,
    /// Block; null if the input does not show it.
    pub block: Option<u32>,
    /// Line pointer number, counted from 1.
    pub item: Option<u16>,
    pub ctid: Option<String>,
    pub column: Option<String>,
    /// As in the report.
    pub form: &'static str,
    /// As in the report.
    pub method: Option<&'static str>,
    /// Bytes of content without header.
    pub raw_size: Option<u64>,
    /// Bytes as `pg_column_size` counts them.
    pub stored_size: Option<u64>,
    /// `chunk_id` of the value's chunks.
    pub value_id: Option<u64>,
    /// OID of the TOAST relation.
    pub toast_relation: Option<u32>,
    /// Its chunks, as far as its pointer says.
    pub chunks: Option<u64>,
    /// The pluggable toaster that stored it, if that is known.
    pub toaster: Option<String>,
    /// OID of the pluggable toaster.
    pub toaster_oid: Option<u32>,
    /// The kind of a pluggable toaster's pointer.
    pub pointer_kind: Option<&'static str>,
    /// md5 of the content without header; null if the value was not reassembled.
    pub md5: Option<String>,
    /// md5 of the text form, for the types whose text form is known.
    pub text_md5: Option<String>,
}

impl ValueRow {
    /// A value without a place.
    pub fn without_place(relation: &str, stored: &StoredValue) -> ValueRow {
        ValueRow {
            relation: relation.to_owned(),
            block: None,
            item: None,
            ctid: None,
            column: None,
            form: stored.form.name(),
            method: stored.method.map(Method::name),
            raw_size: stored.raw_size,
            stored_size: stored.stored_size,
            value_id: stored.location.map(|l| l.value_id.0).filter(|&id| id != 0),
            toast_relation: stored.location.map(|l| l.toast_relation.0),
            chunks: match &stored.custom {
                Some(custom) => custom.chunks,
                None => stored.location.map(|l| u64::from(l.chunks)),
            },
            toaster: stored
                .custom
                .filter(|custom| custom.handler != Handler::Unknown)
                .map(|custom| custom.handler.usual_name().to_owned()),
            toaster_oid: stored.custom.map(|custom| custom.toaster.0),
            pointer_kind: stored.custom.map(|custom| custom.kind.name()),
            md5: None,
            text_md5: None,
        }
    }

    /// A value in its place.
    pub fn in_place(relation: &str, value: &TupleValue<'_>) -> ValueRow {
        let known = value.block_known;
        ValueRow {
            block: known.then_some(value.ctid.block.0),
            item: Some(value.ctid.item),
            ctid: known.then(|| value.ctid.to_string()),
            column: Some(value.column.name.clone()),
            ..ValueRow::without_place(relation, &value.stored)
        }
    }
}

/// Prints value rows; an error ends the printing, not the scan.
pub trait RowWriter {
    fn write(&mut self, row: &ValueRow) -> std::io::Result<()>;

    /// Whether values of this column are wanted.
    fn takes(&self, _column: &str) -> bool {
        true
    }
}
