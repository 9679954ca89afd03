//! Chunks of a live server's TOAST relations, read by SQL: those that the current transaction sees, to which all its
//! visible rows refer. If pages can be read, they supply the rest: dead chunks, for the values of dead rows, and
//! redirected addresses.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::TryStreamExt;
use tokio::runtime::Handle;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::about::Pageinspect;
use super::connect::{Client, Connection};
use super::pages::PageReader;
use super::{LiveError, LiveResult, Parameter, count_in, snapshot};
use crate::offline::toastfile::{chunk_on_page, chunks_on_page};
use toast_format::disk::{
    BlockNumber, ItemPointer, Oid, PageSize, ToastPointer, ValueId, ValueIdType,
};
use toast_format::model::Snapshot;
use toast_format::model::sql::quote_qualified;
use toast_format::model::toaster::chunks::{
    Chunk, ChunkData, ChunkStore, Fate, FetchedChunks, StoreError, WantedChunks,
};

/// Blocks read at a time: 4 MB of 8 kB pages.
const BATCH: u32 = 512;
/// The maximum number of value IDs, and of chunks (2 MB), to read at a time.
const MOST_AHEAD: u64 = 128;
const MOST_CHUNKS: usize = 1024;

/// Calls `each` for every value in a TOAST relation that the current transaction sees, with its `chunk_id`, its number
/// of chunks, and the stored bytes of `chunk_data`. The relation is given by its quoted name.
pub async fn each_value(
    client: &Client,
    relation: &str,
    mut each: impl FnMut(ValueId, u64, u64),
) -> LiveResult<()> {
    let sql = format!(
        "SELECT chunk_id::pg_catalog.int8, pg_catalog.count(*), \
                pg_catalog.sum(pg_catalog.pg_column_size(chunk_data) - 4)::pg_catalog.int8 \
         FROM {relation} GROUP BY chunk_id"
    );
    client.batch_execute(snapshot::WHOLE).await?;
    let mut rows = std::pin::pin!(client.query_stream(&sql).await?);
    while let Some(row) = rows.try_next().await? {
        each(value_id(row.try_get(0)?), count_in(&row, 1)?, count_in(&row, 2)?);
    }
    Ok(client.batch_execute(snapshot::BY_KEY).await?)
}

/// The value ID that is `chunk_id::int8`, whichever its type.
pub(crate) fn value_id(number: i64) -> ValueId {
    ValueId(number.cast_unsigned())
}

/// Value IDs as a literal that takes the type of the `chunk_id` with which it is compared: `chunk_id = ANY ('{1,2}')`.
pub(crate) fn id_list(ids: impl IntoIterator<Item = u64>) -> String {
    let ids: Vec<String> = ids.into_iter().map(|id| id.to_string()).collect();
    format!("'{{{}}}'", ids.join(","))
}

/// Reads chunks on one connection, in its current transaction.
///
/// It blocks the calling thread while it waits for the server, so that thread must belong to a multi-threaded runtime.
#[derive(Debug)]
pub struct LiveChunks {
    connection: Arc<Connection>,
    /// Quoted names of TOAST relations, and the types of their `chunk_id`.
    names: HashMap<Oid, (String, ValueIdType)>,
    pages: Option<ChunkPages>,
    ahead: FetchAhead,
    /// Whether the transaction has the savepoint to which it returns when chunks cannot be read.
    has_savepoint: bool,
}

/// Values that were read together with a requested one. Rows written one after another have consecutive value IDs.
/// While values are requested in that order, more and more are read at a time.
#[derive(Debug, Default)]
struct FetchAhead {
    relation: Oid,
    /// The value requested last, and the number of IDs in the last query.
    last: u64,
    span: u64,
    values: HashMap<u64, Vec<Chunk>>,
}

impl FetchAhead {
    /// Returns a value that was already read.
    fn take(&mut self, relation: Oid, value_id: ValueId) -> Option<Vec<Chunk>> {
        let known = self.values.remove(&value_id.0)?;
        if self.relation != relation {
            return None;
        }
        self.last = value_id.0;
        Some(known)
    }

    /// The number of IDs to read, starting with this value's.
    fn next(&mut self, relation: Oid, value_id: ValueId) -> u64 {
        let step = value_id.0.wrapping_sub(self.last);
        let follows = self.relation == relation && step > 0 && step <= MOST_AHEAD;
        self.span = if follows { (self.span * 2).clamp(2, MOST_AHEAD) } else { 1 };
        (self.relation, self.last) = (relation, value_id.0);
        self.values.clear();
        self.span
    }
}

/// How chunks are read from pages.
#[derive(Debug, Clone)]
pub struct ChunkPages {
    pub pageinspect: Pageinspect,
    /// The server's page size.
    pub page_size: PageSize,
    /// The snapshot of the transaction.
    pub snapshot: Snapshot,
    /// Whether dead chunks are needed too. The whole TOAST relation is then read for each value.
    pub dead: bool,
}

impl LiveChunks {
    /// A reader that uses only SQL.
    pub fn new(connection: Arc<Connection>) -> LiveChunks {
        LiveChunks {
            connection,
            names: HashMap::new(),
            pages: None,
            ahead: FetchAhead::default(),
            has_savepoint: false,
        }
    }

    /// A reader that uses pages for what SQL does not return.
    pub fn with_pages(connection: Arc<Connection>, pages: ChunkPages) -> LiveChunks {
        LiveChunks { pages: Some(pages), ..LiveChunks::new(connection) }
    }

    /// Reads these values, so that they are at hand when they are asked for one by one.
    pub(crate) async fn read_ahead(
        &mut self,
        relation: Oid,
        value_ids: &[u64],
    ) -> Result<(), StoreError> {
        let numbers: Vec<i64> = value_ids.iter().map(|id| id.cast_signed()).collect();
        let condition = |id_type: &str| format!("chunk_id = ANY ($1::pg_catalog.{id_type}[])");
        let mut chunks = Vec::new();
        if !value_ids.is_empty() {
            chunks = self.select(relation, condition, &[(&numbers, Type::INT8_ARRAY)]).await?;
        }
        let values = value_ids.iter().map(|id| (*id, Vec::new())).collect();
        self.ahead = FetchAhead { relation, values, ..FetchAhead::default() };
        for chunk in chunks {
            self.ahead.values.entry(chunk.value_id.0).or_default().push(chunk);
        }
        Ok(())
    }

    /// Reads what a value lacks.
    pub(crate) async fn fetch(
        &mut self,
        wanted: WantedChunks,
        into: &mut FetchedChunks,
    ) -> Result<(), StoreError> {
        match wanted {
            WantedChunks::Value(relation, value_id) => {
                let chunks = self.value(relation, value_id).await?;
                into.add_value(relation, value_id, chunks);
            }
            WantedChunks::At(relation, tid) => {
                let chunk = self.at(relation, tid).await?;
                into.add_at(relation, tid, chunk);
            }
        }
        Ok(())
    }

    /// The chunk at an address.
    async fn at(&mut self, relation: Oid, tid: ItemPointer) -> Result<Option<Chunk>, StoreError> {
        let text = tid.to_string();
        let found = self
            .select(
                relation,
                |_: &str| "ctid = $1::pg_catalog.tid".to_owned(),
                &[(&text, Type::TEXT)],
            )
            .await?;
        match (found.into_iter().next(), self.pages.clone()) {
            (None, Some(pages)) => self.on_page(relation, tid, &pages).await,
            (found, _) => Ok(found),
        }
    }

    async fn reader(
        &mut self,
        relation: Oid,
        pages: &ChunkPages,
    ) -> Result<PageReader, StoreError> {
        let (name, _) = self.name(relation).await?;
        let ChunkPages { pageinspect, page_size, snapshot, .. } = pages;
        let connection = Arc::clone(&self.connection);
        let opened =
            PageReader::new(connection, pageinspect, *page_size, name, snapshot.clone()).await;
        Ok(opened?)
    }

    /// All chunks of a value that are still on pages.
    async fn all_chunks(
        &mut self,
        relation: Oid,
        value_id: ValueId,
        pages: &ChunkPages,
    ) -> Result<Vec<Chunk>, StoreError> {
        let id_type = self.name(relation).await?.1;
        let mut reader = self.reader(relation, pages).await?;
        let end = reader.block_count().await?;
        let mut chunks = Vec::new();
        let mut next = 0;
        while next < end {
            let last = next.saturating_add(BATCH).min(end);
            let blocks: Vec<BlockNumber> = (next..last).map(BlockNumber).collect();
            next = last;
            let read = reader.read(&blocks).await?;
            if let Some((block, message)) = read.unreadable.first() {
                return Err(StoreError(format!("toast block {block}: {message}")));
            }
            for (block, bytes) in read.iter() {
                chunks.extend(chunks_on_page(
                    block,
                    bytes,
                    value_id,
                    id_type,
                    read.transactions(),
                )?);
            }
        }
        Ok(chunks)
    }

    async fn on_page(
        &mut self,
        relation: Oid,
        tid: ItemPointer,
        pages: &ChunkPages,
    ) -> Result<Option<Chunk>, StoreError> {
        let id_type = self.name(relation).await?.1;
        let mut reader = self.reader(relation, pages).await?;
        if tid.block.0 >= reader.block_count().await? {
            return Ok(None);
        }
        let read = reader.read(&[tid.block]).await?;
        match read.iter().next() {
            Some((_, bytes)) => chunk_on_page(bytes, tid, id_type, read.transactions()),
            None => Ok(None),
        }
    }

    async fn name(&mut self, relation: Oid) -> Result<(String, ValueIdType), StoreError> {
        if let Some(name) = self.names.get(&relation) {
            return Ok(name.clone());
        }
        let sql = "SELECT n.nspname::pg_catalog.text, c.relname::pg_catalog.text, \
                          EXISTS (SELECT FROM pg_catalog.pg_attribute AS a \
                                  WHERE a.attrelid = c.oid AND a.attnum = 1 \
                                      AND a.atttypid = pg_catalog.to_regtype('pg_catalog.oid8')) \
                   FROM pg_catalog.pg_class AS c \
                   JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
                   WHERE c.oid = $1 AND c.relkind = 't'";
        let found = self.connection.client().row(sql, &[(&relation.0, Type::OID)]).await;
        let row = found.map_err(LiveError::from)?;
        let row =
            row.ok_or_else(|| StoreError(format!("there is no toast relation {relation}")))?;
        let (schema, name, is_wide) = names(&row)?;
        let id_type = if is_wide { ValueIdType::Oid8 } else { ValueIdType::Oid };
        let known = (quote_qualified(&schema, &name), id_type);
        self.names.insert(relation, known.clone());
        Ok(known)
    }

    async fn select(
        &mut self,
        relation: Oid,
        condition: impl Fn(&str) -> String,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Chunk>, StoreError> {
        let (name, id_type) = self.name(relation).await?;
        let sql =
            format!("SELECT {} FROM {name} WHERE {}", chunk_columns(), condition(id_type.name()));
        self.savepoint().await?;
        match self.connection.query_again(&sql, parameters).await {
            Ok(rows) => Ok(rows.iter().map(chunk).collect::<LiveResult<_>>()?),
            Err(error) => Err(self.undone(error).await),
        }
    }

    async fn savepoint(&mut self) -> Result<(), StoreError> {
        if !self.has_savepoint {
            let client = self.connection.client();
            client.batch_execute("SAVEPOINT toastctl_value").await.map_err(LiveError::from)?;
            self.has_savepoint = true;
        }
        Ok(())
    }

    /// Returns to the savepoint, because what is read after this error needs the transaction. If that is lost too, its own
    /// error says so.
    async fn undone(&mut self, error: tokio_postgres::Error) -> StoreError {
        let client = self.connection.client();
        let undone = client.batch_execute("ROLLBACK TO SAVEPOINT toastctl_value").await;
        self.has_savepoint = undone.is_ok();
        LiveError::from(error).into()
    }

    /// Passes on the chunks of a value in order, as they arrive.
    async fn stream(
        &mut self,
        relation: Oid,
        value_id: ValueId,
        take: &mut dyn FnMut(Chunk),
    ) -> Result<(), StoreError> {
        let (name, _) = self.name(relation).await?;
        self.savepoint().await?;
        let sql = format!(
            "SELECT {} FROM {name} WHERE chunk_id = '{value_id}' ORDER BY chunk_seq",
            chunk_columns()
        );
        let connection = Arc::clone(&self.connection);
        let read = async {
            let mut rows = std::pin::pin!(connection.client().query_stream(&sql).await?);
            while let Some(row) = rows.try_next().await? {
                take(chunk(&row)?);
            }
            Ok::<_, LiveError>(())
        };
        match read.await {
            Err(LiveError::Server(error)) => Err(self.undone(error).await),
            read => Ok(read?),
        }
    }

    /// The chunks of a value, in order; following values may be read with it.
    async fn value(&mut self, relation: Oid, value_id: ValueId) -> Result<Vec<Chunk>, StoreError> {
        if let Some(known) = self.ahead.take(relation, value_id) {
            return Ok(known);
        }
        let span = self.ahead.next(relation, value_id);
        if span > 1 {
            let end = value_id.0.saturating_add(span - 1);
            let condition = |id_type: &str| {
                format!(
                    "chunk_id >= $1::pg_catalog.{id_type} AND chunk_id <= $2::pg_catalog.{id_type} \
                     ORDER BY chunk_id, chunk_seq LIMIT {MOST_CHUNKS}"
                )
            };
            // where one of the values cannot be read, each is read by itself
            let first = value_id.0.cast_signed();
            let last = end.cast_signed();
            let ids = [(&first as &(dyn ToSql + Sync), Type::INT8), (&last, Type::INT8)];
            if let Ok(chunks) = self.select(relation, condition, &ids).await {
                // The last value may be incomplete.
                let cut = if chunks.len() >= MOST_CHUNKS {
                    chunks.last().map(|last| last.value_id)
                } else {
                    None
                };
                for chunk in chunks {
                    if Some(chunk.value_id) != cut {
                        self.ahead.values.entry(chunk.value_id.0).or_default().push(chunk);
                    }
                }
                if cut != Some(value_id) {
                    return Ok(self.ahead.take(relation, value_id).unwrap_or_default());
                }
            }
            self.ahead.span = 0;
        }
        self.select(
            relation,
            |id_type: &str| format!("chunk_id = $1::pg_catalog.{id_type} ORDER BY chunk_seq"),
            &[(&value_id.0.cast_signed(), Type::INT8)],
        )
        .await
    }
}

impl From<LiveError> for StoreError {
    fn from(error: LiveError) -> StoreError {
        StoreError(error.to_string())
    }
}

fn names(row: &Row) -> LiveResult<(String, String, bool)> {
    Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
}

/// The condition that the server can read `chunk_data` without leaving its page, although its length may be damaged: it is
/// that of bytes with a header of 4 bytes or 1, or of compressed ones with more than their header of 8, and at most `most`
/// with the header. Of a length below its own header, the server would copy a negative number of bytes, and crash.
pub(super) fn is_readable(most: &str) -> String {
    format!(
        "pg_catalog.octet_length(chunk_data) >= 0 AND pg_catalog.pg_column_size(chunk_data) <= {most} \
         AND (pg_catalog.pg_column_size(chunk_data) - pg_catalog.octet_length(chunk_data) IN (1, 4) \
              OR pg_catalog.pg_column_size(chunk_data) > 8)"
    )
}

/// The condition that the server can read a chunk, whichever toaster has written it.
pub(crate) fn readable_data() -> String {
    is_readable("(SELECT pg_catalog.current_setting('block_size')::pg_catalog.int4)")
}

/// What [`chunk`] reads.
fn chunk_columns() -> String {
    format!(
        "ctid::pg_catalog.text, chunk_id::pg_catalog.int8, chunk_seq, \
         CASE WHEN {} THEN chunk_data END, pg_catalog.pg_column_size(chunk_data)",
        readable_data()
    )
}

fn chunk(row: &Row) -> LiveResult<Chunk> {
    let Some(data): Option<Vec<u8>> = row.try_get(3)? else {
        let ctid: String = row.try_get(0)?;
        return Err(LiveError::Unexpected(format!("length of the chunk at {ctid}")));
    };
    // of a compressed chunk, which the server returns decompressed, including its headers
    let stored = u64::from(row.try_get::<_, i32>(4)?.unsigned_abs());
    let raw = data.len() as u64;
    let stored_size = if stored < raw { stored.saturating_sub(8) } else { raw };
    Ok(Chunk {
        tid: address(row.try_get(0)?)?,
        value_id: value_id(row.try_get(1)?),
        seq: row.try_get(2)?,
        inserted: Fate::Committed,
        data: ChunkData::Plain(data),
        stored_size,
    })
}

/// Parses `(block,item)`; `None` for any other text.
pub fn parse_tid(text: &str) -> Option<ItemPointer> {
    let (block, item) = text.strip_prefix('(')?.strip_suffix(')')?.split_once(',')?;
    Some(ItemPointer {
        block: BlockNumber(block.trim().parse().ok()?),
        item: item.trim().parse().ok()?,
    })
}

/// Parses a row's address as printed by the server.
pub(crate) fn address(text: &str) -> LiveResult<ItemPointer> {
    parse_tid(text).ok_or_else(|| LiveError::Unexpected(format!("row address \"{text}\"")))
}

/// Parses a transaction ID, or its low 32 bits, as printed by the server.
pub(crate) fn transaction(text: &str) -> LiveResult<u32> {
    text.parse().map_err(|_| LiveError::Unexpected(format!("transaction \"{text}\"")))
}

/// Waits on the current thread.
fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| Handle::current().block_on(future))
}

impl ChunkStore for LiveChunks {
    fn chunks(&mut self, relation: Oid, value_id: ValueId) -> Result<Vec<Chunk>, StoreError> {
        if let Some(pages) = self.pages.clone().filter(|pages| pages.dead) {
            return wait(self.all_chunks(relation, value_id, &pages));
        }
        wait(self.value(relation, value_id))
    }

    fn each_chunk(
        &mut self,
        relation: Oid,
        value_id: ValueId,
        take: &mut dyn FnMut(Chunk),
    ) -> Result<(), StoreError> {
        if self.pages.as_ref().is_some_and(|pages| pages.dead) {
            self.chunks(relation, value_id)?.into_iter().for_each(take);
            return Ok(());
        }
        wait(self.stream(relation, value_id, take))
    }

    fn chunk_at(&mut self, relation: Oid, tid: ItemPointer) -> Result<Option<Chunk>, StoreError> {
        wait(self.at(relation, tid))
    }
}

/// Values fetched at a time.
const VALUES: usize = 2000;
/// Stored bytes fetched at a time; a single value may be longer.
pub(crate) const BYTES: u64 = 2 << 20;

/// Splits these values into parts that are fetched together, each of at most `most` bytes but of at least one value.
pub(crate) fn in_parts<T>(
    all: &[T],
    most: u64,
    size: impl Fn(&T) -> u64,
) -> impl Iterator<Item = &[T]> {
    in_parts_of(all, VALUES, most, size)
}

/// Splits a list into parts, each of at most `count` items, and of at most `most` of what `size` counts unless it is one
/// item.
pub(crate) fn in_parts_of<T>(
    mut all: &[T],
    count: usize,
    most: u64,
    size: impl Fn(&T) -> u64,
) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let mut sum = 0u64;
        let fits = all.iter().take(count).take_while(|one| {
            sum = sum.saturating_add(size(one));
            sum <= most
        });
        let (now, later) = all.split_at(fits.count().max(1).min(all.len()));
        all = later;
        (!now.is_empty()).then_some(now)
    })
}

/// The stored bytes of values, by `va_valueid`. Values whose chunks do not have the expected total size are omitted.
pub async fn values(
    client: &Client,
    toast_relation: &str,
    pointers: &[ToastPointer],
) -> LiveResult<HashMap<u64, Vec<u8>>> {
    let sql = format!(
        "SELECT chunk_id::pg_catalog.int8, CASE WHEN {} THEN chunk_data ELSE '' END \
         FROM {} WHERE chunk_id = ANY ({}) ORDER BY chunk_id, chunk_seq",
        readable_data(),
        quote_qualified("pg_toast", toast_relation),
        id_list(pointers.iter().map(|pointer| pointer.value_id.0))
    );
    let mut found: HashMap<u64, Vec<u8>> = HashMap::with_capacity(pointers.len());
    for row in client.query_typed(&sql, &[]).await? {
        let data: &[u8] = row.try_get(1)?;
        found.entry(value_id(row.try_get(0)?).0).or_default().extend_from_slice(data);
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
    fn ever_more_values_are_read_ahead_while_they_follow_each_other() {
        let mut ahead = FetchAhead::default();
        let relation = Oid(7);
        let spans: Vec<u64> =
            (0..10).map(|at| ahead.next(relation, ValueId(1000 + at * 100))).collect();
        assert_eq!(spans, [1, 2, 4, 8, 16, 32, 64, 128, 128, 128]);
        // Backwards, far away, in another relation, and around the end of the ID range.
        assert_eq!(ahead.next(relation, ValueId(1800)), 1);
        assert_eq!(ahead.next(relation, ValueId(5000)), 1);
        assert_eq!(ahead.next(Oid(8), ValueId(5001)), 1);
        assert_eq!([u64::MAX, 5].map(|id| ahead.next(relation, ValueId(id))), [1, 2]);
        ahead.values.insert(6, Vec::new());
        assert_eq!(ahead.take(Oid(9), ValueId(6)), None);
        ahead.values.insert(6, Vec::new());
        assert_eq!(ahead.take(relation, ValueId(6)), Some(Vec::new()));
        assert_eq!((ahead.last, ahead.take(relation, ValueId(6))), (6, None));
    }

    #[test]
    fn addresses_are_read_as_the_server_prints_them() {
        let tid = ItemPointer { block: BlockNumber(12), item: 3 };
        assert_eq!(parse_tid("(12,3)"), Some(tid));
        assert_eq!(parse_tid(&tid.to_string()), Some(tid));
        for text in ["", "12,3", "(12,3", "(12)", "(-1,3)", "(12,70000)", "(a,b)"] {
            assert_eq!(parse_tid(text), None, "{text}");
        }
    }

    #[test]
    fn values_are_fetched_by_bytes_and_one_at_the_least() {
        let parts = |sizes: &[u64]| {
            in_parts(sizes, 10, |&size| size).map(<[u64]>::len).collect::<Vec<usize>>()
        };
        let of = |sizes: &[u64]| parts(sizes).first().copied().unwrap_or_default();
        assert_eq!([of(&[]), of(&[11, 1]), of(&[4, 6, 1]), of(&[u64::MAX, 1])], [0, 1, 2, 1]);
        assert_eq!(of(&[0; 3000]), VALUES);
    }
}
