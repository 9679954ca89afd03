//! A check of one table of a live server: batch by batch on all connections, each batch in a
//! transaction of its own. What looks wrong is looked at again in another one before it is told.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::by_scan::{self, InRelation};
use super::code::Code;
use super::files::UNKNOWN;
use super::finding::Finding;
use super::judged::{Checked, MAX_KNOWN};
use super::live_orphans::{self, Decided, Marks};
use super::live_worker::{BATCH, Part, Worker};
use super::look::{About, Looker, Which};
use super::look_repair::Known;
use super::salvage_dir::SalvageDir;
use super::subject::External;
use super::value::{ChunkSeen, check_chunks};
use crate::disk::ItemPointer;
use crate::heap::progress::Progress;
use crate::model::visibility::Snapshot;
use crate::server::LiveError;
use crate::server::catalog::Relation;
use crate::server::checking::Standing;
use crate::server::connect::Connection;
use crate::server::snapshot;

/// Bytes of a table and its TOAST relation that a batch is to read.
const BATCH_BYTES: u64 = 64 << 20;
/// Findings of missing chunks that are kept to be held against the TOAST relation itself.
const MAX_MISSING: usize = 100_000;
/// Values without a row that are kept to be looked at again.
const MAX_CANDIDATES: usize = 1_000_000;

/// How a table is checked.
#[derive(Debug, Clone, Copy)]
pub struct LiveOptions {
    /// Whether the pages of the TOAST relation are looked at too.
    pub toast_pages: bool,
}

/// Why a table could not be checked to its end.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The server's answer.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// Findings could not be written.
    #[error("could not write: {0}")]
    Output(#[from] std::io::Error),
}

/// The parts of a check that one table has.
pub struct Table {
    connections: Vec<Arc<Connection>>,
    about: Arc<About>,
    relation: Arc<Relation>,
    options: LiveOptions,
}

impl Table {
    /// A table of the server that `connections` lead to.
    pub fn new(
        connections: Vec<Arc<Connection>>,
        about: Arc<About>,
        relation: Arc<Relation>,
        options: LiveOptions,
    ) -> Table {
        Table { connections, about, relation, options }
    }

    /// Checks the table; `None` if it was dropped meanwhile.
    pub async fn check(
        &self,
        progress: &dyn Progress,
        stop: &Arc<AtomicBool>,
        salvage: Option<&mut SalvageDir>,
        tell: &mut (dyn FnMut(Finding) -> std::io::Result<()> + Send),
    ) -> Result<Option<Checked>, CheckError> {
        let leader = self.connections.first().ok_or_else(no_connection)?;
        let mut first = self.looker(leader);
        let Some(start) = first.begin().await? else {
            snapshot::abandon(leader.client()).await.map_err(CheckError::Live)?;
            return Ok(None);
        };
        let reindex = first.reindex().await?;
        snapshot::end(leader.client()).await.map_err(CheckError::Live)?;
        let name = self.relation.display_name();
        if start.is_out_of_reach {
            let mut checked = Checked::of(&name);
            checked.note("the table is unlogged, and has no rows on a standby");
            return Ok(Some(checked));
        }
        let mut run = Run {
            checked: Checked::of(&name),
            tell,
            known: Vec::new(),
            is_complete: true,
            missing: Vec::new(),
            candidates: None,
            marks: Marks::of(start.file),
            salvage,
            known_of_all: Known { reindex, ..Known::default() },
        };
        self.relation_of(Which::Heap, start.blocks, &name, progress, stop, &mut run).await?;
        self.missing(&mut first, &mut run).await?;
        if let Some(salvage) = run.salvage.as_deref_mut() {
            let all = salvage.take_wanted();
            for wanted in &all {
                if let Some(saved) = first.save(wanted).await? {
                    salvage.save(&name, wanted, &saved)?;
                }
            }
            salvage.repair(first.repairs(&all, run.known_of_all.clone()).await?)?;
        }
        let toast = first.relation().toast.clone();
        if let Some(toast) = toast {
            if self.options.toast_pages {
                let blocks = toast.bytes / self.about.server.page_size.bytes() as u64;
                let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
                let name = first.name(Which::Toast);
                if run.is_complete && run.checked.errors == 0 {
                    run.known.sort_unstable();
                    run.candidates = Some((start.snapshot.clone(), HashSet::new()));
                } else {
                    let is_full = run.known.len() >= MAX_KNOWN;
                    run.checked.orphans_unseen(&name, is_full);
                }
                self.relation_of(Which::Toast, blocks, &name, progress, stop, &mut run).await?;
                self.orphans(&mut first, &start, &mut run).await?;
            } else {
                run.checked.note(format!(
                    "the pages of {} were not looked at by themselves (--scan-toast always)",
                    first.name(Which::Toast)
                ));
            }
        }
        Ok(Some(run.checked))
    }

    fn looker(&self, connection: &Arc<Connection>) -> Looker {
        let (about, relation) = (Arc::clone(&self.about), Arc::clone(&self.relation));
        Looker::new(Arc::clone(connection), about, relation)
    }

    /// Blocks of one batch: fewer where much stands out of line behind each.
    fn batch(&self, which: Which, blocks: u32) -> u32 {
        let toast = self.relation.toast.as_ref().map_or(0, |toast| toast.bytes);
        let behind = match which {
            Which::Heap => toast / u64::from(blocks.max(1)),
            Which::Toast => 0,
        };
        let page = self.about.server.page_size.bytes() as u64;
        let batch = BATCH_BYTES / (page + behind);
        u32::try_from(batch).unwrap_or(BATCH).clamp(1, BATCH)
    }

    /// Looks at all blocks of the table, or of its TOAST relation, on all connections.
    async fn relation_of(
        &self,
        which: Which,
        blocks: u32,
        name: &str,
        progress: &dyn Progress,
        stop: &Arc<AtomicBool>,
        run: &mut Run<'_>,
    ) -> Result<(), CheckError> {
        progress.begin(name, u64::from(blocks));
        let next = Arc::new(AtomicU32::new(0));
        let done = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = unbounded_channel();
        let tasks: Vec<_> = self
            .connections
            .iter()
            .map(|connection| {
                let worker = Worker {
                    looker: self.looker(connection),
                    connection: Arc::clone(connection),
                    about: Arc::clone(&self.about),
                    which,
                    blocks,
                    batch: self.batch(which, blocks),
                    next: Arc::clone(&next),
                    done: Arc::clone(&done),
                    stop: Arc::clone(stop),
                };
                tokio::spawn(worker.run(sender.clone()))
            })
            .collect();
        drop(sender);
        let told = run.collect(receiver, which, progress, &done).await;
        let mut ended = Ok(());
        for task in tasks {
            let joined = task.await.map_err(std::io::Error::other)?;
            ended = ended.and(joined);
        }
        progress.end();
        told?;
        Ok(ended?)
    }

    /// Tells of chunks that are missing or cannot be read, after a look at the TOAST relation without its index.
    async fn missing(&self, looker: &mut Looker, run: &mut Run<'_>) -> Result<(), CheckError> {
        if run.missing.is_empty() {
            return Ok(());
        }
        let missing = std::mem::take(&mut run.missing);
        let mut ids: Vec<u32> = missing.iter().map(|(_, v)| v.pointer.value_id.0).collect();
        ids.sort_unstable();
        ids.dedup();
        let there = by_scan::chunks(looker, &ids).await?;
        let page = self.about.server.page_size;
        for (finding, value) in missing {
            let id = value.pointer.value_id;
            let chunks = there.get(&id.0).map_or(&[][..], Vec::as_slice);
            let unindexed = chunks.iter().find(|chunk| chunk.is_indexed == Some(false));
            let seen: Vec<ChunkSeen> = chunks.iter().map(|chunk| chunk.seen).collect();
            let found = match unindexed {
                Some(InRelation { seen: ChunkSeen { seq, tid, .. }, .. }) => Finding {
                    expected: format!("an entry for chunk {seq} of value {id}"),
                    found: format!("none, but the chunk is at {tid}"),
                    code: Code::IndexEntryMissing,
                    chunk: Some(*tid),
                    ..finding
                },
                None if finding.code == Code::ChunkUnreadable
                    && check_chunks(&value.pointer, &seen, page).is_ok() =>
                {
                    Finding {
                        expected: format!("an index that leads to the chunks of value {id}"),
                        code: Code::IndexUnreadable,
                        ..finding
                    }
                }
                None => finding,
            };
            run.tell(found)?;
        }
        Ok(())
    }

    /// Tells values of the TOAST relation that no row refers to.
    async fn orphans(
        &self,
        looker: &mut Looker,
        start: &Standing,
        run: &mut Run<'_>,
    ) -> Result<(), CheckError> {
        let Some((_, left)) = run.candidates.take() else { return Ok(()) };
        let toast = looker.name(Which::Toast);
        if left.len() >= MAX_CANDIDATES {
            run.checked.orphans_unseen(&toast, true);
        }
        let marks = std::mem::take(&mut run.marks);
        match live_orphans::decide(looker, marks, left, start.lsn.is_some()).await? {
            Decided::Found(findings) => {
                for finding in findings {
                    run.tell(finding)?;
                }
            }
            Decided::Open(count, why) => {
                let s = if count == 1 { "" } else { "s" };
                run.checked.orphans_unknown(&format!("{count} value{s} of {toast}"), why);
            }
        }
        Ok(())
    }
}

fn no_connection() -> LiveError {
    LiveError::Unexpected("no connection".into())
}

/// What a check has come to so far, and where its findings go.
struct Run<'t> {
    checked: Checked,
    tell: &'t mut (dyn FnMut(Finding) -> std::io::Result<()> + Send),
    known: Vec<u32>,
    is_complete: bool,
    missing: Vec<(Finding, External)>,
    /// Values of the TOAST relation that were there when the check began and to which no row is known
    /// to refer.
    candidates: Option<(Snapshot, HashSet<u32>)>,
    /// How far its blocks were looked at.
    marks: Marks,
    salvage: Option<&'t mut SalvageDir>,
    /// What findings tell of the table as a whole.
    known_of_all: Known,
}

impl Run<'_> {
    fn tell(&mut self, mut finding: Finding) -> std::io::Result<()> {
        if finding.code.is_of_index() {
            self.known_of_all.index_is_damaged = true;
            finding.sql.clone_from(&self.known_of_all.reindex);
        }
        self.known_of_all.wrong_checksums |= finding.code == Code::Checksum;
        let claimed = match (finding.place.block, finding.place.item) {
            (Some(block), Some(item)) => Some(ItemPointer { block, item }),
            _ => None,
        };
        let is_told = finding.place.source != self.checked.relation
            && claimed.is_some_and(|tid| self.checked.claimed.contains(&tid));
        if is_told {
            return Ok(());
        }
        self.checked.count(&finding);
        if let Some(salvage) = &mut self.salvage {
            salvage.note(&self.checked.relation, &finding);
        }
        (self.tell)(finding)
    }

    async fn collect(
        &mut self,
        mut receiver: UnboundedReceiver<Part>,
        which: Which,
        progress: &dyn Progress,
        done: &AtomicBool,
    ) -> std::io::Result<()> {
        let mut told = Ok(());
        while let Some(Part { blocks, look }) = receiver.recv().await {
            progress.advance(u64::from(blocks.end - blocks.start));
            self.checked.looked.add(&look.looked);
            if look.elsewhere > 0 {
                self.checked.note("values of other TOAST relations were not looked at");
                self.checked.is_incomplete = true;
            }
            if look.unknown > 0 {
                self.checked.note(UNKNOWN);
                self.checked.is_incomplete = true;
            }
            if which == Which::Heap {
                self.marks.note(&blocks, look.lsn.unwrap_or(0));
                self.is_complete &= look.is_complete && look.elsewhere == 0;
                if self.known.len() < MAX_KNOWN {
                    self.known.extend(look.known);
                } else {
                    self.is_complete = false;
                }
            }
            if let Some((start, candidates)) = &mut self.candidates {
                for (id, xmin) in look.chunks {
                    let is_old = xmin.0 <= 2 || start.was_over(xmin);
                    let is_new = is_old && self.known.binary_search(&id).is_err();
                    if is_new && candidates.len() < MAX_CANDIDATES {
                        candidates.insert(id);
                    }
                }
            }
            for (finding, value) in look.missing {
                if self.missing.len() < MAX_MISSING {
                    self.missing.push((finding, value));
                } else if told.is_ok() {
                    told = self.tell(finding);
                }
            }
            for finding in look.findings {
                if told.is_ok() {
                    told = self.tell(finding);
                }
            }
            if told.is_err() {
                done.store(true, Ordering::Relaxed);
            }
        }
        told
    }
}
