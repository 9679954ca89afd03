//! A relation file that is to be read, with what has to be known for it.

use std::path::Path;

use super::control;
use super::file::FileError;
use super::xact::PgXact;
use crate::disk::ByteOrder;
use crate::disk::custom::CustomFlavor;
use crate::disk::desc::TupleDesc;
use crate::disk::layout::PageSize;
use crate::heap::sample::Sampling;

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
        let detected = || control::has_checksums(self.heap, self.page_size).unwrap_or(false);
        self.checksums.unwrap_or_else(detected)
    }
}

/// Tells a file of other pages from a damaged one: the first page's own word on its size.
pub(crate) fn check_page_size(page: &[u8], path: &str) -> Result<(), FileError> {
    const SIZE_WORD: usize = 18;
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let word = order.u16(page, SIZE_WORD).unwrap_or(0);
        let got = usize::from(word & 0xFF00);
        if word & 0x00FF == 4 && got != page.len() && PageSize::new(got).is_some() {
            return Err(FileError::PageSize { path: path.to_owned(), got, expected: page.len() });
        }
    }
    Ok(())
}
