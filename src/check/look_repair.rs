//! Closer looks at what is damaged in a live table: chunks without the TOAST index, what is left of values, and what must
//! be known before SQL is printed that repairs them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tokio_postgres::types::Type;

use super::chunk_index::{Chunk, append_chunk, chunks_of};
use super::code::Code;
use super::content::check_content;
use super::damaged_row::{
    Pointing, RowAt, ValueAt, Written, by_key, is_readable, pointing, row_at, shared_values,
    value_ids,
};
use super::finding::{CheckError, Finding};
use super::look::{About, BATCH, Looker, Which, seen_chunk};
use super::repair::{self, Facts, ToastIndex, Unread, may_crash_at_pglz};
use super::salvage::{
    self, Cell, Damaged, Doubt, MAX_WITHOUT, Orphans, Piece, Row, Wanted, by_row, on_page,
    unread_pieces,
};
use super::salvage_custom::Elsewhere;
use super::salvage_dir::{self, SalvageDir};
use super::subject::Subject;
use super::value::{ChunkForm, ChunkSeen, check_chunks};
use crate::disk::layout::PageSize;
use crate::disk::pointer::ToastPointer;
use crate::disk::type_kind::Types;
use crate::disk::{BlockNumber, ItemPointer, TransactionId, ValueId};
use crate::heap::problem::Place;
use crate::model::sql::{quote_identifier, quote_qualified};
use crate::model::toaster::chunks::Fate;
use crate::model::visibility::Snapshot;
use crate::server::checking::{self, Standing};
use crate::server::chunk_rows::{self, By, ChunkRow};
use crate::server::pages::Pages;
use crate::server::{LiveError, owner_facts, snapshot};

/// The chunks of values by their IDs, and the blocks that could not be read.
pub(super) type ChunksByValue = (HashMap<u64, Vec<Chunk>>, Vec<BlockNumber>);

/// What findings tell of a table as a whole.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    pub(super) index: ToastIndex,
    /// Whether pages have wrong checksums.
    pub(super) wrong_checksums: bool,
    /// Pages of the table and of its TOAST relation that the check could not judge; the server may read them.
    pub(super) refused: [Vec<BlockNumber>; 2],
    /// Tuples of the TOAST relation that do not begin where they should, or their columns.
    pub(super) headless: Vec<ItemPointer>,
}

impl Looker {
    /// The SQL for damaged values, after looks at what else it would touch. `referred`, in order, are the values that
    /// rows refer to.
    pub(super) async fn repairs(
        &mut self,
        wanted: &[Wanted],
        referred: &[u64],
        known: Known,
    ) -> Result<Vec<String>, LiveError> {
        let is_sound = known.refused.iter().all(Vec::is_empty)
            && known.headless.is_empty()
            && !known.index.is_damaged;
        if wanted.is_empty() && is_sound {
            return Ok(Vec::new());
        }
        let script = match self.begin().await? {
            Some(standing) => self.script(&standing, wanted, referred, known).await,
            None => Ok(Vec::new()),
        };
        snapshot::abandon(self.connection.client()).await?;
        script
    }

    async fn script(
        &self,
        standing: &Standing,
        wanted: &[Wanted],
        referred: &[u64],
        known: Known,
    ) -> Result<Vec<String>, LiveError> {
        let toast = self.relation.toast.as_ref();
        let mut facts = Facts {
            table: self.quoted(Which::Heap),
            oid: self.relation.oid,
            schema: format!("{}.", quote_identifier(&self.relation.schema)),
            toast: toast.map(|toast| (quote_qualified("pg_toast", &toast.name), toast.oid)),
            has_toasters: self.about.server.has_toasters,
            index: known.index,
            header: self.about.server.pageinspect.as_ref().map(|pageinspect| {
                let items = pageinspect.function("heap_page_items");
                (items, pageinspect.get_raw_page())
            }),
            page_size: self.about.server.page_size,
            may_crash_at_pglz: may_crash_at_pglz(self.about.server.version_num),
            unread: Unread { wrong_checksums: known.wrong_checksums, ..Unread::default() },
            ..Facts::default()
        };
        self.columns(&mut facts).await?;
        let [heap, toast] = known.refused;
        facts.unread.heap_blocks =
            self.each_page(standing, Which::Heap, Some(heap), |_, _, _, _| ()).await?;
        if facts.toast.is_some() {
            facts.unread.toast_blocks =
                self.each_page(standing, Which::Toast, Some(toast), |_, _, _, _| ()).await?;
        }
        facts.headless = self.headless(standing, &known.headless).await?;
        let rows = self.rows(standing, wanted, &facts.columns.generated).await?;
        for row in rows.iter().filter(|row| row.is_live && row.is_readable) {
            for value in &row.values {
                if self.is_misnamed(value, referred).await? {
                    facts.misnamed.insert((row.ctid, value.column.clone()));
                }
                if self.is_twice(value).await? {
                    facts.twice.insert((row.ctid, value.column.clone()));
                }
            }
        }
        let ids = value_ids(&rows);
        if !ids.is_empty() && !facts.index.is_damaged && facts.toast.is_some() {
            (facts.chunks, facts.unread.toast_blocks) =
                self.chunks_in_pages(standing, &ids).await?;
            let written = Written { table: &facts.table, generated: &facts.columns.generated };
            let (all, unread) = (&mut facts.pointing, &mut facts.unread.rows);
            let take = |subject: &Subject<'_>, block, bytes: &[u8], pages: &Pages| {
                *unread |= !pointing(written, subject, pages, block, bytes, &ids, all);
            };
            let lost = self.each_page(standing, Which::Heap, None, take).await?;
            facts.unread.rows |= !lost.is_empty();
        }
        Ok(repair::script(&facts, &rows))
    }

    /// The chunks that the index leads to for a value; `None` if the server cannot read them. `data`: with their data.
    async fn by_index(
        &self,
        value_id: u64,
        data: Option<PageSize>,
    ) -> Result<Option<Vec<ChunkRow>>, LiveError> {
        let (client, quoted) = (self.connection.client(), self.quoted(Which::Toast));
        let ids = [value_id];
        let ask = async || {
            chunk_rows::chunks(client, (&quoted, self.id_type()), &ids, By::Index, data).await
        };
        Ok(self.attempt(ask).await?.ok())
    }

    /// The chunks that the index leads to, if they are all of the value's and those that have its ID are not.
    async fn pieces_by_index(
        &self,
        pointer: &ToastPointer,
        own: Option<&Vec<Chunk>>,
    ) -> Result<Option<Vec<Piece>>, LiveError> {
        let size = self.about.server.page_size;
        let toast = self.relation.toast.as_ref().map(|toast| toast.oid);
        let own: Vec<ChunkSeen> = own
            .into_iter()
            .flatten()
            .filter(|c| !c.is_refused && !c.is_misread)
            .map(|c| c.seen)
            .collect();
        let is_needed = self.by_index
            && Some(pointer.toast_relation) == toast
            && check_chunks(pointer, &own, size).is_err();
        if !is_needed {
            return Ok(None);
        }
        let Some(rows) = self.by_index(pointer.value_id.0, Some(size)).await? else {
            return Ok(None);
        };
        let seen: Vec<ChunkSeen> = rows.iter().map(seen_chunk).collect();
        if check_chunks(pointer, &seen, size).is_err() {
            return Ok(None);
        }
        let piece = |row: ChunkRow| {
            Some(Piece { tid: row.tid, seq: row.seq?, data: row.data?, doubt: None })
        };
        Ok(rows.into_iter().map(piece).collect())
    }

    /// Whether the index leads to all chunks of a value, although some of them have another `chunk_id`, under which the
    /// index does not lead to them.
    async fn is_misnamed(&self, value: &ValueAt, referred: &[u64]) -> Result<bool, LiveError> {
        let is_missing =
            matches!(value.code, Code::NoChunks | Code::ChunkMissing | Code::ChunksEnd);
        let own = self.relation.toast.as_ref().map(|toast| toast.oid);
        let pointer = value.pointer.filter(|pointer| Some(pointer.toast_relation) == own);
        let Some(pointer) = pointer.filter(|_| is_missing && self.by_index) else {
            return Ok(false);
        };
        let Some(led_to) = self.by_index(pointer.value_id.0, None).await? else {
            return Ok(false);
        };
        let seen: Vec<ChunkSeen> = led_to.iter().map(seen_chunk).collect();
        if check_chunks(&pointer, &seen, self.about.server.page_size).is_err() {
            return Ok(false);
        }
        let mut others =
            led_to.iter().filter(|chunk| chunk.value_id != pointer.value_id).peekable();
        if others.peek().is_none() {
            return Ok(false);
        }
        for chunk in others {
            let id = chunk.value_id.0;
            let Some(theirs) = self.by_index(id, None).await? else { return Ok(false) };
            let has_another = theirs.iter().any(|other| other.seq == chunk.seq);
            if theirs.iter().any(|other| other.tid == chunk.tid)
                || referred.binary_search(&id).is_ok() && !has_another
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Those of these tuples of the TOAST relation of which the server reads nothing right.
    async fn headless(
        &self,
        standing: &Standing,
        tids: &[ItemPointer],
    ) -> Result<Vec<RowAt>, LiveError> {
        let mut blocks: Vec<BlockNumber> = tids.iter().map(|tid| tid.block).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let mut rows = Vec::new();
        if blocks.is_empty() {
            return Ok(rows);
        }
        let none = HashSet::new();
        let take = |toast: &Subject<'_>, block, bytes: &[u8], pages: &Pages| {
            let own = tids.iter().filter(|tid| tid.block == block);
            rows.extend(own.filter_map(|tid| row_at(bytes, toast, pages, *tid, &[], &none)));
        };
        self.each_page(standing, Which::Toast, Some(blocks), take).await?;
        Ok(rows)
    }

    /// What is found of values that have one of these tuples of the TOAST relation as a chunk whose `t_hoff` is wrong. SQL
    /// reads the chunk, as of PostgreSQL 19, but not the value.
    pub(super) async fn misread_values(
        &mut self,
        tids: &[ItemPointer],
    ) -> Result<Vec<Finding>, LiveError> {
        let found = match self.begin().await? {
            Some(standing) => self.values_of_misread(&standing, tids).await,
            None => Ok(Vec::new()),
        };
        snapshot::abandon(self.connection.client()).await?;
        found
    }

    async fn values_of_misread(
        &self,
        standing: &Standing,
        tids: &[ItemPointer],
    ) -> Result<Vec<Finding>, LiveError> {
        let mut misread: BTreeMap<u64, ChunkSeen> = BTreeMap::new();
        let blocks: BTreeSet<BlockNumber> = tids.iter().map(|tid| tid.block).collect();
        let (blocks, tids) = (blocks.into_iter().collect(), HashSet::<_>::from_iter(tids));
        let take = |toast: &Subject<'_>, block, bytes: &[u8], pages: &Pages| {
            let all = |_| true;
            chunks_of(toast, block, bytes, pages, all, |id, Chunk { seen, is_misread, .. }| {
                if is_misread && tids.contains(&seen.tid) {
                    misread.entry(id).or_insert(seen);
                }
            });
        };
        self.each_page(standing, Which::Toast, Some(blocks), take).await?;
        let ids: Vec<u64> = misread.keys().copied().collect();
        let finding = |name: &str, Pointing { ctid, column, value_id, .. }: Pointing| {
            let ChunkSeen { seq, tid, .. } = misread.get(&value_id)?;
            let (block, item) = (Some(ctid.block), Some(ctid.item));
            let place = Place { block, item, column: Some(column), ..Place::of(name) };
            let expected = format!("chunk {seq} of value {value_id}");
            let found = format!("a tuple at {tid} whose t_hoff is wrong");
            Some(Finding::new(Code::ChunkMissing, place, expected, found))
        };
        let find = |name: &str, all: Vec<Pointing>| {
            all.into_iter().filter_map(|pointing| finding(name, pointing)).collect()
        };
        self.of_pointing(standing, &ids, find).await
    }

    /// What `find` makes of the table's name and of who refers to these values, whose IDs are in order.
    async fn of_pointing(
        &self,
        standing: &Standing,
        value_ids: &[u64],
        find: impl FnOnce(&str, Vec<Pointing>) -> Vec<Finding>,
    ) -> Result<Vec<Finding>, LiveError> {
        let mut all = Vec::new();
        let generated = HashSet::new();
        let written = Written { table: "", generated: &generated };
        let take = |subject: &Subject<'_>, block, bytes: &[u8], pages: &Pages| {
            pointing(written, subject, pages, block, bytes, value_ids, &mut all);
        };
        self.each_page(standing, Which::Heap, None, take).await?;
        let mut findings = find(&self.name(Which::Heap), all);
        self.name_rows(standing, findings.iter_mut().collect()).await?;
        Ok(findings)
    }

    /// Whether two chunks of a value have the same number, and the index leads to both, and to no other value's.
    async fn is_twice(&self, value: &ValueAt) -> Result<bool, LiveError> {
        let own = self.relation.toast.as_ref().map(|toast| toast.oid);
        let pointer = value.pointer.filter(|pointer| Some(pointer.toast_relation) == own);
        let is_asked = value.code == Code::ChunkTwice && self.by_index;
        let Some(pointer) = pointer.filter(|_| is_asked) else { return Ok(false) };
        let Some(led_to) = self.by_index(pointer.value_id.0, None).await? else {
            return Ok(false);
        };
        let seen: Vec<ChunkSeen> = led_to.iter().map(seen_chunk).collect();
        let damage = check_chunks(&pointer, &seen, self.about.server.page_size).err();
        let is_own = led_to.iter().all(|chunk| chunk.value_id == pointer.value_id);
        Ok(is_own && damage.is_some_and(|damage| damage.code == Code::ChunkTwice))
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

    /// A finding for each live row that has one of these values, whose IDs are in order, and is not the only one, in one
    /// snapshot: a row that is updated is live at two places in two.
    pub(super) async fn shared_values(
        &mut self,
        value_ids: &[u64],
    ) -> Result<Vec<Finding>, LiveError> {
        if value_ids.is_empty() {
            return Ok(Vec::new());
        }
        let found = match self.begin().await? {
            Some(standing) => self.of_pointing(&standing, value_ids, shared_values).await,
            None => Ok(Vec::new()),
        };
        snapshot::abandon(self.connection.client()).await?;
        found
    }

    /// The chunks of values, whose IDs are in order, deleted ones too, as they stand in the TOAST relation: no
    /// index is asked.
    pub(super) async fn chunks_in_pages(
        &self,
        standing: &Standing,
        ids: &[u64],
    ) -> Result<ChunksByValue, LiveError> {
        let mut chunks: HashMap<u64, Vec<Chunk>> = HashMap::new();
        let take = |toast: &Subject<'_>, block, bytes: &[u8], pages: &Pages| {
            let is_asked = |id: u64| ids.binary_search(&id).is_ok();
            chunks_of(toast, block, bytes, pages, is_asked, |id, chunk| {
                if !chunk.is_misread {
                    chunks.entry(id).or_default().push(chunk);
                }
            });
        };
        let lost = self.each_page(standing, Which::Toast, None, take).await?;
        Ok((chunks, lost))
    }

    /// Names the rows of findings in the table by their primary key.
    pub(super) async fn name_rows(
        &self,
        standing: &Standing,
        mut findings: Vec<&mut Finding>,
    ) -> Result<(), LiveError> {
        let name = self.name(Which::Heap);
        // it is not known where these tuples begin, or what is in them
        let is_lost = |code| {
            matches!(code, Code::LinePointer | Code::Redirect | Code::Overlap | Code::HeaderLength)
        };
        findings.retain(|one| {
            one.place.source == name && one.place.item.is_some() && !is_lost(one.code)
        });
        let mut blocks: Vec<BlockNumber> =
            findings.iter().filter_map(|finding| finding.place.block).collect();
        if blocks.is_empty() {
            return Ok(());
        }
        let key = checking::primary_key(self.connection.client(), self.relation.oid).await?;
        if key.is_empty() {
            return Ok(());
        }
        blocks.sort_unstable();
        blocks.dedup();
        findings.sort_by_key(|finding| finding.place.block);
        let take = |subject: &Subject<'_>, block, bytes: &[u8], _: &Pages| {
            let start = findings.partition_point(|finding| finding.place.block < Some(block));
            let own = findings.iter_mut().skip(start);
            for finding in own.take_while(|finding| finding.place.block == Some(block)) {
                let Some(item) = finding.place.item else { continue };
                finding.row = by_key(bytes, subject, ItemPointer { block, item }, &key);
            }
        };
        self.each_page(standing, Which::Heap, Some(blocks), take).await.map(drop)
    }

    /// Gives the pages of these blocks, or of all, to `take`; those that cannot be read are what it returns.
    pub(super) async fn each_page(
        &self,
        standing: &Standing,
        which: Which,
        blocks: Option<Vec<BlockNumber>>,
        mut take: impl FnMut(&Subject<'_>, BlockNumber, &[u8], &Pages),
    ) -> Result<Vec<BlockNumber>, LiveError> {
        let mut reader = self.reader(standing, which).await?;
        let end = reader.block_count().await?;
        let name = self.name(which);
        let subject = self.subject_now(standing, which, &name, false).await?;
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
                facts.columns.not_null.insert(name.clone());
            }
            if row.try_get(2)? {
                facts.columns.generated.insert(name.clone());
                facts.columns.made_of.insert(name, row.try_get(3)?);
            }
        }
        Ok(())
    }

    /// The name of the TOAST relation's index, if it has one.
    pub(super) async fn toast_index(&self) -> Result<Option<String>, LiveError> {
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
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
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
    ids: &[u64],
) -> Result<HashMap<u64, Vec<InRelation>>, LiveError> {
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
    ids: &[u64],
) -> Result<HashMap<u64, Vec<InRelation>>, LiveError> {
    let client = looker.connection.client();
    let mut chunks: HashMap<u64, Vec<InRelation>> = HashMap::new();
    if looker.relation.toast.is_none() {
        return Ok(chunks);
    }
    let quoted = looker.quoted(Which::Toast);
    let relation = (quoted.as_str(), looker.id_type());
    let scan = async || chunk_rows::chunks(client, relation, ids, By::Scan, None).await;
    let mut all: Vec<(u64, ChunkSeen)> = match looker.attempt(scan).await?.ok() {
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
    let index = async || chunk_rows::chunks(client, relation, ids, By::Index, None).await;
    let by_index = if looker.by_index { looker.attempt(index).await?.ok() } else { None };
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

/// Chunks that values together have at the most whose places are kept at a time: 48 bytes each.
const CHUNKS_AT_A_TIME: u64 = 2_000_000;
/// Values without a row that are kept as candidates for one whose chunks are nowhere.
const MAX_ORPHANS: usize = 1_000_000;
/// Refused pages of a relation that are read from their file.
pub(super) const MAX_REFUSED: usize = 10_000;

/// A damaged row.
struct DamagedRow {
    row: Damaged,
    pointers: Vec<ToastPointer>,
    /// All of its values in the TOAST relation.
    value_ids: Vec<u64>,
}

/// The chunks of some values, however they were found.
#[derive(Default)]
struct Chunks {
    by_value: HashMap<u64, Vec<Chunk>>,
    /// Those on pages that the server refuses.
    refused: HashMap<u64, Vec<Piece>>,
    orphans: Orphans,
}

impl Looker {
    /// Saves what is left of damaged values and of their rows. No index is asked: the TOAST relation is read once for
    /// as many values as have [`CHUNKS_AT_A_TIME`]. `known`, in order, are the values that rows refer to.
    pub(super) async fn save(
        &mut self,
        wanted: &[Wanted],
        known: &[u64],
        dir: &mut SalvageDir,
    ) -> Result<(), CheckError> {
        if wanted.is_empty() {
            return Ok(());
        }
        self.lock_mode = owner_facts::lock_mode(&self.connection, self.relation.oid).await?;
        let saved = match self.begin().await? {
            Some(standing) => {
                self.reads_rows =
                    owner_facts::may_read(&self.connection, self.relation.oid, self.lock_mode)
                        .await?;
                self.save_rows(&standing, wanted, known, dir).await
            }
            None => Ok(()),
        };
        snapshot::abandon(self.connection.client()).await?;
        self.lock_mode = owner_facts::ACCESS_SHARE;
        saved
    }

    async fn save_rows(
        &self,
        standing: &Standing,
        wanted: &[Wanted],
        known: &[u64],
        dir: &mut SalvageDir,
    ) -> Result<(), CheckError> {
        let (name, quoted) = (self.name(Which::Heap), self.quoted(Which::Heap));
        let types = checking::types(self.connection.client(), &self.relation).await?;
        let encoding = self.about.storage.encoding.as_str();
        let copy = salvage_dir::copy_of(&self.relation.schema, &self.relation.name);
        let relation = salvage_dir::Relation {
            name: &name,
            quoted: &quoted,
            copy: &copy,
            desc: &self.relation.desc,
            types: &types,
            encoding: Some(encoding),
        };
        let mut saving = dir.rows_of(relation);
        let rows = self.damaged_rows(standing, wanted).await?;
        let size = self.about.server.page_size;
        let chunks_of = |pointer: &ToastPointer| u64::from(pointer.chunks(size));
        let mut rest = rows.as_slice();
        while !rest.is_empty() {
            let mut all = 0;
            let fits = rest.iter().take_while(|row| {
                all += row.pointers.iter().map(chunks_of).sum::<u64>();
                all <= CHUNKS_AT_A_TIME
            });
            let (some, left) = rest.split_at(fits.count().max(1));
            rest = left;
            let chunks = self.chunks_of_rows(standing, some, known).await?;
            for DamagedRow { row: (ctid, damaged), .. } in some {
                if let Some(row) = self.left_of(standing, *ctid, damaged, (&chunks, &types)).await?
                {
                    saving.row(*ctid, damaged, &row)?;
                }
            }
        }
        Ok(saving.end()?)
    }

    /// Saves values to which no row that could be read refers: those of lost rows may be among them. `known`, in order, are the
    /// others; `start` is from before the rows were read. Gives what is left out because it is too much.
    pub(super) async fn save_without_row(
        &mut self,
        start: &Snapshot,
        known: &[u64],
        dir: &mut SalvageDir,
    ) -> Result<Option<String>, CheckError> {
        let saved = match self.begin().await? {
            Some(standing) => self.without_row(&standing, (start, known), dir).await,
            None => Ok(None),
        };
        snapshot::abandon(self.connection.client()).await?;
        saved
    }

    async fn without_row(
        &self,
        standing: &Standing,
        (start, known): (&Snapshot, &[u64]),
        dir: &mut SalvageDir,
    ) -> Result<Option<String>, CheckError> {
        let (mut all, mut count): (BTreeMap<u64, Vec<Chunk>>, u64) = (BTreeMap::new(), 0);
        let mut left_out: BTreeSet<u64> = BTreeSet::new();
        let is_old = |xmin: u32| xmin <= 2 || start.was_over(TransactionId(xmin));
        let take = |toast: &Subject<'_>, block, bytes: &[u8], pages: &Pages| {
            let is_asked = |id: u64| known.binary_search(&id).is_err();
            chunks_of(toast, block, bytes, pages, is_asked, |id, chunk| {
                let is_live = chunk.seen.fate == Fate::Committed && !chunk.is_refused;
                if !is_live || !is_old(chunk.xids[0]) {
                    return;
                }
                let has_room = count < CHUNKS_AT_A_TIME && all.len() < MAX_WITHOUT;
                if has_room || all.contains_key(&id) && count < CHUNKS_AT_A_TIME {
                    count += 1;
                    all.entry(id).or_default().push(chunk);
                } else if left_out.len() < MAX_ORPHANS {
                    left_out.insert(id);
                }
            });
        };
        self.each_page(standing, Which::Toast, None, take).await?;
        let (toast, size) = (self.name(Which::Toast), self.about.server.page_size);
        for (id, chunks) in all {
            let Some(first) = chunks.iter().min_by_key(|chunk| chunk.seen.seq) else { continue };
            let pieces = self.pieces(standing, Some(&chunks)).await?;
            let saved = salvage::without_row((ValueId(id), self.id_type()), pieces, size);
            dir.without_row(&toast, first.seen.tid, &saved)?;
        }
        Ok(salvage::not_saved(&toast, left_out.len() as u64))
    }

    async fn damaged_rows(
        &self,
        standing: &Standing,
        wanted: &[Wanted],
    ) -> Result<Vec<DamagedRow>, LiveError> {
        let asked = by_row(wanted);
        let mut blocks: Vec<BlockNumber> = asked.iter().map(|(ctid, _)| ctid.block).collect();
        blocks.dedup();
        let mut rows = Vec::new();
        let mut take = |subject: &Subject<'_>, block: BlockNumber, bytes: &[u8]| {
            let start = asked.partition_point(|(ctid, _)| ctid.block < block);
            let own = asked.get(start..).unwrap_or_default();
            let end = own.partition_point(|(ctid, _)| ctid.block == block);
            for row in on_page(bytes, own.get(..end).unwrap_or_default()) {
                if let Some(read) = Row::read(bytes, subject, row.0) {
                    let (pointers, value_ids) =
                        (read.pointers().copied().collect(), read.value_ids());
                    rows.push(DamagedRow { row, pointers, value_ids });
                }
            }
        };
        let each =
            |subject: &Subject<'_>, block, bytes: &[u8], _: &Pages| take(subject, block, bytes);
        let refused = self.each_page(standing, Which::Heap, Some(blocks), each).await?;
        let name = self.name(Which::Heap);
        let subject = self.subject(standing, Which::Heap, &name);
        for block in refused.into_iter().take(MAX_REFUSED) {
            take(&subject, block, &self.on_disk(Which::Heap, block).await?);
        }
        Ok(rows)
    }

    async fn chunks_of_rows(
        &self,
        standing: &Standing,
        rows: &[DamagedRow],
        known: &[u64],
    ) -> Result<Chunks, LiveError> {
        let mut chunks = Chunks::default();
        let mut ids: Vec<u64> = rows.iter().flat_map(|row| &row.value_ids).copied().collect();
        if self.relation.toast.is_none() || ids.is_empty() {
            return Ok(chunks);
        }
        ids.sort_unstable();
        ids.dedup();
        let mut orphans: HashMap<u64, (u64, u64)> = HashMap::new();
        let (by_value, size) = (&mut chunks.by_value, self.about.server.page_size);
        let is_own = |id: u64| ids.binary_search(&id).is_ok();
        let is_asked = |id: u64| is_own(id) || known.binary_search(&id).is_err();
        let take = |toast: &Subject<'_>, block, bytes: &[u8], pages: &Pages| {
            chunks_of(toast, block, bytes, pages, is_asked, |id, chunk| {
                if is_own(id) {
                    by_value.entry(id).or_default().push(chunk);
                } else if chunk.seen.fate == Fate::Committed
                    && (orphans.len() < MAX_ORPHANS || orphans.contains_key(&id))
                {
                    let own = orphans.entry(id).or_default();
                    own.0 += 1;
                    own.1 += u64::from(chunk.seen.size);
                }
            });
        };
        let refused = self.each_page(standing, Which::Toast, None, take).await?;
        for (id, (count, bytes)) in orphans {
            chunks.orphans.add(id, count, bytes);
        }
        let of_rows = rows.iter().flat_map(|row| &row.pointers);
        let nowhere = of_rows.filter(|p| !chunks.by_value.contains_key(&p.value_id.0));
        let mut instead: Vec<u64> =
            nowhere.filter_map(|pointer| chunks.orphans.instead_of(pointer, size)).collect();
        if !instead.is_empty() {
            instead.sort_unstable();
            instead.dedup();
            chunks.by_value.extend(self.chunks_in_pages(standing, &instead).await?.0);
        }
        let toast = self.name(Which::Toast);
        let subject = self.subject(standing, Which::Toast, &toast);
        for block in refused.into_iter().take(MAX_REFUSED) {
            let page = self.on_disk(Which::Toast, block).await?;
            let doubt_of = |_: &Chunk| Some(Doubt::PageRefused);
            unread_pieces(&subject, (block, &page), &ids, doubt_of, &mut chunks.refused);
        }
        Ok(chunks)
    }

    /// A page as its file has it; empty where the role may not read that.
    async fn on_disk(&self, which: Which, block: BlockNumber) -> Result<Vec<u8>, LiveError> {
        let About { server, storage, .. } = &*self.about;
        let (client, relation) = (self.connection.client(), self.quoted(which));
        let blocks = block.0..block.0.saturating_add(1);
        let read = async || storage.on_disk(client, server, &relation, blocks).await;
        Ok(self.attempt_any(read).await?.unwrap_or_default())
    }

    /// What is left of a row.
    async fn left_of(
        &self,
        standing: &Standing,
        ctid: ItemPointer,
        damaged: &[(String, Code)],
        (chunks, types): (&Chunks, &Types),
    ) -> Result<Option<Row>, LiveError> {
        let size = self.about.server.page_size;
        let name = self.name(Which::Heap);
        let mut reader = self.reader(standing, Which::Heap).await?;
        let pages = reader.read(&[ctid.block]).await?;
        let refused = match pages.iter().next() {
            Some(_) => Vec::new(),
            None => self.on_disk(Which::Heap, ctid.block).await?,
        };
        let (mut row, is_readable) = {
            let subject = self.subject(standing, Which::Heap, &name);
            let bytes = pages.iter().next().map_or(refused.as_slice(), |(_, bytes)| bytes);
            let Some(row) = Row::read(bytes, &subject, ctid) else { return Ok(None) };
            (row, refused.is_empty() && is_readable(bytes, &subject, &pages, ctid))
        };
        let depth = self.about.depth;
        for (index, cell) in &mut row.cells {
            match cell {
                Cell::Custom(value) => {
                    let column = self.relation.desc.attributes.get(*index);
                    let sound =
                        column.filter(|of| damaged.iter().all(|(name, _)| *name != of.name));
                    if let Some(column) = sound.filter(|_| is_readable)
                        && let Some(text) = self.text_of(&column.name, ctid).await?
                    {
                        *cell = Cell::Text(text);
                        continue;
                    }
                    let mut parts = Vec::new();
                    for part in &value.elsewhere {
                        parts.push(match part {
                            Elsewhere::Value(id) => self.all_pieces(standing, chunks, *id).await?,
                            Elsewhere::At(tids) => {
                                self.pieces(standing, Some(&chunks_at(tids))).await?
                            }
                        });
                    }
                    *cell = Cell::inline(salvage::custom(value, parts, size, row.order));
                }
                Cell::External(pointer) => {
                    let pointer = *pointer;
                    let id = pointer.value_id.0;
                    let own = chunks.by_value.get(&id);
                    if let Some(pieces) = self.pieces_by_index(&pointer, own).await? {
                        let mut saved = salvage::external(&pointer, pieces, size, row.order);
                        saved
                            .guesses
                            .push("its chunks are those that the index leads to".to_owned());
                        *cell = Cell::inline(saved);
                        continue;
                    }
                    let mut pieces = self.all_pieces(standing, chunks, id).await?;
                    let instead = chunks.orphans.instead_of(&pointer, size);
                    let instead = instead.filter(|_| pieces.is_empty());
                    if let Some(id) = instead {
                        pieces = self.pieces(standing, chunks.by_value.get(&id)).await?;
                    }
                    let mut saved = salvage::external(&pointer, pieces, size, row.order);
                    saved.guesses.extend(instead.map(salvage::instead));
                    *cell = Cell::inline(saved);
                }
                Cell::Null | Cell::Text(_) => {}
                Cell::Inline(_) | Cell::Unknown => {
                    let Some(column) = self.relation.desc.attributes.get(*index) else { continue };
                    let has_text = cell.text(column, row.order, depth.utf8).is_some();
                    // the server's functions may crash on a damaged one
                    let is_sound = match &*cell {
                        Cell::Inline(saved) => saved.content().is_some_and(|content| {
                            check_content(column, content, row.order, depth.utf8, types).is_none()
                        }),
                        _ => true,
                    };
                    if is_readable
                        && is_sound
                        && !has_text
                        && let Some(text) = self.text_of(&column.name, ctid).await?
                    {
                        *cell = Cell::Text(text);
                    }
                }
            }
        }
        Ok(Some(row))
    }

    /// The chunks with this ID, also those on pages that the server refuses.
    async fn all_pieces(
        &self,
        standing: &Standing,
        chunks: &Chunks,
        id: u64,
    ) -> Result<Vec<Piece>, LiveError> {
        let mut pieces = self.pieces(standing, chunks.by_value.get(&id)).await?;
        pieces.extend(chunks.refused.get(&id).into_iter().flatten().cloned());
        Ok(pieces)
    }

    /// The text of a value, as the server has it, unless code of the table's owner could run.
    async fn text_of(&self, column: &str, ctid: ItemPointer) -> Result<Option<Vec<u8>>, LiveError> {
        if !self.reads_rows {
            return Ok(None);
        }
        let sql = format!(
            "SELECT pg_catalog.convert_to(({})::pg_catalog.text, pg_catalog.getdatabaseencoding()) \
             FROM ONLY {} WHERE ctid = '{ctid}'",
            quote_identifier(column),
            self.quoted(Which::Heap)
        );
        let client = self.connection.client();
        let ask = async || {
            let rows = client.query_typed(&sql, &[]).await?;
            Ok(rows.first().map(|row| row.try_get(0)).transpose()?.flatten())
        };
        Ok(self.attempt_any(ask).await?.flatten())
    }

    /// What a statement gives, or nothing if the server refuses it.
    async fn attempt_any<T>(
        &self,
        ask: impl AsyncFnOnce() -> Result<T, LiveError>,
    ) -> Result<Option<T>, LiveError> {
        let client = self.connection.client();
        client.batch_execute("SAVEPOINT toastctl_attempt").await?;
        match ask().await {
            Ok(found) => {
                client.batch_execute("RELEASE SAVEPOINT toastctl_attempt").await?;
                Ok(Some(found))
            }
            Err(LiveError::Server(error)) if error.as_db_error().is_some() => {
                client.batch_execute("ROLLBACK TO SAVEPOINT toastctl_attempt").await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The data of chunks, deleted ones too, as their pages have it.
    async fn pieces(
        &self,
        standing: &Standing,
        chunks: Option<&Vec<Chunk>>,
    ) -> Result<Vec<Piece>, LiveError> {
        let mut pieces = Vec::new();
        let Some(chunks) = chunks else { return Ok(pieces) };
        let mut reader = self.reader(standing, Which::Toast).await?;
        // they were found page by page
        let pages: Vec<&[Chunk]> =
            chunks.chunk_by(|a, b| a.seen.tid.block == b.seen.tid.block).collect();
        let id_type = self.id_type();
        for some in pages.chunks(BATCH as usize) {
            let blocks = some.iter().filter_map(|own| own.first()).map(|c| c.seen.tid.block);
            let blocks: Vec<BlockNumber> = blocks.collect();
            let pages = reader.read(&blocks).await?;
            let mut rest = some.iter().copied().flatten().peekable();
            for (block, bytes) in pages.iter() {
                while let Some(chunk) = rest.next_if(|chunk| chunk.seen.tid.block <= block) {
                    let ChunkSeen { tid, seq, fate, .. } = chunk.seen;
                    let mut data = Vec::new();
                    if tid.block == block && append_chunk(bytes, tid, id_type, &mut data) {
                        let is_hidden = fate == Fate::NotCommitted || chunk.is_refused;
                        let misread = chunk.is_misread.then_some(Doubt::Misread);
                        let doubt = is_hidden.then_some(Doubt::Deleted).or(misread);
                        pieces.push(Piece { tid, seq, data, doubt });
                    }
                }
            }
        }
        Ok(pieces)
    }
}

/// Chunks at these addresses, numbered in this order, as they are to be looked for.
fn chunks_at(tids: &[ItemPointer]) -> Vec<Chunk> {
    let chunk = |(seq, tid): (i32, &ItemPointer)| {
        let (form, fate) = (ChunkForm::Plain, Fate::Committed);
        let seen = ChunkSeen { tid: *tid, seq, form, size: 0, fate };
        Chunk { seen, xids: [0, 0], is_refused: false, is_misread: false }
    };
    let mut chunks: Vec<Chunk> = (0..).zip(tids).map(chunk).collect();
    chunks.sort_by_key(|chunk| chunk.seen.tid);
    chunks
}
