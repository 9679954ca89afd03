//! `inspect --policy`: how far tables are from a policy.

use std::sync::Arc;

use super::exit::{Exit, Failure};
use super::inspect::InspectArgs;
use crate::inspect::result::{PolicyReport, RelationReport, Source};
use crate::retoast::policy_share;
use crate::retoast::preflight::{Refusal, RuleWish};
use crate::retoast::scan::Eyes;
use crate::source::connect::Connection;
use crate::source::live::catalog::Relation;
use crate::source::live::server::Server;

/// Adds to the report of a table what part of it complies with the policy that was asked for.
pub(super) async fn add(
    args: &InspectArgs,
    connection: &Arc<Connection>,
    server: &Server,
    relation: &Relation,
    report: &mut RelationReport,
) -> Result<(), Failure> {
    let Some(policy) = args.policy else { return Ok(()) };
    let wish = RuleWish { policy, method: args.method, new_extended: false };
    let eyes = match (&server.pageinspect, report.source) {
        (Some(pageinspect), Source::Pageinspect) => Eyes::Pages(pageinspect.clone()),
        _ => Eyes::Functions,
    };
    let asker = connection.open_another().await.map_err(|error| Failure::from(&error))?;
    let shares =
        policy_share::shares(connection, &Arc::new(asker), server, relation.clone(), eyes, wish)
            .await;
    let shares = shares.map_err(|refusal| match refusal {
        Refusal::Usage(text) => Failure::usage(text),
        other => Failure::new(Exit::Incomplete, format!("{}: {other}", report.relation)),
    })?;
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
