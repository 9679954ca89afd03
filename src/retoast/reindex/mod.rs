//! `--reindex`: rebuilds indexes of a table and of its TOAST relation that are much larger than fresh ones, one at a
//! time.
//!
//! An index of the table is rebuilt with `REINDEX INDEX CONCURRENTLY`. This holds a SHARE UPDATE EXCLUSIVE lock,
//! which blocks neither reading nor writing of rows, and waits several times for other sessions' transactions to end.
//! It is therefore started only after the transactions that are running have ended, and it is monitored: if it waits
//! too long, or keeps other sessions waiting, it is cancelled. A cancelled rebuild leaves an invalid index, which is
//! dropped at once, or by the next run with the same checkpoint file.
//!
//! Rebuilding the index of a TOAST relation concurrently is not safe (`Index::rebuild`). It is rebuilt under a lock,
//! and only if it is small, because readers and writers of external values must wait.
//!
//! * [`run`]: the indexes of a table, and what to do with each; [`rebuild`]: the rebuild of one index, and the wait
//!   before it.

mod rebuild;
pub(crate) mod run;

/// The indexes to rebuild.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Reindex {
    /// None
    #[default]
    #[value(hide = true)]
    Never,
    /// Those of more than 1.3 times what a fresh one would take
    Bloated,
    /// All that can be
    All,
}
