//! What toasters of servers with pluggable TOAST would store for a value, and the cost of reading and changing it,
//! estimated from the value's parts.
//!
//! * `bytea_toaster` stores a long value uncompressed in chunks of 1,988 bytes, and appends without writing full chunks
//!   again.
//! * `jsonb_toaster` splits a document ([`jsonb`]).

pub mod jsonb;

use derive_more::{Add, AddAssign};

use super::pages::chunk_bytes;
use crate::disk::PageSize;
use crate::disk::pointer::TOAST_POINTER_SIZE;

/// The size of the version at the beginning of each chunk of `bytea_toaster`.
const VERSION: u32 = 8;
/// The size of its pointer: custom header, embedded pointer, version and tail, uninitialized word.
const BYTEA_POINTER: u32 = 14 + 32;
/// The size of the small append by which `bytea_toaster` is assessed.
const APPENDED: u32 = 100;

/// What a read visits in the TOAST relation.
#[derive(Debug, Clone, Copy, PartialEq, Default, Add, AddAssign)]
pub struct PageVisits {
    /// Searches in the TOAST index.
    pub lookups: f64,
    /// Pages of the TOAST relation with its chunks.
    pub pages: f64,
}

impl PageVisits {
    /// The visits for a value of `stored` bytes that is found by the index; none if nothing is stored.
    fn new(page: PageSize, stored: u32) -> PageVisits {
        let pages = (chunk_bytes(page, stored) as f64 / page.bytes() as f64).ceil();
        PageVisits { lookups: if stored > 0 { 1.0 } else { 0.0 }, pages }
    }

    /// The number of buffers, if an index search visits this many pages.
    pub fn buffers(self, levels: u32) -> f64 {
        self.lookups * f64::from(levels) + self.pages
    }
}

/// Sizes and costs of one value, or sums over many.
#[derive(Debug, Clone, Copy, PartialEq, Default, Add, AddAssign)]
pub struct Taken {
    /// The number of values.
    pub values: f64,
    /// The number of values that the toaster splits or makes appendable; the others are stored as by a stock server.
    pub divided: f64,
    /// Bytes in the row.
    pub inline_bytes: f64,
    /// Bytes of chunks on pages.
    pub toast_bytes: f64,
    /// The number of chunks in the TOAST relation.
    pub chunks: f64,
    /// Visits to read a small part: a key or an element.
    pub read: PageVisits,
    /// Visits to read the whole value.
    pub read_whole: PageVisits,
    /// Bytes written by a small update.
    pub small_update_bytes: f64,
}

/// The number of chunks of a value of `stored` bytes.
fn chunks(page: PageSize, stored: u32) -> f64 {
    f64::from(stored.div_ceil(page.toast_max_chunk_size()))
}

/// A value stored as by a stock server: every read or change, however small, involves all of it.
pub fn stock(page: PageSize, inline: u32, stored: u32) -> Taken {
    let toast_bytes = chunk_bytes(page, stored) as f64;
    let read = PageVisits::new(page, stored);
    Taken {
        values: 1.0,
        divided: 0.0,
        inline_bytes: f64::from(inline),
        toast_bytes,
        chunks: chunks(page, stored),
        read,
        read_whole: read,
        small_update_bytes: f64::from(inline) + toast_bytes,
    }
}

/// A value of `stored` bytes behind an ordinary pointer.
pub fn ordinary(page: PageSize, stored: u32) -> Taken {
    stock(page, TOAST_POINTER_SIZE as u32, stored)
}

/// A value of `raw` bytes with `bytea_toaster`, in a row with `room` bytes for it.
pub fn bytea_toaster(page: PageSize, room: u32, raw: u32) -> Taken {
    if raw <= room {
        return stock(page, raw, 0);
    }
    let data = page.toast_max_chunk_size() - VERSION;
    let stored = raw.saturating_add(raw.div_ceil(data).saturating_mul(VERSION));
    // The last chunk is written again together with the appended bytes.
    let last = raw % data + APPENDED + VERSION;
    let read = PageVisits::new(page, stored);
    Taken {
        values: 1.0,
        divided: 1.0,
        inline_bytes: f64::from(BYTEA_POINTER),
        toast_bytes: chunk_bytes(page, stored) as f64,
        chunks: f64::from(raw.div_ceil(data)),
        read,
        read_whole: read,
        small_update_bytes: f64::from(BYTEA_POINTER) + chunk_bytes(page, last) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_append_writes_the_last_chunk_only() {
        let page = PageSize::DEFAULT;
        let taken = bytea_toaster(page, 2000, 100_000_000);
        assert!(taken.small_update_bytes < 2500.0, "{taken:?}");
        assert!(taken.toast_bytes > 100e6 && taken.inline_bytes == 46.0);
        assert_eq!(bytea_toaster(page, 2000, 500).toast_bytes, 0.0);
    }

    #[test]
    fn buffers_are_those_of_index_and_chunks() {
        let page = PageSize::DEFAULT;
        // The value has five chunks on two pages, found through a root and a leaf.
        assert_eq!(ordinary(page, 9_000).read.buffers(2), 4.0);
        assert_eq!(stock(page, 500, 0).read.buffers(2), 0.0);
    }
}
