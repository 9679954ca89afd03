//! The way to repair each damaged value, or why there is none (pure). UPDATE and DELETE remove every chunk that the TOAST
//! index finds, even another value's. Before any statement is printed, check whether the index can be trusted, whether the chunks are lost at all,
//! whether another row's value shares them, and whether SQL reads the value. What SQL reads is rewritten where all of its
//! bytes are accounted for, and never removed.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::chunk_index::{ChunkTuple, ChunksByValue};
use super::code::Code;
use super::damaged_row::{DamagedRow, DamagedValue, Reference};
use super::reading::{ValueReading, is_sound};
use super::value::{ChunkSeen, check_chunks};
use crate::server::Pageinspect;
use toast_format::disk::{BlockNumber, ItemPointer, Oid, PageSize, ToastPointer};
use toast_format::heap::problem::Place;
use toast_format::model::sql::{quote_identifier, quote_literal};
use toast_format::model::toaster::chunks::Fate;

/// The facts about a table with damaged values.
#[derive(Debug, Default)]
pub(super) struct RepairFacts {
    /// The table's name, quoted for SQL.
    pub(super) table: String,
    pub(super) oid: Oid,
    /// Its schema, quoted, with a dot.
    pub(super) schema: String,
    /// Whether it is a system catalog, whose rows only the server writes.
    pub(super) is_catalog: bool,
    /// Rows of statistics, which ANALYZE recomputes, each with the quoted name of the table it describes, if that exists.
    pub(super) statistics: HashMap<ItemPointer, Option<String>>,
    /// Its TOAST relation, quoted, with its OID.
    pub(super) toast: Option<(String, Oid)>,
    /// Whether it is on a server with pluggable TOAST.
    pub(super) has_toasters: bool,
    pub(super) index: ToastIndexState,
    pub(super) pageinspect: Option<Pageinspect>,
    /// The schema of pg_surgery, if it is installed.
    pub(super) surgery_schema: Option<String>,
    pub(super) page_size: PageSize,
    /// Whether the server may crash where it decompresses damaged data: see [`may_crash_at_pglz`].
    pub(super) may_crash_at_pglz: bool,
    /// Whether most pointers lead to another relation than pg_class names.
    pub(super) is_toast_doubtful: bool,
    /// The chunks of damaged values, by their IDs.
    pub(super) chunks: ChunksByValue,
    /// TOAST tuples whose header is wrong, so that the server misreads them.
    pub(super) unreadable_chunks: Vec<DamagedRow>,
    pub(super) references: Vec<Reference>,
    pub(super) unread: Unread,
    pub(super) columns: ColumnRules,
    /// Why an UPDATE or INSERT of one row could do something else than it says.
    pub(super) obstacle: Option<String>,
    /// Where an INSERT may fail.
    pub(super) in_the_way: Vec<Place>,
    /// Damaged rows whose unique key another live row has too, and where that is.
    pub(super) twins: HashMap<ItemPointer, ItemPointer>,
}

impl RepairFacts {
    /// A call of a function of pg_surgery for one tuple of a relation, which is quoted.
    pub(super) fn surgery(&self, function: &str, relation: &str, tid: ItemPointer) -> String {
        let schema = quote_identifier(self.surgery_schema.as_deref().unwrap_or("pg_catalog"));
        let relation = quote_literal(relation);
        format!(
            "{schema}.{function}({relation}::pg_catalog.regclass, ARRAY['{tid}']::pg_catalog.tid[])"
        )
    }
}

/// The parts of the table that could not be read.
#[derive(Debug, Clone, Default)]
pub(super) struct Unread {
    /// Blocks of the table, and of the TOAST relation.
    pub(super) heap_blocks: BTreeSet<BlockNumber>,
    pub(super) toast_blocks: BTreeSet<BlockNumber>,
    /// Whether rows were left out, which may refer to the damaged values too.
    pub(super) rows: bool,
    /// Whether pages have wrong checksums.
    pub(super) wrong_checksums: bool,
}

/// The index of the table's TOAST relation.
#[derive(Debug, Clone, Default)]
pub(super) struct ToastIndexState {
    /// The statement that rebuilds it.
    pub(super) reindex: Option<String>,
    pub(super) is_damaged: bool,
    /// Whether it leads behind the end of the TOAST relation, whose file was cut off.
    pub(super) leads_behind: bool,
    /// Why values could be lost when it is rebuilt, or why that fails.
    pub(super) risk: Option<String>,
}

/// Why a value that SQL copies may be given up.
const OF_CONTENT: &str = "SQL copies the value, and what SQL reads is not removed. But what is in it is not valid for its type: reading it may fail, \
     give something else, or crash the server.";
/// Why a value whose chunks are all there may be given up.
const OF_ORDER: &str = "SQL cannot read it: all of its chunks exist, but the TOAST index has them in another order than their numbers, and there is \
     no way to know which is right.";

/// Rules for writing the table's columns.
#[derive(Debug, Default)]
pub(super) struct ColumnRules {
    /// Columns that may not accept NULL, and why.
    pub(super) refusing_null: HashMap<String, String>,
    /// Generated columns, which cannot be written.
    pub(super) generated: HashSet<String>,
    /// The columns from which each stored generated column is computed.
    pub(super) made_of: HashMap<String, Vec<String>>,
    /// How these columns are computed, as SQL.
    pub(super) expressions: HashMap<String, String>,
}

impl ColumnRules {
    /// Why a row without these columns cannot be inserted again.
    pub(super) fn forbids_loss(&self, lost: &[&String]) -> Option<String> {
        for (other, bases) in &self.made_of {
            if !lost.contains(&other) && bases.iter().any(|base| lost.contains(&base)) {
                return Some(format!(
                    "the generated column {} is made of one that is lost, and would be computed again, from NULL.",
                    quote_identifier(other)
                ));
            }
        }
        let (column, why) = lost.iter().find_map(|name| Some((name, self.why_not_null(name)?)))?;
        Some(format!(
            "{}, which is lost, {why}. Copy the row's other columns; heap_force_kill of pg_surgery removes it; \
             insert it again.",
            quote_identifier(column)
        ))
    }

    /// Why a column may not accept NULL.
    pub(super) fn why_not_null(&self, column: &str) -> Option<&str> {
        if self.generated.contains(column) {
            return None;
        }
        self.refusing_null.get(column).map(String::as_str)
    }

    /// Why a damaged column cannot be set: it is, or feeds, a generated column.
    pub(super) fn is_bound(&self, row: &DamagedRow, column: &str) -> Option<String> {
        let made_of = &self.made_of;
        let other = made_of.iter().find(|(_, bases)| bases.iter().any(|base| base == column));
        if let Some((other, _)) = other {
            return Some(format!(
                "the generated column {} is made of it, and would be computed again, from NULL. Save that \
                 first; then UPDATE the row.",
                quote_identifier(other)
            ));
        }
        let bases = made_of.get(column)?;
        let damaged =
            bases.iter().find(|base| row.values.iter().any(|value| value.column == **base));
        if let Some(base) = damaged {
            return Some(format!(
                "it is generated from {}, which is damaged too. Repair that first, then check again.",
                quote_identifier(base)
            ));
        }
        bases.is_empty().then(|| "it is generated, and cannot be set.".to_owned())
    }

    /// The names, quoted, of those of these columns that INSERT can write.
    pub(super) fn written<'c>(&self, columns: impl Iterator<Item = &'c String>) -> Vec<String> {
        columns
            .filter(|name| !self.generated.contains(*name))
            .map(|name| quote_identifier(name))
            .collect()
    }
}

/// The way to repair a damaged value.
#[derive(Debug)]
pub(super) enum Remedy<'f> {
    /// It is lost, and no other value has its chunks.
    SetNull,
    /// It is lost, and a sound value has its ID.
    SetNullAfter(&'f Reference),
    /// All of its chunks are there, but these are deleted, or the server refuses them.
    Freeze(Vec<ChunkTuple>),
    /// An UPDATE would delete chunks of another relation, or of another value.
    StoreRowAnew,
    /// Readable only through the damaged index, so it is rewritten before REINDEX; or its pointer is wrong.
    StoreAnew,
    /// People decide whether to give it up, and why.
    GiveUp(&'static str),
    /// Nothing can be said before the index is rebuilt.
    AfterReindex,
    /// There is no statement, and why.
    None(String),
}

/// There is no statement.
fn none<'f>(why: impl Into<String>) -> Remedy<'f> {
    Remedy::None(why.into())
}

/// Damaged values, and what is known of their table.
pub(super) struct Remedies<'f> {
    facts: &'f RepairFacts,
    damaged: HashMap<(ItemPointer, &'f str), &'f DamagedValue>,
}

impl<'f> Remedies<'f> {
    pub(super) fn new(facts: &'f RepairFacts, rows: &'f [DamagedRow]) -> Remedies<'f> {
        let values = rows.iter().flat_map(|row| row.values.iter().map(move |value| (row, value)));
        let damaged = values.map(|(row, value)| ((row.ctid, value.column.as_str()), value));
        Remedies { facts, damaged: damaged.collect() }
    }

    /// The way to repair a value of a row.
    pub(super) fn remedy(&self, row: &DamagedRow, value: &DamagedValue) -> Remedy<'f> {
        let facts = self.facts;
        if value.code == Code::CustomMisread {
            return none(
                "it is not damaged: write the saved value back with an UPDATE of the row.",
            );
        }
        if value.is_custom {
            return none("its toaster would follow the damaged pointer.");
        }
        let reading = value.reading.clone().unwrap_or_default();
        let Some(pointer) = value.pointer else { return self.remedy_in_row(value, &reading) };
        let is_rebuilt = facts.index.is_damaged && facts.index.risk.is_none();
        if !self.is_own(&pointer) && is_rebuilt {
            return Remedy::AfterReindex;
        }
        if !self.is_own(&pointer) {
            return self.remedy_elsewhere(&reading);
        }
        if reading.is_hidden {
            let chunks = facts.chunks.get(&pointer.value_id.0).map_or(&[][..], Vec::as_slice);
            let hidden: Vec<ChunkTuple> = chunks.iter().filter(|c| !is_sound(c)).copied().collect();
            if !hidden.is_empty() {
                return Remedy::Freeze(hidden);
            }
        }
        if reading.by_sql == Some(true) {
            return self.remedy_of_read(row, value, &reading);
        }
        if is_rebuilt {
            return Remedy::AfterReindex;
        }
        if reading.is_open && reading.by_chunks && !reading.harms && reading.by_sql == Some(false) {
            return Remedy::GiveUp(OF_ORDER);
        }
        if reading.is_open && (reading.by_chunks || reading.harms) {
            return none(
                "the TOAST index has its chunks in another order than their numbers and IDs, or leads to another \
                 value's. There is no way to know which is right, and UPDATE would delete chunks that may be another \
                 value's. What the index leads to is saved.",
            );
        }
        if reading.harms {
            return none(
                "the TOAST index leads to chunks that another value needs, and UPDATE would delete these.",
            );
        }
        if reading.by_sql.is_none() && !row.is_refused {
            return Remedy::None(self.not_tried());
        }
        if reading.by_index && row.is_refused {
            return none(
                "SQL does not see the row, and could read the value if it did. Repair the row first: see its other \
                 findings.",
            );
        }
        self.remedy_of_unread(row, value, &pointer, &reading)
    }

    /// For a value that SQL cannot read by the index: by the chunks with its ID, and the values that share them.
    fn remedy_of_unread(
        &self,
        row: &DamagedRow,
        value: &DamagedValue,
        pointer: &ToastPointer,
        reading: &ValueReading,
    ) -> Remedy<'f> {
        let facts = self.facts;
        let chunks = facts.chunks.get(&pointer.value_id.0).map_or(&[][..], Vec::as_slice);
        let sound: Vec<ChunkSeen> = chunks.iter().filter(|c| is_sound(c)).map(|c| c.seen).collect();
        let is_whole = check_chunks(pointer, &sound, facts.page_size).is_ok();
        if is_of_chunks(value.code) && is_whole {
            return none("all of its chunks are there now. Check again.");
        }
        if is_whole && !reading.by_index {
            return none(
                "all of its chunks are there, but the TOAST index does not lead to them. REINDEX makes it readable again; it is \
                 printed as soon as it is safe. First follow the advice on the other values, then check again.",
            );
        }
        if !is_whole && !facts.unread.toast_blocks.is_empty() {
            return Remedy::None(self.unreadable());
        }
        if chunks.is_empty() {
            return Remedy::SetNull;
        }
        let (own, others): (Vec<&Reference>, Vec<&Reference>) =
            self.others(row, value).partition(|other| other.ctid == row.ctid);
        let id = pointer.value_id;
        if !own.is_empty() {
            return Remedy::StoreRowAnew;
        }
        if facts.unread.rows {
            return Remedy::None(format!(
                "not all rows of the table could be read, and another one may have its chunks (value ID \
                 {id}), which UPDATE deletes. Repair what cannot be read first, then check again."
            ));
        }
        let sound: Vec<&Reference> =
            others.into_iter().filter(|other| !self.is_lost(other)).collect();
        match sound.as_slice() {
            [] => Remedy::SetNull,
            [other]
                if other.rewrite.is_some()
                    && !facts.has_toasters
                    && !self.damaged.keys().any(|(ctid, _)| *ctid == other.ctid) =>
            {
                Remedy::SetNullAfter(other)
            }
            _ => Remedy::StoreRowAnew,
        }
    }

    /// Whether values that are damaged in their chunks, or only in the index, may be read again: all of their chunks are
    /// there, deleted ones too, or it is not known which ones are, since the index is damaged.
    pub(super) fn may_come_back(&self, row: &DamagedRow) -> bool {
        let facts = self.facts;
        let mut of_chunks = row.values.iter().filter_map(|value| {
            let is_lacking = is_of_chunks(value.code) || value.code.is_of_index();
            value.pointer.filter(|pointer| is_lacking && self.is_own(pointer))
        });
        of_chunks.any(|pointer| {
            let chunks = facts.chunks.get(&pointer.value_id.0).into_iter().flatten();
            let all: Vec<ChunkSeen> = chunks
                .filter(|chunk| !chunk.is_misread)
                .map(|chunk| ChunkSeen { fate: Fate::Committed, ..chunk.seen })
                .collect();
            facts.index.is_damaged || check_chunks(&pointer, &all, facts.page_size).is_ok()
        })
    }

    /// The other references to the chunks of a value.
    fn others(
        &self,
        row: &DamagedRow,
        value: &DamagedValue,
    ) -> impl Iterator<Item = &'f Reference> {
        let id = value.pointer.map(|pointer| pointer.value_id.0);
        self.facts.references.iter().filter(move |other| {
            let is_own = other.ctid == row.ctid && other.column == value.column;
            Some(other.value_id) == id && !is_own
        })
    }

    /// Whether the value of another reference is lost too. One that undeleted chunks complete is not.
    fn is_lost(&self, other: &Reference) -> bool {
        let value = self.damaged.get(&(other.ctid, other.column.as_str()));
        value.is_some_and(|value| {
            let is_hidden = value.reading.as_ref().is_some_and(|reading| reading.is_hidden);
            !is_hidden
        })
    }

    /// For a value in the row.
    fn remedy_in_row(&self, value: &DamagedValue, reading: &ValueReading) -> Remedy<'f> {
        match reading.by_sql {
            Some(true) if is_of_content(value.code) => Remedy::GiveUp(OF_CONTENT),
            Some(true) => none(IN_PART),
            Some(false) => Remedy::SetNull,
            None => Remedy::None(self.not_tried()),
        }
    }

    /// For a value whose pointer leads to another relation.
    fn remedy_elsewhere(&self, reading: &ValueReading) -> Remedy<'f> {
        let why = if self.facts.has_toasters {
            "its pointer leads to a relation that was not examined.".to_owned()
        } else if self.facts.is_toast_doubtful {
            "most pointers of the table lead to another relation than the reltoastrelid of pg_class, which may be what is wrong: \
             restore the catalog."
                .to_owned()
        } else if reading.by_sql == Some(true) {
            "SQL reads a value through its pointer, though from another relation: what it reads is not removed. UPDATE and \
             DELETE of the row would delete that relation's chunks."
                .to_owned()
        } else if reading.by_sql.is_none() {
            self.not_tried()
        } else {
            return Remedy::StoreRowAnew;
        };
        Remedy::None(why)
    }

    /// For a value that SQL reads by the index.
    fn remedy_of_read(
        &self,
        row: &DamagedRow,
        value: &DamagedValue,
        reading: &ValueReading,
    ) -> Remedy<'f> {
        let index = &self.facts.index;
        let is_shared = self.facts.unread.rows || self.others(row, value).next().is_some();
        if reading.harms || is_shared {
            return none(
                "SQL reads it, by chunks that another value has too, or a row that could not be read may have: UPDATE would \
                 delete these.",
            );
        }
        if is_of_content(value.code) && !reading.is_open {
            return Remedy::GiveUp(OF_CONTENT);
        }
        if reading.by_index && (reading.is_open || reading.is_whole && !is_of_chunks(value.code)) {
            return Remedy::StoreAnew;
        }
        if index.is_damaged && index.risk.is_none() {
            return Remedy::AfterReindex;
        }
        if is_of_chunks(value.code) {
            return none("SQL reads it: what it reads is not removed. Check again.");
        }
        none(IN_PART)
    }

    /// Why it is not known whether SQL reads a value.
    fn not_tried(&self) -> String {
        if !self.facts.unread.toast_blocks.is_empty() {
            return self.unreadable();
        }
        if self.facts.may_crash_at_pglz {
            return "the server may still be able to read it, but this minor release may crash where it decompresses \
                    damaged data. Update PostgreSQL to its latest minor release, then check again."
                .to_owned();
        }
        "whether SQL can read it could not be tried.".to_owned()
    }

    /// Whether a pointer leads to the table's own TOAST relation.
    pub(super) fn is_own(&self, pointer: &ToastPointer) -> bool {
        self.facts.toast.as_ref().is_some_and(|(_, oid)| pointer.toast_relation == *oid)
    }

    fn unreadable(&self) -> String {
        format!(
            "blocks of {} cannot be read ({}), and UPDATE and DELETE fail there. Copy the files. Where \
             a wrong checksum is all that is wrong with them, check again with \
             PGOPTIONS='-c ignore_checksum_failure=on'. SET zero_damaged_pages = on gives up all chunks in \
             these blocks, and comes last.",
            self.facts.toast.as_ref().map_or("the TOAST relation", |(name, _)| name),
            listed(&self.facts.unread.toast_blocks),
        )
    }
}

/// Whether servers of this version may crash where they decompress damaged data. Before 14.10, 15.5 and 16.1
/// `pglz_decompress` follows a match to before the beginning of its buffer.
pub(super) fn may_crash_at_pglz(version_num: i32) -> bool {
    matches!(version_num, ..140_010 | 150_000..150_005 | 160_000..160_001)
}

/// A list of blocks names so many at most.
const NAMED: usize = 8;

/// The first of these blocks.
pub(super) fn listed(blocks: &BTreeSet<BlockNumber>) -> String {
    let named: Vec<String> = blocks.iter().take(NAMED).map(ToString::to_string).collect();
    let more = if blocks.len() > NAMED { ", …" } else { "" };
    format!("{}{more}", named.join(", "))
}

/// Why a value that SQL reads is neither rewritten nor removed.
const IN_PART: &str = "SQL reads it, but not all of its bytes are accounted for, so that it may be shorter than it was: it is neither \
     removed nor stored for good as it reads now. Restore it from a backup, or compare what is saved with what SQL reads.";

/// Whether something is wrong with a value's chunks, so that nothing is known of what they hold.
pub(super) fn is_of_chunks(code: Code) -> bool {
    (Code::NoChunks..=Code::ChunkUnreadable).contains(&code)
}

/// Whether what is in a value is not of its type.
pub(super) fn is_of_content(code: Code) -> bool {
    (Code::Jsonb..=Code::Content).contains(&code)
}

/// Findings of one kind for which no statement was printed: how many there are, and the first place.
pub(super) fn left_over(code: Code, count: u64, first: &Place) -> String {
    let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
    commented(&format!(
        "No repair statement for {} ({}) at {first}{more}: {}",
        code.name(),
        code.title(),
        why_none(code)
    ))
}

/// Why there is no statement for a kind of damage, or none for this case of it.
fn why_none(code: Code) -> &'static str {
    match code {
        Code::PageHeader | Code::Checksum | Code::NewPage | Code::Unreadable => {
            "the server reads the page all the same, or none is known that keeps what is on it. Restore the block from a \
             backup."
        }
        Code::Misplaced => "which block was there before is not known. Restore it from a backup.",
        Code::ZeroPage | Code::LostRows | Code::Emptied => {
            "what is not in the file any more can only be restored from a backup."
        }
        Code::Catalog => {
            "the catalog is damaged, not the rows: a statement for rows could lose every value out of line. Restore \
             the catalog; until then change no row of the table."
        }
        Code::PageLsn => {
            "the WAL is damaged, not the rows. Mend what else was found, dump the database, and restore the dump into a new \
             cluster."
        }
        Code::MapBit => "VACUUM (DISABLE_PAGE_SKIPPING) corrects the map, and changes no row.",
        Code::Redirect | Code::Overlap | Code::Chain | Code::Ctid => {
            "which of the tuples is right is not known, and a statement would follow what is wrong."
        }
        Code::Infomask
        | Code::XminRange
        | Code::XmaxRange
        | Code::CommitStatus
        | Code::MultiRange
        | Code::Xvac
        | Code::AllVisible => {
            "whether SQL should see the row or chunk is not known: a statement would bring back what was deleted, or hide \
             what was not."
        }
        Code::SharedValue => {
            "which of the rows is right is not known, and UPDATE and DELETE of one delete the other's chunks."
        }
        Code::HasExternal => "SQL reads the value, and an UPDATE would leave its chunks behind.",
        Code::Orphan => "nothing is damaged; a row that was lost may have had these chunks.",
        code if is_of_chunks(code) => {
            "it is not established that SQL fails at the value, and that the chunk is still the value's."
        }
        _ => "none is known that changes only what is broken; SQL may still read the row.",
    }
}

/// Lines of a comment.
pub(super) fn commented(text: &str) -> String {
    const WIDTH: usize = 100;
    let mut out = String::new();
    let mut line = String::from("--");
    for word in text.split_whitespace() {
        if line.len() > 2 && line.len() + 1 + word.len() > WIDTH {
            out.push_str(&line);
            out.push('\n');
            line.replace_range(.., "--");
        }
        line.push(' ');
        line.push_str(word);
    }
    out + &line + "\n"
}
