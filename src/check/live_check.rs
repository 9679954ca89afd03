//! Checks some blocks of a live table, and the values that they lead to, in one transaction. Chunks are fetched by the
//! TOAST index, many at a time.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_postgres::error::SqlState;

use super::chunk_index::live_chunks;
use super::code::Code;
use super::collector::{CheckedBlocks, Collector, StoredCustoms};
use super::finding::{CheckedAmounts, Finding, place_at};
use super::index_entries::IndexEntries;
use super::reading::seen_chunk;
use super::subject::{Depth, External, PageOwner, Subject, Which, XidLimits};
use super::value::{ChunkSeen, Damage, Toast, check_chunks};
use crate::server::catalog::{self};
use crate::server::checking::{self, Standing, StorageTraits};
use crate::server::chunk_rows::{self, By, ChunkOutline, ChunkRow, ChunkRows, WantedData};
use crate::server::chunks::{ChunkPages, LiveChunks, in_parts_of};
use crate::server::pages::{HintedXids, PageReader, is_about_data};
use crate::server::{Connection, LiveError, Relation, Server, owner_facts, snapshot};
use toast_format::disk::type_kind::Types;
use toast_format::disk::{
    BlockNumber, CustomFlavor, ItemPointer, PageSize, ToastPointer, TransactionId, TupleDesc,
    ValueId, ValueIdType,
};
use toast_format::heap::problem::Place;
use toast_format::model::sql::quote_qualified;
use toast_format::model::{HintBits, Toasters};

/// At most so many blocks are checked together.
pub(super) const BATCH: u32 = 512;
/// How often what looks wrong is looked at again, at the most, until two looks agree.
pub(super) const LOOKS: usize = 4;
/// How long a page may be half written.
pub(super) const TORN: Duration = Duration::from_millis(100);
/// How often a table that changes meanwhile is described again before the check gives up.
pub(super) const TRIES: u32 = 5;

/// The `server_version_num` since which SQL reads rows without a look at `t_hoff` (`slot_deform_heap_tuple`). A value's
/// chunks, and the rows that are updated or deleted, are read by it as before.
pub(super) const IGNORES_HOFF: i32 = 190_000;

/// What a check knows of the server, and how far it goes.
#[derive(Debug, Clone)]
pub struct About {
    pub server: Server,
    /// Settings of its storage that a check needs.
    pub storage: StorageTraits,
    pub toasters: Toasters,
    /// The layout of custom pointers.
    pub flavor: CustomFlavor,
    /// How far the check goes.
    pub depth: Depth,
    /// The largest TOAST relation whose pages are looked at by themselves, in bytes.
    pub toast_limit: u64,
}

/// A check of one table over one connection.
pub struct LiveCheck {
    pub(super) connection: Arc<Connection>,
    pub(super) about: Arc<About>,
    /// The table as it was last described.
    pub(super) relation: Arc<Relation>,
    /// Whether chunks may be read by the index of the TOAST relation; otherwise values are passed on as not readable.
    pub(super) by_index: bool,
    /// Whether the catalog contradicts itself about the table.
    pub(super) has_wrong_catalog: bool,
    /// The entries of the TOAST index, if its pages are damaged and they were read.
    pub(super) entries: Option<IndexEntries>,
    toast_desc: TupleDesc,
    fingerprint: Option<String>,
    /// The table in the current transaction.
    pub(super) standing: Standing,
    types: Arc<Types>,
    /// The mode in which the table is locked.
    pub(super) lock_mode: &'static str,
    /// Whether statements on the table may be sent, apart from those that read pages and chunks.
    pub(super) reads_rows: bool,
}

impl LiveCheck {
    pub fn new(
        connection: Arc<Connection>,
        about: Arc<About>,
        relation: Arc<Relation>,
    ) -> LiveCheck {
        LiveCheck {
            connection,
            about,
            toast_desc: TupleDesc::toast_relation(relation.desc.id_type),
            relation,
            by_index: true,
            lock_mode: owner_facts::ACCESS_SHARE,
            reads_rows: false,
            has_wrong_catalog: false,
            entries: None,
            fingerprint: None,
            standing: Standing::default(),
            types: Arc::default(),
        }
    }

    /// The name of the relation that is looked at.
    pub fn name(&self, which: Which) -> String {
        match (which, &self.relation.toast) {
            (Which::Toast, Some(toast)) => toast.display_name(),
            _ => self.relation.display_name(),
        }
    }

    pub(super) fn quoted(&self, which: Which) -> String {
        match (which, &self.relation.toast) {
            (Which::Toast, Some(toast)) => quote_qualified("pg_toast", &toast.name),
            _ => self.relation.quoted(),
        }
    }

    /// Checks those of `blocks` that exist in a transaction of its own; `None` if the table is gone.
    pub async fn check_blocks(
        &mut self,
        which: Which,
        blocks: &[BlockNumber],
        fresh: bool,
    ) -> Result<Option<CheckedBlocks>, LiveError> {
        if fresh {
            self.fingerprint = None;
        }
        let mut tries = 0;
        loop {
            tries += 1;
            let looked = self.in_snapshot(async |check| check.inside(which, blocks).await).await;
            match looked {
                Err(error) if tries < TRIES && is_passing(&error) => self.fingerprint = None,
                looked => return looked,
            }
        }
    }

    /// Does `work` in a transaction with the table described as it is in it; `None` if it is gone.
    pub(super) async fn in_snapshot<T, E: From<LiveError>>(
        &mut self,
        work: impl AsyncFnOnce(&mut LiveCheck) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        let connection = Arc::clone(&self.connection);
        snapshot::ended(connection.client(), async {
            if self.begin().await? { work(self).await.map(Some) } else { Ok(None) }
        })
        .await
    }

    /// The table as it is now.
    pub(super) async fn now(&mut self) -> Result<Option<Standing>, LiveError> {
        self.in_snapshot(async |check| Ok(check.standing.clone())).await
    }

    /// Begins a transaction, and describes the table as that sees it; `false` if the table is gone.
    pub async fn begin(&mut self) -> Result<bool, LiveError> {
        let page = self.about.server.page_size;
        if self.about.server.has_toasters && self.lock_mode == owner_facts::ACCESS_SHARE {
            // values are compared with what SQL reads
            self.lock_mode = owner_facts::lock_mode(&self.connection, self.relation.oid).await?;
        }
        for _ in 0..TRIES {
            let mode = self.lock_mode;
            let begun = checking::begin(&self.connection, &self.relation, page, mode).await;
            match begun {
                Ok(Some(standing)) if self.fingerprint.as_ref() == Some(&standing.fingerprint) => {
                    self.standing = standing;
                    return Ok(true);
                }
                Ok(Some(standing)) => {
                    let client = self.connection.client();
                    let Some(relation) = catalog::describe(client, self.relation.oid).await? else {
                        return Ok(false);
                    };
                    let is_same = relation.quoted() == self.relation.quoted();
                    self.relation = Arc::new(relation);
                    if is_same {
                        if self.about.depth.content {
                            self.types = Arc::new(checking::types(client, &self.relation).await?);
                        }
                        self.fingerprint = Some(standing.fingerprint.clone());
                        self.standing = standing;
                        return Ok(true);
                    }
                }
                Ok(None) => {}
                Err(error) if is_passing(&error) => {}
                Err(LiveError::Server(error))
                    if mode != owner_facts::ACCESS_SHARE
                        && error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) =>
                {
                    self.lock_mode = owner_facts::ACCESS_SHARE;
                }
                Err(error) => {
                    // If this fails too, the connection is lost, and the next query reports that.
                    let _ = snapshot::abandon(self.connection.client()).await;
                    return Err(error);
                }
            }
            // renamed or dropped: described anew, outside of the transaction
            snapshot::abandon(self.connection.client()).await?;
            let oid = self.relation.oid;
            match self
                .connection
                .reading(async || catalog::describe(self.connection.client(), oid).await)
                .await?
            {
                Some(relation) => self.relation = Arc::new(relation),
                None => {
                    self.connection.begin("READ ONLY").await?;
                    return Ok(false);
                }
            }
            self.fingerprint = None;
        }
        Err(LiveError::Unexpected("the table is renamed again and again".into()))
    }

    /// Checks pages, then the values that they point to.
    async fn inside(
        &self,
        which: Which,
        blocks: &[BlockNumber],
    ) -> Result<CheckedBlocks, LiveError> {
        let (mut result, externals) = self.pages(which, blocks).await?;
        result.lsn = self.standing.lsn;
        if which == Which::Heap && !externals.is_empty() {
            let name = self.name(which);
            let subject = self.subject(which, &name);
            let mut collector = Collector::new(&subject, None);
            collector.blocks = result;
            self.values(externals, &mut collector).await?;
            result = collector.blocks;
        }
        self.misread(&mut result).await?;
        if which == Which::Heap {
            let missing = result.missing.iter_mut().map(|(finding, _)| finding);
            self.name_rows(result.findings.iter_mut().chain(missing).collect()).await?;
        }
        result.findings.sort_by_key(|finding| (finding.place.block, finding.place.item));
        Ok(result)
    }

    pub(super) fn subject<'a>(&'a self, which: Which, name: &'a str) -> Subject<'a> {
        let server = &self.about.server;
        let [frozen, multi] = match which {
            Which::Heap => [self.standing.frozen, self.standing.multi],
            Which::Toast => self.standing.toast,
        };
        let next = TransactionId(self.standing.snapshot.next_xid() as u32);
        Subject {
            source: name,
            desc: match which {
                Which::Heap => &self.relation.desc,
                Which::Toast => &self.toast_desc,
            },
            page_size: server.page_size,
            flavor: self.about.flavor,
            toast: match (which, &self.relation.toast) {
                _ if server.has_toasters || self.has_wrong_catalog => Toast::Unknown,
                (Which::Heap, Some(toast)) => Toast::Relation(toast.oid),
                _ => Toast::None,
            },
            pages: if which == Which::Heap { PageOwner::Table } else { PageOwner::Toast },
            xids: Some(XidLimits {
                frozen,
                multi,
                oldest: ["relfrozenxid", "relminmxid"],
                next,
                is_exact: false,
                next_multi: None,
            }),
            commit_status: None,
            wal_end: None,
            map: None,
            is_newer: server.untested().is_some(),
            // chunks are fetched by it all the same
            ignores_hoff: which == Which::Heap && server.version_num >= IGNORES_HOFF,
            checksums: false,
            depth: self.about.depth,
            types: &self.types,
        }
    }

    /// As [`LiveCheck::subject`]; `is_read`: for pages that were read, of which none is read later in the transaction.
    pub(super) async fn subject_now<'a>(
        &'a self,
        which: Which,
        name: &'a str,
        is_read: bool,
    ) -> Result<Subject<'a>, LiveError> {
        let mut subject = self.subject(which, name);
        if let Some(limits) = &mut subject.xids {
            let next = checking::next_written(self.connection.client()).await?;
            limits.next_multi = Some(next.multi);
            if is_read {
                limits.next = next.xid;
                limits.is_exact = true;
                // changes of others are not in it
                subject.wal_end = self.standing.lsn.and(next.wal_end);
            }
        }
        Ok(subject)
    }

    /// Reads pages in the snapshot of the look.
    pub(super) async fn reader(&self, which: Which) -> Result<PageReader, LiveError> {
        let server = &self.about.server;
        server.page_reader(&self.connection, self.quoted(which), &self.standing.snapshot).await
    }

    async fn pages(
        &self,
        which: Which,
        blocks: &[BlockNumber],
    ) -> Result<(CheckedBlocks, Vec<External>), LiveError> {
        let name = self.name(which);
        let mut reader = self.reader(which).await?;
        let end = match which {
            Which::Heap => self.standing.blocks,
            Which::Toast => reader.block_count().await?,
        };
        let there: Vec<BlockNumber> = blocks.iter().copied().filter(|b| b.0 < end).collect();
        if there.is_empty() {
            return Ok((CheckedBlocks::default(), Vec::new()));
        }
        let pages = reader.read(&there).await?;
        let map = self.visibility_map(which, &mut reader, &pages).await?;
        let mut fates = pages.transactions().clone();
        let HintedXids { aborted, committed } = pages.hinted();
        let client = self.connection.client();
        for (xids, which) in [(aborted, snapshot::ANY), (committed, snapshot::ABORTED)] {
            snapshot::learn(client, &mut fates, &Vec::from_iter(xids), which).await?;
        }
        let subject = self.subject_now(which, &name, true).await?;
        let subject = Subject { commit_status: Some(&fates), map: Some(&map), ..subject };
        let store = Mutex::new(self.chunk_store());
        let About { toasters, server, .. } = &*self.about;
        let customs = Some(StoredCustoms { store: &store, toasters, page: server.page_size });
        let (mut result, externals) = {
            let mut collector = Collector::new(&subject, Some(&customs));
            let mut chunks = Vec::new();
            let id_type = self.id_type();
            for (block, bytes) in pages.iter() {
                subject.check_page(block, bytes, &pages, &mut collector);
                if which == Which::Toast {
                    live_chunks(block, bytes, id_type, &pages, |id, xmin| {
                        chunks.push((id.0, xmin));
                    });
                }
            }
            let count = there.len() as u64;
            let mut result = collector.blocks;
            result.chunks = chunks;
            result.looked = match which {
                Which::Heap => CheckedAmounts { blocks: count, ..result.looked },
                Which::Toast => CheckedAmounts { toast_blocks: count, ..CheckedAmounts::default() },
            };
            (result, collector.externals)
        };
        for (block, message) in &pages.unreadable {
            result.is_incomplete = true;
            self.unreadable(&subject, which, *block, message, &mut result).await?;
        }
        Ok((result, externals))
    }

    /// Chunks for values of pluggable toasters, read in the look's transaction.
    pub(super) fn chunk_store(&self) -> LiveChunks {
        let connection = Arc::clone(&self.connection);
        let Some(pageinspect) = self.about.server.pageinspect.clone() else {
            return LiveChunks::new(connection);
        };
        let page_size = self.about.server.page_size;
        let snapshot = self.standing.snapshot.clone();
        let pages = ChunkPages { pageinspect, page_size, snapshot, dead: false };
        LiveChunks::with_pages(connection, pages)
    }

    /// The values that rows of `blocks` refer to, dead ones included, and whether these are all.
    pub async fn referred_ids(
        &self,
        blocks: &[BlockNumber],
    ) -> Result<(Vec<u64>, bool), LiveError> {
        let about = Arc::new(About { depth: Depth::default(), ..(*self.about).clone() });
        let mut quick =
            LiveCheck::new(Arc::clone(&self.connection), about, Arc::clone(&self.relation));
        quick.standing = self.standing.clone();
        let result = quick.pages(Which::Heap, blocks).await?.0;
        let is_whole = !result.is_incomplete && result.remarks.by_address.count == 0;
        Ok((result.known, is_whole))
    }

    /// What is wrong with a block that the server refuses to read, by its bytes on disk.
    async fn unreadable(
        &self,
        subject: &Subject<'_>,
        which: Which,
        block: BlockNumber,
        message: &str,
        result: &mut CheckedBlocks,
    ) -> Result<(), LiveError> {
        let About { server, storage, .. } = &*self.about;
        let bytes = self.on_disk(which, block).await?;
        let mut collector = Collector::new(subject, None);
        let subject = Subject { checksums: storage.checksums, ..*subject };
        if bytes.len() == server.page_size.bytes() {
            subject.check_page(block, &bytes, &HintBits, &mut collector);
        }
        let header = collector.blocks.findings.into_iter().find(|f| f.place.item.is_none());
        result.findings.push(header.unwrap_or_else(|| {
            let place = Place { block: Some(block), ..Place::new(subject.source) };
            Finding::new(Code::Unreadable, place, "a page that the server can read", message)
        }));
        Ok(())
    }
}

/// Whether an error may be gone when the same is tried again: the table was changed or renamed, or a
/// standby had to go on.
pub(super) fn is_passing(error: &LiveError) -> bool {
    let LiveError::Server(error) = error else { return false };
    error.as_db_error().is_some_and(|db| {
        let code = db.code().code();
        code == "40001" || code == "40P01" || code == "42P01" || code == "55000"
    })
}

/// Values whose chunks are asked for with one statement, with their data or without, and the bytes or
/// chunks that they may have.
const VALUES: usize = 4096;
const BYTES: u64 = 16 << 20;
const OUTLINES: usize = 16384;
const CHUNKS: u64 = 1 << 20;

impl LiveCheck {
    /// The chunks of values, which the index leads to, some at a time.
    pub(super) async fn values(
        &self,
        mut values: Vec<External>,
        collector: &mut Collector<'_>,
    ) -> Result<(), LiveError> {
        // the check of the TOAST relation reports a layout that is not known
        let server = &self.about.server;
        if self.relation.toast.as_ref().is_some_and(|toast| !toast.layout_is_known(server)) {
            return Ok(());
        }
        // rows of unknown fate have chunks that this transaction may not see
        values.retain(|value| value.is_live);
        let count = values.len() as u64;
        values.retain(|value| self.is_own(&value.pointer));
        collector.blocks.elsewhere += count - values.len() as u64;
        values.sort_by_key(|value| value.pointer.value_id);
        let (with, without): (Vec<External>, Vec<External>) =
            values.into_iter().partition(|value| collector.wants_content(value));
        let page = self.about.server.page_size;
        for part in in_parts_of(&without, OUTLINES, CHUNKS, |value| {
            u64::from(page.chunks(value.pointer.stored_size()))
        }) {
            self.by_outlines(part, collector).await?;
        }
        for part in
            in_parts_of(&with, VALUES, BYTES, |value| u64::from(value.pointer.stored_size()))
        {
            self.some(part, true, collector).await?;
        }
        Ok(())
    }

    /// Whether a pointer leads to the table's own TOAST relation.
    pub(super) fn is_own(&self, pointer: &ToastPointer) -> bool {
        self.relation.toast.as_ref().is_some_and(|toast| toast.oid == pointer.toast_relation)
    }

    /// Checks values, in order, by the numbers and sizes of their chunks; those that look wrong are read chunk by chunk.
    async fn by_outlines(
        &self,
        values: &[External],
        collector: &mut Collector<'_>,
    ) -> Result<(), LiveError> {
        let relation = self.quoted(Which::Toast);
        let ids = ids(values);
        let rows = self
            .attempt(async || {
                if !self.by_index {
                    return Ok(None);
                }
                let relation = (relation.as_str(), self.id_type());
                chunk_rows::outlines(self.connection.client(), relation, &ids).await
            })
            .await?;
        let rows = rows.ok().flatten().unwrap_or_default();
        let (odd, chunks) = odd_ones(values, &rows, self.about.server.page_size);
        collector.blocks.looked.values += (values.len() - odd.len()) as u64;
        collector.blocks.looked.chunks += chunks;
        for part in odd.chunks(VALUES) {
            self.some(part, false, collector).await?;
        }
        Ok(())
    }

    async fn some(
        &self,
        values: &[External],
        with_data: bool,
        collector: &mut Collector<'_>,
    ) -> Result<(), LiveError> {
        let mut left = vec![values];
        while let Some(values) = left.pop() {
            let (first, second) = values.split_at(values.len() / 2);
            match self.fetch(values, with_data).await? {
                // which value the index leads to another's chunks for is seen where one alone is asked for
                Ok(found) if ids(values).len() > 1 && !are_in_order(values, &found.rows) => {
                    left.extend([second, first]);
                }
                Ok(found) => self.judge(values, found, collector),
                // one of them it is
                Err(_) if values.len() > 1 => left.extend([second, first]),
                Err(message) => {
                    let expected = "chunks that the server can read";
                    let damage = Damage::new(Code::ChunkUnreadable, expected, message);
                    // it may be the index that cannot be read
                    for value in values {
                        let finding = collector.finding_of(value, damage.clone());
                        collector.blocks.missing.extend(finding.map(|finding| (finding, *value)));
                    }
                }
            }
        }
        Ok(())
    }

    /// The chunks of `values`; the server's message if it cannot read them.
    async fn fetch(
        &self,
        values: &[External],
        with_data: bool,
    ) -> Result<Result<ChunkRows, String>, LiveError> {
        if !self.by_index {
            return Ok(Err("not read, because pages of the TOAST index are damaged".into()));
        }
        let relation = self.quoted(Which::Toast);
        let ids = ids(values);
        let stored = values.iter().map(|value| u64::from(value.pointer.stored_size())).sum();
        let data = with_data.then(|| self.wanted_data(stored));
        let client = self.connection.client();
        let relation = (relation.as_str(), self.id_type());
        self.attempt(|| chunk_rows::chunks(client, relation, &ids, By::Index, data)).await
    }

    /// How much of its chunks' data is wanted for a value that takes `stored` bytes, as its pointer says.
    pub(super) fn wanted_data(&self, stored: u64) -> WantedData {
        let relation = self.relation.toast.as_ref().map_or(0, |toast| toast.bytes);
        WantedData { page: self.about.server.page_size, most: stored.min(relation) }
    }

    /// The type of value IDs in the TOAST relation.
    pub(super) fn id_type(&self) -> ValueIdType {
        self.relation.desc.id_type
    }

    /// The result of a statement, or the server's message if it cannot read the data.
    pub(super) async fn attempt<T>(
        &self,
        ask: impl AsyncFnOnce() -> Result<T, LiveError>,
    ) -> Result<Result<T, String>, LiveError> {
        match snapshot::in_savepoint(self.connection.client(), ask).await? {
            Ok(found) => Ok(Ok(found)),
            Err(error) if is_unreadable(&error) => Ok(Err(LiveError::Server(error).to_string())),
            Err(error) => Err(error.into()),
        }
    }

    fn judge(&self, values: &[External], found: ChunkRows, collector: &mut Collector<'_>) {
        let ChunkRows { mut rows, data } = found;
        // those of a value stay in the index's order
        rows.sort_by_key(|row| row.value_id);
        let of_values = rows.chunk_by(|a, b| a.value_id == b.value_id);
        let by_value: HashMap<ValueId, &[ChunkRow]> =
            of_values.filter_map(|own| Some((own.first()?.value_id, own))).collect();
        let asked: HashSet<ValueId> = values.iter().map(|value| value.pointer.value_id).collect();
        let mut strangers: Vec<ValueId> =
            by_value.keys().copied().filter(|id| !asked.contains(id)).collect();
        strangers.sort_unstable();
        for row in strangers.iter().filter_map(|id| by_value.get(id)).copied().flatten() {
            collector.blocks.findings.push(self.led_to(row));
        }
        for value in values {
            let rows = by_value.get(&value.pointer.value_id).copied().unwrap_or_default();
            self.judge_value(value, rows, &data, collector);
        }
    }

    /// Checks a value to which the index gives these chunks. `data`: those of all chunks that were read.
    fn judge_value(
        &self,
        value: &External,
        rows: &[ChunkRow],
        data: &[u8],
        collector: &mut Collector<'_>,
    ) {
        let page = self.about.server.page_size;
        let mut all: Vec<ChunkSeen> = rows.iter().map(seen_chunk).collect();
        // SQL takes chunks in the index's order
        let misplaced = all.iter().zip(0i64..).find(|(chunk, at)| i64::from(chunk.seq) != *at);
        let has_numbers = rows.iter().all(|row| row.seq.is_some());
        let mut checked = check_chunks(&value.pointer, &all, page);
        if let (Ok(_), Some((chunk, at)), true) = (&checked, misplaced, has_numbers) {
            let found = format!("chunk {}", chunk.seq);
            let damage = Damage::new(Code::IndexEntryWrong, format!("chunk {at}"), found);
            return collector.damaged(value, damage);
        }
        if matches!(&checked, Err(damage) if damage.code == Code::ChunkTwice) {
            // the entry of another chunk may lead to one of these
            let mut places = HashSet::new();
            let twice = rows.iter().filter(|row| !places.insert(row.tid));
            let twice: Vec<Finding> = twice.map(|row| self.led_to(row)).collect();
            if !twice.is_empty() {
                all.retain(|chunk| places.remove(&chunk.tid));
                checked = check_chunks(&value.pointer, &all, page);
                collector.blocks.findings.extend(twice);
            }
        }
        match checked {
            Ok(chunks) => {
                let own: HashMap<ItemPointer, Range<usize>> =
                    rows.iter().filter_map(|row| Some((row.tid, row.data.clone()?))).collect();
                let parts: Vec<Range<usize>> =
                    chunks.iter().filter_map(|chunk| own.get(&chunk.tid).cloned()).collect();
                collector.content_of(value, &chunks, || Ok(joined(data, &parts)));
            }
            Err(damage) if damage.is_absence() => {
                let finding = collector.finding_of(value, damage);
                collector.blocks.missing.extend(finding.map(|finding| (finding, *value)));
            }
            Err(damage) => collector.damaged(value, damage),
        }
    }

    /// A chunk that the index leads to from an entry that is not the chunk's own.
    fn led_to(&self, row: &ChunkRow) -> Finding {
        let place = place_at(&self.name(Which::Toast), row.tid);
        let seq = row.seq.map_or("NULL".to_owned(), |seq| seq.to_string());
        let found = format!("chunk {seq} of value {}", row.value_id);
        Finding::new(Code::IndexEntryWrong, place, "a chunk asked for", found)
    }
}

/// Parts of `data`, joined. A long value, of which they follow each other, is not copied.
fn joined<'d>(data: &'d [u8], parts: &[Range<usize>]) -> Cow<'d, [u8]> {
    match parts {
        [first, .., last] if parts.is_sorted_by(|a, b| a.end == b.start) => {
            data.get(first.start..last.end).unwrap_or_default().into()
        }
        parts => {
            let own = parts.iter().flat_map(|part| data.get(part.clone()).unwrap_or_default());
            own.copied().collect()
        }
    }
}

/// Whether chunks that the index gave for these values have their IDs and are in its order.
fn are_in_order(values: &[External], rows: &[ChunkRow]) -> bool {
    let ids = ids(values);
    rows.is_sorted_by(|a, b| (a.value_id, a.seq) < (b.value_id, b.seq))
        && rows.iter().all(|row| ids.binary_search(&row.value_id.0).is_ok())
}

/// The values' IDs, each once.
fn ids(values: &[External]) -> Vec<u64> {
    let mut ids: Vec<u64> = values.iter().map(|value| value.pointer.value_id.0).collect();
    ids.dedup();
    ids
}

/// Whether the server cannot read the data, or the answer would be longer than it can make one, as damage may have it
/// (class 54).
pub(super) fn is_unreadable(error: &tokio_postgres::Error) -> bool {
    is_about_data(error) || error.as_db_error().is_some_and(|db| db.code().code().starts_with("54"))
}

/// Looks at values, in the order of their IDs, with all chunks that the index gave for them. Gives
/// those that are not as they should be, and how many chunks the others have. All are given where the
/// index leads to what was not asked for, or not in its own order: then one cannot say for which.
pub fn odd_ones(
    values: &[External],
    rows: &[ChunkOutline],
    page: PageSize,
) -> (Vec<External>, u64) {
    let is_ordered = rows.is_sorted_by(|a, b| (a.value_id, a.seq) < (b.value_id, b.seq));
    if !is_ordered {
        return (values.to_vec(), 0);
    }
    let mut groups = rows.chunk_by(|a, b| a.value_id == b.value_id).peekable();
    let mut odd = Vec::new();
    let mut chunks = 0;
    // rows that refer to the same value follow each other
    for own in values.chunk_by(|a, b| a.pointer.value_id == b.pointer.value_id) {
        let Some(first) = own.first() else { continue };
        let id = first.pointer.value_id.0;
        let group = groups.next_if(|rows| rows.first().is_some_and(|row| row.value_id == id));
        let group = group.unwrap_or_default();
        for value in own {
            if is_whole(&value.pointer, group, page) {
                chunks += group.len() as u64;
            } else {
                odd.push(*value);
            }
        }
    }
    if groups.next().is_some() {
        return (values.to_vec(), 0);
    }
    (odd, chunks)
}

/// Whether these chunks, in order, are those of the value to which this pointer leads.
fn is_whole(pointer: &ToastPointer, rows: &[ChunkOutline], page: PageSize) -> bool {
    let size = pointer.stored_size();
    let limit = pointer.max_chunk_size(page);
    let count = pointer.chunks(page);
    rows.len() as u64 == u64::from(count)
        && (0..count).zip(rows).all(|(number, row)| {
            let wanted = size.saturating_sub(number.saturating_mul(limit)).min(limit);
            let header = i64::from(row.stored_size) - i64::from(row.raw_size);
            i64::from(row.seq) == i64::from(number)
                && i64::from(row.raw_size) == i64::from(wanted)
                && (header == 1 || header == 4)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use toast_format::disk::{ByteOrder, ItemPointer, Oid};

    fn value(id: u64, stored: u32) -> External {
        let pointer = ToastPointer {
            raw_size_with_header: stored as i32 + 4,
            ext_info: stored,
            value_id: ValueId(id),
            toast_relation: Oid(9),
            id_type: ValueIdType::Oid,
        };
        let ctid = ItemPointer::default();
        External { ctid, index: 0, byte: 24, pointer, is_live: true, order: ByteOrder::Little }
    }

    fn chunk(value_id: u64, seq: i32, size: i32) -> ChunkOutline {
        ChunkOutline { value_id, seq, raw_size: size, stored_size: size + 4 }
    }

    fn odd(rows: &[ChunkOutline]) -> (Vec<u64>, u64) {
        let values = [value(5, 2000), value(6, 3992), value(6, 3992), value(9, 100)];
        let (odd, chunks) = odd_ones(&values, rows, PageSize::DEFAULT);
        (odd.iter().map(|value| value.pointer.value_id.0).collect(), chunks)
    }

    #[test]
    fn what_is_not_whole_is_told_from_what_is() {
        let sound = [
            chunk(5, 0, 1996),
            chunk(5, 1, 4),
            chunk(6, 0, 1996),
            chunk(6, 1, 1996),
            ChunkOutline { stored_size: 101, ..chunk(9, 0, 100) },
        ];
        assert_eq!(odd(&sound), (vec![], 7));
        let without = |at: usize| {
            let mut rows = sound.to_vec();
            rows.remove(at);
            odd(&rows).0
        };
        assert_eq!(without(0), [5]);
        assert_eq!(without(3), [6, 6]);
        assert_eq!(without(4), [9]);
        let with = |at: usize, row: ChunkOutline| {
            let mut rows = sound.to_vec();
            rows[at] = row;
            odd(&rows).0
        };
        assert_eq!(with(0, chunk(5, 0, 1995)), [5]);
        assert_eq!(with(0, chunk(5, -1, 1996)), [5]);
        assert_eq!(with(1, chunk(5, 2, 4)), [5]);
        assert_eq!(with(1, ChunkOutline { stored_size: 4, ..chunk(5, 1, 4) }), [5]);
        // the index leads to a chunk of another value: which of them it is for is not known
        let all = [5, 6, 6, 9];
        assert_eq!(with(1, chunk(5, 0, 4)), all);
        assert_eq!(with(1, chunk(9, 0, 100)), all);
        assert_eq!(with(1, chunk(7, 0, 100)), all);
        assert_eq!(odd(&[&sound[..], &[chunk(10, 0, 4)]].concat()).0, all);
        assert_eq!(odd(&[]), (vec![5, 6, 6, 9], 0));
    }
}
