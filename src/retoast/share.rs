//! How much of a table complies with a policy, without anything being changed.

use std::sync::Arc;

use super::check::policy_preflight;
use super::check::refusal::Refusal;
use super::goal::{Goal, PolicyGoal};
use super::judge::Judge;
use super::judge::pluggable;
use super::pace::gauges;
use super::sweep::machine::CHUNK;
use super::sweep::policy_state::{RuleScan, SeenRows, Share};
use super::sweep::scan_source::ScanSource;
use super::sweep::scanner::Scanner;
use crate::server::about::Server;
use crate::server::catalog::Relation;
use crate::server::connect::Connection;
use crate::server::toasters;

/// Of each column that can be toasted its name, the methods in question, and how much of it complies,
/// as `retoast` of all of them would see it. Values are compressed in a temporary table of `asker`,
/// another connection.
pub async fn shares(
    connection: &Arc<Connection>,
    asker: &Arc<Connection>,
    server: &Server,
    relation: Relation,
    source: ScanSource,
    goal: PolicyGoal,
) -> Result<Vec<(String, String, Share)>, Refusal> {
    if server.in_recovery {
        return Err(Refusal::Refused(
            "the server is a standby, where no temporary table can be made to compress values in\n\
             HINT:  Connect to the primary."
                .into(),
        ));
    }
    let client = connection.client();
    let (ready, bytes) = connection
        .reading(async || {
            let toasters = toasters::ask(client, server).await?;
            let plan = pluggable::plan(toasters.as_ref(), &[], &Goal::Policy(goal))?;
            if plan.is_some() && matches!(source, ScanSource::Functions) {
                return Err(Refusal::Refused(
                    "pages must be read here: nothing else tells which values toasters of pg_toaster \
                     store\n\
                     HINT:  Run as a superuser, with the extension pageinspect in this database."
                        .into(),
                ));
            }
            let ready = policy_preflight::to_look_at(client, server, relation, goal).await?;
            let bytes = gauges::heap(client, ready.relation.oid).await?;
            Ok::<_, Refusal>((ready, bytes))
        })
        .await?;
    let blocks = u32::try_from(bytes / server.page_size.bytes() as u64).unwrap_or(u32::MAX);
    let seen_rows = SeenRows::default();
    let by_rule = RuleScan::new(&seen_rows, None, true);
    let mut scanner = Scanner::new(connection, asker, server, &ready, source, by_rule);
    let mut first = 0;
    while first < blocks {
        let end = first.saturating_add(CHUNK).min(blocks);
        scanner.chunk(first..end).await?;
        seen_rows.clear();
        first = end;
    }
    let methods = match &ready.judge {
        Judge::Policy(rule) => rule.methods.as_slice(),
        Judge::Forms(_) | Judge::Keep => &[],
    };
    let shares = scanner.by_rule.shares.iter().copied().chain(std::iter::repeat(Share::default()));
    Ok(ready
        .targets
        .iter()
        .zip(methods)
        .zip(shares)
        .map(|((target, method), share)| (target.name.clone(), method.to_string(), share))
        .collect())
}
