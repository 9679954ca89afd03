//! What the sweep does next (pure): it is told what happened and what time it is, and says what to
//! do. It never sees a connection, a clock or a page.
//!
//! A scan reads chunks of blocks. What it finds is re-toasted in windows of a few pages, each in
//! passes: a pass takes every k-th row, so that the first moves a k-th of the rows off their pages
//! and pruning makes room for the others to stay (HOT). A sweep is over when a whole scan in one
//! snapshot has found nothing; an empty batch says nothing. Every scan begins in one snapshot, and gives
//! it up with the first row that it finds.

mod planning;
mod terms;
mod vacuums;
mod work;

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

pub use self::terms::{Action, End, Event, Extent, Left, Row};
pub(super) use self::vacuums::EARLY;
use self::vacuums::Vacuums;
use self::work::{Batch, Work};
use crate::disk::ItemPointer;
use crate::retoast::listener::Wait;
use crate::retoast::pace::speed::{after_timeouts, smoothed};
use crate::retoast::task::session::Tuning;

/// Blocks that a scan reads at a time.
pub const CHUNK: u32 = 256;
/// Scans without any progress after which the sweep gives up.
const IDLE_SCANS: u32 = 12;
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Begin,
    Scanning,
    Ended(End),
}

/// The scan under way.
#[derive(Debug, Clone)]
struct Scan {
    blocks: u32,
    next_block: u32,
    /// Whether it leaves a part out, so that it proves nothing.
    partial: bool,
    /// What it has found, and how many rows were re-toasted meanwhile.
    left: Left,
    stored: u64,
    /// Whether it is all in one snapshot so far.
    one_snapshot: bool,
}

/// Batches of the chunk under way.
#[derive(Debug, Clone, Default)]
struct Batches {
    queue: VecDeque<Batch>,
    /// Begun so far, and the last one of each window of the chunk.
    begun: u64,
    last: HashMap<u32, u64>,
}

/// What is reported.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Scans that were begun.
    pub scans: u32,
    /// Lock timeouts and deadlocks met.
    pub retries: u64,
    /// The longest batch.
    pub longest_batch: Duration,
}

/// The state of the conversion of one table.
#[derive(Debug, Clone)]
pub struct Machine {
    tuning: Tuning,
    phase: Phase,
    scan: Scan,
    batches: Batches,
    /// What each job does.
    work: Vec<Work>,
    /// Rows a millisecond, smoothed.
    speed: Option<f64>,
    /// Whether other sessions are active.
    others: bool,
    vacuums: Vacuums,
    sleep: Option<(Duration, Wait)>,
    busy: u32,
    idle_scans: u32,
    /// Where the first scan begins.
    start: u32,
    /// Whether scans after the first answer only for rows that were there when the second began.
    cut_off: bool,
    /// Row versions that the server refused.
    refused: HashSet<(ItemPointer, u32)>,
    /// The machine's own transactions, with how often the rows that they wrote have been re-toasted.
    own: HashMap<u32, u8>,
    pub counts: Counts,
}

impl Machine {
    /// A conversion that has not begun.
    pub fn new(tuning: Tuning) -> Machine {
        Machine {
            tuning,
            phase: Phase::Begin,
            scan: Scan {
                blocks: 0,
                next_block: 0,
                partial: false,
                left: Left::default(),
                stored: 0,
                one_snapshot: true,
            },
            batches: Batches::default(),
            work: vec![Work::Nothing; tuning.jobs.max(1)],
            speed: None,
            others: false,
            vacuums: Vacuums::new(&tuning),
            sleep: None,
            busy: 0,
            idle_scans: 0,
            start: 0,
            cut_off: false,
            refused: HashSet::new(),
            own: HashMap::new(),
            counts: Counts::default(),
        }
    }

    /// Has the first scan begin at this block; it then proves nothing.
    pub fn start_at(&mut self, block: u32) {
        self.start = block;
    }

    /// Has scans after the first answer only for rows that were there when the second began: under
    /// writes of values that never comply by themselves no scan would be the last otherwise.
    pub fn cut_off(&mut self) {
        self.cut_off = true;
    }

    /// Whether the scan under way answers only for rows that were there when the second scan began.
    /// It needs no single snapshot: who moves such a row makes it one that was not there.
    pub fn is_cut_off(&self) -> bool {
        self.cut_off && self.counts.scans > 1
    }

    /// What the last vacuum could not remove, in bytes: the next one comes earlier for that, but not at once.
    pub fn still_dead(&mut self, bytes: u64) {
        self.vacuums.still_dead(bytes);
    }

    /// Whether other sessions are active: batches then take a tenth of their time.
    pub fn beside_others(&mut self, others: bool) {
        self.others = others;
    }

    /// What the scan under way, or the last one, has found stored otherwise than chosen.
    pub fn left(&self) -> Left {
        self.scan.left
    }

    /// Blocks of the scan under way: read, and in all.
    pub fn position(&self) -> (u32, u32) {
        (self.scan.next_block.min(self.scan.blocks), self.scan.blocks)
    }

    /// Whether the scan under way may still prove that nothing is left: then it must go on in the
    /// snapshot that it began with.
    pub fn may_prove(&self) -> bool {
        self.scan.left.found == 0
            && (self.scan.one_snapshot || self.is_cut_off())
            && !self.scan.partial
    }

    /// Whether the scan under way is the first.
    pub fn is_first_scan(&self) -> bool {
        self.counts.scans <= 1
    }

    /// What to do next.
    pub fn next_action(&mut self) -> Action {
        let at_rest = self.work.iter().all(|work| *work == Work::Nothing);
        if !at_rest && (self.phase != Phase::Scanning || self.sleep.is_some()) {
            return Action::Wait;
        }
        if let Phase::Ended(end) = self.phase {
            return Action::Finish(end);
        }
        if let Some((time, reason)) = self.sleep.take() {
            return Action::Sleep(time, reason);
        }
        if self.vacuums.due().is_some() {
            return self.vacuum();
        }
        if self.phase == Phase::Begin {
            self.counts.scans += 1;
            return Action::BeginScan;
        }
        if !self.batches.queue.is_empty()
            && let Some(action) = self.batch()
        {
            return action;
        }
        if !at_rest {
            return Action::Wait;
        }
        if self.scan.next_block < self.scan.blocks {
            let end = self.scan.next_block.saturating_add(CHUNK).min(self.scan.blocks);
            return Action::Scan(self.scan.next_block..end);
        }
        self.end_scan();
        self.next_action()
    }

    /// One vacuum at a time.
    fn vacuum(&mut self) -> Action {
        let free = self.work.iter().position(|work| *work == Work::Nothing);
        let Some(job) = free.filter(|_| !self.work.contains(&Work::Vacuum)) else {
            return Action::Wait;
        };
        let Some((extent, part)) = self.vacuums.begin() else { return Action::Wait };
        self.start(job, Work::Vacuum);
        Action::Vacuum(job, extent, part)
    }

    /// Begins the first batch that may begin. Batches of one window follow each other, each when what
    /// the one before has left behind can be pruned: there the rows find room on their own pages.
    fn batch(&mut self) -> Option<Action> {
        let job = self.work.iter().position(|work| *work == Work::Nothing)?;
        let (mut pinned, mut under_way) = (u64::MAX, Vec::new());
        for work in &self.work {
            if let Work::Batch { batch, pins } = work {
                pinned = pinned.min(*pins);
                under_way.push(batch.number);
            }
        }
        let free =
            |batch: &Batch| self.batches.last.get(&batch.window).is_none_or(|&last| last < pinned);
        let at = self.batches.queue.iter().position(free)?;
        let mut batch = self.batches.queue.remove(at)?;
        let share = if batch.insists { batch.rows.len() } else { self.share(&batch.rows) };
        let rest = batch.rows.split_off(share);
        if !rest.is_empty() {
            self.batches.queue.insert(at, Batch::new(batch.window, rest));
        }
        self.batches.begun += 1;
        batch.number = self.batches.begun;
        self.batches.last.insert(batch.window, batch.number);
        let rows = batch.rows.clone();
        let pins = under_way.into_iter().min().unwrap_or(batch.number);
        let insists = batch.insists;
        self.start(job, Work::Batch { batch, pins });
        Some(if insists { Action::Insist(job, rows) } else { Action::Batch(job, rows) })
    }

    fn start(&mut self, job: usize, work: Work) {
        if let Some(slot) = self.work.get_mut(job) {
            *slot = work;
        }
    }

    /// The batch that a job has ended.
    fn ended(&mut self, job: usize) -> Batch {
        match self.work.get_mut(job).map(|slot| std::mem::replace(slot, Work::Nothing)) {
            Some(Work::Batch { batch, .. }) => batch,
            _ => Batch::new(0, Vec::new()),
        }
    }

    fn end_scan(&mut self) {
        let proved = self.may_prove();
        let partial = std::mem::take(&mut self.scan.partial);
        if proved {
            self.phase =
                Phase::Ended(if self.scan.left.sum() == 0 { End::Complete } else { End::Left });
            return;
        }
        self.phase = Phase::Begin;
        self.vacuums.scan_ended();
        if self.scan.stored > 0 || partial {
            self.idle_scans = 0;
            return;
        }
        self.idle_scans += 1;
        if self.idle_scans >= IDLE_SCANS {
            self.phase = Phase::Ended(End::Left);
            return;
        }
        let wait = Duration::from_millis(100u64 << self.idle_scans.min(6));
        self.sleep = Some((wait, Wait::RowsLocked));
    }

    /// Takes note of what happened. `jitter` is from 0 to 1.
    pub fn note(&mut self, event: Event, jitter: f64) {
        if matches!(self.phase, Phase::Ended(_)) {
            // what was under way is waited for
            match event {
                Event::BatchDone { job, .. }
                | Event::BatchBusy(job)
                | Event::BatchRefused(job)
                | Event::Vacuumed { job, .. }
                | Event::Failed(job) => drop(self.ended(job)),
                _ => {}
            }
            return;
        }
        match event {
            Event::Stop => self.phase = Phase::Ended(End::Stopped),
            Event::Begun { blocks, bytes } => {
                self.scan.blocks = blocks;
                self.vacuums.scan_begins(bytes);
                self.scan.next_block = std::mem::take(&mut self.start).min(blocks);
                self.scan.partial = self.scan.next_block > 0;
                (self.scan.left, self.scan.stored, self.scan.one_snapshot) =
                    (Left::default(), 0, true);
                self.phase = Phase::Scanning;
            }
            Event::Scanned(rows) => {
                self.scan.next_block =
                    self.scan.next_block.saturating_add(CHUNK).min(self.scan.blocks);
                self.plan(rows);
            }
            Event::BatchDone { job, rows, xid, took } => self.batch_done(job, rows, xid, took),
            Event::BatchBusy(job) => {
                let batch = self.ended(job);
                self.counts.retries += 1;
                self.busy += 1;
                self.sleep = Some((after_timeouts(self.busy, jitter), Wait::LockTimeout));
                // a batch that never gets its locks is left to the next scan
                if self.busy < 5 {
                    self.batches.queue.push_front(batch);
                }
            }
            Event::BatchRefused(job) => {
                let Batch { window, mut rows, insists, .. } = self.ended(job);
                if insists {
                    // it may have been for another row of the block
                    self.batches.queue.push_front(Batch::new(window, rows));
                } else if let [row] = rows.as_slice() {
                    self.refused.insert((row.ctid, row.xmin));
                    self.scan.left.found = self.scan.left.found.saturating_sub(1);
                    self.scan.left.refused += 1;
                } else {
                    let second = rows.split_off(rows.len() / 2);
                    self.batches.queue.push_front(Batch::new(window, second));
                    self.batches.queue.push_front(Batch::new(window, rows));
                }
            }
            Event::Vacuumed { job, done } => {
                drop(self.ended(job));
                if let Some((extent, took)) = done {
                    self.vacuums.done(extent, took);
                }
            }
            Event::Failed(job) => {
                drop(self.ended(job));
                self.phase = Phase::Ended(End::Stopped);
            }
            Event::SnapshotLost => self.scan.one_snapshot = false,
        }
    }

    fn batch_done(&mut self, job: usize, rows: u64, xid: u32, took: Duration) {
        self.busy = 0;
        self.counts.longest_batch = self.counts.longest_batch.max(took);
        let Batch { rows: done, insists, .. } = self.ended(job);
        // an insisting batch may write all rows of a block: whether it got at those it is for, a scan says
        self.scan.stored += if insists { 0 } else { rows };
        let before = done.iter().filter_map(|row| self.own.get(&row.xmin)).max();
        self.own.insert(xid, before.map_or(1, |tries| tries.saturating_add(1)));
        let bytes: u64 = done.iter().map(|row| row.stored).sum();
        // each row's tuple takes space too
        self.vacuums.batch_done(bytes + 64 * done.len() as u64, took);
        let ms = (took.as_secs_f64() * 1000.0).max(0.05);
        let now = done.len() as f64 / ms;
        self.speed = Some(smoothed(self.speed, now));
    }
}

#[cfg(test)]
mod tests;
