//! The state of scans of one table: connections, the snapshot, and what has been seen.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::retoast::memory::since::{CutOff, Since};
use crate::retoast::preflight::ready::{Choice, PreparedTable};
use crate::retoast::result::{FormReport, SkippedRow};
use crate::retoast::sql::Target;
use crate::retoast::sweep::machine::Row;
use crate::retoast::sweep::readings::ReassembledValues;
use crate::retoast::task::guard::{Reading, Reads};
use crate::server::{Connection, LiveResult, Moment, Pageinspect, Server, snapshot};
use crate::value::reading::CustomDatum;
use toast_format::codec::Method;
use toast_format::disk::ItemPointer;
use toast_format::heap::sample::KEPT;
use toast_format::judge::policy::Seen;
use toast_format::judge::stock::CompressedSize;
use toast_format::model::stored::FunctionAnswer;
use toast_format::model::toast::{Incoming, Table};
use toast_format::model::{Form, StoredValue};

/// The maximum number of bytes of values passed to a judge at a time, unless a single value has more.
pub(crate) const JUDGED_BYTES: u64 = 32 << 20;

/// Reads a table's rows in chunks of blocks, and selects those that do not comply.
pub struct Scanner<'a> {
    /// A separate connection, because no snapshot may be held while batches run.
    pub connection: Arc<Connection>,
    /// The connection for trials that a policy requires, which have transactions of their own.
    pub asker: Arc<Connection>,
    pub server: &'a Server,
    pub ready: &'a PreparedTable,
    pub(super) choice: &'a Choice,
    /// How reading transactions on the table begin.
    pub(super) reading: Reading<'a>,
    /// How to read pages; without it, SQL functions describe the rows.
    pub pages: Option<&'a Pageinspect>,
    pub(super) trials: TrialTables,
    /// The rows of the current chunk that do not comply, and those on which the server must decide.
    pub(super) found: Vec<Row>,
    pub(super) open: Vec<Candidate>,
    /// What the current scan has seen.
    pub seen: Scanned,
    /// What is kept of the pages read; only while they are read for a forecast.
    pub(super) sampled: Option<Sampled>,
    /// The sweep's own transactions since the scan began, whose rows were seen before.
    pub(super) own: HashSet<u32>,
    /// The transactions of this run. Their rows do not count as written since, and were stored under the run's
    /// settings.
    pub(super) ours: HashSet<u32>,
    /// What is known to be unreadable.
    pub(super) damage: Damage,
    /// Values of pluggable toasters on the pages that are being read.
    pub(super) customs: HashMap<ItemPointer, Vec<CustomDatum>>,
    /// The snapshot that is kept from chunk to chunk.
    pub held: Option<Held>,
    /// The part of the state that scans with a policy need.
    pub by_rule: RuleScan<'a>,
}

/// What a scan has seen so far. Before blocks are read again, what was counted of them is removed.
#[derive(Debug, Clone, Default)]
pub struct Scanned {
    pub tally: Tally,
    /// What could not be read.
    pub problems: Vec<SkippedRow>,
    /// Rows that are left because the server misreads a value.
    pub(super) misread: u64,
    /// How to repair that.
    pub(super) hints: Vec<String>,
    /// Rows that cannot be stored as requested; set only while scanning for these alone.
    pub(super) unfit: Option<Unfit>,
    /// Rows that may be too long for an index; set only while scanning for these alone.
    pub(super) long_rows: Option<LongRows>,
    /// With a policy, the forms that the values would have; counted only if all values are judged.
    pub(super) planned: Tally,
    /// With a policy, how much complies, for each chosen column; counted only if all values are judged.
    pub shares: Vec<Share>,
    /// The number of rows written later than those that the scan covers.
    pub(super) written_since: u64,
    /// Rows of which it is not known, without pages, whether the server would compress values that are not compressed.
    pub(super) undecided: u64,
    /// The bytes of chunks of all columns' values, with line pointers; unless SQL functions are asked.
    pub(super) outside: u64,
}

/// The temporary tables for trials.
#[derive(Debug, Clone, Default)]
pub(super) struct TrialTables {
    /// The columns for which there is one.
    pub(super) columns: HashSet<usize>,
    /// Whether there is one for whole rows.
    pub(super) rows: bool,
}

/// An open transaction, and the trial tables from before it, the only ones that remain if it fails.
pub struct Held {
    pub(super) moment: Moment,
    pub(super) trials: TrialTables,
}

/// A row that may have to be re-toasted.
pub(crate) struct Candidate {
    pub(super) row: Row,
    /// By column index; empty if the row was not read from a page.
    pub(super) values: Vec<StoredValue>,
    pub(super) open: Vec<usize>,
}

impl Candidate {
    /// Whether the column's value is external.
    pub(super) fn is_outside(&self, target: &Target) -> bool {
        self.values.get(target.index).is_some_and(|value| value.form.is_external())
    }
}

impl<'a> Scanner<'a> {
    /// Creates the state before the first scan.
    pub fn new(
        connection: &Arc<Connection>,
        asker: &Arc<Connection>,
        server: &'a Server,
        ready: &'a PreparedTable,
        choice: &'a Choice,
        pages: Option<&'a Pageinspect>,
        by_rule: RuleScan<'a>,
    ) -> Scanner<'a> {
        Scanner {
            connection: Arc::clone(connection),
            asker: Arc::clone(asker),
            server,
            ready,
            choice,
            reading: Reading { ready, known: None },
            pages,
            trials: TrialTables::default(),
            found: Vec::new(),
            open: Vec::new(),
            seen: Scanned::default(),
            sampled: None,
            own: HashSet::new(),
            ours: HashSet::new(),
            damage: Damage::default(),
            customs: HashMap::new(),
            held: None,
            by_rule,
        }
    }
}

impl Scanner<'_> {
    /// Keeps one snapshot for all chunks from now on. Without it, a scan could miss a row that moves from a block not
    /// yet read to one already read. The table's lock is taken before the snapshot, so commands that need `ACCESS
    /// EXCLUSIVE`, such as all rewrites and most changes of settings, wait until the end. Like every snapshot, it
    /// keeps dead rows from being removed; end it with [`Scanner::release`] before rows are re-toasted, and before
    /// long waits.
    pub async fn hold(&mut self) -> LiveResult<()> {
        self.release().await?;
        self.held = Some(self.begin(Reads::WholeScan).await?);
        Ok(())
    }

    /// Releases the snapshot, if there is one.
    pub async fn release(&mut self) -> LiveResult<()> {
        match self.held.take() {
            Some(_) => snapshot::end(self.connection.client()).await,
            None => Ok(()),
        }
    }

    pub(super) async fn begin(&self, reads: Reads) -> LiveResult<Held> {
        let moment = self.reading.begin(&self.connection, reads).await?;
        Ok(Held { moment, trials: self.trials.clone() })
    }

    /// The indexes of the chosen columns, and of the columns that are computed from them.
    pub(crate) fn indexes(&self) -> (Vec<usize>, Vec<usize>) {
        let targets = self.ready.targets.iter().map(|column| column.index);
        let follow = self.choice.follow.iter().map(|column| column.index);
        (targets.collect(), follow.collect())
    }
}

/// Rows that cannot be stored as requested.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unfit {
    /// The number of these rows.
    pub rows: u64,
    /// The address of the first one.
    pub first: Option<String>,
}

impl Unfit {
    pub fn add(&mut self, ctid: String) {
        self.rows += 1;
        self.first.get_or_insert(ctid);
    }
}

/// The maximum number of rows whose values the server compresses; the longest are taken.
const MOST_LONG: usize = 256;

/// A row that may be too long for an index.
#[derive(Debug, Clone)]
pub(super) struct LongRow {
    pub(super) ctid: ItemPointer,
    pub(super) values: Vec<Incoming>,
    /// Bytes of the values, decompressed.
    pub(super) bytes: u64,
}

/// The longest of the rows that may be too long for an index.
#[derive(Debug, Clone)]
pub(super) struct LongRows {
    pub(super) rows: Vec<LongRow>,
    /// The table with the chosen settings, and the indexes that are examined.
    pub(super) model: Table,
    /// The table with its present settings.
    pub(super) now: Table,
}

impl LongRows {
    pub(super) fn add(&mut self, row: LongRow) {
        self.rows.push(row);
        if self.rows.len() >= MOST_LONG * 2 {
            self.keep_longest();
        }
    }

    pub(super) fn keep_longest(&mut self) {
        self.rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
        self.rows.truncate(MOST_LONG);
    }
}

/// The number of runs of pages in the sample on which a forecast is based.
pub(super) const RUNS: usize = KEPT;
/// The number of consecutive pages that are read together. They count as one draw of the sample, because neighbours
/// resemble each other.
pub(super) const RUN: u32 = 4;

/// What a scanner keeps of the pages that it reads for a sample.
#[derive(Debug, Default)]
pub(super) struct Sampled {
    /// Free space and LSN, by block.
    pub(super) pages: BTreeMap<u32, (u32, u64)>,
    /// The length of tuples, and their values.
    pub(super) lengths: HashMap<ItemPointer, u32>,
    pub(super) values: HashMap<ItemPointer, Vec<StoredValue>>,
    pub(super) rows: Vec<Row>,
    /// To what sizes the server compresses values, by row and column, where it was asked.
    pub(super) sizes: HashMap<(ItemPointer, usize), CompressedSize>,
}

impl Sampled {
    /// What was read of these runs of pages.
    pub(super) fn within(mut self, runs: &[u32]) -> Sampled {
        let is_of = |block: u32| runs.contains(&(block / RUN));
        self.pages.retain(|&block, _| is_of(block));
        self.lengths.retain(|ctid, _| is_of(ctid.block.0));
        self.values.retain(|ctid, _| is_of(ctid.block.0));
        self.rows.retain(|row| is_of(row.ctid.block.0));
        self.sizes.retain(|(ctid, _), _| is_of(ctid.block.0));
        self
    }
}

/// What cannot be read, with the server's messages.
#[derive(Debug, Default)]
pub(super) struct Damage {
    pub(super) blocks: BTreeMap<u32, String>,
    pub(super) rows: HashMap<ItemPointer, String>,
    pub(super) asks: Asks,
    /// The rows whose values were skipped.
    pub(super) spared: Vec<ItemPointer>,
}

/// The rows whose values the server may be asked to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Asks {
    /// All rows except those known to be unreadable.
    #[default]
    All,
    Nothing,
    Only(ItemPointer),
}

impl Damage {
    /// The parts of this range of blocks that lie between unreadable blocks.
    pub(super) fn parts(&self, blocks: &Range<u32>) -> Vec<Range<u32>> {
        let mut parts = Vec::new();
        let mut start = blocks.start;
        for &block in self.blocks.range(blocks.clone()).map(|(block, _)| block) {
            parts.push(start..block);
            start = block.saturating_add(1);
        }
        parts.push(start..blocks.end);
        parts.retain(|part| !part.is_empty());
        parts
    }
}

/// What scans have seen of the rows to re-toast.
#[derive(Debug, Default)]
pub struct SeenRows {
    rows: Mutex<HashMap<ItemPointer, Seen>>,
    /// How values of pluggable toasters read.
    pub(super) readings: ReassembledValues,
}

impl SeenRows {
    pub(super) fn note(&self, ctid: ItemPointer, seen: Seen) {
        self.rows.lock().insert(ctid, seen);
    }

    /// Whether a scan has seen the row version that `xmin` inserted at this address.
    pub fn has(&self, ctid: ItemPointer, xmin: u32) -> bool {
        self.rows.lock().get(&ctid).is_some_and(|seen| seen.xmin == xmin)
    }

    /// What was seen at an address.
    pub fn at(&self, ctid: ItemPointer) -> Option<Seen> {
        self.rows.lock().get(&ctid).cloned()
    }

    /// Removes rows that have been re-toasted.
    pub fn forget(&self, rows: &[Row]) {
        let mut notes = self.rows.lock();
        for row in rows {
            notes.remove(&row.ctid);
        }
    }

    pub fn clear(&self) {
        self.rows.lock().clear();
        self.readings.clear();
    }
}

/// The part of a scanner's state that scans with a policy need.
pub struct RuleScan<'a> {
    /// The rows to re-toast, as batches need them.
    pub seen_rows: &'a SeenRows,
    /// Whether to judge every value, and not only those of rows that may comply.
    pub judge_all: bool,
    /// Rows that existed before this point need not be judged.
    pub(super) since: Option<Since>,
    /// Rows written after this point are left to another run.
    pub(super) cut_off: Option<CutOff>,
    /// The next transaction ID of the snapshot: the rows seen were inserted by earlier transactions.
    pub(super) next_xid: u64,
    pub(super) made: bool,
    pub(super) inner: HashSet<ItemPointer>,
    pub(super) open: Vec<Open>,
}

impl<'a> RuleScan<'a> {
    /// Creates the state before a scan.
    pub fn new(seen_rows: &'a SeenRows, since: Option<Since>, judge_all: bool) -> RuleScan<'a> {
        RuleScan {
            seen_rows,
            judge_all,
            since,
            cut_off: None,
            next_xid: 0,
            made: false,
            inner: HashSet::new(),
            open: Vec::new(),
        }
    }
}

/// How much of a column complies with a policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// Values other than NULL.
    pub values: u64,
    /// The stored size of these values, in bytes.
    pub bytes: u64,
    pub complying_values: u64,
    /// The stored size of values that comply, in bytes.
    pub complying_bytes: u64,
}

/// A row for which the server must be queried.
pub(super) struct Open {
    pub(super) row: Row,
    pub(super) seen: Seen,
    pub(super) targets: Vec<usize>,
}

/// Counts values by column, form and method.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    counts: BTreeMap<(usize, &'static str, Option<&'static str>), (u64, u64)>,
}

impl Tally {
    /// Adds a value of the `column`-th chosen column, if its form is known.
    pub fn add(&mut self, column: usize, form: Form, method: Option<Method>, bytes: u64) {
        let kind = (column, form.name(), method.map(Method::name));
        let count = self.counts.entry(kind).or_default();
        count.0 += 1;
        count.1 = count.1.saturating_add(bytes);
    }

    /// Adds a value that functions describe.
    pub(crate) fn add_answer(&mut self, column: usize, answer: &FunctionAnswer) {
        let value = &answer.value;
        let form = if value.stored_size.is_none() { Form::Null } else { value.form };
        self.add(column, form, value.method, value.stored_size.unwrap_or(0));
    }

    /// The counts in the form of the report.
    pub(super) fn form_reports(&self, targets: &[Target]) -> Vec<FormReport> {
        self.counts
            .iter()
            .map(|(&(column, form, method), &(values, bytes))| FormReport {
                column: targets.get(column).map_or_else(String::new, |target| target.name.clone()),
                form: form.to_owned(),
                method: method.map(str::to_owned),
                values,
                bytes,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_to_be_damaged_is_left_out() {
        let mut damage = Damage::default();
        assert_eq!(damage.parts(&(0..256)).first(), Some(&(0..256)));
        for block in [0, 7, 8, 255, 300] {
            damage.blocks.insert(block, String::new());
        }
        assert_eq!(damage.parts(&(0..256)), [1..7, 9..255]);
        assert_eq!(damage.parts(&(256..512)), [256..300, 301..512]);
        assert!(damage.parts(&(7..9)).is_empty());
    }
}
