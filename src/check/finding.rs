//! What a check finds: one finding, what was looked at in a relation, and how both are reported.

use std::collections::HashSet;
use std::fmt;

use serde::{Serialize, Serializer};

use super::code::{Code, Severity};
use crate::offline::file::FileError;
use crate::server::LiveError;
use crate::server::about::ServerReport;
use crate::server::citus::ShardLine;
use toast_format::disk::{BlockNumber, ItemPointer, ValueId};
use toast_format::heap::problem::Place;

/// The statistics catalogs, whose rows ANALYZE can recompute.
pub(super) const PG_STATISTIC: &str = "pg_catalog.pg_statistic";
pub(super) const PG_STATISTIC_EXT_DATA: &str = "pg_catalog.pg_statistic_ext_data";

/// What to do about damaged values in them.
const STATISTICS: &str = "Statistics can be recomputed: DELETE the row by its ctid, then ANALYZE the table that it \
     describes. --salvage prints both statements.";

/// Something that is not as a server leaves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What kind of damage.
    pub code: Code,
    /// Where: bytes count from the tuple's start where an item is named, else from the page's.
    pub place: Place,
    /// What should be there.
    pub expected: String,
    pub found: String,
    /// The chunk that is damaged, where the place is that of the value.
    pub chunk: Option<ItemPointer>,
    /// The condition that names the row by its primary key, as SQL, where that can be read.
    pub row: Option<String>,
    /// The statement that repairs it, where there is one that loses nothing.
    pub sql: Option<String>,
    /// The node of Citus, if the relation is a shard of a table that was selected.
    pub node: Option<String>,
}

impl Finding {
    /// A finding at `place`.
    pub fn new(
        code: Code,
        place: Place,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Finding {
        Finding {
            code,
            place,
            expected: expected.into(),
            found: found.into(),
            chunk: None,
            row: None,
            sql: None,
            node: None,
        }
    }

    /// The line pointer of its place, if that names one.
    pub(super) fn tid(&self) -> Option<ItemPointer> {
        let (block, item) = self.place.block.zip(self.place.item)?;
        Some(ItemPointer { block, item })
    }

    /// What to do. `has_toasters`: on a server with pluggable TOAST.
    pub fn hint(&self, has_toasters: bool) -> &'static str {
        let is_statistics =
            [PG_STATISTIC, PG_STATISTIC_EXT_DATA].contains(&self.place.source.as_str());
        if is_statistics && (Code::Method..=Code::Content).contains(&self.code) {
            return STATISTICS;
        }
        self.code.hint(has_toasters)
    }

    /// Whether both are the same damage at the same place, as seen at two times.
    pub fn is_same(&self, other: &Finding) -> bool {
        self.code == other.code && self.place == other.place
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { code, place, expected, found, .. } = self;
        write!(f, "{place}: {} {}: expected {expected}, found {found}", code.name(), code.title())
    }
}

/// What was looked at in one relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, schemars::JsonSchema)]
pub struct CheckedAmounts {
    /// Blocks of the relation.
    pub blocks: u64,
    /// Blocks of its TOAST relation.
    pub toast_blocks: u64,
    /// Live rows.
    pub rows: u64,
    /// Rows for which neither hint bits nor pg_xact say whether they are live.
    #[serde(rename = "undecided_rows")]
    pub undecided: u64,
    /// Values out of line whose chunks were looked at.
    pub values: u64,
    /// Their chunks.
    pub chunks: u64,
    /// Values that were decompressed.
    pub decompressed: u64,
    /// Bytes that they gave.
    pub raw_bytes: u64,
}

impl CheckedAmounts {
    pub fn add(&mut self, other: &CheckedAmounts) {
        self.blocks += other.blocks;
        self.toast_blocks += other.toast_blocks;
        self.rows += other.rows;
        self.undecided += other.undecided;
        self.values += other.values;
        self.chunks += other.chunks;
        self.decompressed += other.decompressed;
        self.raw_bytes += other.raw_bytes;
    }
}

/// How many values there are of a kind, and where the first is.
#[derive(Debug, Clone, Default)]
pub struct NotedValues {
    pub(super) count: u64,
    pub(super) first: Option<Place>,
}

impl NotedValues {
    pub(super) fn note(&mut self, place: &Place) {
        self.count += 1;
        self.first.get_or_insert_with(|| place.clone());
    }

    /// The count, the words "values" and "were" that go with it, and the first place.
    fn words(&self) -> Option<(u64, &'static str, &'static str, &Place)> {
        let first = self.first.as_ref()?;
        let (values, were) = if self.count == 1 { ("value", "was") } else { ("values", "were") };
        Some((self.count, values, were, first))
    }

    fn add(&mut self, other: NotedValues) {
        self.count += other.count;
        self.first = self.first.take().or(other.first);
    }
}

/// What is to be said of values that are not damaged.
#[derive(Debug, Clone, Default)]
pub struct Remarks {
    /// Values of toasters, pointers and methods that are not known here, which were not looked at.
    pub(super) unknown: NotedValues,
    /// Values that were changed in place, so that the server reads them in two ways.
    pub(super) stale: NotedValues,
    /// Values whose chunks the row knows by their addresses alone.
    pub(super) by_address: NotedValues,
    /// Values of pluggable toasters that were not compared with what the server reads.
    pub(super) unread: NotedValues,
    /// Values that are not read by SQL, because the server crashes at some like them.
    pub(super) crashing: NotedValues,
}

impl Remarks {
    pub(super) fn add(&mut self, other: Remarks) {
        self.unknown.add(other.unknown);
        self.crashing.add(other.crashing);
        self.stale.add(other.stale);
        self.by_address.add(other.by_address);
        self.unread.add(other.unread);
    }
}

/// What was looked at in a relation, and how much of it is damaged.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, schemars::JsonSchema)]
pub struct Checked {
    /// Table or file.
    pub relation: String,
    /// What it is a shard of, if it belongs to a table of Citus that was selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<ShardLine>,
    #[serde(flatten)]
    pub looked: CheckedAmounts,
    /// Findings that are errors.
    pub errors: u64,
    /// Findings that are warnings.
    pub warnings: u64,
    /// Findings that are no damage.
    pub notices: u64,
    /// Whether part of what should have been looked at could not be.
    #[serde(rename = "complete", serialize_with = "negated")]
    pub is_incomplete: bool,
    /// Whether the contents of values were checked, by their types (--deep).
    pub contents_checked: bool,
    /// What was not looked at, and why.
    pub notes: Vec<String>,
    /// Chunks that findings of values name.
    #[serde(skip)]
    pub(super) claimed: HashSet<ItemPointer>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn negated<S: Serializer>(flag: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(!flag)
}

/// Why a relation could not be checked to its end.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error(transparent)]
    Live(#[from] LiveError),
    /// A file cannot be opened or read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A text cannot be read.
    #[error("{0}")]
    Text(std::io::Error),
    /// Findings could not be written.
    #[error("could not write: {0}")]
    Output(#[from] std::io::Error),
}

/// Notes that are kept.
const MAX_NOTES: usize = 100;
/// Values that rows refer to and that are kept to find those without a row: 4 bytes each.
pub(super) const MAX_KNOWN: usize = 1 << 28;
/// Why it is not known which chunks no row refers to, where nothing was found to be damaged.
pub(super) const UNREAD: &str = "not all that rows refer to could be read";

impl Checked {
    /// Nothing is looked at yet.
    pub fn new(relation: &str) -> Checked {
        Checked { relation: relation.to_owned(), ..Checked::default() }
    }

    pub(super) fn count(&mut self, finding: &Finding) {
        match finding.code.severity() {
            Severity::Error => self.errors += 1,
            Severity::Warning => self.warnings += 1,
            Severity::Notice => self.notices += 1,
        }
        self.claimed.extend(finding.chunk);
    }

    pub(super) fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if self.notes.len() < MAX_NOTES && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Notes what was not looked at.
    pub(super) fn leave_out(&mut self, what: impl Into<String>) {
        self.note(what);
        self.is_incomplete = true;
    }

    /// Whether anything was found, damage or not.
    pub(super) fn has_findings(&self) -> bool {
        self.errors + self.warnings + self.notices > 0
    }

    /// Notes what is to be said of values that are not damaged.
    pub(super) fn remark(&mut self, remarks: &Remarks) {
        if let Some((count, values, were, first)) = remarks.unknown.words() {
            self.leave_out(format!(
                "{count} {values} of unknown toasters, pointers or compression methods {were} not checked; the \
                 first is at {first}"
            ));
        }
        if let Some((count, values, were, first)) = remarks.stale.words() {
            self.note(format!(
                "{count} {values} {were} changed in place, and the server may read them in two ways, each key as it \
                 is now and the whole value as it was before; the first is at {first}"
            ));
        }
        if let Some((count, values, were, first)) = remarks.crashing.words() {
            self.leave_out(format!(
                "{count} {values} of jsonb_toaster {were} not compared with what the server reads: compressed chunk by \
                 chunk, of which the server misreads some and crashes at some; the first is at {first}"
            ));
        }
        if let Some((count, values, were, first)) = remarks.unread.words() {
            self.leave_out(format!(
                "{count} {values} of pluggable toasters {were} not compared with what the server reads, because a query \
                 could run code of other roles, or no text form of the type is known; the first is at {first}"
            ));
        }
    }

    /// Notes that values of `toast` to which no row refers were not looked for.
    pub(super) fn orphans_by_address(&mut self, toast: &str) {
        self.note(format!(
            "values of {toast} to which no row refers were not looked for: rows have the addresses of chunks instead \
             of their value IDs"
        ));
    }

    /// Notes that it is not known of the values of `toast` whether a row refers to them. `is_full`:
    /// there were more than are kept.
    pub(super) fn orphans_unseen(&mut self, toast: &str, is_full: bool) {
        let why = match self.errors {
            0 if is_full => "there are too many",
            0 => UNREAD,
            _ => "some references are damaged",
        };
        self.orphans_unknown(&format!("all values of {toast}"), why);
    }

    /// Notes that it is not known of some values whether a row refers to them. `values` names them.
    pub(super) fn orphans_unknown(&mut self, values: &str, why: &str) {
        self.leave_out(format!("cannot tell whether rows refer to {values}: {why}"));
    }
}

/// Name and version of the JSON shape.
pub const SCHEMA: &str = "toastctl.check/1";

/// A finding, one line of `jsonl` and `csv`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct FindingReport {
    /// `TC001` and so on.
    #[schemars(regex(pattern = "^TC[0-9]{3}$"))]
    pub code: &'static str,
    /// `error`, `warning` or `notice`.
    #[schemars(extend("enum" = ["error", "warning", "notice"]))]
    pub severity: &'static str,
    /// What the code means.
    pub title: &'static str,
    /// The relation or file.
    pub relation: String,
    /// Block.
    pub block: Option<u32>,
    /// Line pointer number.
    pub item: Option<u16>,
    /// Column.
    pub column: Option<String>,
    /// Bytes from the tuple's start where a tuple is meant, else from the page's.
    pub byte: Option<u64>,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
    /// The condition that names the row by its primary key, as SQL, where that can be read.
    pub row: Option<String>,
    /// What to do.
    pub hint: &'static str,
    /// The statement that repairs it, where there is one that loses nothing.
    pub sql: Option<String>,
    /// The node, host:port in the metadata of Citus, if the relation is a shard of a table that was selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

impl FindingReport {
    /// Of a finding; `has_toasters`: on a server with pluggable TOAST.
    pub fn of(finding: &Finding, has_toasters: bool) -> FindingReport {
        let Finding { code, place, expected, found, row, sql, node, .. } = finding;
        let Place { source, block, item, column, byte, .. } = place;
        FindingReport {
            code: code.name(),
            severity: code.severity().name(),
            title: code.title(),
            relation: source.clone(),
            node: node.clone(),
            block: block.map(|block| block.0),
            item: *item,
            column: column.clone(),
            byte: byte.map(|byte| byte as u64),
            expected: expected.clone(),
            found: found.clone(),
            row: row.clone(),
            hint: finding.hint(has_toasters),
            sql: sql.clone(),
        }
    }
}

/// What the document of `json` has behind its findings.
#[derive(Debug, Clone, Serialize)]
pub struct Rest {
    /// The server, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerReport>,
    /// Every relation that was looked at.
    pub relations: Vec<Checked>,
}

/// The finding for blocks of zeros in front of used ones: what stood there is lost if some chunks have no row, or some
/// values no chunks.
pub(super) fn zeros(source: &str, blocks: &[BlockNumber], is_lost: bool) -> Option<Finding> {
    let first = *blocks.first()?;
    let code = if is_lost { Code::LostRows } else { Code::ZeroPage };
    let place = Place { block: Some(first), ..Place::new(source) };
    let found = match blocks.len() {
        1 => "zeros".to_owned(),
        count => format!("zeros, in {count} blocks in all"),
    };
    Some(Finding::new(code, place, "a page in use", found))
}

/// The finding for a table in which no block is in use, although its TOAST relation has values.
pub(super) fn without_rows(source: &str) -> Finding {
    let expected = "rows that refer to the values of its TOAST relation";
    Finding::new(Code::Emptied, Place::new(source), expected, "no block in use")
}

/// The place of a tuple of `source`.
pub(super) fn place_at(source: &str, tid: ItemPointer) -> Place {
    Place { block: Some(tid.block), item: Some(tid.item), ..Place::new(source) }
}

/// The text of a finding for a value without a row.
pub(super) fn chunks_without_row(chunks: u64, value_id: ValueId, bytes: u64) -> String {
    let [c, b] = [chunks, bytes].map(|count| if count == 1 { "" } else { "s" });
    format!("{chunks} chunk{c} of value {value_id}, {bytes} byte{b}")
}
