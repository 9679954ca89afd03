//! Takes everything from a toaster: census, sweeps, proof.

use std::cell::Cell;
use std::collections::HashSet;

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
use crate::retoast::pace::lock_tries::{LOCK_TRIES, LockTries, Tried};
use crate::retoast::result::{TableReport, TaskReport};
use crate::retoast::run::request::DepartureRequest;
use crate::retoast::sink::Results;
use crate::retoast::sweep::conversion::Conversion;
use crate::retoast::sweep::dead_entries::DeadIndexEntries;
use crate::retoast::sweep::policy_state::SeenRows;
use crate::retoast::sweep::vacuum::Unvacuumed;
use crate::retoast::task::ends::subject;
use crate::retoast::task::error::RunError;
use crate::retoast::task::guard::{Guard, KnownDefinition};
use crate::retoast::task::session::Session;
use crate::server::LiveError;
use crate::server::about::Pageinspect;

/// A run.
pub(crate) struct DepartureRun<'a, 'r> {
    pub(crate) session: Session<'a>,
    /// How pages are had.
    pub(crate) pageinspect: &'a Pageinspect,
    pub(crate) request: &'a DepartureRequest,
    /// The toasters that there are.
    pub(crate) toasters: &'a Toasters,
    /// The one that is left.
    pub(crate) toaster: Oid,
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
            reader: &self.session.connections.reader,
            server: self.session.server,
            pageinspect: self.pageinspect,
            toaster: self.toaster,
            stop: self.session.stop,
        };
        let columns = proof::columns(&counter, self.wanted.as_ref()).await?;
        let before = counter.count(&columns).await?;
        let list =
            departures(self.toasters, &columns, self.toaster, &|column| before.holds(column));
        let mut report = self.report(&before);
        for departure in list {
            if self.session.stopped() {
                break;
            }
            if let Err(reason) = self.depart(&departure, &mut report).await? {
                report.unfit.push(UnfitTable { relation: departure.name, reason });
            }
        }
        if self.session.options.dry_run {
            report.unfit.extend(before.unread);
        } else if !self.session.stopped() {
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
        if self.session.stopped() {
            report.older_transactions.clear();
            return Ok(());
        }
        proof::prove(counter, self.wanted.as_ref(), report).await?;
        if !report.older_transactions.is_empty() {
            // as after any wait that --max-wait has ended
            self.session.stop.cancel();
        }
        Ok(())
    }

    fn report(&self, before: &Census) -> DepartureReport {
        DepartureReport {
            toaster: self.request.toaster.clone(),
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
                let done = match self.session.options.dry_run {
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
        let may_wait = self.session.throttle.limits().wait;
        let tries = LockTries { may_wait, ..self.session.tries(name) };
        match tries.alter(self.session.writer(), sql).await {
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
        let mut session = self.session.clone();
        let request = TableRequest {
            columns,
            goal: Goal::Pluggable(Pluggable::Leaves(self.request.toaster.clone())),
            target: None,
            no_alter: false,
            allow_triggers: self.request.allow_triggers,
            allow_row_security: !session.options.row_security_off,
            trust_owner_code: self.request.trust_owner_code,
            updates: true,
        };
        let ready = match preflight::table(session.writer(), session.server, table, &request).await
        {
            Ok(Some(ready)) => ready,
            Ok(None) => return Ok(Ok(())),
            Err(Refusal::Live(error)) => return self.unless_lost(error).await,
            Err(Refusal::Lost(reason)) => return Err(RunError::Lost(reason)),
            Err(other) => return Ok(Err(other.to_string())),
        };
        // others would wait for its locks
        if ready.code.holds_off_statistics() {
            session.connections.others.clear();
        }
        let known = KnownDefinition::default();
        let conversion = Conversion {
            guard: Guard { session: &session, ready: &ready, known: &known },
            checkpoint: None,
            seen_rows: &SeenRows::default(),
            since: None,
            doubt: None,
            dead_entries: DeadIndexEntries::default(),
            unvacuumed: Unvacuumed::default(),
        };
        let (report, ended) = conversion.run().await;
        let skipped = report.as_ref().and_then(|TaskReport { common, .. }| {
            let row = common.skipped.first()?;
            let count = common.rows.refused.max(common.skipped.len() as u64);
            Some(format!(
                "{count} rows could not be re-toasted, the first {}: {}",
                row.ctid, row.reason
            ))
        });
        if let Some(report) = report {
            let position = self.swept.get();
            self.swept.set(position + 1);
            // nobody takes the report: the run ends with that after the proof
            let subject = subject(&ready, session.source, session.server);
            self.results.found(position, TableReport::new(subject, report));
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
        for connection in self.session.connections.iter() {
            if connection.is_lost() || error.lost(connection).await.is_some() {
                return Err(error.into());
            }
        }
        Ok(Err(error.to_string()))
    }
}
