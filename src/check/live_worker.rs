//! One connection's share of a check: batches of blocks, what looks wrong looked at again, checksums.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use super::code::Code;
use super::finding::Finding;
use super::look::{About, Look, Looker, Seen, Which};
use crate::disk::BlockNumber;
use crate::disk::page::{WrongChecksum, wrong_checksum};
use crate::heap::problem::Place;
use crate::model::sql::quote_qualified;
use crate::server::LiveError;
use crate::server::connect::Connection;

/// Blocks of one batch at the most.
pub(super) const BATCH: u32 = 512;
/// How often what looks wrong is looked at again, at the most, until two looks agree.
const LOOKS: usize = 4;
/// How long a page may be half written.
const TORN: Duration = Duration::from_millis(100);

/// What a worker tells of a batch.
pub(super) struct Part {
    /// Its blocks.
    pub(super) blocks: Range<u32>,
    /// What two looks agree on.
    pub(super) look: Look,
}

/// One connection's share.
pub(super) struct Worker {
    pub(super) looker: Looker,
    pub(super) connection: Arc<Connection>,
    pub(super) about: Arc<About>,
    pub(super) which: Which,
    pub(super) blocks: u32,
    /// Blocks of one batch.
    pub(super) batch: u32,
    pub(super) next: Arc<AtomicU32>,
    pub(super) done: Arc<AtomicBool>,
    pub(super) stop: Arc<AtomicBool>,
}

impl Worker {
    pub(super) async fn run(mut self, sender: UnboundedSender<Part>) -> Result<(), LiveError> {
        loop {
            let first = self.next.fetch_add(self.batch, Ordering::Relaxed);
            let ended = self.done.load(Ordering::Relaxed) || self.stop.load(Ordering::Relaxed);
            if first >= self.blocks || ended {
                return Ok(());
            }
            let range = first..first.saturating_add(self.batch).min(self.blocks);
            let blocks: Vec<BlockNumber> = range.clone().map(BlockNumber).collect();
            let Seen::Look(mut look) = self.looker.look(self.which, &blocks, false).await? else {
                return Ok(());
            };
            self.confirm(&mut look).await?;
            if self.about.storage.checksums {
                self.checksums(range.clone(), &mut look).await?;
            }
            if sender.send(Part { blocks: range, look }).is_err() {
                return Ok(());
            }
        }
    }

    /// Leaves of the findings only those that another look has too.
    async fn confirm(&mut self, look: &mut Look) -> Result<(), LiveError> {
        let mut findings = std::mem::take(&mut look.findings);
        let mut missing = std::mem::take(&mut look.missing);
        for _ in 0..LOOKS {
            let own = self.looker.name(self.which);
            let places = findings.iter().chain(missing.iter().map(|(finding, _)| finding));
            let places = places.filter(|finding| finding.place.source == own);
            let mut blocks: Vec<BlockNumber> =
                places.filter_map(|finding| finding.place.block).collect();
            blocks.sort_unstable();
            blocks.dedup();
            if blocks.is_empty() {
                return Ok(());
            }
            let Seen::Look(mut again) = self.looker.look(self.which, &blocks, true).await? else {
                return Ok(());
            };
            let all = again.findings.len() + again.missing.len();
            let (seen, lost) = (again.findings.clone(), again.missing.clone());
            again.findings.retain(|one| findings.iter().any(|other| one.is_same(other)));
            again.missing.retain(|(one, _)| missing.iter().any(|(other, _)| one.is_same(other)));
            if again.findings.len() + again.missing.len() == all {
                look.findings = again.findings;
                look.missing = again.missing;
                return Ok(());
            }
            // what is new is looked at once more
            look.findings = again.findings;
            look.missing = again.missing;
            (findings, missing) = (seen, lost);
        }
        Ok(())
    }

    /// Verifies the checksums of blocks as they are on disk, for the server does so only with those
    /// that it has to read.
    async fn checksums(&mut self, range: Range<u32>, look: &mut Look) -> Result<(), LiveError> {
        let size = self.about.server.page_size.bytes();
        let name = self.looker.name(self.which);
        let mut wrong: HashMap<u32, Vec<u8>> = HashMap::new();
        for (block, page) in range.clone().zip(self.on_disk(range).await?.chunks_exact(size)) {
            if wrong_checksum(BlockNumber(block), page).is_some() {
                wrong.insert(block, page.to_vec());
            }
        }
        let told: HashSet<u32> = look
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
                    ..Place::of(name.as_str())
                };
                let (right, got) = (format!("checksum 0x{right:04x}"), format!("0x{got:04x}"));
                look.findings.push(Finding::new(Code::Checksum, place, right, got));
            }
        }
        Ok(())
    }

    async fn on_disk(&mut self, range: Range<u32>) -> Result<Vec<u8>, LiveError> {
        let relation = match (self.which, &self.looker.relation().toast) {
            (Which::Toast, Some(toast)) => quote_qualified("pg_toast", &toast.name),
            _ => self.looker.relation().quoted(),
        };
        let About { server, storage, .. } = &*self.about;
        let read = async || {
            storage.on_disk(self.connection.client(), server, &relation, range.clone()).await
        };
        match self.connection.reading(read).await {
            // renamed, dropped or rewritten since
            Err(LiveError::Server(error)) if error.as_db_error().is_some() => Ok(Vec::new()),
            other => other,
        }
    }
}
