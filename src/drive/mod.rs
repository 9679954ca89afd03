//! A run over relations of a server, one after another: each is described and then visited, and a relation that fails
//! does not affect the others. [`sites`] does the same over many databases, or nodes of Citus.

pub(crate) mod sites;

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::message::Message;
use crate::server::LiveError;
use crate::server::catalog::{self, Relation};
use crate::server::connect::Connection;
use crate::server::locks::Names;
use crate::server::select::{How, Selected};
use crate::server::sink::{Failed, Kind, RunError, Sink};
use toast_format::disk::Oid;

/// A relation that was described longer ago than this is described again before it is visited.
const FRESH: Duration = Duration::from_secs(1);

/// The order in which relations are visited.
#[derive(Clone, Copy)]
pub(crate) enum Order<'a> {
    AsFound,
    /// The largest first, so that a report can be written as results come, and relations that are locked last, so that
    /// the others need not wait for them.
    LargestFirst {
        locked: &'a HashSet<Oid>,
    },
}

/// Which relations are visited, and how.
pub(crate) struct Schedule<'a> {
    /// The first connection describes relations.
    pub(crate) connections: &'a [Arc<Connection>],
    pub(crate) found: &'a [Selected],
    pub(crate) names: &'a Names,
    pub(crate) order: Order<'a>,
    /// Whether to report relations that were dropped since they were found.
    pub(crate) tells_dropped: bool,
}

/// Visits each relation. Returns how many were not visited because they were dropped or could not be described.
///
/// # Errors
/// An error that concerns all relations. What `output` has received remains valid.
pub(crate) async fn each_relation<R, O: Sink<R> + ?Sized>(
    schedule: &Schedule<'_>,
    output: &mut O,
    mut visit: impl AsyncFnMut(Relation, How, &mut O) -> Result<(), RunError>,
) -> Result<usize, RunError> {
    let mut missed = 0;
    let mut plan: Vec<(Selected, Option<(Relation, Instant)>)> = Vec::new();
    match schedule.order {
        Order::AsFound => plan.extend(schedule.found.iter().map(|&found| (found, None))),
        Order::LargestFirst { locked } => {
            for &found in schedule.found.iter().filter(|found| !locked.contains(&found.oid)) {
                match described(schedule, found, output).await? {
                    Some(relation) => plan.push((found, Some((relation, Instant::now())))),
                    None => missed += 1,
                }
            }
            plan.sort_by_key(|(_, known)| {
                Reverse(known.as_ref().map(|(relation, _)| relation.bytes_with_toast()))
            });
            let locked = schedule.found.iter().filter(|found| locked.contains(&found.oid));
            plan.extend(locked.map(|&found| (found, None)));
        }
    }
    for (found, known) in plan {
        let relation = match known {
            Some((relation, at)) if at.elapsed() < FRESH => relation,
            _ => match described(schedule, found, output).await? {
                Some(relation) => relation,
                None => {
                    missed += 1;
                    continue;
                }
            },
        };
        visit(relation, found.how, output).await?;
    }
    Ok(missed)
}

/// Reports that a relation was dropped: for one that was named that is a failure.
pub(crate) fn tell_dropped<R, O: Sink<R> + ?Sized>(name: &str, how: How, output: &mut O) {
    let message = format!("{name} was dropped during the run");
    match how {
        How::Named => output.failed(Failed::new(Kind::Incomplete, message)),
        How::Matched | How::Inherited { .. } => output.message(Message::notice(message)),
    }
}

/// The failure to read a relation of which the server has no rows, or no file.
pub(crate) fn out_of_reach(relation: &Relation) -> Option<Failed> {
    if relation.is_out_of_reach {
        let text = "the table is unlogged, and has no rows on a standby";
        return Some(Failed::new(Kind::Incomplete, text).placed(&relation.display_name()));
    }
    let message = relation.without_file()?;
    Some(Failed { kind: Kind::Incomplete, message })
}

/// Returns `None` if the relation was dropped since it was found, or cannot be described, which is reported to
/// `output`.
async fn described<R, O: Sink<R> + ?Sized>(
    schedule: &Schedule<'_>,
    Selected { oid, how }: Selected,
    output: &mut O,
) -> Result<Option<Relation>, RunError> {
    let leader =
        schedule.connections.first().ok_or_else(|| Failed::new(Kind::Lost, "no connection"))?;
    let described: Result<_, LiveError> =
        leader.reading(async || catalog::describe(leader.client(), oid).await).await;
    match described {
        Ok(Some(relation)) => return Ok(Some(relation)),
        Ok(None) if schedule.tells_dropped => tell_dropped(&schedule.names.name(oid), how, output),
        Ok(None) => {}
        Err(error) => {
            let name = schedule.names.name(oid);
            Failed::at(&name, oid, &error, schedule.connections).await.report_to(output)?;
        }
    }
    Ok(None)
}
