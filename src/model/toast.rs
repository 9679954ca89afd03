//! The toaster's algorithm (`heap_toast_insert_or_update` in `heaptoast.c`, `toast_helper.c`,
//! `toast_internals.c`): from the values of a row to the form in which each is stored.
//!
//! Values are abstract: sizes and the form in which they arrive. Compressed sizes come from a
//! [`Compressor`], asked only for the values that PostgreSQL would compress.

use super::cost::Prices;
use super::policy::{
    Choice, Circumstances, CompressedSizes, MethodChoice, Policy, VARLENA_HEADER_SIZE,
};
use super::settings::{Settings, TupleTarget};
use super::stored::Form;
use crate::codec::Method;
use crate::disk::desc::{Align, Attribute, Length, Storage};
use crate::disk::layout::{PageSize, TUPLE_HEADER_SIZE};
use crate::disk::max_align;
use crate::disk::pointer::TOAST_POINTER_SIZE;
use crate::disk::types;

/// The longest content that takes a 1-byte header (`VARATT_SHORT_MAX` less the header).
const SHORT_CONTENT_MAX: u32 = 126;

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
    fn pack(&self, value: Incoming, operation: Operation) -> Incoming {
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
    },
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

/// A row as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toasted {
    /// One for each column.
    pub values: Vec<Placed>,
    /// Bytes of the heap tuple, header included (`lp_len`).
    pub tuple_length: u32,
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

impl Table {
    /// The length of a tuple's header, null bitmap included.
    fn header_size(&self, has_nulls: bool) -> usize {
        let bitmap = if has_nulls { self.columns.len().div_ceil(8) } else { 0 };
        max_align(TUPLE_HEADER_SIZE + bitmap)
    }

    /// Stores a row of these values, one for each column.
    pub fn toast(
        &self,
        values: &[Incoming],
        operation: Operation,
        compressor: &mut impl Compressor,
    ) -> Result<Toasted, ToastError> {
        if values.len() != self.columns.len() {
            return Err(ToastError::ValueCount {
                values: values.len(),
                columns: self.columns.len(),
            });
        }
        let has_nulls = values.contains(&Incoming::Null);
        let mut row = Row {
            table: self,
            header: self.header_size(has_nulls),
            slots: self
                .columns
                .iter()
                .zip(values)
                .map(|(column, &value)| Slot::new(column.pack(value, operation)))
                .collect(),
            compressor,
        };
        let called = operation == Operation::UpdateOfExternal
            || row.has_external()
            || row.header + row.data_size() > self.page.toast_tuple_threshold();
        if called {
            row.toast();
        }
        let length = row.header + row.data_size();
        let (size, max) = (max_align(length), self.page.toast_tuple_target_main());
        if size > max {
            return Err(ToastError::RowTooBig { size, max });
        }
        let placed = self.columns.iter().zip(&row.slots).map(|(c, s)| s.placed(c, self.page));
        Ok(Toasted {
            values: placed.collect(),
            tuple_length: u32::try_from(length).unwrap_or(u32::MAX),
            toaster_called: called,
        })
    }
}

/// A value on its way.
#[derive(Debug, Clone, Copy)]
struct Slot {
    state: State,
    /// `TOASTCOL_IGNORE`.
    ignore: bool,
    /// `TOASTCOL_INCOMPRESSIBLE`.
    incompressible: bool,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Arrived(Incoming),
    /// Moved out by this call.
    Moved {
        stored: u32,
        raw: u32,
        method: Option<Method>,
        compressed: bool,
    },
}

impl Slot {
    fn new(value: Incoming) -> Slot {
        Slot { state: State::Arrived(value), ignore: false, incompressible: false }
    }

    /// `VARSIZE_ANY`: the datum's bytes in memory.
    fn size(&self) -> u32 {
        match self.state {
            State::Arrived(value) => match value {
                Incoming::Null => 0,
                Incoming::Fixed { size } | Incoming::Opaque { size } => size,
                Incoming::Short { raw } => raw.saturating_add(1),
                Incoming::Plain { raw } => raw.saturating_add(VARLENA_HEADER_SIZE),
                Incoming::Compressed { size, .. } => size,
                Incoming::Foreign { .. } | Incoming::Kept { .. } => TOAST_POINTER_SIZE as u32,
            },
            State::Moved { .. } => TOAST_POINTER_SIZE as u32,
        }
    }

    fn is_compressed(&self) -> bool {
        matches!(self.state, State::Arrived(Incoming::Compressed { .. }))
    }

    /// The bytes that it adds to a tuple's data of `offset` bytes (`heap_compute_data_size`).
    fn end(&self, column: &Column, offset: usize) -> usize {
        let size = self.size() as usize;
        match self.state {
            State::Arrived(Incoming::Null) => offset,
            State::Arrived(Incoming::Plain { raw })
                if column.storage != Storage::Plain && raw <= SHORT_CONTENT_MAX =>
            {
                offset + raw as usize + 1
            }
            State::Moved { .. }
            | State::Arrived(
                Incoming::Short { .. } | Incoming::Foreign { .. } | Incoming::Kept { .. },
            ) => offset + size,
            State::Arrived(_) => column.align.align(offset) + size,
        }
    }

    fn placed(&self, column: &Column, page: PageSize) -> Placed {
        let inline = |form, raw, stored| Placed {
            form,
            method: None,
            raw_size: raw,
            stored_size: stored,
            chunks: 0,
            kept: false,
        };
        let external = |stored, raw, method, compressed, kept| Placed {
            form: if compressed { Form::ExternalCompressed } else { Form::External },
            method,
            raw_size: raw,
            stored_size: stored,
            chunks: page.chunks(stored),
            kept,
        };
        match self.state {
            State::Moved { stored, raw, method, compressed } => {
                external(stored, raw, method, compressed, false)
            }
            State::Arrived(value) => match value {
                Incoming::Null => inline(Form::Null, 0, 0),
                Incoming::Fixed { size } => inline(Form::Plain, size, size),
                Incoming::Short { raw } => inline(Form::Short, raw, raw + 1),
                Incoming::Plain { raw }
                    if column.storage != Storage::Plain && raw <= SHORT_CONTENT_MAX =>
                {
                    // fetched from elsewhere by the toaster
                    inline(Form::Short, raw, raw + 1)
                }
                Incoming::Plain { raw } => inline(Form::Plain, raw, self.size()),
                Incoming::Compressed { size, raw, method } => {
                    Placed { method, ..inline(Form::Compressed, raw, size) }
                }
                Incoming::Foreign { stored, raw, method, compressed } => {
                    external(stored, raw, method, compressed, false)
                }
                Incoming::Kept { stored, raw, method, compressed } => {
                    external(stored, raw, method, compressed, true)
                }
                Incoming::Opaque { size } => inline(Form::Custom, 0, size),
            },
        }
    }
}

/// A row while it is toasted.
struct Row<'a, C> {
    table: &'a Table,
    header: usize,
    slots: Vec<Slot>,
    compressor: &'a mut C,
}

impl<C: Compressor> Row<'_, C> {
    /// `HeapTupleHasExternal`.
    fn has_external(&self) -> bool {
        self.slots.iter().any(|slot| {
            matches!(
                slot.state,
                State::Arrived(
                    Incoming::Foreign { .. } | Incoming::Kept { .. } | Incoming::Opaque { .. }
                )
            )
        })
    }

    fn data_size(&self) -> usize {
        self.table.columns.iter().zip(&self.slots).fold(0, |offset, (c, slot)| slot.end(c, offset))
    }

    /// `toast_tuple_init`.
    fn prepare(&mut self) {
        for (column, slot) in self.table.columns.iter().zip(&mut self.slots) {
            let State::Arrived(value) = slot.state else { continue };
            match value {
                Incoming::Null
                | Incoming::Fixed { .. }
                | Incoming::Kept { .. }
                | Incoming::Opaque { .. } => slot.ignore = true,
                Incoming::Foreign { stored, raw, method, compressed } => {
                    let plain = column.storage == Storage::Plain;
                    slot.state = State::Arrived(if compressed && !plain {
                        let size = stored.saturating_add(VARLENA_HEADER_SIZE);
                        Incoming::Compressed { size, raw, method }
                    } else {
                        Incoming::Plain { raw }
                    });
                    slot.ignore = plain;
                }
                Incoming::Short { .. } | Incoming::Plain { .. } | Incoming::Compressed { .. } => {
                    slot.ignore = column.storage == Storage::Plain;
                }
            }
        }
    }

    fn toast(&mut self) {
        self.prepare();
        let table = self.table;
        let limit = table.target.bytes().saturating_sub(self.header);
        let can_move = table.has_toast_relation;

        // 1: compress EXTENDED; what is too big by itself moves out at once
        while self.data_size() > limit {
            let Some(index) = self.biggest(true, false) else { break };
            let storage = table.columns.get(index).map(|c| c.storage);
            if storage == Some(Storage::Extended) {
                self.compress(index, limit);
            } else if let Some(slot) = self.slots.get_mut(index) {
                slot.incompressible = true;
            }
            let too_big = self.slots.get(index).is_some_and(|s| s.size() as usize > limit);
            if too_big && can_move {
                self.move_out(index);
            }
        }
        // 2: move EXTENDED and EXTERNAL out
        while can_move && self.data_size() > limit {
            let Some(index) = self.biggest(false, false) else { break };
            self.move_out(index);
        }
        // 3: compress MAIN
        while self.data_size() > limit {
            let Some(index) = self.biggest(true, true) else { break };
            self.compress(index, limit);
        }
        // 4: move MAIN out, if the row would not fit a page
        let limit = table.page.toast_tuple_target_main().saturating_sub(self.header);
        while can_move && self.data_size() > limit {
            let Some(index) = self.biggest(false, true) else { break };
            self.move_out(index);
        }
    }

    /// `toast_tuple_find_biggest_attribute`: the first of equals.
    fn biggest(&self, for_compression: bool, main: bool) -> Option<usize> {
        let mut biggest = None;
        // smaller ones gain nothing
        let mut size = max_align(TOAST_POINTER_SIZE) as u32;
        for (index, (column, slot)) in self.table.columns.iter().zip(&self.slots).enumerate() {
            let taken = slot.ignore
                || matches!(slot.state, State::Moved { .. })
                || (for_compression && (slot.incompressible || slot.is_compressed()));
            let wanted = match column.storage {
                Storage::Plain => false,
                Storage::Main => main,
                Storage::External | Storage::Extended => !main,
            };
            if !taken && wanted && slot.size() > size {
                size = slot.size();
                biggest = Some(index);
            }
        }
        biggest
    }

    /// `toast_tuple_try_compression`, with the column's policy over the result.
    fn compress(&mut self, index: usize, limit: usize) {
        let (Some(column), Some(slot)) = (self.table.columns.get(index), self.slots.get_mut(index))
        else {
            return;
        };
        let raw = match slot.state {
            State::Arrived(Incoming::Short { raw } | Incoming::Plain { raw }) => raw,
            _ => {
                slot.incompressible = true;
                return;
            }
        };
        let mut sizes = CompressedSizes::default();
        if column.policy != Policy::Never {
            for &method in column.method.methods() {
                sizes.set(method, self.compressor.compressed_size(index, method));
            }
        }
        let circumstances = Circumstances {
            page: self.table.page,
            inline_limit: u32::try_from(limit).unwrap_or(u32::MAX),
            prices: &self.table.prices,
        };
        match column.policy.decide(column.method, raw, sizes, &circumstances) {
            Choice::Compressed { method, size } => {
                slot.state =
                    State::Arrived(Incoming::Compressed { size, raw, method: Some(method) });
            }
            Choice::Uncompressed => slot.incompressible = true,
        }
    }

    /// `toast_tuple_externalize`, `toast_save_datum`.
    fn move_out(&mut self, index: usize) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        slot.ignore = true;
        slot.state = match slot.state {
            State::Arrived(Incoming::Short { raw } | Incoming::Plain { raw }) => {
                State::Moved { stored: raw, raw, method: None, compressed: false }
            }
            State::Arrived(Incoming::Compressed { size, raw, method }) => {
                let stored = size.saturating_sub(VARLENA_HEADER_SIZE);
                State::Moved { stored, raw, method, compressed: true }
            }
            other => other,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LZ4: MethodChoice = MethodChoice::One(Method::Lz4);

    fn text(storage: Storage) -> Column {
        Column {
            length: Length::Varlena,
            align: Align::Int,
            storage,
            type_storage: Storage::Extended,
            method: LZ4,
            policy: Policy::Always,
        }
    }

    const INT4: Column = Column {
        length: Length::Fixed(4),
        align: Align::Int,
        storage: Storage::Plain,
        type_storage: Storage::Plain,
        method: LZ4,
        policy: Policy::Always,
    };

    fn table(columns: Vec<Column>) -> Table {
        Table {
            columns,
            target: TupleTarget::default_for(PageSize::DEFAULT),
            has_toast_relation: true,
            page: PageSize::DEFAULT,
            prices: Prices::default(),
        }
    }

    fn forms(toasted: &Toasted) -> Vec<&'static str> {
        toasted.values.iter().map(|v| v.form.name()).collect()
    }

    fn insert(table: &Table, values: &[Incoming], size: Option<u32>) -> Toasted {
        table.toast(values, Operation::Insert, &mut |_, _| size).unwrap()
    }

    const INT: Incoming = Incoming::Fixed { size: 4 };

    fn plain(raw: u32) -> Incoming {
        Incoming::Plain { raw }
    }

    #[test]
    fn rows_up_to_the_threshold_stay_as_they_are() {
        let t = table(vec![INT4, text(Storage::Extended)]);
        // 24 + 4 + 4 + 2000
        let row = insert(&t, &[INT, plain(2000)], Some(100));
        assert_eq!((forms(&row), row.tuple_length), (vec!["plain", "plain"], 2032));
        assert!(!row.toaster_called);
        let row = insert(&t, &[INT, plain(2001)], Some(100));
        assert_eq!((forms(&row), row.tuple_length), (vec!["plain", "compressed"], 128));
        let low = Table { target: TupleTarget::new(128, t.page).unwrap(), ..t.clone() };
        let row = insert(&low, &[INT, plain(2000)], Some(100));
        assert_eq!(forms(&row), ["plain", "plain"]);
        let row = insert(&low, &[INT, plain(2001)], Some(101));
        assert_eq!(forms(&row), ["plain", "external_compressed"]);
        assert_eq!((row.tuple_length, row.values[1].stored_size), (24 + 4 + 18, 97));
        // a row that had a value out of line is toasted at any length
        let row = low.toast(&[INT, plain(200)], Operation::UpdateOfExternal, &mut |_, _| None);
        assert_eq!(forms(&row.unwrap()), ["plain", "external"]);
    }

    #[test]
    fn short_headers_need_no_alignment_and_on_update_no_plain_storage() {
        let t = table(vec![INT4, text(Storage::Extended), text(Storage::Plain), INT4]);
        let values = [INT, plain(126), plain(3), Incoming::Null];
        let row = insert(&t, &values, None);
        assert_eq!(forms(&row), ["plain", "short", "short", "null"]);
        let row = t.toast(&values, Operation::Update, &mut |_, _| None).unwrap();
        assert_eq!(forms(&row), ["plain", "short", "plain", "null"]);
        // 4 + 127, aligned to 132, + 7
        assert_eq!(row.tuple_length, 24 + 139);
        let row = insert(&t, &[INT, plain(127), Incoming::Short { raw: 3 }, INT], None);
        assert_eq!(forms(&row), ["plain", "plain", "short", "plain"]);
        // 4 + 131 = 135, + 4, aligned to 140, + 4
        assert_eq!(row.tuple_length, 24 + 144);
    }

    #[test]
    fn null_bitmaps_lengthen_the_header() {
        let t = table(vec![INT4; 9]);
        let mut values = vec![INT; 9];
        assert_eq!(insert(&t, &values, None).tuple_length, 24 + 36);
        values[0] = Incoming::Null;
        assert_eq!(insert(&t, &values, None).tuple_length, 32 + 32);
    }

    #[test]
    fn the_biggest_goes_first_and_of_equals_the_first() {
        let t = table(vec![text(Storage::Extended), text(Storage::External), INT4]);
        let row = insert(&t, &[plain(1500), plain(1500), INT], None);
        assert_eq!(forms(&row), ["external", "plain", "plain"]);
        let row = insert(&t, &[plain(1500), plain(1501), INT], None);
        assert_eq!(forms(&row), ["plain", "external", "plain"]);
        // compressed to 400 the first makes room for the second
        let row = insert(&t, &[plain(1501), plain(1500), INT], Some(400));
        assert_eq!(forms(&row), ["compressed", "plain", "plain"]);
    }

    #[test]
    fn main_is_compressed_last_and_moved_only_off_a_full_page() {
        let t = table(vec![text(Storage::Main), text(Storage::Extended)]);
        let row = insert(&t, &[plain(5000), plain(1000)], None);
        assert_eq!(forms(&row), ["plain", "external"]);
        // a wide MAIN column drives the others out before it is compressed itself
        let values = [plain(5000), plain(100)];
        let mut sizes = |index, _: Method| (index == 0).then_some(2600);
        let row = t.toast(&values, Operation::Insert, &mut sizes).unwrap();
        assert_eq!(forms(&row), ["compressed", "external"]);
        // 8160 - 24 for the data
        let one = table(vec![text(Storage::Main)]);
        assert_eq!(forms(&insert(&one, &[plain(8132)], None)), ["plain"]);
        assert_eq!(forms(&insert(&one, &[plain(8133)], None)), ["external"]);
    }

    #[test]
    fn rows_that_cannot_shrink_are_refused_as_the_server_does() {
        let error = |t: &Table, values: &[Incoming]| {
            t.toast(values, Operation::Insert, &mut |_, _| None).unwrap_err().to_string()
        };
        let t = table(vec![INT4, text(Storage::Plain)]);
        assert_eq!(
            error(&t, &[INT, plain(10_000)]),
            "row is too big: size 10032, maximum size 8160"
        );
        let without = Table { has_toast_relation: false, ..table(vec![text(Storage::Extended)]) };
        assert_eq!(error(&without, &[plain(9000)]), "row is too big: size 9032, maximum size 8160");
        assert_eq!(error(&t, &[INT]), "1 values for 2 columns");
    }

    #[test]
    fn values_keep_the_form_in_which_they_arrive() {
        let t = table(vec![INT4, text(Storage::External), text(Storage::Extended)]);
        let compressed =
            |size| Incoming::Compressed { size, raw: 9000, method: Some(Method::Pglz) };
        let row = insert(&t, &[INT, compressed(1500), plain(10)], None);
        assert_eq!(forms(&row), ["plain", "compressed", "short"]);
        let row = insert(&t, &[INT, compressed(3000), plain(10)], None);
        assert_eq!(forms(&row), ["plain", "external_compressed", "short"]);
        assert_eq!((row.values[1].stored_size, row.values[1].chunks), (2996, 2));
        let foreign = |compressed| Incoming::Foreign {
            stored: 500,
            raw: if compressed { 5000 } else { 500 },
            method: compressed.then_some(Method::Pglz),
            compressed,
        };
        let row = insert(&t, &[INT, foreign(true), foreign(false)], None);
        assert_eq!(forms(&row), ["plain", "compressed", "plain"]);
        assert_eq!(row.values[1].stored_size, 504);
        let kept = Incoming::Kept { stored: 500, raw: 500, method: None, compressed: false };
        let row = insert(&t, &[INT, kept, plain(1000)], None);
        assert_eq!((forms(&row), row.values[1].kept), (vec!["plain", "external", "plain"], true));
        let into_plain = table(vec![text(Storage::Plain)]);
        let row = insert(&into_plain, &[foreign(true)], None);
        assert_eq!((forms(&row), row.values[0].stored_size), (vec!["plain"], 5004));
    }

    #[test]
    fn the_policy_overrules_compression_and_never_asks_for_what_it_does_not_need() {
        let column = |policy, method| Column { policy, method, ..text(Storage::Extended) };
        let mut asked = Vec::new();
        let mut run = |column, raw| {
            let t = table(vec![column]);
            let row = t.toast(&[plain(raw)], Operation::Insert, &mut |_, method| {
                asked.push(method);
                Some(if method == Method::Lz4 { raw - 100 } else { raw - 50 })
            });
            row.unwrap().values[0].form.name()
        };
        assert_eq!(run(column(Policy::ChunkSaving { chunks: 1 }, LZ4), 7_900), "external");
        assert_eq!(run(column(Policy::Never, LZ4), 7_900), "external");
        assert_eq!(run(column(Policy::Always, MethodChoice::Either), 7_900), "external_compressed");
        assert_eq!(run(column(Policy::Always, LZ4), 100), "short");
        assert_eq!(asked, [Method::Lz4, Method::Pglz, Method::Lz4]);
    }

    fn any_storage() -> impl Strategy<Value = Storage> {
        prop_oneof![
            Just(Storage::Plain),
            Just(Storage::Main),
            Just(Storage::External),
            Just(Storage::Extended)
        ]
    }

    fn any_incoming() -> impl Strategy<Value = Incoming> {
        let size = prop_oneof![0u32..300, 0u32..9000, any::<u32>()];
        (0..8u8, size.clone(), size, any::<bool>()).prop_map(|(kind, a, b, compressed)| {
            let method = compressed.then_some(Method::Pglz);
            match kind {
                0 => Incoming::Null,
                1 => Incoming::Fixed { size: a },
                2 => Incoming::Short { raw: a % 127 },
                3 => Incoming::Compressed { size: a, raw: b, method },
                4 => Incoming::Foreign { stored: a, raw: b, method, compressed },
                5 => Incoming::Kept { stored: a, raw: b, method, compressed },
                6 => Incoming::Opaque { size: a },
                _ => Incoming::Plain { raw: a },
            }
        })
    }

    proptest! {
        #[test]
        fn any_row_ends_and_fits_or_is_refused(
            row in proptest::collection::vec((any_storage(), any_incoming()), 1..12),
            has_toast_relation in any::<bool>(),
            target in 128u32..8161,
            size in proptest::option::of(any::<u32>()),
        ) {
            let (storages, values): (Vec<_>, Vec<_>) = row.into_iter().unzip();
            let t = Table {
                target: TupleTarget::new(target, PageSize::DEFAULT).unwrap(),
                has_toast_relation,
                ..table(storages.into_iter().map(text).collect())
            };
            match t.toast(&values, Operation::Insert, &mut |_, _| size) {
                Ok(toasted) => prop_assert!(toasted.tuple_length <= 8160),
                Err(ToastError::RowTooBig { size, max }) => prop_assert!(size > max),
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            }
        }
    }
}
