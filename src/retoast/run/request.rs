//! What is asked of a run.

use std::path::PathBuf;

use crate::retoast::check::ready::TableRequest;
use crate::retoast::compact::wish::Compaction;
use crate::retoast::pace::keeper::Wants;
use crate::retoast::reindex::wish::Reindex;
use crate::retoast::sweep::options::Options;
use crate::server::about::Access;

/// What is asked of a run; its parts do not contradict each other.
pub(crate) struct Request {
    /// Names and patterns, as psql takes them; none, which only [`Work::Departure`] has: all tables.
    pub(crate) tables: Vec<String>,
    pub(crate) work: Work,
    pub(crate) source: Access,
    pub(crate) options: Options,
    /// Whether files are to get shorter, after what is done to columns.
    pub(crate) compact: Option<Compaction>,
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
