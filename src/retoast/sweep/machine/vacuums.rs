//! When to vacuum.
//!
//! New values take the room of old ones once those are vacuumed: a file grows by about as much as is dead at the
//! most, be it for a moment. Old values are in the TOAST relation, and a vacuum of it alone reads none of the table's
//! own indexes. It comes early where it is cheap.

use std::time::Duration;

use super::terms::Extent;
use crate::retoast::task::session::Tuning;

/// The table is not vacuumed for fewer bytes than this.
const LEAST: u64 = 1 << 20;
/// Nor is its TOAST relation alone for less than this part of what may be dead.
pub(in crate::retoast::sweep) const EARLY: f64 = 0.2;
/// Nor unless batches have taken so many times as long as that takes.
const WORTH: u32 = 8;
/// Vacuums of the TOAST relation of which the shortest tells how long one takes: something else may have held
/// up the others, and one that comes late has let the file grow.
const RECENT: usize = 3;

/// What is dead, and what vacuums take.
#[derive(Debug, Clone)]
pub(super) struct Vacuums {
    /// Bytes of the table and its TOAST relation.
    bytes: u64,
    /// Part of them that may be dead.
    max_bloat: f64,
    /// Part of them for which the TOAST relation alone is vacuumed.
    early: f64,
    /// Bytes re-toasted since the table was vacuumed, and since its TOAST relation was.
    of_table: u64,
    of_toast: u64,
    /// The time of batches since then.
    worked: Duration,
    /// How long the last vacuums of the TOAST relation took, or such as took more with it.
    recent: Vec<Duration>,
    due: Option<Extent>,
}

impl Vacuums {
    pub(super) fn new(tuning: &Tuning) -> Vacuums {
        // other jobs go on while a vacuum runs
        let part = if tuning.jobs > 1 { 0.5 } else { 1.0 };
        Vacuums {
            bytes: 0,
            max_bloat: tuning.max_bloat * part,
            early: tuning.max_bloat * EARLY,
            of_table: 0,
            of_toast: 0,
            worked: Duration::ZERO,
            recent: Vec::new(),
            due: None,
        }
    }

    /// A scan begins, of so many bytes.
    pub(super) fn scan_begins(&mut self, bytes: u64) {
        self.bytes = bytes;
    }

    /// A scan has ended: the next one is spared what is dead.
    pub(super) fn scan_ended(&mut self) {
        self.due = (self.of_table > 0).then_some(Extent::Table);
    }

    /// A batch has left so many bytes behind.
    pub(super) fn batch_done(&mut self, bytes: u64, took: Duration) {
        self.of_table += bytes;
        self.of_toast += bytes;
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

    pub(super) fn due(&self) -> Option<Extent> {
        self.due
    }

    /// What is due begins: its extent, and the part of all bytes that is dead in the TOAST relation at the most.
    pub(super) fn begin(&mut self) -> Option<(Extent, f64)> {
        let extent = self.due.take()?;
        let part = self.of_toast as f64 / self.bytes.max(1) as f64;
        (self.of_toast, self.worked) = (0, Duration::ZERO);
        if extent == Extent::Table {
            self.of_table = 0;
        }
        Some((extent, part))
    }

    /// So much was vacuumed, which may be more than was due.
    pub(super) fn done(&mut self, extent: Extent, took: Duration) {
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

    /// What could not be removed.
    pub(super) fn still_dead(&mut self, bytes: u64) {
        self.of_table = self.of_table.max(bytes.min(self.limit(self.max_bloat) / 2));
        self.of_toast = self.of_toast.max(bytes.min(self.limit(self.early) / 2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    /// Of a table of 1000 MB, of which 5 % may be dead.
    fn vacuums() -> Vacuums {
        let mut vacuums = Vacuums::new(&Tuning {
            window: 8,
            passes: 4,
            batch: Duration::from_millis(100),
            batch_bytes: MB,
            max_bloat: 0.05,
            jobs: 1,
        });
        vacuums.scan_begins(1000 * MB);
        vacuums
    }

    /// A batch, and what is due then.
    fn batch(vacuums: &mut Vacuums, mb: u64, ms: u64) -> Option<Extent> {
        vacuums.batch_done(mb * MB, Duration::from_millis(ms));
        vacuums.due()
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
        assert_eq!(batch(&mut vacuums, 11, 399), None);
        assert_eq!(batch(&mut vacuums, 1, 1), Some(Extent::Toast));
        assert_eq!(vacuum(&mut vacuums, 10), (Extent::Toast, 12.0));
        assert_eq!(batch(&mut vacuums, 11, 80), Some(Extent::Toast));
        // held up by something else
        assert_eq!(vacuum(&mut vacuums, 9000), (Extent::Toast, 11.0));
        assert_eq!(batch(&mut vacuums, 11, 80), Some(Extent::Toast));
        assert_eq!(vacuum(&mut vacuums, 10), (Extent::Toast, 11.0));
        // 45 MB are dead in the heap
        assert_eq!(batch(&mut vacuums, 6, 10), Some(Extent::Table));
        assert_eq!(vacuum(&mut vacuums, 50), (Extent::Table, 6.0));
        assert_eq!(vacuums.due(), None);
    }

    #[test]
    fn one_that_takes_long_waits_for_the_limit_and_is_timed_by_a_shorter_one_of_all() {
        let mut vacuums = vacuums();
        batch(&mut vacuums, 11, 100);
        assert_eq!(vacuum(&mut vacuums, 1000), (Extent::Toast, 11.0));
        assert_eq!(batch(&mut vacuums, 39, 400), None);
        assert_eq!(batch(&mut vacuums, 1, 10), Some(Extent::Table));
        assert_eq!(vacuum(&mut vacuums, 12), (Extent::Table, 40.0));
        assert_eq!(batch(&mut vacuums, 11, 100), Some(Extent::Toast));
        // with all else, for the TOAST relation alone is out of reach: nothing is dead then
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
