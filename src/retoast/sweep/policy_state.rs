//! What scans by a policy remember, and what of that batches need to know.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::machine::Row;
use crate::codec::Method;
use crate::disk::ItemPointer;
use crate::judge::policy::Seen;
use crate::model::stored::{Form, FunctionAnswer};
use crate::retoast::memory::since::{CutOff, Since};
use crate::retoast::result::FormReport;

/// What scans have seen of the rows that are to be re-toasted.
#[derive(Debug, Default)]
pub struct SeenRows(Mutex<HashMap<ItemPointer, Seen>>);

impl SeenRows {
    fn rows(&self) -> MutexGuard<'_, HashMap<ItemPointer, Seen>> {
        // what stands there is only ever inserted and removed whole
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, ctid: ItemPointer, seen: Seen) {
        self.rows().insert(ctid, seen);
    }

    /// Whether a scan has seen the row version that `xmin` inserted at this address.
    pub fn has(&self, ctid: ItemPointer, xmin: u32) -> bool {
        self.rows().get(&ctid).is_some_and(|seen| seen.xmin == xmin)
    }

    /// What was seen at an address.
    pub fn at(&self, ctid: ItemPointer) -> Option<Seen> {
        self.rows().get(&ctid).cloned()
    }

    /// Forgets rows that have been re-toasted.
    pub fn forget(&self, rows: &[Row]) {
        let mut notes = self.rows();
        for row in rows {
            notes.remove(&row.ctid);
        }
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.rows().clear();
    }
}

/// The part of a scan that goes by a policy.
pub struct RuleScan<'a> {
    /// What batches need to know.
    pub seen_rows: &'a SeenRows,
    /// Whether every value is to be judged, not only those whose rows may comply.
    pub judge_all: bool,
    /// What the values would be stored as, where `judge_all`.
    pub planned: Tally,
    /// How much complies, for each chosen column, where `judge_all`.
    pub shares: Vec<Share>,
    /// Rows that were there before need no judgement.
    pub(super) since: Option<Since>,
    /// Rows that came later are left to another run.
    pub(super) cut_off: Option<CutOff>,
    /// The transactions of this run, whose rows are none that came later.
    pub(super) ours: HashSet<u32>,
    /// How many rows that came later there were in the scan under way.
    pub(super) written_since: u64,
    /// What is seen was inserted by transactions before this one.
    pub(super) next_xid: u64,
    pub(super) made: bool,
    pub(super) inner: HashSet<ItemPointer>,
    pub(super) open: Vec<Open>,
}

impl<'a> RuleScan<'a> {
    /// Before a scan.
    pub fn new(seen_rows: &'a SeenRows, since: Option<Since>, judge_all: bool) -> RuleScan<'a> {
        RuleScan {
            seen_rows,
            judge_all,
            planned: Tally::default(),
            shares: Vec::new(),
            since,
            cut_off: None,
            ours: HashSet::new(),
            written_since: 0,
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
    /// Values that are not NULL.
    pub values: u64,
    /// Their stored bytes.
    pub bytes: u64,
    /// Those that comply.
    pub complying_values: u64,
    /// Their stored bytes.
    pub complying_bytes: u64,
}

/// A row on which the server has to be asked.
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
    /// Adds a value of the `column`-th chosen column, whose form is known.
    pub fn add(&mut self, column: usize, form: Form, method: Option<Method>, bytes: u64) {
        self.add_named(column, form.name(), method, bytes);
    }

    /// Adds a value of which functions tell.
    pub(crate) fn add_told(&mut self, column: usize, told: &FunctionAnswer) {
        let value = &told.value;
        let form = match (value.stored_size, value.method) {
            (None, _) => "null",
            (_, Some(_)) => "compressed",
            _ => "uncompressed",
        };
        self.add_named(column, form, value.method, value.stored_size.unwrap_or(0));
    }

    fn add_named(&mut self, column: usize, form: &'static str, method: Option<Method>, bytes: u64) {
        let count = self.counts.entry((column, form, method.map(Method::name))).or_default();
        count.0 += 1;
        count.1 = count.1.saturating_add(bytes);
    }

    /// Stored bytes of all values.
    pub fn bytes(&self) -> u64 {
        self.counts.values().map(|&(_, bytes)| bytes).sum()
    }

    /// Those of values whose form is known to be out of line.
    pub fn external_bytes(&self) -> u64 {
        let external = [Form::External.name(), Form::ExternalCompressed.name()];
        let counts = self.counts.iter().filter(|((_, form, _), _)| external.contains(form));
        counts.map(|(_, &(_, bytes))| bytes).sum()
    }

    /// Whether pluggable toasters store any.
    pub fn has_custom(&self) -> bool {
        self.counts.keys().any(|(_, form, _)| *form == Form::Custom.name())
    }

    /// As the report has it.
    pub fn report(&self, columns: &[String]) -> Vec<FormReport> {
        self.counts
            .iter()
            .map(|(&(column, form, method), &(values, bytes))| FormReport {
                column: columns.get(column).cloned().unwrap_or_default(),
                form,
                method,
                values,
                bytes,
            })
            .collect()
    }
}
