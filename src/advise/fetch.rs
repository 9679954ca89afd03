//! Values out of line, fetched from the TOAST relation.

use std::collections::HashMap;

use tokio_postgres::types::{Oid as PgOid, Type};

use crate::disk::pointer::ToastPointer;
use crate::server::LiveError;
use crate::server::connect::Client;
use crate::server::sql::quote_qualified;

/// The stored bytes of values, by `va_valueid`. A value whose chunks do not give its size is not
/// in it.
pub async fn values(
    client: &Client,
    toast_relation: &str,
    pointers: &[ToastPointer],
) -> Result<HashMap<u32, Vec<u8>>, LiveError> {
    let ids: Vec<PgOid> = pointers.iter().map(|p| p.value_id.0).collect();
    let sql = format!(
        "SELECT chunk_id, chunk_data FROM {} WHERE chunk_id = ANY ($1) \
         ORDER BY chunk_id, chunk_seq",
        quote_qualified("pg_toast", toast_relation)
    );
    let mut found: HashMap<u32, Vec<u8>> = HashMap::with_capacity(ids.len());
    for row in client.query_typed(&sql, &[(&ids, Type::OID_ARRAY)]).await? {
        let id: PgOid = row.try_get(0)?;
        let data: &[u8] = row.try_get(1)?;
        found.entry(id).or_default().extend_from_slice(data);
    }
    for pointer in pointers {
        let whole = pointer.stored_size() as usize;
        if found.get(&pointer.value_id.0).is_some_and(|bytes| bytes.len() != whole) {
            found.remove(&pointer.value_id.0);
        }
    }
    Ok(found)
}
