//! What is asked of a run, what its scans go by, and which task follows which on a table (pure).

use std::path::PathBuf;

use crate::retoast::check::ready::TableRequest;
use crate::retoast::compact::CompactRequest;
use crate::retoast::pace::keeper::Wants;
use crate::retoast::reindex::Reindex;
use crate::retoast::result::{Outcome, Results};
use crate::retoast::sweep::scan_source::ScanSource;
use crate::retoast::task::session::Options;
use crate::server::about::{Pageinspect, Server};
use crate::server::sink::{Failed, Kind};

/// What is asked of a run; its parts do not contradict each other.
pub(crate) struct Request {
    /// Names and patterns, as psql takes them; none, which only [`Work::Departure`] has: all tables.
    pub(crate) tables: Vec<String>,
    pub(crate) work: Work,
    pub(crate) source: Source,
    pub(crate) options: Options,
    /// Whether files are to get shorter, after what is done to columns.
    pub(crate) compact: Option<CompactRequest>,
    /// Which indexes are rebuilt, after that.
    pub(crate) reindex: Reindex,
    /// What it leaves to others.
    pub(crate) wants: Wants,
    /// How many tables are swept side by side.
    pub(crate) parallel_tables: u16,
    /// Where it is kept how far scanning is.
    pub(crate) checkpoint: Option<PathBuf>,
    /// What earlier runs by a policy have proven.
    pub(crate) since: Option<PathBuf>,
}

/// What is done.
pub(crate) enum Work {
    /// Columns are brought to what is wanted of them.
    Columns(TableRequest),
    /// Everything is taken from a toaster of `pg_toaster`.
    Departure(DepartureRequest),
}

/// The toaster that everything is taken from.
#[derive(Debug, Clone)]
pub(crate) struct DepartureRequest {
    pub(crate) toaster: String,
    /// Go on although triggers will fire.
    pub(crate) allow_triggers: bool,
    /// Run code of the tables' owners with the user's rights.
    pub(crate) trust_owner_code: bool,
}

/// What the user wants scans to go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Pages where that is possible, else SQL functions.
    Auto,
    Pageinspect,
    Functions,
}

/// What scans can go by, of what is wanted.
///
/// # Errors
/// Pages are wanted and cannot be read.
pub(crate) fn source(
    server: &Server,
    wanted: Source,
    results: &Results<'_>,
) -> Result<ScanSource, Failed> {
    let why = if !server.superuser {
        "pageinspect needs a superuser"
    } else if server.pageinspect.is_none() {
        "the extension pageinspect is not installed in this database"
    } else {
        ""
    };
    tracing::debug!(
        "scans: {wanted:?} is wanted; pages: {}",
        if why.is_empty() { "yes" } else { why }
    );
    match (&server.pageinspect, wanted) {
        (_, Source::Functions) => Ok(ScanSource::Functions),
        (Some(pageinspect), _) if why.is_empty() => Ok(ScanSource::Pages(pageinspect.clone())),
        (_, Source::Pageinspect) => {
            Err(Failed::new(Kind::Incomplete, format!("pages cannot be read: {why}")))
        }
        (_, Source::Auto) => {
            results.notice(&format!("notice: using SQL functions: {why}"));
            Ok(ScanSource::Functions)
        }
    }
}

/// SQL functions do not tell which toaster wrote a value.
///
/// # Errors
/// Pages are not what scans go by.
pub(crate) fn need_pages(source: &ScanSource) -> Result<&Pageinspect, Failed> {
    match source {
        ScanSource::Pages(pageinspect) => Ok(pageinspect),
        ScanSource::Functions => Err(Failed::new(
            Kind::Incomplete,
            "pages must be read here: nothing else tells which toaster of pg_toaster stored a value\n\
             HINT:  Run as a superuser, with the extension pageinspect in this database.",
        )),
    }
}

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
