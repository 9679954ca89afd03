//! Receives the progress of a run, and passes requests to it: stop, pause, resume.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::retoast::pace::rules::Pause;
use crate::retoast::plan::Sizes;
use crate::retoast::result::{CompactedFile, SkippedRow, StopReason};

/// Figures measured during the work.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figures {
    /// Bytes of values re-toasted.
    pub bytes: u64,
    /// Sizes at the beginning.
    pub before: Sizes,
    pub now: Sizes,
    /// Bytes of WAL written by all sessions since the beginning.
    pub wal: u64,
}

/// How far the work on a table has come.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Advance {
    /// The scan or round under way, from 1.
    pub scan: u32,
    /// The file that is compacted in rounds; `None` in a conversion.
    pub compacts: Option<CompactedFile>,
    /// Blocks of the scan whose rows are done, and all blocks; in a round of a compaction, rows or values to move.
    pub read: u32,
    pub blocks: u32,
    /// Rows re-toasted or moved so far.
    pub rows: u64,
    /// The fraction of the whole task that is done; `None` if only that of the scan is known.
    pub done: Option<f64>,
    /// The time until the end of the task, if it is known.
    pub left: Option<Duration>,
}

impl Advance {
    /// The fraction that is done: of the task, or else of the scan or round, which a VACUUM and another look at the file
    /// follow.
    pub fn part(&self) -> f64 {
        const MOST: f64 = 0.99;
        self.done
            .unwrap_or_else(|| (f64::from(self.read) / f64::from(self.blocks.max(1))).min(MOST))
    }
}

/// Receives progress and waits; the command line shows them as a bar, lines or JSON.
pub trait Listener: Send + Sync {
    /// How far the work on a table has come.
    fn progress(&self, relation: &str, advance: &Advance);
    /// The server has refused a row of this table.
    fn refused(&self, relation: &str, row: &SkippedRow) {
        let _ = (relation, row);
    }
    /// An index is being rebuilt: the `number`th of all `indexes`.
    fn rebuilds(&self, relation: &str, index: &str, number: usize, indexes: usize) {
        let _ = (relation, index, number, indexes);
    }
    /// A note for the user about a table, or about the run.
    fn note(&self, relation: Option<&str>, text: &str);
    /// The latest figures, about once a second.
    fn figures(&self, figures: &Figures);
    /// The reason for a pause that begins; `None` when work continues.
    fn paused(&self, pause: Option<&Pause>);
}

/// What the work on a table waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// A batch had a lock timeout or a deadlock.
    LockTimeout,
    /// Other sessions have locked all rows left to re-toast.
    RowsLocked,
    /// Other sessions have locked all rows left to move from the end of a file.
    RowsToMoveLocked,
    /// A VACUUM has left empty pages at the end of a file.
    Truncation,
    /// Snapshots of other sessions would make a VACUUM leave most dead rows.
    OldVersions,
}

impl Wait {
    pub fn text(self) -> &'static str {
        match self {
            Wait::LockTimeout => "a lock was not granted in time",
            Wait::RowsLocked => "the remaining rows are locked by other transactions",
            Wait::RowsToMoveLocked => "the rows still to be moved are locked by other transactions",
            Wait::Truncation => {
                "VACUUM could not truncate: other sessions use the table, or see old row versions at its end"
            }
            Wait::OldVersions => "other transactions still see old row versions",
        }
    }
}

/// Requests to a run, shared by the run and those who make them.
#[derive(Debug, Default)]
pub struct Control {
    stop: CancellationToken,
    reason: OnceLock<StopReason>,
    paused: AtomicBool,
}

impl Control {
    /// Requests a stop, which cannot be withdrawn.
    pub fn stop(&self, reason: StopReason) {
        self.reason.get_or_init(|| reason);
        self.stop.cancel();
    }

    /// The reason of the first request.
    pub fn stopped_by(&self) -> Option<StopReason> {
        self.reason.get().copied()
    }

    /// Cancelled once a stop is requested.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stop
    }

    /// Whether a stop was requested.
    pub fn stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Sleeps, at most until a stop is requested.
    pub(crate) async fn sleep(&self, time: Duration) {
        self.stop.run_until_cancelled(tokio::time::sleep(time)).await;
    }

    /// Requests a pause, or its end.
    pub fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
    }

    /// Whether a pause is requested.
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_pauses_until_it_is_taken_back() {
        let control = Control::default();
        assert!(!control.is_paused());
        control.pause(true);
        assert!(control.is_paused());
        control.pause(false);
        assert!(!control.is_paused());
        assert!(!control.stopped());
        control.stop(StopReason::MaxTime);
        control.stop(StopReason::Signal);
        assert!(control.stopped() && control.stopped_by() == Some(StopReason::MaxTime));
    }
}
