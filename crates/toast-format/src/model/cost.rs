//! The cost of storing, reading and changing a value.
//!
//! Times are measured with a warm cache on one core of a common server. They serve to compare settings with each other,
//! so costs that are the same for all settings (parsing, sending the value) are not included.

use derive_more::{Add, AddAssign, Mul};
use serde::{Deserialize, Serialize};

use crate::codec::Method;
use crate::codec::items::Items;
use crate::disk::PageSize;
use crate::disk::varlena::{COMPRESSED_HEADER_SIZE, VARLENA_HEADER_SIZE};

/// The number of chunks on a page of a TOAST relation (`EXTERN_TUPLES_PER_PAGE`).
pub const CHUNKS_PER_PAGE: u32 = 4;

/// The time in nanoseconds for each part of a read, and the equivalent price of a stored byte.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Visiting one heap page in a scan.
    pub heap_page_ns: f64,
    /// Visiting one row on it, and its value.
    #[serde(default = "default_row_ns")]
    pub row_ns: f64,
    /// Opening the TOAST relation and its index for one value.
    pub lookup_ns: f64,
    /// Visiting one page of the TOAST index or relation.
    pub page_ns: f64,
    /// Adding one chunk to the value, without copying.
    pub chunk_ns: f64,
    /// Copying a byte, or reading one of a value in the row.
    pub copy_byte_ns: f64,
    /// Starting a decompression.
    pub decompress_ns: f64,
    /// Decompressing the items of pglz.
    pub pglz: ItemPrices,
    /// Decompressing the items of lz4.
    pub lz4: ItemPrices,
    /// The price of storing one byte, for each read of its value.
    pub stored_byte_ns: f64,
}

/// The price of a row for calibration files that have none. Measured on PostgreSQL 15: 136 and 149 ns, from scans of 40,000 to
/// 300,000 rows of 64 to 1280 bytes.
fn default_row_ns() -> f64 {
    140.0
}

/// The time in nanoseconds for each part of a compressed stream.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ItemPrices {
    /// A byte that stands in the stream.
    pub literal_ns: f64,
    /// A match.
    pub match_ns: f64,
    /// A byte that a match copies from before its own output.
    pub copied_ns: f64,
    /// A byte that a match repeats of its own output.
    pub overlapping_ns: f64,
}

impl ItemPrices {
    fn ns(&self, items: &Items) -> f64 {
        self.parts(items).iter().sum()
    }

    fn parts(&self, items: &Items) -> [f64; 4] {
        [
            items.literals * self.literal_ns,
            items.matches * self.match_ns,
            items.copied * self.copied_ns,
            items.overlapping * self.overlapping_ns,
        ]
    }

    /// These prices, multiplied by a factor for each.
    pub fn times(&self, [literal, matched, copied, overlapping]: [f64; 4]) -> ItemPrices {
        ItemPrices {
            literal_ns: self.literal_ns * literal,
            match_ns: self.match_ns * matched,
            copied_ns: self.copied_ns * copied,
            overlapping_ns: self.overlapping_ns * overlapping,
        }
    }
}

/// The number of parts of a read, and of a write.
pub const READ_PARTS: usize = 15;
pub(crate) const WRITE_PARTS: usize = 12;

/// Groups of parts, one after the other.
fn joined<const GROUPS: usize, const PARTS: usize>(groups: [&[f64]; GROUPS]) -> [f64; PARTS] {
    let mut parts = groups.into_iter().flatten().copied();
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

impl Default for Prices {
    fn default() -> Prices {
        // CPU time measured on PostgreSQL 15 (`scripts/bench readcost`), and of scans of tables that the CPU's caches do
        // not hold.
        Prices {
            heap_page_ns: 800.0,
            row_ns: default_row_ns(),
            lookup_ns: 1300.0,
            page_ns: 120.0,
            chunk_ns: 420.0,
            copy_byte_ns: 0.08,
            decompress_ns: 200.0,
            pglz: ItemPrices {
                literal_ns: 1.5,
                match_ns: 7.0,
                copied_ns: 0.06,
                overlapping_ns: 0.06,
            },
            lz4: ItemPrices {
                literal_ns: 0.1,
                match_ns: 2.0,
                copied_ns: 0.05,
                overlapping_ns: 0.28,
            },
            stored_byte_ns: 2.5,
        }
    }
}

/// The work of reading values.
#[derive(Debug, Clone, Copy, PartialEq, Default, Add, AddAssign, Mul)]
pub struct ReadWork {
    /// Heap pages visited by the scan.
    pub heap_pages: f64,
    /// Rows that stand on these pages.
    pub rows: f64,
    /// Values fetched from the TOAST relation.
    pub lookups: f64,
    /// Pages visited in the TOAST index.
    pub index_pages: f64,
    /// Pages visited in the TOAST relation.
    pub toast_pages: f64,
    /// Chunks read from the TOAST relation.
    pub chunks: f64,
    /// Bytes copied out of chunks.
    pub copied_bytes: f64,
    /// Bytes of values in the row, which are read where they are.
    pub inline_bytes: f64,
    /// Values decompressed, with either method.
    pub decompressions: f64,
    /// Literals and matches that pglz decompresses.
    pub pglz: Items,
    /// Literals and matches that lz4 decompresses.
    pub lz4: Items,
}

impl ReadWork {
    /// The number of buffers visited, as reported by `EXPLAIN (ANALYZE, BUFFERS)`.
    pub fn buffers(&self) -> f64 {
        self.heap_pages + self.index_pages + self.toast_pages
    }

    /// What the values that a method has compressed consist of.
    pub fn items_mut(&mut self, method: Method) -> &mut Items {
        match method {
            Method::Pglz => &mut self.pglz,
            Method::Lz4 => &mut self.lz4,
        }
    }

    /// The number of bytes that decompression gives.
    pub fn decompressed_bytes(&self) -> f64 {
        self.pglz.bytes() + self.lz4.bytes()
    }
}

impl Prices {
    /// The duration of `work` in nanoseconds.
    pub fn read_ns(&self, work: &ReadWork) -> f64 {
        self.parts(work).iter().sum()
    }

    /// The duration of each part of `work`.
    pub fn parts(&self, work: &ReadWork) -> [f64; READ_PARTS] {
        let own = [
            work.heap_pages * self.heap_page_ns,
            work.rows * self.row_ns,
            work.lookups * self.lookup_ns,
            (work.index_pages + work.toast_pages) * self.page_ns,
            work.chunks * self.chunk_ns,
            (work.copied_bytes + work.inline_bytes) * self.copy_byte_ns,
            work.decompressions * self.decompress_ns,
        ];
        joined([&own, &self.pglz.parts(&work.pglz), &self.lz4.parts(&work.lz4)])
    }

    /// These prices, multiplied by a factor for each part.
    pub fn times(&self, factors: [f64; READ_PARTS]) -> Prices {
        let [heap_page, row, lookup, page, chunk, copy, decompress, pglz @ .., a, b, c, d] =
            factors;
        Prices {
            heap_page_ns: self.heap_page_ns * heap_page,
            row_ns: self.row_ns * row,
            lookup_ns: self.lookup_ns * lookup,
            page_ns: self.page_ns * page,
            chunk_ns: self.chunk_ns * chunk,
            copy_byte_ns: self.copy_byte_ns * copy,
            decompress_ns: self.decompress_ns * decompress,
            pglz: self.pglz.times(pglz),
            lz4: self.lz4.times([a, b, c, d]),
            stored_byte_ns: self.stored_byte_ns,
        }
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
        let stream = size.saturating_sub(COMPRESSED_HEADER_SIZE);
        let items = Items::typical(method, raw, stream);
        let decompressed = match method {
            Method::Pglz => self.pglz.ns(&items),
            Method::Lz4 => self.lz4.ns(&items),
        };
        let stored = if inline {
            f64::from(size) * self.stored_byte_ns
        } else {
            self.external(page, size.saturating_sub(VARLENA_HEADER_SIZE))
        };
        stored + self.decompress_ns + decompressed
    }

    fn external(&self, page: PageSize, stored: u32) -> f64 {
        self.lookup_ns
            + f64::from(page.chunks(stored)) * self.chunk_ns
            + f64::from(stored) * (self.stored_byte_ns + self.copy_byte_ns)
    }
}

/// The work of compressing values and storing their chunks.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct WriteWork {
    /// Chunks written to the TOAST relation.
    pub chunks: f64,
    /// Values that are stored compressed.
    pub compressions: f64,
    /// What those in pglz consist of.
    pub pglz: Items,
    /// What those in lz4 consist of.
    pub lz4: Items,
    /// Bytes that pglz reads of values that it does not compress, before it gives up.
    pub pglz_refused: f64,
    /// Bytes of values that lz4 does not compress.
    pub lz4_refused: f64,
}

/// The number of bytes of a value that pglz looks at if it finds no match in them (`first_success_by` of
/// `PGLZ_strategy_default`).
pub const PGLZ_GIVES_UP: u32 = 1024;

/// The time in nanoseconds for each part of a write.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WritePrices {
    /// Storing a chunk, with its index entry and WAL.
    pub chunk_ns: f64,
    /// Starting a compression.
    pub compress_ns: f64,
    /// Compressing with pglz.
    pub pglz: ItemPrices,
    /// Compressing with lz4.
    pub lz4: ItemPrices,
    /// A byte that pglz reads of a value that it then does not compress.
    pub pglz_refused_ns: f64,
    /// A byte of a value that lz4 does not compress.
    pub lz4_refused_ns: f64,
}

impl Default for WritePrices {
    fn default() -> WritePrices {
        WritePrices {
            chunk_ns: 4000.0,
            compress_ns: 1000.0,
            pglz: ItemPrices {
                literal_ns: 60.0,
                match_ns: 60.0,
                copied_ns: 4.0,
                overlapping_ns: 5.0,
            },
            lz4: ItemPrices {
                literal_ns: 1.0,
                match_ns: 20.0,
                copied_ns: 0.5,
                overlapping_ns: 0.05,
            },
            pglz_refused_ns: 25.0,
            lz4_refused_ns: 0.3,
        }
    }
}

impl WritePrices {
    /// The duration of `work` in nanoseconds.
    pub fn write_ns(&self, work: &WriteWork) -> f64 {
        self.parts(work).iter().sum()
    }

    /// The duration of each part of `work`.
    pub fn parts(&self, work: &WriteWork) -> [f64; WRITE_PARTS] {
        let own = [work.chunks * self.chunk_ns, work.compressions * self.compress_ns];
        let refused =
            [work.pglz_refused * self.pglz_refused_ns, work.lz4_refused * self.lz4_refused_ns];
        joined([&own, &self.pglz.parts(&work.pglz), &self.lz4.parts(&work.lz4), &refused])
    }

    /// These prices, multiplied by a factor for each part but the first: chunks of temporary tables are stored without
    /// WAL, so that their times do not apply to other tables.
    pub fn times(&self, factors: [f64; WRITE_PARTS]) -> WritePrices {
        let [_, compress, a, b, c, d, lz4 @ .., pglz_refused, lz4_refused] = factors;
        WritePrices {
            chunk_ns: self.chunk_ns,
            compress_ns: self.compress_ns * compress,
            pglz: self.pglz.times([a, b, c, d]),
            lz4: self.lz4.times(lz4),
            pglz_refused_ns: self.pglz_refused_ns * pglz_refused,
            lz4_refused_ns: self.lz4_refused_ns * lz4_refused,
        }
    }
}

/// The prices of reads and writes, and the relative error of the times that follow from them; `None` if it is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pricing {
    /// Of reads.
    pub read: Prices,
    /// Of writes.
    pub write: WritePrices,
    /// The error of the time of a read.
    pub read_error: Option<f64>,
    /// The error of the time of a write.
    pub write_error: Option<f64>,
}

impl Pricing {
    /// Whether all prices are positive and finite.
    pub fn is_sound(&self) -> bool {
        let items = Items::from([1.0; 4]);
        let read = ReadWork {
            heap_pages: 1.0,
            rows: 1.0,
            lookups: 1.0,
            index_pages: 1.0,
            toast_pages: 0.0,
            chunks: 1.0,
            copied_bytes: 1.0,
            inline_bytes: 0.0,
            decompressions: 1.0,
            pglz: items,
            lz4: items,
        };
        let write = WriteWork {
            chunks: 1.0,
            compressions: 1.0,
            pglz: items,
            lz4: items,
            pglz_refused: 1.0,
            lz4_refused: 1.0,
        };
        let read = self.read.parts(&read);
        let write = self.write.parts(&write);
        let mut prices = read.iter().chain(&write).chain([&self.read.stored_byte_ns]);
        let mut errors = self.read_error.iter().chain(&self.write_error);
        prices.all(|&ns| ns.is_finite() && ns > 0.0) && errors.all(|&e| e.is_finite() && e >= 0.0)
    }
}
