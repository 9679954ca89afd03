//! Where a run over the relations of a server puts what it finds, and what its errors mean for the rest.

use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio_postgres::error::{Severity, SqlState};

use super::connect::{ConnectError, Connection};
use super::{LiveError, locks};
use crate::disk::Oid;

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
    /// What an error means where the connection is there.
    fn from(error: &LiveError) -> Kind {
        match error {
            // no name can be written so
            LiveError::Pattern(_) => Kind::Usage,
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

    /// What the server's answer means, met on one of `connections`: it may be the last that it said.
    pub(crate) async fn of(error: &LiveError, connections: &[Arc<Connection>]) -> Failed {
        if let LiveError::Server(statement) = error {
            // with the server's last word, before the connection is known to be closed
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

    /// As [`Failed::of`], met while `place` (a relation, with the block where that is known) was read. `relation`
    /// is who is asked about where a lock was not to be had.
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

    /// Tells `output` of what concerns one relation alone: it keeps nobody from the others. What concerns the whole run
    /// is the error.
    pub(crate) fn report_to<R>(self, output: &mut (impl Sink<R> + ?Sized)) -> Result<(), RunError> {
        match self.kind {
            Kind::Incomplete => {
                output.failed(self);
                Ok(())
            }
            Kind::Usage | Kind::Lost | Kind::Stopped => Err(self.into()),
        }
    }

    /// With the place in front, once.
    pub(crate) fn placed(self, place: &str) -> Failed {
        let place = format!("{place}: ");
        let rest = self.message.strip_prefix(&place).unwrap_or(&self.message);
        Failed { message: format!("{place}{rest}"), ..self }
    }

    /// Without the server's DETAIL, which may show contents of rows.
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
