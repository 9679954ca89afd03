//! What a check reads from a server: the state of a table in the current transaction, and blocks as they are on disk.

use tokio_postgres::types::Type;

use super::about::Server;
use super::catalog::{Relation, RelationKind};
use super::connect::{Client, Connection};
use super::owner_facts::lock_unplanned;
use super::toasters::TOAST_RELATIONS;
use super::{LiveResult, catalog, single_row, snapshot};
use toast_format::disk::type_kind::{Made, Type as TypeOnDisk, Types};
use toast_format::disk::{
    Align, Attribute, BlockNumber, Length, Oid, PageSize, Storage as AttributeStorage,
    TransactionId, TupleDesc,
};
use toast_format::model::Snapshot;
use toast_format::model::sql::quote_literal;

/// The state of a table in the current transaction.
#[derive(Debug, Clone, Default)]
pub struct Standing {
    /// The snapshot of the transaction.
    pub snapshot: Snapshot,
    /// A text that changes with everything that determines how tuples are read.
    pub fingerprint: String,
    /// `relfrozenxid`.
    pub frozen: TransactionId,
    /// `relminmxid`.
    pub multi: TransactionId,
    /// The same two IDs of its TOAST relation; 0 if it has none.
    pub toast: [TransactionId; 2],
    /// The number of its file, and of that of its TOAST relation.
    pub file: u32,
    pub toast_file: Option<u32>,
    /// The end of the WAL, if changes of the table are logged.
    pub lsn: Option<u64>,
    /// Blocks of the main fork.
    pub blocks: u32,
    /// Rows and blocks that the catalog counts (`reltuples`, `relpages`), if the table survives a crash. Of shared catalogs
    /// each database has its own counts, of which VACUUM in another one knows nothing.
    pub counted: Option<(f32, i32)>,
    /// Whether the table cannot be read because it is unlogged and the server is a standby.
    pub is_out_of_reach: bool,
}

/// Begins a transaction that reads `relation`. A lock in this mode, which protects its definition, is taken before the
/// snapshot. LOCK TABLE accepts only tables: for other relations, a query that is only parsed takes the lock, and the
/// snapshot may be a moment older. Returns `None` if the name now belongs to another relation, or to none.
pub async fn begin(
    connection: &Connection,
    relation: &Relation,
    page: PageSize,
    mode: &str,
) -> LiveResult<Option<Standing>> {
    const MODE: &str = "TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY";
    let quoted = relation.quoted();
    let begin = format!("{}{}", connection.begin_sql(MODE), snapshot::BY_KEY);
    let client = connection.client();
    if relation.kind == RelationKind::Table {
        let lock = format!("{begin}; LOCK TABLE ONLY {quoted} IN {mode}");
        client.batch_execute(&lock).await?;
    } else {
        client.batch_execute(&begin).await?;
        lock_unplanned(client, &quoted).await?;
    }
    let sql = format!(
        "SELECT pg_catalog.pg_current_snapshot()::pg_catalog.text, \
                pg_catalog.pg_is_in_recovery(), \
                c.relfrozenxid::pg_catalog.text::pg_catalog.int8, \
                c.relminmxid::pg_catalog.text::pg_catalog.int8, \
                pg_catalog.pg_relation_size(c.oid), \
                pg_catalog.concat(pg_catalog.pg_relation_filenode(c.oid), ' ', ({TOAST_RELATIONS})::pg_catalog.text, ' ', ( \
                    SELECT pg_catalog.md5(pg_catalog.string_agg( \
                        a.*::pg_catalog.text, ',' ORDER BY a.attnum)) \
                    FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = c.oid)), \
                c.relpersistence = 'u' AND pg_catalog.pg_is_in_recovery(), \
                coalesce(t.relfrozenxid::pg_catalog.text::pg_catalog.int8, 0), \
                coalesce(t.relminmxid::pg_catalog.text::pg_catalog.int8, 0), \
                CASE WHEN c.relpersistence = 'p' THEN pg_catalog.pg_wal_lsn_diff( \
                    CASE WHEN pg_catalog.pg_is_in_recovery() \
                         THEN pg_catalog.pg_last_wal_replay_lsn() \
                         ELSE pg_catalog.pg_current_wal_insert_lsn() END, \
                    '0/0')::pg_catalog.int8 END, \
                coalesce(pg_catalog.pg_relation_filenode(c.oid), 0), \
                CASE WHEN c.relpersistence = 'p' AND NOT c.relisshared THEN c.reltuples END, c.relpages, \
                pg_catalog.pg_relation_filenode(t.oid) \
         FROM pg_catalog.pg_class AS c \
         LEFT JOIN pg_catalog.pg_class AS t ON t.oid = ({TOAST_RELATIONS})[1] \
         WHERE c.oid = $1 AND c.oid = pg_catalog.to_regclass($2)"
    );
    let about = [(&relation.oid.0 as _, Type::OID), (&quoted as _, Type::TEXT)];
    let Some(row) = client.row(&sql, &about).await? else { return Ok(None) };
    let snapshot = snapshot::snapshot_in(&row)?;
    let bytes = u64::try_from(row.try_get::<_, Option<i64>>(4)?.unwrap_or(0)).unwrap_or(0);
    Ok(Some(Standing {
        snapshot,
        frozen: xid_in(&row, 2)?,
        multi: xid_in(&row, 3)?,
        toast: [xid_in(&row, 7)?, xid_in(&row, 8)?],
        file: row.try_get(10)?,
        toast_file: row.try_get(13)?,
        lsn: row.try_get::<_, Option<i64>>(9)?.and_then(|lsn| u64::try_from(lsn).ok()),
        blocks: u32::try_from(bytes / page.bytes() as u64).unwrap_or(u32::MAX),
        fingerprint: row.try_get(5)?,
        counted: row.try_get::<_, Option<f32>>(11)?.zip(row.try_get(12)?),
        is_out_of_reach: row.try_get(6)?,
    }))
}

/// A transaction ID or MultiXact ID, which was cast to `int8`.
fn xid_in(row: &tokio_postgres::Row, column: usize) -> LiveResult<TransactionId> {
    Ok(TransactionId(u32::try_from(row.try_get::<_, i64>(column)?).unwrap_or(0)))
}

/// Whether a VACUUM or the like is at work on a relation.
pub async fn is_being_vacuumed(client: &Client, relation: Oid) -> LiveResult<bool> {
    let sql = format!("SELECT {}", catalog::is_being_vacuumed("$1"));
    Ok(client.value(&sql, &[(&relation.0, Type::OID)]).await?.unwrap_or(true))
}

/// A unique index of all rows, on columns alone.
#[derive(Debug)]
pub struct UniqueKey {
    /// By their indexes from 0.
    pub columns: Vec<usize>,
    pub is_primary: bool,
}

/// The unique keys of a relation.
pub async fn unique_keys(client: &Client, relation: Oid) -> LiveResult<Vec<UniqueKey>> {
    let sql = "SELECT i.indisprimary, ARRAY(SELECT k.attnum \
                   FROM pg_catalog.unnest(i.indkey::pg_catalog.int2[]) WITH ORDINALITY AS k (attnum, at) \
                   WHERE k.at <= i.indnkeyatts ORDER BY k.at) \
               FROM pg_catalog.pg_index AS i \
               WHERE i.indrelid = $1 AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL \
               ORDER BY i.indexrelid";
    let rows = client.query_typed(sql, &[(&relation.0, Type::OID)]).await?;
    let mut keys = Vec::with_capacity(rows.len());
    for row in &rows {
        let numbers: Vec<i16> = row.try_get(1)?;
        let columns = numbers.into_iter().map(|number| usize::try_from(number - 1).unwrap_or(0));
        keys.push(UniqueKey { is_primary: row.try_get(0)?, columns: columns.collect() });
    }
    Ok(keys)
}

/// The types of a relation's columns, and the types of which they consist, recursively.
pub async fn types(client: &Client, relation: &Relation) -> LiveResult<Types> {
    const IS_ARRAY: &str = "t.typlen = -1 AND t.typelem <> 0 \
        AND t.typinput = 'pg_catalog.array_in'::pg_catalog.regproc";
    const RANGE_OF: &str =
        "SELECT r.rngtypid FROM pg_catalog.pg_range AS r WHERE r.rngmultitypid = t.oid";
    const COLUMNS: &str =
        "FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = t.typrelid AND a.attnum > 0";
    let sql = format!(
        "WITH RECURSIVE used (oid) AS ( \
             SELECT atttypid FROM pg_catalog.pg_attribute \
             WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped \
           UNION \
             SELECT p.part FROM used AS u JOIN pg_catalog.pg_type AS t ON t.oid = u.oid \
             CROSS JOIN LATERAL ( \
                 SELECT t.typbasetype AS part WHERE t.typtype = 'd' \
                 UNION ALL SELECT t.typelem WHERE {IS_ARRAY} \
                 UNION ALL SELECT a.atttypid {COLUMNS} AND t.typtype = 'c' \
                 UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range AS r \
                     WHERE r.rngtypid = t.oid \
                 UNION ALL {RANGE_OF}) AS p) \
         SELECT t.oid, t.typname::pg_catalog.text, t.typtype::pg_catalog.text, t.typlen, \
             t.typalign::pg_catalog.text, \
             CASE WHEN t.typtype = 'd' THEN t.typbasetype \
                  WHEN {IS_ARRAY} THEN t.typelem \
                  ELSE coalesce((SELECT r.rngsubtype FROM pg_catalog.pg_range AS r \
                                 WHERE r.rngtypid = t.oid), ({RANGE_OF})) END, \
             {IS_ARRAY}, \
             ARRAY(SELECT e.oid FROM pg_catalog.pg_enum AS e WHERE e.enumtypid = t.oid), \
             ARRAY(SELECT pg_catalog.concat_ws(' ', a.atttypid, a.attlen, a.attalign, \
                          a.attisdropped) {COLUMNS} AND t.typtype = 'c' ORDER BY a.attnum) \
         FROM used AS u JOIN pg_catalog.pg_type AS t ON t.oid = u.oid"
    );
    let mut types = Types::default();
    for row in client.query_typed(&sql, &[(&relation.oid.0, Type::OID)]).await? {
        let kind: String = row.try_get(2)?;
        let of: Option<u32> = row.try_get(5)?;
        let columns: Vec<String> = row.try_get(8)?;
        let columns = columns.iter().enumerate().map(|(at, text)| composite_column(at, text));
        let made = match (kind.as_str(), of) {
            ("d", Some(base)) => Made::Domain(Oid(base)),
            ("e", _) => Made::Enum(row.try_get::<_, Vec<u32>>(7)?.into_iter().collect()),
            ("r", Some(subtype)) => Made::Range(Oid(subtype)),
            ("m", Some(range)) => Made::Multirange(Oid(range)),
            ("c", _) => match columns.collect::<Option<Vec<Attribute>>>() {
                Some(attributes) => {
                    Made::Composite(TupleDesc { attributes, ..TupleDesc::default() })
                }
                None => continue,
            },
            (_, Some(element)) if row.try_get(6)? => Made::Array(Oid(element)),
            _ => Made::Base,
        };
        let length = Length::from_attlen(i64::from(row.try_get::<_, i16>(3)?));
        let align: String = row.try_get(4)?;
        let align = align.chars().next().and_then(Align::from_char);
        let Some((length, align)) = length.zip(align) else { continue };
        let name = row.try_get::<_, String>(1)?.into();
        let described = TypeOnDisk { name, length, align, made };
        types.add(Oid(row.try_get(0)?), described);
    }
    Ok(types)
}

/// A column of a composite type, from a text with its type, length, alignment, and whether it was dropped.
fn composite_column(at: usize, text: &str) -> Option<Attribute> {
    let mut words = text.split(' ');
    let type_oid = words.next()?.parse().ok()?;
    let length = words.next()?.parse().ok()?;
    let align = words.next()?;
    Some(Attribute {
        name: (at + 1).to_string(),
        type_name: String::new(),
        type_oid: Oid(type_oid),
        length: Length::from_attlen(length)?,
        align: Align::from_char(align.chars().next()?)?,
        storage: AttributeStorage::Plain,
        compression: None,
        dropped: words.next()? == "t",
        is_virtual: false,
        only_plain: false,
        missing: None,
    })
}

/// Those of some blocks that changed after the WAL had reached `lsn`. `relation` is quoted.
pub async fn changed_since(
    client: &Client,
    server: &Server,
    relation: &str,
    blocks: std::ops::Range<u32>,
    lsn: u64,
) -> LiveResult<Vec<BlockNumber>> {
    let Some(pageinspect) = &server.pageinspect else {
        return Ok(blocks.map(BlockNumber).collect());
    };
    let block_type = pageinspect.block_type();
    let sql = format!(
        "SELECT b::pg_catalog.int8 FROM pg_catalog.generate_series({}::{block_type}, {}::{block_type}) AS b \
         WHERE ({}({})).lsn > '{:X}/{:X}'::pg_catalog.pg_lsn",
        blocks.start,
        i64::from(blocks.end) - 1,
        pageinspect.function("page_header"),
        pageinspect.raw_page(&quote_literal(relation), "main", "b"),
        lsn >> 32,
        lsn & 0xFFFF_FFFF,
    );
    let rows = client.query_typed(&sql, &[]).await?;
    rows.iter()
        .map(|row| -> LiveResult<BlockNumber> {
            Ok(BlockNumber(u32::try_from(row.try_get::<_, i64>(0)?).unwrap_or(u32::MAX)))
        })
        .collect()
}

/// What the server will write next, at the current moment rather than at that of the snapshot.
#[derive(Debug, Clone, Copy)]
pub struct NextWritten {
    /// The next transaction ID, as old as the first query for an age in this transaction.
    pub xid: TransactionId,
    pub multi: TransactionId,
    /// The end of the WAL; `None` on a standby.
    pub wal_end: Option<u64>,
}

/// Asks the server what it will write next.
pub async fn next_written(client: &Client) -> LiveResult<NextWritten> {
    // IDs whose age is queried.
    const XID: u32 = 3;
    const MULTI: u32 = 1;
    let sql = format!(
        "SELECT pg_catalog.age('{XID}'::pg_catalog.xid), pg_catalog.mxid_age('{MULTI}'::pg_catalog.xid), \
                CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_wal_lsn_diff( \
                    pg_catalog.pg_current_wal_insert_lsn(), '0/0')::pg_catalog.int8 END"
    );
    let row = single_row(client, &sql, &[]).await?;
    Ok(NextWritten {
        xid: TransactionId(XID.wrapping_add_signed(row.try_get(0)?)),
        multi: TransactionId(MULTI.wrapping_add_signed(row.try_get(1)?)),
        wal_end: row.try_get::<_, Option<i64>>(2)?.and_then(|lsn| u64::try_from(lsn).ok()),
    })
}

/// What a check needs to know about a server in addition to [`Server`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageTraits {
    /// Whether pages have checksums.
    pub checksums: bool,
    /// `server_encoding`.
    pub encoding: String,
    /// Bytes of a segment file.
    segment: u64,
}

impl StorageTraits {
    /// Reads these facts from the server.
    pub async fn ask(client: &Client) -> LiveResult<StorageTraits> {
        let sql = "SELECT pg_catalog.current_setting('data_checksums') = 'on', \
                          pg_catalog.current_setting('server_encoding'), \
                          setting::pg_catalog.int8 \
                              * pg_catalog.current_setting('block_size')::pg_catalog.int8 \
                   FROM pg_catalog.pg_settings WHERE name = 'segment_size'";
        let row = single_row(client, sql, &[]).await?;
        let segment: i64 = row.try_get(2)?;
        Ok(StorageTraits {
            checksums: row.try_get(0)?,
            encoding: row.try_get(1)?,
            segment: u64::try_from(segment).unwrap_or(1 << 30).max(1),
        })
    }

    /// Blocks of a relation from its file instead of the server's buffers; a block that is being written may be
    /// incomplete. Returns fewer blocks where the file ends. `relation` is quoted.
    pub async fn on_disk(
        &self,
        client: &Client,
        server: &Server,
        relation: &str,
        blocks: std::ops::Range<u32>,
    ) -> LiveResult<Vec<u8>> {
        let size = server.page_size.bytes() as u64;
        let first = u64::from(blocks.start) * size;
        let end = u64::from(blocks.end) * size;
        let mut bytes = Vec::new();
        let mut at = first;
        while at < end {
            let within = at % self.segment;
            let segment = at / self.segment;
            let length = (end - at).min(self.segment - within);
            let suffix = if segment == 0 { String::new() } else { format!(".{segment}") };
            let sql = format!(
                "SELECT pg_catalog.pg_read_binary_file( \
                     pg_catalog.pg_relation_filepath({}::pg_catalog.regclass) || {}, \
                     {within}, {length}, true)",
                quote_literal(relation),
                quote_literal(&suffix)
            );
            let row = client.row(&sql, &[]).await?;
            let read: Option<Option<&[u8]>> = row.as_ref().map(|row| row.try_get(0)).transpose()?;
            let read = read.flatten().unwrap_or_default();
            bytes.extend_from_slice(read);
            if (read.len() as u64) < length {
                break;
            }
            at += length;
        }
        Ok(bytes)
    }
}
