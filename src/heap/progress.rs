//! What a long read reports while it runs.

/// Follows the reading of relations. Methods are called from several threads.
pub trait Progress: Send + Sync {
    /// A relation of so many blocks is begun.
    fn begin(&self, relation: &str, blocks: u64);
    /// So many more blocks were read.
    fn advance(&self, blocks: u64);
    /// The relation is done.
    fn end(&self);
}

impl Progress for () {
    fn begin(&self, _relation: &str, _blocks: u64) {}
    fn advance(&self, _blocks: u64) {}
    fn end(&self) {}
}
