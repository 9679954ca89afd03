//! SQL that makes the rows of damaged values readable again and deletes nothing that is sound (pure).

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::chunk_index::ChunkTuple;
use super::damaged_row::{DamagedRow, DamagedValue, Reference, where_row};
use super::repair::{Remedies, Remedy, RepairFacts, commented, listed};
use toast_format::disk::ItemPointer;
use toast_format::disk::layout::LINE_POINTER_SIZE;
use toast_format::disk::page::line_pointer_offset;
use toast_format::disk::value_text::hex;
use toast_format::model::sql::{quote_identifier, quote_literal};
use toast_format::model::toaster::chunks::Fate;

/// `FrozenTransactionId`, which `heap_force_freeze` gives a row.
const FROZEN: u32 = 2;

/// Statements, with comments, and what they cost.
#[derive(Debug, Default)]
pub(super) struct RepairScript {
    pub(super) statements: Vec<String>,
    /// Values that they set to NULL.
    pub(super) nulls: usize,
}

impl RepairScript {
    /// What repairs nothing by itself, such as comments that say why there is no statement.
    pub(super) fn only(statements: Vec<String>) -> RepairScript {
        RepairScript { statements, nulls: 0 }
    }
}

/// The SQL for these rows, in order. Statements that undelete chunks come first: a VACUUM between other statements
/// would remove these chunks.
pub(super) fn script<'f>(facts: &'f RepairFacts, rows: &'f [DamagedRow]) -> RepairScript {
    let mut script = Script {
        facts,
        remedies: Remedies::new(facts, rows),
        has_surgery: false,
        stored_anew: HashSet::new(),
        deleted: HashSet::new(),
        script: RepairScript::default(),
    };
    script.begin(!rows.is_empty());
    if facts.is_catalog {
        script.rebuild_index();
        script.catalog_rows(rows);
        return script.script;
    }
    // what SQL reads by entries of deleted chunks would be lost with these
    let has_revived = script.revive(rows);
    script.rebuild_index();
    if has_revived {
        script.index_revived();
    }
    // VACUUM may fail at rows that the server refuses
    let (refused, others): (Vec<&DamagedRow>, Vec<&DamagedRow>) =
        rows.iter().partition(|row| row.is_refused);
    for row in refused.into_iter().chain(others) {
        script.row(row);
    }
    script.zero_pages();
    script.script
}

/// The statements so far.
struct Script<'f> {
    facts: &'f RepairFacts,
    remedies: Remedies<'f>,
    /// Whether the extension was asked for.
    has_surgery: bool,
    /// Values whose sound rows store them anew, and values whose chunks were deleted.
    stored_anew: HashSet<u64>,
    deleted: HashSet<u64>,
    script: RepairScript,
}

impl<'f> Script<'f> {
    /// `has_rows`: whether rows follow that are damaged by themselves.
    fn begin(&mut self, has_rows: bool) {
        let RepairFacts { table, index, unread, .. } = self.facts;
        if unread.wrong_checksums && (has_rows || index.is_damaged) {
            let why = format!(
                "Pages of {table} have wrong checksums: this session reads them as they are."
            );
            self.explained(&why, "SET ignore_checksum_failure = on;\n");
        }
        if let (Some((toast, _)), false) = (&self.facts.toast, self.facts.is_catalog) {
            // REINDEX would make entries for them, by what is read there
            for chunk in self.facts.unreadable_chunks.iter().filter(|chunk| chunk.is_live) {
                self.remove(toast, chunk, false);
            }
        }
        if let (Some(reindex), true, false) = (&index.reindex, index.leads_behind, index.is_damaged)
        {
            let why = format!(
                "The file of the TOAST relation of {table} ends before what its index leads to: restore it from a \
                 backup. What comes next gives that up: psql runs it only with -v give_up=1. Then check the table again."
            );
            self.explained(&why, &format!("\\if :{{?give_up}}\n{reindex}\n\\endif\n"));
        }
    }

    /// Rebuilds the TOAST index if it is damaged, or says why not.
    fn rebuild_index(&mut self) {
        let RepairFacts { table, index, .. } = self.facts;
        if !index.is_damaged {
            return;
        }
        match (&index.risk, &index.reindex) {
            (None, Some(reindex)) => {
                let why = format!(
                    "The index of the TOAST relation of {table} is damaged. It is rebuilt, which loses nothing. Then check the table again: what is wrong with its values out of line is known only \
                     then, so that no other statement is printed for them here."
                );
                self.explained(&why, &format!("{reindex}\n"));
            }
            (Some(risk), _) => self.comment(&format!(
                "No REINDEX of the TOAST relation of {table}, though its index is damaged: {risk}. First follow what is \
                 said of its values; then check the table again."
            )),
            (None, None) => self.none_for(
                &format!("the TOAST relation of {table}"),
                "it has no index that could be rebuilt.",
            ),
        }
    }

    /// Undeletes the chunks of values that are complete; whether there are any.
    fn revive(&mut self, rows: &'f [DamagedRow]) -> bool {
        let mut has_revived = false;
        for row in rows.iter().filter(|row| row.is_readable && (row.is_live || row.is_refused)) {
            for value in &row.values {
                if let Remedy::Freeze(chunks) = self.remedies.remedy(row, value) {
                    let column = quote_identifier(&value.column);
                    let value = format!("{column} in the row at {}", row.ctid);
                    has_revived |= self.freeze_chunks(&value, &chunks);
                }
            }
        }
        has_revived
    }

    /// Rebuilds an index that is not damaged by itself, but may not lead to chunks that were undeleted.
    fn index_revived(&mut self) {
        let index = &self.facts.index;
        if let (Some(reindex), None, false) = (&index.reindex, &index.risk, index.is_damaged) {
            let why = "Whoever met the deleted chunks may have marked their index entries dead, so that the \
                       index does not lead to them: it is rebuilt.";
            self.explained(why, &format!("{reindex}\n"));
        }
    }

    fn row(&mut self, row: &'f DamagedRow) {
        let facts = self.facts;
        let place = self.place(row);
        if !row.is_readable && row.broken.is_none() {
            let why = "it is damaged beyond this value, and UPDATE may crash the server. See its other findings.";
            return self.none_for(&place, why);
        }
        if !row.is_live && !row.is_refused {
            return self.none_for(&place, "SQL does not see it.");
        }
        match &row.broken {
            Some(broken) if broken.is_lost || broken.is_page => {
                return self.remove(&facts.table, row, broken.is_page);
            }
            _ => {}
        }
        if let Some(why) = self.obstacle(row) {
            return self.none_for(&place, &why);
        }
        if row.broken.is_some() && self.remedies.may_come_back(row) {
            let why = format!(
                "{} And a value before that is damaged only as long as its chunks are deleted, or the TOAST index is: it \
                 would be lost with the row. Repair the index, or undelete the chunks; then check again.",
                self.why_anew(row)
            );
            return self.none_for(&place, &why);
        }
        if row.broken.is_some() {
            return self.store_row_anew(row);
        }
        let remedies: Vec<(&DamagedValue, Remedy<'f>)> =
            row.values.iter().map(|value| (value, self.remedies.remedy(row, value))).collect();
        let mut is_open = false;
        for (value, remedy) in &remedies {
            is_open |=
                !matches!(remedy, Remedy::SetNull | Remedy::SetNullAfter(_) | Remedy::StoreRowAnew);
            if let Remedy::None(why) = remedy {
                let column = quote_identifier(&value.column);
                self.none_for(&format!("{column} in {place}"), why);
            }
        }
        if remedies.iter().any(|(_, remedy)| matches!(remedy, Remedy::StoreAnew)) {
            return self.store_values_anew(row, &remedies);
        }
        if remedies.iter().any(|(_, remedy)| matches!(remedy, Remedy::StoreRowAnew)) {
            if is_open {
                self.comment(&format!(
                    "{} Follow what is said of its other values, then check again.",
                    self.why_anew(row)
                ));
            } else {
                self.store_row_anew(row);
            }
            return;
        }
        self.set_null(row, &remedies);
        self.give_up(row, &remedies);
    }

    /// Deletes rows of statistics, which are then computed anew; for those of other catalogs there is no statement.
    fn catalog_rows(&mut self, rows: &'f [DamagedRow]) {
        let facts = self.facts;
        let mut analyzed: BTreeSet<&str> = BTreeSet::new();
        for row in rows {
            let place = self.place(row);
            let Some(described) = facts.statistics.get(&row.ctid) else {
                let why = "it is a row of a system catalog. Restore it from a backup, or drop and re-create what it \
                           describes.";
                self.none_for(&place, why);
                continue;
            };
            if let Some(why) = self.why_not_deleted(row) {
                self.none_for(&place, why);
                continue;
            }
            analyzed.extend(described.as_deref());
            let why = format!("Statistics in {place} are lost: ANALYZE computes them anew.");
            let at = where_row(row.ctid, row.xmin, &row.guard);
            self.explained(&why, &format!("DELETE FROM {}\n{at};\n", facts.table));
        }
        self.script
            .statements
            .extend(analyzed.into_iter().map(|table| format!("ANALYZE {table};\n")));
    }

    /// Why a DELETE of a row is not known to succeed and to remove its own chunks alone.
    fn why_not_deleted(&self, row: &DamagedRow) -> Option<&'static str> {
        let facts = self.facts;
        if !row.is_live || row.is_refused || !row.is_readable || row.broken.is_some() {
            return Some("SQL does not see it, or cannot read it to its end.");
        }
        if facts.index.is_damaged {
            return Some("check it again once the TOAST index is rebuilt.");
        }
        if facts.unread.rows || !facts.unread.toast_blocks.is_empty() {
            return Some(
                "not all rows and chunks could be read, and another row may have its chunks.",
            );
        }
        row.values.iter().find_map(|value| {
            let pointer = value.pointer.as_ref()?;
            let id = pointer.value_id.0;
            let mut others = facts.references.iter().filter(|other| other.ctid != row.ctid);
            let harms = value.reading.as_ref().is_some_and(|reading| reading.harms);
            if harms || !self.remedies.is_own(pointer) || others.any(|other| other.value_id == id) {
                return Some("DELETE would remove chunks that are not its own.");
            }
            let is_refused = facts.chunks.get(&id).into_iter().flatten().any(|c| c.is_refused);
            is_refused.then_some("the server refuses transaction IDs of its chunks.")
        })
    }

    /// Why a row cannot be updated or inserted.
    fn obstacle(&self, row: &DamagedRow) -> Option<String> {
        let twin = self.facts.twins.get(&row.ctid).map(|twin| {
            format!(
                "the row at {twin} has the same key, as after a write that was lost, and an UPDATE may fail at the unique \
                 index. Compare the two: heap_force_kill of pg_surgery removes the older one. DELETE would delete the chunks \
                 of values that both have."
            )
        });
        self.facts.obstacle.clone().or(twin)
    }

    /// Whether `heap_force_kill` and `heap_force_freeze` can be used on a page with so many line pointers: their array has
    /// `MaxHeapTuplesPerPage` entries, is indexed from 0 by item numbers and read for all of the page, and what lies
    /// behind it is overwritten (`heap_surgery.c`). Otherwise the script says that nothing repairs `place`.
    fn surgery_is_safe(&mut self, page_items: u16, place: &str) -> bool {
        let most = self.facts.page_size.max_heap_tuples() - 1;
        let is_safe = usize::from(page_items) <= most;
        if !is_safe {
            let why = format!(
                "its page has {page_items} line pointers, and heap_force_kill and heap_force_freeze of pg_surgery crash the \
                 server on a page with more than {most}. Restore the block from a backup."
            );
            self.none_for(place, &why);
        }
        is_safe
    }

    /// Sets all columns of a row that can be set, in one statement: its address changes with it.
    fn set_null(&mut self, row: &'f DamagedRow, remedies: &[(&'f DamagedValue, Remedy<'f>)]) {
        let facts = self.facts;
        let mut columns = Vec::new();
        let mut conditions = Vec::new();
        let mut refused = Vec::new();
        let mut vacuums = false;
        for (value, remedy) in remedies {
            let column = quote_identifier(&value.column);
            if !matches!(remedy, Remedy::SetNull | Remedy::SetNullAfter(_)) {
                continue;
            }
            if let Some(why) = self.why_not_null(row, &value.column) {
                return self.comment(&why);
            }
            let id = value.pointer.map(|pointer| pointer.value_id.0);
            let chunks = id.and_then(|id| facts.chunks.get(&id)).map_or(&[][..], Vec::as_slice);
            let base = facts.columns.made_of.get(&value.column).and_then(|bases| bases.first());
            if let Some(id) = id {
                if let Remedy::SetNullAfter(other) = remedy {
                    self.store_anew(row, &column, other);
                    if let Some((toast, _)) = &facts.toast {
                        conditions.push(format!(
                            "NOT EXISTS (SELECT FROM {toast} WHERE chunk_id = '{id}')"
                        ));
                    }
                } else {
                    vacuums |= !self.deleted.insert(id) || chunks.iter().any(is_dead);
                }
                refused.extend(chunks.iter().filter(|chunk| chunk.is_refused).copied());
            }
            columns.push(match base {
                // it is computed when one of its base columns is set, not when it is set to DEFAULT
                Some(base) => format!("{0} = {0}", quote_identifier(base)),
                None => format!("{column} = NULL"),
            });
        }
        columns.sort_unstable();
        columns.dedup();
        if columns.is_empty() {
            return;
        }
        let own = if row.is_refused { row.page_items } else { 0 };
        if !self.surgery_is_safe(most_items(&refused).max(own), &self.place(row)) {
            return;
        }
        if vacuums {
            let why = "The next statement meets chunks that are deleted: they must be gone.";
            self.explained(why, &format!("VACUUM {};\n", facts.table));
        }
        if let (Some((toast, _)), false) = (&facts.toast, refused.is_empty()) {
            let why =
                format!("The server refuses transaction IDs of chunks of the row at {}.", row.ctid);
            self.freeze(&why, toast, &headers(&refused));
        }
        let mut xmin = row.xmin;
        if row.is_refused {
            self.freeze_row(row, "");
            xmin = FROZEN;
        }
        self.script.nulls += columns.len();
        conditions.splice(0..0, row.guard.iter().cloned());
        let place = where_row(row.ctid, xmin, &conditions);
        let columns = columns.join(", ");
        self.script
            .statements
            .push(format!("UPDATE ONLY {} SET {columns}\n{place};\n", facts.table));
    }

    /// Makes a row visible whose transaction IDs the server refuses.
    fn freeze_row(&mut self, row: &DamagedRow, then: &str) {
        let why = format!(
            "The server refuses transaction IDs of the row at {}: it becomes visible, also if it was deleted.{then}",
            row.ctid
        );
        self.freeze(&why, &self.facts.table, &[(row.ctid, [row.xmin, row.xmax])]);
    }

    /// Why a lost column cannot be set to NULL.
    fn why_not_null(&self, row: &DamagedRow, name: &str) -> Option<String> {
        let columns = &self.facts.columns;
        let place = format!("{} in {}", quote_identifier(name), self.place(row));
        if let Some(why) = columns.is_bound(row, name) {
            return Some(none_for(&place, &why));
        }
        let why = columns.why_not_null(name)?;
        Some(format!(
            "{place} is lost, but the column {why}: no statement is printed for the row. UPDATE it to what you choose, \
             and check again."
        ))
    }

    /// Offers to give up values that SQL copies, but that are not of their type; psql skips it unless it is asked for by a
    /// variable.
    fn give_up(&mut self, row: &DamagedRow, remedies: &[(&'f DamagedValue, Remedy<'f>)]) {
        let table = &self.facts.table;
        for (value, remedy) in remedies {
            let Remedy::GiveUp(why) = remedy else { continue };
            let column = quote_identifier(&value.column);
            let columns = &self.facts.columns;
            let is_fixed = columns.refusing_null.contains_key(&value.column)
                || columns.generated.contains(&value.column);
            let bound = columns.is_bound(row, &value.column);
            let place = format!("{column} in {} by itself", self.place(row));
            let why = none_for(&place, &format!("{why} Its bytes are saved."));
            if is_fixed || bound.is_some() {
                self.comment(&format!("{why} UPDATE it to what you choose."));
                continue;
            }
            let place = where_row(row.ctid, row.xmin, &row.guard);
            self.explained(
                &format!("{why} What comes next gives it up: psql runs it only with -v give_up=1."),
                &format!("\\if :{{?give_up}}\nUPDATE ONLY {table} SET {column} = NULL\n{place};\n\\endif\n"),
            );
        }
    }

    fn store_anew(&mut self, row: &DamagedRow, column: &str, other: &'f Reference) {
        let Some(rewrite) = &other.rewrite else { return };
        if !self.stored_anew.insert(other.value_id) {
            return;
        }
        let why = format!(
            "{column} in the row at {} has the value ID {} of {} in the row at {}, which is sound. That is \
             stored anew, and its old chunks removed; before they are, the statement after these finds no \
             row. \"tuple concurrently deleted\" says that an older transaction still sees them: run VACUUM \
             and that statement again once it has ended.",
            row.ctid,
            other.value_id,
            quote_identifier(&other.column),
            other.ctid,
        );
        self.explained(&why, &format!("{rewrite}VACUUM {};\n", self.facts.table));
    }

    /// Whether there is a statement.
    fn freeze_chunks(&mut self, value: &str, chunks: &[ChunkTuple]) -> bool {
        let facts = self.facts;
        let Some((toast, _)) = &facts.toast else { return false };
        let why = format!(
            "All chunks of {value} are there, but some are deleted, or the server refuses their transaction \
             IDs: they become live. Do not VACUUM before."
        );
        let is_safe = self.surgery_is_safe(most_items(chunks), value);
        if is_safe {
            self.freeze(&why, toast, &headers(chunks));
        }
        is_safe
    }

    /// Makes tuples live whose `xmin` and `xmax` are still these. `relation` is quoted.
    fn freeze(&mut self, why: &str, relation: &str, tuples: &[(ItemPointer, [u32; 2])]) {
        let Some(pageinspect) = &self.facts.pageinspect else { return };
        let items = pageinspect.function("heap_page_items");
        let mut text = self.surgery().to_owned();
        for (tid, [xmin, xmax]) in tuples {
            text.push_str(&format!(
                "SELECT {}\n  FROM {items}({})\n \
                 WHERE lp = {} AND t_xmin = '{xmin}' AND t_xmax = '{xmax}';\n",
                self.facts.surgery("heap_force_freeze", relation, *tid),
                pageinspect.raw_page(&quote_literal(relation), "main", &tid.block.to_string()),
                tid.item,
            ));
        }
        self.explained(why, &text);
    }

    /// The statement that makes the extension, where it was not asked for yet. Everybody may create functions with the
    /// names of its own in many a schema, but not in pg_catalog.
    fn surgery(&mut self) -> &'static str {
        if std::mem::replace(&mut self.has_surgery, true) || self.facts.surgery_schema.is_some() {
            ""
        } else {
            "CREATE EXTENSION IF NOT EXISTS pg_surgery SCHEMA pg_catalog;\n"
        }
    }

    /// Stores values anew, in one statement: its address changes with it.
    fn store_values_anew(&mut self, row: &DamagedRow, remedies: &[(&DamagedValue, Remedy<'f>)]) {
        let facts = self.facts;
        let own = remedies.iter().filter(|(_, remedy)| matches!(remedy, Remedy::StoreAnew));
        let (generated, plain): (Vec<&DamagedValue>, Vec<&DamagedValue>) =
            own.map(|(value, _)| value).partition(|v| facts.columns.generated.contains(&v.column));
        let mut set: BTreeMap<String, String> = plain
            .iter()
            .map(|value| (quote_identifier(&value.column), value.fresh.clone()))
            .collect();
        let mut conditions = row.guard.clone();
        let place = self.place(row);
        for value in generated {
            let column = quote_identifier(&value.column);
            let bases = facts.columns.made_of.get(&value.column).map_or(&[][..], Vec::as_slice);
            let expression = facts.columns.expressions.get(&value.column);
            let lost = bases.iter().find(|base| {
                row.values.iter().any(|other| other.column == **base)
                    && !set.contains_key(&quote_identifier(base))
            });
            let (Some(base), Some(expression), None) = (bases.first(), expression, lost) else {
                let why = "it is generated, and what it is generated from cannot be set, or is damaged too.";
                self.none_for(&format!("{column} in {place}"), why);
                continue;
            };
            // it is computed when one of its base columns is set; nothing is done if that gives something else
            let base = quote_identifier(base);
            set.entry(base.clone()).or_insert(base);
            conditions.push(format!(
                "pg_catalog.md5({column}::pg_catalog.text) = pg_catalog.md5(({expression})::pg_catalog.text)"
            ));
        }
        if set.is_empty() {
            return;
        }
        let why = format!(
            "SQL reads values in {place} by the TOAST index, though their chunks or their pointers say something else: \
             the statement stores them again as SQL reads them now. Then check the table again."
        );
        let at = where_row(row.ctid, row.xmin, &conditions);
        let set: Vec<String> = set.iter().map(|(name, to)| format!("{name} = {to}")).collect();
        let set = set.join(", ");
        self.explained(&why, &format!("UPDATE ONLY {} SET {set}\n{at};\n", facts.table));
    }

    /// Why neither UPDATE nor DELETE will do for a row.
    fn why_anew(&self, row: &DamagedRow) -> String {
        let place = self.place(row);
        if let Some(first) = row.broken.as_ref().and_then(|broken| broken.columns.first()) {
            let column = quote_identifier(first);
            return format!(
                "The server fails, or crashes, at {column} in {place}: SQL reads the columns before it."
            );
        }
        if row.broken.is_some() {
            return format!(
                "SQL reads {place}, but its t_hoff is wrong: UPDATE and DELETE may crash the server."
            );
        }
        let pointers = row.values.iter().filter_map(|value| value.pointer.as_ref());
        if pointers.into_iter().all(|pointer| self.remedies.is_own(pointer)) {
            format!("In {place}, UPDATE and DELETE would delete the chunks of another value.")
        } else {
            format!(
                "A pointer of {place} leads to another relation, where UPDATE and DELETE fail or delete another \
                 table's chunks."
            )
        }
    }

    /// Removes a row of which nothing can be kept, of a relation that is quoted.
    fn remove(&mut self, relation: &str, row: &DamagedRow, is_page: bool) {
        let place = format!("the row at {} of {relation}", row.ctid);
        let why = if is_page {
            "no row of its page can be read; perhaps a page of another relation was written over it"
        } else {
            "none of its columns can be read"
        };
        let Some(pageinspect) = &self.facts.pageinspect else {
            return self.none_for(&place, &format!("{why}."));
        };
        if !self.surgery_is_safe(row.page_items, &place) {
            return;
        }
        let why = format!(
            "SQL fails at {place}, or reads it wrong: {why}. It is removed, which is not undone: what could be \
             saved of it is in this directory, and its bytes are in the copy of the relation's files."
        );
        let ItemPointer { block, item } = row.ctid;
        let surgery = self.surgery();
        let page = pageinspect.raw_page(&quote_literal(relation), "main", &block.to_string());
        // heap_page_items of older minor versions (14.9, 16.4) fails at a t_hoff past the tuple's end
        let sql = format!(
            "{surgery}SELECT {}\n  FROM {page} AS page\n \
             WHERE pg_catalog.encode(pg_catalog.substr(page, {}, {LINE_POINTER_SIZE}), 'hex') = '{}';\n{}",
            self.facts.surgery("heap_force_kill", relation, row.ctid),
            line_pointer_offset(item) + 1,
            hex(&row.pointer),
            self.unchained(row),
        );
        self.explained(&why, &sql);
    }

    /// The statement that clears the line pointer of a removed row.
    fn unchained(&self, row: &DamagedRow) -> String {
        if row.is_heap_only { format!("VACUUM {};\n", self.facts.table) } else { String::new() }
    }

    /// Prints statements that give up pages which the server refuses. psql skips them unless a variable is set.
    fn zero_pages(&mut self) {
        let RepairFacts { table, toast, unread, .. } = self.facts;
        if self.facts.has_toasters || self.facts.unread.wrong_checksums {
            return;
        }
        let toast = toast.iter().map(|(toast, _)| (toast, &unread.toast_blocks, "chunks"));
        for (relation, blocks, what) in toast.chain([(table, &unread.heap_blocks, "rows")]) {
            if blocks.is_empty() {
                continue;
            }
            let why = format!(
                "The server refuses blocks of {relation} ({}). Restore them from a backup. What comes last gives up \
                 all {what} in them: psql runs it only with -v zero_pages=1. First run the statements above and \
                 load rows.sql, which has what could be saved. The table is locked and rewritten, which takes the \
                 space of a copy. Then check again.",
                listed(blocks)
            );
            let sql = format!(
                "\\if :{{?zero_pages}}\nSET zero_damaged_pages = on;\nVACUUM FULL {relation};\n\
                 RESET zero_damaged_pages;\n\\endif\n"
            );
            self.explained(&why, &sql);
        }
    }

    /// Why a copy of a row may not be inserted once the row is removed.
    fn in_the_way(&self, row: &DamagedRow) -> Option<String> {
        let own = (Some(row.ctid.block), Some(row.ctid.item));
        let mut others = self.facts.in_the_way.iter();
        let other = others.find(|other| (other.block, other.item) != own)?;
        Some(format!(
            "its copy would be inserted once heap_force_kill has removed it, which is not undone, and that may fail at \
             {other}, which the server refuses. Mend that first; then check again."
        ))
    }

    /// Copies the row's other columns, removes the row without reading its pointers, and inserts the copy.
    fn store_row_anew(&mut self, row: &DamagedRow) {
        let RepairFacts { table, schema, oid, columns, .. } = self.facts;
        let place = self.place(row);
        if !self.surgery_is_safe(row.page_items, &place) {
            return;
        }
        if row.is_refused {
            return self.freeze_row(row, " Then check again.");
        }
        if let Some(why) = self.in_the_way(row) {
            return self.none_for(&place, &why);
        }
        let why = self.why_anew(row);
        let damaged = row.values.iter().map(|value| &value.column);
        let lost: Vec<&String> =
            damaged.chain(row.broken.iter().flat_map(|broken| &broken.columns)).collect();
        if let Some(obstacle) = columns.forbids_loss(&lost) {
            return self.comment(&format!("No repair statement for {place}. {why} And {obstacle}"));
        }
        let kept = columns.written(row.others.iter());
        // else they would have their defaults
        let lost_names = columns.written(lost.iter().copied());
        let into = [kept.as_slice(), &lost_names].concat().join(", ");
        let nulls = vec!["NULL".to_owned(); lost_names.len()];
        let from = [kept.as_slice(), &nulls].concat().join(", ");
        let is_misread = row.broken.as_ref().is_some_and(|broken| broken.columns.is_empty());
        let copied: Vec<String> = match kept.split_first() {
            // with all columns as they are, the server would copy the tuple, and read it by its t_hoff
            Some((first, others)) if is_misread => {
                let first = format!("CASE WHEN ctid = '{}' THEN {first} END AS {first}", row.ctid);
                std::iter::once(first).chain(others.iter().cloned()).collect()
            }
            _ => kept,
        };
        let copied = copied.join(", ");
        let ItemPointer { block, item } = row.ctid;
        let xmin = row.xmin;
        let copy = format!("toastctl_{}_{block}_{item}_{xmin}", oid.0);
        let copy = format!("{schema}{}", quote_identifier(&copy));
        let what = if lost.is_empty() {
            "The row is copied and removed, and the copy is inserted without triggers."
        } else {
            "The row's other columns are copied, the row is removed, and the copy is inserted without \
                 triggers; what is lost will be NULL."
        };
        let why = format!(
            "{why} {what} Removing a row is not undone: the copy is first inserted into a temporary table that \
             has the same constraints, and nobody else writes meanwhile."
        );
        let place = where_row(row.ctid, row.xmin, &row.guard);
        let body = format!(
            "BEGIN\n  IF EXISTS (SELECT FROM ONLY {table}\n{place}) THEN\n    \
             PERFORM pg_catalog.set_config('session_replication_role', 'replica', true);\n    \
             CREATE TEMPORARY TABLE toastctl_trial\n      \
             (LIKE {table} INCLUDING CONSTRAINTS INCLUDING GENERATED) ON COMMIT DROP;\n    \
             INSERT INTO pg_temp.toastctl_trial ({into}) OVERRIDING SYSTEM VALUE\n      \
             SELECT {from} FROM {copy};\n    \
             IF NOT FOUND THEN\n      RAISE EXCEPTION 'the copy has no row';\n    END IF;\n    \
             PERFORM {};\n    \
             INSERT INTO {table} ({into}) OVERRIDING SYSTEM VALUE\n      \
             SELECT {from} FROM {copy};\n  \
             END IF;\nEND",
            self.facts.surgery("heap_force_kill", table, row.ctid),
        );
        let surgery = self.surgery();
        self.script.nulls += lost_names.len();
        let sql = format!(
            "{surgery}CREATE TABLE {copy} AS SELECT {copied} FROM ONLY {table}\n{place};\n\
             BEGIN ISOLATION LEVEL READ COMMITTED;\n\
             LOCK TABLE ONLY {table} IN SHARE ROW EXCLUSIVE MODE;\n\
             {}COMMIT;\n{}{}",
            quoted_block(&body),
            self.unchained(row),
            commented(&format!("Once the row is there again: DROP TABLE {copy};")),
        );
        self.explained(&why, &sql);
    }

    fn place(&self, row: &DamagedRow) -> String {
        format!("the row at {} of {}", row.ctid, self.facts.table)
    }

    /// Adds statements, preceded by a comment that explains them.
    fn explained(&mut self, why: &str, sql: &str) {
        self.script.statements.push(format!("{}{sql}", commented(why)));
    }

    fn comment(&mut self, text: &str) {
        self.explained(text, "");
    }

    fn none_for(&mut self, place: &str, why: &str) {
        self.comment(&none_for(place, why));
    }
}

fn none_for(place: &str, why: &str) -> String {
    format!("No repair statement for {place}: {why}")
}

fn most_items(chunks: &[ChunkTuple]) -> u16 {
    chunks.iter().map(|chunk| chunk.page_items).max().unwrap_or(0)
}

/// The statement that runs a block of PL/pgSQL.
fn quoted_block(block: &str) -> String {
    let mut tag = "$toastctl$".to_owned();
    while block.contains(&tag) {
        tag.insert(tag.len() - 1, '_');
    }
    format!("DO {tag}{block}{tag};\n")
}

/// Whether a chunk is deleted, so that an UPDATE that meets it fails until VACUUM has removed it.
fn is_dead(chunk: &ChunkTuple) -> bool {
    chunk.seen.fate == Fate::NotCommitted && !chunk.is_refused
}

fn headers(chunks: &[ChunkTuple]) -> Vec<(ItemPointer, [u32; 2])> {
    chunks.iter().map(|chunk| (chunk.seen.tid, chunk.xids)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::code::Code;
    use crate::check::reading::ValueReading;
    use crate::check::repair::{ColumnRules, ToastIndexState, may_crash_at_pglz};
    use crate::check::value::{ChunkForm, ChunkSeen};
    use crate::server::about::Pageinspect;
    use std::collections::HashMap;
    use toast_format::disk::{BlockNumber, ByteOrder, Oid, ToastPointer, ValueId, ValueIdType};
    use toast_format::model::sql::fresh;

    fn script(facts: &RepairFacts, rows: &[DamagedRow]) -> Vec<String> {
        super::script(facts, rows).statements
    }

    const EVIL: &str = "a\n; DROP TABLE x; --\n$toastctl$";

    fn tid(item: u16) -> ItemPointer {
        ItemPointer { block: BlockNumber(0), item }
    }

    fn pointer(toast_relation: u32) -> ToastPointer {
        ToastPointer {
            raw_size_with_header: 2004,
            ext_info: 2000,
            value_id: ValueId(7),
            id_type: ValueIdType::Oid,
            toast_relation: Oid(toast_relation),
        }
    }

    fn row(item: u16, code: Code, pointer: ToastPointer) -> DamagedRow {
        DamagedRow {
            ctid: tid(item),
            xmin: 742,
            xmax: 0,
            order: ByteOrder::Little,
            is_live: true,
            is_refused: false,
            is_readable: true,
            guard: Vec::new(),
            values: vec![DamagedValue {
                column: EVIL.into(),
                code,
                pointer: Some(pointer),
                is_compressed: false,
                is_custom: false,
                fresh: fresh(&quote_identifier(EVIL)),
                reading: Some(ValueReading { by_sql: Some(false), ..ValueReading::default() }),
            }],
            others: vec!["id".into()],
            broken: None,
            pointer: [0x40, 0x9f, 0xc8, 0],
            page_items: 4,
            is_heap_only: false,
        }
    }

    fn chunk(seq: i32, size: u32, fate: Fate) -> ChunkTuple {
        let seen = ChunkSeen { tid: tid(20), seq, form: ChunkForm::Plain, size, fate };
        ChunkTuple {
            seen,
            xids: [742, 743],
            is_refused: false,
            is_misread: false,
            is_moved: false,
            is_heap_only: false,
            page_items: 4,
        }
    }

    fn facts() -> RepairFacts {
        RepairFacts {
            table: quote_identifier("t\nu"),
            schema: "\"public\".".into(),
            toast: Some(("\"pg_toast\".\"pg_toast_1\"".into(), Oid(9))),
            pageinspect: Some(Pageinspect { schema: "public".into(), version: "1.11".into() }),
            index: index(false),
            ..RepairFacts::default()
        }
    }

    /// A row whose value can be read like this.
    fn read_row(item: u16, code: Code, pointer: ToastPointer, reading: ValueReading) -> DamagedRow {
        let mut row = row(item, code, pointer);
        row.values[0].reading = Some(reading);
        row
    }

    fn index(is_damaged: bool) -> ToastIndexState {
        ToastIndexState {
            reindex: Some("REINDEX INDEX i;".into()),
            is_damaged,
            ..ToastIndexState::default()
        }
    }

    /// The lines that are no comments.
    fn code(script: &[String]) -> Vec<&str> {
        let lines = script.iter().flat_map(|text| text.lines());
        lines.filter(|line| !line.starts_with("--") && !line.is_empty()).collect()
    }

    #[test]
    fn names_cannot_end_a_comment_or_a_body() {
        let kill = script(&facts(), &[row(2, Code::ToastRelation, pointer(0))]);
        assert!(kill.iter().any(|text| text.contains("heap_force_kill")), "{kill:?}");
        // quoted it is the column
        let text = kill.concat().replace(&quote_identifier(EVIL), "");
        assert!(!text.contains("; DROP"), "{kill:?}");
        let mut unread = facts();
        unread.unread.rows = true;
        unread.chunks.insert(7, vec![chunk(0, 1996, Fate::Committed)]);
        let none = script(&unread, &[row(2, Code::ChunksEnd, pointer(9))]);
        assert_eq!(code(&none), [""; 0], "{none:?}");
        // a column that the copy has
        let mut with = row(2, Code::ToastRelation, pointer(0));
        with.others = vec!["$toastctl$".into()];
        let tagged = script(&facts(), &[with]).concat();
        assert!(tagged.contains("DO $toastctl_$BEGIN") && tagged.contains("END$toastctl_$;"));
    }

    #[test]
    fn what_sql_reads_is_stored_anew_or_left_but_never_removed() {
        let of = |code, reading: ValueReading| {
            let mut facts = facts();
            facts.chunks.insert(7, vec![chunk(0, 1996, Fate::Committed)]);
            script(&facts, &[read_row(2, code, pointer(9), reading)])
        };
        let reads = |is_whole| ValueReading {
            by_sql: Some(true),
            by_index: true,
            is_whole,
            ..ValueReading::default()
        };
        let anew = of(Code::StoredSize, reads(true)).concat();
        assert!(anew.contains(" = (ARRAY[") && !anew.contains("= NULL"), "{anew}");
        // not all of its bytes are accounted for; its pointer leads elsewhere; it is another value's too
        let short = of(Code::StoredSize, reads(false));
        assert!(code(&short).is_empty() && short.concat().contains("shorter"), "{short:?}");
        let elsewhere = read_row(2, Code::ToastRelation, pointer(0), reads(true));
        let elsewhere = script(&facts(), &[elsewhere]);
        assert!(
            code(&elsewhere).is_empty() && elsewhere.concat().contains("SQL reads"),
            "{elsewhere:?}"
        );
        let harms =
            of(Code::ChunkMissing, ValueReading { harms: true, is_open: true, ..reads(true) });
        assert!(code(&harms).is_empty(), "{harms:?}");
        // another column of the row has its chunks
        let mut shared = facts();
        let column = "other".to_owned();
        let value_id = 7;
        let one = Reference { ctid: tid(2), column, value_id, ..Reference::default() };
        shared.references.push(one);
        for code in [Code::StoredSize, Code::Jsonb] {
            let none = script(&shared, &[read_row(2, code, pointer(9), reads(true))]);
            assert!(self::code(&none).is_empty(), "{none:?}");
        }
        // it was not tried, as on minor releases that crash at damaged data
        let mut untried = RepairFacts { may_crash_at_pglz: true, ..facts() };
        let unknown = |code| read_row(2, code, pointer(9), ValueReading::default());
        let none = script(&untried, &[unknown(Code::StoredSize)]);
        assert!(code(&none).is_empty() && none.concat().contains("minor release"), "{none:?}");
        untried.may_crash_at_pglz = false;
        let none = script(&untried, &[unknown(Code::ChunksEnd)]);
        assert!(code(&none).is_empty() && none.concat().contains("could not be tried"), "{none:?}");
        assert!(may_crash_at_pglz(140_009) && !may_crash_at_pglz(140_010));
        assert!(may_crash_at_pglz(160_000) && !may_crash_at_pglz(160_001));
        // what is in it is wrong: only people give it up
        let content = of(Code::Jsonb, reads(true)).concat();
        let start = content.find("\\if :{?give_up}");
        let end = content.find("\\endif");
        let null = content.find("= NULL");
        assert!(start < null && null < end && start.is_some(), "{content}");
        // it fails
        let lost =
            of(Code::ChunksEnd, ValueReading { by_sql: Some(false), ..ValueReading::default() });
        assert!(lost.concat().contains("= NULL"), "{lost:?}");
    }

    #[test]
    fn surgery_is_printed_only_for_pages_that_its_array_has_room_for() {
        let kill = |page_items| {
            let row = DamagedRow { page_items, ..row(2, Code::ToastRelation, pointer(0)) };
            let chunk = DamagedRow { page_items, ..row.clone() };
            let facts = RepairFacts { unreadable_chunks: vec![chunk], ..facts() };
            script(&facts, &[row]).concat()
        };
        assert_eq!(kill(290).matches("heap_force_kill('").count(), 2);
        for page_items in [291, 292, 2000] {
            let none = kill(page_items);
            assert!(!none.contains("heap_force_kill(") && none.contains("crash"), "{none}");
        }
        let mut revived = chunk(1, 4, Fate::NotCommitted);
        revived.page_items = 291;
        let hidden = ValueReading { is_hidden: true, ..ValueReading::default() };
        let mut facts = facts();
        facts.chunks.insert(7, vec![chunk(0, 1996, Fate::Committed), revived]);
        let none = script(&facts, &[read_row(2, Code::ChunksEnd, pointer(9), hidden)]);
        assert_eq!(code(&none), [""; 0], "{none:?}");
        let refused =
            DamagedRow { page_items: 291, is_refused: true, ..row(2, Code::NoChunks, pointer(9)) };
        let none = script(&self::facts(), &[refused]);
        assert_eq!(code(&none), [""; 0], "{none:?}");
    }

    #[test]
    fn a_chunk_is_removed_while_its_line_pointer_is_what_it_was() {
        let chunk = row(2, Code::HeaderLength, pointer(0));
        let text = script(&RepairFacts { unreadable_chunks: vec![chunk], ..facts() }, &[]).concat();
        let kill = "SELECT \"pg_catalog\".heap_force_kill('\"pg_toast\".\"pg_toast_1\"'::pg_catalog.regclass, \
                    ARRAY['(0,2)']::pg_catalog.tid[])\n  \
                    FROM \"public\".get_raw_page('\"pg_toast\".\"pg_toast_1\"'::pg_catalog.text, \
                    'main'::pg_catalog.text, (0)::pg_catalog.int8) AS page\n \
                    WHERE pg_catalog.encode(pg_catalog.substr(page, 29, 4), 'hex') = '409fc800';\n";
        assert!(text.contains(kill), "{text}");
    }

    #[test]
    fn a_row_is_removed_under_a_lock_and_after_a_trial() {
        let mut only = row(2, Code::ToastRelation, pointer(0));
        only.others.clear();
        only.values[0].column = "doc".into();
        let text = script(&RepairFacts { oid: Oid(77), ..facts() }, &[only]).concat();
        let steps = [
            "CREATE TABLE \"public\".\"toastctl_77_0_2_742\"",
            "LOCK TABLE ONLY",
            "IF EXISTS (",
            "toastctl_trial (\"doc\")",
            "heap_force_kill",
            "INSERT INTO \"t\nu\" (\"doc\")",
        ];
        let order: Vec<Option<usize>> = steps.iter().map(|step| text.find(step)).collect();
        assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{order:?}: {text}");
    }

    #[test]
    fn what_an_update_would_overwrite_or_follow_has_no_statement() {
        let of = |column: &str, code| {
            let mut row = row(2, code, pointer(9));
            row.values[0].column = column.into();
            row
        };
        let made_of = HashMap::from([("g".to_owned(), vec!["doc".to_owned()])]);
        let generated = HashSet::from(["g".to_owned()]);
        let columns = ColumnRules { made_of, generated, ..ColumnRules::default() };
        let facts = RepairFacts { columns, ..facts() };
        let base = script(&facts, &[of("doc", Code::NoChunks)]);
        assert_eq!(code(&base), [""; 0], "{base:?}");
        let generated = script(&facts, &[of("g", Code::NoChunks)]).concat();
        assert!(generated.contains("SET \"doc\" = \"doc\"\n"), "{generated}");
        let risk = Some("chunks are there twice".to_owned());
        let reading = ValueReading { is_open: true, by_chunks: true, ..ValueReading::default() };
        let mut twice = of("x", Code::ChunkTwice);
        twice.values[0].reading = Some(ValueReading { by_sql: Some(false), ..reading });
        let facts = RepairFacts { index: ToastIndexState { risk, ..index(true) }, ..facts };
        let asked = script(&facts, std::slice::from_ref(&twice)).concat();
        assert!(asked.contains("another order") && asked.contains("\\if :{?give_up}"), "{asked}");
        twice.values[0].reading.as_mut().unwrap().harms = true;
        let twice = script(&facts, &[twice]);
        assert_eq!(code(&twice), [""; 0], "{twice:?}");
        let mut custom = of("x", Code::CustomPointer);
        custom.values[0].pointer = None;
        custom.values[0].is_custom = true;
        let custom = script(&self::facts(), &[custom]);
        assert_eq!(code(&custom), [""; 0], "{custom:?}");
    }

    #[test]
    fn what_is_only_deleted_comes_back_before_anything_is_vacuumed() {
        let mut facts = facts();
        let there = [chunk(0, 1996, Fate::Committed), chunk(1, 4, Fate::NotCommitted)];
        facts.chunks.insert(7, there.to_vec());
        let pointing = |item| Reference {
            ctid: tid(item),
            column: EVIL.into(),
            value_id: 7,
            pointer: Some(pointer(9)),
            rewrite: Some("UPDATE ONLY t SET a = (ARRAY[a])[1];\n".into()),
            ..Reference::default()
        };
        facts.references = vec![pointing(2), pointing(3)];
        // row 2 is whole with its deleted chunk; row 3 has the same ID and another size
        let mut other = pointer(9);
        other.ext_info = 1900;
        let hidden = ValueReading { is_hidden: true, ..ValueReading::default() };
        let whole = read_row(2, Code::ChunksEnd, pointer(9), hidden);
        let rows = [row(3, Code::ChunkSize, other), whole];
        let script = script(&facts, &rows);
        let lines = code(&script);
        let at = |text: &str| lines.iter().position(|line| line.contains(text));
        assert!(at("heap_force_freeze").is_some() && at("REINDEX INDEX i;").is_some());
        assert_eq!((at("VACUUM"), at("= NULL")), (None, None), "{lines:?}");
    }

    #[test]
    fn what_a_rebuilt_index_would_lose_is_stored_anew_before() {
        let open = ValueReading {
            by_sql: Some(true),
            by_index: true,
            is_open: true,
            ..ValueReading::default()
        };
        for is_damaged in [true, false] {
            let risk = is_damaged.then(|| "it is not known".to_owned());
            let index = ToastIndexState { risk, ..index(is_damaged) };
            let row = read_row(2, Code::ChunkMissing, pointer(9), open.clone());
            let text = script(&RepairFacts { index, ..facts() }, &[row]).concat();
            let set =
                format!("SET {0} = {1}", quote_identifier(EVIL), fresh(&quote_identifier(EVIL)));
            assert!(text.contains(&set) && !text.contains("REINDEX INDEX"), "{text}");
            assert!(!text.contains("= NULL"), "{text}");
        }
    }

    #[test]
    fn a_damaged_index_keeps_all_other_statements_back() {
        let facts = RepairFacts { index: index(true), ..facts() };
        let rows = [row(2, Code::NoChunks, pointer(9)), row(3, Code::ToastRelation, pointer(0))];
        assert_eq!(code(&script(&facts, &rows)), ["REINDEX INDEX i;"]);
    }
}
