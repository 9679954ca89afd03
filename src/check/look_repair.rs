//! What must be known of a live table before SQL is printed that repairs it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio_postgres::types::Type;

use super::chunk_index::{Chunk, chunks_of};
use super::damaged_row::{RowAt, Written, pointing, row_at};
use super::live_worker::BATCH;
use super::look::{Looker, Which};
use super::repair::{self, Facts};
use super::salvage_dir::{Wanted, by_row};
use super::subject::Subject;
use crate::disk::BlockNumber;
use crate::disk::desc::TupleDesc;
use crate::model::sql::{quote_identifier, quote_qualified};
use crate::server::LiveError;
use crate::server::checking::{self, Standing};
use crate::server::pages::{PageReader, Pages};
use crate::server::snapshot;

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
        let values = rows.iter().flat_map(|row| &row.values);
        let mut ids: Vec<u32> =
            values.filter_map(|value| Some(value.pointer?.value_id.0)).collect();
        ids.sort_unstable();
        ids.dedup();
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
        let server = &self.about.server;
        let pageinspect = server
            .pageinspect
            .as_ref()
            .ok_or_else(|| LiveError::Unexpected("pageinspect is gone".into()))?;
        let mut reader = PageReader::new(
            Arc::clone(&self.connection),
            pageinspect,
            server.page_size,
            self.quoted(which),
            standing.snapshot.clone(),
        )
        .await?;
        let end = reader.block_count().await?;
        let (name, toast_desc) = (self.name(which), TupleDesc::toast_relation());
        let desc = match which {
            Which::Heap => &self.relation.desc,
            Which::Toast => &toast_desc,
        };
        let mut subject = self.subject(standing, which, &name, desc);
        if let Some(limits) = &mut subject.xids {
            limits.next_multi = Some(checking::next_multi(self.connection.client()).await?);
        }
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
