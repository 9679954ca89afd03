//! `inspect --policy`: how far tables are from a policy.

use std::sync::Arc;

use super::inspector::Inspector;
use super::result::{PolicyReport, RelationReport, Source};
use crate::disk::Oid;
use crate::model::policy::{MethodChoice, Policy};
use crate::retoast::check::preflight::own_sessions;
use crate::retoast::check::refusal::Refusal;
use crate::retoast::goal::PolicyGoal;
use crate::retoast::share;
use crate::retoast::sweep::scan_source::ScanSource;
use crate::server::catalog::Relation;
use crate::server::connect::Connection;
use crate::server::sink::{Failed, Kind};

/// What tables are held against.
pub(crate) struct PolicyRequest {
    pub(crate) policy: Policy,
    /// `None`: the column's own.
    pub(crate) method: Option<MethodChoice>,
}

/// Adds to the report of a table what part of it complies with the policy.
pub(super) async fn add(
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
    let shares = share::shares(connection, &asker, server, relation.clone(), source, goal).await;
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
