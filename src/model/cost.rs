//! The cost of storing, reading and changing a value.
//!
//! Times are measured with a warm cache on one core of a common server. They serve to compare settings with each other,
//! so costs that are the same for all settings (parsing, sending the value) are not included.

use crate::codec::Method;
use crate::disk::layout::PageSize;
use crate::disk::varlena::VARLENA_HEADER_SIZE;

/// The number of chunks on a page of a TOAST relation (`EXTERN_TUPLES_PER_PAGE`).
pub(crate) const CHUNKS_PER_PAGE: u32 = 4;

/// The time in nanoseconds for each part of a read, and the equivalent price of a stored byte.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prices {
    /// Visiting one heap page in a scan.
    pub heap_page_ns: f64,
    /// Opening the TOAST relation and its index for one value.
    pub lookup_ns: f64,
    /// Visiting one page of the TOAST index or relation.
    pub page_ns: f64,
    /// Adding one chunk to the value, without copying.
    pub chunk_ns: f64,
    /// Copying a byte.
    pub copy_byte_ns: f64,
    /// Starting a decompression.
    pub decompress_ns: f64,
    /// Decompressing one raw byte with pglz.
    pub pglz_byte_ns: f64,
    /// Decompressing one raw byte with lz4.
    pub lz4_byte_ns: f64,
    /// The price of storing one byte, for each read of its value.
    pub stored_byte_ns: f64,
}

impl Default for Prices {
    fn default() -> Prices {
        // CPU time measured on PostgreSQL 15 (`scripts/bench readcost`).
        Prices {
            heap_page_ns: 250.0,
            lookup_ns: 1300.0,
            page_ns: 120.0,
            chunk_ns: 420.0,
            copy_byte_ns: 0.05,
            decompress_ns: 200.0,
            pglz_byte_ns: 1.0,
            lz4_byte_ns: 0.3,
            stored_byte_ns: 2.5,
        }
    }
}

/// The work of reading values.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ReadWork {
    /// Heap pages visited.
    pub heap_pages: f64,
    /// Values fetched from the TOAST relation.
    pub lookups: f64,
    /// Pages visited in the TOAST index.
    pub index_pages: f64,
    /// Pages visited in the TOAST relation.
    pub toast_pages: f64,
    /// Chunks read.
    pub chunks: f64,
    /// Bytes copied out of chunks.
    pub copied_bytes: f64,
    /// Values decompressed.
    pub decompressions: f64,
    /// Raw bytes decompressed by pglz.
    pub pglz_bytes: f64,
    /// Raw bytes decompressed by lz4.
    pub lz4_bytes: f64,
}

impl ReadWork {
    /// The number of buffers visited, as reported by `EXPLAIN (ANALYZE, BUFFERS)`.
    pub fn buffers(&self) -> f64 {
        self.heap_pages + self.index_pages + self.toast_pages
    }
}

impl Prices {
    /// The duration of `work` in nanoseconds.
    pub fn read_ns(&self, work: &ReadWork) -> f64 {
        work.heap_pages * self.heap_page_ns
            + work.lookups * self.lookup_ns
            + (work.index_pages + work.toast_pages) * self.page_ns
            + work.chunks * self.chunk_ns
            + work.copied_bytes * self.copy_byte_ns
            + work.decompressions * self.decompress_ns
            + work.pglz_bytes * self.pglz_byte_ns
            + work.lz4_bytes * self.lz4_byte_ns
    }

    /// The price of storing a value of `raw` bytes out of line, uncompressed, and of one read.
    pub fn uncompressed(&self, page: PageSize, raw: u32) -> f64 {
        self.external(page, raw)
    }

    /// The price of a value of `raw` bytes that is compressed to a datum of `size` bytes, including the header, and
    /// stays in the row or does not.
    pub fn compressed(
        &self,
        page: PageSize,
        raw: u32,
        size: u32,
        method: Method,
        inline: bool,
    ) -> f64 {
        let byte = match method {
            Method::Pglz => self.pglz_byte_ns,
            Method::Lz4 => self.lz4_byte_ns,
        };
        let stored = if inline {
            f64::from(size) * self.stored_byte_ns
        } else {
            self.external(page, size.saturating_sub(VARLENA_HEADER_SIZE))
        };
        stored + self.decompress_ns + f64::from(raw) * byte
    }

    fn external(&self, page: PageSize, stored: u32) -> f64 {
        self.lookup_ns
            + f64::from(page.chunks(stored)) * self.chunk_ns
            + f64::from(stored) * (self.stored_byte_ns + self.copy_byte_ns)
    }
}

/// The data written by an UPDATE of values.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct UpdateWork {
    /// Rows updated.
    pub rows: f64,
    /// The size of the new heap tuples, including line pointers.
    pub heap_bytes: f64,
    /// The size of the new chunks' tuples, including line pointers.
    pub toast_bytes: f64,
    /// New chunks.
    pub chunks: f64,
    /// Old chunks deleted.
    pub deleted_chunks: f64,
}

/// The size of an entry in the TOAST index, including its line pointer.
const INDEX_ENTRY: f64 = 20.0;
/// WAL of the lock that an UPDATE takes before it toasts values or looks for another page: record, block reference,
/// `xl_heap_lock`.
const WAL_LOCK: f64 = 56.0;
/// WAL of one heap UPDATE in addition to its tuple's space on the page: record, references to both blocks,
/// `xl_heap_update`, `xl_heap_header`, minus the tuple's header and line pointer.
const WAL_UPDATE: f64 = 46.0;
/// WAL of one chunk's INSERT in addition to its space on the page: record, block reference, `xl_heap_insert`,
/// `xl_heap_header`, minus the tuple's header and line pointer.
const WAL_INSERT: f64 = 28.0;
/// WAL of one chunk's index entry: record, block reference, `xl_btree_insert`, entry, and its share of page splits.
const WAL_INDEX: f64 = 66.0;
/// WAL of one chunk's DELETE: record, block reference, `xl_heap_delete`.
const WAL_DELETE: f64 = 56.0;
/// WAL pages have 8 kB (unless the server was built with another size) and headers of 24 bytes.
const WAL_PAGES: f64 = 8192.0 / (8192.0 - 24.0);

impl UpdateWork {
    /// Bytes written to the relations.
    pub fn bytes(&self) -> f64 {
        self.heap_bytes + self.toast_bytes + self.chunks * INDEX_ENTRY
    }

    /// Bytes of WAL without full-page images, the commit record, and the changes of the table's own indexes. The new
    /// row version is assumed to go to another page, as it does if pages are full.
    pub fn wal_bytes(&self) -> f64 {
        let records = self.rows * (WAL_LOCK + WAL_UPDATE)
            + self.heap_bytes
            + self.toast_bytes
            + self.chunks * (WAL_INSERT + WAL_INDEX)
            + self.deleted_chunks * WAL_DELETE;
        records * WAL_PAGES
    }
}
