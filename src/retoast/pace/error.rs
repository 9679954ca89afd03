//! Why the pace could not be kept.

use crate::server::LiveError;

/// Why the sweep cannot go on at the pace that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum PaceError {
    /// The server.
    #[error("{0}")]
    Live(#[from] LiveError),
    /// Something that is watched cannot be measured, or is beyond its limit.
    #[error("{0}")]
    Limit(String),
    /// A connection was lost, and could not be made again.
    #[error("{0}")]
    Lost(String),
}

impl From<tokio_postgres::Error> for PaceError {
    fn from(error: tokio_postgres::Error) -> PaceError {
        PaceError::Live(error.into())
    }
}
