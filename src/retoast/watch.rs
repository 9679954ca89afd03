//! Whom to tell of what the sweep does.

use super::pace::manners::Pause;
use super::result::SkippedRow;
use super::sizes::Sizes;

/// What is told of the sweep while it runs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figures {
    /// Bytes of values re-toasted.
    pub bytes: u64,
    /// Sizes before.
    pub before: Sizes,
    /// Sizes now.
    pub now: Sizes,
    /// WAL written by everybody meanwhile, in bytes.
    pub wal: u64,
}

/// Whom to tell of progress and waits.
pub trait Watch: Send + Sync {
    /// So much of a scan is read, and so many rows are re-toasted.
    fn progress(&self, relation: &str, scan: u32, read: u32, blocks: u32, rows: u64);
    /// The server has refused a row of this table.
    fn refused(&self, relation: &str, row: &SkippedRow) {
        let _ = (relation, row);
    }
    /// Something worth a line.
    fn note(&self, text: &str);
    /// What was measured, about once a second.
    fn figures(&self, figures: &Figures);
    /// Why it waits now; `None`: it goes on.
    fn paused(&self, pause: Option<&Pause>);
}
