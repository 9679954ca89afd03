//! What the toasters of servers with pluggable TOAST would store of a value and what a small change
//! would cost: estimates from the sizes of a value's parts.
//!
//! * `bytea_toaster` stores a long value uncompressed in chunks of 1,988 bytes and appends without
//!   writing the full chunks again.
//! * `jsonb_toaster` keeps an object's keys, strings and numbers in the row and moves its longest
//!   nested objects and arrays out, each in chunks of its own, until the rest fits.

use crate::disk::layout::PageSize;
use crate::model::pages::chunk_bytes;

/// Bytes of the version that each chunk of `bytea_toaster` begins with.
const VERSION: u32 = 8;
/// Its pointer: custom header, embedded pointer, version and tail, uninitialised word.
const BYTEA_POINTER: u32 = 14 + 32;
/// What `jsonb_toaster` leaves of a container in its object: container header and pointer, aligned.
const MOVED_CONTAINER: u32 = 4 + 20;
/// Its own header around the object.
const JSONB_HEADER: u32 = 24;
/// Pages of the TOAST index that finding a value visits.
const INDEX_PAGES: f64 = 3.0;
/// Bytes appended by the small update that `bytea_toaster` is judged by.
const APPENDED: u32 = 100;

/// What one value, or the sum of many, takes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Taken {
    /// Values.
    pub values: f64,
    /// Bytes in the row.
    pub inline_bytes: f64,
    /// Bytes of chunks on pages.
    pub toast_bytes: f64,
    /// Buffers besides the heap's that reading a key, or the value, visits.
    pub read_buffers: f64,
    /// Bytes that a small update writes.
    pub small_update_bytes: f64,
}

impl Taken {
    /// Adds another's.
    pub fn add(&mut self, other: &Taken) {
        self.values += other.values;
        self.inline_bytes += other.inline_bytes;
        self.toast_bytes += other.toast_bytes;
        self.read_buffers += other.read_buffers;
        self.small_update_bytes += other.small_update_bytes;
    }
}

/// Pages of the TOAST relation that hold the chunks of a value of `stored` bytes.
fn pages(page: PageSize, stored: u32) -> f64 {
    (chunk_bytes(page, stored) as f64 / page.bytes() as f64).ceil()
}

/// A value where a stock server has it: reading and changing it, however little, takes all of it.
pub fn stock(page: PageSize, inline: u32, stored: u32) -> Taken {
    let toast_bytes = chunk_bytes(page, stored) as f64;
    Taken {
        values: 1.0,
        inline_bytes: f64::from(inline),
        toast_bytes,
        read_buffers: if stored > 0 { INDEX_PAGES + pages(page, stored) } else { 0.0 },
        small_update_bytes: f64::from(inline) + toast_bytes,
    }
}

/// A value of `raw` bytes with `bytea_toaster`, in a row that may take `room` bytes of it.
pub fn bytea_toaster(page: PageSize, room: u32, raw: u32) -> Taken {
    if raw <= room {
        return stock(page, raw, 0);
    }
    let data = page.toast_max_chunk_size() - VERSION;
    let chunks = raw.div_ceil(data);
    let stored = raw + chunks * VERSION;
    // The last chunk is written again with what is appended.
    let last = raw % data + APPENDED + VERSION;
    Taken {
        values: 1.0,
        inline_bytes: f64::from(BYTEA_POINTER),
        toast_bytes: chunk_bytes(page, stored) as f64,
        read_buffers: INDEX_PAGES + pages(page, stored),
        small_update_bytes: f64::from(BYTEA_POINTER) + chunk_bytes(page, last) as f64,
    }
}

/// A document with `jsonb_toaster`, averaged over its keys; `None` if the bytes are no object or
/// nothing in it can be moved out. Numbers are those of a little-endian server.
pub fn jsonb_toaster(page: PageSize, room: u32, document: &[u8]) -> Option<Taken> {
    let parts = object_parts(document)?;
    let whole = u32::try_from(document.len()).ok()?;
    if whole <= room || parts.is_empty() {
        return Some(stock(page, whole, 0));
    }
    let mut nested: Vec<u32> =
        parts.iter().filter(|part| part.container).map(|part| part.size).collect();
    nested.sort_unstable();
    let mut inline = whole + JSONB_HEADER;
    let mut moved = Vec::new();
    while inline > room {
        let size = nested.pop().filter(|&size| size > MOVED_CONTAINER)?;
        inline = inline.saturating_sub(size) + MOVED_CONTAINER;
        moved.push(size);
    }
    let keys = parts.len() as f64;
    let external: f64 = moved.iter().map(|&size| chunk_bytes(page, size) as f64).sum();
    let reads: f64 = moved.iter().map(|&size| INDEX_PAGES + pages(page, size)).sum();
    Some(Taken {
        values: 1.0,
        inline_bytes: f64::from(inline),
        toast_bytes: external,
        // A key in the row costs nothing more; each moved one its own chunks.
        read_buffers: reads / keys,
        small_update_bytes: f64::from(inline) + external / keys,
    })
}

/// The value of one key of an object.
struct Part {
    size: u32,
    container: bool,
}

/// The values of an object's keys (`jsonb.h`: header, entries of keys and values, data).
fn object_parts(document: &[u8]) -> Option<Vec<Part>> {
    const OBJECT: u32 = 0x2000_0000;
    const COUNT: u32 = 0x0FFF_FFFF;
    const HAS_OFFSET: u32 = 0x8000_0000;
    let word =
        |at: usize| document.get(at..)?.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes));
    let header = word(0)?;
    let count = (header & COUNT) as usize;
    if header & OBJECT == 0 || count > document.len() / 8 {
        return None;
    }
    let mut parts = Vec::with_capacity(count);
    let mut end = 0u32;
    for index in 0..2 * count {
        let entry = word(4 + index * 4)?;
        let length = entry & COUNT;
        let start = end;
        end = if entry & HAS_OFFSET != 0 { length } else { start.checked_add(length)? };
        if index >= count {
            let container = (entry >> 28) & 7 == 5;
            parts.push(Part { size: end.checked_sub(start)?, container });
        }
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: PageSize = PageSize::DEFAULT;

    /// `{"a": <container of size>, "b": <string of size>}` as far as the entries tell.
    fn object(container: u32, string: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [0x2000_0002, 1, 1, 0x5000_0000 | container, string] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.resize(bytes.len() + 2 + (container + string) as usize, 0);
        bytes
    }

    #[test]
    fn long_containers_move_out_and_strings_stay() {
        let taken = jsonb_toaster(PAGE, 2000, &object(10_000, 500)).unwrap();
        assert_eq!(taken.toast_bytes, chunk_bytes(PAGE, 10_000) as f64);
        assert_eq!(taken.inline_bytes, 22.0 + 500.0 + 24.0 + 24.0);
        // half of the keys cost nothing
        assert_eq!(taken.read_buffers, f64::midpoint(0.0, 3.0 + 2.0));
        assert!(taken.small_update_bytes < stock(PAGE, 18, 10_500).small_update_bytes);
        assert_eq!(jsonb_toaster(PAGE, 2000, &object(100, 10_000)), None);
        let small = jsonb_toaster(PAGE, 2000, &object(100, 50)).unwrap();
        assert_eq!((small.toast_bytes, small.read_buffers), (0.0, 0.0));
    }

    #[test]
    fn an_append_writes_the_last_chunk_only() {
        let taken = bytea_toaster(PAGE, 2000, 100_000_000);
        assert!(taken.small_update_bytes < 2500.0, "{taken:?}");
        assert!(taken.toast_bytes > 100e6 && taken.inline_bytes == 46.0);
        assert_eq!(bytea_toaster(PAGE, 2000, 500).toast_bytes, 0.0);
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_object_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = jsonb_toaster(PAGE, 50, &bytes);
        }
    }
}
