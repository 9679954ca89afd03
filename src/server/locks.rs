//! Locks that block readers of relations.

use std::collections::{HashMap, HashSet};

use tokio_postgres::types::{Oid as PgOid, Type};

use super::connect::{Client, Connection};
use super::holders::{self, LocksCounted};
use super::toasters::TOAST_RELATIONS;
use super::{LiveResult, Parameter, numbers};
use crate::message::Message;
use toast_format::disk::Oid;
use toast_format::model::sql::shown_qualified;

/// The only lock mode that blocks readers, as `pg_locks` shows it.
const EXCLUSIVE: &str = "l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock' \
     AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid() \
     AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d \
                       WHERE d.datname = pg_catalog.current_database())";

/// The relations of this database on which other sessions now hold, or wait for, an ACCESS EXCLUSIVE lock.
pub(crate) async fn exclusive(client: &Client) -> LiveResult<HashSet<Oid>> {
    let sql = format!("SELECT l.relation FROM pg_catalog.pg_locks AS l WHERE {EXCLUSIVE}");
    let rows = client.query_typed(&sql, &[]).await?;
    rows.iter().map(|row| Ok(Oid(row.try_get::<_, PgOid>(0)?))).collect()
}

/// Those of these relations of which sizes and the like cannot be queried now, because another session has locked them,
/// their TOAST relations or one of their indexes against readers.
pub(crate) async fn blocked(client: &Client, oids: &[Oid]) -> LiveResult<HashSet<Oid>> {
    let locked: Vec<Oid> = exclusive(client).await?.into_iter().collect();
    if locked.is_empty() {
        return Ok(HashSet::new());
    }
    let sql = format!(
        "SELECT c.oid FROM pg_catalog.pg_class AS c, LATERAL (SELECT c.oid || {TOAST_RELATIONS} AS all) AS of \
         WHERE c.oid = ANY ($1) AND (of.all && $2 OR EXISTS (\
           SELECT FROM pg_catalog.pg_index AS i WHERE i.indrelid = ANY (of.all) AND i.indexrelid = ANY ($2)))"
    );
    let parameters: [Parameter<'_>; 2] =
        [(&numbers(oids), Type::OID_ARRAY), (&numbers(&locked), Type::OID_ARRAY)];
    let rows = client.query_typed(&sql, &parameters).await?;
    rows.iter().map(|row| Ok(Oid(row.try_get::<_, PgOid>(0)?))).collect()
}

/// The names of relations, as in messages, read without locking the relations.
pub(crate) async fn names(client: &Client, oids: &[Oid]) -> LiveResult<Names> {
    let sql = "SELECT c.oid, n.nspname::pg_catalog.text, c.relname::pg_catalog.text \
               FROM pg_catalog.pg_class AS c \
               JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
               WHERE c.oid = ANY ($1)";
    let rows = client.query_typed(sql, &[(&numbers(oids), Type::OID_ARRAY)]).await?;
    let named = rows.iter().map(|row| {
        let schema: String = row.try_get(1)?;
        let name: String = row.try_get(2)?;
        Ok((Oid(row.try_get(0)?), shown_qualified(&schema, &name)))
    });
    Ok(Names(named.collect::<LiveResult<_>>()?))
}

/// Names of relations that may not exist or be accessible when the names are needed.
pub(crate) struct Names(HashMap<Oid, String>);

impl Names {
    pub(crate) fn name(&self, oid: Oid) -> String {
        self.0.get(&oid).cloned().unwrap_or_else(|| format!("relation {oid}"))
    }
}

/// The message with the session that has locked the relation, its TOAST relation or one of their indexes; as it is if
/// none of them is locked any more.
pub(crate) async fn explained(connection: &Connection, oid: Oid, message: Message) -> Message {
    // Errors are ignored, because the lock itself is the problem to report.
    let holder = connection
        .reading(async || {
            holders::of_table(connection.client(), oid, &[], LocksCounted::BlockReaders).await
        })
        .await;
    let Ok(Some(holder)) = holder else { return message };
    let hint = "Try again once it has ended, or wait longer: PGOPTIONS='-c lock_timeout=10min'.";
    let detail = Some(format!("Blocked: {}.", holder.text()));
    Message { detail, ..message }.hint(hint)
}
