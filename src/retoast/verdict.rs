//! How work on a table ended, and what is left to do (pure). The report's headline and the exit code are made from it.

use serde::Serialize;

/// How work on a table ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A whole scan found that all values comply.
    Complete,
    /// A whole scan found nothing left to do, but could not see which values are out of line, although the requested
    /// settings depend on it.
    Unverified,
    /// All values are stored as requested, but other sessions keep space from being returned.
    Held,
    /// Values are left that do not comply.
    Incomplete,
    /// Stopped on request.
    Stopped,
    /// It was only planned.
    Planned,
    /// An error ended it.
    Failed,
}

/// How the work on one file ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FileEnd {
    /// The free space left is less than a round must return.
    Compact,
    /// There is more free space, but what is at the end of the file does not fit there; no other session was in the
    /// way.
    NoRoom,
    /// There is more free space, and only other sessions are in the way: their locks, snapshots, or rows.
    Held,
    /// There is more free space, but the last round returned too little.
    GainedTooLittle,
    /// Stopped on request.
    Stopped,
    /// It was only planned.
    Planned,
    /// An error ended it.
    #[default]
    Failed,
}

/// What became of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum IndexEnd {
    /// It is not much larger than after a rebuild.
    Kept,
    /// It is much larger, and a rebuild was not requested.
    Bloated,
    /// It would be rebuilt.
    Planned,
    /// It was rebuilt.
    Rebuilt,
    /// Its size after a rebuild is not known.
    NotKnown,
    /// The server cannot rebuild it concurrently.
    Refused,
    /// It should have been rebuilt, but was not.
    Left,
    /// It was left behind, invalid, by an earlier rebuild, and was dropped.
    Dropped,
    /// It was left behind, invalid, by a rebuild, and is still there.
    Invalid,
}

/// What was asked for first, as the report is headed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Headed {
    Convert,
    Compact,
    Reindex,
}

impl FileEnd {
    /// Whether nothing more can be returned.
    pub(crate) fn is_done(self) -> bool {
        matches!(self, FileEnd::Compact | FileEnd::NoRoom)
    }
}

impl IndexEnd {
    /// Whether it was to be rebuilt or dropped, and was not.
    pub(crate) fn is_left(self) -> bool {
        matches!(self, IndexEnd::Left | IndexEnd::Invalid)
    }
}

impl Outcome {
    /// Of the compaction of all files together.
    pub(crate) fn of_files(ends: &[FileEnd]) -> Outcome {
        let by_end = [
            (FileEnd::Failed, Outcome::Failed),
            (FileEnd::Stopped, Outcome::Stopped),
            (FileEnd::Planned, Outcome::Planned),
            (FileEnd::GainedTooLittle, Outcome::Incomplete),
            (FileEnd::Held, Outcome::Held),
        ];
        let found = by_end.into_iter().find(|(end, _)| ends.contains(end));
        found.map_or(Outcome::Complete, |(_, outcome)| outcome)
    }

    /// Of rebuilding all indexes; what is refused cannot be had by trying again.
    pub(crate) fn of_indexes(ends: &[IndexEnd], dry_run: bool, stopped: bool) -> Outcome {
        match (dry_run, stopped) {
            (true, _) => Outcome::Planned,
            (false, true) => Outcome::Stopped,
            _ if ends.iter().any(|end| end.is_left()) => Outcome::Incomplete,
            _ => Outcome::Complete,
        }
    }

    /// Of a task that ended so and the one that followed, the compaction of files or the rebuilding of indexes.
    pub(crate) fn then(self, later: Headed, outcome: Outcome) -> Outcome {
        let is_fine = matches!(
            outcome,
            Outcome::Complete | Outcome::Planned | Outcome::Unverified | Outcome::Held
        );
        match later {
            Headed::Reindex if is_fine => self,
            Headed::Compact if self != Outcome::Complete => self,
            _ => outcome,
        }
    }
}

/// What is left to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    Nothing,
    /// Rows that are not stored as requested.
    Rows(u64),
    /// Part of the table could not be read.
    Unread,
    /// Indexes that were to be rebuilt or dropped.
    Indexes(usize),
    /// Bytes of files that could be returned.
    Space(u64),
}

/// How work on a table ended, and what is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    pub end: Outcome,
    pub left: Left,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_file_decides() {
        use FileEnd::{Compact, Failed, GainedTooLittle, Held, NoRoom, Planned, Stopped};
        assert_eq!(Outcome::of_files(&[Compact, Compact]), Outcome::Complete);
        assert_eq!(Outcome::of_files(&[GainedTooLittle, Compact]), Outcome::Incomplete);
        assert_eq!(Outcome::of_files(&[NoRoom, Compact]), Outcome::Complete);
        assert_eq!(Outcome::of_files(&[NoRoom, Held]), Outcome::Held);
        assert_eq!(Outcome::of_files(&[GainedTooLittle, Held]), Outcome::Incomplete);
        assert_eq!(Outcome::of_files(&[Held, Stopped]), Outcome::Stopped);
        assert_eq!(Outcome::of_files(&[Compact, Stopped]), Outcome::Stopped);
        assert_eq!(Outcome::of_files(&[Planned, Planned]), Outcome::Planned);
        assert_eq!(Outcome::of_files(&[Compact, Failed]), Outcome::Failed);
        assert_eq!(Outcome::of_files(&[]), Outcome::Complete);
    }

    #[test]
    fn indexes_that_are_left_decide() {
        use IndexEnd::{Dropped, Invalid, Kept, Left, NotKnown, Rebuilt, Refused};
        let ended = |ends: &[IndexEnd]| Outcome::of_indexes(ends, false, false);
        assert_eq!(ended(&[Kept, Rebuilt, NotKnown, Refused, Dropped]), Outcome::Complete);
        assert_eq!(ended(&[Rebuilt, Left]), Outcome::Incomplete);
        assert_eq!(ended(&[Invalid]), Outcome::Incomplete);
        assert_eq!(Outcome::of_indexes(&[Rebuilt], false, true), Outcome::Stopped);
        assert_eq!(Outcome::of_indexes(&[], true, false), Outcome::Planned);
    }
}
