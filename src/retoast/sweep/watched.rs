//! What the table is known to be set to while it is swept.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::retoast::check::definition::{Definition, Settings};

/// What the table is known to be set to.
#[derive(Debug, Default)]
pub struct Watched(Mutex<Known>);

#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// As the run found it, or as it was before an earlier run that was killed.
    pub(super) before: Option<Settings>,
    /// As the sweep needs it.
    pub(super) now: Option<Definition>,
    /// Whether the run has set anything.
    pub(super) altered: bool,
    /// Whether more than that is set: by an earlier run that was killed, or for new values at the end of this.
    pub(super) more_set: bool,
}

impl Watched {
    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        // whole definitions are put there
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
