//! Values out of line, fetched from the TOAST relation.

use std::collections::HashMap;

use tokio_postgres::types::{Oid as PgOid, Type};

use super::LiveError;
use super::connect::Client;
use crate::disk::pointer::ToastPointer;
use crate::model::sql::quote_qualified;

/// Values fetched at a time.
const VALUES: usize = 2000;
/// Stored bytes fetched at a time; a single value may be longer.
pub(crate) const BYTES: u64 = 8 << 20;

/// Those of these values that are fetched together, of so many bytes at the most but one at the least, and the others.
pub(crate) fn together<T>(all: &[T], most: u64, size: impl Fn(&T) -> u64) -> (&[T], &[T]) {
    let mut bytes = 0u64;
    let fits = |one: &&T| {
        bytes = bytes.saturating_add(size(one));
        bytes <= most
    };
    let count = all.iter().take(VALUES).take_while(fits).count();
    all.split_at(count.max(1).min(all.len()))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_fetched_by_bytes_and_one_at_the_least() {
        let of = |sizes: &[u64]| together(sizes, 10, |&size| size).0.len();
        assert_eq!([of(&[]), of(&[11, 1]), of(&[4, 6, 1]), of(&[u64::MAX, 1])], [0, 1, 2, 1]);
        assert_eq!(of(&[0; 3000]), VALUES);
    }
}
