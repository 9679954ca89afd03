//! What the rows of a sample of blocks show (pure).

use super::content::{LONGEST, is_short};
use super::targets::{Side, TargetFacts, Targets, near};
use toast_format::codec::{Method, datum};
use toast_format::disk::tuple::infomask;
use toast_format::disk::varlena::{tc_method, tc_raw_size};
use toast_format::disk::{
    Attribute, BlockNumber, CustomFlavor, Datum, HeapTuple, Storage, ToastPointer, TupleDesc,
    ValueIdType, Varlena, Walk,
};
use toast_format::fill::lengths::Growth;
use toast_format::fill::meter::{FileFill, FileMeter, Kind};
use toast_format::fill::moves::RelatedFiles;
use toast_format::heap::sample::EvenSample;
use toast_format::heap::scan::{Visible, Visitor, each_tuple};
use toast_format::judge::stock::{Compliance, by_model};
use toast_format::model::estimate::Tally;
use toast_format::model::index_entry::may_be_too_large;
use toast_format::model::toast::{Incoming, Table};
use toast_format::model::{BlocksRead, Form, Interval, MethodChoice, StoredValue, Visibility};

/// If compression leaves more than this fraction of a value, it saves hardly any space: the default of the policy
/// `ratio`.
const IDLE: f64 = 0.95;

/// What is counted for a column. Bytes are as stored, unless stated otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    Stored,
    /// Without compression.
    Raw,
    /// Of compressed values, without compression.
    CompressedRaw,
    /// Of values compressed with pglz, without compression.
    PglzRaw,
    /// Of values that compression makes hardly smaller, without compression.
    IdleRaw,
    IdleValues,
    /// Not stored according to the column's settings.
    OlderBytes,
    OlderValues,
    /// Out of line, though the settings would keep them in the row.
    FittingBytes,
    FittingValues,
    OutOfLineValues,
    /// Out of line and uncompressed.
    UncompressedBytes,
    /// Those of them that are not too long to be compressed for this.
    ShortUncompressedBytes,
    /// Out of line, and stored anew by an UPDATE whose old row is still on the page.
    RewrittenBytes,
    /// Out of line with a last chunk that is nearly empty.
    ShortEnds,
    /// In rows so long that they would be moved out but for storage main.
    MainBytes,
    /// Rows that fit an index on the column only if the value is compressed.
    LongEntries,
    /// Rows that are hardly too long for the value to stay in them.
    JustAbove,
    /// Rows that are hardly short enough for it.
    JustBelow,
    /// Rows nearly as long as can be, mostly for this value, which cannot be moved out.
    NearPage,
}

const COUNTS: usize = Count::NearPage as usize + 1;

/// The sums of one column.
#[derive(Debug, Clone, Copy, Default)]
struct Counts([Tally; COUNTS]);

impl Counts {
    fn add(&mut self, count: Count, amount: u64) {
        if let Some(tally) = self.0.get_mut(count as usize) {
            tally.add(amount);
        }
    }

    fn total(&self, drawn: BlocksRead) -> Counted {
        Counted(self.0.map(|tally| tally.total(drawn)))
    }
}

/// What was counted for a column, for all blocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Counted([Interval; COUNTS]);

impl Counted {
    /// With only this figure.
    #[cfg(test)]
    pub(crate) fn of_one(count: Count, figure: Interval) -> Counted {
        let mut figures = [Interval::default(); COUNTS];
        figures[count as usize] = figure;
        Counted(figures)
    }

    /// Adds what was counted in another part of the table.
    pub(crate) fn add(&mut self, other: &Counted) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum = sum.plus_independent(more);
        }
    }

    pub(crate) fn of(&self, count: Count) -> Interval {
        self.0.get(count as usize).copied().unwrap_or_default()
    }
}

/// Figures of a table's rows, for all blocks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RowFacts {
    pub(crate) rows: Interval,
    /// Bytes of values of dropped columns, in rows and out of line.
    pub(crate) dropped: Interval,
    /// One per attribute, including dropped ones.
    pub(crate) columns: Vec<Counted>,
    /// What longer targets would do to the table.
    pub(crate) targets: Vec<TargetFacts>,
}

/// An examination of the rows of a table.
pub(crate) struct RowLook<'a> {
    desc: &'a TupleDesc,
    flavor: CustomFlavor,
    /// The table as its toaster sees it.
    model: &'a Table,
    /// The columns whose storage can be chosen.
    chosen: Vec<usize>,
    /// One per attribute, including dropped ones.
    columns: Vec<ColumnLook>,
    rows: Tally,
    dropped: Tally,
    values: Vec<StoredValue>,
    targets: Targets,
}

/// What an examination has counted and kept of a column.
#[derive(Debug, Default)]
pub(crate) struct ColumnLook {
    counts: Counts,
    /// The server's default method compresses its new values.
    follows_default: bool,
    /// Some of the values that are out of line and uncompressed.
    pub(crate) uncompressed: EvenSample<ToastPointer>,
    /// Some of those whose last chunk is nearly empty.
    pub(crate) short_ends: EvenSample<ToastPointer>,
    /// Some of those that were stored anew.
    pub(crate) rewrites: EvenSample<Rewrite>,
    /// Some values if the column follows the server's default method: compressed ones in rows, and those out of line.
    pub(crate) in_row: EvenSample<InRow>,
    pub(crate) out_of_line: EvenSample<ToastPointer>,
}

/// A value that is compressed in its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InRow {
    /// Its raw size and method (`va_tcinfo`).
    tc_info: u32,
    stream: Vec<u8>,
}

impl InRow {
    /// The value; `None` if it is damaged.
    pub(crate) fn raw(&self) -> Option<Vec<u8>> {
        let method = tc_method(self.tc_info)?;
        datum::decompress(method, tc_raw_size(self.tc_info) as usize, &self.stream).ok()
    }
}

/// A value that is out of line, and the one that replaced it in the next version of its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rewrite {
    pub(crate) old: ToastPointer,
    pub(crate) new: ToastPointer,
}

/// An examination of a table's own file and of the rows in it.
pub(crate) struct HeapLook<'a> {
    file: FileMeter,
    rows: RowLook<'a>,
}

impl<'a> HeapLook<'a> {
    pub(crate) fn new(
        desc: &'a TupleDesc,
        flavor: CustomFlavor,
        model: &'a Table,
        chosen: Vec<usize>,
        fillfactor: u32,
    ) -> HeapLook<'a> {
        HeapLook {
            file: FileMeter::sample(Kind::Rows, model.page, fillfactor).growing(Growth::new(
                desc,
                model.page,
                Some(model.target),
            )),
            rows: RowLook {
                desc,
                flavor,
                model,
                chosen,
                columns: desc.attributes.iter().map(ColumnLook::new).collect(),
                rows: Tally::default(),
                dropped: Tally::default(),
                values: Vec::new(),
                targets: Targets::new(model),
            },
        }
    }

    /// Adds the tuples of a block.
    pub(crate) fn block(&mut self, number: BlockNumber, bytes: &[u8], visible: &impl Visible) {
        let rows = &mut self.rows;
        self.file.block(number, bytes, visible, |tuple, length| rows.row(tuple, length));
        rows.updates(number, bytes, visible);
        rows.end_block();
    }

    /// Takes a tuple of a block whose line pointers arrive one by one.
    pub(crate) fn tuple(&mut self, tuple: &HeapTuple<'_>, length: u16, seen: Visibility) {
        self.file.take(tuple, length, seen);
        if matches!(seen, Visibility::Live) {
            self.rows.row(tuple, length);
        }
    }

    /// All line pointers of a block have arrived.
    pub(crate) fn end_block(&mut self) {
        self.file.end_block();
        self.rows.end_block();
    }

    /// What is known about the table of `total` blocks. `related`: the sizes of its indexes, if they are known.
    /// `all`: a scan of the file, which shows how full it is if it has read every block.
    pub(crate) fn finish(
        self,
        total: u64,
        related: Option<&RelatedFiles>,
        all: Option<FileMeter>,
    ) -> HeapFacts {
        let HeapLook { file, rows } = self;
        let drawn = BlocksRead { read: file.read(), total };

        HeapFacts {
            rows: RowFacts {
                rows: rows.rows.total(drawn),
                dropped: rows.dropped.total(drawn),
                columns: rows.columns.iter().map(|column| column.counts.total(drawn)).collect(),
                targets: rows.targets.facts(drawn),
            },
            heap: match all.filter(|all| all.read() >= total) {
                Some(all) => FileFill { drawn, ..all.finish(total, related) },
                None => file.finish(total, related),
            },
            columns: rows.columns,
        }
    }
}

/// What the examination of a table has shown.
pub(crate) struct HeapFacts {
    pub(crate) rows: RowFacts,
    pub(crate) heap: FileFill,
    /// One per attribute.
    pub(crate) columns: Vec<ColumnLook>,
}

impl RowLook<'_> {
    fn end_block(&mut self) {
        self.rows.end_block();
        self.dropped.end_block();
        self.targets.end_block();
        let counts = self.columns.iter_mut().flat_map(|column| &mut column.counts.0);
        counts.for_each(Tally::end_block);
    }

    /// Finds the values that UPDATEs on this page have stored anew. Versions of a row that follow each other are known
    /// by `t_ctid` and the transaction (`heap_get_latest_tid`, heapam.c).
    fn updates(&mut self, number: BlockNumber, bytes: &[u8], visible: &impl Visible) {
        let mut old = Vec::new();
        let mut new = Vec::new();
        each_tuple(number, bytes, visible, |at, tuple, _, seen| {
            let is_dead = matches!(seen, Visibility::Dead);
            let no_update = infomask::XMAX_INVALID | infomask::XMAX_IS_MULTI;
            if is_dead && tuple.infomask & no_update == 0 && tuple.ctid.block == number {
                old.push((at, *tuple));
            }
            let committed = tuple.infomask & infomask::XMIN_COMMITTED != 0;
            if tuple.infomask & infomask::UPDATED != 0 && (committed || !is_dead) {
                new.push((at, *tuple));
            }
        });
        for (at, before) in old {
            let next = new.binary_search_by_key(&before.ctid, |&(at, _)| at);
            let next = next.ok().and_then(|at| new.get(at));
            let after = next.filter(|(next, after)| *next != at && after.xmin == before.xmax);
            if let Some((_, after)) = after {
                self.update(&before, after);
            }
        }
    }

    /// Counts the values that were stored anew in the next version of a row.
    fn update(&mut self, before: &HeapTuple<'_>, after: &HeapTuple<'_>) {
        if self.read(before).is_none() {
            return;
        }
        let old = std::mem::take(&mut self.values);
        if self.read(after).is_none() {
            return;
        }
        for &index in &self.chosen {
            let Some(old) = old.get(index).and_then(pointer) else { continue };
            let Some(new) = self.values.get(index).and_then(pointer) else { continue };
            if old.value_id == new.value_id {
                continue;
            }
            if let Some(column) = self.columns.get_mut(index) {
                column.counts.add(Count::RewrittenBytes, u64::from(new.stored_size()));
                column.rewrites.offer(Rewrite { old, new });
            }
        }
    }

    /// Reads the values of a row, offers compressed ones to be tried, and adds up the bytes of those of dropped columns; `None`
    /// if it cannot be read to its end.
    fn read(&mut self, tuple: &HeapTuple<'_>) -> Option<u64> {
        self.values.clear();
        let mut dropped = 0;
        for walked in Walk::with_flavor(tuple, self.desc, self.flavor) {
            let (column, datum) = walked.ok()?;
            let value = StoredValue::new(&datum, column, self.model.page);
            if let Datum::Varlena(Varlena::Compressed { tc_info, stream }) = datum
                && let Some(look) = self.columns.get_mut(self.values.len())
                && look.follows_default
            {
                look.in_row.offer_with(|| InRow { tc_info, stream: stream.to_vec() });
            }
            if !column.dropped {
                self.values.push(value);
                continue;
            }
            // an UPDATE leaves NULL in its place
            self.values.push(StoredValue::NULL);
            if value.form != Form::Missing {
                dropped += value.stored_size.unwrap_or(0) + value.pointer_size;
            }
        }
        Some(dropped)
    }

    /// Counts a row, unless it cannot be read to its end.
    fn row(&mut self, tuple: &HeapTuple<'_>, length: u16) {
        let Some(dropped) = self.read(tuple) else { return };
        self.rows.add(1);
        self.dropped.add(dropped);
        let length = usize::from(length);
        for &index in &self.chosen {
            if let Some(column) = self.columns.get_mut(index) {
                column.value(self.model, index, &self.values, length);
            }
        }
        if let Some((side, index)) = near(self.model, &self.chosen, &self.values, length) {
            let count = match side {
                Side::Above => Count::JustAbove,
                Side::Below => Count::JustBelow,
            };
            if let Some(column) = self.columns.get_mut(index) {
                column.counts.add(count, 1);
            }
        }
        self.targets.row(&self.chosen, &self.values, length);
        self.long_entries();
    }

    /// Counts the row for each column whose value it must compress for an index.
    fn long_entries(&mut self) {
        if self.model.indexes.is_empty() {
            return;
        }
        let values = self.values.iter().enumerate();
        let values: Vec<Incoming> =
            values.map(|(at, value)| self.model.carried(at, value)).collect();
        for &index in &self.chosen {
            if may_be_too_large(self.model, self.model, &[index], &values)
                && let Some(column) = self.columns.get_mut(index)
            {
                column.counts.add(Count::LongEntries, 1);
            }
        }
    }
}

impl ColumnLook {
    fn new(attribute: &Attribute) -> ColumnLook {
        let follows_default =
            !attribute.dropped && attribute.compression.is_none() && attribute.storage.compresses();
        ColumnLook { follows_default, ..ColumnLook::default() }
    }

    /// Counts the value of a row of `length` bytes: that of the column at `index`.
    fn value(&mut self, model: &Table, index: usize, values: &[StoredValue], length: usize) {
        let (Some(value), Some(column)) = (values.get(index), model.columns.get(index)) else {
            return;
        };
        let counts = &mut self.counts;
        let (Some(stored), Some(raw)) = (value.stored_size, value.raw_size) else { return };
        if matches!(value.form, Form::Missing | Form::Custom | Form::Unknown) {
            return;
        }
        counts.add(Count::Stored, stored);
        counts.add(Count::Raw, raw);
        if matches!(value.form, Form::Compressed | Form::ExternalCompressed) {
            counts.add(Count::CompressedRaw, raw);
            if value.method == Some(Method::Pglz) {
                counts.add(Count::PglzRaw, raw);
            }
            if stored as f64 > raw as f64 * IDLE {
                counts.add(Count::IdleRaw, raw);
                counts.add(Count::IdleValues, 1);
            }
        }
        if value.form.is_external() {
            counts.add(Count::OutOfLineValues, 1);
            let is_short = is_short(model.page, stored);
            if is_short {
                counts.add(Count::ShortEnds, 1);
            }
            if let Some(pointer) = pointer(value) {
                if self.follows_default {
                    self.out_of_line.offer(pointer);
                }
                if is_short {
                    self.short_ends.offer(pointer);
                }
                if value.form == Form::External {
                    self.uncompressed.offer(pointer);
                }
            }
        }
        if value.form == Form::External {
            counts.add(Count::UncompressedBytes, stored);
            if stored <= LONGEST {
                counts.add(Count::ShortUncompressedBytes, stored);
            }
        }
        let threshold = model.page.toast_tuple_threshold();
        let in_row = matches!(value.form, Form::Plain | Form::Compressed);
        if column.storage == Storage::Main && in_row && length > threshold {
            counts.add(Count::MainBytes, stored);
        }
        let most = model.page.toast_tuple_target_main();
        let is_most_of_it = stored as usize * 2 > length;
        if column.storage == Storage::Plain && length * 4 > most * 3 && is_most_of_it {
            counts.add(Count::NearPage, 1);
        }
        let as_arrived = matches!(value.form, Form::Short | Form::Plain);
        if value.form == Form::Short || (as_arrived && length <= threshold) {
            return;
        }
        match standing(model, index, values) {
            AgainstSettings::Older => {
                counts.add(Count::OlderBytes, stored);
                counts.add(Count::OlderValues, 1);
            }
            AgainstSettings::Fits => {
                counts.add(Count::FittingBytes, stored);
                counts.add(Count::FittingValues, 1);
            }
            AgainstSettings::AsSet => {}
        }
    }
}

/// A value's pointer, from what is known of it.
fn pointer(value: &StoredValue) -> Option<ToastPointer> {
    let location = value.location?;
    let method = value.method.map_or(0, |method| u32::from(method.id()) << 30);
    Some(ToastPointer {
        raw_size_with_header: i32::try_from(value.raw_size? + 4).ok()?,
        ext_info: u32::try_from(value.stored_size?).ok()? | method,
        value_id: location.value_id,
        toast_relation: location.toast_relation,
        // tables with wider ones have no findings
        id_type: ValueIdType::Oid,
    })
}

/// How a value compares with the column's settings.
enum AgainstSettings {
    AsSet,
    /// Stored as other settings would store it.
    Older,
    /// Out of line, although it would stay in the row.
    Fits,
}

/// What `retoast` would find about a value if the column were converted to its own settings. A value that a choice
/// may have stored individually, such as a compressed value of a column with storage external, counts as stored
/// according to the settings.
fn standing(table: &Table, index: usize, values: &[StoredValue]) -> AgainstSettings {
    let (Some(value), Some(column)) = (values.get(index), table.columns.get(index)) else {
        return AgainstSettings::AsSet;
    };
    let compressed = matches!(value.form, Form::Compressed | Form::ExternalCompressed);
    if compressed && column.storage == Storage::External {
        return AgainstSettings::AsSet;
    }
    // assumed to be incompressible: a value that can be compressed would not be left unchanged either
    if by_model(table, &[index], &[], values, &|_| Some(None)) != Compliance::Differs {
        return AgainstSettings::AsSet;
    }
    let other_method = compressed && value.method.map(MethodChoice::One) != Some(column.method);
    let out_of_line = value.form.is_external();
    if other_method || !out_of_line || column.storage == Storage::Plain {
        AgainstSettings::Older
    } else {
        AgainstSettings::Fits
    }
}

impl Visitor for HeapLook<'_> {
    const WANTS_VALUES: bool = false;

    fn page(&mut self, block: BlockNumber, bytes: &[u8], visible: &impl Visible) {
        self.block(block, bytes, visible);
    }
}
