//! The input and the result of the toaster.

use crate::codec::Method;
use crate::codec::items::Items;
use crate::disk::{Align, Attribute, Length, PageSize, Storage, types};
use crate::model::cost::Prices;
use crate::model::index_shape::IndexShape;
use crate::model::policy::{COMPRESSED_HEADER_SIZE, VARLENA_HEADER_SIZE};
use crate::model::settings::Settings;
use crate::model::{Form, MethodChoice, Policy, StoredValue, TupleTarget};

/// The longest content that can have a 1-byte header (`VARATT_SHORT_MAX` minus the header).
pub(in crate::model) const SHORT_CONTENT_MAX: u32 = 126;

/// What the algorithm needs to know about a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Bytes of its values (`attlen`).
    pub length: Length,
    /// Alignment of its values (`attalign`).
    pub align: Align,
    /// What may happen to them (`attstorage`).
    pub storage: Storage,
    /// The type's own storage (`typstorage`).
    pub type_storage: Storage,
    /// Their compression method (`attcompression`), never "default".
    pub method: MethodChoice,
    /// Which compressed values are kept; `always` on a stock server.
    pub policy: Policy,
}

impl Column {
    /// The column as in the catalog; `default_method` is `default_toast_compression`.
    pub fn new(attribute: &Attribute, default_method: Method) -> Column {
        Column {
            length: attribute.length,
            align: attribute.align,
            storage: attribute.storage,
            type_storage: type_storage(attribute),
            method: MethodChoice::One(attribute.compression.unwrap_or(default_method)),
            policy: Policy::Always,
        }
    }

    /// The value as in the tuple that is passed to the toaster (`heap_form_tuple`).
    pub(super) fn pack(&self, value: Incoming, operation: Operation) -> Incoming {
        let storage = match operation {
            Operation::Insert => self.type_storage,
            Operation::Update | Operation::UpdateOfExternal => self.storage,
        };
        match value {
            Incoming::Plain { raw } if storage != Storage::Plain && raw <= SHORT_CONTENT_MAX => {
                Incoming::Short { raw }
            }
            other => other,
        }
    }

    /// The column with other settings (the target belongs to the [`Table`]).
    pub fn with(self, settings: &Settings) -> Column {
        Column {
            storage: settings.storage,
            method: settings.method,
            policy: settings.policy,
            ..self
        }
    }
}

/// `typstorage` of a column's type. Types that are not known here are assumed to be toastable, as nearly all types are.
fn type_storage(attribute: &Attribute) -> Storage {
    if attribute.length != Length::Varlena {
        return Storage::Plain;
    }
    types::by_oid(attribute.type_oid)
        .or_else(|| types::by_name(&attribute.type_name))
        .map_or(Storage::Extended, |known| known.storage)
}

/// What the algorithm needs to know about a relation.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// The columns in `attnum` order, including dropped ones, which are NULL in new rows.
    pub columns: Vec<Column>,
    /// The table's `toast_tuple_target` in bytes.
    pub target: TupleTarget,
    /// Whether the relation has a TOAST relation (`reltoastrelid`).
    pub has_toast_relation: bool,
    /// The page size of the server.
    pub page: PageSize,
    /// The prices for [`Policy::Best`].
    pub prices: Prices,
    /// The indexes that new rows get entries in.
    pub indexes: Vec<IndexShape>,
}

impl Table {
    /// The form in which a stored value of a column arrives if an UPDATE carries it.
    pub fn carried(&self, index: usize, value: &StoredValue) -> Incoming {
        let length = self.columns.get(index).map_or(Length::Varlena, |column| column.length);
        Incoming::carried(value, length, self.page)
    }
}

/// A value that arrives at the toaster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incoming {
    /// NULL, in the null bitmap.
    Null,
    /// A value of fixed length, or a C string including its NUL.
    Fixed {
        /// Bytes in the row, without alignment.
        size: u32,
    },
    /// A varlena with a 1-byte header, as copied from another row.
    Short {
        /// The size of the content.
        raw: u32,
    },
    /// A varlena with a 4-byte header, like every fresh value.
    Plain {
        /// The size of the content.
        raw: u32,
    },
    /// Compressed, in the row.
    Compressed {
        /// The size of the datum, including its 8 bytes of headers.
        size: u32,
        /// The size of the content, decompressed.
        raw: u32,
        /// The method; `None` if it is unknown.
        method: Option<Method>,
    },
    /// Out of line in another relation, or in this one for another row; it is fetched before use.
    Foreign {
        /// The size in that TOAST relation.
        stored: u32,
        /// The size of the content, decompressed.
        raw: u32,
        /// `None` if not compressed or unknown.
        method: Option<Method>,
        /// Whether the stored bytes are compressed.
        compressed: bool,
    },
    /// An unchanged out-of-line value in an UPDATE, whose pointer the row keeps.
    Kept {
        /// The size in the TOAST relation.
        stored: u32,
        /// The size of the content, decompressed.
        raw: u32,
        /// `None` if not compressed or unknown.
        method: Option<Method>,
        /// Whether the stored bytes are compressed.
        compressed: bool,
    },
    /// A pluggable toaster's pointer, or another datum that is carried unchanged.
    Opaque {
        /// Its size in the row.
        size: u32,
        /// What it refers to in the TOAST relation; `None` if that is not known.
        outside: Option<Outside>,
    },
}

impl Incoming {
    /// The form in which a stored value of a column with this length arrives if an UPDATE carries it. A size that is
    /// not known is replaced by the minimum size of the value.
    pub fn carried(value: &StoredValue, length: Length, page: PageSize) -> Incoming {
        let stored = value.stored_size.map_or(0, saturated);
        let raw = value.raw_size.map_or(stored, saturated);
        let method = value.method;
        match value.form {
            Form::Null => Incoming::Null,
            Form::Short => Incoming::Short { raw },
            Form::Plain | Form::Missing if length == Length::Varlena => Incoming::Plain { raw },
            Form::Plain | Form::Missing => Incoming::Fixed { size: stored },
            Form::Compressed => Incoming::Compressed { size: stored, raw, method },
            Form::External => Incoming::Kept { stored, raw, method, compressed: false },
            Form::ExternalCompressed => Incoming::Kept { stored, raw, method, compressed: true },
            Form::Custom => Incoming::Opaque {
                size: saturated(value.pointer_size),
                outside: Outside::new(value, page),
            },
            Form::Unknown => Incoming::Opaque {
                size: saturated(value.stored_size.unwrap_or(value.pointer_size)),
                outside: None,
            },
        }
    }

    /// The value as a fresh one.
    pub fn fresh(self) -> Incoming {
        match self {
            Incoming::Short { raw }
            | Incoming::Plain { raw }
            | Incoming::Compressed { raw, .. }
            | Incoming::Foreign { raw, .. }
            | Incoming::Kept { raw, .. } => Incoming::Plain { raw },
            Incoming::Null | Incoming::Fixed { .. } | Incoming::Opaque { .. } => self,
        }
    }

    /// The value as it is copied into another relation.
    pub fn copied(self) -> Incoming {
        match self {
            Incoming::Kept { stored, raw, method, compressed } => {
                Incoming::Foreign { stored, raw, method, compressed }
            }
            other => other,
        }
    }

    /// The stored form of a value that arrives in this form, as far as a judge needs it.
    pub fn stored_value(self) -> StoredValue {
        match self {
            Incoming::Null => StoredValue::NULL,
            Incoming::Fixed { size } => sized(Form::Plain, None, size, size),
            Incoming::Short { raw } => sized(Form::Short, None, raw, raw.saturating_add(1)),
            Incoming::Plain { raw } => {
                sized(Form::Plain, None, raw, raw.saturating_add(VARLENA_HEADER_SIZE))
            }
            Incoming::Compressed { size, raw, method } => {
                sized(Form::Compressed, method, raw, size)
            }
            Incoming::Foreign { stored, raw, method, compressed }
            | Incoming::Kept { stored, raw, method, compressed } => {
                let form = if compressed { Form::ExternalCompressed } else { Form::External };
                sized(form, method, raw, stored)
            }
            Incoming::Opaque { size, .. } => {
                StoredValue { form: Form::Custom, pointer_size: size.into(), ..StoredValue::NULL }
            }
        }
    }

    /// The value in its present form and place.
    pub fn as_stored(self, page: PageSize) -> Placed {
        match self {
            Incoming::Null => Placed::carried(Form::Null, 0, 0),
            Incoming::Fixed { size } => Placed::carried(Form::Plain, size, size),
            Incoming::Opaque { size, outside } => {
                Placed { kept: true, ..Placed::opaque(size, outside) }
            }
            Incoming::Short { raw } => Placed::carried(Form::Short, raw, raw.saturating_add(1)),
            Incoming::Plain { raw } => {
                Placed::carried(Form::Plain, raw, raw.saturating_add(VARLENA_HEADER_SIZE))
            }
            Incoming::Compressed { size, raw, method } => {
                Placed { method, ..Placed::carried(Form::Compressed, raw, size) }
            }
            Incoming::Foreign { stored, raw, method, compressed }
            | Incoming::Kept { stored, raw, method, compressed } => {
                let form = if compressed { Form::ExternalCompressed } else { Form::External };
                Placed { method, chunks: page.chunks(stored), ..Placed::carried(form, raw, stored) }
            }
        }
    }
}

/// A value with known sizes that is not NULL.
fn sized(form: Form, method: Option<Method>, raw: u32, stored: u32) -> StoredValue {
    StoredValue {
        form,
        method,
        raw_size: Some(raw.into()),
        stored_size: Some(stored.into()),
        ..StoredValue::NULL
    }
}

/// Sizes are at most 1 GB, unless they are damaged.
fn saturated(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// What a carried pointer refers to in the TOAST relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outside {
    /// The size of its chunks.
    pub stored: u32,
    /// The number of its chunks.
    pub chunks: u32,
}

impl Outside {
    /// For a pluggable toaster's value. If its pointer contains only the number of chunks, they are assumed to be full.
    fn new(value: &StoredValue, page: PageSize) -> Option<Outside> {
        let chunks = saturated(value.custom?.chunks?);
        let full = u64::from(chunks) * u64::from(page.toast_max_chunk_size());
        Some(Outside { stored: saturated(value.stored_size.unwrap_or(full)), chunks })
    }
}

/// The operation on the row, as far as it affects storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Operation {
    /// INSERT: the executor forms the tuple according to the storage of the types, so that short values get 1-byte
    /// headers even in PLAIN columns.
    #[default]
    Insert,
    /// COPY, or an UPDATE of a row that has no out-of-line values.
    Update,
    /// An UPDATE of a row that has out-of-line values: the toaster is called even if the new row is short
    /// (`heap_update`).
    UpdateOfExternal,
}

/// Supplies compressed sizes to the TOAST algorithm ([`Table::toast`]).
pub trait Compressor {
    /// The size of the datum, including its 8 bytes of headers, to which the server would compress the value of column
    /// `index` with `method`; `None` if it would not compress the value (`toast_compress_datum`).
    fn compressed_size(&mut self, index: usize, method: Method) -> Option<u32>;

    /// What the stream of that datum consists of; `None` if that is not known.
    fn items(&mut self, _index: usize, _method: Method) -> Option<Items> {
        None
    }
}

impl<F: FnMut(usize, Method) -> Option<u32>> Compressor for F {
    fn compressed_size(&mut self, index: usize, method: Method) -> Option<u32> {
        self(index, method)
    }
}

/// The resulting form of one value. All sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// The form in which it is stored.
    pub form: Form,
    /// The compression method; `None` if uncompressed or unknown.
    pub method: Option<Method>,
    /// The size of the content, decompressed and without header; 0 for NULL.
    pub raw_size: u32,
    /// The size as by `pg_column_size`: including the header for values in the row, the bytes in the TOAST relation for
    /// out-of-line values; 0 for NULL.
    pub stored_size: u32,
    /// Chunks in the TOAST relation.
    pub chunks: u32,
    /// Whether an UPDATE kept the pointer, so that the chunks are not written again.
    pub kept: bool,
}

impl Placed {
    /// A value that arrives uncompressed in the row and stays as it is.
    fn carried(form: Form, raw_size: u32, stored_size: u32) -> Placed {
        Placed { form, method: None, raw_size, stored_size, chunks: 0, kept: true }
    }

    /// A value that is carried unchanged: `size` bytes in the row, and what they refer to.
    pub(crate) fn opaque(size: u32, outside: Option<Outside>) -> Placed {
        let Outside { stored, chunks } = outside.unwrap_or_default();
        Placed {
            form: Form::Custom,
            method: None,
            raw_size: 0,
            stored_size: if chunks > 0 { stored } else { size },
            chunks,
            kept: false,
        }
    }

    /// The method of a compressed value; pglz if that is not known.
    pub fn compressed_by(&self) -> Option<Method> {
        let compressed = matches!(self.form, Form::Compressed | Form::ExternalCompressed);
        compressed.then_some(self.method.unwrap_or(Method::Pglz))
    }

    /// Bytes of `stored_size` that precede the stream of a compressed value.
    pub fn compressed_header(&self) -> u32 {
        match self.form {
            Form::Compressed => COMPRESSED_HEADER_SIZE,
            _ => COMPRESSED_HEADER_SIZE - VARLENA_HEADER_SIZE,
        }
    }

    /// Whether it has chunks in the TOAST relation.
    pub fn is_outside(&self) -> bool {
        self.form.is_external() || self.chunks > 0
    }
}

/// A row after toasting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toasted {
    /// One for each column.
    pub values: Vec<Placed>,
    /// The length of the heap tuple, including its header (`lp_len`).
    pub tuple_length: u32,
    /// The columns whose values were moved out of line, in that order.
    pub moved: Vec<usize>,
    /// Whether the toaster was called.
    pub toaster_called: bool,
}

/// Why the server would refuse the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// No column can be made smaller.
    #[error("row is too big: size {size}, maximum size {max}")]
    RowTooBig {
        /// The tuple's length, aligned.
        size: usize,
        /// `MaxHeapTupleSize` of the page size, in bytes.
        max: usize,
    },
    /// The number of values does not match the number of columns.
    #[error("{values} values for {columns} columns")]
    ValueCount {
        /// The number of values.
        values: usize,
        /// The number of columns.
        columns: usize,
    },
}
