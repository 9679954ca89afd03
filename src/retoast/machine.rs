//! What the sweep does next (pure): it is told what happened and what time it is, and says what to
//! do. It never sees a connection, a clock or a page.
//!
//! A scan reads chunks of blocks. What it finds is stored anew in windows of a few pages, each in
//! passes: a pass takes every k-th row, so that the first moves a k-th of the rows off their pages
//! and pruning makes room for the others to stay (HOT). A sweep is over when a whole scan in one
//! snapshot has found nothing; an empty batch says nothing. Every scan begins in one snapshot, and gives
//! it up with the first row that it finds.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use crate::disk::ItemPointer;

/// Blocks that a scan reads at a time.
pub const CHUNK: u32 = 256;
/// The part of its time that a batch takes while other sessions are active: whoever waits for a processor
/// or a row that it holds waits as much less.
const BESIDE_OTHERS: f64 = 0.1;
/// Rows that a batch has beside others all the same, if it has them at all: with fewer, what every batch
/// costs however small it is would be most of what the others bear.
const FEWEST_BESIDE_OTHERS: f64 = 16.0;
/// Scans without any progress after which the sweep gives up.
const IDLE_SCANS: u32 = 12;
/// Rows of the first batch; later ones follow the time that batches take.
const FIRST_BATCH: f64 = 50.0;
/// Refusals of single rows after which the cause cannot be the rows.
pub const MAX_REFUSED: usize = 100;

/// How the sweep goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tuning {
    /// Pages of a window, or with several jobs of as many windows as jobs.
    pub window: u32,
    /// Passes over a window.
    pub passes: u32,
    /// How long a batch is to take.
    pub batch: Duration,
    /// Bytes of values that a batch stores at the most, unless one row has more.
    pub batch_bytes: u64,
    /// Part of a relation's size that may be dead before it is vacuumed.
    pub max_bloat: f64,
    /// Transactions under way at a time, a vacuum counted.
    pub jobs: usize,
}

/// A row to store anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// Where it was seen.
    pub ctid: ItemPointer,
    /// Bytes of the chosen columns' values as stored now.
    pub bytes: u64,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A scan begins: the relation has this many blocks, and with its TOAST relation this many bytes.
    Begun {
        /// Blocks of the heap.
        blocks: u32,
        /// Bytes of heap and TOAST relation.
        bytes: u64,
    },
    /// A chunk was read; these rows are stored otherwise than chosen.
    Scanned(Vec<Row>),
    /// A batch was committed.
    BatchDone {
        /// Whose it was.
        job: usize,
        /// Rows that were stored anew; others were locked or no longer there.
        rows: u64,
        /// How long the transaction took.
        took: Duration,
    },
    /// A batch met a lock timeout or a deadlock, and nothing of it was done.
    BatchBusy(usize),
    /// The server refused a batch for what stands in its rows, and nothing of it was done.
    BatchRefused(usize),
    /// The table was vacuumed, or could not be for now.
    Vacuumed(usize),
    /// A job met an error or a stop that ends the sweep.
    Failed(usize),
    /// The scan under way goes on in another snapshot: it proves nothing any more.
    SnapshotLost,
    /// Somebody asked to stop.
    Stop,
}

/// Why the sweep waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A lock was not to be had.
    LockTimeout,
    /// All that is left to do is locked by others.
    RowsLocked,
}

impl Reason {
    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            Reason::LockTimeout => "a lock could not be had in time",
            Reason::RowsLocked => "the rows left to do are locked by other transactions",
        }
    }
}

/// How the sweep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// A whole scan in one snapshot has found nothing to do.
    Complete,
    /// Rows are left that could not be stored anew.
    Left,
    /// Stopped on request.
    Stopped,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Say how many blocks there are.
    BeginScan,
    /// Read these blocks.
    Scan(Range<u32>),
    /// Have this job store these rows anew in one transaction.
    Batch(usize, Vec<Row>),
    /// Have this job vacuum the table.
    Vacuum(usize),
    /// Wait until one of the jobs has done what it does.
    Wait,
    /// Wait, with no transaction open.
    Sleep(Duration, Reason),
    /// Nothing more.
    Finish(End),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Begin,
    Scanning,
    Ended(End),
}

/// What a job does.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Work {
    Nothing,
    Batch {
        batch: Batch,
        /// The oldest batch that was under way when this one began, itself counted: what that one and
        /// all later ones leave behind cannot be pruned until this one has ended.
        pins: u64,
    },
    Vacuum,
}

/// Rows of one window.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Batch {
    window: u32,
    rows: Vec<Row>,
    /// Its number, once it has begun.
    number: u64,
}

impl Batch {
    fn new(window: u32, rows: Vec<Row>) -> Batch {
        Batch { window, rows, number: 0 }
    }
}

/// The state of a sweep over one table.
#[derive(Debug, Clone)]
pub struct Machine {
    tuning: Tuning,
    phase: Phase,
    blocks: u32,
    next_block: u32,
    bytes: u64,
    queue: VecDeque<Batch>,
    /// What each job does.
    work: Vec<Work>,
    /// Batches begun so far, and the last one of each window of the chunk.
    begun: u64,
    last: HashMap<u32, u64>,
    /// Rows a millisecond, smoothed.
    speed: Option<f64>,
    /// Whether other sessions are active.
    others: bool,
    /// Bytes stored anew since the last vacuum.
    unvacuumed: u64,
    vacuum_due: bool,
    sleep: Option<(Duration, Reason)>,
    busy: u32,
    idle_scans: u32,
    /// Where the first scan begins.
    start: u32,
    /// Whether the scan under way leaves a part out, so that it proves nothing.
    partial: bool,
    /// Rows found and stored anew in the scan under way.
    found: u64,
    stored: u64,
    /// Whether the scan under way is all in one snapshot so far.
    one_snapshot: bool,
    /// Rows that the server refused, by address.
    refused: Vec<ItemPointer>,
    /// Scans that were begun.
    pub scans: u32,
    /// Lock timeouts and deadlocks met.
    pub retries: u64,
    /// The longest batch.
    pub longest_batch: Duration,
}

impl Machine {
    /// A sweep that has not begun.
    pub fn new(tuning: Tuning) -> Machine {
        Machine {
            tuning,
            phase: Phase::Begin,
            blocks: 0,
            next_block: 0,
            bytes: 0,
            queue: VecDeque::new(),
            work: vec![Work::Nothing; tuning.jobs.max(1)],
            begun: 0,
            last: HashMap::new(),
            speed: None,
            others: false,
            unvacuumed: 0,
            vacuum_due: false,
            sleep: None,
            busy: 0,
            idle_scans: 0,
            start: 0,
            partial: false,
            found: 0,
            stored: 0,
            one_snapshot: true,
            refused: Vec::new(),
            scans: 0,
            retries: 0,
            longest_batch: Duration::ZERO,
        }
    }

    /// Has the first scan begin at this block; it then proves nothing.
    pub fn start_at(&mut self, block: u32) {
        self.start = block;
    }

    /// Whether other sessions are active: batches then take a tenth of their time.
    pub fn beside_others(&mut self, others: bool) {
        self.others = others;
    }

    /// Rows that the server refused.
    pub fn refused(&self) -> &[ItemPointer] {
        &self.refused
    }

    /// Blocks of the scan under way: read, and in all.
    pub fn position(&self) -> (u32, u32) {
        (self.next_block.min(self.blocks), self.blocks)
    }

    /// Whether the scan under way may still prove that nothing is left: then it must go on in the
    /// snapshot that it began with.
    pub fn may_prove(&self) -> bool {
        self.found == 0 && self.one_snapshot && !self.partial
    }

    /// Whether the scan under way is the first.
    pub fn is_first_scan(&self) -> bool {
        self.scans <= 1
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
        if self.vacuum_due {
            return self.vacuum();
        }
        if self.phase == Phase::Begin {
            self.scans += 1;
            return Action::BeginScan;
        }
        if !self.queue.is_empty()
            && let Some(action) = self.batch()
        {
            return action;
        }
        if !at_rest {
            return Action::Wait;
        }
        if self.next_block < self.blocks {
            let end = self.next_block.saturating_add(CHUNK).min(self.blocks);
            return Action::Scan(self.next_block..end);
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
        (self.vacuum_due, self.unvacuumed) = (false, 0);
        self.start(job, Work::Vacuum);
        Action::Vacuum(job)
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
        let free = |batch: &Batch| self.last.get(&batch.window).is_none_or(|&last| last < pinned);
        let at = self.queue.iter().position(free)?;
        let mut batch = self.queue.remove(at)?;
        let rest = batch.rows.split_off(self.share(&batch.rows));
        if !rest.is_empty() {
            self.queue.insert(at, Batch::new(batch.window, rest));
        }
        self.begun += 1;
        batch.number = self.begun;
        self.last.insert(batch.window, batch.number);
        let rows = batch.rows.clone();
        let pins = under_way.into_iter().min().unwrap_or(batch.number);
        self.start(job, Work::Batch { batch, pins });
        Some(Action::Batch(job, rows))
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
        let partial = std::mem::take(&mut self.partial);
        if proved {
            self.phase =
                Phase::Ended(if self.refused.is_empty() { End::Complete } else { End::Left });
            return;
        }
        self.phase = Phase::Begin;
        self.vacuum_due = self.unvacuumed > 0;
        if self.stored > 0 || partial {
            self.idle_scans = 0;
            return;
        }
        self.idle_scans += 1;
        if self.idle_scans >= IDLE_SCANS {
            self.phase = Phase::Ended(End::Left);
            return;
        }
        let wait = Duration::from_millis(100u64 << self.idle_scans.min(6));
        self.sleep = Some((wait, Reason::RowsLocked));
    }

    /// Takes note of what happened. `jitter` is from 0 to 1.
    pub fn note(&mut self, event: Event, jitter: f64) {
        if matches!(self.phase, Phase::Ended(_)) {
            // what was under way is waited for
            match event {
                Event::BatchDone { job, .. }
                | Event::BatchBusy(job)
                | Event::BatchRefused(job)
                | Event::Vacuumed(job)
                | Event::Failed(job) => drop(self.ended(job)),
                _ => {}
            }
            return;
        }
        match event {
            Event::Stop => self.phase = Phase::Ended(End::Stopped),
            Event::Begun { blocks, bytes } => {
                (self.blocks, self.bytes) = (blocks, bytes);
                self.next_block = std::mem::take(&mut self.start).min(blocks);
                self.partial = self.next_block > 0;
                (self.found, self.stored, self.one_snapshot) = (0, 0, true);
                self.phase = Phase::Scanning;
            }
            Event::Scanned(rows) => {
                self.next_block = self.next_block.saturating_add(CHUNK).min(self.blocks);
                self.plan(rows);
            }
            Event::BatchDone { job, rows, took } => self.batch_done(job, rows, took),
            Event::BatchBusy(job) => {
                let batch = self.ended(job);
                self.retries += 1;
                self.busy += 1;
                let wait = 50.0 * f64::from(1u32 << self.busy.min(6)) * (0.5 + jitter);
                self.sleep = Some((Duration::from_millis(wait as u64), Reason::LockTimeout));
                // a batch that never gets its locks is left to the next scan
                if self.busy < 5 {
                    self.queue.push_front(batch);
                }
            }
            Event::BatchRefused(job) => {
                let Batch { window, mut rows, .. } = self.ended(job);
                if let [row] = rows.as_slice() {
                    self.refused.push(row.ctid);
                    self.found = self.found.saturating_sub(1);
                } else {
                    let second = rows.split_off(rows.len() / 2);
                    self.queue.push_front(Batch::new(window, second));
                    self.queue.push_front(Batch::new(window, rows));
                }
            }
            Event::Vacuumed(job) => drop(self.ended(job)),
            Event::Failed(job) => {
                drop(self.ended(job));
                self.phase = Phase::Ended(End::Stopped);
            }
            Event::SnapshotLost => self.one_snapshot = false,
        }
    }

    fn batch_done(&mut self, job: usize, rows: u64, took: Duration) {
        self.busy = 0;
        self.stored += rows;
        self.longest_batch = self.longest_batch.max(took);
        let done = self.ended(job).rows;
        let bytes: u64 = done.iter().map(|row| row.bytes).sum();
        // each row's tuple takes space too
        self.unvacuumed += bytes + 64 * done.len() as u64;
        // other jobs go on while a vacuum runs
        let part = if self.work.len() > 1 { 0.5 } else { 1.0 };
        let limit = (self.bytes as f64 * self.tuning.max_bloat * part).max(f64::from(1 << 20));
        self.vacuum_due |= self.unvacuumed as f64 > limit;
        let ms = (took.as_secs_f64() * 1000.0).max(0.05);
        let now = done.len() as f64 / ms;
        self.speed = Some(self.speed.map_or(now, |old| 0.7 * old + 0.3 * now));
    }

    /// How many of these rows one batch takes now, by time and by bytes; at least one.
    fn share(&self, rows: &[Row]) -> usize {
        let wanted = self.tuning.batch.as_secs_f64() * 1000.0;
        let mut most = self.speed.map_or(FIRST_BATCH, |speed| speed * wanted);
        if self.others {
            most = (most * BESIDE_OTHERS).max(most.min(FEWEST_BESIDE_OTHERS));
        }
        let most = (most as usize).clamp(1, 10_000).min(rows.len());
        let mut bytes = 0u64;
        let fits = |row: &&Row| {
            bytes = bytes.saturating_add(row.bytes);
            bytes <= self.tuning.batch_bytes
        };
        rows.iter().take(most).take_while(fits).count().max(1).min(rows.len())
    }

    fn plan(&mut self, mut rows: Vec<Row>) {
        rows.retain(|row| !self.refused.contains(&row.ctid));
        rows.sort_unstable();
        self.found += rows.len() as u64;
        let passes = self.tuning.passes.max(1) as usize;
        // the pages of all windows under way are left half empty, and those of indexes and TOAST too
        let window = (self.tuning.window / self.work.len() as u32).max(1);
        let windows: Vec<&[Row]> =
            rows.chunk_by(|a, b| a.ctid.block.0 / window == b.ctid.block.0 / window).collect();
        self.last.clear();
        // Windows take turns, pass by pass: what one transaction leaves behind can be pruned only once
        // those that were under way at its end have ended, and by its window's next turn most have.
        let turns = if self.work.len() > 1 { self.work.len() + 1 } else { 1 };
        for some in windows.chunks(turns) {
            for pass in 0..passes {
                for rows in some {
                    let rows: Vec<Row> = rows.iter().copied().skip(pass).step_by(passes).collect();
                    if let Some(row) = rows.first() {
                        self.queue.push_back(Batch::new(row.ctid.block.0 / window, rows));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::BlockNumber;
    use std::collections::BTreeSet;

    const TUNING: Tuning = Tuning {
        window: 8,
        passes: 4,
        batch: Duration::from_millis(100),
        batch_bytes: 1 << 20,
        max_bloat: 0.05,
        jobs: 1,
    };

    fn row(block: u32, item: u16, bytes: u64) -> Row {
        Row { ctid: ItemPointer { block: BlockNumber(block), item }, bytes }
    }

    /// A table whose rows to do are a set, and a server with a clock of its own.
    struct World {
        left: BTreeSet<Row>,
        blocks: u32,
        now: Duration,
        vacuums: u32,
        batches: Vec<usize>,
        /// How often the rows of this block are locked by others.
        locked: (u32, u32),
        poisoned: Option<Row>,
        /// What is under way, by job.
        under_way: Vec<(usize, Option<Vec<Row>>)>,
        most_under_way: usize,
    }

    impl World {
        fn new(blocks: u32, per_page: u16, bytes: u64) -> World {
            let rows = (0..blocks)
                .flat_map(|block| (1..=per_page).map(move |item| row(block, item, bytes)));
            World {
                left: rows.collect(),
                blocks,
                now: Duration::ZERO,
                vacuums: 0,
                batches: Vec::new(),
                locked: (0, 0),
                poisoned: None,
                under_way: Vec::new(),
                most_under_way: 0,
            }
        }

        fn run(&mut self, machine: &mut Machine) -> End {
            for _ in 0..100_000 {
                let event = match machine.next_action() {
                    Action::Finish(end) => return end,
                    Action::Sleep(time, _) => {
                        self.now += time;
                        continue;
                    }
                    Action::Vacuum(job) => {
                        self.vacuums += 1;
                        self.under_way.push((job, None));
                        continue;
                    }
                    Action::Batch(job, rows) => {
                        let window = |rows: &[Row]| rows[0].ctid.block.0 / 8;
                        for other in self.under_way.iter().filter_map(|(_, rows)| rows.as_ref()) {
                            assert_ne!(window(other), window(&rows));
                        }
                        self.under_way.push((job, Some(rows)));
                        continue;
                    }
                    Action::Wait => {
                        self.most_under_way = self.most_under_way.max(self.under_way.len());
                        // the last that was begun ends first
                        match self.under_way.pop().unwrap() {
                            (job, None) => Event::Vacuumed(job),
                            (job, Some(rows)) => self.batch(job, &rows),
                        }
                    }
                    Action::BeginScan => {
                        let bytes = u64::from(self.blocks) * 8192;
                        Event::Begun { blocks: self.blocks, bytes }
                    }
                    Action::Scan(range) => Event::Scanned(
                        self.left
                            .iter()
                            .filter(|r| range.contains(&r.ctid.block.0))
                            .copied()
                            .collect(),
                    ),
                };
                machine.note(event, 0.5);
            }
            panic!("the machine does not end");
        }

        fn batch(&mut self, job: usize, rows: &[Row]) -> Event {
            if self.poisoned.is_some_and(|bad| rows.contains(&bad)) {
                return Event::BatchRefused(job);
            }
            let took = Duration::from_millis(1) * rows.len() as u32;
            self.now += took;
            self.batches.push(rows.len());
            let mut done = 0;
            for row in rows {
                if row.ctid.block.0 == self.locked.0 && self.locked.1 > 0 {
                    self.locked.1 -= 1;
                } else {
                    assert!(self.left.remove(row), "{row:?} was done before");
                    done += 1;
                }
            }
            Event::BatchDone { job, rows: done, took }
        }
    }

    #[test]
    fn all_is_done_and_a_scan_proves_it() {
        let mut world = World::new(600, 20, 300);
        let mut machine = Machine::new(TUNING);
        assert_eq!(world.run(&mut machine), End::Complete);
        assert!(world.left.is_empty());
        assert_eq!(machine.scans, 2);
        // 600 * 20 * 364 bytes by 5 % of 600 pages, but at least 1 MB
        assert_eq!(world.vacuums, 5);
    }

    #[test]
    fn an_empty_table_takes_one_scan_and_no_batch() {
        let mut world = World::new(600, 0, 0);
        let mut machine = Machine::new(TUNING);
        assert_eq!(world.run(&mut machine), End::Complete);
        assert_eq!((machine.scans, world.batches.len(), world.vacuums), (1, 0, 0));
    }

    #[test]
    fn a_pass_takes_every_fourth_row_of_a_window() {
        let mut machine = Machine::new(TUNING);
        assert_eq!(machine.next_action(), Action::BeginScan);
        machine.note(Event::Begun { blocks: 16, bytes: 1 << 17 }, 0.0);
        assert_eq!(machine.next_action(), Action::Scan(0..16));
        let rows: Vec<Row> = (0..16).map(|block| row(block, 1, 10)).collect();
        machine.note(Event::Scanned(rows), 0.0);
        let mut batches = Vec::new();
        while let Action::Batch(job, rows) = machine.next_action() {
            batches.push(rows.iter().map(|row| row.ctid.block.0).collect::<Vec<_>>());
            machine.note(Event::BatchDone { job, rows: 2, took: Duration::from_millis(1) }, 0.0);
        }
        let first_window = [[0, 4], [1, 5], [2, 6], [3, 7]];
        assert_eq!(batches[..4], first_window);
        assert_eq!(batches[4..6], [[8, 12], [9, 13]]);
    }

    #[test]
    fn with_two_jobs_three_windows_take_turns_pass_by_pass() {
        let mut machine = Machine::new(Tuning { jobs: 2, window: 16, ..TUNING });
        machine.next_action();
        machine.note(Event::Begun { blocks: 40, bytes: 1 << 17 }, 0.0);
        machine.next_action();
        machine.note(Event::Scanned((0..40).map(|block| row(block, 1, 10)).collect()), 0.0);
        let took = Duration::from_millis(1);
        let mut begun = Vec::new();
        let mut start = |machine: &mut Machine, job: usize| match machine.next_action() {
            Action::Batch(free, rows) => {
                assert_eq!(free, job);
                begun.push(rows[0].ctid.block.0);
            }
            other => panic!("{other:?}"),
        };
        start(&mut machine, 0);
        start(&mut machine, 1);
        assert_eq!(machine.next_action(), Action::Wait);
        for round in 0..6 {
            machine.note(Event::BatchDone { job: round % 2, rows: 2, took }, 0.0);
            start(&mut machine, round % 2);
        }
        assert_eq!(begun, [0, 8, 16, 1, 9, 17, 2, 10]);
        // the rest of the group, then the last window alone, whose passes follow each other
        let mut rest = 0;
        let mut waited = 0;
        let mut busy = vec![0, 1];
        while rest < 12 {
            match machine.next_action() {
                Action::Batch(job, _) => {
                    rest += 1;
                    busy.push(job);
                }
                Action::Wait => {
                    waited += 1;
                    let job = busy.remove(0);
                    machine.note(Event::BatchDone { job, rows: 2, took }, 0.0);
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(waited >= 10, "{waited}");
    }

    #[test]
    fn a_pass_waits_until_nobody_pins_what_the_one_before_has_left() {
        let mut machine = Machine::new(Tuning { jobs: 2, window: 16, ..TUNING });
        machine.next_action();
        machine.note(Event::Begun { blocks: 40, bytes: 1 << 17 }, 0.0);
        machine.next_action();
        machine.note(Event::Scanned((0..40).map(|block| row(block, 1, 10)).collect()), 0.0);
        let begin = |machine: &mut Machine| match machine.next_action() {
            Action::Batch(job, rows) => (job, rows[0].ctid.block.0),
            other => panic!("{other:?}"),
        };
        assert_eq!((begin(&mut machine), begin(&mut machine)), ((0, 0), (1, 8)));
        // job 0 takes long: meanwhile nobody can prune anything, and fresh windows are taken
        for block in [16, 24, 32] {
            machine.note(Event::BatchDone { job: 1, rows: 2, took: Duration::ZERO }, 0.0);
            assert_eq!(begin(&mut machine), (1, block));
        }
        machine.note(Event::BatchDone { job: 1, rows: 2, took: Duration::ZERO }, 0.0);
        assert_eq!(machine.next_action(), Action::Wait);
        machine.note(Event::BatchDone { job: 0, rows: 2, took: Duration::ZERO }, 0.0);
        assert_eq!((begin(&mut machine), begin(&mut machine)), ((0, 1), (1, 9)));
    }

    #[test]
    fn with_jobs_all_is_done_once_and_two_are_under_way() {
        let mut world = World::new(600, 20, 300);
        let mut machine = Machine::new(Tuning { jobs: 2, window: 16, ..TUNING });
        assert_eq!(world.run(&mut machine), End::Complete);
        assert!(world.left.is_empty() && world.under_way.is_empty());
        assert_eq!(world.most_under_way, 2);
        assert_eq!(machine.scans, 2);
    }

    #[test]
    fn an_error_of_one_job_lets_the_others_end() {
        let mut machine = Machine::new(Tuning { jobs: 2, window: 16, ..TUNING });
        machine.next_action();
        machine.note(Event::Begun { blocks: 16, bytes: 1 << 17 }, 0.0);
        machine.next_action();
        machine.note(Event::Scanned((0..16).map(|block| row(block, 1, 10)).collect()), 0.0);
        assert!(matches!(machine.next_action(), Action::Batch(0, _)));
        assert!(matches!(machine.next_action(), Action::Batch(1, _)));
        machine.note(Event::Failed(0), 0.0);
        assert_eq!(machine.next_action(), Action::Wait);
        machine.note(Event::BatchDone { job: 1, rows: 1, took: Duration::ZERO }, 0.0);
        assert_eq!(machine.next_action(), Action::Finish(End::Stopped));
    }

    #[test]
    fn batches_follow_time_and_bytes() {
        let mut world = World::new(300, 200, 10);
        let tuning = Tuning { batch: Duration::from_millis(20), ..TUNING };
        assert_eq!(world.run(&mut Machine::new(tuning)), End::Complete);
        assert_eq!(world.batches.first(), Some(&50));
        assert!(world.batches.iter().rev().take(200).all(|&rows| rows <= 20));
        let mut world = World::new(8, 40, 100_000);
        assert_eq!(world.run(&mut Machine::new(TUNING)), End::Complete);
        assert!(world.batches.iter().all(|&rows| rows <= 10), "{:?}", world.batches);
    }

    #[test]
    fn beside_others_batches_are_short() {
        let mut world = World::new(300, 200, 10);
        let mut machine = Machine::new(TUNING);
        machine.beside_others(true);
        assert_eq!(world.run(&mut machine), End::Complete);
        assert!(world.left.is_empty());
        assert!(world.batches.iter().all(|&rows| rows <= 16), "{:?}", world.batches);
        let mut world = World::new(300, 200, 10);
        let mut machine = Machine::new(Tuning { batch: Duration::from_millis(1000), ..TUNING });
        machine.beside_others(true);
        assert_eq!(world.run(&mut machine), End::Complete);
        assert!(world.batches.contains(&100) && world.batches.iter().all(|&rows| rows <= 100));
    }

    #[test]
    fn locked_rows_are_met_again_and_after_long_given_up() {
        let mut world = World { locked: (5, 90), ..World::new(10, 20, 10) };
        assert_eq!(world.run(&mut Machine::new(TUNING)), End::Complete);
        assert!(world.left.is_empty() && world.now > Duration::from_millis(500));
        let mut world = World { locked: (5, u32::MAX), ..World::new(10, 20, 10) };
        assert_eq!(world.run(&mut Machine::new(TUNING)), End::Left);
        assert_eq!(world.left.len(), 20);
    }

    #[test]
    fn a_row_that_the_server_refuses_is_found_out_and_the_others_done() {
        let bad = row(3, 7, 10);
        let mut world = World { poisoned: Some(bad), ..World::new(10, 20, 10) };
        let mut machine = Machine::new(TUNING);
        assert_eq!(world.run(&mut machine), End::Left);
        assert_eq!(world.left.iter().copied().collect::<Vec<_>>(), [bad]);
        assert_eq!(machine.refused(), [bad.ctid]);
    }

    #[test]
    fn a_lock_timeout_waits_longer_each_time_and_leaves_the_batch_to_the_next_scan() {
        let mut machine = Machine::new(TUNING);
        machine.next_action();
        machine.note(Event::Begun { blocks: 1, bytes: 8192 }, 0.0);
        machine.next_action();
        machine.note(Event::Scanned(vec![row(0, 1, 1)]), 0.0);
        let mut waits = Vec::new();
        while let Action::Batch(job, _) = machine.next_action() {
            machine.note(Event::BatchBusy(job), 0.5);
            match machine.next_action() {
                Action::Sleep(time, Reason::LockTimeout) => waits.push(time.as_millis()),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(waits, [100, 200, 400, 800, 1600]);
        assert_eq!(machine.retries, 5);
    }

    #[test]
    fn a_scan_that_begins_in_the_middle_proves_nothing() {
        let mut world = World::new(1000, 2, 10);
        world.left.retain(|row| row.ctid.block.0 < 300);
        let mut machine = Machine::new(TUNING);
        machine.start_at(512);
        assert_eq!(machine.next_action(), Action::BeginScan);
        machine.note(Event::Begun { blocks: 1000, bytes: 1 << 23 }, 0.0);
        assert_eq!(machine.next_action(), Action::Scan(512..768));
        machine.note(Event::Scanned(Vec::new()), 0.0);
        assert_eq!(world.run(&mut machine), End::Complete);
        assert!(world.left.is_empty());
        assert_eq!((machine.scans, world.now < Duration::from_secs(1)), (3, true));
        // a table that became shorter
        let mut world = World::new(10, 2, 10);
        let mut machine = Machine::new(TUNING);
        machine.start_at(512);
        assert_eq!(world.run(&mut machine), End::Complete);
        assert!(world.left.is_empty());
    }

    #[test]
    fn only_a_scan_in_one_snapshot_proves_anything() {
        let mut machine = Machine::new(TUNING);
        let begin = |machine: &mut Machine| {
            assert_eq!(machine.next_action(), Action::BeginScan);
            machine.note(Event::Begun { blocks: 1, bytes: 8192 }, 0.0);
            assert!(machine.may_prove());
            assert_eq!(machine.next_action(), Action::Scan(0..1));
        };
        begin(&mut machine);
        machine.note(Event::SnapshotLost, 0.0);
        assert!(!machine.may_prove());
        machine.note(Event::Scanned(Vec::new()), 0.0);
        assert!(matches!(machine.next_action(), Action::Sleep(..)));
        begin(&mut machine);
        machine.note(Event::Scanned(Vec::new()), 0.0);
        assert_eq!(machine.next_action(), Action::Finish(End::Complete));
    }

    #[test]
    fn stop_ends_it_at_once_and_for_good() {
        let mut machine = Machine::new(TUNING);
        machine.next_action();
        machine.note(Event::Stop, 0.0);
        machine.note(Event::Begun { blocks: 1, bytes: 8192 }, 0.0);
        machine.note(Event::Stop, 0.0);
        assert_eq!(machine.next_action(), Action::Finish(End::Stopped));
    }
}
