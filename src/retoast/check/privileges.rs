//! What this user may do with a table, asked before the first row is touched.

use tokio_postgres::types::Type;

use super::refusal::Refusal;
use crate::server::catalog::Relation;
use crate::server::connect::Client;

/// Refuses where a right is missing that the sweep needs; gives what else should be known. `alters`: settings
/// have to be set.
pub(crate) async fn check(
    client: &Client,
    relation: &Relation,
    alters: bool,
) -> Result<Option<String>, Refusal> {
    // before 17 nobody could be given the right to vacuum
    let rows = client
        .query_typed(
            "SELECT pg_catalog.pg_has_role(c.relowner, 'USAGE'), \
                    pg_catalog.pg_get_userbyid(c.relowner)::pg_catalog.text, \
                    pg_catalog.has_table_privilege(c.oid, 'SELECT'), \
                    pg_catalog.has_table_privilege(c.oid, 'UPDATE'), \
                    CASE WHEN pg_catalog.current_setting('server_version_num')::pg_catalog.int4 \
                         >= 170000 \
                    THEN pg_catalog.has_table_privilege(c.oid, 'MAINTAIN') ELSE false END, \
                    current_user::pg_catalog.text \
             FROM pg_catalog.pg_class AS c WHERE c.oid = $1",
            &[(&relation.oid.0, Type::OID)],
        )
        .await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let name = relation.display_name();
    let (owns, owner, user): (bool, String, String) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(5)?);
    for (at, right) in [(2, "SELECT"), (3, "UPDATE")] {
        if !row.try_get::<_, bool>(at)? {
            return Err(Refusal::Refused(format!(
                "{name}: role \"{user}\" has no {right} privilege on it\n\
                 HINT:  Run as its owner, \"{owner}\", or grant the privilege."
            )));
        }
    }
    if alters && !owns {
        return Err(Refusal::Refused(format!(
            "{name}: role \"{user}\" is not its owner and may not alter it\n\
             HINT:  Run as its owner, \"{owner}\", or have the owner set the columns and use --no-alter."
        )));
    }
    let vacuums = owns || row.try_get::<_, bool>(4)?;
    let note = "this user may not vacuum it: what is re-toasted leaves its old space to autovacuum";
    Ok((!vacuums).then(|| note.to_owned()))
}
