//! What the rows of a sample add up to under each candidate.

use std::cell::RefCell;

use derive_more::{Add, AddAssign, Mul};

use toast_format::codec::items::Items;
use toast_format::codec::{Method, pglz};
use toast_format::disk::{PageSize, Storage};
use toast_format::judge::stock::{Compliance, by_model, same_form};
use toast_format::model::btree::ToastIndex;
use toast_format::model::cost::{CHUNKS_PER_PAGE, PGLZ_GIVES_UP, ReadWork, WriteWork};
use toast_format::model::index_entry::too_large;
use toast_format::model::pages::{Fill, Filler, ToastFiller, chunk_bytes, tuple_bytes};
use toast_format::model::policy::VARLENA_HEADER_SIZE;
use toast_format::model::settings::Settings;
use toast_format::model::toast::{Column, Compressor, Incoming, Operation, Placed, Table};
use toast_format::model::wal::UpdateWork;
use toast_format::model::{Form, Policy, StoredValue};

/// Sample blocks are gathered in at most this many clusters, so that memory stays bounded.
pub const MAX_CLUSTERS: usize = 1024;

/// What a read of a prefix asks for: `substr(v, 1, 100)` in a UTF-8 database.
pub(super) const PREFIX_BYTES: u32 = 400;

/// What is added up for a candidate: all of them sums over rows.
#[derive(Debug, Clone, Copy, PartialEq, Default, Add, AddAssign, Mul)]
pub struct Sums {
    pub rows: f64,
    /// Rows with a value in the column.
    pub values: f64,
    /// The column's values of pluggable toasters.
    pub custom: f64,
    /// Rows for which an UPDATE that changes no value out of line calls the toaster nevertheless.
    pub toaster_rows: f64,
    /// Bytes of heap tuples, line pointers included; and of those that have a value in the column.
    pub heap_bytes: f64,
    pub value_heap_bytes: f64,
    /// Pages of the heap if each row that has grown beyond half a page has one of its own, and the others are apart: neither
    /// compaction nor VACUUM FULL moves short rows next to long ones.
    pub pages_apart: f64,
    /// The same if each row beyond half a page has one, whether it has grown or not: what the values lead to, in whatever
    /// steps they came to be stored so.
    pub pages_long_apart: f64,
    /// Rows that the conversion makes longer, and their bytes.
    pub grown_rows: f64,
    pub grown_bytes: f64,
    /// Blocks of which more than half is free.
    pub roomy_blocks: f64,
    /// Chunks of all columns.
    pub chunks: f64,
    /// Bytes of chunks on pages, of all columns; and of the column.
    pub toast_bytes: f64,
    pub column_toast_bytes: f64,
    /// What the conversion writes: bytes of heap tuples, the number of values out of line and of their chunks, and the
    /// bytes of these on pages.
    pub new_heap_bytes: f64,
    /// Bytes of the heap tuples that these replace.
    pub replaced_heap_bytes: f64,
    pub new_values: f64,
    pub new_chunks: f64,
    pub new_toast_bytes: f64,
    /// Values of columns that the command does not name, which it moves out of line.
    pub moved_values: f64,
    /// Of dropped columns, in rows that the conversion does not write: bytes of chunks on pages, and the number of these.
    pub dropped_toast_bytes: f64,
    pub dropped_chunks: f64,
    /// Reading the column's values, after an update in place: without pages of the heap and of the index.
    pub read: ReadWork,
    /// The same of their first [`PREFIX_BYTES`].
    pub prefix: ReadWork,
    /// Bytes of the column's values that the server tries to compress without success.
    pub pglz_refused: f64,
    pub lz4_refused: f64,
}

impl Sums {
    /// The sum of all of these.
    pub(super) fn total<'s>(all: impl IntoIterator<Item = &'s Sums>) -> Sums {
        let mut sums = Sums::default();
        all.into_iter().for_each(|one| sums += *one);
        sums
    }

    /// Adds a row whose tuple has this length, and had another one `before`, and puts it on a page. Gives its bytes with the
    /// line pointer.
    fn add_row(&mut self, length: u32, before: u32, heap: &mut Filler) -> f64 {
        heap.put(length as usize);
        let heap_bytes = tuple_bytes(length) as f64;
        let part = (heap_bytes / heap.room() as f64).min(1.0);
        let apart = if part > 0.5 { 1.0 } else { part };
        self.pages_long_apart += apart;
        self.pages_apart += if length > before { apart } else { part };
        if length > before {
            self.grown_rows += 1.0;
            self.grown_bytes += heap_bytes;
        }
        self.heap_bytes += heap_bytes;
        self.rows += 1.0;
        heap_bytes
    }

    /// Adds a value of the column, in a heap tuple of `heap_bytes`, line pointer included.
    pub(super) fn add_value(&mut self, value: &Placed, heap_bytes: f64) {
        if value.form == Form::Null {
            return;
        }
        self.values += 1.0;
        self.value_heap_bytes += heap_bytes;
        if value.form == Form::Custom {
            self.custom += 1.0;
        }
    }

    /// Adds a value that is read with the column: `visits` pages of the TOAST relation for `chunks` chunks, if it is out
    /// of line. `items`: what it consists of if it is compressed and that is known.
    pub(super) fn add_read(
        &mut self,
        value: &Placed,
        items: Option<Items>,
        page: PageSize,
        chunks: f64,
        visits: f64,
    ) {
        let mut read = ReadWork::default();
        let mut prefix = ReadWork::default();
        if value.is_outside() {
            self.column_toast_bytes += chunk_bytes(page, value.stored_size) as f64;
            read.lookups = 1.0;
            read.toast_pages = visits;
            read.chunks = chunks;
            read.copied_bytes = f64::from(value.stored_size);
        } else {
            read.inline_bytes = f64::from(value.stored_size);
        }
        if let Some(method) = value.compressed_by() {
            let stream = value.stored_size.saturating_sub(value.compressed_header());
            let items = items.unwrap_or_else(|| Items::typical(method, value.raw_size, stream));
            let part = f64::from(PREFIX_BYTES) / f64::from(value.raw_size.max(PREFIX_BYTES));
            read.decompressions = 1.0;
            *read.items_mut(method) = items;
            *prefix.items_mut(method) = items * part;
        }
        if value.form.is_external() {
            // of lz4, all chunks are read (`detoast_attr_slice`)
            let stored = value.stored_size;
            let wanted = match value.compressed_by() {
                None => PREFIX_BYTES.min(stored),
                Some(Method::Lz4) => stored,
                Some(Method::Pglz) => {
                    let header = value.compressed_header();
                    let stream = stored.saturating_sub(header) as usize;
                    let most = pglz::maximum_compressed_size(PREFIX_BYTES as usize, stream);
                    header.saturating_add(u32::try_from(most).unwrap_or(u32::MAX))
                }
            };
            let part = f64::from(page.chunks(wanted)) / f64::from(page.chunks(stored).max(1));
            prefix.chunks = chunks * part;
            prefix.toast_pages = (visits * part).max(visits.min(1.0));
            prefix.copied_bytes = f64::from(wanted);
        }
        prefix.lookups = read.lookups;
        prefix.decompressions = read.decompressions;
        self.read += read;
        self.prefix += prefix;
    }

    /// Adds a value of the column that the server tries, without success, to compress whenever it is written.
    fn add_refused(&mut self, value: &Placed, column: &Column) {
        let compresses = matches!(column.storage, Storage::Extended | Storage::Main);
        if !compresses || column.policy == Policy::Never {
            return;
        }
        for method in column.method.methods() {
            let raw = value.raw_size;
            match method {
                Method::Pglz => self.pglz_refused += f64::from(raw.min(PGLZ_GIVES_UP)),
                Method::Lz4 => self.lz4_refused += f64::from(raw),
            }
        }
    }

    /// What compressing the column's values and storing their chunks takes.
    pub(super) fn write(&self) -> WriteWork {
        WriteWork {
            chunks: self.read.chunks,
            compressions: self.read.decompressions,
            pglz: self.read.pglz,
            lz4: self.read.lz4,
            pglz_refused: self.pglz_refused,
            lz4_refused: self.lz4_refused,
        }
    }

    /// What an UPDATE of all rows writes that changes no value out of line.
    pub(super) fn update_other(&self) -> UpdateWork {
        UpdateWork { rows: self.rows, heap_bytes: self.heap_bytes, ..UpdateWork::default() }
    }

    /// What replacing each of the column's values writes.
    pub(super) fn update(&self) -> UpdateWork {
        UpdateWork {
            rows: self.values,
            heap_bytes: self.value_heap_bytes,
            toast_bytes: self.column_toast_bytes,
            chunks: self.read.chunks,
            deleted_chunks: self.read.chunks,
        }
    }
}

/// What a search of a TOAST relation's index visits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct IndexShape {
    /// Pages from the root to a leaf, both included.
    levels: f64,
    /// Leaves after the first, for each chunk.
    pub(super) pages_per_chunk: f64,
}

impl IndexShape {
    pub(super) fn new(levels: f64, page: PageSize) -> IndexShape {
        IndexShape { levels, pages_per_chunk: ToastIndex::pages_per_chunk(page) }
    }

    /// The work with the pages of the index that it visits.
    pub(super) fn searched(&self, work: ReadWork) -> ReadWork {
        let index_pages = work.lookups * self.levels + work.chunks * self.pages_per_chunk;
        ReadWork { index_pages, ..work }
    }
}

/// The column's values by form, in the order of [`Form::ALL`], and by method.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Forms {
    counts: [f64; Form::ALL.len()],
    /// Compressed with pglz, in line or out of it.
    pub pglz: f64,
    /// Compressed with lz4, in line or out of it.
    pub lz4: f64,
}

impl Forms {
    /// Adds `other`, each number times `weight`.
    fn add_weighted(&mut self, other: &Forms, weight: f64) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more * weight;
        }
        self.pglz += other.pglz * weight;
        self.lz4 += other.lz4 * weight;
    }

    /// How many values have this form.
    pub fn get(&self, form: Form) -> f64 {
        self.counts.get(form as usize).copied().unwrap_or(0.0)
    }

    fn add(&mut self, value: &Placed, weight: f64) {
        if let Some(count) = self.counts.get_mut(value.form as usize) {
            *count += weight;
        }
        match value.method {
            Some(Method::Pglz) => self.pglz += weight,
            Some(Method::Lz4) => self.lz4 += weight,
            None => {}
        }
    }
}

/// A row of the sample as it is stored now.
#[derive(Debug, Clone, Default)]
pub struct SampleRow {
    /// How each column's value would arrive if the row were updated without touching it.
    pub values: Vec<Incoming>,
    /// Bytes of the tuple.
    pub tuple_length: u32,
    /// Bytes of dropped columns' values in the TOAST relation.
    pub dropped_outside: u32,
}

/// What happens to values of columns that a command does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OtherValues {
    /// They stay where they are.
    #[default]
    Stay,
    /// They arrive with the row, so that what is stored does not depend on where and how they are stored now.
    Arrive,
    /// They stay where they are, and all columns that are advised on get the settings.
    Follow,
}

/// What is compared: the present state of a column, or other settings for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    /// The column's index from 0.
    pub column: usize,
    /// The columns whose values are read and replaced together for one value of it.
    pub reads: Vec<usize>,
    /// `None`: as stored now.
    pub settings: Option<Settings>,
    /// The table under these settings.
    pub table: Table,
    /// The columns that `retoast` is to bring there: it leaves rows alone in which they are already stored so. Of none,
    /// all rows are written anew.
    pub named: Vec<usize>,
    pub others: OtherValues,
}

impl Variant {
    /// Whether the judge of `retoast` finds the row stored as the settings would store it. A policy is judged by the
    /// row that it leads to.
    fn complies(&self, stored: &[StoredValue], compressor: &mut impl Compressor) -> bool {
        if self.named.is_empty() || self.settings.is_none_or(|settings| !settings.is_stock()) {
            return false;
        }
        let compressor = RefCell::new(compressor);
        let known = |index: usize| {
            let method = *self.table.columns.get(index)?.method.methods().first()?;
            let is_named = self.named.contains(&index);
            is_named.then(|| compressor.borrow_mut().compressed_size(index, method))
        };
        by_model(&self.table, &self.named, &[], stored, &known) == Compliance::Complies
    }

    /// The row as an UPDATE of the columns hands it over.
    fn arriving(&self, row: &SampleRow, arriving: &mut Vec<Incoming>) -> Operation {
        arriving.clone_from(&row.values);
        for &column in self.named.iter().chain([&self.column]) {
            if let Some(value) = arriving.get_mut(column) {
                *value = value.fresh();
            }
        }
        if self.others == OtherValues::Arrive {
            arriving.iter_mut().for_each(|value| *value = value.fresh());
        }
        let keeps_any = row.values.iter().any(|value| matches!(value, Incoming::Kept { .. }));
        if self.named.is_empty() || !keeps_any {
            Operation::Update
        } else {
            Operation::UpdateOfExternal
        }
    }

    /// Whether a policy leads to the row that is stored.
    fn leads_to(&self, stored: &[StoredValue], placed: &[Placed]) -> bool {
        let is_policy = self.settings.is_some_and(|settings| !settings.is_stock());
        is_policy
            && self.named.iter().all(|&column| {
                stored.get(column).zip(placed.get(column)).is_none_or(|(s, p)| same_form(s, p))
            })
    }
}

/// Compresses values of columns that are not named to what they are compressed to where they are stored: these are not
/// fetched.
struct SizesStored<'a, C> {
    /// The values as they are stored; `None` if those that are not named do not arrive.
    values: Option<&'a [Incoming]>,
    named: &'a [usize],
    compressor: &'a mut C,
}

impl<C: Compressor> Compressor for SizesStored<'_, C> {
    fn compressed_size(&mut self, index: usize, method: Method) -> Option<u32> {
        let values = if self.named.contains(&index) { None } else { self.values };
        match values.and_then(|values| values.get(index)) {
            Some(&Incoming::Compressed { size, .. }) => Some(size),
            Some(&Incoming::Kept { stored, compressed, .. }) => {
                compressed.then_some(stored.saturating_add(VARLENA_HEADER_SIZE))
            }
            _ => self.compressor.compressed_size(index, method),
        }
    }
}

/// A variant, and the sums of the rows as they are under it.
#[derive(Debug, Clone)]
pub struct VariantTally {
    pub variant: Variant,
    /// The place of an earlier variant that has the same table and names the same columns: the same rows comply.
    complies_like: Option<usize>,
    /// One for each cluster.
    pub clusters: Vec<Sums>,
    /// The column's values by form.
    pub forms: Forms,
    /// Rows that the server would refuse, and the first refusal.
    pub refused: f64,
    /// Why the server would refuse the first of these rows.
    pub refusal: Option<String>,
    /// The column's values of pluggable toasters of which it is not known what they take in the TOAST relation.
    pub(super) unknown: f64,
    heap: Filler,
    toast: ToastFiller,
    /// The pages of other tallies that were added, and the sums of each, weighted.
    added: [Filled; 2],
    parts: Vec<Sums>,
    /// The sums of the rows that were put on pages, of whatever part of their blocks these were.
    put: Sums,
    /// What a block adds, until it is known how many of its rows were looked at.
    block: Sums,
    /// The same, once that is known.
    weighted: Sums,
    block_forms: Forms,
    block_refused: f64,
    /// The row's values as the variant has them; kept for its room.
    arriving: Vec<Incoming>,
}

/// Pages of files that were filled.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Filled {
    pub(super) pages: f64,
    /// The same, but the last page of each file counts in proportion to how full it is.
    pub(super) filled: f64,
}

impl Filled {
    fn add(&mut self, filler: &Filler, copies: f64) {
        self.pages += filler.pages() as f64 * copies;
        self.filled += filler.filled_pages() * copies;
    }
}

/// The number of chunks of a value that is stored out of line, and of the pages with them.
type ChunksNow = Option<(u32, u32)>;

/// Everything added up over a sample.
#[derive(Debug, Clone)]
pub struct Tally {
    page: PageSize,
    /// The first is that of the values as they are stored.
    tallies: Vec<VariantTally>,
    /// Blocks in each cluster.
    blocks: Vec<f64>,
    rows: f64,
    next: usize,
    /// The TOAST relation as filled by the values as they are stored.
    toast_now: ToastFiller,
    /// The row's values in it.
    now: Vec<ChunksNow>,
    /// Whether the row complies with each variant.
    complying: Vec<bool>,
}

impl Tally {
    /// Nothing added yet; rows are inserted.
    pub fn new(page: PageSize, fillfactor: u8, variants: Vec<Variant>) -> Tally {
        Tally::filled(page, fillfactor, Fill::Insert, variants)
    }

    /// As [`Tally::new`], with rows put on pages in this way.
    pub(super) fn filled(
        page: PageSize,
        fillfactor: u8,
        fill: Fill,
        variants: Vec<Variant>,
    ) -> Tally {
        let mut like = Vec::with_capacity(variants.len());
        for (at, variant) in variants.iter().enumerate() {
            like.push(variants.iter().take(at).position(|earlier| {
                let Variant { settings, table, named, .. } = earlier;
                (settings, table, named) == (&variant.settings, &variant.table, &variant.named)
            }));
        }
        let tallies = variants.into_iter().zip(like).map(|(variant, complies_like)| VariantTally {
            variant,
            complies_like,
            clusters: Vec::new(),
            forms: Forms::default(),
            refused: 0.0,
            refusal: None,
            unknown: 0.0,
            heap: Filler::new(page, fillfactor, fill),
            toast: ToastFiller::new(page, fill),
            added: [Filled::default(); 2],
            parts: Vec::new(),
            put: Sums::default(),
            block: Sums::default(),
            weighted: Sums::default(),
            block_forms: Forms::default(),
            block_refused: 0.0,
            arriving: Vec::new(),
        });
        Tally {
            page,
            tallies: tallies.collect(),
            blocks: Vec::new(),
            rows: 0.0,
            next: 0,
            toast_now: ToastFiller::new(page, fill),
            now: Vec::new(),
            complying: Vec::new(),
        }
    }

    /// Adds a row of the block that [`Tally::end_block`] ends. Sizes of values that must be compressed come from
    /// `compressor`.
    pub fn row(&mut self, row: &SampleRow, compressor: &mut impl Compressor) {
        self.row_made_of(row, row, compressor);
    }

    /// As [`Tally::row`], of a row that has other columns under all variants but that which is stored now.
    pub(super) fn row_made_of(
        &mut self,
        stored: &SampleRow,
        made: &SampleRow,
        compressor: &mut impl Compressor,
    ) {
        let judged: Vec<StoredValue> =
            made.values.iter().map(|value| value.stored_value()).collect();
        let page = self.page;
        let toast_now = &mut self.toast_now;
        self.now.clear();
        self.now.extend(made.values.iter().map(|value| {
            let now = Some(value.as_stored(page)).filter(Placed::is_outside)?;
            Some((now.chunks, toast_now.put(now.stored_size)))
        }));
        let Some((today, others)) = self.tallies.split_first_mut() else { return };
        let complies = today.variant.complies(&judged, compressor);
        today.add(stored, &judged, complies, &[], page, compressor);
        self.complying.clear();
        self.complying.push(complies);
        for tally in others {
            let Variant { table, named, .. } = &tally.variant;
            let like = tally.complies_like.and_then(|at| self.complying.get(at)).copied();
            let complies = like.unwrap_or_else(|| tally.variant.complies(&judged, compressor));
            self.complying.push(complies);
            let entry = too_large(table, &today.variant.table, named, &made.values, compressor);
            let refused = tally.block_refused;
            tally.add(made, &judged, complies, &self.now, page, compressor);
            if let Some(entry) = entry {
                tally.block_refused = refused + 1.0;
                tally.refusal.get_or_insert(entry.to_string());
            }
        }
    }

    /// Ends a block: so many of its rows were added, of so many live ones that it has in all.
    pub fn end_block(&mut self, rows: usize, live_rows: usize) {
        self.end_rows(rows, live_rows);
        let cluster = self.cluster();
        if let Some(blocks) = self.blocks.get_mut(cluster) {
            *blocks += 1.0;
        }
        for tally in &mut self.tallies {
            let mut sums = std::mem::take(&mut tally.weighted);
            if sums.heap_bytes < tally.heap.room() as f64 / 2.0 {
                sums.roomy_blocks = 1.0;
            }
            if let Some(cluster) = tally.clusters.get_mut(cluster) {
                *cluster += sums;
            }
        }
    }

    /// Weights the `rows` added to the block since the last call: together they stand for `live_rows`.
    pub(super) fn end_rows(&mut self, rows: usize, live_rows: usize) {
        let weight = if rows == 0 { 0.0 } else { live_rows as f64 / rows as f64 };
        self.rows += live_rows as f64;
        for tally in &mut self.tallies {
            tally.weighted += tally.block * weight;
            tally.forms.add_weighted(&tally.block_forms, weight);
            tally.put += tally.block;
            tally.refused += tally.block_refused * weight;
            tally.block = Sums::default();
            tally.block_forms = Forms::default();
            tally.block_refused = 0.0;
        }
    }

    /// Adds the sample of another relation, for the same variants. The relation exists in this number of `copies`; each
    /// block of the sample stands for `weight` blocks of a copy.
    pub(super) fn add_part(&mut self, other: &Tally, weight: f64, copies: usize) {
        let part_weight = weight;
        let weight = weight * copies as f64;
        let times = copies as f64;
        for (at, blocks) in other.blocks.iter().enumerate() {
            let cluster = self.cluster();
            if let Some(sum) = self.blocks.get_mut(cluster) {
                *sum += blocks * weight;
            }
            for (tally, other) in self.tallies.iter_mut().zip(&other.tallies) {
                if let Some((sums, more)) =
                    tally.clusters.get_mut(cluster).zip(other.clusters.get(at))
                {
                    *sums += *more * weight;
                }
            }
        }
        self.rows += other.rows;
        for (tally, other) in self.tallies.iter_mut().zip(&other.tallies) {
            let mut part = Sums::default();
            other.clusters.iter().for_each(|sums| part += *sums * part_weight);
            tally.parts.extend(std::iter::repeat_n(part, copies));
            tally.forms.add_weighted(&other.forms, weight);
            tally.refused += other.refused * weight;
            tally.refusal = tally.refusal.take().or_else(|| other.refusal.clone());
            tally.unknown += other.unknown;
            tally.put += other.put * times;
            let [heap, toast] = &mut tally.added;
            heap.add(&other.heap, times);
            toast.add(other.toast.heap(), times);
        }
    }

    /// Multiplies the weights of everything that was added.
    pub(super) fn scale(&mut self, by: f64) {
        self.blocks.iter_mut().for_each(|blocks| *blocks *= by);
        for tally in &mut self.tallies {
            for sums in tally.clusters.iter_mut().chain(&mut tally.parts) {
                *sums = *sums * by;
            }
            let forms = std::mem::take(&mut tally.forms);
            tally.forms.add_weighted(&forms, by);
            tally.refused *= by;
        }
    }

    /// The cluster of the next block.
    fn cluster(&mut self) -> usize {
        let number = self.next;
        self.next += 1;
        if number < MAX_CLUSTERS {
            self.blocks.push(0.0);
            for tally in &mut self.tallies {
                tally.clusters.push(Sums::default());
            }
        }
        cluster_of(number, MAX_CLUSTERS)
    }

    /// The sums, in the same order.
    pub fn tallies(&self) -> &[VariantTally] {
        &self.tallies
    }

    /// Blocks in each cluster.
    pub fn blocks(&self) -> &[f64] {
        &self.blocks
    }

    /// Live rows of the blocks.
    pub fn rows(&self) -> f64 {
        self.rows
    }
}

impl VariantTally {
    /// The pages that the sample's rows fill of heaps, and their chunks of TOAST relations.
    pub(super) fn filled(&self) -> [Filled; 2] {
        let [mut heap, mut toast] = self.added;
        heap.add(&self.heap, 1.0);
        toast.add(self.toast.heap(), 1.0);
        [heap, toast]
    }

    /// The sums of each relation that the sample is of.
    pub(super) fn parts(&self) -> Vec<Sums> {
        if self.parts.is_empty() { vec![Sums::total(&self.clusters)] } else { self.parts.clone() }
    }

    /// How many times what INSERT puts on a page of the heap fits on it.
    pub(super) fn page_room(&self) -> f64 {
        self.toast.heap().room() as f64 / self.heap.room() as f64
    }

    /// The column's values in the blocks that were read.
    pub(super) fn values(&self) -> f64 {
        self.clusters.iter().map(|sums| sums.values).sum()
    }

    /// The sums of the rows that fill both.
    pub fn put(&self) -> &Sums {
        &self.put
    }

    /// `complies`: whether the row's values, `judged`, are stored as the variant would store them.
    fn add(
        &mut self,
        row: &SampleRow,
        judged: &[StoredValue],
        complies: bool,
        now: &[ChunksNow],
        page: PageSize,
        compressor: &mut impl Compressor,
    ) {
        let variant = &self.variant;
        let toasted = if variant.settings.is_none() || complies {
            None
        } else {
            let operation = variant.arriving(row, &mut self.arriving);
            let stored = (variant.others == OtherValues::Arrive).then_some(row.values.as_slice());
            let mut sizes = SizesStored { values: stored, named: &variant.named, compressor };
            match variant.table.toast(&self.arriving, operation, &mut sizes) {
                Ok(toasted) if variant.leads_to(judged, &toasted.values) => None,
                Ok(toasted) => Some(toasted),
                Err(error) => {
                    // As it is: the row cannot be stored otherwise.
                    self.block_refused += 1.0;
                    self.refusal.get_or_insert(error.to_string());
                    None
                }
            }
        };
        let is_new = toasted.is_some();
        let (length, placed) = toasted.map_or_else(
            || (row.tuple_length, as_stored(&row.values, page)),
            |toasted| (toasted.tuple_length, toasted.values),
        );
        if let Some(Incoming::Opaque { outside: None, .. }) = row.values.get(variant.column) {
            self.unknown += 1.0;
        }
        let heap_bytes = self.block.add_row(length, row.tuple_length, &mut self.heap);
        let has_outside = placed.iter().any(Placed::is_outside);
        let calls_toaster = has_outside || length as usize > page.toast_tuple_threshold();
        if calls_toaster {
            self.block.toaster_rows += 1.0;
        }
        if is_new {
            self.block.new_heap_bytes += heap_bytes;
            self.block.replaced_heap_bytes += tuple_bytes(row.tuple_length) as f64;
        } else if row.dropped_outside > 0 {
            self.block.dropped_toast_bytes += chunk_bytes(page, row.dropped_outside) as f64;
            self.block.dropped_chunks += f64::from(page.chunks(row.dropped_outside));
        }
        for (index, value) in placed.iter().enumerate() {
            let external = value.is_outside();
            let is_written = is_new && !value.kept;
            let fresh = if external { self.toast.put(value.stored_size) } else { 0 };
            let stored = now.get(index).copied().flatten();
            let visits = match stored {
                _ if !external => 0.0,
                Some((chunks, pages)) if !is_written || chunks == value.chunks => f64::from(pages),
                Some(_) => pages_in_room(value.chunks).max(f64::from(fresh)),
                None => f64::from(fresh),
            };
            let bytes = if external { chunk_bytes(page, value.stored_size) as f64 } else { 0.0 };
            self.block.toast_bytes += bytes;
            self.block.chunks += f64::from(value.chunks);
            if is_written {
                let is_moved = external && stored.is_none() && !variant.named.contains(&index);
                self.block.moved_values += f64::from(u8::from(is_moved));
                self.block.new_values += f64::from(u8::from(external));
                self.block.new_chunks += f64::from(value.chunks);
                self.block.new_toast_bytes += bytes;
            }
            if index == variant.column {
                self.block_forms.add(value, 1.0);
                self.block.add_value(value, heap_bytes);
            }
            if variant.reads.contains(&index) {
                let items = value.compressed_by().and_then(|m| compressor.items(index, m));
                self.block.add_read(value, items, page, f64::from(value.chunks), visits);
                let tried = matches!(value.form, Form::External | Form::Plain) && calls_toaster;
                if tried && let Some(column) = variant.table.columns.get(index) {
                    self.block.add_refused(value, column);
                }
            }
        }
    }
}

/// The cluster of the block of this number, of so many: blocks of a random sample may be dealt out in turn, but not
/// by their position, so the turn is scrambled.
pub(super) fn cluster_of(number: usize, clusters: usize) -> usize {
    if number < clusters {
        return number;
    }
    // Fibonacci hashing
    let hash = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (hash >> 32) as usize % clusters
}

/// The average number of pages with this many chunks of a value that is stored in the room left by others: they begin
/// anywhere on a page, whereas in a new file values of the same number of chunks may fill whole pages.
fn pages_in_room(chunks: u32) -> f64 {
    1.0 + f64::from(chunks.saturating_sub(1)) / f64::from(CHUNKS_PER_PAGE)
}

/// The values where they are: as they are stored now.
pub fn as_stored(values: &[Incoming], page: PageSize) -> Vec<Placed> {
    values.iter().map(|value| value.as_stored(page)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_row_has_a_page_of_its_own_in_whatever_steps_it_became_long() {
        let added = |before: u32| {
            let mut sums = Sums::default();
            let mut heap = Filler::new(PageSize::DEFAULT, 100, Fill::Insert);
            sums.add_row(5000, before, &mut heap);
            sums.add_row(100, 100, &mut heap);
            sums
        };
        let [grown, long] = [100, 5000].map(added);
        assert!(grown.pages_apart > 1.0 && long.pages_apart < 0.7, "{grown:?} {long:?}");
        assert_eq!(grown.pages_long_apart, grown.pages_apart);
        assert_eq!(long.pages_long_apart, grown.pages_long_apart);
        assert_eq!([grown.grown_rows, long.grown_rows], [1.0, 0.0]);
    }
}
