//! Why a table is not touched.

use crate::judge::pluggable::PlanError;
use crate::retoast::pace::error::PaceError;
use crate::server::LiveError;

/// Why a table is not touched.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The server.
    #[error("{0}")]
    Live(#[from] LiveError),
    /// The wish makes no sense for this table.
    #[error("{0}")]
    Usage(String),
    /// Something stands against it.
    #[error("{0}")]
    Refused(String),
    /// Waiting for others was given up.
    #[error("{0}")]
    Stopped(String),
    /// The connection is lost, and cannot be made again.
    #[error("{0}")]
    Lost(String),
}

impl From<PaceError> for Refusal {
    fn from(error: PaceError) -> Refusal {
        match error {
            PaceError::Live(error) => Refusal::Live(error),
            PaceError::Limit(text) => Refusal::Refused(text),
            PaceError::Lost(reason) => Refusal::Lost(reason),
        }
    }
}

impl From<tokio_postgres::Error> for Refusal {
    fn from(error: tokio_postgres::Error) -> Refusal {
        Refusal::Live(error.into())
    }
}

impl From<PlanError> for Refusal {
    fn from(error: PlanError) -> Refusal {
        Refusal::Usage(error.to_string())
    }
}

pub(crate) fn refused<T>(text: String) -> Result<T, Refusal> {
    Err(Refusal::Refused(text))
}
