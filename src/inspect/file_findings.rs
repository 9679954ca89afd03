//! Findings about relation files and saved pages: what pages show without a server.
//!
//! A file does not hold the settings of its table (`toast_tuple_target`, `fillfactor`, the server's default method),
//! and hardly any of its columns. These findings depend on none of them: how full the files are, what dead rows and
//! values of dropped columns take, compression that saves hardly any space, and last chunks that are nearly empty.

use super::result::RelationReport;
use crate::command::TableName;
use crate::findings::code::WORTH;
use crate::findings::facts::{ColumnFacts, DamageFacts, Facts, ServerFacts, ToastFacts};
use crate::findings::finding::Findings;
use crate::findings::look::{Count, HeapFacts, HeapLook, RowFacts};
use crate::findings::rules;
use toast_format::codec::Method;
use toast_format::disk::{BlockNumber, CustomFlavor, HeapTuple, Length, PageSize, TupleDesc};
use toast_format::fill::meter::FileFill;
use toast_format::heap::scan::{Visible, Visitor};
use toast_format::model::cost::Prices;
use toast_format::model::toast::{Column, Table};
use toast_format::model::{Interval, TupleTarget, Visibility};

/// The most pages of a file that are examined: 32 MB of 8 kB pages.
pub(super) const PAGES: u32 = 4096;

/// The table of a file as its toaster would see it by default.
pub(super) fn model(desc: &TupleDesc, page: PageSize) -> Table {
    let columns = desc.attributes.iter();
    Table {
        columns: columns.map(|attribute| Column::new(attribute, Method::Pglz)).collect(),
        target: TupleTarget::default_for(page),
        has_toast_relation: true,
        page,
        prices: Prices::default(),
        indexes: Vec::new(),
    }
}

/// Examines some of a heap's pages while they are read.
pub(super) struct HeapPages<'a> {
    desc: &'a TupleDesc,
    page: PageSize,
    look: HeapLook<'a>,
    read: u32,
}

impl<'a> HeapPages<'a> {
    pub(super) fn new(
        desc: &'a TupleDesc,
        flavor: CustomFlavor,
        model: &'a Table,
    ) -> HeapPages<'a> {
        let columns = (0..desc.attributes.len()).filter(|&index| {
            desc.attributes.get(index).is_some_and(|a| !a.dropped && a.length == Length::Varlena)
        });
        let look = HeapLook::new(desc, flavor, model, columns.collect(), 100);
        HeapPages { desc, page: model.page, look, read: 0 }
    }

    /// Takes a tuple of a page whose line pointers arrive one by one.
    pub(super) fn tuple(&mut self, tuple: &HeapTuple<'_>, length: u16, seen: Visibility) {
        if self.read < PAGES {
            self.look.tuple(tuple, length, seen);
        }
    }

    /// All line pointers of a page have arrived.
    pub(super) fn end_page(&mut self) {
        if self.read < PAGES {
            self.look.end_block();
            self.read += 1;
        }
    }

    /// Pages that were examined.
    pub(super) fn read(&self) -> u64 {
        u64::from(self.read)
    }

    /// The findings about a table of this many blocks, of which the examined ones represent all; `None` if none were
    /// examined. `toast`: what the file of its TOAST relation has shown.
    pub(super) fn findings(
        self,
        total: u64,
        toast: Option<FileFill>,
        report: &RelationReport,
    ) -> Option<Findings> {
        if self.read == 0 {
            return None;
        }
        let HeapFacts { rows, heap, .. } = self.look.finish(total, None, None);
        let facts = Facts {
            table: TableName::File(report.read.name.relation.clone()),
            worth: WORTH,
            page: self.page,
            target: None,
            rows: rows.rows,
            toasted: None,
            out_of_line: Interval::default(),
            bytes: heap.bytes + toast.map_or(0, |file| file.bytes),
            columns: columns(self.desc, &rows),
            look: Some(rows),
            heap: Some(heap),
            toast,
            toast_facts: ToastFacts::default(),
            damage: DamageFacts::default(),
            bloated: Vec::new(),
            server: ServerFacts {
                truncates: true,
                compacts_toast: true,
                rebuilds_indexes: true,
                lz4: false,
                has_toasters: report.columns.iter().any(|column| !column.toasters.is_empty()),
            },
            horizon: None,
            counters: None,
            measured_indexes: 0,
            settings_are_known: false,
        };
        Some(rules::findings(&facts))
    }
}

fn columns(desc: &TupleDesc, rows: &RowFacts) -> Vec<ColumnFacts> {
    let mut facts = Vec::new();
    for (index, attribute) in desc.attributes.iter().enumerate() {
        if attribute.dropped || attribute.length != Length::Varlena {
            continue;
        }
        let column = rows.columns.get(index);
        let pglz = column.map_or(0.0, |column| column.of(Count::PglzRaw).estimate);
        let compressed = column.map_or(0.0, |column| column.of(Count::CompressedRaw).estimate);
        let method = if pglz * 2.0 > compressed { Method::Pglz } else { Method::Lz4 };
        facts.push(ColumnFacts::new(index, attribute, method));
    }
    facts
}

impl Visitor for HeapPages<'_> {
    const WANTS_VALUES: bool = false;

    /// Examines it, unless it has another size or enough were examined.
    fn page(&mut self, block: BlockNumber, bytes: &[u8], visible: &impl Visible) {
        if self.read < PAGES && bytes.len() == self.page.bytes() {
            self.look.block(block, bytes, visible);
            self.read += 1;
        }
    }
}
