//! `inspect --policy`: how much of a table complies with a policy; nothing is changed.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::inspect::inspector::Inspector;
use crate::inspect::result::{PolicyReport, RelationReport, Source};
use crate::inspect::run::Compare;
use crate::retoast::error::{self, Result, RetoastError};
use crate::retoast::pace::metrics;
use crate::retoast::preflight::own_sessions;
use crate::retoast::preflight::policy;
use crate::retoast::sweep::machine::CHUNK;
use crate::retoast::sweep::scanner::{RuleScan, Scanner, SeenRows, Share};
use crate::server::sink::{Failed, Kind};
use crate::server::{Connection, Pageinspect, Relation, Server, toasters};
use toast_format::disk::Oid;
use toast_format::judge::goal::{Goal, PolicyGoal};
use toast_format::judge::{Judge, pluggable};
use toast_format::model::{MethodChoice, Policy};

/// The policy with which tables are compared.
pub(crate) struct PolicyRequest {
    pub(crate) policy: Policy,
    /// The compression method; `None` for each column's own.
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

/// Adds to a table's report how much of it complies with the policy.
async fn add(
    inspector: &Inspector,
    request: &PolicyRequest,
    relation: &Relation,
    report: &mut RelationReport,
) -> Result<(), Failed> {
    if let Some(why) = relation.why_no_heap() {
        let text = format!("--policy needs the stored sizes of values: {why}");
        return Err(Failed::new(Kind::Incomplete, text).placed(&report.read.name.relation));
    }
    let PolicyRequest { policy, method } = *request;
    let goal = PolicyGoal { policy, method, new_extended: false };
    let server = &inspector.server;
    let pages =
        if report.read.source == Source::Pageinspect { server.pageinspect.as_ref() } else { None };
    let connection = &inspector.leader;
    let asker = connection
        .open_another()
        .await
        .map_err(|error| Failed::new(Kind::Incomplete, error.to_string()))?;
    // The temporary table outlives transactions, so it requires a session of this client alone.
    let alone = own_sessions(&asker, connection).await;
    let asker = Arc::new(asker);
    let connections = [Arc::clone(connection), Arc::clone(&asker)];
    if let Err(refusal) = alone {
        return Err(refused(refusal, "--policy", relation.oid, &connections).await);
    }
    let shares = shares(connection, &asker, server, relation.clone(), pages, goal).await;
    let shares = match shares {
        Ok(shares) => shares,
        Err(refusal) => {
            return Err(
                refused(refusal, &relation.display_name(), relation.oid, &connections).await
            );
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

/// Converts a refusal at `place` to an error of the run.
async fn refused(
    refusal: RetoastError,
    place: &str,
    relation: Oid,
    connections: &[Arc<Connection>],
) -> Failed {
    match &refusal {
        RetoastError::Live(error) => Failed::at(place, relation, error, connections).await,
        RetoastError::Usage(_) | RetoastError::Lost(_) => refusal.failed(connections).await,
        refusal => refusal.failed_on(place, connections).await,
    }
}

/// Returns, for each column that can be toasted, its name, the possible methods, and how much of it complies, as a
/// `retoast` of all these columns would judge it. Values are compressed in a temporary table on `asker`, another
/// connection.
async fn shares(
    connection: &Arc<Connection>,
    asker: &Arc<Connection>,
    server: &Server,
    relation: Relation,
    pages: Option<&Pageinspect>,
    goal: PolicyGoal,
) -> Result<Vec<(String, String, Share)>> {
    if server.in_recovery {
        return error::refused(
            "the server is a standby, where toastctl cannot create a temporary table to compress values\n\
             HINT:  Connect to the primary.",
        );
    }
    let client = connection.client();
    let trust_owner = connection.session().allows_owner_code;
    let (ready, bytes) = connection
        .reading(async || {
            let toasters = toasters::ask(client, server).await?;
            let plan = pluggable::plan(toasters.as_ref(), &[], &Goal::Policy(goal))?;
            if plan.is_some() && pages.is_none() {
                return error::refused(
                    "toastctl must read pages here: only pages show which values toasters of pg_toaster store\n\
                     HINT:  Run as a superuser, with the extension pageinspect in this database.",
                );
            }
            let ready = policy::prepare_to_judge(client, server, relation, goal, trust_owner).await?;
            let bytes = metrics::heap(client, ready.relation.oid).await?;
            Ok::<_, RetoastError>((ready, bytes))
        })
        .await?;
    let Some(choice) = &ready.choice else { return Ok(Vec::new()) };
    let blocks = u32::try_from(bytes / server.page_size.bytes() as u64).unwrap_or(u32::MAX);
    let seen_rows = SeenRows::default();
    let by_rule = RuleScan::new(&seen_rows, None, true);
    let mut scanner = Scanner::new(connection, asker, server, &ready, choice, pages, by_rule);
    let mut first = 0;
    while first < blocks {
        let end = first.saturating_add(CHUNK).min(blocks);
        scanner.chunk(first..end).await?;
        seen_rows.clear();
        first = end;
    }
    let methods = match &choice.judge {
        Judge::Policy(rule) => rule.methods.as_slice(),
        Judge::Forms(_) => &[],
    };
    let shares = scanner.seen.shares.iter().copied().chain(std::iter::repeat(Share::default()));
    Ok(ready
        .targets
        .iter()
        .zip(methods)
        .zip(shares)
        .map(|((target, method), share)| (target.name.clone(), method.to_string(), share))
        .collect())
}
