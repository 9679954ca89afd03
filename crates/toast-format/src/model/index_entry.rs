//! Whether a row's entry fits an index (`index_form_tuple_context` in indextuple.c, and the limits of access methods).
//!
//! An INSERT makes entries from the values as the statement supplies them, whatever the toaster does with the row: each
//! value that is longer than `TOAST_INDEX_TARGET` is compressed if the storage of the index's own column allows it, with
//! the compression method of that column. SET STORAGE and SET COMPRESSION of a table's column also change the columns of
//! indexes that contain it (`SetIndexStorageProperties` in tablecmds.c), of each index the first such column. Expressions
//! keep the settings of their type, and are compressed by the default method, so that no setting of the table affects
//! them.

use crate::codec::Method;
use crate::disk::layout::{LINE_POINTER_SIZE, PAGE_HEADER_SIZE};
use crate::disk::{Align, PageSize, Storage, max_align};
use crate::model::index_shape::{EntryContents, IndexColumn, IndexShape};
use crate::model::policy::VARLENA_HEADER_SIZE;
use crate::model::toast::types::SHORT_CONTENT_MAX;
use crate::model::toast::{Column, Compressor, Incoming, Table};
use crate::model::{MethodChoice, Policy};

/// `IndexTupleData`, and the same with `IndexAttributeBitMapData`, aligned.
const HEADER: usize = 8;
const HEADER_WITH_NULLS: usize = 16;
/// `INDEX_SIZE_MASK`: no index tuple is larger.
const LARGEST_TUPLE: usize = 0x1FFF;
/// The aligned size of `BTPageOpaqueData`, of `GinPageOpaqueData`, and of `BrinSpecialSpace`.
const BTREE_SPECIAL: usize = 16;
const GIN_SPECIAL: usize = 8;
const BRIN_SPECIAL: usize = 8;
/// The same of `GISTPageOpaqueData`.
const GIST_SPECIAL: usize = 16;
/// `sizeof(ItemPointerData)`, aligned, which a btree page keeps free for a heap TID.
const HEAP_TID: usize = 8;

/// Whether an entry fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    /// The server accepts it.
    Fits,
    /// The server refuses it.
    TooLarge(EntryTooLarge),
    /// It is not known how large the operator class makes the entry.
    Unknown,
}

/// An entry that the server would refuse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("index row size {size} exceeds {method} maximum {limit} for index {index}")]
pub struct EntryTooLarge {
    /// The name of the index.
    pub index: String,
    /// The name of the access method.
    pub method: String,
    /// The size of the entry, in bytes.
    pub size: usize,
    /// The size that the access method accepts.
    pub limit: usize,
}

impl IndexShape {
    /// The size that the access method accepts.
    fn limit(&self, page: PageSize) -> usize {
        // `BTMaxItemSize` (nbtree.h), `GinMaxItemSize` (ginblock.h)
        match self.method.as_str() {
            "btree" => (third_of_page(page, BTREE_SPECIAL) - HEAP_TID).min(LARGEST_TUPLE),
            "gin" => third_of_page(page, GIN_SPECIAL).min(LARGEST_TUPLE),
            // `BrinMaxItemSize` (brin_pageops.c)
            "brin" => {
                let used = max_align(PAGE_HEADER_SIZE + LINE_POINTER_SIZE) + BRIN_SPECIAL;
                (page.bytes() - used) & !7
            }
            "gist" if self.entries() == EntryContents::Bounds => {
                let used = max_align(PAGE_HEADER_SIZE + 2 * LINE_POINTER_SIZE) + GIST_SPECIAL;
                ((page.bytes() - used) / 2) & !7
            }
            _ => LARGEST_TUPLE,
        }
    }

    /// Whether the entry of a row with these values fits, if the row is inserted into `table` with its settings. Of
    /// expressions, no size is known, and none is counted. `compressor` is asked only if the entry would be too large
    /// without compression.
    pub fn fit(&self, table: &Table, values: &[Incoming], compressor: &mut impl Compressor) -> Fit {
        let entries = self.entries();
        if entries == EntryContents::Bounded {
            return Fit::Fits;
        }
        let limit = self.limit(table.page);
        let uncompressed = self.size(table, values, &mut |_: usize, _: Method| None);
        if entries == EntryContents::Unknown {
            // An operator class may store two values, and add headers.
            let most = uncompressed.saturating_mul(2).saturating_add(64);
            return if most <= limit { Fit::Fits } else { Fit::Unknown };
        }
        if uncompressed <= limit {
            return Fit::Fits;
        }
        // The elements of an array are not known here.
        if self.table_columns().any(|column| self.has_elements_of(column)) {
            return Fit::Unknown;
        }
        let size = self.size(table, values, compressor);
        if size <= limit { Fit::Fits } else { Fit::TooLarge(self.too_large(size, limit)) }
    }

    /// Whether the entry of an array's element fits, which has so many bytes without its header. `size` is that of the
    /// element's compressed datum, if it can be compressed.
    pub fn element_fit(&self, table: &Table, column: usize, raw: u32, size: Option<u32>) -> Fit {
        let Some(column) = table.columns.get(column) else { return Fit::Unknown };
        let limit = self.limit(table.page);
        let storage = storage_of(column);
        let datum = IndexDatum::varlena(raw, storage, table.page, || size);
        let size = max_align(datum.end(HEADER, Align::Int, storage));
        if size <= limit { Fit::Fits } else { Fit::TooLarge(self.too_large(size, limit)) }
    }

    fn too_large(&self, size: usize, limit: usize) -> EntryTooLarge {
        EntryTooLarge { index: self.name.clone(), method: self.method.clone(), size, limit }
    }

    /// The size of the entry, aligned; of a summary of BRIN, or the bounds of GiST, whose smallest and largest value are these.
    fn size(&self, table: &Table, values: &[Incoming], compressor: &mut impl Compressor) -> usize {
        let is_summary = self.entries() == EntryContents::MinMax;
        let is_pair = is_summary || self.entries() == EntryContents::Bounds;
        let value_of =
            |column: &IndexColumn| column.table_column().and_then(|at| values.get(at)).copied();
        let has_nulls = self.columns.iter().any(|own| value_of(own) == Some(Incoming::Null));
        let mut end = if has_nulls && !is_summary { HEADER_WITH_NULLS } else { HEADER };
        for (at, own) in self.columns.iter().enumerate() {
            let (Some(index), Some(value)) = (own.table_column(), value_of(own)) else { continue };
            let Some(column) = table.columns.get(index) else { continue };
            let repeats = self.columns.iter().take(at).any(|other| other.attnum == own.attnum);
            // BRIN asks the type, and not the index, whether values can be compressed (`brin_form_tuple`). A column that
            // is in the index for the second time keeps the storage that it had.
            let storage =
                if is_summary || repeats { column.type_storage } else { storage_of(column) };
            let datum = match (own.length, raw_size(value)) {
                (length, _) if length > 0 => IndexDatum::Fixed(usize::from(length.unsigned_abs())),
                (-1, Some(raw)) => IndexDatum::varlena(raw, storage, table.page, || {
                    compressed(index, column, compressor)
                }),
                _ => IndexDatum::Fixed(0),
            };
            let align = Align::from_char(own.align).unwrap_or(column.align);
            if value == Incoming::Null {
                continue;
            }
            if is_pair && !is_summary {
                // both are in one datum
                end = align.align(end) + VARLENA_HEADER_SIZE as usize;
            }
            end = datum.end(end, align, storage);
            if is_pair {
                end = datum.end(end, align, storage);
            }
        }
        max_align(end)
    }
}

/// The size of three tuples that fit on a page together, with their line pointers.
fn third_of_page(page: PageSize, special: usize) -> usize {
    let used = max_align(PAGE_HEADER_SIZE + 3 * LINE_POINTER_SIZE) + special;
    ((page.bytes() - used) / 3) & !7
}

/// Whether a row with these stored values may be too long for an index that depends on these columns: its entry does not
/// fit uncompressed. A partial index is not taken to contain a row that would not fit in the form in which it is stored.
pub fn may_be_too_large(
    table: &Table,
    now: &Table,
    columns: &[usize],
    values: &[Incoming],
) -> bool {
    table.indexes.iter().any(|index| {
        columns.iter().any(|&column| index.depends_on(column))
            && index.fit(table, values, &mut |_: usize, _: Method| None) != Fit::Fits
            && (!index.is_partial
                || !matches!(
                    index.fit(now, values, &mut |at: usize, _: Method| {
                        values.get(at).and_then(compressed_size)
                    }),
                    Fit::TooLarge(_)
                ))
    })
}

/// The size of the datum if the value arrives compressed.
fn compressed_size(value: &Incoming) -> Option<u32> {
    match value {
        Incoming::Compressed { size, .. } => Some(*size),
        Incoming::Kept { stored, compressed: true, .. } => {
            Some(stored.saturating_add(VARLENA_HEADER_SIZE))
        }
        _ => None,
    }
}

/// The first entry that a row with these values would be refused for if these columns had the settings of `table`. A
/// partial index is not taken to contain a row that would not fit with the present settings, those of `now`, either.
pub fn too_large(
    table: &Table,
    now: &Table,
    columns: &[usize],
    values: &[Incoming],
    compressor: &mut impl Compressor,
) -> Option<EntryTooLarge> {
    for index in &table.indexes {
        if !columns.iter().any(|&column| index.depends_on(column)) {
            continue;
        }
        if let Fit::TooLarge(entry) = index.fit(table, values, compressor)
            && (!index.is_partial || index.fit(now, values, compressor) == Fit::Fits)
        {
            return Some(entry);
        }
    }
    None
}

/// The storage of the table's column that indexes follow. A policy works with storage `external`.
fn storage_of(column: &Column) -> Storage {
    match (column.policy, column.method) {
        (Policy::Always, MethodChoice::One(_)) => column.storage,
        _ => Storage::External,
    }
}

/// The size of the content of a value; `None` if it is not known.
fn raw_size(value: Incoming) -> Option<u32> {
    match value {
        Incoming::Short { raw }
        | Incoming::Plain { raw }
        | Incoming::Compressed { raw, .. }
        | Incoming::Foreign { raw, .. }
        | Incoming::Kept { raw, .. } => Some(raw),
        Incoming::Null | Incoming::Fixed { .. } | Incoming::Opaque { .. } => None,
    }
}

/// The size to which the server compresses the value of a column (`toast_compress_datum`).
fn compressed(index: usize, column: &Column, compressor: &mut impl Compressor) -> Option<u32> {
    let method = column.method.methods().first()?;
    compressor.compressed_size(index, *method)
}

/// A value in an entry.
#[derive(Debug, Clone, Copy)]
enum IndexDatum {
    Fixed(usize),
    /// A varlena with a header of 4 bytes, and this many bytes of content.
    Plain(u32),
    /// The size of a compressed varlena, including its headers.
    Compressed(u32),
}

impl IndexDatum {
    /// A varlena in an index entry (`index_form_tuple`).
    fn varlena(
        raw: u32,
        storage: Storage,
        page: PageSize,
        compress: impl FnOnce() -> Option<u32>,
    ) -> IndexDatum {
        // `TOAST_INDEX_TARGET` (heaptoast.h)
        let target = page.max_bytes_per_tuple(1) / 16;
        let size = raw.saturating_add(VARLENA_HEADER_SIZE);
        let compresses = matches!(storage, Storage::Extended | Storage::Main);
        if compresses
            && size as usize > target
            && let Some(size) = compress()
        {
            return IndexDatum::Compressed(size);
        }
        IndexDatum::Plain(raw)
    }

    /// The end of the data after this value is added at `offset` (`heap_compute_data_size`).
    fn end(self, offset: usize, align: Align, storage: Storage) -> usize {
        match self {
            IndexDatum::Fixed(size) => align.align(offset) + size,
            IndexDatum::Plain(raw) if storage != Storage::Plain && raw <= SHORT_CONTENT_MAX => {
                offset + raw as usize + 1
            }
            IndexDatum::Plain(raw) => {
                align.align(offset).saturating_add(raw as usize) + VARLENA_HEADER_SIZE as usize
            }
            IndexDatum::Compressed(size) => align.align(offset) + size as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TupleTarget;
    use crate::model::cost::Prices;

    const PAGE: PageSize = PageSize::DEFAULT;

    fn index(method: &str, classes: &[Option<(&str, &str)>]) -> IndexShape {
        let columns = classes.iter().enumerate().map(|(at, class)| IndexColumn {
            attnum: at as i16 + 1,
            length: -1,
            align: 'i',
            class: class.map(|(name, origin)| (name.to_owned(), origin.to_owned())),
        });
        IndexShape {
            name: "i".to_owned(),
            method: method.to_owned(),
            is_partial: false,
            columns: columns.collect(),
        }
    }

    fn table(storage: Storage, columns: usize) -> Table {
        let column = Column {
            length: crate::disk::desc::Length::Varlena,
            align: Align::Int,
            storage,
            type_storage: Storage::Extended,
            method: MethodChoice::One(Method::Pglz),
            policy: Policy::Always,
        };
        Table {
            columns: vec![column; columns],
            target: TupleTarget::default_for(PAGE),
            has_toast_relation: true,
            page: PAGE,
            prices: Prices::default(),
            indexes: Vec::new(),
        }
    }

    /// The size at which this row would be refused.
    fn refused(index: &IndexShape, table: &Table, raw: &[u32], size: Option<u32>) -> Option<usize> {
        let values: Vec<Incoming> = raw.iter().map(|&raw| Incoming::Plain { raw }).collect();
        match index.fit(table, &values, &mut |_: usize, _: Method| size) {
            Fit::TooLarge(entry) => Some(entry.size),
            Fit::Fits => None,
            Fit::Unknown => panic!("unknown"),
        }
    }

    const TEXT: Option<(&str, &str)> = Some(("text_ops", "pg_catalog"));

    #[test]
    fn btree_accepts_as_much_as_the_server() {
        let one = index("btree", &[TEXT]);
        for storage in [Storage::External, Storage::Plain] {
            assert_eq!(refused(&one, &table(storage, 1), &[2692], Some(9)), None);
            assert_eq!(refused(&one, &table(storage, 1), &[2693], Some(9)), Some(2712));
        }
        for storage in [Storage::Extended, Storage::Main] {
            let table = table(storage, 1);
            assert_eq!(refused(&one, &table, &[9000], Some(2696)), None);
            assert_eq!(refused(&one, &table, &[9000], Some(2697)), Some(2712));
            assert_eq!(refused(&one, &table, &[9000], None), Some(9016));
        }
        // with a second key, or one that is only included
        let two = index("btree", &[TEXT, None]);
        assert_eq!(refused(&two, &table(Storage::External, 2), &[1344, 1344], None), None);
        assert_eq!(refused(&two, &table(Storage::External, 2), &[1348, 1345], None), Some(2712));
        let repeated = IndexColumn { attnum: 1, ..two.columns[0].clone() };
        assert!(two.depends_on(1) && !IndexShape { columns: vec![repeated], ..two }.depends_on(1));
    }

    #[test]
    fn nothing_shorter_than_the_target_is_compressed() {
        let two = index("btree", &[TEXT; 6]);
        let table = table(Storage::Extended, 6);
        assert_eq!(refused(&two, &table, &[506; 6], Some(20)), Some(3080));
        assert_eq!(refused(&two, &table, &[507; 6], Some(20)), None);
    }

    #[test]
    fn limits_are_those_of_the_access_methods() {
        let limits = |bytes: usize| {
            let page = PageSize::new(bytes).unwrap();
            ["btree", "gin", "brin"].map(|method| index(method, &[]).limit(page))
        };
        assert_eq!(limits(8192), [2704, 2712, 8152]);
        assert_eq!(limits(4096), [1336, 1344, 4056]);
        assert_eq!(limits(32768), [8191, 8191, 32728]);
    }

    #[test]
    fn other_access_methods() {
        let table = table(Storage::External, 2);
        let fit = |index: &IndexShape| {
            let values = [Incoming::Plain { raw: 9000 }; 2];
            index.fit(&table, &values, &mut |_: usize, _: Method| None)
        };
        let class = |name| Some((name, "pg_catalog"));
        for (method, class) in [
            ("hash", TEXT),
            ("spgist", TEXT),
            ("gin", class("tsvector_ops")),
            ("gin", class("jsonb_path_ops")),
            ("gist", Some(("gist_trgm_ops", "pg_trgm"))),
            ("brin", class("text_bloom_ops")),
        ] {
            assert_eq!(fit(&index(method, &[class])), Fit::Fits, "{method} {class:?}");
        }
        for (method, class) in [
            ("gist", Some(("gist_geometry_ops_nd", "postgis"))),
            ("gin", class("array_ops")),
            ("gin", Some(("gin_bigm_ops", "pg_bigm"))),
            ("rum", None),
        ] {
            assert_eq!(fit(&index(method, &[class])), Fit::Unknown, "{method} {class:?}");
        }
        assert!(matches!(fit(&index("btree", &[class("array_ops")])), Fit::TooLarge(_)));
        let gin = index("gin", &[Some(("text_ops", "btree_gin"))]);
        assert!(matches!(fit(&gin), Fit::TooLarge(EntryTooLarge { size: 9016, limit: 2712, .. })));
        let gist = index("gist", &[Some(("gist_text_ops", "btree_gist"))]);
        assert!(matches!(fit(&gist), Fit::TooLarge(EntryTooLarge { limit: 4072, .. })));
        // an index of several columns follows the types
        assert_eq!(fit(&index("gin", &[class("array_ops"); 2])), Fit::Fits);
        // BRIN compresses what the type allows, and has two values
        let brin = index("brin", &[class("text_minmax_ops")]);
        assert_eq!(refused(&brin, &table, &[9000], Some(4072)), None);
        assert_eq!(refused(&brin, &table, &[9000], Some(4073)), Some(8160));
    }

    #[test]
    fn elements_of_arrays_are_entries() {
        let gin = index("gin", &[Some(("array_ops", "pg_catalog"))]);
        assert!(gin.has_elements_of(0));
        let external = table(Storage::External, 1);
        assert_eq!(gin.element_fit(&external, 0, 2700, Some(9)), Fit::Fits);
        let refused = gin.element_fit(&external, 0, 2701, Some(9));
        assert!(matches!(refused, Fit::TooLarge(EntryTooLarge { size: 2720, .. })), "{refused:?}");
        assert_eq!(gin.element_fit(&table(Storage::Main, 1), 0, 9000, Some(9)), Fit::Fits);
    }

    #[test]
    fn a_partial_index_has_no_row_that_did_not_fit() {
        let mut partial = index("btree", &[TEXT]);
        partial.is_partial = true;
        let mut wanted = table(Storage::External, 1);
        wanted.indexes = vec![partial];
        let now = table(Storage::Extended, 1);
        let refused = |raw, size| {
            let mut compress = |_: usize, _: Method| Some(size);
            too_large(&wanted, &now, &[0], &[Incoming::Plain { raw }], &mut compress)
        };
        assert_eq!(refused(9000, 2000).map(|entry| entry.size), Some(9016));
        assert_eq!(refused(9000, 3000), None);
        let stored = |size| [Incoming::Compressed { size, raw: 9000, method: None }];
        assert!(may_be_too_large(&wanted, &now, &[0], &stored(2000)));
        assert!(!may_be_too_large(&wanted, &now, &[0], &stored(3000)));
    }
}
