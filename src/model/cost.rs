//! What storing, reading and changing a value costs.
//!
//! Times are those of a warm cache on one core of a common server. They serve to compare settings
//! with each other; what every setting pays alike (parsing, sending the value) is left out.

use crate::codec::Method;
use crate::disk::layout::PageSize;
use crate::disk::varlena::VARLENA_HEADER_SIZE;

/// Chunks that a page of a TOAST relation holds (`EXTERN_TUPLES_PER_PAGE`).
pub(crate) const CHUNKS_PER_PAGE: u32 = 4;

/// Nanoseconds that the parts of a read take, and what a stored byte is worth beside them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prices {
    /// Visiting one heap page in a scan.
    pub heap_page_ns: f64,
    /// Opening the TOAST relation and its index for one value.
    pub lookup_ns: f64,
    /// Visiting one page of the TOAST index or relation.
    pub page_ns: f64,
    /// Taking one chunk into the value, apart from copying.
    pub chunk_ns: f64,
    /// Copying a byte.
    pub copy_byte_ns: f64,
    /// Starting a decompression.
    pub decompress_ns: f64,
    /// Decompressing one raw byte with pglz.
    pub pglz_byte_ns: f64,
    /// Decompressing one raw byte with lz4.
    pub lz4_byte_ns: f64,
    /// What storing one byte is worth, for as long as one read of its value.
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

/// What reading values takes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ReadWork {
    /// Heap pages visited.
    pub heap_pages: f64,
    /// Values fetched from the TOAST relation.
    pub lookups: f64,
    /// Pages of the TOAST index visited.
    pub index_pages: f64,
    /// Pages of the TOAST relation visited.
    pub toast_pages: f64,
    /// Chunks taken.
    pub chunks: f64,
    /// Bytes copied out of chunks.
    pub copied_bytes: f64,
    /// Values decompressed.
    pub decompressions: f64,
    /// Raw bytes that pglz gives.
    pub pglz_bytes: f64,
    /// Raw bytes that lz4 gives.
    pub lz4_bytes: f64,
}

impl ReadWork {
    /// Buffers visited, as `EXPLAIN (ANALYZE, BUFFERS)` counts.
    pub fn buffers(&self) -> f64 {
        self.heap_pages + self.index_pages + self.toast_pages
    }
}

impl Prices {
    /// Nanoseconds that `work` takes.
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

    /// The price of a value of `raw` bytes out of line, uncompressed: storing it and one read.
    pub fn uncompressed(&self, page: PageSize, raw: u32) -> f64 {
        self.external(page, raw)
    }

    /// The price of a value of `raw` bytes compressed to a datum of `size`, header included, that
    /// stays in the row or not.
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

/// What an UPDATE of values writes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct UpdateWork {
    /// Rows updated.
    pub rows: f64,
    /// Bytes of the new heap tuples, line pointers included.
    pub heap_bytes: f64,
    /// Bytes of the new chunks' tuples, line pointers included.
    pub toast_bytes: f64,
    /// New chunks.
    pub chunks: f64,
    /// Old chunks deleted.
    pub deleted_chunks: f64,
}

/// Bytes of an entry in the TOAST index, line pointer included.
const INDEX_ENTRY: f64 = 20.0;
/// WAL of the lock that an UPDATE takes before it toasts or looks for another page: record, block
/// reference, `xl_heap_lock`.
const WAL_LOCK: f64 = 56.0;
/// WAL of one heap UPDATE besides what its tuple takes on the page: record, references to both
/// blocks, `xl_heap_update`, `xl_heap_header`, less the tuple's header and line pointer.
const WAL_UPDATE: f64 = 46.0;
/// WAL of one chunk's INSERT besides what it takes on the page: record, block reference,
/// `xl_heap_insert`, `xl_heap_header`, less the tuple's header and line pointer.
const WAL_INSERT: f64 = 28.0;
/// WAL of one chunk's index entry: record, block reference, `xl_btree_insert`, entry; and its part
/// of the page splits.
const WAL_INDEX: f64 = 66.0;
/// WAL of one chunk's DELETE: record, block reference, `xl_heap_delete`.
const WAL_DELETE: f64 = 56.0;
/// WAL pages are of 8 kB (unless the server was built otherwise) and have headers of 24 bytes.
const WAL_PAGES: f64 = 8192.0 / (8192.0 - 24.0);

impl UpdateWork {
    /// Bytes written to the relations.
    pub fn bytes(&self) -> f64 {
        self.heap_bytes + self.toast_bytes + self.chunks * INDEX_ENTRY
    }

    /// Bytes of WAL without full-page images, the record of the commit and what the table's own
    /// indexes add. The new row version goes to another page, as it does where pages are full.
    pub fn wal_bytes(&self) -> f64 {
        let records = self.rows * (WAL_LOCK + WAL_UPDATE)
            + self.heap_bytes
            + self.toast_bytes
            + self.chunks * (WAL_INSERT + WAL_INDEX)
            + self.deleted_chunks * WAL_DELETE;
        records * WAL_PAGES
    }
}
