//! The facts that are needed before SQL that repairs the damaged values of a live table is printed.

use std::collections::{BTreeSet, HashMap, HashSet};

use tokio_postgres::error::SqlState;

use super::chunk_index::ChunkTuple;
use super::code::Code;
use super::damaged_row::{DamagedRow, DamagedValue, RewriteTarget, RowsByKey, value_ids};
use super::finding::Finding;
use super::live_check::{LiveCheck, is_unreadable};
use super::reading::{ValueReading, is_read, is_sound};
use super::relation_run::TableDamage;
use super::repair::{RepairFacts, Unread, commented, left_over, may_crash_at_pglz};
use super::repair_script::{self, RepairScript};
use super::salvage::RowFindings;
use super::subject::Which;
use super::value::{ChunkForm, uses_all};
use crate::server::chunk_rows::{self, By, ChunkRow, ChunkRows, WantedData};
use crate::server::{LiveError, checking, snapshot};
use toast_format::disk::ItemPointer;
use toast_format::heap::problem::Place;
use toast_format::model::sql::{quote_identifier, quote_qualified};
use toast_format::model::toaster::chunks::Fate;

/// Statements, and comments that say why there are none.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    pub(super) script: RepairScript,
    /// The statement that rebuilds the TOAST index, if that alone loses nothing.
    pub(super) rebuild: Option<String>,
    /// That the file of the TOAST relation is another one's.
    pub(super) wrong_file: Option<Finding>,
}

impl Repairs {
    /// No statement, and comments that say why.
    fn none(comments: Vec<String>) -> Repairs {
        Repairs { script: RepairScript::only(comments), ..Repairs::default() }
    }
}

/// Values whose rows ask for another number of chunks than there are with their IDs.
#[derive(Debug, Default)]
struct Miscounted {
    values: Vec<u64>,
    /// Whether there are chunks with other IDs than rows have.
    has_others: bool,
    /// How many values that rows refer to have no chunk.
    without_chunks: usize,
    /// A chunk to which the entries of the damaged index lead by another ID or number.
    disputed: Option<ItemPointer>,
    /// A chunk at which REINDEX fails.
    heap_only: Option<ItemPointer>,
}

/// The chunks that the index leads to, by the value that was asked for, in its order.
pub(super) type LedTo = HashMap<u64, Vec<ChunkRow>>;

impl LiveCheck {
    /// The SQL for damaged values, after checking what else it would touch. `referred`, in order, are the values that
    /// rows refer to.
    pub(super) async fn repairs(
        &mut self,
        rows: &[RowFindings],
        referred: &[u64],
        damage: &TableDamage,
    ) -> Result<Repairs, LiveError> {
        if !damage.has_findings() {
            return Ok(Repairs::default());
        }
        if self.has_wrong_catalog {
            let comments = damage.left_over(|code, _| code != Code::Catalog);
            return Ok(Repairs::none(comments));
        }
        if let Some(why) = self.no_statement() {
            return Ok(Repairs::none(vec![commented(&why)]));
        }
        let repairs =
            self.reading_rows(async |check| check.script(rows, referred, damage).await).await?;
        Ok(repairs.unwrap_or_default())
    }

    async fn surgery_schema(&self) -> Result<Option<String>, LiveError> {
        let sql = "SELECT n.nspname::pg_catalog.text FROM pg_catalog.pg_extension AS e \
                   JOIN pg_catalog.pg_namespace AS n ON n.oid = e.extnamespace WHERE e.extname = 'pg_surgery'";
        Ok(self.connection.client().value(sql, &[]).await?)
    }

    async fn script(
        &self,
        rows: &[RowFindings],
        referred: &[u64],
        damage: &TableDamage,
    ) -> Result<Repairs, LiveError> {
        let toast = self.relation.toast.as_ref();
        let mut facts = RepairFacts {
            table: self.quoted(Which::Heap),
            oid: self.relation.oid,
            schema: format!("{}.", quote_identifier(&self.relation.schema)),
            is_catalog: self.relation.schema == "pg_catalog",
            toast: toast.map(|toast| (quote_qualified("pg_toast", &toast.name), toast.oid)),
            has_toasters: self.about.server.has_toasters,
            index: damage.index.clone(),
            pageinspect: self.about.server.pageinspect.clone(),
            surgery_schema: self.surgery_schema().await?,
            page_size: self.about.server.page_size,
            may_crash_at_pglz: may_crash_at_pglz(self.about.server.version_num),
            columns: self.column_rules().await?,
            obstacle: self.obstacle().await?,
            in_the_way: damage.in_the_way(&self.name(Which::Heap)),
            unread: Unread { wrong_checksums: damage.wrong_checksums, ..Unread::default() },
            ..RepairFacts::default()
        };
        let [heap, toast] = damage.refused.clone();
        facts.unread.heap_blocks = self.each_page(Which::Heap, Some(heap), |_| ()).await?;
        if facts.toast.is_some() {
            facts.unread.toast_blocks = self.each_page(Which::Toast, Some(toast), |_| ()).await?;
        }
        facts.unreadable_chunks = self.unreadable_chunks(&damage.unreadable_chunks).await?;
        let mut rows = self.rows(rows, &facts.columns.generated).await?;
        facts.statistics = self.statistics(&rows).await?;
        let mut ids = value_ids(&rows);
        let led_to = self.chunks_by_index(ids.clone()).await?;
        ids.extend(led_to.keys());
        let by_key = self.rows_by_key(&rows).await?;
        let miscounted = self.chunks_and_rows(&ids, referred, &by_key, &mut facts).await?;
        self.read_values(&mut rows, &led_to, &facts).await?;
        if let Some(wrong_file) = self.wrong_file(&miscounted, referred) {
            let mut comments = vec![left_over(wrong_file.code, 1, &wrong_file.place)];
            comments.extend(damage.left_over(|_, _| false));
            return Ok(Repairs { wrong_file: Some(wrong_file), ..Repairs::none(comments) });
        }
        let mut readings = rows.iter().flat_map(|row| &row.values).flat_map(|v| &v.reading);
        let is_hidden = readings.any(|reading| reading.is_hidden);
        if facts.index.is_damaged || is_hidden {
            facts.index.risk = self.risk_of_reindex(&rows, &miscounted, &facts);
        }
        if let (Some(_), Some((toast, _)), None) =
            (miscounted.heap_only, &facts.toast, &facts.index.risk)
        {
            // REINDEX looks for the tuple that such a chunk replaced, and fails; this writes it as any other tuple
            facts.index.reindex = Some(format!("VACUUM FULL {toast};"));
        }
        let mut script = repair_script::script(&facts, &rows);
        script.statements.extend(self.left_over(damage, &rows, &facts));
        let is_safe = facts.index.risk.is_none() && !is_hidden;
        let rebuild = if is_safe { facts.index.reindex } else { None };
        Ok(Repairs { script, rebuild, wrong_file: None })
    }

    /// That most values of the table have no chunk, and the TOAST relation has others', so that its file may be that of
    /// another one.
    fn wrong_file(&self, miscounted: &Miscounted, referred: &[u64]) -> Option<Finding> {
        let Miscounted { without_chunks: count, has_others, .. } = *miscounted;
        let place = Place::new(self.name(Which::Toast));
        let expected = "a file (relfilenode) with the chunks of the table's values";
        let found = format!("chunks of values that no row refers to, and none of {count} values");
        // of fewer, each may have lost its chunks by itself
        let is_wrong = has_others && count > 2 && 2 * count >= referred.len();
        is_wrong.then(|| Finding::new(Code::Catalog, place, expected, found))
    }

    /// Comments for findings for which there is neither a statement nor a comment.
    fn left_over(
        &self,
        damage: &TableDamage,
        rows: &[DamagedRow],
        facts: &RepairFacts,
    ) -> Vec<String> {
        let heap = self.name(Which::Heap);
        let toast = self.name(Which::Toast);
        let rows: HashSet<ItemPointer> = rows.iter().map(|row| row.ctid).collect();
        let removed =
            facts.unreadable_chunks.iter().filter(|chunk| chunk.is_live).map(|chunk| chunk.ctid);
        let removed: HashSet<ItemPointer> = removed.collect();
        let none = HashSet::new();
        let no_blocks = BTreeSet::new();
        let is_zeroed = !facts.has_toasters && !facts.unread.wrong_checksums && !facts.is_catalog;
        damage.left_over(|code, place| {
            let (items, blocks) = if place.source == heap {
                (&rows, &facts.unread.heap_blocks)
            } else if place.source == toast {
                (&removed, &facts.unread.toast_blocks)
            } else {
                (&none, &no_blocks)
            };
            let is_covered = match (place.block, place.item) {
                (Some(block), Some(item)) => items.contains(&ItemPointer { block, item }),
                (Some(block), None) => is_zeroed && blocks.contains(&block),
                (None, _) => false,
            };
            is_covered || code.is_of_index()
        })
    }

    /// The chunks that the index leads to for these values and for those whose chunks are among them.
    pub(super) async fn chunks_by_index(
        &self,
        mut asked: BTreeSet<u64>,
    ) -> Result<LedTo, LiveError> {
        let mut led_to = LedTo::new();
        if !self.by_index || self.relation.toast.is_none() {
            return Ok(led_to);
        }
        for _ in 0..2 {
            let mut others = BTreeSet::new();
            for id in asked {
                if let Some(ChunkRows { rows, .. }) = self.by_index(id, None).await? {
                    others.extend(rows.iter().map(|row| row.value_id.0));
                    led_to.insert(id, rows);
                }
            }
            others.retain(|id| !led_to.contains_key(id));
            asked = others;
        }
        Ok(led_to)
    }

    /// Enters what one pass over each relation finds: the chunks with the IDs of damaged values, and who refers to these.
    /// `referred`, in order, are the values that rows refer to.
    async fn chunks_and_rows(
        &self,
        ids: &BTreeSet<u64>,
        referred: &[u64],
        by_key: &RowsByKey,
        facts: &mut RepairFacts,
    ) -> Result<Miscounted, LiveError> {
        let mut found = Miscounted::default();
        if ids.is_empty() && !facts.index.is_damaged && by_key.is_empty() {
            return Ok(found);
        }
        let mut counts = vec![0_u32; referred.len()];
        let mut are_there = vec![false; referred.len()];
        if facts.toast.is_some() {
            let all = &mut facts.chunks;
            facts.unread.toast_blocks = self
                .each_chunk(
                    None,
                    |_| true,
                    |id, chunk| {
                        let at = first_of(referred, id);
                        if let Some(is_there) = at.and_then(|at| are_there.get_mut(at)) {
                            *is_there = true;
                        }
                        let entries = self.entries.as_ref();
                        if entries.is_some_and(|entries| entries.differ_from(id, &chunk.seen)) {
                            found.disputed = Some(chunk.seen.tid);
                        }
                        if chunk.is_heap_only {
                            found.heap_only = Some(chunk.seen.tid);
                        }
                        if !chunk.is_misread && ids.contains(&id) {
                            all.entry(id).or_default().push(chunk);
                        }
                        if chunk.seen.fate == Fate::Committed && !chunk.is_refused {
                            match at.and_then(|at| counts.get_mut(at)) {
                                Some(count) => *count += 1,
                                None => found.has_others = true,
                            }
                        }
                    },
                )
                .await?;
        }
        let mut values = referred.iter().zip(are_there).collect::<Vec<_>>();
        values.dedup_by_key(|(id, _)| **id);
        found.without_chunks = values.iter().filter(|(_, is_there)| !is_there).count();
        let mut own_pointers = 0_u64;
        let mut others = 0_u64;
        let written = RewriteTarget { table: &facts.table, generated: &facts.columns.generated };
        let all = &mut facts.references;
        let unread = &mut facts.unread.rows;
        let twins = &mut facts.twins;
        let lost = self
            .each_page(Which::Heap, None, |page| {
                *unread |= !page.references(written, ids, all);
                by_key.twins_on_page(page, |own, other| {
                    twins.insert(own, other);
                });
                page.live_pointers(|pointer| {
                    if !self.is_own(pointer) {
                        others += 1;
                        return;
                    }
                    own_pointers += 1;
                    let id = pointer.value_id.0;
                    let count = first_of(referred, id).and_then(|at| counts.get(at));
                    if count.is_some_and(|count| *count != pointer.chunks(facts.page_size)) {
                        found.values.push(id);
                    }
                });
            })
            .await?;
        facts.unread.rows |= !lost.is_empty();
        facts.is_toast_doubtful = others >= own_pointers;
        Ok(found)
    }

    /// Damaged rows by the unique keys of the table.
    async fn rows_by_key(&self, rows: &[DamagedRow]) -> Result<RowsByKey, LiveError> {
        let keys = checking::unique_keys(self.connection.client(), self.relation.oid).await?;
        let keys = keys.into_iter().map(|key| key.columns).collect();
        let mut by_key = RowsByKey::new(keys);
        let blocks = rows.iter().map(|row| row.ctid.block).collect();
        self.each_page(Which::Heap, Some(blocks), |page| {
            for row in rows.iter().filter(|row| row.ctid.block == page.block) {
                by_key.enter(page, row.ctid);
            }
        })
        .await?;
        Ok(by_key)
    }

    /// Reads damaged values by SQL where that does not crash, and compares the index with their chunks.
    async fn read_values(
        &self,
        rows: &mut [DamagedRow],
        led_to: &LedTo,
        facts: &RepairFacts,
    ) -> Result<(), LiveError> {
        let moved = moved(&facts.chunks);
        for row in rows {
            let is_visible = row.is_live || row.is_refused;
            if !is_visible || !row.is_readable || row.broken.is_some() {
                continue;
            }
            let mut readings = Vec::new();
            for value in &row.values {
                readings.push(self.reading_of(row, value, led_to, &moved, facts).await?);
            }
            for (value, reading) in row.values.iter_mut().zip(readings) {
                value.reading = Some(reading);
            }
        }
        Ok(())
    }

    async fn reading_of(
        &self,
        row: &DamagedRow,
        value: &DamagedValue,
        led_to: &LedTo,
        moved: &HashSet<ItemPointer>,
        facts: &RepairFacts,
    ) -> Result<ValueReading, LiveError> {
        let mut reading = ValueReading::default();
        if let Some(pointer) = value.pointer.as_ref().filter(|p| self.is_own(p)) {
            let id = pointer.value_id.0;
            let led = led_to.get(&id).map_or(&[][..], Vec::as_slice);
            let own = facts.chunks.get(&id).map_or(&[][..], Vec::as_slice);
            let misled = misled(id, led, led_to, moved);
            reading = ValueReading::new(pointer, led, own, &misled, facts.page_size);
            reading.harms = self.harms(id, led, led_to, facts);
        }
        reading.by_sql = self.read_by_sql(row, value, led_to, &reading, facts).await?;
        if reading.by_sql == Some(true)
            && let Some(pointer) = value.pointer.as_ref()
            && reading.by_index
        {
            let wanted = self.wanted_data(pointer.stored_size().into());
            let data = self.by_index(pointer.value_id.0, Some(wanted)).await?;
            reading.is_whole = uses_all(pointer, &data.unwrap_or_default().data, row.order);
        }
        Ok(reading)
    }

    /// Whether an UPDATE of a value would delete chunks that another one needs: those of one that is read by them, or that
    /// is not read without them.
    fn harms(&self, id: u64, led: &[ChunkRow], led_to: &LedTo, facts: &RepairFacts) -> bool {
        led.iter().filter(|chunk| chunk.value_id.0 != id).any(|chunk| {
            let other = chunk.value_id.0;
            let theirs = led_to.get(&other).map_or(&[][..], Vec::as_slice);
            let mut referring = facts.references.iter().filter(|one| one.value_id == other);
            facts.unread.rows
                || theirs.iter().any(|own| own.tid == chunk.tid)
                    && facts.references.iter().any(|one| one.value_id == other)
                || referring.any(|one| {
                    !one.pointer.is_some_and(|pointer| is_read(&pointer, theirs, facts.page_size))
                })
        })
    }

    /// Whether SQL copies a value; `None` where that is not tried, or fails for another reason than the data.
    async fn read_by_sql(
        &self,
        row: &DamagedRow,
        value: &DamagedValue,
        led_to: &LedTo,
        reading: &ValueReading,
        facts: &RepairFacts,
    ) -> Result<Option<bool>, LiveError> {
        if !self.reads_rows || facts.has_toasters || value.is_custom || row.is_refused {
            return Ok(None);
        }
        let mut is_compressed = value.is_compressed;
        if let Some(pointer) = value.pointer.as_ref().filter(|p| self.is_own(p)) {
            let Some(led) = led_to.get(&pointer.value_id.0) else { return Ok(None) };
            let are_plain = led.iter().all(|row| {
                let own = facts.chunks.get(&row.value_id.0).into_iter().flatten();
                own.clone().any(|chunk| {
                    chunk.seen.tid == row.tid
                        && chunk.seen.form == ChunkForm::Plain
                        && is_sound(chunk)
                })
            });
            if !are_plain {
                // it refuses such chunks, or crashes at them
                return Ok(Some(false));
            }
            if pointer.is_compressed() && facts.may_crash_at_pglz && !reading.by_index {
                // it gives up before it decompresses anything
                return Ok(Some(false));
            }
        } else if let Some(pointer) = &value.pointer
            && !self.is_toast_relation(pointer).await?
        {
            return Ok(Some(false));
        }
        is_compressed |= value.pointer.is_some_and(|pointer| pointer.is_compressed());
        if is_compressed && facts.may_crash_at_pglz {
            return Ok(None);
        }
        let sql = format!(
            "SELECT pg_catalog.pg_column_size({}) FROM ONLY {} WHERE ctid = '{}'",
            value.fresh, facts.table, row.ctid
        );
        let client = self.connection.client();
        let read =
            snapshot::in_savepoint(client, async || Ok(client.query_typed(&sql, &[]).await?));
        Ok(match read.await? {
            Ok(rows) => (!rows.is_empty()).then_some(true),
            // it was copied, and an array has elements of another type
            Err(error) if error.code() == Some(&SqlState::DATATYPE_MISMATCH) => Some(true),
            Err(error) => is_unreadable(&error).then_some(false),
        })
    }

    /// Why values could be lost when the index is rebuilt; `None` if it is known that what SQL reads now it reads then.
    fn risk_of_reindex(
        &self,
        rows: &[DamagedRow],
        miscounted: &Miscounted,
        facts: &RepairFacts,
    ) -> Option<String> {
        if let Some(tid) = miscounted.disputed {
            return Some(format!(
                "an entry leads to the chunk at {tid} by another ID or number than the chunk has, and which of the two is right is \
                 not known: SQL may read values by such entries, and would read others then. Copy what SQL reads (COPY TO), \
                 and compare it with the copy after a REINDEX"
            ));
        }
        if !self.by_index && !self.entries.as_ref().is_some_and(|entries| entries.is_complete) {
            return Some(
                "not all of its entries can be read, so that what SQL reads by it is not known. Copy that (COPY TO), and \
                 compare it with a copy after a REINDEX"
                    .into(),
            );
        }
        let most = self.about.server.page_size.max_heap_tuples() - 1;
        let mut examined: HashMap<u64, &ValueReading> = HashMap::new();
        for (row, value) in rows.iter().flat_map(|row| row.values.iter().map(move |v| (row, v))) {
            let Some(reading) = &value.reading else { continue };
            if reading.is_open {
                return Some(format!(
                    "it leads to the chunks of {} in the row at {} in another way than their IDs and numbers say, and which \
                     of the two is right is not known",
                    quote_identifier(&value.column),
                    row.ctid
                ));
            }
            if let Some(pointer) = &value.pointer {
                examined.insert(pointer.value_id.0, reading);
            }
        }
        for id in &miscounted.values {
            let may_be_lost = match examined.get(id) {
                // without the index it is not known which chunks were its
                // deleted chunks are undeleted first, where that is possible
                Some(reading) if reading.is_hidden => {
                    let mut own = facts.chunks.get(id).into_iter().flatten();
                    facts.is_catalog || own.any(|chunk| usize::from(chunk.page_items) > most)
                }
                Some(reading) => {
                    reading.by_sql == Some(true)
                        || !self.by_index && (miscounted.has_others || has_more(*id, rows, facts))
                }
                None => true,
            };
            if may_be_lost || has_duplicate_chunks(facts.chunks.get(id)) {
                return Some(format!(
                    "the chunks with the ID {id} are not those that its row asks for, and the index may lead to the right ones"
                ));
            }
        }
        None
    }

    /// The chunks that the index leads to for a value; `None` if the server cannot read them. `data`: with their data.
    pub(super) async fn by_index(
        &self,
        value_id: u64,
        data: Option<WantedData>,
    ) -> Result<Option<ChunkRows>, LiveError> {
        let client = self.connection.client();
        let quoted = self.quoted(Which::Toast);
        let ids = [value_id];
        let relation = (quoted.as_str(), self.id_type());
        Ok(self.attempt(|| chunk_rows::chunks(client, relation, &ids, By::Index, data)).await?.ok())
    }

    /// Those of these tuples of the TOAST relation of which the server reads nothing right.
    async fn unreadable_chunks(&self, tids: &[ItemPointer]) -> Result<Vec<DamagedRow>, LiveError> {
        let blocks = tids.iter().map(|tid| tid.block).collect();
        let mut rows = Vec::new();
        let none = HashSet::new();
        self.each_page(Which::Toast, Some(blocks), |page| {
            let own = tids.iter().filter(|tid| tid.block == page.block);
            rows.extend(own.filter_map(|tid| page.damaged_row(*tid, &[], &none)));
        })
        .await?;
        Ok(rows)
    }

    async fn rows(
        &self,
        damaged: &[RowFindings],
        generated: &HashSet<String>,
    ) -> Result<Vec<DamagedRow>, LiveError> {
        let blocks = damaged.iter().map(|row| row.ctid.block).collect();
        let mut rows = Vec::new();
        self.each_page(Which::Heap, Some(blocks), |page| {
            let own = damaged.iter().filter(|row| row.ctid.block == page.block);
            rows.extend(own.filter_map(|row| page.damaged_row(row.ctid, &row.columns, generated)));
        })
        .await?;
        Ok(rows)
    }
}

/// Where a value first stands among those that rows refer to, which are in order.
fn first_of(referred: &[u64], id: u64) -> Option<usize> {
    let at = referred.partition_point(|other| *other < id);
    (referred.get(at) == Some(&id)).then_some(at)
}

/// Whether a value has sound chunks behind its end, which the index that SQL reads by may not lead to.
fn has_more(id: u64, rows: &[DamagedRow], facts: &RepairFacts) -> bool {
    let pointers = rows.iter().flat_map(|row| &row.values).filter_map(|value| value.pointer);
    let mut own = pointers.filter(|pointer| pointer.value_id.0 == id);
    let chunks = facts.chunks.get(&id).into_iter().flatten().filter(|chunk| is_sound(chunk));
    let count = chunks.count();
    own.any(|pointer| count > pointer.chunks(facts.page_size) as usize)
}

/// Whether two sound chunks have the same number.
fn has_duplicate_chunks(chunks: Option<&Vec<ChunkTuple>>) -> bool {
    let sound = chunks.into_iter().flatten().filter(|chunk| is_sound(chunk));
    let mut numbers = HashSet::new();
    sound.map(|chunk| chunk.seen.seq).any(|seq| !numbers.insert(seq))
}

/// The places of chunks whose tuples were moved there as they are, or of which SQL reads nothing right.
pub(super) fn moved(chunks: &HashMap<u64, Vec<ChunkTuple>>) -> HashSet<ItemPointer> {
    let all = chunks.values().flatten();
    all.filter(|chunk| chunk.is_moved || chunk.is_misread).map(|chunk| chunk.seen.tid).collect()
}

/// The chunks to which the index is proven to lead by wrong entries for a value: those that were moved as they are, and
/// another value's to which its own entry leads.
pub(super) fn misled(
    id: u64,
    led: &[ChunkRow],
    led_to: &LedTo,
    moved: &HashSet<ItemPointer>,
) -> HashSet<ItemPointer> {
    let mut misled = HashSet::new();
    for row in led {
        let mut theirs = led_to.get(&row.value_id.0).into_iter().flatten();
        let is_claimed = row.value_id.0 != id && theirs.any(|own| own.tid == row.tid);
        if is_claimed || moved.contains(&row.tid) {
            misled.insert(row.tid);
        }
    }
    misled
}
