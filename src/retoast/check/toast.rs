//! Whether a compaction can do anything: whether VACUUM truncates, and whether the TOAST relation can be looked at, which
//! a compaction of it needs.

use tokio_postgres::types::Type;

use super::ready::Ready;
use super::refusal::{Refusal, refused};
use crate::retoast::compact::wish::Compaction;
use crate::server::about::{NEVER_TRUNCATES, Server};
use crate::server::connect::Client;

/// Refuses where VACUUM never truncates, where this user may not read the TOAST relation, or where nothing tells which row a chunk belongs to.
/// `pages`: whether pages can be read.
pub(crate) async fn check(
    client: &Client,
    server: &Server,
    ready: &Ready,
    compact: Compaction,
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
        Compaction::All => "; --compact=heap leaves its TOAST relation out",
        Compaction::Toast | Compaction::Heap => "",
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
