//! What an error means for the run.

use std::sync::Arc;

use crate::retoast::check::refusal::Refusal;
use crate::retoast::memory::checkpoint::CheckpointError;
use crate::retoast::memory::remembered::SinceError;
use crate::retoast::task::error::RunError;
use crate::server::connect::Connection;
use crate::server::sink::{Failed, Kind};

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

impl RunError {
    /// As [`Refusal::failed`].
    pub(crate) async fn failed(&self, connections: &[Arc<Connection>]) -> Failed {
        match self {
            RunError::Live(error) => Failed::of(error, connections).await,
            RunError::Lost(_) => Failed::new(Kind::Lost, self.to_string()),
            RunError::Stopped(_) => Failed::new(Kind::Stopped, self.to_string()),
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
