//! What is reported of indexes.

use serde::Serialize;

/// What became of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum IndexEnd {
    /// It is not much larger than a fresh one.
    Kept,
    /// It is, and was not to be rebuilt.
    Bloated,
    /// It would be rebuilt.
    Planned,
    /// It was rebuilt.
    Rebuilt,
    /// What a fresh one would take is not known.
    NotKnown,
    /// The server cannot rebuild it beside others.
    Refused,
    /// It was to be rebuilt and was not.
    Left,
    /// It was left behind, invalid, by an earlier rebuild, and was dropped.
    Dropped,
    /// It was left behind, invalid, by a rebuild, and is still there.
    Invalid,
}

/// What stands between the reason why an index was not rebuilt and the index that is left of trying.
pub(super) const LEFT_OF_IT: &str = "; the invalid index ";

/// What was found and done about one index. Sizes are those of the main fork, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct IndexReport {
    /// Its name with the schema, quoted.
    pub index: String,
    /// kept: not more than 1.3 times a fresh one; bloated: more, and not to be rebuilt; planned: with --dry-run, it
    /// would be rebuilt; rebuilt; not_known: what a fresh one would take is not known; refused: it cannot be rebuilt
    /// beside others; left: it was to be rebuilt and was not; dropped: an interrupted rebuild of an earlier run had
    /// left it behind; invalid: an interrupted rebuild has left it behind, and it is still there.
    pub ended: IndexEnd,
    /// Its size at the beginning.
    pub before: u64,
    /// What a fresh one would take; null if that is not known.
    pub expected: Option<u64>,
    /// WAL that the rebuild which it needs would write; null if it needs none, or is done.
    pub wal_expected: Option<u64>,
    /// Its size once rebuilt; null if it was not.
    pub after: Option<u64>,
    /// Why it was not rebuilt or dropped, or why its fresh size is not known.
    pub reason: Option<String>,
    /// The statement that is left to do, if there is one.
    pub command: Option<String>,
}

impl IndexReport {
    /// An invalid index is left of the rebuild, which this statement drops.
    pub(crate) fn is_left_with(&mut self, index: &str, drop: String) {
        let reason = self.reason.take().unwrap_or_default();
        self.reason = Some(format!(
            "{reason}{LEFT_OF_IT}{index} is left of it, since it could not be dropped in time"
        ));
        self.command = Some(drop);
    }
}
