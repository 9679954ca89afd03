//! Values out of line, fetched from the TOAST relation, and the server's own compression of them.

use std::collections::HashMap;

use tokio_postgres::Client;
use tokio_postgres::types::{Oid as PgOid, Type};

use crate::codec::Method;
use crate::disk::ItemPointer;
use crate::disk::pointer::ToastPointer;
use crate::server::LiveError;
use crate::server::sql::{quote_identifier, quote_qualified};

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

/// Temporary tables in which the server compresses a sample.
#[derive(Debug)]
pub struct ServerCompressor {
    relation: String,
}

/// What PLAIN filler makes every row longer than the threshold on 8 kB pages, so that the toaster
/// is called whatever the value's size.
const FILLER: usize = 2040;
/// Up to this size a datum stays in the row even there (`MAXALIGN(TOAST_POINTER_SIZE)`); out of
/// line its size is 4 less.
const NEVER_MOVED: i32 = 24;

fn temporary_name(column: usize, method: Method) -> String {
    format!("toastctl_advise_{column}_{}", method.name())
}

impl ServerCompressor {
    /// For the relation with this quoted name.
    pub fn new(relation: String) -> ServerCompressor {
        ServerCompressor { relation }
    }

    /// Makes the temporary table for a column and method. Not in a read-only transaction.
    pub async fn prepare(
        &self,
        client: &Client,
        column: usize,
        name: &str,
        method: Method,
    ) -> Result<(), LiveError> {
        let table = temporary_name(column, method);
        let column = quote_identifier(name);
        let relation = &self.relation;
        let method = method.name();
        let sql = format!(
            "CREATE TEMPORARY TABLE {table} AS \
               SELECT NULL::pg_catalog.tid AS item, NULL::pg_catalog.bytea AS filler, \
                      {column} AS value FROM ONLY {relation} LIMIT 0; \
             ALTER TABLE pg_temp.{table} ALTER COLUMN filler SET STORAGE PLAIN; \
             ALTER TABLE pg_temp.{table} ALTER COLUMN value SET STORAGE EXTENDED; \
             ALTER TABLE pg_temp.{table} ALTER COLUMN value SET COMPRESSION {method}; \
             ALTER TABLE pg_temp.{table} SET (toast_tuple_target = 128); \
             CREATE TEMPORARY TABLE {table}_inline (LIKE pg_temp.{table})"
        );
        Ok(client.batch_execute(&sql).await?)
    }

    /// Lets the server compress the column's values of the given rows: the size of the datum with
    /// its 8 bytes of headers, `None` where it refuses.
    pub async fn compress(
        &self,
        client: &Client,
        column: usize,
        name: &str,
        is_array: bool,
        method: Method,
        rows: &[ItemPointer],
    ) -> Result<HashMap<ItemPointer, Option<u32>>, LiveError> {
        let table = temporary_name(column, method);
        let value = quote_identifier(name);
        // A value that arrives compressed stays so: it must be taken apart first.
        let fresh = if is_array {
            format!("pg_catalog.array_cat({value}, '{{}}')")
        } else {
            format!("(ARRAY[{value}])[1]")
        };
        let items: Vec<String> = rows.iter().map(ToString::to_string).collect();
        let insert = format!(
            "INSERT INTO pg_temp.{table} \
             SELECT ctid, pg_catalog.decode(pg_catalog.repeat('00', {FILLER}), 'hex'), {fresh} \
             FROM ONLY {} WHERE ctid = ANY ($1::pg_catalog.text[]::pg_catalog.tid[]) \
             AND {value} IS NOT NULL",
            self.relation
        );
        client.execute_typed(&insert, &[(&items, Type::TEXT_ARRAY)]).await?;
        // Sizes that may be those of a datum in the row or out of it are told apart by copying it
        // into a row where it stays.
        let (never_moved, least) = (NEVER_MOVED, NEVER_MOVED - 3);
        let both = format!("pg_catalog.pg_column_size(value) BETWEEN {least} AND {never_moved}");
        let copy = format!(
            "INSERT INTO pg_temp.{table}_inline SELECT item, NULL, value \
             FROM pg_temp.{table} WHERE {both}"
        );
        client.execute_typed(&copy, &[]).await?;
        let select = format!(
            "SELECT item::pg_catalog.text, \
                    pg_catalog.pg_column_size(value) \
                        + CASE WHEN pg_catalog.pg_column_size(value) > {never_moved} \
                               THEN 4 ELSE 0 END, \
                    pg_catalog.pg_column_compression(value) IS NOT NULL \
             FROM pg_temp.{table} WHERE NOT ({both}) \
             UNION ALL \
             SELECT item::pg_catalog.text, pg_catalog.pg_column_size(value), \
                    pg_catalog.pg_column_compression(value) IS NOT NULL \
             FROM pg_temp.{table}_inline"
        );
        let mut by_text: HashMap<String, Option<u32>> = HashMap::with_capacity(rows.len());
        for row in client.query_typed(&select, &[]).await? {
            let size: i32 = row.try_get(1)?;
            let compressed: bool = row.try_get(2)?;
            let size = u32::try_from(size).ok().filter(|_| compressed);
            by_text.insert(row.try_get(0)?, size);
        }
        client.batch_execute(&format!("TRUNCATE pg_temp.{table}, pg_temp.{table}_inline")).await?;
        Ok(rows
            .iter()
            .zip(&items)
            .filter_map(|(&item, text)| by_text.get(text).map(|size| (item, *size)))
            .collect())
    }
}
