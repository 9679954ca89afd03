//! What the compaction of one file does next (pure): takes events and answers with actions. It does not use
//! connections, the clock or pages.
//!
//! A round determines how full the file is, finds what is stored behind the block at which it should end, and moves
//! that in passes until nothing that can be moved is left there; then the file is vacuumed and truncated. Rounds
//! follow one another as long as each returns as much as it should.
//!
//! It may not be known exactly how full a file is, and what is behind the end may not fit into the room in front. A
//! round that has found no room is therefore followed by one that should return less. If not even the minimum worth a
//! round can be returned, that proves that there is no room.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use crate::retoast::listener::Wait;
use crate::retoast::pace::rules::{BESIDE_OTHERS, after_timeouts, smoothed};
use crate::retoast::result::FileEnd;
use toast_format::disk::{BlockNumber, ItemPointer};
use toast_format::fill::room::Layout;
use toast_format::model::pages::{least_gain, truncated_for};

/// The maximum number of passes in a round, because other sessions may write rows behind the end as fast as these are
/// moved.
const MOST_PASSES: u32 = 30;
/// After this many passes that move nothing, the round vacuums what it has moved.
const IDLE_PASSES: u32 = 4;
/// After this many passes, a few rows that find no room in front are no longer moved.
const FEW_PASSES: u32 = 6;
/// How often a batch is tried if it runs into lock timeouts.
const BUSY: u32 = 5;
/// How often the file is vacuumed in a row, if the lock for truncating it is not obtained.
const SHRINKS: u32 = 6;
/// The number of pieces in a transaction that only tries whether there is room.
const TRIED: usize = 2;
/// The maximum number of pieces in a transaction.
const MOST_PIECES: usize = 10_000;
/// The maximum number of consecutive rounds that find no room in front, and the fraction of one round's goal that the
/// next one has.
const MOST_IN_VAIN: u32 = 3;
const LESS: f64 = 0.25;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// It is known how full the file is.
    Looked(Layout),
    /// What can be moved from behind the end. `last` is the number of blocks up to the last one with something live;
    /// `all` is whether the pieces are all that is there.
    Found { pieces: Vec<Piece>, last: u32, all: bool },
    /// So many rows were moved, and others updated that found no room elsewhere; the rest were locked or no longer
    /// existed.
    Moved { rows: u64, stayed: u64, took: Duration },
    /// A lock was not obtained in time, and nothing was moved.
    Busy,
    /// The server refused to store a row because of its content, and nothing was moved.
    Refused,
    /// What was moved found no room in front.
    NoRoom,
    /// The file was vacuumed, unless that was impossible, and now has this many blocks.
    Vacuumed(u32),
    /// A stop was requested.
    Stop,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    /// Determine how full the file is.
    Look,
    /// Find what is stored in this block and behind it.
    Find(u32),
    /// Move these pieces in one transaction.
    Move(Vec<Piece>),
    /// Vacuum the table without its TOAST relation.
    VacuumRows,
    Shrink,
    /// Wait with no transaction open, for locks of rows or for the lock to truncate the file.
    Sleep(Duration, Wait),
    /// Stop, because the compaction has ended.
    Finish(FileEnd),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Looking,
    /// The first vacuum, before anything is moved.
    Tidying,
    Finding,
    Moving,
    Shrinking,
    Ended(FileEnd),
}

#[derive(Debug, Clone, Copy)]
struct Round {
    /// The number of blocks when it began.
    blocks: u32,
    /// Whether it takes only a part of what is behind the end.
    partial: bool,
    /// The number of blocks that it should return.
    wanted: u32,
}

/// What previous rounds mean for the next one.
#[derive(Debug, Clone, Default)]
struct Trend {
    /// Whether the last round returned too little, and how many rows it found in its first pass.
    gained_too_little: bool,
    found: Option<u64>,
    /// Whether the round found no room in front, and how many consecutive rounds have returned too little for that
    /// reason.
    lacks_room: bool,
    in_vain: u32,
    /// The fraction of the spare blocks that the next round should return.
    part: f64,
    /// Whether there is nothing to return unless tuples are shorter than estimated.
    guesses: bool,
}

#[derive(Debug, Clone, Default)]
struct Pass {
    queue: VecDeque<Piece>,
    /// The number of pieces in the queue when the pass began.
    queued: usize,
    under_way: Vec<Piece>,
    /// If a batch was refused or could not get its locks, the sizes of the batches in which its pieces are tried
    /// again, in reverse order.
    halves: Vec<usize>,
    moved: u64,
    found: u64,
    /// Rows that other sessions had locked or changed.
    locked: u64,
}

/// What is in the way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Obstacles {
    /// Rows that other sessions had locked or changed in the last complete pass.
    locked: u64,
    /// Rows of the pieces that were refused.
    refused: u64,
    /// Rows behind the end that other sessions have written since the work began.
    pub(crate) of_others: u64,
    /// Whether the last vacuum had to leave old row versions that other sessions still see.
    pub(crate) held_back: bool,
}

/// How often something was tried in a row.
#[derive(Debug, Clone, Default)]
struct Tries {
    passes: u32,
    /// Passes that moved nothing.
    idle: u32,
    busy: u32,
    shrinks: u32,
}

/// The state of one file's compaction.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rounds {
    pub(crate) pace: Pace,
    /// Bytes of old row versions in the table beyond which it is vacuumed without its TOAST relation, while values of
    /// the latter are moved; `None` if nothing may be vacuumed in the meantime.
    most_versions: Option<u64>,
    phase: Phase,
    layout: Layout,
    /// The block at which the file should end after the round.
    aim: u32,
    tidied: bool,
    round: Option<Round>,
    trend: Trend,
    pass: Pass,
    refused: HashSet<ItemPointer>,
    pub(crate) obstacles: Obstacles,
    tries: Tries,
    /// The number of blocks up to the last one with something live, as last found.
    last: u32,
    versions: u64,
    sleep: Option<(Duration, Wait)>,
    pub(crate) counts: RoundCounts,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct RoundCounts {
    /// The number of rounds begun.
    pub(crate) rounds: u32,
    /// The number of lock timeouts.
    pub(crate) retries: u64,
    /// The duration of the longest batch.
    pub(crate) longest: Duration,
}

impl Rounds {
    pub(crate) fn new(pace: Pace, most_versions: Option<u64>) -> Rounds {
        let trend = Trend { part: 1.0, ..Trend::default() };
        Rounds { pace, most_versions, trend, ..Rounds::default() }
    }

    /// Rows behind the end that were found last and not moved.
    pub(crate) fn rows_left(&self) -> u64 {
        self.pass.found.saturating_sub(self.pass.moved)
    }

    /// Of the rows left, those that other sessions had locked or have changed.
    pub(crate) fn rows_locked(&self) -> u64 {
        self.obstacles.locked.max(self.pass.locked).min(self.rows_left())
    }

    /// The block that rows must not reach, if the round only tries whether there is room in front of it.
    pub(crate) fn trial(&self) -> Option<u32> {
        self.trend.guesses.then_some(self.aim)
    }

    /// Whether anything other than a lack of room may have kept the last round from returning what it should.
    fn hindered(&self) -> bool {
        self.obstacles.locked > 0
            || self.obstacles.of_others > 0
            || self.obstacles.held_back
            || self.obstacles.refused > 0
    }

    /// The progress of the current pass: pieces taken from the queue, and pieces in all.
    pub(crate) fn position(&self) -> (u32, u32) {
        let all = u32::try_from(self.pass.queued).unwrap_or(u32::MAX);
        let left = u32::try_from(self.pass.queue.len()).unwrap_or(u32::MAX);
        (all.saturating_sub(left), all)
    }

    pub(crate) fn next_action(&mut self) -> Action {
        if !matches!(self.phase, Phase::Ended(_))
            && let Some((time, why)) = self.sleep.take()
        {
            return Action::Sleep(time, why);
        }
        match self.phase {
            Phase::Looking => Action::Look,
            Phase::Tidying | Phase::Shrinking => Action::Shrink,
            Phase::Finding => Action::Find(self.aim),
            Phase::Moving => {
                if self.most_versions.is_some_and(|limit| self.versions > limit) {
                    return Action::VacuumRows;
                }
                let pieces = self.pass.queue.make_contiguous();
                let share = match self.pass.halves.pop() {
                    Some(half) => half.min(pieces.len()),
                    None => self.pace.share(pieces),
                };
                let least = least_gain(self.layout.blocks);
                let is_least = self.round.is_some_and(|round| round.wanted <= least);
                let share = if self.trend.guesses && is_least { share.min(TRIED) } else { share };
                self.pass.under_way = self.pass.queue.drain(..share).collect();
                Action::Move(self.pass.under_way.clone())
            }
            Phase::Ended(end) => Action::Finish(end),
        }
    }

    /// Takes an event. `jitter` is between 0 and 1.
    pub(crate) fn note(&mut self, event: Event, jitter: f64) {
        if matches!(self.phase, Phase::Ended(_)) {
            return;
        }
        match event {
            Event::Stop => self.phase = Phase::Ended(FileEnd::Stopped),
            Event::Looked(layout) => self.looked(layout),
            Event::Found { pieces, last, all } => self.found(pieces, last, all),
            Event::Moved { rows, stayed, took } => {
                self.tries.busy = 0;
                self.counts.longest = self.counts.longest.max(took);
                let pieces = std::mem::take(&mut self.pass.under_way);
                self.pace.took(&pieces, took);
                self.versions += pieces.iter().map(|piece| piece.versions).sum::<u64>();
                self.pass.moved += rows;
                let all = pieces.iter().map(|piece| piece.rows).sum::<u64>();
                self.pass.locked += all.saturating_sub(rows + stayed);
                self.go_on();
            }
            Event::Busy => {
                self.counts.retries += 1;
                self.tries.busy += 1;
                self.sleep = Some((after_timeouts(self.tries.busy, jitter), Wait::LockTimeout));
                let pieces = std::mem::take(&mut self.pass.under_way);
                // pieces that never get their locks are left to the next pass
                if self.tries.busy < BUSY {
                    self.pass.halves.push(pieces.len());
                    self.first_again(pieces);
                } else {
                    self.pass.locked += pieces.iter().map(|piece| piece.rows).sum::<u64>();
                }
                self.go_on();
            }
            Event::Refused => {
                let pieces = std::mem::take(&mut self.pass.under_way);
                if let [piece] = pieces.as_slice() {
                    self.refused.insert(piece.ctid);
                    self.obstacles.refused += piece.rows;
                } else {
                    let first = pieces.len() / 2;
                    self.pass.halves.extend([pieces.len() - first, first]);
                    self.first_again(pieces);
                }
                self.go_on();
            }
            Event::NoRoom => {
                self.pass.queue.clear();
                self.pass.halves.clear();
                // something live is in the last block, so there is no truncation to wait for
                self.last = u32::MAX;
                self.trend.lacks_room = true;
                self.obstacles.locked = self.pass.locked;
                self.phase = Phase::Shrinking;
            }
            Event::Vacuumed(blocks) => self.vacuumed(blocks),
        }
    }

    fn first_again(&mut self, pieces: Vec<Piece>) {
        for piece in pieces.into_iter().rev() {
            self.pass.queue.push_front(piece);
        }
    }

    fn looked(&mut self, layout: Layout) {
        let before = self.round.take();
        self.layout = layout;
        if !layout.may_pay() {
            self.phase = Phase::Ended(FileEnd::Compact);
            return;
        }
        if !self.tidied {
            // a vacuum shows how much room there is, and makes the server search for it from the front
            self.phase = Phase::Tidying;
            return;
        }
        if let Some(Round { blocks, partial, .. }) = before {
            let gained = blocks.saturating_sub(layout.blocks);
            let enough = gained >= least_gain(blocks);
            self.trend.gained_too_little = !(enough || partial && gained > 0);
            if !self.trend.gained_too_little {
                self.trend.in_vain = 0;
                self.trend.part = if self.trend.lacks_room {
                    self.trend.part
                } else {
                    (2.0 * self.trend.part).min(1.0)
                };
            }
        }
        if !layout.pays() && !self.trend.guesses {
            self.trend.guesses = true;
            self.trend.part = 0.0;
        }
        self.counts.rounds += 1;
        (self.tries.passes, self.tries.idle) = (0, 0);
        self.begin_round(if self.trend.gained_too_little { before } else { None });
        self.phase = Phase::Finding;
    }

    /// The minimum number of blocks that a round must return.
    fn least(&self) -> u32 {
        least_gain(self.layout.blocks)
    }

    /// Sets which fraction of the spare blocks the round should return. `in_vain` is the round before, if it returned
    /// too little; its goal is kept until it is known what is behind the end now.
    fn begin_round(&mut self, in_vain: Option<Round>) {
        let layout = self.layout;
        let spare = if self.trend.guesses { layout.spare_at_most() } else { layout.spare() };
        let wanted = (f64::from(spare) * self.trend.part).ceil() as u32;
        let wanted = wanted.max(self.least()).min(spare);
        self.trend.part = f64::from(wanted) / f64::from(spare.max(1));
        self.aim = layout.blocks.saturating_sub(wanted).min(layout.last);
        let wanted = in_vain.map_or(wanted, |round| round.wanted);
        self.round = Some(Round { blocks: layout.blocks, partial: false, wanted });
    }

    /// After a round that returned too little for lack of room, returns whether to try to return less.
    fn wants_less(&mut self) -> bool {
        let tried = self.round.map_or(0, |round| round.wanted);
        self.trend.in_vain += 1;
        if !self.trend.lacks_room || tried <= self.least() || self.trend.in_vain >= MOST_IN_VAIN {
            return false;
        }
        self.trend.part *= LESS;
        if self.trend.in_vain + 1 >= MOST_IN_VAIN {
            self.trend.part = 0.0;
        }
        self.begin_round(None);
        true
    }

    fn found(&mut self, mut pieces: Vec<Piece>, last: u32, all: bool) {
        pieces.retain(|piece| !self.refused.contains(&piece.ctid));
        let before = std::mem::replace(&mut self.last, last);
        if let Some(round) = &mut self.round {
            round.partial |= !all;
        }
        let moved = std::mem::take(&mut self.pass.moved);
        let locked = std::mem::take(&mut self.pass.locked);
        let rows = pieces.iter().map(|piece| piece.rows).sum();
        let found_before = std::mem::replace(&mut self.pass.found, rows);
        if self.tries.passes == 0 {
            let before = self.trend.found.replace(self.pass.found);
            // near the end, a few rows may be all that prevents a large truncation
            let less = before.is_some_and(|n| n > 0 && self.pass.found <= n / 2);
            if self.trend.gained_too_little && !less {
                self.trend.gained_too_little = false;
                if self.wants_less() {
                    self.trend.found = None;
                } else {
                    let no_room = self.trend.lacks_room && !self.hindered();
                    let end = if no_room { FileEnd::NoRoom } else { FileEnd::GainedTooLittle };
                    self.phase = Phase::Ended(end);
                }
                return;
            }
            self.trend.lacks_room = false;
        }
        // rows that only move from one place at the end to another find no room in front, unless many others do;
        // since the server searches from where it last found room, a few rows may still find some later
        let few = self.trend.found.is_some_and(|all| rows <= all / 10);
        let in_vain = self.tries.passes > 0
            && moved > 0
            && last >= before
            && rows > found_before / 2
            && !(few && self.tries.passes <= FEW_PASSES);
        if self.tries.passes > 0 && moved == 0 {
            self.tries.idle += 1;
        }
        let no_more = self.tries.passes >= MOST_PASSES || self.tries.idle >= IDLE_PASSES || in_vain;
        // a round takes a part only once, because there is more room after its vacuum
        let part_done = self.tries.passes > 0 && !all;
        if pieces.is_empty() || no_more || part_done {
            self.obstacles.locked = locked.min(rows);
            // what was moved but is still, or again, behind the end
            self.trend.lacks_room |= all && if rows > 0 { rows > locked } else { last > self.aim };
            self.phase = Phase::Shrinking;
            return;
        }
        if self.tries.passes > 0 && moved == 0 && locked > 0 {
            let wait = Duration::from_millis(100u64 << self.tries.idle.min(6));
            self.sleep = Some((wait, Wait::RowsToMoveLocked));
        }
        self.pass.queued = pieces.len();
        self.pass.queue = pieces.into();
        self.pass.halves.clear();
        self.phase = Phase::Moving;
    }

    /// Ends the pass after its last batch.
    fn go_on(&mut self) {
        if self.pass.queue.is_empty() && self.phase == Phase::Moving {
            self.tries.passes += 1;
            self.phase = Phase::Finding;
        }
    }

    fn vacuumed(&mut self, blocks: u32) {
        match self.phase {
            // the table was vacuumed without its TOAST relation
            Phase::Moving => self.versions = 0,
            Phase::Tidying => {
                self.tidied = true;
                let Layout { last, end, least_end, .. } = self.layout;
                let [last, end, least_end] = [last, end, least_end].map(|block| block.min(blocks));
                let layout = Layout { blocks, last, end, least_end };
                // live rows are where they were, so there is no need to look again
                if layout.may_pay() {
                    self.looked(layout);
                } else {
                    self.phase = Phase::Looking;
                }
            }
            Phase::Shrinking => {
                self.versions = 0;
                let wanted = self.aim.max(self.last);
                self.tries.shrinks += 1;
                let tail_left = blocks.saturating_sub(wanted) >= truncated_for(blocks);
                if tail_left && self.tries.shrinks < SHRINKS {
                    let wait = Duration::from_millis(200u64 << self.tries.shrinks.min(5));
                    self.sleep = Some((wait, Wait::Truncation));
                } else {
                    self.tries.shrinks = 0;
                    self.phase = Phase::Looking;
                }
            }
            Phase::Looking | Phase::Finding | Phase::Ended(_) => {}
        }
    }
}

/// The cost of moving a row in addition to its bytes, in bytes.
const ROW: u64 = 400;
/// The cost of what the first transaction moves.
const FIRST: f64 = 200_000.0;

/// The maximum distance between consecutive pages that one transaction empties: rows that go to a page between them
/// must not be moved again.
const NEAR: u32 = 32;
/// One transaction empties one in `PARTS` of the pages that are left, but may always empty `FEW`. If there are few
/// rows on each page, rows too wide for the room in front then go to pages that are emptied later, and not to others
/// of the same transaction.
const PARTS: usize = 8;
const FEW: usize = 16;

/// Something that is moved as a whole: all rows of a page, or a row with the values behind the end of the TOAST relation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The row's address; of a page, the block and no item.
    pub(crate) ctid: ItemPointer,
    pub(crate) rows: u64,
    /// The number of bytes written to move it: of a page, about its size; of values, decompressed or as stored, whichever
    /// is more.
    pub(crate) bytes: u64,
    /// The number of bytes that it occupies as stored.
    pub(crate) stored: u64,
    /// The number of tuples that it has in the file.
    pub(crate) tuples: u64,
    /// Bytes of old row versions that moving it leaves in the table.
    pub(crate) versions: u64,
    /// The last block of the values' chunks.
    pub(crate) last_block: u32,
    /// The places of the values' target columns; none for values of dropped columns, which any update removes.
    pub(crate) columns: Vec<u16>,
    /// Whether a value would change its form if its column stored it again, so that it must pass through a temporary
    /// table.
    pub(crate) by_copy: bool,
}

impl Piece {
    /// A page with this many rows, and the size of what is moved in bytes.
    pub(crate) fn page(block: u32, rows: u32, bytes: u64) -> Piece {
        let rows = u64::from(rows);
        let ctid = ItemPointer { block: BlockNumber(block), item: 0 };
        Piece {
            ctid,
            rows,
            bytes,
            stored: bytes,
            tuples: rows,
            versions: bytes,
            ..Piece::default()
        }
    }

    fn is_page(&self) -> bool {
        self.ctid.item == 0
    }

    /// Whether it may share a transaction with the piece before it.
    fn follows(&self, before: &Piece) -> bool {
        !self.is_page() || self.ctid.block.0.abs_diff(before.ctid.block.0) <= NEAR
    }
}

/// How many of these pieces one transaction may move.
fn most_of(pieces: &[Piece]) -> usize {
    let is_pages = pieces.first().is_some_and(Piece::is_page);
    let most = if is_pages { (pieces.len() / PARTS).max(FEW) } else { pieces.len() };
    most.min(MOST_PIECES)
}

/// How fast pieces are moved.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace {
    /// The intended duration of a transaction.
    batch: Duration,
    /// The maximum number of bytes that a transaction writes, unless a single piece has more.
    most_bytes: u64,
    /// The cost moved per millisecond, smoothed.
    speed: Option<f64>,
    /// Whether other sessions are active, in which case batches take a tenth of their time.
    pub(crate) others: bool,
}

fn cost(piece: &Piece) -> u64 {
    piece.bytes.saturating_add(piece.rows.saturating_mul(ROW))
}

impl Pace {
    pub(crate) fn new(batch: Duration, most_bytes: u64) -> Pace {
        Pace { batch, most_bytes, ..Pace::default() }
    }

    /// How many of the pieces one transaction takes: at least one, unless there are none.
    pub(crate) fn share(&self, pieces: &[Piece]) -> usize {
        let ms = self.batch.as_secs_f64() * 1000.0;
        let mut most = self.speed.map_or(FIRST, |speed| speed * ms);
        if self.others {
            most *= BESIDE_OTHERS;
        }
        let mut costs = 0u64;
        let mut bytes = 0u64;
        let mut share = 0;
        let mut before: Option<&Piece> = None;
        for piece in pieces.iter().take(most_of(pieces)) {
            costs = costs.saturating_add(cost(piece));
            bytes = bytes.saturating_add(piece.bytes);
            let follows = before.is_none_or(|before| piece.follows(before));
            if !follows || costs as f64 > most || bytes > self.most_bytes {
                break;
            }
            share += 1;
            before = Some(piece);
        }
        share.max(1).min(pieces.len())
    }

    /// Records how long it took to move these pieces.
    pub(crate) fn took(&mut self, pieces: &[Piece], time: Duration) {
        let ms = (time.as_secs_f64() * 1000.0).max(0.05);
        let now = pieces.iter().map(cost).sum::<u64>() as f64 / ms;
        self.speed = Some(smoothed(self.speed, now));
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod pace_tests {
    use super::*;

    fn rows(count: usize, bytes: u64) -> Vec<Piece> {
        let ctid = ItemPointer { block: BlockNumber(0), item: 1 };
        vec![Piece { ctid, rows: 1, bytes, versions: 40, ..Piece::default() }; count]
    }

    #[test]
    fn a_transaction_takes_its_time_and_a_tenth_of_it_beside_others() {
        let mut pace = Pace::new(Duration::from_millis(100), 16 << 20);
        assert_eq!(pace.share(&rows(1_000, 1_600)), 100);
        pace.took(&rows(100, 1_600), Duration::from_millis(10));
        assert_eq!(pace.share(&rows(5_000, 1_600)), 1_000);
        pace.others = true;
        assert_eq!(pace.share(&rows(5_000, 1_600)), 100);
    }

    #[test]
    fn at_least_one_is_taken_and_no_more_bytes_than_allowed() {
        let mut pace = Pace::new(Duration::from_millis(100), 1 << 20);
        assert_eq!(pace.share(&rows(3, 50 << 20)), 1);
        assert_eq!(pace.share(&rows(0, 1)), 0);
        pace.took(&rows(100, 1 << 20), Duration::from_millis(1));
        assert_eq!(pace.share(&rows(100, 1 << 18)), 4);
    }
}
