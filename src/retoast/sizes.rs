//! Sizes of a table and its parts.

use serde::Serialize;

/// Sizes of a table's parts in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct Sizes {
    /// The table's main fork.
    pub heap: u64,
    /// The TOAST relation.
    pub toast: u64,
    /// The table's indexes and the TOAST relation's.
    pub indexes: u64,
}

impl Sizes {
    /// All together.
    pub fn sum(self) -> u64 {
        self.heap.saturating_add(self.toast).saturating_add(self.indexes)
    }

    /// The larger of each.
    pub fn max(self, other: Sizes) -> Sizes {
        Sizes {
            heap: self.heap.max(other.heap),
            toast: self.toast.max(other.toast),
            indexes: self.indexes.max(other.indexes),
        }
    }
}
