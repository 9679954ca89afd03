//! What the toaster is given and what it leaves.

use crate::codec::Method;
use crate::disk::desc::{Align, Attribute, Length, Storage};
use crate::disk::layout::PageSize;
use crate::disk::types;
use crate::model::cost::Prices;
use crate::model::policy::{MethodChoice, Policy, VARLENA_HEADER_SIZE};
use crate::model::settings::{Settings, TupleTarget};
use crate::model::stored::{Form, StoredValue};

/// The longest content that takes a 1-byte header (`VARATT_SHORT_MAX` less the header).
pub(super) const SHORT_CONTENT_MAX: u32 = 126;

/// What the algorithm needs to know of one column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// `attlen`.
    pub length: Length,
    /// `attalign`.
    pub align: Align,
    /// `attstorage`.
    pub storage: Storage,
    /// The type's own storage (`typstorage`).
    pub type_storage: Storage,
    /// `attcompression`, the server's default resolved.
    pub method: MethodChoice,
    /// Which compressed values are kept; `always` on a stock server.
    pub policy: Policy,
}

impl Column {
    /// The column as the catalog has it; `default_method` is `default_toast_compression`.
    pub fn of(attribute: &Attribute, default_method: Method) -> Column {
        Column {
            length: attribute.length,
            align: attribute.align,
            storage: attribute.storage,
            type_storage: type_storage(attribute),
            method: MethodChoice::One(attribute.compression.unwrap_or(default_method)),
            policy: Policy::Always,
        }
    }

    /// The value as it stands in the tuple that the toaster is given (`heap_form_tuple`).
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

    /// The column under other settings (the target is the [`Table`]'s).
    pub fn with(self, settings: &Settings) -> Column {
        Column {
            storage: settings.storage,
            method: settings.method,
            policy: settings.policy,
            ..self
        }
    }
}

/// `typstorage` of a column's type; types that are not known here are taken for ones that can be
/// toasted, as nearly all are.
fn type_storage(attribute: &Attribute) -> Storage {
    if attribute.length != Length::Varlena {
        return Storage::Plain;
    }
    types::by_oid(attribute.type_oid)
        .or_else(|| types::by_name(&attribute.type_name))
        .map_or(Storage::Extended, |known| known.storage)
}

/// What the algorithm needs to know of a relation.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// The columns in `attnum` order, dropped ones included (new rows hold NULL in them).
    pub columns: Vec<Column>,
    /// `toast_tuple_target`.
    pub target: TupleTarget,
    /// Whether there is a TOAST relation (`reltoastrelid`).
    pub has_toast_relation: bool,
    /// The page size.
    pub page: PageSize,
    /// What [`Policy::Best`] reckons with.
    pub prices: Prices,
}

impl Table {
    /// How a stored value of a column arrives when an UPDATE carries it along.
    pub fn carried(&self, index: usize, value: &StoredValue) -> Incoming {
        let length = self.columns.get(index).map_or(Length::Varlena, |column| column.length);
        Incoming::carried(value, length, self.page)
    }
}

/// A value as it arrives at the toaster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incoming {
    /// NULL.
    Null,
    /// A value of fixed length, or a C string with its NUL.
    Fixed {
        /// Its bytes.
        size: u32,
    },
    /// A varlena with a 1-byte header, as copied from another row.
    Short {
        /// Content bytes.
        raw: u32,
    },
    /// A varlena with a 4-byte header: every freshly computed value.
    Plain {
        /// Content bytes.
        raw: u32,
    },
    /// Compressed, in line.
    Compressed {
        /// Bytes of the datum, with its 8 bytes of headers.
        size: u32,
        /// Content bytes, decompressed.
        raw: u32,
        /// `None` if unknown.
        method: Option<Method>,
    },
    /// Out of line in another relation, or in this one for another row: fetched before use.
    Foreign {
        /// Bytes in that TOAST relation.
        stored: u32,
        /// Content bytes, decompressed.
        raw: u32,
        /// `None` if not compressed or unknown.
        method: Option<Method>,
        /// Whether the stored bytes are compressed.
        compressed: bool,
    },
    /// An UPDATE's unchanged value out of line: the row keeps the pointer.
    Kept {
        /// Bytes in the TOAST relation.
        stored: u32,
        /// Content bytes, decompressed.
        raw: u32,
        /// `None` if not compressed or unknown.
        method: Option<Method>,
        /// Whether the stored bytes are compressed.
        compressed: bool,
    },
    /// A pluggable toaster's pointer or another datum that is carried along as it is.
    Opaque {
        /// Its bytes in the row.
        size: u32,
        /// What it leads to in the TOAST relation; `None` if that is not known.
        outside: Option<Outside>,
    },
}

impl Incoming {
    /// How a stored value of a column of this length arrives when an UPDATE carries it along. Where a size is not known
    /// it is what the value takes at the least.
    pub fn carried(value: &StoredValue, length: Length, page: PageSize) -> Incoming {
        let size = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        let stored = value.stored_size.map_or(0, size);
        let raw = value.raw_size.map_or(stored, size);
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
                size: size(value.pointer_size),
                outside: Outside::of(value, page),
            },
            Form::Unknown => Incoming::Opaque {
                size: size(value.stored_size.unwrap_or(value.pointer_size)),
                outside: None,
            },
        }
    }

    /// The value as a freshly computed one.
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

    /// What is stored of a value that arrives so, as far as a judge looks at it.
    pub(crate) fn stored_value(self) -> StoredValue {
        let value = |form, method, raw: u32, stored: u32| StoredValue {
            form,
            method,
            raw_size: Some(raw.into()),
            stored_size: Some(stored.into()),
            ..StoredValue::NULL
        };
        match self {
            Incoming::Null => StoredValue::NULL,
            Incoming::Fixed { size } => value(Form::Plain, None, size, size),
            Incoming::Short { raw } => value(Form::Short, None, raw, raw.saturating_add(1)),
            Incoming::Plain { raw } => {
                value(Form::Plain, None, raw, raw.saturating_add(VARLENA_HEADER_SIZE))
            }
            Incoming::Compressed { size, raw, method } => {
                value(Form::Compressed, method, raw, size)
            }
            Incoming::Foreign { stored, raw, method, compressed }
            | Incoming::Kept { stored, raw, method, compressed } => {
                let form = if compressed { Form::ExternalCompressed } else { Form::External };
                value(form, method, raw, stored)
            }
            Incoming::Opaque { size, .. } => {
                StoredValue { form: Form::Custom, pointer_size: size.into(), ..StoredValue::NULL }
            }
        }
    }

    /// The value where it is, as it is stored.
    pub fn as_stored(self, page: PageSize) -> Placed {
        let inline = |form, raw_size, stored_size| Placed {
            form,
            method: None,
            raw_size,
            stored_size,
            chunks: 0,
            kept: true,
        };
        match self {
            Incoming::Null => inline(Form::Null, 0, 0),
            Incoming::Fixed { size } => inline(Form::Plain, size, size),
            Incoming::Opaque { size, outside } => {
                Placed { kept: true, ..Placed::opaque(size, outside) }
            }
            Incoming::Short { raw } => inline(Form::Short, raw, raw.saturating_add(1)),
            Incoming::Plain { raw } => {
                inline(Form::Plain, raw, raw.saturating_add(VARLENA_HEADER_SIZE))
            }
            Incoming::Compressed { size, raw, method } => {
                Placed { method, ..inline(Form::Compressed, raw, size) }
            }
            Incoming::Foreign { stored, raw, method, compressed }
            | Incoming::Kept { stored, raw, method, compressed } => {
                let form = if compressed { Form::ExternalCompressed } else { Form::External };
                Placed { method, chunks: page.chunks(stored), ..inline(form, raw, stored) }
            }
        }
    }
}

/// What a pointer that is carried along leads to in the TOAST relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outside {
    /// Bytes of its chunks.
    pub stored: u32,
    /// Its chunks.
    pub chunks: u32,
}

impl Outside {
    /// Of a pluggable toaster's value. Where its pointer tells the chunks alone they count as full ones.
    fn of(value: &StoredValue, page: PageSize) -> Option<Outside> {
        let chunks = u32::try_from(value.custom?.chunks?).unwrap_or(u32::MAX);
        let full = || u64::from(chunks) * u64::from(page.toast_max_chunk_size());
        let stored = value.stored_size.unwrap_or_else(full);
        Some(Outside { stored: u32::try_from(stored).unwrap_or(u32::MAX), chunks })
    }
}

/// What is done with the row, as far as storage cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Operation {
    /// INSERT: the executor forms the tuple by the types' own storage, so that short values get
    /// 1-byte headers in PLAIN columns too.
    #[default]
    Insert,
    /// COPY, or an UPDATE of a row without values out of line.
    Update,
    /// An UPDATE of a row that has values out of line: the toaster is called however short the
    /// new row is (`heap_update`).
    UpdateOfExternal,
}

/// Where compressed sizes come from.
pub trait Compressor {
    /// The size of the datum, its 8 bytes of headers included, into which the server would
    /// compress the value of column `index` with `method`; `None` where it would keep it as it
    /// is (`toast_compress_datum`).
    fn compressed_size(&mut self, index: usize, method: Method) -> Option<u32>;
}

impl<F: FnMut(usize, Method) -> Option<u32>> Compressor for F {
    fn compressed_size(&mut self, index: usize, method: Method) -> Option<u32> {
        self(index, method)
    }
}

/// How one value is stored in the end. All sizes are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// The form.
    pub form: Form,
    /// The compression method; `None` if uncompressed or unknown.
    pub method: Option<Method>,
    /// Content without header, decompressed; 0 for NULL.
    pub raw_size: u32,
    /// As `pg_column_size` counts: with the header in the row, the bytes in the TOAST relation
    /// out of line; 0 for NULL.
    pub stored_size: u32,
    /// Chunks in the TOAST relation.
    pub chunks: u32,
    /// An UPDATE kept the pointer: the chunks are not written again.
    pub kept: bool,
}

impl Placed {
    /// What is carried along as it is: `size` bytes in the row, and what they lead to.
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

    /// Whether it has chunks in the TOAST relation.
    pub(crate) fn is_outside(&self) -> bool {
        self.form.is_external() || self.chunks > 0
    }
}

/// A row as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toasted {
    /// One for each column.
    pub values: Vec<Placed>,
    /// Bytes of the heap tuple, header included (`lp_len`).
    pub tuple_length: u32,
    /// The columns whose values this has moved out of line, in the order in which it did.
    pub moved: Vec<usize>,
    /// Whether the toaster was called at all.
    pub toaster_called: bool,
}

/// Why the server would refuse the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ToastError {
    /// No column can be made smaller any more.
    #[error("row is too big: size {size}, maximum size {max}")]
    RowTooBig {
        /// The tuple's length, aligned.
        size: usize,
        /// `MaxHeapTupleSize`.
        max: usize,
    },
    /// More or fewer values than columns.
    #[error("{values} values for {columns} columns")]
    ValueCount {
        /// Values given.
        values: usize,
        /// Columns of the table.
        columns: usize,
    },
}
