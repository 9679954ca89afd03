//! What is wanted of a compaction.

/// Which files are to get shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compaction {
    /// The TOAST relation's.
    Toast,
    /// The table's own.
    Heap,
    /// Both.
    All,
}

impl Compaction {
    /// Whether the TOAST relation is among them.
    pub fn toast(self) -> bool {
        self != Compaction::Heap
    }

    /// Whether the table itself is among them.
    pub fn heap(self) -> bool {
        self != Compaction::Toast
    }
}
