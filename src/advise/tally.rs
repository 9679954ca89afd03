//! What the rows of a sample add up to under each candidate.

use std::cell::RefCell;

use toast_format::codec::items::Items;
use toast_format::codec::{Method, pglz};
use toast_format::disk::desc::Storage;
use toast_format::disk::layout::PageSize;
use toast_format::judge::stock::{Compliance, by_model, same_form};
use toast_format::model::btree::ToastIndex;
use toast_format::model::cost::{CHUNKS_PER_PAGE, PGLZ_GIVES_UP, ReadWork, UpdateWork, WriteWork};
use toast_format::model::index_entry::too_large;
use toast_format::model::pages::{Fill, Filler, ToastFiller, chunk_bytes, tuple_bytes};
use toast_format::model::policy::Policy;
use toast_format::model::settings::Settings;
use toast_format::model::stored::{Form, StoredValue};
use toast_format::model::toast::{Column, Compressor, Incoming, Operation, Placed, Table};

/// Sample blocks are gathered in at most this many clusters, so that memory stays bounded.
pub const MAX_CLUSTERS: usize = 1024;

/// What is added up for a candidate: all of them sums over rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sum {
    /// Rows with a value in the column.
    Values,
    /// Bytes of heap tuples, line pointers included.
    HeapBytes,
    /// Bytes of chunks on pages, of all columns.
    ToastBytes,
    /// Chunks of all columns.
    Chunks,
    /// The column's values out of line.
    Lookups,
    /// Pages of the TOAST relation that reading the column's values visits, after an update in place.
    Visits,
    /// The column's chunks.
    ColumnChunks,
    /// Bytes of the column's chunks on pages.
    ColumnToastBytes,
    /// Bytes of the column's values in the TOAST relation.
    ColumnExternalBytes,
    /// The column's compressed values.
    Decompressions,
    /// What those in pglz consist of: see [`Items`].
    PglzLiterals,
    PglzMatches,
    PglzCopied,
    PglzOverlapping,
    /// The same of those in lz4.
    Lz4Literals,
    Lz4Matches,
    Lz4Copied,
    Lz4Overlapping,
    /// Bytes of heap tuples that have a value in the column.
    ValueHeapBytes,
    /// The column's values of pluggable toasters.
    Custom,
    /// Bytes of heap tuples that are written anew.
    NewHeapBytes,
    /// Chunks that are written anew, of all columns.
    NewChunks,
    /// Their bytes on pages.
    NewToastBytes,
    /// Rows.
    Rows,
    /// Rows for which an UPDATE that changes no value out of line calls the toaster nevertheless.
    ToasterRows,
    /// Bytes of the column's values that the server tries to compress without success.
    PglzRefused,
    Lz4Refused,
    /// What the first [`PREFIX_BYTES`] of the column's values take: chunks, pages of the TOAST relation, bytes of chunks,
    /// and what is decompressed of them.
    PrefixChunks,
    PrefixVisits,
    PrefixExternalBytes,
    PrefixPglzLiterals,
    PrefixPglzMatches,
    PrefixPglzCopied,
    PrefixPglzOverlapping,
    PrefixLz4Literals,
    PrefixLz4Matches,
    PrefixLz4Copied,
    PrefixLz4Overlapping,
}

/// Length of the array that holds every [`Sum`].
pub const SUMS: usize = 38;

/// What a read of a prefix asks for: `substr(v, 1, 100)` in a UTF-8 database.
pub(super) const PREFIX_BYTES: u32 = 400;

/// The sums of [`Items`], in the order of [`Items::each`].
fn items_of(method: Method) -> [Sum; 4] {
    use Sum as S;
    match method {
        Method::Pglz => [S::PglzLiterals, S::PglzMatches, S::PglzCopied, S::PglzOverlapping],
        Method::Lz4 => [S::Lz4Literals, S::Lz4Matches, S::Lz4Copied, S::Lz4Overlapping],
    }
}

/// The same for prefixes.
fn prefix_items_of(method: Method) -> [Sum; 4] {
    match method {
        Method::Pglz => [
            Sum::PrefixPglzLiterals,
            Sum::PrefixPglzMatches,
            Sum::PrefixPglzCopied,
            Sum::PrefixPglzOverlapping,
        ],
        Method::Lz4 => [
            Sum::PrefixLz4Literals,
            Sum::PrefixLz4Matches,
            Sum::PrefixLz4Copied,
            Sum::PrefixLz4Overlapping,
        ],
    }
}

/// One number for each [`Sum`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sums([f64; SUMS]);

impl Default for Sums {
    fn default() -> Sums {
        Sums([0.0; SUMS])
    }
}

impl Sums {
    pub fn get(&self, sum: Sum) -> f64 {
        self.0.get(sum as usize).copied().unwrap_or(0.0)
    }

    fn add(&mut self, sum: Sum, amount: f64) {
        if let Some(total) = self.0.get_mut(sum as usize) {
            *total += amount;
        }
    }

    /// Adds `other`, each number times `weight`.
    pub fn add_weighted(&mut self, other: &Sums, weight: f64) {
        for (total, amount) in self.0.iter_mut().zip(&other.0) {
            *total += amount * weight;
        }
    }

    fn scaled(&self, by: f64) -> Sums {
        Sums(self.0.map(|sum| sum * by))
    }

    /// Adds a value of the column, in a heap tuple of `heap_bytes`, line pointer included.
    pub(super) fn add_value(&mut self, value: &Placed, heap_bytes: f64) {
        if value.form == Form::Null {
            return;
        }
        self.add(Sum::Values, 1.0);
        self.add(Sum::ValueHeapBytes, heap_bytes);
        if value.form == Form::Custom {
            self.add(Sum::Custom, 1.0);
        }
    }

    /// Adds a value that is read with the column: `visits` pages of the TOAST relation for `chunks` chunks, if it is out
    /// of line. `items`: what it consists of if it is compressed and that is known.
    pub(super) fn add_read(
        &mut self,
        (value, items): (&Placed, Option<Items>),
        page: PageSize,
        chunks: f64,
        visits: f64,
    ) {
        if value.is_outside() {
            self.add(Sum::Lookups, 1.0);
            self.add(Sum::Visits, visits);
            self.add(Sum::ColumnChunks, chunks);
            self.add(Sum::ColumnToastBytes, chunk_bytes(page, value.stored_size) as f64);
            self.add(Sum::ColumnExternalBytes, f64::from(value.stored_size));
        }
        if let Some(method) = value.compressed_by() {
            self.add(Sum::Decompressions, 1.0);
            let stream = value.stored_size.saturating_sub(value.compressed_header());
            let items = items.unwrap_or_else(|| Items::typical(method, value.raw_size, stream));
            let part = f64::from(PREFIX_BYTES) / f64::from(value.raw_size.max(PREFIX_BYTES));
            let sums = items_of(method).into_iter().zip(prefix_items_of(method));
            for ((sum, prefix), amount) in sums.zip(items.each()) {
                self.add(sum, amount);
                self.add(prefix, amount * part);
            }
        }
        if value.form.is_external() {
            self.add_prefix(value, page, chunks, visits);
        }
    }

    /// Adds what a read of the first bytes of a value out of line takes (`detoast_attr_slice`): of lz4 all chunks.
    fn add_prefix(&mut self, value: &Placed, page: PageSize, chunks: f64, visits: f64) {
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
        self.add(Sum::PrefixChunks, chunks * part);
        self.add(Sum::PrefixVisits, (visits * part).max(visits.min(1.0)));
        self.add(Sum::PrefixExternalBytes, f64::from(wanted));
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
                Method::Pglz => self.add(Sum::PglzRefused, f64::from(raw.min(PGLZ_GIVES_UP))),
                Method::Lz4 => self.add(Sum::Lz4Refused, f64::from(raw)),
            }
        }
    }

    fn items(&self, sums: [Sum; 4]) -> Items {
        Items::from(sums.map(|sum| self.get(sum)))
    }

    /// What reading the column's values takes, the heap's pages left out.
    pub(super) fn read(&self, index: IndexShape) -> ReadWork {
        self.read_of([Sum::ColumnChunks, Sum::Visits, Sum::ColumnExternalBytes], items_of, index)
    }

    /// What reading the first [`PREFIX_BYTES`] of the column's values takes, the heap's pages left out.
    pub(super) fn prefix_read(&self, index: IndexShape) -> ReadWork {
        let sums = [Sum::PrefixChunks, Sum::PrefixVisits, Sum::PrefixExternalBytes];
        self.read_of(sums, prefix_items_of, index)
    }

    /// The work of a read of these chunks, pages and bytes of the TOAST relation.
    fn read_of(
        &self,
        [chunks, visits, bytes]: [Sum; 3],
        items: impl Fn(Method) -> [Sum; 4],
        index: IndexShape,
    ) -> ReadWork {
        let lookups = self.get(Sum::Lookups);
        let chunks = self.get(chunks);
        ReadWork {
            heap_pages: 0.0,
            lookups,
            index_pages: lookups * index.levels + chunks * index.pages_per_chunk,
            toast_pages: self.get(visits),
            chunks,
            copied_bytes: self.get(bytes),
            decompressions: self.get(Sum::Decompressions),
            pglz: self.items(items(Method::Pglz)),
            lz4: self.items(items(Method::Lz4)),
        }
    }

    /// What compressing the column's values and storing their chunks takes.
    pub(super) fn write(&self) -> WriteWork {
        WriteWork {
            chunks: self.get(Sum::ColumnChunks),
            compressions: self.get(Sum::Decompressions),
            pglz: self.items(items_of(Method::Pglz)),
            lz4: self.items(items_of(Method::Lz4)),
            pglz_refused: self.get(Sum::PglzRefused),
            lz4_refused: self.get(Sum::Lz4Refused),
        }
    }

    /// What an UPDATE of all rows writes that changes no value out of line.
    pub(super) fn update_other(&self) -> UpdateWork {
        let rows = self.get(Sum::Rows);
        let heap_bytes = self.get(Sum::HeapBytes);
        UpdateWork { rows, heap_bytes, ..UpdateWork::default() }
    }

    /// What replacing each of them writes.
    pub(super) fn update(&self) -> UpdateWork {
        let chunks = self.get(Sum::ColumnChunks);
        UpdateWork {
            rows: self.get(Sum::Values),
            heap_bytes: self.get(Sum::ValueHeapBytes),
            toast_bytes: self.get(Sum::ColumnToastBytes),
            chunks,
            deleted_chunks: chunks,
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
        let at = Form::ALL.iter().position(|f| *f == form);
        at.and_then(|at| self.counts.get(at)).copied().unwrap_or(0.0)
    }

    fn add(&mut self, value: &Placed, weight: f64) {
        let at = Form::ALL.iter().position(|f| *f == value.form);
        if let Some(count) = at.and_then(|at| self.counts.get_mut(at)) {
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

/// The sums of one variant.
#[derive(Debug, Clone)]
pub struct VariantTally {
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
    variants: Vec<Variant>,
    tallies: Vec<VariantTally>,
    /// Blocks in each cluster.
    blocks: Vec<f64>,
    rows: f64,
    next: usize,
    /// The TOAST relation as filled by the values as they are stored.
    toast_now: ToastFiller,
    /// The row's values in it.
    now: Vec<ChunksNow>,
}

impl Tally {
    /// Nothing added yet; rows are inserted.
    pub fn new(page: PageSize, fillfactor: u8, variants: Vec<Variant>) -> Tally {
        Tally::filled(page, (fillfactor, Fill::Insert), variants)
    }

    /// As [`Tally::new`], with rows put on pages in this way.
    pub(super) fn filled(
        page: PageSize,
        (fillfactor, fill): (u8, Fill),
        variants: Vec<Variant>,
    ) -> Tally {
        let tally = VariantTally {
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
            block_forms: Forms::default(),
            block_refused: 0.0,
            arriving: Vec::new(),
        };
        let tallies = vec![tally; variants.len()];
        Tally {
            page,
            variants,
            tallies,
            blocks: Vec::new(),
            rows: 0.0,
            next: 0,
            toast_now: ToastFiller::new(page, fill),
            now: Vec::new(),
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
        let now = self.variants.first().map(|variant| &variant.table);
        for (variant, tally) in self.variants.iter().zip(&mut self.tallies) {
            match variant.settings {
                None => tally.add(variant, (stored, &judged, &[]), page, compressor),
                Some(_) => {
                    let now = now.unwrap_or(&variant.table);
                    let table = &variant.table;
                    let named = &variant.named;
                    let refused = tally.block_refused;
                    let entry = too_large(table, now, named, &made.values, compressor);
                    tally.add(variant, (made, &judged, &self.now), page, compressor);
                    if let Some(entry) = entry {
                        tally.block_refused = refused + 1.0;
                        tally.refusal.get_or_insert(entry.to_string());
                    }
                }
            }
        }
    }

    /// Ends a block: so many of its rows were added, of so many live ones that it has in all.
    pub fn end_block(&mut self, rows: usize, live_rows: usize) {
        let weight = if rows == 0 { 0.0 } else { live_rows as f64 / rows as f64 };
        let cluster = self.cluster();
        if let Some(blocks) = self.blocks.get_mut(cluster) {
            *blocks += 1.0;
        }
        self.rows += live_rows as f64;
        for tally in &mut self.tallies {
            if let Some(sums) = tally.clusters.get_mut(cluster) {
                sums.add_weighted(&tally.block, weight);
            }
            tally.forms.add_weighted(&tally.block_forms, weight);
            tally.put.add_weighted(&tally.block, 1.0);
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
                    sums.add_weighted(more, weight);
                }
            }
        }
        self.rows += other.rows;
        for (tally, other) in self.tallies.iter_mut().zip(&other.tallies) {
            let mut part = Sums::default();
            other.clusters.iter().for_each(|sums| part.add_weighted(sums, part_weight));
            tally.parts.extend(std::iter::repeat_n(part, copies));
            tally.forms.add_weighted(&other.forms, weight);
            tally.refused += other.refused * weight;
            tally.refusal = tally.refusal.take().or_else(|| other.refusal.clone());
            tally.unknown += other.unknown;
            tally.put.add_weighted(&other.put, times);
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
                *sums = sums.scaled(by);
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
        if !self.parts.is_empty() {
            return self.parts.clone();
        }
        let mut sums = Sums::default();
        self.clusters.iter().for_each(|cluster| sums.add_weighted(cluster, 1.0));
        vec![sums]
    }

    /// The column's values in the blocks that were read.
    pub(super) fn values(&self) -> f64 {
        self.clusters.iter().map(|sums| sums.get(Sum::Values)).sum()
    }

    /// The sums of the rows that fill both.
    pub fn put(&self) -> &Sums {
        &self.put
    }

    fn add(
        &mut self,
        variant: &Variant,
        (row, judged, now): (&SampleRow, &[StoredValue], &[ChunksNow]),
        page: PageSize,
        compressor: &mut impl Compressor,
    ) {
        let length;
        let mut is_new = false;
        let placed = if variant.settings.is_none() || variant.complies(judged, compressor) {
            length = row.tuple_length;
            as_stored(&row.values, page)
        } else {
            let operation = variant.arriving(row, &mut self.arriving);
            match variant.table.toast(&self.arriving, operation, compressor) {
                Ok(toasted) if variant.leads_to(judged, &toasted.values) => {
                    length = row.tuple_length;
                    as_stored(&row.values, page)
                }
                Ok(toasted) => {
                    is_new = true;
                    length = toasted.tuple_length;
                    toasted.values
                }
                Err(error) => {
                    self.block_refused += 1.0;
                    self.refusal.get_or_insert(error.to_string());
                    // As it is: the row cannot be stored otherwise.
                    length = row.tuple_length;
                    as_stored(&row.values, page)
                }
            }
        };
        if let Some(Incoming::Opaque { outside: None, .. }) = row.values.get(variant.column) {
            self.unknown += 1.0;
        }
        self.heap.put(length as usize);
        let heap_bytes = tuple_bytes(length) as f64;
        self.block.add(Sum::HeapBytes, heap_bytes);
        self.block.add(Sum::Rows, 1.0);
        let has_outside = placed.iter().any(Placed::is_outside);
        let calls_toaster = has_outside || length as usize > page.toast_tuple_threshold();
        if calls_toaster {
            self.block.add(Sum::ToasterRows, 1.0);
        }
        if is_new {
            self.block.add(Sum::NewHeapBytes, heap_bytes);
        }
        for (index, value) in placed.iter().enumerate() {
            let external = value.is_outside();
            let is_written = is_new && !value.kept;
            let fresh = if external { self.toast.put(value.stored_size) } else { 0 };
            let visits = match now.get(index).copied().flatten() {
                _ if !external => 0.0,
                Some((chunks, pages)) if !is_written || chunks == value.chunks => f64::from(pages),
                Some(_) => pages_in_room(value.chunks).max(f64::from(fresh)),
                None => f64::from(fresh),
            };
            let bytes = if external { chunk_bytes(page, value.stored_size) as f64 } else { 0.0 };
            self.block.add(Sum::ToastBytes, bytes);
            self.block.add(Sum::Chunks, f64::from(value.chunks));
            if is_written {
                self.block.add(Sum::NewChunks, f64::from(value.chunks));
                self.block.add(Sum::NewToastBytes, bytes);
            }
            if index == variant.column {
                self.block_forms.add(value, 1.0);
                self.block.add_value(value, heap_bytes);
            }
            if variant.reads.contains(&index) {
                let items = value.compressed_by().and_then(|m| compressor.items(index, m));
                self.block.add_read((value, items), page, f64::from(value.chunks), visits);
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
