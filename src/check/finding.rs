//! One finding: what is damaged, where, and by what it is seen.

use std::fmt;

use super::code::Code;
use crate::disk::ItemPointer;
use crate::heap::problem::Place;

/// Something that is not as a server leaves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What kind of damage.
    pub code: Code,
    /// Where: bytes count from the tuple's start where an item is named, else from the page's.
    pub place: Place,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
    /// The chunk that is damaged, where the place is that of the value.
    pub chunk: Option<ItemPointer>,
    /// The statement that repairs it, where there is one that loses nothing.
    pub sql: Option<String>,
}

impl Finding {
    /// A finding at `place`.
    pub fn new(
        code: Code,
        place: Place,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Finding {
        Finding {
            code,
            place,
            expected: expected.into(),
            found: found.into(),
            chunk: None,
            sql: None,
        }
    }

    /// Whether both are the same damage at the same place, as seen at two times.
    pub fn is_same(&self, other: &Finding) -> bool {
        self.code == other.code && self.place == other.place
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { code, place, expected, found, .. } = self;
        write!(f, "{place}: {} {}: expected {expected}, found {found}", code.name(), code.title())
    }
}

/// What was looked at in one relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Looked {
    /// Blocks of the relation.
    pub blocks: u64,
    /// Blocks of its TOAST relation.
    pub toast_blocks: u64,
    /// Rows that are live.
    pub rows: u64,
    /// Rows of which no hint bit and no commit status says whether they are live.
    pub undecided: u64,
    /// Values out of line whose chunks were looked at.
    pub values: u64,
    /// Their chunks.
    pub chunks: u64,
    /// Values that were decompressed.
    pub decompressed: u64,
    /// Bytes that they gave.
    pub raw_bytes: u64,
}

impl Looked {
    /// Adds another part.
    pub fn add(&mut self, other: &Looked) {
        self.blocks += other.blocks;
        self.toast_blocks += other.toast_blocks;
        self.rows += other.rows;
        self.undecided += other.undecided;
        self.values += other.values;
        self.chunks += other.chunks;
        self.decompressed += other.decompressed;
        self.raw_bytes += other.raw_bytes;
    }
}
