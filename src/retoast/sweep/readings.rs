//! Values of pluggable toasters. Servers misread some of them, and an UPDATE would store what was misread. A row is
//! therefore re-toasted only if the server reads its values as they are reassembled here: the scan reassembles them,
//! and the batch compares them while it has the row locked, in the version that the scan has seen. Before the commit,
//! it compares what was stored.
//!
//! A server may also crash when it reads such a value, which ends all its sessions. The rows that it is reading are
//! recorded, so that the run ends with their names instead of reading them again.

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

use parking_lot::{Mutex, MutexGuard};

use crate::retoast::preflight::ready::PreparedTable;
use crate::server::{Client, LiveResult, Server, toasters};
use crate::value::reading::ComparedType;
use toast_format::disk::ItemPointer;
use toast_format::model::Toasters;
use toast_format::model::toaster::describe::KnownFailure;

/// A column that an UPDATE reads.
#[derive(Debug)]
pub(super) struct ReadColumn {
    pub(super) index: usize,
    pub(super) name: String,
    pub(super) type_name: String,
    /// `None` if its values cannot be compared.
    pub(super) compared: Option<ComparedType>,
}

/// What is compared in a table.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) toasters: Toasters,
    columns: Vec<ReadColumn>,
}

impl Comparison {
    pub(super) fn column(&self, index: usize) -> Option<&ReadColumn> {
        self.columns.iter().find(|column| column.index == index)
    }

    /// Whether an UPDATE reads this column.
    pub(super) fn reads(&self, index: usize) -> bool {
        self.column(index).is_some()
    }
}

/// The md5 of each value of a pluggable toaster in a row, by the index of its column.
#[derive(Debug, Clone)]
pub(super) struct OwnReading {
    pub(super) xmin: u32,
    pub(super) values: BTreeMap<usize, String>,
}

#[derive(Debug, Default)]
pub(super) struct Known {
    /// What is reassembled of the rows of the current scan.
    pub(super) own: HashMap<ItemPointer, OwnReading>,
    /// Row versions that the server misreads, and why each is left.
    pub(super) misread: HashMap<(ItemPointer, u32), String>,
    /// The rows whose values the server is reading, by job.
    pub(super) under_way: BTreeMap<usize, Vec<String>>,
}

/// What is known of a table's values of pluggable toasters, for all sessions of a conversion.
#[derive(Debug, Default)]
pub(super) struct ReassembledValues {
    comparison: OnceLock<Comparison>,
    known: Mutex<Known>,
}

impl ReassembledValues {
    /// What is compared; `None` if nothing is.
    pub(super) fn comparison(&self) -> Option<&Comparison> {
        self.comparison.get()
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }

    /// Determines what is compared: the columns that an UPDATE reads.
    pub(super) async fn prepare(
        &self,
        client: &Client,
        server: &Server,
        ready: &PreparedTable,
    ) -> LiveResult<()> {
        if self.comparison.get().is_some() {
            return Ok(());
        }
        let Some(toasters) = toasters::ask(client, server).await? else { return Ok(()) };
        let set = ready.set_columns();
        let mut columns = Vec::new();
        for column in toasters::columns(client, Some(ready.relation.oid)).await? {
            let is_read = set.contains(&column.name.as_str())
                || ready.targets.iter().any(|target| target.index == column.index);
            if is_read && !column.dropped {
                columns.push(ReadColumn {
                    index: column.index,
                    compared: ComparedType::new(column.base_type),
                    name: column.name,
                    type_name: column.type_name,
                });
            }
        }
        let _ = self.comparison.set(Comparison { toasters, columns });
        Ok(())
    }

    /// Removes what belongs to a scan.
    pub(super) fn clear(&self) {
        self.known().own.clear();
    }

    /// Whether this version of a row was seen by the scan.
    pub(super) fn own(&self, ctid: ItemPointer, xmin: u32) -> Option<OwnReading> {
        self.known().own.get(&ctid).filter(|own| own.xmin == xmin).cloned()
    }

    /// Records which rows the server is about to read for a job.
    pub(super) fn reads(&self, job: usize, rows: Vec<String>) {
        self.known().under_way.insert(job, rows);
    }

    /// Records that a job's statements have ended.
    pub(super) fn has_read(&self, job: usize) {
        self.known().under_way.remove(&job);
    }
}

/// Why a row is left whose value the server is known to misread, by its pointer.
pub(super) fn left(column: &str, failure: KnownFailure) -> String {
    match failure {
        KnownFailure::ChangedInPlace => format!(
            "column \"{column}\" was changed in place, and the server reads it in two ways: each key as it is now, the \
             whole value as it was before"
        ),
        KnownFailure::CompressedChunks => format!(
            "column \"{column}\" is compressed chunk by chunk: the server misreads some of these values, and crashes at some"
        ),
        KnownFailure::CompressedTwice => format!(
            "column \"{column}\" is compressed as a whole and chunk by chunk: the server fails or crashes when it \
             reads the value"
        ),
    }
}

/// What to do about rows that are left. No statement that reads such a value is printed: some lose a change, and
/// where two fields were changed, or chunks are compressed, some crash the server.
pub(super) fn hint_for_left(table: &str) -> String {
    format!(
        "values that the server misreads are left as they are stored: toastctl value {table} --reassemble=DIR saves \
         them as toastctl reads them. No SQL is printed for them: on these servers, statements that read such values \
         return what they were before a change, or crash the server. To store one of them again, UPDATE the row with \
         the saved value, and run the command again"
    )
}
