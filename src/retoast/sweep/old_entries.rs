//! Which rows have left index entries behind that are to be marked dead (pure).

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::server::chunks::parse_tid;

/// So many rows are looked for together: for fewer a statement is not sent, and leaves have room for as many.
const FEWEST: usize = 8;
/// A look that takes longer, and longer than all else in its batch, finds many entries which cannot be marked yet,
/// for somebody may still see what they lead to: many rows have one key, and an old transaction goes on.
const LONG: Duration = Duration::from_millis(200);
/// After so many of them in a row there are no more looks.
const MOST_LONG: u32 = 2;

/// What is to be marked, and how.
#[derive(Debug, Default)]
pub struct OldEntries(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Whether the indexes were looked at.
    is_known: bool,
    /// The statement; `None` if there is no index that it would help.
    look: Option<String>,
    /// Whether every row gets new entries, wherever it goes.
    all: bool,
    /// Addresses of rows with new entries, batch by batch.
    moved: VecDeque<Vec<String>>,
    /// Whether the last look has failed.
    failed: bool,
    /// How long the last look took, until it is judged. With several jobs it may be another's: their batches are
    /// alike.
    looked: Option<Duration>,
    /// How many of the last looks have taken long, one after the other.
    long: u32,
}

impl OldEntries {
    fn state(&self) -> MutexGuard<'_, State> {
        // what stands there is only ever set whole
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the indexes were looked at.
    pub(super) fn is_known(&self) -> bool {
        self.state().is_known
    }

    /// Notes what was found: the statement, and whether every row gets new entries.
    pub(super) fn know(&self, look: Option<String>, all: bool) {
        *self.state() = State { is_known: true, look, all, ..State::default() };
    }

    /// The statement that is sent with batches.
    pub(super) fn look(&self) -> Option<String> {
        self.state().look.clone()
    }

    /// Takes down where a batch's rows are now that were in these blocks. Those that stay on their pages are taken
    /// to have no new entries.
    pub(super) fn note(&self, blocks: impl Iterator<Item = u32>, now: &[String]) {
        let mut state = self.state();
        if state.look.is_none() {
            return;
        }
        let mut staying: HashMap<u32, u32> = HashMap::new();
        if !state.all {
            blocks.for_each(|block| *staying.entry(block).or_default() += 1);
        }
        let mut moved = Vec::new();
        for ctid in now {
            let block = parse_tid(ctid).and_then(|at| staying.get_mut(&at.block.0));
            match block {
                Some(rows) if *rows > 0 => *rows -= 1,
                _ => moved.push(ctid.clone()),
            }
        }
        state.moved.push_back(moved);
    }

    /// The rows whose old entries are to be marked now, with so many jobs: what another job's transaction may
    /// still see is left for later.
    pub(super) fn due(&self, jobs: usize) -> Vec<String> {
        let mut state = self.state();
        let later = jobs.saturating_sub(1).saturating_mul(2);
        let due = state.moved.len().saturating_sub(later);
        if state.moved.iter().take(due).map(Vec::len).sum::<usize>() < FEWEST {
            return Vec::new();
        }
        state.moved.drain(..due).flatten().collect()
    }

    /// Takes down how long a look has taken.
    pub(super) fn looked(&self, time: Duration) {
        self.state().looked = Some(time);
    }

    /// Judges the look of a batch that has taken so long, itself included. If there are no more looks for it, how
    /// long it has taken.
    pub(super) fn judge(&self, batch: Duration) -> Option<Duration> {
        let mut state = self.state();
        let time = state.looked.take()?;
        let is_long = time > LONG && time > batch.saturating_sub(time);
        state.long = if is_long { state.long + 1 } else { 0 };
        if state.long < MOST_LONG {
            return None;
        }
        *state = State { is_known: true, ..State::default() };
        Some(time)
    }

    /// There are no more looks.
    pub(super) fn fail(&self) {
        *self.state() = State { is_known: true, failed: true, ..State::default() };
    }

    /// Whether a look has failed since this was asked.
    pub(super) fn has_failed(&self) -> bool {
        std::mem::take(&mut self.state().failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(all: bool) -> OldEntries {
        let old = OldEntries::default();
        old.know(Some("SELECT".into()), all);
        old
    }

    #[test]
    fn rows_that_leave_their_pages_are_looked_for_by_the_next_batch() {
        let at = |place: (u32, u32)| format!("({},{})", place.0, place.1);
        let mut now = vec![at((1, 9)), at((2, 3)), at((1, 10))];
        now.extend((40..47).map(|block| at((block, 1))));
        let old = known(false);
        old.note([1, 2, 3, 4].into_iter(), &now);
        assert_eq!(old.due(1), now[2..]);
        assert!(old.due(1).is_empty());
        let all = known(true);
        all.note([1, 2, 3, 4].into_iter(), &now);
        assert_eq!(all.due(1), now);
        let unknown = OldEntries::default();
        unknown.note([1].into_iter(), &now);
        assert!(unknown.due(1).is_empty());
    }

    #[test]
    fn few_rows_wait_for_more() {
        let old = known(false);
        let rows: Vec<String> = (1..=5).map(|item| format!("(9,{item})")).collect();
        old.note(std::iter::empty(), &rows);
        assert!(old.due(1).is_empty());
        old.note(std::iter::empty(), &rows);
        assert_eq!(old.due(1).len(), 10);
    }

    #[test]
    fn what_another_job_may_see_is_left_for_later() {
        let old = known(false);
        for block in 1..=4 {
            let rows: Vec<String> = (1..=4).map(|item| format!("({block},{item})")).collect();
            old.note(std::iter::empty(), &rows);
        }
        let due = old.due(2);
        assert_eq!((due.len(), due[0].as_str(), due[7].as_str()), (8, "(1,1)", "(2,4)"));
        assert!(old.due(2).is_empty());
        assert_eq!(old.due(1).len(), 8);
    }

    #[test]
    fn what_takes_long_again_and_again_is_left() {
        let old = known(false);
        let (long, short) = (Duration::from_secs(1), Duration::from_millis(5));
        let ends = |look: Duration, rest: Duration| {
            old.looked(look);
            old.judge(look + rest).is_some()
        };
        assert!(!ends(long, short) && !ends(short, short) && !ends(long, short));
        // where all takes long, the machine is busy
        assert!(!ends(long, long * 2) && !ends(long, short));
        assert!(old.judge(long).is_none() && old.look().is_some());
        assert!(ends(long, short));
        old.note(std::iter::empty(), &vec!["(1,1)".to_owned(); 20]);
        assert!(old.look().is_none() && old.due(1).is_empty() && old.is_known());
        // that is no error, after which a batch is tried again
        assert!(!old.has_failed());
    }

    #[test]
    fn after_a_failure_nothing_is_looked_for() {
        let old = known(false);
        old.note(std::iter::empty(), &["(1,1)".to_owned()]);
        old.fail();
        assert!(old.look().is_none() && old.due(1).is_empty());
        assert!(old.has_failed() && !old.has_failed());
    }
}
