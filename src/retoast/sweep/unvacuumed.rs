//! What VACUUM cannot get through for damage, so that it is not tried again and again.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The parts of a table, with what the server says of those that it cannot vacuum.
#[derive(Debug, Default)]
pub struct Unvacuumed(Mutex<Parts>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Parts {
    /// Why the table with its indexes cannot be vacuumed.
    pub(super) table: Option<String>,
    /// Why its TOAST relation cannot be.
    pub(super) toast: Option<String>,
}

impl Parts {
    /// Whether nothing is known to be in the way.
    pub(super) fn is_whole(&self) -> bool {
        *self == Parts::default()
    }
}

impl Unvacuumed {
    pub(super) fn parts(&self) -> MutexGuard<'_, Parts> {
        // what stands there is only ever set whole
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be said of them.
    pub(super) fn told(&self) -> Vec<String> {
        let Parts { table, toast } = &*self.parts();
        let of = |what: &str, why: &Option<String>| {
            why.as_ref().map(|why| format!("VACUUM of {what} is not possible: {why}"))
        };
        of("the table", table).into_iter().chain(of("its TOAST relation", toast)).collect()
    }
}
