//! What jobs do.

use super::terms::Row;

/// What a job does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Work {
    Nothing,
    Batch {
        batch: Batch,
        /// The oldest batch that was under way when this one began, itself counted: what that one and
        /// all later ones leave behind cannot be pruned until this one has ended.
        pins: u64,
    },
    Vacuum,
}

/// Rows of one window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) window: u32,
    pub(super) rows: Vec<Row>,
    /// Whether rows are waited for.
    pub(super) insists: bool,
    /// Its number, once it has begun.
    pub(super) number: u64,
}

impl Batch {
    pub(super) fn new(window: u32, rows: Vec<Row>) -> Batch {
        Batch { window, rows, insists: false, number: 0 }
    }
}
