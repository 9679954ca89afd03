//! Why a run of `retoast`, or work on one of its tables, cannot go on.

use std::sync::Arc;

use crate::judge::pluggable::PlanError;
use crate::server::LiveError;
use crate::server::connect::{ConnectError, Connection};
use crate::server::sink::{Failed, Kind};
use crate::server::sqlstate::is_of_server;

/// Why it cannot go on. What was committed stays; the same command goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum RetoastError {
    /// The server.
    #[error("{0}")]
    Live(LiveError),
    /// What is asked for makes no sense.
    #[error("{0}")]
    Usage(String),
    /// Something stands against work on this table.
    #[error("{0}")]
    Refused(String),
    /// What all tables would meet: something that is watched cannot be measured or is beyond its limit, a file cannot be
    /// written, contents would have changed.
    #[error("{0}")]
    OfAll(String),
    /// Waiting for others was given up before anything was done.
    #[error("{0}")]
    Stopped(String),
    /// A connection was lost, and could not be made again.
    #[error("{0}")]
    Lost(String),
    /// Somebody has written the table's definition, as a transaction finds that does not say what it is.
    #[error("the table was changed by another session")]
    Changing,
    /// Somebody has written the table anew, so that what was read of it is of files that it no longer has.
    #[error(
        "the table was rewritten by other sessions several times\n\
         HINT:  Run the command again once VACUUM FULL, CLUSTER, REPACK and the like have ended."
    )]
    Rewritten,
}

impl RetoastError {
    /// The table is no longer what it was, or is no longer set as the work needs it.
    pub(crate) fn altered(what: impl std::fmt::Display) -> RetoastError {
        RetoastError::Refused(format!(
            "{what}\n\
             HINT:  Run the command again. With --set enforce=on, toastctl restores storage, compression and \
             toast_tuple_target itself."
        ))
    }

    /// As [`RetoastError::altered`], of a table that is gone.
    pub(crate) fn dropped() -> RetoastError {
        RetoastError::altered("the table was dropped by another session")
    }

    /// Whether other tables would meet it too: else it costs only the table that it was met on.
    pub(crate) fn is_of_all(&self) -> bool {
        match self {
            RetoastError::Live(LiveError::Server(error)) => is_of_server(error),
            RetoastError::Lost(_) | RetoastError::Stopped(_) | RetoastError::OfAll(_) => true,
            RetoastError::Live(_)
            | RetoastError::Usage(_)
            | RetoastError::Refused(_)
            | RetoastError::Changing
            | RetoastError::Rewritten => false,
        }
    }

    /// As it is told. `connections` are those that it may have come from.
    pub(crate) async fn failed(&self, connections: &[Arc<Connection>]) -> Failed {
        let kind = match self {
            RetoastError::Live(error) => return Failed::of(error, connections).await,
            RetoastError::Usage(_) => Kind::Usage,
            RetoastError::Lost(_) => Kind::Lost,
            RetoastError::Stopped(_) => Kind::Stopped,
            _ => Kind::Incomplete,
        };
        Failed::new(kind, self.to_string())
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
        RetoastError::Usage(error.to_string())
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
            Kind::Incomplete => RetoastError::OfAll(message),
            Kind::Usage => RetoastError::Usage(message),
            Kind::Lost => RetoastError::Lost(message),
            Kind::Stopped => RetoastError::Stopped(message),
        }
    }
}

/// Refuses a table.
pub(crate) fn refused<T>(text: impl Into<String>) -> Result<T, RetoastError> {
    Err(RetoastError::Refused(text.into()))
}
