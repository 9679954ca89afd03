//! `inspect` over the relations of a server: which are read, in which order, and how errors are handled.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{BoxFuture, join, join_all, try_join_all};
use tokio::time::timeout;

use super::inspector::{InspectError, Inspector, Options};
use super::result::RelationReport;
use crate::drive::{Order, Schedule, each_relation, out_of_reach};
use crate::findings::code::Severity;
use crate::message::Message;
use crate::server::about::Server;
use crate::server::by_key::{GivenKey, KeyError, MOST_ROWS, rows_by_key};
use crate::server::catalog::{self, Relation};
use crate::server::connect::Connection;
use crate::server::select::{How, Reach, Selected, Selection, select, select_within};
use crate::server::sink::{Failed, Kind, PERMISSIONS, RunError, Sink, until};
use crate::server::{LiveError, locks};
use crate::value::anatomy::Anatomy;
use crate::value::rows::RowWriter;
use toast_format::disk::{ItemPointer, Oid};
use toast_format::heap::progress::Progress;

/// How long it may take to open a further connection. A pool may have no session for it.
const OPEN_PATIENCE: Duration = Duration::from_secs(5);
/// Up to this many tables are advised on, which takes some seconds for each column with a symptom.
const ADVISED: usize = 5;

/// What is requested from a server.
pub(crate) struct Request {
    /// The option that requires pages, if SQL functions are not sufficient.
    pub(crate) needs_pages: Option<&'static str>,
    /// The columns whose figures are wanted; all if there are none.
    pub(crate) columns: Vec<String>,
    /// What tables are also compared with.
    pub(crate) policy: Option<Box<dyn Compare>>,
}

/// Adds to the report of a table how many values comply with a policy. This is code of `retoast`, which modules that
/// only read do not import.
pub(crate) trait Compare: Send + Sync {
    fn add<'a>(
        &'a self,
        inspector: &'a Inspector,
        relation: &'a Relation,
        report: &'a mut RelationReport,
    ) -> BoxFuture<'a, Result<(), Failed>>;
}

/// Uses the first connection and as many further ones as can be opened, up to `count` in all. While they are opened,
/// the first one asks for the server's properties.
///
/// # Errors
/// If the server cannot be queried, or is too old.
pub(crate) async fn open(
    first: Connection,
    count: u16,
    options: Options,
    progress: Arc<dyn Progress>,
) -> Result<Inspector, Failed> {
    let others = join_all((1..count).map(|_| timeout(OPEN_PATIENCE, first.open_another())));
    let ask = first.reading(async || Server::ask(first.client()).await);
    let (others, server) = join(others, ask).await;
    let server = server.map_err(|error| Failed::incomplete(&error))?;
    let opened = others.into_iter().filter_map(|opened| match opened {
        Ok(Ok(connection)) => Some(connection),
        Ok(Err(error)) => {
            tracing::debug!("no further connection: {error}");
            None
        }
        Err(_) => {
            tracing::debug!("no further connection in {OPEN_PATIENCE:?}");
            None
        }
    });
    let leader = Arc::new(first);
    let mut connections = vec![Arc::clone(&leader)];
    connections.extend(opened.map(Arc::new));
    let processes = try_join_all(connections.iter().map(|connection| connection.process())).await;
    let processes = processes.map_err(|error| Failed::incomplete(&error.into()))?;
    Ok(Inspector {
        leader,
        connections,
        processes,
        server,
        options,
        progress,
        stop: Arc::default(),
        explained: Arc::default(),
    })
}

/// Finds the requested relations without those that are `excluded`, as far as `reach` goes, unless `interrupt` arrives. A
/// database without tables is reported to `notice`.
///
/// # Errors
/// If a named relation does not exist, or the server cannot be queried.
pub(crate) async fn find(
    inspector: &Inspector,
    tables: &[String],
    excluded: &[String],
    reach: Reach,
    mut tell: impl FnMut(Message),
    interrupt: impl Future<Output = ()>,
) -> Result<Selection, RunError> {
    let database = &inspector.server.database;
    let work = async {
        let leader = &inspector.leader;
        let found = leader
            .reading(async || select_within(reach, leader, database, tables, excluded).await)
            .await;
        found.map_err(|error| Failed::incomplete(&error))
    };
    let selection = until(interrupt, &inspector.connections, work).await?;
    let nothing = selection.found.is_empty() && selection.on_nodes.is_empty();
    if nothing && !excluded.is_empty() {
        tell(Message::notice("no tables are left, as others are excluded"));
    } else if nothing && tables.is_empty() {
        tell(Message::notice(format!("database \"{database}\" has no tables")));
    }
    Ok(selection)
}

/// Reads the relations that were found until all are read, or `interrupt` arrives. If `rows` takes every value as it is
/// read, relations are read in the order in which they are named, otherwise the largest first.
///
/// # Errors
/// Failures that affect all relations. Results already passed to `output` remain.
pub(crate) async fn relations(
    inspector: &Inspector,
    request: &Request,
    found: &[Selected],
    rows: Option<&mut (dyn RowWriter + Send)>,
    output: &mut dyn Sink<RelationReport>,
    interrupt: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let reader = RelationReader { inspector, request };
    let read = reader.read_relations(found, rows, output);
    let ended = until(interrupt, &inspector.connections, read).await;
    // otherwise, spawned tasks would continue to read
    inspector.stop.store(true, Ordering::Relaxed);
    ended
}

/// The row of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ValueRowPlace {
    Address(ItemPointer),
    Key(Vec<GivenKey>),
}

/// Describes one value of a table in every detail.
///
/// # Errors
/// If there is not one such value, or it cannot be read.
pub(crate) async fn value(
    inspector: &Inspector,
    table: &str,
    column: &str,
    place: &ValueRowPlace,
) -> Result<Anatomy, Failed> {
    let leader = &inspector.leader;
    let wanted = [table.to_owned()];
    let selected =
        leader.reading(async || select(leader, &inspector.server.database, &wanted).await).await;
    let found = selected.map_err(|error| Failed::incomplete(&error))?.found;
    let (relation, ctid) = match place {
        ValueRowPlace::Address(ctid) => {
            // for a table with inheritance children, it is the table itself
            let oid = match found.as_slice() {
                [table] => table.oid,
                [first, ..] if first.how == How::Named => first.oid,
                _ => {
                    return Err(Failed::new(Kind::Usage, format!("\"{table}\" is not one table")));
                }
            };
            (described(inspector, table, oid).await?, *ctid)
        }
        ValueRowPlace::Key(key) => row_by_key(inspector, table, &found, key).await?,
    };
    if !relation.desc.attributes.iter().any(|other| !other.dropped && other.name == column) {
        return Err(Failed { kind: Kind::Incomplete, message: relation.no_such_column(column) });
    }
    match inspector.value(&relation, column, ctid).await {
        Ok(anatomy) => Ok(anatomy),
        Err(error) => Err(failed(inspector, &relation, error).await),
    }
}

async fn described(inspector: &Inspector, table: &str, oid: Oid) -> Result<Relation, Failed> {
    let leader = &inspector.leader;
    match leader.reading(async || catalog::describe(leader.client(), oid).await).await {
        Ok(Some(relation)) => out_of_reach(&relation).map_or(Ok(relation), Err),
        Ok(None) => Err(Failed::new(Kind::Incomplete, "the table is gone")),
        Err(error) => Err(Failed::at(table, oid, &error, &inspector.connections).await),
    }
}

/// Finds the only row with this key, in the table or one of its partitions.
async fn row_by_key(
    inspector: &Inspector,
    table: &str,
    found: &[Selected],
    key: &[GivenKey],
) -> Result<(Relation, ItemPointer), Failed> {
    let leader = &inspector.leader;
    let mut rows: Vec<(Relation, ItemPointer)> = Vec::new();
    for selected in found {
        let relation = described(inspector, table, selected.oid).await?;
        match rows_by_key(leader, &relation, key).await {
            Ok(found) => rows.extend(found.into_iter().map(|ctid| (relation.clone(), ctid))),
            Err(KeyError::Live(error)) => {
                let name = relation.display_name();
                return Err(Failed::at(&name, selected.oid, &error, &inspector.connections).await);
            }
            Err(KeyError::Unusable { is_missing, text, columns }) => {
                let kind = if is_missing { Kind::Incomplete } else { Kind::Usage };
                let failed = Failed::new(kind, text);
                return Err(failed.hint(if columns.is_empty() {
                    "toastctl value TABLE lists its values; one is named by its place, as in 'TABLE.COLUMN@(0,1)'."
                        .to_owned()
                } else {
                    format!("Rows can be found by {}.", columns.join(", "))
                }));
            }
        }
        if rows.len() > MOST_ROWS {
            break;
        }
    }
    let has: Vec<String> =
        key.iter().map(|part| format!("{}={}", part.column, part.value)).collect();
    let has = has.join(",");
    if rows.len() > 1 {
        let shown: Vec<String> = rows
            .iter()
            .take(MOST_ROWS)
            .map(|(relation, ctid)| format!("{}@{ctid}", relation.display_name()))
            .collect();
        let more = if rows.len() > MOST_ROWS { " and others" } else { "" };
        let text = format!("several rows have {has}: {}{more}", shown.join(", "));
        let hint = "Name one by more columns, as in orders.doc@shop=7,id=42, or by its address, as in orders.doc@(0,1).";
        return Err(Failed::new(Kind::Usage, text).hint(hint));
    }
    rows.pop().ok_or_else(|| Failed::new(Kind::Incomplete, format!("no row of {table} has {has}")))
}

struct RelationReader<'a> {
    inspector: &'a Inspector,
    request: &'a Request,
}

impl RelationReader<'_> {
    async fn read_relations(
        &self,
        found: &[Selected],
        mut rows: Option<&mut (dyn RowWriter + Send)>,
        output: &mut dyn Sink<RelationReport>,
    ) -> Result<(), RunError> {
        let oids: Vec<Oid> = found.iter().map(|found| found.oid).collect();
        let leader = &self.inspector.leader;
        let asked = leader
            .reading(async || {
                let names = locks::names(leader.client(), &oids).await?;
                let locked = locks::exclusive(leader.client()).await?;
                Ok::<_, LiveError>((names, locked))
            })
            .await;
        let (names, locked) = asked.map_err(|error| Failed::incomplete(&error))?;
        let schedule = Schedule {
            connections: &self.inspector.connections,
            found,
            names: &names,
            order: match rows {
                Some(_) => Order::AsFound,
                None => Order::LargestFirst { locked: &locked },
            },
            tells_dropped: false,
        };
        each_relation(&schedule, output, async |relation, _, output| {
            let rows: Option<&mut (dyn RowWriter + Send)> = match &mut rows {
                Some(rows) => Some(&mut **rows),
                None => None,
            };
            if let Some(failed) = out_of_reach(&relation) {
                output.failed(failed);
                return Ok(());
            }
            if found.len() == 1 {
                self.check_columns(&relation)?;
            }
            let relation = Arc::new(relation);
            self.read_relation(relation, found.len() <= ADVISED, rows, output).await
        })
        .await
        .map(drop)
    }

    /// Refuses a relation without any of the columns that are wanted, before it is read.
    fn check_columns(&self, relation: &Relation) -> Result<(), RunError> {
        let wanted = &self.request.columns;
        let has_one = relation
            .desc
            .attributes
            .iter()
            .any(|column| !column.dropped && wanted.contains(&column.name));
        match wanted.first() {
            Some(first) if !has_one => {
                let message = relation.no_such_column(first);
                Err(Failed { kind: Kind::Incomplete, message }.into())
            }
            _ => Ok(()),
        }
    }

    async fn read_relation(
        &self,
        relation: Arc<Relation>,
        is_advised: bool,
        rows: Option<&mut (dyn RowWriter + Send)>,
        output: &mut dyn Sink<RelationReport>,
    ) -> Result<(), RunError> {
        if let (Some(option), Some(why)) =
            (self.request.needs_pages, self.inspector.why_no_pages(&relation))
        {
            let failed = Failed::new(Kind::Incomplete, format!("{option} needs pages: {why}"));
            let failed = failed.hint(PERMISSIONS);
            return self.without_pages(&relation, failed.placed(&relation.display_name()), output);
        }
        if let Some(notice) = self.inspector.functions_notice(&relation) {
            output.message(notice);
        }
        let read = self.inspector.relation(Arc::clone(&relation), rows).await;
        let mut report = match read {
            Ok(report) => report,
            Err(InspectError::Output(error)) => return Err(RunError::Output(error)),
            Err(error) => {
                let without_pages = matches!(error, InspectError::NoPages(_));
                let failed = failed(self.inspector, &relation, error).await;
                return if without_pages {
                    self.without_pages(&relation, failed, output)
                } else {
                    failed.report_to(output)
                };
            }
        };
        if is_advised {
            self.inspector.add_advice(&relation, &mut report, Severity::Low).await;
        }
        let compared = match &self.request.policy {
            Some(policy) => policy.add(self.inspector, &relation, &mut report).await,
            None => Ok(()),
        };
        match compared {
            Err(failed) if failed.kind == Kind::Usage => Err(failed.into()),
            Err(failed) => {
                output.found(report).map_err(RunError::Output)?;
                failed.report_to(output)
            }
            Ok(()) => output.found(report).map_err(RunError::Output),
        }
    }

    /// What prevents pages of this relation from being read prevents it for all, unless it is the access method of
    /// the relation.
    fn without_pages(
        &self,
        relation: &Relation,
        failed: Failed,
        output: &mut dyn Sink<RelationReport>,
    ) -> Result<(), RunError> {
        if relation.is_heap {
            return Err(failed.into());
        }
        failed.report_to(output)
    }
}

pub(super) async fn failed(
    inspector: &Inspector,
    relation: &Relation,
    error: InspectError,
) -> Failed {
    match error {
        InspectError::Live { place, error } => {
            let place = place.unwrap_or_else(|| relation.display_name());
            Failed::at(&place, relation.oid, &error, &inspector.connections).await
        }
        InspectError::Stopped => Failed::stopped(),
        InspectError::NoValue(_) | InspectError::File(_) => {
            Failed::new(Kind::Usage, error.to_string())
        }
        InspectError::NoPages(_) => Failed::new(Kind::Incomplete, error.to_string())
            .placed(&relation.display_name())
            .hint(inspector.hint_for_pages()),
        InspectError::Output(_) => Failed::new(Kind::Incomplete, error.to_string()),
    }
}
