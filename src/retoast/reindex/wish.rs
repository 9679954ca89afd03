//! What is wanted of indexes.

/// Which indexes are rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Reindex {
    /// None
    #[default]
    Never,
    /// Those of more than 1.3 times what a fresh one would take
    Bloated,
    /// All that can be
    All,
}
