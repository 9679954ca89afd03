//! How large the indexes of a table would be after a rebuild. This is estimated from a sample of their pages, or, if
//! all entries have the same size, from the number that the server has counted. Several indexes are examined at the
//! same time, one on each free connection.

use std::borrow::Borrow;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::about::Pageinspect;
use super::connect::Connection;
use super::indexes::{self, Index, LIMITS};
use super::{LiveError, LiveResult};
use toast_format::disk::{Oid, Page, PageSize, PageState, btree};
use toast_format::model::btree::{Entries, build_wal, is_bloated, room};
use toast_format::model::sql::quote_literal;

/// The number of pages of an index to read.
const SAMPLE: u64 = 512;
/// The number of these pages whose entries are compared.
const COMPARED: u64 = 64;
/// The fraction of entries that may share their keys with others. If more do, deduplication stores them together, and
/// the savings depend on how many entries have each key.
const FEW: f64 = 0.01;

/// The size of a fresh index, or why it is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fresh {
    /// Its size in bytes.
    Bytes(u64),
    /// Not known, for this reason.
    NotKnown(String),
    /// Not known at the moment, because other sessions have locked the index.
    Locked,
}

impl Fresh {
    /// The size, if it is known.
    pub(crate) fn bytes(&self) -> Option<u64> {
        match self {
            Fresh::Bytes(bytes) => Some(*bytes),
            Fresh::NotKnown(_) | Fresh::Locked => None,
        }
    }
}

fn not_known(reason: &str) -> LiveResult<Fresh> {
    Ok(Fresh::NotKnown(reason.to_owned()))
}

/// Estimates the size of a fresh index. `pageinspect`: `None` if pages cannot be read.
///
/// # Errors
/// Any error of the server, unless the index is locked or was dropped.
pub(crate) async fn fresh(
    connection: &Connection,
    pageinspect: Option<&Pageinspect>,
    page: PageSize,
    index: &Index,
) -> LiveResult<Fresh> {
    if index.method != "btree" {
        return not_known(&format!("its access method is {}", index.method));
    }
    let looked = match pageinspect.filter(|one| one.takes_bigint()) {
        Some(pageinspect) => {
            connection.reading(async || by_pages(connection, pageinspect, page, index).await).await
        }
        None => return by_count(page, index),
    };
    match looked {
        Err(error) if error.is_busy() => Ok(Fresh::Locked),
        // It was dropped in the meantime, or reading it takes too long.
        Err(LiveError::Server(error)) if error.as_db_error().is_some() => {
            not_known("it could not be read")
        }
        other => other,
    }
}

fn bytes(entries: Entries, page: PageSize, index: &Index) -> Fresh {
    let pages = entries.fresh_pages(page, index.entries.fillfactor);
    Fresh::Bytes(pages.saturating_mul(page.bytes() as u64))
}

/// Estimates by the number of entries that VACUUM, ANALYZE or a build has counted.
fn by_count(page: PageSize, index: &Index) -> LiveResult<Fresh> {
    let Some(size) = index.entries.bytes else {
        return not_known("its entries are of different sizes, and pages cannot be read");
    };
    if index.entries.deduplicates && !index.unique {
        return not_known("equal keys may share entries, and pages cannot be read");
    }
    match index.entries.count {
        Some(number) => Ok(bytes(Entries { number, bytes: size as f64, same: true }, page, index)),
        None => not_known("its entries have not been counted since it grew; VACUUM counts them"),
    }
}

/// Estimates from a sample of pages.
async fn by_pages(
    connection: &Connection,
    pageinspect: &Pageinspect,
    page: PageSize,
    index: &Index,
) -> LiveResult<Fresh> {
    let client = connection.client();
    client.batch_execute(LIMITS).await?;
    let last = (index.bytes / page.bytes() as u64).saturating_sub(1);
    if last == 0 {
        return Ok(Fresh::Bytes(page.bytes() as u64));
    }
    let step = last.div_ceil(SAMPLE);
    let name = quote_literal(&index.quoted());
    let stats = pageinspect.function("bt_page_stats");
    let block_type = pageinspect.block_type();
    // The first item of a page with a right sibling is its high key, which is not an entry.
    let sql = format!(
        "WITH p AS MATERIALIZED (SELECT s.type = 'l' AS leaf, s.live_items + s.dead_items AS items, \
           s.live_items - (s.btpo_next <> 0)::pg_catalog.int4 AS live, \
           ({} - s.free_size)::pg_catalog.float8 AS used \
           FROM pg_catalog.generate_series(1, {last}, {step}) AS b, \
           LATERAL {stats}({name}::pg_catalog.text, b::pg_catalog.{block_type}) AS s) \
         SELECT count(*), coalesce(sum(live) FILTER (WHERE leaf AND live > 0), 0)::pg_catalog.float8, \
           coalesce(sum(used * live / items) FILTER (WHERE leaf AND live > 0), 0)::pg_catalog.float8, \
           coalesce(min(used / items) FILTER (WHERE leaf AND live > 0) \
             = max(used / items) FILTER (WHERE leaf AND live > 0), false) FROM p",
        room(page)
    );
    let Some(row) = client.row(&sql, &[]).await? else { return not_known("it could not be read") };
    let seen: i64 = row.try_get(0)?;
    let live: f64 = row.try_get(1)?;
    let used: f64 = row.try_get(2)?;
    let same: bool = row.try_get(3)?;
    if live > 0.0 && index.entries.deduplicates && !index.unique {
        match shares_entries(connection, pageinspect, last, &name).await? {
            Some(false) => {}
            Some(true) => return not_known("equal keys share entries"),
            None => return not_known("one of its pages is damaged"),
        }
    }
    let all = last as f64 / seen.max(1) as f64;
    let entries = Entries { number: live * all, bytes: used / live.max(1.0), same };
    Ok(bytes(entries, page, index))
}

/// Whether more than a few entries share their keys with others; `None` if a page is damaged.
async fn shares_entries(
    connection: &Connection,
    pageinspect: &Pageinspect,
    last: u64,
    name: &str,
) -> LiveResult<Option<bool>> {
    let metapage = pageinspect.function("bt_metap");
    let raw_page = pageinspect.raw_page(name, "main", "b");
    let sql = format!(
        "SELECT {raw_page} FROM {metapage}({name}::pg_catalog.text) AS m, pg_catalog.generate_series(1, {last}, {}) AS b \
         WHERE m.allequalimage",
        last.div_ceil(COMPARED)
    );
    let mut rows = 0u64;
    let mut keys = 0u64;
    for row in connection.client().query_typed(&sql, &[]).await? {
        let bytes: &[u8] = row.try_get(0)?;
        match Page::parse(bytes) {
            Ok(PageState::New) => {}
            Ok(PageState::Used(page)) => {
                let Some(leaf) = btree::leaf(&page) else { return Ok(None) };
                rows += leaf.rows;
                keys += leaf.keys;
            }
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(rows.saturating_sub(keys) as f64 > rows as f64 * FEW))
}

/// An index, and the size of a fresh one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IndexFill {
    pub(crate) index: Index,
    pub(crate) fresh: Fresh,
}

/// The cost and result of rebuilding a bloated index, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bloat {
    /// The size of the fresh index.
    pub(crate) fresh: u64,
    /// The WAL that the rebuild writes.
    pub(crate) wal: u64,
}

impl IndexFill {
    /// Returns `None` unless the index is much larger than a fresh one and can be rebuilt.
    pub(crate) fn bloat(&self, page: PageSize) -> Option<Bloat> {
        let index = &self.index;
        let fresh = self.fresh.bytes().filter(|&fresh| is_bloated(index.bytes, fresh))?;
        let wal = build_wal(page, fresh, index.entries.fillfactor);
        index.refused().is_none().then_some(Bloat { fresh, wal })
    }
}

/// Examines the valid indexes of a table and of its TOAST relation.
pub(crate) struct IndexScan {
    /// `None` if pages cannot be read.
    pageinspect: Option<Pageinspect>,
    page: PageSize,
    table: Oid,
    /// All valid indexes, once a connection has listed them.
    all: OnceCell<Vec<Index>>,
    /// The first index that no connection has taken.
    next: AtomicUsize,
    looked_at: Mutex<Vec<(usize, IndexFill)>>,
}

impl IndexScan {
    /// A scan that has not begun.
    pub(crate) fn new(pageinspect: Option<Pageinspect>, page: PageSize, table: Oid) -> IndexScan {
        IndexScan {
            pageinspect,
            page,
            table,
            all: OnceCell::new(),
            next: AtomicUsize::new(0),
            looked_at: Mutex::default(),
        }
    }

    /// Examines indexes on this connection, which must not be in a transaction, until all are taken.
    ///
    /// # Errors
    /// Any error of the server.
    pub(crate) async fn take_part(&self, connection: &Connection) -> LiveResult<()> {
        let all: &Vec<Index> = self
            .all
            .get_or_try_init(async || {
                let all = indexes::of_table(connection, self.table).await?;
                Ok::<_, LiveError>(all.into_iter().filter(|index| index.valid).collect())
            })
            .await?;
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(index) = all.get(number) else { return Ok(()) };
            let fresh = fresh(connection, self.pageinspect.as_ref(), self.page, index).await?;
            let look = IndexFill { index: index.clone(), fresh };
            let mut looked_at = self.looked_at.lock();
            looked_at.push((number, look));
        }
    }

    /// The results, smallest index first, if all indexes were examined.
    fn ended(self) -> Option<Vec<IndexFill>> {
        let all = self.all.get()?.len();
        let mut looked_at = self.looked_at.into_inner();
        looked_at.sort_unstable_by_key(|&(number, _)| number);
        (looked_at.len() == all).then(|| looked_at.into_iter().map(|(_, look)| look).collect())
    }

    /// Examines all indexes over these connections.
    ///
    /// # Errors
    /// An error of the server that prevented an index from being examined.
    pub(crate) async fn over(
        self,
        connections: &[impl Borrow<Connection>],
    ) -> LiveResult<Vec<IndexFill>> {
        let parts = connections.iter().map(|connection| self.take_part(connection.borrow()));
        let ended = join_all(parts).await;
        self.of_parts(ended)
    }

    /// The results, once all participants have ended.
    ///
    /// # Errors
    /// The first error that prevented an index from being examined.
    pub(crate) fn of_parts(
        self,
        ended: impl IntoIterator<Item = LiveResult<()>>,
    ) -> LiveResult<Vec<IndexFill>> {
        match self.ended() {
            Some(all) => Ok(all),
            None => ended.into_iter().collect::<Result<(), _>>().map(|()| Vec::new()),
        }
    }
}
