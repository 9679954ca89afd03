//! Takes everything from a toaster: census, sweeps, proof.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::actions::{Departure, TableAction, departures};
use super::census::{Census, Counter};
use super::proof;
use super::result::{DepartureReport, UnfitTable};
use crate::disk::Oid;
use crate::judge::goal::{Goal, Pluggable};
use crate::model::toaster::catalog::Toasters;
use crate::retoast::check::preflight;
use crate::retoast::check::ready::TableRequest;
use crate::retoast::check::refusal::Refusal;
use crate::retoast::pace::keeper::Keeper;
use crate::retoast::pace::lock_tries::{LOCK_TRIES, LockTries, Tried};
use crate::retoast::reindex::rebuilds::Rebuilds;
use crate::retoast::sink::Results;
use crate::retoast::sweep::error::RunError;
use crate::retoast::sweep::old_entries::OldEntries;
use crate::retoast::sweep::options::Options;
use crate::retoast::sweep::policy_state::SeenRows;
use crate::retoast::sweep::scan_source::ScanSource;
use crate::retoast::sweep::table::Sweep;
use crate::retoast::sweep::unvacuumed::Unvacuumed;
use crate::retoast::sweep::watched::Watched;
use crate::retoast::watch::Watch;
use crate::server::LiveError;
use crate::server::about::{Pageinspect, Server};
use crate::server::connect::Connection;

/// A run.
pub(crate) struct DepartureRun<'a, 'r> {
    /// For batches, one for each job.
    pub(crate) writers: &'a [Arc<Connection>],
    /// For scans.
    pub(crate) reader: &'a Arc<Connection>,
    /// Keeps its manners.
    pub(crate) keeper: &'a Keeper,
    /// The server.
    pub(crate) server: &'a Server,
    /// How pages are had.
    pub(crate) pageinspect: &'a Pageinspect,
    /// How tables are swept.
    pub(crate) options: &'a Options,
    /// What the scans go by.
    pub(crate) source: &'a ScanSource,
    /// How long a batch may wait for this program before the server gives its locks back.
    pub(crate) idle_limit: Duration,
    /// Go on although triggers will fire.
    pub(crate) allow_triggers: bool,
    /// Run code of the owners of tables with the rights of the user.
    pub(crate) trust_owner_code: bool,
    /// Whom to tell.
    pub(crate) watch: &'a dyn Watch,
    /// Cancelled from outside to stop.
    pub(crate) stop: &'a CancellationToken,
    /// The toasters that there are.
    pub(crate) toasters: &'a Toasters,
    /// The one that is left.
    pub(crate) toaster: Oid,
    /// Its name.
    pub(crate) name: &'a str,
    /// The tables that are looked at; `None` for all.
    pub(crate) wanted: Option<HashSet<Oid>>,
    /// Where the results of tables go that are swept.
    pub(crate) results: &'a Results<'r>,
    /// How many have gone there.
    pub(crate) swept: Cell<usize>,
}

/// Done, or why it could not be.
type Outcome = Result<(), String>;

impl DepartureRun<'_, '_> {
    /// Does it, and says what is left of the toaster.
    ///
    /// # Errors
    /// The server's, or [`RunError::Lost`]: what nothing can go on after.
    pub(crate) async fn run(&self) -> Result<DepartureReport, RunError> {
        let counter = Counter {
            reader: self.reader,
            server: self.server,
            pageinspect: self.pageinspect,
            toaster: self.toaster,
            stop: self.stop,
        };
        let columns = proof::columns(&counter, self.wanted.as_ref()).await?;
        let before = counter.count(&columns).await?;
        let list =
            departures(self.toasters, &columns, self.toaster, &|column| before.holds(column));
        let mut report = self.report(&before);
        for departure in list {
            if self.stopped() {
                break;
            }
            if let Err(reason) = self.depart(&departure, &mut report).await? {
                report.unfit.push(UnfitTable { relation: departure.name, reason });
            }
        }
        if self.options.dry_run {
            report.unfit.extend(before.unread);
        } else if !self.stopped() {
            self.prove(&counter, &mut report).await?;
        }
        Ok(report)
    }

    /// Proves that nothing refers to the toaster, or says what may. Where all tables are meant those that nobody sees
    /// yet are waited for.
    async fn prove(
        &self,
        counter: &Counter<'_>,
        report: &mut DepartureReport,
    ) -> Result<(), RunError> {
        // where something is left anyway nobody is waited for in vain
        if self.wanted.is_none() && report.unfit.is_empty() {
            report.older_transactions = self.wait_for_older().await?;
        }
        if self.stopped() {
            report.older_transactions.clear();
            return Ok(());
        }
        proof::prove(counter, self.wanted.as_ref(), report).await?;
        if !report.older_transactions.is_empty() {
            // as after any wait that --max-wait has ended
            self.stop.cancel();
        }
        Ok(())
    }

    fn stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    fn report(&self, before: &Census) -> DepartureReport {
        DepartureReport {
            toaster: self.name.to_owned(),
            toaster_oid: self.toaster.0,
            whole_database: self.wanted.is_none(),
            tables_read: before.tables,
            values_before: before.values(),
            values_left: before.values(),
            columns_left: Vec::new(),
            dropped_columns_left: Vec::new(),
            alter: Vec::new(),
            unfit: Vec::new(),
            older_transactions: Vec::new(),
            gone: false,
            steps: Vec::new(),
        }
    }

    async fn depart(
        &self,
        departure: &Departure,
        report: &mut DepartureReport,
    ) -> Result<Outcome, RunError> {
        match &departure.action {
            TableAction::Unfit(reason) => Ok(Err(reason.clone())),
            TableAction::Alter(sql) => {
                let done = match self.options.dry_run {
                    true => Ok(()),
                    false => self.alter(&departure.name, sql).await?,
                };
                report.alter.push(sql.clone());
                Ok(done)
            }
            TableAction::Sweep(columns) => self.sweep(departure.table, columns.clone()).await,
        }
    }

    /// Sets the columns of a table without rows of its own.
    async fn alter(&self, name: &str, sql: &str) -> Result<Outcome, RunError> {
        let Some(writer) = self.writers.first() else { return Ok(Err("no connection".to_owned())) };
        let lock_timeout = self.options.lock_timeout;
        let may_wait = self.keeper.limits().wait;
        let tries = LockTries { name, watch: self.watch, stop: self.stop, lock_timeout, may_wait };
        match tries.alter(writer.client(), sql).await {
            Ok((Tried::Done(()), _)) => Ok(Ok(())),
            Ok((Tried::Stopped, _)) => Ok(Err("stopped on request".to_owned())),
            Ok((Tried::NoLock, _)) => Ok(Err(format!("no lock in {LOCK_TRIES} tries"))),
            Ok((Tried::TooLong(waited), _)) => {
                Ok(Err(format!("no lock in {:.1} s (--max-wait)", waited.as_secs_f64())))
            }
            Err(error) => self.unless_lost(error).await,
        }
    }

    /// Re-toasts the values of one table.
    async fn sweep(&self, table: Oid, columns: Vec<String>) -> Result<Outcome, RunError> {
        let request = TableRequest {
            columns,
            goal: Goal::Pluggable(Pluggable::Leaves(self.name.to_owned())),
            target: None,
            no_alter: false,
            allow_triggers: self.allow_triggers,
            allow_row_security: !self.options.row_security_off,
            trust_owner_code: self.trust_owner_code,
            updates: true,
        };
        let Some((writer, others)) = self.writers.split_first() else {
            return Ok(Err("no connection".to_owned()));
        };
        let ready = match preflight::table(writer.client(), self.server, table, &request).await {
            Ok(Some(ready)) => ready,
            Ok(None) => return Ok(Ok(())),
            Err(Refusal::Live(error)) => return self.unless_lost(error).await,
            Err(Refusal::Lost(reason)) => return Err(RunError::Lost(reason)),
            Err(other) => return Ok(Err(other.to_string())),
        };
        // others would wait for its locks
        let others = if ready.code.holds_off_statistics() { &[] } else { others };
        let sweep = Sweep {
            writer: Arc::clone(writer),
            others: others.to_vec(),
            reader: Arc::clone(self.reader),
            server: self.server,
            ready: &ready,
            options: self.options,
            source: self.source,
            idle_limit: self.idle_limit,
            watch: self.watch,
            stop: self.stop,
            keeper: self.keeper,
            checkpoint: None,
            seen_rows: &SeenRows::default(),
            since: None,
            doubt: None,
            watched: Watched::default(),
            old_entries: OldEntries::default(),
            rebuilds: &Rebuilds::default(),
            unvacuumed: Unvacuumed::default(),
        };
        let (report, ended) = sweep.run().await;
        let skipped = report.as_ref().and_then(|report| {
            let row = report.skipped.first()?;
            let count = report.rows_refused.max(report.skipped.len() as u64);
            Some(format!(
                "{count} rows could not be re-toasted, the first {}: {}",
                row.ctid, row.reason
            ))
        });
        if let Some(report) = report {
            let position = self.swept.get();
            self.swept.set(position + 1);
            // nobody takes the report: the run ends with that after the proof
            self.results.found(position, report);
        }
        match ended {
            Ok(()) => Ok(skipped.map_or(Ok(()), Err)),
            Err(RunError::Live(error)) => self.unless_lost(error).await,
            Err(RunError::Lost(reason)) => Err(RunError::Lost(reason)),
            Err(other) => Ok(Err(other.to_string())),
        }
    }

    /// An error of one table is no reason to leave out the others, unless a connection is lost.
    async fn unless_lost(&self, error: LiveError) -> Result<Outcome, RunError> {
        for connection in self.writers.iter().chain([self.reader]) {
            if connection.is_lost() || error.lost(connection).await.is_some() {
                return Err(error.into());
            }
        }
        Ok(Err(error.to_string()))
    }
}
