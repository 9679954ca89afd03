//! What the compaction of one file does next (pure): it is told what happened, and says what to do. It never sees
//! a connection, a clock or a page.
//!
//! A round looks how full the file is, finds what stands behind the block that would be its end, and moves that,
//! in passes until nothing is left there that can be moved; then the file is vacuumed and truncated. Rounds follow
//! each other as long as each gives back what was asked for.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use super::pace::{Pace, Piece};
use super::room::Layout;
use crate::model::pages::{least_gain, truncated_for};
use crate::retoast::pace::speed::after_timeouts;

/// Passes of a round at the most: others may put rows behind the end as fast as they are moved.
const MOST_PASSES: u32 = 30;
/// Passes that move nothing, after which the round goes on with what it has.
const IDLE_PASSES: u32 = 4;
/// Passes after which a few rows are no longer moved that find no room in front.
const FEW_PASSES: u32 = 6;
/// How often a batch is tried again that met a lock timeout.
const BUSY: u32 = 5;
/// How often the file is vacuumed again for want of the lock that truncating it takes.
const SHRINKS: u32 = 6;

/// How it goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tuning {
    pub(crate) pace: Pace,
    /// The part of the file that a round has to give back for another one to follow.
    pub(crate) min_gain: f64,
    /// Bytes of old row versions in the table after which it alone is vacuumed, while the TOAST relation's
    /// values are moved; `None` if nothing may be vacuumed meanwhile.
    pub(crate) versions: Option<u64>,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event<P> {
    /// How full the file is.
    Looked(Layout),
    /// What stands behind the end and can be moved; `last`: the blocks up to the last one with something live;
    /// `all`: whether that is all that stands there.
    Found { pieces: Vec<P>, last: u32, all: bool },
    /// So many rows were moved; others were locked or no longer there.
    Moved { rows: u64, took: Duration },
    /// A lock was not to be had in time, and nothing was moved.
    Busy,
    /// The server refused it for what stands in a row, and nothing was moved.
    Refused,
    /// What was moved went to new blocks: there is no room in front.
    NoRoom,
    /// It was vacuumed, or could not be; the file has so many blocks now.
    Vacuumed(u32),
    /// Somebody asked to stop.
    Stop,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action<P> {
    /// Say how full the file is.
    Look,
    /// Find what stands behind this block, itself counted.
    Find(u32),
    /// Move this in one transaction.
    Move(Vec<P>),
    /// Vacuum the table without its TOAST relation.
    VacuumRows,
    /// Vacuum and truncate.
    Shrink,
    /// Wait, with no transaction open: for locks of rows, or for one to truncate.
    Sleep(Duration, Wait),
    /// Nothing more.
    Finish(End),
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    Lock,
    Rows,
    Truncation,
}

impl Wait {
    /// For people.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Wait::Lock => "a lock could not be had in time",
            Wait::Rows => "the rows left to move are locked by other transactions",
            Wait::Truncation => {
                "VACUUM could not truncate: others use the table, or see old row versions at its end"
            }
        }
    }
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Less is to spare than a round has to give back.
    Compact,
    /// There is more to spare, but the last round gave back too little.
    GainedTooLittle,
    /// Stopped on request.
    Stopped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Looking,
    /// The first vacuum, before anything is moved.
    Tidying,
    Finding,
    Moving,
    Shrinking,
    Ended(End),
}

/// The state of one file's compaction.
#[derive(Debug, Clone)]
pub(crate) struct Rounds<P> {
    tuning: Tuning,
    phase: Phase,
    layout: Layout,
    tidied: bool,
    /// Blocks when the round began, and whether it takes only a part of what stands behind the end.
    round_began: Option<(u32, bool)>,
    /// Whether the last round gave back too little, and the rows that it found at first.
    gained_too_little: bool,
    round_found: Option<u64>,
    queue: VecDeque<P>,
    under_way: Vec<P>,
    refused: HashSet<(u32, u16)>,
    /// How many of the pieces that come next belong to one half of a batch that was refused, the last number
    /// first.
    halves: Vec<usize>,
    passes: u32,
    idle: u32,
    moved_in_pass: u64,
    found_in_pass: u64,
    /// The blocks up to the last one with something live, as found last.
    last: u32,
    busy: u32,
    shrinks: u32,
    versions: u64,
    sleep: Option<(Duration, Wait)>,
    /// Rounds begun.
    pub(crate) rounds: u32,
    /// Lock timeouts met.
    pub(crate) retries: u64,
    /// The longest batch.
    pub(crate) longest: Duration,
}

impl<P: Piece + Clone> Rounds<P> {
    pub(crate) fn new(tuning: Tuning) -> Rounds<P> {
        Rounds {
            tuning,
            phase: Phase::Looking,
            layout: Layout { blocks: 0, last: 0, end: 0 },
            tidied: false,
            round_began: None,
            gained_too_little: false,
            round_found: None,
            queue: VecDeque::new(),
            under_way: Vec::new(),
            refused: HashSet::new(),
            halves: Vec::new(),
            passes: 0,
            idle: 0,
            moved_in_pass: 0,
            found_in_pass: 0,
            last: 0,
            busy: 0,
            shrinks: 0,
            versions: 0,
            sleep: None,
            rounds: 0,
            retries: 0,
            longest: Duration::ZERO,
        }
    }

    /// Whether other sessions are active: batches then take a tenth of their time.
    pub(crate) fn beside_others(&mut self, others: bool) {
        self.tuning.pace.beside_others(others);
    }

    /// Rows behind the end that were found last and not moved.
    pub(crate) fn rows_left(&self) -> u64 {
        self.found_in_pass.saturating_sub(self.moved_in_pass)
    }

    /// How far the pass under way is: pieces moved, and in all.
    pub(crate) fn position(&self) -> (u32, u32) {
        let left = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        let all = u32::try_from(self.found_in_pass).unwrap_or(u32::MAX).max(left);
        (all - left, all)
    }

    /// What to do next.
    pub(crate) fn next_action(&mut self) -> Action<P> {
        if let Phase::Ended(end) = self.phase {
            return Action::Finish(end);
        }
        if let Some((time, why)) = self.sleep.take() {
            return Action::Sleep(time, why);
        }
        match self.phase {
            Phase::Looking => Action::Look,
            Phase::Tidying | Phase::Shrinking => Action::Shrink,
            Phase::Finding => Action::Find(self.layout.end),
            Phase::Moving => {
                if self.tuning.versions.is_some_and(|limit| self.versions > limit) {
                    return Action::VacuumRows;
                }
                let pieces = self.queue.make_contiguous();
                let share = match self.halves.pop() {
                    Some(half) => half.min(pieces.len()),
                    None => self.tuning.pace.share(pieces),
                };
                self.under_way = self.queue.drain(..share).collect();
                Action::Move(self.under_way.clone())
            }
            Phase::Ended(end) => Action::Finish(end),
        }
    }

    /// Takes note of what happened. `jitter` is from 0 to 1.
    pub(crate) fn note(&mut self, event: Event<P>, jitter: f64) {
        if matches!(self.phase, Phase::Ended(_)) {
            return;
        }
        match event {
            Event::Stop => self.phase = Phase::Ended(End::Stopped),
            Event::Looked(layout) => self.looked(layout),
            Event::Found { pieces, last, all } => self.found(pieces, last, all),
            Event::Moved { rows, took } => {
                self.busy = 0;
                self.longest = self.longest.max(took);
                let pieces = std::mem::take(&mut self.under_way);
                self.tuning.pace.took(&pieces, took);
                self.versions += pieces.iter().map(Piece::versions).sum::<u64>();
                self.moved_in_pass += rows;
                self.go_on();
            }
            Event::Busy => {
                self.retries += 1;
                self.busy += 1;
                self.sleep = Some((after_timeouts(self.busy, jitter), Wait::Lock));
                let pieces = std::mem::take(&mut self.under_way);
                // what never gets its locks is left to the next pass
                if self.busy < BUSY {
                    self.halves.push(pieces.len());
                    self.first_again(pieces);
                }
                self.go_on();
            }
            Event::Refused => {
                let pieces = std::mem::take(&mut self.under_way);
                if let [piece] = pieces.as_slice() {
                    self.refused.insert(piece.key());
                } else {
                    let first = pieces.len() / 2;
                    self.halves.extend([pieces.len() - first, first]);
                    self.first_again(pieces);
                }
                self.go_on();
            }
            Event::NoRoom => {
                self.queue.clear();
                self.halves.clear();
                // something live is at the very end: there is nothing to wait for
                self.last = u32::MAX;
                self.phase = Phase::Shrinking;
            }
            Event::Vacuumed(blocks) => self.vacuumed(blocks),
        }
    }

    fn first_again(&mut self, pieces: Vec<P>) {
        for piece in pieces.into_iter().rev() {
            self.queue.push_front(piece);
        }
    }

    fn looked(&mut self, layout: Layout) {
        let before = self.round_began.take();
        self.layout = layout;
        if !layout.pays(self.tuning.min_gain) {
            self.phase = Phase::Ended(End::Compact);
            return;
        }
        if !self.tidied {
            // it tells how much room there is, and has the server search for it from the front on
            self.phase = Phase::Tidying;
            return;
        }
        if let Some((began, partial)) = before {
            let gained = began.saturating_sub(layout.blocks);
            let enough = gained >= least_gain(began, self.tuning.min_gain);
            self.gained_too_little = !(enough || partial && gained > 0);
        }
        self.rounds += 1;
        self.round_began = Some((layout.blocks, false));
        (self.passes, self.idle) = (0, 0);
        self.phase = Phase::Finding;
    }

    fn found(&mut self, mut pieces: Vec<P>, last: u32, all: bool) {
        pieces.retain(|piece| !self.refused.contains(&piece.key()));
        let before = std::mem::replace(&mut self.last, last);
        if let Some((_, partial)) = &mut self.round_began {
            *partial |= !all;
        }
        let moved = std::mem::take(&mut self.moved_in_pass);
        let rows = pieces.iter().map(Piece::rows).sum();
        let found_before = std::mem::replace(&mut self.found_in_pass, rows);
        if self.passes == 0 {
            let before = self.round_found.replace(self.found_in_pass);
            // at the end there may be little left that stands in the way of a lot
            let less = before.is_some_and(|n| n > 0 && self.found_in_pass <= n / 2);
            if self.gained_too_little && !less {
                self.phase = Phase::Ended(End::GainedTooLittle);
                return;
            }
        }
        // what goes from one place at the end to another finds no room in front, unless much of it has; the server
        // looks for room from where it has found some last, so that a few rows find it later
        let few = self.round_found.is_some_and(|all| rows <= all / 10);
        let in_vain = self.passes > 0
            && moved > 0
            && last >= before
            && rows > found_before / 2
            && !(few && self.passes <= FEW_PASSES);
        if self.passes > 0 && moved == 0 {
            self.idle += 1;
        }
        let no_more = self.passes >= MOST_PASSES || self.idle >= IDLE_PASSES || in_vain;
        // a round takes a part once: after its vacuum there is more room
        let part_done = self.passes > 0 && !all;
        if pieces.is_empty() || no_more || part_done {
            self.phase = Phase::Shrinking;
            return;
        }
        if self.passes > 0 && moved == 0 {
            let wait = Duration::from_millis(100u64 << self.idle.min(6));
            self.sleep = Some((wait, Wait::Rows));
        }
        self.queue = pieces.into();
        self.halves.clear();
        self.phase = Phase::Moving;
    }

    /// After a batch.
    fn go_on(&mut self) {
        if self.queue.is_empty() && self.phase == Phase::Moving {
            self.passes += 1;
            self.phase = Phase::Finding;
        }
    }

    fn vacuumed(&mut self, blocks: u32) {
        match self.phase {
            // the table alone
            Phase::Moving => self.versions = 0,
            Phase::Tidying => {
                self.tidied = true;
                let Layout { last, end, .. } = self.layout;
                let layout = Layout { blocks, last: last.min(blocks), end: end.min(blocks) };
                // what is live stands where it stood, so that there is nothing else to see
                if layout.pays(self.tuning.min_gain) {
                    self.looked(layout);
                } else {
                    self.phase = Phase::Looking;
                }
            }
            Phase::Shrinking => {
                self.versions = 0;
                let wanted = self.layout.end.max(self.last);
                self.shrinks += 1;
                let tail_left = blocks.saturating_sub(wanted) >= truncated_for(blocks);
                if tail_left && self.shrinks < SHRINKS {
                    let wait = Duration::from_millis(200u64 << self.shrinks.min(5));
                    self.sleep = Some((wait, Wait::Truncation));
                } else {
                    self.shrinks = 0;
                    self.phase = Phase::Looking;
                }
            }
            Phase::Looking | Phase::Finding | Phase::Ended(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
