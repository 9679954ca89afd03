//! The relations that were not read yet, and how the time is divided among them.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use crate::server::listing::Listed;

/// A relation's share of the remaining time is its share of the remaining bytes times this: the rest is for the parts of
/// reading that do not depend on size.
const PART_BY_BYTES: f64 = 0.5;
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

    /// The next relation, and when its time is up.
    pub(super) fn take(&self) -> Option<(Listed, Option<Instant>)> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            return None;
        }
        let part =
            part(left.relations.front()?.bytes, left.bytes, left.relations.len(), self.workers);
        let next = left.relations.pop_front()?;
        left.bytes = left.bytes.saturating_sub(next.bytes);
        let until = self
            .deadline
            .map(|deadline| now + deadline.saturating_duration_since(now).mul_f64(part));
        Some((next, until))
    }

    /// The relations that were not assigned.
    pub(super) fn rest(&self) -> VecDeque<Listed> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut left.relations)
    }
}

/// The fraction of the remaining time that a relation of `bytes` may take, if it is one of `count` with `left` bytes in all.
fn part(bytes: u64, left: u64, count: usize, workers: usize) -> f64 {
    let by_bytes = bytes as f64 / left.max(1) as f64 * PART_BY_BYTES;
    let by_count = 1.0 / count.max(1) as f64;
    (by_bytes.max(by_count) * workers as f64).min(if count > workers { PART_BY_BYTES } else { 1.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_relation_leaves_time_for_the_others_and_the_last_ones_take_it_all() {
        assert_eq!(part(990, 1000, 600, 1), 0.495);
        assert_eq!(part(990, 1000, 600, 2), 0.5);
        assert_eq!(part(1, 1000, 500, 2), 0.004);
        assert_eq!(part(10, 20, 2, 2), 1.0);
        assert_eq!(part(0, 0, 1, 1), 1.0);
    }
}
