//! What the compaction of one file does next (pure): it is told what happened, and says what to do. It never sees
//! a connection, a clock or a page.
//!
//! A round looks how full the file is, finds what stands behind the block that would be its end, and moves that,
//! in passes until nothing is left there that can be moved; then the file is vacuumed and truncated. Rounds follow
//! each other as long as each gives back what was asked for.
//!
//! How full a file is may not be known, and what stands behind the end may not fit the room in front. So a round that
//! has found no room is followed by one that is to give back less, until not even the least that is worth a round is to
//! be had: that proves that there is no room.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use crate::fill::room::Layout;
use crate::model::pages::{least_gain, truncated_for};
use crate::retoast::listener::Wait;
use crate::retoast::pace::rules::{BESIDE_OTHERS, after_timeouts, smoothed};

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
/// Pieces of a transaction that only tries whether there is room.
const TRIED: usize = 2;
/// The most pieces of a transaction.
const MOST_PIECES: usize = 10_000;
/// Rounds one after the other that find no room in front, and the part of what one was to give back that the next one is
/// to.
const MOST_IN_VAIN: u32 = 3;
const LESS: f64 = 0.25;

/// How it goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tuning {
    pub(crate) pace: Pace,
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

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The free space left is less than a round must give back.
    Compact,
    /// There is more to spare by the looks of it, but nobody was in the way, and what stands at the end of the file finds
    /// no room in front.
    NoRoom,
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

/// A round.
#[derive(Debug, Clone, Copy)]
struct Round {
    /// Blocks when it began.
    blocks: u32,
    /// Whether it takes only a part of what stands behind the end.
    partial: bool,
    /// Blocks that it is to give back.
    wanted: u32,
}

/// What the rounds before say of the next one.
#[derive(Debug, Clone)]
struct Trend {
    /// Whether the last round gave back too little, and the rows that it found at first.
    gained_too_little: bool,
    found: Option<u64>,
    /// Whether the round has found no room in front, and how many rounds one after the other gave back too little for
    /// that reason.
    lacks_room: bool,
    in_vain: u32,
    /// The part of what is to spare that the next round is to give back.
    part: f64,
    /// Whether nothing is to spare unless tuples are shorter than they seem.
    guesses: bool,
}

/// The pass under way.
#[derive(Debug, Clone)]
struct Pass<P> {
    queue: VecDeque<P>,
    /// Pieces in the queue when the pass began.
    queued: usize,
    under_way: Vec<P>,
    /// How many of the pieces that come next belong to one half of a batch that was refused, the last number
    /// first.
    halves: Vec<usize>,
    moved: u64,
    found: u64,
    /// Rows that were updated and are still where they were, as they found no room elsewhere, and those that others had
    /// locked or changed.
    stayed: u64,
    locked: u64,
}

/// What stands in the way.
#[derive(Debug, Clone, Default)]
struct Obstacles {
    /// Rows that others had locked or changed in the last whole pass.
    locked: u64,
    /// Rows of the pieces that were refused.
    refused: u64,
    /// Rows behind the end that others have written since the work began.
    of_others: u64,
    /// Whether the last vacuum had to leave old row versions that others still see.
    held_back: bool,
}

/// How often something was tried one after the other.
#[derive(Debug, Clone, Default)]
struct Tries {
    passes: u32,
    /// Passes that moved nothing.
    idle: u32,
    busy: u32,
    shrinks: u32,
}

/// The state of one file's compaction.
#[derive(Debug, Clone)]
pub(crate) struct Rounds<P> {
    tuning: Tuning,
    phase: Phase,
    layout: Layout,
    /// The end that the round is to reach.
    aim: u32,
    tidied: bool,
    round: Option<Round>,
    trend: Trend,
    pass: Pass<P>,
    refused: HashSet<(u32, u16)>,
    obstacles: Obstacles,
    tries: Tries,
    /// The blocks up to the last one with something live, as found last.
    last: u32,
    versions: u64,
    sleep: Option<(Duration, Wait)>,
    pub(crate) counts: Counts,
}

/// What is reported.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
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
            layout: Layout { blocks: 0, last: 0, end: 0, least_end: 0 },
            aim: 0,
            tidied: false,
            round: None,
            trend: Trend {
                gained_too_little: false,
                found: None,
                lacks_room: false,
                in_vain: 0,
                part: 1.0,
                guesses: false,
            },
            pass: Pass {
                queue: VecDeque::new(),
                queued: 0,
                under_way: Vec::new(),
                halves: Vec::new(),
                moved: 0,
                found: 0,
                stayed: 0,
                locked: 0,
            },
            refused: HashSet::new(),
            obstacles: Obstacles::default(),
            tries: Tries::default(),
            last: 0,
            versions: 0,
            sleep: None,
            counts: Counts::default(),
        }
    }

    /// Whether other sessions are active: batches then take a tenth of their time.
    pub(crate) fn beside_others(&mut self, others: bool) {
        self.tuning.pace.beside_others(others);
    }

    /// Rows behind the end that were found last and not moved.
    pub(crate) fn rows_left(&self) -> u64 {
        self.pass.found.saturating_sub(self.pass.moved)
    }

    /// Those of them that others had locked, or have changed meanwhile.
    pub(crate) fn rows_locked(&self) -> u64 {
        self.obstacles.locked.max(self.pass.locked).min(self.rows_left())
    }

    /// Rows behind the end that others have written since the work began.
    pub(crate) fn rows_of_others(&self) -> u64 {
        self.obstacles.of_others
    }

    /// Whether the last vacuum had to leave old row versions that others still see.
    pub(crate) fn is_held_back(&self) -> bool {
        self.obstacles.held_back
    }

    /// Of the rows that were moved last, so many found no room elsewhere. To be told before that they were.
    pub(crate) fn stayed(&mut self, rows: u64) {
        self.pass.stayed = rows;
    }

    /// Others have written so many of the rows that were found last. To be told before that they were found.
    pub(crate) fn written_by_others(&mut self, rows: u64) {
        self.obstacles.of_others = rows;
    }

    /// Whether the vacuum just done had to leave old row versions that others still see.
    pub(crate) fn held_back(&mut self, is: bool) {
        self.obstacles.held_back = is;
    }

    /// The end that rows must not go behind, where it is only tried whether there is room in front of it.
    pub(crate) fn trial(&self) -> Option<u32> {
        self.trend.guesses.then_some(self.aim)
    }

    /// Whether anything but a lack of room may have kept the last round from giving back what it was to.
    fn hindered(&self) -> bool {
        self.obstacles.locked > 0
            || self.obstacles.of_others > 0
            || self.obstacles.held_back
            || self.obstacles.refused > 0
    }

    /// The progress of the current pass: pieces taken from the queue, and pieces in all.
    pub(crate) fn position(&self) -> (u32, u32) {
        let count = |pieces: usize| u32::try_from(pieces).unwrap_or(u32::MAX);
        let done = self.pass.queued.saturating_sub(self.pass.queue.len());
        (count(done), count(self.pass.queued))
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
            Phase::Finding => Action::Find(self.aim),
            Phase::Moving => {
                if self.tuning.versions.is_some_and(|limit| self.versions > limit) {
                    return Action::VacuumRows;
                }
                let pieces = self.pass.queue.make_contiguous();
                let share = match self.pass.halves.pop() {
                    Some(half) => half.min(pieces.len()),
                    None => self.tuning.pace.share(pieces),
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
                self.tries.busy = 0;
                self.counts.longest = self.counts.longest.max(took);
                let pieces = std::mem::take(&mut self.pass.under_way);
                self.tuning.pace.took(&pieces, took);
                self.versions += pieces.iter().map(Piece::versions).sum::<u64>();
                self.pass.moved += rows;
                let all = pieces.iter().map(Piece::rows).sum::<u64>();
                let updated = rows + std::mem::take(&mut self.pass.stayed);
                self.pass.locked += all.saturating_sub(updated);
                self.go_on();
            }
            Event::Busy => {
                self.counts.retries += 1;
                self.tries.busy += 1;
                self.sleep = Some((after_timeouts(self.tries.busy, jitter), Wait::LockTimeout));
                let pieces = std::mem::take(&mut self.pass.under_way);
                // what never gets its locks is left to the next pass
                if self.tries.busy < BUSY {
                    self.pass.halves.push(pieces.len());
                    self.first_again(pieces);
                } else {
                    self.pass.locked += pieces.iter().map(Piece::rows).sum::<u64>();
                }
                self.go_on();
            }
            Event::Refused => {
                let pieces = std::mem::take(&mut self.pass.under_way);
                if let [piece] = pieces.as_slice() {
                    self.refused.insert(piece.key());
                    self.obstacles.refused += piece.rows();
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
                // something live is at the very end: there is nothing to wait for
                self.last = u32::MAX;
                self.trend.lacks_room = true;
                self.obstacles.locked = self.pass.locked;
                self.phase = Phase::Shrinking;
            }
            Event::Vacuumed(blocks) => self.vacuumed(blocks),
        }
    }

    fn first_again(&mut self, pieces: Vec<P>) {
        for piece in pieces.into_iter().rev() {
            self.pass.queue.push_front(piece);
        }
    }

    fn looked(&mut self, layout: Layout) {
        let before = self.round.take();
        self.layout = layout;
        if !layout.may_pay() {
            self.phase = Phase::Ended(End::Compact);
            return;
        }
        if !self.tidied {
            // it tells how much room there is, and has the server search for it from the front on
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
        self.begin_round(before.filter(|_| self.trend.gained_too_little));
        self.phase = Phase::Finding;
    }

    /// Blocks that a round has to give back at the least.
    fn least(&self) -> u32 {
        least_gain(self.layout.blocks)
    }

    /// Says which part of what is to spare the round is to give back; `in_vain`: the one before, if that gave back too
    /// little, which decides this once it is known what stands behind the end now.
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

    /// After a round that gave back too little for want of room: whether there is less to be tried.
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

    fn found(&mut self, mut pieces: Vec<P>, last: u32, all: bool) {
        pieces.retain(|piece| !self.refused.contains(&piece.key()));
        let before = std::mem::replace(&mut self.last, last);
        if let Some(round) = &mut self.round {
            round.partial |= !all;
        }
        let moved = std::mem::take(&mut self.pass.moved);
        let locked = std::mem::take(&mut self.pass.locked);
        let rows = pieces.iter().map(Piece::rows).sum();
        let found_before = std::mem::replace(&mut self.pass.found, rows);
        if self.tries.passes == 0 {
            let before = self.trend.found.replace(self.pass.found);
            // at the end there may be little left that stands in the way of a lot
            let less = before.is_some_and(|n| n > 0 && self.pass.found <= n / 2);
            if self.trend.gained_too_little && !less {
                self.trend.gained_too_little = false;
                if self.wants_less() {
                    self.trend.found = None;
                } else {
                    let room = self.trend.lacks_room && !self.hindered();
                    self.phase =
                        Phase::Ended(if room { End::NoRoom } else { End::GainedTooLittle });
                }
                return;
            }
            self.trend.lacks_room = false;
        }
        // what goes from one place at the end to another finds no room in front, unless much of it has; the server
        // looks for room from where it has found some last, so that a few rows find it later
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
        // a round takes a part once: after its vacuum there is more room
        let part_done = self.tries.passes > 0 && !all;
        if pieces.is_empty() || no_more || part_done {
            self.obstacles.locked = locked.min(rows);
            // what was moved and is still, or again, behind the end
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

    /// After a batch.
    fn go_on(&mut self) {
        if self.pass.queue.is_empty() && self.phase == Phase::Moving {
            self.tries.passes += 1;
            self.phase = Phase::Finding;
        }
    }

    fn vacuumed(&mut self, blocks: u32) {
        match self.phase {
            // the table alone
            Phase::Moving => self.versions = 0,
            Phase::Tidying => {
                self.tidied = true;
                let Layout { last, end, least_end, .. } = self.layout;
                let [last, end, least_end] = [last, end, least_end].map(|block| block.min(blocks));
                let layout = Layout { blocks, last, end, least_end };
                // what is live stands where it stood, so that there is nothing else to see
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

/// What moving a row costs besides its bytes, in bytes.
const ROW: u64 = 400;
/// What the first transaction moves, in the same.
const FIRST: f64 = 200_000.0;

/// Something that is moved whole.
pub(crate) trait Piece {
    /// Its address, by which it is known again.
    fn key(&self) -> (u32, u16);
    /// Rows in it.
    fn rows(&self) -> u64;
    /// Bytes that are written to move it.
    fn bytes(&self) -> u64;
    /// Bytes of what is moved, as they are stored.
    fn stored(&self) -> u64 {
        self.bytes()
    }
    /// Tuples of the file that it has.
    fn tuples(&self) -> u64 {
        self.rows()
    }
    /// Bytes of old row versions that it leaves in the table.
    fn versions(&self) -> u64;
    /// Whether one transaction may move it after this one.
    fn follows(&self, _before: &Self) -> bool {
        true
    }
    /// How many of the `left` rows one transaction may move.
    fn most_of(left: usize) -> usize {
        left
    }
}

/// How fast it goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// How long a transaction is to take.
    batch: Duration,
    /// Bytes that one writes at the most, unless one piece has more.
    most_bytes: u64,
    /// Bytes and rows a millisecond, smoothed.
    speed: Option<f64>,
    others: bool,
}

fn cost(piece: &impl Piece) -> u64 {
    piece.bytes().saturating_add(piece.rows().saturating_mul(ROW))
}

impl Pace {
    pub(crate) fn new(batch: Duration, most_bytes: u64) -> Pace {
        Pace { batch, most_bytes, speed: None, others: false }
    }

    /// Whether other sessions are active.
    pub(crate) fn beside_others(&mut self, others: bool) {
        self.others = others;
    }

    /// How many of the pieces one transaction takes; at least one, if there is one.
    pub(crate) fn share<P: Piece>(&self, pieces: &[P]) -> usize {
        let ms = self.batch.as_secs_f64() * 1000.0;
        let mut most = self.speed.map_or(FIRST, |speed| speed * ms);
        if self.others {
            most *= BESIDE_OTHERS;
        }
        let (mut costs, mut bytes) = (0u64, 0u64);
        let before = std::iter::once(None).chain(pieces.iter().map(Some));
        let fits = |(piece, before): &(&P, Option<&P>)| {
            let follows = before.is_none_or(|before| piece.follows(before));
            costs = costs.saturating_add(cost(*piece));
            bytes = bytes.saturating_add(piece.bytes());
            follows && costs as f64 <= most && bytes <= self.most_bytes
        };
        let most = P::most_of(pieces.len()).min(MOST_PIECES);
        pieces.iter().zip(before).take(most).take_while(fits).count().max(1).min(pieces.len())
    }

    /// These took so long.
    pub(crate) fn took<P: Piece>(&mut self, pieces: &[P], time: Duration) {
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

    struct Row(u64);

    impl Piece for Row {
        fn key(&self) -> (u32, u16) {
            (0, 1)
        }
        fn rows(&self) -> u64 {
            1
        }
        fn bytes(&self) -> u64 {
            self.0
        }
        fn versions(&self) -> u64 {
            40
        }
    }

    fn rows(count: usize, bytes: u64) -> Vec<Row> {
        (0..count).map(|_| Row(bytes)).collect()
    }

    #[test]
    fn a_transaction_takes_its_time_and_a_tenth_of_it_beside_others() {
        let mut pace = Pace::new(Duration::from_millis(100), 16 << 20);
        assert_eq!(pace.share(&rows(1_000, 1_600)), 100);
        pace.took(&rows(100, 1_600), Duration::from_millis(10));
        assert_eq!(pace.share(&rows(5_000, 1_600)), 1_000);
        pace.beside_others(true);
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
