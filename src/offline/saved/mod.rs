//! Saved pageinspect output: what psql printed for pageinspect's functions, read back.
//!
//! [`parse`] takes the text of one file, which may hold any number of results of
//! `heap_page_items`, `heap_page_item_attrs`, `get_raw_page` and `tuple_data_split`, each in any
//! of psql's forms: aligned (any border and line style, wrapped too), expanded, unaligned with
//! any field separator, CSV, and JSON rows made by the server. The forms are told apart by
//! themselves; columns are matched by name, or without a header by count and shape.
//!
//! What psql prints around results (titles, timings, echoed commands, command tags) is passed
//! over; a server's error message, and everything that looks like a result and is none, is an
//! error with its line. An error stops nothing but its row.
//!
//! * `lines`: bytes to lines; `chatter`: what psql prints around results.
//! * `aligned`, `expanded`, `delimited`, `json`: one form each, lines to cells.
//! * `columns`: names to columns, cells to rows; `value`: one cell to one value.

mod aligned;
mod chatter;
mod columns;
mod delimited;
mod error;
mod expanded;
mod json;
mod lines;
mod reader;
mod value;

use std::fmt;

use crate::disk::{BlockNumber, ItemPointer, Oid, TransactionId};

pub use error::SavedError;

/// A line of the text, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// All that was found in a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParseOutcome {
    /// The results in the order of the text, without the rows that could not be read.
    pub results: Vec<SavedResult>,
    /// What could not be read, in the order of the text. Not empty if there is no result at all.
    pub errors: Vec<SavedError>,
}

/// One result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedResult {
    /// Where it begins.
    pub line: LineNumber,
    /// How it was printed.
    pub form: Form,
    /// Its rows.
    pub rows: SavedRows,
}

/// The rows of one result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SavedRows {
    /// Line pointers with their tuples: `heap_page_items`, `heap_page_item_attrs`.
    Items(Vec<SavedItem>),
    /// Whole pages: `get_raw_page`.
    Pages(Vec<SavedPage>),
    /// Attributes without their tuple's header: `tuple_data_split` alone. Its NULLs (line
    /// pointers without a tuple) are left out.
    Attributes(Vec<SavedAttributes>),
}

/// A row of `heap_page_items` or `heap_page_item_attrs`.
///
/// A field is `None` where the server gave NULL and where the query left the column out.
#[derive(Debug, Clone, PartialEq, Eq)]
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
/// Memory stays at a small multiple of the text.
pub fn parse(text: &[u8]) -> ParseOutcome {
    let text = lines::decode(text);
    reader::read(&text)
}

#[cfg(test)]
mod tests;
