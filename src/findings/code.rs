//! Kinds of findings: names, stable for scripts, with what each means.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use Severity::{High, Low, Medium};

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

/// The texts of a code.
struct Entry {
    code: Code,
    name: &'static str,
    severity: Severity,
    /// What is found, with its threshold.
    meaning: &'static str,
    why: &'static str,
}

const fn entry(
    code: Code,
    name: &'static str,
    severity: Severity,
    meaning: &'static str,
    why: &'static str,
) -> Entry {
    Entry { code, name, severity, meaning, why }
}

/// How many kinds there are.
const KINDS: usize = 23;

/// Losses below this size are not reported: 1 MB.
pub(crate) const WORTH: u64 = 1 << 20;

const TABLE: [Entry; KINDS] = [
    entry(
        Code::Damage,
        "damage",
        High,
        "Chunks are missing, or bytes on pages make no sense.",
        "Statements that read these rows fail or return something else. Only what was read is known: toastctl check looks \
         for all kinds of damage.",
    ),
    entry(
        Code::PlainLimit,
        "plain-limit",
        High,
        "Storage plain, in rows over 3/4 of the maximum row length.",
        "A value with storage plain is neither compressed nor moved out of the row, so an INSERT or UPDATE fails \
         if the row does not fit on a page.",
    ),
    entry(
        Code::ValueIds,
        "value-ids",
        High,
        "More than a quarter of the 2^32 TOAST value IDs are in use.",
        "Each out-of-line value has a 32-bit ID from the server's OID counter, which starts again after 2^32. An INSERT \
         that meets IDs in use tests one after the other, which takes seconds for a million of them, and in the end \
         there is no free one.",
    ),
    entry(
        Code::OlderSetting,
        "older-setting",
        Medium,
        "Not stored according to the column's current settings.",
        "ALTER TABLE does not change stored values, and a value that arrives compressed stays compressed: reading \
         these values costs what the old settings cost.",
    ),
    entry(
        Code::NoCompression,
        "no-compression",
        Medium,
        "Storage external, but compression would save over 20 %.",
        "Backups, caches and reads of whole values carry the uncompressed size. If statements read parts of the values \
         (substr), keep them uncompressed.",
    ),
    entry(
        Code::IdleCompression,
        "idle-compression",
        Medium,
        "Compression saves under 5 % (5 % of the column).",
        "Every read decompresses these values, although compression saves hardly any space.",
    ),
    entry(
        Code::FitsTheRow,
        "fits-the-row",
        Medium,
        "Out of line, but would now be stored in the row.",
        "Reading such a value visits the TOAST relation and its index unnecessarily.",
    ),
    entry(
        Code::NearThreshold,
        "near-threshold",
        Medium,
        "Rows within 5 % of the TOAST threshold (20 % of rows).",
        "A few bytes decide whether a read visits one buffer, or also buffers of the TOAST relation and its index.",
    ),
    entry(
        Code::WideHeap,
        "wide-heap",
        Medium,
        "Values with storage main take over half of the heap.",
        "Every scan of the table reads these values, even if it does not need the column.",
    ),
    entry(
        Code::DeadRows,
        "dead-rows",
        Medium,
        "Over 25 % of the rows or chunks in a file are dead.",
        "They take space and are read by every scan until VACUUM removes them.",
    ),
    entry(
        Code::FreeSpace,
        "free-space",
        Medium,
        "A file could be over 30 % smaller with the same contents.",
        "Free space inside a file can only be reused for new rows; backups, caches and scans carry it along.",
    ),
    entry(
        Code::BloatedIndex,
        "bloated-index",
        Medium,
        "An index is over 1.3 times as large as if rebuilt.",
        "A rebuilt index would have fewer pages to read, cache and write.",
    ),
    entry(
        Code::ReadMostly,
        "read-mostly",
        Medium,
        "Values compressed with pglz: 100 or more reads per write.",
        "Every read decompresses the value, and pglz takes about three times as long as lz4 to do so.",
    ),
    entry(
        Code::WriteMostly,
        "write-mostly",
        Medium,
        "Values compressed with pglz: 10 or more writes per read.",
        "Every write compresses the value, and pglz takes several times as long as lz4 to do so.",
    ),
    entry(
        Code::HotKeys,
        "hot-keys",
        Medium,
        "Small keys, with indexes, of out-of-line jsonb documents.",
        "Reading any key fetches and decompresses the whole document, and changing any key rewrites all of it; a \
         small key in a column of its own is read with the row.",
    ),
    entry(
        Code::FullIdentity,
        "full-identity",
        Medium,
        "REPLICA IDENTITY FULL, although the table has a key.",
        "With wal_level logical, each UPDATE or DELETE logs the whole old row, including out-of-line values, which it \
         reads for that. A key is enough to find the row on a subscriber.",
    ),
    entry(
        Code::UnchangedValues,
        "unchanged-values",
        Medium,
        "UPDATEs rewrite values that did not change (20 %).",
        "An UPDATE that sets a column stores its value out of line again, even if it is the same: it writes all chunks \
         and their WAL, and leaves as many dead ones. A column that is not set keeps its value.",
    ),
    entry(
        Code::Precompressed,
        "precompressed",
        Low,
        "Over half of the values are JPEG, PNG, gzip, zip etc.",
        "Each INSERT or UPDATE of such a value tries to compress it again, without success.",
    ),
    entry(
        Code::DroppedColumn,
        "dropped-column",
        Low,
        "Values of dropped columns: over 5 % of table and TOAST.",
        "DROP COLUMN leaves the values in place until their rows are rewritten.",
    ),
    entry(
        Code::ShortLastChunk,
        "short-last-chunk",
        Low,
        "Last chunk under 10 % full (30 % of out-of-line values).",
        "Each of these values is slightly larger than a whole number of chunks, so it needs an extra chunk that must be \
         stored and read.",
    ),
    entry(
        Code::LateVacuum,
        "late-vacuum",
        Low,
        "Dead chunks pile up before autovacuum starts (10 %).",
        "Autovacuum decides about a TOAST relation by its own chunks. By default it starts once a fifth as many of them \
         are dead as there are live ones, and the file has to have room for those.",
    ),
    entry(
        Code::UncountedVectors,
        "uncounted-vectors",
        Low,
        "Vectors are out of line although rows have room.",
        "The planner compares a sequential scan with an index scan, and decides about parallel workers, by the pages of \
         the table. Pages of the TOAST relation are not among them, so a scan of all vectors looks cheap.",
    ),
    entry(
        Code::UnusedSetting,
        "unused-setting",
        Low,
        "A compression method or toast_tuple_target without effect.",
        "This setting has no effect, although it looks as if it had one.",
    ),
];

impl Code {
    fn entry(self) -> &'static Entry {
        // every code has one, as a test verifies
        TABLE.iter().find(|entry| entry.code == self).unwrap_or(&TABLE[0])
    }

    /// `older-setting` and so on.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// How much it matters.
    pub fn severity(self) -> Severity {
        self.entry().severity
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
        self.entry().why
    }
}

/// A code's name, and what it means.
type Meaning = (&'static str, &'static str);

const ALL: [Meaning; KINDS] = {
    let mut meanings = [("", ""); KINDS];
    let mut at = 0;
    while at < KINDS {
        meanings[at] = (TABLE[at].name, TABLE[at].meaning);
        at += 1;
    }
    meanings
};

/// The number of codes that are not of severity low.
const IMPORTANT: usize = {
    let mut at = 0;
    while at < KINDS && !matches!(TABLE[at].severity, Low) {
        at += 1;
    }
    at
};

/// Each code with what it means: those of severity high and medium, and those of severity low.
pub(crate) const MEANINGS: (&[Meaning], &[Meaning]) = ALL.as_slice().split_at(IMPORTANT);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_own_line_the_worst_first() {
        for (at, entry) in TABLE.iter().enumerate() {
            assert_eq!(entry.code as usize, at, "{}", entry.name);
            assert_eq!(entry.code.name(), entry.name);
            assert_eq!(serde_json::json!(entry.code), entry.name);
            assert_eq!(ALL[at].0, entry.name);
            let is_low = MEANINGS.1.iter().any(|(name, _)| *name == entry.name);
            assert_eq!(is_low, entry.severity == Low, "{}", entry.name);
            assert!(!entry.name.starts_with("TC"), "those are kinds of damage");
            assert!(entry.meaning.ends_with('.') && entry.why.ends_with('.'), "{}", entry.name);
        }
        assert!(TABLE.windows(2).all(|pair| pair[0].severity <= pair[1].severity));
        assert_eq!(TABLE.len(), Code::UnusedSetting as usize + 1);
    }
}
