//! What follows a task on a table (pure).

use crate::retoast::compact::wish::CompactRequest;
use crate::retoast::reindex::wish::Reindex;
use crate::retoast::result::Outcome;

/// A task on one table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Task {
    Convert,
    Compact(CompactRequest),
    Reindex(Reindex),
}

/// The tasks of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Tasks {
    pub(crate) converts: bool,
    pub(crate) compact: Option<CompactRequest>,
    pub(crate) reindex: Reindex,
}

impl Tasks {
    pub(crate) fn first(&self) -> Task {
        match (self.converts, self.compact) {
            (true, _) => Task::Convert,
            (false, Some(request)) => Task::Compact(request),
            (false, None) => Task::Reindex(self.reindex),
        }
    }

    /// The task that follows one which has ended without an error. Files are compacted once all values are stored as
    /// chosen, whether or not that could be seen of their places, which is looked at last. Indexes come last: a
    /// conversion that is not complete has more to add to them.
    pub(crate) fn next(&self, last: Task, outcome: Outcome) -> Option<Task> {
        if let (Task::Convert, Outcome::Complete, Some(request)) = (last, outcome, self.compact) {
            return Some(Task::Compact(request));
        }
        let follows = match (last, outcome) {
            (Task::Reindex(_), _) | (_, Outcome::Stopped | Outcome::Failed) => false,
            (Task::Compact(_), Outcome::Incomplete) => true,
            (Task::Convert, Outcome::Incomplete) => false,
            (_, Outcome::Complete | Outcome::Held | Outcome::Unverified | Outcome::Planned) => true,
        };
        (follows && self.reindex != Reindex::Never).then_some(Task::Reindex(self.reindex))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_depends_on_what_was_done_last_and_how_it_ended() {
        use Outcome::{Complete, Failed, Held, Incomplete, Planned, Stopped, Unverified};
        let request = CompactRequest::All;
        let (compact, reindex) = (Task::Compact(request), Task::Reindex(Reindex::Bloated));
        let all = Tasks { converts: true, compact: Some(request), reindex: Reindex::Bloated };
        assert_eq!(all.first(), Task::Convert);
        let after = |tasks: Tasks, last, outcomes: &[Outcome], next: Option<Task>| {
            for &outcome in outcomes {
                assert_eq!(tasks.next(last, outcome), next, "{last:?} {outcome:?}");
            }
        };
        after(all, Task::Convert, &[Complete], Some(compact));
        after(all, Task::Convert, &[Planned, Unverified, Held], Some(reindex));
        after(all, Task::Convert, &[Incomplete, Stopped, Failed], None);
        after(all, compact, &[Complete, Held, Incomplete, Planned], Some(reindex));
        after(all, compact, &[Stopped, Failed], None);
        after(all, reindex, &[Complete, Incomplete, Stopped], None);
        let files = Tasks { converts: false, reindex: Reindex::Never, ..all };
        assert_eq!(files.first(), compact);
        after(files, compact, &[Complete, Incomplete], None);
        let indexes = Tasks { compact: None, reindex: Reindex::All, ..files };
        assert_eq!(indexes.first(), Task::Reindex(Reindex::All));
        let values = Tasks { converts: true, ..indexes };
        after(values, Task::Convert, &[Complete, Planned], Some(Task::Reindex(Reindex::All)));
        after(values, Task::Convert, &[Incomplete], None);
    }
}
