//! What hears of a run while it goes on: progress, figures, notes and waits.

use std::fmt;

use super::pace::manners::Pause;
use super::plan::Sizes;
use super::result::SkippedRow;

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
            Wait::LockTimeout => f.write_str("a lock could not be had in time"),
            Wait::RowsLocked => {
                f.write_str("the rows left to do are locked by other transactions")
            }
            Wait::RowsToMoveLocked => {
                f.write_str("the rows left to move are locked by other transactions")
            }
            Wait::Truncation => f.write_str(
                "VACUUM could not truncate: others use the table, or see old row versions at its end",
            ),
            Wait::OldVersions => f.write_str("other transactions still see old row versions"),
            Wait::Vacuum(what) => write!(f, "vacuum: {what}"),
            Wait::Statement(what) | Wait::Throttle(what) => f.write_str(what),
            Wait::BeforeRebuild(who) => write!(f, "before a rebuild: {who} has to end"),
            Wait::OlderThanProof(who, more) => {
                write!(
                    f,
                    "transactions that are older than the proof have to end, since the tables that they have \
                     created are not seen before: {who}"
                )?;
                match more {
                    0 => Ok(()),
                    more => write!(f, ", and {more} more"),
                }
            }
        }
    }
}
