//! Saved pageinspect output: what psql printed for pageinspect's functions, read back.
//!
//! [`read`] takes the text of one file, which may hold any number of results of
//! `heap_page_items`, `heap_page_item_attrs`, `get_raw_page` and `tuple_data_split`, each in any
//! of psql's forms: aligned (any border and line style, wrapped too), expanded, unaligned with
//! any field separator, CSV, and JSON rows made by the server. The forms are told apart by
//! themselves; columns are matched by name, or without a header by count and shape.
//!
//! The text is read as a stream: a part of it is at hand at a time, and each row is handed on as soon as
//! it is read.
//!
//! What psql prints around results (titles, timings, echoed commands, command tags) is passed
//! over; a server's error message, and everything that looks like a result and is none, is an
//! error with its line. An error stops nothing but its row.
//!
//! * `stream`: bytes to text, of which a part is at hand.
//! * `reader`: lines to results, of which one may have begun in an earlier part; `lines`: what all forms are read from,
//!   and where they give their rows and errors.
//! * `chatter`: what psql prints around results.
//! * `aligned`, `expanded`, `delimited`, `json`: one form each, lines to cells.
//! * `table`: names to columns, cells to values and rows.

mod aligned;
mod chatter;
mod delimited;
mod error;
mod expanded;
mod json;
mod lines;
mod reader;
mod stream;
mod table;

use std::fmt;
use std::io::{self, Read};

use crate::disk::{BlockNumber, ItemPointer, Oid, TransactionId};

pub use error::SavedError;

/// A line of the text, counted from 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineNumber(pub usize);

impl fmt::Display for LineNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The form in which a result was printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `\pset format aligned` or `wrapped`.
    Aligned,
    /// `\x`, in any format.
    Expanded,
    /// `\pset format unaligned`.
    Unaligned,
    /// `\pset format csv`.
    Csv,
    /// Rows made JSON by the server (`json_agg`, `row_to_json`, …).
    Json,
}

/// What the rows of a result are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Line pointers with their tuples: `heap_page_items`, `heap_page_item_attrs`.
    Items,
    /// Whole pages: `get_raw_page`.
    Pages,
    /// Attributes without their tuple's header: `tuple_data_split` alone. Its NULLs (line
    /// pointers without a tuple) are left out.
    Attributes,
}

/// Takes what is found in a text, in the order of the text.
pub trait SavedSink {
    /// A result begins. Its rows follow, without those that could not be read.
    fn begin(&mut self, _line: LineNumber, _form: Form, _kind: Kind) {}
    /// A row of [`Kind::Items`].
    fn item(&mut self, item: SavedItem);
    /// A row of [`Kind::Pages`].
    fn page(&mut self, page: SavedPage);
    /// A row of [`Kind::Attributes`].
    fn attributes(&mut self, row: SavedAttributes);
    /// Something that could not be read. There is one if there is no result at all.
    fn error(&mut self, error: SavedError);
    /// Whether reading may end here.
    fn has_enough(&self) -> bool {
        false
    }
}

/// A row of `heap_page_items` or `heap_page_item_attrs`.
///
/// A field is `None` where the server gave NULL and where the query left the column out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SavedItem {
    /// Where the row begins.
    pub line: LineNumber,
    /// The block, if the query added a column for it (`blkno`, `block`, `p`, …).
    pub block: Option<BlockNumber>,
    /// Number of the line pointer, from 1.
    pub lp: Option<u16>,
    /// Offset of the tuple in the page, or the line pointer redirected to.
    pub lp_off: Option<u16>,
    /// State of the line pointer (`LP_UNUSED` 0, `LP_NORMAL` 1, `LP_REDIRECT` 2, `LP_DEAD` 3).
    pub lp_flags: Option<u8>,
    /// Bytes of the tuple with its header.
    pub lp_len: Option<u16>,
    /// Inserting transaction.
    pub t_xmin: Option<TransactionId>,
    /// Deleting or locking transaction or MultiXact.
    pub t_xmax: Option<TransactionId>,
    /// `t_cid` or `t_xvac`, as the bits of the integer printed.
    pub t_field3: Option<u32>,
    /// This tuple's address or that of its newer version.
    pub t_ctid: Option<ItemPointer>,
    /// Number of attributes and flags (`HEAP_NATTS_MASK` and others).
    pub t_infomask2: Option<u16>,
    /// Flags (`HEAP_HASNULL` and others).
    pub t_infomask: Option<u16>,
    /// Bytes of the tuple's header, null bitmap and padding included.
    pub t_hoff: Option<u8>,
    /// The null bitmap as `0` and `1`, first attribute first; `0` is NULL.
    pub t_bits: Option<String>,
    /// The row's OID, in tables of versions before 12.
    pub t_oid: Option<Oid>,
    /// The tuple behind its header.
    pub t_data: Option<Vec<u8>>,
    /// The tuple's attributes as stored; `None` in the list is a NULL or missing attribute.
    pub t_attrs: Option<Vec<Option<Vec<u8>>>>,
}

impl SavedItem {
    /// A row of which nothing is known yet.
    pub(crate) fn new(line: LineNumber) -> SavedItem {
        SavedItem { line, ..SavedItem::default() }
    }
}

/// A row of `get_raw_page`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedPage {
    /// Where the row begins.
    pub line: LineNumber,
    /// The block, if the query added a column for it.
    pub block: Option<BlockNumber>,
    /// The page; its size is what was printed.
    pub bytes: Vec<u8>,
}

/// A row of `tuple_data_split` alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedAttributes {
    /// Where the row begins.
    pub line: LineNumber,
    /// The block, if the query added a column for it.
    pub block: Option<BlockNumber>,
    /// The attributes as stored; `None` is a NULL or missing attribute.
    pub attributes: Vec<Option<Vec<u8>>>,
}

/// Reads all results of a text, in UTF-8 or (as PowerShell redirects) UTF-16 with a mark.
///
/// Memory does not grow with the text: a row or a line outside JSON that is longer than any of
/// pageinspect's is an error, and passed over.
///
/// # Errors
/// Where the text cannot be read at all. If it cannot be read further, `sink` is told of it.
pub fn read(text: impl Read, sink: &mut dyn SavedSink) -> io::Result<()> {
    stream::read(text, stream::Sizes::default(), sink)
}

#[cfg(test)]
mod tests;
