//! `check` over the relations of a server.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::finding::{CheckError, Checked, Finding};
use super::live::check_table;
use super::live_check::About;
use super::salvage_dir::SalvageDir;
use super::subject::Depth;
use crate::drive::{Order, Schedule, each_relation, tell_dropped};
use crate::inspect::inspector::Inspector;
use crate::message::Message;
use crate::server::checking::StorageTraits;
use crate::server::select::Selected;
use crate::server::sink::{Failed, Kind, RunError, Sink, until};
use crate::server::toasters::{self, ToastOwner};
use crate::server::{LiveError, locks};
use toast_format::disk::Oid;

/// How the tables of a server are checked.
pub(crate) struct CheckRequest {
    /// Whether compressed values are decompressed.
    pub(crate) decompress: bool,
    /// Whether contents are looked at by their types.
    pub(crate) content: bool,
    /// The largest TOAST relation whose pages are looked at by themselves, in bytes.
    pub(crate) toast_limit: u64,
}

/// A result of a check: the findings of a relation come before the relation.
pub(crate) enum CheckResult {
    Finding(Box<Finding>),
    Relation(Box<Checked>),
    /// Statements of `--salvage` that give up damaged values.
    Statements(Vec<String>),
}

/// Checks the relations that were found until all are checked, or `interrupt` comes.
///
/// # Errors
/// What keeps everything else from being checked too. What `output` was given stays.
pub(crate) async fn check(
    inspector: &Inspector,
    request: &CheckRequest,
    found: &[Selected],
    salvage: Option<&mut SalvageDir>,
    output: &mut dyn Sink<CheckResult>,
    interrupt: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let work = check_relations(inspector, request, found, salvage, output);
    let ended = until(interrupt, &inspector.connections, work).await;
    // tasks of their own read on otherwise
    inspector.stop.store(true, Ordering::Relaxed);
    ended
}

/// TOAST relations replaced by their tables, whose rows say what must be in them.
fn with_tables(found: &[Selected], owners: &[ToastOwner]) -> Vec<Selected> {
    let mut tables: Vec<Selected> = Vec::new();
    let mut seen = HashSet::new();
    for &selected in found {
        let own = owners.iter().filter(|owner| owner.toast == selected.oid);
        let mut own: Vec<Oid> = own.map(|owner| owner.table).collect();
        if own.is_empty() {
            own.push(selected.oid);
        }
        own.retain(|oid| seen.insert(*oid));
        tables.extend(own.into_iter().map(|oid| Selected { oid, ..selected }));
    }
    tables
}

async fn check_relations<O: Sink<CheckResult> + ?Sized>(
    inspector: &Inspector,
    request: &CheckRequest,
    found: &[Selected],
    mut salvage: Option<&mut SalvageDir>,
    output: &mut O,
) -> Result<(), RunError> {
    let leader = &inspector.leader;
    let (names, owners, storage, toasters) = leader
        .reading(async || {
            let mut oids: Vec<Oid> = found.iter().map(|found| found.oid).collect();
            let owners = toasters::owners(leader.client(), &oids).await?;
            oids.extend(owners.iter().map(|owner| owner.table));
            let names = locks::names(leader.client(), &oids).await?;
            let storage = StorageTraits::ask(leader.client()).await?;
            let toasters = toasters::toasters(leader.client(), &inspector.server).await?;
            Ok::<_, LiveError>((names, owners, storage, toasters))
        })
        .await
        .map_err(|error| Failed::incomplete(&error))?;
    for ToastOwner { toast, table } in &owners {
        let [toast, table] = [toast, table].map(|oid| names.name(*oid));
        let text = format!("{toast} is the TOAST relation of {table}, which is checked with it");
        output.message(Message::notice(text));
    }
    let found = &with_tables(found, &owners);
    let depth = Depth {
        decompress: request.decompress,
        content: request.content,
        utf8: storage.encoding == "UTF8",
    };
    let about = Arc::new(About {
        server: inspector.server.clone(),
        storage,
        toasters,
        flavor: inspector.options.flavor,
        depth,
        toast_limit: request.toast_limit,
    });
    let schedule = Schedule {
        connections: &inspector.connections,
        found,
        names: &names,
        order: Order::AsFound,
        tells_dropped: true,
    };
    let mut number = 0;
    each_relation(&schedule, output, async |relation, how, output| {
        let oid = relation.oid;
        number += 1;
        inspector.progress.next(&relation.display_name(), number, found.len() as u64);
        if let Some(why) = inspector.why_no_pages(&relation) {
            let failed = Failed::new(Kind::Incomplete, format!("check needs pages: {why}"));
            if relation.is_heap {
                return Err(failed.hint(inspector.hint_for_pages()).into());
            }
            return failed.placed(&relation.display_name()).report_to(output);
        }
        let salvage = salvage.as_deref_mut();
        let tell = &mut |finding| {
            inspector.progress.clear();
            output.found(CheckResult::Finding(Box::new(finding)))
        };
        let checked = check_table(inspector, &about, relation, salvage, tell).await;
        inspector.progress.clear();
        match checked {
            Ok(None) => tell_dropped(&names.name(oid), how, output),
            Ok(Some(checked)) => {
                let result = CheckResult::Relation(Box::new(checked));
                output.found(result).map_err(RunError::Output)?;
            }
            Err(CheckError::Live(error)) => {
                let connections = &inspector.connections;
                Failed::at(&names.name(oid), oid, &error, connections).await.report_to(output)?;
            }
            Err(CheckError::Output(error)) => return Err(RunError::Output(error)),
            Err(error) => Failed::new(Kind::Incomplete, error.to_string()).report_to(output)?,
        }
        Ok(())
    })
    .await
    .map(drop)
}
