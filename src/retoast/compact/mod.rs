//! `--compact`: returns free space inside the files of a table and its TOAST relation to the operating system, online.
//!
//! Everything beyond the block at which a file without spare space would end is moved to the room in front of that
//! block, the last blocks first; then one VACUUM removes the old versions and truncates the file. While rows are
//! being moved, nothing may be vacuumed that would make room at the end available again. VACUUM also makes the server
//! search for room from the front of the file (`fsm_vacuum_page`, freespace.c), so a VACUUM always comes first.
//!
//! * [`rounds`]: what to do next, and how much to move in one transaction (pure).
//! * [`look`]: what is found in the table and its TOAST relation.
//! * [`values`]: a transaction that moves values; [`pages`]: a transaction that moves rows off pages.
//! * [`run`]: the compaction of a table, and its outcome; [`part`]: the compaction of one of its files.

mod look;
mod pages;
mod part;
mod rounds;
pub(crate) mod run;
mod values;

/// The files to compact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum CompactRequest {
    /// That of the TOAST relation
    Toast,
    /// The table's own
    Heap,
    /// Both
    All,
}

impl CompactRequest {
    /// Whether to compact the TOAST relation.
    pub fn toast(self) -> bool {
        self != CompactRequest::Heap
    }

    /// Whether to compact the table itself.
    pub fn heap(self) -> bool {
        self != CompactRequest::Toast
    }
}
