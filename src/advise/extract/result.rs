//! What is reported of an extraction.

use serde::Serialize;

use super::super::rounded::{Fraction, Whole};
use super::kind::KeyType;
use super::weights::KnownUse;

/// The table with some keys of its documents in columns of their own.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct ExtractionReport {
    /// Whether the keys were chosen: those that pay most, by how often each is used.
    pub auto: bool,
    /// Where they were: what is known of the use of any keys. Half of all uses is dealt out by it, half evenly; without
    /// it all.
    pub known_uses: Vec<KnownUse>,
    /// The keys, as they were asked for.
    pub keys: Vec<KeyReport>,
    /// Documents that have one of them at least.
    pub documents: u64,
    /// Bytes of the heap as VACUUM FULL would write it today.
    pub heap_bytes_today: Whole,
    /// Bytes of the TOAST relation in the same way.
    pub toast_bytes_today: Whole,
    /// Bytes of its index, freshly built.
    pub toast_index_bytes_today: Whole,
    /// The three together.
    pub total_bytes_today: Whole,
    /// Bytes of the heap as VACUUM FULL would write it then.
    pub heap_bytes: Whole,
    /// Bytes of the TOAST relation in the same way.
    pub toast_bytes: Whole,
    /// Bytes of its index, freshly built.
    pub toast_index_bytes: Whole,
    /// The three together.
    pub total_bytes: Whole,
    /// Rows that are given to the toaster today, for they are wider than its threshold.
    pub wide_rows_today: u64,
    /// Rows that would be.
    pub wide_rows: u64,
    /// Documents in the TOAST relation today.
    pub external_today: u64,
    /// Documents that would be there.
    pub external: u64,
    /// Reading or changing anything of a document today.
    pub today: AccessReport,
    /// Reading and changing the document without these keys.
    pub rest: AccessReport,
    /// Reading and changing it and these keys.
    pub whole: AccessReport,
    /// Rows that the server would refuse.
    pub refused_rows: u64,
    /// The migration, as a script for psql, which --emit sql prints.
    pub script: String,
}

#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct KeyReport {
    /// The key, at the root of documents.
    pub key: String,
    /// The column that it would move to.
    pub column: String,
    /// That column's type: one that every value of the sample fits.
    #[serde(rename = "type")]
    pub kind: KeyType,
    /// Documents that have the key.
    pub values: u64,
    /// Reading and changing it in its column.
    pub access: AccessReport,
}

/// What reading and changing costs, for each document.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct AccessReport {
    /// Buffers that a scan of the whole table visits that reads it.
    pub scan_buffers: Whole,
    /// Buffers that such a scan visits for one document.
    pub read_buffers: Fraction,
    /// Nanoseconds of CPU that storage adds to one read, warm cache.
    pub read_cpu_ns: Whole,
    /// Bytes written by one change.
    pub update_bytes: Whole,
    /// Bytes of WAL of one change, without full-page images.
    pub update_wal_bytes: Whole,
}
