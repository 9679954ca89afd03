//! `advise-threshold` over the tables of a server, and what becomes of errors.

use std::cmp::Reverse;
use std::future::Future;
use std::slice;
use std::sync::PoisonError;

use super::advisor::{Advisor, NoPages};
use super::candidate::{AdviseError, fitting_columns};
use super::explain::result::Explanation;
use super::extract::choose::together;
use super::extract::target::parent;
use super::result::Report;
use super::shards::{self, Sharded};
use crate::drive::{Order, Schedule, each_relation, out_of_reach};
use crate::message::Message;
use crate::server::catalog::{self, Relation, RelationKind};
use crate::server::select::{self, How, Reach, Selection, is_literal, select, select_within};
use crate::server::sink::{Failed, Kind, RunError, Sink, until};
use crate::server::{LiveError, locks};

/// Without a named table, advice is given on this many: the largest of the database.
const LARGEST: usize = 5;

/// Advises on the tables that are named, in that order, until all is done or `interrupt` comes. If none is, on the
/// largest. `nodes`: the addresses of nodes of Citus ([`crate::server::citus::Node::connect`]), whose tables are refused
/// without.
///
/// # Errors
/// What keeps everything else from being advised on too. What `output` was given stays.
pub(crate) async fn tables(
    advisor: &Advisor,
    tables: &[String],
    nodes: Option<&str>,
    output: &mut dyn Sink<Report>,
    interrupt: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let connections = slice::from_ref(&advisor.connection);
    let run = async {
        if advisor.options.extract.is_some() && partitions(advisor, tables, output).await? {
            return Ok(());
        }
        let Some(address) = nodes else {
            let advice = async |relation: &Relation, columns: &[String]| {
                advisor.relation(relation, columns).await
            };
            let why_no_pages = advisor.why_no_pages();
            return selected_tables(advisor, toastable(tables), advice, why_no_pages, output).await;
        };
        all_with_citus(advisor, tables, address, output).await
    };
    let ended = until(interrupt, connections, run).await;
    let nodes = advisor.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match ended {
        Err(RunError::Failed(failed)) if failed.kind == Kind::Stopped && !nodes.is_empty() => {
            // what runs on the nodes is stopped too
            until(std::future::ready(()), &nodes, std::future::pending()).await
        }
        ended => ended,
    }
}

/// As [`selected_tables`], on tables of Citus too.
async fn all_with_citus(
    advisor: &Advisor,
    tables: &[String],
    address: &str,
    output: &mut dyn Sink<Report>,
) -> Result<(), RunError> {
    let connection = &advisor.connection;
    let database = &advisor.server.database;
    let found = connection
        .reading(async || select_within(Reach::Nodes, connection, database, tables, &[]).await)
        .await;
    let mut found = found.map_err(|error| Failed::from(&error))?;
    if tables.is_empty() && found.found.is_empty() && found.on_nodes.is_empty() {
        output.message(Message::notice(format!("database \"{database}\" has no tables")));
    }
    let mut sharded = shards::tables(advisor, &found.on_nodes, address).await?;
    if sharded.is_empty() && found.found.is_empty() && !found.on_nodes.is_empty() {
        let message = "the metadata of Citus has no shard of this table";
        return Err(Failed::new(Kind::Incomplete, message).into());
    }
    sharded.extend(shards::partitioned(advisor, &mut found.found, tables.is_empty()).await?);
    // shards are read on their nodes
    let why_no_pages = if found.found.is_empty() {
        sharded.iter().find_map(Sharded::why_no_pages)
    } else {
        advisor.why_no_pages()
    };
    let advice = async |relation: &Relation, columns: &[String]| match sharded
        .iter()
        .find(|sharded| sharded.table.oid == relation.oid)
    {
        Some(sharded) => advisor.sharded(sharded, columns).await,
        None => advisor.relation(relation, columns).await,
    };
    let named = !tables.is_empty() && tables.iter().all(|name| is_literal(name));
    let on_nodes = sharded.iter().map(|sharded| {
        let how = match (named, sharded.is_partition) {
            (true, false) => How::Named,
            (true, true) => How::Inherited { from_named: true },
            (false, _) => How::Matched,
        };
        (sharded.table.clone(), how)
    });
    let selected = SelectedTables { found: &found, on_nodes: on_nodes.collect() };
    advise_on(advisor, toastable(tables), selected, advice, why_no_pages, output).await
}

/// Prices the extraction of keys from a partitioned table, if such a one is named.
async fn partitions(
    advisor: &Advisor,
    tables: &[String],
    output: &mut dyn Sink<Report>,
) -> Result<bool, RunError> {
    let connection = &advisor.connection;
    let database = &advisor.server.database;
    let find = async || {
        let Some(&oid) = select::partitioned(connection, database, tables).await?.first() else {
            return Ok(None);
        };
        let selection = select(connection, database, tables).await?;
        let mut leaves = Vec::new();
        for found in &selection.found {
            leaves.extend(catalog::describe(connection.client(), found.oid).await?);
        }
        let parent = parent(connection.client(), oid, leaves.len()).await?;
        Ok::<_, LiveError>(parent.map(|parent| (parent, leaves)))
    };
    let found = connection.reading(find).await;
    let found = found.map_err(|error| Failed::from(&error))?;
    let Some((parent, leaves)) = found.filter(|(_, leaves)| !leaves.is_empty()) else {
        return Ok(false);
    };
    if let Some(by_functions) = advisor.why_no_pages() {
        explain_functions(by_functions, output);
    }
    let reports = advisor.partitions(&parent, &leaves, &advisor.options.columns).await;
    match (reports, leaves.first()) {
        (Ok(reports), _) => {
            if let Some(text) = together(&parent, &reports) {
                output.message(Message::notice(text));
            }
            for report in reports {
                output.found(report).map_err(RunError::Output)?;
            }
        }
        (Err(error), Some(first)) => refused(advisor, first, &error, output).await?,
        (Err(_), None) => {}
    }
    Ok(true)
}

/// As [`tables`], but explains what today's storage costs.
///
/// # Errors
/// As those of [`tables`].
pub(crate) async fn explained(
    advisor: &Advisor,
    tables: &[String],
    output: &mut dyn Sink<Explanation>,
    interrupt: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let connections = slice::from_ref(&advisor.connection);
    let explanation = async |relation: &Relation, columns: &[String]| {
        advisor.explain(relation, columns).await.map(|one| vec![one])
    };
    let explained = selected_tables(advisor, toastable(tables), explanation, None, output);
    until(interrupt, connections, explained).await
}

/// The tables that are named, and which of their columns are meant.
#[derive(Clone, Copy)]
pub(crate) struct Meant<'a> {
    pub(crate) tables: &'a [String],
    /// Of relations that only a pattern or a parent means, the named columns that fit; why there are none.
    pub(crate) fitting: fn(&Relation, &[String]) -> Result<Vec<String>, String>,
    pub(crate) what: &'static str,
}

/// Columns of these tables that can be toasted.
fn toastable(tables: &[String]) -> Meant<'_> {
    Meant { tables, fitting: fitting_columns, what: "a column that can be toasted" }
}

/// The relations that were found, and the tables of Citus among those that are named.
struct SelectedTables<'a> {
    found: &'a Selection,
    on_nodes: Vec<(Relation, How)>,
}

/// What `one` makes of each table and the columns that are asked for; `by_functions`: why rows are read by SQL
/// functions, if they are, and what would help, as the first table is told.
pub(crate) async fn selected_tables<R, O: Sink<R> + ?Sized>(
    advisor: &Advisor,
    meant: Meant<'_>,
    one: impl AsyncFn(&Relation, &[String]) -> Result<Vec<R>, AdviseError>,
    by_functions: Option<NoPages>,
    output: &mut O,
) -> Result<(), RunError> {
    let connection = &advisor.connection;
    let database = &advisor.server.database;
    let found = connection.reading(async || select(connection, database, meant.tables).await).await;
    let found = found.map_err(|error| Failed::from(&error))?;
    let selected = SelectedTables { found: &found, on_nodes: Vec::new() };
    advise_on(advisor, meant, selected, one, by_functions, output).await
}

/// As [`selected_tables`], of these relations.
async fn advise_on<R, O: Sink<R> + ?Sized>(
    advisor: &Advisor,
    meant: Meant<'_>,
    SelectedTables { found, on_nodes }: SelectedTables<'_>,
    one: impl AsyncFn(&Relation, &[String]) -> Result<Vec<R>, AdviseError>,
    mut by_functions: Option<NoPages>,
    output: &mut O,
) -> Result<(), RunError> {
    let tables = meant.tables;
    let connection = &advisor.connection;
    let names =
        connection.reading(async || locks::names(connection.client(), &found.oids()).await).await;
    let names = names.map_err(|error| Failed::from(&error))?;
    found.report_to(output);
    let mut fitting = 0;
    let mut waiting = Vec::new();
    let schedule = Schedule {
        connections: slice::from_ref(connection),
        found: &found.found,
        names: &names,
        order: Order::AsFound,
        tells_dropped: true,
    };
    let mut visit = async |relation: Relation, how, output: &mut O| {
        if relation.kind == RelationKind::Toast {
            let text = format!(
                "relation \"{}\" is a TOAST relation, which has no settings of its own",
                relation.display_name()
            );
            let failed = Failed::new(Kind::Usage, text);
            let table = connection
                .reading(async || select::table_of_toast(connection.client(), relation.oid).await)
                .await
                .map_err(|error| Failed::from(&error))?;
            output.failed(failed.hint(table));
            return Ok(());
        }
        if let Some(failed) = out_of_reach(&relation) {
            output.failed(failed);
            return Ok(());
        }
        let columns = match how {
            How::Named => advisor.options.columns.clone(),
            How::Matched | How::Inherited { .. } => {
                match (meant.fitting)(&relation, &advisor.options.columns) {
                    Ok(columns) => columns,
                    Err(_) if tables.is_empty() => return Ok(()),
                    Err(why) => {
                        output.message(Message::notice(format!("left out: {why}")));
                        return Ok(());
                    }
                }
            }
        };
        fitting += 1;
        if let Some(by_functions) = by_functions.take() {
            explain_functions(by_functions, output);
        }
        if tables.is_empty() {
            waiting.push((relation, columns));
        } else {
            found_of(advisor, &relation, one(&relation, &columns).await, output).await?;
        }
        Ok(())
    };
    let named = found.found.iter().all(|found| found.how == How::Named)
        && on_nodes.iter().all(|(_, how)| *how == How::Named);
    let missed = each_relation(&schedule, output, &mut visit).await?;
    for (relation, how) in on_nodes {
        visit(relation, how, output).await?;
    }
    fitting += missed;
    for (relation, columns) in largest(waiting, output) {
        found_of(advisor, &relation, one(&relation, &columns).await, output).await?;
    }
    if fitting == 0 && !named {
        let what =
            if advisor.options.columns.is_empty() { meant.what } else { "one of these columns" };
        let text = format!("no table that is named has {what}");
        return Err(Failed::new(Kind::Incomplete, text).into());
    }
    Ok(())
}

/// Gives the reports about a table to the output, or the error that there are none for.
async fn found_of<R, O: Sink<R> + ?Sized>(
    advisor: &Advisor,
    relation: &Relation,
    made: Result<Vec<R>, AdviseError>,
    output: &mut O,
) -> Result<(), RunError> {
    match made {
        Ok(reports) => reports
            .into_iter()
            .try_for_each(|report| output.found(report))
            .map_err(RunError::Output),
        Err(error) => refused(advisor, relation, &error, output).await,
    }
}

/// The largest tables of these, and says how much of all of them that is.
fn largest<R, O: Sink<R> + ?Sized>(
    mut tables: Vec<(Relation, Vec<String>)>,
    output: &mut O,
) -> Vec<(Relation, Vec<String>)> {
    tables.sort_by_key(|(table, _)| Reverse(table.bytes_with_toast()));
    let count = tables.len();
    let all = total_bytes(&tables);
    tables.truncate(LARGEST);
    if count > LARGEST {
        output.message(Message::notice(format!(
            "showing the {LARGEST} largest of {count} tables ({:.0} % of the space); name a table for advice on it",
            total_bytes(&tables) as f64 / all.max(1) as f64 * 100.0
        )));
    }
    tables
}

fn total_bytes(tables: &[(Relation, Vec<String>)]) -> u64 {
    tables.iter().map(|(table, _)| table.bytes_with_toast()).fold(0, u64::saturating_add)
}

/// Says that rows are read by SQL functions, and why.
fn explain_functions<R, O: Sink<R> + ?Sized>(no_pages: NoPages, output: &mut O) {
    let NoPages { why, hint } = no_pages;
    let mut notice = Message::notice(format!("using SQL functions and a temporary table: {why}"));
    notice.hints.extend(hint.map(str::to_owned));
    output.message(notice);
}

/// Tells what concerns this table alone; what concerns all of them is the error.
async fn refused<R, O: Sink<R> + ?Sized>(
    advisor: &Advisor,
    relation: &Relation,
    error: &AdviseError,
    output: &mut O,
) -> Result<(), RunError> {
    match error {
        AdviseError::Live { relation: place, error } => {
            Failed::at(place, relation.oid, error, slice::from_ref(&advisor.connection))
                .await
                .report_to(output)
        }
        AdviseError::Unfit(_) => {
            output.failed(error.into());
            Ok(())
        }
        AdviseError::NoRows { .. } if relation.is_heap && !relation.row_security => {
            Err(Failed::from(error).into())
        }
        AdviseError::ExactOnStandby => Err(Failed::from(error).into()),
        error => Failed::from(error).report_to(output),
    }
}
