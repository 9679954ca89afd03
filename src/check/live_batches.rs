//! Blocks of a live table, which are checked in batches on all connections, each batch in a transaction of its own. What looks
//! wrong is checked again in another one before it is reported.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use super::code::Code;
use super::collector::CheckedBlocks;
use super::finding::Finding;
use super::live_check::{About, LiveCheck};
use super::subject::Which;
use crate::server::LiveError;
use toast_format::disk::BlockNumber;
use toast_format::disk::page::{WrongChecksum, wrong_checksum};
use toast_format::heap::problem::Place;

/// How often what looks wrong is looked at again, at the most, until two looks agree.
pub(super) const LOOKS: usize = 4;
/// How long a page may be half written.
pub(super) const TORN: Duration = Duration::from_millis(100);

/// The result of one batch.
pub(super) struct CheckedRange {
    pub(super) blocks: Range<u32>,
    /// What two checks agree on.
    pub(super) result: CheckedBlocks,
}

/// Checks batches on one connection until none is left.
pub(super) struct BatchWorker {
    pub(super) check: LiveCheck,
    pub(super) which: Which,
    pub(super) blocks: u32,
    /// Blocks of one batch.
    pub(super) batch: u32,
    pub(super) next: Arc<AtomicU32>,
    pub(super) done: Arc<AtomicBool>,
    pub(super) stop: Arc<AtomicBool>,
}

impl BatchWorker {
    /// `false` if the table was dropped meanwhile.
    pub(super) async fn run(
        mut self,
        sender: UnboundedSender<CheckedRange>,
    ) -> Result<bool, LiveError> {
        loop {
            let first = self.next.fetch_add(self.batch, Ordering::Relaxed);
            let ended = self.done.load(Ordering::Relaxed) || self.stop.load(Ordering::Relaxed);
            if first >= self.blocks || ended {
                return Ok(true);
            }
            let range = first..first.saturating_add(self.batch).min(self.blocks);
            let blocks: Vec<BlockNumber> = range.clone().map(BlockNumber).collect();
            let Some(mut result) = self.check.check_blocks(self.which, &blocks, false).await?
            else {
                return Ok(false);
            };
            self.confirm(&mut result).await?;
            if self.check.about.storage.checksums {
                self.checksums(range.clone(), &mut result).await?;
            }
            if sender.send(CheckedRange { blocks: range, result }).is_err() {
                return Ok(true);
            }
        }
    }

    /// Leaves of the findings only those that another look has too.
    async fn confirm(&mut self, result: &mut CheckedBlocks) -> Result<(), LiveError> {
        let mut findings = std::mem::take(&mut result.findings);
        let mut missing = std::mem::take(&mut result.missing);
        for _ in 0..LOOKS {
            let own = self.check.name(self.which);
            let places = findings.iter().chain(missing.iter().map(|(finding, _)| finding));
            let places = places.filter(|finding| finding.place.source == own);
            let mut blocks: Vec<BlockNumber> =
                places.filter_map(|finding| finding.place.block).collect();
            blocks.sort_unstable();
            blocks.dedup();
            if blocks.is_empty() {
                return Ok(());
            }
            let Some(mut again) = self.check.check_blocks(self.which, &blocks, true).await? else {
                return Ok(());
            };
            let all = again.findings.len() + again.missing.len();
            let seen = again.findings.clone();
            let lost = again.missing.clone();
            again.findings.retain(|one| findings.iter().any(|other| one.is_same(other)));
            again.missing.retain(|(one, _)| missing.iter().any(|(other, _)| one.is_same(other)));
            if again.findings.len() + again.missing.len() == all {
                result.findings = again.findings;
                result.missing = again.missing;
                return Ok(());
            }
            // what is new is looked at once more
            result.findings = again.findings;
            result.missing = again.missing;
            (findings, missing) = (seen, lost);
        }
        Ok(())
    }

    /// Verifies the checksums of blocks as they are on disk, for the server does so only with those
    /// that it has to read.
    async fn checksums(
        &mut self,
        range: Range<u32>,
        result: &mut CheckedBlocks,
    ) -> Result<(), LiveError> {
        let size = self.check.about.server.page_size.bytes();
        let name = self.check.name(self.which);
        let mut wrong: HashMap<u32, Vec<u8>> = HashMap::new();
        for (block, page) in range.clone().zip(self.on_disk(range).await?.chunks_exact(size)) {
            if wrong_checksum(BlockNumber(block), page).is_some() {
                wrong.insert(block, page.to_vec());
            }
        }
        let told: HashSet<u32> = result
            .findings
            .iter()
            .filter(|finding| finding.place.item.is_none() && finding.place.source == name)
            .filter_map(|finding| finding.place.block.map(|block| block.0))
            .collect();
        wrong.retain(|block, _| !told.contains(block));
        let mut blocks: Vec<u32> = wrong.keys().copied().collect();
        blocks.sort_unstable();
        for block in blocks {
            // it may have been written just then, half of it
            let mut before = wrong.remove(&block).unwrap_or_default();
            let mut damage = None;
            for _ in 0..LOOKS {
                tokio::time::sleep(TORN).await;
                let again = self.on_disk(block..block.saturating_add(1)).await?;
                damage = if again.len() == size {
                    wrong_checksum(BlockNumber(block), &again)
                } else {
                    None
                };
                if damage.is_none() || again == before {
                    break;
                }
                before = again;
                damage = None;
            }
            if let Some(WrongChecksum { right, got }) = damage {
                let place = Place {
                    block: Some(BlockNumber(block)),
                    byte: Some(8),
                    ..Place::new(name.as_str())
                };
                let right = format!("checksum 0x{right:04x}");
                let got = format!("0x{got:04x}");
                result.findings.push(Finding::new(Code::Checksum, place, right, got));
            }
        }
        Ok(())
    }

    async fn on_disk(&mut self, range: Range<u32>) -> Result<Vec<u8>, LiveError> {
        let connection = &self.check.connection;
        let relation = self.check.quoted(self.which);
        let About { server, storage, .. } = &*self.check.about;
        let read =
            async || storage.on_disk(connection.client(), server, &relation, range.clone()).await;
        match connection.reading(read).await {
            // renamed, dropped or rewritten since
            Err(LiveError::Server(error)) if error.as_db_error().is_some() => Ok(Vec::new()),
            other => other,
        }
    }
}
