//! Whether this user can have the indexes of a table rebuilt on this server.

use tokio_postgres::types::Type;

use super::ready::PreparedTable;
use super::refusal::{Refusal, refused};
use crate::retoast::compact::CompactRequest;
use crate::server::about::{NEVER_TRUNCATES, Server};
use crate::server::connect::Client;

/// The first release whose REINDEX CONCURRENTLY misses no row that is changed meanwhile (release notes of 14.4).
const SOUND: i32 = 140_004;

/// Refuses a server whose rebuilds are not sound, and a user who may not drop what an interrupted one leaves.
pub(crate) async fn may_reindex(
    client: &Client,
    server: &Server,
    ready: &PreparedTable,
) -> Result<(), Refusal> {
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

/// Refuses where VACUUM never truncates, where this user may not read the TOAST relation, or where nothing tells which row a chunk belongs to.
/// `pages`: whether pages can be read.
pub(crate) async fn may_compact(
    client: &Client,
    server: &Server,
    ready: &PreparedTable,
    compact: CompactRequest,
    pages: bool,
) -> Result<(), Refusal> {
    if !server.vacuum_truncates {
        return refused(format!(
            "{NEVER_TRUNCATES}: --compact would move rows for nothing\n\
             HINT:  Set old_snapshot_threshold to -1 and restart the server, or run VACUUM FULL, which lets nobody in."
        ));
    }
    let toast = ready.relation.toast.as_ref().filter(|toast| toast.bytes > 0);
    let Some(toast) = toast.filter(|_| compact.toast()) else {
        return Ok(());
    };
    let name = ready.relation.display_name();
    let hint = match compact {
        CompactRequest::All => "; --compact=heap leaves its TOAST relation out",
        CompactRequest::Toast | CompactRequest::Heap => "",
    };
    if !pages && !server.has_toast_chunk_id() {
        return refused(format!(
            "{name}: before PostgreSQL 17 pages alone tell which row a chunk of its TOAST relation belongs to\n\
             HINT:  Run as a superuser, with the extension pageinspect in this database{hint}."
        ));
    }
    let rows = client
        .query_typed(
            "SELECT pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE') \
             AND pg_catalog.has_table_privilege(c.oid, 'SELECT') \
             FROM pg_catalog.pg_class AS c WHERE c.oid = $1",
            &[(&toast.oid.0, Type::OID)],
        )
        .await?;
    if rows.first().map_or(Ok(true), |row| row.try_get(0))? {
        return Ok(());
    }
    refused(format!(
        "{name}: this user may not read its TOAST relation, {}\n\
         HINT:  GRANT pg_read_all_data TO the user{hint}.",
        toast.display_name()
    ))
}
