//! Values in a TOAST relation that no row of the table refers to.
//!
//! Servers with pluggable TOAST leave such values behind when a row is deleted or its value
//! replaced; on a stock server there should be none.

use super::result::OrphanReport;
use crate::offline::toastfile::ToastFile;
use toast_format::disk::{Datum, ItemPointer, Oid, PageSize, ValueId, Varlena};
use toast_format::heap::scan::{Merge, TupleValue, Visitor};
use toast_format::model::Toasters;
use toast_format::model::toaster::catalog::Handler;
use toast_format::model::toaster::chunks::ChunkStore;
use toast_format::model::toaster::describe::{PointerKind, describe};
use toast_format::model::visibility::Transactions;

/// The most references that are remembered: 4 bytes each.
const MAX_REFERENCES: usize = 1 << 28;

/// Collects what rows refer to.
#[derive(Debug, Clone)]
pub struct References {
    page: PageSize,
    value_ids: Vec<u64>,
    /// Addresses of chunks that have a `chunk_id` of their own.
    tids: Vec<(Oid, ItemPointer)>,
    /// Why the references are incomplete.
    incomplete: Option<&'static str>,
}

impl References {
    /// For a relation with pages of this size.
    pub fn new(page: PageSize) -> References {
        References { page, value_ids: Vec::new(), tids: Vec::new(), incomplete: None }
    }

    /// Records what a value refers to.
    fn note(&mut self, datum: &Datum<'_>) {
        if self.value_ids.len() + self.tids.len() > MAX_REFERENCES {
            self.incomplete.get_or_insert("too many values are out of line");
            return;
        }
        match datum {
            Datum::Varlena(Varlena::External(pointer)) => self.value_ids.push(pointer.value_id.0),
            Datum::Varlena(Varlena::Custom(pointer)) => {
                let Ok(description) = describe(pointer, &Toasters::by_bytes(), self.page) else {
                    self.incomplete.get_or_insert("a custom pointer is damaged");
                    return;
                };
                if description.kind == PointerKind::HeadOnly {
                    self.incomplete.get_or_insert("custom pointers do not name their chunks");
                } else if description.toaster.handler == Handler::Unknown {
                    self.incomplete.get_or_insert("some pointers are of an unknown toaster");
                }
                for part in description.parts {
                    match (part.value, part.relation) {
                        (Some(value), _) => self.value_ids.push(value.value_id.0),
                        (None, Some(relation)) => {
                            self.tids.extend(part.tids.iter().map(|&tid| (relation, tid)));
                        }
                        (None, None) => {}
                    }
                }
            }
            Datum::Varlena(Varlena::Unknown { .. }) => {
                self.incomplete.get_or_insert("some pointers are of unknown kind");
            }
            _ => {}
        }
    }

    /// The values of `store` that nothing refers to; the reason if that is not known.
    ///
    /// `unread`: whether there was anything in the table that could not be read.
    pub fn orphans<T: Transactions>(
        self,
        store: &mut ToastFile<T>,
        unread: bool,
    ) -> Result<OrphanReport, &'static str> {
        let known = self.known(store, unread)?;
        let mut report = OrphanReport::default();
        for value in store.values().filter(|value| value.live > 0) {
            known.count(value.value_id, value.live, value.live_bytes, &mut report);
        }
        Ok(report)
    }

    /// All values that are referred to, including those of which only the addresses of chunks are known; the reason
    /// if they are not all known.
    pub fn known(
        mut self,
        store: &mut impl ChunkStore,
        unread: bool,
    ) -> Result<Known, &'static str> {
        if unread {
            self.incomplete.get_or_insert("part of the table could not be read");
        }
        for (relation, tid) in std::mem::take(&mut self.tids) {
            match store.chunk_at(relation, tid) {
                Ok(Some(chunk)) => self.value_ids.push(chunk.value_id.0),
                Ok(None) | Err(_) => {
                    self.incomplete.get_or_insert("an address points to no chunk");
                }
            }
        }
        if let Some(reason) = self.incomplete {
            return Err(reason);
        }
        self.value_ids.sort_unstable();
        Ok(Known(self.value_ids))
    }
}

/// All values that a table refers to, in order.
#[derive(Debug)]
pub struct Known(Vec<u64>);

impl Known {
    /// Counts a value of the TOAST relation in `report` if nothing refers to it.
    pub fn count(&self, value_id: ValueId, chunks: u64, bytes: u64, report: &mut OrphanReport) {
        if self.0.binary_search(&value_id.0).is_err() {
            report.values += 1;
            report.chunks += chunks;
            report.bytes += bytes;
        }
    }
}

impl Merge for References {
    fn merge(&mut self, other: References) {
        self.value_ids.extend(other.value_ids);
        self.tids.extend(other.tids);
        self.incomplete = self.incomplete.or(other.incomplete);
    }
}

impl Visitor for References {
    const WANTS_VALUES: bool = true;

    fn value(&mut self, value: &TupleValue<'_>) {
        self.note(&value.datum);
    }
}
