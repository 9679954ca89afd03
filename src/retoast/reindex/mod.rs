//! `--reindex`: rebuilds indexes of a table and of its TOAST relation that are much larger than fresh ones, by
//! `REINDEX INDEX CONCURRENTLY`, one at a time.
//!
//! Such a rebuild holds a SHARE UPDATE EXCLUSIVE lock, which keeps nobody from reading or writing rows, and waits
//! several times for transactions of others to end. So it is begun when those that are under way have ended, and
//! is watched: it is cancelled where it waits too long, or keeps others waiting. What a cancelled one leaves
//! behind, an invalid index, is dropped at once, or by the next run with the same checkpoint file.
//!
//! * [`wish`]: what is wanted; [`verdict`]: what that means for an index (pure).
//! * [`quiet`]: waiting for transactions that are under way; [`watched`]: statements that may take long.
//! * [`rebuild`]: one index; [`rebuilds`]: those that were begun; [`run`]: those of a table; [`result`]: what is reported.

mod quiet;
mod rebuild;
pub mod rebuilds;
pub mod result;
pub(crate) mod run;
mod verdict;
mod watched;
pub mod wish;
