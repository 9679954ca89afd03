//! Closer looks at what is damaged in a live table: chunks without the TOAST index, what is left of values, and what must
//! be known before SQL is printed that repairs them.

use std::collections::{HashMap, HashSet};

use tokio_postgres::types::Type;

use super::chunk_index::{Chunk, chunks_of};
use super::damaged_row::{RowAt, Written, pointing, row_at, value_at, value_ids};
use super::look::{BATCH, Looker, Which, seen_chunk};
use super::repair::{self, Facts};
use super::salvage::{self, Piece, Saved, Wanted, by_row};
use super::subject::Subject;
use super::value::ChunkSeen;
use crate::disk::pointer::ToastPointer;
use crate::disk::varlena::Varlena;
use crate::disk::{BlockNumber, ItemPointer};
use crate::model::sql::{quote_identifier, quote_qualified};
use crate::model::toaster::chunks::Fate;
use crate::server::checking::Standing;
use crate::server::chunk_rows::{self, By};
use crate::server::pages::Pages;
use crate::server::{LiveError, snapshot};

/// The chunks of values by their IDs, and the blocks that could not be read.
pub(super) type ChunksByValue = (HashMap<u32, Vec<Chunk>>, Vec<BlockNumber>);

/// What findings tell of a table as a whole.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// The statement that rebuilds the TOAST relation's index, and whether that is damaged.
    pub(super) reindex: Option<String>,
    pub(super) index_is_damaged: bool,
    /// Whether pages have wrong checksums.
    pub(super) wrong_checksums: bool,
}

impl Looker {
    /// The SQL for damaged values, after looks at what else it would touch.
    pub(super) async fn repairs(
        &mut self,
        wanted: &[Wanted],
        known: Known,
    ) -> Result<Vec<String>, LiveError> {
        if wanted.is_empty() && !known.index_is_damaged {
            return Ok(Vec::new());
        }
        let script = match self.begin().await? {
            Some(standing) => self.script(&standing, wanted, known).await,
            None => Ok(Vec::new()),
        };
        snapshot::abandon(self.connection.client()).await?;
        script
    }

    async fn script(
        &self,
        standing: &Standing,
        wanted: &[Wanted],
        known: Known,
    ) -> Result<Vec<String>, LiveError> {
        let toast = self.relation.toast.as_ref();
        let mut facts = Facts {
            table: self.quoted(Which::Heap),
            oid: self.relation.oid,
            schema: format!("{}.", quote_identifier(&self.relation.schema)),
            toast: toast.map(|toast| (quote_qualified("pg_toast", &toast.name), toast.oid)),
            has_toasters: self.about.server.has_toasters,
            reindex: known.reindex,
            index_is_damaged: known.index_is_damaged,
            header: self.about.server.pageinspect.as_ref().map(|pageinspect| {
                let items = pageinspect.function("heap_page_items");
                (items, pageinspect.get_raw_page())
            }),
            page_size: self.about.server.page_size,
            wrong_checksums: known.wrong_checksums,
            ..Facts::default()
        };
        self.columns(&mut facts).await?;
        let rows = self.rows(standing, wanted, &facts.generated).await?;
        let ids = value_ids(&rows);
        if !ids.is_empty() && !facts.index_is_damaged && facts.toast.is_some() {
            (facts.chunks, facts.unreadable) = self.chunks_in_pages(standing, &ids).await?;
            let written = Written { table: &facts.table, generated: &facts.generated };
            let (all, unread) = (&mut facts.pointing, &mut facts.rows_unread);
            let take = |subject: &Subject<'_>, block, bytes: &[u8], pages: &Pages| {
                *unread |= !pointing(written, subject, pages, block, bytes, &ids, all);
            };
            let lost = self.each_page(standing, Which::Heap, None, take).await?;
            facts.rows_unread |= !lost.is_empty();
        }
        Ok(repair::script(&facts, &rows))
    }

    async fn rows(
        &self,
        standing: &Standing,
        wanted: &[Wanted],
        generated: &HashSet<String>,
    ) -> Result<Vec<RowAt>, LiveError> {
        let asked = by_row(wanted);
        let mut blocks: Vec<BlockNumber> = asked.iter().map(|(ctid, _)| ctid.block).collect();
        blocks.dedup();
        let mut rows = Vec::new();
        let take = |subject: &Subject<'_>, block, bytes: &[u8], pages: &Pages| {
            let own = asked.iter().filter(|(ctid, _)| ctid.block == block);
            rows.extend(own.filter_map(|(ctid, damaged)| {
                row_at(bytes, subject, pages, *ctid, damaged, generated)
            }));
        };
        self.each_page(standing, Which::Heap, Some(blocks), take).await?;
        Ok(rows)
    }

    /// The chunks of values, whose IDs are in order, deleted ones too, as they stand in the TOAST relation: no
    /// index is asked.
    pub(super) async fn chunks_in_pages(
        &self,
        standing: &Standing,
        ids: &[u32],
    ) -> Result<ChunksByValue, LiveError> {
        let mut chunks: HashMap<u32, Vec<Chunk>> = HashMap::new();
        let take = |toast: &Subject<'_>, block, bytes: &[u8], pages: &Pages| {
            chunks_of(toast, block, bytes, pages, ids, |id, chunk| {
                chunks.entry(id).or_default().push(chunk);
            });
        };
        let lost = self.each_page(standing, Which::Toast, None, take).await?;
        Ok((chunks, lost))
    }

    /// Gives the pages of these blocks, or of all, to `take`; those that cannot be read are what it returns.
    async fn each_page(
        &self,
        standing: &Standing,
        which: Which,
        blocks: Option<Vec<BlockNumber>>,
        mut take: impl FnMut(&Subject<'_>, BlockNumber, &[u8], &Pages),
    ) -> Result<Vec<BlockNumber>, LiveError> {
        let mut reader = self.reader(standing, which).await?;
        let end = reader.block_count().await?;
        let name = self.name(which);
        let subject = self.subject_now(standing, which, &name).await?;
        let mut blocks = blocks.unwrap_or_else(|| (0..end).map(BlockNumber).collect());
        blocks.retain(|block| block.0 < end);
        let mut lost = Vec::new();
        for some in blocks.chunks(BATCH as usize) {
            let pages = reader.read(some).await?;
            pages.iter().for_each(|(block, bytes)| take(&subject, block, bytes, &pages));
            lost.extend(pages.unreadable.iter().map(|(block, _)| *block));
        }
        Ok(lost)
    }

    async fn columns(&self, facts: &mut Facts) -> Result<(), LiveError> {
        let rows = self
            .connection
            .client()
            .query_typed(
                // before PostgreSQL 15 it is the column that depends on the others, since then its expression
                "SELECT a.attname::pg_catalog.text, a.attnotnull, a.attgenerated <> '', \
                        ARRAY(SELECT DISTINCT b.attname::pg_catalog.text \
                              FROM pg_catalog.pg_depend AS d \
                              JOIN pg_catalog.pg_attribute AS b \
                                ON b.attrelid = d.refobjid AND b.attnum = d.refobjsubid \
                              LEFT JOIN pg_catalog.pg_attrdef AS e \
                                ON e.adrelid = a.attrelid AND e.adnum = a.attnum \
                              WHERE a.attgenerated = 's' \
                                AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass \
                                AND d.refobjid = a.attrelid AND b.attnum <> a.attnum \
                                AND (d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass \
                                     AND d.objid = e.oid \
                                     OR d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass \
                                     AND d.objid = a.attrelid AND d.objsubid = a.attnum) \
                              ORDER BY 1) \
                 FROM pg_catalog.pg_attribute AS a \
                 WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped",
                &[(&self.relation.oid.0, Type::OID)],
            )
            .await?;
        for row in &rows {
            let name: String = row.try_get(0)?;
            if row.try_get(1)? {
                facts.not_null.insert(name.clone());
            }
            if row.try_get(2)? {
                facts.generated.insert(name.clone());
                facts.made_of.insert(name, row.try_get(3)?);
            }
        }
        Ok(())
    }

    /// The statement that rebuilds the TOAST relation's index.
    pub(super) async fn reindex(&self) -> Result<Option<String>, LiveError> {
        let Some(toast) = &self.relation.toast else { return Ok(None) };
        let rows = self
            .connection
            .client()
            .query_typed(
                "SELECT c.relname::pg_catalog.text FROM pg_catalog.pg_index AS i \
                 JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid \
                 WHERE i.indrelid = $1 ORDER BY i.indisvalid DESC, i.indisprimary DESC LIMIT 1",
                &[(&toast.oid.0, Type::OID)],
            )
            .await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let name: String = row.try_get(0)?;
        Ok(Some(format!("REINDEX INDEX {};", quote_qualified("pg_toast", &name))))
    }
}

/// A live chunk in the TOAST relation.
#[derive(Debug, Clone, Copy)]
pub(super) struct InRelation {
    pub(super) seen: ChunkSeen,
    /// Whether the index leads to it; `None` if the index cannot be read.
    pub(super) is_indexed: Option<bool>,
}

/// The live chunks of values, whose IDs are in order.
pub(super) async fn chunks(
    looker: &mut Looker,
    ids: &[u32],
) -> Result<HashMap<u32, Vec<InRelation>>, LiveError> {
    let found = match looker.begin().await? {
        Some(standing) => inside(looker, &standing, ids).await,
        None => Ok(HashMap::new()),
    };
    snapshot::abandon(looker.connection.client()).await?;
    found
}

async fn inside(
    looker: &Looker,
    standing: &Standing,
    ids: &[u32],
) -> Result<HashMap<u32, Vec<InRelation>>, LiveError> {
    let client = looker.connection.client();
    let mut chunks: HashMap<u32, Vec<InRelation>> = HashMap::new();
    if looker.relation.toast.is_none() {
        return Ok(chunks);
    }
    let quoted = looker.quoted(Which::Toast);
    let scan = async || chunk_rows::chunks(client, &quoted, ids, By::Scan, None).await;
    let mut all: Vec<(u32, ChunkSeen)> = match looker.attempt(scan).await?.ok() {
        Some(rows) => rows.iter().map(|row| (row.value_id.0, seen_chunk(row))).collect(),
        // the server cannot plan a scan beside an index without its first page, nor scan pages that it cannot read
        None => {
            let (of_pages, _) = looker.chunks_in_pages(standing, ids).await?;
            let of_pages = of_pages.into_iter().flat_map(|(id, own)| {
                let own = own.into_iter().filter(|c| !c.is_refused);
                own.map(move |chunk| (id, chunk.seen)).collect::<Vec<_>>()
            });
            of_pages.filter(|(_, chunk)| chunk.fate == Fate::Committed).collect()
        }
    };
    let index = async || chunk_rows::chunks(client, &quoted, ids, By::Index, None).await;
    let by_index = looker.attempt(index).await?.ok();
    let by_index: Option<HashSet<ItemPointer>> =
        by_index.map(|rows| rows.iter().map(|row| row.tid).collect());
    if let Some(by_index) = &by_index {
        // a scan believes pages that say that all of their tuples are visible
        let left: Vec<ItemPointer> = all.iter().map(|(_, chunk)| chunk.tid).collect();
        let left: Vec<ItemPointer> =
            left.into_iter().filter(|tid| !by_index.contains(tid)).collect();
        if !left.is_empty() {
            let ask = async || chunk_rows::visible(client, &quoted, &left).await;
            let visible = looker.attempt(ask).await?.unwrap_or_default();
            all.retain(|(_, chunk)| by_index.contains(&chunk.tid) || visible.contains(&chunk.tid));
        }
    }
    all.sort_unstable_by_key(|(id, chunk)| (*id, chunk.seq, chunk.tid));
    for (id, seen) in all {
        let is_indexed = by_index.as_ref().map(|found| found.contains(&seen.tid));
        chunks.entry(id).or_default().push(InRelation { seen, is_indexed });
    }
    Ok(chunks)
}

impl Looker {
    /// What is left of a damaged value; `None` if the row is not there any more.
    pub async fn save(&mut self, wanted: &Wanted) -> Result<Option<Saved>, LiveError> {
        let saved = match self.begin().await? {
            Some(standing) => self.left_of(&standing, wanted).await,
            None => Ok(None),
        };
        snapshot::abandon(self.connection.client()).await?;
        saved
    }

    async fn left_of(
        &self,
        standing: &Standing,
        wanted: &Wanted,
    ) -> Result<Option<Saved>, LiveError> {
        let server = &self.about.server;
        if server.pageinspect.is_none() || wanted.ctid.block.0 >= standing.blocks {
            return Ok(None);
        }
        let mut reader = self.reader(standing, Which::Heap).await?;
        let pages = reader.read(&[wanted.ctid.block]).await?;
        let name = self.name(Which::Heap);
        let subject = self.subject(standing, Which::Heap, &name);
        let (pointer, order) = {
            let Some((_, bytes)) = pages.iter().next() else { return Ok(None) };
            let Some(found) = value_at(bytes, &subject, wanted.ctid, &wanted.column) else {
                return Ok(None);
            };
            match &found.value {
                Varlena::External(pointer) => (*pointer, found.tuple.order),
                value => return Ok(Some(salvage::inline(value))),
            }
        };
        let pieces = self.pieces(&pointer).await?;
        Ok(Some(salvage::external(&pointer, pieces, server.page_size, order)))
    }

    /// The chunks of a value that the server can read: all at once, or where it refuses one by one.
    async fn pieces(&self, pointer: &ToastPointer) -> Result<Vec<Piece>, LiveError> {
        let server = &self.about.server;
        let Some(toast) = &self.relation.toast else { return Ok(Vec::new()) };
        let relation = quote_qualified("pg_toast", &toast.name);
        let client = self.connection.client();
        let mut pieces = Vec::new();
        let all = server.page_size.chunks(pointer.stored_size());
        let mut asked = vec![None];
        while let Some(seq) = asked.pop() {
            let (id, page) = (pointer.value_id, server.page_size);
            match self.attempt(|| chunk_rows::pieces(client, &relation, id, seq, page)).await? {
                Ok(found) => {
                    pieces.extend(found.into_iter().map(|(seq, data)| Piece { seq, data }));
                }
                Err(_) if seq.is_none() => {
                    asked.extend((0..all).filter_map(|n| i32::try_from(n).ok()).map(Some));
                }
                Err(_) => {}
            }
        }
        Ok(pieces)
    }
}
