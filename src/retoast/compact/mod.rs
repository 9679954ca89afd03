//! `--compact`: returns free space inside the files of a table and its TOAST relation to the operating system, online.
//!
//! What stands behind the block that would be the end of a file without room to spare is moved to the room in
//! front, last blocks first; then one VACUUM removes what is left behind and truncates the file. While rows are
//! moved nothing may be vacuumed that would hand out room at the end again. VACUUM also has the server search
//! for room from the front on (`fsm_vacuum_page`, freespace.c), so that one always comes before.
//!
//! * [`rounds`]: what to do next, and how much one transaction moves (pure).
//! * [`look`]: what looks at the table and its TOAST relation find.
//! * [`values`]: one transaction that moves values; [`pages`]: one that moves rows off pages.
//! * [`run`]: doing it to one table, and how it ended; [`part`]: to one of its files.

mod look;
mod pages;
mod part;
mod rounds;
pub(crate) mod run;
mod values;

/// Which files are to get shorter.
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
    /// Whether the TOAST relation is among them.
    pub fn toast(self) -> bool {
        self != CompactRequest::Heap
    }

    /// Whether the table itself is among them.
    pub fn heap(self) -> bool {
        self != CompactRequest::Toast
    }
}
