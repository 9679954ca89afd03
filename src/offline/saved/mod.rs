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
//! * `results`: from lines to results; `reader`: the lines; `text`: what a line is.
//! * `rows`, `expanded`, `json`: one format each, from lines to cells.
//! * `table`: from names to columns, and from cells to values and rows.

mod error;
mod expanded;
mod json;
mod reader;
mod results;
mod rows;
mod table;
mod text;

use toast_format::disk::{BlockNumber, ItemPointer, TransactionId};

pub use error::{SavedError, SavedProblem};
pub use results::read;

/// The contents of a result's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
    /// A row. One of [`RowKind::Pages`] has a page, and one of [`RowKind::Attributes`] has attributes.
    fn row(&mut self, kind: RowKind, row: SavedRow);
    /// Something could not be read. If there is no result at all, there is at least one error.
    fn error(&mut self, error: SavedError);
    /// Whether reading can end here.
    fn has_enough(&self) -> bool {
        false
    }
}

/// A row of one of pageinspect's functions.
///
/// A field is `None` if it was NULL or the query did not select the column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SavedRow {
    /// The line where the row begins, from 1.
    pub line: usize,
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
    /// The page; its length is that of the printed value.
    pub page: Option<Vec<u8>>,
}

#[cfg(test)]
mod tests;
