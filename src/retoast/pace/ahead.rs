//! What a plan and a forecast need to know of tables apart from their rows: read for many tables with as many statements
//! as for one.

use std::collections::HashMap;

use crate::retoast::error::Result;
use crate::retoast::forecast::Images;
use crate::retoast::memory::settings::{self, Column};
use crate::retoast::pace::metrics::{self, Logged};
use crate::retoast::pace::throttle::{Beginning, Throttle};
use crate::retoast::plan::{Sizes, Surroundings};
use crate::retoast::preflight::ready::PreparedTable;
use crate::server::indexes::{self, Index};
use crate::server::{Connection, LiveResult, locks};
use toast_format::disk::Oid;

/// What a plan needs to know of a table.
#[derive(Debug, Clone)]
pub(crate) struct PlanFacts {
    pub(crate) sizes: Sizes,
    pub(crate) beginning: Beginning,
    pub(crate) columns: Vec<Column>,
    pub(crate) surroundings: Surroundings,
    /// The names of the TOAST relations, and whether this user may name them in a command.
    pub(crate) toast: (Option<String>, bool),
    pub(crate) forecast: ForecastFacts,
}

/// What a forecast needs to know of a table.
#[derive(Debug, Clone)]
pub(crate) struct ForecastFacts {
    /// Which pages are written to the WAL as a whole, and where the last checkpoint began.
    pub(crate) images: (Images, u64),
    pub(crate) indexes: Vec<Index>,
    /// Whether an index contains one of the columns, so that no update of them is HOT.
    pub(crate) is_covered: bool,
    pub(crate) logged: Logged,
}

impl ForecastFacts {
    /// Reads them for these tables; tables that were dropped are missing.
    ///
    /// # Errors
    /// Any error of the server, including a lock timeout.
    pub(crate) async fn ask(
        connection: &Connection,
        tables: &[&PreparedTable],
    ) -> LiveResult<HashMap<Oid, ForecastFacts>> {
        let oids = oids(tables);
        let logged = metrics::logged(connection.client(), &oids).await?;
        ForecastFacts::with(connection, tables, logged).await
    }

    async fn with(
        connection: &Connection,
        tables: &[&PreparedTable],
        logged: HashMap<Oid, Logged>,
    ) -> LiveResult<HashMap<Oid, ForecastFacts>> {
        let client = connection.client();
        let oids = oids(tables);
        let images = metrics::images(client).await?;
        let mut indexes = indexes::of_tables(connection, &oids).await?;
        let covered = metrics::covered(client, tables).await?;
        let mut facts = HashMap::new();
        for (oid, logged) in logged {
            let indexes = indexes.remove(&oid).unwrap_or_default();
            let is_covered = covered.contains(&oid);
            facts.insert(oid, ForecastFacts { images, indexes, is_covered, logged });
        }
        Ok(facts)
    }
}

impl PlanFacts {
    /// Reads them for these tables; tables that were dropped or are locked are missing.
    ///
    /// # Errors
    /// Any error of the server.
    pub(crate) async fn ask(
        connection: &Connection,
        throttle: &Throttle<'_>,
        tables: &[PreparedTable],
    ) -> Result<HashMap<Oid, PlanFacts>> {
        let client = connection.client();
        let all: Vec<Oid> = tables.iter().map(|ready| ready.relation.oid).collect();
        let blocked = locks::blocked(client, &all).await?;
        let free: Vec<&PreparedTable> =
            tables.iter().filter(|ready| !blocked.contains(&ready.relation.oid)).collect();
        let oids = oids(&free);
        let mut sizes = metrics::sizes_of(connection, &oids).await?;
        let mut beginnings = throttle.read_beginnings(&oids).await?;
        let mut columns = settings::ask(client, &free).await?;
        let logged = metrics::logged(client, &oids).await?;
        let mut surroundings = metrics::surroundings(client, &free, &logged).await?;
        let mut toast = metrics::toast_names(connection, &oids).await?;
        let mut forecasts = ForecastFacts::with(connection, &free, logged).await?;
        let mut facts = HashMap::new();
        for oid in oids {
            let (Some(sizes), Some(beginning), Some(surroundings), Some(forecast)) = (
                sizes.remove(&oid),
                beginnings.remove(&oid),
                surroundings.remove(&oid),
                forecasts.remove(&oid),
            ) else {
                continue;
            };
            let columns = columns.remove(&oid).unwrap_or_default();
            let toast = toast.remove(&oid).unwrap_or_default();
            let own = PlanFacts { sizes, beginning, columns, surroundings, toast, forecast };
            facts.insert(oid, own);
        }
        Ok(facts)
    }
}

fn oids(tables: &[&PreparedTable]) -> Vec<Oid> {
    tables.iter().map(|ready| ready.relation.oid).collect()
}
