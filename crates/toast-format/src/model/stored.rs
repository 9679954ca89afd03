//! The form in which a value is stored, with its sizes, as used by all verbs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::VariantArray;

use super::toaster::catalog::{Handler, Toasters};
pub use super::toaster::chunks::Location;
use super::toaster::describe::{Description, KnownFailure, PointerKind, describe};
use crate::codec::Method;
use crate::disk::pointer::TOAST_POINTER_SIZE;
use crate::disk::varlena::{tc_method, tc_raw_size};
use crate::disk::{Attribute, CustomPointer, Datum, Oid, PageSize, Varlena};

/// How a value is stored.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// NULL, by the null bitmap.
    Null,
    /// Not in the row: the column's missing value is used.
    Missing,
    /// In the row with a 1-byte header.
    Short,
    /// In the row, uncompressed: fixed length, C string, or varlena with a 4-byte header.
    Plain,
    /// In the row, compressed.
    Compressed,
    /// In the TOAST relation, uncompressed.
    External,
    /// In the TOAST relation, compressed.
    ExternalCompressed,
    /// A pointer of a pluggable toaster.
    Custom,
    /// A pointer of unknown kind.
    Unknown,
}

impl Form {
    /// All forms, in the order of reports.
    pub const ALL: &[Form] = Form::VARIANTS;

    /// The name in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether the value's bytes are in the TOAST relation.
    pub fn is_external(self) -> bool {
        matches!(self, Form::External | Form::ExternalCompressed)
    }
}

/// A value stored by a pluggable toaster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CustomStored {
    /// The toaster, according to the pointer.
    pub toaster: Oid,
    /// The kind of toaster, according to the pointer's bytes.
    pub handler: Handler,
    /// The pointer's kind; [`PointerKind::Unknown`] also for a damaged pointer.
    pub kind: PointerKind,
    /// The number of its chunks; `None` if the pointer does not contain it.
    pub chunks: Option<u64>,
    /// How the server is known to fail on it.
    pub failure: Option<KnownFailure>,
}

/// A value's stored form and sizes. All sizes are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredValue {
    /// The form, from which the other fields follow.
    pub form: Form,
    /// The compression method; `None` if uncompressed or unknown.
    pub method: Option<Method>,
    /// The size of the content, decompressed and without header, as by `octet_length`; `None` if not known.
    pub raw_size: Option<u64>,
    /// The size as by `pg_column_size`: including the header for values in the row, the bytes in the TOAST relation for
    /// out-of-line values; `None` for NULL or if not known.
    pub stored_size: Option<u64>,
    /// Bytes in the row that `stored_size` does not include: those of the TOAST pointer.
    pub pointer_size: u64,
    /// Where the bytes of an external value are.
    pub location: Option<Location>,
    /// Further facts about a value of [`Form::Custom`].
    pub custom: Option<CustomStored>,
}

impl StoredValue {
    fn inline(form: Form, raw: usize, header: usize) -> StoredValue {
        StoredValue {
            form,
            method: None,
            raw_size: Some(raw as u64),
            stored_size: Some((raw + header) as u64),
            pointer_size: 0,
            location: None,
            custom: None,
        }
    }

    /// NULL, which takes no bytes.
    pub const NULL: StoredValue = StoredValue {
        form: Form::Null,
        method: None,
        raw_size: None,
        stored_size: None,
        pointer_size: 0,
        location: None,
        custom: None,
    };

    /// The form and sizes of `datum`, a value of `column` in a relation with this page size.
    pub fn new(datum: &Datum<'_>, column: &Attribute, page: PageSize) -> StoredValue {
        match datum {
            Datum::Null => StoredValue::NULL,
            Datum::Missing => {
                let missing = column.missing.as_ref();
                StoredValue {
                    form: Form::Missing,
                    raw_size: missing.and_then(|m| m.raw_size).map(u64::from),
                    stored_size: missing.and_then(|m| m.stored_size).map(u64::from),
                    ..StoredValue::NULL
                }
            }
            Datum::Fixed(bytes) => StoredValue::inline(Form::Plain, bytes.len(), 0),
            // pg_column_size includes the terminating NUL.
            Datum::CString(bytes) => StoredValue::inline(Form::Plain, bytes.len(), 1),
            Datum::Varlena(value) => StoredValue::of_varlena(value, page),
        }
    }

    /// The same value as its sizes are counted: what a pluggable toaster keeps in the pointer itself is stored there.
    #[must_use]
    pub fn counted(&self) -> StoredValue {
        match self.custom {
            Some(CustomStored { kind: PointerKind::InPointer, .. }) => {
                StoredValue { stored_size: Some(self.pointer_size), pointer_size: 0, ..*self }
            }
            _ => *self,
        }
    }

    /// The form and sizes of a varlena in a relation with this page size.
    pub fn of_varlena(value: &Varlena<'_>, page: PageSize) -> StoredValue {
        match value {
            Varlena::Short { content } => StoredValue::inline(Form::Short, content.len(), 1),
            Varlena::Plain { content } => StoredValue::inline(Form::Plain, content.len(), 4),
            Varlena::Compressed { tc_info, stream } => StoredValue {
                method: tc_method(*tc_info),
                raw_size: Some(u64::from(tc_raw_size(*tc_info))),
                ..StoredValue::inline(Form::Compressed, stream.len(), 8)
            },
            Varlena::External(pointer) => StoredValue {
                form: if pointer.is_compressed() {
                    Form::ExternalCompressed
                } else {
                    Form::External
                },
                method: pointer.method(),
                raw_size: Some(u64::from(pointer.raw_size())),
                stored_size: Some(u64::from(pointer.stored_size())),
                pointer_size: pointer.size() as u64,
                location: Some(Location {
                    value_id: pointer.value_id,
                    toast_relation: pointer.toast_relation,
                    chunks: pointer.chunks(page),
                }),
                custom: None,
            },
            Varlena::Custom(pointer) => StoredValue::of_custom(pointer, page),
            Varlena::Unknown { bytes, sized, .. } => StoredValue {
                form: Form::Unknown,
                // A value of unknown length extends to the end of the tuple, so nothing is known about it.
                pointer_size: if *sized { bytes.len() as u64 } else { 0 },
                ..StoredValue::NULL
            },
        }
    }

    /// The form and sizes of a pluggable toaster's value, as far as its pointer contains them. The stored size is that
    /// of the chunks.
    fn of_custom(pointer: &CustomPointer<'_>, page: PageSize) -> StoredValue {
        let toasters = Toasters::by_bytes();
        let described = describe(pointer, &toasters, page).ok();
        let handler = described.as_ref().map(|d| d.toaster.handler);
        StoredValue {
            form: Form::Custom,
            raw_size: described.as_ref().and_then(|d| d.raw_size),
            stored_size: described.as_ref().and_then(Description::chunk_bytes),
            pointer_size: pointer.datum.len() as u64,
            location: described.as_ref().and_then(Description::location),
            custom: Some(CustomStored {
                toaster: pointer.toaster,
                handler: handler.unwrap_or_else(|| Handler::recognize(pointer)),
                kind: described.as_ref().map_or(PointerKind::Unknown, |d| d.kind),
                chunks: described.as_ref().and_then(Description::chunks),
                failure: described.as_ref().and_then(Description::known_failure),
            }),
            ..StoredValue::NULL
        }
    }
}

/// The longest varlena with a 1-byte header (`VARATT_SHORT_MAX`).
pub const LONGEST_SHORT: u64 = 127;
/// Where a value's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// In the row, or in no row: NULL, and the default of a column added later than the row.
    InRow,
    /// In the TOAST relation.
    OutOfLine,
    /// In the row or in the TOAST relation.
    Unknown,
}

/// What SQL functions show about one value whose page cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionAnswer {
    /// The value; its form is [`Form::Unknown`] if several are possible.
    pub value: StoredValue,
    /// Where the value's bytes are placed.
    pub placement: Placement,
}

impl FunctionAnswer {
    /// The answer for NULL.
    pub const NULL: FunctionAnswer =
        FunctionAnswer { value: StoredValue::NULL, placement: Placement::InRow };

    /// The value with its likeliest form: out of line if nothing is known and it is longer than `threshold` bytes.
    pub fn likely(&self, threshold: u64) -> StoredValue {
        let (Form::Unknown, Some(stored)) = (self.value.form, self.value.stored_size) else {
            return self.value;
        };
        let external = match self.placement {
            Placement::InRow => false,
            Placement::OutOfLine => true,
            Placement::Unknown => stored > threshold,
        };
        let form = match (self.value.method, external) {
            (Some(_), true) => Form::ExternalCompressed,
            (Some(_), false) => Form::Compressed,
            (None, true) => Form::External,
            // The value has a fixed length.
            (None, false) if self.value.raw_size == Some(stored) => Form::Plain,
            (None, false) if stored <= LONGEST_SHORT => Form::Short,
            (None, false) => Form::Plain,
        };
        let raw_size = self.value.raw_size.or(match form {
            Form::External => Some(stored),
            Form::Short => Some(stored.saturating_sub(1)),
            Form::Plain => Some(stored.saturating_sub(4)),
            _ => None,
        });
        StoredValue { form, raw_size, pointer_size: pointer_size(form), ..self.value }
    }
}

/// Bytes of the TOAST pointer in the row, 0 unless the value is out of line.
pub fn pointer_size(form: Form) -> u64 {
    if form.is_external() { TOAST_POINTER_SIZE as u64 } else { 0 }
}
