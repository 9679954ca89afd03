//! A relation file that is to be read, with what has to be known for it.
//!
//! Whether its cluster has page checksums is said by the control file (`pg_control.h`), whose layout is that of
//! PostgreSQL 13 to 18:
//!
//! ```text
//!   8 pg_control_version 4, 1300 to 1800
//!  16 state 4         1: shut down
//!  64 nextXid 8       of the last checkpoint
//! 208 floatFormat 8   1234567.0: the layout is the one that is known
//! 216 blcksz 4
//! 252 data_checksum_version 4, 0 without checksums
//! ```

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::file::{FileError, RelationFile};
use super::xact::PgXact;
use crate::disk::custom::CustomFlavor;
use crate::disk::desc::TupleDesc;
use crate::disk::layout::PageSize;
use crate::disk::page::wrong_checksum;
use crate::disk::{ByteOrder, TransactionId};
use crate::heap::problem::{Place, Problem};
use crate::heap::progress::Progress;
use crate::heap::sample::{Sample, Sampling};
use crate::heap::scan::Visitor;

/// `FLOATFORMAT_VALUE`.
const FLOAT_FORMAT: f64 = 1_234_567.0;
const VERSION_AT: usize = 8;
const STATE_AT: usize = 16;
/// `DB_SHUTDOWNED`.
const SHUT_DOWN: u32 = 1;
const NEXT_XID_AT: usize = 64;
const FLOAT_FORMAT_AT: usize = 208;
const BLOCK_SIZE_AT: usize = 216;
const CHECKSUMS_AT: usize = 252;
/// Bytes that are read.
const LENGTH: usize = 256;

/// What the control file says of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// Whether pages have checksums.
    pub has_checksums: bool,
    /// The next transaction ID, if the server was shut down.
    pub next_xid: Option<TransactionId>,
}

/// The control file of the cluster that `relation_file` stands in: `global/pg_control` is looked
/// for in the directories above. `None` where it is not found or not understood.
pub fn control(relation_file: &Path, page: PageSize) -> Option<Control> {
    let relation_file = std::path::absolute(relation_file).ok()?;
    // base/DATABASE/FILE, global/FILE, pg_tblspc/OID/VERSION/DATABASE/FILE
    let above = relation_file.ancestors().skip(1).take(6);
    let files = above.map(|dir| dir.join("global").join("pg_control"));
    files.filter_map(|path| read(&path)).find_map(|bytes| understood(&bytes, page))
}

fn read(path: &Path) -> Option<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    let mut file = File::open(path).ok().filter(|f| f.metadata().is_ok_and(|m| m.is_file()))?;
    file.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

fn understood(bytes: &[u8], page: PageSize) -> Option<Control> {
    [ByteOrder::Little, ByteOrder::Big].into_iter().find_map(|order| {
        let word = |at| order.u32(bytes, at);
        let (first, second) = (word(FLOAT_FORMAT_AT)?, word(FLOAT_FORMAT_AT + 4)?);
        let (low, high) = match order {
            ByteOrder::Little => (first, second),
            ByteOrder::Big => (second, first),
        };
        let float = f64::from_bits(u64::from(high) << 32 | u64::from(low));
        let known =
            float == FLOAT_FORMAT && word(BLOCK_SIZE_AT).map(|b| b as usize) == Some(page.bytes());
        // the low half of FullTransactionId
        let next_xid = word(NEXT_XID_AT + if order == ByteOrder::Big { 4 } else { 0 })?;
        let is_settled = (1300..=1800).contains(&word(VERSION_AT)?) && word(STATE_AT)? == SHUT_DOWN;
        known.then_some(Control {
            has_checksums: word(CHECKSUMS_AT)? != 0,
            next_xid: is_settled.then_some(TransactionId(next_xid)),
        })
    })
}

/// A relation file to read.
#[derive(Debug, Clone, Copy)]
pub struct FileTarget<'a> {
    /// The heap's main fork, first segment.
    pub heap: &'a Path,
    /// The TOAST relation's main fork.
    pub toast: Option<&'a Path>,
    /// The heap's columns.
    pub desc: &'a TupleDesc,
    /// Bytes of a page.
    pub page_size: PageSize,
    /// The layout of custom pointers.
    pub flavor: CustomFlavor,
    /// Commit status of transactions, where hint bits do not tell.
    pub xact: Option<&'a PgXact>,
    /// Whether page checksums are verified; `None`: if the cluster's control file says that there are any.
    pub checksums: Option<bool>,
    /// Which blocks of the heap are read; `None` for all. Without effect if the TOAST relation is
    /// read, for then all of it counts.
    pub sampling: Option<Sampling>,
}

impl FileTarget<'_> {
    /// Whether page checksums are verified.
    pub fn verifies_checksums(&self) -> bool {
        let detected = || control(self.heap, self.page_size).is_some_and(|c| c.has_checksums);
        self.checksums.unwrap_or_else(detected)
    }

    /// The next transaction ID, if the control file of a server that was shut down says it.
    pub(crate) fn next_xid(&self) -> Option<TransactionId> {
        control(self.heap, self.page_size)?.next_xid
    }

    /// Gives the pages of these blocks of one of its files to a visitor, and what is wrong with them and with the file.
    ///
    /// # Errors
    /// Where the file's pages have another size.
    pub(crate) fn visit<V: Visitor>(
        &self,
        file: &mut RelationFile,
        blocks: Sample,
        progress: &dyn Progress,
        visitor: &mut V,
    ) -> Result<(), FileError> {
        let name = file.path().display().to_string();
        let checksums = self.verifies_checksums();
        let mut page = vec![0; self.page_size.bytes()];
        progress.begin(&name, u64::from(blocks.chosen()));
        for (index, block) in blocks.enumerate() {
            let place = Place { block: Some(block), ..Place::of(name.as_str()) };
            match file.read(block, &mut page) {
                Ok(true) => {
                    if index == 0 {
                        check_page_size(&page, &name)?;
                    }
                    if let Some(wrong) = checksums.then(|| wrong_checksum(block, &page)).flatten() {
                        visitor.problem(Problem { place, message: wrong.to_string() });
                    }
                    visitor.page(block, &page, &self.xact);
                }
                Ok(false) => break,
                Err(error) => visitor.problem(Problem { place, message: error.to_string() }),
            }
            progress.advance(1);
        }
        progress.end();
        for error in file.truncated() {
            let place = Place::of(name.as_str());
            visitor.problem(Problem { place, message: error.to_string() });
        }
        Ok(())
    }
}

/// The size that a page's header names (`pd_pagesize_version`, layout version 4).
fn own_size(page: &[u8]) -> Option<PageSize> {
    const SIZE_WORD: usize = 18;
    [ByteOrder::Little, ByteOrder::Big].into_iter().find_map(|order| {
        let word = order.u16(page, SIZE_WORD)?;
        PageSize::new(usize::from(word & 0xFF00)).filter(|_| word & 0x00FF == 4)
    })
}

/// Tells a file of other pages from a damaged one, by its first page.
pub(crate) fn check_page_size(page: &[u8], path: &str) -> Result<(), FileError> {
    match own_size(page).map(PageSize::bytes).filter(|&got| got != page.len()) {
        Some(got) => Err(FileError::PageSize { path: path.to_owned(), got, expected: page.len() }),
        None => Ok(()),
    }
}

/// Bytes of a file that its page size is taken from.
const BEGINNING: u64 = 256 << 10;

/// The page size of a relation file: the size that covers most of its beginning with pages of just this size. 8192 bytes
/// if there are none, or if the file cannot be read; the error is then reported by the next reader.
pub fn page_size(relation_file: &Path) -> PageSize {
    let mut bytes = Vec::new();
    let read = File::open(relation_file)
        .and_then(|file| file.take(BEGINNING).read_to_end(&mut bytes).map(drop));
    // what was read before an error counts too
    drop(read);
    let agreeing = |size: &PageSize| {
        let pages = bytes.chunks_exact(size.bytes());
        pages.filter(|page| own_size(page) == Some(*size)).count() * size.bytes()
    };
    let sizes = [1024, 2048, 4096, 16384, 32768, 8192].into_iter().filter_map(PageSize::new);
    sizes.max_by_key(agreeing).unwrap_or(PageSize::DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_size_is_what_most_pages_say() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1");
        assert_eq!(page_size(&path), PageSize::DEFAULT);
        for size in [1024_u16, 8192, 16384, 32768] {
            let page = |size: u16| {
                let mut page = vec![0; size.into()];
                page[18..20].copy_from_slice(&(size | 4).to_le_bytes());
                page
            };
            // the first page is empty, the second damaged
            let zeroes = vec![0; size.into()];
            let mut wrong = page(size);
            wrong[18..20].copy_from_slice(&(2048_u16 | 4).to_le_bytes());
            let file = [zeroes.clone(), wrong, page(size), page(size)].concat();
            std::fs::write(&path, file).unwrap();
            assert_eq!(page_size(&path).bytes(), usize::from(size));
            std::fs::write(&path, zeroes).unwrap();
            assert_eq!(page_size(&path), PageSize::DEFAULT);
        }
    }

    #[test]
    fn the_control_file_is_found_above_the_relation() {
        let dir = tempfile::tempdir().unwrap();
        let relation = dir.path().join("base").join("5").join("16384");
        std::fs::create_dir_all(relation.parent().unwrap()).unwrap();
        std::fs::create_dir_all(dir.path().join("global")).unwrap();
        let has_checksums =
            |relation: &Path, page| control(relation, page).map(|control| control.has_checksums);
        assert_eq!(has_checksums(&relation, PageSize::DEFAULT), None);
        let mut control = vec![0; 8192];
        control[208..216].copy_from_slice(&FLOAT_FORMAT.to_le_bytes());
        control[216..220].copy_from_slice(&8192u32.to_le_bytes());
        let path = dir.path().join("global").join("pg_control");
        std::fs::write(&path, &control).unwrap();
        assert_eq!(has_checksums(&relation, PageSize::DEFAULT), Some(false));
        control[252] = 1;
        std::fs::write(&path, &control).unwrap();
        assert_eq!(has_checksums(&relation, PageSize::DEFAULT), Some(true));
        // the cluster is another one
        assert_eq!(has_checksums(&relation, PageSize::new(4096).unwrap()), None);
    }
}
