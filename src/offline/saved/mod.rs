//! Reads saved psql output of pageinspect's functions.
//!
//! [`read`] takes the text of one file, which may contain any number of results of `heap_page_items`,
//! `heap_page_item_attrs`, `get_raw_page` and `tuple_data_split`, in psql's default formats (aligned and expanded), as
//! CSV, unaligned with any field separator, or as JSON rows made by the server. The formats are detected. Columns are
//! matched by name, or without a header if they are exactly those of such a function. Other formats of psql (line style
//! unicode, border 0 and 2, wrapped) are errors that name CSV.
//!
//! The text is read line by line, and each row is passed on as soon as it is read.
//!
//! What psql prints around results (titles, timings, echoed commands, command tags) is skipped. A server's error
//! message, and anything that looks like a result but is not one, is an error with its line. An error affects only its
//! row.
//!
//! * `reader`: from lines to results; `text`: what a line is.
//! * `rows`, `expanded`, `json`: one format each, from lines to cells.
//! * `table`: from names to columns, and from cells to values and rows.

mod error;
mod expanded;
mod json;
mod reader;
mod rows;
mod table;
mod text;

use std::fmt;
use std::io;

use toast_format::disk::{BlockNumber, ItemPointer, TransactionId};

pub use error::{SavedError, SavedProblem};
pub use reader::read;

/// A line number, from 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineNumber(pub usize);

impl fmt::Display for LineNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The contents of a result's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowKind {
    /// Line pointers with their tuples: `heap_page_items`, `heap_page_item_attrs`.
    Items,
    /// Whole pages: `get_raw_page`.
    Pages,
    /// Attributes without the headers of their tuples: `tuple_data_split` alone. NULLs (line pointers without a tuple)
    /// are left out.
    Attributes,
}

/// Receives what is found in a text, in the order of the text.
pub trait SavedSink {
    /// A result begins. Its rows follow, except those that could not be read.
    fn begin(&mut self, _kind: RowKind) {}
    /// A row of [`RowKind::Items`].
    fn item(&mut self, item: SavedItem);
    /// A row of [`RowKind::Pages`].
    fn page(&mut self, page: SavedPage);
    /// A row of [`RowKind::Attributes`].
    fn attributes(&mut self, row: SavedAttributes);
    /// Something could not be read. If there is no result at all, there is at least one error.
    fn error(&mut self, error: SavedError);
    /// Whether reading can end here.
    fn has_enough(&self) -> bool {
        false
    }
}

/// A row of `heap_page_items` or `heap_page_item_attrs`.
///
/// A field is `None` if it was NULL or the query did not select the column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SavedItem {
    /// The line where the row begins.
    pub line: LineNumber,
    /// The block, if the query added a column for it (`blkno`, `block`, `p`, …).
    pub block: Option<BlockNumber>,
    /// The line pointer's number, from 1.
    pub lp: Option<u16>,
    /// The offset of the tuple on the page, or the number of the line pointer to which this one redirects.
    pub lp_off: Option<u16>,
    /// The state of the line pointer (`LP_UNUSED` 0, `LP_NORMAL` 1, `LP_REDIRECT` 2, `LP_DEAD` 3).
    pub lp_flags: Option<u8>,
    /// The length of the tuple, including its header.
    pub lp_len: Option<u16>,
    pub t_xmin: Option<TransactionId>,
    /// The deleting or locking transaction or MultiXact.
    pub t_xmax: Option<TransactionId>,
    /// The address of this tuple or of its newer version.
    pub t_ctid: Option<ItemPointer>,
    /// The number of attributes, and flags (`HEAP_NATTS_MASK` and others).
    pub t_infomask2: Option<u16>,
    /// Flags (`HEAP_HASNULL` and others).
    pub t_infomask: Option<u16>,
    /// The length of the tuple's header, including null bitmap and padding.
    pub t_hoff: Option<u8>,
    /// The null bitmap as `0` and `1`, beginning with the first attribute; `0` is NULL.
    pub t_bits: Option<String>,
    /// The tuple's data after its header.
    pub t_data: Option<Vec<u8>>,
    /// The tuple's attributes as stored; `None` in the list is a NULL or missing attribute.
    pub t_attrs: Option<Vec<Option<Vec<u8>>>>,
}

/// A row of `get_raw_page`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedPage {
    /// The line where the row begins.
    pub line: LineNumber,
    /// The block, if the query added a column for it.
    pub block: Option<BlockNumber>,
    /// The page; its length is that of the printed value.
    pub bytes: Vec<u8>,
}

/// A row of `tuple_data_split` alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedAttributes {
    /// The line where the row begins.
    pub line: LineNumber,
    /// The block, if the query added a column for it.
    pub block: Option<BlockNumber>,
    /// The attributes as stored; `None` is a NULL or missing attribute.
    pub attributes: Vec<Option<Vec<u8>>>,
}

/// The longest line outside JSON, expanded record, and JSON row: a page of 32 kB takes 64 kB, an array of bytea of the
/// same size little more, and a row has few of these.
const MOST: usize = 1 << 20;

/// A line without its line break, or a piece of a long one.
struct TextLine<'a> {
    number: LineNumber,
    text: &'a str,
    /// Whether the text begins with the line.
    begins: bool,
    /// Whether a line break follows.
    ended: bool,
    /// Whether the line is longer than [`MOST`].
    is_part: bool,
}

/// Receives rows and errors.
struct SavedOutput<'s> {
    sink: &'s mut dyn SavedSink,
    /// The line being read.
    line: LineNumber,
    results: u64,
    errors: u64,
    first: Option<SavedError>,
    /// Whether the text has results in a format that is not read; this is reported once.
    has_other_format: bool,
}

impl SavedOutput<'_> {
    fn begin(&mut self, kind: RowKind) {
        self.results += 1;
        self.sink.begin(kind);
    }

    fn error(&mut self, error: SavedError) {
        let is_format = matches!(error.problem, error::SavedProblem::OtherFormat(_));
        if is_format && std::mem::replace(&mut self.has_other_format, true) {
            return;
        }
        self.errors += 1;
        self.first.get_or_insert_with(|| error.clone());
        self.sink.error(error);
    }

    fn end(self) -> io::Result<()> {
        match self.first {
            Some(first) if self.results == 0 => {
                Err(io::Error::new(io::ErrorKind::InvalidData, first))
            }
            _ => Ok(()),
        }
    }
}

/// What follows after a line.
enum Next {
    /// The result continues.
    More,
    /// The line ended the result.
    Ended,
    /// The result ended before the line.
    Again,
    /// The rest of the result cannot be read.
    Skip,
}

#[cfg(test)]
mod tests;
