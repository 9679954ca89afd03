//! The relations that were not read yet, and how the time is divided among them.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::server::listing::Listed;

/// A relation's share of the remaining time is its share of the remaining bytes times this: the rest is for the parts of
/// reading that do not depend on size.
const PART_BY_BYTES: f64 = 0.5;
/// Relations up to this size are assigned several at a time, because their catalog rows take longer to read than their
/// blocks.
const SMALL: u64 = 256 << 10;
/// Fewest and most relations assigned together; each connection takes its share in several portions.
const TOGETHER: RangeInclusive<usize> = 8..=200;
const SHARES: usize = 4;
/// What advice on one relation leaves to each of those after it: of a size that is worth advice, and of any.
const LEFT_TO_LARGE: Duration = Duration::from_millis(500);
const LEFT_TO_EACH: Duration = Duration::from_millis(20);

/// When the time for a relation is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct TimeShare {
    pub(super) until: Option<Instant>,
    /// For advice on its columns: that takes as long for a small sample as for a large one, and the larger a relation, the
    /// more it may bring.
    pub(super) advice_until: Option<Instant>,
}

/// The relations that were not assigned yet.
pub(super) struct Queue {
    left: Mutex<Unassigned>,
    workers: usize,
    deadline: Option<Instant>,
}

struct Unassigned {
    relations: VecDeque<Listed>,
    bytes: u64,
}

impl Queue {
    pub(super) fn new(relations: Vec<Listed>, workers: usize, deadline: Option<Instant>) -> Queue {
        let bytes = relations.iter().fold(0u64, |sum, one| sum.saturating_add(one.bytes));
        Queue {
            left: Mutex::new(Unassigned { relations: relations.into(), bytes }),
            workers,
            deadline,
        }
    }

    /// When time is up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The next relation, or several small ones, and when their time is up.
    pub(super) fn take(&self) -> Option<(Vec<Listed>, TimeShare)> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            return None;
        }
        let count = left.relations.len();
        let most =
            count.div_ceil(self.workers.max(1) * SHARES).clamp(*TOGETHER.start(), *TOGETHER.end());
        let first = left.relations.iter().take(most);
        let small = first.take_while(|next| next.bytes <= SMALL && !next.locked).count();
        let next: Vec<Listed> = left.relations.drain(..small.max(1).min(count)).collect();
        let bytes = next.iter().fold(0u64, |sum, one| sum.saturating_add(one.bytes));
        if next.is_empty() {
            return None;
        }
        let part = part_of_time(bytes, next.len(), left.bytes, count, self.workers);
        left.bytes = left.bytes.saturating_sub(bytes);
        let Some(deadline) = self.deadline else { return Some((next, TimeShare::default())) };
        let time = deadline.saturating_duration_since(now);
        let until = now + time.mul_f64(part);
        let rest = left_to_others(left.relations.iter().map(|one| one.bytes));
        let advice_until = until.max(now + time.saturating_sub(rest));
        Some((next, TimeShare { until: Some(until), advice_until: Some(advice_until) }))
    }
}

/// How much time advice leaves to relations of these sizes.
fn left_to_others(bytes: impl Iterator<Item = u64>) -> Duration {
    bytes.map(|bytes| if bytes > SMALL { LEFT_TO_LARGE } else { LEFT_TO_EACH }).sum()
}

/// The fraction of the remaining time that `taken` relations with these bytes may take, of `count` relations that are
/// left, which have `left` bytes.
fn part_of_time(bytes: u64, taken: usize, left: u64, count: usize, workers: usize) -> f64 {
    let by_bytes = bytes as f64 / left.max(1) as f64 * PART_BY_BYTES;
    let by_count = taken as f64 / count.max(1) as f64;
    (by_bytes.max(by_count) * workers as f64).min(if count > workers { PART_BY_BYTES } else { 1.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(oid: u32, bytes: u64, locked: bool) -> Listed {
        Listed {
            oid: toast_format::disk::Oid(oid),
            name: String::new(),
            bytes,
            heap_bytes: bytes,
            rows_read: 0,
            dead_rows: 0,
            vacuum_age_seconds: None,
            locked,
            root: None,
        }
    }

    #[test]
    fn a_large_relation_leaves_time_for_the_others_and_the_last_ones_take_it_all() {
        assert_eq!(part_of_time(990, 1, 1000, 600, 1), 0.495);
        assert_eq!(part_of_time(990, 1, 1000, 600, 2), 0.5);
        assert_eq!(part_of_time(1, 1, 1000, 500, 2), 0.004);
        assert_eq!(part_of_time(10, 1, 20, 2, 2), 1.0);
        assert_eq!(part_of_time(0, 1, 0, 1, 1), 1.0);
    }

    #[test]
    fn advice_takes_what_the_other_relations_do_not_need() {
        let seconds = |share: Option<Instant>, from: Instant| share.unwrap().duration_since(from);
        let began = Instant::now();
        let deadline = began + Duration::from_secs(10);
        let take = |others: usize, bytes: u64| {
            let mut all = vec![listed(0, 1 << 30, false)];
            all.extend((0..others).map(|_| listed(1, bytes, false)));
            let (_, share) = Queue::new(all, 1, Some(deadline)).take().unwrap();
            (seconds(share.until, began).as_secs(), seconds(share.advice_until, began).as_secs())
        };
        assert_eq!(take(0, 0), (10, 10));
        assert_eq!(take(2, 1 << 20), (4, 9));
        assert_eq!(take(100, 8192), (4, 8));
        assert_eq!(take(1000, 8192), (4, 4));
    }

    #[test]
    fn small_relations_are_assigned_together_and_every_one_once() {
        let mut all = vec![listed(0, 1 << 30, false)];
        all.extend((1..1000).map(|oid| listed(oid, 8192, false)));
        all.push(listed(1000, 0, true));
        let queue = Queue::new(all, 2, None);
        let mut taken = Vec::new();
        while let Some((some, _)) = queue.take() {
            assert!(some.len() <= 126 && (some.len() == 1 || some.iter().all(|one| !one.locked)));
            taken.push(some);
        }
        assert_eq!((taken[0].len(), taken[1].len()), (1, 125));
        let oids: Vec<u32> = taken.iter().flatten().map(|one| one.oid.0).collect();
        assert_eq!(oids, (0..=1000).collect::<Vec<_>>());
        assert!(taken.len() < 100, "{}", taken.len());
    }
}
