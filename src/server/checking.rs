//! What a check asks of a server: how a table stands at the moment, its chunks by their index, and
//! blocks as they are on disk.

use futures_util::TryStreamExt;
use tokio_postgres::binary_copy::BinaryCopyOutStream;
use tokio_postgres::types::{Oid as PgOid, Type};

use super::LiveError;
use super::about::Server;
use super::catalog::{Relation, RelationKind};
use super::connect::{Client, Connection};
use super::plan;
use super::sql::quote_literal;
use super::toasters::TOAST_RELATIONS;
use crate::disk::layout::PageSize;
use crate::disk::{BlockNumber, ItemPointer, Oid, TransactionId};
use crate::model::visibility::Snapshot;

/// A table as it stands in the present transaction.
#[derive(Debug, Clone)]
pub struct Standing {
    /// What the transaction sees.
    pub snapshot: Snapshot,
    /// Changes with anything that says how its tuples are read.
    pub fingerprint: String,
    /// `relfrozenxid`.
    pub frozen: TransactionId,
    /// `relminmxid`.
    pub multi: TransactionId,
    /// Blocks of the main fork.
    pub blocks: u32,
    /// Whether it is unlogged and the server a standby, where such a table cannot be read.
    pub is_out_of_reach: bool,
}

/// Begins a transaction that reads `relation`, and takes the lock that keeps it as it is before the
/// snapshot is taken. `None` if another relation has its name now, or none.
pub async fn begin(
    connection: &Connection,
    relation: &Relation,
    page: PageSize,
) -> Result<Option<Standing>, LiveError> {
    const MODE: &str = "TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY";
    let quoted = relation.quoted();
    // only tables can be locked so
    let lock = match relation.kind {
        RelationKind::Table => format!("LOCK TABLE ONLY {quoted} IN ACCESS SHARE MODE"),
        _ => format!("SELECT FROM ONLY {quoted} LIMIT 0"),
    };
    let begin = connection.begin_sql(MODE);
    let client = connection.client();
    client.batch_execute(&format!("{begin}{}; {lock}", plan::BY_KEY)).await?;
    let rows = client
        .query_typed(
            &format!("SELECT pg_catalog.pg_current_snapshot()::pg_catalog.text, \
                    pg_catalog.pg_is_in_recovery(), \
                    c.relfrozenxid::pg_catalog.text::pg_catalog.int8, \
                    c.relminmxid::pg_catalog.text::pg_catalog.int8, \
                    pg_catalog.pg_relation_size(c.oid), \
                    pg_catalog.concat(c.relfilenode, ' ', ({TOAST_RELATIONS})::pg_catalog.text, ' ', ( \
                        SELECT pg_catalog.md5(pg_catalog.string_agg( \
                            a.*::pg_catalog.text, ',' ORDER BY a.attnum)) \
                        FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = c.oid)), \
                    c.relpersistence = 'u' AND pg_catalog.pg_is_in_recovery() \
             FROM pg_catalog.pg_class AS c \
             WHERE c.oid = $1 AND c.oid = pg_catalog.to_regclass($2)"),
            &[(&relation.oid.0, Type::OID), (&quoted, Type::TEXT)],
        )
        .await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let text: String = row.try_get(0)?;
    let mut snapshot = Snapshot::parse(&text)
        .ok_or_else(|| LiveError::Unexpected(format!("snapshot \"{text}\"")))?;
    snapshot.taken_during_recovery = row.try_get(1)?;
    let xid = |at| -> Result<TransactionId, LiveError> {
        Ok(TransactionId(u32::try_from(row.try_get::<_, i64>(at)?).unwrap_or(0)))
    };
    let bytes = u64::try_from(row.try_get::<_, Option<i64>>(4)?.unwrap_or(0)).unwrap_or(0);
    Ok(Some(Standing {
        snapshot,
        frozen: xid(2)?,
        multi: xid(3)?,
        blocks: u32::try_from(bytes / page.bytes() as u64).unwrap_or(u32::MAX),
        fingerprint: row.try_get(5)?,
        is_out_of_reach: row.try_get(6)?,
    }))
}

/// A chunk as the TOAST relation's index leads to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkRow {
    /// Where it stands.
    pub tid: ItemPointer,
    /// `chunk_id`.
    pub value_id: Oid,
    /// `chunk_seq`; `None` for NULL.
    pub seq: Option<i32>,
    /// Bytes of `chunk_data`, decompressed; `None` for NULL.
    pub raw_size: Option<i32>,
    /// As `pg_column_size` counts.
    pub stored_size: Option<i32>,
    /// The data, if they are wanted and not longer than a chunk can be.
    pub data: Option<Vec<u8>>,
}

/// How chunks are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Their index.
    Index,
    /// A scan of the whole TOAST relation.
    Scan,
}

/// The chunks of values that the present transaction sees. `relation` is quoted.
pub async fn chunks(
    client: &Client,
    relation: &str,
    value_ids: &[u32],
    by: By,
    data: Option<PageSize>,
) -> Result<Vec<ChunkRow>, LiveError> {
    let list: Vec<String> = value_ids.iter().map(u32::to_string).collect();
    // a damaged length must not make the server read what is not the chunk's
    let data = data.map_or("NULL::pg_catalog.bytea".to_owned(), |page| {
        let most = page.toast_max_chunk_size();
        format!(
            "CASE WHEN pg_catalog.octet_length(chunk_data) <= {most} \
                   AND pg_catalog.pg_column_size(chunk_data) <= {} THEN chunk_data END",
            most + 4
        )
    });
    let sql = format!(
        "COPY (SELECT ctid, chunk_id, chunk_seq, pg_catalog.octet_length(chunk_data), \
                      pg_catalog.pg_column_size(chunk_data), {data} \
               FROM {relation} WHERE chunk_id = ANY ('{{{}}}'::pg_catalog.oid[])) \
         TO STDOUT (FORMAT binary)",
        list.join(",")
    );
    if by == By::Scan {
        client.batch_execute(plan::WHOLE).await?;
    }
    let types = [Type::BYTEA, Type::OID, Type::INT4, Type::INT4, Type::INT4, Type::BYTEA];
    let stream = client.copy_out(&sql).await?;
    let mut rows = std::pin::pin!(BinaryCopyOutStream::new(stream, &types));
    let mut chunks = Vec::new();
    while let Some(row) = rows.try_next().await? {
        chunks.push(ChunkRow {
            tid: tid(row.try_get(0)?)?,
            value_id: Oid(row.try_get::<Option<PgOid>>(1)?.unwrap_or(0)),
            seq: row.try_get(2)?,
            raw_size: row.try_get(3)?,
            stored_size: row.try_get(4)?,
            data: row.try_get::<Option<&[u8]>>(5)?.map(<[u8]>::to_vec),
        });
    }
    if by == By::Scan {
        client.batch_execute(plan::BY_KEY).await?;
    }
    Ok(chunks)
}

/// The chunks of a value that the present transaction sees, or the one with this number: its number
/// and data. Longer ones than a chunk can be are left out.
pub async fn pieces(
    client: &Client,
    relation: &str,
    value_id: Oid,
    seq: Option<i32>,
    page: PageSize,
) -> Result<Vec<(i32, Vec<u8>)>, LiveError> {
    let most = page.toast_max_chunk_size();
    let own = seq.map_or(String::new(), |seq| format!("AND chunk_seq = {seq}"));
    let sql = format!(
        "SELECT chunk_seq, chunk_data FROM {relation} \
         WHERE chunk_id = {value_id} {own} AND chunk_seq IS NOT NULL \
           AND CASE WHEN pg_catalog.octet_length(chunk_data) <= {most} \
                    THEN pg_catalog.pg_column_size(chunk_data) <= {} END",
        most + 4
    );
    let rows = client.query_typed(&sql, &[]).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

/// As `tid_send` gives it: block and line pointer, most significant byte first.
fn tid(bytes: &[u8]) -> Result<ItemPointer, LiveError> {
    match bytes {
        &[a, b, c, d, e, f] => Ok(ItemPointer {
            block: BlockNumber(u32::from_be_bytes([a, b, c, d])),
            item: u16::from_be_bytes([e, f]),
        }),
        _ => Err(LiveError::Unexpected(format!("tid of {} bytes", bytes.len()))),
    }
}

/// What a check knows of a server besides what [`Server`] says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    /// Whether pages have checksums.
    pub checksums: bool,
    /// `server_encoding`.
    pub encoding: String,
    /// Bytes of a segment file.
    segment: u64,
}

impl Storage {
    /// Asks the server.
    pub async fn ask(client: &Client) -> Result<Storage, LiveError> {
        let row = client
            .query_typed(
                "SELECT pg_catalog.current_setting('data_checksums') = 'on', \
                        pg_catalog.current_setting('server_encoding'), \
                        setting::pg_catalog.int8 \
                            * pg_catalog.current_setting('block_size')::pg_catalog.int8 \
                 FROM pg_catalog.pg_settings WHERE name = 'segment_size'",
                &[],
            )
            .await?
            .pop()
            .ok_or_else(|| LiveError::Unexpected("no segment_size".into()))?;
        let segment: i64 = row.try_get(2)?;
        Ok(Storage {
            checksums: row.try_get(0)?,
            encoding: row.try_get(1)?,
            segment: u64::try_from(segment).unwrap_or(1 << 30).max(1),
        })
    }

    /// Blocks of a relation as they are in its file, not in the server's buffers: what is being
    /// written just then may be half there. Fewer where the file ends. `relation` is quoted.
    pub async fn on_disk(
        &self,
        client: &Client,
        server: &Server,
        relation: &str,
        blocks: std::ops::Range<u32>,
    ) -> Result<Vec<u8>, LiveError> {
        let size = server.page_size.bytes() as u64;
        let (first, end) = (u64::from(blocks.start) * size, u64::from(blocks.end) * size);
        let mut bytes = Vec::new();
        let mut at = first;
        while at < end {
            let (segment, within) = (at / self.segment, at % self.segment);
            let length = (end - at).min(self.segment - within);
            let suffix = if segment == 0 { String::new() } else { format!(".{segment}") };
            let sql = format!(
                "SELECT pg_catalog.pg_read_binary_file( \
                     pg_catalog.pg_relation_filepath({}::pg_catalog.regclass) || {}, \
                     {within}, {length}, true)",
                quote_literal(relation),
                quote_literal(&suffix)
            );
            let rows = client.query_typed(&sql, &[]).await?;
            let read: Option<&[u8]> = match rows.first() {
                Some(row) => row.try_get(0)?,
                None => None,
            };
            let read = read.unwrap_or_default();
            bytes.extend_from_slice(read);
            if (read.len() as u64) < length {
                break;
            }
            at += length;
        }
        Ok(bytes)
    }
}
