//! Sizes that follow from the page size (`heaptoast.h`, `bufpage.h`).

use super::{ValueIdType, max_align};

/// Bytes of a page header (`SizeOfPageHeaderData`).
pub const PAGE_HEADER_SIZE: usize = 24;
/// Bytes of a line pointer (`ItemIdData`).
pub const LINE_POINTER_SIZE: usize = 4;
/// Bytes of a heap tuple header before the null bitmap (`SizeofHeapTupleHeader`).
pub const TUPLE_HEADER_SIZE: usize = 23;

/// A page size that PostgreSQL can be built with: 1, 2, 4, 8, 16 or 32 kB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageSize(u16);

impl Default for PageSize {
    fn default() -> Self {
        PageSize(8192)
    }
}

impl PageSize {
    /// The page size of nearly every server, 8 kB.
    pub const DEFAULT: PageSize = PageSize(8192);

    /// `None` unless `bytes` is a page size that a server can have.
    pub fn new(bytes: usize) -> Option<PageSize> {
        match bytes {
            1024 | 2048 | 4096 | 8192 | 16384 | 32768 => u16::try_from(bytes).ok().map(PageSize),
            _ => None,
        }
    }

    /// The size in bytes.
    pub fn bytes(self) -> usize {
        usize::from(self.0)
    }

    /// The size and the only layout version since PostgreSQL 8.3 (`PG_PAGE_LAYOUT_VERSION`), as page headers have them.
    pub fn version_word(self) -> u16 {
        self.0 | 4
    }

    /// The longest tuple of which `n` fit a page (`MaximumBytesPerTuple`).
    pub fn max_bytes_per_tuple(self, n: usize) -> usize {
        let n = n.max(1);
        ((self.bytes() - max_align(PAGE_HEADER_SIZE + n * LINE_POINTER_SIZE)) / n) & !7
    }

    /// The maximum number of tuples on a page (`MaxHeapTuplesPerPage`).
    pub fn max_heap_tuples(self) -> usize {
        (self.bytes() - PAGE_HEADER_SIZE) / (max_align(TUPLE_HEADER_SIZE) + LINE_POINTER_SIZE)
    }

    /// Tuples longer than this are given to the toaster (`TOAST_TUPLE_THRESHOLD`).
    pub fn toast_tuple_threshold(self) -> usize {
        self.max_bytes_per_tuple(4)
    }

    /// The size that MAIN columns may fill before they are moved out (`TOAST_TUPLE_TARGET_MAIN`).
    pub fn toast_tuple_target_main(self) -> usize {
        self.max_bytes_per_tuple(1)
    }

    /// Bytes of a value in one chunk (`TOAST_MAX_CHUNK_SIZE`), where value IDs are OIDs.
    pub fn toast_max_chunk_size(self) -> u32 {
        self.toast_max_chunk_size_of(ValueIdType::Oid)
    }

    /// Bytes of a value in one chunk where value IDs have this type.
    pub fn toast_max_chunk_size_of(self, id_type: ValueIdType) -> u32 {
        // 24: aligned tuple header, 4: varlena header of chunk_data
        (self.max_bytes_per_tuple(4) - 24 - id_type.data_offset() - 4) as u32
    }

    /// The number of chunks for `stored` bytes, if value IDs are OIDs.
    pub fn chunks(self, stored: u32) -> u32 {
        stored.div_ceil(self.toast_max_chunk_size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_servers_headers() {
        // page size: threshold, chunk, MAIN target
        for (bytes, threshold, chunk, main) in [
            (4096, 1008, 972, 4064),
            (8192, 2032, 1996, 8160),
            (16384, 4080, 4044, 16352),
            (32768, 8176, 8140, 32736),
        ] {
            let page = PageSize::new(bytes).unwrap();
            assert_eq!(page.toast_tuple_threshold(), threshold);
            assert_eq!(page.toast_max_chunk_size(), chunk);
            assert_eq!(page.toast_tuple_target_main(), main);
        }
        assert_eq!(PageSize::DEFAULT.toast_max_chunk_size_of(ValueIdType::Oid8), 1992);
        assert_eq!(PageSize::new(8191), None);
        assert_eq!(PageSize::DEFAULT.chunks(1996), 1);
        assert_eq!(PageSize::DEFAULT.max_heap_tuples(), 291);
        assert_eq!(PageSize::DEFAULT.chunks(1997), 2);
    }
}
