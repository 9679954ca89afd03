//! What the table is known to be set to while it is swept.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::retoast::check::definition::Definition;

/// What the table is known to be set to.
#[derive(Debug, Default)]
pub struct Watched(Mutex<Known>);

#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// As the run found it.
    pub(super) before: Option<Definition>,
    /// As the sweep needs it.
    pub(super) now: Option<Definition>,
    /// Whether the run has set anything.
    pub(super) altered: bool,
}

impl Watched {
    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        // whole definitions are put there
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
