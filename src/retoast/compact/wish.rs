//! What is wanted of a compaction.

/// Which files are to get shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Files {
    /// The TOAST relation's.
    Toast,
    /// The table's own.
    Heap,
    /// Both.
    All,
}

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompactRequest {
    /// Of which files.
    pub files: Files,
    /// The part of a file that a round has to give back for another one to follow.
    pub min_gain: f64,
}

impl Files {
    /// Whether the TOAST relation is among them.
    pub fn toast(self) -> bool {
        self != Files::Heap
    }

    /// Whether the table itself is among them.
    pub fn heap(self) -> bool {
        self != Files::Toast
    }
}
