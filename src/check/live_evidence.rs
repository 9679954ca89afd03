//! What a server has of the damaged values of a table: pages, the text of values, and chunks by the TOAST index.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::chunk_index::{ChunkTuple, ChunksByValue};
use super::finding::CheckError;
use super::live_check::{About, BATCH, LiveCheck};
use super::live_repair::{misled, moved};
use super::reading::{ValueReading, numbered_by_index};
use super::salvage::{RowFindings, SavedChunk};
use super::salvage_dir::{self, SalvageDir, SavedRelation};
use super::salvage_rows::{ChosenBlocks, Evidence, IndexedChunks, Salvage};
use super::subject::{SeenPage, Which};
use crate::server::chunk_rows::{ChunkRow, ChunkRows};
use crate::server::pages::Pages;
use crate::server::{LiveError, checking, owner_facts, snapshot};
use toast_format::disk::{BlockNumber, ItemPointer, ToastPointer};
use toast_format::model::sql::quote_identifier;
use toast_format::model::{HintBits, Snapshot};

/// Refused pages of a relation that are read from their file.
pub(super) const MAX_REFUSED: usize = 10_000;

impl LiveCheck {
    /// Saves what is left of damaged rows and their values. `known`, in order, are the values that rows refer to.
    pub(super) async fn save(
        &mut self,
        damaged: &[RowFindings],
        known: &[u64],
        dir: &mut SalvageDir,
    ) -> Result<(), CheckError> {
        if damaged.is_empty() {
            return Ok(());
        }
        let saved = self
            .reading_rows(async |check| check.salvage(known).await?.save_rows(damaged, dir).await);
        saved.await.map(drop)
    }

    /// Saves values to which no row that could be read refers. `start` is from before the rows were read. Gives what is left
    /// out because it is too much.
    pub(super) async fn save_without_row(
        &mut self,
        start: &Snapshot,
        known: &[u64],
        dir: &mut SalvageDir,
    ) -> Result<Option<String>, CheckError> {
        let toast = self.name(Which::Toast);
        let saved = self.in_snapshot(async |check| {
            let mut salvage = check.salvage(known).await?;
            salvage.save_without_row(&toast, |xmin| start.was_over(xmin), dir).await
        });
        Ok(saved.await?.flatten())
    }

    async fn salvage<'a>(
        &'a self,
        known: &'a [u64],
    ) -> Result<Salvage<'a, &'a LiveCheck>, LiveError> {
        let relation = SavedRelation {
            name: self.name(Which::Heap),
            quoted: self.quoted(Which::Heap),
            copy: salvage_dir::copy_of(&self.relation.schema, &self.relation.name),
            desc: &self.relation.desc,
            types: checking::types(self.connection.client(), &self.relation).await?,
            encoding: Some(&self.about.storage.encoding),
        };
        let page_size = self.about.server.page_size;
        Ok(Salvage { evidence: self, relation: Arc::new(relation), page_size, known })
    }

    /// Does `work` in a transaction in which rows may be read by SQL, unless code of the table's owner would run.
    pub(super) async fn reading_rows<T, E: From<LiveError>>(
        &mut self,
        work: impl AsyncFnOnce(&mut LiveCheck) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        let table = self.relation.oid;
        self.lock_mode = owner_facts::lock_mode(&self.connection, table).await?;
        let done = self
            .in_snapshot(async |check| {
                let mode = check.lock_mode;
                check.reads_rows = owner_facts::may_read(&check.connection, table, mode).await?;
                work(check).await
            })
            .await;
        self.lock_mode = owner_facts::ACCESS_SHARE;
        done
    }

    /// Calls `take` with the pages of these blocks, or of all. Returns the blocks that cannot be read.
    pub(super) async fn each_page(
        &self,
        which: Which,
        blocks: ChosenBlocks,
        mut take: impl FnMut(&SeenPage<'_, Pages>),
    ) -> Result<BTreeSet<BlockNumber>, LiveError> {
        let mut lost = BTreeSet::new();
        if blocks.as_ref().is_some_and(BTreeSet::is_empty) {
            return Ok(lost);
        }
        let mut reader = self.reader(which).await?;
        let end = reader.block_count().await?;
        let name = self.name(which);
        let subject = self.subject_now(which, &name, false).await?;
        let mut blocks: Box<dyn Iterator<Item = BlockNumber> + Send> = match blocks {
            Some(blocks) => Box::new(blocks.into_iter().filter(move |block| block.0 < end)),
            None => Box::new((0..end).map(BlockNumber)),
        };
        loop {
            let some: Vec<BlockNumber> = blocks.by_ref().take(BATCH as usize).collect();
            if some.is_empty() {
                break;
            }
            let pages = reader.read(&some).await?;
            for (block, bytes) in pages.iter() {
                take(&SeenPage { subject: &subject, block, bytes, visible: &pages });
            }
            lost.extend(pages.unreadable.iter().map(|(block, _)| *block));
        }
        Ok(lost)
    }

    /// Calls `each` with every chunk in these blocks of the TOAST relation, or in all, whose value `is_asked` for, deleted
    /// ones too. Returns the blocks that cannot be read.
    pub(super) async fn each_chunk(
        &self,
        blocks: ChosenBlocks,
        is_asked: impl Fn(u64) -> bool,
        mut each: impl FnMut(u64, ChunkTuple),
    ) -> Result<BTreeSet<BlockNumber>, LiveError> {
        self.each_page(Which::Toast, blocks, |page| page.each_chunk(&is_asked, &mut each)).await
    }

    /// A page as its file has it; empty where the role may not read that.
    pub(super) async fn on_disk(
        &self,
        which: Which,
        block: BlockNumber,
    ) -> Result<Vec<u8>, LiveError> {
        let About { server, storage, .. } = &*self.about;
        let client = self.connection.client();
        let relation = self.quoted(which);
        let blocks = block.0..block.0.saturating_add(1);
        let read = snapshot::in_savepoint(client, async || {
            storage.on_disk(client, server, &relation, blocks).await
        });
        Ok(read.await?.unwrap_or_default())
    }
}

impl Evidence for &LiveCheck {
    type Visible = Pages;

    async fn each_page(
        &mut self,
        which: Which,
        blocks: ChosenBlocks,
        take: impl FnMut(&SeenPage<'_, Pages>),
    ) -> Result<BTreeSet<BlockNumber>, CheckError> {
        if which == Which::Toast && self.relation.toast.is_none() {
            return Ok(BTreeSet::new());
        }
        Ok(LiveCheck::each_page(self, which, blocks, take).await?)
    }

    async fn each_refused(
        &mut self,
        which: Which,
        blocks: BTreeSet<BlockNumber>,
        mut take: impl FnMut(&SeenPage<'_, HintBits>),
    ) -> Result<(), CheckError> {
        let name = self.name(which);
        let subject = self.subject(which, &name);
        for block in blocks.into_iter().take(MAX_REFUSED) {
            let bytes = &self.on_disk(which, block).await?;
            take(&SeenPage { subject: &subject, block, bytes, visible: &HintBits });
        }
        Ok(())
    }

    /// Nothing is asked if code of the table's owner could run.
    async fn text_of(
        &mut self,
        column: &str,
        ctid: ItemPointer,
    ) -> Result<Option<Vec<u8>>, CheckError> {
        if !self.reads_rows {
            return Ok(None);
        }
        let column = quote_identifier(column);
        // A cast could be a function of the type's owner. A composite value may be NULL in parts.
        let sql = format!(
            "SELECT CASE WHEN pg_catalog.num_nulls({column}) = 0 THEN pg_catalog.convert_to( \
                 pg_catalog.concat({column}), pg_catalog.getdatabaseencoding()) END \
             FROM ONLY {} WHERE ctid = '{ctid}'",
            self.quoted(Which::Heap)
        );
        let client = self.connection.client();
        let read = snapshot::in_savepoint(client, async || Ok(client.value(&sql, &[]).await?));
        Ok(read.await?.unwrap_or_default().flatten())
    }

    async fn by_index(
        &mut self,
        pointer: &ToastPointer,
        chunks: &ChunksByValue,
    ) -> Result<Option<IndexedChunks>, CheckError> {
        let check = *self;
        let id = pointer.value_id.0;
        let size = check.about.server.page_size;
        if !check.is_own(pointer) {
            return Ok(None);
        }
        if !check.by_index {
            let mut own = chunks.get(&id).into_iter().flatten();
            let is_disputed = check.entries.as_ref().is_none_or(|entries| {
                !entries.is_complete || own.any(|chunk| entries.differ_from(id, &chunk.seen))
            });
            let none = IndexedChunks { chunks: None, is_proven: false };
            return Ok(is_disputed.then_some(none));
        }
        let led_to = check.chunks_by_index(BTreeSet::from([id])).await?;
        let Some(led) = led_to.get(&id) else { return Ok(None) };
        let own = chunks.get(&id).map_or(&[][..], Vec::as_slice);
        let mut moved = moved(chunks);
        let strangers = led.iter().filter(|row| row.value_id.0 != id).map(|row| row.tid.block);
        let of_strangers = Some(strangers.collect());
        let take = |_, chunk: ChunkTuple| {
            if chunk.is_moved || chunk.is_misread {
                moved.insert(chunk.seen.tid);
            }
        };
        LiveCheck::each_chunk(check, of_strangers, |_| true, take).await?;
        let misled = misled(id, led, &led_to, &moved);
        let reading = ValueReading::new(pointer, led, own, &misled, size);
        if !reading.is_open {
            return Ok(None);
        }
        let wanted = check.wanted_data(pointer.stored_size().into());
        let Some(ChunkRows { rows, data }) = check.by_index(id, Some(wanted)).await? else {
            return Ok(None);
        };
        let rows = if reading.by_index {
            Some(rows)
        } else if reading.by_chunks {
            None
        } else {
            numbered_by_index(pointer, &rows, size)
        };
        Ok(Some(IndexedChunks {
            chunks: rows
                .and_then(|rows| rows.into_iter().map(|row| saved_chunk(row, &data)).collect()),
            is_proven: reading.by_index && !reading.by_chunks,
        }))
    }
}

/// A chunk as the server has read it; `None` if a column of it is NULL.
fn saved_chunk(row: ChunkRow, data: &[u8]) -> Option<SavedChunk> {
    let data = data.get(row.data?)?.to_vec();
    Some(SavedChunk { tid: row.tid, seq: row.seq?, data, doubt: None })
}
