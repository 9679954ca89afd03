//! Has new partitions of the partitioned tables that were named take the choice from them.

use super::request::Request;
use super::sessions::Sessions;
use crate::judge::goal::{Goal, PolicyGoal};
use crate::retoast::check::parents;
use crate::retoast::check::ready::TableRequest;
use crate::retoast::check::refusal::Refusal;
use crate::retoast::pace::lock_tries::{LockTries, Tried};
use crate::retoast::sink::Results;
use crate::retoast::watch::Watch;
use crate::server::select;

/// Sets what is to be set on the partitioned tables, or says what would be.
///
/// # Errors
/// The server's.
pub(crate) async fn set(
    sessions: &Sessions,
    request: &Request,
    of_each: &TableRequest,
    watch: &dyn Watch,
    results: &Results<'_>,
) -> Result<(), Refusal> {
    // what new values get under a policy is set when all is done, and only on tables
    let is_set_last = matches!(of_each.goal, Goal::Policy(PolicyGoal { new_extended: true, .. }));
    if of_each.no_alter || is_set_last || of_each.goal == Goal::Keep {
        return Ok(());
    }
    let (first, server) = (&sessions.first, &sessions.server);
    let mut parents = Vec::new();
    for oid in select::partitioned(first, &server.database, &request.tables).await? {
        parents.extend(parents::parent(first.client(), server, oid, of_each).await?);
    }
    for parent in &parents {
        if request.options.dry_run {
            results.notice(&format!("{}: would set: {}", parent.name, parent.alter));
            continue;
        }
        let tries = LockTries {
            name: &parent.name,
            watch,
            stop: sessions.control.stopping(),
            lock_timeout: request.options.lock_timeout,
            may_wait: request.wants.limits.wait,
        };
        match tries.alter(first.client(), &parent.alter).await?.0 {
            Tried::Done(()) => results.notice(&format!("{}: set: {}", parent.name, parent.alter)),
            Tried::Stopped => break,
            Tried::NoLock | Tried::TooLong(_) => results.notice(&format!(
                "warning: {}: no lock to set the choice: new partitions will not have it",
                parent.name
            )),
        }
    }
    Ok(())
}
