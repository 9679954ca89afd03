//! The rebuilds that a run has begun, which outlive the sessions that they were begun in.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The indexes, quoted, of which a rebuild was begun that may have left something behind.
#[derive(Debug, Default)]
pub struct Rebuilds(Mutex<BTreeSet<String>>);

impl Rebuilds {
    fn names(&self) -> MutexGuard<'_, BTreeSet<String>> {
        // names are inserted and removed whole
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self, index: &str) {
        self.names().insert(index.to_owned());
    }

    pub(super) fn end(&self, index: &str) {
        self.names().remove(index);
    }

    pub(super) fn has(&self, index: &str) -> bool {
        self.names().contains(index)
    }
}
