//! Whether this user can have the indexes of a table rebuilt on this server.

use tokio_postgres::types::Type;

use super::ready::Ready;
use super::refusal::{Refusal, refused};
use crate::server::about::Server;
use crate::server::connect::Client;

/// The first release whose REINDEX CONCURRENTLY misses no row that is changed meanwhile (release notes of 14.4).
const SOUND: i32 = 140_004;

/// Refuses a server whose rebuilds are not sound, and a user who may not drop what an interrupted one leaves.
pub(crate) async fn check(client: &Client, server: &Server, ready: &Ready) -> Result<(), Refusal> {
    let name = ready.relation.display_name();
    if server.version_num < SOUND {
        return refused(format!(
            "{name}: --reindex: before PostgreSQL 14.4 an index that is rebuilt beside others may miss rows; \
             this server is {}\nHINT:  Install the latest minor release.",
            server.version
        ));
    }
    let rows = client
        .query_typed(
            "SELECT pg_catalog.pg_has_role(c.relowner, 'USAGE'), \
                    pg_catalog.pg_get_userbyid(c.relowner)::pg_catalog.text \
             FROM pg_catalog.pg_class AS c WHERE c.oid = $1",
            &[(&ready.relation.oid.0, Type::OID)],
        )
        .await?;
    match rows.first() {
        Some(row) if !row.try_get::<_, bool>(0)? => {
            let owner: String = row.try_get(1)?;
            refused(format!(
                "{name}: --reindex: this user is not its owner, and could not drop what an interrupted rebuild \
                 leaves behind\nHINT:  Run as \"{owner}\", or as a member of that role."
            ))
        }
        _ => Ok(()),
    }
}
