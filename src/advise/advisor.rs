//! Who advises: a connection to a server, and what is asked.

use std::sync::Arc;

use super::candidate::CandidateError;
use super::request::Options;
use super::variant::ColumnError;
use crate::heap::progress::Progress;
use crate::server::LiveError;
use crate::server::about::{Pageinspect, Server};
use crate::server::catalog::Relation;
use crate::server::connect::{Client, Connection};
use crate::server::sink::{Failed, Kind};

/// Why there is no advice.
#[derive(Debug, thiserror::Error)]
pub enum AdviseError {
    #[error("{relation}: {error}")]
    Live {
        /// What was being read.
        relation: String,
        /// What went wrong.
        error: LiveError,
    },
    #[error(transparent)]
    Column(#[from] ColumnError),
    #[error(transparent)]
    Candidate(#[from] CandidateError),
    /// Pages cannot be read.
    #[error("{relation}: pages cannot be read: {why}\nHINT:  {hint}")]
    NoPages {
        relation: String,
        why: String,
        /// What would help.
        hint: &'static str,
    },
    /// `--exact` where nothing can be written.
    #[error(
        "--exact needs temporary tables, which a standby does not have\n\
         HINT:  Leave --exact away, or connect to the primary."
    )]
    ExactOnStandby,
}

/// Advises on tables of one server.
pub struct Advisor {
    pub connection: Arc<Connection>,
    pub server: Server,
    /// What is asked.
    pub options: Options,
    /// Whom to tell.
    pub progress: Arc<dyn Progress>,
}

impl Advisor {
    /// Over this connection.
    ///
    /// # Errors
    /// Where the server does not say what it is, or is too old.
    pub(crate) async fn open(
        connection: Connection,
        options: Options,
        progress: Arc<dyn Progress>,
    ) -> Result<Advisor, Failed> {
        let ask = async || Server::ask(connection.client()).await;
        let server = connection.reading(ask).await;
        let server = server.map_err(|error| Failed::new(Kind::Incomplete, error.to_string()))?;
        Ok(Advisor { connection: Arc::new(connection), server, options, progress })
    }

    pub(super) fn client(&self) -> &Client {
        self.connection.client()
    }

    pub(super) fn pageinspect(&self, relation: &Relation) -> Result<&Pageinspect, AdviseError> {
        let refused = |why: String, hint| AdviseError::NoPages {
            relation: relation.display_name(),
            why,
            hint,
        };
        if !relation.is_heap {
            let why = format!("the table's access method is {}, not heap", relation.access_method);
            return Err(refused(why, "Only heap tables have TOAST settings."));
        }
        if !self.server.superuser {
            let hint = "Connect as a superuser, or advise on a restored backup.";
            return Err(refused("pageinspect needs a superuser".into(), hint));
        }
        self.server.pageinspect.as_ref().ok_or_else(|| {
            refused(
                "the extension pageinspect is not installed in this database".into(),
                "CREATE EXTENSION pageinspect;",
            )
        })
    }
}
