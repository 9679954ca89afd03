//! Runs `toastctl retoast --from-toaster`: takes everything from one toaster of `pg_toaster`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::exit::{Exit, Failure};
use super::retoast::RetoastArgs;
use super::retoast_progress::Progress;
use super::retoast_run::{Connections, Session, need_pages, options, print, told, worst};
use super::terminal::ReadingProgress;
use crate::disk::Oid;
use crate::inspect::live::{Access, InspectError, Inspector, Options, ScanToast};
use crate::retoast::choice::Toaster;
use crate::retoast::departure::{DepartureReport, UnfitTable};
use crate::retoast::keeper::Keeper;
use crate::retoast::patience::{LOCK_TRIES, Patience, Tried};
use crate::retoast::pluggable::{self, Asked, Way};
use crate::retoast::policy_scan::Notebook;
use crate::retoast::preflight::{self, Refusal, Wish};
use crate::retoast::result::{Report, SCHEMA, TableReport};
use crate::retoast::run::{RunError, Sweep};
use crate::retoast::scan::Eyes;
use crate::source::live::toasters::{self, ToasterColumn};
use crate::source::live::{LiveError, catalog};

/// Values of one toaster by table and column.
#[derive(Default)]
struct Census {
    held: HashMap<(Oid, String), u64>,
    /// Tables read from end to end.
    tables: u64,
    /// Tables of which that cannot be said.
    unread: Vec<UnfitTable>,
}

impl Census {
    fn values(&self) -> u64 {
        self.held.values().sum()
    }

    fn holds(&self, column: &ToasterColumn) -> bool {
        self.held.contains_key(&(column.table, column.name.clone()))
    }
}

/// The run, with what it needs again and again.
struct Leaving<'a> {
    args: &'a RetoastArgs,
    session: &'a Session,
    connections: Connections,
    watch: &'a Progress,
    eyes: Eyes,
    /// The toaster that is left.
    oid: Oid,
    name: &'a str,
    /// The tables that are looked at; `None` for all.
    wanted: Option<HashSet<Oid>>,
}

/// Does what the arguments say.
pub(super) async fn run(
    args: &RetoastArgs,
    session: &Session,
    keeper: Keeper,
    watch: &Progress,
    name: &str,
) -> Result<Exit, Failure> {
    let client = session.writer.client();
    let known = failed(session, "", toasters::ask(client, &session.server).await).await?;
    let toaster = pluggable::foreign(known.as_ref(), name)
        .map_err(|error| Failure::usage(error.to_string()))?;
    let eyes = session.eyes(args)?;
    need_pages(&eyes)?;
    let wanted = if args.tables.is_empty() {
        None
    } else {
        let found = catalog::find(client, &session.server.database, &args.tables).await;
        Some(failed(session, "", found).await?.into_iter().collect())
    };
    let Some(connections) = session.connections(args, 1, keeper).await?.pop() else {
        return Err(Failure::new(Exit::Connection, "no connection"));
    };
    let oid = toaster.oid;
    let from = Leaving { args, session, connections, watch, eyes, oid, name, wanted };
    let columns = from.columns().await?;
    let before = from.census(&columns).await?;
    let list = pluggable::departures(
        &known.clone().unwrap_or_default(),
        &columns,
        toaster.oid,
        &|column| before.holds(column),
    );
    let mut report = DepartureReport {
        toaster: name.to_owned(),
        toaster_oid: toaster.oid.0,
        whole_database: from.wanted.is_none(),
        tables_read: before.tables,
        values_before: before.values(),
        values_left: before.values(),
        columns_left: Vec::new(),
        alter: Vec::new(),
        unfit: Vec::new(),
        gone: false,
    };
    let mut tables = Vec::new();
    for departure in list {
        if session.stopped() {
            break;
        }
        let done = match departure.way {
            Way::Unfit(reason) => Err(reason),
            Way::Alter(sql) => {
                let done =
                    if args.dry_run { Ok(()) } else { from.alter(&departure.name, &sql).await? };
                report.alter.push(sql);
                done
            }
            Way::Sweep(columns) => from.sweep(departure.table, columns, &mut tables).await?,
        };
        if let Err(reason) = done {
            report.unfit.push(UnfitTable { relation: departure.name, reason });
        }
    }
    if args.dry_run {
        report.unfit.extend(before.unread);
    } else if !session.stopped() {
        from.prove(&mut report).await?;
    }
    let mut exit = worst(&tables);
    if session.stopped() {
        exit = Exit::Stopped;
    } else if !report.unfit.is_empty() || !(report.gone || args.dry_run) {
        exit = exit.max(Exit::Incomplete);
    }
    let report = Report { schema: SCHEMA, dry_run: args.dry_run, tables, departure: Some(report) };
    print(args, &report)?;
    Ok(told(exit))
}

/// The value, or the failure as the session explains it.
async fn failed<T>(
    session: &Session,
    place: &str,
    result: Result<T, LiveError>,
) -> Result<T, Failure> {
    match result {
        Ok(value) => Ok(value),
        Err(error) => Err(session.failure(place, &error, &[]).await),
    }
}

impl Leaving<'_> {
    /// The columns of the tables that are looked at.
    async fn columns(&self) -> Result<Vec<ToasterColumn>, Failure> {
        let all = toasters::columns(self.session.writer.client(), None).await;
        let mut columns = failed(self.session, "", all).await?;
        if let Some(wanted) = &self.wanted {
            columns.retain(|column| wanted.contains(&column.table));
        }
        Ok(columns)
    }

    /// Reads all tables from end to end.
    async fn census(&self, columns: &[ToasterColumn]) -> Result<Census, Failure> {
        let inspector = Inspector {
            connections: vec![Arc::clone(&self.connections.reader)],
            server: self.session.server.clone(),
            options: Options {
                access: Access::Pageinspect,
                scan_toast: ScanToast::Never,
                ..Options::default()
            },
            progress: Arc::new(ReadingProgress::default()),
            stop: Arc::clone(self.session.control.stop_flag()),
        };
        let mut census = Census::default();
        for table in columns.chunk_by(|a, b| a.table == b.table) {
            let Some(first) = table.first() else { continue };
            // the rows of partitioned tables are in others
            if first.relkind == 'p' {
                continue;
            }
            let unread = if first.temporary {
                Some("it is a temporary table of another session".to_owned())
            } else {
                self.count(&inspector, first.table, &mut census).await?
            };
            if let Some(reason) = unread {
                census.unread.push(UnfitTable { relation: first.table_name(), reason });
            }
        }
        Ok(census)
    }

    /// Counts the toaster's values in one table; returns why they were not all read.
    async fn count(
        &self,
        inspector: &Inspector,
        table: Oid,
        census: &mut Census,
    ) -> Result<Option<String>, Failure> {
        let found = catalog::describe(self.connections.reader.client(), table).await;
        let Some(relation) = failed(self.session, "", found).await? else { return Ok(None) };
        let report = match inspector.relation(Arc::new(relation), None).await {
            Ok(report) => report,
            Err(InspectError::Live { relation, error }) => {
                let failure = self.failure(&format!("{relation}: "), &error).await;
                return if failure.exit == Exit::Connection {
                    Err(failure)
                } else {
                    Ok(Some(error.to_string()))
                };
            }
            Err(InspectError::Stopped) => return Ok(Some("stopped on request".to_owned())),
            Err(other) => return Ok(Some(other.to_string())),
        };
        census.tables += 1;
        for column in &report.columns {
            let ours = column.toasters.iter().filter(|found| found.toaster_oid == self.oid.0);
            let values: u64 = ours.map(|found| found.values).sum();
            if values > 0 {
                *census.held.entry((table, column.column.clone())).or_default() += values;
            }
        }
        Ok(report.problems.first().map(|problem| {
            format!("{} problems, the first: {}", report.problem_count, problem.text)
        }))
    }

    /// Sets the columns of a table without rows of its own; the inner error is why that failed.
    async fn alter(&self, name: &str, sql: &str) -> Result<Result<(), String>, Failure> {
        let patience = Patience {
            name,
            watch: self.watch,
            stop: self.session.control.stop_flag(),
            lock_timeout: Duration::from_millis(self.args.lock_timeout),
        };
        match patience.alter(self.session.writer.client(), sql).await {
            Ok((Tried::Done(()), _)) => Ok(Ok(())),
            Ok((Tried::Stopped, _)) => Ok(Err("stopped on request".to_owned())),
            Ok((Tried::NoLock, _)) => Ok(Err(format!("no lock in {LOCK_TRIES} tries"))),
            Err(error) => self.unless_lost(&error).await,
        }
    }

    /// Stores the values of one table anew; the inner error is why they could not all be.
    async fn sweep(
        &self,
        table: Oid,
        columns: Vec<String>,
        reports: &mut Vec<TableReport>,
    ) -> Result<Result<(), String>, Failure> {
        let (args, session) = (self.args, self.session);
        let wish = Wish {
            columns,
            toaster: Toaster::Extended,
            asked: Asked::Leaves(self.name.to_owned()),
            target: None,
            rule: None,
            no_alter: false,
            allow_triggers: args.allow_triggers,
            allow_row_security: args.allow_row_security,
        };
        let client = session.writer.client();
        let ready = match preflight::table(client, &session.server, table, &wish).await {
            Ok(Some(ready)) => ready,
            Ok(None) => return Ok(Ok(())),
            Err(Refusal::Live(error)) => return self.unless_lost(&error).await,
            Err(other) => return Ok(Err(other.to_string())),
        };
        let Some((writer, others)) = self.connections.writers.split_first() else {
            return Ok(Err("no connection".to_owned()));
        };
        let sweep = Sweep {
            writer: Arc::clone(writer),
            others: others.to_vec(),
            reader: Arc::clone(&self.connections.reader),
            server: &session.server,
            ready: &ready,
            options: &options(args, Toaster::Extended, self.eyes.clone()),
            watch: self.watch,
            stop: session.control.stop_flag(),
            keeper: &self.connections.keeper,
            checkpoint: None,
            notebook: &Notebook::default(),
            since: None,
        };
        let (report, ended) = sweep.run().await;
        let skipped = report.as_ref().and_then(|report| {
            report.skipped.first().map(|row| {
                format!(
                    "{} rows could not be stored anew, the first {}: {}",
                    report.skipped.len(),
                    row.ctid,
                    row.reason
                )
            })
        });
        reports.extend(report);
        match ended {
            Ok(()) => Ok(skipped.map_or(Ok(()), Err)),
            Err(RunError::Live(error)) => self.unless_lost(&error).await,
            Err(other) => Ok(Err(other.to_string())),
        }
    }

    async fn failure(&self, place: &str, error: &LiveError) -> Failure {
        let used = [&self.connections.writers[..], &[Arc::clone(&self.connections.reader)]];
        self.session.failure(place, error, &used.concat()).await
    }

    /// An error of one table is no reason to leave out the others, unless the connection is lost.
    async fn unless_lost(&self, error: &LiveError) -> Result<Result<(), String>, Failure> {
        let failure = self.failure("", error).await;
        if failure.exit == Exit::Connection { Err(failure) } else { Ok(Err(failure.message)) }
    }

    /// Reads everything once more: what is left, in the catalog and in the tables.
    async fn prove(&self, report: &mut DepartureReport) -> Result<(), Failure> {
        let columns = self.columns().await?;
        let after = self.census(&columns).await?;
        report.tables_read = after.tables;
        report.values_left = after.values();
        report.columns_left = columns
            .iter()
            .filter(|column| column.toaster == self.oid)
            .map(|column| format!("{}.{}", column.table_name(), column.name))
            .collect();
        report.gone =
            after.held.is_empty() && after.unread.is_empty() && report.columns_left.is_empty();
        report.unfit.extend(after.unread);
        Ok(())
    }
}
