//! How much of a table complies with a policy, without anything being changed.

use std::sync::Arc;

use super::choice::Toaster;
use super::gauges;
use super::machine::CHUNK;
use super::policy_preflight;
use super::policy_scan::{Notebook, RuleScan, Share};
use super::preflight::{Refusal, RuleWish};
use super::scan::{Eyes, Scanner};
use crate::source::connect::Connection;
use crate::source::live::catalog::Relation;
use crate::source::live::server::Server;

/// Of each column that can be toasted its name, the methods in question, and how much of it complies,
/// as `retoast` of all of them would see it. Values are compressed in a temporary table of `asker`,
/// another connection.
pub async fn shares(
    connection: &Arc<Connection>,
    asker: &Arc<Connection>,
    server: &Server,
    relation: Relation,
    eyes: Eyes,
    wish: RuleWish,
) -> Result<Vec<(String, String, Share)>, Refusal> {
    if server.in_recovery {
        return Err(Refusal::Refused(
            "the server is a standby, where no temporary table can be made to compress values in\n\
             HINT:  Connect to the primary."
                .into(),
        ));
    }
    let client = connection.client();
    let ready = policy_preflight::to_look_at(client, server, relation, wish).await?;
    let bytes = gauges::heap(client, ready.relation.oid).await?;
    let blocks = u32::try_from(bytes / server.page_size.bytes() as u64).unwrap_or(u32::MAX);
    let notebook = Notebook::default();
    let by_rule = RuleScan::new(&notebook, None, true);
    let mut scanner =
        Scanner::new(connection, asker, server, &ready, Toaster::External, eyes, by_rule);
    let mut first = 0;
    while first < blocks {
        let end = first.saturating_add(CHUNK).min(blocks);
        scanner.chunk(first..end).await?;
        notebook.clear();
        first = end;
    }
    let methods = ready.rule.iter().flat_map(|rule| &rule.methods);
    let shares = scanner.by_rule.shares.iter().copied().chain(std::iter::repeat(Share::default()));
    Ok(ready
        .targets
        .iter()
        .zip(methods)
        .zip(shares)
        .map(|((target, method), share)| (target.name.clone(), method.to_string(), share))
        .collect())
}
