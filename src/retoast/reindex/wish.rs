//! What is wanted of indexes.

/// Which indexes are rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reindex {
    /// None; those that are too large are reported.
    #[default]
    Never,
    /// Those that are much larger than a fresh one.
    Bloated,
    /// All that can be.
    All,
}
