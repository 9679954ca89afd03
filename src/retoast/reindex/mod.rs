//! `--reindex`: rebuilds indexes of a table and of its TOAST relation that are much larger than fresh ones, by
//! `REINDEX INDEX CONCURRENTLY`, one at a time.
//!
//! Such a rebuild holds a SHARE UPDATE EXCLUSIVE lock, which keeps nobody from reading or writing rows, and waits
//! several times for transactions of others to end. So it is begun when those that are under way have ended, and
//! is watched: it is cancelled where it waits too long, or keeps others waiting. What a cancelled one leaves
//! behind, an invalid index, is dropped at once, or by the next run with the same checkpoint file.
//!
//! * [`run`]: the indexes of a table, and what is to become of each; [`rebuild`]: one of them, and the wait before it.

mod rebuild;
pub(crate) mod run;

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
