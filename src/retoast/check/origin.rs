//! A replication origin on what the sweep writes: logical subscribers with `origin = none` then get
//! nothing of it.

use tokio_postgres::types::Type;

use super::refusal::Refusal;
use crate::model::sql::{quote_identifier, quote_literal};
use crate::server::connect::Client;

/// Marks everything that this session writes from now on. The origin must be there: one made here would
/// be left behind by a sweep that is killed. The session's end gives it back.
///
/// # Errors
/// There is none of that name, another session uses it, or this user may not.
pub async fn set_up(client: &Client, name: &str) -> Result<(), Refusal> {
    let sql = "SELECT 1 FROM pg_catalog.pg_replication_origin WHERE roname = $1";
    if client.query_typed(sql, &[(&name, Type::TEXT)]).await?.is_empty() {
        return Err(Refusal::Refused(format!(
            "replication origin {} does not exist\n\
             HINT:  Make it with SELECT pg_replication_origin_create({name}), and when all is done \
             drop it with pg_replication_origin_drop({name}).",
            quote_identifier(name),
            name = quote_literal(name)
        )));
    }
    let sql = "SELECT pg_catalog.pg_replication_origin_session_setup($1)";
    client.query_typed(sql, &[(&name, Type::TEXT)]).await?;
    Ok(())
}
