//! Why a task could not go on, and what that means for the run.

use std::sync::Arc;

use crate::retoast::check::refusal::Refusal;
use crate::retoast::memory::checkpoint::CheckpointError;
use crate::retoast::memory::remembered::SinceError;
use crate::retoast::pace::error::PaceError;
use crate::retoast::pace::lock_tries::LOCK_TRIES;
use crate::server::LiveError;
use crate::server::connect::Connection;
use crate::server::sink::{Failed, Kind};
use crate::server::sqlstate::is_of_server;

/// Why the sweep could not go on. What was committed stays; the same command goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The server.
    #[error("{0}")]
    Live(LiveError),
    /// Another retoast of the table runs.
    #[error("another retoast of this table is running\nHINT:  Wait for it, or stop it.")]
    Running,
    /// Values differ after they were re-toasted. The batch was rolled back.
    #[error(
        "contents of {rows} rows near {near} would have changed: the batch was rolled back and \
         nothing more is done{generated}"
    )]
    Changed {
        /// Rows of the batch.
        rows: usize,
        /// The first one's address.
        near: String,
        /// Nothing, or a hint about generated columns on a line of its own.
        generated: String,
    },
    /// Fewer rows were updated than were locked.
    #[error("{updated} of {locked} locked rows were updated: a trigger or rule holds rows back")]
    HeldBack {
        /// Rows locked.
        locked: usize,
        /// Rows updated.
        updated: u64,
    },
    /// The table is no longer what it was, or is no longer set as the sweep needs it.
    #[error(
        "{0}\nHINT:  Run the command again; with --enforce it sets storage, compression and \
         toast_tuple_target right by itself."
    )]
    Altered(String),
    /// The table cannot be worked on, or what an UPDATE of it runs or sets off is not approved any more.
    #[error("{0}")]
    Refused(String),
    /// As [`TaskError::Altered`], found in a batch, which does not say what it is.
    #[error("the table was changed by somebody else")]
    Changing,
    /// Somebody has written the table anew, so that what was read of it is of files that it no longer has.
    #[error(
        "the table was rewritten by other sessions again and again\n\
         HINT:  Run the command again once VACUUM FULL, CLUSTER, REPACK and the like have ended."
    )]
    Rewritten,
    /// Some rows cannot be stored as chosen.
    #[error(
        "{rows} {} too long for storage plain, the first at {first}: nothing was changed\n\
         HINT:  Toaster main keeps in the row what fits.",
        if *rows == 1 { "row is" } else { "rows are" }
    )]
    Unfit {
        /// How many.
        rows: u64,
        /// The first one's address.
        first: String,
    },
    /// Something that is watched cannot be measured, or is beyond its limit.
    #[error("{0}")]
    Pace(String),
    /// Waiting for others was given up before anything was done.
    #[error("{0}")]
    Stopped(String),
    /// A connection was lost, and could not be made again.
    #[error("{0}")]
    Lost(String),
    /// Where scanning is cannot be saved.
    #[error("{0}")]
    Checkpoint(#[from] CheckpointError),
    /// The table cannot be locked.
    #[error("no lock for {0} in {LOCK_TRIES} tries\nHINT:  See pg_locks for who holds it.")]
    NoLock(&'static str),
}

impl TaskError {
    /// Whether other tables would meet it too: else it costs only the table that it was met on.
    pub(crate) fn is_of_all(&self) -> bool {
        match self {
            TaskError::Live(LiveError::Server(error)) => is_of_server(error),
            TaskError::Lost(_)
            | TaskError::Stopped(_)
            | TaskError::Pace(_)
            | TaskError::Checkpoint(_)
            | TaskError::Changed { .. } => true,
            TaskError::Live(_)
            | TaskError::Running
            | TaskError::HeldBack { .. }
            | TaskError::Altered(_)
            | TaskError::Changing
            | TaskError::Refused(_)
            | TaskError::Rewritten
            | TaskError::Unfit { .. }
            | TaskError::NoLock(_) => false,
        }
    }
}

impl From<tokio_postgres::Error> for TaskError {
    fn from(error: tokio_postgres::Error) -> TaskError {
        TaskError::Live(error.into())
    }
}

impl From<LiveError> for TaskError {
    fn from(error: LiveError) -> TaskError {
        match error {
            LiveError::Changed => TaskError::Changing,
            other => TaskError::Live(other),
        }
    }
}

impl From<Refusal> for TaskError {
    fn from(refusal: Refusal) -> TaskError {
        match refusal {
            Refusal::Live(error) => error.into(),
            Refusal::Lost(text) => TaskError::Lost(text),
            Refusal::Stopped(text) => TaskError::Stopped(text),
            Refusal::Usage(text) | Refusal::Refused(text) => TaskError::Refused(text),
        }
    }
}

impl From<PaceError> for TaskError {
    fn from(error: PaceError) -> TaskError {
        match error {
            PaceError::Live(error) => error.into(),
            PaceError::Limit(text) => TaskError::Pace(text),
            PaceError::Lost(reason) => TaskError::Lost(reason),
        }
    }
}

impl Refusal {
    /// As it is told. `connections` are those that it may have come from.
    pub(crate) async fn failed(&self, connections: &[Arc<Connection>]) -> Failed {
        match self {
            Refusal::Live(error) => Failed::of(error, connections).await,
            Refusal::Usage(text) => Failed::new(Kind::Usage, text.clone()),
            Refusal::Refused(text) => Failed::new(Kind::Incomplete, text.clone()),
            Refusal::Lost(text) => Failed::new(Kind::Lost, text.clone()),
            Refusal::Stopped(text) => Failed::new(Kind::Stopped, text.clone()),
        }
    }
}

impl TaskError {
    /// As [`Refusal::failed`].
    pub(crate) async fn failed(&self, connections: &[Arc<Connection>]) -> Failed {
        match self {
            TaskError::Live(error) => Failed::of(error, connections).await,
            TaskError::Lost(_) => Failed::new(Kind::Lost, self.to_string()),
            TaskError::Stopped(_) => Failed::new(Kind::Stopped, self.to_string()),
            other => Failed::new(Kind::Incomplete, other.to_string()),
        }
    }
}

impl From<CheckpointError> for Failed {
    fn from(error: CheckpointError) -> Failed {
        let kind = match error {
            CheckpointError::Io { .. } => Kind::Incomplete,
            CheckpointError::Bad(_) | CheckpointError::Foreign { .. } => Kind::Usage,
        };
        Failed::new(kind, error.to_string())
    }
}

/// What is found before the work: the file that was named cannot be used.
impl From<SinceError> for Failed {
    fn from(error: SinceError) -> Failed {
        Failed::new(Kind::Usage, error.to_string())
    }
}
