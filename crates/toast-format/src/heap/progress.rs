//! Progress reports of a long read.

/// Receives the progress of reading relations. The methods are called from several threads.
pub trait Progress: Send + Sync {
    /// This relation is the next one of so many, of which it has this number, from 1. Its parts are begun and finished
    /// until `clear`.
    fn next(&self, _relation: &str, _number: u64, _all: u64) {}
    /// Something will be printed.
    fn clear(&self) {}
    /// A relation of this number of blocks is begun.
    fn begin(&self, relation: &str, blocks: u64);
    /// This number of further blocks was read.
    fn advance(&self, blocks: u64);
    /// The relation is finished.
    fn end(&self);
}

impl Progress for () {
    fn begin(&self, _relation: &str, _blocks: u64) {}
    fn advance(&self, _blocks: u64) {}
    fn end(&self) {}
}
