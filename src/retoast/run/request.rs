//! The request of a run, how its scans read, and which task follows which on a table (pure).

use std::path::PathBuf;

use crate::message::Message;
use crate::retoast::compact::CompactRequest;
use crate::retoast::error::{Result, RetoastError};
use crate::retoast::forecast::Afterwards;
use crate::retoast::pace::throttle::ThrottleOptions;
use crate::retoast::preflight::owner::Approval;
use crate::retoast::preflight::ready::{ConvertRequest, Task};
use crate::retoast::reindex::Reindex;
use crate::retoast::result::Outcome;
use crate::retoast::run::results::Results;
use crate::retoast::task::session::Options;
use crate::server::about::Access;
use crate::server::{Pageinspect, Server};

/// How many tables are examined together.
pub(super) const AT_ONCE: usize = 256;

/// The request of a run; its parts do not contradict each other.
#[derive(Clone)]
pub(crate) struct Request {
    /// Names and patterns as in psql; none (all tables) only with [`Assignment::Departure`].
    pub(crate) tables: Vec<String>,
    pub(crate) work: Assignment,
    pub(crate) approval: Approval,
    pub(crate) source: Access,
    pub(crate) options: Options,
    pub(crate) throttle: ThrottleOptions,
    /// How many tables are processed at the same time.
    pub(crate) parallel_tables: u16,
    /// The file that records how far scans have come.
    pub(crate) checkpoint: Option<PathBuf>,
    /// The file that records what earlier runs with a policy have proven.
    pub(crate) since: Option<PathBuf>,
}

/// What the run does.
#[derive(Clone)]
pub(crate) enum Assignment {
    /// These tasks on each table.
    Tables(Tasks),
    /// Converts everything that the toaster of `pg_toaster` of this name has stored.
    Departure(String),
}

impl Request {
    /// The tables, and what is done to them.
    pub(crate) fn text(&self) -> String {
        let tables = self.tables.join(" ");
        let Tasks { convert, compact, reindex } = match &self.work {
            Assignment::Departure(toaster) => return format!("{tables} from toaster {toaster}"),
            Assignment::Tables(tasks) => tasks,
        };
        let mut parts = Vec::new();
        if let Some(ConvertRequest { columns, goal, target, .. }) = convert {
            let target = target.map(|bytes| format!(", target {bytes}")).unwrap_or_default();
            let columns = if columns.is_empty() { "all columns" } else { &columns.join(", ") };
            parts.push(format!("{columns} to {}{target}", goal.choice()));
        }
        parts.extend(compact.map(|files| format!("compact {files:?}")));
        if *reindex != Reindex::Never {
            parts.push(format!("reindex {reindex:?}"));
        }
        format!("{tables}: {}", parts.join("; "))
    }
}

/// What reads pages for scans, if pages are requested and can be read.
///
/// # Errors
/// Pages are requested and cannot be read.
pub(crate) fn pages<'a>(
    server: &'a Server,
    wanted: Access,
    results: &Results<'_>,
) -> Result<Option<&'a Pageinspect>> {
    let why = server.why_no_pages();
    if let Some(why) = why {
        tracing::debug!("pages cannot be read: {why}");
    }
    match (why, wanted) {
        (_, Access::Functions) => Ok(None),
        (None, _) => Ok(server.pageinspect.as_ref()),
        (Some(why), Access::Pageinspect) => {
            Err(RetoastError::end_run(format!("pages cannot be read: {why}")))
        }
        (Some(why), Access::Auto) => {
            results.message(Message::notice(format!("using SQL functions: {why}")));
            Ok(None)
        }
    }
}

/// Fails unless scans read pages, because SQL functions do not show which toaster stored a value.
///
/// # Errors
/// Scans do not read pages.
pub(crate) fn need_pages(pages: Option<&Pageinspect>) -> Result<&Pageinspect> {
    pages.ok_or_else(|| {
        RetoastError::end_run(
            "toastctl must read pages here: only pages show which toaster of pg_toaster stored a value\n\
             HINT:  Run as a superuser, with the extension pageinspect in this database.",
        )
    })
}

/// The tasks of a run on each table, in their order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tasks {
    pub(crate) convert: Option<ConvertRequest>,
    pub(crate) compact: Option<CompactRequest>,
    pub(crate) reindex: Reindex,
}

impl Tasks {
    pub(crate) fn first(&self) -> Task<'_> {
        match (&self.convert, self.compact) {
            (Some(request), _) => Task::Convert(request),
            (None, Some(request)) => Task::Compact(request),
            (None, None) => Task::Reindex(self.reindex),
        }
    }

    /// What follows a conversion.
    pub(crate) fn afterwards(&self) -> Afterwards {
        Afterwards { compact: self.compact, rebuilds: self.reindex != Reindex::Never }
    }

    /// The columns named by the user.
    pub(crate) fn columns(&self) -> &[String] {
        self.convert.as_ref().map_or(&[], |request| &request.columns)
    }

    /// The task that follows one that ended without an error. Files are compacted once all values are stored as chosen,
    /// even if scans could not see which values are out of line, because that is considered only in the final outcome.
    /// Indexes come last, because a conversion that is not complete will add more entries to them.
    pub(crate) fn next<'a>(&'a self, last: Task<'_>, outcome: Outcome) -> Option<Task<'a>> {
        if let (Task::Convert(_), Outcome::Complete, Some(request)) = (last, outcome, self.compact)
        {
            return Some(Task::Compact(request));
        }
        let follows = match (last, outcome) {
            (Task::Reindex(_), _) | (_, Outcome::Stopped | Outcome::Failed) => false,
            (Task::Compact(_), Outcome::Incomplete) => true,
            (Task::Convert(_), Outcome::Incomplete) => false,
            (_, Outcome::Complete | Outcome::Held | Outcome::Unverified | Outcome::Planned) => true,
        };
        (follows && self.reindex != Reindex::Never).then_some(Task::Reindex(self.reindex))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toast_format::judge::goal::Goal;
    use toast_format::judge::toaster::Toaster;

    #[test]
    fn what_follows_depends_on_what_was_done_last_and_how_it_ended() {
        use Outcome::{Complete, Failed, Held, Incomplete, Planned, Stopped, Unverified};
        let request = CompactRequest::All;
        let compact = Task::Compact(request);
        let reindex = Task::Reindex(Reindex::Bloated);
        let wanted = ConvertRequest {
            columns: vec!["v".to_owned()],
            goal: Goal::Stock(Toaster::External),
            target: None,
            no_alter: false,
            sets_citus_table: false,
        };
        let convert = Task::Convert(&wanted);
        let all = Tasks {
            convert: Some(wanted.clone()),
            compact: Some(request),
            reindex: Reindex::Bloated,
        };
        assert_eq!(all.first(), convert);
        let after = |tasks: &Tasks, last, outcomes: &[Outcome], next: Option<Task<'_>>| {
            for &outcome in outcomes {
                assert_eq!(tasks.next(last, outcome), next, "{last:?} {outcome:?}");
            }
        };
        after(&all, convert, &[Complete], Some(compact));
        after(&all, convert, &[Planned, Unverified, Held], Some(reindex));
        after(&all, convert, &[Incomplete, Stopped, Failed], None);
        after(&all, compact, &[Complete, Held, Incomplete, Planned], Some(reindex));
        after(&all, compact, &[Stopped, Failed], None);
        after(&all, reindex, &[Complete, Incomplete, Stopped], None);
        let files = Tasks { convert: None, reindex: Reindex::Never, ..all.clone() };
        assert_eq!(files.first(), compact);
        after(&files, compact, &[Complete, Incomplete], None);
        let indexes = Tasks { compact: None, reindex: Reindex::All, ..files };
        assert_eq!(indexes.first(), Task::Reindex(Reindex::All));
        let values = Tasks { convert: all.convert, ..indexes };
        after(&values, convert, &[Complete, Planned], Some(Task::Reindex(Reindex::All)));
        after(&values, convert, &[Incomplete], None);
    }
}
