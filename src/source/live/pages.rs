//! Pages through pageinspect, with the visibility of their tuples resolved exactly.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::TryStreamExt;
use tokio_postgres::binary_copy::{BinaryCopyOutRow, BinaryCopyOutStream};
use tokio_postgres::types::Type;

use super::LiveError;
use super::server::Pageinspect;
use super::snapshot::learn;
use crate::disk::layout::PageSize;
use crate::disk::page::{LinePointerState, Page, PageState};
use crate::disk::tuple::HeapTuple;
use crate::disk::{BlockNumber, ItemPointer};
use crate::model::visibility::{Snapshot, Visibility, visibility};
use crate::source::connect::Connection;
use crate::source::sql::quote_literal;

/// Reads pages of one relation on one connection, inside a transaction of [`super::snapshot`].
#[derive(Debug)]
pub struct PageReader {
    connection: Arc<Connection>,
    get_raw_page: String,
    block_type: &'static str,
    /// Quoted name, as SQL and as `get_raw_page` take it.
    relation: String,
    page_size: PageSize,
    snapshot: Snapshot,
}

/// Some pages of a relation and which of their tuples are visible.
pub struct Pages {
    /// Each page in the row that brought it: nothing is copied.
    rows: Vec<(BlockNumber, BinaryCopyOutRow)>,
    snapshot: Snapshot,
    /// Tuples that the snapshot alone does not decide: whether they are visible.
    asked: HashMap<ItemPointer, bool>,
    /// Pages that the server could not read, with its message.
    pub unreadable: Vec<(BlockNumber, String)>,
}

impl Pages {
    /// The pages in order, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (BlockNumber, &[u8])> {
        // That the row holds a page was checked when it came.
        self.rows.iter().map(|(block, row)| (*block, row.try_get(0).unwrap_or_default()))
    }

    /// Whether the tuple at `ctid` is surely visible; the line pointer may be redirected.
    pub fn is_live(&self, ctid: ItemPointer) -> bool {
        self.tuple(ctid).is_some_and(|(at, tuple)| self.visibility(at, &tuple) == Visibility::Live)
    }

    fn tuple(&self, ctid: ItemPointer) -> Option<(ItemPointer, HeapTuple<'_>)> {
        let (_, bytes) = self.iter().find(|(block, _)| *block == ctid.block)?;
        let Ok(PageState::Used(page)) = Page::parse(bytes) else { return None };
        let find = |number| page.line_pointers().find(|(item, _)| *item == number);
        let (mut item, mut pointer) = find(ctid.item)?;
        if pointer.state == LinePointerState::Redirect {
            (item, pointer) = find(pointer.offset)?;
        }
        let bytes = page.tuple_bytes(pointer).ok()?;
        Some((ItemPointer { item, ..ctid }, HeapTuple::parse(bytes, page.byte_order()).ok()?))
    }

    /// What is known of transactions.
    pub fn transactions(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Whether the tuple at `ctid` is visible.
    pub fn visibility(&self, ctid: ItemPointer, tuple: &HeapTuple<'_>) -> Visibility {
        match visibility(tuple, &self.snapshot) {
            Visibility::Unknown { xid } => match self.asked.get(&ctid) {
                Some(true) => Visibility::Live,
                Some(false) => Visibility::Dead,
                None => Visibility::Unknown { xid },
            },
            known => known,
        }
    }

    /// Tuples that the snapshot alone does not decide.
    fn undecided(&self) -> Vec<(ItemPointer, Option<crate::disk::TransactionId>)> {
        let mut found = Vec::new();
        for (block, bytes) in self.iter() {
            let Ok(PageState::Used(page)) = Page::parse(bytes) else { continue };
            for (item, pointer) in page.line_pointers() {
                if pointer.state != LinePointerState::Normal {
                    continue;
                }
                let Ok(bytes) = page.tuple_bytes(pointer) else { continue };
                if self.snapshot.settles(bytes, page.byte_order()) {
                    continue;
                }
                let Ok(tuple) = HeapTuple::parse(bytes, page.byte_order()) else { continue };
                if let Visibility::Unknown { xid } = visibility(&tuple, &self.snapshot) {
                    found.push((ItemPointer { block, item }, xid));
                }
            }
        }
        found
    }
}

impl PageReader {
    /// Prepares to read the relation with this quoted, schema-qualified name. Takes the lock that
    /// keeps the relation from being dropped or truncated until the transaction ends.
    pub async fn new(
        connection: Arc<Connection>,
        pageinspect: &Pageinspect,
        page_size: PageSize,
        relation: String,
        snapshot: Snapshot,
    ) -> Result<PageReader, LiveError> {
        connection.client().batch_execute(&format!("SELECT FROM ONLY {relation} LIMIT 0")).await?;
        Ok(PageReader {
            connection,
            get_raw_page: pageinspect.get_raw_page(),
            block_type: if pageinspect.takes_bigint() { "int8" } else { "int4" },
            relation,
            page_size,
            snapshot,
        })
    }

    /// Blocks of the relation's main fork at this moment.
    pub async fn block_count(&self) -> Result<u32, LiveError> {
        let sql = format!(
            "SELECT pg_catalog.pg_relation_size({}::pg_catalog.regclass)",
            quote_literal(&self.relation)
        );
        let rows = self.connection.client().query_typed(&sql, &[]).await?;
        let bytes: i64 = match rows.first() {
            Some(row) => row.try_get(0)?,
            None => 0,
        };
        let blocks = u64::try_from(bytes).unwrap_or(0) / self.page_size.bytes() as u64;
        Ok(u32::try_from(blocks).unwrap_or(u32::MAX))
    }

    /// Reads the given blocks, which must exist. A block that the server cannot read is noted and
    /// does not keep the others from being read.
    pub async fn read(&mut self, blocks: &[BlockNumber]) -> Result<Pages, LiveError> {
        let mut pages = Pages {
            rows: Vec::with_capacity(blocks.len()),
            snapshot: Snapshot::default(),
            asked: HashMap::new(),
            unreadable: Vec::new(),
        };
        if let Err(message) = self.try_copy(blocks, &mut pages).await? {
            if let [block] = blocks {
                pages.unreadable.push((*block, message));
            } else {
                for &block in blocks {
                    if let Err(message) = self.try_copy(&[block], &mut pages).await? {
                        pages.unreadable.push((block, message));
                    }
                }
            }
        }
        self.resolve(&mut pages).await?;
        Ok(pages)
    }

    /// Copies all of `blocks` or none, then the inner error is the server's message.
    async fn try_copy(
        &self,
        blocks: &[BlockNumber],
        pages: &mut Pages,
    ) -> Result<Result<(), String>, LiveError> {
        self.connection.client().batch_execute("SAVEPOINT toastctl_read").await?;
        let kept = pages.rows.len();
        match self.copy(blocks, pages).await {
            Ok(()) => {
                self.connection.client().batch_execute("RELEASE SAVEPOINT toastctl_read").await?;
                Ok(Ok(()))
            }
            Err(LiveError::Server(error)) if is_about_data(&error) => {
                pages.rows.truncate(kept);
                self.connection
                    .client()
                    .batch_execute("ROLLBACK TO SAVEPOINT toastctl_read")
                    .await?;
                Ok(Err(LiveError::Server(error).to_string()))
            }
            Err(error) => Err(error),
        }
    }

    async fn copy(&self, blocks: &[BlockNumber], pages: &mut Pages) -> Result<(), LiveError> {
        let Self { get_raw_page, block_type, .. } = self;
        let list: Vec<String> = match blocks {
            [first, .., last] if (last.0 - first.0) as usize == blocks.len() - 1 => Vec::new(),
            _ => blocks.iter().map(ToString::to_string).collect(),
        };
        let from = match (list.is_empty(), blocks.first(), blocks.last()) {
            (true, Some(first), Some(last)) => {
                format!("pg_catalog.generate_series({first}::{block_type}, {last}::{block_type})")
            }
            _ => format!("pg_catalog.unnest('{{{}}}'::{block_type}[])", list.join(",")),
        };
        let sql = format!(
            "COPY (SELECT {get_raw_page}({}, 'main', b) FROM {from} AS b) \
             TO STDOUT (FORMAT binary)",
            quote_literal(&self.relation)
        );
        let stream = self.connection.client().copy_out(&sql).await?;
        let mut rows = std::pin::pin!(BinaryCopyOutStream::new(stream, &[Type::BYTEA]));
        let mut numbers = blocks.iter();
        while let Some(row) = rows.try_next().await? {
            let page: &[u8] = row.try_get(0)?;
            let (Some(&block), true) = (numbers.next(), page.len() == self.page_size.bytes())
            else {
                return Err(LiveError::Unexpected(format!(
                    "get_raw_page returned {} bytes after block {:?}",
                    page.len(),
                    pages.rows.last().map(|(block, _)| block.0)
                )));
            };
            pages.rows.push((block, row));
        }
        if numbers.next().is_some() {
            return Err(LiveError::Unexpected(format!(
                "{} of {} pages were returned",
                pages.rows.len(),
                blocks.len()
            )));
        }
        Ok(())
    }

    /// Asks for the fate of transactions first and, for what they leave open (MultiXacts,
    /// subtransactions of the snapshot's time), for the tuples themselves.
    async fn resolve(&mut self, pages: &mut Pages) -> Result<(), LiveError> {
        pages.snapshot = self.snapshot.clone();
        let undecided = pages.undecided();
        let finished: HashSet<_> = undecided
            .iter()
            .filter_map(|&(_, xid)| xid)
            .filter(|&xid| self.snapshot.is_finished(xid))
            .collect();
        if !finished.is_empty() {
            let finished: Vec<_> = finished.into_iter().collect();
            learn(self.connection.client(), &mut self.snapshot, &finished).await?;
            pages.snapshot = self.snapshot.clone();
        }
        // A tuple whose xmin was learned may now wait for its xmax.
        let mut left = if undecided.is_empty() { undecided } else { pages.undecided() };
        let more: HashSet<_> = left
            .iter()
            .filter_map(|&(_, xid)| xid)
            .filter(|&xid| self.snapshot.is_finished(xid))
            .collect();
        if !more.is_empty() {
            let more: Vec<_> = more.into_iter().collect();
            learn(self.connection.client(), &mut self.snapshot, &more).await?;
            pages.snapshot = self.snapshot.clone();
            left = pages.undecided();
        }
        if left.is_empty() {
            return Ok(());
        }
        let ctids: Vec<String> = left.iter().map(|(ctid, _)| ctid.to_string()).collect();
        let sql = format!(
            "SELECT ctid::pg_catalog.text FROM ONLY {} \
             WHERE ctid = ANY ($1::pg_catalog.text[]::pg_catalog.tid[])",
            self.relation
        );
        let rows =
            self.connection.client().query_typed(&sql, &[(&ctids, Type::TEXT_ARRAY)]).await?;
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

/// Whether the server refused because of what stands in the relation (class XX, class 22, or a
/// block that is gone), so that reading can go on with other blocks.
fn is_about_data(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|db| {
        let code = db.code().code();
        code.starts_with("XX") || code.starts_with("22") || code.starts_with("58")
    })
}
