//! Values of a sample that a look at a table has met, read for what is in them.

use tokio_postgres::types::{Oid as PgOid, Type};

use crate::advise::fetch;
use crate::codec::Method;
use crate::codec::datum::Compressor;
use crate::disk::layout::PageSize;
use crate::disk::pointer::ToastPointer;
use crate::findings::content::{LONGEST, is_compressed, part, would_compress};
use crate::findings::facts::Contents;
use crate::server::LiveError;
use crate::server::connect::Client;
use crate::server::sql::quote_qualified;

/// Bytes of values that are read in all for each column.
const MOST: u64 = 4 << 20;
/// Bytes of a value that are asked for its format.
const FIRST: i32 = 16;

/// What is in these values of one column, which are out of line as they came, in the TOAST relation of this
/// name. In a transaction with a plan by keys.
///
/// # Errors
/// The server's.
pub(super) async fn contents(
    client: &Client,
    toast: &str,
    method: Method,
    pointers: &[ToastPointer],
    page: PageSize,
) -> Result<Contents, LiveError> {
    let known = first_bytes(client, toast, pointers).await?;
    let formats = pointers.iter().filter_map(|pointer| {
        let (_, format) = known.iter().find(|(id, _)| *id == pointer.value_id.0)?;
        Some((u64::from(pointer.stored_size()), *format))
    });
    let formats: Vec<(u64, bool)> = formats.collect();
    let mut bytes = 0;
    let few: Vec<ToastPointer> = pointers
        .iter()
        .filter(|pointer| u64::from(pointer.stored_size()) <= LONGEST)
        .take_while(|pointer| {
            bytes += u64::from(pointer.stored_size());
            bytes <= MOST
        })
        .copied()
        .collect();
    let values = fetch::values(client, toast, &few).await?;
    let mut compressor = Compressor::new();
    let compressible = few.iter().filter_map(|pointer| {
        let raw = values.get(&pointer.value_id.0)?;
        Some((raw.len() as u64, would_compress(&mut compressor, method, raw, page)))
    });
    let compressible: Vec<(u64, bool)> = compressible.collect();
    Ok(Contents {
        compressed: part(formats.into_iter()),
        compressible: part(compressible.into_iter()),
    })
}

/// By value, whether it is of a format that is compressed.
async fn first_bytes(
    client: &Client,
    toast: &str,
    pointers: &[ToastPointer],
) -> Result<Vec<(u32, bool)>, LiveError> {
    let sql = format!(
        "SELECT chunk_id, pg_catalog.substr(chunk_data, 1, {FIRST}) FROM {} \
         WHERE chunk_id = ANY ($1) AND chunk_seq = 0",
        quote_qualified("pg_toast", toast)
    );
    let ids: Vec<PgOid> = pointers.iter().map(|pointer| pointer.value_id.0).collect();
    let rows = client.query_typed(&sql, &[(&ids, Type::OID_ARRAY)]).await?;
    let read = rows.iter().map(|row| {
        let (id, first): (PgOid, &[u8]) = (row.try_get(0)?, row.try_get(1)?);
        Ok((id, is_compressed(first)))
    });
    read.collect()
}
