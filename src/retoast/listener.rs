//! Who hears of a run while it goes on, and what is asked of it from outside: to stop, to pause, to go on.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

use crate::retoast::pace::rules::{Cause, Pause};
use crate::retoast::plan::Sizes;
use crate::retoast::result::SkippedRow;

/// What is measured while work goes on.
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

/// Hears of progress and waits; the command line shows them as a bar, lines or JSON.
pub trait Listener: Send + Sync {
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

/// Why work waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// A lock for this was not to be had in a short try.
    NoLock(String),
    /// Another retoast has the table.
    OtherRetoast,
    /// A batch met a lock timeout or a deadlock.
    LockTimeout,
    /// All rows left to re-toast are locked.
    RowsLocked,
    /// All rows left to move off the end of a file are locked.
    RowsToMoveLocked,
    /// A VACUUM has left empty pages at the end of a file.
    Truncation,
    /// Snapshots of others would make a VACUUM leave most of what it is for.
    OldVersions,
    /// A VACUUM under way waits for this.
    Vacuum(String),
    /// Another statement under way waits for this.
    Statement(String),
    /// A rebuild would wait for this.
    BeforeRebuild(String),
    /// Transactions whose tables nobody sees yet: the first, and how many more.
    OlderThanProof(String, usize),
    /// The throttle has found this.
    Throttle(String),
}

impl Wait {
    /// What a listener is told.
    pub fn note(&self) -> String {
        format!("waiting: {self}")
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wait::NoLock(what) => write!(f, "no lock for {what}"),
            Wait::OtherRetoast => f.write_str(
                "another retoast of this table is running, or its session has not yet ended",
            ),
            Wait::LockTimeout => f.write_str("a lock was not granted in time"),
            Wait::RowsLocked => {
                f.write_str("the remaining rows are locked by other transactions")
            }
            Wait::RowsToMoveLocked => {
                f.write_str("the rows still to be moved are locked by other transactions")
            }
            Wait::Truncation => f.write_str(
                "VACUUM could not truncate: other sessions use the table, or see old row versions at its end",
            ),
            Wait::OldVersions => f.write_str("other transactions still see old row versions"),
            Wait::Vacuum(what) => write!(f, "vacuum: {what}"),
            Wait::Statement(what) | Wait::Throttle(what) => f.write_str(what),
            Wait::BeforeRebuild(who) => write!(f, "the rebuild cannot start before {who} has ended"),
            Wait::OlderThanProof(who, more) => {
                write!(
                    f,
                    "older transactions must end first, because tables that they created are not visible yet: {who}"
                )?;
                match more {
                    0 => Ok(()),
                    more => write!(f, ", and {more} more"),
                }
            }
        }
    }
}

/// Shared by the sweep and those who ask.
#[derive(Debug, Default)]
pub struct Control {
    stop: CancellationToken,
    paused: AtomicBool,
}

impl Control {
    /// Asks to stop, for good.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Cancelled once somebody has asked to stop.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stop
    }

    /// Whether somebody has asked to stop.
    pub fn stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Asks to pause, or to go on.
    pub fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
    }

    /// Why it is to pause now, with the reason for people.
    pub fn asked(&self) -> Option<(Cause, String)> {
        let paused = self.paused.load(Ordering::Relaxed);
        paused.then(|| (Cause::Signal, "paused by SIGUSR1; SIGUSR2 resumes".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_pauses_until_it_is_taken_back() {
        let control = Control::default();
        let cause = || control.asked().map(|(cause, _)| cause);
        assert_eq!(cause(), None);
        control.pause(true);
        assert_eq!(cause(), Some(Cause::Signal));
        control.pause(false);
        assert_eq!(cause(), None);
        assert!(!control.stopped());
        control.stop();
        assert!(control.stopped());
    }
}
