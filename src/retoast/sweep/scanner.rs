//! Reads one table: what a scan works with, and its snapshot.

use std::collections::HashSet;
use std::sync::Arc;

use super::policy_state::RuleScan;
use super::scan_source::ScanSource;
use super::unfit::Unfit;
use super::watched::{Reading, Watched};
use crate::disk::ItemPointer;
use crate::model::stored::StoredValue;
use crate::retoast::check::ready::Ready;
use crate::retoast::sql::Target;
use crate::retoast::tally::Tally;
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
    pub ready: &'a Ready,
    /// What it goes by.
    pub source: ScanSource,
    /// What the table is known to be set to, where that is watched.
    pub watched: Option<&'a Watched>,
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
    pub(super) ctid: ItemPointer,
    pub(super) xmin: u32,
    pub(super) bytes: u64,
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
        ready: &'a Ready,
        source: ScanSource,
        by_rule: RuleScan<'a>,
    ) -> Scanner<'a> {
        Scanner {
            connection: Arc::clone(connection),
            asker: Arc::clone(asker),
            server,
            ready,
            source,
            watched: None,
            judges: HashSet::new(),
            row_judge: false,
            tally: Tally::default(),
            own: HashSet::new(),
            problems: Vec::new(),
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
        let client = self.connection.client();
        let begun = match self.reading() {
            Some(reading) => reading.begin(client).await,
            None => {
                let table = self.ready.relation.quoted();
                let lock = format!("LOCK TABLE ONLY {table} IN ACCESS SHARE MODE");
                snapshot::begin_with_lock(client, &lock).await
            }
        };
        match begun {
            Ok(moment) => {
                let (judges, row_judge) = (self.judges.clone(), self.row_judge);
                self.held = Some(Held { moment, judges, row_judge });
                Ok(())
            }
            Err(error) => {
                // if that fails too the connection is gone, as the next query will say
                let _ = snapshot::abandon(self.connection.client()).await;
                Err(error)
            }
        }
    }

    fn reading(&self) -> Option<Reading> {
        self.watched.and_then(|watched| watched.reading(self.ready))
    }

    /// Lets the snapshot go, if one is kept.
    pub async fn release(&mut self) -> Result<(), LiveError> {
        match self.held.take() {
            Some(_) => snapshot::end(self.connection.client()).await,
            None => Ok(()),
        }
    }

    pub(super) async fn begin(&self) -> Result<Held, LiveError> {
        let moment = match self.reading() {
            Some(reading) => reading.begin(self.connection.client()).await?,
            None => snapshot::begin_writable(&self.connection).await?,
        };
        Ok(Held { moment, judges: self.judges.clone(), row_judge: self.row_judge })
    }

    /// The indexes of the chosen columns, and of those that follow them.
    pub(crate) fn indexes(&self) -> (Vec<usize>, Vec<usize>) {
        let of = |columns: &[Target]| columns.iter().map(|column| column.index).collect();
        (of(&self.ready.targets), of(&self.ready.follow))
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
