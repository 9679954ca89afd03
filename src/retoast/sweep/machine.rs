//! What the sweep does next (pure): takes events and the time, and answers with actions. It does not use connections,
//! the clock or pages.
//!
//! A scan reads chunks of blocks. The rows that it finds are re-toasted in windows of a few pages, each in several
//! passes. With k passes, each takes every k-th row, so that the first one moves a k-th of the rows off their pages,
//! and pruning then makes room for the others to stay (HOT). The sweep ends when a whole scan in one snapshot has found
//! nothing; an empty batch proves nothing. Every scan begins in one snapshot, and releases it when it finds the first
//! row.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use crate::retoast::listener::Wait;
use crate::retoast::pace::rules::{BESIDE_OTHERS, after_timeouts, smoothed};
use crate::retoast::task::session::Tuning;
use toast_format::disk::ItemPointer;
use toast_format::fill::file_model::EARLY;

/// The maximum number of blocks that a scan reads at a time.
pub const CHUNK: u32 = 256;
/// Bytes of heap and TOAST that a scan reads at a time, on average: to judge a row, its values may have to be read, and only
/// after that does the scan stop, or re-toast anything.
const CHUNK_BYTES: u64 = 64 << 20;
/// The number of scans without any progress after which the sweep gives up.
const IDLE_SCANS: u32 = 12;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ScanPhase {
    #[default]
    Begin,
    Scanning,
    Ended(SweepEnd),
}

#[derive(Debug, Clone, Default)]
struct ScanState {
    blocks: u32,
    next_block: u32,
    /// The number of blocks that it reads at a time.
    chunk: u32,
    /// Whether it skips a part of the table, so that it proves nothing.
    partial: bool,
    /// What it has found, and how many rows have been re-toasted since it began.
    left: Noncompliant,
    stored: u64,
    /// Whether the snapshot in which it began has been released.
    snapshot_lost: bool,
}

/// The batches of the current chunk.
#[derive(Debug, Clone, Default)]
struct ChunkBatches {
    queue: VecDeque<Batch>,
    /// The number of rows of the chunk.
    rows: usize,
    /// The number of batches begun, and the last one of each window of the chunk.
    begun: u64,
    last: HashMap<u32, u64>,
}

#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// The number of scans begun.
    pub scans: u32,
    /// The number of lock timeouts and deadlocks.
    pub retries: u64,
    /// The duration of the longest batch.
    pub longest_batch: Duration,
}

/// The state of the conversion of one table.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    tuning: Tuning,
    phase: ScanPhase,
    scan: ScanState,
    batches: ChunkBatches,
    /// What each job does.
    work: Vec<JobState>,
    /// Rows per millisecond, smoothed.
    speed: Option<f64>,
    /// Whether other sessions are active, in which case batches take a tenth of their time.
    pub others: bool,
    vacuums: Vacuums,
    sleep: Option<(Duration, Wait)>,
    busy: u32,
    idle_scans: u32,
    /// The block at which the first scan begins; it proves nothing unless that is 0.
    pub start: u32,
    /// Whether scans after the first cover only rows that existed when the second began. Otherwise, if other sessions
    /// write values that never comply by themselves, no scan would be the last.
    pub cut_off: bool,
    /// Row versions that the server has refused to store.
    refused: HashSet<(ItemPointer, u32)>,
    /// The machine's own transactions, with the number of times that the rows they wrote have been re-toasted.
    own: HashMap<u32, u8>,
    pub counts: Counts,
}

impl Machine {
    /// Creates the machine for a conversion that has not begun.
    pub fn new(tuning: Tuning) -> Machine {
        let work = vec![JobState::Nothing; tuning.jobs.max(1)];
        Machine { tuning, work, vacuums: Vacuums::new(&tuning), ..Machine::default() }
    }

    /// Whether the current scan covers only rows that existed when the second scan began. Such a scan needs no single
    /// snapshot, because a row that is moved no longer counts as having existed.
    pub fn is_cut_off(&self) -> bool {
        self.cut_off && self.counts.scans > 1
    }

    /// Sets how many bytes the last vacuum could not remove, so that the next vacuum comes earlier, though not
    /// immediately.
    pub fn still_dead(&mut self, bytes: u64) {
        self.vacuums.still_dead(bytes);
    }

    /// The rows that the current scan, or the last one, has found not to comply.
    pub fn left(&self) -> Noncompliant {
        self.scan.left
    }

    /// The progress of the current scan: blocks whose rows are done, and blocks in all.
    pub fn position(&self) -> (u32, u32) {
        let under_way = self.work.iter().map(|work| match work {
            JobState::Batch { batch, .. } => batch.rows.len(),
            _ => 0,
        });
        let queued = self.batches.queue.iter().map(|batch| batch.rows.len());
        let left: usize = under_way.chain(queued).sum();
        let part = left as f64 / self.batches.rows.max(left).max(1) as f64;
        let read = self.scan.next_block.min(self.scan.blocks);
        let chunk = f64::from(self.scan.chunk.min(self.scan.blocks)) * part;
        (read.saturating_sub(chunk.ceil() as u32), self.scan.blocks)
    }

    /// Whether the current scan may still prove that nothing is left, in which case it must continue in the snapshot
    /// with which it began.
    pub fn may_prove(&self) -> bool {
        self.scan.left.found == 0
            && (!self.scan.snapshot_lost || self.is_cut_off())
            && !self.scan.partial
    }

    /// Whether the current scan is the first.
    pub fn is_first_scan(&self) -> bool {
        self.counts.scans <= 1
    }

    pub fn next_action(&mut self) -> Action {
        let at_rest = self.work.iter().all(|work| *work == JobState::Nothing);
        if !at_rest && (self.phase != ScanPhase::Scanning || self.sleep.is_some()) {
            return Action::Wait;
        }
        if let ScanPhase::Ended(end) = self.phase {
            return Action::Finish(end);
        }
        if let Some((time, reason)) = self.sleep.take() {
            return Action::Sleep(time, reason);
        }
        if self.vacuums.due.is_some() {
            return self.vacuum();
        }
        if self.phase == ScanPhase::Begin {
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
            let end = self.scan.next_block.saturating_add(self.scan.chunk).min(self.scan.blocks);
            return Action::Scan(self.scan.next_block..end);
        }
        self.end_scan();
        self.next_action()
    }

    /// Begins the vacuum that is due, unless another one is running.
    fn vacuum(&mut self) -> Action {
        let free = self.work.iter().position(|work| *work == JobState::Nothing);
        let Some(job) = free else { return Action::Wait };
        if self.work.contains(&JobState::Vacuum) {
            return Action::Wait;
        }
        let Some((extent, part)) = self.vacuums.begin() else { return Action::Wait };
        self.start(job, JobState::Vacuum);
        Action::Vacuum(job, extent, part)
    }

    /// Begins the first batch that may begin. A batch of a window may begin once what the previous one of the window
    /// left can be pruned, so that the rows find room on their own pages.
    fn batch(&mut self) -> Option<Action> {
        let job = self.work.iter().position(|work| *work == JobState::Nothing)?;
        let mut pinned = u64::MAX;
        let mut under_way = Vec::new();
        for work in &self.work {
            if let JobState::Batch { batch, pins } = work {
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
        self.start(job, JobState::Batch { batch, pins });
        Some(if insists { Action::Insist(job, rows) } else { Action::Batch(job, rows) })
    }

    fn start(&mut self, job: usize, work: JobState) {
        if let Some(slot) = self.work.get_mut(job) {
            *slot = work;
        }
    }

    /// Takes the batch that a job has ended.
    fn ended(&mut self, job: usize) -> Batch {
        match self.work.get_mut(job).map(|slot| std::mem::replace(slot, JobState::Nothing)) {
            Some(JobState::Batch { batch, .. }) => batch,
            _ => Batch::new(0, Vec::new()),
        }
    }

    fn end_scan(&mut self) {
        let proved = self.may_prove();
        let partial = std::mem::take(&mut self.scan.partial);
        if proved {
            self.phase = ScanPhase::Ended(if self.scan.left.sum() == 0 {
                SweepEnd::Complete
            } else {
                SweepEnd::Incomplete
            });
            return;
        }
        self.phase = ScanPhase::Begin;
        self.vacuums.scan_ended();
        if self.scan.stored > 0 || partial {
            self.idle_scans = 0;
            return;
        }
        self.idle_scans += 1;
        if self.idle_scans >= IDLE_SCANS {
            self.phase = ScanPhase::Ended(SweepEnd::Incomplete);
            return;
        }
        let wait = Duration::from_millis(100u64 << self.idle_scans.min(6));
        self.sleep = Some((wait, Wait::RowsLocked));
    }

    /// Takes an event. `jitter` is between 0 and 1.
    pub fn note(&mut self, event: Event, jitter: f64) {
        if matches!(self.phase, ScanPhase::Ended(_)) {
            // jobs that are still running are waited for
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
            Event::Stop => self.phase = ScanPhase::Ended(SweepEnd::Stopped),
            Event::Begun { blocks, bytes } => {
                self.vacuums.bytes = bytes;
                let next_block = std::mem::take(&mut self.start).min(blocks);
                let partial = next_block > 0;
                let chunk = CHUNK_BYTES.saturating_mul(blocks.into()) / bytes.max(1);
                let chunk = chunk.clamp(1, CHUNK.into()) as u32;
                self.scan =
                    ScanState { blocks, next_block, chunk, partial, ..ScanState::default() };
                self.phase = ScanPhase::Scanning;
            }
            Event::Scanned(rows) => {
                let start = self.scan.next_block;
                self.scan.next_block = start.saturating_add(self.scan.chunk).min(self.scan.blocks);
                self.plan(rows, start..self.scan.next_block);
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
                    // the cause may be another row of the block
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
                self.phase = ScanPhase::Ended(SweepEnd::Stopped);
            }
            Event::SnapshotLost => self.scan.snapshot_lost = true,
        }
    }

    fn batch_done(&mut self, job: usize, rows: u64, xid: u32, took: Duration) {
        self.busy = 0;
        self.counts.longest_batch = self.counts.longest_batch.max(took);
        let Batch { rows: done, insists, .. } = self.ended(job);
        // an insisting batch may write all rows of a block; the next scan shows whether those it was for are among
        // them
        self.scan.stored += if insists { 0 } else { rows };
        let before = done.iter().filter_map(|row| self.own.get(&row.xmin)).max();
        self.own.insert(xid, before.map_or(1, |tries| tries.saturating_add(1)));
        // headers of chunks take up space too
        let values = done.iter().map(|row| row.stored + 64).sum();
        let dead = done.iter().map(|row| row.dead).sum();
        self.vacuums.batch_done(values, dead, took);
        let ms = (took.as_secs_f64() * 1000.0).max(0.05);
        let now = done.len() as f64 / ms;
        self.speed = Some(smoothed(self.speed, now));
    }

    /// How many of these rows one batch takes, considering time and bytes; at least one.
    pub(super) fn share(&self, rows: &[Row]) -> usize {
        let wanted = self.tuning.batch.as_secs_f64() * 1000.0;
        let mut most = self.speed.map_or(FIRST_BATCH, |speed| speed * wanted);
        if self.others {
            most = (most * BESIDE_OTHERS).max(most.min(FEWEST_BESIDE_OTHERS));
        }
        let most = (most as usize).clamp(1, 10_000).min(rows.len());
        let mut bytes = 0u64;
        let mut share = 0;
        for row in rows.iter().take(most) {
            bytes = bytes.saturating_add(row.bytes);
            if bytes > self.tuning.batch_bytes {
                break;
            }
            share += 1;
        }
        share.max(1).min(rows.len())
    }

    /// Divides the rows of a chunk into batches: windows, and passes over each.
    fn plan(&mut self, mut rows: Vec<Row>, chunk: Range<u32>) {
        rows.retain(|row| {
            let refused = self.refused.contains(&(row.ctid, row.xmin));
            let tries = self.own.get(&row.xmin).copied().unwrap_or(0);
            if row.by_copy && tries > 0 {
                return false;
            }
            if row.spared && tries > 0 {
                self.scan.left.spared += 1;
                return false;
            }
            let disagrees = tries >= MOST_TRIES;
            self.scan.left.refused += u64::from(refused);
            self.scan.left.disagreeing += u64::from(disagrees && !refused);
            !refused && !disagrees
        });
        rows.sort_unstable();
        self.batches.rows = rows.len();
        self.scan.left.found += rows.len() as u64;
        // the snapshot is released, whatever happens to the rows
        self.scan.snapshot_lost |= !rows.is_empty();
        if self.insists() {
            self.insist(&rows);
            return;
        }
        let passes = self.tuning.passes.max(1) as usize;
        let blocks = chunk.end.saturating_sub(chunk.start);
        let rows_per_page = rows.len() as f64 / f64::from(blocks.max(1));
        let pages = self.tuning.window(rows_per_page, blocks, self.scan.blocks);
        let window = |row: &Row| row.ctid.block.0.saturating_sub(chunk.start) / pages;
        let windows: Vec<&[Row]> = rows.chunk_by(|a, b| window(a) == window(b)).collect();
        self.batches.last.clear();
        let turns = self.tuning.turns() as usize;
        for some in windows.chunks(turns) {
            for pass in 0..passes {
                for rows in some {
                    let rows: Vec<Row> = rows.iter().copied().skip(pass).step_by(passes).collect();
                    if let Some(row) = rows.first() {
                        self.batches.queue.push_back(Batch::new(window(row), rows));
                    }
                }
            }
        }
    }

    /// Whether batches now wait for rows that other sessions have locked.
    pub fn insists(&self) -> bool {
        self.idle_scans >= IDLE_BEFORE_INSISTING
    }

    /// Plans one batch for each block, which waits for locked rows.
    fn insist(&mut self, rows: &[Row]) {
        self.batches.last.clear();
        for rows in rows.chunk_by(|a, b| a.ctid.block == b.ctid.block) {
            if let Some(row) = rows.first() {
                let batch = Batch::new(row.ctid.block.0, rows.to_vec());
                self.batches.queue.push_back(Batch { insists: true, ..batch });
            }
        }
    }
}

/// A row to re-toast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// The row's address when it was seen.
    pub ctid: ItemPointer,
    /// The transaction that inserted this version (the low 32 bits).
    pub xmin: u32,
    /// Whether nothing stored shows that it differs, only a copy that the server has compressed, although the row's
    /// value is not compressed. An UPDATE of the row itself determines this more reliably.
    pub by_copy: bool,
    /// Whether it differs only in values whose ordinary pointers the toaster may leave unchanged. An UPDATE of the
    /// row itself shows whether it does.
    pub spared: bool,
    /// The size of the chosen columns' values: as stored now, or uncompressed if that is known and more, because a
    /// batch may store them so.
    pub bytes: u64,
    /// The size of these values as stored now.
    pub stored: u64,
    /// The size of what is dead once the row is re-toasted: its version in the table, and these values out of line.
    pub dead: u64,
}

impl Row {
    /// A row whose stored values show that it differs.
    pub(crate) fn new(ctid: ItemPointer, xmin: u32, bytes: u64, stored: u64, dead: u64) -> Row {
        Row { ctid, xmin, by_copy: false, spared: false, bytes, stored, dead }
    }

    /// What is dead of a row whose columns take `columns` bytes in all, by functions, if `stored` bytes of them are
    /// re-toasted. What a row of `threshold` bytes has no room for is out of line, and stays unless it is re-toasted.
    pub(crate) fn dead_by_functions(columns: u64, stored: u64, threshold: u64) -> u64 {
        let outside = if stored > threshold { stored } else { 0 };
        outside + columns.saturating_sub(outside).min(threshold)
    }
}

/// What a vacuum covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The TOAST relation and its index, which contain the old values.
    Toast,
    /// The table with its TOAST relation and all indexes.
    Table,
}

impl Extent {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Extent::Toast => "TOAST relation",
            Extent::Table => "table",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Begun {
        /// Blocks of the heap.
        blocks: u32,
        /// Bytes of the heap and the TOAST relation.
        bytes: u64,
    },
    /// A chunk was read; these rows do not comply.
    Scanned(Vec<Row>),
    /// A batch was committed.
    BatchDone {
        /// The job that ran the batch.
        job: usize,
        /// The number of rows re-toasted; the rest were locked or no longer existed.
        rows: u64,
        /// The transaction (the low 32 bits).
        xid: u32,
        /// The duration of the transaction.
        took: Duration,
    },
    /// A batch ran into a lock timeout or a deadlock, and changed nothing.
    BatchBusy(usize),
    /// The server refused a batch because of the content of its rows, and nothing was changed.
    BatchRefused(usize),
    Vacuumed {
        /// The job that ran the vacuum.
        job: usize,
        /// What was vacuumed, and how long that took; `None` if it could not be done now.
        done: Option<(Extent, Duration)>,
    },
    /// A job ran into an error, or a stop, that ends the sweep.
    Failed(usize),
    /// The current scan continues in another snapshot, so that it no longer proves anything.
    SnapshotLost,
    /// A stop was requested.
    Stop,
}

/// How the sweep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepEnd {
    /// A whole scan in one snapshot has found that every row is stored as requested.
    Complete,
    /// Some rows are not stored as requested.
    Incomplete,
    Stopped,
}

impl SweepEnd {
    pub(crate) fn name(self) -> &'static str {
        match self {
            SweepEnd::Complete => "complete",
            SweepEnd::Incomplete => "incomplete",
            SweepEnd::Stopped => "stopped",
        }
    }
}

/// Rows that the current scan has found not to comply, by what happens to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Noncompliant {
    pub found: u64,
    /// Rows that the server has refused to store.
    pub refused: u64,
    /// Rows that the sweep has re-toasted, and that do not comply according to the judge.
    pub disagreeing: u64,
    /// Rows that the sweep has re-toasted, and of which the toaster has stored values with ordinary pointers, so that
    /// they comply.
    pub spared: u64,
}

impl Noncompliant {
    /// The number of rows that are not stored as requested.
    pub fn sum(self) -> u64 {
        self.found + self.refused + self.disagreeing
    }
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Determine the number of blocks.
    BeginScan,
    Scan(Range<u32>),
    /// Make this job re-toast these rows in one transaction.
    Batch(usize, Vec<Row>),
    /// Make this job re-toast these rows of one block, wherever they are by then, and wait for those that other
    /// sessions have locked. These rows are changed so often that their addresses are outdated before a batch gets to
    /// them.
    Insist(usize, Vec<Row>),
    /// Make this job vacuum this extent, of which this fraction may be dead.
    Vacuum(usize, Extent, f64),
    /// Wait until a job has ended its work.
    Wait,
    /// Wait, with no transaction open.
    Sleep(Duration, Wait),
    /// Stop, because the sweep has ended.
    Finish(SweepEnd),
}

/// The current work of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JobState {
    Nothing,
    Batch {
        batch: Batch,
        /// The oldest batch that was running when this one began, which may be this one. What that batch and all
        /// later ones leave cannot be pruned until this one has ended.
        pins: u64,
    },
    Vacuum,
}

/// Rows of one window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) window: u32,
    pub(super) rows: Vec<Row>,
    /// Whether it waits for locked rows.
    pub(super) insists: bool,
    /// Its number once it has begun.
    pub(super) number: u64,
}

impl Batch {
    pub(super) fn new(window: u32, rows: Vec<Row>) -> Batch {
        Batch { window, rows, insists: false, number: 0 }
    }
}

/// The minimum number of rows in a batch while other sessions are active, if there would be as many otherwise; below
/// this, the fixed cost of a batch would dominate the load on other sessions.
const FEWEST_BESIDE_OTHERS: f64 = 16.0;
/// The number of rows in the first batch; later ones depend on how long batches take.
const FIRST_BATCH: f64 = 50.0;
/// How often the sweep's own transactions re-toast a row. If the judge still does not accept the row after that, it
/// is counted as left.
pub(super) const MOST_TRIES: u8 = 4;
/// The number of scans without any progress after which batches wait for locked rows instead of skipping them.
const IDLE_BEFORE_INSISTING: u32 = 2;

// When to vacuum: once old values are vacuumed, new ones reuse their space, so that a file grows by about as much as
// is dead at any one time. Old values are in the TOAST relation, and a vacuum of that alone reads none of the table's
// own indexes, so it is done early if it is cheap.

/// During a scan, nothing is vacuumed for fewer dead bytes than this.
const LEAST: u64 = 1 << 20;
/// The TOAST relation alone is vacuumed only if batches have taken at least this many times as long as its vacuum
/// takes.
const WORTH: u32 = 12;
/// The number of recent vacuums of the TOAST relation. The shortest of them determines how long one takes, because
/// others may have been delayed, and a vacuum that comes too late lets the file grow.
const RECENT: usize = 3;

/// What is dead, and how long vacuums take.
#[derive(Debug, Clone, Default)]
struct Vacuums {
    /// The size of the table and its TOAST relation when the scan began, in bytes.
    bytes: u64,
    /// The fraction of these bytes that may be dead.
    max_bloat: f64,
    /// The fraction of these bytes for which the TOAST relation alone is vacuumed.
    early: f64,
    /// What has become dead since the table was last vacuumed, and old values since its TOAST relation was, in bytes.
    of_table: u64,
    of_toast: u64,
    /// The time that batches have taken since then.
    worked: Duration,
    /// How long recent vacuums of the TOAST relation took, or of the table if that was shorter.
    recent: Vec<Duration>,
    due: Option<Extent>,
}

impl Vacuums {
    fn new(tuning: &Tuning) -> Vacuums {
        // other jobs continue while a vacuum runs
        let part = if tuning.jobs > 1 { 0.5 } else { 1.0 };
        Vacuums {
            max_bloat: tuning.max_bloat * part,
            early: tuning.max_bloat * EARLY,
            ..Vacuums::default()
        }
    }

    /// At the end of a scan, makes a vacuum due if anything is dead, so that the next scan need not read that.
    fn scan_ended(&mut self) {
        self.due = (self.of_table > 0).then_some(Extent::Table);
    }

    /// Records what a batch has left dead: the bytes of old values, and those of old row versions together with them.
    fn batch_done(&mut self, values: u64, dead: u64, took: Duration) {
        self.of_table += dead;
        self.of_toast += values;
        self.worked += took;
        if self.of_table > self.limit(self.max_bloat) {
            self.due = Some(Extent::Table);
        } else if self.of_toast > self.limit(self.early) && self.is_worth_it() {
            self.due = Some(Extent::Toast);
        }
    }

    fn is_worth_it(&self) -> bool {
        self.recent.iter().min().is_none_or(|&took| self.worked >= took * WORTH)
    }

    fn limit(&self, part: f64) -> u64 {
        ((self.bytes as f64 * part) as u64).max(LEAST)
    }

    /// Begins what is due: returns its extent, and an upper limit of what is dead in the TOAST relation, as a
    /// fraction of all bytes.
    fn begin(&mut self) -> Option<(Extent, f64)> {
        let extent = self.due.take()?;
        let part = self.of_toast as f64 / self.bytes.max(1) as f64;
        (self.of_toast, self.worked) = (0, Duration::ZERO);
        if extent == Extent::Table {
            self.of_table = 0;
        }
        Some((extent, part))
    }

    /// Records what was vacuumed, which may be more than was due.
    fn done(&mut self, extent: Extent, took: Duration) {
        match extent {
            Extent::Toast => {
                self.recent.truncate(RECENT - 1);
                self.recent.insert(0, took);
            }
            Extent::Table => {
                self.of_table = self.of_table.min(self.of_toast);
                self.recent.retain(|&then| then <= took);
                if self.recent.is_empty() {
                    self.recent.push(took);
                }
            }
        }
    }

    /// Records how many bytes could not be removed.
    fn still_dead(&mut self, bytes: u64) {
        self.of_table = self.of_table.max(bytes.min(self.limit(self.max_bloat) / 2));
        self.of_toast = self.of_toast.max(bytes.min(self.limit(self.early) / 2));
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod vacuum_tests {
    use super::*;

    const MB: u64 = 1 << 20;

    /// A table of 1000 MB, of which 5 % may be dead.
    fn vacuums() -> Vacuums {
        let mut vacuums = Vacuums::new(&Tuning {
            least_window: 8,
            passes: 4,
            batch: Duration::from_millis(100),
            batch_bytes: MB,
            max_bloat: 0.05,
            jobs: 1,
        });
        vacuums.bytes = 1000 * MB;
        vacuums
    }

    /// Records a batch, and returns what is due then.
    fn batch(vacuums: &mut Vacuums, mb: u64, ms: u64) -> Option<Extent> {
        vacuums.batch_done(mb * MB, mb * MB, Duration::from_millis(ms));
        vacuums.due
    }

    fn vacuum(vacuums: &mut Vacuums, ms: u64) -> (Extent, f64) {
        let begun = vacuums.begin().unwrap();
        vacuums.done(begun.0, Duration::from_millis(ms));
        (begun.0, (begun.1 * 1000.0).round())
    }

    #[test]
    fn the_toast_relation_is_vacuumed_early_where_that_takes_little_of_the_time() {
        let mut vacuums = vacuums();
        assert_eq!(batch(&mut vacuums, 10, 100), None);
        assert_eq!(batch(&mut vacuums, 1, 10), Some(Extent::Toast));
        assert_eq!(vacuum(&mut vacuums, 50), (Extent::Toast, 11.0));
        assert_eq!(batch(&mut vacuums, 11, 599), None);
        assert_eq!(batch(&mut vacuums, 1, 1), Some(Extent::Toast));
        assert_eq!(vacuum(&mut vacuums, 10), (Extent::Toast, 12.0));
        assert_eq!(batch(&mut vacuums, 11, 120), Some(Extent::Toast));
        // delayed by something else
        assert_eq!(vacuum(&mut vacuums, 9000), (Extent::Toast, 11.0));
        assert_eq!(batch(&mut vacuums, 11, 120), Some(Extent::Toast));
        assert_eq!(vacuum(&mut vacuums, 10), (Extent::Toast, 11.0));
        // 45 MB are dead in the heap
        assert_eq!(batch(&mut vacuums, 6, 10), Some(Extent::Table));
        assert_eq!(vacuum(&mut vacuums, 50), (Extent::Table, 6.0));
        assert_eq!(vacuums.due, None);
    }

    #[test]
    fn one_that_takes_long_waits_for_the_limit_and_is_timed_by_a_shorter_one_of_all() {
        let mut vacuums = vacuums();
        batch(&mut vacuums, 11, 100);
        assert_eq!(vacuum(&mut vacuums, 1000), (Extent::Toast, 11.0));
        assert_eq!(batch(&mut vacuums, 39, 400), None);
        assert_eq!(batch(&mut vacuums, 1, 10), Some(Extent::Table));
        assert_eq!(vacuum(&mut vacuums, 12), (Extent::Table, 40.0));
        assert_eq!(batch(&mut vacuums, 11, 150), Some(Extent::Toast));
        // the whole table is vacuumed because its TOAST relation alone is not accessible: then nothing is dead
        let begun = vacuums.begin();
        vacuums.done(Extent::Table, Duration::from_millis(12));
        assert_eq!((begun.map(|(extent, _)| extent), vacuums.of_table), (Some(Extent::Toast), 0));
    }

    #[test]
    fn what_could_not_be_removed_makes_the_next_one_come_earlier() {
        let mut vacuums = vacuums();
        batch(&mut vacuums, 11, 100);
        vacuum(&mut vacuums, 1);
        vacuums.still_dead(11 * MB);
        assert_eq!(batch(&mut vacuums, 5, 100), None);
        assert_eq!(batch(&mut vacuums, 1, 1), Some(Extent::Toast));
        vacuum(&mut vacuums, 1);
        vacuums.still_dead(60 * MB);
        assert_eq!(vacuums.of_table, 25 * MB);
    }
}
