//! Kinds of findings: names, stable for scripts, with what each means.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much a finding matters.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Statements fail, or will.
    High,
    /// Time or space is lost all the time.
    Medium,
    /// A little is lost, or something is not as it seems.
    Low,
}

impl Severity {
    /// The word in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A kind of finding. Its name never changes its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the table below says what each means")]
pub enum Code {
    Damage,
    PlainLimit,
    ValueIds,
    OlderSetting,
    NoCompression,
    IdleCompression,
    FitsTheRow,
    NearThreshold,
    WideHeap,
    DeadRows,
    FreeSpace,
    BloatedIndex,
    ReadMostly,
    WriteMostly,
    HotKeys,
    FullIdentity,
    UnchangedValues,
    Precompressed,
    DroppedColumn,
    ShortLastChunk,
    LateVacuum,
    UncountedVectors,
    UnusedSetting,
}

/// Losses below this size are not reported: 1 MB.
pub(crate) const WORTH: u64 = 1 << 20;

/// How many kinds there are.
const KINDS: usize = 23;

/// A code's name, and what is found, with its threshold.
type Meaning = (&'static str, &'static str);

/// What each code means, and why it matters.
const TABLE: [(Meaning, &str); KINDS] = [
    (
        ("damage", "Chunks are missing, or bytes on pages make no sense."),
        "Statements that read these rows fail or return something else. Only what was read is known: toastctl check looks \
         for all kinds of damage.",
    ),
    (
        ("plain-limit", "Storage plain, in rows over 3/4 of the maximum row length."),
        "A value with storage plain is neither compressed nor moved out of the row, so an INSERT or UPDATE fails \
         if the row does not fit on a page.",
    ),
    (
        ("value-ids", "More than a quarter of the 2^32 TOAST value IDs are in use."),
        "Each out-of-line value has a 32-bit ID from the server's OID counter, which starts again after 2^32. An INSERT \
         that meets IDs in use tests one after the other, which takes seconds for a million of them, and in the end \
         there is no free one.",
    ),
    (
        ("older-setting", "Not stored according to the column's current settings."),
        "ALTER TABLE does not change stored values, and a value that arrives compressed stays compressed: reading \
         these values costs what the old settings cost.",
    ),
    (
        ("no-compression", "Storage external, but compression would save over 20 %."),
        "Backups, caches and reads of whole values carry the uncompressed size. If statements read parts of the values \
         (substr), keep them uncompressed.",
    ),
    (
        ("idle-compression", "Compression saves under 5 % (5 % of the column)."),
        "Every read decompresses these values, although compression saves hardly any space.",
    ),
    (
        ("fits-the-row", "Out of line, but would now be stored in the row."),
        "Reading such a value visits the TOAST relation and its index unnecessarily.",
    ),
    (
        ("near-threshold", "Rows within 5 % of the TOAST threshold (20 % of rows)."),
        "A few bytes decide whether a read visits one buffer, or also buffers of the TOAST relation and its index.",
    ),
    (
        ("wide-heap", "Values with storage main take over half of the heap."),
        "Every scan of the table reads these values, even if it does not need the column.",
    ),
    (
        ("dead-rows", "Over 25 % of the rows or chunks in a file are dead."),
        "They take space and are read by every scan until VACUUM removes them.",
    ),
    (
        ("free-space", "A file could be over 30 % smaller with the same contents."),
        "Free space inside a file can only be reused for new rows; backups, caches and scans carry it along.",
    ),
    (
        ("bloated-index", "An index is over 1.3 times as large as if rebuilt."),
        "A rebuilt index would have fewer pages to read, cache and write.",
    ),
    (
        ("read-mostly", "Values compressed with pglz: 100 or more reads per write."),
        "Every read decompresses the value, and pglz takes about three times as long as lz4 to do so.",
    ),
    (
        ("write-mostly", "Values compressed with pglz: 10 or more writes per read."),
        "Every write compresses the value, and pglz takes several times as long as lz4 to do so.",
    ),
    (
        ("hot-keys", "Small keys, with indexes, of out-of-line jsonb documents."),
        "Reading any key fetches and decompresses the whole document, and changing any key rewrites all of it; a \
         small key in a column of its own is read with the row.",
    ),
    (
        ("full-identity", "REPLICA IDENTITY FULL, although the table has a key."),
        "With wal_level logical, each UPDATE or DELETE logs the whole old row, including out-of-line values, which it \
         reads for that. A key is enough to find the row on a subscriber.",
    ),
    (
        ("unchanged-values", "UPDATEs rewrite values that did not change (20 %)."),
        "An UPDATE that sets a column stores its value out of line again, even if it is the same: it writes all chunks \
         and their WAL, and leaves as many dead ones. A column that is not set keeps its value.",
    ),
    (
        ("precompressed", "Over half of the values are JPEG, PNG, gzip, zip etc."),
        "Each INSERT or UPDATE of such a value tries to compress it again, without success.",
    ),
    (
        ("dropped-column", "Values of dropped columns: over 5 % of table and TOAST."),
        "DROP COLUMN leaves the values in place until their rows are rewritten.",
    ),
    (
        ("short-last-chunk", "Last chunk under 10 % full (30 % of out-of-line values)."),
        "Each of these values is slightly larger than a whole number of chunks, so it needs an extra chunk that must be \
         stored and read.",
    ),
    (
        ("late-vacuum", "Dead chunks pile up before autovacuum starts (10 %)."),
        "Autovacuum decides about a TOAST relation by its own chunks. By default it starts once a fifth as many of them \
         are dead as there are live ones, and the file has to have room for those.",
    ),
    (
        ("uncounted-vectors", "Vectors are out of line although rows have room."),
        "The planner compares a sequential scan with an index scan, and decides about parallel workers, by the pages of \
         the table. Pages of the TOAST relation are not among them, so a scan of all vectors looks cheap.",
    ),
    (
        ("unused-setting", "A compression method or toast_tuple_target without effect."),
        "This setting has no effect, although it looks as if it had one.",
    ),
];

impl Code {
    fn texts(self) -> (Meaning, &'static str) {
        // every code has its texts, as a test verifies
        TABLE.get(self as usize).copied().unwrap_or_default()
    }

    /// `older-setting` and so on.
    pub fn name(self) -> &'static str {
        self.texts().0.0
    }

    /// How much it matters.
    pub fn severity(self) -> Severity {
        match self {
            Code::Damage | Code::PlainLimit | Code::ValueIds => Severity::High,
            code if code < FIRST_LOW => Severity::Medium,
            _ => Severity::Low,
        }
    }

    /// Whether it is a symptom of settings, for which `advise-threshold` knows the command if there is one: what better
    /// settings are depends on more than a rule sees.
    pub(crate) fn asks_for_advice(self) -> bool {
        matches!(
            self,
            Code::OlderSetting
                | Code::NoCompression
                | Code::IdleCompression
                | Code::FitsTheRow
                | Code::NearThreshold
                | Code::WideHeap
                | Code::ReadMostly
                | Code::WriteMostly
                | Code::Precompressed
                | Code::ShortLastChunk
                | Code::UncountedVectors
        )
    }

    /// Why it matters, in a sentence.
    pub fn why(self) -> &'static str {
        self.texts().1
    }
}

const ALL: [Meaning; KINDS] = {
    let mut meanings = [("", ""); KINDS];
    let mut at = 0;
    while at < KINDS {
        meanings[at] = TABLE[at].0;
        at += 1;
    }
    meanings
};

/// The first code of severity low: the worst come first.
const FIRST_LOW: Code = Code::Precompressed;

/// Each code with what it means: those of severity high and medium, and those of severity low.
pub(crate) const MEANINGS: (&[Meaning], &[Meaning]) = ALL.as_slice().split_at(FIRST_LOW as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_own_line_the_worst_first() {
        let mut worst = Severity::High;
        for (at, &((name, meaning), why)) in TABLE.iter().enumerate() {
            let code: Code = serde_json::from_value(serde_json::json!(name)).unwrap();
            assert_eq!((code as usize, code.name()), (at, name));
            assert_eq!(ALL[at].0, name);
            let is_low = MEANINGS.1.iter().any(|(low, _)| *low == name);
            assert_eq!(is_low, code.severity() == Severity::Low, "{name}");
            assert!(!name.starts_with("TC"), "those are kinds of damage");
            assert!(meaning.ends_with('.') && why.ends_with('.'), "{name}");
            worst = worst.max(code.severity());
            assert_eq!(worst, code.severity(), "{name}");
        }
        assert_eq!(TABLE.len(), Code::UnusedSetting as usize + 1);
    }
}
