//! Rows of the sample with keys in columns of their own, as the server would store them, added up; the types of these
//! columns.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use super::keys::{KnownUse, ORDER};
use super::target::{ExtractionTarget, Migrated};
use crate::advise::candidate::AdviseError;
use crate::advise::content::compressed;
use crate::advise::tally::{OtherValues, SampleRow, Tally, Variant};
use toast_format::codec::{Method, datum};
use toast_format::disk::jsonb::split::{RootValue, ValueKind, root_keys, without};
use toast_format::disk::numeric::Numeric;
use toast_format::disk::varlena::VARLENA_HEADER_SIZE;
use toast_format::disk::{Align, ByteOrder, ItemPointer, Length, Storage};
use toast_format::model::pages::Fill;
use toast_format::model::policy::CompressedSizes;
use toast_format::model::settings::Settings;
use toast_format::model::toast::{Column, Compressor, Incoming, Operation, Placed, Table};
use toast_format::model::{Form, MethodChoice, Policy};

/// Digits that every `integer`, and every `bigint`, has room for.
const INTEGER_DIGITS: usize = 9;
const BIGINT_DIGITS: usize = 18;

/// A type that values of a key can have outside of their documents without being changed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, schemars::JsonSchema, strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum KeyType {
    Boolean,
    /// Integers of at most 9 digits.
    Integer,
    /// Integers of at most 18 digits.
    Bigint,
    Numeric,
    Text,
    /// Whatever a document can hold, `null` included.
    Jsonb,
}

impl KeyType {
    /// The narrowest that holds this value.
    fn new(value: &RootValue<'_>, order: ByteOrder) -> KeyType {
        match value.kind {
            ValueKind::Bool => KeyType::Boolean,
            ValueKind::String => KeyType::Text,
            ValueKind::Number => number_type(value.bytes, order),
            ValueKind::Null | ValueKind::Container => KeyType::Jsonb,
        }
    }

    /// The narrowest that holds the values of both.
    pub(super) fn or(self, other: KeyType) -> KeyType {
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
        self.into()
    }

    /// The column that is added.
    fn column(self, default_method: Method) -> Column {
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
    fn incoming(self, value: &KeyValue) -> Incoming {
        match self {
            KeyType::Boolean => Incoming::Fixed { size: 1 },
            KeyType::Integer => Incoming::Fixed { size: 4 },
            KeyType::Bigint => Incoming::Fixed { size: 8 },
            KeyType::Numeric | KeyType::Text => Incoming::Plain { raw: value.own_size },
            KeyType::Jsonb => Incoming::Plain { raw: value.jsonb_size },
        }
    }

    /// Whether its values may be compressed as they are in a column of their own, not as documents.
    fn is_own(self) -> bool {
        matches!(self, KeyType::Numeric | KeyType::Text)
    }
}

fn number_type(bytes: &[u8], order: ByteOrder) -> KeyType {
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
struct KeyValue {
    /// A string's bytes, or a number's as `numeric`.
    own_size: u32,
    /// As `doc -> key` gives it.
    jsonb_size: u32,
    /// What the server would compress it to, its 8 bytes of headers included, if it was tried.
    own_compressed: Option<u32>,
    jsonb_compressed: Option<u32>,
}

impl KeyValue {
    fn new(value: &RootValue<'_>) -> KeyValue {
        KeyValue {
            own_size: u32::try_from(own(value).len()).unwrap_or(u32::MAX),
            jsonb_size: u32::try_from(value.jsonb_size()).unwrap_or(u32::MAX),
            own_compressed: None,
            jsonb_compressed: None,
        }
    }
}

/// A string's or number's content in a column of its own type.
fn own<'a>(value: &RootValue<'a>) -> &'a [u8] {
    match value.kind {
        ValueKind::String => value.bytes,
        ValueKind::Number => value.bytes.get(VARLENA_HEADER_SIZE as usize..).unwrap_or(&[]),
        ValueKind::Bool | ValueKind::Null | ValueKind::Container => &[],
    }
}

/// Variants of the tally: as stored now, the rest of the document, it and all keys; then one for each key.
pub(super) const TODAY: usize = 0;
pub(super) const REST: usize = 1;
pub(super) const WHOLE: usize = 2;
pub(super) const KEYS: usize = 3;

/// Keys that are named where those asked for are not found, and documents that are looked at for them.
const NAMED: usize = 8;
const LOOKED_AT: u32 = 100;

/// A document of the sample taken apart.
#[derive(Debug)]
struct Apart {
    /// Bytes that are left of it, the header left out.
    rest: u32,
    /// What the server compresses them to, if it was tried.
    rest_compressed: Option<u32>,
    tried: bool,
    values: Vec<Option<KeyValue>>,
}

/// Rows and documents of the sample, counted.
#[derive(Debug, Clone, Default)]
pub(super) struct ExtractionCounts {
    /// Documents with one of the keys.
    pub documents: f64,
    pub wide_today: f64,
    pub wide: f64,
    /// Documents with each key.
    pub values: Vec<f64>,
}

impl ExtractionCounts {
    fn new(keys: usize) -> ExtractionCounts {
        ExtractionCounts { values: vec![0.0; keys], ..ExtractionCounts::default() }
    }

    fn add(&mut self, other: &ExtractionCounts, weight: f64) {
        self.documents += other.documents * weight;
        self.wide_today += other.wide_today * weight;
        self.wide += other.wide * weight;
        for (sum, more) in self.values.iter_mut().zip(&other.values) {
            *sum += more * weight;
        }
    }
}

/// The table as it is, and how its columns are set.
#[derive(Debug, Clone)]
pub(crate) struct StoredTable {
    pub table: Table,
    /// The document column's settings.
    pub settings: Settings,
    pub default_method: Method,
    pub fillfactor: u8,
}

/// An extraction over a sample.
#[derive(Debug)]
pub(crate) struct Extraction {
    pub(super) target: ExtractionTarget,
    pub(super) stored: StoredTable,
    /// Whether the keys were chosen, not named.
    pub(super) auto: bool,
    /// By what was known of their use.
    pub(super) known: Vec<KnownUse>,
    /// The table with all keys as `jsonb`, in which no row is shorter.
    widest: Table,
    /// The columns' types by which rows are added up; from the first blocks.
    pub(super) types: Option<Vec<KeyType>>,
    /// The types of what was seen.
    seen: Vec<Option<KeyType>>,
    /// Some other keys that documents have.
    pub(super) others: BTreeSet<String>,
    looked_at: u32,
    /// The documents of the blocks at hand.
    apart: HashMap<ItemPointer, Apart>,
    compressor: datum::Compressor,
    pub(super) tally: Tally,
    wide_table: Table,
    block: ExtractionCounts,
    pub(super) counts: ExtractionCounts,
}

impl Extraction {
    pub(crate) fn new(target: ExtractionTarget, stored: StoredTable, auto: bool) -> Extraction {
        let keys = target.keys.len();
        let widest = wider(&stored.table, stored.default_method, &vec![KeyType::Jsonb; keys]);
        Extraction {
            seen: vec![None; keys],
            types: None,
            others: BTreeSet::new(),
            looked_at: 0,
            apart: HashMap::new(),
            compressor: datum::Compressor::new(),
            tally: Tally::new(widest.page, stored.fillfactor, Vec::new()),
            wide_table: widest.clone(),
            block: ExtractionCounts::new(keys),
            counts: ExtractionCounts::new(keys),
            widest,
            target,
            stored,
            auto,
            known: Vec::new(),
        }
    }

    /// The extraction, chosen because of these uses of keys.
    pub(crate) fn weighed(self, known: Vec<KnownUse>) -> Extraction {
        Extraction { known, ..self }
    }

    /// The table that is migrated.
    pub(crate) fn table(&self) -> &Migrated {
        &self.target.table
    }

    /// Whether the sample has every key.
    ///
    /// # Errors
    /// The first that it does not have; `complete`: the sample is the table.
    pub(crate) fn check(&self, complete: bool) -> Result<(), AdviseError> {
        let values = self.counts.values.iter();
        let Some((key, _)) = self.target.keys.iter().zip(values).find(|(_, count)| **count == 0.0)
        else {
            return Ok(());
        };
        let others: Vec<String> = self.others.iter().map(|key| format!("\"{key}\"")).collect();
        let hint = match others.len() {
            0 => String::new(),
            _ => format!("\nHINT:  There are, among others: {}.", others.join(", ")),
        };
        Err(no_such_key(&self.target.column_name, &key.key, complete, &hint))
    }

    /// The same from the beginning.
    pub(crate) fn again(&self) -> Extraction {
        let again = Extraction::new(self.target.clone(), self.stored.clone(), self.auto);
        again.weighed(self.known.clone())
    }

    /// Takes these types to have been seen already.
    pub(crate) fn assume(&mut self, types: &[KeyType]) {
        self.seen = types.iter().copied().map(Some).collect();
    }

    /// The same from the beginning, with types that hold all that was seen; `None` where the types already do.
    pub(crate) fn widened(&self) -> Option<Extraction> {
        let types = self.seen_types();
        if self.types.as_ref().is_none_or(|assumed| *assumed == types) {
            return None;
        }
        let mut again = self.again();
        again.seen.clone_from(&self.seen);
        again.begin(types);
        Some(again)
    }

    fn seen_types(&self) -> Vec<KeyType> {
        self.seen.iter().map(|seen| seen.unwrap_or(KeyType::Jsonb)).collect()
    }

    fn begin(&mut self, types: Vec<KeyType>) {
        let column = self.target.column;
        let wide = wider(&self.stored.table, self.stored.default_method, &types);
        let first = self.stored.table.columns.len();
        let added = first..wide.columns.len();
        let made = |reads: Vec<usize>| Variant {
            column,
            reads,
            settings: Some(self.stored.settings),
            table: wide.clone(),
            named: Vec::new(),
            others: OtherValues::Stay,
        };
        let today = Variant {
            column,
            reads: vec![column],
            settings: None,
            table: self.stored.table.clone(),
            named: Vec::new(),
            others: OtherValues::Stay,
        };
        let whole = std::iter::once(column).chain(added.clone()).collect();
        let mut variants = vec![today, made(vec![column]), made(whole)];
        variants.extend(added.map(|key| made(vec![key])));
        // the migration ends with VACUUM FULL, or with what comes near to it
        self.tally = Tally::filled(wide.page, self.stored.fillfactor, Fill::Append, variants);
        self.wide_table = wide;
        self.types = Some(types);
    }

    /// Takes a document apart.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn document(
        &mut self,
        ctid: ItemPointer,
        row: &[Incoming],
        content: &[u8],
    ) -> Result<(), String> {
        let keys = &self.target.keys;
        let names: Vec<&[u8]> = keys.iter().map(|key| &key.bytes[..]).collect();
        let Some(split) = without(content, ORDER, &names).map_err(|error| error.to_string())?
        else {
            return Ok(());
        };
        self.name_others(content)?;
        if split.values.iter().all(Option::is_none) {
            return Ok(());
        }
        let mut apart = Apart {
            rest: u32::try_from(split.rest.len()).unwrap_or(u32::MAX),
            rest_compressed: None,
            tried: false,
            values: split.values.iter().map(|v| v.as_ref().map(KeyValue::new)).collect(),
        };
        for (seen, value) in self.seen.iter_mut().zip(&split.values) {
            if let Some(value) = value {
                let kind = KeyType::new(value, ORDER);
                *seen = Some(seen.map_or(kind, |seen| seen.or(kind)));
            }
        }
        if self.may_be_toasted(row, &apart) {
            apart.tried = true;
            let column = self.stored.table.columns.get(self.target.column);
            if let Some(MethodChoice::One(method)) = column.map(|column| column.method) {
                apart.rest_compressed = self.compressed_size(method, &split.rest);
            }
            for (kept, value) in apart.values.iter_mut().zip(&split.values) {
                if let (Some(kept), Some(value)) = (kept, value) {
                    self.compress(kept, value);
                }
            }
        }
        self.apart.insert(ctid, apart);
        Ok(())
    }

    fn compressed_size(&mut self, method: Method, raw: &[u8]) -> Option<u32> {
        compressed(&mut self.compressor, method, raw).map(|(size, _)| size)
    }

    fn compress(&mut self, kept: &mut KeyValue, value: &RootValue<'_>) {
        let method = self.stored.default_method;
        kept.own_compressed = self.compressed_size(method, own(value));
        kept.jsonb_compressed = self.compressed_size(method, &value.jsonb());
    }

    /// Whether the row with this document, or with the whole one and columns filled from it, may be so wide that
    /// something of it is compressed.
    fn may_be_toasted(&self, row: &[Incoming], apart: &Apart) -> bool {
        let values = self.values(row, Some(apart), &vec![KeyType::Jsonb; apart.values.len()]);
        let page = self.widest.page;
        let limit = page.toast_tuple_threshold().min(self.widest.target.bytes());
        let filled = with_document(&values, self.target.column, row);
        let width = self.widest.width(&values).max(self.widest.width(&filled));
        // other types are aligned otherwise
        width as usize + 8 * apart.values.len() > limit
    }

    /// What compresses the rest of a document, the document's column, and the keys that leave it; `None` where nothing
    /// does.
    pub(crate) fn compressed_by(&self) -> Option<(Method, &str, Vec<&str>)> {
        let column = self.stored.table.columns.get(self.target.column)?;
        let MethodChoice::One(method) = column.method else { return None };
        let compresses = column.storage.compresses();
        let keys = self.target.keys.iter().map(|key| key.key.as_str()).collect();
        compresses.then_some((method, self.target.column_name.as_str(), keys))
    }

    /// The documents at hand whose rest may be compressed.
    pub(crate) fn tried(&self) -> Vec<ItemPointer> {
        let tried = self.apart.iter().filter(|(_, apart)| apart.tried);
        tried.map(|(ctid, _)| *ctid).collect()
    }

    /// What the server itself makes of the rest of a document.
    pub(crate) fn learn(&mut self, ctid: ItemPointer, sizes: CompressedSizes) {
        let method = self.compressed_by().map(|(method, ..)| method);
        if let (Some(method), Some(apart)) = (method, self.apart.get_mut(&ctid)) {
            apart.rest_compressed = sizes.get(method);
        }
    }

    fn name_others(&mut self, content: &[u8]) -> Result<(), String> {
        if self.looked_at < LOOKED_AT && self.others.len() < NAMED {
            self.looked_at += 1;
            let keys = root_keys(content, ORDER).map_err(|error| error.to_string())?;
            for (key, _) in &keys {
                let asked = self.target.keys.iter().any(|asked| asked.bytes == *key);
                if !asked && key.len() <= 64 && self.others.len() < NAMED {
                    self.others.insert(String::from_utf8_lossy(key).into_owned());
                }
            }
        }
        Ok(())
    }

    /// The row's values with the keys behind them, as an UPDATE would bring them.
    fn values(&self, row: &[Incoming], apart: Option<&Apart>, types: &[KeyType]) -> Vec<Incoming> {
        let mut values = row.to_vec();
        match apart {
            Some(apart) => {
                if let Some(document) = values.get_mut(self.target.column) {
                    *document = Incoming::Plain { raw: apart.rest };
                }
                values.extend(apart.values.iter().zip(types).map(|(value, kind)| {
                    value.as_ref().map_or(Incoming::Null, |value| kind.incoming(value))
                }));
            }
            None => values.extend(types.iter().map(|_| Incoming::Null)),
        }
        values
    }

    /// The documents of some blocks are taken apart; their rows follow.
    pub(crate) fn begin_rows(&mut self) {
        if self.types.is_none() {
            self.begin(self.seen_types());
        }
    }

    /// Adds a row; sizes of other columns' values, compressed, come from `compressor`.
    pub(crate) fn row(
        &mut self,
        ctid: ItemPointer,
        row: &SampleRow,
        compressor: &mut impl Compressor,
    ) {
        let Some(types) = &self.types else { return };
        let apart = self.apart.get(&ctid);
        let mut made = SampleRow {
            values: self.values(&row.values, apart, types),
            tuple_length: row.tuple_length,
            dropped_outside: 0,
        };
        let column = self.target.column;
        let first = row.values.len();
        let of_key = |key: usize| {
            let value = apart?.values.get(key).copied().flatten()?;
            match types.get(key) {
                Some(kind) if kind.is_own() => value.own_compressed,
                _ => value.jsonb_compressed,
            }
        };
        if apart.is_some() {
            let mut sizes = |index: usize, method: Method| match index.checked_sub(first) {
                None => compressor.compressed_size(index, method),
                Some(key) => of_key(key),
            };
            keep_toasted(&self.wide_table, column, &row.values, &mut made.values, &mut sizes);
        }
        let mut sizes = |index: usize, method: Method| match (apart, index.checked_sub(first)) {
            (Some(apart), None) if index == column => apart.rest_compressed,
            (_, None) => compressor.compressed_size(index, method),
            (_, Some(key)) => of_key(key),
        };
        self.tally.row_made_of(row, &made, &mut sizes);
        let limit = self.widest.page.toast_tuple_threshold();
        if fresh_width(&self.stored.table, &row.values) > limit {
            self.block.wide_today += 1.0;
        }
        if fresh_width(&self.wide_table, &made.values) > limit {
            self.block.wide += 1.0;
        }
        if let Some(apart) = apart {
            self.block.documents += 1.0;
            for (sum, value) in self.block.values.iter_mut().zip(&apart.values) {
                *sum += f64::from(u8::from(value.is_some()));
            }
        }
    }

    /// Ends a block: so many of its rows were added, of so many live ones.
    pub(crate) fn end_block(&mut self, rows: usize, live_rows: usize) {
        self.tally.end_block(rows, live_rows);
        self.weigh(rows, live_rows);
    }

    /// Weights the `rows` added to the block since the last call: together they stand for `live_rows`.
    pub(crate) fn end_part(&mut self, rows: usize, live_rows: usize) {
        self.tally.end_rows(rows, live_rows);
        self.weigh(rows, live_rows);
    }

    fn weigh(&mut self, rows: usize, live_rows: usize) {
        let weight = if rows == 0 { 0.0 } else { live_rows as f64 / rows as f64 };
        self.counts.add(&self.block, weight);
        self.block = ExtractionCounts::new(self.target.keys.len());
    }

    /// The rows of these blocks are added.
    pub(crate) fn end_rows(&mut self) {
        self.apart.clear();
    }
}

/// No document of a column has a key; `complete`: of the table, not of a sample.
pub(super) fn no_such_key(column: &str, key: &str, complete: bool, hint: &str) -> AdviseError {
    let sampled = if complete { "" } else { " in the sample" };
    AdviseError::Unfit(format!(
        "no document of column \"{column}\"{sampled} has the key \"{key}\" at its root{hint}"
    ))
}

/// What the values beside the document, its column's index given, become when the columns for keys are filled, while
/// the document still has them: `made`'s are those behind `stored`. What is compressed or moved out of the row then
/// stays so when the keys leave the document.
fn keep_toasted(
    table: &Table,
    column: usize,
    stored: &[Incoming],
    made: &mut [Incoming],
    compressor: &mut impl FnMut(usize, Method) -> Option<u32>,
) {
    let filled = with_document(made, column, stored);
    let Ok(toasted) = table.toast(&filled, Operation::Update, compressor) else { return };
    for (index, (value, placed)) in made.iter_mut().zip(&toasted.values).enumerate() {
        if index == column || index >= stored.len() {
            continue;
        }
        let Placed { method, raw_size: raw, stored_size, .. } = *placed;
        match placed.form {
            Form::Compressed => *value = Incoming::Compressed { size: stored_size, raw, method },
            Form::External | Form::ExternalCompressed => {
                let compressed = placed.form == Form::ExternalCompressed;
                *value = Incoming::Kept { stored: stored_size, raw, method, compressed };
            }
            _ => {}
        }
    }
}

/// The width of a row of these values before anything of it is toasted.
fn fresh_width(table: &Table, values: &[Incoming]) -> usize {
    let values: Vec<Incoming> = values.iter().map(|value| value.fresh()).collect();
    table.width(&values) as usize
}

/// The values with the document that stood in the row.
fn with_document(made: &[Incoming], column: usize, stored: &[Incoming]) -> Vec<Incoming> {
    let mut filled = made.to_vec();
    if let (Some(document), Some(whole)) = (filled.get_mut(column), stored.get(column)) {
        *document = *whole;
    }
    filled
}

/// The table with columns of these types added.
fn wider(table: &Table, method: Method, types: &[KeyType]) -> Table {
    let mut table = table.clone();
    table.columns.extend(types.iter().map(|kind| kind.column(method)));
    // text and jsonb may need one; it is made with the column
    table.has_toast_relation |= types.iter().any(|kind| kind.is_own() || *kind == KeyType::Jsonb);
    table
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
        let of = |bytes: &[u8]| number_type(bytes, ByteOrder::Little);
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
