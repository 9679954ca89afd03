//! The chunks of many values, found by the index of their TOAST relation.

use std::collections::HashSet;
use std::ops::Range;

use futures_util::TryStreamExt;
use tokio_postgres::Row;
use tokio_postgres::binary_copy::BinaryCopyOutStream;
use tokio_postgres::types::Type;

use super::chunks::{id_list, is_readable, value_id};
use super::connect::Client;
use super::{LiveError, LiveResult, single_row, snapshot};
use toast_format::disk::{BlockNumber, ItemPointer, PageSize, ValueId, ValueIdType};

/// A chunk found by the index of the TOAST relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkRow {
    /// The address of the chunk.
    pub tid: ItemPointer,
    pub value_id: ValueId,
    /// `chunk_seq`; `None` for NULL.
    pub seq: Option<i32>,
    /// Bytes of `chunk_data`, decompressed; `None` for NULL.
    pub raw_size: Option<i32>,
    /// The size as returned by `pg_column_size`.
    pub stored_size: Option<i32>,
    /// Where its data are in those of all, if requested and not longer than a chunk can be.
    pub data: Option<Range<usize>>,
}

/// Chunks with their data, which are held once.
#[derive(Debug, Default)]
pub struct ChunkRows {
    pub rows: Vec<ChunkRow>,
    /// The data in the order of the rows.
    pub data: Vec<u8>,
}

/// The data of chunks that are wanted.
#[derive(Debug, Clone, Copy)]
pub struct WantedData {
    pub page: PageSize,
    /// The most bytes that they can have; room for all is made at once, because a vector that grows is copied.
    pub most: u64,
}

/// How chunks are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// By an index scan.
    Index,
    /// By a scan of the whole TOAST relation.
    Scan,
}

/// The chunks of values that the current transaction sees; the value IDs are in ascending order. `relation` is quoted.
pub async fn chunks(
    client: &Client,
    relation: (&str, ValueIdType),
    value_ids: &[u64],
    by: By,
    data: Option<WantedData>,
) -> LiveResult<ChunkRows> {
    let wanted = data.map_or("NULL::pg_catalog.bytea".to_owned(), |data| {
        let most = data.page.toast_max_chunk_size();
        let is_readable = is_readable(&(most + 4).to_string());
        format!(
            "CASE WHEN pg_catalog.octet_length(chunk_data) <= {most} AND {is_readable} THEN chunk_data END"
        )
    });
    let sql = format!(
        "COPY (SELECT c.ctid, chunk_id::pg_catalog.int8, chunk_seq, pg_catalog.octet_length(chunk_data), \
                      pg_catalog.pg_column_size(chunk_data), {wanted} \
               {}) \
         TO STDOUT (FORMAT binary)",
        of_values(relation.0, relation.1, value_ids, by)
    );
    if by == By::Scan {
        client.batch_execute(snapshot::WHOLE).await?;
    }
    let types = [Type::BYTEA, Type::INT8, Type::INT4, Type::INT4, Type::INT4, Type::BYTEA];
    let stream = client.copy_out(&sql).await?;
    let mut rows = std::pin::pin!(BinaryCopyOutStream::new(stream, &types));
    let mut chunks = ChunkRows::default();
    let room = data.map_or(0, |data| usize::try_from(data.most).unwrap_or(0));
    // without it, the vector grows
    let _ = chunks.data.try_reserve_exact(room);
    while let Some(row) = rows.try_next().await? {
        let from = chunks.data.len();
        let own = row.try_get::<Option<&[u8]>>(5)?;
        chunks.data.extend_from_slice(own.unwrap_or_default());
        chunks.rows.push(ChunkRow {
            tid: tid(row.try_get(0)?)?,
            value_id: value_id(row.try_get::<Option<i64>>(1)?.unwrap_or(0)),
            seq: row.try_get(2)?,
            raw_size: row.try_get(3)?,
            stored_size: row.try_get(4)?,
            data: own.map(|_| from..chunks.data.len()),
        });
    }
    if by == By::Scan {
        client.batch_execute(snapshot::BY_KEY).await?;
    }
    Ok(chunks)
}

/// Which of the tuples at these addresses the current transaction sees. Each is fetched by its address, because a scan
/// of the relation would trust an all-visible page.
pub async fn visible(
    client: &Client,
    relation: &str,
    places: &[ItemPointer],
) -> LiveResult<HashSet<ItemPointer>> {
    let list: Vec<String> = places.iter().map(|tid| format!("\"{tid}\"")).collect();
    let sql = format!(
        "COPY (SELECT ctid FROM {relation} WHERE ctid = ANY ('{{{}}}'::pg_catalog.tid[])) \
         TO STDOUT (FORMAT binary)",
        list.join(",")
    );
    let stream = client.copy_out(&sql).await?;
    let mut rows = std::pin::pin!(BinaryCopyOutStream::new(stream, &[Type::BYTEA]));
    let mut visible = HashSet::new();
    while let Some(row) = rows.try_next().await? {
        visible.insert(tid(row.try_get(0)?)?);
    }
    Ok(visible)
}

/// The average number of consecutive IDs in a range from which on ranges are used instead of single IDs: finding the
/// beginning of a range costs as much as reading some chunks.
const RANGE: usize = 4;

/// `FROM` and `WHERE` for the chunks of values whose IDs are in ascending order.
fn of_values(relation: &str, id_type: ValueIdType, value_ids: &[u64], by: By) -> String {
    let id_type = id_type.name();
    let ranges: Vec<&[u64]> = value_ids.chunk_by(|a, b| a.checked_add(1) == Some(*b)).collect();
    if by == By::Scan || value_ids.len() < RANGE * ranges.len() {
        let ids = id_list(value_ids.iter().copied());
        return format!(
            "FROM {relation} AS c WHERE chunk_id = ANY ({ids}::pg_catalog.{id_type}[])"
        );
    }
    let first = id_list(ranges.iter().filter_map(|range| range.first().copied()));
    let last = id_list(ranges.iter().filter_map(|range| range.last().copied()));
    format!(
        "FROM ROWS FROM (pg_catalog.unnest({first}::pg_catalog.{id_type}[]), \
                         pg_catalog.unnest({last}::pg_catalog.{id_type}[])) AS r (first, last) \
         JOIN {relation} AS c ON chunk_id BETWEEN r.first AND r.last"
    )
}

/// A chunk without its data and address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkOutline {
    pub value_id: u64,
    pub seq: i32,
    /// Bytes of `chunk_data`, decompressed.
    pub raw_size: i32,
    /// The size as returned by `pg_column_size`.
    pub stored_size: i32,
}

/// The chunks of values, found by the index, in a compact form: one row of four columns, each with an array over all
/// chunks. The value IDs are in ascending order. `None` if any field is NULL.
pub async fn outlines(
    client: &Client,
    relation: (&str, ValueIdType),
    value_ids: &[u64],
) -> LiveResult<Option<Vec<ChunkOutline>>> {
    let id_type = relation.1;
    let sql = format!(
        "SELECT {}, {}, {}, {} {}",
        sent_by_all(&format!("{}send", id_type.name()), "chunk_id"),
        sent_by_all("int4send", "chunk_seq"),
        sent_by_all("int4send", "pg_catalog.octet_length(chunk_data)"),
        sent_by_all("int4send", "pg_catalog.pg_column_size(chunk_data)"),
        of_values(relation.0, id_type, value_ids, By::Index)
    );
    let row = single_row(client, &sql, &[]).await?;
    let ids: Vec<u64> = match id_type {
        ValueIdType::Oid => {
            words_in(&row, 0)?.iter().map(|id| u32::from_be_bytes(*id).into()).collect()
        }
        ValueIdType::Oid8 => {
            bytes_in(&row, 0)?.as_chunks().0.iter().map(|id| u64::from_be_bytes(*id)).collect()
        }
    };
    let seqs = words_in(&row, 1)?;
    let raw = words_in(&row, 2)?;
    let stored = words_in(&row, 3)?;
    if [seqs, raw, stored].iter().any(|column| column.len() != ids.len()) {
        return Ok(None);
    }
    let sizes = raw.iter().zip(stored);
    let chunks =
        ids.into_iter().zip(seqs).zip(sizes).map(|((id, seq), (raw, stored))| ChunkOutline {
            value_id: id,
            seq: i32::from_be_bytes(*seq),
            raw_size: i32::from_be_bytes(*raw),
            stored_size: i32::from_be_bytes(*stored),
        });
    Ok(Some(chunks.collect()))
}

/// The binary forms of an expression over all rows, one after the other.
fn sent_by_all(send: &str, expression: &str) -> String {
    format!("pg_catalog.string_agg(pg_catalog.{send}({expression}), ''::pg_catalog.bytea)")
}

fn bytes_in(row: &Row, column: usize) -> LiveResult<&[u8]> {
    Ok(row.try_get::<_, Option<&[u8]>>(column)?.unwrap_or_default())
}

fn words_in(row: &Row, column: usize) -> LiveResult<&[[u8; 4]]> {
    Ok(bytes_in(row, column)?.as_chunks().0)
}

/// Decodes the output of `tid_send`: block and line pointer, most significant byte first.
fn tid(bytes: &[u8]) -> LiveResult<ItemPointer> {
    match bytes {
        &[a, b, c, d, e, f] => Ok(ItemPointer {
            block: BlockNumber(u32::from_be_bytes([a, b, c, d])),
            item: u16::from_be_bytes([e, f]),
        }),
        _ => Err(LiveError::Unexpected(format!("tid of {} bytes", bytes.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_asked_for_by_ranges_where_their_ids_follow_each_other() {
        let single = [7, 8, 9, 10, 11, 12, 20, 4_294_967_295];
        let of_oids = |ids: &[u64], by| of_values("pg_toast.t", ValueIdType::Oid, ids, by);
        assert_eq!(
            of_oids(&single, By::Index),
            "FROM pg_toast.t AS c WHERE chunk_id = \
             ANY ('{7,8,9,10,11,12,20,4294967295}'::pg_catalog.oid[])"
        );
        let dense = [7, 8, 9, 10, 11, 12, 20, 21];
        assert_eq!(
            of_oids(&dense, By::Index),
            "FROM ROWS FROM (pg_catalog.unnest('{7,20}'::pg_catalog.oid[]), \
             pg_catalog.unnest('{12,21}'::pg_catalog.oid[])) AS r (first, last) \
             JOIN pg_toast.t AS c ON chunk_id BETWEEN r.first AND r.last"
        );
        assert!(of_oids(&dense, By::Scan).contains("chunk_id = ANY"));
        let wide = of_values("pg_toast.t", ValueIdType::Oid8, &[7, u64::MAX], By::Index);
        assert!(wide.ends_with("ANY ('{7,18446744073709551615}'::pg_catalog.oid8[])"), "{wide}");
    }
}
