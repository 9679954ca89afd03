//! Receives the results of a run over the relations of a server; the meaning of errors for the rest of the run.

use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio_postgres::error::{Severity, SqlState};

use super::connect::{ConnectError, Connection};
use super::{LiveError, locks, said_by_server};
use crate::message::Message;
use toast_format::disk::Oid;

/// What a failure means for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Something could not be read or done; the rest of the run is not affected.
    Incomplete,
    /// This user may not read a relation; the rest of the run is not affected.
    Denied,
    /// The request is invalid.
    Usage,
    /// The connection to the server was lost.
    Lost,
    Stopped,
}

/// A hint for who may not read a table.
const MAY_READ: &str = "Reading takes SELECT on the table and USAGE on its schema, which members of pg_read_all_data have: toastctl help permissions.";
/// Where it is explained what a user must be allowed.
pub(crate) const PERMISSIONS: &str = "toastctl help permissions lists what each verb needs.";

/// A failure, and what it means for the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) kind: Kind,
    pub(crate) message: Message,
}

/// Why a run ended early.
#[derive(Debug)]
pub(crate) enum RunError {
    Failed(Failed),
    /// The output cannot be written, or its reader is gone.
    Output(io::Error),
}

impl From<&ConnectError> for Kind {
    fn from(error: &ConnectError) -> Kind {
        match error {
            ConnectError::Usage { .. } => Kind::Usage,
            ConnectError::Failed { .. } | ConnectError::NoDatabase { .. } => Kind::Lost,
            ConnectError::Session(_) => Kind::Incomplete,
        }
    }
}

impl From<&LiveError> for Kind {
    /// The meaning of an error if the connection is intact.
    fn from(error: &LiveError) -> Kind {
        match error {
            // Such a name is invalid.
            LiveError::Pattern(_) => Kind::Usage,
            LiveError::Crashed(_) => Kind::Lost,
            LiveError::Denied(_) => Kind::Denied,
            _ => Kind::Incomplete,
        }
    }
}

impl From<&ConnectError> for Failed {
    fn from(error: &ConnectError) -> Failed {
        let message = match error {
            ConnectError::Usage { message, hint } => {
                Message { hints: hint.iter().cloned().collect(), ..Message::error(message) }
            }
            ConnectError::NoDatabase { hint: Some(hint), .. } => {
                Message::error(error.to_string()).hint(hint)
            }
            other => Message::error(other.to_string()),
        };
        Failed { kind: error.into(), message }
    }
}

impl From<&LiveError> for Failed {
    /// An error if the connection is intact.
    fn from(error: &LiveError) -> Failed {
        let failed = Failed { kind: error.into(), message: error.into() };
        if failed.kind == Kind::Denied { failed.hint(MAY_READ) } else { failed }
    }
}

impl From<Failed> for RunError {
    fn from(failed: Failed) -> RunError {
        RunError::Failed(failed)
    }
}

/// Receives the results of a run as they are found. What a sink has received remains valid, however the run ends.
pub(crate) trait Sink<R>: Send {
    /// A result is complete. An error ends the run.
    fn found(&mut self, result: R) -> io::Result<()>;
    /// A relation, or part of it, could not be processed; the run continues.
    fn failed(&mut self, failed: Failed);
    /// A message for the user that is not about a failure.
    fn message(&mut self, message: Message);
}

impl Failed {
    pub(crate) fn new(kind: Kind, text: impl Into<String>) -> Failed {
        Failed { kind, message: Message::error(text) }
    }

    /// An error of the server that does not affect the rest of the run.
    pub(crate) fn incomplete(error: &LiveError) -> Failed {
        Failed { kind: Kind::Incomplete, message: error.into() }
    }

    pub(crate) fn stopped() -> Failed {
        Failed::new(Kind::Stopped, "stopped")
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Failed {
        Failed { message: self.message.hint(hint), ..self }
    }

    /// The meaning of an error that occurred on one of `connections`: it may be the last message before a connection
    /// ends.
    pub(crate) async fn of(error: &LiveError, connections: &[Arc<Connection>]) -> Failed {
        if let LiveError::Server(statement) = error {
            // The server's last message may arrive before the connection is known to be closed.
            let ended = statement.as_db_error().is_some_and(|said| {
                matches!(said.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
            });
            for connection in connections {
                if ended || statement.as_db_error().is_none() || connection.is_lost() {
                    let explained = connection.explain(statement).await;
                    if ended || connection.is_lost() {
                        let message = match statement.as_db_error() {
                            Some(said) if said.detail().is_some() => said_by_server(said),
                            _ => Message::error(explained.to_string()),
                        };
                        return Failed { kind: Kind::Lost, message };
                    }
                }
            }
        }
        error.into()
    }

    /// Like [`Failed::of`], for an error that occurred while `place` (a relation, with the block if it is known) was
    /// read. `relation` is the relation whose locks are looked up after a lock timeout.
    pub(crate) async fn at(
        place: &str,
        relation: Oid,
        error: &LiveError,
        connections: &[Arc<Connection>],
    ) -> Failed {
        let mut failed = Failed::of(error, connections).await.placed(place);
        if let (LiveError::Server(statement), Kind::Incomplete, Some(connection)) =
            (error, failed.kind, connections.first())
            && statement.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
        {
            failed.message = locks::explained(connection, relation, failed.message).await;
        }
        failed
    }

    /// Reports a failure that concerns only one relation to `output`, so that the run continues. A failure that
    /// concerns the whole run is returned as an error.
    pub(crate) fn report_to<R>(self, output: &mut (impl Sink<R> + ?Sized)) -> Result<(), RunError> {
        match self.kind {
            Kind::Incomplete | Kind::Denied => {
                output.failed(self);
                Ok(())
            }
            Kind::Usage | Kind::Lost | Kind::Stopped => Err(self.into()),
        }
    }

    /// The failure occurred on this relation, unless a more exact place is known.
    pub(crate) fn placed(mut self, relation: &str) -> Failed {
        if self.message.at.relations.is_empty() {
            self.message.at.relations.push(relation.to_owned());
        }
        self
    }

    /// The failure concerns this shard of a table of Citus.
    pub(crate) fn of_shard(mut self, node: &str, shard: &str) -> Failed {
        self.message.at.node = Some(node.to_owned());
        self.message.at.relations = vec![shard.to_owned()];
        self
    }

    /// Says what the failure means before its text.
    pub(crate) fn meaning(mut self, what: &str) -> Failed {
        self.message.text = format!("{what}: {}", self.message.text);
        self
    }

    /// Removes the server's DETAIL, which may contain values of rows.
    pub(crate) fn without_detail(mut self) -> Failed {
        self.message.detail = None;
        self
    }
}

/// Runs `work` until it ends or `interrupt` comes first. In that case, the statements that run on its connections are
/// cancelled, and the work ends.
pub(crate) async fn until<T, E: From<Failed>>(
    interrupt: impl Future<Output = ()>,
    connections: &[Arc<Connection>],
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    tokio::select! {
        ended = work => return ended,
        () = interrupt => {}
    }
    let cancel = connections.iter().map(|connection| async {
        // A statement that cannot be cancelled ends with its connection.
        let _ = connection.canceller().cancel().await;
    });
    futures_util::future::join_all(cancel).await;
    Err(Failed::stopped().into())
}
