//! Scans of what is damaged: looked for by halves when it is met, so that it costs nothing but itself.

use std::ops::Range;

use super::damage::Asks;
use super::machine::Row;
use super::policy_state::Share;
use super::scanner::Scanner;
use super::unfit::Unfit;
use crate::disk::ItemPointer;
use crate::retoast::tally::Tally;
use crate::server::LiveError;
use crate::server::sqlstate::is_damage;

/// What a look has counted, to be taken back where it failed.
struct Counts {
    tally: Tally,
    problems: usize,
    hints: usize,
    unfit: Option<Unfit>,
    planned: Tally,
    shares: Vec<Share>,
    written_since: u64,
}

impl Scanner<'_> {
    /// As [`Scanner::chunk_at_once`]: what is damaged is told as a problem, and costs nothing else.
    pub async fn chunk(&mut self, blocks: Range<u32>) -> Result<Vec<Row>, LiveError> {
        for (block, message) in self.damage.blocks.range(blocks.clone()) {
            self.problems.push(format!("block {block}: {message}"));
        }
        let mut rows = Vec::new();
        for part in self.damage.parts(&blocks) {
            match self.counted(part.clone()).await {
                Err(LiveError::Server(error)) if is_damage(&error) => {
                    rows.extend(self.by_halves(part).await?);
                }
                read => rows.extend(read?),
            }
        }
        Ok(rows)
    }

    /// Reads these blocks; what was counted is taken back after an error.
    async fn counted(&mut self, blocks: Range<u32>) -> Result<Vec<Row>, LiveError> {
        let counts = self.counts();
        let read = self.chunk_at_once(blocks).await;
        if read.is_err() {
            self.take_back(counts);
        }
        read
    }

    fn counts(&self) -> Counts {
        Counts {
            tally: self.tally.clone(),
            problems: self.problems.len(),
            hints: self.hints.len(),
            unfit: self.unfit.clone(),
            planned: self.by_rule.planned.clone(),
            shares: self.by_rule.shares.clone(),
            written_since: self.by_rule.written_since,
        }
    }

    fn take_back(&mut self, counts: Counts) {
        self.tally = counts.tally;
        self.problems.truncate(counts.problems);
        self.hints.truncate(counts.hints);
        self.unfit = counts.unfit;
        self.by_rule.planned = counts.planned;
        self.by_rule.shares = counts.shares;
        self.by_rule.written_since = counts.written_since;
    }

    /// Reads blocks of which at least one is damaged, or a value of one of its rows.
    async fn by_halves(&mut self, blocks: Range<u32>) -> Result<Vec<Row>, LiveError> {
        let (mut rows, mut rest) = (Vec::new(), vec![blocks]);
        while let Some(part) = rest.pop() {
            match self.counted(part.clone()).await {
                Err(LiveError::Server(error)) if is_damage(&error) => match part.len() {
                    0 | 1 => rows.extend(self.by_rows(part).await?),
                    blocks => {
                        let middle = part.start + (blocks / 2) as u32;
                        rest.extend([middle..part.end, part.start..middle]);
                    }
                },
                read => rows.extend(read?),
            }
        }
        Ok(rows)
    }

    /// Reads a block that is damaged, or a value of one of its rows: first without the values, then one by one.
    async fn by_rows(&mut self, block: Range<u32>) -> Result<Vec<Row>, LiveError> {
        let read = self.asking(Asks::Nothing, block.clone()).await;
        let mut rows = match read {
            Err(LiveError::Server(error)) if is_damage(&error) => {
                let message = message(&error);
                self.problems.push(format!("block {}: {message}", block.start));
                self.damage.blocks.insert(block.start, message);
                return Ok(Vec::new());
            }
            read => read?,
        };
        for ctid in std::mem::take(&mut self.damage.spared) {
            // its row was counted without its values
            let counts = self.counts();
            let read = self.asking(Asks::Only(ctid), block.clone()).await;
            self.take_back(counts);
            match read {
                Err(LiveError::Server(error)) if is_damage(&error) => {
                    let message = message(&error);
                    self.problems.push(format!("row {ctid}: {message}"));
                    self.damage.rows.insert(ctid, message);
                }
                read => rows.extend(read?.into_iter().filter(|row| row.ctid == ctid)),
            }
        }
        Ok(rows)
    }

    async fn asking(&mut self, asks: Asks, block: Range<u32>) -> Result<Vec<Row>, LiveError> {
        self.damage.asks = asks;
        self.damage.spared.clear();
        let read = self.counted(block).await;
        self.damage.asks = Asks::All;
        read
    }

    /// Whether the server may be asked to read this row's values.
    pub(super) fn may_ask(&mut self, ctid: ItemPointer) -> bool {
        match self.damage.asks {
            Asks::All => match self.damage.rows.get(&ctid) {
                Some(message) => {
                    self.problems.push(format!("row {ctid}: {message}"));
                    false
                }
                None => true,
            },
            Asks::Nothing => {
                self.damage.spared.push(ctid);
                false
            }
            Asks::Only(one) => one == ctid,
        }
    }
}

/// The server's message alone: what it adds may show contents.
fn message(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().to_owned())
}
