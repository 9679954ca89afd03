//! What a check of one relation came to.

use std::collections::HashSet;

use super::code::Severity;
use super::finding::{Finding, Looked};
use crate::disk::ItemPointer;

/// What was looked at, and how much of it is damaged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checked {
    /// The relation.
    pub relation: String,
    /// What was looked at.
    pub looked: Looked,
    /// Findings that are errors.
    pub errors: u64,
    /// Findings that are warnings.
    pub warnings: u64,
    /// Findings that are no damage.
    pub notices: u64,
    /// What was not looked at, and why.
    pub notes: Vec<String>,
    /// Whether something that should be looked at could not be.
    pub is_incomplete: bool,
    /// Chunks that findings of values name.
    pub(super) claimed: HashSet<ItemPointer>,
}

/// Notes that are kept.
const MAX_NOTES: usize = 100;
/// Values that rows refer to and that are kept to find those without a row: 4 bytes each.
pub(super) const MAX_KNOWN: usize = 1 << 28;
/// Why it is not known which chunks no row refers to, where nothing was found to be damaged.
pub(super) const UNREAD: &str = "not all that rows refer to could be read";

impl Checked {
    /// Nothing is looked at yet.
    pub fn of(relation: &str) -> Checked {
        Checked { relation: relation.to_owned(), ..Checked::default() }
    }

    pub(super) fn count(&mut self, finding: &Finding) {
        match finding.code.severity() {
            Severity::Error => self.errors += 1,
            Severity::Warning => self.warnings += 1,
            Severity::Notice => self.notices += 1,
        }
        self.claimed.extend(finding.chunk);
    }

    pub(super) fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if self.notes.len() < MAX_NOTES && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Notes that it is not known of the values of `toast` whether a row refers to them. `is_full`:
    /// there were more than are kept.
    pub(super) fn orphans_unseen(&mut self, toast: &str, is_full: bool) {
        let why = match self.errors {
            0 if is_full => "there are too many",
            0 => UNREAD,
            _ => "damage hides what rows refer to",
        };
        self.orphans_unknown(&format!("all values of {toast}"), why);
    }

    /// Notes that it is not known of some values whether a row refers to them. `values` names them.
    pub(super) fn orphans_unknown(&mut self, values: &str, why: &str) {
        self.note(format!("whether rows refer to {values} is not known: {why}"));
        self.is_incomplete = true;
    }
}
