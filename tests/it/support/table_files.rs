//! Tuples and chunks read from the files of a running server's table, as they stand on disk.

use crate::support::server::Database;
use std::path::{Path, PathBuf};
use toast_format::disk::desc::TupleDesc;
use toast_format::disk::layout::PageSize;
use toast_format::disk::page::{LinePointerState, Page, PageState};
use toast_format::disk::tuple::HeapTuple;
use toast_format::disk::walk::{Datum, Walk};
use toast_format::disk::{BlockNumber, ByteOrder, ValueIdType};
use toast_format::model::visibility::HintBits;
use toastctl::offline::file::RelationFile;
use toastctl::offline::toastfile::ToastFile;

/// What the servers of the tests are built with.
pub(crate) const PAGE: PageSize = PageSize::DEFAULT;

/// Lets a relation, given by an SQL expression, seem so large that it takes this many gigabytes: what is added are
/// empty pages that take no room on disk.
pub(crate) fn seem_large(database: &Database<'_>, relation: &str, gigabytes: u32) {
    use std::os::unix::fs::{MetadataExt, chown};
    let path = database.psql(&format!("CHECKPOINT; SELECT pg_relation_filepath({relation})"));
    let first = database.server().data_dir().join(path);
    let owner = std::fs::metadata(&first).unwrap();
    for segment in 0..gigabytes {
        let path = if segment == 0 {
            first.clone()
        } else {
            format!("{}.{segment}", first.display()).into()
        };
        let file = std::fs::File::options().create(true).append(true).open(&path).unwrap();
        file.set_len(1 << 30).unwrap();
        chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
}

/// A table's files; the table must not change while they are read.
#[derive(Debug)]
pub(crate) struct TableFiles {
    heap: PathBuf,
    toast: PathBuf,
}

impl TableFiles {
    /// The files of `table`, which has a TOAST relation, with all that was committed in them.
    pub(crate) fn of(database: &Database<'_>, table: &str) -> TableFiles {
        let shown = database.psql(&format!(
            "CHECKPOINT;
             SELECT pg_relation_filepath(oid), pg_relation_filepath(reltoastrelid)
             FROM pg_class WHERE oid = '{table}'::regclass"
        ));
        let parts: Vec<&str> = shown.split('|').collect();
        let data = database.server().data_dir();
        TableFiles { heap: data.join(parts[0]), toast: data.join(parts[1]) }
    }

    /// Calls `each` with the values of every tuple, dead or alive, and the chunks.
    pub(crate) fn each_tuple(
        &self,
        desc: &TupleDesc,
        mut each: impl FnMut(&[Datum<'_>], &mut ToastFile<HintBits>, ByteOrder),
    ) {
        let open = |path: &Path| RelationFile::open(path, PAGE).unwrap();
        let toast = open(&self.toast);
        let mut store = ToastFile::open(toast, ValueIdType::Oid, HintBits).unwrap();
        assert_eq!(store.problems().count(), 0);
        let mut heap = open(&self.heap);
        for block in 0..heap.blocks() {
            let bytes = heap.read(BlockNumber(block)).unwrap().unwrap();
            let PageState::Used(page) = Page::parse(bytes).unwrap() else { continue };
            for (_, item) in page.line_pointers() {
                if item.state != LinePointerState::Normal {
                    continue;
                }
                let order = page.byte_order();
                let tuple = HeapTuple::parse(page.tuple_bytes(item).unwrap(), order).unwrap();
                let datums: Vec<Datum<'_>> =
                    Walk::new(&tuple, desc).map(|item| item.unwrap().1).collect();
                each(&datums, &mut store, order);
            }
        }
    }
}
