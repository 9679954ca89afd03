//! What an UPDATE sets off besides: triggers and rules.

use tokio_postgres::types::Type;

use super::refusal::{Refusal, refused};
use crate::server::catalog::Relation;
use crate::server::connect::Client;

/// Whether ordinary triggers can be silenced.
pub(crate) async fn can_be_replica(client: &Client) -> Result<bool, Refusal> {
    client.batch_execute("BEGIN").await?;
    let set = client.batch_execute("SET LOCAL session_replication_role = replica").await;
    client.batch_execute("ROLLBACK").await?;
    match set {
        Ok(()) => Ok(true),
        Err(error) if error.as_db_error().is_some() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Refuses where triggers or rules would do something; whether triggers will fire.
pub(crate) async fn triggers(
    client: &Client,
    relation: &Relation,
    replica_role: bool,
    allowed: bool,
) -> Result<bool, Refusal> {
    let name = relation.display_name();
    // tgtype: 16 is UPDATE
    let rows = client
        .query_typed(
            "SELECT tgname::pg_catalog.text, tgenabled::pg_catalog.text \
             FROM pg_catalog.pg_trigger \
             WHERE tgrelid = $1 AND NOT tgisinternal AND tgtype & 16 <> 0 AND tgenabled <> 'D' \
             ORDER BY tgname",
            &[(&relation.oid.0, Type::OID)],
        )
        .await?;
    let mut fires = false;
    for row in &rows {
        let (trigger, enabled): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let why = match (enabled.as_str(), replica_role) {
            ("A", _) => "is enabled ALWAYS",
            ("R", true) => "is enabled REPLICA",
            ("O", false) => {
                "cannot be silenced, for this user may not set session_replication_role"
            }
            _ => continue,
        };
        fires = true;
        if !allowed {
            return refused(format!(
                "{name}: trigger \"{trigger}\" {why}, and would fire for every row re-toasted\n\
                 HINT:  Disable it for the time, or use --allow-triggers."
            ));
        }
    }
    // ev_type: 2 is UPDATE
    let rules = client
        .query_typed(
            "SELECT rulename::pg_catalog.text FROM pg_catalog.pg_rewrite \
             WHERE ev_class = $1 AND ev_type = '2' AND ev_enabled <> 'D' ORDER BY rulename",
            &[(&relation.oid.0, Type::OID)],
        )
        .await?;
    match rules.first() {
        Some(row) => refused(format!(
            "{name}: rule \"{}\" changes what an UPDATE does\nHINT:  Disable it for the time.",
            row.try_get::<_, String>(0)?
        )),
        None => Ok(fires),
    }
}
