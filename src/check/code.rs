//! Kinds of damage: the codes that findings carry, stable for scripts, with what they mean.

use Severity::{Error, Warning};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// A value or a row cannot be read as it was written.
    Error,
    /// Everything can still be read; the storage is not as a server leaves it.
    Warning,
}

impl Severity {
    /// The word in reports.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
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
    LinePointer,
    Redirect,
    Overlap,
    Chain,
    HeaderLength,
    AttributeCount,
    Infomask,
    XminRange,
    XmaxRange,
    NullBitmap,
    CommitStatus,
    MultiRange,
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
    Orphan,
    IndexEntryMissing,
    IndexEntryWrong,
    CustomPointer,
    CustomVersion,
    CustomTid,
    CustomPatch,
    CustomTidList,
}

/// What is said of a code.
struct Entry {
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
) -> Entry {
    Entry { code, name, severity, title, hint }
}

const PAGE: &str = "Restore the block from a backup; zero_damaged_pages = on gives its rows up.";
const TUPLE: &str = "Restore the row from a backup; without one, delete it by its ctid.";
const POINTER: &str = "The value cannot be read: restore it, or set the column to NULL by ctid.";
const CHUNKS: &str = "Restore the value from a backup; --salvage saves what is left of it.";
const STREAM: &str = "Restore the value; --salvage saves the bytes up to the damage.";
const CONTENT: &str = "The bytes are there, their meaning is not: restore the value from a backup.";
const INDEX: &str = "REINDEX the TOAST relation's index; the chunks themselves are there.";
const CUSTOM: &str = "The toaster cannot read the value: restore it from a backup.";

const TABLE: [Entry; 50] = [
    entry(Code::PageHeader, "TC001", Error, "page header is invalid", PAGE),
    entry(Code::Checksum, "TC002", Error, "page checksum does not match", PAGE),
    entry(Code::NewPage, "TC003", Error, "page says that it is new, but is not empty", PAGE),
    entry(Code::Unreadable, "TC004", Error, "block cannot be read", PAGE),
    entry(Code::LinePointer, "TC010", Error, "line pointer leads to no tuple", TUPLE),
    entry(Code::Redirect, "TC011", Error, "redirected line pointer leads to no tuple", TUPLE),
    entry(Code::Overlap, "TC012", Error, "two line pointers lead to the same bytes", TUPLE),
    entry(Code::Chain, "TC013", Error, "update chain on the page is broken", TUPLE),
    entry(Code::HeaderLength, "TC020", Error, "t_hoff is wrong", TUPLE),
    entry(Code::AttributeCount, "TC021", Error, "tuple has more attributes than columns", TUPLE),
    entry(Code::Infomask, "TC022", Error, "t_infomask contradicts itself", TUPLE),
    entry(Code::XminRange, "TC023", Error, "xmin is out of range", TUPLE),
    entry(Code::XmaxRange, "TC024", Error, "xmax is out of range", TUPLE),
    entry(
        Code::NullBitmap,
        "TC025",
        Warning,
        "null bitmap goes on behind the last attribute",
        TUPLE,
    ),
    entry(Code::CommitStatus, "TC026", Error, "hint bit contradicts the commit status", TUPLE),
    entry(Code::MultiRange, "TC027", Error, "MultiXact ID is out of range", TUPLE),
    entry(Code::PastEnd, "TC030", Error, "attribute ends behind the tuple", TUPLE),
    entry(Code::Varlena, "TC031", Error, "varlena length is invalid", TUPLE),
    entry(Code::LeftOver, "TC033", Error, "bytes follow the last attribute", TUPLE),
    entry(Code::Tag, "TC040", Error, "TOAST pointer has an invalid tag", POINTER),
    entry(Code::Method, "TC041", Error, "compression method is invalid", POINTER),
    entry(
        Code::HasExternal,
        "TC042",
        Error,
        "HEAP_HASEXTERNAL is missing",
        "Deleting or updating the row leaves its chunks behind; UPDATE the row with the value itself.",
    ),
    entry(Code::ToastRelation, "TC043", Error, "TOAST pointer leads to another relation", POINTER),
    entry(Code::RawSize, "TC044", Error, "raw size is out of range", POINTER),
    entry(Code::StoredSize, "TC045", Error, "stored size does not fit the raw size", POINTER),
    entry(Code::ValueId, "TC046", Error, "value ID is 0", POINTER),
    entry(Code::NoChunks, "TC050", Error, "value has no chunks", CHUNKS),
    entry(Code::ChunkMissing, "TC051", Error, "chunk is missing", CHUNKS),
    entry(Code::ChunksEnd, "TC052", Error, "chunks end early", CHUNKS),
    entry(Code::ChunkTwice, "TC053", Error, "two chunks have the same number", CHUNKS),
    entry(Code::ChunkNumber, "TC054", Error, "chunk number is out of the value's range", CHUNKS),
    entry(Code::ChunkSize, "TC055", Error, "chunk has the wrong size", CHUNKS),
    entry(Code::ChunkNull, "TC056", Error, "chunk has a NULL", CHUNKS),
    entry(Code::ChunkForm, "TC057", Error, "chunk_data is compressed or a pointer", CHUNKS),
    entry(Code::ChunkUnreadable, "TC058", Error, "chunk cannot be read", CHUNKS),
    entry(Code::InlineCompressed, "TC060", Error, "value in the row does not decompress", STREAM),
    entry(
        Code::ExternalCompressed,
        "TC061",
        Error,
        "value out of line does not decompress",
        STREAM,
    ),
    entry(
        Code::CompressionHeader,
        "TC062",
        Error,
        "compressed data disagrees with its pointer",
        STREAM,
    ),
    entry(Code::Jsonb, "TC070", Error, "jsonb is damaged", CONTENT),
    entry(Code::Encoding, "TC071", Error, "text is not valid in the database's encoding", CONTENT),
    entry(Code::Numeric, "TC072", Error, "numeric is damaged", CONTENT),
    entry(Code::Array, "TC073", Error, "array header is damaged", CONTENT),
    entry(
        Code::Orphan,
        "TC080",
        Warning,
        "no row refers to these chunks",
        "They take space and nothing else. A stock server leaves them behind with VACUUM FULL or CLUSTER; one with \
         pluggable TOAST damages values by these: dump the table there and load it again.",
    ),
    entry(Code::IndexEntryMissing, "TC081", Error, "TOAST index has no entry for a chunk", INDEX),
    entry(Code::IndexEntryWrong, "TC082", Error, "TOAST index leads to another chunk", INDEX),
    entry(Code::CustomPointer, "TC090", Error, "custom pointer is damaged", CUSTOM),
    entry(
        Code::CustomVersion,
        "TC091",
        Error,
        "version of a custom pointer does not exist",
        CUSTOM,
    ),
    entry(Code::CustomTid, "TC092", Error, "custom pointer's TID leads elsewhere", CUSTOM),
    entry(
        Code::CustomPatch,
        "TC093",
        Error,
        "custom pointer's patch reaches beyond the value",
        CUSTOM,
    ),
    entry(Code::CustomTidList, "TC094", Error, "custom pointer's list of TIDs is broken", CUSTOM),
];

impl Code {
    fn entry(self) -> &'static Entry {
        // every code has one, as a test holds
        TABLE.iter().find(|entry| entry.code == self).unwrap_or(&TABLE[0])
    }

    /// `TC001` and so on.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// How bad it is.
    pub fn severity(self) -> Severity {
        self.entry().severity
    }

    /// What it means, in few words.
    pub fn title(self) -> &'static str {
        self.entry().title
    }

    /// What to do.
    pub fn hint(self) -> &'static str {
        self.entry().hint
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
        assert_eq!(Code::CustomTidList as usize, TABLE.len() - 1);
    }
}
