//! The reasons for ending a run of `retoast`, or the work on one of its tables.

use std::sync::Arc;

use crate::message::Message;
use crate::server::connect::ConnectError;
use crate::server::sink::{Failed, Kind};
use crate::server::sqlstate::is_of_server;
use crate::server::{Connection, LiveError};
use toast_format::judge::pluggable::PlanError;

/// What the work on tables returns.
pub(crate) type Result<T, E = RetoastError> = std::result::Result<T, E>;

/// Why work cannot continue. What was committed remains; the same command continues from there.
#[derive(Debug, thiserror::Error)]
pub enum RetoastError {
    /// An error of the server or the connection.
    #[error("{0}")]
    Live(LiveError),
    /// The request is invalid.
    #[error("{0}")]
    Usage(Message),
    /// The table cannot be processed.
    #[error("{0}")]
    Refused(Message),
    /// Rows with values stored as requested would not fit an index, and new ones neither.
    #[error("{0}")]
    Unfit(Message),
    /// An error that would affect all tables: a limit is exceeded or cannot be monitored, a file cannot be written, or
    /// contents would have changed.
    #[error("{0}")]
    EndsRun(Message),
    /// A wait for other sessions was given up before anything was done.
    #[error("{0}")]
    Stopped(Message),
    /// A connection was lost and could not be replaced.
    #[error("{0}")]
    Lost(Message),
    /// A stop was requested while files were compacted.
    #[error("a stop was requested")]
    StopRequested,
    /// The definition of the table was updated. The transaction that noticed this does not know what has changed.
    #[error("the table was changed by another session")]
    Changing,
    /// The table was rewritten, so that what was read came from files that no longer belong to it.
    #[error(
        "the table was rewritten by other sessions several times\n\
         HINT:  Run the command again once VACUUM FULL, CLUSTER, REPACK and the like have ended."
    )]
    Rewritten,
}

impl RetoastError {
    /// The table was changed in ways that the run cannot go on with.
    pub(crate) fn altered(what: &str) -> RetoastError {
        RetoastError::Refused(Message::error(what).hint("Run the command again."))
    }

    pub(crate) fn usage(text: impl Into<String>) -> RetoastError {
        RetoastError::Usage(Message::error(text))
    }

    pub(crate) fn end_run(text: impl Into<String>) -> RetoastError {
        RetoastError::EndsRun(Message::error(text))
    }

    pub(crate) fn lost(reason: impl Into<String>) -> RetoastError {
        RetoastError::Lost(Message::error(reason))
    }

    /// Like [`RetoastError::altered`], for a table that was dropped.
    pub(crate) fn dropped() -> RetoastError {
        RetoastError::altered("the table was dropped by another session")
    }

    /// Whether the error would affect other tables too, not only the one where it occurred.
    pub(crate) fn ends_run(&self) -> bool {
        match self {
            RetoastError::Live(LiveError::Server(error)) => is_of_server(error),
            RetoastError::Lost(_) | RetoastError::Stopped(_) | RetoastError::EndsRun(_) => true,
            RetoastError::Live(_)
            | RetoastError::Usage(_)
            | RetoastError::Refused(_)
            | RetoastError::Unfit(_)
            | RetoastError::StopRequested
            | RetoastError::Changing
            | RetoastError::Rewritten => false,
        }
    }

    /// The error as it is reported. `connections` are those on which it may have occurred.
    pub(crate) async fn failed(&self, connections: &[Arc<Connection>]) -> Failed {
        let (kind, message) = match self {
            RetoastError::Live(error) => return Failed::of(error, connections).await,
            RetoastError::Usage(message) => (Kind::Usage, message),
            RetoastError::Lost(message) => (Kind::Lost, message),
            RetoastError::Stopped(message) => (Kind::Stopped, message),
            RetoastError::Refused(message)
            | RetoastError::Unfit(message)
            | RetoastError::EndsRun(message) => (Kind::Incomplete, message),
            RetoastError::StopRequested => return Failed::stopped(),
            RetoastError::Changing | RetoastError::Rewritten => {
                return Failed::new(Kind::Incomplete, self.to_string());
            }
        };
        Failed { kind, message: message.clone() }
    }

    /// Like [`RetoastError::failed`], for an error of the work on this table.
    pub(crate) async fn failed_on(&self, table: &str, connections: &[Arc<Connection>]) -> Failed {
        self.failed(connections).await.placed(table)
    }
}

impl From<LiveError> for RetoastError {
    fn from(error: LiveError) -> RetoastError {
        match error {
            LiveError::Changed => RetoastError::Changing,
            other => RetoastError::Live(other),
        }
    }
}

impl From<tokio_postgres::Error> for RetoastError {
    fn from(error: tokio_postgres::Error) -> RetoastError {
        RetoastError::Live(error.into())
    }
}

impl From<PlanError> for RetoastError {
    fn from(error: PlanError) -> RetoastError {
        RetoastError::usage(error.to_string())
    }
}

impl From<ConnectError> for RetoastError {
    fn from(error: ConnectError) -> RetoastError {
        Failed::from(&error).into()
    }
}

impl From<Failed> for RetoastError {
    fn from(Failed { kind, message }: Failed) -> RetoastError {
        match kind {
            Kind::Incomplete | Kind::Denied => RetoastError::EndsRun(message),
            Kind::Usage => RetoastError::Usage(message),
            Kind::Lost => RetoastError::Lost(message),
            Kind::Stopped => RetoastError::Stopped(message),
        }
    }
}

/// Returns an error that refuses the work, for a reason that does not depend on the table or whose text names it.
pub(crate) fn refused<T>(text: impl Into<String>) -> Result<T> {
    Err(RetoastError::Refused(Message::error(text)))
}

/// Returns an error about rows that would not fit an index.
pub(crate) fn unfit<T>(text: impl Into<String>) -> Result<T> {
    Err(RetoastError::Unfit(Message::error(text)))
}

/// Returns an error that refuses this table.
pub(crate) fn refused_table<T>(table: &str, text: impl Into<String>) -> Result<T> {
    Err(RetoastError::Refused(Message::error(text).about(table)))
}
