//! What is wanted of a compaction.

/// Which files are to get shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactRequest {
    /// The TOAST relation's.
    Toast,
    /// The table's own.
    Heap,
    /// Both.
    All,
}

impl CompactRequest {
    /// Whether the TOAST relation is among them.
    pub fn toast(self) -> bool {
        self != CompactRequest::Heap
    }

    /// Whether the table itself is among them.
    pub fn heap(self) -> bool {
        self != CompactRequest::Toast
    }
}
