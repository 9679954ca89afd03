//! Where a run over the relations of a server puts what it finds, and what its errors mean for the rest.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::error::SqlState;

use super::connect::Connection;
use super::{LiveError, locks};
use crate::disk::Oid;

/// How long a statement may take to be stopped when nobody waits for its result any more.
const CANCEL_PATIENCE: Duration = Duration::from_secs(2);

/// What a failure means for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Something could not be read or done; what does not depend on it can.
    Incomplete,
    /// What was asked for makes no sense.
    Usage,
    /// The server is gone.
    Lost,
    /// Stopped on request.
    Stopped,
}

/// A failure, with the relation that it happened to in front of the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) kind: Kind,
    pub(crate) message: String,
}

/// Why a run ended before its end.
#[derive(Debug)]
pub(crate) enum RunError {
    Failed(Failed),
    /// The output cannot be written, or nobody reads it any more.
    Output(io::Error),
}

impl From<Failed> for RunError {
    fn from(failed: Failed) -> RunError {
        RunError::Failed(failed)
    }
}

/// Receives what a run finds, as it finds it. Whatever a sink was given stays, however the run ends.
pub(crate) trait Sink<R>: Send {
    /// One result is finished. An error ends the run.
    fn found(&mut self, result: R) -> io::Result<()>;
    /// One relation, or a part of it, could not be done; the run goes on.
    fn failed(&mut self, failed: Failed);
    /// Something that the user should know meanwhile.
    fn notice(&mut self, text: &str);
}

impl Failed {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Failed {
        Failed { kind, message: message.into() }
    }

    pub(crate) fn stopped() -> Failed {
        Failed::new(Kind::Stopped, "stopped")
    }

    /// What the server's answer means, met while `place` (a relation, with the block where that is known) was
    /// read over `connections`: it may be the last that it said. `relation` is who is asked about where a lock
    /// was not to be had.
    pub(crate) async fn at(
        place: &str,
        relation: Oid,
        error: &LiveError,
        connections: &[Arc<Connection>],
    ) -> Failed {
        let LiveError::Server(statement) = error else {
            return Failed::new(Kind::Incomplete, format!("{place}: {error}"));
        };
        for connection in connections {
            if statement.as_db_error().is_none() || connection.is_lost() {
                let explained = connection.explain(statement).await;
                if connection.is_lost() {
                    return Failed::new(Kind::Lost, format!("{place}: {explained}"));
                }
            }
        }
        let mut message = format!("{place}: {error}");
        if statement.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
            && let Some(connection) = connections.first()
        {
            message.push_str(&locks::explained(connection, relation).await);
        }
        Failed::new(Kind::Incomplete, message)
    }
}

/// Does `work` to its end unless `interrupt` comes first: then the statements that run on its connections are
/// stopped, and so is the work.
pub(crate) async fn until<T>(
    interrupt: impl Future<Output = ()>,
    connections: &[Arc<Connection>],
    work: impl Future<Output = Result<T, RunError>>,
) -> Result<T, RunError> {
    tokio::select! {
        ended = work => return ended,
        () = interrupt => {}
    }
    let cancel = connections.iter().map(|connection| async {
        // What cannot be stopped ends with its connection.
        let _ = connection.canceller().cancel().await;
    });
    let _ = tokio::time::timeout(CANCEL_PATIENCE, futures_util::future::join_all(cancel)).await;
    Err(Failed::stopped().into())
}
