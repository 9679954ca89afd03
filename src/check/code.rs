//! Kinds of damage: the codes that findings carry, stable for scripts, with what they mean.

use Code::*;
use Severity::{Error, Notice, Warning};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// A value or a row cannot be read as it was written.
    Error,
    /// Everything can still be read; the storage is not as a server leaves it.
    Warning,
    /// No damage: sound servers leave this too, and it costs space.
    Notice,
}

impl Severity {
    /// The word in reports.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Notice => "notice",
        }
    }
}

/// A kind of damage. Its number never changes its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the table below says what each means")]
pub enum Code {
    PageHeader,
    Checksum,
    NewPage,
    Unreadable,
    Misplaced,
    ZeroPage,
    LostRows,
    Emptied,
    Catalog,
    LinePointer,
    Redirect,
    Overlap,
    Chain,
    Ctid,
    PageLsn,
    MapBit,
    HeaderLength,
    AttributeCount,
    Infomask,
    XminRange,
    XmaxRange,
    NullBitmap,
    CommitStatus,
    MultiRange,
    Xvac,
    AllVisible,
    PastEnd,
    Varlena,
    LeftOver,
    Tag,
    Method,
    HasExternal,
    ToastRelation,
    RawSize,
    StoredSize,
    ValueId,
    SharedValue,
    NoChunks,
    ChunkMissing,
    ChunksEnd,
    ChunkTwice,
    ChunkNumber,
    ChunkSize,
    ChunkNull,
    ChunkForm,
    ChunkUnreadable,
    InlineCompressed,
    ExternalCompressed,
    CompressionHeader,
    Jsonb,
    Encoding,
    Numeric,
    Array,
    Content,
    Orphan,
    IndexEntryMissing,
    IndexEntryWrong,
    IndexUnreadable,
    CustomPointer,
    CustomVersion,
    CustomTid,
    CustomPatch,
    CustomTidList,
    CustomMisread,
}

/// The texts of a code.
struct CodeEntry {
    code: Code,
    name: &'static str,
    severity: Severity,
    title: &'static str,
    hint: &'static str,
}

const fn entry(
    code: Code,
    name: &'static str,
    severity: Severity,
    title: &'static str,
    hint: &'static str,
) -> CodeEntry {
    CodeEntry { code, name, severity, title, hint }
}

const PAGE: &str = "Restore the block from a backup. Without a backup, copy the table's files first; --salvage then saves \
     the rows that can be told apart; use zero_damaged_pages = on only as a last resort: all rows of the page are lost.";
const CHECKSUM: &str = "Restore the block from a backup. Without one its rows can mostly be read. In this order: \
     copy the table's files; read the copy with --ignore-checksums; save what is damaged there with \
     --salvage; SET ignore_checksum_failure = on reads the page on the server, and with \
     PGOPTIONS='-c ignore_checksum_failure=on' this check prints SQL that sets single values to NULL; \
     use zero_damaged_pages = on only as a last resort: all rows of the page are lost.";
const MISPLACED: &str = "Blocks were exchanged, or one was copied over another. Copy the table's files, and restore the \
     block from a backup. Without one, REINDEX the table and its TOAST relation: whatever is still there can then be read.";
const ZEROS: &str = "No damage by itself: a crash leaves such blocks when a table grows. If rows are missing, restore the block \
     from a backup.";
const LOST: &str = "What these blocks held is lost. Restore them from a backup. Without one, copy the files before you \
     change anything. Where rows are lost, their values out of line may still be in the TOAST relation: --salvage saves \
     those to which no row refers.";
const EMPTIED: &str = "The file was lost, emptied or cut off. Restore it from a backup. Without one, copy the files before \
     you change anything: the chunks of lost rows may still be there. If a VACUUM was cancelled after it had emptied the \
     table, nothing is lost, and ANALYZE corrects the catalog.";
const CATALOG: &str = "The catalog is damaged, not the table's rows: what pg_class, pg_attribute, pg_index and pg_depend say of it does not go \
     together. Change no row: restore the catalog's row first, from a backup or by hand with allow_system_table_mods; an \
     invalid index is rebuilt by REINDEX. Then check again.";
const CTID: &str = "Chunks were exchanged. REINDEX the TOAST relation's index only where that statement is printed below or in \
     repair.sql (--salvage), and check again; heap_force_freeze of the extension pg_surgery then gives the chunk its address.";
const LSN: &str = "The end of the WAL was lost, or reset by pg_resetwal: the server cannot write such a page, and others may be \
     older than it. Dump the database with pg_dump, and restore the dump into a new cluster; what else a check finds, mend \
     first: a dump holds what the server reads.";
const MAP: &str = "Index-only scans may return rows that are gone, and VACUUM skips the page: \
     VACUUM (DISABLE_PAGE_SKIPPING) the table corrects the map.";
const SHARED: &str = "One of the rows has lost its value, or is an older version of the other that came back. UPDATE and \
     DELETE of one delete the other's chunks: change neither, and restore the rows from a backup.";
const TUPLE: &str = "Restore the row from a backup. Without a backup, copy the table's files, and save what SELECT \
     reads of the row; then heap_force_kill of the extension pg_surgery removes it by its ctid, where \
     DELETE may fail or crash the server.";
const REDIRECT: &str =
    "Restore the row from a backup: SQL does not see it. The other rows can be read.";
const BITMAP: &str = "The row can be read; an UPDATE of it writes a sound one.";
const XID: &str = "The server sees the row by mistake, or not at all, and UPDATE and DELETE refuse it. Restore it \
     from a backup; without one copy the table's files: heap_force_freeze of the extension pg_surgery \
     then makes the row, or chunk, visible by its ctid, also one that was deleted.";
const VISIBLE: &str = "SQL sees rows that were deleted or never committed: VACUUM (DISABLE_PAGE_SKIPPING) the table corrects the \
     page.";
const POINTER: &str =
    "The value cannot be read: restore it from a backup; --salvage prints SQL that gives it up.";
const RELATION: &str = "The value cannot be read, and UPDATE and DELETE of the row fail or delete another table's \
     chunks. Restore the row from a backup; --salvage prints SQL that removes it and stores it again \
     without the value.";
const CHUNKS: &str = "Restore the value from a backup; --salvage saves what can still be read. Keep VACUUM and autovacuum from \
     the table until then: they remove deleted chunks that could be saved.";
const STREAM: &str =
    "Restore the value; --salvage saves what decompresses, which may be wrong after the damage.";
const CONTENT: &str = "The bytes are there, their meaning is not: restore the value from a backup.";
const INDEX: &str = "Change no row: UPDATE and DELETE follow the index, and may delete other values' chunks. REINDEX the TOAST \
     relation's index only where that statement is printed below or in repair.sql (--salvage): elsewhere it may lose values \
     that can be read now. Then check again.";
const CUSTOM: &str = "The toaster cannot read the value: restore it from a backup.";
const MISREAD: &str = "The value is there: toastctl value TABLE --reassemble=DIR saves it, and an UPDATE of the row with the saved \
     value stores it again. Do not convert, copy or dump the row before: that would store what the server reads.";
const ORPHAN: &str = "Usually no damage: a VACUUM FULL or CLUSTER that copied recently deleted rows left these chunks. If rows \
     may have been lost, save the chunks first. The next VACUUM FULL removes them.";
/// Servers with pluggable TOAST were crashed by VACUUM FULL.
const ORPHAN_PLUGGABLE: &str = "No damage: they take space and nothing else. On this server do not have the table \
     rewritten, which damages values. Only a dump and restore removes them, which is safe once this check ends with \
     exit code 0: a dump holds what the server reads, and it misreads some values.";

const TABLE: [CodeEntry; 64] = [
    entry(PageHeader, "TC001", Error, "page header is invalid", PAGE),
    entry(Checksum, "TC002", Error, "page checksum does not match", CHECKSUM),
    entry(NewPage, "TC003", Error, "page says that it is new, but is not empty", PAGE),
    entry(Unreadable, "TC004", Error, "block cannot be read", PAGE),
    entry(Misplaced, "TC005", Error, "page belongs to another block", MISPLACED),
    entry(ZeroPage, "TC006", Notice, "block of zeros stands before used ones", ZEROS),
    entry(LostRows, "TC007", Error, "block was in use, and is zeros or gone", LOST),
    entry(Emptied, "TC008", Error, "file is missing, or has no block in use", EMPTIED),
    entry(Catalog, "TC009", Error, "the catalog contradicts itself about the table", CATALOG),
    entry(LinePointer, "TC010", Error, "line pointer leads to no tuple", TUPLE),
    entry(Redirect, "TC011", Error, "redirected line pointer leads to no tuple", REDIRECT),
    entry(Overlap, "TC012", Error, "two line pointers lead to the same bytes", TUPLE),
    entry(Chain, "TC013", Error, "update chain on the page is broken", TUPLE),
    entry(Ctid, "TC014", Warning, "t_ctid of a chunk is not its own address", CTID),
    entry(PageLsn, "TC015", Warning, "page's LSN is beyond the end of the WAL", LSN),
    entry(MapBit, "TC016", Error, "visibility map says all-visible of a changed page", MAP),
    entry(HeaderLength, "TC020", Error, "t_hoff is wrong", TUPLE),
    entry(AttributeCount, "TC021", Error, "tuple has more attributes than columns", TUPLE),
    entry(Infomask, "TC022", Error, "t_infomask contradicts itself", TUPLE),
    entry(XminRange, "TC023", Error, "xmin is out of range", XID),
    entry(XmaxRange, "TC024", Error, "xmax is out of range", XID),
    entry(NullBitmap, "TC025", Warning, "null bitmap goes on behind the last attribute", BITMAP),
    entry(CommitStatus, "TC026", Error, "hint bit contradicts the commit status", XID),
    entry(MultiRange, "TC027", Error, "MultiXact ID is out of range", XID),
    entry(Xvac, "TC028", Error, "xvac is out of range", XID),
    entry(AllVisible, "TC029", Error, "deleted tuple on an all-visible page", VISIBLE),
    entry(PastEnd, "TC030", Error, "attribute ends behind the tuple", TUPLE),
    entry(Varlena, "TC031", Error, "varlena length is invalid", TUPLE),
    entry(LeftOver, "TC033", Error, "bytes follow the last attribute", TUPLE),
    entry(Tag, "TC040", Error, "TOAST pointer has an invalid tag", TUPLE),
    entry(Method, "TC041", Error, "compression method is invalid", POINTER),
    entry(
        HasExternal,
        "TC042",
        Error,
        "HEAP_HASEXTERNAL is missing",
        "Deleting or updating the row leaves its chunks behind; UPDATE the row with the value itself.",
    ),
    entry(ToastRelation, "TC043", Error, "TOAST pointer leads to another relation", RELATION),
    entry(RawSize, "TC044", Error, "raw size is out of range", POINTER),
    entry(StoredSize, "TC045", Error, "stored size does not fit the raw size", POINTER),
    entry(ValueId, "TC046", Error, "value ID is 0", POINTER),
    entry(SharedValue, "TC047", Error, "two rows have the same value ID", SHARED),
    entry(NoChunks, "TC050", Error, "value has no chunks", CHUNKS),
    entry(ChunkMissing, "TC051", Error, "chunk is missing", CHUNKS),
    entry(ChunksEnd, "TC052", Error, "chunks end early", CHUNKS),
    entry(ChunkTwice, "TC053", Error, "two chunks have the same number", CHUNKS),
    entry(ChunkNumber, "TC054", Error, "chunk number is out of the value's range", CHUNKS),
    entry(ChunkSize, "TC055", Error, "chunk has the wrong size", CHUNKS),
    entry(ChunkNull, "TC056", Error, "chunk has a NULL", CHUNKS),
    entry(ChunkForm, "TC057", Error, "chunk_data is compressed or a pointer", CHUNKS),
    entry(ChunkUnreadable, "TC058", Error, "chunk cannot be read", CHUNKS),
    entry(InlineCompressed, "TC060", Error, "value in the row does not decompress", STREAM),
    entry(ExternalCompressed, "TC061", Error, "value out of line does not decompress", STREAM),
    entry(CompressionHeader, "TC062", Error, "compressed data disagrees with its pointer", STREAM),
    entry(Jsonb, "TC070", Error, "jsonb is damaged", CONTENT),
    entry(Encoding, "TC071", Error, "text is not valid in the database's encoding", CONTENT),
    entry(Numeric, "TC072", Error, "numeric is damaged", CONTENT),
    entry(Array, "TC073", Error, "array is damaged", CONTENT),
    entry(Content, "TC074", Error, "value is not one of its type", CONTENT),
    entry(Orphan, "TC080", Notice, "no row refers to these chunks", ORPHAN),
    entry(IndexEntryMissing, "TC081", Error, "TOAST index has no entry for a chunk", INDEX),
    entry(IndexEntryWrong, "TC082", Error, "TOAST index leads to another chunk", INDEX),
    entry(IndexUnreadable, "TC083", Error, "TOAST index is damaged", INDEX),
    entry(CustomPointer, "TC090", Error, "custom pointer is damaged", CUSTOM),
    entry(CustomVersion, "TC091", Error, "version of a custom pointer does not exist", CUSTOM),
    entry(CustomTid, "TC092", Error, "custom pointer's TID leads elsewhere", CUSTOM),
    entry(CustomPatch, "TC093", Error, "custom pointer's patch reaches beyond the value", CUSTOM),
    entry(CustomTidList, "TC094", Error, "custom pointer's list of TIDs is broken", CUSTOM),
    entry(CustomMisread, "TC095", Error, "server misreads a value whose chunks are sound", MISREAD),
];

impl Code {
    fn entry(self) -> &'static CodeEntry {
        // every code has one, as a test holds
        TABLE.iter().find(|entry| entry.code == self).unwrap_or(&TABLE[0])
    }

    /// The code with this name, in letters of either case.
    pub fn named(name: &str) -> Option<Code> {
        let found = TABLE.iter().find(|entry| entry.name.eq_ignore_ascii_case(name));
        found.map(|entry| entry.code)
    }

    /// `TC001` and so on.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// How bad it is.
    pub fn severity(self) -> Severity {
        self.entry().severity
    }

    /// Its meaning in few words.
    pub fn title(self) -> &'static str {
        self.entry().title
    }

    /// What to do. `has_toasters`: on a server with pluggable TOAST.
    pub fn hint(self, has_toasters: bool) -> &'static str {
        match self {
            Code::Orphan if has_toasters => ORPHAN_PLUGGABLE,
            _ => self.entry().hint,
        }
    }

    /// Whether `--salvage` saves what is left of the value.
    pub fn is_saved(self) -> bool {
        [POINTER, RELATION, CHUNKS, STREAM].contains(&self.entry().hint)
    }

    /// Whether the index of the TOAST relation is what is damaged.
    pub(super) fn is_of_index(self) -> bool {
        matches!(self, Code::IndexEntryMissing | Code::IndexEntryWrong | Code::IndexUnreadable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_own_line_in_order() {
        for (at, entry) in TABLE.iter().enumerate() {
            assert_eq!(entry.code as usize, at, "{}", entry.name);
            assert_eq!(entry.code.name(), entry.name);
        }
        assert!(TABLE.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert_eq!(Code::CustomMisread as usize, TABLE.len() - 1);
    }

    #[test]
    fn servers_with_pluggable_toast_are_never_told_to_rewrite_a_table() {
        for entry in &TABLE {
            let hint = entry.code.hint(true);
            assert!(!hint.contains("VACUUM FULL") && !hint.contains("CLUSTER"), "{}", entry.name);
        }
        assert!(Code::Orphan.hint(false).contains("VACUUM FULL"));
    }
}
