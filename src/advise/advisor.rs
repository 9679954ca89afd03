//! Who advises: a connection to a server, what is asked, what the server says of a table, and how its rows can be read.

use std::sync::{Arc, Mutex};

use super::calibration::{Calibrate, Calibrations};
use super::candidate::{AdviseError, Narrowing};
use super::extract::keys::Extract;
use super::recommend::{Optimize, PriceList};
use super::result::Access;
use crate::server::LiveError;
use crate::server::about::{Compression, Pageinspect, Server};
use crate::server::catalog::Relation;
use crate::server::connect::{Client, Connection};
use crate::server::sink::Failed;
use crate::server::toasters::{self, SetToaster};
use crate::usage::statements::Statements;
use crate::usage::workload::Counters;
use toast_format::heap::progress::Progress;
use toast_format::heap::sample::SampleSize;
use toast_format::model::sql::quote_identifier;

/// What is asked of `advise-threshold`, or of `inspect --explain` and `keys`.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Columns; none: those that hold most.
    pub columns: Vec<String>,
    /// The choices that are compared; all that make sense if it narrows nothing.
    pub narrowing: Narrowing,
    /// Keys of a document to price in columns of their own.
    pub extract: Option<Extract>,
    /// How much to read; `None`: enough for a good estimate in a short time.
    pub sample: Option<SampleSize>,
    /// The seed of the sample.
    pub seed: u64,
    /// Whether the server shall compress the sample in a temporary table.
    pub exact: bool,
    /// Whether CPU prices are fitted to what the server takes.
    pub calibrate: Calibrate,
    /// Whether these prices are kept in a file, so that those of one column are used for all.
    pub keeps_calibration: bool,
    pub optimize: Optimize,
    pub prices: PriceList,
    pub reads_per_write: Option<f64>,
}

impl Options {
    /// Whether the server compresses the sample: without its pages a value's content is not at hand.
    pub(super) fn compresses_on_server(&self, access: Access) -> bool {
        self.exact || matches!(access, Access::Functions)
    }
}

/// What the server knows of a table beside its columns.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TableFacts {
    pub(crate) counters: Counters,
    /// Seconds in which they were counted: since they were reset, or since the cluster was created.
    pub(crate) period: f64,
    pub(crate) compression: Compression,
    /// The statements on the table.
    pub(crate) statements: Statements,
    /// Whether WAL has what logical decoding needs (`wal_level`).
    pub(crate) logical: bool,
    /// Columns with other toasters than the default one.
    pub(crate) toasters: Vec<SetToaster>,
}

/// Since PostgreSQL 19, a slot may raise the level.
const LOGICAL: &str = "SELECT coalesce(pg_catalog.current_setting('effective_wal_level', true), \
     pg_catalog.current_setting('wal_level')) = 'logical'";

impl TableFacts {
    /// Asks the server, in a transaction of its own, for its last statement may fail.
    pub(super) async fn ask(
        client: &Client,
        server: &Server,
        relation: &Relation,
    ) -> Result<TableFacts, LiveError> {
        let facts = TableFacts::without_statements(client, server, relation).await?;
        Ok(TableFacts { statements: Statements::ask(client, relation).await?, ..facts })
    }

    /// The same without the statements.
    pub(super) async fn without_statements(
        client: &Client,
        server: &Server,
        relation: &Relation,
    ) -> Result<TableFacts, LiveError> {
        let counters = Counters::ask(client, relation).await?;
        let period = counters.period(client).await?;
        Ok(TableFacts {
            counters,
            period,
            compression: Compression::ask(client).await?,
            logical: client.value(LOGICAL, &[]).await? == Some(true),
            statements: Statements::NotInstalled,
            toasters: toasters::set_for(client, server, relation.oid).await?,
        })
    }
}

/// Advises on tables of one server.
pub struct Advisor {
    pub connection: Arc<Connection>,
    pub server: Server,
    pub options: Options,
    pub progress: Arc<dyn Progress>,
    pub(super) calibrations: Arc<Calibrations>,
    /// Connections to nodes of Citus, whose statements are cancelled with those of `connection`.
    pub(super) nodes: Mutex<Vec<Arc<Connection>>>,
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
        let server = connection.reading(async || Server::ask(connection.client()).await).await;
        let server = server.map_err(|error| Failed::incomplete(&error))?;
        Ok(Advisor::new(Arc::new(connection), server, options, progress))
    }

    /// Over a connection to this server.
    pub(crate) fn new(
        connection: Arc<Connection>,
        server: Server,
        options: Options,
        progress: Arc<dyn Progress>,
    ) -> Advisor {
        Advisor {
            connection,
            server,
            options,
            progress,
            calibrations: Arc::default(),
            nodes: Mutex::default(),
        }
    }

    pub(crate) fn client(&self) -> &Client {
        self.connection.client()
    }

    /// Why pages cannot be read, if they cannot.
    pub(crate) fn why_no_pages(&self) -> Option<NoPages> {
        const HINT: &str =
            "CREATE EXTENSION pageinspect; lets toastctl read pages, without a temporary table.";
        let why = self.server.why_no_pages()?;
        Some(NoPages { why, hint: self.server.superuser.then_some(HINT) })
    }

    /// Refuses what is no heap.
    pub(crate) fn heap(relation: &Relation) -> Result<(), AdviseError> {
        let hint = "Only heap tables have TOAST settings.";
        relation.why_no_heap().map_or(Ok(()), |why| Err(refused(relation, why, hint)))
    }

    /// How pages of a relation are read, for what nothing else tells.
    pub(crate) fn pageinspect(&self, relation: &Relation) -> Result<&Pageinspect, AdviseError> {
        Advisor::heap(relation)?;
        match (self.why_no_pages(), &self.server.pageinspect) {
            (None, Some(pageinspect)) => Ok(pageinspect),
            (no_pages, _) => {
                let NoPages { why, hint } = no_pages.unwrap_or_default();
                let hint = match hint {
                    Some(_) => "CREATE EXTENSION pageinspect;",
                    None => "Connect as a superuser, or to a restored backup.",
                };
                Err(refused(relation, format!("pages cannot be read: {why}"), hint))
            }
        }
    }

    /// How the sample of a relation is read.
    pub(super) async fn access(&self, relation: &Relation) -> Result<Access, AdviseError> {
        Advisor::heap(relation)?;
        let Some(NoPages { why, .. }) = self.why_no_pages() else { return Ok(Access::Pages) };
        if self.server.has_toasters {
            let why = format!(
                "pages cannot be read: {why}; and functions do not tell the pointers of pluggable toasters apart"
            );
            let hint = "Run as a superuser, with the extension pageinspect in this database.";
            return Err(refused(relation, why, hint));
        }
        if relation.row_security {
            let why = "row security hides rows from this user, so that no sample stands for all";
            let hint =
                "Run as a role with BYPASSRLS, or as the owner if row security is not forced.";
            return Err(refused(relation, why.into(), hint));
        }

        if self.server.in_recovery {
            let what = "a standby has no temporary tables, in which values are compressed for the \
                        advice otherwise";
            let hint = "Connect to the primary, or as a superuser where pageinspect is installed.";
            let why = format!("pages cannot be read: {why}; and {what}");
            return Err(refused(relation, why, hint));
        }
        let (user, allowed) = self
            .connection
            .reading(async || temporary(self.client()).await)
            .await
            .map_err(|error| AdviseError::Live { relation: relation.display_name(), error })?;
        if !allowed {
            let database = &self.server.database;
            let why = format!(
                "pages cannot be read: {why}; and user \"{user}\" may not make temporary tables, in \
                 which values are compressed for the advice otherwise"
            );
            let hint = format!(
                "GRANT TEMPORARY ON DATABASE {} TO {};",
                quote_identifier(database),
                quote_identifier(&user)
            );
            return Err(refused(relation, why, &hint));
        }
        Ok(Access::Functions)
    }
}

fn refused(relation: &Relation, why: String, hint: &str) -> AdviseError {
    AdviseError::NoRows { relation: relation.display_name(), why, hint: hint.to_owned() }
}

/// Why pages cannot be read, and what would help if that is in this user's power.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NoPages {
    pub(crate) why: &'static str,
    pub(crate) hint: Option<&'static str>,
}

/// The user, and whether it may make temporary tables in this database.
async fn temporary(client: &Client) -> Result<(String, bool), LiveError> {
    let sql = "SELECT current_user::pg_catalog.text, pg_catalog.has_database_privilege(\
                   pg_catalog.current_database(), 'TEMPORARY')";
    let rows = client.query_typed(sql, &[]).await?;
    let row = rows.first().ok_or_else(|| LiveError::Unexpected("no row about the user".into()))?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}
