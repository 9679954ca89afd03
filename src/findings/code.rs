//! Kinds of findings: names, stable for scripts, with what each means.

use serde::{Serialize, Serializer};

use Severity::{High, Low, Medium};

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
        match self {
            Severity::High => "high",
            Severity::Medium => "medium",
            Severity::Low => "low",
        }
    }
}

/// A kind of finding. Its name never changes its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the table below says what each means")]
pub enum Code {
    PlainLimit,
    ValueIds,
    OlderSetting,
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
    Precompressed,
    DroppedColumn,
    ShortLastChunk,
    UnusedSetting,
}

/// What is said of a code.
struct Entry {
    code: Code,
    name: &'static str,
    severity: Severity,
    /// What is found, and from when on.
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
const KINDS: usize = 17;

/// Less than this is lost on a small table, and is not told: 1 MB.
pub(crate) const WORTH: u64 = 1 << 20;

const TABLE: [Entry; KINDS] = [
    entry(
        Code::PlainLimit,
        "plain-limit",
        High,
        "Storage plain, in rows of over 3/4 of the longest possible.",
        "A value with storage plain is neither compressed nor moved out of the row: an INSERT or UPDATE of a \
         row that does not fit a page fails.",
    ),
    entry(
        Code::ValueIds,
        "value-ids",
        High,
        "Values out of line: over 1/4 of the 2^32 possible ones.",
        "Each value in a TOAST relation has a number of 32 bits; the fuller it gets the longer INSERT looks \
         for a free one, and at the end it finds none.",
    ),
    entry(
        Code::OlderSetting,
        "older-setting",
        Medium,
        "Not stored as the column's storage and compression say.",
        "ALTER TABLE changes no stored value, and a value that arrives compressed stays so: these are read at \
         the cost of other settings than those that are there.",
    ),
    entry(
        Code::IdleCompression,
        "idle-compression",
        Medium,
        "Compressed to over 95 % of the size (5 % of the column).",
        "Every read decompresses these values, and hardly any space is saved by that.",
    ),
    entry(
        Code::FitsTheRow,
        "fits-the-row",
        Medium,
        "Out of line where the settings would keep it in the row.",
        "A read of such a value visits the TOAST relation and its index, which it would not need to.",
    ),
    entry(
        Code::NearThreshold,
        "near-threshold",
        Medium,
        "Rows within 5 % of where values move out (20 % of rows).",
        "A few bytes decide whether a read visits one buffer, or those of the TOAST relation and its index too.",
    ),
    entry(
        Code::WideHeap,
        "wide-heap",
        Medium,
        "Storage main in long rows takes over half of the heap.",
        "Every scan of the table reads these values, also one that does not need the column.",
    ),
    entry(
        Code::DeadRows,
        "dead-rows",
        Medium,
        "Dead rows or chunks: over 25 % of a file's.",
        "They take space and are read by every scan until VACUUM removes them.",
    ),
    entry(
        Code::FreeSpace,
        "free-space",
        Medium,
        "A file could be over 30 % shorter with what it holds.",
        "Space inside the file is used again for new rows alone: backups, caches and scans carry it along.",
    ),
    entry(
        Code::BloatedIndex,
        "bloated-index",
        Medium,
        "An index takes over 1.3 times what a fresh one would.",
        "A fresh index would have fewer pages to read, to cache and to write.",
    ),
    entry(
        Code::ReadMostly,
        "read-mostly",
        Medium,
        "100 reads for each write of values compressed with pglz.",
        "Every read decompresses the value, and pglz takes about three times as long for that as lz4.",
    ),
    entry(
        Code::WriteMostly,
        "write-mostly",
        Medium,
        "10 writes for each read of values compressed with pglz.",
        "Every write compresses the value, and pglz takes several times as long for that as lz4.",
    ),
    entry(
        Code::HotKeys,
        "hot-keys",
        Medium,
        "Small keys in use, in jsonb documents out of line.",
        "A read of any key fetches and decompresses all of its document, and a change of any writes all of it again: \
         in a column of its own, a small one is read with its row.",
    ),
    entry(
        Code::Precompressed,
        "precompressed",
        Low,
        "Over half are JPEG, PNG, gzip, zip and the like.",
        "INSERT and UPDATE try to compress each of these values once more, in vain.",
    ),
    entry(
        Code::DroppedColumn,
        "dropped-column",
        Low,
        "Values of dropped columns: over 5 % of table and TOAST.",
        "DROP COLUMN leaves the values where they are, until their rows are written anew.",
    ),
    entry(
        Code::ShortLastChunk,
        "short-last-chunk",
        Low,
        "Last chunk under 10 % full (30 % of values out of line).",
        "Just over a whole number of chunks, each of these values costs one chunk more to store and to read.",
    ),
    entry(
        Code::UnusedSetting,
        "unused-setting",
        Low,
        "A compression method or toast_tuple_target without effect.",
        "Nothing is stored otherwise because of this setting, whoever set it may believe so.",
    ),
];

impl Code {
    fn entry(self) -> &'static Entry {
        // every code has one, as a test holds
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

    /// Why it matters, in a sentence.
    pub fn why(self) -> &'static str {
        self.entry().why
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Each code with what it means.
pub(crate) const MEANINGS: [(&str, &str); KINDS] = {
    let mut meanings = [("", ""); KINDS];
    let mut at = 0;
    while at < KINDS {
        meanings[at] = (TABLE[at].name, TABLE[at].meaning);
        at += 1;
    }
    meanings
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_own_line_the_worst_first() {
        for (at, entry) in TABLE.iter().enumerate() {
            assert_eq!(entry.code as usize, at, "{}", entry.name);
            assert_eq!(entry.code.name(), entry.name);
            assert_eq!(MEANINGS[at].0, entry.name);
            assert!(!entry.name.starts_with("TC"), "those are kinds of damage");
            assert!(entry.meaning.ends_with('.') && entry.why.ends_with('.'), "{}", entry.name);
        }
        assert!(TABLE.windows(2).all(|pair| pair[0].severity <= pair[1].severity));
        assert_eq!(TABLE.len(), Code::UnusedSetting as usize + 1);
    }
}
