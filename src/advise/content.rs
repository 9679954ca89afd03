//! The rows of a sample: their values, read from pages or told by SQL functions, and what compression makes of them
//! (pure).

use super::tally::SampleRow;
use crate::server::catalog::Relation;
use crate::server::pages::Pages;
use crate::server::sampled::AskedRow;
use toast_format::codec::items::Items;
use toast_format::codec::{Method, datum, lz4_size};
use toast_format::disk::pointer::TOAST_POINTER_SIZE;
use toast_format::disk::varlena::{tc_method, tc_raw_size};
use toast_format::disk::{
    BlockNumber, CustomPointer, Datum, HeapTuple, ItemPointer, Length, PageSize, Storage,
    ToastPointer, TupleDesc, Varlena, Walk, max_align,
};
use toast_format::heap::problem::{Place, Problem, Problems};
use toast_format::heap::scan::{Visible, live_tuples};
use toast_format::model::StoredValue;
use toast_format::model::policy::{COMPRESSED_HEADER_SIZE, CompressedSizes, VARLENA_HEADER_SIZE};
use toast_format::model::toast::{Compressor, Incoming, Table};

/// Where a value's content is to be had: on the page, if at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content<'p> {
    /// Not at all, or it is never compressed.
    None,
    Raw(&'p [u8]),
    Stream {
        method: Method,
        raw_size: usize,
        stream: &'p [u8],
    },
}

/// What is known of one value, compressed.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    sizes: CompressedSizes,
    pglz: Compressed,
    lz4: Compressed,
}

/// What is known of it with one method.
#[derive(Debug, Clone, Copy, Default)]
struct Compressed {
    /// Whether it is known what the server does: the size after compression, or that it does not compress the value.
    sized: bool,
    items: Option<Items>,
}

impl Known {
    /// What is known from a stored value alone.
    fn new(value: &Incoming) -> Known {
        let mut known = Known::default();
        match *value {
            Incoming::Compressed { size, method: Some(method), .. } => {
                known.learn(method, Some(size));
            }
            Incoming::Kept { stored, method: Some(method), .. } => {
                known.learn(method, Some(stored.saturating_add(VARLENA_HEADER_SIZE)));
            }
            _ => {}
        }
        known
    }

    fn with(&mut self, method: Method) -> &mut Compressed {
        match method {
            Method::Pglz => &mut self.pglz,
            Method::Lz4 => &mut self.lz4,
        }
    }

    fn has(&self, method: Method) -> bool {
        match method {
            Method::Pglz => self.pglz.sized,
            Method::Lz4 => self.lz4.sized,
        }
    }

    fn learn(&mut self, method: Method, size: Option<u32>) {
        self.with(method).sized = true;
        self.sizes.set(method, size);
    }

    /// Learns what the server makes of this content.
    fn compress(&mut self, method: Method, raw: &[u8], compressor: &mut datum::Compressor) {
        let made = compressed(compressor, method, raw);
        self.learn(method, made.map(|(size, _)| size));
        self.with(method).items = made.map(|(_, items)| items);
    }
}

/// A live row of the sample.
#[derive(Debug, Clone)]
pub struct SampledRow<'p> {
    pub ctid: ItemPointer,
    /// What the tally needs of it.
    pub facts: SampleRow,
    values: Vec<SampleValue<'p>>,
}

/// A value of a row.
#[derive(Debug, Clone, Copy)]
struct SampleValue<'p> {
    content: Content<'p>,
    known: Known,
    /// Where it is, if it is out of line.
    pointer: Option<ToastPointer>,
    /// The pointer of a pluggable toaster.
    custom: Option<CustomPointer<'p>>,
}

/// The live rows of each of these pages of a relation.
pub(super) fn rows_of_pages<'p>(
    relation: &Relation,
    pages: &'p Pages,
    page_size: PageSize,
    problems: &mut Problems,
) -> Vec<Vec<SampledRow<'p>>> {
    let name = relation.display_name();
    problems.extend(pages.problems(&name));
    pages
        .iter()
        .map(|page| rows_of_page(&name, page, &relation.desc, page_size, pages, problems))
        .collect()
}

/// The live rows of a page of the relation with this name, as `visible` sees them.
pub fn rows_of_page<'p>(
    relation: &str,
    page: (BlockNumber, &'p [u8]),
    desc: &TupleDesc,
    page_size: PageSize,
    visible: &impl Visible,
    problems: &mut Problems,
) -> Vec<SampledRow<'p>> {
    let mut rows = Vec::new();
    live_tuples(relation, page.0, page.1, visible, problems, |ctid, tuple, length| {
        let row = row(ctid, tuple, u32::from(length), desc, page_size);
        rows.push(row.map_err(|message| Problem { place: Place::default(), message })?);
        Ok(())
    });
    rows
}

fn row<'p>(
    ctid: ItemPointer,
    tuple: &HeapTuple<'p>,
    tuple_length: u32,
    desc: &TupleDesc,
    page_size: PageSize,
) -> Result<SampledRow<'p>, String> {
    let columns = desc.attributes.len();
    let mut row = SampledRow {
        ctid,
        facts: SampleRow { values: Vec::with_capacity(columns), tuple_length, dropped_outside: 0 },
        values: Vec::with_capacity(columns),
    };
    for walked in Walk::new(tuple, desc) {
        let (column, datum) = walked.map_err(|e| e.to_string())?;
        let mut custom = None;
        let (value, content, pointer) = if column.dropped {
            if let Datum::Varlena(Varlena::External(pointer)) = datum {
                let more = &mut row.facts.dropped_outside;
                *more = more.saturating_add(pointer.stored_size());
            }
            (Incoming::Null, Content::None, None)
        } else {
            let value = Incoming::carried(
                &StoredValue::new(&datum, column, page_size),
                column.length,
                page_size,
            );
            match datum {
                Datum::Fixed(bytes)
                | Datum::Varlena(
                    Varlena::Short { content: bytes } | Varlena::Plain { content: bytes },
                ) => (value, Content::Raw(bytes), None),
                Datum::Varlena(Varlena::Compressed { tc_info, stream }) => {
                    let raw_size = tc_raw_size(tc_info) as usize;
                    let content = match tc_method(tc_info) {
                        Some(method) => Content::Stream { method, raw_size, stream },
                        None => Content::None,
                    };
                    (value, content, None)
                }
                Datum::Varlena(Varlena::External(pointer)) => (value, Content::None, Some(pointer)),
                Datum::Varlena(Varlena::Custom(pointer)) => {
                    custom = Some(pointer);
                    (value, Content::None, None)
                }
                _ => (value, Content::None, None),
            }
        };
        row.facts.values.push(value);
        row.values.push(SampleValue { content, known: Known::new(&value), pointer, custom });
    }
    Ok(row)
}

/// A row known only by forms and sizes; the compressed sizes of its values are still unknown. `table` has the present
/// settings.
pub(crate) fn asked_row(asked: &AskedRow, desc: &TupleDesc, table: &Table) -> SampledRow<'static> {
    let values: Vec<Incoming> = desc
        .attributes
        .iter()
        .zip(&asked.values)
        .map(|(column, value)| Incoming::carried(value, column.length, table.page))
        .collect();
    let length = table.length_of(&values);
    let dropped = asked.whole.map_or(0, |whole| dropped_bytes(whole, length, &values, desc, table));
    let value = |value: &Incoming| SampleValue {
        content: Content::None,
        known: Known::new(value),
        pointer: None,
        custom: None,
    };
    SampledRow {
        ctid: asked.ctid,
        values: values.iter().map(value).collect(),
        facts: SampleRow {
            values,
            tuple_length: length.saturating_add(dropped),
            dropped_outside: 0,
        },
    }
}

impl<'p> SampledRow<'p> {
    /// Whether the size of a column's value, compressed by this method, is known.
    pub(super) fn knows(&self, column: usize, method: Method) -> bool {
        self.values.get(column).is_some_and(|value| value.known.has(method))
    }

    /// The pointer of a value out of line of which a size with one of `methods` is not yet known, or
    /// the content is wanted.
    pub fn must_fetch(
        &self,
        column: usize,
        methods: &[Method],
        content: bool,
    ) -> Option<ToastPointer> {
        let SampleValue { known, pointer, .. } = self.values.get(column)?;
        if content || methods.iter().any(|&method| !known.has(method)) { *pointer } else { None }
    }

    /// Takes the stored bytes of a value out of line and learns its sizes with `methods`; `look` is
    /// shown the row and the content.
    ///
    /// # Errors
    /// Where the bytes do not give the value; those of `look`.
    pub fn fetched(
        &mut self,
        column: usize,
        stored: &[u8],
        methods: &[Method],
        compressor: &mut datum::Compressor,
        look: impl FnOnce(&SampleRow, &[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let Some(SampleValue { pointer: Some(pointer), known, .. }) = self.values.get_mut(column)
        else {
            return Ok(());
        };
        let decompressed;
        let raw = if pointer.is_compressed() {
            let tc_info = stored
                .first_chunk::<4>()
                .map(|b| u32::from_le_bytes(*b))
                .ok_or("compressed value without its header")?;
            let method = tc_method(tc_info).ok_or("unknown compression method")?;
            let stream = stored.get(4..).unwrap_or(&[]);
            known.with(method).items = Some(datum::items(method, stream));
            decompressed = datum::decompress(method, pointer.raw_size() as usize, stream)
                .map_err(|e| e.to_string())?;
            &decompressed[..]
        } else {
            stored
        };
        for &method in methods {
            if !known.has(method) {
                known.compress(method, raw, compressor);
            }
        }
        look(&self.facts, raw)
    }

    /// Says what the server itself makes of a value: the datum's size, `None` if it refuses.
    pub fn learn(&mut self, column: usize, method: Method, size: Option<u32>) {
        if let Some(value) = self.values.get_mut(column) {
            value.known.learn(method, size);
        }
    }

    /// What the tally reads of the row, and what compresses its values.
    pub(super) fn parts<'r>(
        &'r mut self,
        compressor: &'r mut datum::Compressor,
    ) -> (&'r SampleRow, RowCompressor<'r, 'p>) {
        let SampledRow { facts, values, .. } = self;
        (facts, RowCompressor { values, compressor })
    }

    /// The value of a column as it may be timed; `None` for NULL, and where its size with one of `methods` is not known.
    pub(super) fn specimen(
        &mut self,
        column: usize,
        methods: &[Method],
        compressor: &mut datum::Compressor,
    ) -> Option<Specimen> {
        let raw = match *self.facts.values.get(column)? {
            Incoming::Short { raw }
            | Incoming::Plain { raw }
            | Incoming::Compressed { raw, .. }
            | Incoming::Foreign { raw, .. }
            | Incoming::Kept { raw, .. } => raw,
            Incoming::Null | Incoming::Fixed { .. } | Incoming::Opaque { .. } => return None,
        };
        let mut specimen = Specimen { ctid: self.ctid, raw, pglz: None, lz4: None };
        let value = self.values.get_mut(column)?;
        for &method in methods {
            let size = value.compressed_size(method, compressor);
            if !value.known.has(method) {
                return None;
            }
            let stream = size.unwrap_or_default().saturating_sub(COMPRESSED_HEADER_SIZE);
            let items = value.items(method).unwrap_or_else(|| Items::typical(method, raw, stream));
            let made = size.map(|size| (size, items));
            match method {
                Method::Pglz => specimen.pglz = made,
                Method::Lz4 => specimen.lz4 = made,
            }
        }
        Some(specimen)
    }

    /// Shows the content of a value that stands in the row, decompressed.
    ///
    /// # Errors
    /// Where it cannot be decompressed.
    pub(super) fn show_inline(
        &self,
        column: usize,
        look: impl FnOnce(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        match self.values.get(column).map(|value| value.content) {
            Some(Content::Raw(raw)) => look(raw),
            Some(Content::Stream { method, raw_size, stream }) => {
                look(&datum::decompress(method, raw_size, stream).map_err(|e| e.to_string())?)
            }
            Some(Content::None) | None => Ok(()),
        }
    }

    /// What a compressed value that stands in the row consists of.
    pub(super) fn stored_items(&self, column: usize) -> Option<Items> {
        match self.values.get(column)?.content {
            Content::Stream { method, stream, .. } => Some(datum::items(method, stream)),
            Content::None | Content::Raw(_) => None,
        }
    }

    /// The pointer of a value that a pluggable toaster has stored.
    pub(super) fn custom(&self, column: usize) -> Option<CustomPointer<'p>> {
        self.values.get(column)?.custom
    }

    /// Where a value is, if it is out of line.
    pub(super) fn pointer(&self, column: usize) -> Option<ToastPointer> {
        self.values.get(column)?.pointer
    }

    /// The datum's size when the value is compressed, its 8 bytes of headers included; `None`
    /// where the server refuses, or where the content is not at hand.
    pub fn compressed_size(
        &mut self,
        column: usize,
        method: Method,
        compressor: &mut datum::Compressor,
    ) -> Option<u32> {
        self.values.get_mut(column)?.compressed_size(method, compressor)
    }

    /// The content of a value that stands in the row as it is.
    pub fn plain_content(&self, column: usize) -> Option<&[u8]> {
        match self.values.get(column)?.content {
            Content::Raw(raw) => Some(raw),
            Content::None | Content::Stream { .. } => None,
        }
    }
}

/// A value of the sample, to be copied and timed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Specimen {
    pub(super) ctid: ItemPointer,
    /// Bytes of its content.
    pub(super) raw: u32,
    /// The size of the datum, 8 bytes of headers included, and what it consists of; `None` if the server does not
    /// compress the value, or if this is unknown.
    pub(super) pglz: Option<(u32, Items)>,
    pub(super) lz4: Option<(u32, Items)>,
}

impl Specimen {
    pub(super) fn compressed(&self, method: Method) -> Option<(u32, Items)> {
        match method {
            Method::Pglz => self.pglz,
            Method::Lz4 => self.lz4,
        }
    }
}

/// Compresses the values of a row. A value has no size if the server does not compress it, or if its content is not at
/// hand.
pub(super) struct RowCompressor<'r, 'p> {
    values: &'r mut [SampleValue<'p>],
    compressor: &'r mut datum::Compressor,
}

impl Compressor for RowCompressor<'_, '_> {
    fn compressed_size(&mut self, column: usize, method: Method) -> Option<u32> {
        self.values.get_mut(column)?.compressed_size(method, self.compressor)
    }

    fn items(&mut self, column: usize, method: Method) -> Option<Items> {
        self.values.get_mut(column)?.items(method)
    }
}

impl SampleValue<'_> {
    fn compressed_size(
        &mut self,
        method: Method,
        compressor: &mut datum::Compressor,
    ) -> Option<u32> {
        let SampleValue { content, known, .. } = self;
        if !known.has(method) {
            match content {
                Content::None => known.learn(method, None),
                Content::Raw(raw) => known.compress(method, raw, compressor),
                Content::Stream { method: stored, raw_size, stream } => {
                    let raw = datum::decompress(*stored, *raw_size, stream).ok()?;
                    known.compress(method, &raw, compressor);
                }
            }
        }
        known.sizes.get(method)
    }

    /// What the compressed value consists of.
    fn items(&mut self, method: Method) -> Option<Items> {
        let SampleValue { content, known, .. } = self;
        let known = known.with(method);
        if let (None, Content::Stream { method: stored, stream, .. }) = (known.items, content)
            && *stored == method
        {
            known.items = Some(datum::items(method, stream));
        }
        known.items
    }
}

/// The datum into which the server compresses a value: its size, 8 bytes of headers included, and what it consists of;
/// `None` if the server does not compress the value.
pub(super) fn compressed(
    compressor: &mut datum::Compressor,
    method: Method,
    raw: &[u8],
) -> Option<(u32, Items)> {
    let (length, items) = match method {
        Method::Pglz => {
            let stream = compressor.compress(method, raw)?;
            (stream.len(), datum::items(method, stream))
        }
        Method::Lz4 => Some(lz4_size::compressed(raw))
            .filter(|&(length, _)| datum::is_worthwhile(raw.len(), length))?,
    };
    Some((u32::try_from(length).ok()?.checked_add(COMPRESSED_HEADER_SIZE)?, items))
}

/// What dropped columns add to a row of `length` bytes without them, which has `whole` bytes once its values out of
/// line are fetched.
fn dropped_bytes(
    whole: u64,
    length: u32,
    values: &[Incoming],
    desc: &TupleDesc,
    table: &Table,
) -> u32 {
    let fetched: Vec<Incoming> = values
        .iter()
        .map(|value| match *value {
            Incoming::Kept { stored, raw, method, compressed: true } => Incoming::Compressed {
                size: stored.saturating_add(VARLENA_HEADER_SIZE),
                raw,
                method,
            },
            Incoming::Kept { stored, .. } => Incoming::Plain { raw: stored },
            other => other,
        })
        .collect();
    let more = whole.saturating_sub(u64::from(table.length_of(&fetched)));
    let more = u32::try_from(more).unwrap_or(u32::MAX);
    // no row is longer than that as long as something of it can be moved out
    let moved = length.saturating_add(more) as usize > table.page.toast_tuple_threshold()
        && desc.attributes.iter().any(|column| {
            column.dropped
                && column.length == Length::Varlena
                && matches!(column.storage, Storage::Extended | Storage::External)
        });
    if moved { more.min(TOAST_POINTER_SIZE as u32) } else { more }
}

/// Which values of a row beside `own` the toaster may try to compress when `own` is re-toasted, and by which method:
/// those whose compressed size is not known from how they are stored. The row may get longer by `more` bytes.
pub(super) fn compressed_besides(
    own: usize,
    values: &[Incoming],
    table: &Table,
    more: u32,
) -> Vec<(usize, Method)> {
    let mut arriving = values.to_vec();
    if let Some(value) = arriving.get_mut(own) {
        *value = value.fresh();
    }
    let kept = arriving.iter().any(|value| matches!(value, Incoming::Kept { .. }));
    // a target is for other columns too, which are made anew then
    let fresh: Vec<Incoming> = values.iter().map(|value| value.fresh()).collect();
    let length = table.length_of(&fresh).saturating_add(more);
    if !kept && length as usize <= table.page.toast_tuple_threshold() {
        return Vec::new();
    }
    let least = max_align(TOAST_POINTER_SIZE) as u32;
    let besides =
        arriving.iter().zip(&table.columns).enumerate().filter(|(index, _)| *index != own);
    besides
        .filter(|(_, (value, column))| {
            let long =
                matches!(value, Incoming::Short { raw } | Incoming::Plain { raw } if *raw >= least);
            long && column.storage.compresses()
        })
        .filter_map(|(index, (_, column))| Some((index, *column.method.methods().first()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use toast_format::disk::{Align, Attribute, Oid, PageSize, types};
    use toast_format::model::cost::Prices;
    use toast_format::model::toast::Column;
    use toast_format::model::{Form, TupleTarget};

    fn desc(columns: &[(u32, bool)]) -> TupleDesc {
        let attributes = columns.iter().map(|&(oid, dropped)| Attribute {
            name: "c".into(),
            type_name: String::new(),
            type_oid: Oid(oid),
            length: if oid == 23 { Length::Fixed(4) } else { Length::Varlena },
            align: Align::Int,
            storage: types::by_oid(Oid(oid)).map_or(Storage::Extended, |known| known.storage),
            compression: None,
            dropped,
            is_virtual: false,
            only_plain: false,
            missing: None,
        });
        TupleDesc { attributes: attributes.collect(), ..TupleDesc::default() }
    }

    fn table(desc: &TupleDesc) -> Table {
        let page = PageSize::DEFAULT;
        Table {
            columns: desc.attributes.iter().map(|a| Column::new(a, Method::Pglz)).collect(),
            target: TupleTarget::default_for(page),
            has_toast_relation: true,
            page,
            prices: Prices::default(),
            indexes: Vec::new(),
        }
    }

    fn value(form: Form, raw: u64, stored: u64) -> StoredValue {
        StoredValue { form, raw_size: Some(raw), stored_size: Some(stored), ..StoredValue::NULL }
    }

    fn asked(values: Vec<StoredValue>, whole: Option<u64>) -> AskedRow {
        AskedRow { ctid: ItemPointer { block: BlockNumber(0), item: 1 }, values, whole }
    }

    #[test]
    fn a_row_has_the_length_that_its_values_give_it() {
        let desc = desc(&[(23, false), (25, false), (25, false)]);
        let number = value(Form::Plain, 4, 4);
        let length = |second, third| {
            asked_row(&asked(vec![number, second, third], None), &desc, &table(&desc))
                .facts
                .tuple_length
        };
        // 24 of the header, 4; 1-byte headers are not aligned, others to 4
        assert_eq!(length(value(Form::Short, 5, 6), value(Form::Short, 10, 11)), 24 + 4 + 6 + 11);
        assert_eq!(
            length(value(Form::Short, 5, 6), value(Form::Plain, 500, 504)),
            24 + 4 + 6 + 2 + 504
        );
        assert_eq!(length(value(Form::External, 9000, 9000), StoredValue::NULL), 24 + 4 + 18);
        assert_eq!(
            length(value(Form::Compressed, 9000, 900), value(Form::Short, 1, 2)),
            24 + 4 + 900 + 2
        );
    }

    #[test]
    fn what_dropped_columns_hold_shows_in_the_whole_row() {
        let desc = desc(&[(23, false), (25, true), (25, false)]);
        let table = table(&desc);
        let length = |last: StoredValue, whole| {
            let values = vec![value(Form::Plain, 4, 4), StoredValue::NULL, last];
            asked_row(&asked(values, Some(whole)), &desc, &table).facts.tuple_length
        };
        assert_eq!(length(value(Form::Short, 10, 11), 24 + 4 + 11), 39);
        assert_eq!(length(value(Form::Short, 10, 11), 24 + 4 + 100 + 11), 139);
        // the last one is out of line, and fetched for the question alone
        assert_eq!(
            length(value(Form::External, 5000, 5000), 24 + 4 + 104 + 5004),
            24 + 4 + 104 + 18
        );
        // so is the dropped one
        assert_eq!(length(value(Form::Short, 10, 11), 24 + 4 + 9000 + 11), 39 + 18);
    }

    #[test]
    fn other_columns_are_asked_for_where_the_toaster_would_try_them() {
        let desc = desc(&[(25, false), (25, false), (25, false)]);
        let table = table(&desc);
        let ask = |values: [Incoming; 3]| -> Vec<usize> {
            let found = compressed_besides(0, &values, &table, 0);
            found.into_iter().map(|(index, _)| index).collect()
        };
        let plain = |raw| Incoming::Plain { raw };
        let none: [usize; 0] = [];
        assert_eq!(ask([plain(500), plain(500), plain(500)]), none);
        assert_eq!(ask([plain(1500), plain(500), plain(20)]), [1]);
        let kept = Incoming::Kept { stored: 9000, raw: 9000, method: None, compressed: false };
        assert_eq!(ask([kept, plain(500), Incoming::Null]), [1]);
        assert_eq!(ask([plain(10), kept, plain(500)]), [2]);
        let done = Incoming::Compressed { size: 900, raw: 3000, method: Some(Method::Lz4) };
        assert_eq!(ask([plain(1500), done, Incoming::Null]), none);
    }
}
