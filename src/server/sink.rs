//! Receives the results of a run over the relations of a server; the meaning of errors for the rest of the run.

use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio_postgres::error::{Severity, SqlState};

use super::connect::{ConnectError, Connection};
use super::{LiveError, locks};
use toast_format::disk::Oid;

/// What a failure means for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Something could not be read or done; the rest of the run is not affected.
    Incomplete,
    /// The request is invalid.
    Usage,
    /// The connection to the server was lost.
    Lost,
    Stopped,
}

/// A failure; the message begins with the relation where it occurred.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) kind: Kind,
    pub(crate) message: String,
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
            ConnectError::Failed { .. } => Kind::Lost,
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
            _ => Kind::Incomplete,
        }
    }
}

impl From<&ConnectError> for Failed {
    fn from(error: &ConnectError) -> Failed {
        Failed::new(error.into(), error.to_string())
    }
}

impl From<Failed> for RunError {
    fn from(failed: Failed) -> RunError {
        RunError::Failed(failed)
    }
}

/// A line for the user on standard error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UserMessage {
    Error(String),
    Warning(String),
    Notice(String),
    /// A limit of one result; unlike a notice, it does not concern the run.
    Note(String),
    /// Belongs to the message before it.
    Hint(String),
    /// Progress, or the name of a relation and what happened to it.
    Plain(String),
}

impl UserMessage {
    /// The same message about `place`: a node, or one of several databases.
    pub(crate) fn about(self, place: &str) -> UserMessage {
        match self {
            UserMessage::Error(text) => UserMessage::Error(format!("{place}: {text}")),
            UserMessage::Warning(text) => UserMessage::Warning(format!("{place}: {text}")),
            UserMessage::Notice(text) => UserMessage::Notice(format!("{place}: {text}")),
            UserMessage::Note(text) => UserMessage::Note(format!("{place}: {text}")),
            UserMessage::Plain(text) => UserMessage::Plain(format!("{place}: {text}")),
            hint @ UserMessage::Hint(_) => hint,
        }
    }
}

/// Receives the results of a run as they are found. What a sink has received remains valid, however the run ends.
pub(crate) trait Sink<R>: Send {
    /// A result is complete. An error ends the run.
    fn found(&mut self, result: R) -> io::Result<()>;
    /// A relation, or part of it, could not be processed; the run continues.
    fn failed(&mut self, failed: Failed);
    /// A message for the user that is not about a failure.
    fn message(&mut self, message: UserMessage);
}

impl Failed {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Failed {
        Failed { kind, message: message.into() }
    }

    pub(crate) fn stopped() -> Failed {
        Failed::new(Kind::Stopped, "stopped")
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
                        return Failed::new(Kind::Lost, explained.to_string());
                    }
                }
            }
        }
        Failed::new(error.into(), error.to_string())
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
            failed.message.push_str(&locks::explained(connection, relation).await);
        }
        failed
    }

    /// Reports a failure that concerns only one relation to `output`, so that the run continues. A failure that
    /// concerns the whole run is returned as an error.
    pub(crate) fn report_to<R>(self, output: &mut (impl Sink<R> + ?Sized)) -> Result<(), RunError> {
        match self.kind {
            Kind::Incomplete => {
                output.failed(self);
                Ok(())
            }
            Kind::Usage | Kind::Lost | Kind::Stopped => Err(self.into()),
        }
    }

    /// Adds the place at the beginning, unless it is already there.
    pub(crate) fn placed(self, place: &str) -> Failed {
        let place = format!("{place}: ");
        let rest = self.message.strip_prefix(&place).unwrap_or(&self.message);
        Failed { message: format!("{place}{rest}"), ..self }
    }

    /// Removes the server's DETAIL, which may contain values of rows.
    pub(crate) fn without_detail(self) -> Failed {
        let mut message = String::new();
        let mut skipped = false;
        for line in self.message.lines() {
            skipped = line.starts_with("DETAIL:") || (skipped && !line.starts_with("HINT:"));
            if !skipped {
                message.push_str(if message.is_empty() { "" } else { "\n" });
                message.push_str(line);
            }
        }
        Failed { message, ..self }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_show_contents_is_left_out() {
        let text = "t: refused\nDETAIL:  Failing row contains (1,\nsecret).\nHINT:  None.";
        let failed = Failed::new(Kind::Usage, text).without_detail();
        assert_eq!(failed.message, "t: refused\nHINT:  None.");
    }
}
