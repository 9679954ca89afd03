//! `inspect --policy`: how much of a table complies with a policy, without anything being changed.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::check::policy_preflight;
use super::check::preflight::own_sessions;
use super::check::refusal::Refusal;
use super::pace::gauges;
use super::sweep::machine::CHUNK;
use super::sweep::policy_state::{RuleScan, SeenRows, Share};
use super::sweep::scan_source::ScanSource;
use super::sweep::scanner::Scanner;
use crate::disk::Oid;
use crate::inspect::inspector::Inspector;
use crate::inspect::result::{PolicyReport, RelationReport, Source};
use crate::inspect::run::Compare;
use crate::judge::goal::{Goal, PolicyGoal};
use crate::judge::{Judge, pluggable};
use crate::model::policy::{MethodChoice, Policy};
use crate::server::about::Server;
use crate::server::catalog::Relation;
use crate::server::connect::Connection;
use crate::server::sink::{Failed, Kind};
use crate::server::toasters;

/// What tables are held against.
pub(crate) struct PolicyRequest {
    pub(crate) policy: Policy,
    /// `None`: the column's own.
    pub(crate) method: Option<MethodChoice>,
}

impl Compare for PolicyRequest {
    fn add<'a>(
        &'a self,
        inspector: &'a Inspector,
        relation: &'a Relation,
        report: &'a mut RelationReport,
    ) -> BoxFuture<'a, Result<(), Failed>> {
        Box::pin(add(inspector, self, relation, report))
    }
}

/// Adds to the report of a table what part of it complies with the policy.
async fn add(
    inspector: &Inspector,
    request: &PolicyRequest,
    relation: &Relation,
    report: &mut RelationReport,
) -> Result<(), Failed> {
    let PolicyRequest { policy, method } = *request;
    let goal = PolicyGoal { policy, method, new_extended: false };
    let server = &inspector.server;
    let source = match (&server.pageinspect, report.source) {
        (Some(pageinspect), Source::Pageinspect) => ScanSource::Pages(pageinspect.clone()),
        _ => ScanSource::Functions,
    };
    let connection = inspector.leader()?;
    let asker = connection
        .open_another()
        .await
        .map_err(|error| Failed::new(Kind::Incomplete, error.to_string()))?;
    // its temporary table outlives transactions
    let alone = own_sessions(&asker, connection).await;
    let asker = Arc::new(asker);
    let connections = [Arc::clone(connection), Arc::clone(&asker)];
    if let Err(refusal) = alone {
        return Err(refused(refusal, "--policy", relation.oid, &connections).await);
    }
    let shares = shares(connection, &asker, server, relation.clone(), source, goal).await;
    let shares = match shares {
        Ok(shares) => shares,
        Err(refusal) => {
            return Err(refused(refusal, &report.relation, relation.oid, &connections).await);
        }
    };
    for (column, method, share) in shares {
        if let Some(report) = report.columns.iter_mut().find(|report| report.column == column) {
            report.policy = Some(PolicyReport {
                policy: policy.to_string(),
                method,
                values: share.values,
                bytes: share.bytes,
                complying_values: share.complying_values,
                complying_bytes: share.complying_bytes,
            });
        }
    }
    Ok(())
}

/// What a refusal means for the run, met at `place`.
async fn refused(
    refusal: Refusal,
    place: &str,
    relation: Oid,
    connections: &[Arc<Connection>],
) -> Failed {
    match refusal {
        Refusal::Usage(text) => Failed::new(Kind::Usage, text),
        Refusal::Live(error) => Failed::at(place, relation, &error, connections).await,
        Refusal::Refused(text) => Failed::new(Kind::Incomplete, format!("{place}: {text}")),
        Refusal::Stopped(text) => Failed::new(Kind::Stopped, format!("{place}: {text}")),
        Refusal::Lost(text) => Failed::new(Kind::Lost, text),
    }
}

/// Of each column that can be toasted its name, the methods in question, and how much of it complies,
/// as `retoast` of all of them would see it. Values are compressed in a temporary table of `asker`,
/// another connection.
async fn shares(
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
