//! The size of the files that commands rewriting a table would produce (pure). VACUUM FULL, CLUSTER and REPACK
//! (`reform_and_rewrite_tuple` in `heapam_handler.c`, `raw_heap_insert` in `rewriteheap.c`) form each row again
//! without the values of dropped columns, fetch its external values, and let the toaster store the row according to
//! the current settings. They fill pages in order and never return to an earlier one.

use crate::disk::{Attribute, PageSize};
use crate::model::estimate::ratio;
use crate::model::pages::{Fill, Filler, ToastFiller};
use crate::model::policy::VARLENA_HEADER_SIZE;
use crate::model::toast::{Incoming, Operation, Table};
use crate::model::{Form, StoredValue};

/// The size of the smallest compressed datum: 8 bytes of headers, and a few bytes of content.
const LEAST_COMPRESSED: u64 = 13;
/// The maximum compression ratio of any method.
const MOST_COMPRESSED: u64 = 255;
/// The uncertainty about how pages are packed if it is not known which values are compressed: a fraction of the
/// files' size, and a number of pages.
const UNSURE: (f64, f64) = (0.01, 1.0);

/// The number of bytes by which files would be smaller; negative if they would be larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gain {
    /// The least gain, in bytes.
    pub low: i64,
    /// The largest gain, in bytes.
    pub high: i64,
    /// Whether it depends on how well values can be compressed that are not compressed now.
    pub open: bool,
}

/// The files that would be written.
#[derive(Debug, Clone)]
struct Files {
    heap: Filler,
    toast: ToastFiller,
}

impl Files {
    /// The number of pages, rounded up for each file.
    fn pages(&self) -> f64 {
        (self.heap.pages() + self.toast.heap().pages()) as f64
    }

    /// The number of pages, counting the last page of each file only as far as it is filled.
    fn filled(&self) -> f64 {
        self.heap.filled_pages() + self.toast.heap().filled_pages()
    }
}

/// A contiguous part of a table after rewriting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RewrittenPart {
    /// The number of the table's blocks.
    blocks: f64,
    /// The minimum and maximum number of pages that it would take, in the heap and the TOAST relation.
    least: f64,
    most: f64,
}

/// The simulated rewriting of a table.
pub struct Rewritten<'a> {
    table: &'a Table,
    columns: &'a [Attribute],
    /// Columns whose external uncompressed values are known to be incompressible.
    settled: &'a [usize],
    fillfactor: u8,
    least: Files,
    most: Files,
    parts: Vec<RewrittenPart>,
    open: bool,
}

/// A row has a value that cannot be interpreted, or that does not fit on a page.
#[derive(Debug)]
pub struct NotKnown;

impl<'a> Rewritten<'a> {
    /// A simulation for a table with these columns and this `fillfactor` in percent. External values of the columns
    /// `settled` are known to be incompressible.
    pub fn new(
        table: &'a Table,
        columns: &'a [Attribute],
        settled: &'a [usize],
        fillfactor: u8,
    ) -> Rewritten<'a> {
        let empty = empty(table, fillfactor);
        let least = empty.clone();
        let most = empty;
        Rewritten {
            table,
            columns,
            settled,
            fillfactor,
            least,
            most,
            parts: Vec::new(),
            open: false,
        }
    }

    /// Writes a row. `surely` is false if the row may no longer exist at the time of a rewrite. The values of dropped
    /// columns must be NULL.
    pub fn row(&mut self, values: &[StoredValue], surely: bool) -> Result<(), NotKnown> {
        let page = self.table.page;
        let columns = self.columns.iter().zip(values);
        let incoming: Option<Vec<Incoming>> =
            columns.map(|(column, value)| arrives(column, value, page)).collect();
        let incoming = incoming.ok_or(NotKnown)?;
        let mut open = false;
        let most = self.table.toast(&incoming, Operation::Update, &mut |index: usize, _| {
            let is_settled = self.settled.contains(&index)
                && values.get(index).is_some_and(|value| value.form == Form::External);
            open |= !is_settled && values.get(index).and_then(best).is_some();
            None
        });
        let most = most.map_err(|_| NotKnown)?;
        put(&mut self.most, &most);
        if !surely {
            return Ok(());
        }
        if !open {
            put(&mut self.least, &most);
            return Ok(());
        }
        self.open = true;
        let least = self.table.toast(&incoming, Operation::Update, &mut |index: usize, _| {
            let is_settled = self.settled.contains(&index);
            values
                .get(index)
                .filter(|value| !is_settled || value.form != Form::External)
                .and_then(best)
        });
        put(&mut self.least, &least.map_err(|_| NotKnown)?);
        Ok(())
    }

    /// Ends a part of this many blocks; the following rows are from another part of the table.
    pub fn end_part(&mut self, blocks: u32, is_all: bool) {
        let empty = empty(self.table, self.fillfactor);
        let least = std::mem::replace(&mut self.least, empty.clone());
        let most = std::mem::replace(&mut self.most, empty);
        self.parts.push(RewrittenPart {
            blocks: f64::from(blocks),
            // the next rows of the table may fill the last page
            least: if is_all { least.pages() } else { least.filled() },
            most: most.pages(),
        });
    }

    /// By how much files with this total of `pages` pages would be smaller, if the table's own file has this many
    /// blocks.
    pub fn gain(&self, blocks: u32, pages: u64) -> Option<Gain> {
        let blocks_read: Vec<f64> = self.parts.iter().map(|part| part.blocks).collect();
        let read: f64 = blocks_read.iter().sum();
        let total = f64::from(blocks);
        let mut least = 0.0;
        let mut most = 0.0;
        if total > 0.0 {
            let is_all = read >= total;
            let least_pages: Vec<f64> = self.parts.iter().map(|part| part.least).collect();
            let most_pages: Vec<f64> = self.parts.iter().map(|part| part.most).collect();
            least = ratio(&least_pages, &blocks_read, read / total, is_all)?.low * total;
            most = ratio(&most_pages, &blocks_read, read / total, is_all)?.high * total;
        }
        if self.open {
            most = most * (1.0 + UNSURE.0) + UNSURE.1;
        }
        let page = self.table.page.bytes() as f64;
        let low = (pages as f64 - most.ceil().max(0.0)) * page;
        let high = (pages as f64 - least.floor().max(0.0)) * page;
        Some(Gain { low: low as i64, high: high as i64, open: self.open })
    }
}

fn empty(table: &Table, fillfactor: u8) -> Files {
    Files {
        heap: Filler::new(table.page, fillfactor, Fill::Append),
        toast: ToastFiller::new(table.page, Fill::Append),
    }
}

fn put(files: &mut Files, row: &crate::model::toast::Toasted) {
    for &index in &row.moved {
        if let Some(value) = row.values.get(index) {
            files.toast.put(value.stored_size);
        }
    }
    files.heap.put(row.tuple_length as usize);
}

/// The value as it arrives at the toaster; `None` if that is not known.
fn arrives(column: &Attribute, value: &StoredValue, page: PageSize) -> Option<Incoming> {
    let is_known = match value.form {
        Form::Null => true,
        Form::Custom | Form::Unknown => false,
        _ => value.raw_size.is_some() && value.stored_size.is_some(),
    };
    is_known.then(|| Incoming::carried(value, column.length, page).copied())
}

/// The minimum size of a datum to which a value may be compressed; `None` if that would not be smaller than the
/// value.
fn best(value: &StoredValue) -> Option<u32> {
    let raw = value.raw_size?;
    let least = LEAST_COMPRESSED + raw / MOST_COMPRESSED;
    let size = u32::try_from(least).ok()?;
    (least + 2 < raw + u64::from(VARLENA_HEADER_SIZE)).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_known_within_an_interval_and_all_of_it_exactly() {
        let table = Table {
            columns: Vec::new(),
            target: crate::model::settings::TupleTarget::default_for(PageSize::DEFAULT),
            has_toast_relation: true,
            page: PageSize::DEFAULT,
            prices: crate::model::cost::Prices::default(),
            indexes: Vec::new(),
        };
        let mut all = Rewritten::new(&table, &[], &[], 100);
        (0..300).for_each(|_| all.row(&[], true).unwrap());
        all.end_part(10, true);
        // 291 rows without columns fill a page
        assert_eq!(all.gain(10, 12).unwrap(), Gain { low: 81_920, high: 81_920, open: false });
        let mut some = Rewritten::new(&table, &[], &[], 100);
        for rows in [290, 300, 280, 291] {
            (0..rows).for_each(|_| some.row(&[], true).unwrap());
            some.end_part(10, false);
        }
        let gain = some.gain(1000, 1000).unwrap();
        let truth = 900 * 8192;
        assert!(gain.low < truth && truth < gain.high && gain.low > truth / 2, "{gain:?}");
    }
}
