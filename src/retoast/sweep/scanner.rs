//! Reads one table: what a scan works with, and its snapshot.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use super::machine::Row;
use super::policy_state::{RuleScan, Tally};
use super::scan_source::ScanSource;
use crate::disk::ItemPointer;
use crate::model::stored::StoredValue;
use crate::retoast::check::ready::PreparedTable;
use crate::retoast::sql::Target;
use crate::retoast::task::guard::{Reading, Reads};
use crate::server::LiveError;
use crate::server::about::Server;
use crate::server::chunks::parse_tid;
use crate::server::connect::Connection;
use crate::server::snapshot::{self, Moment};

/// Bytes of values given to the judge at a time, unless one has more.
pub(crate) const JUDGED_BYTES: u64 = 32 << 20;

/// Reads one table.
pub struct Scanner<'a> {
    /// A connection of its own, for no snapshot may be held while batches run.
    pub connection: Arc<Connection>,
    /// For what a policy has to try out, in transactions of its own.
    pub asker: Arc<Connection>,
    /// The server.
    pub server: &'a Server,
    /// The table.
    pub ready: &'a PreparedTable,
    /// How transactions on it begin.
    pub(super) reading: Reading<'a>,
    /// What it goes by.
    pub source: ScanSource,
    /// Which judges there are.
    pub(super) judges: HashSet<usize>,
    /// Whether there is a judge of rows.
    pub(super) row_judge: bool,
    /// What was seen in the scan under way.
    pub tally: Tally,
    /// The sweep's own transactions since it began: their rows were seen before.
    pub(super) own: HashSet<u32>,
    /// What could not be read.
    pub problems: Vec<String>,
    /// What is known to be unreadable.
    pub(super) damage: Damage,
    /// What mends them.
    pub(super) hints: Vec<String>,
    /// The snapshot that is kept from chunk to chunk.
    pub held: Option<Held>,
    /// The part that goes by a policy.
    pub by_rule: RuleScan<'a>,
    /// Rows that cannot be stored as chosen, while nothing else is looked for.
    pub unfit: Option<Unfit>,
}

/// A transaction that goes on, and the judges from before it, which alone outlive its failure.
pub struct Held {
    pub(super) moment: Moment,
    pub(super) judges: HashSet<usize>,
    pub(super) row_judge: bool,
}

/// A row that may have to be re-toasted.
pub(crate) struct Candidate {
    pub(super) row: Row,
    /// By column index; as far as pages tell.
    pub(super) values: Vec<StoredValue>,
    pub(super) open: Vec<usize>,
}

impl Candidate {
    /// Whether the column's value is out of line.
    pub(super) fn is_outside(&self, target: &Target) -> bool {
        self.values.get(target.index).is_some_and(|value| value.form.is_external())
    }
}

impl<'a> Scanner<'a> {
    /// Before the first scan.
    pub fn new(
        connection: &Arc<Connection>,
        asker: &Arc<Connection>,
        server: &'a Server,
        ready: &'a PreparedTable,
        source: ScanSource,
        by_rule: RuleScan<'a>,
    ) -> Scanner<'a> {
        Scanner {
            connection: Arc::clone(connection),
            asker: Arc::clone(asker),
            server,
            ready,
            reading: Reading { ready, known: None },
            source,
            judges: HashSet::new(),
            row_judge: false,
            tally: Tally::default(),
            own: HashSet::new(),
            problems: Vec::new(),
            damage: Damage::default(),
            hints: Vec::new(),
            held: None,
            by_rule,
            unfit: None,
        }
    }
}

impl Scanner<'_> {
    /// Keeps one snapshot for all chunks from now on: only such a scan cannot miss a row that moves
    /// from a block not yet read to one already read. The table's lock is taken before the snapshot: what
    /// needs `ACCESS EXCLUSIVE`, as most settings and every rewrite do, waits for the end. Like every
    /// snapshot it keeps dead rows from being removed; end it with [`Scanner::release`] before rows are re-toasted, and before long waits.
    pub async fn hold(&mut self) -> Result<(), LiveError> {
        self.release().await?;
        self.held = Some(self.begin(Reads::WholeScan).await?);
        Ok(())
    }

    /// Lets the snapshot go, if one is kept.
    pub async fn release(&mut self) -> Result<(), LiveError> {
        match self.held.take() {
            Some(_) => snapshot::end(self.connection.client()).await,
            None => Ok(()),
        }
    }

    pub(super) async fn begin(&self, reads: Reads) -> Result<Held, LiveError> {
        let moment = self.reading.begin(&self.connection, reads).await?;
        Ok(Held { moment, judges: self.judges.clone(), row_judge: self.row_judge })
    }

    /// The indexes of the chosen columns, and of those that follow them.
    pub(crate) fn indexes(&self) -> (Vec<usize>, Vec<usize>) {
        let of = |columns: &[Target]| columns.iter().map(|column| column.index).collect();
        (of(&self.ready.targets), of(&self.ready.follow))
    }
}

/// Rows that cannot be stored as chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unfit {
    /// How many.
    pub rows: u64,
    /// The first one's address.
    pub first: Option<String>,
}

impl Unfit {
    /// Adds a row.
    pub fn add(&mut self, ctid: String) {
        self.rows += 1;
        self.first.get_or_insert(ctid);
    }
}

/// What cannot be read, with what the server says of it.
#[derive(Debug, Default)]
pub(super) struct Damage {
    pub(super) blocks: BTreeMap<u32, String>,
    pub(super) rows: HashMap<ItemPointer, String>,
    pub(super) asks: Asks,
    /// The rows whose values were not asked for.
    pub(super) spared: Vec<ItemPointer>,
}

/// Of which rows the server may be asked to read values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Asks {
    /// Those of which it is not known that it cannot.
    #[default]
    All,
    Nothing,
    Only(ItemPointer),
}

impl Damage {
    /// The parts of these blocks between those that cannot be read.
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

/// A transaction's number, or its low half, as the server prints it.
pub(crate) fn transaction(text: &str) -> Result<u32, LiveError> {
    text.parse().map_err(|_| LiveError::Unexpected(format!("transaction \"{text}\"")))
}

/// A row's address as the server prints it.
pub(crate) fn address(text: &str) -> Result<ItemPointer, LiveError> {
    parse_tid(text).ok_or_else(|| LiveError::Unexpected(format!("row address \"{text}\"")))
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
