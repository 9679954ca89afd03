//! How much of a conversion is done, how long the rest will take, and a record of its course (pure).
//!
//! After the scan that re-toasts rows, the table is vacuumed, and another scan proves that nothing is left. What these
//! will take is known from what reading and vacuuming have taken so far, so that a conversion is at 100 % only at its
//! end.

use std::time::Duration;

use crate::retoast::listener::Advance;
use crate::retoast::pace::rules::Cause;
use crate::retoast::result::CoursePoint;

/// Points that a record keeps; when there are more, every second one is discarded.
const RECORDED: usize = 240;

/// Below this part of a scan, nothing is said about the rest.
const TOO_EARLY: f64 = 0.01;
/// The last vacuum as a fraction of the scan that re-toasts rows, as long as the table has not been vacuumed.
const VACUUM: f64 = 0.1;

/// What has been measured of a conversion.
#[derive(Debug, Clone, Default)]
pub(crate) struct Course {
    /// How long reading took, and the number of blocks read.
    reading: Duration,
    read: u64,
    /// The last vacuum of the whole table.
    vacuum: Option<Duration>,
    /// The largest fraction so far.
    most: f64,
}

impl Course {
    /// Records that reading so many blocks took so long.
    pub(crate) fn has_read(&mut self, blocks: u32, took: Duration) {
        self.reading += took;
        self.read += u64::from(blocks);
    }

    /// Records a vacuum of the whole table.
    pub(crate) fn has_vacuumed(&mut self, took: Duration) {
        self.vacuum = Some(took);
    }

    /// Adds to `now` the fraction of the conversion that is done, and how long the rest will take, which is not known at
    /// the very start. `elapsed` and `scanning`: the time since the first scan began, and since this one.
    pub(crate) fn at(&mut self, now: Advance, elapsed: Duration, scanning: Duration) -> Advance {
        let left = self.left(now, scanning);
        if let Some(left) = left {
            let elapsed = elapsed.as_secs_f64();
            let part = elapsed / (elapsed + left.as_secs_f64()).max(f64::MIN_POSITIVE);
            self.most = self.most.max(part).min(1.0);
        }
        Advance { done: Some(self.most), left, ..now }
    }

    fn left(&self, now: Advance, scanning: Duration) -> Option<Duration> {
        let part = f64::from(now.read) / f64::from(now.blocks.max(1));
        if part < TOO_EARLY {
            return None;
        }
        let rest = scanning.mul_f64((1.0 - part).max(0.0) / part);
        if now.scan > 1 || now.rows == 0 {
            return Some(rest);
        }
        let proof = self.reading.mul_f64(f64::from(now.blocks) / (self.read as f64).max(1.0));
        let vacuum = self.vacuum.unwrap_or_else(|| (scanning + rest).mul_f64(VACUUM));
        Some(rest + vacuum + proof)
    }
}

/// Points of the course, few enough for a report.
#[derive(Debug, Default)]
pub(crate) struct Record {
    points: Vec<CoursePoint>,
    /// The least time between two points, in milliseconds.
    every: u64,
    /// The reason of the last wait since the last point.
    waited_for: Option<Cause>,
}

impl Record {
    /// Records a wait; a sleep after a batch only if there was no other.
    pub(crate) fn has_waited(&mut self, cause: Cause) {
        if cause != Cause::Nice || self.waited_for.is_none() {
            self.waited_for = Some(cause);
        }
    }

    /// Records a point, unless the last one is too near.
    pub(crate) fn add(&mut self, point: CoursePoint) {
        let last = self.points.last().map(|last| last.ms);
        if last.is_some_and(|last| point.ms < last.saturating_add(self.every)) {
            return;
        }
        self.points.push(CoursePoint { waited_for: self.waited_for.take(), ..point });
        if self.points.len() > RECORDED {
            self.thin_out();
        }
    }

    /// Discards every second point; what it waited for is kept.
    fn thin_out(&mut self) {
        let mut kept = Vec::with_capacity(RECORDED);
        let mut discarded = None;
        for (number, mut point) in self.points.drain(..).enumerate() {
            if number % 2 == 1 {
                discarded = point.waited_for;
                continue;
            }
            point.waited_for = point.waited_for.or(discarded.take());
            kept.push(point);
        }
        let length = kept.last().map_or(0, |point| point.ms);
        self.every = (length / RECORDED as u64).saturating_mul(2).max(1);
        self.points = kept;
    }

    /// All points, with a last one.
    pub(crate) fn take(&mut self, last: CoursePoint) -> Vec<CoursePoint> {
        let Record { mut points, waited_for, .. } = std::mem::take(self);
        points.push(CoursePoint { waited_for, ..last });
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(scan: u32, read: u32) -> Advance {
        Advance { scan, read, blocks: 1000, rows: 10, ..Advance::default() }
    }

    fn seconds(
        course: &mut Course,
        now: Advance,
        elapsed: u64,
        scanning: u64,
    ) -> (f64, Option<u64>) {
        let elapsed = Duration::from_secs(elapsed);
        let Advance { done, left, .. } = course.at(now, elapsed, Duration::from_secs(scanning));
        (done.unwrap(), left.map(|left| left.as_secs()))
    }

    #[test]
    fn the_last_vacuum_and_the_proof_are_still_to_come() {
        let mut course = Course::default();
        course.has_read(500, Duration::from_secs(2));
        // half: 10 s more, a tenth of 20 s for the vacuum, 4 s for the proof
        assert_eq!(seconds(&mut course, at(1, 500), 10, 10), (10.0 / 26.0, Some(16)));
        course.has_vacuumed(Duration::from_secs(9));
        assert_eq!(seconds(&mut course, at(1, 1000), 20, 20), (20.0 / 33.0, Some(13)));
        // the proof comes sooner than was expected
        assert_eq!(seconds(&mut course, at(2, 500), 25, 1), (25.0 / 26.0, Some(1)));
    }

    #[test]
    fn nothing_is_said_at_the_very_start_and_done_is_never_less_than_before() {
        let mut course = Course::default();
        assert_eq!(seconds(&mut course, at(1, 0), 3, 3), (0.0, None));
        let nothing_to_do = Advance { rows: 0, ..at(1, 1000) };
        assert_eq!(seconds(&mut course, nothing_to_do, 3, 3), (1.0, Some(0)));
        assert_eq!(seconds(&mut course, at(2, 0), 4, 4), (1.0, None));
    }

    #[test]
    fn a_long_course_has_few_points_from_beginning_to_end() {
        let mut record = Record::default();
        for second in 0..100_000u64 {
            if second == 5001 {
                record.has_waited(Cause::Xmin);
                record.has_waited(Cause::Nice);
            }
            record.add(CoursePoint { ms: second * 1000, bytes: second, ..CoursePoint::default() });
        }
        let last = CoursePoint { ms: 100_000_000, ..CoursePoint::default() };
        let points = record.take(last);
        assert_eq!(points.last(), Some(&last));
        assert!((RECORDED / 2..=RECORDED + 1).contains(&points.len()), "{}", points.len());
        assert_eq!(points[0], CoursePoint::default());
        assert!(points.is_sorted_by_key(|point| point.ms));
        let waits: Vec<&CoursePoint> =
            points.iter().filter(|point| point.waited_for.is_some()).collect();
        let is_at = |point: &CoursePoint| (5_001_000..7_000_000).contains(&point.ms);
        assert!(matches!(waits[..], [wait] if is_at(wait) && wait.waited_for == Some(Cause::Xmin)));
    }
}
