//! What is wanted of a compaction.

/// Which files are to get shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Compaction {
    /// That of the TOAST relation
    Toast,
    /// The table's own
    Heap,
    /// Both
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
