//! Pages read with pageinspect; the visibility of their tuples is determined exactly.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::TryStreamExt;
use tokio_postgres::binary_copy::BinaryCopyOutStream;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::about::{Pageinspect, Server};
use super::connect::Connection;
use super::owner_facts::{LockConnection, lock_unplanned};
use super::snapshot::{ANY, in_savepoint, learn};
use super::{LiveError, LiveResult, catalog};
use toast_format::disk::page::LinePointerState;
use toast_format::disk::tuple::infomask;
use toast_format::disk::{
    BlockNumber, HeapTuple, ItemPointer, Page, PageSize, PageState, TransactionId,
};
use toast_format::heap::problem::{Place, Problem};
use toast_format::heap::scan::{Visible, Visitor};
use toast_format::model::sql::quote_literal;
use toast_format::model::visibility::visibility;
use toast_format::model::{Snapshot, Visibility};

/// `FrozenTransactionId`, the last of the special transaction IDs.
const FROZEN: u32 = 2;
/// The number of pages in one row of the result: fewer and larger messages cost less on both sides.
const PAGES_PER_ROW: u32 = 16;
/// The number of blocks that are asked for at a time: their pages may all be kept in memory.
pub(crate) const AT_ONCE: usize = 256;

/// Reads pages of one relation on one connection, in a transaction of [`super::snapshot`].
#[derive(Debug)]
pub struct PageReader {
    connection: Arc<Connection>,
    /// The SQL expression of the page of block `b`.
    page: String,
    block_type: &'static str,
    /// The quoted name, as used in SQL and by `get_raw_page`.
    relation: String,
    page_size: PageSize,
    snapshot: Arc<Snapshot>,
    holder: LockConnection,
}

/// The order in which pages are passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadOrder {
    OfBlocks,
    /// As they arrive, a few at a time, while they are still in the processor's cache.
    AsTheyCome,
}

/// Pages of a relation, and the visibility of their tuples.
pub struct Pages {
    /// Consecutive pages of each row of the result, with the first block number. They are copied, since a row keeps the
    /// buffer that it was received in, which is often much larger.
    rows: Vec<(BlockNumber, Vec<u8>)>,
    page_size: PageSize,
    snapshot: Arc<Snapshot>,
    /// The visibility of tuples for which the snapshot alone was not sufficient.
    asked: HashMap<ItemPointer, bool>,
    /// Pages that the server could not read, with its message.
    pub unreadable: Vec<(BlockNumber, String)>,
}

/// Transactions whose hint bits are held against `pg_xact`.
#[derive(Debug, Default)]
pub struct HintedXids {
    /// Said to be aborted, or deleters of tuples of all-visible pages of which nothing is said.
    pub aborted: HashSet<TransactionId>,
    pub committed: HashSet<TransactionId>,
}

impl HintedXids {
    fn note(&mut self, tuple: &HeapTuple<'_>, on_all_visible: bool) {
        if !tuple.xmin_frozen() {
            if tuple.has(infomask::XMIN_COMMITTED) {
                self.committed.insert(tuple.xmin);
            } else if tuple.has(infomask::XMIN_INVALID) {
                self.aborted.insert(tuple.xmin);
            }
        }
        if tuple.has(infomask::XMAX_IS_MULTI) || tuple.xmax_locked_only() {
            return;
        }
        if tuple.has(infomask::XMAX_COMMITTED) {
            self.committed.insert(tuple.xmax);
        } else if on_all_visible || tuple.has(infomask::XMAX_INVALID) {
            self.aborted.insert(tuple.xmax);
        }
    }
}

impl Pages {
    /// The pages in order, with their block numbers.
    pub fn iter(&self) -> impl Iterator<Item = (BlockNumber, &[u8])> {
        self.rows.iter().flat_map(|(first, row)| {
            // Each row was checked to contain whole pages when it arrived.
            (first.0..).map(BlockNumber).zip(row.chunks_exact(self.page_size.bytes()))
        })
    }

    /// What the server could not read, as problems of the relation with this name.
    pub fn problems(&self, source: &str) -> impl Iterator<Item = Problem> {
        self.unreadable.iter().map(move |(block, message)| Problem {
            place: Place { block: Some(*block), ..Place::new(source) },
            message: message.clone(),
        })
    }

    /// Whether all tuples of this page are visible according to its all-visible flag, which is not trusted on a
    /// standby.
    pub fn all_visible(&self, page: &Page<'_>) -> bool {
        page.all_visible() && !self.snapshot.taken_during_recovery
    }

    /// Whether the tuple at `ctid` is certainly visible.
    pub fn is_live(&self, ctid: ItemPointer) -> bool {
        let Some((_, bytes)) = self.iter().find(|(block, _)| *block == ctid.block) else {
            return false;
        };
        let Ok(PageState::Used(page)) = Page::parse(bytes) else { return false };
        // The visibility of tuples on an all-visible page was not queried.
        tuple(&page, ctid).is_some_and(|(at, tuple)| {
            self.all_visible(&page) || self.visibility(at, &tuple) == Visibility::Live
        })
    }

    /// What is known about transactions.
    pub fn transactions(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Transactions that were over when the snapshot was taken, by what hint bits say of them. Of a subtransaction of one
    /// that was not, the server says that it is in progress.
    pub fn hinted(&self) -> HintedXids {
        let mut hinted = HintedXids::default();
        for (_, bytes) in self.iter() {
            let Ok(PageState::Used(page)) = Page::parse(bytes) else { continue };
            for (_, bytes) in tuples(&page) {
                let Ok(tuple) = HeapTuple::parse(bytes, page.byte_order()) else { continue };
                hinted.note(&tuple, page.all_visible());
            }
        }
        for xids in [&mut hinted.aborted, &mut hinted.committed] {
            xids.retain(|xid| xid.0 > FROZEN && self.snapshot.was_over(*xid));
        }
        hinted
    }

    /// Whether the tuple at `ctid` is visible.
    pub fn visibility(&self, ctid: ItemPointer, tuple: &HeapTuple<'_>) -> Visibility {
        match visibility(tuple, &*self.snapshot) {
            Visibility::Unknown { xid } => match self.asked.get(&ctid) {
                Some(true) => Visibility::Live,
                Some(false) => Visibility::Dead,
                None => Visibility::Unknown { xid },
            },
            known => known,
        }
    }

    /// Splits these pages into the rows in which the server sent them. A last part, without pages, has the unreadable
    /// blocks.
    fn parts(mut self) -> impl Iterator<Item = Pages> {
        let rows = std::mem::take(&mut self.rows);
        let page_size = self.page_size;
        let mut asked: HashMap<BlockNumber, Vec<(ItemPointer, bool)>> = HashMap::new();
        for (ctid, live) in std::mem::take(&mut self.asked) {
            asked.entry(ctid.block).or_default().push((ctid, live));
        }
        let snapshot = Arc::clone(&self.snapshot);
        let parts = rows.into_iter().map(move |row| {
            let mut part = Pages {
                rows: vec![row],
                page_size,
                snapshot: Arc::clone(&snapshot),
                asked: HashMap::new(),
                unreadable: Vec::new(),
            };
            let blocks: Vec<BlockNumber> = part.iter().map(|(block, _)| block).collect();
            for block in blocks {
                part.asked.extend(asked.remove(&block).into_iter().flatten());
            }
            part
        });
        parts.chain(std::iter::once(self))
    }

    fn append(&mut self, other: Pages) {
        self.rows.extend(other.rows);
        self.asked.extend(other.asked);
        self.unreadable.extend(other.unreadable);
    }

    /// Tuples whose visibility the snapshot alone does not determine.
    fn undecided(&self) -> Vec<(ItemPointer, Option<TransactionId>)> {
        let mut found = Vec::new();
        for (block, bytes) in self.iter() {
            let Ok(PageState::Used(page)) = Page::parse(bytes) else { continue };
            if self.all_visible(&page) {
                continue;
            }
            for (item, bytes) in tuples(&page) {
                if self.snapshot.settles(bytes, page.byte_order()) {
                    continue;
                }
                let Ok(tuple) = HeapTuple::parse(bytes, page.byte_order()) else { continue };
                if let Visibility::Unknown { xid } = visibility(&tuple, &*self.snapshot) {
                    found.push((ItemPointer { block, item }, xid));
                }
            }
        }
        found
    }
}

impl Visible for Pages {
    fn visibility(&self, ctid: ItemPointer, tuple: &HeapTuple<'_>) -> Visibility {
        self.visibility(ctid, tuple)
    }

    fn sees_all_of(&self, page: &Page<'_>) -> bool {
        self.all_visible(page)
    }
}

impl Server {
    /// A reader for the pages of the relation with this quoted name, as by [`PageReader::new`].
    pub(crate) async fn page_reader(
        &self,
        connection: &Arc<Connection>,
        relation: String,
        snapshot: &Snapshot,
    ) -> LiveResult<PageReader> {
        let pageinspect = self.pageinspect.as_ref();
        let pageinspect =
            pageinspect.ok_or_else(|| LiveError::Unexpected("pageinspect is gone".into()))?;
        let connection = Arc::clone(connection);
        let page_size = self.page_size;
        PageReader::new(connection, pageinspect, page_size, relation, snapshot.clone()).await
    }
}

/// The tuples of a page: the numbers of their line pointers, and their bytes.
fn tuples<'p>(page: &Page<'p>) -> impl Iterator<Item = (u16, &'p [u8])> {
    let normal =
        page.line_pointers().filter(|(_, pointer)| pointer.state == LinePointerState::Normal);
    normal.filter_map(|(item, pointer)| Some((item, page.tuple_bytes(pointer).ok()?)))
}

/// The tuple at `ctid` and its address, which differs from `ctid` if the line pointer is a redirect.
fn tuple<'p>(page: &Page<'p>, ctid: ItemPointer) -> Option<(ItemPointer, HeapTuple<'p>)> {
    let find = |number| page.line_pointers().find(|(item, _)| *item == number);
    let (mut item, mut pointer) = find(ctid.item)?;
    if pointer.state == LinePointerState::Redirect {
        (item, pointer) = find(pointer.offset)?;
    }
    let bytes = page.tuple_bytes(pointer).ok()?;
    Some((ItemPointer { item, ..ctid }, HeapTuple::parse(bytes, page.byte_order()).ok()?))
}

impl PageReader {
    /// Creates a reader for the relation with this quoted, schema-qualified name. Takes the lock that keeps the relation
    /// from being dropped or truncated until the transaction ends.
    pub async fn new(
        connection: Arc<Connection>,
        pageinspect: &Pageinspect,
        page_size: PageSize,
        relation: String,
        snapshot: Snapshot,
    ) -> LiveResult<PageReader> {
        let client = connection.client();
        // LOCK TABLE refuses TOAST relations, and the server would log that as an error.
        let locked = in_savepoint(client, async || Ok(lock_unplanned(client, &relation).await?));
        // If the catalog is so damaged that the table cannot be opened, pages can be read without the lock.
        if let Err(error) = locked.await?
            && !is_about_data(&error)
        {
            return Err(error.into());
        }
        Ok(PageReader::unlocked(connection, pageinspect, page_size, relation, snapshot))
    }

    /// Like [`PageReader::new`], but without a lock, as for an index, which cannot be locked by itself.
    pub(crate) fn unlocked(
        connection: Arc<Connection>,
        pageinspect: &Pageinspect,
        page_size: PageSize,
        relation: String,
        snapshot: Snapshot,
    ) -> PageReader {
        PageReader {
            connection,
            page: pageinspect.raw_page(&quote_literal(&relation), "main", "b"),
            block_type: pageinspect.block_type(),
            relation,
            page_size,
            snapshot: Arc::new(snapshot),
            holder: LockConnection::default(),
        }
    }

    /// The current number of blocks in the relation's main fork.
    pub async fn block_count(&self) -> LiveResult<u32> {
        catalog::blocks(self.connection.client(), &self.relation, self.page_size).await
    }

    /// Reads these blocks, which must exist. A block that the server cannot read is recorded and does not affect the
    /// others.
    pub async fn read(&mut self, blocks: &[BlockNumber]) -> LiveResult<Pages> {
        let mut pages = self.no_pages();
        self.read_each(blocks, |more| pages.append(more)).await?;
        pages.rows.sort_unstable_by_key(|&(block, _)| block);
        pages.snapshot = Arc::clone(&self.snapshot);
        Ok(pages)
    }

    /// Passes the pages of these blocks to a visitor, and unreadable blocks as problems of the relation named `source`.
    pub(crate) async fn visit<V: Visitor>(
        &mut self,
        blocks: &[BlockNumber],
        order: ReadOrder,
        source: &str,
        visitor: &mut V,
    ) -> LiveResult<()> {
        match order {
            ReadOrder::OfBlocks => {
                let pages = self.read(blocks).await?;
                for (block, bytes) in pages.iter() {
                    visitor.page(block, bytes, &pages);
                    // The time limit may be reached in between.
                    tokio::task::yield_now().await;
                }
                pages.problems(source).for_each(|problem| visitor.problem(problem));
            }
            ReadOrder::AsTheyCome => {
                self.read_each(blocks, |pages: Pages| {
                    pages.iter().for_each(|(block, bytes)| visitor.page(block, bytes, &pages));
                    pages.problems(source).for_each(|problem| visitor.problem(problem));
                })
                .await?;
            }
        }
        Ok(())
    }

    /// Like [`PageReader::read`], but passes on pages as they arrive, a few at a time and in no particular order, so
    /// that they are still in the processor's cache and few are in memory.
    pub async fn read_each(
        &mut self,
        blocks: &[BlockNumber],
        mut take: impl FnMut(Pages),
    ) -> LiveResult<()> {
        for some in blocks.chunks(AT_ONCE) {
            self.read_some(some, &mut take).await?;
        }
        Ok(())
    }

    async fn read_some(
        &mut self,
        blocks: &[BlockNumber],
        take: &mut impl FnMut(Pages),
    ) -> LiveResult<()> {
        let mut undecided = self.no_pages();
        let unreadable = self
            .read_raw(blocks, |pages| {
                if pages.undecided().is_empty() { take(pages) } else { undecided.append(pages) }
            })
            .await?;
        self.resolve(&mut undecided).await?;
        undecided.unreadable = unreadable;
        for part in undecided.parts() {
            take(part);
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Passes on pages as they arrive, whatever they contain. Returns the blocks that the server could not read, with
    /// its messages.
    pub(crate) async fn read_raw(
        &self,
        blocks: &[BlockNumber],
        mut take: impl FnMut(Pages),
    ) -> LiveResult<Vec<(BlockNumber, String)>> {
        let mut unreadable = Vec::new();
        let mut left = blocks;
        while !left.is_empty() {
            let (read, refused) = self.try_copy(left, &mut take).await?;
            left = left.get(read..).unwrap_or_default();
            if refused.is_none() {
                break;
            }
            // The unreadable page is one of those in the next row.
            let (row, rest) = left.split_at(left.len().min(PAGES_PER_ROW as usize));
            for &block in row {
                if let (_, Some(error)) = self.try_copy(&[block], &mut take).await? {
                    self.may_be_absent(block, &error).await?;
                    unreadable.push((block, LiveError::Server(error).to_string()));
                }
            }
            left = rest;
        }
        Ok(unreadable)
    }

    /// An error if the server has no such block, although it says that the relation has more: what it says is then not
    /// known to end anywhere.
    async fn may_be_absent(
        &self,
        block: BlockNumber,
        error: &tokio_postgres::Error,
    ) -> LiveResult<()> {
        if error.code() != Some(&SqlState::INVALID_PARAMETER_VALUE) {
            return Ok(());
        }
        let blocks = self.block_count().await?;
        if block.0 >= blocks {
            return Ok(());
        }
        Err(LiveError::Unexpected(format!(
            "{} has {blocks} blocks, and no block {block}",
            self.relation
        )))
    }

    fn no_pages(&self) -> Pages {
        Pages {
            rows: Vec::new(),
            page_size: self.page_size,
            snapshot: Arc::clone(&self.snapshot),
            asked: HashMap::new(),
            unreadable: Vec::new(),
        }
    }

    /// Copies `blocks` up to the first row that the server refuses. Returns the number of pages received, and the
    /// server's error if that is not all of them.
    async fn try_copy(
        &self,
        blocks: &[BlockNumber],
        take: &mut impl FnMut(Pages),
    ) -> LiveResult<(usize, Option<tokio_postgres::Error>)> {
        let mut read = 0;
        let client = self.connection.client();
        match in_savepoint(client, async || self.copy(blocks, &mut read, take).await).await? {
            Ok(()) => Ok((read, None)),
            Err(error) if is_about_data(&error) => Ok((read, Some(error))),
            Err(error) => Err(error.into()),
        }
    }

    async fn copy(
        &self,
        blocks: &[BlockNumber],
        read: &mut usize,
        take: &mut impl FnMut(Pages),
    ) -> LiveResult<()> {
        let sql = format!("COPY ({}) TO STDOUT (FORMAT binary)", self.query(blocks));
        let stream = self.connection.client().copy_out(&sql).await?;
        let mut rows = std::pin::pin!(BinaryCopyOutStream::new(stream, &[Type::BYTEA]));
        let size = self.page_size.bytes();
        while let Some(row) = rows.try_next().await? {
            let bytes: &[u8] = row.try_get(0)?;
            let first = blocks.get(*read).copied();
            let end = *read + bytes.len() / size;
            let whole =
                !bytes.is_empty() && bytes.len().is_multiple_of(size) && end <= blocks.len();
            let (Some(first), true) = (first, whole) else {
                return Err(LiveError::Unexpected(format!(
                    "get_raw_page returned {} bytes for block {:?}",
                    bytes.len(),
                    first.map(|block| block.0)
                )));
            };
            *read = end;
            take(Pages { rows: vec![(first, bytes.to_vec())], ..self.no_pages() });
            // Rows that have already arrived would keep the task from yielding.
            tokio::task::yield_now().await;
        }
        if *read < blocks.len() {
            return Err(LiveError::Unexpected(format!(
                "{read} of {} pages were returned",
                blocks.len()
            )));
        }
        Ok(())
    }

    /// The query for the pages of `blocks`, in order: many pages in a row for a range, otherwise one.
    fn query(&self, blocks: &[BlockNumber]) -> String {
        let Self { page, block_type, .. } = self;
        match blocks {
            [first, .., last]
                if u64::from(last.0) == u64::from(first.0) + blocks.len() as u64 - 1 =>
            {
                format!(
                    "SELECT (SELECT pg_catalog.string_agg({page}, '') \
                         FROM pg_catalog.generate_series(\
                              r, least(r + {}, {last})::{block_type}) AS b) \
                 FROM pg_catalog.generate_series(\
                      {first}::{block_type}, {last}::{block_type}, {PAGES_PER_ROW}) AS r",
                    PAGES_PER_ROW - 1
                )
            }
            _ => {
                let list: Vec<String> = blocks.iter().map(ToString::to_string).collect();
                format!(
                    "SELECT {page} FROM pg_catalog.unnest('{{{}}}'::{block_type}[]) AS b",
                    list.join(",")
                )
            }
        }
    }

    /// Determines the visibility of tuples: first by the status of transactions, and for the rest (MultiXacts,
    /// subtransactions that were in progress at the snapshot) by querying the tuples themselves. If planning the query
    /// could run code of another role, it stays unknown.
    async fn resolve(&mut self, pages: &mut Pages) -> LiveResult<()> {
        let mut left = pages.undecided();
        // Once its xmin is known, a tuple may depend on its xmax.
        for _ in 0..2 {
            let xids = left.iter().filter_map(|&(_, xid)| xid);
            let finished: HashSet<_> = xids.filter(|&xid| self.snapshot.is_finished(xid)).collect();
            if finished.is_empty() {
                break;
            }
            let finished: Vec<_> = finished.into_iter().collect();
            let snapshot = Arc::make_mut(&mut self.snapshot);
            learn(self.connection.client(), snapshot, &finished, ANY).await?;
            pages.snapshot = Arc::clone(&self.snapshot);
            left = pages.undecided();
        }
        if left.is_empty() || !Box::pin(self.holder.hold(&self.connection, &self.relation)).await? {
            return Ok(());
        }
        let asked = self.ask_about(left, pages).await;
        self.holder.release().await;
        asked
    }

    /// Queries tuples whose visibility is still to be determined.
    async fn ask_about(
        &self,
        left: Vec<(ItemPointer, Option<TransactionId>)>,
        pages: &mut Pages,
    ) -> LiveResult<()> {
        let ctids: Vec<String> = left.iter().map(|(ctid, _)| ctid.to_string()).collect();
        let sql = format!(
            "SELECT ctid::pg_catalog.text FROM ONLY {} \
             WHERE ctid = ANY ($1::pg_catalog.text[]::pg_catalog.tid[])",
            self.relation
        );
        let client = self.connection.client();
        let asked = in_savepoint(client, async || {
            Ok(client.query_typed(&sql, &[(&ctids, Type::TEXT_ARRAY)]).await?)
        });
        let rows = match asked.await? {
            Ok(rows) => rows,
            // The visibility of a damaged tuple stays unknown if the server cannot determine it.
            Err(error) if is_about_data(&error) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let visible = rows
            .iter()
            .map(|row| row.try_get::<_, String>(0))
            .collect::<Result<HashSet<String>, _>>()?;
        pages.asked = left
            .iter()
            .zip(&ctids)
            .map(|(&(ctid, _), text)| (ctid, visible.contains(text)))
            .collect();
        Ok(())
    }
}

/// Whether the server's error is about the contents of the relation (class XX, class 22, or a missing block), so that
/// other blocks can still be read.
pub(crate) fn is_about_data(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|db| {
        let code = db.code().code();
        code.starts_with("XX") || code.starts_with("22") || code.starts_with("58")
    })
}
