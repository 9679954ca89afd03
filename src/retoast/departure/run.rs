//! The run that leaves a toaster: census, sweeps, proof.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::retoast::departure::census::{Census, Counter};
use crate::retoast::departure::steps::{columns, prove};
use crate::retoast::error::{Result, RetoastError};
use crate::retoast::pace::lock_tries::{LOCK_TRIES, LockTries, RUN_STOPPED, Tried};
use crate::retoast::pace::throttle::{TELL_EVERY, Throttle};
use crate::retoast::preflight::Preflight;
use crate::retoast::preflight::owner::Approval;
use crate::retoast::preflight::ready::{ConvertRequest, Task};
use crate::retoast::result::{DepartureReport, TableReport, TaskReport, UnfitTable};
use crate::retoast::run::request::{Request, need_pages, pages};
use crate::retoast::run::results::Results;
use crate::retoast::run::sessions::Sessions;
use crate::retoast::sweep::conversion::Conversion;
use crate::retoast::sweep::scanner::SeenRows;
use crate::retoast::task::guard::{Guard, KnownDefinition, subject};
use crate::retoast::task::session::Session;
use crate::server::select::select;
use crate::server::{holders, toasters};
use toast_format::disk::Oid;
use toast_format::judge::goal::{Goal, Pluggable};
use toast_format::judge::pluggable;
use toast_format::judge::pluggable::{default_name, leaves};
use toast_format::model::Toasters;
use toast_format::model::sql::quote_qualified;
use toast_format::model::toaster::catalog::ToasterColumn;

/// A run that leaves a toaster.
struct DepartureRun<'a, 'r> {
    session: Session<'a>,
    /// The name of the toaster to leave.
    name: &'a str,
    approval: Approval,
    /// The toasters of the server.
    toasters: &'a Toasters,
    /// The toaster to leave.
    toaster: Oid,
    /// The tables of the run; `None` for all.
    wanted: Option<HashSet<Oid>>,
    results: &'a Results<'r>,
    /// The number of tables swept so far, from which each gets its position among the results.
    swept: Cell<usize>,
}

/// Leaves the toaster `name`; returns what is left of it.
///
/// # Errors
/// The toaster does not exist, or an error that prevents all further work.
pub(crate) async fn run(
    sessions: &Sessions<'_>,
    request: &Request,
    name: &str,
    throttle: Throttle<'_>,
    results: &Results<'_>,
) -> Result<DepartureReport> {
    let first = &sessions.first;
    let server = &sessions.server;
    let known = toasters::ask(first.client(), server).await?;
    let toaster = pluggable::foreign(known.as_ref(), name)?.oid;
    let pages = need_pages(pages(server, request.source, results)?)?;
    let wanted = match request.tables.as_slice() {
        [] => None,
        tables => Some(select(first, &server.database, tables).await?.oids().into_iter().collect()),
    };
    let jobs = request.options.tuning.jobs;
    let Some(worker) = sessions.workers(1, jobs, throttle).await?.pop() else {
        return Err(RetoastError::lost("no connection"));
    };
    let work = DepartureRun {
        session: sessions.session(&worker, &request.options, Some(pages)),
        name,
        approval: request.approval,
        toasters: &known.unwrap_or_default(),
        toaster,
        wanted,
        results,
        swept: Cell::new(0),
    };
    match work.run().await {
        Ok(report) => Ok(report),
        Err(error) => {
            let used = [&worker.connections.to_vec()[..], &[Arc::clone(first)]].concat();
            Err(error.failed(&used).await.into())
        }
    }
}

/// Done, or why a table could not be converted.
type Departed = Result<(), String>;

impl DepartureRun<'_, '_> {
    /// Runs the census, the sweeps and the proof; returns what is left of the toaster.
    ///
    /// # Errors
    /// An error that prevents all further work: one of the server's, or [`RetoastError::Lost`].
    async fn run(&self) -> Result<DepartureReport> {
        let counter = Counter {
            reader: &self.session.connections.reader,
            server: self.session.server,
            toaster: self.toaster,
            toasters: self.toasters,
            stop: self.session.stop,
        };
        let columns = columns(&counter, self.wanted.as_ref()).await?;
        let before = counter.count(&columns).await?;
        let list =
            departures(self.toasters, &columns, self.toaster, &|column| before.holds(column));
        let mut report = self.departure_report(&before);
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

    /// Proves that nothing refers to the toaster, or reports what may. If the run covers all tables, it first waits for
    /// transactions that may have created tables that are not visible yet.
    async fn prove(&self, counter: &Counter<'_>, report: &mut DepartureReport) -> Result<()> {
        // If something is left anyway, waiting would be pointless.
        if self.wanted.is_none() && report.unfit.is_empty() {
            report.older_transactions = self.wait_for_older().await?;
        }
        if self.session.stopped() {
            report.older_transactions.clear();
            return Ok(());
        }
        prove(counter, self.wanted.as_ref(), report).await?;
        if !report.older_transactions.is_empty() {
            self.session.throttle.patience.end_run();
        }
        Ok(())
    }

    fn departure_report(&self, before: &Census) -> DepartureReport {
        DepartureReport {
            toaster: self.name.to_owned(),
            toaster_oid: self.toaster.0,
            whole_database: self.wanted.is_none(),
            tables_read: before.tables,
            values_before: before.values(),
            values_left: before.values(),
            ..DepartureReport::default()
        }
    }

    async fn depart(
        &self,
        departure: &Departure,
        report: &mut DepartureReport,
    ) -> Result<Departed> {
        match &departure.action {
            TableAction::Unfit(reason) => Ok(Err(reason.clone())),
            TableAction::Alter(sql) => {
                let done = if self.session.options.dry_run {
                    Ok(())
                } else {
                    self.alter(departure, sql).await?
                };
                report.alter.push(sql.clone());
                Ok(done)
            }
            TableAction::Sweep(columns) => self.sweep(departure.table, columns.clone()).await,
        }
    }

    /// Changes the settings of a table without rows of its own.
    async fn alter(&self, departure: &Departure, sql: &str) -> Result<Departed> {
        let may_wait = self.session.throttle.patience.limit();
        let tries = LockTries { may_wait, ..self.session.tries(&departure.name, departure.table) };
        match tries.alter(self.session.writer(), sql).await {
            Ok((Tried::Done(()), _)) => Ok(Ok(())),
            Ok((Tried::Stopped, _)) => Ok(Err(RUN_STOPPED.to_owned())),
            Ok((Tried::NoLock, _)) => Ok(Err(format!("no lock in {LOCK_TRIES} attempts"))),
            Ok((Tried::TooLong(waited), _)) => {
                Ok(Err(format!("no lock in {:.1} s (max-wait)", waited.as_secs_f64())))
            }
            Err(error) => self.unless_lost(error.into()).await,
        }
    }

    /// Re-toasts the values of one table.
    async fn sweep(&self, table: Oid, columns: Vec<String>) -> Result<Departed> {
        let mut session = self.session.clone();
        let request = ConvertRequest {
            columns,
            goal: Goal::Pluggable(Pluggable::Leaves(self.name.to_owned())),
            target: None,
            no_alter: false,
            sets_citus_table: false,
        };
        let preflight = Preflight {
            client: session.writer(),
            server: session.server,
            task: Task::Convert(&request),
            approval: self.approval,
        };
        let ready = match preflight.table(table).await {
            Ok(Some(ready)) => ready,
            Ok(None) => return Ok(Ok(())),
            Err(error) => return self.unless_lost(error).await,
        };
        let Some(choice) = &ready.choice else { return Ok(Ok(())) };
        // A single job is used, because the transactions of others would wait for its lock.
        if ready.code.blocks_create_statistics() {
            session.connections.others.clear();
        }
        let known = KnownDefinition::default();
        let guard = Guard { session: &session, ready: &ready, known: &known, ahead: None };
        let seen_rows = SeenRows::default();
        let (report, ended) = Conversion::new(guard, choice, &seen_rows).run().await;
        let skipped = report.as_ref().and_then(|TaskReport { common, .. }| {
            let first = common.skipped.first()?;
            // what concerns no row has no address
            let Some(row) = common.skipped.iter().find(|row| !row.ctid.is_empty()) else {
                return Some(first.reason.clone());
            };
            let named = common.skipped.iter().filter(|row| !row.ctid.is_empty());
            let count = common.rows.refused.max(named.count() as u64);
            Some(format!(
                "{count} rows could not be re-toasted, the first {}: {}",
                row.ctid, row.reason
            ))
        });
        if let Some(report) = report {
            let position = self.swept.get();
            self.swept.set(position + 1);
            // The result is ignored here: whether the run ends depends on the result after the proof.
            let subject = subject(&ready, session.pages, session.server);
            self.results.found(position, TableReport::new(subject, report));
        }
        match ended {
            Ok(()) => Ok(skipped.map_or(Ok(()), Err)),
            Err(error) => self.unless_lost(error).await,
        }
    }

    /// An error on one table does not prevent work on the others, unless a connection is lost.
    async fn unless_lost(&self, error: RetoastError) -> Result<Departed> {
        for connection in self.session.connections.iter() {
            let ends = match &error {
                RetoastError::Live(of_server) => of_server.lost(connection).await.is_some(),
                _ => false,
            };
            if ends || connection.is_lost() {
                return Err(error);
            }
        }
        if let RetoastError::Lost(_) = error {
            return Err(error);
        }
        Ok(Err(match &error {
            // the report names the table
            RetoastError::Refused(message) | RetoastError::Usage(message) => message.on_one_line(),
            _ => error.to_string(),
        }))
    }

    /// Waits until all current transactions have ended, or a stop is requested. Returns those that had not ended when
    /// `max-wait` was over.
    pub(super) async fn wait_for_older(&self) -> Result<Vec<String>> {
        let reader = self.session.reader();
        let mut waited_for = holders::transactions(reader, UNDER_WAY, &[]).await?;
        let mut tell_after = TELL_FIRST;
        let patience = &self.session.throttle.patience;
        let gave_up = patience
            .wait_while(LOOK_EVERY, async |waited| {
                let now = holders::transactions(reader, UNDER_WAY, &[]).await?;
                waited_for.retain(|transaction, _| now.contains_key(transaction));
                let Some(who) = waited_for.values().next() else { return Ok(None) };
                if waited >= tell_after {
                    tell_after = waited + TELL_EVERY;
                    let more = match waited_for.len() {
                        1 => String::new(),
                        all => format!(", and {} more", all - 1),
                    };
                    let note = format!(
                        "waiting: older transactions must end first, because tables that they created are not \
                         visible yet: {who}{more}"
                    );
                    self.session.listener.note(None, &note);
                }
                Ok(Some(()))
            })
            .await?;
        Ok(if gave_up.is_some() { waited_for.into_values().collect() } else { Vec::new() })
    }
}

/// How a table's values leave the toaster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TableAction {
    /// The table is swept, and the default toaster stores the values of these columns. If there are none, only dropped
    /// columns have values, which every update of a row removes.
    Sweep(Vec<String>),
    /// The table has no rows of its own; this statement changes the settings of its columns.
    Alter(String),
    /// Nothing can be done, for this reason.
    Unfit(String),
}

/// A table that uses the toaster to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Departure {
    pub(crate) table: Oid,
    pub(crate) name: String,
    pub(crate) action: TableAction,
}

/// The tables among `columns` that have a column with this toaster, or one for which `holds` reports pointers of it. A
/// dropped column that has the toaster but no values requires no work.
pub(crate) fn departures(
    toasters: &Toasters,
    columns: &[ToasterColumn],
    toaster: Oid,
    holds: &dyn Fn(&ToasterColumn) -> bool,
) -> Vec<Departure> {
    let concerned =
        |column: &&ToasterColumn| holds(column) || (column.toaster == toaster && !column.dropped);
    let mut found = Vec::new();
    for table in columns.chunk_by(|a, b| a.table == b.table) {
        let concerned: Vec<&ToasterColumn> = table.iter().filter(concerned).collect();
        let Some(first) = concerned.first() else { continue };
        let living: Vec<&ToasterColumn> =
            concerned.iter().copied().filter(|column| !column.dropped).collect();
        let action = match first.relkind {
            _ if first.temporary => {
                TableAction::Unfit("it is a temporary table of another session".to_owned())
            }
            'm' => TableAction::Unfit(
                "the rows of a materialized view cannot be updated: REFRESH it".to_owned(),
            ),
            'p' => {
                let plan = leaves(toaster, &default_name(toasters), &living);
                let table = quote_qualified(&first.schema, &first.relation);
                match plan.changes.statement(&table) {
                    Some(alter) => TableAction::Alter(alter),
                    None => continue,
                }
            }
            _ => TableAction::Sweep(living.iter().map(|column| column.name.clone()).collect()),
        };
        found.push(Departure { table: first.table, name: first.table_name(), action });
    }
    found
}

/// The time between two looks at the transactions that the run waits for.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The first report of a wait comes earlier.
const TELL_FIRST: Duration = Duration::from_secs(1);

/// The transactions of this database that have a virtual transaction ID, for which CREATE INDEX CONCURRENTLY would
/// wait, and prepared ones, which have none; each with the session that runs it. Vacuums create no tables and read no
/// values.
const UNDER_WAY: &str = "SELECT v.virtualtransaction, a.pid FROM pg_catalog.pg_stat_activity AS a \
    JOIN pg_catalog.pg_locks AS v ON v.pid = a.pid AND v.locktype = 'virtualxid' AND v.granted \
        AND v.mode = 'ExclusiveLock' \
    WHERE a.datname = pg_catalog.current_database() AND a.pid <> pg_catalog.pg_backend_pid() \
    AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_progress_vacuum AS p WHERE p.pid = a.pid) \
    UNION ALL SELECT v.virtualtransaction, v.pid FROM pg_catalog.pg_prepared_xacts AS p \
    JOIN pg_catalog.pg_locks AS v ON v.transactionid = p.transaction AND v.pid IS NULL AND v.granted \
    WHERE p.database = pg_catalog.current_database()";

#[cfg(test)]
mod tests {
    use super::*;
    use toast_format::disk::Storage;
    use toast_format::disk::custom::DEFAULT_TOASTER;
    use toast_format::model::toaster::catalog::{Handler, PluggableToaster};

    const OURS: Oid = Oid(147_811);

    fn column(table: u32, index: usize, name: &str) -> ToasterColumn {
        ToasterColumn {
            table: Oid(table),
            schema: "s".into(),
            relation: format!("t{table}"),
            relkind: 'r',
            temporary: false,
            index,
            name: name.into(),
            type_name: "bytea".into(),
            base_type: Oid(17),
            storage: Storage::External,
            compression: None,
            toaster: DEFAULT_TOASTER,
            dropped: false,
        }
    }

    #[test]
    fn tables_of_a_toaster_that_is_left_each_have_their_way() {
        let default = PluggableToaster {
            oid: DEFAULT_TOASTER,
            name: "deftoaster".into(),
            handler: Handler::Default,
        };
        let ours = PluggableToaster { oid: OURS, name: "ours".into(), handler: Handler::Bytea };
        let toasters = Toasters::new(vec![default, ours]);
        let set = |column| ToasterColumn { toaster: OURS, ..column };
        let dropped = |column| ToasterColumn { dropped: true, ..set(column) };
        let columns = [
            set(column(1, 0, "a")),
            column(1, 1, "j"),
            column(2, 0, "nothing"),
            column(3, 0, "old"),
            set(column(3, 1, "new")),
            ToasterColumn { relkind: 'p', ..set(column(4, 0, "part")) },
            ToasterColumn { relkind: 'm', ..set(column(5, 0, "view")) },
            ToasterColumn { temporary: true, ..set(column(6, 0, "temp")) },
            ToasterColumn { relkind: 'p', ..column(7, 0, "other") },
            // One dropped column has values, the other does not.
            dropped(column(8, 0, "........pg.dropped.1........")),
            column(8, 1, "b"),
            dropped(column(9, 0, "........pg.dropped.1........")),
        ];
        let holds = |column: &ToasterColumn| {
            column.name == "old" || column.table == Oid(8) && column.dropped
        };
        let found = departures(&toasters, &columns, OURS, &holds);
        let shown: Vec<String> = found
            .iter()
            .map(|departure| format!("{}: {:?}", departure.name, departure.action))
            .collect();
        insta::assert_snapshot!(shown.join("\n"), @r#"
        s.t1: Sweep(["a"])
        s.t3: Sweep(["old", "new"])
        s.t4: Alter("ALTER TABLE ONLY \"s\".\"t4\" ALTER COLUMN \"part\" SET TOASTER \"deftoaster\"")
        s.t5: Unfit("the rows of a materialized view cannot be updated: REFRESH it")
        s.t6: Unfit("it is a temporary table of another session")
        s.t8: Sweep([])
        "#);
        assert_eq!(departures(&toasters, &columns, Oid(1), &|_| false), []);
    }
}
