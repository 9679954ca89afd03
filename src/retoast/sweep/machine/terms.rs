//! What the machine is told, and what it says.

use std::ops::Range;
use std::time::Duration;

use crate::disk::ItemPointer;
use crate::retoast::listener::Wait;

/// A row to re-toast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// Where it was seen.
    pub ctid: ItemPointer,
    /// The transaction that inserted this version: the low half of its number.
    pub xmin: u32,
    /// Whether nothing that is stored shows that it differs, but only what the server made of a copy: could be
    /// compressed, and is not. An UPDATE of the row itself says that better.
    pub by_copy: bool,
    /// Whether only values with ordinary pointers make it differ that its toaster may leave so. Whether it does, an
    /// UPDATE of the row itself says.
    pub spared: bool,
    /// Bytes of the chosen columns' values: as stored now, or uncompressed where that is more and known, since a batch
    /// may store them so.
    pub bytes: u64,
    /// Bytes of them as stored now, which the row leaves behind.
    pub stored: u64,
}

/// What a vacuum takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The TOAST relation and its index, where old values are.
    Toast,
    /// The table with its TOAST relation and all indexes.
    Table,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A scan begins: the relation has this many blocks, and with its TOAST relation this many bytes.
    Begun {
        /// Blocks of the heap.
        blocks: u32,
        /// Bytes of heap and TOAST relation.
        bytes: u64,
    },
    /// A chunk was read; these rows are stored otherwise than chosen.
    Scanned(Vec<Row>),
    /// A batch was committed.
    BatchDone {
        /// Whose it was.
        job: usize,
        /// Rows that were re-toasted; others were locked or no longer there.
        rows: u64,
        /// The transaction: the low half of its number.
        xid: u32,
        /// How long the transaction took.
        took: Duration,
    },
    /// A batch met a lock timeout or a deadlock, and nothing of it was done.
    BatchBusy(usize),
    /// The server refused a batch for what stands in its rows, and nothing of it was done.
    BatchRefused(usize),
    /// A vacuum ended.
    Vacuumed {
        /// Whose it was.
        job: usize,
        /// What was vacuumed, and how long that took; `None` if nothing could be for now.
        done: Option<(Extent, Duration)>,
    },
    /// A job met an error or a stop that ends the sweep.
    Failed(usize),
    /// The scan under way goes on in another snapshot: it proves nothing any more.
    SnapshotLost,
    /// Somebody asked to stop.
    Stop,
}

/// How the sweep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// A whole scan in one snapshot has found that every row is stored as chosen.
    Complete,
    /// Rows are left that are not.
    Left,
    /// Stopped on request.
    Stopped,
}

/// Rows that the scan under way has found stored otherwise than chosen, by what becomes of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Left {
    /// To be re-toasted.
    pub found: u64,
    /// The server has refused them.
    pub refused: u64,
    /// The sweep has re-toasted them, and the judge still wants them otherwise.
    pub disagreeing: u64,
    /// The sweep has re-toasted them, and their toaster has stored values with ordinary pointers: as chosen.
    pub spared: u64,
}

impl Left {
    /// All of them that are not stored as chosen.
    pub fn sum(self) -> u64 {
        self.found + self.refused + self.disagreeing
    }
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Say how many blocks there are.
    BeginScan,
    /// Read these blocks.
    Scan(Range<u32>),
    /// Have this job store these rows anew in one transaction.
    Batch(usize, Vec<Row>),
    /// Have this job re-toast these rows of one block, wherever they are by then, and wait for those that others
    /// hold: rows that are changed so often that no scan's address holds until the batch.
    Insist(usize, Vec<Row>),
    /// Have this job vacuum so much, of which this part of the table may be dead.
    Vacuum(usize, Extent, f64),
    /// Wait until one of the jobs has done what it does.
    Wait,
    /// Wait, with no transaction open.
    Sleep(Duration, Wait),
    /// Nothing more.
    Finish(End),
}
